//! Bodies of policies, member by member. A member or an action that is not known is refused by name.

use std::collections::HashSet;
use std::time::Duration;

use millrace_catalog::metadata::{parse_bytes, parse_time};
use millrace_schedule::{Fields, Schedule};
use serde_json::{Map, Value, json};

use super::notification::parse_notification;
use super::shrink::parse_shrink;
use super::text_template::check_template;
use super::{
    ActionRetry, ActionSpec, IndexPolicy, PolicyAction, PolicyState, PolicyTemplate, RetryBackoff,
    RolloverConditions, StateTransition, TransitionCondition,
};
use crate::error::{Error, Result};

/// States of a policy, actions of a state, and transitions of one, at most.
const MAX_PARTS: usize = 100;
/// Patterns of a policy, at most.
const MAX_PATTERNS: usize = 1_000;
/// Bytes of a policy, at most.
pub(crate) const MAX_BYTES: usize = 256 << 10;
/// Longest name of a state, in bytes.
const MAX_NAME_BYTES: usize = 255;
/// Actions of OpenSearch that mean nothing on one node, or that this server does not have.
const UNSUPPORTED: [&str; 8] = [
    "allocation",
    "rollup",
    "transform",
    "custom",
    "convert_index_to_remote",
    "stop_replication",
    "search_only",
    "unfollow",
];

pub(crate) fn invalid<T>(reason: impl Into<String>) -> Result<T> {
    Err(Error::Invalid(reason.into()))
}

/// Reads an object.
pub(crate) fn members<'a>(what: &str, value: &'a Value) -> Result<&'a Map<String, Value>> {
    match value.as_object() {
        Some(members) => Ok(members),
        None => invalid(format!("[{what}] must be an object, but is [{value}]")),
    }
}

pub(super) fn list<'a>(what: &str, value: &'a Value) -> Result<&'a [Value]> {
    match value.as_array() {
        Some(items) if items.len() <= MAX_PARTS => Ok(items),
        Some(items) => invalid(format!("[{what}] has [{}] parts, more than [{MAX_PARTS}]", items.len())),
        None => invalid(format!("[{what}] must be a list, but is [{value}]")),
    }
}

pub(super) fn text<'a>(what: &str, value: &'a Value) -> Result<&'a str> {
    match value.as_str() {
        Some(text) if !text.is_empty() => Ok(text),
        _ => invalid(format!("[{what}] must be a text, but is [{value}]")),
    }
}

pub(crate) fn number(what: &str, value: &Value) -> Result<u64> {
    let parsed = value.as_u64().or_else(|| value.as_str().and_then(|text| text.parse().ok()));
    parsed.map_or_else(|| invalid(format!("[{what}] must be a count, but is [{value}]")), Ok)
}

pub(crate) fn duration(what: &str, value: &Value) -> Result<Duration> {
    match value.as_str().map(parse_time) {
        Some(Ok(Some(time))) => Ok(time),
        _ => invalid(format!("[{what}] must be a time such as [7d], but is [{value}]")),
    }
}

pub(super) fn size(what: &str, value: &Value) -> Result<u64> {
    match value.as_str().map(parse_bytes) {
        Some(Ok(Some(bytes))) => Ok(bytes),
        _ => invalid(format!("[{what}] must be a size such as [50gb], but is [{value}]")),
    }
}

