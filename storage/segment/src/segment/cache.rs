//! The bounded local cache of whole files of remote segments: bundles and sidecars are copied here
//! before they are searched, and mapped into memory.
//!
//! A file is fetched once however many ask for it: the fetch is a task of the runtime, to whose end all of them wait,
//! on compute threads, whose place others take meanwhile; its error is the error of all. It goes to disk piece by piece. A file is in use while a map of it
//! lives, which whoever searches it holds, or [`OpenedCache`] for the next search: the latter lets go of it where room is
//! needed here.

use std::cell::Cell;
use std::fs::{self, File};
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use lru::LruCache;
use memmap2::Mmap;
use millrace_runtime::{Error, Result, wait_for_network};
use object_store::path::Path;
use parking_lot::Mutex;

use super::opened::{CacheFigures, FileKey, FileKind, LastUse, OpenedCache};
use super::stored::Env;
use crate::objects::Objects;

/// A file to be had.
#[derive(Debug)]
pub(super) struct FileRequest<'a> {
    pub(super) key: FileKey,
    pub(super) path: &'a Path,
    /// Bytes that the catalog says it has.
    pub(super) bytes: u64,
    /// Time of its last use.
    pub(super) used: &'a LastUse,
}

/// A file at hand.
#[derive(Debug)]
pub(super) struct LocalFile {
    pub(super) bytes: Bytes,
    /// Set once all of it was found to be as it was written.
    pub(super) verified: Arc<AtomicBool>,
}

/// Files of remote segments on local disk, least recently used out first.
///
/// Room is made before a file is fetched, so that the directory takes up no more than the bound while it is. A file that
/// is mapped takes up its space whether it has a name or not. So files in use are counted and stay, and those in use at
/// once exceed the bound where they must, until the last of their users has ended.
#[derive(Debug)]
pub struct FileCache {
    dir: PathBuf,
    max_bytes: u64,
    opened: Arc<OpenedCache>,
    files: Mutex<Files>,
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Debug)]
struct Files {
    entries: LruCache<FileKey, Entry>,
    bytes: u64,
}

/// A fetch on its way, to which any number may wait.
type Fetch = Shared<BoxFuture<'static, Result<FileLease, Arc<Error>>>>;

/// Held by whoever uses a file.
type FileLease = Arc<()>;

/// A file in the cache.
#[derive(Debug)]
struct Entry {
    name: String,
    bytes: u64,
    held: Weak<()>,
    verified: Arc<AtomicBool>,
    /// On its way until it is here.
    fetch: Option<Fetch>,
    used: LastUse,
    /// The use that its place in the order stands for.
    seen: u64,
}

/// A file that is fetched.
struct FetchedFile {
    key: FileKey,
    path: Path,
    bytes: u64,
    /// That of its entry, by which this is known.
    verified: Arc<AtomicBool>,
}

/// A fetch on its way. Dropped, it has ended: with the file in place, or with nothing left of it.
struct FetchGuard {
    cache: Arc<FileCache>,
    file: FetchedFile,
    /// Path of the partial file; none once it is in place.
    partial: Option<PathBuf>,
}

impl Drop for FetchGuard {
    fn drop(&mut self) {
        let FetchedFile { key, verified, .. } = &self.file;
        let mut files = self.cache.files.lock();
        let partial = self.partial.take();
        match files.entries.peek_mut(key) {
            Some(entry) if Arc::ptr_eq(&entry.verified, verified) => match &partial {
                None => entry.fetch = None,
                Some(_) => drop(files.take_out(*key)),
            },
            // Another one has its place.
            Some(_) => {}
            // Nobody wants it any more.
            None if partial.is_none() => remove(&self.cache.dir.join(name_of(*key))),
            None => {}
        }
        if let Some(partial) = partial {
            remove(&partial);
        }
    }
}

/// The map of a file in use.
struct Map {
    map: Mmap,
    held: Option<FileLease>,
    cache: Weak<FileCache>,
}

thread_local! {
    /// Set while this thread makes room, and has the lock.
    static MAKES_ROOM: Cell<bool> = const { Cell::new(false) };
}

impl Drop for Map {
    fn drop(&mut self) {
        // The space is given back with the map, which goes behind this; the name may go before.
        drop(self.held.take());
        if !MAKES_ROOM.get()
            && let Some(cache) = self.cache.upgrade()
        {
            cache.make_room(&mut cache.files.lock(), 0);
        }
    }
}

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}

