//! `rabbitmq`: events as messages to an exchange, at least once: the broker confirms each of them.
//!
//! After a connection breaks, the output publishes again from the first message on that has no confirmation. A broker closes the
//! channel for a message that it never takes, such as one beyond its size. [`window`] finds that message, and the output refuses it.

mod properties;
#[cfg(test)]
mod tests;
mod window;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::protocol::{AMQPError, AMQPErrorKind, AMQPSoftError};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Confirmation, Connection, ErrorKind};
use tokio::sync::{Mutex, watch};

use self::properties::MessageProperties;
use self::window::PublishWindow;
use super::retry::{Backoff, prepare_codec};
use crate::codec::{self, Codec};
use crate::input::stopped;
use crate::offload::offload;
use crate::output::{OrderTicket, Output, RefusedEvent, Sink, SinkInterrupted};
use crate::rabbitmq_server::{MAX_NAME, RabbitServer, exchange_kind, exchange_options, short_text, table};
use crate::{Event, Fault, Options, Template};

/// Pauses between attempts.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Kinds of exchanges.
const EXCHANGE_TYPES: [&str; 6] =
    ["direct", "fanout", "headers", "topic", "x-consistent-hash", "x-modulus-hash"];

#[derive(Debug)]
struct RabbitMqOutput {
    server: RabbitServer,
    exchange: String,
    kind: &'static str,
    durable: bool,
    arguments: FieldTable,
    encoder: Arc<MessageEncoder>,
    open: Mutex<Option<OpenChannel>>,
}

/// Makes messages of events.
#[derive(Debug)]
struct MessageEncoder {
    key: Template,
    properties: MessageProperties,
    codec: Arc<dyn Codec>,
}

/// A message that is to be published.
#[derive(Debug, PartialEq)]
struct Message {
    key: String,
    properties: BasicProperties,
    payload: Vec<u8>,
}

/// A channel with its connection.
struct OpenChannel {
    /// Closes with this value.
    connection: Connection,
    channel: Channel,
}

/// Messages of a delivery on their way to the broker.
struct Publication {
    /// Messages with the numbers of their events.
    messages: Vec<(usize, Message)>,
    /// Messages from the first one on that are confirmed or refused.
    settled: usize,
    window: PublishWindow,
    refused: Vec<RefusedEvent>,
}

/// Error of publishing a window of messages.
#[derive(Debug, PartialEq)]
enum PublishError {
    /// The broker closed the channel for one of some messages.
    MessageRefused { suspects: usize, reason: String },
    /// The messages can be sent again.
    Transient(String),
}

impl std::fmt::Debug for OpenChannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenChannel").finish_non_exhaustive()
    }
}

/// Makes the output.
///
/// # Errors
/// The faults of the options.
pub(super) fn build(mut options: Options) -> Result<Output, Vec<Fault>> {
    let o = &mut options;
    let server = RabbitServer::take(o);
    let exchange = short_text(o, "exchange");
    let kind = o.one_of("exchange_type", &EXCHANGE_TYPES);
    if exchange.is_none() || kind.is_none() {
        o.fault_here("[rabbitmq] needs the options [exchange] and [exchange_type]");
    }
    let durable = o.boolean("durable").unwrap_or(true);
    // Of a queue, which the output has none of.
    let _ = o.boolean("passive");
    let arguments = table(o, "arguments");
    let key = o.template("key").unwrap_or_else(|| Template::parse("logstash"));
    let properties = MessageProperties::take(o);
    let codec = codec::take(o, "json");
    options.finish()?;
    Ok(Output::Sink(Arc::new(RabbitMqOutput {
        server,
        exchange: exchange.unwrap_or_default(),
        kind: kind.unwrap_or("direct"),
        durable,
        arguments,
        encoder: Arc::new(MessageEncoder { key, properties, codec: codec? }),
        open: Mutex::new(None),
    })))
}

impl MessageEncoder {
    /// Makes the message of an event.
    ///
    /// # Errors
    /// The reason why there can be none.
    fn encode(&self, event: &Event) -> Result<Message, String> {
        let key = self.key.render(event);
        if key.len() > MAX_NAME {
            return Err(format!("the routing key has {} bytes, more than {MAX_NAME}", key.len()));
        }
        let properties = self.properties.render(event)?;
        let mut payload = Vec::with_capacity(256);
        self.codec.try_encode(event, &mut payload)?;
        Ok(Message { key, properties, payload })
    }
}

impl RabbitMqOutput {
    async fn connect(&self) -> Result<OpenChannel, String> {
        let connection = self.server.connect().await?;
        self.open_channel(connection).await.map_err(|error| error.to_string())
    }

    async fn open_channel(&self, connection: Connection) -> lapin::Result<OpenChannel> {
        let channel = connection.create_channel().await?;
        let (name, kind) = (self.exchange.as_str().into(), exchange_kind(self.kind));
        let options = exchange_options(self.durable);
        channel.exchange_declare(name, kind, options, self.arguments.clone()).await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(OpenChannel { connection, channel })
    }

