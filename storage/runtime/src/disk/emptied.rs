//! Directories of files that no restart needs: caches, files under construction, what is spilled.

use std::io;
use std::path::Path;

/// Directory that file systems keep at their root; it is theirs.
const LOST_AND_FOUND: &str = "lost+found";

/// Empties a directory, and creates it where there is none. The directory itself stays, so that it may be a mount or a
/// link to another disk. Links within are removed, and not what they lead to.
///
/// # Errors
/// The operating system's; some of the contents may be gone by then.
pub fn empty_directory(directory: &Path) -> io::Result<()> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // A link whose target is missing is there, and `create_dir_all` would say that it exists.
            return std::fs::create_dir_all(directory);
        }
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_name() == LOST_AND_FOUND {
            continue;
        }
        let removed = match entry.file_type()?.is_dir() {
            true => std::fs::remove_dir_all(entry.path()),
            false => std::fs::remove_file(entry.path()),
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_emptied_and_stays_where_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let (other, link) = (dir.path().join("other disk"), dir.path().join("cache"));
        let kept = dir.path().join("kept");
        std::fs::create_dir_all(other.join("sub/dir")).unwrap();
        std::fs::create_dir_all(other.join(LOST_AND_FOUND)).unwrap();
        std::fs::create_dir(&kept).unwrap();
        for file in [other.join("a"), other.join("sub/dir/b"), kept.join("c")] {
            std::fs::write(file, "x").unwrap();
        }
        std::os::unix::fs::symlink(&kept, other.join("link")).unwrap();
        std::os::unix::fs::symlink(&other, &link).unwrap();
        empty_directory(&link).unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        let left: Vec<_> =
            std::fs::read_dir(&other).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [LOST_AND_FOUND]);
        assert!(kept.join("c").exists());
        let new = dir.path().join("new/cache");
        empty_directory(&new).unwrap();
        assert!(new.is_dir());
        std::fs::remove_dir_all(&other).unwrap();
        empty_directory(&link).unwrap_err();
        empty_directory(&kept.join("c")).unwrap_err();
    }
}
