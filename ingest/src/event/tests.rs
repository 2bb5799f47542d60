use chrono::{DateTime, TimeZone, Utc};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Additions, BlockEvent, DocumentBlockBuilder, Event, FieldReference, Scratch, Template, text_of};

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

/// Names and values as hostile sources send them: escapes of all kinds, numbers of all forms, names that come twice.
fn hostile() -> impl Strategy<Value = String> {
    let space = prop_oneof![4 => Just(""), 1 => Just(" "), 1 => Just("\n\t")];
    let name = prop_oneof![
        6 => "[a-d]{1,2}",
        1 => Just("@timestamp".to_owned()),
        1 => Just("@metadata".to_owned()),
        1 => Just("tags".to_owned()),
        1 => Just("@version".to_owned()),
        1 => r#"(\\u00e9|\\"|\\\\|ä|\\/|\u{7f}){1,2}"#,
    ];
    let leaf = prop_oneof![
        2 => "\"[a-z0-9 ]{0,8}\"",
        2 => r#""(\\n|\\u00[0-9a-f]{2}|\\ud83d\\ude00|\\ud83d|\\/|\\"|\\\\|\\x|ä|€|😀|\t){0,3}""#,
        1 => Just("\"2020-01-02T03:04:05.678Z\"".to_owned()),
        2 => "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?",
        1 => "[-+.0-9eE]{1,6}",
        1 => "true|false|null|nul|NaN|Infinity|'a'|",
    ];
    let leaf = leaf.boxed();
    let name = name.boxed();
    leaf.prop_recursive(4, 24, 5, move |inner| {
        let member = (name.clone(), space.clone(), inner.clone());
        let members = proptest::collection::vec(member, 0..5);
        let (elements, around) = (proptest::collection::vec(inner, 0..4), space.clone());
        prop_oneof![
            3 => (members, around.clone()).prop_map(|(members, around)| {
                let member = |(name, space, value): &(String, &str, String)| {
                    format!("{around}\"{name}\"{space}:{around}{value}{space}")
                };
                format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(","))
            }),
            1 => (elements, around).prop_map(|(elements, around)| {
                format!("[{}{around}]", elements.join(&format!("{around},")))
            }),
        ]
    })
}

/// The event of a text by way of values, as the codecs make it of what is not scanned.
fn parsed(text: &str, now: DateTime<Utc>) -> Option<Event> {
    match serde_json::from_str(text).ok()? {
        Value::Object(fields) => Some(Event::from_fields(fields, now)),
        _ => None,
    }
}

fn written(event: &Event) -> String {
    let mut bytes = Vec::new();
    event.write_json(&mut bytes);
    String::from_utf8(bytes).unwrap()
}

/// The event of a text whose document is in a block, with what an input adds.
fn in_block(text: &str, now: DateTime<Utc>, mut additions: Additions) -> Option<Event> {
    let mut block = DocumentBlockBuilder::default();
    // Other documents are around it.
    let around = |block: &mut DocumentBlockBuilder| {
        let scratch = &mut Scratch::default();
        Event::scan_to_block("{\"x\":1}", scratch, || now, block, &mut Additions::default()).unwrap();
    };
    around(&mut block);
    let scanned = Event::scan_to_block(text, &mut Scratch::default(), || now, &mut block, &mut additions);
    around(&mut block);
    let (BlockEvent { mut event, document }, _) = scanned?;
    if let Some((range, bytes)) = document {
        event.set_document(&block.finish(), range);
        assert_eq!(event.bytes(), bytes);
        let mut outdated = event.clone();
        outdated.set_timestamp(event.timestamp());
        assert_eq!(outdated.document(), None);
        assert_eq!(written(&event), written(&outdated));
    }
    Some(event)
}

#[test]
fn documents_are_at_hand_until_an_event_is_changed() {
    let now = Utc.timestamp_nanos(7_000_000_123);
    let additions = || Additions::default().member("a", "added").member("b", 2).metadata("ip", "::1");
    let text = r#"{"a":1,"c":{"d":[1, 2]},"@metadata":{"m":1}}"#;
    let event = in_block(text, now, additions()).unwrap();
    let expected = r#"{"@timestamp":"1970-01-01T00:00:07.000000123Z","a":1,"c":{"d":[1,2]},"b":2}"#;
    assert_eq!(event.document().unwrap(), expected);
    assert_eq!(Value::Object(event.metadata().clone()), json!({"m": 1, "ip": "::1"}));
    assert_eq!(event.get(&reference("[c][d][1]")).as_deref(), Some(&json!(2)));
    assert!(event.document().is_some(), "looking at it changes nothing");
    let changes: [fn(&mut Event); 6] = [
        |event| event.set_timestamp(DateTime::UNIX_EPOCH),
        |event| event.set(&reference("@timestamp"), json!("2020-01-02T03:04:05Z")).unwrap(),
        |event| event.set_text("a", "other"),
        |event| event.discard(&reference("c")),
        |event| event.tag("tag"),
        |event| {
            event.fields_mut();
        },
    ];
    for change in changes {
        let (mut changed, mut same) = (event.clone(), event.clone());
        same.fields_mut();
        change(&mut changed);
        change(&mut same);
        assert_eq!(changed.document(), None);
        assert_eq!(written(&changed), written(&same));
    }
    assert_eq!(event.document().unwrap(), expected, "clones share the document, and no changes");
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(100_000));
    let many: Vec<String> = (0..63).map(|n| format!("\"n{n}\":{n}")).collect();
    for text in [long, format!("{{{}}}", many.join(","))] {
        let event = in_block(&text, now, additions()).unwrap();
        assert_eq!(event.document(), None);
        assert_eq!(event.fields()["b"], 2);
    }
}

