//! Constant members that every event of an input gets, such as its `type` and `tags`.
//!
//! Documents in blocks are copied to new blocks with the members behind their own: that costs a copy of bytes, where a changed event would
//! have memory of its own.

use serde_json::{Map, Value};

use super::additions::AddedMember;
use super::block::DocumentBlockBuilder;
use super::{DocumentRange, Event};

/// Bytes of documents from which on another block begins, so that a slow event keeps little memory.
const BLOCK_BYTES: usize = 64 << 10;

/// Members that many events get.
#[derive(Debug)]
pub struct SharedMembers(Vec<AddedMember>);

impl From<&Map<String, Value>> for SharedMembers {
    fn from(members: &Map<String, Value>) -> Self {
        Self(members.iter().map(|(name, value)| AddedMember::new(name, value.clone())).collect())
    }
}

impl SharedMembers {
    /// Adds the members to the documents of events that have none of them. `change` is called for each other event.
    pub fn add_to(&self, events: &mut [Event], mut change: impl FnMut(&mut Event)) {
        let mut block = DocumentBlockBuilder::default();
        let mut pending: Vec<(usize, DocumentRange)> = Vec::new();
        for at in 0..events.len() {
            if block.len() >= BLOCK_BYTES {
                set_documents(events, &mut block, &mut pending);
            }
            let Some(event) = events.get_mut(at) else { continue };
            match event.block_document().and_then(|document| block.copy_with(document, &self.0)) {
                Some(range) => pending.push((at, range)),
                None => change(event),
            }
        }
        set_documents(events, &mut block, &mut pending);
    }
}

/// Ends a block, and gives its documents to their events.
fn set_documents(
    events: &mut [Event],
    block: &mut DocumentBlockBuilder,
    pending: &mut Vec<(usize, DocumentRange)>,
) {
    if pending.is_empty() {
        return;
    }
    let finished = block.finish();
    for (at, range) in pending.drain(..) {
        if let Some(event) = events.get_mut(at) {
            event.set_document(&finished, range);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::codec::{Decoder as _, Events, build};
    use crate::event::Additions;
    use crate::input::testing::options;

    #[test]
    fn documents_in_blocks_get_the_members_and_stay_in_blocks() {
        let mut events = Events::default();
        events.set_additions(Additions::default().member("host", "web"));
        let mut decoder = build(options("json_lines", &[])).unwrap().decoder();
        let long = "x".repeat(2 * BLOCK_BYTES);
        let lines: String = (0..3_000).map(|n| format!("{{\"n\":{n},\"text\":\"a\\nb\"}}\n")).collect();
        let rare = format!("{{\"type\":\"own\"}}\n{{\"n\":1,\"n\":2}}\n{{\"long\":\"{long}\"}}\n");
        decoder.decode((lines + &rare).as_bytes(), &mut events);
        let mut events = events.into_vec();
        let Value::Object(members) = json!({"type": "web", "nested": {"a": "b"}, "tags": ["c", "d"]}) else {
            panic!("it is an object")
        };
        let mut expected = events.clone();
        expected.iter_mut().for_each(|event| event.fields_mut().extend(members.clone()));
        let mut changed = Vec::new();
        SharedMembers::from(&members).add_to(&mut events, |event| {
            event.fields_mut().extend(members.clone());
            changed.push(event.fields().len());
        });
        assert_eq!(changed.len(), 3, "an event that has a member, one that no block takes, a long one");
        assert_eq!(events, expected);
        for (event, expected) in events.iter().zip(&expected).take(3_000) {
            let (mut document, mut json) = (Vec::new(), Vec::new());
            event.write_json(&mut document);
            expected.write_json(&mut json);
            assert_eq!(event.document().as_deref(), Some(json.as_slice()));
            assert_eq!(document, json);
        }
        // A change of the time, and a member that comes later.
        let event = &mut events[0];
        event.set_text("later", "text");
        assert_eq!((&event.fields()["later"], &event.fields()["tags"][1]), (&json!("text"), &json!("d")));
    }
}
