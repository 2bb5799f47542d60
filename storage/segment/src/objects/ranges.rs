//! Reads of ranges of objects, wherever an object is.

use std::ops::Range;

use bytes::Bytes;
use millrace_runtime::{Error, Result};
use object_store::ObjectStoreExt;
use object_store::path::Path;

use super::{Objects, lift};

impl Objects {
    /// Reads a range of an object; it must lie within.
    ///
    /// # Errors
    /// The store's, and a range beyond the object.
    pub async fn get_range(&self, path: &Path, range: Range<u64>) -> Result<Bytes> {
        let mut ranges = self.get_ranges(path, std::slice::from_ref(&range)).await?;
        ranges.pop().ok_or_else(|| Error::Internal(format!("no answer for a range of [{path}]")))
    }

    /// Reads ranges of an object, in order; each must lie within. Neighbours are fetched together
    /// from a remote store.
    ///
    /// # Errors
    /// The store's, and a range beyond the object.
    pub async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        match self.origins.find(path)? {
            Some((origin, there)) => origin.get_own_ranges(&there, ranges).await,
            None => self.get_own_ranges(path, ranges).await,
        }
    }

    async fn get_own_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        if self.local.is_some() {
            return self.store.get_ranges(path, ranges).await.map_err(lift);
        }
        let beyond = |range: &Range<u64>, found: u64| Error::Corrupt {
            file: path.to_string(),
            offset: range.start,
            reason: format!("{found} bytes where {} to {} were expected", range.start, range.end),
        };
        if let Some(range) = ranges.iter().find(|range| range.start > range.end) {
            return Err(beyond(range, 0));
        }
        // A service answers a range that goes beyond the object with what there is.
        let fetch = |range: Range<u64>| async move {
            if range.is_empty() {
                return Ok(Bytes::new());
            }
            let bytes = self.store.get_range(path, range.clone()).await.map_err(lift)?;
            match bytes.len() as u64 {
                found if found == range.end - range.start => Ok(bytes),
                found => Err(beyond(&range, found)),
            }
        };
        object_store::coalesce_ranges(ranges, fetch, object_store::OBJECT_STORE_COALESCE_DEFAULT).await
    }
}
