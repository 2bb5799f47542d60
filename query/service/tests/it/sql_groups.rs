//! Groups are the same whether segments tell them or rows are read.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::fixture::{Store, physical_plan, value};

const START: i64 = 1_700_000_000_000;
const DAY: i64 = 86_400_000;

async fn answer(store: &Store, query: &str) -> Value {
    let body = json!({"query": query, "fetch_size": 0});
    let outcome = store.service.sql(&store.session, Vec::new(), Some(body)).await;
    let (status, answer) = (outcome.status, value(outcome));
    assert_eq!(status, 200, "{query}: {answer}");
    answer
}

fn mapping() -> Value {
    json!({
        "settings": {"number_of_shards": 2, "refresh_interval": -1, "analysis": {"normalizer": {"lower": {"type": "custom", "filter": ["lowercase"]}}}},
        "mappings": {"properties": {
            "k": {"type": "keyword"}, "short": {"type": "keyword", "ignore_above": 4},
            "low": {"type": "keyword", "normalizer": "lower"}, "unindexed": {"type": "keyword", "index": false},
            "columnless": {"type": "keyword", "doc_values": false}, "never": {"type": "keyword"},
            "tags": {"type": "keyword"}, "ip": {"type": "ip"}, "ok": {"type": "boolean"},
            "n": {"type": "integer"}, "big": {"type": "long"}, "u": {"type": "unsigned_long"}, "f": {"type": "double"},
            "at": {"type": "date"}, "ns": {"type": "date_nanos"}, "scattered": {"type": "date"},
            "t": {"type": "text", "fields": {"keyword": {"type": "keyword"}}},
            "cut": {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 4}}},
            "plain": {"type": "text"}, "one": {"type": "integer"}
        }}
    })
}

fn document(number: i64, rng: &mut StdRng) -> Value {
    let words = ["", "Disk", "disk", "full", "a longer word"];
    let mut document = json!({"one": 1, "at": START + number * 90_000});
    let mut set = |name: &str, value: Value| {
        if rng.random_bool(0.9) {
            document[name] = value;
        }
    };
    let mut own = StdRng::seed_from_u64(number as u64);
    let mut word = || json!(words[own.random_range(0..words.len())]);
    for name in ["k", "short", "low", "unindexed", "columnless", "t", "cut", "plain"] {
        set(name, word());
    }
    set("tags", json!([word(), word()]));
    let pick = |of: i64| number.wrapping_mul(7_919) % of;
    set("ip", json!(["10.0.0.1", "::ffff:10.0.0.1", "2001:db8::1", "9.9.9.9"][pick(4) as usize]));
    set("ok", json!(pick(3) == 0));
    set("n", json!(pick(9) - 4));
    set("big", json!(i64::MAX - pick(5)));
    set("u", json!(u64::MAX - pick(6) as u64));
    set("f", json!(pick(100) as f64 / 8.0));
    set("ns", json!(START + number * 90_000));
    set("scattered", json!(START - pick(97) * 7 * DAY));
    document
}

/// Group keys, and the rows that they cover.
const KEYS: &[&str] = &[
    "k",
    "short",
    "low",
    "unindexed",
    "columnless",
    "never",
    "tags",
    "ip",
    "ok",
    "n",
    "big",
    "u",
    "t",
    "cut",
    "plain",
    "f",
    "at",
    "scattered",
    "UPPER(k)",
    "CONCAT(ip, '!')",
    "n + 1",
    "n > 2",
    "k = 'disk'",
    "CASE WHEN ok THEN k ELSE 'none' END",
    "YEAR(at)",
    "MONTH(scattered)",
    "DATE(at)",
    "CAST(scattered AS DATE)",
    "HOUR(at)",
    "MINUTE(at)",
    "SECOND(at)",
    "DAYNAME(scattered)",
    "WEEK(scattered)",
    "LAST_DAY(scattered)",
    "DATE(ns)",
    "DATE_FORMAT(at, '%Y-%m-%d %H')",
    "DATE_FORMAT(at, '%Y-%m-%d %H:%i')",
    "DATE_FORMAT(at, '%T')",
    "EXTRACT(YEAR_MONTH FROM scattered)",
    "YEAR(scattered) * 100 + MONTH(scattered)",
    "at > '2023-11-15 00:00:00'",
];

