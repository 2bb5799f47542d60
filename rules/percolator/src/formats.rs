//! Event times that are written in a way of their own: a field with a format in the mapping is read by it, as the index reads it.
//!
//! What a rule's owner may not see of a document is no event time either.

use std::sync::Arc;

use millrace_mapping::{DateFormat, Mapping};
use millrace_rules::Times;
use serde_json::Value;

use super::MatchRequest;

/// Formats that the core of rules reads by itself.
const PLAIN: [&str; 4] = [
    "strict_date_optional_time||epoch_millis",
    "strict_date_optional_time_nanos||epoch_millis",
    "strict_date_optional_time",
    "epoch_millis",
];

/// Formats of the fields that rules take event times of.
#[derive(Clone, Debug, Default)]
pub(super) struct Formats(Option<Arc<Vec<(String, DateFormat)>>>);

impl Formats {
    /// Finds those that the mapping of an index has for the fields of rules.
    pub(super) fn new(mapping: &Mapping, rules: &[Arc<MatchRequest>]) -> Self {
        let mut fields: Vec<&str> = rules.iter().map(|rule| rule.timestamp_field.as_str()).collect();
        fields.sort_unstable();
        fields.dedup();
        let formats = fields.into_iter().filter_map(|path| {
            let format = mapping.date_format(mapping.field(path)?)?;
            (!PLAIN.contains(&format.as_str())).then(|| (path.to_owned(), format.clone()))
        });
        let formats: Vec<_> = formats.collect();
        Self((!formats.is_empty()).then(|| Arc::new(formats)))
    }

    /// Reads the times of a document.
    pub(super) fn read(&self, source: &Value) -> Times {
        let Some(formats) = &self.0 else { return Times::default() };
        let mut times = Vec::with_capacity(formats.len());
        for (field, format) in formats.iter() {
            // What the index took is no date math.
            let read = move |text: &str| format.parse_millis(text, 0, false).ok();
            times.push((field.as_str(), read));
        }
        Times::read(source, times.iter().map(|(field, read)| (*field, read as &dyn Fn(&str) -> Option<i64>)))
    }
}
