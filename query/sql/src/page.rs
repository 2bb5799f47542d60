//! Answers in one piece, and page by page: the first page of a statement, and those behind it, which a cursor reads.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use futures::future::BoxFuture;
use millrace_catalog::access::Caller;
use millrace_matching::pinned::PinnedSnapshot;
use millrace_matching::table::TableSnapshot;
use millrace_work::QueryContext;
use tokio::sync::Mutex;

use super::answer::Answer;
use super::bind::Total;
use super::cursor::{Cursor, Progress, Token};
use super::error::{Result, SqlError};
use super::format::{PageFormat, Writer};
use super::rows::Rows;
use super::run::Runner;

/// The first page of an answer, but for its end.
#[derive(Debug)]
pub struct Page {
    /// Writer of the page.
    pub writer: Writer,
    /// Rows that match.
    pub total: u64,
    /// Cursor of later pages.
    pub left: Option<Cursor>,
}

impl Runner {
    /// Writes an answer, or its first `most` rows; 0 are all.
    pub(super) async fn first_page(&self, answer: Answer, format: PageFormat, most: usize) -> Result<Page> {
        let Answer { columns, mut rows, total, cut, layout, pages, streams, snapshots, work, stop } = answer;
        let mut writer = match format {
            PageFormat::Hits => Writer::of_hits(Arc::clone(&columns), layout, &work),
            _ => Writer::new(format, Arc::clone(&columns), &work),
        };
        let (mut size, mut more, mut pinned) = (0, false, Vec::new());
        if most == 0 || !pages {
            while let Some(batch) = rows.next().await? {
                size += batch.num_rows();
                writer.rows(&batch)?;
            }
        } else {
            let (batches, behind) = rows.page(most).await?;
            size = batches.iter().map(RecordBatch::num_rows).sum();
            more = behind;
            for batch in &batches {
                writer.rows(batch)?;
            }
            drop(batches);
            rows.let_go()?;
            if more {
                (rows, pinned) = self.kept(rows, streams, &snapshots).await?;
            }
        }
        let (skip, limit) = cut;
        let is_cut = more || skip > 0 || limit.is_some_and(|limit| size >= limit);
        let total = match &total {
            Total::Counted(counter) => counter.load(Ordering::Relaxed),
            Total::ByPlan(count) if is_cut => self.count(count, &work).await?,
            Total::ByScan(handle) => handle.totals.read().0,
            Total::ByPlan(_) | Total::Answered => size as u64,
        };
        let indices = snapshots.iter().flat_map(|snapshot| &snapshot.indices);
        let indices = indices.map(|index| (Arc::clone(&index.meta), index.seen.clone())).collect();
        let progress = Mutex::new(Progress { rows, page: 1, last: None });
        let left = more.then_some(Cursor {
            columns,
            format,
            size: most,
            indices,
            progress,
            _pinned: pinned,
            _stop: stop,
        });
        Ok(Page { writer, total, left })
    }

    /// Ends a page, on the threads of short jobs where it is not short: `cursor` reads on.
    ///
    /// # Errors
    /// As [`Writer::finish`].
    pub async fn finish_page(&self, writer: Writer, total: u64, cursor: Option<String>) -> Result<Bytes> {
        if writer.is_short() {
            return writer.finish(total, cursor.as_deref());
        }
        self.compute.run(move || Ok(writer.finish(total, cursor.as_deref()))).await?
    }

    /// Makes rows wait for who reads them later: pins what they are read from, where they stream. What cannot be read when it is asked
    /// for, or may not be kept in memory until then, waits on disk.
    ///
    /// # Errors
    /// As [`Rows::spooled`].
    pub(super) async fn kept(
        &self,
        rows: Rows,
        streams: bool,
        snapshots: &[Arc<TableSnapshot>],
    ) -> Result<(Rows, Vec<PinnedSnapshot>)> {
        if streams {
            let pinned: Vec<_> =
                snapshots.iter().map_while(|snapshot| self.pins.hold(snapshot).ok()).collect();
            if pinned.len() == snapshots.len() {
                return Ok((rows, pinned));
            }
        }
        Ok((rows.spooled(self.state.runtime_env(), self.cursor_bytes).await?, Vec::new()))
    }

    /// Reads the next page of a cursor for its owner, and whether there are more behind it.
    pub fn next_page<'a>(
        &'a self,
        owner: &'a Caller,
        cursor: Arc<Cursor>,
        token: Token,
        timeout_ms: Option<u64>,
    ) -> BoxFuture<'a, Result<(Bytes, bool)>> {
        Box::pin(async move {
            // Who gives up on a page may ask for it again: the statement goes on.
            let work = QueryContext::new(&self.state.runtime_env().memory_pool);
            self.threads.run(owner, None, timeout_ms, later(cursor, token, work)).await
        })
    }
}

/// Writes the page of a token.
async fn later(cursor: Arc<Cursor>, token: Token, work: QueryContext) -> Result<(Bytes, bool)> {
    let mut progress = cursor.progress.lock().await;
    let Progress { rows, page, last } = &mut *progress;
    if token.page == *page
        && let Some(last) = last
    {
        return Ok((last.clone(), true));
    }
    if token.page != *page + 1 {
        return Err(SqlError::Cursor(format!(
            "the cursor is at page [{}], its page [{}] is gone",
            *page + 1,
            token.page
        )));
    }
    let (batches, more) = rows.page(cursor.size).await?;
    let mut writer = Writer::later(cursor.format, Arc::clone(&cursor.columns), &work);
    for batch in &batches {
        writer.rows(batch)?;
    }
    let following = more.then(|| Token::text(&token.id, token.page + 1));
    let text = writer.finish(0, following.as_deref())?;
    drop(batches);
    rows.let_go()?;
    *page = token.page;
    *last = Some(text.clone());
    Ok((text, more))
}
