//! Formats that have a name, as patterns.
//!
//! The letters of these patterns are few. Their number says whether digits may be missing: `dd` has two digits, `d` one
//! or two; `ee` is a weekday of any number of digits; `yyyy` is a year of four digits, or of more behind a sign, `y` one of one to five, `yy` one of any number,
//! `uuuu` one of exactly four. [`letter`] has the others.

use super::field::Field;
use super::pattern::{Digits, Item, OffsetLayout, Sign};
use super::resolve::Style;

/// A named format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NamedFormat {
    /// Pattern of texts that it reads.
    pub(super) reads: &'static str,
    /// Pattern of texts that it writes.
    pub(super) writes: &'static str,
    pub(super) style: Style,
}

/// Compiles `count` letters of a named format's pattern.
pub(super) fn letter(c: char, count: usize) -> Option<Item> {
    let upto = |field, max| Item::Number { field, digits: Digits::new(1, max, Sign::Never) };
    let number = |field, max: usize| match count {
        1 => upto(field, max),
        _ => Item::Number { field, digits: Digits::exact(count) },
    };
    let year = |field, digits| Item::Number { field, digits };
    let signed = Digits::new(4, 10, Sign::ExceedsPad);
    let zone_or_offset = || vec![Item::ZoneId, Item::Offset(OffsetLayout::BASIC)];
    Some(match (c, count) {
        ('y', 1) => year(Field::Year, Digits::new(1, 5, Sign::Normal)),
        ('y', 2) => year(Field::Year, Digits::any()),
        ('y', _) => year(Field::Year, signed),
        ('u', _) => year(Field::Year, Digits::new(count, 4, Sign::Normal)),
        ('Y', 1) => year(Field::WeekYear, Digits::any()),
        ('Y', _) => year(Field::WeekYear, signed),
        ('M', _) => number(Field::Month, 2),
        ('d', _) => number(Field::Day, 2),
        ('D', _) => number(Field::DayOfYear, 3),
        ('w', _) => number(Field::Week, 2),
        ('e', 2) => year(Field::Weekday, Digits::any()),
        ('e', _) => number(Field::Weekday, 1),
        ('H', _) => number(Field::Hour, 2),
        ('m', _) => number(Field::Minute, 2),
        ('s', _) => number(Field::Second, 2),
        // Fractions behind a dot: of one to nine digits, of one to three, of three, of three to nine.
        ('f', _) => Item::Fraction { min: 1, max: 9, point: true },
        ('i', _) => Item::Fraction { min: 1, max: 3, point: true },
        ('F', _) => Item::Fraction { min: 3, max: 3, point: true },
        ('N', _) => Item::Fraction { min: 3, max: 9, point: true },
        // A fraction without its separator.
        ('n', _) => Item::Fraction { min: 1, max: 9, point: false },
        // A zone or an offset, an offset, an offset with colon or `z`, and what is written of an offset.
        ('z', _) => Item::Either(zone_or_offset()),
        ('o', _) => {
            Item::Either(vec![Item::Offset(OffsetLayout::EXTENDED), Item::Offset(OffsetLayout::BASIC)])
        }
        ('r', _) => Item::Either(vec![
            Item::Offset(OffsetLayout::EXTENDED),
            Item::Offset(OffsetLayout { zero: "z", ..OffsetLayout::EXTENDED }),
        ]),
        ('X', _) => Item::Offset(OffsetLayout::EXTENDED),
        ('x', _) => Item::Offset(OffsetLayout::BASIC),
        _ => return None,
    })
}

/// Finds a format by name, in snake case or the deprecated camel case.
pub(super) fn find(name: &str) -> Option<NamedFormat> {
    let snake =
        if name.bytes().any(|b| b.is_ascii_uppercase()) && name.bytes().all(|b| b.is_ascii_alphabetic()) {
            let mut snake = String::with_capacity(name.len() + 8);
            for c in name.chars() {
                if c.is_ascii_uppercase() {
                    snake.push('_');
                }
                snake.push(c.to_ascii_lowercase());
            }
            snake
        } else {
            name.to_owned()
        };
    let (reads, writes) = match snake.strip_prefix("strict_") {
        Some(base) => strict(base)?,
        None => lenient(&snake).or_else(|| basic(&snake))?,
    };
    let style = match snake.as_str() {
        "strict_date" => Style::Lenient,
        "strict_date_hour"
        | "strict_date_hour_minute"
        | "strict_date_hour_minute_second"
        | "strict_hour"
        | "strict_hour_minute"
        | "basic_ordinal_date" => Style::Smart,
        _ => Style::Strict,
    };
    Some(NamedFormat { reads, writes, style })
}

