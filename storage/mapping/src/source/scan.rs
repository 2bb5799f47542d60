//! A scanner over JSON text that was checked before: values are passed over as they are written.
//!
//! Recursion is left to callers; [`Scanner::skip`] goes over nested values in a loop.

use memchr::memchr2;

/// Reads JSON text from left to right. Every method answers `None` where the text is not JSON.
#[derive(Clone, Debug)]
pub struct Scanner<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> Scanner<'t> {
    /// Starts at the beginning of a text.
    pub fn new(text: &'t [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the number of bytes that were read.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Skips white space and shows the next byte.
    pub fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.text.get(self.at)?;
            if !is_space(byte) {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    /// Takes the byte that [`Scanner::peek`] shows.
    pub fn bump(&mut self) {
        self.at += 1;
    }

    /// Takes a byte that must come next.
    pub fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Takes the comma before another member or item, or the end of the object or array.
    pub fn goes_on(&mut self, end: u8) -> Option<bool> {
        let byte = self.peek()?;
        self.at += 1;
        match byte {
            b',' => Some(true),
            byte if byte == end => Some(false),
            _ => None,
        }
    }

    /// Takes the opening of an object or array whose end is `end`; whether anything is in it. The end of an empty one is taken, too.
    pub fn open(&mut self, end: u8) -> Option<bool> {
        self.at += 1;
        let more = self.peek()? != end;
        if !more {
            self.at += 1;
        }
        Some(more)
    }

    /// Takes a string, with its quotes.
    pub fn string(&mut self) -> Option<&'t [u8]> {
        if self.peek()? != b'"' {
            return None;
        }
        let start = self.at;
        let mut at = start + 1;
        loop {
            at += memchr2(b'"', b'\\', self.text.get(at..)?)?;
            if self.text[at] == b'"' {
                break;
            }
            at += 2;
        }
        self.at = at + 1;
        Some(&self.text[start..self.at])
    }

    /// Takes the next value, whatever is in it.
    pub fn skip(&mut self) -> Option<&'t [u8]> {
        let first = self.peek()?;
        let start = self.at;
        match first {
            b'"' => return self.string(),
            b'{' | b'[' => {
                let mut depth = 0_usize;
                loop {
                    match self.text.get(self.at)? {
                        b'"' => {
                            self.string()?;
                            continue;
                        }
                        b'{' | b'[' => depth += 1,
                        b'}' | b']' => depth -= 1,
                        _ => {}
                    }
                    self.at += 1;
                    if depth == 0 {
                        break;
                    }
                }
            }
            _ => {
                let rest = &self.text[self.at..];
                let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b':' | b'"') || is_space(*byte);
                let length = rest.iter().position(ends).unwrap_or(rest.len());
                if length == 0 {
                    return None;
                }
                self.at += length;
            }
        }
        Some(&self.text[start..self.at])
    }

    /// Returns whether nothing but white space is left.
    pub fn is_at_end(&mut self) -> bool {
        self.peek().is_none()
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}
