//! Access to an index, pinned with it: rules for documents join every scan, and contexts are read on only
//! while roles say the same.

use std::sync::Arc;

use millrace_catalog::access::{Action, IndexAccess};
use millrace_mapping::Mapping;

use super::predicate::Predicate;

/// The documents and fields of an index that a searcher may see.
#[derive(Clone, Debug, Default)]
pub struct AccessSnapshot {
    /// The rights of roles on the index; `None` where all of it is seen.
    pub access: Option<Arc<IndexAccess>>,
    /// Rules for the documents, in order: each leaves of what those before it show. None where all are seen.
    pub documents: Arc<[Documents]>,
    /// The whole mapping, where less of it is seen: filters of aliases may name fields that are not shown.
    pub whole: Option<Arc<Mapping>>,
}

impl AccessSnapshot {
    /// Returns true if roles still let an index be read as they did. `now` has their rights of now, `action` is the one that it was
    /// read by.
    pub fn holds(&self, now: &IndexAccess, action: Action) -> bool {
        if !now.allows(action) {
            return false;
        }
        match &self.access {
            None => now.sees_all(action),
            Some(then) => now.shows_as(then, action),
        }
    }
}

/// The documents that a rule shows.
#[derive(Clone, Debug)]
pub struct Documents {
    /// The predicate that the documents match.
    pub predicate: Predicate,
    /// The mapping as the rule's writer sees it: all of it, where that is an administrator, though the reader may not.
    pub mapping: Arc<Mapping>,
}
