//! Snapshots: indices of one moment, kept in a repository apart from the store, and restored from there.
//!
//! [`SnapshotService`] is the way in: it registers repositories, creates, lists, deletes and restores snapshots. A [`Repository`]
//! is an object store with files named by the SHA-256 of their content and a manifest a snapshot. `manifest.rs` and `contents.rs`
//! are the formats, which `docs/internals/snapshot-format.md` describes; `collection.rs` decides which files no snapshot needs.
//! The engine captures indices as of one frame of its log, and takes restored ones in.

mod accounts;
mod background_restore;
mod clone;
mod collection;
mod config;
mod contents;
mod copy;
mod create;
mod digest;
mod error;
mod fetch;
mod figures;
mod listing;
mod manifest;
mod names;
mod positions;
mod progress;
#[cfg(test)]
mod protocol;
mod recovery;
mod repository;
mod restore;
mod restore_request;
mod restoring;
mod selection;
mod service;
mod settings;
mod side_by_side;
mod stored_indices;
mod system_state;
#[cfg(feature = "testing")]
pub mod testing;
mod transfer_limits;
mod upload;
mod verification;

pub use accounts::{AccountStore, names_accounts};
pub use background_restore::{BackgroundRestore, RestoreOutcome};
pub use config::{Config, S3Client};
pub use create::CreateSnapshot;
pub use digest::ContentDigest;
pub use error::{Error, Result};
pub use figures::{OutcomeCounts, SnapshotFigures};
pub use listing::{SnapshotFilter, SnapshotOverview};
pub use manifest::{IndexSummary, Manifest, MissingShard, SnapshotState};
pub use progress::{FileCounts, IndexProgress, IndexProgressFigures};
pub use recovery::{IndexRecovery, ShardRecovery};
pub use repository::Repository;
pub use restore_request::{RestoreReport, RestoreSnapshot};
pub use selection::SelectionOptions;
pub use service::{DeletionReport, RunningSnapshot, SnapshotService};
pub use settings::{RepositoryKind, RepositorySettings};
pub use system_state::SystemStateOwner;
pub use transfer_limits::TransferLimits;
pub use verification::{BackgroundVerification, DamagedFile, VerificationReport};
