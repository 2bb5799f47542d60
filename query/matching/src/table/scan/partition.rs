//! The work of one partition of a scan.
//!
//! Everything that touches a segment happens in jobs on the compute threads: a job prepares the
//! predicate for a segment and makes its pass over it. Small segments share a job, since handing
//! one over costs more than they do.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::common::{DataFusionError, Result as PlanResult};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter};
use futures::stream::{BoxStream, iter, once};
use futures::{StreamExt, TryStreamExt};
use millrace_work::error::Result;
use tokio::sync::mpsc::Sender;

use super::ScanState;
use super::first::{FirstRows, PartitionHits};
use super::read::{Rows, chunks};
use crate::table::partitions::RowPartition;

/// Rows of the parts that one job visits, at least, where there are more parts.
const JOB_ROWS: u64 = 200_000;

/// One partition at work.
#[derive(Clone)]
pub(super) struct PartitionTask {
    shared: Arc<ScanState>,
    group: Vec<RowPartition>,
    reservation: Arc<MemoryReservation>,
}

/// Rows of one segment that wait to be sent, and their memory.
struct HeldRows {
    rows: Rows,
    _reservation: MemoryReservation,
}

impl PartitionTask {
    /// Makes the task of a partition, which accounts for its memory with `reservation`.
    pub(super) fn new(shared: Arc<ScanState>, partition: usize, reservation: MemoryReservation) -> Self {
        let group = shared.groups.get(partition).cloned().unwrap_or_default();
        Self { shared, group, reservation: Arc::new(reservation) }
    }

