//! The protocol of a repository under a model checker, which decides who goes on at every operation of the disk.
//!
//! Creations, clones, deletions and cleanups run beside each other over the shipped [`Repository`], until the process is killed or the
//! power fails. Then each listed snapshot has all its files. The check is played with each [`Defect`] as well, and has to find the
//! snapshots that this breaks.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use millrace_catalog::SegmentRecord;
use millrace_catalog::metadata::{Metadata, MetadataChange};
use millrace_runtime::Result as StoreResult;
use millrace_runtime::disk::{self, Disk, DiskFile, LockGuard, SimulatedDisk, Space};
use millrace_runtime::sync::model::point;
use serde_json::{Value, json};
use shuttle::future::block_on;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use uuid::Uuid;

use crate::contents::{FileReference, IndexContents, SegmentContents, ShardContents};
use crate::digest::ContentDigest;
use crate::error::Result;
use crate::manifest::{IndexSummary, Manifest, encode_json};
use crate::repository::Repository;

/// Seed of the schedules: a failure is found again.
const SEED: u64 = 20_261;
/// Changes of priorities in a schedule.
const CHANGES: usize = 3;
/// Stack of a thread.
const STACK_BYTES: usize = 4 << 20;
/// Operations of the disk among which one crashes.
const CRASHES: u64 = 400;
/// Id of the store that writes.
const STORE: Uuid = Uuid::from_u128(2);

/// A defect that the check has to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    None,
    /// Writers do not wait for one another.
    NoLock,
    /// A creation counts on names that a killed process left.
    UnsyncedNames,
    /// A creation does not make the names of its contents durable before it writes the manifest.
    EarlyManifest,
}

/// A disk at whose operations the checker decides who goes on.
#[derive(Debug)]
struct SteppedDisk(SimulatedDisk);

impl SteppedDisk {
    fn step(&self) -> &SimulatedDisk {
        point();
        &self.0
    }
}

impl Disk for SteppedDisk {
    fn create(&self, path: &FilePath) -> StoreResult<Box<dyn DiskFile>> {
        self.step().create(path)
    }

    fn read(&self, path: &FilePath) -> StoreResult<Vec<u8>> {
        self.step().read(path)
    }

    fn read_ranges(&self, path: &FilePath, ranges: &[Range<u64>]) -> StoreResult<Vec<Bytes>> {
        self.step().read_ranges(path, ranges)
    }

    fn open_mapped(&self, path: &FilePath) -> StoreResult<Bytes> {
        self.step().open_mapped(path)
    }

    fn metadata(&self, path: &FilePath) -> StoreResult<disk::Metadata> {
        self.step().metadata(path)
    }

    fn list(&self, dir: &FilePath) -> StoreResult<Vec<PathBuf>> {
        self.step().list(dir)
    }

    fn truncate(&self, path: &FilePath, len: u64) -> StoreResult<()> {
        self.step().truncate(path, len)
    }

    fn sync_file(&self, path: &FilePath) -> StoreResult<()> {
        self.step().sync_file(path)
    }

    fn rename(&self, from: &FilePath, to: &FilePath) -> StoreResult<()> {
        self.step().rename(from, to)
    }

    fn import(&self, scratch: &FilePath, to: &FilePath) -> StoreResult<()> {
        self.step().import(scratch, to)
    }

    fn hard_link(&self, from: &FilePath, to: &FilePath) -> StoreResult<()> {
        self.step().hard_link(from, to)
    }

    fn remove(&self, path: &FilePath) -> StoreResult<()> {
        self.step().remove(path)
    }

    fn remove_dir(&self, dir: &FilePath) -> StoreResult<bool> {
        self.step().remove_dir(dir)
    }

    fn create_dir(&self, dir: &FilePath) -> StoreResult<bool> {
        self.step().create_dir(dir)
    }

    fn sync_dir(&self, dir: &FilePath) -> StoreResult<()> {
        self.step().sync_dir(dir)
    }

    fn space(&self, path: &FilePath) -> StoreResult<Space> {
        self.step().space(path)
    }

    fn lock(&self, path: &FilePath) -> StoreResult<Box<dyn LockGuard>> {
        self.step().lock(path)
    }
}

/// A repository with the lock of its writers.
struct Writers {
    repository: Repository,
    lock: tokio::sync::Mutex<()>,
    defect: Defect,
}

impl Writers {
    async fn open(disk: &SimulatedDisk, defect: Defect) -> Self {
        let disk: Arc<dyn Disk> = Arc::new(SteppedDisk(disk.clone()));
        let root = PathBuf::from("/repository");
        let objects = millrace_segment::objects::open_directory(disk, root, None).await;
        let repository = Repository::new("backup", objects.unwrap(), false, STORE);
        Self { repository, lock: tokio::sync::Mutex::default(), defect }
    }

