//! Accounts of a server, as snapshots see them: the feature state `security`.
//!
//! Accounts are no index: the server hands the service an [`AccountStore`]. A snapshot has them where its request names them, and a restore
//! puts them back where its request does.

use std::fmt;

use async_trait::async_trait;
use millrace_catalog::AccountRecord;
use millrace_catalog::access::{Action, Principal};
use millrace_runtime::Error as StoreError;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Result;
use crate::manifest::FORMAT;
use crate::selection::is_security_administrator;

/// Name of the feature state with the accounts.
pub(crate) const SECURITY_FEATURE: &str = "security";

/// Reads a member `feature_states`: a name, comma-separated names or an array of names. Returns whether the accounts are named.
///
/// # Errors
/// A description of another value, or the name of another feature.
pub fn names_accounts(value: &Value) -> Result<bool, String> {
    let names: Option<Vec<&str>> = match value {
        Value::Null => Some(Vec::new()),
        Value::String(text) => Some(text.split(',').map(str::trim).collect()),
        Value::Array(names) => names.iter().map(Value::as_str).collect(),
        _ => None,
    };
    let names = names.ok_or("malformed feature_states section, should be an array of strings")?;
    let mut named = false;
    for name in names.into_iter().filter(|name| !name.is_empty() && *name != "none") {
        if name != SECURITY_FEATURE {
            return Err(format!("unknown feature state [{name}]; there are [{SECURITY_FEATURE}] and [none]"));
        }
        named = true;
    }
    Ok(named)
}

/// Users, roles, role mappings and API keys of a server.
#[async_trait]
pub trait AccountStore: fmt::Debug + Send + Sync + 'static {
    /// Lists the records that a snapshot has.
    ///
    /// # Errors
    /// The reason.
    async fn export(&self) -> Result<Vec<AccountRecord>, String>;

    /// Puts the records of a snapshot, all or none.
    ///
    /// # Errors
    /// The reason, with the record that cannot be used.
    async fn import(&self, records: Vec<AccountRecord>) -> Result<(), String>;
}

/// Accounts of a snapshot.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AccountState {
    format: u32,
    records: Vec<StoredAccount>,
}

/// A user, role, role mapping or API key.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct StoredAccount {
    kind: String,
    name: String,
    body: String,
}

impl AccountState {
    pub(crate) fn new(records: Vec<AccountRecord>) -> Self {
        let stored = |AccountRecord { kind, name, body }| StoredAccount { kind, name, body };
        Self { format: FORMAT, records: records.into_iter().map(stored).collect() }
    }

    pub(crate) fn into_records(self) -> Vec<AccountRecord> {
        let record = |StoredAccount { kind, name, body }| AccountRecord { kind, name, body };
        self.records.into_iter().map(record).collect()
    }
}

/// Refuses accounts to callers that could not grant themselves every right.
///
/// # Errors
/// [`StoreError::Unauthorized`].
pub(crate) fn check_rights(principal: &Principal) -> Result<()> {
    if is_security_administrator(principal) {
        return Ok(());
    }
    let (action, caller) = (Action::PutSecurity.name(), principal.caller().to_string());
    Err(StoreError::Unauthorized { action, caller, index: None }.into())
}
