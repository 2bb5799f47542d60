//! A repository that fails, loses answers, loses connections, is slow or is full: requests fail by the repository's name, and what
//! is listed afterwards is whole.

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
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;

use crate::support::*;

/// Requests of which one goes wrong.
const PERIOD: usize = 5;
/// Turns of other tasks that a slow request takes.
const SLOW_TURNS: usize = 50;

/// Fault of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outage {
    /// One request of a few is answered with an internal error.
    Errors,
    /// One request of a few is carried out, and its answer is lost.
    LostAnswers,
    /// A connection breaks behind the first half of an answer.
    Disconnects,
    /// Each request takes a while.
    Slow,
    /// No object is taken any more.
    Full,
    /// No request is answered.
    Gone,
    /// A write of a new object is carried out, its answer is lost, and the client repeats it.
    RepeatedWrites,
    /// Reads of whole Parquet files wait until the fault ends; readers of segments read ranges of these.
    HeldCopies,
}

/// An object store with a fault that begins and ends.
#[derive(Clone, Debug)]
pub(crate) struct FaultyStore {
    pub(crate) objects: Arc<InMemory>,
    outage: Arc<Mutex<Option<Outage>>>,
    requests: Arc<AtomicUsize>,
}

impl FaultyStore {
    pub(crate) fn new(offset: usize) -> Self {
        let requests = Arc::new(AtomicUsize::new(offset));
        Self { objects: Arc::default(), outage: Arc::default(), requests }
    }

    pub(crate) fn set_outage(&self, outage: Option<Outage>) {
        *self.outage.lock() = outage;
    }

    fn outage(&self) -> Option<Outage> {
        *self.outage.lock()
    }

    fn failed(reason: &'static str) -> Error {
        Error::Generic { store: "FaultyStore", source: reason.into() }
    }

