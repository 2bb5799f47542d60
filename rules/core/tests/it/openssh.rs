//! Five failed passwords within a minute, over a real `auth.log`: OpenSSH_2k.log of the Loghub collection.
//!
//! The log is not part of the sources: `RULES_OPENSSH_LOG` names the file. It has no year; 2026 is taken.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_rules::definition::Definition;
use millrace_rules::engine::{Engine, Frame, Operation, Rule};
use millrace_rules::{Bounds, Event, Origin, Time, Timing};
use serde_json::json;

use crate::filter::Filter;

/// The time and the address of a failed password, and how often it is told.
fn failure(line: &str, expand: bool) -> Option<(Time, &str, usize)> {
    let (_, text) = line.split_once("]: ")?;
    let (text, times) = match text.strip_prefix("message repeated ") {
        Some(repeated) if expand => {
            let (times, rest) = repeated.split_once(" times: [ ")?;
            (rest, times.parse().ok()?)
        }
        Some(_) => return None,
        None => (text, 1),
    };
    let address = text.strip_prefix("Failed password for ")?.split(" from ").last()?.split(' ').next()?;
    let mut stamp = line.split_whitespace();
    let (month, day, time) = (stamp.next()?, stamp.next()?, stamp.next()?);
    assert_eq!(month, "Dec");
    Some((Time::parse(&format!("2026-12-{day:0>2}T{time}Z"))?, address, times))
}

/// Returns how many alerts there are, and over how many addresses.
fn alerts(log: &str, expand: bool) -> (usize, usize) {
    let definition = Definition::parse(&json!({
        "name": "brute force", "index": "openssh-*", "num_events": 5, "timeframe": "60s", "query_key": "source_ip",
    }))
    .unwrap();
    let rule = Rule { id: "r".to_owned(), revision: 1, since: 0, owner: "admin".to_owned(), definition };
    let mut matcher = Filter::new("r", &rule.definition);
    let mut engine = Engine::new(Timing::default(), Bounds::default());
    engine.put(rule);
    let (mut number, mut found, mut addresses) = (0, 0, BTreeSet::new());
    for (time, address, times) in log.lines().filter_map(|line| failure(line, expand)) {
        for _ in 0..times {
            number += 1;
            let event = Event {
                times: Default::default(),
                index: "openssh-2026".into(),
                uuid: "u".into(),
                shard: 0,
                seq_no: number,
                id: number.to_string().into(),
                created: true,
                source: Arc::new(json!({"@timestamp": time.iso(), "source_ip": address})),
            };
            let frame = Frame { number, time, origin: Origin::Pipeline, events: vec![event], complete: true };
            for operation in engine.frame(&frame, &mut matcher) {
                if let Operation::Alert { document, .. } = operation {
                    found += 1;
                    addresses.insert(document["key"].as_str().unwrap().to_owned());
                }
            }
        }
    }
    (found, addresses.len())
}

#[test]
fn brute_force_over_a_real_log() {
    let Some(file) = std::env::var_os("RULES_OPENSSH_LOG") else {
        eprintln!("SKIPPED: RULES_OPENSSH_LOG names no OpenSSH_2k.log");
        return;
    };
    let log = std::fs::read_to_string(&file).unwrap();
    assert_eq!(alerts(&log, false), (95, 9));
    assert_eq!(alerts(&log, true), (97, 11));
}
