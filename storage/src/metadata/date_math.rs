//! Date math in names: `<logs-{now/d}>` stands for `logs-2026.11.21` on that day.
//!
//! The grammar is OpenSearch's: text outside braces is literal, `{expression{format|zone}}` is a
//! moment rendered by a Java date pattern (default `uuuu.MM.dd`, UTC), and `\` escapes a brace.

use std::borrow::Cow;
use std::fmt::Write;

use chrono::{DateTime, Datelike, Months, NaiveDate, NaiveDateTime, TimeDelta, Timelike};

use crate::{Error, Result};

const DEFAULT_FORMAT: &str = "uuuu.MM.dd";

/// Resolves date math in a name; a name that is not in angle brackets is returned as it is.
///
/// # Errors
/// [`Error::IllegalArgument`] for a malformed expression.
pub(super) fn resolve(name: &str, now_ms: i64) -> Result<Cow<'_, str>> {
    let Some(inner) = name.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')) else {
        return Ok(Cow::Borrowed(name));
    };
    let fault =
        |what: &str| Error::IllegalArgument(format!("invalid dynamic name expression [{inner}]. {what}"));
    let mut resolved = String::with_capacity(inner.len());
    let mut chars = inner.char_indices();
    while let Some((position, c)) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some((_, escaped)) => resolved.push(escaped),
                None => return Err(fault("nothing follows the last `\\`")),
            },
            '}' => {
                return Err(fault(&format!(
                    "invalid character at position [{position}]. `{{` and `}}` are reserved characters and should be \
                     escaped when used as part of the index name using `\\` (e.g. `\\{{text\\}}`)"
                )));
            }
            '{' => {
                let mut math = String::new();
                let mut format = None;
                loop {
                    match chars.next() {
                        None => return Err(fault("date math placeholder is open ended")),
                        Some((_, '}')) => break,
                        Some((_, '{')) if format.is_none() => {
                            let mut text = String::new();
                            loop {
                                match chars.next() {
                                    None => return Err(fault("date math placeholder is open ended")),
                                    Some((_, '}')) => break,
                                    Some((at, '{')) => {
                                        return Err(fault(&format!(
                                            "invalid character in placeholder at position [{at}]"
                                        )));
                                    }
                                    Some((_, '\\')) => text.extend(chars.next().map(|(_, c)| c)),
                                    Some((_, c)) => text.push(c),
                                }
                            }
                            format = Some(text);
                        }
                        Some((at, '{')) => {
                            return Err(fault(&format!(
                                "invalid character in placeholder at position [{at}]"
                            )));
                        }
                        Some((_, '\\')) => math.extend(chars.next().map(|(_, c)| c)),
                        Some((_, c)) => math.push(c),
                    }
                }
                let (pattern, zone) = match &format {
                    None => (DEFAULT_FORMAT, None),
                    Some(text) => match text.split_once('|') {
                        None => (text.as_str(), None),
                        Some((_, "")) => return Err(fault("missing timezone")),
                        Some((pattern, zone)) => (pattern, Some(zone)),
                    },
                };
                if pattern.is_empty() {
                    return Err(fault("missing date format"));
                }
                let moment = evaluate(&math, local_time(now_ms, zone).map_err(|what| fault(&what))?)
                    .map_err(|what| fault(&what))?;
                render(pattern, moment, &mut resolved).map_err(|what| fault(&what))?;
            }
            c => resolved.push(c),
        }
    }
    if resolved.is_empty() {
        return Err(fault("nothing captured"));
    }
    Ok(Cow::Owned(resolved))
}

fn local_time(now_ms: i64, zone: Option<&str>) -> Result<NaiveDateTime, String> {
    let utc = DateTime::from_timestamp_millis(now_ms)
        .ok_or_else(|| "the clock is out of range".to_owned())?
        .naive_utc();
    let Some(zone) = zone else { return Ok(utc) };
    if let Some(seconds) = fixed_offset(zone) {
        return Ok(utc + TimeDelta::seconds(seconds));
    }
    let zone: chrono_tz::Tz = zone.parse().map_err(|_| format!("unknown time zone [{zone}]"))?;
    Ok(utc.and_utc().with_timezone(&zone).naive_local())
}

