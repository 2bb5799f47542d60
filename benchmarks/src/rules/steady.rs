//! Events at a set rate: how far rules are behind, and how long after a bulk's answer its alerts are found.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use reqwest::{Method, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::feed::{Body, Feed};
use super::mix::{Mix, planted};
use super::site::{INDEX, Site};
use crate::latency::{Histogram, Summary};
use crate::process::{Memory, Sampler};
use crate::target::{Target, reason};

/// Bulk clients.
const CLIENTS: usize = 4;
/// Pause between two looks for alerts: their possible lateness.
const LOOK: Duration = Duration::from_millis(25);
/// Pause between two looks at the lag.
const LAG_EACH: Duration = Duration::from_millis(50);
/// The beginning, which warms up, counts for nothing.
const WARM_UP: Duration = Duration::from_secs(5);
/// Time after the last answer within which an alert may come.
const LAST: Duration = Duration::from_secs(60);
/// Alerts of one search.
const HITS: usize = 10_000;

/// The load.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct SteadyLoad {
    /// Events a second.
    pub(super) rate: u64,
    pub(super) seconds: u64,
}

/// Report of a steady rate.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Steady {
    pub(super) rules: u64,
    pub(super) pace: SteadyLoad,
    pub(super) events: u64,
    pub(super) events_per_second: f64,
    /// From when a bulk was due to its answer.
    pub(super) bulks: Summary,
    /// Age of the oldest frame that was not evaluated, sampled all the time.
    pub(super) lag: Summary,
    /// The mean of the first and of the last quarter, in milliseconds.
    pub(super) lag_first_ms: f64,
    pub(super) lag_last_ms: f64,
    pub(super) alerts: u64,
    /// From the answer of the bulk that has the last event of an alert to a search that finds it.
    pub(super) found: Summary,
    /// Seconds of the server's processor time.
    pub(super) cpu_seconds: f64,
    pub(super) memory_max: Option<Memory>,
}

/// Times of events, by number.
type TimesByNumber = Arc<Mutex<HashMap<u64, Instant>>>;

fn lock(moments: &TimesByNumber) -> std::sync::MutexGuard<'_, HashMap<u64, Instant>> {
    moments.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends events at a pace and watches.
pub(super) async fn run(site: &Site, mix: Mix, pace: SteadyLoad) -> Result<Steady> {
    let (answered, found) = (TimesByNumber::default(), TimesByNumber::default());
    let over = Arc::new(AtomicBool::new(false));
    let sampler = site.target.pid.map(Sampler::start);
    let cpu_before = site.cpu();
    let finder = tokio::spawn(find(site.target.apart()?, mix, Arc::clone(&found), Arc::clone(&over)));
    let watcher = tokio::spawn(watch(site.console.apart()?, site.rule.clone(), Arc::clone(&over)));
    let started = Instant::now();
    let sent = send(&site.target, mix, pace, started, &answered).await?;
    let seconds = started.elapsed().as_secs_f64();
    let ended = Instant::now();
    let expected = mix.alerts(sent.wanted);
    while (lock(&found).len() as u64) < expected && ended.elapsed() < LAST && !finder.is_finished() {
        tokio::time::sleep(LOOK).await;
    }
    over.store(true, Ordering::Relaxed);
    finder.await??;
    let lags = watcher.await??;
    let cpu_seconds = site.cpu() - cpu_before;
    let memory_max = sampler.map(Sampler::stop);
    let (answered, found) = (lock(&answered), lock(&found));
    if found.len() as u64 != expected {
        bail!("{} of {expected} alerts were found within {LAST:?} of the last bulk", found.len());
    }
    let mut times = Histogram::default();
    for (alert, at) in answered.iter().filter(|(_, at)| **at - started > WARM_UP) {
        let found = found.get(alert).with_context(|| format!("alert {alert} was not found"))?;
        times.record(found.saturating_duration_since(*at));
    }
    let (mut lag, mut quarters) = (Histogram::default(), [(0.0, 0_u32); 4]);
    let length = started.elapsed().saturating_sub(ended.elapsed()).as_secs_f64();
    for (at, ms) in lags {
        let since = at.saturating_duration_since(started);
        if since > WARM_UP && at < ended {
            lag.record(Duration::from_millis(ms));
            let quarter = &mut quarters[((since.as_secs_f64() / length * 4.0) as usize).min(3)];
            *quarter = (quarter.0 + ms as f64, quarter.1 + 1);
        }
    }
    let mean = |quarter: (f64, u32)| quarter.0 / f64::from(quarter.1.max(1));
    Ok(Steady {
        rules: mix.rules,
        pace,
        events: sent.docs,
        events_per_second: sent.docs as f64 / seconds,
        bulks: sent.bulks.summary(),
        lag: lag.summary(),
        lag_first_ms: mean(quarters[0]),
        lag_last_ms: mean(quarters[3]),
        alerts: expected,
        found: times.summary(),
        cpu_seconds,
        memory_max,
    })
}

/// Report of the sender.
#[derive(Debug, Default)]
pub(super) struct SentReport {
    pub(super) docs: u64,
    /// Events that rules ask for.
    pub(super) wanted: u64,
    bulks: Histogram,
}

