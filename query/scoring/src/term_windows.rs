//! Rows with terms of one text field, window by window, without those that score too little.
//!
//! Once there is a threshold, a window is looked at in the order of what that costs: how often its rows have each term at
//! most, which is kept beside the postings, and how short the shortest is tell whether any can pass. Postings are
//! decoded of the terms without which none can ([`MaxScore`](super::max_score) calls them essential; where all terms
//! must be there, of the rarest), the lengths of their rows leave few of them, and only for these the others are asked.

use std::ops::Range;

use millrace_segment::{WINDOW_ROWS, WindowBits};
use millrace_work::error::Result;

use crate::bits::{FEW, NO_ROWS, count, first_from, has, intersect, is_empty, retain, set, unite, up_to};
use crate::failure::Failure;
use crate::lengths::{Bounds, ImpactRuns, LENGTHS, Lengths, ONCE, Scores};
use crate::reader::{RowPostings, TextReader};
use crate::windows::BoxFilter;
use crate::{END, bound_of};

/// Indices of length bounds: for rows that have the leading terms once, all of them, and each.
const LEAD: usize = 0;
const ALL: usize = 1;
const EACH: usize = 2;

/// Condition on rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowCondition {
    /// Those with any of the terms.
    Any,
    /// Those with all of them.
    All,
}

/// Score of rows.
pub(super) enum Ranking<'a> {
    /// All alike: there is no threshold.
    Flat,
    /// The scores of terms add up.
    Sum(Vec<Scores<'a>>),
    /// As a phrase does at best: it is there no more often than any of its terms.
    Phrase(Scores<'a>),
}

/// The rows of terms.
pub(super) struct TermWindows<'a> {
    terms: Vec<Term>,
    wanted: RowCondition,
    ranking: Ranking<'a>,
    /// Further condition on rows.
    filter: Option<BoxFilter<'a>>,
    failure: Failure,
    lengths: Lengths<'a>,
    /// Row behind the last of the segment.
    rows: u32,
    /// The terms in the order in which they are asked in a window: first those that bring its rows.
    order: Vec<usize>,
    /// The window: its first row, the row behind it, and the rows that may match.
    first: u32,
    behind: u32,
    bits: WindowBits,
    threshold: f32,
    /// Lengths that can pass the threshold, and those of rows that have some terms once: the leading ones, all, and each.
    passing: LengthThresholds,
    passing_once: Vec<LengthThresholds>,
}

/// Bounds on the lengths of rows that pass a threshold, where they have the terms no more often than given.
struct LengthThresholds {
    threshold: f32,
    bounds: Vec<Bounds>,
    /// The longest, as it is encoded; none passes where absent.
    longest: Option<u8>,
}

impl LengthThresholds {
    fn new() -> Self {
        Self { threshold: f32::NEG_INFINITY, bounds: Vec::new(), longest: Some(u8::MAX) }
    }

    /// Finds them for terms of certain bounds, if they are not known yet.
    fn update(
        &mut self,
        threshold: f32,
        bounds: impl Iterator<Item = Bounds> + Clone,
        wanted: RowCondition,
        ranking: &mut Ranking<'_>,
    ) {
        if self.threshold == threshold && bounds.clone().eq(self.bounds.iter().copied()) {
            return;
        }
        self.threshold = threshold;
        self.bounds = bounds.clone().collect();
        let mut most = [0.0f64; LENGTHS];
        // A row that is shorter than all with a term does not have it.
        let mut add = |scores: &mut Scores<'_>, Bounds { often, shortest }: Bounds| {
            let from = usize::from(shortest);
            let own = &scores.most(often)[from..];
            most[from..].iter_mut().zip(own).for_each(|(sum, own)| *sum += f64::from(*own));
        };
        let shortest = bounds.clone().map(|own| own.shortest).max().unwrap_or(0);
        match ranking {
            Ranking::Flat => return,
            Ranking::Sum(scores) => scores.iter_mut().zip(bounds).for_each(|(scores, own)| match wanted {
                RowCondition::Any => add(scores, own),
                RowCondition::All => add(scores, Bounds { shortest, ..own }),
            }),
            Ranking::Phrase(scores) => {
                let often = bounds.map(|own| own.often).min().unwrap_or(Bounds::UNKNOWN.often);
                add(scores, Bounds { often, shortest });
            }
        }
        // What is longer than that does not pass; what is shorter mostly does.
        let longest = most.iter().rposition(|sum| bound_of(*sum) > threshold);
        self.longest = longest.and_then(|longest| u8::try_from(longest).ok());
    }
}

