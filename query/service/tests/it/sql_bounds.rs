//! Statements that would take what a server has: its stack, its memory, its threads.

use std::sync::Arc;
use std::time::Duration;

use millrace_catalog::metadata::ClusterSettingsUpdate;
use millrace_query::Config;
use serde_json::{Value, json};

use crate::fixture::{Store, physical_plan, value};

/// Asks a statement; returns status and answer.
async fn ask(store: &Store, query: &str) -> (u16, Value) {
    let outcome = store.service.sql(&store.session, Vec::new(), Some(json!({"query": query}))).await;
    (outcome.status, value(outcome))
}

/// Returns whether a statement is refused because it is too large or too deep.
fn is_bounded((status, answer): &(u16, Value)) -> bool {
    *status == 400 && answer["error"]["type"] == "IllegalArgumentException"
}

/// Nested forms of a statement: opening text, inner part, closing text.
const FORMS: &[(&str, &str, &str)] = &[
    ("", "age > 1", " XOR age > 1"),
    ("", "age", " IS NULL"),
    ("", "age", " IS NOT NULL"),
    ("", "age > 1", " IS NOT TRUE"),
    ("", "age", "::int"),
    ("", "city", " || city"),
    ("", "age", " DIV 1"),
    ("", "age", " + 1"),
    ("", "1", " XOR 1"),
    ("", "age", " / age"),
    ("", "age", " % 3"),
    ("", "age", " & 1"),
    ("", "age", " | 1"),
    ("", "age", " ^ 1"),
    ("", "age", " << 1"),
    ("", "age > 1", " = true"),
    ("", "age > 1", " <=> true"),
    ("", "age > 1", " AND age > 1"),
    ("", "age > 1", " OR age > 1"),
    ("", "age > 1", " AND age > 1 OR age < 9"),
    ("(", "age > 1", " AND age > 1 OR age < 9)"),
    ("", "age > 1", " IN (true)"),
    ("", "age > 1", " NOT IN (true, false)"),
    ("", "age > 1", " BETWEEN false AND true"),
    ("", "age > 1", " IS NULL BETWEEN false AND true"),
    ("", "city", " LIKE 'x'"),
    ("", "city", " LIKE 'x' = 'x'"),
    ("", "city", " REGEXP 'x'"),
    ("", "city", " COLLATE x"),
    ("", "city", " COLLATE x || city"),
    ("", "born", " AT TIME ZONE 'UTC'"),
    ("", "born", " + INTERVAL 1 DAY"),
    ("", "age", "[1]"),
    ("", "age", ".a"),
    ("", "age", "::and"),
    ("", "age", "::when IS NULL"),
    ("", "age", ", age"),
    ("", "age", " MEMBER OF (age)"),
    ("", "age", " -> 'x'"),
    ("NOT ", "age > 1", ""),
    ("! ", "age > 1", ""),
    ("- ", "age", ""),
    ("+ ", "age", ""),
    ("~ ", "age", ""),
    ("(", "age", ")"),
    ("((", "age", "))"),
    ("{", "age", "}"),
    ("[", "age", "]"),
    ("abs(", "age", ")"),
    ("concat('x', ", "city", ")"),
    ("coalesce(age, ", "age", ")"),
    ("coalesce(", "age", ", age)"),
    ("ifnull(", "age", ", age)"),
    ("nullif(", "age", ", 1)"),
    ("if(age > 1, ", "age", ", 1)"),
    ("CAST(", "age", " AS int)"),
    ("CAST(age AS ", "int", ")"),
    ("CASE WHEN age > 1 THEN ", "age", " END"),
    ("CASE ", "age", " WHEN 1 THEN 1 WHEN 2 THEN 2 END"),
    ("CASE ", "age", ""),
    ("CASE WHEN ", "age > 1", " THEN true END"),
    ("age IN (", "1", ")"),
    ("EXTRACT(YEAR FROM ", "born", ")"),
    ("SUBSTRING(", "city", " FROM 1 FOR 2)"),
    ("TRIM(", "city", ")"),
    ("POSITION('x' IN ", "city", ")"),
    ("INTERVAL ", "1", " DAY"),
    ("CAST(age AS ARRAY<", "int", ">)"),
    ("ARRAY<", "int", ">"),
    ("age::ARRAY<", "int", ">"),
    ("SUM(age) OVER (PARTITION BY ", "age", ")"),
    ("MAX(", "age", ")"),
    ("EXISTS (SELECT ", "1", ")"),
    ("(SELECT ", "1", ")"),
    ("match(city, ", "'x'", ")"),
    ("query([city ^ ", "2", "], 'x')"),
    ("SELECT ", "1", ""),
    ("SELECT 1, 1 UNION ", "SELECT 1, 1", ""),
    ("t.select, ", "1", ""),
    ("x.when + ", "1", ""),
    ("case + ", "1", ""),
    ("DATE ", "'2020-01-01'", ""),
    ("/* ", "1", " */"),
];

