//! The syntax of `simple_query_string`: signs and words in a row. No text is refused for its syntax;
//! a sign that means nothing where it stands is left out.
//!
//! What a sign applies to depends on which words are left after analysis, so the tree keeps signs
//! and branches in order, as [`Item`]s, for `table::resolve` to combine.

use std::fmt;

use millrace_work::error::{Error, Result};

use crate::query::MAX_CLAUSES;

/// Deepest nesting of parentheses.
const MAX_DEPTH: usize = 500;

/// Flags for the enabled signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(pub i32);

#[allow(missing_docs)]
impl Flags {
    pub const ALL: Self = Self(-1);
    pub(crate) const AND: Self = Self(1);
    pub(crate) const NOT: Self = Self(1 << 1);
    pub(crate) const OR: Self = Self(1 << 2);
    pub const PREFIX: Self = Self(1 << 3);
    pub(crate) const PHRASE: Self = Self(1 << 4);
    pub(crate) const PRECEDENCE: Self = Self(1 << 5);
    pub(crate) const ESCAPE: Self = Self(1 << 6);
    pub(crate) const WHITESPACE: Self = Self(1 << 7);
    pub(crate) const FUZZY: Self = Self(1 << 8);
    pub(crate) const NEAR: Self = Self(1 << 9);

    /// Reads names joined by `|`.
    pub fn parse(text: &str) -> Result<Self> {
        if text.is_empty() {
            return Ok(Self::ALL);
        }
        let mut flags = 0;
        for name in text.split('|').filter(|name| !name.is_empty()) {
            flags |= match name.to_uppercase().as_str() {
                "ALL" => return Ok(Self::ALL),
                "NONE" => return Ok(Self(0)),
                "AND" => Self::AND.0,
                "NOT" => Self::NOT.0,
                "OR" => Self::OR.0,
                "PREFIX" => Self::PREFIX.0,
                "PHRASE" => Self::PHRASE.0,
                "PRECEDENCE" => Self::PRECEDENCE.0,
                "ESCAPE" => Self::ESCAPE.0,
                "WHITESPACE" => Self::WHITESPACE.0,
                "FUZZY" => Self::FUZZY.0,
                "NEAR" | "SLOP" => Self::NEAR.0,
                _ => {
                    return Err(Error::IllegalArgument(format!("Unknown simple_query_string flag [{name}]")));
                }
            };
        }
        Ok(Self(flags))
    }

    fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }
}

/// One thing of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// `+`: the next clause must match as well as the one before.
    And,
    /// `|`: the next clause or the one before.
    Or,
    /// An empty phrase or group: takes back the sign before it.
    Nothing,
    /// A condition, perhaps excluded.
    Branch {
        /// `true` if it must not match.
        excluded: bool,
        /// The condition.
        branch: Branch,
    },
}

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub enum Branch {
    /// A word, or all of the text where white space does not separate.
    Words(String),
    /// A quoted text.
    Phrase {
        /// The text.
        text: String,
        /// Distance by which its terms may be moved.
        slop: i32,
    },
    /// Prefix of the values.
    Prefix(String),
    /// A word that may be misspelled.
    Fuzzy {
        /// The word.
        text: String,
        /// Number of letters that may differ: 1 or 2.
        edits: u8,
    },
    /// A row in parentheses.
    Group(Vec<Item>),
}

/// Parses a text.
pub fn parse(text: &str, flags: Flags) -> Result<Vec<Item>> {
    let chars: Vec<char> = text.chars().collect();
    let closings = closings(&chars, flags);
    let mut parser =
        Parser { chars: &chars, closings, flags, at: 0, end: chars.len(), depth: 0, branches: 0 };
    parser.row()
}

/// Finds the parenthesis that closes each one that opens; 0 for others.
fn closings(chars: &[char], flags: Flags) -> Vec<usize> {
    let mut closings = vec![0; chars.len()];
    let mut open = Vec::new();
    let mut escaped = false;
    for (at, c) in chars.iter().enumerate() {
        match c {
            _ if escaped => escaped = false,
            '\\' if flags.has(Flags::ESCAPE) => escaped = true,
            '(' => open.push(at),
            ')' => {
                if let Some(start) = open.pop() {
                    closings[start] = at;
                }
            }
            _ => {}
        }
    }
    closings
}

struct Parser<'a> {
    chars: &'a [char],
    closings: Vec<usize>,
    flags: Flags,
    at: usize,
    /// End of the row that is being read.
    end: usize,
    depth: usize,
    branches: usize,
}

