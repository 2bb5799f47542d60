//! Phrases: terms at certain places beside each other.
//!
//! A [`Phrase`] says what is looked for; a [`PhraseScorer`] finds the rows that have a term for each
//! place and looks at the positions there. How often the phrase occurs, counted exactly or by
//! nearness ([`super::sloppy`]), takes the part of a term's frequency.

mod chain;

use std::sync::Arc;

use millrace_mapping::PathId;
use millrace_work::error::Result;
use roaring::RoaringBitmap;

use crate::bits::count;
use crate::bm25::Bm25;
use crate::condition::{Condition, SharedCondition};
use crate::functions::LeafScore;
use crate::lengths::Scores;
use crate::match_all::MatchNoneScorer;
use crate::operands::{AnalyzedColumn, Weight};
use crate::phrase::chain::Chain;
use crate::phrase_values;
use crate::phrase_windows::{MANY, PhraseWindows};
use crate::positions::{PlacePositions, RowPositions};
use crate::reader::{InvertedIndex, TextReader};
use crate::row_set::RowSet;
use crate::sloppy::Sloppy;
use crate::source::Source;
use crate::term_windows::{Ranking, RowCondition, Term, TermWindows};
use crate::union::PostingsUnion;
use crate::{BoxScorer, END, Scorer};

/// The terms of one place.
#[derive(Clone, Debug, PartialEq)]
pub enum PlaceTerms {
    /// Any of these.
    Fixed(Vec<String>),
    /// Any of those that an expansion finds.
    Expanded(usize),
}

/// A place in a phrase.
#[derive(Clone, Debug, PartialEq)]
pub struct PhrasePosition {
    /// Its position in the phrase.
    pub offset: u32,
    /// Its terms.
    pub terms: PlaceTerms,
}

/// Phrase that is searched.
#[derive(Clone, Debug, PartialEq)]
pub enum Phrase {
    /// Terms at places, which may be moved by so many positions in all.
    Places(Vec<PhrasePosition>, u32),
    /// Links one behind the other; each is one of several rows of places.
    Chain(Vec<Vec<Vec<PhrasePosition>>>),
}

impl Phrase {
    /// Iterates over the places.
    pub fn places(&self) -> Box<dyn Iterator<Item = &PhrasePosition> + '_> {
        match self {
            Self::Places(places, _) => Box::new(places.iter()),
            Self::Chain(links) => Box::new(links.iter().flatten().flatten()),
        }
    }

    /// Puts the terms of expansions in their places; a place that has none is left empty.
    pub fn expanded(&self, terms: &dyn Fn(usize) -> Vec<String>) -> Self {
        let place = |place: &PhrasePosition| match &place.terms {
            PlaceTerms::Fixed(_) => place.clone(),
            PlaceTerms::Expanded(slot) => {
                PhrasePosition { offset: place.offset, terms: PlaceTerms::Fixed(terms(*slot)) }
            }
        };
        match self {
            Self::Places(places, slop) => Self::Places(places.iter().map(place).collect(), *slop),
            Self::Chain(links) => Self::Chain(
                links
                    .iter()
                    .map(|link| link.iter().map(|way| way.iter().map(place).collect()).collect())
                    .collect(),
            ),
        }
    }
}

impl PhrasePosition {
    /// Returns the terms of a place that is not to be expanded any more.
    pub fn fixed(&self) -> &[String] {
        match &self.terms {
            PlaceTerms::Fixed(terms) => terms,
            PlaceTerms::Expanded(_) => &[],
        }
    }
}

/// The terms of a phrase at their places; all expanded.
#[derive(Debug)]
pub(super) struct PhraseCondition {
    /// Field.
    pub(super) path: PathId,
    /// Phrase.
    pub(super) phrase: Arc<Phrase>,
    /// Score.
    pub(super) score: LeafScore,
}

