//! `redis`: events of a list, or of channels, of a Redis server.
//!
//! Elements of a list are taken off by the read. Where they are not stored, they are put back at its head, also when the input stops
//! and they are not stored soon; then they may come twice. Those of one batch are lost where the process is killed in between, or where
//! the connection breaks during the read. Messages of channels are lost while nobody listens.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::{Connection, RedisError};

use super::stream::delivery::send;
use super::{Context, Input, InputError, mark_version, reserve_piece, stopped};
use crate::batch::NotStored;
use crate::codec::{self, Codec, Events};
use crate::offload::offload;
use crate::redis_server::RedisServer;
use crate::{Ack, Batch, Fault, Options};

/// Elements that are taken at once where nothing is said.
const BATCH_COUNT: i64 = 125;
/// Time that a read waits for elements or messages, so that a stop is noticed.
const WAIT: Duration = Duration::from_secs(1);

/// Time that elements have to be stored once the input is to stop; then they are put back.
const STOP_PATIENCE: Duration = Duration::from_secs(3);
/// Pause before elements are put back again over a new connection; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Origin of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DataType {
    List,
    Channel,
    PatternChannel,
}

/// The input; see the module.
#[derive(Debug)]
pub(super) struct Redis {
    settings: Arc<Settings>,
    codec: Arc<dyn Codec>,
}

#[derive(Debug)]
struct Settings {
    server: RedisServer,
    key: String,
    data_type: DataType,
    batch_count: usize,
}

impl Redis {
    /// Makes the input.
    ///
    /// # Errors
    /// Faults of the options.
    pub(super) fn new(mut options: Options) -> Result<Self, Vec<Fault>> {
        let o = &mut options;
        let host = o.text("host").unwrap_or_else(|| "127.0.0.1".to_owned());
        let server = RedisServer::take(o, host);
        let key = o.required_text("key");
        let choices = ["list", "channel", "pattern_channel"];
        let data_type = match o.one_of("data_type", &choices) {
            Some("channel") => DataType::Channel,
            Some("pattern_channel") => DataType::PatternChannel,
            Some(_) => DataType::List,
            None => {
                o.fault_here("[redis] needs the option [data_type]: list, channel or pattern_channel");
                DataType::List
            }
        };
        let batch_count = o.integer("batch_count", 1..=100_000).unwrap_or(BATCH_COUNT);
        let _ = o.integer("threads", 1..=64);
        let _ = o.take("command_map").map(|(at, _)| o.fault(at, "option [command_map] is not supported"));
        let codec = codec::take(o, "json");
        options.finish()?;
        let settings =
            Settings { server, key, data_type, batch_count: usize::try_from(batch_count).unwrap_or(1) };
        Ok(Self { settings: Arc::new(settings), codec: codec? })
    }

    /// Makes the events of elements.
    async fn decode(&self, elements: Arc<Vec<Vec<u8>>>) -> Events {
        let codec = Arc::clone(&self.codec);
        offload(move || {
            let mut events = Events::default();
            for element in &*elements {
                let mut decoder = codec.decoder();
                decoder.decode(element, &mut events);
                decoder.finish(&mut events);
            }
            events.iter_mut().for_each(mark_version);
            events
        })
        .await
    }

    async fn read_list(&self, mut connection: Connection, context: &Context) -> Result<(), InputError> {
        while !*context.stopping.borrow() {
            let Some(mut held) = reserve_piece(context).await else { return Ok(()) };
            let settings = Arc::clone(&self.settings);
            let (elements, back) = offload(move || (settings.pop(&mut connection), connection)).await;
            connection = back;
            let elements = Arc::new(elements.map_err(failed)?);
            if elements.is_empty() {
                continue;
            }
            let events = self.decode(Arc::clone(&elements)).await;
            held.set(events.bytes());
            let (ack, stored) = Ack::channel();
            let batch = Batch { events: events.into_vec(), position: None, ack, held };
            let outcome = async {
                match context.batches.send(batch).await {
                    Ok(()) => stored.await.unwrap_or(Err(NotStored::Ended)),
                    Err(_) => Err(NotStored::Ended),
                }
            };
            let mut stopping = context.stopping.clone();
            let overdue = async {
                stopped(&mut stopping).await;
                tokio::time::sleep(STOP_PATIENCE).await;
            };
            let outcome = tokio::select! {
                biased;
                outcome = outcome => outcome,
                () = overdue => Err(NotStored::Ended),
            };
            if let Err(why) = outcome {
                self.put_back(connection, elements).await;
                return Err(InputError(format!("elements of the list are put back: {why}")));
            }
        }
        Ok(())
    }

