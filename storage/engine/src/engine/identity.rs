//! Identity of a store. Catalog, log and object store carry one id; the server refuses to start with a part that carries another,
//! or none where it should.
//!
//! The catalog draws the id. The object store has it in [`STORE_OBJECT`], of which there can be one only, whoever
//! else writes to the bucket; the log in stamps, which also say how far the catalog was: one that is behind its
//! log was restored from an older time. [`GENERATION_OBJECT`] says the same to a data directory of an older time, log
//! and all, whose orphans would be what was written since (`ownership.rs` writes it). [`StoreTraces::judge`] decides, before anything is
//! written or collected.

use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use millrace_catalog::frame::{Entry, FrameNumber, StoreStamp};
use millrace_catalog::{Catalog, StoreRecord, access};
use millrace_runtime::disk::Disk;
use millrace_runtime::{Error, Result, sync};
use millrace_segment::deletes_generation;
use millrace_segment::objects::{DeletionGuard, Objects};
use object_store::ObjectMeta;
use object_store::path::Path;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Inner;
use super::ownership::{GENERATION_OBJECT, GenerationObject, Ownership};
use crate::wal::{self, Origin, Wal};

/// Name of the object that says which store the others belong to.
pub(crate) const STORE_OBJECT: &str = "store.json";
/// Room on the disk that a stamp asks for.
const STAMP_BYTES: u64 = 4 << 10;

const RESTORE: &str = "restore the catalog that belongs to them from a backup, make a new one of what is there with `millrace repair`, or choose another data directory, bucket or prefix";

pub(super) const RESTORE_NEWEST: &str = "start with the newest data directory, or make a catalog of what is there with `millrace repair --replace`; for an older one, name a bucket or prefix that was restored to the same time";

/// Content of [`STORE_OBJECT`].
#[derive(Debug, Serialize, Deserialize)]
struct StoreObject {
    store: Uuid,
}

/// Traces of a store beside the catalog.
#[derive(Debug)]
pub(super) struct StoreTraces {
    /// The catalog, for messages.
    catalog: String,
    /// The object store, for messages.
    objects: String,
    /// The directory of the log.
    wal: PathBuf,
    /// Owner of the object store.
    owner: Option<Uuid>,
    /// Generation of the catalog that the object store was written beside, and of which store.
    noted: Option<(Uuid, u64)>,
    /// `true` if there are segments in it.
    segments: bool,
    log: Origin,
}

impl StoreTraces {
    /// Looks around, changing nothing. `listed` is the whole object store.
    pub(super) async fn read_from(
        dir: &FilePath,
        disk: &Arc<dyn Disk>,
        objects: &Objects,
        listed: &[ObjectMeta],
    ) -> Result<Self> {
        let wal = dir.join("wal");
        let log = {
            let (disk, wal) = (Arc::clone(disk), wal.clone());
            sync::blocking(move || wal::origin(&*disk, &wal)).await?
        };
        Ok(Self {
            catalog: dir.join("catalog.sqlite").display().to_string(),
            objects: objects.store().to_string(),
            wal,
            owner: read_owner(objects).await?,
            noted: read_noted(objects).await?,
            segments: listed.iter().any(|object| segment_of(&object.location).is_some()),
            log,
        })
    }

