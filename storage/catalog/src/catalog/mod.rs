//! The catalog: what exists, in SQL.
//!
//! [`Catalog`] is the whole interface: everything is read once at start ([`Catalog::load`]), and
//! every later call is one transaction that is durable when it returns. The engine keeps the state
//! in memory and writes changes through: metadata decisions by [`Catalog::change`], flushes and
//! compactions by [`Catalog::commit`]. A call that was cut short by a crash or an error may be
//! repeated: both are idempotent.
//!
//! [`open_sqlite`] is the catalog of a single node. [`MemoryCatalog`] stands in for it where power
//! loss is simulated. The schema and the conformance suite are shared with catalogs to come.

mod load;
mod memory;
mod rows;
mod sqlite;
#[cfg(test)]
mod tests;
mod transaction;

use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use millrace_runtime::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

pub use memory::MemoryCatalog;
pub use sqlite::open_sqlite;

use crate::frame::FrameNumber;
use crate::metadata::MetadataChange;

/// A segment as the catalog knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SegmentRecord {
    /// Its id, unique in the store; the directory name of its files.
    pub id: Uuid,
    /// Index that owns it.
    pub index: Uuid,
    /// Shard that owns it.
    pub shard: u32,
    /// Rows, deleted ones included.
    pub rows: u32,
    /// Bytes of `data.parquet`.
    pub data_bytes: u64,
    /// Bytes of `index.bundle`.
    pub bundle_bytes: u64,
    /// Bytes of `ids`, 0 where there is none.
    pub ids_bytes: u64,
    /// Least sequence number.
    pub min_seq_no: u64,
    /// Greatest sequence number.
    pub max_seq_no: u64,
    /// Least and greatest server-generated id, where there is any.
    pub generated_ids: Option<(String, String)>,
    /// Per column: path number, then least and greatest value, count of rows with a value.
    pub columns: Vec<ColumnRecord>,
    /// Generation of the current deletes file, 0 for none.
    pub delete_generation: u64,
    /// Rows that file marks.
    pub deleted_rows: u32,
    /// Number of compactions of its rows.
    pub level: u32,
    /// Other facts, added to the format without a migration.
    pub extra: Value,
}

/// Statistics of one column in one segment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnRecord {
    /// The column's path number.
    pub column: u32,
    /// `true` if a row has several values.
    pub list: bool,
    /// Rows with a value.
    pub present: u32,
    /// Least value: a JSON number, string (`hex` for ip) or boolean.
    pub min: Value,
    /// Greatest value.
    pub max: Value,
}

/// Progress of a shard's operations in committed segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardCheckpoint {
    /// Index of the shard.
    pub index: Uuid,
    /// Shard number.
    pub shard: u32,
    /// Primary term last used.
    pub primary_term: u64,
    /// All operations below this sequence number are in segments.
    pub next_seq_no: u64,
    /// All frames below this number are in segments, as far as this shard is concerned.
    pub next_frame: FrameNumber,
}

/// One atomic commit of a flush or a compaction.
#[derive(Clone, Debug, Default)]
pub struct Commit {
    /// Segments added (or replaced, by id, for a new delete generation).
    pub put: Vec<SegmentRecord>,
    /// Segments removed.
    pub removed: Vec<Uuid>,
    /// Shard checkpoints moved.
    pub checkpoints: Vec<ShardCheckpoint>,
    /// Source positions moved.
    pub positions: Vec<Position>,
    /// Parts of sources, as pipeline, source and partition, whose positions are removed.
    pub forgotten: Vec<(String, String, String)>,
    /// Mappings: index uuid -> encoded mapping.
    pub mappings: Vec<(Uuid, Vec<u8>)>,
    /// Changes of shards' tombstones.
    pub tombstones: Vec<TombstoneChange>,
    /// Leases on the log that were taken or moved.
    pub leases: Vec<LeaseRecord>,
    /// Names of leases that are removed.
    pub released: Vec<String>,
}

/// Change of a shard's tombstones by a commit. They lie in groups, each known by a sequence number: those of its tombstones are
/// from it to before that of the next group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TombstoneChange {
    /// Index of the shard.
    pub index: Uuid,
    /// Shard number.
    pub shard: u32,
    /// Groups that stay, by their sequence numbers; all others are removed.
    pub kept: Range<u64>,
    /// Parts of the group that comes behind them, in the form of `shard/tombstones.rs`. There is none without a part.
    pub added: Vec<Bytes>,
}

/// A part of a group of tombstones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TombstoneChunk {
    /// Index of the shard.
    pub index: Uuid,
    /// Shard number.
    pub shard: u32,
    /// Sequence number of its group.
    pub first_seq_no: u64,
    /// The tombstones.
    pub encoded: Bytes,
}

