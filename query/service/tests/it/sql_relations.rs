//! Statements of several relations: their plans, and what holds on each of their scans.

use millrace_catalog::access::Action;
use millrace_engine::Session;
use millrace_query::{Config, OutcomeBody};
use serde_json::{Value, json};

use crate::delete_by_query::{rights, session};
use crate::fixture::{Store, physical_plan};
use crate::sql_bounds::{numbers, numbers_within};

/// Statements over numbers below ten, by the position in which a subquery, a join or a set operation reads them.
const POSITIONS: &[&str] = &[
    "SELECT n FROM numbers WHERE n IN (SELECT n FROM numbers)",
    "SELECT n FROM numbers a WHERE EXISTS (SELECT 1 FROM numbers b WHERE b.n = a.n)",
    "SELECT n FROM numbers a WHERE NOT EXISTS (SELECT 1 FROM numbers b WHERE b.n = a.n + 100)",
    "SELECT n FROM (SELECT n FROM numbers) AS t",
    "SELECT a.n FROM numbers a JOIN numbers b ON a.n = b.n",
    "SELECT b.n FROM numbers a RIGHT JOIN numbers b ON a.n = b.n",
    "SELECT a.n FROM numbers a FULL JOIN numbers b ON a.n = b.n",
    "SELECT n FROM numbers UNION SELECT n FROM numbers",
    "SELECT n FROM numbers INTERSECT SELECT n FROM numbers",
    "SELECT n FROM numbers EXCEPT SELECT n FROM numbers WHERE n < 0",
    "WITH c AS (SELECT n FROM numbers) SELECT n FROM c",
    "WITH c AS (SELECT n FROM numbers) SELECT x.n FROM c x JOIN c y ON x.n = y.n",
    "WITH RECURSIVE c AS (SELECT MIN(n) AS n FROM numbers UNION SELECT b.n FROM c JOIN numbers b ON b.n = c.n + 1) SELECT n FROM c",
    "SELECT (SELECT MAX(b.n) FROM numbers b WHERE b.n <= a.n) AS n FROM numbers a",
    "SELECT n FROM numbers WHERE n <= (SELECT MAX(n) FROM numbers)",
    "SELECT n FROM numbers GROUP BY n HAVING n <= ANY (SELECT n FROM numbers)",
    "SELECT MAX(b.n) FROM numbers a JOIN numbers b ON b.n <= a.n GROUP BY a.n",
];

