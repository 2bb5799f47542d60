//! One consumer, in a thread of its own: polls, decodes, hands on, and exports what was stored.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use millrace_runtime::Instant;
use rdkafka::Message;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Offset, Timestamp};
use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::assignment::{ANSWER, Assignment, Key, export};
use super::position::Position;
use super::settings::{RecordDecoration, Settings};
use super::topics;
use crate::budget::Reservation;
use crate::codec::{Decoder, Events, decode_piece};
use crate::event::value_bytes;
use crate::input::{Context, InputError, mark_version};
use crate::{Ack, Batch, FieldReference, Move};

/// Time that the brokers may take for their first answer.
const FIRST_ANSWER: Duration = Duration::from_secs(30);
/// Time that a look at a full pipeline waits for memory.
const ROOM: Duration = Duration::from_millis(200);
/// Time after which a full pipeline pauses fetching; the group is served meanwhile.
const STALL: Duration = Duration::from_secs(3);
/// Pause after the store refused for lack of room.
const BACK_OFF: Duration = Duration::from_millis(500);
/// The same error is told so often at most.
const TELL_AGAIN: Duration = Duration::from_secs(30);

/// Consumes until it is told to stop.
///
/// # Errors
/// Why it cannot go on.
pub(super) fn consume(
    settings: Arc<Settings>,
    thread: usize,
    context: Context,
    halted: watch::Receiver<bool>,
    runtime: Handle,
) -> Result<(), InputError> {
    let config = settings.config(thread).map_err(InputError)?;
    let tokens = settings.client.token_source();
    let assignment = Assignment::new(settings.reset, Arc::clone(&context.positions), tokens, runtime.clone());
    let consumer: BaseConsumer<Assignment> = config
        .create_with_context(assignment)
        .map_err(|error| InputError(format!("the consumer cannot start: {error}")))?;
    let kafka = FieldReference::parse("[@metadata][kafka]").map_err(InputError)?;
    let mut reader = Reader {
        decoder: settings.codec.decoder(),
        settings: &settings,
        context,
        halted,
        runtime,
        consumer: &consumer,
        kafka,
        open: Vec::new(),
        gathered: 0,
        waiting: VecDeque::new(),
        paused: false,
        exported: Instant::now(),
        told: None,
    };
    let outcome = reader.run();
    drop(reader);
    // Leaves the group; what is stored is exported as the partitions are let go.
    drop(consumer);
    outcome
}

/// Events of a partition that are not handed on yet.
struct Open {
    key: Key,
    epoch: u64,
    events: Events,
    /// Bytes that they take.
    bytes: u64,
    /// Room for them, once they wait.
    held: Reservation,
    /// Offset behind their records.
    next: i64,
}

struct Reader<'a> {
    settings: &'a Settings,
    context: Context,
    halted: watch::Receiver<bool>,
    runtime: Handle,
    consumer: &'a BaseConsumer<Assignment>,
    decoder: Box<dyn Decoder>,
    /// Field of an event that describes its record.
    kafka: FieldReference,
    open: Vec<Open>,
    /// Bytes of what this round took.
    gathered: u64,
    /// Batches that the pipeline has no room for.
    waiting: VecDeque<Open>,
    paused: bool,
    exported: Instant,
    /// The last error that was told, and when.
    told: Option<(KafkaError, Instant)>,
}

