//! A new catalog out of what is left: objects that describe themselves ([`millrace_catalog::description`]), and the log.
//!
//! [`repair`] works on a data directory that no server runs on. It looks what is there (`survey.rs`), decides which
//! segments hold (`choice.rs`) and which of their rows are deleted (`deletions.rs`), sees where the log goes on
//! (`log.rs`), and writes a catalog beside the present one, which then takes its name. The next start replays the log.
//! `docs/internals/durability.md` says why what comes of that is what was acknowledged.

mod choice;
mod deletions;
mod file;
mod log;
mod report;
mod survey;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use millrace_catalog::description::{CoveredRanges, IndexDescription, SegmentCoverage, index_path};
use millrace_catalog::metadata::MetadataChange;
use millrace_catalog::{Catalog, Commit, SegmentRecord, ShardCheckpoint};
use millrace_mapping::Mapping;
use millrace_runtime::disk::{Disk, SystemDisk};
use millrace_runtime::{Compute, Error, Result};
use millrace_segment::objects::Objects;
use millrace_segment::{DeletesFile, Env};
use object_store::path::Path;
use uuid::Uuid;

use self::choice::{Verdict, choose};
use self::log::{Log, Resume};
pub use self::report::{RebuiltIndex, Report};
use self::survey::{DescribedSegment, StoreInventory};
use crate::engine::identity::{STORE_OBJECT, read_noted, read_owner};
use crate::{Config, wal};

/// Object that says when the store was repaired last: what was left out is kept for a day from then on.
pub(crate) const REPAIRED: &str = "repair.json";

/// Options of a repair.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// `true` if a catalog that is there is moved aside.
    pub replace: bool,
    /// `true` if nothing is to be written.
    pub dry_run: bool,
}

/// Makes a new catalog of what is in the object store and the log of a data directory. Nothing is changed where this fails.
///
/// # Errors
/// [`Error::Locked`] where a server runs; [`Error::Mismatch`] where there is a catalog already, nothing to make one
/// of, or two stores; damage of the log; those of disk and object store.
pub async fn repair(config: Config, options: Options) -> Result<Report> {
    let disk: Arc<dyn Disk> = Arc::new(SystemDisk);
    disk.create_dir_all(&config.data_dir)?;
    let _lock = disk.lock(&config.data_dir.join("lock"))?;
    let target = file::Target::new(&config.data_dir);
    if !options.dry_run {
        target.check(options.replace)?;
    }
    let mut plan = Plan::make(&config, &disk).await?;
    plan.report.dry_run = options.dry_run;
    if options.dry_run {
        return Ok(plan.report);
    }
    plan.write_objects().await?;
    let catalog = target.create().await?;
    let filled = plan.fill(&*catalog).await;
    catalog.close().await;
    filled?;
    plan.write_log(&config, &disk).await?;
    plan.report.moved_to = target.install(&*disk)?;
    Ok(plan.report)
}

/// Does what [`repair`] does with an empty catalog, on a given disk.
///
/// # Errors
/// As [`repair`].
#[doc(hidden)]
pub async fn rebuild(config: Config, disk: Arc<dyn Disk>, catalog: Arc<dyn Catalog>) -> Result<Report> {
    let plan = Plan::make(&config, &disk).await?;
    plan.write_objects().await?;
    plan.fill(&*catalog).await?;
    plan.write_log(&config, &disk).await?;
    Ok(plan.report)
}

/// Plan of the writes.
#[derive(Debug)]
struct Plan {
    objects: Objects,
    store: Option<Uuid>,
    generation: u64,
    indices: Vec<MetadataChange>,
    mappings: Vec<(Uuid, Vec<u8>)>,
    commit: Commit,
    deletes: Vec<(Path, Bytes)>,
    /// Descriptions that the catalog is made of.
    sources: Vec<Path>,
    /// Frame with which a log begins that is to be made.
    begin_log: Option<u64>,
    report: Report,
}

