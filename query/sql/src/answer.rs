//! The answer of a statement under way: its columns, then its rows, batch by batch as the plan makes them.
//!
//! [`Runner::open`](super::run::Runner) makes it. Nothing is read ahead of who takes the rows: [`page`](super::page) collects them,
//! [`Runner::write`] hands them on as text while they come.

use std::sync::Arc;

use bytes::Bytes;
use millrace_matching::table::TableSnapshot;
use millrace_work::Work;
use millrace_work::compute::StopOnDrop;

use super::bind::{OutColumn, Total};
use super::error::Result;
use super::format::{LineFormat, Lines};
use super::rows::Rows;
use super::run::{Prepared, Runner};
use super::threads::ItemSink;

/// An answer; see the module.
pub(super) struct Answer {
    /// Columns of the rows.
    pub(super) columns: Arc<[OutColumn]>,
    /// The rows.
    pub(super) rows: Rows,
    /// Where the number of matching rows comes from.
    pub(super) total: Total,
    /// Rows that are skipped, and most that are answered.
    pub(super) cut: (usize, Option<usize>),
    /// Whether it may be paged: lists of metadata are short.
    pub(super) pages: bool,
    /// Whether rows come as they are read, not after all have been.
    pub(super) streams: bool,
    /// What they are read from.
    pub(super) snapshots: Vec<Arc<TableSnapshot>>,
    /// What it is made for.
    pub(super) work: Work,
    /// Stops the scans when nobody waits any more.
    pub(super) stop: StopOnDrop,
}

impl Answer {
    /// Makes the answer of a query whose plan was started.
    pub(super) fn of_query(prepared: Prepared, rows: Rows) -> Self {
        let Prepared { planned, snapshots, work, stop, .. } = prepared;
        let (total, cut, streams) = (planned.total, planned.cut, planned.streams);
        let columns = planned.columns.into();
        Self { columns, rows, total, cut, pages: true, streams, snapshots, work, stop }
    }

    /// Makes the answer of a statement that is no query.
    pub(super) fn of_listing(columns: Vec<OutColumn>, rows: Rows, work: &Work) -> Self {
        Self {
            columns: columns.into(),
            rows,
            total: Total::Answered,
            cut: (0, None),
            pages: false,
            streams: false,
            snapshots: Vec::new(),
            work: work.clone(),
            stop: work.until_dropped(),
        }
    }
}

impl Runner {
    /// Writes the rows of an answer as lines, gives each part as it is full, and returns the last.
    ///
    /// Who reads them may take long. Once it does, what is left holds neither the memory of a sort, a join or groups, which it leaves
    /// for the disk, nor a snapshot that is not pinned; see [`Runner::kept`].
    pub(super) async fn write(
        &self,
        answer: Answer,
        format: LineFormat,
        mut parts: ItemSink<Bytes>,
    ) -> Result<Bytes> {
        let Answer { columns, mut rows, total, pages, streams, snapshots, work, stop: _stop, .. } = answer;
        // It is not answered, and holds a snapshot.
        drop(total);
        let mut lines = Lines::new(format, &columns, &work);
        let (mut unkept, mut _pinned) = (pages.then_some(snapshots), Vec::new());
        while let Some(batch) = rows.next().await? {
            let mut row = 0;
            while row < batch.num_rows() {
                row = lines.write(&batch, row)?;
                if !lines.is_full() {
                    continue;
                }
                let waits = unkept.is_some() && !parts.has_room().await;
                if waits && let Some(snapshots) = unkept.take() {
                    let left = batch.slice(row, batch.num_rows() - row);
                    drop(batch);
                    rows.put_back(left)?;
                    (rows, _pinned) = self.kept(rows, streams, &snapshots).await?;
                    parts.give(lines.take()).await?;
                    break;
                }
                parts.give(lines.take()).await?;
            }
        }
        lines.finish()
    }
}
