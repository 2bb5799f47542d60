//! The members of an object as they are written, and merging and comparing objects by them.
//!
//! What is not looked into keeps its text: a number of any length and form stays the number that was sent.

use std::borrow::Cow;
use std::hash::BuildHasher;

use bytes::Bytes;
use hashbrown::{HashTable, hash_table};

use super::Scanner;

/// Deepest nesting that is looked into: requests and documents nest less deep.
const MAX_DEPTH: usize = 1_000;
/// Deepest nesting of values that are compared by what they say; what is deeper is compared as it is written.
const MAX_COMPARED_DEPTH: usize = 32;

/// The text of a JSON object that a request brings.
///
/// Who makes one of bytes has checked that they are one JSON object in which no name is twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectText(Bytes);

impl ObjectText {
    /// Returns the text.
    pub fn text(&self) -> &Bytes {
        &self.0
    }
}

impl From<Bytes> for ObjectText {
    fn from(text: Bytes) -> Self {
        Self(text)
    }
}

impl From<serde_json::Value> for ObjectText {
    fn from(value: serde_json::Value) -> Self {
        Self(value.to_string().into())
    }
}

/// The members of an object in their order. Of members of one name the last counts.
#[derive(Debug, Default)]
pub struct Members<'t> {
    list: Vec<Member<'t>>,
    by_name: HashTable<usize>,
    hasher: foldhash::fast::RandomState,
}

/// A member of an object.
#[derive(Debug)]
pub struct Member<'t> {
    /// Its name, unescaped.
    pub name: Cow<'t, str>,
    /// Its name as written, with quotes.
    pub written: &'t [u8],
    /// The text of its value.
    pub value: &'t [u8],
    /// The members of its value, where that is an object which was looked into.
    inside: Option<Box<Members<'t>>>,
}

/// Objects that a walk enters while members are read.
#[derive(Clone, Copy)]
enum Inside<'a, 't> {
    /// None.
    Nothing,
    /// All that no array is around.
    Everything,
    /// Those that others, of the same names, were looked into.
    Along(&'a Members<'t>),
}

impl<'t> Members<'t> {
    /// Reads the members of an object; `None` where the text is none.
    pub fn parse(text: &'t [u8]) -> Option<Self> {
        Self::parse_inside(text, Inside::Nothing)
    }

    /// Reads the members of an object and of objects in it, in one pass.
    fn parse_inside(text: &'t [u8], inside: Inside<'_, '_>) -> Option<Self> {
        let mut scanner = Scanner::new(text);
        let members = Self::read(text, &mut scanner, inside, 0)?;
        scanner.is_at_end().then_some(members)
    }

    fn read(text: &'t [u8], scanner: &mut Scanner<'t>, inside: Inside<'_, '_>, depth: usize) -> Option<Self> {
        if scanner.peek()? != b'{' || depth > MAX_DEPTH {
            return None;
        }
        let mut members = Self::default();
        let mut more = scanner.open(b'}')?;
        while more {
            let written = scanner.string()?;
            scanner.expect(b':')?;
            let name = unescaped(written)?;
            let below = match (scanner.peek()?, inside) {
                (b'{', Inside::Everything) => Some(Inside::Everything),
                (b'{', Inside::Along(others)) => others.inside(&name).map(Inside::Along),
                _ => None,
            };
            let start = scanner.position();
            let (value, inside) = match below {
                None => (scanner.skip()?, None),
                Some(below) => {
                    let members = Self::read(text, scanner, below, depth + 1)?;
                    (text.get(start..scanner.position())?, Some(Box::new(members)))
                }
            };
            members.put(Member { name, written, value, inside });
            more = scanner.goes_on(b'}')?;
        }
        Some(members)
    }

    /// Returns the members of a member's value that was looked into.
    fn inside(&self, name: &str) -> Option<&Self> {
        self.find(name)?.inside.as_deref()
    }

    fn find(&self, name: &str) -> Option<&Member<'t>> {
        let at = self.by_name.find(self.hasher.hash_one(name), |at| self.list[*at].name == name)?;
        self.list.get(*at)
    }

    fn put(&mut self, member: Member<'t>) {
        let (list, hasher) = (&mut self.list, &self.hasher);
        let hash = hasher.hash_one(&*member.name);
        let same = |at: &usize| list[*at].name == member.name;
        match self.by_name.entry(hash, same, |at| hasher.hash_one(&*list[*at].name)) {
            hash_table::Entry::Occupied(at) => {
                let at = *at.get();
                list[at] = member;
            }
            hash_table::Entry::Vacant(place) => {
                place.insert(list.len());
                list.push(member);
            }
        }
    }

    /// Finds the text of a member's value.
    pub fn get(&self, name: &str) -> Option<&'t [u8]> {
        self.find(name).map(|member| member.value)
    }

    /// Lists the members.
    pub fn iter(&self) -> impl Iterator<Item = &Member<'t>> {
        self.list.iter()
    }
}

