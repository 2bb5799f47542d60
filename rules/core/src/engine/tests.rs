//! Life of rules: revisions, disabling, quiet, failures, depth, snapshots; and what an alert looks like.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::error::Error;
use crate::time::Span;

/// Matches every event with every rule, but for those that fail.
#[derive(Default)]
struct MatchAll {
    rules: Vec<String>,
    failing: Option<String>,
}

impl Matcher for MatchAll {
    fn matches(&mut self, frame: &Frame) -> Vec<RuleMatches> {
        let outcome = |rule: &String| match &self.failing {
            Some(failing) if failing == rule => Err("no such field".to_owned()),
            _ => Ok((0..frame.events.len()).collect()),
        };
        let second = Vec::new();
        let of = |rule: &String| RuleMatches {
            rule: rule.clone(),
            outcome: outcome(rule),
            second: second.clone(),
        };
        self.rules.iter().map(of).collect()
    }
}

struct Bench {
    engine: Engine,
    matcher: MatchAll,
    number: u64,
}

impl Bench {
    fn new(rules: &[(&str, Value)]) -> Self {
        let mut bench = Self {
            engine: Engine::new(Timing::default(), Bounds::default()),
            matcher: MatchAll::default(),
            number: 0,
        };
        for (id, options) in rules {
            bench.put(id, 1, options.clone());
        }
        bench
    }

    fn put(&mut self, id: &str, revision: u64, options: Value) {
        self.engine.put(rule(id, revision, options));
        if !self.matcher.rules.contains(&id.to_owned()) {
            self.matcher.rules.push(id.to_owned());
        }
    }

    /// Gives a frame with one event, at a second.
    fn event(&mut self, second: i64, source: Value) -> Vec<Operation> {
        self.event_of(second, source, Origin::User, "logs-1")
    }

    fn event_of(&mut self, second: i64, source: Value, origin: Origin, index: &str) -> Vec<Operation> {
        self.number += 1;
        let frame = frame(self.number, second, source, origin, index);
        self.engine.frame(&frame, &mut self.matcher)
    }

    fn alerts(&mut self, second: i64, source: Value) -> usize {
        count(&self.event(second, source))
    }
}

fn rule(id: &str, revision: u64, options: Value) -> Rule {
    let mut written = json!({"name": id, "index": "logs-*", "type": "any"});
    for (name, value) in options.as_object().unwrap() {
        written[name] = value.clone();
    }
    let definition = Definition::parse(&written).unwrap();
    Rule { id: id.to_owned(), revision, since: 0, owner: "ann".to_owned(), definition }
}

fn frame(number: u64, second: i64, source: Value, origin: Origin, index: &str) -> Frame {
    let event = Event {
        times: Default::default(),
        index: index.into(),
        uuid: "u".into(),
        shard: 0,
        seq_no: number,
        id: format!("d{number}").into(),
        created: true,
        source: Arc::new(source),
    };
    Frame { number, time: Time::from_ms(second * 1000), origin, events: vec![event], complete: true }
}

fn count(operations: &[Operation]) -> usize {
    operations.iter().filter(|operation| matches!(operation, Operation::Alert { .. })).count()
}

fn frequency() -> Value {
    json!({"type": "frequency", "num_events": 2, "timeframe": "1m"})
}

#[test]
fn an_alert_says_what_the_product_says() {
    let mut bench = Bench::new(&[(
        "r1",
        json!({
            "type": "frequency", "num_events": 2, "timeframe": "1m", "query_key": "user", "realert": "1m",
            "importance": 80, "playbooks": ["block"], "alert_method": "command",
            "alert_method_data": {"command": "/bin/true"}, "email": "a@b",
            "alert_subject": "{0} at {1}", "alert_subject_args": ["user", "missing"],
            "alert_text": "{0} of {{{1}}}", "alert_text_args": ["num_events", "user"],
        }),
    )]);
    bench.event(0, json!({"@timestamp": "1970-01-01T00:00:00Z", "user": "root"}));
    let operations = bench.event(2, json!({"@timestamp": "1970-01-01T00:00:01Z", "user": "root"}));
    let [Operation::Alert { id, document, .. }, Operation::Silence { document: silence, .. }] =
        &operations[..]
    else {
        panic!("{operations:?}")
    };
    assert_eq!(id.len(), 40);
    let expected = json!({
        "@timestamp": "1970-01-01T00:00:01.000Z", "alert_id": id, "rule_id": "r1", "rule_revision": 1,
        "rule_name": "r1", "rule_type": "frequency",
        "alert_info": {"type": "command", "command": "/bin/true", "recipients": ["a@b"], "risk_value": 80,
            "playbooks": ["block"], "username": "ann"},
        "alert_sent": false, "alert_time": "1970-01-01T00:00:02.000Z",
        "alert_subject": "root at <MISSING VALUE>",
        "alert_text": "2 of {root}\n\nAt least 2 events occurred between 1969-12-31T23:59:01.000Z and \
            1970-01-01T00:00:01.000Z\n\n@timestamp: 1970-01-01T00:00:01Z\nuser: root\n",
        "status": "New", "depth": 1, "key": "root",
        "trigger": {"_index": "logs-1", "_id": "d2", "_seq_no": 2},
        "events": [{"_index": "logs-1", "_id": "d1", "_seq_no": 1}, {"_index": "logs-1", "_id": "d2", "_seq_no": 2}],
        "event_count": 2, "match_body": {"@timestamp": "1970-01-01T00:00:01Z", "user": "root"},
    });
    assert_eq!(document, &expected);
    let expected = json!({
        "@timestamp": "1970-01-01T00:00:02.000Z", "rule_id": "r1", "rule_name": "r1", "key": "root",
        "until": "1970-01-01T00:01:01.000Z", "exponent": 0,
    });
    assert_eq!(silence, &expected);
}

