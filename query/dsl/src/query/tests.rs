use serde_json::json;

use super::*;

fn refused(value: Value) -> String {
    let error = parse(&value).unwrap_err();
    format!("{}: {}", error.error_type(), error.reason())
}

#[test]
fn unknown_queries_are_refused_with_a_suggestion() {
    insta::assert_snapshot!(
        refused(json!({"matcc": {}})),
        @"parsing_exception: unknown query [matcc] did you mean [match]?"
    );
    insta::assert_snapshot!(
        refused(json!({"has_child": {}})),
        @"parsing_exception: [has_child] query is not supported by this server"
    );
}

/// Dashboards send null for a filter that is not set.
#[test]
fn nulls_among_clauses_are_passed_over() {
    for role in ["must", "filter", "should", "must_not"] {
        let clauses = json!([null, {"term": {"k": "a"}}, null, {"term": {"k": "b"}}]);
        let with = parse(&json!({"bool": {role: clauses}})).unwrap();
        assert_eq!(with, parse(&json!({"bool": {role: [clauses[1], clauses[3]]}})).unwrap());
        for nothing in
            [json!([null]), json!([{"term": {"k": "a"}}, null]), json!([null, null, {"term": {"k": "a"}}])]
        {
            assert!(parse(&json!({"bool": {role: nothing}})).is_err(), "{nothing}");
        }
    }
}

#[test]
fn unknown_options_are_refused_by_each_clause() {
    let cases = [
        json!({"match_all": {"x": 1}}),
        json!({"match": {"f": {"query": "a", "slop": 1}}}),
        json!({"match": {"f": ["a"]}}),
        json!({"match": {"f": {"query": ["a"]}}}),
        json!({"term": {"f": {"value": 1, "x": 2}}}),
        json!({"term": {"f": 1, "g": 2}}),
        json!({"term": {"f": [1]}}),
        json!({"terms": {"f": [1], "g": [2]}}),
        json!({"terms": {"f": {"index": "i", "path": "p"}}}),
        json!({"terms": {"f": {"index": "i", "id": "1", "path": "p", "x": "y"}}}),
        json!({"range": {"f": {"gte": 1, "x": 2}}}),
        json!({"exists": {"field": "f", "x": 1}}),
        json!({"ids": {"values": [1], "x": 1}}),
        json!({"prefix": {"f": {"value": "a", "x": 1}}}),
        json!({"bool": {"must": [], "x": 1}}),
        json!({"bool": {"must": "a"}}),
        json!({"constant_score": {"boost": 1}}),
        json!({"term": {"f": 1}, "match": {"f": 1}}),
        json!({"term": {"f": {"value": 1, "boost": -1}}}),
        json!({}),
        json!([]),
        json!({"term": 1}),
    ];
    let texts: Vec<String> = cases.into_iter().map(refused).collect();
    insta::assert_snapshot!(texts.join("\n"), @r#"
    parsing_exception: [match_all] unknown field [x]
    parsing_exception: [match] query does not support [slop]
    parsing_exception: [match] unknown token [START_ARRAY] after [f]
    parsing_exception: [match] unknown token [START_ARRAY] after [query]
    parsing_exception: [term] query does not support [x]
    parsing_exception: [term] query doesn't support multiple fields, found [f] and [g]
    parsing_exception: [term] query does not support array of values
    parsing_exception: [terms] query does not support multiple fields
    illegal_argument_exception: Required [id]
    x_content_parse_exception: [terms_lookup] unknown field [x]
    parsing_exception: [range] query does not support [x]
    parsing_exception: [exists] query does not support [x]
    parsing_exception: [ids] unknown field [x]
    parsing_exception: [prefix] query does not support [x]
    x_content_parse_exception: [bool] unknown field [x]
    x_content_parse_exception: [bool] must doesn't support values of type: VALUE_STRING
    parsing_exception: [constant_score] requires a 'filter' element
    parsing_exception: [term] malformed query, expected [END_OBJECT] but found [FIELD_NAME] [match]
    illegal_argument_exception: negative [boost] are not allowed in [term], use a value between 0 and 1 to deboost
    illegal_argument_exception: query malformed, empty clause found
    parsing_exception: [_na] query malformed, must start with start_object
    parsing_exception: [term] query malformed, no start_object after query name
    "#);
}

#[test]
fn clauses_are_bounded() {
    let many = vec![json!({"term": {"f": 1}}); 4_096];
    assert!(refused(json!({"bool": {"should": many}})).starts_with("too_many_clauses: maxClauseCount"));
}

#[test]
fn depth_is_bounded() {
    let deepest = || {
        let mut deep = json!({"match_all": {}});
        for _ in 0..80 {
            deep = json!({"bool": {"must": [deep]}});
        }
        let body = parse(&deep).unwrap_err().to_body().unwrap();
        assert_eq!(body["error"]["root_cause"][0]["reason"], "[bool] failed to parse field [must]");
        assert!(body["error"].to_string().contains("nested depth"));
    };
    // Threads that serve requests have as much.
    std::thread::Builder::new().stack_size(8 << 20).spawn(deepest).unwrap().join().unwrap();
}

#[test]
fn ranges_read_old_and_new_bounds() {
    let Query::Range(range) =
        parse(&json!({"range": {"f": {"from": 1, "to": 3, "include_upper": false}}})).unwrap()
    else {
        panic!("not a range")
    };
    assert_eq!(range.from, Some(Bound { value: json!(1), included: true }));
    assert_eq!(range.to, Some(Bound { value: json!(3), included: false }));
}

#[test]
fn should_is_optional_beside_must() {
    let required = |value: Value| match parse(&json!({"bool": value})).unwrap() {
        Query::Bool(query) => query.required_should(),
        _ => unreachable!(),
    };
    let clause = json!({"match_all": {}});
    assert_eq!(required(json!({"should": [clause]})), 1);
    assert_eq!(required(json!({"should": [clause], "filter": clause})), 0);
    assert_eq!(required(json!({"should": [clause, clause], "minimum_should_match": "100%"})), 2);
}

#[test]
fn wrapped_queries_are_bounded_together() {
    use base64::Engine;
    let wrapped = |bytes: usize| {
        let text = "x".repeat(bytes - json!({"term": {"f": ""}}).to_string().len());
        let source = json!({"term": {"f": text}}).to_string();
        json!({"wrapper": {"query": base64::prelude::BASE64_STANDARD.encode(source)}})
    };
    parse(&wrapped((1 << 20) - 4)).unwrap();
    let half = || wrapped(600 << 10);
    let reason = refused(wrapped((1 << 20) + 4));
    assert!(reason.starts_with("illegal_argument_exception: [wrapper] queries of [1"), "{reason}");
    parse(&json!({"bool": {"should": [half()]}})).unwrap();
    let error = parse(&json!({"bool": {"should": [half(), half()]}})).unwrap_err();
    assert!(format!("{error:?}").contains("[wrapper] queries of [1"), "{error:?}");
}
