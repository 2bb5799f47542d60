//! Settings that were given through the management API: they hold until the pipeline's files change, also
//! over a restart.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use millrace_runtime::disk::replace_file;
use serde::{Deserialize, Serialize};

use crate::settings::Settings;

/// Settings of one pipeline that take the place of those in its files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Change {
    /// Batches that are filtered at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<usize>,
    /// Events that a worker takes at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<usize>,
    /// Milliseconds that a worker waits for more events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_delay_ms: Option<u64>,
}

impl Change {
    /// The settings with this change.
    pub fn apply(&self, settings: &Settings) -> Settings {
        Settings {
            workers: self.workers.unwrap_or(settings.workers),
            batch_size: self.batch_size.unwrap_or(settings.batch_size),
            batch_delay: self.batch_delay_ms.map_or(settings.batch_delay, Duration::from_millis),
            ordered: settings.ordered,
        }
    }

    /// This change with another one on top of it.
    fn then(&self, later: &Self) -> Self {
        Self {
            workers: later.workers.or(self.workers),
            batch_size: later.batch_size.or(self.batch_size),
            batch_delay_ms: later.batch_delay_ms.or(self.batch_delay_ms),
        }
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct PipelineChange {
    /// Hash of the files that the change was made for.
    hash: String,
    #[serde(flatten)]
    change: Change,
}

/// The changes in force.
#[derive(Debug)]
pub(super) struct StoredChanges {
    file: Option<PathBuf>,
    changes: BTreeMap<String, PipelineChange>,
}

impl StoredChanges {
    /// Reads what was kept. A file that cannot be read is reported, and counts as empty.
    pub(super) fn open(file: Option<PathBuf>) -> Self {
        let changes = file.as_deref().filter(|file| file.exists()).map(|file| {
            let text = super::source_files::read(file)?;
            serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))
        });
        let changes = changes.unwrap_or_else(|| Ok(BTreeMap::new())).unwrap_or_else(|problem: String| {
            tracing::error!(problem, "settings of pipelines given through the API are lost");
            BTreeMap::new()
        });
        Self { file, changes }
    }

    /// The change of a pipeline whose files have this hash.
    pub(super) fn change_for(&self, id: &str, hash: &str) -> Change {
        let of = self.changes.get(id).filter(|of| of.hash == hash);
        of.map(|of| of.change.clone()).unwrap_or_default()
    }

    /// Keeps a change on top of an earlier one, durably.
    pub(super) fn keep(&mut self, id: &str, hash: &str, change: &Change) -> std::io::Result<()> {
        let change = self.change_for(id, hash).then(change);
        let mut changes = self.changes.clone();
        changes.insert(id.to_owned(), PipelineChange { hash: hash.to_owned(), change });
        if let Some(file) = &self.file {
            write(file, &changes)?;
        }
        self.changes = changes;
        Ok(())
    }
}

fn write(file: &Path, changes: &BTreeMap<String, PipelineChange>) -> std::io::Result<()> {
    let text = serde_json::to_vec_pretty(changes).map_err(std::io::Error::other)?;
    replace_file(&file.with_extension("new"), file, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_hold_until_the_files_change() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("settings.json");
        let mut kept = StoredChanges::open(Some(file.clone()));
        assert_eq!(kept.change_for("a", "1"), Change::default());
        kept.keep("a", "1", &Change { batch_size: Some(5), ..Change::default() }).unwrap();
        kept.keep("a", "1", &Change { workers: Some(3), ..Change::default() }).unwrap();
        let kept = StoredChanges::open(Some(file.clone()));
        let change = Change { batch_size: Some(5), workers: Some(3), batch_delay_ms: None };
        assert_eq!(kept.change_for("a", "1"), change);
        assert_eq!(kept.change_for("a", "2"), Change::default());
        std::fs::write(&file, "{").unwrap();
        assert_eq!(StoredChanges::open(Some(file)).change_for("a", "1"), Change::default());
    }
}
