//! One predicate asked of segments of any kind, where only the rows count.

use std::sync::Arc;

use millrace_work::Work;
use millrace_work::error::{Error, Result};
use roaring::RoaringBitmap;

use super::matcher::{clause_rows, found, source};
use crate::score::reader::SegmentReader;
use crate::table::node::{Expansion, Resolved};
use crate::table::predicate::Predicate;
use crate::table::resolve::{IndexContext, resolve};

/// A predicate by which rows are told from others, such as what rules of roles show.
#[derive(Debug)]
pub struct RowFilter(Resolved);

impl RowFilter {
    /// Resolves a predicate, whose scores count for nothing.
    ///
    /// # Errors
    /// What the mapping refuses, and what goes by scores, or by terms that are chosen among those of all documents: they would
    /// be others in each segment.
    pub fn of(predicate: &Predicate, index: IndexContext<'_>) -> Result<Self> {
        let resolved = resolve(predicate, index)?;
        if resolved.node.scores_decide() {
            return Err(Error::IllegalArgument(format!(
                "its scores decide what matches, so it is no filter: [{predicate}]"
            )));
        }
        if resolved.expansions.iter().any(Expansion::is_chosen) {
            return Err(Error::IllegalArgument(format!(
                "terms of all documents decide what matches, so it is no filter: [{predicate}]"
            )));
        }
        Ok(Self(resolved))
    }

    /// Finds the rows of a segment, deleted ones included. What is held meanwhile is given back. Blocks.
    ///
    /// # Errors
    /// Files that cannot be read, more rows than queries may hold, [`Error::TimedOut`] once the work should end.
    pub fn rows(&self, segment: &Arc<dyn SegmentReader>, work: &Work) -> Result<RoaringBitmap> {
        let source = source(segment, work)?;
        let prepared = clause_rows(&self.0, &source)?;
        match prepared.row_set() {
            Some(rows) => Ok(rows.clone()),
            None => found(&prepared, &source),
        }
    }
}
