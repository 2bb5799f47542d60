//! Ownership of an object store: one process writes to it at a time, although nothing but the store itself could tell two of them
//! of each other.
//!
//! [`GENERATION_OBJECT`] names the process that writes, with an *epoch* that each start raises, and the generation of its
//! catalog. It is written on the condition that it is as it was read. A process that finds a later epoch has lost: it takes
//! no more writes, commits nothing and deletes nothing, and tells so until it is stopped.
//!
//! A start whose claim fails serves without an epoch and claims later. By then another process may have claimed: the one that
//! started later keeps the store, by the time of its start that the object has. An object that was there at the start is of an earlier process.
//!
//! Before objects are deleted the generation of the commit that replaced them is noted here. So a copy of the data directory
//! that lacks that commit, and still names those objects, does not start; and where the copy has started before, the note
//! fails and nothing is deleted.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use bytes::Bytes;
use millrace_catalog::Catalog;
use millrace_runtime::{Error, Result};
use millrace_segment::objects::{DeletionGuard, Objects};
use object_store::UpdateVersion;
use object_store::path::Path;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::identity::older_than_objects;

/// Name of the object that says who writes, and how far its catalog was: at the start, every few seconds while the catalog
/// changes, before deletions, and at the end.
pub(super) const GENERATION_OBJECT: &str = "generation.json";

/// Attempts to write the object while another process does.
const ATTEMPTS: usize = 8;

/// Content of [`GENERATION_OBJECT`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GenerationObject {
    pub(super) store: Uuid,
    pub(super) generation: u64,
    /// Counts the processes that have written to the store; 0 of versions that did not count.
    #[serde(default)]
    pub(super) epoch: u64,
    /// Id of the process.
    #[serde(default)]
    pub(super) writer: Option<Uuid>,
    /// Time of the process's start, in milliseconds since the Unix epoch.
    #[serde(default)]
    started_ms: Option<i64>,
    /// Checksum of the others; versions that did not count wrote none.
    #[serde(default)]
    crc32c: Option<u32>,
}

impl GenerationObject {
    fn new(store: Uuid, generation: u64, epoch: u64, writer: Uuid, started_ms: i64) -> Self {
        let (writer, started_ms) = (Some(writer), Some(started_ms));
        let mut object = Self { store, generation, epoch, writer, started_ms, crc32c: None };
        object.crc32c = object.sum();
        object
    }

    fn sum(&self) -> Option<u32> {
        let writer = self.writer?;
        let mut text = format!("{} {} {} {writer}", self.store, self.generation, self.epoch);
        if let Some(started_ms) = self.started_ms {
            text.push_str(&format!(" {started_ms}"));
        }
        Some(crc32c::crc32c(text.as_bytes()))
    }

    /// Decodes the object. Its checksum tells a wrong answer from another writer.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub(super) fn decode(bytes: &Bytes) -> Result<Self> {
        let corrupt =
            |reason: String| Error::Corrupt { file: GENERATION_OBJECT.to_owned(), offset: 0, reason };
        let object: Self = serde_json::from_slice(bytes).map_err(|error| corrupt(error.to_string()))?;
        let counted = object.epoch > 0 || object.writer.is_some() || object.crc32c.is_some();
        if counted && (object.crc32c.is_none() || object.crc32c != object.sum()) {
            return Err(corrupt("its checksum is wrong".to_owned()));
        }
        Ok(object)
    }
}

/// The right of this process to write to the object store.
#[derive(Debug)]
pub(super) struct Ownership {
    store: Uuid,
    writer: Uuid,
    started_ms: i64,
    objects: Objects,
    catalog: Arc<dyn Catalog>,
    /// Held while the object is read or written.
    noted: tokio::sync::Mutex<Claim>,
    /// Why this process has lost, once it has.
    lost: OnceLock<String>,
}

/// The epoch and the generation that this process has written last.
#[derive(Debug, Default)]
struct Claim {
    generation: u64,
    /// Epoch of this process; 0 before the first note.
    epoch: u64,
    /// Greatest epoch that was found while this process started.
    before: u64,
}

impl Ownership {
    /// Makes the right of a process that has noted nothing yet.
    pub(super) fn new(store: Uuid, objects: Objects, catalog: Arc<dyn Catalog>, started_ms: i64) -> Self {
        let (noted, lost) = Default::default();
        Self { store, writer: Uuid::new_v4(), started_ms, objects, catalog, noted, lost }
    }

