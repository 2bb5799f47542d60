//! Data streams: a name for backing indices, of which the last takes new documents.
//!
//! Two settings of an index, [`DATA_STREAM`] and [`TIMESTAMP_FIELD`], say that it backs a stream. So a stream is stored, restored and
//! repaired with its indices, and each change of a stream is one change of indices. [`Metadata`] derives a [`DataStream`] of them.

use std::sync::Arc;

use millrace_mapping::{FieldType, Mapping, pattern};
use millrace_runtime::{Error, Result};
use serde_json::{Value, json};

use super::names::check_index_name;
use super::{CreateIndex, IndexMeta, Metadata, MetadataChange, Uuid};
use crate::access::NameClass;

/// Setting with the name of the data stream that an index backs.
pub const DATA_STREAM: &str = "index.data_stream.name";
/// Setting with the field of a document that has its time.
pub const TIMESTAMP_FIELD: &str = "index.data_stream.timestamp_field";
/// Field of the time where a template names none.
const DEFAULT_TIMESTAMP_FIELD: &str = "@timestamp";
/// Prefix of the names of backing indices.
const BACKING_PREFIX: &str = ".ds-";
/// Least number of digits of a generation in the name of a backing index.
const DIGITS: usize = 6;
/// Longest name of a timestamp field, in bytes.
const MAX_FIELD_BYTES: usize = 1_024;

/// A data stream. It has one backing index at least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataStream {
    /// Name.
    pub name: Arc<str>,
    /// Field of a document that has its time.
    pub timestamp_field: Arc<str>,
    /// Names of the backing indices, in the order of their generations.
    pub indices: Vec<Arc<str>>,
}

impl DataStream {
    /// Returns the name of the index that takes new documents.
    pub fn write_index(&self) -> Option<&Arc<str>> {
        self.indices.last()
    }

    /// Returns the generation of the write index.
    pub fn generation(&self) -> u64 {
        self.write_index().map_or(0, |index| generation_of(index))
    }
}

/// Makes the name of a backing index.
pub fn backing_index_name(stream: &str, generation: u64) -> String {
    format!("{BACKING_PREFIX}{stream}-{generation:0DIGITS$}")
}

/// Reads the number at the end of the name of a backing index; 0 where there is none.
fn generation_of(index: &str) -> u64 {
    index.rsplit_once('-').and_then(|(_, digits)| digits.parse().ok()).unwrap_or(0)
}

impl IndexMeta {
    /// Returns the name of the data stream that the index backs.
    pub fn data_stream(&self) -> Option<&str> {
        self.settings.get(DATA_STREAM).and_then(Value::as_str)
    }
}

/// Parses the member `data_stream` of a template into the form that is stored.
///
/// # Errors
/// `Parse` for an unknown member, `IllegalArgument` for a field that cannot be one.
pub(super) fn parse_stream_template(body: &Value) -> Result<Value> {
    let unknown = |key: &str| Error::Parse(format!("[data_stream_template] unknown field [{key}]"));
    let mut field = DEFAULT_TIMESTAMP_FIELD;
    let members = body
        .as_object()
        .ok_or_else(|| Error::Parse(format!("[data_stream] must be an object, but found [{body}]")))?;
    for (key, value) in members {
        match (key.as_str(), value) {
            ("hidden", Value::Bool(false)) => {}
            ("timestamp_field", Value::Object(members)) => {
                for (key, value) in members {
                    match (key.as_str(), value.as_str()) {
                        ("name", Some(name)) => field = name,
                        _ => return Err(unknown(key)),
                    }
                }
            }
            _ => return Err(unknown(key)),
        }
    }
    if field.is_empty() || field.len() > MAX_FIELD_BYTES || field.split('.').any(str::is_empty) {
        return Err(Error::IllegalArgument(format!(
            "the timestamp field of a data stream must be the name of a field of at most {MAX_FIELD_BYTES} bytes"
        )));
    }
    Ok(json!({ "timestamp_field": { "name": field } }))
}

/// Returns the field with the time in the data stream that a template makes of a name; `None` where it makes none.
fn stream_field<'a>(name: &str, template: &'a Value) -> Option<&'a str> {
    if NameClass::new(name) != NameClass::Ordinary {
        return None;
    }
    template["data_stream"]["timestamp_field"]["name"].as_str()
}

/// Returns the mapping that the timestamp field has where no template maps it.
pub(super) fn timestamp_mapping(field: &str) -> Value {
    json!({ "properties": { field: { "type": "date" } } })
}

