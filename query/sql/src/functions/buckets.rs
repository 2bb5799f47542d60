//! Functions that find the bucket of a value: a range of numbers or of time.

use chrono::{Datelike, NaiveDate};

use super::Definition;
use super::primitive_kernels;
use super::row::{Context, Val};
use super::time::{self, DAY, MICRO, SECOND};
use crate::types::SqlType::{self, Date, Double, Keyword, Long, Time, Undefined};
use crate::types::TIMESTAMP;

type Answer<'a> = Result<Val<'a>, String>;

/// Finds a function.
pub(super) fn find(name: &str) -> Option<Definition> {
    Some(match name {
        "time_bucket" => {
            Definition::new(time_bucket_types, time_bucket).with_kernel(primitive_kernels::time_bucket)
        }
        "time_bucket_from" => Definition::new(
            |types| match types {
                [value, count, unit, origin] if origin.is_integer() => {
                    let (mut wanted, ty) = time_bucket_types(&[*value, *count, *unit])?;
                    wanted.push(Long);
                    Some((wanted, ty))
                }
                _ => None,
            },
            time_bucket_from,
        ),
        "time_bin_width" => Definition::new(time_bin_width_types, time_bin_width),
        "time_bin" => Definition::new(time_bin_types, time_bin),
        "bin_label" => Definition::new(
            |types| numbers(types, 2, Keyword),
            |args, _| Ok(bin(args).map_or(Val::Null, |(start, end)| label(start, end))),
        ),
        "decimal_bin_label" => Definition::new(
            |types| numbers(types, 2, Keyword),
            |args, _| Ok(bin(args).map_or(Val::Null, |(start, end)| decimal_label(start, end))),
        ),
        "log_bin_label" => Definition::new(|types| numbers(types, 3, Keyword), log_bin_label),
        "bin_width" => Definition::with_nulls(|types| numbers(types, 5, Double), bin_width),
        "minspan_width" => Definition::new(|types| numbers(types, 3, Double), minspan_width),
        "range_width" => Definition::with_nulls(|types| numbers(types, 4, Double), range_width),
        _ => return None,
    })
}

fn numbers(types: &[SqlType], count: usize, ty: SqlType) -> Option<(Vec<SqlType>, SqlType)> {
    let fits = types.len() == count && types.iter().all(|ty| ty.is_number() || *ty == Undefined);
    fits.then(|| (vec![Double; count], ty))
}

/// Returns the type in which a moment is put into buckets.
fn moment(ty: SqlType) -> Option<SqlType> {
    match ty {
        Date | Time => Some(ty),
        ty if ty.is_temporal() => Some(ty.finest()),
        ty if ty.is_string() || ty == Undefined => Some(TIMESTAMP),
        _ => None,
    }
}

fn time_bucket_types(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    let [value, count, unit] = types else { return None };
    let ty = moment(*value)?;
    (count.is_integer() && unit.is_string()).then(|| (vec![ty, Long, Keyword], ty))
}

fn time_bin_width_types(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    let [least, greatest, bins] = types else { return None };
    let fits = moment(*least).is_some() && moment(*greatest).is_some() && bins.is_integer();
    fits.then(|| (vec![TIMESTAMP, TIMESTAMP, Long], Long))
}

fn time_bin_types(types: &[SqlType]) -> Option<(Vec<SqlType>, SqlType)> {
    let [value, width] = types else { return None };
    let ty = moment(*value)?;
    width.is_integer().then(|| (vec![ty, Long], ty))
}

/// Microseconds of a unit of fixed length.
pub(super) fn fixed(unit: &str) -> Option<i64> {
    Some(match unit {
        "us" => 1,
        "ms" => 1_000,
        "cs" => 10_000,
        "ds" => 100_000,
        "s" => SECOND,
        "m" => 60 * SECOND,
        "h" => 3_600 * SECOND,
        "d" => DAY,
        _ => return None,
    })
}