#[test]
fn texts_may_be_templates_and_have_formats() {
    let text = |own: Value| {
        let mut rule = json!({"type": "frequency", "num_events": 1, "timeframe": "1m", "query_key": "user"});
        rule.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
        let mut bench = Bench::new(&[("r1", rule)]);
        let event = json!({"@timestamp": "1970-01-01T00:00:00Z", "user": "root", "load": 0.12345, "host": {"name": "h"}, "a.b": 1});
        let operations = bench.event(0, event);
        let Operation::Alert { document, .. } = &operations[0] else { panic!("{operations:?}") };
        (
            document["alert_subject"].as_str().unwrap().to_owned(),
            document["alert_text"].as_str().unwrap().to_owned(),
        )
    };
    let template = "{{ user | upper }} on {{ host.name }}{{ _data['a.b'] }}, {{ num_events }} of {{ name }}{% if other %}!{% endif %}";
    let own = json!({"alert_text_type": "alert_text_jinja", "alert_text": template, "alert_subject": "by {{ user }}"});
    assert_eq!(text(own), ("by root".to_owned(), "ROOT on h1, 1 of r1".to_owned()));
    let own = json!({"alert_text_type": "alert_text_jinja", "alert_text": "{{ user }}", "alert_subject": "{0}", "alert_subject_args": ["user"]});
    assert_eq!(text(own), ("root".to_owned(), "root".to_owned()));
    let own = json!({"alert_text_type": "alert_text_only", "alert_text": "{0:.2f} {1:>6} {2:.1f}", "alert_text_args": ["load", "user", "none"]});
    assert_eq!(text(own).1, "0.12   root <MISSING VALUE>");
}

