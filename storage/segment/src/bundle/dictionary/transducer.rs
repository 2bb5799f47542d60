//! Writes terms in ascending order as a transducer that leads from each term to its number.
//!
//! The bytes are those of `tantivy_fst`, whose readers read them. Its own builder prepares the memory for twenty thousand
//! states whatever comes, a megabyte for each dictionary: more than most dictionaries of a refresh hold. Here what is remembered of
//! finished states grows with them, to the same bound.

use std::io::{self, Write};
use std::sync::LazyLock;

use tantivy_fst::raw::{self, Fst};

/// Address of the state that is final and leads nowhere; it is not written.
const END: u64 = 0;
/// No address at all: it lies within the header.
const NOWHERE: u64 = 1;
/// Ways from a state above which a table of all bytes says which way is whose.
const TABLE_ABOVE: usize = 32;
/// Marks of a state with one way: to the state written just before, or to any.
const ONE_TO_LAST: u8 = 0b1100_0000;
const ONE: u8 = 0b1000_0000;
/// Mark of a final state with several ways, or none.
const FINAL: u8 = 0b0100_0000;
/// Greatest number that fits beside a mark.
const BESIDE_MARK: u8 = 0b0011_1111;

/// The short form of each byte that has one, as the readers know them: its number beside a mark, else 0.
static SHORT_FORMS: LazyLock<[u8; 256]> = LazyLock::new(|| {
    let mut forms = [0; 256];
    let found = (|| -> tantivy_fst::Result<()> {
        let mut builder = raw::Builder::memory();
        for byte in 0..=u8::MAX {
            builder.add([byte, byte])?;
        }
        let sample = Fst::new(builder.into_inner()?)?;
        for way in sample.root().transitions() {
            let state = sample.node(way.addr);
            let mark = state.as_slice().last().copied().unwrap_or_default();
            if let Some(form) = forms.get_mut(usize::from(way.inp)) {
                *form = mark & BESIDE_MARK;
            }
        }
        Ok(())
    })();
    found.expect("writing to memory does not fail");
    forms
});

/// A way from a state to one that is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StateTransition {
    byte: u8,
    /// Number that the transition adds to the number of a term.
    adds: u64,
    to: u64,
}

/// A state: whether a term ends here, and what this adds to its number; and where it goes on, by ascending byte.
#[derive(Debug, Default, PartialEq, Eq)]
struct State {
    is_final: bool,
    adds: u64,
    ways: Vec<StateTransition>,
}

/// A state on the path of the last term, which may get more ways.
#[derive(Debug, Default)]
struct Open {
    state: State,
    /// The way on that path, its end not finished: its byte, and what it adds.
    last: Option<(u8, u64)>,
}

/// Writes a transducer.
#[derive(Debug)]
pub(super) struct TransducerWriter<W> {
    out: W,
    written: u64,
    /// States of the path of the last term, from the root on, and what is left of longer ones.
    path: Vec<Open>,
    /// Bytes of the last term.
    depth: usize,
    terms: u64,
    /// Address of the state that was written last.
    last: u64,
    finished: StateRegistry,
    /// A state's bytes.
    encoded: Vec<u8>,
}

impl<W: Write> TransducerWriter<W> {
    /// Begins one without a term.
    pub(super) fn new(mut out: W) -> io::Result<Self> {
        // Version, and a type that nothing uses.
        out.write_all(&raw::VERSION.to_le_bytes())?;
        out.write_all(&0_u64.to_le_bytes())?;
        Ok(Self {
            out,
            written: 16,
            path: vec![Open::default()],
            depth: 0,
            terms: 0,
            last: NOWHERE,
            finished: StateRegistry::default(),
            encoded: Vec::new(),
        })
    }

