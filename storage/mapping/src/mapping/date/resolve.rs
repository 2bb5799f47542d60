//! From the fields of a text to an instant.
//!
//! The steps and styles are those of `java.time.format`: a date needs its year, its month and its day, fields that say
//! the same thing must agree, and what is missing then is the first there is. Bounds that are rounded up have the last
//! time of day there is in place of what is missing.

use millrace_time::calendar;

use super::field::{Field, Fields};
use super::{Instant, weeks};

const NANOS_OF_DAY: i64 = 86_400_000_000_000;
const NANOS_OF_SECOND: i64 = 1_000_000_000;
/// 1970-01-01 as a modified Julian day.
const EPOCH_AS_JULIAN_DAY: i64 = 40_587;
/// Furthest year of a date.
const MAX_YEAR: i64 = 999_999_999;

/// Strictness of resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Days must exist; a year of an era without its era is none of the calendar.
    Strict,
    /// Days up to the 31st become the last one of their month.
    Smart,
    /// Months and days beyond their range count on.
    Lenient,
}

/// Resolves fields to an instant, and whether it is local time; `round_up` fills what is missing of the time of day with its
/// last instant.
pub(super) fn resolve(fields: &mut Fields, style: Style, round_up: bool) -> Option<(Instant, bool)> {
    let zone = fields.zone;
    let offset = fields.take(Field::Offset);
    resolve_year(fields, style)?;
    let date = resolve_date(fields, style)?;
    let time = resolve_time(fields, style, round_up)?;
    if let Some(days) = date
        && fields.has_date()
    {
        check_date(fields, days)?;
    }
    if let Some(time) = time {
        check_time(fields, time)?;
    }
    let days = match date {
        Some(days) => days,
        None => partial_date(fields, time.is_some())?,
    };
    let time = time.unwrap_or(if round_up { NANOS_OF_DAY - 1 } else { 0 });
    let local = days.checked_mul(86_400)?.checked_add(time.div_euclid(NANOS_OF_SECOND))?;
    let utc = match (zone, offset) {
        (Some(zone), _) => local - i64::from(zone.local(local).first()),
        (None, Some(offset)) => local - offset,
        (None, None) => local,
    };
    let nanos = time.rem_euclid(NANOS_OF_SECOND);
    let instant = Instant(i128::from(utc) * i128::from(NANOS_OF_SECOND) + i128::from(nanos));
    Some((instant, zone.is_none() && offset.is_none()))
}

fn within(value: i64, least: i64, greatest: i64) -> Option<i64> {
    (least..=greatest).contains(&value).then_some(value)
}

/// Makes a year of a year of an era.
fn resolve_year(fields: &mut Fields, style: Style) -> Option<()> {
    let era = fields.take(Field::Era);
    let Some(year) = fields.take(Field::YearOfEra) else { return Some(()) };
    within(year, 1, MAX_YEAR)?;
    match (era, fields.get(Field::Year)) {
        (Some(0), _) => fields.set(Field::Year, 1 - year),
        (Some(_), _) => fields.set(Field::Year, year),
        (None, Some(proleptic)) => fields.set(Field::Year, if proleptic > 0 { year } else { 1 - year }),
        (None, None) if style == Style::Strict => fields.set(Field::YearOfEra, year),
        (None, None) => fields.set(Field::Year, year),
    }
}

/// Makes a day number of a complete date; `Some(None)` where something of it is missing.
fn resolve_date(fields: &mut Fields, style: Style) -> Option<Option<i64>> {
    if let Some(day) = fields.take(Field::ModifiedJulianDay) {
        let days = within(day, -365_000_000_000, 365_000_000_000)? - EPOCH_AS_JULIAN_DAY;
        return Some(Some(days));
    }
    if let Some(year) = fields.get(Field::Year) {
        within(year, -MAX_YEAR, MAX_YEAR)?;
        if let (Some(month), Some(day)) = (fields.get(Field::Month), fields.take(Field::Day)) {
            fields.take(Field::Month);
            fields.take(Field::Year);
            return day_of_month(year, month, day, style).map(Some);
        }
        if let Some(day) = fields.take(Field::DayOfYear) {
            return day_of_year(year, day).map(Some);
        }
        if let (Some(month), Some(week), Some(weekday)) =
            (fields.get(Field::Month), fields.get(Field::WeekOfMonth), fields.get(Field::Weekday))
        {
            let days = day_of_week_of_month(year, within(month, 1, 12)?, within(week, 0, 6)?, weekday)?;
            return Some(Some(days));
        }
    }
    if let (Some(year), Some(week), Some(weekday)) =
        (fields.get(Field::WeekYear), fields.get(Field::Week), fields.get(Field::Weekday))
    {
        fields.take(Field::Week);
        let last = i64::from(weeks::weeks_in_year(within(year, -MAX_YEAR, MAX_YEAR)?));
        let week = within(week, 1, 53)?.min(last);
        let days = calendar::days_from_iso_week(year, week as u32, within(weekday, 1, 7)? as u32);
        return Some(Some(days));
    }
    Some(None)
}

