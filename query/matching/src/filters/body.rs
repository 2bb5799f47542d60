//! The body of a search as a filter: members that decide the matching documents are taken, or refused by name; members that only
//! format hits are left alone.

use millrace_dsl::body::SearchBody;
use millrace_dsl::query::Query;
use millrace_work::error::{Error, Result};
use serde_json::Value;

/// Takes the query of a search's body; everything matches where it has none.
///
/// # Errors
/// A body that no search could have; a member or clause that a filter cannot keep, with its name.
pub(super) fn query(body: &Value) -> Result<Query> {
    let body = SearchBody::parse(body)?;
    let refused = [
        ("aggs", body.aggregations.is_some(), "aggregates"),
        ("min_score", body.min_score.is_some(), "goes by scores, which need an index's statistics"),
        ("post_filter", body.post_filter.is_some(), "narrows hits alone: put it into the query"),
        ("collapse", body.collapse.is_some(), "leaves out documents"),
        ("search_after", body.search_after.is_some(), "leaves out documents"),
        ("slice", body.slice.is_some(), "leaves out documents"),
        ("terminate_after", body.terminate_after != 0, "leaves out documents"),
        ("pit", body.point_in_time.is_some(), "names what is searched"),
        ("suggest", body.suggestions.is_some(), "matches nothing"),
        ("script_fields", body.script_fields > 0, "runs scripts"),
    ];
    if let Some((member, _, why)) = refused.into_iter().find(|(_, there, _)| *there) {
        return Err(Error::IllegalArgument(format!("a filter cannot have [{member}], which {why}")));
    }
    let query = body.query.unwrap_or_else(Query::match_all);
    let mut unfit = None;
    query.walk(&mut |clause| unfit = unfit.take().or_else(|| reason(clause)));
    match unfit {
        Some(reason) => Err(Error::IllegalArgument(format!("a filter cannot have {reason}"))),
        None => Ok(query),
    }
}

/// Says why a clause by itself cannot be part of a filter.
fn reason(clause: &Query) -> Option<String> {
    match clause {
        Query::MoreLikeThis(_) => {
            Some("[more_like_this], which chooses terms by an index's statistics".to_owned())
        }
        Query::FunctionScore(function) if function.combination.min_score.is_some() => {
            Some("[function_score] with [min_score], which goes by scores".to_owned())
        }
        clause if !clause.lookups(&[""]).is_empty() => {
            Some(format!("[{}] with values of another document", clause.kind()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_says_how_hits_are_shown_is_left_alone() {
        let body = json!({
            "query": {"term": {"a": 1}}, "size": 0, "from": 3, "sort": [{"a": "desc"}], "_source": false,
            "track_total_hits": true, "highlight": {"fields": {"a": {}}}, "timeout": "1s", "explain": true,
            "version": true, "docvalue_fields": ["a"], "fields": ["a"], "stored_fields": ["_none_"]
        });
        assert_eq!(query(&body).unwrap(), millrace_dsl::query::parse(&body["query"]).unwrap());
        assert_eq!(query(&json!({})).unwrap(), Query::match_all());
    }

    #[test]
    fn what_a_filter_cannot_keep_is_refused_by_name() {
        let inside = |clause: Value| json!({"query": {"bool": {"filter": [clause]}}});
        let refused = [
            ("aggs", json!({"aggs": {"a": {"avg": {"field": "a"}}}})),
            ("aggs", json!({"aggregations": {"a": {"avg": {"field": "a"}}}})),
            ("min_score", json!({"min_score": 1})),
            ("post_filter", json!({"post_filter": {"match_all": {}}})),
            ("collapse", json!({"collapse": {"field": "a"}})),
            ("terminate_after", json!({"terminate_after": 5})),
            ("search_after", json!({"search_after": [5]})),
            ("script_fields", json!({"script_fields": {"a": {"script": "1"}}})),
            ("knn", json!({"knn": {}})),
            ("knn", inside(json!({"knn": {"a": {"vector": [1], "k": 1}}}))),
            ("script_score", inside(json!({"script_score": {}}))),
            ("script", inside(json!({"script": {}}))),
            ("terms", inside(json!({"terms": {"a": {"index": "i", "id": "1", "path": "p"}}}))),
            ("more_like_this", inside(json!({"more_like_this": {"like": "a", "fields": ["a"]}}))),
            (
                "min_score",
                inside(json!({"function_score": {"query": {"match_all": {}}, "weight": 2, "min_score": 1}})),
            ),
        ];
        for (named, body) in refused {
            // What is inside of another clause is named by the cause.
            let error = query(&body).unwrap_err();
            let told = format!("{error} {}", error.to_body().unwrap_or_default());
            assert!(told.contains(&format!("[{named}]")), "{body}: {told}");
        }
    }
}
