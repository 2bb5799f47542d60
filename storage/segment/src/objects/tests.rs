use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use millrace_runtime::disk::{Disk, SimulatedDisk, SystemDisk};
use millrace_runtime::{Compute, Error};
use object_store::path::Path;
use object_store::{
    CopyMode, CopyOptions, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion,
};

use super::counting::CountingStore;
use super::{
    DurableLocal, ObjectStoreConfig, Objects, TransferObserver, TransferPacer, UnpacedTransfer, is_missing,
    open, open_directory,
};

fn path(text: &str) -> Path {
    Path::parse(text).unwrap()
}

/// Bytes that differ from place to place.
fn pattern(len: usize) -> Bytes {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
}

/// Admits so many bytes, and counts them.
struct CountingPacer {
    admitted: AtomicU64,
    limit: u64,
}

impl CountingPacer {
    fn new(limit: u64) -> Self {
        Self { admitted: AtomicU64::new(0), limit }
    }
}

#[async_trait]
impl TransferPacer for CountingPacer {
    async fn admit(&self, bytes: u64) -> millrace_runtime::Result<()> {
        let admitted = self.admitted.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if admitted > self.limit { Err(Error::Stopped("cancelled".to_owned())) } else { Ok(()) }
    }
}

/// The bytes that an observer has seen.
#[derive(Debug, Default)]
struct SeenBytes(Vec<u8>);

