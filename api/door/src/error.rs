//! Errors as clients see them: the one place that turns store and query errors into statuses and
//! Elasticsearch-shaped bodies.
//!
//! [`Error`] is what every handler returns. It is made by the constructors here or from
//! [`millrace_runtime::Error`] and [`millrace_query::Error`]; [`Error::to_json`] renders the body
//! `{"error":{"root_cause":[..],"type":..,"reason":..},"status":N}` and [`Error::write_item`] the
//! form inside a `_bulk` item. What a client cannot act on (I/O, catalog, defects) is logged here in
//! full under a reference that the answer repeats, and answered without internals.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millrace_accounts as accounts;
use millrace_listen::{BodyError, BudgetExceeded, ForeignHeader};
use serde_json::{Map, Value, json};

/// Challenges that ask for credentials, in Elasticsearch's words.
const CHALLENGES: [&str; 3] =
    ["Basic realm=\"security\", charset=\"UTF-8\"", "Bearer realm=\"security\"", "ApiKey"];

/// A refused or failed request.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    status: u16,
    kind: String,
    reason: String,
    /// Members beside type and reason, such as `index` or `resource.id`.
    members: Vec<(&'static str, Value)>,
    caused_by: Option<(String, String)>,
    headers: Vec<(&'static str, String)>,
    shape: ErrorShape,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ErrorShape {
    /// An exception object with root cause and status.
    Exception,
    /// `{"error": "text", "status": N}`.
    Text,
    /// `{"error": "text"}`.
    TextOnly,
    /// A whole body, rendered by who made the error.
    Rendered(Value),
}

impl Error {
    /// Makes an error from its status, exception name and reason.
    pub fn new(status: u16, kind: impl Into<String>, reason: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            status,
            kind: kind.into(),
            reason: reason.into(),
            members: Vec::new(),
            caused_by: None,
            headers: Vec::new(),
            shape: ErrorShape::Exception,
        }))
    }

    /// Makes a 400 `illegal_argument_exception`.
    pub fn illegal_argument(reason: impl Into<String>) -> Self {
        Self::new(400, "illegal_argument_exception", reason)
    }

    /// Makes a 400 `parsing_exception`.
    pub fn parsing(reason: impl Into<String>) -> Self {
        Self::new(400, "parsing_exception", reason)
    }

    /// Makes a 400 `action_request_validation_exception` that numbers the problems.
    pub fn validation<S: AsRef<str>>(problems: &[S]) -> Self {
        use fmt::Write as _;
        let mut reason = String::from("Validation Failed: ");
        for (number, problem) in problems.iter().enumerate() {
            let _ = write!(reason, "{}: {};", number + 1, problem.as_ref());
        }
        Self::new(400, "action_request_validation_exception", reason)
    }

    /// Makes a 404 `index_not_found_exception` for a name or expression.
    pub fn index_not_found(index: &str) -> Self {
        Self::index_not_found_because(index, format!("no such index [{index}]"))
    }

    /// Makes a 404 `index_not_found_exception` with a reason of its own.
    pub fn index_not_found_because(index: &str, reason: String) -> Self {
        Self::new(404, "index_not_found_exception", reason)
            .with("resource.type", "index_or_alias")
            .with("resource.id", index)
            .with("index_uuid", "_na_")
            .with("index", index)
    }

    /// Makes a 400 `invalid_index_name_exception`.
    pub fn invalid_index_name(index: &str, reason: String) -> Self {
        Self::new(400, "invalid_index_name_exception", reason).with("index", index).with("index_uuid", "_na_")
    }

    /// Makes a 404 `resource_not_found_exception`.
    pub fn resource_not_found(reason: impl Into<String>) -> Self {
        Self::new(404, "resource_not_found_exception", reason)
    }

    /// Makes the answer to a known path asked with a method it does not have.
    pub fn method_not_allowed(uri: &str, method: &http::Method, allowed: &[http::Method]) -> Self {
        let list = allowed.iter().map(http::Method::as_str).collect::<Vec<_>>();
        let reason = format!(
            "Incorrect HTTP method for uri [{uri}] and method [{method}], allowed: [{}]",
            list.join(", ")
        );
        let mut error = Self::new(405, "method_not_allowed", reason).header("allow", list.join(","));
        error.0.shape = ErrorShape::Text;
        error
    }

    /// Makes the answer to a path that no route has.
    pub fn no_handler(uri: &str, method: &http::Method) -> Self {
        let mut error = Self::new(
            400,
            "no_handler_found",
            format!("no handler found for uri [{uri}] and method [{method}]"),
        );
        error.0.shape = ErrorShape::TextOnly;
        error
    }

    /// Makes the refusal of a body or an answer of an unknown media type.
    pub fn content_type(reason: impl Into<String>) -> Self {
        let mut error = Self::new(406, "content_type_not_supported", reason);
        error.0.shape = ErrorShape::Text;
        error
    }

    pub(crate) fn content_too_long(limit: u64) -> Self {
        Self::new(
            413,
            "content_too_long_exception",
            format!(
                "entity content is too long for the configured limit of [{limit}] bytes (http.max_content_length)"
            ),
        )
    }

    /// Makes the refusal of a body whose values take more memory than all requests may have.
    pub(crate) fn content_too_large(bytes: u64, limit: u64) -> Self {
        Self::new(
            413,
            "content_too_long_exception",
            format!(
                "the request and its values take [{bytes}] bytes and more of memory, above the limit of [{limit}] for all requests; send it in parts"
            ),
        )
    }

    /// Makes the refusal of an answer that does not fit beside those that are being sent, or never will.
    pub(crate) fn answers_full(exceeded: &BudgetExceeded) -> Self {
        let BudgetExceeded { wanted, used, limit } = exceeded;
        if wanted > limit {
            let reason = format!(
                "the answer takes [{wanted}] bytes, above the limit of [{limit}]; ask for it in parts"
            );
            return Self::new(413, "content_too_long_exception", reason);
        }
        let reason = format!(
            "[answers] Data too large, [{wanted}] bytes of this answer do not fit beside the [{used}] bytes of answers \
             that are being sent: the limit is [{limit}]"
        );
        Self::new(429, "circuit_breaking_exception", reason)
            .with("bytes_wanted", *wanted)
            .with("bytes_limit", *limit)
            .with("durability", "TRANSIENT")
    }

    /// Makes the refusal of a request that does not fit beside those that are under way.
    pub(crate) fn in_flight_full(bytes: u64) -> Self {
        Self::new(
            429,
            "circuit_breaking_exception",
            format!(
                "[in_flight_requests] Data too large, [{bytes}] bytes of this request do not fit beside the others"
            ),
        )
        .with("bytes_wanted", bytes)
        .with("durability", "TRANSIENT")
    }

    /// Makes the refusal of a request that a web page of somewhere else had a browser send.
    pub fn foreign(foreign: &ForeignHeader) -> Self {
        let reason = format!(
            "{foreign}; address the server as localhost or 127.0.0.1, or serve with credentials (without --insecure)"
        );
        Self::new(403, "security_exception", reason)
    }

    /// Makes the refusal of a change that a page of another host had a browser send.
    pub(crate) fn of_other_page(ForeignHeader { header, value }: &ForeignHeader) -> Self {
        let reason = format!(
            "header [{header}] with [{value}] is of a page of another host than the one that is asked; send an API key or a token, \
             and have a proxy in between pass [Host] on as it is"
        );
        Self::new(403, "security_exception", reason)
    }

    /// Makes a 401 that asks for credentials.
    pub fn unauthorized(reason: impl Into<String>) -> Self {
        let error = Self::new(401, "security_exception", reason)
            .with("header", json!({ "WWW-Authenticate": CHALLENGES }));
        CHALLENGES.iter().fold(error, |error, challenge| error.header("www-authenticate", *challenge))
    }

    /// Makes the refusal of credentials that are not checked now.
    pub(crate) fn too_many_attempts(reason: &str, after: Duration) -> Self {
        let seconds = after.as_secs().max(1);
        Self::new(429, "es_rejected_execution_exception", format!("{reason}, retry in [{seconds}] s"))
            .header("retry-after", seconds.to_string())
    }

    /// Logs a defect or a failed dependency in full, and makes the answer that names only the log
    /// entry.
    pub fn concealed(status: u16, kind: &str, cause: &dyn fmt::Display) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let reference = NEXT.fetch_add(1, Ordering::Relaxed);
        tracing::error!(reference, status, error = %cause, "request failed");
        let what = if status == 503 { "a dependency of the server failed" } else { "internal server error" };
        Self::new(
            status,
            kind,
            format!("{what}; the server's log has the details under reference [{reference}]"),
        )
    }

    /// Adds a member beside type and reason.
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.0.members.push((name, value.into()));
        self
    }

    /// Answers a body of another form in place of the usual one.
    pub fn with_body(mut self, body: Value) -> Self {
        self.0.shape = ErrorShape::Rendered(body);
        self
    }

    /// Adds the error below this one.
    pub fn caused_by(mut self, kind: impl Into<String>, reason: impl Into<String>) -> Self {
        self.0.caused_by = Some((kind.into(), reason.into()));
        self
    }

    /// Answers with another body.
    pub fn rendered(mut self, body: Value) -> Self {
        self.0.shape = ErrorShape::Rendered(body);
        self
    }

    fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.0.headers.push((name, value.into()));
        self
    }

    /// Returns the HTTP status.
    pub fn status(&self) -> u16 {
        self.0.status
    }

    /// Returns the exception name.
    pub fn error_type(&self) -> &str {
        &self.0.kind
    }

    /// Returns whether the caller may not do what it asks.
    pub fn is_refusal(&self) -> bool {
        self.0.status == 403 && self.0.kind == "security_exception"
    }

    /// Returns the reason.
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// Renders the answer's body.
    pub fn to_json(&self) -> Value {
        match &self.0.shape {
            ErrorShape::Exception => json!({ "error": self.exception(true), "status": self.0.status }),
            ErrorShape::Text => json!({ "error": self.0.reason, "status": self.0.status }),
            ErrorShape::TextOnly => json!({ "error": self.0.reason }),
            ErrorShape::Rendered(body) => body.clone(),
        }
    }

    /// Renders the exception object with its root cause, as `_mget` shows it per document.
    pub fn exception(&self, with_root_cause: bool) -> Value {
        let mut object = Map::new();
        if with_root_cause {
            let mut root = Map::new();
            self.fill(&mut root);
            object.insert("root_cause".into(), Value::Array(vec![Value::Object(root)]));
        }
        self.fill(&mut object);
        if let Some((kind, reason)) = &self.0.caused_by {
            object.insert("caused_by".into(), json!({ "type": kind, "reason": reason }));
        }
        Value::Object(object)
    }

    fn fill(&self, object: &mut Map<String, Value>) {
        object.insert("type".into(), self.0.kind.clone().into());
        object.insert("reason".into(), self.0.reason.clone().into());
        for (name, value) in &self.0.members {
            object.insert((*name).into(), value.clone());
        }
    }

    /// Appends the exception object as a `_bulk` item carries it: without a root cause.
    pub fn write_item(&self, out: &mut Vec<u8>) {
        serde_json::to_writer(out, &self.exception(false)).expect("writing to memory cannot fail");
    }

    /// Makes the same error with a short reason and nothing beside it.
    pub fn cut_short(&self) -> Self {
        const MOST: usize = 200;
        let reason = self.reason();
        let reason = reason.get(..reason.floor_char_boundary(MOST)).unwrap_or_default();
        let mut error = Self::new(self.status(), "exception", reason);
        error.0.kind.clone_from(&self.0.kind);
        error
    }

    /// Returns the headers of the answer, beside those of every answer.
    pub fn into_headers(self) -> Vec<(&'static str, String)> {
        self.0.headers
    }

    fn from_storage(error: &millrace_runtime::Error) -> Self {
        use millrace_runtime::Error as S;
        let reason = error.to_string();
        match error {
            S::IndexNotFound { index } => Self::index_not_found_because(index, reason),
            S::AutoCreateRefused { index, .. } => Self::index_not_found_because(index, reason),
            S::Parse(_) => Self::new(400, "parse_exception", reason),
            S::RoutingMissing { index, .. } => {
                Self::new(400, "routing_missing_exception", reason).with("index", index.as_str())
            }
            S::IndexAlreadyExists { index, uuid } => {
                Self::new(400, "resource_already_exists_exception", reason)
                    .with("index_uuid", uuid.as_str())
                    .with("index", index.as_str())
            }
            S::DataStreamAlreadyExists { .. } => Self::new(400, "resource_already_exists_exception", reason),
            S::IndexClosed { index } => {
                Self::new(400, "index_closed_exception", reason).with("index", index.as_str())
            }
            S::InvalidIndexName { index, .. } => Self::invalid_index_name(index, reason),
            S::InvalidAliasName { .. } => Self::new(400, "invalid_alias_name_exception", reason),
            S::AliasesNotFound { aliases } => Self::new(404, "aliases_not_found_exception", reason)
                .with("resource.type", "aliases")
                .with("resource.id", aliases.as_str()),
            S::TemplateNotFound { .. } => Self::new(404, "index_template_missing_exception", reason),
            S::IllegalArgument(_) => Self::illegal_argument(reason),
            S::Validation(_) => Self::new(400, "action_request_validation_exception", reason),
            S::MapperParsing { caused_by, .. } => {
                let error = Self::new(400, "mapper_parsing_exception", reason);
                match caused_by {
                    Some((kind, reason)) => error.caused_by(kind.clone(), reason.clone()),
                    None => error,
                }
            }
            S::StrictDynamicMapping { .. } => Self::new(400, "strict_dynamic_mapping_exception", reason),
            S::VersionConflict { index, index_uuid, shard, .. } => {
                Self::new(409, "version_conflict_engine_exception", reason)
                    .with("index_uuid", index_uuid.as_str())
                    .with("shard", shard.to_string())
                    .with("index", index.as_str())
            }
            S::PositionMoved { .. } => Self::new(409, "version_conflict_engine_exception", reason),
            S::DocumentMissing { index, index_uuid, shard, .. } => {
                Self::new(404, "document_missing_exception", reason)
                    .with("index_uuid", index_uuid.as_str())
                    .with("shard", shard.to_string())
                    .with("index", index.as_str())
            }
            S::DocumentSourceMissing { index, index_uuid, shard, .. } => {
                Self::new(400, "document_source_missing_exception", reason)
                    .with("index_uuid", index_uuid.as_str())
                    .with("shard", shard.to_string())
                    .with("index", index.as_str())
            }
            // Blocks that go away by themselves ask for another try, unless one beside them stays.
            S::Blocked { reason: blocks, .. } if !blocks.contains("FORBIDDEN/") => {
                Self::new(429, "cluster_block_exception", reason)
            }
            S::Blocked { .. } => Self::new(403, "cluster_block_exception", reason),
            S::Unauthorized { .. } => Self::new(403, "security_exception", reason),
            S::TooLarge(_) => Self::new(413, "content_too_long_exception", reason),
            S::Rejected(_) => Self::new(429, "es_rejected_execution_exception", reason),
            S::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
                tracing::error!(error = %error, "request failed: disk is full");
                Self::new(
                    503,
                    "unavailable_exception",
                    "no space left on the server's disk; free some and retry",
                )
            }
            S::Stopped(_) => Self::new(503, "node_closed_exception", reason),
            S::Cancelled => Self::new(400, "task_cancelled_exception", reason),
            S::IndexUnsupported { index, .. } => {
                Self::new(500, "illegal_state_exception", reason).with("index", index.as_str())
            }
            S::Corrupt { .. } | S::Mismatch { .. } => Self::concealed(500, "corrupt_index_exception", error),
            S::Locked(_) | S::Io { .. } | S::ObjectStore(_) | S::Catalog(_) | S::DeadLetterRefused(_) => {
                Self::concealed(503, "unavailable_exception", error)
            }
            S::Columnar(_) | S::Internal(_) => Self::concealed(500, "illegal_state_exception", error),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.kind, self.0.reason)
    }
}

