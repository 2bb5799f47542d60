//! Trained models on disk: a file for each rule and value in the directory `intelligence` of the data directory, the latest alone.
//!
//! A file is there whole or not at all: written under another name, synced, renamed. One that cannot be read costs a training.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_forecast::{Trained, seed};
use millrace_storage::{Engine, Error as StorageError};

use crate::error::{Error, Result};
use crate::store::Kept;

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

    /// Removes the models of values that a rule has no more.
    pub(crate) async fn keep_of(&self, kept: Option<Arc<Kept>>) {
        let Some(kept) = kept else { return };
        let wanted: HashSet<PathBuf> =
            kept.definition.runs().into_iter().map(|value| self.file(&kept.id, value)).collect();
        let dir = self.dir.join(&kept.id);
        let remove = move || {
            let models =
                listed(&dir).into_iter().filter(|path| path.extension() == Some(OsStr::new("model")));
            for path in models.filter(|path| !wanted.contains(path)) {
                told(&path, fs::remove_file(&path));
            }
        };
        let _ = tokio::task::spawn_blocking(remove).await;
    }

    /// Removes what a server has left that ended while rules were changed: models of rules, and of values, that are not there.
    pub(crate) async fn sweep(&self, rules: Vec<Arc<Kept>>) {
        let dir = self.dir.clone();
        let listed = tokio::task::spawn_blocking(move || listed(&dir)).await.unwrap_or_default();
        let there: HashSet<PathBuf> = rules.iter().map(|kept| self.dir.join(&kept.id)).collect();
        for path in listed.into_iter().filter(|path| !there.contains(path)) {
            if let Some(rule) = path.file_name().and_then(OsStr::to_str) {
                self.remove(rule).await;
            }
        }
        for kept in rules {
            self.keep_of(Some(kept)).await;
        }
    }

    /// Removes all models of a rule.
    pub(crate) async fn remove(&self, rule: &str) {
        let path = self.dir.join(rule);
        let _ = tokio::task::spawn_blocking(move || told(&path, fs::remove_dir_all(&path))).await;
    }
}

fn listed(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn told(path: &Path, removed: std::io::Result<()>) {
    if let Err(error) =
        removed.or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })
    {
        tracing::warn!(path = %path.display(), %error, "models that nothing needs any more are still there");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::definition::Definition;
    use crate::definition::tests::body;
    use crate::store::State;

    fn rule(id: &str, values: &[&str]) -> Arc<Kept> {
        let mut body = body();
        body["multiply_by_field"] = json!("host");
        body["multiply_by_values"] = json!(values);
        Arc::new(Kept::new(id.to_owned(), Definition::parse(&body).unwrap(), State::default()))
    }

    #[tokio::test]
    async fn models_go_with_what_they_are_of() {
        let data = tempfile::tempdir().unwrap();
        let artefacts = Artefacts { dir: data.path().join(DIRECTORY) };
        for (rule, value) in [("r", "a"), ("r", "b"), ("s", "a"), ("gone", "a")] {
            artefacts.write(rule, Some(value), vec![1]).await.unwrap();
        }
        let there = |rule: &str, value| artefacts.file(rule, Some(value)).exists();
        artefacts.keep_of(Some(rule("r", &["b", "c"]))).await;
        assert_eq!((there("r", "a"), there("r", "b"), there("s", "a")), (false, true, true));
        artefacts.sweep(vec![rule("r", &["b"]), rule("s", &["b"])]).await;
        assert_eq!((there("r", "b"), there("s", "a"), there("gone", "a")), (true, false, false));
        artefacts.remove("r").await;
        artefacts.remove("r").await;
        assert!(!there("r", "b"));
    }
}
