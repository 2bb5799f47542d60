//! Oracle of types that wait: expected alerts, revisions and ends of conditions by definition. Each window is judged from the
//! list of all events that had come, whenever it closes or a late event belongs to it. The oracle uses nothing of panes, due
//! windows or evictions.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::history::History;
use super::oracle::{is_even_minute, product, shown, values};
use crate::definition::{Direction, Metric, RuleType};
use crate::engine::{MAX_DEPTH, Operation, Rule};
use crate::event::{Event, Origin};
use crate::time::Time;

type Key = Vec<Option<String>>;

/// Parts of an operation that are compared.
#[derive(Clone, Debug, PartialEq)]
enum RecordedOperation {
    Alert { key: String, start: i64, end: i64, at: i64, count: usize, added: Value, depth: u64 },
    Revision { key: String, start: i64, at: i64, count: usize, added: Value, holds: bool },
    Recovery { key: String, start: i64, end: i64 },
}

struct SeenEvent<'a> {
    event: &'a Event,
    at: i64,
    second: bool,
    keys: Vec<Key>,
}

struct FiredWindow {
    end: i64,
    raised: bool,
    open: bool,
}

/// A key: from when it is known, whether nothing is told of it, the greatest depth of its events.
struct KeyRecord {
    from: i64,
    asleep: bool,
    latest: i64,
    depth: u64,
}

struct Oracle<'a> {
    rule: &'a Rule,
    pane: i64,
    per: i64,
    span: i64,
    lateness: i64,
    delay: i64,
    idle: i64,
    forget: i64,
    greatest: Option<(i64, i64)>,
    origin: Option<i64>,
    unobserved: Vec<(i64, i64)>,
    absences: Vec<(i64, i64)>,
    closed: i64,
    seen: Vec<SeenEvent<'a>>,
    keys: BTreeMap<Key, KeyRecord>,
    fired: BTreeMap<Key, Vec<FiredWindow>>,
    silent: BTreeMap<Key, (i64, i64, u32)>,
    told: Vec<RecordedOperation>,
}

/// Compares what a rule has raised with what it has to raise.
pub(super) fn check(history: &History, rule: &Rule, operations: &[Operation]) -> Result<(), String> {
    let expected = expected(history, rule);
    let found = found(rule, operations);
    if found == expected {
        return Ok(());
    }
    let place = found.iter().zip(&expected).take_while(|(one, other)| one == other).count();
    Err(format!(
        "{} {:?}: {place} of {} ({} expected)\n     is {:?}\nexpected {:?}",
        rule.definition.document(),
        history.timing,
        found.len(),
        expected.len(),
        found.get(place),
        expected.get(place)
    ))
}

fn found(rule: &Rule, operations: &[Operation]) -> Vec<RecordedOperation> {
    let mut windows: BTreeMap<String, (String, i64)> = BTreeMap::new();
    let time = |value: &Value| value.as_str().and_then(Time::parse).map_or(i64::MIN, Time::ms);
    let count = |document: &Value| document["event_count"].as_u64().unwrap_or(u64::MAX) as usize;
    let mut all = Vec::new();
    for operation in operations {
        match operation {
            Operation::Alert { rule: of, id, document } if *of == rule.id => {
                let key = document["key"].as_str().unwrap_or_default().to_owned();
                let start = time(&document["window"]["start"]);
                windows.insert(id.clone(), (key.clone(), start));
                all.push(RecordedOperation::Alert {
                    key,
                    start,
                    end: time(&document["@timestamp"]),
                    at: time(&document["alert_time"]),
                    count: count(document),
                    added: added(&document["match_body"]),
                    depth: document["depth"].as_u64().unwrap_or(0),
                });
            }
            Operation::Revision { rule: of, id, document } if *of == rule.id => {
                let (key, start) = windows.get(id).cloned().unwrap_or_default();
                all.push(RecordedOperation::Revision {
                    key,
                    start,
                    at: time(&document["revised_at"]),
                    count: count(document),
                    added: added(&document["match_body"]),
                    holds: document["holds"] == json!(true),
                });
            }
            Operation::Recovery { rule: of, id, key, time } if *of == rule.id => {
                let (named, start) = windows.get(id).cloned().unwrap_or_default();
                let key = if named == *key { named } else { format!("{key} of [{named}]") };
                all.push(RecordedOperation::Recovery { key, start, end: time.ms() });
            }
            _ => {}
        }
    }
    all
}

