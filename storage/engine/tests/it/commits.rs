//! Catalog commits that fail, also such that happen all the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use millrace_catalog::access::Principal;
use millrace_catalog::metadata::{IndexMeta, Metadata, MetadataChange, RestoreIndex, Uuid};
use millrace_catalog::{AccountChange, AccountRecord, Catalog, Commit, MemoryCatalog, State};
use millrace_engine::{
    Action, CapturedSegment, Config, Engine, RefreshPolicy, RestoredIndex, RestoredShard, RestoredState,
    SegmentFiles, ShardCapture, ShardFault,
};
use millrace_runtime::disk::SimulatedDisk;
use millrace_runtime::{Error, ManualClock, Result};
use millrace_segment::{SegmentFile, file_path};
use roaring::RoaringBitmap;

use crate::documents::{config, index_op, op, write};

const START_MS: i64 = 1_700_000_000_000;

const WORKS: u8 = 0;
/// Nothing happens, and an error is answered.
const FAILS: u8 = 1;
/// It happens, and an error is answered.
const LIES: u8 = 2;
/// Commits that remove segments fail.
const MERGES_FAIL: u8 = 3;
/// Commits wait until another mode is set.
const WAITS: u8 = 4;

/// A catalog whose commits fail on demand.
#[derive(Debug)]
struct Unreliable {
    catalog: MemoryCatalog,
    mode: AtomicU8,
    /// Commits that wait now.
    waiting: AtomicUsize,
    /// Transactions of mappings alone, and the most that one had.
    of_mappings: AtomicUsize,
    most_mappings: AtomicUsize,
}

impl Unreliable {
    fn new(catalog: MemoryCatalog) -> Self {
        let none = AtomicUsize::default;
        Self {
            catalog,
            mode: AtomicU8::new(WORKS),
            waiting: none(),
            of_mappings: none(),
            most_mappings: none(),
        }
    }
}

#[async_trait]
impl Catalog for Unreliable {
    async fn load(&self) -> Result<State> {
        self.catalog.load().await
    }

    async fn change(&self, changes: &[MetadataChange], mappings: &[(Uuid, Vec<u8>)]) -> Result<()> {
        self.catalog.change(changes, mappings).await
    }

    async fn restore(
        &self,
        changes: &[MetadataChange],
        mappings: &[(Uuid, Vec<u8>)],
        commit: &Commit,
    ) -> Result<()> {
        let mode = self.mode.load(Ordering::Relaxed);
        if mode == WORKS || mode == LIES {
            self.catalog.restore(changes, mappings, commit).await?;
        }
        if mode == WORKS {
            return Ok(());
        }
        Err(Error::io("commit", "catalog", std::io::Error::other("no answer")))
    }

