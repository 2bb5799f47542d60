//! Dictionaries of terms: writes them ([`DictionaryWriter`]), and walks over their terms.
//!
//! The format is tantivy's. tantivy's streams keep a state for every byte of a term and look at the end of the range at each. A [`Dictionary`]
//! reads the same bytes (a transducer from terms to their numbers, then what is known of each, in blocks of
//! [`BLOCK_TERMS`]) with a state for every branch only, which is several times as fast. Single terms are still looked
//! up by tantivy's readers.

mod transducer;
mod writer;

use std::io;
use std::ops::Bound;

use tantivy::directory::OwnedBytes;
use tantivy::postings::TermInfo;
use tantivy_fst::Automaton;
use tantivy_fst::automaton::AlwaysMatch;
use tantivy_fst::raw::{CompiledAddr, Fst, Node};

pub(super) use self::writer::DictionaryWriter;

/// Bytes behind the transducer and the blocks: the length of the latter, the version of the format, the kind of dictionary.
const FOOTER: usize = 16;
/// The version and the kind that are read here.
const KNOWN: [u8; 8] = [1, 0, 0, 0, 1, 0, 0, 0];
/// Most bits of a part of what is known of a term: what is read at once is within 64 bits, wherever it begins in a byte.
const WIDEST: u32 = 56;
/// Terms of a block.
const BLOCK_TERMS: usize = 256;
/// Bytes of what is known of a block: where its bits begin, its first term, and three widths.
const BLOCK_BYTES: usize = 8 + 28 + 3;

/// The terms of one kind of postings.
pub(super) struct Dictionary {
    transducer: Fst<OwnedBytes>,
    blocks: OwnedBytes,
    /// Bits of the terms of blocks but their first.
    bits: OwnedBytes,
}

