use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::message::{AnyValue, ArrayValue, KeyValue, KeyValueList, ValueKind};

/// The levels above the records, as `opentelemetry-proto` has them.
#[derive(Clone, PartialEq, Message)]
struct ScopeLogs {
    #[prost(message, optional, tag = "1")]
    scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    log_records: Vec<LogRecord>,
    #[prost(string, tag = "3")]
    schema_url: String,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceLogs {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_logs: Vec<ScopeLogs>,
    #[prost(string, tag = "3")]
    schema_url: String,
}

#[derive(Clone, PartialEq, Message)]
struct LogsRequest {
    #[prost(message, repeated, tag = "1")]
    resource_logs: Vec<ResourceLogs>,
}

fn attribute(key: &str, value: ValueKind) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

fn text(text: &str) -> ValueKind {
    ValueKind::Text(text.to_owned())
}

/// A record, or the reason why it is refused, with what is around it.
type ReadRecord = (RecordContext, Result<LogRecord, String>);

fn all(encoding: Encoding, body: &[u8]) -> Result<Vec<ReadRecord>, RequestError> {
    let mut records = Vec::new();
    read::<RequestError>(encoding, body, |context, record| {
        records.push((context.clone(), record));
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

fn expected() -> (RecordContext, LogRecord) {
    let context = RecordContext {
        resource: Resource {
            attributes: vec![attribute("service.name", text("shop"))],
            dropped_attributes_count: 2,
        },
        resource_schema_url: "r".to_owned(),
        scope: InstrumentationScope { name: "lib".to_owned(), version: "1".to_owned(), ..Default::default() },
        scope_schema_url: "s".to_owned(),
    };
    let array = ArrayValue { values: vec![AnyValue { value: Some(text("1")) }, AnyValue::default()] };
    let map = KeyValueList { values: vec![KeyValue { key: "k".to_owned(), value: None }] };
    let record = LogRecord {
        time_unix_nano: 1_544_712_660_300_000_000,
        observed_time_unix_nano: 1_544_712_660_300_000_001,
        severity_number: 10,
        severity_text: "Information".to_owned(),
        trace_id: vec![
            0x5b, 0x8e, 0xff, 0xf7, 0x98, 3, 0x81, 3, 0xd2, 0x69, 0xb6, 0x33, 0x81, 0x3f, 0xc6, 0x0c,
        ],
        span_id: vec![0xee, 0xe1, 0x9b, 0x7e, 0xc3, 0xc1, 0xb1, 0x74],
        flags: 1,
        event_name: "e".to_owned(),
        body: Some(AnyValue { value: Some(text("text")) }),
        attributes: vec![
            attribute("i", ValueKind::Int(-5)),
            attribute("d", ValueKind::Double(1.5)),
            attribute("b", ValueKind::Bool(true)),
            attribute("x", ValueKind::Bytes(vec![1, 2])),
            attribute("a", ValueKind::Array(array)),
            attribute("m", ValueKind::Map(map)),
        ],
        dropped_attributes_count: 0,
    };
    (context, record)
}

#[test]
fn json_and_protobuf_have_the_same_records() {
    let (context, record) = expected();
    let records = all(Encoding::Json, JSON.as_bytes()).unwrap();
    assert_eq!(records.len(), 2);
    assert_eq!(records[0], (context.clone(), Ok(record.clone())));
    assert!(records[1].1.as_ref().unwrap_err().contains("[soon] is no whole number"));
    let scope_logs = ScopeLogs {
        scope: Some(context.scope.clone()),
        log_records: vec![record.clone(), LogRecord::default()],
        schema_url: context.scope_schema_url.clone(),
    };
    let resource_logs = ResourceLogs {
        resource: Some(context.resource.clone()),
        scope_logs: vec![scope_logs.clone(), ScopeLogs { scope: None, ..scope_logs }],
        schema_url: context.resource_schema_url.clone(),
    };
    let body = LogsRequest { resource_logs: vec![resource_logs.clone(), resource_logs] }.encode_to_vec();
    let records = all(Encoding::Protobuf, &body).unwrap();
    assert_eq!(records.len(), 8);
    assert_eq!(records[0], (context.clone(), Ok(record)));
    assert_eq!(records[1].1, Ok(LogRecord::default()));
    // A scope does not stay for the records of the next one.
    assert_eq!(records[2].0.scope, InstrumentationScope::default());
    assert_eq!(records[4].0, context);
    // What is cut off is refused, wherever.
    for end in 1..body.len() {
        let cut = all(Encoding::Protobuf, &body[..end]);
        assert!(cut.is_err() || cut.is_ok_and(|records| records.len() < 8));
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
fn deep_and_long_records_are_refused_alone() {
    let mut deep = AnyValue { value: Some(text("x")) };
    for _ in 0..200 {
        deep = AnyValue { value: Some(ValueKind::Array(ArrayValue { values: vec![deep] })) };
    }
    let long = LogRecord { severity_text: "x".repeat(MAX_RECORD_BYTES + 1), ..Default::default() };
    let log_records = vec![LogRecord { body: Some(deep), ..Default::default() }, long, LogRecord::default()];
    let scope_logs = vec![ScopeLogs { log_records, ..Default::default() }];
    let resource_logs = vec![ResourceLogs { scope_logs, ..Default::default() }];
    let records = all(Encoding::Protobuf, &LogsRequest { resource_logs }.encode_to_vec()).unwrap();
    let outcomes: Vec<_> = records.iter().map(|(_, record)| record.is_ok()).collect();
    assert_eq!(outcomes, [false, false, true]);
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
