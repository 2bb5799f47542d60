//! Rows in the order of a field's terms.
//!
//! The values of a keyword field are terms, and so are integers of which there are not many; the dictionary has them
//! sorted. So the first rows by the field are the rows of its first terms, whose keys these terms are: those of strings need
//! not be read. Where all matches are known, the rows of each term are cut with them; where they are not, the rows of the
//! first terms are looked for among them. Where the matches have so few of the first terms that the walk would cost more
//! than reading their keys, it is given up.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, StringViewArray};
use millrace_dsl::sort::Mode;
use millrace_mapping::PathId;
use millrace_scoring::END;
use millrace_scoring::reader::RowPostings;
use millrace_work::error::Result;
use roaring::RoaringBitmap;

use super::threshold::{Threshold, address};
use super::{Candidates, KeyPart, RowRun, SourceStep, full_scan};
use crate::table::keys::{KeyKind, KeySource, MissingKey};

/// Terms and rows that are looked at in any case, since their keys would cost as much; and most rows of first terms that are
/// looked for among matches that are not known, each perhaps in a window of its own.
pub(super) const LEAST_STEPS: u64 = 4_096;
/// Terms and rows that are looked at while matches are not known, for each that is expected.
const LEEWAY: u64 = 4;
/// Most rows of terms that are looked for at first, for each row that is wanted.
const SOUGHT_ROWS: u64 = 8;
/// Rows that are given at first for each group that is wanted.
const ROWS_A_GROUP: usize = 4;

/// The terms of a key in a segment, and the rows of a part that have them.
pub(super) struct Terms<'a> {
    place: KeyPart<'a>,
    column: PathId,
    path: PathId,
    /// `true` if rows may have several.
    is_list: bool,
    cost: u64,
    /// `true` if rows are looked for among matches that are not known.
    seeks: bool,
    /// `true` if that may be followed by a walk with known matches: nothing else reads as few keys.
    may_know: bool,
    /// `true` if rows without a term are to be given first.
    lacking_first: bool,
    /// `true` if rows without a term have their turn after the last term.
    lacking_last: bool,
    /// Rows of the next run, at least.
    wanted: u64,
    /// Rows that are looked for at a time.
    sought: u64,
    /// Terms and rows that may still be looked at.
    steps: Option<u64>,
    given: RoaringBitmap,
    /// The term and the row where it goes on.
    at: Option<(Vec<u8>, u32)>,
    end: Option<WalkEnd>,
}

/// Why a walk has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WalkEnd {
    /// No term that follows competes.
    Beyond,
    /// There are no more terms.
    Last,
    /// It would cost too much.
    GivenUp,
}

/// Rows of a run with their terms.
#[derive(Default)]
struct RowsWithTerms {
    rows: RoaringBitmap,
    /// Rows that are to be looked for among the matches.
    sought: RoaringBitmap,
    /// Terms with some of the rows that have them.
    terms: Vec<(Vec<u8>, Vec<u32>)>,
}

impl<'a> Terms<'a> {
    /// Offers the rows of a part in the order of the terms of a key; `None` where these do not tell the order, and where all
    /// matches may as well be read.
    pub(super) fn open(place: KeyPart<'a>, of: &KeySource) -> Result<Option<Self>> {
        let (source, key, asked) = (place.source, place.key, place.threshold.asked());
        let Some(path) = of.terms.filter(|path| source.inverted.has_exact(*path)) else { return Ok(None) };
        let is_list = source.reader.is_list(of.column);
        // Of several terms of a row the first counts.
        let counts = matches!((key.mode, asked.descending), (Mode::Min, false) | (Mode::Max, true));
        if !counts && is_list || asked.after.is_some() {
            return Ok(None);
        }
        let is_full = source.inverted.exists_count(path)? >= source.reader.rows();
        if !is_full && key.fill != MissingKey::Null {
            return Ok(None);
        }
        let matches = match place.matches.estimate()? {
            Some(matches) => matches,
            // There is nothing else that leads to the first strings.
            None if key.kind == KeyKind::Str => place.matches.all()?.len(),
            None => return Ok(None),
        };
        let wanted = if asked.grouped { ROWS_A_GROUP * asked.limit } else { asked.limit } as u64;
        if matches <= wanted {
            return Ok(None);
        }
        let expected = wanted.saturating_mul(place.part.rows.len() as u64) / matches;
        Ok(Some(Self {
            place,
            column: of.column,
            path,
            is_list,
            cost: LEAST_STEPS.saturating_add(expected),
            seeks: is_full && place.matches.known().is_none() && expected <= LEAST_STEPS,
            may_know: key.kind == KeyKind::Str || matches > full_scan::MAX_ROWS,
            lacking_first: !is_full && key.nulls_first,
            lacking_last: !is_full && !key.nulls_first,
            wanted,
            sought: expected.clamp(wanted, SOUGHT_ROWS * wanted),
            steps: None,
            given: RoaringBitmap::new(),
            at: None,
            end: None,
        }))
    }

