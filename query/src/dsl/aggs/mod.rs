//! Aggregations: the parsed tree, one file an aggregation.
//!
//! [`Aggregations::parse`] reads the value of `aggs`, knows names and shapes only, and bounds depth
//! and number; what a field's type means for an aggregation is decided where the tree meets a
//! mapping, by the operator in `crate::aggregate`. Pipeline aggregations stand in the tree where they were
//! written: a sibling beside the aggregation it reads, a parent below it.

mod adjacency_matrix;
mod auto_date_histogram;
mod cardinality;
mod composite;
mod date_histogram;
mod date_range;
mod filters;
mod histogram;
mod include;
mod interval;
mod ip_range;
mod matrix_stats;
mod members;
mod metric;
mod multi_terms;
mod nested;
mod order;
mod order_path;
mod parser;
mod path;
mod percentiles;
mod pipeline;
mod range;
mod rare_terms;
mod sampler;
mod significant_terms;
mod source;
mod terms;
mod top_hits;
mod validation;
mod weighted_avg;
mod zone;

use std::sync::Arc;

use serde_json::{Map, Value};

use self::filters::NamedFilter;
use super::query::Query;

pub(crate) use adjacency_matrix::AdjacencyMatrix;
pub(crate) use auto_date_histogram::{AutoDateHistogram, MinimumInterval};
pub(crate) use composite::{Composite, CompositeKind, CompositeSource, MissingOrder};
pub(crate) use date_histogram::{DateBounds, DateHistogram};
pub(crate) use date_range::{DateBound, DateRange};
pub(crate) use filters::Filters;
pub(crate) use histogram::{Bounds, Histogram};
pub(crate) use include::{IncludeExclude, Pattern};
pub(crate) use interval::{CalendarUnit, Interval};
pub(crate) use ip_range::IpRange;
pub(crate) use matrix_stats::MatrixMode;
pub(crate) use metric::{Metric, Simple};
pub(crate) use multi_terms::MultiTerms;
pub(crate) use nested::{Nested, ReverseNested};
pub(crate) use order::{BucketOrder, OrderBy, PathOrder};
pub(crate) use path::Path;
pub(crate) use percentiles::{PercentileMethod, PercentileRanks, Percentiles};
pub(crate) use pipeline::{
    BucketExpression, BucketMetric, BucketSort, Derivative, GapPolicy, MovingFn, Pipeline, SerialDiff,
    Statistic,
};
pub(crate) use range::{NumericRange, Range};
pub(crate) use rare_terms::RareTerms;
pub(crate) use sampler::Sampler;
pub(crate) use significant_terms::{Heuristic, SignificantTerms};
pub(crate) use source::{ValueType, ValuesSource};
pub(crate) use terms::{Terms, Thresholds};
pub(crate) use top_hits::TopHits;
pub(crate) use validation::validate;
pub(crate) use zone::Zone;

/// Deepest nesting of aggregations.
pub(crate) const MAX_DEPTH: usize = 100;
/// Most aggregations of one request.
pub(crate) const MAX_COUNT: usize = 10_000;

/// Aggregations beside each other, in the order of the request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Aggregations(pub Vec<Aggregation>);

impl Aggregations {
    /// Returns the queries of all filters in the tree.
    pub(crate) fn queries_mut(&mut self) -> Vec<&mut Query> {
        let mut queries = Vec::new();
        for aggregation in &mut self.0 {
            match &mut aggregation.kind {
                Kind::AdjacencyMatrix(matrix) => {
                    queries.extend(Arc::make_mut(matrix).filters.iter_mut().map(NamedFilter::query_mut));
                }
                Kind::Filter(query) => queries.push(Arc::make_mut(query)),
                Kind::Filters(filters) => {
                    queries.extend(Arc::make_mut(filters).filters.iter_mut().map(NamedFilter::query_mut));
                }
                Kind::SignificantTerms(terms) => {
                    queries.extend(Arc::make_mut(terms).background_filter.as_mut().map(Arc::make_mut));
                }
                _ => {}
            }
            queries.extend(aggregation.subs.queries_mut());
        }
        queries
    }

    /// Whether documents that the query does not find have a part in the answer.
    pub(crate) fn visit_all(&self) -> bool {
        self.0.iter().any(|aggregation| match &aggregation.kind {
            Kind::Global => true,
            Kind::Terms(terms) => terms.thresholds.min_doc_count == 0 || aggregation.subs.visit_all(),
            _ => aggregation.subs.visit_all(),
        })
    }
}

/// One named aggregation.
#[derive(Clone, Debug)]
pub(crate) struct Aggregation {
    /// Its name, unique beside its siblings.
    pub name: Arc<str>,
    /// What is computed.
    pub kind: Kind,
    /// What the answer repeats.
    pub meta: Option<Arc<Map<String, Value>>>,
    /// What is computed of each bucket; empty for metrics and pipelines.
    pub subs: Aggregations,
}

/// What an aggregation computes.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub(crate) enum Kind {
    AdjacencyMatrix(Arc<AdjacencyMatrix>),
    AutoDateHistogram(Arc<AutoDateHistogram>),
    Composite(Arc<Composite>),
    DateHistogram(Arc<DateHistogram>),
    DateRange(Arc<DateRange>),
    Filter(Arc<Query>),
    Filters(Arc<Filters>),
    Global,
    Histogram(Arc<Histogram>),
    IpRange(Arc<IpRange>),
    Metric(Arc<Metric>),
    Missing(Arc<ValuesSource>),
    MultiTerms(Arc<MultiTerms>),
    Nested(Arc<Nested>),
    Pipeline(Arc<Pipeline>),
    Range(Arc<Range>),
    RareTerms(Arc<RareTerms>),
    ReverseNested(Arc<ReverseNested>),
    Sampler(Arc<Sampler>),
    SignificantTerms(Arc<SignificantTerms>),
    Terms(Arc<Terms>),
    TopHits(Arc<TopHits>),
}

impl Aggregations {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the aggregation of a name.
    pub(crate) fn get(&self, name: &str) -> Option<&Aggregation> {
        self.0.iter().find(|aggregation| &*aggregation.name == name)
    }

    /// Iterates over those that are computed of documents: all but pipelines.
    pub(crate) fn collected(&self) -> impl Iterator<Item = &Aggregation> {
        self.0.iter().filter(|aggregation| !matches!(aggregation.kind, Kind::Pipeline(_)))
    }

    /// Iterates over pipelines.
    pub(crate) fn pipelines(&self) -> impl Iterator<Item = (&Aggregation, &Pipeline)> {
        self.0.iter().filter_map(|aggregation| match &aggregation.kind {
            Kind::Pipeline(pipeline) => Some((aggregation, pipeline.as_ref())),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests;
