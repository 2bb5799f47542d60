//! The object store of segment files: a durable local directory or S3, behind one type.
//!
//! All engine code speaks to [`Objects`]: it puts whole files (from memory, or a scratch file that
//! was written on the local disk), reads them by ranges or maps them, lists and deletes. What is put
//! is durable and visible as a whole when the call returns, never in part. Underneath is the
//! `object_store` crate's trait, with [`DurableLocal`] as the local implementation: the crate's own
//! does not sync.

mod config;
#[cfg(any(test, feature = "testing"))]
pub mod counting;
mod local;
mod metered;
mod origins;
mod paced_write;
mod ranges;
mod reflink;
mod s3;
mod staged;
mod steady;
#[cfg(test)]
mod tests;
mod transfer;
#[cfg(any(test, feature = "testing"))]
pub mod unreliable;
mod upload;

use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt;
use millrace_runtime::disk::{Disk, MappedPages};
use millrace_runtime::sync::blocking;
use millrace_runtime::{Compute, Error, Result};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, UpdateVersion};

pub use config::ObjectStoreConfig;
pub use local::DurableLocal;
pub use metered::{ObjectRequestKind, ObjectRequestOutcome};
pub use origins::ObjectOrigin;
pub use staged::StagedObject;
pub use transfer::{TransferObserver, TransferPacer, UnpacedTransfer};

/// Deletions on their way at once.
const DELETES: usize = 16;
/// Pauses before an object is read again that is missing or wrong.
const AGAIN: [Duration; 3] =
    [Duration::from_millis(50), Duration::from_millis(200), Duration::from_millis(500)];
/// Directory of the local store under the data directory.
const LOCAL_DIR: &str = "segments";

/// The store of segment files. Clones share it.
#[derive(Clone, Debug)]
pub struct Objects {
    store: Arc<dyn ObjectStore>,
    local: Option<DurableLocal>,
    disk: Arc<dyn Disk>,
    /// Health of reads of a remote store.
    reads: Arc<steady::ReadHealth>,
    requests: Arc<metered::RequestCounts>,
    writing: Arc<WriteAccess>,
    /// Objects that other stores hold for now.
    origins: Arc<origins::Origins>,
}

/// Decides whether this process may delete objects.
#[async_trait]
pub trait DeletionGuard: std::fmt::Debug + Send + Sync {
    /// Returns once objects may be deleted that the catalog does not name any more.
    ///
    /// # Errors
    /// They may not be deleted, or that cannot be told now.
    async fn permit(&self) -> Result<()>;
}

/// Write access of this process to the objects.
#[derive(Debug, Default)]
struct WriteAccess {
    guard: OnceLock<Arc<dyn DeletionGuard>>,
    closed: AtomicBool,
}

/// Opens the configured object store.
///
/// # Errors
/// An unusable configuration or an unreachable service.
pub async fn open(config: &ObjectStoreConfig, data_dir: &FilePath, disk: Arc<dyn Disk>) -> Result<Objects> {
    match config {
        ObjectStoreConfig::Local => {
            let root = data_dir.join(LOCAL_DIR);
            let local = blocking({
                let disk = Arc::clone(&disk);
                move || DurableLocal::open(disk, root)
            })
            .await?;
            Ok(Objects::local(local, disk))
        }
        remote @ ObjectStoreConfig::S3 { .. } => open_service(remote, disk).await,
    }
}

/// Opens a directory that other stores may read as an object store. The caller sees to it that one process writes. Paced writes run on
/// the snapshot threads of `compute`.
///
/// # Errors
/// The disk's.
pub async fn open_directory(disk: Arc<dyn Disk>, root: PathBuf, compute: Option<Compute>) -> Result<Objects> {
    let local = blocking({
        let disk = Arc::clone(&disk);
        move || DurableLocal::open_shared(disk, root, compute)
    })
    .await?;
    Ok(Objects::local(local, disk))
}

/// Opens an S3-compatible service as an object store.
///
/// # Errors
/// An unusable configuration or an unreachable service.
pub async fn open_service(config: &ObjectStoreConfig, disk: Arc<dyn Disk>) -> Result<Objects> {
    let reads = Arc::default();
    let requests = Arc::default();
    let store = s3::open(config, &reads).await?;
    let store = Arc::new(metered::MeteredStore::new(store, &requests));
    let (writing, origins) = Default::default();
    Ok(Objects { store, local: None, disk, reads, requests, writing, origins })
}

