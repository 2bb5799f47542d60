//! Prepared statements: their texts and what is bound to them, kept for ten minutes from their last use.
//!
//! There are bounds for each owner and for all together, in number and in bytes; at them further statements are refused until some
//! are closed or have had their time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use tonic::Status;

use crate::tickets::{Id, Owner};

/// Statements that one owner may have.
const MOST_OF_OWNER: usize = 1_000;
/// Bytes that those of one owner take, and of all.
const MOST_BYTES_OF_OWNER: usize = 16 << 20;
const MOST_BYTES: usize = 64 << 20;
/// How long a statement is kept after its last use.
const LIFE: Duration = Duration::from_secs(600);
/// What a statement takes beside texts and values, and what a parameter does.
const STATEMENT_BYTES: usize = 1 << 10;
const PARAMETER_BYTES: usize = 256;
/// Least time between two looks for statements that have had their time, in milliseconds.
const SWEEP_MS: i64 = 5_000;

/// All prepared statements.
#[derive(Debug, Default)]
pub(crate) struct Handles(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    statements: HashMap<Id, Kept>,
    owners: HashMap<Owner, Weight>,
    bytes: usize,
    swept_ms: i64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Weight {
    statements: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Kept {
    owner: Owner,
    statement: Prepared,
    used_ms: i64,
    bytes: usize,
}

/// A prepared statement.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    /// Its text.
    pub(crate) query: Arc<str>,
    /// Whether it changes something and answers a count.
    pub(crate) update: bool,
    /// A field a parameter.
    pub(crate) parameters: SchemaRef,
    /// The rows that are bound.
    pub(crate) bound: Option<RecordBatch>,
    /// How often something was bound.
    pub(crate) binding: u64,
}

impl Prepared {
    fn bytes(&self) -> usize {
        let bound = self.bound.as_ref().map_or(0, RecordBatch::get_array_memory_size);
        STATEMENT_BYTES + self.query.len() + self.parameters.fields().len() * PARAMETER_BYTES + bound
    }
}

impl Handles {
    /// Keeps a statement.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` at a bound.
    pub(crate) fn add(&self, owner: Owner, statement: Prepared, now_ms: i64) -> Result<Id, Status> {
        let mut state = self.0.lock();
        let bytes = statement.bytes();
        if now_ms - state.swept_ms >= SWEEP_MS || state.fits(&owner, 1, bytes).is_err() {
            state.sweep(now_ms);
        }
        state.fits(&owner, 1, bytes)?;
        let id = rand::random();
        let weight = state.owners.entry(owner).or_default();
        weight.statements += 1;
        weight.bytes += bytes;
        state.bytes += bytes;
        state.statements.insert(id, Kept { owner, statement, used_ms: now_ms, bytes });
        Ok(id)
    }

    /// Finds a statement of its owner.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub(crate) fn get(&self, owner: &Owner, id: &Id, now_ms: i64) -> Result<Prepared, Status> {
        let mut state = self.0.lock();
        Ok(state.find(owner, id, now_ms)?.statement.clone())
    }

    /// Binds rows to a statement in place of those before.
    ///
    /// # Errors
    /// `NOT_FOUND`; `RESOURCE_EXHAUSTED` at a bound.
    pub(crate) fn bind(&self, owner: &Owner, id: &Id, rows: RecordBatch, now_ms: i64) -> Result<(), Status> {
        let mut state = self.0.lock();
        let kept = state.find(owner, id, now_ms)?;
        let (before, mut statement) = (kept.bytes, kept.statement.clone());
        statement.bound = Some(rows);
        statement.binding += 1;
        let bytes = statement.bytes();
        state.fits(owner, 0, bytes.saturating_sub(before))?;
        if let Some(kept) = state.statements.get_mut(id) {
            (kept.statement, kept.bytes) = (statement, bytes);
        }
        state.bytes = state.bytes - before + bytes;
        if let Some(weight) = state.owners.get_mut(owner) {
            weight.bytes = weight.bytes - before + bytes;
        }
        Ok(())
    }

    /// Forgets a statement. One that is not there is closed.
    pub(crate) fn close(&self, owner: &Owner, id: &Id) {
        let mut state = self.0.lock();
        if state.statements.get(id).is_some_and(|kept| kept.owner == *owner) {
            state.remove(id);
        }
    }
}

impl State {
    fn find(&mut self, owner: &Owner, id: &Id, now_ms: i64) -> Result<&mut Kept, Status> {
        let kept = self.statements.get_mut(id).filter(|kept| kept.owner == *owner && !kept.is_over(now_ms));
        let kept = kept.ok_or_else(|| {
            Status::not_found(
                "there is no such prepared statement: it was closed, or not used for ten minutes; prepare it anew",
            )
        })?;
        kept.used_ms = now_ms;
        Ok(kept)
    }