/// Checks that the mapping of a backing index has the timestamp field as a date.
///
/// # Errors
/// `IllegalArgument`.
pub(super) fn check_timestamp_mapping(mapping: &Mapping, field: &str) -> Result<()> {
    let Some(mapped) = mapping.field(field) else {
        return Err(Error::IllegalArgument(format!("data stream timestamp field [{field}] does not exist")));
    };
    match mapped.field_type {
        FieldType::Date | FieldType::DateNanos => Ok(()),
        _ => Err(Error::IllegalArgument(format!(
            "data stream timestamp field [{field}] is of type [{}], but [date,date_nanos] is expected",
            mapped.type_name()
        ))),
    }
}

impl Metadata {
    /// Puts an index into the stream that it backs now, and takes it out of the one that it backed.
    pub(super) fn replace_backing(
        &mut self,
        before: Option<&IndexMeta>,
        meta: Option<&IndexMeta>,
        name: &Arc<str>,
    ) {
        let (had, has) = (before.and_then(IndexMeta::data_stream), meta.and_then(IndexMeta::data_stream));
        if had == has {
            return;
        }
        if let Some(stream) = had.and_then(|had| self.data_streams.get(had)) {
            let mut stream = DataStream::clone(stream);
            stream.indices.retain(|index| index != name);
            match stream.indices.is_empty() {
                true => drop(self.data_streams.remove_mut(&stream.name)),
                false => self.data_streams.insert_mut(Arc::clone(&stream.name), Arc::new(stream)),
            }
        }
        if let Some(has) = has {
            let known = self.data_streams.get(has).map(|stream| DataStream::clone(stream));
            let mut stream = known.unwrap_or_else(|| DataStream {
                name: has.into(),
                timestamp_field: DEFAULT_TIMESTAMP_FIELD.into(),
                indices: Vec::new(),
            });
            let key = |index: &str| (generation_of(index), index.to_owned());
            let position = stream.indices.partition_point(|other| key(other) < key(name));
            stream.indices.insert(position, Arc::clone(name));
            if position + 1 == stream.indices.len()
                && let Some(field) = meta.and_then(|meta| meta.setting(TIMESTAMP_FIELD))
            {
                stream.timestamp_field = field.into();
            }
            self.data_streams.insert_mut(Arc::clone(&stream.name), Arc::new(stream));
        }
    }

    /// Returns a data stream with the backing indices that are shown; `None` where none is.
    pub fn data_stream(&self, name: &str) -> Option<Arc<DataStream>> {
        self.shown_stream(self.data_streams.get(name)?)
    }

    fn shown_stream(&self, stream: &Arc<DataStream>) -> Option<Arc<DataStream>> {
        if stream.indices.iter().all(|index| self.sees(index)) {
            return Some(Arc::clone(stream));
        }
        let mut shown = DataStream::clone(stream);
        shown.indices.retain(|index| self.sees(index));
        (!shown.indices.is_empty()).then(|| Arc::new(shown))
    }

    /// Lists by name the data streams that are shown.
    pub fn data_streams(&self) -> impl Iterator<Item = Arc<DataStream>> {
        self.data_streams.values().filter_map(|stream| self.shown_stream(stream))
    }

    /// Lists by name the data streams of a comma-separated list of names and wildcards; all of them without one.
    ///
    /// # Errors
    /// `IndexNotFound` for a name, `Unauthorized` for one that may not be asked for.
    pub fn list_data_streams(&self, expression: Option<&str>) -> Result<Vec<Arc<DataStream>>> {
        let expression = expression.filter(|text| !text.is_empty()).unwrap_or("*");
        let parts: Vec<&str> = expression.split(',').collect();
        for part in parts.iter().filter(|part| **part != "_all" && !pattern::is_wildcard(part)) {
            if self.data_stream(part).is_none() {
                self.check_name(part)?;
                return Err(Error::IndexNotFound { index: (*part).to_owned() });
            }
        }
        let named = |stream: &DataStream| {
            parts.iter().any(|part| *part == "_all" || pattern::matches(part, &stream.name))
        };
        Ok(self.data_streams().filter(|stream| named(stream)).collect())
    }

    /// Finds the template that makes data streams of a name, with the field that has the time.
    pub fn stream_template(&self, name: &str) -> Option<(&str, &str)> {
        let (template, body) = self.best_template(name, None)?;
        Some((template, stream_field(name, body)?))
    }

