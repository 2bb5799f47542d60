//! A merge that its caller cancels.

use millrace_runtime::{CancelSignal, Error};
use millrace_segment::objects::counting::CountingStore;

use super::remote::{DOCS, fill, open, stored};

/// Segments that are merged.
const SEGMENTS: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_merge_ends_between_two_terms_and_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let store = CountingStore::default();
    let engine = open(dir.path(), &store, 1 << 30).await;
    fill(&engine, SEGMENTS).await;
    let index = engine.index("a").unwrap();
    let shard = index.shard(0).unwrap();
    let merge = shard.force_merge(1, millrace_segment::next_key());
    let scratch = &engine.inner.services.scratch;
    let scratch_files = || std::fs::read_dir(scratch).unwrap().count();
    let (before, scratch_before) = (store.paths(""), scratch_files());
    let mut checks = 0;
    loop {
        let merged =
            engine.inner.compact_shard(shard, Some(merge), &CancelSignal::after_checks(checks)).await;
        if matches!(merged, Ok(true)) {
            break;
        }
        assert!(matches!(merged, Err(Error::Cancelled)), "{merged:?}");
        assert_eq!((stored(&engine).await.len(), store.paths("")), (SEGMENTS, before.clone()));
        assert_eq!(scratch_files(), scratch_before);
        checks = 2 * checks + 1;
    }
    assert_eq!(stored(&engine).await.len(), 1);
    // Each document has a value of its own, which is a term.
    assert!(checks > (SEGMENTS * DOCS) as u64, "{checks}");
}
