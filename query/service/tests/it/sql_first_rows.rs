//! First rows with many columns: they are planned and read in other ways than many rows of few columns.

use serde_json::{Map, Value, json};

use crate::fixture::{Store, value};
use crate::sql::{ask, rows};

/// Fields of the wide index.
const FIELDS: usize = 150;

async fn wide() -> Store {
    let store = Store::open().await;
    let types = ["keyword", "long"];
    let field = |at: usize| (format!("f{at:03}"), json!({"type": types[at % 2]}));
    let properties: Map<String, Value> = (0..FIELDS).map(field).collect();
    store.create("wide", &json!({"mappings": {"properties": properties}})).await;
    let document = |row: usize| {
        let value = |at: usize| match at % 2 {
            0 => json!(format!("{row}-{at}")),
            _ => json!(row * at % 97),
        };
        (0..FIELDS).map(|at| (format!("f{at:03}"), value(at))).collect::<Map<_, _>>().into()
    };
    store.index("wide", &(0..40).map(document).collect::<Vec<Value>>()).await;
    store
}

async fn pipeline_rows(store: &Store, query: &str) -> Vec<Value> {
    let asked = json!({"query": query});
    let answer = value(store.service.ppl(&store.session, Vec::new(), Some(asked)).await);
    answer["datarows"].as_array().unwrap_or_else(|| panic!("{query}: {answer}")).clone()
}

#[tokio::test]
async fn wide_rows_are_those_of_their_columns() {
    let store = wide().await;
    let names: Vec<String> = (0..FIELDS).map(|at| format!("f{at:03}")).collect();
    let reversed: Vec<String> = names.iter().rev().cloned().collect();
    for tail in [
        "ORDER BY f001, f000",
        "WHERE f003 > 30 ORDER BY f001 DESC, f000 LIMIT 5",
        "WHERE f003 + f005 > 60 ORDER BY f000",
        "ORDER BY f003 + f005, f000 LIMIT 7, 9",
        "WHERE f000 = '7-0'",
        "LIMIT 0",
    ] {
        // Few columns at a time are projected.
        let mut expected = Vec::new();
        for names in names.chunks(50) {
            let part = rows(&store, &format!("SELECT {} FROM wide {tail}", names.join(", "))).await;
            expected.resize(part.len(), Vec::new());
            for (row, part) in expected.iter_mut().zip(part) {
                row.extend(part.as_array().unwrap().iter().cloned());
            }
        }
        let expected: Vec<Value> = expected.into_iter().map(Value::Array).collect();
        assert_eq!(rows(&store, &format!("SELECT * FROM wide {tail}")).await, expected, "{tail}");
        let backwards = rows(&store, &format!("SELECT {} FROM wide {tail}", reversed.join(", "))).await;
        let turned = expected.iter().map(|row| row.as_array().unwrap().iter().rev().cloned().collect());
        assert_eq!(backwards, turned.collect::<Vec<Value>>(), "{tail}");
    }
    let joined =
        "SELECT a.*, b.* FROM wide a JOIN wide b ON a.f000 = b.f000 WHERE a.f001 < 5 ORDER BY a.f000";
    let joined = rows(&store, joined).await;
    assert!(!joined.is_empty());
    for row in joined {
        let row = row.as_array().unwrap();
        assert_eq!(row[..FIELDS], row[FIELDS..]);
    }
    let sorted = rows(&store, "SELECT * FROM wide ORDER BY f001, f000 LIMIT 3").await;
    assert_eq!(pipeline_rows(&store, "source=wide | sort f001, f000 | head 3").await, sorted);
    let renamed = "source=wide | sort f001, f000 | rename f002 as second | where f001 >= 0 | head 3";
    assert_eq!(pipeline_rows(&store, renamed).await.len(), 3);
}

