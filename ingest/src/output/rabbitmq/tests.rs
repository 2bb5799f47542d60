use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};

use parking_lot::Mutex as BlockingMutex;
use serde_json::json;

use super::*;
use crate::input::testing::{OptionValue, options};

fn faults(given: &[(&str, OptionValue)]) -> String {
    let faults = build(options("rabbitmq", given)).err().unwrap_or_default();
    faults.into_iter().map(|fault| fault.message).collect::<Vec<_>>().join("\n")
}

#[test]
fn options_are_checked() {
    let wrong = faults(&[("exchange_type", "any".into()), ("key", "k".into())]);
    for part in ["[host]", "[exchange] and [exchange_type]", "[exchange_type] of [rabbitmq] must be one of"] {
        assert!(wrong.contains(part), "{part}: {wrong}");
    }
    let given = [
        ("host", "broker".into()),
        ("exchange", "events".into()),
        ("exchange_type", "topic".into()),
        ("persistent", "true".into()),
        ("passive", "false".into()),
        ("message_properties", [("content_type", "application/json"), ("priority", "%{level}")].into()),
    ];
    assert_eq!(faults(&given), "");
}

#[test]
fn an_event_whose_key_is_too_long_has_no_message() {
    let mut taken = options("rabbitmq", &[]);
    let encoder = MessageEncoder {
        key: Template::parse("app.%{name}"),
        properties: MessageProperties::take(&mut taken),
        codec: codec::take(&mut taken, "json").unwrap(),
    };
    let mut event = Event::new(chrono::DateTime::UNIX_EPOCH);
    event.fields_mut().insert("name".to_owned(), json!("web"));
    let message = encoder.encode(&event).unwrap();
    assert_eq!(message.key, "app.web");
    assert_eq!(message.properties.delivery_mode(), &Some(2), "messages are persistent");
    assert!(String::from_utf8(message.payload).unwrap().contains("\"name\":\"web\""));
    event.fields_mut().insert("name".to_owned(), json!("w".repeat(300)));
    assert!(encoder.encode(&event).unwrap_err().contains("304 bytes"));
}

#[test]
fn a_window_finds_the_refused_message() {
    let mut window = PublishWindow::new();
    assert_eq!(window.size(), 1_000);
    assert!(!window.on_refusal(1_000));
    assert_eq!(window.size(), 32, "one of a thousand messages is refused");
    window.on_confirmed(32);
    assert!(!window.on_refusal(3), "one of three messages is refused");
    for _ in 0..2 {
        assert_eq!(window.size(), 1);
        window.on_confirmed(1);
    }
    assert_eq!(window.size(), 1, "the third one is alone, too");
    assert!(window.on_refusal(1));
    assert_eq!(window.size(), 16);
    window.on_confirmed(7);
    assert_eq!(window.size(), 16, "seven were the last ones of their delivery");
    window.on_confirmed(16);
    assert_eq!(window.size(), 32);
    for _ in 0..10 {
        window.on_confirmed(window.size());
    }
    assert_eq!(window.size(), 1_000);
}

/// Broker of one connection, which closes the channel for messages with `bad` or `denied` in them. It confirms no message of the first channel, and
/// each of the others.
struct Broker {
    stream: TcpStream,
    /// Payloads that it took.
    taken: Arc<BlockingMutex<Vec<String>>>,
    /// Channels that were opened, and messages on the last one.
    channels: usize,
    messages: u64,
    is_closed: bool,
}

impl Broker {
    fn send(&mut self, channel: u16, method: (u16, u16), arguments: &[u8]) -> io::Result<()> {
        let mut frame = vec![1];
        frame.extend(channel.to_be_bytes());
        frame.extend(u32::try_from(arguments.len() + 4).unwrap().to_be_bytes());
        frame.extend(method.0.to_be_bytes());
        frame.extend(method.1.to_be_bytes());
        frame.extend(arguments);
        frame.push(0xCE);
        self.stream.write_all(&frame)
    }

    fn read_frame(&mut self) -> io::Result<(u8, u16, Vec<u8>)> {
        let mut head = [0; 7];
        self.stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([head[3], head[4], head[5], head[6]]);
        let mut body = vec![0; length as usize + 1];
        self.stream.read_exact(&mut body)?;
        Ok((head[0], u16::from_be_bytes([head[1], head[2]]), body))
    }

