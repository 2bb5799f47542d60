//! Records to documents, by OpenTelemetry's mapping for Elasticsearch.
//!
//! [`DocumentMapping::Otel`] keeps the model of OpenTelemetry: `attributes`, `resource`, `scope`, `body`. With
//! [`DocumentMapping::Ecs`] attributes are top-level fields by the names of the Elastic Common Schema.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Datelike, Timelike};

use crate::attributes::{UniqueNames, push_attributes, push_member, push_name, push_text, push_value};
use crate::message::{AnyValue, KeyValue, LogRecord};
use crate::request::RecordContext;
use crate::target::{DataStream, StreamTarget, StreamTargets, is_routing};

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
    streams: StreamTargets,
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
        Self { mapping, index, streams: StreamTargets::default() }
    }

    /// Appends the document of a record as JSON and returns the name of its index. `now_ns` is the time of a record that has
    /// none. A context belongs to one converter.
    ///
    /// # Errors
    /// Why there is no document; nothing is appended.
    pub fn convert(
        &mut self,
        context: &RecordContext<'_>,
        record: &LogRecord<'_>,
        now_ns: u64,
        out: &mut Vec<u8>,
    ) -> Result<Arc<str>, RecordError> {
        let time = [record.time_unix_nano, record.observed_time_unix_nano].into_iter().find(|time| *time > 0);
        let time = InstantText::new(time.unwrap_or(now_ns))?;
        let observed = match record.observed_time_unix_nano {
            0 => None,
            observed => Some(InstantText::new(observed)?),
        };
        check_id("trace_id", &record.trace_id, 16)?;
        check_id("span_id", &record.span_id, 8)?;
        let texts = context.texts.get_or_init(|| self.context_texts(context));
        let of_record;
        let target = match &texts.target {
            // An attribute of the record comes before those above it.
            Some(_) if record.attributes.iter().any(|attribute| is_routing(&attribute.key)) => {
                of_record = self.target(context, &record.attributes);
                Some(&of_record)
            }
            of_context => of_context.as_ref(),
        };
        out.extend_from_slice(b"{");
        push_member(out, "@timestamp", time.as_str());
        if let Some(target) = target {
            out.extend_from_slice(&target.member);
        }
        match self.mapping {
            DocumentMapping::Otel => {
                push_otel(record, observed.as_ref(), out);
                out.extend_from_slice(&texts.members);
            }
            DocumentMapping::Ecs => push_ecs(context, record, out),
        }
        out.push(b'}');
        Ok(match (&self.index, target) {
            (Some(index), _) => Arc::clone(index),
            (None, Some(target)) => Arc::clone(&target.index),
            (None, None) => "logs-generic-default".into(),
        })
    }

    /// Makes what all records of a context have in common.
    fn context_texts(&mut self, context: &RecordContext<'_>) -> ContextTexts {
        let mut members = Vec::new();
        if self.mapping == DocumentMapping::Otel {
            push_context(context, &mut members);
        }
        let target = self.index.is_none().then(|| self.target(context, &[]));
        ContextTexts { target, members }
    }

    /// Finds the data stream of records with these attributes.
    fn target(&mut self, context: &RecordContext<'_>, attributes: &[KeyValue<'_>]) -> Arc<StreamTarget> {
        let suffix = if self.mapping == DocumentMapping::Otel { ".otel" } else { "" };
        let lists = [attributes, &*context.scope.attributes, &*context.resource.attributes];
        self.streams.get(DataStream::of_attributes(lists, suffix))
    }
}

/// Texts that the documents of a context's records share.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ContextTexts {
    /// Their data stream, unless one of their own attributes chooses another.
    target: Option<Arc<StreamTarget>>,
    /// The members that resource and scope become, each behind a comma.
    members: Vec<u8>,
}

/// An instant as ISO 8601, with as many digits as it has.
struct InstantText {
    text: [u8; 30],
    length: usize,
}

impl InstantText {
    /// Bytes up to the milliseconds.
    const MILLISECONDS_END: usize = 23;

    /// Writes an instant.
    fn new(nanoseconds: u64) -> Result<Self, RecordError> {
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
        let mut length = text.len();
        if nanoseconds.is_multiple_of(1_000_000) {
            text[Self::MILLISECONDS_END] = b'Z';
            length = Self::MILLISECONDS_END + 1;
        }
        Ok(Self { text, length })
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text[..self.length]).unwrap_or_default()
    }
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

