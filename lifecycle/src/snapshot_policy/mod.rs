//! Policies of snapshots: creation and deletion by schedule, as `_plugins/_sm/policies` has them.
//!
//! - [`SnapshotPolicy`]: a policy as a document, with what its runs have left
//! - `run`: creates and deletes what is due
//! - `notification`: the outcomes that are sent
//!
//! The name of a snapshot is stored before the snapshot is begun. So a start finds whether it was made, and makes it once.

mod notification;
mod run;
#[cfg(test)]
mod tests;

use std::time::Duration;

use bytes::Bytes;
use millrace_engine::{DocumentVersion, MirroredDocument, SystemDocument, hidden_index};
use millrace_mapping::DateFormat;
use millrace_schedule::Schedule;
use millrace_snapshot::names_accounts;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::error::{Error, Result};
use crate::policy::{duration, invalid, members, number, parse_cron};

use notification::OutcomeNotification;

pub(crate) use run::run;

/// Name of the index of these documents.
pub(crate) const SNAPSHOT_POLICIES: &str = ".snapshot_policies";
/// Longest name of a policy, in bytes.
const MAX_NAME_BYTES: usize = 128;
/// Bytes of a policy, at most.
pub(crate) const MAX_BYTES: usize = 64 << 10;
/// Milliseconds beyond now from which on a stored time comes from a clock that was ahead.
const CLOCK_TOLERANCE_MS: i64 = 3_600_000;
/// Date in the names of snapshots where a policy has none.
const DATE_FORMAT: &str = "yyyy-MM-dd'T'HH:mm:ss";

/// Choice of the snapshots that a policy deletes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeletionCondition {
    /// Age from which on they are deleted.
    pub max_age: Option<Duration>,
    /// Number beyond which the oldest are deleted.
    pub max_count: Option<usize>,
    /// Number that is kept, whatever their age.
    pub min_count: usize,
}

/// Position of a policy within its creations or deletions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScheduleProgress {
    /// The latest time of the schedule that was seen to, or when the policy was saved, in milliseconds.
    pub handled_ms: i64,
    /// Snapshot that is being made.
    pub current: Option<String>,
    /// Failed tries for the time that is due.
    pub retries: u32,
    /// Time of the next try, in milliseconds.
    pub retry_ms: i64,
    /// Outcome of the last run.
    pub last: Option<ExecutionRecord>,
}

impl ScheduleProgress {
    /// Returns whether a run is due. Times of a clock that was ahead do not delay it.
    fn is_due(&self, next_ms: Option<i64>, now_ms: i64) -> bool {
        let latest_ms = now_ms.saturating_add(CLOCK_TOLERANCE_MS);
        let waits = self.retry_ms > now_ms && self.retry_ms <= latest_ms;
        let is_ahead = self.handled_ms > latest_ms || self.retry_ms > latest_ms;
        next_ms.is_some_and(|next| next <= now_ms) || (is_ahead && !waits)
    }
}

/// Outcome of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecutionRecord {
    /// `SUCCESS`, `FAILED`, `RETRYING` or `TIME_LIMIT_EXCEEDED`.
    pub status: String,
    /// Time of its begin, in milliseconds.
    pub start_ms: i64,
    /// Time of its end, in milliseconds.
    pub end_ms: i64,
    /// Message about the run.
    pub message: String,
    /// Why it failed.
    pub cause: Option<String>,
}

/// A policy of snapshots.
#[derive(Clone, Debug)]
pub struct SnapshotPolicy {
    /// Name.
    pub name: String,
    /// Its parts as they are shown, with defaults.
    pub body: Value,
    /// `true` if it runs.
    pub enabled: bool,
    /// Repository.
    pub repository: String,
    /// Counts the changes, from 1.
    pub revision: u64,
    /// Creations.
    pub creation: ScheduleProgress,
    /// Deletions.
    pub deletion: ScheduleProgress,
    pub(crate) condition: Option<DeletionCondition>,
    pub(crate) creation_schedule: Schedule,
    pub(crate) deletion_schedule: Option<Schedule>,
    pub(crate) notification: Option<OutcomeNotification>,
    /// Next times, which take too long to compute to be looked for each second.
    next_creation_ms: Option<i64>,
    next_deletion_ms: Option<i64>,
    version: Option<DocumentVersion>,
}

