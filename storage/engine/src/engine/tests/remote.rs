//! A store whose segments are elsewhere: what is kept here of their files.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_catalog::MemoryCatalog;
use millrace_catalog::access::Principal;
use millrace_mapping::Scalar;
use millrace_runtime::SystemClock;
use millrace_runtime::disk::{SimulatedDisk, SystemDisk};
use millrace_segment::Segment;
use millrace_segment::objects::Objects;
use millrace_segment::objects::counting::CountingStore;
use parking_lot::Mutex;
use tantivy::DocSet;

use super::super::{Action, Engine, RefreshPolicy, WriteOp, recovery};
use crate::Config;

/// Documents of a segment.
pub(super) const DOCS: usize = 200;

pub(super) async fn open(dir: &Path, store: &CountingStore, cache_bytes: u64) -> Arc<Engine> {
    let config = Config { data_dir: dir.to_owned(), cache_bytes, compute_threads: 8, ..Config::default() };
    let objects = Objects::remote(Arc::new(store.clone()), Arc::new(SystemDisk));
    let catalog = Arc::new(MemoryCatalog::new(SimulatedDisk::new(1)));
    let inner = recovery::open(
        config,
        Arc::new(SystemClock),
        Arc::new(SystemDisk),
        Some(catalog),
        Some(objects),
        Arc::default(),
    );
    // Nothing is compacted.
    Arc::new(Engine {
        inner: inner.await.unwrap(),
        upkeep: Mutex::default(),
        visibility: Default::default(),
        views: Default::default(),
    })
}

async fn write(engine: &Engine, ids: std::ops::Range<usize>) {
    let op = |id: usize| {
        WriteOp::new(
            "a",
            Some(id.to_string()),
            Action::Index(Bytes::from(format!(r#"{{"v":"{id}","t":"all {}"}}"#, id % 10))),
        )
    };
    let wait = Duration::from_secs(5);
    let written = engine.write(&Principal::system(), ids.map(op).collect(), RefreshPolicy::None, wait).await;
    assert!(written.unwrap().iter().all(Result::is_ok));
}

/// Makes an index of so many segments; the bytes of a bundle and of a sidecar.
pub(super) async fn fill(engine: &Engine, segments: usize) -> (u64, u64) {
    for segment in 0..segments {
        write(engine, segment * DOCS..(segment + 1) * DOCS).await;
        engine.flush(&[engine.index("a").unwrap()]).await.unwrap();
    }
    let segments = stored(engine).await;
    let records = segments.iter().map(|segment| &segment.as_stored().unwrap().record);
    records.fold((0, 0), |most, record| (record.bundle_bytes.max(most.0), record.ids_bytes.max(most.1)))
}

pub(super) async fn stored(engine: &Engine) -> Vec<Arc<Segment>> {
    let snapshot = engine.index("a").unwrap().snapshot().await.unwrap();
    snapshot.shards[0].segments.iter().map(|view| Arc::clone(&view.segment)).collect()
}

/// Finds the one document of each segment with a value.
async fn search(engine: &Engine) {
    let path = engine.index("a").unwrap().mapping().field("v.keyword").unwrap().id;
    for (number, segment) in stored(engine).await.into_iter().enumerate() {
        let bundle = segment.bundle().await.unwrap();
        let value = Scalar::Str((number * DOCS + 7).to_string());
        assert_eq!(bundle.postings(path, &value).unwrap().unwrap().doc(), 7);
    }
}

fn on_disk(dir: &Path) -> u64 {
    let files = std::fs::read_dir(dir.join("cache")).unwrap();
    // One may be removed meanwhile.
    files.filter_map(|file| Some(file.unwrap().metadata().ok()?.len())).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cache_keeps_its_bound_once_searches_have_ended() {
    let dir = tempfile::tempdir().unwrap();
    let (bundle, ids) = fill(&*open(dir.path(), &CountingStore::default(), 1).await, 20).await;
    // A cache of five bundles, then one of all files.
    for (bound, fetched) in [(5 * bundle, 2), (20 * (bundle + ids), 1)] {
        let dir = tempfile::tempdir().unwrap();
        let store = CountingStore::default();
        let engine = open(dir.path(), &store, bound).await;
        fill(&engine, 20).await;
        for _ in 0..2 {
            search(&engine).await;
            assert!(on_disk(dir.path()) <= bound, "{} of {bound}", on_disk(dir.path()));
        }
        assert_eq!(store.gets("index.bundle"), vec![fetched; 20]);
        // A search that is on its way holds what it needs, and only for so long.
        let segments = stored(&engine).await;
        let mut held = Vec::new();
        for segment in &segments {
            held.push(segment.bundle().await.unwrap());
        }
        let in_use: usize = held.iter().map(|bundle| bundle.size_bytes()).sum();
        assert!(on_disk(dir.path()) >= in_use as u64);
        drop(held);
        assert!(on_disk(dir.path()) <= bound, "{} of {bound}", on_disk(dir.path()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn searches_side_by_side_share_a_fetch_and_its_error() {
    let dir = tempfile::tempdir().unwrap();
    let store = CountingStore::default();
    let engine = open(dir.path(), &store, 1 << 30).await;
    fill(&engine, 1).await;
    let segment = stored(&engine).await.remove(0);
    for failing in [true, false] {
        let before = store.gets("index.bundle").first().copied().unwrap_or(0);
        store.open(false);
        store.fail(failing);
        let searches: Vec<_> = (0..8)
            .map(|_| {
                let segment = Arc::clone(&segment);
                tokio::spawn(async move { segment.bundle().await.map(drop) })
            })
            .collect();
        while store.gets("index.bundle").first().copied().unwrap_or(0) == before {
            tokio::task::yield_now().await;
        }
        // Threads of the runtime wait for nothing meanwhile.
        tokio::spawn(async {}).await.unwrap();
        store.open(true);
        for search in searches {
            let searched = search.await.unwrap();
            assert_eq!(searched.is_err(), failing, "{searched:?}");
        }
        let fetches = store.gets("index.bundle")[0] - before;
        // Whoever came when the fetch had failed has tried again.
        assert!(if failing { fetches <= 8 } else { fetches == 1 }, "{fetches}");
    }
    assert_eq!(std::fs::read_dir(dir.path().join("cache")).unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_copy_is_fetched_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = CountingStore::default();
    let engine = open(dir.path(), &store, 1 << 30).await;
    fill(&engine, 1).await;
    let path = object_store::path::Path::parse(store.paths("index.bundle").remove(0)).unwrap();
    let objects = &engine.inner.env().objects;
    let whole = objects.get(&path).await.unwrap();
    let mut damaged = whole.to_vec();
    damaged[whole.len() / 2] ^= 1;
    objects.put(&path, Bytes::from(damaged)).await.unwrap();
    let segment = stored(&engine).await.remove(0);
    let error = segment.bundle().await.unwrap_err();
    assert!(matches!(error, millrace_runtime::Error::Corrupt { .. }), "{error}");
    objects.put(&path, whole).await.unwrap();
    segment.bundle().await.unwrap();
    // And what is gone takes its copies along.
    drop(segment);
    write(&engine, DOCS..2 * DOCS).await;
    engine.force_merge(&[engine.index("a").unwrap()], 1).await.unwrap();
    let gone = async {
        while on_disk(dir.path()) > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.unwrap();
}
