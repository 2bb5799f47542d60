//! Conditions that reach a scan from above it, through joins, derived tables, queries of WITH and unions: what the index can answer
//! of them finds fewer rows, and the plan tests these again.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, Operator};
use datafusion::scalar::ScalarValue;

use super::bind::Literal;
use super::column::SqlColumn;
use super::functions::LIKE;
use super::push::{Clause, Comparable, has_exists_within};
use super::table::{ScanSource, mark_name};
use serde_json::json;

/// Most parts of a condition that the index is asked for.
const MAX_PARTS: usize = 1_000;

/// Makes a clause that every row meets for which a condition is true; `None` where the index knows none.
pub(super) fn superset(expr: &Expr, source: &ScanSource) -> Option<Clause> {
    Translation { source, nested: None, exact: false }.translated(expr)
}

/// Makes a clause that the rows meet for which a condition is true, and no others; `None` where the index knows none.
pub(super) fn exact(expr: &Expr, source: &ScanSource) -> Option<Clause> {
    Translation { source, nested: None, exact: true }.translated(expr)
}

/// Makes a clause that the elements of a nested path meet for which a condition is true, and no others.
pub(super) fn exact_for_elements(expr: &Expr, source: &ScanSource, nested: &str) -> Option<Clause> {
    Translation { source, nested: Some(nested), exact: true }.translated(expr)
}

/// Makes a clause that the rows meet in which a column has one of some values, where the index compares these as terms.
pub(super) fn any_of(column: &SqlColumn, values: &[ScalarValue], source: &ScanSource) -> Option<Clause> {
    let literals: Vec<Literal> = values.iter().map(literal).collect::<Option<_>>()?;
    let own = Translation { source, nested: None, exact: false }.comparable(&column.name)?;
    own.has_terms().then(|| own.any_of(&literals)).flatten().map(|pushed| pushed.truth)
}

/// A translation of conditions into clauses.
#[derive(Clone, Copy)]
struct Translation<'s> {
    source: &'s ScanSource,
    /// The nested path whose elements conditions are on; `None` for conditions on documents.
    nested: Option<&'s str>,
    /// True where a clause must not be met by more than the condition is.
    exact: bool,
}

impl Translation<'_> {
    fn translated(&self, expr: &Expr) -> Option<Clause> {
        let mut parts = 0;
        let count = |_: &Expr| {
            parts += 1;
            Ok(if parts > MAX_PARTS { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        };
        expr.apply(count).ok()?;
        if parts > MAX_PARTS { None } else { self.clause_of(expr) }
    }

    /// Translates a condition; one that is not exact is more than what it is translated to.
    fn clause_of(&self, expr: &Expr) -> Option<Clause> {
        let ScanSource { columns, marks, snapshot, .. } = self.source;
        match expr {
            Expr::Column(column) if self.nested.is_some() => {
                let column = columns.iter().find(|own| own.name == column.name)?;
                column.element_clause().cloned()
            }
            Expr::Column(column) => {
                let mark = (0..marks.len()).find(|at| mark_name(*at) == column.name)?;
                marks.get(mark).cloned()
            }
            Expr::BinaryExpr(both) if both.op == Operator::And => {
                match (self.clause_of(&both.left), self.clause_of(&both.right)) {
                    (Some(left), Some(right)) => Some(Clause::And(vec![left, right])),
                    (one, other) if !self.exact => one.or(other),
                    _ => None,
                }
            }
            Expr::BinaryExpr(either) if either.op == Operator::Or => {
                let left = self.clause_of(&either.left)?;
                let right = self.clause_of(&either.right)?;
                Some(Clause::Or(vec![left, right]))
            }
            Expr::BinaryExpr(comparison) => {
                let (left, right) = (comparison.left.as_ref(), comparison.right.as_ref());
                let (column, operator, value) = match (left, right) {
                    (Expr::Column(column), Expr::Literal(value, _)) => (column, comparison.op, value),
                    (Expr::Literal(value, _), Expr::Column(column)) => (column, comparison.op.swap()?, value),
                    _ => return None,
                };
                let own = self.comparable(&column.name)?;
                // A normalizer of the field would change the value, too.
                let ordered =
                    matches!(operator, Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq);
                if operator != Operator::Eq && (!ordered || own.is_normalized()) {
                    return None;
                }
                own.compared(operator, &literal(value)?).map(|pushed| pushed.truth)
            }
            Expr::InList(list) if !list.negated => {
                let Expr::Column(column) = list.expr.as_ref() else { return None };
                let values = list.list.iter().map(|value| match value {
                    Expr::Literal(value, _) => literal(value),
                    _ => None,
                });
                let values: Vec<Literal> = values.collect::<Option<_>>()?;
                self.comparable(&column.name)?.any_of(&values).map(|pushed| pushed.truth)
            }
            Expr::ScalarFunction(call) if call.func.name() == LIKE => {
                let [Expr::Column(column), Expr::Literal(pattern, _)] = call.args.as_slice() else {
                    return None;
                };
                let Literal::Str(pattern) = literal(pattern)? else { return None };
                let own = self.comparable(&column.name).filter(|own| !own.is_of_terms())?;
                own.like(&pattern).map(|pushed| pushed.truth)
            }
            Expr::IsNotNull(inner) => {
                let Expr::Column(column) = inner.as_ref() else { return None };
                let path = self.path(columns.iter().find(|own| own.name == column.name)?)?;
                has_exists_within(snapshot, path, self.nested)
                    .then(|| Clause::Leaf(json!({"exists": {"field": path}})))
            }
            _ => None,
        }
    }

    /// Finds how the index compares a column of single values.
    fn comparable(&self, name: &str) -> Option<Comparable> {
        let ScanSource { columns, snapshot, index, whole_texts, .. } = self.source;
        let column = columns.iter().find(|column| column.name == name && !column.list && !column.bits)?;
        let path = self.path(column)?;
        let own = Comparable::within(snapshot, 0, path, self.nested)?;
        let key = (index.clone(), path.to_owned());
        Some(if whole_texts.contains(&key) { own.with_all_values() } else { own })
    }

    /// Returns the path of the field of a column, if the conditions are on its values.
    fn path<'c>(&self, column: &'c SqlColumn) -> Option<&'c str> {
        match self.nested {
            None => column.is_field().then(|| column.path()),
            Some(_) => column.element_path(),
        }
    }
}

/// Reads a value of a plan.
fn literal(value: &ScalarValue) -> Option<Literal> {
    let instant = |value: &i64, nanos: i128| Literal::Timestamp(i128::from(*value) * nanos);
    Some(match value {
        ScalarValue::Int8(Some(number)) => Literal::Int((*number).into()),
        ScalarValue::Int16(Some(number)) => Literal::Int((*number).into()),
        ScalarValue::Int32(Some(number)) => Literal::Int((*number).into()),
        ScalarValue::Int64(Some(number)) => Literal::Int(*number),
        ScalarValue::UInt64(Some(number)) => Literal::UInt(*number),
        ScalarValue::Float32(Some(number)) => Literal::Float((*number).into()),
        ScalarValue::Float64(Some(number)) => Literal::Float(*number),
        ScalarValue::Boolean(Some(flag)) => Literal::Bool(*flag),
        ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)) => Literal::Str(text.clone()),
        ScalarValue::TimestampMillisecond(Some(value), None) => instant(value, 1_000_000),
        ScalarValue::TimestampMicrosecond(Some(value), None) => instant(value, 1_000),
        ScalarValue::TimestampNanosecond(Some(value), None) => instant(value, 1),
        _ => return None,
    })
}
