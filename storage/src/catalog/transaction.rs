//! Transactions of the SQLite catalog.
//!
//! SQLite rolls a transaction back by itself after some errors (a full disk, a failed write or sync, no memory), and
//! keeps it open after others. A connection goes back to the pool only when it is known to be in no transaction;
//! otherwise it is closed, and the pool opens another. A connection that can go on is kept: closing one replays the
//! journal, where the frames of a commit that failed may still be.

use std::ops::{Deref, DerefMut};

use sqlx::Sqlite;
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteConnection, SqlitePool};

/// SQLite's answer to a `ROLLBACK` outside of a transaction. It shares its result code with other errors.
const NO_TRANSACTION: &str = "no transaction is active";

/// An open transaction. Dropped before its end, as by a caller that is cancelled, it closes its connection.
#[derive(Debug)]
pub(super) struct Transaction {
    connection: PoolConnection<Sqlite>,
    open: bool,
}

impl Transaction {
    /// Begins a transaction that writes. It takes the write lock at once: one that reads first could find itself
    /// behind another program's write and fail.
    pub(super) async fn begin_write(pool: &SqlitePool) -> Result<Self, sqlx::Error> {
        Self::begin(pool, "BEGIN IMMEDIATE").await
    }

    /// Begins a transaction that reads one state of the file.
    pub(super) async fn begin_read(pool: &SqlitePool) -> Result<Self, sqlx::Error> {
        Self::begin(pool, "BEGIN").await
    }

    async fn begin(pool: &SqlitePool, statement: &'static str) -> Result<Self, sqlx::Error> {
        let mut transaction = Self { connection: pool.acquire().await?, open: true };
        match transaction.run(statement).await {
            Ok(()) => Ok(transaction),
            Err(error) => {
                transaction.rollback().await;
                Err(error)
            }
        }
    }

    /// Makes the changes durable.
    ///
    /// # Errors
    /// Those of SQLite; nothing is changed then.
    pub(super) async fn commit(mut self) -> Result<(), sqlx::Error> {
        match self.run("COMMIT").await {
            Ok(()) => {
                self.open = false;
                Ok(())
            }
            Err(error) => {
                self.rollback().await;
                Err(error)
            }
        }
    }

    /// Undoes the changes.
    pub(super) async fn rollback(mut self) {
        self.open = match self.run("ROLLBACK").await {
            Ok(()) => false,
            Err(error) => !error.as_database_error().is_some_and(|e| e.message().contains(NO_TRANSACTION)),
        };
    }

    async fn run(&mut self, statement: &'static str) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(statement).execute(&mut *self.connection).await.map(drop)
    }
}

impl Deref for Transaction {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.connection
    }
}

impl DerefMut for Transaction {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.connection
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if self.open {
            self.connection.close_on_drop();
        }
    }
}
