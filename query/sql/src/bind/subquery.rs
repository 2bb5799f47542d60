//! Subqueries of expressions: IN, EXISTS, ANY, ALL and single values.
//!
//! A subquery stands in its expression as a column ([`placeholder`]) until the plan that the expression reads is known. Then it is
//! joined to that plan ([`Binder::attach`]), and the column becomes what the join makes: a mark, a value, or three-valued logic over
//! marks and counts. A condition that is nothing but IN or EXISTS becomes a semi-join or an anti-join.
//!
//! A subquery that names columns of a query around it is made independent of it. Where it only compares them for equality, in
//! WHERE, it is joined on these keys. Elsewhere its plan reads the distinct outer values beside its own sources, and all that it
//! groups, orders or cuts is done for each of these (Neumann and Kemper, "Unnesting Arbitrary Queries", 2015).

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchema, JoinType, TableReference};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::{
    Case, EmptyRelation, Expr, Extension, LogicalPlan, LogicalPlanBuilder, Operator, lit,
};
use datafusion::scalar::ScalarValue;
use sqlparser::ast;

use super::arithmetic::operation;
use super::comparison::compare;
use super::condition::negation;
use super::grouping::rewritten;
use super::relation::output;
use super::select::PlannedQuery;
use super::{Binder, Bound, ExpressionContext, Scope, unsupported, use_plan};
use crate::column::arrow_type;
use crate::error::{Result, SqlError};
use crate::functions;
use crate::shared::Shared;
use crate::types::SqlType;

/// Qualifier of the columns that subqueries stand as.
const PLACEHOLDERS: &str = "$sub";
/// Begins the names of subqueries that are joined.
const JOINED: &str = "$q";
/// Column of the rows that a left join found.
const PRESENT: &str = "present";

/// A subquery of an expression.
#[derive(Debug)]
pub(super) struct Subquery {
    kind: SubqueryKind,
    planned: PlannedQuery,
}

/// The use of a subquery.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a statement has few subqueries")]
enum SubqueryKind {
    /// `EXISTS (…)`.
    Exists,
    /// `value operator ANY (…)`; IN is `= ANY`.
    Any {
        value: Expr,
        /// The comparison of the value with one of the subquery.
        matches: Expr,
    },
    /// Its value, of the one row that it has.
    Value,
}

/// The relation of the rows of a subquery to those of the query around it.
#[derive(Debug, Default)]
pub(crate) struct Correlation {
    /// The columns of the outer query, by number of the hidden column.
    pub(super) keys: Vec<CorrelationKey>,
    /// Outer values that the plan reads in place of the relation of this name.
    pub(super) domain: Option<(String, Vec<Expr>)>,
    /// True for an aggregation without groups: it has one row for each outer row, whatever its conditions are.
    pub(super) single: bool,
    /// The value where the aggregation has no row for an outer one.
    pub(super) default: Option<Expr>,
}

/// A column that a subquery is joined on.
#[derive(Debug)]
pub(super) struct CorrelationKey {
    pub(super) outer: Expr,
    pub(super) nulls_equal: bool,
}

impl Correlation {
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Makes the condition of the join with a subquery of a name.
    fn condition(&self, name: &str) -> Option<Expr> {
        let keys = self.keys.iter().enumerate().map(|(at, key)| {
            let operator = if key.nulls_equal { Operator::IsNotDistinctFrom } else { Operator::Eq };
            operation(key.outer.clone(), operator, of(name, &hidden(at)))
        });
        keys.reduce(Expr::and)
    }

    fn hidden(&self) -> impl Iterator<Item = Expr> + use<> {
        (0..self.keys.len()).map(|at| Expr::Column(Column::new_unqualified(hidden(at))))
    }
}

fn joined_name(number: usize) -> String {
    format!("{JOINED}{number}")
}

/// Names a column that a subquery is joined on.
pub(super) fn hidden(at: usize) -> String {
    format!("h{at}")
}

/// Names the relation of the outer values that a scope reads.
pub(super) fn domain_name(scope: usize) -> String {
    format!("$d{scope}")
}

pub(super) fn placeholder(number: usize) -> Expr {
    Expr::Column(Column::new(Some(PLACEHOLDERS), format!("s{number}")))
}

