use serde_json::json;

use super::*;
use crate::message::{InstrumentationScope, Resource};

fn attribute<'a>(key: &'a str, text: &'a str) -> KeyValue<'a> {
    KeyValue { key: key.into(), value: AnyValue::Text(text.into()) }
}

fn context() -> RecordContext<'static> {
    let resource = [("service.name", "shop"), ("k8s.pod.name", "pod-1"), ("data_stream.namespace", "Prod")];
    RecordContext {
        resource: Resource {
            attributes: resource.iter().map(|(key, text)| attribute(key, text)).collect(),
            dropped_attributes_count: 3,
        },
        resource_schema_url: "https://r".into(),
        scope: InstrumentationScope { name: "lib".into(), version: "2".into(), ..Default::default() },
        ..Default::default()
    }
}

fn record() -> LogRecord<'static> {
    LogRecord {
        time_unix_nano: 1_544_712_660_300_000_007,
        severity_number: 9,
        severity_text: "INFO".into(),
        trace_id: vec![0xab; 16].into(),
        span_id: vec![0; 8].into(),
        flags: 0x101,
        body: AnyValue::Text("hello".into()),
        attributes: vec![
            attribute("http.method", "GET"),
            attribute("http.method", "again"),
            attribute("data_stream.dataset", "Web-Access"),
            attribute("exception.message", "oops"),
        ],
        ..Default::default()
    }
}

fn document(
    mapping: DocumentMapping,
    index: Option<&str>,
    record: &LogRecord<'_>,
) -> (String, serde_json::Value) {
    let mut out = Vec::new();
    let mut converter = Converter::new(mapping, index.map(Arc::from));
    let index = converter.convert(&context(), record, 5, &mut out).unwrap();
    (index.to_string(), serde_json::from_slice(&out).unwrap())
}

#[test]
fn the_model_of_opentelemetry_is_kept() {
    let (index, document) = document(DocumentMapping::Otel, None, &record());
    assert_eq!(index, "logs-web_access.otel-prod");
    let expected = json!({
        "@timestamp": "2018-12-13T14:51:00.300000007Z",
        "data_stream": {"type": "logs", "dataset": "web_access.otel", "namespace": "prod"},
        "severity_text": "INFO", "severity_number": 9,
        "trace_id": "abababababababababababababababab", "trace_flags": 1,
        "body": {"text": "hello"},
        "attributes": {"http.method": "GET", "exception.message": "oops"},
        "resource": {"schema_url": "https://r", "dropped_attributes_count": 3,
            "attributes": {"service.name": "shop", "k8s.pod.name": "pod-1"}},
        "scope": {"name": "lib", "version": "2"},
    });
    assert_eq!(document, expected);
}

#[test]
fn names_of_the_elastic_common_schema_are_top_level() {
    let (index, document) = document(DocumentMapping::Ecs, None, &record());
    assert_eq!(index, "logs-web_access-prod");
    let expected = json!({
        "@timestamp": "2018-12-13T14:51:00.300000007Z",
        "data_stream": {"type": "logs", "dataset": "web_access", "namespace": "prod"},
        "message": "hello", "log.level": "INFO", "event.severity": 9,
        "trace.id": "abababababababababababababababab",
        "http.method": "GET", "error.message": "oops",
        "service.name": "shop", "kubernetes.pod.name": "pod-1",
        "otel.scope.name": "lib", "otel.scope.version": "2",
    });
    assert_eq!(document, expected);
}

#[test]
fn attributes_with_names_of_members_that_are_not_written_stay() {
    let names = ["host.name", "message", "log.level", "trace.id", "@timestamp"];
    let attributes = names.iter().map(|name| attribute(name, "own")).collect();
    let (_, document) = document(DocumentMapping::Ecs, None, &LogRecord { attributes, ..Default::default() });
    for name in &names[..4] {
        assert_eq!(document[name], "own", "{name}");
    }
    assert_eq!(document["@timestamp"], "1970-01-01T00:00:00.000000005Z");
}

