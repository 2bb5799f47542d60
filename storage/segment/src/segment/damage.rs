//! Damage that reads have met in the files of a segment: health tells of it until the same place is read well.

use std::sync::Arc;

use millrace_runtime::Error;
use parking_lot::Mutex;

use super::checked::BLOCK_BYTES;
use super::stored::StoredSegment;
use crate::objects::is_missing;

/// A damaged place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DamagedPlace {
    pub(super) file: Arc<str>,
    /// Number of the damaged block; `None` where the file cannot be opened.
    pub(super) block: Option<usize>,
}

/// The first damage of a segment that was met and has not been read well since. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct DamageRecord(Arc<Mutex<Option<DamagedPlace>>>);

impl DamageRecord {
    /// Takes note of what came of reading a place. Other errors than damage and missing files tell nothing.
    pub(super) fn note<T>(&self, file: &Arc<str>, block: Option<usize>, read: &Result<T, Error>) {
        let mut damaged = self.0.lock();
        match read {
            Ok(_) => {
                if damaged.as_ref().is_some_and(|place| place.file == *file && place.block == block) {
                    *damaged = None;
                    tracing::info!(%file, "a damaged file of a segment is read well again");
                }
            }
            Err(error) if is_damage(error) && damaged.is_none() => {
                tracing::error!(%file, %error, "a file of a segment is damaged: restore it from a backup");
                *damaged = Some(DamagedPlace { file: Arc::clone(file), block });
            }
            Err(_) => {}
        }
    }

    /// Returns the damaged place.
    pub(super) fn place(&self) -> Option<DamagedPlace> {
        self.0.lock().clone()
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.lock().is_some()
    }
}

impl StoredSegment {
    /// Returns true if a read has met damage in the files that is not known to be gone.
    pub fn is_damaged(&self) -> bool {
        self.damage.is_set()
    }

    /// Reads the damaged place again, which takes note of what comes of it. Blocks on the file.
    pub fn probe_damage(&self) {
        let Some(DamagedPlace { file, block }) = self.damage.place() else { return };
        let block = block.map(|block| block * BLOCK_BYTES..block * BLOCK_BYTES + 1);
        let read = match file.rsplit('/').next() {
            Some("data.parquet") => self.data().and_then(|data| match block {
                Some(block) => data.file.read_again(block),
                None => Ok(()),
            }),
            Some("ids") => self.ids().and_then(|ids| match (ids, block) {
                (Some(ids), Some(block)) => ids.read_again(block),
                _ => Ok(()),
            }),
            _ => self.bundle().map(drop),
        };
        if let Err(error) = read {
            tracing::debug!(%file, %error, "a file of a segment stays damaged");
            // A file that was restored under its name is another one: the next look opens it.
            self.reopen();
        }
    }
}

/// Returns true if a file is damaged or missing, as this error says.
pub fn is_damage(error: &Error) -> bool {
    match error {
        Error::Corrupt { .. } => true,
        Error::Io { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
        error => is_missing(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_told_until_the_same_place_is_read_well() {
        let record = DamageRecord::default();
        let (ids, bundle): (Arc<str>, Arc<str>) = ("ids".into(), "index.bundle".into());
        let corrupt = || Err::<(), _>(Error::Corrupt { file: "ids".into(), offset: 9, reason: "x".into() });
        record.note(&ids, Some(1), &Err::<(), _>(Error::Rejected("later".into())));
        assert!(!record.is_set());
        record.note(&ids, Some(1), &corrupt());
        record.note(&bundle, None, &corrupt());
        let place = DamagedPlace { file: Arc::clone(&ids), block: Some(1) };
        assert_eq!(record.place(), Some(place));
        for (file, block) in [(&ids, None), (&ids, Some(0)), (&bundle, Some(1))] {
            record.note(file, block, &Ok(()));
            assert!(record.is_set(), "{file} {block:?}");
        }
        record.note(&ids, Some(1), &Ok(()));
        assert!(!record.is_set());
    }
}