fn added(body: &Value) -> Value {
    let of_type = |name: &str| {
        name.starts_with("metric_")
            || ["spike_count", "reference_count", "cardinality", "percentage", "denominator"].contains(&name)
    };
    let members = body.as_object().into_iter().flatten().filter(|(name, _)| of_type(name));
    members.map(|(name, value)| (name.clone(), value.clone())).collect::<serde_json::Map<_, _>>().into()
}

fn expected(history: &History, rule: &Rule) -> Vec<RecordedOperation> {
    let timing = &history.timing;
    let window = match &rule.definition.rule_type {
        RuleType::Spike(spike) => spike.timeframe.ms(),
        _ => rule.definition.timeframe().ms(),
    };
    let slides = matches!(rule.definition.rule_type.name(), "spike" | "flatline");
    let per = if slides {
        (1..=10).filter(|per| window % per == 0 && window / per >= 1000).max().unwrap_or(1)
    } else {
        1
    };
    let spans = if rule.definition.rule_type.name() == "spike" { 2 } else { 1 };
    let delay = timing.delay.ms();
    let mut oracle = Oracle {
        rule,
        pane: window / per,
        per,
        span: per * spans,
        lateness: (10 * window).max(300_000).min(timing.lateness.ms()).max(delay),
        delay,
        idle: timing.idle.ms(),
        forget: timing.lateness.ms(),
        greatest: None,
        origin: None,
        unobserved: Vec::new(),
        absences: Vec::new(),
        closed: i64::MIN,
        seen: Vec::new(),
        keys: BTreeMap::new(),
        fired: BTreeMap::new(),
        silent: BTreeMap::new(),
        told: Vec::new(),
    };
    let mut begun = None;
    let mut before: Option<i64> = None;
    let waits = history.rules.iter().any(|rule| rule.definition.rule_type.is_waiting());
    for frame in &history.frames {
        let now = before.map_or(frame.time.ms(), |before| before.max(frame.time.ms()));
        let is_fed = !matches!(frame.origin, Origin::Restore | Origin::System);
        if frame.number > rule.since && is_fed && history.fails(rule, frame.number) {
            break;
        }
        if let Some(before) = before.filter(|before| now - before > timing.heartbeat.ms() && waits) {
            oracle.absences.push((before, now));
        }
        before = Some(now);
        if frame.number <= rule.since {
            continue;
        }
        let begun = *begun.get_or_insert(now);
        if oracle.origin.is_none() && oracle.looks_without_events() && now >= begun + oracle.idle {
            (oracle.greatest, oracle.origin) = (Some((begun, begun)), Some(begun));
            oracle.keys.insert(Vec::new(), oracle.known(begun, 0));
        }
        oracle.close(now);
        if is_fed {
            let late = oracle.take(history, frame.origin, &frame.events, now);
            oracle.settle(&late, now);
            oracle.close(now);
        }
    }
    oracle.told
}

impl<'a> Oracle<'a> {
    fn looks_always(&self) -> bool {
        matches!(self.rule.definition.rule_type, RuleType::Flatline { .. } | RuleType::MinCardinality { .. })
    }

    fn looks_without_events(&self) -> bool {
        self.looks_always() && self.rule.definition.query_key.is_empty()
    }

    fn known(&self, at: i64, depth: u64) -> KeyRecord {
        let pane = at.div_euclid(self.pane);
        let from = if pane * self.pane < at { pane + 1 } else { pane };
        KeyRecord { from, asleep: false, latest: pane, depth }
    }

    /// Event time at the time of a frame.
    fn greatest(&self, now: i64) -> Option<i64> {
        let (greatest, set) = self.greatest?;
        let mut at = now;
        for (from, to) in self.absences.iter().rev() {
            if *to > set && at > *from && at < to + self.idle {
                at = *from;
            }
        }
        Some(greatest + (at - set - self.idle).max(0))
    }

    /// Returns the time at which a window is over, found by bisection: trying each millisecond would take too long.
    fn over(&self, end: i64, now: i64) -> i64 {
        let (_, set) = self.greatest.expect("something was seen");
        let reached = |at: i64| self.greatest(at).is_some_and(|greatest| greatest - self.delay >= end);
        if reached(set) {
            return set;
        }
        let (mut not, mut is) = (set, now);
        while is - not > 1 {
            let middle = not + (is - not) / 2;
            if reached(middle) {
                is = middle;
            } else {
                not = middle;
            }
        }
        is
    }

