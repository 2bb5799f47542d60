//! Dates, times, timestamps and intervals: reading, writing and reckoning.
//!
//! Timestamps are microseconds since 1970 in UTC, dates days, times microseconds since midnight. Everything that
//! leaves the years 0 to 9999 is no value.

use chrono::{Datelike, Months, NaiveDate, NaiveDateTime, NaiveTime, Timelike};
use millrace_time::{LocalOffset, Region};

/// Microseconds of a second.
pub(crate) const SECOND: i64 = 1_000_000;
/// Microseconds of a day.
pub(crate) const DAY: i64 = 86_400 * SECOND;
/// Nanoseconds of a microsecond.
pub(crate) const MICRO: i128 = 1_000;

/// An interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Months.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// Nanoseconds.
    pub nanos: i64,
}

/// Makes an interval of a unit; `None` for another word, and beyond the range.
pub(crate) fn interval(count: i64, unit: &str) -> Option<Span> {
    let small = |factor: i64| i32::try_from(count.checked_mul(factor)?).ok();
    let nanos = |factor: i64| count.checked_mul(factor);
    let zero = Span { months: 0, days: 0, nanos: 0 };
    let unit = unit.to_ascii_lowercase();
    Some(match unit.trim_end_matches('s') {
        "microsecond" => Span { nanos: nanos(1_000)?, ..zero },
        "millisecond" => Span { nanos: nanos(1_000_000)?, ..zero },
        "second" => Span { nanos: nanos(1_000_000_000)?, ..zero },
        "minute" => Span { nanos: nanos(60_000_000_000)?, ..zero },
        "hour" => Span { nanos: nanos(3_600_000_000_000)?, ..zero },
        "day" => Span { days: small(1)?, ..zero },
        "week" => Span { days: small(7)?, ..zero },
        "month" => Span { months: small(1)?, ..zero },
        "quarter" => Span { months: small(3)?, ..zero },
        "year" => Span { months: small(12)?, ..zero },
        _ => return None,
    })
}

/// Reads a date, perhaps with a time behind it.
pub(crate) fn date(text: &str) -> Option<i32> {
    let (day, rest) = match text.trim().split_once([' ', 'T']) {
        Some((day, rest)) => (day, Some(rest)),
        None => (text.trim(), None),
    };
    if let Some(rest) = rest {
        time(rest)?;
    }
    days(NaiveDate::parse_from_str(day, "%Y-%m-%d").ok()?)
}

/// Reads a time, perhaps with a date before it, in microseconds.
pub(crate) fn time(text: &str) -> Option<i64> {
    Some(time_nanos(text)? / 1_000)
}

/// Reads a time, perhaps with a date before it, in nanoseconds.
fn time_nanos(text: &str) -> Option<i64> {
    let text = match text.trim().split_once([' ', 'T']) {
        Some((day, rest)) => {
            NaiveDate::parse_from_str(day, "%Y-%m-%d").ok()?;
            rest
        }
        None => text.trim(),
    };
    let text = text.trim_end_matches('Z');
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, fraction),
        None => (text, ""),
    };
    if fraction.len() > 9 || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let mut parts = whole.split(':');
    let mut next = |most: i64| {
        let part = parts.next()?;
        let digits = (1..=2).contains(&part.len()) && part.bytes().all(|digit| digit.is_ascii_digit());
        part.parse::<i64>().ok().filter(|number| digits && *number <= most)
    };
    let (hour, minute) = (next(23)?, next(59)?);
    let second = if whole.matches(':').count() == 1 { 0 } else { next(59)? };
    if parts.next().is_some() {
        return None;
    }
    let nanos: i64 = format!("{fraction:0<9}").parse().ok()?;
    Some((hour * 3_600 + minute * 60 + second) * 1_000_000_000 + nanos)
}

/// Reads a timestamp in microseconds: a date, perhaps with a time.
pub(crate) fn timestamp(text: &str) -> Option<i64> {
    Some(whole_micros(instant(text)?))
}

