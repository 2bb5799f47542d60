//! Aggregations that have met the mappings of a snapshot, as one search collects with them.
//!
//! The nodes of a [`Tree`] make empty states ([`Node::sub`]), as many as there are partitions. Rows are of a scope:
//! documents, or the elements of a nested path as one `nested` aggregation reaches them; columns are listed by scope and
//! index, filters and the counts over other documents ([`BackgroundPlan`]) are numbered for the whole tree. An index
//! whose mapping refuses an aggregation is reported in [`Tree::failed`] and left out.

use std::sync::Arc;

use millrace_mapping::PathId;
use millrace_matching::table::node::ResolvedPredicate;
use millrace_matching::table::statistics::Functions;
use millrace_work::error::Error;
use serde_json::Value;

use super::backgrounds::BackgroundPlan;
use super::bucket::{auto_date_histogram, keyed, nested, sampler, slots, top_hits};
use super::collector::{Collector, SubCollector, SubCollectors};
use super::field::Values;
use super::metric::collector::{Measure, MetricCollector};
use super::profile::{ProfiledCollector, Timings};
use super::result::Header;

/// Aggregations that have met the mappings of a snapshot.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// Aggregations over what matches.
    pub roots: Vec<Root>,
    /// Those over all documents.
    pub globals: Vec<Root>,
    /// Kinds of rows; the first is documents.
    pub scopes: Vec<Scope>,
    /// Filters.
    pub filters: Vec<FilterPlan>,
    /// Counts over other documents.
    pub backgrounds: Vec<BackgroundPlan>,
    /// Whether scores are read.
    pub scores: bool,
    /// Whether something is decided shard by shard.
    pub by_shard: bool,
    /// Indices that refuse an aggregation.
    pub failed: Vec<(usize, Error)>,
}

/// An aggregation of the top level.
#[derive(Debug)]
pub(crate) struct Root {
    /// Its place in the request.
    pub place: usize,
    /// It.
    pub node: Node,
    /// Places of the columns of documents that it reads, by index.
    pub slots: Vec<Vec<usize>>,
}

/// A kind of rows.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    /// Nested path; documents where absent.
    pub path: Option<Arc<str>>,
    /// Number of the scope around.
    pub outer: usize,
    /// Number of the nested path in each index that has it.
    pub(super) paths: Vec<Option<PathId>>,
    /// Columns that are read, by index.
    pub(super) columns: Vec<Vec<PathId>>,
}

impl Scope {
    /// Returns the number of the nested path in an index.
    pub(crate) fn nested_in(&self, index: usize) -> Option<PathId> {
        self.paths.get(index).copied().flatten()
    }
}

/// A filter.
#[derive(Debug)]
pub(crate) struct FilterPlan {
    /// Number of the scope whose rows are filtered.
    pub scope: usize,
    /// What it is for each index.
    pub resolved: Vec<Option<ResolvedPredicate>>,
    /// Terms that it expands to, by shard.
    pub functions: Functions,
}

/// One aggregation.
#[derive(Debug)]
pub(crate) struct Node {
    pub(super) header: Arc<Header>,
    pub(super) kind: NodeKind,
    pub(super) subs: Vec<Node>,
    /// By index, the columns of [`Node::numbers`] of all below.
    pub(super) below: Arc<[Option<Vec<usize>>]>,
    /// Where its times go, if they are asked for.
    pub(super) timings: Option<Arc<Timings>>,
}

/// What an aggregation collects with.
#[derive(Debug)]
pub(super) enum NodeKind {
    AutoDateHistogram(Arc<auto_date_histogram::AutoDateHistogramSpec>),
    Keyed(Arc<keyed::KeyedAggregation>),
    Metric(Arc<Measure>),
    Nested(Arc<nested::NestedAggregation>),
    ReverseNested(Arc<nested::ReverseNestedAggregation>),
    Sampler(Arc<sampler::SamplerSpec>),
    Slots(Arc<slots::Slots>),
    TopHits(Arc<top_hits::TopHitsSpec>),
}

