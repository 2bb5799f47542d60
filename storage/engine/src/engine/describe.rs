//! Descriptions of indices in the object store, and of what was there before there were descriptions.
//!
//! An index has its description from before the catalog knows it until just before the catalog forgets it; so files of an
//! index without one are left of a deleted index, and no index whose deletion was acknowledged comes back with a repair. Segments describe themselves when they are committed (`shard/describe.rs`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millrace_catalog::State;
use millrace_catalog::description::{self, INDEX, IndexDescription, SEGMENT};
use millrace_catalog::metadata::MetadataChange;
use millrace_runtime::{Result, sync};
use object_store::ObjectMeta;
use object_store::path::Path;
use uuid::Uuid;

use super::identity::segment_of;
use super::{Index, Inner};

/// Time that a change of settings waits for the descriptions of its indices.
const DESCRIBE_TIME: Duration = Duration::from_secs(2);

/// The index that an object belongs to.
fn index_of(path: &Path) -> Option<Uuid> {
    path.parts().next().and_then(|part| Uuid::try_parse(part.as_ref()).ok())
}

/// Returns whether an object is a description.
pub(super) fn is_description(path: &Path) -> bool {
    path.filename().is_some_and(|name| name == SEGMENT || name == INDEX)
}

/// Returns whether an object is the description of an index.
pub(super) fn is_index_description(path: &Path) -> bool {
    segment_of(path).is_none() && is_description(path)
}

/// Descriptions that a start finds.
#[derive(Debug)]
pub(super) struct LoadedDescriptions {
    /// Indices and segments that the catalog knows.
    indices: HashSet<Uuid>,
    segments: HashSet<Uuid>,
    /// Directories with a description and nothing else.
    rests: HashSet<Uuid>,
    /// Indices and segments of the catalog without a description.
    undescribed: MissingDescriptions,
}

/// Indices, and segments by their shards, without descriptions.
#[derive(Debug, Default)]
struct MissingDescriptions {
    indices: Vec<Uuid>,
    shards: BTreeMap<(Uuid, u32), Vec<Uuid>>,
}

impl LoadedDescriptions {
    /// Looks through what was listed, and hands the shards their descriptions without rows.
    pub(super) fn find(
        listed: &[ObjectMeta],
        state: &State,
        running: &HashMap<Arc<str>, Arc<Index>>,
    ) -> Self {
        let indices: HashSet<Uuid> = running.values().map(|index| index.meta().uuid).collect();
        let segments: HashSet<Uuid> = state.segments.iter().map(|segment| segment.id).collect();
        let (mut described, mut files) = (HashSet::new(), HashSet::new());
        for path in listed.iter().map(|object| &object.location) {
            match (segment_of(path), index_of(path)) {
                (Some(segment), _) if is_description(path) => described.insert(segment),
                (Some(segment), _) => files.insert(segment),
                (None, Some(index)) if is_description(path) => described.insert(index),
                _ => false,
            };
        }
        let mut undescribed = MissingDescriptions::default();
        undescribed.indices.extend(indices.iter().filter(|index| !described.contains(index)));
        for segment in state.segments.iter().filter(|segment| !described.contains(&segment.id)) {
            undescribed.shards.entry((segment.index, segment.shard)).or_default().push(segment.id);
        }
        let mut found = Self { indices, segments, rests: HashSet::new(), undescribed };
        let mut by_shard: HashMap<(Uuid, u32), Vec<Uuid>> = HashMap::new();
        for path in listed.iter().map(|object| &object.location).filter(|path| is_description(path)) {
            if let (Some(index), Some(segment)) = (index_of(path), segment_of(path))
                && found.indices.contains(&index)
                && !found.segments.contains(&segment)
                && !files.contains(&segment)
                && let Some(shard) = path.parts().nth(1).and_then(|part| part.as_ref().parse().ok())
            {
                found.rests.insert(segment);
                by_shard.entry((index, shard)).or_default().push(segment);
            }
        }
        for index in running.values() {
            for shard in index.shards() {
                if let Some(rests) = by_shard.remove(&(shard.index, shard.number)) {
                    shard.has_rests(rests);
                }
            }
        }
        found
    }

    /// Returns whether an object is left of what the catalog does not know.
    pub(super) fn is_orphan(&self, path: &Path) -> bool {
        match (segment_of(path), index_of(path)) {
            (Some(segment), _) => !self.segments.contains(&segment) && !self.rests.contains(&segment),
            (None, Some(index)) => is_description(path) && !self.indices.contains(&index),
            (None, None) => false,
        }
    }
}

/// A change whose indices are described as they will be: nobody else describes those that it deletes meanwhile.
#[derive(Debug)]
pub(super) struct DescriptionGuard {
    deleted: Vec<Arc<Index>>,
    _each: Vec<tokio::sync::OwnedMutexGuard<()>>,
}

impl Inner {
    /// Writes the descriptions of indices that are about to be made, and deletes those of indices that are about to be
    /// deleted, which nobody describes as long as the answer is held.
    ///
    /// # Errors
    /// The object store fails; all is then as it was, as far as the object store allows.
    pub(super) async fn describe_change(
        &self,
        mut deleted: Vec<Arc<Index>>,
        created: &[Arc<Index>],
    ) -> Result<DescriptionGuard> {
        // The order of their locks.
        deleted.sort_unstable_by_key(|index| index.meta().uuid);
        deleted.dedup_by_key(|index| index.meta().uuid);
        let mut each = Vec::with_capacity(deleted.len());
        for index in &deleted {
            each.push(Arc::clone(&index.describing).lock_owned().await);
        }
        let describing = DescriptionGuard { deleted, _each: each };
        match self.try_describe(&describing, created).await {
            Ok(()) => Ok(describing),
            Err(error) => {
                self.undescribe_change(describing, created).await;
                Err(error)
            }
        }
    }

