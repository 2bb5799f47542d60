//! Plays requests that mean harm against a server while a client writes and searches, and checks that the server lives,
//! stays within its memory, keeps what it acknowledged, and still serves the client.
//!
//! [`requests`] and [`sockets`] are what is played, each an [`HostileLoad`]; [`client`] is who must not notice; [`lives`] are
//! starts of a server under conditions that mean harm.

mod cli;
mod client;
mod lives;
mod requests;
mod sockets;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::latency::{Histogram, Summary};
use crate::process::{Memory, Sampler};
use crate::server::{Launch, Server, free_port};
use crate::table;
use crate::target::Target;

pub(crate) use cli::HostileArgs;
use client::Client;
pub(crate) use requests::Request;

/// Memory of searches and statements that the server is given.
const QUERY_MEMORY: u64 = 256 << 20;
/// Memory of unflushed documents that the server is given.
const MEMTABLE: u64 = 64 << 20;
/// Latencies below this are not compared: they say more of the machine than of the server.
const LEAST_COMPARED_MS: f64 = 50.0;
/// Index that attacks read.
const VICTIM: &str = "victim";
/// Password of the server's administrator.
const PASSWORD: &str = "hostile-benchmark";

/// Plan of a run.
#[derive(Clone, Debug)]
struct Plan {
    /// The server's binary.
    server: PathBuf,
    /// Directory for data and log; removed after success.
    directory: PathBuf,
    /// Time for which the client is watched alone.
    calm: Duration,
    /// Only attacks whose name has this in it.
    only: Option<String>,
    /// Time that one request that means harm may take; then its connection is closed.
    patience: Duration,
    /// Bound on the slowest hundredth of the client's requests, as a multiple of the time alone.
    slower: f64,
    /// Most resident memory of the server, in bytes.
    bound: u64,
}

/// Returns the most bytes that a server may take: its configured memory, and so many megabytes beside.
fn bound(beside_mb: u64) -> u64 {
    QUERY_MEMORY + MEMTABLE + (beside_mb << 20)
}

/// Something that means harm.
#[derive(Debug)]
pub(crate) enum HostileLoad {
    /// A request, so many times side by side.
    Request(Request),
    /// Bytes that no HTTP library sends.
    Socket(sockets::Socket),
}

impl HostileLoad {
    fn name(&self) -> &'static str {
        match self {
            Self::Request(request) => request.name,
            Self::Socket(socket) => socket.name(),
        }
    }
}

/// Addresses of the server for attacks.
#[derive(Clone, Debug)]
pub(crate) struct ListenerAddresses {
    /// The data API.
    pub(crate) target: Target,
    /// Port of the data API.
    pub(crate) port: u16,
    /// Port of a pipeline's `http` input.
    pub(crate) input: u16,
    /// Time that an answer may take.
    pub(crate) patience: Duration,
}

/// Outcome of an attack.
#[derive(Debug)]
struct Outcome {
    name: &'static str,
    answers: String,
    seconds: f64,
    /// Memory of the server before.
    before: Memory,
    most: Memory,
    /// Slowest request of the client meanwhile.
    slowest_ms: f64,
    violation: Option<String>,
}

impl Plan {
    /// Plays everything and prints a table.
    ///
    /// # Errors
    /// What the server did that it must not, all of it.
    async fn run(&self) -> Result<()> {
        std::fs::create_dir_all(&self.directory)
            .with_context(|| format!("cannot create {}", self.directory.display()))?;
        let (launch, input) = self.launch()?;
        let server = launch.start().await?;
        let found = self.play(server, &launch, input).await;
        let mut violations = match found {
            Ok(violations) => violations,
            Err(error) => vec![format!("{error:#}")],
        };
        if self.only.is_none() {
            violations.extend(lives::run(&self.server, &self.directory.join("lives")).await?);
        }
        if !violations.is_empty() {
            bail!("{}\ndata and log are kept in {}", violations.join("\n"), self.directory.display());
        }
        std::fs::remove_dir_all(&self.directory)?;
        println!("hostile requests: the server lived, kept its bounds and all documents");
        Ok(())
    }