    /// Publishes the messages that are not settled.
    ///
    /// # Errors
    /// The reason of a failure that passes. A later call goes on with the first message that is not settled.
    async fn publish(&self, publication: &mut Publication) -> Result<(), String> {
        if publication.next_window().is_empty() {
            return Ok(());
        }
        let mut open = self.open.lock().await;
        let mut usable = match open.take() {
            Some(usable) if usable.channel.status().connected() => usable,
            _ => self.connect().await?,
        };
        while !publication.next_window().is_empty() {
            let mut confirmed = 0;
            let published =
                publish_window(&usable.channel, &self.exchange, publication.next_window(), &mut confirmed);
            let published = published.await;
            publication.on_confirmed(confirmed);
            match published {
                Ok(()) => {}
                Err(PublishError::Transient(reason)) => return Err(reason),
                Err(PublishError::MessageRefused { suspects, reason }) => {
                    publication.on_refusal(suspects, reason);
                    // The connection stays open, the channel does not.
                    let reopened = self.open_channel(usable.connection).await;
                    usable = reopened.map_err(|error| error.to_string())?;
                }
            }
        }
        *open = Some(usable);
        Ok(())
    }
}

impl Publication {
    fn new(messages: Vec<(usize, Message)>, refused: Vec<RefusedEvent>) -> Self {
        Self { messages, settled: 0, window: PublishWindow::new(), refused }
    }

    /// Returns the messages that are published next; none at the end.
    fn next_window(&self) -> &[(usize, Message)] {
        let rest = self.messages.get(self.settled..).unwrap_or_default();
        rest.get(..self.window.size()).unwrap_or(rest)
    }

    fn on_confirmed(&mut self, confirmed: usize) {
        self.settled += confirmed;
        self.window.on_confirmed(confirmed);
    }

    /// Refuses the next message, where it is the only one that the broker can have refused.
    fn on_refusal(&mut self, suspects: usize, reason: String) {
        if self.window.on_refusal(suspects)
            && let Some((event, _)) = self.messages.get(self.settled)
        {
            self.refused.push(RefusedEvent { event: *event, reason });
            self.settled += 1;
        }
    }
}

/// Publishes messages, and counts those that the broker confirms.
async fn publish_window(
    channel: &Channel,
    exchange: &str,
    messages: &[(usize, Message)],
    confirmed: &mut usize,
) -> Result<(), PublishError> {
    let (mut waiting, mut failure) = (Vec::with_capacity(messages.len()), None);
    for (_, Message { key, properties, payload }) in messages {
        let (exchange, key) = (exchange.into(), key.as_str().into());
        let options = BasicPublishOptions::default();
        match channel.basic_publish(exchange, key, options, payload, properties.clone()).await {
            Ok(confirmation) => waiting.push(confirmation),
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    let sent = waiting.len() + usize::from(failure.is_some());
    // What is confirmed is not published again, whatever came behind it.
    for confirmation in waiting {
        match confirmation.await {
            Ok(Confirmation::Ack(_)) => *confirmed += 1,
            Ok(Confirmation::Nack(_)) => {
                return Err(PublishError::Transient("the broker cannot store a message".to_owned()));
            }
            Ok(Confirmation::NotRequested) => {
                return Err(PublishError::Transient("the broker confirms no messages".to_owned()));
            }
            Err(error) => return Err(PublishError::classify(&error, sent - *confirmed)),
        }
    }
    failure.map_or(Ok(()), |error| Err(PublishError::classify(&error, sent - *confirmed)))
}

/// Returns whether an error is of one message: a wrong `user_id` or property, a size beyond the broker's, or a routing key that the login may
/// not use. An exchange that refuses the login refuses all messages.
fn is_of_message(refusal: &AMQPError) -> bool {
    match refusal.kind() {
        AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED) => true,
        AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => {
            refusal.get_message().as_str().contains("access to topic")
        }
        _ => false,
    }
}

impl PublishError {
    /// Classifies an error, with the number of messages that were sent and are not confirmed.
    fn classify(error: &lapin::Error, suspects: usize) -> Self {
        let reason = error.to_string();
        match error.kind() {
            ErrorKind::ProtocolError(refusal) if is_of_message(refusal) => {
                Self::MessageRefused { suspects, reason }
            }
            _ => Self::Transient(reason),
        }
    }
}

#[async_trait]
impl Sink for RabbitMqOutput {
    async fn send(
        &self,
        events: &[(Arc<Event>, Option<String>)],
        mut stopping: watch::Receiver<bool>,
        _place: OrderTicket,
    ) -> Result<Vec<RefusedEvent>, SinkInterrupted> {
        let pauses = || Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        prepare_codec(&self.encoder.codec, "rabbitmq", pauses(), &mut stopping).await?;
        let (encoder, all) = (Arc::clone(&self.encoder), events.to_vec());
        let (messages, refused) = offload(move || {
            let (mut messages, mut refused) = (Vec::with_capacity(all.len()), Vec::new());
            for (number, (event, _)) in all.iter().enumerate() {
                match encoder.encode(event) {
                    Ok(message) => messages.push((number, message)),
                    Err(reason) => refused.push(RefusedEvent { event: number, reason }),
                }
            }
            (messages, refused)
        })
        .await;
        let mut publication = Publication::new(messages, refused);
        let mut backoff = pauses();
        loop {
            let published = tokio::select! {
                biased;
                () = stopped(&mut stopping) => return Err(SinkInterrupted),
                published = self.publish(&mut publication) => published,
            };
            let Err(reason) = published else {
                publication.refused.sort_by_key(|refused| refused.event);
                return Ok(publication.refused);
            };
            tracing::warn!(reason, "the output rabbitmq cannot publish, it tries again");
            backoff.wait(&mut stopping).await?;
        }
    }
}
