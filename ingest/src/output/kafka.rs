//! The output `kafka`: events as records of a topic.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use parking_lot::Mutex;
use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{DeliveryFuture, FutureProducer, FutureRecord, Producer, PurgeConfig};
use rdkafka::types::RDKafkaErrorCode;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::{OrderTicket, Output, RefusedEvent, Sink, SinkInterrupted};
use crate::codec::{self, Codec};
use crate::kafka::{Client, Log};
use crate::offload::offload;
use crate::{Event, Fault, Options, Template};

/// Time that records wait for others where nothing else is said. A portion of events comes within that time, and each request
/// costs the broker more than its records.
const LINGER_MS: i64 = 5;
/// Pause while the producer's queue is full.
const FULL: Duration = Duration::from_millis(5);
/// Events that are encoded and put into the queue before others have their turn on the thread.
const PUT_AT_ONCE: usize = 64;
/// Pause before events are sent again, at first and at most.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// Longest name of a topic.
const MAX_TOPIC: usize = 249;

/// Makes the output.
///
/// # Errors
/// The faults of the options.
pub(super) fn build(options: Options) -> Result<Output, Vec<Fault>> {
    Ok(Output::Sink(Arc::new(Kafka::take(options)?)))
}

struct Kafka {
    client: Client,
    fixed: Vec<(&'static str, String)>,
    topic: Template,
    key: Option<Template>,
    headers: Vec<(String, Template)>,
    codec: Arc<dyn Codec>,
    /// Number of retries of a record; without end where `None`.
    retries: Option<i64>,
    producer: Mutex<Option<FutureProducer<Log>>>,
}

impl std::fmt::Debug for Kafka {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kafka")
            .field("client", &self.client)
            .field("topic", &self.topic)
            .finish_non_exhaustive()
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        drop_apart(self.producer.get_mut().take());
    }
}

/// Drops a producer on a thread for blocking work: the drop waits for its polling thread, which may wait for a token.
fn drop_apart(producer: Option<FutureProducer<Log>>) {
    if let (Some(producer), Ok(runtime)) = (producer, Handle::try_current()) {
        runtime.spawn_blocking(move || drop(producer));
    }
}

impl Kafka {
    fn take(mut options: Options) -> Result<Self, Vec<Fault>> {
        let at = options.at();
        let o = &mut options;
        let client = Client::take(o);
        let mut fixed = Vec::new();
        for (option, setting, bounds) in [
            ("batch_size", "batch.size", 1..=100_000_000),
            ("max_request_size", "message.max.bytes", 1000..=1_000_000_000),
            ("request_timeout_ms", "request.timeout.ms", 1..=900_000),
        ] {
            fixed.extend(o.integer(option, bounds).map(|value| (setting, value.to_string())));
        }
        let linger = o.integer("linger_ms", 0..=900_000).unwrap_or(LINGER_MS);
        fixed.push(("linger.ms", linger.to_string()));
        let buffer = o.integer("buffer_memory", 1024..=2_000_000_000).unwrap_or(33_554_432);
        fixed.push(("queue.buffering.max.kbytes", (buffer / 1024).to_string()));
        let compression = o.one_of("compression_type", &["none", "gzip", "snappy", "lz4", "zstd"]);
        fixed.push(("compression.type", compression.unwrap_or("none").to_owned()));
        let acks = o.one_of("acks", &["0", "1", "all", "-1"]).unwrap_or("1");
        fixed.push(("acks", acks.to_owned()));
        let retries = o.integer("retries", 0..=2_147_483_647);
        fixed.extend(retries.map(|retries| ("message.send.max.retries", retries.to_string())));
        let in_flight = o.integer("max_in_flight_requests_per_connection", 1..=1_000_000).unwrap_or(5);
        fixed.push(("max.in.flight.requests.per.connection", in_flight.to_string()));
        // As Java's client decides it: then a retry neither doubles nor reorders records.
        let idempotent = matches!(acks, "all" | "-1") && in_flight <= 5 && retries != Some(0);
        fixed.push(("enable.idempotence", idempotent.to_string()));
        let partitioner = o.one_of("partitioner", &["default", "round_robin", "uniform_sticky"]);
        fixed.push(match partitioner {
            Some("round_robin") => ("sticky.partitioning.linger.ms", "0".to_owned()),
            _ => ("sticky.partitioning.linger.ms", "10".to_owned()),
        });
        fixed.push(("partitioner", "murmur2_random".to_owned()));
        o.integer("metadata_fetch_timeout_ms", 0..=86_400_000);
        for option in ["key_serializer", "value_serializer"] {
            o.read(
                option,
                "StringSerializer or ByteArraySerializer, for the codec writes the bytes",
                |setting| {
                    let class = setting.as_text()?;
                    let name = class.strip_prefix("org.apache.kafka.common.serialization.")?;
                    ["StringSerializer", "ByteArraySerializer"].contains(&name).then_some(())
                },
            );
        }
        let topic = o.required_text("topic_id");
        if topic.is_empty() {
            o.fault_here("option [topic_id] must not be empty");
        }
        let key = o.template("message_key");
        let mut headers = Vec::new();
        for (name, setting) in o.hash("message_headers") {
            match setting.as_text() {
                Some(text) => headers.push((name, Template::parse(&text))),
                None => o.fault_here(format!("the header [{name}] must be a text")),
            }
        }
        let codec = codec::take(o, "plain");
        options.finish()?;
        let codec = codec?;
        let topic = Template::parse(&topic);
        let producer = Mutex::new(None);
        let output = Self { client, fixed, topic, key, headers, codec, retries, producer };
        let checked = output
            .config()
            .and_then(|config| config.create_native_config().map_err(|error| error.to_string()));
        match checked {
            Ok(_) => Ok(output),
            Err(message) => Err(vec![Fault { at, message }]),
        }
    }

