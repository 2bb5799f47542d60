//! The answer of a statement under way: its columns, then its rows, batch by batch as the plan makes them.
//!
//! [`Runner::open`](super::run::Runner) makes it. Nothing is read ahead of who takes the rows: [`page`](super::page) collects them,
//! [`Runner::write`] hands them on part by part while they come.

use std::sync::Arc;

use millrace_matching::table::TableSnapshot;
use millrace_work::QueryContext;
use millrace_work::compute::StopOnDrop;

use super::bind::{OutColumn, Total};
use super::error::Result;
use super::format::ChunkWriter;
use super::hit_layout::HitLayout;
use super::rows::Rows;
use super::run::{ReadyStatement, Runner};
use super::threads::ItemSink;

/// An answer; see the module.
pub(super) struct Answer {
    /// Columns of the rows.
    pub(super) columns: Arc<[OutColumn]>,
    /// The rows.
    pub(super) rows: Rows,
    /// Source of the number of matching rows.
    pub(super) total: Total,
    /// Rows that are skipped, and most that are answered.
    pub(super) cut: (usize, Option<usize>),
    /// Layout of the rows as hits.
    pub(super) layout: HitLayout,
    /// `true` if it may be paged: lists of metadata are short.
    pub(super) pages: bool,
    /// `true` if rows come as they are read, not after all have been.
    pub(super) streams: bool,
    /// Snapshots that the rows are read from.
    pub(super) snapshots: Vec<Arc<TableSnapshot>>,
    /// Context of the statement.
    pub(super) work: QueryContext,
    /// Stops the scans when nobody waits any more.
    pub(super) stop: StopOnDrop,
}

impl Answer {
    /// Makes the answer of a query whose plan was started.
    pub(super) fn of_query(prepared: ReadyStatement, rows: Rows) -> Self {
        let ReadyStatement { planned, snapshots, work, stop, .. } = prepared;
        let (total, cut, streams) = (planned.total, planned.cut, planned.streams);
        let columns = planned.columns.into();
        let layout = HitLayout::default();
        Self { columns, rows, total, cut, layout, pages: true, streams, snapshots, work, stop }
    }

    /// Makes the answer of a statement that is no query.
    pub(super) fn of_listing(columns: Vec<OutColumn>, rows: Rows, work: &QueryContext) -> Self {
        Self {
            columns: columns.into(),
            rows,
            total: Total::Answered,
            cut: (0, None),
            layout: HitLayout::default(),
            pages: false,
            streams: false,
            snapshots: Vec::new(),
            work: work.clone(),
            stop: work.until_dropped(),
        }
    }
}