/// Prepares a phrase, which is looked for in values where the field keeps no positions.
pub(super) fn prepare(
    source: &Source,
    path: PathId,
    phrase: &Arc<Phrase>,
    values: Option<&AnalyzedColumn>,
    weight: Weight,
    among: Option<&RoaringBitmap>,
) -> Result<SharedCondition> {
    let phrase = concrete(source, phrase);
    let Some(values) = values else {
        return Ok(Arc::new(PhraseCondition { path, phrase, score: LeafScore::new(source, weight) }));
    };
    let rows = phrase_values::rows(source, path, &phrase, values, among)?;
    RowSet::found(source, rows, weight.flat())
}

/// Puts the terms found in the shard into a phrase.
fn concrete(source: &Source, phrase: &Arc<Phrase>) -> Arc<Phrase> {
    let expands = phrase.places().any(|place| matches!(place.terms, PlaceTerms::Expanded(_)));
    if !expands {
        return Arc::clone(phrase);
    }
    Arc::new(phrase.expanded(&|slot| match source.functions.expansion(slot) {
        Some(found) => found.terms.iter().map(|found| found.term.clone()).collect(),
        None => Vec::new(),
    }))
}

impl Condition for PhraseCondition {
    fn scorer<'a>(&'a self, inverted: &'a dyn InvertedIndex, _rows: u32) -> Result<BoxScorer<'a>> {
        let Some(text) = inverted.text(self.path) else { return Ok(Box::new(MatchNoneScorer)) };
        let score = match &self.score {
            LeafScore::Flat(score) => PhraseScore::Flat(*score),
            LeafScore::Bm25(function) => PhraseScore::Bm25(function),
        };
        Ok(match PhraseScorer::open(&self.phrase, text, score)? {
            Some(scorer) => Box::new(scorer),
            None => Box::new(MatchNoneScorer),
        })
    }
    fn by_scorer(&self) -> bool {
        true
    }
    fn is_unscored(&self) -> bool {
        self.score.is_nothing()
    }
}

/// Score of the rows of a phrase.
#[derive(Debug)]
pub enum PhraseScore<'a> {
    /// All alike.
    Flat(f32),
    /// By frequency and length.
    Bm25(&'a Bm25),
}

/// The rows of a phrase.
pub struct PhraseScorer<'a> {
    matcher: Matcher<'a>,
    text: &'a dyn TextReader,
    score: PhraseScore<'a>,
    doc: u32,
    freq: f32,
}

impl std::fmt::Debug for PhraseScorer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PhraseScorer").finish_non_exhaustive()
    }
}

impl<'a> PhraseScorer<'a> {
    /// Opens the postings of a phrase and goes to its first row; `None` where a place has no term.
    pub fn open(phrase: &Phrase, text: &'a dyn TextReader, score: PhraseScore<'a>) -> Result<Option<Self>> {
        let function = match &score {
            PhraseScore::Flat(_) => None,
            PhraseScore::Bm25(function) => Some(*function),
        };
        let Some(matcher) = Matcher::open(phrase, text, function)? else { return Ok(None) };
        let mut scorer = Self { matcher, text, score, doc: END, freq: 0.0 };
        let first = scorer.matcher.seek_match(0);
        scorer.confirm(first);
        Ok(Some(scorer))
    }

    /// Returns how often the phrase occurs in the current row.
    pub fn frequency(&self) -> f32 {
        self.freq
    }

    /// Takes the first row at or behind one with all terms where these are in their places.
    fn confirm(&mut self, mut doc: u32) -> u32 {
        let first_only = matches!(self.score, PhraseScore::Flat(_));
        while doc != END {
            self.freq = self.matcher.frequency(first_only);
            if self.freq > 0.0 {
                break;
            }
            doc = self.matcher.seek_match(doc + 1);
        }
        self.doc = doc;
        doc
    }
}

