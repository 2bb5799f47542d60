//! Errors of saved objects: refusals of fields, and the forms of errors about one of many objects.

pub(crate) use millrace_gateway::Error;
use serde_json::{Value, json};

/// Makes the refusal of a field.
pub fn invalid(field: &str, reason: impl std::fmt::Display) -> Error {
    Error::illegal_argument(format!("[{field}] {reason}"))
}

/// Adds the position of an error in a request; an error of the server stays as it is.
pub(crate) fn at(place: &str, error: Error) -> Error {
    match error.status() {
        400 => Error::illegal_argument(format!("{place}: {}", error.reason())),
        _ => error,
    }
}

/// Renders an error as the answer for one of many objects has it.
pub(crate) fn of_object(error: &Error) -> Value {
    let status = error.status();
    let name = ::http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    json!({ "statusCode": status, "error": name.unwrap_or_default(), "message": error.reason() })
}
