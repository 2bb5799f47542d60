//! The whole core in a simulation: seeded histories with late, shuffled and repeated events, several shards, documents that
//! are deleted and written again, indices made anew, rules that fail and crashes at any moment, against an oracle that
//! decides each event from all events before it.
//!
//! `RULES_SEEDS` says how many histories are run (1,000), `RULES_SEED` runs one.

mod history;
mod oracle;
mod windows;

use std::collections::BTreeSet;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use self::history::{History, Kinds};
use self::oracle::ExpectedAlert;
use crate::engine::{AT_ONCE, Engine, Frame, Operation};
use crate::mutation::{Mutation, mutate};
use crate::operator::Bounds;
use crate::time::Span;

/// Returns the parts of an alert's document that are compared.
fn essence(document: &Value) -> ExpectedAlert {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let event = |event: &Value| (text(&event["_id"]), event["_seq_no"].as_u64().unwrap_or(u64::MAX));
    let body = &document["match_body"];
    let added = match body {
        body if body.get("related_events").is_some() => {
            let related = body["related_events"].as_array().into_iter().flatten();
            related.map(|event| event["n"].clone()).collect()
        }
        body if body.get("new_value").is_some() => json!([body["old_value"], body["new_value"]]),
        body if body.get("new_field").is_some() => json!({"new_field": body["new_field"]}),
        body if body.get("missing_field").is_some() => json!({"missing_field": body["missing_field"]}),
        _ => Value::Null,
    };
    ExpectedAlert {
        rule: text(&document["rule_id"]),
        key: text(&document["key"]),
        trigger: event(&document["trigger"]),
        time: text(&document["@timestamp"]),
        n: body["n"].as_u64().unwrap_or(0),
        count: document["event_count"].as_u64().unwrap_or(0) as usize,
        events: document["events"].as_array().into_iter().flatten().map(event).collect(),
        depth: document["depth"].as_u64().unwrap_or(0),
        added,
    }
}

fn new_engine(history: &History) -> Engine {
    let mut engine = Engine::new(history.timing, Bounds::default());
    for rule in &history.rules {
        engine.put(rule.clone());
    }
    engine
}

/// Operations by rule, each in their order: operations of waiting rules come before those of others where time is checked sooner.
fn by_rule(mut operations: Vec<Operation>) -> Vec<Operation> {
    operations.sort_by(|one, other| rule_of(one).cmp(rule_of(other)));
    operations
}

fn rule_of(operation: &Operation) -> &str {
    match operation {
        Operation::Alert { rule, .. }
        | Operation::Silence { rule, .. }
        | Operation::Revision { rule, .. }
        | Operation::Recovery { rule, .. }
        | Operation::Problem { rule, .. } => rule,
    }
}

/// Runs a history frame by frame.
fn straight(history: &History) -> (Vec<Operation>, Vec<u8>) {
    let mut engine = new_engine(history);
    let mut operations = Vec::new();
    for frame in &history.frames {
        operations.extend(engine.frame(frame, &mut Kinds(history)));
    }
    (by_rule(operations), engine.snapshot())
}

/// Cuts a frame into pieces, its events in another order.
fn pieces(rng: &mut StdRng, frame: &Frame) -> Vec<Frame> {
    let mut events = frame.events.clone();
    for at in (1..events.len()).rev() {
        events.swap(at, rng.random_range(0..=at));
    }
    let mut pieces = Vec::new();
    while !events.is_empty() {
        let rest = events.split_off(rng.random_range(1..=events.len()));
        pieces.push(Frame { events, complete: false, ..frame.clone() });
        events = rest;
    }
    match pieces.last_mut() {
        Some(last) if rng.random_bool(0.7) => last.complete = true,
        _ => pieces.push(Frame { events: Vec::new(), complete: true, ..frame.clone() }),
    }
    pieces
}

