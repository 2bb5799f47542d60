//! The crate's one error type: errors of a search, in OpenSearch's words.
//!
//! Errors of a request are told from errors of a shard: the former end the search, the latter are
//! gathered in [`Error::SearchPhase`] when every shard has one, and else listed under `_shards` of
//! a partial answer. [`Error::to_body`] renders the whole answer.

mod reasons;

use std::sync::Arc;

use arrow::error::ArrowError;
use datafusion_common::DataFusionError;
use millrace_catalog::metadata::IndexMeta;
use serde_json::{Map, Value, json};

use self::reasons::within_bounds;
pub use self::reasons::{MAX_REASON_BYTES, cut_short};

/// Result of a query operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why one shard could not answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardFailure {
    /// Index of the shard.
    pub index: String,
    /// Uuid of the index.
    pub index_uuid: String,
    /// Number of the shard.
    pub shard: u32,
    /// Exception name, such as `query_shard_exception`.
    pub error_type: String,
    /// Reason of the failure.
    pub reason: String,
    /// Cause below, as `(type, reason)`.
    pub caused_by: Option<(String, String)>,
    /// HTTP status that fits the failure.
    pub status: u16,
}

impl ShardFailure {
    fn reason_json(&self) -> Value {
        let mut reason = Map::new();
        reason.insert("type".into(), json!(self.error_type));
        reason.insert("reason".into(), json!(self.reason));
        // Only errors of a query against a mapping name the index themselves.
        if !self.index.is_empty() && self.error_type == "query_shard_exception" {
            reason.insert("index".into(), json!(self.index));
            reason.insert("index_uuid".into(), json!(self.index_uuid));
        }
        if let Some((kind, text)) = &self.caused_by {
            reason.insert("caused_by".into(), json!({"type": kind, "reason": text}));
        }
        Value::Object(reason)
    }

    /// Renders the failure as an element of `_shards.failures`.
    pub fn to_json(&self) -> Value {
        json!({"shard": self.shard, "index": self.index, "reason": self.reason_json()})
    }
}

/// Everything that can go wrong with a search.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store refused or failed.
    #[error(transparent)]
    Storage(#[from] millrace_runtime::Error),
    /// A body is not in the query language.
    #[error("{0}")]
    Parsing(String),
    /// A part of a body names something that does not exist.
    #[error("{0}")]
    NamedObjectNotFound(String),
    /// An option of a body, or a text in another language, cannot be read.
    #[error("{0}")]
    Parse(String),
    /// A query of that name is not known; the text carries the suggestion.
    #[error("{reason}")]
    UnknownQuery {
        /// Full text, with a suggestion where one is close.
        reason: String,
        /// The unknown name.
        name: String,
    },
    /// A parameter has a value that cannot be used.
    #[error("{0}")]
    IllegalArgument(String),
    /// The request cannot be executed in its context; the shards report it.
    #[error("{0}")]
    SearchContext(String),
    /// The request contradicts itself.
    #[error("Validation Failed: 1: {0};")]
    Validation(String),
    /// A query has more clauses than allowed.
    #[error("maxClauseCount is set to {0}")]
    TooManyClauses(usize),
    /// A query has become more clauses than allowed in all.
    #[error("Query contains too many nested clauses; maxClauseCount is set to {0}")]
    TooManyNestedClauses(usize),
    /// A pattern's automaton is more work than allowed.
    #[error("{0}")]
    TooComplex(String),
    /// A text is not a number.
    #[error("{0}")]
    NumberFormat(String),
    /// A value does not fit its field; becomes a failure of the shards of that index.
    #[error("{reason}")]
    QueryShard {
        /// Mismatch that is reported.
        reason: String,
        /// Cause below, as `(type, reason)`.
        caused_by: Option<(String, String)>,
    },
    /// A body cannot be read at some member of it.
    #[error("{reason}")]
    Content {
        /// Unknown member, in a sentence.
        reason: String,
        /// Error of its value, where that is an error of its own.
        cause: Option<Box<Error>>,
    },
    /// An exception of another name, such as `parse_exception`; met with a mapping or a row, it becomes
    /// a failure of the shards of that index.
    #[error("{reason}")]
    Exception {
        /// Exception name.
        kind: &'static str,
        /// HTTP status.
        status: u16,
        /// Reason of the failure.
        reason: String,
    },
    /// One shard was asked and failed.
    #[error("{}", .0.reason)]
    OneShard(Box<ShardFailure>),
    /// Every shard failed.
    #[error("all shards failed")]
    SearchPhase {
        /// One element a shard.
        failures: Vec<ShardFailure>,
    },
    /// No scroll or point in time of that id, or not the caller's.
    #[error("No search context found for id [{0}]")]
    ContextNotFound(String),
    /// A bound on open contexts or waiting requests is reached.
    #[error("{0}")]
    Rejected(String),
    /// An answer would have more buckets than allowed.
    #[error(
        "Trying to create too many buckets. Must be less than or equal to: [{limit}] but was [{made}]. This limit can be set by changing the [search.max_buckets] cluster level setting."
    )]
    TooManyBuckets {
        /// Most buckets.
        limit: u64,
        /// Buckets when the limit was passed.
        made: u64,
    },
    /// Results of shards could not be joined.
    #[error("")]
    Reducing(Box<Error>),
    /// The memory of queries is exhausted.
    #[error("[parent] Data too large, data for [query] would be larger than the limit: {0}")]
    CircuitBreaking(String),
    /// The time given was not enough and partial results are not wanted.
    #[error("Time exceeded")]
    TimedOut,
    /// Planning or execution failed: a defect of this program.
    #[error("query execution: {0}")]
    Execution(String),
}

