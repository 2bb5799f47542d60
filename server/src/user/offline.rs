//! Users in the data directory of a server that is stopped.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use millrace_accounts::{Account, Accounts, AnyQuery, Config, Error, User};
use millrace_storage::{Engine, SystemClock};

use super::{Listed, NewUser, Users, missing};
use crate::exit::Failure;
use crate::serve::PASSWORD_FILE;
use crate::{config, environment};

/// An open store and its accounts.
#[derive(Debug)]
pub(super) struct Offline {
    engine: Arc<Engine>,
    accounts: Accounts,
    data_dir: PathBuf,
}

impl Offline {
    /// Opens the store, unless a server has it.
    pub(super) async fn open(data: &str) -> Result<Self, Failure> {
        let flags = config::Flags { config: None, keys: vec![("--data", "data", data.to_owned())] };
        let settings = config::Settings::load(&flags, environment()).map_err(Failure::config)?;
        let config = settings.config().map_err(Failure::config)?;
        // A mistyped name is not to become a store.
        if !Path::new(data).is_dir() {
            return Err(Failure::config(anyhow!("data directory [{data}] is not there")));
        }
        let data_dir = config.storage.data_dir.clone();
        let locked = |error| Failure::open(error).or("or ask the running server with --url");
        let engine = Engine::open(config.storage, Arc::new(SystemClock)).await.map_err(locked)?;
        // Nobody comes in here, and an administrator without a password is to get it from the next start.
        let accounts = Config { insecure: true, ..Config::default() };
        let store = Arc::clone(&engine);
        match Accounts::open(store, accounts, engine.clock().clone(), Arc::new(AnyQuery)).await {
            Ok((accounts, _)) => Ok(Self { engine, accounts, data_dir }),
            Err(error) => {
                engine.shutdown().await.map_err(Failure::other)?;
                Err(match error {
                    Error::Store(error) => Failure::open(error),
                    error => Failure::other(error),
                })
            }
        }
    }

    /// Lets go of the store.
    pub(super) async fn close(self) -> Result<(), Failure> {
        let Self { engine, accounts, .. } = self;
        drop(accounts);
        engine.shutdown().await.map_err(Failure::other)
    }

    fn account(&self, name: &str) -> Result<Arc<Account>> {
        self.accounts.user(name).ok_or_else(|| missing(name))
    }
}

impl Users for Offline {
    async fn list(&self) -> Result<Vec<Listed>> {
        Ok(self.accounts.users().iter().map(|account| listed(account)).collect())
    }

    async fn find(&self, name: &str) -> Result<Option<Listed>> {
        Ok(self.accounts.user(name).map(|account| listed(&account)))
    }

    async fn add(&self, name: &str, user: NewUser<'_>, password: &str) -> Result<()> {
        let user = User {
            roles: user.roles,
            email: user.email.map(str::to_owned),
            full_name: user.full_name.map(str::to_owned),
            ..User::default()
        };
        self.accounts.put_user(name, user, Some(password.to_owned())).await?;
        Ok(())
    }

    async fn set_password(&self, name: &str, password: &str) -> Result<()> {
        self.accounts.change_password(name, password.to_owned()).await?;
        if self.account(name)?.is_reserved() {
            // What it says is no longer right.
            let file = self.data_dir.join(PASSWORD_FILE);
            match std::fs::remove_file(&file) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                removed => {
                    removed.with_context(|| format!("the password is set, but {} stays", file.display()))?;
                }
            }
        }
        Ok(())
    }

    async fn set_roles(&self, name: &str, roles: Vec<String>) -> Result<()> {
        let mut user = self.account(name)?.user.clone();
        user.default_role = user.default_role.filter(|role| roles.contains(role));
        user.roles = roles;
        self.accounts.put_user(name, user, None).await?;
        Ok(())
    }

    async fn delete(&self, name: &str) -> Result<()> {
        Ok(self.accounts.delete_user(name).await?)
    }

    async fn has_role(&self, role: &str) -> Result<bool> {
        Ok(self.accounts.role(role).is_some())
    }
}

fn listed(account: &Account) -> Listed {
    let Account { name, user, .. } = account;
    Listed {
        name: name.to_string(),
        roles: user.roles.clone(),
        enabled: user.enabled,
        email: user.email.clone(),
    }
}
