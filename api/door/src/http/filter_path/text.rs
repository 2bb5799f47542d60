//! Filtering JSON text in one pass: kept members are copied as they are written, others are skipped.

use millrace_mapping::source::Scanner;

use super::{MemberSelection, PatternPath};

/// Deepest nesting of what is filtered; deeper values are kept or left out as a whole.
const MAX_DEPTH: usize = 512;

/// Filters a text; `None` where it is not JSON.
pub(super) fn filter(root: &PatternPath<'_>, text: &[u8]) -> Option<Vec<u8>> {
    let mut filter = Filter { scanner: Scanner::new(text), out: Vec::new() };
    let first = filter.scanner.peek()?;
    let kept = filter.value(root, 0)?;
    if !filter.scanner.is_at_end() {
        return None;
    }
    if !kept {
        filter.out.extend_from_slice(if first == b'[' { b"[]" } else { b"{}" });
    }
    Some(filter.out)
}

struct Filter<'t> {
    scanner: Scanner<'t>,
    out: Vec<u8>,
}

impl Filter<'_> {
    /// Writes what is kept of the next value, and tells whether anything is.
    fn value(&mut self, place: &PatternPath<'_>, depth: usize) -> Option<bool> {
        match self.scanner.peek()? {
            _ if depth == MAX_DEPTH && place.includes.is_some() => self.scanner.skip().map(|_| false),
            _ if depth == MAX_DEPTH => self.copy().map(|()| true),
            b'{' => self.object(place, depth),
            b'[' => self.array(place, depth),
            _ if place.includes.is_none() => self.copy().map(|()| true),
            _ => self.scanner.skip().map(|_| false),
        }
    }

    fn object(&mut self, place: &PatternPath<'_>, depth: usize) -> Option<bool> {
        let start = self.out.len();
        self.out.push(b'{');
        let mut more = self.scanner.open(b'}')?;
        let empty = !more;
        let mut kept = false;
        while more {
            let written = self.scanner.string()?;
            self.scanner.expect(b':')?;
            let reach = place.written_member(&written[1..written.len() - 1])?;
            if let MemberSelection::Nothing = reach {
                self.scanner.skip()?;
            } else {
                let before = self.out.len();
                if kept {
                    self.out.push(b',');
                }
                self.out.extend_from_slice(written);
                self.out.push(b':');
                let some = match reach {
                    MemberSelection::Part(below) => self.value(&below, depth + 1)?,
                    _ => self.copy().map(|()| true)?,
                };
                kept |= some;
                if !some {
                    self.out.truncate(before);
                }
            }
            more = self.scanner.goes_on(b'}')?;
        }
        self.end(place, start, empty, kept, b'}')
    }

    fn array(&mut self, place: &PatternPath<'_>, depth: usize) -> Option<bool> {
        let start = self.out.len();
        self.out.push(b'[');
        let mut more = self.scanner.open(b']')?;
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
            more = self.scanner.goes_on(b']')?;
        }
        self.end(place, start, empty, kept, b']')
    }

    /// Ends an object or array, or takes it back where nothing of it is kept.
    fn end(
        &mut self,
        place: &PatternPath<'_>,
        start: usize,
        empty: bool,
        kept: bool,
        with: u8,
    ) -> Option<bool> {
        let keep = kept || (empty && place.includes.is_none());
        if keep {
            self.out.push(with);
        } else {
            self.out.truncate(start);
        }
        Some(keep)
    }

    fn copy(&mut self) -> Option<()> {
        let value = self.scanner.skip()?;
        self.out.extend_from_slice(value);
        Some(())
    }
}