    /// Starts the work; batches come as they are found.
    pub(super) fn stream(self, first: Option<FirstRows>) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.shared.schema);
        let batches = match first {
            Some(first) => self.first_rows(&first),
            None if self.shared.columns.is_empty() => self.counts(),
            None => return self.all_rows(),
        };
        Box::pin(RecordBatchStreamAdapter::new(schema, batches))
    }

    /// Cuts parts into jobs.
    fn jobs(parts: &[RowPartition]) -> Vec<Vec<RowPartition>> {
        let mut jobs: Vec<Vec<RowPartition>> = Vec::new();
        let mut filled = JOB_ROWS;
        for part in parts {
            if filled >= JOB_ROWS {
                jobs.push(Vec::new());
                filled = 0;
            }
            filled += part.rows.len() as u64;
            if let Some(job) = jobs.last_mut() {
                job.push(part.clone());
            }
        }
        jobs
    }

    fn counts(self) -> BoxStream<'static, PlanResult<RecordBatch>> {
        let shared = self.shared;
        iter(Self::jobs(&self.group))
            .then(move |job| {
                let shared = Arc::clone(&shared);
                async move {
                    let compute = shared.table.compute.clone();
                    compute.run(move || shared.count(&job)).await.map_err(DataFusionError::from)
                }
            })
            .boxed()
    }

    /// Finds the rows that may be among the first, and sends all matches where it is not known which these are.
    fn first_rows(self, first: &FirstRows) -> BoxStream<'static, PlanResult<RecordBatch>> {
        let first = first.of_partition();
        let mut parts = self.group.clone();
        // Parts that may have the best rows come first, so that the others need not be read. With
        // a bound on matches the order of counting stays.
        if self.shared.table.handle.budgets.is_empty() {
            parts.sort_by_key(|part| (self.shared.bounds(part, &first).0, part.segment, part.rows.start));
        }
        let best = first.limit().saturating_mul(size_of::<(u64, u64)>());
        if let Err(error) = self.reservation.try_grow(best) {
            return once(async { Err(error) }).boxed();
        }
        let shared = Arc::clone(&self.shared);
        let found = iter(Self::jobs(&parts)).then(move |job| {
            let (shared, first) = (Arc::clone(&shared), first.clone());
            async move {
                let compute = shared.table.compute.clone();
                compute.run(move || shared.find(&job, &first)).await.map_err(DataFusionError::from)
            }
        });
        let sent = found.map(move |found| {
            let PartitionHits { batches, rest } = found?;
            // All that a job left is held until its turn comes.
            let rest = rest.into_iter().map(|rows| self.held(rows)).collect::<Result<Vec<_>>>()?;
            let task = self.clone();
            let rest = iter(rest).flat_map(move |rows| task.clone().streamed(rows));
            Ok::<_, DataFusionError>(iter(batches).map(Ok).chain(rest))
        });
        sent.try_flatten().boxed()
    }

    /// Sends all matches with their keys.
    fn all_rows(self) -> SendableRecordBatchStream {
        let mut stream = RecordBatchReceiverStream::builder(Arc::clone(&self.shared.schema), 2);
        let out = stream.tx();
        stream.spawn(async move {
            for part in &self.group {
                if self.shared.stopped() {
                    break;
                }
                let (shared, part) = (Arc::clone(&self.shared), part.clone());
                let compute = shared.table.compute.clone();
                let Some(rows) = compute.run(move || shared.matches(&part)).await? else { continue };
                if !self.emit(&out, self.held(rows)?).await? {
                    break;
                }
            }
            Ok(())
        });
        stream.build()
    }

    /// Sends rows with their keys.
    fn streamed(self, rows: HeldRows) -> SendableRecordBatchStream {
        let mut stream = RecordBatchReceiverStream::builder(Arc::clone(&self.shared.schema), 2);
        let out = stream.tx();
        stream.spawn(async move {
            self.emit(&out, rows).await?;
            Ok(())
        });
        stream.build()
    }

    /// Accounts for the rows of a segment.
    fn held(&self, rows: Rows) -> Result<HeldRows> {
        let reservation = self.reservation.new_empty();
        reservation.try_grow(rows.rows.serialized_size() + rows.scores.len() * size_of::<f32>())?;
        Ok(HeldRows { rows, _reservation: reservation })
    }

    /// Sends the rows of a segment with their keys; whether more are wanted.
    async fn emit(&self, out: &Sender<PlanResult<RecordBatch>>, found: HeldRows) -> Result<bool> {
        let (shared, HeldRows { rows: found, _reservation }) = (&self.shared, found);
        if let Some(best) = found.scores.iter().copied().max_by(f32::total_cmp) {
            shared.table.handle.saw_score(best);
        }
        self.emit_batches(out, &found).await
    }

    async fn emit_batches(&self, out: &Sender<PlanResult<RecordBatch>>, found: &Rows) -> Result<bool> {
        let shared = &self.shared;
        let segment = &shared.table.snapshot.segments[found.segment as usize];
        let columns = shared.key_columns(segment.index);
        let mut at = 0;
        if columns.is_empty() || shared.derives_keys(segment.index) {
            for chunk in chunks(&found.rows) {
                if shared.stopped() {
                    return Ok(false);
                }
                let keys = match shared.derives_keys(segment.index) {
                    false => shared.keys(segment.index, &columns, &[], chunk.len())?,
                    true => {
                        let (shared, number, rows) = (Arc::clone(shared), found.segment, chunk.clone());
                        let compute = shared.table.compute.clone();
                        compute.run(move || shared.derived_keys(number, &rows)).await?
                    }
                };
                if !self.send(out, found, &mut at, keys, chunk).await? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        if found.rows.is_empty() {
            return Ok(true);
        }
        let mut batches = segment.reader.scan(&columns, Some(found.rows.clone()));
        while let Some(batch) = batches.next().await {
            if shared.stopped() {
                return Ok(false);
            }
            let batch = batch?;
            let keys = shared.keys(segment.index, &columns, &batch.columns, batch.rows.len())?;
            if !self.send(out, found, &mut at, keys, batch.rows).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn send(
        &self,
        out: &Sender<PlanResult<RecordBatch>>,
        found: &Rows,
        at: &mut usize,
        keys: Vec<ArrayRef>,
        rows: Vec<u32>,
    ) -> Result<bool> {
        let scores = match found.scores.is_empty() {
            true => vec![0.0; rows.len()],
            false => {
                let end = (*at + rows.len()).min(found.scores.len());
                let scores = found.scores[*at..end].to_vec();
                *at = end;
                scores
            }
        };
        let batch = self.shared.batch(&keys, scores, vec![found.segment; rows.len()], rows)?;
        Ok(out.send(Ok(batch)).await.is_ok())
    }
}
