//! Reading times by a pattern.
//!
//! As Joda-Time: numbers may have fewer digits than the pattern has letters, and as many as their field can
//! have unless a number follows directly; names are accepted short and in full, in any case; `yy` with
//! other than two digits is the year itself.

use millrace_mapping::{DAYS, MONTHS};

use super::resolve::{HalfDay, Hour};
use super::zone::offset;
use super::{Field, Item, ParsedTime, TimeFormat, Zone};

/// Zone names that are read, with what they stand for: as in Joda-Time, a name says which clocks are meant, not whether it is summer.
const ZONE_NAMES: [(&str, &str); 11] = [
    ("UTC", "UTC"),
    ("UT", "UTC"),
    ("GMT", "UTC"),
    ("EST", "America/New_York"),
    ("EDT", "America/New_York"),
    ("CST", "America/Chicago"),
    ("CDT", "America/Chicago"),
    ("MST", "America/Denver"),
    ("MDT", "America/Denver"),
    ("PST", "America/Los_Angeles"),
    ("PDT", "America/Los_Angeles"),
];
/// Longest id of a time zone.
const MAX_ZONE_ID: usize = 64;

impl TimeFormat {
    /// Reads a time; `this_year` says which century years of two digits belong to: from 80 years before to 19
    /// after. `None` where the text does not follow the pattern to its end.
    pub fn parse(&self, text: &str, this_year: i32) -> Option<ParsedTime> {
        let mut parsed = ParsedTime::default();
        let mut rest = text;
        let mut items = self.items.iter().peekable();
        while let Some(item) = items.next() {
            rest = match item {
                Item::Literal(literal) => strip_prefix_ignoring_case(rest, literal)?,
                Item::Field(field @ (Field::MonthText | Field::DayText), _) => {
                    let stop_follows =
                        matches!(items.peek(), Some(Item::Literal(next)) if next.starts_with('.'));
                    let (at, behind) = self.read_name(*field, rest, stop_follows)?;
                    let place = match field {
                        Field::MonthText => &mut parsed.month,
                        _ => &mut parsed.day_of_week,
                    };
                    *place = Some(at + 1);
                    behind
                }
                Item::Field(field, count) => {
                    let number_follows =
                        matches!(items.peek(), Some(Item::Field(next, _)) if next.is_numeric());
                    read(*field, *count, number_follows, this_year, rest, &mut parsed)?
                }
            };
        }
        rest.is_empty().then_some(parsed)
    }

    /// Reads the name of a month or a day, from 0: the longest of English and of the pattern's language.
    fn read_name<'a>(&self, field: Field, text: &'a str, stop_follows: bool) -> Option<(u32, &'a str)> {
        let is_month = field == Field::MonthText;
        let english = if is_month { name(text, &MONTHS) } else { name(text, &DAYS) };
        let own = self.names.and_then(|names| match is_month {
            true => names.month(text, !stop_follows),
            false => names.day(text, !stop_follows),
        });
        match (own, english) {
            (Some((_, behind)), Some(english)) if english.1.len() < behind.len() => Some(english),
            (own, english) => own.or(english),
        }
    }

    /// Returns whether times can be read with the pattern.
    ///
    /// # Errors
    /// What cannot be read.
    pub fn check_parse(&self) -> Result<(), String> {
        let unread = self.items.iter().find_map(|item| match item {
            Item::Field(Field::Century, _) => Some("a century"),
            _ => None,
        });
        unread.map_or(Ok(()), |what| Err(format!("{what} cannot be read from a text")))
    }
}