    /// Finds the template of a user that keeps a name for data streams. A template of the server's own does not: an index of such a name can
    /// be created.
    pub(super) fn reserving_template(&self, name: &str) -> Option<&str> {
        let (template, body) = self.stored_template(name, None)?;
        stream_field(name, body).map(|_| template)
    }

    /// Decides the creation of a data stream by the template of its name.
    ///
    /// # Errors
    /// `DataStreamAlreadyExists`, `IllegalArgument` for a name that cannot be one, without a template of data streams, and for a
    /// timestamp field that is no date; otherwise as [`Metadata::create_index`].
    pub fn create_data_stream(&self, name: &str, now_ms: i64, uuid: Uuid) -> Result<Vec<MetadataChange>> {
        let refuse = |reason: String| Err(Error::IllegalArgument(reason));
        if self.data_streams.contains_key(name) {
            self.check_name(name)?;
            return Err(Error::DataStreamAlreadyExists { name: name.to_owned() });
        }
        match check_index_name(name) {
            Err(Error::InvalidIndexName { reason, .. }) => {
                return refuse(format!("data_stream [{name}] {}", reason.trim_end_matches('.')));
            }
            checked => checked?,
        }
        if name.starts_with(BACKING_PREFIX) || NameClass::new(name) != NameClass::Ordinary {
            return refuse(format!("data_stream [{name}] must not start with '{BACKING_PREFIX}'"));
        }
        self.check_name(name)?;
        if let Some(existing) = self.indices.get(name) {
            return Err(Error::IndexAlreadyExists { index: name.to_owned(), uuid: existing.uuid_text() });
        }
        if self.by_alias.contains_key(name) {
            return refuse(format!("data_stream [{name}] already exists as alias"));
        }
        if self.stream_template(name).is_none() {
            return match self.best_template(name, None) {
                None => refuse(format!("no matching index template found for data stream [{name}]")),
                Some((template, _)) => refuse(format!(
                    "matching index template [{template}] for data stream [{name}] has no data stream template"
                )),
            };
        }
        // Indices of this name that no stream has stay what they are.
        let mut generation = 1;
        while self.indices.contains_key(backing_index_name(name, generation).as_str()) {
            generation += 1;
        }
        self.create(&CreateIndex::backing(name, generation), now_ms, uuid)
    }

    /// Decides the deletion of data streams with all of their indices.
    ///
    /// # Errors
    /// As [`Metadata::list_data_streams`] and [`Metadata::check_destructive`]; `Blocked`; `Unauthorized` where a backing index is not
    /// shown.
    pub fn delete_data_streams(&self, expression: &str) -> Result<Vec<MetadataChange>> {
        self.check_destructive(expression)?;
        let mut changes = Vec::new();
        for shown in self.list_data_streams(Some(expression))? {
            let Some(stream) = self.data_streams.get(&shown.name) else { continue };
            for name in &stream.indices {
                self.check_named(name, &stream.name)?;
                let Some(meta) = self.indices.get(name) else { continue };
                super::check_block(meta, super::BlockLevel::Delete)?;
                changes.push(MetadataChange::DeleteIndex { name: Arc::clone(name), uuid: meta.uuid });
            }
        }
        Ok(changes)
    }

    /// Returns the data stream whose write index this is.
    pub fn stream_written_to(&self, meta: &IndexMeta) -> Option<&Arc<DataStream>> {
        let stream = self.data_streams.get(meta.data_stream()?)?;
        (stream.write_index() == Some(&meta.name)).then_some(stream)
    }

    /// Refuses to delete the write index of a data stream.
    ///
    /// # Errors
    /// `IllegalArgument`.
    pub(super) fn check_not_written(&self, meta: &IndexMeta) -> Result<()> {
        match self.stream_written_to(meta) {
            None => Ok(()),
            Some(stream) => Err(Error::IllegalArgument(format!(
                "index [{}] is the write index for data stream [{}] and cannot be deleted",
                meta.name, stream.name
            ))),
        }
    }

    /// Lists the data streams whose indices a template makes.
    pub(super) fn streams_of_template(&self, template: &str) -> Vec<&str> {
        let names = self.data_streams.keys().map(|name| &**name);
        names
            .filter(|name| self.stored_template(name, None).is_some_and(|(best, _)| best == template))
            .collect()
    }
}

impl CreateIndex {
    /// Makes the request for a backing index of a data stream.
    pub(super) fn backing(stream: &str, generation: u64) -> Self {
        let name = backing_index_name(stream, generation);
        Self { provided_name: name.clone(), name, data_stream: Some(stream.into()), ..Self::default() }
    }
}

#[cfg(test)]
mod tests;
