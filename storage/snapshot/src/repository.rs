//! A repository: an object store with contents named by their SHA-256, a manifest a snapshot, and one writer.
//!
//! Contents come first, the manifest last, so a manifest never names what is not there. Deletion takes the manifest first, then
//! what no other manifest needs. `repository.json` names the store that writes; a store that registers the repository takes it over,
//! and the one before is refused from then on.

mod transfers;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use millrace_runtime::Error as StoreError;
use millrace_runtime::sync::blocking;
use millrace_segment::objects::{Objects, is_missing};
use object_store::path::Path;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedMutexGuard;
use uuid::Uuid;

use crate::collection::References;
use crate::contents::IndexContents;
use crate::digest::ContentDigest;
use crate::error::{Error, Result};
use crate::manifest::{FORMAT, MAX_FILE_BYTES, Manifest, decode_json};
use crate::names::{manifest_file_name, snapshot_of_file};
use crate::transfer_limits::TransferLimits;

/// Name of the object that says what the repository is and who writes there.
const MARKER: &str = "repository.json";
/// Directory of the manifests.
const SNAPSHOTS: &str = "snapshots";
/// Directory of the contents.
const CONTENTS: &str = "contents";
/// Requests to the object store at once.
const AT_ONCE: usize = 16;
/// Manifests that are read at once.
const MANIFESTS_AT_ONCE: usize = 4;
/// Bytes of a file of which one is read at a time.
const LARGE_BYTES: u64 = 1 << 20;
/// Time after which a test file, or a file under construction, is one that nobody misses.
const ABANDONED_MS: i64 = 24 * 3600 * 1000;
/// Damaged contents that are remembered, at most; further ones are not written anew.
const MAX_DAMAGED: usize = 100_000;
/// Directory of the files that a verification writes.
const TESTS: &str = "tests";

/// Content of [`MARKER`].
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Marker {
    format: u32,
    repository: Uuid,
    writer: Uuid,
}

/// A repository that is open.
#[derive(Clone, Debug)]
pub struct Repository {
    name: Arc<str>,
    objects: Objects,
    readonly: bool,
    /// Store on whose behalf it writes.
    store: Uuid,
    decoding: Arc<DecodingLimit>,
    /// Bounds on the bytes a second of uploads and of restores.
    limits: Arc<TransferLimits>,
    /// `true` once the names of all contents are durable, whatever processes before this one have left.
    has_durable_names: Arc<AtomicBool>,
    /// Contents whose bytes are not those of their names: a snapshot that needs one writes it anew.
    damaged: Arc<Mutex<HashSet<ContentDigest>>>,
    /// Held by a verification of its files.
    verifying: Arc<tokio::sync::Mutex<()>>,
}

/// Bounds the memory of manifests and contents that are decoded: a small file may inflate to a large one.
#[derive(Debug, Default)]
struct DecodingLimit {
    /// Held while a file is decoded.
    one: Mutex<()>,
    /// Held from before a large file is read.
    large: tokio::sync::Mutex<()>,
}

/// Files that a collection removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CollectedFiles {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

impl Repository {
    /// Wraps an object store; `store` is the id of the store that writes.
    pub fn new(name: &str, objects: Objects, readonly: bool, store: Uuid) -> Self {
        let (decoding, limits, has_durable_names, damaged, verifying) = Default::default();
        let name = name.into();
        Self { name, objects, readonly, store, decoding, limits, has_durable_names, damaged, verifying }
    }

