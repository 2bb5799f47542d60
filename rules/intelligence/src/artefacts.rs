//! Trained models on disk: a file for each rule and value in the directory `intelligence` of the data directory, the latest alone.
//!
//! A file is there whole or not at all: written under another name, synced, renamed. One that cannot be read, or
//! finds no room among those that are kept (1 GiB), costs a training.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_engine::Engine;
use millrace_forecast::{TrainedModel, seed};
use millrace_runtime::disk::replace_file;
use parking_lot::Mutex;

use crate::detectors::StoredDetector;
use crate::store::StoredRule;

/// Name of the directory.
const DIRECTORY: &str = "intelligence";
/// Name of a file that is being written: no rule's.
const NEW: &str = "new.model";
/// Bytes of a model that is read.
const MAX_MODEL_BYTES: u64 = 64 << 20;
/// Bytes of all models: those that find no room are not kept.
const MAX_BYTES: u64 = 1 << 30;

/// The models of an engine.
#[derive(Clone, Debug)]
pub(crate) struct Artefacts {
    dir: PathBuf,
    /// Bytes of all models; held while files change.
    used: Arc<Mutex<u64>>,
}

impl Artefacts {
    /// Names the models of an engine.
    pub(crate) fn new(engine: &Engine) -> Self {
        Self { dir: engine.data_dir().join(DIRECTORY), used: Arc::default() }
    }

    /// Names the file of a rule's model, below the data directory.
    pub(crate) fn path(rule: &str, value: Option<&str>) -> String {
        // Values may have any characters.
        let value = value.map_or_else(|| "all".to_owned(), |value| format!("{:016x}", seed(value)));
        format!("{DIRECTORY}/{}/{value}.model", name(rule))
    }

    fn file(&self, rule: &str, value: Option<&str>) -> PathBuf {
        self.dir.with_file_name("").join(Self::path(rule, value))
    }

    /// Names the file of a model of a detector, below the data directory.
    pub(crate) fn path_of(rule: &str, model: &str) -> String {
        format!("{DIRECTORY}/{}/{model}.model", name(rule))
    }

    fn file_of(&self, rule: &str, model: &str) -> PathBuf {
        self.dir.with_file_name("").join(Self::path_of(rule, model))
    }

    /// Reads the bytes of a detector's model; `None` where there are none, or they cannot be read.
    pub(crate) async fn read_bytes(&self, rule: &str, model: &str) -> Option<Vec<u8>> {
        let path = self.file_of(rule, model);
        let read = move || {
            bytes_at(&path).unwrap_or_else(|reason| {
                tracing::warn!(path = %path.display(), reason, "a stored model is not used: it is trained anew");
                None
            })
        };
        tokio::task::spawn_blocking(read).await.unwrap_or_default()
    }

