//! Pipelines at full speed, as ratios to `_bulk` with the very documents that they made; Kafka to Kafka; and a
//! webhook under a steady rate.
//!
//! Each figure is taken on a server of its own with an empty directory. A pipeline's documents are read back from its
//! index and sent over `_bulk` into another server's. What drives and feeds runs on the same machine, in both cases.

mod broker;
mod cli;
mod feed;
mod markdown;
mod post;
mod webhook;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use reqwest::Method;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use self::broker::Broker;
pub(crate) use self::cli::PipelinesArgs;
use self::feed::{Feed, Format};
use self::post::PostReport;
use self::webhook::{Webhook, WebhookLoad};
use crate::corpus::{Builder, Corpus};
use crate::hardware::Hardware;
use crate::load::{self, LoadReport};
use crate::process::{Memory, Sampler};
use crate::server::{Launch, Server, free_port};
use crate::suite::{Outcome, commit, own_version, say, stop};
use crate::target::Target;

const INDEX: &str = "bench";
const PIPELINE: &str = "bench";
/// Bytes of a bulk body, as in the other reports.
const BULK_BYTES: usize = 5_000_000;
/// Documents that are read back at once.
const PAGE: usize = 10_000;
/// Pause between two looks at a pipeline's figures.
const LOOK: Duration = Duration::from_millis(20);
/// Longest time without progress.
const STUCK: Duration = Duration::from_secs(120);

/// Plan of a run.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The server's binary.
    pub(crate) server: PathBuf,
    /// Directory for feeds and data.
    pub(crate) directory: PathBuf,
    /// Events through each pipeline.
    pub(crate) events: u64,
    /// Times that each is measured; medians are reported.
    pub(crate) rounds: u32,
    /// Clients of `http` and of `_bulk`.
    pub(crate) clients: usize,
    /// Bytes of a body that is posted.
    pub(crate) body_bytes: usize,
    /// Kafka, if it is there.
    pub(crate) kafka: Option<Broker>,
    /// The load of the webhook; a rate of 0 leaves it out.
    pub(crate) webhook: WebhookLoad,
}

/// Source of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Http,
    Kafka,
}

/// A pipeline into an index.
struct Scenario {
    name: &'static str,
    source: Source,
    format: Format,
    filter: &'static str,
    /// Least share of the `_bulk` figure.
    goal: f64,
}

const SCENARIOS: [Scenario; 4] = [
    Scenario { name: "Kafka, json", source: Source::Kafka, format: Format::Json, filter: "", goal: 0.8 },
    Scenario {
        name: "http, json batches",
        source: Source::Http,
        format: Format::Json,
        filter: r#"mutate { remove_field => ["headers", "host"] }"#,
        goal: 0.7,
    },
    Scenario {
        name: "http, grok of the combined format",
        source: Source::Http,
        format: Format::Combined,
        filter: r#"grok { match => { "message" => "%{COMBINEDAPACHELOG}" } remove_field => ["message", "headers", "host"] }"#,
        goal: 0.4,
    },
    Scenario {
        name: "http, dissect of the combined format",
        source: Source::Http,
        format: Format::Combined,
        filter: r#"dissect {
    mapping => { "message" => '%{clientip} %{ident} %{auth} [%{timestamp}] "%{verb} %{request} HTTP/%{httpversion}" %{response} %{bytes} "%{referrer}" "%{agent}"' }
    remove_field => ["message", "headers", "host"]
  }"#,
        goal: 0.6,
    },
];

/// A pipeline at full speed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ThroughputReport {
    /// Seconds for all events until they were durable.
    pub(crate) seconds: f64,
    /// Events a second.
    pub(crate) events_per_second: f64,
    /// Bytes of the events as they were sent.
    pub(crate) bytes: u64,
    /// Most memory of the server.
    pub(crate) memory_max: Option<Memory>,
    /// Report of the clients of `http`.
    pub(crate) posted: Option<PostReport>,
}

/// A pipeline beside `_bulk`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BulkComparison {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its goal.
    pub(crate) goal: f64,
    /// A run a round.
    pub(crate) through: Vec<ThroughputReport>,
    /// The same documents over `_bulk`, a run a round.
    pub(crate) bulk: Vec<LoadReport>,
}