/// One term, or several that stand for each other.
pub(super) struct Term {
    lists: Vec<Box<dyn RowPostings>>,
    name: String,
    runs: Option<ImpactRuns>,
    /// Of the window: the bounds on the scores of its rows, and the best contribution of the term.
    bounds: Bounds,
    most: f64,
    /// Rows of the window that have it, and those that have it more than once with how often.
    found: WindowBits,
    more: Vec<(u32, u32)>,
}

impl Term {
    /// Opens terms that stand for each other; `None` where none has rows. `frequencies` says whether they matter.
    pub(super) fn open(text: &dyn TextReader, terms: &[String], frequencies: bool) -> Result<Option<Self>> {
        let mut lists = Vec::with_capacity(terms.len());
        for term in terms {
            lists.extend(if frequencies { text.frequencies(term)? } else { text.row_postings(term)? });
        }
        let name = match terms {
            [term] if frequencies => term.clone(),
            _ => String::new(),
        };
        let (bounds, found) = (Bounds::UNKNOWN, NO_ROWS);
        let term = Self { lists, name, runs: None, bounds, most: 0.0, found, more: Vec::new() };
        Ok((!term.lists.is_empty()).then_some(term))
    }

    /// Counts its rows.
    pub(super) fn cost(&self) -> u64 {
        self.lists.iter().map(|list| list.cost()).sum()
    }

    /// Goes to the first row at or behind `target`.
    fn seek(&mut self, target: u32) -> u32 {
        self.lists.iter_mut().map(|list| list.seek_row(target)).min().unwrap_or(END)
    }

    /// Finds the rows of a window, as far as they are among some.
    fn find(&mut self, first: u32, among: &WindowBits) {
        self.found = NO_ROWS;
        self.more.clear();
        if count(among) > FEW {
            for list in &mut self.lists {
                list.fill_often(first, &mut self.found, &mut self.more);
            }
            return;
        }
        self.found = *among;
        let (lists, more) = (&mut self.lists, &mut self.more);
        retain(first, &mut self.found, |row| {
            let mut here = false;
            for list in lists.iter_mut().filter_map(|list| (list.seek_row(row) == row).then_some(list)) {
                here = true;
                more.extend(Some((row, list.freq())).filter(|(_, freq)| *freq > 1));
            }
            here
        });
    }

    /// Returns the rows of the window that may have it more than once, of those that were found.
    fn several(&self, first: u32) -> WindowBits {
        if self.lists.len() > 1 {
            return self.found;
        }
        let mut several = NO_ROWS;
        self.more.iter().for_each(|(row, _)| set(&mut several, row - first));
        several
    }

    /// Says how often a row of the window has it; `None` where it has not, and where several terms may add up.
    fn freq(&self, row: u32, at: u32) -> Option<u32> {
        if !has(&self.found, at) || self.lists.len() > 1 {
            return None;
        }
        let more = self.more.binary_search_by_key(&row, |(row, _)| *row);
        Some(more.map_or(1, |place| self.more[place].1))
    }
}

impl<'a> TermWindows<'a> {
    /// Starts before the first row. There is at least one term.
    pub(super) fn new(
        text: &'a dyn TextReader,
        terms: Vec<Term>,
        wanted: RowCondition,
        ranking: Ranking<'a>,
    ) -> Self {
        let mut order: Vec<usize> = (0..terms.len()).collect();
        order.sort_by_key(|at| terms[*at].cost());
        let passing_once = (0..terms.len() + EACH).map(|_| LengthThresholds::new()).collect();
        Self {
            terms,
            wanted,
            ranking,
            filter: None,
            failure: Failure::default(),
            lengths: Lengths::new(text),
            rows: text.rows(),
            order,
            first: 0,
            behind: 0,
            bits: NO_ROWS,
            threshold: f32::NEG_INFINITY,
            passing: LengthThresholds::new(),
            passing_once,
        }
    }

    /// Leaves out the rows that a filter does not match. Its error ends the rows, and is put into `failure`.
    pub(super) fn filtered(self, filter: BoxFilter<'a>, failure: Failure) -> Self {
        Self { filter: Some(filter), failure, ..self }
    }

    /// Says that rows that score no more than `threshold` are of no interest.
    pub(super) fn raise_threshold(&mut self, threshold: f32) {
        if self.threshold <= 0.0 {
            for term in self.terms.iter_mut().filter(|term| !term.name.is_empty()) {
                term.runs = self.lengths.runs(&std::mem::take(&mut term.name));
            }
        }
        self.threshold = threshold;
    }

