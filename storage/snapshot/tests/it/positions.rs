//! Positions of pipelines: a restored store goes on where the documents of its snapshot end.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_catalog::access::{Action, ActionSet, Caller, Grant, NamePattern, Principal, Privileges};
use millrace_catalog::frame::PositionDelta;
use millrace_engine::{
    DeadLetter, Engine, FEED_PIPELINE, OnReject, RESTORED_PARTITION, RULES_READER, RestoredPosition,
    SourceWrite,
};
use millrace_snapshot::{Config, RestoreSnapshot, SnapshotService};
use serde_json::json;

use crate::support::*;

/// Writes documents of a source and moves the position of a part, in one frame.
async fn read_on(
    engine: &Engine,
    partition: &str,
    ids: std::ops::Range<u32>,
    previous: Option<&str>,
    new: &str,
    owner_epoch: u64,
) {
    let ops = ids.map(|id| index_op("logs", &format!("d{id}"), r#"{"v":1}"#)).collect();
    let moves = vec![PositionDelta {
        pipeline: "main".to_owned(),
        source: "topic".to_owned(),
        partition: partition.to_owned(),
        previous: previous.map(|previous| Bytes::copy_from_slice(previous.as_bytes())),
        new: Bytes::copy_from_slice(new.as_bytes()),
        owner_epoch,
    }];
    let abort: DeadLetter = Arc::new(|_, _| OnReject::Abort);
    let write = SourceWrite { ops, moves, ..SourceWrite::default() };
    let written = engine.write_from_source(&Principal::system(), write, abort, Duration::from_secs(5)).await;
    written.unwrap().into_iter().for_each(|outcome| drop(outcome.unwrap()));
}

fn stored(engine: &Engine) -> BTreeMap<String, String> {
    let text = |(part, at): (String, Bytes)| (part, String::from_utf8(at.to_vec()).unwrap());
    engine.positions("main", "topic").into_iter().map(text).collect()
}

fn parts(expected: &[(&str, &str)]) -> BTreeMap<String, String> {
    expected.iter().map(|(part, at)| ((*part).to_owned(), (*at).to_owned())).collect()
}

fn documents(ids: std::ops::Range<u32>) -> BTreeMap<String, u32> {
    ids.map(|id| (format!("d{id}"), 1)).collect()
}

async fn reader(engine: &Arc<Engine>, backups: &Path) -> SnapshotService {
    let config = Config { path_repo: vec![backups.to_owned()], ..Config::default() };
    let service = SnapshotService::open(Arc::clone(engine), config).await.unwrap();
    let body = json!({"type": "fs", "settings": {"location": "one", "readonly": true}});
    service.put_repository("backup", &body, true).await.unwrap();
    service
}

fn with_global_state() -> RestoreSnapshot {
    RestoreSnapshot { include_global_state: true, ..RestoreSnapshot::default() }
}

/// A store whose snapshot `one` has ten documents, the parts `0` at 5 and `1` at 7, and a reader of the feed.
async fn captured(data: &Path, backups: &Path) -> Arc<Engine> {
    let engine = open(data).await;
    let service = service(&engine, backups).await;
    engine.claim_position("main", "topic", "0").await.unwrap();
    read_on(&engine, "0", 0..5, None, "5", 1).await;
    read_on(&engine, "1", 5..10, None, "7", 0).await;
    engine.claim_position(FEED_PIPELINE, "rules", "").await.unwrap();
    create(&service, "one").await;
    // What comes later is not in it.
    read_on(&engine, "0", 10..15, Some("5"), "9", 1).await;
    engine
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_store_goes_on_behind_the_documents_of_its_snapshot() {
    let (data, other, backups) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    drop(captured(data.path(), backups.path()).await);
    let empty = open(other.path()).await;
    let service = reader(&empty, backups.path()).await;
    // A position that was forgotten before is in the log, and does not come back.
    read_on(&empty, "0", 90..91, None, "3", 0).await;
    read_on(&empty, "0", 91..92, Some("3"), "", 0).await;
    delete_index(&empty, "logs").await;
    service.restore(&Principal::system(), ("backup", "one"), with_global_state()).await.unwrap();
    check(&empty, "logs", &documents(0..10)).await;
    assert_eq!(stored(&empty), parts(&[("0", "5"), ("1", "7")]));
    let of_rules = empty.positions(FEED_PIPELINE, RULES_READER);
    let [(partition, position)] = of_rules.as_slice() else { panic!("{of_rules:?}") };
    let position = RestoredPosition::decode(position).unwrap();
    assert_eq!((partition.as_str(), position.next_frame), (RESTORED_PARTITION, 0));
    assert!(position.last_frame < empty.next_frame().unwrap());
    drop((service, empty));

    // As after a kill.
    let engine = open(other.path()).await;
    assert_eq!(stored(&engine), parts(&[("0", "5"), ("1", "7")]));
    let (position, epoch) = engine.claim_position("main", "topic", "0").await.unwrap();
    assert_eq!((position.as_deref(), epoch), (Some(b"5".as_slice()), 2));
    read_on(&engine, "0", 10..15, Some("5"), "9", 2).await;
    drop(engine);
    let engine = open(other.path()).await;
    assert_eq!(stored(&engine), parts(&[("0", "9"), ("1", "7")]));
    check(&engine, "logs", &documents(0..15)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_keeps_its_own_positions_and_gives_none_to_other_users() {
    let (data, other, backups) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    drop(captured(data.path(), backups.path()).await);
    let engine = open(other.path()).await;
    let service = reader(&engine, backups.path()).await;
    let cluster = [
        Action::RestoreSnapshot,
        Action::PutClusterSettings,
        Action::PutTemplates,
        Action::PutIndexTemplates,
        Action::PutComponentTemplates,
    ];
    let grant = Grant {
        names: vec![NamePattern::parse("logs").unwrap()],
        actions: ActionSet::new(&[Action::CreateIndex, Action::IndexDocument, Action::PutAliases]),
        system: false,
        documents: None,
        fields: None,
    };
    let privileges = Arc::new(Privileges::new(ActionSet::new(&cluster), vec![grant]));
    let ann = Principal::new(Caller::User("ann".into()), Vec::new(), privileges);
    service.restore(&ann, ("backup", "one"), with_global_state()).await.unwrap();
    check(&engine, "logs", &documents(0..10)).await;
    assert!(stored(&engine).is_empty());

    delete_index(&engine, "logs").await;
    engine.claim_position("main", "topic", "1").await.unwrap();
    service.restore(&Principal::system(), ("backup", "one"), with_global_state()).await.unwrap();
    assert_eq!(stored(&engine), parts(&[("0", "5")]), "the part that is taken over begins anew");
    read_on(&engine, "1", 5..10, None, "8", 1).await;
    drop((service, engine));
    let engine = open(other.path()).await;
    assert_eq!(stored(&engine), parts(&[("0", "5"), ("1", "8")]));
    check(&engine, "logs", &documents(0..10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn positions_never_come_without_their_documents() {
    let (data, other, backups) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    drop(captured(data.path(), backups.path()).await);
    let segments = files(backups.path()).into_iter().filter(|file| {
        let content = std::fs::read(file).unwrap();
        content.starts_with(b"PAR1")
    });
    let damaged: Vec<_> = segments.collect();
    assert!(!damaged.is_empty());
    for file in damaged {
        let mut content = std::fs::read(&file).unwrap();
        let middle = content.len() / 2;
        content[middle] ^= 1;
        std::fs::write(&file, content).unwrap();
    }
    let engine = open(other.path()).await;
    let service = reader(&engine, backups.path()).await;
    for partial in [false, true] {
        let request = RestoreSnapshot { early_search_bytes: 0, partial, ..with_global_state() };
        let restored = service.restore(&Principal::system(), ("backup", "one"), request).await;
        assert_eq!(restored.is_ok(), partial, "{restored:?}");
        assert!(engine.metadata().index("logs").is_none());
        assert!(stored(&engine).is_empty(), "partial: {partial}");
    }
}
