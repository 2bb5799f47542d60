//! Functions that convert values: numbers and texts, durations, sizes, and times as seconds.

use std::net::IpAddr;

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime};

use super::row::{Context, Val};
use super::time;
use super::{Definition, shown};
use crate::types::SqlType::{self, Boolean, Double, Keyword, Undefined};

type Answer<'a> = Result<Val<'a>, String>;

/// Finds a function.
pub(super) fn find(name: &str) -> Option<Definition> {
    Some(match name {
        "tonumber" => Definition::new(tonumber_types, tonumber),
        "tostring" => Definition::new(tostring_types, tostring),
        "convert_auto" => Definition::new(number_or_text, |args, _| {
            Ok(number(first(args)).or_else(|| memk(&text(args))).map_or(Val::Null, Val::Float))
        }),
        "convert_num" => Definition::new(number_or_text, |args, _| {
            let read = number(first(args)).or_else(|| parsed(&text(args).replace(',', "")));
            Ok(read.map_or(Val::Null, Val::Float))
        }),
        "convert_memk" => {
            Definition::new(number_or_text, |args, _| Ok(memk(&text(args)).map_or(Val::Null, Val::Float)))
        }
        "convert_rmunit" => Definition::new(number_or_text, |args, _| {
            Ok(without_unit(&text(args)).map_or(Val::Null, Val::Float))
        }),
        "convert_rmcomma" => Definition::new(number_or_text, |args, _| {
            Ok(parsed(&text(args).replace(',', "")).map_or(Val::Null, Val::Float))
        }),
        "convert_mstime" => {
            Definition::new(number_or_text, |args, _| Ok(minutes(&text(args)).map_or(Val::Null, Val::Float)))
        }
        "convert_dur2sec" => {
            Definition::new(number_or_text, |args, _| Ok(duration(&text(args)).map_or(Val::Null, Val::Float)))
        }
        "convert_ctime" => Definition::new(with_format, |args, _| {
            let [value, format] = args else { return Ok(Val::Null) };
            let seconds = match value {
                Val::Timestamp(nanos) => Some(*nanos as f64 / 1e9),
                other => number(other),
            };
            Ok(seconds.and_then(at_seconds).map_or(Val::Null, |at| Val::str(formatted(at, format.text()))))
        }),
        "convert_mktime" => Definition::new(
            |types| with_format(types).map(|(wanted, _)| (wanted, Double)),
            |args, _| {
                let [value, format] = args else { return Ok(Val::Null) };
                let text = shown(value);
                let parsed = NaiveDateTime::parse_from_str(&text, format.text()).or_else(|_| {
                    NaiveDate::parse_from_str(&text, format.text()).map(|date| date.and_time(NaiveTime::MIN))
                });
                let seconds = parsed.ok().map(|at| at.and_utc().timestamp() as f64);
                Ok(seconds.or_else(|| number(value)).map_or(Val::Null, Val::Float))
            },
        ),
        "strftime" => Definition::new(strftime_types, |args, _| {
            let [value, format] = args else { return Ok(Val::Null) };
            let seconds = match value {
                Val::Timestamp(nanos) => Some(*nanos as f64 / 1e9),
                Val::Date(days) => Some(f64::from(*days) * 86_400.0),
                Val::Str(text) if parsed(text).is_none() => {
                    let at = time::instant(text).ok_or_else(|| {
                        format!(
                            "timestamp:{text} in unsupported format, please use 'yyyy-MM-dd HH:mm:ss[.SSSSSSSSS]'"
                        )
                    })?;
                    Some(at as f64 / 1e9)
                }
                // Long numbers are milliseconds.
                other => number(other).map(|number| if number.abs() >= 1e11 { number / 1e3 } else { number }),
            };
            Ok(seconds.and_then(at_seconds).map_or(Val::Null, |at| Val::str(formatted(at, format.text()))))
        }),
        "cidrmatch" => Definition::new(
            |types| match types {
                [address, range] if !address.is_json() && range.is_string() => {
                    Some((vec![Keyword, Keyword], Boolean))
                }
                _ => None,
            },
            |args, _| {
                let [address, range] = args else { return Ok(Val::Null) };
                let refused = || format!("[{}] is no range of addresses", range.text());
                let (first, length) = range.text().split_once('/').ok_or_else(refused)?;
                let first: IpAddr = first.parse().map_err(|_| refused())?;
                let length: u32 = length.parse().map_err(|_| refused())?;
                let address: IpAddr = match address.text().parse() {
                    Ok(address) => address,
                    Err(_) => return Ok(Val::Bool(false)),
                };
                Ok(Val::Bool(match (first, address) {
                    (IpAddr::V4(first), IpAddr::V4(address)) => {
                        let shift = 32_u32.checked_sub(length).ok_or_else(refused)?;
                        first.to_bits().checked_shr(shift) == address.to_bits().checked_shr(shift)
                    }
                    (IpAddr::V6(first), IpAddr::V6(address)) => {
                        let shift = 128_u32.checked_sub(length).ok_or_else(refused)?;
                        first.to_bits().checked_shr(shift) == address.to_bits().checked_shr(shift)
                    }
                    _ => false,
                }))
            },
        ),
        "greatest_value" => Definition::with_nulls(alike_types, |args, _| Ok(extreme(args, true))),
        "least_value" => Definition::with_nulls(alike_types, |args, _| Ok(extreme(args, false))),
        _ => return None,
    })
}

