//! A catalog that is lost is made again of objects and log.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use futures::TryStreamExt;
use millrace_catalog::access::Principal;
use millrace_catalog::metadata::{IndicesOptions, Uuid};
use millrace_engine::repair::{Options, Report, repair};
use millrace_engine::{Action, Engine};
use millrace_runtime::{Error, Result};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;

use crate::documents::{config, index_op, op, open, reopen, write};

/// Version and source of each live document, by index and id.
type Documents = BTreeMap<(String, String), (u64, String)>;

async fn repaired(dir: &Path, options: Options) -> Report {
    loop {
        match repair(config(dir), options).await {
            Err(Error::Locked(_)) => tokio::task::yield_now().await,
            other => return other.unwrap(),
        }
    }
}

fn replace() -> Options {
    Options { replace: true, ..Options::default() }
}

fn lose(dir: &Path) {
    for name in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(dir.join(format!("catalog.sqlite{name}")));
    }
}

/// Returns the visible documents of all indices; no id is there twice.
async fn documents(engine: &Engine) -> Documents {
    let mut found = Documents::new();
    let indices = engine.resolve("*", &IndicesOptions::open_only()).unwrap();
    engine.refresh(&indices).await.unwrap();
    for index in indices {
        let name = index.meta().name.to_string();
        for shard in index.snapshot().await.unwrap().shards {
            for view in shard.segments {
                let rows: Vec<u32> =
                    (0..view.segment.rows()).filter(|row| !view.deleted.contains(*row)).collect();
                let fetched = view.segment.fetch(&rows, millrace_segment::RowParts::ALL);
                for row in fetched.await.unwrap() {
                    let source = String::from_utf8(row.source.to_vec()).unwrap();
                    let before = found.insert((name.clone(), row.id.clone()), (row.version, source));
                    assert!(before.is_none(), "[{}] of [{name}] is there twice", row.id);
                }
            }
        }
    }
    found
}

async fn create(engine: &Engine, name: &str, settings: serde_json::Value) {
    let body = json!({"settings": settings, "mappings": {"properties": {"k": {"type": "keyword"}}}});
    let system = Principal::system();
    let created = engine
        .change(&system, |metadata| metadata.create_index(name, &body, 1_700_000_000_000, Uuid::new_v4()));
    created.await.unwrap();
}

async fn delete(engine: &Engine, name: &str) {
    let system = Principal::system();
    let deleted = engine.change(&system, |metadata| {
        metadata.delete_indices(name, &IndicesOptions::open_only(), 1_700_000_000_000)
    });
    deleted.await.unwrap();
}

async fn put(engine: &Engine, index: &str, id: u32, source: &str) {
    let written = write(engine, vec![index_op(index, Some(&format!("{id}")), source)]).await;
    assert!(written.iter().all(Result::is_ok));
}

