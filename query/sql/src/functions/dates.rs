//! Functions of dates, times and timestamps. Where a string stands for a moment it is read as one; what is
//! none is refused, except by the functions that answer null for it.
//!
//! [`parts`] takes moments apart, [`constructors`] make them, [`arithmetic`] adds to them and subtracts them, [`numbers`] reads and
//! writes them as numbers, [`formats`] as texts.

mod arithmetic;
mod constructors;
mod formats;
mod numbers;
mod parts;

use std::ops::RangeInclusive;

use chrono::NaiveDate;

use super::row::{Context, Val};
use super::time::{self, DAY, MICRO};
use super::{Definition, unread};
use crate::types::SqlType::{self, Undefined};
use crate::types::{NANOS, TIMESTAMP};

/// The last day, that of the year 9999, in days since 1970.
const LAST_DAY: i32 = 2_932_896;

type Types = Option<(Vec<SqlType>, SqlType)>;
type Answer<'a> = Result<Val<'a>, String>;

/// Finds a function.
pub(super) fn find(name: &str) -> Option<Definition> {
    parts::find(name)
        .or_else(|| constructors::find(name))
        .or_else(|| arithmetic::find(name))
        .or_else(|| numbers::find(name))
        .or_else(|| formats::find(name))
}

fn moment(ty: SqlType) -> bool {
    ty.is_temporal() || ty.is_string() || ty == Undefined
}

/// Arguments as they are, if there are so many and the first are moments.
fn taken(types: &[SqlType], moments: usize, count: RangeInclusive<usize>, ty: SqlType) -> Types {
    let fits = count.contains(&types.len()) && types.iter().take(moments).all(|ty| moment(*ty));
    fits.then(|| (types.to_vec(), ty))
}

/// Returns whether all arguments are numbers, so many.
fn are_numbers(types: &[SqlType], count: usize) -> bool {
    types.len() == count && types.iter().all(|ty| ty.is_number() || *ty == Undefined)
}

/// Reads a moment, in whole microseconds since 1970; a time is one of today.
fn at(value: &Val<'_>, context: Context) -> Result<i64, String> {
    instant(value, context).map(time::whole_micros)
}

/// Reads a moment, in nanoseconds since 1970; a time is one of today.
pub(super) fn instant(value: &Val<'_>, context: Context) -> Result<i128, String> {
    Ok(match value {
        Val::Timestamp(at) => *at,
        Val::Date(days) => time::nanos_of(i64::from(*days) * DAY),
        Val::Time(time) => time::nanos_of(today(context) * DAY + time),
        Val::Str(text) => match time::instant(text) {
            Some(at) => at,
            None => return Err(unread("timestamp", text, "yyyy-MM-dd HH:mm:ss[.SSSSSSSSS]")),
        },
        _ => return Err("the value is no date, time or timestamp".to_owned()),
    })
}

/// Reads a moment or a time of day, in whole microseconds.
fn at_time(value: &Val<'_>, context: Context) -> Result<i64, String> {
    instant_or_time(value, context).map(time::whole_micros)
}

/// Reads a moment or a time of day, in nanoseconds.
fn instant_or_time(value: &Val<'_>, context: Context) -> Result<i128, String> {
    match value {
        Val::Str(text) => match time::instant(text).or_else(|| time::time(text).map(time::nanos_of)) {
            Some(at) => Ok(at),
            None => Err(unread("time", text, "HH:mm:ss[.SSSSSSSSS]")),
        },
        Val::Time(time) => Ok(time::nanos_of(*time)),
        other => instant(other, context),
    }
}

/// Reads a moment, in whole microseconds; a string may be a time of today.
fn at_or_today(value: &Val<'_>, context: Context) -> Result<i64, String> {
    instant_or_today(value, context).map(time::whole_micros)
}

/// Reads a moment, in nanoseconds; a string may be a time of today.
fn instant_or_today(value: &Val<'_>, context: Context) -> Result<i128, String> {
    match value {
        Val::Str(text) => match time::instant(text) {
            Some(at) => Ok(at),
            None => Ok(time::nanos_of(today(context) * DAY) + instant_or_time(value, context)?),
        },
        other => instant(other, context),
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

fn date_of<'a>(at: i64) -> Val<'a> {
    i32::try_from(at.div_euclid(DAY)).map_or(Val::Null, Val::Date)
}

fn timestamp_or_null<'a>(at: Option<i128>) -> Val<'a> {
    at.map_or(Val::Null, Val::Timestamp)
}

/// Moves the whole microseconds of a moment; the digits below them stay.
fn moved(at: i128, by: impl FnOnce(i64) -> Option<i64>) -> Option<i128> {
    Some(time::nanos_of(by(time::whole_micros(at))?) + at.rem_euclid(MICRO))
}

/// The type of a timestamp that is made of moments: it keeps the nanoseconds of any of them.
fn timestamp_of(types: &[SqlType]) -> SqlType {
    types.iter().fold(TIMESTAMP, |ty, other| if ty == NANOS { NANOS } else { other.finest() })
}

/// As [`taken`], for functions that return a timestamp.
fn taken_to_timestamp(types: &[SqlType], moments: usize, count: RangeInclusive<usize>) -> Types {
    taken(types, moments, count, timestamp_of(types))
}
