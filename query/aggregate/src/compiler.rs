//! The mappings of a snapshot as aggregations meet them: fields, filters, scopes and values in each index.
//!
//! `compile` walks the request with a [`Compiler`]; each kind of aggregation asks it for what it reads.

use std::sync::Arc;

use millrace_dsl::aggs::ValuesSource;
use millrace_dsl::query::{Common, NestedQuery, NestedScore, Query};
use millrace_mapping::{DateFormat, PathId, Scalar};
use millrace_matching::lower;
use millrace_matching::table::TableSnapshot;
use millrace_matching::table::resolve::{IndexContext, resolve};
use millrace_matching::table::statistics::Functions;
use millrace_time::Zone;
use millrace_work::error::{Error, Result};
use serde_json::Value;

use super::backgrounds::BackgroundPlan;
use super::field::{AcceptedTypes, EVERY_INDEX, FieldResolution, Values};
use super::scan_plan::{FilterPlan, ScanPlan, Scope};

/// The position of an aggregation in the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    /// Number of the scope.
    pub scope: usize,
    /// The aggregation around.
    pub below: ParentContext,
}

/// The kind of aggregation around another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParentContext {
    /// Nothing.
    Top,
    /// Single buckets only, of which each has all rows of the same scope or filters them.
    Single,
    /// Something else, by the name of its factory.
    Other(&'static str),
}

/// Lets aggregations meet the mappings.
pub(crate) struct Compiler<'a> {
    /// The indices.
    pub snapshot: &'a Arc<TableSnapshot>,
    /// The time of `now`, in milliseconds since 1970.
    pub now_ms: i64,
    /// True if times are measured.
    pub profile: bool,
    /// Scopes and filters so far.
    pub scan: ScanPlan,
    /// Counts over other documents so far.
    pub backgrounds: Vec<BackgroundPlan>,
    /// Indices that refuse an aggregation.
    pub failed: Vec<(usize, Error)>,
    /// Places of the columns of documents that the aggregation of the top level at hand reads, by index.
    pub touched: Vec<Vec<usize>>,
    /// Name of the aggregation at hand.
    pub name: Arc<str>,
    /// Name of the aggregation around.
    pub parent: Arc<str>,
    /// True if scores are read.
    pub scores: bool,
    /// True if an aggregation decides something shard by shard.
    pub by_shard: bool,
}

