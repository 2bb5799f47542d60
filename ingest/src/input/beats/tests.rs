use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::frames::acknowledgement;
use crate::batch::NotStored;
use crate::input::stream::tests::{PATIENCE, RunningInput};
use crate::input::testing::refuse;

fn window(events: u32) -> Vec<u8> {
    [&b"2W"[..], &events.to_be_bytes()].concat()
}

fn json(sequence: u32, text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap();
    [&b"2J"[..], &sequence.to_be_bytes(), &length.to_be_bytes(), text.as_bytes()].concat()
}

fn compressed(frames: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(frames).unwrap();
    let bytes = encoder.finish().unwrap();
    [&b"2C"[..], &u32::try_from(bytes.len()).unwrap().to_be_bytes(), &bytes].concat()
}

async fn next_answer(stream: &mut TcpStream) -> [u8; 6] {
    let mut answer = [0; 6];
    tokio::time::timeout(PATIENCE, stream.read_exact(&mut answer)).await.unwrap().unwrap();
    answer
}

/// Reads the next answer that is more than a sign of life.
async fn answer(stream: &mut TcpStream) -> [u8; 6] {
    loop {
        let answer = next_answer(stream).await;
        if answer != acknowledgement(b'2', 0) {
            return answer;
        }
    }
}

