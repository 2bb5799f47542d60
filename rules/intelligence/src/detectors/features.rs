//! Values of a document's fields, as models take them: numbers, texts, and the time of the event.

use millrace_rules::Time;
use serde_json::Value;

/// Returns the first value of a field: objects on the way, arrays, and names with dots.
pub(crate) fn value<'a>(source: &'a Value, field: &str) -> Option<&'a Value> {
    match source {
        Value::Array(items) => items.iter().find_map(|item| value(item, field)),
        Value::Object(members) => {
            if let Some(found) = members.get(field) {
                return first(found);
            }
            field.match_indices('.').find_map(|(at, _)| {
                let within = members.get(&field[..at])?;
                value(within, &field[at + 1..])
            })
        }
        _ => None,
    }
}

fn first(value: &Value) -> Option<&Value> {
    match value {
        Value::Array(items) => items.iter().find_map(first),
        Value::Null => None,
        value => Some(value),
    }
}

/// Returns a value as a number; NaN where it is none, or not finite.
pub(crate) fn number(source: &Value, field: &str) -> f64 {
    let number = match value(source, field) {
        Some(Value::Number(number)) => number.as_f64(),
        Some(Value::Bool(flag)) => Some(f64::from(u8::from(*flag))),
        Some(Value::String(text)) => text.trim().parse().ok(),
        _ => None,
    };
    number.filter(|number: &f64| number.is_finite()).unwrap_or(f64::NAN)
}

/// Returns the numbers of some fields.
pub(crate) fn row(source: &Value, fields: &[String]) -> Vec<f64> {
    fields.iter().map(|field| number(source, field)).collect()
}

/// Returns a value as text; `None` of an object, or where there is none.
pub(crate) fn text(source: &Value, field: &str) -> Option<String> {
    match value(source, field)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

/// Returns the time of an event; `None` where the field has no time.
pub(crate) fn time_ms(source: &Value, field: &str) -> Option<i64> {
    Time::read(value(source, field)?).map(Time::ms)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_found_by_path_and_read_as_numbers() {
        let source = json!({
            "a": {"b": [null, 5, 6]}, "c.d": "7.5", "e": [{"f": true}], "g": "NaN", "h": "inf", "i": {"j.k": 1e308}, "t": "x",
        });
        for (field, expected) in [("a.b", 5.0), ("c.d", 7.5), ("e.f", 1.0), ("i.j.k", 1e308)] {
            assert_eq!(number(&source, field), expected, "{field}");
        }
        for missing in ["a", "a.c", "g", "h", "t", "x", "c", "", "."] {
            assert!(number(&source, missing).is_nan(), "{missing}");
        }
        assert_eq!(text(&source, "t").as_deref(), Some("x"));
        assert_eq!(text(&source, "a.b").as_deref(), Some("5"));
        assert_eq!(text(&source, "a"), None);
    }
}