async fn answered(store: &Store, session: &Session, body: Value) -> Vec<i64> {
    let outcome = store.service.sql(session, Vec::new(), Some(body.clone())).await;
    let OutcomeBody::Raw(bytes) = outcome.body else { panic!("{body}: {:?}", outcome.body) };
    let answer: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(outcome.status, 200, "{body}: {answer}");
    let rows = answer["datarows"].as_array().unwrap().iter();
    let mut numbers: Vec<i64> = rows.map(|row| row[0].as_i64().unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

#[tokio::test]
async fn every_scan_keeps_the_rules_of_its_reader_and_the_filter_of_the_request() {
    let store = numbers(20).await;
    let few = rights(Some(r#"{"range":{"n":{"lt":10}}}"#), None);
    let blind = rights(None, Some("m"));
    for query in POSITIONS {
        let expected: Vec<i64> = (0..10).collect();
        let restricted = session(&store, Action::Sql, [&few, &few], 0);
        assert_eq!(answered(&store, &restricted, json!({"query": query})).await, expected, "{query}");
        let filtered = json!({"query": query, "filter": {"range": {"n": {"lt": 10}}}});
        assert_eq!(answered(&store, &store.session, filtered).await, expected, "{query}");
        // A field that is not shown is not known.
        let blind = session(&store, Action::Sql, [&blind, &blind], 0);
        let outcome = store.service.sql(&blind, Vec::new(), Some(json!({"query": query}))).await;
        assert_eq!(outcome.status, 400, "{query}");
    }
}

#[tokio::test]
async fn equalities_are_joined_by_hashes() {
    let store = numbers(10).await;
    for query in [
        "SELECT a.n FROM numbers a JOIN numbers b ON a.n = b.n",
        "SELECT a.n FROM numbers a RIGHT JOIN numbers b ON a.n = b.n",
        "SELECT a.n FROM numbers a FULL JOIN numbers b ON a.n = b.n",
        "SELECT n FROM numbers a JOIN numbers b USING (n)",
        "SELECT n FROM numbers a NATURAL JOIN numbers b",
        "SELECT a.n FROM numbers a, numbers b WHERE a.n = b.n",
        "SELECT a.n FROM numbers a, numbers b, numbers c WHERE a.n = b.n AND b.n = c.n",
        "SELECT a.n FROM (SELECT n FROM numbers) a JOIN (SELECT n FROM numbers) b ON a.n = b.n",
        "SELECT n FROM numbers INTERSECT SELECT n FROM numbers",
        "SELECT n FROM numbers EXCEPT ALL SELECT n FROM numbers",
        "SELECT n FROM numbers WHERE n IN (SELECT n FROM numbers)",
        "SELECT n FROM numbers WHERE n IN (SELECT n FROM numbers) OR n = 3",
        "SELECT n FROM numbers a WHERE EXISTS (SELECT 1 FROM numbers b WHERE b.n = a.n)",
        "SELECT n FROM numbers a WHERE NOT EXISTS (SELECT 1 FROM numbers b WHERE b.n = a.n)",
        "SELECT (SELECT MAX(b.n) FROM numbers b WHERE b.n = a.n) FROM numbers a",
        "SELECT n FROM numbers a WHERE n > (SELECT AVG(b.n) FROM numbers b WHERE b.n = a.n)",
    ] {
        let plan = physical_plan(&store, query).await;
        assert!(plan.contains("HashJoinExec"), "{query}: {plan}");
        // What counts the values of an IN is one row, which meets all others.
        let crosses = plan.contains("NestedLoop") || plan.contains("CrossJoin");
        assert!(!crosses || query.contains("OR n = 3"), "{query}: {plan}");
    }
}

#[tokio::test]
async fn chains_of_unions_are_one_node() {
    let store = numbers(10).await;
    let chain = ["SELECT n FROM numbers"; 4].join(" UNION ALL ");
    let plan = physical_plan(&store, &chain).await;
    assert_eq!(plan.matches("UnionExec").count(), 1, "{plan}");
    let other = format!("{chain} UNION ALL SELECT 1.5");
    assert_eq!(crate::sql::rows(&store, &other).await.len(), 41);
}

/// Partitions of a union leave rows out by the keys of one another: these have the literal that tells its sides apart.
#[tokio::test]
async fn first_rows_of_a_union_are_ordered_by_literals_too() {
    let store = numbers(40).await;
    let query = "SELECT 'fir' AS w, n % 3 AS r FROM numbers UNION ALL SELECT 'yew' AS w, n % 3 AS r FROM numbers ORDER BY w DESC, r DESC LIMIT 14";
    let plan = physical_plan(&store, query).await;
    let sort = plan.lines().find(|line| line.contains("SortExec")).unwrap();
    assert!(sort.contains("expr=[c0@0 DESC"), "{plan}");
    let mut expected = vec![json!(["yew", 2]); 13];
    expected.push(json!(["yew", 1]));
    assert_eq!(crate::sql::rows(&store, query).await, expected);
}

#[tokio::test]
async fn conditions_reach_scans() {
    let store = numbers(10).await;
    for (query, scans) in [
        ("SELECT n FROM (SELECT n FROM numbers) AS t WHERE n = 3", 1),
        ("SELECT t.k FROM (SELECT n AS k FROM numbers WHERE n > 0) AS t WHERE t.k = 3", 1),
        ("WITH c AS (SELECT n FROM numbers) SELECT n FROM c WHERE n = 3", 1),
        ("SELECT n FROM (SELECT n FROM numbers UNION ALL SELECT n FROM numbers) AS t WHERE n = 3", 2),
        ("SELECT a.n FROM numbers a LEFT JOIN numbers b ON a.n = b.n WHERE a.n = 3", 1),
        ("SELECT a.n FROM numbers a JOIN (SELECT n FROM numbers) b ON a.n = b.n WHERE b.n = 3", 1),
        ("SELECT n, k FROM (SELECT n, COUNT(*) AS k FROM numbers GROUP BY n) AS t WHERE n = 3", 1),
    ] {
        let plan = physical_plan(&store, query).await;
        assert!(plan.matches("term").count() >= scans, "{query}: {plan}");
    }
    // The rows behind a cut are others.
    let cut = "SELECT n FROM (SELECT n FROM numbers ORDER BY n LIMIT 3) AS t WHERE n = 3";
    let plan = physical_plan(&store, cut).await;
    assert!(!plan.contains("term"), "{plan}");
    assert!(answered(&store, &store.session, json!({"query": cut})).await.is_empty());
}

#[tokio::test]
async fn a_query_that_is_named_twice_runs_once() {
    let store = numbers(10).await;
    let once = "WITH c AS (SELECT n FROM numbers) SELECT n FROM c";
    assert!(!physical_plan(&store, once).await.contains("SharedExec"));
    let twice = "WITH c AS (SELECT RAND() AS r, n FROM numbers) SELECT x.n FROM c x JOIN c y ON x.n = y.n AND x.r = y.r";
    assert_eq!(physical_plan(&store, twice).await.matches("SharedExec").count(), 2);
    let numbers: Vec<i64> = (0..10).collect();
    assert_eq!(answered(&store, &store.session, json!({"query": twice})).await, numbers);
    for shadowed in [
        "WITH numbers AS (SELECT n FROM numbers WHERE n > 3) SELECT n FROM numbers",
        "WITH c AS (SELECT n FROM numbers) SELECT n FROM c WHERE n IN (WITH c AS (SELECT 1 AS n) SELECT n FROM c)",
    ] {
        assert!(!physical_plan(&store, shadowed).await.contains("SharedExec"), "{shadowed}");
    }
    let listed = "WITH c AS (SELECT n FROM numbers) SELECT COUNT(*) FROM c, c";
    assert_eq!(physical_plan(&store, listed).await.matches("SharedExec").count(), 2);
}

/// A statement in parentheses keeps its order, limit and total.
#[tokio::test]
async fn statements_in_parentheses_are_the_statements_within() {
    let store = numbers(300).await;
    for (query, rows, total) in [
        ("(SELECT n FROM numbers ORDER BY n LIMIT 250)", 250, 300),
        ("((SELECT n FROM numbers ORDER BY n LIMIT 250))", 250, 300),
        ("(SELECT n FROM numbers ORDER BY n LIMIT 250) ORDER BY n", 250, 250),
        ("(SELECT n FROM numbers ORDER BY n)", 200, 300),
        ("(SELECT n FROM numbers) ORDER BY n LIMIT 280", 280, 300),
    ] {
        let outcome = store.service.sql(&store.session, Vec::new(), Some(json!({"query": query}))).await;
        let OutcomeBody::Raw(bytes) = outcome.body else { panic!("{query}: {:?}", outcome.body) };
        let answer: Value = serde_json::from_slice(&bytes).unwrap();
        let numbers = answer["datarows"].as_array().unwrap().iter().map(|row| row[0].as_i64().unwrap());
        assert_eq!(numbers.collect::<Vec<_>>(), (0..rows).collect::<Vec<_>>(), "{query}");
        assert_eq!(answer["total"], total, "{query}");
    }
}

/// The examples of the documentation are statements that are answered.
#[tokio::test]
async fn examples_of_the_documentation_run() {
    let store = Store::open().await;
    let keyword = json!({"type": "keyword"});
    let born = json!({"type": "date"});
    let people = json!({"name": keyword, "city": keyword, "age": {"type": "integer"}, "born": born});
    let orders =
        json!({"person": keyword, "item": keyword, "amount": {"type": "long"}, "note": {"type": "text"}});
    store.create("people", &json!({"mappings": {"properties": people}})).await;
    store.create("orders", &json!({"mappings": {"properties": orders}})).await;
    let people = [("Ann", "Rome", 30), ("Bob", "Oslo", 45), ("Cy", "Rome", 50)];
    let people = people.map(|(name, city, age)| {
        json!({"name": name, "city": city, "age": age, "born": format!("{}-05-01", 2020 - age)})
    });
    store.index("people", &people).await;
    let orders = [("Ann", "pen", 3), ("Ann", "desk", 300), ("Bob", "lamp", 40), ("Dee", "cup", 7)];
    let orders = orders.map(
        |(person, item, amount)| json!({"person": person, "item": item, "amount": amount, "note": "urgent"}),
    );
    store.index("orders", &orders).await;
    let jobs = json!({"type": "nested", "properties": {"title": keyword, "year": {"type": "integer"}}});
    let staff = json!({"name": keyword, "bio": {"type": "text"}, "jobs": jobs});
    store.create("staff", &json!({"mappings": {"properties": staff}})).await;
    let jobs = json!([{"title": "cook", "year": 1999}, {"title": "night guard", "year": 2003}]);
    let other = json!([{"title": "cook", "year": 2012}, {"title": "guard", "year": 2015}]);
    let staff = [("Ann", jobs), ("Cy", other)];
    let staff = staff.map(|(name, jobs)| json!({"name": name, "bio": "works", "jobs": jobs}));
    store.index("staff", &staff).await;
    let text = include_str!("../../../../docs/sql.md");
    let examples: Vec<&str> =
        text.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(examples.len() > 15);
    for example in examples {
        let outcome = store.service.sql(&store.session, Vec::new(), Some(json!({"query": example}))).await;
        let OutcomeBody::Raw(bytes) = outcome.body else { panic!("{example}: {:?}", outcome.body) };
        let answer: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(outcome.status, 200, "{example}: {answer}");
        assert_ne!(answer["size"], 0, "{example}");
    }
}

/// Relations that use one another twice would make a plan of exponential size.
#[tokio::test]
async fn uses_within_one_another_are_bounded() {
    let store = numbers(3).await;
    let mut with = "WITH a0 AS (SELECT n FROM numbers)".to_owned();
    for at in 1..25 {
        with.push_str(&format!(", a{at} AS (SELECT x.n FROM a{0} x JOIN a{0} y ON x.n = y.n)", at - 1));
    }
    let not_in = "SELECT n FROM numbers WHERE n NOT IN (".repeat(14);
    let correlated = "SELECT n FROM numbers a WHERE n + a.n > (SELECT SUM(b.n + a.n) FROM numbers b WHERE b.n < a.n AND b.n > (SELECT MAX(c.n) FROM numbers c WHERE c.n + b.n < a.n))";
    for (query, status) in [
        (format!("{with} SELECT n FROM a24"), 400),
        (format!("{not_in}SELECT n FROM numbers{}", ")".repeat(14)), 400),
        (correlated.to_owned(), 200),
    ] {
        let outcome = store.service.sql(&store.session, Vec::new(), Some(json!({"query": query}))).await;
        assert_eq!(outcome.status, status, "{query}: {:?}", outcome.body);
    }
}

#[tokio::test]
async fn sides_that_the_memory_of_queries_does_not_hold_are_merged() {
    let query = "SELECT a.n FROM numbers a JOIN numbers b ON a.n = b.n";
    let small = Config { memory_bytes: 64 << 10, ..Config::default() };
    let plan = physical_plan(&numbers_within(4_000, small).await, query).await;
    assert!(plan.contains("SortMergeJoinExec"), "{plan}");
    assert!(physical_plan(&numbers(4_000).await, query).await.contains("HashJoinExec"));
}
