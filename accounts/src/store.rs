//! Storage of accounts, and its format.

use async_trait::async_trait;
use millrace_catalog::{AccountChange, AccountRecord};
use millrace_engine::Engine;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The durable store of accounts: the engine's catalog, as accounts use it.
#[async_trait]
pub trait Store: std::fmt::Debug + Send + Sync + 'static {
    /// Reads all records.
    async fn accounts(&self) -> millrace_runtime::Result<Vec<AccountRecord>>;
    /// Changes some in order, all or none, durably.
    async fn put_accounts(&self, changes: &[AccountChange]) -> millrace_runtime::Result<()>;
    /// Reads a secret that a version before kept by itself.
    async fn secret(&self, key: &str) -> millrace_runtime::Result<Option<Vec<u8>>>;
    /// Replaces it.
    async fn put_secret(&self, key: &str, value: &[u8]) -> millrace_runtime::Result<()>;
}

#[async_trait]
impl Store for Engine {
    async fn accounts(&self) -> millrace_runtime::Result<Vec<AccountRecord>> {
        Self::accounts(self).await
    }

    async fn put_accounts(&self, changes: &[AccountChange]) -> millrace_runtime::Result<()> {
        Self::put_accounts(self, changes).await
    }

    async fn secret(&self, key: &str) -> millrace_runtime::Result<Option<Vec<u8>>> {
        self.get_secret(key).await
    }

    async fn put_secret(&self, key: &str, value: &[u8]) -> millrace_runtime::Result<()> {
        Self::put_secret(self, key, value).await
    }
}

/// Version of the form of records. A reader takes those of later ones, too, without what it does not know in them: a change
/// that it must not overlook has to use another kind.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    v: u32,
    #[serde(flatten)]
    body: T,
}

/// Writes a record.
///
/// # Errors
/// [`Error::Internal`].
pub(crate) fn put(kind: &str, name: &str, body: &impl Serialize) -> Result<AccountChange> {
    let body = serde_json::to_string(&Versioned { v: VERSION, body }).map_err(Error::internal)?;
    Ok(AccountChange::Put(AccountRecord { kind: kind.to_owned(), name: name.to_owned(), body }))
}

/// Writes that a record is gone.
pub(crate) fn delete(kind: &str, name: &str) -> AccountChange {
    AccountChange::Delete { kind: kind.to_owned(), name: name.to_owned() }
}

/// Reads a record.
///
/// # Errors
/// [`Error::Internal`] that names it.
pub(crate) fn read<T: DeserializeOwned>(record: &AccountRecord) -> Result<T> {
    let read: Result<Versioned<T>, _> = serde_json::from_str(&record.body);
    read.map(|record| record.body).map_err(|error| {
        Error::Internal(format!("stored {} [{}] cannot be read: {error}", record.kind, record.name))
    })
}