impl Compiler<'_> {
    /// Returns the name of the aggregation at hand.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Reports an error of every index.
    pub(crate) fn fail_all(&mut self, error: Error) {
        self.failed.push((EVERY_INDEX, error));
    }

    /// Reports an error of an index.
    pub(crate) fn fail(&mut self, index: usize, error: Error) {
        self.failed.push((index, error));
    }

    /// Resolves a field.
    pub(crate) fn values(
        &mut self,
        context: Context,
        source: &ValuesSource,
        aggregation: &str,
        accepts: AcceptedTypes,
    ) -> Result<Values> {
        let Some(scope) = self.scan.scopes.get_mut(context.scope) else {
            return Err(Error::Execution("an aggregation is in no scope".to_owned()));
        };
        let (columns, touched) = (&mut scope.columns, &mut self.touched);
        let mut slot = |index: usize, column: PathId| {
            let touched = if context.scope == 0 { touched.get_mut(index) } else { None };
            columns.get_mut(index).map_or(0, |columns| place_of(column, columns, touched))
        };
        let resolving = FieldResolution {
            indices: &self.snapshot.indices,
            aggregation,
            accepts,
            now_ms: self.now_ms,
            failed: &mut self.failed,
            slot: &mut slot,
        };
        let values = Values::resolve(source, resolving)?;
        if values.mixed && accepts != AcceptedTypes::Any {
            return Err(Error::Reducing(Box::new(Error::Exception {
                kind: "aggregation_execution_exception",
                status: 500,
                reason: format!(
                    "Merging/Reducing the aggregations failed when computing the aggregation [{}] because the field you gave in the aggregation query existed as two different types in two different indices",
                    self.name
                ),
            })));
        }
        Ok(values)
    }

    /// Gives a column its place among those of a scope.
    pub(crate) fn slot(&mut self, context: Context, index: usize, column: PathId) -> usize {
        let columns = self.scan.scopes.get_mut(context.scope).and_then(|scope| scope.columns.get_mut(index));
        let touched = if context.scope == 0 { self.touched.get_mut(index) } else { None };
        columns.map_or(0, |columns| place_of(column, columns, touched))
    }

    /// Adds a scope.
    pub(crate) fn scope(&mut self, outer: usize, path: Option<Arc<str>>) -> usize {
        let indices = &self.snapshot.indices;
        let paths = indices.iter().map(|index| index.mapping.nested_id(path.as_deref()?)).collect();
        self.scan.scopes.push(Scope { path, outer, paths, columns: vec![Vec::new(); indices.len()] });
        self.scan.scopes.len() - 1
    }

    /// Returns a scope.
    pub(crate) fn scope_at(&self, scope: usize) -> Option<&Scope> {
        self.scan.scopes.get(scope)
    }

    /// Adds a filter; returns its number.
    pub(crate) fn filter(&mut self, context: Context, query: &Query) -> Result<usize> {
        let path = self.scan.scopes.get(context.scope).and_then(|scope| scope.path.clone());
        let predicate = match &path {
            None => lower::lower_filter(query),
            Some(path) => {
                let nested = NestedQuery {
                    path: path.to_string(),
                    query: query.clone(),
                    score_mode: NestedScore::None,
                    ignore_unmapped: true,
                    inner_hits: None,
                    common: Common::default(),
                };
                lower::lower_filter(&nested.into())
            }
        };
        let mut resolved = Vec::with_capacity(self.snapshot.indices.len());
        for (at, index) in self.snapshot.indices.iter().enumerate() {
            let context = IndexContext { meta: &index.meta, mapping: &index.mapping, now_ms: self.now_ms };
            resolved.push(match resolve(&predicate, context) {
                Ok(found) => Some(found),
                Err(error) => {
                    self.failed.push((at, error));
                    None
                }
            });
        }
        let functions = Functions::new(self.snapshot.shards, false);
        self.scan.filters.push(FilterPlan { scope: context.scope, resolved, functions });
        Ok(self.scan.filters.len() - 1)
    }

    /// Adds counts of all values of a field, or of those in documents that a filter matches.
    pub(crate) fn background(
        &mut self,
        context: Context,
        source: &ValuesSource,
        filter: Option<&Query>,
    ) -> Result<usize> {
        let filter = filter.map(|filter| self.filter(context, filter)).transpose()?;
        let source = ValuesSource { missing: None, ..source.clone() };
        let values = self.values(context, &source, "terms", AcceptedTypes::Keys)?;
        self.backgrounds.push(BackgroundPlan::new(context.scope, values, filter));
        Ok(self.backgrounds.len() - 1)
    }

    /// Reads a value as the field has it in the first index that has it.
    pub(crate) fn parse(&self, values: &Values, value: &Value) -> Result<Option<Scalar>> {
        let indices = self.snapshot.indices.iter().enumerate();
        let found = indices.filter_map(|(at, index)| Some((values.place_in(at)?, index))).next();
        let Some((place, index)) = found else { return Ok(None) };
        match index.mapping.parse_value(&place.field, value, self.now_ms, false)? {
            Scalar::I64(value) => Ok(Some(Scalar::I64(place.long(value)))),
            other => Ok(Some(other)),
        }
    }

    /// Reads a date of a format, or date math, in a zone.
    pub(crate) fn date(&self, format: &DateFormat, zone: Zone, text: &str, round_up: bool) -> Result<i64> {
        format.parse_millis_in(text, self.now_ms, round_up, zone).map_err(|reason| Error::Exception {
            kind: "parse_exception",
            status: 400,
            reason,
        })
    }
}

/// Returns the place of a column among those that are read, and notes that the aggregation at hand reads it.
fn place_of(column: PathId, columns: &mut Vec<PathId>, touched: Option<&mut Vec<usize>>) -> usize {
    let place = columns.iter().position(|known| *known == column).unwrap_or_else(|| {
        columns.push(column);
        columns.len() - 1
    });
    if let Some(touched) = touched
        && !touched.contains(&place)
    {
        touched.push(place);
    }
    place
}
