//! A store whose objects lie in a service that misbehaves: what was acknowledged stays, and nothing comes back.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_catalog::access::Principal;
use millrace_catalog::{Catalog, MemoryCatalog};
use millrace_runtime::clock::{Clock, ManualClock, SharedClock, SystemClock};
use millrace_runtime::disk::{Disk, SimulatedDisk, SystemDisk};
use millrace_runtime::{Error, Result};
use millrace_segment::RowParts;
use millrace_segment::objects::Objects;
use millrace_segment::objects::unreliable::Unreliable;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::{Action, Engine, RefreshPolicy, WriteOp, recovery};
use super::unsupported::log_mapping;
use crate::{Config, NodeFault, Session, ShardFault};

/// Ids of documents.
const IDS: u64 = 40;
/// Seeds of an ordinary run; `MILLRACE_OBJECT_STORE_SEEDS` asks for more.
const SEEDS: u64 = 50;
/// Steps of a seed.
const STEPS: usize = 40;

/// A machine beside an object store.
struct Machine {
    store: Unreliable,
    disk: SimulatedDisk,
    catalog: Arc<MemoryCatalog>,
    clock: Arc<ManualClock>,
    dir: tempfile::TempDir,
}

impl Machine {
    fn new(seed: u64) -> Self {
        let disk = SimulatedDisk::new(seed);
        Self {
            store: Unreliable::new(seed),
            catalog: Arc::new(MemoryCatalog::new(disk.clone())),
            disk,
            // Objects have the times of the real clock.
            clock: Arc::new(ManualClock::new(SystemClock.now_ms())),
            dir: tempfile::tempdir().unwrap(),
        }
    }

    async fn try_open(&self) -> Result<Arc<Engine>> {
        open(self.dir.path(), self).await
    }

    async fn open(&self) -> Arc<Engine> {
        self.try_open().await.unwrap()
    }

    /// Ends the process; requests that it has made may still be carried out.
    fn kill(&mut self, engine: Arc<Engine>) {
        self.store = self.store.kill();
        self.disk = self.disk.kill();
        self.catalog = Arc::new(self.catalog.reopen(self.disk.clone()));
        drop(engine);
    }
}

async fn open(dir: &Path, machine: &Machine) -> Result<Arc<Engine>> {
    let disk: Arc<dyn Disk> = Arc::new(machine.disk.clone());
    loop {
        let config = Config { data_dir: dir.to_owned(), compute_threads: 1, ..Config::default() };
        let objects = Objects::remote(Arc::new(machine.store.clone()), Arc::new(SystemDisk));
        let catalog = Arc::clone(&machine.catalog) as Arc<dyn Catalog>;
        let clock = machine.clock.clone();
        let opening =
            recovery::open(config, clock, Arc::clone(&disk), Some(catalog), Some(objects), Arc::default());
        match opening.await {
            // What was killed goes on for a moment in the real directories of scratch and cache.
            Err(Error::Io { .. }) => tokio::time::sleep(Duration::from_millis(1)).await,
            Err(error) => return Err(error),
            Ok(inner) => return Engine::start(inner),
        }
    }
}

