//! Driving a scorer: count, keep the best, or keep all.
//!
//! A pass over a segment ends as soon as nothing it could still find would change the answer: the
//! count is known or beyond what is tracked, and the heap is full of rows that cannot be beaten.
//! Rows come in ascending order and ties are won by the earlier row, so a score that only equals
//! the worst one kept does not enter.

use std::cell::OnceCell;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering as Atomic};

use millrace_storage::segment::{PageBounds, WINDOW_ROWS, WindowBits};
use millrace_work::Work;
use millrace_work::compute::Stop;
use millrace_work::error::Result;
use roaring::RoaringBitmap;

use super::bits::{self, SetBuilder};
use super::condition::{Condition, Counted};
use super::failure::Failure;
use super::reader::Inverted;
use super::windows::Windows;
use super::{END, Scorer};

/// One row in so many is few: they are scored by themselves once they have been counted.
const FEW_SHARE: u64 = 32;
/// Rows between two looks at the clock and the counters.
const BLOCK: u32 = 4_096;

/// Where a row is: the segment's number in the table, and the row in it. Addresses ascend in the
/// order of index, shard, segment, row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// Segment number.
    pub segment: u32,
    /// Row number.
    pub row: u32,
}

/// A row that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// Its score; 0 where scores are not computed.
    pub score: f32,
    /// Where it is.
    pub address: Address,
}

impl Eq for Found {}

impl Ord for Found {
    /// Greater is worse: a lower score, and among equals a later address.
    fn cmp(&self, other: &Self) -> Ordering {
        other.score.total_cmp(&self.score).then_with(|| self.address.cmp(&other.address))
    }
}

impl PartialOrd for Found {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The point behind which a continued search goes on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cursor {
    /// Score of the last row, where the order is by score.
    pub score: Option<f32>,
    /// Address of the last row; all rows of that score are behind where absent.
    pub address: Option<Address>,
}

impl Cursor {
    /// First row of a segment that is behind it, [`END`] for none: rows before are skipped unseen where the order is theirs.
    pub(crate) fn start(&self, segment: u32) -> u32 {
        match (self.score, self.address) {
            (None, Some(last)) => match segment.cmp(&last.segment) {
                Ordering::Less => END,
                Ordering::Equal => last.row.saturating_add(1),
                Ordering::Greater => 0,
            },
            _ => 0,
        }
    }

    fn passes(&self, score: f32, address: Address) -> bool {
        let behind = self.address.is_some_and(|last| address > last);
        match self.score {
            None => behind,
            Some(last) => match score.total_cmp(&last) {
                Ordering::Less => true,
                Ordering::Equal => behind,
                Ordering::Greater => false,
            },
        }
    }
}

/// Counter of matching rows, shared by the partitions of a scan.
#[derive(Debug)]
pub struct Totals {
    tracked: bool,
    limit: u64,
    matched: AtomicU64,
    cut: AtomicBool,
}

impl Totals {
    /// Makes a counter that stops caring beyond `limit`; `None` does not count at all.
    pub const fn new(limit: Option<u64>) -> Self {
        let (tracked, limit) = match limit {
            Some(limit) => (true, limit),
            None => (false, 0),
        };
        Self { tracked, limit, matched: AtomicU64::new(0), cut: AtomicBool::new(false) }
    }

    fn add(&self, rows: u64) {
        self.matched.fetch_add(rows, Atomic::Relaxed);
    }

    /// Whether more matches would not change what is told.
    fn satisfied(&self) -> bool {
        !self.tracked || self.matched.load(Atomic::Relaxed) > self.limit
    }

    /// Whether a segment that only adds to the count is still worth visiting.
    pub(crate) fn wants_more(&self) -> bool {
        !self.satisfied()
    }

    /// Whether every match is counted, however many there are.
    fn counts_all(&self) -> bool {
        self.tracked && self.limit == u64::MAX
    }

    /// Returns the matches counted, and whether there are more than that.
    pub fn read(&self) -> (u64, bool) {
        let matched = self.matched.load(Atomic::Relaxed);
        if matched > self.limit { (self.limit, true) } else { (matched, self.cut.load(Atomic::Relaxed)) }
    }
}

/// Matches that a shard may still have before it stops (`terminate_after`).
#[derive(Debug)]
pub struct Budget {
    left: AtomicU64,
    spent: AtomicBool,
}

impl Budget {
    /// Allows `matches`.
    pub fn new(matches: u64) -> Self {
        Self { left: AtomicU64::new(matches), spent: AtomicBool::new(false) }
    }

    fn take(&self) -> bool {
        let took =
            self.left.fetch_update(Atomic::Relaxed, Atomic::Relaxed, |left| left.checked_sub(1)).is_ok();
        if !took {
            self.spent.store(true, Atomic::Relaxed);
        }
        took
    }