/// Record of the store that the catalog belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreRecord {
    /// The store's id; `None` where it has none yet.
    pub id: Option<Uuid>,
    /// `true` if log and object store are known to carry that id durably.
    pub claimed: bool,
    /// Counts the transactions that changed what is stored.
    pub generation: u64,
    /// `true` if the catalog was made by a version that gave stores no id.
    pub unnamed: bool,
}

/// Everything in the catalog, as read at start.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The store.
    pub store: StoreRecord,
    /// Changes that, applied in order to an empty `Metadata`, give the stored one.
    pub metadata: Vec<MetadataChange>,
    /// Encoded mapping of each index.
    pub mappings: Vec<(Uuid, Vec<u8>)>,
    /// All segments.
    pub segments: Vec<SegmentRecord>,
    /// All shard checkpoints.
    pub checkpoints: Vec<ShardCheckpoint>,
    /// All source positions.
    pub positions: Vec<Position>,
    /// The tombstones of all shards that have any; those of a shard in the order of its groups.
    pub tombstones: Vec<TombstoneChunk>,
    /// All leases on the log.
    pub leases: Vec<LeaseRecord>,
}

/// From where on a reader of the change feed needs the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Its name.
    pub name: String,
    /// First frame that it holds.
    pub frame: FrameNumber,
    /// Time of its last move, in milliseconds since the epoch.
    pub moved_ms: i64,
}

/// Read position of a part of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// Pipeline that the source belongs to.
    pub pipeline: String,
    /// Natural identity of the source within it.
    pub source: String,
    /// Part of the source.
    pub partition: String,
    /// The position; empty where the part has an owner and nothing was read yet.
    pub position: Vec<u8>,
    /// Epoch of the part's owner.
    pub owner_epoch: u64,
    /// Frame of the log that moved it last.
    pub frame: FrameNumber,
}

/// A user, role, role mapping, API key or login token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountRecord {
    /// Kind of the record.
    pub kind: String,
    /// Its name, unique among those of the kind.
    pub name: String,
    /// The rest, as JSON; nothing in it concerns the catalog.
    pub body: String,
}

/// A change of such a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccountChange {
    /// Makes or replaces one.
    Put(AccountRecord),
    /// Deletes one, if it is there.
    Delete {
        /// Kind of the record.
        kind: String,
        /// Its name.
        name: String,
    },
}

/// The catalog's operations; each is one transaction, durable when it returns.
#[async_trait]
pub trait Catalog: std::fmt::Debug + Send + Sync + 'static {
    /// Reads everything.
    async fn load(&self) -> Result<State>;
    /// Applies metadata changes in order, and sets encoded mappings of indices that exist then.
    /// Deleting an index deletes its aliases, mapping, segments and checkpoints. Transient settings
    /// and a `PutIndex`'s mapping body are not stored.
    ///
    /// # Errors
    /// [`millrace_runtime::Error::IndexAlreadyExists`] for the name of another index,
    /// [`millrace_runtime::Error::IndexNotFound`] for a mapping of none; then nothing was changed.
    async fn change(&self, changes: &[MetadataChange], mappings: &[(Uuid, Vec<u8>)]) -> Result<()>;
    /// Applies metadata changes as [`Catalog::change`] does and a commit as [`Catalog::commit`] does, in one transaction:
    /// an index that a snapshot restores appears together with its segments.
    ///
    /// # Errors
    /// Those of both; then nothing was changed.
    async fn restore(
        &self,
        changes: &[MetadataChange],
        mappings: &[(Uuid, Vec<u8>)],
        commit: &Commit,
    ) -> Result<()>;
    /// Commits a flush or compaction.
    ///
    /// # Errors
    /// [`millrace_runtime::Error::IndexNotFound`] (with the uuid) where an index was deleted meanwhile; then
    /// nothing was changed, and its segment files are orphans.
    async fn commit(&self, commit: &Commit) -> Result<()>;
    /// Names the store. Its generation never falls: the greater one holds.
    async fn put_store(&self, id: Uuid, claimed: bool, generation: u64) -> Result<()>;
    /// Generation that the last of this handle's transactions left: each [`Catalog::change`] and
    /// [`Catalog::commit`] counts. 0 before [`Catalog::load`].
    fn generation(&self) -> u64;
    /// Reads a value of the small key-value table (administrator's password hash and the like).
    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>>;
    /// Writes such a value.
    async fn put(&self, key: &str, value: &[u8]) -> Result<()>;
    /// Reads users, roles and whatever else belongs to accounts, by kind and name.
    async fn accounts(&self) -> Result<Vec<AccountRecord>>;
    /// Changes some of them in order, all or none.
    async fn put_accounts(&self, changes: &[AccountChange]) -> Result<()>;
    /// Tells why the last transaction failed, until one succeeds.
    fn trouble(&self) -> Option<String> {
        None
    }
    /// Writes something that changes nothing, to find out whether writing works again.
    async fn probe(&self) -> Result<()> {
        Ok(())
    }
    /// Waits for running transactions and closes.
    async fn close(&self);
}