impl Objects {
    fn local(local: DurableLocal, disk: Arc<dyn Disk>) -> Self {
        let store = Arc::new(local.clone());
        let (reads, requests, writing, origins) = Default::default();
        Self { store, local: Some(local), disk, reads, requests, writing, origins }
    }

    /// Takes a store that is not of this machine.
    #[cfg(any(test, feature = "testing"))]
    pub fn remote(store: Arc<dyn ObjectStore>, disk: Arc<dyn Disk>) -> Self {
        let reads = Arc::default();
        let store = Arc::new(steady::Steady::new(Arc::clone(&store), store, Arc::clone(&reads)));
        let (requests, writing, origins) = Default::default();
        Self { store, local: None, disk, reads, requests, writing, origins }
    }

    /// Returns whether reads of the store have been failing, all of them.
    pub fn reads_fail(&self) -> bool {
        self.reads.suspect().is_some()
    }

    /// Reads a byte of an object whose read failed, to find out whether reads work again.
    pub async fn probe_reads(&self) {
        let Some(path) = self.reads.suspect() else { return };
        if let Err(error) = self.store.get_range(&path, 0..1).await
            && matches!(error, object_store::Error::NotFound { .. })
        {
            self.reads.succeeded();
        }
    }

    /// Returns the store behind the `object_store` trait, for readers that want it.
    pub fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// Has objects of a remote store deleted only as a guard permits; the first guard counts.
    pub fn guard_deletions(&self, guard: Arc<dyn DeletionGuard>) {
        if !self.is_local() {
            let _ = self.writing.guard.set(guard);
        }
    }

    /// Takes note that this process may write no more.
    pub fn close_to_writes(&self) {
        self.writing.closed.store(true, Ordering::Release);
    }

    /// Returns whether another process has taken the objects over.
    pub fn is_closed_to_writes(&self) -> bool {
        self.writing.closed.load(Ordering::Acquire)
    }

    async fn permit_deletions(&self) -> Result<()> {
        match self.writing.guard.get() {
            Some(guard) => guard.permit().await,
            None => Ok(()),
        }
    }

    /// Does what [`Objects::get_checked`] does, and tells the version as well, which [`Objects::put_expecting`] takes.
    ///
    /// # Errors
    /// The store's; the check's, once it has failed each time.
    pub async fn get_versioned<T>(
        &self,
        path: &Path,
        check: impl Fn(&Bytes) -> Result<T>,
    ) -> Result<Option<(T, UpdateVersion)>> {
        let mut pauses = AGAIN.iter().take(if self.is_local() { 0 } else { AGAIN.len() });
        loop {
            let wrong = match self.read_versioned(path).await {
                Ok((bytes, version)) => match check(&bytes) {
                    Ok(checked) => return Ok(Some((checked, version))),
                    Err(error) => Some(error),
                },
                Err(error) if is_missing(&error) => None,
                Err(error) => return Err(error),
            };
            match (pauses.next(), wrong) {
                (Some(pause), _) => tokio::time::sleep(*pause).await,
                (None, Some(error)) => return Err(error),
                (None, None) => return Ok(None),
            }
        }
    }

    async fn read_versioned(&self, path: &Path) -> Result<(Bytes, UpdateVersion)> {
        let found = self.store.get(path).await.map_err(lift)?;
        let version = UpdateVersion { e_tag: found.meta.e_tag.clone(), version: found.meta.version.clone() };
        Ok((found.bytes().await.map_err(lift)?, version))
    }

