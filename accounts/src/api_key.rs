//! API keys: the rights of a program in the name of a user.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::limits::{
    MAX_DESCRIPTORS, MAX_GRANTS_OF_KEY, MAX_NAME_BYTES, MAX_PATTERNS_OF_KEY, MAX_WILDCARDS, check_metadata,
    check_name, too_long,
};
use crate::privileges::QueryCheck;
use crate::role::{Role, is_expression};
use crate::secret::Hash;
use crate::user::matches;

/// An API key, but for its secret.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApiKey {
    /// Its id.
    #[serde(skip)]
    pub id: Arc<str>,
    /// Its name, which others may have, too.
    pub name: Arc<str>,
    /// The user in whose name it acts.
    pub owner: Arc<str>,
    pub(crate) hash: Hash,
    /// Time of its creation, in milliseconds since the epoch.
    pub created_ms: i64,
    /// Time at which it expires; never without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<i64>,
    /// Time of its revocation; from then on it has neither roles nor metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalidated_ms: Option<i64>,
    /// Roles that narrow the owner's; without any, the key has the owner's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<String, Role>,
    /// Notes of its creator.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Bytes that it takes in memory.
    #[serde(skip)]
    pub(crate) bytes: usize,
}

impl ApiKey {
    /// Returns its bytes in memory, with a record of so many: a value that is kept as it was sent is more than its text.
    pub(crate) fn weight(&self, record: usize) -> usize {
        const VALUE: usize = 128;
        fn values(value: &Value) -> usize {
            1 + match value {
                Value::Array(items) => items.iter().map(values).sum(),
                Value::Object(members) => members.values().map(values).sum(),
                _ => 0,
            }
        }
        let of_roles = self
            .roles
            .values()
            .flat_map(|role| role.applications.iter().chain(&role.tenants).chain(role.metadata.values()));
        record + VALUE * self.metadata.values().chain(of_roles).map(values).sum::<usize>()
    }

    /// Takes its weight as it is now.
    ///
    /// # Errors
    /// [`Error::Internal`].
    pub(crate) fn weighed(mut self) -> Result<Self> {
        let record = serde_json::to_string(&self).map_err(Error::internal)?.len();
        self.bytes = self.weight(record);
        Ok(self)
    }

    /// Returns the record of a revoked key, to be listed for a while: its roles and notes are dropped, so that it does not take
    /// the memory of others.
    ///
    /// # Errors
    /// [`Error::Internal`].
    pub(crate) fn revoked(&self, now_ms: i64) -> Result<Self> {
        let left = Self {
            id: Arc::clone(&self.id),
            name: Arc::clone(&self.name),
            owner: Arc::clone(&self.owner),
            hash: self.hash,
            created_ms: self.created_ms,
            expires_ms: self.expires_ms,
            invalidated_ms: Some(now_ms),
            roles: BTreeMap::new(),
            metadata: Map::new(),
            bytes: 0,
        };
        left.weighed()
    }

    /// Returns whether it is over.
    pub fn is_expired(&self, now_ms: i64) -> bool {
        self.expires_ms.is_some_and(|end| end <= now_ms)
    }

    /// Returns whether it lets its bearer in, where the owner may come in.
    pub fn is_active(&self, now_ms: i64) -> bool {
        self.invalidated_ms.is_none() && !self.is_expired(now_ms)
    }

    /// Returns the time at which it ended, if it has.
    pub(crate) fn ended_ms(&self, now_ms: i64) -> Option<i64> {
        let expired = self.expires_ms.filter(|end| *end <= now_ms);
        [self.invalidated_ms, expired].into_iter().flatten().min()
    }
}

/// Request for a new API key.
#[derive(Clone, Debug, Default)]
pub struct NewApiKey {
    /// Its name.
    pub name: String,
    /// Roles that narrow the owner's; without any, the key has the owner's.
    pub roles: BTreeMap<String, Role>,
    /// Lifetime of the key; forever without it.
    pub expires_in: Option<Duration>,
    /// Notes.
    pub metadata: Map<String, Value>,
}