const FILTERS: &[&str] = &[
    "",
    " WHERE at >= '2000-01-01 00:00:00'",
    " WHERE at >= '2023-11-15 12:00:00' AND at < '2023-11-16 06:00:00'",
    " WHERE k = 'disk'",
    " WHERE n > 1 OR ok = true",
    " WHERE LENGTH(k) > 3",
    " WHERE k IS NULL",
    " WHERE match(plain, 'word')",
    " WHERE at > '2100-01-01 00:00:00'",
];

/// Answers a statement without its last column, rows in an order of their own.
fn without_last(mut answer: Value) -> Value {
    answer["schema"].as_array_mut().unwrap().pop();
    for row in answer["datarows"].as_array_mut().unwrap() {
        row.as_array_mut().unwrap().pop();
    }
    sorted(answer)
}

fn sorted(mut answer: Value) -> Value {
    answer["datarows"].as_array_mut().unwrap().sort_by_key(ToString::to_string);
    answer
}

/// A sum keeps an aggregation from being told.
async fn same(store: &Store, select: &str, rest: &str) {
    let told = format!("SELECT {select} FROM {rest} LIMIT 100000");
    let read = format!("SELECT {select}, SUM(one) FROM {rest} LIMIT 100000");
    assert!(!physical_plan(store, &read).await.contains("IndexGroupsExec"), "{read}");
    assert_eq!(sorted(answer(store, &told).await), without_last(answer(store, &read).await), "{told}");
}

