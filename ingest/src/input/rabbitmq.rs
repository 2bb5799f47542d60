//! `rabbitmq`: events of the messages of a queue, each acknowledged once it is stored.
//!
//! The broker keeps a message until its acknowledgement, and sends it again after a broken connection: events come at least once.
//! The broker sends ahead `prefetch_count` messages, which bounds what waits here.

mod metadata;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::{FutureExt as _, StreamExt as _};
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicQosOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, Consumer};
use tokio::sync::oneshot;

use self::metadata::{MessageMetadata, MetadataLevel};
use super::{Context, Input, InputError, mark_version, reserve_piece, stopped};
use crate::batch::NotStored;
use crate::codec::{self, Codec, Events, decode_piece};
use crate::offload::offload;
use crate::rabbitmq_server::{RabbitServer, exchange_kind, exchange_options, short_text, table};
use crate::{Ack, Batch, Fault, Options};

/// Messages that the broker sends ahead where nothing is said.
const PREFETCH: i64 = 256;
/// Bytes of messages after which a batch has enough, however few they are.
const MAX_BATCH_BYTES: usize = 1 << 20;
/// Time for batches to be stored once the input is to stop, and for the broker to answer then.
const STOP_PATIENCE: Duration = Duration::from_secs(3);

/// The input; see the module.
#[derive(Debug)]
pub(super) struct RabbitMq {
    server: RabbitServer,
    queue: QueueSettings,
    exchange: Option<ExchangeSettings>,
    prefetch: u16,
    has_acks: bool,
    metadata: MetadataLevel,
    codec: Arc<dyn Codec>,
}

#[derive(Debug)]
struct QueueSettings {
    name: String,
    durable: bool,
    auto_delete: bool,
    exclusive: bool,
    passive: bool,
    arguments: FieldTable,
}

/// The exchange that the queue is bound to.
#[derive(Debug)]
struct ExchangeSettings {
    name: String,
    /// Kind of the exchange, which is declared where one is given.
    kind: Option<String>,
    key: String,
}

/// Outcome of a batch, once it is known.
type StoredReceiver = oneshot::Receiver<Result<(), NotStored>>;

/// A connection with what the input uses of it.
struct OpenQueue {
    connection: Connection,
    channel: Channel,
    consumer: Consumer,
}

impl RabbitMq {
    /// Makes the input.
    ///
    /// # Errors
    /// Faults of the options.
    pub(super) fn new(mut options: Options) -> Result<Self, Vec<Fault>> {
        let o = &mut options;
        let server = RabbitServer::take(o);
        let flag = |o: &mut Options, name: &'static str| o.boolean(name).unwrap_or(false);
        let queue = QueueSettings {
            name: short_text(o, "queue").unwrap_or_default(),
            durable: flag(o, "durable"),
            auto_delete: flag(o, "auto_delete"),
            exclusive: flag(o, "exclusive"),
            passive: flag(o, "passive"),
            arguments: table(o, "arguments"),
        };
        let key = short_text(o, "key").unwrap_or_else(|| "logstash".to_owned());
        let kind = short_text(o, "exchange_type");
        let exchange = short_text(o, "exchange").filter(|name| !name.is_empty());
        let exchange = exchange.map(|name| ExchangeSettings { name, kind, key });
        let prefetch = o.integer("prefetch_count", 1..=65_535).unwrap_or(PREFETCH);
        let has_acks = o.boolean("ack").unwrap_or(true);
        let choices = ["none", "basic", "extended", "true", "false"];
        let metadata =
            o.one_of("metadata_enabled", &choices).map_or(MetadataLevel::None, MetadataLevel::from_name);
        // One consumer hands on more than a pipeline takes; the pipeline decides when an input runs again.
        let _ = (o.integer("threads", 1..=64), o.float("subscription_retry_interval_seconds"));
        let codec = codec::take(o, "json");
        options.finish()?;
        let prefetch = u16::try_from(prefetch).unwrap_or(u16::MAX);
        Ok(Self { server, queue, exchange, prefetch, has_acks, metadata, codec: codec? })
    }

