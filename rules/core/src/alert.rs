//! Documents of the index `alert`, and their identity.
//!
//! The `_id` of an alert is a hash of rule, revision, key, and the event that triggered it (index uuid, `_id`, `seq_no`):
//! whoever evaluates the same events in the same order makes the same alerts under the same ids. A document has nothing
//! that depends on when it was made: its `alert_time` is the recorded time of the frame.

use std::sync::Arc;

use ring::digest;
use serde_json::{Map, Value, json};

use crate::definition::{Definition, RuleType};
use crate::event::Event;
use crate::fields;
use crate::mutation::{Mutation, mutated};
use crate::operator::Finding;
use crate::operator::key::Key;
use crate::operator::realert::Silence;
use crate::operator::window_operator::ClosedWindow;
use crate::time::Time;

/// Bytes that an alert shows of an event.
const MAX_BODY: usize = 32 << 10;
/// Levels of what an alert shows: with its own it is to be indexed and read again.
const MAX_LEVELS: usize = 16;

/// Author of an alert.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Author<'a> {
    pub(crate) id: &'a str,
    pub(crate) revision: u64,
    pub(crate) owner: &'a str,
    pub(crate) definition: &'a Definition,
}

/// Returns whether the index of alerts takes a value: it is not too deep, and no member is without a name.
fn is_shown(value: &Value, level: usize) -> bool {
    match value {
        Value::Array(items) => level < MAX_LEVELS && items.iter().all(|item| is_shown(item, level + 1)),
        Value::Object(members) => {
            let mut members = members.iter();
            level < MAX_LEVELS && members.all(|(name, value)| !name.is_empty() && is_shown(value, level + 1))
        }
        _ => true,
    }
}

/// Returns the members of an event that an alert shows, as JSON: the fields of `include` and those that the rule looks at, else
/// all. What exceeds 32 KiB, and what the index of alerts does not take, is left out, member by member, and `_truncated` tells
/// so.
pub(crate) fn body(source: &Value, rule: &Definition) -> Arc<str> {
    let Value::Object(members) = source else { return "{}".into() };
    if rule.include.is_empty() && is_shown(source, 0) {
        let text = source.to_string();
        // Behind the brace it has the bytes that are counted below, or more.
        if text.len() <= MAX_BODY + 1 {
            return text.into();
        }
    }
    let mut shown = Map::new();
    let mut left = MAX_BODY;
    let mut truncated = false;
    let looked_at = looked_at(rule);
    for (name, value) in members {
        let value = if rule.include.is_empty() {
            Some(value.clone())
        } else {
            reduced(name, value, &|path| {
                let patterns = rule.include.iter().map(String::as_str).chain(looked_at.iter().copied());
                patterns.into_iter().any(|pattern| fields::included(pattern, path))
            })
        };
        let Some(value) = value else { continue };
        if name.is_empty() || !is_shown(&value, 1) {
            truncated = true;
            continue;
        }
        let bytes = name.len() + value.to_string().len() + 4;
        match left.checked_sub(bytes) {
            Some(rest) => {
                left = rest;
                shown.insert(name.clone(), value);
            }
            None => truncated = true,
        }
    }
    if truncated {
        shown.insert("_truncated".to_owned(), Value::Bool(true));
    }
    Value::Object(shown).to_string().into()
}

/// Fields that are shown whatever `include` says.
fn looked_at(rule: &Definition) -> Vec<&str> {
    let of_type: Vec<&String> = match &rule.rule_type {
        // Alerts of types that wait show no event.
        RuleType::Any
        | RuleType::Frequency { .. }
        | RuleType::MinCardinality { .. }
        | RuleType::Spike(_)
        | RuleType::Flatline { .. }
        | RuleType::MetricAggregation(_)
        | RuleType::PercentageMatch(_) => Vec::new(),
        RuleType::Cardinality { field, .. } => vec![field],
        RuleType::Blacklist { compare_key, .. }
        | RuleType::Whitelist { compare_key, .. }
        | RuleType::Change { compare_key, .. } => compare_key.iter().collect(),
        RuleType::NewTerm { fields, .. } => fields.iter().flatten().collect(),
    };
    let all = of_type.into_iter().chain(&rule.query_key).chain([&rule.timestamp_field]);
    all.map(|field| field.strip_suffix(".keyword").unwrap_or(field)).collect()
}

