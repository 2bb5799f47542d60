//! Rights of the reader of an answer, while the statement runs and while its rows are sent.
//!
//! An answer may take hours to read. [`AccessWatch`] asks for the reader's rights anew at least each second, and ends the answer with an error
//! once they no longer show the same documents and fields. Nothing is handed on unless the rights were found good within the last second.
//! [`ReadIndices`] tells it which indices the statement has pinned.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use millrace_catalog::access::Action;
use millrace_catalog::metadata::IndexMeta;
use millrace_matching::table::TableSnapshot;
use millrace_matching::table::access_snapshot::AccessSnapshot;
use millrace_runtime::Error as StorageError;
use millrace_session::SearchSession;
use millrace_target::access_checkpoint::roles_changed;
use millrace_work::error::Error;
use parking_lot::Mutex;
use tokio::time;

use super::error::Result;

/// Longest time for which rights are good without being asked for again.
const PERIOD: Duration = Duration::from_secs(1);
/// Checks in a row, a period apart, that may find no telling who reads.
const MOST_UNCERTAIN: usize = 10;

/// The indices that a statement has pinned. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadIndices(Arc<Mutex<Vec<ReadIndex>>>);

/// An index with what its reader saw of it when it was pinned.
type ReadIndex = (Arc<IndexMeta>, AccessSnapshot);

impl ReadIndices {
    /// Adds the indices of snapshots that were just taken.
    pub(super) fn add<'a>(&self, snapshots: impl Iterator<Item = &'a Arc<TableSnapshot>>) {
        let indices = snapshots.flat_map(|snapshot| &snapshot.indices);
        self.0.lock().extend(indices.map(|index| (Arc::clone(&index.meta), index.seen.clone())));
    }
}

/// Checks the rights of the reader of one answer; see the module.
pub(super) struct AccessWatch {
    session: Arc<dyn SearchSession>,
    read: ReadIndices,
    /// The privileges that were looked at last, and how many indices these were looked at for: privileges never change.
    checked: (u64, usize),
    checked_ms: i64,
}

impl fmt::Debug for AccessWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessWatch").field("session", &self.session).finish_non_exhaustive()
    }
}

impl AccessWatch {
    /// Watches over what a session, whose rights are those of now, reads of these indices.
    pub(super) fn new(session: &dyn SearchSession, read: &ReadIndices) -> Self {
        let checked_ms = session.clock().now_ms();
        Self { session: session.to_shared(), read: read.clone(), checked: (0, 0), checked_ms }
    }

    /// Waits for a part of the answer, as long as its reader may read it.
    ///
    /// # Errors
    /// 403 where the reader may not read on; 429 where there is no telling for too long who reads.
    pub(super) async fn within<T>(&mut self, part: impl Future<Output = T>) -> Result<T> {
        let mut part = std::pin::pin!(part);
        let since = self.session.clock().now_ms().checked_sub(self.checked_ms);
        // The clock may have been set back.
        if since.is_none_or(|since| !(0..PERIOD.as_millis() as i64).contains(&since)) {
            self.check().await?;
        }
        loop {
            match time::timeout(PERIOD, part.as_mut()).await {
                Ok(part) => return Ok(part),
                Err(_) => self.check().await?,
            }
        }
    }

    async fn check(&mut self) -> Result<()> {
        let mut uncertain = 0;
        let now = loop {
            match self.session.again().await {
                Err(StorageError::Rejected(_)) if uncertain < MOST_UNCERTAIN => {
                    uncertain += 1;
                    time::sleep(PERIOD).await;
                }
                now => break now?,
            }
        };
        let read = self.read.0.lock();
        let checked = (now.principal().privileges().version(), read.len());
        if checked != self.checked {
            if let Some((meta, _)) =
                read.iter().find(|(meta, seen)| !seen.holds(&now.access(&meta.name), Action::Sql))
            {
                return Err(Error::from(roles_changed(&*now, &meta.name, Action::Sql)).into());
            }
            self.checked = checked;
        }
        drop(read);
        self.checked_ms = now.clock().now_ms();
        Ok(())
    }

    /// Hands parts of the answer on, as long as its reader may read them. An error is the last item.
    pub(super) fn over<T: Send + 'static>(
        self,
        parts: impl Stream<Item = Result<T>> + Send + 'static,
    ) -> impl Stream<Item = Result<T>> + Send {
        stream::unfold(Some((self, parts.boxed())), |watched| async {
            let (mut watch, mut parts) = watched?;
            match watch.within(parts.next()).await {
                Ok(part) => part.map(|part| (part, Some((watch, parts)))),
                Err(error) => Some((Err(error), None)),
            }
        })
    }
}
