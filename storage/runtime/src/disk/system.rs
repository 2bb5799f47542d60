//! [`Disk`] over the operating system's file system.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use memmap2::Mmap;
#[cfg(target_os = "linux")]
use rustix::io::Errno;

use super::mapped::{MappedPages, SharedMap};
use super::uncached::UncachedFile;
use super::{Disk, DiskFile, LockGuard, Metadata, Space, parent_of};
use crate::{Error, Result};

/// Bytes up to which a file is read, not mapped: maps are few in a process, and each takes a page.
const COPIED_BYTES: u64 = 16 << 10;

/// The operating system's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemDisk;

impl SystemDisk {
    /// Makes a handle; it has no state.
    pub fn new() -> Self {
        Self
    }
}

impl Disk for SystemDisk {
    fn create(&self, path: &Path) -> Result<Box<dyn DiskFile>> {
        Ok(Box::new(SystemFile { file: create_new(path)?, path: path.to_owned() }))
    }

    fn create_uncached(&self, path: &Path) -> Result<Box<dyn DiskFile>> {
        Ok(Box::new(UncachedFile::new(create_new(path)?, path.to_owned())))
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        std::fs::read(path).map_err(|error| Error::io("read", path, error))
    }

    fn read_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let file = File::open(path).map_err(|error| Error::io("open", path, error))?;
        let len = file.metadata().map_err(|error| Error::io("read", path, error))?.len();
        let read = |range: &Range<u64>| {
            check_range(path, range, len)?;
            let mut bytes = vec![0; (range.end - range.start) as usize];
            file.read_exact_at(&mut bytes, range.start).map_err(|error| Error::io("read", path, error))?;
            Ok(Bytes::from(bytes))
        };
        ranges.iter().map(read).collect()
    }

    fn open_mapped(&self, path: &Path) -> Result<Bytes> {
        Ok(self.open_mapped_pages(path)?.0)
    }

    fn open_mapped_pages(&self, path: &Path) -> Result<(Bytes, MappedPages)> {
        let file = File::open(path).map_err(|error| Error::io("open", path, error))?;
        let len = file.metadata().map_err(|error| Error::io("open", path, error))?.len();
        if len == 0 {
            return Ok(Default::default());
        }
        if len <= COPIED_BYTES {
            return Ok((self.read(path)?.into(), MappedPages::default()));
        }
        // SAFETY: the trait asks callers to map only files that nobody writes to or cuts any more.
        // They lie in a data directory that is locked against other servers; removing a mapped file
        // keeps its contents until it is unmapped.
        let map = unsafe { Mmap::map(&file) }.map_err(|error| Error::io("map", path, error))?;
        let map = Arc::new(map);
        let pages = MappedPages::new(&map);
        Ok((Bytes::from_owner(SharedMap(map)), pages))
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        let metadata = std::fs::metadata(path).map_err(|error| Error::io("read metadata of", path, error))?;
        let modified = metadata.modified().map_err(|error| Error::io("read metadata of", path, error))?;
        let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Metadata {
            len: metadata.len(),
            is_dir: metadata.is_dir(),
            modified_ms: i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        })
    }

    fn list(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        let entries = match std::fs::read_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|error| Error::io("list", dir, error))?,
        };
        let name = |entry: io::Result<std::fs::DirEntry>| entry.map(|entry| PathBuf::from(entry.file_name()));
        let mut names: Vec<PathBuf> =
            entries.map(name).collect::<io::Result<_>>().map_err(|error| Error::io("list", dir, error))?;
        names.sort_unstable();
        Ok(names)
    }

    fn truncate(&self, path: &Path, len: u64) -> Result<()> {
        let cut = || {
            let file = OpenOptions::new().write(true).open(path)?;
            file.set_len(len)?;
            file.sync_all()
        };
        cut().map_err(|error| Error::io("truncate", path, error))
    }

    fn sync_file(&self, path: &Path) -> Result<()> {
        let sync = || OpenOptions::new().write(true).open(path)?.sync_all();
        sync().map_err(|error| Error::io("sync", path, error))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        std::fs::rename(from, to).map_err(|error| Error::io("rename", from, error))
    }

    fn import(&self, scratch: &Path, to: &Path) -> Result<()> {
        match std::fs::rename(scratch, to) {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                std::fs::copy(scratch, to).map_err(|error| Error::io("copy", scratch, error))?;
                self.sync_file(to)?;
                self.remove(scratch)
            }
            other => {
                other.map_err(|error| Error::io("rename", scratch, error))?;
                self.sync_file(to)
            }
        }
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        std::fs::hard_link(from, to).map_err(|error| Error::io("link", to, error))
    }

    #[cfg(target_os = "linux")]
    fn reflink(&self, from: &Path, to: &Path) -> Result<bool> {
        let source = File::open(from).map_err(|error| Error::io("open", from, error))?;
        let target = OpenOptions::new().write(true).create_new(true).open(to);
        let target = target.map_err(|error| Error::io("create", to, error))?;
        match rustix::fs::ioctl_ficlone(&target, &source) {
            Ok(()) => Ok(true),
            Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::IO)) => {
                self.remove(to)?;
                Err(Error::io("copy", from, io::Error::from(error)))
            }
            // Each file system refuses in its own words. A copy tells of faults.
            Err(_) => {
                self.remove(to)?;
                Ok(false)
            }
        }
    }

    fn remove(&self, path: &Path) -> Result<()> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path, error)),
            _ => Ok(()),
        }
    }

    fn remove_dir(&self, dir: &Path) -> Result<bool> {
        match std::fs::remove_dir(dir) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(false),
            Err(error) => Err(Error::io("remove directory", dir, error)),
        }
    }

    fn create_dir(&self, dir: &Path) -> Result<bool> {
        loop {
            match std::fs::create_dir(dir) {
                Ok(()) => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    if dir.is_dir() {
                        return Ok(false);
                    }
                    // What was there may be gone by now.
                    if std::fs::symlink_metadata(dir).is_ok() {
                        return Err(Error::io("create directory", dir, error));
                    }
                }
                Err(error) => return Err(Error::io("create directory", dir, error)),
            }
        }
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        File::open(dir)
            .and_then(|directory| directory.sync_all())
            .map_err(|error| Error::io("sync directory", dir, error))
    }

    fn space(&self, path: &Path) -> Result<Space> {
        let stat = rustix::fs::statvfs(path)
            .map_err(|error| Error::io("read free space of", path, io::Error::from(error)))?;
        Ok(Space {
            free: stat.f_bavail.saturating_mul(stat.f_frsize),
            total: stat.f_blocks.saturating_mul(stat.f_frsize),
        })
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn LockGuard>> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(|error| Error::io("open", path, error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // The id is a courtesy to the reader; without it the refusal stands all the same.
                let _ = Read::by_ref(&mut file).take(20).read_to_string(&mut holder);
                return Err(locked(path, holder.trim()));
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(Error::io("lock", path, error)),
        }
        file.set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(|error| Error::io("write", path, error))?;
        Ok(Box::new(SystemLock { _file: file }))
    }
}

