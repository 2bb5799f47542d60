//! A history out of a seed: rules, and the frames that they see.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::definition::Definition;
use crate::engine::{Frame, Matcher, Rule, RuleMatches};
use crate::event::{Event, Origin};
use crate::operator::Timing;
use crate::time::{Span, Time};

const START: i64 = 1_796_860_800_000;
const USERS: [&str; 4] = ["root", "admin", "guest", "oracle"];

/// Course of one run.
#[derive(Debug)]
pub(super) struct History {
    pub(super) rules: Vec<Rule>,
    pub(super) frames: Vec<Frame>,
    pub(super) timing: Timing,
    /// The frame at which the last rule's filter fails.
    pub(super) failing: Option<u64>,
}

/// Matches the `kind` of events with the rule's.
#[derive(Debug)]
pub(super) struct Kinds<'a>(pub(super) &'a History);

impl History {
    /// Returns whether a rule's filter matches an event.
    pub(super) fn matches(rule: &Rule, event: &Event) -> bool {
        let wanted = rule.definition.query().map(|query| &query["terms"]["kind"]);
        wanted.and_then(Value::as_array).is_some_and(|kinds| kinds.contains(&event.source["kind"]))
    }

    /// Returns whether its second filter does: `n` is even.
    pub(super) fn matches_second(rule: &Rule, event: &Event) -> bool {
        rule.definition.second().is_some() && event.source["n"].as_u64().is_some_and(|n| n % 2 == 0)
    }

    pub(super) fn fails(&self, rule: &Rule, frame: u64) -> bool {
        self.failing.is_some_and(|failing| frame >= failing)
            && self.rules.last().is_some_and(|last| last.id == rule.id)
    }
}

impl Matcher for Kinds<'_> {
    fn matches(&mut self, frame: &Frame) -> Vec<RuleMatches> {
        let outcome = |rule: &Rule| {
            if self.0.fails(rule, frame.number) {
                return Err("the filter fails".to_owned());
            }
            let places = frame.events.iter().enumerate();
            Ok(places.filter(|(_, event)| History::matches(rule, event)).map(|(place, _)| place).collect())
        };
        let second = |rule: &Rule| {
            let places = frame.events.iter().enumerate();
            places.filter(|(_, event)| History::matches_second(rule, event)).map(|(place, _)| place).collect()
        };
        let of =
            |rule: &Rule| RuleMatches { rule: rule.id.clone(), outcome: outcome(rule), second: second(rule) };
        self.0.rules.iter().map(of).collect()
    }
}

impl History {
    pub(super) fn new(seed: u64) -> Self {
        let rng = &mut StdRng::seed_from_u64(seed);
        let rules = (0..rng.random_range(3..7)).map(|number| rule(rng, number)).collect();
        let timing = Timing {
            skew: Span::from_secs(rng.random_range(0..20)),
            lateness: Span::from_secs(if rng.random_bool(0.5) { 120 } else { rng.random_range(0..20) }),
            idle: Span::from_secs(10),
            delay: Span::from_secs(rng.random_range(0..5)),
            heartbeat: Span::from_secs(15),
        };
        let frames = frames(rng);
        let failing = rng.random_bool(0.3).then(|| rng.random_range(1..40));
        Self { rules, frames, timing, failing }
    }
}