impl std::error::Error for Error {}

impl From<BodyError> for Error {
    fn from(error: BodyError) -> Self {
        let reason = error.to_string();
        match error {
            BodyError::TooLong { limit, .. } => Self::content_too_long(limit),
            BodyError::Exceeded(exceeded) => Self::in_flight_full(exceeded.wanted),
            BodyError::Silent | BodyError::Slow => Self::new(408, "timeout_exception", reason),
            BodyError::Coding(_) => Self::new(415, "illegal_argument_exception", reason),
            BodyError::Broken(_) | BodyError::Invalid { .. } => Self::illegal_argument(reason),
            BodyError::Failed(_) => Self::concealed(500, "illegal_state_exception", &reason),
        }
    }
}

impl From<millrace_runtime::Error> for Error {
    fn from(error: millrace_runtime::Error) -> Self {
        Self::from_storage(&error)
    }
}

impl From<accounts::Error> for Error {
    fn from(error: accounts::Error) -> Self {
        use accounts::Error as A;
        let reason = error.to_string();
        match &error {
            A::Invalid(_) | A::TooMany { .. } => Self::illegal_argument(reason),
            A::NotFound { .. } => Self::resource_not_found(reason),
            A::Conflict(_) => Self::new(409, "resource_already_exists_exception", reason),
            A::Reserved { .. } | A::Forbidden(_) => Self::new(403, "security_exception", reason),
            A::Later { reason, after } => Self::too_many_attempts(reason, *after),
            A::Store(error) => Self::from_storage(error),
            A::Internal(_) => Self::concealed(500, "illegal_state_exception", &error),
        }
    }
}

