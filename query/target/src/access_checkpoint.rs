//! Checks that a snapshot may be read on: the rights of its reader show the same, and its indices are those of before.
//!
//! Scrolls and points in time ask [`check_access`]; deletes, which take their time, ask an [`AccessCheckpoint`] between batches.

use std::sync::Arc;

use millrace_catalog::access::Action;
use millrace_matching::table::TableSnapshot;
use millrace_session::SearchSession;
use millrace_work::error::Result;

/// Checks that the caller may still read the indices of a snapshot as it did when the snapshot was pinned.
///
/// # Errors
/// 403 that names the index.
pub fn check_access(snapshot: &TableSnapshot, session: &dyn SearchSession, action: Action) -> Result<()> {
    let lost =
        snapshot.indices.iter().find(|index| !index.seen.holds(&session.access(&index.meta.name), action));
    match lost {
        None => Ok(()),
        Some(index) => Err(roles_changed(session, &index.meta.name, action).into()),
    }
}

/// Checks that the indices of a snapshot are still there. An index that was made anew under the same name is another one, and its
/// documents are others under the same ids.
///
/// # Errors
/// 404 that names the index.
fn check_there(snapshot: &TableSnapshot, session: &dyn SearchSession) -> Result<()> {
    for index in &snapshot.indices {
        let name = &index.meta.name;
        if session.index(name)?.meta().uuid != index.meta.uuid {
            return Err(millrace_runtime::Error::IndexNotFound { index: name.to_string() }.into());
        }
    }
    Ok(())
}

/// The snapshots that a long operation began to read, and the privileges that it was checked by last.
#[derive(Debug)]
pub struct AccessCheckpoint {
    snapshots: Vec<Arc<TableSnapshot>>,
    read_by: Action,
    /// The privileges that were looked at last: they never change, so that they are not looked at again.
    version: u64,
}

impl AccessCheckpoint {
    /// Takes note of what was just pinned by `read_by`, with the privileges of now.
    pub fn new(session: &dyn SearchSession, snapshots: Vec<Arc<TableSnapshot>>, read_by: Action) -> Self {
        Self { snapshots, read_by, version: session.principal().privileges().version() }
    }

    /// Checks that the indices are those of before, and that the rights of now show the same of them. What is read goes by the rules that
    /// were pinned: a document that others hide by now must not be deleted.
    ///
    /// # Errors
    /// 403 where an index is not read as it was; 404 where one is not there any more.
    pub fn check(&mut self, session: &dyn SearchSession) -> Result<()> {
        let version = session.principal().privileges().version();
        if version != self.version {
            self.snapshots.iter().try_for_each(|snapshot| check_access(snapshot, session, self.read_by))?;
            self.version = version;
        }
        self.snapshots.iter().try_for_each(|snapshot| check_there(snapshot, session))
    }
}

/// Says that an index is not read on as it was begun.
pub fn roles_changed(session: &dyn SearchSession, index: &str, action: Action) -> millrace_runtime::Error {
    let caller = session.principal().caller();
    millrace_runtime::Error::Unauthorized {
        action: action.name(),
        caller: format!("{caller}, whose roles have changed since this was begun: ask anew"),
        index: Some(index.to_owned()),
    }
}