impl IndexPolicy {
    /// Reads the member `policy` of a request. `now_ms` is the time of the change.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the member.
    pub fn parse(id: &str, body: &Value, now_ms: i64) -> Result<Self> {
        if body.to_string().len() > MAX_BYTES {
            return invalid(format!("policy [{id}] has more than [{MAX_BYTES}] bytes"));
        }
        let (mut description, mut default_state, mut states) = (String::new(), None, None);
        let (mut templates, mut notification, mut shown_notification) = (Vec::new(), None, Value::Null);
        for (key, value) in members("policy", body)? {
            match key.as_str() {
                "description" => description = value.as_str().unwrap_or_default().to_owned(),
                "default_state" => default_state = Some(text(key, value)?.to_owned()),
                "states" => states = Some(list(key, value)?),
                "ism_template" => templates = parse_templates(value)?,
                "error_notification" if value.is_null() => {}
                "error_notification" => {
                    notification = Some(Box::new(parse_notification(members(key, value)?)?));
                    shown_notification = value.clone();
                }
                // What an answer has beside these, and a client sends back.
                "policy_id" | "schema_version" | "last_updated_time" | "user" => {}
                other => return invalid(format!("Invalid field: [{other}] found in Policy.")),
            }
        }
        let Some(states) = states.filter(|states| !states.is_empty()) else {
            return invalid("Policy must have at least one state");
        };
        let (mut parsed, mut shown) = (Vec::new(), Vec::new());
        for state in states {
            let (state, body) = parse_state(state)?;
            parsed.push(state);
            shown.push(body);
        }
        let names: HashSet<&str> = parsed.iter().map(|state| state.name.as_str()).collect();
        if names.len() < parsed.len() {
            return invalid(format!("policy [{id}] has two states of the same name"));
        }
        let Some(default_state) = default_state else { return invalid("default_state is null") };
        if !names.contains(default_state.as_str()) {
            return invalid(format!("Policy must have a valid default state, found [{default_state}]"));
        }
        for state in &parsed {
            if let Some(transition) = state.transitions.iter().find(|to| !names.contains(to.state.as_str())) {
                return invalid(format!(
                    "Policy contains a transition in state={} pointing to a nonexistent state={}",
                    state.name, transition.state
                ));
            }
        }
        let shown_templates: Vec<Value> = templates
            .iter()
            .map(|template: &PolicyTemplate| {
                json!({
                    "index_patterns": template.patterns,
                    "priority": template.priority,
                    "last_updated_time": now_ms,
                })
            })
            .collect();
        let body = json!({
            "policy_id": id,
            "description": description,
            "last_updated_time": now_ms,
            "schema_version": 21,
            "error_notification": shown_notification,
            "default_state": default_state,
            "states": shown,
            "ism_template": if shown_templates.is_empty() { Value::Null } else { shown_templates.into() },
        });
        let error_notification = notification;
        Ok(Self { body, default_state, states: parsed, templates, error_notification, owner: None })
    }

    /// Notes the user whose rights its snapshots and shrunken indices have, as `user` of the body.
    #[must_use]
    pub fn with_owner(mut self, owner: Option<&str>) -> Self {
        if let Some(owner) = owner {
            self.body["user"] = json!({ "name": owner });
        }
        Self { owner: owner.map(str::to_owned), ..self }
    }

    /// Reads a policy as it is stored.
    ///
    /// # Errors
    /// As [`IndexPolicy::parse`].
    pub fn from_stored(body: &Value) -> Result<Self> {
        let id = body["policy_id"].as_str().unwrap_or_default();
        let updated_ms = body["last_updated_time"].as_i64().unwrap_or_default();
        let owner = body["user"]["name"].as_str().map(str::to_owned);
        Ok(Self { body: body.clone(), owner, ..Self::parse(id, body, updated_ms)? })
    }

    /// Returns the time of the last change, in milliseconds.
    pub fn updated_ms(&self) -> i64 {
        self.body["last_updated_time"].as_i64().unwrap_or_default()
    }
}

fn parse_templates(value: &Value) -> Result<Vec<PolicyTemplate>> {
    let items = match value {
        Value::Null => return Ok(Vec::new()),
        Value::Array(_) => list("ism_template", value)?,
        one => std::slice::from_ref(one),
    };
    let mut templates = Vec::new();
    for item in items {
        let (mut patterns, mut priority) = (Vec::new(), 0);
        for (key, value) in members("ism_template", item)? {
            match key.as_str() {
                "index_patterns" => {
                    let named = value.as_array().map(Vec::as_slice).unwrap_or_default();
                    if named.len() > MAX_PATTERNS {
                        return invalid(format!("[index_patterns] has more than [{MAX_PATTERNS}] patterns"));
                    }
                    for pattern in named {
                        let pattern = text(key, pattern)?;
                        if pattern.len() > MAX_NAME_BYTES || pattern.contains(['#', ':', ' ', ',']) {
                            return invalid(format!("index pattern [{pattern}] cannot be used"));
                        }
                        patterns.push(pattern.to_owned());
                    }
                }
                "priority" => {
                    priority = i64::try_from(number(key, value)?).unwrap_or(i64::MAX);
                }
                "last_updated_time" => {}
                other => return invalid(format!("Invalid field: [{other}] found in ISMTemplate.")),
            }
        }
        if patterns.is_empty() {
            return invalid("ism_template must have at least one of [index_patterns]");
        }
        templates.push(PolicyTemplate { patterns, priority });
    }
    Ok(templates)
}

