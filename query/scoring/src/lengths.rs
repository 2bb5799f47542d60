//! Bounds on scores of a text field's rows by their lengths.
//!
//! Most rows have a term once, and then its score is a function of the row's length. Where it is known that no row of a
//! window has a term more often, the window's lengths tell which rows can pass a threshold before postings are decoded. And
//! what a run of a term's rows scores at best tells how short these are at least: rows that are shorter do not have it.

use millrace_segment::WindowBits;
use millrace_segment::bundle::{Impact, TextIndex};

use crate::bits::{NO_ROWS, retain};
use crate::bm25::{B, Bm25};
use crate::reader::TextReader;

/// Encoded lengths that there are.
pub(super) const LENGTHS: usize = 1 << u8::BITS;
/// The encoded length of rows of fields that keep none.
const ONE: u8 = 1;

/// Runs ahead that are looked at one by one: a window of rows of a frequent term has that many.
const NEAR_RUNS: usize = 64;

/// Bounds on the scores of a term in some rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Bound on the frequency in the rows.
    pub(super) often: FrequencyBound,
    /// An encoded length that no row that has it falls below.
    pub(super) shortest: u8,
}

impl Bounds {
    /// Of a term of which nothing is known.
    pub(super) const UNKNOWN: Self = Self { often: UNBOUNDED, shortest: 0 };

    /// Adds those of other rows.
    fn or(self, other: Self) -> Self {
        Self { often: self.often.max(other.often), shortest: self.shortest.min(other.shortest) }
    }
}

/// A bound of frequencies: they do not exceed this power of two, or are not bounded if it is [`UNBOUNDED`].
pub(super) type FrequencyBound = u8;
/// The frequencies of rows that have a term once.
pub(super) const ONCE: FrequencyBound = 0;
/// Frequencies of which nothing is known.
pub(super) const UNBOUNDED: FrequencyBound = 6;

/// The lengths of a field's rows.
#[derive(Clone, Copy)]
pub(super) struct Lengths<'a> {
    text: &'a dyn TextReader,
    /// A byte a row, where they are kept so.
    ids: Option<&'a [u8]>,
}

impl<'a> Lengths<'a> {
    pub(super) fn new(text: &'a dyn TextReader) -> Self {
        Self { text, ids: text.norm_ids() }
    }

    /// Reads how often rows have a term; `None` where that is not known.
    pub(super) fn runs(&self, term: &str) -> Option<ImpactRuns> {
        ImpactRuns::open(self.text, term)
    }

    /// Returns the encoded length of a row that has a term.
    pub(super) fn of(&self, row: u32) -> u8 {
        match self.ids {
            Some(ids) => ids.get(row as usize).copied().unwrap_or(ONE),
            None if self.text.has_norms() => self.text.norm_id(row),
            None => ONE,
        }
    }

    /// Returns an encoded length that no row with a term falls below.
    pub(super) fn shortest(&self, first: u32, end: u32) -> u8 {
        let ids = self.ids.and_then(|ids| ids.get(first as usize..end as usize));
        // Rows without a term have the length 0, which comes last here.
        let shortest = ids.map(|ids| ids.iter().map(|id| id.wrapping_sub(1)).fold(u8::MAX, u8::min));
        shortest.map_or(ONE, |shortest| shortest.wrapping_add(1).max(ONE))
    }

    /// Clears the bits of rows that are longer than the longest; of all where none is short enough.
    pub(super) fn keep(&self, first: u32, bits: &mut WindowBits, longest: Option<u8>) {
        let Some(longest) = longest else {
            *bits = NO_ROWS;
            return;
        };
        let Some(ids) = self.ids.and_then(|ids| ids.get(first as usize..)) else {
            return retain(first, bits, |row| self.of(row) <= longest);
        };
        for (word, ids) in bits.iter_mut().zip(ids.chunks(u64::BITS as usize)) {
            if *word != 0 {
                *word &= not_longer(ids, longest);
            }
        }
    }
}

