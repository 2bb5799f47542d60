//! Writes a dictionary: the transducer from terms to their numbers, then what is known of each, in blocks.

use std::io::{self, Write};

use tantivy::postings::TermInfo;

use super::transducer::TransducerWriter;
use super::{BLOCK_TERMS, KNOWN, WIDEST};

/// Writes terms in ascending order.
#[derive(Debug)]
pub(in crate::bundle) struct DictionaryWriter<W> {
    terms: TransducerWriter<W>,
    infos: Infos,
}

impl<W: Write> DictionaryWriter<W> {
    /// Begins one without a term.
    pub(in crate::bundle) fn new(out: W) -> io::Result<Self> {
        Ok(Self { terms: TransducerWriter::new(out)?, infos: Infos::default() })
    }

    /// Adds a term above all before; its postings and positions begin where those of the one before end.
    ///
    /// # Errors
    /// The term is not above the one before, or its postings are longer than 4 GiB; or what it is written to fails.
    pub(in crate::bundle) fn insert(&mut self, term: &[u8], info: TermInfo) -> io::Result<()> {
        self.terms.insert(term)?;
        self.infos.push(info)
    }

    /// Ends the dictionary and returns what it was written to.
    pub(in crate::bundle) fn finish(self) -> io::Result<W> {
        let Self { terms, mut infos } = self;
        let mut out = terms.finish()?;
        infos.end_block()?;
        out.write_all(&(infos.blocks.len() as u64).to_le_bytes())?;
        out.write_all(&infos.terms.to_le_bytes())?;
        out.write_all(&infos.blocks)?;
        out.write_all(&infos.bits)?;
        out.write_all(&(16 + infos.blocks.len() as u64 + infos.bits.len() as u64).to_le_bytes())?;
        out.write_all(&KNOWN)?;
        Ok(out)
    }
}

/// Data of terms.
#[derive(Debug, Default)]
struct Infos {
    /// Of each block where its bits begin, its first term, and three widths.
    blocks: Vec<u8>,
    /// The others of each block as differences to the first, and where the last ones end.
    bits: Vec<u8>,
    /// The block that is being filled.
    block: Vec<TermInfo>,
    terms: u64,
}

impl Infos {
    fn push(&mut self, info: TermInfo) -> io::Result<()> {
        self.terms += 1;
        self.block.push(info);
        if self.block.len() == BLOCK_TERMS { self.end_block() } else { Ok(()) }
    }

    fn end_block(&mut self) -> io::Result<()> {
        let ([first, others @ ..], Some(last)) = (self.block.as_slice(), self.block.last()) else {
            return Ok(());
        };
        let too_long =
            |_| io::Error::new(io::ErrorKind::InvalidInput, "postings of a term take more than 4 GiB");
        let len = |range: &std::ops::Range<usize>| u32::try_from(range.len()).map_err(too_long);
        let since = |at: usize, start: usize| at.saturating_sub(start) as u64;
        let postings_end = since(last.postings_range.end, first.postings_range.start);
        let positions_end = since(last.positions_range.end, first.positions_range.start);
        let most_rows = others.iter().map(|info| info.doc_freq).max().unwrap_or(0);
        let [rows, postings, positions] = [u64::from(most_rows), postings_end, positions_end].map(width);
        if postings.max(positions) > WIDEST {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a dictionary has too long postings"));
        }
        self.blocks.extend_from_slice(&(self.bits.len() as u64).to_le_bytes());
        self.blocks.extend_from_slice(&first.doc_freq.to_le_bytes());
        for range in [&first.postings_range, &first.positions_range] {
            self.blocks.extend_from_slice(&(range.start as u64).to_le_bytes());
            self.blocks.extend_from_slice(&len(range)?.to_le_bytes());
        }
        self.blocks.extend([rows, postings, positions].map(|width| width as u8));
        let mut packer = Packer { out: &mut self.bits, word: 0, filled: 0 };
        for info in others {
            packer.push(since(info.postings_range.start, first.postings_range.start), postings);
            packer.push(since(info.positions_range.start, first.positions_range.start), positions);
            packer.push(info.doc_freq.into(), rows);
        }
        packer.push(postings_end, postings);
        packer.push(positions_end, positions);
        packer.end();
        self.block.clear();
        Ok(())
    }
}

/// Bits that a number takes.
fn width(number: u64) -> u32 {
    u64::BITS - number.leading_zeros()
}

/// Appends numbers of less than 64 bits, the lowest bits first.
struct Packer<'a> {
    out: &'a mut Vec<u8>,
    word: u128,
    filled: u32,
}

impl Packer<'_> {
    fn push(&mut self, number: u64, width: u32) {
        self.word |= u128::from(number) << self.filled;
        self.filled += width;
        if self.filled >= u64::BITS {
            self.out.extend_from_slice(&(self.word as u64).to_le_bytes());
            self.word >>= u64::BITS;
            self.filled -= u64::BITS;
        }
    }

    /// Fills the last byte.
    fn end(self) {
        let bytes = self.filled.div_ceil(8) as usize;
        self.out.extend_from_slice(&(self.word as u64).to_le_bytes()[..bytes]);
    }
}
