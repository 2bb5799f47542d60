//! A range over a column of numbers, evaluated where its rows are asked for.
//!
//! Statistics tell of most pages that all or none of their rows match. Only the others are decoded, and
//! only where a caller still has candidates in them; what was decoded stays in the
//! [`ValueCache`](super::values::ValueCache).

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use millrace_mapping::PathId;
use millrace_runtime::{Error, Result};
use roaring::RoaringBitmap;

use super::range::{Relation, ValueRange};
use super::stored::StoredSegment;
use super::values::{GatheredNumbers, PageValues};
use super::{Kind, Segment, list_rows};

/// Rows of a window of [`PagedRange::keep`].
pub const WINDOW_ROWS: u32 = 4_096;
/// One bit for each row of a window, the lowest of the first word for its first.
pub type WindowBits = [u64; WINDOW_ROWS as usize / 64];

/// Most pages that are decoded ahead in one go.
const MAX_AHEAD: usize = 32;

/// A page that may have matching rows.
#[derive(Clone, Debug)]
struct Page {
    number: u32,
    rows: Range<u32>,
    /// `true` if all its rows match.
    whole: bool,
}

/// The rows with a value of a column in a range.
pub struct PagedRange {
    segment: Segment,
    column: PathId,
    root: usize,
    range: ValueRange,
    /// Pages that may have a match, ascending.
    pages: Vec<Page>,
    /// The page behind those that were decoded last, and how many these were.
    ahead: AtomicUsize,
    step: AtomicUsize,
}

impl fmt::Debug for PagedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PagedRange").field("range", &self.range).finish_non_exhaustive()
    }
}

impl Segment {
    /// Opens a range over a column, on the calling thread; `None` where its rows can only be found all
    /// at once ([`Segment::range_rows_blocking`]): in memory, of lists, of other values than numbers.
    ///
    /// # Errors
    /// Corrupt files, an unreachable object store.
    pub fn paged_range_blocking(&self, column: PathId, range: &ValueRange) -> Result<Option<PagedRange>> {
        let Kind::Stored(stored) = &*self.kind else { return Ok(None) };
        let Some(record) = stored.column_record(column) else { return Ok(None) };
        let Some(root) = stored.root_of(column)? else { return Ok(None) };
        if record.list || !stored.is_cacheable(root)? || range.is_empty() {
            return Ok(None);
        }
        let mut pages = Vec::new();
        let covered = range.relation_to_record(&record.min, &record.max);
        if covered == Relation::Covers && record.present == stored.record.rows {
            pages.push(Page { number: 0, rows: 0..self.rows(), whole: true });
        } else if covered != Relation::Disjoint {
            let mut number = 0;
            stored.for_each_page(root, |rows, bounds, full| {
                let relation = range.relation(&bounds);
                if relation != Relation::Disjoint {
                    let whole = relation == Relation::Covers && full;
                    pages.push(Page { number, rows, whole });
                }
                number += 1;
            })?;
        }
        Ok(Some(PagedRange {
            segment: self.clone(),
            column,
            root,
            range: range.clone(),
            pages,
            ahead: AtomicUsize::new(usize::MAX),
            step: AtomicUsize::new(1),
        }))
    }

