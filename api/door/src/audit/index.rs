//! The indices of the audit: one a day, `.audit-<yyyy.MM.dd>`, with a fixed mapping.

use std::time::Duration;

use chrono::{DateTime, Days, NaiveDate};
use millrace_engine::hidden_index;
use serde_json::{Value, json};

/// Prefix of their names.
const PREFIX: &str = ".audit-";
const DATE: &str = "%Y.%m.%d";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn day_of(time_ms: i64) -> NaiveDate {
    DateTime::from_timestamp_millis(time_ms).unwrap_or_default().date_naive()
}

/// Names the index of a time.
pub(super) fn name(time_ms: i64) -> String {
    format!("{PREFIX}{}", day_of(time_ms).format(DATE))
}

/// Returns whether an index is of a day so long ago that it is not kept.
pub(super) fn is_expired(index: &str, now_ms: i64, retention: Duration) -> bool {
    let day = index.strip_prefix(PREFIX).and_then(|day| NaiveDate::parse_from_str(day, DATE).ok());
    // What is of the first day has its whole time.
    let days = retention.as_secs().div_ceil(DAY.as_secs());
    let oldest = day_of(now_ms).checked_sub_days(Days::new(days));
    matches!((day, oldest), (Some(day), Some(oldest)) if day < oldest)
}

/// The mapping and settings of each.
pub(super) fn body() -> Value {
    let keyword = json!({"type": "keyword", "ignore_above": 1024});
    let number = json!({"type": "long"});
    hidden_index(json!({
        "@timestamp": {"type": "date"},
        "outcome": keyword,
        "status": {"type": "integer"},
        "caller": keyword,
        "user": keyword,
        "roles": keyword,
        "api_key_id": keyword,
        "api_key_name": keyword,
        "action": keyword,
        "method": keyword,
        "path": keyword,
        "route": keyword,
        "indices": keyword,
        "rule": keyword,
        "owner": keyword,
        "address": {"type": "ip"},
        "listener": keyword,
        "request_id": keyword,
        "opaque_id": keyword,
        "cluster": keyword,
        "node": keyword,
        "refused": {"properties": {"action": keyword, "index": keyword, "count": number}},
        "more_refused": number,
        "count": number,
        "others": number,
        "lost": number,
    }))
}
