//! Statements of SQL: cases of a data file, and random documents against a naive evaluation.

use std::collections::BTreeMap;

use millrace_query::OutcomeBody;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::fixture::{Store, physical_plan};

/// Asks a statement; returns status and body.
pub(crate) async fn ask(store: &Store, query: &str, format: &str) -> (u16, String) {
    let params = vec![("format".to_owned(), format.to_owned())];
    let outcome = store.service.sql(&store.session, params, Some(json!({"query": query}))).await;
    let text = match outcome.body {
        OutcomeBody::Json(body) => body.to_string(),
        OutcomeBody::Raw(bytes) | OutcomeBody::Text(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    };
    (outcome.status, text)
}

pub(crate) async fn rows(store: &Store, query: &str) -> Vec<Value> {
    let (status, text) = ask(store, query, "jdbc").await;
    assert_eq!(status, 200, "{query}: {text}");
    let mut answer: Value = serde_json::from_str(&text).unwrap();
    match answer["datarows"].take() {
        Value::Array(rows) => rows,
        other => panic!("{other}"),
    }
}

pub(crate) async fn people() -> Store {
    let store = Store::open().await;
    let body = json!({"mappings": {"properties": {
        "name": {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 10}}},
        "city": {"type": "keyword"},
        "age": {"type": "integer"},
        "balance": {"type": "long"},
        "score": {"type": "double"},
        "born": {"type": "date"},
        "active": {"type": "boolean"},
        "tags": {"type": "keyword"},
        "home": {"properties": {"ip": {"type": "ip"}, "at": {"type": "geo_point"}}},
        "pets": {"type": "nested", "properties": {"kind": {"type": "keyword"}}}
    }}});
    store.create("people", &body).await;
    store
        .index(
            "people",
            &[
                json!({"name": "Ann Lee", "city": "Rome", "age": 30, "balance": 100, "score": 1.5, "born": "1990-05-01T10:00:00Z",
                       "active": true, "tags": ["x", "y"], "home": {"ip": "10.0.0.1", "at": {"lat": 1.5, "lon": 2.0}},
                       "pets": [{"kind": "cat"}, {"kind": "dog"}]}),
                json!({"name": "Bob Ray", "city": "Oslo", "age": 40, "balance": 250, "born": "1980-01-31", "active": false, "tags": "x"}),
                json!({"name": "Cy", "city": "Rome", "age": 50, "balance": -7, "score": -2.0, "tags": []}),
                json!({"name": "Dee Long-Winded", "city": null, "balance": 0, "active": true, "tags": ["z", "y"]}),
            ],
        )
        .await;
    store.create("people-2", &body).await;
    store.index("people-2", &[json!({"name": "Eve", "city": "Oslo", "age": 20, "balance": 5})]).await;
    store
}

const CASES: [&str; 3] =
    [include_str!("sql/cases.txt"), include_str!("sql/relations.txt"), include_str!("sql/windows.txt")];

/// Each case of `sql/cases.txt` is a statement after `>`, then what it answers as csv, or `! ` and a part of
/// the refusal.
#[tokio::test]
async fn statements_of_the_data_file_answer_as_it_says() {
    answers_cases(&people().await, &CASES).await;
}