    /// Whether matches were left out.
    pub fn spent(&self) -> bool {
        self.spent.load(Atomic::Relaxed)
    }
}

/// One segment of a pass.
#[derive(Clone, Debug)]
pub struct Pass<'a> {
    /// Segment number.
    pub segment: u32,
    /// Rows of the segment, deleted ones included.
    pub rows: u32,
    /// Those of the pass; where they are not all, they begin and end at windows or with the segment.
    pub range: Range<u32>,
    /// What matches.
    pub prepared: &'a dyn Condition,
    /// The inverted index.
    pub inverted: &'a dyn Inverted,
    /// Deleted rows.
    pub deleted: &'a RoaringBitmap,
    /// The counter.
    pub totals: &'a Totals,
    /// Matches that are still allowed.
    pub budget: Option<&'a Budget>,
    /// Tells to stop.
    pub stop: &'a Stop,
}

/// What counts nothing.
static UNCOUNTED: Totals = Totals::new(None);

impl<'a> Pass<'a> {
    /// Returns the same pass, of which matches are not counted, as they have been.
    pub(crate) fn uncounted(&self) -> Self {
        Self { totals: &UNCOUNTED, ..self.clone() }
    }

    /// Returns the number of matches where the index knows it: those of a whole segment belong to its first pass.
    fn known_count(&self) -> Result<Option<u64>> {
        let (inverted, rows, deleted) = (self.inverted, self.rows, self.deleted);
        let counted = Counted { inverted, rows, deleted, all: self.totals.counts_all() };
        let known = self.prepared.known_count(&counted)?;
        Ok(known.map(|known| if self.range.start == 0 { known } else { 0 }))
    }

    fn windows(&self) -> Result<Windows<'a>> {
        Ok(Windows::open(self.prepared, self.inverted, self.rows)?.within(&self.range))
    }
}

/// The best rows so far.
#[derive(Debug)]
pub(crate) struct Top {
    limit: usize,
    by_score: bool,
    cursor: Option<Cursor>,
    /// What scores must exceed, where they order.
    least: f32,
    heap: BinaryHeap<Found>,
}

impl Top {
    /// Keeps `limit` rows: those of the best scores, or the first ones.
    pub(crate) fn new(limit: usize, by_score: bool, cursor: Option<Cursor>) -> Self {
        let heap = BinaryHeap::with_capacity(limit.min(10_000) + 1);
        Self { limit, by_score, cursor, least: f32::NEG_INFINITY, heap }
    }

    /// Keeps only rows whose scores exceed `least`, where they order.
    pub(crate) fn above(self, least: f32) -> Self {
        Self { least, ..self }
    }

    /// Whether a row at or behind the current one, of at most this score, could still enter.
    fn open_for(&self, max_score: f32) -> bool {
        if self.by_score && max_score <= self.least {
            return false;
        }
        if self.heap.len() < self.limit {
            return self.limit > 0;
        }
        self.by_score && self.heap.peek().is_some_and(|worst| max_score > worst.score)
    }

    /// The score that a row must exceed to enter.
    fn threshold(&self) -> f32 {
        if !self.by_score || self.limit == 0 {
            return f32::NEG_INFINITY;
        }
        let worst = self.heap.peek().filter(|_| self.heap.len() >= self.limit);
        worst.map_or(self.least, |worst| worst.score)
    }

