//! `filter_path`: keeping or dropping members of an answer by dotted patterns.
//!
//! A pattern is a path of names; `*` within a name matches any characters, `**` any number of names;
//! a leading `-` drops what matches. Arrays are transparent: their elements are matched at the
//! array's own path. A backslash escapes a dot. Objects and arrays of which nothing is left are dropped.
//!
//! The filter works on the text of an answer ([`FilterPath::apply`], in [`text`]) in one pass, without a tree:
//! what is kept is copied, what is not is skipped. A handler with many items asks
//! [`FilterPath::keeps_some`] first and does not write those of which nothing would be kept.

#[cfg(test)]
mod tests;
mod text;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use millrace_mapping::pattern::matches;

use crate::error::Error;

/// Most patterns of one request.
const MAX_PATTERNS: usize = 256;
/// Most names of one pattern.
const MAX_NAMES: usize = 64;
/// Most names that a place remembers; others are looked up each time.
const MAX_REMEMBERED: usize = 64;

/// A parsed `filter_path`.
#[derive(Clone, Debug, Default)]
pub struct FilterPath {
    includes: Vec<Vec<String>>,
    excludes: Vec<Vec<String>>,
}

impl FilterPath {
    /// Parses a comma-separated list of patterns.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut filter = Self::default();
        for (number, pattern) in text.split(',').map(str::trim).filter(|p| !p.is_empty()).enumerate() {
            if number == MAX_PATTERNS {
                return Err(Error::illegal_argument(format!(
                    "[filter_path] has more than [{MAX_PATTERNS}] patterns"
                )));
            }
            let (names, list) = match pattern.strip_prefix('-') {
                Some(rest) => (split(rest), &mut filter.excludes),
                None => (split(pattern), &mut filter.includes),
            };
            if names.len() > MAX_NAMES {
                return Err(Error::illegal_argument(format!(
                    "[filter_path] pattern [{pattern}] is too deep"
                )));
            }
            list.push(names);
        }
        Ok(filter)
    }

    /// Returns true if nothing is left out.
    pub fn is_empty(&self) -> bool {
        self.includes.is_empty() && self.excludes.is_empty()
    }

    /// Filters the text of an answer; an object of which nothing is left at the root stays as `{}`. Text
    /// that is not JSON, or nests deeper than answers do, comes back as it is.
    pub fn apply(&self, answer: &[u8]) -> Vec<u8> {
        text::filter(&self.root(), answer).unwrap_or_else(|| answer.to_vec())
    }

    /// Returns whether any of `members`, which are not empty, is kept in the objects at a path; arrays on the way need no name.
    pub fn keeps_some(&self, path: &[&str], members: &[&str]) -> bool {
        let mut place = Rc::new(self.root());
        for name in path {
            match place.member(name) {
                MemberSelection::Nothing => return false,
                MemberSelection::Everything => return true,
                MemberSelection::Part(below) => place = below,
            }
        }
        // A scalar is kept where only exclusions go on below it.
        members.iter().any(|name| match place.member(name) {
            MemberSelection::Nothing => false,
            MemberSelection::Everything | MemberSelection::Part(_) => true,
        })
    }

    fn root(&self) -> PatternPath<'_> {
        let includes = self.includes.iter().map(Vec::as_slice).collect::<Vec<_>>();
        PatternPath {
            includes: Some(includes).filter(|includes| !includes.is_empty()),
            excludes: self.excludes.iter().map(Vec::as_slice).collect(),
            remembered: RefCell::default(),
        }
    }
}

/// Splits a pattern at dots that are not escaped.
fn split(pattern: &str) -> Vec<String> {
    let mut names = vec![String::new()];
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => names.last_mut().into_iter().for_each(|name| name.extend(chars.next())),
            '.' => names.push(String::new()),
            c => names.last_mut().into_iter().for_each(|name| name.push(c)),
        }
    }
    names
}

/// Selection of a member.
#[derive(Clone, Debug)]
enum MemberSelection<'f> {
    Nothing,
    Everything,
    /// Its own members decide.
    Part(Rc<PatternPath<'f>>),
}

/// A path in an answer, by what is left of the patterns below it.
#[derive(Debug)]
struct PatternPath<'f> {
    /// Patterns of which one must match; `None` where one has.
    includes: Option<Vec<&'f [String]>>,
    excludes: Vec<&'f [String]>,
    /// Members by their names as written, which repeat from item to item. At most [`MAX_REMEMBERED`].
    remembered: RefCell<HashMap<Box<[u8]>, MemberSelection<'f>>>,
}

impl<'f> PatternPath<'f> {
    /// Decides about the member of a name as written, without quotes; `None` where that is not JSON.
    fn written_member(&self, written: &[u8]) -> Option<MemberSelection<'f>> {
        if let Some(known) = self.remembered.borrow().get(written) {
            return Some(known.clone());
        }
        let reach = match memchr::memchr(b'\\', written) {
            None => self.member(std::str::from_utf8(written).ok()?),
            Some(_) => {
                let quoted = [b"\"", written, b"\""].concat();
                self.member(&serde_json::from_slice::<String>(&quoted).ok()?)
            }
        };
        let mut remembered = self.remembered.borrow_mut();
        if remembered.len() < MAX_REMEMBERED {
            remembered.insert(written.into(), reach.clone());
        }
        Some(reach)
    }

    fn member(&self, name: &str) -> MemberSelection<'f> {
        let (excluded, excludes) = descend(&self.excludes, name);
        if excluded {
            return MemberSelection::Nothing;
        }
        let includes = match self.includes.as_ref().map(|patterns| descend(patterns, name)) {
            None | Some((true, _)) => None,
            Some((false, below)) if below.is_empty() => return MemberSelection::Nothing,
            Some((false, below)) => Some(below),
        };
        if includes.is_none() && excludes.is_empty() {
            return MemberSelection::Everything;
        }
        MemberSelection::Part(Rc::new(PatternPath { includes, excludes, remembered: RefCell::default() }))
    }
}

/// Returns the rest of the patterns below a member of this name, and a flag for patterns that end at it.
fn descend<'p>(patterns: &[&'p [String]], name: &str) -> (bool, Vec<&'p [String]>) {
    let mut ends = false;
    let mut below: Vec<&'p [String]> = Vec::new();
    let mut add = |pattern: &'p [String]| {
        if !below.contains(&pattern) {
            below.push(pattern);
        }
    };
    for &pattern in patterns {
        let mut pattern = pattern;
        while let Some((first, rest)) = pattern.split_first() {
            if first == "**" {
                if rest.is_empty() {
                    ends = true;
                    break;
                }
                add(pattern);
                pattern = rest;
                continue;
            }
            if matches(first, name) {
                if rest.is_empty() || rest.iter().all(|name| name == "**") {
                    ends = true;
                } else {
                    add(rest);
                }
            }
            break;
        }
    }
    (ends, below)
}
