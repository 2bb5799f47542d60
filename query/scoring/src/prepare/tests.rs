use std::sync::atomic::{AtomicUsize, Ordering};

use futures::stream::BoxStream;
use millrace_mapping::PathId;
use millrace_segment::{ColumnBatch, PageBounds, RowParts, StoredRow};
use millrace_work::QueryContext;
use millrace_work::compute::StopOnDrop;
use millrace_work::error::Error;
use parking_lot::Mutex;

use crate::fixture::{Fixture, NUMBER};
use crate::metadata::Metadata;
use crate::operands::Weight;
use crate::prepare::*;
use crate::reader::{InvertedIndex, SegmentReader};

/// A large segment whose work is no longer waited for once it was read from.
#[derive(Debug)]
struct AbandonedSegment {
    segment: Arc<Fixture>,
    guard: Mutex<Option<StopOnDrop>>,
    reads: AtomicUsize,
}

impl AbandonedSegment {
    fn read_from(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        drop(self.guard.lock().take());
    }
}

impl SegmentReader for AbandonedSegment {
    fn rows(&self) -> u32 {
        1 << 20
    }
    fn inverted(&self) -> millrace_runtime::Result<Arc<dyn InvertedIndex>> {
        self.segment.inverted()
    }
    fn range_rows(
        &self,
        _column: PathId,
        _range: &ValueRange,
        _among: Option<&RoaringBitmap>,
    ) -> millrace_runtime::Result<RoaringBitmap> {
        self.read_from();
        Ok(RoaringBitmap::new())
    }
    fn id_rows(&self, _ids: &[String]) -> millrace_runtime::Result<RoaringBitmap> {
        self.read_from();
        Ok(RoaringBitmap::new())
    }
    fn read(
        &self,
        columns: &[PathId],
        _rows: Option<RoaringBitmap>,
        sink: &mut dyn FnMut(ColumnBatch) -> bool,
    ) -> millrace_runtime::Result<()> {
        let mut goes_on = true;
        while goes_on {
            self.read_from();
            self.segment.read(columns, None, &mut |batch| {
                goes_on = sink(batch);
                goes_on
            })?;
        }
        Ok(())
    }
    fn scan(
        &self,
        columns: &[PathId],
        rows: Option<RoaringBitmap>,
    ) -> BoxStream<'static, millrace_runtime::Result<ColumnBatch>> {
        self.segment.scan(columns, rows)
    }
    fn bounds(&self, column: PathId) -> PageBounds {
        self.segment.bounds(column)
    }
    fn pages(&self, column: PathId) -> millrace_runtime::Result<Vec<PageBounds>> {
        self.segment.pages(column)
    }
    fn fetch(&self, _rows: &[u32], _wanted: RowParts) -> millrace_runtime::Result<Vec<StoredRow>> {
        self.read_from();
        Ok(Vec::new())
    }
}

#[test]
fn preparing_ends_within_a_segment() {
    let weight = Weight::None;
    let range = ValueRange::I64(0, 10);
    for node in [
        Node::Ids { values: (0..10_000).map(|id| id.to_string()).collect::<Vec<_>>().into(), weight },
        Node::ColumnRange { column: NUMBER, terms: None, range, weight },
        Node::Metadata { metadata: Arc::new(Metadata::SeqNo(0, 10)), weight },
        Node::Metadata { metadata: Arc::new(Metadata::InSource("a".to_owned())), weight },
        Node::Within { column: NUMBER, area: geo::GeoArea::of_box(1.0, 0.0, 0.0, 1.0), weight },
    ] {
        let work = QueryContext::default();
        let segment = Fixture::new(&[("disk full", "a", 1)]);
        let reader = Arc::new(AbandonedSegment {
            segment: Arc::clone(&segment),
            guard: Mutex::new(Some(work.until_dropped())),
            reads: AtomicUsize::new(0),
        });
        let source = Source {
            number: 0,
            shard: 0,
            reader: Arc::clone(&reader) as Arc<dyn SegmentReader>,
            inverted: segment.inverted().unwrap(),
            functions: Arc::default(),
            ruled: None,
            work,
        };
        let error = prepare(&node, &source, None).unwrap_err();
        assert!(matches!(error, Error::TimedOut), "{node:?}: {error}");
        assert_eq!(reader.reads.load(Ordering::Relaxed), 1, "{node:?}");
    }
}
