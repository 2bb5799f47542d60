//! Changes of users, roles and role mappings, any number of them as one: all of them are made, or none.

use std::sync::Arc;

use super::{Accounts, NewPassword, bound, roles, users};
use crate::error::{Error, Result};
use crate::limits::MAX_LISTED;
use crate::role::Role;
use crate::state::{Account, CachedRole, Change, State};
use crate::user::{Mapping, User};

/// A change of one of them.
#[derive(Clone, Debug)]
pub enum Edit {
    /// Makes a user or replaces what is said of one; see [`Accounts::put_user`].
    PutUser {
        /// Its name.
        name: String,
        /// New record of the user.
        user: User,
        /// Another password.
        password: Option<NewPassword>,
    },
    /// Sets a user's password, which ends its login tokens.
    SetPassword {
        /// The user's name.
        name: String,
        /// The password.
        password: NewPassword,
        /// The account of who sets its own, as it was before who asks was checked: where it has got another password since, that one
        /// stays.
        own: Option<Arc<Account>>,
    },
    /// Deletes a user.
    DeleteUser(String),
    /// Makes or replaces a role.
    PutRole(String, Role),
    /// Deletes a role.
    DeleteRole(String),
    /// Makes or replaces the mapping of a role.
    PutMapping(String, Mapping),
    /// Deletes the mapping of a role.
    DeleteMapping(String),
}

/// An edit that is right by itself.
enum Ready {
    PutUser(Arc<str>, User, Option<NewPassword>),
    SetPassword(String, NewPassword, Option<Arc<Account>>),
    DeleteUser(String),
    PutRole(Arc<str>, Arc<CachedRole>),
    DeleteRole(Arc<str>),
    PutMapping(Arc<str>, Mapping),
    DeleteMapping(Arc<str>),
}

impl Ready {
    /// Decides it on a state. Returns the changes, and whether something is made by them.
    fn decide(self, state: &State, now_ms: i64) -> Result<(Vec<Change>, bool)> {
        match self {
            Self::PutUser(name, user, password) => users::put_user(state, name, user, password),
            Self::SetPassword(name, password, own) => {
                users::set_password(state, &name, password, own.as_deref())
            }
            Self::DeleteUser(name) => users::delete_user(state, &name, now_ms),
            Self::PutRole(name, known) => roles::put_role(state, name, known),
            Self::DeleteRole(name) => roles::delete_role(state, name),
            Self::PutMapping(role, mapping) => roles::put_mapping(state, role, mapping),
            Self::DeleteMapping(role) => roles::delete_mapping(state, role),
        }
    }
}

impl Accounts {
    /// Makes several changes, each on what those before it leave, in one transaction of the store: where one is refused, none is
    /// made. A certificate that one of them takes from a user may be given by any other. Returns of each whether it made something
    /// that was not there.
    ///
    /// # Errors
    /// What any of them is refused for; [`crate::Error::TooMany`]; [`crate::Error::Conflict`] for a password of one's own that another has
    /// come before.
    pub async fn edit(&self, edits: Vec<Edit>) -> Result<Vec<bool>> {
        bound("changes at once", edits.len(), MAX_LISTED)?;
        // Roles of many privileges take their time: not on a thread that answers requests.
        let accounts = self.clone();
        let ready = move || edits.into_iter().map(|edit| accounts.ready(edit)).collect::<Result<Vec<_>>>();
        let ready = tokio::task::spawn_blocking(ready).await.map_err(Error::internal)??;
        self.change(move |state, now_ms| {
            let mut state = State::clone(state);
            // Among those that are put, certificates may change hands in any order.
            for edit in &ready {
                if let Ready::PutUser(name, user, _) = edit {
                    state.release_subject(name, user);
                }
            }
            let (mut all, mut made) = (Vec::new(), Vec::with_capacity(ready.len()));
            for edit in ready {
                let (changes, is_made) = edit.decide(&state, now_ms)?;
                changes.iter().for_each(|change| state.apply_one(change));
                all.extend(changes);
                made.push(is_made);
            }
            Ok((all, made))
        })
        .await
    }

    /// Makes one change. Returns whether it made something that was not there.
    ///
    /// # Errors
    /// As [`Accounts::edit`].
    pub async fn edit_one(&self, edit: Edit) -> Result<bool> {
        let made = self.edit(vec![edit]).await?;
        Ok(made.contains(&true))
    }

    /// Checks an edit as far as it says by itself.
    fn ready(&self, edit: Edit) -> Result<Ready> {
        Ok(match edit {
            Edit::PutUser { name, user, password } => {
                users::check_user(&name, &user)?;
                Ready::PutUser(name.into(), user, password)
            }
            Edit::SetPassword { name, password, own } => Ready::SetPassword(name, password, own),
            Edit::DeleteUser(name) => Ready::DeleteUser(name),
            Edit::PutRole(name, role) => {
                let known = roles::understand(&name, role, &*self.0.meaning)?;
                Ready::PutRole(name.into(), known)
            }
            Edit::DeleteRole(name) => Ready::DeleteRole(name.into()),
            Edit::PutMapping(role, mapping) => {
                mapping.check()?;
                Ready::PutMapping(role.into(), mapping.canonical())
            }
            Edit::DeleteMapping(role) => Ready::DeleteMapping(role.into()),
        })
    }
}