#[test]
fn a_large_event_is_shown_in_part() {
    let mut bench =
        Bench::new(&[("r", json!({"include": ["a*", "user.name"], "query_key": "key"})), ("s", json!({}))]);
    let source =
        json!({"big": "x".repeat(40_000), "abc": 1, "user": {"name": "ann", "id": 1}, "key": "k", "z": 2});
    let operations = bench.event(0, source);
    let bodies: Vec<_> = operations
        .iter()
        .map(|operation| match operation {
            Operation::Alert { document, .. } => document["match_body"].clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(bodies[0], json!({"abc": 1, "user": {"name": "ann"}, "key": "k"}));
    assert_eq!(
        bodies[1],
        json!({"abc": 1, "user": {"name": "ann", "id": 1}, "key": "k", "z": 2, "_truncated": true})
    );
}

#[test]
fn fifty_rules_on_one_document_make_fifty_alerts_with_ids_of_their_own() {
    let ids: Vec<String> = (0..50).map(|number| format!("r{number:02}")).collect();
    let rules: Vec<_> = ids.iter().map(|id| (id.as_str(), json!({}))).collect();
    let operations = Bench::new(&rules).event(0, json!({}));
    let found: std::collections::BTreeSet<_> = operations
        .iter()
        .filter_map(|operation| match operation {
            Operation::Alert { id, .. } => Some(id.clone()),
            _ => None,
        })
        .collect();
    assert_eq!((operations.len(), found.len()), (50, 50));
}

#[test]
fn related_events_are_shown_as_far_as_there_is_room() {
    let options = json!({"type": "frequency", "num_events": 15, "timeframe": "1h", "attach_related": true});
    let mut bench = Bench::new(&[("r", options)]);
    let mut operations = Vec::new();
    for number in 1..=15 {
        operations = bench.event(number, json!({"n": number, "text": "x".repeat(30 << 10)}));
        assert_eq!(operations.is_empty(), number < 15);
    }
    let [Operation::Alert { document, .. }] = &operations[..] else { panic!("{operations:?}") };
    let body = &document["match_body"];
    let related = body["related_events"].as_array().unwrap().iter();
    let related: Vec<_> = related.map(|event| event["n"].as_u64().unwrap()).collect();
    assert_eq!((related, &body["n"]), ((1..=8).collect::<Vec<_>>(), &json!(15)));
    assert_eq!(document["events"].as_array().unwrap().len(), 15);
}

#[test]
fn appearance_keeps_state_and_a_revision_begins_empty() {
    let mut bench = Bench::new(&[("r", frequency())]);
    assert_eq!(bench.alerts(0, json!({})), 0);
    let mut renamed = frequency();
    renamed["name"] = json!("other name");
    bench.put("r", 1, renamed);
    assert_eq!(bench.alerts(1, json!({})), 1);
    assert_eq!(bench.alerts(2, json!({})), 0);
    bench.put("r", 2, frequency());
    assert_eq!(bench.alerts(3, json!({})), 0);
    assert_eq!(bench.alerts(4, json!({})), 1);
}

#[test]
fn what_is_raised_of_a_large_frame_is_returned_in_parts() {
    let rules = [("any", json!({})), ("frequency", frequency())];
    let large = |number: u64| {
        let mut large = frame(number, 0, json!({"n": 0}), Origin::User, "logs-1");
        let event = large.events[0].clone();
        large.events = (0..3_000).map(|seq_no| Event { seq_no, ..event.clone() }).collect();
        large
    };
    let (mut whole, mut parts) = (Bench::new(&rules), Bench::new(&rules));
    for number in 1..3 {
        let expected = whole.engine.frame(&large(number), &mut whole.matcher);
        assert_eq!(count(&expected), 4_500);
        let mut found = parts.engine.begin_frame(&large(number), &mut parts.matcher);
        let mut calls = 1;
        while parts.engine.is_amid() {
            assert_eq!((found.len(), parts.engine.position()), (calls * 1_000, (number > 1).then_some(1)));
            found.append(&mut parts.engine.go_on());
            calls += 1;
        }
        assert_eq!((found == expected, calls, parts.engine.position()), (true, 5, Some(number)));
    }
    assert_eq!(parts.engine.snapshot(), whole.engine.snapshot());
    // A rule that is gone or changed amid a frame keeps nobody from going on.
    parts.engine.begin_frame(&large(3), &mut parts.matcher);
    parts.engine.remove("any");
    parts.put("frequency", 2, frequency());
    while parts.engine.is_amid() {
        assert_eq!(parts.engine.go_on(), []);
    }
    assert_eq!(parts.engine.position(), Some(3));
}

#[test]
fn parts_are_bounded_by_bytes_also_amid_the_alerts_of_one_event() {
    const USERS: usize = 50;
    let users: Vec<String> = (0..USERS).map(|user| format!("u{user}")).collect();
    let source = json!({"text": "x".repeat(30 << 10), "user": users});
    let mut large = frame(1, 0, source, Origin::User, "logs-1");
    let event = large.events[0].clone();
    large.events = (0..10).map(|seq_no| Event { seq_no, ..event.clone() }).collect();
    let rules = [("r", json!({"query_key": "user"}))];
    let (mut whole, mut parts) = (Bench::new(&rules), Bench::new(&rules));
    let expected = whole.engine.frame(&large, &mut whole.matcher);
    assert_eq!(count(&expected), 10 * USERS);
    let bytes = |operation: &Operation| match operation {
        Operation::Alert { document, .. } => document.to_string().len(),
        other => panic!("{other:?}"),
    };
    let (mut found, mut cuts_event) = (Vec::new(), false);
    let mut part = parts.engine.begin_frame(&large, &mut parts.matcher);
    while parts.engine.is_amid() {
        let bytes: usize = part.iter().map(bytes).sum();
        assert!((6 << 20..9 << 20).contains(&bytes), "{} operations have {bytes} bytes", part.len());
        found.append(&mut part);
        cuts_event |= !found.len().is_multiple_of(USERS);
        part = parts.engine.go_on();
    }
    assert!(cuts_event && found.len() > 5 * USERS, "{} came before the last part", found.len());
    found.append(&mut part);
    assert!(found == expected);
    assert_eq!(parts.engine.snapshot(), whole.engine.snapshot());
}

#[test]
fn a_rule_begins_behind_the_frame_that_is_on_its_way() {
    let mut bench = Bench::new(&[("a", json!({}))]);
    let mut piece = frame(1, 0, json!({}), Origin::User, "logs-1");
    piece.complete = false;
    assert_eq!(bench.engine.frame(&piece, &mut bench.matcher), []);
    bench.matcher.rules.push("b".to_owned());
    assert_eq!(bench.engine.put(rule("b", 1, json!({}))), 1);
    let mut end = frame(1, 0, json!({}), Origin::User, "logs-1");
    end.events[0].seq_no = 2;
    let operations = bench.engine.frame(&end, &mut bench.matcher);
    assert!(
        operations.iter().all(|operation| matches!(operation, Operation::Alert { rule, .. } if rule == "a"))
    );
    assert_eq!((operations.len(), bench.engine.position()), (2, Some(1)));
    bench.number = 1;
    assert_eq!(bench.alerts(1, json!({})), 2);
}

#[test]
fn rules_have_the_events_of_a_piece_together() {
    let held = |rules: usize| {
        let ids: Vec<String> = (0..rules).map(|number| format!("r{number:02}")).collect();
        let rules: Vec<_> = ids.iter().map(|id| (id.as_str(), json!({}))).collect();
        let mut bench = Bench::new(&rules);
        let mut piece = frame(1, 0, json!({}), Origin::User, "logs-1");
        piece.complete = false;
        assert_eq!(bench.engine.frame(&piece, &mut bench.matcher), []);
        let held = Arc::strong_count(&piece.events[0].source);
        let end = Frame { events: Vec::new(), complete: true, ..piece.clone() };
        assert_eq!(count(&bench.engine.frame(&end, &mut bench.matcher)), rules.len());
        assert_eq!(Arc::strong_count(&piece.events[0].source), 1, "nothing is held behind the frame");
        held
    };
    assert_eq!((held(1), held(50)), (2, 2));
}

#[test]
fn pieces_that_are_forgotten_come_again_and_count_once() {
    let mut bench = Bench::new(&[("a", json!({}))]);
    let mut piece = frame(1, 0, json!({}), Origin::User, "logs-1");
    piece.complete = false;
    assert_eq!(bench.engine.frame(&piece, &mut bench.matcher), []);
    bench.engine.forget_pieces();
    assert!(bench.engine.is_between_frames());
    // So a rule begins before the frame.
    bench.put("b", 1, json!({}));
    assert_eq!(bench.engine.frame(&piece, &mut bench.matcher), []);
    let mut end = frame(1, 0, json!({}), Origin::User, "logs-1");
    end.events[0].seq_no = 2;
    let operations = bench.engine.frame(&end, &mut bench.matcher);
    assert_eq!((count(&operations), bench.engine.position()), (4, Some(1)));
    // What is complete is not forgotten.
    bench.engine.forget_pieces();
    assert_eq!(bench.engine.position(), Some(1));
}

#[test]
fn disabling_keeps_state_until_the_window_has_passed() {
    for (seconds, expected) in [(50, 1), (70, 0)] {
        let mut bench = Bench::new(&[("r", frequency()), ("other", json!({}))]);
        bench.event(0, json!({"@timestamp": 0}));
        let mut disabled = frequency();
        disabled["enabled"] = json!(false);
        bench.put("r", 1, disabled);
        assert_eq!(bench.alerts(seconds, json!({"@timestamp": 0})), 1, "the other rule's");
        assert!(matches!(bench.engine.status("r").unwrap().condition, Condition::Disabled(_)));
        bench.put("r", 1, frequency());
        // By event time it would be within the window.
        assert_eq!(bench.alerts(seconds, json!({"@timestamp": 1000})), 1 + expected);
    }
}

#[test]
fn a_rule_that_fails_is_paused_and_stops_nobody() {
    let mut bench = Bench::new(&[("a", frequency()), ("b", json!({}))]);
    bench.event(0, json!({}));
    bench.matcher.failing = Some("a".to_owned());
    let operations = bench.event(1, json!({}));
    let problem = Operation::Problem { rule: "a".to_owned(), frame: 2, reason: "no such field".to_owned() };
    assert_eq!((&operations[0], count(&operations)), (&problem, 1));
    let condition = bench.engine.status("a").unwrap().condition;
    let paused =
        Condition::Paused { frame: 2, time: Some(Time::from_ms(1_000)), reason: "no such field".to_owned() };
    assert_eq!(condition, paused);
    bench.matcher.failing = None;
    assert_eq!(bench.alerts(2, json!({})), 1, "it stays paused");
    // That it is paused outlives a restart.
    let rules = bench.engine.rules().cloned().collect();
    let snapshot = bench.engine.snapshot();
    let (engine, _) = Engine::restore(&snapshot, rules, 3, Timing::default(), Bounds::default()).unwrap();
    let paused = Condition::Paused { frame: 2, time: None, reason: "no such field".to_owned() };
    assert_eq!(engine.status("a").unwrap().condition, paused);
    bench.engine = engine;
    bench.engine.resume("a");
    assert_eq!(bench.alerts(3, json!({})), 2, "with the event of before");
}

#[test]
fn a_quiet_key_hides_no_other() {
    let mut bench = Bench::new(&[("r", json!({"query_key": "user"}))]);
    let until = Time::from_ms(10_000);
    assert!(bench.engine.quiet("r", SilenceOrder { key: Some("ann".to_owned()), since: 1, until }));
    assert!(!bench.engine.quiet("none", SilenceOrder { key: None, since: 1, until }));
    let ann = || json!({"user": "ann"});
    assert_eq!(bench.alerts(0, ann()), 1, "the order is for frames behind");
    assert_eq!(bench.alerts(1, ann()), 0);
    assert_eq!(bench.alerts(2, json!({"user": "bob"})), 1);
    let rules = bench.engine.rules().cloned().collect();
    let snapshot = bench.engine.snapshot();
    bench.engine = Engine::restore(&snapshot, rules, 3, Timing::default(), Bounds::default()).unwrap().0;
    assert_eq!(bench.alerts(9, ann()), 0);
    assert_eq!(bench.alerts(10, ann()), 1);
    assert!(bench.engine.quiet("r", SilenceOrder { key: None, since: 0, until: Time::from_ms(20_000) }));
    assert_eq!(bench.alerts(11, json!({"user": "bob"})), 0);
    for _ in 1..1000 {
        assert!(bench.engine.quiet("r", SilenceOrder { key: None, since: 0, until: Time::from_ms(20_000) }));
    }
    assert!(!bench.engine.quiet("r", SilenceOrder { key: None, since: 0, until: Time::from_ms(20_000) }));
}

#[test]
fn rules_that_watch_their_own_alerts_come_to_an_end() {
    let mut bench = Bench::new(&[("loop", json!({"allow_alerts": true})), ("plain", json!({}))]);
    let mut waiting = bench.event(0, json!({}));
    assert_eq!(waiting.len(), 2);
    let mut rounds = Vec::new();
    while !waiting.is_empty() && rounds.len() < 10 {
        rounds.push(waiting.len());
        let documents: Vec<Value> = waiting
            .iter()
            .map(|operation| match operation {
                Operation::Alert { document, .. } => document.clone(),
                other => panic!("{other:?}"),
            })
            .collect();
        waiting = documents
            .into_iter()
            .flat_map(|document| bench.event_of(1, document, Origin::Rule, "alert"))
            .collect();
    }
    assert_eq!(rounds, [2, 2, 2, 2]);
    assert_eq!(bench.engine.status("loop").unwrap().too_deep, 2);
    // Somebody who copies alerts into the index does not reset the depth.
    let copy = json!({"depth": MAX_DEPTH});
    assert_eq!(count(&bench.event_of(2, copy, Origin::User, "alert")), 0);
}

#[test]
fn restores_and_system_writes_are_no_events() {
    let mut bench = Bench::new(&[("r", json!({"allow_alerts": true}))]);
    for (origin, expected) in [
        (Origin::Restore, 0),
        (Origin::System, 0),
        (Origin::Pipeline, 1),
        (Origin::User, 1),
        (Origin::Rule, 1),
    ] {
        assert_eq!(count(&bench.event_of(0, json!({}), origin, "logs-1")), expected, "{origin:?}");
    }
}

#[test]
fn state_at_its_bound_is_told_now_and_then() {
    let mut bench = Bench::new(&[]);
    bench.engine = Engine::new(Timing::default(), Bounds { keys: 10, bytes: 1 << 20 });
    let mut options = frequency();
    options["query_key"] = json!("user");
    bench.put("r", 1, options);
    let mut told = Vec::new();
    for number in 0..110 {
        let operations = bench.event(number, json!({"user": number}));
        told.extend(operations.into_iter().map(|operation| match operation {
            Operation::Problem { frame, .. } => frame,
            other => panic!("{other:?}"),
        }));
    }
    // At 1, 2, 4, 8, … keys that had to go.
    assert_eq!(told, [11, 12, 14, 18, 26, 42, 74]);
    assert_eq!(bench.engine.status("r").unwrap().state.evicted, 100);
    assert_eq!(bench.alerts(111, json!({"user": 109})), 1, "the latest keys are kept");
}

#[test]
fn an_event_of_many_terms_raises_a_thousand_alerts() {
    let options = json!({"type": "new_term", "fields": [["a", "b"], ["b", "c"]], "query_key": "key"});
    let mut bench = Bench::new(&[("r", options.clone())]);
    let mut told = Vec::new();
    for number in 1..=5 {
        let values = |count: u8| (0..count).map(|at| format!("{number}-{at}")).collect::<Vec<_>>();
        let source = json!({"a": values(8), "b": values(8), "c": values(8), "key": values(64)});
        let operations = bench.event(number, source.clone());
        assert_eq!(count(&operations), 1_000);
        told.extend(operations.into_iter().filter_map(|operation| match operation {
            Operation::Problem { frame, reason, .. } => Some((frame, reason.contains("new terms"))),
            _ => None,
        }));
        assert_eq!(bench.event(number, source), [], "terms of which no alert was raised are known, too");
        // What was told is known after a start.
        let rules = vec![rule("r", 1, options.clone())];
        let snapshot = bench.engine.snapshot();
        let (engine, failed) =
            Engine::restore(&snapshot, rules, 0, Timing::default(), Bounds::default()).unwrap();
        assert!(failed.is_empty());
        bench.engine = engine;
    }
    // Of each 7,192 are left out: of the first, the second and the fourth that is told.
    assert_eq!(told, [(1, true), (3, true), (7, true)]);
}

#[test]
fn a_new_term_is_found_behind_many_others_or_told_of() {
    let options =
        json!({"type": "new_term", "fields": ["process", ["a", "b"]], "alert_on_missing_field": false});
    let mut bench = Bench::new(&[("r", options)]);
    let processes = |count: usize| (0..count).map(|at| format!("p{at}")).collect::<Vec<_>>();
    let told = |operations: &[Operation]| {
        operations.iter().any(|operation| matches!(operation, Operation::Problem { .. }))
    };
    assert_eq!(bench.alerts(0, json!({"process": processes(300)})), 300);
    let mut hidden = processes(300);
    hidden.push("evil".to_owned());
    let operations = bench.event(1, json!({"process": hidden}));
    assert_eq!((count(&operations), told(&operations)), (1, false));
    // Of events with a hundred more than are looked at the first, the second and the fourth are told of.
    for (second, alerts, is_told) in [(2, 700, true), (3, 0, true), (4, 0, false), (5, 0, true)] {
        let operations = bench.event(second, json!({"process": processes(1_100)}));
        assert_eq!((count(&operations), told(&operations)), (alerts, is_told), "{second}");
    }
    // Combinations are terms; where a part is missing, there is none that could be new.
    let parts = (0..40).collect::<Vec<_>>();
    let operations = bench.event(6, json!({"a": parts, "b": parts}));
    assert_eq!((count(&operations), told(&operations)), (1_000, false));
    let operations = bench.event(7, json!({"a": processes(2_000)}));
    assert_eq!(operations, []);
}

#[test]
fn many_terms_of_one_field_leave_room_for_those_of_another_that_has_some() {
    let mut bench = Bench::new(&[("r", json!({"type": "new_term", "fields": ["a", "b"]}))]);
    let terms = |kind: &str, count: usize| (0..count).map(|at| format!("{kind}{at}")).collect::<Vec<_>>();
    assert_eq!(bench.alerts(0, json!({"a": terms("x", 1_000)})), 1_000);
    let operations = bench.event(1, json!({"a": terms("y", 1_000), "b": terms("z", 100)}));
    let of = |field: &str| {
        let is_of = |operation: &&Operation| match operation {
            Operation::Alert { document, .. } => document["match_body"]["new_field"] == json!(field),
            _ => false,
        };
        operations.iter().filter(is_of).count()
    };
    assert_eq!((of("a"), of("b")), (936, 64));
}

#[test]
fn watermarks_go_on_while_input_is_idle() {
    let mut bench = Bench::new(&[("r", frequency()), ("clock", json!({}))]);
    bench.event(0, json!({"@timestamp": 0}));
    bench.matcher.rules = vec!["clock".to_owned()];
    // Lateness and idle time together, and the window.
    for (second, keys) in [(3600, 1), (3719, 1), (3720, 0)] {
        bench.event(second, json!({}));
        bench.engine.tick();
        assert_eq!(bench.engine.status("r").unwrap().state.keys, keys, "{second}");
    }
}

#[test]
fn damaged_snapshots_are_refused() {
    let mut bench = Bench::new(&[("a", frequency()), ("b", json!({}))]);
    bench.event(0, json!({"user": "é"}));
    let rules: Vec<_> = bench.engine.rules().cloned().collect();
    let snapshot = bench.engine.snapshot();
    let restore = |bytes: &[u8]| {
        let restored = Engine::restore(bytes, rules.clone(), 0, Timing::default(), Bounds::default());
        restored.map(|(engine, failed)| (engine.snapshot(), failed))
    };
    assert_eq!(restore(&snapshot).unwrap(), (snapshot.clone(), Vec::new()));
    for place in 0..snapshot.len() {
        assert!(matches!(restore(&snapshot[..place]), Err(Error::Corrupt(_))), "cut at {place}");
        let mut damaged = snapshot.clone();
        damaged[place] ^= 0x40;
        assert!(matches!(restore(&damaged), Err(Error::Corrupt(_))), "damaged at {place}");
    }
}

#[test]
fn a_rule_of_another_revision_or_type_begins_empty() {
    let mut bench = Bench::new(&[("a", frequency()), ("b", frequency())]);
    bench.event(0, json!({}));
    let snapshot = bench.engine.snapshot();
    let rules = vec![rule("a", 2, frequency()), rule("b", 1, frequency()), rule("c", 1, frequency())];
    let (engine, failed) =
        Engine::restore(&snapshot, rules, 0, Timing::default(), Bounds::default()).unwrap();
    assert!(failed.is_empty());
    bench.engine = engine;
    bench.matcher.rules.push("c".to_owned());
    let operations = bench.event(1, json!({}));
    assert!(matches!(&operations[..], [Operation::Alert { rule, .. }] if rule == "b"), "{operations:?}");
}

#[test]
fn an_event_far_ahead_does_not_make_its_key_deaf() {
    let mut bench = Bench::new(&[("r", frequency())]);
    let ahead = Span::from_secs(365 * 86_400).ms();
    bench.event(0, json!({"@timestamp": ahead}));
    assert_eq!(bench.engine.status("r").unwrap().ahead, 1);
    // It counts as five minutes ahead.
    for (second, alerts) in [(1, 0), (240, 0), (241, 1)] {
        assert_eq!(bench.alerts(second, json!({"@timestamp": second * 1000})), alerts, "{second}");
    }
}

#[test]
fn times_of_events_are_seconds_where_the_rule_says_so() {
    let mut rule = frequency();
    rule["timestamp_type"] = json!("unix");
    let mut bench = Bench::new(&[("r", rule)]);
    assert_eq!(bench.alerts(0, json!({"@timestamp": 0})), 0);
    assert_eq!(bench.alerts(50, json!({"@timestamp": 50.5})), 1);
    assert_eq!(bench.alerts(200, json!({"@timestamp": "200"})), 0);
}

#[test]
fn an_event_before_all_time_is_none_of_a_window() {
    let rule =
        json!({"type": "cardinality", "cardinality_field": "user", "min_cardinality": 2, "timeframe": "1m"});
    let mut bench = Bench::new(&[("r", rule)]);
    assert_eq!(bench.alerts(0, json!({"@timestamp": i64::MIN, "user": "a"})), 0);
    assert!(bench.alerts(60, json!({"@timestamp": 60_000, "user": "a"})) <= 1);
    assert!(bench.alerts(200, json!({"@timestamp": 200_000, "user": "a"})) <= 3);
}

#[test]
fn a_revision_is_as_quiet_as_the_rule_was() {
    let mut bench = Bench::new(&[("r", json!({}))]);
    assert_eq!(bench.alerts(0, json!({})), 1);
    assert!(bench.engine.quiet("r", SilenceOrder { key: None, since: 1, until: Time::from_ms(20_000) }));
    bench.put("r", 2, json!({"query_key": "user"}));
    assert_eq!((bench.alerts(1, json!({})), bench.alerts(21, json!({}))), (0, 1));
}

#[test]
fn a_key_that_is_silent_takes_no_more_room_with_time() {
    let rule = json!({"type": "flatline", "threshold": 1, "timeframe": "1m", "query_key": "host"});
    let mut bench = Bench::new(&[("r", rule)]);
    bench.event(0, json!({"@timestamp": 0, "host": "gone"}));
    let mut bytes = Vec::new();
    for minute in 1..2_000 {
        bench.event(minute * 60, json!({"@timestamp": minute * 60_000, "host": "here"}));
        bytes.push(bench.engine.status("r").unwrap().state.bytes);
    }
    assert!(bytes[1_998] <= bytes[100] + 1_000, "{} and {}", bytes[100], bytes[1_998]);
}

#[test]
fn an_alert_shows_what_can_be_indexed() {
    let mut bench = Bench::new(&[("r", json!({}))]);
    let deep = (0..60).fold(json!(1), |inner, _| json!([inner]));
    let operations = bench.event(0, json!({"a": 1, "deep": deep, "b": {"": 2}, "": 3, "c": {"d": [4]}}));
    let [Operation::Alert { document, .. }] = &operations[..] else { panic!("{operations:?}") };
    assert_eq!(document["match_body"], json!({"a": 1, "c": {"d": [4]}, "_truncated": true}));
}

/// Gives a frame without events, at a second.
fn beat(bench: &mut Bench, second: i64) -> Vec<Operation> {
    bench.number += 1;
    let time = Time::from_ms(second * 1000);
    let frame =
        Frame { number: bench.number, time, origin: Origin::Rule, events: Vec::new(), complete: true };
    bench.engine.frame(&frame, &mut bench.matcher)
}

fn flatline() -> Value {
    json!({"type": "flatline", "threshold": 1, "timeframe": "1m", "recovery": true})
}

#[test]
fn an_alert_of_a_window_says_what_was_found() {
    let mut bench = Bench::new(&[(
        "r",
        json!({
            "type": "metric_aggregation", "metric_agg_key": "price", "metric_agg_type": "max", "max_threshold": 5,
            "bucket_interval": "1m", "query_key": ["user", "host"], "recovery": true,
            "alert_subject": "{0} of {1}", "alert_subject_args": ["metric_price_max", "user"],
        }),
    )]);
    bench.event(0, json!({"@timestamp": 0, "user": "ann", "price": 7}));
    let operations = bench.event(70, json!({"@timestamp": 70_000, "user": "ann", "price": 1}));
    let [Operation::Alert { id, document, .. }] = &operations[..] else { panic!("{operations:?}") };
    let expected = json!({
        "@timestamp": "1970-01-01T00:01:00.000Z", "alert_id": id, "rule_id": "r", "rule_revision": 1, "rule_name": "r",
        "rule_type": "metric_aggregation",
        "alert_info": {"type": "none", "command": "", "recipients": [], "risk_value": 50, "playbooks": [],
            "username": "ann"},
        "alert_sent": false, "alert_time": "1970-01-01T00:01:10.000Z", "status": "New", "depth": 1,
        "key": "ann, (missing)",
        "window": {"start": "1970-01-01T00:00:00.000Z", "end": "1970-01-01T00:01:00.000Z"},
        "alert_subject": "7 of ann",
        "alert_text": "r\n\nmax of price is 7 between 1970-01-01T00:00:00.000Z and 1970-01-01T00:01:00.000Z, allowed is \
            at most 5\n\n@timestamp: 1970-01-01T00:01:00.000Z\nhost: null\nmetric_price_max: 7\nuser: ann\n",
        "event_count": 1, "holds": true,
        "match_body": {"@timestamp": "1970-01-01T00:01:00.000Z", "user": "ann", "host": null, "metric_price_max": 7.0},
    });
    assert_eq!(document, &expected);
    // A late event revises it, and never what users have changed of it.
    let operations = bench.event(71, json!({"@timestamp": 1000, "user": "ann", "price": 9}));
    let [Operation::Revision { id: of, document, .. }] = &operations[..] else { panic!("{operations:?}") };
    assert_eq!((of, &document["match_body"]["metric_price_max"]), (id, &json!(9.0)));
    assert_eq!(
        (&document["revised"], &document["revised_at"]),
        (&json!(true), &json!("1970-01-01T00:01:11.000Z"))
    );
    for never in ["status", "alert_sent", "alert_id", "@timestamp", "alert_time"] {
        assert!(document.get(never).is_none(), "{never}");
    }
    let operations = bench.event(140, json!({"@timestamp": 140_000, "user": "bob", "price": 1}));
    let end = Time::from_ms(120_000);
    let recovery = Operation::Recovery {
        rule: "r".to_owned(),
        id: id.clone(),
        key: "ann, (missing)".to_owned(),
        time: end,
    };
    assert_eq!(operations, [recovery]);
    assert_eq!(bench.event(210, json!({"@timestamp": 210_000, "user": "ann", "price": 1})), []);
}

#[test]
fn what_is_raised_of_many_windows_is_returned_in_parts() {
    let flatline = json!({"type": "flatline", "threshold": 1, "timeframe": "1m", "query_key": "host"});
    let mut hosts = frame(1, 0, json!({}), Origin::User, "logs-1");
    let event = hosts.events[0].clone();
    let of = |host: u64| Event { seq_no: host, source: Arc::new(json!({"host": host})), ..event.clone() };
    hosts.events = (0..2_500).map(of).collect();
    // An event closes the windows, or the clock, by a frame or without one.
    for by in ["event", "frame", "time"] {
        let rules = [("r", flatline.clone())];
        let (mut whole, mut parts) = (Bench::new(&rules), Bench::new(&rules));
        for bench in [&mut whole, &mut parts] {
            assert_eq!(bench.engine.frame(&hosts, &mut bench.matcher), []);
            bench.number = 1;
            for second in (20..=120).step_by(20) {
                assert_eq!(beat(bench, second), []);
            }
        }
        let mut last = frame(8, 130, json!({"host": "x"}), Origin::User, "logs-1");
        let time = Time::from_ms(140_000);
        if by == "frame" {
            (last.time, last.events) = (time, Vec::new());
        }
        let (expected, mut found, position) = match by {
            "time" => (whole.engine.advance(time), parts.engine.begin_advance(time), 7),
            _ => {
                let expected = whole.engine.frame(&last, &mut whole.matcher);
                (expected, parts.engine.begin_frame(&last, &mut parts.matcher), 8)
            }
        };
        assert_eq!(count(&expected), 2_500);
        let mut calls = 1;
        while parts.engine.is_amid() {
            assert_eq!((found.len(), parts.engine.position()), (calls * 1_000, Some(7)));
            parts.engine.tick();
            found.append(&mut parts.engine.go_on());
            calls += 1;
        }
        assert_eq!((found == expected, calls, parts.engine.position()), (true, 3, Some(position)));
        assert_eq!(parts.engine.snapshot(), whole.engine.snapshot());
    }
}

#[test]
fn a_source_that_never_was_is_told_of() {
    let mut bench = Bench::new(&[("r", flatline())]);
    bench.matcher.rules.clear();
    let mut ends = Vec::new();
    for second in (0..400).step_by(10) {
        for operation in beat(&mut bench, second) {
            match operation {
                Operation::Alert { document, .. } => {
                    ends.push((document["window"]["end"].clone(), document["alert_time"].clone()));
                }
                other => panic!("{other:?}"),
            }
        }
    }
    let minute = |at: &str| json!(format!("1970-01-01T00:{at}.000Z"));
    // From the first frame on: a minute, an idle minute, and ten seconds.
    assert_eq!(ends[0], (minute("01:00"), minute("02:10")));
    assert_eq!(ends.len(), 5, "{ends:?}");
}

#[test]
fn silence_while_the_server_was_down_or_the_rule_disabled_is_none() {
    for down in [true, false] {
        let mut bench = Bench::new(&[("r", flatline())]);
        let mut disabled = flatline();
        disabled["enabled"] = json!(false);
        bench.event(0, json!({"@timestamp": 0}));
        bench.matcher.rules.clear();
        if down {
            assert_eq!(beat(&mut bench, 600), []);
        } else {
            bench.put("r", 1, disabled);
            bench.matcher.rules.clear();
            // Shorter than its window, so that it has its state.
            for second in (10..60).step_by(10) {
                assert_eq!(beat(&mut bench, second), []);
            }
            bench.put("r", 1, flatline());
            bench.matcher.rules.clear();
        }
        assert_eq!(bench.engine.absences().len(), usize::from(down));
        let from = if down { 600 } else { 60 };
        let mut first = None;
        for second in (from..from + 200).step_by(10) {
            first = first.or_else(|| beat(&mut bench, second).into_iter().next());
        }
        let Some(Operation::Alert { document, .. }) = first else { panic!("{first:?}") };
        let start = Time::read(&document["window"]["start"]).unwrap();
        assert_eq!(start, Time::from_ms(if down { 600_000 } else { 54_000 }));
    }
}

#[test]
fn rules_in_another_log_keep_their_state_and_judge_no_window_between() {
    let mut bench = Bench::new(&[("r", frequency())]);
    bench.number = 900;
    assert_eq!(bench.alerts(0, json!({"@timestamp": 0})), 0);
    bench.engine.mute(2_000);
    bench.engine.rebase(3, Time::from_ms(600_000));
    bench.number = 3;
    assert_eq!(bench.alerts(600, json!({"@timestamp": 30_000})), 1);
    assert_eq!(bench.engine.position(), Some(4));

    let mut bench = Bench::new(&[("r", flatline())]);
    bench.engine.set_absences(Vec::new());
    bench.number = 900;
    bench.event(0, json!({"@timestamp": 0}));
    bench.matcher.rules.clear();
    bench.engine.rebase(3, Time::from_ms(600_000));
    bench.number = 3;
    let mut first = None;
    for second in (600..800).step_by(10) {
        first = first.or_else(|| beat(&mut bench, second).into_iter().next());
    }
    let Some(Operation::Alert { document, .. }) = first else { panic!("{first:?}") };
    assert_eq!(Time::read(&document["window"]["start"]), Some(Time::from_ms(600_000)));
}

#[test]
fn alerts_outside_of_the_schedule_are_counted_only() {
    let mut bench = Bench::new(&[
        ("eager", json!({"schedule": "0-29 * * * *", "realert": "1h"})),
        (
            "waits",
            json!({"type": "metric_aggregation", "metric_agg_key": "n", "metric_agg_type": "sum", "max_threshold": 0,
                "bucket_interval": "10m", "schedule": {"schedule": "0-29 * * * *", "timezone": "UTC"}}),
        ),
    ]);
    let mut raised = Vec::new();
    for minute in [45, 59, 60, 89, 90, 101] {
        for operation in bench.event(minute * 60, json!({"@timestamp": minute * 60_000, "n": 1})) {
            if let Operation::Alert { rule, document, .. } = operation {
                raised.push((rule, document["@timestamp"].as_str().unwrap()[11..16].to_owned()));
            }
        }
    }
    let raised: Vec<_> = raised.iter().map(|(rule, at)| (rule.as_str(), at.as_str())).collect();
    // The last moment of the window that ends at 01:30 is within it.
    assert_eq!(raised, [("eager", "01:00"), ("waits", "01:10"), ("waits", "01:30")]);
    assert_eq!(bench.engine.status("eager").unwrap().outside_schedule, 4);
    assert_eq!(bench.engine.status("waits").unwrap().outside_schedule, 3);
}

#[test]
fn events_that_are_too_late_are_counted_only() {
    let mut bench = Bench::new(&[("r", flatline())]);
    bench.event(10_000, json!({"@timestamp": 10_000_000}));
    // Ten windows of a minute.
    bench.event(10_001, json!({"@timestamp": 9_399_000}));
    bench.event(10_002, json!({"@timestamp": 9_401_000}));
    assert_eq!(bench.engine.status("r").unwrap().too_late, 1);
}

#[derive(Debug)]
struct Panics;

impl crate::operator::Operator for Panics {
    fn event(
        &mut self,
        _: &crate::operator::EventArrival<'_>,
        _: &[crate::operator::key::Key],
        _: crate::operator::EventMoment,
    ) -> Vec<crate::operator::Finding> {
        panic!("no such key")
    }
}

#[test]
fn a_rule_that_panics_is_paused_alone_and_begins_anew() {
    let mut bench = Bench::new(&[("a", json!({})), ("b", frequency()), ("c", json!({}))]);
    assert_eq!(bench.alerts(1, json!({})), 2);
    bench.engine.rules.get_mut("b").unwrap().replace_operator(Box::new(Panics));
    let operations = bench.event(2, json!({}));
    assert_eq!(count(&operations), 2, "{operations:?}");
    let told = |operation: &Operation| match operation {
        Operation::Problem { rule, frame: 2, reason } => rule == "b" && reason.contains("no such key"),
        _ => false,
    };
    assert!(operations.iter().any(told), "{operations:?}");
    assert!(matches!(bench.engine.status("b").unwrap().condition, Condition::Paused { frame: 2, .. }));
    assert_eq!(bench.alerts(3, json!({})), 2);
    bench.engine.resume("b");
    // Of the first event it knows nothing any more.
    assert_eq!((bench.alerts(4, json!({})), bench.alerts(5, json!({}))), (2, 3));
}

#[test]
fn what_is_said_of_a_rule_names_the_roles_that_it_is_for() {
    let mut bench =
        Bench::new(&[("a", json!({"selectedroles": ["soc"], "realert": "1m"})), ("b", json!({}))]);
    let mut named = 0;
    for operation in bench.event(1, json!({})) {
        let (Operation::Alert { rule, document, .. } | Operation::Silence { rule, document, .. }) = operation
        else {
            panic!("{operation:?}")
        };
        assert_eq!(document.get("roles"), (rule == "a").then(|| json!(["soc"])).as_ref());
        named += usize::from(document.get("roles").is_some());
    }
    assert_eq!(named, 2);
}

#[test]
fn what_is_only_learned_raises_nothing_and_silences_nothing() {
    let options = json!({"type": "new_term", "fields": ["a"], "query_key": "b", "realert": "1d"});
    let mut muted = Bench::new(&[("r", options.clone())]);
    let mut learning = Bench::new(&[("r", options)]);
    muted.engine.mute(2);
    learning.engine.learn(2);
    for bench in [&mut muted, &mut learning] {
        assert_eq!(bench.alerts(0, json!({"a": "x", "b": 1})), 0);
        assert_eq!(bench.alerts(1, json!({"a": "y", "b": 1})), 0);
        // Known in both.
        assert_eq!(bench.alerts(2, json!({"a": "x", "b": 1})), 0);
    }
    assert!(muted.engine.status("r").unwrap().last_alert.is_some());
    assert!(learning.engine.status("r").unwrap().last_alert.is_none());
    assert_eq!(muted.alerts(3, json!({"a": "z", "b": 1})), 0, "silenced by what was raised");
    assert_eq!(learning.alerts(3, json!({"a": "z", "b": 1})), 1);
    // That a filter cannot be asked is told also while it learns.
    learning.engine.learn(10);
    learning.matcher.failing = Some("r".to_owned());
    let told = learning.event(4, json!({"a": "q", "b": 1}));
    assert!(matches!(told.as_slice(), [Operation::Problem { .. }]), "{told:?}");
}
