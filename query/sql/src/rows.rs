//! The rows of a running statement, taken batch by batch or page by page.
//!
//! What a page takes is held here until it is whole: a request that is given up while it waits loses no rows
//! of the next one. Rows that are computed all at once wait for later pages on disk ([`Rows::spooled`]), so
//! that no cursor keeps the memory of a sort or a join; those of a plain scan are read when they are asked
//! for.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::SpillManager;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, SpillMetrics};
use datafusion::physical_plan::stream::EmptyRecordBatchStream;
use futures::StreamExt;
use futures::stream::Fuse;
use millrace_work::error::Error;

use super::error::Result;
use super::threads::{StatementThreads, ThreadDropped};

/// Slice of the rows of a plan.
#[derive(Clone, Copy, Debug)]
pub struct RowSlice {
    /// Rows that are left out first.
    pub skip: usize,
    /// Rows that are taken then.
    pub rows: usize,
    /// `true` if the rows behind are run through, so that they are counted.
    pub to_the_end: bool,
}

impl RowSlice {
    /// Takes every row.
    pub(crate) const ALL: Self = Self { skip: 0, rows: usize::MAX, to_the_end: false };
}

/// The rows of a running statement.
pub struct Rows {
    batches: ThreadDropped<Fuse<SendableRecordBatchStream>>,
    cut: RowSlice,
    /// Rows that were taken and belong to no page yet.
    held: VecDeque<RecordBatch>,
    held_rows: usize,
    /// Bytes of the page or the batch that was taken last.
    page: usize,
    reservation: MemoryReservation,
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("cut", &self.cut).field("held_rows", &self.held_rows).finish()
    }
}

impl Rows {
    /// Takes over the rows of a plan; held rows are memory of `env`.
    pub fn new(
        batches: SendableRecordBatchStream,
        cut: RowSlice,
        env: &RuntimeEnv,
        threads: &StatementThreads,
    ) -> Self {
        let reservation = MemoryConsumer::new("rows of a statement").register(&env.memory_pool);
        let batches = threads.owned(batches.fuse());
        Self { batches, cut, held: VecDeque::new(), held_rows: 0, page: 0, reservation }
    }