/// Patterns of the formats `strict_…`.
fn strict(base: &str) -> Option<(&'static str, &'static str)> {
    Some(match base {
        "date" => ("yyyy-MM-dd", "yyyy-MM-dd"),
        "date_hour" => ("yyyy-MM-dd'T'HH", "yyyy-MM-dd'T'HH"),
        "date_hour_minute" => ("yyyy-MM-dd'T'HH:mm", "yyyy-MM-dd'T'HH:mm"),
        "date_hour_minute_second" => ("yyyy-MM-dd'T'HH:mm:ss", "yyyy-MM-dd'T'HH:mm:ss"),
        "date_hour_minute_second_fraction" | "date_hour_minute_second_millis" => {
            ("yyyy[-MM[-dd]]'T'HH:mm:ssf", "yyyy-MM-dd'T'HH:mm:ssF")
        }
        "date_optional_time" => ("yyyy[-MM[-dd]]['T'[HH[:mm[:ss[f][,n]]][z]]]", "yyyy-MM-dd'T'HH:mm:ssFX"),
        "date_optional_time_nanos" => ("yyyy[-MM[-dd]]['T'HH:mm:ss[f][,n][z]]", "yyyy-MM-dd'T'HH:mm:ssNX"),
        "date_time" => ("yyyy[-MM[-dd]]'T'HH:mm:ss[f]z", "yyyy-MM-dd'T'HH:mm:ssNX"),
        "date_time_no_millis" => ("yyyy[-MM[-dd]]'T'HH:mm:ssz", "yyyy-MM-dd'T'HH:mm:ssX"),
        "hour" => ("HH", "HH"),
        "hour_minute" => ("HH:mm", "HH:mm"),
        "hour_minute_second" => ("HH:mm:ss", "HH:mm:ss"),
        "hour_minute_second_fraction" | "hour_minute_second_millis" => ("HH:mm:ssf", "HH:mm:ssF"),
        "ordinal_date" => ("yyyy-DDD", "yyyy-DDD"),
        "ordinal_date_time" => ("yyyy-DDD'T'HH:mm[:ssf]z", "yyyy-DDD'T'HH:mm:ssNX"),
        "ordinal_date_time_no_millis" => ("yyyy-DDD'T'HH:mm:ssz", "yyyy-DDD'T'HH:mm:ssX"),
        "time" => ("HH:mm:ssfz", "HH:mm:ssFX"),
        "time_no_millis" => ("HH:mm:ssz", "HH:mm:ssX"),
        "t_time" => ("'T'HH:mm:ssfz", "'T'HH:mm:ssFX"),
        "t_time_no_millis" => ("'T'HH:mm:ssz", "'T'HH:mm:ssX"),
        "week_date" | "weekyear_week_day" => ("YYYY-'W'ww-e", "YYYY-'W'ww-e"),
        "week_date_time" => ("YYYY-'W'ww-e'T'HH:mm:ssfz", "YYYY-'W'ww-e'T'HH:mm:ssFX"),
        "week_date_time_no_millis" => ("YYYY-'W'ww-e'T'HH:mm:ssz", "YYYY-'W'ww-e'T'HH:mm:ssX"),
        "weekyear" => ("YYYY", "YYYY"),
        "weekyear_week" => ("YYYY-'W'ww", "YYYY-'W'ww"),
        "year" => ("yyyy", "yyyy"),
        "year_month" => ("yyyy-MM", "yyyy-MM"),
        "year_month_day" => ("yyyy[-MM[-dd]]", "yyyy-MM-dd"),
        "basic_week_date" => ("YYYY'W'wee", "YYYY'W'wwee"),
        "basic_week_date_time" => ("YYYY'W'wee'T'HHmmssfz", "YYYY'W'wwee'T'HHmmssFx"),
        "basic_week_date_time_no_millis" => ("YYYY'W'wwee'T'HHmmssz", "YYYY'W'wwee'T'HHmmssX"),
        _ => return None,
    })
}

