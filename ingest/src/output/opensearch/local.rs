//! Operations on indices of this server.

use std::ops::Range;
use std::sync::Arc;
use std::vec;

use bytes::Bytes;
use millrace_catalog::operation::{Action, ActionKind, Update, WriteOp};
use parking_lot::Mutex;

use super::operation::{ConstantAction, Operation, Operations};
use super::template::IndexTemplate;
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
    pub(super) template: Option<IndexTemplate>,
}

impl Indices {
    pub(super) fn new(operations: Operations) -> Self {
        let (last, last_pipeline) = (Mutex::new(Arc::from("")), Mutex::new(Arc::from("")));
        Self { operations, last, last_pipeline, doc_type: Arc::from("_doc"), template: None }
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

/// Writes the documents of the events that have none at hand one behind the other; returns them with their ranges.
fn written_documents(events: &[&Event]) -> (Bytes, vec::IntoIter<Range<usize>>) {
    let missing = || events.iter().filter(|event| !event.has_document());
    let mut ranges = Vec::with_capacity(missing().count());
    let mut written = Vec::with_capacity(missing().map(|event| event.document_bytes()).sum());
    for event in missing() {
        let begin = written.len();
        event.write_json(&mut written);
        ranges.push(begin..written.len());
    }
    if written.capacity() - written.len() > written.len() / 4 {
        written.shrink_to_fit();
    }
    (Bytes::from(written), ranges.into_iter())
}

impl Local for Indices {
    fn names(&self) -> String {
        without_date_math(&self.operations.names())
    }

    fn template(&self) -> Option<&IndexTemplate> {
        self.template.as_ref()
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
        let (written, mut ranges) = written_documents(events);
        let mut last: Arc<str> = Arc::from("");
        for event in events {
            let document = match event.document() {
                Some(document) => document,
                None => ranges.next().map(|range| written.slice(range)).unwrap_or_default(),
            };
            let index = match &constant {
                Some(index) => Ok(Arc::clone(index)),
                None => self.operations.index_for(event).map(|name| {
                    if *last != *name {
                        last = Arc::from(name);
                    }
                    Arc::clone(&last)
                }),
            };
            add(index.map(|index| {
                let action = match action {
                    ConstantAction::Index => Action::Index(document),
                    ConstantAction::Create => Action::Create(document),
                };
                let op = WriteOp::of_type(Arc::clone(&doc_type), index, None, action);
                LocalWrite { op, pipeline: None }
            }));
        }
    }
}