    /// Takes the next rows; they may be many. They are accounted for until the next ones are asked for.
    ///
    /// # Errors
    /// What the plan says, [`Error::CircuitBreaking`] where queries may not hold so much.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        self.let_go()?;
        let batch = match self.held.pop_front() {
            Some(batch) => {
                self.held_rows -= batch.num_rows();
                batch
            }
            None => match self.read().await? {
                Some(batch) => batch,
                None => return Ok(None),
            },
        };
        self.page = batch.get_array_memory_size();
        self.account()?;
        Ok(Some(batch))
    }

    /// Reads rows on.
    async fn read(&mut self) -> Result<Option<RecordBatch>> {
        let cut = &mut self.cut;
        while cut.rows > 0 || cut.to_the_end {
            let Some(batch) = self.batches.next().await.transpose()? else { break };
            let skipped = cut.skip.min(batch.num_rows());
            cut.skip -= skipped;
            let taken = (batch.num_rows() - skipped).min(cut.rows);
            cut.rows -= taken;
            if taken > 0 {
                return Ok(Some(batch.slice(skipped, taken)));
            }
        }
        Ok(None)
    }

    /// Takes a page of at most `size` rows, and whether there are more behind it.
    ///
    /// Cancel safe: what was read for a page that nobody waited for begins the next one.
    pub async fn page(&mut self, size: usize) -> Result<(Vec<RecordBatch>, bool)> {
        while self.held_rows <= size {
            let Some(batch) = self.read().await? else { break };
            self.reservation.try_grow(batch.get_array_memory_size())?;
            self.held_rows += batch.num_rows();
            self.held.push_back(batch);
        }
        let (mut page, mut wanted) = (Vec::new(), size);
        while wanted > 0
            && let Some(batch) = self.held.pop_front()
        {
            let taken = batch.num_rows().min(wanted);
            if taken < batch.num_rows() {
                self.held.push_front(batch.slice(taken, batch.num_rows() - taken));
            }
            wanted -= taken;
            self.held_rows -= taken;
            page.push(batch.slice(0, taken));
        }
        self.page = page.iter().map(RecordBatch::get_array_memory_size).sum();
        self.account()?;
        Ok((page, self.held_rows > 0))
    }

    /// Puts what is left of the batch that was taken last before the next rows.
    ///
    /// # Errors
    /// As [`Rows::next`].
    pub(crate) fn put_back(&mut self, batch: RecordBatch) -> Result<()> {
        self.page = 0;
        if batch.num_rows() > 0 {
            self.held_rows += batch.num_rows();
            self.held.push_front(batch);
        }
        self.account()
    }

    /// Lets go of the memory of the page that was taken last, once it is dropped.
    pub(crate) fn let_go(&mut self) -> Result<()> {
        self.page = 0;
        self.account()
    }

    fn account(&self) -> Result<()> {
        let held: usize = self.held.iter().map(RecordBatch::get_array_memory_size).sum();
        Ok(self.reservation.try_resize(held + self.page)?)
    }

    /// Runs to the end and puts what is left on disk, at most so many bytes, within the quota of the runtime.
    ///
    /// # Errors
    /// [`Error::CircuitBreaking`] where it is more.
    pub(crate) async fn spooled(mut self, env: &Arc<RuntimeEnv>, most: u64) -> Result<Self> {
        let schema = self.batches.get_ref().schema();
        let metrics = SpillMetrics::new(&ExecutionPlanMetricsSet::new(), 0);
        let spilled = metrics.spilled_bytes.clone();
        let spill = SpillManager::new(Arc::clone(env), metrics, Arc::clone(&schema));
        let mut file = spill.create_in_progress_file("the rows of a statement")?;
        while let Some(batch) = self.next().await? {
            file.append_batch(&batch)?;
            if u64::try_from(spilled.value()).unwrap_or(u64::MAX) > most {
                return Err(Error::CircuitBreaking(format!(
                    "the rows that wait to be read take more than [{most}] bytes on disk, an eighth of query.spill_bytes; ask for fewer rows or columns, or without an order"
                ))
                .into());
            }
        }
        let stored = file.finish()?;
        let batches: SendableRecordBatchStream = match stored {
            Some(stored) => spill.read_spill_as_stream(stored, None)?,
            None => Box::pin(EmptyRecordBatchStream::new(schema)),
        };
        Ok(Self::new(batches, RowSlice::ALL, env, self.batches.threads()))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{ArrayRef, Int64Array};
    use datafusion::execution::memory_pool::GreedyMemoryPool;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use futures::stream;

    use super::*;

    const POOL: usize = 64 << 10;

    /// Rows in two batches, the second of which has so many.
    fn rows(second: usize) -> (Rows, Arc<RuntimeEnv>) {
        let pool = Arc::new(GreedyMemoryPool::new(POOL));
        let env = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc().unwrap();
        let batches = [1_000, second].map(|count| {
            let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..count as i64));
            RecordBatch::try_from_iter([("n", numbers)]).unwrap()
        });
        let schema = batches[0].schema();
        let batches = RecordBatchStreamAdapter::new(schema, stream::iter(batches.map(Ok)));
        let threads = StatementThreads::start(1).unwrap();
        (Rows::new(Box::pin(batches), RowSlice::ALL, &env, &threads), env)
    }

    #[tokio::test]
    async fn batches_count_towards_the_memory_while_they_are_read() {
        let (mut own, env) = rows(10);
        let first = own.next().await.unwrap().unwrap();
        assert!(env.memory_pool.reserved() >= 8_000);
        // What is left of one comes before the next.
        own.put_back(first.slice(998, 2)).unwrap();
        let counts = [own.next().await, own.next().await].map(|batch| batch.unwrap().unwrap().num_rows());
        assert_eq!(counts, [2, 10]);
        assert!(own.next().await.unwrap().is_none());
        assert_eq!(env.memory_pool.reserved(), 0);
        let (mut own, _env) = rows(POOL);
        own.next().await.unwrap();
        assert_eq!(own.next().await.unwrap_err().status(), 429);
    }
}
