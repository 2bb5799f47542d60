//! Measures rules that wait for windows: 1,000 of them, 300 with a key of 1,000 values, at 20,000 events a second.
//!
//! `cargo run --release -p millrace-rules --example waiting -- [seconds of events] [rules that an event matches]`; what it takes is
//! told as a share of the time that the events stand for, with the memory of the process.

#![allow(clippy::disallowed_methods, reason = "the crate has no clock; an example measures real time")]

use std::sync::Arc;

use millrace_rules::definition::Definition;
use millrace_rules::engine::{Engine, Frame, Matcher, Operation, Rule, RuleMatches};
use millrace_rules::{Bounds, Event, Origin, Time, Times, Timing};
use serde_json::{Value, json};

const RULES: usize = 1_000;
const KEYED: usize = 300;
const KEYS: usize = 1_000;
const PER_SECOND: usize = 20_000;
const FRAMES: usize = 50;
const START: i64 = 1_796_860_800_000;

/// Each event matches the rules of its group.
struct Groups {
    ids: Vec<Vec<String>>,
}

impl Matcher for Groups {
    fn matches(&mut self, frame: &Frame) -> Vec<RuleMatches> {
        let groups = self.ids.len() as u64;
        let mut all = Vec::new();
        for (group, ids) in self.ids.iter().enumerate() {
            let places: Vec<usize> = (0..frame.events.len())
                .filter(|place| frame.events[*place].seq_no % groups == group as u64)
                .collect();
            let second: Vec<usize> = places.iter().copied().filter(|place| place % 5 == 0).collect();
            all.extend(ids.iter().map(|id| RuleMatches {
                rule: id.clone(),
                outcome: Ok(places.clone()),
                second: second.clone(),
            }));
        }
        all
    }
}

fn rule(number: usize) -> Result<Rule, millrace_rules::Error> {
    let mut written = json!({"name": format!("rule {number}"), "index": "logs-*", "recovery": true});
    let of_type = match number % 5 {
        0 => json!({"type": "flatline", "threshold": 1, "timeframe": "5m"}),
        1 => json!({"type": "spike", "spike_height": 5, "spike_type": "both", "timeframe": "5m"}),
        2 => {
            json!({"type": "metric_aggregation", "metric_agg_key": "n", "metric_agg_type": "avg", "max_threshold": 1e9})
        }
        3 => json!({"type": "percentage_match", "match_bucket_filter": [], "max_percentage": 90}),
        _ => json!({"type": "cardinality", "cardinality_field": "n", "min_cardinality": 2}),
    };
    if let (Value::Object(rule), Value::Object(of_type)) = (&mut written, of_type) {
        rule.extend(of_type);
        if number < KEYED {
            rule.insert("query_key".to_owned(), json!("user"));
        }
    }
    let (id, owner) = (format!("r{number:04}"), "somebody".to_owned());
    Ok(Rule { id, revision: 1, since: 0, owner, definition: Definition::parse(&written)? })
}

/// The resident memory of the process, in MiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>());
    let seconds = arguments.next().transpose()?.unwrap_or(600);
    let matching = arguments.next().transpose()?.unwrap_or(10).clamp(1, RULES);
    let groups = RULES / matching;
    let mut engine = Engine::new(Timing::default(), Bounds::default());
    let mut ids = vec![Vec::new(); groups];
    for number in 0..RULES {
        let rule = rule(number)?;
        ids[number % groups].push(rule.id.clone());
        engine.put(rule);
    }
    let mut matcher = Groups { ids };
    let sources: Vec<Arc<Value>> = (0..KEYS)
        .map(|key| {
            Arc::new(json!({"user": format!("user-{key:04}"), "n": key % 7, "message": "x".repeat(200)}))
        })
        .collect();
    let (index, uuid, id): (Arc<str>, Arc<str>, Arc<str>) = ("logs-1".into(), "u".into(), "d".into());
    let mut random = 1_u64;
    let (mut raised, mut longest, mut serial) = (0_usize, 0.0_f64, 0_u64);
    let began = std::time::Instant::now();
    for number in 0..(seconds * FRAMES) as u64 {
        let time = Time::from_ms(START + number as i64 * 1000 / FRAMES as i64);
        let events = (0..PER_SECOND / FRAMES).map(|_| {
            serial += 1;
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            Event {
                index: index.clone(),
                uuid: uuid.clone(),
                shard: 0,
                seq_no: serial,
                id: id.clone(),
                created: true,
                times: Times::default(),
                source: sources[(random >> 33) as usize % KEYS].clone(),
            }
        });
        let frame = Frame {
            number: number + 1,
            time,
            origin: Origin::User,
            events: events.collect(),
            complete: true,
        };
        let frame_began = std::time::Instant::now();
        let operations = engine.frame(&frame, &mut matcher);
        longest = longest.max(frame_began.elapsed().as_secs_f64());
        raised += operations.iter().filter(|operation| matches!(operation, Operation::Alert { .. })).count();
        if number % (60 * FRAMES as u64) == 0 {
            engine.tick();
        }
    }
    let took = began.elapsed().as_secs_f64();
    let keys: usize = (0..RULES)
        .filter_map(|number| engine.status(&format!("r{number:04}")))
        .map(|status| status.state.keys)
        .sum();
    println!(
        "{seconds} s of {PER_SECOND} events/s, {matching} rules an event: {took:.1} s ({:.0} %), longest frame {:.0} ms, \
         {keys} keys, {raised} alerts, {} MiB, snapshot {} MiB",
        took / seconds as f64 * 100.0,
        longest * 1000.0,
        memory(),
        engine.snapshot().len() >> 20
    );
    Ok(())
}
