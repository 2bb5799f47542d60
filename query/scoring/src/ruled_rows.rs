//! The rows of a segment that rules for documents show.
//!
//! Rules come in order, and a term is chosen among the rows that the first so many show. Scorers ask [`RuledRows`]; the table finds the
//! rows as a [`RowVisibility`].

use std::fmt;
use std::sync::Arc;

use millrace_segment::Nested;
use millrace_work::QueryContext;
use millrace_work::error::Result;
use roaring::RoaringBitmap;

/// Rules for documents, applied to one segment.
pub trait RowVisibility: fmt::Debug + Send + Sync {
    /// Finds the documents that the first rules show; all rules where there are fewer, every row where no rule is among them. Blocks.
    ///
    /// # Errors
    /// A rule that the index cannot answer, files that cannot be read, more rows than queries may hold.
    fn visible_documents(&self, rules: usize, work: &QueryContext) -> Result<Option<Arc<RoaringBitmap>>>;
}

/// The visible rows of a segment: its documents, or the elements of a nested path.
#[derive(Clone, Debug)]
pub struct RuledRows {
    documents: Arc<dyn RowVisibility>,
    /// The elements that are rows; documents where absent.
    elements: Option<Arc<Nested>>,
}

impl RuledRows {
    /// Sees the documents as rows.
    pub fn new(documents: Arc<dyn RowVisibility>) -> Self {
        Self { documents, elements: None }
    }

    /// Sees the elements of a nested path as rows.
    pub fn of_elements(&self, nested: &Arc<Nested>) -> Self {
        Self { elements: Some(Arc::clone(nested)), ..self.clone() }
    }

    /// Finds the rows that the first rules show; all rules where there are fewer, every row where no rule is among them. Blocks.
    ///
    /// # Errors
    /// Those of [`RowVisibility::visible_documents`].
    pub fn rows(&self, rules: usize, work: &QueryContext) -> Result<Option<Arc<RoaringBitmap>>> {
        let rows = self.documents.visible_documents(rules, work)?;
        let (Some(documents), Some(nested)) = (&rows, &self.elements) else { return Ok(rows) };
        let elements = (0..).zip(nested.parents()).filter(|(_, parent)| documents.contains(**parent));
        let elements = elements.map(|(element, _)| element).collect();
        work.hold_rows(&elements)?;
        Ok(Some(Arc::new(elements)))
    }
}
