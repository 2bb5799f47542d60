//! The parsed aggregations meet the mappings: the columns that each reads in each index, and of which rows.

use std::sync::Arc;

use millrace_dsl::aggs::{Aggregation, Aggregations, Kind, Metric, ValuesSource};
use millrace_matching::table::TableSnapshot;
use millrace_work::error::{Error, Result};
use serde_json::Value;

use super::bucket::{
    auto_date_histogram, composite, date_histogram, filters, histogram, keyed, multi_terms, nested, range,
    rare_terms, sampler, significant_terms, slots, terms, top_hits,
};
use super::compiler::{Compiler, Context, ParentContext};
use super::field::AcceptedTypes;
use super::metric::collector::Measure;
use super::profile::Timings;
use super::result::{Format, Header};
use super::scan_plan::{ScanPlan, Scope};
use super::tree::{Node, NodeKind, Root, Tree};

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
    let mut compiler = Compiler {
        snapshot,
        now_ms,
        profile,
        scan: ScanPlan { scopes: vec![documents], filters: Vec::new() },
        backgrounds: Vec::new(),
        failed: Vec::new(),
        touched: Vec::new(),
        name: "".into(),
        parent: "".into(),
        scores: false,
        by_shard: false,
    };
    let (mut roots, mut globals) = (Vec::new(), Vec::new());
    for (place, aggregation) in aggregations.collected().enumerate() {
        compiler.touched = vec![Vec::new(); snapshot.indices.len()];
        let context = Context { scope: 0, below: ParentContext::Top };
        let node = compiler.node(aggregation, context)?;
        let slots = std::mem::take(&mut compiler.touched);
        let root = Root { place, node, slots };
        match aggregation.kind {
            Kind::Global => globals.push(root),
            _ => roots.push(root),
        }
    }
    let Compiler { scan, backgrounds, failed, scores, by_shard, .. } = compiler;
    Ok(Tree { roots, globals, scan, backgrounds, scores, by_shard, failed })
}

/// An aggregation that has met the mappings.
struct CompiledAggregation {
    kind: NodeKind,
    /// Format of its keys and values.
    format: Format,
    /// Context of its sub-aggregations.
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
                self.scores = true;
                self.by_shard = true;
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
                self.scores |= shape.by_score();
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
                self.by_shard = true;
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
