//! Date patterns of letters (`dd/MMM/yyyy:HH:mm:ss Z`): compiled to items, which read and write.

use super::calendar;

/// Deepest nesting of optional sections.
const MAX_OPTIONAL_DEPTH: usize = 16;

/// Which number an item reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Year,
    YearOfTwoDigits,
    Month,
    Day,
    DayOfYear,
    WeekYear,
    Week,
    Weekday,
    Hour,
    ClockHour,
    Hour12,
    Minute,
    Second,
    Nano,
    MilliOfDay,
}

/// One piece of a compiled pattern.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Item {
    Literal(Box<str>),
    /// A number of `min` to `max` digits, written with at least `pad`.
    Number {
        part: Part,
        min: usize,
        max: usize,
        pad: usize,
    },
    /// A fraction of a second of so many digits.
    Fraction(usize),
    /// A separator and a fraction of one to nine digits.
    AnyFraction,
    MonthName {
        full: bool,
    },
    DayName {
        full: bool,
    },
    AmPm,
    Era,
    /// An offset; `colon` and `zulu` say how it is written.
    Offset {
        colon: bool,
        zulu: bool,
    },
    /// A zone's id, abbreviation of UTC, or offset.
    Zone,
    Optional(Vec<Item>),
}

/// Names of the months, in English.
pub const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
/// Names of the days of a week, Monday first, in English.
pub const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// What was read of a date; absent parts are filled when it is resolved.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    pub(super) year: Option<i64>,
    pub(super) month: Option<u32>,
    pub(super) day: Option<u32>,
    pub(super) day_of_year: Option<u32>,
    pub(super) week_year: Option<i64>,
    pub(super) week: Option<u32>,
    pub(super) weekday: Option<u32>,
    pub(super) hour: Option<u32>,
    pub(super) hour12: Option<u32>,
    pub(super) afternoon: Option<bool>,
    pub(super) minute: Option<u32>,
    pub(super) second: Option<u32>,
    pub(super) nanos: Option<u32>,
    pub(super) milli_of_day: Option<u32>,
    pub(super) offset_seconds: Option<i32>,
    pub(super) zone: Option<chrono_tz::Tz>,
}

/// Compiles a pattern. `strict` asks for all digits of a number; `own` allows the letters of
/// [`super::named`].
pub(super) fn compile(pattern: &str, strict: bool, own: bool) -> Result<Vec<Item>, String> {
    let chars: Vec<char> = pattern.chars().collect();
    let mut at = 0;
    let items = compile_section(&chars, &mut at, strict, own, 0)?;
    if at < chars.len() {
        return Err("Pattern invalid as it contains ] without previous [".to_owned());
    }
    Ok(items)
}

fn compile_section(
    chars: &[char],
    at: &mut usize,
    strict: bool,
    own: bool,
    depth: usize,
) -> Result<Vec<Item>, String> {
    if depth > MAX_OPTIONAL_DEPTH {
        return Err(format!("more than {MAX_OPTIONAL_DEPTH} nested optional sections"));
    }
    let mut items: Vec<Item> = Vec::new();
    let mut literal = String::new();
    let flush = |items: &mut Vec<Item>, literal: &mut String| {
        if !literal.is_empty() {
            items.push(Item::Literal(std::mem::take(literal).into()));
        }
    };
    while *at < chars.len() {
        let c = chars[*at];
        match c {
            '\'' => {
                *at += 1;
                if chars.get(*at) == Some(&'\'') {
                    literal.push('\'');
                    *at += 1;
                    continue;
                }
                loop {
                    match chars.get(*at) {
                        None => return Err("Pattern ends with an incomplete string literal".to_owned()),
                        Some('\'') if chars.get(*at + 1) == Some(&'\'') => {
                            literal.push('\'');
                            *at += 2;
                        }
                        Some('\'') => {
                            *at += 1;
                            break;
                        }
                        Some(&other) => {
                            literal.push(other);
                            *at += 1;
                        }
                    }
                }
            }
            '[' => {
                flush(&mut items, &mut literal);
                *at += 1;
                let inner = compile_section(chars, at, strict, own, depth + 1)?;
                if chars.get(*at) == Some(&']') {
                    *at += 1;
                }
                items.push(Item::Optional(inner));
            }
            ']' if depth > 0 => break,
            ']' => return Err("Pattern invalid as it contains ] without previous [".to_owned()),
            '{' | '}' | '#' => return Err(format!("Pattern includes reserved character: '{c}'")),
            c if c.is_ascii_alphabetic() => {
                let start = *at;
                while chars.get(*at) == Some(&c) {
                    *at += 1;
                }
                let count = *at - start;
                flush(&mut items, &mut literal);
                let item = letter(c, count, strict, own)?;
                // Numbers that touch are cut by their number of letters.
                if matches!(item, Item::Number { .. } | Item::Fraction(_))
                    && let Some(Item::Number { min, max, part, .. }) = items.last_mut()
                    && (*min != *max || *part == Part::Year)
                {
                    let width = match part {
                        Part::Year | Part::WeekYear => 4,
                        _ => (*min).max(1),
                    };
                    *min = width;
                    *max = width;
                }
                items.push(item);
            }
            other => {
                literal.push(other);
                *at += 1;
            }
        }
    }
    flush(&mut items, &mut literal);
    Ok(items)
}

