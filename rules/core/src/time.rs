//! Event time and spans of it, in milliseconds; how times are read out of documents and shown.
//!
//! A text is read as `strict_date_optional_time` and, where it is digits only, as milliseconds since the epoch; so is
//! a number. Digits behind the milliseconds are cut off, as in columns of type `date`. All arithmetic saturates: a time
//! out of a document may be any.

use chrono::{DateTime, NaiveDate};
use serde_json::Value;

/// A moment, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(i64);

/// A length of time, in milliseconds; negative where something comes before what it is compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(i64);

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// Makes a span of milliseconds.
    pub const fn from_ms(ms: i64) -> Self {
        Self(ms)
    }

    /// Makes a span of seconds.
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1000))
    }

    /// Returns the milliseconds.
    pub const fn ms(self) -> i64 {
        self.0
    }

    /// Doubles the span `times` times.
    pub(crate) fn doubled(self, times: u32) -> Self {
        Self(self.0.saturating_mul(1_i64.checked_shl(times.min(62)).unwrap_or(i64::MAX)))
    }

    /// Adds another span.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Takes another span away.
    pub(crate) fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Writes it as `<number><unit>`, with the largest unit that needs no fraction.
    pub(crate) fn text(self) -> String {
        const UNITS: [(&str, i64); 5] =
            [("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)];
        for (unit, ms) in UNITS {
            if self.0 != 0 && self.0 % ms == 0 {
                return format!("{}{unit}", self.0 / ms);
            }
        }
        if self.0 == 0 { "0s".to_owned() } else { format!("{}.{:03}s", self.0 / 1000, self.0 % 1000) }
    }
}

impl Time {
    /// Makes a time of milliseconds since the Unix epoch.
    pub const fn from_ms(ms: i64) -> Self {
        Self(ms)
    }

    /// Returns the milliseconds since the Unix epoch.
    pub const fn ms(self) -> i64 {
        self.0
    }

    /// Returns the moment `span` later.
    pub const fn plus(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// Returns the moment `span` earlier.
    pub const fn minus(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }

    /// Returns how long after `earlier` it is.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// Reads a value of a document; `None` where it is no time.
    pub fn read(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => match number.as_i64() {
                Some(ms) => Some(Self(ms)),
                None => number.as_f64().filter(|ms| ms.abs() < 9e15).map(|ms| Self(ms as i64)),
            },
            _ => None,
        }
    }

    /// Reads a text; `None` where it is no time.
    pub fn parse(text: &str) -> Option<Self> {
        iso(text.as_bytes()).or_else(|| {
            let digits = text.strip_prefix('-').unwrap_or(text);
            let numeric = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            numeric.then(|| text.parse().ok().map(Self)).flatten()
        })
    }

    /// Writes it in ISO 8601, with milliseconds and `Z`; a moment outside of the calendar as its number.
    pub fn iso(self) -> String {
        match DateTime::from_timestamp_millis(self.0) {
            Some(time) => time.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
            None => self.0.to_string(),
        }
    }
}

/// Digits of a fixed width at the start, as a number and the rest.
fn digits(text: &[u8], width: usize) -> Option<(u32, &[u8])> {
    let (head, rest) = text.split_at_checked(width)?;
    let mut number = 0;
    for byte in head {
        number = number * 10 + u32::from(byte.is_ascii_digit().then_some(byte - b'0')?);
    }
    Some((number, rest))
}

/// Parses the digits behind a separator; `Some(None)` where there is no separator.
#[allow(clippy::option_option, reason = "missing and malformed are two things")]
fn part(text: &[u8], separator: u8) -> Option<Option<(u32, &[u8])>> {
    match text.strip_prefix(&[separator]) {
        None => Some(None),
        Some(rest) => digits(rest, 2).map(Some),
    }
}

fn iso(text: &[u8]) -> Option<Time> {
    let (year, mut rest) = digits(text, 4)?;
    let (mut month, mut day) = (1, 1);
    if let Some((found, behind)) = part(rest, b'-')? {
        (month, rest) = (found, behind);
        if let Some((found, behind)) = part(rest, b'-')? {
            (day, rest) = (found, behind);
        }
    }
    let date = NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, day)?;
    let (mut hour, mut minute, mut second, mut ms, mut zone) = (0, 0, 0, 0, 0);
    if let Some(behind) = rest.strip_prefix(b"T") {
        rest = behind;
        if !rest.is_empty() {
            (hour, rest) = digits(rest, 2)?;
            if let Some((found, behind)) = part(rest, b':')? {
                (minute, rest) = (found, behind);
                if let Some((found, behind)) = part(rest, b':')? {
                    (second, rest) = (found, behind);
                    (ms, rest) = fraction(rest)?;
                }
            }
            (zone, rest) = offset(rest)?;
        }
    }
    if !rest.is_empty() {
        return None;
    }
    let at = date.and_hms_opt(hour, minute, second)?.and_utc().timestamp_millis();
    Some(Time(at + i64::from(ms) - i64::from(zone) * 60_000))
}

