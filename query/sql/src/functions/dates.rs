//! Functions of dates, times and timestamps. Where a string stands for a moment it is read as one; what is
//! none is refused, except by the functions that answer null for it.

use chrono::{Datelike, NaiveDate, Timelike};

use super::row::{Context, Val};
use super::time::{self, DAY, SECOND, Span};
use super::{Definition, unread};
use crate::types::SqlType::{self, Date, Double, Integer, Interval, Keyword, Long, Time, Undefined};
use crate::types::TIMESTAMP;

type Types = Option<(Vec<SqlType>, SqlType)>;
type Answer<'a> = Result<Val<'a>, String>;

fn moment(ty: SqlType) -> bool {
    ty.is_temporal() || ty.is_string() || ty == Undefined
}

/// Arguments as they are, if there are so many and the first are moments.
fn taken(types: &[SqlType], moments: usize, count: std::ops::RangeInclusive<usize>, ty: SqlType) -> Types {
    let fits = count.contains(&types.len()) && types.iter().take(moments).all(|ty| moment(*ty));
    fits.then(|| (types.to_vec(), ty))
}

fn part(types: &[SqlType]) -> Types {
    taken(types, 1, 1..=1, Integer)
}

fn name_of(types: &[SqlType]) -> Types {
    taken(types, 1, 1..=1, Keyword)
}

fn to_long(types: &[SqlType]) -> Types {
    taken(types, 1, 1..=1, Long)
}

fn week_types(types: &[SqlType]) -> Types {
    taken(types, 1, 1..=2, Integer)
}

fn nothing(types: &[SqlType], ty: SqlType) -> Types {
    (types.len() <= 1).then(|| (types.to_vec(), ty))
}

/// Reads a moment, in microseconds since 1970; a time is one of today.
fn at(value: &Val<'_>, context: Context) -> Result<i64, String> {
    Ok(match value {
        Val::Timestamp(at) => *at,
        Val::Date(days) => i64::from(*days) * DAY,
        Val::Time(time) => today(context) * DAY + time,
        Val::Str(text) => match time::timestamp(text) {
            Some(at) => at,
            None => return Err(unread("timestamp", text, "yyyy-MM-dd HH:mm:ss[.SSSSSSSSS]")),
        },
        _ => return Err("the value is no date, time or timestamp".to_owned()),
    })
}

/// Reads a moment or a time of day.
fn at_time(value: &Val<'_>, context: Context) -> Result<i64, String> {
    match value {
        Val::Str(text) => match time::timestamp(text).or_else(|| time::time(text)) {
            Some(at) => Ok(at),
            None => Err(unread("time", text, "HH:mm:ss[.SSSSSSSSS]")),
        },
        Val::Time(time) => Ok(*time),
        other => at(other, context),
    }
}

fn today(context: Context) -> i64 {
    context.now.div_euclid(DAY)
}

fn date_at(value: &Val<'_>, context: Context) -> Result<NaiveDate, String> {
    let days = at(value, context)?.div_euclid(DAY);
    Ok(time::calendar(i32::try_from(days).unwrap_or(0)))
}

fn first<'v, 'a>(args: &'v [Val<'a>]) -> &'v Val<'a> {
    args.first().unwrap_or(&Val::Null)
}

macro_rules! date_part {
    ($of:expr) => {
        Definition::new(part, |args, context| {
            let date = date_at(first(args), context)?;
            let number: i64 = $of(date);
            Ok(Val::Int(number))
        })
    };
}

macro_rules! time_part {
    ($of:expr) => {
        Definition::new(part, |args, context| {
            let time = at_time(first(args), context)?.rem_euclid(DAY);
            let number: i64 = $of(time);
            Ok(Val::Int(number))
        })
    };
}