fn of(name: &str, column: &str) -> Expr {
    Expr::Column(Column::new(Some(name), column))
}

/// Returns true for a column that a subquery makes, or stands as.
pub(super) fn is_of_subquery(column: &Column) -> bool {
    let made = |relation: &TableReference| relation.table().starts_with(JOINED);
    is_placeholder(column) || column.relation.as_ref().is_some_and(made)
}

/// Returns true for a column that a subquery stands as.
fn is_placeholder(column: &Column) -> bool {
    column.relation.as_ref().is_some_and(|relation| relation.table() == PLACEHOLDERS)
}

/// Returns true for an expression with a subquery that is not joined yet.
pub(super) fn holds_subquery(expr: &Expr) -> bool {
    expr.column_refs().into_iter().any(is_placeholder)
}

/// Returns true for an expression that names a column of a query around a scope.
pub(super) fn is_correlated(expr: &Expr, domain: &str) -> bool {
    let outer = |column: &&Column| column.relation.as_ref().is_some_and(|own| own.table() == domain);
    expr.column_refs().iter().any(outer)
}

/// Splits `own = outer`, where one side names columns of the scope and the other only those of queries around it.
pub(super) fn correlation_key(condition: &Expr, domain: &str) -> Option<(Expr, Expr)> {
    let Expr::BinaryExpr(equality) = condition else { return None };
    let is_outer = |expr: &Expr| {
        let columns = expr.column_refs();
        let all = columns
            .iter()
            .all(|column| column.relation.as_ref().is_some_and(|relation| relation.table() == domain));
        all && !columns.is_empty()
    };
    // A literal is no key: it stands in other expressions, too, which the key of the outer query would replace.
    let is_own =
        |expr: &Expr| !expr.column_refs().is_empty() && !is_correlated(expr, domain) && !holds_subquery(expr);
    match (equality.op, equality.left.as_ref(), equality.right.as_ref()) {
        (Operator::Eq, own, outer) | (Operator::Eq, outer, own) if is_own(own) && is_outer(outer) => {
            Some((own.clone(), outer.clone()))
        }
        _ => None,
    }
}

/// Makes the relation that stands for the outer values of a scope until these are known.
pub(super) fn domain_relation(name: &str, columns: &[(Expr, Bound)]) -> Result<LogicalPlan> {
    let fields = columns.iter().enumerate().map(|(at, (_, bound))| {
        let ty = arrow_type(bound.ty, bound.list);
        let field = datafusion::arrow::datatypes::Field::new(format!("k{at}"), ty, true);
        (Some(TableReference::bare(name)), Arc::new(field))
    });
    let schema = DFSchema::new_with_metadata(fields.collect(), std::collections::HashMap::new())?;
    Ok(LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: false, schema: Arc::new(schema) }))
}

impl Scope {
    /// Makes a column of a query around this one known within it.
    fn outer_column(&mut self, of: Bound) -> Bound {
        let at = self.outer.iter().position(|(outer, _)| *outer == of.expr).unwrap_or_else(|| {
            let name = domain_name(self.number);
            let column = Expr::Column(Column::new(Some(name), format!("k{}", self.outer.len())));
            let own = Bound { list: of.list, shown: of.shown, ..Bound::new(column, of.ty) };
            self.outer.push((of.expr, own));
            self.outer.len() - 1
        });
        match self.outer.get(at) {
            Some((_, own)) => own.clone(),
            None => Bound::new(lit(ScalarValue::Null), SqlType::Undefined),
        }
    }
}

impl Subquery {
    /// Lists the expressions of the query around it.
    fn outer(&self) -> Vec<&Expr> {
        let correlation = &self.planned.correlation;
        let mut exprs: Vec<&Expr> = correlation.keys.iter().map(|key| &key.outer).collect();
        exprs.extend(correlation.domain.iter().flat_map(|(_, outer)| outer));
        exprs.extend(&correlation.default);
        if let SubqueryKind::Any { value, matches } = &self.kind {
            exprs.extend([value, matches]);
        }
        exprs
    }