    /// Says of which store all of it is; `None` where nothing has an id yet, and may be given one.
    ///
    /// # Errors
    /// [`Error::Mismatch`].
    pub(super) fn judge(&self, record: &StoreRecord) -> Result<Option<Uuid>> {
        let (catalog, objects, wal) = (&self.catalog, &self.objects, self.wal.display());
        let differ = |what: String, remedy: &str| Err(Error::Mismatch { what, remedy: remedy.to_owned() });
        let stamped = self.log.stamp.map(|stamp| stamp.store);
        let Some(id) = record.id else {
            let nameless = if record.unnamed { "was made by an older version" } else { "is new or lost" };
            return match (self.owner, stamped) {
                (Some(other), _) => differ(
                    format!(
                        "the catalog [{catalog}] {nameless}, the object store [{objects}] belongs to store {other}"
                    ),
                    RESTORE,
                ),
                (None, Some(other)) => differ(
                    format!("the catalog [{catalog}] {nameless}, the log [{wal}] belongs to store {other}"),
                    RESTORE,
                ),
                (None, None) if !record.unnamed && self.segments => differ(
                    format!("the catalog [{catalog}] {nameless}, the object store [{objects}] has segments"),
                    RESTORE,
                ),
                (None, None) if !record.unnamed && self.log.used => differ(
                    format!("the catalog [{catalog}] {nameless}, the log [{wal}] has been written to"),
                    RESTORE,
                ),
                (None, None) => Ok(None),
            };
        };
        if let Some(other) = self.owner.filter(|other| *other != id) {
            return differ(
                format!(
                    "the catalog [{catalog}] belongs to store {id}, the object store [{objects}] to store {other}"
                ),
                "name the bucket, prefix or data directory of this store",
            );
        }
        if let Some(other) = stamped.filter(|other| *other != id) {
            return differ(
                format!("the catalog [{catalog}] belongs to store {id}, the log [{wal}] to store {other}"),
                "put the catalog and the directory of the log together that belong to each other",
            );
        }
        if record.claimed && self.owner.is_none() {
            return differ(
                format!(
                    "the catalog [{catalog}] belongs to store {id}, the object store [{objects}] has no {STORE_OBJECT}"
                ),
                "name the bucket, prefix or data directory of this store, or restore its objects from a backup",
            );
        }
        if record.claimed && stamped.is_none() && self.log.used {
            return differ(
                format!("the catalog [{catalog}] belongs to store {id}, the log [{wal}] names no store"),
                "put the catalog and the directory of the log together that belong to each other",
            );
        }
        if let Some(StoreStamp { generation, .. }) = self.log.stamp
            && generation > record.generation
        {
            let older = record.generation;
            return differ(
                format!(
                    "the catalog [{catalog}] is of generation {older}, older than the log [{wal}], which was written beside generation {generation}"
                ),
                "restore the newest catalog, or make a new one with `millrace repair --replace`",
            );
        }
        if let Some((_, generation)) = self.noted.filter(|(store, _)| *store == id)
            && generation > record.generation
        {
            return Err(older_catalog(catalog, objects, record.generation, generation));
        }
        Ok(Some(id))
    }
}

fn older_catalog(catalog: &str, objects: &str, older: u64, newer: u64) -> Error {
    Error::Mismatch {
        what: format!(
            "the catalog [{catalog}] is of generation {older}, older than the object store [{objects}], which was written to beside generation {newer}"
        ),
        remedy: RESTORE_NEWEST.to_owned(),
    }
}

/// Makes the refusal of a catalog that is older than the object store.
pub(super) fn older_than_objects(objects: &Objects, older: u64, newer: u64) -> Error {
    older_catalog("catalog.sqlite", &objects.store().to_string(), older, newer)
}

/// The segment that an object is a file of; `None` for what no store has put there.
pub(crate) fn segment_of(path: &Path) -> Option<Uuid> {
    let parts: Vec<_> = path.parts().collect();
    let [index, shard, segment, file] = parts.as_slice() else { return None };
    let uuid = |part: &str| Uuid::try_parse(part).ok().filter(|uuid| uuid.simple().to_string() == part);
    uuid(index.as_ref())?;
    shard.as_ref().parse::<u32>().ok()?;
    let file = file.as_ref();
    let known = matches!(file, "data.parquet" | "index.bundle" | "ids" | "segment.json");
    (known || deletes_generation(file).is_some()).then(|| uuid(segment.as_ref()))?
}