    /// Adds the next term, whose number is how many there were before.
    ///
    /// # Errors
    /// The term is not above the last one; or what it is written to fails.
    pub(super) fn insert(&mut self, term: &[u8]) -> io::Result<()> {
        let (mut shared, mut number) = (0, self.terms);
        while let Some(byte) = term.get(shared)
            && let Some((last, adds)) = &mut self.path[shared].last
            && last == byte
        {
            let common = number.min(*adds);
            let moved = *adds - common;
            *adds = common;
            number -= common;
            shared += 1;
            if moved > 0 {
                self.path[shared].add(moved);
            }
        }
        let is_above = match (term.get(shared), self.path[shared].last) {
            (Some(byte), Some((last, _))) => *byte > last,
            (Some(_), None) => true,
            (None, _) => self.terms == 0,
        };
        if !is_above {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "terms do not ascend"));
        }
        self.terms += 1;
        self.finish_below(shared)?;
        let Some((first, rest)) = term.get(shared..).and_then(<[u8]>::split_first) else {
            self.path[0].state.is_final = true;
            return Ok(());
        };
        self.path[shared].last = Some((*first, number));
        for byte in rest {
            self.step().last = Some((*byte, 0));
        }
        self.step().state.is_final = true;
        Ok(())
    }

    /// Ends the transducer and returns what it was written to.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.finish_below(0)?;
        let root = self.write_open(0)?;
        self.out.write_all(&self.terms.to_le_bytes())?;
        self.out.write_all(&root.to_le_bytes())?;
        Ok(self.out)
    }

    /// Goes one byte deeper, to a state without anything.
    fn step(&mut self) -> &mut Open {
        self.depth += 1;
        if self.path.len() == self.depth {
            self.path.push(Open::default());
        }
        let open = &mut self.path[self.depth];
        open.last = None;
        open.state.is_final = false;
        open.state.adds = 0;
        open.state.ways.clear();
        open
    }

    /// Writes the states of the path that are deeper than so many bytes: no term will add to them.
    fn finish_below(&mut self, depth: usize) -> io::Result<()> {
        while self.depth > depth {
            let to = self.write_open(self.depth)?;
            self.depth -= 1;
            let open = &mut self.path[self.depth];
            if let Some((byte, adds)) = open.last.take() {
                open.state.ways.push(StateTransition { byte, adds, to });
            }
        }
        Ok(())
    }

    /// Writes a state of the path, unless there is one like it; returns its address.
    fn write_open(&mut self, depth: usize) -> io::Result<u64> {
        let state = &self.path[depth].state;
        if state.is_final && state.ways.is_empty() && state.adds == 0 {
            return Ok(END);
        }
        let hash = state.hash();
        if let Some(address) = self.finished.find(hash, state) {
            return Ok(address);
        }
        self.encoded.clear();
        state.encode(self.written, self.last, &mut self.encoded);
        self.out.write_all(&self.encoded)?;
        self.written += self.encoded.len() as u64;
        self.last = self.written - 1;
        self.finished.remember(hash, state, self.last);
        Ok(self.last)
    }
}

impl Open {
    /// Moves what the way here added to what is behind it.
    fn add(&mut self, moved: u64) {
        if self.state.is_final {
            self.state.adds += moved;
        }
        self.state.ways.iter_mut().for_each(|way| way.adds += moved);
        if let Some((_, adds)) = &mut self.last {
            *adds += moved;
        }
    }
}

impl State {
    /// FNV-1a over its parts. Who makes them collide gets a larger dictionary, nothing else.
    fn hash(&self) -> u64 {
        const PRIME: u64 = 1_099_511_628_211;
        let mut hash = 14_695_981_039_346_656_037;
        let mut add = |part: u64| hash = (hash ^ part).wrapping_mul(PRIME);
        add(u64::from(self.is_final));
        add(self.adds);
        for way in &self.ways {
            add(u64::from(way.byte));
            add(way.adds);
            add(way.to);
        }
        // The upper bits are the better ones.
        hash ^ hash >> 32
    }