impl Error {
    /// Makes the refusal of a member that a part of a body does not know.
    pub fn unknown_member(part: &str, member: &str) -> Self {
        Self::Content { reason: format!("[{part}] unknown field [{member}]"), cause: None }
    }

    /// Makes the refusal of a member whose value cannot be read.
    pub fn unread_member(part: &str, member: &str, cause: Self) -> Self {
        Self::Content {
            reason: format!("[{part}] failed to parse field [{member}]"),
            cause: Some(Box::new(cause)),
        }
    }

    /// Makes the refusal of a request with several problems.
    pub fn validation(problems: &[String]) -> Self {
        let mut text = problems.first().cloned().unwrap_or_default();
        for (at, problem) in problems.iter().enumerate().skip(1) {
            text.push_str(&format!(";{}: {problem}", at + 1));
        }
        Self::Validation(text)
    }

    /// Returns the HTTP status.
    pub fn status(&self) -> u16 {
        use millrace_runtime::Kind;
        match self {
            Self::Storage(error) => match error.kind() {
                Kind::InvalidInput => 400,
                Kind::NotFound => 404,
                Kind::Conflict => 409,
                Kind::TooLarge => 413,
                Kind::Overloaded => 429,
                Kind::Forbidden | Kind::Unauthorized => 403,
                Kind::Corrupt | Kind::Internal => 500,
                Kind::Unavailable => 503,
            },
            Self::Parsing(_)
            | Self::NamedObjectNotFound(_)
            | Self::SearchContext(_)
            | Self::Parse(_)
            | Self::UnknownQuery { .. }
            | Self::IllegalArgument(_)
            | Self::Validation(_)
            | Self::TooComplex(_)
            | Self::TooManyClauses(_)
            | Self::TooManyNestedClauses(_)
            | Self::NumberFormat(_)
            | Self::QueryShard { .. } => 400,
            Self::Exception { status, .. } => *status,
            Self::Content { .. } => 400,
            Self::OneShard(failure) => failure.status,
            Self::SearchPhase { failures } => failures.iter().map(|f| f.status).max().unwrap_or(503),
            Self::ContextNotFound(_) => 404,
            Self::Rejected(_) | Self::CircuitBreaking(_) => 429,
            Self::TooManyBuckets { .. } => 503,
            Self::Reducing(error) => error.status(),
            Self::TimedOut => 504,
            Self::Execution(_) => 500,
        }
    }

    /// Returns whether it is a defect or a damage, which its text would not explain to a client.
    pub fn is_internal(&self) -> bool {
        let internal = |failure: &ShardFailure| {
            failure.status == 500 && failure.error_type != "aggregation_execution_exception"
        };
        match self {
            Self::Exception { .. } => false,
            Self::OneShard(failure) => internal(failure),
            Self::Reducing(error) => error.is_internal(),
            Self::SearchPhase { failures } => failures.iter().any(internal),
            other => other.status() == 500,
        }
    }

