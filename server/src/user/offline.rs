//! Users in the data directory of a server that is stopped. What is done to them is told to its audit.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use millrace_accounts::{Account, Accounts, AnyQuery, Config, Error, User};
use millrace_api::Audit;
use millrace_engine::Engine;
use millrace_runtime::SystemClock;
use reqwest::Method;

use super::{NewUser, UserRow, Users, missing};
use crate::exit::Failure;
use crate::serve::PASSWORD_FILE;
use crate::{config, environment};

/// An open store and its accounts.
#[derive(Debug)]
pub(super) struct Offline {
    engine: Arc<Engine>,
    accounts: Accounts,
    audit: Audit,
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
        match of_store(&engine).await {
            Ok((accounts, audit)) => Ok(Self { engine, accounts, audit, data_dir }),
            Err(failure) => {
                engine.shutdown().await.map_err(Failure::other)?;
                Err(failure)
            }
        }
    }

    /// Writes what the audit is told, and lets go of the store.
    pub(super) async fn close(self) -> Result<(), Failure> {
        let Self { engine, accounts, audit, .. } = self;
        drop(accounts);
        let told = audit.flush().await.context("it is done, but the audit could not be told");
        engine.shutdown().await.map_err(Failure::other)?;
        told.map_err(Failure::other)
    }

    /// Has the audit tell of a change of a user, as of the request for it.
    fn tell(&self, method: Method, name: &str) {
        self.audit.command_changed(method, &["_security", "user", name]);
    }

    fn account(&self, name: &str) -> Result<Arc<Account>> {
        self.accounts.user(name).ok_or_else(|| missing(name))
    }
}

/// Opens the accounts of a store and its audit.
async fn of_store(engine: &Arc<Engine>) -> Result<(Accounts, Audit), Failure> {
    // Nobody comes in here, and an administrator without a password is to get it from the next start.
    let config = Config { insecure: true, ..Config::default() };
    let store = Arc::clone(engine);
    let opened = Accounts::open(store, config, engine.clock().clone(), Arc::new(AnyQuery)).await;
    let (accounts, _) = opened.map_err(|error| match error {
        Error::Store(error) => Failure::open(error),
        error => Failure::other(error),
    })?;
    Ok((accounts, Audit::of_command(engine).await.map_err(Failure::other)?))
}

impl Users for Offline {
    async fn list(&self) -> Result<Vec<UserRow>> {
        Ok(self.accounts.users().iter().map(|account| listed(account)).collect())
    }

    async fn find(&self, name: &str) -> Result<Option<UserRow>> {
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
        self.tell(Method::PUT, name);
        Ok(())
    }

    async fn set_password(&self, name: &str, password: &str) -> Result<()> {
        self.accounts.change_password(name, password.to_owned()).await?;
        self.audit.command_changed(Method::POST, &["_security", "user", name, "_password"]);
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
        self.tell(Method::PUT, name);
        Ok(())
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.accounts.delete_user(name).await?;
        self.tell(Method::DELETE, name);
        Ok(())
    }

    async fn has_role(&self, role: &str) -> Result<bool> {
        Ok(self.accounts.role(role).is_some())
    }
}

fn listed(account: &Account) -> UserRow {
    let Account { name, user, .. } = account;
    UserRow {
        name: name.to_string(),
        roles: user.roles.clone(),
        enabled: user.enabled,
        email: user.email.clone(),
    }
}
