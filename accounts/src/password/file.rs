//! The file that a generated password is written to, for where what the process prints is kept and read by others.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Writes a password to a file that only the owner reads, durably; without one, removes the file.
pub(crate) async fn keep(file: PathBuf, password: Option<String>) -> Result<()> {
    let kept = tokio::task::spawn_blocking(move || {
        replace(&file, password.as_deref()).map_err(|error| format!("[{}]: {error}", file.display()))
    });
    let kept = kept.await.map_err(Error::internal)?;
    kept.map_err(|error| Error::Internal(format!("the generated password cannot be kept in {error}")))
}

fn replace(file: &Path, password: Option<&str>) -> io::Result<()> {
    // Not opened as it is: whoever made it could have it open, or have let others read it.
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    if let Some(password) = password {
        let mut new = File::options().write(true).create_new(true).mode(0o600).open(file)?;
        writeln!(new, "{password}")?;
        new.sync_all()?;
    }
    match file.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}
