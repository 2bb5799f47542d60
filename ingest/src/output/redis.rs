//! `redis`: events to a list or a channel of a Redis server, at least once.
//!
//! After a connection breaks, the output sends again from the first command on that has no answer. So elements of one command may
//! be there twice. Where several hosts are given, a failure leads to the next one.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use redis::{Connection, RedisError};
use tokio::sync::watch;

use super::retry::{Backoff, prepare_codec};
use crate::codec::{self, Codec};
use crate::input::stopped;
use crate::offload::offload;
use crate::output::{OrderTicket, Output, RefusedEvent, Sink, SinkInterrupted};
use crate::redis_server::RedisServer;
use crate::{Event, Fault, Options, Template};

/// Elements of one command, where the key is the same.
const MAX_ELEMENTS: usize = 1_000;
/// Bytes of one command, but for its last element.
const MAX_BYTES: usize = 4 << 20;
/// Longest pause between attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct RedisOutput {
    shared: Arc<OutputState>,
    key: Template,
    codec: Arc<dyn Codec>,
    first_pause: Duration,
    congestion_interval: Duration,
}

/// State that the threads of commands share.
struct OutputState {
    servers: Vec<RedisServer>,
    is_list: bool,
    /// Elements from which on a list takes no more; 0 for any number.
    congestion_threshold: u64,
    /// Open connection, and the number of the server in use.
    open: Mutex<(Option<Connection>, usize)>,
}

impl std::fmt::Debug for OutputState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutputState").field("servers", &self.servers).finish_non_exhaustive()
    }
}

/// Elements for one key.
#[derive(Debug)]
struct KeyElements {
    key: String,
    elements: Vec<Vec<u8>>,
    /// Numbers of the events of the elements.
    events: std::ops::Range<usize>,
}

/// Outcome of an attempt.
enum Attempt {
    /// All is sent, or refused for good.
    Done,
    /// A list has too many elements.
    Congested(String),
    Failed(RedisError),
}

/// Makes the output.
///
/// # Errors
/// The faults of the options.
pub(super) fn build(mut options: Options) -> Result<Output, Vec<Fault>> {
    let o = &mut options;
    let mut hosts = o.texts("host");
    if hosts.is_empty() {
        hosts.push("127.0.0.1".to_owned());
    }
    let _ = o.boolean("shuffle_hosts");
    let server = RedisServer::take(o, String::new());
    let servers = hosts.into_iter().map(|host| server.at(&host)).collect::<Result<Vec<_>, _>>();
    let servers = servers.map_err(|fault| o.fault_here(fault)).unwrap_or_default();
    let key = Template::parse(&o.required_text("key"));
    let is_list = match o.one_of("data_type", &["list", "channel"]) {
        Some(kind) => kind == "list",
        None => {
            o.fault_here("[redis] needs the option [data_type]: list or channel");
            true
        }
    };
    let threshold = o.integer("congestion_threshold", 0..=i64::MAX).unwrap_or(0);
    let interval = o.integer("congestion_interval", 1..=3_600).unwrap_or(1);
    let pause = o.integer("reconnect_interval", 1..=3_600).unwrap_or(1);
    // Elements of a batch share a command in any case.
    let _ = (
        o.boolean("batch"),
        o.integer("batch_events", 1..=i64::MAX),
        o.integer("batch_timeout", 0..=i64::MAX),
    );
    let codec = codec::take(o, "json");
    options.finish()?;
    let shared = OutputState {
        servers,
        is_list,
        congestion_threshold: if is_list { threshold.unsigned_abs() } else { 0 },
        open: Mutex::new((None, 0)),
    };
    Ok(Output::Sink(Arc::new(RedisOutput {
        shared: Arc::new(shared),
        key,
        codec: codec?,
        first_pause: Duration::from_secs(pause.unsigned_abs()),
        congestion_interval: Duration::from_secs(interval.unsigned_abs()),
    })))
}

impl OutputState {
    /// Sends commands from a number on, which counts those that have an answer. The calling thread waits.
    fn attempt(
        &self,
        commands: &[KeyElements],
        sent: &mut usize,
        refused: &mut Vec<RefusedEvent>,
    ) -> Attempt {
        let mut open = self.open.lock();
        let (connection, position) = &mut *open;
        let result = self.send(connection, *position, commands, sent, refused);
        if let Attempt::Failed(_) = result {
            *connection = None;
            *position += 1;
        }
        result
    }