    /// Finds the rows without a term.
    fn lacking(&self, threshold: &Threshold) -> Result<RoaringBitmap> {
        let mut having = self.place.source.inverted.exists_rows(self.path)?;
        let mut lacks = |row: &u32| having.as_mut().is_none_or(|having| having.seek_row(*row) != *row);
        let asked = threshold.asked();
        let wanted = if asked.by_address && !asked.grouped { asked.limit } else { usize::MAX };
        Ok(self.place.matches.all()?.iter().filter(|row| lacks(row)).take(wanted).collect())
    }

    /// Walks on until there are enough rows, and tells why it ended if it did.
    fn walk(&mut self, threshold: &Threshold, gathered: &mut RowsWithTerms) -> Result<Option<WalkEnd>> {
        let (place, path, from) = (self.place, self.path, self.at.take());
        let (mut end, mut failure) = (Some(WalkEnd::Last), None);
        let mut each = |term: &[u8], rows: &mut dyn RowPostings| {
            let start = from.as_ref().filter(|(own, _)| own == term).map_or(0, |(_, row)| *row);
            let first = address(place.part.segment, start.max(place.part.rows.start));
            let step = match threshold.admits_term(first, term) {
                // The rows of the term have been given, or those that compete.
                _ if start == END => Ok(ControlFlow::Continue(())),
                false if start > 0 => Ok(ControlFlow::Continue(())),
                false => Ok(ControlFlow::Break(Some(WalkEnd::Beyond))),
                true if self.seeks => self.seek(term, rows, start, threshold.asked().by_address, gathered),
                true => self.cut(term, rows, start, threshold.asked().by_address, gathered),
            };
            match step {
                Ok(ControlFlow::Continue(())) => return ControlFlow::Continue(()),
                Ok(ControlFlow::Break(why)) => end = why,
                Err(error) => failure = Some(error),
            }
            ControlFlow::Break(())
        };
        let descending = threshold.asked().descending;
        let from = from.as_ref().map(|(term, _)| term.as_slice());
        place.source.inverted.for_each_rows(path, from, descending, &mut each)?;
        if let Some(error) = failure {
            return Err(error);
        }
        // Also where another part has told the end, rows of the terms before it have still to be looked for.
        if end != Some(WalkEnd::GivenUp) {
            self.look_up(gathered)?;
        }
        Ok(end)
    }

    /// Adds the rows of a term, from one on, that are among the matches.
    fn cut(
        &mut self,
        term: &[u8],
        rows: &mut dyn RowPostings,
        start: u32,
        by_address: bool,
        gathered: &mut RowsWithTerms,
    ) -> Result<ControlFlow<Option<WalkEnd>>> {
        const GIVEN_UP: Result<ControlFlow<Option<WalkEnd>>> = Ok(ControlFlow::Break(Some(WalkEnd::GivenUp)));
        let matches = self.place.matches.all()?;
        let (Some(least), Some(greatest)) = (matches.min(), matches.max()) else {
            return Ok(ControlFlow::Break(Some(WalkEnd::Beyond)));
        };
        // A term counts, whether or not it has rows between the first and the last that matter.
        if !self.step() {
            return GIVEN_UP;
        }
        let (mut own, mut goes_on) = (Vec::new(), END);
        let mut row = rows.seek_row(start.max(least));
        // The next of both, in turns.
        let mut matches = matches.iter();
        let mut next = matches.next();
        while row <= greatest && goes_on == END {
            if !self.step() {
                return GIVEN_UP;
            }
            if next.is_some_and(|next| next < row) {
                matches.advance_to(row);
                next = matches.next();
            }
            let Some(candidate) = next else { break };
            if candidate > row {
                row = rows.seek_row(candidate);
                continue;
            }
            if !self.given.contains(row) && gathered.rows.insert(row) {
                own.push(row);
                if by_address && gathered.rows.len() >= self.wanted {
                    goes_on = row + 1;
                }
            }
            row = rows.seek_row(row + 1);
        }
        if !own.is_empty() {
            gathered.terms.push((term.to_vec(), own));
        }
        if gathered.rows.len() < self.wanted {
            return Ok(ControlFlow::Continue(()));
        }
        self.at = Some((term.to_vec(), goes_on));
        Ok(ControlFlow::Break(None))
    }