#[test]
fn bodies_of_all_types_have_a_field() {
    let map = AnyValue::Map(vec![attribute("a.b", "c")]);
    for (body, otel, ecs) in [
        (AnyValue::Int(-7), json!({"text": "-7"}), "-7"),
        (AnyValue::Bool(true), json!({"text": "true"}), "true"),
        (AnyValue::Double(f64::NAN), json!({"text": "null"}), "null"),
        (AnyValue::Bytes(vec![1, 2].into()), json!({"text": "AQI="}), "AQI="),
        (map, json!({"structured": {"a.b": "c"}}), r#"{"a.b":"c"}"#),
        (AnyValue::Array(Vec::new()), json!({"structured": {"value": []}}), "[]"),
    ] {
        let record = LogRecord { body, ..Default::default() };
        let (index, document) = document(DocumentMapping::Otel, Some("one"), &record);
        assert_eq!((index.as_str(), &document["body"]), ("one", &otel));
        assert_eq!(document["@timestamp"], "1970-01-01T00:00:00.000000005Z");
        assert!(document.get("data_stream").is_none());
        assert_eq!(self::document(DocumentMapping::Ecs, Some("one"), &record).1["message"], ecs);
    }
    let empty = LogRecord::default();
    assert!(document(DocumentMapping::Otel, None, &empty).1.get("body").is_none());
}

#[test]
fn records_of_a_context_share_its_members_and_choose_their_own_index() {
    let context = context();
    let mut converter = Converter::new(DocumentMapping::Otel, None);
    let plain = LogRecord { attributes: vec![attribute("a", "b")], ..Default::default() };
    let mut indices = Vec::new();
    let mut resources = Vec::new();
    for record in [&plain, &record(), &plain] {
        let mut out = Vec::new();
        indices.push(converter.convert(&context, record, 5, &mut out).unwrap().to_string());
        let document: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(document["data_stream"]["namespace"], "prod");
        resources.push(document["resource"].clone());
    }
    assert_eq!(indices, ["logs-generic.otel-prod", "logs-web_access.otel-prod", "logs-generic.otel-prod"]);
    assert!(resources[0]["attributes"].is_object() && resources.iter().all(|other| *other == resources[0]));
}

#[test]
fn of_many_attributes_with_one_name_the_first_stays() {
    let names: Vec<String> = (0..40).map(|number| format!("name-{}", number % 20)).collect();
    let values: Vec<String> = (0..40).map(|number| number.to_string()).collect();
    let attributes = names.iter().zip(&values).map(|(name, value)| attribute(name, value)).collect();
    let record = LogRecord { attributes, ..Default::default() };
    for mapping in [DocumentMapping::Otel, DocumentMapping::Ecs] {
        let (_, document) = document(mapping, Some("one"), &record);
        let of_record = if mapping == DocumentMapping::Otel { &document["attributes"] } else { &document };
        for number in 0..20 {
            assert_eq!(of_record[format!("name-{number}")], number.to_string());
        }
    }
}

#[test]
fn records_that_cannot_be_written_are_refused() {
    let mut converter = Converter::new(DocumentMapping::Otel, None);
    let mut out = Vec::new();
    for (record, reason) in [
        (LogRecord { time_unix_nano: u64::MAX, ..Default::default() }, "beyond the year 2262"),
        (LogRecord { trace_id: vec![1; 3].into(), ..Default::default() }, "trace_id has [3] bytes, not [16]"),
        (LogRecord { span_id: vec![1; 16].into(), ..Default::default() }, "span_id has [16] bytes, not [8]"),
    ] {
        let error = converter.convert(&context(), &record, 1, &mut out).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
    assert!(out.is_empty());
}

#[test]
fn instants_are_written_with_the_digits_that_they_have() {
    for (nanoseconds, expected) in [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_709_210_096_007_000_000, "2024-02-29T12:34:56.007Z"),
        (1_709_210_096_007_000_089, "2024-02-29T12:34:56.007000089Z"),
        (i64::MAX.unsigned_abs(), "2262-04-11T23:47:16.854775807Z"),
    ] {
        assert_eq!(InstantText::new(nanoseconds).as_ref().map(InstantText::as_str), Ok(expected));
    }
    assert_eq!(InstantText::new(u64::MAX).err(), Some(RecordError::Time(u64::MAX)));
}
