//! Inputs whose fields have the names of the Elastic Common Schema.

use serde_json::{Value, json};

use super::stream::tests::RunningInput;
use super::testing::{OptionValue, Pipeline, options};
use super::{Input, build};
use crate::{EcsCompatibility, Event};

fn by_schema() -> (&'static str, OptionValue) {
    ("ecs_compatibility", "v8".into())
}

/// Runs an input that ends by itself.
async fn run(plugin: &str, given: &[(&str, OptionValue)]) -> Vec<Event> {
    let input: Box<dyn Input> = build(options(plugin, given)).unwrap();
    let mut pipeline = Pipeline::new(4);
    let run = input.run(pipeline.context());
    let (ended, ()) = tokio::join!(run, async { while pipeline.take().await.is_some() {} });
    ended.unwrap();
    pipeline.events
}

/// All fields and metadata, without those that differ between runs.
fn all(event: &Event) -> Value {
    let mut fields = event.fields().clone();
    fields.insert("@metadata".to_owned(), Value::Object(event.metadata().clone()));
    Value::Object(fields)
}

#[tokio::test]
async fn streams_say_where_they_are_from_in_metadata() {
    let mut running = RunningInput::start("tcp", &[by_schema(), ("codec", "json".into())]).await;
    running.send(b"{\"host\":\"web\",\"@metadata\":{\"input\":{\"a\":1,\"tcp\":{\"source\":{\"ip\":\"forged\"}}}}}\n").await;
    running.store(1).await;
    let mut event = all(&running.stop().await.events[0]);
    let port = event["@metadata"]["input"]["tcp"]["source"]["port"].take();
    assert!(port.is_u64());
    assert_eq!(
        event,
        json!({ "host": "web", "@version": "1", "@metadata": { "input": { "a": 1, "tcp": { "source":
            { "ip": "127.0.0.1", "port": null, "name": "127.0.0.1" } } } } })
    );
}

#[tokio::test]
async fn datagrams_say_where_they_are_from() {
    let mut running = RunningInput::start("udp", &[by_schema()]).await;
    running.send_datagram(b"text").await;
    running.store(1).await;
    let event = all(&running.stop().await.events[0]);
    // The codec has no setting of its own, and the pipeline none.
    assert_eq!(
        event,
        json!({ "message": "text", "host": { "ip": "127.0.0.1" }, "@version": "1",
            "@metadata": { "ip_address": "127.0.0.1" } })
    );
}

#[tokio::test]
async fn messages_of_syslog_have_the_fields_of_the_schema() {
    let mut running = RunningInput::start("syslog", &[by_schema(), ("timezone", "UTC".into())]).await;
    let first = "<164>Oct 26 15:19:25 web sshd[42]: Deny";
    let second = "<13>1 2026-01-02T03:04:05Z h app x1 ID7 [a@1 b=\"c\"] two";
    running.send(format!("{first}\n{second}\nnonsense\n").as_bytes()).await;
    running.store(3).await;
    let events: Vec<Value> = running.stop().await.events.iter().map(all).collect();
    let log = |priority: u32, facility: Value, severity: Value| json!({ "syslog": { "priority": priority, "facility": facility, "severity": severity } });
    let own = json!({ "@version": "1", "service": { "type": "system" }, "@metadata": { "ip_address": "127.0.0.1" } });
    let expected = |mut fields: Value| {
        fields.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
        fields
    };
    assert_eq!(
        events[0],
        expected(json!({ "message": "Deny", "event": { "original": first },
            "host": { "ip": "127.0.0.1", "hostname": "web" }, "process": { "name": "sshd", "pid": 42 },
            "log": log(164, json!({ "code": 20, "name": "local4" }), json!({ "code": 4, "name": "Warning" })) }))
    );
    let mut with_data =
        log(13, json!({ "code": 1, "name": "user-level" }), json!({ "code": 5, "name": "Notice" }));
    for (name, value) in [
        ("msgid", json!("ID7")),
        ("procid", json!("x1")),
        ("structured_data", json!({ "a@1": { "b": "c" } })),
    ] {
        with_data["syslog"][name] = value;
    }
    assert_eq!(
        events[1],
        expected(json!({ "message": "two", "event": { "original": second },
            "host": { "ip": "127.0.0.1", "hostname": "h" }, "process": { "name": "app" }, "log": with_data }))
    );
    assert_eq!(
        events[2],
        expected(
            json!({ "message": "nonsense", "event": { "original": "nonsense" }, "host": { "ip": "127.0.0.1" },
            "tags": ["_grokparsefailure_sysloginput"],
            "log": log(13, json!({ "code": 1, "name": "user-level" }), json!({ "code": 5, "name": "Notice" })) })
        )
    );
}

