//! Objects as files of a directory, durable when a call returns.
//!
//! A put writes a scratch file under `.tmp` of the root, syncs it, makes sure that every directory
//! above the object is durable in its parent, renames (or, where an object must not be replaced,
//! links) the file into place, and syncs that directory. A reader therefore sees an object whole or
//! not at all, before and after a power loss. Deletions are not synced: an object that comes back
//! after a power loss is an orphan, which the store's garbage collection knows how to treat.
//!
//! [`DurableLocal`] is handed paths and bytes by [`super::Objects`] or by any user of the
//! `object_store` trait, and writes through a [`Disk`]; blocking work runs on tokio's blocking pool.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{fmt, io};

use async_trait::async_trait;
use bytes::Bytes;
use chrono::DateTime;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use millrace_runtime::disk::{self, Disk, Metadata, parent_of};
use millrace_runtime::{Compute, Error, Result};
use object_store::path::Path;
use object_store::{
    Attributes, CopyMode, CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions,
    RenameTargetMode,
};
use parking_lot::Mutex;

use super::upload::Upload;

pub(super) type StoreResult<T> = object_store::Result<T>;

const NAME: &str = "DurableLocal";
const SCRATCH: &str = ".tmp";
/// Bytes of one piece of a streamed object.
const PIECE_BYTES: u64 = 1 << 20;
/// Directories remembered as durable; beyond it they are synced once more.
const KNOWN_DIRS: usize = 16_384;
/// Attempts to place a file while others remove its directory.
const ATTEMPTS: usize = 16;
/// Deletions on their way at once.
const DELETES: usize = 10;

/// An object store in a local directory. Clones share it.
#[derive(Clone, Debug)]
pub struct DurableLocal {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) disk: Arc<dyn Disk>,
    root: PathBuf,
    next_scratch: AtomicU64,
    /// Directories whose whole chain of names this process has made durable.
    known_dirs: Mutex<HashSet<PathBuf>>,
    /// Threads of paced writes; without them these run on tokio's blocking pool.
    pub(super) compute: Option<Compute>,
    /// `true` once the file system has refused to share blocks with the files of the caller.
    pub(super) lacks_reflinks: AtomicBool,
}