/// Asks a store the statements of data files.
pub(crate) async fn answers_cases(store: &Store, cases: &[&str]) {
    let mut wrong = Vec::new();
    for case in cases.iter().flat_map(|cases| cases.split("\n> ").skip(1)) {
        let (query, expected) = case.split_once('\n').unwrap_or((case, ""));
        let (status, text) = ask(store, query, "csv").await;
        let expected = expected.trim();
        let fits = match expected.strip_prefix("! ") {
            Some(part) => status >= 400 && text.contains(part),
            None => status == 200 && text.trim() == expected,
        };
        if !fits {
            wrong.push(format!("> {query}\n{}\n-- not\n{expected}", text.trim()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[tokio::test]
async fn answers_have_a_schema_and_totals() {
    let store = people().await;
    let (_, text) = ask(
        &store,
        "SELECT name, MAX(age) + 1 AS oldest, COUNT(*), tags FROM people GROUP BY name, tags ORDER BY 1, tags LIMIT 2",
        "jdbc",
    )
    .await;
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        answer,
        json!({
            "schema": [
                {"name": "name", "type": "text"},
                {"name": "MAX(age) + 1", "alias": "oldest", "type": "integer"},
                {"name": "COUNT(*)", "type": "integer"},
                {"name": "tags", "type": "keyword"},
            ],
            "datarows": [["Ann Lee", 31, 1, "x"], ["Ann Lee", 31, 1, "y"]],
            "total": 6,
            "size": 2,
            "status": 200,
        })
    );
    let (_, text) = ask(&store, "SELECT age FROM people WHERE balance >= 0 LIMIT 1, 1", "jdbc").await;
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&answer["total"], &answer["size"]), (&json!(3), &json!(1)));
}

#[tokio::test]
async fn filters_and_parameters_go_with_a_statement() {
    let store = people().await;
    let body = json!({
        "query": "SELECT name FROM people WHERE age >= ? AND city = ? ORDER BY name",
        "parameters": [{"type": "integer", "value": 30}, {"type": "string", "value": "Rome"}],
        "filter": {"range": {"balance": {"gt": 0}}},
    });
    let outcome = store.service.sql(&store.session, Vec::new(), Some(body.clone())).await;
    let OutcomeBody::Raw(bytes) = outcome.body else { panic!("{outcome:?}") };
    let answer: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(answer["datarows"], json!([["Ann Lee"]]));
    let outcome = store.service.explain_sql(&store.session, Vec::new(), Some(body)).await;
    let OutcomeBody::Json(explained) = outcome.body else { panic!("no JSON") };
    let shown = explained.to_string();
    for part in ["\"size\":200", "range", "Rome"] {
        assert!(shown.contains(part), "{part}: {explained:#}");
    }
}

#[tokio::test]
async fn hostile_statements_are_refused() {
    let store = people().await;
    let deep = format!("SELECT {}1{}", "abs(".repeat(400), ")".repeat(400));
    let wide = format!("SELECT 1{}", " + 1".repeat(3_000));
    let ors = format!("SELECT age FROM people WHERE {}", vec!["age = 1"; 6_000].join(" OR "));
    let list = format!("SELECT age FROM people WHERE age IN ({})", vec!["1"; 70_000].join(","));
    let from = format!("SELECT a FROM {}people{}", "(SELECT age AS a FROM ".repeat(30), ") AS t".repeat(30));
    let columns = format!("SELECT {} FROM people", vec!["age"; 5_000].join(","));
    for query in [&deep, &wide, &ors, &list, &from, &columns] {
        let (status, text) = ask(&store, query, "jdbc").await;
        assert_eq!(status, 400, "{}: {text}", &query[..60]);
    }
    // What is long but within the bounds is answered.
    let ors = format!("SELECT age FROM people WHERE {}", vec!["age = 30"; 1_500].join(" OR "));
    assert_eq!(rows(&store, &ors).await, [json!([30])]);
    let list = (0..20_000).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    let list = format!("SELECT age FROM people WHERE age IN ({list}) ORDER BY age");
    assert_eq!(rows(&store, &list).await.len(), 3);
    for body in [
        None,
        Some(json!([])),
        Some(json!({})),
        Some(json!({"query": 1})),
        Some(json!({"query": "SELECT 1", "x": 1})),
    ] {
        let outcome = store.service.sql(&store.session, Vec::new(), body).await;
        assert_eq!(outcome.status, 400);
    }
}

/// Returns the truth of a condition for a document, where it is known.
type ExpectedTruth = Box<dyn Fn(&Value) -> Option<bool>>;

/// A condition: as SQL, and as a function of a document with three truth values.
struct Condition {
    sql: String,
    holds: ExpectedTruth,
}

fn values(document: &Value, field: &str) -> Vec<Value> {
    match &document[field] {
        Value::Null => Vec::new(),
        Value::Array(values) => values.clone(),
        one => vec![one.clone()],
    }
}

fn condition(rng: &mut StdRng, depth: usize) -> Condition {
    if depth > 0 && rng.random_range(0..3) > 0 {
        let one = condition(rng, depth - 1);
        if rng.random_range(0..4) == 0 {
            return Condition {
                sql: format!("NOT ({})", one.sql),
                holds: Box::new(move |document| (one.holds)(document).map(|truth| !truth)),
            };
        }
        let other = condition(rng, depth - 1);
        let and = rng.random_range(0..2) == 0;
        return Condition {
            sql: format!("({}) {} ({})", one.sql, if and { "AND" } else { "OR" }, other.sql),
            holds: Box::new(move |document| match ((one.holds)(document), (other.holds)(document)) {
                (Some(one), Some(other)) => Some(if and { one && other } else { one || other }),
                (Some(known), None) | (None, Some(known)) if known != and => Some(known),
                _ => None,
            }),
        };
    }
    let any = |field: &'static str, test: Box<dyn Fn(&Value) -> bool>, none: bool| -> ExpectedTruth {
        Box::new(move |document| {
            let values = values(document, field);
            (!values.is_empty()).then(|| values.iter().any(&test) != none)
        })
    };
    let number = rng.random_range(-2..12i64);
    let tag = ["a", "b", "c"][rng.random_range(0..3)];
    // An expression in place of the field keeps a condition from the index.
    let n = if rng.random_range(0..3) == 0 { "n + 0" } else { "n" };
    match rng.random_range(0..8) {
        0 => Condition {
            sql: format!("{n} = {number}"),
            holds: any("n", Box::new(move |value| value.as_i64() == Some(number)), false),
        },
        1 => Condition {
            sql: format!("{n} <> {number}"),
            holds: any("n", Box::new(move |value| value.as_i64() == Some(number)), true),
        },
        2 => Condition {
            sql: format!("{n} < {number}"),
            holds: any("n", Box::new(move |value| value.as_i64() < Some(number)), false),
        },
        3 => Condition {
            sql: format!("{n} BETWEEN {number} AND {}", number + 3),
            holds: any(
                "n",
                Box::new(move |value| value.as_i64().is_some_and(|own| (number..=number + 3).contains(&own))),
                false,
            ),
        },
        4 => Condition {
            sql: format!("tag IN ('{tag}', 'd')"),
            holds: any("tag", Box::new(move |value| value == tag || value == "d"), false),
        },
        5 => Condition {
            sql: format!("tag <> '{tag}'"),
            holds: any("tag", Box::new(move |value| value == tag), true),
        },
        6 => Condition {
            sql: "tag IS NULL".to_owned(),
            holds: Box::new(|document| Some(values(document, "tag").is_empty())),
        },
        _ => Condition {
            sql: format!("text LIKE '%{}%'", tag.to_uppercase()),
            holds: any(
                "text",
                Box::new(move |value| value.as_str().is_some_and(|text| text.to_lowercase().contains(tag))),
                false,
            ),
        },
    }
}

#[tokio::test]
async fn conditions_and_groups_are_those_of_a_naive_evaluation() {
    let mut rng = StdRng::seed_from_u64(7);
    let store = Store::open().await;
    store
        .create(
            "docs",
            &json!({"settings": {"number_of_shards": 2}, "mappings": {"properties": {
                "id": {"type": "integer"},
                "n": {"type": "integer"},
                "tag": {"type": "keyword"},
                "text": {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 4}}}
            }}}),
        )
        .await;
    let mut documents: BTreeMap<i64, Value> = BTreeMap::new();
    let mut writes = Vec::new();
    for id in 0..300i64 {
        let mut document = json!({"id": id});
        if rng.random_range(0..5) > 0 {
            document["n"] = json!(rng.random_range(0..10));
        }
        match rng.random_range(0..6) {
            0 => {}
            1 => {
                let tag = ["a", "b", "c"][rng.random_range(0..3)];
                document["tag"] = json!([tag, "d"]);
            }
            _ => {
                let tag = ["a", "b", "c", "d"][rng.random_range(0..4)];
                document["tag"] = json!(tag);
            }
        }
        if rng.random_range(0..4) > 0 {
            let text = ["xAy", "b", "long with C", "dd"][rng.random_range(0..4)];
            document["text"] = json!(text);
        }
        writes.push((id.to_string(), Some(document.clone())));
        documents.insert(id, document);
        if rng.random_range(0..100) == 0 {
            store.write("docs", std::mem::take(&mut writes)).await;
        }
    }
    for _ in 0..30 {
        let gone = rng.random_range(0..300i64);
        if documents.remove(&gone).is_some() {
            writes.push((gone.to_string(), None));
        }
    }
    store.write("docs", writes).await;
    for round in 0..150 {
        let condition = condition(&mut rng, round % 4);
        let matching: Vec<&Value> =
            documents.values().filter(|document| (condition.holds)(document) == Some(true)).collect();
        let query = format!("SELECT id FROM docs WHERE {} ORDER BY id LIMIT 1000", condition.sql);
        let expected: Vec<Value> = matching.iter().map(|document| json!([document["id"]])).collect();
        assert_eq!(rows(&store, &query).await, expected, "{query}");
        let mut groups: BTreeMap<Option<String>, (i64, i64, Option<i64>)> = BTreeMap::new();
        for document in &matching {
            let mut keys: Vec<Option<String>> =
                values(document, "tag").iter().map(|tag| tag.as_str().map(str::to_owned)).collect();
            if keys.is_empty() {
                keys.push(None);
            }
            for key in keys {
                let group = groups.entry(key).or_default();
                group.0 += 1;
                if let Some(n) = document["n"].as_i64() {
                    group.1 += 1;
                    group.2 = Some(group.2.unwrap_or(0) + n);
                }
            }
        }
        let query = format!(
            "SELECT tag, COUNT(*), COUNT(n), SUM(n) FROM docs WHERE {} GROUP BY tag ORDER BY tag NULLS FIRST",
            condition.sql
        );
        let expected: Vec<Value> =
            groups.iter().map(|(key, (all, some, sum))| json!([key, all, some, sum])).collect();
        assert_eq!(rows(&store, &query).await, expected, "{query}");
        let query = format!("SELECT COUNT(*), COUNT(tag), MAX(n) FROM docs WHERE {}", condition.sql);
        let tags: usize = matching.iter().map(|document| values(document, "tag").len()).sum();
        let greatest = matching.iter().filter_map(|document| document["n"].as_i64()).max();
        assert_eq!(rows(&store, &query).await, [json!([matching.len(), tags, greatest])], "{query}");
    }
}

