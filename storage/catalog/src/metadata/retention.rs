//! Limits of retention by space, as the cluster settings `retention.max_bytes` and `retention.max_disk_used` have them.
//!
//! A setting is a comma-separated list of `pattern:limit`; a limit alone is for all indices. What the server itself writes without end
//! has an age from which on it is deleted: [`OWN_RETENTION`] has the defaults.

use std::time::Duration;

use millrace_mapping::pattern;
use millrace_runtime::{Error, Result};
use serde_json::Value;

use super::{IndexMeta, Metadata, parse_bytes, parse_time};

/// Setting with the bytes that indices of a pattern may have.
pub(super) const MAX_BYTES: &str = "retention.max_bytes";
/// Setting with the used space of the disk, in percent or in bytes, from which on indices of a pattern are deleted.
pub(super) const MAX_DISK_USED: &str = "retention.max_disk_used";
/// Indices that the server itself writes without end: setting, index, field with the time of a document, default age.
///
/// The outcomes of the audit are in indices of days, which `audit.retention` is about. The documents of `alert_status`, `alert_outbox`
/// and of rules are as many as there are rules and open alerts.
pub(super) const OWN_RETENTION: [(&str, &str, &str, &str); 7] = [
    ("retention.max_age.alert", "alert", "@timestamp", "365d"),
    ("retention.max_age.alert_error", "alert_error", "@timestamp", "30d"),
    ("retention.max_age.alert_silence", "alert_silence", "until", "30d"),
    ("retention.max_age.intelligence", "intelligence", "@timestamp", "365d"),
    ("retention.max_age.dead_letters", ".dead-letters", "@timestamp", "90d"),
    ("retention.max_age.tasks", ".tasks", "task.start_time_in_millis", "7d"),
    ("retention.max_age.agent_status", "agent_status", "@timestamp", "365d"),
];
/// Setting that keeps an index from deletion by policies, by retention, and by the age of its documents.
pub const RETENTION_HOLD: &str = "index.retention.hold";
/// Cluster setting with the names and patterns of indices that are held as by [`RETENTION_HOLD`], which nobody sets for the server's own.
pub const RETENTION_HOLDS: &str = "retention.hold";
/// Limits of a setting, at most; names and patterns of held indices, too.
const MAX_LIMITS: usize = 1_000;

/// Space that indices of a pattern may take.
#[derive(Clone, Debug, PartialEq)]
pub struct RetentionLimit {
    /// Key of the setting.
    pub setting: &'static str,
    /// Pattern of names of indices and data streams.
    pub pattern: String,
    /// The limit.
    pub limit: SpaceLimit,
}

/// A bound on space.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SpaceLimit {
    /// Bytes of the indices together.
    Bytes(u64),
    /// Used bytes of the disk.
    DiskBytes(u64),
    /// Used percent of the disk.
    DiskPercent(f64),
}

/// Reads the value of a setting.
///
/// # Errors
/// [`Error::IllegalArgument`] with the part that is no limit.
pub(super) fn parse(setting: &'static str, text: &str) -> Result<Vec<RetentionLimit>> {
    let mut limits = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (pattern, limit) = part.rsplit_once(':').unwrap_or(("*", part));
        let (pattern, limit) = (pattern.trim(), limit.trim());
        let refuse = || {
            Error::IllegalArgument(format!(
                "Failed to parse [{part}] for setting [{setting}], write [pattern:limit] such as [logs-*:50gb]"
            ))
        };
        let percent = limit.strip_suffix('%').map(str::parse::<f64>);
        let limit = match (setting, percent) {
            (MAX_DISK_USED, Some(Ok(percent))) if percent > 0.0 && percent <= 100.0 => {
                SpaceLimit::DiskPercent(percent)
            }
            (_, Some(_)) => return Err(refuse()),
            (_, None) => match parse_bytes(limit) {
                Ok(Some(bytes)) if setting == MAX_BYTES => SpaceLimit::Bytes(bytes),
                Ok(Some(bytes)) => SpaceLimit::DiskBytes(bytes),
                _ => return Err(refuse()),
            },
        };
        if pattern.is_empty() || limits.len() >= MAX_LIMITS {
            return Err(refuse());
        }
        limits.push(RetentionLimit { setting, pattern: pattern.to_owned(), limit });
    }
    Ok(limits)
}

/// Lists the names and patterns of a setting.
fn held_patterns(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

/// Checks the value of [`RETENTION_HOLDS`].
///
/// # Errors
/// [`Error::IllegalArgument`] for too many names.
pub(super) fn check_holds(text: &str) -> Result<()> {
    match held_patterns(text).count() {
        count if count > MAX_LIMITS => Err(Error::IllegalArgument(format!(
            "setting [{RETENTION_HOLDS}] has [{count}] names and patterns, more than [{MAX_LIMITS}]"
        ))),
        _ => Ok(()),
    }
}

/// Age from which on documents of an index of the server's own are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnRetention {
    /// Name of the index.
    pub index: &'static str,
    /// Field with the time of a document.
    pub field: &'static str,
    /// The age; `None` where documents stay, as those of a held index do.
    pub max_age: Option<Duration>,
}

