//! Reads and writes of the outbox by the sender.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use millrace_catalog::access::Principal;
use millrace_engine::{Action, DeadLetter, OnReject, SourceWrite, Update, WriteOp};
use millrace_rules::{Time, cut};
use millrace_runtime::{Error as StorageError, Priority};
use serde_json::{Value, json};

use super::row::{Row, SERVED, Unit};
use crate::NotifierState;
use crate::channel::Failure;
use crate::outbox::OUTBOX;

/// The index of alerts, and that of what went wrong.
pub(crate) const ALERT: &str = "alert";
const ERROR: &str = "alert_error";
/// Rows that are read at once.
pub(crate) const PAGE: usize = 500;
/// Rows of a notification.
pub(crate) const MAX_TOGETHER: usize = 200;
/// Rows that are removed at once.
const SWEPT: usize = 1_000;
/// Time that a write may wait for memory.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time that a row stays that was sent before its frame could no longer be evaluated again.
const KEPT_MS: i64 = 3_600_000;
/// Time behind its end at which a row may still be tried; also the time for which a start tries overdue rows.
pub(crate) const OVERDUE_MS: i64 = 600_000;
/// Wait before the second attempt of a row, and its bound.
const WAIT_MS: i64 = 2_000;
const LONGEST_WAIT_MS: i64 = 3_600_000;
/// Bytes of a reason that a row keeps.
const MAX_REASON: usize = 500;

pub(crate) type Result<T> = std::result::Result<T, String>;

/// Outcome of the delivery of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeliveryOutcome {
    /// They were sent; the text is to be told.
    Sent(Option<String>),
    /// They need not be sent any more.
    Dropped,
    /// They are tried again.
    Again(Failure),
    /// They are given up.
    Lost(String),
}

/// Returns when a row is tried again that has failed so many times.
pub(crate) fn next_attempt(attempts: u32, now_ms: i64) -> i64 {
    now_ms.saturating_add(WAIT_MS.saturating_mul(1 << attempts.min(20)).min(LONGEST_WAIT_MS))
}

async fn search(shared: &NotifierState, body: Value) -> Result<Vec<Value>> {
    let answer = shared.search.read::<Value>(&shared.session, OUTBOX, body, Priority::Background).await;
    let mut answer = answer.map_err(|error| error.to_string())?;
    match answer["hits"]["hits"].take() {
        Value::Array(hits) => Ok(hits),
        _ => Err("the search answered no hits".to_owned()),
    }
}

/// Makes what was written visible to searches.
pub(crate) async fn refresh(shared: &NotifierState) -> Result<bool> {
    match shared.engine.index(OUTBOX) {
        Err(StorageError::IndexNotFound { .. }) => Ok(false),
        Err(error) => Err(error.to_string()),
        Ok(index) => {
            shared.session.refresh(&[index]).await.map_err(|error| error.to_string())?;
            Ok(true)
        }
    }
}

/// Makes rows of hits on a compute thread: each has its channel's options in it, which are measured.
async fn rows(shared: &NotifierState, hits: Vec<Value>) -> Result<Vec<Row>> {
    let read = move || Ok(hits.into_iter().filter_map(Row::read).collect::<Vec<Row>>());
    shared.engine.compute().run(Priority::Background, read).await.map_err(|error| error.to_string())
}

/// Reads rows that are due, the first ones first, without those of some channels and some others; returns whether there may be more.
pub(crate) async fn due(
    shared: &NotifierState,
    now_ms: i64,
    channels: Vec<String>,
    held: Vec<String>,
) -> Result<(Vec<Row>, bool)> {
    let mut not = Vec::new();
    if !channels.is_empty() {
        not.push(json!({"terms": {"channel": channels}}));
    }
    if !held.is_empty() {
        not.push(json!({"ids": {"values": held}}));
    }
    let filter = json!([{"term": {"state": "waiting"}}, {"range": {"due": {"lte": now_ms}}}]);
    let body = json!({
        "size": PAGE,
        "query": {"bool": {"filter": filter, "must_not": not}},
        "sort": [{"due": "asc"}],
        "track_total_hits": false,
    });
    let hits = search(shared, body).await?;
    let more = hits.len() == PAGE;
    Ok((rows(shared, hits).await?, more))
}

/// Counts the rows that are due, and finds the oldest of them, for metrics.
pub(crate) async fn count_due(shared: &NotifierState, now_ms: i64) -> Result<()> {
    let (mut waiting, mut oldest) = (0, 0);
    if shared.engine.index(OUTBOX).is_ok() {
        let filter = json!([{"term": {"state": "waiting"}}, {"range": {"due": {"lte": now_ms}}}]);
        let body = json!({
            "size": 1,
            "query": {"bool": {"filter": filter}},
            "sort": [{"due": "asc"}],
            "_source": ["due"],
            "track_total_hits": true,
        });
        let answer = shared.search.read::<Value>(&shared.session, OUTBOX, body, Priority::Background).await;
        let answer = answer.map_err(|error| error.to_string())?;
        waiting = answer["hits"]["total"]["value"].as_u64().unwrap_or(0);
        oldest = answer["hits"]["hits"][0]["_source"]["due"].as_i64().unwrap_or(0);
    }
    shared.figures.waiting.store(waiting, Ordering::Relaxed);
    shared.figures.oldest_due_ms.store(oldest, Ordering::Relaxed);
    Ok(())
}

