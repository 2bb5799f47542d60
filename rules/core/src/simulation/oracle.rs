//! Oracle: expected alerts by definition, each event decided from the list of all events before it. The oracle uses nothing of
//! the operators, their state or their reading of fields.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::history::History;
use crate::definition::RuleType;
use crate::engine::{Frame, MAX_DEPTH, Rule};
use crate::event::{Event, Origin};
use crate::time::Time;

/// Parts of an alert that are compared.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ExpectedAlert {
    pub(super) rule: String,
    pub(super) key: String,
    pub(super) trigger: (String, u64),
    pub(super) time: String,
    /// The number of the event that it carries.
    pub(super) n: u64,
    pub(super) count: usize,
    pub(super) events: Vec<(String, u64)>,
    pub(super) depth: u64,
    /// Members that the type adds.
    pub(super) added: Value,
}

/// An event that a rule has seen.
#[derive(Clone)]
struct SeenEvent<'a> {
    at: i64,
    now: i64,
    arrival: usize,
    depth: u64,
    event: &'a Event,
}

fn ids(event: &Event) -> (String, u64) {
    (event.id.to_string(), event.seq_no)
}

/// Values of the fields that histories have, as texts.
pub(super) fn values(source: &Value, field: &str) -> Vec<String> {
    let value = match field {
        "host.name" => {
            source.get("host.name").or_else(|| source.get("host").and_then(|host| host.get("name")))
        }
        other => source.get(other),
    };
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut texts: Vec<String> = Vec::new();
    for value in match value {
        None | Some(Value::Null) => &[][..],
        Some(Value::Array(list)) => list,
        Some(one) => std::slice::from_ref(one),
    } {
        if !value.is_null() && !texts.contains(&text(value)) {
            texts.push(text(value));
        }
    }
    texts
}

/// All combinations of values; a missing one is `None`.
pub(super) fn product(source: &Value, fields: &[String]) -> Vec<Vec<Option<String>>> {
    let Some((first, rest)) = fields.split_first() else { return vec![Vec::new()] };
    let mut heads: Vec<_> = values(source, first).into_iter().map(Some).collect();
    if heads.is_empty() {
        heads.push(None);
    }
    let tails = product(source, rest);
    heads
        .iter()
        .flat_map(|head| tails.iter().map(move |tail| [std::slice::from_ref(head), tail].concat()))
        .collect()
}

pub(super) fn shown(key: &[Option<String>]) -> String {
    let parts: Vec<_> =
        key.iter().map(|part| part.clone().unwrap_or_else(|| "(missing)".to_owned())).collect();
    parts.join(", ")
}

/// The events of a rule, in order.
fn seen<'a>(history: &'a History, rule: &Rule) -> Vec<SeenEvent<'a>> {
    let mut all: Vec<SeenEvent<'a>> = Vec::new();
    let mut now = i64::MIN;
    for Frame { number, time, origin, events, .. } in &history.frames {
        now = now.max(time.ms());
        if *number <= rule.since || matches!(origin, Origin::Restore | Origin::System) {
            continue;
        }
        if history.fails(rule, *number) && !events.is_empty() {
            break;
        }
        let mut of_frame: Vec<_> = Vec::new();
        for event in events {
            let of_rule = *origin == Origin::Rule;
            let depth =
                if of_rule { event.source.get("depth").and_then(Value::as_u64).unwrap_or(1) } else { 0 };
            let definition = &rule.definition;
            let admitted = History::matches(rule, event)
                && (event.created || definition.include_updates)
                && (!of_rule || definition.allow_alerts)
                && depth < u64::from(MAX_DEPTH);
            if admitted {
                let read = event.source.get(&definition.timestamp_field).and_then(Time::read);
                of_frame.push((read.map_or(now, Time::ms), event, depth));
            }
        }
        of_frame.sort_by_key(|(at, event, _)| (*at, event.uuid.to_string(), event.shard, event.seq_no));
        for (at, event, depth) in of_frame {
            let at = at.min(now + history.timing.skew.ms());
            all.push(SeenEvent { at, now, arrival: all.len(), depth, event });
        }
    }
    all
}

