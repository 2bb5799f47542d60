//! `_sql`: statements in the dialect of Elasticsearch, their pages, and statements about metadata.

use std::sync::Arc;

use millrace_catalog::access::Action;
use millrace_catalog::{Catalog, Commit, MemoryCatalog};
use millrace_engine::{Engine, Session};
use millrace_query::{Config, Error, Outcome, OutcomeBody, SearchService, TextPage};
use millrace_runtime::SystemClock;
use millrace_runtime::disk::SimulatedDisk;
use serde_json::{Value, json};

use crate::delete_by_query::{rights, session};
use crate::fixture::{Store, owned, session_of, value};

async fn store() -> Store {
    let store = Store::open().await;
    let properties = json!({
        "n": {"type": "integer"}, "at": {"type": "date"}, "tags": {"type": "keyword"}, "ok": {"type": "boolean"},
        "message": {"type": "text", "fields": {"keyword": {"type": "keyword"}}}, "half": {"type": "half_float"},
        "host": {"properties": {"name": {"type": "keyword"}}},
    });
    store
        .create("my-logs", &json!({"mappings": {"properties": properties}, "aliases": {"all-logs": {}}}))
        .await;
    let document = |n: i64| {
        json!({
            "n": n, "at": format!("2024-05-01T12:00:{n:02}.5Z"), "tags": "a", "ok": n % 2 == 0, "half": 0.5,
            "message": format!("request {n}"), "host": {"name": format!("web-{}", n % 3)},
        })
    };
    store.index("my-logs", &(0..25).map(document).collect::<Vec<_>>()).await;
    store
}

async fn ask_as(
    store: &Store,
    session: &Session,
    params: &[(&str, &str)],
    body: Value,
) -> Result<Outcome, Error> {
    store.service.elasticsearch_sql(session, owned(params), Some(body)).await
}

async fn ask(store: &Store, body: Value) -> (u16, Value) {
    let outcome = ask_as(store, &store.session, &[], body).await.unwrap();
    (outcome.status, value(outcome))
}

async fn rows(store: &Store, query: &str) -> Value {
    let (status, answer) = ask(store, json!({"query": query})).await;
    assert_eq!(status, 200, "{query}: {answer}");
    answer["rows"].clone()
}

#[tokio::test]
async fn answers_have_columns_rows_and_cursors() {
    let store = store().await;
    let query = r#"SELECT "n", at, "host"."name" AS "the host", ok FROM "my-logs" WHERE message = 'request 3' ORDER BY "n""#;
    let (status, answer) = ask(&store, json!({"query": query})).await;
    let columns = json!([
        {"name": "n", "type": "integer"}, {"name": "at", "type": "datetime"}, {"name": "the host", "type": "keyword"},
        {"name": "ok", "type": "boolean"},
    ]);
    let row = json!([[3, "2024-05-01T12:00:03.500Z", "web-0", false]]);
    assert_eq!((status, answer), (200, json!({"columns": columns, "rows": row})));
    assert_eq!(rows(&store, "SELECT 1").await, json!([[1]]));
    let scored =
        rows(&store, "SELECT n, SCORE() FROM \"my-logs\" WHERE MATCH(message, '7') ORDER BY SCORE() DESC")
            .await;
    assert!(scored[0][0] == 7 && scored[0][1].as_f64().is_some_and(|score| score > 0.0), "{scored}");
    let minutes = "SELECT HISTOGRAM(at, INTERVAL 1 MINUTE) AS t, COUNT(*) FROM \"my-logs\" GROUP BY HISTOGRAM(at, INTERVAL 1 MINUTE)";
    assert_eq!(rows(&store, minutes).await, json!([["2024-05-01T12:00:00.000Z", 25]]));
    let weeks = "SELECT DATE_TRUNC('week', at) AS t, HISTOGRAM(n, 10) AS tens, COUNT(*) FROM \"my-logs\" GROUP BY t, tens ORDER BY tens";
    let week = "2024-04-29T00:00:00.000Z";
    assert_eq!(rows(&store, weeks).await, json!([[week, 0, 10], [week, 10, 10], [week, 20, 5]]));
    let below = "SELECT HISTOGRAM(0 - n, 10) AS t, HISTOGRAM(half - n, 2.5) AS d FROM \"my-logs\" WHERE n IN (0, 1, 10, 11) ORDER BY n";
    assert_eq!(rows(&store, below).await, json!([[0, 0.0], [-10, -2.5], [-10, -10.0], [-20, -12.5]]));
    let (status, _) =
        ask(&store, json!({"query": "SELECT HISTOGRAM(18446744073709551615, n) FROM \"my-logs\""})).await;
    assert_eq!(status, 400);
    let largest = rows(&store, "SELECT HISTOGRAM(18446744073709551615, 10)").await;
    assert_eq!(largest, json!([[18_446_744_073_709_551_610_u64]]));
    let body = json!({
        "query": "SELECT COUNT(*) AS n FROM \"all-logs\" WHERE ok = ?", "params": [true], "columnar": true,
        "filter": {"range": {"n": {"lt": 10}}},
    });
    let (_, answer) = ask(&store, body).await;
    assert_eq!(answer, json!({"columns": [{"name": "n", "type": "integer"}], "values": [[5]]}));

    // Rows are not cut at 200 or so: pages follow.
    let (_, mut page) =
        ask(&store, json!({"query": "SELECT n FROM \"my-logs\" ORDER BY n", "fetch_size": 10})).await;
    let (mut found, mut sizes) = (Vec::new(), Vec::new());
    loop {
        let rows = page["rows"].as_array().unwrap();
        sizes.push(rows.len());
        found.extend(rows.iter().map(|row| row[0].as_i64().unwrap()));
        let Some(cursor) = page.get("cursor").cloned() else { break };
        page = ask(&store, json!({"cursor": cursor})).await.1;
        assert!(page.get("columns").is_none());
    }
    assert_eq!((found, sizes), ((0..25).collect(), vec![10, 10, 5]));
}