/// Finds a function.
pub(super) fn find(name: &str) -> Option<Definition> {
    Some(match name {
        "year" => date_part!(|date: NaiveDate| i64::from(date.year())),
        "quarter" => date_part!(|date: NaiveDate| i64::from(date.month0() / 3 + 1)),
        "month" | "month_of_year" => date_part!(|date: NaiveDate| i64::from(date.month())),
        "day" | "dayofmonth" | "day_of_month" => date_part!(|date: NaiveDate| i64::from(date.day())),
        "dayofweek" | "day_of_week" => {
            date_part!(|date: NaiveDate| i64::from(date.weekday().num_days_from_sunday() + 1))
        }
        "weekday" => date_part!(|date: NaiveDate| i64::from(date.weekday().num_days_from_monday())),
        "dayofyear" | "day_of_year" => date_part!(|date: NaiveDate| i64::from(date.ordinal())),
        "week" | "week_of_year" | "weekofyear" => Definition::new(week_types, |args, context| {
            let mode = args.get(1).map_or(0, Val::int);
            if !(0..=7).contains(&mode) {
                return Err(format!("mode:{mode} is invalid, please use mode value between 0-7"));
            }
            Ok(Val::Int(time::week(date_at(first(args), context)?, mode)))
        }),
        "yearweek" => Definition::new(week_types, |args, context| {
            let mode = args.get(1).map_or(0, Val::int);
            let (year, week) = time::yearweek(date_at(first(args), context)?, mode | 2);
            Ok(Val::Int(i64::from(year) * 100 + week))
        }),
        "hour" | "hour_of_day" => time_part!(|time| time / (3_600 * SECOND)),
        "minute" | "minute_of_hour" => time_part!(|time| time / (60 * SECOND) % 60),
        "minute_of_day" => time_part!(|time| time / (60 * SECOND)),
        "second" | "second_of_minute" => time_part!(|time| time / SECOND % 60),
        "microsecond" => time_part!(|time| time % SECOND),
        "dayname" => Definition::new(name_of, |args, context| {
            Ok(Val::str(date_at(first(args), context)?.format("%A").to_string()))
        }),
        "monthname" => Definition::new(name_of, |args, context| {
            Ok(Val::str(date_at(first(args), context)?.format("%B").to_string()))
        }),
        "extract" => Definition::new(|types| taken(types, 2, 2..=2, Long), extract),
        "date" => Definition::new(
            |types| taken(types, 1, 1..=1, Date),
            |args, context| {
                if let Val::Str(text) = first(args) {
                    return time::date(text).map(Val::Date).ok_or_else(|| unread("date", text, "yyyy-MM-dd"));
                }
                Ok(date_of(at(first(args), context)?))
            },
        ),
        "time" => Definition::new(
            |types| taken(types, 1, 1..=1, Time),
            |args, context| Ok(Val::Time(at_time(first(args), context)?.rem_euclid(DAY))),
        ),
        "timestamp" => Definition::new(
            |types| taken(types, 2, 1..=2, TIMESTAMP),
            |args, context| {
                let start = at(first(args), context)?;
                match args.get(1) {
                    None => Ok(Val::Timestamp(start)),
                    Some(more) => Ok(moved(start.checked_add(at_time(more, context)?.rem_euclid(DAY)))),
                }
            },
        ),
        "datetime" => Definition::new(|types| taken(types, 1, 1..=2, TIMESTAMP), datetime),
        "convert_tz" => Definition::new(
            |types| taken(types, 3, 3..=3, TIMESTAMP),
            |args, context| {
                let [value, from, to] = args else { return Ok(Val::Null) };
                let at = match value {
                    Val::Str(text) => time::timestamp(text),
                    other => at(other, context).ok(),
                };
                let moved = at.zip(time::zone(from.text()).zip(time::zone(to.text())));
                Ok(moved
                    .and_then(|(at, (from, to))| to.local(from.utc(at)?))
                    .map_or(Val::Null, Val::Timestamp))
            },
        ),
        "now" | "current_timestamp" | "localtimestamp" | "localtime" | "sysdate" | "utc_timestamp" => {
            Definition::new(
                |types| nothing(types, TIMESTAMP),
                |_, context| Ok(Val::Timestamp(context.now.div_euclid(SECOND) * SECOND)),
            )
        }
        "curdate" | "current_date" | "utc_date" => {
            Definition::new(|types| nothing(types, Date), |_, context| Ok(date_of(context.now)))
        }
        "curtime" | "current_time" | "utc_time" => Definition::new(
            |types| nothing(types, Time),
            |_, context| Ok(Val::Time(context.now.rem_euclid(DAY) / SECOND * SECOND)),
        ),
        "date_add" => Definition::new(shift_types, |args, context| shift(args, context, 1)),
        "date_sub" => Definition::new(shift_types, |args, context| shift(args, context, -1)),
        "adddate" => Definition::new(days_types, |args, context| shift(args, context, 1)),
        "subdate" => Definition::new(days_types, |args, context| shift(args, context, -1)),
        "addtime" => Definition::new(addtime_types, |args, context| addtime(args, context, 1)),
        "subtime" => Definition::new(addtime_types, |args, context| addtime(args, context, -1)),
        "datediff" => Definition::new(
            |types| taken(types, 2, 2..=2, Long),
            |args, context| {
                let [one, other] = args else { return Ok(Val::Null) };
                Ok(Val::Int(at(one, context)?.div_euclid(DAY) - at(other, context)?.div_euclid(DAY)))
            },
        ),
        "timediff" => Definition::new(
            |types| taken(types, 2, 2..=2, Time),
            |args, context| {
                let [one, other] = args else { return Ok(Val::Null) };
                let difference = at_time(one, context)? - at_time(other, context)?;
                Ok(Val::Time(difference.rem_euclid(DAY)))
            },
        ),
        "timestampadd" => Definition::new(
            |types| match types {
                [_, count, value] if (count.is_number() || *count == Undefined) && moment(*value) => {
                    Some((types.to_vec(), TIMESTAMP))
                }
                _ => None,
            },
            |args, context| {
                let [unit, count, value] = args else { return Ok(Val::Null) };
                let span = time::interval(count.int(), unit.text())
                    .ok_or_else(|| format!("[{}] is no unit of an interval", unit.text()))?;
                Ok(moved(time::shifted(at(value, context)?, span, 1)))
            },
        ),
        "timestampdiff" => Definition::new(|types| taken(types, 3, 3..=3, Long), timestampdiff),
        "date_format" | "time_format" => Definition::new(
            |types| taken(types, 2, 2..=2, Keyword),
            |args, context| {
                let [value, format] = args else { return Ok(Val::Null) };
                if format.text().len() > 1_024 {
                    return Err("a date format is longer than 1024 bytes".to_owned());
                }
                let at = match value {
                    Val::Time(_) => at(value, context)?,
                    Val::Str(text) => match time::timestamp(text) {
                        Some(at) => at,
                        None => today(context) * DAY + at_time(value, context)?,
                    },
                    other => at(other, context)?,
                };
                Ok(Val::str(time::formatted(time::civil(at), format.text())))
            },
        ),
        "str_to_date" => Definition::new(
            |types| taken(types, 2, 2..=2, TIMESTAMP),
            |args, _| {
                let [text, format] = args else { return Ok(Val::Null) };
                Ok(time::parsed(text.text(), format.text()).map_or(Val::Null, Val::Timestamp))
            },
        ),
        "get_format" => Definition::new(|types| taken(types, 2, 2..=2, Keyword), get_format),
        "last_day" => Definition::new(
            |types| taken(types, 1, 1..=1, Date),
            |args, context| {
                let date = date_at(first(args), context)?;
                let next = date.with_day(1).and_then(|date| date.checked_add_months(chrono::Months::new(1)));
                Ok(next.and_then(|next| time::days(next.pred_opt()?)).map_or(Val::Null, Val::Date))
            },
        ),
        "makedate" => Definition::new(
            |types| numbers(types, 2).then(|| (vec![Double, Double], Date)),
            |args, _| {
                let [year, day] = args else { return Ok(Val::Null) };
                let (year, day) = (year.float().round(), day.float().round());
                if year < 0.0 || day <= 0.0 || year > 9999.0 || day > 4_000_000.0 {
                    return Ok(Val::Null);
                }
                // A year 0 is 2000.
                let year = if year == 0.0 { 2000 } else { year as i32 };
                let start = NaiveDate::from_yo_opt(year, 1).and_then(time::days);
                let days = start.and_then(|start| start.checked_add(day as i32 - 1));
                Ok(days.filter(|days| *days <= 2_932_896).map_or(Val::Null, Val::Date))
            },
        ),
        "maketime" => Definition::new(
            |types| numbers(types, 3).then(|| (vec![Double, Double, Double], Time)),
            |args, _| {
                let [hour, minute, second] = args else { return Ok(Val::Null) };
                let (hour, minute, second) = (hour.float().round(), minute.float().round(), second.float());
                let fits = (0.0..24.0).contains(&hour)
                    && (0.0..60.0).contains(&minute)
                    && (0.0..60.0).contains(&second);
                let micros = ((hour * 3_600.0 + minute * 60.0 + second) * 1e6).round() as i64;
                Ok(if fits { Val::Time(micros) } else { Val::Null })
            },
        ),
        "period_add" => Definition::new(
            |types| numbers(types, 2).then(|| (vec![Long, Long], Integer)),
            |args, _| {
                let [period, months] = args else { return Ok(Val::Null) };
                let Some(start) = months_of(period.int()) else { return Ok(Val::Null) };
                let moved = start.saturating_add(months.int());
                if !(0..=9_999 * 12 + 11).contains(&moved) {
                    return Ok(Val::Null);
                }
                Ok(Val::Int(moved / 12 * 100 + moved % 12 + 1))
            },
        ),
        "period_diff" => Definition::new(
            |types| numbers(types, 2).then(|| (vec![Long, Long], Integer)),
            |args, _| {
                let [one, other] = args else { return Ok(Val::Null) };
                let both = months_of(one.int()).zip(months_of(other.int()));
                Ok(both.map_or(Val::Null, |(one, other)| Val::Int(one - other)))
            },
        ),
        "sec_to_time" => Definition::new(
            |types| numbers(types, 1).then(|| (vec![Double], Time)),
            |args, _| {
                let micros = first(args).float() * 1e6;
                Ok(if micros.is_finite() {
                    Val::Time((micros.round() as i64).rem_euclid(DAY))
                } else {
                    Val::Null
                })
            },
        ),
        "time_to_sec" => Definition::new(to_long, |args, context| {
            Ok(Val::Int(at_time(first(args), context)?.rem_euclid(DAY) / SECOND))
        }),
        // Days since the year 0.
        "to_days" => Definition::new(to_long, |args, context| {
            Ok(Val::Int(at(first(args), context)?.div_euclid(DAY) + 719_528))
        }),
        "to_seconds" => Definition::new(to_long_or_number, |args, context| {
            let at = match first(args) {
                Val::Int(_) | Val::Float(_) => match numbered(first(args).float()) {
                    Some(at) => at,
                    None => return Ok(Val::Null),
                },
                other => at(other, context)?,
            };
            Ok(Val::Int((at + 719_528 * DAY).div_euclid(SECOND)))
        }),
        "from_days" => Definition::new(
            |types| numbers(types, 1).then(|| (vec![Long], Date)),
            |args, _| {
                let days = first(args).int().saturating_sub(719_528);
                let days = i32::try_from(days).ok().filter(|days| (-719_528..=2_932_896).contains(days));
                Ok(days.map_or(Val::Null, Val::Date))
            },
        ),
        "from_unixtime" => Definition::new(
            |types| match types {
                [one] if one.is_number() || *one == Undefined => Some((vec![Double], TIMESTAMP)),
                [one, format] if (one.is_number() || *one == Undefined) && format.is_string() => {
                    Some((vec![Double, Keyword], Keyword))
                }
                _ => None,
            },
            |args, _| {
                let seconds = first(args).float();
                if !(0.0..=32_536_771_199.0).contains(&seconds.floor()) {
                    return Ok(Val::Null);
                }
                let at = (seconds * 1e6).round() as i64;
                Ok(match args.get(1) {
                    None => Val::Timestamp(at),
                    Some(format) => Val::str(time::formatted(time::civil(at), format.text())),
                })
            },
        ),
        "unix_timestamp" => Definition::new(
            |types| match types {
                [] => Some((Vec::new(), Double)),
                [one] if one.is_number() => Some((vec![Double], Double)),
                [one] if one.is_temporal() || one.is_string() || *one == Undefined => {
                    Some((vec![*one], Double))
                }
                _ => None,
            },
            |args, context| {
                let at = match args.first() {
                    None => Some(context.now.div_euclid(SECOND) * SECOND),
                    Some(Val::Int(_) | Val::Float(_)) => numbered(first(args).float()),
                    Some(other) => Some(at(other, context)?),
                };
                Ok(match at {
                    None => Val::Null,
                    // Before 1970 and after 3001 there is none.
                    Some(at) if !(0..=32_536_771_199 * SECOND).contains(&at) => Val::Float(0.0),
                    Some(at) => Val::Float(at as f64 / 1e6),
                })
            },
        ),
        _ => return None,
    })
}

