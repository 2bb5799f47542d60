//! The store as searches and statements read it: sessions, indices and snapshots, without the engine behind them.
//!
//! A [`SearchSession`] is one principal that does one action; it hands out indices as [`SearchIndex`]es, whose [`Snapshot`]s a search works on.
//! `millrace-engine` implements both for its `Session` and `Index`, so that an edit of the log or of recovery leaves SQL and PPL as they are.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use millrace_catalog::access::{Action, IndexAccess, Principal, Refusals, refusal};
use millrace_catalog::metadata::{IndexMeta, IndicesOptions, Metadata};
use millrace_catalog::operation::{RefreshPolicy, WriteOp, WriteOutcome};
use millrace_mapping::Mapping;
use millrace_mapping::fields::FieldRules;
use millrace_runtime::tasks::TaskHandle;
use millrace_runtime::{Result, SharedClock};
use millrace_segment::SegmentView;
use serde_json::Value;

/// A principal at work, as searches and statements ask it.
///
/// Everything that it answers is what the principal may see by its action: metadata lists no other indices, wildcards and
/// aliases stand for no others, and a name that is not allowed is refused, whether there is such an index or not.
pub trait SearchSession: fmt::Debug + Send + Sync + 'static {
    /// Returns the same session for a holder of its own.
    fn to_shared(&self) -> Arc<dyn SearchSession>;

    /// Returns the session of another action of the same principal.
    ///
    /// # Errors
    /// [`Unauthorized`](millrace_runtime::Error::Unauthorized) where the action is not allowed on anything.
    fn doing(&self, action: Action) -> Result<Arc<dyn SearchSession>>;

    /// Returns the same session with the sender's rights of now.
    ///
    /// # Errors
    /// [`Unauthorized`](millrace_runtime::Error::Unauthorized) where the sender may not do it any more;
    /// [`Rejected`](millrace_runtime::Error::Rejected) where there is no telling now.
    fn again(&self) -> BoxFuture<'_, Result<Arc<dyn SearchSession>>>;

    /// Returns the principal.
    fn principal(&self) -> &Principal;

    /// Returns the action.
    fn action(&self) -> Action;

    /// Returns the list of parts of the request that are refused while the rest is done.
    fn refusals(&self) -> &Refusals;

    /// Returns the task that the work belongs to; `None` for work that is no task of its own.
    fn task(&self) -> Option<&TaskHandle>;

    /// Returns the clock of the store.
    fn clock(&self) -> &SharedClock;

    /// Returns the metadata, without the indices that are not to be seen.
    fn metadata(&self) -> Arc<Metadata>;

    /// Returns a running index by its concrete name.
    ///
    /// # Errors
    /// [`Unauthorized`](millrace_runtime::Error::Unauthorized), [`IndexNotFound`](millrace_runtime::Error::IndexNotFound).
    fn index(&self, name: &str) -> Result<Arc<dyn SearchIndex>>;

    /// Resolves an index expression to running indices that may be seen.
    ///
    /// # Errors
    /// A name that is missing or not allowed.
    fn resolve(&self, expression: &str, options: &IndicesOptions) -> Result<Vec<Arc<dyn SearchIndex>>>;

    /// Returns a mapping without the fields that one of the rules does not show.
    fn view(&self, mapping: &Arc<Mapping>, rules: Vec<Arc<FieldRules>>) -> Arc<Mapping>;

    /// Reads a document by id. `realtime` sees unrefreshed writes. `Ok(None)`: no such document.
    ///
    /// # Errors
    /// A missing or closed index, an alias of several indices, a corrupt segment;
    /// [`Unauthorized`](millrace_runtime::Error::Unauthorized).
    fn get<'a>(
        &'a self,
        index: &'a str,
        id: &'a str,
        routing: Option<&'a str>,
        realtime: bool,
    ) -> BoxFuture<'a, Result<Option<StoredDoc>>>;

    /// Executes operations in order and acknowledges those that are durable: one result an operation, a refusal for each
    /// that is not allowed.
    ///
    /// # Errors
    /// The outer error is for the request as a whole: overload, a full disk, shutdown.
    fn write(
        &self,
        ops: Vec<WriteOp>,
        refresh: RefreshPolicy,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<Vec<Result<WriteOutcome>>>>;

    /// Makes everything that was written to these indices so far visible to search. A name without an index is left out.
    ///
    /// # Errors
    /// A refresh that fails; [`Stopped`](millrace_runtime::Error::Stopped) where another process writes to the object store.
    fn refresh_by_name<'a>(&'a self, names: &'a BTreeSet<Arc<str>>) -> BoxFuture<'a, Result<()>>;

    /// Returns the rights of the principal on an index.
    fn access(&self, index: &str) -> Arc<IndexAccess> {
        self.principal().privileges().on(index)
    }

    /// Checks that the action may be done with an index.
    ///
    /// # Errors
    /// [`Unauthorized`](millrace_runtime::Error::Unauthorized).
    fn check_allowed(&self, index: &str) -> Result<()> {
        match self.access(index).allows(self.action()) {
            true => Ok(()),
            false => Err(refusal(self.principal(), self.action(), index)),
        }
    }

    /// Returns the mapping of an index, without the fields that may not be seen.
    fn mapping(&self, index: &dyn SearchIndex) -> Arc<Mapping> {
        let rules = self.access(&index.meta().name).fields(self.action());
        self.view(&index.mapping(), rules)
    }

    /// Returns the body of an index's mapping, without the fields that may not be seen. One that this version does not accept is
    /// as it is stored.
    ///
    /// # Errors
    /// [`IndexUnsupported`](millrace_runtime::Error::IndexUnsupported) where fields of such a mapping may not be seen, or none can be read.
    fn mapping_body(&self, index: &dyn SearchIndex) -> Result<Value> {
        let Err(unsupported) = index.check_supported() else { return Ok(self.mapping(index).to_json()) };
        let rules = self.access(&index.meta().name).fields(self.action());
        match index.unsupported_body() {
            Some(body) if rules.is_empty() => Ok(body),
            _ => Err(unsupported),
        }
    }
}