#[tokio::test]
async fn cursors_belong_to_their_reader_and_to_this_door() {
    let store = store().await;
    let query = json!({"query": "SELECT n FROM \"my-logs\"", "fetch_size": 10});
    let cursor = ask(&store, query.clone()).await.1["cursor"].clone();
    let body = json!({"cursor": cursor});
    let other = session_of(&store.engine, "bob");
    assert_eq!(ask_as(&store, &other, &[], body.clone()).await.unwrap_err().status(), 404);
    // Each door has its own.
    let outcome = store.service.sql(&store.session, Vec::new(), Some(body.clone())).await;
    assert_eq!(outcome.status, 400);
    let native = json!({"query": "SELECT n FROM `my-logs`", "fetch_size": 10});
    let native = value(store.service.sql(&store.session, Vec::new(), Some(native)).await)["cursor"].clone();
    assert_eq!(ask(&store, json!({"cursor": native})).await.0, 400);
    let close = |body: &Value| store.service.close_elasticsearch_sql(&store.session, Vec::new(), Some(body));
    assert_eq!(close(&json!({"cursor": native})).unwrap().status, 400);
    assert_eq!(store.service.close_sql(&store.session, Vec::new(), Some(&body)).status, 400);
    // A cursor takes times, and nothing of its statement.
    for (name, value) in [("page_timeout", json!("1000d")), ("filter", json!({"match_all": {}}))] {
        let body = json!({"cursor": cursor, name: value});
        let outcome = ask_as(&store, &store.session, &[], body).await;
        assert_eq!(outcome.map_or_else(|error| error.status(), |outcome| outcome.status), 400, "{name}");
    }
    // Another layout than that of the first page is refused, and loses nothing.
    let refused = ask_as(&store, &store.session, &[("format", "csv")], body.clone()).await.unwrap();
    assert_eq!(refused.status, 400);
    let body = json!({"cursor": cursor, "request_timeout": "1m", "page_timeout": "2m"});
    assert_eq!(ask(&store, body.clone()).await.1["rows"].as_array().unwrap().len(), 10);
    let next = json!({"cursor": ask(&store, query).await.1["cursor"]});
    assert_eq!(value(close(&next).unwrap()), json!({"succeeded": true}));
    assert_eq!(value(close(&next).unwrap()), json!({"succeeded": false}));
    let gone = ask_as(&store, &store.session, &[], next).await.unwrap_err();
    assert_eq!(gone.status(), 404);
}

