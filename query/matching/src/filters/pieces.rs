//! Patterns that values are looked through for, many at once: a value is read once, three bytes at a time.
//!
//! Each pattern has a text that all its values have; three bytes of it, which few of the others have, lead to the pattern. ASCII letters are read
//! in lower case.

use std::collections::HashMap;
use std::sync::Arc;

use super::atoms::PIECE_BYTES;
use crate::automaton::Pattern;

type Gram = [u8; PIECE_BYTES];

/// Patterns by texts that are in their values.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    patterns: Vec<(Arc<Pattern>, u32)>,
    /// Literals of patterns, until these are sealed.
    literals: Vec<Vec<String>>,
    by_gram: HashMap<Gram, Vec<u32>>,
}

impl Pieces {
    /// Adds a pattern, which is found once it is sealed. Its literals are in lower case, and long enough.
    pub(super) fn add(&mut self, pattern: &Arc<Pattern>, literals: &[String], owner: u32) {
        self.patterns.push((Arc::clone(pattern), owner));
        self.literals.push(literals.to_vec());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Lets patterns be found.
    pub(super) fn seal(&mut self) {
        let literals = std::mem::take(&mut self.literals);
        let mut shared: HashMap<Gram, u32> = HashMap::new();
        literals.iter().flatten().flat_map(|text| grams(text.as_bytes())).for_each(|gram| {
            *shared.entry(gram).or_default() += 1;
        });
        for (pattern, literals) in (0..).zip(&literals) {
            let own = literals.iter().flat_map(|text| grams(text.as_bytes()));
            if let Some(gram) = own.min_by_key(|gram| shared.get(gram)) {
                self.by_gram.entry(gram).or_default().push(pattern);
            }
        }
    }

    /// Calls `found` with the owners of patterns that a value belongs to and that are `wanted`.
    pub(super) fn of(&self, value: &str, wanted: &dyn Fn(u32) -> bool, found: &mut dyn FnMut(u32)) {
        for gram in grams(value.as_bytes()) {
            for pattern in self.by_gram.get(&gram).into_iter().flatten() {
                let Some((pattern, owner)) = self.patterns.get(*pattern as usize) else { continue };
                if wanted(*owner) && pattern.matches(value) {
                    found(*owner);
                }
            }
        }
    }
}

fn grams(text: &[u8]) -> impl Iterator<Item = Gram> + '_ {
    text.array_windows::<PIECE_BYTES>().map(|gram| gram.map(|byte| byte.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use millrace_dsl::query::regexp_flags;
    use millrace_storage::automaton::pieces;

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
        let mut all = Pieces::default();
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
            assert_eq!(
                found.into_inner(),
                expected.map(|(owner, _)| owner).collect::<BTreeSet<u32>>(),
                "{value}"
            );
        }
    }
}
