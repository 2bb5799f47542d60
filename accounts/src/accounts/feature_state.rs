//! Accounts in snapshots: records of users, roles, role mappings and API keys, and what becomes of them in another store.
//!
//! An import replaces what has the same name, and leaves everything else. Login tokens are in no snapshot: users log in again. The
//! administrator keeps the password and the keys of its store, and a key that was revoked stays revoked.

use std::sync::Arc;

use millrace_catalog::AccountRecord;

use super::{Accounts, NewPassword, keys, roles, users};
use crate::api_key::ApiKey;
use crate::error::{Error, Result};
use crate::limits::shorten;
use crate::password::hash;
use crate::privileges::QueryCheck;
use crate::role::builtin::{self, ADMIN};
use crate::state::{Account, CachedRole, Change, State};
use crate::user::Mapping;

/// Records of a snapshot, in the order in which they are put.
#[derive(Default)]
struct ImportedRecords {
    roles: Vec<(Arc<str>, Arc<CachedRole>)>,
    mappings: Vec<(Arc<str>, Arc<Mapping>)>,
    users: Vec<Arc<Account>>,
    keys: Vec<Arc<ApiKey>>,
}

impl ImportedRecords {
    /// Reads records, and checks each as a request for it is checked.
    ///
    /// # Errors
    /// [`Error::Invalid`] names a record that no store writes.
    fn read(records: &[AccountRecord], meaning: &dyn QueryCheck) -> Result<Self> {
        let mut imported = Self::default();
        for record in records {
            let unusable = |reason: String| {
                let (kind, name) = (shorten(&record.kind), shorten(&record.name));
                Error::Invalid(format!("{kind} [{name}] cannot be used: {reason}"))
            };
            let change = Change::read(record).map_err(|error| unusable(error.to_string()))?;
            match change {
                Some(Change::PutRole(name, known)) => {
                    if !builtin::is_reserved(&name) {
                        let known = roles::understand(&name, (*known.role).clone(), meaning);
                        imported.roles.push((name, known.map_err(|error| unusable(error.to_string()))?));
                    }
                }
                Some(Change::PutMapping(role, mapping)) => {
                    mapping.check().map_err(|error| unusable(error.to_string()))?;
                    imported.mappings.push((role, mapping));
                }
                Some(Change::PutUser(account)) => {
                    let check = users::check_user(&account.name, &account.user);
                    check.map_err(|error| unusable(error.to_string()))?;
                    if account.hash.as_deref().is_some_and(|text| !hash::is_usual(text)) {
                        return Err(unusable("its password is no hash that this program makes".to_owned()));
                    }
                    imported.users.push(account);
                }
                Some(Change::PutKey(key)) => {
                    keys::check(&key, meaning).map_err(|error| unusable(error.to_string()))?;
                    imported.keys.push(key);
                }
                _ => return Err(unusable("no snapshot has records of this kind".to_owned())),
            }
        }
        Ok(imported)
    }

    /// Decides the changes of a state.
    ///
    /// # Errors
    /// A bound that they exceed; a certificate that is another user's.
    fn decide(self, before: &State, now_ms: i64) -> Result<Vec<Change>> {
        let (mut state, mut all) = (State::clone(before), Vec::new());
        let mut apply = |state: &mut State, changes: Vec<Change>| {
            changes.iter().for_each(|change| state.apply_one(change));
            all.extend(changes);
        };
        for (name, known) in self.roles {
            let (changes, _) = roles::put_role(&state, name, known)?;
            apply(&mut state, changes);
        }
        for (role, mapping) in self.mappings {
            // The mapping of a role that is gone grants nothing.
            if state.roles.contains_key(&role) {
                let (changes, _) = roles::put_mapping(&state, role, Mapping::clone(&mapping))?;
                apply(&mut state, changes);
            }
        }
        let users: Vec<_> = self.users.into_iter().filter(|account| *account.name != *ADMIN).collect();
        // Among those that are put, certificates may change hands in any order.
        users.iter().for_each(|account| state.release_subject(&account.name, &account.user));
        for account in users {
            let known = state.users.get(&account.name).and_then(|known| known.hash.as_ref());
            // The same password ends no login.
            let password = account.hash.clone().filter(|hash| known != Some(hash)).map(NewPassword);
            let name = Arc::clone(&account.name);
            let (changes, _) = users::put_user(&state, name, account.user.clone(), password)?;
            apply(&mut state, changes);
        }
        for key in self.keys {
            let is_revoked = state.keys.get(&key.id).is_some_and(|known| known.invalidated_ms.is_some());
            if key.is_active(now_ms) && !is_revoked && *key.owner != *ADMIN {
                let changes = vec![keys::put(&state, ApiKey::clone(&key))?];
                apply(&mut state, changes);
            }
        }
        Ok(all)
    }
}

impl Accounts {
    /// Lists the records that a snapshot has: users but the administrator, roles, role mappings and API keys. They have hashes of passwords
    /// and keys.
    ///
    /// # Errors
    /// The store's.
    pub async fn export_records(&self) -> Result<Vec<AccountRecord>> {
        let records = self.0.store.accounts().await?;
        Ok(records.into_iter().filter(Change::is_exported).collect())
    }

    /// Puts the records of a snapshot, all or none. Returns the number of changes.
    ///
    /// # Errors
    /// [`Error::Invalid`] names a record that cannot be used; [`Error::TooMany`]; [`Error::Conflict`] for a certificate that is another
    /// user's; the store's.
    pub async fn import_records(&self, records: Vec<AccountRecord>) -> Result<usize> {
        let meaning = Arc::clone(&self.0.meaning);
        // Before the lock of changes: roles of many privileges take their time.
        let read = tokio::task::spawn_blocking(move || ImportedRecords::read(&records, &*meaning));
        let imported = read.await.map_err(Error::internal)??;
        self.change(move |state, now_ms| {
            let changes = imported.decide(state, now_ms)?;
            let count = changes.len();
            Ok((changes, count))
        })
        .await
    }
}