    /// Returns the numbers of a column in some rows, in row order, null where a row has none, on the
    /// calling thread; `None` where they are not kept decoded: in memory, of lists, of other values.
    ///
    /// # Errors
    /// Corrupt files, an unreachable object store.
    pub fn numbers_blocking(&self, column: PathId, rows: &RoaringBitmap) -> Result<Option<ArrayRef>> {
        let Kind::Stored(stored) = &*self.kind else { return Ok(None) };
        let Some(record) = stored.column_record(column) else { return Ok(None) };
        let Some(root) = stored.root_of(column)? else { return Ok(None) };
        if record.list || !stored.is_cacheable(root)? {
            return Ok(None);
        }
        let (mut number, mut pages) = (0, Vec::new());
        stored.for_each_page(root, |page, _, _| {
            if rows.range(page.clone()).next().is_some() {
                pages.push((number, page));
            }
            number += 1;
        })?;
        let kind = stored.root_type(root)?;
        let mut numbers = GatheredNumbers::new(&kind);
        for pages in pages.chunks(MAX_AHEAD) {
            let missing: Vec<(u32, Range<u32>)> =
                pages.iter().filter(|(number, _)| !stored.keeps_values(root, *number)).cloned().collect();
            let mut decoded = stored.decode_values(root, &missing)?.into_iter();
            for page in pages {
                let values = match missing.contains(page) {
                    true => decoded.next(),
                    false => stored.kept_values(root, page.0),
                };
                // What was kept a moment ago may be gone by now.
                let values = match values {
                    Some(values) => values,
                    None => stored.decode_one(root, page)?,
                };
                let base = page.1.start;
                let count = rows.range_cardinality(page.1.clone()) as u32;
                match rows.range(page.1.clone()).next() {
                    Some(first) if rows.contains_range(first..first + count) => {
                        numbers.extend_run(&values, (first - base) as usize..(first - base + count) as usize);
                    }
                    _ => {
                        let own = list_rows(rows, page.1.clone());
                        numbers.extend(&values, own.iter().map(|row| (*row - base) as usize));
                    }
                }
            }
        }
        Ok(Some(match kind {
            DataType::Timestamp(..) => arrow::compute::cast(&numbers.finish(), &kind)?,
            _ => numbers.finish(),
        }))
    }
}

impl PagedRange {
    /// Counts the rows that may match.
    pub fn most_rows(&self) -> u64 {
        self.pages.iter().map(|page| u64::from(page.rows.end - page.rows.start)).sum()
    }

    /// Counts the rows that match, deleted ones included; `None` where they must be compared. Reads the column once where
    /// hardly a page tells by its bounds.
    ///
    /// # Errors
    /// Corrupt files, an unreachable object store.
    pub fn count(&self) -> Result<Option<u64>> {
        let rows = |whole: bool| -> u64 {
            let pages = self.pages.iter().filter(|page| page.whole == whole);
            pages.map(|page| page.rows.len() as u64).sum()
        };
        let compared = rows(false);
        match self.range {
            _ if compared == 0 => Ok(Some(rows(true))),
            ValueRange::I64(from, to) if compared > u64::from(self.segment.rows()) / 2 => {
                let tally = self.segment.tally_blocking(self.column)?;
                Ok(tally.map(|tally| tally.count(from, to)))
            }
            _ => Ok(None),
        }
    }

    /// Returns whether every row of the segment matches.
    pub fn is_everything(&self) -> bool {
        let mut end = 0;
        self.pages.iter().all(|page| {
            let follows = page.rows.start == end;
            end = page.rows.end;
            page.whole && follows
        }) && end == self.segment.rows()
    }

    /// Returns the first row at or behind `target` that may match.
    pub fn next(&self, target: u32) -> Option<u32> {
        let at = self.pages.partition_point(|page| page.rows.end <= target);
        self.pages.get(at).map(|page| page.rows.start.max(target))
    }

    /// Clears the bits of those rows from `first` on that do not match; reads what it needs.
    ///
    /// # Errors
    /// Corrupt files, an unreachable object store.
    pub fn keep(&self, first: u32, bits: &mut WindowBits) -> Result<()> {
        let end = first.saturating_add(WINDOW_ROWS);
        let mut found: WindowBits = [0; WINDOW_ROWS as usize / 64];
        let from = self.pages.partition_point(|page| page.rows.end <= first);
        for (at, page) in self.pages.iter().enumerate().skip(from) {
            if page.rows.start >= end {
                break;
            }
            let rows = page.rows.start.max(first)..page.rows.end.min(end);
            let window = (rows.start - first) as usize..(rows.end - first) as usize;
            if page.whole {
                set(&mut found, window);
            } else if any(bits, window.clone()) {
                let values = self.values(at)?;
                let (from, to) = (rows.start - page.rows.start, rows.end - page.rows.start);
                values.matches(&self.range, from as usize, to as usize, window.start, &mut found);
            }
        }
        for (bits, found) in bits.iter_mut().zip(found) {
            *bits &= found;
        }
        Ok(())
    }

