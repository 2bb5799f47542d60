//! Values of a field in a source: by dotted path, through objects and arrays, as an index sees them.
//!
//! An array stands for all its elements, `{"a": {"b": 1}}` and `{"a.b": 1}` are the same field, and `null`, an empty array
//! and an object are no value. A path that ends in `.keyword` or `.raw` and finds nothing means the field it is a sub-field
//! of: sources have no sub-fields. Values are compared by their text, so that `1`, `1.0` and `"1"` are one.

use std::borrow::Cow;
use std::collections::HashSet;

use ring::digest;
use serde_json::Value;

/// Values of one field of one event that are looked at; the rest is not, but by [`first_texts`].
pub(crate) const MAX_VALUES: usize = 256;
/// Values that are read to find the first texts; the rest is only counted.
const MAX_READ: usize = 100_000;
/// Bytes of a value that are kept as they are; of a longer one a prefix and a hash stand for it.
pub(crate) const MAX_TEXT: usize = 512;

/// Returns the values of a field, in their order in the source.
pub(crate) fn values<'a>(source: &'a Value, path: &str) -> Vec<&'a Value> {
    at_most(MAX_VALUES, source, path)
}

fn at_most<'a>(most: usize, source: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut found = Vec::new();
    descend(source, path, most, &mut found);
    if found.is_empty()
        && let Some(parent) = path.strip_suffix(".keyword").or_else(|| path.strip_suffix(".raw"))
    {
        descend(source, parent, most, &mut found);
    }
    found
}

fn descend<'a>(value: &'a Value, path: &str, most: usize, found: &mut Vec<&'a Value>) {
    match value {
        Value::Array(elements) => elements.iter().for_each(|element| descend(element, path, most, found)),
        Value::Object(members) => {
            // Each prefix of the path may be a member's name: names have dots, too.
            for (at, _) in path.match_indices('.') {
                if let Some(member) = members.get(&path[..at]) {
                    descend(member, &path[at + 1..], most, found);
                }
            }
            if let Some(member) = members.get(path) {
                collect(member, most, found);
            }
        }
        _ => {}
    }
}

fn collect<'a>(value: &'a Value, most: usize, found: &mut Vec<&'a Value>) {
    match value {
        Value::Array(elements) => elements.iter().for_each(|element| collect(element, most, found)),
        Value::Null | Value::Object(_) => {}
        _ if found.len() < most => found.push(value),
        _ => {}
    }
}

/// Returns the texts of a field's values, each once, in their order in the source.
pub(crate) fn texts(source: &Value, path: &str) -> Vec<Box<str>> {
    let mut texts: Vec<Box<str>> = Vec::new();
    for value in values(source, path) {
        let text = bounded(&text(value)).into_owned();
        if !texts.iter().any(|seen| **seen == *text) {
            texts.push(text.into());
        }
    }
    texts
}

/// Returns the first `most` texts of a field's values, each once, in their order in the source, and how many values it has that are
/// none of these: one that comes twice is two, and so is each beyond the first 100,000.
pub(crate) fn first_texts(source: &Value, path: &str, most: usize) -> (Vec<Box<str>>, usize) {
    let all = at_most(usize::MAX, source, path);
    let (mut texts, mut seen) = (Vec::new(), HashSet::<Box<str>>::new());
    let mut more = all.len().saturating_sub(MAX_READ);
    for value in all.into_iter().take(MAX_READ) {
        let text = text(value);
        let text = bounded(&text);
        if seen.contains(&*text) {
            continue;
        }
        if texts.len() == most {
            more += 1;
            continue;
        }
        let text: Box<str> = text.into();
        seen.insert(text.clone());
        texts.push(text);
    }
    (texts, more)
}

/// Returns the numbers that a field has: also those that are written as texts, as a numeric mapping reads them.
pub(crate) fn numbers(source: &Value, path: &str) -> Vec<f64> {
    let number = |value: &Value| match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    values(source, path).into_iter().filter_map(number).filter(|number| number.is_finite()).collect()
}

/// Returns the first number that a field has.
pub(crate) fn number(source: &Value, path: &str) -> Option<f64> {
    numbers(source, path).first().copied()
}

