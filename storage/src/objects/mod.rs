//! The object store of segment files: a durable local directory or S3, behind one trait.
// CONTRACT STUB (owner: durability)
use std::sync::Arc;

use object_store::ObjectStore;

use crate::disk::Disk;
use crate::{Config, Result};

/// Opens the configured object store.
///
/// # Errors
/// An unusable configuration or an unreachable service.
pub async fn open(_config: &Config, _disk: Arc<dyn Disk>) -> Result<Arc<dyn ObjectStore>> {
    todo!()
}