    fn serve(mut self) -> io::Result<()> {
        let mut greeting = [0; 8];
        self.stream.read_exact(&mut greeting)?;
        self.send(0, (10, 10), b"\0\x09\0\0\0\0\0\0\0\x05PLAIN\0\0\0\x05en_US")?;
        loop {
            let (kind, channel, body) = self.read_frame()?;
            match kind {
                1 => self.answer(channel, (body[1], body[3]))?,
                3 => self.take(channel, &String::from_utf8_lossy(&body))?,
                // Heads of messages, and heartbeats.
                _ => {}
            }
        }
    }

    fn answer(&mut self, channel: u16, method: (u8, u8)) -> io::Result<()> {
        match method {
            (10, 11) => self.send(channel, (10, 30), b"\0\0\0\x02\0\0\0\0"),
            (10, 40) => self.send(channel, (10, 41), b"\0"),
            (10, 50) => self.send(channel, (10, 51), b""),
            (20, 10) => {
                (self.channels, self.messages, self.is_closed) = (self.channels + 1, 0, false);
                self.send(channel, (20, 11), b"\0\0\0\0")
            }
            (40, 10) => self.send(channel, (40, 11), b""),
            (85, 10) => self.send(channel, (85, 11), b""),
            _ => Ok(()),
        }
    }

    fn take(&mut self, channel: u16, payload: &str) -> io::Result<()> {
        if self.is_closed {
            return Ok(());
        }
        let refusals = [
            ("bad", 406_u16, "PRECONDITION_FAILED"),
            ("denied", 403, "ACCESS_REFUSED - access to topic 'k' in exchange 'events' refused"),
        ];
        for (word, code, text) in refusals {
            if payload.contains(word) {
                self.is_closed = true;
                let mut arguments = code.to_be_bytes().to_vec();
                arguments.push(u8::try_from(text.len()).unwrap());
                arguments.extend_from_slice(text.as_bytes());
                arguments.extend_from_slice(b"\0\x3c\0\x28");
                return self.send(channel, (20, 40), &arguments);
            }
        }
        self.taken.lock().push(payload.to_owned());
        self.messages += 1;
        if self.channels == 1 {
            return Ok(());
        }
        let mut arguments = self.messages.to_be_bytes().to_vec();
        arguments.push(0);
        self.send(channel, (60, 80), &arguments)
    }
}

#[tokio::test]
async fn a_refused_message_is_found_and_the_others_are_published() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let taken = Arc::new(BlockingMutex::new(Vec::new()));
    let of_broker = Arc::clone(&taken);
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let broker = Broker { stream, taken: of_broker, channels: 0, messages: 0, is_closed: false };
        // It ends with the connection.
        let _ = broker.serve();
    });
    let given = [
        ("host", "127.0.0.1".into()),
        ("port", port.to_string().into()),
        ("exchange", "events".into()),
        ("exchange_type", "direct".into()),
    ];
    let Output::Sink(sink) = build(options("rabbitmq", &given)).unwrap() else { panic!("it is a sink") };
    let names = ["one", "two", "bad", "three", "denied", "four"];
    let events: Vec<(Arc<Event>, Option<String>)> = names
        .iter()
        .map(|name| {
            let mut event = Event::new(chrono::DateTime::UNIX_EPOCH);
            event.fields_mut().insert("name".to_owned(), json!(name));
            (Arc::new(event), None)
        })
        .collect();
    let running = watch::Sender::new(false);
    let refused = sink.send(&events, running.subscribe(), OrderTicket::new().0).await.unwrap();
    let numbers: Vec<usize> = refused.iter().map(|refused| refused.event).collect();
    assert_eq!(numbers, [2, 4]);
    let reasons = [&refused[0].reason, &refused[1].reason];
    assert!(
        reasons[0].contains("PRECONDITION_FAILED") && reasons[1].contains("ACCESS_REFUSED"),
        "{reasons:?}"
    );
    let taken = taken.lock();
    let count = |name: &str| taken.iter().filter(|payload| payload.contains(name)).count();
    let counts: Vec<usize> = ["one", "two", "three", "four"].map(count).to_vec();
    assert_eq!(counts, [2, 2, 1, 1], "{taken:?}");
}