#[tokio::test]
async fn a_window_is_answered_once_it_is_stored() {
    let mut running = RunningInput::start("beats", &[]).await;
    let mut stream = running.connect().await;
    let first =
        r#"{"@timestamp":"2026-01-02T03:04:05.678Z","@metadata":{"beat":"filebeat"},"message":"one"}"#;
    let frames = [json(1, first), json(2, r#"{"system":{"load":1}}"#)].concat();
    stream.write_all(&[window(2), compressed(&frames)].concat()).await.unwrap();
    let batch = running.pipeline.next().await.unwrap();
    // Nothing is answered before.
    let early = tokio::time::timeout(std::time::Duration::from_millis(100), stream.read_u8()).await;
    assert!(early.is_err(), "{early:?}");
    running.pipeline.store(batch).unwrap();
    assert_eq!(answer(&mut stream).await, acknowledgement(b'2', 2));
    let event = &running.pipeline.events[0];
    assert_eq!(event.fields()["message"], "one");
    assert_eq!(event.timestamp_text(), "2026-01-02T03:04:05.678Z");
    assert_eq!(event.metadata()["beat"], "filebeat");
    assert_eq!(event.metadata()["ip_address"], "127.0.0.1");
    assert_eq!(event.fields()["tags"], serde_json::json!(["beats_input_codec_plain_applied"]));
    assert_eq!(running.pipeline.events[1].fields()["tags"], serde_json::json!(["beats_input_raw_event"]));
    // The connection goes on, with windows that are not compressed.
    stream.write_all(&[window(1), json(1, r#"{"message":"next"}"#)].concat()).await.unwrap();
    running.store(3).await;
    assert_eq!(answer(&mut stream).await, acknowledgement(b'2', 1));
    drop(stream);
    assert_eq!(running.stop().await.budget.used(), 0);
}

#[tokio::test]
async fn events_of_compressed_windows_are_documents_at_hand() {
    let mut running = RunningInput::start("beats", &[("add_hostname", "true".into())]).await;
    let mut stream = running.connect().await;
    let texts = [
        r#"{"@timestamp":"2026-01-02T03:04:05.678Z","@metadata":{"beat":"filebeat"},"message":"one"}"#,
        r#"{"@timestamp":"2026-01-02T03:04:05.678Z","@metadata":{"beat":"filebeat"},"n":2}"#,
        r#"{"@timestamp":"2026-01-02T03:04:05.678Z","message":"three","tags":["own"],"host":{"name":"web"}}"#,
    ];
    // A window of one block, and one of several.
    for windows in [1, 1_000] {
        let sequences = (1_u32..).zip(texts.iter().cycle()).take(texts.len() * windows);
        let frames: Vec<u8> = sequences.flat_map(|(sequence, text)| json(sequence, text)).collect();
        let count = u32::try_from(texts.len() * windows).unwrap();
        stream.write_all(&[window(count), compressed(&frames)].concat()).await.unwrap();
        running.store(running.pipeline.events.len() + texts.len() * windows).await;
        assert_eq!(answer(&mut stream).await, acknowledgement(b'2', count));
    }
    for (number, event) in running.pipeline.events.iter().enumerate() {
        let mut written = Vec::new();
        event.write_json(&mut written);
        let expected = match number % 3 {
            0 => {
                r#""message":"one","tags":["beats_input_codec_plain_applied"],"@version":"1","host":"127.0.0.1"}"#
            }
            1 => r#""n":2,"tags":["beats_input_raw_event"],"@version":"1","host":"127.0.0.1"}"#,
            _ => {
                r#""message":"three","tags":["own","beats_input_codec_plain_applied"],"host":{"name":"web"},"@version":"1"}"#
            }
        };
        let expected = format!(r#"{{"@timestamp":"2026-01-02T03:04:05.678Z",{expected}"#);
        assert_eq!(String::from_utf8(written).unwrap(), expected);
        assert_eq!(event.document().is_some(), number % 3 < 2);
        assert_eq!(event.metadata()["ip_address"], "127.0.0.1");
        assert_eq!(event.metadata().contains_key("beat"), number % 3 < 2);
    }
    drop(stream);
    assert_eq!(running.stop().await.budget.used(), 0);
}

#[tokio::test]
async fn fields_of_the_schema_say_where_events_are_from() {
    let given = [("ecs_compatibility", "v8".into()), ("add_hostname", "true".into())];
    let mut running = RunningInput::start("beats", &given).await;
    let mut stream = running.connect().await;
    stream.write_all(&[window(1), json(1, r#"{"message":"one"}"#)].concat()).await.unwrap();
    running.store(1).await;
    let event = &running.pipeline.events[0];
    let host = serde_json::json!({ "name": "127.0.0.1", "ip": "127.0.0.1" });
    assert_eq!(
        serde_json::Value::Object(event.metadata().clone()),
        serde_json::json!({ "input": { "beats": { "host": host } } })
    );
    assert!(!event.has_field("host") && event.has_field("@version"));
}

#[tokio::test]
async fn enrich_chooses_what_events_get() {
    let mut running = RunningInput::start("beats", &[("enrich", ["none"].into())]).await;
    let mut stream = running.connect().await;
    stream.write_all(&[window(1), json(1, r#"{"message":"one"}"#)].concat()).await.unwrap();
    running.store(1).await;
    let event = &running.pipeline.events[0];
    assert!(!event.has_field("tags") && event.metadata().is_empty(), "{event:?}");
    let wrong = [("port", "0".into()), ("enrich", ["all", "x"].into()), ("include_codec_tag", "true".into())];
    let faults = crate::input::build(crate::input::testing::options("beats", &wrong)).err().unwrap();
    let faults: Vec<&str> = faults.iter().map(|fault| fault.message.as_str()).collect();
    for part in ["[enrich] has [x]", "which stand alone", "give one of them"] {
        assert!(faults.iter().any(|fault| fault.contains(part)), "{part}: {faults:?}");
    }
}

#[test]
fn the_text_of_an_event_is_kept_as_its_original() {
    let build =
        |name: &str| crate::codec::build(crate::Options::new(name, crate::Location::default(), [])).unwrap();
    let mut reader = super::window::WindowReader::new(build("json").line_decoder(), None);
    reader.keeps_original = true;
    for text in [r#"{"message":"one"}"#, r#"{"message":"two","event":{"a":1}}"#, r#"{"a":1}"#] {
        reader.take(&json(1, text)).unwrap();
    }
    let fields: Vec<_> = reader.events.iter().map(|event| event.fields().get("event").cloned()).collect();
    let two = serde_json::json!({ "a": 1, "original": "two" });
    assert_eq!(fields, [Some(serde_json::json!({ "original": "one" })), Some(two), None]);
}

#[tokio::test]
async fn what_is_not_stored_is_not_answered() {
    let mut running = RunningInput::start("beats", &[]).await;
    for why in [NotStored::Overloaded("full".to_owned()), NotStored::Ended] {
        let mut stream = running.connect().await;
        stream.write_all(&[window(1), json(1, r#"{"message":"a"}"#)].concat()).await.unwrap();
        refuse(running.pipeline.next().await.unwrap(), why);
        let mut rest = Vec::new();
        tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.unwrap().unwrap();
        assert!(rest.is_empty(), "{rest:?}");
    }
}

#[tokio::test]
async fn a_sender_that_waits_long_is_told_that_its_events_are_on_their_way() {
    let mut running = RunningInput::start("beats", &[]).await;
    let mut stream = running.connect().await;
    stream.write_all(&[window(1), json(7, r#"{"message":"a"}"#)].concat()).await.unwrap();
    let batch = running.pipeline.next().await.unwrap();
    assert_eq!(next_answer(&mut stream).await, acknowledgement(b'2', 0));
    running.pipeline.store(batch).unwrap();
    assert_eq!(answer(&mut stream).await, acknowledgement(b'2', 7));
}

#[tokio::test]
async fn streams_of_other_protocols_are_closed() {
    let running = RunningInput::start("beats", &[]).await;
    let zip_bomb = compressed(&json(1, &" ".repeat(17 << 20)));
    let nested = compressed(&compressed(&json(1, "{}")));
    for wrong in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        b"2J\0\0\0\x01\xff\xff\xff\xff".to_vec(),
        b"2C\xff\xff\xff\xff".to_vec(),
        window(u32::MAX),
        b"2C\0\0\0\x03abc".to_vec(),
        zip_bomb,
        nested,
    ] {
        let mut stream = running.connect().await;
        // The connection may be closed while this is written.
        let _ = stream.write_all(&wrong).await;
        let read = tokio::time::timeout(PATIENCE, stream.read_u8()).await.unwrap();
        assert!(read.is_err(), "{read:?}");
    }
    assert!(running.stop().await.events.is_empty());
}

#[tokio::test]
async fn the_codec_reads_messages_of_version_1_over_tls() {
    let directory = tempfile::tempdir().unwrap();
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (directory.path().join("c.pem"), directory.path().join("k.pem"));
    std::fs::write(&certificate, certified.cert.pem()).unwrap();
    std::fs::write(&key, certified.signing_key.serialize_pem()).unwrap();
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let given = [
        ("ssl_certificate", path(&certificate).into()),
        ("ssl_key", path(&key).into()),
        ("codec", "json".into()),
    ];
    let mut running = RunningInput::start("lumberjack", &given).await;
    let address = running.address;
    let mut frames = b"1W\0\0\0\x011D\0\0\0\x07\0\0\0\x02".to_vec();
    for text in ["line", r#"{"n":1}"#, "file", "/log"] {
        frames.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
        frames.extend(text.as_bytes());
    }
    let sent = tokio::task::spawn_blocking(move || {
        let mut connector = openssl::ssl::SslConnector::builder(openssl::ssl::SslMethod::tls()).unwrap();
        connector.set_verify(openssl::ssl::SslVerifyMode::NONE);
        let stream = std::net::TcpStream::connect(address).unwrap();
        let mut stream = connector.build().connect("localhost", stream).unwrap();
        stream.write_all(&frames).unwrap();
        let mut answer = [0; 6];
        std::io::Read::read_exact(&mut stream, &mut answer).unwrap();
        answer
    });
    running.store(1).await;
    assert_eq!(sent.await.unwrap(), acknowledgement(b'1', 7));
    let fields = running.pipeline.events[0].fields();
    assert_eq!(
        (&fields["n"], &fields["file"], &fields["host"]),
        (&1.into(), &"/log".into(), &"127.0.0.1".into())
    );
}

#[tokio::test]
async fn silent_senders_are_left() {
    let running = RunningInput::start("beats", &[("client_inactivity_timeout", "1".into())]).await;
    let mut stream = running.connect().await;
    // Half of a frame is silence, too.
    stream.write_all(b"2W\0").await.unwrap();
    let read = tokio::time::timeout(PATIENCE, stream.read_u8()).await.unwrap();
    assert!(read.is_err(), "{read:?}");
}
