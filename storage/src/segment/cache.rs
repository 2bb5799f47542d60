//! The bounded local cache of whole files of remote segments: bundles and sidecars are copied here
//! before they are searched, and mapped into memory.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use memmap2::Mmap;
use object_store::path::Path;
use parking_lot::Mutex;

use super::stored::Env;
use crate::{Error, Result};

/// Files of remote segments on local disk, least recently fetched out first.
///
/// A file that is mapped takes up its space whether it has a name or not. So files in use are counted
/// and stay, and the bound is exceeded by them at most.
#[derive(Debug)]
pub(crate) struct FileCache {
    dir: PathBuf,
    max_bytes: u64,
    entries: Mutex<Vec<Entry>>,
}

/// A file in the cache.
#[derive(Debug)]
struct Entry {
    name: String,
    bytes: u64,
    /// Held by whoever uses the file.
    used: Weak<()>,
}

/// The map of a file in use.
struct Used {
    map: Mmap,
    _used: Arc<()>,
}

impl AsRef<[u8]> for Used {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
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
        let bytes = crate::sync::block_on(&env.runtime, env.objects.get(path))?;
        // Written under a name of its own first: two fetches of one file must not mix.
        let partial = self.dir.join(format!("{name}.{}", uuid::Uuid::new_v4().simple()));
        let write = || -> std::io::Result<File> {
            let mut file = File::options().read(true).write(true).create_new(true).open(&partial)?;
            file.write_all(&bytes)?;
            // Mapped by this handle: by its name, another fetch may have evicted it already.
            fs::rename(&partial, &local)?;
            Ok(file)
        };
        let file = write().map_err(|error| {
            let _ = fs::remove_file(&partial);
            Error::io("cache file", &local, error)
        })?;
        let used = Arc::new(());
        self.admit(name, bytes.len() as u64, Arc::downgrade(&used));
        drop(bytes);
        // SAFETY: the file is private to this cache, never written again, and eviction unlinks it,
        // which leaves existing maps intact.
        let map = unsafe { Mmap::map(&file) }.map_err(|error| Error::io("map file", &local, error))?;
        Ok(Bytes::from_owner(Used { map, _used: used }))
    }

    /// Removes a file of a segment that is gone.
    pub(crate) fn forget(&self, name: &str) {
        let mut entries = self.entries.lock();
        let Some(at) = entries.iter().position(|entry| entry.name == name) else { return };
        self.remove(&entries.remove(at).name);
    }

    fn remove(&self, name: &str) {
        if let Err(error) = fs::remove_file(self.dir.join(name)) {
            tracing::warn!(file = name, %error, "cannot remove a cached file");
        }
    }

    fn admit(&self, name: &str, bytes: u64, used: Weak<()>) {
        let mut entries = self.entries.lock();
        entries.retain(|entry| entry.name != name);
        entries.push(Entry { name: name.to_owned(), bytes, used });
        let mut total: u64 = entries.iter().map(|entry| entry.bytes).sum();
        while total > self.max_bytes
            && let Some(at) = entries.iter().position(|entry| entry.used.strong_count() == 0)
        {
            let evicted = entries.remove(at);
            total -= evicted.bytes;
            self.remove(&evicted.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_in_use_are_counted_and_stay() {
        let dir = tempfile::tempdir().unwrap();
        let cache = FileCache::open(dir.path().join("cache"), 100).unwrap();
        let add = |name: &str, bytes| {
            fs::write(cache.dir.join(name), vec![0; bytes]).unwrap();
            let used = Arc::new(());
            cache.admit(name, bytes as u64, Arc::downgrade(&used));
            used
        };
        let there = || {
            let mut names: Vec<_> = fs::read_dir(&cache.dir)
                .unwrap()
                .map(|f| f.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names.concat()
        };
        let (a, b) = (add("a", 60), add("b", 60));
        assert_eq!(there(), "ab");
        drop(a);
        let _c = add("c", 30);
        assert_eq!(there(), "bc");
        drop(b);
        let _d = add("d", 70);
        assert_eq!(there(), "cd");
        cache.forget("c");
        assert_eq!(there(), "d");
    }
}