/// Returns the whole microseconds of nanoseconds, rounded down.
pub(crate) fn whole_micros(nanos: i128) -> i64 {
    let micros = nanos.div_euclid(MICRO);
    i64::try_from(micros).unwrap_or(if micros < 0 { i64::MIN } else { i64::MAX })
}

/// Returns the nanoseconds of microseconds.
pub(crate) fn nanos_of(micros: i64) -> i128 {
    i128::from(micros) * MICRO
}

/// Reads a timestamp in nanoseconds: a date, perhaps with a time.
pub(crate) fn instant(text: &str) -> Option<i128> {
    let text = text.trim();
    let (day, rest) = match text.split_once([' ', 'T']) {
        Some((day, rest)) => (day, Some(rest)),
        None => (text, None),
    };
    let days = i64::from(date(day)?);
    let time = match rest {
        Some(rest) => time_nanos(rest)?,
        None => 0,
    };
    Some(nanos_of(days * DAY) + i128::from(time))
}

/// Counts the days since 1970 of a date within the range.
pub(crate) fn days(date: NaiveDate) -> Option<i32> {
    (0..=9999).contains(&date.year()).then_some(())?;
    i32::try_from(date.signed_duration_since(NaiveDate::default()).num_days()).ok()
}

/// Returns the calendar date of days since 1970.
pub(crate) fn calendar(days: i32) -> NaiveDate {
    NaiveDate::default().checked_add_signed(chrono::Duration::days(i64::from(days))).unwrap_or_default()
}

/// Returns the calendar date and time of a timestamp.
pub(crate) fn civil(micros: i64) -> NaiveDateTime {
    let days = i32::try_from(micros.div_euclid(DAY)).unwrap_or(0);
    calendar(days).and_time(clock(micros.rem_euclid(DAY)))
}

/// Returns the time of day.
pub(crate) fn clock(micros: i64) -> NaiveTime {
    let seconds = u32::try_from(micros.rem_euclid(DAY) / SECOND).unwrap_or(0);
    let nanos = u32::try_from(micros.rem_euclid(SECOND) * 1_000).unwrap_or(0);
    NaiveTime::from_num_seconds_from_midnight_opt(seconds, nanos).unwrap_or_default()
}

/// Counts the microseconds since 1970 of a timestamp within the range.
pub(crate) fn micros(at: NaiveDateTime) -> Option<i64> {
    let days = i64::from(days(at.date())?);
    let time = at.time();
    Some(
        days * DAY
            + i64::from(time.num_seconds_from_midnight()) * SECOND
            + i64::from(time.nanosecond() / 1_000),
    )
}

/// Adds an interval to a timestamp, `times` its length.
pub(crate) fn shifted(at: i64, span: Span, times: i32) -> Option<i64> {
    let months = span.months.checked_mul(times)?;
    let moved = civil(at);
    let moved = match months {
        0 => moved,
        more if more > 0 => moved.checked_add_months(Months::new(more.unsigned_abs()))?,
        less => moved.checked_sub_months(Months::new(less.unsigned_abs()))?,
    };
    let moved = micros(moved)?;
    let days = i64::from(span.days).checked_mul(i64::from(times))?.checked_mul(DAY)?;
    let rest = span.nanos.checked_mul(i64::from(times))? / 1_000;
    let moved = moved.checked_add(days)?.checked_add(rest)?;
    micros(civil(moved)).filter(|_| moved.div_euclid(DAY).abs() < 4_000_000)
}

/// Writes a date.
pub(crate) fn shown_date(days: i32) -> String {
    calendar(days).format("%Y-%m-%d").to_string()
}

/// Writes a time; a fraction only where there is one.
pub(crate) fn shown_time(micros: i64) -> String {
    shown_nanos_of_day(nanos_of_day(micros))
}

/// Writes a time in nanoseconds.
pub(crate) fn shown_nanos_of_day(nanos: i64) -> String {
    let time = clock(nanos.div_euclid(1_000));
    with_fraction(time.format("%H:%M:%S").to_string(), nanos.rem_euclid(1_000_000_000))
}

