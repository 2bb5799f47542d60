//! Filters: plugins that change events between input and output. One file a filter.

mod characters;
mod clone;
mod date;
mod dissect;
mod drop;
mod fingerprint;
mod grok;
mod json;
mod kv;
mod mutate;
mod number;
mod settings;

use std::fmt;
use std::sync::Arc;

use millrace_ingest::options::suggest;
use millrace_ingest::{Event, Fault, Options};

/// Names of the filters.
pub const NAMES: &[&str] =
    &["clone", "date", "dissect", "drop", "fingerprint", "grok", "json", "kv", "mutate"];

/// A configured filter. The options that all filters have (`add_field`, `add_tag`, `remove_field`,
/// `remove_tag`, `id`) are not its concern: they are applied where it answers [`Outcome::Matched`].
pub trait Filter: fmt::Debug + Send + Sync {
    /// Changes an event. New events, which go on behind it, are added to `made`.
    fn apply(&self, event: &mut Event, made: &mut Vec<Event>) -> Outcome;
}

/// Outcome of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It did what it is for.
    Matched,
    /// It did not apply, or failed and tagged the event.
    Unmatched,
    /// The event ends here.
    Dropped,
}

/// Makes a filter.
///
/// # Errors
/// An unknown name, or what is wrong with the options.
pub fn build(options: Options) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    let at = options.at();
    match options.plugin() {
        "clone" => clone::build(options),
        "date" => date::build(options),
        "dissect" => dissect::build(options),
        "drop" => drop::build(options),
        "fingerprint" => fingerprint::build(options),
        "grok" => grok::build(options),
        "json" => json::build(options),
        "kv" => kv::build(options),
        "mutate" => mutate::build(options),
        unknown => {
            let suggestion = suggest(unknown, NAMES.iter().copied());
            Err(vec![Fault { at, message: format!("there is no filter [{unknown}]{suggestion}") }])
        }
    }
}

#[cfg(test)]
mod tests;
