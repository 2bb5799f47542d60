//! Predicates inside DataFusion's expressions.
//!
//! A predicate is evaluated inside the scan and nowhere else: functions carry its clauses through planning. AND, OR and NOT
//! stay what they are, so that rules can move their parts; they are balanced trees, in which a thousand clauses are ten levels.
//! Functions name the `_row` column so that no rule takes them for constants.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, col,
    lit, not,
};

use super::predicate::Predicate;
use crate::table::state::ROW;

/// The function that carries a predicate.
#[derive(Debug)]
struct PredicateUdf {
    predicate: Predicate,
    name: String,
    /// All of the predicate as text, once it was compared: equality uses it.
    identity: OnceLock<String>,
    signature: Signature,
}

impl PredicateUdf {
    fn identity(&self) -> &str {
        self.identity.get_or_init(|| format!("{:?}", self.predicate))
    }
}

impl PartialEq for PredicateUdf {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || self.name == other.name && self.identity() == other.identity()
    }
}

impl Eq for PredicateUdf {}

impl Hash for PredicateUdf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for PredicateUdf {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!("{} is evaluated by the index scan only", self.name)
    }
}

/// Makes the call that carries a predicate. The arguments are what plans show.
fn carry(predicate: &Predicate, name: String, shown: Vec<Expr>) -> Expr {
    let signature = Signature::variadic_any(Volatility::Immutable);
    let carried = PredicateUdf { predicate: predicate.clone(), name, identity: OnceLock::new(), signature };
    ScalarUDF::from(carried).call(shown)
}

fn carried(expr: &Expr) -> Option<&PredicateUdf> {
    match expr {
        Expr::ScalarFunction(call) => call.func.inner().downcast_ref(),
        _ => None,
    }
}

/// Returns whether an expression has a predicate inside.
pub fn holds_predicate(expr: &Expr) -> bool {
    expr.exists(|part| Ok(carried(part).is_some())).unwrap_or(false)
}

impl Predicate {
    /// Makes the expression that carries the predicate.
    pub fn expr(&self) -> Expr {
        let exprs = |parts: &[Self]| parts.iter().map(Self::expr).collect::<Vec<_>>();
        match self {
            Self::All => carry(self, "match_all".to_owned(), vec![col(ROW), lit("*")]),
            Self::Leaf(leaf) => {
                carry(self, leaf.query.kind().to_owned(), vec![col(ROW), lit(leaf.to_string())])
            }
            Self::And(parts) => balanced(exprs(parts), Expr::and).unwrap_or_else(|| Self::All.expr()),
            Self::AtLeast(1, parts) if !parts.is_empty() => {
                balanced(exprs(parts), Expr::or).unwrap_or_else(|| Self::All.expr())
            }
            Self::AtLeast(required, parts) => carry(self, format!("at_least_{required}"), exprs(parts)),
            Self::Not(part) => not(part.expr()),
            Self::Constant(score, part) => carry(self, format!("constant_score_{score}"), vec![part.expr()]),
            Self::Boosting { positive, negative, factors: (_, factor) } => {
                carry(self, format!("boosting_{factor}"), vec![positive.expr(), negative.expr()])
            }
            Self::DisMax(tie_breaker, parts) => carry(self, format!("dis_max_{tie_breaker}"), exprs(parts)),
            Self::FunctionScore(_, base, filters) => {
                let mut shown = vec![base.expr()];
                shown.extend(exprs(filters));
                carry(self, "function_score".to_owned(), shown)
            }
            Self::Nested(query, inner) => carry(self, format!("nested_{}", query.path), vec![inner.expr()]),
        }
    }

    /// As [`Self::expr`], for a planner that takes a conjunction for a set: it does not drop clauses that are there twice, of
    /// which each adds to the score.
    pub fn whole_expr(&self) -> Expr {
        let expr = self.expr();
        let mut seen = HashSet::new();
        match split_conjunction(&expr).into_iter().all(|clause| seen.insert(clause)) {
            true => expr,
            false => {
                let whole = Self::AtLeast(1, vec![self.clone()]);
                carry(&whole, "at_least_1".to_owned(), vec![expr])
            }
        }
    }

