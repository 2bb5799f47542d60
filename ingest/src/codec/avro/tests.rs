use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::build;
use super::schema::Schema;
use crate::codec::{Codec, Events};
use crate::options::Location;
use crate::{Event, Fault, Options, Setting};

const SCHEMA: &str = r#"{"type": "record", "name": "log", "namespace": "a.b", "fields": [
    {"name": "id", "type": "long"},
    {"name": "text", "type": ["null", "string"], "default": null},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "counts", "type": {"type": "map", "values": "int"}},
    {"name": "level", "type": {"type": "enum", "name": "level", "symbols": ["LOW", "HIGH"]}},
    {"name": "key", "type": {"type": "fixed", "name": "key", "size": 2}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "ratio", "type": "double"},
    {"name": "next", "type": ["null", "log"], "default": null}
]}"#;

fn given(options: &[(&str, &str)]) -> Result<Arc<dyn Codec>, Vec<Fault>> {
    let options = options
        .iter()
        .map(|(name, value)| ((*name).to_owned(), Location::default(), Setting::Text((*value).to_owned())));
    build(Options::new("avro", Location::default(), options))
}

fn decoded(codec: &Arc<dyn Codec>, bytes: &[u8]) -> Value {
    let (mut decoder, mut events) = (codec.decoder(), Events::default());
    decoder.decode(bytes, &mut events);
    Value::Object(events[0].fields().clone())
}

fn encoded(codec: &Arc<dyn Codec>, fields: Value) -> Vec<u8> {
    let Value::Object(fields) = fields else { panic!("an object") };
    let mut out = Vec::new();
    codec.encode(&Event::from_fields(fields, chrono::DateTime::UNIX_EPOCH), &mut out);
    out
}

fn record() -> Value {
    json!({
        "id": -3, "text": "ä", "tags": ["x", "y"], "counts": {"a": 1}, "level": "HIGH", "key": "ab",
        "at": "2024-05-01T10:11:12.345Z", "day": "1969-12-31", "ratio": 0.5, "next": null,
    })
}

#[test]
fn records_come_back() {
    for encoding in ["base64", "binary"] {
        let codec = given(&[("schema", SCHEMA), ("encoding", encoding)]).unwrap();
        let mut nested = record();
        nested["next"] = record();
        assert_eq!(decoded(&codec, &encoded(&codec, nested.clone())), nested);
    }
    let small = given(&[("schema", r#"{"type":"record","name":"r","fields":[{"name":"a","type":"long"},{"name":"b","type":"string"}]}"#), ("encoding", "binary")]).unwrap();
    // The example of the specification.
    assert_eq!(decoded(&small, &[0x36, 0x06, b'f', b'o', b'o']), json!({"a": 27, "b": "foo"}));
    assert_eq!(encoded(&small, json!({"a": 27, "b": "foo"})), [0x36, 0x06, b'f', b'o', b'o']);
    assert_eq!(encoded(&small, json!({"a": "no number", "b": "foo"})), Vec::<u8>::new());
    let misfit = Event::from_fields(serde_json::Map::new(), chrono::DateTime::UNIX_EPOCH);
    assert!(small.try_encode(&misfit, &mut Vec::new()).unwrap_err().contains("no value of its type"));
    assert_eq!(decoded(&small, &[0x36])["tags"], json!(["_avroparsefailure"]));
    // Bytes that are no text stay whole.
    let failed = decoded(&small, &[0xff, 0xfe]);
    assert_eq!(failed, json!({"message": "//4=", "tags": ["_avroparsefailure"]}));
}

#[test]
fn nulls_without_bytes_are_bounded() {
    let codec =
        given(&[("schema", r#"{"type":"array","items":"null"}"#), ("encoding", "binary"), ("target", "a")])
            .unwrap();
    assert_eq!(decoded(&codec, &[4, 0]), json!({"a": [null, null]}));
    // A block of 500,000 items.
    assert_eq!(decoded(&codec, &[0xc0, 0x84, 0x3d, 0])["tags"], json!(["_avroparsefailure"]));
}

#[test]
fn a_server_that_is_down_is_not_prepared() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let codec = given(&[("schema_uri", &address)]).unwrap();
    assert!(codec.prepare().is_err());
    assert!(given(&[("schema", "\"int\"")]).unwrap().prepare().is_ok());
}

#[test]
fn a_schema_may_be_in_a_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), r#""long""#).unwrap();
    let codec = given(&[("schema_uri", file.path().to_str().unwrap()), ("target", "n")]).unwrap();
    assert_eq!(decoded(&codec, b"Ng=="), json!({"n": 27}));
}

#[test]
fn a_registry_has_schemas_by_number() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        let length = stream.read(&mut request).unwrap();
        let body = json!({"schema": r#"{"type":"record","name":"r","fields":[{"name":"a","type":"int"}]}"#})
            .to_string();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        String::from_utf8_lossy(&request[..length]).into_owned()
    });
    let codec = given(&[("schema_registry_url", &address), ("encoding", "binary")]).unwrap();
    // One request serves all values of the schema.
    for value in [1_u8, 2] {
        assert_eq!(decoded(&codec, &[0, 0, 0, 0, 7, value * 2]), json!({"a": value}));
    }
    assert!(server.join().unwrap().starts_with("GET /schemas/ids/7 HTTP/1.1"));
    assert_eq!(decoded(&codec, &[1, 2])["tags"], json!(["_avroparsefailure"]));
}

#[test]
fn schemas_are_checked() {
    for (schema, expected) in [
        ("{", "no JSON"),
        (r#""colour""#, "there is no type [colour]"),
        (r#"{"type": "array"}"#, "needs the member [items]"),
        (r#"{"type": "record", "name": "a"}"#, "needs the member [fields]"),
        (r#"[{"type":"fixed","name":"a","size":1},{"type":"fixed","name":"a","size":1}]"#, "twice"),
    ] {
        let problem = Schema::parse(schema).unwrap_err();
        assert!(problem.contains(expected), "{problem}");
    }
    let deep = format!("{}\"int\"{}", "{\"type\":\"array\",\"items\":".repeat(65), "}".repeat(65));
    assert!(Schema::parse(&deep).unwrap_err().contains("nested deeper"));
    assert!(given(&[]).unwrap_err()[0].message.contains("needs one of the options"));
    assert!(given(&[("schema", "\"int\""), ("schema_uri", "x")]).is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let codec = given(&[("schema", SCHEMA), ("encoding", "binary")]).unwrap();
        decoded(&codec, &bytes);
        let endless = given(&[("schema", r#"{"type":"array","items":"null"}"#), ("encoding", "binary"), ("target", "a")]).unwrap();
        decoded(&endless, &bytes);
    }
}