pub(crate) async fn read_owner(objects: &Objects) -> Result<Option<Uuid>> {
    Ok(read_object::<StoreObject>(objects, STORE_OBJECT).await?.map(|object| object.store))
}

/// Generation of the catalog that the object store was written beside last, and of which store.
pub(crate) async fn read_noted(objects: &Objects) -> Result<Option<(Uuid, u64)>> {
    let noted = objects.get_checked(&Path::from(GENERATION_OBJECT), GenerationObject::decode).await?;
    Ok(noted.map(|noted| (noted.store, noted.generation)))
}

/// Reads a small object; `None` where there is none.
async fn read_object<T: DeserializeOwned>(objects: &Objects, name: &str) -> Result<Option<T>> {
    let corrupt = |error: serde_json::Error| Error::Corrupt {
        file: format!("{}/{name}", objects.store()),
        offset: 0,
        reason: error.to_string(),
    };
    objects.get_checked(&Path::from(name), |bytes| serde_json::from_slice(bytes).map_err(corrupt)).await
}

/// The store that this process serves.
#[derive(Debug)]
pub(super) struct Identity {
    id: Uuid,
    /// `true` if the catalog knows that log and object store carry the id.
    claimed: bool,
    stamped: Mutex<LogStamp>,
    pub(super) ownership: Arc<Ownership>,
}

/// The newest stamp in the log.
#[derive(Clone, Copy, Debug, Default)]
struct LogStamp {
    generation: u64,
    frame: FrameNumber,
    /// Frame of a stamp that is durable, the newest that is known to be; 0 for none of this process.
    durable: FrameNumber,
}

impl LogStamp {
    /// Takes note of how far the log is durable.
    fn confirm(&mut self, wal: &Wal) -> FrameNumber {
        if wal.durable_frame() >= Some(self.frame) {
            self.durable = self.frame;
        }
        self.durable
    }
}

impl Identity {
    /// Returns the store's id.
    pub(super) fn id(&self) -> Uuid {
        self.id
    }

    /// Sees to it that the catalog has an id and the object store carries it. The log follows with
    /// [`Inner::claim_log`]. `now_ms` is the time of the start.
    ///
    /// # Errors
    /// [`Error::Mismatch`] where another node took the object store meanwhile; the catalog's, the object store's.
    pub(super) async fn claim(
        known: Option<Uuid>,
        record: &StoreRecord,
        catalog: &Arc<dyn Catalog>,
        objects: &Objects,
        now_ms: i64,
    ) -> Result<Self> {
        let id = known.unwrap_or_else(Uuid::new_v4);
        if !record.claimed {
            // First here: whoever finds the id elsewhere is to find it here as well.
            catalog.put_store(id, false, 0).await?;
            let content = serde_json::to_vec(&StoreObject { store: id });
            let content = Bytes::from(content.map_err(|error| Error::Internal(error.to_string()))?);
            let path = Path::from(STORE_OBJECT);
            if !objects.put_new(&path, content.clone()).await? {
                let owner = read_owner(objects).await?;
                if let Some(other) = owner.filter(|owner| *owner != id) {
                    let objects = objects.store();
                    return Err(Error::Mismatch {
                        what: format!(
                            "another node has just taken the object store [{objects}] for its store {other}"
                        ),
                        remedy: "name another bucket or prefix".to_owned(),
                    });
                }
                // An earlier start may have ended before it was durable.
                objects.put(&path, content).await?;
            }
            tracing::info!(store = %id, objects = %objects.store(), "store named");
        }
        let ownership = Arc::new(Ownership::new(id, objects.clone(), Arc::clone(catalog), now_ms));
        ownership.take(record.generation).await?;
        objects.guard_deletions(Arc::clone(&ownership) as Arc<dyn DeletionGuard>);
        Ok(Self { id, claimed: record.claimed, stamped: Mutex::default(), ownership })
    }
}

