//! Prepared statements: their texts and what is bound to them, kept for ten minutes from their last use.
//!
//! There are bounds for each user, with all of its API keys, and for all together, in number and in bytes. One user has a part of the
//! bytes of all at most, so that it leaves some to others. At a bound further statements are refused until some are closed or have had
//! their time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use tonic::Status;

use crate::tickets::{Id, Owner, User};

/// Statements that one user may have.
const MOST_OF_USER: usize = 1_000;
/// Bytes that the statements of all take.
const MOST_BYTES: usize = 64 << 20;
/// Bytes that those of one user take.
const MOST_BYTES_OF_USER: usize = MOST_BYTES / SHARES;
/// Parts of the bytes of all of which one user may have one.
const SHARES: usize = 4;
/// Time that a statement is kept after its last use.
const LIFE: Duration = Duration::from_secs(600);
/// Bytes of a statement beside texts and values, and bytes of a parameter.
const STATEMENT_BYTES: usize = 1 << 10;
const PARAMETER_BYTES: usize = 256;
/// Least time between two looks for statements that have had their time, in milliseconds.
const SWEEP_MS: i64 = 5_000;

/// All prepared statements.
#[derive(Debug, Default)]
pub(crate) struct PreparedStatements(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    statements: HashMap<Id, StatementEntry>,
    users: HashMap<User, Weight>,
    bytes: usize,
    swept_ms: i64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Weight {
    statements: usize,
    bytes: usize,
}

#[derive(Debug)]
struct StatementEntry {
    owner: Owner,
    user: User,
    statement: PreparedStatement,
    used_ms: i64,
    bytes: usize,
}

/// A prepared statement.
#[derive(Clone, Debug)]
pub(crate) struct PreparedStatement {
    /// Its text.
    pub(crate) query: Arc<str>,
    /// `true` if it changes something and answers a count.
    pub(crate) update: bool,
    /// A field a parameter.
    pub(crate) parameters: SchemaRef,
    /// The rows that are bound.
    pub(crate) bound: Option<RecordBatch>,
    /// Number of bindings so far.
    pub(crate) binding: u64,
}

impl PreparedStatement {
    fn bytes(&self) -> usize {
        let bound = self.bound.as_ref().map_or(0, RecordBatch::get_array_memory_size);
        STATEMENT_BYTES + self.query.len() + self.parameters.fields().len() * PARAMETER_BYTES + bound
    }
}

impl PreparedStatements {
    /// Keeps a statement, which belongs to `owner` and counts against the bounds of `user`.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` at a bound.
    pub(crate) fn add(
        &self,
        owner: Owner,
        user: User,
        statement: PreparedStatement,
        now_ms: i64,
    ) -> Result<Id, Status> {
        let mut state = self.0.lock();
        let bytes = statement.bytes();
        if now_ms - state.swept_ms >= SWEEP_MS {
            state.sweep(now_ms);
        }
        state.make_room(&user, 1, bytes, now_ms)?;
        let id = rand::random();
        let weight = state.users.entry(user).or_default();
        weight.statements += 1;
        weight.bytes += bytes;
        state.bytes += bytes;
        state.statements.insert(id, StatementEntry { owner, user, statement, used_ms: now_ms, bytes });
        Ok(id)
    }

    /// Finds a statement of its owner.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub(crate) fn get(&self, owner: &Owner, id: &Id, now_ms: i64) -> Result<PreparedStatement, Status> {
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
        let (user, before, mut statement) = (kept.user, kept.bytes, kept.statement.clone());
        statement.bound = Some(rows);
        statement.binding += 1;
        let bytes = statement.bytes();
        // It was used just now, and so stays.
        state.make_room(&user, 0, bytes.saturating_sub(before), now_ms)?;
        if let Some(kept) = state.statements.get_mut(id) {
            (kept.statement, kept.bytes) = (statement, bytes);
        }
        state.bytes = state.bytes - before + bytes;
        if let Some(weight) = state.users.get_mut(&user) {
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
    fn find(&mut self, owner: &Owner, id: &Id, now_ms: i64) -> Result<&mut StatementEntry, Status> {
        let kept = self.statements.get_mut(id).filter(|kept| kept.owner == *owner && !kept.is_over(now_ms));
        let kept = kept.ok_or_else(|| {
            Status::not_found(
                "there is no such prepared statement: it was closed, or not used for ten minutes; prepare it anew",
            )
        })?;
        kept.used_ms = now_ms;
        Ok(kept)
    }

    /// Sees to it that there is room for statements and bytes more of a user, if need be by forgetting those that have had their time.
    fn make_room(&mut self, user: &User, more: usize, bytes: usize, now_ms: i64) -> Result<(), Status> {
        if self.fits(user, more, bytes).is_err() {
            self.sweep(now_ms);
        }
        self.fits(user, more, bytes)
    }

    fn fits(&self, user: &User, more: usize, bytes: usize) -> Result<(), Status> {
        let weight = self.users.get(user).copied().unwrap_or_default();
        if weight.statements + more > MOST_OF_USER {
            return Err(Status::resource_exhausted(format!(
                "there are [{MOST_OF_USER}] prepared statements of this user already: close some of them"
            )));
        }
        let of_user = weight.bytes + bytes;
        if of_user > MOST_BYTES_OF_USER {
            return Err(Status::resource_exhausted(format!(
                "the prepared statements of this user would take [{of_user}] bytes with what is bound to them, more than \
                 [{MOST_BYTES_OF_USER}]: close some of them, or bind less"
            )));
        }
        let of_all = self.bytes + bytes;
        if of_all > MOST_BYTES {
            return Err(Status::resource_exhausted(format!(
                "the prepared statements of all users would take [{of_all}] bytes, more than [{MOST_BYTES}]: run the \
                 statement without preparing it, or try again later, those that nobody uses end after [{}] s",
                LIFE.as_secs()
            )));
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
        if let Some(weight) = self.users.get_mut(&kept.user) {
            weight.statements -= 1;
            weight.bytes -= kept.bytes;
            if weight.statements == 0 {
                self.users.remove(&kept.user);
            }
        }
    }
}

impl StatementEntry {
    fn is_over(&self, now_ms: i64) -> bool {
        now_ms.saturating_sub(self.used_ms) >= i64::try_from(LIFE.as_millis()).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::StringArray;
    use datafusion::arrow::datatypes::Schema;
    use millrace_catalog::access::Principal;
    use millrace_catalog::access::{ActionSet, Caller, Privileges};

    use super::*;

    fn owner_of(caller: Caller) -> (Owner, User) {
        let nothing = Arc::new(Privileges::new(ActionSet::NONE, Vec::new()));
        let principal = Principal::new(caller, Vec::new(), nothing);
        (Owner::new(&principal), User::new(&principal))
    }

    fn user(name: &str) -> (Owner, User) {
        owner_of(Caller::User(name.into()))
    }

    fn key(id: &str, owner: &str) -> (Owner, User) {
        owner_of(Caller::ApiKey { id: id.into(), name: "k".into(), owner: owner.into() })
    }

    fn add(
        handles: &PreparedStatements,
        (owner, user): (Owner, User),
        bytes: usize,
        now_ms: i64,
    ) -> Result<Id, Status> {
        handles.add(owner, user, statement(bytes), now_ms)
    }

    fn statement(bytes: usize) -> PreparedStatement {
        let parameters = Arc::new(Schema::empty());
        PreparedStatement {
            query: "x".repeat(bytes).into(),
            update: false,
            parameters,
            bound: None,
            binding: 0,
        }
    }

    fn rows(bytes: usize) -> RecordBatch {
        let values = Arc::new(StringArray::from(vec!["x".repeat(bytes)]));
        RecordBatch::try_from_iter([("1", values as _)]).unwrap()
    }

    #[test]
    fn ten_thousand_statements_are_bounded_for_each_user_and_end_by_themselves() {
        let handles = PreparedStatements::default();
        let (ann, bob) = (user("ann"), user("bob"));
        let added: Vec<_> = (0..10_000).filter_map(|_| add(&handles, ann, 8, 0).ok()).collect();
        assert_eq!(added.len(), MOST_OF_USER);
        let other = add(&handles, bob, 8, 0).unwrap();
        assert!(handles.get(&ann.0, &other, 0).is_err());
        handles.close(&ann.0, &other);
        assert!(handles.get(&bob.0, &other, 0).is_ok());
        let life = i64::try_from(LIFE.as_millis()).unwrap();
        assert!(handles.get(&ann.0, &added[0], life - 1).is_ok());
        assert!(handles.get(&ann.0, &added[1], life).is_err());
        // The one that was used is still there, the others made room.
        for _ in 1..MOST_OF_USER {
            add(&handles, ann, 8, life).unwrap();
        }
        assert!(add(&handles, ann, 8, life).is_err());
        handles.close(&ann.0, &added[0]);
        add(&handles, ann, 8, life).unwrap();
    }

    #[test]
    fn texts_and_bindings_are_bounded_in_bytes_and_given_back() {
        let handles = PreparedStatements::default();
        let ann = user("ann");
        let bind = |id: &Id, bytes| handles.bind(&ann.0, id, rows(bytes), 0);
        let id = add(&handles, ann, 1 << 20, 0).unwrap();
        assert!(bind(&id, MOST_BYTES_OF_USER).is_err());
        assert_eq!(handles.get(&ann.0, &id, 0).unwrap().binding, 0);
        bind(&id, 14 << 20).unwrap();
        assert!(add(&handles, ann, 2 << 20, 0).is_err());
        bind(&id, 16).unwrap();
        assert_eq!(handles.get(&ann.0, &id, 0).unwrap().binding, 2);
        add(&handles, ann, 2 << 20, 0).unwrap();
        for name in 0..10 {
            let _ = add(&handles, user(&name.to_string()), 15 << 20, 0);
        }
        assert!(handles.0.lock().bytes <= MOST_BYTES);
        let ids: Vec<Id> = handles.0.lock().statements.keys().copied().collect();
        for id in ids {
            let owner = handles.0.lock().statements[&id].owner;
            handles.close(&owner, &id);
        }
        let state = handles.0.lock();
        assert_eq!((state.bytes, state.users.len()), (0, 0));
    }

    #[test]
    fn the_api_keys_of_a_user_have_its_share_together() {
        let handles = PreparedStatements::default();
        let keys: Vec<_> = (0..10).map(|id| key(&id.to_string(), "ann")).collect();
        let part = MOST_BYTES_OF_USER / 4;
        let added = keys.iter().filter(|key| add(&handles, **key, part, 0).is_ok()).count();
        // They take a little more than their texts.
        assert_eq!(added, 3);
        let error = add(&handles, user("ann"), part, 0).unwrap_err();
        assert!(error.message().contains("of this user") && error.message().contains("bind less"), "{error}");
        // What belongs to a key is no other's.
        let id = add(&handles, keys[0], 8, 0).unwrap();
        assert!(handles.get(&keys[1].0, &id, 0).is_err());
        assert!(handles.get(&user("ann").0, &id, 0).is_err());
        // Others have theirs, until all together have what there is.
        let others: Vec<_> = (0..SHARES).map(|name| user(&name.to_string())).collect();
        let added =
            others.iter().filter(|other| add(&handles, **other, MOST_BYTES_OF_USER - part, 0).is_ok());
        assert_eq!(added.count(), SHARES);
        let error = add(&handles, user("zoe"), part, 0).unwrap_err();
        assert!(error.message().contains("of all users"), "{error}");
    }

    #[test]
    fn what_has_had_its_time_makes_room_for_what_is_bound() {
        let handles = PreparedStatements::default();
        let ann = user("ann");
        let life = i64::try_from(LIFE.as_millis()).unwrap();
        add(&handles, ann, MOST_BYTES_OF_USER / 2, 0).unwrap();
        let id = add(&handles, ann, 8, 1).unwrap();
        assert!(handles.bind(&ann.0, &id, rows(MOST_BYTES_OF_USER * 3 / 4), 1).is_err());
        handles.bind(&ann.0, &id, rows(MOST_BYTES_OF_USER * 3 / 4), life).unwrap();
    }
}
