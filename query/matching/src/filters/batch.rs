//! Documents in memory that filters are asked of: a segment of them, as a refresh would make it.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use millrace_mapping::{Mapping, PathId};
use millrace_runtime::Compute;
use millrace_scoring::reader::SegmentReader;
use millrace_segment::{Document, Segment};
use millrace_work::error::{Error, Result};
use roaring::RoaringBitmap;

use super::fields::Fields;

/// A document that arrived. Making one copies nothing.
#[derive(Clone, Debug)]
pub struct ArrivedDocument {
    /// Its id (UTF-8).
    pub id: Bytes,
    /// Its source.
    pub source: Bytes,
    /// The sequence number of the operation that wrote it.
    pub seq_no: u64,
    /// The routing value that it was written with.
    pub routing: Option<Arc<str>>,
    /// Value of `now`: the time of the frame that the batch came with.
    pub now_ms: i64,
}

impl ArrivedDocument {
    fn document(&self) -> Document {
        Document {
            id: String::from_utf8_lossy(&self.id).into(),
            source: self.source.clone(),
            seq_no: self.seq_no,
            routing: self.routing.clone(),
        }
    }
}

/// A batch of documents, a row each, as far as filters have to look at them.
#[derive(Debug)]
pub struct Batch {
    rows: u32,
    pub(super) parts: Vec<BatchSegment>,
}

/// Rows of a batch that are a segment in memory.
#[derive(Debug)]
pub(super) struct BatchSegment {
    pub(super) segment: Arc<dyn SegmentReader>,
    /// Rows of the batch that its rows are, ascending; all where absent.
    rows: Option<Vec<u32>>,
    /// The rows of the segment by what `now` means to them.
    pub(super) times: Vec<(i64, RoaringBitmap)>,
    pub(super) whom: FilterSelection,
}

/// Selection of the filters for a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilterSelection {
    All,
    /// Those that need something which is known.
    Needing,
    Others,
}

impl BatchSegment {
    fn build(
        mapping: &Arc<Mapping>,
        arrivals: &[ArrivedDocument],
        rows: Option<Vec<u32>>,
        fields: &Fields,
        whom: FilterSelection,
        compute: Compute,
    ) -> Result<Self> {
        let own = |row: &u32| arrivals.get(*row as usize);
        let of_part: Vec<&ArrivedDocument> = match &rows {
            None => arrivals.iter().collect(),
            Some(rows) => rows.iter().filter_map(own).collect(),
        };
        let mut times: Vec<(i64, RoaringBitmap)> = Vec::new();
        for (row, arrival) in (0..).zip(&of_part) {
            match times.last_mut() {
                Some((time, rows)) if *time == arrival.now_ms => {
                    rows.insert(row);
                }
                _ => times.push((arrival.now_ms, RoaringBitmap::from_iter([row]))),
            }
        }
        let documents: Vec<Document> = of_part.iter().map(|arrival| arrival.document()).collect();
        let some: Option<&BTreeSet<PathId>> = fields.some();
        let segment = Segment::of_documents(mapping, &documents, some, compute)?;
        Ok(Self { segment: Arc::new(segment), rows, times, whom })
    }

    /// Returns the rows of the batch that rows of the segment are.
    pub(super) fn of_batch(&self, rows: RoaringBitmap) -> RoaringBitmap {
        match &self.rows {
            None => rows,
            Some(all) => rows.iter().filter_map(|row| all.get(row as usize)).collect(),
        }
    }
}

impl Batch {
    /// Most documents.
    pub const MAX_ROWS: usize = 10_000;
    /// Most bytes of sources; a document may have more if it is alone.
    pub const MAX_BYTES: usize = 32 << 20;

    /// Counts the first documents that one batch may have: all, or as many as fit, one at least where there is one.
    pub fn fitting(arrivals: &[ArrivedDocument]) -> usize {
        let mut bytes = 0_usize;
        let fits = |(at, arrival): &(usize, &ArrivedDocument)| {
            bytes = bytes.saturating_add(arrival.source.len());
            *at == 0 || bytes <= Self::MAX_BYTES
        };
        arrivals.iter().take(Self::MAX_ROWS).enumerate().take_while(fits).count()
    }

    /// Makes the batch of documents of an index, by its whole mapping, with some of the fields: all documents are indexed, for
    /// filters of any matcher that asks no other fields. [`Matcher::batch`](super::Matcher::batch) makes one for itself, in less time.
    /// It is called on a compute thread, which `compute` is the pool of.
    ///
    /// # Errors
    /// More documents than [`Batch::fitting`] counts.
    pub fn build(
        mapping: &Arc<Mapping>,
        arrivals: &[ArrivedDocument],
        fields: &Fields,
        compute: Compute,
    ) -> Result<Self> {
        let rows = Self::checked(arrivals)?;
        let part = BatchSegment::build(mapping, arrivals, None, fields, FilterSelection::All, compute)?;
        Ok(Self { rows, parts: vec![part] })
    }

    /// Makes the batch of documents of which filters that need something look at `rows` alone, and the others, where there are any,
    /// at all.
    pub(super) fn of_parts(
        mapping: &Arc<Mapping>,
        arrivals: &[ArrivedDocument],
        (rows, needing): (RoaringBitmap, &Fields),
        others: Option<&Fields>,
        compute: &Compute,
    ) -> Result<Self> {
        let mut parts = Vec::new();
        if !rows.is_empty() {
            let rows = Some(rows.iter().collect());
            parts.push(BatchSegment::build(
                mapping,
                arrivals,
                rows,
                needing,
                FilterSelection::Needing,
                compute.clone(),
            )?);
        }
        if let Some(fields) = others {
            parts.push(BatchSegment::build(
                mapping,
                arrivals,
                None,
                fields,
                FilterSelection::Others,
                compute.clone(),
            )?);
        }
        Ok(Self { rows: Self::checked(arrivals)?, parts })
    }

    /// Counts documents that fit into a batch.
    pub(super) fn checked(arrivals: &[ArrivedDocument]) -> Result<u32> {
        let fitting = Self::fitting(arrivals);
        if fitting < arrivals.len() {
            return Err(Error::IllegalArgument(format!(
                "a batch of [{}] documents, of which [{fitting}] fit",
                arrivals.len()
            )));
        }
        Ok(u32::try_from(fitting).unwrap_or(u32::MAX))
    }

    /// Counts the documents.
    pub fn rows(&self) -> u32 {
        self.rows
    }
}