impl Inner {
    /// Sees to it that the log carries the store's id, and that the catalog knows of it.
    pub(super) async fn claim_log(&self) -> Result<()> {
        let wal = self.wal()?;
        if self.identity.claimed {
            // A full disk is no reason not to serve reads: the log has older stamps.
            self.stamp_progress();
            return Ok(());
        }
        wal.synced(self.stamp_log(wal)?).await?;
        self.services.catalog.put_store(self.identity.id, true, 0).await
    }

    /// Notes in the log how far the catalog is, unless that is there.
    pub(super) fn stamp_progress(&self) {
        let behind = || self.identity.stamped.lock().generation < self.services.catalog.generation();
        let Ok(wal) = self.wal() else { return };
        if behind()
            && wal.admit(STAMP_BYTES).is_ok()
            && let Err(error) = self.stamp_log(wal)
        {
            tracing::debug!(%error, "the log takes no stamp");
        }
    }

    /// Notes in the object store how far the catalog is, unless that is there. What was committed since the last
    /// time is what an older data directory would not be known by.
    pub(super) async fn note_generation(&self) {
        // It is tried again; a full disk is no reason not to serve reads.
        if let Err(error) = self.identity.ownership.note().await {
            tracing::warn!(%error, "cannot note in the object store how far the catalog is");
        }
    }

    /// Notes it in a task of its own, and looks whether another process has taken the object store over.
    pub(super) fn note_generation_soon(self: &Arc<Self>) {
        let ownership = Arc::clone(&self.identity.ownership);
        if ownership.check().is_err() {
            return;
        }
        sync::detached(async move {
            if let Err(error) = ownership.watch().await {
                tracing::warn!(%error, "cannot note in the object store how far the catalog is");
            }
        });
    }

    /// Refuses what only the process may do that writes to the object store.
    ///
    /// # Errors
    /// [`Error::Stopped`] where another process has taken over.
    pub(super) fn check_ownership(&self) -> Result<()> {
        self.identity.ownership.check()
    }

    /// Sees to it that every file of the log has a stamp: up to the newest of them the log can be cut while the disk
    /// takes no other.
    pub(super) fn stamp_file(&self) {
        let Ok(wal) = self.wal() else { return };
        if self.identity.stamped.lock().frame < wal.newest_file()
            && wal.admit(STAMP_BYTES).is_ok()
            && let Err(error) = self.stamp_log(wal)
        {
            tracing::debug!(%error, "the log takes no stamp");
        }
    }

    /// Sees to it that the log has a durable stamp when its files with frames below `kept` are gone: one of now, or,
    /// if the disk is full, any. Returns the frame below which the log may be cut at most: while its writer waits for
    /// room on the disk, that of the newest stamp that is durable.
    pub(super) async fn stamp_before_cut(&self, wal: &Wal, kept: FrameNumber) -> Result<FrameNumber> {
        let newest = *self.identity.stamped.lock();
        let behind = newest.generation < self.services.catalog.generation();
        let frame = match newest.frame < kept || (behind && wal.admit(STAMP_BYTES).is_ok()) {
            true => self.stamp_log(wal)?,
            false => newest.frame,
        };
        if wal.synced_unless_full(frame).await? {
            return Ok(FrameNumber::MAX);
        }
        Ok(self.identity.stamped.lock().confirm(wal))
    }

    fn stamp_log(&self, wal: &Wal) -> Result<FrameNumber> {
        // Read first: a stamp never says more than the catalog has.
        let generation = self.services.catalog.generation();
        let stamp = StoreStamp { store: self.identity.id, generation };
        let frame = wal
            .append(&self.frame(access::Origin::System, vec![Entry::Store(stamp)]))?
            .hand_over(Vec::new(), 0);
        let mut stamped = self.identity.stamped.lock();
        if stamped.generation <= generation {
            let durable = stamped.confirm(wal);
            *stamped = LogStamp { generation, frame, durable };
        }
        Ok(frame)
    }
}

#[cfg(test)]
mod tests;