    async fn wait_for_turn(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        match self.defect {
            Defect::NoLock => None,
            _ => Some(self.lock.lock().await),
        }
    }

    /// Makes a snapshot of an index with so many segments, in the order of `create.rs`.
    async fn create(&self, name: &str, segments: Range<u8>) -> Result<bool> {
        let _one = self.wait_for_turn().await;
        self.repository.check_writer().await?;
        let present = match self.defect {
            Defect::UnsyncedNames => self.repository.list_contents().await?,
            _ => self.repository.list_durable_contents().await?,
        };
        let mut named = Vec::new();
        for file in segments.clone().flat_map(segment_files) {
            self.store(&present, file, &mut named).await?;
        }
        let contents = encode_json(&index_contents(segments)).unwrap();
        let stored = self.store(&present, contents.into(), &mut named).await?;
        if self.defect != Defect::EarlyManifest {
            self.repository.make_names_durable(named).await?;
        }
        let index = IndexSummary {
            name: "logs".to_owned(),
            uuid: Uuid::from_u128(3),
            shards: 1,
            system: false,
            contents: stored.sha256,
            contents_bytes: stored.bytes,
            files: 0,
            bytes: 0,
        };
        let manifest = crate::manifest::tests::manifest(name);
        self.repository.publish(&Manifest { indices: vec![index], ..manifest }).await
    }

    async fn store(
        &self,
        present: &HashMap<ContentDigest, u64>,
        content: Bytes,
        named: &mut Vec<ContentDigest>,
    ) -> Result<FileReference> {
        let reference = file_reference(&content);
        if present.get(&reference.sha256) != Some(&reference.bytes) {
            named.push(reference.sha256);
            self.repository.put_content(reference.sha256, content, &|| Ok(())).await?;
        }
        Ok(reference)
    }

    async fn clone_snapshot(&self, source: &str, target: &str) -> Result<bool> {
        let _one = self.wait_for_turn().await;
        self.repository.check_writer().await?;
        match self.repository.read_manifest(source).await? {
            Some(manifest) => {
                self.repository.publish(&Manifest { snapshot: target.to_owned(), ..manifest }).await
            }
            None => Ok(false),
        }
    }

    async fn delete(&self, name: &str) -> Result<bool> {
        let _one = self.wait_for_turn().await;
        self.repository.check_writer().await?;
        if !self.repository.list_snapshots().await?.iter().any(|listed| listed == name) {
            return Ok(false);
        }
        self.repository.delete_manifest(name).await?;
        // As in `listing.rs`: the snapshot is gone, whatever comes of its files.
        let _ = self.repository.collect(0).await;
        Ok(true)
    }

    async fn clean_up(&self) -> Result<bool> {
        let _one = self.wait_for_turn().await;
        self.repository.check_writer().await?;
        self.repository.collect(0).await.map(|_| true)
    }

    /// Checks that each listed snapshot has all its files; returns the names.
    async fn check_snapshots(&self) -> Vec<String> {
        let names = self.repository.list_snapshots().await.unwrap();
        for name in &names {
            let manifest = self.repository.read_manifest(name).await.unwrap().unwrap();
            for index in &manifest.indices {
                let read = self.repository.read_index(index.contents, index.contents_bytes).await;
                let contents = read.unwrap_or_else(|error| panic!("snapshot [{name}] lacks a file: {error}"));
                for file in contents.files() {
                    let read = self.repository.read_content((file.sha256, file.bytes), |_| Ok(())).await;
                    read.unwrap_or_else(|error| panic!("snapshot [{name}] lacks a file: {error}"));
                }
            }
        }
        names
    }
}

fn file_reference(content: &Bytes) -> FileReference {
    FileReference { sha256: ContentDigest::of_bytes(content), bytes: content.len() as u64 }
}

/// The contents of the files of a segment: `data.parquet` and `index.bundle`.
fn segment_files(segment: u8) -> [Bytes; 2] {
    [vec![segment; 8].into(), vec![segment; 16].into()]
}