#[tokio::test]
async fn wide_rows_are_searches() {
    let store = wide().await;
    let query = "SELECT * FROM wide WHERE f003 > 30 ORDER BY f001 LIMIT 5";
    let explained =
        store.service.explain_sql(&store.session, Vec::new(), Some(json!({"query": query}))).await;
    let explained = value(explained);
    assert_eq!(explained["size"], 5, "{explained}");
    assert_eq!(explained["sort"], json!([{"f001": {"order": "asc"}}]), "{explained}");
    assert_eq!(explained["_source"], Value::Null, "{explained}");
    let (status, text) = ask(&store, query, "json").await;
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["hits"]["hits"][0]["_source"].as_object().unwrap().len(), FIELDS);
    // Of rows that no search answers, too.
    let computed = "SELECT * FROM wide WHERE f003 + f005 > 60 ORDER BY f000 LIMIT 2";
    let (status, text) = ask(&store, computed, "json").await;
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["hits"]["hits"][0]["_source"].as_object().unwrap().len(), FIELDS, "{answer}");
}

/// Few rows of a segment have their texts from sources, where these equal the columns.
#[tokio::test]
async fn texts_are_the_same_in_few_rows_and_in_many() {
    let store = Store::open().await;
    let body = json!({"mappings": {"properties": {
        "n": {"type": "long"}, "message": {"type": "text"}, "host": {"type": "keyword"},
        "some": {"type": "keyword"}, "lower": {"type": "keyword", "normalizer": "lowercase"},
        "short": {"type": "keyword", "ignore_above": 4}, "many": {"type": "keyword"}, "copy": {"type": "keyword"},
        "number": {"type": "keyword"}, "from": {"type": "keyword", "copy_to": "copy"},
        "default": {"type": "keyword", "null_value": "none"}, "object": {"properties": {"name": {"type": "keyword"}}},
        "other": {"type": "alias", "path": "host"},
        "sub": {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 3}}}
    }}});
    let flat = json!({"mappings": {"properties": {
        "n": {"type": "long"}, "a": {"type": "text"}, "b": {"type": "keyword"}, "c": {"type": "keyword"},
        "d": {"type": "text"}, "e": {"type": "keyword"}
    }}});
    store.create("docs", &body).await;
    store.create("flat", &flat).await;
    let document = |row: usize| {
        let mut document = json!({
            "n": row, "message": format!("message {row}"), "host": format!("host{}", row % 7),
            "lower": format!("UP{row}"), "short": format!("s{row}"), "from": format!("from{row}"),
            "many": if row.is_multiple_of(5) { json!(["x", format!("y{row}")]) } else { json!("x") },
            "number": if row.is_multiple_of(2) { json!(row) } else { json!(row.to_string()) },
            "default": if row.is_multiple_of(3) { Value::Null } else { json!("given") },
            "object": {"name": format!("o{row}")}, "sub": format!("sub{row}"),
        });
        if row.is_multiple_of(4) {
            document["some"] = json!("some");
        }
        document
    };
    let of_flat = |row: usize| {
        let text = |name: &str| json!(format!("{name}{row}"));
        json!({"n": row, "a": text("a"), "b": text("b"), "c": text("c"), "d": text("d"), "e": text("e")})
    };
    store.index("docs", &(0..300).map(document).collect::<Vec<_>>()).await;
    store.index("flat", &(0..300).map(of_flat).collect::<Vec<_>>()).await;
    for state in ["refreshed", "flushed"] {
        for query in [
            "SELECT * FROM docs",
            "SELECT object, message, sub.keyword, sub, other FROM docs",
            "SELECT object, `default`, copy, short, lower FROM docs",
            "SELECT * FROM flat",
        ] {
            let all = rows(&store, &format!("{query} ORDER BY n LIMIT 300")).await;
            assert_eq!(all.len(), 300, "{query}, {state}");
            for (from, count) in [(0, 3), (100, 40), (297, 10)] {
                let some = rows(&store, &format!("{query} ORDER BY n LIMIT {from}, {count}")).await;
                let expected: Vec<Value> = all.iter().skip(from).take(count).cloned().collect();
                assert_eq!(some, expected, "{query}, {state}");
            }
            let found = rows(&store, &format!("{query} WHERE n = 5")).await;
            assert_eq!(found, all[5..6], "{query}, {state}");
            assert_eq!(rows(&store, &format!("{query} LIMIT 10")).await.len(), 10, "{query}, {state}");
        }
        for index in ["docs", "flat"] {
            let index = store.engine.index(index).unwrap();
            store.engine.flush(&[index]).await.unwrap();
        }
    }
}