fn letter(c: char, count: usize, strict: bool, own: bool) -> Result<Item, String> {
    let number = |part: Part, widest: usize| {
        let min = if strict { count } else { 1 };
        Ok(Item::Number { part, min: min.min(widest), max: count.max(widest), pad: count })
    };
    let too_many = || Err(format!("Too many pattern letters: {c}"));
    match c {
        'f' if own => Ok(Item::AnyFraction),
        'z' if own => Ok(Item::Offset { colon: true, zulu: true }),
        'y' | 'u' if count == 2 => Ok(Item::Number { part: Part::YearOfTwoDigits, min: 2, max: 2, pad: 2 }),
        'y' | 'u' => {
            Ok(Item::Number { part: Part::Year, min: if strict { count } else { 1 }, max: 9, pad: 4 })
        }
        'Y' | 'x' if c == 'Y' => {
            Ok(Item::Number { part: Part::WeekYear, min: if strict { count } else { 1 }, max: 9, pad: 4 })
        }
        'M' | 'L' => match count {
            1 | 2 => number(Part::Month, 2),
            3 => Ok(Item::MonthName { full: false }),
            4 => Ok(Item::MonthName { full: true }),
            _ => too_many(),
        },
        'd' if count <= 2 => number(Part::Day, 2),
        'D' if count <= 3 => number(Part::DayOfYear, 3),
        'w' if count <= 2 => number(Part::Week, 2),
        'e' if count == 1 => number(Part::Weekday, 1),
        'E' | 'e' | 'c' => match count {
            1..=3 => Ok(Item::DayName { full: false }),
            4 => Ok(Item::DayName { full: true }),
            _ => too_many(),
        },
        'H' if count <= 2 => number(Part::Hour, 2),
        'k' if count <= 2 => number(Part::ClockHour, 2),
        'h' | 'K' if count <= 2 => number(Part::Hour12, 2),
        'm' if count <= 2 => number(Part::Minute, 2),
        's' if count <= 2 => number(Part::Second, 2),
        'S' if count <= 9 => Ok(Item::Fraction(count)),
        'n' => number(Part::Nano, 9),
        'A' => number(Part::MilliOfDay, 8),
        'a' if count == 1 => Ok(Item::AmPm),
        'G' => Ok(Item::Era),
        'X' | 'x' if count <= 5 => Ok(Item::Offset { colon: count == 3 || count == 5, zulu: c == 'X' }),
        'Z' if count <= 3 => Ok(Item::Offset { colon: false, zulu: false }),
        'Z' if count == 5 => Ok(Item::Offset { colon: true, zulu: true }),
        'Z' | 'O' => Ok(Item::Zone),
        'z' | 'V' | 'v' => Ok(Item::Zone),
        'd' | 'D' | 'w' | 'H' | 'k' | 'h' | 'K' | 'm' | 's' | 'S' | 'a' | 'X' | 'x' => too_many(),
        other => Err(format!("Unknown pattern letter: {other}")),
    }
}

