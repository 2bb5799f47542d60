//! Values as Java names and writes them, which OpenSearch's messages and conversions show.

use serde_json::Value;

/// Returns the name of the Java class of a value.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "java.lang.Boolean",
        Value::Number(number) => match number.as_i64() {
            Some(whole) if i32::try_from(whole).is_ok() => "java.lang.Integer",
            Some(_) => "java.lang.Long",
            None if number.is_u64() => "java.math.BigInteger",
            None => "java.lang.Double",
        },
        Value::String(_) => "java.lang.String",
        Value::Array(_) => "java.util.ArrayList",
        Value::Object(_) => "java.util.HashMap",
    }
}

/// Writes a value as `toString` does.
pub(crate) fn text_of(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => out.push_str(&float_text(float)),
            _ => out.push_str(&number.to_string()),
        },
        Value::String(text) => out.push_str(text),
        Value::Array(items) => {
            out.push('[');
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    out.push_str(", ");
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (position, (name, member)) in members.iter().enumerate() {
                if position > 0 {
                    out.push_str(", ");
                }
                out.push_str(name);
                out.push('=');
                write(member, out);
            }
            out.push('}');
        }
    }
}

/// Writes a floating point number as `Double.toString` does.
pub(crate) fn float_text(float: f64) -> String {
    let size = float.abs();
    if size == 0.0 || (1.0e-3..1.0e7).contains(&size) {
        return format!("{float:?}");
    }
    if !float.is_finite() {
        return match float {
            float if float.is_nan() => "NaN".to_owned(),
            float if float > 0.0 => "Infinity".to_owned(),
            _ => "-Infinity".to_owned(),
        };
    }
    let text = format!("{float:e}");
    match text.split_once('e') {
        Some((digits, exponent)) if digits.contains('.') => format!("{digits}E{exponent}"),
        Some((digits, exponent)) => format!("{digits}.0E{exponent}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::text_of;

    #[test]
    fn values_are_written_as_java_writes_them() {
        for (value, expected) in [
            (json!({"a": [1, null, "x"], "b": true}), "{a=[1, null, x], b=true}"),
            (json!(1.5), "1.5"),
            (json!(3.0), "3.0"),
            (json!(1.0e10), "1.0E10"),
            (json!(1.5e-7), "1.5E-7"),
            (json!(12345678901i64), "12345678901"),
        ] {
            assert_eq!(text_of(&value), expected);
        }
    }
}
