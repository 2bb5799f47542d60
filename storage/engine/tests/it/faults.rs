//! Damage and shortage on a real disk: detected, named, survived.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use millrace_catalog::MemoryCatalog;
use millrace_catalog::access::Principal;
use millrace_engine::{Action, Config, Engine, RefreshPolicy, ShardFault};
use millrace_runtime::disk::SimulatedDisk;
use millrace_runtime::{Error, Kind, ManualClock, Result, SystemClock};

use crate::documents::{config, index_op, op, open, reopen, write};

/// Files below a directory whose name ends so.
fn files(dir: &Path, end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.to_string_lossy().ends_with(end) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn flip(file: &Path, offset: u64) {
    let handle = std::fs::OpenOptions::new().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    handle.read_exact_at(&mut byte, offset).unwrap();
    handle.write_all_at(&[byte[0] ^ 0x20], offset).unwrap();
}

/// A flushed index `a` of client ids 0 to 99 with `deleted` of them deleted, and an index `b`; the
/// engine is shut down.
async fn stored(dir: &Path, deleted: u32) {
    let engine = open(dir).await;
    for index in ["a", "b"] {
        let ops =
            (0..100).map(|i| index_op(index, Some(&format!("{i}")), &format!(r#"{{"v":{i},"w":"x{i}"}}"#)));
        assert!(write(&engine, ops.collect()).await.iter().all(Result::is_ok));
        engine.flush(&[engine.index(index).unwrap()]).await.unwrap();
    }
    let ops: Vec<_> = (0..deleted).map(|i| op("a", Some(&format!("{i}")), Action::Delete)).collect();
    write(&engine, ops).await;
    engine.shutdown().await.unwrap();
}

fn of_index(engine: &Engine, index: &str, files: Vec<PathBuf>) -> PathBuf {
    let uuid = engine.index(index).unwrap().meta().uuid.simple().to_string();
    files.into_iter().find(|file| file.to_string_lossy().contains(&uuid)).unwrap()
}

/// Asserts an error that names the file.
fn assert_corrupt<T: std::fmt::Debug>(result: Result<T>, file: &Path) {
    match result {
        Err(Error::Corrupt { file: named, .. }) => {
            let name = file.file_name().unwrap().to_string_lossy();
            assert!(named.ends_with(&*name), "{named} is not {name}");
        }
        other => panic!("{} was served: {other:?}", file.display()),
    }
}

async fn get(engine: &Engine, index: &str, id: &str) -> Result<Option<String>> {
    let found = engine.get(&Principal::system(), index, id, None, true).await?;
    Ok(found.map(|doc| String::from_utf8(doc.source.to_vec()).unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_byte_in_a_segment_is_an_error_and_the_rest_goes_on() {
    for (end, at) in [("data.parquet", 0.02), ("data.parquet", 0.7), ("index.bundle", 0.5), ("ids", 0.5)] {
        let dir = tempfile::tempdir().unwrap();
        stored(dir.path(), 0).await;
        let engine = open(dir.path()).await;
        let file = of_index(&engine, "a", files(&dir.path().join("segments"), end));
        flip(&file, (std::fs::metadata(&file).unwrap().len() as f64 * at) as u64);
        let snapshot = engine.index("a").unwrap().snapshot().await.unwrap();
        let segment = &snapshot.shards[0].segments[0].segment;
        match end {
            "data.parquet" => {
                assert_corrupt(segment.fetch(&[1, 50], millrace_segment::RowParts::ALL).await, &file);
                assert_corrupt(get(&engine, "a", "7").await, &file);
            }
            "index.bundle" => assert_corrupt(segment.bundle().await, &file),
            _ => {
                assert_corrupt(segment.id_rows(&["7".to_owned()]).await, &file);
                assert_corrupt(get(&engine, "a", "7").await, &file);
                // A write that must know whether the id exists is refused, alone in its request.
                let ops =
                    vec![index_op("a", Some("7"), r#"{"v":0}"#), index_op("b", Some("7"), r#"{"v":0}"#)];
                let mut outcomes = write(&engine, ops).await.into_iter();
                assert_corrupt(outcomes.next().unwrap(), &file);
                outcomes.next().unwrap().unwrap();
            }
        }
        // Health tells.
        assert_eq!(engine.index("a").unwrap().faults(), [Some(ShardFault::Unreadable)], "{end}");
        assert_eq!(engine.index("b").unwrap().faults(), [None]);
        // The merge of damaged files is refused, too, and nothing is lost by it.
        write(&engine, vec![index_op("a", None, r#"{"v":1}"#)]).await.remove(0).unwrap();
        let a = engine.index("a").unwrap();
        assert_corrupt(engine.force_merge(&[a], 1).await, &file);
        assert!(get(&engine, "b", "99").await.unwrap().is_some());
        flip(&file, (std::fs::metadata(&file).unwrap().len() as f64 * at) as u64);
        drop((snapshot, engine));
        let engine = reopen(dir.path()).await;
        assert_eq!(get(&engine, "a", "7").await.unwrap().as_deref(), Some(r#"{"v":7,"w":"x7"}"#));
        engine.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_of_deletions_puts_its_shard_out_of_use_until_it_is_restored() {
    let dir = tempfile::tempdir().unwrap();
    stored(dir.path(), 10).await;
    let engine = reopen(dir.path()).await;
    write(&engine, vec![index_op("a", Some("200"), r#"{"v":200}"#)]).await.remove(0).unwrap();
    drop(engine);
    let [deletes] = files(dir.path(), ".roaring").try_into().unwrap();
    let bytes = std::fs::read(&deletes).unwrap();
    for missing in [false, true] {
        if missing {
            std::fs::remove_file(&deletes).unwrap();
        } else {
            flip(&deletes, 20);
        }
        let engine = reopen(dir.path()).await;
        let a = engine.index("a").unwrap();
        assert_eq!(a.faults(), [Some(ShardFault::Damaged)]);
        assert_eq!(engine.index("b").unwrap().faults(), [None]);
        assert_corrupt(get(&engine, "a", "9").await, &deletes);
        assert_corrupt(get(&engine, "a", "10").await, &deletes);
        assert_corrupt(a.snapshot().await, &deletes);
        let ops = vec![index_op("a", None, r#"{"v":0}"#), index_op("b", Some("7"), r#"{"v":0}"#)];
        let mut outcomes = write(&engine, ops).await.into_iter();
        assert_corrupt(outcomes.next().unwrap(), &deletes);
        outcomes.next().unwrap().unwrap();
        engine.refresh(&[Arc::clone(&a)]).await.unwrap();
        engine.force_merge(&[a, engine.index("b").unwrap()], 1).await.unwrap();
        assert!(get(&engine, "b", "99").await.unwrap().is_some());
        engine.shutdown().await.unwrap();
    }
    std::fs::create_dir_all(deletes.parent().unwrap()).unwrap();
    std::fs::write(&deletes, bytes).unwrap();
    let engine = reopen(dir.path()).await;
    assert_eq!(get(&engine, "a", "9").await.unwrap(), None);
    assert!(get(&engine, "a", "10").await.unwrap().is_some());
    assert!(get(&engine, "a", "200").await.unwrap().is_some(), "what was only in the log is still there");
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_shorter_file_of_a_segment_puts_its_shard_out_of_use_and_the_rest_starts() {
    for (end, left) in [("ids", None), ("index.bundle", None), ("data.parquet", None), ("ids", Some(10))] {
        let dir = tempfile::tempdir().unwrap();
        stored(dir.path(), 0).await;
        let engine = reopen(dir.path()).await;
        // Only the log has these.
        write(&engine, vec![index_op("a", Some("7"), r#"{"v":70}"#)]).await.remove(0).unwrap();
        let file = of_index(&engine, "a", files(&dir.path().join("segments"), end));
        drop(engine);
        let bytes = std::fs::read(&file).unwrap();
        match left {
            None => std::fs::remove_file(&file).unwrap(),
            Some(left) => std::fs::write(&file, &bytes[..left]).unwrap(),
        }
        let engine = reopen(dir.path()).await;
        assert_eq!(engine.index("a").unwrap().faults(), [Some(ShardFault::Damaged)], "{end}");
        assert_eq!(engine.index("b").unwrap().faults(), [None]);
        assert_corrupt(get(&engine, "a", "7").await, &file);
        assert!(get(&engine, "b", "7").await.unwrap().is_some());
        write(&engine, vec![index_op("b", Some("7"), r#"{"v":71}"#)]).await.remove(0).unwrap();
        drop(engine);
        std::fs::write(&file, &bytes).unwrap();
        let engine = reopen(dir.path()).await;
        assert_eq!(engine.index("a").unwrap().faults(), [None]);
        assert_eq!(get(&engine, "a", "7").await.unwrap().as_deref(), Some(r#"{"v":70}"#));
        engine.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_byte_in_ids_that_the_log_needs_puts_its_shard_out_of_use_and_the_rest_starts() {
    let dir = tempfile::tempdir().unwrap();
    stored(dir.path(), 0).await;
    let engine = reopen(dir.path()).await;
    let ops = (0..3).map(|id| index_op("a", Some(&id.to_string()), r#"{"v":70}"#)).collect();
    assert!(write(&engine, ops).await.iter().all(Result::is_ok));
    let file = of_index(&engine, "a", files(&dir.path().join("segments"), "ids"));
    drop(engine);
    let at = std::fs::metadata(&file).unwrap().len() / 2;
    flip(&file, at);
    let engine = reopen(dir.path()).await;
    assert_eq!(engine.index("a").unwrap().faults(), [Some(ShardFault::Damaged)]);
    assert_corrupt(get(&engine, "a", "1").await, &file);
    assert!(get(&engine, "b", "7").await.unwrap().is_some());
    flip(&file, at);
    drop(engine);
    let engine = reopen(dir.path()).await;
    assert_eq!(engine.index("a").unwrap().faults(), [None]);
    assert_eq!(get(&engine, "a", "1").await.unwrap().as_deref(), Some(r#"{"v":70}"#));
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_byte_in_the_log_stops_the_start_and_a_torn_tail_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    for i in 0..20 {
        write(&engine, vec![index_op("a", Some(&format!("{i}")), &format!(r#"{{"v":{i}}}"#))])
            .await
            .remove(0)
            .unwrap();
    }
    drop(engine);
    drop(reopen(dir.path()).await);
    let log = files(dir.path(), ".log").remove(0);
    let len = std::fs::metadata(&log).unwrap().len();
    flip(&log, len / 2);
    let opened = loop {
        match Engine::open(config(dir.path()), Arc::new(SystemClock)).await {
            Err(Error::Locked(_)) => tokio::task::yield_now().await,
            other => break other,
        }
    };
    match &opened {
        Err(Error::Corrupt { offset, .. }) => assert!(*offset <= len / 2 && *offset > 0, "{offset}"),
        other => panic!("{other:?}"),
    }
    assert_corrupt(opened, &log);
    flip(&log, len / 2);
    // The newest file ends in the middle of a record that was never acknowledged.
    let newest = files(dir.path(), ".log").pop().unwrap();
    let mut bytes = std::fs::read(&newest).unwrap();
    bytes.extend_from_slice(&std::fs::read(&log).unwrap()[64..100]);
    std::fs::write(&newest, bytes).unwrap();
    let engine = reopen(dir.path()).await;
    for i in 0..20 {
        assert_eq!(get(&engine, "a", &format!("{i}")).await.unwrap(), Some(format!(r#"{{"v":{i}}}"#)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_log_stops_the_start() {
    let dir = tempfile::tempdir().unwrap();
    stored(dir.path(), 0).await;
    let wal = dir.path().join("wal");
    let kept = dir.path().join("kept");
    std::fs::rename(&wal, &kept).unwrap();
    let error = Engine::open(config(dir.path()), Arc::new(SystemClock)).await.unwrap_err();
    assert!(
        matches!(&error, Error::Corrupt { reason, .. } if reason.contains("log files are missing")),
        "{error}"
    );
    std::fs::remove_dir_all(&wal).unwrap();
    std::fs::rename(&kept, &wal).unwrap();
    let engine = reopen(dir.path()).await;
    assert!(get(&engine, "a", "7").await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_sync_stops_writes_and_acknowledges_nothing() {
    let disk = SimulatedDisk::new(5);
    let catalog = Arc::new(MemoryCatalog::new(disk.clone()));
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(1_700_000_000_000));
    let open = async |disk: &SimulatedDisk, catalog: &Arc<MemoryCatalog>| {
        let config = Config { compute_threads: 1, ..config(dir.path()) };
        Engine::open_with(config, clock.clone(), Arc::new(disk.clone()), Arc::clone(catalog) as _)
            .await
            .unwrap()
    };
    let engine = open(&disk, &catalog).await;
    write(&engine, vec![index_op("a", Some("1"), r#"{"v":1}"#)]).await.remove(0).unwrap();
    // Other files than the log may be about to be synced.
    (0..8).for_each(|n| disk.fail_sync(n));
    let ops = || vec![index_op("a", Some("2"), r#"{"v":2}"#)];
    for _ in 0..2 {
        let refused =
            engine.write(&Principal::system(), ops(), RefreshPolicy::None, Duration::from_secs(5)).await;
        assert!(matches!(refused, Err(Error::Stopped(_))), "{refused:?}");
    }
    assert!(engine.flush(&[engine.index("a").unwrap()]).await.is_err(), "nothing unsynced is committed");
    assert!(get(&engine, "a", "1").await.unwrap().is_some(), "reads go on");
    drop(engine);
    let disk = disk.power_loss();
    let engine = open(&disk, &Arc::new(catalog.reopen(disk.clone()))).await;
    assert_eq!(get(&engine, "a", "1").await.unwrap().as_deref(), Some(r#"{"v":1}"#));
}

/// A small file system of its own.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None`, with a line that says so, where mounting is not permitted.
    fn mount(bytes: u64) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(dir.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(dir)),
            other => {
                eprintln!("SKIPPED: a full disk cannot be tested, mounting is not permitted: {other:?}");
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_writes_serves_reads_and_recovers_by_itself() {
    let Some(disk) = SmallDisk::mount(48 << 20) else { return };
    let dir = disk.0.path().join("data");
    let ballast = disk.0.path().join("ballast");
    let engine = open(&dir).await;
    let padding = "p".repeat(1_000);
    let mut acknowledged = 0u32;
    let mut batch = async |engine: &Engine| {
        let ops = (0..500)
            .map(|i| {
                let n = acknowledged + i;
                index_op("a", Some(&format!("{n}")), &format!(r#"{{"v":{n},"p":"{padding}{n}"}}"#))
            })
            .collect();
        let written =
            engine.write(&Principal::system(), ops, RefreshPolicy::None, Duration::from_secs(5)).await;
        match written {
            Ok(outcomes) => {
                assert!(outcomes.iter().all(Result::is_ok), "{:?}", outcomes.iter().find(|o| o.is_err()));
                acknowledged += 500;
                Ok(acknowledged)
            }
            Err(error) => Err(error),
        }
    };
    for _ in 0..4 {
        batch(&engine).await.unwrap();
    }
    // Somebody else fills the disk to the last byte.
    let mut file = std::fs::File::create(&ballast).unwrap();
    while std::io::Write::write_all(&mut file, &[1; 4096]).is_ok() {}
    let refused = batch(&engine).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Overloaded, "{refused}");
    assert!(refused.to_string().contains("disk full"), "{refused}");
    let a = engine.index("a").unwrap();
    let scratch = dir.join("scratch");
    for _ in 0..3 {
        let failed = engine.flush(&[Arc::clone(&a)]).await.unwrap_err();
        assert!(failed.to_string().contains("No space left"), "{failed}");
        assert_eq!(files(&scratch, "").len(), 0, "a failed flush leaves files behind");
    }
    assert!(get(&engine, "a", "1999").await.unwrap().is_some());
    engine.refresh(&[Arc::clone(&a)]).await.unwrap();
    drop(file);
    std::fs::remove_file(&ballast).unwrap();
    let total = batch(&engine).await.unwrap();
    engine.flush(&[a]).await.unwrap();
    for n in (0..total).step_by(97) {
        assert!(get(&engine, "a", &format!("{n}")).await.unwrap().is_some(), "{n}");
    }
    drop(engine);
    let engine = reopen(&dir).await;
    engine.refresh(&[engine.index("a").unwrap()]).await.unwrap();
    let docs: u64 = engine.index("a").unwrap().figures().shards.iter().map(|s| s.docs).sum();
    assert_eq!(docs, u64::from(total));
    engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn at_the_flood_stage_indices_are_read_and_deleted_only() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SimulatedDisk::new(1);
    let catalog = Arc::new(MemoryCatalog::new(disk.clone()));
    let config =
        Config { data_dir: dir.path().to_owned(), disk_threshold_enabled: true, ..Config::default() };
    let clock = Arc::new(ManualClock::new(1_000));
    let engine = Engine::open_with(config, clock, Arc::new(disk.clone()), catalog).await.unwrap();
    let one = |index: &str| vec![index_op(index, Some("1"), r#"{"v":1}"#)];
    write(&engine, one("a")).await.remove(0).unwrap();
    let settings = serde_json::json!({ "persistent": {
        "cluster.routing.allocation.disk.watermark.high": "10gb",
        "cluster.routing.allocation.disk.watermark.flood_stage": "10gb",
    }});
    let update = millrace_catalog::metadata::ClusterSettingsUpdate::parse(&settings).unwrap();
    let system = Principal::system();
    let set = engine.change(&system, |state| state.update_cluster_settings(&update));
    set.await.unwrap();
    disk.set_capacity(8 << 30);
    while !engine.metadata().flood_stage {
        tokio::task::yield_now().await;
    }
    for op in [one("a"), one("new"), vec![op("a", Some("1"), Action::Delete)]] {
        let index = op[0].index.to_string();
        let refused = write(&engine, op).await.remove(0).unwrap_err();
        assert_eq!(
            refused.to_string(),
            format!(
                "index [{index}] blocked by: [TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage watermark, index \
                 has read-only-allow-delete block];"
            )
        );
    }
    assert!(engine.index("new").is_err(), "nothing is made for a write that is refused");
    write(&engine, one(".audit-2026.01.01")).await.remove(0).unwrap();
    assert!(get(&engine, "a", "1").await.unwrap().is_some());
    engine.flush(&[engine.index("a").unwrap()]).await.unwrap();
    let delete = engine.change(&system, |state| {
        state.delete_indices("a", &millrace_catalog::metadata::IndicesOptions::open_and_closed(), 0)
    });
    delete.await.unwrap();
    assert!(engine.index("a").is_err());

    disk.set_capacity(30 << 30);
    while engine.metadata().flood_stage {
        tokio::task::yield_now().await;
    }
    write(&engine, one("new")).await.remove(0).unwrap();
    engine.shutdown().await.unwrap();
}
