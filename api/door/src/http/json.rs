//! JSON bodies, read strictly: a member named twice is refused, nesting is bounded (128 levels), and what the
//! values take in memory is charged to the request's [`MemoryAllowance`] as they are made.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;

use bytes::Bytes;
use millrace_mapping::document::replace_lone_surrogates;
pub use millrace_mapping::document::token;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::content::Format;
use super::{MemoryAllowance, offload};
use crate::error::Error;

/// Bytes that a value takes: in the array that it is in, which has grown to up to twice its length, and in what a
/// handler makes of it.
const VALUE_BYTES: usize = 128;
/// Bytes that a member takes beside its name and value.
const MEMBER_BYTES: usize = 96;
/// Bytes that YAML takes for every mark that may begin or end something, before the first value is seen: two events.
const YAML_MARK_BYTES: usize = 512;

/// The byte order mark of UTF-8, with which some programs begin texts.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Leaves out a byte order mark at the start; one alone stays, and is no JSON.
pub fn without_mark(bytes: &[u8]) -> &[u8] {
    match bytes.strip_prefix(BYTE_ORDER_MARK) {
        Some(rest) if !rest.is_empty() => rest,
        _ => bytes,
    }
}

/// Returns a body as its handler gets it: without a byte order mark, in JSON where it is YAML, and with U+FFFD for half
/// a surrogate pair. What the changes take is charged to `room`.
pub(crate) fn readable(bytes: Bytes, format: Format, allowance: &MemoryAllowance) -> Result<Bytes, Error> {
    let bytes = bytes.slice_ref(without_mark(&bytes));
    if format == Format::Yaml {
        return of_format(bytes, format, allowance);
    }
    match offload(bytes.len(), || replace_lone_surrogates(&bytes)) {
        Some(replaced) => {
            allowance.take(replaced.len())?;
            Ok(replaced.into())
        }
        None => Ok(bytes),
    }
}

/// Parses one JSON value, which may take as much as `room` has.
pub fn parse(bytes: &[u8], allowance: &MemoryAllowance) -> Result<Value, Error> {
    let bytes = without_mark(bytes);
    let strict = Strict { allowance, refused: &RefCell::new(None) };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let parsed = strict.deserialize(&mut deserializer);
    let value = parsed.map_err(|error| strict.refused.take().unwrap_or_else(|| refuse(error)))?;
    deserializer.end().map_err(refuse)?;
    Ok(value)
}

/// Checks that a text is one JSON value as [`parse`] reads it, without making values: names in objects are charged to `room` while their
/// object is read.
pub fn check(bytes: &[u8], allowance: &MemoryAllowance) -> Result<(), Error> {
    let step = allowance.sibling();
    let checked = UniqueMembers { strict: Strict { allowance: &step, refused: &RefCell::new(None) } };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let parsed = checked.deserialize(&mut deserializer);
    parsed.map_err(|error| checked.strict.refused.take().unwrap_or_else(|| refuse(error)))?;
    deserializer.end().map_err(refuse)
}

/// Passes over a value, refusing duplicate members.
#[derive(Clone, Copy)]
struct UniqueMembers<'r> {
    strict: Strict<'r>,
}

impl<'de> DeserializeSeed<'de> for UniqueMembers<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UniqueMembers<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        while access.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = access.next_key::<String>()? {
            self.strict.charge(MEMBER_BYTES + name.len())?;
            access.next_value_seed(self)?;
            if let Some(twice) = names.replace(name) {
                return Err(serde::de::Error::custom(format_args!("Duplicate field '{twice}'")));
            }
        }
        Ok(())
    }
}

/// Turns a YAML body into JSON; other formats pass. What that takes is charged to `room`.
pub(crate) fn of_format(bytes: Bytes, format: Format, allowance: &MemoryAllowance) -> Result<Bytes, Error> {
    if format != Format::Yaml {
        return Ok(bytes);
    }
    let value = offload(bytes.len(), || parse_yaml(&bytes, allowance))?;
    serde_json::to_vec(&value)
        .map(Bytes::from)
        .map_err(|error| Error::new(400, "yaml_parse_exception", error.to_string()))
}

