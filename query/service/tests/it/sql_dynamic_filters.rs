//! Keys of small sides of joins at the scans of large ones: plans, what the scans leave out, and the answers.

use millrace_engine::Session;
use millrace_query::Config;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::fixture::{Store, physical_plan, value as value_of};
use crate::sql::rows;

/// Fields of all types that are joined, and the number of distinct values of each.
const FIELDS: [(&str, &str, i64); 10] = [
    ("k", "keyword", 300),
    ("w", "wildcard", 300),
    ("n", "long", 100_000),
    ("i", "integer", 40),
    ("u", "unsigned_long", 1_000),
    ("x", "double", 200),
    ("at", "date", 2_000),
    ("ip", "ip", 200),
    ("ok", "boolean", 2),
    ("tags", "keyword", 200),
];

pub(crate) fn mapping() -> Value {
    let mut properties = json!({"id": {"type": "long"}, "t": {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 10}}}});
    FIELDS.iter().for_each(|(name, ty, _)| properties[*name] = json!({"type": ty}));
    json!({"mappings": {"properties": properties}})
}

/// A value of a field of so many.
fn value(ty: &str, number: i64) -> Value {
    match ty {
        "keyword" | "wildcard" => json!(format!("value {number}")),
        "text" => json!(format!("{}{number}", "x".repeat(usize::try_from(number % 12).unwrap()))),
        "double" => json!(number as f64 / 4.0),
        "date" => json!(1_700_000_000_000_i64 + number * 1_000),
        "ip" => json!(format!("10.0.{}.{}", number / 100, number % 100)),
        "boolean" => json!(number == 1),
        _ => json!(number),
    }
}

fn document(id: i64, rng: &mut StdRng) -> Value {
    let mut document = json!({"id": id});
    let mut draw = |most: i64| Some(rng.random_range(0..most)).filter(|_| rng.random_bool(0.9));
    for (name, ty, distinct) in FIELDS.iter().chain([&("t", "text", 300)]) {
        if let Some(number) = draw(*distinct) {
            document[*name] = value(ty, number);
        }
        if let (&"tags", Some(number)) = (name, draw(*distinct)) {
            document["tags"] = json!([document["tags"], value(ty, number)]);
        }
    }
    // Ascending, so that pages have keys or none.
    document["n"] = json!(id * 10);
    document
}

/// The values of a field, without nulls.
pub(crate) fn values<'d>(document: &'d Value, field: &str) -> Vec<&'d Value> {
    match &document[field] {
        Value::Null => Vec::new(),
        Value::Array(values) => values.iter().filter(|value| !value.is_null()).collect(),
        value => vec![value],
    }
}

pub(crate) fn are_equal(one: &Value, other: &Value, field: &str) -> bool {
    let other = values(other, field);
    values(one, field).iter().any(|value| other.contains(value))
}

/// Answers all rows of a statement, in one page.
async fn all_rows(store: &Store, query: &str) -> Vec<Value> {
    rows_of(store, &store.session, query).await
}

/// Answers all rows that a session sees of a statement, in one page.
pub(crate) async fn rows_of(store: &Store, session: &Session, query: &str) -> Vec<Value> {
    let body = json!({"query": query, "fetch_size": 0});
    let mut answer = value_of(store.service.sql(session, Vec::new(), Some(body)).await);
    match answer["datarows"].take() {
        Value::Array(rows) => rows,
        _ => panic!("{query}: {answer}"),
    }
}