fn index_contents(segments: Range<u8>) -> IndexContents {
    let create = Metadata::default().create_index("logs", &json!({}), 0, Uuid::from_u128(3)).unwrap();
    let meta = create.into_iter().find_map(|change| match change {
        MetadataChange::PutIndex { meta, .. } => Some(meta),
        _ => None,
    });
    let segments = segments.map(|number| {
        let [data, bundle] = segment_files(number).map(|content| file_reference(&content));
        let record = SegmentRecord {
            id: Uuid::from_u128(number.into()),
            index: Uuid::from_u128(3),
            shard: 0,
            rows: 1,
            data_bytes: data.bytes,
            bundle_bytes: bundle.bytes,
            ids_bytes: 0,
            min_seq_no: number.into(),
            max_seq_no: number.into(),
            generated_ids: None,
            columns: Vec::new(),
            delete_generation: 0,
            deleted_rows: 0,
            level: 0,
            extra: Value::Null,
        };
        SegmentContents { record, data, bundle, ids: None, deletes: None }
    });
    let shard = ShardContents { number: 0, primary_term: 1, next_seq_no: 256, segments: segments.collect() };
    IndexContents::new((*meta.unwrap()).clone(), "{}".to_owned(), vec![shard])
}

/// A creation, a clone, a deletion and a cleanup run beside each other until a crash; another process makes a snapshot afterwards, and
/// the power fails.
fn operations_beside_each_other(defect: Defect) {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let disk = SimulatedDisk::new(run);
    let writers = Arc::new(block_on(Writers::open(&disk, defect)));
    block_on(writers.repository.claim()).unwrap();
    assert!(block_on(writers.create("one", 1..3)).unwrap());
    disk.crash_after(run * 37 % CRASHES);
    let creator = {
        let writers = Arc::clone(&writers);
        shuttle::thread::spawn(move || block_on(writers.create("two", 2..4)).unwrap_or(false))
    };
    let copier = {
        let writers = Arc::clone(&writers);
        shuttle::thread::spawn(move || block_on(writers.clone_snapshot("one", "three")).unwrap_or(false))
    };
    let cleaner = {
        let writers = Arc::clone(&writers);
        shuttle::thread::spawn(move || block_on(writers.clean_up()).unwrap_or(false))
    };
    let deleted = block_on(writers.delete("one")).unwrap_or(false);
    let (created, cloned) = (creator.join().unwrap(), copier.join().unwrap());
    cleaner.join().unwrap();
    drop(writers);

    let disk = if run.is_multiple_of(2) { disk.kill() } else { disk.power_loss() };
    // The process after is right but for the names that it counts on.
    let later = if defect == Defect::NoLock { Defect::None } else { defect };
    let writers = block_on(Writers::open(&disk, later));
    let names = block_on(writers.check_snapshots());
    let is_listed = |names: &[String], name: &str| names.iter().any(|listed| listed == name);
    assert!(!created || is_listed(&names, "two"), "an acknowledged snapshot is lost");
    assert!(!cloned || is_listed(&names, "three"), "an acknowledged clone is lost");
    assert!(!deleted || !is_listed(&names, "one"), "a deleted snapshot is back");
    // It counts on files of the process before, whose names may not be durable.
    assert!(block_on(writers.create("late", 1..4)).unwrap());
    drop(writers);

    let disk = disk.power_loss();
    let writers = block_on(Writers::open(&disk, later));
    let names = block_on(writers.check_snapshots());
    assert!(is_listed(&names, "late"), "an acknowledged snapshot is lost");
    for name in names {
        block_on(writers.delete(&name)).unwrap();
    }
    block_on(writers.clean_up()).unwrap();
    assert!(block_on(writers.repository.list_contents()).unwrap().is_empty(), "files are left");
}

/// Runs the check under so many schedules: half of them at random, half by priorities that change seldom.
fn check(schedules: usize, defect: Defect) {
    let mut config = shuttle::Config::new();
    config.stack_size = STACK_BYTES;
    config.failure_persistence = shuttle::FailurePersistence::None;
    config.silence_warnings = true;
    let run = move || operations_beside_each_other(defect);
    let by_priority = PctScheduler::new_from_seed(SEED, CHANGES, schedules / 2);
    shuttle::Runner::new(by_priority, config.clone()).run(run);
    shuttle::Runner::new(RandomScheduler::new_from_seed(SEED, schedules / 2), config).run(run);
}

#[test]
fn each_listed_snapshot_has_its_files_whoever_writes_beside_it() {
    check(400, Defect::None);
}

#[test]
fn the_check_finds_what_lacks_a_file_for_each_defect() {
    for defect in [Defect::NoLock, Defect::UnsyncedNames, Defect::EarlyManifest] {
        let found = std::panic::catch_unwind(|| check(4_000, defect));
        let panic = found.expect_err("the defect was not found");
        let said = panic.downcast_ref::<String>().map_or("", String::as_str);
        assert!(said.contains("lacks a file"), "{defect:?}: {said}");
    }
}
