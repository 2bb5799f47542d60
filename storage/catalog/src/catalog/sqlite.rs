//! The catalog in a SQLite file.
//!
//! Write-ahead journal with `synchronous=FULL`: a commit costs one fsync of the journal, where a
//! rollback journal costs three, and other programs may read the file meanwhile. There is one
//! connection: SQLite has one writer anyway, and reading happens at start.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use millrace_runtime::{Error, Result};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use sqlx::migrate::MigrateError;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteSynchronous,
};
use sqlx::{ConnectOptions, Row};
use uuid::Uuid;

use super::rows::{Reader, int, json};
use super::transaction::{Transaction, WRITE};
use super::{
    AccountChange, AccountRecord, Catalog, Commit, Position, SegmentRecord, ShardCheckpoint, State,
    TombstoneChange,
};
use crate::metadata::{IndexMeta, MetadataChange};

/// Time that a transaction waits for a program that holds the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Identity in the header of catalogs made since stores have an id: "Mill".
const APPLICATION_ID: i64 = 0x4d69_6c6c;

/// SQLite's primary result codes (<https://www.sqlite.org/rescode.html>).
const SQLITE_CORRUPT: u32 = 11;
const SQLITE_FULL: u32 = 13;
const SQLITE_NOTADB: u32 = 26;

#[derive(Debug)]
pub(super) struct SqliteCatalog {
    pub(super) pool: SqlitePool,
    file: String,
    /// `true` if it was made by a version that gave stores no id.
    pub(super) unnamed: bool,
    generation: AtomicU64,
    /// The last failure, until a transaction that writes succeeds.
    trouble: Mutex<Option<String>>,
}

/// Opens the SQLite catalog, creating and migrating it.
///
/// # Errors
/// [`Error::Corrupt`] for a file that is no catalog or is damaged, [`Error::Io`] for one that cannot
/// be opened or that a newer version has migrated; both name the file.
pub async fn open_sqlite(path: &Path) -> Result<Arc<dyn Catalog>> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(BUSY_TIMEOUT)
        .disable_statement_logging();
    let file = path.display().to_string();
    let opened = SqlitePoolOptions::new()
        .max_connections(1)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .connect_with(options)
        .await;
    let pool = opened.map_err(|error| opening_failed(&file, error))?;
    let unnamed = match is_unnamed(&pool).await {
        Ok(unnamed) => unnamed,
        Err(error) => {
            pool.close().await;
            return Err(opening_failed(&file, error));
        }
    };
    let catalog =
        SqliteCatalog { pool, file, unnamed, generation: AtomicU64::new(0), trouble: Mutex::default() };
    if let Err(error) = sqlx::migrate!("./migrations").run(&catalog.pool).await {
        catalog.pool.close().await;
        return Err(match error {
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
                opening_failed(&catalog.file, error)
            }
            MigrateError::VersionMissing(version) => {
                let reason = format!("a newer version of this program has migrated it (to {version})");
                Error::io("open catalog", path, std::io::Error::other(reason))
            }
            other => Error::io("migrate catalog", path, std::io::Error::other(other)),
        });
    }
    Ok(Arc::new(catalog))
}

/// Returns whether a version that gave stores no id has made the file. One without tables is marked first, so that a crash before
/// its store has an id does not make it look like such a file.
async fn is_unnamed(pool: &SqlitePool) -> Result<bool, sqlx::Error> {
    let tables: i64 = sqlx::query("SELECT count(*) FROM sqlite_master").fetch_one(pool).await?.try_get(0)?;
    if tables == 0 {
        sqlx::query(sqlx::AssertSqlSafe(format!("PRAGMA application_id = {APPLICATION_ID}")))
            .execute(pool)
            .await?;
        return Ok(false);
    }
    let id: i64 = sqlx::query("PRAGMA application_id").fetch_one(pool).await?.try_get(0)?;
    Ok(id != APPLICATION_ID)
}

fn opening_failed(file: &str, error: sqlx::Error) -> Error {
    match failed(file, error) {
        Error::Catalog(error) => Error::io("open catalog", file, std::io::Error::other(error)),
        other => other,
    }
}

fn failed(file: &str, error: sqlx::Error) -> Error {
    let code = error.as_database_error().and_then(|error| error.code());
    match code.and_then(|code| code.parse::<u32>().ok()).map(|code| code & 0xff) {
        Some(SQLITE_CORRUPT | SQLITE_NOTADB) => {
            Error::Corrupt { file: file.to_owned(), offset: 0, reason: error.to_string() }
        }
        Some(SQLITE_FULL) => Error::Rejected(format!("disk full: the catalog [{file}] cannot grow")),
        _ => Error::Catalog(error),
    }
}

