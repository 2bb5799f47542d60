//! What a searcher may see of an index, pinned with it: rules for documents join every scan, and contexts are read on only
//! while roles say the same.

use std::sync::Arc;

use millrace_catalog::access::{Action, IndexAccess};
use millrace_engine::Session;
use millrace_mapping::Mapping;
use millrace_work::error::Result;

use super::TableSnapshot;
use super::predicate::Predicate;

/// What a searcher may see of an index.
#[derive(Clone, Debug, Default)]
pub struct AccessSnapshot {
    /// What roles say of the index; `None` where all of it is seen.
    pub access: Option<Arc<IndexAccess>>,
    /// Rules for the documents, in order: each leaves of what those before it show. None where all are seen.
    pub documents: Arc<[Documents]>,
    /// The whole mapping, where less of it is seen: filters of aliases may name fields that are not shown.
    pub whole: Option<Arc<Mapping>>,
}

impl AccessSnapshot {
    /// Whether roles still let an index be read as they did; `action` is what it was read by.
    pub fn holds(&self, session: &Session, index: &str, action: Action) -> bool {
        let now = session.access(index);
        if !now.allows(action) {
            return false;
        }
        match &self.access {
            None => now.sees_all(action),
            Some(then) => now.shows_as(then, action),
        }
    }
}

impl TableSnapshot {
    /// Checks that whoever opened a context, or began what goes on, may still read what it is over as it did.
    ///
    /// # Errors
    /// 403 that names the index.
    pub fn check_seen(&self, session: &Session, action: Action) -> Result<()> {
        let lost = self.indices.iter().find(|index| !index.seen.holds(session, &index.meta.name, action));
        match lost {
            None => Ok(()),
            Some(index) => Err(roles_changed(session, &index.meta.name, action).into()),
        }
    }

    /// Checks that its indices are still there: one that was made anew under a name is another, and its documents are not those of before
    /// though they may be called alike.
    ///
    /// # Errors
    /// 404 that names the index.
    fn check_there(&self, session: &Session) -> Result<()> {
        for index in &self.indices {
            let name = &index.meta.name;
            if session.index(name)?.meta().uuid != index.meta.uuid {
                return Err(millrace_runtime::Error::IndexNotFound { index: name.to_string() }.into());
            }
        }
        Ok(())
    }
}

/// What something that takes its time began to read.
#[derive(Debug)]
pub struct AccessCheckpoint {
    snapshots: Vec<Arc<TableSnapshot>>,
    read_by: Action,
    /// The privileges that were looked at last: they never change, so that they are not looked at again.
    version: u64,
}

impl AccessCheckpoint {
    /// Takes note of what was just pinned by `read_by`, with the privileges of now.
    pub fn new(session: &Session, snapshots: Vec<Arc<TableSnapshot>>, read_by: Action) -> Self {
        Self { snapshots, read_by, version: session.principal().privileges().version() }
    }

    /// Checks that the indices are those of before, and that the rights of now show the same of them. What is read goes by the rules that
    /// were pinned: a document that others hide by now must not be deleted.
    ///
    /// # Errors
    /// 403 where an index is not read as it was; 404 where one is not there any more.
    pub fn check(&mut self, session: &Session) -> Result<()> {
        let version = session.principal().privileges().version();
        if version != self.version {
            self.snapshots.iter().try_for_each(|snapshot| snapshot.check_seen(session, self.read_by))?;
            self.version = version;
        }
        self.snapshots.iter().try_for_each(|snapshot| snapshot.check_there(session))
    }
}

/// Says that an index is not read on as it was begun.
pub fn roles_changed(session: &Session, index: &str, action: Action) -> millrace_runtime::Error {
    let caller = session.principal().caller();
    millrace_runtime::Error::Unauthorized {
        action: action.name(),
        caller: format!("{caller}, whose roles have changed since this was begun: ask anew"),
        index: Some(index.to_owned()),
    }
}

/// The documents that a rule shows.
#[derive(Clone, Debug)]
pub struct Documents {
    /// What they match.
    pub predicate: Predicate,
    /// The mapping as the rule's writer sees it: all of it, where that is an administrator, though the reader may not.
    pub mapping: Arc<Mapping>,
}
