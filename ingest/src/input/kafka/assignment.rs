//! The partitions that a consumer has: claimed when they are assigned, let go when they are revoked.
//!
//! Both happen in the callback of the rebalance, in the consumer's own thread, before librdkafka fetches
//! from what was assigned or another consumer takes over what was revoked.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_runtime::Instant;
use parking_lot::Mutex;
use rdkafka::client::{ClientContext, OAuthToken};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, RebalanceProtocol};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{Offset, TopicPartitionList};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::position::{CommittedOffset, Position, Reset, StartOffset, mark, start};
use super::topics;
use crate::batch::NotStored;
use crate::input::{InputError, Positions};
use crate::kafka::{TokenSource, log, log_error, token};

/// Time that a broker may take to answer while partitions change hands.
pub(super) const ANSWER: Duration = Duration::from_secs(15);
/// Time for the ids of topics: brokers that know of none may not answer at all, and the group waits meanwhile.
const IDS_ANSWER: Duration = Duration::from_secs(3);
/// Time that revoked partitions wait for batches in flight.
const LET_GO: Duration = Duration::from_secs(3);

/// Topic and number of a partition.
pub(super) type Key = (String, i32);
/// Receiver of the outcome of a batch.
pub(super) type BatchOutcome = oneshot::Receiver<Result<(), NotStored>>;

/// A partition that is ours.
#[derive(Debug)]
pub(super) struct AssignedPartition {
    pub(super) epoch: u64,
    /// Epoch of the last reset, which positions name.
    pub(super) adopted: Option<u64>,
    /// Id of the topic, which positions have.
    pub(super) topic: Option<String>,
    /// Offset at which reading began.
    pub(super) begin: i64,
    /// Stored position behind all that was handed on.
    pub(super) position: Option<Bytes>,
    /// Offset of the next record to be handed on, at least.
    pub(super) next: i64,
    /// Batches on their way, with the offset behind each.
    pub(super) pending: VecDeque<(i64, BatchOutcome)>,
    /// Offset up to which all is stored, where that is known.
    pub(super) stored: Option<i64>,
    pub(super) exported: Option<i64>,
}

/// Outcome of the batches of all partitions.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AssignmentUpdate {
    /// The pipeline ended before it stored one.
    pub(super) ended: bool,
    /// Partitions of which a batch was refused, and whether for lack of room.
    pub(super) refused: Vec<(Key, bool)>,
}

/// The partitions of one consumer.
pub(super) struct Assignment {
    reset: Reset,
    positions: Arc<dyn Positions>,
    tokens: Option<Arc<TokenSource>>,
    runtime: Handle,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    source: String,
    parts: HashMap<Key, AssignedPartition>,
    failed: Option<InputError>,
    paused: bool,
}

impl Assignment {
    pub(super) fn new(
        reset: Reset,
        positions: Arc<dyn Positions>,
        tokens: Option<Arc<TokenSource>>,
        runtime: Handle,
    ) -> Self {
        Self { reset, positions, tokens, runtime, state: Mutex::default() }
    }

    /// Names the source, before anything is assigned.
    pub(super) fn set_source(&self, source: String) {
        self.state.lock().source = source;
    }

    pub(super) fn source(&self) -> String {
        self.state.lock().source.clone()
    }

    /// Returns whether partitions that are assigned from now on are not to be fetched yet.
    pub(super) fn set_paused(&self, paused: bool) {
        self.state.lock().paused = paused;
    }

    /// Why partitions could not be taken over.
    pub(super) fn failure(&self) -> Option<InputError> {
        self.state.lock().failed.take()
    }

    /// Looks at a partition that is ours.
    pub(super) fn with<T>(&self, key: &Key, look: impl FnOnce(&mut AssignedPartition) -> T) -> Option<T> {
        self.state.lock().parts.get_mut(key).map(look)
    }

    /// Takes note of what was stored.
    pub(super) fn news(&self) -> AssignmentUpdate {
        let mut news = AssignmentUpdate::default();
        for (key, part) in &mut self.state.lock().parts {
            while let Some((next, stored)) = part.pending.front_mut() {
                match stored.try_recv() {
                    Ok(Ok(())) => part.stored = Some(*next),
                    Err(oneshot::error::TryRecvError::Empty) => break,
                    Ok(Err(NotStored::Moved)) => {
                        news.refused.push((key.clone(), false));
                        break;
                    }
                    Ok(Err(NotStored::Overloaded(_))) => {
                        news.refused.push((key.clone(), true));
                        break;
                    }
                    Ok(Err(NotStored::Ended)) | Err(oneshot::error::TryRecvError::Closed) => {
                        news.ended = true;
                        break;
                    }
                }
                part.pending.pop_front();
            }
        }
        news
    }

