//! Users and their passwords.

use std::sync::Arc;

use super::{Accounts, Edit, NewPassword, bound};
use crate::error::{Error, Result};
use crate::limits::{MAX_USERS, check_name, shorten};
use crate::role::builtin::ADMIN;
use crate::state::{Account, Change, State};
use crate::user::User;

const USER: &str = "user";

impl Accounts {
    /// Lists the users by name.
    pub fn users(&self) -> Vec<Arc<Account>> {
        let mut users: Vec<_> = self.0.state.load().users.values().cloned().collect();
        users.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        users
    }

    /// Finds a user.
    pub fn user(&self, name: &str) -> Option<Arc<Account>> {
        self.0.state.load().users.get(name).cloned()
    }

    /// Lists the names of the roles that a user has by its record and by role mappings.
    pub fn roles_of(&self, name: &str) -> Option<Vec<String>> {
        let state = self.0.state.load();
        let mut roles = state.users.get(name).map(|account| state.roles_of(account))?;
        roles.sort_unstable();
        roles.dedup();
        Some(roles)
    }

    /// Makes a user or replaces what is said of one. Without a password a user that is there keeps its own, and another has to have a
    /// certificate. Another password ends its login tokens. Returns whether it was made.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::TooMany`]; [`Error::Reserved`] where the administrator would no longer be one;
    /// [`Error::Conflict`] for a certificate that is another's.
    pub async fn put_user(&self, name: &str, user: User, password: Option<String>) -> Result<bool> {
        check_user(name, &user)?;
        let password = match password {
            Some(password) => Some(self.hash_own(password).await?),
            None => None,
        };
        self.edit_one(Edit::PutUser { name: name.to_owned(), user, password }).await
    }

    /// Sets a user's password, which ends its login tokens.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::NotFound`].
    pub async fn change_password(&self, name: &str, password: String) -> Result<()> {
        found(&self.0.state.load(), name)?;
        let password = self.hash_own(password).await?;
        self.edit_one(Edit::SetPassword { name: name.to_owned(), password, own: None }).await.map(drop)
    }

    /// Lets a user in or keeps it out, which ends its login tokens.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Reserved`].
    pub async fn enable_user(&self, name: &str, enabled: bool) -> Result<()> {
        let name = name.to_owned();
        self.change(move |state, _| {
            let account = found(state, &name)?;
            let user = User { enabled, ..account.user.clone() };
            check_reserved(&name, &user)?;
            let mut changes = if enabled { Vec::new() } else { end_tokens(state, &name) };
            let (name, hash) = (Arc::clone(&account.name), account.hash.clone());
            changes.push(Change::PutUser(Arc::new(Account { name, user, hash })));
            Ok((changes, ()))
        })
        .await
    }

    /// Deletes a user, which ends its login tokens and API keys: another one of the name would not have them.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Reserved`].
    pub async fn delete_user(&self, name: &str) -> Result<()> {
        self.edit_one(Edit::DeleteUser(name.to_owned())).await.map(drop)
    }
}

/// Checks what a user is put with, as far as it says by itself.
pub(super) fn check_user(name: &str, user: &User) -> Result<()> {
    check_name(USER, name)?;
    if name.contains(':') {
        return Err(Error::Invalid(format!("name of user [{name}] must not have a colon")));
    }
    user.check()
}

pub(super) fn put_user(
    state: &State,
    name: Arc<str>,
    user: User,
    password: Option<NewPassword>,
) -> Result<(Vec<Change>, bool)> {
    let before = state.users.get(&name);
    check_reserved(&name, &user)?;
    if let Some(subject) = user.subject()
        && let Some(other) = state.user_of_subject(subject).filter(|other| other.name != name)
    {
        return Err(Error::Conflict(format!("certificate [{subject}] is that of user [{}]", other.name)));
    }
    let hash = password.map(|password| password.0);
    if before.is_none() {
        if name.starts_with('_') {
            let name = shorten(&name);
            return Err(Error::Invalid(format!(
                "name of user [{name}] must not begin with _: those are the server's own"
            )));
        }
        bound("users", state.users.size() + 1, MAX_USERS)?;
        if hash.is_none() && user.subject().is_none() {
            return Err(Error::Invalid(format!("user [{name}] is new and needs a password")));
        }
    }
    let ends = hash.is_some() || !user.enabled;
    let mut changes = if ends { end_tokens(state, &name) } else { Vec::new() };
    let hash = hash.or_else(|| before.and_then(|account| account.hash.clone()));
    let made = before.is_none();
    changes.push(Change::PutUser(Arc::new(Account { name, user, hash })));
    Ok((changes, made))
}

pub(super) fn set_password(
    state: &State,
    name: &str,
    password: NewPassword,
    own: Option<&Account>,
) -> Result<(Vec<Change>, bool)> {
    let account = found(state, name)?;
    // Who has shown the one before may be whom it was changed for.
    if own.is_some_and(|own| own.hash != account.hash) {
        let name = shorten(name);
        return Err(Error::Conflict(format!(
            "user [{name}] has got another password meanwhile, try again with that one"
        )));
    }
    let mut changes = end_tokens(state, name);
    let (name, user) = (Arc::clone(&account.name), account.user.clone());
    changes.push(Change::PutUser(Arc::new(Account { name, user, hash: Some(password.0) })));
    Ok((changes, false))
}

pub(super) fn delete_user(state: &State, name: &str, now_ms: i64) -> Result<(Vec<Change>, bool)> {
    let account = found(state, name)?;
    if account.is_reserved() {
        return Err(Error::Reserved { what: USER, name: name.to_owned(), change: "deleted" });
    }
    let mut changes = end_tokens(state, name);
    let keys = state.keys_of(name).filter(|key| key.invalidated_ms.is_none());
    for key in keys {
        changes.push(Change::PutKey(Arc::new(key.revoked(now_ms)?)));
    }
    changes.push(Change::DeleteUser(Arc::clone(&account.name)));
    Ok((changes, false))
}

fn found<'a>(state: &'a State, name: &str) -> Result<&'a Arc<Account>> {
    state.users.get(name).ok_or_else(|| Error::NotFound { what: USER, name: shorten(name) })
}

/// Keeps the administrator one.
fn check_reserved(name: &str, user: &User) -> Result<()> {
    let refuse = |change| Err(Error::Reserved { what: USER, name: name.to_owned(), change });
    match name == ADMIN {
        true if !user.enabled => refuse("disabled"),
        true if !user.roles.iter().any(|role| role == ADMIN) => refuse("deprived of its role"),
        _ => Ok(()),
    }
}

fn end_tokens(state: &State, user: &str) -> Vec<Change> {
    state.tokens_of(user).map(|token| Change::DeleteToken(token.hash)).collect()
}