    /// Takes the object store over, from whichever process wrote to it. `generation` is that of the catalog.
    ///
    /// # Errors
    /// [`Error::Mismatch`] where the object store is ahead of the catalog.
    pub(super) async fn take(&self, generation: u64) -> Result<()> {
        if self.objects.is_local() {
            // The lock on the data directory keeps others out.
            return Ok(());
        }
        let mut noted = self.noted.lock().await;
        match self.write(&mut noted, generation, true).await {
            Err(error @ (Error::Mismatch { .. } | Error::Stopped(_))) => Err(error),
            Err(error) => {
                tracing::warn!(%error, "cannot note in the object store who writes to it; it will be tried again");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Notes how far the catalog is, unless that is noted.
    ///
    /// # Errors
    /// The object store's; [`Error::Stopped`] where another process has taken over.
    pub(super) async fn note(&self) -> Result<()> {
        let mut noted = self.noted.lock().await;
        // Read first: a note never says more than the catalog has.
        let generation = self.catalog.generation();
        if noted.generation >= generation && noted.epoch > 0 {
            return self.check();
        }
        self.write(&mut noted, generation, false).await
    }

    /// Looks whether another process has taken over, and notes how far the catalog is. Does nothing while that is being
    /// done.
    ///
    /// # Errors
    /// As [`Ownership::note`].
    pub(super) async fn watch(&self) -> Result<()> {
        let Ok(mut noted) = self.noted.try_lock() else { return Ok(()) };
        let generation = self.catalog.generation();
        if self.objects.is_local() && noted.generation >= generation {
            return Ok(());
        }
        self.write(&mut noted, generation, false).await
    }

    /// Refuses what only the writer of the object store may do.
    ///
    /// # Errors
    /// [`Error::Stopped`] where another process has taken over.
    pub(super) fn check(&self) -> Result<()> {
        match self.lost.get() {
            Some(reason) => Err(Error::Stopped(reason.clone())),
            None => Ok(()),
        }
    }

    async fn write(&self, noted: &mut Claim, generation: u64, starting: bool) -> Result<()> {
        self.check()?;
        let path = Path::from(GENERATION_OBJECT);
        for _ in 0..ATTEMPTS {
            let (found, version) = match self.objects.is_local() {
                true => (None, None),
                false => self.objects.get_versioned(&path, GenerationObject::decode).await?.unzip(),
            };
            if let Some(found) = &found
                && found.store == self.store
            {
                if starting {
                    noted.before = noted.before.max(found.epoch);
                }
                self.judge(noted, found, generation, starting)?;
            }
            let seen = found.as_ref().map_or(0, |found| found.epoch);
            let epoch = if noted.epoch == 0 { seen + 1 } else { noted.epoch };
            let object = GenerationObject::new(self.store, generation, epoch, self.writer, self.started_ms);
            if found.as_ref() == Some(&object) {
                (noted.generation, noted.epoch) = (generation, epoch);
                return Ok(());
            }
            let content = serde_json::to_vec(&object).map_err(|error| Error::Internal(error.to_string()))?;
            let expected: Option<Option<UpdateVersion>> =
                if self.objects.is_local() { None } else { Some(version) };
            if self.objects.put_expecting(&path, Bytes::from(content), expected).await? {
                (noted.generation, noted.epoch) = (generation, epoch);
                return Ok(());
            }
            // Somebody wrote it meanwhile: another process, or an attempt of this one whose answer was lost.
        }
        Err(Error::Rejected(format!(
            "[{GENERATION_OBJECT}] in the object store was changed by others {ATTEMPTS} times; retry later"
        )))
    }

    /// Sees whether what was found belongs to a process that came later, or to a newer catalog.
    fn judge(&self, noted: &Claim, found: &GenerationObject, generation: u64, starting: bool) -> Result<()> {
        if found.writer == Some(self.writer) {
            return Ok(());
        }
        if noted.epoch > 0 {
            // An earlier epoch is of a request that was carried out late.
            return match found.epoch < noted.epoch {
                true => Ok(()),
                false => Err(self.lose(self.taken_over(found, &format!("is of epoch {}", noted.epoch)))),
            };
        }
        if found.generation > generation {
            let older = older_than_objects(&self.objects, generation, found.generation);
            return Err(if starting { older } else { self.lose(older.to_string()) });
        }
        let is_later = found.epoch > noted.before && found.started_ms > Some(self.started_ms);
        match is_later && !starting {
            true => Err(self.lose(self.taken_over(found, "started before that and could not claim it"))),
            false => Ok(()),
        }
    }

    fn taken_over(&self, found: &GenerationObject, this: &str) -> String {
        format!(
            "another process writes to the object store [{}] since epoch {}, this one {this}: stop the process that is not to go on, and start the other one again",
            self.objects.store(),
            found.epoch
        )
    }

    /// Gives the right to write up, for good.
    fn lose(&self, reason: String) -> Error {
        tracing::error!(reason, "this process takes no more writes and deletes nothing");
        self.objects.close_to_writes();
        Error::Stopped(self.lost.get_or_init(|| reason).clone())
    }
}

#[async_trait]
impl DeletionGuard for Ownership {
    async fn permit(&self) -> Result<()> {
        self.note().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_byte_is_no_other_writer() {
        let object = GenerationObject::new(Uuid::from_u128(1), 7, 3, Uuid::from_u128(2), 1_700_000_000_000);
        let bytes = serde_json::to_vec(&object).unwrap();
        assert_eq!(GenerationObject::decode(&bytes.clone().into()).unwrap(), object);
        for (at, bit) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            let decoded = GenerationObject::decode(&flipped.into());
            assert!(
                decoded.is_err() || decoded.is_ok_and(|decoded| decoded == object),
                "byte {at}, bit {bit}"
            );
        }
        let before = format!(r#"{{"store":"{}","generation":7}}"#, Uuid::from_u128(1));
        assert_eq!(GenerationObject::decode(&before.into()).unwrap().epoch, 0);
    }
}