    /// Takes the events of a frame; returns those that are late, by key.
    fn take(
        &mut self,
        history: &History,
        origin: Origin,
        events: &'a [Event],
        now: i64,
    ) -> BTreeMap<Key, Vec<i64>> {
        let definition = &self.rule.definition;
        let mut of_frame: Vec<(i64, &Event, u64)> = Vec::new();
        for event in events {
            let of_rule = origin == Origin::Rule;
            let depth = if of_rule { event.source["depth"].as_u64().unwrap_or(1) } else { 0 };
            if History::matches(self.rule, event)
                && (event.created || definition.include_updates)
                && (!of_rule || definition.allow_alerts)
                && depth < u64::from(MAX_DEPTH)
            {
                let read = event.source.get(&definition.timestamp_field).and_then(Time::read);
                of_frame.push((read.map_or(now, Time::ms), event, depth));
            }
        }
        of_frame.sort_by_key(|(at, event, _)| (*at, event.uuid.to_string(), event.shard, event.seq_no));
        let mut late: BTreeMap<Key, Vec<i64>> = BTreeMap::new();
        for (at, event, depth) in of_frame {
            let at = at.min(now + history.timing.skew.ms());
            let before = self.greatest(now);
            if before.is_some_and(|greatest| at < greatest - self.lateness) {
                continue;
            }
            if let Some((greatest, set)) = self.greatest
                && at - greatest > now - set + self.idle
            {
                self.unobserved.push((greatest, at));
            }
            self.greatest = Some((before.map_or(at, |greatest| greatest.max(at)), now));
            if self.origin.is_none() {
                self.origin = Some(at);
                if self.looks_without_events() {
                    self.keys.insert(Vec::new(), self.known(at, 0));
                }
            }
            // Windows that it is behind are closed before it counts.
            let greatest = self.greatest(now).unwrap_or(i64::MIN);
            if (greatest - self.delay).div_euclid(self.pane) > self.closed {
                let late = std::mem::take(&mut late);
                self.settle(&late, now);
                self.close(now);
            }
            let closed = self.closed;
            let keys: Vec<Key> = product(&event.source, &definition.query_key)
                .into_iter()
                .filter(|key| !definition.ignore_null || key.iter().all(Option::is_some))
                .collect();
            let second = History::matches_second(self.rule, event);
            let seen = SeenEvent { event, at, second, keys: keys.clone() };
            if !self.counts(&seen) {
                continue;
            }
            let pane = at.div_euclid(self.pane);
            for key in keys {
                let lowest = before.map_or(i64::MIN, |greatest| {
                    (greatest - self.lateness).div_euclid(self.pane) - self.span
                });
                let fresh = self.known(at, depth);
                let open = self.fired.get(&key).is_some_and(|fired| fired.iter().any(|fired| fired.open));
                let looks_always = self.looks_always();
                match self.keys.get_mut(&key) {
                    Some(known) if known.asleep && pane > known.latest => {
                        *known = fresh;
                    }
                    Some(known) if !looks_always && known.latest < lowest && !open => *known = fresh,
                    Some(known) => {
                        known.latest = known.latest.max(pane);
                        known.depth = known.depth.max(depth);
                    }
                    None => {
                        self.keys.insert(key.clone(), fresh);
                    }
                }
                if closed > i64::MIN && pane < closed {
                    late.entry(key).or_default().push(pane);
                }
            }
            self.seen.push(seen);
        }
        late
    }

    fn counts(&self, seen: &SeenEvent<'_>) -> bool {
        match &self.rule.definition.rule_type {
            RuleType::Spike(spike) if spike.field_value.is_some() => !numbers(seen).is_empty(),
            RuleType::MinCardinality { field, .. } => !values(&seen.event.source, field).is_empty(),
            _ => true,
        }
    }

    fn settle(&mut self, late: &BTreeMap<Key, Vec<i64>>, now: i64) {
        for (key, panes) in late {
            let ends: BTreeSet<i64> = panes.iter().flat_map(|pane| pane + 1..=pane + self.span).collect();
            let closed = self.closed;
            for end in ends.into_iter().filter(|end| *end <= closed) {
                self.look(key, end, now);
            }
        }
    }

