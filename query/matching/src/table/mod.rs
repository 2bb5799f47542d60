//! Indices as a DataFusion table.
//!
//! An [`IndexTable`] stands for the snapshot of one search: its indices, shards and segments in
//! order, and the columns that this search asks for (sort keys, score, addresses). Filters that
//! carry a [`predicate::Predicate`] are pushed down whole; [`scan::IndexScanExec`] evaluates them
//! where it runs. The search keeps the [`ScanHandle`] to read totals and failures from.

pub mod access_snapshot;
mod blend;
pub mod derived_key;
pub(crate) mod distance;
pub(crate) mod interesting_terms;
pub mod keys;
pub mod leaf;
pub(crate) mod lower_clause;
pub mod metadata_field;
pub mod node;
pub mod partitions;
pub mod predicate;
pub mod predicate_udf;
pub mod resolve;
pub mod ruled;
pub mod scan;
pub mod statistics;
pub mod top_k;
pub(crate) mod values;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use millrace_catalog::metadata::IndexMeta;
use millrace_mapping::Mapping;
use millrace_work::QueryContext;
use millrace_work::compute::{Compute, Stop};
use millrace_work::error::ShardFailure;
use parking_lot::Mutex;
use roaring::RoaringBitmap;

use self::access_snapshot::AccessSnapshot;
use self::keys::Key;
use self::node::{Node, ResolvedPredicate};
use self::predicate::Predicate;
use self::resolve::IndexContext;
use self::ruled::RuledRows;
use self::scan::IndexScanExec;
use crate::score::collect::{Address, Budget, Cursor, Totals};
use crate::score::prepare::Source;
use crate::score::reader::SegmentReader;

/// Score of a row; 0 where the query does not score.
pub const SCORE: &str = "_score";
/// Number of a row's shard in the table.
pub(crate) const SHARD: &str = "_shard";
/// Number of a row's segment in the table; ascends with index, shard and age.
pub const SEGMENT: &str = "_segment";
/// Number of a row in its segment.
pub const ROW: &str = "_row";

/// One index of a table.
#[derive(Clone, Debug)]
pub struct TableIndex {
    /// Name, settings, aliases.
    pub meta: Arc<IndexMeta>,
    /// Fields.
    pub mapping: Arc<Mapping>,
    /// Filter of the aliases through which the index was named.
    pub filter: Option<Predicate>,
    /// What the searcher may see of its documents.
    pub seen: AccessSnapshot,
    /// Numbers of its shards that are searched.
    pub shards: Vec<u32>,
    /// Factor of the scores of its rows.
    pub boost: f32,
}

/// One segment of a table; its number is its place in the list.
#[derive(Clone, Debug)]
pub struct TableSegment {
    /// Place of its index in the table.
    pub index: usize,
    /// Number of its shard in the table.
    pub shard: u32,
    /// The segment.
    pub reader: Arc<dyn SegmentReader>,
    /// Deleted rows.
    pub deleted: Arc<RoaringBitmap>,
    /// Rows that rules for documents show; absent where there are no rules.
    pub ruled: Option<RuledRows>,
}

/// What is pinned for a search, and for a scroll as long as it is open.
#[derive(Clone, Debug, Default)]
pub struct TableSnapshot {
    /// Indices in order.
    pub indices: Vec<TableIndex>,
    /// Segments in order of index, shard, age.
    pub segments: Vec<TableSegment>,
    /// Number of shards over all indices.
    pub shards: u32,
    /// Rows that a slice is cut to, by segment.
    pub listed: Option<Arc<HashMap<u32, RoaringBitmap>>>,
}

impl TableSnapshot {
    /// Opens one of the segments for a part of some work, without functions to score by: what is prepared for it is held
    /// for as long as it, or a clone of it, is.
    pub fn source(
        &self,
        number: u32,
        segment: &TableSegment,
        work: &QueryContext,
    ) -> millrace_work::error::Result<Source> {
        Ok(Source {
            number,
            shard: self.shard_number(segment),
            reader: Arc::clone(&segment.reader),
            inverted: segment.reader.inverted()?,
            functions: Arc::default(),
            ruled: segment.ruled.clone(),
            work: work.part(),
        })
    }