    /// Returns the values of a page, decoding more of those behind it the longer it goes on in order.
    fn values(&self, at: usize) -> Result<Arc<PageValues>> {
        let Kind::Stored(stored) = &*self.segment.kind else {
            return Err(Error::Internal("a range over pages of a segment in memory".to_owned()));
        };
        let page = &self.pages[at];
        if let Some(values) = stored.kept_values(self.root, page.number) {
            return Ok(values);
        }
        let step = match self.ahead.load(Ordering::Relaxed) == at {
            true => (self.step.load(Ordering::Relaxed) * 2).min(MAX_AHEAD),
            false => 1,
        };
        let behind = self.pages.iter().skip(at + 1).filter(|page| !page.whole).take(step - 1);
        let behind = behind.filter(|page| !stored.keeps_values(self.root, page.number));
        let wanted: Vec<(u32, Range<u32>)> =
            std::iter::once(page).chain(behind).map(|page| (page.number, page.rows.clone())).collect();
        let last = wanted.last().map_or(page.number, |(number, _)| *number);
        let behind = self.pages.iter().position(|page| !page.whole && page.number > last);
        self.ahead.store(behind.unwrap_or(usize::MAX), Ordering::Relaxed);
        self.step.store(step, Ordering::Relaxed);
        match stored.decode_values(self.root, &wanted)?.into_iter().next() {
            Some(values) => Ok(values),
            None => stored.decode_one(self.root, &(page.number, page.rows.clone())),
        }
    }
}

impl StoredSegment {
    fn is_cacheable(&self, root: usize) -> Result<bool> {
        Ok(PageValues::supports(&self.root_type(root)?))
    }

    fn kept_values(&self, root: usize, page: u32) -> Option<Arc<PageValues>> {
        self.values().get((self.record.id, root as u32, page))
    }

    fn keeps_values(&self, root: usize, page: u32) -> bool {
        self.values().has((self.record.id, root as u32, page))
    }

    fn decode_one(&self, root: usize, page: &(u32, Range<u32>)) -> Result<Arc<PageValues>> {
        self.decode_values(root, std::slice::from_ref(page))?
            .pop()
            .ok_or_else(|| Error::Internal(format!("page {} of a column was decoded to nothing", page.0)))
    }

    /// Decodes pages, ascending, into the cache, and returns them.
    fn decode_values(&self, root: usize, pages: &[(u32, Range<u32>)]) -> Result<Vec<Arc<PageValues>>> {
        if pages.is_empty() {
            return Ok(Vec::new());
        }
        let mut rows = RoaringBitmap::new();
        for (_, page) in pages {
            rows.insert_range(page.clone());
        }
        let mut decoded = Vec::with_capacity(pages.len());
        let mut pages = pages.iter();
        let mut parts: Vec<ArrayRef> = Vec::new();
        let mut current = pages.next();
        for batch in self.reader(&[root], Some(&rows))? {
            let batch = batch.map_err(|error| self.read_error(error))?;
            let (column, mut taken) = (batch.column(0), 0);
            // Batches and pages need not begin at the same rows.
            while let Some((number, page)) = current
                && taken < column.len()
            {
                let have: usize = parts.iter().map(|part| part.len()).sum();
                let take = (page.len() - have).min(column.len() - taken);
                parts.push(column.slice(taken, take));
                taken += take;
                if have + take < page.len() {
                    break;
                }
                let whole = match parts.as_slice() {
                    [one] => Arc::clone(one),
                    several => {
                        let several: Vec<&dyn arrow::array::Array> =
                            several.iter().map(AsRef::as_ref).collect();
                        arrow::compute::concat(&several)?
                    }
                };
                parts.clear();
                let values = Arc::new(PageValues::new(&whole)?);
                self.values().put((self.record.id, root as u32, *number), Arc::clone(&values));
                decoded.push(values);
                current = pages.next();
            }
        }
        Ok(decoded)
    }
}

fn set(bits: &mut WindowBits, rows: Range<usize>) {
    for_each_word(rows, |at, mask| bits[at] |= mask);
}

fn any(bits: &WindowBits, rows: Range<usize>) -> bool {
    let mut any = false;
    for_each_word(rows, |at, mask| any |= bits[at] & mask != 0);
    any
}

/// Calls `each` with the words that hold a run of bits, and their bits of the run.
fn for_each_word(run: Range<usize>, mut each: impl FnMut(usize, u64)) {
    let mut at = run.start;
    while at < run.end {
        let (word, bit) = (at / 64, at % 64);
        let count = (64 - bit).min(run.end - at);
        each(word, (u64::MAX >> (64 - count)) << bit);
        at += count;
    }
}
