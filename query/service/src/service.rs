//! The way in: requests of callers on an engine's indices, one file an endpoint.
//!
//! Every endpoint opens its request the same way ([`SearchService::open`]), pins the indices that it
//! names ([`SearchService::pin`]), and hands back a rendered [`Outcome`].

mod count;
mod expiry;
mod explain;
mod field_caps;
mod multi_search;
mod point_in_time;
mod ppl;
mod read;
mod scroll;
mod search;
mod sql;
mod sql_batches;
mod sql_elasticsearch;
mod validate;

pub use self::multi_search::MAX_SEARCHES;
use self::ppl::PipelineCounters;
pub use self::sql::TextParts;
pub use self::sql_batches::PIPELINE_MARK;
pub use self::sql_elasticsearch::TextPage;

use std::any::Any;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use millrace_catalog::metadata::IndexMeta;
use millrace_dsl::params::{Params, Scope};
use millrace_engine::access::Visibility;
use millrace_engine::{Engine, OpenContext, Session};
use millrace_matching::pinned::{PinnedFigures, PinnedMemory, PinnedSnapshot, may_keep_more};
use millrace_matching::table::TableSnapshot;
use millrace_search::plan::Planner;
use millrace_search::searcher::{Searcher, refused_by_all};
use millrace_sql::cursor::Cursor;
use millrace_sql::run::Runner;
use millrace_target::target;
use millrace_work::compute::Compute;
use millrace_work::error::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::scroll::Scroll;
use crate::contexts::{Contexts, Kind, settings};
use crate::delete_by_query::{self, DeletionRequest};
use crate::request::LongestLife;
use crate::throttled::Throttled;
use crate::timings::SearchTimings;
use crate::visibility::ByRules;

/// The section of the configuration that queries have.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Bytes that all running queries may hold together; a query beyond is refused.
    pub memory_bytes: usize,
    /// Bytes that all statements may have on disk together, for sorts and joins that memory does not hold and for rows behind
    /// cursors; a statement beyond is refused. The rows behind one cursor are an eighth at most.
    pub spill_bytes: u64,
    /// Compute threads that one query may use at a time; 0 means all.
    pub threads: usize,
    /// Scrolls that may be open at the same time, and as many cursors of statements.
    pub max_open_scrolls: usize,
    /// Points in time that may be open at the same time.
    pub max_open_points_in_time: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            memory_bytes: 512 << 20,
            spill_bytes: 4 << 30,
            threads: 0,
            max_open_scrolls: 500,
            max_open_points_in_time: 300,
        }
    }
}

/// Open contexts hold at most one in so many bytes of the memory of queries.
const PINNED_SHARE: usize = 2;

/// The rows behind a cursor are at most one in so many bytes of what may be on disk.
const CURSOR_SHARE: u64 = 8;

/// Directory below that of the data, for what queries have no memory for.
const SPILL_DIR: &str = "spill";

/// The body of an answer.
#[derive(Debug)]
pub enum OutcomeBody {
    /// A JSON value.
    Json(Value),
    /// JSON text.
    Raw(Bytes),
    /// Plain text.
    Text(Bytes),
    /// Plain text, part by part.
    TextParts(TextParts),
    /// A page of a statement that is no JSON.
    TextPage(TextPage),
}

/// An answer.
#[derive(Debug)]
pub struct Outcome {
    /// HTTP status.
    pub status: u16,
    /// Body.
    pub body: OutcomeBody,
}

impl Outcome {
    pub(crate) fn json(status: u16, body: Value) -> Self {
        Self { status, body: OutcomeBody::Json(body) }
    }

    pub(crate) fn raw(body: Bytes) -> Self {
        Self { status: 200, body: OutcomeBody::Raw(body) }
    }
}