/// Name of a file in the directory.
fn name_of((segment, kind): FileKey) -> String {
    let kind = match kind {
        FileKind::Data => "data",
        FileKind::Bundle => "bundle",
        FileKind::Ids => "ids",
    };
    format!("{}-{kind}", segment.simple())
}

impl FileCache {
    /// Makes a cache in `dir`, whose contents of an earlier run are removed.
    pub fn open(dir: PathBuf, max_bytes: u64, opened: Arc<OpenedCache>) -> Result<Self> {
        millrace_runtime::disk::empty_directory(&dir)
            .map_err(|error| Error::io("empty cache", &dir, error))?;
        let files = Mutex::new(Files { entries: LruCache::unbounded(), bytes: 0 });
        let (hits, misses) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { dir, max_bytes, opened, files, hits, misses })
    }

    /// Reads the figures of the cache. A request that waits for a fetch counts as a miss.
    pub fn figures(&self) -> CacheFigures {
        let bytes = self.files.lock().bytes;
        let [hits, misses] = [&self.hits, &self.misses].map(|counter| counter.load(Ordering::Relaxed));
        CacheFigures { hits, misses, bytes, limit: self.max_bytes }
    }

    /// Returns a file, fetching it first where it is not here; blocks, so it is called on compute threads only.
    ///
    /// # Errors
    /// The object store's or the disk's, to all who wait for the same fetch.
    pub(super) fn get(env: &Env, wanted: &FileRequest<'_>) -> Result<LocalFile> {
        match Self::open_local(env, wanted) {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                // Somebody else removed it from the directory: it is fetched again.
                env.files.forget(wanted.key);
                Self::open_local(env, wanted)
            }
            other => other,
        }
    }

    fn open_local(env: &Env, wanted: &FileRequest<'_>) -> Result<LocalFile> {
        let cache = &env.files;
        let (fetch, verified, here) = {
            let mut files = cache.files.lock();
            match files.entries.get_mut(&wanted.key) {
                Some(Entry { fetch: Some(fetch), verified, .. }) => {
                    cache.misses.fetch_add(1, Ordering::Relaxed);
                    (Some(fetch.clone()), Arc::clone(verified), None)
                }
                Some(entry) => {
                    cache.hits.fetch_add(1, Ordering::Relaxed);
                    let held = entry.held.upgrade().unwrap_or_default();
                    entry.held = Arc::downgrade(&held);
                    (None, Arc::clone(&entry.verified), Some(held))
                }
                None => {
                    cache.misses.fetch_add(1, Ordering::Relaxed);
                    let entry = cache.start(&mut files, env, wanted);
                    (entry.fetch.clone(), Arc::clone(&entry.verified), None)
                }
            }
        };
        let held = match (here, fetch) {
            (Some(held), _) => held,
            (None, Some(fetch)) => {
                let fetched = wait_for_network(|| millrace_runtime::sync::block_on(&env.runtime, fetch))?;
                fetched.map_err(|error| repeated(&error))?
            }
            (None, None) => FileLease::default(),
        };
        let local = cache.dir.join(name_of(wanted.key));
        // Nobody removes the file while it is held.
        let file = File::open(&local).map_err(|error| Error::io("open cached file", &local, error))?;
        // SAFETY: the file is private to this cache, never written again, and eviction unlinks it,
        // which leaves existing maps intact.
        let map = unsafe { Mmap::map(&file) }.map_err(|error| Error::io("map file", &local, error))?;
        let map = Map { map, held: Some(held), cache: Arc::downgrade(cache) };
        Ok(LocalFile { bytes: Bytes::from_owner(map), verified })
    }

    /// Begins to fetch a file.
    fn start<'a>(&self, files: &'a mut Files, env: &Env, wanted: &FileRequest<'_>) -> &'a Entry {
        self.make_room(files, wanted.bytes);
        let (cache, objects) = (Arc::clone(&env.files), Arc::clone(&env.objects));
        let (key, bytes, verified) = (wanted.key, wanted.bytes, Arc::default());
        let file = FetchedFile { key, path: wanted.path.clone(), bytes, verified: Arc::clone(&verified) };
        let held = FileLease::default();
        let weak = Arc::downgrade(&held);
        let task = env.runtime.spawn(async move { cache.fetch(&objects, file, held).await });
        let fetch = async move {
            let ended = task.await;
            let ended = ended
                .unwrap_or_else(|error| Err(Error::Stopped(format!("a fetch was interrupted: {error}"))));
            ended.map_err(Arc::new)
        };
        files.bytes += bytes;
        let seen = wanted.used.load(Ordering::Relaxed);
        files.entries.get_or_insert(key, || Entry {
            name: name_of(key),
            bytes,
            held: weak,
            verified,
            fetch: Some(fetch.boxed().shared()),
            used: Arc::clone(wanted.used),
            seen,
        })
    }

    async fn fetch(
        self: Arc<Self>,
        objects: &Objects,
        file: FetchedFile,
        held: FileLease,
    ) -> Result<FileLease> {
        let name = name_of(file.key);
        // Written under a name of its own first: what was forgotten meanwhile may be fetched again beside it.
        let partial = self.dir.join(format!("{name}.{}", uuid::Uuid::new_v4().simple()));
        let mut running = FetchGuard { cache: Arc::clone(&self), file, partial: Some(partial.clone()) };
        objects.get_to_file(&running.file.path, &partial, running.file.bytes).await?;
        let local = self.dir.join(name);
        millrace_runtime::sync::blocking(move || {
            fs::rename(&partial, &local).map_err(|error| Error::io("cache file", &local, error))
        })
        .await?;
        running.partial = None;
        Ok(held)
    }

    /// Removes files until so many bytes more are within the bound, or all that is left is in use.
    fn make_room(&self, files: &mut Files, more: u64) {
        if files.bytes.saturating_add(more) <= self.max_bytes {
            return;
        }
        MAKES_ROOM.set(true);
        // Each is looked at once for its use, and once more.
        let mut looks = 2 * files.entries.len();
        while files.bytes.saturating_add(more) > self.max_bytes
            && looks > 0
            && let Some((key, mut entry)) = files.entries.pop_lru()
        {
            looks -= 1;
            let used = entry.used.load(Ordering::Relaxed);
            let again = used > entry.seen;
            entry.seen = used;
            if !again && entry.fetch.is_none() {
                self.opened.forget(key);
            }
            if again || entry.fetch.is_some() || entry.held.strong_count() > 0 {
                files.entries.put(key, entry);
                continue;
            }
            files.bytes -= entry.bytes;
            remove(&self.dir.join(&entry.name));
        }
        MAKES_ROOM.set(false);
    }

    /// Returns whether files in use take up more than the bound: what is opened then is not to be kept.
    pub(super) fn is_over(&self) -> bool {
        self.files.lock().bytes > self.max_bytes
    }

    /// Removes a file of a segment that is gone.
    pub(super) fn forget(&self, key: FileKey) {
        let mut files = self.files.lock();
        if let Some(entry) = files.take_out(key)
            && entry.fetch.is_none()
        {
            remove(&self.dir.join(&entry.name));
        }
    }

    /// Removes a file that is damaged, by the mark that came with it, so that whoever comes next has another.
    pub(super) fn forget_damaged(&self, key: FileKey, verified: &Arc<AtomicBool>) {
        let mut files = self.files.lock();
        if files.entries.peek(&key).is_some_and(|entry| Arc::ptr_eq(&entry.verified, verified)) {
            files.take_out(key);
            remove(&self.dir.join(name_of(key)));
        }
    }
}