    /// Reads an expression; `None` where part of it is not the index's business.
    pub fn from_expr(expr: &Expr) -> Option<Self> {
        match expr {
            Expr::BinaryExpr(binary) => {
                let parts = [&binary.left, &binary.right];
                let parts =
                    parts.into_iter().map(|part| Self::from_expr(part)).collect::<Option<Vec<_>>>()?;
                match binary.op {
                    Operator::And => Some(Self::all(parts)),
                    Operator::Or => Some(Self::any(parts)),
                    _ => None,
                }
            }
            Expr::Not(inner) => Some(Self::Not(Box::new(Self::from_expr(inner)?))),
            other => carried(other).map(|carried| carried.predicate.clone()),
        }
    }

    /// Joins the filters of a scan.
    pub fn all_of(filters: &[Expr]) -> Option<Self> {
        filters.iter().map(Self::from_expr).collect::<Option<Vec<_>>>().map(Self::all)
    }
}

fn balanced(mut parts: Vec<Expr>, join: fn(Expr, Expr) -> Expr) -> Option<Expr> {
    while parts.len() > 1 {
        let mut joined = Vec::with_capacity(parts.len().div_ceil(2));
        let mut rest = parts.into_iter();
        while let Some(left) = rest.next() {
            joined.push(match rest.next() {
                Some(right) => join(left, right),
                None => left,
            });
        }
        parts = joined;
    }
    parts.pop()
}

#[cfg(test)]
mod tests {
    use millrace_dsl::query;
    use serde_json::json;

    use super::*;
    use crate::lower::lower;

    fn lowered(value: serde_json::Value) -> Predicate {
        lower(&query::parse(&value).unwrap())
    }

    #[test]
    fn predicates_come_back_as_they_went() {
        let predicate = lowered(json!({"bool": {
            "must": [{"term": {"a": 1}}, {"bool": {"should": [{"term": {"b": 1}}, {"ids": {"values": ["x"]}}]}}],
            "should": [{"match": {"c": "d"}}],
            "must_not": [{"prefix": {"e": "f"}}]
        }}));
        let shown = predicate.to_string();
        insta::assert_snapshot!(
            shown,
            @r#"(term(a = 1) AND (term(b = 1) OR ids(_id in [x])) AND NOT prefix(~e = "f"*) AND at_least_0(match(c = "d")))"#
        );
        let expr = predicate.expr();
        assert!(holds_predicate(&expr));
        assert_eq!(Predicate::from_expr(&expr).unwrap().to_string(), shown);
        assert!(Predicate::from_expr(&col(ROW)).is_none());
    }

    #[test]
    fn clauses_become_and_or_not() {
        let shown = |value| lowered(value).expr().to_string();
        insta::assert_snapshot!(
            shown(json!({"bool": {
                "must": {"match": {"message": "disk full"}},
                "filter": [{"term": {"status": 404}}, {"range": {"size": {"gte": 1, "lt": 9}}}],
                "must_not": {"exists": {"field": "error"}}
            }})),
            @r#"match(_row, Utf8("message = "disk full"")) AND term(_row, Utf8("~status = 404")) AND range(_row, Utf8("~1 <= size < 9")) AND NOT exists(_row, Utf8("~error"))"#
        );
        insta::assert_snapshot!(
            shown(json!({"bool": {"should": [{"term": {"a": 1}}, {"term": {"b": 2}}]}})),
            @r#"term(_row, Utf8("a = 1")) OR term(_row, Utf8("b = 2"))"#
        );
        insta::assert_snapshot!(
            shown(json!({"bool": {"should": [{"term": {"a": 1}}, {"term": {"b": 2}}, {"prefix": {"c": "x"}}],
                                  "minimum_should_match": 2, "boost": 2}})),
            @r#"at_least_2(term(_row, Utf8("a = 1 ^2")), term(_row, Utf8("b = 2 ^2")), prefix(_row, Utf8("c = "x"* ^2")))"#
        );
        insta::assert_snapshot!(
            shown(json!({"constant_score": {"filter": {"term": {"a": 1}}, "boost": 3}})),
            @r#"constant_score_3(term(_row, Utf8("~a = 1")))"#
        );
    }

    #[test]
    fn a_clause_that_is_there_twice_is_not_lost() {
        let [once, twice] = [vec![1, 2], vec![1, 1]].map(|values| {
            let terms: Vec<_> = values.iter().map(|value| json!({"term": {"a": value}})).collect();
            lowered(json!({"bool": {"must": terms}})).whole_expr()
        });
        assert_eq!(split_conjunction(&once).len(), 2);
        assert_eq!(split_conjunction(&twice).len(), 1);
        let predicate = Predicate::from_expr(&twice).unwrap();
        insta::assert_snapshot!(predicate, @"((term(a = 1) AND term(a = 1)))");
    }
}
