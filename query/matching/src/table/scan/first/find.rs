//! The loop that asks sources for candidates: the cheapest of a part first, until nothing else competes.

use std::mem;

use datafusion::arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use datafusion::arrow::compute::{concat_batches, filter};
use millrace_mapping::PathId;
use millrace_scoring::END;
use millrace_scoring::collect::{self, Matches, SegmentPass};
use millrace_scoring::source::Source;
use millrace_segment::{NumberBounds, PageBounds, list_rows};
use millrace_work::error::Result;
use roaring::RoaringBitmap;

use super::full_scan::FullScanRows;
use super::missing_field::MissingFieldRows;
use super::pages::Pages;
use super::terms::{LEAST_STEPS, Terms};
use super::threshold::{ComparableKeys, address};
use super::top_rows::TopRows;
use super::{Candidates, FirstRows, KeyPart, LeadingKey, RowRun, SourceStep, codes};
use crate::table::keys::KeyKind;
use crate::table::partitions::RowPartition;
use crate::table::scan::ScanState;
use crate::table::scan::read::{BATCH_ROWS, Rows, chunks, read};

/// Hits of a part.
#[derive(Default)]
pub(in crate::table::scan) struct PartitionHits {
    /// Rows that compete, in no order.
    pub batches: Vec<RecordBatch>,
    /// Matches of which it is not known which of them compete.
    pub rest: Vec<Rows>,
}

/// Row sources of a part.
struct RowSource<'a> {
    segment: u32,
    index: usize,
    first: &'a FirstRows,
    source: &'a Source,
    /// The columns that keys are computed from.
    columns: Vec<PathId>,
}

impl ScanState {
    /// Bounds the codes of a part's rows, as far as it is known without reading.
    pub(in crate::table::scan) fn bounds(&self, part: &RowPartition, first: &FirstRows) -> (u64, u64) {
        let LeadingKey::Key(number) = first.by else { return codes::ANY };
        let segment = &self.table.snapshot.segments[part.segment as usize];
        let key = &self.table.keys[number];
        let source = key.sources.get(segment.index).and_then(Option::as_ref);
        let page = match source {
            Some(source) => segment.reader.bounds(source.column),
            None => PageBounds { rows: 0..segment.reader.rows(), values: NumberBounds::Empty, full: false },
        };
        codes::bounds(key, source, &page, first.threshold.asked().descending)
    }

    /// Returns whether rows of a part may be among the first.
    fn admits(&self, part: &RowPartition, first: &FirstRows) -> bool {
        let passed = self.table.options.cursor.is_some_and(|cursor| cursor.start(part.segment) == END);
        let address = address(part.segment, part.rows.start);
        !passed && first.threshold.admits_run(address, self.bounds(part, first))
    }

    /// Finds the rows of parts that may be among the first, and counts matches as far as their number matters. Blocks; runs on
    /// a compute thread.
    pub(in crate::table::scan) fn find(
        &self,
        parts: &[RowPartition],
        first: &FirstRows,
    ) -> Result<PartitionHits> {
        let (handle, mut found) = (&self.table.handle, PartitionHits::default());
        for part in parts {
            if self.admits(part, first) {
                self.visit(part, self.needs_scores(), |source, pass| {
                    self.find_in(&mut found, part, first, source, pass)
                })?;
            } else if handle.totals.wants_rest() || !handle.budgets.is_empty() {
                self.visit(part, self.needs_scores(), |_, pass| collect::count(&pass))?;
            }
        }
        // Whoever sorts them is called once.
        let rows = found.batches.iter().map(RecordBatch::num_rows).sum::<usize>();
        if found.batches.len() > 1 && rows <= BATCH_ROWS {
            found.batches = vec![concat_batches(&self.schema, &found.batches)?];
        }
        Ok(found)
    }

    fn find_in(
        &self,
        found: &mut PartitionHits,
        part: &RowPartition,
        first: &FirstRows,
        source: &Source,
        pass: SegmentPass<'_>,
    ) -> Result<()> {
        let index = self.table.snapshot.segments[part.segment as usize].index;
        let place =
            RowSource { segment: part.segment, index, first, source, columns: self.key_columns(index) };
        let asked = self.needs_scores();
        if !first.threshold.tells() {
            let (rows, scores) = collect::collect_all(&pass, asked)?;
            found.rest.push(Rows { segment: part.segment, scores, rows });
            return Ok(());
        }
        match first.by {
            LeadingKey::Key(key) => {
                let (key, threshold) = (&self.table.keys[key], first.threshold.as_ref());
                let matches = &Matches::count(pass)?;
                let own = KeyPart { source, part, key, matches, threshold };
                if let Some(seen) = self.run(&place, sources(own, index)?, &mut found.batches)? {
                    let rows = matches.all()? - seen;
                    found.rest.push(Rows { segment: part.segment, scores: Vec::new(), rows });
                }
            }
            LeadingKey::Score | LeadingKey::Address => {
                let (by_score, cursor) = (first.by == LeadingKey::Score, self.table.options.cursor);
                let best = TopRows::open(pass.clone(), by_score, asked, cursor, &first.threshold);
                if self.run(&place, vec![Box::new(best)], &mut found.batches)?.is_some() {
                    // Whoever looks for groups may meet a row again.
                    let (rows, scores) = collect::collect_all(&pass.uncounted(), asked)?;
                    found.rest.push(Rows { segment: part.segment, scores, rows });
                }
            }
        }
        Ok(())
    }

