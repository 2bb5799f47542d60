//! Arithmetic of moments: additions to them, and the difference of two.

use chrono::{Datelike, NaiveDateTime};

use super::super::Definition;
use super::super::row::{Context, Val};
use super::super::time::{self, DAY, MICRO, SECOND, Span};
use super::{
    Answer, Types, at, date_of, instant, instant_or_time, instant_or_today, moment, moved, taken,
    timestamp_of, timestamp_or_null,
};
use crate::types::SqlType::{self, Date, Interval, Long, Time, Undefined};

/// Finds a function.
pub(super) fn find(name: &str) -> Option<Definition> {
    Some(match name {
        "date_add" => Definition::new(shift_types, |args, context| shift(args, context, 1)),
        "date_sub" => Definition::new(shift_types, |args, context| shift(args, context, -1)),
        "adddate" => Definition::new(days_types, |args, context| shift(args, context, 1)),
        "subdate" => Definition::new(days_types, |args, context| shift(args, context, -1)),
        "addtime" => Definition::new(addtime_types, |args, context| addtime(args, context, 1)),
        "subtime" => Definition::new(addtime_types, |args, context| addtime(args, context, -1)),
        "datediff" => Definition::new(|types| taken(types, 2, 2..=2, Long), datediff),
        "timediff" => Definition::new(|types| taken(types, 2, 2..=2, Time), timediff),
        "timestampadd" => Definition::new(timestampadd_types, timestampadd),
        "timestampdiff" => Definition::new(|types| taken(types, 3, 3..=3, Long), timestampdiff),
        _ => return None,
    })
}

fn shift_types(types: &[SqlType]) -> Types {
    match types {
        [value, Interval] if moment(*value) => Some((types.to_vec(), value.finest())),
        _ => None,
    }
}

/// ADDDATE takes days too; a date stays one then.
fn days_types(types: &[SqlType]) -> Types {
    shift_types(types).or(match types {
        [value, days] if moment(*value) && (days.is_integer() || *days == Undefined) => {
            let ty = if *value == Date { Date } else { value.finest() };
            Some((types.to_vec(), ty))
        }
        _ => None,
    })
}

fn shift<'a>(args: &[Val<'a>], context: Context, times: i32) -> Answer<'a> {
    let [value, by] = args else { return Ok(Val::Null) };
    let span = match by {
        Val::Interval(span) => *span,
        days => match i32::try_from(days.int()) {
            Ok(days) => Span { months: 0, days, nanos: 0 },
            Err(_) => return Ok(Val::Null),
        },
    };
    let shifted = moved(instant(value, context)?, |at| time::shifted(at, span, times));
    Ok(match (context.ty, shifted) {
        (_, None) => Val::Null,
        (Date, Some(at)) => date_of(time::whole_micros(at)),
        (_, Some(at)) => Val::Timestamp(at),
    })
}

fn addtime_types(types: &[SqlType]) -> Types {
    match types {
        [one, other] if moment(*one) && moment(*other) => {
            Some((types.to_vec(), if *one == Time { Time } else { timestamp_of(types) }))
        }
        _ => None,
    }
}

fn addtime<'a>(args: &[Val<'a>], context: Context, sign: i128) -> Answer<'a> {
    let [one, other] = args else { return Ok(Val::Null) };
    let by = instant_or_time(other, context)?.rem_euclid(time::nanos_of(DAY)) * sign;
    Ok(match context.ty {
        Time => Val::Time(time::whole_micros(instant_or_time(one, context)? + by).rem_euclid(DAY)),
        _ => Val::Timestamp(instant(one, context)? + by),
    })
}

fn datediff<'a>(args: &[Val<'a>], context: Context) -> Answer<'a> {
    let [one, other] = args else { return Ok(Val::Null) };
    Ok(Val::Int(at(one, context)?.div_euclid(DAY) - at(other, context)?.div_euclid(DAY)))
}

fn timediff<'a>(args: &[Val<'a>], context: Context) -> Answer<'a> {
    let [one, other] = args else { return Ok(Val::Null) };
    let difference = instant_or_time(one, context)? - instant_or_time(other, context)?;
    Ok(Val::Time(time::whole_micros(difference).rem_euclid(DAY)))
}

fn timestampadd_types(types: &[SqlType]) -> Types {
    match types {
        [_, count, value] if (count.is_number() || *count == Undefined) && moment(*value) => {
            Some((types.to_vec(), value.finest()))
        }
        _ => None,
    }
}

fn timestampadd<'a>(args: &[Val<'a>], context: Context) -> Answer<'a> {
    let [unit, count, value] = args else { return Ok(Val::Null) };
    let span = time::interval(count.int(), unit.text())
        .ok_or_else(|| format!("[{}] is no unit of an interval", unit.text()))?;
    Ok(timestamp_or_null(moved(instant(value, context)?, |at| time::shifted(at, span, 1))))
}

fn timestampdiff<'a>(args: &[Val<'a>], context: Context) -> Answer<'a> {
    let [unit, from, to] = args else { return Ok(Val::Null) };
    let (from, to) = (instant_or_today(from, context)?, instant_or_today(to, context)?);
    let months = || {
        let civil = |at| time::civil(time::whole_micros(at));
        let (one, other) = (civil(from), civil(to));
        let whole =
            i64::from(other.year() - one.year()) * 12 + i64::from(other.month()) - i64::from(one.month());
        let rest = |civil: NaiveDateTime, at: i128| (civil.day(), civil.time(), at.rem_euclid(MICRO));
        match whole {
            more if more > 0 && rest(other, to) < rest(one, from) => more - 1,
            less if less < 0 && rest(other, to) > rest(one, from) => less + 1,
            same => same,
        }
    };
    let micros = i64::try_from((to - from) / MICRO).unwrap_or(i64::MAX);
    Ok(Val::Int(match unit.text().to_ascii_uppercase().as_str() {
        "MICROSECOND" => micros,
        "SECOND" => micros / SECOND,
        "MINUTE" => micros / (60 * SECOND),
        "HOUR" => micros / (3_600 * SECOND),
        "DAY" => micros / DAY,
        "WEEK" => micros / (7 * DAY),
        "MONTH" => months(),
        "QUARTER" => months() / 3,
        "YEAR" => months() / 12,
        other => return Err(format!("[{other}] is no unit of an interval")),
    }))
}
