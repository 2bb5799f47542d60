//! The body of a request: the statement and what goes with it.

use serde_json::Value;

use super::bind::Literal;
use super::error::{Result, SqlError};
use super::functions::time;

/// Most parameters of a statement.
const MAX_PARAMETERS: usize = 10_000;

/// A request.
#[derive(Debug, Default)]
pub(crate) struct SqlRequest {
    /// The statement.
    pub query: String,
    /// A condition on every index scan.
    pub filter: Option<Value>,
    /// Values of `?`.
    pub parameters: Vec<Literal>,
}

impl SqlRequest {
    /// Parses a body.
    pub(crate) fn parse(body: Option<&Value>) -> Result<Self> {
        let members = match body {
            Some(Value::Object(members)) => members,
            Some(_) => {
                return Err(SqlError::Request("the body of the request has to be an object".to_owned()));
            }
            None => return Err(SqlError::Request("the request has no body".to_owned())),
        };
        let mut request = Self::default();
        let mut query = None;
        for (name, value) in members {
            match (name.as_str(), value) {
                ("query", Value::String(text)) => query = Some(text.clone()),
                ("filter", Value::Object(_)) => request.filter = Some(value.clone()),
                ("filter", Value::Null) => {}
                ("parameters", Value::Array(values)) => request.parameters = parameters(values)?,
                // Without pages an answer has all rows.
                ("fetch_size", Value::Number(number)) if number.as_u64().is_some() => {}
                ("fetch_size", Value::String(text)) if text.parse::<u32>().is_ok() => {}
                ("fetch_size", other) => {
                    return Err(SqlError::Request(format!(
                        "fetch_size [{other}] has to be a positive number"
                    )));
                }
                ("cursor", _) => {
                    return Err(SqlError::Unsupported(
                        "reading on with a cursor is not supported".to_owned(),
                    ));
                }
                (name, value) => {
                    return Err(SqlError::Request(format!(
                        "the member [{name}] of the request cannot be [{value}]"
                    )));
                }
            }
        }
        request.query = query
            .ok_or_else(|| SqlError::Request("the member [query] of the request is missing".to_owned()))?;
        Ok(request)
    }
}

fn parameters(values: &[Value]) -> Result<Vec<Literal>> {
    if values.len() > MAX_PARAMETERS {
        return Err(SqlError::TooLarge(format!("the request has more than {MAX_PARAMETERS} parameters")));
    }
    values.iter().map(parameter).collect()
}

/// Reads `{type, value}`; the type decides how the value is read.
fn parameter(parameter: &Value) -> Result<Literal> {
    let kind = parameter.get("type").and_then(Value::as_str).unwrap_or_default().to_ascii_lowercase();
    let value = parameter.get("value").unwrap_or(&Value::Null);
    let wrong = || SqlError::Request(format!("the parameter [{parameter}] is no value of its type"));
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if value.is_null() {
        return Ok(Literal::Null);
    }
    match kind.as_str() {
        "byte" | "short" | "integer" | "long" => text.parse().map(Literal::Int).map_err(|_| wrong()),
        "float" | "double" => text.parse().map(Literal::Float).map_err(|_| wrong()),
        "boolean" => text.parse().map(Literal::Bool).map_err(|_| wrong()),
        "string" | "keyword" | "text" => Ok(Literal::Str(text)),
        "date" | "timestamp" | "datetime" => time::timestamp(&text).map(Literal::Timestamp).ok_or_else(wrong),
        "null" => Ok(Literal::Null),
        other => Err(SqlError::Request(format!("unsupported parameter type [{other}]"))),
    }
}
