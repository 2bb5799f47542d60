//! The body of a request: the statement and what goes with it.

use std::sync::Arc;

use serde_json::Value;

use super::error::{Result, SqlError};
use super::format::LineEnd;
use super::parameters::Parameters;
use super::relational::RelationalStatement;

/// Most rows of a page.
const MAX_FETCH: usize = 10_000;

/// The dialect of a statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SqlDialect {
    /// The dialect of OpenSearch: double quotes enclose strings.
    #[default]
    OpenSearch,
    /// The dialect of Elasticsearch: double quotes enclose identifiers.
    Elasticsearch,
}

/// Options of an answer in lines, as parameters of the request name them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineOptions {
    /// `newLine`: the end of a line.
    pub end: LineEnd,
    /// `pretty`: true for cells that are padded to the width of their column, in the format `raw`.
    pub pretty: bool,
    /// `flat`: true for a column of each field below an object, in place of the object.
    pub flat: bool,
    /// `_id`: true for a column of document ids behind the others.
    pub id: bool,
    /// `_score`: true for a column of scores behind the others.
    pub score: bool,
}

/// A request.
#[derive(Clone, Debug, Default)]
pub struct SqlRequest {
    /// The statement.
    pub query: String,
    /// Its dialect.
    pub dialect: SqlDialect,
    /// A condition on every index scan.
    pub filter: Option<Value>,
    /// Values of `?`.
    pub parameters: Parameters,
    /// `true` if the statement is rendered as a search.
    pub is_search: bool,
    /// Options of an answer in lines.
    pub lines: LineOptions,
    /// Rows of a page; 0 is one page with all of them.
    pub fetch_size: Option<usize>,
    /// Cursor of an earlier answer to read on; then there is no statement.
    pub cursor: Option<String>,
    /// The statement where it is one of another language.
    pub statement: Option<Arc<dyn RelationalStatement>>,
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
                ("parameters", Value::Array(values)) => request.parameters = Parameters::parse(values)?,
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

    /// Returns whether the statement begins as one about metadata does.
    pub fn is_about_metadata(&self) -> bool {
        let first = self.query.split_whitespace().next().unwrap_or_default();
        ["show", "describe", "desc"].iter().any(|word| first.eq_ignore_ascii_case(word))
    }
}

/// Reads how many rows a page has.
pub(super) fn fetch_size(value: &Value) -> Result<usize> {
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