/// The text of an event with numbers as values have them: texts keep those that values cannot hold.
fn said(event: &Event) -> String {
    serde_json::from_str::<Value>(&written(event)).unwrap().to_string()
}

#[test]
fn numbers_that_values_cannot_hold_stay_as_they_are_written() {
    let now = Utc.timestamp_opt(7, 0).unwrap();
    let numbers = "123456789012345678901234567890,-98765432109876543210,0.1234567890123456789,1.5";
    let text = format!("{{\"a\":[{numbers}],\"b\":1}}");
    let (mut event, _) = Event::scan(&text, &mut Scratch::default(), || now).unwrap();
    event.set_text("c", "d");
    event.remove(&reference("b"));
    assert!(written(&event).contains(&format!("[{numbers}]")), "{}", written(&event));
}

/// Applies one of the changes that an event allows.
fn change(event: &mut Event, kind: u8, name: &str, value: &Value) {
    let reference = reference(name);
    match kind {
        0 => drop(event.remove(&reference)),
        1 => drop(event.set(&reference, value.clone())),
        2 => event.set_missing(name, "missing"),
        3 => drop(event.set_written(&reference, &value.clone().into())),
        4 => event.tag("tag"),
        5 => event.untag("tag"),
        6 => drop(event.get(&reference)),
        7 => event.set_text(name, "text \"with\" \u{1} escapes"),
        _ => drop(event.fields().len()),
    }
}

