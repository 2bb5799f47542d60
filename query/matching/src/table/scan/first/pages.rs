//! Rows in the order of a column's pages by their bounds.
//!
//! The pages that may have the best keys come first, and those that cannot meet the threshold are never read. As many as
//! should have enough rows are read at first, then twice as many at a time: when the bounds tell pages apart, the first few
//! have the rows, and when they do not, few steps read all.

use std::ops::Range;

use millrace_scoring::collect::overlap;
use millrace_work::error::Result;
use roaring::RoaringBitmap;

use super::threshold::{Threshold, address};
use super::{Candidates, KeyPart, RowRun, SourceStep, codes};
use crate::table::keys::KeySource;

/// Most pages that are read at once: values of 262,144 rows.
const MAX_PAGES: usize = 64;
/// Pages of a column with the least and greatest code of their rows.
pub(super) struct Pages<'a> {
    place: KeyPart<'a>,
    /// The best first.
    pages: Vec<((u64, u64), Range<u32>)>,
    at: usize,
    step: usize,
    cost: u64,
}

impl<'a> Pages<'a> {
    /// Opens the pages of a key's column that may have rows among the first.
    pub(super) fn open(place: KeyPart<'a>, of: &KeySource) -> Result<Self> {
        let descending = place.threshold.asked().descending;
        let known = place.source.reader.pages(of.column)?;
        let known = place.matches.pages(&known)?;
        let all = known.len() as u64;
        let bounds = |rows, page| (codes::bounds(place.key, Some(of), page, descending), rows);
        let mut pages: Vec<_> = known
            .into_iter()
            .map(|page| bounds(overlap(&place.part.rows, &page.rows), page))
            .filter(|(bounds, rows)| place.admits(rows.start, *bounds))
            .collect();
        pages.sort_by_key(|(bounds, rows)| (bounds.0, rows.start));
        let matches = place.matches.estimate()?.unwrap_or(place.part.rows.len() as u64);
        let enough = enough(place.threshold.asked().limit as u64, all, matches);
        let cost = cost(&pages, all, matches, enough);
        Ok(Self { place, pages, at: 0, step: enough.min(MAX_PAGES), cost })
    }
}

/// Estimates how many pages have so many rows, where `matches` lie evenly in `all` pages.
fn enough(limit: u64, all: u64, matches: u64) -> usize {
    let enough = limit.saturating_mul(all).div_ceil(matches.max(1)).max(1);
    usize::try_from(enough).unwrap_or(usize::MAX)
}

/// Estimates how many rows are read where `matches` lie evenly in `all` pages, and those that compete are the `pages`: the rows of
/// the first pages, which are `enough`, and of the others that may have better ones.
fn cost(pages: &[((u64, u64), Range<u32>)], all: u64, matches: u64, enough: usize) -> u64 {
    let Some(reach) = pages.iter().take(enough).map(|(bounds, _)| bounds.1).max() else { return 0 };
    let read = pages.partition_point(|(bounds, _)| bounds.0 <= reach) as u64;
    matches.saturating_mul(read) / all.max(1)
}

impl Candidates for Pages<'_> {
    fn cost(&self) -> u64 {
        self.cost
    }

    fn next(&mut self, threshold: &Threshold) -> Result<SourceStep> {
        while self.at < self.pages.len() {
            let mut rows = RoaringBitmap::new();
            for (bounds, page) in self.pages.iter().skip(self.at).take(self.step) {
                if !threshold.admits_run(address(self.place.part.segment, page.start), *bounds) {
                    // None behind it is better.
                    self.pages.truncate(self.at);
                    break;
                }
                rows.insert_range(page.clone());
            }
            self.at += self.step;
            self.step = (self.step * 2).min(MAX_PAGES);
            if !rows.is_empty() {
                rows = self.place.matches.among(&rows)?;
            }
            if !rows.is_empty() {
                return Ok(SourceStep::Run(RowRun::new(rows)));
            }
        }
        Ok(SourceStep::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_bounds_tell_apart_are_cheap() {
        let pages = |overlap: u64| -> Vec<((u64, u64), Range<u32>)> {
            (0..100).map(|page| ((page * 10, page * 10 + overlap), 0..4_096)).collect()
        };
        // Ten rows of a tenth of all: one page, and with wider bounds those that may have better rows.
        let cost = |pages: &[_], matches, limit| cost(pages, 100, matches, enough(limit, 100, matches));
        assert_eq!(cost(&pages(9), 40_960, 10), 409);
        assert_eq!(cost(&pages(29), 40_960, 10), 1_228);
        // One row in ten pages.
        assert_eq!(cost(&pages(9), 10, 1), 1);
        assert_eq!(cost(&pages(10_000), 40_960, 10), 40_960);
        assert_eq!(cost(&[], 40_960, 10), 0);
    }
}