    /// Estimates how many rows there are.
    pub(super) fn cost(&self) -> u64 {
        let costs = self.terms.iter().map(Term::cost);
        let own = match self.wanted {
            RowCondition::Any => costs.sum(),
            RowCondition::All => costs.min().unwrap_or(0),
        };
        self.filter.as_ref().map_or(own, |filter| filter.cost().min(own))
    }

    /// Returns the first row at or behind `target`, which does not descend, that matches and may pass the threshold, with
    /// what it scores at most; [`END`] behind the last.
    pub(super) fn seek(&mut self, mut target: u32) -> (u32, f32) {
        loop {
            while target < self.behind
                && let Some(at) = first_from(&self.bits, target.saturating_sub(self.first))
            {
                let row = self.first + at;
                let score = self.score(row, at);
                if self.threshold <= 0.0 || score > self.threshold {
                    return (row, score);
                }
                target = row + 1;
            }
            match self.open(target.max(self.behind)) {
                Ok(true) => {}
                Ok(false) => return (END, 0.0),
                Err(error) => {
                    self.failure.put(error);
                    return (END, 0.0);
                }
            }
        }
    }

    /// Returns the window of the row that was found last: its first row, and its rows that may match and may pass the threshold.
    pub(super) fn window(&self) -> (u32, &WindowBits) {
        (self.first, &self.bits)
    }

    /// As [`Self::window`], for rows to be left out that are found not to match.
    pub(super) fn window_mut(&mut self) -> (u32, &mut WindowBits) {
        (self.first, &mut self.bits)
    }

    /// Goes to the first window at or behind `target` with rows that may match; tells whether there is one.
    fn open(&mut self, mut target: u32) -> Result<bool> {
        loop {
            target = self.ahead(target);
            if target >= self.rows {
                self.behind = END;
                self.bits = NO_ROWS;
                return Ok(false);
            }
            self.first = target - target % WINDOW_ROWS;
            self.behind = self.first.saturating_add(WINDOW_ROWS).min(self.rows);
            self.bits = up_to(self.behind - self.first);
            self.weigh()?;
            if self.threshold > 0.0 {
                // Who looks at all rows of the window is spared those that their scores rule out already.
                let (threshold, mut bits) = (self.threshold, self.bits);
                retain(self.first, &mut bits, |row| self.score(row, row - self.first) > threshold);
                self.bits = bits;
            }
            if !is_empty(&self.bits) {
                return Ok(true);
            }
            target = self.behind;
        }
    }

    /// Returns a row at or behind `target`: none before it matches.
    fn ahead(&mut self, mut target: u32) -> u32 {
        if let Some(filter) = &mut self.filter {
            target = filter.next(target);
        }
        if target >= self.rows {
            return END;
        }
        match self.wanted {
            RowCondition::All => self.terms[self.order[0]].seek(target),
            // To look for the next row of every term is to decode them all.
            RowCondition::Any if self.threshold > 0.0 => target,
            RowCondition::Any => self.terms.iter_mut().map(|term| term.seek(target)).min().unwrap_or(END),
        }
    }

    /// Finds the rows of the window that may match.
    fn weigh(&mut self) -> Result<()> {
        let ranked = self.threshold > 0.0;
        if ranked {
            self.keep_passing();
            if is_empty(&self.bits) {
                return Ok(());
            }
        }
        let leading = match self.wanted {
            RowCondition::All => 1,
            RowCondition::Any if ranked => self.rank(),
            RowCondition::Any => self.terms.len(),
        };
        let lead = &self.order[..leading];
        let led: u64 = lead.iter().map(|at| self.terms[*at].cost()).sum();
        let filter_first = self.filter.as_ref().is_some_and(|filter| filter.cost() < led);
        if let Some(filter) = self.filter.as_mut().filter(|_| filter_first) {
            filter.keep(self.first, &mut self.bits)?;
            if is_empty(&self.bits) {
                return Ok(());
            }
        }
        let mut found = NO_ROWS;
        for at in lead {
            self.terms[*at].find(self.first, &self.bits);
            unite(&mut found, &self.terms[*at].found);
        }
        intersect(&mut self.bits, &found);
        if ranked {
            self.keep_passing_once(LEAD, 0..leading);
        }
        if let Some(filter) = self.filter.as_mut().filter(|_| !filter_first)
            && !is_empty(&self.bits)
        {
            filter.keep(self.first, &mut self.bits)?;
        }
        for at in &self.order[leading..] {
            if is_empty(&self.bits) {
                break;
            }
            self.terms[*at].find(self.first, &self.bits);
            if self.wanted == RowCondition::All {
                intersect(&mut self.bits, &self.terms[*at].found);
            }
        }
        if ranked {
            self.keep_passing_of_found();
        }
        Ok(())
    }