/// Makes nanoseconds of the microseconds of a day.
pub(crate) fn nanos_of_day(micros: i64) -> i64 {
    micros.saturating_mul(1_000)
}

/// Writes a timestamp in nanoseconds.
pub(crate) fn shown_instant(nanos: i128) -> String {
    let (seconds, rest) = (nanos.div_euclid(1_000_000_000), nanos.rem_euclid(1_000_000_000));
    with_fraction(shown_timestamp(i64::try_from(seconds).unwrap_or(0), 1), i64::try_from(rest).unwrap_or(0))
}

/// Writes a timestamp of so many units a second.
pub(crate) fn shown_timestamp(value: i64, per_second: i64) -> String {
    let seconds = value.div_euclid(per_second);
    let nanos = value.rem_euclid(per_second) * (1_000_000_000 / per_second);
    let days = i32::try_from(seconds.div_euclid(86_400)).unwrap_or(0);
    let at = calendar(days).and_time(clock(seconds.rem_euclid(86_400) * SECOND));
    with_fraction(at.format("%Y-%m-%d %H:%M:%S").to_string(), nanos)
}

fn with_fraction(mut text: String, nanos: i64) -> String {
    if nanos > 0 {
        let fraction = format!("{nanos:09}");
        text.push('.');
        text.push_str(fraction.trim_end_matches('0'));
    }
    text
}

/// Counts the week of a year as MySQL's mode says.
pub(crate) fn week(date: NaiveDate, mode: i64) -> i64 {
    yearweek(date, mode & 7).1
}

/// Returns year and week as MySQL's mode says.
pub(crate) fn yearweek(date: NaiveDate, mode: i64) -> (i32, i64) {
    let monday = mode & 1 != 0;
    let of_year = mode & 2 != 0;
    let four_days = matches!(mode, 1 | 3 | 4 | 6);
    let year = date.year();
    let first_of = |year: i32| {
        let first = NaiveDate::from_ymd_opt(year, 1, 1).unwrap_or_default();
        let weekday = i64::from(match monday {
            true => first.weekday().num_days_from_monday(),
            false => first.weekday().num_days_from_sunday(),
        });
        // Days from the first of January to the start of week 1.
        let start = if four_days && weekday <= 3 || weekday == 0 { -weekday } else { 7 - weekday };
        (first, start)
    };
    let (first, start) = first_of(year);
    let day = date.signed_duration_since(first).num_days();
    if day < start {
        if !of_year {
            return (year, 0);
        }
        let (first, start) = first_of(year - 1);
        return (year - 1, (date.signed_duration_since(first).num_days() - start) / 7 + 1);
    }
    let week = (day - start) / 7 + 1;
    if of_year {
        let (next, start) = first_of(year + 1);
        let left = date.signed_duration_since(next).num_days();
        if left >= start {
            return (year + 1, 1);
        }
    }
    (year, week)
}

/// Reads a time zone: a name, or an offset from -13:59 to +14:00.
pub(crate) fn zone(text: &str) -> Option<Zone> {
    if let Some(sign) = text.chars().next().filter(|sign| matches!(sign, '+' | '-')) {
        let (hours, minutes) = text.get(1..)?.split_once(':')?;
        if hours.len() != 2 || minutes.len() != 2 {
            return None;
        }
        let total = hours.parse::<i64>().ok()? * 60 + minutes.parse::<i64>().ok().filter(|m| *m < 60)?;
        let total = if sign == '-' { -total } else { total };
        return (-839..=840).contains(&total).then_some(Zone::Fixed(total * 60));
    }
    if matches!(text, "Z" | "UTC") {
        return Some(Zone::Fixed(0));
    }
    Region::find(text).map(Zone::Named)
}

/// A time zone.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Zone {
    /// So many seconds east.
    Fixed(i64),
    /// One of the tz database.
    Named(&'static Region),
}

