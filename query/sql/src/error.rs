//! Errors of statements, with the names and texts that OpenSearch's SQL gives them.

use std::fmt;

use millrace_work::error::Error;
use serde_json::{Value, json};

/// Result of planning or running a statement.
pub type Result<T, E = SqlError> = std::result::Result<T, E>;

/// Error of a statement.
#[derive(Debug)]
pub enum SqlError {
    /// It is not SQL.
    Syntax(String),
    /// It names what does not exist, or uses it wrongly.
    Semantic(String),
    /// A value cannot be computed.
    Evaluation(String),
    /// It asks for what is not built.
    Unsupported(String),
    /// A setting forbids it.
    Disabled(String),
    /// The request around it is wrong.
    Request(String),
    /// A cursor is none of this server's, or is spent.
    Cursor(String),
    /// A bound is reached.
    TooLarge(String),
    /// Its answer was not read in time.
    Unread(String),
    /// Its task was cancelled, after it has deleted documents.
    Cancelled(String),
    /// A read of the statement failed.
    Query(Error),
    /// An error at a place of the statement.
    Located(Box<LocatedError>),
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(details)
            | Self::Semantic(details)
            | Self::Evaluation(details)
            | Self::Unsupported(details)
            | Self::Disabled(details)
            | Self::Request(details)
            | Self::Cursor(details)
            | Self::TooLarge(details)
            | Self::Unread(details)
            | Self::Cancelled(details) => f.write_str(details),
            Self::Query(error) => error.fmt(f),
            Self::Located(located) => located.error.fmt(f),
        }
    }
}

impl std::error::Error for SqlError {}

/// An error with its place in the text of a statement.
#[derive(Debug)]
pub struct LocatedError {
    /// The error.
    pub error: SqlError,
    /// First byte of the part that is wrong, and the byte behind it.
    pub span: (usize, usize),
    /// Name that the user may have meant.
    pub suggestion: Option<String>,
    /// The tokens that may stand at the place.
    pub expected: Vec<String>,
}

impl LocatedError {
    /// Tells where an error is, unless it is told already.
    pub fn locate(error: SqlError, start: usize, end: usize) -> SqlError {
        match error {
            SqlError::Located(located) if located.span == (0, 0) => {
                SqlError::Located(Box::new(Self { span: (start, end), ..*located }))
            }
            SqlError::Located(_) => error,
            error => SqlError::Located(Box::new(Self {
                error,
                span: (start, end),
                suggestion: None,
                expected: Vec::new(),
            })),
        }
    }

    /// Suggests a name with an error whose place is not told yet.
    pub fn suggest(error: SqlError, suggestion: Option<String>) -> SqlError {
        SqlError::Located(Box::new(Self { error, span: (0, 0), suggestion, expected: Vec::new() }))
    }
}

impl From<Error> for SqlError {
    fn from(error: Error) -> Self {
        Self::Query(error)
    }
}

impl From<millrace_runtime::Error> for SqlError {
    fn from(error: millrace_runtime::Error) -> Self {
        Self::Query(error.into())
    }
}

/// Most bytes of a text that an error repeats.
const EXCERPT_BYTES: usize = 200;

/// Writes the beginning of a value that an error repeats, without the text of the whole.
pub(crate) fn excerpt(value: impl fmt::Display) -> String {
    struct Excerpt(String);
    impl fmt::Write for Excerpt {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let room = EXCERPT_BYTES.saturating_sub(self.0.len());
            if text.len() <= room {
                self.0.push_str(text);
                return Ok(());
            }
            self.0.push_str(text.get(..text.floor_char_boundary(room)).unwrap_or_default());
            self.0.push('…');
            Err(fmt::Error)
        }
    }
    let mut excerpt = Excerpt(String::new());
    // The error is the end of the excerpt.
    let _ = fmt::write(&mut excerpt, format_args!("{value}"));
    excerpt.0
}

/// Prefix of errors about values that functions cannot take; it passes through DataFusion.
const EVALUATION: &str = "cannot evaluate: ";

/// Text of the error of a file that would be more than there may be on disk; it has no kind of its own.
const SPILL_LIMIT: &str = "used disk space during the spilling process has exceeded";

/// Makes the error of a function that cannot take a value.
pub(crate) fn evaluation(reason: impl std::fmt::Display) -> datafusion::error::DataFusionError {
    datafusion::error::DataFusionError::Execution(format!("{EVALUATION}{reason}"))
}

impl From<datafusion::error::DataFusionError> for SqlError {
    fn from(error: datafusion::error::DataFusionError) -> Self {
        let text = error.to_string();
        match text.split_once(EVALUATION) {
            Some((_, reason)) => Self::Evaluation(reason.to_owned()),
            None if text.contains(SPILL_LIMIT) => Self::Query(Error::CircuitBreaking(
                "the rows of statements take more on disk than query.spill_bytes allows; ask for fewer rows or columns"
                    .to_owned(),
            )),
            None => Self::Query(error.into()),
        }
    }
}