fn put(id: impl ToString, value: u64) -> WriteOp {
    let source = format!(r#"{{"v":{value}}}"#);
    WriteOp::new("a", Some(id.to_string()), Action::Index(Bytes::from(source)))
}

fn delete(id: impl ToString) -> WriteOp {
    WriteOp::new("a", Some(id.to_string()), Action::Delete)
}

async fn write(engine: &Engine, ops: Vec<WriteOp>) -> Vec<Result<()>> {
    let wait = Duration::from_secs(5);
    let written = engine.write(&Principal::system(), ops, RefreshPolicy::None, wait).await;
    written.unwrap().into_iter().map(|outcome| outcome.map(drop)).collect()
}

async fn flush(engine: &Engine) -> Result<()> {
    engine.flush(&[engine.index("a").unwrap()]).await
}

async fn create(engine: &Engine, name: &str) -> Result<()> {
    let body = json!({"mappings": {"properties": {"v": {"type": "long"}}}});
    engine.change(&Principal::system(), |state| state.create_index(name, &body, 0, Uuid::new_v4())).await
}

/// Returns the visible documents: ids with their values, each once.
async fn searched(engine: &Engine) -> BTreeMap<String, u64> {
    let index = engine.index("a").unwrap();
    engine.refresh(&[Arc::clone(&index)]).await.unwrap();
    let mut found = BTreeMap::new();
    for shard in index.snapshot().await.unwrap().shards {
        for view in shard.segments {
            let rows: Vec<u32> =
                (0..view.segment.rows()).filter(|row| !view.deleted.contains(*row)).collect();
            for row in view.segment.fetch(&rows, RowParts::ALL).await.unwrap() {
                let source: Value = serde_json::from_slice(&row.source).unwrap();
                let twice = found.insert(row.id.clone(), source["v"].as_u64().unwrap());
                assert!(twice.is_none(), "[{}] is there twice", row.id);
            }
        }
    }
    found
}

async fn value(engine: &Engine, id: &str) -> Result<Option<u64>> {
    let found = engine.get(&Principal::system(), "a", id, None, true).await?;
    Ok(found.map(|doc| serde_json::from_slice::<Value>(&doc.source).unwrap()["v"].as_u64().unwrap()))
}

/// Waits until the shard is in use.
async fn in_use(engine: &Engine) {
    for _ in 0..600 {
        if engine.index("a").unwrap().faults() != [Some(ShardFault::Damaged)] {
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let damage = engine.index("a").unwrap().snapshot().await.err();
    panic!("the shard stays out of use although the object store is well: {damage:?}");
}

async fn check(engine: &Engine, model: &BTreeMap<String, u64>, told: &str) {
    in_use(engine).await;
    assert_eq!(&searched(engine).await, model, "{told}");
    for id in (0..IDS).map(|id| id.to_string()) {
        assert_eq!(value(engine, &id).await.unwrap(), model.get(&id).copied(), "[{id}] {told}");
    }
}

/// Random requests to a store whose object store misbehaves, with restarts in between.
async fn run(seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut machine = Machine::new(seed);
    let mut engine = machine.open().await;
    create(&engine, "a").await.unwrap();
    let mut model: BTreeMap<String, u64> = BTreeMap::new();
    for step in 0..STEPS as u64 {
        let faults = [0, 50, 200, 600][rng.random_range(0..4)];
        machine.store.set_faults(faults);
        let told = format!("seed {seed}, step {step}");
        match rng.random_range(0..100) {
            0..50 => {
                let ops: Vec<(String, bool)> = (0..rng.random_range(1..12))
                    .map(|_| (rng.random_range(0..IDS).to_string(), rng.random_range(0..3) > 0))
                    .collect();
                let value = |at: usize| step * 100 + at as u64;
                let asked = ops.iter().enumerate();
                let asked = asked.map(|(at, (id, puts))| if *puts { put(id, value(at)) } else { delete(id) });
                let written = write(&engine, asked.collect()).await;
                for (at, ((id, puts), outcome)) in ops.into_iter().zip(written).enumerate() {
                    match outcome {
                        Ok(()) if puts => drop(model.insert(id, value(at))),
                        Ok(()) => drop(model.remove(&id)),
                        // What is refused has not happened.
                        Err(_) => {}
                    }
                }
            }
            50..75 => drop(flush(&engine).await),
            75..80 => {
                let index = engine.index("a").unwrap();
                drop(engine.force_merge(&[index], 1).await);
            }
            80..85 => {
                // Orphans come to their time.
                machine.clock.advance_ms(25 * 60 * 60 * 1000);
                tokio::time::sleep(Duration::from_secs(15)).await;
            }
            _ => {
                if rng.random_range(0..3) == 0 {
                    drop(tokio::time::timeout(Duration::from_secs(60), engine.shutdown()).await);
                }
                machine.kill(engine);
                let mut attempts = 0;
                engine = loop {
                    match machine.try_open().await {
                        Ok(engine) => break engine,
                        Err(error) => {
                            attempts += 1;
                            assert!(faults > 0 && attempts < 100, "{told}: {error}");
                            if attempts == 3 {
                                machine.store.set_faults(0);
                            }
                            machine.store = machine.store.kill();
                            machine.disk = machine.disk.kill();
                            machine.catalog = Arc::new(machine.catalog.reopen(machine.disk.clone()));
                        }
                    }
                };
            }
        }
        // What is answered is right, whatever the object store does.
        let id = rng.random_range(0..IDS).to_string();
        if let Ok(found) = value(&engine, &id).await {
            assert_eq!(found, model.get(&id).copied(), "[{id}] {told}");
        }
        if rng.random_range(0..4) == 0 {
            machine.store.set_faults(0);
            check(&engine, &model, &told).await;
        }
    }
    machine.store.set_faults(0);
    machine.store.carry_out_late().await;
    check(&engine, &model, &format!("seed {seed}, at the end")).await;
    machine.kill(engine);
    let engine = machine.open().await;
    check(&engine, &model, &format!("seed {seed}, after the last start")).await;
    flush(&engine).await.unwrap();
    check(&engine, &model, &format!("seed {seed}, after the last flush")).await;
}

#[test]
fn acknowledged_writes_and_deletions_survive_an_object_store_that_misbehaves() {
    let variable = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let first = variable("MILLRACE_OBJECT_STORE_SEED").unwrap_or(0);
    let seeds = variable("MILLRACE_OBJECT_STORE_SEEDS").unwrap_or(SEEDS);
    for seed in first..first + seeds {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().start_paused(true).build().unwrap().block_on(run(seed));
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_write_of_deletions_undoes_none_of_a_later_commit() {
    let mut machine = Machine::new(1);
    let engine = machine.open().await;
    create(&engine, "a").await.unwrap();
    write(&engine, (0..100).map(|id| put(id, id)).collect()).await;
    flush(&engine).await.unwrap();
    machine.store.hold(".roaring");
    write(&engine, (0..10).map(delete).collect()).await;
    flush(&engine).await.unwrap_err();
    write(&engine, (10..20).map(delete).collect()).await;
    write(&engine, (20..28).map(|id| put(id, id + 1000)).collect()).await;
    flush(&engine).await.unwrap();
    let before = searched(&engine).await;
    assert_eq!(before.len(), 80);
    machine.store.carry_out_late().await;
    machine.kill(engine);
    let engine = machine.open().await;
    assert_eq!(searched(&engine).await, before);
    // What the late write left is an orphan, which goes once it is a day old.
    let deletes = async || {
        let paths = machine.store.paths().await;
        paths.into_iter().filter(|path| path.ends_with(".roaring")).collect::<Vec<_>>()
    };
    assert_eq!(deletes().await.len(), 2);
    machine.clock.advance_ms(25 * 60 * 60 * 1000);
    while deletes().await.len() > 1 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    machine.kill(engine);
    assert_eq!(searched(&*machine.open().await).await, before);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_answer_at_the_start_puts_a_shard_out_of_use_until_it_is_right() {
    let mut machine = Machine::new(2);
    let engine = machine.open().await;
    create(&engine, "a").await.unwrap();
    write(&engine, (0..40).map(|id| put(id, id)).collect()).await;
    flush(&engine).await.unwrap();
    write(&engine, (0..5).map(delete).collect()).await;
    flush(&engine).await.unwrap();
    // Only the log has these.
    write(&engine, (5..8).map(delete).chain([put(9, 99), put(70, 70)]).collect()).await;
    let before = searched(&engine).await;
    machine.kill(engine);
    machine.store.hide(Some(".roaring"));
    let engine = machine.open().await;
    assert_eq!(engine.index("a").unwrap().faults(), [Some(ShardFault::Damaged)]);
    value(&engine, "9").await.unwrap_err();
    assert!(write(&engine, vec![put(1, 1)]).await.remove(0).is_err());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(engine.index("a").unwrap().faults(), [Some(ShardFault::Damaged)]);
    machine.store.hide(None);
    in_use(&engine).await;
    assert_eq!(searched(&engine).await, before);
    assert_eq!((value(&engine, "6").await.unwrap(), value(&engine, "9").await.unwrap()), (None, Some(99)));
    write(&engine, vec![put(6, 6), delete(70)]).await.into_iter().collect::<Result<Vec<()>>>().unwrap();
    flush(&engine).await.unwrap();
    let before = searched(&engine).await;
    machine.kill(engine);
    assert_eq!(searched(&*machine.open().await).await, before);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_shard_of_an_unsupported_index_stays_out_of_use_and_keeps_its_log() {
    let mut machine = Machine::new(3);
    let engine = machine.open().await;
    create(&engine, "a").await.unwrap();
    write(&engine, (0..40).map(|id| put(id, id)).collect()).await;
    flush(&engine).await.unwrap();
    write(&engine, (0..5).map(delete).collect()).await;
    flush(&engine).await.unwrap();
    // Only the log has these.
    write(&engine, vec![put(9, 99)]).await;
    let frame = log_mapping(&engine, "a").await;
    machine.kill(engine);
    machine.store.hide(Some(".roaring"));
    let engine = machine.open().await;
    let faults = || engine.index("a").unwrap().faults();
    assert_eq!(faults(), [Some(ShardFault::Unsupported)]);
    machine.store.hide(None);
    engine.inner.restore_damaged_soon();
    // The attempt has the lock until it ends.
    assert!(engine.inner.damaged.lock().await.is_empty());
    assert_eq!(faults(), [Some(ShardFault::Unsupported)]);
    engine.inner.cut_log().await.unwrap();
    assert!(engine.inner.wal().unwrap().first_frame() < frame);
    machine.kill(engine);
    let engine = machine.open().await;
    assert_eq!(engine.index("a").unwrap().faults(), [Some(ShardFault::Unsupported)]);
}

/// Opens a store on the real disk, without background work.
async fn open_at(dir: &Path, store: &Unreliable) -> Result<Engine> {
    open_by(dir, store, Arc::new(SystemClock)).await
}

async fn open_by(dir: &Path, store: &Unreliable, clock: SharedClock) -> Result<Engine> {
    let config = Config { data_dir: dir.to_owned(), compute_threads: 1, ..Config::default() };
    let disk: Arc<dyn Disk> = Arc::new(SystemDisk);
    let objects = Objects::remote(Arc::new(store.clone()), Arc::clone(&disk));
    let inner = recovery::open(config, clock, disk, None, Some(objects), Arc::default());
    Ok(Engine {
        inner: inner.await?,
        upkeep: Mutex::default(),
        visibility: Default::default(),
        views: Default::default(),
    })
}

/// Copies a directory and what is below it, but for the lock.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else if entry.file_name() != "lock" {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_writers_the_later_one_goes_on_and_the_other_deletes_nothing() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Unreliable::new(3);
    let first = open_at(dir.path(), &store).await.unwrap();
    create(&first, "a").await.unwrap();
    for part in 0..3 {
        write(&first, (part * 10..part * 10 + 10).map(|id| put(id, id)).collect()).await;
        flush(&first).await.unwrap();
    }
    copy(dir.path(), other.path());
    let second = open_at(other.path(), &store).await.unwrap();
    let mut wanted = searched(&second).await;
    assert_eq!(wanted.len(), 30);
    // The first does not know yet. What it replaces stays, for the second has it.
    write(&first, vec![put(1, 500)]).await.remove(0).unwrap();
    flush(&first).await.unwrap();
    first.force_merge(&[first.index("a").unwrap()], 1).await.unwrap();
    first.inner.note_generation().await;
    let system = Principal::system();
    assert_eq!((first.troubles(), second.troubles()), (vec![NodeFault::OwnershipLost], vec![]));
    let refused = first.write(&system, vec![put(2, 2)], RefreshPolicy::None, Duration::ZERO).await;
    assert!(matches!(refused, Err(Error::Stopped(_))), "{refused:?}");
    assert!(matches!(create(&first, "b").await, Err(Error::Stopped(_))));
    assert!(matches!(first.put_accounts(&[]).await, Err(Error::Stopped(_))));
    assert!(matches!(first.put_secret("a", b"b").await, Err(Error::Stopped(_))));
    let first = Arc::new(first);
    let refreshed = Session::system(&first).refresh(&[first.index("a").unwrap()]).await;
    assert!(matches!(refreshed, Err(Error::Stopped(_))), "{refreshed:?}");
    assert!(matches!(first.inner.env().objects.delete_all(&"x".into()).await, Err(Error::Stopped(_))));
    assert_eq!(first.index("a").unwrap().faults(), [Some(ShardFault::Failing)]);
    write(&second, vec![put(2, 700)]).await.remove(0).unwrap();
    flush(&second).await.unwrap();
    second.force_merge(&[second.index("a").unwrap()], 1).await.unwrap();
    wanted.insert("2".to_owned(), 700);
    assert_eq!(searched(&second).await, wanted);
    second.shutdown().await.unwrap();
}

/// Opens a store whose claims of the object store fail until it is open; the first of them is carried out late, where asked.
async fn open_unclaimed(dir: &Path, store: &Unreliable, clock: &Arc<ManualClock>, late: bool) -> Engine {
    if late {
        store.hold("generation.json");
    }
    store.refuse(Some("generation.json"));
    let engine = open_by(dir, store, clock.clone()).await.unwrap();
    store.refuse(None);
    engine
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_failed_at_the_start_is_made_later_unless_a_later_start_was_faster() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, clock) = (Unreliable::new(7), Arc::new(ManualClock::new(SystemClock.now_ms())));
    let engine = open_by(dir.path(), &store, clock.clone()).await.unwrap();
    create(&engine, "a").await.unwrap();
    drop(engine);
    // Nobody came: it claims when it can.
    clock.advance_ms(1);
    let alone = open_unclaimed(dir.path(), &store, &clock, false).await;
    alone.inner.identity.ownership.watch().await.unwrap();
    drop(alone);
    // The claim of an earlier process is carried out behind the start of this one.
    drop(open_unclaimed(dir.path(), &store, &clock, true).await);
    clock.advance_ms(1);
    let first = open_unclaimed(dir.path(), &store, &clock, false).await;
    store.carry_out_late().await;
    first.inner.identity.ownership.watch().await.unwrap();
    drop(first);
    // Another starts later, and is faster.
    copy(dir.path(), other.path());
    clock.advance_ms(1);
    let slow = open_unclaimed(dir.path(), &store, &clock, false).await;
    clock.advance_ms(1);
    let second = open_by(other.path(), &store, clock.clone()).await.unwrap();
    assert!(matches!(slow.inner.identity.ownership.watch().await, Err(Error::Stopped(_))));
    assert_eq!(slow.troubles(), [NodeFault::OwnershipLost]);
    second.inner.identity.ownership.watch().await.unwrap();
    write(&second, vec![put(1, 1)]).await.remove(0).unwrap();
    assert!(second.troubles().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_before_a_deletion_of_objects_is_refused() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Unreliable::new(5);
    let engine = open_at(dir.path(), &store).await.unwrap();
    create(&engine, "a").await.unwrap();
    for part in 0..3 {
        write(&engine, (part * 10..part * 10 + 10).map(|id| put(id, id)).collect()).await;
        flush(&engine).await.unwrap();
    }
    copy(dir.path(), other.path());
    let segments = async || store.paths().await.iter().filter(|path| path.ends_with("data.parquet")).count();
    assert_eq!(segments().await, 3);
    engine.force_merge(&[engine.index("a").unwrap()], 1).await.unwrap();
    while segments().await > 1 {
        tokio::task::yield_now().await;
    }
    let refused = open_at(other.path(), &store).await.err();
    assert!(matches!(refused, Some(Error::Mismatch { .. })), "{refused:?}");
    assert_eq!(searched(&engine).await.len(), 30);
    // An attempt of an earlier process that is carried out late is no other writer.
    let late = json!({"store": Uuid::from_u128(1), "generation": 0});
    engine.inner.env().objects.put(&"generation.json".into(), late.to_string().into()).await.unwrap();
    engine.inner.identity.ownership.watch().await.unwrap();
    write(&engine, vec![put(1, 1)]).await.remove(0).unwrap();
    engine.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_hung_request_of_one_index_stops_no_other_change() {
    let machine = Machine::new(4);
    let engine = machine.open().await;
    create(&engine, "a").await.unwrap();
    machine.store.hang(Some("index.json"));
    let hung = {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move { create(&engine, "hung").await })
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    let alias = json!({"actions": [{"add": {"index": "a", "alias": "all"}}]});
    let alias = millrace_catalog::metadata::parse_alias_actions(&alias).unwrap();
    let settings = json!({"index": {"refresh_interval": "5s"}});
    let options = millrace_catalog::metadata::IndicesOptions::open_only();
    let changed = async {
        let system = Principal::system();
        let aliased = engine.change(&system, |state| state.update_aliases(&alias, 0)).await;
        let set =
            engine.change(&system, |state| state.update_settings("a", &options, &settings, false, 0)).await;
        aliased.and(set)
    };
    tokio::time::timeout(Duration::from_secs(10), changed).await.expect("changes wait").unwrap();
    assert!(!hung.is_finished());
    let twice = {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move { create(&engine, "hung").await })
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    machine.store.hang(None);
    let made = [hung.await.unwrap(), twice.await.unwrap()];
    assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 1, "{made:?}");
    assert!(made.iter().any(|made| matches!(made, Err(Error::IndexAlreadyExists { .. }))), "{made:?}");
    assert!(engine.index("hung").is_ok() && engine.metadata().alias_indices("all").is_some());
}

#[tokio::test(start_paused = true)]
async fn deletions_count_in_the_budget_while_they_cannot_be_stored() {
    let machine = Machine::new(6);
    let engine = machine.open().await;
    create(&engine, "a").await.unwrap();
    machine.store.set_faults(1000);
    let (empty, _) = engine.memtable_bytes();
    let mut written = 0;
    for part in 0..20 {
        let ops = (part * 500..part * 500 + 500).map(|id| delete(format!("gone-{id}")));
        written += write(&engine, ops.collect()).await.iter().filter(|done| done.is_ok()).count() as u64;
    }
    let (held, _) = engine.memtable_bytes();
    assert!(written > 0 && held - empty >= written * 100, "{written} deletions, {held} bytes");
    machine.store.set_faults(0);
    flush(&engine).await.unwrap();
    assert_eq!(engine.memtable_bytes().0, empty);
    engine.shutdown().await.unwrap();
}