/// The part of a value whose fields are wanted.
fn reduced(path: &str, value: &Value, wanted: &dyn Fn(&str) -> bool) -> Option<Value> {
    if wanted(path) {
        return Some(value.clone());
    }
    match value {
        Value::Object(members) => {
            let part = members.iter().filter_map(|(name, value)| {
                Some((name.clone(), reduced(&format!("{path}.{name}"), value, wanted)?))
            });
            let part: Map<_, _> = part.collect();
            (!part.is_empty()).then_some(Value::Object(part))
        }
        Value::Array(elements) => {
            let part: Vec<_> = elements.iter().filter_map(|element| reduced(path, element, wanted)).collect();
            (!part.is_empty()).then_some(Value::Array(part))
        }
        _ => None,
    }
}

/// Returns the `_id` of an alert.
pub(crate) fn identity(author: Author<'_>, identity: &Key, trigger: &Event) -> String {
    let mut hash = Hash::new(author);
    if !mutated(Mutation::IdentityWithoutKey) {
        hash.key(identity);
    }
    hash.text(&trigger.uuid);
    hash.text(&trigger.id);
    if !mutated(Mutation::IdentityWithoutSequence) {
        hash.number(trigger.seq_no);
    }
    hash.finish()
}

/// Returns the `_id` of an alert of a window.
pub(crate) fn window_identity(author: Author<'_>, key: &Key, start: Time) -> String {
    let mut hash = Hash::new(author);
    hash.key(key);
    hash.text("window");
    if !mutated(Mutation::IdentityWithoutStart) {
        hash.number(start.ms() as u64);
    }
    hash.finish()
}

/// Returns the `_id` of what is told of a silent key.
pub(crate) fn silence_identity(author: Author<'_>, key: &Key) -> String {
    let mut hash = Hash::new(author);
    hash.key(key);
    hash.finish()
}

/// A hash of things behind their lengths.
struct Hash(digest::Context);

impl Hash {
    fn new(author: Author<'_>) -> Self {
        let mut hash = Self(digest::Context::new(&digest::SHA256));
        hash.text(author.id);
        hash.number(author.revision);
        hash
    }