impl Node {
    /// Makes an empty state; `top` says that it is for one bucket only.
    pub(crate) fn sub(&self, top: bool) -> SubCollector {
        let single = match &self.kind {
            NodeKind::Slots(slots) => top && slots.slots == 1,
            NodeKind::Nested(_) | NodeKind::ReverseNested(_) | NodeKind::Sampler(_) => top,
            _ => false,
        };
        let subs = || SubCollectors(self.subs.iter().map(|node| node.sub(single)).collect());
        let collector: Box<dyn Collector> = match &self.kind {
            NodeKind::AutoDateHistogram(shape) => {
                let nodes = self.subs.iter().map(|node| node.sub(false));
                Box::new(auto_date_histogram::AutoCollector::new(shape, SubCollectors(nodes.collect())))
            }
            NodeKind::Keyed(keyed) => Box::new(keyed::KeyedCollector::new(keyed, subs(), &self.below)),
            NodeKind::Metric(measure) => Box::new(MetricCollector::new(measure, top)),
            NodeKind::Nested(enter) => Box::new(nested::EnterCollector::new(enter, subs())),
            NodeKind::ReverseNested(leave) => Box::new(nested::LeaveCollector::new(leave, subs())),
            NodeKind::Sampler(shape) => Box::new(sampler::SamplerCollector::new(shape, subs())),
            NodeKind::Slots(slots) => Box::new(slots::SlotCollector::new(slots, subs())),
            NodeKind::TopHits(shape) => Box::new(top_hits::TopHitsCollector::new(shape)),
        };
        let collector = match &self.timings {
            None => collector,
            Some(timings) => Box::new(ProfiledCollector::new(collector, timings)),
        };
        SubCollector { header: Arc::clone(&self.header), collector }
    }

    /// Lists the places of the columns that it and all below it read in an index, if these are plain columns of numbers, of
    /// whose rows each counts for itself, in any order.
    pub(super) fn numbers(&self, index: usize) -> Option<Vec<usize>> {
        let (own, below): (Vec<&Values>, _) = match &self.kind {
            NodeKind::Metric(measure) => (measure.fields.iter().collect(), Vec::new()),
            NodeKind::Keyed(keyed) if !keyed.counts_rows() => {
                let rules = keyed.rules.iter().map(|rule| &rule.values);
                (rules.collect(), self.below.get(index).cloned().flatten()?)
            }
            _ => return None,
        };
        let own: Option<Vec<usize>> = own.into_iter().map(|values| values.number_in(index)).collect();
        Some([own?, below].concat())
    }

    /// Renders what it measured of a shard of the search; `None` where it was not asked to.
    pub(crate) fn profile(&self, shard: usize) -> Option<Value> {
        let kind = match &self.kind {
            NodeKind::AutoDateHistogram(_) => "AutoDateHistogramCollector",
            NodeKind::Keyed(_) => "KeyedCollector",
            NodeKind::Metric(_) => "MetricCollector",
            NodeKind::Nested(_) => "NestedCollector",
            NodeKind::ReverseNested(_) => "ReverseNestedCollector",
            NodeKind::Sampler(_) => "SamplerCollector",
            NodeKind::Slots(_) => "SlotCollector",
            NodeKind::TopHits(_) => "TopHitsCollector",
        };
        let below = self.subs.iter().filter_map(|node| node.profile(shard)).collect();
        Some(self.timings.as_ref()?.render(shard, kind, &self.header.name, below))
    }
}

impl Tree {
    /// Renders what aggregations measured, by shard of the search.
    pub(crate) fn profile(&self, shards: u32) -> Vec<Vec<Value>> {
        let mut roots: Vec<&Root> = self.roots.iter().chain(&self.globals).collect();
        roots.sort_by_key(|root| root.place);
        let of = |shard| roots.iter().filter_map(|root| root.node.profile(shard as usize)).collect();
        (0..shards).map(of).collect()
    }

    /// Lists the columns that are read of a scope in an index.
    pub(crate) fn columns(&self, scope: usize, index: usize) -> &[PathId] {
        self.scopes.get(scope).and_then(|scope| scope.columns.get(index)).map_or(&[], Vec::as_slice)
    }
}
