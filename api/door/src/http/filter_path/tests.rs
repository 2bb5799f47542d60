//! Tests of patterns, and of the pass over text against the same filter over trees.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

/// The filter over a tree: slow and plain, as a reference for the pass over text.
fn over_tree(filter: &FilterPath, value: Value) -> Value {
    let empty = if value.is_array() { json!([]) } else { json!({}) };
    let mut value = Some(value);
    if !filter.excludes.is_empty() {
        let patterns = filter.excludes.iter().map(Vec::as_slice).collect::<Vec<_>>();
        value = value.and_then(|value| drop_matching(value, &patterns));
    }
    if !filter.includes.is_empty() {
        let patterns = filter.includes.iter().map(Vec::as_slice).collect::<Vec<_>>();
        value = value.and_then(|value| keep_matching(value, &patterns));
    }
    value.unwrap_or(empty)
}

fn keep_matching(value: Value, patterns: &[&[String]]) -> Option<Value> {
    match value {
        Value::Object(members) => {
            let mut kept = Map::new();
            for (name, member) in members {
                let (ends, below) = descend(patterns, &name);
                if ends {
                    kept.insert(name, member);
                } else if !below.is_empty()
                    && let Some(member) = keep_matching(member, &below)
                {
                    kept.insert(name, member);
                }
            }
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Array(items) => {
            let kept = items.into_iter().filter_map(|item| keep_matching(item, patterns)).collect::<Vec<_>>();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        _ => None,
    }
}

fn drop_matching(value: Value, patterns: &[&[String]]) -> Option<Value> {
    match value {
        Value::Object(members) => {
            let was_empty = members.is_empty();
            let mut kept = Map::new();
            for (name, member) in members {
                let (ends, below) = descend(patterns, &name);
                if ends {
                    continue;
                }
                let member = if below.is_empty() { Some(member) } else { drop_matching(member, &below) };
                if let Some(member) = member {
                    kept.insert(name, member);
                }
            }
            (was_empty || !kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Array(items) => {
            let was_empty = items.is_empty();
            let kept = items.into_iter().filter_map(|item| drop_matching(item, patterns)).collect::<Vec<_>>();
            (was_empty || !kept.is_empty()).then_some(Value::Array(kept))
        }
        scalar => Some(scalar),
    }
}

fn over_text(filter: &FilterPath, text: &[u8]) -> Value {
    serde_json::from_slice(&filter.apply(text)).unwrap()
}

fn run(filter: &str) -> Value {
    let value = json!({
        "took": 3, "errors": true,
        "items": [
            { "index": { "_id": "1", "status": 201 } },
            { "index": { "_id": "2", "status": 400, "error": { "type": "t", "reason": "r" } } }
        ],
        "nodes": { "a.b": { "jvm": { "mem": { "heap": 1 } } } },
        "empty": {}
    });
    over_text(&FilterPath::parse(filter).unwrap(), value.to_string().as_bytes())
}

#[test]
fn includes() {
    assert_eq!(run("took,errors"), json!({ "took": 3, "errors": true }));
    assert_eq!(
        run("items.*.error"),
        json!({ "items": [{ "index": { "error": { "type": "t", "reason": "r" } } }] })
    );
    assert_eq!(run("items.*.error.t*"), json!({ "items": [{ "index": { "error": { "type": "t" } } }] }));
    assert_eq!(run("**.heap"), json!({ "nodes": { "a.b": { "jvm": { "mem": { "heap": 1 } } } } }));
    assert_eq!(
        run("nodes.a\\.b.**.heap"),
        json!({ "nodes": { "a.b": { "jvm": { "mem": { "heap": 1 } } } } })
    );
    assert_eq!(run("nothing"), json!({}));
    assert_eq!(run("er*"), json!({ "errors": true }));
}

#[test]
fn excludes() {
    assert_eq!(run("-items,-nodes.**.mem,-empty"), json!({ "took": 3, "errors": true }));
    assert_eq!(
        run("items,-items.index.error,-items.index._id"),
        json!({
            "items": [{ "index": { "status": 201 } }, { "index": { "status": 400 } }]
        })
    );
}

#[test]
fn names_are_compared_unescaped_and_values_kept_as_written() {
    let text = br#" { "a\u0062" : [ 1.0 , "\"]}" ], "c\"d":{"e":-1E2,"f":null} } "#;
    let run = |filter: &str| String::from_utf8(FilterPath::parse(filter).unwrap().apply(text)).unwrap();
    assert_eq!(run("ab"), r#"{"a\u0062":[ 1.0 , "\"]}" ]}"#);
    assert_eq!(run("c\"d.e"), r#"{"c\"d":{"e":-1E2}}"#);
    assert_eq!(run("-ab,-*.f"), r#"{"c\"d":{"e":-1E2}}"#);
    assert_eq!(run("x"), "{}");
}

#[test]
fn what_is_no_answer_is_left_alone() {
    let filter = FilterPath::parse("a.b").unwrap();
    let deep = "[".repeat(100_000);
    for text in ["", "{", "{\"a\":", "{\"a\"", "{\"a\":{\"b\":1}", "{\"a\" 1}", "{} {}", "{\"a\\", &deep] {
        assert_eq!(filter.apply(text.as_bytes()), text.as_bytes(), "{text:.20}");
    }
    let deep = format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
    assert_eq!(filter.apply(deep.as_bytes()), b"{}", "what is not kept may nest as it likes");
    let kept = FilterPath::parse("a").unwrap().apply(deep.as_bytes());
    assert_eq!(kept, deep.as_bytes());
    // What is deeper than values are looked into is left out as a whole.
    assert!(FilterPath::parse("**.b").unwrap().apply(deep.as_bytes()) == b"{}");
}

#[test]
fn items_that_nobody_wants_are_known_before() {
    let members = ["_id", "status"];
    for (filter, kept) in [
        ("", true),
        ("errors,items.*.error", false),
        ("items.*._id", true),
        ("items", true),
        ("**.status", true),
        ("took", false),
        ("-items", false),
        ("-items.*", false),
        ("-items.*.status", true),
        ("-items.*._id,-**.status", false),
        ("items.create", false),
        ("items.i*", true),
    ] {
        let filter_path = FilterPath::parse(filter).unwrap();
        assert_eq!(filter_path.keeps_some(&["items", "index"], &members), kept, "{filter}");
    }
}

fn values() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-c{}\\[\\],:\"\\\\ ]{0,6}".prop_map(Value::from),
    ];
    scalar.prop_recursive(5, 60, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec(("[ab.\"]{1,2}", inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn text_and_tree_are_filtered_alike(
        value in values(),
        patterns in prop::collection::vec("-?(a|b|\\*|\\*\\*|a\\*|\\*b|ab|a\\\\\\.)(\\.(a|b|\\*|\\*\\*|a\\*|b\\*|ba)){0,3}", 1..4),
        pretty in any::<bool>(),
    ) {
        let filter = FilterPath::parse(&patterns.join(",")).unwrap();
        let text = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) }.unwrap();
        let once = filter.apply(&text);
        let expected = over_tree(&filter, value);
        prop_assert_eq!(serde_json::from_slice::<Value>(&once).unwrap(), expected, "{:?}", patterns);
        prop_assert_eq!(filter.apply(&once), once, "filtering again changes something: {:?}", patterns);
    }

    #[test]
    fn any_bytes_are_taken(text in "[{}\\[\\]\",:a\\\\1 ]{0,40}") {
        let _ = FilterPath::parse("a.**.b,-c").unwrap().apply(text.as_bytes());
    }
}
