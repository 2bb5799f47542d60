//! Records to documents, by OpenTelemetry's mapping for Elasticsearch.
//!
//! [`DocumentMapping::Otel`] keeps the model of OpenTelemetry: `attributes`, `resource`, `scope`, `body`. With
//! [`DocumentMapping::Ecs`] attributes are top-level fields by the names of the Elastic Common Schema.

use std::sync::Arc;

use chrono::{DateTime, Datelike, Timelike};

use crate::attributes::{UniqueNames, push_attributes, push_member, push_name, push_text, push_value};
use crate::message::{AnyValue, KeyValue, LogRecord, ValueKind};
use crate::request::RecordContext;
use crate::target::{DataStream, IndexNames, is_routing};

/// Form of documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DocumentMapping {
    /// The model of OpenTelemetry.
    #[default]
    Otel,
    /// Names of the Elastic Common Schema.
    Ecs,
}

impl DocumentMapping {
    /// The names of the mappings.
    pub const NAMES: [&str; 2] = ["otel", "ecs"];

    /// Finds a mapping by its name.
    pub fn find(name: &str) -> Option<Self> {
        match name {
            "otel" => Some(Self::Otel),
            "ecs" => Some(Self::Ecs),
            _ => None,
        }
    }
}

/// Why a record becomes no document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Its time is none that can be written.
    #[error("the time [{0}] is beyond the year 2262")]
    Time(u64),
    /// An id has another length than ids have.
    #[error("{name} has [{bytes}] bytes, not [{expected}]")]
    Id {
        /// Name of the id.
        name: &'static str,
        /// Its length.
        bytes: usize,
        /// The length of such ids.
        expected: usize,
    },
}

/// Makes documents of records.
#[derive(Debug)]
pub struct Converter {
    mapping: DocumentMapping,
    /// Index of all documents, where they have one.
    index: Option<Arc<str>>,
    names: IndexNames,
}

/// Names of attributes beside those that they get.
type Renames = &'static [(&'static str, &'static str)];

/// Names of the Elastic Common Schema for attributes of resources.
const ECS_RESOURCE: [(&str, &str); 27] = [
    ("cloud.platform", "cloud.service.name"),
    ("container.image.tags", "container.image.tag"),
    ("deployment.environment", "service.environment"),
    ("deployment.environment.name", "service.environment"),
    ("faas.instance", "faas.id"),
    ("faas.trigger", "faas.trigger.type"),
    ("host.arch", "host.architecture"),
    ("k8s.cluster.name", "orchestrator.cluster.name"),
    ("k8s.container.name", "kubernetes.container.name"),
    ("k8s.cronjob.name", "kubernetes.cronjob.name"),
    ("k8s.daemonset.name", "kubernetes.daemonset.name"),
    ("k8s.deployment.name", "kubernetes.deployment.name"),
    ("k8s.job.name", "kubernetes.job.name"),
    ("k8s.namespace.name", "kubernetes.namespace"),
    ("k8s.node.name", "kubernetes.node.name"),
    ("k8s.pod.name", "kubernetes.pod.name"),
    ("k8s.pod.uid", "kubernetes.pod.uid"),
    ("k8s.replicaset.name", "kubernetes.replicaset.name"),
    ("k8s.statefulset.name", "kubernetes.statefulset.name"),
    ("os.description", "host.os.full"),
    ("os.name", "host.os.name"),
    ("os.type", "host.os.platform"),
    ("os.version", "host.os.version"),
    ("process.executable.path", "process.executable"),
    ("process.runtime.name", "service.runtime.name"),
    ("process.runtime.version", "service.runtime.version"),
    ("service.instance.id", "service.node.name"),
];
/// The same for attributes of records.
const ECS_RECORD: [(&str, &str); 6] = [
    ("event.name", "event.action"),
    ("exception.escaped", "event.error.exception.handled"),
    ("exception.message", "error.message"),
    ("exception.stacktrace", "error.stack_trace"),
    ("exception.type", "error.type"),
    ("telemetry.sdk.language", "telemetry.sdk.language"),
];

impl Converter {
    /// Makes one; all documents go to an index of this name, where it is given.
    pub fn new(mapping: DocumentMapping, index: Option<Arc<str>>) -> Self {
        Self { mapping, index, names: IndexNames::default() }
    }