impl Metadata {
    /// Lists the ages from which on documents of the server's own indices are deleted.
    pub fn own_retention(&self) -> Vec<OwnRetention> {
        let read = |(setting, index, field, _): (&str, &'static str, &'static str, &str)| {
            let value = self.cluster_setting(setting);
            // What is stored was checked.
            let max_age =
                value.as_ref().and_then(Value::as_str).and_then(|text| parse_time(text).ok()).flatten();
            let is_held = self.index(index).is_some_and(|meta| self.is_held(meta));
            OwnRetention { index, field, max_age: max_age.filter(|_| !is_held) }
        };
        OWN_RETENTION.into_iter().map(read).collect()
    }

    /// Returns whether an index is held: by a setting of its own, or by its name or that of its stream in a setting of the cluster.
    pub fn is_held(&self, meta: &IndexMeta) -> bool {
        let holds =
            self.explicit_cluster_setting(RETENTION_HOLDS).and_then(Value::as_str).unwrap_or_default();
        let is_named = |held: &str| {
            pattern::matches(held, &meta.name)
                || meta.data_stream().is_some_and(|stream| pattern::matches(held, stream))
        };
        meta.flag(RETENTION_HOLD) || held_patterns(holds).any(is_named)
    }

    /// Lists the limits of retention by space.
    pub fn retention_limits(&self) -> Vec<RetentionLimit> {
        let read = |setting: &'static str| {
            let value = self.explicit_cluster_setting(setting).and_then(Value::as_str);
            // What is stored was checked.
            value.and_then(|text| parse(setting, text).ok()).unwrap_or_default()
        };
        let mut limits = read(MAX_BYTES);
        limits.extend(read(MAX_DISK_USED));
        limits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_own_documents_have_an_age_from_the_first_start() {
        let own = Metadata::default().own_retention();
        assert_eq!(own.len(), OWN_RETENTION.len());
        assert!(own.iter().all(|own| own.max_age.is_some()));
        let update = super::super::ClusterSettingsUpdate::parse(
            &serde_json::json!({"persistent": {"retention.max_age.alert": "-1", "retention.max_age.tasks": "1d"}}),
        );
        let state = Metadata::default();
        let state = state.apply(&state.update_cluster_settings(&update.unwrap()).unwrap());
        let of =
            |index: &str| state.own_retention().into_iter().find(|own| own.index == index).unwrap().max_age;
        assert_eq!((of("alert"), of(".tasks")), (None, Some(Duration::from_secs(86_400))));
        let held = serde_json::json!({"settings": {"index.retention.hold": true}});
        let created = state.create_index("alert_error", &held, 0, super::super::Uuid::from_u128(1)).unwrap();
        let own = state.apply(&created).own_retention();
        assert_eq!(own.iter().find(|own| own.index == "alert_error").unwrap().max_age, None);
    }

    #[test]
    fn a_setting_of_the_cluster_holds_indices_by_their_names() {
        let with = |holds: &str| {
            let holds = serde_json::json!({"persistent": {"retention.hold": holds}});
            let update = super::super::ClusterSettingsUpdate::parse(&holds).unwrap();
            let state = Metadata::default();
            let body = Value::Null;
            let created = state.create_index("alert", &body, 0, super::super::Uuid::from_u128(1)).unwrap();
            let state = state.apply(&created);
            Ok::<_, Error>(state.apply(&state.update_cluster_settings(&update)?))
        };
        for (holds, held) in [("", false), ("alert", true), (".audit-*, al*", true), ("alert_error", false)] {
            let state = with(holds).unwrap();
            assert_eq!(state.is_held(state.index("alert").unwrap()), held, "{holds}");
            let own = state.own_retention();
            assert_eq!(own.iter().find(|own| own.index == "alert").unwrap().max_age.is_none(), held);
        }
        assert!(with(&"a,".repeat(MAX_LIMITS)).is_ok());
        assert!(with(&"a,".repeat(MAX_LIMITS + 1)).unwrap_err().to_string().contains("retention.hold"));
    }

    #[test]
    fn limits_are_of_patterns() {
        let limits = parse(MAX_BYTES, "logs-*:50gb, 1kb").unwrap();
        assert_eq!(limits[0].pattern, "logs-*");
        assert_eq!(limits[0].limit, SpaceLimit::Bytes(50 << 30));
        assert_eq!((limits[1].pattern.as_str(), limits[1].limit), ("*", SpaceLimit::Bytes(1024)));
        let disk = parse(MAX_DISK_USED, "a*:80%,b*:1tb").unwrap();
        assert_eq!(
            (disk[0].limit, disk[1].limit),
            (SpaceLimit::DiskPercent(80.0), SpaceLimit::DiskBytes(1 << 40))
        );
        for (setting, text) in [
            (MAX_BYTES, "a:80%"),
            (MAX_BYTES, "a:"),
            (MAX_BYTES, ":1gb"),
            (MAX_BYTES, "a:-1"),
            (MAX_DISK_USED, "a:101%"),
            (MAX_DISK_USED, "a:x%"),
        ] {
            assert!(parse(setting, text).is_err(), "{text}");
        }
    }
}
