//! Clause trees to DataFusion expressions.
//!
//! A leaf clause becomes a call of [`LeafFunction`](crate::table::leaf::LeafFunction); `bool` becomes AND, OR and NOT of its clauses,
//! and `at_least` where a count decides. Scores travel with the leaves: each knows its boost and
//! whether it scores at all, so that the expression alone says everything the scan needs.
//! ANDs and ORs are balanced trees: a thousand clauses are ten levels, not a thousand.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, not};
use millrace_dsl::query::{
    BoolQuery, BoostMode, BoostingQuery, ConstantScoreQuery, DisMaxQuery, FunctionScoreQuery, MatchNoneQuery,
    NestedQuery, NestedScore, Query,
};

use crate::table::leaf::{Combine, Leaf, combined, constant, leaf};
use crate::table::meaning::{self, Meaning};

/// Lowers a query in which scores count.
pub fn lower(query: &Query) -> Expr {
    whole(expression(query, 1.0, true))
}

/// Keeps a planner that takes a conjunction for a set from dropping clauses that are there twice: each
/// adds to the score.
fn whole(expression: Expr) -> Expr {
    let mut seen = HashSet::new();
    match split_conjunction(&expression).into_iter().all(|clause| seen.insert(clause)) {
        true => expression,
        false => combined(Combine::AtLeast(1), vec![expression]),
    }
}

/// Lowers a query whose scores do not count.
pub fn lower_filter(query: &Query) -> Expr {
    expression(query, 1.0, false)
}

/// Lowers a part of a query in which scores count, under the boosts above it.
pub fn lower_boosted(query: &Query, boost: f32) -> Expr {
    expression(query, boost, true)
}

/// Whether the query matches every document with score 1, so that no filter is needed.
pub fn is_everything(query: &Query) -> bool {
    matches!(query, Query::MatchAll(all) if all.common.boost == 1.0)
}

fn expression(query: &Query, boost: f32, scored: bool) -> Expr {
    let boost = boost * query.common().boost;
    meaning::lower(query, boost, scored).unwrap_or_else(|| leaf(Leaf::new(query.clone(), boost, scored)))
}

impl Meaning for ConstantScoreQuery {
    fn lower(self: &Arc<Self>, boost: f32, scored: bool) -> Option<Expr> {
        let filter = expression(&self.filter, 1.0, false);
        Some(if scored { constant(boost, filter) } else { filter })
    }
}

impl Meaning for BoostingQuery {
    fn lower(self: &Arc<Self>, boost: f32, scored: bool) -> Option<Expr> {
        // The factors apply to the score as it is, which a boost need not have multiplied.
        let positive = expression(&self.positive, 1.0, scored);
        if !scored {
            return Some(positive);
        }
        let clauses = vec![positive, expression(&self.negative, 1.0, false)];
        Some(combined(Combine::Boosting { boost, negative: self.negative_boost }, clauses))
    }
}

impl Meaning for DisMaxQuery {
    fn lower(self: &Arc<Self>, boost: f32, scored: bool) -> Option<Expr> {
        let clauses = self.queries.iter().map(|clause| expression(clause, boost, scored)).collect();
        Some(combined(Combine::DisMax(self.tie_breaker), clauses))
    }
}

impl Meaning for NestedQuery {
    fn lower(self: &Arc<Self>, boost: f32, scored: bool) -> Option<Expr> {
        let scored = scored && self.score_mode != NestedScore::None;
        Some(combined(Combine::Nested(Arc::clone(self)), vec![expression(&self.query, boost, scored)]))
    }
}

impl Meaning for FunctionScoreQuery {
    fn lower(self: &Arc<Self>, boost: f32, scored: bool) -> Option<Expr> {
        let combination = &self.combination;
        if !scored && combination.min_score.is_none() {
            return Some(expression(&self.query, boost, false));
        }
        let base_scores = combination.boost_mode != BoostMode::Replace;
        let mut clauses = vec![expression(&self.query, boost, base_scores)];
        let filters = self.functions.iter().filter_map(|function| function.filter.as_ref());
        clauses.extend(filters.map(|filter| expression(filter, 1.0, false)));
        let function_score = combined(Combine::FunctionScore(Arc::clone(self)), clauses);
        // A filter's scores decide what matches and count for nothing else.
        Some(if scored { function_score } else { constant(0.0, function_score) })
    }
}