impl DurableLocal {
    /// Opens the store in `root`, creating it, and removes what interrupted puts left behind. Blocks.
    /// The caller holds a lock that keeps other processes out.
    ///
    /// # Errors
    /// The disk's.
    pub fn open(disk: Arc<dyn Disk>, root: PathBuf) -> Result<Self> {
        let scratch = root.join(SCRATCH);
        disk.create_dir_all(&scratch)?;
        for name in disk.list(&scratch)? {
            disk.remove(&scratch.join(name))?;
        }
        let known_dirs = Mutex::new(HashSet::from([root.clone()]));
        let (next_scratch, lacks_reflinks) = Default::default();
        let inner = Inner { disk, root, next_scratch, known_dirs, compute: None, lacks_reflinks };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Opens the store in `root`, creating it, and leaves alone what other processes may be writing there. Paced writes run on the
    /// snapshot threads of `compute`. Blocks.
    ///
    /// # Errors
    /// The disk's.
    pub fn open_shared(disk: Arc<dyn Disk>, root: PathBuf, compute: Option<Compute>) -> Result<Self> {
        disk.create_dir_all(&root.join(SCRATCH))?;
        let known_dirs = Mutex::new(HashSet::from([root.clone()]));
        // Numbers that no other process is likely to use.
        let next_scratch = AtomicU64::new(rand::random::<u64>() >> 1);
        let lacks_reflinks = AtomicBool::default();
        let inner = Inner { disk, root, next_scratch, known_dirs, compute, lacks_reflinks };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the file that holds an object, whether or not it exists; `None` for a path that
    /// cannot be an object's.
    pub fn local_path(&self, location: &Path) -> Option<PathBuf> {
        self.inner.file_of(location).ok()
    }

    /// Moves finished files into the store, replacing objects of those names. A directory of several is synced once.
    ///
    /// # Errors
    /// The disk's; then each object is either absent or whole.
    pub async fn adopt(&self, files: &[(Path, PathBuf)]) -> Result<()> {
        let inner = Arc::clone(&self.inner);
        let files = files
            .iter()
            .map(|(location, file)| Ok((file.clone(), inner.file_of(location)?)))
            .collect::<Result<Vec<_>>>()?;
        super::blocking(move || {
            let mut dirs = BTreeSet::new();
            for (file, target) in &files {
                let scratch = inner.scratch_file();
                let adopt = || {
                    inner.disk.import(file, &scratch)?;
                    inner.rename(&scratch, target, true, true)
                };
                inner.cleaned(&scratch, adopt())?;
                dirs.insert(parent_of(target));
            }
            dirs.into_iter().try_for_each(|dir| inner.disk.sync_dir(dir))
        })
        .await
    }

    /// Removes files under construction that were last written before a time.
    ///
    /// # Errors
    /// The disk's.
    pub(super) async fn remove_old_scratch(&self, before_ms: i64) -> Result<()> {
        let inner = Arc::clone(&self.inner);
        super::blocking(move || {
            let scratch = inner.root.join(SCRATCH);
            for name in inner.disk.list(&scratch)? {
                let file = scratch.join(name);
                // Another process may have moved it meanwhile.
                let Ok(metadata) = inner.disk.metadata(&file) else { continue };
                if !metadata.is_dir && metadata.modified_ms < before_ms {
                    inner.disk.remove(&file)?;
                }
            }
            Ok(())
        })
        .await
    }

    /// Deletes an object so that it does not come back.
    ///
    /// # Errors
    /// The disk's; a missing object is one.
    pub(super) async fn delete_durably(&self, location: &Path) -> Result<()> {
        let inner = Arc::clone(&self.inner);
        let file = inner.file_of(location)?;
        super::blocking(move || inner.delete_durably(&file)).await
    }

    /// Makes names of objects durable that were placed lazily, or that a process which was killed may have given them, and those of their
    /// neighbours. Each directory is synced once.
    pub(super) async fn make_durable(&self, locations: &[Path]) -> Result<()> {
        let inner = Arc::clone(&self.inner);
        let files = locations.iter().map(|location| inner.file_of(location)).collect::<Result<Vec<_>>>()?;
        super::blocking(move || {
            let root = parent_of(&inner.root).to_owned();
            let above = |file: &PathBuf| -> Vec<PathBuf> {
                file.ancestors().skip(1).take_while(|dir| **dir != *root).map(FilePath::to_owned).collect()
            };
            let dirs: BTreeSet<PathBuf> = files.iter().flat_map(above).collect();
            dirs.iter().try_for_each(|dir| inner.disk.sync_dir(dir))
        })
        .await
    }

    pub(super) async fn run<T: Send + 'static>(
        &self,
        location: &Path,
        operation: impl FnOnce(&Inner, &FilePath) -> Result<T> + Send + 'static,
    ) -> StoreResult<T> {
        let inner = Arc::clone(&self.inner);
        let file = inner.file_of(location).map_err(|error| to_store(error, location))?;
        super::blocking(move || operation(&inner, &file)).await.map_err(|error| to_store(error, location))
    }
}

impl Inner {
    pub(super) fn file_of(&self, location: &Path) -> Result<PathBuf> {
        let mut parts = location.parts().peekable();
        let refused = |why: &str| Error::IllegalArgument(format!("object path [{location}] {why}"));
        match parts.peek() {
            None => return Err(refused("is empty")),
            Some(first) if first.as_ref() == SCRATCH => return Err(refused("is reserved")),
            Some(_) => {}
        }
        let mut file = self.root.clone();
        file.extend(parts.map(|part| part.as_ref().to_owned()));
        Ok(file)
    }

    fn dir_of(&self, prefix: Option<&Path>) -> PathBuf {
        let mut dir = self.root.clone();
        dir.extend(prefix.iter().flat_map(|prefix| prefix.parts()).map(|part| part.as_ref().to_owned()));
        dir
    }

