//! Errors of requests about agents, and their answers in the form of Wazuh's API.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use millrace_gateway::Error as GatewayError;
use millrace_listen::{BodyError, BudgetExceeded};
use millrace_runtime::Error as StoreError;
use serde_json::json;

use crate::answer;

/// A refused or failed request.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The request is malformed: correct it.
    #[error("{0}")]
    Invalid(String),
    /// Credentials, the secret or the certificate are missing or wrong.
    #[error("{0}")]
    Unauthorized(String),
    /// A page of another host had a browser send the request.
    #[error("{0}")]
    Foreign(String),
    /// There is no such agent.
    #[error("there is no agent [{0}]")]
    UnknownAgent(String),
    /// There is no such path.
    #[error("there is no such path on this listener")]
    UnknownPath,
    /// The path does not have this method.
    #[error("the path does not have the method [{0}]")]
    Method(http::Method),
    /// The agent is enrolled already.
    #[error(
        "agent [{0}] is enrolled already: show its token as a bearer, or ask a user with the right to change agents"
    )]
    Conflict(String),
    /// The body is too long.
    #[error("the body has more than [{0}] bytes")]
    TooLong(u64),
    /// There are too many agents.
    #[error("there are [{0}] agents already, as many as agents.max allows: delete some, or raise it")]
    Full(usize),
    /// The address sends too many requests for enrolment.
    #[error("too many requests for enrolment of this address, retry in [{}] s", .0.as_secs().max(1))]
    TooMany(Duration),
    /// The gateway refused the request.
    #[error("{}", .0.reason())]
    Gateway(GatewayError),
}

impl From<GatewayError> for AgentError {
    fn from(error: GatewayError) -> Self {
        Self::Gateway(error)
    }
}

impl From<StoreError> for AgentError {
    fn from(error: StoreError) -> Self {
        Self::Gateway(error.into())
    }
}

impl From<BodyError<BudgetExceeded>> for AgentError {
    fn from(error: BodyError<BudgetExceeded>) -> Self {
        match error {
            BodyError::TooLong { limit, .. } => Self::TooLong(limit),
            error => Self::Gateway(error.into()),
        }
    }
}

impl AgentError {
    /// Returns the status of the answer.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::Unauthorized(_) => StatusCode::UNAUTHORIZED,
            Self::Foreign(_) => StatusCode::FORBIDDEN,
            Self::UnknownAgent(_) | Self::UnknownPath => StatusCode::NOT_FOUND,
            Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::TooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Full(_) | Self::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Gateway(error) => {
                StatusCode::from_u16(error.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
            }
        }
    }
}

impl IntoResponse for AgentError {
    fn into_response(self) -> Response {
        let status = self.status();
        let text = self.to_string();
        let body = json!({
            "error": status.as_u16(),
            "title": status.canonical_reason().unwrap_or("Error"),
            "detail": text,
            "message": text,
        });
        let mut response = answer::json(status, &body);
        let headers = response.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            for challenge in ["Bearer realm=\"agents\"", "Basic realm=\"security\", charset=\"UTF-8\""] {
                headers.append(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
            }
        }
        match self {
            Self::TooMany(after) => {
                headers.insert(RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
            }
            Self::Gateway(error) => {
                for (name, value) in error.into_headers() {
                    let header = (HeaderName::try_from(name), HeaderValue::try_from(value));
                    if let (Ok(name), Ok(value)) = header
                        && name != WWW_AUTHENTICATE
                    {
                        headers.insert(name, value);
                    }
                }
            }
            _ => {}
        }
        response
    }
}