impl Plan {
    async fn make(config: &Config, disk: &Arc<dyn Disk>) -> Result<Self> {
        let dir = &config.data_dir;
        let objects =
            millrace_segment::objects::open(&config.object_store, &config.data_dir, Arc::clone(disk)).await?;
        let listed = objects.list(None).await?;
        let survey = StoreInventory::make(&objects, &listed).await?;
        let origin = {
            let (disk, dir) = (Arc::clone(disk), dir.join("wal"));
            millrace_runtime::sync::blocking(move || wal::origin(&*disk, &dir)).await?
        };
        let owner = read_owner(&objects).await?;
        let stamped = origin.stamp.map(|stamp| stamp.store);
        if let (Some(owner), Some(stamped)) = (owner, stamped)
            && owner != stamped
        {
            return Err(Error::Mismatch {
                what: format!(
                    "the object store [{}] belongs to store {owner}, the log in [{}] to store {stamped}",
                    objects.store(),
                    dir.display()
                ),
                remedy: format!(
                    "name the bucket, prefix or data directory that belongs to the log, or move the log away; [{STORE_OBJECT}] names the store"
                ),
            });
        }
        if owner.is_none() && stamped.is_none() && survey.is_empty() && !origin.used {
            return Err(Error::Mismatch {
                what: format!(
                    "there is nothing in the object store [{}] and in the log in [{}] to make a catalog of",
                    objects.store(),
                    dir.display()
                ),
                remedy: "name the data directory, bucket and prefix of the store".to_owned(),
            });
        }
        let stamp = origin.stamp.map_or(0, |stamp| stamp.generation);
        let noted = read_noted(&objects).await?.map_or(0, |(_, generation)| generation);
        let plan = Self {
            store: owner.or(stamped),
            generation: stamp.max(noted).max(survey.generation()) + 1,
            objects,
            indices: Vec::new(),
            mappings: Vec::new(),
            commit: Commit::default(),
            deletes: Vec::new(),
            sources: Vec::new(),
            begin_log: None,
            report: Report { store: owner.or(stamped), positions: 0, ..Report::default() },
        };
        plan.decide(survey, config, disk).await
    }

    /// Decides about every index.
    async fn decide(
        mut self,
        mut survey: StoreInventory,
        config: &Config,
        disk: &Arc<dyn Disk>,
    ) -> Result<Self> {
        let env = Env::open(
            Arc::new(self.objects.clone()),
            Compute::start(config.compute_threads)?,
            config.data_dir.join("cache"),
            config.cache_bytes,
        )?;
        let lost = &mut self.report.lost;
        lost.append(&mut survey.unreadable);
        let indices = survey.take_indices(lost);
        let known = survey.shards.values().flatten().map(|found| found.description.account.next_frame).max();
        let mut resumes: BTreeMap<(Uuid, u32), Resume> = BTreeMap::new();
        let mut chosen: BTreeMap<(Uuid, u32), Vec<SegmentRecord>> = BTreeMap::new();
        for ((uuid, number), found) in &survey.shards {
            let Some(index) = indices.get(uuid).filter(|index| *number < index.shards) else { continue };
            let shard = Shard { index, number: *number };
            let (taken, others) = shard.choose(found, lost, &mut self.report.replaced);
            let deleted = deletions::find(&taken, &others, &env, lost).await?;
            let covers = CoveredRanges::union(taken.iter().map(|found| &found.description.account.covers));
            shard.tell_missing(&covers, lost);
            resumes.insert(
                (*uuid, *number),
                Resume {
                    next_seq_no: covers.end(),
                    next_frame: taken
                        .iter()
                        .map(|found| found.description.account.next_frame)
                        .max()
                        .unwrap_or(0),
                    primary_term: found.iter().map(|found| found.description.primary_term).max().unwrap_or(1),
                },
            );
            self.sources.extend(taken.iter().map(|found| found.description.path()));
            let records = chosen.entry((*uuid, *number)).or_default();
            for (found, deleted) in taken.iter().zip(deleted) {
                let Some(mut record) = found.description.record.clone() else { continue };
                let file = match deleted.file {
                    Some(file) => file,
                    None => {
                        let generation = found.candidate.deletes + 1;
                        let (file, bytes) = DeletesFile::encode(&deleted.rows, generation)?;
                        self.deletes.push((file.path(&record), bytes));
                        file
                    }
                };
                file.write_to(&mut record);
                records.push(record);
            }
        }
        for index in indices.values() {
            for number in 0..index.shards {
                resumes.entry((index.uuid, number)).or_insert(Resume {
                    next_seq_no: 0,
                    next_frame: 0,
                    primary_term: 1,
                });
            }
        }
        let log = {
            let (disk, dir) = (Arc::clone(disk), config.data_dir.join("wal"));
            millrace_runtime::sync::blocking(move || Log::read(&*disk, &dir, resumes)).await?
        };
        self.begin_log = log.check(known.unwrap_or(0), &config.data_dir)?;
        self.report.log = self.begin_log.is_none() && log.next.is_some();
        self.report.positions = log.positions;
        log.tell_missing(&indices, &mut self.report.lost);
        self.sources.extend(indices.keys().map(|uuid| index_path(*uuid)));
        for index in indices.values() {
            self.rebuild_index(index, &chosen, &log)?;
        }
        survey.tell_left_out(&indices, &mut self.report.lost);
        Ok(self)
    }

