//! Events at full speed, with rules and without: how much slower they are taken, and what an event costs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use reqwest::Method;
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use super::mix::Mix;
use super::site::{INDEX, Site};
use crate::corpus::Corpus;
use crate::load;
use crate::process::Memory;

/// Pause between the saving of rules and the load.
const SETTLED: Duration = Duration::from_secs(1);

/// One load of all events.
#[derive(Clone, Debug, Serialize)]
pub(super) struct FullSpeedRun {
    pub(super) rules: u64,
    pub(super) docs: u64,
    /// Seconds from the first request to the last answer.
    pub(super) seconds: f64,
    pub(super) docs_per_second: f64,
    /// Seconds from the last answer until all alerts are found.
    pub(super) alerts_after_seconds: f64,
    /// Microseconds of the server's processor time an event, from the first request until everything is evaluated and flushed.
    pub(super) cpu_us: f64,
    pub(super) memory_max: Option<Memory>,
}

/// Loads events into a new server with the rules of a mix.
pub(super) async fn run(
    binary: &Path,
    directory: &Path,
    mix: Mix,
    (corpus, alerts): (&Arc<Corpus>, u64),
    clients: usize,
) -> Result<FullSpeedRun> {
    let site = Site::with_rules(binary, directory, mix).await?;
    site.until_evaluated().await?;
    tokio::time::sleep(SETTLED).await;
    let cpu_before = site.cpu();
    let load = load::run(&site.target, INDEX, corpus, clients, None).await?;
    let answered = Instant::now();
    let alerts = if mix.rules == 0 { 0 } else { alerts };
    if mix.rules > 0 {
        site.until_alerts(alerts).await?;
    }
    let alerts_after = answered.elapsed();
    site.until_evaluated().await?;
    site.target.ask(Method::POST, &format!("/{INDEX}/_flush"), &Value::Null).await?;
    let cpu = site.cpu() - cpu_before;
    site.no_errors().await?;
    let found = (site.target.refresh_and_count(INDEX).await?, site.alerts().await?);
    if load.refused > 0 || found != (load.docs, alerts) {
        bail!("{found:?} events and alerts are found of {:?}", (load.docs, alerts));
    }
    site.stop()?;
    Ok(FullSpeedRun {
        rules: mix.rules,
        docs: load.docs,
        seconds: load.seconds,
        docs_per_second: load.docs_per_second,
        alerts_after_seconds: alerts_after.as_secs_f64(),
        cpu_us: cpu * 1e6 / load.docs as f64,
        memory_max: load.memory_max,
    })
}

/// Returns the middle of a figure of runs with so many rules.
pub(super) fn median(runs: &[FullSpeedRun], rules: u64, figure: impl Fn(&FullSpeedRun) -> f64) -> f64 {
    let mut found: Vec<f64> = runs.iter().filter(|run| run.rules == rules).map(figure).collect();
    found.sort_by(f64::total_cmp);
    found.get(found.len() / 2).copied().unwrap_or(f64::NAN)
}