fn day_of_month(year: i64, month: i64, day: i64, style: Style) -> Option<i64> {
    if style == Style::Lenient {
        let months = month - 1;
        let (year, month) = (year + months.div_euclid(12), months.rem_euclid(12) as u32 + 1);
        within(year, -MAX_YEAR, MAX_YEAR)?;
        return Some(calendar::days_from_civil(year, month, 1) + day - 1);
    }
    let (month, day) = (within(month, 1, 12)? as u32, within(day, 1, 31)? as u32);
    let last = calendar::days_in_month(year, month);
    if day > last && style == Style::Strict {
        return None;
    }
    Some(calendar::days_from_civil(year, month, day.min(last)))
}

fn day_of_year(year: i64, day: i64) -> Option<i64> {
    within(day, 1, if calendar::is_leap(year) { 366 } else { 365 })?;
    Some(calendar::days_from_civil(year, 1, 1) + day - 1)
}

/// Day number of a weekday of a week of a month; the first week of a month has four of its days.
fn day_of_week_of_month(year: i64, month: i64, week: i64, weekday: i64) -> Option<i64> {
    let first = calendar::days_from_civil(year, month as u32, 1);
    let weekday_of_first = i64::from(calendar::iso_weekday(first));
    let week_of_first = i64::from(weekday_of_first <= 4);
    let days = first + (week - week_of_first) * 7 + within(weekday, 1, 7)? - weekday_of_first;
    (i64::from(calendar::civil_from_days(days).1) == month).then_some(days)
}

/// Makes nanoseconds of the day of what there is of a time; `Some(None)` where its hour is missing.
fn resolve_time(fields: &mut Fields, style: Style, round_up: bool) -> Option<Option<i64>> {
    let strict = style == Style::Strict;
    if let Some(hour) = fields.take(Field::ClockHour) {
        fields.set(Field::Hour, within(hour, i64::from(strict), 24)? % 24)?;
    }
    if let Some(hour) = fields.take(Field::ClockHourOfHalfDay) {
        fields.set(Field::HourOfHalfDay, within(hour, i64::from(strict), 12)? % 12)?;
    }
    for (field, greatest) in [(Field::HalfDay, 1), (Field::HourOfHalfDay, 11)] {
        within(fields.get(field).unwrap_or(0), 0, greatest)?;
    }
    if let (Some(half), Some(hour)) = (fields.get(Field::HalfDay), fields.get(Field::HourOfHalfDay)) {
        fields.set(Field::Hour, half * 12 + hour)?;
    }
    if let Some(nanos) = fields.take(Field::NanoOfDay) {
        set_time(fields, within(nanos, 0, NANOS_OF_DAY - 1)?)?;
        fields.set(Field::Nano, nanos % NANOS_OF_SECOND)?;
    }
    if let Some(millis) = fields.take(Field::MilliOfDay) {
        let nanos = within(millis, 0, 86_399_999)? * 1_000_000;
        set_time(fields, nanos)?;
        // A nanosecond beside it says what the millisecond leaves open.
        let rest = fields.take(Field::Nano).unwrap_or(if round_up { 999_999 } else { 0 }) % 1_000_000;
        fields.set(Field::Nano, nanos % NANOS_OF_SECOND + rest)?;
    }
    let [hour, minute, second, nano] =
        [Field::Hour, Field::Minute, Field::Second, Field::Nano].map(|field| fields.get(field));
    let ends_day = style != Style::Strict
        && hour == Some(24)
        && [minute, second, nano].into_iter().all(|part| part.unwrap_or(0) == 0)
        && !(round_up && nano.is_none());
    if !ends_day {
        within(hour.unwrap_or(0), 0, 23)?;
    }
    within(minute.unwrap_or(0), 0, 59)?;
    within(second.unwrap_or(0), 0, 59)?;
    within(nano.unwrap_or(0), 0, NANOS_OF_SECOND - 1)?;
    let fill = |part: Option<i64>, last: i64| part.unwrap_or(if round_up { last } else { 0 });
    let Some(hour) = hour else {
        // Hours of half a day that no half is said of are none.
        return Some(None);
    };
    // Nothing may be missing between the parts that are there.
    let gap =
        (minute.is_none() && (second.is_some() || nano.is_some())) || (second.is_none() && nano.is_some());
    if gap && !round_up {
        return Some(None);
    }
    let seconds = (hour * 60 + fill(minute, 59)) * 60 + fill(second, 59);
    Some(Some(seconds * NANOS_OF_SECOND + fill(nano, NANOS_OF_SECOND - 1)))
}

