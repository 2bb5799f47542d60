//! One message of GELF: inflated, read as JSON, its members named as Logstash's input names them.

use std::io::Read;

use chrono::{DateTime, Utc};
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use serde_json::{Map, Value};

use crate::Event;

/// Longest message, inflated.
pub(super) const MAX_MESSAGE: usize = 8 << 20;
/// Tag of what is no JSON object.
const FAILURE: &str = "_jsonparsefailure";
/// Tag of a message that is longer than allowed, or damaged.
const INFLATE_FAILURE: &str = "_gelfinflatefailure";

/// Names of the fields that members become.
#[derive(Clone, Copy, Debug)]
pub(super) struct FieldNaming {
    /// `full_message` or `short_message` becomes `message`.
    pub(super) remaps: bool,
    /// Additional fields lose their leading `_`.
    pub(super) strips_underscore: bool,
}

/// Makes the event of a message that is not compressed, as all are over TCP.
pub(super) fn read_plain(bytes: &[u8], naming: FieldNaming, now: DateTime<Utc>) -> Event {
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(members)) => event(members, naming, now),
        _ => failed(bytes, FAILURE, now),
    }
}

/// Makes the event of a message, which may be compressed.
pub(super) fn read(bytes: &[u8], naming: FieldNaming, now: DateTime<Utc>) -> Event {
    let mut inflated = Vec::new();
    let outcome = match bytes {
        [0x1f, 0x8b, ..] => inflate(MultiGzDecoder::new(bytes), &mut inflated),
        [0x78, ..] => inflate(ZlibDecoder::new(bytes), &mut inflated),
        plain if plain.len() <= MAX_MESSAGE => {
            inflated.extend_from_slice(plain);
            true
        }
        _ => false,
    };
    if !outcome {
        return failed(bytes, INFLATE_FAILURE, now);
    }
    read_plain(&inflated, naming, now)
}

/// Inflates a message of at most [`MAX_MESSAGE`] bytes; returns whether it is whole.
fn inflate(reader: impl Read, out: &mut Vec<u8>) -> bool {
    let read = reader.take(MAX_MESSAGE as u64 + 1).read_to_end(out);
    read.is_ok() && out.len() <= MAX_MESSAGE
}

fn failed(bytes: &[u8], tag: &str, now: DateTime<Utc>) -> Event {
    let mut event = Event::new(now);
    event.set_text("message", &String::from_utf8_lossy(bytes));
    event.tag(tag);
    event
}

fn event(mut members: Map<String, Value>, naming: FieldNaming, now: DateTime<Utc>) -> Event {
    let time = members.get("timestamp").and_then(seconds);
    if time.is_some() {
        members.shift_remove("timestamp");
    }
    if naming.remaps {
        let is_full =
            members.get("full_message").is_some_and(|text| !matches!(text.as_str(), Some("") | None));
        let (kept, dropped) = match is_full {
            true => ("full_message", Some("short_message")),
            false => ("short_message", None),
        };
        if let Some(text) = members.shift_remove(kept) {
            if dropped.and_then(|name| members.get(name)) == Some(&text) {
                members.shift_remove("short_message");
            }
            members.insert("message".to_owned(), text);
        }
        if !is_full {
            members.shift_remove("full_message");
        }
    }
    if naming.strips_underscore {
        let named = |(name, value): (String, Value)| match name.strip_prefix('_') {
            Some(rest) if !rest.is_empty() => (rest.to_owned(), value),
            _ => (name, value),
        };
        members = members.into_iter().map(named).collect();
    }
    let mut event = Event::from_fields(members, now);
    if let Some(time) = time {
        event.set_timestamp(time);
    }
    event
}

/// Reads seconds since 1970 with a fraction.
fn seconds(value: &Value) -> Option<DateTime<Utc>> {
    let number = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    DateTime::from_timestamp(whole.parse().ok()?, digits.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};
    use proptest::prelude::*;

    use super::*;

    const NAMING: FieldNaming = FieldNaming { remaps: true, strips_underscore: true };

    fn read_now(bytes: &[u8]) -> Event {
        read(bytes, NAMING, DateTime::UNIX_EPOCH)
    }

    #[test]
    fn members_become_fields() {
        let text = br#"{"version":"1.1","host":"web","short_message":"short","full_message":"full",
            "timestamp":1385053862.3072,"level":1,"_user_id":9001,"_":"odd"}"#;
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(text).unwrap();
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(text).unwrap();
        let gzip = gzip.finish().unwrap();
        let over_tcp = read_plain(&gzip, NAMING, DateTime::UNIX_EPOCH);
        assert_eq!(over_tcp.fields()["tags"], serde_json::json!([FAILURE]));
        for bytes in [text.to_vec(), gzip, zlib.finish().unwrap()] {
            let event = read_now(&bytes);
            assert_eq!(event.timestamp_text(), "2013-11-21T17:11:02.307200Z");
            let expected = serde_json::json!({"version": "1.1", "host": "web", "short_message": "short",
                "message": "full", "level": 1, "user_id": 9001, "_": "odd"});
            assert_eq!(Value::Object(event.fields().clone()), expected);
        }
        let event = read_now(br#"{"short_message":"a","full_message":"","timestamp":"soon"}"#);
        assert_eq!(event.fields()["message"], "a");
        assert_eq!(event.fields()["timestamp"], "soon");
        assert!(!event.has_field("short_message") && !event.has_field("full_message"));
        let event = read(
            br#"{"short_message":"a","_b":1}"#,
            FieldNaming { remaps: false, strips_underscore: false },
            DateTime::UNIX_EPOCH,
        );
        assert!(event.has_field("short_message") && event.has_field("_b"));
    }

    #[test]
    fn what_is_no_message_is_tagged() {
        let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
        bomb.write_all(&vec![b' '; MAX_MESSAGE + 1]).unwrap();
        for (bytes, tag) in [
            (b"[1]".to_vec(), FAILURE),
            (b"{".to_vec(), FAILURE),
            (vec![0x1f, 0x8b, 1], INFLATE_FAILURE),
            (bomb.finish().unwrap(), INFLATE_FAILURE),
        ] {
            assert_eq!(read_now(&bytes).fields()["tags"], serde_json::json!([tag]));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_become_an_event(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_now(&bytes);
        }
    }
}
