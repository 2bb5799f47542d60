//! Terms a few edits away from one: Damerau's distance, each swapped pair of neighbours one edit.
//!
//! A state is a row of the distance table, of which only the cells near the diagonal can be small
//! enough to matter.

use std::sync::Arc;

/// The terms near a term.
#[derive(Clone, Debug)]
pub(crate) struct FuzzyTerms {
    /// Characters that must be the same at the start.
    start: Arc<str>,
    rest: Arc<[u32]>,
    edits: u8,
    transpositions: bool,
}

/// State of reading a term, behind the start.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Characters read.
    read: usize,
    /// Distances of what was read to the prefixes of the term.
    now: Vec<u8>,
    /// The same without the last character.
    before: Vec<u8>,
    last: u32,
}

impl FuzzyTerms {
    /// Makes the automaton of a term whose first `prefix` characters are fixed.
    pub(super) fn new(term: &str, edits: u8, prefix: usize, transpositions: bool) -> Self {
        let split = term.char_indices().nth(prefix).map_or(term.len(), |(at, _)| at);
        let (start, rest) = term.split_at(split);
        Self { start: start.into(), rest: rest.chars().map(u32::from).collect(), edits, transpositions }
    }

    pub(super) fn start(&self) -> &str {
        &self.start
    }

    pub(super) fn first(&self) -> Row {
        let far = self.edits + 1;
        let now = (0..=self.rest.len()).map(|at| u8::try_from(at).unwrap_or(u8::MAX).min(far)).collect();
        Row { read: 0, now, before: vec![far; self.rest.len() + 1], last: u32::MAX }
    }

    pub(super) fn step(&self, row: &Row, character: u32) -> Option<Row> {
        let far = self.edits + 1;
        let edits = usize::from(self.edits);
        let read = row.read + 1;
        let mut next = vec![far; self.rest.len() + 1];
        let mut least = far;
        let low = read.saturating_sub(edits);
        for at in low..=self.rest.len().min(read + edits) {
            let mut cell = row.now[at] + 1;
            if at > 0 {
                let same = self.rest[at - 1] == character;
                cell = cell.min(row.now[at - 1] + u8::from(!same));
                if at > low {
                    cell = cell.min(next[at - 1] + 1);
                }
                if self.transpositions
                    && at > 1
                    && read > 1
                    && self.rest[at - 2] == character
                    && self.rest[at - 1] == row.last
                {
                    cell = cell.min(row.before[at - 2] + 1);
                }
            }
            next[at] = cell.min(far);
            least = least.min(next[at]);
        }
        (least < far).then(|| Row { read, now: next, before: row.now.clone(), last: character })
    }

    pub(super) fn accepts(&self, row: &Row) -> bool {
        row.now.last().is_some_and(|distance| *distance <= self.edits)
    }

    /// Returns how much a term of the dictionary resembles the one asked for, as Lucene weighs it: 1
    /// for the same. The term matches.
    pub(super) fn similarity(&self, term: &str) -> f32 {
        let Some(rest) = term.strip_prefix(self.start.as_ref()) else { return 0.0 };
        let mut row = self.first();
        for character in rest.chars() {
            match self.step(&row, u32::from(character)) {
                Some(next) => row = next,
                None => return 0.0,
            }
        }
        match row.now.last() {
            Some(0) | None => 1.0,
            Some(distance) => {
                let asked = self.start.chars().count() + self.rest.len();
                let shorter = asked.min(term.chars().count());
                1.0 - f32::from(*distance) / shorter as f32
            }
        }
    }
}