    fn send(
        &self,
        open: &mut Option<Connection>,
        position: usize,
        commands: &[KeyElements],
        sent: &mut usize,
        refused: &mut Vec<RefusedEvent>,
    ) -> Attempt {
        if open.is_none() {
            let Some(server) = self.servers.get(position % self.servers.len().max(1)) else {
                return Attempt::Done;
            };
            match server.connect(Duration::ZERO) {
                Ok(connection) => *open = Some(connection),
                Err(error) => return Attempt::Failed(error),
            }
        }
        let Some(connection) = open else { return Attempt::Done };
        while let Some(command) = commands.get(*sent) {
            match self.command(connection, command) {
                Ok(true) => {}
                Ok(false) => return Attempt::Congested(command.key.clone()),
                Err(error) if is_permanent(&error) => {
                    let reason = format!("key [{}]: {error}", command.key);
                    refused.extend(
                        command.events.clone().map(|event| RefusedEvent { event, reason: reason.clone() }),
                    );
                }
                Err(error) => return Attempt::Failed(error),
            }
            *sent += 1;
        }
        Attempt::Done
    }

    /// Sends the elements of a key; `false` where its list has too many.
    fn command(&self, connection: &mut Connection, command: &KeyElements) -> Result<bool, RedisError> {
        if !self.is_list {
            let mut pipe = redis::pipe();
            for element in &command.elements {
                pipe.cmd("PUBLISH").arg(&command.key).arg(element.as_slice()).ignore();
            }
            return pipe.query::<()>(connection).map(|()| true);
        }
        if self.congestion_threshold > 0 {
            let length: u64 = redis::cmd("LLEN").arg(&command.key).query(connection)?;
            if length > self.congestion_threshold {
                return Ok(false);
            }
        }
        let mut push = redis::cmd("RPUSH");
        push.arg(&command.key);
        for element in &command.elements {
            push.arg(element.as_slice());
        }
        push.query::<u64>(connection).map(|_| true)
    }
}

/// Returns whether an error is of the key's type, and so stays.
fn is_permanent(error: &RedisError) -> bool {
    error.code() == Some("WRONGTYPE")
}

/// Joins elements of events, with their numbers, that follow one another with the same key.
fn group(elements: impl IntoIterator<Item = (usize, String, Vec<u8>)>) -> Vec<KeyElements> {
    let mut groups: Vec<KeyElements> = Vec::new();
    let mut bytes = 0;
    for (number, key, element) in elements {
        match groups.last_mut() {
            Some(last)
                if last.key == key
                    && last.events.end == number
                    && last.elements.len() < MAX_ELEMENTS
                    && bytes < MAX_BYTES =>
            {
                bytes += element.len();
                last.elements.push(element);
                last.events.end = number + 1;
            }
            _ => {
                bytes = element.len();
                groups.push(KeyElements { key, elements: vec![element], events: number..number + 1 });
            }
        }
    }
    groups
}