/// Everything that a run found.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// The machine.
    pub(crate) hardware: Hardware,
    /// Version of the server.
    pub(crate) version: String,
    /// Commit of this checkout.
    pub(crate) commit: String,
    /// The command that made the report.
    pub(crate) command: String,
    /// Events through each pipeline.
    pub(crate) events: u64,
    /// Clients of `http` and of `_bulk`.
    pub(crate) clients: usize,
    /// Bytes of a body that is posted.
    pub(crate) body_bytes: usize,
    /// Partitions of the topics; `None` without Kafka.
    pub(crate) partitions: Option<i32>,
    /// Pipelines into an index, by name.
    pub(crate) compared: Vec<(&'static str, Outcome<BulkComparison>)>,
    /// Kafka to Kafka, a run a round.
    pub(crate) kafka_to_kafka: Option<Outcome<Vec<ThroughputReport>>>,
    /// The webhook.
    pub(crate) webhook: Option<Outcome<Webhook>>,
}

impl Plan {
    /// Runs everything.
    pub(crate) async fn run(&self) -> Result<Report> {
        std::fs::create_dir_all(&self.directory)
            .with_context(|| format!("cannot create {}", self.directory.display()))?;
        let hardware = Hardware::new(&self.directory)?;
        let version = own_version(&self.launch()?);
        let mut compared = Vec::new();
        let topic = format!("millrace-bench-{}", std::process::id());
        let mut filled = None;
        if let Some(kafka) = &self.kafka {
            say(&format!("{} records for Kafka", self.events));
            kafka.create(&topic).await?;
            filled = Some(tokio::task::block_in_place(|| kafka.fill(&topic, self.events))?);
        }
        for scenario in &SCENARIOS {
            let found = match (scenario.source, &self.kafka, filled) {
                (Source::Http, _, _) => self.compare(scenario, None).await,
                (Source::Kafka, Some(kafka), Some(bytes)) => {
                    self.compare(scenario, Some((kafka, &topic, bytes))).await
                }
                (Source::Kafka, _, _) => {
                    say(&format!("skipped: {}: no --kafka", scenario.name));
                    continue;
                }
            };
            compared.push((scenario.name, Outcome::from(found)));
        }
        let mut kafka_to_kafka = None;
        if let (Some(kafka), Some(bytes)) = (&self.kafka, filled) {
            kafka_to_kafka = Some(Outcome::from(self.kafka_to_kafka(kafka, &topic, bytes).await));
            kafka.delete(&[&topic]).await;
        }
        let mut webhook = None;
        if self.webhook.rate > 0 {
            webhook = Some(Outcome::from(self.webhook().await));
        }
        let _ = std::fs::remove_dir_all(self.run_directory());
        Ok(Report {
            hardware,
            version,
            commit: commit(),
            command: std::env::args().collect::<Vec<_>>().join(" "),
            events: self.events,
            clients: self.clients,
            body_bytes: self.body_bytes,
            partitions: self.kafka.as_ref().map(|kafka| kafka.partitions),
            compared,
            kafka_to_kafka,
            webhook,
        })
    }

    fn run_directory(&self) -> PathBuf {
        self.directory.join("pipelines")
    }