impl Meaning for BoolQuery {
    fn lower(self: &Arc<Self>, boost: f32, scored: bool) -> Option<Expr> {
        Some(bool_expression(self, boost, scored))
    }
}

fn bool_expression(query: &BoolQuery, boost: f32, scored: bool) -> Expr {
    let none = || leaf(Leaf::new(MatchNoneQuery::default().into(), 1.0, false));
    if query.clauses().next().is_none() {
        return leaf(Leaf::new(Query::match_all(), boost, scored));
    }
    if query.is_negative() && query.unadjusted {
        return none();
    }
    let mut parts: Vec<Expr> = Vec::new();
    parts.extend(query.must.iter().map(|clause| expression(clause, boost, scored)));
    parts.extend(query.filter.iter().map(|clause| expression(clause, 1.0, false)));
    parts.extend(query.must_not.iter().map(|clause| not(expression(clause, 1.0, false))));
    let required = query.required_should();
    let should: Vec<Expr> = query.should.iter().map(|clause| expression(clause, boost, scored)).collect();
    match (required, should.len()) {
        (0, 0) => {}
        (0, _) if scored => parts.push(combined(Combine::AtLeast(0), should)),
        // Optional clauses that neither score nor must match decide nothing.
        (0, _) if parts.is_empty() => return leaf(Leaf::new(Query::match_all(), 1.0, false)),
        (0, _) => {}
        (required, count) if required > count => return none(),
        (1, _) => parts.extend(balanced(should, Expr::or)),
        (required, count) if required == count => parts.extend(should),
        (required, _) => parts.push(combined(Combine::AtLeast(required), should)),
    }
    balanced(parts, Expr::and).unwrap_or_else(none)
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

    fn lowered(value: serde_json::Value) -> String {
        lower(&query::parse(&value).unwrap()).to_string()
    }

    #[test]
    fn bool_becomes_and_or_not() {
        insta::assert_snapshot!(
            lowered(json!({"bool": {
                "must": {"match": {"message": "disk full"}},
                "filter": [{"term": {"status": 404}}, {"range": {"size": {"gte": 1, "lt": 9}}}],
                "must_not": {"exists": {"field": "error"}}
            }})),
            @r#"match(_row, Utf8("message = "disk full"")) AND term(_row, Utf8("~status = 404")) AND range(_row, Utf8("~1 <= size < 9")) AND NOT exists(_row, Utf8("~error"))"#
        );
        insta::assert_snapshot!(
            lowered(json!({"bool": {"should": [{"term": {"a": 1}}, {"term": {"b": 2}}]}})),
            @r#"term(_row, Utf8("a = 1")) OR term(_row, Utf8("b = 2"))"#
        );
        insta::assert_snapshot!(
            lowered(json!({"bool": {"should": [{"term": {"a": 1}}, {"term": {"b": 2}}, {"prefix": {"c": "x"}}],
                                    "minimum_should_match": 2, "boost": 2}})),
            @r#"at_least_2(term(_row, Utf8("a = 1 ^2")), term(_row, Utf8("b = 2 ^2")), prefix(_row, Utf8("c = "x"* ^2")))"#
        );
    }

    #[test]
    fn degenerate_bools() {
        insta::assert_snapshot!(lowered(json!({"bool": {}})), @r#"match_all(_row, Utf8("*"))"#);
        insta::assert_snapshot!(
            lowered(json!({"bool": {"should": [{"term": {"a": 1}}], "minimum_should_match": 3}})),
            @r#"match_none(_row, Utf8("~"))"#
        );
        insta::assert_snapshot!(
            lowered(json!({"constant_score": {"filter": {"term": {"a": 1}}, "boost": 3}})),
            @r#"constant_score_3(term(_row, Utf8("~a = 1")))"#
        );
    }
}