impl From<accounts::Refusal> for Error {
    fn from(refusal: accounts::Refusal) -> Self {
        match refusal {
            accounts::Refusal::Unauthenticated(reason) => Self::unauthorized(reason),
            accounts::Refusal::Later { reason, after } => Self::too_many_attempts(reason, after),
            accounts::Refusal::Failed(reason) => Self::concealed(500, "illegal_state_exception", &reason),
        }
    }
}

impl From<millrace_query::Error> for Error {
    fn from(error: millrace_query::Error) -> Self {
        if let Some(inner) = error.as_storage() {
            return Self::from_storage(inner);
        }
        let (status, kind) = (error.status(), error.error_type().to_string());
        if error.is_internal() {
            return Self::concealed(status, &kind, &error);
        }
        let mut own = Self::new(status, kind, error.reason());
        if let Some(body) = error.to_body() {
            own.0.shape = ErrorShape::Rendered(body);
        }
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_index_names_the_resource() {
        let error = Error::from(millrace_runtime::Error::IndexNotFound { index: "logs".into() });
        assert_eq!(error.status(), 404);
        let body = error.to_json();
        assert_eq!(
            body,
            json!({
                "error": {
                    "root_cause": [{
                        "type": "index_not_found_exception", "reason": "no such index [logs]",
                        "resource.type": "index_or_alias", "resource.id": "logs", "index_uuid": "_na_",
                        "index": "logs"
                    }],
                    "type": "index_not_found_exception", "reason": "no such index [logs]",
                    "resource.type": "index_or_alias", "resource.id": "logs", "index_uuid": "_na_", "index": "logs"
                },
                "status": 404
            })
        );
    }

    #[test]
    fn internals_are_not_answered() {
        let error = Error::from(millrace_runtime::Error::Internal("pointer 0xdead in /var/secret".into()));
        assert_eq!(error.status(), 500);
        assert!(!error.to_json().to_string().contains("secret"));
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let error = Error::from(millrace_runtime::Error::io("write", "/data/log", full));
        assert_eq!(error.status(), 503);
        assert!(error.reason().contains("no space left"));
    }

    #[test]
    fn validation_numbers_its_problems() {
        let error = Error::validation(&["index is missing", "id is missing"]);
        assert_eq!(error.reason(), "Validation Failed: 1: index is missing;2: id is missing;");
    }

    #[test]
    fn wrong_methods_name_the_right_ones() {
        let error =
            Error::method_not_allowed("/_bulk", &http::Method::GET, &[http::Method::POST, http::Method::PUT]);
        assert_eq!(
            error.to_json(),
            json!({
                "error": "Incorrect HTTP method for uri [/_bulk] and method [GET], allowed: [POST, PUT]",
                "status": 405
            })
        );
        assert_eq!(error.into_response().headers, [("allow", "POST,PUT".to_owned())]);
    }
}
