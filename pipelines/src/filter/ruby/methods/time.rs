//! Methods of times, of Ruby's and of Logstash's.

use std::sync::Arc;

use chrono::format::{Item, StrftimeItems};
use chrono::{
    DateTime, Datelike, Duration, FixedOffset, Local, NaiveDate, NaiveDateTime, NaiveTime, Offset, TimeZone,
    Timelike, Utc,
};
use millrace_ingest::Event;
use millrace_ingest::event::time_format::{Zone, iso8601};

use super::super::interpreter::{Evaluated, Flow, Interpreter};
use super::super::value::{RaisedError, Val};
use super::{arg, int_arg, text_arg};

/// Methods of times.
pub(super) const NAMES: &[&str] = &[
    "+",
    "-",
    "<=>",
    "<",
    "<=",
    ">",
    ">=",
    "between?",
    "year",
    "month",
    "mon",
    "day",
    "mday",
    "hour",
    "min",
    "minute",
    "sec",
    "second",
    "usec",
    "nsec",
    "wday",
    "yday",
    "to_i",
    "to_f",
    "to_r",
    "to_s",
    "to_time",
    "to_date",
    "to_datetime",
    "to_iso8601",
    "time",
    "strftime",
    "utc",
    "gmtime",
    "getutc",
    "getgm",
    "localtime",
    "getlocal",
    "iso8601",
    "xmlschema",
    "zone",
    "utc_offset",
    "gmt_offset",
    "utc?",
    "monday?",
    "tuesday?",
    "wednesday?",
    "thursday?",
    "friday?",
    "saturday?",
    "sunday?",
    "round",
    "cweek",
    "new_offset",
    "tv_sec",
    "tv_usec",
];

/// Formats of times without a pattern, with an offset.
const WITH_OFFSET: [&str; 5] = [
    "%Y-%m-%d %H:%M:%S%.f %z",
    "%Y-%m-%d %H:%M:%S%.f%z",
    "%d/%b/%Y:%H:%M:%S %z",
    "%a, %d %b %Y %H:%M:%S %z",
    "%a %b %d %H:%M:%S %z %Y",
];
/// Formats of times without a pattern, in a zone that is understood.
const WITHOUT_OFFSET: [&str; 9] = [
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y/%m/%d %H:%M:%S%.f",
    "%b %d %H:%M:%S %Y",
    "%a %b %d %H:%M:%S %Y",
    "%d %b %Y %H:%M:%S",
    "%d/%b/%Y:%H:%M:%S",
    "%Y%m%dT%H%M%S",
    "%Y-%m-%d %H:%M",
];
/// Formats of dates without a pattern.
const DATES: [&str; 6] = ["%Y-%m-%d", "%Y/%m/%d", "%Y%m%d", "%d %b %Y", "%b %d, %Y", "%B %d, %Y"];

fn local(time: DateTime<Utc>) -> DateTime<FixedOffset> {
    time.with_timezone(&Local).fixed_offset()
}

fn out_of_range() -> RaisedError {
    RaisedError::new("RangeError", "the time is out of range")
}

/// Parses a time in one of the usual forms.
fn parse(text: &str, zone: Zone) -> Option<DateTime<FixedOffset>> {
    let text = text.trim();
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Some(time);
    }
    let (text, zone) = match text
        .strip_suffix(" UTC")
        .or_else(|| text.strip_suffix(" GMT"))
        .or_else(|| text.strip_suffix('Z'))
    {
        Some(text) => (text, Zone::UTC),
        None => (text, zone),
    };
    if let Some(time) = WITH_OFFSET.iter().find_map(|format| DateTime::parse_from_str(text, format).ok()) {
        return Some(time);
    }
    let naive = WITHOUT_OFFSET
        .iter()
        .find_map(|format| NaiveDateTime::parse_from_str(text, format).ok())
        .or_else(|| {
            let date = DATES.iter().find_map(|format| NaiveDate::parse_from_str(text, format).ok())?;
            Some(date.and_time(NaiveTime::MIN))
        });
    match naive {
        Some(naive) => in_zone(naive, zone),
        None => {
            iso8601(text, zone).map(|time| if zone == Zone::UTC { time.fixed_offset() } else { local(time) })
        }
    }
}

fn in_zone(naive: NaiveDateTime, zone: Zone) -> Option<DateTime<FixedOffset>> {
    let instant = zone.instant(naive)?;
    Some(if zone == Zone::UTC { instant.fixed_offset() } else { local(instant) })
}