    /// Tells a scorer where it has risen: what does not exceed `threshold` is not wanted any more.
    fn raise(&self, threshold: &mut f32, scorer: &mut (dyn Scorer + '_)) {
        let least = self.threshold();
        if least > *threshold {
            *threshold = least;
            scorer.raise_threshold(least);
        }
    }

    fn offer(&mut self, found: Found) {
        if self.by_score && found.score <= self.least {
            return;
        }
        if let Some(cursor) = &self.cursor
            && !cursor.passes(found.score, found.address)
        {
            return;
        }
        if self.heap.len() < self.limit {
            self.heap.push(found);
        } else if let Some(mut worst) = self.heap.peek_mut()
            && found < *worst
        {
            *worst = found;
        }
    }

    /// First row of a segment that can enter.
    fn start(&self, segment: u32) -> u32 {
        self.cursor.map_or(0, |cursor| cursor.start(segment))
    }

    /// Returns the rows, best first.
    pub(crate) fn into_sorted(self) -> Vec<Found> {
        self.heap.into_sorted_vec()
    }
}

/// Returns the rows that two runs have in common.
pub fn overlap(one: &Range<u32>, other: &Range<u32>) -> Range<u32> {
    let start = one.start.max(other.start);
    start..one.end.min(other.end).max(start)
}

/// Counts the matches of a segment, and returns how many were counted.
pub(crate) fn count(pass: &Pass<'_>) -> Result<u64> {
    collect_top(pass, &mut Top::new(0, false, None), false)
}

/// Offers the matches of a segment to `top`, and counts them. `scores` tells whether to compute
/// scores though they do not order. Returns how many matches were counted.
pub(crate) fn collect_top(pass: &Pass<'_>, top: &mut Top, scores: bool) -> Result<u64> {
    let scores = scores || top.by_score;
    let mut counting = !pass.totals.satisfied();
    let mut sum = 0;
    if counting && pass.budget.is_none() {
        // Counted for itself: the rows that enter are found faster where others need not be visited.
        if let Some(known) = pass.known_count()? {
            pass.totals.add(known);
            sum = known;
            counting = false;
        } else if !scores || !pass.prepared.by_scorer() {
            let mut few = Few::new(if scores { pass.range.len() as u64 / FEW_SHARE } else { 0 });
            sum = count_windows(pass, pass.windows()?, &mut few)?;
            counting = false;
            if let Some(rows) = few.into_all() {
                offer_rows(pass, &rows, top)?;
                return Ok(sum);
            }
        }
    }
    let start = top.start(pass.segment).max(pass.range.start);
    if !counting && pass.budget.is_none() && (start == END || !top.open_for(f32::INFINITY)) {
        return Ok(sum);
    }
    let failure = Failure::default();
    let mut scorer = match scores {
        true => pass.prepared.best_first(pass.inverted, pass.rows, &failure)?,
        false => pass.prepared.scorer(pass.inverted, pass.rows)?,
    };
    let max_score = scorer.max_score();
    let first = if counting || pass.budget.is_some() { pass.range.start } else { start };
    let mut doc = if first == 0 { scorer.doc() } else { scorer.seek(first) };
    let has_deleted = !pass.deleted.is_empty();
    let (mut counted, mut visited) = (0, 0);
    let mut threshold = f32::NEG_INFINITY;
    while doc < pass.range.end {
        if visited % BLOCK == 0 {
            sum += counted;
            pass.totals.add(std::mem::take(&mut counted));
            if pass.stop.requested() {
                break;
            }
            counting = counting && !pass.totals.satisfied();
        }
        visited += 1;
        let collecting = top.open_for(max_score);
        if !collecting && !counting && pass.budget.is_none() {
            break;
        }
        if !counting && pass.budget.is_none() {
            top.raise(&mut threshold, scorer.as_mut());
        }
        if !(has_deleted && pass.deleted.contains(doc)) {
            if let Some(budget) = pass.budget
                && !budget.take()
            {
                break;
            }
            counted += u64::from(counting);
            if collecting && doc >= start {
                let score = if scores { scorer.score() } else { 0.0 };
                top.offer(Found { score, address: Address { segment: pass.segment, row: doc } });
            }
        }
        doc = scorer.advance();
    }
    pass.totals.add(counted);
    failure.take().map_or(Ok(sum + counted), Err)
}

/// The rows that were counted, as long as they are few.
struct Few {
    most: u64,
    rows: Option<SetBuilder>,
}

impl Few {
    fn new(most: u64) -> Self {
        Self { most, rows: (most > 0).then(SetBuilder::default) }
    }

    fn add(&mut self, first: u32, found: &WindowBits) {
        if let Some(rows) = &mut self.rows {
            rows.add(first, found);
            if rows.len() > self.most {
                self.rows = None;
            }
        }
    }