    fn fits(&self, owner: &Owner, more: usize, bytes: usize) -> Result<(), Status> {
        let weight = self.owners.get(owner).copied().unwrap_or_default();
        if weight.statements + more > MOST_OF_OWNER {
            return Err(Status::resource_exhausted(format!(
                "there are [{MOST_OF_OWNER}] prepared statements of this caller already: close some of them"
            )));
        }
        if weight.bytes + bytes > MOST_BYTES_OF_OWNER || self.bytes + bytes > MOST_BYTES {
            return Err(Status::resource_exhausted(
                "prepared statements take too much memory: close some of them, or bind less",
            ));
        }
        Ok(())
    }

    fn sweep(&mut self, now_ms: i64) {
        self.swept_ms = now_ms;
        let over: Vec<Id> =
            self.statements.iter().filter(|(_, kept)| kept.is_over(now_ms)).map(|(id, _)| *id).collect();
        over.iter().for_each(|id| self.remove(id));
    }

    fn remove(&mut self, id: &Id) {
        let Some(kept) = self.statements.remove(id) else { return };
        self.bytes -= kept.bytes;
        if let Some(weight) = self.owners.get_mut(&kept.owner) {
            weight.statements -= 1;
            weight.bytes -= kept.bytes;
            if weight.statements == 0 {
                self.owners.remove(&kept.owner);
            }
        }
    }
}

impl Kept {
    fn is_over(&self, now_ms: i64) -> bool {
        now_ms.saturating_sub(self.used_ms) >= i64::try_from(LIFE.as_millis()).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::StringArray;
    use datafusion::arrow::datatypes::Schema;
    use millrace_storage::Principal;
    use millrace_storage::access::{ActionSet, Caller, Privileges};

    use super::*;

    fn user(name: &str) -> Owner {
        let nothing = Arc::new(Privileges::new(ActionSet::NONE, Vec::new()));
        Owner::of(&Principal::new(Caller::User(name.into()), Vec::new(), nothing))
    }

    fn statement(bytes: usize) -> Prepared {
        let parameters = Arc::new(Schema::empty());
        Prepared { query: "x".repeat(bytes).into(), update: false, parameters, bound: None, binding: 0 }
    }

    fn rows(bytes: usize) -> RecordBatch {
        let values = Arc::new(StringArray::from(vec!["x".repeat(bytes)]));
        RecordBatch::try_from_iter([("1", values as _)]).unwrap()
    }

    #[test]
    fn ten_thousand_statements_are_bounded_for_each_owner_and_end_by_themselves() {
        let handles = Handles::default();
        let (ann, bob) = (user("ann"), user("bob"));
        let added: Vec<_> = (0..10_000).filter_map(|_| handles.add(ann, statement(8), 0).ok()).collect();
        assert_eq!(added.len(), MOST_OF_OWNER);
        let other = handles.add(bob, statement(8), 0).unwrap();
        assert!(handles.get(&ann, &other, 0).is_err());
        handles.close(&ann, &other);
        assert!(handles.get(&bob, &other, 0).is_ok());
        let life = i64::try_from(LIFE.as_millis()).unwrap();
        assert!(handles.get(&ann, &added[0], life - 1).is_ok());
        assert!(handles.get(&ann, &added[1], life).is_err());
        // The one that was used is still there, the others made room.
        for _ in 1..MOST_OF_OWNER {
            handles.add(ann, statement(8), life).unwrap();
        }
        assert!(handles.add(ann, statement(8), life).is_err());
        handles.close(&ann, &added[0]);
        handles.add(ann, statement(8), life).unwrap();
    }

    #[test]
    fn texts_and_bindings_are_bounded_in_bytes_and_given_back() {
        let handles = Handles::default();
        let ann = user("ann");
        let id = handles.add(ann, statement(1 << 20), 0).unwrap();
        assert!(handles.bind(&ann, &id, rows(MOST_BYTES_OF_OWNER), 0).is_err());
        assert_eq!(handles.get(&ann, &id, 0).unwrap().binding, 0);
        handles.bind(&ann, &id, rows(14 << 20), 0).unwrap();
        assert!(handles.add(ann, statement(2 << 20), 0).is_err());
        handles.bind(&ann, &id, rows(16), 0).unwrap();
        assert_eq!(handles.get(&ann, &id, 0).unwrap().binding, 2);
        handles.add(ann, statement(2 << 20), 0).unwrap();
        for name in 0..10 {
            let _ = handles.add(user(&name.to_string()), statement(15 << 20), 0);
        }
        assert!(handles.0.lock().bytes <= MOST_BYTES);
        let ids: Vec<Id> = handles.0.lock().statements.keys().copied().collect();
        for id in ids {
            let owner = handles.0.lock().statements[&id].owner;
            handles.close(&owner, &id);
        }
        let state = handles.0.lock();
        assert_eq!((state.bytes, state.owners.len()), (0, 0));
    }
}
