//! Members of an aggregation's object, read and refused as OpenSearch's object parsers do.

use millrace_work::error::{Error, Result};
use serde_json::Value;

use crate::json::{self, token};

/// Label in errors: the kind of an aggregation, and its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct ErrorLabel<'a> {
    /// Kind, such as `terms`.
    pub kind: &'static str,
    /// Name that the request gives it.
    pub name: &'a str,
}

impl ErrorLabel<'_> {
    /// Makes the error of a value of a type that the member does not take.
    pub(super) fn wrong_type(self, key: &str, value: &Value) -> Error {
        json::content(format!("[{}] {key} doesn't support values of type: {}", self.kind, token(value)))
    }

    /// Makes the error of a member that cannot be read.
    pub(super) fn unread(self, key: &str, cause: Error) -> Error {
        Error::unread_member(self.kind, key, cause)
    }

    /// Makes the error of an argument that a member refuses.
    pub(super) fn refused(self, key: &str, reason: String) -> Error {
        self.unread(key, Error::IllegalArgument(reason))
    }

    /// Makes the error of a member that does not exist.
    pub(super) fn unknown(self, key: &str, known: &[&str]) -> Error {
        let others: Vec<&str> = known.iter().copied().filter(|name| *name != key).collect();
        let suggestion = json::did_you_mean(key, &others);
        json::content(format!("[{}] unknown field [{key}]{suggestion}", self.kind))
    }

    /// Reads a string.
    pub(super) fn text(self, key: &str, value: &Value) -> Result<String> {
        value.as_str().map(str::to_owned).ok_or_else(|| self.wrong_type(key, value))
    }

    /// Reads a boolean or its text.
    pub(super) fn boolean(self, key: &str, value: &Value) -> Result<bool> {
        match value {
            Value::Bool(_) | Value::String(_) => json::boolean(value).map_err(|e| self.unread(key, e)),
            _ => Err(self.wrong_type(key, value)),
        }
    }

    /// Reads a number of 64 bits or its text; decimals are cut.
    pub(super) fn long(self, key: &str, value: &Value) -> Result<i64> {
        match value {
            Value::Number(_) | Value::String(_) => json::integer(value).map_err(|e| self.unread(key, e)),
            _ => Err(self.wrong_type(key, value)),
        }
    }

    /// Reads a number of 32 bits or its text; decimals are cut.
    pub(super) fn int(self, key: &str, value: &Value) -> Result<i64> {
        let number = self.long(key, value)?;
        if i32::try_from(number).is_ok() {
            return Ok(number);
        }
        let cause = match value {
            Value::String(text) => json::not_a_number(text),
            _ => Error::Exception {
                kind: "input_coercion_exception",
                status: 400,
                reason: format!("Numeric value ({number}) out of range of int (-2147483648 - 2147483647)"),
            },
        };
        Err(self.unread(key, cause))
    }

    /// Reads a floating point number or its text.
    pub(super) fn double(self, key: &str, value: &Value) -> Result<f64> {
        match value {
            Value::Number(number) => Ok(number.as_f64().unwrap_or_default()),
            Value::String(text) => {
                text.trim().parse().map_err(|_| self.unread(key, json::not_a_number(text)))
            }
            _ => Err(self.wrong_type(key, value)),
        }
    }

    /// Reads a scalar that is not null.
    pub(super) fn scalar(self, key: &str, value: &Value) -> Result<Value> {
        match value {
            Value::String(_) | Value::Number(_) | Value::Bool(_) => Ok(value.clone()),
            _ => Err(self.wrong_type(key, value)),
        }
    }

    /// Makes the refusal of `script`.
    pub(super) fn script(self) -> Error {
        Error::Parsing(format!("[{}] [script] is not supported: there are no scripts", self.kind))
    }

    /// Makes the error of an aggregation without a field.
    pub(super) fn no_field(self) -> Error {
        Error::IllegalArgument("Required one of fields [field, script], but none were specified. ".to_owned())
    }
}
