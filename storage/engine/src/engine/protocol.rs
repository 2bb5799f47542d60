//! The protocol of writes, cuts and commits under a model checker, which decides who goes on at every lock.
//!
//! What runs is the engine as it is shipped, from requests to recovery. Only what it waits on is the checker's: locks
//! and threads ([`millrace_runtime::sync::model`]), a simulated disk that loses power, and a catalog whose calls take a while.
//! Each check is played with a defect in its place as well, which it has to find.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use millrace_catalog::access::Principal;
use millrace_catalog::metadata::{IndicesOptions, MetadataChange};
use millrace_catalog::{AccountChange, AccountRecord, Catalog, Commit, MemoryCatalog, State};
use millrace_runtime::disk::SimulatedDisk;
use millrace_runtime::sync::model::{Mutant, Runtime, ThreadBody, with_mutant};
use millrace_runtime::{ManualClock, Result};
use parking_lot::Mutex;
use serde_json::{Value, json};
use shuttle::future::block_on;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use uuid::Uuid;

use super::{Action, Engine, FeedItem, Inner, RefreshPolicy, WriteOp, recovery};
use crate::Config;

/// Seed of the schedules: a failure is found again.
const SEED: u64 = 20_260;
/// Changes of priorities in a schedule.
const CHANGES: usize = 3;
/// Stack of a thread: segments are built on them.
const STACK_BYTES: usize = 2 << 20;

/// A catalog with one connection, whose calls end once others have gone on.
#[derive(Debug)]
struct SlowCatalog {
    memory: MemoryCatalog,
    connection: tokio::sync::Mutex<()>,
}

impl SlowCatalog {
    async fn call<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let _one = self.connection.lock().await;
        shuttle::future::yield_now().await;
        let done = call.await;
        shuttle::future::yield_now().await;
        done
    }
}

#[async_trait]
impl Catalog for SlowCatalog {
    async fn load(&self) -> Result<State> {
        self.memory.load().await
    }

    async fn change(&self, changes: &[MetadataChange], mappings: &[(Uuid, Vec<u8>)]) -> Result<()> {
        self.call(self.memory.change(changes, mappings)).await
    }

    async fn restore(
        &self,
        changes: &[MetadataChange],
        mappings: &[(Uuid, Vec<u8>)],
        commit: &Commit,
    ) -> Result<()> {
        self.call(self.memory.restore(changes, mappings, commit)).await
    }

    async fn commit(&self, commit: &Commit) -> Result<()> {
        self.call(self.memory.commit(commit)).await
    }

    async fn put_store(&self, id: Uuid, claimed: bool, generation: u64) -> Result<()> {
        self.memory.put_store(id, claimed, generation).await
    }

    fn generation(&self) -> u64 {
        self.memory.generation()
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        self.memory.get(key).await
    }

    async fn put(&self, key: &str, value: &[u8]) -> Result<()> {
        self.memory.put(key, value).await
    }

    async fn accounts(&self) -> Result<Vec<AccountRecord>> {
        self.memory.accounts().await
    }

    async fn put_accounts(&self, changes: &[AccountChange]) -> Result<()> {
        self.memory.put_accounts(changes).await
    }

    async fn close(&self) {}
}

/// A machine that can lose its power.
struct Machine {
    disk: SimulatedDisk,
    catalog: Arc<SlowCatalog>,
}

impl Machine {
    fn new(disk: SimulatedDisk, memory: MemoryCatalog) -> Self {
        Self { disk, catalog: Arc::new(SlowCatalog { memory, connection: tokio::sync::Mutex::default() }) }
    }

    async fn open(&self, dir: &Path) -> Arc<Engine> {
        // A file of the log for each group of frames.
        self.open_with(dir, 0).await
    }

    async fn open_with(&self, dir: &Path, wal_max_bytes: u64) -> Arc<Engine> {
        let config =
            Config { data_dir: dir.to_owned(), wal_max_bytes, compute_threads: 1, ..Config::default() };
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        let catalog: Arc<dyn Catalog> = Arc::clone(&self.catalog) as Arc<dyn Catalog>;
        let inner: Arc<Inner> =
            recovery::open(config, clock, Arc::new(self.disk.clone()), Some(catalog), None, Arc::default())
                .await
                .unwrap();
        // Without upkeep: the checks do what it does.
        Arc::new(Engine {
            inner,
            upkeep: Mutex::default(),
            visibility: Default::default(),
            views: Default::default(),
        })
    }

