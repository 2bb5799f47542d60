//! Bytes of one object to events.

use std::io::Write as _;
use std::mem;

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use object_store::ObjectMeta;
use serde_json::{Map, Value, json};

use super::Settings;
use super::position::ObjectOrder;
use crate::codec::{Decoder, Events};
use crate::event::Additions;
use crate::input::mark_version;
use crate::{EcsCompatibility, Event, Provenance};

/// Bytes that are decoded at once.
const STEP: usize = 256 << 10;
/// Compressed bytes that are inflated at once: a thousand times as many come out at most.
const GZIP_STEP: usize = 8 << 10;
/// Beginnings of the lines that access logs of CloudFront have before all others.
const VERSION_LINE: &str = "#Version: ";
const FIELDS_LINE: &str = "#Fields: ";

/// Decodes the bytes of an object.
pub(super) struct ObjectReader {
    decoder: Box<dyn Decoder>,
    inflate: Option<MultiGzDecoder<Vec<u8>>>,
    /// Bytes that are too few for a step.
    kept: Vec<u8>,
}

/// Bytes that are decoded at once.
pub(super) enum Step {
    Bytes(Bytes),
    End,
}

impl ObjectReader {
    pub(super) fn new(decoder: Box<dyn Decoder>, is_gzip: bool) -> Self {
        let inflate = is_gzip.then(|| MultiGzDecoder::new(Vec::new()));
        Self { decoder, inflate, kept: Vec::new() }
    }

    /// Cuts the next bytes of the object into steps; `None` is its end.
    pub(super) fn steps(&mut self, chunk: Option<Bytes>) -> Vec<Step> {
        let size = if self.inflate.is_some() { GZIP_STEP } else { STEP };
        let is_end = chunk.is_none();
        self.kept.extend_from_slice(chunk.as_deref().unwrap_or_default());
        if !is_end && self.kept.len() < size {
            return Vec::new();
        }
        let mut all = Bytes::from(mem::take(&mut self.kept));
        let mut steps = Vec::new();
        while !all.is_empty() {
            steps.push(Step::Bytes(all.split_to(all.len().min(size))));
        }
        if is_end {
            steps.push(Step::End);
        }
        steps
    }

    /// Decodes a step.
    ///
    /// # Errors
    /// The object is not compressed as its name says.
    pub(super) fn decode(&mut self, step: Step, events: &mut Events) -> std::io::Result<()> {
        let Self { decoder, inflate, .. } = self;
        match (step, inflate) {
            (Step::Bytes(bytes), None) => decoder.decode(&bytes, events),
            (Step::Bytes(bytes), Some(inflate)) => {
                inflate.write_all(&bytes)?;
                decoder.decode(&mem::take(inflate.get_mut()), events);
            }
            (Step::End, inflate) => {
                if let Some(inflate) = inflate {
                    inflate.try_finish()?;
                    decoder.decode(&mem::take(inflate.get_mut()), events);
                }
                decoder.finish(events);
            }
        }
        Ok(())
    }
}

/// Gives the events of an object what the input gives them, and leaves out those that are stored.
pub(super) struct Lines {
    place: ObjectOrder,
    stored: u64,
    count: u64,
    properties: Map<String, Value>,
    /// Metadata that the events share.
    metadata: Additions,
    ecs: EcsCompatibility,
    version: Option<String>,
    fields: Option<String>,
}

impl Lines {
    pub(super) fn new(place: ObjectOrder, object: &ObjectMeta, settings: &Settings, stored: u64) -> Self {
        let mut properties = Map::new();
        properties.insert("key".to_owned(), object.location.as_ref().into());
        if settings.has_properties {
            properties.insert("last_modified".to_owned(), object.last_modified.to_rfc3339().into());
            properties.insert("content_length".to_owned(), object.size.into());
            properties.insert("etag".to_owned(), json!(object.e_tag));
            properties.insert("version_id".to_owned(), json!(object.version));
        }
        let (ecs, metadata) = (settings.ecs, Additions::default());
        let mut lines =
            Self { place, stored, count: 0, properties, metadata, ecs, version: None, fields: None };
        lines.describe();
        lines
    }

    /// Makes the metadata of the events from here on.
    fn describe(&mut self) {
        let mut properties = self.properties.clone();
        let headers = [("version", &self.version), ("fields", &self.fields)];
        let headers = headers.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        let headers: Map<String, Value> =
            headers.map(|(name, value)| (name.to_owned(), value.as_str().into())).collect();
        if self.ecs.is_enabled() && !headers.is_empty() {
            properties.insert("cloudfront".to_owned(), Value::Object(headers));
        }
        self.metadata = Additions::default().metadata("s3", properties);
    }

    /// Returns the number of events so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the metadata of the object, so that decoded events count it from the start.
    pub(super) fn object_metadata(&self) -> Additions {
        Additions::default().metadata("s3", self.properties.clone())
    }

    /// Completes events.
    pub(super) fn complete(&mut self, events: Vec<Event>) -> Vec<Event> {
        self.metadata.renew();
        events.into_iter().filter_map(|event| self.complete_one(event)).collect()
    }

    fn complete_one(&mut self, mut event: Event) -> Option<Event> {
        let number = self.count;
        self.count += 1;
        let message = event.fields().get("message").and_then(Value::as_str);
        let line = message.filter(|message| message.starts_with('#'));
        if let Some(version) = line.and_then(|line| line.strip_prefix(VERSION_LINE)) {
            self.version = Some(version.trim().to_owned());
            self.describe();
            return None;
        }
        if let Some(fields) = line.and_then(|line| line.strip_prefix(FIELDS_LINE)) {
            self.fields = Some(fields.trim().to_owned());
            self.describe();
            return None;
        }
        if number < self.stored {
            return None;
        }
        mark_version(&mut event);
        if !self.ecs.is_enabled() {
            for (name, value) in [("version", &self.version), ("fields", &self.fields)] {
                if let Some(value) = value {
                    event.set_missing(&format!("cloudfront_{name}"), value);
                }
            }
        }
        self.metadata.add_metadata(&mut event);
        let record = u128::from(self.place.hash) << 64 | u128::from(number);
        let incarnation = self.place.time_ms.cast_unsigned();
        event.set_provenance(Some(Provenance { record, incarnation, ordinal: 0 }));
        Some(event)
    }
}