    /// Adds an index to what is to be written.
    fn rebuild_index(
        &mut self,
        index: &IndexDescription,
        chosen: &BTreeMap<(Uuid, u32), Vec<SegmentRecord>>,
        log: &Log,
    ) -> Result<()> {
        let mut rebuilt = RebuiltIndex {
            name: index.name.to_string(),
            uuid: index.uuid,
            shards: index.shards,
            segments: 0,
            documents: 0,
            deleted: 0,
            replayed: 0,
        };
        // Not at the next start only.
        if let Err(error) = Mapping::decode(index.mapping.as_bytes(), &index.settings) {
            self.report.unsupported.push(format!(
                "index [{}]: this version does not accept its settings or mapping ({error}); it needs a version that does",
                index.name
            ));
        }
        self.indices.push(MetadataChange::PutIndex { meta: Arc::new(index.meta()), mapping: None });
        self.mappings.push((index.uuid, index.mapping.clone().into_bytes()));
        for number in 0..index.shards {
            let key = (index.uuid, number);
            for record in chosen.get(&key).into_iter().flatten() {
                rebuilt.segments += 1;
                rebuilt.documents += u64::from(record.rows.saturating_sub(record.deleted_rows));
                rebuilt.deleted += u64::from(record.deleted_rows);
                self.commit.put.push(record.clone());
            }
            if let Some(resume) = log.resumes.get(&key) {
                self.commit.checkpoints.push(ShardCheckpoint {
                    index: index.uuid,
                    shard: number,
                    primary_term: resume.primary_term,
                    next_seq_no: resume.next_seq_no,
                    next_frame: resume.next_frame,
                });
            }
            rebuilt.replayed += log.replayed.get(&key).copied().unwrap_or(0);
        }
        self.report.indices.push(rebuilt);
        self.report.indices.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(())
    }

    /// Writes deletions that no file has, and that the store was repaired. Both are of no meaning without the catalog.
    async fn write_objects(&self) -> Result<()> {
        // A catalog must not name what a power loss may take back.
        for path in &self.sources {
            self.objects.make_durable(std::slice::from_ref(path)).await?;
        }
        for (path, bytes) in &self.deletes {
            self.objects.put(path, bytes.clone()).await?;
        }
        let note = serde_json::json!({ "generation": self.generation }).to_string();
        self.objects.put(&Path::from(REPAIRED), note.into()).await
    }

    /// Fills an empty catalog.
    async fn fill(&self, catalog: &dyn Catalog) -> Result<()> {
        catalog.load().await?;
        catalog.change(&self.indices, &self.mappings).await?;
        catalog.commit(&self.commit).await?;
        // Claimed by the next start, which names what has no name yet.
        let store = self.store.unwrap_or_else(Uuid::new_v4);
        catalog.put_store(store, false, self.generation).await
    }

    /// Begins a log behind the frames that segments know of, where there is none.
    async fn write_log(&self, config: &Config, disk: &Arc<dyn Disk>) -> Result<()> {
        let Some(first) = self.begin_log else { return Ok(()) };
        let (disk, dir) = (Arc::clone(disk), config.data_dir.join("wal"));
        millrace_runtime::sync::blocking(move || wal::begin_at(&*disk, &dir, first)).await
    }
}

/// A shard that is decided about.
struct Shard<'a> {
    index: &'a IndexDescription,
    number: u32,
}