fn first<'v, 'a>(args: &'v [Val<'a>]) -> &'v Val<'a> {
    args.first().unwrap_or(&Val::Null)
}

fn text(args: &[Val<'_>]) -> String {
    shown(first(args)).trim().to_owned()
}

fn number_or_text(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    let [one] = types else { return None };
    let fits = one.is_number() || one.is_string() || *one == Undefined;
    fits.then(|| (vec![if one.is_number() { *one } else { Keyword }], Double))
}

fn with_format(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    let [value, format] = types else { return None };
    let wanted = match value {
        ty if ty.is_number() => *ty,
        SqlType::Timestamp(_) => value.finest(),
        ty if ty.is_string() || *ty == Undefined => Keyword,
        _ => return None,
    };
    format.is_string().then(|| (vec![wanted, Keyword], Keyword))
}

fn strftime_types(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    let [value, format] = types else { return None };
    let wanted = match value {
        SqlType::Timestamp(_) => value.finest(),
        SqlType::Date => SqlType::Date,
        ty if ty.is_number() => *ty,
        ty if *ty == Undefined => Double,
        ty if ty.is_string() => Keyword,
        _ => return None,
    };
    format.is_string().then(|| (vec![wanted, Keyword], Keyword))
}

fn tonumber_types(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    match types {
        [one] if one.is_number() || one.is_string() || *one == Undefined => {
            Some((vec![if one.is_number() { *one } else { Keyword }], Double))
        }
        [one, base] if (one.is_string() || *one == Undefined) && base.is_integer() => {
            Some((vec![Keyword, SqlType::Long], Double))
        }
        _ => None,
    }
}

fn tonumber<'a>(args: &[Val<'a>], _: Context) -> Answer<'a> {
    Ok(match args {
        [value] => number(value).map_or(Val::Null, Val::Float),
        [value, base] => {
            let base = u32::try_from(base.int()).ok().filter(|base| (2..=36).contains(base));
            let base = base.ok_or("tonumber takes a base from 2 to 36")?;
            i64::from_str_radix(value.text().trim(), base)
                .map_or(Val::Null, |number| Val::Float(number as f64))
        }
        _ => Val::Null,
    })
}

fn tostring_types(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    let own = |ty: SqlType| if ty.is_number() || ty == Boolean { ty } else { Keyword };
    match types {
        [one] => Some((vec![own(*one)], Keyword)),
        [one, format] if format.is_string() => Some((vec![own(*one), Keyword], Keyword)),
        _ => None,
    }
}

fn tostring<'a>(args: &[Val<'a>], _: Context) -> Answer<'a> {
    let [value, format @ ..] = args else { return Ok(Val::Null) };
    let Some(format) = format.first() else {
        return Ok(Val::str(match value {
            Val::Bool(flag) => flag.to_string().to_uppercase(),
            other => shown(other),
        }));
    };
    let Some(number) = number(value) else { return Ok(Val::str(shown(value))) };
    Ok(Val::str(match format.text().to_ascii_lowercase().as_str() {
        "binary" => format!("{:b}", number as i64),
        "hex" => format!("{:x}", number as i64),
        "commas" => with_commas(number, !matches!(value, Val::Int(_))),
        "duration" => clock(number as i64),
        "duration_millis" => clock((number / 1_000.0) as i64),
        _ => return Ok(Val::Null),
    }))
}

/// Writes seconds as hours, minutes and seconds.
fn clock(seconds: i64) -> String {
    format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// Writes a number with commas between thousands, and at most two digits behind the point.
fn with_commas(number: f64, is_decimal: bool) -> String {
    let rounded = (number * 100.0).round() / 100.0;
    let digits = format!("{:.0}", rounded.abs().trunc());
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if is_decimal && rounded.fract() != 0.0 {
        let fraction = format!("{:.2}", rounded.abs().fract());
        out.push_str(fraction.trim_start_matches('0').trim_end_matches('0'));
    }
    if rounded < 0.0 { format!("-{out}") } else { out }
}

/// Reads a number.
fn number(value: &Val<'_>) -> Option<f64> {
    match value {
        Val::Int(_) | Val::Float(_) | Val::Bool(_) => Some(value.float()),
        Val::Str(text) => parsed(text),
        _ => None,
    }
}

fn parsed(text: &str) -> Option<f64> {
    let text = text.trim();
    let is_plain =
        text.starts_with(|letter: char| letter.is_ascii_digit() || matches!(letter, '-' | '+' | '.'));
    text.parse().ok().filter(|number: &f64| is_plain && number.is_finite())
}

/// Splits a text behind the number that it begins with.
fn split_number(text: &str) -> (Option<f64>, &str) {
    let is_part = |letter: char| letter.is_ascii_digit() || matches!(letter, '.' | '-' | '+');
    let end = text.find(|letter| !is_part(letter)).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    (parsed(number), rest)
}

/// Reads a size, such as `10m`, in kilobytes.
fn memk(text: &str) -> Option<f64> {
    let (number, unit) = split_number(text);
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "k" => 1.0,
        "m" => 1_024.0,
        "g" => 1_048_576.0,
        _ => return None,
    };
    number.map(|number| number * factor)
}