    /// Changes the expressions of the query around it.
    fn map_outer(&mut self, change: impl Fn(&Expr) -> Result<Expr>) -> Result<()> {
        let correlation = &mut self.planned.correlation;
        let keys = correlation.keys.iter_mut().map(|key| &mut key.outer);
        let domain = correlation.domain.iter_mut().flat_map(|(_, outer)| outer);
        for expr in keys.chain(domain).chain(&mut correlation.default) {
            *expr = change(expr)?;
        }
        if let SubqueryKind::Any { value, matches } = &mut self.kind {
            (*value, *matches) = (change(value)?, change(matches)?);
        }
        Ok(())
    }
}

impl Binder<'_> {
    /// Finds a column of the queries around a scope by a lookup, the innermost first.
    pub(super) fn outer_name(
        &mut self,
        path: &str,
        scope: &mut Scope,
        lookup: fn(&mut Scope, &str) -> Result<Option<Bound>>,
    ) -> Result<Option<Bound>> {
        for level in (0..self.outer.len()).rev() {
            let Some(found) =
                self.outer.get_mut(level).map(|outer| lookup(outer, path)).transpose()?.flatten()
            else {
                continue;
            };
            let between = self.outer.get_mut(level + 1..).unwrap_or_default();
            let found = between.iter_mut().fold(found, |found, scope| scope.outer_column(found));
            return Ok(Some(scope.outer_column(found)));
        }
        Ok(None)
    }

    /// Binds a subquery, or finds it where an alias stands for it.
    pub(super) fn subquery(&mut self, expr: &ast::Expr, scope: &mut Scope) -> Result<Bound> {
        use ast::Expr as E;
        if let Some((_, bound)) = scope.subqueries.iter().find(|(known, _)| known == expr) {
            return Ok(bound.clone());
        }
        let bound = match expr {
            E::Exists { subquery, negated } => {
                if let Some(exists) = self.exists_nested(subquery, scope)? {
                    return Ok(if *negated { negation(exists) } else { exists });
                }
                let planned = self.inner(subquery, scope)?;
                let exists = Bound::new(self.keep(SubqueryKind::Exists, planned), SqlType::Boolean);
                if *negated { negation(exists) } else { exists }
            }
            E::InSubquery { expr, subquery, negated } => {
                let value = self.expr(expr, scope, ExpressionContext::Row)?;
                let any = self.any(&value, Operator::Eq, subquery, scope)?;
                if *negated { negation(any) } else { any }
            }
            E::AnyOp { left, compare_op, right, .. } => {
                let (E::Subquery(query), Some(operator)) = (right.as_ref(), comparison(compare_op)) else {
                    return unsupported(format!("[{expr}]"));
                };
                let value = self.expr(left, scope, ExpressionContext::Row)?;
                self.any(&value, operator, query, scope)?
            }
            E::AllOp { left, compare_op, right } => {
                let operator = comparison(compare_op).and_then(|operator| operator.negate());
                let (E::Subquery(query), Some(operator)) = (right.as_ref(), operator) else {
                    return unsupported(format!("[{expr}]"));
                };
                let value = self.expr(left, scope, ExpressionContext::Row)?;
                negation(self.any(&value, operator, query, scope)?)
            }
            E::Subquery(query) => {
                let planned = self.inner(query, scope)?;
                let [column] = planned.columns.as_slice() else { return Err(one_column()) };
                let (ty, list, shown) = (column.ty, column.list, column.shown);
                let expr = self.keep(SubqueryKind::Value, planned);
                let shown = (shown != ty.name()).then_some(shown);
                Bound { list, shown, ..Bound::new(expr, ty) }
            }
            other => return unsupported(format!("[{other}]")),
        };
        scope.subqueries.push((expr.clone(), bound.clone()));
        Ok(bound)
    }

    fn any(
        &mut self,
        value: &Bound,
        operator: Operator,
        query: &ast::Query,
        scope: &mut Scope,
    ) -> Result<Bound> {
        let planned = self.inner(query, scope)?;
        let [column] = planned.columns.as_slice() else { return Err(one_column()) };
        if planned.correlation.single {
            // Of one row any value is the value.
            let (ty, list) = (column.ty, column.list);
            let other = Bound { list, ..Bound::new(self.keep(SubqueryKind::Value, planned), ty) };
            return compare(value, operator, &other, scope);
        }
        let name = joined_name(self.subqueries.len());
        let other = Bound { list: column.list, ..Bound::new(of(&name, "c0"), column.ty) };
        let matches = compare(value, operator, &other, scope)?.expr;
        let kind = SubqueryKind::Any { value: value.expr.clone(), matches };
        Ok(Bound::new(self.keep(kind, planned), SqlType::Boolean))
    }

    /// Binds a query within a scope.
    fn inner(&mut self, query: &ast::Query, scope: &mut Scope) -> Result<PlannedQuery> {
        self.outer.push(std::mem::take(scope));
        let planned = self.query(query, None, self.outer.len());
        *scope = self.outer.pop().unwrap_or_default();
        planned
    }

    fn keep(&mut self, kind: SubqueryKind, planned: PlannedQuery) -> Expr {
        self.subqueries.push(Subquery { kind, planned });
        placeholder(self.subqueries.len() - 1)
    }

    /// Lists the subqueries of expressions, with those in the expressions that these compare.
    pub(super) fn subqueries_in<'e>(&self, exprs: impl IntoIterator<Item = &'e Expr>) -> BTreeSet<usize> {
        let numbers = |expr: &Expr| {
            let columns = expr.column_refs().into_iter().filter(|column| is_placeholder(column));
            columns.filter_map(|column| column.name.get(1..)?.parse().ok()).collect::<Vec<usize>>()
        };
        let mut left: Vec<usize> = exprs.into_iter().flat_map(numbers).collect();
        let mut found = BTreeSet::new();
        while let Some(number) = left.pop() {
            if found.insert(number)
                && let Some(subquery) = self.subqueries.get(number)
            {
                left.extend(subquery.outer().into_iter().flat_map(numbers));
            }
        }
        found
    }

    /// Returns true where a subquery that was bound since one of a number names a column of a domain.
    pub(super) fn are_correlated(&self, since: usize, domain: &str) -> bool {
        let subqueries = self.subqueries.iter().skip(since);
        subqueries.flat_map(Subquery::outer).any(|expr| is_correlated(expr, domain))
    }

    /// Changes the expressions that subqueries compare: behind an aggregation they are ones over its groups.
    pub(super) fn map_subqueries(
        &mut self,
        numbers: &BTreeSet<usize>,
        change: impl Fn(&Expr) -> Result<Expr>,
    ) -> Result<()> {
        for number in numbers {
            if let Some(subquery) = self.subqueries.get_mut(*number) {
                subquery.map_outer(&change)?;
            }
        }
        Ok(())
    }

    /// Filters a plan by conditions with subqueries; see [`Self::attach`].
    pub(super) fn filter_by_subqueries(
        &mut self,
        plan: LogicalPlan,
        conditions: Vec<Expr>,
        replaced: &mut Vec<(Expr, Expr)>,
    ) -> Result<LogicalPlan> {
        let base = plan.clone();
        let mut plan = plan;
        for condition in conditions {
            let (inner, negated) = match &condition {
                Expr::Not(inner) => (inner.as_ref(), true),
                other => (other, false),
            };
            let number =
                self.subqueries_in([inner]).pop_last().filter(|number| placeholder(*number) == *inner);
            if let Some(joined) = self.semi_join(&plan, &base, number, negated)? {
                plan = joined;
                continue;
            }
            let numbers = self.subqueries_in([&condition]);
            plan = self.attach(plan, &base, &numbers, replaced)?;
            plan = LogicalPlanBuilder::new(plan).filter(rewritten(&condition, replaced)?)?.build()?;
        }
        Ok(plan)
    }

    /// Joins a plan with a subquery that is a condition by itself; `None` where that does not say it.
    fn semi_join(
        &mut self,
        plan: &LogicalPlan,
        base: &LogicalPlan,
        number: Option<usize>,
        negated: bool,
    ) -> Result<Option<LogicalPlan>> {
        let Some(subquery) = number.and_then(|number| self.subqueries.get(number)) else { return Ok(None) };
        let correlation = &subquery.planned.correlation;
        let name = joined_name(number.unwrap_or_default());
        let own = correlation.condition(&name);
        let condition = match &subquery.kind {
            SubqueryKind::Exists if !correlation.single => own,
            SubqueryKind::Any { matches, .. } if !negated && !holds_subquery(matches) => {
                Some(own.into_iter().fold(matches.clone(), Expr::and))
            }
            _ => None,
        };
        let Some(condition) = condition else { return Ok(None) };
        let kind = if negated { JoinType::LeftAnti } else { JoinType::LeftSemi };
        let right = with_domain(&subquery.planned, base)?;
        use_plan(&right, &mut self.used_nodes)?;
        let right = LogicalPlanBuilder::new(right).alias(name)?.build()?;
        Ok(Some(LogicalPlanBuilder::new(plan.clone()).join_on(right, kind, [condition])?.build()?))
    }

    /// Joins a plan with subqueries, except those that are joined already, and adds what the columns are that these stood as.
    /// `base` is the plan before any was joined.
    pub(super) fn attach(
        &mut self,
        plan: LogicalPlan,
        base: &LogicalPlan,
        numbers: &BTreeSet<usize>,
        replaced: &mut Vec<(Expr, Expr)>,
    ) -> Result<LogicalPlan> {
        let mut plan = plan;
        for number in numbers {
            let Some(subquery) = self.subqueries.get_mut(*number) else { continue };
            if replaced.iter().any(|(known, _)| *known == placeholder(*number)) {
                continue;
            }
            subquery.map_outer(|expr| rewritten(expr, replaced))?;
            let right = with_domain(&subquery.planned, base)?;
            // One plan marks, the other counts.
            use_plan(&right, &mut self.used_nodes)?;
            use_plan(&right, &mut self.used_nodes)?;
            let name = joined_name(*number);
            let correlation = &subquery.planned.correlation;
            let (joined, value) = match &subquery.kind {
                SubqueryKind::Exists => exists(plan, right, correlation, &name)?,
                SubqueryKind::Value => single_value(plan, right, &subquery.planned, &name)?,
                SubqueryKind::Any { value, matches } => {
                    any_of(plan, right, correlation, &name, (value, matches))?
                }
            };
            plan = joined;
            replaced.push((placeholder(*number), value));
        }
        Ok(plan)
    }
}

