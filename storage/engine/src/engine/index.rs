//! A running index: its settings, its mapping and its shards.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::future::try_join_all;
use millrace_catalog::ShardCheckpoint;
use millrace_catalog::metadata::{IndexMeta, SortField, parse_bytes, parse_index_sort};
use millrace_catalog::routing::{routing_shards, shard_of};
use millrace_mapping::Mapping;
use millrace_runtime::sync::{AsyncMutex, LockRank, Rank};
use millrace_runtime::{Error, Result, SharedClock};
use millrace_segment::Env;
use millrace_session::{ShardSnapshot, Snapshot};
use serde_json::Value;

use super::maintenance_queue::MaintenanceQueue;
use super::types::{IndexFigures, SegmentFigures, ShardFault};
use crate::shard::{
    Damage, DescriptionInputs, LoadedSegment, OpenContext, RefreshFacts, SearchContextKind, Shard,
    SharedMapping, StateReadGuard, refresh_in_ms,
};

const DEFAULT_REFRESH_INTERVAL: Duration = Duration::from_secs(1);
const DEFAULT_GC_DELETES: Duration = Duration::from_secs(60);
/// Least bytes of documents that an index may have start a flush.
const LEAST_FLUSH_BYTES: u64 = 1 << 20;

/// The stored mapping of an index that this version does not accept: what describes the index goes on to have it as it is.
#[derive(Debug)]
pub(super) struct UnsupportedMapping {
    /// The encoded mapping; `None` where only the settings are refused.
    pub(super) encoded: Option<Vec<u8>>,
    reason: String,
}

impl UnsupportedMapping {
    pub(super) fn new(encoded: Option<&[u8]>, error: &Error) -> Self {
        Self { encoded: encoded.map(<[u8]>::to_vec), reason: error.to_string() }
    }
}

/// A running index.
#[derive(Debug)]
pub struct Index {
    pub(super) about: Arc<DescriptionInputs>,
    mapping: Arc<ArcSwap<Mapping>>,
    /// Set where this version does not accept the stored mapping; `mapping` is not the one of the index then.
    unsupported: OnceLock<UnsupportedMapping>,
    /// Held while the mapping changes, so that changes have one order, which is the log's.
    pub(super) mapping_change: AsyncMutex,
    /// Held while the description of the index is written, so that an older one never replaces a newer one, and while the
    /// index is deleted.
    pub(super) describing: Arc<tokio::sync::Mutex<()>>,
    /// Version of the mapping that the catalog is known to have.
    pub(super) saved_mapping: Arc<AtomicU64>,
    shards: Vec<Arc<Shard>>,
    last_search_ms: AtomicI64,
    next_shard: AtomicU64,
    routing_shards: u32,
    env: Env,
    clock: SharedClock,
    agenda: Weak<MaintenanceQueue>,
}

impl Index {
    pub(super) fn new(
        meta: Arc<IndexMeta>,
        mapping: Mapping,
        checkpoints: &[ShardCheckpoint],
        segments: Vec<LoadedSegment>,
        env: &Env,
        clock: &SharedClock,
        agenda: &Arc<MaintenanceQueue>,
    ) -> Self {
        let (uuid, routing_shards) = (meta.uuid, routing_shards(&meta));
        let saved_mapping = Arc::new(AtomicU64::new(mapping.version()));
        let mapping = Arc::new(ArcSwap::from_pointee(mapping));
        let mut by_shard: Vec<Vec<LoadedSegment>> = (0..meta.shards).map(|_| Vec::new()).collect();
        for loaded in segments {
            if let Some(place) = by_shard.get_mut(loaded.record.shard as usize) {
                place.push(loaded);
            }
        }
        let checkpoints: HashMap<u32, &ShardCheckpoint> = checkpoints.iter().map(|c| (c.shard, c)).collect();
        // Checked when the index was created.
        let sort: Arc<[SortField]> = parse_index_sort(&meta.settings).unwrap_or_default().into();
        let about =
            Arc::new(DescriptionInputs { meta: ArcSwap::new(Arc::clone(&meta)), mapping: AtomicU64::new(0) });
        let shards = (0..meta.shards)
            .zip(by_shard)
            .map(|(number, segments)| {
                let checkpoint = checkpoints.get(&number).copied();
                let (current, saved) = (Arc::clone(&mapping), Arc::clone(&saved_mapping));
                let (mapping, sort) = (SharedMapping { current, saved }, Arc::clone(&sort));
                Arc::new(Shard::new(Arc::clone(&about), number, mapping, sort, checkpoint, segments, env))
            })
            .collect();
        Self {
            about,
            mapping,
            unsupported: OnceLock::new(),
            mapping_change: AsyncMutex::new(LockRank::of_index(Rank::MappingChange, uuid)),
            describing: Arc::default(),
            saved_mapping,
            shards,
            last_search_ms: AtomicI64::new(i64::MIN / 2),
            next_shard: AtomicU64::new(0),
            routing_shards,
            env: env.clone(),
            clock: Arc::clone(clock),
            agenda: Arc::downgrade(agenda),
        }
    }

