//! Durable replacement of a file outside of the store, such as the saved state of a background task.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

/// Replaces a file atomically and durably. After a crash the file has its old content or `bytes`, never a mix. Blocks.
///
/// The content is first written to `scratch`, which is on the same file system. One writer uses a scratch file at a time.
///
/// # Errors
/// An error of the file system. The old content remains then, unless only the sync of the directory failed.
pub fn replace_file(scratch: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let written = File::create(scratch).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    if let Err(error) = written.and_then(|()| fs::rename(scratch, path)) {
        let _ = fs::remove_file(scratch);
        return Err(error);
    }
    match path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        Some(directory) => File::open(directory)?.sync_all(),
        None => File::open(".")?.sync_all(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_replacement_leaves_the_old_content() {
        let dir = tempfile::tempdir().unwrap();
        let (scratch, path) = (dir.path().join("new"), dir.path().join("state"));
        replace_file(&scratch, &path, b"one").unwrap();
        replace_file(&scratch, &path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert!(!scratch.exists());
        let directory = dir.path().join("directory");
        fs::create_dir_all(directory.join("below")).unwrap();
        replace_file(&scratch, &directory, b"three").unwrap_err();
        assert!(directory.is_dir() && !scratch.exists());
    }
}