/// A rule evaluated by definition.
struct Evaluation<'a> {
    history: &'a History,
    rule: &'a Rule,
    forgets: bool,
    /// Of each key, when it is forgotten, and what is to be remembered of it.
    remembered: BTreeMap<Vec<Option<String>>, (i64, Vec<SeenEvent<'a>>)>,
    silent: BTreeMap<Vec<Option<String>>, (i64, i64, u32)>,
    found: Vec<ExpectedAlert>,
    /// `true` if no event was older than the watermark when it came.
    pub(super) in_time: bool,
}

/// Returns the alerts that a rule has to raise; `forgets` is true if keys are forgotten. The flag tells whether no event was
/// older than the watermark: then it makes no difference.
pub(super) fn expected(history: &History, rule: &Rule, forgets: bool) -> (Vec<ExpectedAlert>, bool) {
    let all = seen(history, rule);
    let mut evaluation = Evaluation {
        history,
        rule,
        forgets,
        remembered: BTreeMap::new(),
        silent: BTreeMap::new(),
        found: Vec::new(),
        in_time: true,
    };
    for (at, event) in all.iter().enumerate() {
        let watermark = evaluation.watermark(&all[..at], event.now);
        evaluation.in_time &= event.at >= watermark;
        evaluation.event(event, watermark);
    }
    (evaluation.found, evaluation.in_time)
}

impl<'a> Evaluation<'a> {
    fn watermark(&self, before: &[SeenEvent<'_>], now: i64) -> i64 {
        let timing = &self.history.timing;
        let idle = |elapsed: i64| (elapsed - timing.idle.ms()).max(0);
        let mut mark: Option<(i64, i64)> = None;
        for event in before {
            let behind = event.at - timing.lateness.ms();
            let moved = mark.map_or(i64::MIN, |(mark, set)| mark + idle(event.now - set));
            mark = Some((moved.max(behind), event.now));
        }
        mark.map_or(i64::MIN, |(mark, set)| mark + idle(now - set))
    }

    fn deadline(latest: i64, watermark: i64, window: i64) -> i64 {
        latest.max(watermark).saturating_add(window)
    }

    /// Returns the remembered events of a key.
    fn recall(&mut self, key: &[Option<String>], watermark: i64) -> Vec<SeenEvent<'a>> {
        match self.remembered.remove(key) {
            Some((deadline, seen)) if watermark < deadline || !self.forgets => seen,
            _ => Vec::new(),
        }
    }

