//! Matches that are found as far as somebody asks for them: all, those among some rows, or the pages that may have one.

use std::cell::OnceCell;

use millrace_segment::{PageBounds, WINDOW_ROWS};
use millrace_work::error::Result;
use roaring::RoaringBitmap;

use crate::bits::{self, SetBuilder};
use crate::collect::{RowBuffer, SegmentPass, collect_all, collect_windows, count_windows, overlap};
use crate::windows::Windows;

/// The matches of a part of a segment, for who wants those of some rows only.
#[derive(Debug)]
pub struct Matches<'a> {
    pass: SegmentPass<'a>,
    /// All of them, once they have been found; else they are looked for where they are asked for.
    known: OnceCell<RoaringBitmap>,
    /// About how many there are, once they have been opened.
    estimate: OnceCell<u64>,
}

impl<'a> Matches<'a> {
    /// Counts the matches as far as the number matters.
    pub fn count(pass: SegmentPass<'a>) -> Result<Self> {
        let mut known = None;
        if pass.budget.is_some() {
            known = Some(collect_all(&pass, false)?.0);
        } else if !pass.totals.satisfied() {
            match pass.known_count()? {
                Some(count) => pass.totals.add(count),
                // All are visited, and may as well be kept.
                None if pass.totals.counts_all() => known = Some(collect_all(&pass, false)?.0),
                None => {
                    count_windows(&pass, pass.windows()?, &mut RowBuffer::new(0))?;
                }
            }
        }
        let known = known.map_or_else(OnceCell::new, OnceCell::from);
        Ok(Self { pass, known, estimate: OnceCell::new() })
    }

    /// Returns all of them, if they are known.
    pub fn known(&self) -> Option<&RoaringBitmap> {
        self.known.get()
    }

    /// Finds all of them.
    pub fn all(&self) -> Result<&RoaringBitmap> {
        if let Some(known) = self.known.get() {
            return Ok(known);
        }
        let all = collect_windows(&self.pass)?;
        Ok(self.known.get_or_init(|| all))
    }

    /// Estimates how many there are; `None` where that is not known before they are found.
    pub fn estimate(&self) -> Result<Option<u64>> {
        if let Some(known) = self.known.get() {
            return Ok(Some(known.len()));
        }
        if self.estimate.get().is_none() {
            self.windows()?;
        }
        Ok(self.estimate.get().copied())
    }

    /// Opens them window by window, and estimates how many there are; `None` where a scorer finds them.
    fn windows(&self) -> Result<Option<Windows<'a>>> {
        let pass = &self.pass;
        if pass.prepared.by_scorer() {
            return Ok(None);
        }
        let windows = pass.windows()?;
        self.estimate.get_or_init(|| {
            let (part, all) = (pass.range.len() as u128, u128::from(pass.rows).max(1));
            (u128::from(windows.cost()) * part / all) as u64
        });
        Ok(Some(windows))
    }

    /// Keeps the pages, which ascend, that may have one.
    pub fn pages<'p>(&self, pages: &'p [PageBounds]) -> Result<Vec<&'p PageBounds>> {
        if let Some(known) = self.known.get() {
            let has = |page: &&PageBounds| known.range_cardinality(page.rows.clone()) > 0;
            return Ok(pages.iter().filter(has).collect());
        }
        // What a scorer finds, it is not asked for page by page.
        let mut windows = self.windows()?;
        let mut may_have = |page: &&PageBounds| {
            let own = overlap(&page.rows, &self.pass.range);
            !own.is_empty() && windows.as_mut().is_none_or(|windows| windows.next_row(own.start) < own.end)
        };
        Ok(pages.iter().filter(&mut may_have).collect())
    }

    /// Finds those among some rows.
    pub fn among(&self, rows: &RoaringBitmap) -> Result<RoaringBitmap> {
        if let Some(known) = self.known.get() {
            return Ok(known & rows);
        }
        let pass = &self.pass;
        let mut set = SetBuilder::default();
        let mut windows = pass.windows()?;
        let mut at = pass.range.start;
        while !pass.stop.requested()
            && let Some(row) = rows.range(at..).next()
        {
            let next = windows.next_row(row);
            if next >= pass.range.end {
                break;
            }
            let first = next - next % WINDOW_ROWS;
            let mut found = bits::up_to(pass.range.end - first);
            bits::restrict(first, &mut found, rows);
            windows.keep(first, &mut found)?;
            bits::clear(first, &mut found, pass.deleted);
            set.add(first, &found);
            at = first.saturating_add(WINDOW_ROWS);
        }
        Ok(set.finish())
    }
}