    fn config(&self) -> Result<ClientConfig, String> {
        let mut config = self.client.config()?;
        for (setting, value) in &self.fixed {
            config.set(*setting, value);
        }
        Ok(config)
    }

    /// The producer, which starts with the first events.
    fn producer(&self) -> Result<FutureProducer<Log>, String> {
        let mut producer = self.producer.lock();
        if let Some(producer) = &*producer
            && producer.client().fatal_error().is_none()
        {
            return Ok(producer.clone());
        }
        let new: FutureProducer<Log> = self
            .config()?
            .create_with_context(Log { tokens: self.client.token_source() })
            .map_err(|error| format!("the producer cannot start: {error}"))?;
        let former = producer.replace(new.clone());
        drop_apart(former);
        Ok(new)
    }

    /// Puts an event into the producer's queue; `None` while that is full. The bytes are those of the codec.
    fn put(
        &self,
        producer: &FutureProducer<Log>,
        event: &Event,
        payload: &[u8],
    ) -> Option<Result<DeliveryFuture, KafkaError>> {
        let topic = self.topic.render(event);
        if topic.len() > MAX_TOPIC || topic.is_empty() {
            return Some(Err(KafkaError::MessageProduction(RDKafkaErrorCode::InvalidTopic)));
        }
        let key = self.key.as_ref().map(|key| key.render(event));
        let mut record = FutureRecord::<str, [u8]>::to(&topic).payload(payload);
        if let Some(key) = &key {
            record = record.key(key);
        }
        if !self.headers.is_empty() {
            let headers = OwnedHeaders::new_with_capacity(self.headers.len());
            record = record.headers(self.headers.iter().fold(headers, |headers, (name, value)| {
                headers.insert(Header { key: name, value: Some(&value.render(event)) })
            }));
        }
        match producer.send_result(record) {
            Ok(delivery) => Some(Ok(delivery)),
            Err((error, _)) if error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull) => None,
            Err((error, _)) => Some(Err(error)),
        }
    }

    /// Sends some of the events once. Answers those that are to be sent again, and why. `place` is let go when all are
    /// in the producer's queue, which keeps their order.
    async fn attempt(
        &self,
        producer: &FutureProducer<Log>,
        events: &[(Arc<Event>, Option<String>)],
        wanted: &[usize],
        refused: &mut Vec<RefusedEvent>,
        place: Option<OrderTicket>,
    ) -> (Vec<usize>, Option<KafkaError>) {
        let mut underway = Vec::with_capacity(wanted.len());
        let (mut again, mut why) = (Vec::new(), None);
        for (number, at) in wanted.iter().enumerate() {
            let Some((event, _)) = events.get(*at) else { continue };
            if number % PUT_AT_ONCE == PUT_AT_ONCE - 1 {
                yield_now().await;
            }
            let mut payload = Vec::new();
            if let Err(reason) = self.codec.try_encode(event, &mut payload) {
                refused.push(RefusedEvent { event: *at, reason });
                continue;
            }
            let put = loop {
                match self.put(producer, event, &payload) {
                    Some(put) => break put,
                    None => sleep(FULL).await,
                }
            };
            match put {
                Ok(delivery) => underway.push(async move { (*at, delivery.await) }),
                Err(error) if is_permanent(&error) => {
                    refused.push(RefusedEvent { event: *at, reason: error.to_string() })
                }
                Err(error) => {
                    again.push(*at);
                    why = Some(error);
                }
            }
        }
        drop(place);
        for (at, delivery) in join_all(underway).await {
            match delivery {
                Ok(Ok(_)) => {}
                // Somebody may make the topic, however often it was tried.
                Ok(Err((error, _)))
                    if is_permanent(&error) || (self.retries.is_some() && !is_missing_topic(&error)) =>
                {
                    refused.push(RefusedEvent { event: at, reason: error.to_string() });
                }
                Ok(Err((error, _))) => {
                    again.push(at);
                    why = Some(error);
                }
                // The producer was replaced.
                Err(_) => again.push(at),
            }
        }
        again.sort_unstable();
        (again, why)
    }
}

