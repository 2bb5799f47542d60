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
pub mod partitions;
pub mod predicate;
pub mod predicate_udf;
pub mod resolve;
pub mod ruled;
pub mod scan;
pub(crate) mod snapshot;
pub(crate) mod state;
pub mod statistics;
pub mod top_k;
pub(crate) mod values;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use millrace_scoring::collect::{Budget, Totals};
use millrace_scoring::node::{Node, ResolvedPredicate};
use millrace_work::compute::Compute;
use millrace_work::error::ShardFailure;
use parking_lot::Mutex;

use self::keys::Key;
use self::predicate::Predicate;
use self::resolve::IndexContext;
use self::scan::IndexScanExec;
pub use self::snapshot::{TableIndex, TableSegment, TableSnapshot};
use self::state::SHARD;
pub use self::state::{ROW, SCORE, SEGMENT, ScanHandle, ScanOptions, TableState, Timing};

/// A search's indices as a table.
#[derive(Debug)]
pub struct IndexTable {
    state: Arc<TableState>,
    schema: SchemaRef,
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
            span: tracing::Span::current(),
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

    /// Returns the results of the search beside the rows.
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
