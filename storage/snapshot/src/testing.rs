//! Repositories for tests of other crates.

use std::path::Path;
use std::sync::Arc;

use millrace_engine::Engine;
use serde_json::json;

use crate::config::Config;
use crate::error::Result;
use crate::service::SnapshotService;

/// Opens the snapshots of a store with a repository `backup` in a directory.
///
/// # Errors
/// The repository's.
pub async fn open_with_backup(engine: &Arc<Engine>, directory: &Path) -> Result<SnapshotService> {
    let config = Config { path_repo: vec![directory.to_owned()], ..Config::default() };
    let service = SnapshotService::open(Arc::clone(engine), config).await?;
    let body = json!({"type": "fs", "settings": {"location": "one"}});
    service.put_repository("backup", &body, true).await?;
    Ok(service)
}
