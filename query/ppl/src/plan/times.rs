//! Points in time of time modifiers, relative to the time of the request.

use chrono::{DateTime, Datelike, Duration, Months, NaiveDate, NaiveDateTime, NaiveTime, Timelike};
use millrace_sql::error::{Result, SqlError};

use crate::ast::{SpanUnit, TimeModifierValue, TimeStep};

/// Finds the instant of a modifier, in UTC.
pub(super) fn instant(value: &TimeModifierValue, now_ms: i64) -> Result<NaiveDateTime> {
    let now = DateTime::from_timestamp_millis(now_ms).unwrap_or_default().naive_utc();
    let refused = |text: &str| SqlError::Semantic(format!("[{text}] is no point in time"));
    match value {
        TimeModifierValue::Now => Ok(now),
        TimeModifierValue::Epoch(text) => {
            let seconds: f64 = text.parse().map_err(|_| refused(text))?;
            let millis = (seconds * 1_000.0).round();
            let found =
                (millis.abs() < 1e15).then(|| DateTime::from_timestamp_millis(millis as i64)).flatten();
            found.map(|found| found.naive_utc()).ok_or_else(|| refused(text))
        }
        TimeModifierValue::Absolute(text) => absolute(text).ok_or_else(|| refused(text)),
        TimeModifierValue::Relative(steps) => steps
            .iter()
            .try_fold(now, |at, step| self::step(at, *step))
            .ok_or_else(|| SqlError::Semantic("the point in time is out of range".to_owned())),
    }
}

/// Writes an instant as SQL's timestamps are written.
pub(super) fn shown(at: NaiveDateTime) -> String {
    at.format("%Y-%m-%d %H:%M:%S%.6f").to_string()
}

/// Writes an instant as documents have it.
pub(super) fn shown_iso(at: NaiveDateTime) -> String {
    at.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// Reads a date or a time of a date.
fn absolute(text: &str) -> Option<NaiveDateTime> {
    let text = text.trim();
    if let Ok(at) = DateTime::parse_from_rfc3339(text) {
        return Some(at.naive_utc());
    }
    for format in [
        "%Y-%m-%d %H:%M:%S%.f",
        "%Y-%m-%dT%H:%M:%S%.f",
        "%Y-%m-%dT%H:%M:%S%.fZ",
        "%m/%d/%Y:%H:%M:%S",
        "%Y-%m-%d %H:%M",
    ] {
        if let Ok(at) = NaiveDateTime::parse_from_str(text, format) {
            return Some(at);
        }
    }
    NaiveDate::parse_from_str(text, "%Y-%m-%d").ok().map(|date| date.and_time(NaiveTime::MIN))
}

fn step(at: NaiveDateTime, step: TimeStep) -> Option<NaiveDateTime> {
    match step {
        TimeStep::Offset { count, unit } => moved(at, count, unit),
        TimeStep::Snap(unit) => snapped(at, unit),
        TimeStep::SnapToWeekday(day) => {
            let days = (at.weekday().num_days_from_sunday() + 7 - u32::from(day) % 7) % 7;
            at.date()
                .checked_sub_signed(Duration::days(days.into()))
                .map(|date| date.and_time(NaiveTime::MIN))
        }
    }
}

fn moved(at: NaiveDateTime, count: i64, unit: SpanUnit) -> Option<NaiveDateTime> {
    let months = |each: i64| {
        let months = count.checked_mul(each)?;
        let size = Months::new(u32::try_from(months.unsigned_abs()).ok()?);
        if months < 0 { at.checked_sub_months(size) } else { at.checked_add_months(size) }
    };
    let duration = match unit {
        SpanUnit::Microsecond => Duration::microseconds(count),
        SpanUnit::Millisecond => Duration::try_milliseconds(count)?,
        SpanUnit::Centisecond => Duration::try_milliseconds(count.checked_mul(10)?)?,
        SpanUnit::Decisecond => Duration::try_milliseconds(count.checked_mul(100)?)?,
        SpanUnit::Second => Duration::try_seconds(count)?,
        SpanUnit::Minute => Duration::try_minutes(count)?,
        SpanUnit::Hour => Duration::try_hours(count)?,
        SpanUnit::Day => Duration::try_days(count)?,
        SpanUnit::Week => Duration::try_weeks(count)?,
        SpanUnit::Month => return months(1),
        SpanUnit::Quarter => return months(3),
        SpanUnit::Year => return months(12),
    };
    at.checked_add_signed(duration)
}

fn snapped(at: NaiveDateTime, unit: SpanUnit) -> Option<NaiveDateTime> {
    let midnight = |date: NaiveDate| date.and_time(NaiveTime::MIN);
    let date = at.date();
    Some(match unit {
        SpanUnit::Microsecond | SpanUnit::Millisecond | SpanUnit::Centisecond | SpanUnit::Decisecond => at,
        SpanUnit::Second => at.with_nanosecond(0)?,
        SpanUnit::Minute => at.with_nanosecond(0)?.with_second(0)?,
        SpanUnit::Hour => at.with_nanosecond(0)?.with_second(0)?.with_minute(0)?,
        SpanUnit::Day => midnight(date),
        SpanUnit::Week => {
            let days = at.weekday().num_days_from_sunday();
            midnight(date.checked_sub_signed(Duration::days(days.into()))?)
        }
        SpanUnit::Month => midnight(date.with_day(1)?),
        SpanUnit::Quarter => midnight(date.with_day(1)?.with_month0(date.month0() / 3 * 3)?),
        SpanUnit::Year => midnight(date.with_day(1)?.with_month(1)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_taken_in_their_order() {
        // 2023-11-14 22:13:20, a Tuesday.
        let now = 1_700_000_000_000;
        let offset = |count, unit| TimeStep::Offset { count, unit };
        for (steps, expected) in [
            (vec![offset(-7, SpanUnit::Day), TimeStep::Snap(SpanUnit::Day)], "2023-11-07 00:00:00.000000"),
            (vec![TimeStep::Snap(SpanUnit::Quarter)], "2023-10-01 00:00:00.000000"),
            (vec![offset(-1, SpanUnit::Month), TimeStep::Snap(SpanUnit::Hour)], "2023-10-14 22:00:00.000000"),
            (vec![TimeStep::SnapToWeekday(0)], "2023-11-12 00:00:00.000000"),
            (vec![TimeStep::SnapToWeekday(3)], "2023-11-08 00:00:00.000000"),
            (vec![TimeStep::Snap(SpanUnit::Week)], "2023-11-12 00:00:00.000000"),
        ] {
            let at = instant(&TimeModifierValue::Relative(steps.clone()), now).unwrap();
            assert_eq!(shown(at), expected, "{steps:?}");
        }
        let at = instant(&TimeModifierValue::Epoch("1700000000.5".to_owned()), 0).unwrap();
        assert_eq!(shown_iso(at), "2023-11-14T22:13:20.500Z");
        assert!(instant(&TimeModifierValue::Absolute("soon".to_owned()), 0).is_err());
    }
}
