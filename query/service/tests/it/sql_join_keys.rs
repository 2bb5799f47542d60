//! Keys of joins at scans of indices that roles restrict, of several indices, and in little memory.

use millrace_mapping::fields::FieldRules;
use millrace_query::Config;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use crate::fixture::{Store, restricted_session, value};
use crate::sql_dynamic_filters::{are_equal, numbers, rows_of, store, values};

/// Fields whose keys are terms, and one whose texts are cut off there.
const KEYS: [&str; 5] = ["k", "w", "ip", "ok", "t"];

/// Ids of pairs of equal keys.
fn pairs<'d>(
    many: impl Iterator<Item = &'d Value> + Clone,
    few: impl Iterator<Item = &'d Value>,
    field: &str,
) -> Vec<i64> {
    let pairs = few.flat_map(|one| many.clone().filter(move |other| are_equal(one, other, field)));
    numbers(pairs.map(|row| json!([row["id"]])).collect())
}

/// Keys of documents that a role hides find nothing, and hidden documents are not found by keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_see_what_rules_show() {
    let (store, many, few) = store(&mut StdRng::seed_from_u64(31), Config::default()).await;
    let even = json!({"range": {"i": {"lt": 20}}});
    let hidden = few.iter().find_map(|row| row["k"].as_str()).unwrap();
    let known = json!({"bool": {"must_not": [{"term": {"k": hidden}}]}});
    for rule in [even, known] {
        let is_shown = |row: &&Value| match rule.get("range") {
            Some(_) => row["i"].as_i64().is_some_and(|i| i < 20),
            None => !values(row, "k").contains(&&json!(hidden)),
        };
        let session = restricted_session(
            &store,
            &[("many", Some(rule.clone()), None), ("few", Some(rule.clone()), None)],
        );
        assert!(few.iter().filter(is_shown).count() < few.len(), "{rule}");
        let (many, few) = (many.iter().filter(is_shown), few.iter().filter(is_shown));
        for field in KEYS {
            let expected = pairs(many.clone(), few.clone(), field);
            for from in ["many m JOIN few f", "few f JOIN many m"] {
                let query = format!("SELECT m.id FROM {from} ON m.{field} = f.{field}");
                assert_eq!(numbers(rows_of(&store, &session, &query).await), expected, "{rule} {query}");
            }
            let query = format!("SELECT m.id FROM many m WHERE m.{field} IN (SELECT f.{field} FROM few f)");
            let found = many.clone().filter(|row| few.clone().any(|other| are_equal(row, other, field)));
            let expected = numbers(found.map(|row| json!([row["id"]])).collect());
            assert_eq!(numbers(rows_of(&store, &session, &query).await), expected, "{rule} {query}");
            let query = format!(
                "SELECT f.id FROM few f WHERE NOT EXISTS (SELECT 1 FROM many m WHERE m.{field} = f.{field})"
            );
            let left = few.clone().filter(|row| !many.clone().any(|other| are_equal(row, other, field)));
            let expected = numbers(left.map(|row| json!([row["id"]])).collect());
            assert_eq!(numbers(rows_of(&store, &session, &query).await), expected, "{rule} {query}");
        }
    }
    // A field that is hidden has no keys.
    let hidden = FieldRules::new(&["*"], &["k"]);
    let session = restricted_session(&store, &[("many", None, Some(hidden)), ("few", None, None)]);
    for query in [
        "SELECT m.id FROM many m JOIN few f ON m.k = f.k",
        "SELECT m.id FROM many m WHERE m.k IN (SELECT f.k FROM few f)",
    ] {
        let body = json!({"query": query});
        let answer = value(store.service.sql(&session, Vec::new(), Some(body)).await);
        assert_eq!(answer["status"], 400, "{query}: {answer}");
    }
}

