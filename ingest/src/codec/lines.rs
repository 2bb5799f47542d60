//! Cutting a stream of bytes at a delimiter.

/// Longest line by default, in bytes. What is longer is cut.
pub(crate) const MAX_LINE_BYTES: usize = 16 << 20;
/// Tag of events whose line was cut.
pub(crate) const TOO_LONG: &str = "_linetoolong";

/// Bytes of a stream that no delimiter has ended yet.
#[derive(Debug)]
pub(crate) struct Lines {
    delimiter: Vec<u8>,
    max_bytes: usize,
    kept: Vec<u8>,
    /// Length of the kept bytes that was searched.
    searched: usize,
}

impl Lines {
    /// Lines of a stream; the delimiter is not empty.
    pub(crate) fn new(delimiter: &str, max_bytes: usize) -> Self {
        Self { delimiter: delimiter.as_bytes().to_vec(), max_bytes, kept: Vec::new(), searched: 0 }
    }

    /// Takes bytes and hands on each line that they end, without its delimiter. A line that is too long is handed on in
    /// pieces, with `true` for all but the last.
    pub(crate) fn push(&mut self, bytes: &[u8], mut line: impl FnMut(&[u8], bool)) {
        let mut bytes = bytes;
        if !self.kept.is_empty() {
            // The first delimiter ends the kept line. Lines behind it are cut in place, without a copy.
            let end = match self.delimiter.as_slice() {
                [single] => memchr::memchr(*single, bytes).map_or(bytes.len(), |at| at + 1),
                _ => bytes.len(),
            };
            let (first, behind) = bytes.split_at(end);
            let mut kept = std::mem::take(&mut self.kept);
            kept.extend_from_slice(first);
            let rest = self.cut(&kept, self.searched, &mut line).len();
            kept.drain(..kept.len() - rest);
            self.kept = kept;
            bytes = behind;
        }
        if self.kept.is_empty() {
            let rest = self.cut(bytes, 0, &mut line);
            self.kept.extend_from_slice(rest);
        }
        while self.kept.len() > self.max_bytes {
            let rest = self.kept.split_off(self.max_bytes);
            line(&self.kept, true);
            self.kept = rest;
        }
        // The end of what is kept may be the beginning of a delimiter.
        self.searched = (self.kept.len() + 1).saturating_sub(self.delimiter.len());
    }

    /// Hands on the lines that end in `bytes` and answers what is behind the last. Nothing ends before `from`.
    fn cut<'a>(&self, bytes: &'a [u8], from: usize, line: &mut impl FnMut(&[u8], bool)) -> &'a [u8] {
        let (mut rest, mut from) = (bytes, from);
        while let Some(at) = find(rest, &self.delimiter, from) {
            let (mut found, behind) = rest.split_at(at);
            while found.len() > self.max_bytes {
                let (piece, more) = found.split_at(self.max_bytes);
                line(piece, true);
                found = more;
            }
            line(found, false);
            rest = behind.get(self.delimiter.len()..).unwrap_or_default();
            from = 0;
        }
        rest
    }

    /// Hands on what is kept, if anything is.
    pub(crate) fn finish(&mut self, line: impl FnOnce(&[u8])) {
        self.searched = 0;
        let kept = std::mem::take(&mut self.kept);
        if !kept.is_empty() {
            line(&kept);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}

fn find(bytes: &[u8], delimiter: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let at = match delimiter {
        [single] => memchr::memchr(*single, rest)?,
        several => memchr::memmem::find(rest, several)?,
    };
    Some(from + at)
}
