//! Logs of OpenTelemetry: requests of OTLP to documents, independent of who receives and who stores them.
//!
//! [`read`] goes through the records of a request, in protobuf or JSON, one at a time. A [`Converter`] makes a document of each
//! by OpenTelemetry's mapping for Elasticsearch, and names the index for it. [`ExportAnswer`] is what the client gets.

mod answer;
mod attributes;
mod converter;
#[doc(hidden)]
pub mod fuzzing;
mod message;
mod request;
mod target;
mod wire;

pub use answer::ExportAnswer;
pub use converter::{Converter, DocumentMapping, RecordError};
pub use message::{AnyValue, InstrumentationScope, KeyValue, LogRecord, Resource};
pub use request::{Encoding, RecordContext, RequestError, read, reading_cost};