/// Sends events; notes for each alert when the last bulk was answered that has an event of it.
pub(super) async fn send(
    target: &Target,
    mix: Mix,
    pace: SteadyLoad,
    started: Instant,
    answered: &TimesByNumber,
) -> Result<SentReport> {
    let (sender, receiver) = mpsc::channel::<(Instant, Body)>(2);
    let producer = tokio::task::spawn_blocking(move || {
        let mut feed = Feed::new(mix, pace.rate);
        let (total, mut docs) = (pace.rate * pace.seconds, 0);
        while docs < total {
            let body = feed.body(total - docs)?;
            docs += body.docs;
            // A body is due when its last event is there.
            let due = started + Duration::from_secs_f64(docs as f64 / pace.rate as f64);
            if sender.blocking_send((due, body)).is_err() {
                break;
            }
        }
        Ok::<_, anyhow::Error>(())
    });
    let receiver = Arc::new(tokio::sync::Mutex::new(receiver));
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let (target, receiver) = (target.clone(), Arc::clone(&receiver));
        let answered = Arc::clone(answered);
        clients.spawn(async move {
            let mut sent = SentReport::default();
            loop {
                let next = receiver.lock().await.recv().await;
                let Some((due, body)) = next else { return Ok::<_, anyhow::Error>(sent) };
                tokio::time::sleep_until(due).await;
                bulk(&target, body.bytes).await?;
                let now = Instant::now();
                sent.bulks.record(now.saturating_duration_since(due));
                sent.docs += body.docs;
                sent.wanted = sent.wanted.max(body.wanted.end);
                let mut answered = lock(&answered);
                for number in body.wanted {
                    // The later one of a pair counts.
                    answered.insert(mix.alert(number), now);
                }
            }
        });
    }
    let mut all = SentReport::default();
    while let Some(sent) = clients.join_next().await {
        let sent = sent??;
        all.docs += sent.docs;
        all.wanted = all.wanted.max(sent.wanted);
        all.bulks.merge(&sent.bulks);
    }
    producer.await??;
    // Of a pair whose second event was never sent there is no alert.
    lock(answered).retain(|alert, _| *alert < all.wanted);
    Ok(all)
}

/// Sends a bulk request until it is taken.
pub(super) async fn bulk(target: &Target, body: Vec<u8>) -> Result<()> {
    let body = bytes::Bytes::from(body);
    loop {
        let path = format!("/{INDEX}/_bulk?filter_path=errors");
        let (status, answer) = target.send(Method::POST, &path, "application/x-ndjson", body.clone()).await?;
        match status {
            StatusCode::OK if answer == br#"{"errors":false}"# => return Ok(()),
            StatusCode::TOO_MANY_REQUESTS => tokio::time::sleep(Duration::from_millis(20)).await,
            _ => bail!("a bulk request was answered {status}: {:.300}", String::from_utf8_lossy(&answer)),
        }
    }
}

/// Looks for alerts until it is over.
async fn find(target: Target, mix: Mix, found: TimesByNumber, over: Arc<AtomicBool>) -> Result<()> {
    // Alerts are looked for again for some seconds: those of one time may be found one after the other.
    let mut cursors: Vec<(Instant, String)> = Vec::new();
    loop {
        let is_over = over.load(Ordering::Relaxed);
        let settled = cursors.iter().rposition(|(at, _)| at.elapsed() > Duration::from_secs(2));
        cursors.drain(..settled.unwrap_or(0));
        let query = match cursors.first() {
            Some((_, time)) => json!({"range": {"alert_time": {"gte": time}}}),
            None => json!({"match_all": {}}),
        };
        let body = json!({
            "size": HITS, "track_total_hits": false, "query": query, "sort": [{"alert_time": "asc"}],
            "_source": ["match_body.request", "match_body.event.id", "alert_time"],
        });
        let path = "/alert/_search?ignore_unavailable=true";
        let (status, answer) = target.json(Method::POST, path, &body).await?;
        if !status.is_success() {
            bail!("a search for alerts was answered {status}: {}", reason(&answer));
        }
        let now = Instant::now();
        let hits = answer["hits"]["hits"].as_array().map(Vec::as_slice).unwrap_or_default();
        {
            let mut found = lock(&found);
            for hit in hits {
                let number = planted(&hit["_source"]["match_body"]).context("an alert of no event")?;
                found.entry(mix.alert(number)).or_insert(now);
            }
        }
        let last = hits.last().and_then(|hit| hit["_source"]["alert_time"].as_str());
        if let Some(last) = last.filter(|last| cursors.last().is_none_or(|(_, known)| known != last)) {
            let at = if hits.len() == HITS { now - Duration::from_secs(3) } else { now };
            cursors.push((at, last.to_owned()));
        }
        if is_over {
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Looks at the lag until it is over.
async fn watch(console: Target, rule: Option<String>, over: Arc<AtomicBool>) -> Result<Vec<(Instant, u64)>> {
    let path = format!("/api/alert/show/{}", rule.context("there is no rule")?);
    let mut lags = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let record = console.ask(Method::GET, &path, &Value::Null).await?;
        lags.push((Instant::now(), record["lag"].as_u64().context("a rule's record has no lag")?));
        tokio::time::sleep(LAG_EACH).await;
    }
    Ok(lags)
}