async fn all_shapes(store: &Store, from: &str) {
    for (at, filter) in FILTERS.iter().enumerate() {
        // Of the filters that leave keys to the scan, each with some of them.
        let step = if at < 3 { 1 } else { 4 };
        let keys = KEYS.iter().skip(at % step).step_by(step);
        for key in keys {
            let rest = format!("{from}{filter} GROUP BY {key}");
            same(store, &format!("{key} AS g, COUNT(*)"), &rest).await;
        }
        for key in ["k", "ip", "n", "t"] {
            same(
                store,
                &format!("{key}, COUNT({key}), COUNT(*), COUNT(1)"),
                &format!("{from}{filter} GROUP BY {key}"),
            )
            .await;
            same(store, key, &format!("{from}{filter} GROUP BY {key} HAVING COUNT(*) > 20")).await;
            let distinct = answer(store, &format!("SELECT DISTINCT {key} FROM {from}{filter}")).await;
            let read =
                answer(store, &format!("SELECT {key}, SUM(one) FROM {from}{filter} GROUP BY {key}")).await;
            assert_eq!(sorted(distinct), without_last(read), "{key} {filter}");
        }
        let and = if filter.is_empty() { " WHERE" } else { " AND" };
        for (column, key) in [
            ("k", "k"),
            ("short", "short"),
            ("t", "t"),
            ("ip", "UPPER(ip)"),
            ("n", "n"),
            ("never", "never"),
            ("scattered", "MONTH(scattered)"),
            ("at", "DATE(at)"),
        ] {
            let present = format!("{from}{filter}{and} {column} IS NOT NULL");
            let present = present.replace("OR ok = true AND", "AND");
            same(
                store,
                &format!("{key} AS g, COUNT(*), COUNT({column})"),
                &format!("{present} GROUP BY {key}"),
            )
            .await;
            same(store, &format!("COUNT(*), COUNT(DISTINCT {column})"), &present).await;
        }
        let whole = format!("{from}{filter}");
        for select in [
            "COUNT(*), COUNT(n), MIN(n), MAX(n)",
            "MIN(at), MAX(at)",
            "MIN(big), MAX(big), MIN(u), MAX(u), MIN(f), MAX(f)",
            "COUNT(at), MAX(scattered)",
            "MIN(k), MAX(ip)",
            "COUNT(k), COUNT(*)",
            "MIN(never), COUNT(never)",
            "COUNT(DISTINCT k)",
            "COUNT(*), COUNT(DISTINCT k)",
            "COUNT(*), COUNT(DISTINCT ip)",
            "COUNT(*), COUNT(DISTINCT n)",
            "COUNT(*), COUNT(DISTINCT t), COUNT(t)",
            "COUNT(DISTINCT tags), COUNT(*)",
            "MIN(n + 1)",
        ] {
            same(store, select, &whole).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_are_the_same_however_they_are_found() {
    let store = Store::open().await;
    let mut rng = StdRng::seed_from_u64(4);
    for index in ["logs-1", "logs-2"] {
        store.create(index, &mapping()).await;
    }
    // Two segments in files, one of them with deletions, and some in memory.
    let mut number = 0;
    let mut batch = |count: i64, rng: &mut StdRng| {
        let from = number;
        number += count;
        (from..number).map(|number| (number.to_string(), Some(document(number, rng)))).collect::<Vec<_>>()
    };
    let merge = async |index: &str| {
        store.engine.force_merge(&[store.engine.index(index).unwrap()], 1).await.unwrap();
    };
    store.write("logs-1", batch(1_500, &mut rng)).await;
    merge("logs-1").await;
    all_shapes(&store, "logs-1").await;
    store.write("logs-2", batch(900, &mut rng)).await;
    merge("logs-2").await;
    store.write("logs-2", (1_600..1_700).map(|id: i64| (id.to_string(), None)).collect()).await;
    store.write("logs-1", batch(400, &mut rng)).await;
    store.write("logs-1", batch(5, &mut rng)).await;
    store.write_unseen("logs-2", batch(50, &mut rng)).await;
    all_shapes(&store, "logs-*").await;
}

#[tokio::test]
async fn what_segments_know_is_in_the_plan() {
    let store = Store::open().await;
    store.create("logs", &mapping()).await;
    let mut rng = StdRng::seed_from_u64(5);
    let writes = (0..300).map(|number| (number.to_string(), Some(document(number, &mut rng))));
    store.write("logs", writes.collect()).await;
    let told = [
        "SELECT k, COUNT(*) FROM logs GROUP BY k HAVING COUNT(*) > 1 ORDER BY COUNT(*) DESC LIMIT 5",
        "SELECT UPPER(t), COUNT(t) FROM logs GROUP BY UPPER(t)",
        "SELECT ip, COUNT(*) FROM logs WHERE at >= '2023-11-15 12:00:00' GROUP BY ip",
        "SELECT DATE(at), HOUR(at), COUNT(*) FROM logs WHERE k = 'disk' GROUP BY DATE(at), HOUR(at)",
        "SELECT COUNT(*), COUNT(DISTINCT k) FROM logs",
        "SELECT COUNT(DISTINCT n) FROM logs",
        "SELECT COUNT(*), MIN(n), MAX(at) FROM logs WHERE n > 1",
        "SELECT DISTINCT ok FROM logs",
        "SELECT d, COUNT(*) FROM (SELECT DATE(at) AS d FROM logs) AS t GROUP BY d",
        "SELECT k, COUNT(*) FROM logs WHERE k IS NOT NULL GROUP BY k",
        "SELECT k, COUNT(*) FROM logs WHERE at IS NOT NULL AND k IS NOT NULL GROUP BY k",
    ];
    for query in told {
        assert!(
            physical_plan(&store, query).await.contains("IndexGroupsExec"),
            "{query}: {}",
            physical_plan(&store, query).await
        );
    }
    for query in [
        "SELECT k, ok, COUNT(*) FROM logs GROUP BY k, ok",
        "SELECT tags, COUNT(*) FROM logs GROUP BY tags",
        "SELECT k, COUNT(*) FROM logs WHERE n = 1 GROUP BY k",
        "SELECT k, COUNT(*) FROM logs WHERE LENGTH(k) > 2 GROUP BY k",
        "SELECT at, COUNT(*) FROM logs GROUP BY at",
        "SELECT SECOND(at), COUNT(*) FROM logs GROUP BY SECOND(at)",
        "SELECT k, MAX(n) FROM logs GROUP BY k",
        "SELECT a.k, COUNT(*) FROM logs a JOIN logs b ON a.n = b.n GROUP BY a.k",
        "SELECT RAND() > 0.5 AS r, k = 'x' AS x, COUNT(*) FROM logs GROUP BY r, x",
    ] {
        assert!(!physical_plan(&store, query).await.contains("IndexGroupsExec"), "{query}");
    }
    let leaf = async |query: &str| {
        let plan = physical_plan(&store, query).await;
        plan.lines().find(|line| line.contains("IndexGroupsExec")).unwrap().trim().to_owned()
    };
    insta::assert_snapshot!(leaf(told[0]).await, @"IndexGroupsExec: states=[g0, a0[count]], from=values of k, rows=(IndexScanExec: indices=[logs], segments=2, predicate=*, columns=[])");
    insta::assert_snapshot!(leaf(told[3]).await, @r#"IndexGroupsExec: states=[g0, g1, a0[count]], from=hours of at, rows=(IndexScanExec: indices=[logs], segments=2, predicate=term(~k = "disk"), columns=[])"#);
    insta::assert_snapshot!(leaf(told[6]).await, @"IndexGroupsExec: states=[a0[count], a1[value], a2[value]], from=bounds, rows=(IndexScanExec: indices=[logs], segments=2, predicate=range(~1 < n), columns=[])");
}

/// The index counts rows that have a value, too: no column is read for it.
#[tokio::test]
async fn groups_of_present_values_read_no_column() {
    let store = Store::open().await;
    let body = json!({"settings": {"number_of_shards": 1}, "mappings": {"properties": {
        "k": {"type": "keyword"}, "at": {"type": "date"}, "some": {"type": "date"}
    }}});
    store.create("logs", &body).await;
    let document = |number: i64| {
        let mut document = json!({"at": START + number * 1_000});
        if number % 3 > 0 {
            document["some"] = document["at"].clone();
            document["k"] = json!(format!("k{}", number % 11));
        }
        document
    };
    let writes = (0..6_000).map(|number| (number.to_string(), Some(document(number))));
    store.write("logs", writes.collect()).await;
    store.engine.force_merge(&[store.engine.index("logs").unwrap()], 1).await.unwrap();
    for (key, filter, groups) in [
        ("time_bucket(at, 1, 'h')", "at IS NOT NULL", 2),
        ("HOUR(some)", "some IS NOT NULL", 2),
        ("k", "k IS NOT NULL", 11),
        ("k", "k IS NOT NULL AND at IS NOT NULL", 11),
    ] {
        let query = format!("SELECT {key} AS g, COUNT(*) FROM logs WHERE {filter} GROUP BY g");
        let operators = answer(&store, &format!("EXPLAIN ANALYZE {query}")).await;
        let operators = operators["datarows"].as_array().unwrap();
        let told = operators.iter().find(|row| row[0].as_str().unwrap().contains("IndexGroupsExec"));
        let told = told.unwrap_or_else(|| panic!("{query}: {operators:?}"));
        // No row was found to be read, and no page.
        assert_eq!((&told[5], &told[6]), (&json!(0), &json!(0)), "{query}: {told}");
        assert_eq!(answer(&store, &query).await["total"], groups, "{query}");
    }
    let pipeline = json!({"query": "source=logs | stats count() by span(at, 1h)"});
    let explained = value(store.service.explain_ppl(&store.session, Vec::new(), Some(pipeline)).await);
    let physical = explained["calcite"]["physical"].as_str().unwrap();
    assert!(physical.contains("from=hours of at"), "{physical}");
}

/// Tests that counts of a whole segment are taken once, though threads share its rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_a_large_segment_tell_its_groups_once() {
    let store = Store::open().await;
    let body = json!({"settings": {"number_of_shards": 1}, "mappings": {"properties": {
        "k": {"type": "keyword"}, "id": {"type": "keyword"}, "n": {"type": "integer"}, "at": {"type": "date"}, "one": {"type": "integer"}
    }}});
    store.create("large", &body).await;
    let document = |number: i64| {
        let mut document =
            json!({"n": number % 5, "at": START + number * 60_000, "id": number.to_string(), "one": 1});
        if number % 11 > 0 {
            document["k"] = json!(format!("k{}", number % 13));
        }
        document
    };
    store
        .write("large", (0..25_000).map(|number| (number.to_string(), Some(document(number)))).collect())
        .await;
    store.engine.force_merge(&[store.engine.index("large").unwrap()], 1).await.unwrap();
    for (select, rest) in [
        ("k, COUNT(*), COUNT(k)", "large GROUP BY k"),
        ("n, COUNT(*)", "large WHERE at >= '2000-01-01' GROUP BY n"),
        ("id, COUNT(*)", "large GROUP BY id"),
        ("DATE(at), COUNT(*)", "large GROUP BY DATE(at)"),
        ("DATE(at), COUNT(*)", "large WHERE n = 3 GROUP BY DATE(at)"),
        ("DATE(at), COUNT(*)", "large WHERE at IS NOT NULL GROUP BY DATE(at)"),
        ("k, COUNT(*)", "large WHERE k IS NOT NULL GROUP BY k"),
        ("COUNT(*), COUNT(DISTINCT k), COUNT(k)", "large"),
        ("COUNT(*), MIN(n), MAX(at)", "large WHERE at >= '2023-11-18'"),
    ] {
        same(&store, select, rest).await;
    }
}