fn one_column() -> SqlError {
    SqlError::Semantic("a subquery in an expression answers one column".to_owned())
}

fn comparison(operator: &ast::BinaryOperator) -> Option<Operator> {
    Some(match operator {
        ast::BinaryOperator::Eq => Operator::Eq,
        ast::BinaryOperator::NotEq => Operator::NotEq,
        ast::BinaryOperator::Lt => Operator::Lt,
        ast::BinaryOperator::LtEq => Operator::LtEq,
        ast::BinaryOperator::Gt => Operator::Gt,
        ast::BinaryOperator::GtEq => Operator::GtEq,
        _ => return None,
    })
}

/// Returns the plan of a subquery over the distinct outer values that it reads.
fn with_domain(planned: &PlannedQuery, base: &LogicalPlan) -> Result<LogicalPlan> {
    let Some((name, outer)) = &planned.correlation.domain else { return Ok(planned.plan.clone()) };
    let values = outer.iter().enumerate().map(|(at, expr)| expr.clone().alias(format!("k{at}")));
    let columns: Vec<Expr> =
        (0..outer.len()).map(|at| Expr::Column(Column::new_unqualified(format!("k{at}")))).collect();
    let distinct = LogicalPlanBuilder::new(base.clone())
        .project(values.collect::<Vec<_>>())?
        .aggregate(columns, Vec::<Expr>::new())?
        .alias(name.as_str())?
        .build()?;
    let replaced = planned.plan.clone().transform_up(|node| {
        let own = matches!(&node, LogicalPlan::EmptyRelation(empty) if empty.schema.iter().any(|(of, _)| {
            of.is_some_and(|of| of.table() == name)
        }));
        if own {
            return Ok(Transformed::yes(distinct.clone()));
        }
        // A value that is never null makes fields of the nodes above such.
        node.recompute_schema().map(Transformed::yes)
    });
    Ok(replaced.data()?)
}

