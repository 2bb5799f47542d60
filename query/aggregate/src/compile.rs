//! The parsed aggregations meet the mappings: what each reads in each index, of which rows.

use std::sync::Arc;

use millrace_dsl::aggs::{Aggregation, Aggregations, Kind, Metric, ValuesSource};
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
use super::bucket::{
    auto_date_histogram, composite, date_histogram, filters, histogram, keyed, multi_terms, nested, range,
    rare_terms, sampler, significant_terms, slots, terms, top_hits,
};
use super::field::{AcceptedTypes, FieldResolution, Values};
use super::metric::collector::Measure;
use super::profile::Timings;
use super::result::{Format, Header};
use super::tree::{FilterPlan, Node, NodeKind, Root, Scope, Tree};

/// Stands for every index among those that failed.
pub(crate) const ALL: usize = usize::MAX;

/// Lets aggregations meet the mappings of a snapshot.
///
/// # Errors
/// What the request gets wrong whatever the mappings are.
pub(crate) fn compile(
    aggregations: &Aggregations,
    snapshot: &Arc<TableSnapshot>,
    now_ms: i64,
    profile: bool,
) -> Result<Tree> {
    let documents = Scope {
        paths: vec![None; snapshot.indices.len()],
        columns: vec![Vec::new(); snapshot.indices.len()],
        ..Scope::default()
    };
    let tree = Tree { scopes: vec![documents], ..Tree::default() };
    let mut compiler =
        Compiler { snapshot, now_ms, profile, tree, touched: Vec::new(), name: "".into(), parent: "".into() };
    for (place, aggregation) in aggregations.collected().enumerate() {
        compiler.touched = vec![Vec::new(); snapshot.indices.len()];
        let context = Context { scope: 0, below: ParentContext::Top };
        let node = compiler.node(aggregation, context)?;
        let slots = std::mem::take(&mut compiler.touched);
        let root = Root { place, node, slots };
        match aggregation.kind {
            Kind::Global => compiler.tree.globals.push(root),
            _ => compiler.tree.roots.push(root),
        }
    }
    Ok(compiler.tree)
}

/// Where an aggregation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    /// Number of the scope.
    pub scope: usize,
    /// What is around.
    pub below: ParentContext,
}

/// What is around an aggregation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParentContext {
    /// Nothing.
    Top,
    /// Single buckets only, of which each has all rows of the same scope or filters them.
    Single,
    /// Something else, by the name of its factory.
    Other(&'static str),
}

/// An aggregation that has met the mappings.
struct CompiledAggregation {
    kind: NodeKind,
    /// How its keys and values are written.
    format: Format,
    /// Where those below it stand.
    inner: Context,
}

impl CompiledAggregation {
    fn raw(kind: NodeKind, inner: Context) -> Self {
        Self { kind, format: Format::Raw, inner }
    }

    fn keyed(keyed: Arc<keyed::KeyedAggregation>, inner: Context) -> Self {
        // Lists of keys say how each is written.
        let only = keyed.rules.first().filter(|_| !keyed.list);
        let format = only.map_or(Format::Raw, |rule| rule.values.format.clone());
        Self { kind: NodeKind::Keyed(keyed), format, inner }
    }

    fn slots(slots: Arc<slots::Slots>, inner: Context) -> Self {
        Self { format: slots.format.clone(), kind: NodeKind::Slots(slots), inner }
    }
}

/// Lets aggregations meet the mappings.
pub(crate) struct Compiler<'a> {
    /// The indices.
    pub snapshot: &'a Arc<TableSnapshot>,
    /// What `now` means.
    pub now_ms: i64,
    /// Whether times are measured.
    profile: bool,
    tree: Tree,
    touched: Vec<Vec<usize>>,
    name: Arc<str>,
    /// Name of the aggregation around.
    parent: Arc<str>,
}