/// Returns when the next row is due that is not yet.
pub(crate) async fn next_due(shared: &NotifierState, now_ms: i64) -> Result<Option<i64>> {
    let filter = json!([{"term": {"state": "waiting"}}, {"range": {"due": {"gt": now_ms}}}]);
    let body = json!({
        "size": 1,
        "query": {"bool": {"filter": filter}},
        "sort": [{"due": "asc"}],
        "_source": ["due"],
        "track_total_hits": false,
    });
    Ok(search(shared, body).await?.first().and_then(|hit| hit["_source"]["due"].as_i64()))
}

/// Reads the rows that are told together with one: those of its batch, or of its group that have none yet.
pub(crate) async fn together(shared: &NotifierState, row: &Row) -> Result<Vec<Row>> {
    let query = match (&row.batch, &row.group) {
        (Some(batch), _) => json!({"filter": [{"term": {"batch": batch}}, {"term": {"state": "waiting"}}]}),
        (None, Some(group)) => json!({
            "filter": [{"term": {"group": group}}, {"term": {"state": "waiting"}}],
            "must_not": [{"exists": {"field": "batch"}}],
        }),
        (None, None) => return Ok(vec![row.clone()]),
    };
    let body = json!({
        "size": MAX_TOGETHER,
        "query": {"bool": query},
        "sort": [{"due": "asc"}],
        "track_total_hits": false,
    });
    rows(shared, search(shared, body).await?).await
}

fn operation(index: &str, id: &str, action: Action) -> WriteOp {
    WriteOp::new(index, Some(id.to_owned()), action)
}

fn update(index: &str, id: &str, doc: Value) -> WriteOp {
    let update = Update { doc: Some(doc.into()), retry_on_conflict: 16, ..Update::default() };
    operation(index, id, Action::Update(Box::new(update)))
}

/// Writes operations in one frame. What is refused for good is left out: an alert or a row that somebody has deleted needs no change.
async fn write(shared: &NotifierState, own: Vec<WriteOp>) -> Result<()> {
    write_all(shared, own).await.map_err(|error| error.to_string())
}

/// Does so with what became of rows and what is told of that. Where alerts cannot be written, because of a block or too little disk, rows
/// alone are: they would be sent again.
async fn write_both(shared: &NotifierState, rows: Vec<WriteOp>, told: Vec<WriteOp>) -> Result<()> {
    let both = rows.iter().cloned().chain(told).collect();
    match write_all(shared, both).await {
        Err(error @ StorageError::Blocked { .. }) => {
            tracing::warn!(%error, "what became of notifications is not told");
            write(shared, rows).await
        }
        written => written.map_err(|error| error.to_string()),
    }
}

async fn write_all(shared: &NotifierState, own: Vec<WriteOp>) -> millrace_runtime::Result<()> {
    if own.is_empty() {
        return Ok(());
    }
    let principal = Principal::of_rules("notifications");
    let letter: DeadLetter = Arc::new(|op, error| {
        let expected = matches!(
            error,
            StorageError::DocumentMissing { .. }
                | StorageError::IndexNotFound { .. }
                | StorageError::VersionConflict { .. }
        );
        if !expected {
            tracing::warn!(index = %op.index, %error, "what became of a notification was not written");
        }
        OnReject::Skip
    });
    let write = SourceWrite { ops: Vec::new(), own, moves: Vec::new() };
    shared.engine.write_from_source(&principal, write, letter, TIMEOUT).await.map(drop)
}

/// Stores that rows are told together, under a key.
pub(crate) async fn assign(shared: &NotifierState, unit: &Unit) -> Result<()> {
    let Some(batch) = &unit.batch else { return Ok(()) };
    write(shared, unit.rows.iter().map(|row| update(OUTBOX, &row.id, json!({"batch": batch}))).collect())
        .await
}

