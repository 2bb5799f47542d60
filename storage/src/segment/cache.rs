//! The bounded local cache of whole files of remote segments: bundles and sidecars are copied here
//! before they are searched, and mapped into memory.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use bytes::Bytes;
use object_store::path::Path;
use parking_lot::Mutex;

use super::stored::Env;
use crate::{Error, Result};

/// Files of remote segments on local disk, least recently fetched out first.
///
/// A file that is mapped stays readable after its eviction: the map keeps its pages.
#[derive(Debug)]
pub(crate) struct FileCache {
    dir: PathBuf,
    max_bytes: u64,
    entries: Mutex<Vec<(String, u64)>>,
}

impl FileCache {
    /// Makes a cache in `dir`, whose contents of an earlier run are removed.
    pub(crate) fn open(dir: PathBuf, max_bytes: u64) -> Result<Self> {
        match fs::remove_dir_all(&dir) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io("clear cache", &dir, error)),
        }
        fs::create_dir_all(&dir).map_err(|error| Error::io("create cache", &dir, error))?;
        Ok(Self { dir, max_bytes, entries: Mutex::new(Vec::new()) })
    }

    /// Returns a file, fetching it first; blocks, so it is called on compute threads only.
    pub(crate) fn get(&self, env: &Env, path: &Path, name: &str) -> Result<Bytes> {
        let local = self.dir.join(name);
        let bytes = env.runtime.block_on(env.objects.get(path))?;
        // Written under a name of its own first: two fetches of one file must not mix.
        let partial = self.dir.join(format!("{name}.{}", uuid::Uuid::new_v4().simple()));
        let write = || -> std::io::Result<File> {
            let mut file = File::create(&partial)?;
            file.write_all(&bytes)?;
            fs::rename(&partial, &local)?;
            File::open(&local)
        };
        let file = write().map_err(|error| Error::io("cache file", &local, error))?;
        self.admit(name, bytes.len() as u64);
        drop(bytes);
        // SAFETY: the file is private to this cache, never written again, and eviction unlinks it,
        // which leaves existing maps intact.
        let map =
            unsafe { memmap2::Mmap::map(&file) }.map_err(|error| Error::io("map file", &local, error))?;
        Ok(Bytes::from_owner(map))
    }

    /// Removes a file of a segment that is gone.
    pub(crate) fn forget(&self, name: &str) {
        let mut entries = self.entries.lock();
        let Some(at) = entries.iter().position(|(other, _)| other == name) else { return };
        let (name, _) = entries.remove(at);
        self.remove(&name);
    }

    fn remove(&self, name: &str) {
        if let Err(error) = fs::remove_file(self.dir.join(name)) {
            tracing::warn!(file = name, %error, "cannot remove a cached file");
        }
    }

    fn admit(&self, name: &str, bytes: u64) {
        let mut entries = self.entries.lock();
        entries.retain(|(other, _)| other != name);
        entries.push((name.to_owned(), bytes));
        let mut total: u64 = entries.iter().map(|(_, bytes)| bytes).sum();
        while total > self.max_bytes && entries.len() > 1 {
            let (evicted, bytes) = entries.remove(0);
            total -= bytes;
            self.remove(&evicted);
        }
    }
}
