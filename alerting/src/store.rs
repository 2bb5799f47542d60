//! Rules as documents of the system index `.alertrules`: the definition as users write it, and beside it, in `state`, what
//! the server knows of it: owner, revision, the last frame that it does not see, and orders to be quiet.
//!
//! All of them are in memory, too. A change is written first, as the replacement of the version that is in memory, so that
//! the two never disagree, whatever happens between.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_engine::{Action, DocResult, Engine, RefreshPolicy, Session, WriteOp, WriteOutcome};
use millrace_rules::Time;
use millrace_rules::definition::Definition;
use millrace_rules::engine::{Rule, SilenceOrder};
use millrace_runtime::Error as StorageError;
use parking_lot::RwLock;
use serde_json::{Value, json};

use crate::backfill::CatchUp;
use crate::error::{Error, Result};

/// The index.
const INDEX: &str = ".alertrules";
/// Rules that there may be.
const MAX_RULES: usize = 20_000;
/// How long a write may wait for memory.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A rule with what belongs to it.
#[derive(Clone, Debug)]
pub(crate) struct StoredRule {
    /// The rule.
    pub(crate) rule: Rule,
    /// Orders to be quiet.
    pub(crate) quiet: Vec<SilenceOrder>,
    /// What it has to see of what is stored before it sees what arrives.
    pub(crate) catching_up: Option<CatchUp>,
    /// Which document it is; `None` before it is stored.
    pub(crate) version: Option<Version>,
}

/// Which version of a document it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version {
    seq_no: u64,
    primary_term: u64,
}

/// Keeps rules.
#[derive(Debug)]
pub(crate) struct Store {
    engine: Arc<Engine>,
    session: Session,
    rules: RwLock<BTreeMap<String, Arc<StoredRule>>>,
    /// What was found in the index that is no rule, by id.
    unreadable: RwLock<BTreeMap<String, UnreadableRule>>,
}

/// A document that is no rule.
#[derive(Clone, Debug)]
struct UnreadableRule {
    reason: String,
    version: Version,
}

