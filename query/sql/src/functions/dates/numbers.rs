//! Moments that are written as numbers: days, seconds, months, digits.

use chrono::NaiveDate;

use super::super::Definition;
use super::super::row::{Context, Val};
use super::super::time::{self, DAY, SECOND};
use super::{Answer, LAST_DAY, Types, are_numbers, at, at_time, first, taken};
use crate::types::SqlType::{self, Date, Double, Integer, Keyword, Long, Time, Undefined};
use crate::types::TIMESTAMP;

/// Days from the year 0 to 1970.
const DAYS_TO_1970: i32 = 719_528;
/// The last second that timestamps of Unix may have, in 3001.
const LAST_UNIX_SECOND: i64 = 32_536_771_199;

/// Finds a function.
pub(super) fn find(name: &str) -> Option<Definition> {
    Some(match name {
        "period_add" => Definition::new(
            |types| are_numbers(types, 2).then(|| (vec![Long, Long], Integer)),
            |args, _| period_add(args),
        ),
        "period_diff" => Definition::new(
            |types| are_numbers(types, 2).then(|| (vec![Long, Long], Integer)),
            |args, _| {
                let [one, other] = args else { return Ok(Val::Null) };
                let both = months_of(one.int()).zip(months_of(other.int()));
                Ok(both.map_or(Val::Null, |(one, other)| Val::Int(one - other)))
            },
        ),
        "sec_to_time" => Definition::new(
            |types| are_numbers(types, 1).then(|| (vec![Double], Time)),
            |args, _| {
                let micros = first(args).float() * 1e6;
                Ok(match micros.is_finite() {
                    true => Val::Time((micros.round() as i64).rem_euclid(DAY)),
                    false => Val::Null,
                })
            },
        ),
        "time_to_sec" => Definition::new(to_long, |args, context| {
            Ok(Val::Int(at_time(first(args), context)?.rem_euclid(DAY) / SECOND))
        }),
        "to_days" => Definition::new(to_long, |args, context| {
            Ok(Val::Int(at(first(args), context)?.div_euclid(DAY) + i64::from(DAYS_TO_1970)))
        }),
        "to_seconds" => Definition::new(to_long_or_number, to_seconds),
        "from_days" => Definition::new(
            |types| are_numbers(types, 1).then(|| (vec![Long], Date)),
            |args, _| {
                let days = first(args).int().saturating_sub(i64::from(DAYS_TO_1970));
                let days = i32::try_from(days).ok().filter(|days| (-DAYS_TO_1970..=LAST_DAY).contains(days));
                Ok(days.map_or(Val::Null, Val::Date))
            },
        ),
        "from_unixtime" => Definition::new(from_unixtime_types, |args, _| from_unixtime(args)),
        "unix_timestamp" => Definition::new(unix_timestamp_types, unix_timestamp),
        _ => return None,
    })
}

fn to_long(types: &[SqlType]) -> Types {
    taken(types, 1, 1..=1, Long)
}

fn to_long_or_number(types: &[SqlType]) -> Types {
    to_long(types).or_else(|| are_numbers(types, 1).then(|| (types.to_vec(), Long)))
}

fn period_add<'a>(args: &[Val<'a>]) -> Answer<'a> {
    let [period, months] = args else { return Ok(Val::Null) };
    let Some(start) = months_of(period.int()) else { return Ok(Val::Null) };
    let moved = start.saturating_add(months.int());
    if !(0..=9_999 * 12 + 11).contains(&moved) {
        return Ok(Val::Null);
    }
    Ok(Val::Int(moved / 12 * 100 + moved % 12 + 1))
}

/// Counts months of `YYYYMM` or `YYMM`.
fn months_of(period: i64) -> Option<i64> {
    let (year, month) = (period / 100, period % 100);
    let year = match year {
        0..=69 => year + 2000,
        70..=99 => year + 1900,
        other => other,
    };
    ((1..=12).contains(&month) && (0..=9_999).contains(&year)).then_some(year * 12 + month - 1)
}

fn to_seconds<'a>(args: &[Val<'a>], context: Context) -> Answer<'a> {
    let at = match first(args) {
        Val::Int(_) | Val::Float(_) => match numbered(first(args).float()) {
            Some(at) => at,
            None => return Ok(Val::Null),
        },
        other => at(other, context)?,
    };
    Ok(Val::Int((at + i64::from(DAYS_TO_1970) * DAY).div_euclid(SECOND)))
}

fn from_unixtime_types(types: &[SqlType]) -> Types {
    match types {
        [one] if one.is_number() || *one == Undefined => Some((vec![Double], TIMESTAMP)),
        [one, format] if (one.is_number() || *one == Undefined) && format.is_string() => {
            Some((vec![Double, Keyword], Keyword))
        }
        _ => None,
    }
}

fn from_unixtime<'a>(args: &[Val<'a>]) -> Answer<'a> {
    let seconds = first(args).float();
    if !(0.0..=LAST_UNIX_SECOND as f64).contains(&seconds.floor()) {
        return Ok(Val::Null);
    }
    let at = (seconds * 1e6).round() as i64;
    Ok(match args.get(1) {
        None => Val::Timestamp(time::nanos_of(at)),
        Some(format) => Val::str(time::formatted(time::civil(at), format.text())),
    })
}

fn unix_timestamp_types(types: &[SqlType]) -> Types {
    match types {
        [] => Some((Vec::new(), Double)),
        [one] if one.is_number() => Some((vec![Double], Double)),
        [one] if one.is_temporal() || one.is_string() || *one == Undefined => Some((vec![*one], Double)),
        _ => None,
    }
}

fn unix_timestamp<'a>(args: &[Val<'a>], context: Context) -> Answer<'a> {
    let at = match args.first() {
        None => Some(context.now.div_euclid(SECOND) * SECOND),
        Some(Val::Int(_) | Val::Float(_)) => numbered(first(args).float()),
        Some(other) => Some(at(other, context)?),
    };
    Ok(match at {
        None => Val::Null,
        // Before 1970 and after 3001 there is none.
        Some(at) if !(0..=LAST_UNIX_SECOND * SECOND).contains(&at) => Val::Float(0.0),
        Some(at) => Val::Float(at as f64 / 1e6),
    })
}

/// Reads a moment written as a number, `YYMMDD[hhmmss]` or `YYYYMMDD[hhmmss]`.
fn numbered(number: f64) -> Option<i64> {
    if !(1.0..1e15).contains(&number) {
        return None;
    }
    let whole = number.trunc() as i64;
    let (date, time) = if whole >= 100_000_000 { (whole / 1_000_000, whole % 1_000_000) } else { (whole, 0) };
    let date = match date {
        date if date >= 10_000_000 => date,
        date if date >= 700_000 => date + 19_000_000,
        date => date + 20_000_000,
    };
    let day = NaiveDate::from_ymd_opt(
        i32::try_from(date / 10_000).ok()?,
        u32::try_from(date / 100 % 100).ok()?,
        u32::try_from(date % 100).ok()?,
    )?;
    let (hour, minute, second) = (time / 10_000, time / 100 % 100, time % 100);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let fraction = ((number - number.trunc()) * 1e6).round() as i64;
    Some(i64::from(time::days(day)?) * DAY + (hour * 3_600 + minute * 60 + second) * SECOND + fraction)
}