    /// Describes a server on an empty directory.
    fn launch(&self) -> Result<Launch> {
        let directory = self.run_directory();
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory)?;
        Launch::new(&self.server, &directory)
    }

    /// A pipeline and `_bulk` in turns.
    async fn compare(
        &self,
        scenario: &Scenario,
        kafka: Option<(&Broker, &str, u64)>,
    ) -> Result<BulkComparison> {
        let feed = match scenario.source {
            Source::Kafka => None,
            Source::Http => {
                let path = self.directory.join("pipelines.feed");
                Some(Arc::new(Feed::make(&path, scenario.format, self.events, self.body_bytes)?))
            }
        };
        let mut found = BulkComparison {
            name: scenario.name,
            goal: scenario.goal,
            through: Vec::new(),
            bulk: Vec::new(),
        };
        let mut documents = None;
        for round in 1..=self.rounds.max(1) {
            say(&format!("{}, round {round}", scenario.name));
            let running = PipelineServer::start(self.launch()?, &definition(scenario, kafka)).await?;
            let target = &running.server.target;
            let measured = async {
                target.recreate(INDEX, &feed::index_body()).await?;
                // Only now, so that nothing makes the index by itself.
                running.define()?;
                let through = match (&feed, kafka) {
                    (Some(feed), _) => running.post(feed, scenario.format, self).await?,
                    (None, Some((_, _, bytes))) => running.follow(self.events, bytes).await?,
                    (None, None) => bail!("no source"),
                };
                check(target, self.events).await?;
                if documents.is_none() {
                    documents = Some(Arc::new(self.read_back(target).await?));
                }
                Ok(through)
            };
            let measured = measured.await;
            found.through.push(stop(running.server, measured)?);

            let documents = documents.as_ref().context("no documents")?;
            let server = self.launch()?.start().await?;
            let loaded = async {
                server.target.recreate(INDEX, &feed::index_body()).await?;
                let loaded = load::run(&server.target, INDEX, documents, self.clients, None).await?;
                check(&server.target, self.events).await?;
                Ok(loaded)
            };
            let loaded = loaded.await;
            found.bulk.push(stop(server, loaded)?);
        }
        Ok(found)
    }

    /// Reads the documents that a pipeline made, as bodies for `_bulk`.
    async fn read_back(&self, target: &Target) -> Result<Corpus> {
        let mut builder = Builder::create(&self.directory.join("pipelines.bulk"), BULK_BYTES)?;
        let first = json!({"size": PAGE, "sort": ["_doc"]});
        let mut answer = target.ask(Method::POST, &format!("/{INDEX}/_search?scroll=5m"), &first).await?;
        let mut read = 0;
        loop {
            let hits = answer["hits"]["hits"].as_array().map(Vec::as_slice).unwrap_or_default();
            for hit in hits {
                builder.add(hit["_source"].to_string().as_bytes())?;
            }
            read += hits.len() as u64;
            if hits.is_empty() {
                break;
            }
            let next = json!({"scroll": "5m", "scroll_id": answer["_scroll_id"]});
            answer = target.ask(Method::POST, "/_search/scroll", &next).await?;
        }
        ensure!(read == self.events, "{read} documents were read back of {}", self.events);
        builder.finish()
    }

    async fn kafka_to_kafka(&self, kafka: &Broker, from: &str, bytes: u64) -> Result<Vec<ThroughputReport>> {
        let mut all = Vec::new();
        for round in 1..=self.rounds.max(1) {
            say(&format!("Kafka to Kafka, round {round}"));
            let to = format!("{from}-out-{round}");
            kafka.create(&to).await?;
            let definition = format!(
                "{}output {{\n  kafka {{\n    bootstrap_servers => \"{}\"\n    topic_id => \"{to}\"\n    \
                 codec => plain {{ format => \"%{{message}}\" }}\n  }}\n}}\n",
                kafka_input(kafka, from, "plain"),
                kafka.servers
            );
            let running = PipelineServer::start(self.launch()?, &definition).await?;
            let measured = async {
                running.define()?;
                let through = running.follow(self.events, bytes).await?;
                let sent = tokio::task::block_in_place(|| kafka.count(&to))?;
                ensure!(sent == self.events, "{sent} records arrived of {}", self.events);
                Ok(through)
            };
            let measured = measured.await;
            let measured = stop(running.server, measured);
            kafka.delete(&[&to]).await;
            all.push(measured?);
        }
        Ok(all)
    }

    async fn webhook(&self) -> Result<Webhook> {
        say("webhook");
        let mut running = PipelineServer::start(self.launch()?, webhook::DEFINITION).await?;
        running.define()?;
        let found = webhook::run(&running.server.target, running.port, self.webhook).await;
        if let Some(status) = running.server.exited()? {
            bail!("the server ended ({status}): {}", running.server.last_words());
        }
        stop(running.server, found)
    }
}

fn kafka_input(kafka: &Broker, topic: &str, codec: &str) -> String {
    format!(
        "input {{\n  kafka {{\n    bootstrap_servers => \"{}\"\n    topics => [\"{topic}\"]\n    \
         group_id => \"millrace-bench-{:08x}\"\n    auto_offset_reset => \"earliest\"\n    codec => {codec}\n    \
         max_poll_records => 5000\n  }}\n}}\n",
        kafka.servers,
        rand::random::<u32>()
    )
}