impl SqlError {
    /// Makes the refusal of a name that no source has.
    pub fn unknown_field(name: &str) -> Self {
        Self::Semantic(format!("can't resolve Symbol(namespace=FIELD_NAME, name={name}) in type env"))
    }

    /// Returns the HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Self::Query(error) => error.status(),
            Self::Located(located) => located.error.status(),
            Self::Unread(_) => 408,
            _ => 400,
        }
    }

    /// Renders the body of the answer.
    pub fn to_body(&self) -> Value {
        let (reason, kind, details) = match self {
            Self::Located(located) => return located.error.to_body(),
            Self::Syntax(details) => {
                ("Invalid SQL query".to_owned(), "SyntaxCheckException", details.clone())
            }
            Self::Semantic(details) => {
                ("Invalid SQL query".to_owned(), "SemanticCheckException", details.clone())
            }
            Self::Evaluation(details) => {
                ("Invalid SQL query".to_owned(), "ExpressionEvaluationException", details.clone())
            }
            Self::Unsupported(details) => {
                ("Invalid SQL query".to_owned(), "SQLFeatureNotSupportedException", details.clone())
            }
            Self::Disabled(details) => {
                ("Invalid SQL query".to_owned(), "SQLFeatureDisabledException", details.clone())
            }
            Self::Cursor(details) => {
                ("Invalid SQL query".to_owned(), "VerificationException", details.clone())
            }
            Self::Request(details) => {
                ("Invalid SQL query".to_owned(), "IllegalArgumentException", details.clone())
            }
            Self::TooLarge(details) => {
                ("Invalid SQL query".to_owned(), "IllegalArgumentException", details.clone())
            }
            Self::Unread(details) => {
                ("The answer was not read".to_owned(), "OpenSearchTimeoutException", details.clone())
            }
            Self::Cancelled(details) => {
                ("The statement was cancelled".to_owned(), "TaskCancelledException", details.clone())
            }
            Self::Query(error) => {
                let kind = match error {
                    Error::Storage(millrace_runtime::Error::IndexNotFound { .. }) => {
                        "IndexNotFoundException".to_owned()
                    }
                    other => exception(&other.error_type()),
                };
                let (reason, details) = (error.reason(), details_of(error));
                let reason = match error.status() {
                    500.. => "There was internal problem at backend".to_owned(),
                    _ => format!("Error occurred in OpenSearch engine: {reason}"),
                };
                let body = json!({"reason": reason, "details": details, "type": kind});
                return json!({"error": body, "status": self.status()});
            }
        };
        json!({"error": {"reason": reason, "details": details, "type": kind}, "status": self.status()})
    }
}

impl SqlError {
    /// Renders the body of the answer as Elasticsearch has it. Errors of the store and of searches have one of their own.
    pub fn to_elasticsearch_body(&self) -> Value {
        let kind = match self {
            Self::Syntax(_) => "parsing_exception",
            Self::Semantic(_) | Self::Unsupported(_) => "verification_exception",
            Self::Unread(_) => "timeout_exception",
            Self::Cancelled(_) => "task_cancelled_exception",
            _ => "illegal_argument_exception",
        };
        let cause = json!({"type": kind, "reason": self.to_string()});
        let error = json!({"root_cause": [cause], "type": kind, "reason": self.to_string()});
        json!({"error": error, "status": self.status()})
    }
}

/// The text below an error of the store or of a search.
fn details_of(error: &Error) -> String {
    match error {
        Error::SearchPhase { failures } => match failures.first() {
            Some(first) => format!("Shard[{}]: {}: {}", first.shard, first.error_type, first.reason),
            None => error.reason(),
        },
        Error::ContextNotFound(id) => {
            format!("Shard[-1]: SearchContextMissingException[No search context found for id [{id}]]")
        }
        Error::Storage(millrace_runtime::Error::IndexNotFound { index }) => format!(
            "[{index}] IndexNotFoundException[{}]\nFor more details, please send request for Json format to see the raw response from OpenSearch engine.",
            error.reason()
        ),
        other => other.reason(),
    }
}

/// Turns `index_not_found_exception` into `IndexNotFoundException`.
fn exception(kind: &str) -> String {
    let name: String = kind
        .split('_')
        .map(|word| {
            let mut letters = word.chars();
            letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
        })
        .collect();
    if name == "Exception" { "RuntimeException".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::excerpt;

    #[test]
    fn excerpts_end_at_a_letter() {
        assert_eq!(excerpt("short"), "short");
        assert_eq!(excerpt(format!("x{}", "é".repeat(200))), format!("x{}…", "é".repeat(99)));
        let many = serde_json::json!(vec![1; 100_000]);
        assert!(excerpt(&many).len() < 210 && excerpt(&many).starts_with("[1,1"));
    }
}