    /// Exports of what was stored since the last ones.
    pub(super) fn exports(&self) -> Vec<(Key, i64, Option<u64>)> {
        let mut state = self.state.lock();
        let new =
            state.parts.iter_mut().filter(|(_, part)| part.stored.is_some() && part.stored != part.exported);
        new.filter_map(|(key, part)| {
            part.exported = part.stored;
            Some((key.clone(), part.stored?, None))
        })
        .collect()
    }

    /// Claims a partition anew, after a batch of it was refused. Answers the offset to read on from.
    pub(super) fn reclaim(&self, key: &Key) -> Result<Option<i64>, InputError> {
        let (stored, epoch) = self.claim(key)?;
        let position = stored.as_deref().map(Position::decode).transpose().map_err(InputError)?;
        Ok(self.with(key, |part| {
            // What was stored before the reset that is in force does not count.
            let behind = position.filter(|position| position.adopted == part.adopted);
            let offset = behind.map_or(part.begin, |position| position.offset);
            part.epoch = epoch;
            part.position = stored;
            part.next = offset;
            part.pending.clear();
            offset
        }))
    }

    fn claim(&self, (topic, partition): &Key) -> Result<(Option<Bytes>, u64), InputError> {
        let source = self.source();
        self.runtime.block_on(self.positions.claim(&source, &format!("{topic}/{partition}")))
    }

    fn assign(&self, consumer: &BaseConsumer<Self>, assigned: &TopicPartitionList) -> Result<(), InputError> {
        let failed = |what: &str, error: KafkaError| InputError(format!("{what}: {error}"));
        let committed = if assigned.count() == 0 {
            TopicPartitionList::new()
        } else {
            consumer
                .committed_offsets(assigned.clone(), ANSWER)
                .map_err(|error| failed("the group's offsets cannot be read", error))?
        };
        let elements = assigned.elements();
        let mut names: Vec<&str> = elements.iter().map(|element| element.topic()).collect();
        names.dedup();
        let topics = topics::ids(consumer.client(), &names, IDS_ANSWER);
        let mut begin = TopicPartitionList::with_capacity(assigned.count());
        let mut adopted = Vec::new();
        for element in &elements {
            let key = (element.topic().to_owned(), element.partition());
            let ends = consumer.fetch_watermarks(&key.0, key.1, ANSWER).map_err(|error| {
                failed(&format!("the ends of [{}] {} cannot be read", key.0, key.1), error)
            })?;
            let (stored, epoch) = self.claim(&key)?;
            let position = stored.as_deref().map(Position::decode).transpose().map_err(InputError)?;
            let group = committed.find_partition(&key.0, key.1).and_then(|element| {
                Some(CommittedOffset {
                    offset: element.offset().to_raw()?,
                    mark: element.metadata().to_owned(),
                })
            });
            let topic = topics.get(&key.0);
            let part = self.begin(&key, epoch, position.as_ref(), group.as_ref(), topic, ends)?;
            if part.adopted == Some(epoch) {
                adopted.push((key.clone(), part.begin, part.adopted));
            }
            begin
                .add_partition_offset(&key.0, key.1, Offset::Offset(part.begin))
                .map_err(|error| failed("an offset cannot be set", error))?;
            self.state.lock().parts.insert(key, AssignedPartition { position: stored, ..part });
        }
        // Before anything is fetched: whoever takes over next must know that the reset was seen.
        export(consumer, &adopted, CommitMode::Sync)
            .map_err(|error| failed("a reset cannot be confirmed", error))?;
        let assigned = match consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => consumer.incremental_assign(&begin),
            _ => consumer.assign(&begin),
        };
        assigned.map_err(|error| failed("the partitions cannot be taken over", error))?;
        if self.state.lock().paused {
            let _ = consumer.pause(&begin);
        }
        Ok(())
    }

    /// A partition that begins where it should.
    fn begin(
        &self,
        key: &Key,
        epoch: u64,
        position: Option<&Position>,
        group: Option<&CommittedOffset>,
        id: Option<&String>,
        ends: (i64, i64),
    ) -> Result<AssignedPartition, InputError> {
        let (topic, partition) = (key.0.as_str(), key.1);
        let start = start(position, group, id.map(String::as_str), ends);
        let (begin, adopted) = match start {
            StartOffset::Stored(offset) => (offset, position.and_then(|position| position.adopted)),
            StartOffset::Again(offset, epoch) => (offset, Some(epoch)),
            StartOffset::Adopted(offset) => {
                tracing::info!(
                    topic,
                    partition,
                    offset,
                    "the group's offset was set by others, reading from there"
                );
                (offset, Some(epoch))
            }
            StartOffset::Unknown | StartOffset::Lost => {
                let offset = match self.reset {
                    Reset::Earliest => ends.0,
                    Reset::Latest => ends.1,
                    Reset::None => {
                        return Err(InputError(format!(
                            "there is no offset to read [{topic}] {partition} from, and auto_offset_reset is [none]"
                        )));
                    }
                };
                if start == StartOffset::Lost {
                    tracing::warn!(
                        topic,
                        partition,
                        offset,
                        ?ends,
                        "the partition no longer has the stored position: it was made again, or records were deleted unread"
                    );
                }
                (offset, Some(epoch))
            }
        };
        Ok(AssignedPartition {
            epoch,
            adopted,
            topic: id.cloned(),
            begin,
            position: None,
            next: begin,
            pending: VecDeque::new(),
            stored: None,
            exported: None,
        })
    }

    /// Waits a moment for what is on its way, exports it, and lets go.
    fn revoke(&self, consumer: &BaseConsumer<Self>, revoked: &TopicPartitionList) {
        let deadline = Instant::now() + LET_GO;
        let mut exports = Vec::new();
        for element in revoked.elements() {
            let key = (element.topic().to_owned(), element.partition());
            let Some(mut part) = self.state.lock().parts.remove(&key) else { continue };
            while let Some((next, stored)) = part.pending.pop_front() {
                let left = deadline.saturating_duration_since(Instant::now());
                match self.runtime.block_on(async { tokio::time::timeout(left, stored).await }) {
                    Ok(Ok(Ok(()))) => part.stored = Some(next),
                    // Whoever has the partition next reads it again, and this batch is refused then.
                    _ => break,
                }
            }
            if let Some(offset) = part.stored.filter(|_| part.stored != part.exported) {
                exports.push((key, offset, None));
            }
        }
        if consumer.assignment_lost() {
            return;
        }
        if let Err(error) = export(consumer, &exports, CommitMode::Sync) {
            tracing::debug!(%error, "the group's offsets were not exported");
        }
    }
}

