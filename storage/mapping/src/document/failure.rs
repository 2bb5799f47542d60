//! Why a document is refused, and how OpenSearch says it.

use serde_json::Value;

use jiter::{JiterError, JiterErrorType, JsonErrorType, LinePosition};
use millrace_runtime::Error;

use crate::mapping::{Cause, values};

/// Outcome of a step of parsing; boxed, because failures are rare and values are not.
pub(super) type ParseResult<T> = Result<T, Box<Failure>>;

/// Why a document is refused.
#[derive(Debug)]
pub(super) enum Failure {
    /// It is not JSON.
    Json(JiterError),
    /// A name occurs twice in one object; the index is behind the second.
    Duplicate { name: String, index: usize },
    /// It nests too deep.
    TooDeep,
    /// A value does not fit its field.
    Field { path: String, type_name: &'static str, preview: String, cause: Cause },
    /// It breaks a rule of documents: an exception under `failed to parse`.
    Rule(Cause),
    /// It breaks a rule of mappings.
    Mapping(Error),
}

impl From<JiterError> for Box<Failure> {
    fn from(error: JiterError) -> Self {
        Box::new(Failure::Json(error))
    }
}

impl From<Error> for Box<Failure> {
    fn from(error: Error) -> Self {
        Box::new(Failure::Mapping(error))
    }
}

impl Failure {
    pub(super) fn rule(reason: impl Into<String>) -> Box<Self> {
        Box::new(Self::Rule(Cause::argument(reason)))
    }

    pub(super) fn mapping(reason: impl Into<String>) -> Box<Self> {
        Box::new(Self::Mapping(Error::mapper_parsing(reason)))
    }

    /// Makes the error of the document `id`.
    pub(super) fn into_error(self, id: &str, source: &[u8]) -> Error {
        let failed = |kind: &str, reason: String| Error::MapperParsing {
            reason: "failed to parse".to_owned(),
            caused_by: Some((kind.to_owned(), reason)),
        };
        let at = |index: usize| {
            let LinePosition { line, column } = LinePosition::find(source, index);
            format!("line: {line}, column: {column}")
        };
        match self {
            Self::Json(error) => {
                let place = at(error.index);
                match &error.error_type {
                    JiterErrorType::JsonError(JsonErrorType::TrailingCharacters) => {
                        trailing(source, error.index, &place, failed)
                    }
                    JiterErrorType::JsonError(
                        kind @ (JsonErrorType::EofWhileParsingList
                        | JsonErrorType::EofWhileParsingObject
                        | JsonErrorType::EofWhileParsingString
                        | JsonErrorType::EofWhileParsingValue),
                    ) => failed(
                        "json_e_o_f_exception",
                        format!("Unexpected end-of-input: {kind}\n at [{place}]"),
                    ),
                    JiterErrorType::JsonError(JsonErrorType::InvalidUnicodeCodePoint) => {
                        failed("json_parse_exception", format!("Invalid UTF-8 or code point\n at [{place}]"))
                    }
                    kind => {
                        failed("json_parse_exception", format!("Unexpected character: {kind}\n at [{place}]"))
                    }
                }
            }
            Self::Duplicate { name, index } => {
                failed("json_parse_exception", format!("Duplicate field '{name}'\n at [{}]", at(index)))
            }
            Self::TooDeep => failed(
                "stream_constraints_exception",
                format!(
                    "Document nesting depth ({}) exceeds the maximum allowed ({})",
                    super::MAX_DEPTH + 1,
                    super::MAX_DEPTH
                ),
            ),
            Self::Field { path, type_name, preview, cause } => Error::MapperParsing {
                reason: format!(
                    "failed to parse field [{path}] of type [{type_name}] in document with id '{id}'. Preview of field's value: '{preview}'"
                ),
                caused_by: Some((cause.kind.to_owned(), cause.reason)),
            },
            Self::Rule(cause) => failed(cause.kind, cause.reason),
            Self::Mapping(error) => error,
        }
    }
}

/// Names a value by the token that starts it, as the messages of OpenSearch do.
pub fn token(value: &Value) -> &'static str {
    match value {
        Value::Null => "VALUE_NULL",
        Value::Bool(_) => "VALUE_BOOLEAN",
        Value::Number(_) => "VALUE_NUMBER",
        Value::String(_) => "VALUE_STRING",
        Value::Array(_) => "START_ARRAY",
        Value::Object(_) => "START_OBJECT",
    }
}

/// The refusal of bytes behind the document.
fn trailing(source: &[u8], index: usize, place: &str, failed: impl Fn(&str, String) -> Error) -> Error {
    let token = match source.get(index) {
        Some(b'{') => "START_OBJECT",
        Some(b'[') => "START_ARRAY",
        Some(b'"') => "VALUE_STRING",
        Some(b't' | b'f') => "VALUE_BOOLEAN",
        Some(b'n') => "VALUE_NULL",
        Some(b'-' | b'0'..=b'9') => "VALUE_NUMBER",
        Some(other) => {
            return failed(
                "json_parse_exception",
                format!("Unexpected character ('{}')\n at [{place}]", other.escape_ascii()),
            );
        }
        None => "END",
    };
    failed(
        "illegal_argument_exception",
        format!("Malformed content, found extra data after parsing: {token}"),
    )
}

/// Renders a value of the document for a message.
pub(super) fn preview(json: &[u8]) -> String {
    match serde_json::from_slice::<serde_json::Value>(json) {
        Ok(value) => values::shown(&value),
        Err(_) => String::from_utf8_lossy(json).into_owned(),
    }
}
