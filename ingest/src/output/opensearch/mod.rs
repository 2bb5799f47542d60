//! `opensearch` and `elasticsearch`: events into indices, of this server or of another one.
//!
//! Without `hosts` they are this server's: the pipeline stores them in one frame with the position of their
//! source, exactly once ([`local`]). With `hosts` they are sent over `_bulk`, at least once ([`remote`],
//! [`connection`]). What an
//! event becomes is the same for both ([`operation`]; [`data_stream`] for data streams).

mod connection;
mod data_stream;
mod local;
mod operation;
mod remote;
mod template;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use self::template::IndexTemplate;
use crate::codec;
use crate::output::{Local as _, Output};
use crate::{Fault, Options, resolve_cloud_options};

/// Options that change nothing about what is stored, accepted because configurations have them: connections are looked
/// after by themselves.
const WITHOUT_EFFECT: &[&str] = &[
    "default_server_major_version",
    "document_type",
    "healthcheck_path",
    "pool_max",
    "pool_max_per_route",
    "resurrect_delay",
    "silence_errors_in_log",
    "sniffing",
    "sniffing_delay",
    "sniffing_path",
    "failure_type_logging_whitelist",
    "validate_after_inactivity",
];

/// Options that would change what is stored, and that are not there.
const NOT_SUPPORTED: &[(&str, &str)] = &[
    ("dlq_custom_codes", "what is refused for good becomes a dead letter, whatever its code"),
    ("join_field", "put related documents into one, in a nested field"),
    ("parent", "put related documents into one, in a nested field"),
    ("script", "scripts are not supported, use a filter"),
    ("script_lang", "scripts are not supported, use a filter"),
    ("script_type", "scripts are not supported, use a filter"),
    ("script_var_name", "scripts are not supported, use a filter"),
];

/// Options of life cycles, which have an effect in Logstash unless `ilm_enabled` is false.
const LIFE_CYCLES: &[&str] = &["ilm_pattern", "ilm_policy", "ilm_rollover_alias"];

/// Refuses life cycles, which would make the server store otherwise than the configuration says.
fn refuse_life_cycles(options: &mut Options) {
    let instead = "give [index], with a date in its name or the name of an alias, and ilm_enabled => false";
    let enabled = options.one_of("ilm_enabled", &["true", "false", "auto"]);
    if enabled == Some("true") {
        options.fault_here(format!("[ilm_enabled => true] is not supported: {instead}"));
    }
    for option in LIFE_CYCLES {
        if let Some((at, _)) = options.take(option)
            && enabled != Some("false")
        {
            options.fault(at, format!("option [{option}] is not supported: {instead}"));
        }
    }
}

/// Makes the output.
///
/// # Errors
/// The faults of the options.
pub(super) fn build(mut options: Options) -> Result<Output, Vec<Fault>> {
    let naming = operation::IndexNaming::take(&mut options);
    for name in WITHOUT_EFFECT {
        let _ = options.take(name);
    }
    for (name, why) in NOT_SUPPORTED {
        if let Some((at, _)) = options.take(name) {
            options.fault(at, format!("option [{name}] is not supported: {why}"));
        }
    }
    resolve_cloud_options(&mut options);
    refuse_life_cycles(&mut options);
    let template = IndexTemplate::take(&mut options);
    if options.boolean("scripted_upsert") == Some(true) {
        options.fault_here(
            "[scripted_upsert => true] is not supported: scripts are not supported, use a filter",
        );
    }
    // Documents are JSON, whatever it is.
    let _ = codec::take(&mut options, "plain");
    // A name that could not be made would be an index of its own; there is no other way here.
    if options.boolean("dlq_on_failed_indexname_interpolation") == Some(false) {
        options.fault_here("[dlq_on_failed_indexname_interpolation => false] is not supported: leave it out, an event without the name of \
             an index becomes a dead letter");
    }
    let operations = operation::Operations::take(&mut options, naming);
    match connection::Settings::take(&mut options) {
        None => {
            let mut indices = local::Indices::new(operations);
            match template.map(|template| template.for_this_server(&indices.names())).transpose() {
                Ok(template) => indices.template = template,
                Err(problem) => options.fault_here(format!("option [template]: {problem}")),
            }
            options.finish()?;
            Ok(Output::Local(Arc::new(indices)))
        }
        Some(settings) => {
            let remote = remote::Remote::new(operations, settings, template);
            if let Err(reason) = &remote {
                options.fault_here(reason.clone());
            }
            options.finish()?;
            // Its fault was the options'.
            Ok(Output::Sink(Arc::new(remote.map_err(|_| Vec::new())?)))
        }
    }
}