impl SnapshotPolicy {
    /// Reads the body of a request. `before` is the policy that it replaces.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the member.
    pub fn parse(name: &str, body: &Value, now_ms: i64, before: Option<&Self>) -> Result<Self> {
        let name_is_usable = !name.is_empty()
            && name.len() <= MAX_NAME_BYTES
            && name.to_lowercase() == name
            && !name.starts_with('_')
            && !name.contains(|c: char| c.is_whitespace() || c.is_control() || "\\/*?\"<>|,#".contains(c));
        if !name_is_usable {
            return invalid(format!(
                "Invalid snapshot policy name [{name}]: write lower-case letters, digits, [-] and [_], at most {MAX_NAME_BYTES} bytes"
            ));
        }
        if body.to_string().len() > MAX_BYTES {
            return invalid(format!("snapshot policy [{name}] has more than [{MAX_BYTES}] bytes"));
        }
        let (mut description, mut enabled) = (String::new(), true);
        let (mut creation, mut deletion, mut config, mut notification) =
            (Value::Null, Value::Null, Value::Null, Value::Null);
        for (key, value) in members("sm_policy", body.get("sm_policy").unwrap_or(body))? {
            match key.as_str() {
                "description" => description = value.as_str().unwrap_or_default().to_owned(),
                "enabled" => enabled = value != false,
                "creation" => creation = value.clone(),
                "deletion" => deletion = value.clone(),
                "snapshot_config" => config = value.clone(),
                "notification" => notification = value.clone(),
                // What an answer has beside these, and a client sends back.
                "name" | "schedule" | "enabled_time" | "last_updated_time" | "schema_version" | "user" => {}
                other => return invalid(format!("Invalid field: [{other}] found in snapshot policy.")),
            }
        }
        let (creation_schedule, _) = parse_timing("creation", &creation)?;
        let (deletion_schedule, condition) = match deletion.is_null() {
            true => (None, None),
            false => {
                let (schedule, condition) = parse_deletion(&deletion, &creation_schedule)?;
                (Some(schedule), Some(condition))
            }
        };
        let repository = parse_config(&config)?;
        let parsed_notification = OutcomeNotification::parse(&notification)?;
        let body = json!({
            "name": name,
            "description": description,
            "schema_version": 21,
            "creation": creation,
            "deletion": deletion,
            "snapshot_config": config,
            "notification": notification,
            "schedule": { "interval": { "start_time": now_ms, "period": 1, "unit": "Minutes" } },
            "enabled": enabled,
            "last_updated_time": now_ms,
            "enabled_time": if enabled { json!(now_ms) } else { Value::Null },
        });
        let fresh = ScheduleProgress { handled_ms: now_ms, ..ScheduleProgress::default() };
        let policy = Self {
            name: name.to_owned(),
            body: without_nulls(body),
            enabled,
            repository,
            revision: before.map_or(1, |before| before.revision + 1),
            // What is under way goes on; times of before are seen to by the new schedule.
            creation: before.map_or_else(|| fresh.clone(), |before| before.creation.clone()),
            deletion: before.map_or(fresh, |before| before.deletion.clone()),
            condition,
            creation_schedule,
            deletion_schedule,
            notification: parsed_notification,
            next_creation_ms: None,
            next_deletion_ms: None,
            version: before.and_then(|before| before.version),
        };
        Ok(policy.with_next_times())
    }

    fn with_next_times(mut self) -> Self {
        let next = |schedule: &Schedule, progress: &ScheduleProgress| {
            let next = schedule.after(progress.handled_ms);
            next.map(|next| next.max(progress.retry_ms))
        };
        self.next_creation_ms = next(&self.creation_schedule, &self.creation);
        self.next_deletion_ms =
            self.deletion_schedule.as_ref().and_then(|schedule| next(schedule, &self.deletion));
        self
    }

    /// Returns the same policy, running or not.
    #[must_use]
    pub fn with_enabled(&self, enabled: bool, now_ms: i64) -> Self {
        let mut policy = Self { enabled, revision: self.revision + 1, ..self.clone() };
        policy.body["enabled"] = enabled.into();
        policy.body["last_updated_time"] = now_ms.into();
        if enabled {
            policy.body["enabled_time"] = now_ms.into();
            // What was missed while it did not run is not made up.
            policy.creation.handled_ms = now_ms;
            policy.deletion.handled_ms = now_ms;
        }
        policy.with_next_times()
    }

