//! Counts the requests to a remote object store by kind and outcome.
//!
//! [`MeteredStore`] stands in front of the service, so a request that the service client tries again counts once. Local stores are not
//! metered: their files are read through memory maps.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult,
};

use super::Objects;
use super::local::StoreResult;

/// Kind of a request to an object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectRequestKind {
    /// Reads of objects or of ranges.
    Get,
    /// Reads of lengths and versions.
    Head,
    /// Writes of whole objects.
    Put,
    /// Beginnings of uploads in parts.
    Upload,
    /// Deletions of single objects.
    Delete,
    /// Lists.
    List,
    /// Copies within the store.
    Copy,
}

/// Outcome of a request to an object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectRequestOutcome {
    /// The service did it.
    Succeeded,
    /// The object is missing, or a condition does not hold: mostly what the caller wants to know.
    Refused,
    /// Anything else.
    Failed,
}

impl ObjectRequestKind {
    const ALL: [Self; 7] =
        [Self::Get, Self::Head, Self::Put, Self::Upload, Self::Delete, Self::List, Self::Copy];

    /// Returns the name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Head => "head",
            Self::Put => "put",
            Self::Upload => "upload",
            Self::Delete => "delete",
            Self::List => "list",
            Self::Copy => "copy",
        }
    }
}

impl ObjectRequestOutcome {
    const ALL: [Self; 3] = [Self::Succeeded, Self::Refused, Self::Failed];

    /// Returns the name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }

    fn new<T>(result: &StoreResult<T>) -> Self {
        match result {
            Ok(_) => Self::Succeeded,
            Err(
                Error::NotFound { .. }
                | Error::AlreadyExists { .. }
                | Error::Precondition { .. }
                | Error::NotModified { .. },
            ) => Self::Refused,
            Err(_) => Self::Failed,
        }
    }
}

/// Counts of requests since the start.
#[derive(Debug, Default)]
pub(super) struct RequestCounts([[AtomicU64; 3]; 7]);

impl RequestCounts {
    fn add(&self, kind: ObjectRequestKind, outcome: ObjectRequestOutcome) {
        self.0[kind as usize][outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Reads all counts, zeros included.
    pub(super) fn snapshot(&self) -> Vec<(ObjectRequestKind, ObjectRequestOutcome, u64)> {
        let outcomes = |kind: ObjectRequestKind| {
            ObjectRequestOutcome::ALL.into_iter().map(move |outcome| {
                (kind, outcome, self.0[kind as usize][outcome as usize].load(Ordering::Relaxed))
            })
        };
        ObjectRequestKind::ALL.into_iter().flat_map(outcomes).collect()
    }
}

impl Objects {
    /// Counts the requests to a remote store since the start, by kind and outcome. A local store has none.
    pub fn requests(&self) -> Vec<(ObjectRequestKind, ObjectRequestOutcome, u64)> {
        self.requests.snapshot()
    }
}

/// Records a list once its stream is dropped.
struct OutcomeGuard {
    counts: Arc<RequestCounts>,
    kind: ObjectRequestKind,
    outcome: ObjectRequestOutcome,
}

impl OutcomeGuard {
    fn note<T>(&mut self, result: &StoreResult<T>) {
        if result.is_err() {
            self.outcome = ObjectRequestOutcome::new(result);
        }
    }
}

impl Drop for OutcomeGuard {
    fn drop(&mut self) {
        self.counts.add(self.kind, self.outcome);
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct MeteredStore {
    store: Arc<dyn ObjectStore>,
    counts: Arc<RequestCounts>,
}

impl MeteredStore {
    pub(super) fn new(store: Arc<dyn ObjectStore>, counts: &Arc<RequestCounts>) -> Self {
        Self { store, counts: Arc::clone(counts) }
    }

    fn count<T>(&self, kind: ObjectRequestKind, result: StoreResult<T>) -> StoreResult<T> {
        self.counts.add(kind, ObjectRequestOutcome::new(&result));
        result
    }
}

impl fmt::Display for MeteredStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for MeteredStore {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> StoreResult<PutResult> {
        let put = self.store.put_opts(path, payload, options).await;
        self.count(ObjectRequestKind::Put, put)
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> StoreResult<Box<dyn MultipartUpload>> {
        let begun = self.store.put_multipart_opts(path, options).await;
        self.count(ObjectRequestKind::Upload, begun)
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> StoreResult<GetResult> {
        let kind = if options.head { ObjectRequestKind::Head } else { ObjectRequestKind::Get };
        let got = self.store.get_opts(path, options).await;
        self.count(kind, got)
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, StoreResult<Path>>,
    ) -> BoxStream<'static, StoreResult<Path>> {
        let counts = Arc::clone(&self.counts);
        let deleted = self.store.delete_stream(paths);
        deleted
            .inspect(move |deleted| counts.add(ObjectRequestKind::Delete, ObjectRequestOutcome::new(deleted)))
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        let mut guard = OutcomeGuard {
            counts: Arc::clone(&self.counts),
            kind: ObjectRequestKind::List,
            outcome: ObjectRequestOutcome::Succeeded,
        };
        let note = move |object: &StoreResult<ObjectMeta>| guard.note(object);
        self.store.list(prefix).inspect(note).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> StoreResult<ListResult> {
        let listed = self.store.list_with_delimiter(prefix).await;
        self.count(ObjectRequestKind::List, listed)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> StoreResult<()> {
        let copied = self.store.copy_opts(from, to, options).await;
        self.count(ObjectRequestKind::Copy, copied)
    }
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn requests_are_counted_by_kind_and_outcome() {
        let counts = Arc::<RequestCounts>::default();
        let store = MeteredStore::new(Arc::new(InMemory::new()), &counts);
        let (path, missing) = (Path::from("a"), Path::from("b"));
        store.put(&path, vec![1, 2, 3].into()).await.unwrap();
        store.get(&path).await.unwrap();
        store.get_range(&path, 0..1).await.unwrap();
        store.get(&missing).await.unwrap_err();
        store.head(&path).await.unwrap();
        store.list(None).try_collect::<Vec<_>>().await.unwrap();
        store.delete(&path).await.unwrap();
        let counted: Vec<_> = counts.snapshot().into_iter().filter(|(_, _, count)| *count > 0).collect();
        let (succeeded, refused) = (ObjectRequestOutcome::Succeeded, ObjectRequestOutcome::Refused);
        assert_eq!(
            counted,
            [
                (ObjectRequestKind::Get, succeeded, 2),
                (ObjectRequestKind::Get, refused, 1),
                (ObjectRequestKind::Head, succeeded, 1),
                (ObjectRequestKind::Put, succeeded, 1),
                (ObjectRequestKind::Delete, succeeded, 1),
                (ObjectRequestKind::List, succeeded, 1),
            ]
        );
    }
}
