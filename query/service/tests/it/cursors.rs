//! Answers of SQL page by page, and deletion by SQL.

use millrace_catalog::metadata::ClusterSettingsUpdate;
use millrace_engine::Session;
use millrace_query::{Config, Outcome, OutcomeBody};
use serde_json::{Value, json};

use crate::fixture::{Store, owned, session_of, value};

async fn ask(store: &Store, body: Value) -> (u16, Value) {
    ask_as(store, &store.session, body).await
}

async fn ask_as(store: &Store, session: &Session, body: Value) -> (u16, Value) {
    let outcome = store.service.sql(session, Vec::new(), Some(body)).await;
    (outcome.status, value(outcome))
}

async fn page(store: &Store, token: &Value) -> (u16, Value) {
    ask(store, json!({"cursor": token})).await
}

fn names(answer: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = answer.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

fn datarows(answer: &Value) -> Vec<Value> {
    answer["datarows"].as_array().unwrap().clone()
}

async fn numbers(count: i64) -> Store {
    let store = Store::open().await;
    store.create("numbers", &json!({"settings": {"number_of_shards": 2}})).await;
    let documents: Vec<Value> = (0..count).map(|n| json!({"n": n, "m": n % 7})).collect();
    store.index("numbers", &documents).await;
    store
}

pub(crate) async fn set(store: &Store, settings: Value) {
    let update = ClusterSettingsUpdate::parse(&json!({"transient": settings})).unwrap();
    store.session.change(|state| state.update_cluster_settings(&update)).await.unwrap();
}

#[tokio::test]
async fn pages_are_those_of_the_specification() {
    let store = numbers(25).await;
    let query = json!({"query": "SELECT n FROM numbers ORDER BY n", "fetch_size": 10});
    let (status, first) = ask(&store, query.clone()).await;
    assert_eq!(
        (status, names(&first)),
        (200, vec!["cursor", "datarows", "schema", "size", "status", "total"])
    );
    assert_eq!((&first["total"], &first["size"]), (&json!(25), &json!(10)));
    // What is written later is not seen.
    store.write("numbers", vec![("x".to_owned(), Some(json!({"n": 3})))]).await;
    let (_, second) = page(&store, &first["cursor"]).await;
    assert_eq!(names(&second), ["cursor", "datarows"]);
    assert_eq!(datarows(&second), (10..20).map(|n| json!([n])).collect::<Vec<_>>());
    // A token that is sent again gets its page again.
    assert_eq!(page(&store, &first["cursor"]).await.1, second);
    let (_, third) = page(&store, &second["cursor"]).await;
    assert_eq!(names(&third), ["datarows"]);
    assert_eq!(datarows(&third).len(), 5);
    for spent in [&first["cursor"], &second["cursor"]] {
        let (status, refused) = page(&store, spent).await;
        assert_eq!((status, &refused["status"]), (404, &json!(404)), "{refused}");
        assert!(refused["error"]["details"].as_str().unwrap().contains("SearchContextMissing"), "{refused}");
        // Closing what is gone is no error.
        let closed = store.service.close_sql(&store.session, Vec::new(), Some(&json!({"cursor": spent})));
        assert_eq!((closed.status, value(closed)), (200, json!({"succeeded": true})));
    }
    // A page that is exactly full is the last one.
    let (_, exact) = ask(&store, json!({"query": "SELECT n FROM numbers LIMIT 10", "fetch_size": 10})).await;
    assert_eq!((datarows(&exact).len(), exact.get("cursor")), (10, None));
}

#[tokio::test]
async fn pages_together_are_the_answer() {
    let store = numbers(60).await;
    for statement in [
        "SELECT n FROM numbers",
        "SELECT n, m FROM numbers WHERE m > 2",
        "SELECT n FROM numbers WHERE n + 0 > 10",
        "SELECT n FROM numbers LIMIT 5, 33",
        "SELECT n FROM numbers WHERE n + 0 > 10 LIMIT 5, 33",
        "SELECT n FROM numbers ORDER BY m, n DESC",
        "SELECT m, COUNT(*), SUM(n) FROM numbers GROUP BY m ORDER BY m",
        "SELECT DISTINCT m FROM numbers ORDER BY m DESC",
        "SELECT a.n, b.m FROM numbers a JOIN numbers b ON a.n = b.n WHERE a.m = 1 ORDER BY a.n",
        "SELECT n FROM numbers WHERE m IN (SELECT n FROM numbers WHERE n < 3)",
        "SELECT n FROM numbers UNION ALL SELECT m FROM numbers ORDER BY n",
        "WITH a AS (SELECT n, m FROM numbers) SELECT x.n FROM a x LEFT JOIN a y ON x.n = y.m",
        "SELECT 1",
    ] {
        let (_, whole) = ask(&store, json!({"query": statement, "fetch_size": 0})).await;
        assert_eq!(whole.get("cursor"), None, "{statement}");
        for size in [1, 4, 59, 60, 1000] {
            let (status, first) = ask(&store, json!({"query": statement, "fetch_size": size})).await;
            assert_eq!(status, 200, "{statement}: {first}");
            assert_eq!(first["total"], whole["total"], "{statement}, pages of {size}");
            let mut all = datarows(&first);
            let mut token = first.get("cursor").cloned();
            while let Some(next) = token {
                assert_eq!(all.len() % size, 0, "{statement}, pages of {size}");
                let (status, answer) = page(&store, &next).await;
                assert_eq!(status, 200, "{statement}: {answer}");
                assert!(!datarows(&answer).is_empty(), "{statement}, pages of {size}");
                all.extend(datarows(&answer));
                token = answer.get("cursor").cloned();
            }
            let mut expected = datarows(&whole);
            if !statement.contains("ORDER") && !statement.contains("LIMIT") {
                all.sort_by_key(Value::to_string);
                expected.sort_by_key(Value::to_string);
            }
            assert_eq!(all.len(), expected.len(), "{statement}, pages of {size}");
            if !statement.contains("LIMIT") {
                assert_eq!(all, expected, "{statement}, pages of {size}");
            }
        }
    }
}

#[tokio::test]
async fn the_default_cut_is_for_who_asks_for_no_pages() {
    let store = numbers(1_300).await;
    let sizes =
        |answer: &Value| (datarows(answer).len(), answer["total"].clone(), answer.get("cursor").is_some());
    for (body, expected) in [
        (json!({"query": "SELECT n FROM numbers"}), (200, json!(1300), false)),
        // What is left to a filter is counted to its end too.
        (json!({"query": "SELECT n FROM numbers WHERE n + 0 >= 0"}), (200, json!(1300), false)),
        (json!({"query": "SELECT n FROM numbers", "fetch_size": 0}), (1300, json!(1300), false)),
        (json!({"query": "SELECT n FROM numbers", "fetch_size": 900}), (900, json!(1300), true)),
        (json!({"query": "SELECT n FROM numbers LIMIT 1200"}), (1000, json!(1300), true)),
    ] {
        let (_, answer) = ask(&store, body.clone()).await;
        assert_eq!(sizes(&answer), expected, "{body}");
    }
    set(&store, json!({"plugins.query.size_limit": "300", "plugins.sql.cursor.fetch_size": "250"})).await;
    let (_, answer) = ask(&store, json!({"query": "SELECT n FROM numbers"})).await;
    assert_eq!(sizes(&answer), (250, json!(1300), true));
    // Only jdbc has pages.
    let csv = store
        .service
        .sql(
            &store.session,
            owned(&[("format", "csv")]),
            Some(json!({"query": "SELECT n FROM numbers LIMIT 400", "fetch_size": 10})),
        )
        .await;
    let Outcome { body: OutcomeBody::Text(text), .. } = csv else { panic!("{csv:?}") };
    assert_eq!(String::from_utf8(text.to_vec()).unwrap().lines().count(), 401);
}

#[tokio::test]
async fn cursors_end_and_belong_to_their_caller() {
    let store = numbers(30).await;
    let query = json!({"query": "SELECT n FROM numbers", "fetch_size": 10});
    let open = async || ask(&store, query.clone()).await.1["cursor"].clone();
    let refused = async |token: &Value| page(&store, token).await.0;
    let token = open().await;
    let other = session_of(&store.engine, "bob");
    assert_eq!(ask_as(&store, &other, json!({"cursor": token})).await.0, 404);
    store.service.close_sql(&other, Vec::new(), Some(&json!({"cursor": token})));
    assert_eq!(refused(&token).await, 200);
    store.service.close_sql(&store.session, Vec::new(), Some(&json!({"cursor": token})));
    assert_eq!(refused(&token).await, 404);
    let token = open().await;
    store.clock.advance_ms(59_000);
    assert_eq!(refused(&token).await, 200);
    store.clock.advance_ms(61_000);
    assert_eq!(refused(&token).await, 404);
    for wrong in ["", "x", "d:abc", "n:abc", "n:abc:x"] {
        let (status, answer) = page(&store, &json!(wrong)).await;
        assert_eq!(status, 400, "{wrong}: {answer}");
    }
    // Pages are read in their order.
    let token = open().await;
    let id = token.as_str().and_then(|token| token.strip_suffix(":2")).unwrap();
    assert_eq!(refused(&json!(format!("{id}:3"))).await, 400);
    for size in [json!(-1), json!(10_001), json!("many"), json!(1.5)] {
        let (status, answer) = ask(&store, json!({"query": "SELECT 1", "fetch_size": size})).await;
        assert_eq!(status, 400, "{answer}");
    }
    assert_eq!(ask(&store, json!({"query": "SELECT 1", "cursor": "n:a:2"})).await.0, 400);
    let token = open().await;
    let body = json!({"cursor": token});
    let explained = store.service.explain_sql(&store.session, Vec::new(), Some(body)).await;
    assert_eq!(explained.status, 400);
    let decide = |state: &millrace_catalog::metadata::Metadata| {
        state.delete_indices("numbers", &millrace_catalog::metadata::IndicesOptions::open_only(), 0)
    };
    store.session.change(decide).await.unwrap();
    assert_eq!(refused(&token).await, 404);
}

#[tokio::test]
async fn a_page_that_took_too_long_can_be_asked_for_again() {
    let store = numbers(30).await;
    let mut firsts = Vec::new();
    for query in ["SELECT n FROM numbers WHERE n + 0 >= 0", "SELECT n FROM numbers ORDER BY n, m"] {
        firsts.push(ask(&store, json!({"query": query, "fetch_size": 20})).await.1);
    }
    // Statements without an end have all the permits there are, so that a page waits.
    let endless = format!("SELECT SUM(a.n) FROM numbers a{}", " CROSS JOIN numbers".repeat(9));
    let count = 4 + 2 * std::thread::available_parallelism().unwrap().get();
    let holders = std::sync::Arc::strong_count(&store.engine);
    let waiting = futures::future::select_all(
        (0..count).map(|_| Box::pin(ask(&store, json!({"query": endless, "fetch_size": 0})))),
    );
    let late = async {
        while std::sync::Arc::strong_count(&store.engine) < holders + count {
            tokio::task::yield_now().await;
        }
        set(&store, json!({"search.default_search_timeout": "20ms"})).await;
        for first in &firsts {
            let (status, late) = page(&store, &first["cursor"]).await;
            assert_eq!(status, 504, "{late}");
        }
        set(&store, json!({"search.default_search_timeout": "10m"})).await;
    };
    tokio::select! {
        biased;
        (answer, ..) = waiting => panic!("{answer:?}"),
        () = late => {}
    }
    for first in &firsts {
        let (status, second) = page(&store, &first["cursor"]).await;
        assert_eq!(status, 200, "{second}");
        let mut all = [datarows(first), datarows(&second)].concat();
        all.sort_by_key(|row| row[0].as_i64());
        assert_eq!(all, (0..30).map(|n| json!([n])).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn cursors_are_bounded() {
    let store = Store::open_with(Config { max_open_scrolls: 2, ..Config::default() }).await;
    store.index("few", &[json!({"n": 1}), json!({"n": 2})]).await;
    let query = json!({"query": "SELECT n FROM few", "fetch_size": 1});
    let (_, first) = ask(&store, query.clone()).await;
    assert_eq!(ask(&store, query.clone()).await.0, 200);
    let (status, refused) = ask(&store, query.clone()).await;
    assert_eq!(status, 429, "{refused}");
    // A cursor that is read to its end makes room.
    assert_eq!(page(&store, &first["cursor"]).await.1.get("cursor"), None);
    assert_eq!(ask(&store, query).await.0, 200);
}

#[tokio::test]
async fn deletion_is_enabled_by_a_setting() {
    let store = numbers(40).await;
    store.index("others", &[json!({"n": 1})]).await;
    let delete = async |statement: &str| ask(&store, json!({"query": statement})).await;
    let count = async || {
        ask(&store, json!({"query": "SELECT COUNT(*) FROM numbers"})).await.1["datarows"][0][0].clone()
    };
    let (status, refused) = delete("DELETE * FROM numbers").await;
    assert_eq!((status, &refused["error"]["type"]), (400, &json!("SQLFeatureDisabledException")));
    set(&store, json!({"plugins.sql.delete.enabled": "true"})).await;
    let (status, answer) = delete("DELETE FROM numbers WHERE n < 11 AND m + 0 = 3").await;
    assert_eq!(
        (status, answer),
        (
            200,
            json!({"schema": [{"name": "deleted_rows", "type": "long"}], "datarows": [[2]], "total": 1, "size": 1, "status": 200})
        )
    );
    let index = |name: &str| store.engine.index(name).unwrap();
    store.engine.refresh(&[index("numbers")]).await.unwrap();
    assert_eq!(count().await, json!(38));
    assert_eq!(delete("DELETE FROM numbers WHERE n > 1000").await.1["datarows"], json!([[0]]));
    assert_eq!(delete("DELETE FROM nowhere").await.0, 404);
    assert_eq!(delete("DELETE FROM numbers WHERE x = 1").await.0, 400);
    // Changed since the snapshot of the searches: a conflict.
    store.write_unseen("numbers", vec![("20".to_owned(), Some(json!({"n": 19})))]).await;
    let (status, conflict) = delete("DELETE FROM numbers WHERE n = 19").await;
    assert_eq!(status, 409, "{conflict}");
    store.engine.refresh(&[index("numbers")]).await.unwrap();
    assert_eq!(delete("DELETE FROM numbers").await.1["datarows"], json!([[38]]));
    store.engine.refresh(&[index("numbers")]).await.unwrap();
    assert_eq!(count().await, json!(0));
    set(&store, json!({"plugins.sql.enabled": "false"})).await;
    assert_eq!(delete("SELECT 1").await.0, 400);
}
