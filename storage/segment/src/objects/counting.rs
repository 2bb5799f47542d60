//! An object store that is elsewhere, for tests: it counts what is fetched, gives it in pieces, and can be made to wait or
//! to fail.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::local::StoreResult;

/// Bytes of a piece.
const PIECE_BYTES: usize = 64 << 10;

/// See the [module](self). Clones share it.
#[derive(Clone, Debug)]
pub struct CountingStore {
    objects: Arc<InMemory>,
    state: Arc<Mutex<State>>,
    open: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    gets: BTreeMap<String, usize>,
    failing: bool,
    /// File that is fetched to, and the most bytes that were given and not in it.
    watched: Option<(PathBuf, usize)>,
}

impl Default for CountingStore {
    fn default() -> Self {
        Self { objects: Arc::default(), state: Arc::default(), open: watch::Sender::new(true) }
    }
}

impl CountingStore {
    /// Has whole objects be given only while it is open.
    pub fn open(&self, open: bool) {
        self.open.send_replace(open);
    }

    /// Has gets of whole objects fail.
    pub fn fail(&self, failing: bool) {
        self.state.lock().failing = failing;
    }

    /// Returns the number of reads of whole objects, of those whose path ends so.
    pub fn gets(&self, end: &str) -> Vec<usize> {
        self.state.lock().gets.iter().filter(|(path, _)| path.ends_with(end)).map(|(_, gets)| *gets).collect()
    }

    /// The paths that end so.
    pub fn paths(&self, end: &str) -> Vec<String> {
        let objects = self.objects.list(None).map(|object| object.map(|object| object.location.to_string()));
        let paths = futures::executor::block_on(objects.collect::<Vec<_>>()).into_iter().flatten();
        paths.filter(|path| path.ends_with(end)).collect()
    }

    /// Watches a file that is fetched to.
    pub fn watch(&self, file: PathBuf) {
        self.state.lock().watched = Some((file, 0));
    }

    /// The most bytes that were given and not in the watched file when more were asked for.
    pub fn most_held(&self) -> usize {
        self.state.lock().watched.as_ref().map_or(0, |(_, most)| *most)
    }

    fn piece(&self, bytes: &Bytes, at: usize) -> Bytes {
        if let Some((file, most)) = &mut self.state.lock().watched {
            let written = std::fs::metadata(file).map_or(0, |metadata| metadata.len());
            *most = (*most).max(at.saturating_sub(written as usize));
        }
        bytes.slice(at..bytes.len().min(at + PIECE_BYTES))
    }
}

impl fmt::Display for CountingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counting")
    }
}

#[async_trait]
impl ObjectStore for CountingStore {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> StoreResult<PutResult> {
        self.objects.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> StoreResult<Box<dyn MultipartUpload>> {
        self.objects.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> StoreResult<GetResult> {
        let whole = options.range.is_none() && !options.head;
        let mut found = self.objects.get_opts(path, options).await?;
        if !whole {
            return Ok(found);
        }
        *self.state.lock().gets.entry(path.to_string()).or_default() += 1;
        let _ = self.open.subscribe().wait_for(|open| *open).await;
        if self.state.lock().failing {
            return Err(object_store::Error::Generic { store: "Counting", source: "told to fail".into() });
        }
        let bytes = self.objects.get_opts(path, GetOptions::default()).await?.bytes().await?;
        let this = self.clone();
        let pieces = (0..bytes.len()).step_by(PIECE_BYTES);
        let pieces = stream::iter(pieces).map(move |at| Ok(this.piece(&bytes, at)));
        found.payload = GetResultPayload::Stream(pieces.boxed());
        Ok(found)
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> StoreResult<Vec<Bytes>> {
        self.objects.get_ranges(path, ranges).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, StoreResult<Path>>,
    ) -> BoxStream<'static, StoreResult<Path>> {
        self.objects.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        self.objects.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> StoreResult<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> StoreResult<()> {
        self.objects.copy_opts(from, to, options).await
    }
}
