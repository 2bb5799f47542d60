//! Columns of highlights: the fragments of a field that the conditions of a statement match, as a search has them.

use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::{ArrayRef, StringViewBuilder};
use millrace_dsl::highlight::Highlight;
use millrace_dsl::query::{self, Query};
use millrace_matching::table::{TableSegment, TableSnapshot};
use millrace_search::fetch::Phases;
use millrace_segment::StoredRow;
use millrace_work::QueryContext;
use millrace_work::error::{Error, Result};
use serde_json::{Value, json};

use super::push::Clause;
use super::renderer::clause_json;

/// A column of highlights.
#[derive(Debug)]
pub(crate) struct HighlightColumn {
    /// The field, or a pattern of fields.
    pattern: String,
    phases: Phases,
    /// The conditions of the statement, once all are known.
    query: OnceLock<Query>,
}

impl PartialEq for HighlightColumn {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl HighlightColumn {
    /// Makes the column of a field, or of all fields that a pattern names.
    ///
    /// # Errors
    /// Options that a search does not have.
    pub(crate) fn new(pattern: &str, options: &Value) -> Result<Self> {
        let highlight = Highlight::parse(&json!({"fields": {pattern: options}}))?;
        let phases = Phases { highlight: Some(highlight), ..Phases::default() };
        Ok(Self { pattern: pattern.to_owned(), phases, query: OnceLock::new() })
    }

    /// Returns true for a pattern, whose fragments come by field.
    pub(crate) fn is_pattern(&self) -> bool {
        self.pattern.contains('*')
    }

    /// Sets the conditions whose matches are marked. The first that are set count.
    ///
    /// # Errors
    /// Clauses that no search has.
    pub(crate) fn set_conditions(&self, clauses: &[&Clause]) -> Result<()> {
        let clauses: Vec<Value> = clauses.iter().map(|clause| clause_json(clause)).collect();
        let query = query::parse(&json!({"bool": {"should": clauses}}))?;
        self.query.get_or_init(|| query);
        Ok(())
    }

    /// Makes the fragments of some rows of a segment. Blocks; runs on a compute thread.
    ///
    /// # Errors
    /// Highlights that the fields of an index do not allow.
    pub(crate) fn array(
        &self,
        snapshot: &TableSnapshot,
        segment: &TableSegment,
        rows: &[(u32, StoredRow)],
        now_ms: i64,
        work: &QueryContext,
    ) -> Result<ArrayRef> {
        let lost = || Error::Execution("a segment has no index in the snapshot".to_owned());
        let index = snapshot.indices.get(segment.index).ok_or_else(lost)?;
        let shard = snapshot.segments.iter().filter(|other| other.shard == segment.shard);
        let shard: Vec<TableSegment> = shard.cloned().collect();
        let none = Query::match_all();
        let query = self.query.get().unwrap_or(&none);
        // What the fragments hold is held by the batch that they become.
        let work = work.part();
        let marked = self.phases.sources(index, &shard, query, rows, now_ms, &work)?;
        let mut texts = StringViewBuilder::with_capacity(rows.len());
        for mut extras in marked {
            let fragments = match self.is_pattern() {
                true if extras.highlight.is_empty() => None,
                true => Some(Value::Object(extras.highlight)),
                false => extras.highlight.remove(&self.pattern),
            };
            texts.append_option(fragments.map(|fragments| fragments.to_string()));
        }
        Ok(Arc::new(texts.finish()))
    }
}