/// Tells the group's offsets to the broker.
pub(super) fn export<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    offsets: &[(Key, i64, Option<u64>)],
    mode: CommitMode,
) -> KafkaResult<()> {
    if offsets.is_empty() {
        return Ok(());
    }
    let mut list = TopicPartitionList::with_capacity(offsets.len());
    for ((topic, partition), offset, adopted) in offsets {
        let mut element = list.add_partition(topic, *partition);
        element.set_offset(Offset::Offset(*offset))?;
        element.set_metadata(mark(*adopted));
    }
    consumer.commit(&list, mode)
}

impl ClientContext for Assignment {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn generate_oauth_token(&self, _: Option<&str>) -> Result<OAuthToken, Box<dyn std::error::Error>> {
        token(self.tokens.as_deref())
    }

    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        log_error(&error, reason);
    }
}

impl ConsumerContext for Assignment {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, event: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let cooperative = matches!(consumer.rebalance_protocol(), RebalanceProtocol::Cooperative);
        let outcome = if event == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            self.assign(consumer, list)
        } else {
            self.revoke(consumer, list);
            let let_go = if cooperative { consumer.incremental_unassign(list) } else { consumer.unassign() };
            let_go.map_err(|error| InputError(format!("the partitions cannot be let go: {error}")))
        };
        if let Err(error) = outcome {
            // An answer is owed all the same; the consumer ends, for it is failed.
            if !cooperative {
                let _ = consumer.unassign();
            }
            let mut state = self.state.lock();
            state.parts.clear();
            state.failed.get_or_insert(error);
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, _offsets: &TopicPartitionList) {
        if let Err(error) = result {
            tracing::debug!(%error, "the group's offsets were not exported");
        }
    }
}