impl Store {
    /// Reads all rules.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn load(engine: &Arc<Engine>) -> Result<Self> {
        let (mut rules, mut unreadable) = (BTreeMap::new(), BTreeMap::new());
        if let Ok(index) = engine.index(INDEX) {
            let mut reading = engine.read_back(&[index], 0..u64::MAX).await?;
            while let Some(frame) = reading.next().await? {
                for part in &frame.parts {
                    for (seq_no, op) in (part.first_seq_no..).zip(&part.ops) {
                        let Some(source) = &op.source else { continue };
                        let id = String::from_utf8_lossy(&op.id).into_owned();
                        let version = Version { seq_no, primary_term: part.primary_term };
                        match read(&id, source, version) {
                            Ok(kept) => {
                                rules.insert(id, Arc::new(kept));
                            }
                            Err(reason) => {
                                unreadable.insert(id, UnreadableRule { reason, version });
                            }
                        }
                    }
                }
            }
        }
        let session = Session::system(engine);
        let (rules, unreadable) = (RwLock::new(rules), RwLock::new(unreadable));
        Ok(Self { engine: Arc::clone(engine), session, rules, unreadable })
    }

    /// Returns all rules, in the order of their ids.
    pub(crate) fn all(&self) -> Vec<Arc<StoredRule>> {
        self.rules.read().values().cloned().collect()
    }

    /// Returns those that have to catch up, in the order of their ids.
    pub(crate) fn catching_up(&self) -> Vec<Arc<StoredRule>> {
        let rules = self.rules.read();
        let catching_up =
            |kept: &&Arc<StoredRule>| kept.catching_up.is_some() && kept.rule.definition.enabled;
        rules.values().filter(catching_up).cloned().collect()
    }

    /// Whether there is no rule.
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.read().is_empty()
    }

    /// Returns a rule.
    pub(crate) fn get(&self, id: &str) -> Option<Arc<StoredRule>> {
        self.rules.read().get(id).cloned()
    }

    /// Finds a rule by its name.
    pub(crate) fn named(&self, name: &str) -> Option<Arc<StoredRule>> {
        self.rules.read().values().find(|kept| kept.rule.definition.name == name).cloned()
    }

    /// Tells what was found that is no rule, and what can be done with it.
    pub(crate) fn unreadable(&self) -> Vec<String> {
        let unreadable = self.unreadable.read();
        let said = unreadable.iter().map(|(id, UnreadableRule { reason, .. })| {
            format!("rule [{id}] cannot be read, save it anew with its id or delete it: {reason}")
        });
        said.collect()
    }

    /// Returns which document it is that has an id and is no rule: a rule that is saved takes its place.
    pub(crate) fn version_of_unreadable(&self, id: &str) -> Option<Version> {
        self.unreadable.read().get(id).map(|unreadable| unreadable.version)
    }

    /// Looks again at what is no rule: by now it may be gone, or one. Returns those that are.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn look_again(&self) -> Result<Vec<Arc<StoredRule>>> {
        let ids: Vec<String> = self.unreadable.read().keys().cloned().collect();
        let mut found = Vec::new();
        for id in ids {
            let document = match self.engine.get(self.session.principal(), INDEX, &id, None, true).await {
                Err(StorageError::IndexNotFound { .. }) => None,
                got => got?,
            };
            let Some(document) = document else {
                self.unreadable.write().remove(&id);
                continue;
            };
            let version = Version { seq_no: document.seq_no, primary_term: document.primary_term };
            match read(&id, &document.source, version) {
                Ok(kept) => {
                    let kept = Arc::new(kept);
                    self.unreadable.write().remove(&id);
                    self.rules.write().insert(id, Arc::clone(&kept));
                    found.push(kept);
                }
                Err(reason) => {
                    self.unreadable.write().insert(id, UnreadableRule { reason, version });
                }
            }
        }
        Ok(found)
    }

    /// Deletes what is no rule; returns whether there was something with that id.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub(crate) async fn delete_unreadable(&self, id: &str) -> Result<bool> {
        let Some(version) = self.version_of_unreadable(id) else { return Ok(false) };
        self.write(id, Action::Delete, Some(version)).await?;
        self.unreadable.write().remove(id);
        Ok(true)
    }

    /// Refuses one more rule beyond the bound.
    ///
    /// # Errors
    /// [`Error::TooMany`].
    pub(crate) fn check_room(&self) -> Result<()> {
        match self.rules.read().len() {
            there if there >= MAX_RULES => {
                Err(Error::TooMany(format!("there are {there} rules; {MAX_RULES} are allowed")))
            }
            _ => Ok(()),
        }
    }

    /// Stores a rule, in the place of the version that it has.
    ///
    /// # Errors
    /// [`Error::Conflict`] where another one is there; the store's. Nothing has changed then.
    pub(crate) async fn put(&self, mut kept: StoredRule) -> Result<Arc<StoredRule>> {
        let id = kept.rule.id.clone();
        let document = Bytes::from(document(&kept).to_string());
        let action = match kept.version {
            None => Action::Create(document),
            Some(_) => Action::Index(document),
        };
        let outcome = self.write(&id, action, kept.version).await?;
        kept.version = Some(Version { seq_no: outcome.seq_no, primary_term: outcome.primary_term });
        let kept = Arc::new(kept);
        self.unreadable.write().remove(&id);
        self.rules.write().insert(id, Arc::clone(&kept));
        Ok(kept)
    }

    /// Deletes a rule.
    ///
    /// # Errors
    /// As [`Store::put`]; [`Error::NotFound`].
    pub(crate) async fn delete(&self, kept: &StoredRule) -> Result<()> {
        let id = &kept.rule.id;
        let outcome = self.write(id, Action::Delete, kept.version).await?;
        self.rules.write().remove(id);
        match outcome.result {
            DocResult::NotFound => Err(Error::NotFound(id.clone())),
            _ => Ok(()),
        }
    }

    async fn write(&self, id: &str, action: Action, version: Option<Version>) -> Result<WriteOutcome> {
        self.engine.make_own_index(INDEX, &index_body()).await?;
        let op = WriteOp {
            if_seq_no: version.map(|version| version.seq_no),
            if_primary_term: version.map(|version| version.primary_term),
            ..WriteOp::new(INDEX, Some(id.to_owned()), action)
        };
        self.session.write_one(op, RefreshPolicy::Immediate, TIMEOUT).await.map_err(|error| match error {
            StorageError::VersionConflict { .. } => {
                Error::Conflict(format!("rule [{id}] was changed meanwhile"))
            }
            error => error.into(),
        })
    }
}

