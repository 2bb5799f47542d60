//! `rabbitmq`: events as messages to an exchange, at least once: the broker confirms each of them.
//!
//! After a connection breaks, the output publishes again from the first message on that has no confirmation.

mod properties;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Confirmation, Connection};
use tokio::sync::{Mutex, watch};

use self::properties::MessageProperties;
use super::retry::{Backoff, prepare_codec};
use crate::codec::{self, Codec};
use crate::input::stopped;
use crate::offload::offload;
use crate::output::{OrderTicket, Output, RefusedEvent, Sink, SinkInterrupted};
use crate::rabbitmq_server::{MAX_NAME, RabbitServer, exchange_kind, exchange_options, short_text, table};
use crate::{Event, Fault, Options, Template};

/// Messages that may wait for their confirmation.
const IN_FLIGHT: usize = 1_000;
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
    _connection: Connection,
    channel: Channel,
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
        Ok(OpenChannel { _connection: connection, channel })
    }

    /// Publishes messages from a number on, which counts those that are confirmed.
    async fn publish(&self, messages: &[Message], confirmed: &mut usize) -> Result<(), String> {
        let mut open = self.open.lock().await;
        let usable = match open.take() {
            Some(usable) if usable.channel.status().connected() => usable,
            _ => self.connect().await?,
        };
        while *confirmed < messages.len() {
            let (mut waiting, mut failure) = (Vec::new(), None);
            for message in messages.iter().skip(*confirmed).take(IN_FLIGHT) {
                let Message { key, properties, payload } = message;
                let (exchange, key) = (self.exchange.as_str().into(), key.as_str().into());
                let options = BasicPublishOptions::default();
                let published =
                    usable.channel.basic_publish(exchange, key, options, payload, properties.clone());
                match published.await {
                    Ok(confirmation) => waiting.push(confirmation),
                    Err(error) => {
                        failure = Some(error.to_string());
                        break;
                    }
                }
            }
            // What is confirmed is not published again, whatever came behind it.
            for confirmation in waiting {
                match confirmation.await.map_err(|error| error.to_string())? {
                    Confirmation::Ack(_) => *confirmed += 1,
                    Confirmation::Nack(_) => return Err("the broker cannot store a message".to_owned()),
                    Confirmation::NotRequested => return Err("the broker confirms no messages".to_owned()),
                }
            }
            if let Some(failure) = failure {
                return Err(failure);
            }
        }
        *open = Some(usable);
        Ok(())
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
                    Ok(message) => messages.push(message),
                    Err(reason) => refused.push(RefusedEvent { event: number, reason }),
                }
            }
            (messages, refused)
        })
        .await;
        let mut confirmed = 0;
        let mut backoff = pauses();
        loop {
            let published = tokio::select! {
                biased;
                () = stopped(&mut stopping) => return Err(SinkInterrupted),
                published = self.publish(&messages, &mut confirmed) => published,
            };
            let Err(reason) = published else { return Ok(refused) };
            tracing::warn!(reason, "the output rabbitmq cannot publish, it tries again");
            backoff.wait(&mut stopping).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::input::testing::{OptionValue, options};

    fn faults(given: &[(&str, OptionValue)]) -> String {
        let faults = build(options("rabbitmq", given)).err().unwrap_or_default();
        faults.into_iter().map(|fault| fault.message).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn options_are_checked() {
        let wrong = faults(&[("exchange_type", "any".into()), ("key", "k".into())]);
        for part in
            ["[host]", "[exchange] and [exchange_type]", "[exchange_type] of [rabbitmq] must be one of"]
        {
            assert!(wrong.contains(part), "{part}: {wrong}");
        }
        let given = [
            ("host", "broker".into()),
            ("exchange", "events".into()),
            ("exchange_type", "topic".into()),
            ("persistent", "true".into()),
            ("passive", "false".into()),
            ("message_properties", [("content_type", "application/json"), ("priority", "%{level}")].into()),
        ];
        assert_eq!(faults(&given), "");
    }

    #[test]
    fn an_event_whose_key_is_too_long_has_no_message() {
        let mut taken = options("rabbitmq", &[]);
        let encoder = MessageEncoder {
            key: Template::parse("app.%{name}"),
            properties: MessageProperties::take(&mut taken),
            codec: codec::take(&mut taken, "json").unwrap(),
        };
        let mut event = Event::new(chrono::DateTime::UNIX_EPOCH);
        event.fields_mut().insert("name".to_owned(), json!("web"));
        let message = encoder.encode(&event).unwrap();
        assert_eq!(message.key, "app.web");
        assert_eq!(message.properties.delivery_mode(), &Some(2), "messages are persistent");
        assert!(String::from_utf8(message.payload).unwrap().contains("\"name\":\"web\""));
        event.fields_mut().insert("name".to_owned(), json!("w".repeat(300)));
        assert!(encoder.encode(&event).unwrap_err().contains("304 bytes"));
    }
}