fn fraction(text: &[u8]) -> Option<(u32, &[u8])> {
    let Some(rest) = text.strip_prefix(b".").or_else(|| text.strip_prefix(b",")) else {
        return Some((0, text));
    };
    let width = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if !(1..=9).contains(&width) {
        return None;
    }
    let (number, _) = digits(rest, width.min(3))?;
    Some((number * 10_u32.pow(3 - width.min(3) as u32), &rest[width..]))
}

/// The zone, in minutes east of Greenwich.
fn offset(text: &[u8]) -> Option<(i32, &[u8])> {
    let (sign, rest) = match text.split_first() {
        None => return Some((0, text)),
        Some((b'Z', rest)) => return Some((0, rest)),
        Some((b'+', rest)) => (1, rest),
        Some((b'-', rest)) => (-1, rest),
        Some(_) => return None,
    };
    let (hours, rest) = digits(rest, 2)?;
    let rest = rest.strip_prefix(b":").unwrap_or(rest);
    let (minutes, rest) = if rest.is_empty() { (0, rest) } else { digits(rest, 2)? };
    (hours <= 18 && minutes < 60).then_some((sign * (hours * 60 + minutes) as i32, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_the_mapping_reads_them() {
        let cases = [
            ("2026-12-10T06:55:46Z", Some(1_796_885_746_000)),
            ("2026-12-10T06:55:46.1239Z", Some(1_796_885_746_123)),
            ("2026-12-10T07:55:46,5+01:00", Some(1_796_885_746_500)),
            ("2026-12-10T05:55:46-0100", Some(1_796_885_746_000)),
            ("2026-12-10T06:55", Some(1_796_885_700_000)),
            ("2026-12-10", Some(1_796_860_800_000)),
            ("1970", Some(0)),
            ("1796885746000", Some(1_796_885_746_000)),
            ("-5", Some(-5)),
            ("2026-13-10", None),
            ("2026-12-10 06:55:46", None),
            ("yesterday", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(Time::parse(text).map(Time::ms), expected, "{text}");
        }
        assert_eq!(Time::read(&serde_json::json!(12.9)), Some(Time(12)));
        assert_eq!(Time::read(&serde_json::json!(["1970"])), None);
        assert_eq!(Time(1_796_885_746_120).iso(), "2026-12-10T06:55:46.120Z");
        assert_eq!(Time(i64::MAX).iso(), i64::MAX.to_string());
    }

    #[test]
    fn spans_are_written_with_their_largest_unit() {
        for (ms, text) in [(300_000, "5m"), (90_000, "90s"), (604_800_000, "1w"), (1500, "1.500s"), (0, "0s")]
        {
            assert_eq!(Span(ms).text(), text);
        }
    }
}