    /// Returns name, uuid, settings, aliases and state.
    pub fn meta(&self) -> Arc<IndexMeta> {
        self.about.meta.load_full()
    }

    /// Replaces the metadata. Where settings change, `mapping` is the current one under them, made by the
    /// caller, who holds `mapping_change`.
    pub(super) fn set_meta(&self, meta: Arc<IndexMeta>, mapping: Option<Mapping>) {
        if let Some(mapping) = mapping {
            self.mapping.store(Arc::new(mapping));
        }
        self.about.meta.store(meta);
    }

    /// Returns the current mapping. It is empty where this version does not accept that of the index ([`Index::check_supported`]).
    pub fn mapping(&self) -> Arc<Mapping> {
        self.mapping.load_full()
    }

    /// Takes note that this version does not accept the stored mapping; returns the damage of the shards.
    pub(super) fn set_unsupported(&self, unsupported: UnsupportedMapping) -> Damage {
        let (name, reason) = (Arc::clone(&self.meta().name), unsupported.reason.clone());
        tracing::error!(index = %name, reason, "index is out of use: this version does not accept its settings or mapping");
        // The first refusal stands: an index is put out of use once.
        let _ = self.unsupported.set(unsupported);
        Damage::Unsupported { index: name, reason }
    }

    /// Returns the stored mapping that this version does not accept, if that is so.
    pub(super) fn unsupported(&self) -> Option<&UnsupportedMapping> {
        self.unsupported.get()
    }

    /// Returns the body of a stored mapping that this version does not accept, as far as it is one.
    pub(crate) fn unsupported_body(&self) -> Option<Value> {
        let encoded = self.unsupported.get()?.encoded.as_deref()?;
        let mut encoded: Value = serde_json::from_slice(encoded).ok()?;
        encoded.get_mut("mapping").map(Value::take)
    }

    /// Refuses the use of settings and mapping that this version does not accept.
    ///
    /// # Errors
    /// [`Error::IndexUnsupported`].
    pub fn check_supported(&self) -> Result<()> {
        match self.unsupported.get() {
            None => Ok(()),
            Some(UnsupportedMapping { reason, .. }) => {
                Err(Error::IndexUnsupported { index: self.meta().name.to_string(), reason: reason.clone() })
            }
        }
    }

    /// Replaces the mapping; the caller holds `mapping_change` and has logged it.
    pub(super) fn set_mapping(&self, mapping: Arc<Mapping>) {
        self.mapping.store(mapping);
    }

    pub(crate) fn shards(&self) -> &[Arc<Shard>] {
        &self.shards
    }

    /// Lists the sequence numbers that the next operations of the shards get: the same ones mean that nothing was written.
    pub fn next_seq_nos(&self) -> Vec<u64> {
        self.shards.iter().map(|shard| shard.next_seq_no()).collect()
    }

