//! Escapes and classes in brackets, as `java.util.regex.Pattern` reads them.

use regex_syntax::hir::ClassUnicode;

use super::class;
use super::syntax::{Assertion, Node, Parser};

/// An escape that stands for characters.
enum Escaped {
    /// One code point.
    Code(u32),
    Class(ClassUnicode),
}

impl Parser {
    /// Reads what stands behind a backslash, outside of classes.
    pub(super) fn escape(&mut self) -> Result<Node, String> {
        let unix = self.flags().unix_lines;
        let unicode = self.flags().unicode_class;
        let assertion = match self.ahead(0) {
            Some('A') => Assertion::TextStart,
            Some('z') => Assertion::TextEnd,
            Some('Z') => Assertion::FinalEnd { unix },
            Some('G') => Assertion::PreviousEnd,
            Some('b') if self.ahead(1) == Some('{') && self.ahead(2) == Some('g') => {
                return Err("\\b{g} is not supported; take \\b".to_owned());
            }
            Some('b') => Assertion::WordBoundary { unicode, negated: false },
            Some('B') => Assertion::WordBoundary { unicode, negated: true },
            Some('R') => {
                self.raw();
                let line_feed = Node::Class(class::ranges([('\n', '\n')]));
                let pair = Node::Concat(vec![Node::Class(class::ranges([('\r', '\r')])), line_feed]);
                let single = class::predefined('v', false).unwrap_or_else(ClassUnicode::empty);
                return Ok(Node::Alternate(vec![pair, Node::Class(single)]));
            }
            Some('k') => {
                self.raw();
                if self.raw() != Some('<') {
                    return Err("\\k is not followed by '<' for named capturing group".to_owned());
                }
                let name = self.group_name()?;
                let group = self
                    .group_of(&name)
                    .ok_or_else(|| format!("named capturing group <{name}> does not exist"))?;
                return Ok(Node::BackReference { group, case: self.case() });
            }
            Some(digit @ '1'..='9') => {
                self.raw();
                return Ok(self.back_reference(digit));
            }
            _ => {
                return Ok(match self.escaped_character()? {
                    Escaped::Code(code) => self.literal(code),
                    Escaped::Class(class) => Node::Class(class),
                });
            }
        };
        self.raw();
        Ok(Node::Assertion(assertion))
    }

    /// Reads a reference by number: further digits belong to it while there is such a group.
    fn back_reference(&mut self, first: char) -> Node {
        let mut group = first.to_digit(10).unwrap_or(0) as usize;
        while let Some(digit) = self.ahead(0).and_then(|c| c.to_digit(10)) {
            let longer = group * 10 + digit as usize;
            if longer > self.groups() {
                break;
            }
            group = longer;
            self.raw();
        }
        Node::BackReference { group, case: self.case() }
    }

    fn escaped_character(&mut self) -> Result<Escaped, String> {
        let c = self.raw().ok_or("Unexpected internal error: the pattern ends with a backslash")?;
        Ok(Escaped::Code(match c {
            'd' | 'D' | 'w' | 'W' | 's' | 'S' | 'h' | 'H' | 'v' | 'V' => {
                let class = class::predefined(c, self.flags().unicode_class);
                return class.map(Escaped::Class).ok_or_else(illegal_escape);
            }
            'p' | 'P' => return self.property(c == 'P').map(Escaped::Class),
            't' => 0x09,
            'n' => 0x0a,
            'r' => 0x0d,
            'f' => 0x0c,
            'a' => 0x07,
            'e' => 0x1b,
            'c' => u32::from(self.raw().ok_or("Illegal control escape sequence")?) ^ 64,
            '0' => self.octal()?,
            'x' => self.hexadecimal()?,
            'u' => self.utf16()?,
            'X' | 'N' => return Err(format!("\\{c} is not supported; write the characters themselves")),
            c if c.is_ascii_alphanumeric() => return Err(illegal_escape()),
            c => u32::from(c),
        }))
    }

    /// Reads one to three digits; three only up to 377.
    fn octal(&mut self) -> Result<u32, String> {
        let digit = |parser: &Self| parser.ahead(0).and_then(|c| c.to_digit(8));
        let mut code = digit(self).ok_or("Illegal octal escape sequence")?;
        self.raw();
        for most in [u32::MAX, 3] {
            let first = code >> 3;
            let Some(next) = digit(self).filter(|_| most == u32::MAX || first <= most) else { break };
            self.raw();
            code = code * 8 + next;
        }
        Ok(code)
    }

    /// Reads two digits, or any number of them in braces.
    fn hexadecimal(&mut self) -> Result<u32, String> {
        let failed = || "Illegal hexadecimal escape sequence".to_owned();
        if self.ahead(0) != Some('{') {
            return self.digits(2).ok_or_else(failed);
        }
        self.raw();
        let mut code = None;
        loop {
            match self.raw() {
                Some('}') => return code.ok_or_else(failed),
                Some(c) => {
                    let digit = c.to_digit(16).ok_or_else(failed)?;
                    code = Some(code.unwrap_or(0_u32) * 16 + digit);
                    if code.is_some_and(|code| code > 0x10_ffff) {
                        return Err("Hexadecimal codepoint is too big".to_owned());
                    }
                }
                None => return Err("Unclosed hexadecimal escape sequence".to_owned()),
            }
        }
    }

