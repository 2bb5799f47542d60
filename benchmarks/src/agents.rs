//! The subcommand `agents`: the cost of the keep-alives of many agents.
//!
//! Agents enrol, then send keep-alives spread evenly over the interval. The server's processor time is read from `/proc`, its writes from
//! its metrics. Both are compared with a server of the same agents that are silent.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use reqwest::Method;
use serde::Serialize;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::arguments::{ServerArgs, temporary};
use crate::latency::{Histogram, Summary};
use crate::process::{self, Memory};
use crate::server::{Launch, free_port};
use crate::target::Target;

/// Enrolments at a time.
const ENROLLERS: usize = 16;
/// Longest answer to a keep-alive in bytes.
const MAX_ANSWER_BYTES: usize = 8 << 10;

/// Arguments: the agents, their pace and their connections.
#[derive(Debug, Args)]
pub(crate) struct AgentsArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Agents
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    agents: u32,
    /// Seconds between two keep-alives of an agent
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    interval_seconds: u64,
    /// Seconds of each of both measurements
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// Connections that the agents share; 0 opens one for each keep-alive
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(..=1_000))]
    connections: u32,
    /// Directory for data and log; a temporary one when not given
    #[arg(long)]
    directory: Option<PathBuf>,
}

/// Cost of keep-alives.
#[derive(Debug, Serialize)]
struct AgentReport {
    agents: u32,
    connections: u32,
    keepalives_per_second: f64,
    /// Share of a core with silent agents.
    silent_core_percent: f64,
    /// Share of a core with keep-alives.
    core_percent: f64,
    /// The difference, for each keep-alive.
    microseconds_per_keepalive: f64,
    /// Write requests of the store a second.
    writes_per_second: f64,
    /// Syncs of the log a second.
    log_syncs_per_second: f64,
    latency: Summary,
    memory: Option<Memory>,
}

/// The agents and the way to their listener.
#[derive(Debug)]
struct Fleet {
    address: SocketAddr,
    tokens: Vec<String>,
    interval: Duration,
    /// Shared connections; 0 opens one for each keep-alive.
    connections: usize,
    latencies: Mutex<Histogram>,
}

/// Counters of a server at one moment.
#[derive(Clone, Copy, Debug)]
struct ServerCounters {
    cpu_seconds: f64,
    writes: f64,
    log_syncs: f64,
}

impl ServerCounters {
    async fn read(target: &Target) -> Result<Self> {
        let cpu = target.pid.and_then(process::cpu_seconds);
        let (_, page) = target.send(Method::GET, "/_prometheus/metrics", "text/plain", "").await?;
        let page = String::from_utf8_lossy(&page).into_owned();
        let figure = |name: &str| {
            let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|value| value.parse().ok()).ok_or_else(|| anyhow!("the page has no {name}"))
        };
        Ok(Self {
            cpu_seconds: cpu.context("the server's process is gone")?,
            writes: figure("millrace_write_seconds_count")?,
            log_syncs: figure("millrace_log_sync_seconds_count")?,
        })
    }
}

impl AgentsArgs {
    /// Measures and prints the report.
    pub(crate) async fn run(self) -> Result<()> {
        let directory = self.directory.clone().unwrap_or_else(|| temporary("agents"));
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let mut launch = Launch::new(&self.server.binary(), &directory)?;
        let (enrolment, management) = (free_port()?, free_port()?);
        launch.environment = vec![
            ("MILLRACE_AGENTS__ENROLL_LISTEN".to_owned(), format!("127.0.0.1:{enrolment}")),
            ("MILLRACE_AGENTS__LISTEN".to_owned(), format!("127.0.0.1:{management}")),
            ("MILLRACE_AGENTS__ENROLL_PER_MINUTE".to_owned(), "1000000".to_owned()),
        ];
        let server = launch.start().await?;
        let report = self.measure(&server.target, enrolment, management).await;
        let report = report.with_context(|| server.last_words())?;
        server.stop()?;
        std::fs::remove_dir_all(&directory)?;
        println!("{}", serde_json::to_string_pretty(&report)?);
        Ok(())
    }

    async fn measure(&self, target: &Target, enrolment: u16, management: u16) -> Result<AgentReport> {
        let fleet = Arc::new(Fleet {
            address: SocketAddr::from(([127, 0, 0, 1], management)),
            tokens: enrol(enrolment, self.agents).await?,
            interval: Duration::from_secs(self.interval_seconds),
            connections: self.connections as usize,
            latencies: Mutex::default(),
        });
        let time = Duration::from_secs(self.seconds);
        // What enrolments leave to do is done before.
        sleep(Duration::from_secs(5)).await;
        let (silent_core_percent, ..) = rates(target, time, sleep(time)).await?;
        // The first round stores every agent, which no later one does.
        Arc::clone(&fleet).send_for(fleet.interval).await?;
        *fleet.lock_latencies() = Histogram::default();
        let mut sent: Result<u64> = Ok(0);
        let sending = async { sent = Arc::clone(&fleet).send_for(time).await };
        let (core_percent, writes_per_second, log_syncs_per_second) = rates(target, time, sending).await?;
        let keepalives_per_second = sent? as f64 / time.as_secs_f64();
        let cost = (core_percent - silent_core_percent) / 100.0 * 1e6;
        Ok(AgentReport {
            agents: self.agents,
            connections: self.connections,
            keepalives_per_second,
            silent_core_percent,
            core_percent,
            microseconds_per_keepalive: cost / keepalives_per_second,
            writes_per_second,
            log_syncs_per_second,
            latency: fleet.lock_latencies().summary(),
            memory: target.pid.and_then(Memory::new),
        })
    }
}

