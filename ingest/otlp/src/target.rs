//! Names of indices for records: `logs-<dataset>-<namespace>`.

use std::collections::HashMap;
use std::sync::Arc;

use crate::attributes::push_member;
use crate::message::{AnyValue, KeyValue};

/// Attributes that choose dataset and namespace.
pub(crate) const DATASET: &str = "data_stream.dataset";
pub(crate) const NAMESPACE: &str = "data_stream.namespace";
/// Attribute that has no effect: the records of this crate are logs.
const TYPE: &str = "data_stream.type";
/// Longest dataset or namespace in bytes.
const MAX_BYTES: usize = 100;
/// Data streams that a converter remembers.
const MAX_STREAMS: usize = 1_024;

/// Returns whether an attribute is there for the choice of the index alone.
pub(crate) fn is_routing(key: &str) -> bool {
    matches!(key, DATASET | NAMESPACE | TYPE)
}

/// Finds the text of an attribute.
pub(crate) fn text_of<'a>(attributes: &'a [KeyValue<'_>], key: &str) -> Option<&'a str> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    match &found.value {
        AnyValue::Text(text) => Some(text),
        _ => None,
    }
}

/// The data stream that a record belongs to.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct DataStream {
    pub(crate) dataset: String,
    pub(crate) namespace: String,
}

impl DataStream {
    /// Finds it by attributes, those of the first list first; `suffix` ends the dataset.
    pub(crate) fn of_attributes(lists: [&[KeyValue<'_>]; 3], suffix: &str) -> Self {
        let find = |key: &str| lists.iter().find_map(|attributes| text_of(attributes, key));
        let mut dataset = sanitize(find(DATASET).unwrap_or("generic"), true);
        if !dataset.ends_with(suffix) {
            dataset.push_str(suffix);
        }
        Self { dataset, namespace: sanitize(find(NAMESPACE).unwrap_or("default"), false) }
    }
}

/// Replaces characters that no name of an index may have.
fn sanitize(text: &str, is_dataset: bool) -> String {
    let replaced = text.chars().flat_map(char::to_lowercase).map(|character| match character {
        '\\' | '/' | '*' | '?' | '"' | '<' | '>' | '|' | ' ' | ',' | '#' | ':' => '_',
        '-' if is_dataset => '_',
        control if control.is_control() => '_',
        other => other,
    });
    let mut name = String::new();
    for character in replaced {
        if name.len() + character.len_utf8() > MAX_BYTES {
            break;
        }
        name.push(character);
    }
    name
}

/// A data stream as documents name it.
#[derive(Debug, PartialEq)]
pub(crate) struct StreamTarget {
    /// Name of its index.
    pub(crate) index: Arc<str>,
    /// The member `data_stream` of its documents, behind a comma.
    pub(crate) member: Box<[u8]>,
}

impl StreamTarget {
    fn new(stream: &DataStream) -> Self {
        let mut member = b",\"data_stream\":{".to_vec();
        push_member(&mut member, "type", "logs");
        push_member(&mut member, "dataset", &stream.dataset);
        push_member(&mut member, "namespace", &stream.namespace);
        member.push(b'}');
        let index = format!("logs-{}-{}", stream.dataset, stream.namespace).into();
        Self { index, member: member.into() }
    }
}

/// Targets that were made, by data stream.
#[derive(Debug, Default)]
pub(crate) struct StreamTargets(HashMap<DataStream, Arc<StreamTarget>>);

impl StreamTargets {
    /// Returns the target for a data stream.
    pub(crate) fn get(&mut self, stream: DataStream) -> Arc<StreamTarget> {
        if let Some(target) = self.0.get(&stream) {
            return Arc::clone(target);
        }
        let target = Arc::new(StreamTarget::new(&stream));
        if self.0.len() < MAX_STREAMS {
            self.0.insert(stream, Arc::clone(&target));
        }
        target
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_characters_that_indices_refuse() {
        assert_eq!(sanitize("Nginx-Access/*", true), "nginx_access__");
        assert_eq!(sanitize("Prod-EU 1", false), "prod-eu_1");
        assert_eq!(sanitize(&"ä".repeat(80), true).len(), MAX_BYTES);
    }
}