/// Writes what became of rows, in one frame.
pub(crate) async fn finish(shared: &NotifierState, ended: &[(Unit, DeliveryOutcome, bool)]) -> Result<()> {
    let now_ms = shared.engine.clock().now_ms();
    let committed = shared.committed.load(Ordering::Acquire);
    let (mut own, mut tells) = (Vec::new(), Vec::new());
    // An alert with several channels is changed once.
    let mut sent: BTreeMap<&str, Value> = BTreeMap::new();
    for (unit, fate, tell) in ended {
        for (at, row) in unit.rows.iter().enumerate() {
            let gone = || {
                if row.frame > 0 && row.frame < committed {
                    return operation(OUTBOX, &row.id, Action::Delete);
                }
                update(OUTBOX, &row.id, json!({"state": "sent", "due": now_ms.saturating_add(KEPT_MS)}))
            };
            match fate {
                DeliveryOutcome::Sent(_) => {
                    let sent_at = json!({"alert_sent": true, "alert_sent_time": Time::from_ms(now_ms).iso()});
                    sent.insert(&row.alert, sent_at);
                    own.push(gone());
                }
                DeliveryOutcome::Dropped => own.push(gone()),
                DeliveryOutcome::Again(Failure { reason, served, .. }) => {
                    let attempts = row.attempts.saturating_add(1);
                    let due = next_attempt(row.attempts, now_ms).min(row.expires.max(now_ms));
                    let mut change =
                        json!({"attempts": attempts, "due": due, "last_error": cut(reason, MAX_REASON)});
                    // What is told together is told together again: one of them knows who has it.
                    if !served.is_empty() && at == 0 {
                        change["about"] = json!({ SERVED: served });
                    }
                    own.push(update(OUTBOX, &row.id, change));
                }
                DeliveryOutcome::Lost(reason) => {
                    tells.push(error_operation(
                        row,
                        "unsent",
                        &format!("was not sent and is given up: {reason}"),
                        now_ms,
                    ));
                    own.push(gone());
                }
            }
        }
        match (fate, unit.rows.first()) {
            (DeliveryOutcome::Sent(Some(reason)), Some(row)) => {
                tells.push(error_operation(row, "partly", reason, now_ms))
            }
            (DeliveryOutcome::Again(Failure { reason, .. }), Some(row)) if *tell => {
                let until = Time::from_ms(row.expires).iso();
                tells.push(error_operation(
                    row,
                    "delayed",
                    &format!("cannot be sent, and is tried again until {until}: {reason}"),
                    now_ms,
                ));
            }
            _ => {}
        }
    }
    tells.extend(sent.into_iter().map(|(alert, change)| update(ALERT, alert, change)));
    write_both(shared, own, tells).await
}

/// Makes a document of `alert_error`.
fn error_operation(row: &Row, what: &str, reason: &str, now_ms: i64) -> WriteOp {
    let method = row.about["name"].as_str().unwrap_or_default();
    let mut document = json!({
        "@timestamp": Time::from_ms(now_ms).iso(),
        "rule_id": row.rule,
        "rule_name": row.about["rule_name"],
        "alert_id": row.alert,
        "method": method,
        "message": format!("notification by [{method}] of alert [{}] {reason}", row.alert),
    });
    // Who may read of it: those who may read the alert.
    if let Some(roles) = row.about["roles"].as_array().filter(|roles| !roles.is_empty()) {
        document["roles"] = json!(roles);
    }
    // The same problem of the same row is one document.
    operation(ERROR, &format!("{what}-{}", row.id), Action::Index(Bytes::from(document.to_string())))
}

/// Reads rows whose time was over a while ago: their channel fails so often that not each has its turn.
pub(crate) async fn overdue(shared: &NotifierState, now_ms: i64) -> Result<Vec<Row>> {
    let filter =
        json!([{"term": {"state": "waiting"}}, {"range": {"expires": {"lte": now_ms - OVERDUE_MS}}}]);
    let body = json!({"size": PAGE, "query": {"bool": {"filter": filter}}, "track_total_hits": false});
    rows(shared, search(shared, body).await?).await
}

/// Removes rows that were sent a while ago; returns whether there may be more.
pub(crate) async fn sweep(shared: &NotifierState, began_ms: i64) -> Result<bool> {
    let now_ms = shared.engine.clock().now_ms();
    // A start evaluates frames again for a while: what was sent before it is kept until then.
    if now_ms < began_ms.saturating_add(KEPT_MS) && shared.committed.load(Ordering::Acquire) == 0 {
        return Ok(false);
    }
    // Those of frames that may be evaluated again stay; those of frame 0 are of none.
    let evaluated = shared.committed.load(Ordering::Acquire).max(1);
    let filter = json!([
        {"term": {"state": "sent"}},
        {"range": {"due": {"lte": now_ms}}},
        {"range": {"frame": {"lt": evaluated}}},
    ]);
    let body = json!({
        "size": SWEPT,
        "query": {"bool": {"filter": filter}},
        "_source": false,
        "track_total_hits": false,
    });
    let hits = search(shared, body).await?;
    let of_row = |hit: &Value| Some(operation(OUTBOX, hit["_id"].as_str()?, Action::Delete));
    let gone: Vec<WriteOp> = hits.iter().filter_map(of_row).collect();
    let more = gone.len() == SWEPT;
    write(shared, gone).await?;
    Ok(more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_further_and_further_apart() {
        let waits: Vec<i64> = (0..13).map(|attempts| next_attempt(attempts, 0) / 1000).collect();
        assert_eq!(waits, [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600]);
    }
}
