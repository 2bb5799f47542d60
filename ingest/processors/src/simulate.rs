//! Reports of processors, as `_simulate?verbose` shows them.

use serde_json::{Map, Value, json};

use crate::error::ProcessorError;

/// Report of one processor for one document.
#[derive(Clone, Debug)]
pub struct ProcessorReport {
    pub(crate) processor_type: &'static str,
    pub(crate) tag: Option<String>,
    pub(crate) description: Option<String>,
    /// The source of the condition and its result.
    pub(crate) condition: Option<(String, bool)>,
    pub(crate) status: ReportStatus,
    pub(crate) document: Option<Value>,
}

/// Outcome of a processor.
#[derive(Clone, Debug)]
pub(crate) enum ReportStatus {
    Success,
    Skipped,
    Dropped,
    Error(ProcessorError),
    ErrorIgnored(ProcessorError),
}

impl ReportStatus {
    fn name(&self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Skipped => "skipped",
            Self::Dropped => "dropped",
            Self::Error(_) => "error",
            Self::ErrorIgnored(_) => "error_ignored",
        }
    }
}

impl ProcessorReport {
    /// Renders the report.
    pub fn render(self) -> Value {
        let mut out = Map::new();
        let mut put = |name: &str, value: Value| drop(out.insert(name.to_owned(), value));
        put("processor_type", self.processor_type.into());
        put("status", self.status.name().into());
        if let Some(description) = self.description {
            put("description", description.into());
        }
        if let Some(tag) = self.tag {
            put("tag", tag.into());
        }
        if let Some((condition, result)) = self.condition {
            put("if", json!({ "condition": condition, "result": result }));
        }
        match self.status {
            ReportStatus::Error(error) => put("error", error.exception_with_root_cause()),
            ReportStatus::ErrorIgnored(error) => {
                put("ignored_error", json!({ "error": error.exception_with_root_cause() }));
            }
            _ => {}
        }
        if let Some(document) = self.document {
            put("doc", document);
        }
        Value::Object(out)
    }
}
