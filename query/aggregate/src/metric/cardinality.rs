//! `cardinality`: exact sets of hashes, and HyperLogLog sketches beyond a bound.
//!
//! A bucket keeps the hashes of its values in an open table until there are more than [`EXACT`] (or
//! [`EXACT_TOP`] where there is one bucket, or the precision that was asked for, where that is more); then in a dense
//! HyperLogLog sketch of 2¹⁶ (2¹⁸) registers, whose standard error is 0.4 % (0.2 %). Its estimate is Ertl's
//! improved one (<https://arxiv.org/abs/1702.01284>), which needs no bias tables. What form a bucket has depends on
//! its values only, neither on their order nor on how they were spread over segments.

use millrace_work::QueryContext;
use millrace_work::error::Result;

use super::{Ordinals, grow, mapped};

/// Values of a bucket that are counted exactly at least.
pub(crate) const EXACT: usize = 1 << 16;
/// Values that are counted exactly at least where there is one bucket.
pub(crate) const EXACT_TOP: usize = 1 << 20;

/// Sets by ordinal.
#[derive(Clone, Debug)]
pub(crate) struct Cardinality {
    states: Vec<State>,
    exact: usize,
    precision: u32,
}

#[derive(Clone, Debug, Default)]
enum State {
    #[default]
    Empty,
    Exact(Table),
    Sketch(Sketch),
}

impl State {
    fn insert(&mut self, hash: u64, exact: usize, precision: u32) {
        let hash = if hash == 0 { ZERO } else { hash };
        match self {
            Self::Empty => {
                let mut table = Table::new();
                table.insert(hash);
                *self = Self::Exact(table);
            }
            Self::Exact(table) => {
                if table.insert(hash) && table.len > exact {
                    let mut sketch = Sketch::new(precision);
                    table.hashes().for_each(|hash| sketch.insert(hash));
                    *self = Self::Sketch(sketch);
                }
            }
            Self::Sketch(sketch) => sketch.insert(hash),
        }
    }
}

impl Cardinality {
    pub(super) fn new(precision_threshold: u64, top: bool) -> Self {
        let exact = if top { EXACT_TOP } else { EXACT };
        Self {
            states: Vec::new(),
            exact: exact.max(usize::try_from(precision_threshold).unwrap_or(exact)),
            precision: if top { 18 } else { 16 },
        }
    }

    pub(super) fn collect(&mut self, ordinals: Ordinals<'_>, hashes: &[u64]) {
        grow(&mut self.states, ordinals, State::Empty);
        let (exact, precision) = (self.exact, self.precision);
        match ordinals {
            Ordinals::One(ordinal) => {
                if let Some(state) = self.states.get_mut(ordinal as usize) {
                    hashes.iter().for_each(|hash| state.insert(*hash, exact, precision));
                }
            }
            Ordinals::Each(ordinals) => {
                for (ordinal, hash) in ordinals.iter().zip(hashes) {
                    if let Some(state) = self.states.get_mut(*ordinal as usize) {
                        state.insert(*hash, exact, precision);
                    }
                }
            }
        }
    }

    pub(super) fn merge(&mut self, mut others: Self, map: Option<&[u32]>, work: &QueryContext) -> Result<()> {
        let targets: Vec<u32> = mapped(&others.states, map).map(|(at, _)| at).collect();
        grow(&mut self.states, Ordinals::Each(&targets), State::Empty);
        let places: Vec<usize> = match map {
            None => (0..others.states.len()).collect(),
            Some(map) => (0..others.states.len())
                .filter(|at| map.get(*at).is_some_and(|own| *own != super::DROPPED))
                .collect(),
        };
        for (own, at) in targets.into_iter().zip(places) {
            let (Some(state), Some(other)) = (self.states.get_mut(own as usize), others.states.get_mut(at))
            else {
                continue;
            };
            work.check()?;
            let mut other = std::mem::take(other);
            // What is greater takes what is less.
            let swapped = match (&*state, &other) {
                (State::Empty, _) | (State::Exact(_), State::Sketch(_)) => true,
                (State::Exact(own), State::Exact(other)) => own.len < other.len,
                _ => false,
            };
            if swapped {
                std::mem::swap(state, &mut other);
            }
            match (&mut *state, other) {
                (_, State::Empty) => {}
                (State::Sketch(sketch), State::Sketch(other)) => sketch.merge(&other),
                (_, State::Sketch(other)) => *state = State::Sketch(other),
                (_, State::Exact(table)) => {
                    table.hashes().for_each(|hash| state.insert(hash, self.exact, self.precision));
                }
            }
        }
        Ok(())
    }

    pub(super) fn count(&self, at: usize) -> u64 {
        match self.states.get(at) {
            None | Some(State::Empty) => 0,
            Some(State::Exact(table)) => table.len as u64,
            Some(State::Sketch(sketch)) => sketch.estimate(),
        }
    }

    pub(super) fn memory(&self) -> usize {
        let tables = self.states.iter().map(|state| match state {
            State::Empty => 0,
            State::Exact(table) => table.slots.len() * size_of::<u64>(),
            State::Sketch(sketch) => sketch.registers.len(),
        });
        self.states.capacity() * size_of::<State>() + tables.sum::<usize>()
    }
}