    fn power_loss(self) -> Self {
        let disk = self.disk.power_loss();
        let memory = self.catalog.memory.reopen(disk.clone());
        Self::new(disk, memory)
    }
}

async fn create(engine: &Engine, index: &str) {
    let uuid = Uuid::from_u128(u128::from(index.as_bytes()[0]));
    let body = json!({"mappings": {"properties": {"v": {"type": "long"}}}});
    engine.change(&Principal::system(), |m| m.create_index(index, &body, 0, uuid)).await.unwrap();
}

/// Writes a document and returns the version that was acknowledged.
async fn write(engine: &Engine, index: &str, id: &str, source: &str) -> u64 {
    let op =
        WriteOp::new(index, Some(id.to_owned()), Action::Index(Bytes::copy_from_slice(source.as_bytes())));
    let wait = Duration::from_secs(1);
    let written = engine.write(&Principal::system(), vec![op], RefreshPolicy::None, wait).await.unwrap();
    written.into_iter().next().unwrap().unwrap().version
}

/// Runs a check under so many schedules: half of them at random, half by priorities that change seldom, so that a
/// thread is put off for long.
fn check(schedules: usize, run: impl Fn(&Path) + Copy + Send + Sync + 'static) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _context = runtime.enter();
    let mut config = shuttle::Config::new();
    config.stack_size = STACK_BYTES;
    config.failure_persistence = shuttle::FailurePersistence::None;
    config.silence_warnings = true;
    let run = move || {
        let dir = tempfile::tempdir().unwrap();
        run(dir.path());
    };
    let by_priority = PctScheduler::new_from_seed(SEED, CHANGES, schedules / 2);
    shuttle::Runner::new(by_priority, config.clone()).run(run);
    shuttle::Runner::new(RandomScheduler::new_from_seed(SEED, schedules / 2), config).run(run);
}

/// Asserts that a check finds a defect, and tells of it as `said`.
fn finds(mutant: Mutant, said: &str, schedules: usize, run: impl Fn(&Path) + Copy + Send + Sync + 'static) {
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        with_mutant(mutant, || check(schedules, run));
    }));
    let panic = found.expect_err("the defect was not found");
    let told = panic.downcast_ref::<String>().map_or("", String::as_str);
    assert!(told.contains(said), "{mutant:?}: {told}");
}