impl SqliteCatalog {
    /// Makes the store's error of the database's, and takes note of it until a transaction succeeds.
    pub(super) fn failed(&self, error: sqlx::Error) -> Error {
        let error = failed(&self.file, error);
        *self.trouble.lock() = Some(error.to_string());
        error
    }

    /// Begins a transaction that writes.
    async fn begin(&self) -> Result<Transaction> {
        Transaction::begin(&self.pool, WRITE).await.map_err(|error| self.failed(error))
    }

    /// Commits a transaction that writes.
    async fn finish(&self, transaction: Transaction) -> Result<()> {
        transaction.commit().await.map_err(|error| self.failed(error))?;
        *self.trouble.lock() = None;
        Ok(())
    }

    /// Takes note of a generation that is durable.
    pub(super) fn reached(&self, generation: u64) {
        self.generation.fetch_max(generation, Ordering::AcqRel);
    }

    /// Ends a transaction that changed what is stored.
    async fn end(&self, mut transaction: Transaction) -> Result<()> {
        let fails = |error| self.failed(error);
        let row = sqlx::query("UPDATE store SET generation = generation + 1 RETURNING generation")
            .fetch_one(&mut *transaction)
            .await
            .map_err(fails)?;
        let reader = self.reader("store");
        let generation = row.try_get(0).map_err(|error| reader.corrupt(error))?;
        let generation = reader.u64(generation)?;
        self.finish(transaction).await?;
        self.reached(generation);
        Ok(())
    }

