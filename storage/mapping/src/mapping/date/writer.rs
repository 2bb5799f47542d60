//! Writes instants by the items of a pattern.

use std::fmt::Write;

use millrace_time::calendar;

use super::field::Field;
use super::pattern::{Digits, Item, OffsetLayout, OffsetPart, Sign, Width};
use super::{names, weeks, zone_names};

/// A time as clocks of a zone show it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalTime<'z> {
    /// Days since 1970-01-01.
    days: i64,
    year: i64,
    month: u32,
    day: u32,
    nanos_of_day: i64,
    offset_seconds: i32,
    /// Id of the zone.
    zone: &'z str,
}

impl<'z> LocalTime<'z> {
    /// Makes the local time of an instant in nanoseconds since the epoch.
    pub(super) fn new(nanos: i128, offset_seconds: i32, zone: &'z str) -> Self {
        const DAY: i128 = 86_400_000_000_000;
        let local = nanos + i128::from(offset_seconds) * 1_000_000_000;
        let days = local.div_euclid(DAY) as i64;
        let nanos_of_day = local.rem_euclid(DAY) as i64;
        let (year, month, day) = calendar::civil_from_days(days);
        Self { days, year, month, day, nanos_of_day, offset_seconds, zone }
    }

    fn nanos(self) -> i64 {
        self.nanos_of_day % 1_000_000_000
    }

    fn utc_seconds(self) -> i64 {
        self.days * 86_400 + self.nanos_of_day / 1_000_000_000 - i64::from(self.offset_seconds)
    }

    fn get(self, field: Field) -> i64 {
        let Self { days, year, month, day, .. } = self;
        let seconds = self.nanos_of_day / 1_000_000_000;
        let hour = seconds / 3600;
        match field {
            Field::Era => i64::from(year > 0),
            Field::Year => year,
            Field::YearOfEra if year > 0 => year,
            Field::YearOfEra => 1 - year,
            Field::Quarter => i64::from(month - 1) / 3 + 1,
            Field::Month => i64::from(month),
            Field::Day => i64::from(day),
            Field::DayOfYear => days - calendar::days_from_civil(year, 1, 1) + 1,
            Field::WeekYear => calendar::iso_week(days).0,
            Field::Week => i64::from(calendar::iso_week(days).1),
            Field::WeekOfMonth => weeks::week_of_month(days),
            Field::Weekday => i64::from(calendar::iso_weekday(days)),
            Field::AlignedWeekday => i64::from(day - 1) % 7 + 1,
            Field::ModifiedJulianDay => days + 40_587,
            Field::HalfDay => hour / 12,
            Field::Hour => hour,
            Field::ClockHour if hour == 0 => 24,
            Field::ClockHour => hour,
            Field::HourOfHalfDay => hour % 12,
            Field::ClockHourOfHalfDay if hour % 12 == 0 => 12,
            Field::ClockHourOfHalfDay => hour % 12,
            Field::Minute => seconds / 60 % 60,
            Field::Second => seconds % 60,
            Field::Nano => self.nanos(),
            Field::MilliOfDay => self.nanos_of_day / 1_000_000,
            Field::NanoOfDay => self.nanos_of_day,
            Field::Offset => i64::from(self.offset_seconds),
        }
    }
}

/// Writes a local time by items.
pub(super) fn write(items: &[Item], time: LocalTime<'_>, out: &mut String) {
    for item in items {
        write_item(item, time, out);
    }
}

fn write_item(item: &Item, time: LocalTime<'_>, out: &mut String) {
    match item {
        Item::Literal(literal) => out.push_str(literal),
        Item::Number { field, digits } => write_number(*digits, time.get(*field), out),
        Item::TwoDigitYear { field, .. } => {
            write_number(Digits::exact(2), time.get(*field).abs() % 100, out);
        }
        Item::Fraction { min, max, point } => {
            let digits = format!("{:09}", time.nanos());
            let kept = digits[..*max].trim_end_matches('0').len().max(*min);
            if *point && kept > 0 {
                out.push('.');
            }
            out.push_str(&digits[..kept]);
        }
        Item::Name { field, width } => write_name(*field, *width, time, out),
        Item::Offset(layout) => write_offset(*layout, time.offset_seconds, out),
        Item::LocalizedOffset { full } => write_localized_offset(*full, time.offset_seconds, out),
        Item::ZoneId => out.push_str(time.zone),
        Item::ZoneName => out.push_str(&zone_names::short_name(time.zone, time.utc_seconds())),
        Item::Either(choices) => {
            if let Some(first) = choices.first() {
                write_item(first, time, out);
            }
        }
        Item::Pad(width, inner) => {
            let mut text = String::new();
            write_item(inner, time, &mut text);
            out.extend(std::iter::repeat_n(' ', width.saturating_sub(text.chars().count())));
            out.push_str(&text);
        }
        Item::Optional(inner) => write(inner, time, out),
    }
}

fn write_number(digits: Digits, value: i64, out: &mut String) {
    let (magnitude, min) = (value.unsigned_abs(), digits.min);
    if value < 0 {
        out.push('-');
    } else if digits.sign == Sign::ExceedsPad && magnitude >= 10u64.saturating_pow(min as u32) {
        // As Java does, so that no digit of a long year is taken for one of the month.
        out.push('+');
    }
    // Writing to a String does not fail.
    let _ = write!(out, "{magnitude:0min$}");
}

fn write_name(field: Field, width: Width, time: LocalTime<'_>, out: &mut String) {
    let value = time.get(field);
    let index = usize::try_from(value - names::first_value(field)).unwrap_or(0);
    match names::for_field(field, width).and_then(|names| names.get(index)) {
        Some(name) => out.push_str(name),
        None => write_number(Digits::any(), value, out),
    }
}

/// Hours, minutes and seconds of an offset, and its sign.
fn offset_parts(seconds: i32) -> (char, i32, i32, i32) {
    let (sign, seconds) = (if seconds < 0 { '-' } else { '+' }, seconds.abs());
    (sign, seconds / 3600, seconds / 60 % 60, seconds % 60)
}

fn write_offset(layout: OffsetLayout, offset_seconds: i32, out: &mut String) {
    let (sign, hours, minutes, seconds) = offset_parts(offset_seconds);
    let shows_minutes = layout.minutes == OffsetPart::Always || minutes > 0;
    let shows_seconds = layout.seconds != OffsetPart::Never && seconds > 0;
    if hours == 0 && minutes == 0 && !shows_seconds {
        out.push_str(layout.zero);
        return;
    }
    let between = if layout.colon { ":" } else { "" };
    let _ = write!(out, "{sign}{hours:02}");
    if shows_minutes {
        let _ = write!(out, "{between}{minutes:02}");
    }
    if shows_seconds {
        let _ = write!(out, "{between}{seconds:02}");
    }
}

fn write_localized_offset(full: bool, offset_seconds: i32, out: &mut String) {
    let (sign, hours, minutes, seconds) = offset_parts(offset_seconds);
    out.push_str("GMT");
    if offset_seconds == 0 {
        return;
    }
    let _ = if full { write!(out, "{sign}{hours:02}") } else { write!(out, "{sign}{hours}") };
    if full || minutes > 0 || seconds > 0 {
        let _ = write!(out, ":{minutes:02}");
    }
    if seconds > 0 {
        let _ = write!(out, ":{seconds:02}");
    }
}