    /// Appends the document of a record as JSON and returns the name of its index. `now_ns` is the time of a record that has
    /// none.
    ///
    /// # Errors
    /// Why there is no document; nothing is appended.
    pub fn convert(
        &mut self,
        context: &RecordContext,
        record: &LogRecord,
        now_ns: u64,
        out: &mut Vec<u8>,
    ) -> Result<Arc<str>, RecordError> {
        let time = [record.time_unix_nano, record.observed_time_unix_nano].into_iter().find(|time| *time > 0);
        let time = instant(time.unwrap_or(now_ns))?;
        let observed = match record.observed_time_unix_nano {
            0 => None,
            observed => Some(instant(observed)?),
        };
        check_id("trace_id", &record.trace_id, 16)?;
        check_id("span_id", &record.span_id, 8)?;
        let stream = self.index.is_none().then(|| {
            let suffix = if self.mapping == DocumentMapping::Otel { ".otel" } else { "" };
            let lists = [&*record.attributes, &*context.scope.attributes, &*context.resource.attributes];
            DataStream::of_attributes(lists, suffix)
        });
        out.extend_from_slice(b"{");
        push_member(out, "@timestamp", &time);
        if let Some(stream) = &stream {
            push_name(out, "data_stream");
            out.extend_from_slice(b"{");
            push_member(out, "type", "logs");
            push_member(out, "dataset", &stream.dataset);
            push_member(out, "namespace", &stream.namespace);
            out.push(b'}');
        }
        match self.mapping {
            DocumentMapping::Otel => push_otel(context, record, observed.as_deref(), out),
            DocumentMapping::Ecs => push_ecs(context, record, out),
        }
        out.push(b'}');
        Ok(match (&self.index, stream) {
            (Some(index), _) => Arc::clone(index),
            (None, Some(stream)) => self.names.get(&stream),
            (None, None) => "logs-generic-default".into(),
        })
    }
}

/// Bytes of an instant up to its milliseconds.
const MILLISECONDS_END: usize = 23;

/// Writes an instant as ISO 8601, with as many digits as it has.
fn instant(nanoseconds: u64) -> Result<String, RecordError> {
    let signed = i64::try_from(nanoseconds).map_err(|_| RecordError::Time(nanoseconds))?;
    let time = DateTime::from_timestamp_nanos(signed).naive_utc();
    // By hand: it is a tenth of the work for a document otherwise.
    let mut text = *b"0000-00-00T00:00:00.000000000Z";
    for (at, digits, mut number) in [
        (0, 4, time.year().unsigned_abs()),
        (5, 2, time.month()),
        (8, 2, time.day()),
        (11, 2, time.hour()),
        (14, 2, time.minute()),
        (17, 2, time.second()),
        (20, 9, time.nanosecond()),
    ] {
        for place in text[at..at + digits].iter_mut().rev() {
            // A digit fits.
            *place = b'0' + (number % 10) as u8;
            number /= 10;
        }
    }
    let mut text = String::from_utf8_lossy(&text).into_owned();
    if nanoseconds.is_multiple_of(1_000_000) {
        text.replace_range(MILLISECONDS_END.., "Z");
    }
    Ok(text)
}

fn check_id(name: &'static str, id: &[u8], expected: usize) -> Result<(), RecordError> {
    if id.is_empty() || id.len() == expected {
        return Ok(());
    }
    Err(RecordError::Id { name, bytes: id.len(), expected })
}

/// Appends an id, unless it is empty or of zeros, which stands for none.
fn push_id(out: &mut Vec<u8>, name: &str, id: &[u8]) {
    if id.iter().all(|byte| *byte == 0) {
        return;
    }
    push_name(out, name);
    out.push(b'"');
    for byte in id {
        for digit in [byte >> 4, byte & 0xf] {
            out.push(if digit < 10 { b'0' + digit } else { b'a' + digit - 10 });
        }
    }
    out.push(b'"');
}

fn push_number(out: &mut Vec<u8>, name: &str, number: impl Into<i64>) {
    let number = number.into();
    if number != 0 {
        push_name(out, name);
        let _ = serde_json::to_writer(out, &number);
    }
}

fn push_text_unless_empty(out: &mut Vec<u8>, name: &str, text: &str) {
    if !text.is_empty() {
        push_member(out, name, text);
    }
}

/// Appends the members of the model of OpenTelemetry.
fn push_otel(context: &RecordContext, record: &LogRecord, observed: Option<&str>, out: &mut Vec<u8>) {
    let is_kept = |key: &str| !is_routing(key);
    if let Some(observed) = observed {
        push_member(out, "observed_timestamp", observed);
    }
    push_text_unless_empty(out, "severity_text", &record.severity_text);
    push_number(out, "severity_number", record.severity_number);
    push_text_unless_empty(out, "event_name", &record.event_name);
    push_id(out, "trace_id", &record.trace_id);
    push_id(out, "span_id", &record.span_id);
    push_number(out, "trace_flags", record.flags & 0xff);
    if let Some(AnyValue { value: Some(body) }) = &record.body {
        push_name(out, "body");
        out.push(b'{');
        match body {
            ValueKind::Map(_) => {
                push_name(out, "structured");
                push_value(out, record.body.as_ref());
            }
            // An array is no object, and a field has one type.
            ValueKind::Array(_) => {
                push_name(out, "structured");
                out.extend_from_slice(b"{\"value\":");
                push_value(out, record.body.as_ref());
                out.push(b'}');
            }
            scalar => push_member(out, "text", &scalar_text(scalar)),
        }
        out.push(b'}');
    }
    if !record.attributes.is_empty() {
        push_name(out, "attributes");
        push_attributes(out, &record.attributes, is_kept);
    }
    push_number(out, "dropped_attributes_count", record.dropped_attributes_count);
    push_name(out, "resource");
    out.push(b'{');
    push_text_unless_empty(out, "schema_url", &context.resource_schema_url);
    if !context.resource.attributes.is_empty() {
        push_name(out, "attributes");
        push_attributes(out, &context.resource.attributes, is_kept);
    }
    push_number(out, "dropped_attributes_count", context.resource.dropped_attributes_count);
    out.push(b'}');
    push_name(out, "scope");
    out.push(b'{');
    push_text_unless_empty(out, "name", &context.scope.name);
    push_text_unless_empty(out, "version", &context.scope.version);
    push_text_unless_empty(out, "schema_url", &context.scope_schema_url);
    if !context.scope.attributes.is_empty() {
        push_name(out, "attributes");
        push_attributes(out, &context.scope.attributes, is_kept);
    }
    push_number(out, "dropped_attributes_count", context.scope.dropped_attributes_count);
    out.push(b'}');
}

