//! Power loss and kill at every operation of the disk during a mixed workload: after the restart,
//! every acknowledged operation is there exactly once, and searches agree with gets.

mod lease;
mod oracle;
mod source;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_catalog::access::Principal;
use millrace_catalog::metadata::{IndicesOptions, Uuid};
use millrace_catalog::{Catalog, MemoryCatalog};
use millrace_engine::{Action, Config, Engine, RefreshPolicy, Update, WriteOp, repair};
use millrace_runtime::disk::SimulatedDisk;
use millrace_runtime::{Error, ManualClock, Result};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;

use self::oracle::{Doc, Oracle, Pending, UncertainOperation, is_outage};
use crate::documents::{index_op, op};

/// Ids that clients choose from.
pub(crate) const IDS: u32 = 24;

/// A machine: its disk, what its catalog holds, and its data directory.
struct Machine {
    disk: SimulatedDisk,
    catalog: Arc<MemoryCatalog>,
    clock: Arc<ManualClock>,
    dir: tempfile::TempDir,
}

/// End of a run.
#[derive(Clone, Copy, Debug)]
enum RunEnd {
    PowerLoss,
    Kill,
}

impl Machine {
    fn new(seed: u64) -> Self {
        let disk = SimulatedDisk::new(seed);
        Self {
            catalog: Arc::new(MemoryCatalog::new(disk.clone())),
            disk,
            clock: Arc::new(ManualClock::new(1_700_000_000_000)),
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn config(dir: &Path) -> Config {
        Config {
            data_dir: dir.to_owned(),
            // Files of 64 KB, so that the log is cut often.
            wal_max_bytes: 512 << 10,
            compute_threads: 1,
            ..Config::default()
        }
    }

    async fn open(&self) -> Result<Arc<Engine>> {
        let catalog: Arc<dyn Catalog> = Arc::clone(&self.catalog) as Arc<dyn Catalog>;
        loop {
            let (config, disk) = (Self::config(self.dir.path()), Arc::new(self.disk.clone()));
            match Engine::open_with(config, self.clock.clone(), disk, Arc::clone(&catalog)).await {
                // The scratch directory is a real one, and what is killed here merges on for a moment.
                Err(Error::Io { operation: "clear scratch directory", .. }) => {
                    tokio::task::yield_now().await;
                }
                opened => return opened,
            }
        }
    }

    /// Puts a catalog in the place of the one there, made of log and objects.
    async fn lose_catalog(&mut self) {
        let catalog = Arc::new(MemoryCatalog::new(self.disk.clone()));
        let config = Self::config(self.dir.path());
        let lost: Arc<dyn Catalog> = Arc::clone(&catalog) as Arc<dyn Catalog>;
        match repair::rebuild(config, Arc::new(self.disk.clone()), lost).await {
            Ok(report) => {
                // Shown where the test fails.
                println!("{report}");
                self.catalog = catalog;
            }
            // It had not become a store yet.
            Err(Error::Mismatch { what, .. }) => assert!(what.starts_with("there is nothing"), "{what}"),
            Err(error) => panic!("{error}"),
        }
    }

    fn restart(&mut self, end: RunEnd) {
        self.disk = match end {
            RunEnd::PowerLoss => self.disk.power_loss(),
            RunEnd::Kill => self.disk.kill(),
        };
        self.catalog = Arc::new(self.catalog.reopen(self.disk.clone()));
    }
}

/// Makes requests and keeps the oracle.
struct Workload {
    rng: SmallRng,
    oracle: Oracle,
    next: u64,
    padding: usize,
}

impl Workload {
    fn new(seed: u64, padding: usize) -> Self {
        Self { rng: SmallRng::seed_from_u64(seed), oracle: Oracle::default(), next: 0, padding }
    }

    fn source(&mut self) -> String {
        self.next += 1;
        let n = self.next;
        // The mapping grows for as long as there are documents.
        let field = self.rng.random_range(0..=n / 4);
        let padding = "x".repeat(self.rng.random_range(0..=self.padding));
        format!(r#"{{"n":{n},"field{field}":{n},"text":"number {n}","padding":"{padding}"}}"#)
    }

    fn id(&mut self) -> String {
        format!("id-{}", self.rng.random_range(0..IDS))
    }

    /// One step; `Err` with what was under way when the disk failed.
    async fn step(&mut self, engine: &Arc<Engine>) -> Result<(), Option<Pending>> {
        let index = ["logs", "logs", "logs", "other"][self.rng.random_range(0..4)].to_owned();
        if !self.oracle.indices.contains_key(&index) {
            return self.create(engine, &index).await;
        }
        let this = || engine.index(&index).map(|index| vec![index]);
        match self.rng.random_range(0..100) {
            0..50 => self.write(engine, &index).await,
            50..60 => self.update(engine, &index).await,
            60..66 => self.delete_some(engine, &index).await,
            66..76 => outage(engine.refresh(&this().map_err(|_| None)?).await),
            76..90 => outage(engine.flush(&this().map_err(|_| None)?).await),
            90..97 => {
                let segments = self.rng.random_range(1..3);
                outage(engine.force_merge(&this().map_err(|_| None)?, segments).await)
            }
            97..99 if index == "other" => self.delete_index(engine, &index).await,
            _ => self.write(engine, &index).await,
        }
    }

    async fn create(&mut self, engine: &Engine, index: &str) -> Result<(), Option<Pending>> {
        let body = json!({"settings": {"number_of_shards": 2, "refresh_interval": "-1"}});
        let created = engine
            .change(&Principal::system(), |metadata| {
                metadata.create_index(index, &body, 1_700_000_000_000, Uuid::new_v4())
            })
            .await;
        outage(created).map_err(|_| Some(Pending::CreateIndex(index.to_owned())))?;
        self.oracle.indices.insert(index.to_owned(), Default::default());
        Ok(())
    }

    async fn delete_index(&mut self, engine: &Engine, index: &str) -> Result<(), Option<Pending>> {
        let deleted = engine
            .change(&Principal::system(), |metadata| {
                metadata.delete_indices(index, &IndicesOptions::open_only(), 1_700_000_000_000)
            })
            .await;
        outage(deleted).map_err(|_| Some(Pending::DeleteIndex(index.to_owned())))?;
        self.oracle.indices.remove(index);
        self.oracle.least_terms.remove(index);
        Ok(())
    }

    async fn write(&mut self, engine: &Engine, index: &str) -> Result<(), Option<Pending>> {
        let ops = (0..self.rng.random_range(1..12))
            .map(|_| match self.rng.random_range(0..10) {
                0..4 => UncertainOperation { id: None, source: Some(self.source()) },
                4..9 => UncertainOperation { id: Some(self.id()), source: Some(self.source()) },
                _ => UncertainOperation { id: Some(self.id()), source: None },
            })
            .collect();
        self.run(engine, index, ops).await
    }

    async fn delete_some(&mut self, engine: &Engine, index: &str) -> Result<(), Option<Pending>> {
        let mut ops: Vec<UncertainOperation> =
            (0..4).map(|_| UncertainOperation { id: Some(self.id()), source: None }).collect();
        // Also of generated ids.
        let generated = self.oracle.indices[index].keys().find(|id| !id.starts_with("id-")).cloned();
        ops.extend(generated.map(|id| UncertainOperation { id: Some(id), source: None }));
        self.run(engine, index, ops).await
    }

    async fn run(
        &mut self,
        engine: &Engine,
        index: &str,
        ops: Vec<UncertainOperation>,
    ) -> Result<(), Option<Pending>> {
        let request = ops
            .iter()
            .map(|unsure| match &unsure.source {
                Some(source) => index_op(index, unsure.id.as_deref(), source),
                None => op(index, unsure.id.as_deref(), Action::Delete),
            })
            .collect();
        match self.acknowledge(engine, index, request).await {
            Ok(()) => Ok(()),
            Err(()) => Err(Some(Pending::Write { index: index.to_owned(), ops })),
        }
    }

    async fn update(&mut self, engine: &Engine, index: &str) -> Result<(), Option<Pending>> {
        let known = &self.oracle.indices[index];
        if known.is_empty() {
            return self.write(engine, index).await;
        }
        let at = self.rng.random_range(0..known.len());
        let (id, doc) = known.iter().nth(at).map(|(id, doc)| (id.clone(), doc.clone())).unwrap();
        self.next += 1;
        let doc_part = json!({"n": self.next});
        let mut source: serde_json::Value = serde_json::from_str(&doc.source).unwrap();
        source["n"] = doc_part["n"].clone();
        let update = Update {
            doc: Some(doc_part.into()),
            detect_noop: true,
            returns_source: true,
            ..Update::default()
        };
        let request = vec![op(index, Some(&id), Action::Update(Box::new(update)))];
        self.acknowledge(engine, index, request).await.map_err(|()| {
            let ops = vec![UncertainOperation { id: Some(id), source: Some(source.to_string()) }];
            Some(Pending::Write { index: index.to_owned(), ops })
        })
    }

    async fn acknowledge(&mut self, engine: &Engine, index: &str, request: Vec<WriteOp>) -> Result<(), ()> {
        let sources: Vec<Option<Bytes>> = request
            .iter()
            .map(|op| match &op.action {
                Action::Index(source) => Some(source.clone()),
                _ => None,
            })
            .collect();
        let deletes: Vec<bool> = request.iter().map(|op| matches!(op.action, Action::Delete)).collect();
        let answered =
            engine.write(&Principal::system(), request, RefreshPolicy::None, Duration::from_secs(30)).await;
        let outcomes = match answered {
            Ok(outcomes) => outcomes,
            Err(error) => {
                assert!(is_outage(&error), "{error}");
                return Err(());
            }
        };
        if outcomes.iter().any(|outcome| outcome.as_ref().is_err_and(is_outage)) {
            return Err(());
        }
        for ((outcome, source), delete) in outcomes.into_iter().zip(sources).zip(deletes) {
            let outcome = outcome.unwrap();
            let least = self.oracle.least_terms.get(index).copied().unwrap_or(0);
            assert!(outcome.primary_term >= least, "term {} is not new", outcome.primary_term);
            self.oracle.greatest_term = self.oracle.greatest_term.max(outcome.primary_term);
            let known = self.oracle.indices.get_mut(index).unwrap();
            if delete {
                known.remove(&outcome.id);
                continue;
            }
            let source = source.or(outcome.source).unwrap();
            let doc = Doc {
                version: outcome.version,
                seq_no: outcome.seq_no,
                term: outcome.primary_term,
                source: String::from_utf8(source.to_vec()).unwrap(),
            };
            if let Some(before) = known.insert(outcome.id, doc.clone()) {
                assert!(doc.version > before.version && doc.seq_no > before.seq_no);
            }
        }
        Ok(())
    }

    /// Runs steps until the disk fails; what was under way then.
    async fn run_until_failure(&mut self, engine: &Arc<Engine>, steps: u32) -> Option<Pending> {
        for _ in 0..steps {
            if let Err(pending) = self.step(engine).await {
                return pending;
            }
        }
        None
    }
}

fn outage(result: Result<()>) -> Result<(), Option<Pending>> {
    result.map_err(|error| {
        assert!(is_outage(&error), "{error}");
        None
    })
}

/// Lets the power fail (or the process be killed) after `after` disk operations of a workload, and
/// again soon after, in the middle of the recovery. Where `lost`, the catalog is gone with it, and repaired. Returns
/// whether the workload got that far.
async fn crash_once(seed: u64, steps: u32, padding: usize, after: u64, lost: bool) -> bool {
    let end = if seed.wrapping_add(after).is_multiple_of(3) { RunEnd::Kill } else { RunEnd::PowerLoss };
    println!("seed {seed}, {after} operations, {end:?}");
    let mut machine = Machine::new(seed ^ (after << 20));
    let mut work = Workload::new(seed, padding);
    machine.disk.crash_after(after);
    let mut pending = None;
    if let Ok(engine) = machine.open().await {
        pending = work.run_until_failure(&engine, steps).await;
    }
    if !machine.disk.crashed() {
        return false;
    }
    machine.restart(end);
    let mut chance = SmallRng::seed_from_u64(seed ^ after);
    for _ in 0..chance.random_range(0..3) {
        machine.disk.crash_after(chance.random_range(0..20));
        let reopened = machine.open().await;
        if !machine.disk.crashed() {
            drop(reopened);
        }
        machine.restart(RunEnd::PowerLoss);
    }
    if lost {
        machine.lose_catalog().await;
    }
    let engine = machine.open().await.unwrap();
    work.oracle.check(&engine, pending).await;
    // What was shown and lost had sequence numbers that come again, but not in the same term.
    let next = work.oracle.greatest_term + 1;
    work.oracle.least_terms = work.oracle.indices.keys().map(|index| (index.clone(), next)).collect();
    let undisturbed = work.run_until_failure(&engine, 8).await;
    assert!(undisturbed.is_none(), "{undisturbed:?}");
    work.oracle.check(&engine, None).await;
    drop(engine);
    machine.restart(RunEnd::PowerLoss);
    if lost {
        machine.lose_catalog().await;
    }
    let engine = machine.open().await.unwrap();
    work.oracle.check(&engine, None).await;
    true
}

/// Environment variable that makes these tests as thorough as one has time for: the number of seeds.
const SEEDS: &str = "MILLRACE_CRASH_SEEDS";

fn seeds() -> u64 {
    std::env::var(SEEDS).ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(1)
}

/// Tells behind how many operations it crashes first, and how many more the next time: behind each where [`SEEDS`] is set, else behind
/// every `step`-th, so that all have their turn in some run.
fn first_and_step(step: u64) -> (u64, u64) {
    if std::env::var_os(SEEDS).is_some() {
        return (0, 1);
    }
    let first = rand::random_range(0..step);
    println!("crashes behind {first} operations, then behind every {step} more");
    (first, step)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_operation_of_a_small_workload_may_be_the_last() {
    for seed in 1..=seeds() {
        let (mut after, step) = first_and_step(2);
        while crash_once(seed, 14, 60, after, false).await {
            after += step;
        }
        assert!(after > 50, "{after} operations");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_catalog_may_be_lost_with_any_operation() {
    for seed in 1..=seeds() {
        let (mut after, step) = first_and_step(4);
        while crash_once(seed, 30, 60, after, true).await {
            after += step;
        }
        assert!(after > 100, "{after} operations");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_catalog_may_be_lost_in_a_larger_workload() {
    for seed in 200..200 + seeds() {
        let mut step = SmallRng::seed_from_u64(seed);
        let mut after = 100;
        while crash_once(seed, 100, 4_000, after, true).await {
            after += step.random_range(40..160);
        }
        assert!(after > 200, "{after} operations");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn samples_of_a_larger_workload_may_be_the_last() {
    for seed in 100..100 + seeds() {
        let mut step = SmallRng::seed_from_u64(seed);
        let mut after = 100;
        while crash_once(seed, 100, 4_000, after, false).await {
            after += step.random_range(40..160);
        }
        assert!(after > 200, "{after} operations");
    }
}