    fn event(&mut self, event: &SeenEvent<'a>, watermark: i64) {
        let definition = &self.rule.definition;
        let keys = product(&event.event.source, &definition.query_key);
        let compares = matches!(definition.rule_type.name(), "blacklist" | "whitelist" | "change");
        let skips = definition.ignore_null && !compares;
        let keys: Vec<_> = keys.into_iter().filter(|key| !skips || key.iter().all(Option::is_some)).collect();
        if keys.is_empty() {
            return;
        }
        let source = &event.event.source;
        match &definition.rule_type {
            RuleType::MinCardinality { .. }
            | RuleType::Spike(_)
            | RuleType::Flatline { .. }
            | RuleType::MetricAggregation(_)
            | RuleType::PercentageMatch(_) => unreachable!("windows have an oracle of their own"),
            RuleType::Any => self.alone(event, &keys, watermark, Value::Null),
            RuleType::Blacklist { entries, .. } => {
                if values(source, "port").iter().any(|port| entries.contains(port)) {
                    self.alone(event, &keys, watermark, Value::Null);
                }
            }
            RuleType::Whitelist { entries, ignore_null, .. } => {
                let ports = values(source, "port");
                if ports.is_empty() && !ignore_null || ports.iter().any(|port| !entries.contains(port)) {
                    self.alone(event, &keys, watermark, Value::Null);
                }
            }
            RuleType::Frequency { num_events, timeframe, attach_related } => {
                for key in &keys {
                    self.frequency(event, key, watermark, (*num_events, timeframe.ms(), *attach_related));
                }
            }
            RuleType::Cardinality { field, max, timeframe } => {
                for key in &keys {
                    self.cardinality(event, key, watermark, field, (*max, timeframe.ms()));
                }
            }
            RuleType::Change { compare_key, timeframe, ignore_null } => {
                let compared = |event: &Event| -> Vec<_> {
                    compare_key.iter().map(|field| values(&event.source, field)).collect()
                };
                let new = compared(event.event);
                if *ignore_null && new.iter().any(Vec::is_empty) {
                    return;
                }
                let window = timeframe.map_or(30 * 86_400_000, |timeframe| timeframe.ms() + 1);
                for key in &keys {
                    if let Some(last) = self.recall(key, watermark).pop() {
                        let soon = timeframe.is_none_or(|timeframe| event.at - last.at <= timeframe.ms());
                        let old = compared(last.event);
                        if old != new && soon {
                            let added = serde_json::json!([listed(&old), listed(&new)]);
                            self.alone(event, std::slice::from_ref(key), watermark, added);
                        }
                    }
                    let deadline = Self::deadline(event.at, watermark, window);
                    self.remembered.insert(key.clone(), (deadline, vec![event.clone()]));
                }
            }
            RuleType::NewTerm { fields, window, alert_on_missing_field } => {
                for (place, field) in fields.iter().enumerate() {
                    for term in product(source, field) {
                        let name = if field.len() == 1 {
                            Value::from(field[0].clone())
                        } else {
                            field.clone().into()
                        };
                        if term.iter().any(Option::is_none) {
                            if *alert_on_missing_field {
                                self.alone(
                                    event,
                                    &keys,
                                    watermark,
                                    serde_json::json!({"missing_field": name}),
                                );
                            }
                            continue;
                        }
                        let term = [&[Some(place.to_string())], &term[..]].concat();
                        let mut sightings = self.recall(&term, watermark);
                        let latest = sightings.iter().map(|seen| seen.at).max();
                        let known = latest.is_some_and(|latest| event.at - latest < window.ms());
                        sightings.push(event.clone());
                        let latest = latest.map_or(event.at, |latest| latest.max(event.at));
                        let deadline = Self::deadline(latest, watermark, window.ms());
                        self.remembered.insert(term, (deadline, sightings));
                        if !known {
                            self.alone(event, &keys, watermark, serde_json::json!({"new_field": name}));
                        }
                    }
                }
            }
        }
    }

    /// Alerts that an event makes by itself.
    fn alone(&mut self, event: &SeenEvent<'a>, keys: &[Vec<Option<String>>], watermark: i64, added: Value) {
        for key in keys {
            self.raise(event, key, watermark, event, std::slice::from_ref(event), 1, added.clone());
        }
    }

    fn frequency(
        &mut self,
        event: &SeenEvent<'a>,
        key: &[Option<String>],
        watermark: i64,
        (num_events, timeframe, attach_related): (usize, i64, bool),
    ) {
        let mut since_cleared = self.recall(key, watermark);
        since_cleared.push(event.clone());
        let latest = since_cleared.iter().map(|seen| seen.at).max().unwrap_or(event.at);
        let mut within: Vec<_> =
            since_cleared.iter().filter(|seen| latest - seen.at < timeframe).cloned().collect();
        within.sort_by_key(|seen| (seen.at, seen.arrival));
        if within.len() >= num_events {
            let carried = within.last().expect("the latest is among them").clone();
            let related =
                within[..within.len() - 1].iter().map(|seen| seen.event.source["n"].clone()).collect();
            let added = if attach_related { Value::Array(related) } else { Value::Null };
            self.raise(event, key, watermark, &carried, &within, within.len(), added);
            return;
        }
        let deadline = Self::deadline(latest, watermark, timeframe);
        self.remembered.insert(key.to_vec(), (deadline, since_cleared));
    }

