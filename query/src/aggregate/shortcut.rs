//! Segments that are counted without reading rows.

use super::bucket::keyed::{Keyed, KeyedCollector};
use super::bucket::slots::{SlotCollector, Slots};
use super::segment::{Rows, SegmentContext};
use crate::error::Result;

/// Counts a segment for an aggregation over values.
pub(crate) fn keyed(
    _collector: &mut KeyedCollector,
    _keyed: &Keyed,
    _segment: &SegmentContext<'_>,
    _rows: &Rows,
) -> Result<bool> {
    Ok(false)
}

/// Counts a segment for an aggregation with a fixed number of buckets.
pub(crate) fn slots(
    _collector: &mut SlotCollector,
    _slots: &Slots,
    _segment: &SegmentContext<'_>,
    _rows: &Rows,
) -> Result<bool> {
    Ok(false)
}