/// Returns the start of the bucket of some units that a moment is in, both in microseconds; `None` beyond the calendar.
pub(crate) fn bucket_start(at: i64, count: i64, unit: &str) -> Option<i64> {
    match fixed(unit) {
        Some(micros) => micros.checked_mul(count).map(|width| at.div_euclid(width) * width),
        None => calendar_start(at, count, unit),
    }
}

/// Returns the start of the bucket of some units that a moment is in. Buckets of fixed length begin at 1970, weeks on Mondays.
fn time_bucket<'a>(args: &[Val<'a>], _: Context) -> Answer<'a> {
    let [value, count, unit] = args else { return Ok(Val::Null) };
    let (count, unit) = (count.int().max(1), unit.text());
    let at = match value {
        Val::Timestamp(nanos) => time::whole_micros(*nanos),
        Val::Date(days) => i64::from(*days) * DAY,
        Val::Time(micros) => *micros,
        _ => return Ok(Val::Null),
    };
    let start = bucket_start(at, count, unit);
    // Years beyond the calendar have no start: one such document fails no statement.
    if start.is_none() && matches!(unit, "M" | "q" | "y") && count < 10_000 {
        return Ok(Val::Null);
    }
    let start = start.ok_or_else(|| format!("the span of [{count}{unit}] is out of range"))?;
    Ok(match value {
        Val::Date(_) => i32::try_from(start.div_euclid(DAY)).map_or(Val::Null, Val::Date),
        Val::Time(_) => Val::Time(start),
        _ => Val::Timestamp(time::nanos_of(start)),
    })
}

/// Returns the start of a bucket of fixed length; some bucket begins at a time in microseconds.
fn time_bucket_from<'a>(args: &[Val<'a>], context: Context) -> Answer<'a> {
    let [value, count, unit, origin] = args else { return Ok(Val::Null) };
    let width = fixed(unit.text()).and_then(|micros| micros.checked_mul(count.int().max(1)));
    match (value, width) {
        (Val::Timestamp(nanos), Some(width)) => {
            let (at, origin) = (time::whole_micros(*nanos), origin.int());
            let start = at.checked_sub(origin).map(|from| from.div_euclid(width) * width + origin);
            let start = start.ok_or_else(|| "the start of the buckets is out of range".to_owned())?;
            Ok(Val::Timestamp(time::nanos_of(start)))
        }
        // Months have no fixed length, and days no other start.
        _ => time_bucket(&[value.clone(), count.clone(), unit.clone()], context),
    }
}

fn calendar_start(at: i64, count: i64, unit: &str) -> Option<i64> {
    let days = i32::try_from(at.div_euclid(DAY)).ok()?;
    if unit == "w" {
        // 1970 began on a Thursday.
        let week = (i64::from(days) + 3).div_euclid(7).div_euclid(count).checked_mul(count)?;
        return week.checked_mul(7)?.checked_sub(3)?.checked_mul(DAY);
    }
    let months = count.checked_mul(match unit {
        "M" => 1,
        "q" => 3,
        "y" => 12,
        _ => return None,
    })?;
    let date = time::calendar(days);
    let number = (i64::from(date.year()) - 1970) * 12 + i64::from(date.month0());
    let start = number.div_euclid(months).checked_mul(months)?;
    let year = i32::try_from(start.div_euclid(12) + 1970).ok()?;
    let date = NaiveDate::from_ymd_opt(year, u32::try_from(start.rem_euclid(12)).ok()? + 1, 1)?;
    time::days(date).map(|days| i64::from(days) * DAY)
}

/// Lengths of buckets of time that `bins` chooses from, in seconds.
const TIME_WIDTHS: &[i64] = &[
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200, 86_400,
    172_800, 604_800, 2_592_000, 7_776_000, 31_536_000,
];

