//! [`Disk`] in memory that forgets what was not synced.
//!
//! The model is the strictest reading of POSIX: file contents and directory entries live in a cache
//! until their file or directory is synced, each on its own. On [`SimulatedDisk::power_loss`] a
//! seeded generator decides about everything in the cache: namespace changes (create, link, rename,
//! remove, mkdir) are kept or dropped each as a whole and independently of one another; appended
//! bytes are dropped, kept up to an arbitrary byte, or kept by 512-byte sectors in any combination
//! with zeros in the holes. A file whose directory entry (or whose directory's entry, up to the
//! root) is not durable is gone, whatever was synced in it. A failed sync loses what it should have
//! written, although reads still see it.

mod contents;
mod state;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use bytes::Bytes;
use parking_lot::Mutex;

use self::contents::Contents;
use self::state::{Change, Inode, Namespace, ROOT, State, Step, power_failure};
use super::system::{check_range, locked};
use super::{Disk, DiskFile, LockGuard, Metadata, Space};
use crate::{Error, Result};

/// An in-memory disk with power loss, kill and injected faults. Clones share one disk.
///
/// Every mutating call (create, append, sync, rename, link, remove, mkdir, sync of a directory) is
/// one operation; [`Disk::truncate`] is two, [`Disk::import`] (of a simulated file, or of one of the
/// real file system) as many as the calls that it stands for.
#[derive(Clone)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
}

impl SimulatedDisk {
    /// Makes an empty disk whose accidents follow from `seed`.
    pub fn new(seed: u64) -> Self {
        let mut namespace = Namespace::new();
        namespace.insert(ROOT, BTreeMap::new());
        Self::from_state(State {
            current: namespace.clone(),
            durable: namespace,
            ..State::fresh(seed, 1 << 50)
        })
    }

    fn from_state(state: State) -> Self {
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Lets the power fail during the operation after the next `operations` ones. That operation may
    /// or may not take effect; it and all later calls, reads included, fail.
    pub fn crash_after(&self, operations: u64) {
        let mut state = self.state.lock();
        state.crash_after = Some(state.operations + operations);
    }

    /// Returns whether the power has failed.
    pub fn crashed(&self) -> bool {
        self.state.lock().crashed
    }

    /// Counts the mutating operations so far.
    pub fn op_count(&self) -> u64 {
        self.state.lock().operations
    }

    /// Cuts the power now (if it has not failed before) and returns the disk that a restarted
    /// machine finds. This handle and its files fail from here on.
    pub fn power_loss(&self) -> Self {
        let mut state = self.state.lock();
        state.crashed = true;
        Self::from_state(state.after_power_loss())
    }

    /// Kills the process: returns the disk as the next process finds it, unsynced contents included
    /// and still unsynced. This handle and its files fail from here on.
    pub fn kill(&self) -> Self {
        let mut state = self.state.lock();
        state.crashed = true;
        let seed = state.seed.wrapping_add(1);
        Self::from_state(State {
            files: state.files.clone(),
            next_inode: state.next_inode,
            current: state.current.clone(),
            durable: state.durable.clone(),
            changes: state.changes.clone(),
            ..State::fresh(seed, state.capacity)
        })
    }

    /// Counts the syncs (of files and directories) so far.
    pub fn sync_count(&self) -> u64 {
        self.state.lock().syncs
    }

    /// Lets the `n`-th sync from now fail (0 is the next one); what it should have made durable is
    /// lost.
    pub fn fail_sync(&self, n: u64) {
        let mut state = self.state.lock();
        let number = state.syncs + n;
        state.failing_syncs.insert(number);
    }

    /// Lets the `n`-th append from now (0 is the next one) write only a part and fail.
    pub fn fail_append(&self, n: u64) {
        let mut state = self.state.lock();
        let number = state.appends + n;
        state.failing_appends.insert(number);
    }

    /// Sets the bytes that all files together may have; an append beyond it writes what fits and
    /// fails as a full disk does.
    pub fn set_capacity(&self, bytes: u64) {
        self.state.lock().capacity = bytes;
    }

    /// Counts the bytes of all files.
    pub fn used_bytes(&self) -> u64 {
        self.state.lock().used()
    }

    /// Inverts bits of a stored byte, as decay does.
    ///
    /// # Errors
    /// No such file or byte.
    pub fn damage(&self, path: &Path, offset: u64, mask: u8) -> Result<()> {
        let mut state = self.state.lock();
        let inode = state.file(path).map_err(|error| Error::io("damage", path, error))?;
        let beyond = || Error::io("damage", path, io::Error::from(io::ErrorKind::UnexpectedEof));
        let contents = state.files.get_mut(&inode).ok_or_else(beyond)?;
        *contents.cached.get_mut(offset as usize).ok_or_else(beyond)? ^= mask;
        if let Some(byte) = contents.durable.get_mut(offset as usize) {
            *byte ^= mask;
        }
        Ok(())
    }

    /// Does something that is no file operation but becomes durable as a whole (a catalog's
    /// transaction) as one operation of this disk: it happens, or the power fails first, or it
    /// happens and the power fails before the answer.
    ///
    /// # Errors
    /// The power has failed.
    pub fn transaction<T>(&self, operation: impl FnOnce() -> T) -> Result<T> {
        let mut state = self.state.lock();
        let fails = |error| Error::io("commit", "", error);
        match state.begin().map_err(fails)? {
            Step::Go => Ok(operation()),
            Step::Crash { act } => {
                if act {
                    operation();
                }
                Err(fails(power_failure()))
            }
        }
    }
}

impl fmt::Debug for SimulatedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("SimulatedDisk")
            .field("seed", &state.seed)
            .field("operations", &state.operations)
            .field("crashed", &state.crashed)
            .finish_non_exhaustive()
    }
}