/// Parses a time by a pattern of `strptime`.
fn parse_by(text: &str, pattern: &str, zone: Zone) -> Result<DateTime<FixedOffset>, RaisedError> {
    let wrong = || RaisedError::argument(format!("invalid date or strptime format - `{text}' `{pattern}'"));
    if pattern == "%s" {
        let seconds = text.trim().parse().map_err(|_| wrong())?;
        return DateTime::from_timestamp(seconds, 0).map(local).ok_or_else(wrong);
    }
    let format = chrono_pattern(pattern);
    if StrftimeItems::new(&format).any(|item| matches!(item, Item::Error)) {
        return Err(RaisedError::argument(format!("the pattern [{pattern}] is not supported")));
    }
    if let Ok(time) = DateTime::parse_from_str(text, &format) {
        return Ok(time);
    }
    if let Ok(naive) = NaiveDateTime::parse_from_str(text, &format) {
        return in_zone(naive, zone).ok_or_else(wrong);
    }
    let date = NaiveDate::parse_from_str(text, &format).map_err(|_| wrong())?;
    in_zone(date.and_time(NaiveTime::MIN), zone).ok_or_else(wrong)
}

/// Turns a pattern of Ruby's `strftime` into that of `chrono`.
fn chrono_pattern(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut letters = pattern.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let mut width = String::new();
        while let Some(digit) = letters.peek().copied().filter(char::is_ascii_digit) {
            width.push(digit);
            letters.next();
        }
        match (letters.next(), width.as_str()) {
            (Some('L'), "" | "3") => out.push_str("%3f"),
            (Some('L' | 'N'), "6") => out.push_str("%6f"),
            (Some('L' | 'N'), "9") => out.push_str("%9f"),
            (Some('N'), "3") => out.push_str("%3f"),
            (Some('N'), _) => out.push_str("%9f"),
            (Some(other), _) => {
                out.push('%');
                out.push(other);
            }
            (None, _) => out.push('%'),
        }
    }
    out
}

/// Formats a time by a pattern of `strftime`.
fn format(time: DateTime<FixedOffset>, pattern: &str) -> Result<String, RaisedError> {
    let is_utc = time.offset().local_minus_utc() == 0;
    let zone = if is_utc { "UTC".to_owned() } else { time.format("%z").to_string() };
    let pattern = chrono_pattern(&pattern.replace("%Z", &zone));
    let items: Vec<Item<'_>> = StrftimeItems::new(&pattern).collect();
    if items.iter().any(|item| matches!(item, Item::Error)) {
        return Err(RaisedError::argument(format!("the pattern [{pattern}] is not supported")));
    }
    Ok(time.format_with_items(items.iter()).to_string())
}

/// Makes a time of seconds since 1970.
fn at(seconds: &Val) -> Result<DateTime<Utc>, RaisedError> {
    let made = match seconds {
        Val::Int(seconds) => DateTime::from_timestamp(*seconds, 0),
        Val::Float(seconds) if seconds.is_finite() && seconds.abs() < 1e15 => {
            let whole = seconds.floor();
            // Microseconds, as doubles of today tell no more.
            let micros = ((seconds - whole) * 1e6).round() as u32;
            DateTime::from_timestamp(whole as i64, 0)
                .map(|time| time + Duration::microseconds(i64::from(micros)))
        }
        other => match other.instant() {
            Some(time) => Some(time),
            None => {
                return Err(RaisedError::type_error(format!(
                    "can't convert {} into an exact number",
                    other.class()
                )));
            }
        },
    };
    made.ok_or_else(out_of_range)
}

