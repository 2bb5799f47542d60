//! Oracle of a crash: the documents that must be there, decided without a server.
//!
//! A [`Model`] belongs to one writer, which alone touches its ids and has one request in flight. It is
//! told what was acknowledged ([`Model::acknowledge`]) and which request was cut off by the crash
//! ([`Model::lose`]); afterwards it is shown what the server has ([`Model::observe`],
//! [`Model::observe_hit`]) and says whether that can be. An acknowledged operation must be there with
//! its version, sequence number and source. Of a request that was cut off, each document may show
//! any prefix of the operations on it. [`Counter`] does the same for documents that several writers
//! increment by compare-and-swap.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Change of one operation of a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    /// Creates or replaces.
    Index(Value),
    /// Creates, and conflicts where something is.
    Create(Value),
    /// Merges into what is there, and fails where nothing is.
    Update(Value),
    /// Deletes.
    Delete,
    /// Replaces the document if it still has this sequence number.
    Swap {
        /// Expected sequence number.
        seq_no: u64,
        /// New source.
        source: Value,
    },
}

/// One operation: the id is `None` where the server generates it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Operation {
    /// Id that the writer chose.
    pub(super) id: Option<String>,
    /// Change of the operation.
    pub(super) change: Change,
}

/// A document as the server shows it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ServedDocument {
    /// Version.
    pub(super) version: u64,
    /// Sequence number.
    pub(super) seq_no: u64,
    /// Primary term.
    pub(super) primary_term: u64,
    /// Source.
    pub(super) source: Value,
}

/// The answer to one operation.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer {
    /// Status of the item.
    pub(super) status: u16,
    /// Id, also the generated one.
    pub(super) id: String,
    /// Version, of a success.
    pub(super) version: u64,
    /// Sequence number, of a success.
    pub(super) seq_no: u64,
    /// Primary term, of a success.
    pub(super) primary_term: u64,
}

/// State that may be there. Figures without an answer are `None`.
#[derive(Clone, Debug, PartialEq)]
enum State {
    Absent,
    Present { version: Option<u64>, seq_no: Option<u64>, source: Value },
}

/// Documents of one writer, as it knows them.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    documents: BTreeMap<String, Document>,
    /// Tokens of documents with generated ids whose request was cut off.
    maybe: BTreeSet<String>,
}

#[derive(Clone, Debug)]
struct Document {
    /// States that may be there; one unless a request was cut off.
    states: Vec<State>,
    /// Greatest sequence number and term that an answer told.
    last: (u64, u64),
}

impl Default for Document {
    fn default() -> Self {
        Self { states: vec![State::Absent], last: (0, 0) }
    }
}

/// Returns the unique token of a source.
fn token(source: &Value) -> &str {
    source["token"].as_str().unwrap_or_default()
}

/// Merges the members of a partial document as an update does.
fn merge(into: &mut Value, part: &Value) {
    match (into.as_object_mut(), part.as_object()) {
        (Some(into), Some(part)) => {
            for (name, value) in part {
                match into.get_mut(name) {
                    Some(old) if old.is_object() && value.is_object() => merge(old, value),
                    _ => {
                        into.insert(name.clone(), value.clone());
                    }
                }
            }
        }
        _ => *into = part.clone(),
    }
}

impl Change {
    /// Returns the state after the change, its version unknown where it starts anew.
    fn apply(&self, state: &State) -> State {
        let next = |source: &Value| match state {
            State::Present { version, .. } => {
                State::Present { version: version.map(|v| v + 1), seq_no: None, source: source.clone() }
            }
            State::Absent => State::Present { version: None, seq_no: None, source: source.clone() },
        };
        match (self, state) {
            (Self::Index(source), _) => next(source),
            (Self::Create(source), State::Absent) => next(source),
            (Self::Create(_), State::Present { .. }) => state.clone(),
            (Self::Update(part), State::Present { source, .. }) => {
                let mut source = source.clone();
                merge(&mut source, part);
                next(&source)
            }
            (Self::Update(_) | Self::Swap { .. }, State::Absent) => State::Absent,
            (Self::Delete, _) => State::Absent,
            (Self::Swap { seq_no: expected, source }, State::Present { seq_no, .. }) => {
                if seq_no.is_none_or(|seq_no| seq_no == *expected) { next(source) } else { state.clone() }
            }
        }
    }