impl Runner {
    /// Writes the rows of an answer, gives each part as it is full, and returns the last.
    ///
    /// Who reads them may take long. Once it does, what is left holds neither the memory of a sort, a join or groups, which it leaves
    /// for the disk, nor a snapshot that is not pinned; see [`Runner::kept`].
    pub(super) async fn write<W: ChunkWriter>(
        &self,
        answer: Answer,
        mut writer: W,
        mut parts: ItemSink<W::Chunk>,
    ) -> Result<W::Chunk> {
        let Answer { mut rows, total, pages, streams, snapshots, stop: _stop, .. } = answer;
        // It is not answered, and holds a snapshot.
        drop(total);
        let (mut unkept, mut _pinned) = (pages.then_some(snapshots), Vec::new());
        while let Some(batch) = rows.next().await? {
            let mut row = 0;
            while row < batch.num_rows() {
                row = writer.write(&batch, row)?;
                if !writer.is_full() {
                    continue;
                }
                let waits = unkept.is_some() && !parts.has_room().await;
                if waits && let Some(snapshots) = unkept.take() {
                    let left = batch.slice(row, batch.num_rows() - row);
                    drop(batch);
                    rows.put_back(left)?;
                    (rows, _pinned) = self.kept(rows, streams, &snapshots).await?;
                    parts.give(writer.take()?).await?;
                    break;
                }
                parts.give(writer.take()?).await?;
            }
        }
        writer.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use datafusion::arrow::array::{ArrayRef, RecordBatch, StringViewArray};
    use datafusion::execution::runtime_env::RuntimeEnv;
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use futures::stream;
    use millrace_catalog::access::Caller;
    use millrace_matching::pinned::PinnedMemory;
    use millrace_work::compute::Compute;
    use tokio::sync::oneshot;

    use super::*;
    use crate::format::{LineFormat, Lines};
    use crate::rows::RowSlice;
    use crate::threads::{Item, Items};
    use crate::types::SqlType;

    const ROWS: usize = 1_000;
    const BATCHES: usize = 8;

    /// Starts to write an answer of some MB that is computed at once, whose rest may take so much on disk. Returns what ends when
    /// the plan is dropped, too.
    fn started(env: &Arc<RuntimeEnv>, most: u64, hasty: bool) -> (Items<Bytes>, oneshot::Receiver<()>) {
        let compute = Compute::new(millrace_runtime::Compute::start(1).unwrap());
        let pins = PinnedMemory::new(&env.memory_pool, 1 << 20);
        let runner = Runner::new(1, Arc::clone(env), compute, pins, most).unwrap();
        let cells: ArrayRef = Arc::new(StringViewArray::from_iter_values(vec!["x".repeat(1_000); ROWS]));
        let batch = RecordBatch::try_from_iter([("c0", cells)]).unwrap();
        let (plan, dropped) = oneshot::channel::<()>();
        let schema = batch.schema();
        let batches = stream::iter((0..BATCHES).map(move |_| {
            assert!(!plan.is_closed());
            Ok(batch.clone())
        }));
        let batches = Box::pin(RecordBatchStreamAdapter::new(schema, batches));
        let rows = Rows::new(batches, RowSlice::ALL, env, &runner.threads);
        let column = OutColumn {
            name: "c".to_owned(),
            alias: None,
            ty: SqlType::Keyword,
            list: false,
            shown: "keyword",
            element: None,
        };
        let work = QueryContext::new(&env.memory_pool);
        let answer = Answer { pages: true, ..Answer::of_listing(vec![column], rows, &work) };
        let (threads, format) = (runner.threads.clone(), LineFormat::Csv { sanitize: true });
        let write = move |parts: ItemSink<Bytes>| async move {
            let parts = if hasty { parts.hasty() } else { parts };
            let lines = Lines::new(format, &answer.columns, &answer.work);
            runner.write(answer, lines, parts).await
        };
        (threads.stream(&Caller::System, work.stop(), None, write).unwrap(), dropped)
    }

    async fn read(mut parts: Items<Bytes>) -> Result<String> {
        let mut text = Vec::new();
        loop {
            let (part, last) = match parts.next().await? {
                Item::Given(part) => (part, false),
                Item::Last(part) => (part, true),
            };
            text.extend_from_slice(&part);
            if last {
                return Ok(String::from_utf8(text).unwrap());
            }
        }
    }

    fn whole() -> String {
        format!("c{}\n", format!("\n{}", "x".repeat(1_000)).repeat(ROWS * BATCHES))
    }

    #[tokio::test]
    async fn what_a_slow_reader_leaves_waits_on_disk() {
        let env = Arc::new(RuntimeEnv::default());
        let (parts, dropped) = started(&env, 64 << 20, true);
        // Nobody has read anything, and the plan is gone with all that it held.
        let dropped = tokio::time::timeout(Duration::from_secs(20), dropped).await;
        assert!(dropped.expect("the plan is kept").is_err());
        assert!(env.disk_manager.used_disk_space() > 0);
        assert!(read(parts).await.unwrap() == whole());
        assert_eq!((env.disk_manager.used_disk_space(), env.memory_pool.reserved()), (0, 0));
    }

    #[tokio::test]
    async fn what_waits_on_disk_is_bounded() {
        let env = Arc::new(RuntimeEnv::default());
        let (parts, dropped) = started(&env, 1 << 10, true);
        tokio::time::timeout(Duration::from_secs(20), dropped).await.expect("the plan is kept").unwrap_err();
        let error = read(parts).await.unwrap_err();
        assert!(error.status() == 429 && error.to_string().contains("query.spill_bytes"), "{error}");
        // Who reads as it is written needs no disk.
        assert!(read(started(&env, 0, false).0).await.unwrap() == whole());
    }
}