    /// Whether no alias and no rule leaves out documents of any index.
    pub fn shows_all(&self) -> bool {
        self.indices.iter().all(|index| index.filter.is_none() && index.seen.documents.is_empty())
    }

    /// Returns the number of a segment's shard in its index.
    pub fn shard_number(&self, segment: &TableSegment) -> u32 {
        let before: usize = self.indices.iter().take(segment.index).map(|index| index.shards.len()).sum();
        let place = (segment.shard as usize).checked_sub(before);
        let shards = self.indices.get(segment.index).map(|index| &index.shards);
        shards.zip(place).and_then(|(shards, place)| shards.get(place)).copied().unwrap_or(0)
    }
}

/// How a table is scanned.
#[derive(Clone, Debug, Default)]
pub struct ScanOptions {
    /// What `now` means.
    pub now_ms: i64,
    /// How many matches are counted; none where absent.
    pub track: Option<u64>,
    /// Whether statistics of all shards are joined before scoring.
    pub global_statistics: bool,
    /// Where a continued search goes on, where the order is by score or address.
    pub cursor: Option<Cursor>,
    /// First sort value of the point where a continued search goes on, where the order is by a key
    /// and a filter above the scan leaves out what is before the point.
    pub after_key: Option<ScalarValue>,
    /// Matches after which a shard stops; 0 is without bound.
    pub terminate_after: u64,
    /// Least score of rows.
    pub min_score: Option<f32>,
    /// Whether the time that each shard takes is measured.
    pub profile: bool,
    /// The work that it is done for.
    pub work: QueryContext,
}

/// What a search learns from its scan beside the rows.
#[derive(Debug)]
pub struct ScanHandle {
    /// Matches.
    pub totals: Totals,
    /// Tells the scan to stop.
    pub stop: Arc<Stop>,
    /// Shards that cannot answer.
    pub failures: Mutex<Vec<ShardFailure>>,
    /// Matches still allowed, by shard.
    pub budgets: Vec<Budget>,
    /// What each shard took, where measured.
    pub timings: Vec<Timing>,
    max_score: AtomicU32,
}

/// What one shard took, in nanoseconds.
#[derive(Debug, Default)]
pub struct Timing {
    /// Making the predicate ready for segments.
    pub prepare: AtomicU64,
    /// Visiting rows.
    pub visit: AtomicU64,
    /// Segments visited.
    pub segments: AtomicU64,
}

impl Timing {
    /// Adds a visit of a segment.
    pub fn add(&self, prepare: Duration, visit: Duration) {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.prepare.fetch_add(nanos(prepare), Ordering::Relaxed);
        self.visit.fetch_add(nanos(visit), Ordering::Relaxed);
        self.segments.fetch_add(1, Ordering::Relaxed);
    }
}

impl ScanHandle {
    /// Whether a shard stopped before its end.
    pub fn terminated_early(&self) -> bool {
        self.budgets.iter().any(Budget::spent)
    }

    /// Returns the greatest score met while all matches were scored.
    pub fn max_score(&self) -> f32 {
        f32::from_bits(self.max_score.load(Ordering::Relaxed))
    }

    fn saw_score(&self, score: f32) {
        // Scores are not negative, so their bits are in the order of their values.
        self.max_score.fetch_max(score.max(0.0).to_bits(), Ordering::Relaxed);
    }
}

/// The parts of a table that its scans share.
#[derive(Clone, Debug)]
pub struct TableState {
    /// What is searched.
    pub snapshot: Arc<TableSnapshot>,
    /// Sort keys, the first columns of the schema.
    pub keys: Vec<Key>,
    /// How it is scanned.
    pub options: ScanOptions,
    /// What the search learns.
    pub handle: Arc<ScanHandle>,
    /// Where work is done.
    pub compute: Compute,
}

/// A search's indices as a table.
#[derive(Debug)]
pub struct IndexTable {
    state: Arc<TableState>,
    schema: SchemaRef,
}

impl TableSnapshot {
    /// Names the shard of a row: its index and its number there.
    pub fn shard_of(&self, address: Address) -> Option<(&TableIndex, u32)> {
        let segment = self.segments.get(address.segment as usize)?;
        self.shards().nth(segment.shard as usize)
    }

