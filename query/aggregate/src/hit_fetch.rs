//! Hits that a `top_hits` aggregation leaves to be fetched, once its results are reduced.

use std::cmp::Ordering;
use std::sync::Arc;

use millrace_matching::order::Order;
use millrace_scoring::collect::Address;
use millrace_search::response::RenderOptions;
use millrace_work::bytes_of;
use serde_json::Value;

/// Bytes of the allocations of a row beside what is in them.
const ALLOCATION_BYTES: usize = 32;

/// The hits that a `top_hits` aggregation requests.
#[derive(Debug)]
pub(crate) struct TopHitsSpec {
    /// Order.
    pub order: Order,
    /// Parts of hits that are shown.
    pub shown: RenderOptions,
    /// Hits that are skipped.
    pub from: usize,
    /// Hits that are shown.
    pub size: usize,
    /// True if scores are shown.
    pub scored: bool,
    /// The nested path whose elements are shown; documents where absent.
    pub path: Option<Arc<str>>,
    /// Places of the columns of keys by index.
    pub slots: Vec<Vec<Option<usize>>>,
}

impl TopHitsSpec {
    /// Returns true if scores are read.
    pub(crate) fn by_score(&self) -> bool {
        self.scored
    }
}

/// A row that may be shown.
#[derive(Clone, Debug)]
pub(crate) struct TopRow {
    /// Its sort keys, which compare as bytes.
    pub key: Box<[u8]>,
    /// The row, or the element of a nested path.
    pub address: Address,
    /// Its score.
    pub score: f32,
    /// Its sort values.
    pub sort: Option<Value>,
}

impl PartialEq for TopRow {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for TopRow {}

impl PartialOrd for TopRow {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TopRow {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key).then_with(|| self.address.cmp(&other.address))
    }
}

impl TopRow {
    /// Estimates the bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        // A heap has room for up to twice as many.
        2 * size_of::<Self>() + ALLOCATION_BYTES + self.key.len() + self.sort.as_ref().map_or(0, bytes_of)
    }
}

/// Hits that are to be fetched for one bucket.
#[derive(Debug)]
pub(crate) struct HitFetch {
    /// The request for these hits.
    pub shape: Arc<TopHitsSpec>,
    /// The rows in their order.
    pub rows: Vec<TopRow>,
    /// Number of rows of the bucket.
    pub total: u64,
    /// Greatest score.
    pub max_score: Option<f32>,
}
