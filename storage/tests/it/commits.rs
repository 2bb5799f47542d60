//! Catalog commits that fail, also such that happen all the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use millrace_storage::catalog::{Catalog, Commit, MemoryCatalog, State};
use millrace_storage::disk::SimulatedDisk;
use millrace_storage::metadata::{MetadataChange, Uuid};
use millrace_storage::{Action, Config, Engine, Error, ManualClock, Principal, RefreshPolicy, Result};

use crate::documents::{config, index_op, op, write};

const WORKS: u8 = 0;
/// Nothing happens, and an error is answered.
const FAILS: u8 = 1;
/// It happens, and an error is answered.
const LIES: u8 = 2;

/// A catalog whose commits fail on demand.
#[derive(Debug)]
struct Unreliable {
    catalog: MemoryCatalog,
    mode: AtomicU8,
}

#[async_trait]
impl Catalog for Unreliable {
    async fn load(&self) -> Result<State> {
        self.catalog.load().await
    }

    async fn change(&self, changes: &[MetadataChange], mappings: &[(Uuid, Vec<u8>)]) -> Result<()> {
        self.catalog.change(changes, mappings).await
    }

    async fn commit(&self, commit: &Commit) -> Result<()> {
        let mode = self.mode.load(Ordering::Relaxed);
        if mode != FAILS {
            self.catalog.commit(commit).await?;
        }
        if mode == WORKS {
            return Ok(());
        }
        Err(Error::io("commit", "catalog", std::io::Error::other("no answer")))
    }

    async fn put_store(&self, id: Uuid, claimed: bool, generation: u64) -> Result<()> {
        self.catalog.put_store(id, claimed, generation).await
    }

    fn generation(&self) -> u64 {
        self.catalog.generation()
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        self.catalog.get(key).await
    }

    async fn put(&self, key: &str, value: &[u8]) -> Result<()> {
        self.catalog.put(key, value).await
    }

    async fn close(&self) {}
}

struct Node {
    disk: SimulatedDisk,
    catalog: Arc<Unreliable>,
    dir: tempfile::TempDir,
    memtable_max_bytes: u64,
}

impl Node {
    fn new(memtable_max_bytes: u64) -> Self {
        let disk = SimulatedDisk::new(11);
        let catalog = Unreliable { catalog: MemoryCatalog::new(disk.clone()), mode: AtomicU8::new(WORKS) };
        Self { disk, catalog: Arc::new(catalog), dir: tempfile::tempdir().unwrap(), memtable_max_bytes }
    }

    fn commits(&self, mode: u8) {
        self.catalog.mode.store(mode, Ordering::Relaxed);
    }

    async fn open(&self) -> Arc<Engine> {
        let config = Config {
            compute_threads: 1,
            memtable_max_bytes: self.memtable_max_bytes,
            ..config(self.dir.path())
        };
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        let catalog: Arc<dyn Catalog> = Arc::clone(&self.catalog) as Arc<dyn Catalog>;
        Engine::open_with(config, clock, Arc::new(self.disk.clone()), catalog).await.unwrap()
    }

    fn restart(&mut self) {
        self.disk = self.disk.power_loss();
        let catalog = self.catalog.catalog.reopen(self.disk.clone());
        self.catalog = Arc::new(Unreliable { catalog, mode: AtomicU8::new(WORKS) });
    }
}

/// Checks that ids 0 to 19 are there once each, with the versions that `written` of rounds give.
async fn check(engine: &Engine, rounds: u64) {
    let a = engine.index("a").unwrap();
    engine.refresh(&[Arc::clone(&a)]).await.unwrap();
    let snapshot = a.snapshot().await.unwrap();
    let mut found = Vec::new();
    for view in snapshot.shards.iter().flat_map(|shard| &shard.segments) {
        let rows: Vec<u32> = (0..view.segment.rows()).filter(|row| !view.deleted.contains(*row)).collect();
        found.extend(view.segment.fetch(&rows, millrace_storage::segment::RowParts::ALL).await.unwrap());
    }
    found.sort_by(|a, b| a.id.cmp(&b.id));
    let ids: Vec<&str> = found.iter().map(|row| row.id.as_str()).collect();
    let expected: Vec<String> = (10..30).map(|i| i.to_string()).collect();
    assert_eq!(ids, expected);
    assert!(found.iter().all(|row| row.version == rounds), "{rounds}: {found:?}");
    assert!(engine.get(&Principal::system(), "a", "99", None, true).await.unwrap().is_none());
}