/// Calls a method of a class of times.
pub(super) fn class_call(class: &str, name: &str, args: &[Val]) -> Option<Evaluated> {
    let is_logstash = class == "LogStash::Timestamp";
    // A `DateTime` without an offset is in UTC, a `Time` is local.
    let zone = if class == "Time" { Zone::Local } else { Zone::UTC };
    let wrap = |time: DateTime<FixedOffset>| {
        if is_logstash { Val::Timestamp(time.to_utc()) } else { Val::Time(time) }
    };
    let answer = || -> Result<Val, RaisedError> {
        Ok(match name {
            "now" | "today" => wrap(local(Utc::now())),
            "new" if args.is_empty() => wrap(local(Utc::now())),
            "at" => {
                let mut time = at(arg(args, 0)?)?;
                if let Some(micros) = args.get(1).and_then(Val::number) {
                    let unit = match args.get(2) {
                        Some(Val::Symbol(unit)) if &**unit == "millisecond" => 1e6,
                        Some(Val::Symbol(unit)) if matches!(&**unit, "nsec" | "nanosecond") => 1.0,
                        _ => 1e3,
                    };
                    time = time
                        .checked_add_signed(Duration::nanoseconds((micros * unit) as i64))
                        .ok_or_else(out_of_range)?;
                }
                wrap(local(time))
            }
            "parse" | "iso8601" | "coerce" => {
                let value = arg(args, 0)?;
                if let Some(time) = value.instant() {
                    return Ok(wrap(time.fixed_offset()));
                }
                let text = text_arg(args, 0)?;
                let class = if class == "Time" { "ArgumentError" } else { "Date::Error" };
                wrap(
                    parse(&text, zone)
                        .ok_or_else(|| RaisedError::new(class, format!("no time information in {text:?}")))?,
                )
            }
            "strptime" => wrap(parse_by(&text_arg(args, 0)?, &text_arg(args, 1)?, zone)?),
            "new" | "utc" | "gm" | "local" | "mktime" => {
                if let Some(time) = args.first().and_then(Val::instant) {
                    return Ok(wrap(time.fixed_offset()));
                }
                if is_logstash || matches!(args.first(), Some(Val::Text(_))) {
                    let text = text_arg(args, 0)?;
                    let parsed = parse(&text, Zone::UTC);
                    return parsed
                        .map(wrap)
                        .ok_or_else(|| RaisedError::argument(format!("[{text}] is not a time")));
                }
                let part = |at: usize, default: i64| args.get(at).map_or(Ok(default), |_| int_arg(args, at));
                let (year, month, day) = (part(0, 1970)?, part(1, 1)?, part(2, 1)?);
                let (hour, minute, second) = (part(3, 0)?, part(4, 0)?, part(5, 0)?);
                let small = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
                let naive = i32::try_from(year)
                    .ok()
                    .and_then(|year| NaiveDate::from_ymd_opt(year, small(month), small(day)))
                    .and_then(|date| date.and_hms_opt(small(hour), small(minute), small(second)))
                    .ok_or_else(|| RaisedError::argument("argument out of range"))?;
                let zone = if matches!(name, "utc" | "gm") { Zone::UTC } else { zone };
                wrap(in_zone(naive, zone).ok_or_else(out_of_range)?)
            }
            _ => return Err(RaisedError { class: super::NO_METHOD, message: String::new() }),
        })
    };
    Some(answer().map_err(Flow::from))
}

/// Calls a method of a time.
pub(super) fn call(
    run: &mut Interpreter<'_>,
    receiver: &Val,
    name: &'static str,
    args: &[Val],
) -> Option<Evaluated> {
    let instant = receiver.instant()?;
    let time = match receiver {
        Val::Time(time) => *time,
        _ => instant.fixed_offset(),
    };
    let answer = match name {
        "+" | "-" => moved(receiver, instant, name, args),
        "<=>" | "<" | "<=" | ">" | ">=" | "between?" => compared(receiver, name, args),
        "strftime" => text_arg(args, 0)
            .and_then(|pattern| format(time, &pattern))
            .map_err(Flow::from)
            .and_then(|text| run.text(text)),
        "iso8601" | "xmlschema" | "to_iso8601" => {
            let text = match (receiver, args.first()) {
                (Val::Timestamp(time), _) => Event::new(*time).timestamp_text(),
                (_, Some(Val::Int(3))) => time.to_rfc3339_opts(chrono::SecondsFormat::Millis, true),
                (_, Some(Val::Int(6))) => time.to_rfc3339_opts(chrono::SecondsFormat::Micros, true),
                (_, Some(Val::Int(9))) => time.to_rfc3339_opts(chrono::SecondsFormat::Nanos, true),
                _ => time.to_rfc3339_opts(chrono::SecondsFormat::Secs, true),
            };
            run.text(text)
        }
        "to_s" | "inspect" => run.text(receiver.to_text()),
        "localtime" | "getlocal" | "new_offset" => match args.first() {
            None if name == "new_offset" => Ok(Val::Time(instant.fixed_offset())),
            None => Ok(Val::Time(local(instant))),
            Some(Val::Int(seconds)) => offset(i32::try_from(*seconds).ok(), time),
            Some(other) => match Zone::named(&other.to_text()) {
                Some(Zone::Fixed(zone)) => Ok(Val::Time(time.with_timezone(&zone))),
                Some(Zone::Utc) => Ok(Val::Time(instant.fixed_offset())),
                _ => Err(RaisedError::argument(format!(
                    "[{}] is not an offset such as +02:00",
                    other.to_text()
                ))
                .into()),
            },
        },
        "round" => {
            let rounded = DateTime::from_timestamp(
                instant.timestamp() + i64::from(instant.nanosecond() >= 500_000_000),
                0,
            );
            Ok(Val::Time(rounded.unwrap_or(instant).with_timezone(time.offset())))
        }
        "zone" => run.text(if time.offset().local_minus_utc() == 0 {
            "UTC".to_owned()
        } else {
            time.format("%z").to_string()
        }),
        _ => part(time, instant, name)?,
    };
    Some(answer)
}

