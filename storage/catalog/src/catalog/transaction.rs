//! Transactions of the SQLite catalog.
//!
//! SQLite may roll a transaction back by itself when a statement or the commit fails: a full disk, an I/O error, too
//! little memory. The depth that `sqlx` counts for its own transactions stays above zero then, and the connection begins
//! none any more. So transactions begin and end by plain statements here, and a connection whose state is unknown is
//! closed: the pool opens another one in its place.

use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteConnection, SqlitePool};
use sqlx::{Executor, Sqlite};

/// Begins a transaction that writes. It takes the write lock at once: one that reads first could find itself behind
/// another program's write and fail.
pub(super) const WRITE: &str = "BEGIN IMMEDIATE";
/// Begins a transaction that reads.
pub(super) const READ: &str = "BEGIN";

/// A transaction on a connection of its own. Dropped before it has ended, it closes the connection, which rolls it back.
#[derive(Debug)]
pub(super) struct Transaction {
    connection: PoolConnection<Sqlite>,
    ended: bool,
}

impl Transaction {
    /// Takes a connection and begins: [`WRITE`] or [`READ`].
    pub(super) async fn begin(pool: &SqlitePool, statement: &'static str) -> Result<Self, sqlx::Error> {
        let connection = pool.acquire().await?;
        let mut transaction = Self { connection, ended: false };
        transaction.connection.execute(statement).await?;
        Ok(transaction)
    }

    /// Commits. After an error nothing of the transaction is left, and the connection is in none.
    pub(super) async fn commit(mut self) -> Result<(), sqlx::Error> {
        match self.connection.execute("COMMIT").await {
            Ok(_) => {
                self.ended = true;
                Ok(())
            }
            Err(error) => {
                // Some errors leave the transaction open, most have rolled it back; then there is none to roll back. The
                // connection stays where this works: it alone knows which frames of its journal do not count.
                let rolled_back = self.connection.execute("ROLLBACK").await;
                self.ended = rolled_back.map_or_else(|error| says_there_is_none(&error), |_| true);
                Err(error)
            }
        }
    }
}

/// Returns whether a `ROLLBACK` found no transaction: SQLite has no code of its own for it.
fn says_there_is_none(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.message().contains("no transaction is active"))
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
        if !self.ended {
            self.connection.close_on_drop();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sqlx::Row;
    use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};

    use super::*;

    async fn pool(dir: &tempfile::TempDir) -> SqlitePool {
        let options = SqliteConnectOptions::new()
            .filename(dir.path().join("catalog"))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .foreign_keys(true)
            .busy_timeout(Duration::ZERO);
        let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
        for statement in [
            "CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)",
            "CREATE TABLE child (a INTEGER REFERENCES t (a) DEFERRABLE INITIALLY DEFERRED)",
        ] {
            pool.execute(statement).await.unwrap();
        }
        pool
    }

    /// Each way in which a transaction fails, by statements that bring SQLite into that state. Behind each, the next
    /// transaction works, and nothing of the failed one is there.
    #[tokio::test]
    async fn a_failed_transaction_leaves_a_catalog_that_works() {
        let dir = tempfile::tempdir().unwrap();
        let pool = pool(&dir).await;
        for (statements, fails_at_commit) in [
            // SQLite rolls back by itself within a statement, as it does when the disk is full.
            (&["INSERT INTO t VALUES (1, 'x')", "INSERT OR ROLLBACK INTO t VALUES (1, 'y')"][..], false),
            // It rolls back, and only the commit is told.
            (&["INSERT INTO t VALUES (1, 'x')", "ROLLBACK"], true),
            // The commit fails, and the transaction stays open.
            (&["INSERT INTO child VALUES (77)"], true),
            // The file may not grow.
            (
                &[
                    "PRAGMA max_page_count = 8",
                    "INSERT INTO t VALUES (1, 'x')",
                    "INSERT INTO t VALUES (2, zeroblob(1000000))",
                ],
                false,
            ),
            // The statement is none.
            (&["INSERT INTO t VALUES (1, 'x')", "NO STATEMENT"], false),
        ] {
            let mut transaction = Transaction::begin(&pool, WRITE).await.unwrap();
            let mut failed = false;
            for statement in statements {
                failed |= transaction.execute(*statement).await.is_err();
            }
            assert_eq!(failed, !fails_at_commit, "{statements:?}");
            match fails_at_commit {
                true => assert!(transaction.commit().await.is_err(), "{statements:?}"),
                false => drop(transaction),
            }
            let mut next = Transaction::begin(&pool, WRITE).await.unwrap();
            let left = next.fetch_one("SELECT (SELECT count(*) FROM t) + (SELECT count(*) FROM child)").await;
            assert_eq!(left.unwrap().get::<i64, _>(0), 0, "{statements:?}");
            next.execute("INSERT INTO t VALUES (1, 'z')").await.unwrap();
            next.execute("DELETE FROM t").await.unwrap();
            next.commit().await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_transaction_that_cannot_begin_is_no_hindrance_to_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let (pool, other) = (pool(&dir).await, dir.path().join("catalog"));
        let other = SqlitePool::connect_with(SqliteConnectOptions::new().filename(other)).await.unwrap();
        let holds = Transaction::begin(&other, WRITE).await.unwrap();
        assert!(Transaction::begin(&pool, WRITE).await.is_err());
        holds.commit().await.unwrap();
        // Left within a transaction by somebody.
        pool.execute("BEGIN").await.unwrap();
        assert!(Transaction::begin(&pool, WRITE).await.is_err());
        Transaction::begin(&pool, WRITE).await.unwrap().commit().await.unwrap();
        // A transaction that is dropped half-way.
        Transaction::begin(&pool, WRITE)
            .await
            .unwrap()
            .execute("INSERT INTO t VALUES (1, 'x')")
            .await
            .unwrap();
        let mut next = Transaction::begin(&pool, READ).await.unwrap();
        let left = next.fetch_one("SELECT count(*) FROM t").await.unwrap();
        assert_eq!(left.get::<i64, _>(0), 0);
        next.commit().await.unwrap();
    }
}