impl Scorer for PhraseScorer<'_> {
    fn doc(&self) -> u32 {
        self.doc
    }
    fn seek(&mut self, target: u32) -> u32 {
        if self.doc >= target {
            return self.doc;
        }
        let next = self.matcher.seek_match(target);
        self.confirm(next)
    }
    fn score(&mut self) -> f32 {
        match &self.score {
            PhraseScore::Flat(score) => *score,
            PhraseScore::Bm25(function) => {
                let length = if self.text.has_norms() { self.text.norm(self.doc) } else { 1 };
                function.score_of(self.freq, length)
            }
        }
    }
    fn max_score(&self) -> f32 {
        match &self.score {
            PhraseScore::Flat(score) => *score,
            PhraseScore::Bm25(function) => function.max_score(),
        }
    }
    fn raise_threshold(&mut self, threshold: f32) {
        if let Matcher::Exact(places) = &mut self.matcher {
            places.candidates.raise_threshold(threshold);
        }
    }
    fn cost(&self) -> u64 {
        self.matcher.cost()
    }
}

/// Finds rows with all terms, and counts the phrase in them.
enum Matcher<'a> {
    Exact(PhrasePositions<'a>),
    Sloppy(PhrasePositions<'a>, Box<Sloppy>),
    Chain(Chain<'a>),
}

impl<'a> Matcher<'a> {
    fn open(phrase: &Phrase, text: &'a dyn TextReader, function: Option<&'a Bm25>) -> Result<Option<Self>> {
        Ok(match phrase {
            Phrase::Places(places, 0) => {
                PhrasePositions::open_exact(places, text, function)?.map(Self::Exact)
            }
            Phrase::Places(places, slop) => PhrasePositions::open(places, text, None)?
                .map(|opened| Self::Sloppy(opened, Box::new(Sloppy::new(places, *slop)))),
            Phrase::Chain(links) => Chain::open(links, text)?.map(Self::Chain),
        })
    }

    fn seek_match(&mut self, target: u32) -> u32 {
        match self {
            Self::Exact(places) | Self::Sloppy(places, _) => places.seek_match(target),
            Self::Chain(chain) => chain.seek_match(target),
        }
    }

    fn frequency(&mut self, first_only: bool) -> f32 {
        match self {
            Self::Exact(places) => places.exact_frequency(first_only) as f32,
            Self::Sloppy(places, sloppy) => {
                places.read();
                sloppy.frequency(&places.positions, first_only)
            }
            Self::Chain(chain) => chain.frequency() as f32,
        }
    }

    fn cost(&self) -> u64 {
        match self {
            Self::Exact(places) | Self::Sloppy(places, _) => places.cost(),
            Self::Chain(chain) => chain.cost(),
        }
    }
}

/// Places that must all have a term.
struct PhrasePositions<'a> {
    /// Rows with a term for every place.
    candidates: TermWindows<'a>,
    /// The current one of them.
    doc: u32,
    lists: Vec<PlacePositions>,
    offsets: Vec<u32>,
    /// The lists by the number of their rows, fewest first.
    order: Vec<usize>,
    /// True if the first place has several terms: where more than one stands, each counts as an occurrence.
    repeats: bool,
    /// Tells rows of many at once, and the window of which it was asked last.
    windows: Option<PhraseWindows>,
    asked: Option<u32>,
    /// Positions in the current row, by place, where all of them were read.
    positions: Vec<Vec<u32>>,
    /// Candidate starts of the phrase in the current row, and a buffer for those that remain.
    starts: (Vec<i64>, Vec<i64>),
}

impl<'a> PhrasePositions<'a> {
    /// Opens places, of which only rows that have them exactly are wanted. Where there is a function, rows whose scores
    /// cannot pass a threshold may be left out.
    fn open_exact(
        places: &[PhrasePosition],
        text: &'a dyn TextReader,
        function: Option<&'a Bm25>,
    ) -> Result<Option<Self>> {
        let Some(mut opened) = Self::open(places, text, function)? else { return Ok(None) };
        if opened.cost() >= u64::from(MANY) {
            opened.windows = PhraseWindows::open(places, text)?;
        }
        Ok(Some(opened))
    }

    /// Opens places. Where there is a function, rows whose scores cannot pass a threshold may be left out.
    fn open(
        places: &[PhrasePosition],
        text: &'a dyn TextReader,
        function: Option<&'a Bm25>,
    ) -> Result<Option<Self>> {
        let (mut lists, mut terms) = (Vec::with_capacity(places.len()), Vec::with_capacity(places.len()));
        for place in places {
            let Some(term) = Term::open(text, place.fixed(), function.is_some())? else { return Ok(None) };
            terms.push(term);
            let list = match place.fixed() {
                [only] => text.positions(only)?,
                several => {
                    let mut postings = Vec::with_capacity(several.len());
                    for term in several {
                        postings.extend(text.postings(term)?);
                    }
                    Some(Box::new(PostingsUnion::new(postings)) as Box<dyn RowPositions>)
                }
            };
            lists.extend(list.map(PlacePositions::new));
        }
        if lists.is_empty() || lists.len() < places.len() {
            return Ok(None);
        }
        let mut order: Vec<usize> = (0..lists.len()).collect();
        order.sort_by_key(|at| terms[*at].cost());
        let positions = vec![Vec::new(); lists.len()];
        let offsets = places.iter().map(|place| place.offset).collect();
        let ranking = function.map_or(Ranking::Flat, |function| Ranking::Phrase(Scores::new(function)));
        let candidates = TermWindows::new(text, terms, RowCondition::All, ranking);
        Ok(Some(Self {
            candidates,
            doc: END,
            offsets,
            lists,
            order,
            repeats: places.first().is_some_and(|place| place.fixed().len() > 1),
            windows: None,
            asked: None,
            positions,
            starts: Default::default(),
        }))
    }

    fn cost(&self) -> u64 {
        self.candidates.cost()
    }

    /// Goes to the first row at or behind `target` that has a term for every place.
    fn seek_match(&mut self, target: u32) -> u32 {
        loop {
            self.doc = self.candidates.seek(target).0;
            if self.doc == END || !self.narrow() {
                return self.doc;
            }
        }
    }

    /// Looks at all rows of a window at once when it is come to, where they are many; tells whether rows were left out.
    fn narrow(&mut self) -> bool {
        let Some(windows) = &mut self.windows else { return false };
        let (first, rows) = self.candidates.window_mut();
        if self.asked.replace(first) == Some(first) || count(rows) < MANY {
            return false;
        }
        let told = windows.find(first, rows);
        if !told {
            self.windows = None;
        }
        told
    }

    fn read(&mut self) {
        let (first, rows) = self.candidates.window();
        for (list, positions) in self.lists.iter_mut().zip(&mut self.positions) {
            positions.clear();
            positions.extend_from_slice(list.in_row(self.doc, first, rows));
        }
    }

    /// Counts where the terms are in their places; just whether they are, if `first_only`.
    fn exact_frequency(&mut self, first_only: bool) -> u32 {
        if let Some(freq) = self.windows.as_ref().and_then(|windows| windows.frequency(self.doc)) {
            return if first_only { freq.min(1) } else { freq };
        }
        // The rarest two are read first: mostly they tell already.
        let (starts, kept) = (&mut self.starts.0, &mut self.starts.1);
        let (first, rows) = self.candidates.window();
        starts.clear();
        for (rank, at) in self.order.iter().enumerate() {
            let positions = self.lists[*at].in_row(self.doc, first, rows);
            let offset = i64::from(self.offsets[*at]);
            let here = positions.iter().map(|position| i64::from(*position) - offset);
            if rank == 0 {
                starts.extend(here);
                starts.dedup();
                continue;
            }
            kept.clear();
            let mut here = here.peekable();
            for start in starts.iter() {
                while here.next_if(|position| position < start).is_some() {}
                if here.peek() == Some(start) {
                    kept.push(*start);
                }
            }
            std::mem::swap(starts, kept);
            if starts.is_empty() {
                return 0;
            }
        }
        match (first_only, self.repeats) {
            (true, _) => 1,
            (false, false) => starts.len() as u32,
            (false, true) => {
                let offset = i64::from(self.offsets[0]);
                let places = self.lists[0].in_row(self.doc, first, rows).iter();
                let begins = |at: &&u32| starts.binary_search(&(i64::from(**at) - offset)).is_ok();
                places.filter(begins).count() as u32
            }
        }
    }
}
