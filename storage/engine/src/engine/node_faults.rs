//! Faults of the whole node: probes and the health of the cluster report them, and the node checks them until they are over.

use std::fmt;
use std::sync::Arc;

use super::{Engine, Inner};

/// Something that keeps the node from its work, whatever the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeFault {
    /// The log has stopped: no write is taken until the server starts again.
    LogStopped,
    /// Another process has taken the object store over: this one takes no write until it starts again.
    OwnershipLost,
    /// The catalog cannot be written: no flush, no change of indices or accounts succeeds.
    CatalogFails,
    /// No read of the object store succeeds.
    ReadsFail,
}

impl fmt::Display for NodeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LogStopped => "the log has stopped: no write is taken until the server is started again",
            Self::OwnershipLost => {
                "another process has taken the object store over: this one takes no write; stop one of the two and start the other again"
            }
            Self::CatalogFails => "the catalog cannot be written: nothing is flushed and no metadata changes",
            Self::ReadsFail => "reads of the object store fail",
        })
    }
}

impl Engine {
    /// Tells what keeps the node from its work, the worst first. The server's log has the reasons.
    pub fn troubles(&self) -> Vec<NodeFault> {
        let inner = &self.inner;
        let log = inner.services.wal.get().is_some_and(|wal| wal.stopped().is_some());
        let reads = inner.env().objects.reads_fail();
        let catalog = inner.services.catalog.trouble().is_some();
        let all = [
            (log, NodeFault::LogStopped),
            (inner.check_ownership().is_err(), NodeFault::OwnershipLost),
            (reads, NodeFault::ReadsFail),
            (catalog, NodeFault::CatalogFails),
        ];
        all.into_iter().filter_map(|(found, trouble)| found.then_some(trouble)).collect()
    }
}

impl Inner {
    /// Tries what has failed, in a task of its own, one at a time: what nobody asks for would count as failing for ever.
    pub(super) fn probe_troubles_soon(self: &Arc<Self>) {
        let (reads, catalog) = (self.env().objects.reads_fail(), self.services.catalog.trouble().is_some());
        if !(reads || catalog) || std::mem::replace(&mut self.busy.lock().probes, true) {
            return;
        }
        struct ProbeGuard(Arc<Inner>);
        impl Drop for ProbeGuard {
            fn drop(&mut self) {
                self.0.busy.lock().probes = false;
            }
        }
        let probing = ProbeGuard(Arc::clone(self));
        tokio::spawn(async move {
            let ProbeGuard(inner) = &probing;
            inner.env().objects.probe_reads().await;
            if catalog && let Err(error) = inner.services.catalog.probe().await {
                tracing::warn!(%error, "the catalog cannot be written, it will be tried again");
            }
        });
    }
}