impl Reader<'_> {
    fn run(&mut self) -> Result<(), InputError> {
        let Some(cluster) = self.cluster()? else { return Ok(()) };
        let assignment = self.consumer.context();
        assignment.set_source(format!("kafka cluster {cluster} group {}", self.settings.group));
        let topics: Vec<&str> = self.settings.topics.iter().map(String::as_str).collect();
        self.consumer.subscribe(&topics).map_err(|error| {
            InputError(format!("[{}] cannot be subscribed to: {error}", topics.join(", ")))
        })?;
        while let Some(reservation) = self.reserve_round()? {
            self.gather(reservation.bytes())?;
            drop(reservation);
            self.close();
            self.hand_on()?;
            self.poll_events()?;
        }
        Ok(())
    }

    fn stopping(&self) -> bool {
        // A pipeline, or an input, that is gone wants no more either.
        *self.context.stopping.borrow()
            || self.context.stopping.has_changed().is_err()
            || *self.halted.borrow()
            || self.halted.has_changed().is_err()
    }

    /// Id of the cluster, by which positions are known: addresses of brokers change. `None` when it is to
    /// stop.
    fn cluster(&self) -> Result<Option<String>, InputError> {
        let deadline = Instant::now() + FIRST_ANSWER;
        while !self.stopping() {
            if let Some(cluster) = self.consumer.client().fetch_cluster_id(ROOM).filter(|id| !id.is_empty()) {
                return Ok(Some(cluster));
            }
            // Serves the errors, so that the log tells why.
            self.consumer.poll(Duration::ZERO);
            if Instant::now() > deadline {
                return Err(InputError(format!("no broker of [{}] answers", self.settings.client.servers())));
            }
        }
        Ok(None)
    }

    /// Waits for room for a round's records, and serves the group meanwhile. `None` when it is to stop.
    fn reserve_round(&mut self) -> Result<Option<Reservation>, InputError> {
        let mut full_since = None;
        while !self.stopping() {
            let wait = async { timeout(ROOM, self.context.budget.wait_for_piece()).await };
            if let Ok(reservation) = self.runtime.block_on(wait) {
                self.resume()?;
                return Ok(Some(reservation));
            }
            if full_since.get_or_insert_with(Instant::now).elapsed() >= STALL {
                self.pause()?;
            }
            self.poll_events()?;
        }
        Ok(None)
    }

    /// Lets what was gathered wait for room in the pipeline.
    fn close(&mut self) {
        for mut open in self.open.drain(..) {
            open.held = self.context.budget.overdraw(open.bytes);
            self.waiting.push_back(open);
        }
    }

    /// Takes what there is, up to a round's worth, or to so many bytes.
    fn gather(&mut self, bytes: u64) -> Result<(), InputError> {
        let mut wait = self.settings.poll;
        self.gathered = 0;
        for _ in 0..self.settings.max_records {
            if self.gathered >= bytes {
                break;
            }
            match self.consumer.poll(wait) {
                None => break,
                Some(Ok(message)) => self.take(&message)?,
                Some(Err(error)) => self.error(error)?,
            }
            wait = Duration::ZERO;
        }
        Ok(())
    }

    fn take(&mut self, message: &BorrowedMessage<'_>) -> Result<(), InputError> {
        let (topic, partition, offset) = (message.topic(), message.partition(), message.offset());
        let at = self.open.iter().rposition(|open| open.key.1 == partition && open.key.0 == topic);
        let size = self.context.batch_size.get();
        let at = match at.filter(|at| self.open.get(*at).is_some_and(|open| open.events.len() < size)) {
            Some(at) => at,
            None => {
                let key = (topic.to_owned(), partition);
                let behind = at.and_then(|at| self.open.get(at)).map(|open| (open.epoch, open.next));
                let ours = self.consumer.context().with(&key, |part| (part.epoch, part.next));
                // A partition that was revoked meanwhile is read by its next owner.
                let Some((epoch, next)) = ours else { return Ok(()) };
                let next = behind.filter(|behind| behind.0 == epoch).map_or(next, |behind| behind.1);
                self.open.push(Open {
                    key,
                    epoch,
                    events: Events::default(),
                    bytes: 0,
                    held: Reservation::default(),
                    next,
                });
                self.open.len() - 1
            }
        };
        let expected = self.open.get(at).map_or(offset, |open| open.next);
        if offset < expected && !self.made_again(topic, partition, offset, expected)? {
            return Ok(());
        }
        let Some(open) = self.open.get_mut(at) else { return Ok(()) };
        let (before, bytes_before) = (open.events.len(), open.events.bytes());
        let payload = message.payload().unwrap_or_default();
        // The time tells the records of a topic that was made again.
        let time = message.timestamp().to_millis().unwrap_or(-1);
        open.events.begin_record(offset.unsigned_abs().into(), time.cast_unsigned());
        decode_piece(&mut *self.decoder, payload, true, self.context.budget.most(), &mut open.events);
        open.next = offset + 1;
        for event in open.events.iter_mut().skip(before) {
            mark_version(event);
        }
        let mut added = open.events.bytes() - bytes_before;
        if self.settings.decorate != RecordDecoration::Nothing {
            let about = Value::Object(about(message, self.settings));
            added += (open.events.len() - before) as u64 * value_bytes(&about);
            for event in open.events.iter_mut().skip(before) {
                // Metadata that a record brings along gives way where it is no object.
                let _ = event.set(&self.kafka, about.clone());
            }
        }
        open.bytes += added;
        self.gathered += added;
        Ok(())
    }

    /// Returns whether a record that lies behind the position belongs to a topic that was made again: then the position is beyond
    /// the partition's end. Otherwise it was read already.
    fn made_again(
        &self,
        topic: &str,
        partition: i32,
        offset: i64,
        expected: i64,
    ) -> Result<bool, InputError> {
        let ends = self.consumer.fetch_watermarks(topic, partition, ANSWER);
        let (_, high) = ends.map_err(|error| {
            InputError(format!("the ends of [{topic}] {partition} cannot be read: {error}"))
        })?;
        let again = high < expected;
        if again {
            tracing::warn!(
                topic,
                partition,
                offset,
                expected,
                "the topic was made again, or cut: reading goes on at its offsets"
            );
            let id = topics::ids(self.consumer.client(), &[topic], ANSWER).remove(topic);
            self.consumer.context().with(&(topic.to_owned(), partition), |part| part.topic = id);
        }
        Ok(again)
    }

    /// Hands on what waits, while there is room.
    fn hand_on(&mut self) -> Result<(), InputError> {
        let mut full_since = None;
        while let Some(first) = self.waiting.pop_front() {
            let permit = match self.context.batches.clone().try_reserve_owned() {
                Ok(permit) => permit,
                Err(mpsc::error::TrySendError::Closed(_)) => return Ok(()),
                Err(mpsc::error::TrySendError::Full(sender)) => {
                    let reserved =
                        self.runtime.block_on(async { timeout(ROOM, sender.reserve_owned()).await });
                    match reserved {
                        Ok(Ok(permit)) => permit,
                        Ok(Err(_)) => return Ok(()),
                        Err(_) => {
                            self.waiting.push_front(first);
                            if self.stopping() {
                                return Ok(());
                            }
                            if full_since.get_or_insert_with(Instant::now).elapsed() >= STALL {
                                self.pause()?;
                            }
                            self.poll_events()?;
                            continue;
                        }
                    }
                }
            };
            full_since = None;
            let source = self.consumer.context().source();
            let batch = self.consumer.context().with(&first.key, |part| {
                // Read under a claim that is over: the records come again.
                if part.epoch != first.epoch {
                    return None;
                }
                let new = Position { offset: first.next, adopted: part.adopted, topic: part.topic.clone() }
                    .encode();
                let position = Move {
                    source,
                    partition: format!("{}/{}", first.key.0, first.key.1),
                    previous: part.position.replace(new.clone()),
                    new,
                    owner_epoch: part.epoch,
                };
                let (ack, stored) = Ack::channel();
                part.next = first.next;
                part.pending.push_back((first.next, stored));
                Some(Batch {
                    events: first.events.into_vec(),
                    position: Some(position),
                    ack,
                    held: first.held,
                })
            });
            if let Some(batch) = batch.flatten() {
                permit.send(batch);
            }
        }
        self.resume()
    }

    /// Stops fetching and serves the group, so that the consumer stays in it.
    fn pause(&mut self) -> Result<(), InputError> {
        if !self.paused {
            self.paused = true;
            self.consumer.context().set_paused(true);
            let assigned = self.consumer.assignment().map_err(failed)?;
            self.consumer.pause(&assigned).map_err(failed)?;
        }
        match self.consumer.poll(Duration::ZERO) {
            None => {}
            Some(Ok(message)) => {
                self.take(&message)?;
                self.close();
            }
            Some(Err(error)) => self.error(error)?,
        }
        Ok(())
    }

    fn resume(&mut self) -> Result<(), InputError> {
        if self.paused {
            self.paused = false;
            self.consumer.context().set_paused(false);
            let assigned = self.consumer.assignment().map_err(failed)?;
            self.consumer.resume(&assigned).map_err(failed)?;
        }
        Ok(())
    }

    /// Looks what became of batches and of the group.
    fn poll_events(&mut self) -> Result<(), InputError> {
        let assignment = self.consumer.context();
        if let Some(error) = assignment.failure() {
            return Err(error);
        }
        let news = assignment.news();
        if news.ended && !self.stopping() {
            return Err(InputError("the pipeline ended before the events were stored".to_owned()));
        }
        for (key, overloaded) in news.refused {
            if overloaded {
                std::thread::sleep(BACK_OFF);
            }
            self.waiting.retain(|open| open.key != key);
            let Some(offset) = assignment.reclaim(&key)? else { continue };
            tracing::info!(
                topic = key.0,
                partition = key.1,
                offset,
                "a batch was refused, reading again from the stored position"
            );
            self.consumer.seek(&key.0, key.1, Offset::Offset(offset), ANSWER).map_err(|error| {
                InputError(format!("[{}] {} cannot be read again: {error}", key.0, key.1))
            })?;
        }
        if self.settings.export.is_none_or(|interval| self.exported.elapsed() >= interval) {
            self.exported = Instant::now();
            // Tools see it later then; positions are not concerned.
            if let Err(error) = export(self.consumer, &assignment.exports(), CommitMode::Async) {
                tracing::debug!(%error, "the group's offsets were not exported");
            }
        }
        Ok(())
    }

    /// Handles an error of librdkafka, which retries transient ones by itself.
    fn error(&mut self, error: KafkaError) -> Result<(), InputError> {
        if let Some((_, reason)) = self.consumer.client().fatal_error() {
            return Err(InputError(format!("the consumer cannot go on: {reason}")));
        }
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AutoOffsetReset) {
            return Err(InputError(format!(
                "there is no offset to read from, and auto_offset_reset is [none]: {error}"
            )));
        }
        let told =
            self.told.as_ref().is_some_and(|(last, when)| *last == error && when.elapsed() < TELL_AGAIN);
        if !told {
            tracing::warn!(target: "millrace::kafka", %error, group = self.settings.group, "the consumer has trouble");
            self.told = Some((error, Instant::now()));
        }
        Ok(())
    }
}

fn failed(error: KafkaError) -> InputError {
    InputError(format!("the consumer failed: {error}"))
}

/// Returns the members of an event that describe its record.
fn about(message: &BorrowedMessage<'_>, settings: &Settings) -> Map<String, Value> {
    let text = |bytes: &[u8]| Value::String(String::from_utf8_lossy(bytes).into_owned());
    let mut about = Map::new();
    about.insert("topic".to_owned(), Value::from(message.topic()));
    about.insert("consumer_group".to_owned(), Value::from(settings.group.as_str()));
    about.insert("partition".to_owned(), Value::from(message.partition()));
    about.insert("offset".to_owned(), Value::from(message.offset()));
    about.insert("key".to_owned(), message.key().map_or(Value::Null, text));
    if let Timestamp::CreateTime(time) | Timestamp::LogAppendTime(time) = message.timestamp() {
        about.insert("timestamp".to_owned(), Value::from(time));
    }
    if settings.decorate == RecordDecoration::Extended {
        let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
        let headers = headers.map(|header| (header.key.to_owned(), header.value.map_or(Value::Null, text)));
        about.insert("headers".to_owned(), Value::Object(headers.collect()));
    }
    about
}