    async fn try_describe(&self, describing: &DescriptionGuard, created: &[Arc<Index>]) -> Result<()> {
        for index in created {
            self.put_description(index).await?;
        }
        for index in &describing.deleted {
            self.env().objects.delete_durably(&description::index_path(index.meta().uuid)).await?;
        }
        Ok(())
    }

    /// Takes back what was described for a change that came to nothing. What the object store refuses now, the next start
    /// does.
    pub(super) async fn undescribe_change(&self, describing: DescriptionGuard, created: &[Arc<Index>]) {
        for index in created {
            let uuid = index.meta().uuid;
            if let Err(error) = self.env().objects.delete_durably(&description::index_path(uuid)).await {
                tracing::warn!(index = %uuid, %error, "cannot delete the description of an index that was not made");
            }
        }
        for index in describing.deleted.iter().filter(|index| self.is_running(index)) {
            if let Err(error) = self.put_description(index).await {
                tracing::warn!(index = %index.meta().name, %error, "cannot describe an index; the next start will");
            }
        }
    }

    /// Returns whether an index was not deleted.
    fn is_running(&self, index: &Arc<Index>) -> bool {
        self.indices.read().get(&index.meta().name).is_some_and(|running| Arc::ptr_eq(running, index))
    }

    /// Running indices that a change deletes.
    pub(super) fn deleted_by(&self, changes: &[MetadataChange]) -> Vec<Arc<Index>> {
        let indices = self.indices.read();
        let deleted = changes.iter().filter_map(|change| match change {
            MetadataChange::DeleteIndex { name, uuid } => {
                indices.get(name).filter(|index| index.meta().uuid == *uuid).cloned()
            }
            _ => None,
        });
        deleted.collect()
    }

    async fn put_description(&self, index: &Index) -> Result<()> {
        let (meta, mapping) = (index.meta(), index.mapping());
        let generation = self.services.catalog.generation();
        let description = match index.unsupported().and_then(|unsupported| unsupported.encoded.as_deref()) {
            Some(encoded) => IndexDescription::with_encoded_mapping(&meta, encoded, generation)?,
            None => IndexDescription::new(&meta, &mapping, generation)?,
        };
        let encoded = description::encode(&description)?;
        self.env().objects.put(&description::index_path(meta.uuid), encoded).await?;
        index.about.mapping.fetch_max(mapping.version(), Ordering::AcqRel);
        Ok(())
    }

    /// Writes the description of a running index anew. What is wrong with the object store is no reason to fail a
    /// change that the catalog has: the next segment describes the index as well.
    pub(super) async fn describe_again(&self, index: &Arc<Index>) {
        let _one = index.describing.lock().await;
        // A deleted one has none.
        if self.is_running(index)
            && let Err(error) = self.put_description(index).await
        {
            tracing::warn!(index = %index.meta().name, %error, "cannot describe an index; its next segment will");
        }
    }

    /// Writes descriptions of running indices anew that a change has made outdated. A remote object store that does not answer
    /// is not waited for: the catalog has the change.
    pub(super) async fn describe_outdated(self: &Arc<Self>, outdated: Vec<Arc<Index>>) {
        if outdated.is_empty() {
            return;
        }
        let inner = Arc::clone(self);
        let described = async move {
            for index in outdated {
                inner.describe_again(&index).await;
            }
        };
        if self.env().objects.is_local() {
            return described.await;
        }
        let (done, ended) = futures::channel::oneshot::channel::<()>();
        sync::detached(async move {
            described.await;
            drop(done);
        });
        let _ = tokio::time::timeout(DESCRIBE_TIME, ended).await;
    }

    /// Running indices whose description a change makes outdated.
    pub(super) fn with_other_description(&self, changes: &[MetadataChange]) -> Vec<Arc<Index>> {
        let indices = self.indices.read();
        let changed = changes.iter().filter_map(|change| match change {
            MetadataChange::PutIndex { meta, .. } => {
                let index = indices.get(&meta.name)?;
                let now = index.meta();
                let differs = now.settings != meta.settings || now.open != meta.open;
                (now.uuid == meta.uuid && differs).then(|| Arc::clone(index))
            }
            _ => None,
        });
        changed.collect()
    }

    /// Describes, in the background, what versions before have made.
    pub(super) fn describe_earlier(self: &Arc<Self>, described: LoadedDescriptions) {
        let MissingDescriptions { indices, shards } = described.undescribed;
        if indices.is_empty() && shards.is_empty() {
            return;
        }
        let inner = Arc::downgrade(self);
        sync::detached(async move {
            tracing::info!(
                indices = indices.len(),
                shards = shards.len(),
                "describing what earlier versions made"
            );
            let mut by_uuid: HashMap<Uuid, Arc<Index>> = HashMap::new();
            if let Some(inner) = inner.upgrade() {
                by_uuid.extend(inner.all_indices().into_iter().map(|index| (index.meta().uuid, index)));
            }
            for index in indices.iter().filter_map(|uuid| by_uuid.get(uuid)) {
                let Some(inner) = inner.upgrade() else { return };
                inner.describe_again(index).await;
            }
            for ((uuid, number), segments) in shards {
                let (Some(inner), Some(index)) = (inner.upgrade(), by_uuid.get(&uuid)) else { continue };
                let Ok(shard) = index.shard(number) else { continue };
                if let Err(error) = sync::scope(shard.describe_earlier(&inner.services, &segments)).await {
                    tracing::warn!(index = %uuid, shard = number, %error, "cannot describe segments; the next start will");
                }
            }
        });
    }
}
