//! Filters: plugins that change events between input and output. One file a filter.
//!
//! A [`Filter`] changes events by itself, a [`RemoteFilter`] by answers of other servers.

mod aggregate;
mod body_template;
mod bytes;
mod characters;
mod cidr;
mod clone;
mod csv;
mod date;
mod de_dot;
mod dissect;
mod dns;
mod drop;
mod elasticsearch;
mod fingerprint;
mod geoip;
mod grok;
mod http;
mod jdbc_streaming;
mod json;
mod json_encode;
mod kv;
mod mutate;
mod prune;
mod ruby;
mod settings;
mod sleep;
mod split;
mod syslog_pri;
#[cfg(test)]
mod testing;
mod throttle;
mod tld;
mod translate;
mod truncate;
mod urldecode;
mod useragent;
mod uuid;
mod xml;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use millrace_ingest::options::suggest;
use millrace_ingest::{Event, Fault, Options, refresh};

/// Names of the filters.
pub const NAMES: &[&str] = &[
    "aggregate",
    "bytes",
    "cidr",
    "clone",
    "csv",
    "date",
    "de_dot",
    "dissect",
    "dns",
    "drop",
    "elasticsearch",
    "fingerprint",
    "geoip",
    "grok",
    "http",
    "jdbc_streaming",
    "json",
    "json_encode",
    "kv",
    "mutate",
    "prune",
    "ruby",
    "sleep",
    "split",
    "syslog_pri",
    "throttle",
    "tld",
    "translate",
    "truncate",
    "urldecode",
    "useragent",
    "uuid",
    "xml",
];

/// Filters that are not supported, and what to do in their place.
const REFUSED: &[(&str, &str)] = &[
    ("alter", "change fields by mutate and translate"),
    ("anonymize", "it is fingerprint today"),
    ("elapsed", "relate events by aggregate"),
    ("elastic_integration", "name an ingest pipeline in the output"),
    ("environment", "add ${NAME} by mutate and add_field"),
    ("grep", "drop events within a branch, such as if [message] !~ /…/ { drop { } }"),
    ("memcached", "look values up by translate, http or elasticsearch"),
    ("metrics", "count by aggregate, or by an aggregation of a search in the index"),
    ("multiline", "join lines by the codec multiline of the input"),
    ("rest", "ask servers by the filter http"),
];

/// A configured filter. The options that all filters have (`add_field`, `add_tag`, `remove_field`,
/// `remove_tag`, `id`) are not its concern: they are applied where it answers [`Outcome::Matched`].
pub trait Filter: fmt::Debug + Send + Sync {
    /// Changes an event. New events, which go on behind it, are added to `made`.
    fn apply(&self, event: &mut Event, made: &mut Vec<Event>) -> Outcome;

    /// Adds events that the clock, or the end of the pipeline, makes.
    fn flush(&self, _flush: Flush, _made: &mut Vec<Event>) {}

    /// Returns whether the filter is to be flushed.
    fn is_flushed(&self) -> bool {
        false
    }
}

/// A configured filter that asks other servers. Its future is polled on a thread for computing, within a runtime.
#[async_trait]
pub trait RemoteFilter: fmt::Debug + Send + Sync {
    /// Changes an event.
    async fn apply(&self, event: &mut Event) -> Outcome;

    /// Returns the number of events of a delivery that may wait for answers at the same time.
    fn concurrency(&self) -> usize;
}

/// A configured filter of either kind.
#[derive(Clone, Debug)]
pub enum FilterPlugin {
    /// It changes events by itself.
    Local(Arc<dyn Filter>),
    /// It asks other servers.
    Remote(Arc<dyn RemoteFilter>),
}

impl FilterPlugin {
    /// Returns whether it is to be flushed.
    pub(crate) fn is_flushed(&self) -> bool {
        match self {
            Self::Local(filter) => filter.is_flushed(),
            Self::Remote(_) => false,
        }
    }
}

/// Occasion of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Time has passed.
    Due,
    /// No more events come.
    Final,
}

/// State that the filters of a pipeline share.
#[derive(Debug, Default)]
pub struct FilterContext {
    tasks: aggregate::TaskRegistry,
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
pub fn build(options: Options, context: &mut FilterContext) -> Result<FilterPlugin, Vec<Fault>> {
    let remote = match options.plugin() {
        "dns" => dns::build(options),
        "elasticsearch" => elasticsearch::build(options),
        "http" => http::build(options),
        "jdbc_streaming" => jdbc_streaming::build(options),
        "sleep" => sleep::build(options),
        _ => return build_local(options, context).map(FilterPlugin::Local),
    };
    remote.map(FilterPlugin::Remote)
}

fn build_local(options: Options, context: &mut FilterContext) -> Result<Arc<dyn Filter>, Vec<Fault>> {
    let at = options.at();
    match options.plugin() {
        "aggregate" => aggregate::build(options, &mut context.tasks),
        "bytes" => bytes::build(options),
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
        "tld" => tld::build(options),
        "translate" => translate::build(options),
        "truncate" => truncate::build(options),
        "urldecode" => urldecode::build(options),
        "useragent" => useragent::build(options),
        "uuid" => uuid::build(options),
        "xml" => xml::build(options),
        unknown => {
            if let Some((_, instead)) = REFUSED.iter().find(|(name, _)| *name == unknown) {
                let message = format!("the filter [{unknown}] is not supported: {instead}");
                return Err(vec![Fault { at, message }]);
            }
            let suggestion = suggest(unknown, NAMES.iter().copied());
            Err(vec![Fault { at, message: format!("there is no filter [{unknown}]{suggestion}") }])
        }
    }
}

#[cfg(test)]
mod tests;