async fn round(engine: &Engine, n: u64) {
    let mut ops: Vec<_> = (10..30)
        .map(|i| index_op("a", Some(&i.to_string()), &format!(r#"{{"v":{n},"f{n}":{n}}}"#)))
        .collect();
    ops.push(index_op("a", Some("99"), "{}"));
    ops.push(op("a", Some("99"), Action::Delete));
    assert!(write(engine, ops).await.iter().all(Result::is_ok));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_fails_or_only_seems_to_is_not_made_twice() {
    for mode in [FAILS, LIES] {
        for restart in [false, true] {
            for merge in [false, true] {
                let mut node = Node::new(256 << 20);
                let mut engine = node.open().await;
                let a = engine.index("a");
                assert!(a.is_err());
                let mut rounds = 0;
                for _ in 0..3 {
                    rounds += 1;
                    round(&engine, rounds).await;
                    engine.flush(&[engine.index("a").unwrap()]).await.unwrap();
                }
                let a = engine.index("a").unwrap();
                if merge {
                    // The flush of the next round works, the compaction does not.
                    rounds += 1;
                    round(&engine, rounds).await;
                    engine.flush(&[Arc::clone(&a)]).await.unwrap();
                    node.commits(mode);
                    engine.force_merge(&[Arc::clone(&a)], 1).await.unwrap_err();
                } else {
                    node.commits(mode);
                    rounds += 1;
                    round(&engine, rounds).await;
                    engine.flush(&[Arc::clone(&a)]).await.unwrap_err();
                }
                check(&engine, rounds).await;
                engine.flush(&[Arc::clone(&a)]).await.err();
                check(&engine, rounds).await;
                if restart {
                    drop((engine, a));
                    node.restart();
                    engine = node.open().await;
                    check(&engine, rounds).await;
                }
                node.commits(WORKS);
                rounds += 1;
                round(&engine, rounds).await;
                let a = engine.index("a").unwrap();
                engine.flush(&[Arc::clone(&a)]).await.unwrap();
                check(&engine, rounds).await;
                engine.force_merge(&[a], 1).await.unwrap();
                check(&engine, rounds).await;
                drop(engine);
                node.restart();
                check(&*node.open().await, rounds).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_nothing_can_be_flushed_writers_wait_are_refused_and_then_go_on() {
    let node = Node::new(100 << 10);
    let engine = node.open().await;
    let source = format!(r#"{{"p":"{}"}}"#, "x".repeat(1_000));
    let ops = || (0..5).map(|_| index_op("a", None, &source)).collect::<Vec<_>>();
    write(&engine, ops()).await.remove(0).unwrap();
    node.commits(FAILS);
    let (mut refused, mut acknowledged) = (0, 5);
    for _ in 0..40 {
        let wait = Duration::from_millis(5);
        match engine.write(&Principal::system(), ops(), RefreshPolicy::None, wait).await {
            Ok(written) => {
                assert!(written.iter().all(Result::is_ok));
                acknowledged += 5;
            }
            Err(Error::Rejected(reason)) => {
                assert!(reason.contains("memtable_max_bytes"), "{reason}");
                refused += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(refused > 0 && acknowledged > 5);
    node.commits(WORKS);
    write(&engine, ops()).await.remove(0).unwrap();
    let a = engine.index("a").unwrap();
    engine.refresh(&[Arc::clone(&a)]).await.unwrap();
    assert_eq!(a.figures().shards[0].docs, acknowledged + 5);
}