    pub(super) fn scratch_file(&self) -> PathBuf {
        let number = self.next_scratch.fetch_add(1, Ordering::Relaxed);
        self.root.join(SCRATCH).join(number.to_string())
    }

    fn write(&self, target: &FilePath, payload: &PutPayload, replace: bool) -> Result<()> {
        let scratch = self.scratch_file();
        let write = || {
            let mut file = self.disk.create(&scratch)?;
            for piece in payload {
                file.append(piece)?;
            }
            file.sync()?;
            self.place(&scratch, target, replace)
        };
        self.cleaned(&scratch, write())
    }

    /// Removes a scratch file after its use, whatever came of it; a remnant is removed at the next
    /// start.
    pub(super) fn cleaned(&self, scratch: &FilePath, result: Result<()>) -> Result<()> {
        let removed = self.disk.remove(scratch);
        result.and(removed)
    }

    /// Gives a synced file the name `target`, durably. With `replace` it loses its old name.
    pub(super) fn place(&self, source: &FilePath, target: &FilePath, replace: bool) -> Result<()> {
        self.rename(source, target, replace, true)?;
        self.disk.sync_dir(parent_of(target))
    }

    /// Gives a synced file the name `target` in the place of any other one. The name is durable after [`DurableLocal::make_durable`].
    pub(super) fn place_lazily(&self, source: &FilePath, target: &FilePath) -> Result<()> {
        self.rename(source, target, true, false)
    }