impl Zone {
    /// Turns a moment of UTC into a local time.
    pub(crate) fn local(self, utc: i64) -> Option<i64> {
        match self {
            Self::Fixed(seconds) => utc.checked_add(seconds * SECOND),
            Self::Named(region) => {
                let offset = time_zone(region).span(utc.div_euclid(SECOND)).offset;
                micros(civil(utc.checked_add(i64::from(offset) * SECOND)?))
            }
        }
    }

    /// Turns a local time into a moment of UTC. One that clocks leave out is the end of the gap, as in MariaDB, and one that they show twice
    /// the first.
    pub(crate) fn utc(self, local: i64) -> Option<i64> {
        match self {
            Self::Fixed(seconds) => local.checked_sub(seconds * SECOND),
            Self::Named(region) => match time_zone(region).local(local.div_euclid(SECOND)) {
                LocalOffset::Gap { at, .. } => Some(at * SECOND + local.rem_euclid(SECOND)),
                offset => micros(civil(local.checked_sub(i64::from(offset.first()) * SECOND)?)),
            },
        }
    }
}

fn time_zone(region: &'static Region) -> millrace_time::Zone {
    millrace_time::Zone::Named(region)
}

/// Writes a year with four digits, one before the year 0 with its sign before them.
fn year_text(year: i32) -> String {
    if year < 0 { format!("{year:05}") } else { format!("{year:04}") }
}