/// Sets hour, minute and second of nanoseconds of the day.
fn set_time(fields: &mut Fields, nanos_of_day: i64) -> Option<()> {
    let seconds = nanos_of_day / NANOS_OF_SECOND;
    fields.set(Field::Hour, seconds / 3600)?;
    fields.set(Field::Minute, seconds / 60 % 60)?;
    fields.set(Field::Second, seconds % 60)
}

/// Checks the fields that say of a date what others said.
fn check_date(fields: &Fields, days: i64) -> Option<()> {
    let (year, month, day) = calendar::civil_from_days(days);
    let (week_year, week) = calendar::iso_week(days);
    let agrees = |field: Field, value: i64| fields.get(field).is_none_or(|given| given == value);
    let all = agrees(Field::Year, year)
        && agrees(Field::YearOfEra, if year > 0 { year } else { 1 - year })
        && agrees(Field::Quarter, i64::from(month - 1) / 3 + 1)
        && agrees(Field::Month, i64::from(month))
        && agrees(Field::Day, i64::from(day))
        && agrees(Field::DayOfYear, days - calendar::days_from_civil(year, 1, 1) + 1)
        && agrees(Field::WeekYear, week_year)
        && agrees(Field::Week, i64::from(week))
        && agrees(Field::WeekOfMonth, weeks::week_of_month(days))
        && agrees(Field::Weekday, i64::from(calendar::iso_weekday(days)))
        && agrees(Field::AlignedWeekday, i64::from(day - 1) % 7 + 1);
    all.then_some(())
}

/// Checks the fields that say of a time what others said.
fn check_time(fields: &Fields, nanos_of_day: i64) -> Option<()> {
    let hour = nanos_of_day / (3600 * NANOS_OF_SECOND) % 24;
    let agrees = |field: Field, value: i64| fields.get(field).is_none_or(|given| given == value);
    (agrees(Field::HalfDay, hour / 12) && agrees(Field::HourOfHalfDay, hour % 12)).then_some(())
}

/// Finds the day of a date that is not complete: the first one that it may be.
fn partial_date(fields: &Fields, has_time: bool) -> Option<i64> {
    let (month, day) = (fields.get(Field::Month), fields.get(Field::Day));
    if let Some(year) = fields.get(Field::Year).or(fields.get(Field::YearOfEra)) {
        return match (month, day, fields.get(Field::DayOfYear)) {
            (Some(month), Some(day), _) => day_of_month(year, month, day, Style::Strict),
            (_, _, Some(day)) => day_of_year(year, day),
            (month, ..) => day_of_month(year, month.unwrap_or(1), 1, Style::Strict),
        };
    }
    if let Some(year) = fields.get(Field::WeekYear) {
        let week = within(fields.get(Field::Week).unwrap_or(1), 1, 53)?;
        let first = calendar::days_from_iso_week(within(year, -MAX_YEAR, MAX_YEAR)?, 1, 1);
        return Some(first + (week - 1) * 7);
    }
    match month {
        Some(month) => day_of_month(1970, month, day.unwrap_or(1), Style::Strict),
        None => has_time.then_some(0),
    }
}