impl Dictionary {
    /// Opens the bytes of a dictionary as tantivy writes them.
    pub(super) fn open(bytes: &OwnedBytes) -> io::Result<Self> {
        let invalid = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, reason.to_owned());
        let cut = || invalid("a dictionary is cut");
        let end = bytes.len().checked_sub(FOOTER).ok_or_else(cut)?;
        let (len, known) = bytes.get(end..).and_then(<[u8]>::split_first_chunk::<8>).ok_or_else(cut)?;
        if known != KNOWN {
            return Err(invalid("a dictionary of an unknown format"));
        }
        let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| cut())?;
        let split = end.checked_sub(len).ok_or_else(cut)?;
        let transducer = Fst::new(bytes.slice(0..split)).map_err(|error| invalid(&error.to_string()))?;
        let len = bytes.get(split..end).and_then(<[u8]>::first_chunk::<8>).ok_or_else(cut)?;
        let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| cut())?;
        // Behind the length stands how many terms there are.
        let start = split + 16;
        let bits = start.checked_add(len).filter(|bits| *bits <= end).ok_or_else(cut)?;
        Ok(Self { transducer, blocks: bytes.slice(start..bits), bits: bytes.slice(bits..end) })
    }

    /// Visits the terms within bounds, ascending; `each` returns whether to go on.
    pub(super) fn visit(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        mut each: impl FnMut(&[u8], &TermInfo) -> io::Result<bool>,
    ) -> io::Result<()> {
        let mut infos = Infos::new(self);
        let mut branches: Vec<Branch<'_, ()>> = Vec::new();
        let (start, included) = match from {
            Bound::Included(start) => (start, true),
            Bound::Excluded(start) => (start, false),
            Bound::Unbounded => (&[][..], true),
        };
        // What comes behind the first term branches off on the way to it.
        let (mut node, mut number) = (self.transducer.root(), 0);
        let mut at = 0;
        let mut here = true;
        while let Some(byte) = start.get(at) {
            let next = node.transitions().position(|transition| transition.inp >= *byte);
            let Some(next) = next else {
                here = false;
                break;
            };
            let transition = node.transition(next);
            let same = transition.inp == *byte;
            branches.push(Branch { node, next: next + usize::from(same), depth: at, number, state: () });
            if !same {
                here = false;
                break;
            }
            number += transition.out.value();
            node = self.transducer.node(transition.addr);
            at += 1;
        }
        let first = here.then_some((node.addr(), number, ()));
        let mut key = start.get(..at).unwrap_or_default().to_vec();
        self.walk(&AlwaysMatch, first, &mut key, branches, &mut |key, number| {
            let within = match to {
                Bound::Included(end) => key <= end,
                Bound::Excluded(end) => key < end,
                Bound::Unbounded => true,
            };
            match within {
                _ if !included && key == start => Ok(true),
                true => each(key, infos.get(number)?),
                false => Ok(false),
            }
        })
    }

    /// Visits the terms that begin with `start` and go on as `automaton` says, ascending; `each` returns whether to go on.
    /// What the automaton cannot match any more is skipped, branch by branch.
    pub(super) fn visit_matching<A: Automaton<State: Clone>>(
        &self,
        start: &[u8],
        automaton: &A,
        mut each: impl FnMut(&[u8], &TermInfo) -> io::Result<bool>,
    ) -> io::Result<()> {
        let (mut node, mut number) = (self.transducer.root(), 0);
        for byte in start {
            let Some(next) = node.find_input(*byte) else { return Ok(()) };
            let transition = node.transition(next);
            number += transition.out.value();
            node = self.transducer.node(transition.addr);
        }
        let mut infos = Infos::new(self);
        let first = Some((node.addr(), number, automaton.start()));
        self.walk(automaton, first, &mut start.to_vec(), Vec::new(), &mut |key, number| {
            each(key, infos.get(number)?)
        })
    }

    /// Walks from a node, to which `key` leads, and then where branches are left.
    fn walk<'a, A: Automaton<State: Clone>>(
        &'a self,
        automaton: &A,
        first: Option<(CompiledAddr, u64, A::State)>,
        key: &mut Vec<u8>,
        mut branches: Vec<Branch<'a, A::State>>,
        each: &mut impl FnMut(&[u8], u64) -> io::Result<bool>,
    ) -> io::Result<()> {
        let Some((mut address, mut number, mut state)) =
            first.or_else(|| self.branch_off(automaton, &mut branches, key))
        else {
            return Ok(());
        };
        loop {
            // Most bytes of a term are its own. A node is large: it is made where it is needed, and not moved.
            let node = self.transducer.node(address);
            if node.is_final()
                && automaton.is_match(&state)
                && !each(key.as_slice(), number + node.final_output().value())?
            {
                return Ok(());
            }
            if node.len() == 1 {
                let transition = node.transition(0);
                state = automaton.accept(&state, transition.inp);
                if automaton.can_match(&state) {
                    key.push(transition.inp);
                    number += transition.out.value();
                    address = transition.addr;
                    continue;
                }
            } else if !node.is_empty() {
                branches.push(Branch { node, next: 0, depth: key.len(), number, state });
            }
            match self.branch_off(automaton, &mut branches, key) {
                Some(place) => (address, number, state) = place,
                None => return Ok(()),
            }
        }
    }

    /// Goes on where a branch is left, the last that was met.
    fn branch_off<A: Automaton<State: Clone>>(
        &self,
        automaton: &A,
        branches: &mut Vec<Branch<'_, A::State>>,
        key: &mut Vec<u8>,
    ) -> Option<(CompiledAddr, u64, A::State)> {
        loop {
            let branch = branches.last_mut()?;
            if branch.next >= branch.node.len() {
                branches.pop();
                continue;
            }
            let transition = branch.node.transition(branch.next);
            branch.next += 1;
            let state = automaton.accept(&branch.state, transition.inp);
            if automaton.can_match(&state) {
                key.truncate(branch.depth);
                key.push(transition.inp);
                return Some((transition.addr, branch.number + transition.out.value(), state));
            }
        }
    }
}

/// A node with several ways to go on.
struct Branch<'a, S> {
    node: Node<'a>,
    /// The next of them.
    next: usize,
    /// Bytes of the key that lead here.
    depth: usize,
    /// Prefix of the numbers of terms below.
    number: u64,
    state: S,
}

/// Reads what is known of terms, by ascending number.
struct Infos<'a> {
    dictionary: &'a Dictionary,
    block: Option<usize>,
    first: TermInfo,
    /// Bits of the block's terms but the first, and the widths of their parts: postings, positions, rows.
    bits: &'a [u8],
    widths: [usize; 3],
    info: TermInfo,
}