    /// Decides the shard of a routing value, as OpenSearch does.
    pub(super) fn shard_of(&self, routing: &str) -> u32 {
        shard_of(routing, self.shards.len() as u32, self.routing_shards)
    }

    /// Shard of an operation: by its routing, else by its id, else the next one in turn.
    pub(crate) fn shard_for(&self, id: Option<&str>, routing: Option<&str>) -> u32 {
        let shards = self.shards.len() as u32;
        match routing.or(id) {
            Some(value) => self.shard_of(value),
            None => (self.next_shard.fetch_add(1, Ordering::Relaxed) % u64::from(shards.max(1))) as u32,
        }
    }

    pub(super) fn shard(&self, number: u32) -> Result<&Arc<Shard>> {
        self.shards
            .get(number as usize)
            .ok_or_else(|| Error::Internal(format!("no shard {number} in [{}]", self.meta().name)))
    }

    /// Takes a snapshot for a search. After search idleness (`index.search.idle.after`) it refreshes first, and so do
    /// the searches that come until that has ended: each sees what was written before it came.
    ///
    /// # Errors
    /// The index is closed, or the refresh fails.
    pub async fn snapshot(self: &Arc<Self>) -> Result<Snapshot> {
        let meta = self.meta();
        if !meta.open {
            return Err(Error::IndexClosed { index: meta.name.to_string() });
        }
        self.check_supported()?;
        self.shards.iter().try_for_each(|shard| shard.check())?;
        let now = self.clock.now_ms();
        let since_search_ms = now - self.last_search_ms.load(Ordering::Relaxed);
        // A clock that was set back tells nothing.
        let idle = !(0..idle_after_ms(&meta)).contains(&since_search_ms);
        let mut refreshed = Vec::new();
        if idle {
            let (interval_ms, explicit) = refresh_interval(&meta);
            if !explicit && interval_ms >= 0 {
                refreshed = self.shards.iter().filter(|shard| shard.read().dirty()).collect();
                // Those that wait for one refresh find nothing left to do in theirs.
                try_join_all(refreshed.iter().map(|shard| shard.refresh(&self.env, now))).await?;
            }
        }
        // Only now: until then nobody may rely on what searches see.
        self.last_search_ms.store(now, Ordering::Relaxed);
        if idle && let Some(agenda) = self.agenda.upgrade() {
            // What was written meanwhile found the index idle, and nothing due.
            let dirty = self.shards.iter().filter(|shard| shard.read().dirty());
            // What a refresh shows may ask for a flush or a compaction.
            dirty.chain(refreshed).for_each(|shard| agenda.report(self, shard));
        }
        let shards = self
            .shards
            .iter()
            .map(|shard| {
                shard.counters.query.fetch_add(1, Ordering::Relaxed);
                ShardSnapshot { shard: shard.number, segments: shard.view().as_ref().clone() }
            })
            .collect();
        // Loaded after the segments: the mapping knows every path that they have.
        Ok(Snapshot { meta, mapping: self.mapping(), shards })
    }

    /// Counts a context as open over the shards of these numbers until the result is dropped.
    pub fn open_context(&self, kind: SearchContextKind, shards: &[u32]) -> OpenContext {
        let shards = shards.iter().filter_map(|number| self.shards.get(*number as usize));
        let counters = shards.map(|shard| Arc::clone(&shard.contexts)).collect();
        OpenContext::new(kind, counters, Arc::clone(&self.clock))
    }

    /// In how many milliseconds a shard's refresh is due; `None` for never, as things are.
    pub(super) fn refresh_in_ms(&self, shard: &StateReadGuard<'_>, now_ms: i64) -> Option<i64> {
        let meta = self.meta();
        let (interval_ms, explicit) = refresh_interval(&meta);
        let (waited_for, since_refresh_ms) = shard.refresh_wanted(now_ms);
        refresh_in_ms(&RefreshFacts {
            dirty: shard.dirty(),
            waited_for,
            interval_ms,
            explicit,
            since_refresh_ms,
            since_search_ms: now_ms - self.last_search_ms.load(Ordering::Relaxed),
            idle_after_ms: idle_after_ms(&meta),
        })
    }