/// The columns of the first rows are read when these are known; those of as many rows as a page has not are read at once.
#[tokio::test]
async fn the_first_rows_are_those_of_the_whole_order() {
    let mut rng = StdRng::seed_from_u64(11);
    let store = Store::open().await;
    let body = json!({"mappings": {"properties": {
        "k": {"type": "keyword"}, "n": {"type": "long"}, "d": {"type": "double"}, "t": {"type": "text"},
        "ip": {"type": "ip"}, "o": {"properties": {"p": {"type": "keyword"}}},
        "at": {"type": "date"}, "big": {"type": "unsigned_long"}, "small": {"type": "short"},
    }}});
    for index in ["r-1", "r-2"] {
        store.create(index, &body).await;
        for round in 0..3 {
            let writes = (0..400).map(|number| {
                let id = format!("{index}-{:03}", round * 300 + number);
                let text = ["red", "red red", "blue red green"][rng.random_range(0..3)];
                let mut document = json!({
                    "n": rng.random_range(0..40), "t": text,
                    "ip": format!("10.0.0.{}", number % 200), "o": {"p": id},
                });
                document["at"] = json!(rng.random_range(0..100_000_000_i64));
                if rng.random_bool(0.8) {
                    document["k"] = json!(format!("k{}", rng.random_range(0..300)));
                    document["d"] = json!(rng.random_range(-5.0..5.0));
                    document["big"] = json!(u64::MAX - rng.random_range(0..500));
                    document["small"] = json!(rng.random_range(-300..300));
                }
                (id, rng.random_bool(0.95).then_some(document))
            });
            let writes: BTreeMap<_, _> = writes.collect();
            for (id, document) in &writes {
                if document.is_none() {
                    store.write_unseen(index, vec![(id.clone(), Some(json!({})))]).await;
                }
            }
            store.write(index, writes.into_iter().collect()).await;
        }
    }
    // One that lacks fields by which the others are sorted.
    store
        .create("r-3", &json!({"mappings": {"properties": {"n": {"type": "long"}, "t": {"type": "text"}}}}))
        .await;
    let document = |at: u64| (format!("r-3-{at}"), Some(json!({"n": at % 40, "t": "red green"})));
    store.write("r-3", (0..50).map(document).collect()).await;
    store.create("whole", &body).await;
    for round in 0..3 {
        let document = |at: usize| json!({"n": (at * 7 + round) % 10});
        store
            .write("whole", (0..400).map(|at| (format!("{round}-{at}"), Some(document(at)))).collect())
            .await;
    }
    let statements = [
        "SELECT _id, k, t, ip, o FROM `r-*` ORDER BY n, _id",
        "SELECT * FROM `r-*` ORDER BY d DESC, k NULLS FIRST, o.p",
        "SELECT k, _index FROM `r-*` WHERE n > 20 ORDER BY abs(n - 30), _id",
        "SELECT n, o.p, upper(k) FROM `r-1` WHERE length(t) > 4 ORDER BY k, o.p",
        "SELECT _id, _score, n, ip FROM `r-*` WHERE match(t, 'red') ORDER BY _score DESC, _id",
        "SELECT a.k, a.ip FROM (SELECT k, ip, n, _id AS i FROM `r-2` ORDER BY n, _id LIMIT 50) a ORDER BY a.i",
    ];
    // Of these the index knows which rows can be the first.
    let known = [
        "SELECT at FROM `r-*` ORDER BY at DESC",
        "SELECT * FROM `r-*` WHERE n > 20 OR k = 'k7' ORDER BY at, _id",
        "SELECT _id, k FROM `r-*` ORDER BY k, _id",
        "SELECT _id, k, d FROM `r-1` WHERE n < 30 ORDER BY k DESC NULLS LAST, d, _id",
        "SELECT _id, d FROM `r-*` ORDER BY d DESC NULLS FIRST, _id DESC",
        "SELECT _id, big FROM `r-*` ORDER BY big, _id",
        "SELECT _id, small FROM `r-*` ORDER BY small DESC, _id",
        "SELECT x.at, x.ip FROM (SELECT at, ip, _id AS i FROM `r-2` ORDER BY at, i LIMIT 500) x ORDER BY x.at, x.i",
        "SELECT n FROM whole ORDER BY n DESC",
    ];
    let by_score = "SELECT _score FROM `r-*` WHERE match(t, 'red') OR n < 5 ORDER BY _score DESC";
    let known = known.map(|statement| (statement, "first=")).into_iter().chain([(by_score, "by _score")]);
    for (statement, sign) in
        statements.map(|statement| (statement, "LateColumnsExec")).into_iter().chain(known)
    {
        let plan = physical_plan(&store, &format!("{statement} LIMIT 10")).await;
        assert!(plan.contains(sign), "{statement}: {plan}");
        let all = rows(&store, &format!("{statement} LIMIT 5000")).await;
        assert!(all.len() >= 50, "{statement}");
        for (from, count) in [(0, 1), (0, 30), (17, 25), (0, 1_000), (600, 100)] {
            let found = rows(&store, &format!("{statement} LIMIT {from}, {count}")).await;
            let expected: Vec<_> = all.iter().skip(from).take(count).cloned().collect();
            assert_eq!(found, expected, "{statement} LIMIT {from}, {count}");
        }
        let (unsorted, _) = statement.rsplit_once(" ORDER BY").unwrap();
        let mut totals = Vec::new();
        for statement in [statement, unsorted] {
            let (_, text) = ask(&store, &format!("{statement} LIMIT 10"), "jdbc").await;
            totals.push(serde_json::from_str::<Value>(&text).unwrap()["total"].as_u64().unwrap());
        }
        assert!(totals[0] == totals[1] && totals[0] >= 50, "{statement}: {totals:?}");
    }
}