fn numbers(types: &[SqlType], count: usize) -> bool {
    types.len() == count && types.iter().all(|ty| ty.is_number() || *ty == Undefined)
}

fn to_long_or_number(types: &[SqlType]) -> Types {
    to_long(types).or_else(|| numbers(types, 1).then(|| (types.to_vec(), Long)))
}

fn date_of<'a>(at: i64) -> Val<'a> {
    i32::try_from(at.div_euclid(DAY)).map_or(Val::Null, Val::Date)
}

fn moved<'a>(at: Option<i64>) -> Val<'a> {
    at.map_or(Val::Null, Val::Timestamp)
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

fn shift_types(types: &[SqlType]) -> Types {
    match types {
        [value, Interval] if moment(*value) => Some((types.to_vec(), TIMESTAMP)),
        _ => None,
    }
}

/// ADDDATE takes days too; a date stays one then.
fn days_types(types: &[SqlType]) -> Types {
    shift_types(types).or(match types {
        [value, days] if moment(*value) && (days.is_integer() || *days == Undefined) => {
            let ty = if *value == Date { Date } else { TIMESTAMP };
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
    let moved = time::shifted(at(value, context)?, span, times);
    Ok(match (context.ty, moved) {
        (_, None) => Val::Null,
        (Date, Some(at)) => date_of(at),
        (_, Some(at)) => Val::Timestamp(at),
    })
}

fn addtime_types(types: &[SqlType]) -> Types {
    match types {
        [one, other] if moment(*one) && moment(*other) => {
            Some((types.to_vec(), if *one == Time { Time } else { TIMESTAMP }))
        }
        _ => None,
    }
}

fn addtime<'a>(args: &[Val<'a>], context: Context, sign: i64) -> Answer<'a> {
    let [one, other] = args else { return Ok(Val::Null) };
    let by = at_time(other, context)?.rem_euclid(DAY) * sign;
    Ok(match context.ty {
        Time => Val::Time((at_time(one, context)? + by).rem_euclid(DAY)),
        _ => moved(at(one, context)?.checked_add(by)),
    })
}

fn datetime<'a>(args: &[Val<'a>], context: Context) -> Answer<'a> {
    let text = match first(args) {
        Val::Str(text) => text.as_ref(),
        other => return Ok(Val::Timestamp(at(other, context)?)),
    };
    // A zone may stand behind the time.
    let zoned = text.char_indices().skip(11).find(|(_, letter)| matches!(letter, '+' | '-'));
    let (local, own) = match zoned.and_then(|(at, _)| text.split_at_checked(at)) {
        Some((local, zone)) => (local, Some(zone)),
        None => (text, None),
    };
    let Some(local) = time::timestamp(local) else { return Ok(Val::Null) };
    let own = match own.map(time::zone) {
        Some(None) => return Ok(Val::Null),
        Some(zone) => zone,
        None => None,
    };
    let Some(to) = args.get(1) else { return Ok(Val::Timestamp(local)) };
    let Some(to) = time::zone(to.text()) else { return Ok(Val::Null) };
    let utc = own.map_or(Some(local), |zone| zone.utc(local));
    Ok(moved(utc.and_then(|utc| to.local(utc))))
}