#[tokio::test]
async fn a_pattern_of_grok_reads_messages_of_another_form() {
    let pattern = "<%{POSINT:priority}>%{SYSLOGTIMESTAMP:timestamp} atypical %{GREEDYDATA:message}";
    let given = [("grok_pattern", pattern.into()), ("timezone", "UTC".into())];
    let mut running = RunningInput::start("syslog", &given).await;
    running.send(b"<164>Oct 26 15:19:25 atypical text\n<13>Oct 26 15:19:25 h p: usual\n").await;
    running.store(2).await;
    let events = running.stop().await.events;
    let fields = events[0].fields();
    assert_eq!((&fields["message"], &fields["timestamp"]), (&json!("text"), &json!("Oct 26 15:19:25")));
    assert_eq!(
        (&fields["priority"], &fields["facility"], &fields["severity"]),
        (&164.into(), &20.into(), &4.into())
    );
    assert!(events[0].timestamp_text().ends_with("-10-26T15:19:25.000Z"));
    assert_eq!(events[1].fields()["tags"], json!(["_grokparsefailure_sysloginput"]));
    let given = [
        by_schema(),
        (
            "grok_pattern",
            "<%{POSINT:[log][syslog][priority]:int}>%{TIMESTAMP_ISO8601:timestamp} %{GREEDYDATA:message}"
                .into(),
        ),
    ];
    let mut running = RunningInput::start("syslog", &given).await;
    running.send(b"<13>2026-01-02T03:04:05Z text\n").await;
    running.store(1).await;
    let event = running.stop().await.events.remove(0);
    assert_eq!(event.timestamp_text(), "2026-01-02T03:04:05.000Z");
    assert_eq!((&event.fields()["message"], event.has_field("timestamp")), (&json!("text"), false));
    assert_eq!(event.fields()["log"]["syslog"]["severity"]["code"], 5);
    let faults = build(options("syslog", &[("grok_pattern", "%{NONE:a}".into()), ("locale", "ja".into())]));
    let faults: Vec<String> = faults.err().unwrap().into_iter().map(|fault| fault.message).collect();
    assert!(
        faults.iter().any(|fault| fault.contains("[grok_pattern]") && fault.contains("NONE")),
        "{faults:?}"
    );
    assert!(faults.iter().any(|fault| fault.contains("[locale]") && fault.contains("[ja]")), "{faults:?}");
}

#[tokio::test(start_paused = true)]
async fn inputs_without_a_peer_name_this_machine() {
    let host = super::host_name();
    let beat = run("heartbeat", &[by_schema(), ("count", "1".into()), ("sequence", "sequence".into())]).await;
    assert_eq!(
        all(&beat[0]),
        json!({ "message": "ok", "@version": "1", "host": { "name": host }, "event": { "sequence": 0 }, "@metadata": {} })
    );
    // By the schema, a message is one.
    let beat = run("heartbeat", &[by_schema(), ("count", "1".into()), ("message", "epoch".into())]).await;
    assert_eq!((&beat[0].fields()["message"], beat[0].has_field("event")), (&json!("epoch"), false));
    let made = run("generator", &[by_schema(), ("count", "1".into())]).await;
    assert_eq!(made[0].fields()["event"], json!({ "sequence": 0 }));
    assert_eq!(made[0].fields()["host"], json!({ "name": host }));
}

#[tokio::test]
async fn events_of_the_generator_have_the_number_of_its_round() {
    let line = r#"{"sequence":7,"event":"x"}"#;
    let given = |ecs: &str| {
        [
            ("ecs_compatibility", ecs.into()),
            ("count", "1".into()),
            ("lines", line.into()),
            ("codec", "json".into()),
        ]
    };
    assert_eq!(run("generator", &given("disabled")).await[0].fields()["sequence"], 0);
    assert_eq!(run("generator", &given("v8")).await[0].fields()["event"], json!({ "sequence": 0 }));
}

#[tokio::test]
async fn a_pattern_that_takes_too_long_is_given_up() {
    let pattern = "^(?:a+a+)+b%{GREEDYDATA:message}";
    let mut running = RunningInput::start("syslog", &[("grok_pattern", pattern.into())]).await;
    let text = format!("{}c b\n", "a".repeat(5_000)).repeat(15);
    running.send(text.as_bytes()).await;
    running.store(15).await;
    for event in &running.stop().await.events {
        assert_eq!(event.fields()["tags"], json!(["_groktimeout", "_grokparsefailure_sysloginput"]));
    }
}

#[tokio::test]
async fn programs_are_described_by_the_schema() {
    super::exec::allow_programs();
    let given = [by_schema(), ("command", "echo text".into()), ("schedule", [("in", "0s")].into())];
    let events = run("exec", &given).await;
    let fields = events[0].fields();
    assert_eq!(fields["process"], json!({ "command_line": "echo text", "exit_code": 0 }));
    assert_eq!(fields["host"], json!({ "name": super::host_name() }));
    assert!(events[0].metadata()["input"]["exec"]["process"]["elapsed_time"].is_u64());
}

#[test]
fn codecs_take_the_setting_of_the_pipeline() {
    let mut of_pipeline = options("udp", &[("port", "0".into())]);
    of_pipeline.set_default_ecs(EcsCompatibility::V8);
    let codec = crate::codec::take(&mut of_pipeline, "plain").unwrap();
    let mut events = crate::codec::Events::default();
    codec.decoder().decode(b"text", &mut events);
    assert_eq!(events[0].fields()["event"], json!({ "original": "text" }));
}