    fn close(&mut self, now: i64) {
        let Some(greatest) = self.greatest(now) else { return };
        let target = (greatest - self.delay).div_euclid(self.pane);
        // Before the first event of all nothing can be told.
        let first = self.seen.iter().map(|seen| seen.at).chain(self.origin).min().unwrap_or(0);
        for end in self.closed.max(first.div_euclid(self.pane)) + 1..=target {
            let at = self.over(end * self.pane, now);
            let keys: Vec<Key> = self.keys.keys().cloned().collect();
            for key in keys {
                self.look(&key, end, at);
            }
        }
        self.closed = self.closed.max(target);
    }

    fn is_unobserved(&self, end: i64, at: i64) -> bool {
        let (from, to) = ((end - self.span) * self.pane, end * self.pane);
        let known = self.absences.iter().filter(|(began, _)| *began < at);
        self.origin.is_none_or(|origin| from < origin)
            || self.unobserved.iter().chain(known).any(|stretch| stretch.0 < to && from < stretch.1)
    }

    /// Events of a key in panes, in the order in which they came.
    fn events(&self, key: &Key, from: i64, to: i64) -> Vec<&SeenEvent<'a>> {
        let within = |seen: &&SeenEvent<'_>| {
            seen.at >= from * self.pane && seen.at < to * self.pane && seen.keys.contains(key)
        };
        self.seen.iter().filter(within).collect()
    }

    fn look(&mut self, key: &Key, end: i64, at: i64) {
        let definition = &self.rule.definition;
        let current = self.events(key, end - self.per, end);
        let before = self.events(key, end - 2 * self.per, end - self.per);
        let Some(known) = self.keys.get(key) else { return };
        let new_data = matches!(&definition.rule_type, RuleType::Spike(spike) if spike.alert_on_new_data);
        let waits_for_history = self.looks_always() || definition.rule_type.name() == "spike";
        let late = end <= self.closed;
        if waits_for_history && (self.is_unobserved(end, at) || (end - self.span < known.from && !new_data)) {
            return;
        }
        if known.asleep && !late {
            return;
        }
        let Some((holds, added)) = judged(&definition.rule_type, &current, &before) else { return };
        let (count, depth) = (current.len(), known.depth + 1);
        let (pane, per, name) = (self.pane, self.per, shown(key));
        let start = (end - per) * pane;
        let fired = self.fired.entry(key.clone()).or_default();
        if let Some(of) = fired.iter().find(|fired| fired.end == end) {
            if of.raised {
                self.told.push(RecordedOperation::Revision {
                    key: name.clone(),
                    start,
                    at,
                    count,
                    added,
                    holds,
                });
            }
        } else if holds && fired.iter().all(|fired| (fired.end - end).abs() >= per) {
            let raised = self.admits(key, end * pane, at);
            if raised {
                let end = end * pane;
                self.told.push(RecordedOperation::Alert {
                    key: name.clone(),
                    start,
                    end,
                    at,
                    count,
                    added,
                    depth,
                });
            }
            let open = raised && definition.recovery;
            self.fired.entry(key.clone()).or_default().push(FiredWindow { end, raised, open });
            if let RuleType::Flatline { forget_keys: true, .. } = definition.rule_type
                && let Some(known) = self.keys.get_mut(key)
            {
                known.asleep = true;
            }
        }
        if !holds {
            let fired = self.fired.entry(key.clone()).or_default();
            fired.sort_by_key(|fired| fired.end);
            for ended in fired.iter_mut().filter(|fired| fired.open && fired.end <= end) {
                ended.open = false;
                let start = (ended.end - per) * pane;
                self.told.push(RecordedOperation::Recovery { key: name.clone(), start, end: end * pane });
            }
        }
    }

    /// Returns whether schedule and `realert` let an alert of a window by.
    fn admits(&mut self, key: &Key, end: i64, at: i64) -> bool {
        let definition = &self.rule.definition;
        if definition.schedule.is_some() && !is_even_minute(end - 1) {
            return false;
        }
        let wait = definition.realert.wait.ms();
        if wait == 0 {
            return true;
        }
        let watermark = self.greatest(at).unwrap_or(i64::MIN) - self.forget;
        let before = self.silent.get(key).copied().filter(|(deadline, ..)| watermark < *deadline);
        let silent = before.is_some_and(|(_, until, _)| end < until);
        let (until, exponent) = match (before, definition.realert.at_most) {
            (Some((_, until, exponent)), _) if silent => (until, exponent),
            (Some((_, until, mut exponent)), Some(most)) => {
                let mut quiet = end - until;
                if quiet < wait << exponent {
                    exponent += 1;
                } else {
                    while exponent > 0 && quiet > wait << exponent {
                        quiet -= wait << exponent;
                        exponent -= 1;
                    }
                }
                if wait << exponent >= most.ms() {
                    (end + most.ms(), exponent.saturating_sub(1))
                } else {
                    (end + (wait << exponent), exponent)
                }
            }
            _ => (end + wait, 0),
        };
        let deadline = (until + (wait << (exponent + 1))).max(watermark.saturating_add(wait));
        self.silent.insert(key.clone(), (deadline, until, exponent));
        !silent
    }
}

