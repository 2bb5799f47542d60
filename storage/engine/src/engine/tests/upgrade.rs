//! Segments of versions before, and what compaction makes of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::TimestampMillisecondType;
use bytes::Bytes;
use millrace_catalog::access::{Origin, Principal};
use millrace_segment::layout::{self, before};
use serde_json::json;
use uuid::Uuid;

use super::super::{Action, Engine, Index, RefreshPolicy, WriteOp};

async fn write(engine: &Engine, index: &Arc<Index>, id: &str, created_ms: i64) {
    let source = format!(r#"{{"_created":{created_ms},"_frame_time":"t{created_ms}"}}"#);
    let op = WriteOp::new("a", Some(id.to_owned()), Action::Index(Bytes::from(source)));
    let wait = Duration::from_secs(5);
    let written = engine.write(&Principal::system(), vec![op], RefreshPolicy::None, wait).await.unwrap();
    written.into_iter().for_each(|outcome| drop(outcome.unwrap()));
    engine.flush(&[Arc::clone(index)]).await.unwrap();
}

/// Of each row: the user's `_created`, in order.
async fn dates(index: &Arc<Index>) -> Vec<i64> {
    let snapshot = index.snapshot().await.unwrap();
    let column = snapshot.mapping.field("_created").unwrap().id;
    let mut dates = Vec::new();
    for view in &snapshot.shards[0].segments {
        view.segment
            .scan_blocking(&[column], None, |batch| {
                let found = &batch.columns[0];
                dates.extend(found.as_primitive::<TimestampMillisecondType>().values());
                true
            })
            .unwrap();
    }
    dates.sort_unstable();
    dates
}

/// Id, origin, whether its document was created by it.
async fn came(engine: &Engine, index: &Arc<Index>) -> Vec<(Bytes, Origin, bool)> {
    let end = engine.follow(None).unwrap().position();
    let mut reading = engine.read_back(&[Arc::clone(index)], 1..end).await.unwrap();
    let mut rows = Vec::new();
    while let Some(frame) = reading.next().await.unwrap() {
        let ops = frame.parts.iter().flat_map(|part| &part.ops);
        rows.extend(ops.map(|op| (op.id.clone(), frame.origin, op.created)));
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_with_names_of_later_metadata_outlive_the_upgrade() {
    let dir = tempfile::tempdir().unwrap();
    let engine = super::open(dir.path()).await;
    let body = json!({"settings": {"refresh_interval": "-1"}, "mappings": {"properties": {
        "_created": {"type": "date"},
        (before::MARK): {"type": "keyword"},
    }}});
    let system = Principal::system();
    engine.change(&system, |m| m.create_index("a", &body, 0, Uuid::new_v4())).await.unwrap();
    let index = engine.index("a").unwrap();
    before::WRITES.store(true, Ordering::SeqCst);
    write(&engine, &index, "old", 1_000_000_000).await;
    write(&engine, &index, "replaced", 1_500_000_000).await;
    write(&engine, &index, "replaced", 2_000_000_000).await;
    before::WRITES.store(false, Ordering::SeqCst);
    let snapshot = index.snapshot().await.unwrap();
    for view in &snapshot.shards[0].segments {
        let stored = view.segment.as_stored().unwrap();
        let names = [layout::FRAME_TIME, layout::FRAME_ORIGIN, layout::CREATED];
        assert!(names.iter().all(|name| !stored.has_column(name).unwrap()), "they are the user's");
    }
    drop(snapshot);
    write(&engine, &index, "new", 3_000_000_000).await;
    let expected = [
        ("old".into(), Origin::Unknown, true),
        ("replaced".into(), Origin::Unknown, false),
        ("new".into(), Origin::System, true),
    ];
    assert_eq!(came(&engine, &index).await, expected);
    engine.force_merge(&[Arc::clone(&index)], 1).await.unwrap();
    assert_eq!(index.figures().shards[0].segments, 1);
    assert_eq!(dates(&index).await, [1_000_000_000, 2_000_000_000, 3_000_000_000]);
    assert_eq!(came(&engine, &index).await, expected);
    engine.shutdown().await.unwrap();
}
