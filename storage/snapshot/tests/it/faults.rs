//! An object store that stops at any request: snapshots that are listed are whole, before and after.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use millrace_catalog::access::Principal;
use millrace_engine::Engine;
use millrace_runtime::disk::SystemDisk;
use millrace_segment::objects::Objects;
use millrace_snapshot::{
    Config, CreateSnapshot, Repository, SelectionOptions, SnapshotFilter, SnapshotService,
};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use crate::support::*;

/// Outcome of the request at which the store stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    /// It is not carried out.
    Lost,
    /// It is carried out, and answered with an error.
    Unanswered,
}

/// Fails every request from some number on.
#[derive(Clone, Debug)]
struct StoppingStore {
    objects: Arc<InMemory>,
    requests: Arc<AtomicUsize>,
    stop_at: usize,
    last: Last,
}

impl StoppingStore {
    fn new(objects: &Arc<InMemory>, stop_at: usize, last: Last) -> Self {
        Self { objects: Arc::clone(objects), requests: Arc::default(), stop_at, last }
    }

    /// Counts a request; tells whether it is carried out, and whether it is answered.
    fn begin(&self) -> (bool, bool) {
        let number = self.requests.fetch_add(1, Ordering::SeqCst);
        let is_last = number == self.stop_at && self.last == Last::Unanswered;
        (number < self.stop_at || is_last, number < self.stop_at)
    }

    fn stopped(&self) -> Error {
        // Not one that is tried again.
        Error::NotSupported { source: "the store has stopped".into() }
    }

    async fn run<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        let (done, answered) = self.begin();
        if !done {
            return Err(self.stopped());
        }
        let result = request.await;
        if answered { result } else { Err(self.stopped()) }
    }

    fn has_stopped(&self) -> bool {
        self.requests.load(Ordering::SeqCst) > self.stop_at
    }
}

impl fmt::Display for StoppingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoppingStore")
    }
}

#[async_trait]
impl ObjectStore for StoppingStore {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.run(self.objects.put_opts(path, payload, options)).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.run(self.objects.put_multipart_opts(path, options)).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.run(self.objects.get_opts(path, options)).await
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.run(self.objects.get_ranges(path, ranges)).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let this = self.clone();
        let deletions = paths.then(move |path| {
            let this = this.clone();
            async move {
                let path = path?;
                let one = stream::iter([Ok(path.clone())]).boxed();
                let deletion = async { this.objects.delete_stream(one).next().await.unwrap_or(Ok(path)) };
                this.run(deletion).await
            }
        });
        deletions.boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.begin() {
            (_, true) => self.objects.list(prefix),
            _ => stream::iter([Err(self.stopped())]).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.run(self.objects.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.run(self.objects.copy_opts(from, to, options)).await
    }
}

async fn service_over(engine: &Arc<Engine>, store: Arc<dyn ObjectStore>) -> SnapshotService {
    let service = SnapshotService::open(Arc::clone(engine), Config::default()).await.unwrap();
    let objects = Objects::remote(store, Arc::new(SystemDisk));
    let repository = Repository::new("backup", objects, false, engine.store_id());
    // Where the store stops at once, there is no marker yet, and all that follows is refused.
    let _ = service.register_open(repository).await;
    service
}

async fn copy_of(objects: &InMemory) -> Arc<InMemory> {
    use object_store::ObjectStoreExt;
    let copy = InMemory::new();
    let mut listed = objects.list(None);
    while let Some(object) = listed.next().await {
        let path = object.unwrap().location;
        let bytes = objects.get(&path).await.unwrap().bytes().await.unwrap();
        copy.put(&path, bytes.into()).await.unwrap();
    }
    Arc::new(copy)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_stops_at_any_request_has_whole_snapshots() {
    let data = tempfile::tempdir().unwrap();
    let engine = open(data.path()).await;
    let base = Arc::new(InMemory::new());
    let mut expected = BTreeMap::new();
    fill(&engine, "logs", 0..40, 1, &mut expected).await;
    let healthy = service_over(&engine, base.clone()).await;
    create(&healthy, "one").await;
    let at_one = expected.clone();
    fill(&engine, "logs", 30..60, 2, &mut expected).await;
    delete(&engine, "logs", "d3", &mut expected).await;
    flush(&engine, "logs").await;
    for last in [Last::Lost, Last::Unanswered] {
        let mut stop_at = 0;
        loop {
            let objects = copy_of(&base).await;
            let stopping = StoppingStore::new(&objects, stop_at, last);
            let service = service_over(&engine, Arc::new(stopping.clone())).await;
            let system = Principal::system();
            let created = service.create(&system, ("backup", "two"), CreateSnapshot::default()).await;
            let cloned =
                service.clone_snapshot("backup", "one", "three", ("logs", SelectionOptions::default())).await;
            let deleted = service.delete("backup", "one").await;
            let ended = !stopping.has_stopped();
            drop(service);

            let after = service_over(&engine, objects.clone()).await;
            // What is missing now is missing afterwards, and what is removed wrongly as well.
            after.cleanup_repository("backup").await.unwrap();
            let filter = SnapshotFilter { expression: "_all".to_owned(), ignore_unavailable: false };
            let listed = after.manifests("backup", &filter).await.unwrap();
            let names: Vec<&str> = listed.iter().map(|manifest| manifest.snapshot.as_str()).collect();
            let context = format!("{last:?} at request {stop_at}: {names:?}");
            assert!(created.is_err() || names.contains(&"two"), "{context}");
            assert!(cloned.is_err() || names.contains(&"three"), "{context}");
            assert!(deleted.is_err() || !names.contains(&"one"), "{context}");
            for name in names {
                restore_copies(&after, name).await.unwrap_or_else(|error| panic!("{context}: {error}"));
                check(&engine, "copy-logs", if name == "two" { &expected } else { &at_one }).await;
                delete_index(&engine, "copy-logs").await;
            }
            if ended {
                break;
            }
            stop_at += 1;
        }
        assert!(stop_at > 15, "the workload has steps: {stop_at}");
    }
}
