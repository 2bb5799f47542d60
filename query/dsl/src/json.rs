//! Reading JSON values the way OpenSearch's parsers do: lenient about scalars, strict about shape.

pub use millrace_mapping::document::token;
use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

/// Takes the object of a clause.
pub(crate) fn object<'a>(clause: &str, value: &'a Value) -> Result<&'a Map<String, Value>> {
    value.as_object().ok_or_else(|| {
        Error::Parsing(format!("[{clause}] query malformed, no start_object after query name"))
    })
}

/// Renders a scalar as text.
pub fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

/// Reads a boolean or its text.
pub(crate) fn boolean(value: &Value) -> Result<bool> {
    match value {
        Value::Bool(flag) => Ok(*flag),
        Value::String(text) => parse_boolean(text),
        other => Err(Error::IllegalArgument(format!(
            "Failed to parse value [{}] as only [true] or [false] are allowed.",
            text(other).unwrap_or_else(|| token(other).to_owned())
        ))),
    }
}

/// Parses the text of a boolean.
pub(crate) fn parse_boolean(text: &str) -> Result<bool> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        other => Err(Error::IllegalArgument(format!(
            "Failed to parse value [{other}] as only [true] or [false] are allowed."
        ))),
    }
}

/// Reads a whole number or its text.
pub fn integer(value: &Value) -> Result<i64> {
    match value {
        Value::Number(number) => number
            .as_i64()
            .or_else(|| number.as_f64().filter(|f| f.abs() < 9e15).map(|f| f as i64))
            .ok_or_else(|| Error::IllegalArgument(format!("Numeric value ({number}) out of range of int"))),
        Value::String(text) => text.trim().parse().map_err(|_| not_a_number(text)),
        other => Err(Error::IllegalArgument(format!("Unexpected token {} for a number", token(other)))),
    }
}

/// Reads a floating point number or its text.
pub fn float(value: &Value) -> Result<f32> {
    match value {
        Value::Number(number) => Ok(number.as_f64().unwrap_or_default() as f32),
        Value::String(text) => text.trim().parse().map_err(|_| not_a_number(text)),
        other => Err(Error::IllegalArgument(format!("Unexpected token {} for a number", token(other)))),
    }
}

/// Reads a clause's boost: not negative, finite.
pub(crate) fn boost(clause: &str, value: &Value) -> Result<f32> {
    let boost = float(value)?;
    if boost < 0.0 || boost.is_nan() {
        return Err(Error::IllegalArgument(format!(
            "negative [boost] are not allowed in [{clause}], use a value between 0 and 1 to deboost"
        )));
    }
    Ok(boost)
}

/// Makes the error of a text that is no number, as Java words it.
pub fn not_a_number(text: &str) -> Error {
    if text.is_empty() {
        Error::NumberFormat("empty String".to_owned())
    } else {
        Error::NumberFormat(format!("For input string: \"{text}\""))
    }
}

/// Reads a list of strings given as one string or an array.
pub fn strings(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Array(items) => items.iter().map(text).collect(),
        other => text(other).map(|one| vec![one]),
    }
}

/// Makes the error of a part of a body that its parser does not take.
pub(crate) fn content(reason: String) -> Error {
    Error::Content { reason, cause: None }
}

/// Suggests the known names that a wrong one may stand for, most similar first.
pub(crate) fn did_you_mean(wrong: &str, known: &[&str]) -> String {
    let mut close: Vec<(f32, &str)> = known
        .iter()
        .map(|name| (similarity(wrong, name), *name))
        .filter(|(similar, _)| *similar > 0.5)
        .collect();
    close.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    match close.as_slice() {
        [] => String::new(),
        [(_, one)] => format!(" did you mean [{one}]?"),
        many => {
            let names: Vec<&str> = many.iter().map(|(_, name)| *name).collect();
            format!(" did you mean any of [{}]?", names.join(", "))
        }
    }
}

/// Levenshtein similarity from 0 to 1. Names longer than 64 characters resemble nothing.
fn similarity(a: &str, b: &str) -> f32 {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let longest = a.len().max(b.len());
    if longest == 0 || longest > 64 {
        return 0.0;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    1.0 - row[b.len()] as f32 / longest as f32
}

/// Parses a time value such as `30s`, in milliseconds; `-1` is none.
pub fn parse_time(setting: &str, text: &str) -> Result<Option<u64>> {
    let trimmed = text.trim();
    if trimmed == "-1" {
        return Ok(None);
    }
    if trimmed == "0" {
        return Ok(Some(0));
    }
    let unknown = || {
        Error::IllegalArgument(format!(
            "failed to parse setting [{setting}] with value [{text}] as a time value: unit is missing or unrecognized"
        ))
    };
    let split = trimmed.find(|c: char| !c.is_ascii_digit()).ok_or_else(unknown)?;
    let number: u64 = trimmed[..split].parse().map_err(|_| {
        Error::IllegalArgument(format!(
            "failed to parse setting [{setting}] with value [{text}] as a time value"
        ))
    })?;
    let millis = match &trimmed[split..] {
        "nanos" => return Ok(Some(number / 1_000_000)),
        "micros" => return Ok(Some(number / 1_000)),
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" | "H" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(unknown()),
    };
    Ok(Some(number.saturating_mul(millis)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_need_units() {
        assert_eq!(parse_time("scroll", "1m").unwrap(), Some(60_000));
        assert_eq!(parse_time("timeout", "-1").unwrap(), None);
        insta::assert_snapshot!(
            parse_time("scroll", "12").unwrap_err(),
            @"failed to parse setting [scroll] with value [12] as a time value: unit is missing or unrecognized"
        );
    }

    #[test]
    fn suggestions_name_the_nearest() {
        assert_eq!(did_you_mean("tern", &["terms", "term", "range"]), " did you mean any of [term, terms]?");
        assert_eq!(did_you_mean("matc", &["match", "bool"]), " did you mean [match]?");
        assert_eq!(did_you_mean("zzz", &["match"]), "");
    }
}
