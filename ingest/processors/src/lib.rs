//! Ingest pipelines as OpenSearch has them: processors that change documents before they are indexed.
//!
//! An [`IngestPipeline`] is compiled of a JSON definition and belongs to a [`PipelineSet`]. A [`PipelineRun`] takes an
//! [`IngestDocument`] through pipelines and fails with a [`ProcessorError`] in OpenSearch's words. The crate knows no index and
//! no network: the data API decides which pipelines a document takes, and what becomes of it.
//!
//! Grok, dissect, regular expressions and times are those of the filters of `millrace-ingest`; processors adapt them to
//! OpenSearch's options and messages.

mod config;
mod counters;
mod document;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod java;
mod pipeline;
mod processor;
mod script;
mod simulate;
mod template;

pub use counters::{PipelineCounters, PipelineFigures};
pub use document::{IngestDocument, METADATA};
pub use error::ProcessorError;
pub use pipeline::{IngestPipeline, MAX_PROCESSORS, PipelineRun, PipelineSet};
pub use processor::{grok_patterns, processor_types};
pub use simulate::ProcessorReport;

#[cfg(test)]
mod tests;