/// Appends the members of the model of OpenTelemetry that a record has.
fn push_otel(record: &LogRecord<'_>, observed: Option<&InstantText>, out: &mut Vec<u8>) {
    if let Some(observed) = observed {
        push_member(out, "observed_timestamp", observed.as_str());
    }
    push_text_unless_empty(out, "severity_text", &record.severity_text);
    push_number(out, "severity_number", record.severity_number);
    push_text_unless_empty(out, "event_name", &record.event_name);
    push_id(out, "trace_id", &record.trace_id);
    push_id(out, "span_id", &record.span_id);
    push_number(out, "trace_flags", record.flags & 0xff);
    if record.body != AnyValue::Empty {
        push_name(out, "body");
        out.push(b'{');
        match &record.body {
            AnyValue::Map(_) => {
                push_name(out, "structured");
                push_value(out, &record.body);
            }
            // An array is no object, and a field has one type.
            AnyValue::Array(_) => {
                push_name(out, "structured");
                out.extend_from_slice(b"{\"value\":");
                push_value(out, &record.body);
                out.push(b'}');
            }
            scalar => push_member(out, "text", &scalar_text(scalar)),
        }
        out.push(b'}');
    }
    push_kept_attributes(&record.attributes, record.dropped_attributes_count, out);
}

/// Appends the members that resource and scope become in the model of OpenTelemetry, each behind a comma.
fn push_context(context: &RecordContext<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"resource\":{");
    push_text_unless_empty(out, "schema_url", &context.resource_schema_url);
    push_kept_attributes(&context.resource.attributes, context.resource.dropped_attributes_count, out);
    out.extend_from_slice(b"},\"scope\":{");
    push_text_unless_empty(out, "name", &context.scope.name);
    push_text_unless_empty(out, "version", &context.scope.version);
    push_text_unless_empty(out, "schema_url", &context.scope_schema_url);
    push_kept_attributes(&context.scope.attributes, context.scope.dropped_attributes_count, out);
    out.push(b'}');
}

/// Appends attributes, but for those that choose the index, and the number of those that were dropped.
fn push_kept_attributes(attributes: &[KeyValue<'_>], dropped: u32, out: &mut Vec<u8>) {
    if !attributes.is_empty() {
        push_name(out, "attributes");
        push_attributes(out, attributes, |key| !is_routing(key));
    }
    push_number(out, "dropped_attributes_count", dropped);
}

/// Writes a value that is neither array nor map as text.
fn scalar_text<'a>(value: &'a AnyValue<'_>) -> Cow<'a, str> {
    match value {
        AnyValue::Text(text) => Cow::Borrowed(text),
        AnyValue::Bytes(bytes) => Cow::Owned(STANDARD.encode(bytes)),
        other => {
            let mut json = Vec::new();
            push_value(&mut json, other);
            Cow::Owned(String::from_utf8_lossy(&json).into_owned())
        }
    }
}

/// Appends the members of the Elastic Common Schema. What a record says comes before what its scope and its resource say.
fn push_ecs(context: &RecordContext<'_>, record: &LogRecord<'_>, out: &mut Vec<u8>) {
    let resource = &context.resource.attributes;
    let lists: [(&[KeyValue<'_>], Renames); 3] = [
        (&record.attributes, &ECS_RECORD),
        (&context.scope.attributes, &ECS_RECORD),
        (resource, &ECS_RESOURCE),
    ];
    let mut names = UniqueNames::new();
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
        AnyValue::Empty => {}
        AnyValue::Array(_) | AnyValue::Map(_) => {
            let mut json = Vec::new();
            push_value(&mut json, &record.body);
            push_member(out, name, &String::from_utf8_lossy(&json));
        }
        scalar => push_member(out, name, &scalar_text(scalar)),
    });
    push_own("log.level", &|out, name| push_text_unless_empty(out, name, &record.severity_text));
    push_own("event.severity", &|out, name| push_number(out, name, record.severity_number));
    push_own("trace.id", &|out, name| push_id(out, name, &record.trace_id));
    push_own("span.id", &|out, name| push_id(out, name, &record.span_id));
    let text = |key: &str| crate::target::text_of(resource, key);
    let action = Some(&*record.event_name).filter(|name| !name.is_empty());
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
            let key = &**key;
            let is_agent =
                matches!(key, "telemetry.sdk.name" | "telemetry.sdk.version" | "telemetry.sdk.language");
            if is_routing(key) || is_agent {
                continue;
            }
            let name = renamed.iter().find(|(from, _)| *from == key).map_or(key, |(_, to)| *to);
            if names.insert(name) {
                push_name(out, name);
                push_value(out, value);
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