/// Reads a string as it is written, with quotes.
fn unescaped(written: &[u8]) -> Option<Cow<'_, str>> {
    let inner = written.get(1..written.len().checked_sub(1)?)?;
    match memchr::memchr(b'\\', inner) {
        None => std::str::from_utf8(inner).ok().map(Cow::Borrowed),
        Some(_) => serde_json::from_slice(written).ok().map(Cow::Owned),
    }
}

/// Merges `patch` into `target`: objects recursively, everything else replaced. Returns the merged text, and whether it
/// says anything else than `target`; `None` where one of them is no JSON object.
pub fn merged(target: &[u8], patch: &[u8]) -> Option<(Vec<u8>, bool)> {
    let mut out = Vec::with_capacity(target.len() + patch.len());
    let patch = Members::parse_inside(patch, Inside::Everything)?;
    let target = Members::parse_inside(target, Inside::Along(&patch))?;
    let changed = merge(&target, &patch, &mut out)?;
    Some((out, changed))
}

fn merge(target: &Members<'_>, patch: &Members<'_>, out: &mut Vec<u8>) -> Option<bool> {
    let mut changed = false;
    let begin = |out: &mut Vec<u8>, written: &[u8]| {
        if out.last() != Some(&b'{') {
            out.push(b',');
        }
        out.extend_from_slice(written);
        out.push(b':');
    };
    out.push(b'{');
    for Member { name, written, value, inside } in target.iter() {
        begin(out, written);
        let Some(next) = patch.find(name) else {
            out.extend_from_slice(value);
            continue;
        };
        match (inside, &next.inside) {
            (Some(target), Some(patch)) => changed |= merge(target, patch, out)?,
            _ => {
                changed = changed || !same(value, next.value, 0)?;
                out.extend_from_slice(next.value);
            }
        }
    }
    for Member { name, written, value, .. } in patch.iter() {
        if target.find(name).is_none() {
            changed = true;
            begin(out, written);
            out.extend_from_slice(value);
        }
    }
    out.push(b'}');
    Some(changed)
}

/// Returns whether two texts say the same: objects whatever the order of their members, numbers by their exact value, whole
/// numbers apart from others. Each level is read once more, so that what nests deeper than [`MAX_COMPARED_DEPTH`] is compared as
/// it is written.
fn same(left: &[u8], right: &[u8], depth: usize) -> Option<bool> {
    if left == right {
        return Some(true);
    }
    if depth > MAX_COMPARED_DEPTH {
        return Some(false);
    }
    match (left.first()?, right.first()?) {
        (b'{', b'{') => {
            let (left, right) = (Members::parse(left)?, Members::parse(right)?);
            if left.list.len() != right.list.len() {
                return Some(false);
            }
            for member in left.iter() {
                match right.get(&member.name) {
                    Some(other) if same(member.value, other, depth + 1)? => {}
                    _ => return Some(false),
                }
            }
            Some(true)
        }
        (b'[', b'[') => {
            let (mut left, mut right) = (Scanner::new(left), Scanner::new(right));
            let (mut more, other) = (left.open(b']')?, right.open(b']')?);
            if more != other {
                return Some(false);
            }
            while more {
                if !same(left.skip()?, right.skip()?, depth + 1)? {
                    return Some(false);
                }
                more = left.goes_on(b']')?;
                if more != right.goes_on(b']')? {
                    return Some(false);
                }
            }
            Some(true)
        }
        (b'"', b'"') => Some(unescaped(left)? == unescaped(right)?),
        (b'-' | b'0'..=b'9', b'-' | b'0'..=b'9') => Some(Decimal::parse(left)? == Decimal::parse(right)?),
        _ => Some(false),
    }
}

/// The exact value of a number.
#[derive(Debug, PartialEq, Eq)]
struct Decimal {
    is_whole: bool,
    negative: bool,
    /// Significant digits, without zeros on either side.
    digits: Vec<u8>,
    /// Power of ten of the last one; zero where there are none.
    exponent: i128,
}

