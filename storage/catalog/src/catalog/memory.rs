//! A catalog in memory whose transactions are operations of a simulated disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use millrace_runtime::disk::SimulatedDisk;
use millrace_runtime::{Error, Result};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{
    AccountChange, AccountRecord, Catalog, Commit, LeaseRecord, Position, SegmentRecord, ShardCheckpoint,
    State, StoreRecord, TombstoneChange, TombstoneChunk,
};
use crate::metadata::{IndexMeta, MetadataChange};

/// A catalog for simulated power loss: each writing call is one operation of a [`SimulatedDisk`],
/// happens as a whole or not at all, and is durable when it returns.
#[derive(Debug)]
pub struct MemoryCatalog {
    tables: Arc<Mutex<Tables>>,
    disk: SimulatedDisk,
}

#[derive(Clone, Debug, Default)]
struct Tables {
    store: StoreRecord,
    indices: BTreeMap<Uuid, Arc<IndexMeta>>,
    mappings: BTreeMap<Uuid, Vec<u8>>,
    templates: BTreeMap<(String, String), Value>,
    persistent: Map<String, Value>,
    segments: BTreeMap<Uuid, SegmentRecord>,
    checkpoints: BTreeMap<(Uuid, u32), ShardCheckpoint>,
    positions: BTreeMap<(String, String, String), Position>,
    leases: BTreeMap<String, LeaseRecord>,
    /// By index, shard, group and part.
    tombstones: BTreeMap<(Uuid, u32, u64, usize), Bytes>,
    values: BTreeMap<String, Vec<u8>>,
    /// By kind and name.
    accounts: BTreeMap<(String, String), String>,
}

impl MemoryCatalog {
    /// Makes an empty catalog on a disk.
    pub fn new(disk: SimulatedDisk) -> Self {
        Self { tables: Arc::default(), disk }
    }

    /// Opens the same catalog again, on what is left of its disk.
    pub fn reopen(&self, disk: SimulatedDisk) -> Self {
        Self { tables: Arc::clone(&self.tables), disk }
    }

    fn write(&self, change: impl FnOnce(&mut Tables) -> Result<()>) -> Result<()> {
        self.disk.transaction(|| {
            let mut tables = self.tables.lock();
            let mut changed = tables.clone();
            change(&mut changed)?;
            *tables = changed;
            Ok(())
        })?
    }
}

impl Tables {
    fn change(&mut self, change: &MetadataChange) -> Result<()> {
        match change {
            MetadataChange::PutIndex { meta, .. } => {
                let same_name = |other: &&Arc<IndexMeta>| other.name == meta.name && other.uuid != meta.uuid;
                if let Some(other) = self.indices.values().find(same_name) {
                    let (index, uuid) = (other.name.to_string(), other.uuid.to_string());
                    return Err(Error::IndexAlreadyExists { index, uuid });
                }
                self.indices.insert(meta.uuid, Arc::clone(meta));
            }
            MetadataChange::DeleteIndex { uuid, .. } => {
                self.indices.remove(uuid);
                self.mappings.remove(uuid);
                self.segments.retain(|_, segment| segment.index != *uuid);
                self.checkpoints.retain(|(index, _), _| index != uuid);
                self.tombstones.retain(|(index, ..), _| index != uuid);
            }
            MetadataChange::PutTemplate { kind, name, body } => {
                self.templates.insert((kind.clone(), name.clone()), body.clone());
            }
            MetadataChange::DeleteTemplate { kind, name } => {
                self.templates.remove(&(kind.clone(), name.clone()));
            }
            MetadataChange::PutPersistent(settings) => self.persistent.clone_from(settings),
            MetadataChange::PutTransient(_) => {}
        }
        Ok(())
    }

    fn require(&self, index: Uuid) -> Result<()> {
        if self.indices.contains_key(&index) {
            return Ok(());
        }
        Err(Error::IndexNotFound { index: index.to_string() })
    }

    fn put_mappings(&mut self, mappings: &[(Uuid, Vec<u8>)]) -> Result<()> {
        for (index, mapping) in mappings {
            self.require(*index)?;
            self.mappings.insert(*index, mapping.clone());
        }
        Ok(())
    }

