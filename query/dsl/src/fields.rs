//! `fields` and `docvalue_fields`: names or patterns, each with a format.

use millrace_work::error::{Error, Result};
use serde_json::Value;

use super::json::{self, token};

/// Most fields that a request may ask for, beside the limits of the indices.
const MAX_FIELDS: usize = 10_000;

/// One element of the list.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldAndFormat {
    /// Name or pattern.
    pub field: String,
    /// Format of values.
    pub format: Option<String>,
}

/// Longest format of dates or numbers, in bytes: it may have a text that each value repeats.
const MAX_FORMAT_BYTES: usize = 1 << 10;

/// Checks the length of a format of dates or numbers.
///
/// # Errors
/// [`Error::IllegalArgument`] for one that is longer than 1,024 bytes.
pub fn check_format(format: &str) -> Result<&str> {
    if format.len() > MAX_FORMAT_BYTES {
        return Err(Error::IllegalArgument(format!(
            "a format of [{}] bytes is too long: at most [{MAX_FORMAT_BYTES}] are allowed",
            format.len()
        )));
    }
    Ok(format)
}

/// Parses the value of the member `name`.
pub(crate) fn parse(name: &str, value: &Value) -> Result<Vec<FieldAndFormat>> {
    let items = value
        .as_array()
        .ok_or_else(|| Error::Parsing(format!("Unknown key for a {} in [{name}].", token(value))))?;
    if items.len() > MAX_FIELDS {
        return Err(Error::IllegalArgument(format!(
            "too many elements in [{name}]: {} given, at most {MAX_FIELDS} allowed",
            items.len()
        )));
    }
    items.iter().map(element).collect()
}

/// Makes the list from names, as a parameter gives them.
pub fn named(names: Vec<String>) -> Vec<FieldAndFormat> {
    names.into_iter().map(|field| FieldAndFormat { field, format: None }).collect()
}

fn element(value: &Value) -> Result<FieldAndFormat> {
    let Value::Object(members) = value else {
        let field = json::text(value).ok_or_else(|| {
            json::content(format!("[docvalues_field] Expected START_OBJECT but was: {}", token(value)))
        })?;
        return Ok(FieldAndFormat { field, format: None });
    };
    let (mut field, mut format) = (None, None);
    for (key, value) in members {
        let text = || {
            json::text(value).ok_or_else(|| {
                json::content(format!(
                    "[docvalues_field] {key} doesn't support values of type: {}",
                    token(value)
                ))
            })
        };
        match key.as_str() {
            "field" => field = Some(text()?),
            "format" if value.is_null() => {}
            "format" => format = Some(text()?),
            _ => {
                return Err(json::content(format!(
                    "[docvalues_field] unknown field [{key}]{}",
                    json::did_you_mean(key, &["field", "format"])
                )));
            }
        }
    }
    let field = field.ok_or_else(|| Error::IllegalArgument("Required [field]".to_owned()))?;
    Ok(FieldAndFormat { field, format })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_and_objects_are_taken() {
        let parsed = parse("fields", &json!(["a*", {"field": "b", "format": "yyyy"}])).unwrap();
        assert_eq!(parsed[0], FieldAndFormat { field: "a*".into(), format: None });
        assert_eq!(parsed[1].format.as_deref(), Some("yyyy"));
        let texts: Vec<String> =
            [json!("a"), json!([{"fieldx": "k"}]), json!([{"format": "x"}]), json!([[]])]
                .iter()
                .map(|value| parse("fields", value).unwrap_err().to_string())
                .collect();
        insta::assert_snapshot!(texts.join("\n"), @r"
        Unknown key for a VALUE_STRING in [fields].
        [docvalues_field] unknown field [fieldx] did you mean [field]?
        Required [field]
        [docvalues_field] Expected START_OBJECT but was: START_ARRAY
        ");
    }
}