    pub(super) fn reader(&self, table: &'static str) -> Reader<'_> {
        Reader { file: &self.file, table }
    }

    async fn change_one(&self, connection: &mut SqliteConnection, change: &MetadataChange) -> Result<()> {
        let query = match change {
            MetadataChange::PutIndex { meta, .. } => return self.put_index(connection, meta).await,
            MetadataChange::DeleteIndex { uuid, .. } => {
                sqlx::query("DELETE FROM indices WHERE uuid = $1").bind(uuid.to_string())
            }
            MetadataChange::PutTemplate { kind, name, body } => sqlx::query(
                "INSERT INTO templates (kind, name, body) VALUES ($1, $2, $3)
                 ON CONFLICT (kind, name) DO UPDATE SET body = excluded.body",
            )
            .bind(kind)
            .bind(name)
            .bind(json("template", body)?),
            MetadataChange::DeleteTemplate { kind, name } => {
                sqlx::query("DELETE FROM templates WHERE kind = $1 AND name = $2").bind(kind).bind(name)
            }
            MetadataChange::PutPersistent(settings) => return self.put_settings(connection, settings).await,
            MetadataChange::PutTransient(_) => return Ok(()),
        };
        query.execute(connection).await.map_err(|error| self.failed(error))?;
        Ok(())
    }

    async fn put_index(&self, connection: &mut SqliteConnection, meta: &IndexMeta) -> Result<()> {
        let uuid = meta.uuid.to_string();
        sqlx::query(
            "INSERT INTO indices (uuid, name, open, created_ms, shards, replicas, settings, doc_type)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
             ON CONFLICT (uuid) DO UPDATE SET name = excluded.name, open = excluded.open,
                 created_ms = excluded.created_ms, shards = excluded.shards,
                 replicas = excluded.replicas, settings = excluded.settings,
                 doc_type = excluded.doc_type",
        )
        .bind(&uuid)
        .bind(&*meta.name)
        .bind(meta.open)
        .bind(meta.created_ms)
        .bind(i64::from(meta.shards))
        .bind(i64::from(meta.replicas))
        .bind(json("settings", &meta.settings)?)
        .bind(meta.doc_type.as_deref())
        .execute(&mut *connection)
        .await
        .map_err(|error| match error.as_database_error() {
            Some(database) if database.is_unique_violation() => {
                Error::IndexAlreadyExists { index: meta.name.to_string(), uuid: uuid.clone() }
            }
            _ => self.failed(error),
        })?;
        let fails = |error| self.failed(error);
        sqlx::query("DELETE FROM aliases WHERE index_uuid = $1")
            .bind(&uuid)
            .execute(&mut *connection)
            .await
            .map_err(fails)?;
        for (name, body) in &meta.aliases {
            sqlx::query("INSERT INTO aliases (index_uuid, name, body) VALUES ($1, $2, $3)")
                .bind(&uuid)
                .bind(name)
                .bind(json("alias", body)?)
                .execute(&mut *connection)
                .await
                .map_err(fails)?;
        }
        Ok(())
    }

    async fn put_settings(
        &self,
        connection: &mut SqliteConnection,
        settings: &Map<String, Value>,
    ) -> Result<()> {
        let fails = |error| self.failed(error);
        sqlx::query("DELETE FROM cluster_settings").execute(&mut *connection).await.map_err(fails)?;
        for (name, value) in settings {
            sqlx::query("INSERT INTO cluster_settings (name, value) VALUES ($1, $2)")
                .bind(name)
                .bind(json("cluster setting", value)?)
                .execute(&mut *connection)
                .await
                .map_err(fails)?;
        }
        Ok(())
    }

    /// Makes sure that an index exists, for a message that says more than a broken foreign key.
    async fn require(&self, connection: &mut SqliteConnection, index: Uuid) -> Result<()> {
        let found = sqlx::query("SELECT 1 FROM indices WHERE uuid = $1")
            .bind(index.to_string())
            .fetch_optional(connection)
            .await
            .map_err(|error| self.failed(error))?;
        match found {
            Some(_) => Ok(()),
            None => Err(Error::IndexNotFound { index: index.to_string() }),
        }
    }

    async fn put_mappings(
        &self,
        connection: &mut SqliteConnection,
        mappings: &[(Uuid, Vec<u8>)],
    ) -> Result<()> {
        for (index, mapping) in mappings {
            self.require(&mut *connection, *index).await?;
            sqlx::query(
                "INSERT INTO mappings (index_uuid, encoded) VALUES ($1, $2)
                 ON CONFLICT (index_uuid) DO UPDATE SET encoded = excluded.encoded",
            )
            .bind(index.to_string())
            .bind(&mapping[..])
            .execute(&mut *connection)
            .await
            .map_err(|error| self.failed(error))?;
        }
        Ok(())
    }

    async fn put_segment(&self, connection: &mut SqliteConnection, segment: &SegmentRecord) -> Result<()> {
        self.require(&mut *connection, segment.index).await?;
        let fails = |error| self.failed(error);
        let id = segment.id.to_string();
        let (least_id, greatest_id) = segment.generated_ids.as_ref().map(|(a, b)| (a, b)).unzip();
        sqlx::query(
            "INSERT INTO segments (id, index_uuid, shard, row_count, data_bytes, bundle_bytes, ids_bytes,
                 min_seq_no, max_seq_no, min_generated_id, max_generated_id, delete_generation,
                 deleted_rows, level, extra)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
             ON CONFLICT (id) DO UPDATE SET index_uuid = excluded.index_uuid, shard = excluded.shard,
                 row_count = excluded.row_count, data_bytes = excluded.data_bytes,
                 bundle_bytes = excluded.bundle_bytes, ids_bytes = excluded.ids_bytes,
                 min_seq_no = excluded.min_seq_no, max_seq_no = excluded.max_seq_no,
                 min_generated_id = excluded.min_generated_id,
                 max_generated_id = excluded.max_generated_id,
                 delete_generation = excluded.delete_generation,
                 deleted_rows = excluded.deleted_rows, level = excluded.level, extra = excluded.extra",
        )
        .bind(&id)
        .bind(segment.index.to_string())
        .bind(i64::from(segment.shard))
        .bind(i64::from(segment.rows))
        .bind(int("data_bytes", segment.data_bytes)?)
        .bind(int("bundle_bytes", segment.bundle_bytes)?)
        .bind(int("ids_bytes", segment.ids_bytes)?)
        .bind(int("min_seq_no", segment.min_seq_no)?)
        .bind(int("max_seq_no", segment.max_seq_no)?)
        .bind(least_id)
        .bind(greatest_id)
        .bind(int("delete_generation", segment.delete_generation)?)
        .bind(i64::from(segment.deleted_rows))
        .bind(i64::from(segment.level))
        .bind(json("extra", &segment.extra)?)
        .execute(&mut *connection)
        .await
        .map_err(fails)?;
        sqlx::query(
            "INSERT INTO segment_columns (segment_id, statistics) VALUES ($1, $2)
             ON CONFLICT (segment_id) DO UPDATE SET statistics = excluded.statistics
                 WHERE segment_columns.statistics <> excluded.statistics",
        )
        .bind(&id)
        .bind(json("columns", &segment.columns)?)
        .execute(&mut *connection)
        .await
        .map_err(fails)?;
        Ok(())
    }