    fn commit(&mut self, commit: &Commit) -> Result<()> {
        for id in &commit.removed {
            self.segments.remove(id);
        }
        for segment in &commit.put {
            self.require(segment.index)?;
            self.segments.insert(segment.id, segment.clone());
        }
        for checkpoint in &commit.checkpoints {
            self.require(checkpoint.index)?;
            self.checkpoints.insert((checkpoint.index, checkpoint.shard), checkpoint.clone());
        }
        for TombstoneChange { index, shard, kept, added } in &commit.tombstones {
            self.require(*index)?;
            self.tombstones
                .retain(|(of, number, group, _), _| (of, number) != (index, shard) || kept.contains(group));
            for (part, encoded) in added.iter().enumerate() {
                self.tombstones.insert((*index, *shard, kept.end, part), encoded.clone());
            }
        }
        for position in &commit.positions {
            let Position { pipeline, source, partition, .. } = position.clone();
            self.positions.insert((pipeline, source, partition), position.clone());
        }
        for forgotten in &commit.forgotten {
            self.positions.remove(forgotten);
        }
        for lease in &commit.leases {
            self.leases.insert(lease.name.clone(), lease.clone());
        }
        for name in &commit.released {
            self.leases.remove(name);
        }
        self.put_mappings(&commit.mappings)
    }

    fn state(&self) -> State {
        let mut indices: Vec<_> = self.indices.values().cloned().collect();
        indices.sort_by(|a, b| a.name.cmp(&b.name));
        let put_index = |meta| MetadataChange::PutIndex { meta, mapping: None };
        let put_template = |((kind, name), body): (&(String, String), &Value)| MetadataChange::PutTemplate {
            kind: kind.clone(),
            name: name.clone(),
            body: body.clone(),
        };
        let mut metadata: Vec<MetadataChange> = indices.into_iter().map(put_index).collect();
        metadata.extend(self.templates.iter().map(put_template));
        if !self.persistent.is_empty() {
            metadata.push(MetadataChange::PutPersistent(self.persistent.clone()));
        }
        let mut segments: Vec<SegmentRecord> = self.segments.values().cloned().collect();
        segments.sort_by_key(|segment| (segment.index, segment.shard, segment.min_seq_no, segment.id));
        State {
            store: self.store,
            metadata,
            mappings: self.mappings.iter().map(|(index, mapping)| (*index, mapping.clone())).collect(),
            segments,
            checkpoints: self.checkpoints.values().cloned().collect(),
            positions: self.positions.values().cloned().collect(),
            leases: self.leases.values().cloned().collect(),
            tombstones: self
                .tombstones
                .iter()
                .map(|((index, shard, group, _), encoded)| TombstoneChunk {
                    index: *index,
                    shard: *shard,
                    first_seq_no: *group,
                    encoded: encoded.clone(),
                })
                .collect(),
        }
    }
}

#[async_trait]
impl Catalog for MemoryCatalog {
    async fn load(&self) -> Result<State> {
        Ok(self.tables.lock().state())
    }

    async fn change(&self, changes: &[MetadataChange], mappings: &[(Uuid, Vec<u8>)]) -> Result<()> {
        self.write(|tables| {
            changes.iter().try_for_each(|change| tables.change(change))?;
            tables.store.generation += 1;
            tables.put_mappings(mappings)
        })
    }

    async fn restore(
        &self,
        changes: &[MetadataChange],
        mappings: &[(Uuid, Vec<u8>)],
        commit: &Commit,
    ) -> Result<()> {
        self.write(|tables| {
            changes.iter().try_for_each(|change| tables.change(change))?;
            tables.store.generation += 1;
            tables.put_mappings(mappings)?;
            tables.commit(commit)
        })
    }

    async fn commit(&self, commit: &Commit) -> Result<()> {
        self.write(|tables| {
            tables.store.generation += 1;
            tables.commit(commit)
        })
    }

    async fn put_store(&self, id: Uuid, claimed: bool, generation: u64) -> Result<()> {
        self.write(|tables| {
            let generation = generation.max(tables.store.generation);
            tables.store = StoreRecord { id: Some(id), claimed, generation, unnamed: false };
            Ok(())
        })
    }

    fn generation(&self) -> u64 {
        self.tables.lock().store.generation
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.tables.lock().values.get(key).cloned())
    }

    async fn put(&self, key: &str, value: &[u8]) -> Result<()> {
        self.write(|tables| {
            tables.values.insert(key.to_owned(), value.to_owned());
            Ok(())
        })
    }

    async fn accounts(&self) -> Result<Vec<AccountRecord>> {
        let tables = self.tables.lock();
        let record = |((kind, name), body): (&(String, String), &String)| AccountRecord {
            kind: kind.clone(),
            name: name.clone(),
            body: body.clone(),
        };
        Ok(tables.accounts.iter().map(record).collect())
    }

    async fn put_accounts(&self, changes: &[AccountChange]) -> Result<()> {
        self.write(|tables| {
            for change in changes.iter().cloned() {
                match change {
                    AccountChange::Put(AccountRecord { kind, name, body }) => {
                        tables.accounts.insert((kind, name), body);
                    }
                    AccountChange::Delete { kind, name } => {
                        tables.accounts.remove(&(kind, name));
                    }
                }
            }
            Ok(())
        })
    }

    async fn close(&self) {}
}