#[tokio::test]
async fn layouts_of_text_have_their_cursor_beside_them() {
    let store = store().await;
    let body = json!({"query": "SELECT n, at FROM \"my-logs\" WHERE n < 3 ORDER BY n", "fetch_size": 2});
    let outcome = ask_as(&store, &store.session, &[("format", "csv")], body.clone()).await.unwrap();
    let OutcomeBody::TextPage(TextPage { text, content_type, cursor }) = outcome.body else {
        panic!("no page")
    };
    let expected = "n,at\r\n0,2024-05-01T12:00:00.500Z\r\n1,2024-05-01T12:00:01.500Z\r\n";
    assert_eq!((text, content_type), (expected.into(), "text/csv; charset=utf-8; header=present"));
    let next = json!({"cursor": cursor.unwrap()});
    let outcome = ask_as(&store, &store.session, &[("format", "csv")], next).await.unwrap();
    let OutcomeBody::TextPage(page) = outcome.body else { panic!("no page") };
    assert_eq!((page.text, page.cursor), ("2,2024-05-01T12:00:02.500Z\r\n".into(), None));
    let params = [("format", "csv"), ("delimiter", ";"), ("header", "absent")];
    let outcome = ask_as(&store, &store.session, &params, body.clone()).await.unwrap();
    let OutcomeBody::TextPage(page) = outcome.body else { panic!("no page") };
    assert!(page.text.starts_with(b"0;2024"), "{:?}", page.text);
    for wrong in [("format", "cbor"), ("delimiter", ";"), ("header", "maybe")] {
        let outcome = ask_as(&store, &store.session, &[wrong], body.clone()).await.unwrap();
        assert_eq!(outcome.status, 400, "{wrong:?}");
    }
}

#[tokio::test]
async fn a_page_that_is_too_long_leaves_no_cursor_open() {
    let store = Store::open_with(Config { max_open_scrolls: 1, ..Config::default() }).await;
    let mut documents: Vec<Value> = (0..10_001).map(|n| json!({"n": n})).collect();
    documents[0]["wide"] = json!("x".repeat(30_000));
    store.index("wide", &documents).await;
    // One value widens 10,000 lines beyond 256 MiB.
    let body = json!({"query": "SELECT wide FROM wide ORDER BY n", "fetch_size": 10_000});
    let error = ask_as(&store, &store.session, &[("format", "txt")], body.clone()).await.unwrap_err();
    assert_eq!((error.status(), error.error_type().as_str()), (429, "circuit_breaking_exception"));
    let (status, page) = ask(&store, body).await;
    assert!(status == 200 && page["cursor"].is_string(), "{status}");
}

#[tokio::test]
async fn metadata_lists_tables_columns_and_functions() {
    let store = store().await;
    store.create(".hidden", &json!({})).await;
    let table = json!(["millrace", "my-logs", "TABLE", "INDEX"]);
    let alias = json!(["millrace", "all-logs", "VIEW", "ALIAS"]);
    assert_eq!(rows(&store, "SHOW TABLES").await, json!([alias, table]));
    assert_eq!(rows(&store, "SHOW TABLES LIKE 'my%'").await, json!([table]));
    assert_eq!(rows(&store, "SHOW TABLES \"my-*\"").await, json!([table]));
    let columns = json!([
        ["at", "TIMESTAMP", "datetime"],
        ["half", "FLOAT", "half_float"],
        ["host", "STRUCT", "object"],
        ["host.name", "VARCHAR", "keyword"],
        ["message", "VARCHAR", "text"],
        ["message.keyword", "VARCHAR", "keyword"],
        ["n", "INTEGER", "integer"],
        ["ok", "BOOLEAN", "boolean"],
        ["tags", "VARCHAR", "keyword"],
    ]);
    for statement in [
        "DESCRIBE \"my-logs\"",
        "SHOW COLUMNS IN my-logs",
        "SHOW COLUMNS FROM \"all-logs\"",
        "DESC LIKE 'my%'",
    ] {
        assert_eq!(rows(&store, statement).await, columns, "{statement}");
    }
    assert_eq!(rows(&store, "SHOW FUNCTIONS LIKE 'ABS'").await, json!([["ABS", "SCALAR"]]));
    assert_eq!(rows(&store, "SHOW CATALOGS").await, json!([["millrace", "local"]]));
    let missing =
        ask_as(&store, &store.session, &[], json!({"query": "DESCRIBE nowhere"})).await.unwrap_err();
    assert_eq!(missing.status(), 404);
    // A reader lists what it sees.
    let properties = json!({"n": {"type": "long"}, "hidden": {"type": "long"}});
    store.create("numbers", &json!({"mappings": {"properties": properties}})).await;
    let rights = rights(None, Some("n"));
    let reader = session(&store, Action::Sql, [&rights, &rights], 0);
    for (query, expected) in [
        ("SHOW TABLES", json!([["millrace", "numbers", "TABLE", "INDEX"]])),
        ("DESCRIBE \"numbers\"", json!([["n", "BIGINT", "long"]])),
    ] {
        let outcome = ask_as(&store, &reader, &[], json!({"query": query})).await.unwrap();
        assert_eq!(value(outcome)["rows"], expected, "{query}");
    }
    let refused =
        ask_as(&store, &reader, &[], json!({"query": "SELECT n FROM \"my-logs\""})).await.unwrap_err();
    assert_eq!(refused.status(), 403);
}