    /// Leaves out the rows that cannot pass the threshold, by their lengths and how often rows of the window have the terms.
    fn keep_passing(&mut self) {
        let (first, last) = (self.first, self.behind - 1);
        for term in &mut self.terms {
            term.bounds = term.runs.as_mut().map_or(Bounds::UNKNOWN, |runs| runs.bounds(first, last));
        }
        let bounds = self.terms.iter().map(|term| term.bounds);
        self.passing.update(self.threshold, bounds, self.wanted, &mut self.ranking);
        self.lengths.keep(first, &mut self.bits, self.passing.longest);
    }

    /// Leaves out the rows that cannot pass the threshold by how often they have all of the terms and each, as long as that is
    /// less than to score each row.
    fn keep_passing_of_found(&mut self) {
        let terms = self.order.len();
        if terms > 1 && count(&self.bits) > FEW {
            self.keep_passing_once(ALL, 0..terms);
            for at in 0..terms {
                if matches!(self.ranking, Ranking::Phrase(_)) || count(&self.bits) <= FEW {
                    break;
                }
                self.keep_passing_once(EACH + at, at..at + 1);
            }
        }
    }

    /// Leaves out the rows that cannot pass the threshold, by their lengths, of those that have some of the terms once, which
    /// were found. They are given by their places in the order, and what can pass is kept at a place of its own.
    fn keep_passing_once(&mut self, passing: usize, once: Range<usize>) {
        let first = self.first;
        let once = &self.order[once];
        let of_terms = once.iter().map(|at| self.terms[*at].several(first));
        // A phrase is there as often as the term that is least often.
        let join = match self.ranking {
            Ranking::Phrase(_) => intersect,
            Ranking::Flat | Ranking::Sum(_) => unite,
        };
        let several = of_terms.reduce(|mut all, own| {
            join(&mut all, &own);
            all
        });
        let mut several = several.unwrap_or(NO_ROWS);
        intersect(&mut several, &self.bits);
        let bounds = self.terms.iter().enumerate().map(|(at, term)| match once.contains(&at) {
            true => Bounds { often: ONCE, ..term.bounds },
            false => term.bounds,
        });
        let passing = &mut self.passing_once[passing];
        passing.update(self.threshold, bounds, self.wanted, &mut self.ranking);
        self.lengths.keep(first, &mut self.bits, passing.longest);
        unite(&mut self.bits, &several);
    }

    /// Orders terms by what they can add in the window, the most first, and counts those without which no row can pass.
    fn rank(&mut self) -> usize {
        let shortest = usize::from(self.lengths.shortest(self.first, self.behind));
        if let Ranking::Sum(scores) = &mut self.ranking {
            for (term, scores) in self.terms.iter_mut().zip(scores) {
                let Bounds { often, shortest: own } = term.bounds;
                term.most = scores.most(often)[shortest.max(own.into())].into();
            }
        }
        let terms = &self.terms;
        self.order.sort_by(|a, b| terms[*b].most.total_cmp(&terms[*a].most));
        let mut sum = 0.0;
        let spared = self.order.iter().rev().take_while(|at| {
            sum += terms[**at].most;
            bound_of(sum) <= self.threshold
        });
        self.order.len() - spared.count()
    }

    /// Scores a row of the window, or bounds its score.
    fn score(&mut self, row: u32, at: u32) -> f32 {
        match &mut self.ranking {
            Ranking::Flat => 0.0,
            Ranking::Sum(scores) => {
                let length = self.lengths.of(row);
                let found = self.terms.iter().zip(scores).filter_map(|(term, scores)| {
                    term.freq(row, at).map(|freq| f64::from(scores.score(freq, length)))
                });
                found.sum::<f64>() as f32
            }
            Ranking::Phrase(_) if self.threshold <= 0.0 => f32::INFINITY,
            Ranking::Phrase(scores) => {
                let freq = self.terms.iter().filter_map(|term| term.freq(row, at)).min();
                freq.map_or(f32::INFINITY, |freq| scores.score(freq, self.lengths.of(row)))
            }
        }
    }

    /// Returns a bound on all scores.
    pub(super) fn max_score(&self) -> f32 {
        match &self.ranking {
            Ranking::Flat => 0.0,
            Ranking::Sum(scores) => {
                scores.iter().map(|scores| f64::from(scores.max_score())).sum::<f64>() as f32
            }
            Ranking::Phrase(scores) => scores.max_score(),
        }
    }
}

#[cfg(test)]
mod tests;
