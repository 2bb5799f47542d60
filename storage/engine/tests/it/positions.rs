//! Sources of pipelines: documents, dead letters and positions in one frame.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_catalog::access::Principal;
use millrace_catalog::frame::PositionDelta;
use millrace_engine::{
    Action, DeadLetter, DocResult, Engine, OnReject, SourceWrite, Update, WriteOp, WriteOutcome,
};
use millrace_runtime::{Error, Result};
use serde_json::{Value, json};

use crate::documents::{index_op, op, open, reopen};

fn delta(partition: &str, previous: Option<&str>, new: &str, owner_epoch: u64) -> PositionDelta {
    PositionDelta {
        pipeline: "main".to_owned(),
        source: "topic".to_owned(),
        partition: partition.to_owned(),
        previous: previous.map(|previous| Bytes::copy_from_slice(previous.as_bytes())),
        new: Bytes::copy_from_slice(new.as_bytes()),
        owner_epoch,
    }
}

/// Letters into the index `letters`.
fn letters() -> DeadLetter {
    Arc::new(|op, error| {
        let letter = json!({"index": *op.index, "reason": error.to_string()});
        (!matches!(error, Error::VersionConflict { .. }))
            .then(|| index_op("letters", None, &letter.to_string()))
            .into()
    })
}

async fn write(
    engine: &Engine,
    ops: Vec<WriteOp>,
    moves: Vec<PositionDelta>,
) -> Result<Vec<Result<WriteOutcome>>> {
    let write = SourceWrite { ops, moves, ..SourceWrite::default() };
    engine.write_from_source(&Principal::system(), write, letters(), Duration::from_secs(5)).await
}

async fn docs(engine: &Engine, index: &str) -> u64 {
    let Ok(index) = engine.index(index) else { return 0 };
    engine.refresh(&[Arc::clone(&index)]).await.unwrap();
    index.figures().shards.iter().map(|shard| shard.docs).sum()
}

async fn get(engine: &Engine, index: &str, id: &str) -> Option<Value> {
    let found = engine.get(&Principal::system(), index, id, None, true).await.unwrap()?;
    Some(serde_json::from_slice(&found.source).unwrap())
}