    fn number(&mut self, number: u64) {
        self.0.update(&number.to_be_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.update(text.as_bytes());
    }

    fn key(&mut self, key: &Key) {
        self.number(key.parts().len() as u64);
        for part in key.parts() {
            self.number(u64::from(part.is_some()));
            self.text(part.as_deref().unwrap_or_default());
        }
    }

    fn finish(self) -> String {
        fields::hex(&self.0.finish().as_ref()[..20])
    }
}

/// Writes the document of an alert.
pub(crate) fn document(author: Author<'_>, id: &str, finding: &Finding, trigger: &Event, now: Time) -> Value {
    let rule = author.definition;
    let mut body: Value = serde_json::from_str(&finding.body).unwrap_or_default();
    if let Value::Object(members) = &mut body {
        members.extend(finding.added.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        if let Some(related) = &finding.related {
            let related = related.iter().filter_map(|body| serde_json::from_str(body).ok()).collect();
            members.insert("related_events".to_owned(), Value::Array(related));
        }
    }
    let option = |name: &str| option(rule, name);
    let document = json!({
        "@timestamp": finding.time.iso(),
        "alert_id": id,
        "rule_id": author.id,
        "rule_revision": author.revision,
        "rule_name": rule.name,
        "rule_type": rule.rule_type.name(),
        "alert_info": info(author),
        "alert_sent": false,
        "alert_time": now.iso(),
        "alert_subject": rule.text.subject(&rule.name, &body, &option),
        "alert_text": rule.text.text(&rule.name, &said(rule, finding), &body, &option),
        "status": "New",
        "depth": finding.depth.saturating_add(1),
        "key": finding.key.to_string(),
        "trigger": trigger.reference().document(),
        "events": finding.evidence.iter().map(|event| event.document()).collect::<Vec<_>>(),
        "event_count": finding.count,
        "match_body": body,
    });
    for_roles(document, &rule.roles)
}

/// Names the roles whom a document is for; it is for all where there are none.
pub fn for_roles(mut document: Value, roles: &[String]) -> Value {
    if !roles.is_empty() {
        document["roles"] = json!(roles);
    }
    document
}

/// Returns the members of a window's alert: the end of the window as its time, the key, and those that the type adds.
fn window_body(rule: &Definition, closing: &ClosedWindow<'_>) -> Value {
    let mut body = Map::new();
    body.insert(rule.timestamp_field.clone(), closing.end.iso().into());
    for (field, part) in rule.query_key.iter().zip(closing.key.parts()) {
        let field = field.strip_suffix(".keyword").unwrap_or(field);
        body.insert(field.to_owned(), part.as_deref().map_or(Value::Null, Value::from));
    }
    body.extend(closing.verdict.added.iter().cloned());
    Value::Object(body)
}

/// Writes the document of an alert of a window.
pub(crate) fn window_document(author: Author<'_>, id: &str, closing: &ClosedWindow<'_>) -> Value {
    let rule = author.definition;
    let mut document = json!({
        "@timestamp": closing.end.iso(),
        "alert_id": id,
        "rule_id": author.id,
        "rule_revision": author.revision,
        "rule_name": rule.name,
        "rule_type": rule.rule_type.name(),
        "alert_info": info(author),
        "alert_sent": false,
        "alert_time": closing.clock.iso(),
        "status": "New",
        "depth": closing.depth.saturating_add(1),
        "key": closing.key.to_string(),
        "window": {"start": closing.start.iso(), "end": closing.end.iso()},
    });
    if let (Value::Object(document), Value::Object(told)) = (&mut document, revised_members(author, closing))
    {
        document.extend(told);
    }
    for_roles(document, &rule.roles)
}

/// Writes what an alert of a window says that late events have changed.
pub(crate) fn revision(author: Author<'_>, closing: &ClosedWindow<'_>) -> Value {
    let mut document = revised_members(author, closing);
    document["revised"] = json!(true);
    document["revised_at"] = json!(closing.clock.iso());
    document
}

/// Returns the members that late events may change.
fn revised_members(author: Author<'_>, closing: &ClosedWindow<'_>) -> Value {
    let rule = author.definition;
    let body = window_body(rule, closing);
    let option = |name: &str| option(rule, name);
    json!({
        "alert_subject": rule.text.subject(&rule.name, &body, &option),
        "alert_text": rule.text.text(&rule.name, &said_of_window(rule, closing), &body, &option),
        "event_count": closing.verdict.count,
        "holds": closing.verdict.holds,
        "match_body": body,
    })
}

/// Returns the type's text about a window.
fn said_of_window(rule: &Definition, closing: &ClosedWindow<'_>) -> String {
    let between = format!("between {} and {}", closing.start.iso(), closing.end.iso());
    let count = closing.verdict.count;
    let figure = |at: usize| {
        let figure = closing.verdict.added.get(at).map(|(_, value)| fields::text(value).into_owned());
        figure.unwrap_or_default()
    };
    let allowed = |max: Option<f64>, min: Option<f64>| match (min, max) {
        (Some(min), Some(max)) => format!("{min} to {max}"),
        (Some(min), None) => format!("at least {min}"),
        (None, Some(max)) => format!("at most {max}"),
        (None, None) => String::new(),
    };
    match &rule.rule_type {
        RuleType::Flatline { threshold, .. } => {
            format!("{count} events occurred {between}, at least {threshold} are expected")
        }
        RuleType::MinCardinality { field, min, .. } => {
            format!("{} values of {field} occurred {between}, at least {min} are expected", figure(0))
        }
        RuleType::Spike(spike) => {
            let what = spike
                .field_value
                .as_ref()
                .map_or_else(|| "events".to_owned(), |field| format!("as the mean of {field}"));
            let before = closing.start.minus(spike.timeframe).iso();
            format!("{} {what} {between}, {} in the time before, from {before} on", figure(0), figure(1))
        }
        RuleType::MetricAggregation(aggregation) => format!(
            "{} of {} is {} {between}, allowed is {}",
            aggregation.metric.name(),
            aggregation.field,
            figure(0),
            allowed(aggregation.max, aggregation.min)
        ),
        RuleType::PercentageMatch(percentage) => format!(
            "{} % of {} events match {between}, allowed is {}",
            figure(0),
            figure(1),
            allowed(percentage.max, percentage.min)
        ),
        _ => String::new(),
    }
}

/// `alert_info` of a rule.
fn info(author: Author<'_>) -> Value {
    let rule = author.definition;
    json!({
        "type": rule.notification.method(),
        "command": rule.notification.command(),
        "recipients": recipients(rule),
        "risk_value": rule.importance,
        "playbooks": rule.playbooks,
        "username": author.owner,
    })
}

/// Whom the alerts of a rule are for.
fn recipients(rule: &Definition) -> Vec<&str> {
    let of_channels = rule.notification.recipients();
    if of_channels.is_empty() { rule.email.iter().map(String::as_str).collect() } else { of_channels }
}

/// Writes the document that tells until when a key is silent.
pub(crate) fn silence(author: Author<'_>, key: &Key, silence: Silence, now: Time) -> Value {
    let document = json!({
        "@timestamp": now.iso(),
        "rule_id": author.id,
        "rule_name": author.definition.name,
        "key": key.to_string(),
        "until": silence.until.iso(),
        "exponent": silence.exponent,
    });
    for_roles(document, &author.definition.roles)
}

/// Returns the type's text about an alert.
fn said(rule: &Definition, finding: &Finding) -> String {
    match &rule.rule_type {
        RuleType::Frequency { num_events, timeframe, .. } => format!(
            "At least {num_events} events occurred between {} and {}",
            finding.time.minus(*timeframe).iso(),
            finding.time.iso()
        ),
        RuleType::Cardinality { field, max, timeframe } => format!(
            "More than {max} values of {field} occurred between {} and {}",
            finding.time.minus(*timeframe).iso(),
            finding.time.iso()
        ),
        _ => String::new(),
    }
}

/// An option of a rule as an argument of texts.
fn option(rule: &Definition, name: &str) -> Option<String> {
    match name {
        "name" => return Some(rule.name.clone()),
        "description" => return Some(rule.description.clone()),
        "index" => return Some(rule.index.join(",")),
        "type" => return Some(rule.rule_type.name().to_owned()),
        "importance" => return Some(rule.importance.to_string()),
        "alert_method" => return Some(fields::text(&rule.notification.method()).into_owned()),
        _ => {}
    }
    match (&rule.rule_type, name) {
        (RuleType::Frequency { num_events, .. }, "num_events") => Some(num_events.to_string()),
        (RuleType::Cardinality { max, .. }, "max_cardinality") => Some(max.to_string()),
        (RuleType::MinCardinality { min, .. }, "min_cardinality") => Some(min.to_string()),
        (RuleType::Flatline { threshold, .. }, "threshold") => Some(threshold.to_string()),
        (RuleType::Spike(spike), "timeframe") => Some(spike.timeframe.text()),
        (RuleType::Spike(spike), "spike_height") => Some(spike.height.to_string()),
        (RuleType::MetricAggregation(of), "max_threshold") => of.max.map(|max| max.to_string()),
        (RuleType::MetricAggregation(of), "min_threshold") => of.min.map(|min| min.to_string()),
        (RuleType::PercentageMatch(of), "max_percentage") => of.max.map(|max| max.to_string()),
        (RuleType::PercentageMatch(of), "min_percentage") => of.min.map(|min| min.to_string()),
        (
            RuleType::Frequency { .. }
            | RuleType::Cardinality { .. }
            | RuleType::MinCardinality { .. }
            | RuleType::Flatline { .. }
            | RuleType::MetricAggregation(_)
            | RuleType::PercentageMatch(_),
            "timeframe",
        ) => Some(rule.timeframe().text()),
        _ => rule
            .kept
            .get(name)
            .filter(|value| !value.is_object())
            .map(|value| fields::text(value).into_owned()),
    }
}
