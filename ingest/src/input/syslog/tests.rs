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
fn messages_are_written_as_they_are_filled_in() {
    let messages = |given: &[(&str, crate::input::testing::OptionValue)]| {
        let given = [given, &[("timezone", "UTC".into())]].concat();
        Syslog::new(crate::input::testing::options("syslog", &given)).unwrap().protocol
    };
    let origin = Origin::new(([10, 0, 0, 7], 514).into());
    for (given, text) in [
        (None, "<164>Oct 26 15:19:25 1.2.3.4 %ASA-4-106023: Deny \"udp\"\t\\"),
        (None, "<13>Feb  3 04:05:06 web sshd[42]: Accepted: ä\r\n"),
        (None, "<34>1 2003-10-11T22:14:15.003Z host su - ID47 - text"),
        (None, "<165>1 - - app 7 - [a@1 b=\"x\"] text"),
        (Some("use_labels"), "<13>1 - h a - - - two"),
        (None, "nonsense"),
    ] {
        let given: Vec<_> = given.iter().map(|name| (*name, "false".into())).collect();
        let messages = messages(&given);
        let event = || crate::codec::decode_text(text);
        let (mut written, mut filled) = (event(), event());
        filled.set_timestamp(written.timestamp());
        // Fields that are a map are filled in.
        filled.fields_mut();
        messages.complete(std::slice::from_mut(&mut written), &origin);
        messages.complete(std::slice::from_mut(&mut filled), &origin);
        let json = |event: &Event| {
            let mut bytes = Vec::new();
            event.write_json(&mut bytes);
            String::from_utf8(bytes).unwrap()
        };
        assert_eq!(json(&written), json(&filled), "{text}");
        assert_eq!(written.metadata(), filled.metadata());
    }
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
