//! Times and durations of scripts: `ZonedDateTime`, `Instant`, `Duration` and `ChronoUnit`.

use chrono::{DateTime, Datelike as _, FixedOffset, TimeDelta, Utc};

use super::evaluate::Machine;
use super::memory::Operand;
use super::static_function::StaticFunction;
use super::tree::Node;
use crate::error::{ProcessorError, Result};

const NANOS_PER_SECOND: i64 = 1_000_000_000;
/// Largest year of a time, so that it has a local time in each zone.
const MAX_YEAR: i32 = 200_000;

/// Nanoseconds of the units in the names of methods such as `plusSeconds`.
const UNITS: [(&str, i64); 6] = [
    ("Nanos", 1),
    ("Millis", 1_000_000),
    ("Seconds", NANOS_PER_SECOND),
    ("Minutes", 60 * NANOS_PER_SECOND),
    ("Hours", 3_600 * NANOS_PER_SECOND),
    ("Days", 86_400 * NANOS_PER_SECOND),
];

/// Returns a time that is within bounds.
fn within_years(time: Option<DateTime<FixedOffset>>) -> Option<Operand> {
    time.filter(|time| time.to_utc().year().abs() <= MAX_YEAR).map(Operand::Time)
}

/// Returns the nanoseconds of the unit behind a prefix of a method's name.
fn method_unit(name: &str, prefix: &str) -> Option<i64> {
    let unit = name.strip_prefix(prefix)?;
    UNITS.iter().find(|(known, _)| *known == unit).map(|(_, nanos)| *nanos)
}

fn nanos_between(from: &DateTime<FixedOffset>, to: &DateTime<FixedOffset>) -> Option<i64> {
    to.signed_duration_since(from).num_nanoseconds()
}

impl Machine<'_> {
    fn overflow(&self, node: &Node) -> ProcessorError {
        self.fail(node, "arithmetic_exception", "long overflow")
    }

    /// Calls a function of times; `None` where it does not take the arguments.
    pub(super) fn call_static_time(
        &mut self,
        node: &Node,
        function: StaticFunction,
        arguments: &[Operand],
    ) -> Result<Option<Operand>> {
        use StaticFunction as F;
        if let Some(nanos) = function.unit() {
            return Ok(Some(Operand::Duration(nanos)));
        }
        let utc = |time: Option<DateTime<Utc>>| within_years(time.map(|time| time.fixed_offset()));
        Ok(match (function, arguments) {
            (F::ParseTime, [text @ (Operand::Text(_) | Operand::Null)]) => {
                let text = self.text_of(text)?;
                let parsed = DateTime::parse_from_rfc3339(&text).map_err(|_| {
                    let reason = format!("Text '{text}' could not be parsed");
                    self.fail(node, "date_time_parse_exception", &reason)
                })?;
                Some(Operand::Time(parsed))
            }
            (F::InstantOf, [Operand::Time(time), Operand::Text(_)]) => utc(Some(time.to_utc())),
            (F::OfEpochMilli, [Operand::Int(number)]) => utc(DateTime::from_timestamp_millis(*number)),
            (F::OfEpochSecond, [Operand::Int(number)]) => utc(DateTime::from_timestamp(*number, 0)),
            (F::Utc, []) => Some(Operand::Text("Z".into())),
            (F::DurationBetween, [Operand::Time(from), Operand::Time(to)]) => {
                Some(Operand::Duration(nanos_between(from, to).ok_or_else(|| self.overflow(node))?))
            }
            _ => None,
        })
    }

    /// Calls a method of a time; `None` where it has no such method.
    pub(super) fn call_time(
        &mut self,
        node: &Node,
        time: &DateTime<FixedOffset>,
        name: &str,
        arguments: &[Operand],
    ) -> Result<Option<Operand>> {
        let moved = |count: i64, unit: i64| {
            let delta = count.checked_mul(unit).map(TimeDelta::nanoseconds);
            let moved = delta.and_then(|delta| time.checked_add_signed(delta));
            within_years(moved).map(Some).ok_or_else(|| self.overflow(node))
        };
        let order = |other: &DateTime<FixedOffset>| time.cmp(other);
        match (name, arguments) {
            ("plus", [Operand::Int(count), Operand::Duration(unit)]) => return moved(*count, *unit),
            ("minus", [Operand::Int(count), Operand::Duration(unit)]) => {
                return moved(count.wrapping_neg(), *unit);
            }
            ("plus", [Operand::Duration(nanos)]) => return moved(*nanos, 1),
            ("minus", [Operand::Duration(nanos)]) => return moved(nanos.wrapping_neg(), 1),
            (_, [Operand::Int(count)]) => {
                if let Some(unit) = method_unit(name, "plus") {
                    return moved(*count, unit);
                }
                if let Some(unit) = method_unit(name, "minus") {
                    return moved(count.wrapping_neg(), unit);
                }
            }
            _ => {}
        }
        Ok(Some(match (name, arguments) {
            ("toInstant", []) => Operand::Time(time.to_utc().fixed_offset()),
            ("isAfter", [Operand::Time(other)]) => Operand::Bool(order(other).is_gt()),
            ("isBefore", [Operand::Time(other)]) => Operand::Bool(order(other).is_lt()),
            ("isEqual", [Operand::Time(other)]) => Operand::Bool(order(other).is_eq()),
            ("compareTo", [Operand::Time(other)]) => Operand::Int(order(other) as i64),
            ("toEpochMilli" | "getMillis", []) => Operand::Int(time.timestamp_millis()),
            ("toEpochSecond" | "getEpochSecond", []) => Operand::Int(time.timestamp()),
            ("getNano", []) => Operand::Int(i64::from(time.timestamp_subsec_nanos())),
            _ => return Ok(None),
        }))
    }

    /// Calls a method of a duration, or of a unit of time; `None` where it has no such method.
    pub(super) fn call_duration(
        &mut self,
        node: &Node,
        nanos: i64,
        name: &str,
        arguments: &[Operand],
    ) -> Result<Option<Operand>> {
        if let (Some(unit), []) = (method_unit(name, "to"), arguments) {
            return Ok(Some(Operand::Int(nanos.div_euclid(unit))));
        }
        Ok(Some(match (name, arguments) {
            ("getSeconds", []) => Operand::Int(nanos.div_euclid(NANOS_PER_SECOND)),
            ("getNano", []) => Operand::Int(nanos.rem_euclid(NANOS_PER_SECOND)),
            ("isNegative", []) => Operand::Bool(nanos < 0),
            ("isZero", []) => Operand::Bool(nanos == 0),
            ("between", [Operand::Time(from), Operand::Time(to)]) => {
                let between = nanos_between(from, to).ok_or_else(|| self.overflow(node))?;
                Operand::Int(between.checked_div(nanos).ok_or_else(|| self.overflow(node))?)
            }
            _ => return Ok(None),
        }))
    }
}
