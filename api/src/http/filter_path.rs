//! `filter_path`: keeping or dropping members of an answer by dotted patterns.
//!
//! A pattern is a path of names; `*` within a name matches any characters, `**` any number of names;
//! a leading `-` drops what matches. Arrays are transparent: their elements are matched at the
//! array's own path. A backslash escapes a dot.

use serde_json::{Map, Value};

use crate::error::Error;

/// Most patterns of one request.
const MAX_PATTERNS: usize = 256;
/// Most names of one pattern.
const MAX_NAMES: usize = 64;

/// A parsed `filter_path`.
#[derive(Clone, Debug, Default)]
pub(crate) struct FilterPath {
    includes: Vec<Vec<String>>,
    excludes: Vec<Vec<String>>,
}

impl FilterPath {
    /// Parses a comma-separated list of patterns.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
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

    pub(crate) fn is_empty(&self) -> bool {
        self.includes.is_empty() && self.excludes.is_empty()
    }

    /// Applies the filter; an object of which nothing is left at the root stays as `{}`.
    pub(crate) fn apply(&self, value: Value) -> Value {
        let empty = if value.is_array() { Value::Array(Vec::new()) } else { Value::Object(Map::new()) };
        let mut value = Some(value);
        if !self.excludes.is_empty() {
            let patterns = self.excludes.iter().map(Vec::as_slice).collect::<Vec<_>>();
            value = value.and_then(|value| drop_matching(value, &patterns));
        }
        if !self.includes.is_empty() {
            let patterns = self.includes.iter().map(Vec::as_slice).collect::<Vec<_>>();
            value = value.and_then(|value| keep_matching(value, &patterns));
        }
        value.unwrap_or(empty)
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

/// What is left of the patterns below a member of this name, and whether one ends at it.
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

fn keep_matching(value: Value, patterns: &[&[String]]) -> Option<Value> {
    match value {
        Value::Object(members) => {
            let mut kept = Map::new();
            for (name, member) in members {
                let (ends, below) = descend(patterns, &name);
                if ends {
                    kept.insert(name, member);
                } else if !below.is_empty()
                    && let Some(member) = keep_matching(member, &below)
                {
                    kept.insert(name, member);
                }
            }
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Array(items) => {
            let kept = items.into_iter().filter_map(|item| keep_matching(item, patterns)).collect::<Vec<_>>();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        _ => None,
    }
}

fn drop_matching(value: Value, patterns: &[&[String]]) -> Option<Value> {
    match value {
        Value::Object(members) => {
            let was_empty = members.is_empty();
            let mut kept = Map::new();
            for (name, member) in members {
                let (ends, below) = descend(patterns, &name);
                if ends {
                    continue;
                }
                let member = if below.is_empty() { Some(member) } else { drop_matching(member, &below) };
                if let Some(member) = member {
                    kept.insert(name, member);
                }
            }
            (was_empty || !kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Array(items) => {
            let was_empty = items.is_empty();
            let kept = items.into_iter().filter_map(|item| drop_matching(item, patterns)).collect::<Vec<_>>();
            (was_empty || !kept.is_empty()).then_some(Value::Array(kept))
        }
        scalar => Some(scalar),
    }
}

/// Matches a name against a pattern in which `*` stands for any characters.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            star = Some((p, t));
            p += 1;
        } else if p < pattern.len() && pattern[p] == text[t] {
            p += 1;
            t += 1;
        } else if let Some((star_p, star_t)) = star {
            star = Some((star_p, star_t + 1));
            p = star_p + 1;
            t = star_t + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(filter: &str) -> Value {
        let value = json!({
            "took": 3, "errors": true,
            "items": [
                { "index": { "_id": "1", "status": 201 } },
                { "index": { "_id": "2", "status": 400, "error": { "type": "t", "reason": "r" } } }
            ],
            "nodes": { "a.b": { "jvm": { "mem": { "heap": 1 } } } },
            "empty": {}
        });
        FilterPath::parse(filter).unwrap().apply(value)
    }

    #[test]
    fn includes() {
        assert_eq!(run("took,errors"), json!({ "took": 3, "errors": true }));
        assert_eq!(
            run("items.*.error"),
            json!({ "items": [{ "index": { "error": { "type": "t", "reason": "r" } } }] })
        );
        assert_eq!(run("items.*.error.t*"), json!({ "items": [{ "index": { "error": { "type": "t" } } }] }));
        assert_eq!(run("**.heap"), json!({ "nodes": { "a.b": { "jvm": { "mem": { "heap": 1 } } } } }));
        assert_eq!(
            run("nodes.a\\.b.**.heap"),
            json!({ "nodes": { "a.b": { "jvm": { "mem": { "heap": 1 } } } } })
        );
        assert_eq!(run("nothing"), json!({}));
        assert_eq!(run("er*"), json!({ "errors": true }));
    }

    #[test]
    fn excludes() {
        assert_eq!(run("-items,-nodes.**.mem,-empty"), json!({ "took": 3, "errors": true }));
        assert_eq!(
            run("items,-items.index.error,-items.index._id"),
            json!({
                "items": [{ "index": { "status": 201 } }, { "index": { "status": 400 } }]
            })
        );
    }

    #[test]
    fn wildcards() {
        assert!(matches("a*c*", "abcd"));
        assert!(matches("*", ""));
        assert!(!matches("a*c", "abcd"));
        assert!(matches("a**d", "abcd"));
    }
}
