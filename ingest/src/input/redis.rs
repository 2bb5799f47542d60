//! `redis`: events of a list, or of channels, of a Redis server.
//!
//! Elements of a list are taken off by the read. Where they are not stored, they are put back at its head, also when the input stops
//! and they are not stored soon; then they may come twice. Those of one batch are lost where the process is killed in between, or where
//! the connection breaks during the read. Messages of channels are lost while nobody listens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use redis::{Connection, RedisError};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::stream::delivery::send;
use super::{Context, Input, InputError, mark_version, reserve_piece, stopped};
use crate::batch::NotStored;
use crate::budget::{PipelineShare, Reservation};
use crate::codec::{self, Codec, Events, decode_piece};
use crate::offload::offload;
use crate::redis_server::RedisServer;
use crate::{Ack, Batch, Fault, Options};

/// Elements that are taken at once where nothing is said.
const BATCH_COUNT: i64 = 125;
/// Time that a read waits for elements or messages, so that a stop is noticed.
const WAIT: Duration = Duration::from_secs(1);

/// Takes up to so many elements, until they have so many bytes.
const POP_SCRIPT: &str = "local all, bytes = {}, 0
while #all < tonumber(ARGV[1]) and bytes < tonumber(ARGV[2]) do
  local one = redis.call('LPOP', KEYS[1])
  if not one then break end
  all[#all + 1] = one
  bytes = bytes + #one
end
return all";

/// Messages of channels that wait to be decoded, and their bytes; a single one may be larger. The server keeps the others, and closes
/// the connection where they become too many for it.
const MAX_MESSAGES: usize = 1_024;
const MAX_MESSAGE_BYTES: usize = 4 << 20;

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
    /// `true` once the server has refused a script.
    refuses_scripts: AtomicBool,
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
        let settings = Settings {
            server,
            key,
            data_type,
            batch_count: usize::try_from(batch_count).unwrap_or(1),
            refuses_scripts: AtomicBool::new(false),
        };
        Ok(Self { settings: Arc::new(settings), codec: codec? })
    }

    /// Makes the events of elements until they take the memory that is reserved for a read; returns them with the number of elements.
    /// An element whose events would take more than a pipeline may have is one event, tagged `_toomanyevents`.
    async fn decode(
        &self,
        elements: Arc<Vec<Vec<u8>>>,
        first: usize,
        budget: &PipelineShare,
    ) -> (Events, usize) {
        let (codec, most, piece) = (Arc::clone(&self.codec), budget.most(), budget.piece());
        offload(move || {
            let mut events = Events::default();
            let mut count = 0;
            for element in elements.iter().skip(first) {
                decode_piece(&mut *codec.decoder(), element, true, most, &mut events);
                count += 1;
                if events.bytes() >= piece {
                    break;
                }
            }
            events.iter_mut().for_each(mark_version);
            (events, count)
        })
        .await
    }

    async fn read_list(&self, mut connection: Connection, context: &Context) -> Result<(), InputError> {
        while !*context.stopping.borrow() {
            let Some(mut held) = reserve_piece(context).await else { return Ok(()) };
            let settings = Arc::clone(&self.settings);
            let most_bytes = held.bytes();
            let (popped, back) =
                offload(move || (settings.pop(&mut connection, most_bytes), connection)).await;
            connection = back;
            let elements = Arc::new(popped.map_err(failed)?);
            let lengths = elements.iter().map(|element| element.len() as u64);
            // Elements stay until their events are stored: they may have to be put back.
            held.set(lengths.sum());
            let mut stored = 0;
            while stored < elements.len() {
                let (events, count) = self.decode(Arc::clone(&elements), stored, &context.budget).await;
                // They are few enough for the piece that was reserved; to wait beside the elements is not allowed.
                let room = context.budget.overdraw(events.bytes());
                if let Err(why) = store(events, room, context).await {
                    self.put_back(connection, elements, stored).await;
                    return Err(InputError(format!("elements of the list are put back: {why}")));
                }
                stored += count;
            }
        }
        Ok(())
    }

    /// Puts elements back, over new connections until it succeeds: they are nowhere else.
    async fn put_back(&self, connection: Connection, elements: Arc<Vec<Vec<u8>>>, first: usize) {
        let mut connection = Some(connection);
        let mut pause = FIRST_PAUSE;
        loop {
            let (settings, elements, have) =
                (Arc::clone(&self.settings), Arc::clone(&elements), connection.take());
            let outcome = offload(move || {
                let mut connection = have.map_or_else(|| settings.connect(), Ok)?;
                settings.put_back(&mut connection, elements.get(first..).unwrap_or_default())
            });
            let Err(error) = outcome.await else { return };
            tracing::warn!(%error, "elements of a list of redis cannot be put back yet; it is tried again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn read_channel(&self, connection: Connection, context: &Context) -> Result<(), InputError> {
        let (sender, mut messages) = mpsc::channel::<Message>(MAX_MESSAGES);
        let (settings, stopping) = (Arc::clone(&self.settings), context.stopping.clone());
        let room =
            MessageRoom { permits: Arc::new(Semaphore::new(MAX_MESSAGE_BYTES)), runtime: Handle::current() };
        let permits = Arc::clone(&room.permits);
        let reading = tokio::task::spawn_blocking(move || {
            settings.subscribe(connection, &sender, &room, || *stopping.borrow())
        });
        'messages: while let Some(first) = messages.recv().await {
            let (mut elements, mut held_messages) = (Vec::new(), Vec::new());
            let mut next = Some(first);
            while let Some(Message { payload, permit }) = next.take() {
                elements.push(payload);
                held_messages.push(permit);
                if elements.len() < self.settings.batch_count {
                    next = messages.try_recv().ok();
                }
            }
            let elements = Arc::new(elements);
            let mut taken = 0;
            while taken < elements.len() {
                // What was read goes on to the end of the pipeline.
                let held = reserve_piece(context).await.unwrap_or_else(|| context.budget.empty());
                let (events, count) = self.decode(Arc::clone(&elements), taken, &context.budget).await;
                if !send(events, held, context).await {
                    break 'messages;
                }
                taken += count;
            }
        }
        permits.close();
        drop(messages);
        reading.await.unwrap_or(Ok(())).map_err(failed)
    }
}

