//! Values of `completion`, `token_count`, `rank_feature`, `rank_features` and `search_as_you_type`: what
//! becomes of them, and how they are refused.

use std::sync::Arc;

use millrace_runtime::Error;
use serde_json::{Value, json};

use super::*;
use crate::mapping::Mapping;

fn mapping() -> Arc<Mapping> {
    let body = json!({"properties": {
        "c": {"type": "completion", "max_input_length": 8, "fields": {"raw": {"type": "keyword"}}},
        "in": {"type": "completion", "contexts": [
            {"name": "color", "type": "category", "path": "o.color"}, {"name": "place", "type": "geo", "precision": 3}
        ]},
        "t": {"type": "text", "fields": {
            "n": {"type": "token_count", "analyzer": "stop"},
            "m": {"type": "token_count", "analyzer": "stop", "enable_position_increments": false},
            "c": {"type": "completion", "preserve_separators": false}
        }},
        "rank": {"type": "rank_feature"}, "cost": {"type": "rank_feature", "positive_score_impact": false},
        "topics": {"type": "rank_features"}, "a": {"type": "search_as_you_type", "max_shingle_size": 2}
    }});
    Arc::new(Mapping::parse(&body, &serde_json::Map::new()).unwrap())
}

fn values(source: &Value, path: &str) -> Result<Vec<String>, Error> {
    let mapping = mapping();
    let mut builder = ChunkBuilder::new(mapping.clone());
    builder.push("1", source.to_string().as_bytes())?;
    let (chunk, _) = builder.finish();
    let column = mapping.field(path).unwrap().column;
    let mut shown = Vec::new();
    for column in chunk.columns.iter().filter(|found| found.id == column) {
        for at in 0..column.rows.len() {
            shown.push(match &column.values {
                Values::Str(strings) => String::from_utf8(strings.value(at).to_vec()).unwrap(),
                Values::I64(values) => values[at].to_string(),
                other => panic!("{other:?}"),
            });
        }
    }
    Ok(shown)
}

#[test]
fn values_become_terms() {
    for (source, path, expected) in [
        (json!({"c": "Foo Bar"}), "c", vec!["foo\u{1f}bar\u{1e}00000001\u{1e}Foo Bar"]),
        (
            json!({"c": ["a", {"input": ["b", "a"], "weight": "7"}]}),
            "c",
            vec!["a\u{1e}00000007\u{1e}a", "b\u{1e}00000007\u{1e}b"],
        ),
        (json!({"c": "abcdefghij"}), "c", vec!["abcdefgh\u{1e}00000001\u{1e}abcdefgh"]),
        (json!({"c": {"input": ["x y", " "], "weight": 3}}), "c.raw", vec!["x y", " "]),
        (json!({"c": null}), "c", vec![]),
        (
            json!({"in": {"input": "a", "contexts": {"color": ["red", 7]}}}),
            "in",
            vec!["a7\u{1d}a\u{1e}00000001\u{1e}a", "ared\u{1d}a\u{1e}00000001\u{1e}a"],
        ),
        (json!({"o": {"color": "blue"}, "in": "a"}), "in", vec!["ablue\u{1d}a\u{1e}00000001\u{1e}a"]),
        (
            json!({"in": {"input": "a", "contexts": {"place": {"lat": 52.5, "lon": 13.4}}}}),
            "in",
            vec!["bu33\u{1d}a\u{1e}00000001\u{1e}a"],
        ),
        (json!({"t": ["the fox", "one two"]}), "t.n", vec!["2", "2"]),
        (json!({"t": "the fox"}), "t.m", vec!["1"]),
        (json!({"t": "a b"}), "t.c", vec!["ab\u{1e}00000001\u{1e}a b"]),
        (json!({"rank": 1}), "rank", vec!["=7F00"]),
        (json!({"cost": "2"}), "cost", vec!["=7E00"]),
        (json!({"topics": [{"a": 1, "b.c": "2"}, {"d": null}]}), "topics", vec!["a=7F00", "b.c=8000"]),
        (json!({"a": "one two"}), "a._2gram", vec!["one two"]),
    ] {
        assert_eq!(values(&source, path).unwrap(), expected, "{source}");
    }
    assert_eq!(feature_of("a=7F00", "a="), Some((0x7F00, 1.0)));
    assert_eq!(feature_of("a=b=7F00", "a="), None);
    let whole = Completion::new("ared\u{1d}x\u{1e}00000010\u{1e}X", true).unwrap();
    assert_eq!((whole.context, whole.path, whole.weight, whole.input), (Some((0, "red")), "x", 16, "X"));
    assert_eq!(Completion::new("x", false), None);
}

