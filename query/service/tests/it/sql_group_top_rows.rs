//! The first rows of each group: plans of windows that number rows, and their answers.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::fixture::{Store, physical_plan};
use crate::sql::rows;

/// Rows in few groups, some without a group or a value.
async fn store(rng: &mut StdRng) -> (Store, Vec<Value>) {
    let store = Store::open().await;
    let body = json!({"mappings": {"properties": {
        "g": {"type": "keyword"}, "h": {"type": "integer"}, "x": {"type": "long"}, "d": {"type": "double"},
        "at": {"type": "date"}, "message": {"type": "text"},
    }}});
    store.create("rows", &body).await;
    let mut documents = Vec::new();
    for id in 0..600_i64 {
        let mut document = json!({"d": id as f64 / 3.0, "at": 1_700_000_000_000_i64 + id, "message": format!("log {}", "word ".repeat(rng.random_range(0..9)))});
        if rng.random_bool(0.9) {
            document["g"] = json!(format!("group number {}", rng.random_range(0..7)));
        }
        if rng.random_bool(0.9) {
            document["x"] = json!(rng.random_range(-30..30));
        }
        document["h"] = json!(rng.random_range(0..3));
        documents.push(document);
    }
    for (from, to) in [(0, 400), (400, 600)] {
        let writes = (from..to).map(|id| (id.to_string(), Some(documents[id].clone())));
        store.write("rows", writes.collect()).await;
        store.engine.flush(&[store.engine.index("rows").unwrap()]).await.unwrap();
    }
    (store, documents)
}

/// The first values of each group, descending, nulls last, with those that equal the last one where asked.
fn first(documents: &[Value], most: usize, with_ties: bool) -> Vec<(String, Value)> {
    let mut groups: BTreeMap<String, Vec<Option<i64>>> = BTreeMap::new();
    for document in documents {
        groups.entry(document["g"].to_string()).or_default().push(document["x"].as_i64());
    }
    let mut found = Vec::new();
    for (group, mut values) in groups {
        values.sort_unstable_by(|one, other| other.cmp(one));
        let last = values[most - 1];
        let of_group = values.iter().enumerate().filter(|(at, x)| *at < most || with_ties && **x == last);
        found.extend(of_group.map(|(_, x)| (group.clone(), json!(x))));
    }
    found
}

fn sorted(rows: Vec<Value>) -> Vec<(String, Value)> {
    let mut rows: Vec<(String, Value)> =
        rows.into_iter().map(|row| (row[0].to_string(), row[1].clone())).collect();
    let key = |(group, x): &(String, Value)| (group.clone(), std::cmp::Reverse(x.as_i64()));
    rows.sort_by_key(key);
    rows
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_rows_of_groups_are_those_of_all_rows() {
    let (store, documents) = store(&mut StdRng::seed_from_u64(31)).await;
    for (function, with_ties) in [("ROW_NUMBER", false), ("RANK", true)] {
        for (condition, most) in
            [("r <= 3", 3), ("r < 2", 1), ("r = 1", 1), ("r BETWEEN 1 AND 5", 5), ("20 >= r", 20)]
        {
            let query = format!(
                "SELECT g, x FROM (SELECT g, x, {function}() OVER (PARTITION BY g ORDER BY x DESC) AS r FROM rows) AS t WHERE {condition} LIMIT 5000"
            );
            let expected = first(&documents, most, with_ties);
            assert_eq!(sorted(rows(&store, &query).await), expected, "{query}");
            assert!(physical_plan(&store, &query).await.contains("GroupTopRowsExec"), "{query}");
        }
    }
    // A later key decides among rows of the same first one.
    let query = "SELECT g, x, d FROM (SELECT g, x, d, ROW_NUMBER() OVER (PARTITION BY g ORDER BY x DESC, d) AS r FROM rows) AS t WHERE r = 1 LIMIT 50";
    for row in rows(&store, query).await {
        let of_group = documents.iter().filter(|document| document["g"] == row[0] && document["x"] == row[1]);
        let least = of_group.map(|document| document["d"].as_f64().unwrap()).fold(f64::INFINITY, f64::min);
        assert_eq!(row[2], json!(least), "{row}");
    }
}

#[tokio::test]
async fn plans_leave_rows_out_below_the_sort() {
    let (store, _) = store(&mut StdRng::seed_from_u64(32)).await;
    let numbered = |window: &str, condition: &str| {
        format!("SELECT g FROM (SELECT g, x, {window} AS r FROM rows) AS t WHERE {condition}")
    };
    for window in [
        "ROW_NUMBER() OVER (PARTITION BY g ORDER BY x)",
        "ROW_NUMBER() OVER (PARTITION BY g, h ORDER BY d DESC)",
        "RANK() OVER (PARTITION BY h ORDER BY at DESC, x)",
    ] {
        let plan = physical_plan(&store, &numbered(window, "r <= 3")).await;
        let place = |node: &str| plan.find(node).unwrap_or_else(|| panic!("no {node}: {plan}"));
        assert!(place("SortExec") < place("GroupTopRowsExec"), "{plan}");
        assert!(place("GroupTopRowsExec") < place("ColumnsExec"), "{plan}");
    }
    for (window, condition) in [
        ("ROW_NUMBER() OVER (PARTITION BY g ORDER BY x)", "r > 3"),
        ("ROW_NUMBER() OVER (PARTITION BY g ORDER BY x)", "r <= 3 OR g = 'a'"),
        ("ROW_NUMBER() OVER (PARTITION BY g ORDER BY x)", "r <= 1000"),
        ("ROW_NUMBER() OVER (PARTITION BY g ORDER BY message)", "r <= 3"),
        ("ROW_NUMBER() OVER (ORDER BY x)", "r <= 3"),
        ("DENSE_RANK() OVER (PARTITION BY g ORDER BY x)", "r <= 3"),
        ("COUNT(*) OVER (PARTITION BY g ORDER BY x)", "r <= 3"),
        (
            "SUM(x) OVER (PARTITION BY g) AS s, ROW_NUMBER() OVER (PARTITION BY g ORDER BY x)",
            "r <= 3 AND s > 1",
        ),
        (
            "LEAD(x) OVER (PARTITION BY g ORDER BY x) AS s, ROW_NUMBER() OVER (PARTITION BY g ORDER BY x)",
            "r <= 3 AND s > 1",
        ),
    ] {
        let plan = physical_plan(&store, &numbered(window, condition)).await;
        assert!(!plan.contains("GroupTopRowsExec"), "{window}: {plan}");
    }
}

#[tokio::test]
async fn the_best_by_score_are_found() {
    let (store, documents) = store(&mut StdRng::seed_from_u64(33)).await;
    let query = "SELECT g, message FROM (SELECT g, message, ROW_NUMBER() OVER (PARTITION BY g ORDER BY _score DESC) AS r FROM rows WHERE match(message, 'log')) AS t WHERE r <= 3 LIMIT 100";
    assert!(physical_plan(&store, query).await.contains("GroupTopRowsExec"));
    // The shortest texts score best.
    let mut expected: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for document in &documents {
        expected
            .entry(document["g"].to_string())
            .or_default()
            .push(document["message"].as_str().unwrap().len());
    }
    let mut found: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for row in rows(&store, query).await {
        found.entry(row[0].to_string()).or_default().push(row[1].as_str().unwrap().len());
    }
    for lengths in expected.values_mut().chain(found.values_mut()) {
        lengths.sort_unstable();
        lengths.truncate(3);
    }
    assert_eq!(found, expected);
}
