//! Tests of the codecs for rows, bulk requests, gzip and MessagePack.

use std::io::Write as _;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{codec, decoded, encoded, event, given, messages};
use crate::codec::Events;

#[test]
fn rows_are_events() {
    let csv = codec("csv", json!({"columns": ["a", "b"], "convert": ["a", "integer"]}));
    let rows = decoded(&csv, &[b"1,\"x,", b"y\"\n2,z,more\n\"broken\n"]);
    assert_eq!(rows[0], json!({"a": 1, "b": "x,y"}));
    assert_eq!(rows[1], json!({"a": 2, "b": "z", "column3": "more"}));
    assert_eq!(rows[2], json!({"message": "\"broken", "tags": ["_csvparsefailure"]}));
    let detecting = codec(
        "csv",
        json!({"autodetect_column_names": true, "separator": ";", "target": "row", "skip_empty_columns": true}),
    );
    assert_eq!(decoded(&detecting, &[b"x;y\n1;\n"]), [json!({"row": {"x": "1"}})]);
    let writing = codec("csv", json!({"columns": ["a", "[b][c]"], "include_headers": true}));
    let first = event(json!({"a": "x\"", "b": {"c": 2}}));
    assert_eq!(encoded(&writing, &first), "a,[b][c]\n\"x\"\"\",2\n");
    assert_eq!(encoded(&writing, &event(json!({"b": {"c": []}}))), ",[]\n");
    assert!(given("csv", json!({"convert": ["a", "colour"]})).is_err());
}

#[test]
fn bulk_requests_are_events() {
    let bulk = codec("es_bulk", json!({}));
    let body = b"{\"index\":{\"_index\":\"i\",\"_id\":\"1\"}}\n{\"a\":1}\n{\"delete\":{\"_id\":\"2\"}}\n{\"create\":{}}\n{\"a\":2}";
    let mut decoder = bulk.decoder();
    let mut events = Events::default();
    for chunk in body.chunks(7) {
        decoder.decode(chunk, &mut events);
    }
    assert!(decoder.holds());
    decoder.finish(&mut events);
    let found: Vec<(Value, Value)> = events
        .iter()
        .map(|event| (Value::Object(event.fields().clone()), Value::Object(event.metadata().clone())))
        .collect();
    assert_eq!(
        found,
        [
            (json!({"a": 1}), json!({"_index": "i", "_id": "1", "action": "index"})),
            (json!({}), json!({"_id": "2", "action": "delete"})),
            (json!({"a": 2}), json!({"action": "create"})),
        ]
    );
    assert_eq!(messages(&bulk, &[b"{\"index\":{}}\nno json\n"]), ["no json"]);
    let ecs = codec("es_bulk", json!({"ecs_compatibility": "v8", "target": "doc"}));
    let mut events = Events::default();
    ecs.decoder().decode(b"{\"index\":{\"_id\":\"1\"}}\n{\"a\":1}\n", &mut events);
    assert_eq!(events[0].metadata()["codec"], json!({"es_bulk": {"_id": "1", "action": "index"}}));
    assert_eq!(events[0].fields()["doc"], json!({"a": 1}));
}

#[test]
fn compressed_lines_are_events() {
    let lines = codec("gzip_lines", json!({}));
    let pack = |text: &str| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let bytes = [pack("a\nb"), pack("c\nd")].concat();
    let chunks: Vec<&[u8]> = bytes.chunks(5).collect();
    assert_eq!(messages(&lines, &chunks), ["a", "bc", "d"]);
    assert_eq!(decoded(&lines, &[b"plain text, not gzip"])[0]["tags"], json!(["_gziplinesfailure"]));
    let cut = decoded(&lines, &[&pack("a\nb\n")[..20]]);
    assert_eq!(cut.last().unwrap()["tags"], json!(["_gziplinesfailure"]));
    let mut out = Vec::new();
    let written = codec("gzip_lines", json!({"format": "%{n}"}));
    for n in 1..3 {
        written.encode(&event(json!({"n": n})), &mut out);
    }
    assert_eq!(messages(&lines, &[&out]), ["1", "2"]);
}

