//! Errors as the console answers them: `{"status": false, "message": "…"}`, with the HTTP status that says what kind.

use millrace_alerting as alerting;
use millrace_intelligence as intelligence;
use millrace_runtime::Kind;
use serde_json::json;

pub(crate) use millrace_gateway::Error;
pub(crate) use millrace_saved_objects::invalid;

use crate::http::Response;

/// Turns an error into the answer.
pub(crate) fn into_response(error: Error) -> Response {
    let body = json!({ "status": false, "message": error.reason() });
    error.with_body(body).into_response()
}

/// Turns a refusal of alert rules into that of a request.
pub(crate) fn from_alerting(error: alerting::Error) -> Error {
    let reason = error.to_string();
    let kind = error.kind();
    match (error, kind) {
        (alerting::Error::Storage(error), _) => error.into(),
        // Whose fault it is, the query knows; where it is, the rule.
        (alerting::Error::Filter(error), _) => match Error::from(error) {
            error if error.status() == 400 => Error::illegal_argument(reason),
            error => error,
        },
        (_, Kind::NotFound) => Error::resource_not_found(reason),
        (_, Kind::Conflict) => Error::new(409, "version_conflict_engine_exception", reason),
        (_, Kind::TooLarge) => Error::new(413, "content_too_long_exception", reason),
        (_, Kind::InvalidInput) => Error::illegal_argument(reason),
        (error, _) => Error::concealed(500, "illegal_state_exception", &error),
    }
}

/// Turns a refusal of notifications into that of a request.
pub(crate) fn from_notifications(error: millrace_notifications::Error) -> Error {
    from_alerting(error.into())
}

/// Turns a refusal of AI rules into that of a request.
pub(crate) fn from_intelligence(error: intelligence::Error) -> Error {
    let reason = error.to_string();
    let kind = error.kind();
    match (error, kind) {
        (intelligence::Error::Storage(error), _) => error.into(),
        // Whose fault it is, the query knows.
        (intelligence::Error::Query(error), _) => {
            let status = Error::from(error).status();
            Error::new(status, "search_phase_execution_exception", reason)
        }
        (_, Kind::NotFound) => Error::resource_not_found(reason),
        (_, Kind::Unauthorized) => Error::new(403, "security_exception", reason),
        (_, Kind::Conflict) => Error::new(409, "version_conflict_engine_exception", reason),
        (_, Kind::TooLarge) => Error::new(413, "content_too_long_exception", reason),
        (_, Kind::InvalidInput) => Error::illegal_argument(reason),
        (error, _) => Error::concealed(500, "illegal_state_exception", &error),
    }
}
