//! The figures of a page, gathered at one moment.

use std::cmp::Reverse;
use std::sync::Arc;

use millrace_catalog::metadata::IndexMeta;
use millrace_engine::{Session, ShardFigures};
use millrace_gateway::{Audit, Identity, QueueStats, RequestSeries, RequestTimings};
use millrace_lifecycle::LifecycleFigures;
use millrace_processors::PipelineFigures;
use millrace_query::{PinnedFigures, SearchService, SearchTimings};
use millrace_runtime::metrics::MetricSources;
use millrace_runtime::{DurationHistogram, HistogramSnapshot, PoolActivity};

use super::super::health::{self, Health};
use super::super::process::{FileSystem, Machine, Process};
use super::super::stats;
use crate::Api;
use crate::ingest::IngestService;
use crate::route::DataApi;

/// Name in place of an index for the sum of those beyond the bound; no index can have it.
const OTHER_INDICES: &str = "_other";

/// Services that figures are read from.
#[derive(Debug)]
pub(super) struct Sources {
    session: Session,
    search: Arc<SearchService>,
    identity: Arc<Identity>,
    audit: Audit,
    requests: Arc<RequestTimings>,
    parts: MetricSources,
    ingest: Option<IngestService>,
    /// Indices that have families of their own; the others are summed.
    max_indices: usize,
    pub(super) policies: LifecycleFigures,
}

impl Sources {
    pub(super) fn new(served: &DataApi, api: &Api, policies: LifecycleFigures) -> Self {
        Self {
            policies,
            session: api.session.clone(),
            search: Arc::clone(&api.search),
            identity: Arc::clone(&api.identity),
            audit: api.audit.clone(),
            requests: Arc::clone(&api.requests),
            parts: api.metrics.clone(),
            ingest: served.ingest().ok().cloned(),
            max_indices: api.max_metric_indices,
        }
    }
}

/// The figures of an index, or of those beyond the bound.
#[derive(Debug)]
pub(super) struct IndexSample {
    pub(super) name: Arc<str>,
    pub(super) replicas: u64,
    pub(super) health: Health,
    pub(super) figures: ShardFigures,
}

/// All figures of a node at one moment.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) sources: Sources,
    pub(super) health: Health,
    pub(super) sum: ShardFigures,
    /// Number of all indices.
    pub(super) index_count: usize,
    /// The largest indices that the caller sees by their bytes, and the rest.
    pub(super) indices: Vec<IndexSample>,
    pub(super) process: Process,
    pub(super) machine: Machine,
    pub(super) disk: FileSystem,
    pub(super) pools: Vec<PoolActivity>,
    pub(super) pinned: PinnedFigures,
    pub(super) audit: QueueStats,
}

impl Page {
    /// Returns the number of ingest pipelines, and the figures of all of them.
    pub(super) fn ingest(&self) -> (usize, PipelineFigures) {
        let of = |service: &IngestService| (service.count(), service.total().figures());
        self.sources.ingest.as_ref().map(of).unwrap_or_default()
    }

    /// Reads all figures.
    pub(super) fn gather(sources: Sources) -> Self {
        let session = &sources.session;
        // Damage of an index that the caller does not see is the node's damage all the same.
        let (server, visible) = (session.of_server(), session.metadata());
        let metadata = server.metadata();
        let sample = |meta: &Arc<IndexMeta>| {
            let index = server.index(&meta.name).ok().filter(|_| meta.open);
            let shards = index.map(|index| index.published_figures().shards).unwrap_or_default();
            IndexSample {
                name: Arc::clone(&meta.name),
                replicas: u64::from(meta.replicas),
                health: health::of_index_in(&server, &metadata, meta),
                figures: stats::sum(&shards),
            }
        };
        let mut indices: Vec<IndexSample> = metadata.indices().map(sample).collect();
        let index_count = indices.len();
        let health = indices.iter().map(|index| index.health).sum();
        let sum = stats::sum(indices.iter().map(|index| &index.figures));
        // Families with names of indices are for callers that see these.
        indices.retain(|index| visible.index(&index.name).is_some());
        indices.sort_by_key(|index| Reverse((index.figures.store_bytes, index.figures.docs)));
        if indices.len() > sources.max_indices {
            let rest = indices.split_off(sources.max_indices);
            indices.push(IndexSample {
                name: OTHER_INDICES.into(),
                replicas: 0,
                health: rest.iter().map(|index| index.health).sum(),
                figures: stats::sum(rest.iter().map(|index| &index.figures)),
            });
        }
        Self {
            health,
            sum,
            index_count,
            indices,
            process: Process::read(),
            machine: Machine::read(),
            disk: FileSystem::read(&sources.identity.data_dir),
            pools: session.compute().pools(),
            pinned: sources.search.pinned(),
            audit: sources.audit.figures(),
            sources,
        }
    }

    pub(super) fn session(&self) -> &Session {
        &self.sources.session
    }

    pub(super) fn search(&self) -> &SearchTimings {
        self.sources.search.timings()
    }

    pub(super) fn requests(&self) -> Vec<(RequestSeries, HistogramSnapshot)> {
        self.sources.requests.snapshot()
    }

    pub(super) fn parts(&self) -> &MetricSources {
        &self.sources.parts
    }

    pub(super) fn cluster(&self) -> &str {
        &self.sources.identity.cluster
    }

    pub(super) fn data_dir(&self) -> String {
        self.sources.identity.data_dir.display().to_string()
    }

    /// Returns the labels that families of the node have.
    pub(super) fn node_labels(&self) -> Vec<(&'static str, &str)> {
        self.labels(&[])
    }

    /// Returns the labels of the node with further ones.
    pub(super) fn labels<'a>(&'a self, more: &[(&'static str, &'a str)]) -> Vec<(&'static str, &'a str)> {
        let identity = &self.sources.identity;
        let mut labels: Vec<(&'static str, &'a str)> = vec![
            ("cluster", &identity.cluster),
            ("node", &identity.node),
            ("nodeid", &identity.cluster_uuid),
        ];
        labels.extend_from_slice(more);
        labels
    }

    pub(super) fn open_contexts(&self) -> u64 {
        stats::open_contexts(&self.sum)
    }

    pub(super) fn damaged_shards(&self) -> u64 {
        self.health.lost + self.health.unreadable
    }

    pub(super) fn query_seconds(&self) -> f64 {
        seconds(&self.search().query)
    }

    pub(super) fn fetch_seconds(&self) -> f64 {
        seconds(&self.search().fetch)
    }

    pub(super) fn fetches(&self) -> u64 {
        self.search().fetch.snapshot().count
    }

    pub(super) fn write_seconds(&self) -> f64 {
        seconds(&self.session().timings().write)
    }

    pub(super) fn refresh_seconds(&self) -> f64 {
        seconds(&self.session().timings().refresh)
    }

    pub(super) fn flush_seconds(&self) -> f64 {
        seconds(&self.session().timings().flush)
    }

    pub(super) fn compaction_seconds(&self) -> f64 {
        seconds(&self.session().timings().compaction)
    }
}

/// Returns the sum of durations in seconds.
fn seconds(durations: &DurationHistogram) -> f64 {
    durations.snapshot().sum.as_secs_f64()
}
