//! A store starts only with its own catalog, log and objects, and collects nothing in haste.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use millrace_catalog::access::Principal;
use millrace_catalog::metadata::IndicesOptions;
use millrace_engine::{Action, Config, Engine};
use millrace_runtime::{Clock, Error, ManualClock, Result, SystemClock};

use crate::documents::{config, index_op, op, open, reopen, write};

const HOUR_MS: i64 = 60 * 60 * 1000;

async fn get(engine: &Engine, index: &str, id: &str) -> Option<String> {
    let found = engine.get(&Principal::system(), index, id, None, true).await.unwrap();
    found.map(|doc| String::from_utf8(doc.source.to_vec()).unwrap())
}

/// Documents from `from` on: a flushed one, one deleted of an earlier flush, one in the log alone; and others, so that
/// no compaction is due for the share that is deleted.
async fn fill(engine: &Engine, from: u32) {
    let put = |id: u32| index_op("a", Some(&format!("{id}")), &format!(r#"{{"v":{id}}}"#));
    for step in 0..3 {
        let ids = [0, 100, 200, 300].map(|more| from + more + step);
        assert!(write(engine, ids.map(put).to_vec()).await.iter().all(Result::is_ok));
        engine.flush(&[engine.index("a").unwrap()]).await.unwrap();
        let delete = op("a", Some(&format!("{}", from + 100 + step)), Action::Delete);
        assert!(write(engine, vec![delete]).await.iter().all(Result::is_ok));
    }
    assert!(write(engine, vec![put(from + 3)]).await.iter().all(Result::is_ok));
}

async fn check(engine: &Engine, from: u32) {
    for id in from..from + 4 {
        assert_eq!(get(engine, "a", &format!("{id}")).await, Some(format!(r#"{{"v":{id}}}"#)));
    }
    for id in from + 100..from + 103 {
        assert_eq!(get(engine, "a", &format!("{id}")).await, None);
    }
}

/// Files below a directory with their lengths.
fn files(dir: &Path) -> BTreeMap<PathBuf, u64> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                dirs.push(entry.path());
            } else {
                found.insert(entry.path(), entry.metadata().unwrap().len());
            }
        }
    }
    found
}

async fn try_open(dir: &Path) -> Result<Arc<Engine>> {
    loop {
        match Engine::open(config(dir), Arc::new(SystemClock)).await {
            Err(Error::Locked(_)) => tokio::task::yield_now().await,
            other => return other,
        }
    }
}

/// Waits until an engine that was dropped has let go of its directory.
async fn released(dir: &Path) {
    let lock = std::fs::File::open(dir.join("lock"));
    while lock.as_ref().is_ok_and(|lock| lock.try_lock().is_err()) {
        tokio::task::yield_now().await;
    }
}

/// Asserts that the store is refused, saying so, twice, and that nothing of it is changed.
async fn refuses(dir: &Path, said: &str) {
    released(dir).await;
    let mut before = files(dir);
    // SQLite removes these two when the last connection has closed, which may be after the lock is let go.
    before.retain(|file, _| !["-wal", "-shm"].iter().any(|end| file.to_string_lossy().ends_with(end)));
    for _ in 0..2 {
        match try_open(dir).await {
            Err(error @ Error::Mismatch { .. }) => assert!(error.to_string().contains(said), "{error}"),
            other => panic!("{other:?} where [{said}] was expected"),
        }
    }
    let mut after = files(dir);
    after.retain(|file, _| before.contains_key(file));
    assert_eq!(after, before);
}

fn catalog(dir: &Path) -> PathBuf {
    dir.join("catalog.sqlite")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_catalog_refuses_the_start_and_nothing_is_collected() {
    for shut_down in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path()).await;
        fill(&engine, 0).await;
        if shut_down {
            engine.shutdown().await.unwrap();
        }
        drop(engine);
        drop(reopen(dir.path()).await);
        drop(reopen(dir.path()).await);
        let (here, kept) = (catalog(dir.path()), dir.path().join("kept"));
        drop(reopen(dir.path()).await);
        std::fs::rename(&here, &kept).unwrap();
        refuses(dir.path(), "is new or lost").await;
        assert!(!here.exists());
        // Nor with an empty one in its place.
        std::fs::write(&here, b"").unwrap();
        refuses(dir.path(), "belongs to store").await;
        // Nor where either of log and objects is left.
        let (log, aside) = (dir.path().join("wal"), dir.path().join("aside"));
        std::fs::remove_file(&here).unwrap();
        std::fs::rename(&log, &aside).unwrap();
        refuses(dir.path(), "belongs to store").await;
        let _ = std::fs::remove_dir_all(&log);
        std::fs::rename(&aside, &log).unwrap();
        let (segments, aside) = (dir.path().join("segments"), dir.path().join("aside"));
        std::fs::rename(&segments, &aside).unwrap();
        refuses(dir.path(), "the log").await;
        let _ = std::fs::remove_dir_all(&segments);
        std::fs::rename(&aside, &segments).unwrap();
        std::fs::rename(&kept, &here).unwrap();
        let engine = try_open(dir.path()).await.unwrap();
        check(&engine, 0).await;
        engine.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_belongs_to_another_store_is_refused_and_not_wiped() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for dir in [&one, &two] {
        let engine = open(dir.path()).await;
        fill(&engine, 0).await;
        engine.shutdown().await.unwrap();
    }
    let swap = |name: &str| {
        let aside = one.path().join("aside");
        std::fs::rename(one.path().join(name), &aside).unwrap();
        std::fs::rename(two.path().join(name), one.path().join(name)).unwrap();
        std::fs::rename(&aside, two.path().join(name)).unwrap();
    };
    for (name, said) in [("segments", "object store"), ("wal", "the log")] {
        swap(name);
        for dir in [&one, &two] {
            refuses(dir.path(), said).await;
        }
        swap(name);
    }
    // Objects without a name are not this store's, either.
    let owner = one.path().join("segments/store.json");
    let content = std::fs::read(&owner).unwrap();
    std::fs::remove_file(&owner).unwrap();
    refuses(one.path(), "has no store.json").await;
    std::fs::write(&owner, content).unwrap();
    for dir in [&one, &two] {
        let engine = try_open(dir.path()).await.unwrap();
        check(&engine, 0).await;
        engine.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_catalog_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    fill(&engine, 0).await;
    engine.shutdown().await.unwrap();
    drop(engine);
    let (here, older, newest) = (catalog(dir.path()), dir.path().join("older"), dir.path().join("newest"));
    std::fs::copy(&here, &older).unwrap();
    let engine = reopen(dir.path()).await;
    fill(&engine, 10).await;
    engine.shutdown().await.unwrap();
    drop(engine);
    std::fs::rename(&here, &newest).unwrap();
    std::fs::copy(&older, &here).unwrap();
    refuses(dir.path(), "older than").await;
    std::fs::rename(&newest, &here).unwrap();
    let engine = try_open(dir.path()).await.unwrap();
    check(&engine, 0).await;
    check(&engine, 10).await;
    engine.shutdown().await.unwrap();
}

/// Moves catalog and log out of a data directory, or in.
fn move_node(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for name in ["catalog.sqlite", "catalog.sqlite-wal", "catalog.sqlite-shm", "wal"] {
        if from.join(name).exists() {
            std::fs::rename(from.join(name), to.join(name)).unwrap();
        }
    }
}

fn copy_node(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    let copied =
        Command::new("cp").arg("-r").arg(catalog(from)).arg(from.join("wal")).arg(to).status().unwrap();
    assert!(copied.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_data_directory_beside_newer_objects_is_refused() {
    for killed in [false, true] {
        let (dir, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (older, newest) = (kept.path().join("older"), kept.path().join("newest"));
        let engine = open(dir.path()).await;
        fill(&engine, 0).await;
        engine.shutdown().await.unwrap();
        drop(engine);
        released(dir.path()).await;
        copy_node(dir.path(), &older);
        let engine = reopen(dir.path()).await;
        let generation = dir.path().join("segments/generation.json");
        let of_start = std::fs::read(&generation).unwrap();
        fill(&engine, 10).await;
        engine.shutdown().await.unwrap();
        drop(engine);
        released(dir.path()).await;
        if killed {
            // All that is noted is the start.
            std::fs::write(&generation, of_start).unwrap();
        }
        move_node(dir.path(), &newest);
        move_node(&older, dir.path());
        refuses(dir.path(), "older than the object store").await;
        move_node(dir.path(), &older);
        move_node(&newest, dir.path());
        let engine = try_open(dir.path()).await.unwrap();
        check(&engine, 0).await;
        check(&engine, 10).await;
        engine.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deletions_of_a_newer_catalog_refuse_the_start_and_others_have_their_time() {
    let (dir, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(dir.path()).await;
    let put = |id: u32| index_op("a", Some(&format!("{id}")), &format!(r#"{{"v":{id}}}"#));
    assert!(write(&engine, (0..20).map(put).collect()).await.iter().all(Result::is_ok));
    let flush = async |engine: &Engine| engine.flush(&[engine.index("a").unwrap()]).await.unwrap();
    let delete = async |engine: &Engine, id: u32| {
        let delete = op("a", Some(&format!("{id}")), Action::Delete);
        assert!(write(engine, vec![delete]).await.iter().all(Result::is_ok));
    };
    flush(&engine).await;
    let deletes = |generation: u64| {
        let start = format!("deletes-{generation}-");
        files(&dir.path().join("segments"))
            .into_keys()
            .find(|file| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&start)))
    };
    delete(&engine, 0).await;
    flush(&engine).await;
    let first = deletes(1).unwrap();
    let of_first = std::fs::read(&first).unwrap();
    engine.shutdown().await.unwrap();
    drop(engine);
    released(dir.path()).await;
    copy_node(dir.path(), kept.path());
    let engine = reopen(dir.path()).await;
    for id in [1, 2] {
        delete(&engine, id).await;
        flush(&engine).await;
    }
    let third = std::fs::read(deletes(3).unwrap()).unwrap();
    engine.shutdown().await.unwrap();
    drop(engine);
    released(dir.path()).await;
    // What a version wrote that noted nothing in the object store.
    std::fs::remove_file(dir.path().join("segments/generation.json")).unwrap();
    let newest = kept.path().join("newest");
    move_node(dir.path(), &newest);
    move_node(kept.path(), dir.path());
    refuses(dir.path(), "deletes-3-").await;
    move_node(dir.path(), &kept.path().join("older"));
    move_node(&newest, dir.path());
    // One that was replaced, and one of a commit that a crash cut short, with the rows of nobody knows what.
    let next = first.with_file_name("deletes-4-00000000000040008000000000000000.roaring");
    std::fs::write(&first, of_first).unwrap();
    std::fs::write(&next, third).unwrap();
    let clock = Arc::new(ManualClock::new(SystemClock.now_ms() + 23 * HOUR_MS));
    let engine = Engine::open(config(dir.path()), clock.clone()).await.unwrap();
    assert!(first.exists() && next.exists());
    delete(&engine, 3).await;
    flush(&engine).await;
    clock.advance_ms(2 * HOUR_MS);
    while first.exists() {
        tokio::task::yield_now().await;
    }
    drop(engine);
    let engine = reopen(dir.path()).await;
    for id in 0..20 {
        assert_eq!(get(&engine, "a", &id.to_string()).await.is_none(), id < 4, "{id}");
    }
    assert!(next.exists());
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_names_its_store_whatever_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    // Files of the log of 64 KB.
    let small = || Config { wal_max_bytes: 512 << 10, ..config(dir.path()) };
    let engine = Engine::open(small(), Arc::new(SystemClock)).await.unwrap();
    let padding = "x".repeat(40_000);
    for round in 0..20 {
        let ops = (0..3)
            .map(|id| index_op("a", Some(&format!("{id}")), &format!(r#"{{"r":{round},"p":"{padding}"}}"#)));
        assert!(write(&engine, ops.collect()).await.iter().all(Result::is_ok));
        engine.flush(&[engine.index("a").unwrap()]).await.unwrap();
    }
    drop(engine);
    drop(reopen(dir.path()).await);
    assert!(!dir.path().join("wal/00000000000000000001.log").exists(), "nothing was cut");
    let engine = reopen(dir.path()).await;
    assert!(get(&engine, "a", "1").await.unwrap().starts_with(r#"{"r":19,"#));
    drop(engine);
    let engine = reopen(dir.path()).await;
    engine.shutdown().await.unwrap();
    drop(engine);
    released(dir.path()).await;
    std::fs::rename(dir.path().join("segments"), dir.path().join("aside")).unwrap();
    std::fs::remove_file(catalog(dir.path())).unwrap();
    refuses(dir.path(), "the log").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_are_left_for_a_day() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    fill(&engine, 0).await;
    let uuid = engine.index("a").unwrap().meta().uuid.simple().to_string();
    engine.shutdown().await.unwrap();
    drop(engine);
    let orphan =
        dir.path().join("segments").join(uuid).join("0/00112233445566778899aabbccddeeff/data.parquet");
    std::fs::create_dir_all(orphan.parent().unwrap()).unwrap();
    std::fs::write(&orphan, b"rows").unwrap();
    let foreign = dir.path().join("segments/readme.txt");
    std::fs::write(&foreign, b"not of this store").unwrap();
    let alike = dir.path().join("segments/photos/2024/00112233445566778899aabbccddeeff/data.parquet");
    std::fs::create_dir_all(alike.parent().unwrap()).unwrap();
    std::fs::write(&alike, b"not of this store, either").unwrap();
    let clock = Arc::new(ManualClock::new(SystemClock.now_ms() + 23 * HOUR_MS));
    let engine = Engine::open(config(dir.path()), clock.clone()).await.unwrap();
    check(&engine, 0).await;
    assert!(orphan.exists());
    // The time passes while the server runs.
    clock.advance_ms(2 * HOUR_MS);
    while orphan.exists() {
        tokio::task::yield_now().await;
    }
    check(&engine, 0).await;
    assert!(foreign.exists() && alike.exists());
    engine.shutdown().await.unwrap();
}

/// A data directory of the version before, made by its tests; `storage/engine/tests/fixtures`.
pub(crate) fn unpack_version_before(into: &Path) -> PathBuf {
    unpack("version-0.1-without-store-id.tar.gz", into)
}

pub(crate) fn unpack(fixture: &str, into: &Path) -> PathBuf {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(fixture);
    let unpacked = Command::new("tar").arg("-xzf").arg(fixture).arg("-C").arg(into).status().unwrap();
    assert!(unpacked.success());
    into.join("data")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_directory_of_the_version_before_opens_and_gets_an_id() {
    let unpacked = tempfile::tempdir().unwrap();
    let dir = unpack_version_before(unpacked.path());
    for _ in 0..3 {
        let engine = reopen(&dir).await;
        for index in ["logs", "auto"] {
            let i = engine.index(index).unwrap();
            engine.refresh(&[Arc::clone(&i)]).await.unwrap();
            // 40 ids, 3 of them deleted and a fourth in the log, which has one or two more.
            let live: u64 = i.figures().shards.iter().map(|shard| shard.docs).sum();
            assert_eq!(live, if index == "logs" { 38 } else { 37 }, "{index}");
            assert_eq!(get(&engine, index, "5").await.unwrap(), r#"{"n":555}"#);
            assert_eq!(get(&engine, index, "6").await, None);
            assert_eq!(get(&engine, index, "20").await, None);
            assert_eq!(get(&engine, index, "21").await.unwrap(), r#"{"n":201,"w":"word 1","round2":1}"#);
            assert_eq!(get(&engine, index, "log").await.unwrap(), r#"{"n":7,"new":"x"}"#);
        }
        assert_eq!(engine.resolve("all", &IndicesOptions::open_only()).unwrap().len(), 1);
    }
    let engine = reopen(&dir).await;
    engine.shutdown().await.unwrap();
    drop(engine);
    std::fs::remove_file(catalog(&dir)).unwrap();
    refuses(&dir, "belongs to store").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_catalog_of_the_version_before_refuses_the_start() {
    let unpacked = tempfile::tempdir().unwrap();
    let dir = unpack_version_before(unpacked.path());
    std::fs::remove_file(catalog(&dir)).unwrap();
    refuses(&dir, "has segments").await;
    std::fs::write(catalog(&dir), b"").unwrap();
    refuses(&dir, "has segments").await;
    std::fs::remove_dir_all(dir.join("segments")).unwrap();
    refuses(&dir, "has been written to").await;
}
