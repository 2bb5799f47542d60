//! Times from which on the age of an index counts.
//!
//! Transitions of policies count from [`origination_ms`] where a setting names a time, retention by space from [`origin_ms`].

use chrono::NaiveDate;
use millrace_catalog::metadata::IndexMeta;

/// Setting with the time from which on policies count the age of an index, in milliseconds.
pub(crate) const ORIGINATION_DATE: &str = "index.lifecycle.origination_date";
/// Setting that takes this time from the day in the name.
const PARSE_ORIGINATION_DATE: &str = "index.lifecycle.parse_origination_date";
const DAY_MS: i64 = 86_400_000;

/// Returns the time from which on policies count the age of an index where its settings name one, in milliseconds: itself, or the day in the
/// name of the index, which a number may follow.
pub(crate) fn origination_ms(meta: &IndexMeta) -> Option<i64> {
    let set = meta.integer(ORIGINATION_DATE).filter(|time| *time >= 0);
    set.or_else(|| meta.flag(PARSE_ORIGINATION_DATE).then(|| named_day_ms(&meta.name)).flatten())
}

/// Returns the begin of the day in a name such as `logs-2026.11.29-000001`, in milliseconds.
fn named_day_ms(name: &str) -> Option<i64> {
    let unnumbered = || {
        let (name, number) = name.rsplit_once('-')?;
        number.bytes().all(|byte| byte.is_ascii_digit()).then_some(name)
    };
    let found = daily_series(name).or_else(|| daily_series(unnumbered()?));
    found.map(|(_, end_ms)| end_ms - DAY_MS)
}

/// Returns the time from which on the age of an index counts, in milliseconds: that of its settings, the begin of the day in its name, or the
/// creation of the index that its documents came to first.
pub(crate) fn origin_ms(meta: &IndexMeta) -> i64 {
    let day_ms = || daily_series(dated_name(meta)).map(|(_, end_ms)| end_ms - DAY_MS);
    origination_ms(meta).or_else(day_ms).unwrap_or_else(|| meta.original_created_ms())
}

/// Returns the name whose date is that of an index: that of the source for a shrunken index that took its place and its name.
pub(crate) fn dated_name(meta: &IndexMeta) -> &str {
    let source = meta.resize_source();
    source.filter(|source| meta.aliases.contains_key(*source)).unwrap_or(&meta.name)
}

/// Returns the name without the date at its end, and the end of that day in milliseconds, where it has a date: `logs-2026.11.29`.
pub(crate) fn daily_series(name: &str) -> Option<(&str, i64)> {
    let (series, date) = name.split_at_checked(name.len().checked_sub(10)?)?;
    let is_date = date.bytes().enumerate().all(|(at, byte)| match at {
        4 | 7 => matches!(byte, b'.' | b'-' | b'_'),
        _ => byte.is_ascii_digit(),
    });
    if !is_date || series.is_empty() {
        return None;
    }
    let (year, month, day) = (date[..4].parse().ok()?, date[5..7].parse().ok()?, date[8..].parse().ok()?);
    let begin = NaiveDate::from_ymd_opt(year, month, day)?.and_hms_opt(0, 0, 0)?;
    Some((series, begin.and_utc().timestamp_millis() + DAY_MS))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millrace_catalog::metadata::{Metadata, Uuid};
    use serde_json::{Value, json};

    use super::*;

    fn index(name: &str, settings: Value, created_ms: i64) -> Arc<IndexMeta> {
        let state = Metadata::default();
        let body = json!({ "settings": settings });
        let changes = state.create_index(name, &body, created_ms, Uuid::new_v4()).unwrap();
        Arc::clone(state.apply(&changes).index(name).unwrap())
    }

    #[test]
    fn an_index_is_as_old_as_its_settings_its_day_or_its_first_documents() {
        const DAY: i64 = 1_795_910_400_000;
        let (none, date) = (json!({}), json!({ ORIGINATION_DATE: 7 }));
        let parsed = json!({ PARSE_ORIGINATION_DATE: true });
        for (name, settings, origination, origin) in [
            ("logs", &none, None, 50),
            ("logs", &date, Some(7), 7),
            ("logs", &json!({ ORIGINATION_DATE: -1 }), None, 50),
            ("logs-2026.11.29", &none, None, DAY),
            ("logs-2026.11.29", &date, Some(7), 7),
            ("logs-2026.11.29", &parsed, Some(DAY), DAY),
            ("logs-2026.11.29-000001", &none, None, 50),
            ("logs-2026.11.29-000001", &parsed, Some(DAY), DAY),
            ("logs-000001", &parsed, None, 50),
        ] {
            let meta = index(name, settings.clone(), 50);
            assert_eq!((origination_ms(&meta), origin_ms(&meta)), (origination, origin), "{name} {settings}");
        }
        let wrong = Metadata::default().create_index(
            "x",
            &json!({"settings": {ORIGINATION_DATE: "soon"}}),
            0,
            Uuid::new_v4(),
        );
        assert!(wrong.unwrap_err().to_string().contains(ORIGINATION_DATE));
    }

    #[test]
    fn indices_of_a_day_are_known_by_their_names() {
        assert_eq!(daily_series("logs-2026.11.29"), Some(("logs-", 1_795_996_800_000)));
        assert_eq!(daily_series("logs-2026-11-29"), Some(("logs-", 1_795_996_800_000)));
        for name in
            ["2026.11.29", "logs-2026.13.01", "logs-2026.11.2", "logs-2026x11.29", "log", "lögs-2026.11.é9"]
        {
            assert_eq!(daily_series(name), None, "{name}");
        }
    }
}
