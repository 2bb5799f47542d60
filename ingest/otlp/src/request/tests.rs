use proptest::prelude::*;
use prost::Message;
use protobuf::{LogsRequest, ResourceLogs, ScopeLogs};

use super::*;
use crate::message::{AnyValue, KeyValue};

mod protobuf;

fn attribute<'a>(key: &'a str, value: AnyValue<'a>) -> KeyValue<'a> {
    KeyValue { key: key.into(), value }
}

fn text(text: &str) -> AnyValue<'_> {
    AnyValue::Text(text.into())
}

/// A context, and its record or the reason why that is refused. They are printed, since records last no longer than they are read.
type PrintedRecord = (String, Result<String, String>);

fn print(value: &impl std::fmt::Debug) -> String {
    format!("{value:?}")
}

fn all(encoding: Encoding, body: &[u8]) -> Result<Vec<PrintedRecord>, RequestError> {
    let mut records = Vec::new();
    read::<RequestError>(encoding, body, |context, record| {
        records.push((print(context), record.map(|record| print(&record))));
        Ok(())
    })?;
    Ok(records)
}

const JSON: &str = r#"{"resourceLogs":[{
    "resource":{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}}],"droppedAttributesCount":2},
    "scopeLogs":[{"scope":{"name":"lib","version":"1"},"schemaUrl":"s","logRecords":[{
        "timeUnixNano":"1544712660300000000","observedTimeUnixNano":1544712660300000001,"severityNumber":10,
        "severityText":"Information","traceId":"5B8EFFF798038103D269B633813FC60C","spanId":"EEE19B7EC3C1B174",
        "flags":1,"eventName":"e","body":{"stringValue":"text"},"unknown":{"a":[1]},
        "attributes":[
            {"key":"i","value":{"intValue":"-5"}},{"key":"d","value":{"doubleValue":1.5}},
            {"key":"b","value":{"boolValue":true}},{"key":"x","value":{"bytesValue":"AQI="}},
            {"key":"a","value":{"arrayValue":{"values":[{"stringValue":"1"},{}]}}},
            {"key":"m","value":{"kvlistValue":{"values":[{"key":"k","value":null}]}}}]},
        {"timeUnixNano":"soon"}]},
        {"logRecords":null}],
    "schemaUrl":"r"}]}"#;

fn expected() -> (RecordContext<'static>, LogRecord<'static>) {
    let context = RecordContext {
        resource: Resource {
            attributes: vec![attribute("service.name", text("shop"))],
            dropped_attributes_count: 2,
        },
        resource_schema_url: "r".into(),
        scope: InstrumentationScope { name: "lib".into(), version: "1".into(), ..Default::default() },
        scope_schema_url: "s".into(),
        ..Default::default()
    };
    let trace_id: [u8; 16] =
        [0x5b, 0x8e, 0xff, 0xf7, 0x98, 3, 0x81, 3, 0xd2, 0x69, 0xb6, 0x33, 0x81, 0x3f, 0xc6, 0x0c];
    let record = LogRecord {
        time_unix_nano: 1_544_712_660_300_000_000,
        observed_time_unix_nano: 1_544_712_660_300_000_001,
        severity_number: 10,
        severity_text: "Information".into(),
        trace_id: trace_id.to_vec().into(),
        span_id: vec![0xee, 0xe1, 0x9b, 0x7e, 0xc3, 0xc1, 0xb1, 0x74].into(),
        flags: 1,
        event_name: "e".into(),
        body: text("text"),
        attributes: vec![
            attribute("i", AnyValue::Int(-5)),
            attribute("d", AnyValue::Double(1.5)),
            attribute("b", AnyValue::Bool(true)),
            attribute("x", AnyValue::Bytes(vec![1, 2].into())),
            attribute("a", AnyValue::Array(vec![text("1"), AnyValue::Empty])),
            attribute("m", AnyValue::Map(vec![attribute("k", AnyValue::Empty)])),
        ],
        dropped_attributes_count: 0,
    };
    (context, record)
}