    /// Puts elements back, over new connections until it succeeds: they are nowhere else.
    async fn put_back(&self, connection: Connection, elements: Arc<Vec<Vec<u8>>>) {
        let mut connection = Some(connection);
        let mut pause = FIRST_PAUSE;
        loop {
            let (settings, elements, have) =
                (Arc::clone(&self.settings), Arc::clone(&elements), connection.take());
            let outcome = offload(move || {
                let mut connection = have.map_or_else(|| settings.connect(), Ok)?;
                settings.put_back(&mut connection, &elements)
            });
            let Err(error) = outcome.await else { return };
            tracing::warn!(%error, "elements of a list of redis cannot be put back yet; it is tried again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn read_channel(&self, connection: Connection, context: &Context) -> Result<(), InputError> {
        let (sender, mut messages) = tokio::sync::mpsc::channel::<Vec<u8>>(1_024);
        let (settings, stopping) = (Arc::clone(&self.settings), context.stopping.clone());
        let reading = tokio::task::spawn_blocking(move || {
            settings.subscribe(connection, &sender, || *stopping.borrow())
        });
        while let Some(first) = messages.recv().await {
            let mut elements = vec![first];
            while elements.len() < self.settings.batch_count
                && let Ok(next) = messages.try_recv()
            {
                elements.push(next);
            }
            let Some(held) = reserve_piece(context).await else { break };
            let events = self.decode(Arc::new(elements)).await;
            if !send(events, held, context).await {
                break;
            }
        }
        drop(messages);
        reading.await.unwrap_or(Ok(())).map_err(failed)
    }
}

fn failed(error: RedisError) -> InputError {
    InputError(format!("redis: {error}"))
}

impl Settings {
    /// Connects. A read waits for as long as the server does, and a little more.
    fn connect(&self) -> Result<Connection, RedisError> {
        self.server.connect(WAIT)
    }

    /// Takes elements off the head of the list; none where none come in time.
    fn pop(&self, connection: &mut Connection) -> Result<Vec<Vec<u8>>, RedisError> {
        let first: Option<(Vec<u8>, Vec<u8>)> =
            redis::cmd("BLPOP").arg(&self.key).arg(WAIT.as_secs()).query(connection)?;
        let Some((_, first)) = first else { return Ok(Vec::new()) };
        let mut elements = vec![first];
        // One round trip: LPOP with a count is unknown to servers before version 6.2.
        let mut pipe = redis::pipe();
        for _ in 1..self.batch_count {
            pipe.cmd("LPOP").arg(&self.key);
        }
        if self.batch_count > 1 {
            match pipe.query::<Vec<Option<Vec<u8>>>>(connection) {
                Ok(more) => elements.extend(more.into_iter().flatten()),
                Err(error) => tracing::warn!(%error, "elements of a list of redis cannot be read"),
            }
        }
        Ok(elements)
    }

    /// Puts elements back at the head of the list, in their order.
    fn put_back(&self, connection: &mut Connection, elements: &[Vec<u8>]) -> Result<(), RedisError> {
        let mut command = redis::cmd("LPUSH");
        command.arg(&self.key);
        for element in elements.iter().rev() {
            command.arg(element.as_slice());
        }
        command.query(connection)
    }

    /// Hands on messages of channels until the input is to stop.
    fn subscribe(
        &self,
        mut connection: Connection,
        sender: &tokio::sync::mpsc::Sender<Vec<u8>>,
        is_stopping: impl Fn() -> bool,
    ) -> Result<(), RedisError> {
        let mut subscription = connection.as_pubsub();
        match self.data_type {
            DataType::PatternChannel => subscription.psubscribe(&self.key)?,
            DataType::Channel | DataType::List => subscription.subscribe(&self.key)?,
        }
        subscription.set_read_timeout(Some(WAIT))?;
        while !is_stopping() {
            match subscription.get_message() {
                Ok(message) => {
                    if sender.blocking_send(message.get_payload_bytes().to_vec()).is_err() {
                        return Ok(());
                    }
                }
                Err(error) if error.is_timeout() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Input for Redis {
    fn identity(&self) -> String {
        let Settings { server: RedisServer { host, port, path, database, .. }, key, .. } = &*self.settings;
        match path {
            Some(path) => format!("redis {path} {database} {key}"),
            None => format!("redis {host}:{port} {database} {key}"),
        }
    }

    async fn run(&self, context: Context) -> Result<(), InputError> {
        let settings = Arc::clone(&self.settings);
        let connection = offload(move || settings.connect()).await.map_err(failed)?;
        match self.settings.data_type {
            DataType::List => self.read_list(connection, &context).await,
            DataType::Channel | DataType::PatternChannel => self.read_channel(connection, &context).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use parking_lot::Mutex;

    use super::*;
    use crate::input::testing::{Pipeline, options, refuse};

    /// Reads a command of the protocol; `None` at the end of the stream.
    fn command(reader: &mut impl BufRead) -> Option<Vec<String>> {
        let line = |reader: &mut dyn BufRead| {
            let mut line = String::new();
            reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
            line.trim_end().get(1..)?.parse::<usize>().ok()
        };
        let count = line(reader)?;
        let words = (0..count).map(|_| {
            let length = line(reader)?;
            let mut word = vec![0; length + 2];
            reader.read_exact(&mut word).ok()?;
            word.truncate(length);
            String::from_utf8(word).ok()
        });
        words.collect()
    }

    /// A server of one list. Returns its port.
    fn serve(list: Arc<Mutex<VecDeque<String>>>) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let list = Arc::clone(&list);
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    while let Some(words) = command(&mut reader) {
                        let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
                        let answer = match words[0].to_uppercase().as_str() {
                            "BLPOP" => match list.lock().pop_front() {
                                Some(element) => format!("*2\r\n{}{}", bulk(&words[1]), bulk(&element)),
                                None => "*-1\r\n".to_owned(),
                            },
                            "LPOP" => {
                                list.lock().pop_front().map_or("$-1\r\n".to_owned(), |element| bulk(&element))
                            }
                            "LPUSH" => {
                                words[2..].iter().for_each(|element| list.lock().push_front(element.clone()));
                                ":1\r\n".to_owned()
                            }
                            _ => "+OK\r\n".to_owned(),
                        };
                        if stream.write_all(answer.as_bytes()).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        port
    }

    #[tokio::test]
    async fn elements_that_are_not_stored_are_put_back() {
        let list: Arc<Mutex<VecDeque<String>>> = Arc::default();
        list.lock().extend((0..5).map(|number| format!("{{\"message\":\"{number}\"}}")));
        let port = serve(Arc::clone(&list)).to_string();
        let given = [
            ("port", port.into()),
            ("key", "logs".into()),
            ("data_type", "list".into()),
            ("batch_count", "3".into()),
        ];
        let redis = Redis::new(options("redis", &given)).unwrap();
        let mut pipeline = Pipeline::new(1);
        let context = pipeline.context();
        let refused = async { refuse(pipeline.next().await.unwrap(), NotStored::Ended) };
        let (outcome, ()) = tokio::join!(redis.run(context.clone()), refused);
        assert!(outcome.unwrap_err().to_string().contains("are put back"));
        assert_eq!(list.lock().front().map(String::as_str), Some("{\"message\":\"0\"}"));
        let running = tokio::spawn(async move { redis.run(context).await });
        while pipeline.events.len() < 5 {
            pipeline.take().await.unwrap().unwrap();
        }
        pipeline.stop.send_replace(true);
        running.await.unwrap().unwrap();
        assert_eq!(pipeline.messages(), ["0", "1", "2", "3", "4"]);
        assert!(list.lock().is_empty());
    }

    #[tokio::test]
    async fn elements_are_put_back_at_a_stop_and_over_a_new_connection() {
        let list: Arc<Mutex<VecDeque<String>>> = Arc::default();
        list.lock().extend((0..3).map(|number| format!("{{\"message\":\"{number}\"}}")));
        let port = serve(Arc::clone(&list)).to_string();
        let given = [("port", port.into()), ("key", "logs".into()), ("data_type", "list".into())];
        let redis = Redis::new(options("redis", &given)).unwrap();
        let mut pipeline = Pipeline::new(1);
        let context = pipeline.context();
        let stuck = async {
            // The output never answers.
            let held = pipeline.next().await.unwrap();
            pipeline.stop.send_replace(true);
            held
        };
        let (outcome, held) = tokio::join!(redis.run(context), stuck);
        assert!(outcome.unwrap_err().to_string().contains("are put back"));
        assert_eq!(list.lock().len(), 3);
        drop(held);
        let elements = Arc::new(vec![b"first".to_vec(), b"second".to_vec()]);
        // Nobody answers on the other end of this connection.
        let broken = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = redis::Client::open(("127.0.0.1", broken.local_addr().unwrap().port())).unwrap();
        let answering = std::thread::spawn(move || {
            let (stream, _) = broken.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            // The setup of the connection is answered, the next command is not.
            while let Some(words) = command(&mut reader) {
                if words[0].eq_ignore_ascii_case("LPUSH") {
                    return;
                }
                (&stream).write_all(b"+OK\r\n").unwrap();
            }
        });
        let connection = tokio::task::spawn_blocking(move || client.get_connection()).await.unwrap().unwrap();
        redis.put_back(connection, elements).await;
        answering.join().unwrap();
        assert_eq!(list.lock().iter().take(2).collect::<Vec<_>>(), ["first", "second"]);
    }

    #[test]
    fn options_are_checked() {
        let given = [("ssl", "true".into()), ("path", "/run/redis.sock".into())];
        let faults = Redis::new(options("redis", &given)).unwrap_err();
        let all = faults.iter().map(|fault| fault.message.clone()).collect::<Vec<_>>().join("\n");
        for part in ["option [key]", "option [data_type]", "a socket of this machine has no TLS"] {
            assert!(all.contains(part), "{part}: {all}");
        }
    }
}
