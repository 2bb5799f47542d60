//! Users, roles, role mappings, API keys and logins over HTTP.
//!
//! There is one store, [`Accounts`](millrace_accounts::Accounts), and two ways to write what is in it: Elasticsearch's under
//! `_security` and OpenSearch's under `_plugins/_security` ([`opensearch`]); `_service` has logins and what goes with them
//! ([`login`]). What one way has no words for stays as it was when something is replaced by it: backend roles and attributes of
//! a user are OpenSearch's, its metadata and full name Elasticsearch's.
//!
//! Whoever may change users, roles or mappings can have every right, by giving it to itself: the action
//! [`Action::PutSecurity`] is that of an administrator. What is built in cannot be changed even so.
//!
//! - [`users`], [`roles`], [`mappings`], [`api_keys`], [`privileges`]: Elasticsearch's forms, each its own file
//! - [`form`], [`listing`]: bodies, read strictly and written within bounds
//! - [`patch`]: changes of parts, for OpenSearch's
//! - [`query`]: what queries of roles may be

pub(crate) mod api_keys;
mod form;
pub(crate) mod login;
pub(crate) mod mappings;
pub(crate) mod opensearch;
mod patch;
pub(crate) mod privileges;
mod query;
pub(crate) mod roles;
pub(crate) mod users;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millrace_accounts::{Account, Edit, NewPassword, Setter};
use millrace_catalog::access::{Action, Caller};

pub use query::SearchQueryParser;

use crate::Api;
use crate::error::Error;

/// The caller of a request about users and their rights.
trait SecurityCaller {
    /// Returns the user who asks; `None` for an API key.
    fn user(&self) -> Option<&str>;

    /// Hashes a password that is to be set, as long as the client waits.
    async fn hash(&self, password: String) -> Result<NewPassword, Error>;

    /// Hashes a password, if there is one.
    async fn hash_some(&self, password: Option<String>) -> Result<Option<NewPassword>, Error>;

    /// Sets a user's password for who may do an action. `own` is the account of who sets its own, as it was before anything was checked.
    async fn set_password(
        &self,
        name: &str,
        password: String,
        action: Action,
        own: Option<Arc<Account>>,
    ) -> Result<(), Error>;

    /// Refuses what the caller is not allowed by now: hashes are made in turn, and others change rights and passwords meanwhile.
    async fn still(&self, action: Action) -> Result<(), Error>;

    /// Returns whether the caller is allowed an action of the cluster's.
    fn may(&self, action: Action) -> bool;

    /// Refuses what the caller is not allowed.
    fn need(&self, action: Action) -> Result<(), Error>;
}

impl SecurityCaller for Api {
    fn user(&self) -> Option<&str> {
        match self.session.principal().caller() {
            Caller::User(name) => Some(name),
            _ => None,
        }
    }

    async fn hash(&self, password: String) -> Result<NewPassword, Error> {
        let setter = Setter { name: self.session.principal().name(), address: self.address };
        let hashed = self.client.waits_for(self.accounts.hash_password(password, setter)).await?;
        if let Err(millrace_accounts::Error::Later { .. }) = &hashed {
            self.noted.too_many.store(true, Ordering::Relaxed);
        }
        Ok(hashed?)
    }

    async fn hash_some(&self, password: Option<String>) -> Result<Option<NewPassword>, Error> {
        match password {
            Some(password) => Ok(Some(self.hash(password).await?)),
            None => Ok(None),
        }
    }

    async fn set_password(
        &self,
        name: &str,
        password: String,
        action: Action,
        own: Option<Arc<Account>>,
    ) -> Result<(), Error> {
        // Not after a hash was made for nothing.
        if self.accounts.user(name).is_none() {
            let name = name.chars().take(100).collect();
            return Err(millrace_accounts::Error::NotFound { what: "user", name }.into());
        }
        let (name, password) = (name.to_owned(), self.hash(password).await?);
        // One's own is compared when it is set, and waits for nobody.
        let _one = match action {
            Action::PutSecurity => Some(self.changing.lock().await),
            _ => None,
        };
        self.still(action).await?;
        Ok(self.accounts.edit_one(Edit::SetPassword { name, password, own }).await.map(drop)?)
    }

    async fn still(&self, action: Action) -> Result<(), Error> {
        let now = self.client.waits_for(self.session.again()).await??;
        now.doing(action).map(drop).map_err(Error::from)
    }

    fn may(&self, action: Action) -> bool {
        self.session.principal().privileges().allows(action)
    }

    fn need(&self, action: Action) -> Result<(), Error> {
        self.session.doing(action).map(drop).map_err(Error::from)
    }
}