/// Documents come into two indices, and fields into the mapping of a third, while the log is cut; then the power is
/// lost. (What a mapping has in the log holds back no cut.)
fn writes_beside_cuts(dir: &Path) {
    let disk = SimulatedDisk::new(1);
    let machine = Machine::new(disk.clone(), MemoryCatalog::new(disk));
    let engine = block_on(machine.open(dir));
    for index in ["a", "b", "m"] {
        block_on(create(&engine, index));
    }
    let writers = ["a", "b"].map(|index| {
        let engine = Arc::clone(&engine);
        shuttle::thread::spawn(move || ((index, "1"), block_on(write(&engine, index, "1", r#"{"v":1}"#))))
    });
    let mapper = Arc::clone(&engine);
    let mapper = shuttle::thread::spawn(move || {
        for field in ["x", "y", "z"] {
            let body = json!({"properties": {field: {"type": "long"}}});
            block_on(mapper.put_mapping(&Principal::system(), "m", &body)).unwrap();
        }
    });
    let cutter = Arc::clone(&engine);
    let cutter = shuttle::thread::spawn(move || {
        for _ in 0..4 {
            block_on(cutter.inner.cut_log()).unwrap();
        }
    });
    let acknowledged = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    mapper.join().unwrap();
    cutter.join().unwrap();
    verify(machine, engine, dir, &acknowledged);
}

/// Loses the power and looks for everything that was acknowledged.
fn verify(
    machine: Machine,
    engine: Arc<Engine>,
    dir: &Path,
    acknowledged: &BTreeMap<(&'static str, &'static str), u64>,
) {
    let machine = machine.power_loss();
    drop(engine);
    let engine = block_on(machine.open(dir));
    if let Ok(index) = engine.index("m") {
        let mapping = index.mapping();
        assert!(["x", "y", "z"].iter().all(|field| mapping.field(field).is_some()), "a field is lost");
    }
    for ((index, id), version) in acknowledged {
        let found = block_on(engine.get(&Principal::system(), index, id, None, true)).unwrap();
        let found = found.unwrap_or_else(|| panic!("[{id}] of [{index}] is lost"));
        assert!(found.version >= *version, "[{id}] of [{index}] went back");
    }
}

/// Mappings and settings of one index are put, documents bring fields, all is flushed: on two threads.
fn changes_of_one_index(dir: &Path) {
    let disk = SimulatedDisk::new(1);
    let machine = Machine::new(disk.clone(), MemoryCatalog::new(disk));
    let engine = block_on(machine.open(dir));
    block_on(create(&engine, "a"));
    let mut tasks: Vec<ThreadBody> = Vec::new();
    for client in 0..2 {
        let (mapper, setter) = (Arc::clone(&engine), Arc::clone(&engine));
        tasks.push(Box::pin(async move {
            let body = json!({"properties": {format!("f{client}"): {"type": "long"}}});
            mapper.put_mapping(&Principal::system(), "a", &body).await.unwrap();
        }));
        tasks.push(Box::pin(async move {
            let body: Value = json!({"index.mapping.total_fields.limit": 2_000 + client});
            let options = IndicesOptions::open_only();
            let change =
                |m: &millrace_catalog::metadata::Metadata| m.update_settings("a", &options, &body, false, 0);
            setter.change(&Principal::system(), change).await.unwrap();
        }));
    }
    let writer = Arc::clone(&engine);
    tasks.push(Box::pin(async move {
        write(&writer, "a", "1", r#"{"new":1}"#).await;
        writer.inner.cut_log().await.unwrap();
    }));
    Runtime::start(2, tasks).join();
    let mapping = engine.index("a").unwrap().mapping();
    assert!(["f0", "f1", "new"].iter().all(|field| mapping.field(field).is_some()));
    drop(mapping);
    verify(machine, engine, dir, &BTreeMap::from([(("a", "1"), 1)]));
}

/// Documents are replaced while they are flushed and the log is cut and read; then the power is lost.
fn updates_beside_commits(dir: &Path) {
    let disk = SimulatedDisk::new(1);
    let machine = Machine::new(disk.clone(), MemoryCatalog::new(disk));
    let engine = block_on(machine.open(dir));
    block_on(create(&engine, "a"));
    block_on(write(&engine, "a", "1", r#"{"v":0}"#));
    let writer = {
        let engine = Arc::clone(&engine);
        shuttle::thread::spawn(move || {
            (2..4).map(|v| block_on(write(&engine, "a", "1", &format!(r#"{{"v":{v}}}"#)))).collect::<Vec<_>>()
        })
    };
    let reader = {
        let engine = Arc::clone(&engine);
        shuttle::thread::spawn(move || {
            let mut reader = engine.follow(Some(1)).unwrap();
            // A gap may come first; from then on nothing is missing.
            for step in 0..2 {
                match block_on(reader.next()).unwrap() {
                    FeedItem::Gap { .. } => assert_eq!(step, 0, "frames are lost within the lease"),
                    FeedItem::Frame(..) => {}
                }
            }
        })
    };
    let index = engine.index("a").unwrap();
    for _ in 0..2 {
        block_on(engine.flush(std::slice::from_ref(&index))).unwrap();
    }
    assert_eq!(writer.join().unwrap(), [2, 3]);
    reader.join().unwrap();
    drop(index);
    verify(machine, engine, dir, &BTreeMap::from([(("a", "1"), 3)]));
}

/// Two indices are flushed beside each other, by one request and by another, while fields and documents come; their
/// commits may share a transaction. Then the power is lost.
fn commits_beside_each_other(dir: &Path) {
    let disk = SimulatedDisk::new(1);
    let machine = Machine::new(disk.clone(), MemoryCatalog::new(disk));
    let engine = block_on(machine.open(dir));
    for index in ["a", "b"] {
        block_on(create(&engine, index));
        block_on(write(&engine, index, "1", r#"{"v":0}"#));
    }
    let writer = {
        let engine = Arc::clone(&engine);
        shuttle::thread::spawn(move || block_on(write(&engine, "b", "1", r#"{"v":1,"new":1}"#)))
    };
    let flusher = {
        let engine = Arc::clone(&engine);
        shuttle::thread::spawn(move || {
            let index = engine.index("b").unwrap();
            block_on(engine.flush(&[index])).unwrap();
        })
    };
    block_on(engine.flush(&engine.inner.all_indices())).unwrap();
    assert_eq!(writer.join().unwrap(), 2);
    flusher.join().unwrap();
    verify(machine, engine, dir, &BTreeMap::from([(("a", "1"), 1), (("b", "1"), 2)]));
}

/// A reader moves its named lease while documents come, are flushed, and the log is cut; then the power is lost.
fn leases_beside_cuts(dir: &Path) {
    // Files of a document each, and a bound on leases that is far.
    const LOG_BYTES: u64 = 4 << 10;
    let disk = SimulatedDisk::new(1);
    let machine = Machine::new(disk.clone(), MemoryCatalog::new(disk));
    let engine = block_on(machine.open_with(dir, LOG_BYTES));
    block_on(create(&engine, "a"));
    let taken = block_on(engine.take_lease("rules", None)).unwrap();
    let writer = {
        let engine = Arc::clone(&engine);
        let source = format!(r#"{{"v":1,"p":"{}"}}"#, "x".repeat(600));
        shuttle::thread::spawn(move || {
            for id in ["1", "2", "3"] {
                block_on(write(&engine, "a", id, &source));
            }
        })
    };
    let reader = {
        let engine = Arc::clone(&engine);
        shuttle::thread::spawn(move || {
            let mut reader = engine.follow(Some(taken.position)).unwrap();
            for _ in 0..3 {
                let item = block_on(reader.next()).unwrap();
                assert!(matches!(item, FeedItem::Frame(_)), "frames are lost: {item:?}");
                engine.move_lease("rules", reader.position()).unwrap();
            }
            reader.position()
        })
    };
    let index = engine.index("a").unwrap();
    block_on(engine.flush(std::slice::from_ref(&index))).unwrap();
    writer.join().unwrap();
    let moved = reader.join().unwrap();
    block_on(engine.flush(std::slice::from_ref(&index))).unwrap();
    let machine = machine.power_loss();
    drop((engine, index));
    let engine = block_on(machine.open_with(dir, LOG_BYTES));
    let lease = engine.lease("rules").expect("the lease is lost");
    assert!((taken.position..=moved).contains(&lease.position), "{lease:?}, moved to {moved}");
    let mut reader = engine.follow(Some(lease.position)).unwrap();
    while reader.position() < moved {
        let item = block_on(reader.next()).unwrap();
        assert!(matches!(item, FeedItem::Frame(_)), "frames are lost: {item:?}");
    }
    verify(machine, engine, dir, &["1", "2", "3"].map(|id| (("a", id), 1)).into());
}

#[test]
fn a_lease_never_begins_before_the_log_does() {
    check(40, leases_beside_cuts);
    finds(Mutant::UnsavedLeases, "frames are lost", 400, leases_beside_cuts);
}

#[test]
fn nothing_acknowledged_is_cut_away() {
    check(300, writes_beside_cuts);
    finds(Mutant::DurableIsApplied, "is lost", 2_000, writes_beside_cuts);
}

#[test]
fn changes_of_an_index_never_wait_in_a_circle() {
    check(300, changes_of_one_index);
    finds(Mutant::BlockingMappingChange, "deadlock", 1_000, changes_of_one_index);
}

#[test]
fn updates_survive_commits_in_any_order() {
    check(40, updates_beside_commits);
    check(40, commits_beside_each_other);
}