    /// Returns the statuses that the change may be answered with.
    fn statuses(&self, state: &State) -> &'static [u16] {
        match (self, state) {
            (Self::Index(_), State::Absent) | (Self::Create(_), State::Absent) => &[201],
            (Self::Index(_), State::Present { .. }) | (Self::Delete, State::Present { .. }) => &[200],
            (Self::Create(_), State::Present { .. }) => &[409],
            (Self::Update(_), State::Present { .. }) => &[200],
            (Self::Update(_) | Self::Delete, State::Absent) => &[404],
            (Self::Swap { .. }, State::Absent) => &[409, 404],
            (Self::Swap { seq_no: expected, .. }, State::Present { seq_no, .. }) => {
                if *seq_no == Some(*expected) { &[200] } else { &[409] }
            }
        }
    }
}

impl Model {
    /// Returns every id that the server may be asked about.
    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        self.documents.keys().map(String::as_str)
    }

    /// Returns ids of documents that are there for certain.
    pub(super) fn present(&self) -> Vec<&str> {
        let present = |document: &Document| matches!(document.states.as_slice(), [State::Present { .. }]);
        self.documents.iter().filter(|(_, document)| present(document)).map(|(id, _)| id.as_str()).collect()
    }

    /// Returns sequence number and term of a document that is there for certain.
    pub(super) fn sequence(&self, id: &str) -> Option<(u64, u64)> {
        let document = self.documents.get(id)?;
        match document.states.as_slice() {
            [State::Present { seq_no: Some(seq_no), .. }] => Some((*seq_no, document.last.1)),
            _ => None,
        }
    }

    /// Forgets documents with generated ids that are gone, so that the model stays small.
    pub(super) fn forget_absent(&mut self, generated: impl Fn(&str) -> bool) {
        self.documents.retain(|id, document| document.states != [State::Absent] || !generated(id));
        self.maybe.clear();
    }

    /// Learns the answer to an operation.
    ///
    /// # Errors
    ///
    /// The answer cannot be, given what was acknowledged before.
    pub(super) fn acknowledge(&mut self, operation: &Operation, answer: &Answer) -> Result<(), String> {
        let Answer { status, id, version, seq_no, primary_term } = answer;
        if operation.id.as_ref().is_some_and(|expected| expected != id) {
            return Err(format!("an operation on {:?} was answered for `{id}`", operation.id));
        }
        if operation.id.is_none() && self.documents.contains_key(id) {
            return Err(format!("the generated id `{id}` was given before"));
        }
        let document = self.documents.entry(id.clone()).or_default();
        let [state] = document.states.as_slice() else {
            return Err(format!("`{id}` was written to before it was observed"));
        };
        let expected = operation.change.statuses(state);
        if !expected.contains(status) {
            return Err(format!(
                "{:?} of `{id}` was answered with {status}, expected {expected:?}; it was {state:?}",
                operation.change
            ));
        }
        if *status >= 400 {
            return Ok(());
        }
        let mut state = operation.change.apply(state);
        if let State::Present { version: known, seq_no: number, .. } = &mut state {
            if known.is_some_and(|known| known != *version) {
                return Err(format!("`{id}` was answered with version {version}, expected {known:?}"));
            }
            (*known, *number) = (Some(*version), Some(*seq_no));
        }
        let (last_seq_no, last_term) = document.last;
        if (last_term > 0 && *seq_no <= last_seq_no) || *primary_term < last_term {
            return Err(format!(
                "`{id}` was answered with seq_no {seq_no} and term {primary_term} after {last_seq_no} and {last_term}"
            ));
        }
        document.last = (*seq_no, *primary_term);
        document.states = vec![state];
        Ok(())
    }

    /// Learns that a request was cut off: each document shows any prefix of its operations.
    pub(super) fn lose(&mut self, operations: &[Operation]) {
        for operation in operations {
            let Some(id) = &operation.id else {
                if let Change::Index(source) | Change::Create(source) = &operation.change {
                    self.maybe.insert(token(source).to_owned());
                }
                continue;
            };
            let document = self.documents.entry(id.clone()).or_default();
            // The operation acts on the last state of the prefix before it.
            if let Some(last) = document.states.last() {
                let next = operation.change.apply(last);
                document.states.push(next);
            }
        }
    }

    /// Compares a document by id, and takes it over as the truth.
    ///
    /// # Errors
    ///
    /// It is none of what may be there.
    pub(super) fn observe(&mut self, id: &str, stored: Option<&ServedDocument>) -> Result<(), String> {
        let Some(document) = self.documents.get_mut(id) else {
            return Err(format!("`{id}` was asked for but never written"));
        };
        let matches = document.states.iter().any(|state| match (state, stored) {
            (State::Absent, None) => true,
            (State::Present { version, seq_no, source }, Some(stored)) => {
                version.is_none_or(|version| version == stored.version)
                    && seq_no.is_none_or(|seq_no| seq_no == stored.seq_no)
                    && *source == stored.source
            }
            _ => false,
        });
        if !matches {
            return Err(format!("`{id}` is {stored:?}, which is none of {:?}", document.states));
        }
        document.states = vec![match stored {
            None => State::Absent,
            Some(stored) => {
                document.last.0 = document.last.0.max(stored.seq_no);
                document.last.1 = document.last.1.max(stored.primary_term);
                State::Present {
                    version: Some(stored.version),
                    seq_no: Some(stored.seq_no),
                    source: stored.source.clone(),
                }
            }
        }];
        Ok(())
    }

    /// Compares a hit of a search, after every id was observed. Answers whether the document belongs to
    /// this model; one with a generated id, of a request that was cut off, is adopted.
    ///
    /// # Errors
    ///
    /// Search shows another source than get, or a document that is deleted.
    pub(super) fn observe_hit(&mut self, id: &str, source: &Value) -> Result<bool, String> {
        if let Some(document) = self.documents.get_mut(id) {
            return match document.states.as_slice() {
                [State::Present { source: expected, .. }] if expected == source => Ok(true),
                states => Err(format!("search shows `{id}` as {source}, get said {states:?}")),
            };
        }
        if !self.maybe.remove(token(source)) {
            return Ok(false);
        }
        let state = State::Present { version: None, seq_no: None, source: source.clone() };
        self.documents.insert(id.to_owned(), Document { states: vec![state], last: (0, 0) });
        Ok(true)
    }
}

