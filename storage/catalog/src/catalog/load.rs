//! Reading the SQLite catalog at start.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_runtime::{Error, Result};
use serde_json::{Map, Value};
use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::rows::Reader;
use super::sqlite::SqliteCatalog;
use super::transaction::{READ, Transaction};
use super::{
    AccountRecord, LeaseRecord, Position, SegmentRecord, ShardCheckpoint, State, StoreRecord, TombstoneChunk,
};
use crate::metadata::{IndexMeta, MetadataChange};

impl SqliteCatalog {
    /// Reads everything as of one moment.
    pub(super) async fn load_all(&self) -> Result<State> {
        let fails = |error| self.failed(error);
        let mut transaction = Transaction::begin(&self.pool, READ).await.map_err(fails)?;
        let connection = &mut *transaction;
        let read_mapping = |reader: Reader<'_>, row: &SqliteRow| {
            Ok((reader.uuid(row.try_get(0)?)?, row.try_get::<Vec<u8>, _>(1)?))
        };
        let read_checkpoint = |reader: Reader<'_>, row: &SqliteRow| {
            Ok(ShardCheckpoint {
                index: reader.uuid(row.try_get(0)?)?,
                shard: reader.u32(row.try_get(1)?)?,
                primary_term: reader.u64(row.try_get(2)?)?,
                next_seq_no: reader.u64(row.try_get(3)?)?,
                next_frame: reader.u64(row.try_get(4)?)?,
            })
        };
        let read_position = |reader: Reader<'_>, row: &SqliteRow| {
            Ok(Position {
                pipeline: row.try_get(0)?,
                source: row.try_get(1)?,
                partition: row.try_get(2)?,
                position: row.try_get(3)?,
                owner_epoch: reader.u64(row.try_get(4)?)?,
                frame: reader.u64(row.try_get(5)?)?,
            })
        };
        let read_tombstones = |reader: Reader<'_>, row: &SqliteRow| {
            Ok(TombstoneChunk {
                index: reader.uuid(row.try_get(0)?)?,
                shard: reader.u32(row.try_get(1)?)?,
                first_seq_no: reader.u64(row.try_get(2)?)?,
                encoded: row.try_get::<Vec<u8>, _>(3)?.into(),
            })
        };
        let read_lease = |reader: Reader<'_>, row: &SqliteRow| {
            Ok(LeaseRecord {
                name: row.try_get(0)?,
                frame: reader.u64(row.try_get(1)?)?,
                moved_ms: row.try_get(2)?,
            })
        };
        let leases = "SELECT name, frame, moved_ms FROM leases ORDER BY name";
        let mappings = "SELECT index_uuid, encoded FROM mappings ORDER BY index_uuid";
        let checkpoints = "SELECT index_uuid, shard, primary_term, next_seq_no, next_frame
             FROM checkpoints ORDER BY index_uuid, shard";
        let positions = "SELECT pipeline, source, part, reached, owner_epoch, frame
             FROM source_positions ORDER BY pipeline, source, part";
        let tombstones = "SELECT index_uuid, shard, first_seq_no, encoded
             FROM tombstone_chunks ORDER BY index_uuid, shard, first_seq_no, part";
        let state = State {
            store: self.load_store(&mut *connection).await?,
            metadata: self.load_metadata(&mut *connection).await?,
            mappings: self.rows(&mut *connection, "mappings", mappings, read_mapping).await?,
            segments: self.load_segments(&mut *connection).await?,
            checkpoints: self.rows(&mut *connection, "checkpoints", checkpoints, read_checkpoint).await?,
            positions: self.rows(&mut *connection, "source_positions", positions, read_position).await?,
            leases: self.rows(&mut *connection, "leases", leases, read_lease).await?,
            tombstones: self.rows(&mut *connection, "tombstone_chunks", tombstones, read_tombstones).await?,
        };
        transaction.commit().await.map_err(fails)?;
        self.reached(state.store.generation);
        Ok(state)
    }

    async fn load_store(&self, connection: &mut SqliteConnection) -> Result<StoreRecord> {
        let read = |reader: Reader<'_>, row: &SqliteRow| {
            let id: Option<&str> = row.try_get(0)?;
            Ok(StoreRecord {
                id: id.map(|id| reader.uuid(id)).transpose()?,
                claimed: row.try_get(1)?,
                generation: reader.u64(row.try_get(2)?)?,
                unnamed: self.unnamed,
            })
        };
        let query = "SELECT id, claimed, generation FROM store";
        match self.rows(connection, "store", query, read).await?.as_slice() {
            [record] => Ok(*record),
            other => {
                Err(self.reader("store").corrupt(format!("{} rows where one was expected", other.len())))
            }
        }
    }

    /// Reads all rows of a query.
    async fn rows<T>(
        &self,
        connection: &mut SqliteConnection,
        table: &'static str,
        query: &'static str,
        read: impl Fn(Reader<'_>, &SqliteRow) -> Result<T>,
    ) -> Result<Vec<T>> {
        let rows = sqlx::query(query).fetch_all(connection).await.map_err(|error| self.failed(error))?;
        rows.iter()
            .map(|row| match read(self.reader(table), row) {
                Err(Error::Catalog(error)) => Err(self.reader(table).corrupt(error)),
                other => other,
            })
            .collect()
    }

    async fn load_metadata(&self, connection: &mut SqliteConnection) -> Result<Vec<MetadataChange>> {
        let mut aliases: BTreeMap<String, BTreeMap<String, Value>> = BTreeMap::new();
        let read_alias = |reader: Reader<'_>, row: &SqliteRow| {
            let (index, name): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            Ok((index, name, reader.json::<Value>(row.try_get(2)?)?))
        };
        let query = "SELECT index_uuid, name, body FROM aliases";
        for (index, name, body) in self.rows(&mut *connection, "aliases", query, read_alias).await? {
            aliases.entry(index).or_default().insert(name, body);
        }
        let read_index = |reader: Reader<'_>, row: &SqliteRow| {
            let uuid: &str = row.try_get(0)?;
            Ok(IndexMeta {
                name: Arc::from(row.try_get::<&str, _>(1)?),
                uuid: reader.uuid(uuid)?,
                settings: reader.json(row.try_get(6)?)?,
                aliases: aliases.get(uuid).cloned().unwrap_or_default(),
                open: row.try_get(2)?,
                created_ms: row.try_get(3)?,
                shards: reader.u32(row.try_get(4)?)?,
                replicas: reader.u32(row.try_get(5)?)?,
                doc_type: row.try_get::<Option<&str>, _>(7)?.map(Arc::from),
            })
        };
        let query = "SELECT uuid, name, open, created_ms, shards, replicas, settings, doc_type FROM indices ORDER BY name";
        let indices = self.rows(&mut *connection, "indices", query, read_index).await?;
        let read_template = |reader: Reader<'_>, row: &SqliteRow| {
            let (kind, name) = (row.try_get(0)?, row.try_get(1)?);
            Ok(MetadataChange::PutTemplate { kind, name, body: reader.json(row.try_get(2)?)? })
        };
        let query = "SELECT kind, name, body FROM templates ORDER BY kind, name";
        let templates = self.rows(&mut *connection, "templates", query, read_template).await?;
        let read_setting = |reader: Reader<'_>, row: &SqliteRow| {
            Ok((row.try_get::<String, _>(0)?, reader.json::<Value>(row.try_get(1)?)?))
        };
        let query = "SELECT name, value FROM cluster_settings ORDER BY name";
        let settings: Map<String, Value> =
            self.rows(connection, "cluster_settings", query, read_setting).await?.into_iter().collect();
        let put_index = |meta| MetadataChange::PutIndex { meta: Arc::new(meta), mapping: None };
        let mut metadata: Vec<MetadataChange> = indices.into_iter().map(put_index).collect();
        metadata.extend(templates);
        if !settings.is_empty() {
            metadata.push(MetadataChange::PutPersistent(settings));
        }
        Ok(metadata)
    }

    async fn load_segments(&self, connection: &mut SqliteConnection) -> Result<Vec<SegmentRecord>> {
        let read = |reader: Reader<'_>, row: &SqliteRow| {
            let least_id: Option<String> = row.try_get(9)?;
            let greatest_id: Option<String> = row.try_get(10)?;
            Ok(SegmentRecord {
                id: reader.uuid(row.try_get(0)?)?,
                index: reader.uuid(row.try_get(1)?)?,
                shard: reader.u32(row.try_get(2)?)?,
                rows: reader.u32(row.try_get(3)?)?,
                data_bytes: reader.u64(row.try_get(4)?)?,
                bundle_bytes: reader.u64(row.try_get(5)?)?,
                ids_bytes: reader.u64(row.try_get(6)?)?,
                min_seq_no: reader.u64(row.try_get(7)?)?,
                max_seq_no: reader.u64(row.try_get(8)?)?,
                generated_ids: least_id.zip(greatest_id),
                delete_generation: reader.u64(row.try_get(11)?)?,
                deleted_rows: reader.u32(row.try_get(12)?)?,
                level: reader.u32(row.try_get(13)?)?,
                extra: reader.json(row.try_get(14)?)?,
                columns: reader.json(row.try_get(15)?)?,
            })
        };
        let query = "SELECT s.id, s.index_uuid, s.shard, s.row_count, s.data_bytes, s.bundle_bytes,
                 s.ids_bytes, s.min_seq_no, s.max_seq_no, s.min_generated_id, s.max_generated_id,
                 s.delete_generation, s.deleted_rows, s.level, s.extra, c.statistics
             FROM segments s LEFT JOIN segment_columns c ON c.segment_id = s.id
             ORDER BY s.index_uuid, s.shard, s.min_seq_no, s.id";
        self.rows(connection, "segments", query, read).await
    }

    pub(super) async fn load_accounts(&self) -> Result<Vec<AccountRecord>> {
        let read = |_: Reader<'_>, row: &SqliteRow| {
            Ok(AccountRecord { kind: row.try_get(0)?, name: row.try_get(1)?, body: row.try_get(2)? })
        };
        let query = "SELECT kind, name, body FROM accounts ORDER BY kind, name";
        let mut connection = self.pool.acquire().await.map_err(|error| self.failed(error))?;
        self.rows(&mut connection, "accounts", query, read).await
    }
}
