//! Power loss and kill at every operation of the disk while snapshots are made, cloned, restored and deleted: each listed snapshot is
//! whole afterwards, and each acknowledged one is there.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_catalog::access::Principal;
use millrace_catalog::metadata::RESTORE_PENDING;
use millrace_catalog::{Catalog, MemoryCatalog};
use millrace_engine::{Config as EngineConfig, Engine};
use millrace_runtime::disk::{Disk, SimulatedDisk};
use millrace_runtime::{Error, ManualClock, Result};
use millrace_snapshot::{
    Config, CreateSnapshot, RestoreSnapshot, SelectionOptions, SnapshotFilter, SnapshotService, SnapshotState,
};
use serde_json::json;

use crate::support::*;

/// End of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunEnd {
    PowerLoss,
    Kill,
}

/// A machine whose disk holds the store and the repository.
struct Machine {
    disk: SimulatedDisk,
    catalog: Arc<MemoryCatalog>,
    clock: Arc<ManualClock>,
    dir: tempfile::TempDir,
}

impl Machine {
    fn new(seed: u64) -> Self {
        let disk = SimulatedDisk::new(seed);
        let machine = Self {
            catalog: Arc::new(MemoryCatalog::new(disk.clone())),
            disk,
            clock: Arc::new(ManualClock::new(1_700_000_000_000)),
            dir: tempfile::tempdir().unwrap(),
        };
        machine.make_scratch();
        machine
    }

    /// Makes the directory of fetched files, which a start makes on the real disk alone.
    fn make_scratch(&self) {
        self.disk.create_dir_all(&self.dir.path().join("scratch")).unwrap();
    }

    async fn open(&self) -> Result<Arc<Engine>> {
        let catalog: Arc<dyn Catalog> = Arc::clone(&self.catalog) as Arc<dyn Catalog>;
        loop {
            let data_dir = self.dir.path().to_owned();
            let config = EngineConfig { data_dir, compute_threads: 1, ..EngineConfig::default() };
            let disk = Arc::new(self.disk.clone());
            match Engine::open_with(config, self.clock.clone(), disk, Arc::clone(&catalog)).await {
                // The scratch directory is a real one, and the killed process writes there for a moment.
                Err(Error::Io { operation: "empty scratch directory", .. }) => {
                    tokio::task::yield_now().await;
                }
                opened => return opened,
            }
        }
    }

    async fn service(&self, engine: &Arc<Engine>) -> SnapshotService {
        let config = Config { path_repo: vec![self.dir.path().join("backups")], ..Config::default() };
        SnapshotService::open(Arc::clone(engine), config).await.unwrap()
    }

    async fn restart(&mut self, end: RunEnd) -> (Arc<Engine>, SnapshotService) {
        self.disk = match end {
            RunEnd::PowerLoss => self.disk.power_loss(),
            RunEnd::Kill => self.disk.kill(),
        };
        self.catalog = Arc::new(self.catalog.reopen(self.disk.clone()));
        self.make_scratch();
        let engine = self.open().await.unwrap();
        let service = self.service(&engine).await;
        (engine, service)
    }
}

/// Documents of an index by their ids.
type Documents = BTreeMap<String, u32>;

/// Steps that were acknowledged before the crash.
#[derive(Clone, Copy, Debug, Default)]
struct Acknowledged {
    created: bool,
    cloned: bool,
    restored: bool,
    deleted: bool,
}

impl Acknowledged {
    /// Runs the steps; `early` restores are searched before they are copied.
    async fn run(service: &SnapshotService, early: bool) -> Self {
        let system = Principal::system();
        let copies = RestoreSnapshot {
            rename_pattern: Some("(.+)".to_owned()),
            rename_replacement: Some("copy-$1".to_owned()),
            early_search_bytes: if early { 0 } else { u64::MAX },
            ..RestoreSnapshot::default()
        };
        let created = service.create(&system, ("backup", "two"), CreateSnapshot::default()).await;
        let cloned =
            service.clone_snapshot("backup", "one", "three", ("logs", SelectionOptions::default())).await;
        let restored = service.restore(&system, ("backup", "one"), copies).await;
        let deleted = service.delete("backup", "one").await;
        Self {
            created: created.is_ok(),
            cloned: cloned.is_ok(),
            restored: restored.is_ok(),
            deleted: deleted.is_ok(),
        }
    }

    fn check(self, names: &[String], context: &str) {
        let is_listed = |name: &str| names.iter().any(|listed| listed == name);
        assert!(!self.created || is_listed("two"), "{context}: an acknowledged snapshot is lost");
        assert!(!self.cloned || is_listed("three"), "{context}: an acknowledged clone is lost");
        assert!(!self.deleted || !is_listed("one"), "{context}: a deleted snapshot is back");
    }
}

