//! What rules evaluate: events of the change feed, and how they are ordered.
//!
//! The reader of the feed hands over frames, whole or in pieces (`engine`). Within a frame events go by event time, index
//! uuid, shard and `seq_no`; event time is a rule's own matter, since it names the field.

use std::sync::Arc;

use serde_json::Value;

use crate::fields;
use crate::time::Time;

/// Who wrote a frame.
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
    /// Whether the write created the document: also after it had been deleted.
    pub created: bool,
    /// The source.
    pub source: Arc<Value>,
}

impl Event {
    /// Returns the event time: the first value of `field`, or the frame's time where that is no time.
    pub(crate) fn time(&self, field: &str, frame: Time) -> Time {
        fields::values(&self.source, field).first().and_then(|value| Time::read(value)).unwrap_or(frame)
    }

    /// Returns how many rules an alert has gone through.
    pub(crate) fn depth(&self) -> u8 {
        let depth = self.source.get("depth").and_then(Value::as_u64).unwrap_or(1);
        u8::try_from(depth.max(1)).unwrap_or(u8::MAX)
    }

    /// Returns what alerts tell of it.
    pub(crate) fn reference(&self) -> Reference {
        Reference {
            index: self.index.clone(),
            uuid: self.uuid.clone(),
            id: self.id.clone(),
            seq_no: self.seq_no,
        }
    }
}

/// Which document an alert tells of.
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
