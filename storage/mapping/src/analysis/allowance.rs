//! The bound on what tokenizers and filters make of a text beyond its own tokens.
//!
//! Runs of characters, shingles and synonyms can turn a short text into terms of any size, long after its
//! document was acknowledged. Each stage that multiplies tokens has an [`Allowance`] for a text: it spends
//! the bytes of the tokens that it makes, and ends the text where nothing is left.

/// Output that is allowed for any text, in bytes.
const BASE_BYTES: usize = 1 << 20;
/// Output that is allowed for each byte of a text, in bytes: `ngram` from 1 to 20 makes about 500.
const BYTES_PER_BYTE: usize = 4096;
/// Most output of a text in bytes, beyond four times its own tokens, which count up to this, too.
pub(super) const MAX_ADDED_BYTES: usize = 256 << 20;
/// Cost of a token beside its bytes.
pub(super) const TOKEN_BYTES: usize = 16;

/// Bytes that may be made of so many, a byte of which becomes so many more; no bound where an [`Allowance`] for
/// them may not do.
pub(super) fn most_made(bytes: usize, growth: usize) -> usize {
    let made = bytes.saturating_mul(growth);
    if growth > BYTES_PER_BYTE && made > BASE_BYTES { usize::MAX } else { made }
}

/// Remaining output of a stage for one text.
#[derive(Debug, Default)]
pub(super) struct Allowance {
    /// Bytes of the text or the tokens that came in.
    taken: usize,
    /// Cost of those as tokens.
    own: usize,
    spent: usize,
    exhausted: bool,
}

impl Allowance {
    /// Notes a text or a token that comes in, of so many bytes.
    pub(super) fn take(&mut self, bytes: usize) {
        self.taken = self.taken.saturating_add(bytes);
        self.own = self.own.saturating_add(bytes + TOKEN_BYTES);
    }

    /// Spends what a token of so many bytes costs; tells whether it may be made.
    pub(super) fn spend(&mut self, bytes: usize) -> bool {
        let by_text = BASE_BYTES.saturating_add(self.taken.saturating_mul(BYTES_PER_BYTE));
        // What the stage before made grows with each stage of a chain: it counts up to a bound.
        let by_size = MAX_ADDED_BYTES.saturating_add(self.own.saturating_mul(4).min(MAX_ADDED_BYTES));
        self.spent = self.spent.saturating_add(bytes + TOKEN_BYTES);
        self.exhausted |= self.spent > by_text.min(by_size);
        !self.exhausted
    }

    /// Returns true if a token was left out, and all behind it.
    pub(super) fn is_exhausted(&self) -> bool {
        self.exhausted
    }
}
