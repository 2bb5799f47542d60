//! The rows of very frequent terms as bits, kept for the searches to come.
//!
//! Whatever else a search by score is spared, the postings of the words without which no row can be among the best are decoded
//! everywhere, and those of frequent words again and again. As bits, rows are there for the asking, and so are those that have
//! a word more than once.

use std::fmt;
use std::sync::Arc;

use millrace_runtime::weighted_lru::{CachedValue, KeptCache, MAX_BYTES};
use uuid::Uuid;

use super::row_list::RowList;

/// Rows of a segment from which on those of its terms are kept, and one row in so many that a term must have.
const LEAST_ROWS: u32 = 1 << 16;
const SHARE: u32 = 32;
/// Words of a run, behind which the frequencies begin anew.
const RUN: usize = 64;

/// The rows of a term, and how often each has it.
pub(crate) struct FrequentRows {
    rows: Box<[u64]>,
    /// Those that have it more than once, how often these do, and where those of each run begin.
    often: Box<[u64]>,
    freqs: Vec<u8>,
    starts: Vec<u32>,
}

impl fmt::Debug for FrequentRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrequentRows").field("often", &self.freqs.len()).finish_non_exhaustive()
    }
}

impl FrequentRows {
    /// Reads a list over a segment of so many rows; `None` where a frequency takes more than a byte.
    fn read(list: &mut RowList, rows: u32) -> Option<Self> {
        let words = (rows as usize).div_ceil(64).next_multiple_of(RUN);
        let (mut own, mut often) = (vec![0; words], vec![0; words]);
        let (mut freqs, mut starts, mut more) = (Vec::new(), Vec::with_capacity(words / RUN), Vec::new());
        for (run, bits) in own.chunks_mut(RUN).enumerate() {
            starts.push(freqs.len() as u32);
            list.fill_often((run * RUN * 64) as u32, bits, &mut more);
            for (row, freq) in more.drain(..) {
                often[row as usize / 64] |= 1u64 << (row % 64);
                freqs.push(u8::try_from(freq).ok()?);
            }
        }
        freqs.shrink_to_fit();
        Some(Self { rows: own.into(), often: often.into(), freqs, starts })
    }

    fn heap_bytes(&self) -> usize {
        2 * size_of_val(&*self.rows) + self.freqs.len() + self.starts.len() * size_of::<u32>()
    }

    /// Sets the bits of the rows from one on, which begins a word, as far as there are bits.
    pub(super) fn fill(&self, first: u32, bits: &mut [u64]) {
        let own = self.rows.get(first as usize / 64..).unwrap_or_default();
        bits.iter_mut().zip(own).for_each(|(word, own)| *word |= own);
    }

    /// Adds the rows of a run that have it more than once, and how often.
    pub(super) fn add_often(&self, first: u32, words: usize, often: &mut Vec<(u32, u32)>) {
        let start = first as usize / 64;
        let place = self.starts.get(start / RUN).map_or(0, |start| *start as usize);
        let mut freqs = self.freqs.get(place..).unwrap_or_default().iter();
        let own = self.often.get(start..).unwrap_or_default();
        for (at, word) in own.iter().take(words).enumerate() {
            let (mut left, row) = (*word, first + at as u32 * 64);
            while left != 0 {
                let freq = freqs.next().map_or(1, |freq| (*freq).into());
                often.push((row + left.trailing_zeros(), freq));
                left &= left - 1;
            }
        }
    }

    /// Finds the first row at or behind one.
    pub(super) fn next(&self, from: u32) -> Option<u32> {
        let mut mask = u64::MAX << (from % 64);
        for (at, word) in self.rows.get(from as usize / 64..)?.iter().enumerate() {
            let word = word & std::mem::replace(&mut mask, u64::MAX);
            if word != 0 {
                return Some((from / 64 + at as u32) * 64 + word.trailing_zeros());
            }
        }
        None
    }

    /// Says how often a row has it that does.
    pub(super) fn freq(&self, row: u32) -> u32 {
        let (word, bit) = (row as usize / 64, 1u64 << (row % 64));
        let Some(own) = self.often.get(word).filter(|own| *own & bit != 0) else { return 1 };
        let run = word / RUN;
        let before = self.often[run * RUN..word].iter().map(|word| word.count_ones()).sum::<u32>();
        let place = self.starts.get(run).map(|start| start + before + (own & (bit - 1)).count_ones());
        place.and_then(|place| self.freqs.get(place as usize)).map_or(1, |freq| (*freq).into())
    }
}

/// The rows of a term as the cache keeps them; none where they take too much memory.
#[derive(Clone, Debug)]
pub(crate) struct CachedRows(Option<Arc<FrequentRows>>);

impl CachedValue for CachedRows {
    fn heap_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |rows| rows.heap_bytes())
    }
}

/// Rows of terms of stored segments, by segment and key; none where they cannot be kept so.
pub(crate) type FrequentCache = KeptCache<(Uuid, Box<[u8]>), CachedRows>;

/// The terms of one bundle.
#[derive(Clone, Debug)]
pub(crate) struct FrequentTerms {
    cache: Arc<FrequentCache>,
    segment: Uuid,
}

impl FrequentTerms {
    /// Keeps rows of a segment's terms.
    pub(crate) fn new(cache: &Arc<FrequentCache>, segment: Uuid) -> Self {
        Self { cache: Arc::clone(cache), segment }
    }

    /// Returns whether the rows of a term are worth it, and leave room for those of others.
    pub(super) fn are_worth_it(count: u32, rows: u32) -> bool {
        rows >= LEAST_ROWS && count >= rows / SHARE && rows as usize / 4 <= MAX_BYTES / 8
    }

    /// Returns the rows of a term by its key, if they are kept.
    pub(super) fn get(&self, key: &[u8]) -> Option<Arc<FrequentRows>> {
        self.cache.get(&(self.segment, key.into()))?.0
    }

    /// Returns the rows of a term by its key, in a segment of so many; whoever comes first opens and reads them, and nobody
    /// waits for that: nothing is returned meanwhile.
    pub(super) fn of(
        &self,
        key: &[u8],
        rows: u32,
        open: impl FnOnce() -> millrace_runtime::Result<RowList>,
    ) -> millrace_runtime::Result<Option<Option<Arc<FrequentRows>>>> {
        let read = || {
            let mut list = open()?;
            Ok(CachedRows(FrequentRows::read(&mut list, rows).map(Arc::new)))
        };
        Ok(self.cache.try_of((self.segment, key.into()), read)?.map(|cached| cached.0))
    }
}
