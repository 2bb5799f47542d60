//! Dates and times as ISO 8601 has them, which mappings of dates take.

use std::io::Write as _;

use datafusion::arrow::datatypes::TimeUnit;
use millrace_time::calendar::civil_from_days;

const DAY_S: i64 = 86_400;

/// Writes a day, counted from 1970. `None` where its year has not four digits.
pub(super) fn day(days: i64, out: &mut Vec<u8>) -> Option<()> {
    let (year, month, day) = civil_from_days(days);
    (0..=9_999).contains(&year).then_some(())?;
    write!(out, "{year:04}-{month:02}-{day:02}").ok()
}

/// Writes a time of UTC, counted from the beginning of 1970. `None` where its year has not four digits.
pub(super) fn instant(value: i64, unit: &TimeUnit, out: &mut Vec<u8>) -> Option<()> {
    let (in_second, digits) = parts(unit);
    let (seconds, fraction) = (value.div_euclid(in_second), value.rem_euclid(in_second));
    day(seconds.div_euclid(DAY_S), out)?;
    out.push(b'T');
    clock(seconds.rem_euclid(DAY_S), fraction, digits, out)?;
    out.push(b'Z');
    Some(())
}

/// Writes a time of day. `None` where it is none.
pub(super) fn time(value: i64, unit: &TimeUnit, out: &mut Vec<u8>) -> Option<()> {
    let (in_second, digits) = parts(unit);
    let (seconds, fraction) = (value.div_euclid(in_second), value.rem_euclid(in_second));
    (0..DAY_S).contains(&seconds).then_some(())?;
    clock(seconds, fraction, digits, out)
}

fn clock(seconds: i64, fraction: i64, digits: usize, out: &mut Vec<u8>) -> Option<()> {
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    write!(out, "{hour:02}:{minute:02}:{second:02}").ok()?;
    match digits {
        0 => Some(()),
        _ => write!(out, ".{fraction:0digits$}").ok(),
    }
}

/// Returns how many of a unit a second has, and how many digits that takes.
fn parts(unit: &TimeUnit) -> (i64, usize) {
    match unit {
        TimeUnit::Second => (1, 0),
        TimeUnit::Millisecond => (1_000, 3),
        TimeUnit::Microsecond => (1_000_000, 6),
        TimeUnit::Nanosecond => (1_000_000_000, 9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_written_in_utc_with_the_digits_of_their_unit() {
        for (value, unit, expected) in [
            (0, TimeUnit::Second, Some("1970-01-01T00:00:00Z")),
            (-1, TimeUnit::Millisecond, Some("1969-12-31T23:59:59.999Z")),
            (951_782_400_000, TimeUnit::Millisecond, Some("2000-02-29T00:00:00.000Z")),
            (1_764_091_953_000_001, TimeUnit::Microsecond, Some("2025-11-25T17:32:33.000001Z")),
            (i64::MAX, TimeUnit::Nanosecond, Some("2262-04-11T23:47:16.854775807Z")),
            (i64::MIN, TimeUnit::Second, None),
            (i64::MAX, TimeUnit::Second, None),
            (253_402_300_799, TimeUnit::Second, Some("9999-12-31T23:59:59Z")),
            (253_402_300_800, TimeUnit::Second, None),
        ] {
            let mut out = Vec::new();
            let written = instant(value, &unit, &mut out);
            let written = written.map(|()| String::from_utf8(out).unwrap());
            assert_eq!(written.as_deref(), expected, "{value} {unit:?}");
        }
        let mut out = Vec::new();
        time(86_399_000_001, &TimeUnit::Microsecond, &mut out).unwrap();
        assert_eq!(out, b"23:59:59.000001");
        assert_eq!(time(DAY_S, &TimeUnit::Second, &mut out), None);
    }
}