#[async_trait]
impl Sink for Kafka {
    async fn send(
        &self,
        events: &[(Arc<Event>, Option<String>)],
        mut stopping: watch::Receiver<bool>,
        place: OrderTicket,
    ) -> Result<Vec<RefusedEvent>, SinkInterrupted> {
        let mut refused = Vec::new();
        let mut place = Some(place);
        let mut wanted: Vec<usize> = (0..events.len()).collect();
        let mut pause = BACK_OFF.0;
        while !wanted.is_empty() {
            let codec = Arc::clone(&self.codec);
            let prepared = tokio::select! {
                biased;
                prepared = offload(move || codec.prepare()) => prepared,
                _ = stopping.wait_for(|stopping| *stopping) => return Err(SinkInterrupted),
            };
            match prepared.and_then(|()| self.producer()) {
                Err(error) => tracing::warn!(error, "the Kafka output cannot start, trying again"),
                Ok(producer) => {
                    let attempt = self.attempt(&producer, events, &wanted, &mut refused, place.take());
                    let (again, why) = tokio::select! {
                        biased;
                        outcome = attempt => outcome,
                        _ = stopping.wait_for(|stopping| *stopping) => {
                            // What has not left, or was not acknowledged, is not sent later, behind the back of who
                            // sends it again.
                            producer.purge(PurgeConfig::default().queue().inflight());
                            return Err(SinkInterrupted);
                        }
                    };
                    wanted = again;
                    match why {
                        Some(error) if is_missing_topic(&error) => {
                            let event = wanted.iter().find_map(|at| events.get(*at));
                            let topic = event.map(|(event, _)| self.topic.render(event)).unwrap_or_default();
                            tracing::warn!(%error, topic, events = wanted.len(), "a topic does not exist, its events are sent again until it does: create it, or let the brokers do so (auto.create.topics.enable)");
                        }
                        Some(error) => {
                            tracing::warn!(%error, events = wanted.len(), "the Kafka output has trouble, sending again");
                        }
                        None => {}
                    }
                }
            }
            if !wanted.is_empty() {
                tokio::select! {
                    biased;
                    () = sleep(pause) => pause = (pause * 2).min(BACK_OFF.1),
                    _ = stopping.wait_for(|stopping| *stopping) => return Err(SinkInterrupted),
                }
            }
        }
        refused.sort_by_key(|refused| refused.event);
        Ok(refused)
    }
}

/// Returns whether a topic is not there, yet.
fn is_missing_topic(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(RDKafkaErrorCode::UnknownTopic | RDKafkaErrorCode::UnknownTopicOrPartition)
    )
}

/// Returns whether a record is refused whenever it is sent.
fn is_permanent(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::MessageSizeTooLarge
                | RDKafkaErrorCode::MessageBatchTooLarge
                | RDKafkaErrorCode::InvalidMessage
                | RDKafkaErrorCode::InvalidMessageSize
                | RDKafkaErrorCode::InvalidRecord
                | RDKafkaErrorCode::InvalidTopic
                | RDKafkaErrorCode::PolicyViolation
                | RDKafkaErrorCode::InvalidArgument
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_topic_may_be_made() {
        for code in [RDKafkaErrorCode::UnknownTopic, RDKafkaErrorCode::UnknownTopicOrPartition] {
            let error = KafkaError::MessageProduction(code);
            assert!(is_missing_topic(&error) && !is_permanent(&error));
        }
        assert!(is_permanent(&KafkaError::MessageProduction(RDKafkaErrorCode::InvalidTopic)));
    }
}