/// Joins a plan that has a row for each key, or one row.
fn left_join(
    plan: LogicalPlan,
    right: LogicalPlan,
    correlation: &Correlation,
    name: &str,
) -> Result<LogicalPlan> {
    let right = LogicalPlanBuilder::new(right).alias(name)?.build()?;
    let builder = LogicalPlanBuilder::new(plan);
    Ok(match correlation.condition(name) {
        None => builder.cross_join(right)?,
        Some(condition) => builder.join_on(right, JoinType::Left, [condition])?,
    }
    .build()?)
}

fn exists(
    plan: LogicalPlan,
    right: LogicalPlan,
    correlation: &Correlation,
    name: &str,
) -> Result<(LogicalPlan, Expr)> {
    if correlation.single && !correlation.is_empty() {
        return Ok((plan, lit(true)));
    }
    let Some(condition) = correlation.condition(name) else {
        let count = count_udaf().call(vec![lit(1i64)]).alias("n");
        let first =
            LogicalPlanBuilder::new(right).limit(0, Some(1))?.aggregate(Vec::<Expr>::new(), [count])?;
        let plan = left_join(plan, first.build()?, correlation, name)?;
        return Ok((plan, of(name, "n").gt(lit(0i64))));
    };
    let right = LogicalPlanBuilder::new(right).alias(name)?.build()?;
    let plan = LogicalPlanBuilder::new(plan).join_on(right, JoinType::LeftMark, [condition])?.build()?;
    Ok((plan, of(name, "mark")))
}

