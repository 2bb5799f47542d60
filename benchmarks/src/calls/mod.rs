//! Ordinary calls, all of the API, by several clients side by side on the same few indices: nothing is answered with a fault of
//! the server's own, nothing waits, and every acknowledged document is there at the end.
//!
//! [`routes`] has the calls. Each client draws them from a seed, and remembers what its own writes were answered. In one second
//! of [`RUSH`] all of them change the same index: what waits for what else shows then.

mod cli;
mod routes;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::latency::Histogram;
use crate::random::Random;
use crate::server::Launch;
use crate::table;
use crate::target::Target;

pub(crate) use cli::CallsArgs;
use routes::{CALLS, Call, INDICES};

/// Ids looked for in one request at the end.
const LOOK: usize = 1_000;
/// One second of so many is a rush.
const RUSH: u64 = 5;
/// Documents a client writes under ids of its own.
const IDS: u64 = 200;

/// Plan of a run.
#[derive(Clone, Debug)]
struct Plan {
    /// The server's binary.
    server: PathBuf,
    /// Directory for data and log; removed after success.
    directory: PathBuf,
    /// Duration of the run.
    time: Duration,
    clients: usize,
    /// Longest time that a call may take.
    longest: Duration,
    /// Seed of everything.
    seed: u64,
}

/// Calls of all clients, by their results.
#[derive(Debug, Default)]
struct CallTally {
    latencies: BTreeMap<&'static str, Histogram>,
    violations: Vec<String>,
}

/// Expected document of a client: its number, or that it is deleted; `None` where a write was not answered with success.
type Model = BTreeMap<(usize, u64), Option<DocumentState>>;

/// The state of a document after its last acknowledged write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DocumentState {
    Number(u64),
    Deleted,
}

impl Plan {
    /// Calls everything for a while and prints what took longest.
    ///
    /// # Errors
    /// What the server did that it must not, all of it.
    async fn run(&self) -> Result<()> {
        std::fs::create_dir_all(&self.directory)
            .with_context(|| format!("cannot create {}", self.directory.display()))?;
        let mut launch = Launch::new(&self.server, &self.directory)?;
        if launch.data.exists() {
            bail!("{} holds data already: name another --directory", launch.data.display());
        }
        launch.environment = vec![
            ("MILLRACE_LOG__LEVEL".to_owned(), "warn".to_owned()),
            ("MILLRACE_STORAGE__FLUSH_BYTES".to_owned(), "1MB".to_owned()),
        ];
        let server = launch.start().await?;
        println!(
            "ordinary calls: seed {}, {} clients\n    {}",
            self.seed,
            self.clients,
            launch.command_line()
        );
        let found = self.on(&server.target).await;
        let violations = match found {
            Ok(violations) => violations,
            Err(error) => vec![format!("{error:#}: {}", server.last_words())],
        };
        if !violations.is_empty() {
            bail!("{}\ndata and log are kept in {}", violations.join("\n"), self.directory.display());
        }
        server.stop().context("orderly stop")?;
        std::fs::remove_dir_all(&self.directory)?;
        println!("ordinary calls: all were answered in time, and all documents are there");
        Ok(())
    }

    async fn on(&self, target: &Target) -> Result<Vec<String>> {
        for index in INDICES {
            target.recreate(index, &routes::definition()).await?;
        }
        let seen = Arc::new(Mutex::new(CallTally::default()));
        let until = Instant::now() + self.time;
        let mut running = tokio::task::JoinSet::new();
        for number in 0..self.clients {
            let (target, seen) = (target.apart()?, Arc::clone(&seen));
            let random = Random::new(self.seed.wrapping_mul(1_000_003).wrapping_add(number as u64));
            let client = Client { number, target, seen, random, model: Model::new(), longest: self.longest };
            running.spawn(client.run(until));
        }
        let mut models = Vec::new();
        while let Some(ended) = running.join_next().await {
            models.push(ended??);
        }
        let mut documents = 0;
        let mut violations = Vec::new();
        for (number, model) in &models {
            documents += model.len();
            violations.extend(compare(target, *number, model).await?);
        }
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        println!("{}", table(&seen.latencies));
        println!("{documents} documents were looked for");
        if documents == 0 {
            bail!("no document was written: nothing was tested");
        }
        seen.violations.append(&mut violations);
        Ok(std::mem::take(&mut seen.violations))
    }
}

/// One of the clients.
#[derive(Debug)]
struct Client {
    number: usize,
    target: Target,
    seen: Arc<Mutex<CallTally>>,
    random: Random,
    model: Model,
    longest: Duration,
}

