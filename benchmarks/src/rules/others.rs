//! Costs of rules beside their speed: memory of many keys, the time to go on after a crash, and a test over stored events.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use reqwest::Method;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::mix::Mix;
use super::site::{INDEX, Site};
use super::steady::{self, SteadyLoad, bulk};
use crate::corpus::{Corpus, Ids};
use crate::load;
use crate::measure;
use crate::process::Sampler;
use crate::shape::DocumentKind;

/// Documents of one bulk request of keys.
const BATCH: u64 = 10_000;
/// Times that a test is asked.
const TESTS: usize = 5;

/// Memory of many keys in one rule.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Keys {
    pub(super) keys: u64,
    /// Anonymous memory of the server before and after, and the most meanwhile.
    pub(super) before_bytes: u64,
    pub(super) after_bytes: u64,
    pub(super) most_bytes: u64,
    pub(super) events_per_second: f64,
    /// Alerts that were raised.
    pub(super) alerts: u64,
}

/// Fills a rule with keys that all have two of three events, then completes some.
pub(super) async fn keys(binary: &Path, directory: &Path, keys: u64) -> Result<Keys> {
    let mut site = Site::empty(binary, directory).await?;
    let mapping = json!({"properties": {
        "@timestamp": {"type": "date"}, "user": {"type": "keyword"}, "outcome": {"type": "keyword"},
        "message": {"type": "text"},
    }});
    let body = json!({"settings": {"number_of_shards": 4}, "mappings": mapping});
    site.target.recreate(INDEX, &body).await?;
    let rule = json!({
        "name": "keys", "index": INDEX, "type": "frequency", "num_events": 3, "timeframe": "1d", "query_key": "user",
        "search": {"request": {"body": {"query": {"term": {"outcome": "failed"}}}}},
    });
    site.save([rule].into_iter()).await?;
    let before_bytes = site.anonymous();
    let sampler = site.target.pid.map(Sampler::start);
    let started = Instant::now();
    for round in 0..2 {
        for first in (0..keys).step_by(BATCH as usize) {
            events(&site, round, first..(first + BATCH).min(keys)).await?;
        }
    }
    site.until_evaluated().await?;
    let seconds = started.elapsed().as_secs_f64();
    let after_bytes = site.anonymous();
    // Which shows that none was forgotten.
    events(&site, 2, 0..keys.min(BATCH)).await?;
    let alerts = keys.min(BATCH);
    site.until_alerts(alerts).await?;
    let most_bytes = sampler.map(Sampler::stop).map_or(0, |memory| memory.anonymous_bytes);
    site.no_errors().await?;
    site.stop()?;
    Ok(Keys {
        keys,
        before_bytes,
        after_bytes,
        most_bytes,
        events_per_second: (2 * keys) as f64 / seconds,
        alerts,
    })
}

async fn events(site: &Site, round: u64, users: std::ops::Range<u64>) -> Result<()> {
    let lines = users.map(|user| {
        let event = json!({
            "@timestamp": 1_796_688_000_000_u64 + round, "user": format!("user-{user:08}"), "outcome": "failed",
            "message": "Failed password for invalid user from 10.0.0.1 port 4711 ssh2",
        });
        format!("{{\"index\":{{}}}}\n{event}\n")
    });
    bulk(&site.target, lines.collect::<String>().into_bytes()).await
}

/// A start after a crash under load.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Crash {
    pub(super) rules: u64,
    pub(super) pace: SteadyLoad,
    pub(super) first_answer_seconds: f64,
    /// From the start of the process until rules have seen all that there is.
    pub(super) evaluated_seconds: f64,
    pub(super) alerts: u64,
}