fn offset(seconds: Option<i32>, time: DateTime<FixedOffset>) -> Evaluated {
    let zone = seconds.and_then(FixedOffset::east_opt).ok_or_else(out_of_range)?;
    Ok(Val::Time(time.with_timezone(&zone)))
}

/// Methods without arguments.
fn part(time: DateTime<FixedOffset>, instant: DateTime<Utc>, name: &str) -> Option<Evaluated> {
    let int = |number: u32| Val::Int(i64::from(number));
    let weekday = time.weekday().num_days_from_sunday();
    Some(Ok(match name {
        "year" => Val::Int(i64::from(time.year())),
        "month" | "mon" => int(time.month()),
        "day" | "mday" => int(time.day()),
        "hour" => int(time.hour()),
        "min" | "minute" => int(time.minute()),
        "sec" | "second" => int(time.second()),
        "usec" | "tv_usec" => int(time.nanosecond() / 1_000),
        "nsec" => int(time.nanosecond()),
        "wday" => int(weekday),
        "yday" => int(time.ordinal()),
        "cweek" => int(time.iso_week().week()),
        "sunday?" => Val::Bool(weekday == 0),
        "monday?" => Val::Bool(weekday == 1),
        "tuesday?" => Val::Bool(weekday == 2),
        "wednesday?" => Val::Bool(weekday == 3),
        "thursday?" => Val::Bool(weekday == 4),
        "friday?" => Val::Bool(weekday == 5),
        "saturday?" => Val::Bool(weekday == 6),
        "to_i" | "tv_sec" => Val::Int(instant.timestamp()),
        "to_f" | "to_r" => {
            Val::Float(instant.timestamp() as f64 + f64::from(instant.timestamp_subsec_nanos()) / 1e9)
        }
        // The time of a timestamp is one of Ruby's.
        "time" | "to_time" | "to_datetime" => Val::Time(time),
        "to_date" => Val::Time(time.with_time(NaiveTime::MIN).single().unwrap_or(time)),
        "utc" | "gmtime" | "getutc" | "getgm" => Val::Time(instant.fixed_offset()),
        "utc?" => Val::Bool(time.offset().fix().local_minus_utc() == 0),
        "utc_offset" | "gmt_offset" => Val::Int(i64::from(time.offset().local_minus_utc())),
        _ => return None,
    }))
}

fn moved(receiver: &Val, instant: DateTime<Utc>, name: &str, args: &[Val]) -> Evaluated {
    let other = arg(args, 0)?;
    if let (Some(earlier), "-") = (other.instant(), name) {
        let difference = instant - earlier;
        let nanos = difference
            .num_nanoseconds()
            .map_or_else(|| difference.num_seconds() as f64 * 1e9, |nanos| nanos as f64);
        return Ok(Val::Float(nanos / 1e9));
    }
    let Some(seconds) = other.number().filter(|seconds| seconds.is_finite() && seconds.abs() < 1e15) else {
        return Err(
            RaisedError::type_error(format!("can't convert {} into an exact number", other.class())).into()
        );
    };
    let seconds = if name == "-" { -seconds } else { seconds };
    let whole = seconds.floor();
    let nanos = ((seconds - whole) * 1e9).round() as i64;
    let step =
        Duration::try_seconds(whole as i64).and_then(|step| step.checked_add(&Duration::nanoseconds(nanos)));
    let moved = step.and_then(|step| instant.checked_add_signed(step)).ok_or_else(out_of_range)?;
    Ok(match receiver {
        Val::Time(time) => Val::Time(time.offset().from_utc_datetime(&moved.naive_utc())),
        // Logstash's timestamps become times of Ruby's.
        _ => Val::Time(moved.fixed_offset()),
    })
}

fn compared(receiver: &Val, name: &str, args: &[Val]) -> Evaluated {
    let other = arg(args, 0)?;
    let order = receiver.order(other).filter(|_| other.instant().is_some());
    if name == "<=>" {
        return Ok(order.map_or(Val::Nil, |order| Val::Int(order as i64)));
    }
    let what: Arc<str> = Arc::from(if matches!(other, Val::Nil) { "nil" } else { other.class() });
    let order =
        order.ok_or_else(|| RaisedError::argument(format!("comparison of Time with {what} failed")))?;
    Ok(Val::Bool(match name {
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        ">=" => order.is_ge(),
        _ => order.is_ge() && receiver.order(arg(args, 1)?).is_some_and(|order| order.is_le()),
    }))
}
