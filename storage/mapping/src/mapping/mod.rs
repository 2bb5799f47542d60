//! Mappings: which fields an index has and how their values are typed.
//!
//! A [`Mapping`] is made of a `_mapping` body by [`Mapping::parse`], grows by [`Mapping::merge`] (updates
//! of users) and by dynamic mapping while [`crate::document`] parses documents, and is written to log
//! and catalog by [`Mapping::encode`]. It is immutable once shared. Its leaves are [`Field`]s; each has
//! a [`PathId`], the name by which segments know it, given once and never reused.
//!
//! - `spec` and `leaf_spec` parse bodies into what they ask for, `params` knows the parameters of each type;
//! - `tree` holds the mapping as documents and queries use it, `scope` says which rows hold a value, `rules` says what parameters mean, `merge`
//!   puts a spec into the tree, `checks` holds it to its limits, `render` shows it, `encode` stores it;
//! - `view` leaves out fields that somebody may not see;
//! - `as_you_type`, `completion` and `range` say what is special about fields of these types;
//! - `template` decides what unknown fields become;
//! - `coerce`, `geo` and `date` turn JSON scalars into values, `query` does so for queries.
//!
//! Messages of refusals are OpenSearch's, word for word where clients or tests compare them.

mod as_you_type;
mod changes;
mod checks;
mod coerce;
mod completion;
mod date;
mod encode;
mod field;
mod geo;
mod java;
mod leaf_spec;
mod merge;
mod params;
mod query;
mod range;
mod render;
mod rules;
mod scope;
mod settings;
mod spec;
mod template;
#[cfg(test)]
mod tests;
mod tree;
mod view;

use std::sync::Arc;

use serde_json::{Map, Value};

pub use coerce::parse_ip_range;
pub(crate) use coerce::{Cause, Token};
pub use completion::{CompletionKeys, Context, ContextKind, Contexts, geo_precision};
pub(crate) use date::Instant;
pub use date::{DAYS, DateFormat, MONTHS};
pub use field::{AsYouType, ColumnKind, Field, FieldType, PathId, Scalar};
pub use geo::{parse_point, to_geohash};
pub(crate) use range::RangeBound;
pub use range::{RangeEnd, RangeType};
pub(crate) use rules::NullValue;
pub(crate) use scope::Scope;
pub(crate) use spec::Dynamic;
pub(crate) use template::DetectedType;
pub use tree::Mapping;
pub(crate) use tree::{Child, GrowthMark, Leaf, Object};

use crate::analysis::Analyzers;
use millrace_runtime::{Error, Result};
use settings::Settings;

/// The coercions that documents share with mapping bodies and queries.
pub(crate) mod values {
    pub(crate) use super::coerce::{boolean, date, float, integer, ip, unsigned_long};
    pub(crate) use super::geo::to_geohash;
    pub(crate) use super::geo::{check as check_point, geohash, parse as point};
    pub(crate) use super::java::{cut, to_string as shown};
    pub(crate) use super::leaf_spec::geo_value;
    pub(crate) use super::template::{choose, is_templated};
}

impl Mapping {
    /// Makes the mapping of an index created without one. `settings` are the index's settings,
    /// flattened (`index.mapping.total_fields.limit` and so on); what [`Mapping::parse`] would refuse of
    /// them counts as absent.
    pub fn empty(settings: &Map<String, Value>) -> Self {
        let mut mapping = Self::bare(
            Settings::read(settings).unwrap_or_default(),
            tree::Analysis::read(settings).unwrap_or(tree::Analysis::BuiltIn),
        );
        mapping.seal(1);
        mapping
    }

    /// Parses a mapping body (without a type level) over an empty mapping.
    ///
    /// # Errors
    /// [`Error::MapperParsing`] for a body that is no mapping, [`Error::IllegalArgument`] beyond a limit
    /// and for settings that cannot be read.
    pub fn parse(body: &Value, settings: &Map<String, Value>) -> Result<Self> {
        let mut mapping = Self::bare(Settings::read(settings)?, tree::Analysis::read(settings)?);
        let mark = mapping.mark();
        let parsed = spec::parse_root(body, mapping.context()).and_then(|spec| mapping.apply(spec, None));
        parsed.map_err(|error| {
            let kind = match &error {
                Error::MapperParsing { .. } => "mapper_parsing_exception",
                Error::IllegalArgument(_) => "illegal_argument_exception",
                _ => return error,
            };
            let reason = error.to_string();
            Error::MapperParsing {
                reason: format!("Failed to parse mapping [_doc]: {reason}"),
                caused_by: Some((kind.to_owned(), reason)),
            }
        })?;
        mapping.check_references()?;
        mapping.check_limits(mark)?;
        mapping.seal(1);
        Ok(mapping)
    }

