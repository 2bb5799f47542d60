//! Answers of statements end where their reader may not read on.

use std::sync::Arc;

use futures::{Stream, StreamExt};
use millrace_catalog::access::{Action, ActionSet, Privileges};
use millrace_engine::Session;
use millrace_query::{Config, OutcomeBody, SqlError};
use serde_json::json;

use crate::delete_by_query::{rights, session};
use crate::fixture::{Store, owned};
use crate::sql_bounds::numbers_within;

/// More rows than anybody waits for.
const ENDLESS: &str = "SELECT a.n FROM numbers a CROSS JOIN numbers b CROSS JOIN numbers c";

/// A rule that shows most documents.
const MOST: Option<&str> = Some(r#"{"range":{"n":{"lt":200}}}"#);

/// Reads the second part of an answer once the rights of the first are old. Returns the status of its error, behind which there is none.
async fn read_on<T>(
    store: &Store,
    mut parts: impl Stream<Item = Result<T, SqlError>> + Unpin,
) -> Option<u16> {
    parts.next().await.unwrap().ok().unwrap();
    store.clock.advance_ms(1_000);
    let status = parts.next().await.unwrap().err().map(|error| error.status());
    if status.is_some() {
        assert!(parts.next().await.is_none());
    }
    status
}

async fn lines(store: &Store, session: &Session) -> Option<u16> {
    let body = json!({"query": ENDLESS, "fetch_size": 0});
    match store.service.sql(session, owned(&[("format", "csv")]), Some(body)).await.body {
        OutcomeBody::TextParts(parts) => read_on(store, parts).await,
        other => panic!("{other:?}"),
    }
}

async fn batches(store: &Store, session: &Session) -> Option<u16> {
    read_on(store, store.service.statement_batches(session, ENDLESS, None).await.unwrap()).await
}

#[tokio::test]
async fn an_answer_ends_where_its_reader_sees_otherwise_by_now() {
    let store = numbers_within(300, Config { threads: 1, ..Config::default() }).await;
    let lost = Arc::new(Privileges::new(ActionSet::NONE, vec![]));
    for (began, becomes, status) in [
        (rights(None, None), rights(None, None), None),
        (rights(MOST, Some("n")), rights(MOST, Some("n")), None),
        (rights(None, None), rights(MOST, None), Some(403)),
        (rights(None, None), rights(None, Some("n")), Some(403)),
        (rights(None, None), lost, Some(403)),
    ] {
        let session = || session(&store, Action::Sql, [&began, &becomes], 0);
        assert_eq!(lines(&store, &session()).await, status, "lines: {becomes:?}");
        assert_eq!(batches(&store, &session()).await, status, "batches: {becomes:?}");
    }
}
