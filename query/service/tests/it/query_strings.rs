//! Texts in several fields and the two query string languages, over a real store.

use millrace_query::Error;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::fixture::{Store, ids, owned, value};

async fn articles() -> Store {
    let store = Store::open().await;
    let mapping = json!({"mappings": {"properties": {
        "title": {"type": "text", "fields": {"raw": {"type": "keyword"}}},
        "body": {"type": "text", "analyzer": "english"},
        "tag": {"type": "keyword"},
        "n": {"type": "integer"},
        "at": {"type": "date"},
        "place": {"type": "geo_point"}
    }}});
    store.create("articles", &mapping).await;
    let documents = [
        json!({"title": "quick brown fox", "body": "a lazy dog sleeps", "tag": "animals", "n": 1, "at": "2024-01-10"}),
        json!({"title": "brown dog", "body": "running foxes", "tag": ["animals", "sport"], "n": 2}),
        json!({"title": "slow turtle", "body": "quick foxes and the dog", "n": 3, "at": "2024-02-10"}),
        json!({"title": "node-1 is full", "tag": "disk", "n": 12}),
    ];
    store.index("articles", &documents).await;
    store
}

async fn found(store: &Store, query: Value) -> Vec<String> {
    let answer = store.search("articles", &[], json!({"query": query.clone()})).await;
    let mut ids = ids(&answer.unwrap_or_else(|error| panic!("{query}: {:?}", error.to_body())));
    ids.sort();
    ids
}

#[tokio::test]
async fn long_values_of_wildcard_fields_are_found() {
    let store = Store::open().await;
    let mapping = json!({"mappings": {"properties": {"w": {"type": "wildcard"}}}});
    store.create("a", &mapping).await;
    let long = "x".repeat(40_000);
    store.index("a", &[json!({"w": format!("{long}y")}), json!({"w": "xz"})]).await;
    for (query, found) in [
        (json!({"wildcard": {"w": "xx*y"}}), 1),
        (json!({"term": {"w": format!("{long}y")}}), 1),
        (json!({"prefix": {"w": "x"}}), 2),
        (json!({"regexp": {"w": "x+y"}}), 1),
        (json!({"exists": {"field": "w"}}), 2),
    ] {
        let answer = store.search("a", &[], json!({"query": query})).await.unwrap();
        assert_eq!(answer["hits"]["total"]["value"], found);
    }
}

#[tokio::test]
async fn query_strings_find_what_they_say() {
    let store = articles().await;
    let cases: &[(&str, Value, &[&str])] = &[
        ("quick fox", json!({}), &["1", "2", "3"]),
        ("quick AND fox", json!({}), &["1", "3"]),
        ("title:quick AND title:fox", json!({}), &["1"]),
        ("brown -fox", json!({"default_field": "title"}), &["2"]),
        ("brown -fox", json!({"fields": ["title", "body^2"]}), &[]),
        ("title:(quick OR slow)", json!({}), &["1", "3"]),
        ("the", json!({"default_field": "body"}), &[]),
        ("the dog", json!({"default_field": "body", "default_operator": "and"}), &["1", "3"]),
        ("n:>=2 AND n:<12", json!({}), &["2", "3"]),
        ("n:[1 TO 3}", json!({}), &["1", "2"]),
        ("at:[2024-01-01 TO 2024-02]", json!({}), &["1"]),
        ("_exists_:at", json!({}), &["1", "3"]),
        ("at:*", json!({}), &["1", "3"]),
        ("*", json!({}), &["1", "2", "3", "4"]),
        ("*:*", json!({}), &["1", "2", "3", "4"]),
        ("NOT tag:animals", json!({}), &["3", "4"]),
        ("tag:(sport disk)", json!({}), &[]),
        ("tag:(sport OR disk)", json!({}), &["2", "4"]),
        ("nothing:x", json!({}), &[]),
        ("", json!({}), &[]),
        ("quick brown dog", json!({"default_field": "title", "minimum_should_match": "2"}), &["1", "2"]),
        ("t\\*:x OR title:node\\-1", json!({}), &["4"]),
        ("title:Quick title:TURTLE", json!({}), &["1", "3"]),
        ("a+b", json!({"escape": true}), &[]),
    ];
    for (text, options, expected) in cases {
        let mut clause = options.clone();
        clause["query"] = json!(text);
        assert_eq!(found(&store, json!({"query_string": clause})).await, *expected, "{clause}");
    }
}

#[tokio::test]
async fn simple_query_strings_find_what_they_say() {
    let store = articles().await;
    let cases: &[(&str, Value, &[&str])] = &[
        ("quick fox", json!({"fields": ["title"]}), &["1"]),
        ("quick + fox", json!({"fields": ["title", "body"]}), &["1", "3"]),
        ("brown + -fox", json!({"fields": ["title"]}), &["2"]),
        ("quick | turtle", json!({"fields": ["title"], "default_operator": "and"}), &["1", "3"]),
        ("brown (dog | fox)", json!({"fields": ["title"], "default_operator": "and"}), &["1", "2"]),
        ("*", json!({}), &["1", "2", "3", "4"]),
        ("", json!({}), &[]),
        ("quick -", json!({"fields": ["title"]}), &["1"]),
        ("brown -fox", json!({"fields": ["title"], "flags": "NONE"}), &["1", "2"]),
    ];
    for (text, options, expected) in cases {
        let mut clause = options.clone();
        clause["query"] = json!(text);
        assert_eq!(found(&store, json!({"simple_query_string": clause})).await, *expected, "{clause}");
    }
}

