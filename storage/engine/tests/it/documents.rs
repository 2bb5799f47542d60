//! Documents go in, come back, are updated, deleted, flushed, compacted and recovered.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_catalog::access::Principal;
use millrace_engine::{Action, Config, DocResult, Engine, RefreshPolicy, WriteOp, WriteOutcome};
use millrace_runtime::{Error, ManualClock, SharedClock, SystemClock};

pub(crate) fn config(dir: &std::path::Path) -> Config {
    Config { data_dir: dir.to_owned(), ..Config::default() }
}

pub(crate) async fn open(dir: &std::path::Path) -> Arc<Engine> {
    Engine::open(config(dir), Arc::new(SystemClock)).await.unwrap()
}

/// Opens the directory of an engine that was dropped, once its last task has ended.
pub(crate) async fn reopen(dir: &std::path::Path) -> Arc<Engine> {
    loop {
        match Engine::open(config(dir), Arc::new(SystemClock)).await {
            Err(Error::Locked(_)) => tokio::task::yield_now().await,
            other => return other.unwrap(),
        }
    }
}

pub(crate) fn index_op(index: &str, id: Option<&str>, source: &str) -> WriteOp {
    op(index, id, Action::Index(Bytes::copy_from_slice(source.as_bytes())))
}

pub(crate) fn op(index: &str, id: Option<&str>, action: Action) -> WriteOp {
    WriteOp::new(index, id.map(str::to_owned), action)
}

pub(crate) async fn write(engine: &Engine, ops: Vec<WriteOp>) -> Vec<Result<WriteOutcome, Error>> {
    engine.write(&Principal::system(), ops, RefreshPolicy::None, Duration::from_secs(5)).await.unwrap()
}

async fn source(engine: &Engine, index: &str, id: &str) -> Option<(u64, String)> {
    let found = engine.get(&Principal::system(), index, id, None, true).await.unwrap()?;
    Some((found.version, String::from_utf8(found.source.to_vec()).unwrap()))
}

