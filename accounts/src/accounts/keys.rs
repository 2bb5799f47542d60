//! API keys.

use std::sync::Arc;

use millrace_catalog::access::{Caller, Principal};
use tokio::sync::oneshot;

use super::{Accounts, bound};
use crate::api_key::{
    ApiKey, ApiKeyChange, ApiKeyQuery, CreatedApiKey, InvalidationReport, NewApiKey, check_descriptors,
    end_ms,
};
use crate::credentials::encode_key;
use crate::error::{Error, Result};
use crate::limits::{
    MAX_KEY_BYTES, MAX_KEY_BYTES_OF_USER, MAX_KEYS, check_metadata, check_name, share, shorten,
};
use crate::privileges::QueryCheck;
use crate::secret::{self, Hash};
use crate::state::{Change, State};

const KEY: &str = "API key";

impl Accounts {
    /// Makes an API key that acts for a user.
    ///
    /// # Errors
    /// [`Error::Forbidden`] where it is not a user who asks: a key makes no keys. [`Error::Invalid`], [`Error::TooMany`].
    pub async fn create_api_key(&self, owner: &Principal, new: NewApiKey) -> Result<CreatedApiKey> {
        let Caller::User(owner) = owner.caller().clone() else {
            let caller = owner.caller();
            return Err(Error::Forbidden(format!(
                "API keys are made with the credentials of a user, not of {caller}"
            )));
        };
        check_name(KEY, &new.name)?;
        let new = self.checked(new, |new, meaning| {
            check_descriptors(&new.roles, meaning)?;
            check_metadata("metadata", &new.metadata)
        });
        let NewApiKey { name, roles, expires_in, metadata } = new.await?;
        let secret = secret::key();
        let mut key = ApiKey {
            id: secret::id().into(),
            name: name.into(),
            owner,
            hash: Hash::new(&secret),
            created_ms: 0,
            expires_ms: None,
            invalidated_ms: None,
            roles,
            metadata,
            bytes: 0,
        };
        let key = self
            .change(move |state, now_ms| {
                if !state.users.get(&key.owner).is_some_and(|account| account.user.enabled) {
                    return Err(Error::NotFound { what: "user", name: key.owner.to_string() });
                }
                let (all, of_user) = (state.keys.size(), state.count_keys_of(&key.owner));
                bound("API keys", all + 1, MAX_KEYS)?;
                bound("API keys of one user", of_user + 1, share(MAX_KEYS, all - of_user))?;
                key.created_ms = now_ms;
                key.expires_ms = expires_in.map(|lives| end_ms(now_ms, lives)).transpose()?;
                let key = weigh(state, key)?;
                Ok((vec![Change::PutKey(Arc::clone(&key))], key))
            })
            .await?;
        let encoded = encode_key(&key.id, &secret);
        Ok(CreatedApiKey { key, secret, encoded })
    }