/// Gives a piece, and takes what is raised part by part; tells whether it came to the last.
fn given(
    engine: &mut Engine,
    (history, piece): (&History, &Frame),
    crash: &mut dyn FnMut() -> bool,
    operations: &mut Vec<Operation>,
) -> bool {
    operations.extend(engine.begin_frame(piece, &mut Kinds(history)));
    while engine.is_amid() {
        if crash() {
            return false;
        }
        operations.extend(engine.go_on());
    }
    true
}

/// Runs a history in pieces and parts, with crashes: uncommitted operations are lost, and the state is that of the last snapshot.
/// Parts of a frame may have been written before a crash: the same comes again.
fn crashing(history: &History, seed: u64) -> (Vec<Operation>, Vec<u8>) {
    let rng = &mut StdRng::seed_from_u64(seed ^ 0x5eed);
    AT_ONCE.set(if rng.random_bool(0.5) { rng.random_range(1..5) } else { 1_000 });
    let run = crashing_in_parts(history, rng);
    AT_ONCE.set(1_000);
    run
}

fn crashing_in_parts(history: &History, rng: &mut StdRng) -> (Vec<Operation>, Vec<u8>) {
    let mut engine = new_engine(history);
    let (mut log, mut committed) = (Vec::new(), 0);
    let mut snapshot: Option<Vec<u8>> = None;
    let mut at = 0;
    let mut crashes = rng.random_range(0..6);
    let mut durable = 0;
    let mut written: Vec<Operation> = Vec::new();
    while let Some(frame) = history.frames.get(at) {
        let mut crashed = false;
        let mut operations = Vec::new();
        // Time is looked at between frames, as long as it is no gap: what is raised then is committed with the next one.
        let apart = frame.time.since(engine.now());
        if engine.position() >= Some(committed) && apart <= history.timing.heartbeat && rng.random_bool(0.3) {
            let part = Span::from_ms(rng.random_range(0..=apart.ms().max(0)));
            log.append(&mut engine.advance(engine.now().plus(part)));
        }
        for piece in pieces(rng, frame) {
            crashed = crashes > 0 && rng.random_bool(0.05);
            if crashed {
                break;
            }
            let mut crash = || crashes > 0 && rng.random_bool(0.05);
            crashed = !given(&mut engine, (history, &piece), &mut crash, &mut operations);
            if crashed {
                written.append(&mut operations);
                break;
            }
            if rng.random_bool(0.05) {
                operations.extend(engine.frame(&piece, &mut Kinds(history)));
            }
        }
        if !crashed {
            // Operations and position are one frame of the log.
            log.append(&mut operations);
            if frame.number > committed {
                let lost = written.drain(..).find(|operation| !log[durable..].contains(operation));
                assert!(lost.is_none(), "it does not come again: {lost:?}");
            }
            durable = log.len();
            committed = committed.max(frame.number);
            at += 1;
            if rng.random_bool(0.2) {
                engine.tick();
            }
            if rng.random_bool(0.15) {
                snapshot = Some(engine.snapshot());
            }
            // A frame that comes once more.
            if rng.random_bool(0.1) {
                log.append(&mut engine.frame(frame, &mut Kinds(history)));
                durable = log.len();
            }
            crashed = crashes > 0 && rng.random_bool(0.05);
        }
        if crashed {
            crashes -= 1;
            log.truncate(durable);
            engine = match &snapshot {
                None => new_engine(history),
                Some(bytes) => {
                    let rules = history.rules.clone();
                    let restored =
                        Engine::restore(bytes, rules, committed, history.timing, Bounds::default());
                    let (engine, failed) = restored.expect("a snapshot reads back");
                    assert!(failed.is_empty(), "{failed:?}");
                    engine
                }
            };
            engine.mute(committed);
            let position = engine.position();
            at = history
                .frames
                .iter()
                .take_while(|frame| position.is_some_and(|seen| frame.number <= seen))
                .count();
        }
    }
    engine.tick();
    (by_rule(log), engine.snapshot())
}