fn create_new(path: &Path) -> Result<File> {
    let created = OpenOptions::new().write(true).create_new(true).open(path);
    created.map_err(|error| Error::io("create", path, error))
}

/// Makes the refusal of a lock, naming its directory and who holds it.
pub(super) fn locked(path: &Path, holder: &str) -> Error {
    let dir = parent_of(path).display();
    match holder {
        "" => Error::Locked(dir.to_string()),
        holder => Error::Locked(format!("{dir} (process {holder})")),
    }
}

/// Refuses a range that is not within a file of `len` bytes.
pub(super) fn check_range(path: &Path, range: &Range<u64>, len: u64) -> Result<()> {
    if range.start <= range.end && range.end <= len {
        return Ok(());
    }
    let reason = format!("range {}..{} of a file of {len} bytes", range.start, range.end);
    Err(Error::io("read", path, io::Error::new(io::ErrorKind::UnexpectedEof, reason)))
}

#[derive(Debug)]
struct SystemFile {
    file: File,
    path: PathBuf,
}

impl DiskFile for SystemFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|error| Error::io("write", &self.path, error))
    }

    fn sync(&mut self) -> Result<()> {
        self.file.sync_data().map_err(|error| Error::io("sync", &self.path, error))
    }

    #[cfg(target_os = "linux")]
    fn begin_sync(&mut self) {
        use std::os::fd::AsRawFd;
        // SAFETY: the call takes numbers alone, and the file is open. What it cannot do, the next sync does or refuses.
        unsafe { libc::sync_file_range(self.file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
    }

    fn truncate(&mut self, len: u64) -> Result<()> {
        let mut cut = || {
            self.file.set_len(len)?;
            self.file.seek(SeekFrom::Start(len))
        };
        cut().map(drop).map_err(|error| Error::io("truncate", &self.path, error))
    }
}

/// An exclusive `flock`, released by closing the file.
#[derive(Debug)]
struct SystemLock {
    _file: File,
}

impl LockGuard for SystemLock {}