    async fn put_checkpoint(
        &self,
        connection: &mut SqliteConnection,
        checkpoint: &ShardCheckpoint,
    ) -> Result<()> {
        self.require(&mut *connection, checkpoint.index).await?;
        sqlx::query(
            "INSERT INTO checkpoints (index_uuid, shard, primary_term, next_seq_no, next_frame)
             VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (index_uuid, shard) DO UPDATE SET primary_term = excluded.primary_term,
                 next_seq_no = excluded.next_seq_no, next_frame = excluded.next_frame",
        )
        .bind(checkpoint.index.to_string())
        .bind(i64::from(checkpoint.shard))
        .bind(int("primary_term", checkpoint.primary_term)?)
        .bind(int("next_seq_no", checkpoint.next_seq_no)?)
        .bind(int("next_frame", checkpoint.next_frame)?)
        .execute(connection)
        .await
        .map_err(|error| self.failed(error))?;
        Ok(())
    }

    async fn change_tombstones(
        &self,
        connection: &mut SqliteConnection,
        change: &TombstoneChange,
    ) -> Result<()> {
        self.require(&mut *connection, change.index).await?;
        let bound = |at: u64| i64::try_from(at).unwrap_or(i64::MAX);
        sqlx::query(
            "DELETE FROM tombstone_chunks
             WHERE index_uuid = $1 AND shard = $2 AND (first_seq_no < $3 OR first_seq_no >= $4)",
        )
        .bind(change.index.to_string())
        .bind(i64::from(change.shard))
        .bind(bound(change.kept.start))
        .bind(bound(change.kept.end))
        .execute(&mut *connection)
        .await
        .map_err(|error| self.failed(error))?;
        for (part, encoded) in (0i64..).zip(&change.added) {
            sqlx::query(
                "INSERT INTO tombstone_chunks (index_uuid, shard, first_seq_no, part, encoded)
                 VALUES ($1, $2, $3, $4, $5)",
            )
            .bind(change.index.to_string())
            .bind(i64::from(change.shard))
            .bind(int("first_seq_no", change.kept.end)?)
            .bind(part)
            .bind(&encoded[..])
            .execute(&mut *connection)
            .await
            .map_err(|error| self.failed(error))?;
        }
        Ok(())
    }

    async fn put_position(&self, connection: &mut SqliteConnection, position: &Position) -> Result<()> {
        sqlx::query(
            "INSERT INTO source_positions (pipeline, source, part, reached, owner_epoch, frame)
             VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT (pipeline, source, part) DO UPDATE SET reached = excluded.reached,
                 owner_epoch = excluded.owner_epoch, frame = excluded.frame",
        )
        .bind(&position.pipeline)
        .bind(&position.source)
        .bind(&position.partition)
        .bind(&position.position[..])
        .bind(int("owner_epoch", position.owner_epoch)?)
        .bind(int("frame", position.frame)?)
        .execute(connection)
        .await
        .map_err(|error| self.failed(error))?;
        Ok(())
    }

    async fn apply_commit(&self, connection: &mut SqliteConnection, commit: &Commit) -> Result<()> {
        for id in &commit.removed {
            sqlx::query("DELETE FROM segments WHERE id = $1")
                .bind(id.to_string())
                .execute(&mut *connection)
                .await
                .map_err(|error| self.failed(error))?;
        }
        for segment in &commit.put {
            self.put_segment(&mut *connection, segment).await?;
        }
        for checkpoint in &commit.checkpoints {
            self.put_checkpoint(&mut *connection, checkpoint).await?;
        }
        for change in &commit.tombstones {
            self.change_tombstones(&mut *connection, change).await?;
        }
        for position in &commit.positions {
            self.put_position(&mut *connection, position).await?;
        }
        for (pipeline, source, partition) in &commit.forgotten {
            sqlx::query("DELETE FROM source_positions WHERE pipeline = $1 AND source = $2 AND part = $3")
                .bind(pipeline)
                .bind(source)
                .bind(partition)
                .execute(&mut *connection)
                .await
                .map_err(|error| self.failed(error))?;
        }
        for lease in &commit.leases {
            sqlx::query(
                "INSERT INTO leases (name, frame, moved_ms) VALUES ($1, $2, $3)
                 ON CONFLICT (name) DO UPDATE SET frame = excluded.frame, moved_ms = excluded.moved_ms",
            )
            .bind(&lease.name)
            .bind(int("frame", lease.frame)?)
            .bind(lease.moved_ms)
            .execute(&mut *connection)
            .await
            .map_err(|error| self.failed(error))?;
        }
        for name in &commit.released {
            sqlx::query("DELETE FROM leases WHERE name = $1")
                .bind(name)
                .execute(&mut *connection)
                .await
                .map_err(|error| self.failed(error))?;
        }
        self.put_mappings(&mut *connection, &commit.mappings).await
    }
}

