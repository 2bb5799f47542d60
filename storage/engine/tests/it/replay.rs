//! Accepted writes are replayed, whatever the settings and the mapping are since.

use std::sync::Arc;

use millrace_catalog::access::Principal;
use millrace_catalog::metadata::{IndicesOptions, Metadata, MetadataChange, Uuid};
use millrace_engine::Engine;
use millrace_runtime::Result;
use serde_json::{Value, json};

use crate::documents::{index_op, open, reopen, write};

/// Change after documents were accepted.
enum LaterChange {
    Settings(Value),
    Mapping(Value),
    Close,
}

struct Case {
    name: &'static str,
    /// Body of the index.
    index: Value,
    documents: Vec<String>,
    then: Vec<LaterChange>,
    /// Keyword fields with the values that each document still has indexed.
    indexed: Vec<(&'static str, &'static str)>,
}

async fn change<F>(engine: &Engine, decide: F)
where
    F: FnOnce(&Metadata) -> Result<Vec<MetadataChange>> + Send,
{
    engine.change(&Principal::system(), decide).await.unwrap();
}

fn settings(pairs: Value) -> Value {
    json!({"settings": pairs, "mappings": {"properties": {"k": {"type": "keyword"}}}})
}

fn mapped(mapping: Value) -> Value {
    json!({"mappings": mapping})
}