    /// Reads four digits; two halves of a surrogate pair are one character.
    fn utf16(&mut self) -> Result<u32, String> {
        let high = self.digits(4).ok_or("Illegal Unicode escape sequence")?;
        if (0xd800..0xdc00).contains(&high) && self.ahead(0) == Some('\\') && self.ahead(1) == Some('u') {
            let low = (2..6).try_fold(0, |code, at| Some(code * 16 + self.ahead(at)?.to_digit(16)?));
            if let Some(low @ 0xdc00..0xe000) = low {
                for _ in 0..6 {
                    self.raw();
                }
                return Ok(0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00));
            }
        }
        Ok(high)
    }

    fn digits(&mut self, count: usize) -> Option<u32> {
        (0..count).try_fold(0, |code, _| Some(code * 16 + self.raw()?.to_digit(16)?))
    }

    /// Reads `L` or `{name}`.
    fn property(&mut self, negated: bool) -> Result<ClassUnicode, String> {
        let mut name = String::new();
        match self.next() {
            Some('{') => loop {
                match self.raw() {
                    Some('}') => break,
                    Some(c) => name.push(c),
                    None => return Err("Unclosed character family".to_owned()),
                }
            },
            Some(c) => name.push(c),
            None => return Err("Illegal/unsupported escape sequence".to_owned()),
        }
        let flags = self.flags();
        let class = class::property(&name, flags.unicode_class, flags.ignore_case)
            .ok_or_else(|| format!("Unknown character property name {{{name}}}"))?;
        Ok(if negated { class::negate(class) } else { class })
    }

    /// Reads a class behind its bracket, or behind `&&`, where the bracket that closes it is left for the class around.
    pub(super) fn class(&mut self, consume: bool) -> Result<ClassUnicode, String> {
        self.descend()?;
        let negated = consume && self.next_if('^');
        let mut class: Option<ClassUnicode> = None;
        let add = |class: &mut Option<ClassUnicode>, more: ClassUnicode| match class {
            Some(class) => class.union(&more),
            None => *class = Some(more),
        };
        loop {
            match self.peek().ok_or("Unclosed character class")? {
                '[' => {
                    self.raw();
                    let inner = self.class(true)?;
                    add(&mut class, inner);
                }
                '&' if self.ahead(1) == Some('&') => {
                    self.raw();
                    self.raw();
                    let right = self.right_of_and()?;
                    match (&mut class, right) {
                        (Some(class), Some(right)) => class.intersect(&right),
                        (None, Some(right)) => class = Some(right),
                        (None, None) => return Err("Bad class syntax".to_owned()),
                        (Some(_), None) => {}
                    }
                }
                // A bracket that comes first is a character.
                ']' if class.is_some() => {
                    if consume {
                        self.raw();
                    }
                    break;
                }
                _ => {
                    let range = self.range()?;
                    add(&mut class, range);
                }
            }
        }
        self.ascend();
        let class = class.unwrap_or_else(ClassUnicode::empty);
        Ok(if negated { class::negate(class) } else { class })
    }

    /// Reads what stands between `&&` and the next of it, or the end of the class.
    fn right_of_and(&mut self) -> Result<Option<ClassUnicode>, String> {
        let mut right: Option<ClassUnicode> = None;
        loop {
            let more = match self.peek().ok_or("Unclosed character class")? {
                ']' | '&' => return Ok(right),
                '[' => {
                    self.raw();
                    self.class(true)?
                }
                _ => self.class(false)?,
            };
            match &mut right {
                Some(right) => right.union(&more),
                None => right = Some(more),
            }
        }
    }

    /// Reads one character, a range of them, or a class behind a backslash.
    fn range(&mut self) -> Result<ClassUnicode, String> {
        let low = match self.character_in_class()? {
            Escaped::Class(class) => return Ok(class),
            Escaped::Code(code) => code,
        };
        let is_range = self.peek() == Some('-') && !matches!(self.ahead(1), Some('[' | ']') | None);
        if !is_range {
            return Ok(self.folded(class::code_points(low, low)));
        }
        self.raw();
        match self.character_in_class()? {
            Escaped::Code(high) if high >= low => Ok(self.folded(class::code_points(low, high))),
            _ => Err("Illegal character range".to_owned()),
        }
    }

    fn character_in_class(&mut self) -> Result<Escaped, String> {
        match self.next() {
            Some('\\') => self.escaped_character(),
            Some(c) => Ok(Escaped::Code(u32::from(c))),
            None => Err("Unclosed character class".to_owned()),
        }
    }
}

fn illegal_escape() -> String {
    "Illegal/unsupported escape sequence".to_owned()
}