/// A set of hashes: a table with linear probing, at most five eighths full. 0 marks an empty slot.
#[derive(Clone, Debug)]
struct Table {
    slots: Box<[u64]>,
    len: usize,
}

/// Substitute of the hash 0.
const ZERO: u64 = 0x9e37_79b9_7f4a_7c15;

impl Table {
    fn new() -> Self {
        Self { slots: vec![0; 8].into_boxed_slice(), len: 0 }
    }

    /// Adds a hash, which is not 0; returns whether it is new.
    #[inline]
    fn insert(&mut self, hash: u64) -> bool {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        // The table is never full, and `at` always within it.
        while let Some(slot) = self.slots.get_mut(at) {
            if *slot == hash {
                return false;
            }
            if *slot == 0 {
                *slot = hash;
                self.len += 1;
                if self.len * 8 > self.slots.len() * 5 {
                    self.grow();
                }
                return true;
            }
            at = (at + 1) & mask;
        }
        false
    }

    fn grow(&mut self) {
        let factor = if self.slots.len() < 1 << 16 { 4 } else { 2 };
        let mut slots = vec![0u64; self.slots.len() * factor].into_boxed_slice();
        let mask = slots.len() - 1;
        for hash in self.hashes() {
            let mut at = hash as usize & mask;
            while slots.get(at).is_some_and(|slot| *slot != 0) {
                at = (at + 1) & mask;
            }
            if let Some(slot) = slots.get_mut(at) {
                *slot = hash;
            }
        }
        self.slots = slots;
    }

    fn hashes(&self) -> impl Iterator<Item = u64> {
        self.slots.iter().copied().filter(|slot| *slot != 0)
    }
}

/// A dense HyperLogLog sketch: a byte a register.
#[derive(Clone, Debug)]
struct Sketch {
    registers: Box<[u8]>,
    precision: u32,
}

impl Sketch {
    fn new(precision: u32) -> Self {
        Self { registers: vec![0; 1 << precision].into_boxed_slice(), precision }
    }

    fn insert(&mut self, hash: u64) {
        // Rank of the first one behind the bits of the register.
        let rest = (hash << self.precision) | (1 << (self.precision - 1));
        let rank = rest.leading_zeros() as u8 + 1;
        if let Some(register) = self.registers.get_mut((hash >> (64 - self.precision)) as usize) {
            *register = (*register).max(rank);
        }
    }

    fn merge(&mut self, other: &Self) {
        for (register, other) in self.registers.iter_mut().zip(&other.registers) {
            *register = (*register).max(*other);
        }
    }

    fn estimate(&self) -> u64 {
        let registers = self.registers.len() as f64;
        let greatest = 64 - self.precision as usize + 1;
        let mut counts = [0u64; 66];
        for register in &self.registers {
            if let Some(count) = counts.get_mut(*register as usize) {
                *count += 1;
            }
        }
        let count = |rank: usize| counts.get(rank).copied().unwrap_or(0) as f64;
        let mut z = registers * tau(1.0 - count(greatest) / registers);
        for rank in (1..greatest).rev() {
            z = 0.5 * (z + count(rank));
        }
        z += registers * sigma(count(0) / registers);
        let alpha = 0.5 / std::f64::consts::LN_2;
        (alpha * registers * registers / z).round() as u64
    }
}

fn sigma(x: f64) -> f64 {
    if x >= 1.0 {
        return f64::INFINITY;
    }
    let (mut x, mut y, mut z) = (x, 1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return 0.0;
    }
    let (mut x, mut y, mut z) = (x, 1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x).powi(2) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::hash_long;

    fn of(range: std::ops::Range<i64>, exact: u64) -> Cardinality {
        let mut set = Cardinality::new(exact, false);
        let hashes: Vec<u64> = range.map(hash_long).collect();
        set.collect(Ordinals::One(0), &hashes);
        set.collect(Ordinals::One(0), &hashes);
        set
    }

    #[test]
    fn counts_are_exact_up_to_the_bound_and_close_beyond() {
        assert_eq!(of(0..EXACT as i64, 0).count(0), EXACT as u64);
        for many in [70_000, 300_000, 1_000_000] {
            let estimate = of(0..many, 0).count(0) as f64;
            assert!((estimate / many as f64 - 1.0).abs() < 0.015, "{many}: {estimate}");
        }
        assert_eq!(of(0..1, 0).count(7), 0);
    }

    #[test]
    fn merging_does_not_depend_on_the_parts() {
        let (whole, work) = (of(0..200_000, 0).count(0), QueryContext::default());
        for cut in [10, 50_000, 100_000, 190_000] {
            let mut left = of(0..cut, 0);
            left.merge(of(cut - 5..200_000, 0), None, &work).unwrap();
            assert_eq!(left.count(0), whole, "{cut}");
        }
        let mut mapped = Cardinality::new(0, false);
        for (range, at) in [(0..100, 3), (50..150, 3), (0..9, super::super::DROPPED)] {
            mapped.merge(of(range, 0), Some(&[at]), &work).unwrap();
        }
        assert_eq!((mapped.count(3), mapped.count(0)), (150, 0));
    }
}