impl<'a> Infos<'a> {
    fn new(dictionary: &'a Dictionary) -> Self {
        Self {
            dictionary,
            block: None,
            first: TermInfo::default(),
            bits: &[],
            widths: [0; 3],
            info: TermInfo::default(),
        }
    }

    fn get(&mut self, number: u64) -> io::Result<&TermInfo> {
        let number = usize::try_from(number).map_err(|_| cut())?;
        let (block, place) = (number / BLOCK_TERMS, number % BLOCK_TERMS);
        if self.block != Some(block) {
            self.open(block).ok_or_else(cut)?;
            self.block = Some(block);
        }
        let Some(place) = place.checked_sub(1) else { return Ok(&self.first) };
        let [postings, positions, rows] = self.widths;
        let width = postings + positions + rows;
        let at = place * width;
        let read = |at: usize, width: usize| bits(self.bits, at, width).ok_or_else(cut);
        let postings_of =
            |at: usize| Ok::<_, io::Error>(self.first.postings_range.start + read(at, postings)?);
        let positions_of = |at: usize| {
            Ok::<_, io::Error>(self.first.positions_range.start + read(at + postings, positions)?)
        };
        // Ranges end where those of the next term begin.
        let info = TermInfo {
            doc_freq: read(at + postings + positions, rows)? as u32,
            postings_range: postings_of(at)?..postings_of(at + width)?,
            positions_range: positions_of(at)?..positions_of(at + width)?,
        };
        self.info = info;
        Ok(&self.info)
    }

    fn open(&mut self, block: usize) -> Option<()> {
        let start = block.checked_mul(BLOCK_BYTES)?;
        let bytes = self.dictionary.blocks.get(start..start.checked_add(BLOCK_BYTES)?)?;
        let (offset, bytes) = bytes.split_first_chunk::<8>()?;
        let (doc_freq, bytes) = bytes.split_first_chunk::<4>()?;
        let range = |bytes: &[u8]| {
            let start = usize::try_from(u64::from_le_bytes(*bytes.first_chunk()?)).ok()?;
            let len = u32::from_le_bytes(*bytes.get(8..)?.first_chunk()?) as usize;
            Some(start..start.checked_add(len)?)
        };
        self.first = TermInfo {
            doc_freq: u32::from_le_bytes(*doc_freq),
            postings_range: range(bytes)?,
            positions_range: range(bytes.get(12..)?)?,
        };
        let [rows, postings, positions] = *bytes.get(24..)?.first_chunk::<3>()?;
        self.widths = [postings.into(), positions.into(), rows.into()];
        self.bits = self.dictionary.bits.get(usize::try_from(u64::from_le_bytes(*offset)).ok()?..)?;
        self.widths.iter().all(|width| *width <= WIDEST as usize).then_some(())
    }
}

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "what is known of terms is cut")
}