/// Compares up to 64 lengths, eight at a time: the lowest bit tells of the first.
fn not_longer(ids: &[u8], longest: u8) -> u64 {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let most = u64::from_le_bytes([longest; 8]);
    let (eights, rest) = ids.as_chunks::<8>();
    let mut found = 0;
    for (at, eight) in eights.iter().enumerate() {
        let eight = u64::from_le_bytes(*eight);
        // The highest bit of each byte is left where the lower ones are no more than those of the longest.
        let low = (most | HIGH) - (eight & !HIGH);
        let no_longer = if longest < 0x80 { low & !eight } else { low | !eight } & HIGH;
        // The highest bits of the bytes are brought together.
        found |= ((no_longer >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * at);
    }
    let start = eights.len() * 8;
    rest.iter().enumerate().fold(found, |found, (at, id)| found | u64::from(*id <= longest) << (start + at))
}

/// Bounds on the frequency of a term and on the length of rows, run by run.
#[derive(Debug)]
pub(super) struct ImpactRuns {
    lasts: Vec<u32>,
    bounds: Vec<Bounds>,
    at: usize,
}

impl ImpactRuns {
    /// Reads the runs of a term.
    fn open(text: &dyn TextReader, term: &str) -> Option<Self> {
        // Without runs no row is left out: what cannot be read is found there.
        let impacts = text.impacts(term).ok().flatten()?;
        let often = |most: u32| {
            (u32::BITS - most.saturating_sub(1).leading_zeros()).min(UNBOUNDED.into()) as FrequencyBound
        };
        let weights = Weights::new(text.impact_average());
        // Runs mostly have the same best row as the one before.
        let mut known = ((0, 0), 0);
        let mut shortest = |impact: &Impact| {
            let best = (impact.freq, impact.length);
            if known.0 != best {
                known = (best, weights.shortest(impact));
            }
            known.1
        };
        let mut bounds = |impact: &Impact| Bounds { often: often(impact.most), shortest: shortest(impact) };
        Some(Self {
            lasts: impacts.iter().map(|impact| impact.last).collect(),
            bounds: impacts.iter().map(&mut bounds).collect(),
            at: 0,
        })
    }

    /// Bounds the rows from one to another. The first rows of calls do not descend.
    pub(super) fn bounds(&mut self, first: u32, last: u32) -> Bounds {
        let ahead = &self.lasts[self.at..];
        let near = ahead.iter().take(NEAR_RUNS).position(|end| *end >= first);
        self.at += near.unwrap_or_else(|| ahead.partition_point(|end| *end < first));
        let mut found: Option<Bounds> = None;
        for (end, own) in self.lasts[self.at..].iter().zip(&self.bounds[self.at..]) {
            found = Some(found.map_or(*own, |found| found.or(*own)));
            if *end >= last {
                break;
            }
        }
        found.unwrap_or(Bounds::UNKNOWN)
    }
}

/// Divisors of frequencies for the length of the field: the greater the quotient, the greater the score.
struct Weights {
    average: f32,
    /// By encoded length, ascending.
    by_id: [f32; LENGTHS],
}

impl Weights {
    fn new(average: f32) -> Self {
        let by_id = std::array::from_fn(|id| Self::of(average, TextIndex::decode_norm(id as u8)));
        Self { average, by_id }
    }

    fn of(average: f32, length: u32) -> f32 {
        1.0 - B + B * length as f32 / average
    }

    /// Returns an encoded length that no row of a run falls below: such a row would score more than the best one, and be it by
    /// one occurrence.
    fn shortest(&self, run: &Impact) -> u8 {
        if run.freq == u32::MAX {
            return 0;
        }
        let least = Self::of(self.average, run.length) / run.freq.max(1) as f32 * (1.0 - 1e-5);
        u8::try_from(self.by_id.partition_point(|own| *own < least)).unwrap_or(u8::MAX)
    }
}

/// The scores of a term or phrase by length.
pub(super) struct Scores<'a> {
    function: &'a Bm25,
    /// By how often rows have it.
    tables: [Option<Box<[f32; LENGTHS]>>; UNBOUNDED as usize + 1],
}

impl<'a> Scores<'a> {
    pub(super) fn new(function: &'a Bm25) -> Self {
        Self { function, tables: Default::default() }
    }

    /// Returns a bound on the scores of a row of a length that has it so often.
    pub(super) fn most(&mut self, often: FrequencyBound) -> &[f32; LENGTHS] {
        let function = self.function;
        self.tables[usize::from(often.min(UNBOUNDED))].get_or_insert_with(|| {
            let most = |id: usize| match often {
                UNBOUNDED.. => function.max_score(),
                often => function.score(1 << often, TextIndex::decode_norm(id as u8)),
            };
            Box::new(std::array::from_fn(most))
        })
    }

    /// Scores a row that has it `freq` times.
    pub(super) fn score(&mut self, freq: u32, length: u8) -> f32 {
        match freq {
            1 => self.most(ONCE)[usize::from(length)],
            freq => self.function.score(freq, TextIndex::decode_norm(length)),
        }
    }

    pub(super) fn max_score(&self) -> f32 {
        self.function.max_score()
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use crate::lengths::*;

    #[test]
    fn no_row_of_a_run_is_shorter_than_its_best_tells() {
        let mut rng = StdRng::seed_from_u64(7);
        for round in 0..2_000 {
            let weights = Weights::new(rng.random_range(1.0..300.0));
            let most = if round % 2 == 0 { 1 } else { 5 };
            let longest = [6, 40, 200][round % 3];
            let rows: Vec<(u8, u32)> = (0..rng.random_range(1..40))
                .map(|_| (rng.random_range(ONE..=longest), rng.random_range(1..=most)))
                .collect();
            let ratio = |(id, freq): &(u8, u32)| *freq as f32 / weights.by_id[usize::from(*id)];
            let (id, freq) = *rows.iter().max_by(|a, b| ratio(a).total_cmp(&ratio(b))).unwrap();
            let run = Impact { last: 0, length: TextIndex::decode_norm(id), freq, most };
            let shortest = rows.iter().map(|(id, _)| *id).min().unwrap();
            assert!(weights.shortest(&run) <= shortest, "{rows:?}");
            if most == 1 {
                assert_eq!(weights.shortest(&run), shortest, "{rows:?}");
            }
        }
        let unknown = Impact { last: u32::MAX, length: 0, freq: u32::MAX, most: u32::MAX };
        assert_eq!(Weights::new(8.0).shortest(&unknown), 0);
    }

    #[test]
    fn lengths_are_compared_as_one_by_one() {
        let mut rng = StdRng::seed_from_u64(3);
        for _ in 0..2_000 {
            let ids: Vec<u8> = (0..rng.random_range(0..=64)).map(|_| rng.random()).collect();
            let longest: u8 = rng.random();
            let expected =
                (0..ids.len()).filter(|at| ids[*at] <= longest).fold(0, |all, at| all | 1u64 << at);
            assert_eq!(not_longer(&ids, longest), expected, "{ids:?} {longest}");
        }
    }
}