fn parse_state(value: &Value) -> Result<(PolicyState, Value)> {
    let (mut name, mut actions, mut transitions) = (None, Vec::new(), Vec::new());
    let (mut shown_actions, mut shown_transitions) = (Vec::new(), Vec::new());
    for (key, value) in members("states", value)? {
        match key.as_str() {
            "name" => name = Some(text(key, value)?),
            "actions" if !value.is_null() => {
                for item in list(key, value)? {
                    let (action, shown) = parse_action(item)?;
                    actions.push(action);
                    shown_actions.push(shown);
                }
            }
            "transitions" if !value.is_null() => {
                for item in list(key, value)? {
                    transitions.push(parse_transition(item)?);
                    shown_transitions.push(item.clone());
                }
            }
            "actions" | "transitions" => {}
            other => return invalid(format!("Invalid field: [{other}] found in State.")),
        }
    }
    let Some(name) = name.filter(|name| name.len() <= MAX_NAME_BYTES) else {
        return invalid(format!("State must have a name of at most {MAX_NAME_BYTES} bytes"));
    };
    let last = actions.len().saturating_sub(1);
    let deletes = |action: &PolicyAction| action.spec == ActionSpec::Delete;
    if actions.iter().position(deletes).is_some_and(|at| at < last) {
        return invalid(format!("state [{name}] has an action behind [delete]"));
    }
    let shown = json!({ "name": name, "actions": shown_actions, "transitions": shown_transitions });
    Ok((PolicyState { name: name.to_owned(), actions, transitions }, shown))
}

fn parse_action(value: &Value) -> Result<(PolicyAction, Value)> {
    let (mut timeout, mut spec) = (None, None);
    let mut retry =
        ActionRetry { count: 3, backoff: RetryBackoff::Exponential, delay: Duration::from_secs(60) };
    let mut shown = Map::new();
    for (key, value) in members("actions", value)? {
        match key.as_str() {
            "timeout" if value.is_null() => continue,
            "timeout" => timeout = Some(duration(key, value)?),
            "retry" => retry = parse_retry(value, retry)?,
            _ if spec.is_some() => {
                return invalid(format!("an action of a state names a second one, [{key}]"));
            }
            name => spec = Some(parse_spec(name, value)?),
        }
        shown.insert(key.clone(), value.clone());
    }
    let Some(spec) = spec else { return invalid("an action of a state names none") };
    shown.entry("retry").or_insert_with(|| json!({ "count": 3, "backoff": "exponential", "delay": "1m" }));
    Ok((PolicyAction { spec, timeout, retry }, shown.into()))
}

fn parse_retry(value: &Value, mut retry: ActionRetry) -> Result<ActionRetry> {
    for (key, value) in members("retry", value)? {
        match key.as_str() {
            "count" => retry.count = u32::try_from(number(key, value)?).unwrap_or(u32::MAX),
            "delay" => retry.delay = duration(key, value)?,
            "backoff" => {
                retry.backoff = match value.as_str() {
                    Some("exponential") => RetryBackoff::Exponential,
                    Some("linear") => RetryBackoff::Linear,
                    Some("constant") => RetryBackoff::Constant,
                    _ => {
                        return invalid(format!(
                            "[backoff] is none of exponential, linear and constant: [{value}]"
                        ));
                    }
                }
            }
            other => return invalid(format!("Invalid field: [{other}] found in ActionRetry.")),
        }
    }
    Ok(retry)
}

fn parse_spec(name: &str, value: &Value) -> Result<ActionSpec> {
    if UNSUPPORTED.contains(&name) {
        return invalid(format!("action [{name}] is not supported: this server runs on one node without it"));
    }
    let null = Map::new();
    let params = if value.is_null() { &null } else { members(name, value)? };
    let unknown = |key: &str| Error::Invalid(format!("Invalid field: [{key}] found in action [{name}]."));
    let bare = |spec: ActionSpec| match params.keys().next() {
        Some(key) => Err(unknown(key)),
        None => Ok(spec),
    };
    let only = |wanted: &str| match params.keys().find(|key| *key != wanted) {
        Some(key) => Err(unknown(key)),
        None => number(wanted, params.get(wanted).unwrap_or(&Value::Null)),
    };
    match name {
        "rollover" => parse_rollover(params),
        "read_only" => bare(ActionSpec::ReadOnly),
        "read_write" => bare(ActionSpec::ReadWrite),
        "delete" => bare(ActionSpec::Delete),
        "close" => bare(ActionSpec::Close),
        "open" => bare(ActionSpec::Open),
        "force_merge" => {
            let merged = params.keys().all(|key| {
                matches!(key.as_str(), "max_num_segments" | "wait_for_completion" | "task_execution_timeout")
            });
            let segments =
                number("max_num_segments", params.get("max_num_segments").unwrap_or(&Value::Null))?;
            if !merged || segments == 0 {
                return invalid("action [force_merge] has [max_num_segments], at least 1");
            }
            Ok(ActionSpec::ForceMerge(usize::try_from(segments).unwrap_or(usize::MAX)))
        }
        "index_priority" => Ok(ActionSpec::IndexPriority(only("priority")?)),
        "replica_count" => Ok(ActionSpec::ReplicaCount(only("number_of_replicas")?)),
        "alias" => parse_alias(params),
        "shrink" => Ok(ActionSpec::Shrink(Box::new(parse_shrink(params)?))),
        "notification" => Ok(ActionSpec::Notification(Box::new(parse_notification(params)?))),
        "snapshot" => {
            let (mut repository, mut snapshot) = (None, None);
            for (key, value) in params {
                match key.as_str() {
                    "repository" => repository = Some(text(key, value)?.to_owned()),
                    "snapshot" => {
                        let named = text(key, value)?;
                        check_template(key, named)?;
                        snapshot = Some(named.to_owned());
                    }
                    // It is of the index alone.
                    "include_global_state" => {}
                    other => return Err(unknown(other)),
                }
            }
            match (repository, snapshot) {
                (Some(repository), Some(snapshot)) => Ok(ActionSpec::Snapshot { repository, snapshot }),
                _ => invalid("action [snapshot] has [repository] and [snapshot]"),
            }
        }
        other => invalid(format!("Invalid field: [{other}] found in Action.")),
    }
}