impl Files {
    fn take_out(&mut self, key: FileKey) -> Option<Entry> {
        let entry = self.entries.pop(&key)?;
        self.bytes -= entry.bytes;
        Some(entry)
    }
}

fn remove(file: &FilePath) {
    if let Err(error) = fs::remove_file(file)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(file = %file.display(), %error, "cannot remove a cached file");
    }
}

/// The error of a fetch, to each who waited for it.
fn repeated(error: &Error) -> Error {
    match error {
        Error::Corrupt { file, offset, reason } => {
            Error::Corrupt { file: file.clone(), offset: *offset, reason: reason.clone() }
        }
        Error::Io { operation, path, source } => {
            let source = match source.raw_os_error() {
                Some(code) => std::io::Error::from_raw_os_error(code),
                None => std::io::Error::new(source.kind(), source.to_string()),
            };
            Error::Io { operation, path: path.clone(), source }
        }
        Error::ObjectStore(object_store::Error::NotFound { path, source }) => {
            let (path, source) = (path.clone(), source.to_string().into());
            Error::ObjectStore(object_store::Error::NotFound { path, source })
        }
        Error::ObjectStore(error) => Error::ObjectStore(object_store::Error::Generic {
            store: "fetch",
            source: error.to_string().into(),
        }),
        Error::Stopped(reason) => Error::Stopped(reason.clone()),
        other => Error::Internal(other.to_string()),
    }
}
