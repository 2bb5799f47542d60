//! Many filters evaluated on documents as they arrive, by the code of searches: a rule matches the documents that a search would
//! find.
//!
//! A [`Filter`] is the body of a search, compiled for an [`IndexView`]: an index's mapping and what the filter's owner may see of
//! it. A [`Matcher`] holds all filters of an index and is asked of one [`Batch`] after the other, which is a segment in memory:
//!
//! ```text
//! let view = Arc::new(IndexView::of(meta, mapping, &access)?);
//! let matcher = Matcher::new(&[Arc::new(Filter::compile(&body, &view)?), …]);
//! // On a compute thread, for each batch; no more of it than `Batch::fitting`.
//! let batch = matcher.batch(view.mapping(), &arrivals, compute)?;
//! for found in matcher.run(&batch, &Work::default())? { … }
//! ```
//!
//! When the mapping has changed, [`Changes::between`] two views tells [`Filter::needs_recompile`] which filters are compiled anew; all
//! are put into a new matcher, with which batches of the new mapping are made.
//!
//! Cost follows what matches, not how many filters there are: documents are parsed and looked through for the values, tokens and
//! numbers that filters need; only those that have some are indexed. Filters are found by what these have
//! ([`finder`]), and only they are evaluated, a clause that several have once. Differences from searches are
//! listed in `docs/internals/matching-rules.md`.

mod atoms;
mod batch;
mod body;
mod clause;
mod fields;
mod finder;
mod interval_set;
mod matcher;
mod names;
mod stored;
mod substring_index;
mod view;

use std::sync::Arc;

use millrace_work::error::Result;
use serde_json::Value;

use self::clause::{Clause, ClauseContainer, Tree};
use self::names::Names;
use millrace_dsl::query::Query;
use millrace_mapping::fields::FieldRules;

use crate::lower::lower_filter;
use crate::table::access_snapshot::Documents;

pub use self::batch::{ArrivedDocument, Batch};
pub use self::fields::Fields;
pub use self::matcher::{FilterMatches, Matcher};
pub use self::names::Changes;
pub use self::view::IndexView;

/// Smallest size of a clause, and the multiple of its text's length that it takes beside that.
const CLAUSE_BYTES: usize = 4 << 10;
const WRITTEN_TIMES: usize = 8;

/// A filter for one index.
#[derive(Debug)]
pub struct Filter {
    tree: Tree,
    clauses: Vec<Arc<Clause>>,
    fields: Fields,
    names: Names,
}

impl Filter {
    /// Compiles the body of a search. Its query counts, joined with what its owner may see; members that only say how hits are shown,
    /// such as `size` and `sort`, are left alone.
    ///
    /// # Errors
    /// A body that no search could have; what the index cannot be asked; members and clauses by which more than a document decides
    /// whether it matches, by name: aggregations, `min_score`, `post_filter`, `collapse`, values of other documents,
    /// `more_like_this`. Also where what the owner may see goes by terms that are chosen among those of all documents, such as
    /// those of `fuzzy`: a document alone does not say which they are.
    pub fn compile(body: &Value, view: &Arc<IndexView>) -> Result<Self> {
        let predicate = lower_filter(&body::query(body)?);
        let (mut names, mut clauses) = (Names::default(), Vec::new());
        names.add(&predicate);
        let mut parts =
            vec![clause::tree(&predicate, view, &view.seen, ClauseContainer::Asked, &mut clauses)?];
        for Documents { predicate, mapping } in &view.narrowed {
            names.add(predicate);
            parts.push(clause::tree(predicate, view, mapping, ClauseContainer::Narrowing, &mut clauses)?);
        }
        let tree = if parts.len() == 1 { parts.remove(0) } else { Tree::All(parts) };
        let mut fields = Fields::default();
        clauses.iter().for_each(|clause| fields.join(&clause.fields));
        Ok(Self { tree, clauses, fields, names })
    }

    /// Returns whether the filter means the same for each index that is alike ([`IndexView::is_like`]): it does not ask which
    /// index it is.
    pub fn is_of_any_index(&self) -> bool {
        !self.names.may_ask_index()
    }

    /// Estimates the bytes of memory that the filter takes in a matcher.
    pub fn weight(&self) -> usize {
        // Of a clause there are its text, its meaning, and what finds it.
        let of = |clause: &Arc<Clause>| CLAUSE_BYTES + WRITTEN_TIMES * clause.written.len();
        self.clauses.iter().map(of).fold(0, usize::saturating_add)
    }

    /// Returns whether the filter may mean something else after changes of the index than what it was compiled to.
    pub fn needs_recompile(&self, changes: &Changes) -> bool {
        self.names.are_changed(changes)
    }
}

/// Finds a field that a query names and some rule does not show; `*` where it may ask any field, and not all are shown.
pub fn hidden_field(query: &Query, rules: &[Arc<FieldRules>]) -> Option<String> {
    let mut names = Names::default();
    names.add(&lower_filter(query));
    names.hidden(|name| rules.iter().all(|rules| rules.shows(name)))
}

#[cfg(test)]
mod tests;