    /// Stores the bytes of a detector's model.
    ///
    /// # Errors
    /// The reason why they are not kept: the disk's, or no room among the models.
    pub(crate) async fn write_bytes(&self, rule: &str, model: &str, bytes: Vec<u8>) -> Result<(), String> {
        let (dir, path, used) = (self.dir.clone(), self.file_of(rule, model), Arc::clone(&self.used));
        let write = move || store(&dir, &path, &bytes, &mut used.lock()).map_err(|error| error.to_string());
        tokio::task::spawn_blocking(write).await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Removes the models of a detector but some.
    pub(crate) async fn retain_models(&self, rule: &str, models: &[String]) {
        let wanted: HashSet<PathBuf> = models.iter().map(|model| self.file_of(rule, model)).collect();
        self.retain(rule, wanted).await;
    }

    /// Reads a model; `None` where there is none. One that cannot be read is told to the log, and none.
    pub(crate) async fn read(&self, rule: &str, value: Option<&str>) -> Option<TrainedModel> {
        let path = self.file(rule, value);
        let read = move || {
            load(&path).unwrap_or_else(|reason| {
                tracing::warn!(path = %path.display(), reason, "a stored model is not used: it is trained anew");
                None
            })
        };
        tokio::task::spawn_blocking(read).await.unwrap_or_default()
    }

    /// Stores a model; returns whether it is kept. Why it is not is told to the log, and costs a training: the one of before is still
    /// there then.
    pub(crate) async fn write(&self, rule: &str, value: Option<&str>, bytes: Vec<u8>) -> bool {
        let (dir, path, used) = (self.dir.clone(), self.file(rule, value), Arc::clone(&self.used));
        let write = move || {
            let stored = store(&dir, &path, &bytes, &mut used.lock());
            if let Err(error) = &stored {
                tracing::warn!(path = %path.display(), %error, "a model is not stored: it is trained anew");
            }
            stored.is_ok()
        };
        tokio::task::spawn_blocking(write).await.unwrap_or_default()
    }

    /// Removes the models of values that a rule has no more.
    pub(crate) async fn keep_of(&self, kept: Option<Arc<StoredRule>>) {
        let Some(kept) = kept else { return };
        let wanted: HashSet<PathBuf> =
            kept.definition.runs().into_iter().map(|value| self.file(&kept.id, value)).collect();
        self.retain(&kept.id, wanted).await;
    }

    async fn retain(&self, rule: &str, wanted: HashSet<PathBuf>) {
        let (dir, used) = (self.dir.join(&*name(rule)), Arc::clone(&self.used));
        let remove_others = move || {
            let mut used = used.lock();
            for path in listed(&dir).into_iter().filter(|path| !wanted.contains(path)) {
                remove(&path, &mut used);
            }
        };
        let _ = tokio::task::spawn_blocking(remove_others).await;
    }

    /// Removes what a server has left that ended while rules were changed: models of rules, and of values, that are not there. Counts
    /// the others.
    pub(crate) async fn sweep(&self, rules: Vec<Arc<StoredRule>>, detectors: &[Arc<StoredDetector>]) {
        let (dir, used) = (self.dir.clone(), Arc::clone(&self.used));
        let ids =
            rules.iter().map(|kept| kept.id.as_str()).chain(detectors.iter().map(|kept| kept.id.as_str()));
        let there: HashSet<PathBuf> = ids.map(|id| self.dir.join(&*name(id))).collect();
        let remove_others = move || {
            let mut used = used.lock();
            *used = bytes_of(&dir);
            for path in listed(&dir).into_iter().filter(|path| !there.contains(path)) {
                remove(&path, &mut used);
            }
        };
        let _ = tokio::task::spawn_blocking(remove_others).await;
        for kept in rules {
            self.keep_of(Some(kept)).await;
        }
    }

    /// Removes all models of a rule.
    pub(crate) async fn remove(&self, rule: &str) {
        let (path, used) = (self.dir.join(&*name(rule)), Arc::clone(&self.used));
        let _ = tokio::task::spawn_blocking(move || remove(&path, &mut used.lock())).await;
    }
}

/// Names the directory of a rule. Its id may have any characters where somebody wrote its document by hand.
fn name(rule: &str) -> Cow<'_, str> {
    match rule.chars().all(|one| one.is_ascii_alphanumeric() || matches!(one, '-' | '_')) {
        true => Cow::Borrowed(rule),
        false => Cow::Owned(format!("{:016x}", seed(rule))),
    }
}

/// Reads a file; `None` where there is none.
fn load(path: &Path) -> Result<Option<TrainedModel>, String> {
    let bytes = bytes_at(path)?;
    bytes.map(|bytes| TrainedModel::from_bytes(&bytes).map_err(|error| error.to_string())).transpose()
}

/// Reads the bytes of a file; `None` where there is none.
fn bytes_at(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let there = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        there => there.map_err(|error| error.to_string())?,
    };
    if !there.is_file() || there.len() > MAX_MODEL_BYTES {
        return Err(format!("it is no file of at most {MAX_MODEL_BYTES} bytes"));
    }
    fs::read(path).map(Some).map_err(|error| error.to_string())
}

/// Writes a file, in the place of the one that is there; `used` are the bytes of all.
fn store(dir: &Path, path: &Path, bytes: &[u8], used: &mut u64) -> io::Result<()> {
    let (others, len) = (used.saturating_sub(bytes_of(path)), bytes.len() as u64);
    if len > MAX_MODEL_BYTES || others + len > MAX_BYTES {
        let reason = format!("of {MAX_BYTES} bytes for all models {others} are taken, and it has {len}");
        return Err(io::Error::other(reason));
    }
    let (new, within) = (dir.join(NEW), path.parent().unwrap_or(dir));
    fs::create_dir_all(within)?;
    replace_file(&new, path, bytes)?;
    *used = others + len;
    Ok(())
}