    /// Returns the same policy with other progress.
    pub(crate) fn with_progress(&self, creation: ScheduleProgress, deletion: ScheduleProgress) -> Self {
        Self { creation, deletion, ..self.clone() }.with_next_times()
    }

    pub(crate) fn creation_due(&self, now_ms: i64) -> bool {
        self.enabled && self.creation.is_due(self.next_creation_ms, now_ms)
    }

    pub(crate) fn deletion_due(&self, now_ms: i64) -> bool {
        let is_scheduled = self.enabled && self.deletion_schedule.is_some();
        is_scheduled && self.deletion.is_due(self.next_deletion_ms, now_ms)
    }

    /// Returns whether something is to be done.
    pub fn is_due(&self, now_ms: i64) -> bool {
        self.creation_due(now_ms) || self.deletion_due(now_ms)
    }

    /// Returns a member of the configuration of its snapshots.
    pub(crate) fn config(&self, key: &str) -> &Value {
        &self.body["snapshot_config"][key]
    }

    /// Returns the longest time that a creation is waited for.
    pub(crate) fn creation_limit(&self) -> Option<Duration> {
        // It was checked when the policy was saved.
        duration("time_limit", &self.body["creation"]["time_limit"]).ok()
    }

    /// Returns the date in the name of a snapshot.
    pub(crate) fn date_text(&self, now_ms: i64) -> String {
        let text = self.config("date_format").as_str().unwrap_or(DATE_FORMAT);
        let zone = self.config("timezone").as_str();
        let written = DateFormat::parse(text).and_then(|format| format.evaluate("now", now_ms, zone));
        // Both were checked when the policy was saved.
        written.unwrap_or_default()
    }

    /// Returns the sequence number and the primary term of the document.
    pub fn document_version(&self) -> (u64, u64) {
        self.version.map_or((0, 1), |version| (version.seq_no, version.primary_term))
    }

    /// Explains what was done and what comes.
    pub fn explain(&self) -> Value {
        let part = |progress: &ScheduleProgress, next: Option<i64>, start: &str| {
            let state = if progress.current.is_some() { "CREATING" } else { start };
            let mut shown = json!({ "current_state": state, "trigger": { "time": next } });
            if let Some(last) = &progress.last {
                let info = json!({ "message": last.message, "cause": last.cause });
                shown["latest_execution"] = json!({
                    "status": last.status,
                    "start_time": last.start_ms,
                    "end_time": last.end_ms,
                    "info": without_nulls(info),
                });
            }
            if progress.retries > 0 {
                shown["retry"] = json!({ "count": progress.retries });
            }
            shown
        };
        let (seq_no, primary_term) = self.document_version();
        let mut shown = json!({
            "name": self.name,
            "creation": part(&self.creation, self.next_creation_ms, "CREATION_START"),
            "policy_seq_no": seq_no,
            "policy_primary_term": primary_term,
            "enabled": self.enabled,
        });
        if self.deletion_schedule.is_some() {
            shown["deletion"] = part(&self.deletion, self.next_deletion_ms, "DELETION_START");
        }
        shown
    }
}

fn without_nulls(mut value: Value) -> Value {
    if let Some(members) = value.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    value
}

/// Reads `schedule` and `time_limit`; returns the schedule and the other members.
fn parse_timing(what: &str, value: &Value) -> Result<(Schedule, Map<String, Value>)> {
    let mut rest = members(what, value)?.clone();
    let Some(schedule) = rest.shift_remove("schedule") else {
        return invalid(format!("[{what}] must have a [schedule]"));
    };
    if let Some(limit) = rest.shift_remove("time_limit") {
        duration("time_limit", &limit)?;
    }
    if what == "creation"
        && let Some(other) = rest.keys().next()
    {
        return invalid(format!("Invalid field: [{other}] found in [{what}]."));
    }
    Ok((parse_cron(&schedule)?, rest))
}

