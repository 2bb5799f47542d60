//! Errors as gRPC has them.

use millrace_engine::Session;
use millrace_gateway::Error;
use millrace_runtime::Error as StoreError;
use tonic::{Code, Status};

/// Longest message: it goes in a header, of which clients take a few kilobytes.
const MAX_MESSAGE: usize = 2 << 10;

/// Makes the status of an error of the data API.
pub(crate) fn from_error(error: impl Into<Error>) -> Status {
    let error = error.into();
    let code = match (error.status(), error.error_type()) {
        (_, "resource_already_exists_exception") => Code::AlreadyExists,
        (403 | 429, "cluster_block_exception") => Code::FailedPrecondition,
        (400, "index_closed_exception") => Code::FailedPrecondition,
        (400 | 405 | 406 | 415, _) => Code::InvalidArgument,
        (401, _) => Code::Unauthenticated,
        (403, _) => Code::PermissionDenied,
        (404, _) => Code::NotFound,
        (408, _) => Code::DeadlineExceeded,
        (409, _) => Code::Aborted,
        (413 | 429, _) => Code::ResourceExhausted,
        (501, _) => Code::Unimplemented,
        (503, _) => Code::Unavailable,
        _ => Code::Internal,
    };
    new(code, error.reason())
}

/// Makes the status of an error of what a session has tried, which notes what was refused for the audit.
pub(crate) fn noted(session: &Session, error: StoreError) -> Status {
    session.refusals().note(&error);
    from_error(error)
}

/// Makes a status whose message is no longer than clients take.
pub(crate) fn new(code: Code, message: &str) -> Status {
    let mut end = message.len().min(MAX_MESSAGE);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    Status::new(code, &message[..end])
}

/// Makes the refusal of what is not built.
pub(crate) fn unsupported(what: &str) -> Status {
    Status::unimplemented(format!("{what} are not supported"))
}

/// Returns the status that HTTP has for a code, by the table of `google.rpc.Code`.
pub(crate) fn http_status(code: Code) -> u16 {
    match code {
        Code::Ok => 200,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => 400,
        Code::Unauthenticated => 401,
        Code::PermissionDenied => 403,
        Code::NotFound => 404,
        Code::AlreadyExists | Code::Aborted => 409,
        Code::ResourceExhausted => 429,
        Code::Cancelled => 499,
        Code::Unknown | Code::Internal | Code::DataLoss => 500,
        Code::Unimplemented => 501,
        Code::Unavailable => 503,
        Code::DeadlineExceeded => 504,
    }
}

/// Makes the error of a defect, of which the log has the details.
pub(crate) fn internal(error: &dyn std::fmt::Display) -> Status {
    tracing::error!(%error, "a request over Flight failed");
    Status::internal("internal server error; the server's log has the details")
}