async fn live(engine: &Engine, index: &str) -> u64 {
    engine.index(index).unwrap().figures().shards.iter().map(|s| s.docs).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_survive_refresh_flush_compaction_and_restart() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    let mut generated = Vec::new();
    for round in 0..12u32 {
        let ops = (0..100)
            .map(|i| {
                let n = round * 100 + i;
                let id = format!("doc-{}", n % 700);
                let text = format!(r#"{{"n":{n},"msg":"hello number {n}","tags":["a","b{}"]}}"#, n % 7);
                index_op("logs", (n % 2 == 0).then_some(id.as_str()), &text)
            })
            .collect();
        for outcome in write(&engine, ops).await {
            let outcome = outcome.unwrap();
            if outcome.id.len() == 20 {
                generated.push((outcome.id, outcome.version));
            }
        }
        let index = engine.index("logs").unwrap();
        if round % 3 == 1 {
            engine.refresh(&[Arc::clone(&index)]).await.unwrap();
        }
        engine.flush(&[index]).await.unwrap();
    }
    let check = async |engine: &Engine| {
        for n in (0..1200u32).step_by(2) {
            let (version, text) = source(engine, "logs", &format!("doc-{}", n % 700)).await.unwrap();
            let last = if n % 700 + 700 < 1200 { n % 700 + 700 } else { n % 700 };
            assert!(text.contains(&format!(r#""n":{last},"#)), "{n}: {text}");
            assert_eq!(version, if last >= 700 { 2 } else { 1 }, "{n}");
        }
        for (id, version) in generated.iter().step_by(37) {
            assert_eq!(source(engine, "logs", id).await.unwrap().0, *version);
        }
        assert_eq!(live(engine, "logs").await, 600 + 350);
    };
    check(&engine).await;
    engine.force_merge(&[engine.index("logs").unwrap()], 1).await.unwrap();
    check(&engine).await;
    engine.shutdown().await.unwrap();
    drop(engine);
    let engine = open(dir.path()).await;
    check(&engine).await;
    let outcome = write(&engine, vec![op("logs", Some("doc-0"), Action::Delete)]).await.remove(0).unwrap();
    assert_eq!((outcome.result, outcome.version, outcome.primary_term), (DocResult::Deleted, 3, 2));
    assert!(source(&engine, "logs", "doc-0").await.is_none());
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_is_replayed_after_a_stop_without_flush() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    let ops = (0..50).map(|i| index_op("a", Some(&format!("{i}")), &format!(r#"{{"v":{i}}}"#))).collect();
    assert!(write(&engine, ops).await.iter().all(Result::is_ok));
    engine.flush(&[engine.index("a").unwrap()]).await.unwrap();
    let ops =
        (25..75).map(|i| index_op("a", Some(&format!("{i}")), &format!(r#"{{"v":{},"new":"x"}}"#, i + 1000)));
    assert!(write(&engine, ops.collect()).await.iter().all(Result::is_ok));
    write(&engine, vec![op("a", Some("3"), Action::Delete)]).await.remove(0).unwrap();
    drop(engine); // no shutdown: the log has the rest
    let engine = reopen(dir.path()).await;
    assert!(source(&engine, "a", "3").await.is_none());
    assert_eq!(source(&engine, "a", "10").await, Some((1, r#"{"v":10}"#.to_owned())));
    assert_eq!(source(&engine, "a", "30").await, Some((2, r#"{"v":1030,"new":"x"}"#.to_owned())));
    assert_eq!(source(&engine, "a", "70").await, Some((1, r#"{"v":1070,"new":"x"}"#.to_owned())));
    engine.refresh(&[engine.index("a").unwrap()]).await.unwrap();
    assert_eq!(live(&engine, "a").await, 74);
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generated_id_is_found_beside_chosen_ones() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    let chosen = |id: &str| vec![index_op("logs", Some(id), r#"{"n":1}"#)];
    let mut generated = Vec::new();
    for round in 0..4 {
        write(&engine, chosen(&format!("chosen-{round}"))).await;
        for outcome in write(&engine, vec![index_op("logs", None, r#"{"n":2}"#); 3]).await {
            generated.push(outcome.unwrap().id);
        }
        write(&engine, chosen("again")).await;
        if round == 1 {
            engine.refresh(&[engine.index("logs").unwrap()]).await.unwrap();
        }
    }
    let indices = [engine.index("logs").unwrap()];
    engine.refresh(&indices).await.unwrap();
    for id in &generated {
        assert!(source(&engine, "logs", id).await.is_some(), "{id}");
    }
    let outcome = write(&engine, vec![op("logs", Some(&generated[4]), Action::Delete)]).await.remove(0);
    assert_eq!(outcome.unwrap().result, DocResult::Deleted);
    let outcome = write(&engine, vec![index_op("logs", Some(&generated[7]), r#"{"n":3}"#)]).await.remove(0);
    assert_eq!(outcome.unwrap().version, 2);
    for flushed in [false, true] {
        if flushed {
            engine.flush(&indices).await.unwrap();
        }
        assert_eq!(source(&engine, "logs", &generated[4]).await, None);
        assert_eq!(source(&engine, "logs", &generated[7]).await, Some((2, r#"{"n":3}"#.to_owned())));
    }
    assert_eq!(live(&engine, "logs").await, 4 + 12 + 1 - 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_generated_ids_of_several_segments_are_found_at_once() {
    const DOCUMENTS: usize = 3_000;
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    let mut generated: Vec<(String, u64)> = Vec::new();
    for _ in 0..2 {
        let ops = vec![index_op("logs", None, r#"{"n":1}"#); DOCUMENTS];
        for outcome in write(&engine, ops).await {
            let outcome = outcome.unwrap();
            generated.push((outcome.id, outcome.seq_no));
        }
        engine.flush(&[engine.index("logs").unwrap()]).await.unwrap();
    }
    // Documents of one segment have further versions from then on.
    let ops = generated.iter().step_by(100).map(|(id, _)| index_op("logs", Some(id), r#"{"n":2}"#)).collect();
    assert!(write(&engine, ops).await.iter().all(|outcome| outcome.as_ref().unwrap().version == 2));
    engine.flush(&[engine.index("logs").unwrap()]).await.unwrap();
    // Out of order, some twice, some unknown, some with a number that is not theirs any more.
    let deletion = |id: &str, seq_no| WriteOp {
        if_seq_no: Some(seq_no),
        if_primary_term: Some(1),
        ..op("logs", Some(id), Action::Delete)
    };
    let chosen: Vec<usize> = (0..generated.len()).rev().step_by(7).chain([42, 42]).collect();
    let mut ops: Vec<WriteOp> =
        chosen.iter().map(|at| deletion(&generated[*at].0, generated[*at].1)).collect();
    ops.push(op("logs", Some("zzzzzzzzzzzzzzzzzzzz"), Action::Delete));
    let between = format!("{}0", generated[0].0);
    ops.push(op("logs", Some(&between), Action::Delete));
    let outcomes = write(&engine, ops).await;
    let mut deleted = std::collections::HashSet::new();
    for (at, outcome) in chosen.iter().zip(&outcomes) {
        match outcome {
            Ok(outcome) => {
                assert!(at % 100 != 0 && deleted.insert(*at), "{at}");
                assert_eq!((outcome.result, outcome.version), (DocResult::Deleted, 2));
            }
            Err(Error::VersionConflict { .. }) => assert!(at % 100 == 0 || deleted.contains(at), "{at}"),
            Err(other) => panic!("{other}"),
        }
    }
    for outcome in &outcomes[chosen.len()..] {
        assert_eq!(outcome.as_ref().unwrap().result, DocResult::NotFound);
    }
    engine.refresh(&[engine.index("logs").unwrap()]).await.unwrap();
    assert_eq!(live(&engine, "logs").await, (2 * DOCUMENTS - deleted.len()) as u64);
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn replay_that_flushes_keeps_its_segments() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    let text = "x".repeat(20_000);
    for n in 0..60 {
        write(&engine, vec![index_op("logs", Some(&n.to_string()), &format!(r#"{{"text":"{text}"}}"#))])
            .await;
    }
    drop(engine); // nothing was flushed
    let small = Config { memtable_max_bytes: 200_000, ..config(dir.path()) };
    let engine = loop {
        match Engine::open(small.clone(), Arc::new(SystemClock)).await {
            Err(Error::Locked(_)) => tokio::task::yield_now().await,
            other => break other.unwrap(),
        }
    };
    engine.flush(&[engine.index("logs").unwrap()]).await.unwrap();
    assert_eq!(live(&engine, "logs").await, 60);
    engine.shutdown().await.unwrap();
    drop(engine);
    let engine = reopen(dir.path()).await;
    for n in 0..60 {
        assert!(source(&engine, "logs", &n.to_string()).await.is_some(), "{n}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn generated_ids_are_found_beside_ids_of_clients() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    let mut generated = Vec::new();
    for round in 0..3 {
        for n in 0..3 {
            let ops = vec![index_op("logs", None, &format!(r#"{{"n":{n}}}"#))];
            generated.push(write(&engine, ops).await.remove(0).unwrap().id);
            let ops = vec![index_op("logs", Some(&format!("{round}-{n}")), r#"{"n":0}"#)];
            write(&engine, ops).await.remove(0).unwrap();
        }
        // In the memtable's tail, in a segment in memory, in a stored one.
        let index = engine.index("logs").unwrap();
        match round {
            0 => engine.flush(&[index]).await.unwrap(),
            1 => engine.refresh(&[index]).await.unwrap(),
            _ => {}
        }
    }
    for id in &generated {
        assert!(source(&engine, "logs", id).await.is_some_and(|(version, _)| version == 1), "{id}");
    }
    for id in &generated {
        let outcome = write(&engine, vec![index_op("logs", Some(id), r#"{"n":9}"#)]).await.remove(0).unwrap();
        assert_eq!((outcome.version, outcome.result), (2, DocResult::Updated), "{id}");
    }
    engine.refresh(&[engine.index("logs").unwrap()]).await.unwrap();
    assert_eq!(live(&engine, "logs").await, 18);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_meets_damage_leaves_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    write(&engine, vec![index_op("logs", Some("a"), r#"{"n":0}"#)]).await.remove(0).unwrap();
    engine.shutdown().await.unwrap();
    drop(engine);
    let ids = files(&dir.path().join("segments")).into_iter().find(|path| path.ends_with("ids")).unwrap();
    let mut bytes = std::fs::read(&ids).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&ids, bytes).unwrap();

    let engine = reopen(dir.path()).await;
    let generated = |n: u32| index_op("logs", None, &format!(r#"{{"n":{n}}}"#));
    let ops = vec![generated(1), index_op("logs", Some("a"), r#"{"n":2}"#), generated(3)];
    let outcomes = write(&engine, ops).await;
    assert!(matches!(outcomes[1], Err(Error::Corrupt { .. })), "{:?}", outcomes[1]);
    let seq_nos = [&outcomes[0], &outcomes[2]].map(|outcome| outcome.as_ref().unwrap().seq_no);
    let next = write(&engine, vec![generated(4)]).await.remove(0).unwrap();
    assert_eq!((seq_nos, next.seq_no), ([1, 2], 3));
}

fn files(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_id_continues_its_version_over_a_restart() {
    for flushed in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(1_000_000));
        let start = async || loop {
            match Engine::open(config(dir.path()), Arc::clone(&clock) as SharedClock).await {
                Err(Error::Locked(_)) => tokio::task::yield_now().await,
                other => break other.unwrap(),
            }
        };
        let engine = start().await;
        for id in ["1", "2"] {
            write(&engine, vec![index_op("a", Some(id), "{}")]).await;
            write(&engine, vec![index_op("a", Some(id), "{}"), op("a", Some(id), Action::Delete)]).await;
        }
        let flush = async |engine: &Engine| engine.flush(&[engine.index("a").unwrap()]).await.unwrap();
        if flushed {
            flush(&engine).await;
        }
        drop(engine);
        clock.advance_ms(30_000);
        let engine = start().await;
        let outcome = write(&engine, vec![index_op("a", Some("1"), "{}")]).await.remove(0).unwrap();
        assert_eq!((outcome.version, outcome.result), (4, DocResult::Created), "flushed: {flushed}");
        assert_eq!(source(&engine, "a", "2").await, None);
        flush(&engine).await;
        drop(engine);
        // Once more, over another flush; then the tombstone is too old.
        clock.advance_ms(20_000);
        let engine = start().await;
        // It lives again, though the tombstone before is still in the catalog.
        assert_eq!(source(&engine, "a", "1").await, Some((4, "{}".to_owned())), "flushed: {flushed}");
        let outcome = write(&engine, vec![op("a", Some("2"), Action::Delete)]).await.remove(0).unwrap();
        assert_eq!((outcome.version, outcome.result), (4, DocResult::NotFound), "flushed: {flushed}");
        flush(&engine).await;
        drop(engine);
        clock.advance_ms(60_000);
        let engine = start().await;
        let outcome = write(&engine, vec![index_op("a", Some("2"), "{}")]).await.remove(0).unwrap();
        assert_eq!((outcome.version, outcome.result), (1, DocResult::Created), "flushed: {flushed}");
        assert_eq!(source(&engine, "a", "1").await, Some((4, "{}".to_owned())));
        engine.shutdown().await.unwrap();
    }
}
