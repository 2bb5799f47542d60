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
    let direct = Origin::new(([10, 0, 0, 7], 514).into());
    let mut proxied = direct.clone();
    proxied.proxy = Some(([10, 0, 0, 8], 4_660).into());
    let cases = [
        (None, "<164>Oct 26 15:19:25 1.2.3.4 %ASA-4-106023: Deny \"udp\"\t\\"),
        (None, "<13>Feb  3 04:05:06 web sshd[42]: Accepted: ä\r\n"),
        (None, "<34>1 2003-10-11T22:14:15.003Z host su - ID47 - text"),
        (None, "<165>1 - - app 7 - [a@1 b=\"x\"] text"),
        (Some("use_labels"), "<13>1 - h a - - - two"),
        (None, "nonsense"),
    ];
    for ((given, text), origin) in cases.iter().flat_map(|case| [(case, &direct), (case, &proxied)]) {
        let given: Vec<_> = given.iter().map(|name| (*name, "false".into())).collect();
        let messages = messages(&given);
        let event = || crate::codec::decode_text(text);
        let (mut written, mut filled) = (event(), event());
        filled.set_timestamp(written.timestamp());
        // Fields that are a map are filled in.
        filled.fields_mut();
        for event in [&mut written, &mut filled] {
            let mut times = messages.reader.times.at(Utc::now());
            let mut additions = messages.reader.additions(origin);
            messages.reader.read_all(std::slice::from_mut(event), (origin, &mut additions), &mut times);
        }
        let json = |event: &Event| {
            let mut bytes = Vec::new();
            event.write_json(&mut bytes);
            String::from_utf8(bytes).unwrap()
        };
        assert_eq!(json(&written), json(&filled), "{text}");
        let proxy = written.fields().get("proxy_port").map(|port| port == 4_660);
        assert_eq!(proxy, origin.proxy.map(|_| true), "{text}");
        assert_eq!(written.metadata(), filled.metadata());
        // Messages of a stream become documents, unless they are rare.
        let mut events = Events::default();
        StreamProtocol::decoder(&*messages, origin).decode(format!("{text}\n").as_bytes(), &mut events);
        assert_eq!(events.bytes(), events.iter().map(Event::bytes).sum::<u64>(), "{text}");
        let [streamed] = &mut *events else { panic!("{text}") };
        let is_rare = text.contains('[') && text.contains("=\"") || *text == "nonsense";
        assert_eq!(streamed.document().is_none(), is_rare, "{text}");
        assert!(streamed.document().is_none_or(|document| document == json(streamed)), "{text}");
        streamed.set_timestamp(written.timestamp());
        assert_eq!(json(streamed), json(&written), "{text}");
        assert_eq!(streamed.metadata(), written.metadata());
    }
}

#[test]
fn messages_of_a_stream_may_be_of_any_length_and_of_any_bytes() {
    let syslog =
        Syslog::new(crate::input::testing::options("syslog", &[("timezone", "UTC".into())])).unwrap();
    let origin = Origin::new(([10, 0, 0, 7], 514).into());
    let long = "x".repeat(200_000);
    let mut stream = b"<13>Feb  3 04:05:06 web a: \xff\xfe\x01\n<13>Feb  3 04:05:06 web b: ".to_vec();
    stream.extend_from_slice(long.as_bytes());
    stream.extend_from_slice(b"\n<14>Feb  3 04:05:07 web c[7]: rest");
    for size in [7_000, 16 << 10, 1 << 20] {
        let mut events = Events::default();
        let mut decoder = StreamProtocol::decoder(&*syslog.protocol, &origin);
        stream.chunks(size).for_each(|chunk| decoder.decode(chunk, &mut events));
        decoder.finish(&mut events);
        let texts: Vec<&str> =
            events.iter().map(|event| event.fields()["message"].as_str().unwrap()).collect();
        assert_eq!(texts, ["\u{fffd}\u{fffd}\u{1}", &long, "rest"]);
        let severities: Vec<&Value> = events.iter().map(|event| &event.fields()["severity_label"]).collect();
        assert_eq!(severities, ["Notice", "Notice", "Informational"]);
        let times: Vec<String> = events.iter().map(Event::timestamp_text).collect();
        assert!(times.iter().all(|time| time.contains("-02-03T04:05:0")), "{times:?}");
    }
}

#[test]
fn messages_of_other_codecs_are_read_as_well() {
    let given = [("timezone", "UTC".into()), ("codec", "json".into())];
    let Ok(syslog) = Syslog::new(crate::input::testing::options("syslog", &given)) else {
        panic!("the codec is known")
    };
    let origin = Origin::new(([10, 0, 0, 7], 514).into());
    let mut events = Events::default();
    let mut decoder = StreamProtocol::decoder(&*syslog.protocol, &origin);
    decoder.decode(b"{\"message\":\"<13>Feb  3 04:05:06 web a: text\",\"b\":1}\n", &mut events);
    let event = events.first().unwrap();
    assert_eq!((&event.fields()["message"], &event.fields()["b"]), (&"text".into(), &1.into()));
    assert_eq!(event.fields()["host"], "10.0.0.7");
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