    /// Lists the rows of a term, and looks for those that are listed among the matches once there are enough.
    fn seek(
        &mut self,
        term: &[u8],
        rows: &mut dyn RowPostings,
        start: u32,
        by_address: bool,
        gathered: &mut RowsWithTerms,
    ) -> Result<ControlFlow<Option<WalkEnd>>> {
        let (range, mut own) = (self.place.part.rows.clone(), Vec::new());
        let mut goes_on = self.step();
        let mut row = rows.seek_row(start.max(range.start));
        let mut enough = false;
        while row < range.end && goes_on && !enough {
            gathered.sought.insert(row);
            own.push(row);
            row = rows.seek_row(row + 1);
            goes_on = self.step();
            // Of rows that tie the first are wanted.
            if by_address && gathered.sought.len() >= self.sought {
                enough = self.look_up_enough(gathered)?;
            }
        }
        // Of a term whose rows are too many some may not have been listed.
        if !goes_on {
            return Ok(ControlFlow::Break(Some(WalkEnd::GivenUp)));
        }
        if self.place.key.kind == KeyKind::Str {
            gathered.terms.push((term.to_vec(), own));
        }
        let next = if enough { row } else { END };
        if !enough && (gathered.sought.len() < self.sought || !self.look_up_enough(gathered)?) {
            return Ok(ControlFlow::Continue(()));
        }
        self.at = Some((term.to_vec(), next));
        Ok(ControlFlow::Break(None))
    }

    /// Looks for the rows that are listed, more of them the next time; whether there are enough now.
    fn look_up_enough(&mut self, gathered: &mut RowsWithTerms) -> Result<bool> {
        self.look_up(gathered)?;
        self.sought *= 2;
        Ok(gathered.rows.len() >= self.wanted)
    }

    /// Looks for the rows that are listed among the matches.
    fn look_up(&self, gathered: &mut RowsWithTerms) -> Result<()> {
        if !gathered.sought.is_empty() {
            let sought = std::mem::take(&mut gathered.sought);
            gathered.rows |= self.place.matches.among(&sought)? - &self.given;
        }
        Ok(())
    }

    /// Takes a step; not where nothing more should be tried.
    fn step(&mut self) -> bool {
        match self.steps.as_mut().map(|left| left.checked_sub(1).map(|less| *left = less)) {
            Some(None) => false,
            None | Some(Some(())) => true,
        }
    }

    /// Lists the terms of the rows, which have one or none each.
    fn values(&self, gathered: &RowsWithTerms) -> Option<ArrayRef> {
        if self.is_list || self.place.key.kind != KeyKind::Str {
            return None;
        }
        let mut values = BTreeMap::new();
        for (term, rows) in &gathered.terms {
            let term = std::str::from_utf8(term).ok()?;
            let rows = rows.iter().filter(|row| gathered.rows.contains(**row));
            values.extend(rows.map(|row| (*row, term)));
        }
        let values = gathered.rows.iter().map(|row| values.get(&row).copied());
        Some(Arc::new(values.collect::<StringViewArray>()))
    }
}

impl Candidates for Terms<'_> {
    fn cost(&self) -> u64 {
        self.cost
    }

    fn next(&mut self, threshold: &Threshold) -> Result<SourceStep> {
        if std::mem::take(&mut self.lacking_first) {
            let rows = self.lacking(threshold)?;
            if !rows.is_empty() {
                self.given |= &rows;
                return Ok(SourceStep::Run(RowRun::new(rows)));
            }
        }
        let mut gathered = RowsWithTerms::default();
        while gathered.rows.is_empty() {
            match self.end {
                None => {}
                // With too few rows that have a term, those without one follow.
                Some(WalkEnd::Last) if self.lacking_last => return Ok(SourceStep::GivenUp),
                Some(WalkEnd::Last | WalkEnd::Beyond) => return Ok(SourceStep::Done),
                Some(WalkEnd::GivenUp) if self.seeks && self.may_know => {
                    (self.seeks, self.steps) = (false, None)
                }
                Some(WalkEnd::GivenUp) => return Ok(SourceStep::GivenUp),
            }
            if self.steps.is_none() {
                self.steps = Some(match self.seeks {
                    true => LEEWAY * LEAST_STEPS,
                    false => self.place.matches.all()?.len().max(LEAST_STEPS),
                });
            }
            gathered = RowsWithTerms::default();
            let at = self.at.clone();
            self.end = self.walk(threshold, &mut gathered)?;
            if self.end == Some(WalkEnd::GivenUp) {
                (self.at, gathered) = (at, RowsWithTerms::default());
            }
        }
        self.wanted *= 2;
        self.given |= &gathered.rows;
        let values = self.values(&gathered).map(|values| (self.column, values));
        Ok(SourceStep::Run(RowRun { rows: gathered.rows, values, ..RowRun::default() }))
    }
}
