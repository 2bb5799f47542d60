use chrono::{DateTime, TimeZone, Utc};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Event, FieldReference, Template, text_of};

fn event(fields: Value) -> Event {
    let Value::Object(fields) = fields else { panic!("an object") };
    Event::from_fields(fields, Utc.timestamp_opt(1_357_095_845, 0).unwrap())
}

fn reference(text: &str) -> FieldReference {
    FieldReference::parse(text).unwrap()
}

#[test]
fn formats_are_filled() {
    let event = event(json!({
        "host": {"name": "web-1", "ports": [80, 443]},
        "tags": ["a", "b"],
        "took": 1.5,
        "large": 1e20,
        "small": 0.00001,
        "ok": true,
        "none": null,
        "@metadata": {"index": "logs"},
    }));
    for (format, expected) in [
        ("plain", "plain"),
        ("%{[host][name]}:%{[host][ports][1]}", "web-1:443"),
        ("%{[host][ports][-1]}", "443"),
        ("%{tags}", "a,b"),
        ("%{host}", r#"{"name":"web-1","ports":[80,443]}"#),
        ("%{took} %{large} %{small} %{ok}", "1.5 1.0e+20 1.0e-05 true"),
        ("%{missing} %{none}", "%{missing} %{none}"),
        ("%{[@metadata][index]}-%{+yyyy.MM.dd}", "logs-2013.01.02"),
        ("%{@timestamp}", "2013-01-02T03:04:05.000Z"),
        ("%{+%s}", "1357095845"),
        ("%{+HH}h", "03h"),
        ("%{{yyyy-MM-dd'T'HH}}", "2013-01-02T03"),
        ("%{+'week' ww}", "week 01"),
        ("%{", "%{"),
        ("%{}x", "%{}x"),
        ("100%{+bb}", "100%{+bb}"),
        ("%{[broken}", "%{[broken}"),
        ("%{{yyyy", "%{{yyyy"),
    ] {
        assert_eq!(Template::parse(format).render(&event), expected, "{format}");
    }
    assert!(Template::parse("plain %{}").is_constant());
    assert!(!Template::parse("%{+yyyy}").is_constant());
}

#[test]
fn values_go_where_references_point() {
    let mut event = event(json!({"a": {"b": [1, 2]}, "text": "x"}));
    event.set(&reference("[a][b][0]"), json!(9)).unwrap();
    event.set(&reference("[a][b][2]"), json!(3)).unwrap();
    event.set(&reference("[n][e][w]"), json!("v")).unwrap();
    event.set(&reference("[@metadata][m]"), json!(1)).unwrap();
    assert_eq!(
        Value::Object(event.fields().clone()),
        json!({"a": {"b": [9, 2, 3]}, "text": "x", "n": {"e": {"w": "v"}}})
    );
    assert!(event.set(&reference("[text][b]"), json!(1)).unwrap_err().contains("[text][b]"));
    assert!(event.set(&reference("[a][b][9]"), json!(1)).is_err());
    assert!(event.set(&reference("@timestamp"), json!("soon")).is_err());
    assert_eq!(event.remove(&reference("[a][b][-1]")), Some(json!(3)));
    assert_eq!(event.remove(&reference("[a][missing]")), None);
    assert_eq!(event.get(&reference("[@metadata][m]")).as_deref(), Some(&json!(1)));
}

#[test]
fn objects_become_events() {
    let time = |event: &Event| event.timestamp().to_rfc3339();
    assert_eq!(
        time(&event(json!({"@timestamp": "2020-01-01T00:00:00.5+01:00"}))),
        "2019-12-31T23:00:00.500+00:00"
    );
    let odd = event(json!({"@timestamp": "soon", "tags": {"a": 1}, "@metadata": 3}));
    assert_eq!(
        Value::Object(odd.fields().clone()),
        json!({
            "_@metadata": 3, "_tags": {"a": 1}, "_@timestamp": "soon",
            "tags": ["_tagsparsefailure", "_timestampparsefailure"]
        })
    );
}

#[test]
fn tags_are_a_set() {
    let mut event = event(json!({"tags": "one"}));
    event.tag("two");
    event.tag("one");
    assert_eq!(event.fields().get("tags"), Some(&json!(["one", "two"])));
    event.untag("one");
    assert_eq!(event.fields().get("tags"), Some(&json!(["two"])));
}

proptest! {
    #[test]
    fn references_and_formats_never_panic(text in "[%{}\\[\\]+@a-z0-9'-]{0,24}") {
        let mut event = event(json!({"a": [1, {"b": 2}], "tags": []}));
        let template = Template::parse(&text);
        let rendered = template.render(&event);
        if template.is_constant() {
            prop_assert_eq!(&rendered, &text);
        }
        if let Ok(reference) = FieldReference::parse(&text) {
            let known = event.get(&reference).is_some();
            prop_assert_eq!(FieldReference::parse(&reference.to_string()), Ok(reference.clone()));
            if event.set(&reference, json!("x")).is_ok() && !text.contains('@') {
                prop_assert_eq!(event.get(&reference).map(|value| text_of(&value)), Some("x".to_owned()));
            }
            let _ = (known, event.remove(&reference));
        }
        let mut bytes = Vec::new();
        event.write_json(&mut bytes);
        prop_assert!(serde_json::from_slice::<Value>(&bytes).is_ok());
    }

    #[test]
    fn times_survive_json(seconds in 0i64..4_000_000_000, nanos in 0u32..1_000_000_000) {
        let at: DateTime<Utc> = Utc.timestamp_opt(seconds, nanos).unwrap();
        let mut bytes = Vec::new();
        Event::new(at).write_json(&mut bytes);
        let Ok(Value::Object(fields)) = serde_json::from_slice(&bytes) else { panic!("an object") };
        prop_assert_eq!(Event::from_fields(fields, Utc::now()).timestamp(), at);
    }
}
