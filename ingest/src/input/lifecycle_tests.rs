//! Reloads of listening inputs, second instances and abrupt ends. `lumberjack` and `elastic_agent` are `beats` by other names.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use super::build;
use super::sockets::{PARKED, PARKED_DATAGRAMS};
use super::stream::tests::{PATIENCE, RunningInput};
use super::testing::{OptionValue, Pipeline, options};

/// Transport of a message.
#[derive(Clone, Copy, Debug)]
enum Transport {
    Stream,
    Datagram,
}

/// A listening input, the bytes of a message with a text, and the beginning of the answer to a message that is stored.
struct ListeningInput {
    plugin: &'static str,
    given: &'static [(&'static str, &'static str)],
    transport: Transport,
    message: fn(&str) -> Vec<u8>,
    acknowledgement: Option<&'static [u8]>,
}

const INPUTS: &[ListeningInput] = &[
    ListeningInput {
        plugin: "tcp",
        given: &[],
        transport: Transport::Stream,
        message: line,
        acknowledgement: None,
    },
    ListeningInput {
        plugin: "udp",
        given: &[],
        transport: Transport::Datagram,
        message: |text| text.into(),
        acknowledgement: None,
    },
    ListeningInput {
        plugin: "syslog",
        given: &[],
        transport: Transport::Stream,
        message: syslog_line,
        acknowledgement: None,
    },
    ListeningInput {
        plugin: "syslog",
        given: &[],
        transport: Transport::Datagram,
        message: syslog_line,
        acknowledgement: None,
    },
    ListeningInput {
        plugin: "gelf",
        given: &[("use_tcp", "true"), ("use_udp", "false")],
        transport: Transport::Stream,
        message: |text| [gelf_message(text), vec![0]].concat(),
        acknowledgement: None,
    },
    ListeningInput {
        plugin: "gelf",
        given: &[],
        transport: Transport::Datagram,
        message: gelf_message,
        acknowledgement: None,
    },
    ListeningInput {
        plugin: "beats",
        given: &[],
        transport: Transport::Stream,
        message: beats_window,
        acknowledgement: Some(b"2A\0\0\0\x01"),
    },
    ListeningInput {
        plugin: "http",
        given: &[],
        transport: Transport::Stream,
        message: |text| request("text/plain", text),
        acknowledgement: Some(b"HTTP/1.1 200"),
    },
    ListeningInput {
        plugin: "otlp",
        given: &[("mapping", "ecs")],
        transport: Transport::Stream,
        message: |text| {
            let record = format!(r#"{{"body":{{"stringValue":"{text}"}}}}"#);
            let body = format!(r#"{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{record}]}}]}}]}}"#);
            request("application/json", &body)
        },
        acknowledgement: Some(b"HTTP/1.1 200"),
    },
];

fn line(text: &str) -> Vec<u8> {
    format!("{text}\n").into()
}

fn syslog_line(text: &str) -> Vec<u8> {
    format!("<13>Jan  2 03:04:05 web app: {text}\n").into()
}

fn gelf_message(text: &str) -> Vec<u8> {
    format!(r#"{{"version":"1.1","host":"web","short_message":"{text}"}}"#).into()
}

fn beats_window(text: &str) -> Vec<u8> {
    let json = format!(r#"{{"message":"{text}"}}"#);
    let length = u32::try_from(json.len()).unwrap();
    [&b"2W\0\0\0\x012J\0\0\0\x01"[..], &length.to_be_bytes(), json.as_bytes()].concat()
}

fn request(media_type: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("POST /v1/logs HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: {media_type}\r\ncontent-length: {length}\r\n\r\n{body}").into()
}

impl ListeningInput {
    fn options(&self, port: u16) -> Vec<(&'static str, OptionValue)> {
        let given = self.given.iter().map(|(name, value)| (*name, OptionValue::from(*value)));
        given.chain([("host", "127.0.0.1".into()), ("port", port.to_string().into())]).collect()
    }

    async fn start(&self, port: u16) -> RunningInput {
        RunningInput::start_with(self.plugin, &self.options(port), Pipeline::new(4)).await
    }

    /// Sends a message. A connection is to stay until the message is stored.
    async fn send(&self, port: u16, text: &str) -> Option<TcpStream> {
        let bytes = (self.message)(text);
        match self.transport {
            Transport::Stream => {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                stream.write_all(&bytes).await.unwrap();
                Some(stream)
            }
            Transport::Datagram => {
                let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
                socket.send_to(&bytes, ("127.0.0.1", port)).await.unwrap();
                None
            }
        }
    }
}

/// Returns a port that is free for both transports by now.
async fn free_port() -> u16 {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        if UdpSocket::bind(("127.0.0.1", port)).await.is_ok() {
            return port;
        }
    }
}

/// Closes the sockets that wait for another input: the runtime of the test ends.
fn close(port: u16) {
    PARKED.close_port(port);
    PARKED_DATAGRAMS.close_port(port);
}

/// Texts of the messages that a pipeline has stored.
fn texts(pipeline: &Pipeline) -> Vec<String> {
    pipeline.messages().iter().map(|message| message.trim().to_owned()).collect()
}

#[tokio::test]
async fn a_reload_keeps_what_comes_in_between() {
    for input in INPUTS {
        let label = format!("{} {:?}", input.plugin, input.transport);
        let port = free_port().await;
        let mut first = input.start(port).await;
        let sent = input.send(port, "before").await;
        first.store(1).await;
        drop(sent);
        let stopped = first.stop().await;
        let sent = input.send(port, "between").await;
        let mut second = input.start(port).await;
        second.store(1).await;
        drop(sent);
        let second = second.stop().await;
        assert_eq!(
            (texts(&stopped), texts(&second)),
            (vec!["before".into()], vec!["between".into()]),
            "{label}"
        );
        close(port);
    }
}

#[tokio::test]
async fn a_second_instance_is_refused_and_the_first_goes_on() {
    for input in INPUTS {
        let label = format!("{} {:?}", input.plugin, input.transport);
        let port = free_port().await;
        let mut first = input.start(port).await;
        let second = build(options(input.plugin, &input.options(port))).unwrap();
        let refused = tokio::time::timeout(PATIENCE, second.run(Pipeline::new(1).context())).await;
        let error = refused.expect("it ends").unwrap_err().to_string();
        assert!(error.contains(&format!("cannot listen on [127.0.0.1:{port}]")), "{label}: {error}");
        let sent = input.send(port, "still here").await;
        first.store(1).await;
        drop(sent);
        assert_eq!(texts(&first.stop().await), ["still here"], "{label}");
        close(port);
    }
}

#[tokio::test]
async fn what_a_kill_loses_was_not_acknowledged() {
    for input in INPUTS {
        let Some(expected) = input.acknowledgement else { continue };
        let port = free_port().await;
        let mut first = input.start(port).await;
        let mut stream = input.send(port, "lost").await.unwrap();
        let taken = first.pipeline.next().await.unwrap();
        first.kill().await;
        drop(taken);
        let mut answer = Vec::new();
        // The connection is closed, or reset.
        let closed = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
        assert!(closed.is_ok() && !answer.windows(expected.len()).any(|part| part == expected), "{answer:?}");
        let mut second = input.start(port).await;
        let mut stream = input.send(port, "again").await.unwrap();
        second.store(1).await;
        let mut answer = vec![0; expected.len()];
        tokio::time::timeout(PATIENCE, stream.read_exact(&mut answer)).await.unwrap().unwrap();
        assert_eq!(answer, expected, "{}", input.plugin);
        assert_eq!(texts(&second.stop().await), ["again"]);
        close(port);
    }
}