    /// Returns the exception name of the outermost error.
    pub fn error_type(&self) -> String {
        match self {
            Self::Storage(_) => "exception",
            Self::Parsing(_) | Self::UnknownQuery { .. } => "parsing_exception",
            Self::NamedObjectNotFound(_) => "named_object_not_found_exception",
            Self::SearchContext(_) => "search_exception",
            Self::Parse(_) => "parse_exception",
            Self::IllegalArgument(_) => "illegal_argument_exception",
            Self::Validation(_) => "action_request_validation_exception",
            Self::TooComplex(_) => "too_complex_to_determinize_exception",
            Self::TooManyClauses(_) => "too_many_clauses",
            Self::TooManyNestedClauses(_) => "too_many_nested_clauses",
            Self::NumberFormat(_) => "number_format_exception",
            Self::QueryShard { .. } => "query_shard_exception",
            Self::Exception { kind, .. } => kind,
            Self::Content { .. } => "x_content_parse_exception",
            Self::OneShard(failure) => return failure.error_type.clone(),
            Self::SearchPhase { .. } | Self::ContextNotFound(_) | Self::Reducing(_) => {
                "search_phase_execution_exception"
            }
            Self::Rejected(_) => "rejected_execution_exception",
            Self::CircuitBreaking(_) => "circuit_breaking_exception",
            Self::TooManyBuckets { .. } => "too_many_buckets_exception",
            Self::TimedOut => "query_phase_execution_exception",
            Self::Execution(_) => "exception",
        }
        .to_owned()
    }

    /// Returns the error.
    pub fn reason(&self) -> String {
        match self {
            Self::ContextNotFound(_) => "all shards failed".to_owned(),
            other => other.to_string(),
        }
    }

    /// Returns the store's error, if it is one: the caller has a rendering for these.
    pub fn as_storage(&self) -> Option<&millrace_runtime::Error> {
        match self {
            Self::Storage(error) => Some(error),
            _ => None,
        }
    }

    /// Renders the body of the answer; `None` for errors of the store.
    pub fn to_body(&self) -> Option<Value> {
        let status = self.status();
        let error = match self {
            Self::Storage(_) => return None,
            Self::SearchPhase { failures } => {
                let mut listed: Vec<&ShardFailure> = Vec::new();
                for failure in failures {
                    let known = listed
                        .iter()
                        .any(|seen| seen.index == failure.index && seen.reason == failure.reason);
                    if !known {
                        listed.push(failure);
                    }
                }
                let listed = within_bounds(&listed);
                let causes: Vec<Value> = listed.iter().map(ShardFailure::reason_json).collect();
                let mut body = json!({
                    "root_cause": causes,
                    "type": "search_phase_execution_exception",
                    "reason": "all shards failed",
                    "phase": "query",
                    "grouped": true,
                    "failed_shards": listed.iter().map(ShardFailure::to_json).collect::<Vec<_>>(),
                });
                if let (Some(first), Some(fields)) = (listed.first(), body.as_object_mut())
                    && !matches!(
                        first.error_type.as_str(),
                        "query_shard_exception" | "search_exception" | "aggregation_execution_exception"
                    )
                {
                    fields.insert(
                        "caused_by".into(),
                        json!({"type": first.error_type, "reason": first.reason,
                               "caused_by": {"type": first.error_type, "reason": first.reason}}),
                    );
                }
                body
            }
            Self::ContextNotFound(_) => {
                let cause = json!({"type": "search_context_missing_exception", "reason": self.to_string()});
                json!({
                    "root_cause": [cause],
                    "type": "search_phase_execution_exception",
                    "reason": "all shards failed",
                    "phase": "query",
                    "grouped": true,
                    "failed_shards": [{"shard": -1, "index": null, "reason": cause}],
                    "caused_by": cause,
                })
            }
            Self::Reducing(error) => {
                let mut cause = json!({"type": error.error_type(), "reason": error.reason()});
                if let Self::TooManyBuckets { limit, .. } = error.as_ref() {
                    cause["max_buckets"] = json!(limit);
                }
                json!({
                    "root_cause": [],
                    "type": self.error_type(),
                    "reason": "",
                    "phase": "fetch",
                    "grouped": true,
                    "failed_shards": [],
                    "caused_by": cause,
                })
            }
            Self::Content { reason, cause: Some(cause) } => {
                let inner = cause.to_body().map(|mut body| body["error"].take()).unwrap_or_default();
                let mut caused_by = json!({"type": cause.error_type(), "reason": cause.reason()});
                if let Some(deeper) = inner.get("caused_by") {
                    caused_by["caused_by"] = deeper.clone();
                }
                // Java's own exceptions are no causes of their own to OpenSearch.
                let own = !matches!(**cause, Self::IllegalArgument(_) | Self::NumberFormat(_));
                let root_cause = match inner.get("root_cause") {
                    Some(root_cause) if own => root_cause.clone(),
                    _ => json!([{"type": self.error_type(), "reason": reason}]),
                };
                json!({
                    "root_cause": root_cause,
                    "type": self.error_type(),
                    "reason": reason,
                    "caused_by": caused_by,
                })
            }
            Self::OneShard(failure) => {
                let mut error = failure.reason_json();
                let mut cause = error.clone();
                if let (Some(error), Some(cause)) = (error.as_object_mut(), cause.as_object_mut()) {
                    cause.remove("caused_by");
                    error.insert("root_cause".into(), json!([cause]));
                }
                error
            }
            Self::UnknownQuery { name, .. } => json!({
                "root_cause": [{"type": self.error_type(), "reason": self.reason()}],
                "type": self.error_type(),
                "reason": self.reason(),
                "caused_by": {
                    "type": "named_object_not_found_exception",
                    "reason": format!("unknown field [{name}]"),
                },
            }),
            _ => json!({
                "root_cause": [{"type": self.error_type(), "reason": self.reason()}],
                "type": self.error_type(),
                "reason": self.reason(),
            }),
        };
        Some(json!({"error": error, "status": status}))
    }