    /// Merges a body into this mapping; a conflict names the field and both types.
    ///
    /// # Errors
    /// [`Error::MapperParsing`] for a body that is no mapping, [`Error::IllegalArgument`] for a conflict
    /// and beyond a limit.
    pub fn merge(&self, body: &Value) -> Result<Self> {
        let spec = spec::parse_root(body, self.context())?;
        let mut merged = self.clone();
        merged.apply(spec, None)?;
        merged.check_references()?;
        merged.check_limits(self.mark())?;
        merged.seal(self.version + 1);
        Ok(merged)
    }

    /// Gives the mapping under other index settings (a raised limit, say).
    ///
    /// # Errors
    /// [`Error::IllegalArgument`] for settings that cannot be read.
    pub fn with_settings(&self, settings: &Map<String, Value>) -> Result<Self> {
        Self::decode(&self.encode(), settings)
    }

    /// Counts changes: a merged or dynamically grown mapping has a greater version.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Finds a leaf by full path; multi-fields and `alias` fields resolve to their target.
    pub fn field(&self, path: &str) -> Option<&Field> {
        match self.lookup(path)? {
            Child::Leaf(at) => Some(&self.leaf(at).field),
            Child::Alias(at) => match self.lookup(&self.aliases[at as usize].target)? {
                Child::Leaf(at) => Some(&self.leaf(at).field),
                _ => None,
            },
            Child::Object(_) => None,
        }
    }

    /// Finds a leaf by number.
    pub fn field_by_id(&self, id: PathId) -> Option<&Field> {
        let at = *self.by_id.get(id.0 as usize)?;
        self.leaves.get(at as usize).map(|leaf| &leaf.field)
    }

    /// Lists all leaves in path order, multi-fields included, aliases excluded.
    pub fn fields(&self) -> impl Iterator<Item = &Field> {
        self.order.iter().map(|at| &self.leaf(*at).field)
    }

    /// Lists the `alias` fields: full path and path of the target.
    pub fn aliases(&self) -> impl Iterator<Item = (&str, &str)> {
        self.aliases.iter().map(|alias| (alias.path.as_ref(), alias.target.as_ref()))
    }

    /// Returns whether the path names an object (not a leaf), as `exists` accepts it.
    pub fn is_object(&self, path: &str) -> bool {
        matches!(self.lookup(path), Some(Child::Object(_)))
    }

    /// Finds the nearest `nested` object that a path is in, or is. Values below it belong to the elements
    /// of that object, and are in the row's columns only where the mapping includes them there.
    pub fn nested_path(&self, path: &str) -> Option<&str> {
        let mut at = match self.lookup(path)? {
            Child::Object(at) => at,
            Child::Leaf(at) => self.leaf(at).object,
            Child::Alias(at) => self.aliases[at as usize].object,
        };
        loop {
            let object = self.object(at);
            if object.nested.is_some() {
                return Some(&object.path);
            }
            if at == 0 {
                return None;
            }
            at = object.parent;
        }
    }

    /// Finds the flat_object that a path leads into: its field, and the dotted path below it. Its column
    /// holds `path=value` and `=value` of every leaf (see [`crate::document`]).
    pub fn flat_object(&self, path: &str) -> Option<(&Field, String)> {
        let mut end = path.len();
        while let Some(dot) = path[..end].rfind('.') {
            if let Some(field) = self.field(&path[..dot]) {
                let below = path[dot + 1..].to_owned();
                return (field.field_type == FieldType::FlatObject).then_some((field, below));
            }
            end = dot;
        }
        None
    }

    /// Returns the format of a date field.
    pub fn date_format(&self, field: &Field) -> Option<&DateFormat> {
        match self.lookup(&field.path)? {
            Child::Leaf(at) => self.leaf(at).rules.format.as_deref(),
            _ => None,
        }
    }

    /// Returns whether `_source` is kept.
    pub fn source_enabled(&self) -> bool {
        self.root.source.get("enabled").and_then(Value::as_bool).unwrap_or(true)
    }

    /// Returns the patterns of the parts of sources that are shown, and of those that are not. Sources
    /// are kept as sent; who shows one leaves out what these say.
    pub fn source_patterns(&self) -> (Vec<String>, Vec<String>) {
        let patterns = |name: &str| {
            let listed = self.root.source.get(name).and_then(Value::as_array);
            listed.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        (patterns("includes"), patterns("excludes"))
    }

    /// Returns whether documents need a routing value (`_routing: {required: true}`).
    pub fn routing_required(&self) -> bool {
        self.root.routing_required
    }

    /// Analyzers and normalizers of the index, built-in ones included.
    pub fn analyzers(&self) -> &Arc<Analyzers> {
        self.analysis.get()
    }
}