fn extract<'a>(args: &[Val<'a>], context: Context) -> Answer<'a> {
    let [unit, value] = args else { return Ok(Val::Null) };
    let moment = match value {
        Val::Str(text) => match time::timestamp(text) {
            Some(at) => at,
            None => today(context) * DAY + at_time(value, context)?,
        },
        other => at(other, context)?,
    };
    let at = time::civil(moment);
    let (year, month, day) = (i64::from(at.year()), i64::from(at.month()), i64::from(at.day()));
    let (hour, minute, second) = (i64::from(at.hour()), i64::from(at.minute()), i64::from(at.second()));
    let micros = i64::from(at.nanosecond() / 1_000);
    Ok(Val::Int(match unit.text().to_ascii_uppercase().as_str() {
        "MICROSECOND" => micros,
        "SECOND" => second,
        "MINUTE" => minute,
        "HOUR" => hour,
        "DAY" => day,
        "WEEK" => time::week(at.date(), 0),
        "MONTH" => month,
        "QUARTER" => (month - 1) / 3 + 1,
        "YEAR" => year,
        "SECOND_MICROSECOND" => second * SECOND + micros,
        "MINUTE_MICROSECOND" => (minute * 100 + second) * SECOND + micros,
        "MINUTE_SECOND" => minute * 100 + second,
        "HOUR_MICROSECOND" => (hour * 10_000 + minute * 100 + second) * SECOND + micros,
        "HOUR_SECOND" => hour * 10_000 + minute * 100 + second,
        "HOUR_MINUTE" => hour * 100 + minute,
        "DAY_MICROSECOND" => ((day * 100 + hour) * 10_000 + minute * 100 + second) * SECOND + micros,
        "DAY_SECOND" => (day * 100 + hour) * 10_000 + minute * 100 + second,
        "DAY_MINUTE" => (day * 100 + hour) * 100 + minute,
        "DAY_HOUR" => day * 100 + hour,
        "YEAR_MONTH" => year * 100 + month,
        other => return Err(format!("[{other}] is no part of a date or time")),
    }))
}