impl Compiler<'_> {
    fn node(&mut self, aggregation: &Aggregation, context: Context) -> Result<Node> {
        self.name = Arc::clone(&aggregation.name);
        let CompiledAggregation { kind, format, inner } = self.compiled(aggregation, context)?;
        let mut subs = Vec::new();
        for sub in aggregation.subs.collected() {
            self.parent = Arc::clone(&aggregation.name);
            subs.push(self.node(sub, inner)?);
        }
        let order = match &aggregation.kind {
            Kind::DateHistogram(histogram) => Some(&histogram.order),
            Kind::Histogram(histogram) => Some(&histogram.order),
            Kind::MultiTerms(multi) => Some(&multi.order),
            Kind::Terms(terms) => Some(&terms.order),
            _ => None,
        };
        if let Some(Err(error)) = order.map(|order| order.check(&aggregation.subs)) {
            self.fail_all(error);
        }
        let header = Header { name: Arc::clone(&aggregation.name), meta: aggregation.meta.clone(), format };
        let timings = self.profile.then(|| Timings::new(self.snapshot.shards));
        let below = (0..self.snapshot.indices.len()).map(|index| numbers_of(&subs, index)).collect();
        Ok(Node { header: Arc::new(header), kind, subs, below, timings })
    }

    /// Lets an aggregation meet the mappings, without those below it.
    fn compiled(&mut self, aggregation: &Aggregation, context: Context) -> Result<CompiledAggregation> {
        // What is below stands within several buckets, by the name of their factory, or in one.
        let within = |factory: &'static str| Context { below: ParentContext::Other(factory), ..context };
        let single = match context.below {
            ParentContext::Top | ParentContext::Single => Context { below: ParentContext::Single, ..context },
            _ => context,
        };
        Ok(match &aggregation.kind {
            Kind::AdjacencyMatrix(matrix) => {
                let slots = filters::adjacency_matrix(self, context, matrix)?;
                CompiledAggregation::slots(slots, within("AdjacencyMatrixAggregatorFactory"))
            }
            Kind::AutoDateHistogram(auto) => {
                let shape = auto_date_histogram::compile(self, context, auto)?;
                let format = shape.rule.values.format.clone();
                let inner = within("AutoDateHistogramAggregatorFactory");
                CompiledAggregation { kind: NodeKind::AutoDateHistogram(shape), format, inner }
            }
            Kind::Composite(composite) => {
                let keyed = composite::compile(self, context, composite)?;
                CompiledAggregation::keyed(keyed, within("CompositeAggregationFactory"))
            }
            Kind::DateHistogram(histogram) => {
                let keyed = date_histogram::compile(self, context, histogram)?;
                CompiledAggregation::keyed(keyed, within("DateHistogramAggregatorFactory"))
            }
            Kind::DateRange(ranges) => {
                let slots = range::date_range(self, context, ranges)?;
                CompiledAggregation::slots(slots, within("DateRangeAggregatorFactory"))
            }
            Kind::Filter(query) => CompiledAggregation::slots(filters::filter(self, context, query)?, single),
            Kind::Filters(list) => {
                let slots = filters::filters(self, context, list)?;
                CompiledAggregation::slots(slots, within("FiltersAggregatorFactory"))
            }
            Kind::Global => {
                self.check_global(aggregation, context);
                CompiledAggregation::slots(
                    filters::global(),
                    Context { below: ParentContext::Single, ..context },
                )
            }
            Kind::Histogram(histogram) => {
                let keyed = histogram::compile(self, context, histogram)?;
                CompiledAggregation::keyed(keyed, within("HistogramAggregatorFactory"))
            }
            Kind::IpRange(ranges) => {
                let slots = range::ip_range(self, context, ranges)?;
                CompiledAggregation::slots(slots, within("BinaryRangeAggregatorFactory"))
            }
            Kind::Metric(metric) => self.metric(context, metric)?,
            Kind::Missing(source) => {
                CompiledAggregation::slots(filters::missing(self, context, source)?, single)
            }
            Kind::MultiTerms(multi) => {
                let keyed = multi_terms::compile(self, context, multi)?;
                CompiledAggregation::keyed(keyed, within("MultiTermsAggregationFactory"))
            }
            Kind::Nested(enter) => {
                let enter = nested::enter(self, context, enter)?;
                let inner = Context { scope: enter.scope, ..single };
                CompiledAggregation::raw(NodeKind::Nested(enter), inner)
            }
            Kind::Pipeline(_) => return Err(Error::Execution("a pipeline is not collected".to_owned())),
            Kind::Range(ranges) => {
                let slots = range::range(self, context, ranges)?;
                CompiledAggregation::slots(slots, within("RangeAggregatorFactory"))
            }
            Kind::RareTerms(rare) => {
                let keyed = rare_terms::compile(self, context, rare)?;
                CompiledAggregation::keyed(keyed, within("RareTermsAggregatorFactory"))
            }
            Kind::ReverseNested(leave) => {
                let leave = nested::leave(self, context, leave)?;
                let inner = Context { scope: leave.scope, ..single };
                CompiledAggregation::raw(NodeKind::ReverseNested(leave), inner)
            }
            Kind::Sampler(sampler) => {
                self.tree.scores = true;
                self.tree.by_shard = true;
                let kind = NodeKind::Sampler(sampler::compile(sampler));
                CompiledAggregation::raw(kind, within("SamplerAggregatorFactory"))
            }
            Kind::SignificantTerms(significant) => {
                let keyed = significant_terms::compile(self, context, significant)?;
                CompiledAggregation::keyed(keyed, within("SignificantTermsAggregatorFactory"))
            }
            Kind::Terms(terms) => {
                let keyed = terms::compile(self, context, terms)?;
                CompiledAggregation::keyed(keyed, within("TermsAggregatorFactory"))
            }
            Kind::TopHits(hits) => {
                let shape = top_hits::compile(self, context, hits)?;
                self.tree.scores |= shape.by_score();
                CompiledAggregation::raw(NodeKind::TopHits(shape), within("MultiBucketAggregatorFactory"))
            }
        })
    }

    fn metric(&mut self, context: Context, metric: &Arc<Metric>) -> Result<CompiledAggregation> {
        let measure = self.measure(context, metric)?;
        let format = match measure.fields.as_slice() {
            [only] => metric_format(metric, &only.format),
            _ => Format::Raw,
        };
        Ok(CompiledAggregation { format, ..CompiledAggregation::raw(NodeKind::Metric(measure), context) })
    }

    fn check_global(&mut self, aggregation: &Aggregation, context: Context) {
        if context.below != ParentContext::Top {
            let reason = format!(
                "Aggregation [{}] cannot have a global sub-aggregation [{}]. Global aggregations can only be defined as top level aggregations",
                self.parent, aggregation.name
            );
            let kind = "aggregation_execution_exception";
            self.fail_all(Error::Exception { kind, status: 500, reason });
        }
    }

    /// Returns the name of the aggregation at hand.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Reports an error of every index.
    pub(crate) fn fail_all(&mut self, error: Error) {
        self.tree.failed.push((ALL, error));
    }

    /// Reports an error of an index.
    pub(crate) fn fail(&mut self, index: usize, error: Error) {
        self.tree.failed.push((index, error));
    }

    /// Resolves a field.
    pub(crate) fn values(
        &mut self,
        context: Context,
        source: &ValuesSource,
        aggregation: &str,
        accepts: AcceptedTypes,
    ) -> Result<Values> {
        let Some(scope) = self.tree.scopes.get_mut(context.scope) else {
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
            failed: &mut self.tree.failed,
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
        let columns = self.tree.scopes.get_mut(context.scope).and_then(|scope| scope.columns.get_mut(index));
        let touched = if context.scope == 0 { self.touched.get_mut(index) } else { None };
        columns.map_or(0, |columns| place_of(column, columns, touched))
    }

    /// Adds a scope.
    pub(crate) fn scope(&mut self, outer: usize, path: Option<Arc<str>>) -> usize {
        let indices = &self.snapshot.indices;
        let paths = indices.iter().map(|index| index.mapping.nested_id(path.as_deref()?)).collect();
        self.tree.scopes.push(Scope { path, outer, paths, columns: vec![Vec::new(); indices.len()] });
        self.tree.scopes.len() - 1
    }

    /// Returns a scope.
    pub(crate) fn scope_at(&self, scope: usize) -> Option<&Scope> {
        self.tree.scopes.get(scope)
    }

    /// Adds a filter; returns its number.
    pub(crate) fn filter(&mut self, context: Context, query: &Query) -> Result<usize> {
        let path = self.tree.scopes.get(context.scope).and_then(|scope| scope.path.clone());
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
                    self.tree.failed.push((at, error));
                    None
                }
            });
        }
        let functions = Functions::new(self.snapshot.shards, false);
        self.tree.filters.push(FilterPlan { scope: context.scope, resolved, functions });
        Ok(self.tree.filters.len() - 1)
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
        self.tree.backgrounds.push(BackgroundPlan::new(context.scope, values, filter));
        Ok(self.tree.backgrounds.len() - 1)
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

    fn measure(&mut self, context: Context, metric: &Arc<Metric>) -> Result<Arc<Measure>> {
        let name = metric.name();
        let accepts = match metric.as_ref() {
            Metric::Cardinality(_) => AcceptedTypes::Any,
            Metric::Simple(millrace_dsl::aggs::Simple::ValueCount, _) => AcceptedTypes::Any,
            Metric::GeoBounds { .. } => AcceptedTypes::Points,
            _ => AcceptedTypes::Numbers,
        };
        let named = |field: &str, missing: Option<Value>| ValuesSource {
            field: Some(field.to_owned()),
            missing,
            ..ValuesSource::default()
        };
        let sources: Vec<ValuesSource> = match metric.as_ref() {
            Metric::WeightedAvg(options) => vec![
                named(&options.value, options.value_missing.clone()),
                named(&options.weight, options.weight_missing.clone()),
            ],
            Metric::MatrixStats(options) => {
                self.tree.by_shard = true;
                let missing = |field| options.missing.get(field).map(|value| Value::from(*value));
                options.fields.iter().map(|field| named(field, missing(field))).collect()
            }
            other => other.source().cloned().into_iter().collect(),
        };
        let mut fields = Vec::with_capacity(sources.len());
        for source in &sources {
            fields.push(self.values(context, source, name, accepts)?);
        }
        Ok(Arc::new(Measure { metric: Arc::clone(metric), fields }))
    }
}

/// Lists the places of the columns that nodes read in an index, ascending, if [`Node::numbers`] of each.
fn numbers_of(nodes: &[Node], index: usize) -> Option<Vec<usize>> {
    let all: Option<Vec<Vec<usize>>> = nodes.iter().map(|node| node.numbers(index)).collect();
    let mut places = all?.concat();
    places.sort_unstable();
    places.dedup();
    Some(places)
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

/// Counts are numbers whatever the field is.
fn metric_format(metric: &Metric, format: &Format) -> Format {
    match metric {
        Metric::Cardinality(_) | Metric::GeoBounds { .. } | Metric::MatrixStats(_) => Format::Raw,
        Metric::Simple(millrace_dsl::aggs::Simple::ValueCount, _) => match format {
            Format::Decimal(_) => format.clone(),
            _ => Format::Raw,
        },
        _ => match format {
            Format::Ip => Format::Raw,
            other => other.clone(),
        },
    }
}