/// Reads so many bits at a place.
fn bits(bytes: &[u8], at: usize, width: usize) -> Option<usize> {
    if width == 0 {
        return Some(0);
    }
    let rest = bytes.get(at / 8..)?;
    let word = match rest.first_chunk::<8>() {
        Some(word) => u64::from_le_bytes(*word),
        None => {
            let mut word = [0; 8];
            word.get_mut(..rest.len())?.copy_from_slice(rest);
            u64::from_le_bytes(word)
        }
    };
    usize::try_from(word >> (at % 8) & ((1 << width) - 1)).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};
    use tantivy::termdict::TermDictionaryBuilder;

    use super::*;

    /// Terms over few letters, so that they share beginnings and are beginnings of one another.
    fn terms(random: &mut StdRng, most: usize) -> Vec<(Vec<u8>, TermInfo)> {
        let mut keys = BTreeSet::new();
        for _ in 0..random.random_range(0..=most) {
            let len = random.random_range(0..9);
            let letters: &[u8] = if random.random_bool(0.2) { b"ab" } else { &[0, b'a', b'b', b'z', 0xff] };
            keys.insert(
                (0..len).map(|_| letters[random.random_range(0..letters.len())]).collect::<Vec<u8>>(),
            );
        }
        let (mut postings, mut positions) = (0, 0);
        let info = |key| {
            let (start, place) = (postings, positions);
            postings += random.random_range(1..300);
            positions += random.random_range(0..3);
            let doc_freq = random.random_range(1..1_000);
            let info =
                TermInfo { doc_freq, postings_range: start..postings, positions_range: place..positions };
            (key, info)
        };
        keys.into_iter().map(info).collect()
    }

    fn dictionary(terms: &[(Vec<u8>, TermInfo)]) -> Dictionary {
        Dictionary::open(&OwnedBytes::new(written(terms))).unwrap()
    }

    fn written(terms: &[(Vec<u8>, TermInfo)]) -> Vec<u8> {
        let mut writer = DictionaryWriter::new(Vec::new()).unwrap();
        terms.iter().for_each(|(key, info)| writer.insert(key, info.clone()).unwrap());
        writer.finish().unwrap()
    }

    /// As tantivy writes them.
    fn reference(terms: &[(Vec<u8>, TermInfo)]) -> Vec<u8> {
        let mut builder = TermDictionaryBuilder::create(Vec::new()).unwrap();
        terms.iter().for_each(|(key, info)| builder.insert(key, info).unwrap());
        builder.finish().unwrap()
    }

    #[test]
    fn bytes_are_those_of_tantivy() {
        // Of few terms: of more, other states are forgotten.
        let mut random = StdRng::seed_from_u64(12);
        for _ in 0..100 {
            let terms = terms(&mut random, 3);
            assert_eq!(written(&terms), reference(&terms), "{terms:?}");
        }
        // All ways from a state, with and without an end, and states with a table.
        let info = |at: usize| TermInfo { doc_freq: 1, postings_range: at..at + 1, positions_range: 0..0 };
        for first in [b"".as_slice(), b"a", b"\xff\xfe"] {
            let with = |byte: usize| [first, &[byte as u8]].concat();
            for count in [1, 32, 33, 63, 64, 255, 256] {
                for ends in [false, true] {
                    let keys = ends.then(|| first.to_vec()).into_iter().chain((0..count).map(with));
                    let terms: Vec<_> = keys.enumerate().map(|(at, key)| (key, info(at))).collect();
                    assert_eq!(written(&terms), reference(&terms), "{first:?} {count} {ends}");
                }
            }
        }
        assert_eq!(written(&[]), reference(&[]));
    }

    #[test]
    fn large_ones_read_as_tantivys_and_are_no_larger() {
        let mut random = StdRng::seed_from_u64(13);
        let word = |random: &mut StdRng| {
            let stem: String = (0..random.random_range(1..5))
                .map(|_| char::from(random.random_range(b'a'..=b'z')))
                .collect();
            let end = ["ing", "ed", "s", "ation", "", "-2026-11", ".html"][random.random_range(0..7)];
            format!("{stem}{}{end}", random.random_range(0..500)).into_bytes()
        };
        let keys: BTreeSet<Vec<u8>> = (0..100_000).map(|_| word(&mut random)).collect();
        let info = |at: usize| TermInfo {
            doc_freq: 1 + at as u32 % 7,
            postings_range: 3 * at..3 * at + 3,
            positions_range: at..at + 1,
        };
        let terms: Vec<_> = keys.into_iter().enumerate().map(|(at, key)| (key, info(at))).collect();
        let (ours, theirs) = (written(&terms), reference(&terms));
        assert!(ours.len() * 100 <= theirs.len() * 102, "{} {}", ours.len(), theirs.len());
        let read =
            tantivy::termdict::TermDictionary::open(tantivy::directory::FileSlice::from(ours)).unwrap();
        for (number, (key, info)) in terms.iter().enumerate() {
            assert_eq!(read.term_ord(key).unwrap(), Some(number as u64));
            assert_eq!(read.get(key).unwrap().as_ref(), Some(info));
        }
    }

    #[test]
    fn terms_that_do_not_ascend_are_refused() {
        let info = || TermInfo { doc_freq: 1, postings_range: 0..1, positions_range: 0..0 };
        for (first, second) in [("b", "a"), ("b", "b"), ("ba", "b"), ("a", ""), ("", "")] {
            let mut writer = DictionaryWriter::new(Vec::new()).unwrap();
            writer.insert(first.as_bytes(), info()).unwrap();
            assert!(writer.insert(second.as_bytes(), info()).is_err(), "{first:?} {second:?}");
        }
    }

    fn within(key: &[u8], from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
        let above = match from {
            Bound::Included(from) => key >= from,
            Bound::Excluded(from) => key > from,
            Bound::Unbounded => true,
        };
        above
            && match to {
                Bound::Included(to) => key <= to,
                Bound::Excluded(to) => key < to,
                Bound::Unbounded => true,
            }
    }

    /// Matches what has a letter so often at most.
    struct AtMost(usize);

    impl Automaton for AtMost {
        type State = usize;

        fn start(&self) -> usize {
            0
        }
        fn is_match(&self, seen: &usize) -> bool {
            seen.is_multiple_of(2) && *seen <= self.0
        }
        fn can_match(&self, seen: &usize) -> bool {
            *seen <= self.0
        }
        fn accept(&self, seen: &usize, byte: u8) -> usize {
            seen + usize::from(byte == b'a')
        }
    }

    #[test]
    fn walks_find_what_is_within_bounds() {
        let mut random = StdRng::seed_from_u64(5);
        for round in 0..400 {
            let terms = terms(&mut random, if round % 20 == 0 { 4_000 } else { 40 });
            let dictionary = dictionary(&terms);
            for _ in 0..12 {
                let mut bound = || match terms.len() {
                    0 => vec![b'a'],
                    many => {
                        let mut key = terms[random.random_range(0..many)].0.clone();
                        key.truncate(random.random_range(0..9));
                        if random.random_bool(0.3) {
                            key.push([0, b'b', b'm', 0xff][random.random_range(0..4)]);
                        }
                        key
                    }
                };
                let (low, high) = (bound(), bound());
                let mut side = |key| match random.random_range(0..5) {
                    0 => Bound::Unbounded,
                    1 | 2 => Bound::Included(key),
                    _ => Bound::Excluded(key),
                };
                let (from, to) = (side(low.as_slice()), side(high.as_slice()));
                let mut found = Vec::new();
                dictionary
                    .visit(from, to, |key, info| {
                        found.push((key.to_vec(), info.clone()));
                        Ok(true)
                    })
                    .unwrap();
                let mut expected = terms.clone();
                expected.retain(|(key, _)| within(key, from, to));
                assert_eq!(found, expected, "{from:?} {to:?}");
                let mut some = 0;
                dictionary
                    .visit(from, to, |_, _| {
                        some += 1;
                        Ok(some < 3)
                    })
                    .unwrap();
                assert_eq!(some, expected.len().min(3));
            }
        }
    }

    #[test]
    fn walks_follow_an_automaton() {
        let mut random = StdRng::seed_from_u64(6);
        for _ in 0..200 {
            let terms = terms(&mut random, 400);
            let dictionary = dictionary(&terms);
            for start in [&b""[..], b"a", b"ab", b"z", b"\0a", b"q"] {
                let automaton = AtMost(random.random_range(0..4));
                let mut found = Vec::new();
                dictionary
                    .visit_matching(start, &automaton, |key, info| {
                        found.push((key.to_vec(), info.clone()));
                        Ok(true)
                    })
                    .unwrap();
                let mut expected = terms.clone();
                expected.retain(|(key, _)| {
                    key.strip_prefix(start).is_some_and(|rest| {
                        let seen = rest.iter().filter(|byte| **byte == b'a').count();
                        automaton.is_match(&seen)
                    })
                });
                assert_eq!(found, expected, "{start:?}");
            }
        }
    }

    #[test]
    fn bytes_that_are_cut_are_refused() {
        let info = TermInfo { doc_freq: 1, postings_range: 0..1, positions_range: 0..0 };
        let bytes = written(&[(b"key".to_vec(), info)]);
        for len in 0..bytes.len() {
            assert!(Dictionary::open(&OwnedBytes::new(bytes[..len].to_vec())).is_err(), "{len}");
        }
    }
}
