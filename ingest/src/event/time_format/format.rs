//! Writing times.

use std::fmt::Write as _;

use chrono::{DateTime, Datelike, Days, FixedOffset, NaiveDate, Timelike, Utc};
use millrace_mapping::{DAYS, MONTHS};

use super::{Field, Item, TimeFormat, Zone};

impl TimeFormat {
    /// Appends a time as clocks of a zone show it.
    pub fn format(&self, time: DateTime<Utc>, zone: Zone, out: &mut String) {
        let offset = zone.offset_at(time);
        let local = time.with_timezone(&offset);
        for item in &self.items {
            match item {
                Item::Literal(text) => out.push_str(text),
                Item::Field(field, count) => write(*field, *count, &local, zone, out),
            }
        }
    }
}

fn write(field: Field, count: usize, time: &DateTime<FixedOffset>, zone: Zone, out: &mut String) {
    let number = |out: &mut String, value: i64| {
        // Writing to memory cannot fail.
        let _ = if value < 0 {
            write!(out, "-{:0count$}", value.unsigned_abs())
        } else {
            write!(out, "{value:0count$}")
        };
    };
    let year = |out: &mut String, year: i32| {
        if count == 2 {
            let _ = write!(out, "{:02}", year.rem_euclid(100));
        } else {
            number(out, i64::from(year));
        }
    };
    let half_day_hour = i64::from(time.hour() % 12);
    match field {
        Field::Era => out.push_str(if time.year() > 0 { "AD" } else { "BC" }),
        Field::Century => number(out, i64::from(time.year().div_euclid(100))),
        Field::Year => year(out, time.year()),
        Field::WeekYear => year(out, time.iso_week().year()),
        Field::UsWeekYear => year(out, us_week(time.date_naive()).0),
        Field::Quarter => match count {
            0..=2 => number(out, i64::from(time.month0() / 3 + 1)),
            3 => drop(write!(out, "Q{}", time.month0() / 3 + 1)),
            _ => {
                let ordinals = ["1st", "2nd", "3rd", "4th"];
                let ordinal = ordinals.get(time.month0() as usize / 3).unwrap_or(&"");
                let _ = write!(out, "{ordinal} quarter");
            }
        },
        Field::MonthNumber => number(out, i64::from(time.month())),
        Field::MonthText => out.push_str(text(&MONTHS, time.month0(), count)),
        Field::Week => number(out, i64::from(time.iso_week().week())),
        Field::UsWeek => number(out, us_week(time.date_naive()).1),
        Field::DayOfMonth => number(out, i64::from(time.day())),
        Field::DayOfYear => number(out, i64::from(time.ordinal())),
        Field::DayOfWeek => number(out, i64::from(time.weekday().number_from_monday())),
        Field::UsDayOfWeek => number(out, i64::from(time.weekday().number_from_sunday())),
        Field::DayText => out.push_str(text(&DAYS, time.weekday().num_days_from_monday(), count.max(3))),
        Field::HalfDay => out.push_str(if time.hour() < 12 { "AM" } else { "PM" }),
        Field::Hour => number(out, i64::from(time.hour())),
        Field::ClockHour => number(out, if time.hour() == 0 { 24 } else { i64::from(time.hour()) }),
        Field::HalfDayHour => number(out, half_day_hour),
        Field::HalfDayClockHour => number(out, if half_day_hour == 0 { 12 } else { half_day_hour }),
        Field::Minute => number(out, i64::from(time.minute())),
        Field::Second => number(out, i64::from(time.second())),
        Field::Fraction => {
            let digits = format!("{:09}", time.nanosecond() % 1_000_000_000);
            out.extend(digits.chars().chain(std::iter::repeat('0')).take(count));
        }
        Field::Nanosecond => number(out, i64::from(time.nanosecond() % 1_000_000_000)),
        Field::MilliOfDay => number(
            out,
            i64::from(time.num_seconds_from_midnight()) * 1_000
                + i64::from(time.nanosecond() % 1_000_000_000) / 1_000_000,
        ),
        Field::NanoOfDay => number(
            out,
            i64::from(time.num_seconds_from_midnight()) * 1_000_000_000
                + i64::from(time.nanosecond() % 1_000_000_000),
        ),
        Field::ZoneName => out.push_str(&zone.names_at(time.to_utc()).1),
        Field::ZoneId => out.push_str(&zone.names_at(time.to_utc()).0),
        Field::Offset => offset(time.offset(), false, true, out),
        Field::OffsetColon => offset(time.offset(), true, true, out),
        Field::OffsetOrZ if time.offset().local_minus_utc() == 0 => out.push('Z'),
        Field::OffsetOrZ | Field::OffsetDigits => {
            let minutes = time.offset().local_minus_utc() % 3600 != 0;
            offset(time.offset(), count == 3 || count == 5, count > 1 || minutes, out);
        }
        Field::LocalizedOffset => {
            out.push_str("GMT");
            if time.offset().local_minus_utc() != 0 {
                offset(time.offset(), true, true, out);
            }
        }
    }
}

/// A name in full, cut to three letters, or to one.
fn text(names: &[&'static str], at: u32, count: usize) -> &'static str {
    let name = names.get(at as usize).copied().unwrap_or("");
    match count {
        0..=3 => name.get(..3).unwrap_or(name),
        5 => name.get(..1).unwrap_or(name),
        _ => name,
    }
}

fn offset(offset: &FixedOffset, colon: bool, minutes: bool, out: &mut String) {
    let seconds = offset.local_minus_utc();
    let (sign, seconds) = if seconds < 0 { ('-', -seconds) } else { ('+', seconds) };
    let _ = write!(out, "{sign}{:02}", seconds / 3600);
    if minutes {
        let _ = write!(out, "{}{:02}", if colon { ":" } else { "" }, seconds / 60 % 60);
    }
}

/// Year and number of the week of a day, where weeks begin on Sunday and the first has January 1.
fn us_week(day: NaiveDate) -> (i32, i64) {
    let sunday =
        |day: NaiveDate| day.checked_sub_days(Days::new(u64::from(day.weekday().num_days_from_sunday())));
    let first = |year: i32| NaiveDate::from_ymd_opt(year, 1, 1).and_then(sunday);
    let year = match first(day.year() + 1) {
        Some(next) if day >= next => day.year() + 1,
        _ => day.year(),
    };
    let week = first(year).map_or(1, |first| (day - first).num_days() / 7 + 1);
    (year, week)
}
