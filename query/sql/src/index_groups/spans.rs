//! Expressions over a time that are the same within a unit of the calendar.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column, Literal};
use datafusion::physical_plan::PhysicalExpr;
use millrace_dsl::aggs::CalendarUnit;

/// Finds the longest unit within which an expression has one value, if it has times only as arguments of functions that
/// leave the rest of the time out.
pub(super) fn unit_of(expr: &Arc<dyn PhysicalExpr>) -> Option<CalendarUnit> {
    if expr.is::<Column>() {
        return None;
    }
    if let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>() {
        let own = match call.args() {
            [time] if is_time(time) => unit_of_function(call.name()),
            [time, text] if is_time(time) => match (call.name(), literal(text)) {
                ("date_format" | "time_format", Some(format)) => unit_of_format(&format),
                ("week" | "week_of_year" | "weekofyear" | "yearweek", _) if text.is::<Literal>() => {
                    Some(CalendarUnit::Day)
                }
                _ => None,
            },
            [text, time] if is_time(time) && call.name() == "extract" => unit_of_part(&literal(text)?),
            [time, count, unit] if is_time(time) && count.is::<Literal>() && call.name() == "time_bucket" => {
                unit_of_bucket(&literal(unit)?)
            }
            _ => None,
        };
        if own.is_some() {
            return own;
        }
    }
    let mut shortest = CalendarUnit::Year;
    for child in expr.children() {
        shortest = shortest.min(unit_of(child)?);
    }
    Some(shortest)
}

/// Returns whether an expression is the column of times, perhaps in another resolution.
fn is_time(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let finer = |cast: &CastExpr| {
        matches!(cast.cast_type(), DataType::Timestamp(unit, None) if *unit >= TimeUnit::Millisecond)
            && cast.expr().is::<Column>()
    };
    expr.is::<Column>() || expr.downcast_ref::<CastExpr>().is_some_and(finer)
}

fn literal(expr: &Arc<dyn PhysicalExpr>) -> Option<String> {
    let text = expr.downcast_ref::<Literal>()?.value().try_as_str()??;
    Some(text.to_owned())
}

/// The unit that is left of a time by a function of it alone.
fn unit_of_function(name: &str) -> Option<CalendarUnit> {
    Some(match name {
        "year" => CalendarUnit::Year,
        "quarter" | "month" | "month_of_year" | "monthname" | "last_day" => CalendarUnit::Month,
        "day" | "dayofmonth" | "day_of_month" | "dayofweek" | "day_of_week" | "weekday" | "dayofyear"
        | "day_of_year" | "dayname" | "week" | "week_of_year" | "weekofyear" | "yearweek" | "date"
        | "cast_date" => CalendarUnit::Day,
        "hour" | "hour_of_day" => CalendarUnit::Hour,
        "minute" | "minute_of_hour" | "minute_of_day" => CalendarUnit::Minute,
        _ => return None,
    })
}

/// The unit that lies in one bucket whatever the number of units in it.
fn unit_of_bucket(unit: &str) -> Option<CalendarUnit> {
    Some(match unit {
        "y" | "q" | "M" => CalendarUnit::Month,
        "w" | "d" => CalendarUnit::Day,
        "h" => CalendarUnit::Hour,
        "m" => CalendarUnit::Minute,
        _ => return None,
    })
}

/// The unit that is left of a time by `extract`.
fn unit_of_part(part: &str) -> Option<CalendarUnit> {
    Some(match part.to_ascii_uppercase().as_str() {
        "YEAR" => CalendarUnit::Year,
        "YEAR_MONTH" | "QUARTER" | "MONTH" => CalendarUnit::Month,
        "DAY" | "WEEK" => CalendarUnit::Day,
        "HOUR" | "DAY_HOUR" => CalendarUnit::Hour,
        "MINUTE" | "HOUR_MINUTE" | "DAY_MINUTE" => CalendarUnit::Minute,
        _ => return None,
    })
}

/// The unit that is left of a time by `date_format`.
fn unit_of_format(format: &str) -> Option<CalendarUnit> {
    let mut shortest = CalendarUnit::Year;
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            continue;
        }
        shortest = shortest.min(match letters.next() {
            Some('f' | 'r' | 'S' | 's' | 'T') => return None,
            Some('i') => CalendarUnit::Minute,
            Some('H' | 'h' | 'I' | 'k' | 'l' | 'p') => CalendarUnit::Hour,
            Some('Y' | 'y' | '%') | None => CalendarUnit::Year,
            Some('b' | 'c' | 'M' | 'm') => CalendarUnit::Month,
            Some(_) => CalendarUnit::Day,
        });
    }
    Some(shortest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_constant_within_their_unit() {
        use crate::functions::time::timestamp;
        let start = timestamp("2024-02-29 23:45:00").unwrap();
        for (unit, seconds) in [
            ("y", 86_400),
            ("q", 86_400),
            ("M", 86_400),
            ("w", 86_400),
            ("d", 86_400),
            ("h", 3_600),
            ("m", 60),
        ] {
            for count in [1, 2, 3, 7, 90] {
                let first = start - start.rem_euclid(seconds * 1_000_000);
                let bucket = |micros: i64| crate::functions::buckets::bucket_start(micros, count, unit);
                let is_one =
                    (0..60).all(|part| bucket(first + part * seconds * 1_000_000 / 60) == bucket(first));
                assert!(is_one && unit_of_bucket(unit).is_some(), "{count} {unit}");
            }
        }
        assert_eq!(unit_of_bucket("s"), None);
    }

    /// A format has one value within the unit that is found, with any letters.
    #[test]
    fn formats_are_constant_within_their_unit() {
        use crate::functions::time::{civil, formatted, timestamp};
        let start = timestamp("2024-02-26 13:45:00").unwrap();
        let at = |micros: i64, format: &str| formatted(civil(micros), format);
        for letter in (' '..='~').filter(|letter| letter.is_ascii_alphabetic() || *letter == '%') {
            let format = format!("%{letter}");
            let minute =
                (0..60_000_000).step_by(999_999).all(|more| at(start + more, &format) == at(start, &format));
            let hour = (0..60)
                .all(|more| at(start - 45 * 60_000_000 + more * 60_000_000, &format) == at(start, &format));
            let midnight = start - (13 * 60 + 45) * 60_000_000;
            let day = (0..24).all(|more| at(midnight + more * 3_600_000_000, &format) == at(start, &format));
            let month = (-25..4).all(|more| at(start + more * 86_400_000_000, &format) == at(start, &format));
            let found = unit_of_format(&format);
            assert_eq!(found.is_some(), minute, "{format}");
            for (unit, constant) in
                [(CalendarUnit::Hour, hour), (CalendarUnit::Day, day), (CalendarUnit::Month, month)]
            {
                assert!(found.is_none_or(|found| found < unit) || constant, "{format} {unit:?}");
            }
        }
        assert_eq!(unit_of_format("%Y-%m-%d %H:%i"), Some(CalendarUnit::Minute));
        assert_eq!(unit_of_format("%Y-%m-%d %T"), None);
    }
}