#[async_trait]
impl Catalog for SqliteCatalog {
    async fn load(&self) -> Result<State> {
        self.load_all().await
    }

    async fn change(&self, changes: &[MetadataChange], mappings: &[(Uuid, Vec<u8>)]) -> Result<()> {
        let mut transaction = self.begin().await?;
        for change in changes {
            self.change_one(&mut transaction, change).await?;
        }
        self.put_mappings(&mut transaction, mappings).await?;
        self.end(transaction).await
    }

    async fn commit(&self, commit: &Commit) -> Result<()> {
        let mut transaction = self.begin().await?;
        self.apply_commit(&mut transaction, commit).await?;
        self.end(transaction).await
    }

    async fn restore(
        &self,
        changes: &[MetadataChange],
        mappings: &[(Uuid, Vec<u8>)],
        commit: &Commit,
    ) -> Result<()> {
        let mut transaction = self.begin().await?;
        for change in changes {
            self.change_one(&mut transaction, change).await?;
        }
        self.put_mappings(&mut transaction, mappings).await?;
        self.apply_commit(&mut transaction, commit).await?;
        self.end(transaction).await
    }

    async fn put_store(&self, id: Uuid, claimed: bool, generation: u64) -> Result<()> {
        let query = "UPDATE store SET id = $1, claimed = $2, generation = max(generation, $3)";
        let mut transaction = self.begin().await?;
        sqlx::query(query)
            .bind(id.to_string())
            .bind(claimed)
            .bind(int("generation", generation)?)
            .execute(&mut *transaction)
            .await
            .map_err(|error| self.failed(error))?;
        self.finish(transaction).await?;
        self.reached(generation);
        Ok(())
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let row = sqlx::query("SELECT value FROM key_values WHERE name = $1")
            .bind(key)
            .fetch_optional(&self.pool)
            .await
            .map_err(|error| self.failed(error))?;
        row.map(|row| row.try_get(0).map_err(|error| self.reader("key_values").corrupt(error))).transpose()
    }

    async fn put(&self, key: &str, value: &[u8]) -> Result<()> {
        let mut transaction = self.begin().await?;
        sqlx::query(
            "INSERT INTO key_values (name, value) VALUES ($1, $2)
             ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        )
        .bind(key)
        .bind(value)
        .execute(&mut *transaction)
        .await
        .map_err(|error| self.failed(error))?;
        self.finish(transaction).await
    }

    async fn accounts(&self) -> Result<Vec<AccountRecord>> {
        self.load_accounts().await
    }

    async fn put_accounts(&self, changes: &[AccountChange]) -> Result<()> {
        let mut transaction = self.begin().await?;
        for change in changes {
            let query = match change {
                AccountChange::Put(AccountRecord { kind, name, body }) => sqlx::query(
                    "INSERT INTO accounts (kind, name, body) VALUES ($1, $2, $3)
                     ON CONFLICT (kind, name) DO UPDATE SET body = excluded.body",
                )
                .bind(kind)
                .bind(name)
                .bind(body),
                AccountChange::Delete { kind, name } => {
                    sqlx::query("DELETE FROM accounts WHERE kind = $1 AND name = $2").bind(kind).bind(name)
                }
            };
            query.execute(&mut *transaction).await.map_err(|error| self.failed(error))?;
        }
        self.finish(transaction).await
    }

    fn trouble(&self) -> Option<String> {
        self.trouble.lock().clone()
    }

    async fn probe(&self) -> Result<()> {
        let mut transaction = self.begin().await?;
        let written =
            sqlx::query("UPDATE store SET generation = generation").execute(&mut *transaction).await;
        written.map_err(|error| self.failed(error))?;
        self.finish(transaction).await
    }

    async fn close(&self) {
        self.pool.close().await;
    }
}
