//! stub
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;

use crate::disk::Disk;
use crate::{Config, Result};

/// stub
#[derive(Debug)]
pub struct Objects {}

impl Objects {
    /// stub
    pub async fn put(&self, _path: &Path, _bytes: Bytes) -> Result<()> {
        todo!()
    }
    /// stub
    pub async fn put_file(&self, _path: &Path, _local: &std::path::Path) -> Result<()> {
        todo!()
    }
    /// stub
    pub async fn get(&self, _path: &Path) -> Result<Bytes> {
        todo!()
    }
    /// stub
    pub async fn get_range(&self, _path: &Path, _range: Range<u64>) -> Result<Bytes> {
        todo!()
    }
    /// stub
    pub async fn delete(&self, _path: &Path) -> Result<()> {
        todo!()
    }
    /// stub
    pub async fn delete_all(&self, _prefix: &Path) -> Result<()> {
        todo!()
    }
    /// stub
    pub async fn list(&self, _prefix: Option<&Path>) -> Result<Vec<(Path, u64)>> {
        todo!()
    }
    /// stub
    pub fn map_local(&self, _path: &Path) -> Result<Option<Bytes>> {
        todo!()
    }
}

/// stub
pub async fn open(_config: &Config, _disk: Arc<dyn Disk>) -> Result<Objects> {
    todo!()
}
