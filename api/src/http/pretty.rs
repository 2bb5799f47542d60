//! Serialized JSON with line breaks and indentation, written from text to text: values stay as they are written.

use millrace_storage::source::Scanner;

/// Deepest nesting of what is written anew: documents nest less deep.
const MAX_DEPTH: usize = 512;

/// Writes a text with two spaces of indentation and `"name" : value`, as OpenSearch prints; `None` where it is not JSON or nests deeper
/// than [`MAX_DEPTH`].
pub(super) fn pretty(text: &[u8]) -> Option<Vec<u8>> {
    let mut printer = Printer { scanner: Scanner::new(text), out: Vec::with_capacity(text.len() * 5 / 4) };
    printer.value(0)?;
    printer.out.push(b'\n');
    printer.scanner.is_at_end().then_some(printer.out)
}

struct Printer<'t> {
    scanner: Scanner<'t>,
    out: Vec<u8>,
}

impl Printer<'_> {
    fn value(&mut self, depth: usize) -> Option<()> {
        let (end, named) = match self.scanner.peek()? {
            _ if depth > MAX_DEPTH => return None,
            b'{' => (b'}', true),
            b'[' => (b']', false),
            _ => {
                let value = self.scanner.skip()?;
                self.out.extend_from_slice(value);
                return Some(());
            }
        };
        self.out.push(if named { b'{' } else { b'[' });
        let mut more = self.scanner.open(end)?;
        let empty = !more;
        while more {
            self.line(depth + 1);
            if named {
                let name = self.scanner.string()?;
                self.out.extend_from_slice(name);
                self.scanner.expect(b':')?;
                self.out.extend_from_slice(b" : ");
            }
            self.value(depth + 1)?;
            more = self.scanner.goes_on(end)?;
            if more {
                self.out.push(b',');
            }
        }
        if !empty {
            self.line(depth);
        }
        self.out.push(end);
        Some(())
    }

    fn line(&mut self, depth: usize) {
        self.out.push(b'\n');
        self.out.resize(self.out.len() + 2 * depth, b' ');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_as_they_are_written() {
        let text = br#"{ "a" : [1.0,{},[ ],{"b":"\u0041\"}"}] ,"n":1e2}"#;
        let shown = pretty(text).unwrap();
        let expected = "{\n  \"a\" : [\n    1.0,\n    {},\n    [],\n    {\n      \"b\" : \"\\u0041\\\"}\"\n    }\n  ],\n  \"n\" : 1e2\n}\n";
        assert_eq!(String::from_utf8(shown).unwrap(), expected);
        assert!(pretty(b"{\"a\"").is_none() && pretty(&[b'['; 1_000]).is_none());
    }
}