impl Disk for SimulatedDisk {
    fn create(&self, path: &Path) -> Result<Box<dyn DiskFile>> {
        let create = |state: &mut State| {
            let (dir, name) = state.place(path)?;
            if state.entry(dir, name).is_some() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            let inode = state.new_inode();
            state.files.insert(inode, Contents { modified: state.operations, ..Contents::default() });
            state.change(Change(vec![(dir, name.to_owned(), Some(inode))]));
            Ok(inode)
        };
        let inode = self.state.lock().operate(create).map_err(|error| Error::io("create", path, error))?;
        Ok(Box::new(SimulatedFile { state: Arc::clone(&self.state), inode, path: path.to_owned() }))
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        self.open_mapped(path).map(Vec::from)
    }

    fn read_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let bytes = self.open_mapped(path)?;
        let read = |range: &Range<u64>| {
            check_range(path, range, bytes.len() as u64)?;
            Ok(bytes.slice(range.start as usize..range.end as usize))
        };
        ranges.iter().map(read).collect()
    }

    fn open_mapped(&self, path: &Path) -> Result<Bytes> {
        let state = self.state.lock();
        let read = || {
            state.alive()?;
            let inode = state.file(path)?;
            Ok(state.files.get(&inode).map(|file| Bytes::copy_from_slice(&file.cached)).unwrap_or_default())
        };
        read().map_err(|error| Error::io("read", path, error))
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        let state = self.state.lock();
        let read = || {
            state.alive()?;
            let inode = state.lookup(path)?;
            Ok(match state.files.get(&inode) {
                None => Metadata { len: 0, is_dir: true, modified_ms: 0 },
                Some(file) => Metadata {
                    len: file.cached.len() as u64,
                    is_dir: false,
                    modified_ms: i64::try_from(file.modified).unwrap_or(i64::MAX),
                },
            })
        };
        read().map_err(|error| Error::io("read metadata of", path, error))
    }

    fn list(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        let state = self.state.lock();
        state.alive().map_err(|error| Error::io("list", dir, error))?;
        match state.dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(Error::io("list", dir, error)),
            Ok(inode) => {
                let entries = state.current.get(&inode).into_iter().flatten();
                Ok(entries.map(|(name, _)| PathBuf::from(name)).collect())
            }
        }
    }

    fn truncate(&self, path: &Path, len: u64) -> Result<()> {
        let mut state = self.state.lock();
        let mut cut = || {
            state.operate(|state| {
                let inode = state.file(path)?;
                state.cut(inode, len);
                Ok(())
            })?;
            state.operate(|state| {
                let inode = state.file(path)?;
                state.sync_file(inode)
            })
        };
        cut().map_err(|error| Error::io("truncate", path, error))
    }

    fn sync_file(&self, path: &Path) -> Result<()> {
        let sync = |state: &mut State| {
            let inode = state.file(path)?;
            state.sync_file(inode)
        };
        self.state.lock().operate(sync).map_err(|error| Error::io("sync", path, error))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let rename = |state: &mut State| {
            let (from_dir, from_name) = state.place(from)?;
            let inode = state.entry(from_dir, from_name).ok_or(io::ErrorKind::NotFound)?;
            let (to_dir, to_name) = state.place(to)?;
            if state.entry(to_dir, to_name).is_some_and(|target| !state.files.contains_key(&target)) {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            state.change(Change(vec![
                (from_dir, from_name.to_owned(), None),
                (to_dir, to_name.to_owned(), Some(inode)),
            ]));
            Ok(())
        };
        self.state.lock().operate(rename).map_err(|error| Error::io("rename", from, error))
    }

    fn import(&self, scratch: &Path, to: &Path) -> Result<()> {
        if self.metadata(scratch).is_ok() {
            self.sync_file(scratch)?;
            return self.rename(scratch, to);
        }
        let bytes = std::fs::read(scratch).map_err(|error| Error::io("read", scratch, error))?;
        let mut file = self.create(to)?;
        file.append(&bytes)?;
        file.sync()?;
        std::fs::remove_file(scratch).map_err(|error| Error::io("remove", scratch, error))
    }

    fn reflink(&self, from: &Path, to: &Path) -> Result<bool> {
        // Files of the real disk share no blocks with those of this one.
        if self.metadata(from).is_err() {
            return Ok(false);
        }
        let bytes = self.read(from)?;
        self.create(to)?.append(&bytes)?;
        Ok(true)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        let link = |state: &mut State| {
            let inode = state.file(from)?;
            let (dir, name) = state.place(to)?;
            if state.entry(dir, name).is_some() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            state.change(Change(vec![(dir, name.to_owned(), Some(inode))]));
            Ok(())
        };
        self.state.lock().operate(link).map_err(|error| Error::io("link", to, error))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let remove = |state: &mut State| match state.file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(_) => {
                let (dir, name) = state.place(path)?;
                state.change(Change(vec![(dir, name.to_owned(), None)]));
                Ok(())
            }
        };
        self.state.lock().operate(remove).map_err(|error| Error::io("remove", path, error))
    }

    fn remove_dir(&self, dir: &Path) -> Result<bool> {
        let remove = |state: &mut State| match state.dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
            Ok(inode) if state.current.get(&inode).is_some_and(|entries| !entries.is_empty()) => Ok(false),
            Ok(_) => {
                let (parent, name) = state.place(dir)?;
                state.change(Change(vec![(parent, name.to_owned(), None)]));
                Ok(true)
            }
        };
        self.state.lock().operate(remove).map_err(|error| Error::io("remove directory", dir, error))
    }

    fn create_dir(&self, dir: &Path) -> Result<bool> {
        let mut state = self.state.lock();
        let mut create = || {
            state.alive()?;
            match state.dir(dir) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    state.operate(|state| state.make_dir(dir)).map(|()| true)
                }
                other => other.map(|_| false),
            }
        };
        create().map_err(|error| Error::io("create directory", dir, error))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let sync = |state: &mut State| {
            let inode = state.dir(dir)?;
            state.sync_dir(inode)
        };
        self.state.lock().operate(sync).map_err(|error| Error::io("sync directory", dir, error))
    }

    fn space(&self, _path: &Path) -> Result<Space> {
        let state = self.state.lock();
        Ok(Space { free: state.capacity.saturating_sub(state.used()), total: state.capacity })
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn LockGuard>> {
        let mut state = self.state.lock();
        state.alive().map_err(|error| Error::io("lock", path, error))?;
        if !state.locks.insert(path.to_owned()) {
            return Err(locked(path, ""));
        }
        Ok(Box::new(SimulatedLock { state: Arc::clone(&self.state), path: path.to_owned() }))
    }
}

struct SimulatedFile {
    state: Arc<Mutex<State>>,
    inode: Inode,
    path: PathBuf,
}

impl fmt::Debug for SimulatedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl DiskFile for SimulatedFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let append = |state: &mut State| state.append(self.inode, bytes);
        self.state.lock().operate(append).map_err(|error| Error::io("write", &self.path, error))
    }

    fn sync(&mut self) -> Result<()> {
        let sync = |state: &mut State| state.sync_file(self.inode);
        self.state.lock().operate(sync).map_err(|error| Error::io("sync", &self.path, error))
    }

    fn truncate(&mut self, len: u64) -> Result<()> {
        let cut = |state: &mut State| {
            state.cut(self.inode, len);
            Ok(())
        };
        self.state.lock().operate(cut).map_err(|error| Error::io("truncate", &self.path, error))
    }
}

struct SimulatedLock {
    state: Arc<Mutex<State>>,
    path: PathBuf,
}

impl fmt::Debug for SimulatedLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedLock").field("path", &self.path).finish_non_exhaustive()
    }
}

impl LockGuard for SimulatedLock {}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        self.state.lock().locks.remove(&self.path);
    }
}
