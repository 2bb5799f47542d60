//! Structured logs: `tracing` events as lines on stderr, text or JSON, filtered by `log.level`.
//!
//! stdout is left to what the command is asked for: the ready line, configuration, answers.

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

/// Installs the process's log. A second call changes nothing.
///
/// `level` has been checked by the configuration; what still does not parse means `info`.
pub(crate) fn install(level: &str, json: bool) {
    let filter =
        level.parse::<Targets>().unwrap_or_else(|_| Targets::new().with_default(tracing::Level::INFO));
    let lines = fmt::layer().with_writer(std::io::stderr).with_target(true);
    let layer = if json {
        lines.json().flatten_event(true).with_filter(filter).boxed()
    } else {
        let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
        lines.with_ansi(colours).with_filter(filter).boxed()
    };
    let _ = tracing_subscriber::registry().with(layer).try_init();
}