/// Parses one YAML value, which may take as much as `room` has.
pub(crate) fn parse_yaml(bytes: &[u8], allowance: &MemoryAllowance) -> Result<Value, Error> {
    // The parser makes events of the whole text before it shows the first.
    let is_mark = |byte: &&u8| matches!(byte, b'\n' | b',' | b':' | b'-' | b'?' | b'[' | b'{' | b']' | b'}');
    allowance.take(bytes.iter().filter(is_mark).count().saturating_mul(YAML_MARK_BYTES))?;
    let strict = Strict { allowance, refused: &RefCell::new(None) };
    let parsed = strict.deserialize(serde_norway::Deserializer::from_slice(bytes));
    parsed.map_err(|error| {
        let refused = strict.refused.take();
        refused.unwrap_or_else(|| Error::new(400, "yaml_parse_exception", error.to_string()))
    })
}

fn refuse(error: serde_json::Error) -> Error {
    let kind = if error.is_eof() { "json_e_o_f_exception" } else { "json_parse_exception" };
    Error::new(400, kind, error.to_string())
}

/// Builds a [`Value`], refusing duplicate members and what finds no room.
#[derive(Clone, Copy)]
struct Strict<'r> {
    allowance: &'r MemoryAllowance,
    /// Why the room refused, which the parser's own errors cannot carry.
    refused: &'r RefCell<Option<Error>>,
}

