//! Files that filters and processors load, and load again once they have changed.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use millrace_runtime::Instant;
use parking_lot::Mutex;

type Load<T> = dyn Fn(&Path) -> Result<T, String> + Send + Sync;

/// Content of a file. At most once an interval, a caller looks whether the file has changed and loads it; others go on with the
/// old content meanwhile. A file that cannot be loaded leaves the old content in place, and the log has the reason.
pub struct RefreshedFile<T> {
    path: PathBuf,
    interval: Duration,
    load: Box<Load<T>>,
    content: Mutex<Arc<T>>,
    last_check: Mutex<CheckState>,
}

#[derive(Debug)]
struct CheckState {
    at: Instant,
    version: FileVersion,
}

/// Identity of a file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileVersion {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl<T> fmt::Debug for RefreshedFile<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefreshedFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl<T> RefreshedFile<T> {
    /// Loads a file. An interval of zero never loads it again.
    ///
    /// # Errors
    /// The reason why it cannot be loaded.
    pub fn open(
        path: PathBuf,
        interval: Duration,
        load: impl Fn(&Path) -> Result<T, String> + Send + Sync + 'static,
    ) -> Result<Self, String> {
        let version = FileVersion::of(&path).map_err(|error| unreadable(&path, &error))?;
        let content = Mutex::new(Arc::new(load(&path)?));
        let last_check = Mutex::new(CheckState { at: Instant::now(), version });
        Ok(Self { path, interval, load: Box::new(load), content, last_check })
    }

    /// Returns the content, loaded again where the interval is over and the file has changed.
    pub fn current(&self) -> Arc<T> {
        if !self.interval.is_zero()
            && let Some(mut check) = self.last_check.try_lock()
            && check.at.elapsed() >= self.interval
        {
            check.at = Instant::now();
            self.reload(&mut check);
        }
        Arc::clone(&self.content.lock())
    }

    fn reload(&self, check: &mut CheckState) {
        let loaded = match FileVersion::of(&self.path) {
            Ok(version) if version == check.version => return,
            Ok(version) => (self.load)(&self.path).map(|content| (version, content)),
            Err(error) => Err(unreadable(&self.path, &error)),
        };
        match loaded {
            Ok((version, content)) => {
                *self.content.lock() = Arc::new(content);
                check.version = version;
                tracing::info!(path = %self.path.display(), "a filter loaded its file again");
            }
            Err(reason) => tracing::warn!(reason, "a filter keeps the former content of its file"),
        }
    }
}

impl FileVersion {
    fn of(path: &Path) -> std::io::Result<Self> {
        let metadata = std::fs::metadata(path)?;
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> String {
    format!("cannot read [{}]: {error}", path.display())
}

/// Reads a file of bounded length.
///
/// # Errors
/// The reason why it cannot be read, naming it.
pub fn read_bytes(path: &Path, max_bytes: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    file.take(max_bytes + 1).read_to_end(&mut bytes).map_err(|error| unreadable(path, &error))?;
    if bytes.len() as u64 > max_bytes {
        return Err(format!("[{}] has more than {max_bytes} bytes", path.display()));
    }
    Ok(bytes)
}

/// Reads a text file of bounded length.
///
/// # Errors
/// The reason why it cannot be read, naming it.
pub fn read_text(path: &Path, max_bytes: u64) -> Result<String, String> {
    String::from_utf8(read_bytes(path, max_bytes)?).map_err(|_| format!("[{}] is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_files_are_loaded_again_and_wrong_ones_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "one").unwrap();
        let load = |path: &Path| {
            let text = read_text(path, 8)?;
            if text == "wrong" { Err("it is wrong".to_owned()) } else { Ok(text) }
        };
        let file = RefreshedFile::open(path.clone(), Duration::from_nanos(1), load).unwrap();
        assert_eq!(*file.current(), "one");
        std::fs::write(&path, "second").unwrap();
        assert_eq!(*file.current(), "second");
        for unusable in ["wrong", "longer than 8"] {
            std::fs::write(&path, unusable).unwrap();
            assert_eq!(*file.current(), "second");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(*file.current(), "second");
        assert!(RefreshedFile::open(path, Duration::ZERO, load).unwrap_err().contains("cannot read"));
    }
}
