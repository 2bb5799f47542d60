//! Times in ISO 8601, as loosely as Logstash takes them.

use chrono::{DateTime, NaiveDate, NaiveTime, Utc};

use super::Zone;
use super::parse::nanoseconds;
use super::zone::offset;

/// Reads `2015-01-02`, `2015-01-02T03:04`, `2015-01-02 03:04:05,678+0100` and what lies between; a year,
/// a month, a day of the year (`2015-123`) also alone. Without an offset, the time is that of `zone`.
pub fn iso8601(text: &str, zone: Zone) -> Option<DateTime<Utc>> {
    let text = text.trim();
    let (year, rest) = number(text, 4)?;
    let year = i32::try_from(year).ok()?;
    let (date, rest) = match rest.strip_prefix('-') {
        None => (NaiveDate::from_ymd_opt(year, 1, 1)?, rest),
        Some(rest) => match number(rest, 3) {
            Some((day, rest)) => (NaiveDate::from_yo_opt(year, day)?, rest),
            None => {
                let (month, rest) = number(rest, 2)?;
                let (day, rest) = match rest.strip_prefix('-') {
                    Some(rest) => number(rest, 2).or_else(|| number(rest, 1))?,
                    None => (1, rest),
                };
                (NaiveDate::from_ymd_opt(year, month, day)?, rest)
            }
        },
    };
    let (time, rest) = match rest.strip_prefix(['T', 't', ' ']) {
        Some(rest) => time(rest)?,
        None => (NaiveTime::MIN, rest),
    };
    let rest = rest.strip_prefix(' ').unwrap_or(rest);
    let zone = match rest {
        "" => zone,
        "Z" | "z" | "UTC" => Zone::UTC,
        rest => match offset(rest)? {
            (offset, "") => Zone::Fixed(offset),
            _ => return None,
        },
    };
    zone.instant(date.and_time(time))
}

fn time(text: &str) -> Option<(NaiveTime, &str)> {
    let (hour, rest) = number(text, 2)?;
    let (minute, rest) = match rest.strip_prefix(':') {
        Some(rest) => number(rest, 2)?,
        None => return Some((NaiveTime::from_hms_opt(hour, 0, 0)?, rest)),
    };
    let (second, rest) = match rest.strip_prefix(':') {
        Some(rest) => number(rest, 2)?,
        None => (0, rest),
    };
    let (nanosecond, rest) = match rest.strip_prefix(['.', ',']) {
        Some(rest) => {
            let (fraction, rest) = rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count());
            (nanoseconds(fraction)?, rest)
        }
        None => (0, rest),
    };
    Some((NaiveTime::from_hms_nano_opt(hour, minute, second, nanosecond)?, rest))
}

/// Reads exactly so many digits.
fn number(text: &str, length: usize) -> Option<(u32, &str)> {
    let count = text.bytes().take(length + 1).take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(count);
    (count == length).then_some(())?;
    Some((digits.parse().ok()?, rest))
}