    /// Lists API keys, those that were made last first.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::TooMany`] for a pattern that is not for so many.
    pub async fn api_keys(&self, query: ApiKeyQuery) -> Result<Vec<Arc<ApiKey>>> {
        query.check()?;
        let inner = &self.0;
        // Those of some ids are found at once, however many searches there are.
        if query.ids.is_some() {
            return Ok(find(&inner.state.load_full(), &query, inner.clock.now_ms(), || true));
        }
        let places = if query.by_manager { &inner.managing } else { &inner.searching };
        let permit = Arc::clone(places).acquire_owned().await.map_err(Error::internal)?;
        let (state, now_ms) = (inner.state.load_full(), inner.clock.now_ms());
        let (told, found) = oneshot::channel();
        // There may be a great many: not on a thread that answers requests.
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let keys = find(&state, &query, now_ms, || !told.is_closed());
            let _ = told.send(keys);
        });
        found.await.map_err(Error::internal)
    }

    /// Changes an API key of a user. Returns whether anything is other than it was.
    ///
    /// # Errors
    /// [`Error::NotFound`] where the user has none of that id; [`Error::Invalid`], also for a key that is over.
    pub async fn update_api_key(&self, owner: &str, id: &str, change: ApiKeyChange) -> Result<bool> {
        let change = self.checked(change, |change, meaning| {
            if let Some(roles) = &change.roles {
                check_descriptors(roles, meaning)?;
            }
            check_metadata("metadata", &change.metadata)
        });
        let ApiKeyChange { roles, metadata, expires_in } = change.await?;
        let (owner, id) = (owner.to_owned(), id.to_owned());
        self.change(move |state, now_ms| {
            let Some(before) = state.keys.get(id.as_str()).filter(|key| *key.owner == *owner) else {
                return Err(Error::NotFound { what: KEY, name: shorten(&id) });
            };
            if !before.is_active(now_ms) {
                return Err(Error::Invalid(format!("API key [{id}] was invalidated or has expired")));
            }
            let mut key = ApiKey::clone(before);
            if let Some(roles) = roles {
                key.roles = roles;
            }
            if let Some(metadata) = metadata {
                key.metadata = metadata;
            }
            if let Some(lives) = expires_in {
                key.expires_ms = Some(end_ms(now_ms, lives)?);
            }
            if key == **before {
                return Ok((Vec::new(), false));
            }
            Ok((vec![Change::PutKey(weigh(state, key)?)], true))
        })
        .await
    }

    /// Revokes API keys. They can be listed for another week, without what they might have done and notes.
    ///
    /// # Errors
    /// As [`Accounts::api_keys`]; the store's.
    pub async fn invalidate_api_keys(&self, query: ApiKeyQuery) -> Result<InvalidationReport> {
        let found = self.api_keys(query).await?;
        self.revoke_api_keys(found).await
    }

    /// Revokes API keys that were found before, so that other changes do not wait for the search: which key has which name and owner
    /// never changes.
    ///
    /// # Errors
    /// The store's.
    pub async fn revoke_api_keys(&self, found: Vec<Arc<ApiKey>>) -> Result<InvalidationReport> {
        self.change(move |state, now_ms| {
            let (mut changes, mut done) = (Vec::new(), InvalidationReport::default());
            for key in found.iter().filter_map(|key| state.keys.get(&key.id)) {
                let id = Arc::clone(&key.id);
                if key.invalidated_ms.is_some() {
                    done.previously.push(id);
                    continue;
                }
                done.invalidated.push(id);
                changes.push(Change::PutKey(Arc::new(key.revoked(now_ms)?)));
            }
            Ok((changes, done))
        })
        .await
    }

    /// Checks what is said of a key. Descriptors take their time: not on a thread that answers requests.
    async fn checked<T: Send + 'static>(
        &self,
        said: T,
        check: impl FnOnce(&T, &dyn QueryCheck) -> Result<()> + Send + 'static,
    ) -> Result<T> {
        let meaning = Arc::clone(&self.0.meaning);
        let checked = tokio::task::spawn_blocking(move || check(&said, &*meaning).map(|()| said));
        checked.await.map_err(Error::internal)?
    }
}

/// Finds keys, those that were made last first, for as long as somebody waits for them.
fn find(state: &State, query: &ApiKeyQuery, now_ms: i64, is_awaited: impl Fn() -> bool) -> Vec<Arc<ApiKey>> {
    let taken = |key: &&Arc<ApiKey>| is_awaited() && query.takes(key, now_ms);
    let mut found: Vec<_> = match (&query.ids, &query.owner) {
        (Some(ids), _) => {
            ids.iter().filter_map(|id| state.keys.get(id.as_str())).filter(taken).cloned().collect()
        }
        (None, Some(owner)) => state.keys_of(owner).filter(taken).cloned().collect(),
        (None, None) => state.keys.values().filter(taken).cloned().collect(),
    };
    found.sort_unstable_by(|a, b| (b.created_ms, &b.id).cmp(&(a.created_ms, &a.id)));
    found.dedup_by(|a, b| a.id == b.id);
    found
}

/// Checks a key that a snapshot has, as far as it says by itself.
pub(super) fn check(key: &ApiKey, meaning: &dyn QueryCheck) -> Result<()> {
    check_name(KEY, &key.name)?;
    check_name("user", &key.owner)?;
    check_descriptors(&key.roles, meaning)?;
    check_metadata("metadata", &key.metadata)
}

/// Finds room for a key that another store has made.
pub(super) fn put(state: &State, key: ApiKey) -> Result<Change> {
    let known = state.keys.get(&key.id);
    if known.is_some_and(|known| known.owner != key.owner) {
        return Err(Error::Conflict(format!("API key [{}] is that of another user", shorten(&key.id))));
    }
    let is_new = usize::from(known.is_none());
    let (all, of_user) = (state.keys.size(), state.count_keys_of(&key.owner));
    bound("API keys", all + is_new, MAX_KEYS)?;
    bound("API keys of one user", of_user + is_new, share(MAX_KEYS, all - of_user))?;
    Ok(Change::PutKey(weigh(state, key)?))
}

/// Finds room for a key; one that gets no larger always has some.
fn weigh(state: &State, key: ApiKey) -> Result<Arc<ApiKey>> {
    let key = key.weighed()?;
    let before = state.keys.get(&key.id).map_or(0, |before| before.bytes);
    if key.bytes <= before {
        return Ok(Arc::new(key));
    }
    let of_user = state.key_bytes_of(&key.owner);
    let of_others = state.key_bytes - of_user;
    bound("bytes of API keys", state.key_bytes - before + key.bytes, MAX_KEY_BYTES)?;
    let limit = MAX_KEY_BYTES_OF_USER.min(share(MAX_KEY_BYTES, of_others));
    bound("bytes of API keys of one user", of_user - before + key.bytes, limit)?;
    Ok(Arc::new(key))
}