/// Returns the least length of time, in microseconds, that makes at most so many buckets of a range.
fn time_bin_width<'a>(args: &[Val<'a>], _: Context) -> Answer<'a> {
    let [Val::Timestamp(least), Val::Timestamp(greatest), bins] = args else { return Ok(Val::Null) };
    let range = time::whole_micros(greatest - least);
    let fits = |seconds: &&i64| range / (**seconds * SECOND) < bins.int().max(1);
    let seconds = TIME_WIDTHS.iter().find(fits).or(TIME_WIDTHS.last()).copied().unwrap_or(1);
    Ok(Val::Int(seconds * SECOND))
}

fn time_bin<'a>(args: &[Val<'a>], _: Context) -> Answer<'a> {
    let [value, width] = args else { return Ok(Val::Null) };
    let width = width.int().max(1);
    Ok(match value {
        Val::Timestamp(nanos) => {
            let start = time::whole_micros(*nanos).div_euclid(width) * width;
            Val::Timestamp(i128::from(start) * MICRO)
        }
        Val::Date(days) => {
            let start = (i64::from(*days) * DAY).div_euclid(width) * width;
            i32::try_from(start.div_euclid(DAY)).map_or(Val::Null, Val::Date)
        }
        Val::Time(micros) => Val::Time(micros.div_euclid(width) * width),
        _ => Val::Null,
    })
}

/// Writes a bound of a bucket.
fn shown(number: f64) -> String {
    match number.fract() == 0.0 && number.abs() < 1e15 {
        true => format!("{number:.0}"),
        false => {
            // Sums of decimal fractions have digits that nobody wrote.
            let rounded = (number * 1e9).round() / 1e9;
            rounded.to_string()
        }
    }
}

fn label<'a>(start: f64, end: f64) -> Val<'a> {
    Val::str(format!("{}-{}", shown(start), shown(end)))
}

/// Writes a range of decimal numbers, which have a point.
fn decimal_label<'a>(start: f64, end: f64) -> Val<'a> {
    let decimal = |number: f64| {
        let text = shown(number);
        if text.contains('.') { text } else { text + ".0" }
    };
    Val::str(format!("{}-{}", decimal(start), decimal(end)))
}

/// Finds the bucket of a number.
fn bin(args: &[Val<'_>]) -> Option<(f64, f64)> {
    let [value, width] = args else { return None };
    let (value, width) = (value.float(), width.float());
    let start = (value / width).floor() * width;
    (width > 0.0 && value.is_finite()).then_some((start, start + width))
}

/// Least base of logarithms: buckets of lesser ones have the same bounds when they are written.
const MIN_BASE: f64 = 1.001;

/// Writes the bucket of a number between `coefficient * base^n` and the next power.
fn log_bin_label<'a>(args: &[Val<'a>], _: Context) -> Answer<'a> {
    let [value, coefficient, base] = args else { return Ok(Val::Null) };
    let (value, coefficient, base) = (value.float(), coefficient.float(), base.float());
    if base < MIN_BASE {
        return Err(format!("the base [{base}] of a logarithmic span is less than {MIN_BASE}"));
    }
    if value <= 0.0 || coefficient <= 0.0 {
        return Ok(Val::Null);
    }
    let mut power = (value / coefficient).log(base).floor();
    if ![value, coefficient, base, power].into_iter().all(f64::is_finite) {
        return Ok(Val::Null);
    }
    // Logarithms are rounded: the bounds decide, and they are at most one power away.
    if coefficient * base.powf(power + 1.0) <= value {
        power += 1.0;
    } else if coefficient * base.powf(power) > value {
        power -= 1.0;
    }
    Ok(decimal_label(coefficient * base.powf(power), coefficient * base.powf(power + 1.0)))
}

