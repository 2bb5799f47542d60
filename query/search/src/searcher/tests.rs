use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use millrace_catalog::metadata::IndexMeta;
use millrace_mapping::Mapping;
use millrace_matching::table::{TableIndex, TableSegment};
use millrace_scoring::fixture::{Access, Fixture, ObservedSegment};
use millrace_scoring::reader::SegmentReader;
use parking_lot::Mutex;
use serde_json::Map;

use super::*;

/// Makes a segment that says when it is opened and then waits to be let through.
fn gated(
    opened: &Arc<AtomicUsize>,
    entered: Sender<()>,
    release: &Arc<Mutex<Receiver<()>>>,
) -> Arc<dyn SegmentReader> {
    let (opened, release) = (Arc::clone(opened), Arc::clone(release));
    ObservedSegment::new(Fixture::new(&[("disk full", "a", 1)]), move |access| {
        if access == Access::Open {
            opened.fetch_add(1, Ordering::SeqCst);
            entered.send(()).unwrap();
            release.lock().recv().unwrap();
        }
    })
}

fn index() -> TableIndex {
    let meta = IndexMeta {
        name: "logs".into(),
        uuid: uuid::Uuid::nil(),
        settings: Map::new(),
        aliases: BTreeMap::new(),
        open: true,
        created_ms: 0,
        shards: 1,
        replicas: 0,
        doc_type: None,
    };
    TableIndex {
        meta: Arc::new(meta),
        mapping: Arc::new(Mapping::empty(&Map::new())),
        filter: None,
        seen: Default::default(),
        shards: vec![0],
        boost: 1.0,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_that_nobody_waits_for_stops() {
    let opened = Arc::new(AtomicUsize::new(0));
    let (entered, enters) = channel();
    let (go_on, release) = channel();
    let release = Arc::new(Mutex::new(release));
    let segments = (0..3).map(|_| TableSegment {
        index: 0,
        shard: 0,
        reader: gated(&opened, entered.clone(), &release),
        deleted: Arc::default(),
        ruled: None,
    });
    let snapshot = Arc::new(TableSnapshot {
        indices: vec![index()],
        segments: segments.collect(),
        shards: 1,
        listed: None,
    });
    let compute = Compute::new(millrace_runtime::Compute::start(1).unwrap());
    let spills = tempfile::tempdir().unwrap();
    let planner = Planner::new(1, 1 << 20, 1 << 20, &spills.path().join("spill")).unwrap();
    let searcher = Searcher { planner, compute: compute.clone() };
    let search = tokio::spawn(async move {
        let query = Query::match_all();
        searcher
            .find(Search { size: 3, ..Search::new(snapshot, &query, 0, &QueryContext::default()) })
            .await
            .map(|_| ())
    });
    tokio::task::spawn_blocking(move || enters.recv().unwrap()).await.unwrap();
    search.abort();
    assert!(search.await.unwrap_err().is_cancelled());
    for _ in 0..3 {
        go_on.send(()).unwrap();
    }
    // The one thread comes to this when it has left the search.
    compute.run(|| Ok(())).await.unwrap();
    assert_eq!(opened.load(Ordering::SeqCst), 1);
}

#[test]
fn slices_of_a_snapshot_part_the_rows_of_each_segment() {
    for rows in [0_u32, 1, 7, 300, 100_000] {
        for max in [2_u64, 3, 1_024] {
            let mut all = RoaringBitmap::new();
            for id in 0..max {
                let own = rows_of_slice(Slice { id, max }, 5, rows);
                assert!(own.is_disjoint(&all));
                let share = u64::from(rows) / max;
                assert!(own.len() <= share + share / 8 + 512, "{rows} rows, {max} slices: {}", own.len());
                all |= own;
            }
            assert_eq!(all.len(), u64::from(rows));
        }
    }
}
