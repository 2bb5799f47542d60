//! The first rows of an order, found in the parts of a scan.
//!
//! Rows that may be among the first come from sources of [`Candidates`], a file each: the pages of a column by their
//! bounds, the terms of a dictionary in their order, all matches at once where they are few, rows that all lack the field,
//! postings with bounds of their scores. The loop ([`find`]) opens those that a part has, takes the one whose estimated cost
//! is least, and asks it for run after run of rows; what these have for keys goes into the [`Threshold`], which the parts of
//! a scan share: the worst key that still competes tells sources where to end. One that finds that its estimate was wrong gives
//! up, and the next one goes on without the rows that have been looked at. What no source is left for, the partition
//! streams with its keys.

mod codes;
mod find;
mod full_scan;
mod missing_field;
mod pages;
mod terms;
mod threshold;
mod top_keys;
mod top_rows;

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::common::ScalarValue;
use millrace_mapping::PathId;
use millrace_scoring::collect::Matches;
use millrace_scoring::source::Source;
use millrace_work::error::Result;
use roaring::RoaringBitmap;

pub(super) use self::find::PartitionHits;
use self::threshold::{Threshold, TopRowsRequest, address};
use crate::table::keys::{Key, KeyKind, KeySource};
use crate::table::partitions::RowPartition;
use crate::table::state::{ROW, SCORE};

/// By what rows are ordered first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeadingKey {
    /// The best scores, then addresses.
    Score,
    /// Addresses.
    Address,
    /// A key, by its number in the table.
    Key(usize),
}

/// Source of rows that may be among the first of a part.
trait Candidates {
    /// Estimates how many rows are looked at until the first are found; one is as dear as reading the key of a row from
    /// values that are kept.
    fn cost(&self) -> u64;

    /// Returns the next rows that may be among the first, given the worst key that still competes.
    fn next(&mut self, threshold: &Threshold) -> Result<SourceStep>;
}

/// Next step of a source.
enum SourceStep {
    /// Rows that none of its runs had before.
    Run(RowRun),
    /// No row that it has not given competes.
    Done,
    /// Going on would cost more than was estimated.
    GivenUp,
}

/// Rows of a part.
#[derive(Default)]
struct RowRun {
    rows: RoaringBitmap,
    /// Their scores, where they are asked for.
    scores: Vec<f32>,
    /// Values of a column in each of them, where the source knows them.
    values: Option<(PathId, ArrayRef)>,
}

impl RowRun {
    fn new(rows: RoaringBitmap) -> Self {
        Self { rows, ..Self::default() }
    }
}

/// Segment part in which first rows by a key are searched.
#[derive(Clone, Copy)]
struct KeyPart<'a> {
    source: &'a Source,
    part: &'a RowPartition,
    key: &'a Key,
    matches: &'a Matches<'a>,
    threshold: &'a Threshold,
}

/// The first rows that are wanted of a scan.
#[derive(Clone, Debug)]
pub(super) struct FirstRows {
    by: LeadingKey,
    /// Number of the key that tells the groups, where only the best row of each counts.
    group: Option<usize>,
    threshold: Arc<Threshold>,
}

impl KeyPart<'_> {
    /// Returns whether rows from one on may compete, by their least and greatest code.
    fn admits(&self, first: u32, codes: (u64, u64)) -> bool {
        self.threshold.admits_run(address(self.part.segment, first), codes)
    }
}

impl FirstRows {
    /// Wants so many rows by score or address, or so many groups.
    pub(super) fn by_place(by: LeadingKey, limit: usize, group: Option<usize>) -> Self {
        let asked = TopRowsRequest {
            limit,
            grouped: group.is_some(),
            descending: false,
            by_address: true,
            after: None,
        };
        Self { by, group, threshold: Arc::new(Threshold::of_codes(asked)) }
    }

    /// Wants so many rows by a key of a table, or so many groups, behind the sort value `after` if given, and then by address
    /// alone if `by_address`. `None` where keys of its kind are not compared here.
    pub(super) fn by_key(
        keys: &[Key],
        number: usize,
        order: KeyOrder,
        limit: usize,
        group: Option<usize>,
    ) -> Option<Self> {
        let KeyOrder { descending, by_address, after } = order;
        let key = keys.get(number)?;
        let is_made = |source: &KeySource| source.distance.is_some() || source.derived.is_some();
        if key.kind != KeyKind::Str && key.sources.iter().flatten().any(is_made) {
            return None;
        }
        let after = match after {
            None => None,
            Some(after) => Some(codes::of_scalar(&after, descending).filter(|_| key.kind != KeyKind::Str)?),
        };
        let asked = TopRowsRequest { limit, grouped: group.is_some(), descending, by_address, after };
        let threshold = Arc::new(Threshold::of_key(key, asked)?);
        Some(Self { by: LeadingKey::Key(number), group, threshold })
    }
}

/// Order of rows by a key.
#[derive(Clone, Debug)]
pub(super) struct KeyOrder {
    /// `true` if the greatest comes first.
    pub descending: bool,
    /// `true` if addresses alone decide among rows of one key.
    pub by_address: bool,
    /// Sort value of the point where the search goes on.
    pub after: Option<ScalarValue>,
}

impl FirstRows {
    /// Counts the rows that are wanted, or groups.
    pub(super) fn limit(&self) -> usize {
        self.threshold.asked().limit
    }

    /// Returns the request of the parts of one partition: addresses are not compared with those of others, so that the result
    /// does not depend on their speed.
    pub(super) fn of_partition(&self) -> Self {
        match self.by {
            LeadingKey::Address => {
                Self { threshold: Arc::new(Threshold::of_codes(*self.threshold.asked())), ..self.clone() }
            }
            LeadingKey::Score | LeadingKey::Key(_) => self.clone(),
        }
    }

    /// Writes what is wanted.
    pub(super) fn describe(&self, keys: &[Key], f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = self.limit();
        match self.by {
            LeadingKey::Score => write!(f, ", top={limit} by {SCORE}")?,
            LeadingKey::Address => write!(f, ", top={limit} by {ROW}")?,
            LeadingKey::Key(key) => {
                let of = if keys[key].kind == KeyKind::Str { "terms of " } else { "" };
                write!(f, ", first={limit} by {of}{}", keys[key].name)?;
            }
        }
        match self.group {
            Some(key) => write!(f, ", one of each {}", keys[key].name),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
