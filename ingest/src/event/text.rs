//! Values as text, as formats and filters show them.

use std::fmt::Write as _;

use serde_json::Value;

/// Appends a value as text: texts as they are, arrays as their elements with commas between, objects as
/// JSON, nothing for null.
pub fn write_text(value: &Value, out: &mut String) {
    match value {
        Value::Null => {}
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => write_float(float, out),
            _ => out.push_str(&number.to_string()),
        },
        Value::String(text) => out.push_str(text),
        Value::Array(elements) => {
            for (at, element) in elements.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_text(element, out);
            }
        }
        Value::Object(_) => out.push_str(&value.to_string()),
    }
}

/// A value as [`write_text`] has it.
pub fn text_of(value: &Value) -> String {
    let mut out = String::new();
    write_text(value, &mut out);
    out
}

/// Appends a number with a fraction as Ruby shows it: at least one digit behind the point, and an exponent below
/// 0.0001 and from 10^16 on.
fn write_float(value: f64, out: &mut String) {
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e16).contains(&size) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let point = if digits.contains('.') { "" } else { ".0" };
        let sign = if exponent < 0 { '-' } else { '+' };
        // Writing to memory cannot fail.
        let _ = write!(out, "{digits}{point}e{sign}{:02}", exponent.abs());
    } else {
        let _ = write!(out, "{value:?}");
    }
}
