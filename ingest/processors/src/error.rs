//! Failures of processors and of their configuration, as OpenSearch names them.
//!
//! A [`ProcessorError`] has the type, the reason and the members that an answer shows. It remembers the processor that
//! failed first, for `_ingest.on_failure_*`.

use std::fmt;

use serde_json::{Map, Value, json};

/// Failure of a processor or refusal of a configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessorError(Box<ErrorContent>);

#[derive(Clone, Debug, PartialEq)]
struct ErrorContent {
    kind: &'static str,
    status: u16,
    reason: String,
    members: Vec<(&'static str, Value)>,
    cause: Option<(&'static str, String)>,
    suppressed: Vec<ProcessorError>,
    origin: Option<FailureOrigin>,
}

/// The processor that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FailureOrigin {
    pub(crate) processor_type: &'static str,
    pub(crate) tag: Option<String>,
    pub(crate) pipeline: Option<String>,
}

/// Result of a processor.
pub(crate) type Result<T, E = ProcessorError> = std::result::Result<T, E>;

impl ProcessorError {
    pub(crate) fn new(status: u16, kind: &'static str, reason: impl Into<String>) -> Self {
        Self(Box::new(ErrorContent {
            kind,
            status,
            reason: reason.into(),
            members: Vec::new(),
            cause: None,
            suppressed: Vec::new(),
            origin: None,
        }))
    }

    pub(crate) fn illegal_argument(reason: impl Into<String>) -> Self {
        Self::new(400, "illegal_argument_exception", reason)
    }

    pub(crate) fn illegal_state(reason: impl Into<String>) -> Self {
        Self::new(500, "illegal_state_exception", reason)
    }

    pub(crate) fn parse(reason: impl Into<String>) -> Self {
        Self::new(400, "parse_exception", reason)
    }

    /// Makes the refusal of work beyond a bound.
    pub(crate) fn exceeded(reason: impl Into<String>) -> Self {
        Self::new(400, "illegal_argument_exception", reason)
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.0.members.push((name, value.into()));
        self
    }

    pub(crate) fn caused_by(mut self, kind: &'static str, reason: impl Into<String>) -> Self {
        self.0.cause = Some((kind, reason.into()));
        self
    }

    pub(crate) fn suppressing(mut self, others: impl IntoIterator<Item = Self>) -> Self {
        self.0.suppressed.extend(others);
        self
    }

    /// Names the processor that failed, unless an inner one is named already.
    pub(crate) fn with_origin(mut self, origin: impl FnOnce() -> FailureOrigin) -> Self {
        self.0.origin.get_or_insert_with(origin);
        self
    }

    pub(crate) fn origin(&self) -> Option<&FailureOrigin> {
        self.0.origin.as_ref()
    }

    /// Returns the message that `_ingest.on_failure_message` has: that of the innermost cause.
    pub(crate) fn root_message(&self) -> &str {
        self.0.cause.as_ref().map_or(&self.0.reason, |(_, reason)| reason)
    }

    /// Returns the HTTP status.
    pub fn status(&self) -> u16 {
        self.0.status
    }

    /// Returns the name of the exception.
    pub fn kind(&self) -> &'static str {
        self.0.kind
    }

    /// Returns the reason.
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// Returns the members beside type and reason.
    pub fn members(&self) -> Vec<(&'static str, Value)> {
        let mut members = self.0.members.clone();
        if !self.0.suppressed.is_empty() {
            let suppressed = self.0.suppressed.iter().map(Self::exception).collect();
            members.push(("suppressed", Value::Array(suppressed)));
        }
        members
    }

    /// Returns type and reason of the cause.
    pub fn cause(&self) -> Option<(&'static str, &str)> {
        self.0.cause.as_ref().map(|(kind, reason)| (*kind, reason.as_str()))
    }

    /// Renders the exception without a root cause.
    pub fn exception(&self) -> Value {
        let mut object = Map::new();
        self.fill(&mut object);
        if let Some((kind, reason)) = self.cause() {
            object.insert("caused_by".to_owned(), json!({ "type": kind, "reason": reason }));
        }
        Value::Object(object)
    }

    /// Renders the exception with its root cause, as simulations show it.
    pub fn exception_with_root_cause(&self) -> Value {
        let mut root = Map::new();
        self.fill(&mut root);
        let mut object = Map::new();
        object.insert("root_cause".to_owned(), Value::Array(vec![Value::Object(root)]));
        if let Value::Object(members) = self.exception() {
            object.extend(members);
        }
        Value::Object(object)
    }

    fn fill(&self, object: &mut Map<String, Value>) {
        object.insert("type".to_owned(), self.kind().into());
        object.insert("reason".to_owned(), self.reason().into());
        object.extend(self.members().into_iter().map(|(name, value)| (name.to_owned(), value)));
    }
}

impl fmt::Display for ProcessorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.reason)
    }
}

impl std::error::Error for ProcessorError {}