/// Keys are looked up in each index of a source as its mapping has the field.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sources_of_several_indices_are_joined() {
    let mut rng = StdRng::seed_from_u64(32);
    let (store, mut many, few) = store(&mut rng, Config::default()).await;
    // Other types of the same values, and none of some fields.
    let mapping = json!({"mappings": {"properties": {
        "id": {"type": "integer"}, "k": {"type": "keyword", "normalizer": "lowercase"}, "w": {"type": "keyword"}, "n": {"type": "integer"},
        "i": {"type": "short"}, "ok": {"type": "boolean"}, "t": {"type": "text"}
    }}});
    store.create("more", &mapping).await;
    let more: Vec<Value> = (0..300)
        .map(|at| {
            let mut row = many[at % many.len()].clone();
            row["id"] = json!(5_000 + at);
            for absent in ["u", "x", "at", "ip", "tags"] {
                row.as_object_mut().unwrap().remove(absent);
            }
            row
        })
        .collect();
    let writes = more.iter().map(|row| (row["id"].to_string(), Some(row.clone())));
    store.write("more", writes.collect()).await;
    store.engine.flush(&[store.engine.index("more").unwrap()]).await.unwrap();
    many.extend(more);
    for field in ["k", "w", "n", "i", "u", "ip", "ok", "t"] {
        let expected = pairs(many.iter(), few.iter(), field);
        for from in [
            "`many,more` m JOIN few f ON",
            "`m*` m JOIN few f ON",
            "few f, `many,more` m WHERE",
            "`more,many` m, few f WHERE",
        ] {
            let query = format!("SELECT m.id FROM {from} m.{field} = f.{field}");
            assert_eq!(numbers(rows_of(&store, &store.session, &query).await), expected, "{query}");
        }
        let query = format!(
            "SELECT m.id FROM `many,more` m WHERE m.{field} IN (SELECT f.{field} FROM `few,more` f WHERE f.id < 5000)"
        );
        let found = many.iter().filter(|row| few.iter().any(|other| are_equal(row, other, field)));
        let expected = numbers(found.map(|row| json!([row["id"]])).collect());
        assert_eq!(numbers(rows_of(&store, &store.session, &query).await), expected, "{query}");
    }
}

async fn asked(store: &Store, query: &str) -> (u16, Value) {
    let body = json!({"query": query, "fetch_size": 0});
    let outcome = store.service.sql(&store.session, Vec::new(), Some(body)).await;
    (outcome.status, value(outcome))
}

/// A join whose filters get no memory is answered without them, or refused as a whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filters_in_little_memory_change_no_answer() {
    let queries = [
        "SELECT COUNT(*), SUM(m.id) FROM many m WHERE m.k IN (SELECT f.k FROM many f WHERE f.id < 40)",
        "SELECT COUNT(*), SUM(m.id) FROM many m JOIN many f ON m.k = f.k AND m.i = f.i WHERE f.id < 300",
        "SELECT COUNT(*), SUM(m.id) FROM many m WHERE m.id > 5 AND m.n IN (SELECT f.n FROM few f WHERE f.k IN (SELECT o.k FROM many o))",
        "SELECT COUNT(*), SUM(f.id) FROM few f WHERE f.k NOT IN (SELECT m.k FROM many m WHERE m.k IS NOT NULL AND m.ip IN (SELECT o.ip FROM few o))",
    ];
    let (whole, ..) = store(&mut StdRng::seed_from_u64(33), Config::default()).await;
    let mut expected = Vec::new();
    for query in queries {
        let (status, answer) = asked(&whole, query).await;
        assert_eq!(status, 200, "{query}: {answer}");
        expected.push(answer["datarows"].clone());
    }
    let mut refused = 0;
    for kilobytes in [32, 128, 512, 2_048, 8_192] {
        let config = Config { memory_bytes: kilobytes << 10, ..Config::default() };
        let (store, ..) = store(&mut StdRng::seed_from_u64(33), config).await;
        for (query, expected) in queries.iter().zip(&expected) {
            let (status, answer) = asked(&store, query).await;
            match status {
                200 => assert_eq!(&answer["datarows"], expected, "{kilobytes} KB: {query}"),
                _ => {
                    refused += 1;
                    assert_eq!(
                        answer["error"]["type"], "CircuitBreakingException",
                        "{kilobytes} KB: {query}: {answer}"
                    );
                }
            }
            assert!(status == 200 || kilobytes < 8_192, "{query}: {answer}");
        }
    }
    assert!(refused > 0, "no statement met the bound");
}