/// Groups of addresses are told apart by their bits, and extremes are asked of segments where these know them.
#[tokio::test]
async fn addresses_and_extremes_are_the_same_however_they_are_found() {
    let store = Store::open().await;
    let body = json!({"settings": {"number_of_shards": 1}, "mappings": {"properties": {
        "ip": {"type": "ip"}, "n": {"type": "integer"}, "f": {"type": "float"}, "at": {"type": "date"}
    }}});
    store.create("hits", &body).await;
    let addresses =
        [json!("10.0.0.1"), json!("::ffff:10.0.0.1"), json!("2001:db8::1"), json!("9.9.9.9"), json!(null)];
    let writes = (0..20).map(|at: usize| {
        let document =
            json!({"ip": addresses[at % 5], "n": at as i64 - 3, "f": at as f64 / 2.0, "at": 1_600_000_000_000_i64 + 1_000 * at as i64});
        (at.to_string(), Some(document))
    });
    store.write("hits", writes.collect()).await;
    let asked = [
        (
            "SELECT ip, COUNT(*) FROM hits GROUP BY ip ORDER BY ip",
            json!([["10.0.0.1", 8], ["2001:db8::1", 4], ["9.9.9.9", 4], [null, 4]]),
        ),
        (
            "SELECT CONCAT(ip, '!') AS a, n > 5 AS b, SUM(n) FROM hits WHERE n >= 0 GROUP BY ip, n > 5 HAVING COUNT(*) > 2 ORDER BY a, b",
            json!([["10.0.0.1!", true, 40], [null, true, 33]]),
        ),
        ("SELECT COUNT(DISTINCT ip), COUNT(ip), COUNT(DISTINCT n) FROM hits", json!([[3, 16, 20]])),
        (
            "SELECT n > 5 AS b, COUNT(DISTINCT ip) FROM hits WHERE n > 3 GROUP BY b ORDER BY b",
            json!([[false, 2], [true, 3]]),
        ),
        (
            "SELECT a.ip, COUNT(*) FROM hits a JOIN hits b ON a.n = b.n WHERE a.n > 14 GROUP BY a.ip",
            json!([["9.9.9.9", 1], [null, 1]]),
        ),
    ];
    let merge = async |fields: &[&str]| {
        let index = store.engine.index("hits").unwrap();
        store.engine.force_merge(&[index], 1).await.unwrap();
        let of = |name: &&str| format!("MIN({name}), MAX({name})");
        let of: Vec<String> = fields.iter().map(of).collect();
        rows(&store, &format!("SELECT COUNT(*), {} FROM hits", of.join(", "))).await
    };
    for merged in [false, true] {
        if merged {
            let extremes = merge(&["n", "f", "at"]).await;
            let expected = json!([20, -3, 16, 0.0, 9.5, "2020-09-13 12:26:40", "2020-09-13 12:26:59"]);
            assert_eq!(extremes, [expected]);
            let plan = physical_plan(&store, "SELECT MIN(n), MAX(at), COUNT(*) FROM hits").await;
            assert!(!plan.contains("ColumnsExec") && plan.contains("PlaceholderRowExec"), "{plan}");
        }
        for (query, expected) in &asked {
            let mut found = rows(&store, query).await;
            if query.contains("JOIN") {
                found.sort_by_key(|row| row.to_string());
            }
            assert_eq!(&Value::from(found), expected, "{query}");
        }
    }
    // A row that was deleted is no extreme any more, and a new one is.
    let writes = vec![("19".to_owned(), None), ("new".to_owned(), Some(json!({"n": -50})))];
    store.write("hits", writes).await;
    let extremes = rows(&store, "SELECT MIN(n), MAX(n), MAX(f), COUNT(f), COUNT(*) FROM hits").await;
    assert_eq!(extremes, [json!([-50, 15, 9.0, 19, 20])]);
}