fn cases() -> Vec<Case> {
    let options = json!({});
    let nested = json!({"properties": {"k": {"type": "keyword"}, "n": {"type": "nested", "properties": {"x": {"type": "long"}}}}});
    let elements: Vec<Value> = (0..100).map(|x| json!({"x": x})).collect();
    let k = vec![("k", "kept")];
    let deep = |leaf: Value| (0..30).fold(leaf, |below, _| json!({"o": below}));
    let case = |name, index, documents: Vec<Value>, then, indexed: &Vec<(&'static str, &'static str)>| Case {
        name,
        index,
        documents: documents.into_iter().map(|d| d.to_string()).collect(),
        then,
        indexed: indexed.clone(),
    };
    let limit =
        |key: &str, value: Value| LaterChange::Settings(json!({format!("index.mapping.{key}"): value}));
    let property = |body: Value| LaterChange::Mapping(json!({"properties": {"p": body}}));
    vec![
        case(
            "fewer nested objects",
            mapped(nested),
            vec![json!({"k": "kept", "n": elements})],
            vec![limit("nested_objects.limit", json!(10))],
            &k,
        ),
        case(
            "strict where names were left alone",
            mapped(
                json!({"dynamic": false, "properties": {"k": {"type": "keyword"}, "o": {"properties": {"k": {"type": "keyword"}}}}}),
            ),
            vec![json!({"new": 1, "k": "kept", "o": {"also": {"new": []}, "k": "inner"}})],
            vec![LaterChange::Mapping(json!({"dynamic": "strict"}))],
            &vec![("k", "kept"), ("o.k", "inner")],
        ),
        case(
            "strict where values were empty",
            settings(options.clone()),
            vec![json!({"k": "kept", "nothing": null, "none": [], "empty": {"x": null}})],
            vec![LaterChange::Mapping(json!({"dynamic": "strict"}))],
            &k,
        ),
        case(
            "fewer fields",
            settings(options.clone()),
            vec![json!({"k": "kept", "a": "x", "b": {"c": 1}})],
            vec![limit("total_fields.limit", json!(1))],
            &k,
        ),
        case(
            "less depth",
            settings(json!({"index.mapping.depth.limit": 50})),
            vec![{
                let mut document = deep(json!(1));
                document["k"] = json!("kept");
                document
            }],
            vec![limit("depth.limit", json!(2))],
            &k,
        ),
        case(
            "shorter names",
            settings(options.clone()),
            vec![json!({"k": "kept", "a_rather_long_name": 1})],
            vec![limit("field_name_length.limit", json!(2))],
            &k,
        ),
        case(
            "nothing malformed any more",
            json!({"settings": {"index.mapping.ignore_malformed": true}, "mappings": {"properties": {"k": {"type": "keyword"}, "n": {"type": "long"}}}}),
            vec![json!({"k": "kept", "n": "many"})],
            vec![LaterChange::Close, limit("ignore_malformed", json!(false)), limit("coerce", json!(false))],
            &k,
        ),
        case(
            "malformed no more, of one field",
            mapped(
                json!({"properties": {"k": {"type": "keyword"}, "p": {"type": "long", "ignore_malformed": true}}}),
            ),
            vec![json!({"k": "kept", "p": "many"})],
            vec![property(json!({"type": "long", "ignore_malformed": false}))],
            &k,
        ),
        case(
            "no overflow any more",
            settings(json!({"index.mapping.overflow": "store", "index.mapping.total_fields.limit": 3})),
            vec![json!({"k": "kept", "a": 1, "b": 1, "c": 1, "d": {"e": 1}})],
            vec![limit("overflow", json!(null)), limit("total_fields.limit", json!(1))],
            &k,
        ),
        case(
            "long terms are ignored no more",
            mapped(
                json!({"properties": {"k": {"type": "keyword"}, "p": {"type": "keyword", "ignore_above": 10}}}),
            ),
            vec![json!({"k": "kept", "p": "x".repeat(40_000)})],
            vec![property(json!({"type": "keyword", "ignore_above": 1_000_000}))],
            &k,
        ),
        case(
            "a name that became an alias",
            mapped(json!({"dynamic": false, "properties": {"k": {"type": "keyword"}}})),
            vec![json!({"k": "kept", "p": 1})],
            vec![property(json!({"type": "alias", "path": "k"}))],
            &k,
        ),
        case(
            "a dotted name below what became nested",
            mapped(json!({"dynamic": false, "properties": {"k": {"type": "keyword"}}})),
            vec![json!({"k": "kept", "p.x": 1})],
            vec![property(json!({"type": "nested"}))],
            &k,
        ),
        case(
            "a structure for what became a point, and more of the kind",
            mapped(json!({"dynamic": false, "properties": {"k": {"type": "keyword"}}})),
            vec![
                json!({"p": [[["x"]]], "k": "kept"}),
                json!({"p": {"a": {"b": 1}}, "k": "kept"}),
                json!({"k": "kept", "p": 3}),
            ],
            vec![property(json!({"type": "geo_point"}))],
            &k,
        ),
        case(
            "values for what became ranges",
            mapped(json!({"dynamic": false, "properties": {"k": {"type": "keyword"}}})),
            vec![
                json!({"k": "kept", "p": [{"gte": 9, "lte": 1}, {"gte": {"a": 1}}, {"x": 1}, 5]}),
                json!({"k": "kept", "p": {"gt": 2_147_483_647}, "q": ["10.0.0.1", {"gte": "x"}]}),
            ],
            vec![
                property(json!({"type": "integer_range"})),
                LaterChange::Mapping(json!({"properties": {"q": {"type": "ip_range"}}})),
            ],
            &k,
        ),
        case(
            "less depth of a flat object",
            mapped(json!({"dynamic": false, "properties": {"k": {"type": "keyword"}}})),
            vec![json!({"k": "kept", "p": deep(json!(1))})],
            vec![property(json!({"type": "flat_object", "depth_limit": 3}))],
            &k,
        ),
        case(
            "features and completions that are none",
            mapped(json!({"dynamic": false, "properties": {"k": {"type": "keyword"}}})),
            vec![json!({"k": "kept", "p": [1, -2], "q": {"weight": -1}, "r": {"x": "y"}})],
            vec![
                property(json!({"type": "rank_feature"})),
                LaterChange::Mapping(
                    json!({"properties": {"q": {"type": "completion"}, "r": {"type": "rank_features"}}}),
                ),
            ],
            &k,
        ),
        case(
            "an index that was closed, with an analyzer less",
            json!({
                "settings": {"index.analysis.analyzer.own.tokenizer": "whitespace"},
                "mappings": {"properties": {"k": {"type": "keyword"}, "p": {"type": "text", "analyzer": "standard", "search_analyzer": "own"}}}
            }),
            vec![json!({"k": "kept", "p": "some text", "new": 1})],
            vec![
                property(json!({"type": "text", "analyzer": "standard", "search_analyzer": "standard"})),
                LaterChange::Close,
                LaterChange::Settings(json!({"index.analysis.*": null})),
            ],
            &k,
        ),
    ]
}

