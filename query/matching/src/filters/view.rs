//! An index as the owner of a filter sees it.

use std::sync::Arc;

use millrace_catalog::access::{Action, DocumentRule, DocumentRules, IndexAccess};
use millrace_catalog::metadata::IndexMeta;
use millrace_mapping::Mapping;
use millrace_mapping::fields::FieldRules;
use millrace_work::error::Result;
use serde_json::Value;

use crate::aliases::Aliases;
use crate::rules;
use crate::table::access_snapshot::Documents;
use crate::table::resolve::IndexContext;

/// The fields of queries that name none.
const DEFAULT_FIELD: &str = "index.query.default_field";

/// An index as its filters are compiled: its description, and its visible part for their owner. Owners of the same rights share
/// one.
#[derive(Clone, Debug)]
pub struct IndexView {
    pub(super) meta: Arc<IndexMeta>,
    /// The mapping as the owner sees it.
    pub(super) seen: Arc<Mapping>,
    /// All of it: rules and filters of aliases may name fields that are hidden.
    pub(super) whole: Arc<Mapping>,
    /// Documents that the owner may see: they join the filter.
    pub(super) narrowed: Vec<Documents>,
    /// Document rules of the owner, to tell a change of them.
    pub(super) rules: DocumentRules,
}

impl IndexView {
    /// Shows all of an index.
    pub fn whole(meta: Arc<IndexMeta>, mapping: Arc<Mapping>) -> Self {
        Self { meta, seen: Arc::clone(&mapping), whole: mapping, narrowed: Vec::new(), rules: Vec::new() }
    }

    /// Shows what rules of roles show: documents that match `documents`, and the fields that `fields` show.
    ///
    /// # Errors
    /// A rule that cannot be understood: nothing may be shown then.
    pub fn under(
        meta: Arc<IndexMeta>,
        mapping: Arc<Mapping>,
        documents: DocumentRules,
        fields: Vec<Arc<FieldRules>>,
    ) -> Result<Self> {
        let view = |fields: &[Arc<FieldRules>]| match fields.is_empty() {
            true => Arc::clone(&mapping),
            false => Arc::new(mapping.seen_under(fields.to_vec())),
        };
        let narrowed = rules::documents(&meta.name, &documents, &view)?.to_vec();
        let seen = view(&fields);
        Ok(Self { meta, seen, whole: mapping, narrowed, rules: documents })
    }

    /// Shows what an owner sees of an index who searches it; nothing of one that the owner may not search.
    ///
    /// # Errors
    /// As [`IndexView::under`].
    pub fn new(meta: Arc<IndexMeta>, mapping: Arc<Mapping>, access: &IndexAccess) -> Result<Self> {
        if !access.allows(Action::Search) {
            let nothing = vec![DocumentRule::default()];
            return Self::under(meta, mapping, nothing, Vec::new());
        }
        if access.sees_all(Action::Search) {
            return Ok(Self::whole(meta, mapping));
        }
        Self::under(meta, mapping, access.documents(Action::Search), access.fields(Action::Search))
    }

    /// Leaves what the aliases show by which the parts of an expression name the index; all where one names it itself.
    ///
    /// # Errors
    /// The filter of an alias that cannot be understood.
    pub fn named_by(mut self, parts: &[String]) -> Result<Self> {
        let of_aliases = Aliases::new(&self.meta, parts)?.filter;
        self.narrowed
            .extend(of_aliases.map(|predicate| Documents { predicate, mapping: Arc::clone(&self.whole) }));
        Ok(self)
    }

    /// Returns whether filters that do not ask which index it is mean the same for both
    /// ([`Filter::is_of_any_index`](super::Filter::is_of_any_index)), down to the numbers of fields: so they need be compiled
    /// once.
    pub fn is_like(&self, other: &Self) -> bool {
        let narrowed = |view: &Self| format!("{:?}", view.narrowed);
        self.narrowed.len() == other.narrowed.len()
            && self.seen.field_rules() == other.seen.field_rules()
            && same_settings(&self.meta, &other.meta)
            && (self.narrowed.is_empty() || narrowed(self) == narrowed(other))
            && self.whole.changes_to(&other.whole).is_some_and(|changes| changes.is_empty())
    }

    /// Returns the rules that a source has to keep which is shown to the owner; empty where all is shown.
    pub fn field_rules(&self) -> &Arc<[Arc<FieldRules>]> {
        self.seen.field_rules()
    }

    /// Returns the index's whole mapping: that of batches.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.whole
    }

    /// Sees the index by one of its mappings, at a time.
    pub(super) fn context<'a>(&'a self, mapping: &'a Mapping, now_ms: i64) -> IndexContext<'a> {
        IndexContext { meta: &self.meta, mapping, now_ms }
    }
}

/// Returns whether two indices have the same settings, as far as filters go by them: not what tells the two apart.
fn same_settings(one: &IndexMeta, other: &IndexMeta) -> bool {
    const OWN: [&str; 3] = ["index.uuid", "index.creation_date", "index.provided_name"];
    let counts = |(name, _): &(&String, &Value)| !OWN.contains(&name.as_str());
    let names_index = |meta: &IndexMeta| {
        meta.settings.get(DEFAULT_FIELD).is_some_and(|fields| fields.to_string().contains("\"_"))
    };
    one.settings.iter().filter(counts).eq(other.settings.iter().filter(counts)) && !names_index(one)
}
