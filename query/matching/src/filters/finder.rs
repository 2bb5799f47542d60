//! Finds the candidates among many filters for a batch, by the atoms that it has.
//!
//! Each filter is known by the atoms of one of its needs, the strictest, as far as that can be told: what few filters ask for few
//! documents have. A batch's dictionaries are read once, and each value of them is looked up, so that a filter whose atoms
//! are not there costs nothing.

use std::collections::HashMap as Few;
use std::ops::ControlFlow;

use foldhash::fast::FixedState;
use hashbrown::HashMap as Map;
use millrace_mapping::PathId;
use millrace_scoring::automaton::Pattern;
use millrace_scoring::lists::for_each_number;
use millrace_scoring::nested::Elements;
use millrace_scoring::source::{Source, visit};
use millrace_segment::{ColumnPath as ParsedPlace, ParsedDocuments};
use millrace_work::error::Result;
use roaring::RoaringBitmap;

use super::atoms::{Atom, Numbers, RequiredAtoms, ValuePath, looseness};
use super::interval_set::IntervalSet;
use super::substring_index::SubstringIndex;

/// Map that is looked up for each value: quick for any values.
type HashMap<K, V> = Map<K, V, FixedState>;

/// Filters by their atoms.
#[derive(Debug, Default)]
pub(super) struct Finder {
    filters: usize,
    /// Those of which nothing is known that they need.
    always: Vec<u32>,
    values: Few<ValuePath, Values>,
    tokens: Few<ValuePath, Tokens>,
    numbers: Few<ValuePath, (Option<Numbers>, IntervalSet<u64>)>,
    present: Few<ValuePath, Vec<u32>>,
}

/// Filters by the exact values of a field.
#[derive(Debug, Default)]
struct Values {
    equal: HashMap<Vec<u8>, Vec<u32>>,
    between: IntervalSet<Vec<u8>>,
    pieces: SubstringIndex,
}

/// Filters by the tokens of a field.
#[derive(Debug, Default)]
struct Tokens {
    equal: HashMap<String, Vec<u32>>,
    pieces: SubstringIndex,
}

/// Filters that may match.
#[derive(Debug)]
pub(super) struct Candidates(Vec<bool>);

impl Candidates {
    /// Takes all of so many filters.
    pub(super) fn all(filters: usize) -> Self {
        Self(vec![true; filters])
    }

    /// Iterates over their numbers, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().filter_map(|(number, is)| is.then_some(number))
    }

    fn add(&mut self, filter: u32) {
        if let Some(is) = self.0.get_mut(filter as usize) {
            *is = true;
        }
    }

    fn add_all(&mut self, filters: Option<&Vec<u32>>) {
        filters.into_iter().flatten().for_each(|filter| self.add(*filter));
    }

    fn has(&self, filter: u32) -> bool {
        self.0.get(filter as usize).copied().unwrap_or(false)
    }
}

impl Finder {
    /// Makes the finder of filters by what they need: any of the atoms of each of the needs.
    pub(super) fn new(needs: Vec<Vec<RequiredAtoms>>) -> Self {
        let mut asked: HashMap<Key<'_>, u32> = HashMap::default();
        let atoms = needs.iter().flatten().flatten().filter_map(Key::new);
        atoms.for_each(|key| *asked.entry(key).or_default() += 1);
        let askers = |atom: &Atom| Key::new(atom).and_then(|key| asked.get(&key)).map_or(1, |askers| *askers);
        let strictness = |own: &RequiredAtoms| {
            let askers = own.iter().map(askers).fold(0_u32, u32::saturating_add);
            u64::from(looseness(own)) * u64::from(askers)
        };
        let mut finder = Self { filters: needs.len(), ..Self::default() };
        for (filter, needs) in (0..).zip(&needs) {
            match needs.iter().min_by_key(|own| strictness(own)) {
                None => finder.always.push(filter),
                Some(own) => own.iter().for_each(|atom| finder.add(atom, filter)),
            }
        }
        for values in finder.values.values_mut() {
            values.pieces.seal();
            values.between.seal();
        }
        finder.tokens.values_mut().for_each(|tokens| tokens.pieces.seal());
        finder.numbers.values_mut().for_each(|(_, between)| between.seal());
        finder
    }

    fn add(&mut self, atom: &Atom, filter: u32) {
        match atom {
            Atom::Value(place, value) => {
                let values = self.values.entry(*place).or_default();
                values.equal.entry(value.clone()).or_default().push(filter);
            }
            Atom::Values(place, from, to) => {
                let values = self.values.entry(*place).or_default();
                values.between.add(from.clone(), to.clone(), filter);
            }
            Atom::Token(place, term) => {
                let tokens = self.tokens.entry(*place).or_default();
                tokens.equal.entry(term.clone()).or_default().push(filter);
            }
            Atom::Number(place, kind, from, to) => {
                let (own, between) = self.numbers.entry(*place).or_default();
                *own = Some(*kind);
                between.add(*from, Some(*to), filter);
            }
            Atom::Piece { place, text, pattern, literals } => {
                let pieces = match text {
                    true => &mut self.tokens.entry(*place).or_default().pieces,
                    false => &mut self.values.entry(*place).or_default().pieces,
                };
                pieces.add(pattern, literals, filter);
            }
            Atom::Present(place) => self.present.entry(*place).or_default().push(filter),
        }
    }

    /// Lists those of which nothing is known that they need.
    pub(super) fn always(&self) -> &[u32] {
        &self.always
    }

    /// Takes these alone, without some of them, which ascend.
    pub(super) fn others(&self, without: &[u32]) -> Candidates {
        let mut candidates = Candidates(vec![false; self.filters]);
        let others = self.always.iter().filter(|filter| without.binary_search(filter).is_err());
        others.for_each(|filter| candidates.add(*filter));
        candidates
    }