/// Checks one history; tells what is wrong with it.
fn check(seed: u64) -> Result<usize, String> {
    let history = History::new(seed);
    let (operations, state) = straight(&history);
    let alerts: Vec<&Value> = operations
        .iter()
        .filter_map(|operation| match operation {
            Operation::Alert { document, .. } => Some(document),
            _ => None,
        })
        .collect();
    for rule in &history.rules {
        if rule.definition.rule_type.is_waiting() {
            windows::check(&history, rule, &operations)?;
            continue;
        }
        let found: Vec<_> =
            alerts.iter().filter(|alert| alert["rule_id"] == *rule.id).map(|alert| essence(alert)).collect();
        let (expected, in_time) = oracle::expected(&history, rule, true);
        if found != expected {
            let place = found.iter().zip(&expected).take_while(|(one, other)| one == other).count();
            return Err(format!(
                "{}: alert {place} of {} ({} expected)\n     is {:?}\nexpected {:?}",
                rule.definition.document(),
                found.len(),
                expected.len(),
                found.get(place),
                expected.get(place)
            ));
        }
        if in_time && expected != oracle::expected(&history, rule, false).0 {
            return Err(format!("{}: what was forgotten made a difference", rule.definition.document()));
        }
    }
    let ids: BTreeSet<&str> = alerts.iter().filter_map(|alert| alert["alert_id"].as_str()).collect();
    if ids.len() != alerts.len() {
        return Err(format!("{} alerts have {} ids", alerts.len(), ids.len()));
    }
    let problems =
        operations.iter().filter(|operation| matches!(operation, Operation::Problem { .. })).count();
    let failing = history.failing.is_some_and(|failing| {
        let after = history.rules.last().map_or(0, |rule| rule.since.max(failing.saturating_sub(1)));
        history.frames.iter().any(|frame| {
            frame.number > after
                && !matches!(frame.origin, crate::event::Origin::Restore | crate::event::Origin::System)
        })
    });
    if problems != usize::from(failing) {
        return Err(format!("{problems} problems were told"));
    }
    let (again, state_again) = crashing(&history, seed);
    if again != operations {
        let place = again.iter().zip(&operations).take_while(|(one, other)| one == other).count();
        return Err(format!(
            "with crashes operation {place} of {} ({} without)\n     is {:?}\nexpected {:?}",
            again.len(),
            operations.len(),
            again.get(place),
            operations.get(place)
        ));
    }
    if state_again != state {
        return Err("with crashes the state at the end is another one".to_owned());
    }
    Ok(alerts.len())
}

#[test]
fn histories_raise_what_the_oracle_expects() {
    let number =
        |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number of seeds"));
    let seeds: Vec<u64> = match number("RULES_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("RULES_SEEDS").unwrap_or(1000)).collect(),
    };
    let run = |half: u64| {
        let of_half = seeds.iter().filter(|seed| *seed % 2 == half);
        of_half
            .map(|seed| check(*seed).map_err(|wrong| format!("RULES_SEED={seed}\n{wrong}")))
            .sum::<Result<usize, String>>()
    };
    let (one, other) = std::thread::scope(|scope| {
        let other = scope.spawn(|| run(1));
        (run(0), other.join().expect("no history panics"))
    });
    let alerts = match (one, other) {
        (Ok(one), Ok(other)) => one + other,
        (Err(wrong), _) | (_, Err(wrong)) => panic!("{wrong}"),
    };
    // A generator that raises nothing proves nothing.
    assert!(alerts >= 10 * seeds.len(), "{alerts} alerts");
}

#[test]
fn the_simulation_sees_each_fault() {
    let mut survived = Vec::new();
    for mutation in Mutation::ALL.iter().copied() {
        let seen = (0..300).any(|seed| {
            mutate(Some(mutation));
            let seen = check(seed).is_err();
            mutate(None);
            seen
        });
        if !seen {
            survived.push(mutation);
        }
    }
    assert!(survived.is_empty(), "not noticed: {survived:?}");
}