    /// Gives a synced file the name `target`, which is durable once the directory is synced, whose name is with `syncs_dirs`.
    fn rename(&self, source: &FilePath, target: &FilePath, replace: bool, syncs_dirs: bool) -> Result<()> {
        let dir = parent_of(target);
        let mut attempt = 0;
        loop {
            let place = || {
                self.make_dir(dir, syncs_dirs)?;
                if replace { self.disk.rename(source, target) } else { self.disk.hard_link(source, target) }
            };
            match place() {
                Ok(()) => return Ok(()),
                // A deletion removed the directory that had become empty, perhaps with those above it, and
                // may not have said so yet.
                Err(error) if disk::is_not_found(&error) && attempt < ATTEMPTS => {
                    self.disk.metadata(source)?;
                    let mut known = self.known_dirs.lock();
                    for dir in dir.ancestors().take_while(|dir| **dir != *self.root) {
                        known.remove(dir);
                    }
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes a directory below the root. With `syncs` it makes its name and those above it durable, also where
    /// an earlier process made it and ended before the sync.
    fn make_dir(&self, dir: &FilePath, syncs: bool) -> Result<()> {
        if self.known_dirs.lock().contains(dir) {
            return Ok(());
        }
        let above: Vec<&FilePath> = dir.ancestors().take_while(|dir| **dir != *self.root).collect();
        for dir in above.into_iter().rev() {
            if self.known_dirs.lock().contains(dir) {
                continue;
            }
            self.disk.create_dir(dir)?;
            if !syncs {
                continue;
            }
            self.disk.sync_dir(parent_of(dir))?;
            let mut known = self.known_dirs.lock();
            if known.len() >= KNOWN_DIRS {
                known.clear();
                known.insert(self.root.clone());
            }
            known.insert(dir.to_owned());
        }
        Ok(())
    }

    /// Removes directories above a removed file for as long as they are empty.
    fn remove_empty_dirs(&self, file: &FilePath) -> Result<()> {
        for dir in file.ancestors().skip(1).take_while(|dir| **dir != *self.root) {
            if !self.disk.remove_dir(dir)? {
                break;
            }
            self.known_dirs.lock().remove(dir);
        }
        Ok(())
    }

    fn delete(&self, file: &FilePath) -> Result<()> {
        self.file_metadata(file)?;
        self.disk.remove(file)?;
        self.remove_empty_dirs(file)
    }

    fn delete_durably(&self, file: &FilePath) -> Result<()> {
        self.file_metadata(file)?;
        self.disk.remove(file)?;
        self.disk.sync_dir(parent_of(file))?;
        self.remove_empty_dirs(file)
    }

    fn file_metadata(&self, file: &FilePath) -> Result<Metadata> {
        match self.disk.metadata(file) {
            Ok(metadata) if metadata.is_dir => {
                Err(Error::io("read", file, io::Error::from(io::ErrorKind::NotFound)))
            }
            // A path below a file names nothing.
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotADirectory => {
                Err(Error::io("read", file, io::Error::from(io::ErrorKind::NotFound)))
            }
            other => other,
        }
    }

    /// Lists a directory's files and directories; names that are no object's are left out.
    fn entries(&self, dir: &FilePath) -> Result<Vec<(Path, PathBuf, Metadata)>> {
        if !self.disk.metadata(dir).is_ok_and(|metadata| metadata.is_dir) {
            return Ok(Vec::new());
        }
        let mut entries = Vec::new();
        for name in self.disk.list(dir)? {
            let file = dir.join(&name);
            let relative = file.strip_prefix(&self.root).ok().and_then(FilePath::to_str);
            let Some(location) = relative.and_then(|relative| Path::parse(relative).ok()) else { continue };
            if location.as_ref() == SCRATCH {
                continue;
            }
            match self.disk.metadata(&file) {
                Ok(metadata) => entries.push((location, file, metadata)),
                // It was removed meanwhile.
                Err(error) if disk::is_not_found(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(entries)
    }

    fn walk(&self, dir: PathBuf) -> Result<Vec<ObjectMeta>> {
        let mut objects = Vec::new();
        let mut dirs = vec![dir];
        while let Some(dir) = dirs.pop() {
            for (location, file, metadata) in self.entries(&dir)? {
                if metadata.is_dir {
                    dirs.push(file);
                } else {
                    objects.push(object_meta(location, metadata));
                }
            }
        }
        objects.sort_unstable_by(|a, b| a.location.cmp(&b.location));
        Ok(objects)
    }
}

fn object_meta(location: Path, metadata: Metadata) -> ObjectMeta {
    ObjectMeta {
        location,
        last_modified: DateTime::from_timestamp_millis(metadata.modified_ms).unwrap_or_default(),
        size: metadata.len,
        e_tag: None,
        version: None,
    }
}

fn to_store(error: Error, location: &Path) -> object_store::Error {
    let path = location.to_string();
    if disk::is_not_found(&error) {
        object_store::Error::NotFound { path, source: Box::new(error) }
    } else if disk::is_already_exists(&error) {
        object_store::Error::AlreadyExists { path, source: Box::new(error) }
    } else {
        object_store::Error::Generic { store: NAME, source: Box::new(error) }
    }
}

fn refuse<T>(what: &str) -> StoreResult<T> {
    Err(object_store::Error::NotImplemented { operation: what.to_owned(), implementer: NAME.to_owned() })
}

impl fmt::Display for DurableLocal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME}({})", self.inner.root.display())
    }
}

pub(super) const UNTAGGED: PutResult = PutResult { e_tag: None, version: None };

#[async_trait]
impl ObjectStore for DurableLocal {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> StoreResult<PutResult> {
        if !opts.attributes.is_empty() {
            return refuse("put with attributes");
        }
        let replace = match opts.mode {
            PutMode::Overwrite => true,
            PutMode::Create => false,
            PutMode::Update(_) => return refuse("conditional update"),
        };
        self.run(location, move |inner, file| inner.write(file, &payload, replace)).await?;
        Ok(UNTAGGED)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> StoreResult<Box<dyn MultipartUpload>> {
        if !opts.attributes.is_empty() {
            return refuse("put with attributes");
        }
        let scratch = self.inner.scratch_file();
        let file = self
            .run(location, {
                let scratch = scratch.clone();
                move |inner, _| inner.disk.create(&scratch)
            })
            .await?;
        Ok(Box::new(Upload::new(self.clone(), location.clone(), scratch, file)))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> StoreResult<GetResult> {
        if options.version.is_some() {
            return refuse("get of an older version");
        }
        let metadata = self.run(location, |inner, file| inner.file_metadata(file)).await?;
        let meta = object_meta(location.clone(), metadata);
        options.check_preconditions(&meta)?;
        let range = match &options.range {
            None => 0..meta.size,
            Some(range) => range
                .as_range(meta.size)
                .map_err(|error| object_store::Error::Generic { store: NAME, source: Box::new(error) })?,
        };
        let pieces = if options.head { 0..0 } else { range.clone() };
        let payload = GetResultPayload::Stream(self.pieces(location.clone(), pieces));
        Ok(GetResult { payload, meta, range, attributes: Attributes::default() })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> StoreResult<Vec<Bytes>> {
        let ranges = ranges.to_vec();
        self.run(location, move |inner, file| inner.disk.read_ranges(file, &ranges)).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, StoreResult<Path>>,
    ) -> BoxStream<'static, StoreResult<Path>> {
        let local = self.clone();
        locations
            .map(move |location| {
                let local = local.clone();
                async move {
                    let location = location?;
                    local.run(&location, |inner, file| inner.delete(file)).await?;
                    Ok(location)
                }
            })
            .buffered(DELETES)
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        let inner = Arc::clone(&self.inner);
        let dir = inner.dir_of(prefix);
        let shown = prefix.cloned().unwrap_or_default();
        let walk = super::blocking(move || inner.walk(dir));
        walk.map(move |objects| match objects {
            Ok(objects) => stream::iter(objects.into_iter().map(Ok)).left_stream(),
            Err(error) => stream::iter([Err(to_store(error, &shown))]).right_stream(),
        })
        .flatten_stream()
        .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> StoreResult<ListResult> {
        let inner = Arc::clone(&self.inner);
        let dir = inner.dir_of(prefix);
        let entries = super::blocking(move || inner.entries(&dir)).await;
        let entries = entries.map_err(|error| to_store(error, &prefix.cloned().unwrap_or_default()))?;
        let mut listed = ListResult { common_prefixes: Vec::new(), objects: Vec::new() };
        for (location, _, metadata) in entries {
            if metadata.is_dir {
                listed.common_prefixes.push(location);
            } else {
                listed.objects.push(object_meta(location, metadata));
            }
        }
        Ok(listed)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> StoreResult<()> {
        let target = self.inner.file_of(to).map_err(|error| to_store(error, to))?;
        let replace = options.mode == CopyMode::Overwrite;
        let copied = self.run(from, move |inner, source| {
            inner.file_metadata(source)?;
            // Objects are replaced as files, never written to, so two names may share one.
            let scratch = inner.scratch_file();
            let copy = || {
                inner.disk.hard_link(source, &scratch)?;
                inner.place(&scratch, &target, replace)
            };
            inner.cleaned(&scratch, copy())
        });
        copied.await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> StoreResult<()> {
        if options.target_mode == RenameTargetMode::Create {
            self.copy_opts(from, to, CopyOptions::new().with_mode(CopyMode::Create)).await?;
            return self.run(from, |inner, file| inner.delete(file)).await;
        }
        let target = self.inner.file_of(to).map_err(|error| to_store(error, to))?;
        let renamed = self.run(from, move |inner, source| {
            inner.file_metadata(source)?;
            inner.place(source, &target, true)?;
            inner.remove_empty_dirs(source)
        });
        renamed.await
    }
}

impl DurableLocal {
    fn pieces(&self, location: Path, range: Range<u64>) -> BoxStream<'static, StoreResult<Bytes>> {
        let local = self.clone();
        stream::try_unfold(range.start, move |offset| {
            let (local, location, end) = (local.clone(), location.clone(), range.end);
            async move {
                if offset >= end {
                    return Ok(None);
                }
                let len = (end - offset).min(PIECE_BYTES);
                let read =
                    move |inner: &Inner, file: &FilePath| inner.disk.read_range(file, offset, len as usize);
                let bytes = local.run(&location, read).await?;
                Ok(Some((bytes, offset + len)))
            }
        })
        .boxed()
    }
}