    /// Asks sources for rows until no other row competes, and makes batches of those that do. Returns the rows that have been
    /// looked at where no source is left that tells which others do.
    fn run(
        &self,
        place: &RowSource<'_>,
        sources: Vec<Box<dyn Candidates + '_>>,
        batches: &mut Vec<RecordBatch>,
    ) -> Result<Option<RoaringBitmap>> {
        let threshold = &place.first.threshold;
        let mut seen = RoaringBitmap::new();
        for mut source in sources {
            let mut own = RoaringBitmap::new();
            loop {
                if self.stopped() {
                    return Ok(None);
                }
                let mut run = match source.next(threshold)? {
                    SourceStep::Run(run) => run,
                    SourceStep::Done => return Ok(None),
                    SourceStep::GivenUp => break,
                };
                own |= &run.rows;
                if !seen.is_disjoint(&run.rows) {
                    run = RowRun::new(run.rows - &seen);
                }
                self.take(place, run, batches)?;
                if !threshold.tells() {
                    return Ok(Some(seen | own));
                }
            }
            seen |= own;
        }
        Ok(Some(seen))
    }

    /// Reads the keys of rows, and makes batches of those that compete.
    fn take(&self, place: &RowSource<'_>, run: RowRun, batches: &mut Vec<RecordBatch>) -> Result<()> {
        let RowRun { rows, mut scores, values } = run;
        let mut add = |rows: Vec<u32>, arrays: &[ArrayRef]| -> Result<()> {
            let later = scores.split_off(rows.len().min(scores.len()));
            let own = mem::replace(&mut scores, later);
            batches.extend(self.competing(place, rows, &own, arrays)?);
            Ok(())
        };
        if rows.is_empty() {
            return Ok(());
        }
        match values {
            _ if place.columns.is_empty() => chunks(&rows).try_for_each(|chunk| add(chunk, &[])),
            Some((column, values)) if place.columns == [column] => add(list_rows(&rows, 0..END), &[values]),
            _ => read(place.source, &place.columns, rows, &mut add),
        }
    }

    /// Makes a batch of those of some rows that compete, if there are any.
    fn competing(
        &self,
        place: &RowSource<'_>,
        rows: Vec<u32>,
        scores: &[f32],
        arrays: &[ArrayRef],
    ) -> Result<Option<RecordBatch>> {
        let (first, segment, index, columns) = (place.first, place.segment, place.index, &place.columns);
        let threshold = &first.threshold;
        let key = |number: usize| self.key(number, index, columns, arrays, rows.len());
        let compared = match first.by {
            LeadingKey::Key(number) => threshold.compared(&key(number)?)?,
            LeadingKey::Score => {
                ComparableKeys::Codes(scores.iter().map(|score| codes::of_score(*score)).collect())
            }
            LeadingKey::Address => ComparableKeys::Codes(vec![0; rows.len()]),
        };
        let groups = first.group.map(key).transpose()?;
        let competes = threshold.admit(segment, &rows, &compared, groups.as_ref())?;
        let of = |at: &usize| competes[*at];
        let scores: Vec<f32> = (0..scores.len()).filter(of).map(|at| scores[at]).collect();
        let rows: Vec<u32> = (0..rows.len()).filter(of).map(|at| rows[at]).collect();
        if rows.is_empty() {
            return Ok(None);
        }
        if let Some(best) = scores.iter().copied().max_by(f32::total_cmp) {
            self.table.handle.saw_score(best);
        }
        // What else a row needs is made of the few that are left.
        let keys = if self.derives_keys(index) {
            self.derived_keys(segment, &rows)?
        } else {
            let competes = BooleanArray::from(competes);
            let arrays = arrays.iter().map(|array| filter(array, &competes));
            let arrays = arrays.collect::<std::result::Result<Vec<_>, _>>()?;
            self.keys(index, columns, &arrays, rows.len())?
        };
        let scores = if scores.is_empty() { vec![0.0; rows.len()] } else { scores };
        self.batch(&keys, scores, vec![segment; rows.len()], rows).map(Some)
    }
}

/// Opens the sources that a part has of first rows by a key, the cheapest first.
fn sources<'a>(place: KeyPart<'a>, index: usize) -> Result<Vec<Box<dyn Candidates + 'a>>> {
    let mut sources: Vec<Box<dyn Candidates + 'a>> = Vec::new();
    let Some(of) = place.key.sources.get(index).and_then(Option::as_ref) else {
        sources.push(Box::new(MissingFieldRows::open(place)));
        return Ok(sources);
    };
    if place.key.kind != KeyKind::Str {
        let pages = Pages::open(place, of)?;
        // Of those that cost the same, the one that reads all at once comes first.
        if let Some(whole) = FullScanRows::open(place)? {
            sources.push(Box::new(whole));
        }
        sources.push(Box::new(pages));
    }
    // What is cheaper than any walk over terms does not give up.
    if sources.iter().all(|source| source.cost() > LEAST_STEPS)
        && let Some(terms) = Terms::open(place, of)?
    {
        sources.push(Box::new(terms));
    }
    sources.sort_by_key(|source| source.cost());
    Ok(sources)
}