fn nested(form: &(&str, &str, &str), count: usize) -> String {
    let (open, part, close) = form;
    format!("{}{part}{}", open.repeat(count), close.repeat(count))
}

/// The process would end, not the test, if a thread's stack did.
#[tokio::test]
async fn no_nesting_takes_more_than_the_stack() {
    let store = Store::open().await;
    let body = json!({"mappings": {"properties": {
        "age": {"type": "integer"}, "city": {"type": "keyword"}, "born": {"type": "date"}
    }}});
    store.create("people", &body).await;
    store.index("people", &[json!({"age": 3, "city": "Oslo", "born": "2020-01-01"})]).await;
    let mut wrong = Vec::new();
    // Half of the forms: the others have their turn in other runs.
    let first = rand::random_range(0..2);
    for (select, from) in [("SELECT ", " FROM "), ("SELECT age FROM ", " WHERE ")] {
        let forms = FORMS.iter().skip(first).step_by(2);
        for form in forms.filter(|form| from == " FROM " || form.1.contains('>')) {
            let statement = |count: usize, index: &str| match from.trim() {
                "FROM" => format!("{select}{}{from}{index}", nested(form, count)),
                _ => format!("{select}{index}{from}{}", nested(form, count)),
            };
            let most = (48 << 10) / (form.0.len() + form.2.len());
            let refused = ask(&store, &statement(most, "people")).await;
            assert!(refused.0 == 400 || form.2.contains("AND age") || form.2.contains("OR age"), "{form:?}");
            // The deepest that is not refused for its depth: an index that is not there is missed behind that.
            let shallow = is_bounded(&ask(&store, &statement(300, "nowhere")).await);
            let (mut least, mut most) = if shallow { (1, 299) } else { (300, 10_000.min(most)) };
            while least < most {
                let count = (least + most).div_ceil(2);
                match is_bounded(&ask(&store, &statement(count, "nowhere")).await) {
                    true => most = count - 1,
                    false => least = count,
                }
            }
            let (status, answer) = ask(&store, &statement(least, "people")).await;
            if status != 200 && status != 400 {
                wrong.push(format!(
                    "{form:?} {least}: {}",
                    answer.to_string().chars().take(500).collect::<String>()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (from, least) in [
        ("SELECT 1 UNION ", 100),
        ("SELECT 1 EXCEPT ", 100),
        ("SELECT age FROM people a JOIN people b ON a.age = b.age JOIN ", 0),
        ("EXPLAIN ", 1),
        ("WITH a AS (SELECT 1) ", 1),
        ("CREATE TABLE a AS ", 0),
    ] {
        for count in [1, 10, 100, 1_000, (250 << 10) / from.len()] {
            let (status, answer) = ask(&store, &format!("{}SELECT 1", from.repeat(count))).await;
            assert!(status == 400 || count <= least, "{from} {count}: {answer}");
        }
    }
    for count in [1, 10, 63, 64, 1_000, 5_000] {
        let joins = " CROSS JOIN people".repeat(count);
        let (status, _) = ask(&store, &format!("SELECT COUNT(*) FROM people{joins}")).await;
        assert_eq!(status == 200, count < 64, "{count}");
        let pivots = " PIVOT (SUM(age) FOR age IN (1, 2))".repeat(count);
        assert_eq!(ask(&store, &format!("SELECT 1 FROM people{pivots}")).await.0, 400);
    }
}

/// Tests the bound on repetitions: a term that is written once and computed often multiplies where it is nested.
#[tokio::test]
async fn repetitions_within_one_another_are_bounded() {
    let store = numbers(3).await;
    let between = format!("SELECT n FROM numbers WHERE n > 1{}", " BETWEEN false AND true".repeat(60));
    let case = format!(
        "SELECT {}n{} FROM numbers",
        "CASE ".repeat(30),
        " WHEN 1 THEN 1 WHEN 2 THEN 2 END".repeat(30)
    );
    let ifnull = format!("SELECT {}n{} FROM numbers", "IFNULL(".repeat(40), ", 1)".repeat(40));
    let sum = vec!["n"; 150].join(" + ");
    let having = vec!["m > 1"; 1_500].join(" AND ");
    let alias = format!("SELECT {sum} AS m, COUNT(*) FROM numbers GROUP BY m HAVING {having}");
    for query in [between, case, ifnull, alias] {
        let answer = ask(&store, &query).await;
        assert!(is_bounded(&answer), "{}: {answer:?}", &query[..60]);
    }
}

pub(crate) async fn numbers(count: i64) -> Store {
    numbers_within(count, Config::default()).await
}

pub(crate) async fn numbers_within(count: i64, config: Config) -> Store {
    let store = Store::open_with(config).await;
    store.create("numbers", &json!({"mappings": {"properties": {"n": {"type": "long"}}}})).await;
    let documents: Vec<Value> = (0..count).map(|n| json!({"n": n})).collect();
    store.index("numbers", &documents).await;
    store
}

/// Joins of so many pairs that none of them comes to an end: one finds nothing, one makes rows, one has a key.
const ENDLESS: &[&str] = &[
    "SELECT COUNT(*) FROM numbers a JOIN numbers b ON a.n < b.n + 1 JOIN numbers c ON abs(a.n * b.n - c.n) < 0",
    "SELECT SUM(a.n) FROM numbers a CROSS JOIN numbers b CROSS JOIN numbers c CROSS JOIN numbers d",
    "SELECT SUM(a.n) FROM numbers a JOIN numbers b ON a.n % 1 = b.n % 1 JOIN numbers c ON a.n % 1 = c.n % 1 AND a.n + b.n + c.n < 0 JOIN numbers d ON d.n % 1 = c.n % 1",
];

/// Waits until no statement is at work: each holds the store.
pub(crate) async fn ended(store: &Store, holders: usize) {
    let wait = async {
        while Arc::strong_count(&store.engine) > holders {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.expect("a statement did not end");
}

#[tokio::test]
async fn statements_leave_the_server_its_threads_and_end_when_told() {
    let store = numbers(2_000).await;
    let holders = Arc::strong_count(&store.engine);
    // Nobody waits for them any more.
    {
        let first = async {
            let answers = ENDLESS.iter().map(|query| ask(&store, query));
            futures::future::select_all(answers.map(Box::pin)).await.0
        };
        let beside = async {
            while Arc::strong_count(&store.engine) < holders + ENDLESS.len() {
                tokio::task::yield_now().await;
            }
            // This thread serves what else there is, and so do those of statements: they are fewer than the joins.
            let (status, answer) = ask(&store, "SELECT COUNT(*) FROM numbers WHERE n < 10").await;
            assert_eq!((status, &answer["datarows"]), (200, &json!([[10]])), "{answer}");
        };
        tokio::select! {
            biased;
            answer = first => panic!("{answer:?}"),
            () = beside => {}
        }
    }
    ended(&store, holders).await;
    // Their time is over.
    let update =
        ClusterSettingsUpdate::parse(&json!({"transient": {"search.default_search_timeout": "50ms"}}))
            .unwrap();
    store.session.change(|state| state.update_cluster_settings(&update)).await.unwrap();
    for query in ENDLESS {
        for format in ["jdbc", "csv"] {
            let params = vec![("format".to_owned(), format.to_owned())];
            let outcome = store.service.sql(&store.session, params, Some(json!({"query": query}))).await;
            assert_eq!(outcome.status, 504, "{format}: {outcome:?}");
        }
    }
    ended(&store, holders).await;
}

#[tokio::test]
async fn conditions_are_tested_before_a_join() {
    let store = numbers(10).await;
    for (query, wanted, unwanted) in [
        ("SELECT a.n FROM numbers a JOIN numbers b ON a.n = b.n", "HashJoinExec", "NestedLoop"),
        (
            "SELECT a.n FROM numbers a JOIN numbers b ON a.n = b.n AND a.n + b.n > 3",
            "HashJoinExec",
            "NestedLoop",
        ),
        (
            "SELECT a.n FROM numbers a JOIN numbers b ON a.n = b.n JOIN numbers c ON b.n = c.n",
            "HashJoinExec",
            "NestedLoop",
        ),
        ("SELECT a.n FROM numbers a LEFT JOIN numbers b ON a.n = b.n", "HashJoinExec", "NestedLoop"),
        ("SELECT a.n FROM numbers a CROSS JOIN numbers b WHERE a.n = b.n", "HashJoinExec", "CrossJoinExec"),
        (
            "SELECT a.n FROM numbers a JOIN numbers b ON a.n < b.n WHERE a.n + 1 = b.n",
            "HashJoinExec",
            "NestedLoop",
        ),
        (
            "SELECT a.n FROM numbers a CROSS JOIN numbers b WHERE a.n < b.n",
            "NestedLoopJoinExec",
            "CrossJoinExec",
        ),
    ] {
        let plan = physical_plan(&store, query).await;
        assert!(plan.contains(wanted) && !plan.contains(unwanted), "{query}: {plan}");
    }
    let plan =
        physical_plan(&store, "SELECT a.n FROM numbers a JOIN numbers b ON a.n = b.n WHERE a.n % 2 = 0")
            .await;
    let place = |node: &str| plan.find(node).unwrap_or_else(|| panic!("no {node}: {plan}"));
    assert!(place("HashJoinExec") < place("FilterExec"), "{plan}");
    let (_, answer) =
        ask(&store, "SELECT a.n FROM numbers a CROSS JOIN numbers b WHERE a.n = b.n + 7 AND a.n % 2 = 0")
            .await;
    assert_eq!((&answer["datarows"], &answer["total"]), (&json!([[8]]), &json!(1)));
}

#[tokio::test]
async fn equal_values_of_every_type_are_joined_by_hashes_of_the_smaller_side() {
    let store = Store::open().await;
    let types = ["keyword", "text", "long", "integer", "double", "float", "date", "boolean", "ip"];
    let mut properties = serde_json::Map::new();
    types.iter().for_each(|ty| drop(properties.insert((*ty).to_owned(), json!({"type": ty}))));
    let document = |n: i64| {
        json!({"keyword": format!("k{n}"), "text": format!("k{n}"), "long": n, "integer": n, "double": n as f64 + 0.5,
               "float": n as f64 + 0.5, "date": 1_700_000_000_000_i64 + n, "boolean": n == 1, "ip": format!("10.0.0.{n}")})
    };
    for (index, count) in [("few", 3), ("many", 40)] {
        store.create(index, &json!({"mappings": {"properties": properties}})).await;
        let documents: Vec<Value> = (0..count).map(document).collect();
        store.index(index, &documents).await;
    }
    for ty in types {
        for (left, right) in [("few", "many"), ("many", "few")] {
            for (kind, condition) in [("JOIN", ""), ("LEFT JOIN", ""), ("JOIN", " WHERE a.long >= 0")] {
                let query = format!(
                    "SELECT a.{ty}, b.{ty} FROM {left} a {kind} {right} b ON a.{ty} = b.{ty}{condition}"
                );
                let plan = physical_plan(&store, &query).await;
                assert!(plan.contains("HashJoinExec") && !plan.contains("NestedLoop"), "{query}: {plan}");
                let (few, many) = (plan.find("indices=[few]"), plan.find("indices=[many]"));
                assert!(few.is_some() && few < many, "{query}: {plan}");
                let rows = match (ty, left, kind) {
                    ("boolean", "many", "LEFT JOIN") | ("boolean", ..) => 1 + 2 * 39,
                    (_, "many", "LEFT JOIN") => 40,
                    _ => 3,
                };
                let (status, answer) = ask(&store, &query).await;
                assert_eq!((status, &answer["total"]), (200, &json!(rows)), "{query}: {answer}");
            }
        }
    }
}

/// Returns whether a statement is refused because queries have no memory or disk for it.
fn is_broken((status, answer): &(u16, Value)) -> bool {
    *status == 429 && answer["error"]["type"] == "CircuitBreakingException"
}

#[tokio::test]
async fn answers_are_memory_until_they_are_sent() {
    let store = numbers_within(200, Config { memory_bytes: 8 << 20, ..Config::default() }).await;
    let query = format!("SELECT n, '{}' FROM numbers", "x".repeat(10 << 10));
    let mut held = Vec::new();
    let refused = loop {
        let body = json!({"query": query, "fetch_size": 0});
        let outcome = store.service.sql(&store.session, Vec::new(), Some(body)).await;
        if outcome.status != 200 {
            break (outcome.status, value(outcome));
        }
        held.push(outcome);
        assert!(held.len() < 5);
    };
    assert!(is_broken(&refused) && !held.is_empty(), "{} held: {refused:?}", held.len());
    drop(held);
    // So are pages of cursors.
    let mut held = Vec::new();
    let open = json!({"query": query, "fetch_size": 100});
    let refused = loop {
        let first = value(store.service.sql(&store.session, Vec::new(), Some(open.clone())).await);
        if first.get("cursor").is_none() {
            break first;
        }
        let next = json!({"cursor": first["cursor"]});
        let outcome = store.service.sql(&store.session, Vec::new(), Some(next)).await;
        if outcome.status != 200 {
            break value(outcome);
        }
        held.push(outcome);
        assert!(held.len() < 12);
    };
    assert_eq!(refused["error"]["type"], "CircuitBreakingException", "{refused}");
}

/// A statement that makes 100 KB of each row.
fn lengthened(of: &str) -> String {
    format!(
        "SELECT {of}(LENGTH(REPLACE(CONCAT(n, '{}'), 'a', '{}'))) FROM numbers",
        "a".repeat(1_000),
        "b".repeat(100)
    )
}

#[tokio::test]
async fn strings_of_functions_are_memory() {
    let store = numbers_within(1_000, Config { memory_bytes: 16 << 20, ..Config::default() }).await;
    let refused = ask(&store, &lengthened("MAX")).await;
    assert!(is_broken(&refused), "{refused:?}");
    // Nothing of them is left.
    let (status, answer) = ask(&store, &format!("{} WHERE n < 10", lengthened("MAX"))).await;
    assert_eq!((status, &answer["datarows"]), (200, &json!([[100_001]])), "{answer}");
    let store = numbers(1_000).await;
    let (status, answer) = ask(&store, &lengthened("MAX")).await;
    assert_eq!((status, &answer["datarows"]), (200, &json!([[100_003]])), "{answer}");
}

#[tokio::test]
async fn statements_beyond_the_memory_of_queries_are_refused_wherever_they_meet_its_end() {
    let config = Config { memory_bytes: 6 << 20, spill_bytes: 1 << 20, ..Config::default() };
    let store = numbers_within(6_000, config).await;
    let long = format!("CONCAT(n, '{}')", "x".repeat(2_000));
    for query in [
        format!("SELECT {long}, COUNT(*) FROM numbers GROUP BY {long}"),
        format!("SELECT {long}, COUNT(DISTINCT {long}), COUNT(DISTINCT n) FROM numbers GROUP BY {long}"),
        format!("SELECT n, MAX({long}), MIN({long}) FROM numbers GROUP BY n"),
        format!("SELECT DISTINCT {long} FROM numbers"),
        format!("SELECT {long} FROM numbers ORDER BY {long}"),
        format!("SELECT {long} FROM numbers ORDER BY n % 7 LIMIT 5000"),
        format!("SELECT COUNT(DISTINCT {long}) FROM numbers"),
        format!(
            "SELECT a.n FROM numbers a JOIN numbers b ON CONCAT(a.n, '{0}') = CONCAT(b.n, '{0}')",
            "x".repeat(2_000)
        ),
    ] {
        for format in ["jdbc", "csv"] {
            let params = vec![("format".to_owned(), format.to_owned())];
            let outcome = store.service.sql(&store.session, params, Some(json!({"query": query}))).await;
            let status = outcome.status;
            assert!(
                status == 429 || status == 200,
                "{format} {}: {status} {outcome:?}",
                query.replace('x', "")
            );
        }
    }
    // Nothing of them is left.
    let (status, answer) = ask(&store, "SELECT COUNT(*) FROM numbers").await;
    assert_eq!((status, &answer["datarows"]), (200, &json!([[6_000]])), "{answer}");
}

/// Rows of a query of WITH that is named twice go to disk where the memory of queries does not hold them.
#[tokio::test]
async fn rows_that_are_read_twice_spill() {
    let twice = format!(
        "WITH c AS (SELECT CONCAT(a.n, '{}') AS t FROM numbers a CROSS JOIN numbers b) SELECT COUNT(*), SUM(LENGTH(t)) FROM (SELECT t FROM c UNION ALL SELECT t FROM c) AS u",
        "x".repeat(1_000)
    );
    let config = Config { memory_bytes: 32 << 20, ..Config::default() };
    let store = numbers_within(200, config.clone()).await;
    let (status, answer) = ask(&store, &twice).await;
    assert_eq!((status, &answer["datarows"]), (200, &json!([[80_000, 80_196_000]])), "{answer}");
    // Nothing of them is left.
    let (status, answer) = ask(&store, "SELECT COUNT(*) FROM numbers").await;
    assert_eq!((status, &answer["datarows"]), (200, &json!([[200]])), "{answer}");
    let store = numbers_within(200, Config { spill_bytes: 4 << 20, ..config }).await;
    let refused = ask(&store, &twice).await;
    assert!(is_broken(&refused), "{refused:?}");
}

#[tokio::test]
async fn distinct_values_of_several_columns_are_counted_in_groups() {
    let store = Store::open().await;
    let mapping = json!({"mappings": {"properties": {
        "k": {"type": "keyword"}, "t": {"type": "text"}, "n": {"type": "long"}, "ip": {"type": "ip"}, "tags": {"type": "keyword"}
    }}});
    store.create("c", &mapping).await;
    let document = |n: i64| {
        json!({"k": format!("k{}", n % 50), "t": format!("t{}", n % 7), "n": n % 11, "ip": format!("10.0.0.{}", n % 3),
               "tags": [format!("a{}", n % 2), format!("a{}", n % 5)]})
    };
    let documents: Vec<Value> = (0..2_000).map(document).collect();
    store.index("c", &documents).await;
    let query = "SELECT k, COUNT(DISTINCT t), COUNT(DISTINCT n), COUNT(DISTINCT ip), COUNT(DISTINCT tags), COUNT(DISTINCT t) FILTER (WHERE n < 5), COUNT(*) FROM c GROUP BY k ORDER BY k";
    let (status, answer) = ask(&store, query).await;
    assert_eq!(status, 200, "{answer}");
    let mut expected = Vec::new();
    for k in (0..50).map(|k| format!("k{k}")).collect::<std::collections::BTreeSet<_>>() {
        let own: Vec<&Value> = documents.iter().filter(|document| document["k"] == *k).collect();
        let distinct = |field: &str, few: bool| {
            let own = own.iter().filter(|document| !few || document["n"].as_i64() < Some(5));
            let values = own.flat_map(|document| match &document[field] {
                Value::Array(values) => values.clone(),
                value => vec![value.clone()],
            });
            values.map(|value| value.to_string()).collect::<std::collections::BTreeSet<_>>().len()
        };
        expected.push(json!([
            k,
            distinct("t", false),
            distinct("n", false),
            distinct("ip", false),
            distinct("tags", false),
            distinct("t", true),
            own.len()
        ]));
    }
    assert_eq!(answer["datarows"], json!(expected));
}

#[tokio::test]
async fn rows_behind_a_cursor_are_bounded_on_disk() {
    let store = numbers_within(3_000, Config { spill_bytes: 8 << 20, ..Config::default() }).await;
    let statement = |letters: usize| json!({"query": format!("SELECT n, CONCAT(n, '{}') FROM numbers ORDER BY n", "x".repeat(letters)), "fetch_size": 10});
    let asked = async |letters: usize| {
        let outcome = store.service.sql(&store.session, Vec::new(), Some(statement(letters))).await;
        (outcome.status, value(outcome))
    };
    let refused = asked(1_000).await;
    assert!(is_broken(&refused) && refused.1.to_string().contains("query.spill_bytes"), "{refused:?}");
    let (status, first) = asked(10).await;
    assert_eq!((status, first.get("cursor").is_some()), (200, true), "{first}");
}
