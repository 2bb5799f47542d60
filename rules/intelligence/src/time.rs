//! Times as AI rules and their results write them, all in UTC.

use chrono::{DateTime, Datelike, NaiveDateTime, SecondsFormat, Utc};

fn datetime(ms: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(ms).unwrap_or_default()
}

/// Writes a time as `2026-01-31T10:00:00.000Z`.
pub(crate) fn iso(ms: i64) -> String {
    datetime(ms).to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Writes a time as `2026-01-31 10:00`.
pub(crate) fn minute(ms: i64) -> String {
    datetime(ms).format("%Y-%m-%d %H:%M").to_string()
}

/// Reads what [`minute`] writes.
pub(crate) fn read_minute(text: &str) -> Option<i64> {
    let shape = text.len() == 16 && text.is_ascii();
    let read = NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M").ok().filter(|_| shape)?;
    Some(read.and_utc().timestamp_millis())
}

/// Writes the day of a time as `2026.01.31`.
pub(crate) fn day(ms: i64) -> String {
    let date = datetime(ms);
    format!("{:04}.{:02}.{:02}", date.year(), date.month(), date.day())
}

/// Writes a time as `20260131_100000`.
pub(crate) fn underscored(ms: i64) -> String {
    datetime(ms).format("%Y%m%d_%H%M%S").to_string()
}

/// Writes a time as `20260131100000`.
pub(crate) fn packed(ms: i64) -> String {
    datetime(ms).format("%Y%m%d%H%M%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_and_read() {
        let ms = 1_769_853_600_000;
        assert_eq!(iso(ms), "2026-01-31T10:00:00.000Z");
        assert_eq!((minute(ms), underscored(ms)), ("2026-01-31 10:00".into(), "20260131_100000".into()));
        assert_eq!((packed(ms), day(ms)), ("20260131100000".into(), "2026.01.31".into()));
        assert_eq!(read_minute("2026-01-31 10:00"), Some(ms));
        for wrong in ["2026-01-31", "2026-02-30 10:00", "2026-1-31 10:00", "now", "2026-01-31 10:00:00", ""] {
            assert_eq!(read_minute(wrong), None, "{wrong}");
        }
    }
}
