//! Description of a commit in the object store ([`crate::description`]).

use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use millrace_catalog::description::{
    self, CoveredRanges, IndexDescription, SegmentCoverage, SegmentDescription,
};
use millrace_catalog::metadata::IndexMeta;
use millrace_catalog::{Commit, SegmentRecord};
use millrace_runtime::Result;
use uuid::Uuid;

use super::Shard;
use super::commit::Services;
use super::state::{SegmentState, State};

/// Inputs of a description: the state of an index and its shards.
#[derive(Debug)]
pub(crate) struct DescriptionInputs {
    pub(crate) meta: ArcSwap<IndexMeta>,
    /// Version of the newest mapping that a description is known to have.
    pub(crate) mapping: AtomicU64,
}

/// A description that was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct WrittenDescription {
    pub(super) id: Uuid,
    /// Version of the mapping in it.
    mapping: u64,
}

impl Shard {
    /// Returns the operations that a commit accounts for. A compaction with rows accounts for those of the segments that it takes
    /// (`keys`), everything else for all that no segment that stays accounts for.
    pub(super) fn account(
        &self,
        state: &State,
        keys: &[u64],
        below: Option<(u64, u64)>,
        rows: bool,
        services: &Services,
    ) -> SegmentCoverage {
        let (mut taken, mut kept) = (Vec::new(), Vec::new());
        for segment in &state.segments {
            if let Some(stored) = segment.segment.as_stored() {
                let account = SegmentCoverage::new(&stored.record);
                if keys.contains(&segment.segment.key()) { taken.push(account) } else { kept.push(account) }
            }
        }
        let compacts = below.is_none() && rows;
        let next_frame = match below {
            Some(below) => below.1,
            None => taken.iter().map(|account| account.next_frame).max().unwrap_or(0),
        };
        let covers = match compacts {
            true => CoveredRanges::union(taken.iter().map(|account| &account.covers)),
            false => CoveredRanges::union(kept.iter().map(|account| &account.covers))
                .missing(below.unwrap_or(state.committed_below).0),
        };
        SegmentCoverage { covers, next_frame, generation: services.catalog.generation() }
    }

    /// Writes the description of a commit that is about to be made; returns what it is.
    pub(super) async fn describe(
        &self,
        services: &Services,
        account: SegmentCoverage,
        commit: &Commit,
        record: Option<SegmentRecord>,
    ) -> Result<WrittenDescription> {
        let id = record.as_ref().map_or_else(Uuid::new_v4, |record| record.id);
        // The deletions of the new segment are as of now, too.
        let record =
            record.map(|record| commit.put.iter().find(|put| put.id == id).cloned().unwrap_or(record));
        if record.is_none() {
            // Before it is there, so that it goes whatever becomes of the commit: it says nothing that will not stay true.
            self.rests.lock().push(id);
        }
        let others = commit.put.iter().filter(|put| put.id != id);
        let deletes = others.map(|put| (put.id, put.delete_generation)).collect();
        // Before it is encoded: what it says is this or newer.
        let mapping = self.mapping.load().version();
        let mut description = self.description(account, id, record)?;
        description.replaces.clone_from(&commit.removed);
        description.deletes = deletes;
        let encoded = description::encode(&description)?;
        services.env.objects.put(&description.path(), encoded).await?;
        Ok(WrittenDescription { id, mapping })
    }

    fn description(
        &self,
        account: SegmentCoverage,
        id: Uuid,
        record: Option<SegmentRecord>,
    ) -> Result<SegmentDescription> {
        let index = IndexDescription::new(&self.about.meta.load(), &self.mapping.load(), account.generation)?;
        let term = self.state.read().primary_term;
        Ok(SegmentDescription::new(index, self.number, id, account, term, record))
    }

    /// Takes up descriptions without rows that were found at the start.
    pub(crate) fn has_rests(&self, found: Vec<Uuid>) {
        *self.rests.lock() = found;
    }

    /// Takes note that a commit with a description was made; where it accounts for all operations without rows, it is the only
    /// one that has to.
    pub(super) async fn described(&self, services: &Services, description: WrittenDescription, all: bool) {
        self.about.mapping.fetch_max(description.mapping, Ordering::AcqRel);
        if !all {
            return;
        }
        let gone: Vec<Uuid> = self.rests.lock().extract_if(.., |rest| *rest != description.id).collect();
        for rest in gone {
            self.delete_files(services, rest).await;
        }
    }

    /// Describes segments of the catalog that a version which did not describe any has made, and what they leave out.
    pub(crate) async fn describe_earlier(&self, services: &Services, segments: &[Uuid]) -> Result<()> {
        // Throughout: what no segment accounts for must not be another's meanwhile.
        let _commit = self.committing.lock().await;
        let (records, covers, below) = {
            let state = self.state.read();
            if state.closed || state.damage.is_some() {
                return Ok(());
            }
            let records: Vec<SegmentRecord> =
                state.segments.iter().filter_map(SegmentState::record).collect();
            let accounts: Vec<SegmentCoverage> = records.iter().map(SegmentCoverage::new).collect();
            (
                records,
                CoveredRanges::union(accounts.iter().map(|account| &account.covers)),
                state.committed_below,
            )
        };
        for record in records.into_iter().filter(|record| segments.contains(&record.id)) {
            let description = self.description(SegmentCoverage::new(&record), record.id, Some(record))?;
            let encoded = description::encode(&description)?;
            services.env.objects.put(&description.path(), encoded).await?;
        }
        let rest = SegmentCoverage {
            covers: covers.missing(below.0),
            next_frame: below.1,
            generation: services.catalog.generation(),
        };
        self.describe(services, rest, &Commit::default(), None).await.map(drop)
    }
}
