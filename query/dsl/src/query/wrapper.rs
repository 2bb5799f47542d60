//! `wrapper`: a clause written as base64 of its JSON.
//!
//! What is wrapped is not seen where a body's values are bounded, so it is bounded here: all of one query together.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use millrace_work::error::{Error, Result};
use serde_json::{Map, Value};

use super::{Parser, Query};

/// Most bytes of JSON that the wrapped clauses of one query have together.
const MAX_WRAPPED: usize = 1 << 20;

/// Parses the clause that is wrapped.
pub(super) fn parse(parser: &mut Parser, fields: &Map<String, Value>) -> Result<Query> {
    let mut entries = fields.iter();
    let Some((key, value)) = entries.next() else {
        return Err(Error::Parsing("[wrapper] query malformed".to_owned()));
    };
    if key != "query" {
        return Err(Error::Parsing(format!("[wrapper] query malformed, expected `query` but was {key}")));
    }
    let malformed = || Error::Parsing("[wrapper] query malformed, expected base64 of a query".to_owned());
    let Value::String(encoded) = value else { return Err(malformed()) };
    if encoded.is_empty() {
        return Err(Error::IllegalArgument("query source text cannot be null or empty".to_owned()));
    }
    // Four characters are three bytes.
    parser.wrapped = parser.wrapped.saturating_add(encoded.len() / 4 * 3);
    if parser.wrapped > MAX_WRAPPED {
        return Err(Error::IllegalArgument(format!(
            "[wrapper] queries of [{}] bytes are too large, at most [{MAX_WRAPPED}] bytes may be wrapped in one query; send them as JSON",
            parser.wrapped
        )));
    }
    let source = BASE64_STANDARD.decode(encoded.as_bytes()).map_err(|_| malformed())?;
    let wrapped: Value = serde_json::from_slice(&source)
        .map_err(|error| Error::Parsing(format!("[wrapper] query malformed: {error}")))?;
    parser.query(&wrapped)
}