/// Reads items from the start of `text`; returns what is left.
pub(super) fn read<'t>(items: &[Item], text: &'t str, parts: &mut Parts) -> Option<&'t str> {
    let mut rest = text;
    for item in items {
        rest = match item {
            Item::Literal(literal) => rest.strip_prefix(literal.as_ref())?,
            Item::Number { part, min, max, .. } => read_number(*part, *min, *max, rest, parts)?,
            Item::Fraction(digits) => {
                let run = digit_run(rest, *digits);
                if run != *digits {
                    return None;
                }
                parts.nanos = Some(fraction(&rest[..run])?);
                &rest[run..]
            }
            Item::AnyFraction => {
                let after = rest.strip_prefix(['.', ','])?;
                let run = digit_run(after, 9);
                if run == 0 {
                    return None;
                }
                parts.nanos = Some(fraction(&after[..run])?);
                &after[run..]
            }
            Item::MonthName { full } => {
                let (index, left) = read_name(&MONTHS, *full, rest)?;
                parts.month = Some(index + 1);
                left
            }
            Item::DayName { full } => {
                let (index, left) = read_name(&DAYS, *full, rest)?;
                parts.weekday = Some(index + 1);
                left
            }
            Item::AmPm => {
                let (head, left) = (rest.get(..2)?, rest.get(2..)?);
                parts.afternoon = Some(if head.eq_ignore_ascii_case("PM") {
                    true
                } else if head.eq_ignore_ascii_case("AM") {
                    false
                } else {
                    return None;
                });
                left
            }
            Item::Era => rest.strip_prefix("AD").or_else(|| rest.strip_prefix("CE"))?,
            Item::Offset { .. } => {
                let (seconds, left) = read_offset(rest)?;
                parts.offset_seconds = Some(seconds);
                left
            }
            Item::Zone => read_zone(rest, parts)?,
            Item::Optional(inner) => {
                let mut attempt = parts.clone();
                match read(inner, rest, &mut attempt) {
                    Some(left) => {
                        *parts = attempt;
                        left
                    }
                    None => rest,
                }
            }
        };
    }
    Some(rest)
}

fn digit_run(text: &str, max: usize) -> usize {
    text.bytes().take(max).take_while(u8::is_ascii_digit).count()
}

fn fraction(digits: &str) -> Option<u32> {
    let value: u32 = digits.parse().ok()?;
    Some(value * 10u32.pow(9 - digits.len() as u32))
}

fn read_number<'t>(part: Part, min: usize, max: usize, text: &'t str, parts: &mut Parts) -> Option<&'t str> {
    let (negative, digits_at) = match text.as_bytes().first() {
        Some(b'-') if part == Part::Year && min != max => (true, 1),
        Some(b'+') if part == Part::Year && min != max => (false, 1),
        _ => (false, 0),
    };
    let body = &text[digits_at..];
    let run = digit_run(body, max);
    // More than four digits of a year need a sign, so that `yyyy` does not swallow `yyyyMMdd`.
    if run < min || (part == Part::Year && min != max && run > 4 && digits_at == 0) {
        return None;
    }
    let value: i64 = body[..run].parse().ok()?;
    let small = value as u32;
    let within = |low: u32, high: u32| (value >= i64::from(low) && value <= i64::from(high)).then_some(small);
    match part {
        Part::Year => parts.year = Some(if negative { -value } else { value }),
        Part::YearOfTwoDigits => parts.year = Some(2000 + value),
        Part::WeekYear => parts.week_year = Some(value),
        Part::Month => parts.month = Some(within(1, 12)?),
        Part::Day => parts.day = Some(within(1, 31)?),
        Part::DayOfYear => parts.day_of_year = Some(within(1, 366)?),
        Part::Week => parts.week = Some(within(1, 53)?),
        Part::Weekday => parts.weekday = Some(within(1, 7)?),
        Part::Hour => parts.hour = Some(within(0, 23)?),
        Part::ClockHour => parts.hour = Some(within(1, 24)? % 24),
        Part::Hour12 => parts.hour12 = Some(within(0, 12)? % 12),
        Part::Minute => parts.minute = Some(within(0, 59)?),
        Part::Second => parts.second = Some(within(0, 59)?),
        Part::Nano => parts.nanos = Some(within(0, 999_999_999)?),
        Part::MilliOfDay => parts.milli_of_day = Some(within(0, 86_399_999)?),
    }
    Some(&body[run..])
}

fn read_name<'t>(names: &[&str], full: bool, text: &'t str) -> Option<(u32, &'t str)> {
    for (index, name) in names.iter().enumerate() {
        let name = if full { name } else { &name[..3] };
        if text.get(..name.len()).is_some_and(|head| head.eq_ignore_ascii_case(name)) {
            return Some((index as u32, &text[name.len()..]));
        }
    }
    None
}

/// Reads `Z`, `+HH`, `+HHMM`, `+HH:MM` or `+HH:MM:SS`.
pub(super) fn read_offset(text: &str) -> Option<(i32, &str)> {
    if let Some(left) = text.strip_prefix('Z') {
        return Some((0, left));
    }
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let two = |text: &str| -> Option<i32> {
        let head = text.get(..2)?;
        head.bytes().all(|b| b.is_ascii_digit()).then(|| head.parse().ok())?
    };
    let mut rest = &text[1..];
    let hours = two(rest)?;
    rest = &rest[2..];
    let mut seconds = hours * 3600;
    for unit in [60, 1] {
        let after = rest.strip_prefix(':').unwrap_or(rest);
        let Some(value) = two(after) else { break };
        if value > 59 {
            return None;
        }
        seconds += value * unit;
        rest = &after[2..];
    }
    (seconds <= 18 * 3600).then_some((sign * seconds, rest))
}

