//! First rows with many columns: they are planned and read in other ways than many rows of few columns.

use millrace_engine::Session;
use millrace_mapping::fields::FieldRules;
use serde_json::{Map, Value, json};

use crate::fixture::{Store, restricted_session, value};
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
    pipeline_rows_of(store, &store.session, query).await
}

async fn pipeline_rows_of(store: &Store, session: &Session, query: &str) -> Vec<Value> {
    let asked = json!({"query": query});
    let answer = value(store.service.ppl(session, Vec::new(), Some(asked)).await);
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

/// Fields of the index of events, texts but for the last two.
const EVENT_FIELDS: [&str; 7] = ["host", "level", "app", "region", "secret", "n", "@timestamp"];

/// The newest events that are there, each with the fields of a role, whether they are read from columns or from sources.
#[tokio::test]
async fn newest_events_have_the_fields_of_their_reader() {
    let store = Store::open().await;
    let properties = json!({
        "host": {"type": "keyword"}, "level": {"type": "keyword"}, "app": {"type": "keyword"}, "region": {"type": "keyword"},
        "secret": {"type": "keyword"}, "n": {"type": "long"}, "@timestamp": {"type": "date"}
    });
    store
        .create(
            "events",
            &json!({"settings": {"number_of_shards": 1}, "mappings": {"properties": &properties}}),
        )
        .await;
    let excluding = json!({"_source": {"excludes": ["app"]}, "properties": properties});
    store.create("excluding", &json!({"settings": {"number_of_shards": 1}, "mappings": excluding})).await;
    let event = |n: i64| {
        let text = |name: &str| format!("{name}-{}", n * 7 % 31);
        json!({
            "host": text("host"), "level": text("level"), "app": text("app"), "region": text("region"),
            "secret": text("secret"), "n": n, "@timestamp": 1_700_000_000_000_i64 + n * 1_000
        })
    };
    let mut left: Vec<i64> = (0..400).collect();
    for index in ["events", "excluding"] {
        for (from, to) in [(0, 250), (250, 400)] {
            store.write(index, (from..to).map(|n| (n.to_string(), Some(event(n)))).collect()).await;
            store.engine.flush(&[store.engine.index(index).unwrap()]).await.unwrap();
        }
        // Of both segments, the newest events among them.
        let deleted = (0..400).filter(|n| n % 5 == 4);
        store.write(index, deleted.map(|n| (n.to_string(), None)).collect()).await;
    }
    left.retain(|n| n % 5 != 4);
    left.reverse();
    let all = FieldRules::new(&["*"], &[]);
    let open = FieldRules::new(&["*"], &["secret"]);
    let texts = FieldRules::new(&["host", "level", "app", "region", "@timestamp"], &[]);
    for (rules, hidden) in [(all, vec![]), (open, vec!["secret"]), (texts, vec!["secret", "n"])] {
        let grants = ["events", "excluding"].map(|index| (index, None, Some(rules.clone())));
        let session = restricted_session(&store, &grants);
        let shown: Vec<&str> = EVENT_FIELDS.iter().copied().filter(|field| !hidden.contains(field)).collect();
        let quoted: Vec<String> = shown.iter().map(|field| format!("`{field}`")).collect();
        for index in ["events", "excluding"] {
            for count in [3, 100, 150] {
                let expected: Vec<Value> = left
                    .iter()
                    .take(count)
                    .map(|n| {
                        let event = event(*n);
                        shown
                            .iter()
                            .map(|field| match *field {
                                "@timestamp" => json!(timestamp(event["@timestamp"].as_i64().unwrap())),
                                field => event[field].clone(),
                            })
                            .collect()
                    })
                    .collect();
                let of_index = format!("source={index} | sort - `@timestamp` | head {count}");
                let named = format!("{of_index} | fields {}", quoted.join(", "));
                assert_eq!(pipeline_rows_of(&store, &session, &named).await, expected, "{hidden:?} {named}");
                let whole = pipeline_rows_of(&store, &session, &of_index).await;
                assert_eq!(whole.len(), count.min(left.len()));
                let row = whole[0].as_array().unwrap();
                assert_eq!(row.len(), shown.len(), "{hidden:?} {of_index}: {row:?}");
                let is_secret = |value: &Value| value.as_str().is_some_and(|text| text.starts_with("secret"));
                assert_eq!(row.iter().any(is_secret), hidden.is_empty(), "{of_index}: {row:?}");
            }
        }
        if !hidden.is_empty() {
            let named = json!({"query": "source=events | sort - `@timestamp` | head 100 | fields secret"});
            let answer = value(store.service.ppl(&session, Vec::new(), Some(named)).await);
            assert_eq!(answer["status"], 400, "{answer}");
        }
    }
}

/// A time as statements show it.
fn timestamp(millis: i64) -> String {
    let seconds = millis / 1_000 - 1_700_000_000;
    let of_day = 22 * 3_600 + 13 * 60 + 20 + seconds;
    format!("2023-11-14 {:02}:{:02}:{:02}", of_day / 3_600, of_day / 60 % 60, of_day % 60)
}

/// Analysis counts the pages of the documents that texts come from.
#[tokio::test]
async fn pages_of_sources_are_counted() {
    let store = Store::open().await;
    let names = ["a", "b", "c", "d", "e"];
    let properties: Map<String, Value> =
        names.iter().map(|name| ((*name).to_owned(), json!({"type": "keyword"}))).collect();
    let mut mapping = json!({"properties": properties});
    mapping["properties"]["n"] = json!({"type": "long"});
    store.create("texts", &json!({"settings": {"number_of_shards": 1}, "mappings": mapping})).await;
    let document = |row: usize| {
        let mut document = json!({"n": row});
        names.iter().for_each(|name| document[*name] = json!(format!("{name}{row}{}", "x".repeat(40))));
        document
    };
    store.index("texts", &(0..3_000).map(document).collect::<Vec<_>>()).await;
    store.engine.flush(&[store.engine.index("texts").unwrap()]).await.unwrap();
    let read = async |query: &str| {
        let operators = rows(&store, &format!("EXPLAIN ANALYZE {query}")).await;
        let late = operators.iter().find(|row| row[0].as_str().unwrap().contains("LateColumnsExec"));
        let late = late.unwrap_or_else(|| panic!("{operators:?}"));
        [5, 6, 7].map(|at| late[at].as_u64().unwrap())
    };
    // Pages of sources, of which there are many, and the page of the number.
    let [found, pages, of_pages] = read("SELECT * FROM texts ORDER BY n LIMIT 3").await;
    assert_eq!(found, 3);
    assert!((2..of_pages).contains(&pages), "{pages} of {of_pages}");
    // Of two texts the columns are read.
    let [found, pages, of_pages] = read("SELECT a, b FROM texts ORDER BY n LIMIT 3").await;
    assert!(found == 3 && (2..=of_pages).contains(&pages), "{pages} of {of_pages}");
}