impl TransferObserver for SeenBytes {
    fn observe(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

/// Tests transfers at a pace: each byte is admitted, and one that is ended leaves what was there.
async fn transfers_conform(objects: &Objects, disk: &dyn Disk, scratch: &FilePath) {
    let (object, file) = (path("paced/a"), scratch.join("paced"));
    let large = pattern(20_000_000);
    for len in [0, 10, large.len()] {
        let (bytes, pacer) = (large.slice(..len), CountingPacer::new(len as u64));
        objects.put_paced(&object, bytes.clone(), &pacer).await.unwrap();
        assert_eq!(pacer.admitted.into_inner(), len as u64);
        assert!(objects.get(&object).await.unwrap() == bytes);
        let pacer = CountingPacer::new(len as u64);
        let seen =
            objects.get_paced(&object, (&file, len as u64), &pacer, SeenBytes::default()).await.unwrap();
        assert_eq!(pacer.admitted.into_inner(), len as u64);
        assert!(disk.read(&file).unwrap() == bytes && seen.0 == bytes);
        disk.remove(&file).unwrap();
    }
    for limit in [0, 10_000_000] {
        let ended = objects.put_paced(&object, large.slice(1..), &CountingPacer::new(limit)).await;
        assert!(matches!(ended, Err(Error::Stopped(_))), "{ended:?}");
        assert_eq!(objects.len(&object).await.unwrap(), 20_000_000);
        let ended = objects.get_paced(&object, (&file, 20_000_000), &CountingPacer::new(limit), ()).await;
        assert!(matches!(ended, Err(Error::Stopped(_))), "{ended:?}");
        disk.remove(&file).unwrap();
    }
    let (object, source) = (path("paced/b"), scratch.join("source"));
    disk.create(&source).unwrap().append(&large).unwrap();
    let (whole, none) = (CountingPacer::new(20_000_000), CountingPacer::new(0));
    if let Some(staged) = objects.stage_reflink((&source, 20_000_000), &whole).await.unwrap() {
        staged.place(&object).await.unwrap();
        assert!(objects.get(&object).await.unwrap() == large && disk.read(&source).unwrap() == large);
        let ended = objects.stage_reflink((&source, 20_000_000), &none).await;
        assert!(matches!(ended, Err(Error::Stopped(_))), "{ended:?}");
        assert!(
            objects.get_reflink(&object, (&file, 20_000_000), &CountingPacer::new(u64::MAX)).await.unwrap()
        );
        assert!(disk.read(&file).unwrap() == large);
        disk.remove(&file).unwrap();
        let wrong = objects.get_reflink(&object, (&file, 1), &CountingPacer::new(u64::MAX)).await;
        assert!(matches!(wrong, Err(Error::Corrupt { .. })), "{wrong:?}");
        disk.remove(&file).unwrap();
    } else {
        assert!(!objects.get_reflink(&path("paced/a"), (&file, 20_000_000), &none).await.unwrap());
        assert!(disk.read(&file).is_err());
    }
    let object = path("paced/c");
    let write = async |limit: u64, len: usize| {
        let pacer = CountingPacer::new(limit);
        objects.stage(large.slice(..len), &pacer, SeenBytes::default()).await
    };
    for len in [10, large.len()] {
        let Some((staged, seen)) = write(20_000_000, len).await.unwrap() else { break };
        assert!(is_missing(&objects.len(&object).await.unwrap_err()) && seen.0 == large[..len]);
        staged.place(&object).await.unwrap();
        assert!(objects.get(&object).await.unwrap() == large[..len]);
        objects.delete(&object).await.unwrap();
        let (staged, _) = write(20_000_000, len).await.unwrap().unwrap();
        staged.discard().await.unwrap();
        let ended = write(5, len).await;
        assert!(matches!(ended, Err(Error::Stopped(_))), "{ended:?}");
        assert!(is_missing(&objects.len(&object).await.unwrap_err()));
    }
    disk.remove(&source).unwrap();
    objects.delete_all(&path("paced")).await.unwrap();
}

/// Tests the contract of every object store. `scratch` is a directory on `disk`.
async fn conforms(objects: &Objects, disk: &dyn Disk, scratch: &FilePath) {
    let names = async |prefix: Option<&Path>| {
        let mut names: Vec<String> = objects
            .list(prefix)
            .await
            .unwrap()
            .into_iter()
            .map(|object| object.location.to_string())
            .collect();
        names.sort();
        names
    };
    assert!(names(None).await.is_empty());
    let a = path("index/0/segment/data.parquet");
    assert!(is_missing(&objects.get(&a).await.unwrap_err()));
    assert!(is_missing(&objects.len(&a).await.unwrap_err()));
    objects.delete(&a).await.unwrap();

    // Whole, by ranges, replaced.
    let bytes = pattern(3_000_000);
    objects.put(&a, bytes.clone()).await.unwrap();
    assert_eq!(objects.get(&a).await.unwrap(), bytes);
    assert_eq!(objects.len(&a).await.unwrap(), 3_000_000);
    assert_eq!(objects.get_range(&a, 17..1_500_017).await.unwrap(), bytes.slice(17..1_500_017));
    let ranges = [5..6, 2_999_990..3_000_000, 100..4_000, 5..6];
    let expected: Vec<Bytes> =
        ranges.iter().map(|range| bytes.slice(range.start as usize..range.end as usize)).collect();
    assert_eq!(objects.get_ranges(&a, &ranges).await.unwrap(), expected);
    objects.get_range(&a, 2_999_990..3_000_001).await.unwrap_err();
    objects.get_ranges(&a, &[2_999_990..3_000_000, 3_000_010..3_000_020]).await.unwrap_err();
    assert_eq!(objects.get_ranges(&a, &[7..7, 9..9]).await.unwrap(), ["", ""]);
    objects.put(&a, Bytes::from_static(b"second")).await.unwrap();
    assert_eq!(objects.get(&a).await.unwrap(), "second");
    objects.put(&a, Bytes::new()).await.unwrap();
    assert_eq!(objects.get(&a).await.unwrap(), "");

    // From and to files, small and in several parts.
    for len in [10, 20_000_000] {
        let (from, to, b) = (scratch.join("from"), scratch.join("to"), path("index/0/other/ids"));
        let bytes = pattern(len);
        disk.create(&from).unwrap().append(&bytes).unwrap();
        objects.put_files(&[(b.clone(), from.clone())]).await.unwrap();
        assert!(disk.read(&from).is_err());
        assert!(objects.get(&b).await.unwrap() == bytes);
        objects.get_to_file(&b, &to, len as u64).await.unwrap();
        assert!(disk.read(&to).unwrap() == bytes);
        disk.remove(&to).unwrap();
        objects.put(&b, bytes.clone()).await.unwrap();
        assert!(objects.get(&b).await.unwrap() == bytes);
        match objects.map_local(&b).unwrap() {
            Some(mapped) => assert!(objects.is_local() && mapped == bytes),
            None => assert!(!objects.is_local() && objects.local_path(&b).is_none()),
        }
    }

    // Listing is by whole path parts.
    objects.put(&path("index/01/x"), Bytes::new()).await.unwrap();
    objects.put(&path("z"), Bytes::new()).await.unwrap();
    let all = ["index/0/other/ids", "index/0/segment/data.parquet", "index/01/x", "z"];
    assert_eq!(names(None).await, all);
    assert_eq!(names(Some(&path("index/0"))).await, all[..2]);
    assert!(names(Some(&path("missing"))).await.is_empty());
    assert_eq!(objects.list_dirs(None).await.unwrap(), [path("index")]);
    assert_eq!(
        objects.list_dirs(Some(&path("index/0"))).await.unwrap(),
        [path("index/0/other"), path("index/0/segment")]
    );
    let offset = objects.store().list_with_offset(None, &path("index/01/x"));
    let after: Vec<Path> = offset.map_ok(|object| object.location).try_collect().await.unwrap();
    assert_eq!(after, [path("z")]);

    store_conforms(objects.store()).await;
    transfers_conform(objects, disk, scratch).await;

    objects.delete(&path("z")).await.unwrap();
    objects.delete(&path("z")).await.unwrap();
    objects.delete_all(&path("index/0")).await.unwrap();
    assert_eq!(names(None).await, ["index/01/x"]);
    objects.delete_all(&path("index")).await.unwrap();
    assert!(names(None).await.is_empty() && objects.list_dirs(None).await.unwrap().is_empty());
}

/// Tests the further contract of the trait behind [`Objects`], on which its users rely.
async fn store_conforms(store: &Arc<dyn ObjectStore>) {
    let (a, b) = (path("store/a"), path("store/b"));
    let create = PutOptions::from(PutMode::Create);
    store.put_opts(&a, "one".into(), create.clone()).await.unwrap();
    let exists = store.put_opts(&a, "two".into(), create).await.unwrap_err();
    assert!(matches!(exists, object_store::Error::AlreadyExists { .. }), "{exists}");
    assert_eq!(store.get(&a).await.unwrap().bytes().await.unwrap(), "one");

    let suffix = GetOptions::new().with_range(Some(object_store::GetRange::Suffix(2)));
    assert_eq!(store.get_opts(&a, suffix).await.unwrap().bytes().await.unwrap(), "ne");
    let head = store.get_opts(&a, GetOptions::new().with_head(true)).await.unwrap();
    // `PrefixStore` leaves its prefix in the location that a get answers.
    assert!(head.meta.size == 3 && head.meta.location.as_ref().ends_with(a.as_ref()), "{:?}", head.meta);

    // Parts may be written at once and out of order.
    let mut upload = store.put_multipart(&b).await.unwrap();
    let (first, second) = (pattern(5 << 20), pattern(1000));
    let parts = [upload.put_part(first.clone().into()), upload.put_part(second.clone().into())];
    assert!(store.head(&b).await.is_err());
    for part in parts.into_iter().rev() {
        part.await.unwrap();
    }
    upload.complete().await.unwrap();
    let whole = store.get(&b).await.unwrap().bytes().await.unwrap();
    assert!(whole == [first, second].concat());
    let mut upload = store.put_multipart(&path("store/aborted")).await.unwrap();
    upload.put_part("x".into()).await.unwrap();
    upload.abort().await.unwrap();

    store.copy(&a, &path("store/deep/er/c")).await.unwrap();
    store.copy(&a, &b).await.unwrap();
    store.rename(&b, &path("store/d")).await.unwrap();
    assert!(matches!(store.copy(&b, &a).await, Err(object_store::Error::NotFound { .. })));
    let left = store.list(Some(&path("store"))).map_ok(|object| object.location);
    let mut left: Vec<Path> = left.try_collect().await.unwrap();
    left.sort();
    assert_eq!(left, [a, path("store/d"), path("store/deep/er/c")]);
    let left = futures::stream::iter(left.into_iter().map(Ok)).boxed();
    assert_eq!(store.delete_stream(left).try_collect::<Vec<_>>().await.unwrap().len(), 3);
}

#[tokio::test]
async fn the_local_directory_conforms() {
    let dir = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(SystemDisk::new());
    let objects = open(&ObjectStoreConfig::Local, dir.path(), Arc::clone(&disk)).await.unwrap();
    conforms(&objects, &*disk, dir.path()).await;
    let left: Vec<PathBuf> = disk.list(&dir.path().join("segments")).unwrap();
    assert_eq!(left, [PathBuf::from(".tmp")]);
    assert!(disk.list(&dir.path().join("segments/.tmp")).unwrap().is_empty());
}

#[tokio::test]
async fn a_directory_with_snapshot_threads_conforms() {
    let dir = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(SystemDisk::new());
    let (root, compute) = (dir.path().join("repository"), Compute::start(1).unwrap());
    let objects = open_directory(Arc::clone(&disk), root.clone(), Some(compute.clone())).await.unwrap();
    conforms(&objects, &*disk, dir.path()).await;
    assert!(disk.list(&root.join(".tmp")).unwrap().is_empty());
    let pools = compute.pools();
    let snapshot = pools.iter().find(|pool| pool.name == "snapshot").unwrap();
    assert!(snapshot.completed > 40, "{snapshot:?}");
}

#[tokio::test]
async fn the_simulated_directory_conforms() {
    let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new(5));
    let objects = open(&ObjectStoreConfig::Local, FilePath::new("/data"), Arc::clone(&disk)).await.unwrap();
    conforms(&objects, &*disk, FilePath::new("/data")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn puts_and_deletions_in_one_directory_do_not_trip_each_other_up() {
    let dir = tempfile::tempdir().unwrap();
    let objects =
        Arc::new(open(&ObjectStoreConfig::Local, dir.path(), Arc::new(SystemDisk::new())).await.unwrap());
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let objects = Arc::clone(&objects);
            tokio::spawn(async move {
                for _ in 0..100 {
                    let object = path(&format!("index/0/{task}/data"));
                    objects.put(&object, Bytes::from_static(b"x")).await.unwrap();
                    objects.delete(&object).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// Runs against the service that `MILLRACE_TEST_S3_ENDPOINT`, `_BUCKET`, `_ACCESS_KEY` and
/// `_SECRET_KEY` name.
#[tokio::test]
async fn s3_conforms() {
    let variable = |name: &str| std::env::var(format!("MILLRACE_TEST_S3_{name}")).ok();
    let Some(endpoint) = variable("ENDPOINT") else {
        println!("skipped: no S3 service named by MILLRACE_TEST_S3_ENDPOINT");
        return;
    };
    let s3 = |secret_access_key| ObjectStoreConfig::S3 {
        bucket: variable("BUCKET").unwrap_or_else(|| "millrace".to_owned()),
        prefix: format!("conformance/{}", uuid::Uuid::new_v4()),
        endpoint: Some(endpoint.clone()),
        region: None,
        access_key_id: variable("ACCESS_KEY"),
        secret_access_key,
        allow_http: true,
    };
    let dir = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(SystemDisk::new());
    let object_store = s3(variable("SECRET_KEY"));
    let objects = open(&object_store, dir.path(), Arc::clone(&disk)).await.unwrap();
    conforms(&objects, &*disk, dir.path()).await;
    let object_store = s3(Some("wrong".to_owned()));
    let refused = open(&object_store, dir.path(), disk).await.unwrap_err();
    assert!(matches!(refused, Error::ObjectStore(_)), "{refused}");
}

#[tokio::test]
async fn the_local_directory_refuses_what_it_cannot_do() {
    let dir = tempfile::tempdir().unwrap();
    let store = DurableLocal::open(Arc::new(SystemDisk::new()), dir.path().join("o")).unwrap();
    store.put(&path("a"), "x".into()).await.unwrap();
    let update = PutMode::Update(UpdateVersion { e_tag: Some("1".to_owned()), version: None });
    let refused = store.put_opts(&path("a"), "y".into(), PutOptions::from(update)).await.unwrap_err();
    assert!(matches!(refused, object_store::Error::NotImplemented { .. }), "{refused}");
    let matching = GetOptions { if_match: Some("1".to_owned()), ..GetOptions::default() };
    assert!(matches!(
        store.get_opts(&path("a"), matching).await,
        Err(object_store::Error::Precondition { .. })
    ));
    store.put(&path(".tmp/x"), "y".into()).await.unwrap_err();
    store.put(&path("a/below"), "y".into()).await.unwrap_err();
    assert!(matches!(store.get(&path("a/below")).await, Err(object_store::Error::NotFound { .. })));
    let keep = CopyOptions::new().with_mode(CopyMode::Create);
    store.put(&path("b"), "y".into()).await.unwrap();
    let refused = store.copy_opts(&path("a"), &path("b"), keep).await.unwrap_err();
    assert!(matches!(refused, object_store::Error::AlreadyExists { .. }), "{refused}");
}

#[tokio::test]
async fn a_large_object_goes_to_a_file_piece_by_piece() {
    let dir = tempfile::tempdir().unwrap();
    let store = CountingStore::default();
    let objects = Objects::remote(Arc::new(store.clone()), Arc::new(SystemDisk::new()));
    let bytes = pattern(40 << 20);
    objects.put(&path("a"), bytes.clone()).await.unwrap();
    let file = dir.path().join("a");
    store.watch(file.clone());
    objects.get_to_file(&path("a"), &file, 40 << 20).await.unwrap();
    assert!(std::fs::read(&file).unwrap() == bytes);
    assert!(store.most_held() <= 2 << 20, "{} bytes in memory", store.most_held());
    for other in [(40 << 20) - 1, (40 << 20) + 1] {
        let refused = objects.get_to_file(&path("a"), &dir.path().join(other.to_string()), other).await;
        assert!(matches!(refused, Err(Error::Corrupt { .. })));
    }
}

#[tokio::test]
async fn a_full_disk_is_told_apart() {
    let disk = SimulatedDisk::new(6);
    let objects =
        open(&ObjectStoreConfig::Local, FilePath::new("/data"), Arc::new(disk.clone())).await.unwrap();
    disk.set_capacity(1000);
    let error = objects.put(&path("a/b"), pattern(5000)).await.unwrap_err();
    assert!(millrace_runtime::disk::is_full(&error), "{error}");
    assert_eq!(disk.used_bytes(), 0);
    disk.set_capacity(10_000);
    objects.put(&path("a/b"), pattern(5000)).await.unwrap();
}

/// Tests power losses at every operation: objects that were put are there whole, others whole or absent.
#[tokio::test]
async fn power_loss_at_every_operation_keeps_puts() {
    // More than a chunk of a paced write.
    let large = pattern(1_100_000);
    let expected = |len: usize| if len == large.len() { large.clone() } else { pattern(len) };
    for crash in 0.. {
        let mut finished = false;
        for seed in 0..6 {
            let disk = SimulatedDisk::new(seed * 1000 + crash);
            disk.crash_after(crash);
            let mut put = Vec::new();
            let run = async {
                let scratch = FilePath::new("/data/scratch");
                let objects =
                    open(&ObjectStoreConfig::Local, FilePath::new("/data"), Arc::new(disk.clone())).await?;
                objects.put(&path("i/0/s1/data"), pattern(3000)).await?;
                put.push(("i/0/s1/data", 3000));
                disk.create(scratch)?.append(&pattern(5000))?;
                let second = FilePath::new("/data/second");
                disk.create(second)?.append(&pattern(20))?;
                let files =
                    [(path("i/0/s1/bundle"), scratch.to_owned()), (path("i/0/s1/ids"), second.to_owned())];
                objects.put_files(&files).await?;
                put.extend([("i/0/s1/bundle", 5000), ("i/0/s1/ids", 20)]);
                objects.put(&path("i/1/s2/data"), pattern(700)).await?;
                put.push(("i/1/s2/data", 700));
                objects.delete(&path("i/1/s2/data")).await?;
                put.pop();
                objects.put(&path("i/1/s3/data"), pattern(900)).await?;
                put.push(("i/1/s3/data", 900));
                objects.put_paced(&path("i/1/s3/bundle"), large.clone(), &UnpacedTransfer).await?;
                put.push(("i/1/s3/bundle", large.len()));
                Ok::<_, Error>(())
            };
            finished = run.await.is_ok();
            let deleting = put.last().is_some_and(|(name, _)| *name == "i/1/s2/data");
            let disk: Arc<dyn Disk> = Arc::new(disk.power_loss());
            let objects = open(&ObjectStoreConfig::Local, FilePath::new("/data"), disk).await.unwrap();
            for (name, len) in &put[..put.len() - usize::from(deleting)] {
                let found = objects.get(&path(name)).await.unwrap();
                assert!(found == expected(*len), "{name} is damaged after a crash at {crash}, seed {seed}");
            }
            for object in objects.list(None).await.unwrap() {
                assert!(objects.get(&object.location).await.unwrap() == expected(object.size as usize));
                assert!(
                    [3000, 5000, 20, 700, 900, large.len() as u64].contains(&object.size),
                    "{object:?} is in part"
                );
            }
        }
        if finished {
            return;
        }
    }
}

#[tokio::test]
async fn reads_that_fail_one_after_another_are_told_until_one_succeeds() {
    let store = super::counting::CountingStore::default();
    let objects = Objects::remote(Arc::new(store.clone()), Arc::new(SimulatedDisk::new(1)));
    let a = path("index/0/segment/bundle");
    objects.put(&a, pattern(10)).await.unwrap();
    objects.get(&a).await.unwrap();
    store.fail(true);
    for failures in 1..=4 {
        assert_eq!(objects.reads_fail(), failures > 3, "{failures}");
        objects.get(&a).await.unwrap_err();
    }
    // Ranges are given.
    objects.probe_reads().await;
    assert!(!objects.reads_fail());
    for _ in 0..4 {
        objects.get(&a).await.unwrap_err();
    }
    objects.delete(&a).await.unwrap();
    objects.probe_reads().await;
    assert!(!objects.reads_fail(), "what is gone cannot be read, and the service says so");
}