    async fn commit(&self, commit: &Commit) -> Result<()> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        while self.mode.load(Ordering::Relaxed) == WAITS {
            tokio::task::yield_now().await;
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        if commit.put.is_empty() && commit.checkpoints.is_empty() && !commit.mappings.is_empty() {
            self.of_mappings.fetch_add(1, Ordering::Relaxed);
            self.most_mappings.fetch_max(commit.mappings.len(), Ordering::Relaxed);
        }
        let mode = self.mode.load(Ordering::Relaxed);
        let works = mode == WORKS || (mode == MERGES_FAIL && commit.removed.is_empty());
        if works || mode == LIES {
            self.catalog.commit(commit).await?;
        }
        if works {
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

    async fn accounts(&self) -> Result<Vec<AccountRecord>> {
        self.catalog.accounts().await
    }

    async fn put_accounts(&self, changes: &[AccountChange]) -> Result<()> {
        self.catalog.put_accounts(changes).await
    }

    async fn close(&self) {}
}

struct Node {
    disk: SimulatedDisk,
    catalog: Arc<Unreliable>,
    clock: Arc<ManualClock>,
    dir: tempfile::TempDir,
    memtable_max_bytes: u64,
}

impl Node {
    fn new(memtable_max_bytes: u64) -> Self {
        let disk = SimulatedDisk::new(11);
        let catalog = Arc::new(Unreliable::new(MemoryCatalog::new(disk.clone())));
        let clock = Arc::new(ManualClock::new(START_MS));
        Self { disk, catalog, clock, dir: tempfile::tempdir().unwrap(), memtable_max_bytes }
    }

    fn commits(&self, mode: u8) {
        self.catalog.mode.store(mode, Ordering::Relaxed);
    }

    async fn open(&self) -> Arc<Engine> {
        let config = Config {
            compute_threads: 1,
            // Files of the log of 64 KB.
            wal_max_bytes: 512 << 10,
            memtable_max_bytes: self.memtable_max_bytes,
            ..config(self.dir.path())
        };
        let clock = Arc::clone(&self.clock) as millrace_runtime::SharedClock;
        let catalog: Arc<dyn Catalog> = Arc::clone(&self.catalog) as Arc<dyn Catalog>;
        Engine::open_with(config, clock, Arc::new(self.disk.clone()), catalog).await.unwrap()
    }

    fn restart(&mut self) {
        self.disk = self.disk.power_loss();
        let catalog = self.catalog.catalog.reopen(self.disk.clone());
        self.catalog = Arc::new(Unreliable::new(catalog));
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
        found.extend(view.segment.fetch(&rows, millrace_segment::RowParts::ALL).await.unwrap());
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

/// Takes the segments of `a` into the object store for an index to come.
async fn adopt(engine: &Engine) -> (RestoreIndex, RestoredIndex) {
    let capture =
        engine.capture(Box::new(|m| Ok(m.index("a").into_iter().cloned().collect()))).await.unwrap();
    let (uuid, a) = (Uuid::new_v4(), &capture.indices[0]);
    let mut shards = Vec::new();
    for shard in a.shards.iter().flatten() {
        let mut segments = Vec::new();
        for CapturedSegment { record, deleted, .. } in &shard.segments {
            let mut files = Vec::new();
            for kind in SegmentFile::ALL.into_iter().filter(|kind| kind.bytes(record) > 0) {
                let scratch = engine.scratch_file();
                let path = file_path(record, kind);
                // Files under construction are on the disk of the machine.
                std::fs::write(&scratch, engine.objects().get(&path).await.unwrap()).unwrap();
                files.push((kind, scratch));
            }
            let (target, files) = ((uuid, shard.number), SegmentFiles { files });
            segments.push(
                engine.adopt_segment(target, record, RoaringBitmap::clone(deleted), files).await.unwrap(),
            );
        }
        let ShardCapture { number, primary_term, next_seq_no, .. } = *shard;
        shards.push(RestoredShard { number, primary_term, next_seq_no, segments });
    }
    let request = RestoreIndex {
        name: "b".to_owned(),
        snapshot: Uuid::from_u128(9),
        meta: IndexMeta::clone(&a.meta),
        next_seq_nos: shards.iter().map(|shard| shard.next_seq_no).collect(),
        include_aliases: false,
        settings: serde_json::Map::new(),
        ignored_settings: Vec::new(),
        is_pending: false,
    };
    (request, RestoredIndex { uuid, mapping: a.mapping.encode(), shards })
}

fn state(restored: RestoredIndex) -> RestoredState {
    RestoredState { indices: vec![restored], positions: Vec::new() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_whose_commit_may_have_happened_keeps_its_files() {
    let system = Principal::system();
    for mode in [FAILS, LIES] {
        let mut node = Node::new(256 << 20);
        let engine = node.open().await;
        round(&engine, 1).await;
        let (request, restored) = adopt(&engine).await;
        let uuid = restored.uuid;
        let files = async |engine: &Engine| {
            let all = engine.objects().list(None).await.unwrap();
            let of = uuid.simple().to_string();
            all.iter().filter(|object| object.location.as_ref().contains(&of)).count()
        };
        let before = files(&engine).await;
        assert!(before > 0);
        node.commits(mode);
        let decide = move |m: &Metadata| m.restore_index(&request, uuid);
        engine.install_restored(&system, state(restored), Box::new(decide)).await.unwrap_err();
        assert!(files(&engine).await >= before, "{mode}");
        drop(engine);
        node.restart();
        let engine = node.open().await;
        assert_eq!(engine.index("b").is_ok(), mode == LIES);
        if mode == LIES {
            for id in 10..30 {
                let found = engine.get(&system, "b", &id.to_string(), None, true).await.unwrap();
                assert!(found.is_some(), "{id}");
            }
        }
    }
    // What the catalog was not asked for is gone at once.
    let engine = Node::new(256 << 20).open().await;
    round(&engine, 1).await;
    let (_, restored) = adopt(&engine).await;
    let of = restored.uuid.simple().to_string();
    let decide = |_: &Metadata| Err(Error::Rejected("no".to_owned()));
    engine.install_restored(&system, state(restored), Box::new(decide)).await.unwrap_err();
    let all = engine.objects().list(None).await.unwrap();
    assert!(all.iter().all(|object| !object.location.as_ref().contains(&of)), "{all:?}");
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
    node.clock.advance_ms(15_000);
    write(&engine, ops()).await.remove(0).unwrap();
    let a = engine.index("a").unwrap();
    engine.refresh(&[Arc::clone(&a)]).await.unwrap();
    assert_eq!(a.figures().shards[0].docs, acknowledged + 5);
}

/// Writes and flushes one segment of three documents.
async fn segment(engine: &Engine) -> Result<()> {
    let ops = (0..3).map(|_| index_op("a", None, r#"{"v":1}"#)).collect();
    assert!(write(engine, ops).await.iter().all(Result::is_ok));
    engine.flush(&[engine.index("a").unwrap()]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_that_works_ends_the_fault_of_those_that_failed_whoever_asked_for_it() {
    let node = Node::new(256 << 20);
    let engine = node.open().await;
    segment(&engine).await.unwrap();
    let a = engine.index("a").unwrap();
    assert_eq!(a.faults(), [None]);
    node.commits(FAILS);
    segment(&engine).await.unwrap_err();
    assert_eq!(a.faults(), [Some(ShardFault::Failing)]);
    node.commits(WORKS);
    segment(&engine).await.unwrap();
    assert_eq!(a.faults(), [None]);
}

#[tokio::test(flavor = "multi_thread")]
async fn compactions_that_failed_are_tried_again_also_after_a_restart() {
    for restart in [false, true] {
        let mut node = Node::new(256 << 20);
        let mut engine = node.open().await;
        node.commits(MERGES_FAIL);
        for _ in 0..8 {
            segment(&engine).await.unwrap();
        }
        // Nobody has asked for it: eight segments alike are enough.
        while engine.index("a").unwrap().faults() != [Some(ShardFault::Failing)] {
            tokio::task::yield_now().await;
        }
        assert_eq!(engine.index("a").unwrap().figures().shards[0].segments, 8);
        if restart {
            drop(engine);
            node.restart();
            engine = node.open().await;
        } else {
            node.commits(WORKS);
            node.clock.advance_ms(2_000);
        }
        let a = engine.index("a").unwrap();
        while a.figures().shards[0].segments != 1 {
            tokio::task::yield_now().await;
        }
        while a.faults() != [None] {
            tokio::task::yield_now().await;
        }
        assert_eq!(a.figures().shards[0].docs, 24);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deletions_alone_are_reason_enough_for_a_compaction() {
    let node = Node::new(256 << 20);
    let engine = node.open().await;
    let ops = (0..10).map(|id| index_op("a", Some(&format!("{id}")), r#"{"v":1}"#)).collect();
    assert!(write(&engine, ops).await.iter().all(Result::is_ok));
    let a = engine.index("a").unwrap();
    engine.flush(&[Arc::clone(&a)]).await.unwrap();
    let ops = (0..5).map(|id| op("a", Some(&format!("{id}")), Action::Delete)).collect();
    assert!(write(&engine, ops).await.iter().all(Result::is_ok));
    engine.refresh(&[Arc::clone(&a)]).await.unwrap();
    while a.figures().shards[0].deleted > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(a.figures().shards[0].docs, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn deletions_during_a_flush_are_as_old_as_they_are() {
    let node = Node::new(256 << 20);
    let engine = node.open().await;
    let ops = (0..10).map(|id| index_op("a", Some(&format!("{id}")), r#"{"v":1}"#)).collect();
    assert!(write(&engine, ops).await.iter().all(Result::is_ok));
    let a = engine.index("a").unwrap();
    engine.flush(&[Arc::clone(&a)]).await.unwrap();
    let delete = async |id: u32| {
        let ops = vec![op("a", Some(&format!("{id}")), Action::Delete)];
        assert!(write(&engine, ops).await.iter().all(Result::is_ok));
    };
    delete(0).await;
    node.commits(WAITS);
    // It is old enough to be flushed.
    node.clock.advance_ms(600_000);
    while node.catalog.waiting.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    node.clock.advance_ms(1_000);
    delete(1).await;
    node.commits(WORKS);
    let figures = || a.figures().shards.remove(0);
    while figures().log_operations != 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(figures().log_since_ms, Some(START_MS + 600_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn mappings_that_only_the_log_has_are_stored_together() {
    let mut node = Node::new(256 << 20);
    let engine = node.open().await;
    let body = serde_json::json!({});
    let name = |n: u32| format!("i{n}");
    for n in 0..250 {
        let create =
            |m: &millrace_catalog::metadata::Metadata| m.create_index(&name(n), &body, 0, Uuid::new_v4());
        engine.change(&Principal::system(), create).await.unwrap();
        let field = serde_json::json!({"properties": {"k": {"type": "keyword"}}});
        engine.put_mapping(&Principal::system(), &name(n), &field).await.unwrap();
    }
    let padding = format!(r#"{{"p":"{}"}}"#, "x".repeat(60_000));
    for _ in 0..4 {
        assert!(write(&engine, vec![index_op("a", None, &padding)]).await.iter().all(Result::is_ok));
    }
    let a = engine.index("a").unwrap();
    engine.flush(&[Arc::clone(&a)]).await.unwrap();
    let counts = |node: &Node| {
        let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        (of(&node.catalog.of_mappings), of(&node.catalog.most_mappings))
    };
    assert_eq!(counts(&node), (2, 200));
    // The mapping that a flush has stored is not stored again.
    for _ in 0..4 {
        assert!(
            write(&engine, vec![index_op("a", None, &padding.replace("\"p\"", "\"q\""))])
                .await
                .iter()
                .all(Result::is_ok)
        );
    }
    engine.flush(&[Arc::clone(&a)]).await.unwrap();
    assert_eq!(counts(&node), (2, 200));
    drop((engine, a));
    node.restart();
    let engine = node.open().await;
    for n in 0..250 {
        assert!(engine.index(&name(n)).unwrap().mapping().field("k").is_some(), "{n}");
    }
}