    /// Returns the rows, if they are all there.
    fn into_all(self) -> Option<RoaringBitmap> {
        self.rows.map(SetBuilder::finish)
    }
}

/// Counts matches window by window, as long as the number matters.
fn count_windows(pass: &Pass<'_>, mut windows: Windows<'_>, few: &mut Few) -> Result<u64> {
    let mut sum = 0;
    loop {
        if pass.stop.requested() || pass.totals.satisfied() {
            few.rows = None;
            return Ok(sum);
        }
        let Some((first, mut found)) = windows.next()? else { return Ok(sum) };
        bits::clear(first, &mut found, pass.deleted);
        let counted = bits::count(&found).into();
        pass.totals.add(counted);
        few.add(first, &found);
        sum += counted;
    }
}

/// Offers some rows that match, none of them deleted.
fn offer_rows(pass: &Pass<'_>, rows: &RoaringBitmap, top: &mut Top) -> Result<()> {
    let mut scorer = pass.prepared.scorer(pass.inverted, pass.rows)?;
    let max_score = scorer.max_score();
    let mut threshold = f32::NEG_INFINITY;
    for (visited, row) in rows.range(top.start(pass.segment)..).enumerate() {
        if !top.open_for(max_score) || visited % BLOCK as usize == 0 && pass.stop.requested() {
            break;
        }
        top.raise(&mut threshold, scorer.as_mut());
        if scorer.seek(row) == row {
            top.offer(Found { score: scorer.score(), address: Address { segment: pass.segment, row } });
        }
    }
    Ok(())
}

/// Collects all matches of a segment: rows, their scores where asked, and the greatest score.
pub fn collect_all(pass: &Pass<'_>, scores: bool) -> Result<(RoaringBitmap, Vec<f32>)> {
    let mut found = RoaringBitmap::new();
    let mut scored = Vec::new();
    if !scores && pass.budget.is_none() {
        let rows = collect_windows(pass)?;
        pass.totals.add(rows.len());
        return Ok((rows, scored));
    }
    let mut scorer = pass.prepared.scorer(pass.inverted, pass.rows)?;
    let mut doc = if pass.range.start == 0 { scorer.doc() } else { scorer.seek(pass.range.start) };
    let mut visited = 0;
    while doc < pass.range.end {
        if visited % BLOCK == 0 && pass.stop.requested() {
            break;
        }
        visited += 1;
        if !pass.deleted.contains(doc) {
            if let Some(budget) = pass.budget
                && !budget.take()
            {
                break;
            }
            // Rows ascend, so each goes behind the last.
            let _ = found.try_push(doc);
            if scores {
                scored.push(scorer.score());
            }
        }
        doc = scorer.advance();
    }
    pass.totals.add(found.len());
    Ok((found, scored))
}

/// Finds the matching rows of a segment, deleted ones included: all or none, as they are kept for others.
///
/// # Errors
/// Files that cannot be read, [`Error::TimedOut`](millrace_work::error::Error::TimedOut) once the work should end.
pub fn row_set(
    prepared: &dyn Condition,
    inverted: &dyn Inverted,
    rows: u32,
    work: &Work,
) -> Result<RoaringBitmap> {
    let mut windows = Windows::open(prepared, inverted, rows)?;
    let mut found = SetBuilder::default();
    while let Some((first, bits)) = windows.next()? {
        work.check()?;
        found.add(first, &bits);
    }
    Ok(found.finish())
}

/// The matches of a part of a segment, for who wants those of some rows only.
pub(crate) struct Matches<'a> {
    pass: Pass<'a>,
    /// All of them, once they have been found; else they are looked for where they are asked for.
    known: OnceCell<RoaringBitmap>,
    /// About how many there are, once they have been opened.
    estimate: OnceCell<u64>,
}

impl<'a> Matches<'a> {
    /// Counts the matches as far as the number matters.
    pub(crate) fn count(pass: Pass<'a>) -> Result<Self> {
        let mut known = None;
        if pass.budget.is_some() {
            known = Some(collect_all(&pass, false)?.0);
        } else if !pass.totals.satisfied() {
            match pass.known_count()? {
                Some(count) => pass.totals.add(count),
                // All are visited, and may as well be kept.
                None if pass.totals.counts_all() => known = Some(collect_all(&pass, false)?.0),
                None => {
                    count_windows(&pass, pass.windows()?, &mut Few::new(0))?;
                }
            }
        }
        let known = known.map_or_else(OnceCell::new, OnceCell::from);
        Ok(Self { pass, known, estimate: OnceCell::new() })
    }

    /// Returns all of them, if they are known.
    pub(crate) fn known(&self) -> Option<&RoaringBitmap> {
        self.known.get()
    }

    /// Finds all of them.
    pub(crate) fn all(&self) -> Result<&RoaringBitmap> {
        if let Some(known) = self.known.get() {
            return Ok(known);
        }
        let all = collect_windows(&self.pass)?;
        Ok(self.known.get_or_init(|| all))
    }

    /// Estimates how many there are; `None` where that is not known before they are found.
    pub(crate) fn estimate(&self) -> Result<Option<u64>> {
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
    pub(crate) fn pages<'p>(&self, pages: &'p [PageBounds]) -> Result<Vec<&'p PageBounds>> {
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
    pub(crate) fn among(&self, rows: &RoaringBitmap) -> Result<RoaringBitmap> {
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

/// Collects matches window by window.
fn collect_windows(pass: &Pass<'_>) -> Result<RoaringBitmap> {
    let mut all = RoaringBitmap::new();
    all.insert_range(pass.range.clone());
    match pass.prepared.row_set() {
        Some(rows) if pass.range.len() == pass.rows as usize => return Ok(rows - pass.deleted),
        Some(rows) => return Ok((all & rows) - pass.deleted),
        None if pass.prepared.is_everything() => return Ok(all - pass.deleted),
        None => {}
    }
    let mut windows = pass.windows()?;
    let mut rows = SetBuilder::default();
    while !pass.stop.requested()
        && let Some((first, mut found)) = windows.next()?
    {
        bits::clear(first, &mut found, pass.deleted);
        rows.add(first, &found);
    }
    Ok(rows.finish())
}
