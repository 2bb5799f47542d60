//! The syntax of `java.util.regex.Pattern`, and the tree that it is read into.
//!
//! Flags are part of the tree: a letter without case is a class of two, `.` is the class of what it matches. What cannot
//! be matched is refused: `\X`, `\N{…}`, `\b{g}`.

use regex_syntax::hir::ClassUnicode;

use super::class::{self, LINE_TERMINATORS};

/// Deepest nesting of groups and classes.
const MAX_DEPTH: usize = 100;
/// Most capturing groups.
const MAX_GROUPS: usize = 1_000;

/// Part of a pattern.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Class(ClassUnicode),
    Concat(Vec<Node>),
    Alternate(Vec<Node>),
    Repeat { node: Box<Node>, min: u32, max: Option<u32>, kind: Repetition },
    Group(usize, Box<Node>),
    Atomic(Box<Node>),
    Look { behind: bool, negated: bool, node: Box<Node> },
    BackReference { group: usize, case: Case },
    Assertion(Assertion),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repetition {
    Greedy,
    Reluctant,
    Possessive,
}

/// Letters that a back reference takes for equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    Sensitive,
    IgnoreAscii,
    Ignore,
}

/// Condition on a position. `unix` is UNIX_LINES.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Assertion {
    TextStart,
    TextEnd,
    /// The end, or before a line terminator at the end.
    FinalEnd {
        unix: bool,
    },
    LineStart {
        unix: bool,
    },
    LineEnd {
        unix: bool,
    },
    WordBoundary {
        unicode: bool,
        negated: bool,
    },
    /// The end of the match before.
    PreviousEnd,
}

/// Flags of a pattern, which inline options change.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flags {
    pub(super) ignore_case: bool,
    pub(super) unicode_case: bool,
    pub(super) multi_line: bool,
    pub(super) dot_all: bool,
    pub(super) comments: bool,
    pub(super) unix_lines: bool,
    pub(super) unicode_class: bool,
    pub(super) literal: bool,
}

/// A pattern that was read: its tree, and the names of its groups by number.
#[derive(Debug)]
pub(super) struct ParsedPattern {
    pub(super) node: Node,
    pub(super) names: Vec<Option<String>>,
}

/// Reads a pattern.
///
/// # Errors
/// The error, in the words of Java.
pub(super) fn parse(pattern: &str, flags: Flags) -> Result<ParsedPattern, String> {
    let characters = if flags.literal { pattern.chars().collect() } else { unquote(pattern) };
    let mut parser = Parser { characters, at: 0, flags, names: vec![None], depth: 0 };
    if flags.literal {
        let characters = std::mem::take(&mut parser.characters);
        let node = Node::Concat(characters.into_iter().map(|c| parser.literal(u32::from(c))).collect());
        return Ok(ParsedPattern { node, names: parser.names });
    }
    let node = parser.alternation()?;
    if parser.peek().is_some() {
        return Err("Unmatched closing ')'".to_owned());
    }
    Ok(ParsedPattern { node, names: parser.names })
}

/// Puts a backslash before each sign between `\Q` and `\E`.
fn unquote(pattern: &str) -> Vec<char> {
    let mut out = Vec::with_capacity(pattern.len());
    let mut rest = pattern.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\\' if rest.peek() == Some(&'Q') => {
                rest.next();
                while let Some(c) = rest.next() {
                    if c == '\\' && rest.peek() == Some(&'E') {
                        rest.next();
                        break;
                    }
                    if c.is_ascii() && !c.is_ascii_alphanumeric() {
                        out.push('\\');
                    }
                    out.push(c);
                }
            }
            '\\' => {
                out.push(c);
                out.extend(rest.next());
            }
            c => out.push(c),
        }
    }
    out
}

pub(super) struct Parser {
    characters: Vec<char>,
    at: usize,
    flags: Flags,
    names: Vec<Option<String>>,
    depth: usize,
}

impl Parser {
    /// The next character, which is neither space nor comment where COMMENTS is set.
    pub(super) fn peek(&mut self) -> Option<char> {
        while self.flags.comments {
            match self.characters.get(self.at) {
                Some(' ' | '\t'..='\r') => self.at += 1,
                Some('#') => {
                    let rest = &self.characters[self.at..];
                    let ends: &[char] = if self.flags.unix_lines { &['\n'] } else { &LINE_TERMINATORS };
                    self.at += rest.iter().position(|c| ends.contains(c)).unwrap_or(rest.len());
                }
                _ => break,
            }
        }
        self.characters.get(self.at).copied()
    }