    /// Connects, declares what the options name, and begins to consume.
    async fn open(&self) -> Result<OpenQueue, String> {
        let connection = self.server.connect().await?;
        self.subscribe(connection).await.map_err(|error| error.to_string())
    }

    async fn subscribe(&self, connection: Connection) -> lapin::Result<OpenQueue> {
        let channel = connection.create_channel().await?;
        channel.basic_qos(self.prefetch, BasicQosOptions::default()).await?;
        let QueueSettings { name, durable, auto_delete, exclusive, passive, arguments } = &self.queue;
        let options = QueueDeclareOptions {
            passive: *passive,
            durable: *durable,
            exclusive: *exclusive,
            auto_delete: *auto_delete,
            nowait: false,
        };
        let queue =
            channel.queue_declare(name.as_str().into(), options, arguments.clone()).await?.name().clone();
        if let Some(ExchangeSettings { name, kind, key }) = &self.exchange {
            if let Some(kind) = kind {
                let (name, kind) = (name.as_str().into(), exchange_kind(kind));
                let options = exchange_options(*durable);
                channel.exchange_declare(name, kind, options, FieldTable::default()).await?;
            }
            let (name, key) = (name.as_str().into(), key.as_str().into());
            channel
                .queue_bind(queue.clone(), name, key, QueueBindOptions::default(), FieldTable::default())
                .await?;
        }
        // Without acknowledgements the broker would send without a bound, so messages are acknowledged when they are read.
        let options = BasicConsumeOptions { exclusive: *exclusive, ..BasicConsumeOptions::default() };
        let consumer = channel.basic_consume(queue, "".into(), options, FieldTable::default()).await?;
        Ok(OpenQueue { connection, channel, consumer })
    }

    /// Makes the events of messages. One whose events would take more than `most` bytes is one event, tagged `_toomanyevents`.
    async fn decode(&self, messages: Vec<Delivery>, consumer_tag: String, most: u64) -> Events {
        let (codec, level) = (Arc::clone(&self.codec), self.metadata);
        offload(move || {
            let mut all = Events::default();
            for message in &messages {
                let before = all.len();
                let metadata = MessageMetadata::new(level, message, &consumer_tag);
                all.set_each(metadata.bytes());
                decode_piece(&mut *codec.decoder(), &message.data, true, most, &mut all);
                for event in all.iter_mut().skip(before) {
                    mark_version(event);
                    metadata.set(event);
                }
            }
            all
        })
        .await
    }

    /// Hands messages on; returns their outcome, or `None` when the input is to stop.
    async fn send(&self, messages: Vec<Delivery>, tag: String, context: &Context) -> Option<StoredReceiver> {
        let mut held = reserve_piece(context).await?;
        let events = self.decode(messages, tag, context.budget.most()).await;
        held.set(events.bytes());
        let (ack, stored) = Ack::channel();
        let batch = Batch { events: events.into_vec(), position: None, ack, held };
        let mut stopping = context.stopping.clone();
        tokio::select! {
            biased;
            () = stopped(&mut stopping) => None,
            sent = context.batches.send(batch) => sent.ok().map(|()| stored),
        }
    }

