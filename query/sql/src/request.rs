//! The body of a request: the statement and what goes with it.

use serde_json::Value;

use super::bind::Literal;
use super::error::{Result, SqlError};
use super::functions::time;

/// Most parameters of a statement.
const MAX_PARAMETERS: usize = 10_000;
/// Most rows of a page.
const MAX_FETCH: usize = 10_000;

/// A request.
#[derive(Clone, Debug, Default)]
pub struct SqlRequest {
    /// The statement.
    pub query: String,
    /// A condition on every index scan.
    pub filter: Option<Value>,
    /// Values of `?`.
    pub parameters: Vec<Literal>,
    /// Rows of a page; 0 is one page with all of them.
    pub fetch_size: Option<usize>,
    /// Where an earlier answer is read on; then there is no statement.
    pub cursor: Option<String>,
}

impl SqlRequest {
    /// Parses a body.
    pub fn parse(body: Option<&Value>) -> Result<Self> {
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
                ("fetch_size", size) => request.fetch_size = Some(fetch_size(size)?),
                ("cursor", Value::String(text)) if !text.is_empty() => request.cursor = Some(text.clone()),
                (name, value) => {
                    return Err(SqlError::Request(format!(
                        "the member [{name}] of the request cannot be [{value}]"
                    )));
                }
            }
        }
        if request.cursor.is_some() {
            return match members.len() {
                1 => Ok(request),
                _ => Err(SqlError::Request("a cursor has to be sent alone".to_owned())),
            };
        }
        request.query = query
            .ok_or_else(|| SqlError::Request("the member [query] of the request is missing".to_owned()))?;
        Ok(request)
    }
}

/// Reads how many rows a page has.
fn fetch_size(value: &Value) -> Result<usize> {
    let number = match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    match number.map(usize::try_from) {
        Some(Ok(size)) if size <= MAX_FETCH => Ok(size),
        Some(Ok(size)) => Err(SqlError::Request(format!(
            "fetch_size is too large, it must be less than or equal to: [{MAX_FETCH}] but was [{size}]"
        ))),
        Some(Err(_)) => Err(SqlError::Request("Fetch_size must be greater or equal to 0".to_owned())),
        None => Err(SqlError::Request("Failed to parse field [fetch_size]".to_owned())),
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
        "unsigned_long" => match text.parse() {
            Ok(number) => Ok(Literal::Int(number)),
            Err(_) => text.parse().map(Literal::UInt).map_err(|_| wrong()),
        },
        "float" | "double" => {
            let number: Option<f64> = text.parse().ok();
            number.filter(|number| number.is_finite()).map(Literal::Float).ok_or_else(wrong)
        }
        "boolean" => text.parse().map(Literal::Bool).map_err(|_| wrong()),
        "string" | "keyword" | "text" => Ok(Literal::Str(text)),
        "date" | "timestamp" | "datetime" => time::timestamp(&text).map(Literal::Timestamp).ok_or_else(wrong),
        "null" => Ok(Literal::Null),
        other => Err(SqlError::Request(format!("unsupported parameter type [{other}]"))),
    }
}