fn fixed_offset(zone: &str) -> Option<i64> {
    if zone == "Z" || zone == "UTC" {
        return Some(0);
    }
    let sign = match zone.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let digits: String = zone[1..].chars().filter(|c| *c != ':').collect();
    if digits.len() > 4 || !digits.bytes().all(|b| b.is_ascii_digit()) || digits.is_empty() {
        return None;
    }
    let (hours, minutes) = digits.split_at(digits.len().min(2));
    let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().unwrap_or(0));
    (hours <= 18 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

fn evaluate(math: &str, now: NaiveDateTime) -> Result<NaiveDateTime, String> {
    let Some(mut rest) = math.strip_prefix("now") else {
        return Err(format!("date math [{math}] must start with [now]"));
    };
    let mut moment = now;
    let out_of_range = || format!("date math [{math}] is out of range");
    while let Some(operator) = rest.chars().next() {
        rest = &rest[operator.len_utf8()..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let count: i64 = match (operator, digits) {
            ('/', 0) | ('+' | '-', 0) => 1,
            ('+' | '-', 1..=9) => rest[..digits].parse().map_err(|_| out_of_range())?,
            _ => return Err(format!("operator not supported for date math [{math}]")),
        };
        rest = &rest[digits..];
        let unit = rest.chars().next().ok_or_else(|| format!("truncated date math [{math}]"))?;
        rest = &rest[unit.len_utf8()..];
        moment = match operator {
            '/' => floor(moment, unit),
            '+' => shift(moment, unit, count),
            _ => shift(moment, unit, -count),
        }
        .ok_or_else(|| format!("unit [{unit}] not supported for date math [{math}]"))?;
    }
    Ok(moment)
}

fn shift(moment: NaiveDateTime, unit: char, count: i64) -> Option<NaiveDateTime> {
    let months = |count: i64| {
        let months = Months::new(u32::try_from(count.abs()).ok()?);
        if count < 0 { moment.checked_sub_months(months) } else { moment.checked_add_months(months) }
    };
    match unit {
        'y' => months(count.checked_mul(12)?),
        'M' => months(count),
        'w' => moment.checked_add_signed(TimeDelta::try_weeks(count)?),
        'd' => moment.checked_add_signed(TimeDelta::try_days(count)?),
        'h' | 'H' => moment.checked_add_signed(TimeDelta::try_hours(count)?),
        'm' => moment.checked_add_signed(TimeDelta::try_minutes(count)?),
        's' => moment.checked_add_signed(TimeDelta::try_seconds(count)?),
        _ => None,
    }
}

fn floor(moment: NaiveDateTime, unit: char) -> Option<NaiveDateTime> {
    let date = moment.date();
    let midnight = |date: NaiveDate| date.and_hms_opt(0, 0, 0);
    match unit {
        'y' => midnight(NaiveDate::from_ymd_opt(date.year(), 1, 1)?),
        'M' => midnight(date.with_day(1)?),
        'w' => midnight(date - TimeDelta::days(i64::from(date.weekday().num_days_from_monday()))),
        'd' => midnight(date),
        'h' | 'H' => date.and_hms_opt(moment.hour(), 0, 0),
        'm' => date.and_hms_opt(moment.hour(), moment.minute(), 0),
        's' => date.and_hms_opt(moment.hour(), moment.minute(), moment.second()),
        _ => None,
    }
}

/// Renders by a Java date pattern; letters that names do not use are refused.
fn render(pattern: &str, moment: NaiveDateTime, out: &mut String) -> Result<(), String> {
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        let run = rest.chars().take_while(|other| *other == c).count();
        if c == '\'' {
            let quoted = &rest[1..];
            let end =
                quoted.find('\'').ok_or_else(|| format!("unterminated quote in date format [{pattern}]"))?;
            out.push_str(if end == 0 { "'" } else { &quoted[..end] });
            rest = &quoted[end + 1..];
            continue;
        }
        if run > 19 {
            return Err(format!("too many letters [{c}] in date format [{pattern}]"));
        }
        let week = moment.iso_week();
        let mut number = |value: i64| {
            let _ = write!(out, "{value:0run$}");
        };
        match (c, run) {
            ('y' | 'u', 2) => number(i64::from(moment.year().rem_euclid(100))),
            ('y' | 'u', _) => number(i64::from(moment.year())),
            ('Y', 2) => number(i64::from(week.year().rem_euclid(100))),
            ('Y', _) => number(i64::from(week.year())),
            ('M' | 'L', 1 | 2) => number(i64::from(moment.month())),
            ('M' | 'L', 3) => out.push_str(&moment.format("%b").to_string()),
            ('M' | 'L', 4) => out.push_str(&moment.format("%B").to_string()),
            ('d', 1 | 2) => number(i64::from(moment.day())),
            ('D', 1..=3) => number(i64::from(moment.ordinal())),
            ('w', 1 | 2) => number(i64::from(week.week())),
            ('e', 1) => number(i64::from(moment.weekday().number_from_monday())),
            ('E', 1..=3) => out.push_str(&moment.format("%a").to_string()),
            ('E', 4) => out.push_str(&moment.format("%A").to_string()),
            ('H', 1 | 2) => number(i64::from(moment.hour())),
            ('k', 1 | 2) => number(i64::from(if moment.hour() == 0 { 24 } else { moment.hour() })),
            ('h', 1 | 2) => number(i64::from(moment.hour12().1)),
            ('m', 1 | 2) => number(i64::from(moment.minute())),
            ('s', 1 | 2) => number(i64::from(moment.second())),
            ('S', 1..=9) => {
                let nanos = format!("{:09}", moment.nanosecond());
                out.push_str(&nanos[..run]);
            }
            (letter, _) if letter.is_ascii_alphabetic() => {
                return Err(format!("letter [{letter}] is not supported in date format [{pattern}]"));
            }
            (literal, _) => out.extend(std::iter::repeat_n(literal, run)),
        }
        rest = &rest[c.len_utf8() * run..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // 2024-03-22T01:02:03.456Z, a Friday.
    const NOW: i64 = 1_711_069_323_456;

    #[test]
    fn names_resolve() {
        for (name, expected) in [
            ("plain", "plain"),
            ("<plain>", "plain"),
            ("<logs-{now/d}>", "logs-2024.03.22"),
            ("<logs-{now}>", "logs-2024.03.22"),
            ("<logs-{now/M}>", "logs-2024.03.01"),
            ("<logs-{now/M{yyyy.MM}}>", "logs-2024.03"),
            ("<logs-{now/M-1M{uuuu.MM}}>", "logs-2024.02"),
            ("<logs-{now/w}>", "logs-2024.03.18"),
            ("<logs-{now-1y/y}>", "logs-2023.01.01"),
            ("<logs-{now/d{yyyy.MM.dd|+12:00}}>", "logs-2024.03.22"),
            ("<logs-{now-2h{yyyy.MM.dd-HH|-03:00}}>", "logs-2024.03.21-20"),
            ("<logs-{now{yyyy.MM.dd.HH|America/New_York}}>", "logs-2024.03.21.21"),
            ("<a-{now+1d}-b-{now-1d}>", "a-2024.03.23-b-2024.03.21"),
            ("<\\{x\\}-{now{HH.mm.ss.SSS}}>", "{x}-01.02.03.456"),
            ("<w-{now{YYYY.ww}}>", "w-2024.12"),
            ("<q-{now{yyyy'y'}}>", "q-2024y"),
        ] {
            assert_eq!(resolve(name, NOW).unwrap(), expected, "{name}");
        }
    }

    #[test]
    fn malformed_expressions_are_refused() {
        for name in [
            "<logs-{now/d>",
            "<logs-}>",
            "<logs-{yesterday}>",
            "<logs-{now/x}>",
            "<logs-{now*2d}>",
            "<logs-{now{{}}}>",
            "<logs-{now{yyyy|}}>",
            "<logs-{now{yyyy|Mars/Base}}>",
            "<logs-{now+9999999999d}>",
            "<logs-{now+999999999y}>",
            "<logs-{now{Q}}>",
            "<>",
            "<a\\>",
        ] {
            assert!(matches!(resolve(name, NOW), Err(Error::IllegalArgument(_))), "{name}");
        }
    }
}