/// Returns the range of the values, widened by limits of the user.
fn range(args: &[Val<'_>]) -> Option<(f64, f64)> {
    let [least, greatest, limits @ ..] = args else { return None };
    if [least, greatest].into_iter().any(|end| *end == Val::Null) {
        return None;
    }
    let limit = |at: usize| limits.get(at).filter(|limit| **limit != Val::Null).map(Val::float);
    let start = limit(0).map_or(least.float(), |start| start.min(least.float()));
    let end = limit(1).map_or(greatest.float(), |end| end.max(greatest.float()));
    Some((start, end))
}

/// Returns the least power of ten that makes at most so many buckets of a range.
fn bin_width<'a>(args: &[Val<'a>], _: Context) -> Answer<'a> {
    let [least, greatest, bins, limits @ ..] = args else { return Ok(Val::Null) };
    let ends: Vec<Val<'a>> = [least, greatest].into_iter().chain(limits).cloned().collect();
    let Some((start, end)) = range(&ends) else { return Ok(Val::Null) };
    let most = bins.int().max(1) as f64;
    for power in -3..=15 {
        let width = 10f64.powi(power);
        let mut buckets = ((end - start) / width).ceil();
        if end % width == 0.0 {
            buckets += 1.0;
        }
        if buckets <= most {
            return Ok(Val::Float(width));
        }
    }
    Ok(Val::Float((end - start) / most))
}

fn minspan_width<'a>(args: &[Val<'a>], _: Context) -> Answer<'a> {
    let [least, greatest, minspan] = args else { return Ok(Val::Null) };
    let range = greatest.float() - least.float();
    if minspan.float() <= 0.0 {
        return Ok(Val::Null);
    }
    let least_width = 10f64.powf(minspan.float().log10().ceil());
    let width = 10f64.powf(range.log10().floor());
    Ok(Val::Float(if range > 0.0 && width >= minspan.float() { width } else { least_width }))
}

fn range_width<'a>(args: &[Val<'a>], _: Context) -> Answer<'a> {
    let Some((start, end)) = range(args) else { return Ok(Val::Null) };
    let range = end - start;
    Ok(Val::Float(if range > 0.0 { 10f64.powf(range.log10().floor()) } else { 1.0 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, args: &[Val<'static>]) -> Val<'static> {
        (find(name).unwrap().eval)(args, Context { now: 0, ty: Keyword }).unwrap()
    }

    #[test]
    fn buckets_of_time_begin_with_the_calendar() {
        let at = |text: &str| Val::Timestamp(time::instant(text).unwrap());
        for (count, unit, expected) in [
            (5, "m", "2024-08-14 13:40:00"),
            (1, "d", "2024-08-14 00:00:00"),
            (1, "w", "2024-08-12 00:00:00"),
            (1, "M", "2024-08-01 00:00:00"),
            (1, "q", "2024-07-01 00:00:00"),
            (2, "y", "2024-01-01 00:00:00"),
        ] {
            let start = run("time_bucket", &[at("2024-08-14 13:42:11"), Val::Int(count), Val::str(unit)]);
            assert_eq!(start, at(expected), "{count}{unit}");
        }
    }

    #[test]
    fn buckets_of_numbers_are_ranges() {
        let number = |number: f64| Val::Float(number);
        assert_eq!(run("bin_label", &[number(-3.0), number(10.0)]), Val::str("-10-0"));
        assert_eq!(run("bin_label", &[number(0.35), number(0.1)]), Val::str("0.3-0.4"));
        assert_eq!(
            run("log_bin_label", &[number(1_000.0), number(1.0), number(10.0)]),
            Val::str("1000.0-10000.0")
        );
        let log = |value: f64, coefficient: f64, base: f64| {
            let args = [number(value), number(coefficient), number(base)];
            (find("log_bin_label").unwrap().eval)(&args, Context { now: 0, ty: Keyword })
        };
        assert_eq!(log(8.0, 1.0, 2.0), Ok(Val::str("8.0-16.0")));
        assert!(log(2.0, 1.0, 1.0 + f64::EPSILON).is_err());
        assert_eq!(log(f64::MAX, f64::MIN_POSITIVE, 10.0), Ok(Val::Null));
        assert_eq!(log(f64::INFINITY, 1.0, 10.0), Ok(Val::Null));
        let width =
            |bins| run("bin_width", &[number(20.0), number(40.0), number(bins), Val::Null, Val::Null]);
        assert_eq!((width(3.0), width(2.0)), (number(10.0), number(100.0)));
    }
}
