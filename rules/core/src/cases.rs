//! Files that test a rule: events, and the alerts that they are expected to raise.
//!
//! A file is YAML: `cases`, each with a `name`, `events` and `alerts`; the rule stands in a file beside it, or under `rule`.
//! An event is a source; members of it that begin with `_` say how it was written: `_id` (its place in the list, from 1),
//! `_index`, `_shard`, `_frame` (one of its own, in the order of the list), `_time` (of the frame: the greatest event time so
//! far), `_update: true`. Of an expected alert each member has to be equal in the alert's document, by dotted names;
//! `trigger` and `events` are written as the `_id`s, numbers and times as their text. Alerts are expected in the order in
//! which they are raised, and no others; each as it is at the end, revised and recovered.
//!
//! For types that wait for windows, `until` says until when time goes on behind the last event, and `down` lists when the server
//! was down, as pairs of times.
//!
//! The runner has no filters: who calls it brings the [`Matcher`].

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::definition::Definition;
use crate::engine::{Engine, Frame, Matcher, Operation, Rule};
use crate::error::{Error, Result};
use crate::event::{Event, Origin};
use crate::fields;
use crate::operator::{Bounds, Timing};
use crate::time::Time;

/// Id of the rule that is tested.
pub const RULE: &str = "tested";

/// Cases of a file, and events of a case.
const MAX_CASES: usize = 1000;
const MAX_EVENTS: usize = 100_000;

/// A rule with its cases.
#[derive(Clone, Debug)]
pub struct Suite {
    /// The rule.
    pub rule: Definition,
    cases: Vec<Case>,
}

#[derive(Clone, Debug)]
struct Case {
    name: String,
    frames: Vec<Frame>,
    down: Vec<(Time, Time)>,
    until: Option<Time>,
    expected: Vec<Map<String, Value>>,
}

/// Outcome of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its name.
    pub name: String,
    /// Differences from the expectation; nothing where the case holds.
    pub failures: Vec<String>,
}

impl Suite {
    /// Reads a file of cases and the rule's own file, where it has one.
    ///
    /// # Errors
    ///
    /// Names what is missing or malformed in one of them.
    pub fn read(cases: &str, rule: Option<&str>) -> Result<Self> {
        let file: Value = serde_norway::from_str(cases)
            .map_err(|error| Error::invalid("cases", format!("is no YAML: {error}")))?;
        let rule = match (file.get("rule"), rule) {
            (Some(rule), _) => Definition::parse(rule)?,
            (None, Some(text)) => Definition::from_yaml("rule", text)?,
            (None, None) => {
                return Err(Error::invalid("rule", "is missing: in the file, or in one beside it"));
            }
        };
        let list = list("cases", file.get("cases"), MAX_CASES)?;
        let cases = list.iter().map(|case| Case::read(case, &rule)).collect::<Result<_>>()?;
        Ok(Self { rule, cases })
    }

    /// Runs all cases, each from the beginning.
    pub fn run(&self, matcher: &mut dyn Matcher) -> Vec<Outcome> {
        self.cases.iter().map(|case| case.run(&self.rule, matcher)).collect()
    }
}

fn list<'a>(name: &str, value: Option<&'a Value>, bound: usize) -> Result<&'a [Value]> {
    match value {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(list)) if list.len() <= bound => Ok(list),
        Some(Value::Array(list)) => {
            Err(Error::TooLarge { field: name.to_owned(), size: list.len(), unit: "entries", bound })
        }
        Some(_) => Err(Error::invalid(name, "is no list")),
    }
}

