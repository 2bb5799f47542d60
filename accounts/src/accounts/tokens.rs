//! Logging in and out.

use std::net::IpAddr;
use std::sync::Arc;

use millrace_catalog::access::Principal;

use super::{Accounts, bound};
use crate::error::{Error, Refusal, Result};
use crate::limits::{MAX_TOKENS, MAX_TOKENS_OF_USER};
use crate::secret::{self, Hash};
use crate::state::{Account, Change};
use crate::token::{Token, TokenBody};

/// A login.
#[derive(Clone)]
pub struct Login {
    /// The token, which nobody will be told again.
    pub token: String,
    /// The user.
    pub account: Arc<Account>,
    /// Principal of the token.
    pub principal: Principal,
}

/// A user whose password is right, and who gets a token for it.
#[derive(Debug)]
pub struct VerifiedLogin {
    account: Arc<Account>,
    principal: Principal,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("user", &self.account.name).finish_non_exhaustive()
    }
}

impl Accounts {
    /// Checks a user's password and gives a token for it.
    ///
    /// # Errors
    /// As [`Accounts::authenticate`]; where the token cannot be stored, [`Refusal::Failed`], and [`Refusal::Later`] where there
    /// are too many.
    pub async fn login(&self, name: &str, password: &str, address: IpAddr) -> Result<Login, Refusal> {
        let checked = self.check_login(name, password, address).await?;
        self.give_token(checked).await
    }

    /// Checks a user's password for a login. Nothing is changed: dropping the future gives it up.
    ///
    /// # Errors
    /// As [`Accounts::authenticate`].
    pub async fn check_login(
        &self,
        name: &str,
        password: &str,
        address: IpAddr,
    ) -> Result<VerifiedLogin, Refusal> {
        let (account, principal) = self.check_password(name, password, "/_service/login", address).await?;
        Ok(VerifiedLogin { account, principal })
    }

    /// Gives a token to whose password was checked.
    ///
    /// # Errors
    /// Where the token cannot be stored, [`Refusal::Failed`], and [`Refusal::Later`] where there are too many;
    /// [`Refusal::Unauthenticated`] where the password was changed meanwhile.
    pub async fn give_token(&self, checked: VerifiedLogin) -> Result<Login, Refusal> {
        let VerifiedLogin { account, principal } = checked;
        let token = secret::token();
        let (hash, checked) = (Hash::new(&token), Arc::clone(&account));
        let stored = self.change(move |state, now_ms| {
            // The password may have been changed since it was checked.
            let user = Arc::clone(&checked.name);
            let current = state.users.get(&user).filter(|current| {
                current.user.enabled && (Arc::ptr_eq(current, &checked) || current.hash == checked.hash)
            });
            if current.is_none() {
                return Err(Error::NotFound { what: "user", name: user.to_string() });
            }
            let mut changes = Vec::new();
            if state.count_tokens_of(&user) >= MAX_TOKENS_OF_USER {
                let unused = state.tokens_of(&user).min_by_key(|token| token.used_ms());
                changes.extend(unused.map(|token| Change::DeleteToken(token.hash)));
            } else {
                bound("login tokens", state.tokens.size() + 1, MAX_TOKENS)?;
            }
            let body = TokenBody { user, created_ms: now_ms, used_ms: now_ms };
            changes.push(Change::PutToken(Arc::new(Token::new(hash, body))));
            Ok((changes, ()))
        });
        match stored.await {
            Ok(()) => Ok(Login { token, account, principal }),
            Err(Error::NotFound { name, .. }) => {
                Err(Refusal::Unauthenticated(format!("unable to authenticate user [{name}]")))
            }
            Err(Error::TooMany { .. }) => {
                let after = std::time::Duration::from_secs(60);
                Err(Refusal::Later { reason: "too many users are logged in", after })
            }
            Err(error) => Err(Refusal::Failed(error.to_string())),
        }
    }

    /// Ends a login token. Returns whether there was one.
    ///
    /// # Errors
    /// The store's.
    pub async fn logout(&self, token: &str) -> Result<bool> {
        let hash = Hash::new(&token.trim().to_ascii_lowercase());
        self.change(move |state, _| {
            let is_there = state.tokens.contains_key(&hash);
            Ok((is_there.then_some(Change::DeleteToken(hash)).into_iter().collect(), is_there))
        })
        .await
    }

    /// Ends all login tokens of a user. Returns how many there were.
    ///
    /// # Errors
    /// The store's.
    pub async fn logout_everywhere(&self, user: &str) -> Result<usize> {
        let user = user.to_owned();
        self.change(move |state, _| {
            let changes: Vec<_> =
                state.tokens_of(&user).map(|token| Change::DeleteToken(token.hash)).collect();
            let count = changes.len();
            Ok((changes, count))
        })
        .await
    }
}