    fn cardinality(
        &mut self,
        event: &SeenEvent<'a>,
        key: &[Option<String>],
        watermark: i64,
        field: &str,
        (max, timeframe): (usize, i64),
    ) {
        if values(&event.event.source, field).is_empty() {
            return;
        }
        let mut all = self.recall(key, watermark);
        all.push(event.clone());
        let latest = all.iter().map(|seen| seen.at).max().unwrap_or(event.at);
        let distinct: BTreeSet<String> =
            all.iter().flat_map(|seen| values(&seen.event.source, field)).collect();
        // Of each value the last sighting by time; of one event's values the order in which it has them.
        let mut sightings: Vec<(i64, usize, usize, &SeenEvent<'a>)> = Vec::new();
        for value in &distinct {
            let place =
                |seen: &SeenEvent<'_>| values(&seen.event.source, field).iter().position(|one| one == value);
            let last = all.iter().filter_map(|seen| Some((seen.at, seen.arrival, place(seen)?, seen)));
            sightings.extend(last.max_by_key(|(at, arrival, place, _)| (*at, *arrival, *place)));
        }
        sightings.retain(|(at, ..)| latest - at < timeframe);
        sightings.sort_by_key(|(at, arrival, place, _)| (*at, *arrival, *place));
        if latest - event.at < timeframe && sightings.len() > max {
            let newest = &sightings[sightings.len() - max - 1..];
            let mut events: Vec<SeenEvent<'a>> = Vec::new();
            for (_, _, _, seen) in newest {
                if !events.iter().any(|one| one.arrival == seen.arrival) {
                    events.push((*seen).clone());
                }
            }
            self.raise(event, key, watermark, event, &events, newest.len(), Value::Null);
        }
        let deadline = Self::deadline(latest, watermark, timeframe);
        self.remembered.insert(key.to_vec(), (deadline, all));
    }

    #[allow(clippy::too_many_arguments, reason = "what an alert consists of")]
    fn raise(
        &mut self,
        trigger: &SeenEvent<'a>,
        key: &[Option<String>],
        watermark: i64,
        carried: &SeenEvent<'a>,
        events: &[SeenEvent<'a>],
        count: usize,
        added: Value,
    ) {
        if self.rule.definition.schedule.is_some() && !is_even_minute(carried.at) {
            return;
        }
        let realert = self.rule.definition.realert;
        let wait = realert.wait.ms();
        if wait > 0 {
            let before =
                self.silent.get(key).copied().filter(|(deadline, ..)| watermark < *deadline || !self.forgets);
            let silent = before.is_some_and(|(_, until, _)| carried.at < until);
            let (until, exponent) = match (before, realert.at_most) {
                (Some((_, until, exponent)), _) if silent => (until, exponent),
                (Some((_, until, exponent)), Some(most)) => {
                    let (mut quiet, mut exponent) = (carried.at - until, exponent);
                    if quiet < wait << exponent {
                        exponent += 1;
                    } else {
                        while exponent > 0 && quiet > wait << exponent {
                            quiet -= wait << exponent;
                            exponent -= 1;
                        }
                    }
                    if wait << exponent >= most.ms() {
                        (carried.at + most.ms(), exponent.saturating_sub(1))
                    } else {
                        (carried.at + (wait << exponent), exponent)
                    }
                }
                _ => (carried.at + wait, 0),
            };
            let deadline = (until + (wait << (exponent + 1))).max(watermark.saturating_add(wait));
            self.silent.insert(key.to_vec(), (deadline, until, exponent));
            if silent {
                return;
            }
        }
        let own =
            matches!(self.rule.definition.rule_type, RuleType::Cardinality { .. }).then_some(trigger.depth);
        self.found.push(ExpectedAlert {
            rule: self.rule.id.clone(),
            key: shown(key),
            trigger: ids(trigger.event),
            time: Time::from_ms(carried.at).iso(),
            n: carried.event.source["n"].as_u64().unwrap_or(0),
            count,
            events: events.iter().map(|seen| ids(seen.event)).collect(),
            depth: events.iter().map(|seen| seen.depth).chain(own).max().unwrap_or(0) + 1,
            added,
        });
    }
}

/// The schedule of histories.
pub(super) fn is_even_minute(at: i64) -> bool {
    at.div_euclid(60_000) % 2 == 0
}

fn listed(values: &[Vec<String>]) -> Value {
    let field = |values: &Vec<String>| match values.as_slice() {
        [] => Value::Null,
        [one] => Value::from(one.clone()),
        several => several.into(),
    };
    values.iter().map(field).collect()
}