fn parse_rollover(params: &Map<String, Value>) -> Result<ActionSpec> {
    let mut conditions = RolloverConditions::default();
    for (key, value) in params {
        match key.as_str() {
            "min_index_age" => conditions.min_index_age = Some(duration(key, value)?),
            "min_doc_count" => conditions.min_doc_count = Some(number(key, value)?),
            "min_size" => conditions.min_size = Some(size(key, value)?),
            "min_primary_shard_size" => conditions.min_primary_shard_size = Some(size(key, value)?),
            "copy_alias" => conditions.copy_alias = value == true,
            "prevent_empty_rollover" => conditions.prevent_empty = value == true,
            other => return invalid(format!("Invalid field: [{other}] found in action [rollover].")),
        }
    }
    Ok(ActionSpec::Rollover(conditions))
}

fn parse_alias(params: &Map<String, Value>) -> Result<ActionSpec> {
    let actions = match params.get("actions") {
        Some(actions) if params.len() == 1 => list("actions", actions)?,
        _ => return invalid("action [alias] has the one member [actions]"),
    };
    for action in actions {
        let verbs = members("actions", action)?;
        let known = verbs.len() == 1 && verbs.keys().all(|verb| matches!(verb.as_str(), "add" | "remove"));
        if !known {
            return invalid("each of the actions of [alias] is [add] or [remove]");
        }
        for body in verbs.values() {
            if members("alias", body)?.keys().any(|key| matches!(key.as_str(), "index" | "indices")) {
                return invalid("an alias action of a policy names no index: it is of the managed one");
            }
        }
    }
    Ok(ActionSpec::Alias(actions.to_vec()))
}

fn parse_transition(value: &Value) -> Result<StateTransition> {
    let (mut state, mut condition) = (None, None);
    for (key, value) in members("transitions", value)? {
        match key.as_str() {
            "state_name" => state = Some(text(key, value)?.to_owned()),
            "conditions" if value.is_null() => {}
            "conditions" => {
                for (key, value) in members(key, value)? {
                    if condition.is_some() {
                        return invalid("Cannot provide more than one Transition condition");
                    }
                    condition = Some(parse_condition(key, value)?);
                }
            }
            other => return invalid(format!("Invalid field: [{other}] found in Transition.")),
        }
    }
    match state {
        Some(state) => Ok(StateTransition { state, condition }),
        None => invalid("Transition must have a [state_name]"),
    }
}

fn parse_condition(key: &str, value: &Value) -> Result<TransitionCondition> {
    Ok(match key {
        "min_index_age" => TransitionCondition::IndexAge(duration(key, value)?),
        "min_doc_count" => TransitionCondition::DocCount(number(key, value)?),
        "min_size" => TransitionCondition::Size(size(key, value)?),
        "min_rollover_age" => TransitionCondition::RolloverAge(duration(key, value)?),
        "min_state_age" => TransitionCondition::StateAge(duration(key, value)?),
        "cron" => TransitionCondition::Cron(Box::new(parse_cron(value)?)),
        other => return invalid(format!("Invalid field: [{other}] found in Transition conditions.")),
    })
}

/// Reads `{"cron": {"expression": …, "timezone": …}}`, or what is within.
pub(crate) fn parse_cron(value: &Value) -> Result<Schedule> {
    let value = value.get("cron").unwrap_or(value);
    let (mut line, mut zone) = (None, "UTC");
    for (key, value) in members("cron", value)? {
        match key.as_str() {
            "expression" => line = Some(text(key, value)?),
            "timezone" => zone = text(key, value)?,
            other => return invalid(format!("Invalid field: [{other}] found in cron.")),
        }
    }
    let Some(line) = line else { return invalid("[cron] must have an [expression]") };
    Schedule::parse(&format!("{line} {zone}"), Fields::Five)
        .map_err(|reason| Error::Invalid(format!("[cron] {reason}")))
}
