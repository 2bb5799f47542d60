use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::build;
use super::message::{CefMessage, MalformedCef};
use crate::codec::{Codec, Events};
use crate::options::Location;
use crate::{Event, Options, Setting};

const MESSAGE: &str = "CEF:0|security|threatmanager|1.0|100|trojan successfully stopped|10|src=10.0.0.192 dst=12.121.122.82 spt=1232";

fn codec(given: Vec<(&str, Setting)>) -> Arc<dyn Codec> {
    let given = given.into_iter().map(|(name, value)| (name.to_owned(), Location::default(), value));
    build(Options::new("cef", Location::default(), given)).unwrap()
}

fn text(text: &str) -> Setting {
    Setting::Text(text.to_owned())
}

fn list(texts: &[&str]) -> Setting {
    Setting::Array(texts.iter().map(|one| text(one)).collect())
}

fn decoded(codec: &Arc<dyn Codec>, chunks: &[&str]) -> Vec<Event> {
    let (mut decoder, mut events) = (codec.decoder(), Events::default());
    chunks.iter().for_each(|chunk| decoder.decode(chunk.as_bytes(), &mut events));
    decoder.finish(&mut events);
    events.into_vec()
}

fn fields(codec: &Arc<dyn Codec>, message: &str) -> Value {
    let [event] = <[Event; 1]>::try_from(decoded(codec, &[message])).unwrap();
    Value::Object(event.fields().clone())
}

