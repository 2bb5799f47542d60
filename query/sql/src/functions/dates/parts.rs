//! Parts of dates and times: numbers, and the names of days and months.

use chrono::{Datelike, NaiveDate, Timelike};

use super::super::Definition;
use super::super::primitive_kernels;
use super::super::row::{Context, Val};
use super::super::time::{self, DAY, SECOND};
use super::{Answer, Types, at_or_today, at_time, date_at, first, taken};
use crate::types::SqlType::{self, Integer, Keyword, Long};

fn part(types: &[SqlType]) -> Types {
    taken(types, 1, 1..=1, Integer)
}

fn name_of(types: &[SqlType]) -> Types {
    taken(types, 1, 1..=1, Keyword)
}

fn week_types(types: &[SqlType]) -> Types {
    taken(types, 1, 1..=2, Integer)
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
        "week" | "week_of_year" | "weekofyear" => Definition::new(week_types, week),
        "yearweek" => Definition::new(week_types, yearweek),
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
        "extract" => Definition::new(|types| taken(types, 2, 2..=2, Long), extract)
            .with_kernel(primitive_kernels::extract),
        _ => return None,
    })
}

fn week<'a>(args: &[Val<'a>], context: Context) -> Answer<'a> {
    let mode = args.get(1).map_or(0, Val::int);
    if !(0..=7).contains(&mode) {
        return Err(format!("mode:{mode} is invalid, please use mode value between 0-7"));
    }
    Ok(Val::Int(time::week(date_at(first(args), context)?, mode)))
}

fn yearweek<'a>(args: &[Val<'a>], context: Context) -> Answer<'a> {
    let mode = args.get(1).map_or(0, Val::int);
    let (year, week) = time::yearweek(date_at(first(args), context)?, mode | 2);
    Ok(Val::Int(i64::from(year) * 100 + week))
}

fn extract<'a>(args: &[Val<'a>], context: Context) -> Answer<'a> {
    let [unit, value] = args else { return Ok(Val::Null) };
    let at = time::civil(at_or_today(value, context)?);
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
