//! Aggregations: the parsed tree, one file an aggregation.
//!
//! [`Aggregations::parse`] reads the value of `aggs`, knows names and shapes only, and bounds depth
//! and number; what a field's type means for an aggregation is decided where the tree meets a
//! mapping, by the operator in `millrace-aggregate`. Pipeline aggregations stand in the tree where they were
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

pub use adjacency_matrix::AdjacencyMatrix;
pub use auto_date_histogram::{AutoDateHistogram, MinimumInterval};
pub use composite::{Composite, CompositeKind, CompositeSource, MissingOrder};
pub use date_histogram::{DateBounds, DateHistogram};
pub use date_range::{DateBound, DateRange};
pub use filters::Filters;
pub use histogram::{Bounds, Histogram};
pub use include::{IncludeExclude, Pattern};
pub use ip_range::IpRange;
pub use matrix_stats::MatrixMode;
pub use metric::{Metric, Simple};
pub use millrace_time::{CalendarUnit, Interval, Zone};
pub use multi_terms::MultiTerms;
pub use nested::{Nested, ReverseNested};
pub use order::{BucketOrder, OrderBy, PathOrder};
pub use path::Path;
pub use percentiles::{PercentileMethod, PercentileRanks, Percentiles};
pub use pipeline::{
    BucketExpression, BucketMetric, BucketSort, Derivative, GapPolicy, MovingFn, Pipeline, SerialDiff,
    Statistic,
};
pub use range::{NumericRange, Range};
pub use rare_terms::RareTerms;
pub use sampler::Sampler;
pub use significant_terms::{Heuristic, SignificantTerms};
pub use source::{ValueType, ValuesSource};
pub use terms::{Terms, Thresholds};
pub use top_hits::TopHits;
pub use validation::validate;

/// Deepest nesting of aggregations.
pub(crate) const MAX_DEPTH: usize = 100;
/// Most aggregations of one request.
pub(crate) const MAX_COUNT: usize = 10_000;

/// Aggregations beside each other, in the order of the request.
#[derive(Clone, Debug, Default)]
pub struct Aggregations(pub Vec<Aggregation>);

impl Aggregations {
    /// Returns the queries of all filters in the tree.
    pub fn queries_mut(&mut self) -> Vec<&mut Query> {
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

    /// Returns whether documents that the query does not find have a part in the answer.
    pub fn visit_all(&self) -> bool {
        self.0.iter().any(|aggregation| match &aggregation.kind {
            Kind::Global => true,
            Kind::Terms(terms) => terms.thresholds.min_doc_count == 0 || aggregation.subs.visit_all(),
            _ => aggregation.subs.visit_all(),
        })
    }
}

/// One named aggregation.
#[derive(Clone, Debug)]
pub struct Aggregation {
    /// Its name, unique beside its siblings.
    pub name: Arc<str>,
    /// Kind of the aggregation.
    pub kind: Kind,
    /// Metadata that the answer repeats.
    pub meta: Option<Arc<Map<String, Value>>>,
    /// Sub-aggregations of each bucket; empty for metrics and pipelines.
    pub subs: Aggregations,
}

/// Kind of an aggregation.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Kind {
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
    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the aggregation of a name.
    pub fn get(&self, name: &str) -> Option<&Aggregation> {
        self.0.iter().find(|aggregation| &*aggregation.name == name)
    }

    /// Iterates over those that are computed of documents: all but pipelines.
    pub fn collected(&self) -> impl Iterator<Item = &Aggregation> {
        self.0.iter().filter(|aggregation| !matches!(aggregation.kind, Kind::Pipeline(_)))
    }

    /// Iterates over pipelines.
    pub fn pipelines(&self) -> impl Iterator<Item = (&Aggregation, &Pipeline)> {
        self.0.iter().filter_map(|aggregation| match &aggregation.kind {
            Kind::Pipeline(pipeline) => Some((aggregation, pipeline.as_ref())),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests;