/// Hands the events of elements on and waits until they are stored. Once the input is to stop, that may take a while.
async fn store(events: Events, held: Reservation, context: &Context) -> Result<(), NotStored> {
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
    tokio::select! {
        biased;
        outcome = outcome => outcome,
        () = overdue => Err(NotStored::Ended),
    }
}

/// A message of a channel, with its part of what may wait.
struct Message {
    payload: Vec<u8>,
    permit: OwnedSemaphorePermit,
}

/// Bytes of messages that may wait to be decoded.
struct MessageRoom {
    permits: Arc<Semaphore>,
    runtime: Handle,
}

impl MessageRoom {
    /// Waits until a message may wait; the calling thread waits. `None` where nobody takes messages any more.
    fn admit(&self, payload: Vec<u8>) -> Option<Message> {
        let bytes = payload.len().min(MAX_MESSAGE_BYTES);
        let permits = Arc::clone(&self.permits).acquire_many_owned(u32::try_from(bytes).unwrap_or(u32::MAX));
        let permit = self.runtime.block_on(permits).ok()?;
        Some(Message { payload, permit })
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

    /// Takes elements off the head of the list until they have so many bytes; none where none come in time.
    fn pop(&self, connection: &mut Connection, most_bytes: u64) -> Result<Vec<Vec<u8>>, RedisError> {
        let first: Option<(Vec<u8>, Vec<u8>)> =
            redis::cmd("BLPOP").arg(&self.key).arg(WAIT.as_secs()).query(connection)?;
        let Some((_, first)) = first else { return Ok(Vec::new()) };
        let left = most_bytes.saturating_sub(first.len() as u64);
        let mut elements = vec![first];
        if self.batch_count == 1 || left == 0 {
            return Ok(elements);
        }
        if !self.refuses_scripts.load(Ordering::Relaxed) {
            let mut script = redis::cmd("EVAL");
            script.arg(POP_SCRIPT).arg(1).arg(&self.key).arg(self.batch_count - 1).arg(left);
            match script.query::<Vec<Vec<u8>>>(connection) {
                Ok(more) => {
                    elements.extend(more);
                    return Ok(elements);
                }
                // The server is busy, or its dataset is not loaded yet: that passes.
                Err(error)
                    if error.is_io_error()
                        || matches!(error.code(), Some("BUSY" | "LOADING" | "MASTERDOWN" | "TRYAGAIN")) =>
                {
                    tracing::warn!(%error, "elements of a list of redis cannot be read");
                    return Ok(elements);
                }
                Err(error) => {
                    tracing::info!(%error, "redis runs no scripts: elements of the list are read by commands of their own");
                    self.refuses_scripts.store(true, Ordering::Relaxed);
                }
            }
        }
        self.pop_in_steps(connection, left, &mut elements);
        Ok(elements)
    }

    /// Takes further elements in steps, each as large as all before it, until they have so many bytes.
    fn pop_in_steps(&self, connection: &mut Connection, most_bytes: u64, elements: &mut Vec<Vec<u8>>) {
        let mut bytes = 0;
        while elements.len() < self.batch_count && bytes < most_bytes {
            let count = elements.len().min(self.batch_count - elements.len());
            // One round trip: LPOP with a count is unknown to servers before version 6.2.
            let mut pipe = redis::pipe();
            for _ in 0..count {
                pipe.cmd("LPOP").arg(&self.key);
            }
            let more: Vec<Vec<u8>> = match pipe.query::<Vec<Option<Vec<u8>>>>(connection) {
                Ok(more) => more.into_iter().flatten().collect(),
                Err(error) => {
                    return tracing::warn!(%error, "elements of a list of redis cannot be read");
                }
            };
            bytes += more.iter().map(|element| element.len() as u64).sum::<u64>();
            let is_empty = more.len() < count;
            elements.extend(more);
            if is_empty {
                return;
            }
        }
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
        sender: &mpsc::Sender<Message>,
        room: &MessageRoom,
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
                    let admitted = room.admit(message.get_payload_bytes().to_vec());
                    if admitted.is_none_or(|message| sender.blocking_send(message).is_err()) {
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
mod tests;