fn rule(rng: &mut StdRng, number: u64) -> Rule {
    let mut rule = json!({
        "name": format!("rule {number}"),
        "index": "logs-*",
        "include": "n",
        "realert": "0s",
    });
    let set = &mut |name: &str, value: Value| rule[name] = value;
    let seconds = |rng: &mut StdRng| json!(format!("{}s", rng.random_range(3..40)));
    let types = [
        "any",
        "frequency",
        "frequency",
        "cardinality",
        "blacklist",
        "whitelist",
        "change",
        "new_term",
        "flatline",
        "flatline",
        "spike",
        "spike",
        "min_cardinality",
        "metric_aggregation",
        "percentage_match",
    ];
    let rule_type = types[rng.random_range(0..types.len())];
    set("type", json!(if rule_type == "min_cardinality" { "cardinality" } else { rule_type }));
    let keys = [json!(null), json!("user"), json!(["user", "host.name"]), json!("host.name")];
    let key = &keys[rng.random_range(usize::from(rule_type == "change")..keys.len())];
    set("query_key", key.clone());
    set("ignore_null", json!(rng.random_bool(0.5)));
    match rule_type {
        "frequency" => {
            set("num_events", json!(rng.random_range(1..6)));
            set("timeframe", seconds(rng));
            set("attach_related", json!(rng.random_bool(0.2)));
        }
        "cardinality" => {
            set("cardinality_field", json!("port"));
            set("max_cardinality", json!(rng.random_range(0..4)));
            set("timeframe", seconds(rng));
        }
        "flatline" => {
            set("threshold", json!(rng.random_range(1..5)));
            set("timeframe", seconds(rng));
            set("forget_keys", json!(rng.random_bool(0.3)));
        }
        "spike" => {
            set("spike_height", json!([1.5, 2.0, 3.0][rng.random_range(0..3)]));
            set("spike_type", json!(["up", "down", "both"][rng.random_range(0..3)]));
            set("threshold_ref", json!(rng.random_range(0..3)));
            set("threshold_cur", json!(rng.random_range(0..3)));
            set("timeframe", json!(format!("{}s", rng.random_range(1..20))));
            set("alert_on_new_data", json!(!key.is_null() && rng.random_bool(0.4)));
            if rng.random_bool(0.3) {
                set("field_value", json!("port"));
            }
        }
        "min_cardinality" => {
            set("cardinality_field", json!("port"));
            set("min_cardinality", json!(rng.random_range(1..4)));
            set("timeframe", seconds(rng));
        }
        "metric_aggregation" => {
            let types = ["min", "max", "avg", "sum", "cardinality", "value_count", "percentiles"];
            let metric = types[rng.random_range(0..types.len())];
            set("metric_agg_type", json!(metric));
            set("metric_agg_key", json!("port"));
            if metric == "percentiles" {
                set("percentile_range", json!(rng.random_range(0..101)));
            }
            let range = match metric {
                "sum" => 20..120,
                "cardinality" | "value_count" => 1..5,
                _ => 20..26,
            };
            set("max_threshold", json!(rng.random_range(range)));
            set("min_doc_count", json!(rng.random_range(0..4)));
            set("bucket_interval", seconds(rng));
        }
        "percentage_match" => {
            set("match_bucket_filter", json!([{"term": {"even": true}}]));
            set("min_percentage", json!(rng.random_range(0..50)));
            set("max_percentage", json!(rng.random_range(50..101)));
            set("min_denominator", json!(rng.random_range(0..4)));
            set("bucket_interval", seconds(rng));
        }
        "blacklist" | "whitelist" => {
            set("compare_key", json!("port"));
            set(rule_type, json!([22, "23"]));
        }
        "change" => {
            set("compare_key", json!(["port", "user"]));
            if rng.random_bool(0.7) {
                set("timeframe", seconds(rng));
            }
        }
        "new_term" => {
            set("fields", json!(["user", ["user", "port"]]));
            set("terms_window_size", seconds(rng));
            set("alert_on_missing_field", json!(rng.random_bool(0.5)));
        }
        _ => {}
    }
    if rng.random_bool(0.4) {
        set("realert", seconds(rng));
        if rng.random_bool(0.6) {
            set("exponential_realert", json!("3m"));
        }
    }
    if rng.random_bool(0.2) {
        // Each other minute.
        set("schedule", json!("*/2 * * * *"));
    }
    set("recovery", json!(rng.random_bool(0.5)));
    set("include_updates", json!(rng.random_bool(0.2)));
    set("allow_alerts", json!(rng.random_bool(0.3)));
    if rng.random_bool(0.2) {
        set("timestamp_field", json!("seen"));
    }
    let mut kinds: Vec<u64> = (0..3).filter(|_| rng.random_bool(0.6)).collect();
    kinds.push(3);
    set("search.request.body", json!({"query": {"terms": {"kind": kinds}}}));
    Rule {
        id: format!("r{number}"),
        revision: 1,
        since: if rng.random_bool(0.1) { 5 } else { 0 },
        owner: "somebody".to_owned(),
        definition: Definition::parse(&rule).expect("the generator writes rules that there are"),
    }
}