fn numbers(seen: &SeenEvent<'_>) -> Vec<f64> {
    values(&seen.event.source, "port").iter().filter_map(|value| value.parse().ok()).collect()
}

/// Judges a window.
fn judged(
    rule_type: &RuleType,
    current: &[&SeenEvent<'_>],
    before: &[&SeenEvent<'_>],
) -> Option<(bool, Value)> {
    let every =
        |events: &[&SeenEvent<'_>]| events.iter().flat_map(|seen| numbers(seen)).collect::<Vec<f64>>();
    Some(match rule_type {
        RuleType::Flatline { threshold, .. } => ((current.len() as u64) < *threshold, json!({})),
        RuleType::MinCardinality { field, min, .. } => {
            let different: BTreeSet<String> =
                current.iter().flat_map(|seen| values(&seen.event.source, field)).collect();
            let counted = different.len().min(*min);
            (different.len() < *min, json!({"cardinality": counted}))
        }
        RuleType::Spike(spike) => {
            if current.is_empty() && before.is_empty() {
                return None;
            }
            let is = |before: f64, current: f64| {
                let (up, down) = (current >= before * spike.height, current <= before / spike.height);
                match spike.direction {
                    Direction::Up => up,
                    Direction::Down => down,
                    Direction::Both => up || down,
                }
            };
            if spike.field_value.is_some() {
                let mean = |events: &[&SeenEvent<'_>]| {
                    let sum: f64 = events.iter().map(|seen| numbers(seen)[0]).sum();
                    (!events.is_empty() && sum != 0.0).then(|| sum / events.len() as f64)
                };
                let (before, current) = (mean(before), mean(current));
                let holds = before.zip(current).is_some_and(|(before, current)| is(before, current));
                (holds, json!({"spike_count": current, "reference_count": before}))
            } else {
                let enough =
                    before.len() as u64 >= spike.threshold_ref && current.len() as u64 >= spike.threshold_cur;
                let holds = enough && is(before.len() as f64, current.len() as f64);
                (holds, json!({"spike_count": current.len(), "reference_count": before.len()}))
            }
        }
        RuleType::MetricAggregation(of) => {
            if current.is_empty() || (current.len() as u64) < of.min_doc_count {
                return None;
            }
            let mut numbers = every(current);
            numbers.sort_by(f64::total_cmp);
            let sum: f64 = numbers.iter().sum();
            let figure = match of.metric {
                Metric::Min => *numbers.first()?,
                Metric::Max => *numbers.last()?,
                Metric::Avg => numbers.first().map(|_| sum / numbers.len() as f64)?,
                Metric::Sum => sum,
                Metric::ValueCount => numbers.len() as f64,
                Metric::Cardinality => {
                    let all = current.iter().flat_map(|seen| values(&seen.event.source, "port"));
                    all.collect::<BTreeSet<_>>().len() as f64
                }
                Metric::Percentile(percent) => {
                    let rank = (percent / 100.0 * numbers.len() as f64).ceil().max(1.0);
                    *numbers.get(rank as usize - 1)?
                }
            };
            let whole = matches!(of.metric, Metric::ValueCount | Metric::Cardinality);
            let shown = if whole { json!(figure as u64) } else { json!(figure) };
            let holds = of.max.is_some_and(|max| figure > max) || of.min.is_some_and(|min| figure < min);
            (holds, json!({of.member(): shown}))
        }
        RuleType::PercentageMatch(of) => {
            if current.is_empty() || (current.len() as u64) < of.min_denominator {
                return None;
            }
            let matching = current.iter().filter(|seen| seen.second).count();
            let share = matching as f64 / current.len() as f64 * 100.0;
            let holds = of.max.is_some_and(|max| share > max) || of.min.is_some_and(|min| share < min);
            (holds, json!({"percentage": share, "denominator": current.len()}))
        }
        _ => return None,
    })
}
