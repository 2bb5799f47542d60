//! Processors: one file a concept. [`build`] makes a [`Processor`] of its type and options.

mod community_id;
mod control;
mod convert;
mod csv;
mod date;
mod date_index_name;
mod dissect;
mod fields;
mod fingerprint;
mod foreach;
mod geoip;
mod grok;
mod json;
mod kv;
mod lists;
mod remove;
mod text;
mod user_agent;

use std::fmt;

pub use grok::grok_patterns;
pub(crate) use json::{estimate_json, parse_json};
pub(crate) use lists::{drop_trailing, split};
pub(crate) use text::{decode_url, java_replacement, parse_bytes};

use crate::config::ProcessorConfig;
use crate::document::IngestDocument;
use crate::error::{ProcessorError, Result};
use crate::pipeline::{BuildContext, PipelineRun};

/// Fate of a document behind a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The document goes on.
    Continue,
    /// The document ends here.
    Drop,
}

/// A configured processor.
pub(crate) trait Processor: fmt::Debug + Send + Sync {
    /// Changes a document.
    ///
    /// # Errors
    /// The reason why the processor failed. The document may be changed in part then.
    fn apply(&self, document: &mut IngestDocument, run: &mut PipelineRun<'_>) -> Result<Flow>;
}

/// Makes a processor of its options.
type Builder = fn(&mut ProcessorConfig, &mut BuildContext) -> Result<Box<dyn Processor>>;

/// All types of processors.
const TYPES: [(&str, Builder); 34] = [
    ("append", fields::build_append),
    ("bytes", text::build_bytes),
    ("community_id", community_id::build),
    ("convert", convert::build),
    ("copy", fields::build_copy),
    ("csv", csv::build),
    ("date", date::build),
    ("date_index_name", date_index_name::build),
    ("dissect", dissect::build),
    ("dot_expander", fields::build_dot_expander),
    ("drop", control::build_drop),
    ("fail", control::build_fail),
    ("fingerprint", fingerprint::build),
    ("foreach", foreach::build),
    ("geoip", geoip::build),
    ("grok", grok::build),
    ("gsub", text::build_gsub),
    ("html_strip", text::build_html_strip),
    ("join", lists::build_join),
    ("json", json::build),
    ("kv", kv::build),
    ("lowercase", text::build_lowercase),
    ("pipeline", control::build_pipeline),
    ("remove", remove::build),
    ("remove_by_pattern", remove::build_by_pattern),
    ("rename", fields::build_rename),
    ("script", control::build_script),
    ("set", fields::build_set),
    ("sort", lists::build_sort),
    ("split", lists::build_split),
    ("trim", text::build_trim),
    ("uppercase", text::build_uppercase),
    ("urldecode", text::build_urldecode),
    ("user_agent", user_agent::build),
];

/// Lists the names of all types, in alphabetical order.
pub fn processor_types() -> impl Iterator<Item = &'static str> {
    TYPES.iter().map(|(name, _)| *name)
}

/// Finds a type by its name.
pub(crate) fn find_type(name: &str) -> Result<&'static str> {
    let found = TYPES.iter().find(|(known, _)| *known == name);
    found.map(|(known, _)| *known).ok_or_else(|| {
        ProcessorError::parse(format!("No processor type exists with name [{name}]"))
            .with("processor_type", name)
    })
}

/// Makes a processor.
pub(crate) fn build(
    name: &str,
    config: &mut ProcessorConfig,
    context: &mut BuildContext,
) -> Result<Box<dyn Processor>> {
    match TYPES.iter().find(|(known, _)| *known == name) {
        Some((_, build)) => build(config, context),
        None => Err(ProcessorError::parse(format!("No processor type exists with name [{name}]"))),
    }
}
