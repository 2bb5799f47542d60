//! End of a line, in the character set of the codec that reads the lines.

use crate::codec::Charset;

/// The bytes that end a line. They count where a unit of the character set begins.
#[derive(Clone, Debug)]
pub(super) struct Delimiter {
    charset: Charset,
    bytes: Vec<u8>,
}

impl Delimiter {
    /// Makes the delimiter of a text.
    pub(super) fn new(text: &str, charset: Charset) -> Self {
        let bytes = charset.as_wide().map_or_else(|| text.as_bytes().to_vec(), |wide| wide.encode(text));
        Self { charset, bytes }
    }

    /// Makes another one in the same character set.
    pub(super) fn with_text(&self, text: &str) -> Self {
        Self::new(text, self.charset)
    }

    /// Returns the number of bytes, at least one.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    fn unit_bytes(&self) -> usize {
        self.charset.as_wide().map_or(1, |wide| wide.unit_bytes())
    }

    /// Returns the offset of the first delimiter from an offset on. The bytes begin where a line does.
    pub(super) fn find(&self, bytes: &[u8], from: usize) -> Option<usize> {
        let mut from = from;
        loop {
            let at = from + find(bytes.get(from..)?, &self.bytes)?;
            if at.is_multiple_of(self.unit_bytes()) {
                return Some(at);
            }
            from = at + 1;
        }
    }

    /// Returns the offset behind the last delimiter. The bytes are those of a file at an offset.
    pub(super) fn find_end(&self, bytes: &[u8], offset: u64) -> Option<u64> {
        let unit = self.unit_bytes() as u64;
        let is_here = |at: &usize| {
            (offset + *at as u64).is_multiple_of(unit)
                && bytes.get(*at..).is_some_and(|bytes| bytes.starts_with(&self.bytes))
        };
        let at = (0..bytes.len()).rev().find(is_here)?;
        Some(offset + (at + self.len()) as u64)
    }

    /// Cuts the delimiter off the end of a line.
    pub(super) fn strip_suffix<'a>(&self, line: &'a [u8]) -> &'a [u8] {
        line.strip_suffix(self.bytes.as_slice()).unwrap_or(line)
    }
}

fn find(bytes: &[u8], delimiter: &[u8]) -> Option<usize> {
    match delimiter {
        [one] => memchr::memchr(*one, bytes),
        [] => None,
        more => memchr::memmem::find(bytes, more),
    }
}
