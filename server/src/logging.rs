//! Structured logs: `tracing` events as lines on stderr, text or JSON, filtered by `log.level`.
//!
//! stdout is left to what the command is asked for: the ready line, configuration, answers. Lines of JSON have the spans that they belong to,
//! with trace id, route, principal and index of the request; lines of text have none.

use tracing_subscriber::filter::{FilterExt as _, Targets, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use crate::telemetry::SpanExport;

/// Installs the process's log. A second call changes nothing.
///
/// `level` has been checked by the configuration; what still does not parse means `info`.
pub(crate) fn install(level: &str, json: bool) {
    install_with_export(level, json, None);
}

/// Installs the process's log as [`install`] does, and the export of spans.
pub(crate) fn install_with_export(level: &str, json: bool, export: Option<&SpanExport>) {
    let filter =
        level.parse::<Targets>().unwrap_or_else(|_| Targets::new().with_default(tracing::Level::INFO));
    let lines = fmt::layer().with_writer(std::io::stderr).with_target(true);
    let layer = if json {
        // Lines of each level have the spans of their request.
        let spans = filter_fn(|metadata| metadata.is_span() && *metadata.level() <= tracing::Level::INFO);
        lines.json().flatten_event(true).with_current_span(false).with_filter(filter.or(spans)).boxed()
    } else {
        let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
        let events = filter_fn(|metadata| !metadata.is_span());
        lines.with_ansi(colours).with_filter(filter.and(events)).boxed()
    };
    let registry = tracing_subscriber::registry().with(layer);
    let _ = registry.with(export.map(SpanExport::layer)).try_init();
}