    pub(super) fn next(&mut self) -> Option<char> {
        let next = self.peek();
        self.at += usize::from(next.is_some());
        next
    }

    pub(super) fn next_if(&mut self, wanted: char) -> bool {
        let is_next = self.peek() == Some(wanted);
        self.at += usize::from(is_next);
        is_next
    }

    /// The character at a distance, spaces included.
    pub(super) fn ahead(&self, distance: usize) -> Option<char> {
        self.characters.get(self.at + distance).copied()
    }

    pub(super) fn raw(&mut self) -> Option<char> {
        let next = self.ahead(0);
        self.at += usize::from(next.is_some());
        next
    }

    pub(super) fn flags(&self) -> Flags {
        self.flags
    }

    pub(super) fn descend(&mut self) -> Result<(), String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("groups are nested more than {MAX_DEPTH} deep"));
        }
        Ok(())
    }

    pub(super) fn ascend(&mut self) {
        self.depth -= 1;
    }

    fn alternation(&mut self) -> Result<Node, String> {
        let mut alternatives = vec![self.sequence()?];
        while self.next_if('|') {
            alternatives.push(self.sequence()?);
        }
        Ok(match (alternatives.len(), alternatives.pop()) {
            (1, Some(only)) => only,
            (_, last) => {
                alternatives.extend(last);
                Node::Alternate(alternatives)
            }
        })
    }

    fn sequence(&mut self) -> Result<Node, String> {
        let mut nodes = Vec::new();
        while let Some(c) = self.peek() {
            let node = match c {
                '|' | ')' => break,
                '(' => match self.group()? {
                    Some(node) => node,
                    None => continue,
                },
                '[' => {
                    self.at += 1;
                    Node::Class(self.class(true)?)
                }
                '*' | '+' | '?' => return Err(format!("Dangling meta character '{c}'")),
                // A second interval repeats nothing.
                '{' => Node::Concat(Vec::new()),
                '\\' => {
                    self.at += 1;
                    self.escape()?
                }
                '^' => {
                    self.at += 1;
                    let unix = self.flags.unix_lines;
                    Node::Assertion(match self.flags.multi_line {
                        true => Assertion::LineStart { unix },
                        false => Assertion::TextStart,
                    })
                }
                '$' => {
                    self.at += 1;
                    let unix = self.flags.unix_lines;
                    Node::Assertion(match self.flags.multi_line {
                        true => Assertion::LineEnd { unix },
                        false => Assertion::FinalEnd { unix },
                    })
                }
                '.' => {
                    self.at += 1;
                    let excluded: &[char] = match (self.flags.dot_all, self.flags.unix_lines) {
                        (true, _) => &[],
                        (_, true) => &['\n'],
                        _ => &LINE_TERMINATORS,
                    };
                    Node::Class(class::negate(class::ranges(excluded.iter().map(|&c| (c, c)))))
                }
                c => {
                    self.at += 1;
                    self.literal(u32::from(c))
                }
            };
            nodes.push(self.quantified(node)?);
        }
        Ok(Node::Concat(nodes))
    }

    fn quantified(&mut self, node: Node) -> Result<Node, String> {
        let (min, max) = match self.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => {
                self.at += 1;
                return self.interval().map(|(min, max)| self.repeat(node, min, max));
            }
            _ => return Ok(node),
        };
        self.at += 1;
        Ok(self.repeat(node, min, max))
    }

    fn repeat(&mut self, node: Node, min: u32, max: Option<u32>) -> Node {
        let kind = match self.peek() {
            Some('?') => Repetition::Reluctant,
            Some('+') => Repetition::Possessive,
            _ => Repetition::Greedy,
        };
        self.at += usize::from(kind != Repetition::Greedy);
        Node::Repeat { node: Box::new(node), min, max, kind }
    }

    /// Reads `2}`, `2,}` or `2,3}`.
    fn interval(&mut self) -> Result<(u32, Option<u32>), String> {
        let min = self.number()?.ok_or("Illegal repetition")?;
        let max = if self.ahead(0) == Some(',') {
            self.at += 1;
            self.number()?
        } else {
            Some(min)
        };
        if self.raw() != Some('}') {
            return Err("Unclosed counted closure".to_owned());
        }
        if max.is_some_and(|max| max < min) {
            return Err("Illegal repetition range".to_owned());
        }
        Ok((min, max))
    }

    fn number(&mut self) -> Result<Option<u32>, String> {
        let mut number = None;
        while let Some(digit) = self.ahead(0).and_then(|c| c.to_digit(10)) {
            self.at += 1;
            let next = number.unwrap_or(0_u32).checked_mul(10).and_then(|number| number.checked_add(digit));
            number = Some(next.ok_or("Illegal repetition range")?);
        }
        Ok(number)
    }

    /// Reads a group; options alone are none.
    fn group(&mut self) -> Result<Option<Node>, String> {
        self.descend()?;
        self.at += 1;
        let outer = self.flags;
        let node = if self.ahead(0) == Some('?') {
            self.at += 1;
            match self.raw() {
                Some(':') => self.alternation()?,
                Some('>') => Node::Atomic(Box::new(self.alternation()?)),
                Some(c @ ('=' | '!')) => self.look(false, c == '!')?,
                Some('<') => match self.ahead(0) {
                    Some(c @ ('=' | '!')) => {
                        self.at += 1;
                        self.look(true, c == '!')?
                    }
                    _ => {
                        let name = self.group_name()?;
                        if self.names.contains(&Some(name.clone())) {
                            return Err(format!("Named capturing group <{name}> is already defined"));
                        }
                        self.capturing(Some(name))?
                    }
                },
                Some(_) => {
                    self.at -= 1;
                    if self.options()? {
                        self.ascend();
                        return Ok(None);
                    }
                    self.alternation()?
                }
                None => return Err("Unknown inline modifier".to_owned()),
            }
        } else {
            self.capturing(None)?
        };
        if !self.next_if(')') {
            return Err("Unclosed group".to_owned());
        }
        self.flags = outer;
        self.ascend();
        Ok(Some(node))
    }

    fn look(&mut self, behind: bool, negated: bool) -> Result<Node, String> {
        Ok(Node::Look { behind, negated, node: Box::new(self.alternation()?) })
    }

    fn capturing(&mut self, name: Option<String>) -> Result<Node, String> {
        let group = self.names.len();
        if group > MAX_GROUPS {
            return Err(format!("there are more than {MAX_GROUPS} groups"));
        }
        self.names.push(name);
        Ok(Node::Group(group, Box::new(self.alternation()?)))
    }

    /// Reads a name up to `>`.
    pub(super) fn group_name(&mut self) -> Result<String, String> {
        let mut name = String::new();
        loop {
            match self.raw() {
                Some('>') if !name.is_empty() => return Ok(name),
                // Java has no underscores; patterns of other languages have them.
                Some(c)
                    if c.is_ascii_alphabetic() || ((c.is_ascii_digit() || c == '_') && !name.is_empty()) =>
                {
                    name.push(c)
                }
                _ if name.is_empty() => {
                    return Err("capturing group name does not start with a Latin letter".to_owned());
                }
                _ => return Err("named capturing group is missing trailing '>'".to_owned()),
            }
        }
    }

    /// Returns the number of a name.
    pub(super) fn group_of(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|given| given.as_deref() == Some(name))
    }

    /// The groups that begin before.
    pub(super) fn groups(&self) -> usize {
        self.names.len() - 1
    }

    /// Reads options such as `i-x`; whether they stand alone, up to `)`, or for a group, up to `:`.
    fn options(&mut self) -> Result<bool, String> {
        let mut on = true;
        loop {
            let flags = &mut self.flags;
            match self.characters.get(self.at) {
                Some('i') => flags.ignore_case = on,
                Some('u') => flags.unicode_case = on,
                Some('m') => flags.multi_line = on,
                Some('s') => flags.dot_all = on,
                Some('d') => flags.unix_lines = on,
                Some('x') => flags.comments = on,
                Some('c') => {}
                Some('U') => {
                    flags.unicode_class = on;
                    flags.unicode_case = on;
                }
                Some('-') if on => on = false,
                Some(c @ (')' | ':')) => {
                    self.at += 1;
                    return Ok(*c == ')');
                }
                _ => return Err("Unknown inline modifier".to_owned()),
            }
            self.at += 1;
        }
    }

    /// A character, and its other case where this is ignored.
    pub(super) fn literal(&self, code: u32) -> Node {
        Node::Class(self.folded(class::code_points(code, code)))
    }

    pub(super) fn folded(&self, mut class: ClassUnicode) -> ClassUnicode {
        if self.flags.ignore_case {
            class::fold(&mut class, self.flags.unicode_case);
        }
        class
    }

    pub(super) fn case(&self) -> Case {
        match (self.flags.ignore_case, self.flags.unicode_case) {
            (false, _) => Case::Sensitive,
            (true, false) => Case::IgnoreAscii,
            (true, true) => Case::Ignore,
        }
    }
}
