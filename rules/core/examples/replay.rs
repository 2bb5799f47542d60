//! Runs rules over events, one frame each: for comparing with other engines.
//!
//! Each line of the input is `{"rule": {…}, "events": [{…}, …]}`; each line of the output is the list of the rule's alerts,
//! `{"trigger": <place of the event>, "@timestamp", "key", "match_body"}`, or `{"error": …}`. Filters are not evaluated:
//! each event matches.

use std::io::{self, BufRead, Write};
use std::sync::Arc;

use millrace_rules::definition::Definition;
use millrace_rules::engine::{Engine, Frame, Matcher, Operation, Rule, RuleMatches};
use millrace_rules::{Bounds, Event, Origin, Time, Timing};
use serde_json::{Value, json};

struct MatchAll;

impl Matcher for MatchAll {
    fn matches(&mut self, frame: &Frame) -> Vec<RuleMatches> {
        vec![RuleMatches {
            rule: "r".to_owned(),
            outcome: Ok((0..frame.events.len()).collect()),
            second: Vec::new(),
        }]
    }
}

fn replay(line: &str) -> Result<Value, String> {
    let input: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let definition = Definition::parse(&input["rule"]).map_err(|error| error.to_string())?;
    let mut engine = Engine::new(Timing::default(), Bounds::default());
    engine.put(Rule { id: "r".to_owned(), revision: 1, since: 0, owner: String::new(), definition });
    let mut alerts = Vec::new();
    let mut now = Time::default();
    for (place, source) in input["events"].as_array().into_iter().flatten().enumerate() {
        now = source.get("@timestamp").and_then(Time::read).unwrap_or(now).max(now);
        let event = Event {
            times: Default::default(),
            index: "i".into(),
            uuid: "u".into(),
            shard: 0,
            seq_no: place as u64,
            id: place.to_string().into(),
            created: true,
            source: Arc::new(source.clone()),
        };
        let number = place as u64 + 1;
        let frame = Frame { number, time: now, origin: Origin::User, events: vec![event], complete: true };
        for operation in engine.frame(&frame, &mut MatchAll) {
            if let Operation::Alert { document, .. } = operation {
                alerts.push(json!({
                    "trigger": place,
                    "@timestamp": document["@timestamp"],
                    "key": document["key"],
                    "match_body": document["match_body"],
                }));
            }
        }
    }
    Ok(Value::Array(alerts))
}

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let answer = replay(&line?).unwrap_or_else(|error| json!({ "error": error }));
        writeln!(out, "{answer}")?;
    }
    Ok(())
}