impl Case {
    fn read(case: &Value, rule: &Definition) -> Result<Self> {
        let name = case.get("name").map(|name| fields::text(name).into_owned()).unwrap_or_default();
        let mut frames: Vec<Frame> = Vec::new();
        let mut greatest = Time::default();
        for (place, event) in list("events", case.get("events"), MAX_EVENTS)?.iter().enumerate() {
            let Value::Object(members) = event else {
                return Err(Error::invalid(
                    "events",
                    format!("has something else than an object in case [{name}]"),
                ));
            };
            let (told, source): (Map<_, _>, Map<_, _>) =
                members.clone().into_iter().partition(|(member, _)| member.starts_with('_'));
            let text = |member: &str, otherwise: String| -> Arc<str> {
                told.get(member).map(|value| fields::text(value).into_owned()).unwrap_or(otherwise).into()
            };
            let number =
                |member: &str, otherwise: u64| told.get(member).and_then(Value::as_u64).unwrap_or(otherwise);
            let index =
                text("_index", rule.index.first().map(|index| index.replace('*', "1")).unwrap_or_default());
            let event = Event {
                times: Default::default(),
                uuid: index.clone(),
                index,
                shard: u32::try_from(number("_shard", 0)).unwrap_or(0),
                seq_no: place as u64,
                id: text("_id", (place + 1).to_string()),
                created: told.get("_update") != Some(&Value::Bool(true)),
                source: Arc::new(Value::Object(source)),
            };
            greatest = greatest.max(event.time(&rule.timestamp_field, rule.counts_seconds(), greatest));
            let time = told.get("_time").and_then(Time::read).unwrap_or(greatest);
            let last = frames.last().map_or(0, |frame| frame.number);
            let number = number("_frame", last + 1);
            match frames.last_mut() {
                Some(frame) if frame.number == number => frame.events.push(event),
                _ if number <= last => {
                    return Err(Error::invalid(
                        "_frame",
                        format!("[{number}] comes behind [{last}] in case [{name}]"),
                    ));
                }
                _ => frames.push(Frame {
                    number,
                    time,
                    origin: Origin::User,
                    events: vec![event],
                    complete: true,
                }),
            }
        }
        let mut expected = Vec::new();
        for alert in list("alerts", case.get("alerts"), MAX_EVENTS)? {
            let Value::Object(members) = alert else {
                return Err(Error::invalid(
                    "alerts",
                    format!("has something else than an object in case [{name}]"),
                ));
            };
            expected.push(members.clone());
        }
        let mut down = Vec::new();
        for stretch in list("down", case.get("down"), MAX_CASES)? {
            let times: Vec<Time> = stretch.as_array().into_iter().flatten().filter_map(Time::read).collect();
            match times[..] {
                [from, to] if from < to => down.push((from, to)),
                _ => {
                    return Err(Error::invalid(
                        "down",
                        format!("has something else than two times in case [{name}]"),
                    ));
                }
            }
        }
        let until =
            match case.get("until") {
                None | Some(Value::Null) => None,
                Some(time) => Some(Time::read(time).ok_or_else(|| {
                    Error::invalid("until", format!("[{time}] is no time in case [{name}]"))
                })?),
            };
        Ok(Self { name, frames, down, until, expected })
    }

    fn run(&self, rule: &Definition, matcher: &mut dyn Matcher) -> Outcome {
        let mut engine = Engine::new(Timing::default(), Bounds::default());
        let mut definition = rule.clone();
        definition.enabled = true;
        let rule = Rule { id: RULE.to_owned(), revision: 1, since: 0, owner: "test".to_owned(), definition };
        engine.put(rule);
        // Between the times of a case the server was up, unless the case says otherwise.
        engine.set_absences(self.down.clone());
        let mut operations: Vec<Operation> = Vec::new();
        for frame in &self.frames {
            operations.extend(engine.frame(frame, matcher));
        }
        if let Some(until) = self.until {
            operations.extend(engine.advance(until));
        }
        let mut alerts: Vec<Value> = Vec::new();
        let mut failures = Vec::new();
        for operation in operations {
            match operation {
                Operation::Alert { document, .. } => alerts.push(document),
                Operation::Problem { reason, .. } => failures.push(reason),
                Operation::Silence { .. } => {}
                Operation::Revision { id, document, .. } => merge(&mut alerts, &id, document),
                Operation::Recovery { id, time, .. } => {
                    let ended = serde_json::json!({"recovered": true, "recovered_at": time.iso()});
                    merge(&mut alerts, &id, ended);
                }
            }
        }
        for (place, expected) in self.expected.iter().enumerate() {
            match alerts.get(place) {
                None => failures.push(format!(
                    "alert {} is missing: {}",
                    place + 1,
                    Value::Object(expected.clone())
                )),
                Some(alert) => differences(place + 1, expected, alert, &mut failures),
            }
        }
        for alert in alerts.iter().skip(self.expected.len()) {
            failures.push(format!(
                "unexpected alert: key [{}], {}, at {}",
                alert["key"].as_str().unwrap_or_default(),
                match alert.get("window") {
                    Some(window) => format!("window from {}", window["start"]),
                    None => format!("trigger {}", alert["trigger"]["_id"]),
                },
                alert["@timestamp"]
            ));
        }
        Outcome { name: self.name.clone(), failures }
    }
}