fn frames(rng: &mut StdRng) -> Vec<Frame> {
    let mut frames = Vec::new();
    let (mut now, mut number, mut serial) = (START, 0, 0_u64);
    let mut next: BTreeMap<(String, u32), u64> = BTreeMap::new();
    let mut there: BTreeMap<(String, String), ()> = BTreeMap::new();
    let mut made_anew = 0;
    for _ in 0..rng.random_range(20..45) {
        number += rng.random_range(1..3);
        now += match rng.random_range(0..20) {
            0 => rng.random_range(20..90) * 1000,
            1 => {
                // Nothing comes while the server is up.
                for _ in 0..rng.random_range(1..30) {
                    now += rng.random_range(1..15) * 1000;
                    let (time, origin) = (Time::from_ms(now), Origin::Rule);
                    frames.push(Frame { number, time, origin, events: Vec::new(), complete: true });
                    number += 1;
                }
                0
            }
            // The clock is set back.
            2 => -2000,
            _ => rng.random_range(0..4) * 1000,
        };
        if rng.random_bool(0.05) {
            made_anew += 1;
        }
        let origin = match rng.random_range(0..20) {
            0 => Origin::Restore,
            1 => Origin::System,
            2 | 3 => Origin::Rule,
            4..8 => Origin::Pipeline,
            _ => Origin::User,
        };
        let mut events = Vec::new();
        for _ in 0..rng.random_range(0..9) {
            serial += 1;
            let which = rng.random_range(0..2);
            let (index, uuid) = match origin {
                Origin::Rule => ("alert".to_owned(), "u-alert".to_owned()),
                _ => (format!("logs-{which}"), format!("u{which}-{made_anew}")),
            };
            let id = format!("d{}", rng.random_range(0..60));
            let shard = id.len() as u32 + u32::from(id.as_bytes()[id.len() - 1] % 4);
            let seq_no = next.entry((uuid.clone(), shard)).or_default();
            let place = (uuid.clone(), id.clone());
            if rng.random_bool(0.3) && there.remove(&place).is_some() {
                *seq_no += 1;
            }
            let created = there.insert(place, ()).is_none();
            let source = source(rng, now, serial);
            events.push(Event {
                times: Default::default(),
                index: index.into(),
                uuid: uuid.into(),
                shard,
                seq_no: *seq_no,
                id: id.into(),
                created,
                source: Arc::new(source),
            });
            *seq_no += 1;
        }
        for at in (1..events.len()).rev() {
            events.swap(at, rng.random_range(0..=at));
        }
        frames.push(Frame { number, time: Time::from_ms(now), origin, events, complete: true });
    }
    frames
}

fn source(rng: &mut StdRng, now: i64, serial: u64) -> Value {
    let time = |rng: &mut StdRng| {
        let ms = now
            - match rng.random_range(0..20) {
                0 | 1 => rng.random_range(5..40) * 1000,
                2 => rng.random_range(20..100) * 1000,
                3 => -rng.random_range(1..60) * 1000,
                _ => rng.random_range(0..3) * 1000,
            };
        if rng.random_bool(0.5) { json!(ms) } else { json!(Time::from_ms(ms).iso()) }
    };
    let user = |rng: &mut StdRng| json!(USERS[rng.random_range(0..USERS.len())]);
    let mut source = json!({"n": serial, "kind": rng.random_range(0..4), "seen": time(rng)});
    if rng.random_bool(0.97) {
        source["@timestamp"] = time(rng);
    }
    match rng.random_range(0..10) {
        0 => {}
        1 => source["user"] = json!([user(rng), user(rng), null]),
        _ => source["user"] = user(rng),
    }
    match rng.random_range(0..5) {
        0 => {}
        1 => source["host.name"] = json!("h1"),
        which => source["host"] = json!({"name": format!("h{which}")}),
    }
    match rng.random_range(0..10) {
        0 => source["port"] = json!(null),
        1 => source["port"] = json!([22, 80]),
        _ => source["port"] = json!(rng.random_range(20..26)),
    }
    if rng.random_bool(0.3) {
        source["depth"] = json!(rng.random_range(1..6));
    }
    source
}