pub(crate) fn numbers(rows: Vec<Value>) -> Vec<i64> {
    let mut numbers: Vec<i64> = rows.iter().map(|row| row[0].as_i64().unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

/// Indices `many` and `few`; the first has two segments in files, one with deletions, and one in memory.
pub(crate) async fn store(rng: &mut StdRng, queries: Config) -> (Store, Vec<Value>, Vec<Value>) {
    let store = Store::open_with(queries).await;
    for index in ["many", "few"] {
        store.create(index, &mapping()).await;
    }
    let mut many: Vec<Value> = (0..1_200).map(|id| document(id, rng)).collect();
    for (from, to) in [(0, 700), (700, 1_100), (1_100, 1_200)] {
        let writes =
            many[from..to].iter().map(|document| (document["id"].to_string(), Some(document.clone())));
        store.write("many", writes.collect()).await;
        if to < 1_200 {
            store.engine.flush(&[store.engine.index("many").unwrap()]).await.unwrap();
        }
    }
    let deleted: Vec<i64> = (0..60).map(|_| rng.random_range(0..1_200)).collect();
    store.write("many", deleted.iter().map(|id| (id.to_string(), None)).collect()).await;
    many.retain(|document| !deleted.contains(&document["id"].as_i64().unwrap()));
    // Documents of other ids with some of the values, and some that `many` has not.
    let mut few: Vec<Value> = (0..9).map(|_| many[rng.random_range(0..many.len())].clone()).collect();
    few.extend((2_000..2_004).map(|id| document(id, rng)));
    few.push(json!({"id": 3_000}));
    store.index("few", &few).await;
    (store, many, few)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_answer_what_a_look_at_all_pairs_does() {
    let mut rng = StdRng::seed_from_u64(23);
    let (store, many, few) = store(&mut rng, Config::default()).await;
    for field in FIELDS.iter().map(|(name, ..)| *name).filter(|name| *name != "tags").chain(["t"]) {
        let of_many = |holds: &dyn Fn(&Value) -> bool| {
            let kept = many.iter().filter(|row| holds(row));
            numbers(kept.map(|row| json!([row["id"]])).collect())
        };
        let meets = |row: &Value| few.iter().any(|other| are_equal(row, other, field));
        let has_none = |row: &Value| values(row, field).is_empty();
        let few_values = format!("SELECT f.{field} FROM few f WHERE f.{field} IS NOT NULL");
        for (query, expected) in [
            (
                format!("SELECT m.id FROM many m WHERE m.{field} IN (SELECT f.{field} FROM few f)"),
                of_many(&meets),
            ),
            (
                format!(
                    "SELECT m.id FROM many m WHERE EXISTS (SELECT 1 FROM few f WHERE f.{field} = m.{field})"
                ),
                of_many(&meets),
            ),
            (
                format!(
                    "SELECT m.id FROM many m WHERE m.{field} IN (SELECT f.{field} FROM few f) AND m.id >= 600"
                ),
                of_many(&|row| meets(row) && row["id"].as_i64() >= Some(600)),
            ),
            (
                format!("SELECT m.id FROM many m WHERE m.{field} NOT IN ({few_values})"),
                of_many(&|row| !meets(row) && !has_none(row)),
            ),
            (
                format!("SELECT m.id FROM many m WHERE m.{field} NOT IN (SELECT f.{field} FROM few f)"),
                Vec::new(),
            ),
            (
                format!(
                    "SELECT m.id FROM many m WHERE NOT EXISTS (SELECT 1 FROM few f WHERE f.{field} = m.{field})"
                ),
                of_many(&|row| !meets(row)),
            ),
            (
                format!(
                    "SELECT f.id FROM few f WHERE f.{field} NOT IN (SELECT m.{field} FROM many m WHERE m.{field} IS NOT NULL)"
                ),
                {
                    let alone = |row: &&Value| {
                        !many.iter().any(|other| are_equal(row, other, field)) && !has_none(row)
                    };
                    numbers(few.iter().filter(alone).map(|row| json!([row["id"]])).collect())
                },
            ),
        ] {
            assert_eq!(numbers(all_rows(&store, &query).await), expected, "{query}");
        }
        let pairs = few.iter().flat_map(|one| many.iter().filter(move |other| are_equal(one, other, field)));
        let pairs = numbers(pairs.map(|row| json!([row["id"]])).collect());
        for (left, right) in [("many m", "few f"), ("few f", "many m")] {
            let query = format!("SELECT m.id FROM {left} JOIN {right} ON m.{field} = f.{field}");
            assert_eq!(numbers(all_rows(&store, &query).await), pairs, "{query}");
        }
        let query = format!("SELECT COUNT(*) FROM few f LEFT JOIN many m ON m.{field} = f.{field}");
        let alone = few.iter().filter(|one| !many.iter().any(|other| are_equal(one, other, field)));
        let expected = json!([pairs.len() + alone.count()]);
        assert_eq!(rows(&store, &query).await, [expected], "{query}");
    }
    // Any of several values meets a key.
    let keys: Vec<&Value> = few.iter().flat_map(|row| values(row, "k")).collect();
    let expected = many.iter().filter(|row| values(row, "tags").iter().any(|tag| keys.contains(tag)));
    let expected = numbers(expected.map(|row| json!([row["id"]])).collect());
    let query = "SELECT m.id FROM many m WHERE m.tags IN (SELECT f.k FROM few f)";
    assert_eq!(numbers(all_rows(&store, query).await), expected);
}

/// The line of the scan of an index in a plan.
fn scan_of(plan: &str, index: &str) -> String {
    let name = format!("indices=[{index}]");
    plan.lines().find(|line| line.contains(&name)).unwrap_or_else(|| panic!("no {name}: {plan}")).to_owned()
}

#[tokio::test]
async fn keys_reach_the_scan_of_the_other_side() {
    let (store, ..) = store(&mut StdRng::seed_from_u64(24), Config::default()).await;
    for query in [
        "SELECT m.id FROM many m WHERE m.k IN (SELECT f.k FROM few f)",
        "SELECT m.id FROM many m WHERE EXISTS (SELECT 1 FROM few f WHERE f.k = m.k)",
        "SELECT m.id, f.id FROM many m JOIN few f ON m.k = f.k",
        "SELECT m.id, f.id FROM few f LEFT JOIN many m ON m.k = f.k",
        "SELECT m.id FROM many m JOIN few f ON m.k = f.k AND m.i = f.i WHERE m.n % 2 = 0",
        "SELECT COUNT(*) FROM (SELECT k AS j FROM many WHERE i > 3) AS m JOIN few f ON m.j = f.k",
        "SELECT f.id, m.c FROM few f JOIN (SELECT k, id, COUNT(*) AS c FROM many GROUP BY k, id) AS m ON m.k = f.k",
        "SELECT f.id FROM few f JOIN (SELECT k FROM many UNION ALL SELECT t FROM many) AS m ON m.k = f.k",
        "SELECT f.id FROM few f WHERE NOT EXISTS (SELECT 1 FROM many m WHERE m.k = f.k)",
    ] {
        let plan = physical_plan(&store, query).await;
        assert!(scan_of(&plan, "many").contains("dynamic_filters=[k"), "{query}: {plan}");
        assert!(!scan_of(&plan, "few").contains("dynamic_filters"), "{query}: {plan}");
    }
    // A null decides about all rows; several values are no key; what is cut first is not filtered.
    for query in [
        "SELECT m.id FROM many m WHERE m.k NOT IN (SELECT f.k FROM few f)",
        "SELECT f.id FROM few f WHERE f.k NOT IN (SELECT m.k FROM many m)",
        "SELECT m.id FROM many m WHERE m.tags IN (SELECT f.k FROM few f)",
        "SELECT m.id FROM many m JOIN few f ON UPPER(m.k) = f.k",
        "SELECT m.id, f.id FROM many m LEFT JOIN few f ON m.k = f.k",
        "SELECT m.id, f.id FROM many m FULL JOIN few f ON m.k = f.k",
        "SELECT f.id FROM few f JOIN (SELECT k FROM many ORDER BY n LIMIT 100) AS m ON m.k = f.k",
        "SELECT f.id FROM few f JOIN (SELECT k FROM many LIMIT 100) AS m ON m.k = f.k",
        "WITH m AS (SELECT k FROM many) SELECT f.id FROM few f JOIN m ON m.k = f.k JOIN m o ON o.k = f.k",
    ] {
        let plan = physical_plan(&store, query).await;
        assert!(!scan_of(&plan, "many").contains("dynamic_filters"), "{query}: {plan}");
    }
}

/// Columns of one name from both sides of a join are told apart.
#[tokio::test]
async fn keys_reach_the_column_that_they_are_compared_with() {
    let mut rng = StdRng::seed_from_u64(25);
    let (store, many, few) = store(&mut rng, Config::default()).await;
    let query = "SELECT f.id FROM few f JOIN (SELECT a.i AS x, b.i AS y FROM many a JOIN many b ON a.k = b.k WHERE a.i + b.i < 30) AS m ON f.i = m.y";
    let mut expected = 0;
    for one in &many {
        for other in many.iter().filter(|other| are_equal(one, other, "k")) {
            let (Some(x), Some(y)) = (one["i"].as_i64(), other["i"].as_i64()) else { continue };
            if x + y < 30 {
                expected += few.iter().filter(|row| row["i"].as_i64() == Some(y)).count();
            }
        }
    }
    let counted = format!("SELECT COUNT(*) FROM ({query}) AS c");
    assert_eq!(rows(&store, &counted).await, [json!([expected])]);
}

async fn analyzed(store: &Store, query: &str) -> Vec<Value> {
    rows(store, &format!("EXPLAIN ANALYZE {query}")).await
}

#[tokio::test]
async fn analysis_tells_what_was_pushed() {
    let (store, ..) = store(&mut StdRng::seed_from_u64(26), Config::default()).await;
    for (query, pushed) in [
        ("SELECT COUNT(*) FROM many m WHERE m.k IN (SELECT f.k FROM few f)", "k in "),
        ("SELECT COUNT(*) FROM many m JOIN few f ON m.n = f.n", "n in "),
    ] {
        let operators = analyzed(&store, query).await;
        let scan = operators.iter().find(|row| row[0].as_str().unwrap().contains("indices=[many]")).unwrap();
        let line = scan[0].as_str().unwrap();
        assert!(line.contains(&format!("dynamic_filters=[{pushed}")), "{line}");
        let found = scan[5].as_i64().unwrap();
        assert!((1..300).contains(&found), "{scan}");
        if pushed.starts_with('k') {
            assert!(line.contains("keys: postings of 3 segments, pages of 0"), "{line}");
            // Terms are the values: the column is not read.
            assert_eq!(scan[6], 0, "{scan}");
        }
    }
    // So many keys are not looked up.
    let writes =
        (0..12_000).map(|id| (id.to_string(), Some(json!({"id": id, "n": id, "k": format!("other {id}")}))));
    store.write("few", writes.collect()).await;
    let operators =
        analyzed(&store, "SELECT COUNT(*) FROM few f WHERE f.n IN (SELECT o.n FROM few o WHERE o.n < 11000)")
            .await;
    let between =
        operators.iter().any(|row| row[0].as_str().unwrap().contains("dynamic_filters=[n between two keys"));
    assert!(between, "{operators:?}");
}

#[tokio::test]
async fn recursion_joins_each_round_with_its_own_keys() {
    let store = Store::open().await;
    store
        .create(
            "edges",
            &json!({"mappings": {"properties": {"a": {"type": "keyword"}, "b": {"type": "keyword"}}}}),
        )
        .await;
    let edges: Vec<Value> =
        (0..200).map(|n| json!({"a": format!("v{n}"), "b": format!("v{}", n + 1)})).collect();
    store.index("edges", &edges).await;
    let query = "WITH RECURSIVE r AS (SELECT a, b FROM edges WHERE a = 'v150' UNION SELECT e.a, e.b FROM r JOIN edges e ON e.a = r.b) SELECT COUNT(*) FROM r";
    assert_eq!(rows(&store, query).await, [json!([50])]);
}

#[tokio::test]
async fn what_a_field_cuts_off_is_found() {
    let store = Store::open().await;
    let body = json!({"mappings": {"properties": {
        "t": {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 5}}},
        "folded": {"type": "keyword", "normalizer": "lowercase"},
    }}});
    for index in ["many", "few"] {
        store.create(index, &body).await;
    }
    let texts =
        ["short", "much longer", "other"].map(|text| json!({"t": text, "folded": text.to_uppercase()}));
    store.index("many", &std::iter::repeat_n(texts.to_vec(), 40).flatten().collect::<Vec<_>>()).await;
    store.index("few", &texts[..2]).await;
    for field in ["t", "folded"] {
        let query = format!("SELECT COUNT(*) FROM many m WHERE m.{field} IN (SELECT f.{field} FROM few f)");
        assert_eq!(rows(&store, &query).await, [json!([80])], "{query}");
    }
}