/// Returns a key of a value where different ones are counted: nobody can choose values of which two have one key.
pub(crate) fn hash(text: &str) -> u64 {
    let hash = digest::digest(&digest::SHA256, text.as_bytes());
    hash.as_ref().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Returns the text by which a value is compared.
pub(crate) fn text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        Value::Number(number) => match number.as_f64() {
            // Of numbers that are whole, the integer: beyond 2^53 a float tells no integer.
            Some(float)
                if !number.is_i64() && !number.is_u64() && float.fract() == 0.0 && float.abs() < 9e15 =>
            {
                Cow::Owned((float as i64).to_string())
            }
            _ => Cow::Owned(number.to_string()),
        },
        other => Cow::Owned(other.to_string()),
    }
}

/// Returns the text itself, or what stands for one that is longer than [`MAX_TEXT`].
pub(crate) fn bounded(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_TEXT {
        return Cow::Borrowed(text);
    }
    let hash = digest::digest(&digest::SHA256, text.as_bytes());
    let mut short = cut(text, MAX_TEXT - 33).to_owned();
    short.push('#');
    short.push_str(&hex(&hash.as_ref()[..16]));
    Cow::Owned(short)
}

/// Returns at most `bytes` of a text, whole characters.
pub fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// Writes bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| DIGITS[usize::from(digit)] as char)
        .collect()
}

/// Returns whether a field is one of those a pattern means: the field itself, one below it, or by `*`.
pub(crate) fn included(pattern: &str, path: &str) -> bool {
    if let Some(below) = path.strip_prefix(pattern)
        && (below.is_empty() || below.starts_with('.'))
    {
        return true;
    }
    pattern.contains('*') && wildcard(pattern.as_bytes(), path.as_bytes())
}

/// Matches `*`, in time of the product of the lengths at most.
pub(crate) fn wildcard(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from, mut retry) = (0, 0, None);
    while from < text.len() {
        if pattern.get(at) == Some(&b'*') {
            retry = Some((at, from));
            at += 1;
        } else if pattern.get(at) == Some(&text[from]) {
            (at, from) = (at + 1, from + 1);
        } else if let Some((star, start)) = retry {
            retry = Some((star, start + 1));
            (at, from) = (star + 1, start + 1);
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_go_through_objects_arrays_and_names_with_dots() {
        let source = json!({
            "a": {"b": [1, [2, null], {"c": "x"}], "b.c": "y"},
            "a.b.c": "z",
            "list": [{"ip": "1.1.1.1"}, {"ip": ["2.2.2.2", "1.1.1.1"]}, {}],
            "whole": 3.0, "empty": [], "object": {"x": 1}, "user": {"name": "root"},
        });
        let texts = |path| texts(&source, path).iter().map(|text| text.to_string()).collect::<Vec<_>>();
        assert_eq!(texts("a.b"), ["1", "2"]);
        assert_eq!(texts("a.b.c"), ["x", "y", "z"]);
        assert_eq!(texts("list.ip"), ["1.1.1.1", "2.2.2.2"]);
        assert_eq!(texts("whole"), ["3"]);
        assert_eq!(texts("user.name.keyword"), ["root"]);
        for nothing in ["empty", "object", "a", "b", "list", "missing.keyword", "user.name.text"] {
            assert!(texts(nothing).is_empty(), "{nothing}");
        }
    }

    #[test]
    fn all_values_of_a_field_are_known_or_counted() {
        let source = json!({"a": [(0..600).collect::<Vec<_>>(), [5, 600, 600]], "b": {"c": "x"}});
        let of = |path, most| {
            let (texts, more) = first_texts(&source, path, most);
            (texts.len(), texts.last().map(|text| text.to_string()), more)
        };
        assert_eq!(of("a", 601), (601, Some("600".to_owned()), 0));
        assert_eq!(of("a", 598), (598, Some("597".to_owned()), 4));
        assert_eq!((of("b.c.keyword", 1), of("b", 1)), ((1, Some("x".to_owned()), 0), (0, None, 0)));
        assert_eq!(texts(&source, "a").len(), MAX_VALUES);
    }

    #[test]
    fn a_long_value_is_told_from_others_by_its_hash() {
        let (one, other) = ("é".repeat(400) + "1", "é".repeat(400) + "2");
        let (one, other) = (bounded(&one).into_owned(), bounded(&other).into_owned());
        assert!(one.len() <= MAX_TEXT && other.len() <= MAX_TEXT);
        assert_ne!(one, other);
    }

    #[test]
    fn patterns_include_what_is_below() {
        assert!(included("user", "user.name") && included("user", "user") && included("us*.n*", "user.name"));
        assert!(!included("user", "username") && !included("us*x", "user.name") && included("*", "a"));
    }
}