    /// Bounds the bytes a second of its uploads and of its restores.
    #[must_use]
    pub fn with_limits(mut self, limits: TransferLimits) -> Self {
        self.limits = Arc::new(limits);
        self
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the object store of its files.
    pub(crate) fn objects(&self) -> &Objects {
        &self.objects
    }

    pub(crate) fn is_readonly(&self) -> bool {
        self.readonly
    }

    fn fail(&self, operation: &str, error: &impl std::fmt::Display) -> Error {
        Error::Repository {
            repository: self.name.to_string(),
            reason: format!("cannot {operation}: {error}"),
        }
    }

    /// Refuses a change of a repository that is only read.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if !self.readonly {
            return Ok(());
        }
        let reason = "cannot change a readonly repository".to_owned();
        Err(Error::Repository { repository: self.name.to_string(), reason })
    }

    async fn read_marker(&self) -> Result<Option<(Marker, object_store::UpdateVersion)>> {
        let path = Path::from(MARKER);
        let decode = |bytes: &Bytes| {
            serde_json::from_slice::<Marker>(bytes).map_err(|error| StoreError::Corrupt {
                file: MARKER.to_owned(),
                offset: 0,
                reason: error.to_string(),
            })
        };
        let found = self.objects.get_versioned(&path, decode).await;
        let found = found.map_err(|error| self.fail("read repository.json", &error))?;
        if let Some((marker, _)) = &found
            && marker.format != FORMAT
        {
            let reason = format!("it has format {}; this program reads {FORMAT}", marker.format);
            return Err(Error::Repository { repository: self.name.to_string(), reason });
        }
        Ok(found)
    }

    /// Refuses a place that this store cannot make a repository, before anything is written there.
    ///
    /// # Errors
    /// As [`Repository::claim`].
    pub(crate) async fn check_place(&self) -> Result<()> {
        match self.read_marker().await? {
            Some(_) => Ok(()),
            None => self.refuse_foreign_files().await,
        }
    }

    /// Makes this store the writer of the repository, which may be empty or another store's.
    ///
    /// # Errors
    /// [`Error::Repository`] for a place with files of something else, and the object store's.
    pub(crate) async fn claim(&self) -> Result<()> {
        let found = self.read_marker().await?;
        let (marker, expected) = match found {
            Some((marker, _)) if marker.writer == self.store => return Ok(()),
            Some((marker, version)) => (Marker { writer: self.store, ..marker }, Some(version)),
            None => {
                self.refuse_foreign_files().await?;
                (Marker { format: FORMAT, repository: Uuid::new_v4(), writer: self.store }, None)
            }
        };
        let bytes =
            serde_json::to_vec(&marker).map_err(|error| self.fail("encode repository.json", &error))?;
        let put = self.objects.put_expecting(&Path::from(MARKER), bytes.into(), Some(expected)).await;
        match put.map_err(|error| self.fail("write repository.json", &error))? {
            true => Ok(()),
            false => Err(self.fail("write repository.json", &"another store registers it at this moment")),
        }
    }

    async fn refuse_foreign_files(&self) -> Result<()> {
        let listed =
            self.objects.list(None).await.map_err(|error| self.fail("list the repository", &error))?;
        // A repository whose repository.json was lost has nothing but files of its own.
        match listed.iter().find(|object| !Self::is_own_file(&object.location)) {
            None => Ok(()),
            Some(object) => {
                let reason = format!(
                    "the place holds [{}], which is no file of a Millrace repository; name an empty one",
                    object.location
                );
                Err(Error::Repository { repository: self.name.to_string(), reason })
            }
        }
    }

    fn is_own_file(path: &Path) -> bool {
        let Some(name) = path.filename() else { return false };
        let is_content = || name.parse().is_ok_and(|digest| *path == Self::content_path(digest));
        match path.parts().next().as_ref().map(AsRef::as_ref) {
            Some(SNAPSHOTS) => snapshot_of_file(name).is_some(),
            Some(CONTENTS) => is_content(),
            Some(TESTS) => name.parse::<Uuid>().is_ok(),
            _ => false,
        }
    }

    /// Refuses to write once another store is the writer.
    pub(crate) async fn check_writer(&self) -> Result<()> {
        self.check_writable()?;
        let writer = self.read_marker().await?.map(|(marker, _)| marker.writer);
        if writer == Some(self.store) {
            return Ok(());
        }
        let reason = match writer {
            Some(other) => {
                format!("store {other} writes to the repository now; register it again to take it over")
            }
            None => "repository.json is missing; register the repository again".to_owned(),
        };
        Err(Error::Repository { repository: self.name.to_string(), reason })
    }

    /// Writes, reads and deletes an object, or only lists where the repository is read alone.
    ///
    /// # Errors
    /// [`Error::Verification`].
    pub(crate) async fn verify(&self) -> Result<()> {
        let fault = |step: &str, error: &dyn std::fmt::Display| Error::Verification {
            repository: self.name.to_string(),
            reason: format!("cannot {step}: {error}"),
        };
        if self.readonly {
            let listed = self.objects.list_dirs(None).await;
            return listed.map(drop).map_err(|error| fault("list the repository", &error));
        }
        let path = Path::from_iter([TESTS.to_owned(), Uuid::new_v4().simple().to_string()]);
        let content = Bytes::from(path.to_string());
        let put = self.objects.put(&path, content.clone()).await;
        put.map_err(|error| fault("write a test file", &error))?;
        let read = self.objects.get(&path).await.map_err(|error| fault("read a test file", &error))?;
        let deleted = self.objects.delete(&path).await;
        deleted.map_err(|error| fault("delete a test file", &error))?;
        if read == content { Ok(()) } else { Err(fault("read a test file", &"it has other bytes")) }
    }

    pub(crate) fn manifest_path(snapshot: &str) -> Path {
        Path::from_iter([SNAPSHOTS.to_owned(), manifest_file_name(snapshot)])
    }

    /// Lists the names of its snapshots, in order.
    pub(crate) async fn list_snapshots(&self) -> Result<Vec<String>> {
        let listed = self.objects.list(Some(&Path::from(SNAPSHOTS))).await;
        let listed = listed.map_err(|error| self.fail("list snapshots", &error))?;
        let mut names: Vec<String> =
            listed.iter().filter_map(|object| snapshot_of_file(object.location.filename()?)).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Reads the manifest of a snapshot; `None` where there is no such snapshot.
    ///
    /// # Errors
    /// [`Error::Repository`] for a damaged manifest, or one of a later format.
    pub(crate) async fn read_manifest(&self, snapshot: &str) -> Result<Option<Manifest>> {
        let path = Self::manifest_path(snapshot);
        let operation = format!("read [{path}]");
        let bytes = match self.objects.len(&path).await {
            Err(error) if is_missing(&error) => return Ok(None),
            Ok(bytes) if bytes > MAX_FILE_BYTES => {
                return Err(self.fail(&operation, &format!("it has {bytes} bytes")));
            }
            other => other.map_err(|error| self.fail(&operation, &error))?,
        };
        let (file, snapshot) = (path.to_string(), snapshot.to_owned());
        let decode = move |bytes: &Bytes| {
            let reason = match Manifest::decode(bytes) {
                Ok(manifest) if manifest.snapshot == snapshot => return Ok(manifest),
                Ok(manifest) => format!("it is of snapshot [{}]", manifest.snapshot),
                Err(reason) => reason,
            };
            Err(StoreError::Corrupt { file: file.clone(), offset: 0, reason })
        };
        self.read_decoded(&path, bytes, decode).await.map_err(|error| self.fail(&operation, &error))
    }

    /// Reads an object of so many bytes and decodes it on a thread of its own; `None` where it is missing.
    async fn read_decoded<T: Send + 'static>(
        &self,
        path: &Path,
        bytes: u64,
        decode: impl Fn(&Bytes) -> Result<T, StoreError> + Send + Sync + 'static,
    ) -> Result<Option<T>, StoreError> {
        let _large = match bytes > LARGE_BYTES {
            true => Some(self.decoding.large.lock().await),
            false => None,
        };
        let decoding = Arc::clone(&self.decoding);
        let decode_alone = move |read: &Bytes| {
            let _one = decoding.one.lock();
            decode(read)
        };
        self.objects.get_decoded(path, decode_alone).await
    }

    /// Reads the manifests of all snapshots, one after the other.
    ///
    /// # Errors
    /// As [`Repository::read_manifest`], for any of them.
    pub(crate) async fn visit_manifests(&self, mut visit: impl FnMut(Manifest) + Send) -> Result<()> {
        let names = self.list_snapshots().await?;
        let reads = names.iter().map(|name| self.read_manifest(name)).collect::<Vec<_>>();
        let mut manifests = stream::iter(reads).buffered(MANIFESTS_AT_ONCE);
        while let Some(manifest) = manifests.try_next().await? {
            manifest.into_iter().for_each(&mut visit);
        }
        Ok(())
    }

    /// Makes a snapshot whose contents are there visible, unless there is another one of that name; returns whether it did.
    ///
    /// # Errors
    /// The repository of another store by now, and the object store's. After these the snapshot is whole or is not there.
    pub(crate) async fn publish(&self, manifest: &Manifest) -> Result<bool> {
        self.check_writer().await?;
        if !self.put_manifest(manifest).await? {
            // A service client repeats a write whose answer is lost; then this very manifest is there.
            let there = self.read_manifest(&manifest.snapshot).await?;
            if there.is_none_or(|there| there.uuid != manifest.uuid) {
                return Ok(false);
            }
        }
        // A store that took the repository over after the first check may have collected contents that no manifest named.
        if let Err(error) = self.check_writer().await {
            self.delete_manifest(&manifest.snapshot).await?;
            return Err(error);
        }
        Ok(true)
    }

    /// Reads the manifest of a store that was written last and can be read.
    pub(crate) async fn read_newest_manifest(&self, store: Uuid) -> Result<Option<Manifest>> {
        let listed = self.objects.list(Some(&Path::from(SNAPSHOTS))).await;
        let mut listed = listed.map_err(|error| self.fail("list snapshots", &error))?;
        listed.sort_by_key(|object| std::cmp::Reverse(object.last_modified));
        for name in listed.iter().filter_map(|object| snapshot_of_file(object.location.filename()?)) {
            if let Ok(Some(manifest)) = self.read_manifest(&name).await
                && manifest.store == store
            {
                return Ok(Some(manifest));
            }
        }
        Ok(None)
    }

    /// Writes the manifest of a snapshot, unless there is one of that name; returns whether it did.
    async fn put_manifest(&self, manifest: &Manifest) -> Result<bool> {
        let encoded = manifest.clone();
        let encode = blocking(move || encoded.encode().map_err(StoreError::Internal));
        let file = encode.await.map_err(|error| self.fail("encode a manifest", &error))?;
        let put = self.objects.put_new(&Self::manifest_path(&manifest.snapshot), file).await;
        put.map_err(|error| self.fail("write a manifest", &error))
    }

    /// Deletes the manifest of a snapshot for good.
    pub(crate) async fn delete_manifest(&self, snapshot: &str) -> Result<()> {
        let deleted = self.objects.delete_durably(&Self::manifest_path(snapshot)).await;
        deleted.map_err(|error| self.fail("delete a manifest", &error))
    }

    pub(crate) fn content_path(digest: ContentDigest) -> Path {
        let name = digest.to_string();
        Path::from_iter([CONTENTS.to_owned(), name[..2].to_owned(), name])
    }

    /// Lists the contents that are there, with their lengths.
    pub(crate) async fn list_contents(&self) -> Result<HashMap<ContentDigest, u64>> {
        let listed = self.objects.list(Some(&Path::from(CONTENTS))).await;
        let listed = listed.map_err(|error| self.fail("list contents", &error))?;
        let contents = listed.iter().filter_map(|object| {
            let digest: ContentDigest = object.location.filename()?.parse().ok()?;
            (object.location == Self::content_path(digest)).then_some((digest, object.size))
        });
        Ok(contents.collect())
    }

    /// Lists the contents that are there for good, without damaged ones: a killed process may have given them names that are not durable yet.
    pub(crate) async fn list_durable_contents(&self) -> Result<HashMap<ContentDigest, u64>> {
        let mut contents = self.list_contents().await?;
        for digest in self.damaged.lock().iter() {
            contents.remove(digest);
        }
        if self.has_durable_names.load(Ordering::Acquire) {
            return Ok(contents);
        }
        // One content of each directory.
        let directories: HashMap<u8, ContentDigest> =
            contents.keys().map(|digest| (digest.as_bytes()[0], *digest)).collect();
        self.make_names_durable(directories.into_values()).await?;
        Ok(contents)
    }

    /// Begins a verification of its files; `None` while another one runs.
    pub(crate) fn begin_verification(&self) -> Option<OwnedMutexGuard<()>> {
        Arc::clone(&self.verifying).try_lock_owned().ok()
    }

    /// Remembers a content whose bytes are not those of its name.
    pub(crate) fn note_damage(&self, digest: ContentDigest) {
        tracing::warn!(repository = &*self.name, %digest, "a file of the repository is damaged; the next snapshot that needs it writes it anew");
        let mut damaged = self.damaged.lock();
        if damaged.len() < MAX_DAMAGED {
            damaged.insert(digest);
        }
    }

    /// Forgets that a content was damaged.
    pub(crate) fn forget_damage(&self, digest: ContentDigest) {
        self.damaged.lock().remove(&digest);
    }

    /// Makes the names of contents durable, each of which stands for its directory. All others are, or the caller holds the lock of
    /// writers and knows them.
    ///
    /// # Errors
    /// The object store's.
    pub(crate) async fn make_names_durable(
        &self,
        digests: impl IntoIterator<Item = ContentDigest>,
    ) -> Result<()> {
        let paths: Vec<Path> = digests.into_iter().map(Self::content_path).collect();
        let durable = self.objects.make_durable(&paths).await;
        durable.map_err(|error| self.fail("make names of contents durable", &error))?;
        self.has_durable_names.store(true, Ordering::Release);
        Ok(())
    }

    /// Reads a content of so many bytes, verifies and decodes it.
    ///
    /// # Errors
    /// A content that is missing, too large, or not what was written; the reason of `decode`.
    pub(crate) async fn read_content<T: Send + 'static>(
        &self,
        (digest, bytes): (ContentDigest, u64),
        decode: impl Fn(&Bytes) -> Result<T, String> + Send + Sync + 'static,
    ) -> Result<T> {
        let path = Self::content_path(digest);
        let fail = |error: &dyn std::fmt::Display| self.fail(&format!("read content [{digest}]"), &error);
        if bytes > MAX_FILE_BYTES {
            return Err(fail(&format!("it has {bytes} bytes")));
        }
        // Before it is read: what is there may be of any length.
        match self.objects.len(&path).await {
            Ok(found) if found != bytes => {
                return Err(fail(&format!("it has {found} bytes where {bytes} were written")));
            }
            Err(error) if !is_missing(&error) => return Err(fail(&error)),
            _ => {}
        }
        let file = path.to_string();
        let mismatch = Arc::new(AtomicBool::new(false));
        let found_mismatch = Arc::clone(&mismatch);
        let check = move |read: &Bytes| {
            let is_right = read.len() as u64 == bytes && ContentDigest::of_bytes(read) == digest;
            found_mismatch.store(!is_right, Ordering::Relaxed);
            let reason = if is_right {
                match decode(read) {
                    Ok(decoded) => return Ok(decoded),
                    Err(reason) => reason,
                }
            } else {
                format!("its {} bytes are not those that were written", read.len())
            };
            Err(StoreError::Corrupt { file: file.clone(), offset: 0, reason })
        };
        match self.read_decoded(&path, bytes, check).await {
            Ok(Some(content)) => Ok(content),
            Ok(None) => Err(fail(&"it is missing")),
            Err(error) => {
                if mismatch.load(Ordering::Relaxed) {
                    self.note_damage(digest);
                }
                Err(fail(&error))
            }
        }
    }

    /// Reads the contents of an index.
    pub(crate) async fn read_index(&self, digest: ContentDigest, bytes: u64) -> Result<IndexContents> {
        let decode = |read: &Bytes| {
            let contents: IndexContents = decode_json(read)?;
            match contents.fault() {
                None => Ok(contents),
                Some(fault) => Err(fault),
            }
        };
        self.read_content((digest, bytes), decode).await
    }

    /// Deletes the contents that no manifest needs, and files that interrupted requests left a day ago. The caller lets nobody write meanwhile.
    ///
    /// # Errors
    /// A manifest or index that cannot be read: then nothing is deleted.
    pub(crate) async fn collect(&self, now_ms: i64) -> Result<CollectedFiles> {
        let (mut references, mut unread) = (References::default(), Vec::new());
        self.visit_manifests(|manifest| unread.extend(references.add_manifest(&manifest))).await?;
        let reads =
            unread.into_iter().map(|(digest, bytes)| self.read_index(digest, bytes)).collect::<Vec<_>>();
        let mut indices = stream::iter(reads).buffered(MANIFESTS_AT_ONCE);
        while let Some(contents) = indices.try_next().await? {
            references.add_index(&contents);
        }
        let unneeded = references.unreferenced(&self.list_contents().await?);
        self.check_writer().await?;
        let mut collected = CollectedFiles::default();
        let deletions = unneeded.into_iter().map(|(digest, bytes)| async move {
            self.objects.delete(&Self::content_path(digest)).await.map(|()| bytes)
        });
        let mut deletions = stream::iter(deletions.collect::<Vec<_>>()).buffer_unordered(AT_ONCE);
        while let Some(deleted) = deletions.next().await {
            let bytes = deleted.map_err(|error| self.fail("delete an unneeded content", &error))?;
            collected.files += 1;
            collected.bytes += bytes;
        }
        self.remove_abandoned(now_ms.saturating_sub(ABANDONED_MS)).await?;
        Ok(collected)
    }

    /// Removes test files, and files under construction, that were last written before a time.
    async fn remove_abandoned(&self, before_ms: i64) -> Result<()> {
        let fail = |error: StoreError| self.fail("remove an abandoned file", &error);
        for object in self.objects.list(Some(&Path::from(TESTS))).await.map_err(fail)? {
            if object.last_modified.timestamp_millis() < before_ms {
                self.objects.delete(&object.location).await.map_err(fail)?;
            }
        }
        self.objects.remove_old_scratch(before_ms).await.map_err(fail)
    }
}