impl Strict<'_> {
    fn charge<E: serde::de::Error>(&self, bytes: usize) -> Result<(), E> {
        self.allowance.take(bytes).map_err(|error| {
            *self.refused.borrow_mut() = Some(error);
            E::custom("no room")
        })
    }

    fn scalar<E: serde::de::Error>(&self, value: Value) -> Result<Value, E> {
        self.charge(VALUE_BYTES).map(|()| value)
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        self.scalar(Value::Null)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Value, E> {
        self.scalar(Value::Bool(value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        self.scalar(value.into())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        self.scalar(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        self.scalar(value.into())
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.charge(VALUE_BYTES + value.len())?;
        Ok(value.into())
    }

    fn visit_string<E: serde::de::Error>(self, value: String) -> Result<Value, E> {
        self.charge(VALUE_BYTES + value.len())?;
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        self.charge(VALUE_BYTES)?;
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(self)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        self.charge(VALUE_BYTES)?;
        let mut members = Map::new();
        while let Some(name) = access.next_key::<String>()? {
            self.charge(MEMBER_BYTES + name.len())?;
            if members.contains_key(&name) {
                return Err(serde::de::Error::custom(format_args!("Duplicate field '{name}'")));
            }
            let value = access.next_value_seed(self)?;
            members.insert(name, value);
        }
        Ok(Value::Object(members))
    }
}

/// Appends a string as a JSON literal.
pub fn push_str(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("writing to memory cannot fail");
}

/// Appends a whole number.
pub fn push_u64(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use millrace_listen::Budget;

    use super::*;

    fn parse(text: &[u8]) -> Result<Value, Error> {
        super::parse(text, &MemoryAllowance::with_limit(0))
    }

    #[test]
    fn values_round_trip() {
        let text = r#"{"a":[1,-2,3.5,true,null,"x\n"],"b":{"c":18446744073709551615}}"#;
        assert_eq!(parse(text.as_bytes()).unwrap().to_string(), text);
    }

    #[test]
    fn values_are_charged_while_they_are_made() {
        let numbers = format!("{{\"terms\":{{\"a\":[{}1]}}}}", "1,".repeat(1_000_000));
        let objects = format!("[{}1]", "{\"a\":{}},".repeat(100_000));
        let deep = "[".repeat(100);
        for text in [&numbers, &objects] {
            let budget = Budget::new(16 << 20);
            let allowance = || MemoryAllowance::new(&budget);
            assert_eq!(super::parse(text.as_bytes(), &allowance()).unwrap_err().status(), 413);
            assert_eq!(budget.used(), 0);
            let _other = budget.reserve(10 << 20).unwrap();
            let error = super::parse(text.as_bytes(), &allowance()).unwrap_err();
            assert_eq!((error.status(), error.error_type()), (429, "circuit_breaking_exception"));
        }
        super::parse(&objects.as_bytes()[..20_000], &MemoryAllowance::with_limit(16 << 20)).unwrap_err();
        assert_eq!(parse(deep.as_bytes()).unwrap_err().error_type(), "json_e_o_f_exception");
        super::parse(numbers.as_bytes(), &MemoryAllowance::with_limit(256 << 20)).unwrap();
    }

    #[test]
    fn yaml_is_charged_before_it_is_cut_and_aliases_as_they_unfold() {
        let allowance = || MemoryAllowance::with_limit(4 << 20);
        let list = "- 1\n".repeat(100_000);
        assert_eq!(parse_yaml(list.as_bytes(), &allowance()).unwrap_err().status(), 413);
        let mut laughs = String::from("a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n");
        for (name, below) in ["b", "c", "d", "e", "f"].iter().zip(["a", "b", "c", "d", "e"]) {
            laughs.push_str(&format!("{name}: &{name} [{}*{below}]\n", format!("*{below}, ").repeat(9)));
        }
        assert_eq!(parse_yaml(laughs.as_bytes(), &allowance()).unwrap_err().status(), 413);
        let error = parse_yaml(b"a: 1\na: 2\n", &allowance()).unwrap_err();
        assert_eq!(error.error_type(), "yaml_parse_exception");
    }

    #[test]
    fn marks_and_halves_of_pairs_are_read() {
        let read = |body: &'static [u8]| {
            readable(Bytes::from_static(body), Format::Json, &MemoryAllowance::with_limit(0)).unwrap()
        };
        assert_eq!(read(b"\xef\xbb\xbf{}"), "{}");
        assert_eq!(read(b"\xef\xbb\xbf"), &b"\xef\xbb\xbf"[..]);
        assert_eq!(read(b"[\"a\\ud83d\"]"), "[\"a\\ufffd\"]");
        assert_eq!(parse(b"\xef\xbb\xbf{}").unwrap(), serde_json::json!({}));
        assert!(parse(b"\xef\xbb\xbf").is_err());
        assert!(parse(b"\xef\xbb\xbf\xef\xbb\xbf{}").is_err());
    }

    #[test]
    fn yaml_becomes_json() {
        let json = of_format(
            Bytes::from_static(b"a: 1\nb: [x, y]\n"),
            Format::Yaml,
            &MemoryAllowance::with_limit(0),
        )
        .unwrap();
        assert_eq!(json, r#"{"a":1,"b":["x","y"]}"#);
    }

    #[test]
    fn bad_json_is_refused() {
        assert_eq!(parse(b"{\"a\":").unwrap_err().error_type(), "json_e_o_f_exception");
        assert_eq!(parse(b"{\"a\":}").unwrap_err().error_type(), "json_parse_exception");
        assert!(parse(b"{\"a\":1,\"a\":2}").unwrap_err().reason().contains("Duplicate field 'a'"));
        assert!(parse(b"{} {}").is_err());
        assert!(parse("[".repeat(100_000).as_bytes()).is_err());
        assert!(parse(b"\"\xff\"").is_err());
    }

    #[test]
    fn numbers_print() {
        for value in [0, 7, 10, 12345, u64::MAX] {
            let mut out = Vec::new();
            push_u64(&mut out, value);
            assert_eq!(out, value.to_string().as_bytes());
        }
    }
}
