//! Writing the audit: a batch a second, an index a day.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use chrono::{DateTime, Days, Utc};
use millrace_storage::metadata::{IndicesOptions, Uuid};
use millrace_storage::{Action, Engine, RefreshPolicy, Result, Session, WriteOp};
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Event, Message};

/// Time between two batches.
const PAUSE: Duration = Duration::from_secs(1);
/// Documents of a batch: who floods the server with refusals does not fill its disk.
const MAX_DOCUMENTS: usize = 100;
/// Attempts to write a batch, with growing pauses between.
const ATTEMPTS: u32 = 6;
/// Days that are kept.
const KEPT_DAYS: u64 = 90;
/// Time that a write may wait for memory.
const TIMEOUT: Duration = Duration::from_secs(10);
/// What names of the indices begin with.
const PREFIX: &str = ".audit-";

/// Writes what comes until nobody is left who records.
pub(super) async fn run(engine: Weak<Engine>, mut messages: Receiver<Message>, lost: Arc<AtomicU64>) {
    while let Some(first) = messages.recv().await {
        let (events, told) = gather(first, &mut messages).await;
        let missed = lost.swap(0, Ordering::Relaxed);
        let Some(engine) = engine.upgrade() else { return };
        if !events.is_empty() {
            write(&engine, events, missed).await;
        }
        for told in told {
            // Who no longer waits need not know.
            let _ = told.send(());
        }
    }
}

/// Takes what comes within the time between two batches, each event with how often it came; less where somebody waits.
async fn gather(
    first: Message,
    messages: &mut Receiver<Message>,
) -> (HashMap<Event, u64>, Vec<oneshot::Sender<()>>) {
    let (mut events, mut told) = (HashMap::new(), Vec::new());
    let until = Instant::now() + PAUSE;
    let mut next = Some(first);
    while let Some(message) = next {
        match message {
            Message::Event(event) => *events.entry(*event).or_insert(0) += 1,
            Message::Flush(waiting) => told.push(waiting),
        }
        next = match told.is_empty() {
            true => tokio::time::timeout_at(until, messages.recv()).await.ok().flatten(),
            false => messages.try_recv().ok(),
        };
    }
    (events, told)
}

/// Writes a batch, again where the store refuses it for now.
async fn write(engine: &Arc<Engine>, events: HashMap<Event, u64>, missed: u64) {
    let now_ms = engine.clock().now_ms();
    let index = index_of(now_ms);
    let beyond: u64 = events.values().skip(MAX_DOCUMENTS).sum();
    let mut lost = missed + beyond;
    let documents: Vec<Value> = events
        .iter()
        .take(MAX_DOCUMENTS)
        .map(|(event, count)| event.document(now_ms, *count, std::mem::take(&mut lost)))
        .collect();
    for attempt in 0..ATTEMPTS {
        match store(engine, &index, &documents).await {
            Ok(()) => return,
            Err(error) if attempt + 1 == ATTEMPTS || engine.is_stopping() => {
                tracing::error!(%error, events = events.len(), "events of the audit are lost");
            }
            Err(error) => {
                tracing::warn!(%error, "the audit cannot be written now");
                tokio::time::sleep(PAUSE * 2_u32.pow(attempt)).await;
            }
        }
    }
}

async fn store(engine: &Arc<Engine>, index: &str, documents: &[Value]) -> Result<()> {
    let session = Session::system(engine);
    if session.metadata().index(index).is_none() {
        create(&session, index).await?;
    }
    let name: Arc<str> = index.into();
    let operation = |document: &Value| WriteOp {
        index: Arc::clone(&name),
        id: None,
        routing: None,
        action: Action::Index(document.to_string().into()),
        version: None,
        if_seq_no: None,
        if_primary_term: None,
        require_alias: false,
        doc_type: "_doc".into(),
    };
    let ops = documents.iter().map(operation).collect();
    let outcomes = session.write(ops, RefreshPolicy::None, TIMEOUT).await?;
    outcomes.into_iter().try_for_each(|outcome| outcome.map(drop))
}