fn encoded(given: Vec<(&str, Setting)>, event: Value) -> String {
    let Value::Object(fields) = event else { panic!("an object") };
    let mut out = Vec::new();
    codec(given).encode(&Event::from_fields(fields, chrono::DateTime::UNIX_EPOCH), &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn messages_become_fields() {
    let expected = json!({
        "cefVersion": "0", "deviceVendor": "security", "deviceProduct": "threatmanager", "deviceVersion": "1.0",
        "deviceEventClassId": "100", "name": "trojan successfully stopped", "severity": "10",
        "sourceAddress": "10.0.0.192", "destinationAddress": "12.121.122.82", "sourcePort": "1232",
    });
    assert_eq!(fields(&codec(vec![]), MESSAGE), expected);
    assert_eq!(fields(&codec(vec![]), &format!("\"{MESSAGE}\"")), expected);
    let with_header = fields(&codec(vec![]), &format!("Sep 19 08:26:10 host {MESSAGE}\n"));
    assert_eq!(
        (&with_header["syslog"], &with_header["cefVersion"]),
        (&json!("Sep 19 08:26:10 host"), &json!("0"))
    );
    let raw = fields(&codec(vec![("raw_data_field", text("raw"))]), MESSAGE);
    assert_eq!(raw["raw"], MESSAGE);
}

#[test]
fn values_have_spaces_and_escapes() {
    let found = |extension: &str| fields(&codec(vec![]), &format!("CEF:0|a|b|c|d|e|f|{extension}"));
    assert_eq!(found(r"moo=this\|has an escaped pipe")["moo"], r"this\|has an escaped pipe");
    assert_eq!(found(r"moo=this =has = equals\=")["moo"], "this =has = equals=");
    let escaped = found(r"foo=bar msg=equals \= lines \n ends \r slashes \\ in it bar=baz");
    assert_eq!(escaped["message"], "equals = lines \n ends \r slashes \\ in it");
    assert_eq!((&escaped["foo"], &escaped["bar"]), (&json!("bar"), &json!("baz")));
    let odd = found(
        "a.b-c=1 ad.list[0]=x ad.list[1]=y cs1= cs1Label=Foo Bar request='x?Email:user@example.com; Guid:test='",
    );
    assert_eq!(odd["a.b-c"], "1");
    assert_eq!(odd["deviceCustomString1"], "");
    assert_eq!(odd["requestUrl"], "'x?Email:user@example.com; Guid:test='");
    let header = fields(&codec(vec![]), r"CEF:0|v\|w|double\\|1|2|3|4|");
    assert_eq!((&header["deviceVendor"], &header["deviceProduct"]), (&json!("v|w"), &json!("double\\")));
}

#[test]
fn other_texts_are_tagged() {
    for wrong in [
        "this is not cef",
        r"a|b|c with several \| escaped\| pipes|d|bananas",
        "CEF:0|a|b|c|d|e|f|no key here",
        "CEF:0|a|b|c|d|e|f|x=1\nCEF:0|a|b|c|d|e|f|x=2",
    ] {
        assert_eq!(fields(&codec(vec![]), wrong), json!({"message": wrong, "tags": ["_cefparsefailure"]}));
    }
    assert_eq!(CefMessage::parse("a|b|c|d|e").unwrap_err(), MalformedCef::Header(4));
}

#[test]
fn a_delimiter_cuts_a_stream() {
    let codec = codec(vec![("delimiter", text(r"\r\n"))]);
    let events = decoded(&codec, &[MESSAGE, "\r", "\nCEF:0|fun|whimsy|1.0|100|x|10|a=1", " split=perfect"]);
    assert_eq!(events.len(), 2);
    assert_eq!(events[1].fields()["split"], "perfect");
}

#[test]
fn fields_may_be_those_of_the_schema() {
    let codec = codec(vec![("ecs_compatibility", text("v8")), ("default_timezone", text("UTC"))]);
    let message = "CEF:0|v|p|1.0|100|n|10|rt=Jul 19 2017 10:50:21.127 dtz=Europe/Moscow art=1500464384997 start= dvchost=h src=10.0.0.1";
    let events = decoded(&codec, &[message]);
    assert_eq!(events[0].timestamp_text(), "2017-07-19T07:50:21.127Z");
    let expected = json!({
        "cef": {"version": "0", "name": "n"}, "observer": {"vendor": "v", "product": "p", "version": "1.0", "hostname": "h"},
        "event": {"code": "100", "severity": "10", "timezone": "Europe/Moscow", "created": "2017-07-19T11:39:44.997Z", "start": null},
        "source": {"ip": "10.0.0.1"},
    });
    assert_eq!(Value::Object(events[0].fields().clone()), expected);
}

#[test]
fn events_are_written() {
    assert_eq!(encoded(vec![], json!({})), "CEF:0|Elasticsearch|Logstash|1.0|Logstash|Logstash|6|");
    let header = vec![
        ("vendor", text("%{v}")),
        ("product", text("pro|duct")),
        ("name", text("")),
        ("severity", text("11")),
    ];
    assert_eq!(
        encoded(header, json!({"v": "ven\ndor\\"})),
        "CEF:0|ven dor\\\\|pro\\|duct|1.0|Logstash|Logstash|6|"
    );
    let given = vec![
        ("fields", list(&["foo", "@b-a_r", "missing", "sourceAddress", "[a][b]"])),
        ("delimiter", text(r"\r\n")),
        ("severity", text("%{level}")),
    ];
    let event =
        json!({"foo": "a\\b=c\r\nd", "@b-a_r": [1], "sourceAddress": "::1", "a": {"b": true}, "level": 3});
    let written = encoded(given.clone(), event.clone());
    assert_eq!(
        written,
        "CEF:0|Elasticsearch|Logstash|1.0|Logstash|Logstash|3|foo=a\\\\b\\=c\\nd bar=[1] sourceAddress=::1 ab=true\r\n"
    );
    let short = [given, vec![("reverse_mapping", text("true"))]].concat();
    assert!(encoded(short, event).contains(" src=::1 "));
}

proptest! {
    #[test]
    fn values_come_back(values in proptest::collection::vec("[a-c =\\\\|ä]{0,12}", 1..4)) {
        let event: serde_json::Map<String, Value> =
            values.iter().enumerate().map(|(at, value)| (format!("k{at}"), json!(value.trim_matches(' ')))).collect();
        let names: Vec<String> = event.keys().cloned().collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let written = encoded(vec![("fields", list(&names))], Value::Object(event.clone()));
        let read = fields(&codec(vec![]), &written);
        for (name, value) in &event {
            prop_assert_eq!(&read[name], value, "{}", &written);
        }
    }

    #[test]
    fn nothing_panics(rest in "[a-b=\\\\|\\[\\].0 \"ä]{0,60}") {
        decoded(&codec(vec![]), &[&rest]);
        decoded(&codec(vec![]), &[&format!("CEF:0|a|b|c|d|e|f|{rest}")]);
    }
}