#[test]
fn json_and_protobuf_have_the_same_records() {
    let (context, record) = expected();
    let printed = (print(&context), Ok(print(&record)));
    let records = all(Encoding::Json, JSON.as_bytes()).unwrap();
    assert_eq!(records.len(), 2);
    assert_eq!(records[0], printed);
    assert!(records[1].1.as_ref().unwrap_err().contains("[soon] is no whole number"));
    let scope_logs = ScopeLogs {
        scope: Some((&context.scope).into()),
        log_records: vec![(&record).into(), (&LogRecord::default()).into()],
        schema_url: context.scope_schema_url.to_string(),
    };
    let resource_logs = ResourceLogs {
        resource: Some((&context.resource).into()),
        scope_logs: vec![scope_logs.clone(), ScopeLogs { scope: None, ..scope_logs }],
        schema_url: context.resource_schema_url.to_string(),
    };
    let body = LogsRequest { resource_logs: vec![resource_logs.clone(), resource_logs] }.encode_to_vec();
    let records = all(Encoding::Protobuf, &body).unwrap();
    assert_eq!(records.len(), 8);
    assert_eq!(records[0], printed);
    assert_eq!(records[1].1, Ok(print(&LogRecord::default())));
    // A scope does not stay for the records of the next one.
    assert_eq!(records[2].0, print(&RecordContext { scope: Default::default(), ..context.clone() }));
    assert_eq!(records[4], printed);
    // What is cut off is refused, wherever.
    for end in 1..body.len() {
        let cut = all(Encoding::Protobuf, &body[..end]);
        assert!(cut.is_err() || cut.is_ok_and(|records| records.len() < 8));
    }
}

#[test]
fn fields_of_other_types_are_refused_with_their_record_and_unknown_ones_have_no_effect() {
    // A resource's logs with a scope's logs with one record, each in a message of one byte of length.
    let request = |record: &[u8]| {
        let level =
            |tag: u8, below: &[u8]| [&[tag << 3 | 2, u8::try_from(below.len()).unwrap()], below].concat();
        level(1, &level(2, &level(2, record)))
    };
    let read = |record: &[u8]| all(Encoding::Protobuf, &request(record)).unwrap().remove(0).1;
    let expected = print(&LogRecord { severity_number: 9, ..Default::default() });
    // Field 15 in each type: number, eight bytes, text, a group, four bytes.
    let unknown =
        [0x78, 1, 0x79, 1, 2, 3, 4, 5, 6, 7, 8, 0x7a, 1, b'x', 0x7b, 0x08, 1, 0x7c, 0x7d, 1, 2, 3, 4];
    assert_eq!(read(&[&unknown[..], &[0x10, 9]].concat()), Ok(expected));
    let cut = print(&LogRecord { severity_text: "\u{fffd}".into(), ..Default::default() });
    assert_eq!(read(&[0x1a, 1, 0xff]), Ok(cut));
    for (record, reason) in [
        (&[0x12, 1, b'9'][..], "a field has bytes with a length instead of a number"),
        (&[0x08, 1], "a field has a number of variable length instead of a number of eight bytes"),
        (&[0x09, 1], "cut off"),
        (&[0x1a, 9, b'x'], "cut off"),
        (&[0x7c], "group"),
    ] {
        let refused = read(record).unwrap_err();
        assert!(refused.contains(reason), "{record:?}: {refused}");
    }
}

#[test]
fn requests_without_records_are_read() {
    assert_eq!(all(Encoding::Protobuf, b""), Ok(Vec::new()));
    assert_eq!(all(Encoding::Json, b"{}"), Ok(Vec::new()));
    assert_eq!(all(Encoding::Json, br#"{"resourceLogs":[{}]}"#), Ok(Vec::new()));
    for wrong in [&b"[]"[..], b"{", b"text", br#"{"resourceLogs":1}"#] {
        assert!(all(Encoding::Json, wrong).is_err());
    }
    assert!(all(Encoding::Protobuf, b"{}").is_err());
}

#[test]
fn deep_long_and_wide_records_are_refused_alone() {
    let mut deep = text("x");
    for _ in 0..200 {
        deep = AnyValue::Array(vec![deep]);
    }
    let long = "x".repeat(MAX_RECORD_BYTES + 1);
    let long = LogRecord { severity_text: long.as_str().into(), ..Default::default() };
    // Two bytes each.
    let wide = LogRecord { attributes: vec![KeyValue::default(); 20_000], ..Default::default() };
    let log_records = [LogRecord { body: deep, ..Default::default() }, long, wide, LogRecord::default()];
    let log_records = log_records.iter().map(Into::into).collect();
    let scope_logs = vec![ScopeLogs { log_records, ..Default::default() }];
    let resource_logs = vec![ResourceLogs { scope_logs, ..Default::default() }];
    let records = all(Encoding::Protobuf, &LogsRequest { resource_logs }.encode_to_vec()).unwrap();
    let outcomes: Vec<_> = records.iter().map(|(_, record)| record.is_ok()).collect();
    assert_eq!(outcomes, [false, false, false, true]);
    let json = format!(
        r#"{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{{"body":{}{}}},{{}}]}}]}}]}}"#,
        r#"{"arrayValue":{"values":["#.repeat(60),
        "]}}".repeat(60)
    );
    // The depth of JSON is bounded for the whole request.
    assert!(
        all(Encoding::Json, json.as_bytes()).is_err()
            || all(Encoding::Json, json.as_bytes()).is_ok_and(|records| records[0].1.is_err())
    );
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        crate::fuzzing::request(&bytes);
    }
}