    fn launch(&self) -> Result<(Launch, u16)> {
        let mut launch = Launch::new(&self.server, &self.directory)?;
        if launch.data.exists() {
            bail!("{} holds data already: name another --directory", launch.data.display());
        }
        let input = free_port()?;
        let pipelines = self.directory.join("pipelines");
        std::fs::create_dir_all(&pipelines)?;
        let definition = format!(
            "input {{ http {{ host => \"127.0.0.1\" port => {input} codec => json }} }}\n\
             output {{ opensearch {{ index => \"from-input\" }} }}\n"
        );
        std::fs::write(pipelines.join("input.conf"), definition)?;
        launch.password = Some(PASSWORD.to_owned());
        launch.environment = [
            ("MILLRACE_QUERY__MEMORY_BYTES", QUERY_MEMORY.to_string()),
            ("MILLRACE_STORAGE__MEMTABLE_MAX_BYTES", MEMTABLE.to_string()),
            ("MILLRACE_PIPELINES__DIR", pipelines.display().to_string()),
            ("MILLRACE_LOG__LEVEL", "warn".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec();
        Ok((launch, input))
    }

    /// Plays the attacks one after the other; returns what was violated.
    async fn play(&self, mut server: Server, launch: &Launch, input: u16) -> Result<Vec<String>> {
        let target = server.target.clone();
        prepare(&target).await?;
        let client = Client::start(&target)?;
        tokio::time::sleep(self.calm).await;
        let (alone, mut pressed) = (client.next_phase().summary(), Histogram::default());
        let doors =
            ListenerAddresses { target: target.clone(), port: launch.port, input, patience: self.patience };
        let mut outcomes = Vec::new();
        let chosen =
            |attack: &HostileLoad| self.only.as_ref().is_none_or(|part| attack.name().contains(part));
        for attack in requests::all().into_iter().chain(sockets::all()).filter(chosen) {
            eprintln!("{}", attack.name());
            let mut outcome = played(&doors, attack, self.bound).await;
            let beside = client.next_phase();
            pressed.merge(&beside);
            outcome.slowest_ms = beside.summary().max_ms;
            if let Some(status) = server.exited()? {
                outcome.violation = Some(format!("the server ended with {status}: {}", server.last_words()));
                outcomes.push(outcome);
                println!("{}", table(&outcomes));
                return Ok(violated(&outcomes));
            }
            outcomes.push(outcome);
        }
        pressed.merge(&client.next_phase());
        let pressed = pressed.summary();
        let written = client.stop().await?;
        println!("{}", table(&outcomes));
        println!("the client alone: {}\nbeside attacks:   {}", line(&alone), line(&pressed));
        let mut violations = violated(&outcomes);
        let most = outcomes.iter().map(|outcome| outcome.most.resident_bytes).max().unwrap_or_default();
        let bound = self.bound;
        println!("most resident memory: {} MB of {} MB", most >> 20, bound >> 20);
        let slower = pressed.p99_ms / alone.p99_ms.max(LEAST_COMPARED_MS);
        if slower > self.slower {
            violations.push(format!(
                "the client's slowest hundredth took {:.0} ms, {:.0} ms alone",
                pressed.p99_ms, alone.p99_ms
            ));
        }
        violations.extend(written.missing(&target).await?);
        println!("{} acknowledged documents were looked for", written.len());
        server.stop().context("orderly stop")?;
        Ok(violations)
    }
}

/// Plays one attack and looks at the server's memory meanwhile.
async fn played(doors: &ListenerAddresses, attack: HostileLoad, bound: u64) -> Outcome {
    let before = doors.target.pid.and_then(Memory::new).unwrap_or_default();
    let sampler = doors.target.pid.map(Sampler::start);
    let (name, started) = (attack.name(), Instant::now());
    let answered = match attack {
        HostileLoad::Request(request) => request.play(doors).await,
        HostileLoad::Socket(socket) => socket.play(doors).await,
    };
    let (answers, mut violation) = match answered {
        Ok(answers) => (answers, None),
        Err(error) => (String::new(), Some(format!("{name}: {error:#}"))),
    };
    let seconds = started.elapsed().as_secs_f64();
    let most = sampler.map(Sampler::stop).unwrap_or_default();
    if most.resident_bytes > bound {
        let [most, before, bound] =
            [most.resident_bytes, before.resident_bytes, bound].map(|bytes| bytes >> 20);
        violation.get_or_insert(format!("{name}: {most} MB resident of {bound} MB, {before} MB before"));
    }
    Outcome { name, answers, seconds, before, most, slowest_ms: 0.0, violation }
}

/// Makes the index that attacks read: 4,000 documents over 45 days, a thousand users.
async fn prepare(target: &Target) -> Result<()> {
    let mapping = json!({
        "settings": {"number_of_replicas": 0},
        "mappings": {"properties": {
            "@timestamp": {"type": "date"}, "user": {"type": "keyword"}, "message": {"type": "text"},
            "n": {"type": "long"}, "f": {"type": "float"}, "where": {"type": "geo_point"},
            "items": {"type": "nested", "properties": {"k": {"type": "keyword"}, "v": {"type": "long"}}},
        }},
    });
    target.recreate(VICTIM, &mapping).await?;
    let mut bulk = String::new();
    for number in 0_u64..4_000 {
        let at = 1_767_225_600_000 + number * 972_000;
        writeln!(bulk, "{{\"index\":{{}}}}")?;
        writeln!(
            bulk,
            "{}",
            json!({"@timestamp": at, "user": format!("user-{}", number % 1_000), "n": number, "f": number as f64 / 10.0,
                "message": format!("request {number} of the quick brown fox over the lazy dog {}", number % 97),
                "where": {"lat": number % 90, "lon": number % 180},
                "items": [{"k": "a", "v": number}, {"k": "b", "v": number + 1}]})
        )?;
    }
    let (status, answer) = target
        .send(Method::POST, &format!("/{VICTIM}/_bulk?refresh=true"), "application/x-ndjson", bulk)
        .await?;
    if status != StatusCode::OK {
        bail!("the documents that attacks read were refused: {:.300}", String::from_utf8_lossy(&answer));
    }
    let found: Value = serde_json::from_slice(&answer)?;
    if found["errors"] != json!(false) {
        bail!("some documents that attacks read were refused");
    }
    Ok(())
}

fn violated(outcomes: &[Outcome]) -> Vec<String> {
    outcomes.iter().filter_map(|outcome| outcome.violation.clone()).collect()
}

fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    let columns = ["request", "answered", "s", "resident before", "most", "the client's slowest"];
    table::header(&mut text, &columns);
    for Outcome { name, answers, seconds, before, most, slowest_ms, violation } in outcomes {
        let answers = violation.as_deref().unwrap_or(answers);
        let [before, most] = [before, most].map(|memory| memory.resident_bytes >> 20);
        let _ = writeln!(
            text,
            "| {name} | {answers} | {seconds:.1} | {before} MB | {most} MB | {slowest_ms:.0} ms |"
        );
    }
    text
}

fn line(summary: &Summary) -> String {
    format!(
        "{} requests, p50 {:.1} ms, p99 {:.1} ms, most {:.0} ms",
        summary.count, summary.p50_ms, summary.p99_ms, summary.max_ms
    )
}

/// Counts equal answers: `429 × 3, 200`.
fn counted(answers: &[String]) -> String {
    let mut kinds: Vec<(&String, usize)> = Vec::new();
    for answer in answers {
        match kinds.iter_mut().find(|(kind, _)| *kind == answer) {
            Some((_, count)) => *count += 1,
            None => kinds.push((answer, 1)),
        }
    }
    let each = kinds.iter().map(|(kind, count)| match count {
        1 => (*kind).clone(),
        _ => format!("{kind} × {count}"),
    });
    each.collect::<Vec<_>>().join(", ")
}

/// Shares a target among tasks.
type SharedTarget<T> = Arc<std::sync::Mutex<T>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_answers_are_counted() {
        let answers = ["429", "200", "429"].map(str::to_owned);
        assert_eq!(counted(&answers), "429 × 2, 200");
    }

    #[test]
    fn names_of_attacks_are_their_own() {
        let mut names: Vec<&str> =
            requests::all().iter().chain(&sockets::all()).map(HostileLoad::name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        assert!(all >= 40, "{all}");
    }
}
