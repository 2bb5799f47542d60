//! The accounts of the server as a feature state of snapshots.

use std::sync::Arc;

use async_trait::async_trait;
use millrace_accounts::Accounts;
use millrace_catalog::AccountRecord;
use millrace_snapshot::AccountStore;

/// Accounts that snapshots have and restores change.
#[derive(Debug)]
pub struct SnapshotAccounts(Arc<Accounts>);

impl SnapshotAccounts {
    /// Takes the accounts of a server.
    pub fn new(accounts: Arc<Accounts>) -> Self {
        Self(accounts)
    }
}

#[async_trait]
impl AccountStore for SnapshotAccounts {
    async fn export(&self) -> Result<Vec<AccountRecord>, String> {
        self.0.export_records().await.map_err(|error| error.to_string())
    }

    async fn import(&self, records: Vec<AccountRecord>) -> Result<(), String> {
        self.0.import_records(records).await.map(drop).map_err(|error| error.to_string())
    }
}
