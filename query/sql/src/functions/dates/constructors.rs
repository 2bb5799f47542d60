//! Constructors of dates, times and timestamps: from other moments, from their parts, from the clock.

use chrono::{Datelike, Months, NaiveDate};

use super::super::row::{Context, Val};
use super::super::time::{self, DAY, SECOND};
use super::super::{Definition, unread};
use super::{
    Answer, LAST_DAY, Types, are_numbers, at, at_time, date_at, date_of, first, instant, instant_or_time,
    moved, taken, taken_to_timestamp, timestamp_or_null,
};
use crate::types::SqlType::{self, Date, Double, Time};
use crate::types::TIMESTAMP;

fn nothing(types: &[SqlType], ty: SqlType) -> Types {
    (types.len() <= 1).then(|| (types.to_vec(), ty))
}

/// Finds a function.
pub(super) fn find(name: &str) -> Option<Definition> {
    Some(match name {
        "date" => Definition::new(|types| taken(types, 1, 1..=1, Date), date),
        "time" => Definition::new(
            |types| taken(types, 1, 1..=1, Time),
            |args, context| Ok(Val::Time(at_time(first(args), context)?.rem_euclid(DAY))),
        ),
        "timestamp" => Definition::new(|types| taken_to_timestamp(types, 2, 1..=2), timestamp),
        "datetime" => Definition::new(|types| taken_to_timestamp(types, 1, 1..=2), datetime),
        "convert_tz" => Definition::new(|types| taken_to_timestamp(types, 3, 3..=3), convert_tz),
        "now" | "current_timestamp" | "localtimestamp" | "localtime" | "sysdate" | "utc_timestamp" => {
            Definition::new(
                |types| nothing(types, TIMESTAMP),
                |_, context| Ok(Val::Timestamp(time::nanos_of(context.now.div_euclid(SECOND) * SECOND))),
            )
        }
        "curdate" | "current_date" | "utc_date" => {
            Definition::new(|types| nothing(types, Date), |_, context| Ok(date_of(context.now)))
        }
        "curtime" | "current_time" | "utc_time" => Definition::new(
            |types| nothing(types, Time),
            |_, context| Ok(Val::Time(context.now.rem_euclid(DAY) / SECOND * SECOND)),
        ),
        "last_day" => Definition::new(|types| taken(types, 1, 1..=1, Date), last_day),
        "makedate" => Definition::new(
            |types| are_numbers(types, 2).then(|| (vec![Double, Double], Date)),
            |args, _| makedate(args),
        ),
        "maketime" => Definition::new(
            |types| are_numbers(types, 3).then(|| (vec![Double, Double, Double], Time)),
            |args, _| maketime(args),
        ),
        _ => return None,
    })
}

fn date<'a>(args: &[Val<'a>], context: Context) -> Answer<'a> {
    match first(args) {
        Val::Str(text) => time::date(text).map(Val::Date).ok_or_else(|| unread("date", text, "yyyy-MM-dd")),
        other => Ok(date_of(at(other, context)?)),
    }
}

fn timestamp<'a>(args: &[Val<'a>], context: Context) -> Answer<'a> {
    let start = instant(first(args), context)?;
    Ok(Val::Timestamp(match args.get(1) {
        None => start,
        Some(more) => start + instant_or_time(more, context)?.rem_euclid(time::nanos_of(DAY)),
    }))
}

fn datetime<'a>(args: &[Val<'a>], context: Context) -> Answer<'a> {
    let text = match first(args) {
        Val::Str(text) => text.as_ref(),
        other => return Ok(Val::Timestamp(instant(other, context)?)),
    };
    // A zone may stand behind the time.
    let zoned = text.char_indices().skip(11).find(|(_, letter)| matches!(letter, '+' | '-'));
    let (local, own) = match zoned.and_then(|(at, _)| text.split_at_checked(at)) {
        Some((local, zone)) => (local, Some(zone)),
        None => (text, None),
    };
    let Some(local) = time::instant(local) else { return Ok(Val::Null) };
    let own = match own.map(time::zone) {
        Some(None) => return Ok(Val::Null),
        Some(zone) => zone,
        None => None,
    };
    let Some(to) = args.get(1) else { return Ok(Val::Timestamp(local)) };
    let Some(to) = time::zone(to.text()) else { return Ok(Val::Null) };
    let shown = moved(local, |local| to.local(own.map_or(Some(local), |zone| zone.utc(local))?));
    Ok(timestamp_or_null(shown))
}

fn convert_tz<'a>(args: &[Val<'a>], context: Context) -> Answer<'a> {
    let [value, from, to] = args else { return Ok(Val::Null) };
    let at = match value {
        Val::Str(text) => time::instant(text),
        other => instant(other, context).ok(),
    };
    let known = at.zip(time::zone(from.text()).zip(time::zone(to.text())));
    let shown = known.and_then(|(at, (from, to))| moved(at, |local| to.local(from.utc(local)?)));
    Ok(timestamp_or_null(shown))
}

fn last_day<'a>(args: &[Val<'a>], context: Context) -> Answer<'a> {
    let date = date_at(first(args), context)?;
    let next = date.with_day(1).and_then(|date| date.checked_add_months(Months::new(1)));
    Ok(next.and_then(|next| time::days(next.pred_opt()?)).map_or(Val::Null, Val::Date))
}

fn makedate<'a>(args: &[Val<'a>]) -> Answer<'a> {
    let [year, day] = args else { return Ok(Val::Null) };
    let (year, day) = (year.float().round(), day.float().round());
    if year < 0.0 || day <= 0.0 || year > 9999.0 || day > 4_000_000.0 {
        return Ok(Val::Null);
    }
    // A year 0 is 2000.
    let year = if year == 0.0 { 2000 } else { year as i32 };
    let start = NaiveDate::from_yo_opt(year, 1).and_then(time::days);
    let days = start.and_then(|start| start.checked_add(day as i32 - 1));
    Ok(days.filter(|days| *days <= LAST_DAY).map_or(Val::Null, Val::Date))
}

fn maketime<'a>(args: &[Val<'a>]) -> Answer<'a> {
    let [hour, minute, second] = args else { return Ok(Val::Null) };
    let (hour, minute, second) = (hour.float().round(), minute.float().round(), second.float());
    let fits = (0.0..24.0).contains(&hour) && (0.0..60.0).contains(&minute) && (0.0..60.0).contains(&second);
    let micros = ((hour * 3_600.0 + minute * 60.0 + second) * 1e6).round() as i64;
    Ok(if fits { Val::Time(micros) } else { Val::Null })
}