/// Answers searches over an engine. Its futures are boxed, so that who awaits them does not compile what they do.
#[derive(Debug)]
pub struct SearchService {
    pub(crate) engine: Arc<Engine>,
    pub(crate) searcher: Result<Searcher, String>,
    runner: Result<Runner, String>,
    scrolls: Arc<Contexts<Scroll>>,
    points_in_time: Arc<Contexts<PinnedSnapshot>>,
    cursors: Arc<Contexts<Cursor>>,
    pins: Option<PinnedMemory>,
    pub(crate) throttled: Throttled,
    timings: Arc<SearchTimings>,
    config: Config,
    pipelines: Arc<PipelineCounters>,
    /// Visibility of documents by id for the engine, for as long as this service lives.
    _visibility: Option<Arc<dyn Visibility>>,
}

/// A request as every endpoint opens it.
#[derive(Debug)]
pub(crate) struct OpenedRequest {
    /// Parameters.
    pub params: Params,
    /// The body, or the parameter `source` in its place.
    pub body: Option<Value>,
    /// Time of the request, and value of `now` in it.
    pub now_ms: i64,
}

impl SearchService {
    /// Makes the service over an engine, and starts a task that ends contexts when their time is over.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(engine: Arc<Engine>, config: Config) -> Self {
        let compute = Compute::new(engine.compute().clone());
        let partitions = match config.threads {
            0 => compute.threads(),
            threads => threads.min(compute.threads()),
        };
        let spill_dir = engine.data_dir().join(SPILL_DIR);
        let searcher = Planner::new(partitions, config.memory_bytes, config.spill_bytes, &spill_dir)
            .map(|planner| Searcher { planner, compute })
            .map_err(|error| error.to_string());
        let pins = searcher.as_ref().ok().map(|searcher| {
            let pool = &searcher.planner.runtime().memory_pool;
            PinnedMemory::new(pool, config.memory_bytes / PINNED_SHARE)
        });
        let runner = searcher.as_ref().map_err(Clone::clone).and_then(|searcher| {
            let pins = pins.clone().ok_or("contexts cannot be kept")?;
            let cursor_bytes = config.spill_bytes / CURSOR_SHARE;
            let runtime = searcher.planner.runtime();
            Runner::new(partitions, runtime, searcher.compute.clone(), pins, cursor_bytes)
                .map_err(|error| error.to_string())
        });
        let scrolls = Arc::new(Contexts::new(Kind::Scroll, Arc::clone(engine.clock())));
        let points_in_time = Arc::new(Contexts::new(Kind::PointInTime, Arc::clone(engine.clock())));
        let cursors = Arc::new(Contexts::new(Kind::Cursor, Arc::clone(engine.clock())));
        expiry::start(&scrolls, &points_in_time, &cursors);
        let visibility: Option<Arc<dyn Visibility>> = searcher.as_ref().ok().map(|searcher| {
            let by_rules: Arc<dyn Visibility> = Arc::new(ByRules::new(&engine, searcher));
            engine.see_by(&by_rules);
            by_rules
        });
        Self {
            engine,
            searcher,
            runner,
            scrolls,
            points_in_time,
            cursors,
            pins,
            throttled: Throttled::default(),
            timings: Arc::default(),
            config,
            pipelines: Arc::default(),
            _visibility: visibility,
        }
    }

    /// Makes the same service for work that yields to everything else: searches by schedule, not requests. Memory and contexts are shared.
    #[must_use]
    pub fn spare(&self) -> Self {
        let aside = |searcher: &Searcher| {
            let (planner, compute) = (searcher.planner.clone(), searcher.compute.spare());
            Searcher { planner, compute }
        };
        Self {
            engine: Arc::clone(&self.engine),
            searcher: self.searcher.as_ref().map(aside).map_err(Clone::clone),
            runner: self.runner.clone(),
            scrolls: Arc::clone(&self.scrolls),
            points_in_time: Arc::clone(&self.points_in_time),
            cursors: Arc::clone(&self.cursors),
            pins: self.pins.clone(),
            throttled: self.throttled.clone(),
            timings: Arc::clone(&self.timings),
            config: self.config.clone(),
            pipelines: Arc::clone(&self.pipelines),
            _visibility: self._visibility.clone(),
        }
    }

    /// Returns the durations of searches and statements.
    pub fn timings(&self) -> &Arc<SearchTimings> {
        &self.timings
    }

    /// Returns the memory and disk space that open contexts hold.
    pub fn pinned(&self) -> PinnedFigures {
        self.pins()
            .map_or(PinnedFigures { bytes: 0, limit: 0, refused: 0, replaced: 0 }, PinnedMemory::figures)
    }

    fn pins(&self) -> Result<&PinnedMemory> {
        self.searcher()?;
        self.pins.as_ref().ok_or_else(|| Error::Execution("contexts cannot be kept".to_owned()))
    }

    pub(crate) fn searcher(&self) -> Result<&Searcher> {
        self.searcher.as_ref().map_err(|error| Error::Execution(error.clone()))
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.engine.clock().now_ms()
    }

    /// Opens a request for `action`.
    pub(crate) fn open(
        &self,
        expression: &str,
        action: &str,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> Result<OpenedRequest> {
        let mut params = Params::new(path(expression, action), params);
        let source = params.source()?;
        Ok(OpenedRequest { params, body: body.or(source), now_ms: self.now_ms() })
    }

    /// Pins the indices and shards that a request names.
    pub(crate) async fn pin(
        &self,
        session: &Session,
        expression: &str,
        scope: &Scope,
    ) -> Result<Arc<TableSnapshot>> {
        target::pin(session, expression, scope).await.map(Arc::new)
    }

    /// Pins what a context is to be opened over, of which is asked what takes so many bytes beside it. Where what lies in memory is
    /// more than contexts may hold, it is flushed first: they keep the files then.
    ///
    /// # Errors
    /// [`Error::CircuitBreaking`] where it still is too much, or contexts keep too much of the disk.
    pub(crate) async fn pin_to_keep(
        &self,
        session: &Session,
        expression: &str,
        scope: &Scope,
        asked: usize,
    ) -> Result<PinnedSnapshot> {
        let pins = self.pins()?;
        let snapshot = self.pin(session, expression, scope).await?;
        let figures = pins.figures();
        if figures.keeps_much() {
            let (replaced, free) = (figures.replaced, self.engine.free_space().await?);
            if !may_keep_more(replaced, free) {
                pins.refused();
                let error = Error::CircuitBreaking(format!(
                    "open scrolls, points in time and cursors keep [{replaced}] bytes of segments on disk that were replaced, and [{free}] bytes are free; close those that are done"
                ));
                return Err(refused_by_all(&snapshot, error));
            }
        }
        let error = match pins.hold_with(&snapshot, asked) {
            Ok(pinned) => return Ok(pinned),
            Err(error) => error,
        };
        // Only where it helps: who is refused again and again must not make small segments each time.
        if !pins.fits_flushed(&snapshot, asked) {
            pins.refused();
            return Err(refused_by_all(&snapshot, error));
        }
        let mut in_memory: Vec<usize> = Vec::new();
        let segments = snapshot.segments.iter().filter(|segment| segment.reader.in_memory().is_some());
        in_memory.extend(segments.map(|segment| segment.index));
        in_memory.dedup();
        let indices = in_memory.into_iter().filter_map(|place| snapshot.indices.get(place));
        // One that is gone meanwhile is missed by the next snapshot, too.
        let indices: Vec<_> = indices.filter_map(|index| self.engine.index(&index.meta.name).ok()).collect();
        drop(snapshot);
        self.engine.flush(&indices).await?;
        let snapshot = self.pin(session, expression, scope).await?;
        pins.hold_with(&snapshot, asked).map_err(|error| {
            pins.refused();
            refused_by_all(&snapshot, error)
        })
    }

    /// Counts a context as open over shards of indices.
    fn counted<'a>(
        &self,
        kind: Kind,
        indices: impl Iterator<Item = (&'a IndexMeta, &'a [u32])>,
    ) -> Vec<OpenContext> {
        let count = |(meta, shards): (&IndexMeta, &[u32])| {
            let index = self.engine.index(&meta.name).ok()?;
            (index.meta().uuid == meta.uuid).then(|| index.open_context(kind, shards))
        };
        indices.filter_map(count).collect()
    }

    /// Counts a context as open over the shards of a snapshot.
    fn counted_over(&self, kind: Kind, snapshot: &TableSnapshot) -> Vec<OpenContext> {
        self.counted(kind, snapshot.indices.iter().map(|index| (&*index.meta, index.shards.as_slice())))
    }

    /// Returns how long contexts of a kind may be kept alive.
    fn longest_life(&self, kind: Kind) -> LongestLife {
        let (_, _, setting) = settings(kind);
        LongestLife::new(setting, self.engine.metadata().cluster_setting(setting).as_ref())
    }

    /// Returns the largest number of open contexts of a kind: that of the configuration, or less by the cluster's setting.
    fn most_open(&self, kind: Kind) -> usize {
        let most = match kind {
            Kind::Scroll | Kind::Cursor => self.config.max_open_scrolls,
            Kind::PointInTime => self.config.max_open_points_in_time,
        };
        let (_, setting, _) = settings(kind);
        let setting = self.engine.metadata().cluster_setting(setting);
        let wanted = setting.as_ref().and_then(Value::as_str).and_then(|text| text.parse().ok());
        wanted.map_or(most, |wanted: usize| wanted.min(most))
    }

    /// Answers `_delete_by_query`. `held` is what the request has been charged for: a throttled one, which may take days, gives it back
    /// once its query is understood.
    ///
    /// # Errors
    /// See [`Error`]; conflicts and failures of single documents are part of the answer instead. [`Error::Rejected`] where too many
    /// throttled ones run.
    pub fn delete_by_query<'a>(
        &'a self,
        session: &'a Session,
        expression: &'a str,
        params: Vec<(String, String)>,
        body: Option<Value>,
        held: Box<dyn Any + Send>,
    ) -> BoxFuture<'a, Result<Outcome>> {
        Box::pin(async move {
            let deletion = self.read_deletion(expression, params, body)?;
            delete_by_query::run(self, session, expression, deletion, held).await
        })
    }

    /// Reads and checks a `_delete_by_query` that is to run behind its answer, by [`Self::run_deletion`].
    ///
    /// # Errors
    /// Those that the request has before it deletes anything.
    pub fn check_delete_by_query(
        &self,
        session: &Session,
        expression: &str,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> Result<DeletionRequest> {
        let deletion = self.read_deletion(expression, params, body)?;
        deletion.check(session, expression)?;
        Ok(deletion)
    }

    /// Runs a `_delete_by_query` that was checked, as [`Self::delete_by_query`] does.
    ///
    /// # Errors
    /// As [`Self::delete_by_query`].
    pub fn run_deletion<'a>(
        &'a self,
        session: &'a Session,
        expression: &'a str,
        deletion: DeletionRequest,
        held: Box<dyn Any + Send>,
    ) -> BoxFuture<'a, Result<Outcome>> {
        Box::pin(delete_by_query::run(self, session, expression, deletion, held))
    }

    fn read_deletion(
        &self,
        expression: &str,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> Result<DeletionRequest> {
        let OpenedRequest { params, body, .. } = self.open(expression, "_delete_by_query", params, body)?;
        DeletionRequest::parse(params, body)
    }
}

/// The path of a request, as error texts name it.
fn path(expression: &str, action: &str) -> String {
    if expression.is_empty() { format!("/{action}") } else { format!("/{expression}/{action}") }
}