/// Joins a comparison with any value: true where one matches, unknown where a null may, false where there is none.
fn any_of(
    plan: LogicalPlan,
    right: LogicalPlan,
    correlation: &Correlation,
    name: &str,
    (value, matches): (&Expr, &Expr),
) -> Result<(LogicalPlan, Expr)> {
    let right = LogicalPlan::Extension(Extension { node: Arc::new(Shared::new(right)) });
    let condition = correlation.condition(name).into_iter().fold(matches.clone(), Expr::and);
    let marked = LogicalPlanBuilder::new(right.clone()).alias(name)?.build()?;
    let plan = LogicalPlanBuilder::new(plan).join_on(marked, JoinType::LeftMark, [condition])?.build()?;
    let counts =
        [count_udaf().call(vec![lit(1i64)]).alias("n"), count_udaf().call(vec![output(0)]).alias("v")];
    let counts = LogicalPlanBuilder::new(right).aggregate(correlation.hidden(), counts)?.build()?;
    let counted = format!("{name}n");
    let plan = left_join(plan, counts, correlation, &counted)?;
    let (rows, values) = (of(&counted, "n"), of(&counted, "v"));
    let none = rows.clone().is_null().or(rows.clone().eq(lit(0i64)));
    let unknown = value.clone().is_null().or(values.lt(rows));
    let branches = vec![
        (Box::new(of(name, "mark")), Box::new(lit(true))),
        (Box::new(none), Box::new(lit(false))),
        (Box::new(unknown), Box::new(lit(ScalarValue::Boolean(None)))),
    ];
    Ok((plan, Expr::Case(Case::new(None, branches, Some(Box::new(lit(false)))))))
}

/// Joins the value of a subquery, which fails where it has several rows.
fn single_value(
    plan: LogicalPlan,
    right: LogicalPlan,
    planned: &PlannedQuery,
    name: &str,
) -> Result<(LogicalPlan, Expr)> {
    let correlation = &planned.correlation;
    let mut value = of(name, "c0");
    let right = if correlation.single {
        right
    } else {
        let row_count = count_udaf().call(vec![lit(1i64)]).alias("n");
        let first = first_value_udaf().call(vec![output(0)]).alias("c0");
        let builder = LogicalPlanBuilder::new(right).aggregate(correlation.hidden(), [row_count, first])?;
        let checked = Box::new(functions::is_single(of(name, "n")));
        value = Expr::Case(Case::new(None, vec![(checked, Box::new(value))], None));
        builder.build()?
    };
    if correlation.is_empty() || !correlation.single {
        return Ok((left_join(plan, right, correlation, name)?, value));
    }
    let Some(default) = correlation.default.clone() else {
        return unsupported("a correlated subquery that aggregates and has HAVING or a subquery of its own");
    };
    let all: Vec<Expr> = right.schema().columns().into_iter().map(Expr::Column).collect();
    let present = lit(true).alias(PRESENT);
    let right = LogicalPlanBuilder::new(right).project(all.into_iter().chain([present]))?.build()?;
    let missing = Box::new(of(name, PRESENT).is_null());
    let value = Expr::Case(Case::new(None, vec![(missing, Box::new(default))], Some(Box::new(value))));
    Ok((left_join(plan, right, correlation, name)?, value))
}