#[test]
fn what_is_usual_is_kept_as_text() {
    let now = Utc.timestamp_opt(7, 0).unwrap();
    for (text, expected) in [
        (r#"{}"#, r#"{"@timestamp":"1970-01-01T00:00:07.000Z"}"#),
        (
            r#" { "a" : [ 1.50 , 1e3, 12345678901234567890123 ] , "@timestamp" : "2020-01-01" } "#
                .trim_start(),
            r#"{"@timestamp":"2020-01-01T00:00:00.000Z","a":[1.5,1000.0,12345678901234567890123]}"#,
        ),
        (r#"{"@metadata": {"a" : 1}, "b":2}"#, r#"{"@timestamp":"1970-01-01T00:00:07.000Z","b":2}"#),
        (r#"{"b":2,"@metadata":null}"#, r#"{"@timestamp":"1970-01-01T00:00:07.000Z","b":2}"#),
        (
            r#"{"@timestamp":null,"a":"\u00e4\/\u000A\ud83d\ude00","b":{"c":{},"d":{"c":-0}}}"#,
            "{\"@timestamp\":\"1970-01-01T00:00:07.000Z\",\"a\":\"ä/\\n😀\",\"b\":{\"c\":{},\"d\":{\"c\":-0.0}}}",
        ),
    ] {
        let (event, length) = Event::scan(text, &mut Scratch::default(), || now).expect(text);
        assert_eq!(length, text.trim_end().len());
        assert_eq!(written(&event), expected);
        assert_eq!(Some(event), parsed(text, now), "{text}");
    }
    for text in [
        r#"{"a":1,"a":2}"#,
        r#"{"b":{"a":1,"a":2}}"#,
        r#"{"@metadata":1}"#,
        r#"{"tags":{}}"#,
        r#"{"@timestamp":"soon"}"#,
        r#"{"@timestamp":1}"#,
        r#"{"a":"\ud800"}"#,
        r#"{"a":01}"#,
        r#"{"a":1"#,
        r#"{"a":1,}"#,
        "{\"a\":\"\n\"}",
        "[]",
    ] {
        assert!(Event::scan(text, &mut Scratch::default(), || now).is_none(), "{text}");
    }
    let many: Vec<String> = (0..100).map(|n| format!("\"n{n}\":{n}")).collect();
    assert!(Event::scan(&format!("{{{}}}", many.join(",")), &mut Scratch::default(), || now).is_none());
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(200), "]".repeat(200));
    assert!(Event::scan(&deep, &mut Scratch::default(), || now).is_none());
}

#[test]
fn metadata_is_shared_until_it_is_changed() {
    let now = Utc.timestamp_opt(7, 0).unwrap();
    let mut scratch = Scratch::default();
    let mut additions = Additions::default().member("host", "web").metadata("ip", "::1");
    let mut event = |text: &str| {
        let (mut event, _) = Event::scan(text, &mut scratch, || now).unwrap();
        additions.add_to(&mut event);
        event
    };
    let [mut one, other, bare, named] = [
        r#"{"@metadata":{"beat":"a"}}"#,
        r#"{"@metadata":{"beat":"a"}}"#,
        r#"{}"#,
        r#"{"host":"own","@metadata":{"beat":"b","ip":"x"}}"#,
    ]
    .map(&mut event);
    one.set(&reference("[@metadata][beat]"), json!("c")).unwrap();
    let metadata = |event: &Event| Value::Object(event.metadata().clone());
    assert_eq!(metadata(&one), json!({"beat": "c", "ip": "::1"}));
    assert_eq!(metadata(&other), json!({"beat": "a", "ip": "::1"}));
    assert_eq!(metadata(&bare), json!({"ip": "::1"}));
    assert_eq!(metadata(&named), json!({"beat": "b", "ip": "::1"}));
    assert_eq!((&other.fields()["host"], &named.fields()["host"]), (&json!("web"), &json!("own")));
}

#[test]
fn long_texts_and_many_fields_become_maps() {
    let mut event = Event::new(Utc.timestamp_opt(7, 0).unwrap());
    let mut expected = event.clone();
    expected.fields_mut();
    for n in 0..200 {
        for event in [&mut event, &mut expected] {
            event.set_text(&format!("name{n}"), &"x".repeat(n));
            event.remove(&reference(&format!("name{}", n / 2)));
        }
        assert_eq!(written(&event), written(&expected));
    }
    event.set_text("name1", &"x".repeat(100_000));
    assert_eq!(event.remove(&reference("name1")), Some(json!("x".repeat(100_000))));
}

proptest! {
    #[test]
    fn what_is_scanned_is_what_is_parsed(text in hostile()) {
        let now = Utc.timestamp_opt(7, 0).unwrap();
        if let Some((event, length)) = Event::scan(&text, &mut Scratch::default(), || now) {
            prop_assert_eq!(length, text.len());
            let parsed = parsed(&text, now);
            prop_assert_eq!(Some(said(&event)), parsed.as_ref().map(said));
            prop_assert_eq!(Some(event), parsed);
        }
    }

    #[test]
    fn text_and_map_change_alike(
        text in hostile(),
        changes in proptest::collection::vec(
            (0u8..9, "([a-d]|tags|@version|\\[a\\]\\[b\\]|a\"b)", hostile()), 0..8),
    ) {
        let now = Utc.timestamp_opt(7, 0).unwrap();
        let Some((mut event, _)) = Event::scan(&text, &mut Scratch::default(), || now) else { return Ok(()) };
        let Some(mut expected) = parsed(&text, now) else { panic!("it was scanned") };
        let Some(mut shared) = in_block(&text, now, Additions::default()) else { panic!("it was scanned") };
        for (kind, name, value) in changes {
            let value = serde_json::from_str(&value).unwrap_or_else(|_| json!(value));
            for event in [&mut event, &mut expected, &mut shared] {
                change(event, kind, &name, &value);
            }
            let field = reference(&name);
            // One of them may have written a number anew that is not in its shortest form.
            prop_assert_eq!(said(&shared), said(&event));
            prop_assert_eq!(event.get(&field), expected.get(&field));
            prop_assert_eq!(event.has_field(&name), expected.has_field(&name));
            prop_assert_eq!(said(&event), said(&expected));
        }
        prop_assert_eq!(&event, &expected);
        prop_assert_eq!(event, shared);
    }

    #[test]
    fn what_is_added_to_a_document_is_what_is_added_to_its_event(text in hostile()) {
        let now = Utc.timestamp_opt(7, 0).unwrap();
        let additions = || Additions::default().member("a", "x\"y").member("@version", "1").metadata("b", "c");
        let scanned = Event::scan(&text, &mut Scratch::default(), || now);
        let shared = in_block(&text, now, additions());
        prop_assert_eq!(scanned.is_some(), shared.is_some());
        if let (Some((mut event, _)), Some(shared)) = (scanned, shared) {
            additions().add_to(&mut event);
            prop_assert_eq!(written(&shared), written(&event));
            prop_assert_eq!(shared.bytes(), event.bytes());
            prop_assert_eq!(shared.metadata(), event.metadata());
        }
    }
}