fn timestampdiff<'a>(args: &[Val<'a>], context: Context) -> Answer<'a> {
    let [unit, from, to] = args else { return Ok(Val::Null) };
    let read = |value: &Val<'a>| match value {
        Val::Str(text) if time::timestamp(text).is_none() => {
            at_time(value, context).map(|time| today(context) * DAY + time)
        }
        other => at(other, context),
    };
    let (from, to) = (read(from)?, read(to)?);
    let months = || {
        let (one, other) = (time::civil(from), time::civil(to));
        let whole =
            i64::from(other.year() - one.year()) * 12 + i64::from(other.month()) - i64::from(one.month());
        let rest = |at: chrono::NaiveDateTime| (at.day(), at.time());
        match whole {
            more if more > 0 && rest(other) < rest(one) => more - 1,
            less if less < 0 && rest(other) > rest(one) => less + 1,
            same => same,
        }
    };
    let micros = to - from;
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

fn get_format<'a>(args: &[Val<'a>], _: Context) -> Answer<'a> {
    let [kind, place] = args else { return Ok(Val::Null) };
    let kind = kind.text().to_ascii_lowercase();
    let format = match (kind.as_str(), place.text().to_ascii_lowercase().as_str()) {
        ("date", "usa") => "%m.%d.%Y",
        ("date", "jis" | "iso") => "%Y-%m-%d",
        ("date", "eur") => "%d.%m.%Y",
        ("date", "internal") => "%Y%m%d",
        ("datetime" | "timestamp", "usa" | "eur") => "%Y-%m-%d %H.%i.%s",
        ("datetime" | "timestamp", "jis" | "iso") => "%Y-%m-%d %H:%i:%s",
        ("datetime" | "timestamp", "internal") => "%Y%m%d%H%i%s",
        ("time", "usa") => "%h:%i:%s %p",
        ("time", "jis" | "iso") => "%H:%i:%s",
        ("time", "eur") => "%H.%i.%s",
        ("time", "internal") => "%H%i%s",
        _ => return Ok(Val::Null),
    };
    Ok(Val::str(format))
}