/// A running index, as searches and statements ask it.
pub trait SearchIndex: fmt::Debug + Send + Sync + 'static {
    /// Returns name, uuid, settings, aliases and state.
    fn meta(&self) -> Arc<IndexMeta>;

    /// Returns the current mapping. It is empty where this version does not accept that of the index.
    fn mapping(&self) -> Arc<Mapping>;

    /// Refuses the use of settings and mapping that this version does not accept.
    ///
    /// # Errors
    /// [`IndexUnsupported`](millrace_runtime::Error::IndexUnsupported).
    fn check_supported(&self) -> Result<()>;

    /// Returns the body of a stored mapping that this version does not accept, as far as it is one.
    fn unsupported_body(&self) -> Option<Value>;

    /// Takes a snapshot for a search. After search idleness it refreshes first.
    ///
    /// # Errors
    /// The index is closed, or the refresh fails.
    fn snapshot(self: Arc<Self>) -> BoxFuture<'static, Result<Snapshot>>;
}

/// A document as stored.
#[derive(Clone, Debug)]
pub struct StoredDoc {
    /// Concrete index.
    pub index: Arc<str>,
    /// Document id.
    pub id: String,
    /// Version.
    pub version: u64,
    /// Sequence number.
    pub seq_no: u64,
    /// Primary term.
    pub primary_term: u64,
    /// Routing value, if one was given.
    pub routing: Option<String>,
    /// The source exactly as sent.
    pub source: Bytes,
}

/// An immutable view of an index for one search.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The index as of the snapshot.
    pub meta: Arc<IndexMeta>,
    /// The mapping as of the snapshot.
    pub mapping: Arc<Mapping>,
    /// Shards in order.
    pub shards: Vec<ShardSnapshot>,
}

/// One shard of a snapshot.
#[derive(Clone, Debug)]
pub struct ShardSnapshot {
    /// Shard number.
    pub shard: u32,
    /// Segments in ascending order of their rows' sequence numbers.
    pub segments: Vec<SegmentView>,
}
