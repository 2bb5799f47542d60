//! Patterns that values are looked through for, many at once: a value is read once, by one automaton for the texts of all patterns.
//!
//! Each pattern has texts that all its values have. The automaton (Aho-Corasick) finds which of the texts a value has, and only the patterns of
//! these are compared with the value as a whole. ASCII letters are read in either case.

use std::sync::Arc;

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, MatchKind};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use millrace_scoring::automaton::Pattern;

/// Patterns by texts that are in their values.
#[derive(Debug, Default)]
pub(super) struct SubstringIndex {
    patterns: Vec<(Arc<Pattern>, u32)>,
    /// Literals of patterns, until these are sealed.
    literals: Vec<Vec<String>>,
    /// Finds the texts; absent before patterns are sealed, and where there are too many for one: all patterns are compared then.
    automaton: Option<AhoCorasick>,
    /// The patterns of each text, in the order of the automaton.
    by_text: Vec<Vec<u32>>,
}

impl SubstringIndex {
    /// Adds a pattern, which is found once it is sealed. Its literals are in lower case, and long enough.
    pub(super) fn add(&mut self, pattern: &Arc<Pattern>, literals: &[String], owner: u32) {
        self.patterns.push((Arc::clone(pattern), owner));
        self.literals.push(literals.to_vec());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Lets patterns be found: each by the one of its literals that the fewest others have, the longest among equals.
    pub(super) fn seal(&mut self) {
        let literals = std::mem::take(&mut self.literals);
        let mut askers: HashMap<&str, u32, FixedState> = HashMap::default();
        literals.iter().flatten().for_each(|text| *askers.entry(text).or_default() += 1);
        let (mut texts, mut numbers): (Vec<&str>, HashMap<&str, usize, FixedState>) = Default::default();
        let mut by_text: Vec<Vec<u32>> = Vec::new();
        for (pattern, literals) in (0..).zip(&literals) {
            let shared = |text: &&String| (askers.get(text.as_str()).copied(), usize::MAX - text.len());
            let Some(text) = literals.iter().min_by_key(shared) else { continue };
            let number = *numbers.entry(text).or_insert_with(|| {
                texts.push(text);
                by_text.push(Vec::new());
                texts.len() - 1
            });
            if let Some(patterns) = by_text.get_mut(number) {
                patterns.push(pattern);
            }
        }
        let builder = AhoCorasickBuilder::new()
            .match_kind(MatchKind::Standard)
            .ascii_case_insensitive(true)
            .build(&texts);
        (self.automaton, self.by_text) = (builder.ok(), by_text);
    }

    /// Calls `found` with the owners of patterns that a value belongs to and that are `wanted`.
    pub(super) fn of(&self, value: &str, wanted: &dyn Fn(u32) -> bool, found: &mut dyn FnMut(u32)) {
        self.some(value, &mut |pattern, owner| {
            if wanted(owner) && pattern.matches(value) {
                found(owner);
            }
            false
        });
    }

    /// Returns whether a value belongs to any pattern.
    pub(super) fn any(&self, value: &str) -> bool {
        self.some(value, &mut |pattern, _| pattern.matches(value))
    }

    /// Visits the patterns, each once, that a value may belong to, until `visit` says that it is enough; returns whether it did.
    fn some(&self, value: &str, visit: &mut dyn FnMut(&Pattern, u32) -> bool) -> bool {
        let Some(automaton) = &self.automaton else {
            return self.patterns.iter().any(|(pattern, owner)| visit(pattern, *owner));
        };
        // A value that has a text may have it again.
        let mut seen: Vec<usize> = Vec::new();
        for found in automaton.find_overlapping_iter(value) {
            let text = found.pattern().as_usize();
            if seen.contains(&text) {
                continue;
            }
            seen.push(text);
            let patterns = self.by_text.get(text).into_iter().flatten();
            let mut patterns = patterns.filter_map(|at| self.patterns.get(*at as usize));
            if patterns.any(|(pattern, owner)| visit(pattern, *owner)) {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use millrace_dsl::query::regexp_flags;
    use millrace_mapping::automaton::pieces;

    use super::super::atoms::PIECE_BYTES;
    use super::*;

    #[test]
    fn values_find_the_patterns_that_they_belong_to() {
        let wildcard = |text: &str, folded| Pattern::of_pieces(&pieces(text), folded).unwrap();
        let regexp = |text: &str| Pattern::regexp(text, regexp_flags("ALL").unwrap(), false, 10_000).unwrap();
        let patterns = [
            wildcard("/images/*.gif", false),
            wildcard("*FAILED*", true),
            wildcard("*failed pass*", false),
            regexp(".*pass(word)?[0-9]+"),
            Pattern::prefix("/english", false).unwrap(),
            Pattern::prefix("/ENGLISH", true).unwrap(),
        ];
        let mut all = SubstringIndex::default();
        for (owner, pattern) in (0..).zip(&patterns) {
            let literals = pattern.literals().filter(|text| text.len() >= PIECE_BYTES);
            let literals: Vec<String> = literals.map(str::to_ascii_lowercase).collect();
            assert!(!literals.is_empty(), "{pattern:?}");
            all.add(&Arc::new(pattern.clone()), &literals, owner);
        }
        all.seal();
        let values = [
            "/images/a.gif",
            "/english/images/a.gif",
            "failed password",
            "Failed pass",
            "my password17",
            "pass1",
            "pa",
            "/English",
        ];
        for value in values {
            let found = RefCell::new(BTreeSet::new());
            all.of(value, &|owner| !found.borrow().contains(&owner), &mut |owner| {
                assert!(found.borrow_mut().insert(owner));
            });
            let expected = (0..).zip(&patterns).filter(|(_, pattern)| pattern.matches(value));
            assert_eq!(all.any(value), patterns.iter().any(|pattern| pattern.matches(value)), "{value}");
            assert_eq!(
                found.into_inner(),
                expected.map(|(owner, _)| owner).collect::<BTreeSet<u32>>(),
                "{value}"
            );
        }
    }
}
