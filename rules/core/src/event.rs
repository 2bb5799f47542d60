//! Events of the change feed that rules evaluate, and their order.
//!
//! The reader of the feed hands over frames, whole or in pieces (`engine`). Within a frame events go by event time, index
//! uuid, shard and `seq_no`; event time is a rule's own matter, since it names the field.

use std::sync::Arc;

use serde_json::Value;

use crate::fields;
use crate::time::Time;

/// Writer of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A request.
    User,
    /// A pipeline.
    Pipeline,
    /// A restore, or a reindexing within the server: no events.
    Restore,
    /// Rules: events only for rules that allow alerts.
    Rule,
    /// The server itself: no events.
    System,
}

/// A document that was written.
#[derive(Clone, Debug)]
pub struct Event {
    /// Name of its index.
    pub index: Arc<str>,
    /// Uuid of its index: a name made anew is another one.
    pub uuid: Arc<str>,
    /// Shard of the index.
    pub shard: u32,
    /// Sequence number in the shard.
    pub seq_no: u64,
    /// Its `_id`.
    pub id: Arc<str>,
    /// `true` if the write created the document: also after it had been deleted.
    pub created: bool,
    /// The source.
    pub source: Arc<Value>,
    /// Event times by field, of fields that are not read as ISO 8601 or milliseconds.
    pub times: Times,
}

/// Event times by field; mostly there are none.
#[derive(Clone, Debug, Default)]
pub struct Times(Option<Arc<Vec<(String, Time)>>>);

impl Times {
    /// Reads the first value of some fields of a source, each in its own way; values that are no time are left out.
    pub fn read<'a>(
        source: &Value,
        fields: impl Iterator<Item = (&'a str, &'a dyn Fn(&str) -> Option<i64>)>,
    ) -> Self {
        let times = fields.filter_map(|(field, read)| {
            let value = fields::values(source, field).into_iter().next()?;
            Some((field.to_owned(), Time::from_ms(read(&fields::text(value))?)))
        });
        let times: Vec<_> = times.collect();
        Self((!times.is_empty()).then(|| Arc::new(times)))
    }

    fn get(&self, field: &str) -> Option<Time> {
        self.0.iter().flat_map(|times| times.iter()).find(|(of, _)| of == field).map(|(_, time)| *time)
    }
}

impl Event {
    /// Returns the event time: the first value of `field`, by its format where that is another one, or the frame's time where that is no time.
    /// Numbers are milliseconds, or seconds where `counts_seconds` says so.
    pub fn time(&self, field: &str, counts_seconds: bool, frame: Time) -> Time {
        let seconds = |value: &Value| {
            let text = fields::text(value);
            let seconds: f64 = text.parse().ok().filter(|_| counts_seconds)?;
            (seconds.abs() < 9e12).then(|| Time::from_ms((seconds * 1000.0).round() as i64))
        };
        let read = || {
            let values = fields::values(&self.source, field);
            values.first().and_then(|value| seconds(value).or_else(|| Time::read(value)))
        };
        self.times.get(field).or_else(read).unwrap_or(frame)
    }

    /// Returns how many rules an alert has gone through.
    pub(crate) fn depth(&self) -> u8 {
        let depth = self.source.get("depth").and_then(Value::as_u64).unwrap_or(1);
        u8::try_from(depth.max(1)).unwrap_or(u8::MAX)
    }

    /// Returns the reference that alerts have to it.
    pub(crate) fn reference(&self) -> Reference {
        Reference {
            index: self.index.clone(),
            uuid: self.uuid.clone(),
            id: self.id.clone(),
            seq_no: self.seq_no,
        }
    }
}

/// Document that an alert refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) index: Arc<str>,
    pub(crate) uuid: Arc<str>,
    pub(crate) id: Arc<str>,
    pub(crate) seq_no: u64,
}

impl Reference {
    /// The bytes that it takes in state.
    pub(crate) fn bytes(&self) -> usize {
        // Name and uuid of the index are shared with the feed, as long as nothing was restored.
        self.index.len() + self.uuid.len() + self.id.len() + 88
    }

    pub(crate) fn document(&self) -> Value {
        serde_json::json!({"_index": &*self.index, "_id": &*self.id, "_seq_no": self.seq_no})
    }
}