fn index_body() -> Value {
    let keyword = json!({"type": "keyword", "ignore_above": 8191});
    json!({
        "settings": {"index.number_of_shards": 1, "index.number_of_replicas": 0, "index.hidden": true},
        "mappings": {
            "dynamic": false,
            "properties": {
                "id": keyword,
                "alertrulename": {"type": "text", "fields": {"keyword": keyword}},
                "alertruleindexpattern": keyword,
                "alertruletype": keyword,
                "alertrulemethod": keyword,
                "alertruleimportance": {"type": "long"},
                "selectedroles": keyword,
                "enable": {"type": "boolean"},
                "state": {"properties": {"owner": keyword, "revision": {"type": "long"}}},
            },
        },
    })
}

/// Writes the document of a rule.
fn document(kept: &StoredRule) -> Value {
    let Rule { revision, since, owner, definition, .. } = &kept.rule;
    let quiet = kept
        .quiet
        .iter()
        .map(|quiet| json!({"key": quiet.key, "since": quiet.since, "until": quiet.until.ms()}));
    let mut document = definition.document();
    document["state"] = json!({
        "owner": owner,
        "revision": revision,
        "since": since,
        "quiet": quiet.collect::<Vec<_>>(),
    });
    if let Some(CatchUp { seen_from, raised_from }) = kept.catching_up {
        document["state"]["catching_up"] = json!({"seen_from": seen_from, "raised_from": raised_from});
    }
    document
}

/// Reads one.
fn read(id: &str, source: &[u8], version: Version) -> Result<StoredRule, String> {
    let mut document: Value = serde_json::from_slice(source).map_err(|error| error.to_string())?;
    let state = document.get_mut("state").map(Value::take).unwrap_or_default();
    let mut definition = Definition::parse_stored(&document).map_err(|error| error.to_string())?;
    definition.id = Some(id.to_owned());
    let number =
        |of: &Value, name: &str| of[name].as_u64().ok_or_else(|| format!("[state.{name}] is missing"));
    let quiet = state["quiet"].as_array().map(Vec::as_slice).unwrap_or_default().iter().map(|quiet| {
        Ok(SilenceOrder {
            key: quiet["key"].as_str().map(str::to_owned),
            since: number(quiet, "since")?,
            until: Time::from_ms(quiet["until"].as_i64().ok_or("[state.quiet.until] is missing")?),
        })
    });
    let catching_up = state.get("catching_up").map(|catching_up| {
        let seen_from =
            catching_up["seen_from"].as_i64().ok_or("[state.catching_up.seen_from] is missing")?;
        Ok::<_, String>(CatchUp { seen_from, raised_from: catching_up["raised_from"].as_i64() })
    });
    Ok(StoredRule {
        catching_up: catching_up.transpose()?,
        quiet: quiet.collect::<Result<_, String>>()?,
        rule: Rule {
            id: id.to_owned(),
            revision: number(&state, "revision")?,
            since: number(&state, "since")?,
            owner: state["owner"].as_str().ok_or("[state.owner] is missing")?.to_owned(),
            definition,
        },
        version: Some(version),
    })
}
