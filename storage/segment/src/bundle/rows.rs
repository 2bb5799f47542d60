//! The rows of many terms, as one set.

use std::io;
use std::ops::Bound;

use roaring::RoaringBitmap;
use tantivy::InvertedIndexReader;
use tantivy::postings::{BlockSegmentPostings, TermInfo};
use tantivy::schema::IndexRecordOption;
use tantivy::termdict::TermStreamer;
use tantivy_fst::Automaton;
use tantivy_fst::automaton::AlwaysMatch;

use super::dictionary::Dictionary;

/// One row in so many is few: these are sorted sooner than the bits of all are looked through.
const LISTED_SHARE: usize = 512;

/// Collects rows: a list while they are few, a bit a row beyond.
struct Union {
    rows: u32,
    list: Vec<u32>,
    bits: Vec<u8>,
}

impl Union {
    fn extend(&mut self, rows: &[u32]) {
        if self.bits.is_empty() {
            if self.list.len() + rows.len() <= self.rows as usize / LISTED_SHARE {
                return self.list.extend_from_slice(rows);
            }
            self.bits = vec![0; (self.rows as usize).div_ceil(8)];
            for row in std::mem::take(&mut self.list) {
                self.set(row);
            }
        }
        for &row in rows {
            self.set(row);
        }
    }

    fn set(&mut self, row: u32) {
        if let Some(byte) = self.bits.get_mut(row as usize / 8) {
            *byte |= 1 << (row % 8);
        }
    }

    fn finish(mut self) -> RoaringBitmap {
        if self.bits.is_empty() {
            self.list.sort_unstable();
            self.list.dedup();
            RoaringBitmap::from_sorted_iter(self.list).expect("a sorted list without repetition ascends")
        } else {
            RoaringBitmap::from_lsb0_bytes(0, &self.bits)
        }
    }
}

/// Walks over the terms that begin with `start`, from one on or from the first, or against their order.
///
/// A walk against the order knows its bounds term by term only, and would look at all others: the automaton leaves them
/// out, branch by branch.
pub(super) fn behind<'a>(
    reader: &'a InvertedIndexReader,
    start: &'a [u8],
    from: Option<&[u8]>,
    descending: bool,
) -> io::Result<TermStreamer<'a, impl Automaton + 'a>> {
    let range = reader.terms().search(PrefixedAutomaton { start, automaton: AlwaysMatch });
    let after = after_prefix(start).unwrap_or_default();
    match (from, descending) {
        (Some(from), false) => range.ge(from).lt(after),
        (None, false) => range.ge(start).lt(after),
        (Some(from), true) => range.ge(start).le(from).backward(),
        (None, true) => range.ge(start).lt(after).backward(),
    }
    .into_stream()
}

/// An automaton behind a fixed start.
struct PrefixedAutomaton<'a, A> {
    start: &'a [u8],
    automaton: A,
}

/// State of a [`PrefixedAutomaton`].
#[derive(Clone)]
enum PrefixedState<S> {
    /// So far into the start.
    Start(usize),
    /// Behind it.
    Inner(S),
    /// State from which nothing matches.
    Nowhere,
}

impl<A: Automaton<State: Clone>> Automaton for PrefixedAutomaton<'_, A> {
    type State = PrefixedState<A::State>;

    fn start(&self) -> Self::State {
        match self.start {
            [] => PrefixedState::Inner(self.automaton.start()),
            _ => PrefixedState::Start(0),
        }
    }

    fn is_match(&self, place: &Self::State) -> bool {
        matches!(place, PrefixedState::Inner(state) if self.automaton.is_match(state))
    }

    fn can_match(&self, place: &Self::State) -> bool {
        match place {
            PrefixedState::Start(_) => true,
            PrefixedState::Inner(state) => self.automaton.can_match(state),
            PrefixedState::Nowhere => false,
        }
    }

    fn accept(&self, place: &Self::State, byte: u8) -> Self::State {
        match place {
            PrefixedState::Start(at) if self.start[*at] != byte => PrefixedState::Nowhere,
            PrefixedState::Start(at) if at + 1 == self.start.len() => {
                PrefixedState::Inner(self.automaton.start())
            }
            PrefixedState::Start(at) => PrefixedState::Start(at + 1),
            PrefixedState::Inner(state) => PrefixedState::Inner(self.automaton.accept(state, byte)),
            PrefixedState::Nowhere => PrefixedState::Nowhere,
        }
    }
}

/// Reads the posting lists of one term after another.
pub(super) struct Lists<'a> {
    reader: &'a InvertedIndexReader,
    cursor: Option<BlockSegmentPostings>,
}

impl<'a> Lists<'a> {
    /// Starts before the first.
    pub(super) fn new(reader: &'a InvertedIndexReader) -> Self {
        Self { reader, cursor: None }
    }

    /// Reads that of a term, block by block.
    pub(super) fn read(&mut self, info: &TermInfo, mut take: impl FnMut(&[u32])) -> io::Result<()> {
        let blocks = match &mut self.cursor {
            Some(blocks) => {
                self.reader.reset_block_postings_from_terminfo(info, blocks)?;
                blocks
            }
            None => self
                .cursor
                .insert(self.reader.read_block_postings_from_terminfo(info, IndexRecordOption::Basic)?),
        };
        while !blocks.docs().is_empty() {
            take(blocks.docs());
            blocks.advance();
        }
        Ok(())
    }
}

/// The rows of terms, joined one term after another.
pub(super) struct ConcatenatedRows<'a> {
    lists: Lists<'a>,
    union: Union,
}

impl<'a> ConcatenatedRows<'a> {
    /// Starts with no row, of `rows` in all.
    pub(super) fn new(reader: &'a InvertedIndexReader, rows: u32) -> Self {
        Self { lists: Lists::new(reader), union: Union { rows, list: Vec::new(), bits: Vec::new() } }
    }

    /// Adds the rows of a term.
    pub(super) fn add(&mut self, info: &TermInfo) -> io::Result<bool> {
        self.lists.read(info, |rows| self.union.extend(rows))?;
        Ok(true)
    }

    /// Returns the rows.
    pub(super) fn finish(self) -> RoaringBitmap {
        self.union.finish()
    }
}

/// Returns the rows of all terms within bounds, of `rows` rows in all; of some of them where `go_on` says not to.
pub(super) fn union(
    dictionary: &Dictionary,
    reader: &InvertedIndexReader,
    from: Bound<&[u8]>,
    to: Bound<&[u8]>,
    rows: u32,
    go_on: &dyn Fn() -> bool,
) -> io::Result<RoaringBitmap> {
    let mut joined = ConcatenatedRows::new(reader, rows);
    dictionary.visit(from, to, |_, info| Ok(joined.add(info)? && go_on()))?;
    Ok(joined.finish())
}

/// Returns the least byte string above all that start with `prefix`.
pub(super) fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut after = prefix[..=last].to_vec();
    after[last] += 1;
    Some(after)
}