/// Makes the index of a day, and removes those whose time is over.
async fn create(session: &Session, index: &str) -> Result<()> {
    let now_ms = session.clock().now_ms();
    let keyword = json!({"type": "keyword", "ignore_above": 1024});
    let body = json!({
        "settings": {"index.number_of_replicas": 0, "index.hidden": true},
        "mappings": {"dynamic": false, "properties": {
            "@timestamp": {"type": "date"},
            "outcome": keyword,
            "caller": {"properties": {"kind": keyword, "name": keyword}},
            "key_id": keyword,
            "roles": keyword,
            "action": keyword,
            "method": keyword,
            "path": keyword,
            "address": {"type": "ip"},
            "status": {"type": "short"},
            "reason": {"type": "text"},
            "count": {"type": "long"},
            "lost": {"type": "long"},
        }},
    });
    session
        .change(|metadata| match metadata.index(index) {
            Some(_) => Ok(Vec::new()),
            None => metadata.create_index(index, &body, now_ms, Uuid::new_v4()),
        })
        .await?;
    let oldest =
        DateTime::from_timestamp_millis(now_ms).and_then(|now| now.checked_sub_days(Days::new(KEPT_DAYS)));
    let oldest = oldest.map(|day| index_of(day.timestamp_millis())).unwrap_or_default();
    let metadata = session.metadata();
    let old = metadata
        .indices()
        .map(|meta| &*meta.name)
        .filter(|name| name.starts_with(PREFIX) && **name < *oldest);
    let old: Vec<&str> = old.collect();
    if old.is_empty() {
        return Ok(());
    }
    let options = IndicesOptions { ignore_unavailable: true, ..IndicesOptions::open_and_closed() };
    session.change(|metadata| metadata.delete_indices(&old.join(","), &options, now_ms)).await
}

/// Names the index of a moment's day.
fn index_of(at_ms: i64) -> String {
    let at: DateTime<Utc> = DateTime::from_timestamp_millis(at_ms).unwrap_or_default();
    format!("{PREFIX}{}", at.format("%Y.%m.%d"))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use millrace_storage::{Config, ManualClock, SharedClock};

    use super::super::{Audit, Outcome};
    use super::*;

    fn refused(path: &str) -> Event {
        Event {
            outcome: Outcome::Refused,
            subject: None,
            action: None,
            method: "GET".to_owned(),
            path: path.to_owned(),
            address: Ipv4Addr::LOCALHOST.into(),
            status: 403,
            reason: Some("x".repeat(10_000)),
        }
    }

    async fn documents(engine: &Arc<Engine>, index: &str) -> u64 {
        let index = engine.index(index).unwrap();
        engine.refresh(std::slice::from_ref(&index)).await.unwrap();
        index.figures().shards.iter().map(|shard| shard.docs).sum()
    }

    #[tokio::test]
    async fn a_flood_is_a_few_documents_and_old_days_go() {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        let config = Config { data_dir: directory.path().to_owned(), ..Config::default() };
        let engine = Engine::open(config, Arc::clone(&clock) as SharedClock).await.unwrap();
        let audit = Audit::start(&engine);
        for _ in 0..500 {
            audit.record(refused("/secret/_search"));
        }
        audit.flush().await;
        assert_eq!(documents(&engine, ".audit-2023.11.14").await, 1, "equal ones are counted together");
        for n in 0..500 {
            audit.record(refused(&format!("/secret-{n}/_search")));
        }
        audit.flush().await;
        assert_eq!(documents(&engine, ".audit-2023.11.14").await, 1 + MAX_DOCUMENTS as u64);
        clock.advance_ms(100 * 86_400_000);
        audit.record(refused("/late"));
        audit.flush().await;
        assert_eq!(documents(&engine, ".audit-2024.02.22").await, 1);
        assert!(engine.index(".audit-2023.11.14").is_err());
        engine.shutdown().await.unwrap();
    }

    #[test]
    fn what_is_lost_is_told_and_long_texts_are_cut() {
        let document = refused("/a").cut().document(0, 3, 7);
        assert_eq!((&document["count"], &document["lost"]), (&json!(3), &json!(7)));
        assert!(document["reason"].as_str().unwrap().len() < 600);
        assert!(refused("/a").document(0, 1, 0).get("lost").is_none());
    }
}