    /// Lists the shards by their numbers in the table: the index and the number there.
    pub fn shards(&self) -> impl Iterator<Item = (&TableIndex, u32)> {
        self.indices.iter().flat_map(|index| index.shards.iter().map(move |shard| (index, *shard)))
    }
}

impl IndexTable {
    /// Makes the table of a search.
    pub fn new(snapshot: Arc<TableSnapshot>, keys: Vec<Key>, options: ScanOptions, compute: Compute) -> Self {
        let budgets = match options.terminate_after {
            0 => Vec::new(),
            matches => (0..snapshot.shards).map(|_| Budget::new(matches)).collect(),
        };
        let handle = Arc::new(ScanHandle {
            totals: Totals::new(options.track),
            stop: Arc::clone(options.work.stop()),
            failures: Mutex::default(),
            budgets,
            timings: match options.profile {
                true => (0..snapshot.shards).map(|_| Timing::default()).collect(),
                false => Vec::new(),
            },
            max_score: AtomicU32::new(0),
        });
        let mut fields: Vec<Field> =
            keys.iter().map(|key| Field::new(&key.name, key.kind.data_type(), true)).collect();
        fields.push(Field::new(SCORE, DataType::Float32, false));
        fields.push(Field::new(SHARD, DataType::UInt32, false));
        fields.push(Field::new(SEGMENT, DataType::UInt32, false));
        fields.push(Field::new(ROW, DataType::UInt32, false));
        let state = TableState { snapshot, keys, options, handle, compute };
        Self { state: Arc::new(state), schema: Arc::new(Schema::new(fields)) }
    }

    /// Returns the parts that scans share.
    pub fn state(&self) -> &Arc<TableState> {
        &self.state
    }

    /// Returns what the search learns beside the rows.
    pub fn handle(&self) -> &Arc<ScanHandle> {
        &self.state.handle
    }

    /// Makes the scan of the rows that pass filters.
    pub fn scan_rows(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
    ) -> Result<IndexScanExec> {
        let Some(predicate) = Predicate::all_of(filters) else {
            return plan_err!("the index cannot evaluate a filter that was pushed down to it");
        };
        let resolved = self.resolve(&predicate);
        let projection = match projection {
            Some(columns) => columns.clone(),
            None => (0..self.schema.fields().len()).collect(),
        };
        let partitions = session.config().target_partitions();
        IndexScanExec::new(Arc::clone(&self.state), &self.schema, predicate, resolved, projection, partitions)
    }

    /// Resolves the predicate for each index; those that refuse it are reported and left out.
    pub fn resolve(&self, predicate: &Predicate) -> Vec<Option<ResolvedPredicate>> {
        let snapshot = &self.state.snapshot;
        let mut resolved = Vec::with_capacity(snapshot.indices.len());
        for index in &snapshot.indices {
            let context = IndexContext {
                meta: &index.meta,
                mapping: &index.mapping,
                now_ms: self.state.options.now_ms,
            };
            let own = resolve::resolve(predicate, context).and_then(|mut own| {
                if let Some(filter) = &index.filter {
                    let mapping = index.seen.whole.as_deref().unwrap_or(&index.mapping);
                    own = resolve::resolve_and(own, filter, IndexContext { mapping, ..context })?;
                }
                for (place, documents) in index.seen.documents.iter().enumerate() {
                    let context = IndexContext { mapping: &documents.mapping, ..context };
                    own = resolve::resolve_within(own, &documents.predicate, context, place)?;
                }
                if let Some(listed) = &snapshot.listed {
                    own.node = own.node.and(Node::Listed(Arc::clone(listed)));
                }
                Ok(own)
            });
            resolved.push(match own {
                Ok(own) => Some(own),
                Err(error) => {
                    let uuid = index.meta.uuid.to_string();
                    let failure = error.into_shard_failure(&index.meta.name, &uuid, 0);
                    let mut failures = self.state.handle.failures.lock();
                    for shard in &index.shards {
                        failures.push(ShardFailure { shard: *shard, ..failure.clone() });
                    }
                    None
                }
            });
        }
        resolved
    }
}

#[async_trait]
impl TableProvider for IndexTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.scan_rows(session, projection, filters)?))
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| match Predicate::from_expr(filter) {
            Some(_) => TableProviderFilterPushDown::Exact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(support).collect())
    }
}