fn without_unit(text: &str) -> Option<f64> {
    let (number, _) = split_number(text);
    number
}

/// Reads `MM:SS.fraction` as seconds.
fn minutes(text: &str) -> Option<f64> {
    match text.split_once(':') {
        Some((minutes, seconds)) => {
            let (minutes, seconds) = (parsed(minutes)?, parsed(seconds)?);
            (0.0..60.0).contains(&seconds).then_some(minutes * 60.0 + seconds)
        }
        None => parsed(text),
    }
}

/// Reads `D+HH:MM:SS` as seconds.
fn duration(text: &str) -> Option<f64> {
    let (days, clock) = match text.split_once('+') {
        Some((days, clock)) if !days.is_empty() => (parsed(days)?, clock),
        _ => (0.0, text),
    };
    let parts: Vec<&str> = clock.split(':').collect();
    let [hours, minutes, seconds] = parts.as_slice() else { return parsed(text) };
    let (hours, minutes, seconds) = (parsed(hours)?, parsed(minutes)?, parsed(seconds)?);
    let fits = hours < 24.0 && minutes < 60.0 && seconds < 60.0;
    fits.then_some(days * 86_400.0 + hours * 3_600.0 + minutes * 60.0 + seconds)
}

fn at_seconds(seconds: f64) -> Option<NaiveDateTime> {
    let micros = seconds * 1e6;
    (micros.abs() < 9e18).then(|| DateTime::from_timestamp_micros(micros as i64))?.map(|at| at.naive_utc())
}

/// Writes a time in a format of `strftime`.
fn formatted(at: NaiveDateTime, format: &str) -> String {
    use std::fmt::Write;
    let mut format = format.replace("%N", "%f").replace("%Q", "%3f");
    for digits in ["3", "6", "9"] {
        let known = format!("%{digits}f");
        format = format.replace(&format!("%{digits}Q"), &known).replace(&format!("%{digits}N"), &known);
    }
    let mut out = String::new();
    match write!(out, "{}", at.and_utc().format(&format)) {
        Ok(()) => out,
        // The format has a letter that stands for nothing.
        Err(_) => time::formatted(at, &format),
    }
}

fn alike_types(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    let ty = types.iter().try_fold(Undefined, |ty, other| ty.common(*other))?;
    (!ty.is_json() && !types.is_empty()).then(|| (vec![ty; types.len()], ty))
}

/// Finds the greatest or the least of values; nulls are left out.
fn extreme<'a>(args: &[Val<'a>], is_greatest: bool) -> Val<'a> {
    let order = |one: &Val<'_>, other: &Val<'_>| match (one, other) {
        (Val::Str(one), Val::Str(other)) => one.cmp(other),
        (Val::Date(one), Val::Date(other)) => one.cmp(other),
        (Val::Time(one), Val::Time(other)) => one.cmp(other),
        (Val::Timestamp(one), Val::Timestamp(other)) => one.cmp(other),
        (Val::Int(one), Val::Int(other)) => one.cmp(other),
        (one, other) => one.float().total_cmp(&other.float()),
    };
    let values = args.iter().filter(|value| **value != Val::Null);
    let found = match is_greatest {
        true => values.max_by(|one, other| order(one, other)),
        false => values.min_by(|one, other| order(one, other)),
    };
    found.cloned().unwrap_or(Val::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, args: &[Val<'static>]) -> Val<'static> {
        (find(name).unwrap().eval)(args, Context { now: 0, ty: Keyword }).unwrap()
    }

    #[test]
    fn texts_become_numbers() {
        for (name, text, expected) in [
            ("convert_memk", "2m", Some(2_048.0)),
            ("convert_rmunit", "12.5ms", Some(12.5)),
            ("convert_rmcomma", "1,234.5", Some(1_234.5)),
            ("convert_mstime", "03:45.5", Some(225.5)),
            ("convert_dur2sec", "1+02:03:04", Some(93_784.0)),
            ("convert_num", "abc", None),
            ("tonumber", "4.2", Some(4.2)),
        ] {
            assert_eq!(run(name, &[Val::str(text)]), expected.map_or(Val::Null, Val::Float), "{name} {text}");
        }
        assert_eq!(run("tonumber", &[Val::str("FF"), Val::Int(16)]), Val::Float(255.0));
    }

    #[test]
    fn numbers_become_texts() {
        let format =
            |number: Val<'static>, format: &'static str| run("tostring", &[number, Val::str(format)]);
        assert_eq!(format(Val::Float(1_234_567.891), "commas"), Val::str("1,234,567.89"));
        assert_eq!(format(Val::Int(255), "hex"), Val::str("ff"));
        assert_eq!(format(Val::Int(3_661), "duration"), Val::str("01:01:01"));
    }
}
