//! Clause trees to predicates.
//!
//! A leaf clause becomes a [`Leaf`]; `bool` becomes AND, OR and NOT of its clauses, and `at_least` where a count decides.
//! Scores travel with the leaves: each knows its boost and whether it scores at all, so that the predicate alone says
//! everything the scan needs.

use std::sync::Arc;

use millrace_dsl::query::{
    BoolQuery, BoostMode, BoostingQuery, ConstantScoreQuery, DisMaxQuery, FunctionScoreQuery, MatchNoneQuery,
    NestedQuery, NestedScore, Query,
};

use crate::table::leaf::Leaf;
use crate::table::lower_clause::{self, LowerClause};
use crate::table::predicate::Predicate;

/// Lowers a query in which scores count.
pub fn lower(query: &Query) -> Predicate {
    lower_boosted(query, 1.0)
}

/// Lowers a query whose scores do not count.
pub fn lower_filter(query: &Query) -> Predicate {
    predicate(query, 1.0, false)
}

/// Lowers a part of a query in which scores count, under the boosts above it.
pub fn lower_boosted(query: &Query, boost: f32) -> Predicate {
    predicate(query, boost, true)
}

/// Returns whether the query matches every document with score 1, so that no filter is needed.
pub fn is_everything(query: &Query) -> bool {
    matches!(query, Query::MatchAll(all) if all.common.boost == 1.0)
}

fn leaf(query: Query, boost: f32, scored: bool) -> Predicate {
    Predicate::Leaf(Arc::new(Leaf::new(query, boost, scored)))
}

fn predicate(query: &Query, boost: f32, scored: bool) -> Predicate {
    let boost = boost * query.common().boost;
    lower_clause::lower(query, boost, scored).unwrap_or_else(|| leaf(query.clone(), boost, scored))
}

impl LowerClause for ConstantScoreQuery {
    fn lower(self: &Arc<Self>, boost: f32, scored: bool) -> Option<Predicate> {
        let filter = predicate(&self.filter, 1.0, false);
        Some(if scored { Predicate::Constant(boost, Box::new(filter)) } else { filter })
    }
}

impl LowerClause for BoostingQuery {
    fn lower(self: &Arc<Self>, boost: f32, scored: bool) -> Option<Predicate> {
        // The factors apply to the score as it is, which a boost need not have multiplied.
        let positive = predicate(&self.positive, 1.0, scored);
        if !scored {
            return Some(positive);
        }
        Some(Predicate::Boosting {
            positive: Box::new(positive),
            negative: Box::new(predicate(&self.negative, 1.0, false)),
            factors: (boost, self.negative_boost),
        })
    }
}

impl LowerClause for DisMaxQuery {
    fn lower(self: &Arc<Self>, boost: f32, scored: bool) -> Option<Predicate> {
        let clauses = self.queries.iter().map(|clause| predicate(clause, boost, scored)).collect();
        Some(Predicate::DisMax(self.tie_breaker, clauses))
    }
}

impl LowerClause for NestedQuery {
    fn lower(self: &Arc<Self>, boost: f32, scored: bool) -> Option<Predicate> {
        let scored = scored && self.score_mode != NestedScore::None;
        Some(Predicate::Nested(Arc::clone(self), Box::new(predicate(&self.query, boost, scored))))
    }
}

impl LowerClause for FunctionScoreQuery {
    fn lower(self: &Arc<Self>, boost: f32, scored: bool) -> Option<Predicate> {
        let combination = &self.combination;
        if !scored && combination.min_score.is_none() {
            return Some(predicate(&self.query, boost, false));
        }
        let base_scores = combination.boost_mode != BoostMode::Replace;
        let base = predicate(&self.query, boost, base_scores);
        let filters = self.functions.iter().filter_map(|function| function.filter.as_ref());
        let filters = filters.map(|filter| predicate(filter, 1.0, false)).collect();
        let function_score = Predicate::FunctionScore(Arc::clone(self), Box::new(base), filters);
        // A filter's scores decide what matches and count for nothing else.
        Some(if scored { function_score } else { Predicate::Constant(0.0, Box::new(function_score)) })
    }
}

impl LowerClause for BoolQuery {
    fn lower(self: &Arc<Self>, boost: f32, scored: bool) -> Option<Predicate> {
        Some(of_bool(self, boost, scored))
    }
}

fn of_bool(query: &BoolQuery, boost: f32, scored: bool) -> Predicate {
    let none = || leaf(MatchNoneQuery::default().into(), 1.0, false);
    if query.clauses().next().is_none() {
        return leaf(Query::match_all(), boost, scored);
    }
    if query.is_negative() && query.unadjusted {
        return none();
    }
    let mut parts: Vec<Predicate> = Vec::new();
    parts.extend(query.must.iter().map(|clause| predicate(clause, boost, scored)));
    parts.extend(query.filter.iter().map(|clause| predicate(clause, 1.0, false)));
    let excluded = query.must_not.iter().map(|clause| predicate(clause, 1.0, false));
    parts.extend(excluded.map(|clause| Predicate::Not(Box::new(clause))));
    let required = query.required_should();
    let should: Vec<_> = query.should.iter().map(|clause| predicate(clause, boost, scored)).collect();
    match (required, should.len()) {
        (0, 0) => {}
        (0, _) if scored => parts.push(Predicate::AtLeast(0, should)),
        // Optional clauses that neither score nor must match decide nothing.
        (0, _) if parts.is_empty() => return leaf(Query::match_all(), 1.0, false),
        (0, _) => {}
        (required, count) if required > count => return none(),
        (1, _) => parts.push(Predicate::any(should)),
        (required, count) if required == count => parts.extend(should),
        (required, _) => parts.push(Predicate::AtLeast(required, should)),
    }
    if parts.is_empty() { none() } else { Predicate::all(parts) }
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
    fn clauses_of_clauses_are_joined() {
        insta::assert_snapshot!(
            lowered(json!({"bool": {
                "must": {"bool": {"must": [{"term": {"a": 1}}, {"term": {"b": 2}}]}},
                "filter": {"bool": {"should": [{"term": {"c": 3}}, {"bool": {"should": {"term": {"d": 4}}}}]}}
            }})),
            @"(term(a = 1) AND term(b = 2) AND (term(~c = 3) OR term(~d = 4)))"
        );
    }

    #[test]
    fn degenerate_bools() {
        insta::assert_snapshot!(lowered(json!({"bool": {}})), @"match_all(*)");
        insta::assert_snapshot!(
            lowered(json!({"bool": {"should": [{"term": {"a": 1}}], "minimum_should_match": 3}})),
            @"match_none(~)"
        );
        insta::assert_snapshot!(
            lowered(json!({"constant_score": {"filter": {"term": {"a": 1}}, "boost": 3}})),
            @"constant_score_3(term(~a = 1))"
        );
    }
}
