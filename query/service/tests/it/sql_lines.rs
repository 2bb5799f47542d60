//! Answers in lines, which are handed on while a statement runs.

use std::sync::Arc;

use futures::StreamExt;
use millrace_catalog::metadata::ClusterSettingsUpdate;
use millrace_query::{Config, Outcome, OutcomeBody, TextParts};
use serde_json::json;

use crate::fixture::{Store, owned, physical_plan, value};
use crate::sql_bounds::{ended, numbers, numbers_within};

/// A join of as many rows as there are pairs, in their order where one thread reads them.
const PAIRS: &str = "SELECT a.n, b.n FROM numbers a CROSS JOIN numbers b";
/// More rows than anybody waits for.
const ENDLESS: &str = "SELECT a.n FROM numbers a CROSS JOIN numbers b CROSS JOIN numbers c";

async fn asked(store: &Store, query: &str, format: &str) -> Outcome {
    let body = json!({"query": query, "fetch_size": 0});
    store.service.sql(&store.session, owned(&[("format", format)]), Some(body)).await
}

/// Asks for an answer that does not come in one piece.
async fn parts(store: &Store, query: &str, format: &str) -> TextParts {
    match asked(store, query, format).await.body {
        OutcomeBody::TextParts(parts) => parts,
        other => panic!("{query}: {other:?}"),
    }
}