#[tokio::test]
async fn metadata_of_an_unsupported_index_are_refused_by_its_name_and_left_out_of_patterns() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SimulatedDisk::new(1);
    let catalog = Arc::new(MemoryCatalog::new(disk.clone()));
    let open = async || loop {
        let config =
            millrace_engine::Config { data_dir: dir.path().to_owned(), ..millrace_engine::Config::default() };
        let shared: Arc<dyn Catalog> = Arc::clone(&catalog) as _;
        match Engine::open_with(config, Arc::new(SystemClock), Arc::new(disk.clone()), shared).await {
            Err(millrace_runtime::Error::Locked(_)) => tokio::task::yield_now().await,
            opened => return opened.unwrap(),
        }
    };
    let engine = open().await;
    let body = json!({"mappings": {"properties": {"n": {"type": "long"}}}});
    for name in ["logs-a", "logs-b"] {
        let create = session_of(&engine, "ann");
        create.change(|metadata| metadata.create_index(name, &body, 0, uuid::Uuid::new_v4())).await.unwrap();
    }
    let index = engine.index("logs-a").unwrap();
    let mut encoded: Value = serde_json::from_slice(&index.mapping().encode()).unwrap();
    encoded["mapping"]["properties"]["n"]["type"] = json!("of_a_later_version");
    let mappings = vec![(index.meta().uuid, serde_json::to_vec(&encoded).unwrap())];
    engine.shutdown().await.unwrap();
    drop((index, engine));
    catalog.commit(&Commit { mappings, ..Commit::default() }).await.unwrap();
    let engine = open().await;
    let (service, session) =
        (SearchService::new(Arc::clone(&engine), Config::default()), session_of(&engine, "ann"));
    let elasticsearch = async |query: &str| {
        let answer = service.elasticsearch_sql(&session, Vec::new(), Some(json!({"query": query}))).await;
        answer.map(|outcome| value(outcome)["rows"].clone()).map_err(|error| error.to_string())
    };
    let refused = elasticsearch("DESCRIBE \"logs-a\"").await.unwrap_err();
    assert!(refused.contains("of_a_later_version"), "{refused}");
    assert_eq!(elasticsearch("DESCRIBE LIKE 'logs%'").await, Ok(json!([["n", "BIGINT", "long"]])));
    let sql = async |query: &str| service.sql(&session, Vec::new(), Some(json!({"query": query}))).await;
    let refused = sql("DESCRIBE TABLES LIKE logs-a").await;
    assert_ne!(refused.status, 200);
    let refused = value(refused).to_string();
    assert!(refused.contains("of_a_later_version"), "{refused}");
    let listed = value(sql("DESCRIBE TABLES LIKE logs%").await);
    assert_eq!((&listed["total"], &listed["datarows"][0][2]), (&json!(1), &json!("logs-b")), "{listed}");
}

#[tokio::test]
async fn several_values_errors_and_searches() {
    let store = store().await;
    store.write("my-logs", vec![("x".to_owned(), Some(json!({"n": 99, "tags": ["b", "c"]})))]).await;
    let query = "SELECT tags FROM \"my-logs\" WHERE n >= 24 ORDER BY n";
    let (status, refused) = ask(&store, json!({"query": query})).await;
    assert!(status == 400 && refused["error"]["reason"].as_str().unwrap().contains("[tags]"), "{refused}");
    let (_, lenient) = ask(&store, json!({"query": query, "field_multi_value_leniency": true})).await;
    assert_eq!(lenient["rows"], json!([["a"], ["b"]]));
    for (query, kind, words) in [
        ("SELEC 1", "parsing_exception", "SELECT"),
        ("SELECT nothing FROM \"my-logs\"", "verification_exception", "nothing"),
        ("DELETE FROM \"my-logs\"", "verification_exception", "DELETE"),
    ] {
        let (status, answer) = ask(&store, json!({"query": query})).await;
        let error = &answer["error"];
        assert_eq!((status, &answer["status"], &error["type"]), (400, &json!(400), &json!(kind)), "{answer}");
        assert_eq!(error["root_cause"][0]["type"], json!(kind));
        assert!(error["reason"].as_str().unwrap().contains(words), "{answer}");
    }
    let body = json!({"query": "SELECT n FROM \"my-logs\" WHERE n > 20", "fetch_size": 7});
    let search = value(store.service.translate_sql(&store.session, Vec::new(), Some(body)).await.unwrap());
    assert_eq!(search["size"], json!(7));
    let found = store.search("my-logs", &[], search).await.unwrap();
    assert_eq!(found["hits"]["total"]["value"], json!(5));
}