    /// Finds the rows that one of the other filters may match: those which have an atom that any of them needs. `None` where that
    /// cannot be told.
    ///
    /// # Errors
    /// An analyzer that is missing.
    pub(super) fn rows(&self, parsed: &ParsedDocuments) -> Result<Option<RoaringBitmap>> {
        let mut rows = RoaringBitmap::new();
        let at = |place: &ValuePath| ParsedPlace { nested: place.nested, path: place.path };
        for (place, own) in &self.values {
            let mut is_wanted = |value: &[u8]| {
                own.equal.contains_key(value)
                    || own.between.covers(value)
                    || (!own.pieces.is_empty()
                        && std::str::from_utf8(value).is_ok_and(|value| own.pieces.any(value)))
            };
            if !parsed.with_value(at(place), &mut is_wanted, &mut rows)? {
                return Ok(None);
            }
        }
        for (place, own) in &self.tokens {
            let mut is_wanted = |token: &str| {
                own.equal.contains_key(token) || (!own.pieces.is_empty() && own.pieces.any(token))
            };
            if !parsed.with_token(at(place), &mut is_wanted, &mut rows)? {
                return Ok(None);
            }
        }
        for (place, (kind, between)) in &self.numbers {
            let Some(kind) = kind else { continue };
            if !parsed.with_number(at(place), &mut |bits| between.covers(&kind.ordered(bits)), &mut rows) {
                return Ok(None);
            }
        }
        for place in self.present.keys() {
            if !parsed.with_any(at(place), &mut rows)? {
                return Ok(None);
            }
        }
        Ok(Some(rows))
    }

    /// Finds the filters that may match something of a batch; those of which nothing is known only where `always`.
    ///
    /// # Errors
    /// [`Error::TimedOut`](millrace_work::error::Error::TimedOut) once the work should end.
    pub(super) fn candidates(&self, batch: &Source, always: bool) -> Result<Candidates> {
        let mut candidates = Candidates(vec![false; self.filters]);
        if always {
            candidates.add_all(Some(&self.always));
        }
        let mut scopes: Few<PathId, Option<Source>> = Few::new();
        let mut scope = |place: &ValuePath| -> Result<Option<Source>> {
            let Some(path) = place.nested else { return Ok(Some(batch.clone())) };
            if let Some(known) = scopes.get(&path) {
                return Ok(known.clone());
            }
            let own = Elements::source(batch, path)?.map(|(source, _)| source);
            scopes.insert(path, own.clone());
            Ok(own)
        };
        let everything = Pattern::prefix("", false)?;
        for (place, own) in &self.values {
            let Some(source) = scope(place)? else { continue };
            source.work.check()?;
            let mut values = Vec::new();
            source.inverted.for_each_value(place.path, &mut |value, _| {
                candidates.add_all(own.equal.get(value));
                if !own.between.is_empty() {
                    values.push(value.to_vec());
                }
                if !own.pieces.is_empty()
                    && let Ok(value) = std::str::from_utf8(value)
                {
                    looked_through(&own.pieces, value, &mut candidates);
                }
                ControlFlow::Continue(())
            })?;
            own.between.containing(&values, &mut |filter| candidates.add(filter));
        }
        for (place, own) in &self.tokens {
            let Some(source) = scope(place)? else { continue };
            source.work.check()?;
            let Some(text) = source.inverted.text(place.path) else { continue };
            text.for_each_match(everything.until(source.work.stop()), &mut |term, _| {
                candidates.add_all(own.equal.get(term));
                looked_through(&own.pieces, term, &mut candidates);
                ControlFlow::Continue(())
            })?;
        }
        for (place, (kind, between)) in &self.numbers {
            let (Some(source), Some(kind)) = (scope(place)?, kind) else { continue };
            let mut values = Vec::new();
            visit(&source, place.path, None, &mut |_, array| {
                for_each_number(array, &mut |_, bits| values.push(kind.ordered(bits)))
            })?;
            values.sort_unstable();
            values.dedup();
            between.containing(&values, &mut |filter| candidates.add(filter));
        }
        for (place, filters) in &self.present {
            let Some(source) = scope(place)? else { continue };
            if source.inverted.exists_count(place.path)? > 0 {
                candidates.add_all(Some(filters));
            }
        }
        batch.work.check()?;
        Ok(candidates)
    }
}

fn looked_through(pieces: &SubstringIndex, value: &str, candidates: &mut Candidates) {
    let found = std::cell::RefCell::new(candidates);
    pieces.of(value, &|filter| !found.borrow().has(filter), &mut |filter| found.borrow_mut().add(filter));
}

/// An atom that several filters may ask for.
#[derive(PartialEq, Eq, Hash)]
enum Key<'a> {
    Value(ValuePath, &'a [u8]),
    Token(ValuePath, &'a str),
    Number(ValuePath, u64, u64),
    Present(ValuePath),
    /// The longest text of a pattern: authors of rules write the names of the same programs again and again.
    Piece(ValuePath, &'a str),
}

impl<'a> Key<'a> {
    fn new(atom: &'a Atom) -> Option<Self> {
        match atom {
            Atom::Value(place, value) => Some(Self::Value(*place, value)),
            Atom::Token(place, term) => Some(Self::Token(*place, term)),
            Atom::Number(place, _, from, to) => Some(Self::Number(*place, *from, *to)),
            Atom::Present(place) => Some(Self::Present(*place)),
            Atom::Piece { place, literals, .. } => {
                Some(Self::Piece(*place, literals.iter().max_by_key(|text| text.len())?))
            }
            Atom::Values(..) => None,
        }
    }
}
