//! Options that several filters read in the same way.

use millrace_ingest::Options;
use millrace_ingest::options::Setting;

/// Takes an array of texts that has a default; an empty array counts as given.
pub(super) fn texts_or(options: &mut Options, name: &'static str, default: &[&str]) -> Vec<String> {
    let given = options.read(name, "an array of texts", |setting| match setting {
        Setting::Array(elements) => elements.iter().map(Setting::as_text).collect(),
        single => single.as_text().map(|text| vec![text]),
    });
    given.unwrap_or_else(|| default.iter().map(|text| (*text).to_owned()).collect())
}

/// Takes `ecs_compatibility`, of which only `disabled` is known.
pub(super) fn ecs_disabled(options: &mut Options) {
    match options.one_of("ecs_compatibility", &["disabled", "v1", "v8"]) {
        None | Some("disabled") => {}
        Some(other) => options.fault_here(format!(
            "[{}] does not name fields by ECS: set ecs_compatibility to disabled, not to {other}",
            options.plugin()
        )),
    }
}
