//! Filtering JSON text in one pass: what is kept is copied as it is written, what is not is skipped.

use memchr::memchr2;

use super::{Place, Reach};

/// Deepest nesting of what is filtered: documents nest 128 deep, and what is around them far less.
const MAX_DEPTH: usize = 512;

/// Filters a text; `None` where it is not JSON or nests deeper than [`MAX_DEPTH`].
pub(super) fn filter(root: &Place<'_>, text: &[u8]) -> Option<Vec<u8>> {
    let mut filter = Filter { text, at: 0, out: Vec::new() };
    let first = filter.peek()?;
    let kept = filter.value(root, 0)?;
    if filter.peek().is_some() {
        return None;
    }
    if !kept {
        filter.out.extend_from_slice(if first == b'[' { b"[]" } else { b"{}" });
    }
    Some(filter.out)
}

struct Filter<'t> {
    text: &'t [u8],
    at: usize,
    out: Vec<u8>,
}

impl<'t> Filter<'t> {
    /// Writes what is kept of the next value, and tells whether anything is.
    fn value(&mut self, place: &Place<'_>, depth: usize) -> Option<bool> {
        if depth == MAX_DEPTH {
            return None;
        }
        match self.peek()? {
            b'{' => self.object(place, depth),
            b'[' => self.array(place, depth),
            _ if place.includes.is_none() => self.copy().map(|()| true),
            _ => self.skip().map(|_| false),
        }
    }

    fn object(&mut self, place: &Place<'_>, depth: usize) -> Option<bool> {
        let start = self.out.len();
        self.at += 1;
        self.out.push(b'{');
        let mut more = self.peek()? != b'}';
        let empty = !more;
        let mut kept = false;
        while more {
            let written = self.string()?;
            self.expect(b':')?;
            let reach = place.written_member(&written[1..written.len() - 1])?;
            if let Reach::Nothing = reach {
                self.skip()?;
            } else {
                let before = self.out.len();
                if kept {
                    self.out.push(b',');
                }
                self.out.extend_from_slice(written);
                self.out.push(b':');
                let some = match reach {
                    Reach::Part(below) => self.value(&below, depth + 1)?,
                    _ => self.copy().map(|()| true)?,
                };
                kept |= some;
                if !some {
                    self.out.truncate(before);
                }
            }
            more = self.goes_on(b'}')?;
        }
        self.end(place, start, empty, kept, b'}')
    }

    fn array(&mut self, place: &Place<'_>, depth: usize) -> Option<bool> {
        let start = self.out.len();
        self.at += 1;
        self.out.push(b'[');
        let mut more = self.peek()? != b']';
        let empty = !more;
        let mut kept = false;
        while more {
            let before = self.out.len();
            if kept {
                self.out.push(b',');
            }
            let some = self.value(place, depth + 1)?;
            kept |= some;
            if !some {
                self.out.truncate(before);
            }
            more = self.goes_on(b']')?;
        }
        self.end(place, start, empty, kept, b']')
    }

    /// Ends an object or array, or takes it back where nothing of it is kept.
    fn end(&mut self, place: &Place<'_>, start: usize, empty: bool, kept: bool, with: u8) -> Option<bool> {
        if empty {
            self.at += 1;
        }
        let keep = kept || (empty && place.includes.is_none());
        if keep {
            self.out.push(with);
        } else {
            self.out.truncate(start);
        }
        Some(keep)
    }

    /// Takes the comma before another member, or the end.
    fn goes_on(&mut self, end: u8) -> Option<bool> {
        let byte = self.peek()?;
        self.at += 1;
        match byte {
            b',' => Some(true),
            byte if byte == end => Some(false),
            _ => None,
        }
    }

    fn copy(&mut self) -> Option<()> {
        let value = self.skip()?;
        self.out.extend_from_slice(value);
        Some(())
    }

    /// Passes over a value, whatever is in it.
    fn skip(&mut self) -> Option<&'t [u8]> {
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

    /// Takes a string, with its quotes.
    fn string(&mut self) -> Option<&'t [u8]> {
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

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Skips white space and shows the next byte.
    fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.text.get(self.at)?;
            if !is_space(byte) {
                return Some(byte);
            }
            self.at += 1;
        }
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}