/// Change of an API key; `None` leaves a member as it is.
#[derive(Clone, Debug, Default)]
pub struct ApiKeyChange {
    /// New roles.
    pub roles: Option<BTreeMap<String, Role>>,
    /// Notes.
    pub metadata: Option<Map<String, Value>>,
    /// Lifetime from now on.
    pub expires_in: Option<Duration>,
}

/// An API key that was just made, with its secret, which nobody will be told again.
#[derive(Clone)]
pub struct CreatedApiKey {
    /// The key.
    pub key: Arc<ApiKey>,
    /// The secret.
    pub secret: String,
    /// Value for `Authorization: ApiKey`: id and secret, in base64.
    pub encoded: String,
}

impl std::fmt::Debug for CreatedApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedApiKey").field("key", &self.key).finish_non_exhaustive()
    }
}

/// Selection of API keys: those that match all members.
#[derive(Clone, Debug, Default)]
pub struct ApiKeyQuery {
    /// They have one of these ids.
    pub ids: Option<Vec<String>>,
    /// They have this name, with wildcards.
    pub name: Option<String>,
    /// They act for this user.
    pub owner: Option<String>,
    /// They neither expired nor were revoked.
    pub active_only: bool,
    /// The caller manages all keys, and does not wait for searches of callers that do not.
    pub by_manager: bool,
}

impl ApiKeyQuery {
    /// Checks that a great many keys can be compared with it.
    pub(crate) fn check(&self) -> Result<()> {
        let name = self.name.as_deref().unwrap_or_default();
        if name.len() > MAX_NAME_BYTES {
            return Err(too_long("pattern of names of API keys", name.len(), MAX_NAME_BYTES));
        }
        if name.matches('*').count() > MAX_WILDCARDS {
            let what = "wildcards in a pattern of names of API keys";
            return Err(Error::TooMany { what, limit: MAX_WILDCARDS });
        }
        Ok(())
    }

    /// Returns whether a key is one of them, of any id.
    pub(crate) fn takes(&self, key: &ApiKey, now_ms: i64) -> bool {
        self.name.as_ref().is_none_or(|name| matches(name, &key.name))
            && self.owner.as_ref().is_none_or(|owner| **owner == *key.owner)
            && (!self.active_only || key.is_active(now_ms))
    }
}

/// Report of the revocation of API keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InvalidationReport {
    /// Ids of those that now are.
    pub invalidated: Vec<Arc<str>>,
    /// Ids of those that were before.
    pub previously: Vec<Arc<str>>,
}

/// Checks what an API key may do.
pub(crate) fn check_descriptors(roles: &BTreeMap<String, Role>, meaning: &dyn QueryCheck) -> Result<()> {
    if roles.len() > MAX_DESCRIPTORS {
        return Err(Error::TooMany { what: "role descriptors of an API key", limit: MAX_DESCRIPTORS });
    }
    check_metadata("role descriptors", roles)?;
    let grants = || roles.values().flat_map(|role| &role.indices);
    if grants().count() > MAX_GRANTS_OF_KEY {
        return Err(Error::TooMany { what: "grants on indices of an API key", limit: MAX_GRANTS_OF_KEY });
    }
    if grants().map(|grant| grant.names.len()).sum::<usize>() > MAX_PATTERNS_OF_KEY {
        return Err(Error::TooMany {
            what: "patterns of index names of an API key",
            limit: MAX_PATTERNS_OF_KEY,
        });
    }
    for (name, role) in roles {
        check_name("role descriptor", name)?;
        // Each holds much memory, and there may be many keys.
        let mut patterns = role.indices.iter().flat_map(|grant| &grant.names);
        if let Some(pattern) = patterns.find(|pattern| is_expression(pattern)) {
            return Err(Error::Invalid(format!(
                "role descriptor [{name}]: regular expression [{pattern}] is not available for API keys, use wildcards"
            )));
        }
        role.check(meaning)?;
    }
    Ok(())
}

/// Returns when what begins now and lives so long ends.
pub(crate) fn end_ms(now_ms: i64, lives: Duration) -> Result<i64> {
    let lives_ms = i64::try_from(lives.as_millis()).ok().filter(|lives_ms| *lives_ms > 0);
    let end = lives_ms.and_then(|lives_ms| now_ms.checked_add(lives_ms));
    end.ok_or_else(|| Error::Invalid(format!("expiration [{lives:?}] is not possible")))
}