async fn whole(mut parts: TextParts) -> String {
    let mut text = Vec::new();
    while let Some(part) = parts.next().await {
        text.extend_from_slice(&part.unwrap());
    }
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn lines_are_the_rows_whatever_there_are() {
    let store = numbers_within(300, Config { threads: 1, ..Config::default() }).await;
    for (format, separator) in [("csv", ','), ("raw", '|')] {
        let mut lines = vec![format!("a.n{separator}b.n")];
        for a in 0..300 {
            lines.extend((0..300).map(|b| format!("{a}{separator}{b}")));
        }
        let text = whole(parts(&store, PAIRS, format).await).await;
        assert!(text.ends_with('\n'));
        let mut found: Vec<&str> = text.lines().collect();
        // What comes first is up to the join.
        found[1..].sort_unstable();
        lines[1..].sort_unstable();
        assert!(found == lines, "{format}");
    }
    // What is short comes in one piece, also where it skips rows and is cut.
    for (query, text) in [
        ("SELECT n FROM numbers WHERE n + 0 >= 290 ORDER BY n LIMIT 2, 3", "n\n292\n293\n294\n"),
        ("SELECT n FROM numbers WHERE n + 0 < 0", "n\n"),
        ("SELECT COUNT(*) FROM numbers", "COUNT(*)\n300\n"),
    ] {
        let OutcomeBody::Text(bytes) = asked(&store, query, "csv").await.body else { panic!("{query}") };
        assert_eq!(bytes, text);
    }
    for (query, lines) in
        [("SELECT n FROM numbers LIMIT 7", 8), ("SELECT n FROM numbers WHERE n + 0 > 9 LIMIT 3, 7", 8)]
    {
        let OutcomeBody::Text(bytes) = asked(&store, query, "raw").await.body else { panic!("{query}") };
        assert_eq!(std::str::from_utf8(&bytes).unwrap().lines().count(), lines, "{query}");
    }
}

/// Computed columns above a sort keep its order beyond one batch of rows.
#[tokio::test]
async fn computed_columns_keep_the_order() {
    let store = numbers_within(9_000, Config { threads: 2, ..Config::default() }).await;
    let query = "SELECT n, n + 1 FROM numbers ORDER BY n LIMIT 100000";
    let plan = physical_plan(&store, query).await;
    assert!(!plan.contains("RepartitionExec"), "{plan}");
    let text = match asked(&store, query, "csv").await.body {
        OutcomeBody::TextParts(parts) => whole(parts).await,
        OutcomeBody::Text(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    };
    let expected = (0..9_000).map(|n| format!("{n},{}", n + 1));
    assert!(text.lines().skip(1).eq(expected));
}

#[tokio::test]
async fn long_answers_take_little_memory() {
    const MEMORY: usize = 8 << 20;
    let store = numbers_within(200, Config { memory_bytes: MEMORY, ..Config::default() }).await;
    let query =
        format!("SELECT a.n, '{}' FROM numbers a CROSS JOIN numbers b WHERE b.n < 6", "x".repeat(10 << 10));
    // One that is sent in one piece is refused.
    assert_eq!(asked(&store, &query, "jdbc").await.status, 429);
    for format in ["csv", "raw"] {
        let mut several = Vec::new();
        for _ in 0..4 {
            let mut parts = parts(&store, &query, format).await;
            parts.next().await.unwrap().unwrap();
            several.push(parts);
        }
        // Others are answered while nobody reads these.
        let counted = store.service.sql(
            &store.session,
            Vec::new(),
            Some(json!({"query": "SELECT COUNT(*) FROM numbers"})),
        );
        assert_eq!(value(counted.await)["datarows"], json!([[200]]));
        for parts in several {
            assert!(whole(parts).await.len() > MEMORY, "{format}");
        }
    }
}

#[tokio::test]
async fn an_error_has_its_status_until_something_was_sent() {
    let store = numbers_within(300, Config { threads: 1, ..Config::default() }).await;
    // The sum is too large at the last pair only.
    let late = "SELECT a.n * 300 + b.n + 9223372036854685809 FROM numbers a CROSS JOIN numbers b";
    let whole = asked(&store, late, "jdbc").await;
    assert_eq!(whole.status, 400, "{whole:?}");
    let mut parts = parts(&store, late, "csv").await;
    let mut sent = 0;
    let error = loop {
        match parts.next().await.unwrap() {
            Ok(part) => sent += part.len(),
            Err(error) => break error,
        }
    };
    assert!(sent > 256 << 10, "{sent}");
    assert!(error.status() == 400 && error.to_string().contains("out of range"), "{error}");
    assert!(parts.next().await.is_none());
    for (query, status) in [
        ("SELECT n + 9223372036854775800 FROM numbers", 400),
        ("SELECT gone FROM numbers", 400),
        ("SELECT n FROM gone", 404),
        ("SELECT n FROM", 400),
    ] {
        assert_eq!(asked(&store, query, "csv").await.status, status, "{query}");
    }
}

#[tokio::test]
async fn who_goes_away_ends_the_statement() {
    let store = numbers(300).await;
    let holders = Arc::strong_count(&store.engine);
    let mut answers = Vec::new();
    for _ in 0..10 {
        answers.push(parts(&store, ENDLESS, "csv").await);
    }
    // The statement, and what asks for its reader's rights.
    assert_eq!(Arc::strong_count(&store.engine), holders + 2 * 10);
    drop(answers);
    ended(&store, holders).await;
}

#[tokio::test]
async fn a_statement_whose_time_is_over_breaks_off() {
    let store = numbers(300).await;
    let holders = Arc::strong_count(&store.engine);
    let update =
        ClusterSettingsUpdate::parse(&json!({"transient": {"search.default_search_timeout": "500ms"}}))
            .unwrap();
    store.session.change(|state| state.update_cluster_settings(&update)).await.unwrap();
    let mut parts = parts(&store, ENDLESS, "csv").await;
    let error = loop {
        if let Err(error) = parts.next().await.unwrap() {
            break error;
        }
    };
    assert_eq!(error.status(), 504);
    drop(parts);
    ended(&store, holders).await;
}

/// Parameters of a request change the lines.
#[tokio::test]
async fn parameters_change_the_lines() {
    let store = crate::sql::people().await;
    let lines = async |query: &str, params: &[(&str, &str)]| {
        let params = [&[("format", "csv")], params].concat();
        let outcome = store.service.sql(&store.session, owned(&params), Some(json!({"query": query}))).await;
        let status = outcome.status;
        match outcome.body {
            OutcomeBody::Text(bytes) => (status, String::from_utf8(bytes.to_vec()).unwrap()),
            OutcomeBody::Json(body) => (status, body.to_string()),
            other => panic!("{other:?}"),
        }
    };
    let query = "SELECT city FROM people WHERE age = 40";
    assert_eq!(lines(query, &[("newLine", "\r\n")]).await, (200, "city\r\nOslo\r\n".to_owned()));
    assert_eq!(lines(query, &[("newLine", "x")]).await.0, 400);
    let (_, text) = lines("SELECT * FROM people WHERE age = 30", &[("flat", "true")]).await;
    let header = text.lines().next().unwrap();
    assert!(header.contains("home.ip") && header.contains("pets") && !header.contains("pets.kind"), "{text}");
    assert!(text.contains("10.0.0.1"), "{text}");
    let scored = "SELECT city FROM people WHERE match(name, 'bob')";
    let (_, text) = lines(scored, &[("_id", "true"), ("_score", "true")]).await;
    let (header, row) = text.trim_end().split_once('\n').unwrap();
    assert_eq!(header, "city,_score,_id");
    let cells: Vec<&str> = row.split(',').collect();
    assert!(cells[0] == "Oslo" && cells[1].parse::<f32>().unwrap() > 0.0 && !cells[2].is_empty(), "{row}");
    // Groups are no documents.
    let groups = "SELECT COUNT(*) FROM people";
    assert_eq!(lines(groups, &[("_id", "true"), ("_score", "false")]).await.1, "COUNT(*)\n4\n");
}
