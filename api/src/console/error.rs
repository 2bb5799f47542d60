//! Errors as the console answers them: `{"status": false, "message": "…"}`, with the HTTP status that says what kind.

use serde_json::{Value, json};

use crate::error::Error;
use crate::http::Response;

/// Turns an error into the answer.
pub(crate) fn into_response(error: Error) -> Response {
    let body = json!({ "status": false, "message": error.reason() });
    error.with_body(body).into_response()
}

/// Makes the refusal of a field.
pub(super) fn invalid(field: &str, reason: impl std::fmt::Display) -> Error {
    Error::illegal_argument(format!("[{field}] {reason}"))
}

/// Adds the position of an error in a request; an error of the server stays as it is.
pub(super) fn at(place: &str, error: Error) -> Error {
    match error.status() {
        400 => Error::illegal_argument(format!("{place}: {}", error.reason())),
        _ => error,
    }
}

/// Renders an error as the answer for one of many objects has it.
pub(super) fn of_object(error: &Error) -> Value {
    let status = error.status();
    let name = http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    json!({ "statusCode": status, "error": name.unwrap_or_default(), "message": error.reason() })
}
