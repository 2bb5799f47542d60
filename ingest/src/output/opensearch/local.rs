//! Operations on indices of this server.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use millrace_catalog::operation::{Action, ActionKind, Update, WriteOp};
use parking_lot::Mutex;

use super::operation::{ConstantAction, Operation, Operations};
use crate::Event;
use crate::output::{Local, LocalWrite};

/// Makes operations for the pipeline to store.
#[derive(Debug)]
pub(super) struct Indices {
    operations: Operations,
    /// The last index: most events go where the one before went, and names that are the same piece of memory
    /// are compared at once.
    last: Mutex<Arc<str>>,
    last_pipeline: Mutex<Arc<str>>,
    doc_type: Arc<str>,
}

impl Indices {
    pub(super) fn new(operations: Operations) -> Self {
        let (last, last_pipeline) = (Mutex::new(Arc::from("")), Mutex::new(Arc::from("")));
        Self { operations, last, last_pipeline, doc_type: Arc::from("_doc") }
    }
}

/// Returns a name, which is that of the call before where they are the same.
fn shared(last: &Mutex<Arc<str>>, name: &str) -> Arc<str> {
    let mut last = last.lock();
    if &**last != name {
        *last = Arc::from(name);
    }
    Arc::clone(&last)
}

/// Returns the pattern that names with date math stand for: `<logs-{now/d}>` is a `logs-*`.
fn without_date_math(pattern: &str) -> String {
    let Some(inner) = pattern.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')) else {
        return pattern.to_owned();
    };
    let (mut out, mut depth) = (String::with_capacity(inner.len()), 0_usize);
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        match character {
            '{' => {
                if depth == 0 {
                    out.push('*');
                }
                depth += 1;
            }
            '}' => depth = depth.saturating_sub(1),
            '\\' => out.extend(characters.next().filter(|_| depth == 0)),
            character if depth == 0 => out.push(character),
            _ => {}
        }
    }
    out
}

/// Document of an event.
enum EventDocument {
    /// The decoder of the event has written it.
    AtHand(Bytes),
    /// Part of the buffer of a delivery.
    Written(Range<usize>),
}

impl Local for Indices {
    fn names(&self) -> String {
        without_date_math(&self.operations.names())
    }

    fn operation(&self, event: &Event, stable_id: Option<String>) -> Result<LocalWrite, String> {
        let Operation { action, index, id, routing, version, document, upsert, doc_as_upsert, pipeline } =
            self.operations.operation_for(event, stable_id)?;
        let action = match action {
            ActionKind::Index => Action::Index(document),
            ActionKind::Create => Action::Create(document),
            ActionKind::Delete => Action::Delete,
            ActionKind::Update => {
                // As text: numbers stay as the event has them.
                Action::Update(Box::new(Update {
                    doc: Some(document.into()),
                    upsert: upsert.map(Into::into),
                    doc_as_upsert,
                    detect_noop: true,
                    retry_on_conflict: self.operations.retry_on_conflict,
                    ..Update::default()
                }))
            }
        };
        let index = shared(&self.last, &index);
        let op =
            WriteOp { routing, version, ..WriteOp::of_type(Arc::clone(&self.doc_type), index, id, action) };
        Ok(LocalWrite { op, pipeline: pipeline.map(|name| shared(&self.last_pipeline, &name)) })
    }

    fn operations(&self, events: &[&Event], add: &mut dyn FnMut(Result<LocalWrite, String>)) {
        let Some(action) = self.operations.constant_action() else {
            return events.iter().for_each(|event| add(self.operation(event, None)));
        };
        // Documents share their memory, and names are of these operations alone: deliveries on other threads do not count them.
        let doc_type: Arc<str> = Arc::from(&*self.doc_type);
        let constant: Option<Arc<str>> = self.operations.constant_index().map(Arc::from);
        let mut last: Arc<str> = Arc::from("");
        let mut written = Vec::new();
        let mut documents = Vec::with_capacity(events.len());
        for (at, event) in events.iter().enumerate() {
            let index = match &constant {
                Some(index) => Ok(Arc::clone(index)),
                None => self.operations.index_for(event).map(|name| {
                    if *last != *name {
                        last = Arc::from(name);
                    }
                    Arc::clone(&last)
                }),
            };
            documents.push(index.map(|index| {
                let document = match event.document() {
                    Some(document) => EventDocument::AtHand(document),
                    None => {
                        if written.capacity() == 0 {
                            let rest = events.get(at..).unwrap_or_default();
                            written.reserve(rest.iter().map(|event| event.document_bytes()).sum());
                        }
                        let begin = written.len();
                        event.write_json(&mut written);
                        EventDocument::Written(begin..written.len())
                    }
                };
                (index, document)
            }));
        }
        if written.capacity() - written.len() > written.len() / 4 {
            written.shrink_to_fit();
        }
        let written = Bytes::from(written);
        let operation = |(index, document): (Arc<str>, EventDocument)| {
            let document = match document {
                EventDocument::AtHand(document) => document,
                EventDocument::Written(range) => written.slice(range),
            };
            let action = match action {
                ConstantAction::Index => Action::Index(document),
                ConstantAction::Create => Action::Create(document),
            };
            let op = WriteOp::of_type(Arc::clone(&doc_type), index, None, action);
            LocalWrite { op, pipeline: None }
        };
        documents.into_iter().for_each(|document| add(document.map(operation)));
    }
}