fn read_zone<'t>(text: &'t str, parts: &mut Parts) -> Option<&'t str> {
    if let Some((seconds, left)) = read_offset(text) {
        parts.offset_seconds = Some(seconds);
        return Some(left);
    }
    let end = text
        .bytes()
        .position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'/' | b'_' | b'-' | b'+')))
        .unwrap_or(text.len());
    let (name, left) = text.split_at(end);
    if matches!(name, "UTC" | "GMT" | "UT") {
        parts.offset_seconds = Some(0);
        return Some(left);
    }
    if let Some((_, offset)) = name.split_at_checked(3).filter(|(head, _)| matches!(*head, "UTC" | "GMT")) {
        let (seconds, "") = read_offset(offset)? else { return None };
        parts.offset_seconds = Some(seconds);
        return Some(left);
    }
    parts.zone = Some(name.parse().ok()?);
    Some(left)
}

/// Writes a UTC instant, given as days and nanoseconds of the day, by items.
pub(super) fn write(items: &[Item], days: i64, nanos_of_day: i64, zone: (i32, &str), out: &mut String) {
    use std::fmt::Write;
    let (year, month, day) = calendar::civil_from_days(days);
    let seconds = nanos_of_day / 1_000_000_000;
    let nanos = nanos_of_day % 1_000_000_000;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    for item in items {
        // Writing to a String does not fail.
        let _ = match item {
            Item::Literal(literal) => out.write_str(literal),
            Item::Number { part, pad, .. } => {
                let (value, width) = match part {
                    Part::Year => (year, 4),
                    Part::YearOfTwoDigits => (year.rem_euclid(100), 2),
                    Part::Month => (i64::from(month), *pad),
                    Part::Day => (i64::from(day), *pad),
                    Part::DayOfYear => (days - calendar::days_from_civil(year, 1, 1) + 1, *pad),
                    Part::WeekYear => (calendar::iso_week(days).0, 4),
                    Part::Week => (i64::from(calendar::iso_week(days).1), *pad),
                    Part::Weekday => (i64::from(calendar::iso_weekday(days)), 1),
                    Part::Hour => (hour, *pad),
                    Part::ClockHour => (if hour == 0 { 24 } else { hour }, *pad),
                    Part::Hour12 => (if hour % 12 == 0 { 12 } else { hour % 12 }, *pad),
                    Part::Minute => (minute, *pad),
                    Part::Second => (second, *pad),
                    Part::Nano => (nanos, *pad),
                    Part::MilliOfDay => (nanos_of_day / 1_000_000, *pad),
                };
                match part {
                    // As Java does, so that no digit of a long year is taken for one of the month.
                    Part::Year | Part::WeekYear if value > 9_999 => write!(out, "+{value}"),
                    _ => write!(out, "{value:0width$}"),
                }
            }
            Item::Fraction(digits) => {
                write!(out, "{:0width$}", nanos / 10i64.pow(9 - *digits as u32), width = *digits)
            }
            Item::AnyFraction if nanos % 1_000_000 == 0 => write!(out, ".{:03}", nanos / 1_000_000),
            Item::AnyFraction => {
                let digits = format!("{nanos:09}");
                write!(out, ".{}", digits.trim_end_matches('0'))
            }
            Item::MonthName { full } => {
                let name = MONTHS[month as usize - 1];
                out.write_str(if *full { name } else { &name[..3] })
            }
            Item::DayName { full } => {
                let name = DAYS[calendar::iso_weekday(days) as usize - 1];
                out.write_str(if *full { name } else { &name[..3] })
            }
            Item::AmPm => out.write_str(if hour < 12 { "AM" } else { "PM" }),
            Item::Era => out.write_str("AD"),
            Item::Offset { zulu: true, .. } if zone.0 == 0 => out.write_str("Z"),
            Item::Offset { colon, .. } => {
                let (sign, minutes) = (if zone.0 < 0 { '-' } else { '+' }, zone.0.abs() / 60);
                let between = if *colon { ":" } else { "" };
                write!(out, "{sign}{:02}{between}{:02}", minutes / 60, minutes % 60)
            }
            Item::Zone => out.write_str(zone.1),
            Item::Optional(inner) => {
                write(inner, days, nanos_of_day, zone, out);
                Ok(())
            }
        };
    }
}