/// The id of a client's document.
fn id(client: usize, number: u64) -> String {
    format!("c{client}-{number}")
}

impl Client {
    async fn run(mut self, until: Instant) -> Result<(usize, Model)> {
        let changes: Vec<&'static Call> = CALLS.iter().filter(|call| call.changes_index).collect();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok((self.number, self.model));
            }
            if left.as_secs().is_multiple_of(RUSH) {
                let call = *self.random.pick(&changes);
                self.call(call, Some(INDICES[0])).await?;
            } else if self.random.chance(0.4) {
                self.write().await?;
            } else {
                let call = self.random.pick(CALLS);
                self.call(call, None).await?;
            }
        }
    }

    /// Sends a call, of one index or of any, and notes how it was answered.
    async fn call(&mut self, call: &'static Call, index: Option<&str>) -> Result<()> {
        let request = call.request(index, &mut self.random);
        let method = Method::from_bytes(request.method.as_bytes())?;
        let started = Instant::now();
        let media = if request.lines { "application/x-ndjson" } else { "application/json" };
        let answered = self.target.send(method, &request.path, media, request.body).await;
        let (status, body) = answered.with_context(|| format!("{} {}", request.method, request.path))?;
        self.note(call.name, started.elapsed(), status, &body);
        Ok(())
    }

    /// Writes, updates or deletes a document of its own.
    async fn write(&mut self) -> Result<()> {
        let key = (self.random.index(INDICES.len()), self.random.below(IDS));
        let value = self.random.below(1 << 40);
        let path = format!("/{}/_doc/{}", INDICES[key.0], id(self.number, key.1));
        let delete = self.random.chance(0.1);
        let (method, body, stored) = match delete {
            true => (Method::DELETE, Value::Null, DocumentState::Deleted),
            false => (Method::PUT, routes::document(value), DocumentState::Number(value)),
        };
        let started = Instant::now();
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let (status, answer) = self.target.send(method, &path, "application/json", text).await?;
        self.note("PUT or DELETE a document", started.elapsed(), status, &answer);
        // A delete of what is not there is answered 404, and leaves it so.
        let done = status.is_success() || (delete && status == StatusCode::NOT_FOUND);
        if done {
            self.model.insert(key, Some(stored));
        } else if status != StatusCode::TOO_MANY_REQUESTS && status.is_server_error() {
            self.model.insert(key, None);
        }
        Ok(())
    }

    fn note(&self, name: &'static str, took: Duration, status: StatusCode, body: &[u8]) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.latencies.entry(name).or_default().record(took);
        if status.is_server_error() {
            let text = format!("{name}: {status}: {:.300}", String::from_utf8_lossy(body));
            seen.violations.push(text);
        }
        if took > self.longest {
            seen.violations.push(format!("{name}: answered {status} after {} ms", took.as_millis()));
        }
    }
}

/// Looks for a client's documents; returns what is not as it was acknowledged.
async fn compare(target: &Target, client: usize, model: &Model) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let known: Vec<_> = model.iter().filter_map(|(key, stored)| Some((key, (*stored)?))).collect();
    for part in known.chunks(LOOK) {
        let wanted: Vec<Value> = part
            .iter()
            .map(|((index, number), _)| json!({"_index": INDICES[*index], "_id": id(client, *number)}))
            .collect();
        let answer = target.ask(Method::POST, "/_mget", &json!({"docs": wanted})).await?;
        for (place, ((index, number), stored)) in part.iter().enumerate() {
            let doc = &answer["docs"][place];
            let found = match doc["found"].as_bool() {
                Some(true) => doc["_source"]["number"].as_u64().map(DocumentState::Number),
                _ => Some(DocumentState::Deleted),
            };
            if found != Some(*stored) {
                wrong.push(format!(
                    "{} {}: {stored:?} was acknowledged, {doc} is there",
                    INDICES[*index],
                    id(client, *number)
                ));
            }
        }
    }
    Ok(wrong)
}

fn table(latencies: &BTreeMap<&'static str, Histogram>) -> String {
    let mut rows: Vec<_> = latencies.iter().map(|(name, latencies)| (name, latencies.summary())).collect();
    rows.sort_by(|a, b| b.1.max_ms.total_cmp(&a.1.max_ms));
    let mut text = String::new();
    table::header(&mut text, &["call", "times", "p50, ms", "p99, ms", "most, ms"]);
    for (name, summary) in rows {
        text += &format!(
            "| {name} | {} | {:.1} | {:.1} | {:.0} |\n",
            summary.count, summary.p50_ms, summary.p99_ms, summary.max_ms
        );
    }
    text
}
