//! The crash test: kill the server at random moments under concurrent writes, start it again, and
//! compare all that it has with all that it acknowledged.
//!
//! [`writer`] sends, [`oracle`] decides, [`verify`] looks. Everything but the kernel's scheduling
//! follows from the seed, which is printed.

mod cli;
mod oracle;
mod verify;
mod writer;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::random::Random;
use crate::server::{Launch, Server};
use crate::target::Target;

pub(crate) use cli::CrashArgs;
use oracle::Counter;
use writer::{COUNTERS, Counters, INDEX, Writer, WriterEnd};

/// Number of shared counters.
const SHARED: usize = 3;

/// Plan of a run.
#[derive(Clone, Debug)]
struct Plan {
    /// The server's binary.
    server: PathBuf,
    /// Directory for data and log; removed after success.
    directory: PathBuf,
    /// Kills.
    cycles: u64,
    /// Concurrent writers.
    writers: usize,
    /// Shards of the index.
    shards: u32,
    /// Longest time between start and kill.
    longest: Duration,
    /// Seed of everything.
    seed: u64,
    /// Environment of the server.
    environment: Vec<(String, String)>,
}

impl Plan {
    /// Runs all cycles.
    ///
    /// # Errors
    ///
    /// A violation, with the cycle, the seed and what was found.
    async fn run(&self) -> Result<()> {
        let directory = &self.directory;
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let mut launch = Launch::new(&self.server, directory)?;
        if launch.data.exists() {
            bail!("{} holds data already: name another --directory", launch.data.display());
        }
        launch.environment.clone_from(&self.environment);
        println!(
            "crash test: seed {}, {} cycles, {} writers, {} shards\n    {}",
            self.seed,
            self.cycles,
            self.writers,
            self.shards,
            launch.command_line()
        );
        let found = self.cycles_on(&launch).await;
        if let Err(error) = &found {
            eprintln!("seed {}: {error:#}\ndata and log are kept in {}", self.seed, directory.display());
        } else {
            std::fs::remove_dir_all(directory)?;
        }
        found
    }

    async fn cycles_on(&self, launch: &Launch) -> Result<()> {
        let started = Instant::now();
        let mut random = Random::new(self.seed);
        let mut writers: Vec<Writer> =
            (0..self.writers).map(|number| Writer::new(number, self.seed)).collect();
        let counters: Counters = Arc::new((0..SHARED).map(|_| Mutex::new(Counter::default())).collect());
        let mut server = launch.start().await?;
        self.create(&server.target).await?;
        for cycle in 1..=self.cycles {
            let pause = Duration::from_micros(random.below(self.longest.as_micros() as u64).max(20_000));
            let before: u64 = writers.iter().map(|writer| writer.acknowledged).sum();
            writers = write_until_killed(&mut server, writers, &counters, pause)
                .await
                .with_context(|| format!("cycle {cycle}, before the kill"))?;
            server = launch.start().await.with_context(|| format!("cycle {cycle}, starting again"))?;
            let recovered = server.started_in;
            let live = verify::run(&server.target, &mut writers, &counters)
                .await
                .with_context(|| format!("cycle {cycle}, after the kill"))?;
            let after: u64 = writers.iter().map(|writer| writer.acknowledged).sum();
            println!(
                "cycle {cycle}/{}: killed after {} ms, {} operations acknowledged, up again in {} ms, {live} documents right",
                self.cycles,
                pause.as_millis(),
                after - before,
                recovered.as_millis(),
            );
        }
        server.stop().context("orderly stop")?;
        let server = launch.start().await.context("start after an orderly stop")?;
        verify::run(&server.target, &mut writers, &counters).await.context("after an orderly stop")?;
        server.stop().context("last stop")?;
        let total: u64 = writers.iter().map(|writer| writer.acknowledged).sum();
        if total == 0 {
            bail!("no operation was acknowledged: nothing was tested");
        }
        println!(
            "crash test passed: {} kills, {total} acknowledged operations, {:.0} s, seed {}",
            self.cycles,
            started.elapsed().as_secs_f64(),
            self.seed
        );
        Ok(())
    }

    async fn create(&self, target: &Target) -> Result<()> {
        let body = json!({
            "settings": {"number_of_shards": self.shards, "number_of_replicas": 0},
            "mappings": {"properties": {
                "token": {"type": "keyword"},
                "writer": {"type": "integer"},
                "n": {"type": "long"},
                "text": {"type": "text"},
            }},
        });
        target.recreate(INDEX, &body).await?;
        let body: Value = json!({"settings": {"number_of_shards": 1, "number_of_replicas": 0}});
        target.recreate(COUNTERS, &body).await
    }
}

/// Lets the writers write for a while, kills the server under them, and gives them back.
async fn write_until_killed(
    server: &mut Server,
    writers: Vec<Writer>,
    counters: &Counters,
    pause: Duration,
) -> Result<Vec<Writer>> {
    let mut running = tokio::task::JoinSet::new();
    for mut writer in writers {
        let (target, counters) = (server.target.clone(), Arc::clone(counters));
        running.spawn(async move {
            let end = writer.run(&target, &counters).await;
            (writer, end)
        });
    }
    tokio::time::sleep(pause).await;
    if let Some(status) = server.exited()? {
        bail!("the server ended by itself with {status}: {}", server.last_words());
    }
    server.kill()?;
    let (mut writers, mut violations) = (Vec::new(), Vec::new());
    while let Some(ended) = running.join_next().await {
        let (writer, end) = ended?;
        if let WriterEnd::Violation(violation) = end {
            violations.push(violation);
        }
        writers.push(writer);
    }
    if !violations.is_empty() {
        bail!("{}", violations.join("\n"));
    }
    Ok(writers)
}