/// Changes members of an alert.
fn merge(alerts: &mut [Value], id: &str, members: Value) {
    let alert = alerts.iter_mut().find(|alert| alert["alert_id"] == *id);
    if let (Some(Value::Object(alert)), Value::Object(members)) = (alert, members) {
        alert.extend(members);
    }
}

/// Bytes of a value that is shown where it is another one than expected.
const MAX_SHOWN: usize = 1_000;

/// Returns whether a value has all members of another one, by their texts.
fn contains(value: &Value, wanted: &Value) -> bool {
    match (value, wanted) {
        (Value::Object(members), Value::Object(wanted)) => wanted.iter().all(|(name, wanted)| {
            let own =
                members.get(name).or_else(|| name.split('.').try_fold(value, |value, part| value.get(part)));
            own.map_or(wanted.is_null(), |own| contains(own, wanted))
        }),
        (Value::Array(list), Value::Array(wanted)) => {
            list.len() == wanted.len() && list.iter().zip(wanted).all(|(own, wanted)| contains(own, wanted))
        }
        (Value::Object(_) | Value::Array(_), _) | (_, Value::Object(_) | Value::Array(_)) => false,
        (own, wanted) => {
            let (own, wanted) = (fields::text(own), fields::text(wanted));
            own == wanted || Time::parse(&own).is_some_and(|time| Time::parse(&wanted) == Some(time))
        }
    }
}

fn differences(place: usize, expected: &Map<String, Value>, alert: &Value, failures: &mut Vec<String>) {
    for (name, wanted) in expected {
        let path = match name.as_str() {
            "trigger" => "trigger._id",
            "events" => "events._id",
            other => other,
        };
        if let Value::Object(_) = wanted {
            // Members beside those that are expected are fine, as they are at the top.
            let whole = path.split('.').try_fold(alert, |value, part| value.get(part));
            let whole = alert.get(path).or(whole).unwrap_or(&Value::Null);
            if !contains(whole, wanted) {
                let whole = whole.to_string();
                let shown = fields::cut(&whole, MAX_SHOWN);
                failures.push(format!("alert {place}: [{name}] is {shown}, {wanted} is expected in it"));
            }
            continue;
        }
        let found: Vec<_> =
            fields::values(alert, path).into_iter().map(|value| fields::text(value)).collect();
        let wanted: Vec<_> = match wanted {
            Value::Array(list) => list.iter().map(|value| fields::text(value)).collect(),
            Value::Null => Vec::new(),
            one => vec![fields::text(one)],
        };
        let equal = |(one, other): (&std::borrow::Cow<'_, str>, &std::borrow::Cow<'_, str>)| {
            one == other || Time::parse(one).is_some_and(|time| Time::parse(other) == Some(time))
        };
        if found.len() != wanted.len() || !found.iter().zip(&wanted).all(equal) {
            failures.push(format!(
                "alert {place}: [{name}] is [{}], [{}] is expected",
                found.join(", "),
                wanted.join(", ")
            ));
        }
    }
}