    /// Hands messages on until the input is to stop, and acknowledges those that are stored.
    async fn consume(&self, queue: &mut OpenQueue, context: &Context) -> Result<(), String> {
        let OpenQueue { channel, consumer, .. } = queue;
        let mut stopping = context.stopping.clone();
        let mut pending: VecDeque<(u64, StoredReceiver)> = VecDeque::new();
        loop {
            let oldest = async {
                match pending.front_mut() {
                    Some((_, stored)) => stored.await.unwrap_or(Err(NotStored::Ended)),
                    None => std::future::pending().await,
                }
            };
            let first = tokio::select! {
                biased;
                () = stopped(&mut stopping) => break,
                outcome = oldest => {
                    outcome.map_err(|why| why.to_string())?;
                    if let Some((tag, _)) = pending.pop_front() {
                        self.acknowledge(channel, tag).await?;
                    }
                    continue;
                }
                first = consumer.next() => first,
            };
            let first =
                first.ok_or("the broker cancelled the consumer")?.map_err(|error| error.to_string())?;
            let mut last = first.delivery_tag;
            let (mut bytes, mut messages) = (first.data.len(), vec![first]);
            while messages.len() < context.batch_size.get()
                && bytes < MAX_BATCH_BYTES
                && let Some(Some(next)) = consumer.next().now_or_never()
            {
                let next = next.map_err(|error| error.to_string())?;
                last = next.delivery_tag;
                bytes += next.data.len();
                messages.push(next);
            }
            if !self.has_acks {
                acknowledge(channel, last).await?;
            }
            let tag = consumer.tag().to_string();
            match self.send(messages, tag, context).await {
                Some(stored) => pending.push_back((last, stored)),
                None => break,
            }
        }
        // What is stored by now need not come again.
        let rest = async {
            while let Some((tag, stored)) = pending.pop_front() {
                match stored.await {
                    Ok(Ok(())) => self.acknowledge(channel, tag).await?,
                    // The broker sends these again, and those behind them.
                    _ => break,
                }
            }
            Ok(())
        };
        tokio::time::timeout(STOP_PATIENCE, rest).await.unwrap_or(Ok(()))
    }

    /// Acknowledges stored messages up to one.
    async fn acknowledge(&self, channel: &Channel, tag: u64) -> Result<(), String> {
        if self.has_acks { acknowledge(channel, tag).await } else { Ok(()) }
    }
}

/// Acknowledges all messages up to one.
async fn acknowledge(channel: &Channel, tag: u64) -> Result<(), String> {
    channel.basic_ack(tag, BasicAckOptions { multiple: true }).await.map_err(|error| error.to_string())
}

#[async_trait]
impl Input for RabbitMq {
    fn identity(&self) -> String {
        let bound = self.exchange.as_ref().map(|exchange| format!(" {} {}", exchange.name, exchange.key));
        format!("rabbitmq {} {}{}", self.server.identity(), self.queue.name, bound.unwrap_or_default())
    }

    async fn run(&self, context: Context) -> Result<(), InputError> {
        let failed = |reason: String| InputError(format!("rabbitmq: {reason}"));
        let mut stopping = context.stopping.clone();
        let mut queue = tokio::select! {
            biased;
            () = stopped(&mut stopping) => return Ok(()),
            queue = self.open() => queue.map_err(failed)?,
        };
        let ended = self.consume(&mut queue, &context).await;
        // A broken connection ends by itself.
        let _ = tokio::time::timeout(STOP_PATIENCE, queue.connection.close(200, "stopped".into())).await;
        ended.map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::testing::{OptionValue, options};

    fn input(given: &[(&str, OptionValue)]) -> Result<RabbitMq, String> {
        let build = RabbitMq::new(options("rabbitmq", given));
        build.map_err(|faults| faults.into_iter().map(|fault| fault.message).collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn options_of_logstash_are_accepted() {
        let given = [
            ("host", "broker".into()),
            ("queue", "logs".into()),
            ("durable", "true".into()),
            ("arguments", [("x-queue-type", "quorum")].into()),
            ("exchange", "events".into()),
            ("exchange_type", "topic".into()),
            ("key", "app.#".into()),
            ("prefetch_count", "64".into()),
            ("metadata_enabled", "extended".into()),
            ("subscription_retry_interval_seconds", "5".into()),
            ("connect_retry_interval", "1".into()),
            ("automatic_recovery", "true".into()),
            ("threads", "2".into()),
        ];
        let input = input(&given).unwrap();
        assert_eq!(input.identity(), "rabbitmq broker:5672 / logs events app.#");
        assert_eq!((input.prefetch, input.has_acks, input.metadata), (64, true, MetadataLevel::Extended));
    }

    #[test]
    fn options_are_checked() {
        let given = [
            ("queue", "q".repeat(300).into()),
            ("prefetch_count", "0".into()),
            ("metadata_enabled", "all".into()),
        ];
        let faults = input(&given).unwrap_err();
        for part in
            ["[host]", "[queue] of [rabbitmq] has 300 bytes", "[prefetch_count]", "[metadata_enabled]"]
        {
            assert!(faults.contains(part), "{part}: {faults}");
        }
    }
}