async fn remove(engine: &Engine, index: &str, id: u32) {
    assert!(
        write(engine, vec![op(index, Some(&format!("{id}")), Action::Delete)])
            .await
            .iter()
            .all(Result::is_ok)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_comes_back_but_what_was_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    create(&engine, "a", json!({"number_of_shards": 2, "refresh_interval": "7s"})).await;
    create(&engine, "empty", json!({})).await;
    create(&engine, "log-only", json!({"number_of_shards": 1})).await;
    create(&engine, "gone", json!({})).await;
    let a = || engine.index("a").unwrap();
    for round in 0..6u32 {
        for id in 0..20 {
            put(&engine, "a", round * 10 + id, &format!(r#"{{"n":{round},"k":"v{id}","f{round}":{id}}}"#))
                .await;
        }
        put(&engine, "gone", round, "{}").await;
        engine.flush(&[a(), engine.index("gone").unwrap()]).await.unwrap();
        remove(&engine, "a", round * 10 + 3).await;
        if round == 3 {
            engine.force_merge(&[a()], 1).await.unwrap();
        }
    }
    // A flush without rows, and a compaction of which none is left.
    remove(&engine, "a", 5).await;
    engine.flush(&[a()]).await.unwrap();
    for id in 0..4 {
        put(&engine, "log-only", id, r#"{"k":"x"}"#).await;
    }
    put(&engine, "a", 7, r#"{"late":true}"#).await;
    delete(&engine, "gone").await;
    let before = documents(&engine).await;
    let mapping = engine.index("a").unwrap().mapping().to_json();
    drop(engine);
    drop(reopen(dir.path()).await);
    lose(dir.path());
    let dry = repaired(dir.path(), Options { dry_run: true, ..Options::default() }).await;
    assert!(!dir.path().join("catalog.sqlite").exists());
    let report = repaired(dir.path(), Options::default()).await;
    assert_eq!(report.indices, dry.indices);
    // The log has documents of the one that is gone.
    assert!(report.log && report.lost.iter().all(|lost| lost.contains("it was deleted")), "{report}");
    let names: Vec<&str> = report.indices.iter().map(|index| index.name.as_str()).collect();
    assert_eq!(names, ["a", "empty", "log-only"]);
    let engine = reopen(dir.path()).await;
    assert_eq!(documents(&engine).await, before);
    assert_eq!(engine.index("a").unwrap().mapping().to_json(), mapping);
    let meta = engine.index("a").unwrap().meta();
    assert_eq!((meta.shards, meta.setting("index.refresh_interval")), (2, Some("7s")));
    // And it is a store as any other.
    put(&engine, "a", 7, r#"{"later":true}"#).await;
    engine.force_merge(&[engine.index("a").unwrap()], 1).await.unwrap();
    let before = documents(&engine).await;
    engine.shutdown().await.unwrap();
    drop(engine);
    let engine = reopen(dir.path()).await;
    assert_eq!(documents(&engine).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_log_what_was_flushed_comes_back_and_nothing_that_was_deleted_before() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    create(&engine, "a", json!({"number_of_shards": 1})).await;
    for id in 0..10 {
        put(&engine, "a", id, r#"{"v":1}"#).await;
    }
    engine.flush(&[engine.index("a").unwrap()]).await.unwrap();
    for id in 0..3 {
        remove(&engine, "a", id).await;
    }
    put(&engine, "a", 3, r#"{"v":2}"#).await;
    engine.flush(&[engine.index("a").unwrap()]).await.unwrap();
    let flushed = documents(&engine).await;
    put(&engine, "a", 4, r#"{"v":2}"#).await;
    put(&engine, "a", 100, r#"{"v":1}"#).await;
    drop(engine);
    drop(reopen(dir.path()).await);
    lose(dir.path());
    std::fs::remove_dir_all(dir.path().join("wal")).unwrap();
    let report = repaired(dir.path(), Options::default()).await;
    assert!(!report.log, "{report}");
    let engine = reopen(dir.path()).await;
    let found = documents(&engine).await;
    // A compaction may have left out by then what only the log had a newer version of.
    let overwritten = ("a".to_owned(), "4".to_owned());
    for (key, document) in &flushed {
        let kept = found.get(key);
        assert!(kept == Some(document) || kept.is_none() && *key == overwritten, "{key:?}: {kept:?}");
    }
    assert!(found.keys().all(|key| flushed.contains_key(key)), "{found:?}");
    // Frames go on behind those of the lost log.
    put(&engine, "a", 200, r#"{"v":1}"#).await;
    engine.flush(&[engine.index("a").unwrap()]).await.unwrap();
    assert_eq!(documents(&engine).await.len(), found.len() + 1);
    drop(engine);
    drop(reopen(dir.path()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_catalog_is_replaced_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).await;
    create(&engine, "a", json!({"number_of_shards": 1})).await;
    put(&engine, "a", 1, r#"{"v":1}"#).await;
    engine.shutdown().await.unwrap();
    drop(engine);
    let (here, older) = (dir.path().join("catalog.sqlite"), dir.path().join("older"));
    std::fs::copy(&here, &older).unwrap();
    let engine = reopen(dir.path()).await;
    create(&engine, "b", json!({})).await;
    for id in 1..9 {
        put(&engine, "a", id, r#"{"v":2}"#).await;
        put(&engine, "b", id, r#"{"v":2}"#).await;
        engine.flush(&[engine.index("a").unwrap()]).await.unwrap();
    }
    remove(&engine, "a", 2).await;
    let before = documents(&engine).await;
    engine.force_merge(&[engine.index("a").unwrap()], 1).await.unwrap();
    engine.shutdown().await.unwrap();
    drop(engine);
    lose(dir.path());
    std::fs::copy(&older, &here).unwrap();
    match Engine::open(config(dir.path()), Arc::new(millrace_runtime::SystemClock)).await {
        Err(Error::Mismatch { remedy, .. }) => assert!(remedy.contains("millrace repair"), "{remedy}"),
        other => panic!("{other:?}"),
    }
    match repair(config(dir.path()), Options::default()).await {
        Err(Error::Mismatch { remedy, .. }) => assert!(remedy.contains("--replace"), "{remedy}"),
        other => panic!("{other:?}"),
    }
    let report = repaired(dir.path(), replace()).await;
    assert!(report.moved_to.is_some_and(|moved| moved.ends_with("catalog.sqlite.before-repair")));
    let engine = reopen(dir.path()).await;
    assert_eq!(documents(&engine).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_rebuilt_is_told() {
    let dir = tempfile::tempdir().unwrap();
    match repair(config(dir.path()), Options::default()).await {
        Err(Error::Mismatch { what, .. }) => assert!(what.starts_with("there is nothing"), "{what}"),
        other => panic!("{other:?}"),
    }
    let engine = open(dir.path()).await;
    create(&engine, "a", json!({"number_of_shards": 1})).await;
    let uuid = engine.index("a").unwrap().meta().uuid.simple().to_string();
    let shard = dir.path().join("segments").join(uuid).join("0");
    let mut segments = Vec::new();
    for id in 0..3 {
        put(&engine, "a", id, "{}").await;
        engine.flush(&[engine.index("a").unwrap()]).await.unwrap();
        let there = std::fs::read_dir(&shard).unwrap().map(|entry| entry.unwrap().path());
        let new: Vec<_> = there.filter(|path| !segments.contains(path)).collect();
        segments.extend(new);
    }
    match repair(config(dir.path()), replace()).await {
        Err(Error::Locked(_)) => {}
        other => panic!("{other:?}"),
    }
    engine.shutdown().await.unwrap();
    drop(engine);
    std::fs::remove_file(segments[0].join("index.bundle")).unwrap();
    std::fs::remove_file(segments[1].join("segment.json")).unwrap();
    lose(dir.path());
    let report = repaired(dir.path(), Options::default()).await;
    let told = report.to_string();
    for said in [
        "files of it are missing",
        "that nothing describes",
        "no segment accounts for them",
        "aliases",
        "passwords",
    ] {
        assert!(told.contains(said), "{said}: {told}");
    }
    let engine = reopen(dir.path()).await;
    assert_eq!(documents(&engine).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_the_version_before_can_be_repaired_once_it_was_open() {
    let unpacked = tempfile::tempdir().unwrap();
    let dir = crate::identity::unpack_version_before(unpacked.path());
    let engine = reopen(&dir).await;
    let before = documents(&engine).await;
    // Described in the background.
    let described = |dir: &Path| {
        let list = |dir: &Path| {
            std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
        };
        let indices: Vec<_> =
            list(&dir.join("segments")).into_iter().filter(|dir| dir.join("index.json").exists()).collect();
        let shards = indices.iter().flat_map(|index| list(index)).filter(|path| path.is_dir());
        let segments: Vec<_> = shards.flat_map(|shard| list(&shard)).collect();
        indices.len() == 2
            && segments.iter().all(|segment| segment.join("segment.json").exists())
            && segments.iter().any(|segment| !segment.join("data.parquet").exists())
    };
    while !described(&dir) {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    engine.shutdown().await.unwrap();
    drop(engine);
    // Ended in order: of a crash a segment may be left that was being made.
    let engine = reopen(&dir).await;
    engine.shutdown().await.unwrap();
    drop(engine);
    lose(&dir);
    let report = repaired(&dir, Options::default()).await;
    assert!(report.lost.is_empty(), "{report}");
    let engine = reopen(&dir).await;
    assert_eq!(documents(&engine).await, before);
}

/// Indices of the process that is killed.
const INDICES: u32 = 100;
const CHILD: &str = "MILLRACE_TEST_REPAIR_CHILD";

/// Writes into a hundred indices until it is killed, and says what it is about to do and what it has done. Runs only as the
/// child of the test below.
#[tokio::test(flavor = "multi_thread")]
async fn child() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let engine = open(Path::new(&dir)).await;
    let tasks = (0..4u64).map(|task| tokio::spawn(work(Arc::clone(&engine), task)));
    let all: futures::stream::FuturesUnordered<_> = tasks.collect();
    all.try_collect::<Vec<()>>().await.unwrap();
}

fn say(line: &serde_json::Value) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n@{line}").unwrap();
    out.flush().unwrap();
}

/// One of four that write, each into indices of its own.
async fn work(engine: Arc<Engine>, task: u64) {
    let mut rng = SmallRng::seed_from_u64(task);
    let mut made = BTreeSet::new();
    for n in 0u64.. {
        let index = format!("i{}", rng.random_range(0..u64::from(INDICES) / 4) * 4 + task);
        if made.insert(index.clone()) {
            say(&json!({"create": index}));
            create(&engine, &index, json!({"number_of_shards": 1 + task % 2})).await;
            say(&json!({"created": index}));
        }
        let this = [engine.index(&index).unwrap()];
        match rng.random_range(0..100) {
            0..70 => {
                let ids: BTreeSet<u32> =
                    (0..rng.random_range(1..8)).map(|_| rng.random_range(0..12)).collect();
                let ops: Vec<(String, Option<String>)> = ids
                    .into_iter()
                    .map(|id| {
                        (
                            format!("{id}"),
                            rng.random_ratio(3, 4).then(|| format!(r#"{{"n":{n},"k":"{id}"}}"#)),
                        )
                    })
                    .collect();
                say(&json!({"write": index, "ops": ops}));
                let request = ops.iter().map(|(id, source)| match source {
                    Some(source) => index_op(&index, Some(id), source),
                    None => op(&index, Some(id), Action::Delete),
                });
                let done = write(&engine, request.collect()).await;
                let versions: Vec<u64> = done.into_iter().map(|done| done.unwrap().version).collect();
                say(&json!({"written": index, "versions": versions}));
            }
            70..90 => engine.flush(&this).await.unwrap(),
            90..98 => engine.force_merge(&this, 1).await.unwrap(),
            _ => {
                say(&json!({"delete": index}));
                delete(&engine, &index).await;
                made.remove(&index);
                say(&json!({"deleted": index}));
            }
        }
    }
}

/// Report of the child: documents acknowledged, and of each index the operation that was in flight.
#[derive(Default)]
struct ChildReport {
    documents: BTreeMap<String, BTreeMap<String, (u64, String)>>,
    pending: BTreeMap<String, serde_json::Value>,
    done: usize,
}

impl ChildReport {
    fn hear(&mut self, line: &serde_json::Value) {
        let name = |key: &str| line[key].as_str().map(str::to_owned);
        if let Some(index) = name("created") {
            self.documents.insert(index.clone(), BTreeMap::new());
            self.pending.remove(&index);
        } else if let Some(index) = name("deleted") {
            self.documents.remove(&index);
            self.pending.remove(&index);
        } else if let Some(index) = name("written") {
            let ops = self.pending.remove(&index).unwrap();
            let known = self.documents.get_mut(&index).unwrap();
            for (op, version) in
                ops["ops"].as_array().unwrap().iter().zip(line["versions"].as_array().unwrap())
            {
                let id = op[0].as_str().unwrap().to_owned();
                match op[1].as_str() {
                    Some(source) => known.insert(id, (version.as_u64().unwrap(), source.to_owned())),
                    None => known.remove(&id),
                };
            }
        } else {
            let index = ["create", "delete", "write"].iter().find_map(|key| name(key)).unwrap();
            self.pending.insert(index, line.clone());
            return;
        }
        self.done += 1;
    }

    /// Compares with what is there: what is acknowledged, and what was under way as a whole or not at all.
    fn check(&self, found: &Documents, engine: &Engine) {
        let mut by_index: BTreeMap<String, BTreeMap<String, (u64, String)>> = BTreeMap::new();
        for index in engine.resolve("*", &IndicesOptions::open_only()).unwrap() {
            by_index.insert(index.meta().name.to_string(), BTreeMap::new());
        }
        for ((index, id), document) in found {
            by_index.get_mut(index).unwrap().insert(id.clone(), document.clone());
        }
        let names: BTreeSet<&String> = self.documents.keys().chain(by_index.keys()).collect();
        for name in names {
            let (known, there) = (self.documents.get(name), by_index.get(name));
            let Some(pending) = self.pending.get(name) else {
                assert_eq!(there, known, "{name}");
                continue;
            };
            match (known, there) {
                (None, None) => {}
                (None, Some(there)) => assert!(pending.get("create").is_some() && there.is_empty(), "{name}"),
                (Some(_), None) => assert!(pending.get("delete").is_some(), "{name}"),
                (Some(known), Some(there)) if there == known => {}
                (Some(known), Some(there)) => {
                    let mut known: BTreeMap<&str, &str> =
                        known.iter().map(|(id, (_, source))| (id.as_str(), source.as_str())).collect();
                    for op in pending["ops"].as_array().unwrap() {
                        let id = op[0].as_str().unwrap();
                        match op[1].as_str() {
                            Some(source) => known.insert(id, source),
                            None => known.remove(id),
                        };
                    }
                    let there: BTreeMap<&str, &str> =
                        there.iter().map(|(id, (_, source))| (id.as_str(), source.as_str())).collect();
                    assert_eq!(there, known, "{name}");
                }
            }
        }
    }
}

/// Starts the child, and kills it after so many operations.
fn killed_after(dir: &Path, done: usize) -> ChildReport {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["repair::child", "--exact", "--nocapture"])
        .env(CHILD, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = ChildReport::default();
    let out = BufReader::new(child.stdout.take().unwrap());
    let mut killed = false;
    for line in out.lines() {
        let line = line.unwrap();
        // The last line may be cut off: then it is not known to have been said.
        if let Some(Ok(line)) = line.strip_prefix('@').map(serde_json::from_str) {
            told.hear(&line);
        }
        if told.done >= done && !killed {
            killed = true;
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(killed, "the child ended by itself");
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_indices_come_back_after_a_kill() {
    for done in [400, 1_500] {
        let dir = tempfile::tempdir().unwrap();
        let told = killed_after(dir.path(), done);
        lose(dir.path());
        let report = repaired(dir.path(), Options::default()).await;
        assert!(report.log, "{report}");
        let engine = reopen(dir.path()).await;
        let found = documents(&engine).await;
        assert!(
            told.documents.len() > 60 && found.len() > 100,
            "{} of {}",
            found.len(),
            told.documents.len()
        );
        told.check(&found, &engine);
        drop(engine);
        // Twice is as good as once, also with what has been written since.
        let engine = reopen(dir.path()).await;
        engine.shutdown().await.unwrap();
        drop(engine);
        drop(reopen(dir.path()).await);
        repaired(dir.path(), replace()).await;
        let engine = reopen(dir.path()).await;
        assert_eq!(documents(&engine).await, found);
        engine.shutdown().await.unwrap();
        drop(engine);
        // Nor does anything come back that was deleted, where the log is gone as well.
        drop(reopen(dir.path()).await);
        let _ = std::fs::remove_file(dir.path().join("catalog.sqlite.before-repair"));
        std::fs::remove_dir_all(dir.path().join("wal")).unwrap();
        repaired(dir.path(), replace()).await;
        let engine = reopen(dir.path()).await;
        assert_eq!(documents(&engine).await, found);
    }
}