    /// Appends the bytes of the state, which come to stand at an address, behind the state at `last`.
    fn encode(&self, address: u64, last: u64, out: &mut Vec<u8>) {
        let pack = |out: &mut Vec<u8>, number: u64, width: u8| {
            out.extend_from_slice(&number.to_le_bytes()[..usize::from(width)]);
        };
        let distance = |way: &StateTransition| if way.to == END { 0 } else { address - way.to };
        let byte_and_mark = |out: &mut Vec<u8>, byte: u8, mark: u8| {
            let form = SHORT_FORMS[usize::from(byte)];
            if form == 0 {
                out.push(byte);
            }
            out.push(mark | form);
        };
        match self.ways.as_slice() {
            [way] if !self.is_final && way.to == last && way.adds == 0 => {
                byte_and_mark(out, way.byte, ONE_TO_LAST);
            }
            [way] if !self.is_final => {
                let adds = if way.adds == 0 { 0 } else { width(way.adds) };
                let distances = width(distance(way));
                pack(out, way.adds, adds);
                pack(out, distance(way), distances);
                out.push(distances << 4 | adds);
                byte_and_mark(out, way.byte, ONE);
            }
            ways => {
                let most = ways.iter().map(|way| way.adds).fold(self.adds, u64::max);
                let adds = if most == 0 { 0 } else { width(most) };
                let distances = ways.iter().map(|way| width(distance(way))).max().unwrap_or(0);
                if self.is_final {
                    pack(out, self.adds, adds);
                }
                ways.iter().rev().for_each(|way| pack(out, way.adds, adds));
                ways.iter().rev().for_each(|way| pack(out, distance(way), distances));
                out.extend(ways.iter().rev().map(|way| way.byte));
                if ways.len() > TABLE_ABOVE {
                    let mut table = [u8::MAX; 256];
                    for (place, way) in ways.iter().enumerate() {
                        table[usize::from(way.byte)] = place as u8;
                    }
                    out.extend_from_slice(&table);
                }
                out.push(distances << 4 | adds);
                let mark = if self.is_final { FINAL } else { 0 };
                match u8::try_from(ways.len()) {
                    Ok(count) if (1..=BESIDE_MARK).contains(&count) => out.push(mark | count),
                    // All 256 are written as 1, which is never written here otherwise.
                    Ok(count) => out.extend_from_slice(&[count, mark]),
                    Err(_) => out.extend_from_slice(&[1, mark]),
                }
            }
        }
    }
}

/// Bytes that a number takes.
fn width(number: u64) -> u8 {
    ((u64::BITS - number.leading_zeros()).div_ceil(8) as u8).max(1)
}

/// Some of the states that were written, by their parts: ends of terms are often the same. A row has two, the one that was used
/// last in front.
#[derive(Debug, Default)]
struct StateRegistry {
    rows: Vec<[WrittenState; 2]>,
    remembered: usize,
}

#[derive(Debug)]
struct WrittenState {
    hash: u64,
    /// [`NOWHERE`] where there is none.
    address: u64,
    state: State,
}

impl Default for WrittenState {
    fn default() -> Self {
        Self { hash: 0, address: NOWHERE, state: State::default() }
    }
}

impl StateRegistry {
    /// Rows at first, and at most: a megabyte.
    const LEAST: usize = 64;
    const MOST: usize = 8_192;

    fn find(&mut self, hash: u64, state: &State) -> Option<u64> {
        let place = self.place(hash);
        let row = self.rows.get_mut(place)?;
        let is_it = |one: &WrittenState| one.address != NOWHERE && one.hash == hash && one.state == *state;
        if !is_it(&row[0]) {
            if !is_it(&row[1]) {
                return None;
            }
            row.swap(0, 1);
        }
        Some(row[0].address)
    }

    fn remember(&mut self, hash: u64, state: &State, address: u64) {
        if 2 * self.remembered >= self.rows.len() && self.rows.len() < Self::MOST {
            self.grow();
        }
        let place = self.place(hash);
        let Some(row) = self.rows.get_mut(place) else { return };
        self.remembered += usize::from(row[1].address == NOWHERE);
        row.swap(0, 1);
        let one = &mut row[0];
        (one.hash, one.address) = (hash, address);
        (one.state.is_final, one.state.adds) = (state.is_final, state.adds);
        one.state.ways.clear();
        one.state.ways.extend_from_slice(&state.ways);
    }

    fn grow(&mut self) {
        let rows = (2 * self.rows.len()).max(Self::LEAST);
        let old = std::mem::take(&mut self.rows);
        self.rows.resize_with(rows, Default::default);
        // The one used last comes last, to the front.
        for one in old.into_iter().flat_map(|[first, second]| [second, first]) {
            if one.address == NOWHERE {
                continue;
            }
            let place = self.place(one.hash);
            let row = &mut self.rows[place];
            row.swap(0, 1);
            row[0] = one;
        }
    }

    /// The row of a hash; there are as many as a power of two, or none.
    fn place(&self, hash: u64) -> usize {
        hash as usize & self.rows.len().wrapping_sub(1)
    }
}