fn stored(engine: &Engine) -> Vec<(String, String)> {
    let text = |(part, at): (String, Bytes)| (part, String::from_utf8(at.to_vec()).unwrap());
    engine.positions("main", "topic").into_iter().map(text).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(part, at)| ((*part).to_owned(), (*at).to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_wait_for_their_turn_and_for_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    engine.claim_position("main", "topic", "0").await.unwrap();
    let write = |source: &str, moves| {
        let ops = vec![index_op("logs", Some("x"), source)];
        SourceWrite { ops, moves, ..SourceWrite::default() }
    };
    let (system, wait) = (Principal::system(), Duration::from_secs(5));
    let (go, ready) = tokio::sync::oneshot::channel::<()>();
    let ready = async { ready.await.unwrap_or_default() };
    let moved = vec![delta("0", Some("1"), "2", 1)];
    let second = write(r#"{"n":2}"#, moved);
    let second = engine.append_from_source(&system, second, letters(), wait, Box::pin(ready));
    let first = async {
        let moved = vec![delta("0", None, "1", 1)];
        let ready = std::future::ready(());
        let first = write(r#"{"n":1}"#, moved);
        let first = engine.append_from_source(&system, first, letters(), wait, Box::pin(ready));
        let first = first.await.unwrap();
        go.send(()).unwrap();
        first
    };
    let (second, first) = tokio::join!(second, first);
    let second = second.unwrap().durable().await.unwrap();
    let first = first.durable().await.unwrap();
    assert_eq!(first[0].as_ref().unwrap().result, DocResult::Created);
    assert_eq!(second[0].as_ref().unwrap().result, DocResult::Updated);
    assert_eq!(get(&engine, "logs", "x").await, Some(json!({"n": 2})));
    assert_eq!(stored(&engine), pairs(&[("0", "2")]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_position_moves_with_its_documents_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    assert_eq!(engine.claim_position("main", "topic", "0").await.unwrap(), (None, 1));
    let one = || vec![index_op("logs", None, r#"{"n":1}"#)];
    assert!(write(&engine, one(), vec![delta("0", None, "5", 1)]).await.unwrap()[0].is_ok());
    // From elsewhere, by another owner, of a part that nobody owns under another's epoch.
    for wrong in [delta("0", None, "6", 1), delta("0", Some("5"), "6", 2), delta("1", None, "6", 1)] {
        let refused = write(&engine, one(), vec![wrong]).await.unwrap_err();
        assert!(matches!(refused, Error::PositionMoved { .. }), "{refused}");
    }
    // One wrong move of several, and moves of one part in a chain.
    let wrong = vec![delta("0", Some("5"), "6", 1), delta("0", Some("5"), "7", 1)];
    write(&engine, one(), wrong).await.unwrap_err();
    assert_eq!(docs(&engine, "logs").await, 1);
    let chain = vec![delta("0", Some("5"), "6", 1), delta("0", Some("6"), "7", 1), delta("1", None, "a", 0)];
    write(&engine, one(), chain).await.unwrap();
    assert_eq!(docs(&engine, "logs").await, 2);
    assert_eq!(stored(&engine), pairs(&[("0", "7"), ("1", "a")]));
    // A new owner: the old one's late batch is refused.
    let (position, epoch) = engine.claim_position("main", "topic", "0").await.unwrap();
    assert_eq!((position.as_deref(), epoch), (Some(b"7".as_slice()), 2));
    write(&engine, one(), vec![delta("0", Some("7"), "8", 1)]).await.unwrap_err();
    // Moves alone, and forgetting.
    write(&engine, Vec::new(), vec![delta("0", Some("7"), "8", 2), delta("1", Some("a"), "", 0)])
        .await
        .unwrap();
    drop(engine);
    let engine = reopen(dir.path()).await;
    assert_eq!(stored(&engine), pairs(&[("0", "8")]));
    assert_eq!(docs(&engine, "logs").await, 2);
    assert_eq!(engine.claim_position("main", "topic", "0").await.unwrap().1, 3);
    engine.shutdown().await.unwrap();
    drop(engine);
    let engine = reopen(dir.path()).await;
    assert_eq!(stored(&engine), pairs(&[("0", "8")]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_for_good_becomes_a_dead_letter_of_the_same_frame() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    let first = vec![index_op("logs", Some("1"), r#"{"n":1}"#)];
    write(&engine, first, vec![delta("0", None, "1", 0)]).await.unwrap();
    let frames = engine.follow(None).unwrap().position();
    let ops = vec![
        index_op("logs", Some("2"), r#"{"n":2}"#),
        index_op("logs", Some("3"), r#"{"n":"no number"}"#),
        index_op("Wrong Name", None, r#"{"n":4}"#),
        op("logs", Some("1"), Action::Create(Bytes::from_static(br#"{"n":5}"#))),
        op("logs", Some("9"), Action::Update(Box::default())),
    ];
    let results = write(&engine, ops, vec![delta("0", Some("1"), "2", 0)]).await.unwrap();
    assert!(results[0].is_ok());
    assert!(matches!(results[1], Err(Error::MapperParsing { .. })), "{:?}", results[1]);
    assert!(matches!(results[2], Err(Error::InvalidIndexName { .. })), "{:?}", results[2]);
    assert!(matches!(results[3], Err(Error::VersionConflict { .. })), "{:?}", results[3]);
    assert!(matches!(results[4], Err(Error::DocumentMissing { .. })), "{:?}", results[4]);
    assert_eq!((docs(&engine, "logs").await, docs(&engine, "letters").await), (2, 3));
    // The mapping of the letters' index is a frame of its own.
    assert!(engine.follow(None).unwrap().position() <= frames + 3);
    // A letter that cannot be written stops the source, and nothing of it is there.
    let body = json!({"mappings": {"dynamic": "strict"}});
    engine
        .change(&Principal::system(), |m| {
            m.create_index("strict", &body, 0, millrace_catalog::metadata::Uuid::new_v4())
        })
        .await
        .unwrap();
    let strict: DeadLetter = Arc::new(|_, _| OnReject::DeadLetter(index_op("strict", None, r#"{"a":1}"#)));
    let ops = vec![index_op("logs", None, r#"{"n":1}"#), index_op("logs", None, r#"{"n":"x"}"#)];
    let moves = vec![delta("0", Some("2"), "3", 0)];
    let wait = Duration::from_secs(5);
    let write = SourceWrite { ops, moves, ..SourceWrite::default() };
    let refused = engine.write_from_source(&Principal::system(), write, strict, wait).await.unwrap_err();
    assert!(matches!(refused, Error::DeadLetterRefused(_)), "{refused}");
    assert_eq!(docs(&engine, "logs").await, 2);
    assert_eq!(stored(&engine), pairs(&[("0", "2")]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alias_routes_the_operations_of_a_source() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    let body = json!({"settings": {"number_of_shards": 5}, "aliases": {"routed": {"index_routing": "r"}}});
    engine
        .change(&Principal::system(), |m| {
            m.create_index("logs", &body, 0, millrace_catalog::metadata::Uuid::new_v4())
        })
        .await
        .unwrap();
    let routed = |id: &str, routing: &str| WriteOp {
        routing: Some(routing.to_owned()),
        ..index_op("routed", Some(id), r#"{"n":1}"#)
    };
    let ops = vec![index_op("routed", Some("1"), r#"{"n":1}"#), routed("2", "r"), routed("3", "other")];
    let written = write(&engine, ops, Vec::new()).await.unwrap();
    assert!(written[0].is_ok() && written[1].is_ok());
    assert!(matches!(&written[2], Err(Error::IllegalArgument(reason)) if reason.contains("other")));
    for (id, is_there) in [("1", true), ("2", true), ("3", false)] {
        let found = engine.get(&Principal::system(), "logs", id, Some("r"), true).await.unwrap();
        assert_eq!(found.is_some(), is_there, "{id}");
    }
    assert_eq!((docs(&engine, "logs").await, docs(&engine, "letters").await), (2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_keeps_the_position_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    let body = json!({"settings": {"index.blocks.write": true}});
    engine
        .change(&Principal::system(), |m| {
            m.create_index("blocked", &body, 0, millrace_catalog::metadata::Uuid::new_v4())
        })
        .await
        .unwrap();
    let ops = vec![index_op("logs", None, r#"{"n":1}"#), index_op("blocked", None, r#"{"n":1}"#)];
    let refused = write(&engine, ops, vec![delta("0", None, "1", 0)]).await.unwrap_err();
    assert!(matches!(refused, Error::Blocked { .. }), "{refused}");
    assert_eq!(docs(&engine, "logs").await, 0);
    assert_eq!(stored(&engine), pairs(&[]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_that_comes_before_the_turn_holds() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    write(&engine, vec![index_op("logs", None, r#"{"n":1}"#)], Vec::new()).await.unwrap();
    let (system, wait) = (Principal::system(), Duration::from_secs(5));
    let ready = async {
        let block = json!({"index.blocks.write": true});
        let options = millrace_catalog::metadata::IndicesOptions::open_only();
        let change = engine.change(&system, |m| m.update_settings("logs", &options, &block, false, 0));
        change.await.unwrap();
    };
    let ops = vec![index_op("logs", None, r#"{"n":2}"#)];
    let write = SourceWrite { ops, ..SourceWrite::default() };
    let refused =
        engine.append_from_source(&system, write, letters(), wait, Box::pin(ready)).await.unwrap_err();
    assert!(matches!(refused, Error::Blocked { .. }), "{refused}");
    assert_eq!(docs(&engine, "logs").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_of_one_document_follow_one_another_in_one_frame() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    let update = |id: &str, doc: Value| {
        let update = Update { doc: Some(doc.into()), doc_as_upsert: true, ..Update::default() };
        op("logs", Some(id), Action::Update(Box::new(update)))
    };
    let ops = vec![
        update("1", json!({"a": 1})),
        update("1", json!({"b": 2})),
        index_op("logs", Some("2"), r#"{"a":1}"#),
        update("2", json!({"a": 2})),
        op("logs", Some("2"), Action::Delete),
        update("2", json!({"c": 3})),
        update("3", json!({"a": 1})),
        op("logs", Some("3"), Action::Delete),
    ];
    let results = write(&engine, ops, vec![delta("0", None, "1", 0)]).await.unwrap();
    let results: Vec<_> = results.into_iter().map(|result| result.unwrap().result).collect();
    use DocResult::{Created, Deleted, Updated};
    assert_eq!(results, [Created, Updated, Created, Updated, Deleted, Created, Created, Deleted]);
    assert_eq!(get(&engine, "logs", "1").await, Some(json!({"a": 1, "b": 2})));
    assert_eq!(get(&engine, "logs", "2").await, Some(json!({"c": 3})));
    assert_eq!(get(&engine, "logs", "3").await, None);
    // A stored document is read first; concurrent writers of it do not refuse each other's updates.
    let counters: Vec<_> = (0..4)
        .map(|writer| {
            let engine = Arc::clone(&engine);
            tokio::spawn(async move {
                for n in 0..20 {
                    let update =
                        Update { doc: Some(json!({format!("w{writer}"): n}).into()), ..Update::default() };
                    let ops = vec![op("logs", Some("1"), Action::Update(Box::new(update)))];
                    let previous = (n > 0).then(|| n.to_string());
                    let moved = delta(&format!("w{writer}"), previous.as_deref(), &(n + 1).to_string(), 0);
                    write(&engine, ops, vec![moved]).await.unwrap().remove(0).unwrap();
                }
            })
        })
        .collect();
    for counter in counters {
        counter.await.unwrap();
    }
    let last = get(&engine, "logs", "1").await.unwrap();
    assert_eq!(last, json!({"a": 1, "b": 2, "w0": 19, "w1": 19, "w2": 19, "w3": 19}));
}