/// A document that several writers increment, each time from the value that they read.
#[derive(Clone, Debug, Default)]
pub(super) struct Counter {
    base: u64,
    acknowledged: BTreeSet<u64>,
    lost: u64,
}

impl Counter {
    /// Learns that a writer's increment to `value` was acknowledged.
    ///
    /// # Errors
    ///
    /// Another one to the same value was, too: an update was lost.
    pub(super) fn acknowledge(&mut self, value: u64) -> Result<(), String> {
        if value <= self.base || !self.acknowledged.insert(value) {
            return Err(format!("two increments of a counter to {value} were acknowledged"));
        }
        Ok(())
    }

    /// Learns that an increment was cut off.
    pub(super) fn lose(&mut self) {
        self.lost += 1;
    }

    /// Compares the stored value (0 where there is no document) and takes it over as the truth.
    ///
    /// # Errors
    ///
    /// An acknowledged increment is missing, or one was applied twice.
    pub(super) fn observe(&mut self, value: u64) -> Result<(), String> {
        let least = self.base + self.acknowledged.len() as u64;
        let greatest = self.acknowledged.last().copied().unwrap_or(self.base);
        if value < least.max(greatest) || value > least + self.lost {
            return Err(format!(
                "a counter is {value}: it was {}, {} increments (to {greatest} at most) were acknowledged and {} cut off",
                self.base,
                self.acknowledged.len(),
                self.lost
            ));
        }
        *self = Self { base: value, acknowledged: BTreeSet::new(), lost: 0 };
        Ok(())
    }
}

#[cfg(test)]
#[path = "oracle_tests.rs"]
mod tests;