fn parse_deletion(value: &Value, creation: &Schedule) -> Result<(Schedule, DeletionCondition)> {
    let (schedule, rest) = match value.get("schedule") {
        Some(_) => parse_timing("deletion", value)?,
        None => (creation.clone(), members("deletion", value)?.clone()),
    };
    let mut condition = DeletionCondition { min_count: 1, ..DeletionCondition::default() };
    for (key, value) in &rest {
        match key.as_str() {
            "condition" => {
                for (key, value) in members(key, value)? {
                    let count =
                        || number(key, value).map(|count| usize::try_from(count).unwrap_or(usize::MAX));
                    match key.as_str() {
                        "max_age" => condition.max_age = Some(duration(key, value)?),
                        "max_count" => condition.max_count = Some(count()?),
                        "min_count" => condition.min_count = count()?,
                        other => return invalid(format!("Invalid field: [{other}] found in condition.")),
                    }
                }
            }
            "time_limit" => _ = duration(key, value)?,
            other => return invalid(format!("Invalid field: [{other}] found in [deletion].")),
        }
    }
    if condition.max_age.is_none() && condition.max_count.is_none() {
        return invalid("Please provide one of [max_age, max_count] in the condition of [deletion]");
    }
    if condition.min_count == 0 || condition.max_count.is_some_and(|most| most < condition.min_count) {
        return invalid(format!(
            "[min_count] must be at least 1 and at most [max_count], but is [{}]",
            condition.min_count
        ));
    }
    Ok((schedule, condition))
}

/// Checks the configuration of snapshots; returns the repository.
fn parse_config(value: &Value) -> Result<String> {
    let mut repository = None;
    let mut zone = None;
    let mut format = DATE_FORMAT;
    for (key, value) in members("snapshot_config", value)? {
        match (key.as_str(), value) {
            ("repository", Value::String(name)) => repository = Some(name.clone()),
            ("date_format", Value::String(text)) => format = text,
            ("timezone", Value::String(name)) => zone = Some(name.as_str()),
            ("indices", Value::String(_) | Value::Array(_)) | ("metadata", Value::Object(_)) => {}
            (
                "ignore_unavailable" | "include_global_state" | "partial",
                Value::Bool(_) | Value::String(_),
            ) => {}
            ("feature_states", states) => _ = names_accounts(states).map_err(Error::Invalid)?,
            _ => return invalid(format!("Invalid field: [{key}] found in snapshot_config.")),
        }
    }
    DateFormat::parse(format)
        .and_then(|parsed| parsed.evaluate("now", 0, zone))
        .map_err(|reason| Error::Invalid(format!("[date_format] or [timezone] cannot be used: {reason}")))?;
    repository.map_or_else(|| invalid("Must provide the repository in snapshot config."), Ok)
}

/// The document.
#[derive(Serialize, Deserialize)]
struct SnapshotPolicyDocument {
    policy: Value,
    revision: u64,
    creation: ScheduleProgress,
    deletion: ScheduleProgress,
}

impl SystemDocument for SnapshotPolicy {
    const INDEX: &'static str = SNAPSHOT_POLICIES;

    fn index_body() -> Value {
        hidden_index(json!({ "revision": { "type": "long" } }))
    }

    fn encode(&self) -> Bytes {
        let document = SnapshotPolicyDocument {
            policy: self.body.clone(),
            revision: self.revision,
            creation: self.creation.clone(),
            deletion: self.deletion.clone(),
        };
        Bytes::from(serde_json::to_vec(&document).unwrap_or_default())
    }

    fn decode(id: &str, source: &Bytes) -> Result<Self, String> {
        let document: SnapshotPolicyDocument =
            serde_json::from_slice(source).map_err(|error| error.to_string())?;
        let (body, revision) = (document.policy, document.revision);
        let mut readable = body.clone();
        // An earlier version stored any notification, and sent nothing. The snapshots go on without it.
        if let Err(error) = OutcomeNotification::parse(&readable["notification"]) {
            tracing::warn!(policy = id, %error, "the stored notification of a policy of snapshots has no effect; put the policy again");
            readable["notification"] = Value::Null;
        }
        let policy = Self::parse(id, &readable, 0, None).map_err(|error| error.to_string())?;
        Ok(Self { body, revision, ..policy }.with_progress(document.creation, document.deletion))
    }
}

impl MirroredDocument for SnapshotPolicy {
    fn id(&self) -> &str {
        &self.name
    }

    fn version(&self) -> Option<DocumentVersion> {
        self.version
    }

    fn set_version(&mut self, version: DocumentVersion) {
        self.version = Some(version);
    }
}
