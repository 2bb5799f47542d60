//! Trained models on disk: a file for each rule and value in the directory `intelligence` of the data directory, the latest alone.
//!
//! A file is there whole or not at all: written under another name, synced, renamed. One that cannot be read costs a training.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use millrace_forecast::{Trained, seed};
use millrace_storage::{Engine, Error as StorageError};

use crate::error::{Error, Result};

/// Name of the directory.
const DIRECTORY: &str = "intelligence";

/// The models of an engine.
#[derive(Clone, Debug)]
pub(crate) struct Artefacts {
    dir: PathBuf,
}

impl Artefacts {
    /// Names the models of an engine.
    pub(crate) fn of(engine: &Engine) -> Self {
        Self { dir: engine.data_dir().join(DIRECTORY) }
    }

    /// Names the file of a rule's model, below the data directory.
    pub(crate) fn path(rule: &str, value: Option<&str>) -> String {
        // Values may have any characters.
        let value = value.map_or_else(|| "all".to_owned(), |value| format!("{:016x}", seed(value)));
        format!("{DIRECTORY}/{rule}/{value}.model")
    }

    fn file(&self, rule: &str, value: Option<&str>) -> PathBuf {
        self.dir.with_file_name("").join(Self::path(rule, value))
    }

    /// Reads a model; `None` where there is none. One that cannot be read is told to the log, and none.
    pub(crate) async fn read(&self, rule: &str, value: Option<&str>) -> Option<Trained> {
        let path = self.file(rule, value);
        let read = move || {
            let bytes = match fs::read(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => return None,
                read => read.map_err(|error| error.to_string()),
            };
            match bytes.and_then(|bytes| Trained::from_bytes(&bytes).map_err(|error| error.to_string())) {
                Ok(trained) => Some(trained),
                Err(reason) => {
                    tracing::warn!(path = %path.display(), reason, "a stored model is not used: it is trained anew");
                    None
                }
            }
        };
        tokio::task::spawn_blocking(read).await.unwrap_or_default()
    }

    /// Stores a model.
    ///
    /// # Errors
    /// The disk's; the one of before is still there then.
    pub(crate) async fn write(&self, rule: &str, value: Option<&str>, bytes: Vec<u8>) -> Result<()> {
        let path = self.file(rule, value);
        let write = move || {
            let failed = |error| StorageError::io("write", &path, error);
            let dir = path.parent().unwrap_or(Path::new("."));
            fs::create_dir_all(dir).map_err(failed)?;
            let new = path.with_extension("new");
            let stored = File::create(&new).and_then(|mut file| {
                file.write_all(&bytes)?;
                file.sync_all()
            });
            stored.and_then(|()| fs::rename(&new, &path)).map_err(failed)?;
            File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed)
        };
        let written = tokio::task::spawn_blocking(write).await;
        Ok(written.map_err(|error| Error::Run(format!("the model was not stored: {error}")))??)
    }

    /// Removes all models of a rule.
    pub(crate) async fn remove(&self, rule: &str) {
        let path = self.dir.join(rule);
        let remove = move || match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), %error, "models of a deleted AI rule are still there");
            }
            _ => {}
        };
        let _ = tokio::task::spawn_blocking(remove).await;
    }
}