fn definition(scenario: &Scenario, kafka: Option<(&Broker, &str, u64)>) -> String {
    let input = match kafka {
        Some((kafka, topic, _)) => kafka_input(kafka, topic, "json"),
        None => {
            "input {\n  http { host => \"127.0.0.1\" port => \"${HTTP_PORT}\" codec => line }\n}\n".to_owned()
        }
    };
    let filter = match scenario.filter {
        "" => String::new(),
        filter => format!("filter {{\n  {filter}\n}}\n"),
    };
    format!("{input}{filter}output {{\n  opensearch {{ index => \"{INDEX}\" }}\n}}\n")
}

/// All documents are there, and no filter failed.
async fn check(target: &Target, events: u64) -> Result<()> {
    let counted = target.refresh_and_count(INDEX).await?;
    ensure!(counted == events, "the index has {counted} documents of {events}");
    let tagged = json!({"query": {"exists": {"field": "tags"}}});
    let tagged = target.ask(Method::POST, &format!("/{INDEX}/_count"), &tagged).await?;
    ensure!(tagged["count"] == 0, "{} documents have tags: a filter failed", tagged["count"]);
    Ok(())
}

/// A server whose pipeline is written once it runs.
struct PipelineServer {
    server: Server,
    management: Target,
    definition: String,
    directory: PathBuf,
    /// Port of `http`.
    port: u16,
}

impl PipelineServer {
    async fn start(mut launch: Launch, definition: &str) -> Result<Self> {
        let (port, management) = (free_port()?, free_port()?);
        let set = |name: &str, value: String| (name.to_owned(), value);
        launch.environment.extend([
            set("MILLRACE_PIPELINES__LISTEN", format!("127.0.0.1:{management}")),
            set("MILLRACE_PIPELINES__RELOAD_INTERVAL", "100ms".to_owned()),
            set("HTTP_PORT", port.to_string()),
            set("WEBHOOK_PORT", port.to_string()),
            set("WEBHOOK_TOKEN", webhook::TOKEN.to_owned()),
        ]);
        let server = launch.start().await?;
        let management = Target::new("millrace", &format!("http://127.0.0.1:{management}"), None)?;
        let directory = launch.data.join("pipelines");
        std::fs::create_dir_all(&directory)?;
        Ok(Self { server, management, definition: definition.to_owned(), directory, port })
    }

    /// Gives the server its pipeline.
    fn define(&self) -> Result<()> {
        let new = self.directory.join("new");
        std::fs::write(&new, &self.definition)?;
        std::fs::rename(new, self.directory.join(format!("{PIPELINE}.conf")))?;
        Ok(())
    }

    /// Posts a feed.
    async fn post(&self, feed: &Arc<Feed>, format: Format, plan: &Plan) -> Result<ThroughputReport> {
        let sampler = self.server.target.pid.map(Sampler::start);
        let posted = post::run(self.port, feed, format, plan.clients).await?;
        Ok(ThroughputReport {
            seconds: posted.seconds,
            events_per_second: plan.events as f64 / posted.seconds,
            bytes: feed.bytes,
            memory_max: sampler.map(Sampler::stop),
            posted: Some(posted),
        })
    }

    /// Waits until so many events went out. Time counts from the last look at which none had come in: joining a group
    /// takes seconds that say nothing of speed.
    async fn follow(&self, events: u64, bytes: u64) -> Result<ThroughputReport> {
        let sampler = self.server.target.pid.map(Sampler::start);
        let mut began = Instant::now();
        let (mut last, mut progress) = (0, Instant::now());
        let seconds = loop {
            tokio::time::sleep(LOOK).await;
            let looked = Instant::now();
            let (_, stats) =
                self.management.json(Method::GET, "/_node/stats/pipelines", &Value::Null).await?;
            let figures = &stats["pipelines"][PIPELINE]["events"];
            let figure = |name: &str| figures[name].as_u64().unwrap_or(0);
            if figure("in") == 0 {
                began = looked;
            }
            let out = figure("out");
            if out >= events {
                break began.elapsed().as_secs_f64();
            }
            if out > last {
                (last, progress) = (out, Instant::now());
            }
            if progress.elapsed() > STUCK {
                bail!("{out} events went out of {events}: {}", self.server.last_words());
            }
        };
        Ok(ThroughputReport {
            seconds,
            events_per_second: events as f64 / seconds,
            bytes,
            memory_max: sampler.map(Sampler::stop),
            posted: None,
        })
    }
}