/// Removes a file, or a directory with all that is in it; `used` are the bytes of all.
fn remove(path: &Path, used: &mut u64) {
    let before = bytes_of(path);
    let removed = if is_dir(path) { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "models that nothing needs any more are still there");
        }
        _ => {}
    }
    *used = used.saturating_sub(before.saturating_sub(bytes_of(path)));
}

/// Counts the bytes of a file, or of all in a directory.
fn bytes_of(path: &Path) -> u64 {
    match is_dir(path) {
        true => listed(path).iter().map(|path| bytes_of(path)).sum(),
        false => fs::symlink_metadata(path).map_or(0, |there| there.len()),
    }
}

fn is_dir(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|there| there.is_dir())
}

fn listed(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::definition::Definition;
    use crate::definition::tests::body;
    use crate::store::State;

    fn rule(id: &str, values: &[&str]) -> Arc<StoredRule> {
        let mut body = body();
        body["multiply_by_field"] = json!("host");
        body["multiply_by_values"] = json!(values);
        Arc::new(StoredRule::new(id.to_owned(), Definition::parse(&body).unwrap(), State::default()))
    }

    fn at(data: &Path) -> Artefacts {
        Artefacts { dir: data.join(DIRECTORY), used: Arc::default() }
    }

    #[tokio::test]
    async fn models_go_with_what_they_are_of() {
        let data = tempfile::tempdir().unwrap();
        let artefacts = at(data.path());
        for (rule, value) in [("r", "a"), ("r", "b"), ("s", "a"), ("gone", "a")] {
            assert!(artefacts.write(rule, Some(value), vec![1]).await);
        }
        let there = |rule: &str, value| artefacts.file(rule, Some(value)).exists();
        artefacts.keep_of(Some(rule("r", &["b", "c"]))).await;
        assert_eq!((there("r", "a"), there("r", "b"), there("s", "a")), (false, true, true));
        artefacts.sweep(vec![rule("r", &["b"]), rule("s", &["b"])], &[]).await;
        assert_eq!((there("r", "b"), there("s", "a"), there("gone", "a")), (true, false, false));
        artefacts.remove("r").await;
        artefacts.remove("r").await;
        assert!(!there("r", "b"));
        assert_eq!(*artefacts.used.lock(), 0);
    }

    #[tokio::test]
    async fn what_cannot_be_kept_is_trained_anew() {
        let data = tempfile::tempdir().unwrap();
        let artefacts = at(data.path());
        assert!(artefacts.write("r", Some("a"), vec![1; 10]).await);
        // There is room for nothing but what takes the place of another one.
        *artefacts.used.lock() = MAX_BYTES;
        assert!(!artefacts.write("r", Some("b"), vec![1]).await);
        assert!(artefacts.write("r", Some("a"), vec![1; 9]).await);
        assert!(artefacts.write("r", Some("b"), vec![1]).await);
        artefacts.sweep(vec![rule("r", &["a", "b"])], &[]).await;
        assert_eq!(*artefacts.used.lock(), 10);
        // What is no model is none.
        fs::create_dir_all(artefacts.file("r", Some("c"))).unwrap();
        assert!(!artefacts.write("r", Some("c"), vec![1]).await);
        for value in ["a", "c", "d"] {
            assert!(artefacts.read("r", Some(value)).await.is_none(), "{value}");
        }
        let long = fs::File::create(artefacts.file("r", Some("d"))).unwrap();
        long.set_len(MAX_MODEL_BYTES + 1).unwrap();
        assert!(artefacts.read("r", Some("d")).await.is_none());
    }

    #[tokio::test]
    async fn ids_of_rules_name_nothing_else() {
        let data = tempfile::tempdir().unwrap();
        let artefacts = at(data.path());
        for rule in ["..", "../..", "a/b", "."] {
            assert!(artefacts.write(rule, None, vec![1]).await);
            artefacts.remove(rule).await;
        }
        assert!(data.path().join(DIRECTORY).is_dir());
        assert_eq!((listed(data.path()).len(), listed(&artefacts.dir).len()), (1, 0));
    }
}