/// Writes by MySQL's letters for `date_format`.
pub(crate) fn formatted(at: NaiveDateTime, format: &str) -> String {
    let mut out = String::with_capacity(format.len() * 2);
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let Some(directive) = letters.next() else {
            out.push('%');
            break;
        };
        let date = at.date();
        let hour12 = match at.hour() % 12 {
            0 => 12,
            hour => hour,
        };
        let text = match directive {
            'a' => at.format("%a").to_string(),
            'b' => at.format("%b").to_string(),
            'D' => {
                let day = date.day();
                let suffix = match (day % 100, day % 10) {
                    (11..=13, _) => "th",
                    (_, 1) => "st",
                    (_, 2) => "nd",
                    (_, 3) => "rd",
                    _ => "th",
                };
                format!("{day}{suffix}")
            }
            'd' => format!("{:02}", date.day()),
            'e' => date.day().to_string(),
            'f' => format!("{:06}", at.nanosecond() / 1_000),
            'H' => format!("{:02}", at.hour()),
            'h' | 'I' => format!("{hour12:02}"),
            'i' => format!("{:02}", at.minute()),
            'j' => format!("{:03}", date.ordinal()),
            'k' => at.hour().to_string(),
            'l' => hour12.to_string(),
            'M' => at.format("%B").to_string(),
            'c' | 'm' => format!("{:02}", date.month()),
            'p' => if at.hour() < 12 { "AM" } else { "PM" }.to_owned(),
            'r' => format!(
                "{hour12:02}:{:02}:{:02} {}",
                at.minute(),
                at.second(),
                if at.hour() < 12 { "AM" } else { "PM" }
            ),
            'S' | 's' => format!("{:02}", at.second()),
            'T' => at.format("%H:%M:%S").to_string(),
            'U' => format!("{:02}", week(date, 0)),
            'u' => format!("{:02}", week(date, 1)),
            'V' => format!("{:02}", week(date, 2)),
            'v' => format!("{:02}", week(date, 3)),
            'W' => at.format("%A").to_string(),
            'w' => date.weekday().num_days_from_sunday().to_string(),
            'X' => year_text(yearweek(date, 2).0),
            'x' => year_text(yearweek(date, 3).0),
            'Y' => year_text(date.year()),
            'y' => format!("{:02}", date.year().rem_euclid(100)),
            other => other.to_string(),
        };
        out.push_str(&text);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_read_and_written() {
        for (text, shown) in [
            ("2020-08-26", "2020-08-26 00:00:00"),
            ("2020-08-26 13:49", "2020-08-26 13:49:00"),
            ("1969-12-31 23:59:59.500", "1969-12-31 23:59:59.5"),
            ("0001-01-01T00:00:00Z", "0001-01-01 00:00:00"),
        ] {
            assert_eq!(shown_timestamp(timestamp(text).unwrap(), SECOND), shown);
        }
        for text in ["", "2020-13-01", "2020-02-30", "2020-01-01 24:00:00", "x", "12:00:00"] {
            assert_eq!(timestamp(text), None, "{text}");
        }
    }

    #[test]
    fn weeks_are_those_of_mysql() {
        let week_of = |text: &str, mode| week(calendar(date(text).unwrap()), mode);
        assert_eq!([week_of("2008-02-20", 0), week_of("2008-02-20", 1)], [7, 8]);
        assert_eq!([week_of("2000-01-01", 0), week_of("2000-01-01", 2)], [0, 52]);
        assert_eq!([week_of("2008-12-31", 1), week_of("2008-12-31", 3)], [53, 1]);
    }

    #[test]
    fn intervals_move_within_the_calendar() {
        let moved = |text: &str, count, unit: &str| {
            shifted(timestamp(text).unwrap(), interval(count, unit).unwrap(), 1)
                .map(|at| shown_timestamp(at, SECOND))
        };
        assert_eq!(moved("2020-01-31", 1, "MONTH").as_deref(), Some("2020-02-29 00:00:00"));
        assert_eq!(moved("2000-01-01", -1, "QUARTER").as_deref(), Some("1999-10-01 00:00:00"));
        assert_eq!(moved("9999-12-31", 1, "DAY"), None);
        assert_eq!(interval(i64::MAX, "YEAR"), None);
    }

    #[test]
    fn formats_are_those_of_mysql() {
        let at = civil(timestamp("1998-01-31 13:14:15.012345").unwrap());
        assert_eq!(
            formatted(at, "%a %b %c %D %d %e %f %H %h %I %i %j %k %l %M %m %p %r %S %s %T %% %P"),
            "Sat Jan 01 31st 31 31 012345 13 01 01 14 031 13 1 January 01 PM 01:14:15 PM 15 15 13:14:15 % P"
        );
        let before = NaiveDate::from_ymd_opt(-43, 3, 15).unwrap().and_time(NaiveTime::MIN);
        assert_eq!(formatted(before, "%Y %X %x"), "-0043 -0043 -0043");
    }

    #[test]
    fn zones() {
        let at = timestamp("2008-12-25 05:30:00").unwrap();
        let local = |zone_text: &str| {
            zone(zone_text).and_then(|zone| zone.local(at)).map(|at| shown_timestamp(at, SECOND))
        };
        assert_eq!(local("America/Los_Angeles").as_deref(), Some("2008-12-24 21:30:00"));
        assert_eq!(local("+14:00").as_deref(), Some("2008-12-25 19:30:00"));
        // MariaDB answers the same.
        for (name, clock, utc) in [
            ("America/New_York", "2024-03-10 02:00:00", "2024-03-10 07:00:00"),
            ("America/New_York", "2024-03-10 02:30:00", "2024-03-10 07:00:00"),
            ("America/New_York", "2024-03-10 02:59:59.5", "2024-03-10 07:00:00.5"),
            ("America/New_York", "2024-11-03 01:30:00", "2024-11-03 05:30:00"),
            ("Pacific/Apia", "2011-12-30 12:00:00", "2011-12-30 10:00:00"),
            ("Australia/Lord_Howe", "2024-10-06 02:15:00", "2024-10-05 15:30:00"),
        ] {
            let moment = zone(name).unwrap().utc(timestamp(clock).unwrap());
            assert_eq!(moment.map(|at| shown_timestamp(at, SECOND)).as_deref(), Some(utc), "{name} {clock}");
        }
        assert!(zone("+14:01").is_none() && zone("-14:00").is_none() && zone("-13:59").is_some());
    }
}
