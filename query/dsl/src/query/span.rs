//! Common part of the span clauses: they are made of each other, and only the outermost has a boost.

use millrace_work::error::{Error, Result};
use serde_json::Value;

use super::{Common, Parser, Query, unsupported};
use crate::json;

/// Parses a clause of spans below another. `owner` names the place where it stands.
pub(super) fn inner(
    parser: &mut Parser,
    (clause, key): (&str, &str),
    owner: &str,
    value: &Value,
) -> Result<Query> {
    let query = parser.query(value)?;
    if !query.is_span() {
        return Err(Error::Parsing(format!("{owner} must be of type span query")));
    }
    let boost = query.common().boost;
    if boost != 1.0 {
        return Err(Error::Parsing(format!(
            "{clause} [{key}] as a nested span clause can't have non-default boost value [{boost:?}]"
        )));
    }
    Ok(query)
}

/// Parses a list of clauses of spans.
pub(super) fn list(parser: &mut Parser, clause: &str, value: &Value) -> Result<Vec<Query>> {
    let Value::Array(items) = value else { return Err(unsupported(clause, "clauses")) };
    let owner = format!("{clause} [clauses]");
    items.iter().map(|item| inner(parser, (clause, "clauses"), &owner, item)).collect()
}

/// Takes what every clause may carry; anything else is refused.
pub(super) fn rest(common: &mut Common, clause: &str, key: &str, value: &Value) -> Result<()> {
    let scalar = !matches!(value, Value::Array(_) | Value::Object(_));
    match scalar && common.take(clause, key, value)? {
        true => Ok(()),
        false => Err(unsupported(clause, key)),
    }
}

/// Reads a whole number as Java's `int`.
pub(super) fn int(value: &Value) -> Result<i32> {
    let number = json::integer(value)?;
    i32::try_from(number).map_err(|_| {
        Error::IllegalArgument(format!(
            "Numeric value ({number}) out of range of int (-2147483648 - 2147483647)"
        ))
    })
}
