//! JSON values in the words in which OpenSearch's messages show them (Java's `toString`).

use std::fmt::Write;

use serde_json::Value;

/// Longest rendering; longer ones are cut, so that a message never carries a document.
const MAX_CHARS: usize = 1000;

/// Renders a value as Java does: `{a=1, b=[x, y]}`.
pub(crate) fn to_string(value: &Value) -> String {
    let mut out = String::new();
    write_value(value, &mut out);
    cut(&mut out);
    out
}

/// Cuts a text at [`MAX_CHARS`].
pub(crate) fn cut(text: &mut String) {
    if let Some((at, _)) = text.char_indices().nth(MAX_CHARS) {
        text.truncate(at);
        text.push_str("...");
    }
}

fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => {
            let _ = write!(out, "{flag}");
        }
        Value::Number(number) => {
            let _ = write!(out, "{number}");
        }
        Value::String(text) => out.push_str(text),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write_value(item, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (i, (key, member)) in members.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                out.push_str(key);
                out.push('=');
                write_value(member, out);
            }
            out.push('}');
        }
    }
}

/// Reads a boolean as mapping parameters are: `true`, `false`, or these as strings.
pub(crate) fn boolean(value: &Value) -> Result<bool, String> {
    match value {
        Value::Bool(flag) => Ok(*flag),
        Value::String(text) if text == "true" => Ok(true),
        Value::String(text) if text == "false" => Ok(false),
        other => Err(format!(
            "Failed to parse value [{}] as only [true] or [false] are allowed.",
            to_string(other)
        )),
    }
}
