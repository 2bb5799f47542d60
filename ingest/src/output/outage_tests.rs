//! Outputs whose peer is away for an hour: no event is lost or refused, and events go on once it is there.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::mocking::MockCluster;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{advance, pause, resume, sleep, timeout};

use super::{OrderTicket, Output, build};
use crate::Event;
use crate::input::testing::{OptionValue, options};

const HOUR: Duration = Duration::from_secs(3_600);
/// Longest pause of the outputs.
const LONGEST_PAUSE: Duration = Duration::from_secs(64);
/// Time after which an output is taken to pause.
const PATIENCE: Duration = Duration::from_secs(5);
/// Attempts once the peer listens.
const MAX_ATTEMPTS: usize = 20;
/// Events that are sent.
const EVENTS: usize = 2;

/// Gets a message for each event that a peer takes.
type EventSender = mpsc::UnboundedSender<()>;

/// Sends events by an output whose peer begins to listen after an hour.
async fn outlast<F>(
    plugin: &str,
    given: &[(&str, OptionValue)],
    peer: fn(BufReader<TcpStream>, EventSender) -> F,
) where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    // Without listening, the port is taken and connections are refused.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let fill = |value: &OptionValue| match value.0.as_text() {
        Some(text) => {
            text.replace("ADDRESS", &address.to_string()).replace("PORT", &address.port().to_string()).into()
        }
        None => value.clone(),
    };
    let given: Vec<(&str, OptionValue)> = given.iter().map(|(name, value)| (*name, fill(value))).collect();
    let (taken, mut received) = mpsc::unbounded_channel();
    send_after_an_hour(plugin, &given, || {
        let listener = socket.listen(16).unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(peer(BufReader::new(stream), taken.clone()));
            }
        });
    })
    .await;
    for _ in 0..EVENTS {
        timeout(HOUR / 60, received.recv()).await.expect(plugin).unwrap();
    }
}

fn events() -> Vec<(Arc<Event>, Option<String>)> {
    let event = |number: usize| {
        let mut event = Event::new(chrono::DateTime::UNIX_EPOCH);
        event.fields_mut().insert("n".to_owned(), json!(number));
        (Arc::new(event), None)
    };
    (0..EVENTS).map(event).collect()
}

/// Sends events by an output, and starts its peer after an hour.
async fn send_after_an_hour(plugin: &str, given: &[(&str, OptionValue)], start_peer: impl FnOnce()) {
    let Output::Sink(sink) = build(options(plugin, given)).unwrap() else { panic!("{plugin} is a sink") };
    let events = events();
    let running = watch::Sender::new(false);
    let sending = sink.send(&events, running.subscribe(), OrderTicket::new().0);
    tokio::pin!(sending);
    tokio::select! {
        sent = &mut sending => panic!("{plugin} has sent events to nobody: {sent:?}"),
        () = sleep(HOUR) => {}
    }
    start_peer();
    resume();
    let mut refused = None;
    for _ in 0..MAX_ATTEMPTS {
        pause();
        advance(LONGEST_PAUSE).await;
        resume();
        // The peer may have come in the middle of an attempt.
        if let Ok(sent) = timeout(PATIENCE, &mut sending).await {
            refused = Some(sent.unwrap());
            break;
        }
    }
    assert_eq!(refused, Some(Vec::new()), "{plugin} has not sent its events");
}

