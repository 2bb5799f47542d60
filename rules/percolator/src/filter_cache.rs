//! Cache of compiled filters by index: a filter that was evicted is compiled anew with the next document of its index.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::compiled::CompiledFilters;
use super::{Matching, OperationPosition};

/// The filters of an index, and when they were asked last.
#[derive(Debug)]
pub(super) struct CacheEntry {
    pub(super) compiled: CompiledFilters,
    pub(super) batch: u64,
    pub(super) time_ms: i64,
}

/// Gone indices whose filters are kept, as frames of them may still come.
const MAX_GONE: usize = 64;
/// Estimated bytes of the filters of all indices that are kept: beyond them those that were asked the longest time ago are forgotten, and
/// compiled anew with the next document of their index.
pub(super) const MAX_KEPT: usize = 512 << 20;
/// Filters of indices of which nothing has come for so long are forgotten.
const IDLE_MS: i64 = 15 * 60_000;

impl Matching {
    /// Tells that rules have more filters than are kept.
    pub fn overload(&self) -> Option<String> {
        (self.crowded_out > 0).then(|| {
            format!(
                "rules have more filters than the {} MiB of them that are kept: those of {} indices are compiled anew with each \
                 batch of their documents, so rules lag; fewer rules on broad patterns, or equal mappings, take less",
                self.most_kept >> 20,
                self.crowded_out
            )
        })
    }

    /// Forgets filters of indices of which nothing comes, and of others where there are too many: they are compiled anew once
    /// something does.
    pub(super) fn forget_most(&mut self, now_ms: i64) {
        self.unwatched.retain(|uuid, _| self.targets.rules_for(uuid).is_some());
        let mut kept: Vec<(u64, Uuid, usize, bool)> = Vec::with_capacity(self.indices.len());
        for (uuid, watched) in &mut self.indices {
            // One that was compiled and not asked yet begins to be idle now.
            if watched.time_ms == 0 {
                watched.time_ms = now_ms;
            }
            let is_idle = watched.batch < self.batch && now_ms.saturating_sub(watched.time_ms) > IDLE_MS;
            kept.push((watched.batch, *uuid, watched.compiled.weight(), is_idle));
        }
        let mut weight = kept.iter().map(|(_, _, weight, _)| *weight).fold(0, usize::saturating_add);
        kept.sort_unstable();
        self.crowded_out = 0;
        let last = kept.len().saturating_sub(1);
        for (at, (batch, uuid, of_index, is_idle)) in kept.into_iter().enumerate() {
            let is_too_much = weight > self.most_kept && at < last;
            if !is_idle && !is_too_much {
                continue;
            }
            weight = weight.saturating_sub(of_index);
            self.crowded_out += usize::from(batch == self.batch && !is_idle);
            if let Some(watched) = self.indices.remove(&uuid) {
                let problems = watched.compiled.into_problems();
                if !problems.is_empty() && self.targets.rules_for(&uuid).is_some() {
                    self.unwatched.insert(uuid, problems);
                }
            }
        }
    }

    /// Forgets indices that are gone, once there are many.
    pub(super) fn forget_gone(&mut self, asked: &BTreeMap<Uuid, Vec<OperationPosition<'_>>>) {
        let targets = &self.targets;
        let gone = self.indices.keys().filter(|uuid| targets.rules_for(uuid).is_none()).count();
        if gone > MAX_GONE {
            self.indices.retain(|uuid, _| targets.rules_for(uuid).is_some() || asked.contains_key(uuid));
        }
    }
}
