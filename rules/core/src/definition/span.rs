//! Lengths of time: `<number><unit>`, or ElastAlert's mapping `{"minutes": 5}`.

use serde_json::Value;

use crate::error::{Error, Result};
use crate::time::Span;

/// The longest time that an option may have.
pub(crate) const LONGEST: Span = Span::from_secs(366 * 86_400);

const ALLOWED: &str =
    "write <number><unit> with one of the units s, m, h, d, w, or a mapping such as {\"minutes\": 5}";

impl Span {
    /// Reads a length of time as options of rules have it, longer than none; `field` names it in errors.
    ///
    /// # Errors
    /// What is no length of time, or longer than 366 days.
    pub fn read(field: &str, value: &Value) -> Result<Self> {
        read(field, value, Self::from_ms(1))
    }
}

/// Reads a length of time between `shortest` and [`LONGEST`].
pub(crate) fn read(field: &str, value: &Value, shortest: Span) -> Result<Span> {
    let ms = match value {
        Value::String(text) => from_text(text.trim()),
        Value::Object(members) => {
            let mut sum = Some(0.0);
            for (unit, number) in members {
                let ms = match unit.as_str() {
                    "milliseconds" => 1.0,
                    "seconds" => 1e3,
                    "minutes" => 6e4,
                    "hours" => 36e5,
                    "days" => 864e5,
                    "weeks" => 6048e5,
                    _ => {
                        let reason = format!(
                            "unknown unit [{unit}]: use milliseconds, seconds, minutes, hours, days or weeks"
                        );
                        return Err(Error::invalid(field, reason));
                    }
                };
                sum = sum.zip(number.as_f64()).map(|(sum, number)| sum + number * ms);
            }
            sum.filter(|_| !members.is_empty())
        }
        _ => None,
    };
    let shown = || match value {
        Value::String(text) => super::options::short(text),
        other => super::options::short(&other.to_string()),
    };
    let Some(ms) = ms else {
        return Err(Error::invalid(field, format!("[{}] is no length of time: {ALLOWED}", shown())));
    };
    // Beyond the bound the conversion saturates.
    let span = Span::from_ms(ms.round() as i64);
    if ms < 0.0 || span < shortest || span > LONGEST {
        let reason =
            format!("[{}] is out of range: {} to {} are allowed", shown(), shortest.text(), LONGEST.text());
        return Err(Error::invalid(field, reason));
    }
    Ok(span)
}

fn from_text(text: &str) -> Option<f64> {
    let unit = text.chars().next_back()?;
    let ms = match unit {
        's' => 1e3,
        'm' => 6e4,
        'h' => 36e5,
        'd' => 864e5,
        'w' => 6048e5,
        _ => return None,
    };
    let number = &text[..text.len() - 1];
    let plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    number.parse::<f64>().ok().filter(|_| plain).map(|number| number * ms)
}
