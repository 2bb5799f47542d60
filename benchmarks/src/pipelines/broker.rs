//! Kafka, as far as the measurements need it: topics of our own, filled and counted.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use tokio::time::Instant;

use super::feed::{Events, Format};

const ANSWER: Duration = Duration::from_secs(30);
const FLUSH: Duration = Duration::from_secs(120);

/// A broker that runs elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct Broker {
    /// Addresses, separated by commas.
    pub(crate) servers: String,
    /// Partitions of the topics that are made.
    pub(crate) partitions: i32,
}

impl Broker {
    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.servers);
        config
    }

    fn admin(&self) -> Result<AdminClient<DefaultClientContext>> {
        self.config().create().context("a client of Kafka")
    }

    /// Makes an empty topic.
    pub(crate) async fn create(&self, topic: &str) -> Result<()> {
        let new = NewTopic::new(topic, self.partitions, TopicReplication::Fixed(1));
        let made = self.admin()?.create_topics([&new], &AdminOptions::new()).await;
        for made in made.with_context(|| format!("Kafka at {} does not answer", self.servers))? {
            made.map_err(|(topic, code)| anyhow!("cannot make the topic {topic}: {code}"))?;
        }
        Ok(())
    }

    /// Deletes topics; those that cannot be deleted stay.
    pub(crate) async fn delete(&self, topics: &[&str]) {
        if let Ok(admin) = self.admin() {
            let _ = admin.delete_topics(topics, &AdminOptions::new()).await;
        }
    }

    /// Fills a topic with events as JSON, a record each, and returns their bytes. Blocks.
    pub(crate) fn fill(&self, topic: &str, count: u64) -> Result<u64> {
        let mut config = self.config();
        config.set("linger.ms", "50").set("batch.size", "1000000").set("acks", "1");
        let producer: ThreadedProducer<DefaultProducerContext> =
            config.create().context("a producer of Kafka")?;
        let (mut events, mut event, mut bytes) = (Events::new(count), Vec::new(), 0);
        while events.next(Format::Json, &mut event)? {
            bytes += event.len() as u64;
            let start = Instant::now();
            let mut record = BaseRecord::<[u8], [u8]>::to(topic).payload(&event);
            while let Err((error, again)) = producer.send(record) {
                let full = matches!(error, KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull));
                if !full || start.elapsed() > FLUSH {
                    return Err(error).context("cannot fill the topic");
                }
                std::thread::sleep(Duration::from_millis(5));
                record = again;
            }
            event.clear();
        }
        producer.flush(FLUSH).context("cannot fill the topic")?;
        match self.count(topic)? {
            stored if stored == count => Ok(bytes),
            stored => bail!("the topic has {stored} records of {count}"),
        }
    }

    /// Counts the records of a topic. Blocks.
    pub(crate) fn count(&self, topic: &str) -> Result<u64> {
        let consumer: BaseConsumer = self.config().create().context("a consumer of Kafka")?;
        let mut count = 0;
        for partition in 0..self.partitions {
            let (low, high) = consumer.fetch_watermarks(topic, partition, ANSWER)?;
            count += u64::try_from(high - low).unwrap_or_default();
        }
        Ok(count)
    }
}