impl Shard<'_> {
    /// Parts what is taken from the rest, and tells what is not taken and should have been.
    fn choose<'f>(
        &self,
        found: &'f [DescribedSegment],
        lost: &mut Vec<String>,
        replaced: &mut u64,
    ) -> (Vec<&'f DescribedSegment>, Vec<&'f DescribedSegment>) {
        let candidates: Vec<_> = found.iter().map(|found| found.candidate.clone()).collect();
        let (mut taken, mut others) = (Vec::new(), Vec::new());
        for (found, verdict) in found.iter().zip(choose(&candidates)) {
            let path = found.description.path();
            let rows = found.description.record.as_ref().map_or(0, |record| record.rows);
            match verdict {
                Verdict::Taken => {
                    taken.push(found);
                    continue;
                }
                Verdict::Replaced => *replaced += u64::from(rows > 0),
                Verdict::Undone if rows > 0 => lost.push(format!(
                    "[{path}] with {rows} rows: deletions that were committed with it are not there; what is in the log is replayed"
                )),
                Verdict::Undone => {}
                Verdict::Damaged => lost.push(format!(
                    "[{path}] with {rows} rows of [{}]: files of it are missing or have another length; restore them and repair again",
                    self.index.name
                )),
                Verdict::OfDamaged => lost.push(format!(
                    "[{path}] with {rows} rows of [{}]: a damaged segment replaced it, without which deletions would be undone",
                    self.index.name
                )),
            }
            others.push(found);
        }
        (taken, others)
    }

    /// Tells of operations below the last ones that nothing accounts for.
    fn tell_missing(&self, covers: &CoveredRanges, lost: &mut Vec<String>) {
        for (from, below) in covers.missing(covers.end()).ranges() {
            lost.push(format!(
                "operations {from} to {} of shard {} of [{}]: no segment accounts for them",
                below - 1,
                self.number,
                self.index.name
            ));
        }
    }
}

impl StoreInventory {
    fn is_empty(&self) -> bool {
        self.indices.is_empty()
            && self.shards.is_empty()
            && self.undescribed.is_empty()
            && self.unreadable.is_empty()
    }

    /// The greatest generation that anything was made at.
    fn generation(&self) -> u64 {
        let segments = self.shards.values().flatten().map(|found| {
            let SegmentCoverage { generation, .. } = &found.description.account;
            found.description.index.generation.max(*generation)
        });
        let indices = self.indices.values().map(|index| index.generation);
        segments.chain(indices).max().unwrap_or(0)
    }

    /// The indices as they were described last. Of two of one name the one that was made later holds.
    fn take_indices(&self, lost: &mut Vec<String>) -> BTreeMap<Uuid, IndexDescription> {
        let mut indices = self.indices.clone();
        for found in self.shards.values().flatten() {
            let described = &found.description.index;
            let Some(index) = indices.get_mut(&described.uuid) else { continue };
            let newer = |one: &IndexDescription| Mapping::version_of(one.mapping.as_bytes()).unwrap_or(0);
            let mapping = match newer(described) > newer(index) {
                true => described.mapping.clone(),
                false => index.mapping.clone(),
            };
            if described.generation > index.generation {
                index.clone_from(described);
            }
            index.mapping = mapping;
        }
        let mut by_name: BTreeMap<Arc<str>, (i64, u64, Uuid)> = BTreeMap::new();
        for index in indices.values() {
            let this = (index.created_ms, index.generation, index.uuid);
            let newest = by_name.entry(Arc::clone(&index.name)).or_insert(this);
            *newest = this.max(*newest);
        }
        indices.retain(|uuid, index| {
            let kept = by_name.get(&index.name).is_some_and(|(.., newest)| newest == uuid);
            if !kept {
                lost.push(format!("index [{}] ({uuid}): there is a newer one of this name", index.name));
            }
            kept
        });
        indices
    }

    /// Tells of files that belong to nothing that is rebuilt.
    fn tell_left_out(&self, indices: &BTreeMap<Uuid, IndexDescription>, lost: &mut Vec<String>) {
        let gone: BTreeSet<(&str, Uuid)> = self
            .shards
            .values()
            .flatten()
            .map(|found| &found.description.index)
            .filter(|index| !self.indices.contains_key(&index.uuid))
            .map(|index| (&*index.name, index.uuid))
            .collect();
        for (name, uuid) in gone {
            lost.push(format!("segments of index [{name}] ({uuid}): it was deleted"));
        }
        for (uuid, number) in self.shards.keys() {
            if let Some(index) = indices.get(uuid).filter(|index| *number >= index.shards) {
                lost.push(format!(
                    "segments of shard {number} of [{}]: it has {} shards",
                    index.name, index.shards
                ));
            }
        }
        for (index, (segments, bytes)) in &self.undescribed {
            let uuid = Uuid::try_parse(index).ok();
            let name = uuid.and_then(|uuid| indices.get(&uuid)).map_or(index.as_str(), |index| &index.name);
            lost.push(format!(
                "{segments} segments of [{name}] with {bytes} bytes that nothing describes: unfinished, deleted, or made by an older version"
            ));
        }
    }
}