    async fn run<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        let is_chosen = self.requests.fetch_add(1, Ordering::SeqCst).is_multiple_of(PERIOD);
        match self.outage() {
            Some(Outage::Gone) => Err(Self::failed("connection refused")),
            Some(Outage::Errors) if is_chosen => Err(Self::failed("500 Internal Server Error")),
            Some(Outage::LostAnswers) if is_chosen => {
                request.await?;
                Err(Self::failed("connection reset by peer"))
            }
            Some(Outage::Slow) => {
                for _ in 0..SLOW_TURNS {
                    tokio::task::yield_now().await;
                }
                request.await
            }
            _ => request.await,
        }
    }

    fn check_space(&self) -> Result<()> {
        match self.outage() {
            Some(Outage::Full) => Err(Self::failed("507 Insufficient Storage")),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyStore")
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.check_space()?;
        if self.outage() == Some(Outage::RepeatedWrites) && options.mode == PutMode::Create {
            self.objects.put_opts(path, payload.clone(), options.clone()).await?;
        }
        self.run(self.objects.put_opts(path, payload, options)).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.check_space()?;
        self.run(self.objects.put_multipart_opts(path, options)).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let is_head = options.head;
        let is_whole = options.range.is_none() && !is_head;
        let mut found = self.run(self.objects.get_opts(path, options)).await?;
        if is_whole && self.outage() == Some(Outage::HeldCopies) {
            let range = Some((0..found.meta.size.min(4)).into());
            let head = GetOptions { range, ..GetOptions::default() };
            let magic = self.objects.get_opts(path, head).await?.bytes().await?;
            while magic.as_ref() == b"PAR1" && self.outage() == Some(Outage::HeldCopies) {
                tokio::task::yield_now().await;
            }
            if self.outage() == Some(Outage::Gone) {
                return Err(Self::failed("connection refused"));
            }
        }
        if is_head || self.outage() != Some(Outage::Disconnects) {
            return Ok(found);
        }
        let (meta, range, attributes) = (found.meta.clone(), found.range.clone(), found.attributes.clone());
        let bytes = found.bytes().await?;
        let half = bytes.slice(..bytes.len().div_ceil(2));
        let is_all = half.len() == bytes.len();
        let lost = (!is_all).then(|| Err(Self::failed("connection reset by peer")));
        let pieces = stream::iter([Ok(half)].into_iter().chain(lost)).boxed();
        found = GetResult { payload: GetResultPayload::Stream(pieces), meta, range, attributes };
        Ok(found)
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
        let is_chosen = self.requests.fetch_add(1, Ordering::SeqCst).is_multiple_of(PERIOD);
        match self.outage() {
            Some(Outage::Gone) => stream::iter([Err(Self::failed("connection refused"))]).boxed(),
            Some(Outage::Errors | Outage::LostAnswers) if is_chosen => {
                stream::iter([Err(Self::failed("500 Internal Server Error"))]).boxed()
            }
            _ => self.objects.list(prefix),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.run(self.objects.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.run(self.objects.copy_opts(from, to, options)).await
    }
}

pub(crate) async fn service_over(engine: &Arc<Engine>, store: &FaultyStore) -> SnapshotService {
    let service = SnapshotService::open(Arc::clone(engine), Config::default()).await.unwrap();
    let objects = Objects::remote(Arc::new(store.clone()), Arc::new(SystemDisk));
    let repository = Repository::new("backup", objects, false, engine.store_id());
    service.register_open(repository).await.unwrap();
    service
}

/// Checks that a request has failed by the repository's name, if it has failed.
fn check_refusal<T>(outcome: &millrace_snapshot::Result<T>, context: &str) {
    if let Err(error) = outcome {
        assert!(error.to_string().contains("[backup"), "{context}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_repository_leaves_whole_snapshots() {
    let data = tempfile::tempdir().unwrap();
    let engine = open(data.path()).await;
    let mut first = BTreeMap::new();
    fill(&engine, "logs", 0..40, 1, &mut first).await;
    flush(&engine, "logs").await;
    let system = Principal::system();
    let mut value = 2;
    let outages = [Outage::Errors, Outage::LostAnswers, Outage::Disconnects, Outage::Slow, Outage::Full];
    for (outage, offset) in outages.into_iter().flat_map(|outage| (0..PERIOD).map(move |at| (outage, at))) {
        let is_periodic = matches!(outage, Outage::Errors | Outage::LostAnswers);
        if offset > 0 && !is_periodic {
            continue;
        }
        let context = format!("{outage:?} from request {offset} on");
        let store = FaultyStore::new(offset);
        let service = service_over(&engine, &store).await;
        create(&service, "one").await;
        let at_one = first.clone();
        fill(&engine, "logs", 20..50, value, &mut first).await;
        value += 1;
        flush(&engine, "logs").await;
        store.set_outage(Some(outage));
        let created = service.create(&system, ("backup", "two"), CreateSnapshot::default()).await;
        let cloned =
            service.clone_snapshot("backup", "one", "three", ("logs", SelectionOptions::default())).await;
        let restored = restore_copies(&service, "one").await;
        check_refusal(&created, &context);
        check_refusal(&cloned, &context);
        check_refusal(&restored, &context);
        match &restored {
            Ok(_) => {
                check(&engine, "copy-logs", &at_one).await;
                delete_index(&engine, "copy-logs").await;
            }
            Err(_) => assert!(engine.metadata().index("copy-logs").is_none(), "{context}"),
        }
        let deleted = service.delete("backup", "one").await;
        check_refusal(&deleted, &context);
        match outage {
            Outage::Slow | Outage::Disconnects => {
                assert!(
                    created.is_ok() && cloned.is_ok() && restored.is_ok() && deleted.is_ok(),
                    "{context}"
                );
            }
            Outage::Full => assert!(created.is_err() && cloned.is_err() && restored.is_ok(), "{context}"),
            _ => {}
        }
        store.set_outage(None);

        // A creation that failed is tried again, over what the failed one left.
        if created.is_err() {
            let filter = SnapshotFilter { expression: "two".to_owned(), ignore_unavailable: true };
            if service.manifests("backup", &filter).await.unwrap().is_empty() {
                create(&service, "two").await;
            }
        }
        service.cleanup_repository("backup").await.unwrap();
        let filter = SnapshotFilter { expression: "_all".to_owned(), ignore_unavailable: false };
        let listed = service.manifests("backup", &filter).await.unwrap();
        let names: Vec<&str> = listed.iter().map(|manifest| manifest.snapshot.as_str()).collect();
        assert!(names.contains(&"two"), "{context}: {names:?}");
        assert!(cloned.is_err() || names.contains(&"three"), "{context}: {names:?}");
        assert!(deleted.is_err() || !names.contains(&"one"), "{context}: {names:?}");
        for name in names {
            restore_copies(&service, name).await.unwrap_or_else(|error| panic!("{context}: {error}"));
            check(&engine, "copy-logs", if name == "two" { &first } else { &at_one }).await;
            delete_index(&engine, "copy-logs").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_other_programs_and_versions_are_named_and_keep_all_contents() {
    use object_store::ObjectStoreExt;
    let data = tempfile::tempdir().unwrap();
    let engine = open(data.path()).await;
    let mut expected = BTreeMap::new();
    fill(&engine, "logs", 0..40, 1, &mut expected).await;
    let store = FaultyStore::new(1);
    let service = service_over(&engine, &store).await;
    create(&service, "one").await;
    create(&service, "two").await;
    // Another program's file under the name of a manifest.
    let foreign = Path::from("snapshots/foreign.manifest");
    store.objects.put(&foreign, Bytes::from_static(b"{\"snapshots\": []}").into()).await.unwrap();
    let filter = |ignore_unavailable| SnapshotFilter { expression: "_all".to_owned(), ignore_unavailable };
    let refused = service.list("backup", &filter(false), true).await.unwrap_err().to_string();
    assert!(refused.contains("snapshots/foreign.manifest"), "{refused}");
    assert_eq!(service.manifests("backup", &filter(true)).await.unwrap().len(), 2);
    // Nobody knows which files it needs.
    assert_eq!(service.delete("backup", "two").await.unwrap().files, 0);
    let refused = service.cleanup_repository("backup").await.unwrap_err().to_string();
    assert!(refused.contains("snapshots/foreign.manifest"), "{refused}");
    restore_copies(&service, "one").await.unwrap();
    check(&engine, "copy-logs", &expected).await;
    delete_index(&engine, "copy-logs").await;
    store.objects.delete(&foreign).await.unwrap();
    service.cleanup_repository("backup").await.unwrap();

    // A repository of a later version is left alone.
    let marker = Path::from("repository.json");
    let bytes = store.objects.get(&marker).await.unwrap().bytes().await.unwrap();
    let later = String::from_utf8(bytes.to_vec()).unwrap().replace("\"format\":1", "\"format\":2");
    store.objects.put(&marker, later.into_bytes().into()).await.unwrap();
    let system = Principal::system();
    let refused = service.create(&system, ("backup", "three"), CreateSnapshot::default()).await.unwrap_err();
    assert!(refused.to_string().contains("it has format 2; this program reads 1"), "{refused}");
    assert!(service.delete("backup", "one").await.is_err());
    store.objects.put(&marker, bytes.into()).await.unwrap();
    restore_copies(&service, "one").await.unwrap();
    check(&engine, "copy-logs", &expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_was_written_twice_is_this_snapshot() {
    let data = tempfile::tempdir().unwrap();
    let engine = open(data.path()).await;
    let mut expected = BTreeMap::new();
    fill(&engine, "logs", 0..10, 1, &mut expected).await;
    let store = FaultyStore::new(1);
    let service = service_over(&engine, &store).await;
    store.set_outage(Some(Outage::RepeatedWrites));
    let made = create(&service, "one").await;
    store.set_outage(None);
    let filter = SnapshotFilter { expression: "one".to_owned(), ignore_unavailable: false };
    let listed = service.manifests("backup", &filter).await.unwrap();
    assert_eq!(listed[0].uuid, made.uuid);
    let again =
        service.create(&Principal::system(), ("backup", "one"), CreateSnapshot::default()).await.unwrap_err();
    assert!(again.to_string().contains("already exists"), "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_ends_a_verification_and_is_no_damage() {
    let data = tempfile::tempdir().unwrap();
    let engine = open(data.path()).await;
    for index in ["a", "b", "c", "d", "e", "f"] {
        fill(&engine, index, 0..5, 1, &mut BTreeMap::new()).await;
    }
    let store = FaultyStore::new(1);
    let service = service_over(&engine, &store).await;
    create(&service, "one").await;
    store.set_outage(Some(Outage::Gone));
    let refused = verify(&service, None).await.unwrap_err();
    assert!(refused.to_string().contains("[backup]"), "{refused}");
    store.set_outage(None);
    let report = verify(&service, None).await.unwrap();
    assert_eq!(report.total_damaged, 0, "{report:?}");
}