/// Kills a server in the middle of a load, and looks when its rules have caught up. All alerts of what was answered have to be
/// there then.
pub(super) async fn crash(binary: &Path, directory: &Path, mix: Mix, pace: SteadyLoad) -> Result<Crash> {
    let mut site = Site::with_rules(binary, directory, mix).await?;
    let answered = Arc::default();
    let sending = {
        let (target, answered) = (site.target.apart()?, Arc::clone(&answered));
        // It ends with the server.
        let pace = SteadyLoad { seconds: pace.seconds * 2, ..pace };
        tokio::spawn(async move { steady::send(&target, mix, pace, Instant::now(), &answered).await })
    };
    tokio::time::sleep(Duration::from_secs(pace.seconds)).await;
    if sending.is_finished() {
        sending.await??;
        bail!("the load ended before the server was killed");
    }
    let started = Instant::now();
    let first_answer = site.kill_and_start().await?;
    loop {
        let record = site.record().await?;
        // Lag is nothing, too, while nothing is evaluated yet.
        if record["lag"].as_u64() == Some(0) && !record["last_run"].is_null() {
            break;
        }
        if started.elapsed() > Duration::from_secs(300) {
            bail!("rules are behind: {record}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let evaluated = started.elapsed();
    let _ = sending.await?;
    let expected: Vec<u64> =
        answered.lock().unwrap_or_else(std::sync::PoisonError::into_inner).keys().copied().collect();
    // A bulk without an answer may be there, or not; a pair may have its second event in one.
    site.target.ask(Method::POST, "/alert/_refresh", &Value::Null).await?;
    let alerts = site.alerts().await?;
    let pairs = 2 * expected.len() as u64 / 10;
    if alerts + pairs < expected.len() as u64 {
        bail!("{alerts} alerts of about {} are found after the crash", expected.len());
    }
    site.no_errors().await?;
    site.stop()?;
    Ok(Crash {
        rules: mix.rules,
        pace,
        first_answer_seconds: first_answer.as_secs_f64(),
        evaluated_seconds: evaluated.as_secs_f64(),
        alerts,
    })
}

/// A test of a rule over what is stored.
#[derive(Clone, Debug, Serialize)]
pub(super) struct StoredTestReport {
    pub(super) docs: u64,
    pub(super) alerts: u64,
    /// Of each time that it was asked.
    pub(super) seconds: Vec<f64>,
}

/// Tests a rule that one document in a thousand matches.
pub(super) async fn tested(
    binary: &Path,
    directory: &Path,
    corpora: &Path,
    docs: u64,
    clients: usize,
) -> Result<StoredTestReport> {
    let shape = DocumentKind::HttpLogs;
    let corpus: Arc<Corpus> = measure::corpus(corpora, shape, docs, 1, Ids::Generated)?;
    let site = Site::empty(binary, directory).await?;
    let mut body = shape.index_body();
    body["settings"]["number_of_shards"] = 4.into();
    site.target.recreate(INDEX, &body).await?;
    load::run(&site.target, INDEX, &corpus, clients, None).await?;
    site.target.settle(INDEX).await?;
    let rule = json!({
        "name": "tested", "index": INDEX, "type": "any",
        "search": {"request": {"body": {"query": {"term": {"status": 302}}}}},
    });
    let body = json!({"rule": rule, "from": "now-1d"});
    let (mut seconds, mut alerts) = (Vec::new(), 0);
    for _ in 0..TESTS {
        let started = Instant::now();
        let answer = site.console.ask(Method::POST, "/api/alert/test", &body).await?;
        seconds.push(started.elapsed().as_secs_f64());
        alerts = answer["total"].as_u64().with_context(|| format!("a test without a total: {answer}"))?;
    }
    let query = json!({"query": {"term": {"status": 302}}});
    let counted = site.target.ask(Method::POST, &format!("/{INDEX}/_count"), &query).await?;
    if counted["count"].as_u64() != Some(alerts) {
        bail!("a test has {alerts} alerts, a search {} hits", counted["count"]);
    }
    site.stop()?;
    Ok(StoredTestReport { docs, alerts, seconds })
}