    /// Lists the sizes of the segments that searches see, shard by shard.
    pub fn segments(&self) -> Vec<Vec<SegmentFigures>> {
        self.shards.iter().map(|shard| shard.segment_figures()).collect()
    }

    /// Tells of each shard what it cannot do, if anything.
    pub fn faults(&self) -> Vec<Option<ShardFault>> {
        let fenced = self.env.objects.is_closed_to_writes().then_some(ShardFault::Failing);
        self.shards.iter().map(|shard| shard.fault().or(fenced)).collect()
    }

    /// Counts what [`Index::figures`] counts but the log, without a lock that writers hold: the sizes are those of the last refresh.
    pub fn published_figures(&self) -> IndexFigures {
        IndexFigures { shards: self.shards.iter().map(|shard| shard.published_figures()).collect() }
    }

    /// Counts live documents, deleted rows and bytes.
    pub fn figures(&self) -> IndexFigures {
        IndexFigures { shards: self.shards.iter().map(|shard| shard.figures()).collect() }
    }
}

/// `index.refresh_interval` in milliseconds, negative for never, and whether a user set it.
fn refresh_interval(meta: &IndexMeta) -> (i64, bool) {
    let explicit = meta.settings.contains_key("index.refresh_interval");
    let interval =
        meta.duration("index.refresh_interval").or((!explicit).then_some(DEFAULT_REFRESH_INTERVAL));
    (interval.map_or(-1, |interval| i64::try_from(interval.as_millis()).unwrap_or(i64::MAX)), explicit)
}

/// `index.search.idle.after` in milliseconds; where it is never, as many as there are.
fn idle_after_ms(meta: &IndexMeta) -> i64 {
    let after = meta.duration("index.search.idle.after");
    after.and_then(|after| i64::try_from(after.as_millis()).ok()).unwrap_or(i64::MAX)
}

/// Returns whether acknowledgements of the index wait for the fsync.
pub(super) fn durable_acknowledgement(meta: &IndexMeta) -> bool {
    meta.setting("index.translog.durability")
        .is_none_or(|durability| !durability.eq_ignore_ascii_case("async"))
}

/// Returns the time for which tombstones are kept, in milliseconds.
pub(super) fn gc_deletes_ms(meta: &IndexMeta) -> i64 {
    let kept = meta.duration("index.gc_deletes").unwrap_or(DEFAULT_GC_DELETES);
    i64::try_from(kept.as_millis()).unwrap_or(i64::MAX)
}

/// Returns the bytes of documents in a shard's memtable that start a flush: an index may have smaller memtables than others.
pub(super) fn flush_bytes(meta: &IndexMeta, configured: u64) -> u64 {
    let explicit = meta.settings.get("index.translog.flush_threshold_size").and_then(Value::as_str);
    flush_threshold(explicit, configured)
}

fn flush_threshold(explicit: Option<&str>, configured: u64) -> u64 {
    let explicit = explicit.and_then(|text| parse_bytes(text).ok()).flatten();
    explicit.map_or(configured, |bytes| bytes.max(LEAST_FLUSH_BYTES).min(configured))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_may_have_smaller_memtables_than_others() {
        const CONFIGURED: u64 = 32 << 20;
        for (explicit, expected) in [
            (None, CONFIGURED),
            (Some("512mb"), CONFIGURED),
            (Some("16mb"), 16 << 20),
            (Some("1b"), LEAST_FLUSH_BYTES),
            (Some("-1"), CONFIGURED),
        ] {
            assert_eq!(flush_threshold(explicit, CONFIGURED), expected, "{explicit:?}");
        }
        // The configuration may have less for tests and small machines.
        assert_eq!(flush_threshold(Some("1b"), 1 << 10), 1 << 10);
    }
}
