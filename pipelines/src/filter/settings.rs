//! Options that several filters read in the same way.

use millrace_ingest::options::Setting;
use millrace_ingest::{FieldReference, Options};
use serde_json::Value;

/// Takes an array of texts that has a default; an empty array counts as given.
pub(super) fn texts_or(options: &mut Options, name: &'static str, default: &[&str]) -> Vec<String> {
    let given = options.read(name, "an array of texts", |setting| match setting {
        Setting::Array(elements) => elements.iter().map(Setting::as_text).collect(),
        single => single.as_text().map(|text| vec![text]),
    });
    given.unwrap_or_else(|| default.iter().map(|text| (*text).to_owned()).collect())
}

/// Takes a field reference that has a default.
pub(super) fn field_or(options: &mut Options, name: &'static str, default: &str) -> FieldReference {
    let given = options.field(name);
    given.unwrap_or_else(|| FieldReference::parse(default).expect("a default is a field reference"))
}

/// Takes a field reference that must be given.
pub(super) fn required_field(options: &mut Options, name: &'static str) -> Option<FieldReference> {
    let is_given = options.given().any(|(given, _)| given == name);
    if !is_given {
        options.fault_here(format!("[{}] needs the option [{name}]", options.plugin()));
    }
    options.field(name)
}

/// Returns a setting as a value of an event.
pub(super) fn value_of(setting: Setting) -> Value {
    match setting {
        Setting::Number(number) => Value::Number(number),
        Setting::Array(elements) => Value::Array(elements.into_iter().map(value_of).collect()),
        Setting::Hash(members) => members.into_iter().map(|(name, value)| (name, value_of(value))).collect(),
        Setting::Text(text) => Value::String(text),
        Setting::Plugin(options) => Value::String(options.plugin().to_owned()),
    }
}