impl Decimal {
    fn parse(text: &[u8]) -> Option<Self> {
        let (negative, text) = match text.strip_prefix(b"-") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let end = text.iter().position(|byte| matches!(byte, b'e' | b'E'));
        let (mantissa, power) = text.split_at(end.unwrap_or(text.len()));
        let exponent: i128 = match power.get(1..) {
            None => 0,
            Some(digits) => {
                let digits = std::str::from_utf8(digits).ok()?;
                // Of an exponent beyond all numbers only its sign matters.
                let beyond = || if digits.starts_with('-') { i64::MIN } else { i64::MAX };
                i128::from(digits.parse::<i64>().unwrap_or_else(|_| beyond()))
            }
        };
        let point = mantissa.iter().position(|byte| *byte == b'.');
        let fraction = point.map_or(0, |point| mantissa.len() - point - 1);
        let mut digits: Vec<u8> = mantissa.iter().copied().filter(u8::is_ascii_digit).collect();
        let significant = digits.iter().rposition(|digit| *digit != b'0').map_or(0, |last| last + 1);
        let zeros = digits.len() - significant;
        digits.truncate(significant);
        let leading = digits.iter().take_while(|digit| **digit == b'0').count();
        digits.drain(..leading);
        let is_zero = digits.is_empty();
        let exponent = exponent - fraction as i128 + zeros as i128;
        Some(Self {
            is_whole: point.is_none() && power.is_empty(),
            negative: negative && !is_zero,
            exponent: if is_zero { 0 } else { exponent },
            digits,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn merge(target: &str, patch: &str) -> (String, bool) {
        let (text, changed) = merged(target.as_bytes(), patch.as_bytes()).unwrap();
        (String::from_utf8(text).unwrap(), changed)
    }

    #[test]
    fn updates_merge_objects_and_replace_the_rest() {
        let target = json!({"a": {"b": 1, "c": [1, 2]}, "d": 1}).to_string();
        let (text, changed) = merge(&target, r#"{"a": {"c": [3]}, "d": {"e": 1}, "f": null}"#);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value, json!({"a": {"b": 1, "c": [3]}, "d": {"e": 1}, "f": null}));
        assert!(changed);
    }

    #[test]
    fn deep_objects_are_read_once() {
        let nested =
            |value: &str, depth: usize| format!("{}{value}{}", "{\"a\":".repeat(depth), "}".repeat(depth));
        let long = format!("{{\"b\":\"{}\"}}", "x".repeat(1 << 20));
        let (text, changed) = merge(&nested(&long, 900), &nested("{\"c\":1e29}", 900));
        assert!(changed);
        let expected = nested(&format!("{},\"c\":1e29}}", &long[..long.len() - 1]), 900);
        assert!(text == expected);
        assert!(merged(nested("1", 2_000).as_bytes(), nested("2", 2_000).as_bytes()).is_none());
    }

    #[test]
    fn objects_in_place_of_others_are_merged_or_replaced() {
        for (target, patch, expected) in [
            (r#"{"a":{"b":1}}"#, r#"{"a":[{"c":1}]}"#, r#"{"a":[{"c":1}]}"#),
            (r#"{"a":[{"b":1}]}"#, r#"{"a":{"c":1}}"#, r#"{"a":{"c":1}}"#),
            (r#"{"a":1,"a":{"b":1}}"#, r#"{"a":{"c":1}}"#, r#"{"a":{"b":1,"c":1}}"#),
            (r#"{"x":{"y":{}} }"#, r#"{"x":{"y":{"z":1},"w":2}}"#, r#"{"x":{"y":{"z":1},"w":2}}"#),
        ] {
            assert_eq!(merge(target, patch).0, expected);
        }
    }

    #[test]
    fn what_is_not_touched_keeps_its_text() {
        let target = r#"{"n": 123456789012345678901234567890, "f":1.50, "o": {"p": 0.1234567890123456789012, "q" : "\u00e9"}}"#;
        let (text, changed) = merge(target, r#"{"o":{"r":98765432109876543210987}}"#);
        assert_eq!(
            text,
            r#"{"n":123456789012345678901234567890,"f":1.50,"o":{"p":0.1234567890123456789012,"q":"\u00e9","r":98765432109876543210987}}"#
        );
        assert!(changed);
    }

    #[test]
    fn a_patch_that_says_the_same_changes_nothing() {
        let target = r#"{"a":1,"b":1.50,"c":[1,{"d":"\u00e9","e":null}],"n":123456789012345678901234567890}"#;
        for same in [
            r#"{}"#,
            r#"{"a":1}"#,
            r#"{"b":1.5}"#,
            r#"{"b":15e-1}"#,
            r#"{"c":[1, {"e":null, "d":"é"}]}"#,
            r#"{"n":123456789012345678901234567890}"#,
        ] {
            assert!(!merge(target, same).1, "{same}");
        }
        for other in [
            r#"{"a":1.0}"#,
            r#"{"a":"1"}"#,
            r#"{"b":1.51}"#,
            r#"{"c":[1]}"#,
            r#"{"c":[]}"#,
            r#"{"c":[1,{"d":"e","e":null}]}"#,
            r#"{"c":[1,{"d":"é"}]}"#,
            r#"{"n":123456789012345678901234567891}"#,
            r#"{"x":null}"#,
        ] {
            assert!(merge(target, other).1, "{other}");
        }
    }

    #[test]
    fn numbers_are_compared_by_their_exact_value() {
        let same = |left: &str, right: &str| super::same(left.as_bytes(), right.as_bytes(), 0).unwrap();
        for (left, right) in
            [("0", "-0"), ("0.0", "0e9"), ("100e-1", "10.0"), ("1E2", "1e+2"), ("-0.50", "-5e-1")]
        {
            assert!(same(left, right), "{left} {right}");
        }
        for (left, right) in [("1", "1.0"), ("1", "-1"), ("10", "1"), ("1e400", "1e401"), ("0.1", "0.01")] {
            assert!(!same(left, right), "{left} {right}");
        }
    }

    #[test]
    fn of_members_of_one_name_the_last_counts() {
        let members = Members::parse(br#"{"a":1,"b":2,"\u0061":3}"#).unwrap();
        assert_eq!(members.get("a"), Some(&b"3"[..]));
        assert_eq!(members.iter().count(), 2);
        assert!(Members::parse(b"[1]").is_none());
        assert!(Members::parse(b"{\"a\":1").is_none());
    }
}
