//! Expressions over a time that are the same within a unit of the calendar.

use std::sync::Arc;

use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
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
            [time] if time.is::<Column>() => unit_of_function(call.name()),
            [time, text] if time.is::<Column>() => match (call.name(), literal(text)) {
                ("date_format" | "time_format", Some(format)) => unit_of_format(&format),
                ("week" | "week_of_year" | "weekofyear" | "yearweek", _) if text.is::<Literal>() => {
                    Some(CalendarUnit::Day)
                }
                _ => None,
            },
            [text, time] if time.is::<Column>() && call.name() == "extract" => unit_of_part(&literal(text)?),
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