/// Measures a server meanwhile: its share of a core in percent, its writes and its syncs a second.
async fn rates(target: &Target, time: Duration, work: impl Future<Output = ()>) -> Result<(f64, f64, f64)> {
    let before = ServerCounters::read(target).await?;
    work.await;
    let after = ServerCounters::read(target).await?;
    let rate = |before: f64, after: f64| (after - before) / time.as_secs_f64();
    Ok((
        100.0 * rate(before.cpu_seconds, after.cpu_seconds),
        rate(before.writes, after.writes),
        rate(before.log_syncs, after.log_syncs),
    ))
}

/// Returns the id of an agent.
fn agent_id(number: usize) -> String {
    format!("agent-{number}")
}

/// Enrols agents; returns their tokens, in the order of their numbers.
async fn enrol(port: u16, agents: u32) -> Result<Vec<String>> {
    let target = Target::new("enrolment", &format!("http://127.0.0.1:{port}"), None)?;
    let agents = agents as usize;
    let mut running = JoinSet::new();
    for first in 0..ENROLLERS {
        let target = target.clone();
        running.spawn(async move {
            let mut tokens = Vec::new();
            for number in (first..agents).step_by(ENROLLERS) {
                let body =
                    json!({ "agent_id": agent_id(number), "host": format!("host-{number}.example.com") });
                let answer = target.ask(Method::POST, "/register", &body).await?;
                let token = answer["token"].as_str().ok_or_else(|| anyhow!("no token in {answer}"))?;
                tokens.push((number, token.to_owned()));
            }
            Ok::<_, anyhow::Error>(tokens)
        });
    }
    let mut tokens = vec![String::new(); agents];
    while let Some(enrolled) = running.join_next().await {
        for (number, token) in enrolled?? {
            tokens[number] = token;
        }
    }
    Ok(tokens)
}

impl Fleet {
    fn lock_latencies(&self) -> std::sync::MutexGuard<'_, Histogram> {
        self.latencies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends keep-alives for a while; returns their number.
    async fn send_for(self: Arc<Self>, time: Duration) -> Result<u64> {
        let senders = match self.connections {
            0 => self.tokens.len(),
            connections => connections.min(self.tokens.len()),
        };
        let start = Instant::now();
        let mut running = JoinSet::new();
        for first in 0..senders {
            running.spawn(Arc::clone(&self).send_of_some(first, senders, start, start + time));
        }
        let mut sent = 0;
        while let Some(ended) = running.join_next().await {
            sent += ended??;
        }
        Ok(sent)
    }

    /// Sends the keep-alives of some agents, over one connection where they share it.
    async fn send_of_some(
        self: Arc<Self>,
        first: usize,
        step: usize,
        start: Instant,
        until: Instant,
    ) -> Result<u64> {
        let (mut connection, mut sent) = (None, 0);
        for round in 0_u32.. {
            for agent in (first..self.tokens.len()).step_by(step) {
                let share = agent as f64 / self.tokens.len() as f64;
                let due = start + self.interval * round + self.interval.mul_f64(share);
                if due >= until {
                    return Ok(sent);
                }
                sleep_until(due).await;
                let began = Instant::now();
                let mut stream = match connection.take() {
                    Some(stream) => stream,
                    None => self.connect().await?,
                };
                exchange(&mut stream, &self.request(agent)).await?;
                self.lock_latencies().record(began.elapsed());
                sent += 1;
                connection = (self.connections > 0).then_some(stream);
            }
        }
        Ok(sent)
    }

    async fn connect(&self) -> Result<TcpStream> {
        let stream =
            TcpStream::connect(self.address).await.context("cannot connect to the listener of agents")?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn request(&self, agent: usize) -> String {
        let body = "{\"os\":\"Debian 13\",\"version\":\"4.9\"}";
        let connection = if self.connections == 0 { "close" } else { "keep-alive" };
        format!(
            "POST /agents/{}/keepalive HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\nconnection: {connection}\r\n\
             content-length: {}\r\n\r\n{body}",
            agent_id(agent),
            self.tokens[agent],
            body.len()
        )
    }
}

/// Sends a request and reads its answer, which has to be one of success.
async fn exchange(stream: &mut TcpStream, request: &str) -> Result<()> {
    stream.write_all(request.as_bytes()).await?;
    let (mut answer, mut chunk) = (Vec::new(), [0; 1024]);
    loop {
        let read = stream.read(&mut chunk).await?;
        answer.extend_from_slice(&chunk[..read]);
        if is_whole(&answer) {
            break;
        }
        if read == 0 || answer.len() > MAX_ANSWER_BYTES {
            bail!("the answer to a keep-alive is cut: {}", String::from_utf8_lossy(&answer));
        }
    }
    if !answer.starts_with(b"HTTP/1.1 200") {
        bail!("a keep-alive was answered: {}", String::from_utf8_lossy(&answer));
    }
    Ok(())
}

/// Returns whether an answer is there to the end that its head announces.
fn is_whole(answer: &[u8]) -> bool {
    const END: &[u8] = b"\r\n\r\n";
    let Some(head) = answer.windows(END.len()).position(|window| window == END) else { return false };
    let text = String::from_utf8_lossy(&answer[..head]).to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    answer.len() >= head + END.len() + length.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_to_their_end() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        assert!(is_whole(answer));
        for end in 0..answer.len() {
            assert!(!is_whole(&answer[..end]), "{end}");
        }
    }
}