#[async_trait]
impl Sink for RedisOutput {
    async fn send(
        &self,
        events: &[(Arc<Event>, Option<String>)],
        mut stopping: watch::Receiver<bool>,
        _place: OrderTicket,
    ) -> Result<Vec<RefusedEvent>, SinkInterrupted> {
        let backoff = Backoff::new(self.first_pause, LONGEST_PAUSE.max(self.first_pause));
        prepare_codec(&self.codec, "redis", backoff, &mut stopping).await?;
        let (codec, key, events) = (Arc::clone(&self.codec), self.key.clone(), events.to_vec());
        let encode = move || {
            let (mut elements, mut refused) = (Vec::with_capacity(events.len()), Vec::new());
            for (number, (event, _)) in events.iter().enumerate() {
                let mut element = Vec::with_capacity(256);
                match codec.try_encode(event, &mut element) {
                    Ok(()) => elements.push((number, key.render(event), element)),
                    Err(reason) => refused.push(RefusedEvent { event: number, reason }),
                }
            }
            (group(elements), refused)
        };
        let (commands, mut refused) = offload(encode).await;
        let (commands, mut sent) = (Arc::new(commands), 0);
        let mut backoff = Backoff::new(self.first_pause, LONGEST_PAUSE.max(self.first_pause));
        loop {
            let (shared, of_attempt, earlier) = (Arc::clone(&self.shared), Arc::clone(&commands), refused);
            let attempt = offload(move || {
                let (mut sent, mut refused) = (sent, earlier);
                let attempt = shared.attempt(&of_attempt, &mut sent, &mut refused);
                (attempt, sent, refused)
            });
            let attempt = tokio::select! {
                biased;
                () = stopped(&mut stopping) => return Err(SinkInterrupted),
                attempt = attempt => attempt,
            };
            let outcome;
            (outcome, sent, refused) = attempt;
            match outcome {
                Attempt::Done => return Ok(refused),
                Attempt::Congested(key) => {
                    tracing::warn!(key, "a list of redis has too many elements, the output waits");
                    tokio::select! {
                        biased;
                        () = stopped(&mut stopping) => return Err(SinkInterrupted),
                        () = tokio::time::sleep(self.congestion_interval) => {}
                    }
                }
                Attempt::Failed(error) => {
                    tracing::warn!(%error, "the output redis cannot send, it tries again");
                    backoff.wait(&mut stopping).await?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};

    use serde_json::json;

    use super::*;
    use crate::input::testing::{OptionValue, options};

    /// Reads a command of the protocol; `None` at the end of the stream.
    fn command(reader: &mut BufReader<TcpStream>) -> Option<Vec<String>> {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let count = line.trim_end().get(1..)?.parse::<usize>().ok()?;
        let mut words = Vec::new();
        for _ in 0..count {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let mut word = vec![0; line.trim_end().get(1..)?.parse::<usize>().ok()? + 2];
            reader.read_exact(&mut word).ok()?;
            word.truncate(word.len() - 2);
            words.push(String::from_utf8(word).ok()?);
        }
        Some(words)
    }

    /// Answers commands of several connections, one after the other, by the words of a script; returns all commands that write.
    fn serve(script: Vec<Option<&'static str>>) -> (u16, std::thread::JoinHandle<Vec<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = std::thread::spawn(move || {
            let (mut script, mut written) = (script.into_iter(), Vec::new());
            while !script.as_slice().is_empty() {
                let (mut stream, _) = listener.accept().unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                while let Some(words) = command(&mut reader) {
                    if !matches!(words[0].as_str(), "RPUSH" | "PUBLISH" | "LLEN") {
                        stream.write_all(b"+OK\r\n").unwrap();
                        continue;
                    }
                    written.push(words);
                    match script.next().flatten() {
                        Some(answer) => stream.write_all(answer.as_bytes()).unwrap(),
                        // The connection breaks.
                        None => break,
                    }
                    if script.as_slice().is_empty() {
                        break;
                    }
                }
            }
            written
        });
        (port, serving)
    }

    fn events(numbers: &[u32]) -> Vec<(Arc<Event>, Option<String>)> {
        let event = |number: &u32| {
            let mut event = Event::new(chrono::DateTime::UNIX_EPOCH);
            event.fields_mut().insert("n".to_owned(), json!(number));
            event.fields_mut().insert("key".to_owned(), json!(format!("k{}", number / 10)));
            (Arc::new(event), None)
        };
        numbers.iter().map(event).collect()
    }

    async fn send(port: u16, given: &[(&str, OptionValue)], numbers: &[u32]) -> Vec<RefusedEvent> {
        let address = [("port", port.to_string().into())];
        let given = [&address[..], given].concat();
        let Output::Sink(sink) = build(options("redis", &given)).unwrap() else { panic!("it is a sink") };
        let running = watch::Sender::new(false);
        sink.send(&events(numbers), running.subscribe(), OrderTicket::new().0).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn elements_are_sent_again_from_the_command_without_an_answer() {
        let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
        let (port, serving) = serve(vec![Some(":2\r\n"), None, Some(":1\r\n"), Some(wrong_type)]);
        let given = [("key", "%{key}".into()), ("data_type", "list".into())];
        let refused = send(port, &given, &[1, 2, 11, 21]).await;
        assert_eq!(refused.len(), 1);
        assert!(refused[0].event == 3 && refused[0].reason.contains("[k2]"), "{refused:?}");
        let commands = serving.join().unwrap();
        let keys: Vec<(&str, usize)> =
            commands.iter().map(|words| (words[1].as_str(), words.len() - 2)).collect();
        assert_eq!(keys, [("k0", 2), ("k1", 1), ("k1", 1), ("k2", 1)]);
        assert!(commands[0][2].contains("\"n\":1") && commands[0][3].contains("\"n\":2"), "{commands:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_congested_list_is_waited_for() {
        let (port, serving) = serve(vec![Some(":7\r\n"), Some(":3\r\n"), Some(":4\r\n")]);
        let given = [("key", "k".into()), ("data_type", "list".into()), ("congestion_threshold", "5".into())];
        assert_eq!(send(port, &given, &[1]).await, []);
        let names: Vec<String> = serving.join().unwrap().into_iter().map(|words| words[0].clone()).collect();
        assert_eq!(names, ["LLEN", "LLEN", "RPUSH"]);
    }

    #[tokio::test]
    async fn channels_get_a_message_for_each_event() {
        let (port, serving) = serve(vec![Some(":0\r\n"), Some(":0\r\n")]);
        let given = [("key", "c".into()), ("data_type", "channel".into()), ("codec", "json".into())];
        assert_eq!(send(port, &given, &[1, 2]).await, []);
        assert_eq!(serving.join().unwrap().len(), 2);
    }

    #[test]
    fn options_are_checked() {
        let faults = build(options("redis", &[("host", "h:x".into())])).unwrap_err();
        for expected in ["option [key]", "option [data_type]", "[h:x]"] {
            assert!(faults.iter().any(|fault| fault.message.contains(expected)), "{expected}: {faults:?}");
        }
    }
}
