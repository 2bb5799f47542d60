//! Counting by key, beside ElastAlert's class for it: the same events, in memory on both sides, one thread each.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use millrace_rules::definition::Definition;
use millrace_rules::engine::{Engine, Frame, Matcher, Operation, Rule, RuleMatches};
use millrace_rules::{Bounds, Event, Origin, Time, Times, Timing};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::Instant;

/// Script that runs ElastAlert.
const SCRIPT: &str = include_str!("counting.py");
/// Distinct keys.
const KEYS: u64 = 1_000;
/// Events that are handed over at once.
const BATCH: u64 = 500;
/// 10 December 2026.
const START_MS: i64 = 1_796_860_800_000;

/// Times of both.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ElastAlertComparison {
    pub(super) events: u64,
    pub(super) alerts: u64,
    pub(super) own_seconds: f64,
    pub(super) elastalert_seconds: f64,
}

#[derive(Debug, Deserialize)]
struct Answer {
    alerts: u64,
    seconds: f64,
}

struct MatchAll;

impl Matcher for MatchAll {
    fn matches(&mut self, frame: &Frame) -> Vec<RuleMatches> {
        let outcome = Ok((0..frame.events.len()).collect());
        vec![RuleMatches { rule: "r".into(), outcome, second: Vec::new() }]
    }
}

/// Counts so many events by both; they have to raise as many alerts.
pub(super) fn run(python: &Path, events: u64) -> Result<ElastAlertComparison> {
    let asked = Command::new(python)
        .args(["-c", SCRIPT, &events.to_string(), &KEYS.to_string()])
        .output()
        .with_context(|| format!("cannot start {}", python.display()))?;
    if !asked.status.success() {
        bail!("ElastAlert's classes cannot be asked: {}", String::from_utf8_lossy(&asked.stderr));
    }
    let answer: Answer = serde_json::from_slice(&asked.stdout).context("ElastAlert's answer")?;
    let (alerts, own_seconds) = own(events)?;
    if alerts != answer.alerts {
        bail!("{alerts} alerts, ElastAlert has {}", answer.alerts);
    }
    Ok(ElastAlertComparison { events, alerts, own_seconds, elastalert_seconds: answer.seconds })
}

fn own(events: u64) -> Result<(u64, f64)> {
    let rule = json!({
        "name": "r", "index": "i", "type": "frequency", "num_events": 5, "timeframe": "60s", "query_key": "user",
        "filter": [{"match_all": {}}],
    });
    let definition = Definition::parse(&rule).map_err(|error| anyhow::anyhow!("{error}"))?;
    let mut engine = Engine::new(Timing::default(), Bounds::default());
    engine.put(Rule { id: "r".to_owned(), revision: 1, since: 0, owner: String::new(), definition });
    let frames: Vec<Frame> = (0..events).step_by(BATCH as usize).map(|first| frame(first, events)).collect();
    let (mut alerts, started) = (0, Instant::now());
    for frame in &frames {
        let operations = engine.frame(frame, &mut MatchAll);
        alerts += operations.iter().filter(|one| matches!(one, Operation::Alert { .. })).count() as u64;
    }
    Ok((alerts, started.elapsed().as_secs_f64()))
}

fn frame(first: u64, events: u64) -> Frame {
    let event = |number: u64| Event {
        index: "i".into(),
        uuid: "u".into(),
        shard: 0,
        seq_no: number,
        id: number.to_string().into(),
        created: true,
        times: Times::default(),
        source: Arc::new(json!({
            "@timestamp": START_MS + 10 * number as i64,
            "user": format!("user-{}", number * 7_919 % KEYS),
            "n": number,
            "message": "Failed password for invalid user from 10.0.0.1 port 4711 ssh2",
        })),
    };
    let end = (first + BATCH).min(events);
    Frame {
        number: first / BATCH + 1,
        time: Time::from_ms(START_MS + 10 * end as i64),
        origin: Origin::User,
        events: (first..end).map(event).collect(),
        complete: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_alerts_at_its_fifth_event() {
        // A key comes again after 1,000 events, ten seconds later: five are within a minute.
        assert_eq!(own(5_000).unwrap().0, 1_000);
        assert_eq!(own(10_000).unwrap().0, 2_000);
        assert_eq!(own(4_000).unwrap().0, 0);
    }
}
