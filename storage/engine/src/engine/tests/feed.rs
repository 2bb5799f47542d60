//! Resources of readers of the change feed, of documents and of the log, and refused writes with moves of positions.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_catalog::access::{ActionSet, Caller, Grant, NamePattern, Principal, Privileges};
use millrace_runtime::{Error, ManualClock};

use super::super::{Action, Engine, RefreshPolicy, WriteOp};
use crate::{Config, FeedItem, Lease, OnReject, SourceWrite};

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

async fn open(dir: &std::path::Path, clock: &Arc<ManualClock>) -> Arc<Engine> {
    let config = Config { data_dir: dir.to_owned(), ..Config::default() };
    loop {
        match Engine::open(config.clone(), clock.clone()).await {
            Err(Error::Locked(_)) => tokio::task::yield_now().await,
            other => return other.unwrap(),
        }
    }
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(1_700_000_000_000))
}

fn create(id: usize, bytes: usize) -> WriteOp {
    WriteOp::new(
        "a",
        Some(id.to_string()),
        Action::Create(Bytes::from(format!(r#"{{"p":"{}"}}"#, "x".repeat(bytes)))),
    )
}

async fn write(engine: &Engine, ops: Vec<WriteOp>) -> usize {
    let wait = Duration::from_secs(5);
    let written = engine.write(&Principal::system(), ops, RefreshPolicy::None, wait).await.unwrap();
    written.iter().filter(|outcome| outcome.is_ok()).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_for_readers_hold_no_refused_documents_or_count_them() {
    const BYTES: usize = 2_000;
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), &clock()).await;
    assert_eq!(write(&engine, (0..10).map(|id| create(id, 10)).collect()).await, 10);
    let mut reader = engine.follow(None).unwrap();
    // One of ten is new: its document is by itself.
    assert_eq!(write(&engine, (1..11).map(|id| create(id, BYTES)).collect()).await, 1);
    let (frames, bytes) = engine.feed_held();
    assert!(frames == 1 && bytes < 2 * BYTES, "{bytes} bytes of {frames} frames");
    let FeedItem::Frame(frame) = reader.next().await.unwrap() else { panic!("there is no gap") };
    let source = frame.parts[0].ops[0].source.as_ref().unwrap();
    assert!(source.is_unique() && source.len() > BYTES, "it is a slice of a larger buffer");
    // Three of five are new: the buffer of all is held, and counted.
    assert_eq!(write(&engine, (9..14).map(|id| create(id, BYTES)).collect()).await, 3);
    let (frames, more) = engine.feed_held();
    assert!(frames == 2 && more - bytes > 5 * BYTES, "{more} bytes of {frames} frames");
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_taken_up_or_moved_to_where_it_is_is_as_young_after_a_restart() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let engine = open(dir.path(), &clock).await;
    write(&engine, vec![create(0, 10)]).await;
    let taken = engine.take_lease("taken", None).await.unwrap();
    let moved = engine.take_lease("moved", None).await.unwrap();
    engine.take_lease("neither", None).await.unwrap();
    clock.advance_ms(6 * DAY_MS);
    assert_eq!(engine.take_lease("taken", None).await.unwrap(), taken);
    engine.move_lease("moved", moved.position).unwrap();
    let index = engine.index("a").unwrap();
    engine.flush(&[Arc::clone(&index)]).await.unwrap();
    drop((index, engine));
    clock.advance_ms(2 * DAY_MS);
    let engine = open(dir.path(), &clock).await;
    let index = engine.index("a").unwrap();
    write(&engine, vec![create(1, 10)]).await;
    engine.flush(&[index]).await.unwrap();
    let lapsed = |name: &str| engine.lease(name).unwrap().lapsed;
    assert_eq!(["taken", "moved", "neither"].map(lapsed), [false, false, true]);
    // Its frames are there as the others hold them.
    let again = engine.take_lease("neither", None).await.unwrap();
    assert_eq!(again, Lease { lapsed: false, ..again });
    assert_eq!(engine.lease("neither"), Some(again));
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_that_has_lapsed_first_makes_room_for_another() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let engine = open(dir.path(), &clock).await;
    for n in 0..64 {
        engine.take_lease(&format!("l{n}"), None).await.unwrap();
        clock.advance_ms(1);
    }
    assert!(matches!(engine.take_lease("one more", None).await, Err(Error::Rejected(_))));
    clock.advance_ms(8 * DAY_MS);
    engine.take_lease("l0", None).await.unwrap();
    engine.take_lease("one more", None).await.unwrap();
    let check = |engine: &Engine| {
        assert_eq!(engine.lease("l1"), None);
        assert!(["l0", "l2", "one more"].iter().all(|name| engine.lease(name).is_some()));
    };
    check(&engine);
    engine.shutdown().await.unwrap();
    drop(engine);
    let engine = open(dir.path(), &clock).await;
    check(&engine);
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_see_all_documents_does_not_write_from_a_source() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), &clock()).await;
    let principal = |documents: Option<&str>| {
        let grant = Grant {
            names: vec![NamePattern::parse("*").unwrap()],
            actions: ActionSet::ALL,
            system: false,
            documents: documents.map(Arc::from),
            fields: None,
        };
        let privileges = Arc::new(Privileges::new(ActionSet::NONE, vec![grant]));
        Principal::new(Caller::Pipeline("p".into()), Vec::new(), privileges)
    };
    let put = async |principal: &Principal| {
        let write = SourceWrite { ops: vec![create(1, 10)], ..SourceWrite::default() };
        let letter = Arc::new(|_: &WriteOp, _: &Error| OnReject::Abort);
        engine.write_from_source(principal, write, letter, Duration::from_secs(5)).await
    };
    let refused = put(&principal(Some(r#"{"match_all":{}}"#))).await.unwrap_err();
    assert!(matches!(refused, Error::IllegalArgument(_)), "{refused}");
    assert!(put(&principal(None)).await.unwrap()[0].is_ok());
    engine.shutdown().await.unwrap();
}