/// Patterns of the formats whose numbers may miss digits.
fn lenient(name: &str) -> Option<(&'static str, &'static str)> {
    Some(match name {
        "date" => ("y[-M[-d]]", "yyyy-MM-dd"),
        "date_hour" => ("y[-M[-d]]'T'H", "yyyy-MM-dd'T'HH"),
        "date_hour_minute" => ("y[-M[-d]]'T'H:m", "yyyy-MM-dd'T'HH:mm"),
        "date_hour_minute_second" => ("y[-M[-d]]'T'H:m:s", "yyyy-MM-dd'T'HH:mm:ss"),
        "date_hour_minute_second_fraction" => ("y[-M[-d]]'T'H:m:sf", "yyyy-MM-dd'T'HH:mm:ssF"),
        "date_hour_minute_second_millis" => ("y[-M[-d]]'T'H:m:si", "yyyy-MM-dd'T'HH:mm:ssF"),
        "date_optional_time" => ("y[-M[-d]]['T'[H[:m[:s][f][,n][z]]]]", "yyyy-MM-dd'T'HH:mm:ssFX"),
        "date_optional_time_nanos" => ("y[-M[-d]]['T'[H[:m[:s][f][,n][z]]]]", "yyyy-MM-dd'T'HH:mm:ssNX"),
        "date_time" => ("y[-M[-d]]'T'H:m[:sf]o", "yyyy-MM-dd'T'HH:mm:ssFX"),
        "date_time_no_millis" => ("y[-M[-d]]'T'H:m[:s][z]", "yyyy-MM-dd'T'HH:mm:ssX"),
        "hour" => ("H", "HH"),
        "hour_minute" => ("H:m", "HH:mm"),
        "hour_minute_second" => ("H:m:s", "HH:mm:ss"),
        "hour_minute_second_fraction" => ("H:m:sf", "HH:mm:ssF"),
        "hour_minute_second_millis" => ("H:m:si", "HH:mm:ssF"),
        "iso8601" => ("yyyy[-MM[-dd]]['T'[HH[:mm[:ss[f][,n]]]][z]]", "yyyy-MM-dd'T'HH:mm:ssFX"),
        "ordinal_date" => ("yyyy-D", "yyyy-DDD"),
        "ordinal_date_time" => ("yyyy-D'T'H:m[:sf]z", "yyyy-DDD'T'HH:mm:ssNX"),
        "ordinal_date_time_no_millis" => ("yyyy-D'T'H:m:sz", "yyyy-DDD'T'HH:mm:ssX"),
        "rfc3339_lenient" => (
            "uuuu[-MM[-dd['T'HH:mm[:ss[f][,n]]r]['t'HH:mm[:ss[f][,n]]r][ HH:mm[:ss[f][,n]]r]]]",
            "yyyy-MM-dd'T'HH:mm:ssFX",
        ),
        "time" => ("H:m:sfz", "HH:mm:ssFX"),
        "time_no_millis" => ("H:m:sz", "HH:mm:ssX"),
        "t_time" => ("'T'H:m:sfz", "'T'HH:mm:ssFX"),
        "t_time_no_millis" => ("'T'H:m:sz", "'T'HH:mm:ssX"),
        "week_date" => ("YYYY-'W'w-e", "YYYY-'W'ww-e"),
        "week_date_time" => ("YYYY-'W'w-e'T'H:m:sfz", "YYYY-'W'ww-e'T'HH:mm:ssFX"),
        "week_date_time_no_millis" => ("YYYY-'W'w-e'T'H:m:sz", "YYYY-'W'ww-e'T'HH:mm:ssX"),
        "weekyear" | "week_year" => ("Y", "Y"),
        "weekyear_week" => ("Y-'W'w", "YYYY-'W'ww"),
        "weekyear_week_day" => ("Y-'W'w-ee", "YYYY-'W'ww-e"),
        "year" => ("yy", "yy"),
        "year_month" => ("yy-M", "yyyy-MM"),
        "year_month_day" => ("yy-M-d", "yyyy-MM-dd"),
        _ => return None,
    })
}

/// Patterns of the formats without separators.
fn basic(name: &str) -> Option<(&'static str, &'static str)> {
    Some(match name {
        "basic_date" => ("uMd", "uuuuMMdd"),
        "basic_date_time" => ("uuuuMMdd'T'HHmmssfz", "uuuuMMdd'T'HHmmssFX"),
        "basic_date_time_no_millis" => ("uuuuMMdd'T'HHmmssz", "uuuuMMdd'T'HHmmssX"),
        "basic_ordinal_date" => ("yyyyDDD", "yyyyDDD"),
        "basic_ordinal_date_time" => ("yyyyDDD'T'HHmmssfz", "yyyyDDD'T'HHmmssFX"),
        "basic_ordinal_date_time_no_millis" => ("yyyyDDD'T'HHmmssz", "yyyyDDD'T'HHmmssX"),
        "basic_time" => ("HHmmssfz", "HHmmssFX"),
        "basic_time_no_millis" => ("HHmmssz", "HHmmssX"),
        "basic_t_time" => ("'T'HHmmssfz", "'T'HHmmssFX"),
        "basic_t_time_no_millis" => ("'T'HHmmssz", "'T'HHmmssX"),
        "basic_week_date" => ("Y'W'wee", "YYYY'W'wwee"),
        "basic_week_date_time" => ("Y'W'wee'T'HHmmssfz", "YYYY'W'wwee'T'HHmmssFx"),
        "basic_week_date_time_no_millis" => ("Y'W'wee'T'HHmmssz", "YYYY'W'wwee'T'HHmmssx"),
        _ => return None,
    })
}
