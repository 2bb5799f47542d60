mod formats;

use std::fs;
use std::sync::Arc;

use chrono::{TimeZone, Utc};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{Codec, Events, NAMES, build, decode_piece};
use crate::options::{Location, Setting};
use crate::{Event, Fault, Options};

fn given(codec: &str, options: Value) -> Result<Arc<dyn Codec>, Vec<Fault>> {
    fn setting(value: &Value) -> Setting {
        match value {
            Value::Array(elements) => Setting::Array(elements.iter().map(setting).collect()),
            Value::Number(number) => Setting::Number(number.clone()),
            Value::String(text) => Setting::Text(text.clone()),
            other => Setting::Text(other.to_string()),
        }
    }
    let Value::Object(options) = options else { panic!("an object") };
    let options = options.iter().map(|(name, value)| (name.clone(), Location::default(), setting(value)));
    build(Options::new(codec, Location::default(), options))
}

fn codec(name: &str, options: Value) -> Arc<dyn Codec> {
    given(name, options).unwrap()
}

fn event(fields: Value) -> Event {
    let Value::Object(fields) = fields else { panic!("an object") };
    Event::from_fields(fields, Utc.with_ymd_and_hms(2013, 1, 2, 3, 4, 5).unwrap())
}

/// Events of chunks of a stream.
fn decoded(codec: &Arc<dyn Codec>, chunks: &[&[u8]]) -> Vec<Value> {
    let mut decoder = codec.decoder();
    let mut events = Events::default();
    chunks.iter().for_each(|chunk| decoder.decode(chunk, &mut events));
    decoder.finish(&mut events);
    assert!(!decoder.holds());
    events.iter().map(|event| Value::Object(event.fields().clone())).collect()
}

fn messages(codec: &Arc<dyn Codec>, chunks: &[&[u8]]) -> Vec<String> {
    let message = |event: &Value| event["message"].as_str().unwrap_or_default().to_owned();
    decoded(codec, chunks).iter().map(message).collect()
}

fn encoded(codec: &Arc<dyn Codec>, event: &Event) -> String {
    let mut bytes = Vec::new();
    codec.encode(event, &mut bytes);
    String::from_utf8(bytes).unwrap()
}

#[test]
fn plain_texts_are_events() {
    let plain = codec("plain", json!({}));
    assert_eq!(messages(&plain, &[b"a\nb", b"\xff\xc3\xa4"]), ["a\nb", "\u{fffd}ä"]);
    let latin = codec("plain", json!({"charset": "iso-8859-1"}));
    assert_eq!(messages(&latin, &[b"gr\xfc\xdfe"]), ["grüße"]);
    let windows = codec("plain", json!({"charset": "CP1252"}));
    assert_eq!(messages(&windows, &[b"\x80 \x93x\x94"]), ["€ “x”"]);
    assert!(given("plain", json!({"charset": "EBCDIC"})).unwrap_err()[0].message.contains("UTF-8"));
    let event = event(json!({"message": "m", "host": "h", "n": 1}));
    assert_eq!(encoded(&plain, &event), "2013-01-02T03:04:05.000Z h m");
    assert_eq!(encoded(&codec("plain", json!({"format": "%{n} %{message}"})), &event), "1 m");
}

#[test]
fn lines_are_events() {
    let line = codec("line", json!({}));
    assert_eq!(messages(&line, &[b"a\nb", b"c\n", b"\nd"]), ["a", "bc", "", "d"]);
    let by = codec("line", json!({"delimiter": "\r\n"}));
    assert_eq!(messages(&by, &[b"a\r", b"\nb\nc\r\n"]), ["a", "b\nc"]);
    assert_eq!(
        encoded(&by, &event(json!({"message": "m", "host": "h"}))),
        "2013-01-02T03:04:05.000Z h m\r\n"
    );
    let mut whole = line.line_decoder();
    let mut events = Events::default();
    whole.decode(b"a", &mut events);
    assert_eq!((events.len(), whole.holds()), (1, false));
}