/// Checks that each listed snapshot is whole; returns their names.
async fn check_snapshots(
    engine: &Arc<Engine>,
    service: &SnapshotService,
    (first, second): (&Documents, &Documents),
    context: &str,
) -> Vec<String> {
    let filter = SnapshotFilter { expression: "_all".to_owned(), ignore_unavailable: false };
    let listed = service.manifests("backup", &filter).await.unwrap();
    let mut names = Vec::new();
    for manifest in listed {
        assert_eq!(manifest.state, SnapshotState::Success, "{context}");
        let request = RestoreSnapshot {
            rename_pattern: Some("(.+)".to_owned()),
            rename_replacement: Some("again-$1".to_owned()),
            ..RestoreSnapshot::default()
        };
        let expected = match manifest.snapshot.as_str() {
            "one" | "three" => first,
            _ => second,
        };
        let snapshot = ("backup", manifest.snapshot.as_str());
        let restored = service.restore(&Principal::system(), snapshot, request).await;
        restored.unwrap_or_else(|error| panic!("{context}: [{}] is not whole: {error}", manifest.snapshot));
        check(engine, "again-logs", expected).await;
        delete_index(engine, "again-logs").await;
        if engine.metadata().index("again-copy-logs").is_some() {
            delete_index(engine, "again-copy-logs").await;
        }
        names.push(manifest.snapshot);
    }
    names
}

/// Waits until a start has gone on with the copies of a restore.
async fn wait_for_copies(engine: &Arc<Engine>) {
    let is_pending = || engine.metadata().index("copy-logs").is_some_and(|meta| meta.flag(RESTORE_PENDING));
    while is_pending() {
        tokio::task::yield_now().await;
    }
}

/// Crashes after so many operations of the disk; returns whether the run lasted as long.
async fn crash_once(seed: u64, after: u64) -> bool {
    let end = if seed.wrapping_add(after).is_multiple_of(2) { RunEnd::Kill } else { RunEnd::PowerLoss };
    let mut machine = Machine::new(seed ^ (after << 20));
    let engine = machine.open().await.unwrap();
    let service = machine.service(&engine).await;
    let body = json!({"type": "fs", "settings": {"location": "one"}});
    service.put_repository("backup", &body, true).await.unwrap();
    let mut first = Documents::new();
    fill(&engine, "logs", 0..20, 1, &mut first).await;
    create(&service, "one").await;
    let mut second = first.clone();
    fill(&engine, "logs", 15..30, 2, &mut second).await;
    delete(&engine, "logs", "d3", &mut second).await;
    flush(&engine, "logs").await;
    machine.disk.crash_after(after);
    let acknowledged = Acknowledged::run(&service, (after / 2).is_multiple_of(2)).await;
    let has_crashed = machine.disk.crashed();
    drop((service, engine));

    let (engine, service) = machine.restart(end).await;
    let context = format!("seed {seed}, {after} operations, {end:?}, {acknowledged:?}");
    check(&engine, "logs", &second).await;
    let names = check_snapshots(&engine, &service, (&first, &second), &context).await;
    acknowledged.check(&names, &context);
    match engine.metadata().index("copy-logs") {
        Some(_) => {
            // Fetched files of a cache are on a real disk, which this machine does not have.
            wait_for_copies(&engine).await;
            check(&engine, "copy-logs", &first).await;
        }
        None => assert!(!acknowledged.restored, "{context}: an acknowledged restore is lost"),
    }
    service.cleanup_repository("backup").await.unwrap();
    let late = create(&service, "late").await;
    assert_eq!(late.state, SnapshotState::Success);
    drop((service, engine));

    // A kill has left names that are not durable; the last snapshot may count on none of them.
    let (engine, service) = machine.restart(RunEnd::PowerLoss).await;
    let names = check_snapshots(&engine, &service, (&first, &second), &context).await;
    acknowledged.check(&names, &context);
    assert!(names.iter().any(|name| name == "late"), "{context}: an acknowledged snapshot is lost");
    wait_for_copies(&engine).await;
    while matches!(service.delete("backup", "*").await, Err(millrace_snapshot::Error::Concurrent { .. })) {
        tokio::task::yield_now().await;
    }
    service.cleanup_repository("backup").await.unwrap();
    let contents = machine.dir.path().join("backups/one/contents");
    // Directories may be left: a crash comes between one and its file.
    for directory in machine.disk.list(&contents).unwrap() {
        let left = machine.disk.list(&contents.join(&directory)).unwrap();
        assert!(left.is_empty(), "{context}: {left:?} are left in {}", directory.display());
    }
    has_crashed
}

/// Variable with the number of seeds; with it the crash comes behind each operation.
const SEEDS: &str = "MILLRACE_CRASH_SEEDS";
/// Operations between two crashes without [`SEEDS`]. The first one is random, so that all have their turn in some run.
const STEP: u64 = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_at_any_operation_leaves_whole_snapshots() {
    let seeds: Option<u64> = std::env::var(SEEDS).ok().and_then(|seeds| seeds.parse().ok());
    let (first, step) = match seeds {
        Some(_) => (0, 1),
        None => (u64::from(uuid::Uuid::new_v4().as_bytes()[0]) % STEP, STEP),
    };
    for seed in 1..=seeds.unwrap_or(1) {
        let mut after = first;
        while crash_once(seed, after).await {
            after += step;
        }
        assert!(after > 60, "{after} operations");
    }
}