/// Changes after which a document that was left alone in part would be indexed whole today.
#[tokio::test(flavor = "multi_thread")]
async fn replay_adds_no_fields_that_were_left_alone_then() {
    let limited =
        json!({"settings": {"index.mapping.overflow": "store", "index.mapping.total_fields.limit": 1}});
    let raised = json!({"index.mapping.total_fields.limit": 1000});
    let interval = json!({"index.refresh_interval": "-1"});
    let options = IndicesOptions::open_and_closed();
    for (index, settings, first, ignored) in [
        (mapped(json!({"dynamic": false})), &interval, r#"{"x":1}"#, false),
        (mapped(json!({"dynamic": false})), &interval, r#"{"o":{"x":1},"y.z":2}"#, false),
        (limited.clone(), &raised, r#"{"o":{"x":1}}"#, true),
        (limited, &raised, r#"{"a":{"x":1},"b":[2]}"#, true),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path()).await;
        change(&engine, |m| m.create_index("a", &index, 0, Uuid::new_v4())).await;
        assert!(write(&engine, vec![index_op("a", Some("0"), first)]).await.iter().all(Result::is_ok));
        let put = async |body: Value| engine.put_mapping(&Principal::system(), "a", &body).await.unwrap();
        if !ignored {
            put(json!({"dynamic": true})).await;
        }
        // This stores the mapping that is now in the catalog.
        change(&engine, |m| m.update_settings("a", &options, settings, false, 0)).await;
        put(json!({"properties": {"k": {"type": "keyword"}}})).await;
        put(json!({"properties": {"z": {"type": "keyword"}}})).await;
        let second = r#"{"k":"kept","new":"text"}"#;
        assert!(write(&engine, vec![index_op("a", Some("1"), second)]).await.iter().all(Result::is_ok));
        let grown = engine.index("a").unwrap().mapping().to_json();
        drop(engine);
        for _ in 0..2 {
            let engine = reopen(dir.path()).await;
            let index = engine.index("a").unwrap();
            assert_eq!(index.mapping().to_json(), grown, "{first}");
            engine.refresh(&[Arc::clone(&index)]).await.unwrap();
            assert_eq!(with_term(&engine, "k", "kept").await, 1, "{first}");
            for (id, source) in [("0", first), ("1", second)] {
                let found = engine.get(&Principal::system(), "a", id, None, true).await.unwrap();
                assert_eq!(&found.unwrap().source[..], source.as_bytes());
            }
            engine.flush(&[index]).await.unwrap();
            assert_eq!(with_term(&engine, "k", "kept").await, 1, "{first}");
            drop(engine);
        }
    }
}

/// Documents that have a term in a keyword field, as searches see it.
async fn with_term(engine: &Engine, field: &str, value: &str) -> u64 {
    let index = engine.index("a").unwrap();
    let snapshot = index.snapshot().await.unwrap();
    let column = snapshot.mapping.field(field).unwrap().column;
    let mut found = 0;
    for view in snapshot.shards.iter().flat_map(|shard| &shard.segments) {
        let mut count = |batch: millrace_segment::ColumnBatch| {
            let values = &batch.columns[0];
            for row in 0..values.len() {
                let text = arrow::util::display::array_value_to_string(values, row).unwrap();
                found += u64::from(text == value);
            }
            true
        };
        view.segment.scan_blocking(&[column], None, &mut count).unwrap();
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_accepted_once_is_replayed_whatever_settings_say_now() {
    for Case { name, index, documents, then, indexed } in cases() {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path()).await;
        change(&engine, |m| m.create_index("a", &index, 0, Uuid::new_v4())).await;
        let ops = documents.iter().enumerate().map(|(i, d)| index_op("a", Some(&i.to_string()), d)).collect();
        for outcome in write(&engine, ops).await {
            outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        let options = IndicesOptions::open_and_closed();
        let mut closed = false;
        for step in then {
            match step {
                LaterChange::Settings(body) => {
                    change(&engine, |m| m.update_settings("a", &options, &body, false, 0)).await;
                }
                LaterChange::Mapping(body) => {
                    let put = engine.put_mapping(&Principal::system(), "a", &body).await;
                    put.unwrap_or_else(|error| panic!("{name}: {error}"));
                }
                LaterChange::Close => {
                    // The flush of closing is left out: it is what a kill at that moment leaves.
                    closed = true;
                    change(&engine, |m| m.close_indices("a", &options, 0)).await;
                }
            }
        }
        drop(engine);
        for _ in 0..2 {
            let engine = reopen(dir.path()).await;
            if closed {
                change(&engine, |m| m.open_indices("a", &options, 0)).await;
                closed = false;
            }
            engine.refresh(&[engine.index("a").unwrap()]).await.unwrap();
            for (i, document) in documents.iter().enumerate() {
                let found = engine.get(&Principal::system(), "a", &i.to_string(), None, true).await.unwrap();
                assert_eq!(&found.unwrap().source[..], document.as_bytes(), "{name}");
            }
            for (field, value) in &indexed {
                assert_eq!(with_term(&engine, field, value).await, documents.len() as u64, "{name}: {field}");
            }
            drop(engine);
        }
    }
}