impl Parser<'_> {
    /// Returns the current character; `None` at the end of the row.
    fn current(&self) -> Option<char> {
        (self.at < self.end).then(|| self.chars[self.at])
    }

    fn row(&mut self) -> Result<Vec<Item>> {
        let mut items = Vec::new();
        let mut excluded = false;
        while let Some(c) = self.current() {
            match c {
                '(' if self.flags.has(Flags::PRECEDENCE) => self.group(excluded, &mut items)?,
                ')' if self.flags.has(Flags::PRECEDENCE) => self.at += 1,
                '"' if self.flags.has(Flags::PHRASE) => self.phrase(excluded, &mut items)?,
                '+' if self.flags.has(Flags::AND) => {
                    items.push(Item::And);
                    self.at += 1;
                }
                '|' if self.flags.has(Flags::OR) => {
                    items.push(Item::Or);
                    self.at += 1;
                }
                '-' if self.flags.has(Flags::NOT) => {
                    excluded = !excluded;
                    self.at += 1;
                    continue;
                }
                ' ' | '\t' | '\n' | '\r' if self.flags.has(Flags::WHITESPACE) => self.at += 1,
                _ => self.word(excluded, &mut items)?,
            }
            excluded = false;
        }
        Ok(items)
    }

    fn push(&mut self, excluded: bool, branch: Branch, items: &mut Vec<Item>) -> Result<()> {
        self.branches += 1;
        if self.branches > MAX_CLAUSES {
            return Err(Error::TooManyClauses(MAX_CLAUSES));
        }
        items.push(Item::Branch { excluded, branch });
        Ok(())
    }

    fn group(&mut self, excluded: bool, items: &mut Vec<Item>) -> Result<()> {
        let start = self.at + 1;
        let closing = match self.closings[self.at] {
            0 => None,
            closing => Some(closing).filter(|closing| *closing < self.end),
        };
        self.at = start;
        let Some(closing) = closing else { return Ok(()) };
        let after = closing + 1;
        // Parentheses around parentheses alone say nothing more.
        let mut closing = closing;
        while self.at + 1 < closing && self.chars[self.at] == '(' && self.closings[self.at] == closing - 1 {
            self.at += 1;
            closing -= 1;
        }
        if closing == self.at {
            items.push(Item::Nothing);
        } else {
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return Err(Error::IllegalArgument(format!(
                    "[simple_query_string] has more than {MAX_DEPTH} levels of parentheses"
                )));
            }
            let end = std::mem::replace(&mut self.end, closing);
            let row = self.row()?;
            self.end = end;
            self.depth -= 1;
            self.push(excluded, Branch::Group(row), items)?;
        }
        self.at = after;
        Ok(())
    }

    fn phrase(&mut self, excluded: bool, items: &mut Vec<Item>) -> Result<()> {
        let start = self.at + 1;
        self.at = start;
        let mut text = String::new();
        while let Some(c) = self.current() {
            match c {
                '\\' if self.flags.has(Flags::ESCAPE) => {
                    self.at += 1;
                    text.extend(self.current());
                }
                '"' => break,
                _ => text.push(c),
            }
            self.at += 1;
        }
        if self.at >= self.end {
            self.at = start;
            return Ok(());
        }
        let near = self.flags.has(Flags::NEAR) && self.at + 1 < self.end && self.chars[self.at + 1] == '~';
        if self.at == start && !near {
            self.at += 1;
            items.push(Item::Nothing);
            return Ok(());
        }
        let mut slop = 0;
        if near {
            self.at += 1;
            if self.at + 1 < self.end {
                slop = self.distance();
            }
        }
        // As in Lucene, what ends the slop is passed over.
        self.at += 1;
        self.push(excluded, Branch::Phrase { text, slop }, items)
    }

    fn word(&mut self, excluded: bool, items: &mut Vec<Item>) -> Result<()> {
        let mut text = String::new();
        let (mut prefix, mut fuzzy) = (false, false);
        while let Some(c) = self.current() {
            if c == '\\' && self.flags.has(Flags::ESCAPE) {
                prefix = false;
                self.at += 1;
                text.extend(self.current());
                self.at += 1;
                continue;
            }
            if self.ends_word(c) {
                break;
            }
            if c == '~' && !text.is_empty() && self.flags.has(Flags::FUZZY) {
                fuzzy = true;
                break;
            }
            prefix = c == '*' && !text.is_empty() && self.flags.has(Flags::PREFIX);
            text.push(c);
            self.at += 1;
        }
        self.at = self.at.min(self.end);
        if text.is_empty() {
            return Ok(());
        }
        let branch = match (fuzzy, prefix) {
            (true, _) => match u8::try_from(self.distance().min(2)).unwrap_or(0) {
                0 => Branch::Words(text),
                edits => Branch::Fuzzy { text, edits },
            },
            (false, true) => {
                text.pop();
                Branch::Prefix(text)
            }
            (false, false) => Branch::Words(text),
        };
        self.push(excluded, branch, items)
    }

    /// Reads the number behind a tilde: 2 where there is none, 0 where it is not a number.
    fn distance(&mut self) -> i32 {
        self.at += 1;
        let mut text = String::new();
        while let Some(c) = self.current() {
            if self.ends_word(c) {
                break;
            }
            text.push(c);
            self.at += 1;
        }
        match text.as_str() {
            "" => 2,
            text => text.parse().unwrap_or(0).max(0),
        }
    }

    fn ends_word(&self, c: char) -> bool {
        let flag = match c {
            '"' => Flags::PHRASE,
            '|' => Flags::OR,
            '+' => Flags::AND,
            '(' | ')' => Flags::PRECEDENCE,
            ' ' | '\t' | '\n' | '\r' => Flags::WHITESPACE,
            _ => return false,
        };
        self.flags.has(flag)
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::And => f.write_str("+"),
            Self::Or => f.write_str("|"),
            Self::Nothing => f.write_str("nothing"),
            Self::Branch { excluded, branch } => {
                f.write_str(if *excluded { "-" } else { "" })?;
                match branch {
                    Branch::Words(text) => write!(f, "words[{text}]"),
                    Branch::Phrase { text, slop } => write!(f, "phrase[{text}]~{slop}"),
                    Branch::Prefix(text) => write!(f, "prefix[{text}]"),
                    Branch::Fuzzy { text, edits } => write!(f, "fuzzy[{text}]~{edits}"),
                    Branch::Group(items) => {
                        f.write_str("(")?;
                        for (at, item) in items.iter().enumerate() {
                            write!(f, "{}{item}", if at > 0 { " " } else { "" })?;
                        }
                        f.write_str(")")
                    }
                }
            }
        }
    }
}
