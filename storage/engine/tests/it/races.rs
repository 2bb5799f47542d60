//! Writers, refreshes, flushes and compactions at the same time, on real threads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millrace_catalog::access::Principal;
use millrace_engine::{Action, Engine, Update};
use serde_json::json;

use crate::documents::{index_op, op, open, reopen, write};

/// Live rows of a snapshot by id; each id is there once.
async fn searched(engine: &Engine) -> BTreeMap<String, u64> {
    let snapshot = engine.index("a").unwrap().snapshot().await.unwrap();
    let mut found = BTreeMap::new();
    for view in snapshot.shards.iter().flat_map(|shard| &shard.segments) {
        let rows: Vec<u32> = (0..view.segment.rows()).filter(|row| !view.deleted.contains(*row)).collect();
        for row in view.segment.fetch(&rows, millrace_segment::RowParts::ALL).await.unwrap() {
            assert!(found.insert(row.id.clone(), row.version).is_none(), "[{}] twice", row.id);
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn updates_during_flush_and_compaction_keep_one_version_of_each_document() {
    const IDS: u64 = 60;
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    write(&engine, (0..IDS).map(|i| index_op("a", Some(&format!("{i}")), r#"{"v":0}"#)).collect()).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut background = Vec::new();
    for kind in 0..3 {
        let (engine, stop) = (Arc::clone(&engine), Arc::clone(&stop));
        background.push(tokio::spawn(async move {
            let a = [engine.index("a").unwrap()];
            while !stop.load(Ordering::Relaxed) {
                match kind {
                    0 => engine.flush(&a).await.unwrap(),
                    1 => engine.force_merge(&a, 2).await.unwrap(),
                    _ => {
                        engine.refresh(&a).await.unwrap();
                        assert_eq!(searched(&engine).await.len() as u64, IDS);
                    }
                }
            }
        }));
    }
    // Each writer owns its ids: their versions count up by one.
    let writers: Vec<_> = (0..4u64)
        .map(|writer| {
            let engine = Arc::clone(&engine);
            tokio::spawn(async move {
                let mut versions: BTreeMap<String, u64> = BTreeMap::new();
                for round in 0..120u64 {
                    let id = format!("{}", (round * 7 % (IDS / 4)) * 4 + writer);
                    let action = match round % 3 {
                        0 => op(
                            "a",
                            Some(&id),
                            Action::Update(Box::new(Update {
                                doc: Some(json!({"u": round}).into()),
                                ..Update::default()
                            })),
                        ),
                        _ => index_op("a", Some(&id), &format!(r#"{{"v":{round}}}"#)),
                    };
                    let outcome = write(&engine, vec![action]).await.remove(0).unwrap();
                    let version = versions.entry(id).or_insert(1);
                    *version += 1;
                    assert_eq!(outcome.version, *version);
                }
                versions
            })
        })
        .collect();
    let mut expected: BTreeMap<String, u64> = (0..IDS).map(|i| (i.to_string(), 1)).collect();
    for writer in writers {
        expected.extend(writer.await.unwrap());
    }
    stop.store(true, Ordering::Relaxed);
    for task in background {
        task.await.unwrap();
    }
    engine.refresh(&[engine.index("a").unwrap()]).await.unwrap();
    assert_eq!(searched(&engine).await, expected);
    drop(engine);
    let engine = reopen(dir.path()).await;
    engine.refresh(&[engine.index("a").unwrap()]).await.unwrap();
    assert_eq!(searched(&engine).await, expected);
    for (id, version) in &expected {
        let found = engine.get(&Principal::system(), "a", id, None, true).await.unwrap().unwrap();
        assert_eq!(found.version, *version);
    }
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_goes_away_parts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    for round in 0..60u64 {
        write(
            &engine,
            vec![index_op("a", Some("1"), &format!(r#"{{"v":{round}}}"#)), index_op("a", None, "{}")],
        )
        .await;
        let a = [engine.index("a").unwrap()];
        // Dropped at another moment each time.
        let patience = std::time::Duration::from_micros(round * 150);
        let _ = tokio::time::timeout(patience, engine.force_merge(&a, 1)).await;
        let name = format!("new-{round}");
        let principal = Principal::system();
        let created = engine.change(&principal, |m| {
            m.create_index(&name, &json!({}), 0, millrace_catalog::metadata::Uuid::new_v4())
        });
        let _ = tokio::time::timeout(patience / 20, created).await;
    }
    engine.refresh(&[engine.index("a").unwrap()]).await.unwrap();
    assert_eq!(searched(&engine).await.len(), 61);
    // A change waits for those before it of the same name, which nobody waited for: it makes the index or finds it.
    let principal = Principal::system();
    for round in 0..60u64 {
        let name = format!("new-{round}");
        let again = engine.change(&principal, |m| {
            m.create_index(&name, &json!({}), 0, millrace_catalog::metadata::Uuid::new_v4())
        });
        let _ = again.await;
        assert!(engine.index(&name).is_ok(), "{name}");
    }
    let names: Vec<_> = engine.metadata().indices().map(|meta| meta.name.clone()).collect();
    drop(engine);
    let engine = reopen(dir.path()).await;
    engine.refresh(&[engine.index("a").unwrap()]).await.unwrap();
    assert_eq!(searched(&engine).await.len(), 61);
    assert_eq!(engine.metadata().indices().map(|meta| meta.name.clone()).collect::<Vec<_>>(), names);
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recovery_that_must_flush_keeps_what_it_flushed() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    let padding = "x".repeat(1_000);
    for n in 0..20 {
        let ops = (0..50)
            .map(|i| index_op("a", Some(&format!("{n}-{i}")), &format!(r#"{{"v":{n},"p":"{padding}"}}"#)));
        write(&engine, ops.collect()).await;
    }
    drop(engine);
    let small = |dir: &std::path::Path| millrace_engine::Config {
        memtable_max_bytes: 200 << 10,
        ..crate::documents::config(dir)
    };
    for _ in 0..2 {
        let engine = loop {
            match Engine::open(small(dir.path()), Arc::new(millrace_runtime::SystemClock)).await {
                Err(millrace_runtime::Error::Locked(_)) => tokio::task::yield_now().await,
                other => break other.unwrap(),
            }
        };
        // Orphans are collected by a task of its own.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        engine.refresh(&[engine.index("a").unwrap()]).await.unwrap();
        assert_eq!(searched(&engine).await.len(), 1_000);
        let found = engine.get(&Principal::system(), "a", "3-7", None, true).await.unwrap().unwrap();
        assert!(found.source.len() > 1_000);
        drop(engine);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn generated_ids_are_found_whatever_they_share_a_segment_with() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    let mut ids = Vec::new();
    for round in 0..6 {
        let ops = (0..5).map(|_| index_op("a", None, r#"{"v":1}"#)).collect();
        ids.extend(write(&engine, ops).await.into_iter().map(|outcome| outcome.unwrap().id));
        write(&engine, vec![index_op("a", Some(&format!("{round}")), r#"{"v":2}"#)]).await;
    }
    for step in 0..4 {
        for id in &ids {
            let found = engine.get(&Principal::system(), "a", id, None, true).await.unwrap();
            assert!(found.is_some(), "[{id}] is missing in step {step}");
        }
        let a = [engine.index("a").unwrap()];
        match step {
            0 => engine.refresh(&a).await.unwrap(),
            1 => engine.flush(&a).await.unwrap(),
            _ => engine.force_merge(&a, 1).await.unwrap(),
        }
    }
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_get_sees_each_document_before_or_after_a_bulk_and_never_between() {
    const IDS: usize = 400;
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    let index = |round: u64| {
        (0..IDS).map(move |i| index_op("a", Some(&format!("{i}")), &format!(r#"{{"round":{round}}}"#)))
    };
    let delete = || (0..IDS).map(|i| op("a", Some(&format!("{i}")), Action::Delete));
    write(&engine, index(0).collect()).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for getter in 0..3usize {
        let (engine, stop) = (Arc::clone(&engine), Arc::clone(&stop));
        tasks.push(tokio::spawn(async move {
            let (mut at, mut latest) = (getter, vec![0; IDS]);
            while !stop.load(Ordering::Relaxed) {
                at = (at + 37) % IDS;
                let found =
                    engine.get(&Principal::system(), "a", &format!("{at}"), None, true).await.unwrap();
                let found = found.unwrap_or_else(|| panic!("[{at}] is gone"));
                assert_eq!(found.version % 2, 1, "[{at}] was seen within a bulk");
                assert!(found.version >= latest[at], "[{at}] went back");
                latest[at] = found.version;
                let round = (found.version - 1) / 2;
                assert_eq!(found.source, format!(r#"{{"round":{round}}}"#));
            }
        }));
    }
    {
        let (engine, stop) = (Arc::clone(&engine), Arc::clone(&stop));
        tasks.push(tokio::spawn(async move {
            let a = [engine.index("a").unwrap()];
            while !stop.load(Ordering::Relaxed) {
                engine.refresh(&a).await.unwrap();
                assert_eq!(searched(&engine).await.len(), IDS);
                engine.flush(&a).await.unwrap();
                engine.force_merge(&a, 1).await.unwrap();
            }
        }));
    }
    for round in 1..=40 {
        // All are deleted, and are there again at the end.
        for outcome in write(&engine, delete().chain(index(round)).collect()).await {
            outcome.unwrap();
        }
    }
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    engine.shutdown().await.unwrap();
}