    /// Makes it the error of joining the results of shards, where it is one of the request's.
    pub fn while_reducing(self) -> Self {
        match self {
            Self::TooManyBuckets { .. } | Self::Exception { .. } | Self::IllegalArgument(_) => {
                Self::Reducing(Box::new(self))
            }
            other => other,
        }
    }

    /// Turns an error that arose from one index's mapping into a failure of a shard.
    pub fn into_shard_failure(self, index: &str, uuid: &str, shard: u32) -> ShardFailure {
        let status = self.status();
        let (error_type, reason, caused_by) = match self {
            Self::QueryShard { reason, caused_by } => ("query_shard_exception".to_owned(), reason, caused_by),
            other => (other.error_type(), other.reason(), None),
        };
        ShardFailure {
            index: index.to_owned(),
            index_uuid: uuid.to_owned(),
            shard,
            error_type,
            reason: cut_short(reason, MAX_REASON_BYTES),
            caused_by: caused_by.map(|(kind, text)| (kind, cut_short(text, MAX_REASON_BYTES))),
            status,
        }
    }

    /// Renders the error as one item of several: with its status, without a status of the answer.
    pub fn to_item(&self) -> Value {
        match self {
            Self::Storage(error) => storage_item(error, self.status()),
            other => other.to_body().unwrap_or_default(),
        }
    }

    /// Makes it the error of the one shard of an index that was asked.
    pub fn of_index(self, meta: &IndexMeta) -> Self {
        Self::OneShard(Box::new(self.into_shard_failure(&meta.name, &meta.uuid_text(), 0)))
    }

    /// Wraps an error met while a clause meets a mapping, as OpenSearch's shards do.
    pub fn failed_to_create_query(self) -> Self {
        match self {
            Self::QueryShard { .. }
            | Self::Parsing(_)
            | Self::TooManyNestedClauses(_)
            | Self::Exception { .. } => self,
            other => {
                let cause = match &other {
                    Self::Storage(_) => "illegal_argument_exception".to_owned(),
                    error => error.error_type(),
                };
                let reason = other.reason();
                Self::QueryShard {
                    reason: format!("failed to create query: {reason}"),
                    caused_by: Some((cause, reason)),
                }
            }
        }
    }
}