    /// Writes a small object. Where something is expected it is written only if the object is still of that version, or is
    /// still missing; tells whether it was written. A service without conditions writes it in any case.
    ///
    /// # Errors
    /// The store's; then the object may be written or not.
    pub async fn put_expecting(
        &self,
        path: &Path,
        bytes: Bytes,
        expected: Option<Option<UpdateVersion>>,
    ) -> Result<bool> {
        let mode = match expected {
            None => PutMode::Overwrite,
            Some(None) => PutMode::Create,
            Some(Some(version)) if version.e_tag.is_some() => PutMode::Update(version),
            Some(Some(_)) => PutMode::Overwrite,
        };
        match self.store.put_opts(path, bytes.clone().into(), mode.into()).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                Ok(false)
            }
            Err(object_store::Error::NotImplemented { .. }) => self.put(path, bytes).await.map(|()| true),
            Err(error) => Err(lift(error)),
        }
    }

    /// Writes an object, replacing one of that name.
    ///
    /// # Errors
    /// The store's; then the object is either absent or whole.
    pub async fn put(&self, path: &Path, bytes: Bytes) -> Result<()> {
        if self.local.is_none() {
            return self.put_remote(path, bytes, &UnpacedTransfer).await;
        }
        self.store.put(path, bytes.into()).await.map_err(lift)?;
        Ok(())
    }

    /// Writes an object unless there is one of that name, and tells whether it did: of several that try it,
    /// wherever they are, one succeeds.
    ///
    /// # Errors
    /// The store's; then the object may be there or not, but whole.
    pub async fn put_new(&self, path: &Path, bytes: Bytes) -> Result<bool> {
        match self.store.put_opts(path, bytes.into(), PutMode::Create.into()).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                Ok(false)
            }
            Err(error) => Err(lift(error)),
        }
    }

    /// Moves finished scratch files into the store, replacing objects of those names. The files
    /// need not be synced; they are gone once this returns.
    ///
    /// # Errors
    /// The store's or the disk's; then each object is either absent or whole.
    pub async fn put_files(&self, files: &[(Path, PathBuf)]) -> Result<()> {
        if let Some(local) = &self.local {
            return local.adopt(files).await;
        }
        for (path, file) in files {
            self.upload_file(path, file).await?;
        }
        Ok(())
    }

    /// Reads a whole object.
    ///
    /// # Errors
    /// The store's; [`is_missing`] tells whether there is no such object.
    pub async fn get(&self, path: &Path) -> Result<Bytes> {
        self.store.get(path).await.map_err(lift)?.bytes().await.map_err(lift)
    }

    /// Reads a whole object and checks it; `None` where there is none. A remote store, or what stands between, may
    /// answer wrongly once, so an object that is missing or does not pass the check is read again before that is believed.
    ///
    /// # Errors
    /// The store's; the check's, once it has failed each time.
    pub async fn get_checked<T>(
        &self,
        path: &Path,
        check: impl Fn(&Bytes) -> Result<T>,
    ) -> Result<Option<T>> {
        Ok(self.get_versioned(path, check).await?.map(|(checked, _)| checked))
    }

    /// Does what [`Objects::get_checked`] does with a check that computes for a while, on a thread of its own.
    ///
    /// # Errors
    /// The store's; the check's, once it has failed each time.
    pub async fn get_decoded<T: Send + 'static>(
        &self,
        path: &Path,
        decode: impl Fn(&Bytes) -> Result<T> + Send + Sync + 'static,
    ) -> Result<Option<T>> {
        let decode = Arc::new(decode);
        let mut pauses = AGAIN.iter().take(if self.is_local() { 0 } else { AGAIN.len() });
        loop {
            let wrong = match self.get(path).await {
                Ok(bytes) => {
                    let decode = Arc::clone(&decode);
                    match blocking(move || decode(&bytes)).await {
                        Ok(decoded) => return Ok(Some(decoded)),
                        Err(error) => Some(error),
                    }
                }
                Err(error) if is_missing(&error) => None,
                Err(error) => return Err(error),
            };
            match (pauses.next(), wrong) {
                (Some(pause), _) => tokio::time::sleep(*pause).await,
                (None, Some(error)) => return Err(error),
                (None, None) => return Ok(None),
            }
        }
    }

    /// Removes files under construction of a local store that were last written before a time: interrupted puts left them.
    ///
    /// # Errors
    /// The disk's.
    pub async fn remove_old_scratch(&self, before_ms: i64) -> Result<()> {
        match &self.local {
            Some(local) => local.remove_old_scratch(before_ms).await,
            None => Ok(()),
        }
    }

    /// Tells an object's length.
    ///
    /// # Errors
    /// The store's; [`is_missing`] tells whether there is no such object.
    pub async fn len(&self, path: &Path) -> Result<u64> {
        Ok(self.store.head(path).await.map_err(lift)?.size)
    }

    /// Deletes an object; a missing one is no error.
    ///
    /// # Errors
    /// The store's.
    pub async fn delete(&self, path: &Path) -> Result<()> {
        self.permit_deletions().await?;
        self.delete_now(path).await
    }

    async fn delete_now(&self, path: &Path) -> Result<()> {
        match self.store.delete(path).await {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            other => other.map_err(lift),
        }
    }

    /// Deletes an object for good: after a power loss, too, it is not there. One that is missing already is no error.
    ///
    /// # Errors
    /// The store's.
    pub async fn delete_durably(&self, path: &Path) -> Result<()> {
        let Some(local) = &self.local else { return self.delete(path).await };
        match local.delete_durably(path).await {
            Err(error) if is_missing(&error) => Ok(()),
            other => other,
        }
    }

    /// Makes the names of objects durable that are there, and those of their neighbours: in a local store they were placed lazily
    /// ([`StagedObject::place_lazily`]), or a process was killed before it had made their names durable.
    ///
    /// # Errors
    /// The disk's.
    pub async fn make_durable(&self, paths: &[Path]) -> Result<()> {
        match &self.local {
            Some(local) => local.make_durable(paths).await,
            None => Ok(()),
        }
    }

    /// Deletes everything below a prefix.
    ///
    /// # Errors
    /// The store's; what was deleted so far is deleted.
    pub async fn delete_all(&self, prefix: &Path) -> Result<()> {
        self.forget_origins(prefix);
        self.permit_deletions().await?;
        let objects = self.store.list(Some(prefix)).map_err(lift);
        objects
            .map_ok(|object| async move { self.delete_now(&object.location).await })
            .try_buffer_unordered(DELETES)
            .try_collect::<()>()
            .await
    }

    /// Lists the objects below a prefix, in no particular order.
    ///
    /// # Errors
    /// The store's.
    pub async fn list(&self, prefix: Option<&Path>) -> Result<Vec<ObjectMeta>> {
        self.store.list(prefix).try_collect().await.map_err(lift)
    }

    /// Lists the directories directly below a prefix.
    ///
    /// # Errors
    /// The store's.
    pub async fn list_dirs(&self, prefix: Option<&Path>) -> Result<Vec<Path>> {
        Ok(self.store.list_with_delimiter(prefix).await.map_err(lift)?.common_prefixes)
    }

    /// Returns whether objects are files of this machine.
    pub fn is_local(&self) -> bool {
        self.local.is_some()
    }

    /// Returns the file that holds an object of a local store, whether or not it exists.
    pub fn local_path(&self, path: &Path) -> Option<PathBuf> {
        self.local.as_ref()?.local_path(path)
    }

    /// Maps an object of a local store into memory; `None` where the store is remote, or another one holds the object for now. Blocks
    /// for about as long as opening a file does.
    ///
    /// # Errors
    /// The disk's, such as a missing file.
    pub fn map_local(&self, path: &Path) -> Result<Option<Bytes>> {
        Ok(self.map_local_pages(path)?.map(|(bytes, _)| bytes))
    }

    /// Maps an object as [`Objects::map_local`] does, with a handle that releases its resident pages.
    ///
    /// # Errors
    /// As [`Objects::map_local`].
    pub(crate) fn map_local_pages(&self, path: &Path) -> Result<Option<(Bytes, MappedPages)>> {
        if self.has_origin(path) {
            return Ok(None);
        }
        self.local_path(path).map(|file| self.disk.open_mapped_pages(&file)).transpose()
    }

    /// Maps a file beside the store into memory, one that was fetched or is to be moved into the store. Blocks.
    ///
    /// # Errors
    /// The disk's, such as a missing file.
    pub fn map_file(&self, file: &FilePath) -> Result<Bytes> {
        self.disk.open_mapped(file)
    }

    async fn on_disk<T: Send + 'static>(
        &self,
        file: &FilePath,
        operation: impl FnOnce(&dyn Disk, &FilePath) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (disk, file) = (Arc::clone(&self.disk), file.to_owned());
        blocking(move || operation(&*disk, &file)).await
    }
}

/// Returns whether an error says that there is no such object.
pub fn is_missing(error: &Error) -> bool {
    matches!(error, Error::ObjectStore(object_store::Error::NotFound { .. }))
        || millrace_runtime::disk::is_not_found(error)
}

/// Takes back an error of this crate that went through the `object_store` trait.
fn lift(error: object_store::Error) -> Error {
    match error {
        object_store::Error::Generic { store, source } => match source.downcast::<Error>() {
            Ok(error) => *error,
            Err(source) => Error::ObjectStore(object_store::Error::Generic { store, source }),
        },
        other => Error::ObjectStore(other),
    }
}
