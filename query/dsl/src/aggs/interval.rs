//! Intervals of time: calendar units, and spans of fixed length.

use millrace_time::{CalendarUnit, Interval};
use millrace_work::error::{Error, Result};
use serde_json::Value;

use super::members::ErrorLabel;

/// The interval as the members of a request give it.
#[derive(Debug, Default)]
pub(super) struct GivenInterval {
    given: Option<(&'static str, Interval)>,
}

impl GivenInterval {
    /// Takes `interval`, `calendar_interval` or `fixed_interval`; returns whether the key was one of them.
    pub(super) fn take(&mut self, part: ErrorLabel<'_>, key: &str, value: &Value) -> Result<bool> {
        let (key, interval) = match key {
            "calendar_interval" => ("calendar_interval", calendar(part, key, &part.text(key, value)?)?),
            "fixed_interval" => ("fixed_interval", fixed(part, key, &part.text(key, value)?)?),
            "interval" => ("interval", legacy(part, key, value)?),
            _ => return Ok(false),
        };
        if let Some((other, _)) = self.given
            && other != key
        {
            let reason = format!("Cannot use [{key}] with [{other}] configuration option.");
            return Err(part.refused(key, reason));
        }
        self.given = Some((key, interval));
        Ok(true)
    }

    /// Returns the interval.
    pub(super) fn required(self) -> Result<Interval> {
        let interval = self.given.map(|(_, interval)| interval).ok_or_else(|| {
            Error::IllegalArgument("Invalid interval specified, must be non-null and non-empty".to_owned())
        })?;
        match interval {
            Interval::Fixed(..=0) => {
                Err(Error::IllegalArgument("Zero or negative time interval not supported".to_owned()))
            }
            other => Ok(other),
        }
    }
}

fn calendar(part: ErrorLabel<'_>, key: &str, text: &str) -> Result<Interval> {
    if text.is_empty() {
        return Err(part.refused(key, format!("[interval] must not be null: [{}]", part.kind)));
    }
    CalendarUnit::parse(text).map(Interval::Calendar).ok_or_else(|| {
        part.refused(
            key,
            format!("The supplied interval [{text}] could not be parsed as a calendar interval."),
        )
    })
}

fn fixed(part: ErrorLabel<'_>, key: &str, text: &str) -> Result<Interval> {
    let setting = format!("{}.fixedInterval", part.kind);
    time_value(&setting, text).map(Interval::Fixed).map_err(|error| part.unread(key, error))
}

fn legacy(part: ErrorLabel<'_>, key: &str, value: &Value) -> Result<Interval> {
    match value {
        Value::Number(_) => {
            let millis = part.long(key, value)?;
            if millis < 1 {
                let reason = format!("[interval] must be 1 or greater for aggregation [{}]", part.kind);
                return Err(part.refused(key, reason));
            }
            Ok(Interval::Fixed(millis))
        }
        Value::String(text) => match CalendarUnit::parse(text) {
            Some(unit) => Ok(Interval::Calendar(unit)),
            None => time_value("interval", text)
                .map(Interval::Fixed)
                .map_err(|_| Error::IllegalArgument(format!("Unable to parse interval [{text}]"))),
        },
        other => Err(part.wrong_type(key, other)),
    }
}

/// Parses a span of time such as `90m`, in milliseconds, with a sign where it has one.
pub(super) fn time_value(setting: &str, text: &str) -> Result<i64> {
    let trimmed = text.trim();
    let unknown = || {
        Error::IllegalArgument(format!(
            "failed to parse setting [{setting}] with value [{text}] as a time value: unit is missing or unrecognized"
        ))
    };
    if matches!(trimmed, "0" | "-1") {
        return trimmed.parse().map_err(|_| unknown());
    }
    let units = [
        ("nanos", 0.000_001),
        ("micros", 0.001),
        ("ms", 1.0),
        ("s", 1e3),
        ("m", 6e4),
        ("h", 3.6e6),
        ("d", 8.64e7),
    ];
    let lower = trimmed.to_ascii_lowercase();
    let found = units.into_iter().find_map(|(unit, millis)| {
        // `M` would be months, which have no length.
        let fits = lower.ends_with(unit) && !(unit == "m" && trimmed.ends_with('M'));
        fits.then(|| (trimmed[..trimmed.len() - unit.len()].trim(), millis))
    });
    let (digits, millis) = found.ok_or_else(unknown)?;
    let whole: i64 = match digits.parse() {
        Ok(whole) => whole,
        Err(_) if digits.parse::<f64>().is_ok() => {
            return Err(Error::IllegalArgument(format!(
                "failed to parse [{text}], fractional time values are not supported"
            )));
        }
        Err(_) => return Err(Error::IllegalArgument(format!("failed to parse [{text}]"))),
    };
    Ok((whole as f64 * millis) as i64)
}