/// Answers requests of HTTP. A request of `_bulk` has an event for each action, an object has one in each line, and any other
/// post has one.
async fn serve_http(mut stream: BufReader<TcpStream>, taken: EventSender) -> io::Result<()> {
    loop {
        let (mut line, mut length) = (String::new(), 0);
        let (mut is_post, mut is_put, mut is_bulk) = (false, false, false);
        loop {
            line.clear();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            is_post |= line.starts_with("POST ");
            is_put |= line.starts_with("PUT ");
            is_bulk |= line.contains("/_bulk ");
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let body = String::from_utf8_lossy(&body);
        let actions = body.matches(r#"{"index":"#).count();
        let items = vec![json!({"index": {"status": 201}}); actions];
        let answer = json!({ "items": items }).to_string();
        let head = format!("HTTP/1.1 200 OK\r\netag: \"1\"\r\ncontent-length: {}\r\n\r\n", answer.len());
        stream.write_all((head + &answer).as_bytes()).await?;
        let events = match (is_bulk, is_put) {
            (true, _) => actions,
            (_, true) => body.lines().count(),
            _ => usize::from(is_post),
        };
        for _ in 0..events {
            let _ = taken.send(());
        }
    }
}

async fn serve_lines(stream: BufReader<TcpStream>, taken: EventSender) -> io::Result<()> {
    let mut lines = stream.lines();
    while lines.next_line().await?.is_some() {
        let _ = taken.send(());
    }
    Ok(())
}

async fn serve_redis(mut stream: BufReader<TcpStream>, taken: EventSender) -> io::Result<()> {
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 0 {
        let count: usize = line.trim_start_matches('*').trim_end().parse().unwrap_or(0);
        let mut words = Vec::new();
        for _ in 0..count {
            line.clear();
            stream.read_line(&mut line).await?;
            let length: usize = line.trim_start_matches('$').trim_end().parse().unwrap_or(0);
            let mut word = vec![0; length + 2];
            stream.read_exact(&mut word).await?;
            words.push(word);
        }
        let pushes = words.first().is_some_and(|name| name.starts_with(b"RPUSH"));
        let elements = if pushes { words.len().saturating_sub(2) } else { 0 };
        stream.write_all(if pushes { b":1\r\n" } else { b"+OK\r\n" }).await?;
        for _ in 0..elements {
            let _ = taken.send(());
        }
        line.clear();
    }
    Ok(())
}

async fn serve_smtp(mut stream: BufReader<TcpStream>, taken: EventSender) -> io::Result<()> {
    stream.write_all(b"220 test\r\n").await?;
    let (mut line, mut is_text) = (String::new(), false);
    while stream.read_line(&mut line).await? > 0 {
        let answer: &[u8] = match (is_text, line.trim_end()) {
            (true, ".") => {
                let _ = taken.send(());
                is_text = false;
                b"250 taken\r\n"
            }
            (true, _) => b"",
            (false, "DATA") => {
                is_text = true;
                b"354 go on\r\n"
            }
            (false, _) => b"250 test\r\n",
        };
        stream.write_all(answer).await?;
        line.clear();
    }
    Ok(())
}

/// Takes messages of AMQP on one channel, and confirms each.
async fn serve_amqp(mut stream: BufReader<TcpStream>, taken: EventSender) -> io::Result<()> {
    let mut greeting = [0; 8];
    stream.read_exact(&mut greeting).await?;
    let start = b"\0\x09\0\0\0\0\0\0\0\x05PLAIN\0\0\0\x05en_US";
    stream.write_all(&amqp_frame(0, (10, 10), start)).await?;
    let mut messages = 0_u64;
    loop {
        let mut head = [0; 7];
        stream.read_exact(&mut head).await?;
        let [kind, channel @ .., a, b, c, d] = head;
        let (channel, length) = (u16::from_be_bytes(channel), u32::from_be_bytes([a, b, c, d]));
        let mut body = vec![0; length as usize + 1];
        stream.read_exact(&mut body).await?;
        let answer: Option<((u16, u16), Vec<u8>)> = match (kind, body.as_slice()) {
            (1, [_, class, _, method, ..]) => match (*class, *method) {
                (10, 11) => Some(((10, 30), vec![0, 0, 0, 2, 0, 0, 0, 0])),
                (10, 40) => Some(((10, 41), vec![0])),
                (10, 50) => Some(((10, 51), Vec::new())),
                (20, 10) => Some(((20, 11), vec![0; 4])),
                (40, 10) => Some(((40, 11), Vec::new())),
                (85, 10) => Some(((85, 11), Vec::new())),
                _ => None,
            },
            (3, _) => {
                messages += 1;
                let _ = taken.send(());
                Some(((60, 80), [&messages.to_be_bytes()[..], &[0]].concat()))
            }
            // Heads of messages, and heartbeats.
            _ => None,
        };
        if let Some((method, arguments)) = answer {
            stream.write_all(&amqp_frame(channel, method, &arguments)).await?;
        }
    }
}

fn amqp_frame(channel: u16, method: (u16, u16), arguments: &[u8]) -> Vec<u8> {
    let length = u32::try_from(arguments.len() + 4).unwrap();
    let method = [method.0.to_be_bytes(), method.1.to_be_bytes()].concat();
    [&[1], &channel.to_be_bytes()[..], &length.to_be_bytes(), &method, arguments, &[0xce]].concat()
}

#[tokio::test(start_paused = true)]
async fn http_outlasts_an_hour_without_its_peer() {
    let given = [("url", "http://ADDRESS/events".into()), ("http_method", "post".into())];
    outlast("http", &given, serve_http).await;
}

#[tokio::test(start_paused = true)]
async fn elasticsearch_outlasts_an_hour_without_its_peer() {
    let given = [("hosts", "http://ADDRESS".into()), ("index", "events".into())];
    outlast("elasticsearch", &given, serve_http).await;
}

#[tokio::test(start_paused = true)]
async fn tcp_outlasts_an_hour_without_its_peer() {
    let given = [("host", "127.0.0.1".into()), ("port", "PORT".into()), ("codec", "json_lines".into())];
    outlast("tcp", &given, serve_lines).await;
}

#[tokio::test(start_paused = true)]
async fn syslog_outlasts_an_hour_without_its_peer() {
    let given = [("host", "127.0.0.1".into()), ("port", "PORT".into()), ("protocol", "tcp".into())];
    outlast("syslog", &given, serve_lines).await;
}

#[tokio::test(start_paused = true)]
async fn redis_outlasts_an_hour_without_its_peer() {
    let given = [("port", "PORT".into()), ("key", "events".into()), ("data_type", "list".into())];
    outlast("redis", &given, serve_redis).await;
}

#[tokio::test(start_paused = true)]
async fn email_outlasts_an_hour_without_its_peer() {
    let given = [("address", "127.0.0.1".into()), ("port", "PORT".into()), ("to", "a@example.com".into())];
    outlast("email", &given, serve_smtp).await;
}

#[tokio::test(start_paused = true)]
async fn rabbitmq_outlasts_an_hour_without_its_peer() {
    let given = [
        ("host", "127.0.0.1".into()),
        ("port", "PORT".into()),
        ("exchange", "events".into()),
        ("exchange_type", "direct".into()),
    ];
    outlast("rabbitmq", &given, serve_amqp).await;
}

/// Events are on disk meanwhile.
#[tokio::test(start_paused = true)]
async fn s3_outlasts_an_hour_without_its_peer() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let endpoint = format!("http://{}", socket.local_addr().unwrap());
    let given = [
        ("bucket", "events".into()),
        ("endpoint", endpoint.as_str().into()),
        ("access_key_id", "id".into()),
        ("secret_access_key", "secret".into()),
    ];
    let directory = tempfile::tempdir().unwrap();
    let Output::Sink(sink) = build(options("s3", &given)).unwrap() else { panic!("it is a sink") };
    sink.start(directory.path());
    let running = watch::Sender::new(false);
    let sent = sink.send(&events(), running.subscribe(), OrderTicket::new().0).await;
    assert_eq!(sent, Ok(Vec::new()));
    sleep(HOUR).await;
    let listener = socket.listen(16).unwrap();
    let (taken, mut received) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve_http(BufReader::new(stream), taken.clone()));
        }
    });
    resume();
    let mut events = 0;
    for _ in 0..MAX_ATTEMPTS {
        pause();
        advance(LONGEST_PAUSE).await;
        resume();
        while events < EVENTS && timeout(PATIENCE, received.recv()).await.is_ok() {
            events += 1;
        }
        if events == EVENTS {
            return;
        }
    }
    panic!("s3 has not written its events");
}

/// The client's threads have a clock of their own: for them, the broker is away for a moment.
#[tokio::test(start_paused = true)]
async fn kafka_outlasts_an_hour_without_its_peer() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("events", 1, 1).unwrap();
    cluster.broker_down(1).unwrap();
    let given = [("bootstrap_servers", cluster.bootstrap_servers().into()), ("topic_id", "events".into())];
    send_after_an_hour("kafka", &given, || cluster.broker_up(1).unwrap()).await;
}