#[tokio::test]
async fn multi_match_joins_fields() {
    let store = articles().await;
    let cases: &[(Value, &[&str])] = &[
        (json!({"query": "quick dog", "fields": ["title", "body"]}), &["1", "2", "3"]),
        (json!({"query": "quick dog", "fields": ["title", "body"], "operator": "and"}), &["3"]),
        (json!({"query": "brown dog", "fields": ["title", "body"], "operator": "and"}), &["2"]),
        (
            json!({"query": "quick brown", "fields": ["title", "tag"], "operator": "and", "type": "most_fields"}),
            &["1"],
        ),
        (json!({"query": "animals", "fields": ["tag", "title.raw"], "type": "cross_fields"}), &["1", "2"]),
        (json!({"query": "quick", "fields": ["title^2", "*dy"]}), &["1", "3"]),
        (json!({"query": "the", "fields": ["body"], "zero_terms_query": "all"}), &["1", "2", "3", "4"]),
        (json!({"query": "animals"}), &["1", "2"]),
        (json!({"query": "x", "fields": ["nothing"]}), &[]),
    ];
    for (clause, expected) in cases {
        assert_eq!(found(&store, json!({"multi_match": clause})).await, *expected, "{clause}");
    }
}

#[tokio::test]
async fn texts_that_cannot_be_read_are_refused() {
    let store = articles().await;
    let cases = [
        json!({"query_string": {"query": "title:(quick"}}),
        json!({"query_string": {"query": "n:abc", "lenient": false}}),
        json!({"query_string": {"query": "x", "default_field": "a", "fields": ["b"]}}),
        json!({"query_string": {"query": "*x", "allow_leading_wildcard": false}}),
        json!({"query_string": {"query": "x", "analyzer": "odd"}}),
        json!({"query_string": {"query": "n:x )", "lenient": false}}),
        json!({"query_string": {"query": format!("/{}/", "a".repeat(1_001))}}),
        json!({"multi_match": {"query": "x", "fields": ["title", "body"], "tie_breaker": 2}}),
        json!({"multi_match": {"query": "x", "fields": ["title", "n"]}}),
        json!({"simple_query_string": {"query": "x", "fields": ["n"]}}),
    ];
    let mut reasons = Vec::new();
    for query in cases {
        let error = store.search("articles", &[], json!({"query": query})).await.unwrap_err();
        assert_eq!(error.status(), 400);
        let body = error.to_body().unwrap();
        let reason = body["error"]["root_cause"][0]["reason"].as_str().unwrap();
        reasons.push(reason.chars().take(100).collect::<String>());
    }
    insta::assert_snapshot!(reasons.join("\n"), @r#"
    Failed to parse query [title:(quick]
    failed to create query: For input string: "abc"
    failed to create query: Validation Failed: 1: [query_string] cannot use [fields] parameter in conjun
    Failed to parse query [*x]
    [query_string] analyzer [odd] not found
    failed to create query: For input string: "x"
    failed to create query: The length of regex [1001] used in the [query_string] has exceeded the allow
    failed to create query: tieBreakerMultiplier must be in [0, 1]
    failed to create query: For input string: "x"
    failed to create query: For input string: "x"
    "#);
}

#[tokio::test]
async fn parameters_ask_as_query_strings() {
    let store = articles().await;
    let params = [("q", "brown fox"), ("df", "title"), ("default_operator", "AND")];
    let answer = store.search("articles", &params, json!({})).await.unwrap();
    assert_eq!(ids(&answer), ["1"]);
    let counted = store.service.count(&store.session, "articles", owned(&[("q", "n:>2")]), None).await;
    assert_eq!(value(counted.unwrap())["count"], 2);
    let lenient = [("q", "x"), ("df", "n"), ("lenient", "true")];
    assert!(ids(&store.search("articles", &lenient, json!({})).await.unwrap()).is_empty());
}

/// Pieces of both languages and names of this index.
const PIECES: &[&str] = &[
    "quick",
    "brown",
    "dog",
    "title:",
    "body:",
    "tag:",
    "n:",
    "at:",
    "place:",
    "_exists_:",
    "*:",
    "t\\*:",
    " AND ",
    " OR ",
    " NOT ",
    " ",
    " ",
    "+",
    "-",
    "!",
    "(",
    ")",
    "\"",
    "~",
    "~2",
    "^2",
    "*",
    "?",
    "/q.*/",
    "[1 TO 3]",
    "{a TO *}",
    ">1",
    "<=2",
    "2024-01",
    "\\",
    "|",
    "é",
    ":",
    "[",
    "}",
];

#[tokio::test]
async fn any_text_is_answered_or_refused() {
    let store = articles().await;
    let mut rng = StdRng::seed_from_u64(11);
    let mut answered = 0;
    for _ in 0..1_500 {
        let pieces = rng.random_range(1..14);
        let text: String = (0..pieces).map(|_| PIECES[rng.random_range(0..PIECES.len())]).collect();
        let mut clause = json!({"query": text});
        if rng.random_range(0..3) == 0 {
            let field = ["title^2", "body", "*", "n", "t*"][rng.random_range(0..5)];
            clause["fields"] = json!([field, "tag"]);
        }
        if rng.random_range(0..4) == 0 {
            clause["default_operator"] = json!("and");
        }
        if rng.random_range(0..4) == 0 {
            clause["analyze_wildcard"] = json!(true);
        }
        let name = ["query_string", "simple_query_string"][rng.random_range(0..2)];
        let body = json!({"query": {name: clause}, "size": 3});
        match store.search("articles", &[], body.clone()).await {
            Ok(_) => answered += 1,
            Err(error @ Error::SearchPhase { .. }) => assert_eq!(error.status(), 400, "{body}: {error}"),
            Err(error) => panic!("{body}: {error}"),
        }
    }
    assert!(answered > 700, "{answered}");
}
