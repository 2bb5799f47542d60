//! Patterns that values are looked through for, many at once: a value is read once, three bytes at a time.
//!
//! Each pattern has a text that all its values have; three bytes of it, which few of the others have, lead to the pattern. ASCII letters are read
//! in lower case.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::atoms::PIECE_BYTES;
use crate::automaton::Pattern;

type Gram = [u8; PIECE_BYTES];

/// Patterns by texts that are in their values.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    patterns: Vec<(Arc<Pattern>, u32)>,
    /// Literals of patterns, until these are sealed.
    literals: Vec<Vec<String>>,
    by_gram: HashMap<Gram, Vec<u32>, FixedState>,
    /// A bit for each hash of those three bytes: most of what is in values has none of these.
    bits: Bits,
}

/// Bits by hash.
#[derive(Debug)]
struct Bits(Box<[u64; Self::WORDS]>);

impl Default for Bits {
    fn default() -> Self {
        Self(Box::new([0; Self::WORDS]))
    }
}

impl Bits {
    /// As many as stay in the nearest cache.
    const WORDS: usize = 1 << 11;

    fn place(gram: Gram) -> (usize, u64) {
        let [a, b, c] = gram.map(u32::from);
        let hash = (a << 16 | b << 8 | c).wrapping_mul(0x9E37_79B1) >> 15;
        (hash as usize >> 6, 1 << (hash & 63))
    }

    fn set(&mut self, gram: Gram) {
        let (word, bit) = Self::place(gram);
        self.0[word] |= bit;
    }

    fn has(&self, gram: Gram) -> bool {
        let (word, bit) = Self::place(gram);
        self.0[word] & bit != 0
    }
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
        let mut shared: HashMap<Gram, u32, FixedState> = HashMap::default();
        literals.iter().flatten().flat_map(|text| grams(text.as_bytes())).for_each(|gram| {
            *shared.entry(gram).or_default() += 1;
        });
        for (pattern, literals) in (0..).zip(&literals) {
            let own = literals.iter().flat_map(|text| grams(text.as_bytes()));
            if let Some(gram) = own.min_by_key(|gram| shared.get(gram)) {
                self.bits.set(gram);
                self.by_gram.entry(gram).or_default().push(pattern);
            }
        }
    }

    /// Calls `found` with the owners of patterns that a value belongs to and that are `wanted`.
    pub(super) fn of(&self, value: &str, wanted: &dyn Fn(u32) -> bool, found: &mut dyn FnMut(u32)) {
        for gram in grams(value.as_bytes()).filter(|gram| self.bits.has(*gram)) {
            for pattern in self.by_gram.get(&gram).into_iter().flatten() {
                let Some((pattern, owner)) = self.patterns.get(*pattern as usize) else { continue };
                if wanted(*owner) && pattern.matches(value) {
                    found(*owner);
                }
            }
        }
    }
}

impl Pieces {
    /// Whether a value belongs to any pattern.
    pub(super) fn any(&self, value: &str) -> bool {
        let mut grams = grams(value.as_bytes()).filter(|gram| self.bits.has(*gram));
        grams.any(|gram| {
            let mut patterns = self.by_gram.get(&gram).into_iter().flatten();
            patterns.any(|at| self.patterns.get(*at as usize).is_some_and(|(own, _)| own.matches(value)))
        })
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
            assert_eq!(all.any(value), patterns.iter().any(|pattern| pattern.matches(value)), "{value}");
            assert_eq!(
                found.into_inner(),
                expected.map(|(owner, _)| owner).collect::<BTreeSet<u32>>(),
                "{value}"
            );
        }
    }
}