#[test]
fn misfits_are_refused() {
    for (source, expected) in [
        (json!({"c": 5}), "failed to parse [c]: expected text or object, but got VALUE_NUMBER"),
        (json!({"c": ["a", null]}), "failed to parse [null]: expected text or object, but got VALUE_NULL"),
        (
            json!({"c": {"input": "x", "weight": -1}}),
            "weight must be in the interval [0..2147483647], but was [-1]",
        ),
        (json!({"c": {"input": "x", "weight": 1.5}}), "weight must be an integer, but was [1.5]"),
        (json!({"c": {"input": [5]}}), "input array must have string values, but was [VALUE_NUMBER]"),
        (json!({"c": {"x": 1}}), "unknown field name [x], must be one of [input, weight, contexts]"),
        (json!({"c": {"input": "x", "contexts": {}}}), "contexts field is not supported for field: [c]"),
        (json!({"c": "a\u{1f}b"}), "UTF-16 codepoint [0x1f] at position 1 is a reserved character"),
        (
            json!({"in": {"input": "x", "contexts": {"colour": "red"}}}),
            "Unknown context name [colour], must be one of [color, place]",
        ),
        (json!({"rank": 0}), "featureValue must be a positive normal float, got: 0.0"),
        (
            json!({"rank": [1, 2]}),
            "[rank_feature] fields do not support indexing multiple values for the same field [rank]",
        ),
        (json!({"rank": "x"}), "For input string: \"x\""),
        (
            json!({"topics": 3}),
            "[rank_features] fields must be json objects, expected a START_OBJECT but got: VALUE_NUMBER",
        ),
        (json!({"topics": {"a": [1]}}), "but got unexpected token START_ARRAY"),
        (
            json!({"topics": [{"a": 1}, {"a": 2}]}),
            "for the same rank feature [topics.a] in the same document",
        ),
    ] {
        match values(&source, "c") {
            Err(Error::MapperParsing { caused_by: Some((_, reason)), .. }) => {
                assert!(reason.contains(expected), "{source}: {reason}");
            }
            other => panic!("{source}: {other:?}"),
        }
    }
    let mandatory = values(&json!({"in": "x"}), "in").unwrap_err();
    assert_eq!(mandatory.to_string(), "Contexts are mandatory in context enabled completion field [in]");
}

#[test]
fn a_text_of_which_too_much_would_come_is_said_to_be_ignored() {
    let settings = json!({
        "index.max_ngram_diff": 100_000,
        "index.analysis.filter.grams.type": "ngram",
        "index.analysis.filter.grams.min_gram": 1,
        "index.analysis.filter.grams.max_gram": 10_000,
        "index.analysis.analyzer.grams.tokenizer": "keyword",
        "index.analysis.analyzer.grams.filter": ["grams"],
    });
    let body = json!({"properties": {
        "t": {"type": "text", "fields": {"grams": {"type": "text", "analyzer": "grams"}}},
        "off": {"type": "text", "analyzer": "grams", "index": false},
    }});
    let mapping = Mapping::parse(&body, settings.as_object().unwrap()).map(Arc::new).unwrap();
    let mut builder = ChunkBuilder::new(mapping);
    let long = "a".repeat(4_000);
    builder.push("0", json!({"t": "short", "off": long}).to_string().as_bytes()).unwrap();
    builder.push("1", json!({"t": ["short", long]}).to_string().as_bytes()).unwrap();
    let (chunk, _) = builder.finish();
    assert_eq!(chunk.ignored, [(1, "t.grams".into())]);
}

#[test]
fn a_document_of_a_data_stream_has_one_time() {
    let settings = json!({"index.data_stream.timestamp_field": "time"});
    let body = json!({"properties": {"time": {"type": "date"}, "o": {"type": "nested"}}});
    let mapping = Arc::new(Mapping::parse(&body, settings.as_object().unwrap()).unwrap());
    let mut builder = ChunkBuilder::new(mapping);
    let mut push = |source: Value| {
        builder.push("1", source.to_string().as_bytes()).map_err(|error| match error {
            Error::MapperParsing { caused_by: Some((_, reason)), .. } => reason,
            other => other.to_string(),
        })
    };
    push(json!({"time": 1})).unwrap();
    push(json!({"a": 1, "time": "2026-01-01", "o": [{"b": 1}]})).unwrap();
    for missing in [json!({}), json!({"time": null}), json!({"a": 1}), json!({"o": {"time": 1}})] {
        assert_eq!(push(missing).unwrap_err(), "data stream timestamp field [time] is missing");
    }
    let several = push(json!({"time": [1, 2]})).unwrap_err();
    assert_eq!(several, "data stream timestamp field [time] encountered multiple values");
    // What was accepted once is replayed.
    builder.push_accepted("1", b"{}").unwrap();
    assert_eq!(builder.rows(), 3);
}