/// Renders an error of the store as one item of several.
fn storage_item(error: &millrace_runtime::Error, status: u16) -> Value {
    use millrace_runtime::Error as Storage;
    let reason = error.to_string();
    let cause = match error {
        Storage::IndexNotFound { index } => json!({
            "type": "index_not_found_exception", "reason": reason, "resource.type": "index_or_alias",
            "resource.id": index, "index_uuid": "_na_", "index": index,
        }),
        Storage::IndexClosed { index } => {
            json!({"type": "index_closed_exception", "reason": reason, "index": index})
        }
        Storage::InvalidIndexName { index, .. } => {
            json!({"type": "invalid_index_name_exception", "reason": reason, "index": index})
        }
        Storage::IllegalArgument(_) => json!({"type": "illegal_argument_exception", "reason": reason}),
        Storage::Unauthorized { .. } => json!({"type": "security_exception", "reason": reason}),
        Storage::TooLarge(_) => json!({"type": "content_too_long_exception", "reason": reason}),
        Storage::Rejected(_) => json!({"type": "es_rejected_execution_exception", "reason": reason}),
        _ => {
            tracing::error!(error = %error, status, "a search of several failed");
            json!({"type": "exception", "reason": "internal server error"})
        }
    };
    let mut body = json!({"root_cause": [cause]});
    if let (Some(body), Some(cause)) = (body.as_object_mut(), cause.as_object()) {
        body.extend(cause.clone());
    }
    json!({"error": body, "status": status})
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Self {
        match error {
            DataFusionError::ResourcesExhausted(text) => Self::CircuitBreaking(text),
            DataFusionError::External(inner) => match inner.downcast::<Self>() {
                Ok(own) => *own,
                Err(inner) => match inner.downcast::<millrace_runtime::Error>() {
                    Ok(storage) => Self::Storage(*storage),
                    Err(inner) => match inner.downcast::<DataFusionError>() {
                        Ok(error) => Self::from(*error),
                        Err(other) => Self::Execution(other.to_string()),
                    },
                },
            },
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => Self::from(*inner),
            DataFusionError::ArrowError(inner, trace) => match *inner {
                ArrowError::ExternalError(inner) => Self::from(DataFusionError::External(inner)),
                other => Self::Execution(DataFusionError::ArrowError(Box::new(other), trace).to_string()),
            },
            DataFusionError::Collection(errors) => match errors.into_iter().next() {
                Some(first) => Self::from(first),
                None => Self::Execution("an operator failed without an error".to_owned()),
            },
            DataFusionError::Shared(inner) => match Arc::try_unwrap(inner) {
                Ok(error) => Self::from(error),
                Err(shared) => of_shared(&shared),
            },
            other => Self::Execution(other.to_string()),
        }
    }
}

/// Makes an error of one that others have, too: several partitions of a plan that wait for one input, such as a side of a join, all
/// get what it failed with.
fn of_shared(error: &DataFusionError) -> Error {
    match error {
        DataFusionError::ResourcesExhausted(text) => Error::CircuitBreaking(text.clone()),
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => of_shared(inner),
        DataFusionError::Shared(inner) => of_shared(inner),
        DataFusionError::Collection(errors) => match errors.first() {
            Some(first) => of_shared(first),
            None => Error::Execution("an operator failed without an error".to_owned()),
        },
        DataFusionError::External(inner) => of_external(inner.as_ref()),
        DataFusionError::ArrowError(inner, _) => match inner.as_ref() {
            ArrowError::ExternalError(inner) => of_external(inner.as_ref()),
            _ => Error::Execution(error.to_string()),
        },
        other => Error::Execution(other.to_string()),
    }
}

/// Makes an error of what another crate has carried.
fn of_external(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Error {
    if let Some(error) = error.downcast_ref::<DataFusionError>() {
        return of_shared(error);
    }
    match error.downcast_ref::<Error>() {
        Some(Error::CircuitBreaking(text)) => Error::CircuitBreaking(text.clone()),
        Some(Error::Rejected(text)) => Error::Rejected(text.clone()),
        Some(Error::TimedOut) => Error::TimedOut,
        Some(Error::SearchPhase { failures }) => Error::SearchPhase { failures: failures.clone() },
        Some(own) if own.status() < 500 => Error::Exception {
            kind: "illegal_argument_exception",
            status: own.status(),
            reason: own.reason(),
        },
        Some(own) => Error::Execution(own.reason()),
        None => Error::Execution(error.to_string()),
    }
}

impl From<ArrowError> for Error {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::ExternalError(inner) => Self::from(DataFusionError::External(inner)),
            other => Self::Execution(format!("columnar data: {other}")),
        }
    }
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        DataFusionError::External(Box::new(error))
    }
}

#[cfg(test)]
mod tests;
