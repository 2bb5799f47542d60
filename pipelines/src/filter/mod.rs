//! Filters: plugins that change events between input and output. One file a filter.

mod characters;
mod cidr;
mod clone;
mod csv;
mod date;
mod de_dot;
mod dissect;
mod drop;
mod fingerprint;
mod geoip;
mod grok;
mod json;
mod json_encode;
mod kv;
mod mutate;
mod number;
mod prune;
mod ruby;
mod settings;
mod split;
mod syslog_pri;
mod throttle;
mod translate;
mod truncate;
mod urldecode;
mod useragent;
mod uuid;

use std::fmt;
use std::sync::Arc;

use millrace_ingest::options::suggest;
use millrace_ingest::{Event, Fault, Options, refresh};

/// Names of the filters.
pub const NAMES: &[&str] = &[
    "cidr",
    "clone",
    "csv",
    "date",
    "de_dot",
    "dissect",
    "drop",
    "fingerprint",
    "geoip",
    "grok",
    "json",
    "json_encode",
    "kv",
    "mutate",
    "prune",
    "ruby",
    "split",
    "syslog_pri",
    "throttle",
    "translate",
    "truncate",
    "urldecode",
    "useragent",
    "uuid",
];

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
        "cidr" => cidr::build(options),
        "clone" => clone::build(options),
        "csv" => csv::build(options),
        "date" => date::build(options),
        "de_dot" => de_dot::build(options),
        "dissect" => dissect::build(options),
        "drop" => drop::build(options),
        "fingerprint" => fingerprint::build(options),
        "geoip" => geoip::build(options),
        "grok" => grok::build(options),
        "json" => json::build(options),
        "json_encode" => json_encode::build(options),
        "kv" => kv::build(options),
        "mutate" => mutate::build(options),
        "prune" => prune::build(options),
        "ruby" => ruby::build(options),
        "split" => split::build(options),
        "syslog_pri" => syslog_pri::build(options),
        "throttle" => throttle::build(options),
        "translate" => translate::build(options),
        "truncate" => truncate::build(options),
        "urldecode" => urldecode::build(options),
        "useragent" => useragent::build(options),
        "uuid" => uuid::build(options),
        unknown => {
            let suggestion = suggest(unknown, NAMES.iter().copied());
            Err(vec![Fault { at, message: format!("there is no filter [{unknown}]{suggestion}") }])
        }
    }
}

#[cfg(test)]
mod tests;