fn read<'a>(
    field: Field,
    count: usize,
    number_follows: bool,
    this_year: i32,
    text: &'a str,
    parsed: &mut ParsedTime,
) -> Option<&'a str> {
    let mut rest = text;
    let mut upto = |most: usize| -> Option<u32> {
        let (value, behind) = digits(text, most)?;
        rest = behind;
        u32::try_from(value).ok()
    };
    match field {
        Field::Year | Field::WeekYear => {
            let (year, behind) = year(text, count, number_follows, this_year)?;
            rest = behind;
            let place = if field == Field::Year { &mut parsed.year } else { &mut parsed.week_year };
            *place = Some(year);
        }
        Field::MonthNumber => parsed.month = Some(upto(2)?),
        Field::Week => parsed.week = Some(upto(2)?),
        Field::DayOfMonth => parsed.day = Some(upto(2)?),
        Field::DayOfYear => parsed.day_of_year = Some(upto(3)?),
        Field::DayOfWeek => parsed.day_of_week = Some(upto(1)?),
        Field::HalfDay => {
            let (at, behind) = name(text, &["AM", "PM"])?;
            rest = behind;
            parsed.half_day = Some(if at == 0 { HalfDay::Am } else { HalfDay::Pm });
        }
        Field::Era => {
            let (at, behind) = name(text, &["AD", "BC"])?;
            rest = behind;
            parsed.before_christ = at == 1;
        }
        Field::Hour => parsed.hour = Some(Hour::Day(upto(2)?)),
        Field::ClockHour => parsed.hour = Some(Hour::ClockDay(upto(2)?)),
        Field::HalfDayHour => parsed.hour = Some(Hour::HalfDay(upto(2)?)),
        Field::HalfDayClockHour => parsed.hour = Some(Hour::ClockHalfDay(upto(2)?)),
        Field::Minute => parsed.minute = Some(upto(2)?),
        Field::Second => parsed.second = Some(upto(2)?),
        Field::Fraction => {
            let length = text.bytes().take(count).take_while(u8::is_ascii_digit).count();
            let (fraction, behind) = text.split_at(length);
            rest = behind;
            parsed.nanosecond = Some(nanoseconds(fraction)?);
        }
        Field::ZoneName => {
            let (behind, zone) = ZONE_NAMES
                .iter()
                .find_map(|(name, zone)| Some((strip_prefix_ignoring_case(text, name)?, *zone)))?;
            rest = behind;
            parsed.zone = Some(Zone::named(zone)?);
        }
        Field::Offset | Field::OffsetColon => {
            if let Some(behind) = text.strip_prefix('Z') {
                rest = behind;
                parsed.zone = Some(Zone::UTC);
            } else {
                let (offset, behind) = offset(text)?;
                rest = behind;
                parsed.zone = Some(Zone::Fixed(offset));
            }
        }
        Field::ZoneId => {
            let is_id = |byte: &u8| byte.is_ascii_alphanumeric() || b"/_+-:".contains(byte);
            let longest = text.bytes().take(MAX_ZONE_ID).take_while(is_id).count();
            let (zone, length) =
                (1..=longest).rev().find_map(|length| Some((Zone::named(text.get(..length)?)?, length)))?;
            rest = &text[length..];
            parsed.zone = Some(zone);
        }
        // Those of `java.time` alone, and the century, are not read.
        _ => return None,
    }
    Some(rest)
}

/// Reads a year; of two letters, two digits are one of the years around this one.
fn year(text: &str, count: usize, number_follows: bool, this_year: i32) -> Option<(i32, &str)> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let signed = unsigned.len() < text.len();
    let most = if number_follows { count } else { 9 };
    let (value, rest) = digits(unsigned, most)?;
    let value = i32::try_from(value).ok()?;
    if count == 2 && !signed && unsigned.len() - rest.len() == 2 {
        let first = this_year.checked_sub(80)?;
        return Some((first + (value - first).rem_euclid(100), rest));
    }
    Some((if negative { -value } else { value }, rest))
}

/// Reads one digit or more, at most so many.
fn digits(text: &str, most: usize) -> Option<(u64, &str)> {
    let length = text.bytes().take(most.min(18)).take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(length);
    Some((digits.parse().ok()?, rest))
}

/// Nanoseconds of the digits of a fraction of a second; finer digits are cut.
pub(super) fn nanoseconds(fraction: &str) -> Option<u32> {
    if fraction.is_empty() {
        return None;
    }
    let mut value = 0;
    for at in 0..9 {
        let digit = fraction.as_bytes().get(at).map_or(0, |digit| u32::from(digit - b'0'));
        value = value * 10 + digit;
    }
    Some(value)
}

/// Finds which name a text begins with, in full or by its first three letters.
fn name<'a>(text: &'a str, names: &[&str]) -> Option<(u32, &'a str)> {
    let full = names.iter().position(|name| strip_prefix_ignoring_case(text, name).is_some());
    let found = full.map(|at| (at, names.get(at).map_or(0, |name| name.len()))).or_else(|| {
        let short =
            |name: &&str| name.get(..3).is_some_and(|name| strip_prefix_ignoring_case(text, name).is_some());
        names.iter().position(short).map(|at| (at, 3))
    });
    let (at, length) = found?;
    Some((u32::try_from(at).ok()?, text.get(length..)?))
}

fn strip_prefix_ignoring_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let start = text.get(..prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then(|| &text[prefix.len()..])
}