/// Writes a value that is neither array nor map as text.
fn scalar_text(value: &ValueKind) -> String {
    let mut json = Vec::new();
    match value {
        ValueKind::Text(text) => return text.clone(),
        other => push_value(&mut json, Some(&AnyValue { value: Some(other.clone()) })),
    }
    let text = String::from_utf8_lossy(&json).into_owned();
    match value {
        ValueKind::Bytes(_) => text.trim_matches('"').to_owned(),
        _ => text,
    }
}

/// Appends the members of the Elastic Common Schema. What a record says comes before what its scope and its resource say.
fn push_ecs(context: &RecordContext, record: &LogRecord, out: &mut Vec<u8>) {
    /// Names of members that are not attributes.
    const OWN: usize = 12;
    let resource = &context.resource.attributes;
    let lists: [(&[KeyValue], Renames); 3] = [
        (&record.attributes, &ECS_RECORD),
        (&context.scope.attributes, &ECS_RECORD),
        (resource, &ECS_RESOURCE),
    ];
    let mut names =
        UniqueNames::new(lists.iter().map(|(attributes, _)| attributes.len()).sum::<usize>() + OWN);
    names.insert("@timestamp");
    names.insert("data_stream");
    // An attribute has the name of a member that is not written.
    let mut push_own = |name: &'static str, push: &dyn Fn(&mut Vec<u8>, &str)| {
        let before = out.len();
        push(out, name);
        if out.len() > before {
            names.insert(name);
        }
    };
    push_own("message", &|out, name| match &record.body {
        Some(AnyValue { value: Some(ValueKind::Text(text)) }) => push_member(out, name, text),
        Some(AnyValue { value: Some(ValueKind::Array(_) | ValueKind::Map(_)) }) => {
            let mut json = Vec::new();
            push_value(&mut json, record.body.as_ref());
            push_member(out, name, &String::from_utf8_lossy(&json));
        }
        Some(AnyValue { value: Some(scalar) }) => push_member(out, name, &scalar_text(scalar)),
        _ => {}
    });
    push_own("log.level", &|out, name| push_text_unless_empty(out, name, &record.severity_text));
    push_own("event.severity", &|out, name| push_number(out, name, record.severity_number));
    push_own("trace.id", &|out, name| push_id(out, name, &record.trace_id));
    push_own("span.id", &|out, name| push_id(out, name, &record.span_id));
    let text = |key: &str| crate::target::text_of(resource, key);
    let action = Some(record.event_name.as_str()).filter(|name| !name.is_empty());
    if let Some(action) = action.or_else(|| crate::target::text_of(&record.attributes, "event.name")) {
        push_own("event.action", &|out, name| push_member(out, name, action));
    }
    if let Some(host) = text("host.name") {
        push_own("host.name", &|out, name| push_member(out, name, host));
        push_own("host.hostname", &|out, name| push_member(out, name, host));
    }
    // The agent is the SDK that sends, by its language.
    if let Some(agent) = text("telemetry.sdk.name") {
        let language = text("telemetry.sdk.language").map(|language| format!("/{language}"));
        let agent = format!("{agent}{}", language.unwrap_or_default());
        push_own("agent.name", &|out, name| push_member(out, name, &agent));
    }
    if let Some(version) = text("telemetry.sdk.version") {
        push_own("agent.version", &|out, name| push_member(out, name, version));
    }
    for (attributes, renamed) in lists {
        for KeyValue { key, value } in attributes {
            let is_agent = matches!(
                key.as_str(),
                "telemetry.sdk.name" | "telemetry.sdk.version" | "telemetry.sdk.language"
            );
            if is_routing(key) || is_agent {
                continue;
            }
            let name = renamed.iter().find(|(from, _)| from == key).map_or(key.as_str(), |(_, to)| *to);
            if names.insert(name) {
                push_name(out, name);
                push_value(out, value.as_ref());
            }
        }
    }
    for (name, text) in
        [("otel.scope.name", &context.scope.name), ("otel.scope.version", &context.scope.version)]
    {
        if names.insert(name) && !text.is_empty() {
            push_name(out, name);
            push_text(out, text);
        }
    }
}

#[cfg(test)]
mod tests;
