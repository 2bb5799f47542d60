//! A server with rules.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::mix::Mix;
use crate::process;
use crate::server::{Launch, Server, free_port};
use crate::target::Target;

/// The index that rules watch.
pub(super) const INDEX: &str = "bench-rules";
/// Requests at a time that save rules.
const SAVING: usize = 8;
/// Pause between two looks at something that is waited for.
const LOOK: Duration = Duration::from_millis(100);
/// Longest time that is waited for anything.
const PATIENCE: Duration = Duration::from_secs(600);

/// A server and its console.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) launch: Launch,
    pub(super) server: Server,
    pub(super) target: Target,
    pub(super) console: Target,
    /// One of the rules.
    pub(super) rule: Option<String>,
}

impl Site {
    /// Starts a server on an empty directory, with the index and the rules of a mix.
    pub(super) async fn with_rules(binary: &Path, directory: &Path, mix: Mix) -> Result<Self> {
        let mut site = Self::empty(binary, directory).await?;
        site.target.recreate(INDEX, &mix.events.index_body()).await?;
        site.save((0..mix.rules).map(|rule| mix.rule(rule, INDEX))).await?;
        Ok(site)
    }

    /// Starts a server on an empty directory.
    pub(super) async fn empty(binary: &Path, directory: &Path) -> Result<Self> {
        let _ = std::fs::remove_dir_all(directory);
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let mut launch = Launch::new(binary, directory)?;
        let port = free_port()?;
        let listen = ("MILLRACE_CONSOLE__LISTEN".to_owned(), format!("127.0.0.1:{port}"));
        launch.environment.push(listen);
        Self::start(launch, port).await
    }

    async fn start(launch: Launch, port: u16) -> Result<Self> {
        let server = launch.start().await?;
        let mut console = Target::new("console", &format!("http://127.0.0.1:{port}"), None)?;
        console.is_console = true;
        Ok(Self { target: server.target.clone(), launch, server, console, rule: None })
    }

    /// Kills the server and starts it again; returns how long it took to its first answer.
    pub(super) async fn kill_and_start(&mut self) -> Result<Duration> {
        self.server.kill()?;
        self.server = self.launch.start().await?;
        self.target = self.server.target.clone();
        // Without connections to the one that is gone.
        self.console = self.console.apart()?;
        Ok(self.server.started_in)
    }

    /// Saves rules.
    pub(super) async fn save(&mut self, rules: impl Iterator<Item = Value>) -> Result<()> {
        let console = self.console.clone();
        let saved = stream::iter(rules).map(|rule| {
            let console = console.clone();
            async move {
                let answer = console.ask(Method::POST, "/api/alert/change", &rule).await?;
                answer["id"].as_str().map(str::to_owned).context("a saved rule has no id")
            }
        });
        let ids: Vec<String> = saved.buffer_unordered(SAVING).try_collect().await?;
        self.rule = ids.into_iter().next().or(self.rule.take());
        Ok(())
    }

    /// Reads the record of the rule that is watched.
    pub(super) async fn record(&self) -> Result<Value> {
        let rule = self.rule.as_deref().context("there is no rule")?;
        self.console.ask(Method::GET, &format!("/api/alert/show/{rule}"), &Value::Null).await
    }

    /// Reads for how long the oldest frame has been waiting that is not evaluated, in milliseconds.
    pub(super) async fn lag_ms(&self) -> Result<u64> {
        self.record().await?["lag"].as_u64().context("a rule's record has no lag")
    }

    /// Counts alerts that a search finds.
    pub(super) async fn alerts(&self) -> Result<u64> {
        let answer = self.target.ask(Method::GET, "/alert/_count?ignore_unavailable=true", &Value::Null);
        answer.await?["count"].as_u64().context("alerts were not counted")
    }

    /// Waits until so many alerts are found, and returns how long that took.
    pub(super) async fn until_alerts(&self, alerts: u64) -> Result<Duration> {
        let started = Instant::now();
        loop {
            let found = self.alerts().await?;
            if found >= alerts {
                return Ok(started.elapsed());
            }
            if started.elapsed() > PATIENCE {
                bail!("{found} of {alerts} alerts are found after {PATIENCE:?}");
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until all frames are evaluated.
    pub(super) async fn until_evaluated(&self) -> Result<Duration> {
        let started = Instant::now();
        while self.rule.is_some() && self.lag_ms().await? > 0 {
            if started.elapsed() > PATIENCE {
                bail!("rules are behind after {PATIENCE:?}");
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(started.elapsed())
    }

    /// Refuses what stands in `alert_error`: there is to be nothing.
    pub(super) async fn no_errors(&self) -> Result<()> {
        self.target.ask(Method::POST, "/alert_error/_refresh?ignore_unavailable=true", &Value::Null).await?;
        let body = json!({"size": 3});
        let path = "/alert_error/_search?ignore_unavailable=true";
        let answer = self.target.ask(Method::POST, path, &body).await?;
        match answer["hits"]["total"]["value"].as_u64() {
            Some(0) => Ok(()),
            _ => bail!("alert_error has: {}", answer["hits"]),
        }
    }

    /// Reads the processor time of the server so far, in seconds.
    pub(super) fn cpu(&self) -> f64 {
        self.target.pid.and_then(process::cpu_seconds).unwrap_or(f64::NAN)
    }

    /// Reads the anonymous memory of the server now, in bytes.
    pub(super) fn anonymous(&self) -> u64 {
        self.target.pid.and_then(process::Memory::new).unwrap_or_default().anonymous_bytes
    }

    /// Ends the server, and frees its directory.
    pub(super) fn stop(self) -> Result<()> {
        self.server.stop()?;
        std::fs::remove_dir_all(&self.launch.data)?;
        Ok(())
    }
}