#[test]
fn json_values_are_events() {
    let json = codec("json", json!({}));
    assert_eq!(decoded(&json, &[br#"{"a":1}"#]), [json!({"a": 1})]);
    assert_eq!(decoded(&json, &[br#"[{"a":1},{"a":2}]"#]), [json!({"a": 1}), json!({"a": 2})]);
    assert_eq!(decoded(&json, &[b" \n"]), Vec::<Value>::new());
    assert_eq!(decoded(&json, &[b"{\"a\":", b"1}{\"b\"", b":2}"]), [json!({"a": 1}), json!({"b": 2})]);
    assert_eq!(decoded(&json, &[b"\xef\xbb\xbf{\"a\":1}"]), [json!({"a": 1})]);
    assert_eq!(decoded(&json, &[br#"{"a":"x\ud83d"}"#]), [json!({"a": "x\u{fffd}"})]);
    assert_eq!(decoded(&json, &[br#"{"a":"\ud83d"#, br#"\ude00"}"#]), [json!({"a": "😀"})]);
    let failed = |text: &str| json!({"message": text, "tags": ["_jsonparsefailure"]});
    assert_eq!(decoded(&json, &[br"no \ud83d json"]), [failed(r"no \ud83d json")]);
    assert_eq!(decoded(&json, &[b"no json"]), [failed("no json")]);
    assert_eq!(decoded(&json, &[b"{\"a\":"]), [failed("{\"a\":")]);
    assert_eq!(decoded(&json, &[b"[1,{\"a\":2}]"]), [failed("1"), json!({"a": 2})]);
    let deep = "[".repeat(100_000);
    assert_eq!(decoded(&json, &[deep.as_bytes()]), [failed(&deep)]);
    let target = codec("json", json!({"target": "[doc]"}));
    assert_eq!(decoded(&target, &[br#"{"a":1}"#]), [json!({"doc": {"a": 1}})]);
    let text = encoded(&json, &event(json!({"a": "x\n"})));
    assert_eq!(text, r#"{"@timestamp":"2013-01-02T03:04:05.000Z","a":"x\n"}"#);
}

#[test]
fn lines_of_json_are_events() {
    let lines = codec("json_lines", json!({}));
    assert_eq!(
        decoded(&lines, &[b"{\"a\":1}\n\n{\"a\"", b":2}\n[{\"a\":3}]"]),
        [json!({"a": 1}), json!({"a": 2}), json!({"a": 3})]
    );
    assert_eq!(
        decoded(&lines, &[b"{\n{\"a\":1}\n"]),
        [json!({"message": "{", "tags": ["_jsonparsefailure"]}), json!({"a": 1})]
    );
    assert!(encoded(&lines, &event(json!({}))).ends_with("}\n"));
    let limited = codec("json_lines", json!({"decode_size_limit_bytes": 4}));
    assert!(decoded(&limited, &[b"{\"a\":123456}\n"]).len() > 1);
}

#[test]
fn lines_are_joined() {
    let trace: &[u8] = b"first\n  at a\n  at b\nsecond\n";
    let previous = codec("multiline", json!({"pattern": "^\\s", "what": "previous"}));
    assert_eq!(messages(&previous, &[trace]), ["first\n  at a\n  at b", "second"]);
    assert_eq!(decoded(&previous, &[trace])[0]["tags"], json!(["multiline"]));
    assert_eq!(decoded(&previous, &[trace])[1].get("tags"), None);
    let next = codec("multiline", json!({"pattern": "\\\\$", "what": "next"}));
    assert_eq!(messages(&next, &[b"a\\\nb\\\nc\nd\n"]), ["a\\\nb\\\nc", "d"]);
    let negated = codec(
        "multiline",
        json!({"pattern": "^%{TIMESTAMP_ISO8601} ", "negate": true, "what": "previous", "multiline_tag": "joined"}),
    );
    let log: &[u8] = b"2013-01-02 03:04:05 one\nmore\n2013-01-02 03:04:06 two";
    assert_eq!(messages(&negated, &[log]), ["2013-01-02 03:04:05 one\nmore", "2013-01-02 03:04:06 two"]);
    // The cut between the chunks is within a line.
    assert_eq!(messages(&previous, &[b"fir", b"st\n ", b" at a\n"]), ["first\n  at a"]);
}

#[test]
fn joined_lines_are_bounded() {
    let few = codec("multiline", json!({"pattern": "^ ", "what": "previous", "max_lines": 2}));
    let found = decoded(&few, &[b"a\n b\n c\n d\n e\n"]);
    assert_eq!(found[0]["message"], "a\n b");
    assert_eq!(found[0]["tags"], json!(["multiline", "multiline_codec_max_lines_reached"]));
    assert_eq!(found.len(), 3);
    let short = codec("multiline", json!({"pattern": "^ ", "what": "previous", "max_bytes": "4 b"}));
    assert_eq!(messages(&short, &[b"a\n bc\n d\n"]), ["a\n bc", " d"]);
    for options in [
        json!({"pattern": "(", "what": "next"}),
        json!({"pattern": "x"}),
        json!({"what": "next"}),
        json!({"pattern": "x", "what": "next", "max_bytes": "ten"}),
        json!({"pattern": "x", "what": "before"}),
    ] {
        assert!(given("multiline", options.clone()).is_err(), "{options}");
    }
    let flushed = codec("multiline", json!({"pattern": "^ ", "what": "previous", "auto_flush_interval": 2}));
    assert_eq!(flushed.flush_after(), Some(std::time::Duration::from_secs(2)));
}

#[test]
fn a_piece_that_becomes_too_many_events_stays_text() {
    let json = codec("json", json!({}));
    let mut events = Events::default();
    let piece = |text: &str, most: u64, events: &mut Events| {
        decode_piece(&mut *json.line_decoder(), text.as_bytes(), true, most, events);
    };
    piece(r#"[{"a":1},{"a":2}]"#, 10_000, &mut events);
    assert_eq!(events.len(), 2);
    let bytes = events.bytes();
    let many = format!("[{}{{}}]", "{},".repeat(100));
    piece(&many, 10_000, &mut events);
    let last = events.last().unwrap().fields();
    assert_eq!((events.len(), &last["message"]), (3, &json!(many)));
    assert_eq!(last["tags"], json!(["_toomanyevents"]));
    // One event may be as large as it is.
    piece(&format!(r#"{{"a":"{}"}}"#, "x".repeat(20_000)), 10_000, &mut events);
    assert_eq!(events.len(), 4);
    assert!(events.bytes() > bytes + 60_000);
}

#[test]
fn whole_lines_are_joined() {
    let previous = codec("multiline", json!({"pattern": "^ ", "what": "previous"}));
    let mut decoder = previous.line_decoder();
    let mut events = Events::default();
    for line in ["a", " b", "c"] {
        decoder.decode(line.as_bytes(), &mut events);
    }
    assert_eq!((events.len(), decoder.holds()), (1, true));
    decoder.finish(&mut events);
    assert_eq!(events.len(), 2);
}

#[test]
fn patterns_of_a_directory_are_known() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("mine"), "BEGIN --\\d+--\n").unwrap();
    let directory = directory.path().to_str().unwrap();
    let options =
        json!({"pattern": "%{BEGIN}", "negate": true, "what": "previous", "patterns_dir": [directory]});
    assert_eq!(messages(&codec("multiline", options), &[b"--1--\na\n--2--\n"]), ["--1--\na", "--2--"]);
}

#[test]
fn ruby_shows_events() {
    let event = event(json!({
        "message": "say \"#{x}\"\n\u{1b}", "took": 1.0, "n": null, "tags": ["a", ["b"]], "empty": {}, "none": [],
        "http": {"method": "GET", "status": {"code": 200}},
    }));
    let expected = r##"{
    "@timestamp" => 2013-01-02T03:04:05.000Z,
       "message" => "say \"\#{x}\"\n\e",
          "took" => 1.0,
             "n" => nil,
          "tags" => [
        [0] "a",
        [1] [
            [0] "b"
        ]
    ],
         "empty" => {},
          "none" => [],
          "http" => {
        "method" => "GET",
        "status" => {
            "code" => 200
        }
    }
}
"##;
    assert_eq!(encoded(&codec("rubydebug", json!({})), &event), expected);
}

#[test]
fn ruby_shows_metadata_on_demand() {
    let event = event(json!({"@metadata": {"a": 1}}));
    let shown = |metadata: bool| encoded(&codec("rubydebug", json!({"metadata": metadata})), &event);
    assert!(shown(true).contains("\"@metadata\" => {\n        \"a\" => 1\n    }"), "{}", shown(true));
    assert!(!shown(false).contains("@metadata"));
}

#[test]
fn unknown_names_and_options_are_faults() {
    for name in NAMES {
        let faults = given(name, json!({"nonsense": 1})).unwrap_err();
        assert!(faults.iter().any(|fault| fault.message.contains("[nonsense]")), "{name}");
    }
    assert!(given("sflow", json!({})).unwrap_err()[0].message.contains("for codec netflow"));
    assert!(given("jsn_lines", json!({})).unwrap_err()[0].message.contains("did you mean [json_lines]?"));
}

proptest! {
    /// However a stream is cut into chunks, its events are the same.
    #[test]
    fn chunks_do_not_matter(
        text in "[ab \\\\{}\\[\\]:\",0-9\\nä]{0,120}",
        cuts in proptest::collection::vec(0usize..120, 0..6),
    ) {
        let bytes = text.as_bytes();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let chunks: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        for (name, options) in [
            ("line", json!({})),
            ("line", json!({"delimiter": "ab"})),
            ("json_lines", json!({})),
            ("multiline", json!({"pattern": "^ ", "what": "previous"})),
            ("multiline", json!({"pattern": "a$", "what": "next", "max_lines": 3})),
        ] {
            let codec = codec(name, options);
            prop_assert_eq!(decoded(&codec, &chunks), decoded(&codec, &[bytes]), "{}", name);
        }
        decoded(&codec("json", json!({})), &chunks);
    }

    #[test]
    fn json_comes_back(message in "\\PC{0,40}", number in proptest::num::i64::ANY, list in proptest::collection::vec("\\PC{0,8}", 0..4)) {
        let fields = Map::from_iter([
            ("message".to_owned(), json!(message)),
            ("number".to_owned(), json!(number)),
            ("list".to_owned(), json!(list)),
        ]);
        let event = event(Value::Object(fields.clone()));
        for name in ["json", "json_lines"] {
            let codec = codec(name, json!({}));
            let mut bytes = Vec::new();
            codec.encode(&event, &mut bytes);
            prop_assert_eq!(decoded(&codec, &[&bytes]), [Value::Object(fields.clone())]);
        }
        let mut shown = Vec::new();
        codec("rubydebug", json!({})).encode(&event, &mut shown);
        prop_assert!(!shown.is_empty());
    }
}

/// The entry points of the fuzzers, with their seeds cut and changed, the same ones in every run.
#[test]
fn seeds_of_the_fuzzers_hold() {
    use rand::{RngExt as _, SeedableRng as _};
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds");
    type Target = (&'static str, fn(&[u8]));
    let targets: [Target; 3] = [
        ("codec", crate::fuzzing::codec),
        ("format", crate::fuzzing::format),
        ("pattern", crate::fuzzing::pattern),
    ];
    let mut random = rand::rngs::StdRng::seed_from_u64(6);
    for (name, target) in targets {
        for entry in fs::read_dir(directory.join(name)).unwrap() {
            let seed = fs::read(entry.unwrap().path()).unwrap();
            target(&seed);
            for _ in 0..200 {
                let mut changed = seed.clone();
                for _ in 0..random.random_range(1..4) {
                    let at = random.random_range(0..changed.len());
                    match random.random_range(0..3) {
                        0 => changed[at] = random.random(),
                        1 => drop(changed.remove(at)),
                        _ => changed.insert(at, b"{}[]\"\\:,%+'\n0a"[random.random_range(0..14)]),
                    }
                }
                target(&changed);
            }
        }
    }
}

#[test]
fn codecs_of_the_schema_keep_the_text_of_an_event() {
    let by_schema = |name: &str, more: Value| {
        let mut options = json!({ "ecs_compatibility": "v8" });
        options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        codec(name, options)
    };
    let kept = |name: &str, more: Value, text: &[u8]| -> Vec<Value> {
        let events = decoded(&by_schema(name, more), &[text]);
        events.iter().map(|event| event["event"]["original"].clone()).collect()
    };
    assert_eq!(kept("plain", json!({ "charset": "CP850" }), b"\x81"), ["\u{fc}"]);
    assert_eq!(kept("line", json!({}), b"a\nb\n"), ["a", "b"]);
    let multiline = json!({ "pattern": "^ ", "what": "previous" });
    assert_eq!(kept("multiline", multiline, b"a\n b\nc"), ["a\n b", "c"]);
    assert_eq!(kept("csv", json!({}), b"1,2\r\n"), ["1,2\r"]);
    assert_eq!(kept("json", json!({}), b" {\"a\": 1} {\"b\":2}"), ["{\"a\": 1}", "{\"b\":2}"]);
    assert_eq!(kept("json", json!({}), b"[{\"a\":1}]"), ["[{\"a\":1}]"]);
    // None of several is the whole text; an event may have its own.
    assert_eq!(kept("json", json!({}), b"[{\"a\":1},{\"a\":2}]"), [Value::Null, Value::Null]);
    assert_eq!(kept("json", json!({}), b"{\"event\":{\"original\":\"x\"}}"), ["x"]);
    assert_eq!(kept("json", json!({}), b"3"), [Value::Null]);
    assert_eq!(kept("json_lines", json!({}), b"{\"a\":1}\n"), [Value::Null]);
}

#[test]
fn streams_of_wide_characters_are_cut_at_their_lines() {
    // The bytes of line ends lie between U+0A0D and U+0100, and between U+0100 and U+0A0D.
    let text = "one \u{a0d}\u{100}\u{a0d}\r\nt\u{d0a}wo\nthree";
    let little: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let marked = [&b"\xff\xfe"[..], &little].concat();
    let wide: Vec<u8> = text.chars().flat_map(|c| u32::from(c).to_be_bytes()).collect();
    for (charset, bytes) in
        [("UTF-16LE", &little), ("UTF-16", &marked), ("UTF-16LE", &marked), ("UTF-32", &wide)]
    {
        for length in [1, 3, 1_000] {
            let chunks: Vec<&[u8]> = bytes.chunks(length).collect();
            let line = codec("line", json!({ "charset": charset }));
            assert_eq!(
                messages(&line, &chunks),
                ["one \u{a0d}\u{100}\u{a0d}\r", "t\u{d0a}wo", "three"],
                "{charset}"
            );
            let multiline =
                codec("multiline", json!({ "charset": charset, "pattern": "^t", "what": "previous" }));
            assert_eq!(
                messages(&multiline, &chunks),
                ["one \u{a0d}\u{100}\u{a0d}\nt\u{d0a}wo\nthree"],
                "{charset}"
            );
        }
    }
    let json: Vec<u8> =
        "{\"a\":\"\u{100}\u{a0d}\"}\n{\"a\":2}\n".encode_utf16().flat_map(u16::to_be_bytes).collect();
    for name in ["json", "json_lines"] {
        let events =
            decoded(&codec(name, json!({ "charset": "UTF-16BE" })), &json.chunks(5).collect::<Vec<_>>());
        assert_eq!(events, [json!({ "a": "\u{100}\u{a0d}" }), json!({ "a": 2 })], "{name}");
    }
}
