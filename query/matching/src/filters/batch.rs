//! Documents in memory that filters are asked of: a segment of them, as a refresh would make it.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_storage::Compute;
use millrace_storage::mapping::{Mapping, PathId};
use millrace_storage::segment::{Document, Segment};
use millrace_work::error::{Error, Result};
use roaring::RoaringBitmap;

use super::fields::Fields;
use crate::score::reader::SegmentReader;

/// A document that arrived.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The document.
    pub document: Document,
    /// What `now` means to it: the time of the frame that it came with.
    pub now_ms: i64,
}

/// A batch of documents, a row each.
#[derive(Debug)]
pub struct Batch {
    pub(super) segment: Arc<dyn SegmentReader>,
    /// The rows by what `now` means to them.
    pub(super) times: Vec<(i64, RoaringBitmap)>,
}

impl Batch {
    /// Most documents.
    pub const MAX_ROWS: usize = 10_000;
    /// Most bytes of sources; a document may have more if it is alone.
    pub const MAX_BYTES: usize = 32 << 20;

    /// Counts the first documents that one batch may have: all, or as many as fit, one at least where there is one.
    pub fn fitting(arrivals: &[Arrival]) -> usize {
        let mut bytes = 0_usize;
        let fits = |(at, arrival): &(usize, &Arrival)| {
            bytes = bytes.saturating_add(arrival.document.source.len());
            *at == 0 || bytes <= Self::MAX_BYTES
        };
        arrivals.iter().take(Self::MAX_ROWS).enumerate().take_while(fits).count()
    }

    /// Makes the batch of documents of an index, by its whole mapping, with the fields that a matcher asks. Parses and indexes: it
    /// is called on a compute thread, which `compute` is the pool of.
    ///
    /// # Errors
    /// More documents than [`Batch::fitting`] counts.
    pub fn build(
        mapping: &Arc<Mapping>,
        arrivals: &[Arrival],
        fields: &Fields,
        compute: Compute,
    ) -> Result<Self> {
        let fitting = Self::fitting(arrivals);
        if fitting < arrivals.len() {
            return Err(Error::IllegalArgument(format!(
                "a batch of [{}] documents, of which [{fitting}] fit",
                arrivals.len()
            )));
        }
        let mut times: Vec<(i64, RoaringBitmap)> = Vec::new();
        for (row, arrival) in (0..).zip(arrivals) {
            match times.last_mut() {
                Some((time, rows)) if *time == arrival.now_ms => {
                    rows.insert(row);
                }
                _ => times.push((arrival.now_ms, RoaringBitmap::from_iter([row]))),
            }
        }
        let documents: Vec<Document> = arrivals.iter().map(|arrival| arrival.document.clone()).collect();
        let some: Option<&BTreeSet<PathId>> = fields.some();
        let segment = Segment::of_documents(mapping, &documents, some, compute)?;
        Ok(Self { segment: Arc::new(segment), times })
    }

    /// Counts the documents.
    pub fn rows(&self) -> u32 {
        self.segment.rows()
    }
}