#[test]
fn packed_objects_are_events() {
    let pack = codec("msgpack", json!({}));
    let object = [0x82, 0xa1, b'a', 0x01, 0xa1, b'b', 0x93, 0xc0, 0xc3, 0xff];
    assert_eq!(
        decoded(&pack, &[&object[..4], &object[4..], &object]),
        [json!({"a": 1, "b": [null, true, -1]}), json!({"a": 1, "b": [null, true, -1]})]
    );
    let time = [0x81, 0xa1, b't', 0xd6, 0xff, 0, 0, 0, 1];
    assert_eq!(decoded(&pack, &[&time]), [json!({"t": "1970-01-01T00:00:01.000Z"})]);
    assert_eq!(decoded(&pack, &[&[0xc1]])[0]["tags"], json!(["_msgpackparsefailure"]));
    assert_eq!(decoded(&pack, &[&[0x01]])[0]["tags"], json!(["_msgpackparsefailure"]));
    let deep = [0x91; 200];
    assert_eq!(decoded(&pack, &[&deep])[0]["tags"], json!(["_msgpackparsefailure"]));
    // Lengths that no stream has are refused at once.
    assert_eq!(
        decoded(&pack, &[&[0xdd, 0xff, 0xff, 0xff, 0xff, 1]])[0]["tags"],
        json!(["_msgpackparsefailure"])
    );
    assert_eq!(decoded(&codec("msgpack", json!({"target": "x"})), &[&[0x05]]), [json!({"x": 5})]);
    let formatted = codec("msgpack", json!({"format": "%{a}"}));
    assert_eq!(decoded(&formatted, &[&object])[0]["message"], "1");
}

/// However a large object comes, the event is there with its last byte.
#[test]
fn a_packed_object_is_read_with_its_last_byte() {
    let pack = codec("msgpack", json!({}));
    let list = json!([1, -70_000, 2.5, null, 70_000, {"c": [true, "é"], "d": "y".repeat(300)}]);
    let mut bytes = Vec::new();
    pack.encode(&event(json!({"a": "x".repeat(100_000), "b": list})), &mut bytes);
    let (last, before) = bytes.split_last().unwrap();
    for size in [1_000, 65_536, 99_999] {
        let (mut decoder, mut events) = (pack.decoder(), Events::default());
        for chunk in before.chunks(size) {
            decoder.decode(chunk, &mut events);
        }
        assert_eq!(events.iter_mut().count(), 0, "{size}");
        decoder.decode(&[*last], &mut events);
        assert_eq!((events.iter_mut().count(), decoder.holds()), (1, false), "{size}");
    }
}

#[test]
fn what_can_be_no_packed_object_is_one_event_at_once() {
    let pack = codec("msgpack", json!({}));
    // A list in a list of which the rest is to come: its length can be none, or its second value.
    for impossible in [&[0x92, 0x91, 0xdd, 0xff, 0xff, 0xff, 0xff][..], &[0x93, 0x01, 0xc1]] {
        let (mut decoder, mut events) = (pack.decoder(), Events::default());
        decoder.decode(&impossible[..1], &mut events);
        assert!(decoder.holds());
        decoder.decode(&impossible[1..], &mut events);
        assert_eq!((events.iter_mut().count(), decoder.holds()), (1, false), "{impossible:?}");
    }
}

#[test]
fn dots_show_the_pace() {
    assert_eq!(encoded(&codec("dots", json!({})), &event(json!({"a": 1}))), ".");
}

proptest! {
    #[test]
    fn packed_events_come_back(
        text in "\\PC{0,300}",
        number in proptest::num::i64::ANY,
        float in -1e9_f64..1e9,
        list in proptest::collection::vec(proptest::num::u32::ANY, 0..40),
        cut in 0_usize..400,
    ) {
        let fields = json!({"text": text, "number": number, "float": float, "list": list, "object": {"a": null, "b": [{}]}});
        let pack = codec("msgpack", json!({}));
        let mut bytes = Vec::new();
        pack.encode(&event(fields.clone()), &mut bytes);
        let (a, b) = bytes.split_at(cut.min(bytes.len()));
        prop_assert_eq!(decoded(&pack, &[a, b]), [fields]);
    }

    #[test]
    fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..80), cut in 0_usize..80) {
        let (a, b) = bytes.split_at(cut.min(bytes.len()));
        for name in ["csv", "es_bulk", "gzip_lines", "msgpack"] {
            decoded(&codec(name, json!({})), &[a, b]);
        }
    }
}
