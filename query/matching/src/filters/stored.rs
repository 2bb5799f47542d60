//! A filter on a whole segment: the index finds the matching rows, without reading them.

use std::sync::Arc;

use millrace_scoring::reader::SegmentReader;
use millrace_segment::Segment;
use millrace_work::QueryContext;
use millrace_work::error::Result;
use roaring::RoaringBitmap;

use super::Filter;
use super::matcher::tree_rows;

impl Filter {
    /// Finds the rows of a segment that match, deleted ones included, as batches of its documents would have matched when they
    /// came; `None` where that depends on the time at which they did. What is held meanwhile is given back. Blocks.
    ///
    /// # Errors
    /// Files that cannot be read, more rows or terms than queries may hold;
    /// [`Error::TimedOut`](millrace_work::error::Error::TimedOut) once the work should end.
    pub fn stored_rows(&self, segment: &Segment, work: &QueryContext) -> Result<Option<RoaringBitmap>> {
        if self.is_timed() {
            return Ok(None);
        }
        let segment: Arc<dyn SegmentReader> = Arc::new(segment.clone());
        tree_rows(&self.tree, &self.clauses, &segment, work).map(Some)
    }

    /// Returns whether what it matches depends on the time at which a document comes.
    pub fn is_timed(&self) -> bool {
        self.clauses.iter().any(|clause| clause.timed.is_some())
    }
}
