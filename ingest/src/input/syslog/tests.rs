use super::*;
use crate::input::stream::tests::RunningInput;

#[tokio::test]
async fn messages_come_over_both_protocols() {
    let mut running = RunningInput::start("syslog", &[("timezone", "UTC".into())]).await;
    running
        .send(b"<164>Oct 26 15:19:25 1.2.3.4 %ASA-4-106023: Deny\n25 <13>1 - h a - - - counted<0>nonsense\n")
        .await;
    running.store(3).await;
    let pipeline = running.stop().await;
    let event = &pipeline.events[0];
    for (name, expected) in [
        ("facility_label", Value::from("local4")),
        ("severity_label", "Warning".into()),
        ("facility", 20.into()),
        ("severity", 4.into()),
        ("program", "%ASA-4-106023".into()),
        ("host", "127.0.0.1".into()),
        ("message", "Deny".into()),
    ] {
        assert_eq!(event.fields()[name], expected, "{name}");
    }
    assert_eq!(pipeline.events[1].fields()["message"], "counted");
    let failed = pipeline.events[2].fields();
    assert_eq!(failed["tags"], serde_json::json!([FAILURE]));
    assert_eq!((&failed["priority"], &failed["facility_label"]), (&0.into(), &"kernel".into()));
    assert_eq!(failed["message"], "<0>nonsense");
}

#[test]
fn a_datagram_is_a_message() {
    let given = [("use_labels", "false".into()), ("syslog_field", "message".into())];
    let syslog = Syslog::new(crate::input::testing::options("syslog", &given)).unwrap();
    let mut events = Events::default();
    let source = "10.0.0.7:514".parse().unwrap();
    syslog.protocol.decode(b"<13>1 2026-01-02T03:04:05Z h a - - - two\nlines\n", source, &mut events);
    let event = events.first().unwrap();
    assert_eq!(event.fields()["message"], "two\nlines");
    assert_eq!(event.fields()["host"], "10.0.0.7");
    assert_eq!(event.timestamp_text(), "2026-01-02T03:04:05.000Z");
    assert!(!event.has_field("severity_label") && event.has_field("severity"));
}
