//! A segment that a predicate is prepared for: its reader, its index, and what its shard shares.

use std::fmt;
use std::sync::Arc;

use arrow::array::ArrayRef;
use millrace_mapping::PathId;
use millrace_segment::ColumnBatch;
use millrace_work::QueryContext;
use millrace_work::error::Result;
use roaring::RoaringBitmap;

use crate::functions::{LeafScore, ShardFunctions};
use crate::operands::Weight;
use crate::reader::{InvertedIndex, SegmentReader};
use crate::ruled_rows::RuledRows;

/// Everything that preparing needs of one segment.
#[derive(Clone)]
pub struct Source {
    /// Number of the segment in its table.
    pub number: u32,
    /// Number of its shard in the index.
    pub shard: u32,
    /// The segment.
    pub reader: Arc<dyn SegmentReader>,
    /// Its inverted index.
    pub inverted: Arc<dyn InvertedIndex>,
    /// Scoring functions and expanded terms of the shard.
    pub functions: Arc<ShardFunctions>,
    /// Rows that rules for documents show; absent where there are no rules.
    pub ruled: Option<RuledRows>,
    /// The work that it is prepared for.
    pub work: QueryContext,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("number", &self.number).finish_non_exhaustive()
    }
}

impl LeafScore {
    /// Looks up how a weight scores.
    pub(super) fn new(source: &Source, weight: Weight) -> Self {
        match weight {
            Weight::Bm25(slot) => source
                .functions
                .get(slot)
                .map_or(Self::Flat(0.0), |function| Self::Bm25(Arc::clone(function))),
            other => Self::Flat(other.flat()),
        }
    }
}

/// Calls `each` with the batches of one column.
pub fn visit(
    source: &Source,
    column: PathId,
    rows: Option<RoaringBitmap>,
    each: &mut dyn FnMut(&ColumnBatch, &ArrayRef) -> Result<()>,
) -> Result<()> {
    let mut done = Ok(());
    source.reader.read(&[column], rows, &mut |batch| {
        done = source.work.check();
        if let (Ok(()), Some(array)) = (&done, batch.columns.first()) {
            done = each(&batch, array);
        }
        done.is_ok()
    })?;
    done
}
