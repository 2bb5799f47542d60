//! Documents that writers under rules name by id: which of them the rules show is looked up, all those of an index at once,
//! after it is known what the names of the request stand for. What was seen goes down with each operation
//! ([`ObservedVersion`]), so that nothing comes between.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use millrace_catalog::access::DocumentRules;
use millrace_catalog::operation::{DocResult, WriteOp};
use millrace_runtime::{Error, Priority, Result};
use uuid::Uuid;

use super::Engine;
use super::index::Index;
use super::target::{Targets, again, under_rules};
use super::write_batch::{Outcome, PreparedOperation};
use crate::access::DocumentLookup;
use crate::shard::ObservedVersion;

/// Ids that are looked up by one search.
const MAX_IDS: usize = 10_000;

/// Documents that the writer of a request has seen, by index; those of other indices are all seen.
#[derive(Debug, Default)]
pub(super) struct VisibilityChecks(HashMap<Uuid, VisibilityCheck>);

#[derive(Debug)]
struct VisibilityCheck {
    rules: Arc<DocumentRules>,
    /// Operations below are seen or hidden, by shard.
    below: Vec<u64>,
    /// The same of documents that were looked at again, by shard and id: what the others are was not looked at then.
    below_again: HashMap<(u32, String), u64>,
    /// Sequence number and term of what was seen, by shard and id.
    seen: HashMap<(u32, String), (u64, u64)>,
    failed: Option<Error>,
}

impl VisibilityChecks {
    /// Says what was seen of a document; `None` where no rules hide any.
    pub(super) fn of(&self, index: &Index, shard: u32, id: Option<&str>) -> Result<Option<ObservedVersion>> {
        let Some(id) = id.filter(|_| !self.0.is_empty()) else { return Ok(None) };
        let Some(look) = self.0.get(&index.meta().uuid) else { return Ok(None) };
        if let Some(error) = &look.failed {
            return Err(again(error));
        }
        let key = (shard, id.to_owned());
        Ok(Some(match look.seen.get(&key) {
            Some(&(seq_no, primary_term)) => ObservedVersion::State { seq_no, primary_term },
            None => {
                let below = look.below_again.get(&key).or_else(|| look.below.get(shard as usize));
                ObservedVersion::Nothing { below: below.copied().unwrap_or(0) }
            }
        }))
    }

    /// Notes where the operations of a round go, to learn of their outcomes.
    pub(super) fn places(&self, round: &[PreparedOperation]) -> HashMap<usize, (Uuid, u32)> {
        let ruled = |op: &&PreparedOperation| self.0.contains_key(&op.index.meta().uuid);
        let ruled = round.iter().filter(|_| !self.0.is_empty()).filter(ruled);
        ruled.map(|op| (op.item, (op.index.meta().uuid, op.shard))).collect()
    }

    /// Learns what a round has left: who wrote it knows of it.
    pub(super) fn learn(&mut self, places: &HashMap<usize, (Uuid, u32)>, outcomes: &[Outcome]) {
        if places.is_empty() {
            return;
        }
        for (item, outcome) in outcomes {
            let (Some((uuid, shard)), Ok(done)) = (places.get(item), outcome) else { continue };
            let Some(look) = self.0.get_mut(uuid) else { continue };
            let key = (*shard, done.id.clone());
            match done.result {
                DocResult::Deleted | DocResult::NotFound => drop(look.seen.remove(&key)),
                _ => drop(look.seen.insert(key, (done.seq_no, done.primary_term))),
            }
        }
    }
}

/// Documents of an index that are named, by shard and id.
struct NamedDocuments {
    index: Arc<Index>,
    rules: Arc<DocumentRules>,
    ids: BTreeSet<(u32, String)>,
}

/// Lists the documents that operations name in indices where rules hide some.
fn named(ops: &[WriteOp], targets: &Targets) -> HashMap<Uuid, NamedDocuments> {
    let mut named: HashMap<Uuid, NamedDocuments> = HashMap::new();
    for op in ops {
        let (Some(id), Some((index, rules, routing))) = (op.id.as_deref(), under_rules(targets, op)) else {
            continue;
        };
        let shard = index.shard_for(Some(id), routing);
        let of_index = named.entry(index.meta().uuid).or_insert_with(|| NamedDocuments {
            index: Arc::clone(index),
            rules: Arc::clone(rules),
            ids: BTreeSet::new(),
        });
        of_index.ids.insert((shard, id.to_owned()));
    }
    named
}

fn next_seq_nos(index: &Index, shards: std::ops::Range<u32>) -> Result<Vec<u64>> {
    shards.map(|shard| Ok(index.shard(shard)?.next_seq_no())).collect()
}

impl Engine {
    /// Looks the documents up that operations name in indices where rules hide some from the writer.
    pub(super) async fn look(
        &self,
        ops: Vec<WriteOp>,
        targets: Targets,
    ) -> Result<(Vec<WriteOp>, Targets, VisibilityChecks)> {
        let name = move || {
            let named = named(&ops, &targets);
            Ok((ops, targets, named))
        };
        let (ops, targets, named) = self.inner.env().compute.run(Priority::Ingest, name).await?;
        let mut looks = VisibilityChecks::default();
        for (uuid, NamedDocuments { index, rules, ids }) in named {
            let (below, below_again, seen) = Default::default();
            let mut look = VisibilityCheck { rules, below, below_again, seen, failed: None };
            let ids: Vec<(u32, &str)> = ids.iter().map(|(shard, id)| (*shard, id.as_str())).collect();
            // Before it is searched: what comes meanwhile may be seen, or hidden, or neither.
            look.failed = match next_seq_nos(&index, 0..index.meta().shards) {
                Ok(below) => {
                    look.below = below;
                    self.look_at(&index, &ids, &mut look).await.err()
                }
                Err(error) => Some(error),
            };
            looks.0.insert(uuid, look);
        }
        Ok((ops, targets, looks))
    }

    /// Looks again at a document that has changed meanwhile.
    pub(super) async fn look_again(
        &self,
        index: &Arc<Index>,
        shard: u32,
        id: &str,
        looks: &mut VisibilityChecks,
    ) {
        let Some(look) = looks.0.get_mut(&index.meta().uuid) else { return };
        let key = (shard, id.to_owned());
        look.seen.remove(&key);
        look.failed = match next_seq_nos(index, shard..shard + 1) {
            Ok(below) => {
                look.below_again.extend(below.first().map(|below| (key, *below)));
                self.look_at(index, &[(shard, id)], look).await.err()
            }
            Err(error) => Some(error),
        };
    }

    async fn look_at(
        &self,
        index: &Arc<Index>,
        ids: &[(u32, &str)],
        look: &mut VisibilityCheck,
    ) -> Result<()> {
        // Never unasked.
        let visibility = self
            .visibility()
            .ok_or_else(|| Error::Internal("nobody can say which documents rules show".to_owned()))?;
        for part in ids.chunks(MAX_IDS) {
            let shards: BTreeSet<u32> = part.iter().map(|(shard, _)| *shard).collect();
            let (ids, shards): (Vec<&str>, Vec<u32>) =
                (part.iter().map(|(_, id)| *id).collect(), shards.into_iter().collect());
            let sought = DocumentLookup { ids: &ids, shards: &shards, sources: false };
            for found in visibility.find(index, sought, &look.rules).await? {
                let shard = index.shard_for(Some(&found.id), found.routing.as_deref());
                look.seen.insert((shard, found.id), (found.seq_no, found.primary_term));
            }
        }
        Ok(())
    }
}
