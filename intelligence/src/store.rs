//! Rules as documents of the system index `.intelligence_rules`: what users wrote, what runs maintain, and in `state` what the server
//! knows of a rule beside that.
//!
//! All of them are in memory, too. Changes are made one at a time, each written first as the replacement of the version that is in memory, so
//! that the two never disagree.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_engine::{Action, DocResult, Engine, RefreshPolicy, Session, WriteOp, WriteOutcome};
use millrace_runtime::Error as StorageError;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::definition::Definition;
use crate::error::{Error, Result};

/// The index.
pub(crate) const INDEX: &str = ".intelligence_rules";
/// Rules that there may be.
const MAX_RULES: usize = 5_000;
/// How long a write may wait for memory.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What runs maintain: shown beside the definition, and never set by who saves it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RunRecord {
    /// When the samples of the last run were there.
    pub(crate) preparation_date: Option<String>,
    pub(crate) machine_state_uid: Option<String>,
    /// There are none apart from the server's log.
    pub(crate) path_to_logs: Option<String>,
    /// Below the data directory.
    pub(crate) path_to_machine_state: Option<String>,
    #[serde(rename = "searchSourceJSON")]
    pub(crate) search_source: Option<String>,
    /// In seconds.
    pub(crate) processing_time: Option<f64>,
    pub(crate) last_execute_mili: Option<i64>,
    /// `yyyy-MM-dd HH:mm`.
    pub(crate) last_execute: Option<String>,
    pub(crate) last_execute_timestamp: Option<String>,
    /// Id of the process while it runs, else 0.
    pub(crate) pid: u32,
    /// 0 is success.
    pub(crate) exit_code: Option<i32>,
    pub(crate) error_description: Option<String>,
    pub(crate) error_message: Option<String>,
    /// When the trend line comes to the threshold.
    pub(crate) threshold_time: Option<String>,
}

/// What the server knows of a rule beside that.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct State {
    /// Who saved it last: it runs with the rights of this user.
    pub(crate) owner: String,
    /// What the saved search said then ([`crate::source::Source::digest`]); empty in rules of a version before, until they are loaded.
    pub(crate) search_digest: String,
    /// Grows by one with each change of the definition.
    pub(crate) revision: u64,
    /// The latest time of the schedule that was seen to, or when it was saved.
    pub(crate) handled_ms: i64,
    /// Runs of the schedule that the server did not live to see the end of, one after another.
    pub(crate) tries: u32,
    /// From when the last step over history predicted.
    pub(crate) walked_ms: Option<i64>,
    /// Predictions before this time have their `_cur`, or never get one.
    pub(crate) filled_ms: Option<i64>,
    /// The last predicted time.
    pub(crate) ends_ms: Option<i64>,
}

impl State {
    /// Takes back what was noted by a clock that was ahead: what is to come has not been seen to, and what it was is not known.
    pub(crate) fn set_back(&mut self, now_ms: i64) {
        self.handled_ms = self.handled_ms.min(now_ms);
        self.walked_ms = self.walked_ms.map(|walked| walked.min(now_ms));
        self.filled_ms = self.filled_ms.map(|filled| filled.min(now_ms));
    }
}

/// A rule with what belongs to it.
#[derive(Clone, Debug)]
pub(crate) struct StoredRule {
    pub(crate) id: String,
    pub(crate) definition: Arc<Definition>,
    pub(crate) ran: RunRecord,
    pub(crate) state: State,
    /// Which document it is; `None` before it is stored.
    version: Option<Version>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Version {
    seq_no: u64,
    primary_term: u64,
}

impl StoredRule {
    /// Makes a rule that was not there before.
    pub(crate) fn new(id: String, definition: Definition, state: State) -> Self {
        Self { id, definition: Arc::new(definition), ran: RunRecord::default(), state, version: None }
    }

    /// Writes the document as it is shown, without `state`.
    pub(crate) fn shown(&self) -> Value {
        let mut members = self.definition.document();
        if let Ok(Value::Object(ran)) = serde_json::to_value(&self.ran) {
            members.extend(ran);
        }
        Value::Object(members)
    }

    fn document(&self) -> Value {
        let mut document = self.shown();
        document["state"] = serde_json::to_value(&self.state).unwrap_or_default();
        document
    }

    fn read(id: &str, source: &[u8], version: Version) -> Result<Self, String> {
        let document: Value = serde_json::from_slice(source).map_err(|error| error.to_string())?;
        let definition = Definition::parse(&document).map_err(|error| error.to_string())?;
        let state = serde_json::from_value(document["state"].clone()).map_err(|error| error.to_string())?;
        let ran = serde_json::from_value(document).map_err(|error| error.to_string())?;
        Ok(Self { id: id.to_owned(), definition: Arc::new(definition), ran, state, version: Some(version) })
    }
}

/// Keeps rules.
#[derive(Debug)]
pub(crate) struct Store {
    engine: Arc<Engine>,
    session: Session,
    rules: RwLock<BTreeMap<String, Arc<StoredRule>>>,
    /// Held by a change from its reading to its writing.
    changing: tokio::sync::Mutex<()>,
    /// What was found in the index that is no rule, by id.
    unreadable: RwLock<BTreeMap<String, UnreadableRule>>,
}

/// A document that is no rule.
#[derive(Debug)]
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
                        match StoredRule::read(&id, source, version) {
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
        Ok(Self {
            engine: Arc::clone(engine),
            session: Session::system(engine),
            rules: RwLock::new(rules),
            changing: tokio::sync::Mutex::default(),
            unreadable: RwLock::new(unreadable),
        })
    }

    /// Returns all rules, in the order of their ids.
    pub(crate) fn all(&self) -> Vec<Arc<StoredRule>> {
        self.rules.read().values().cloned().collect()
    }

    /// Returns a rule.
    pub(crate) fn get(&self, id: &str) -> Option<Arc<StoredRule>> {
        self.rules.read().get(id).cloned()
    }

    /// Tells what was found that is no rule, and what can be done with it.
    pub(crate) fn unreadable(&self) -> Vec<String> {
        let unreadable = self.unreadable.read();
        let said = unreadable.iter().map(|(id, UnreadableRule { reason, .. })| {
            format!("AI rule [{id}] cannot be read, save it anew with its id or delete it: {reason}")
        });
        said.collect()
    }

    /// Whether what has an id is no rule.
    pub(crate) fn is_unreadable(&self, id: &str) -> bool {
        self.unreadable.read().contains_key(id)
    }

    /// Stores a rule that is new, or in the place of what has its id and is no rule.
    ///
    /// # Errors
    /// [`Error::Conflict`] for a name that another one has, [`Error::TooMany`], the store's.
    pub(crate) async fn create(&self, mut kept: StoredRule) -> Result<()> {
        let _changing = self.changing.lock().await;
        kept.version = self.unreadable.read().get(&kept.id).map(|unreadable| unreadable.version);
        let there = self.rules.read().len();
        if there >= MAX_RULES {
            return Err(Error::TooMany(format!("there are {there} AI rules; {MAX_RULES} are allowed")));
        }
        self.check_name(&kept)?;
        self.put(kept, RefreshPolicy::Immediate).await
    }

    /// Changes what users wrote.
    ///
    /// # Errors
    /// [`Error::NotFound`]; as [`Store::create`].
    pub(crate) async fn update(&self, id: &str, change: impl FnOnce(&mut StoredRule)) -> Result<()> {
        let _changing = self.changing.lock().await;
        let mut kept = StoredRule::clone(&*self.get(id).ok_or_else(|| Error::NotFound(id.to_owned()))?);
        change(&mut kept);
        self.check_name(&kept)?;
        self.put(kept, RefreshPolicy::Immediate).await
    }

    /// Changes what the server knows.
    ///
    /// # Errors
    /// [`Error::NotFound`], the store's.
    pub(crate) async fn note(&self, id: &str, change: impl FnOnce(&mut StoredRule)) -> Result<()> {
        let _changing = self.changing.lock().await;
        let mut kept = StoredRule::clone(&*self.get(id).ok_or_else(|| Error::NotFound(id.to_owned()))?);
        change(&mut kept);
        self.put(kept, RefreshPolicy::None).await
    }

    /// Deletes a rule, or what has its id and is none.
    ///
    /// # Errors
    /// [`Error::NotFound`], the store's.
    pub(crate) async fn delete(&self, id: &str) -> Result<()> {
        let _changing = self.changing.lock().await;
        let unreadable = self.unreadable.read().get(id).map(|unreadable| unreadable.version);
        let version = match self.get(id) {
            Some(kept) => kept.version,
            None => Some(unreadable.ok_or_else(|| Error::NotFound(id.to_owned()))?),
        };
        let outcome = self.write(id, Action::Delete, version, RefreshPolicy::Immediate).await?;
        self.rules.write().remove(id);
        self.unreadable.write().remove(id);
        match outcome.result {
            DocResult::NotFound => Err(Error::NotFound(id.to_owned())),
            _ => Ok(()),
        }
    }

    /// Names are in the ids of predictions: no two rules have the same.
    fn check_name(&self, kept: &StoredRule) -> Result<()> {
        let name = &kept.definition.name;
        let rules = self.rules.read();
        match rules.values().find(|other| other.id != kept.id && other.definition.name == *name) {
            Some(other) => {
                Err(Error::Conflict(format!("[model_name] [{name}] is that of AI rule [{}]", other.id)))
            }
            None => Ok(()),
        }
    }

    async fn put(&self, mut kept: StoredRule, refresh: RefreshPolicy) -> Result<()> {
        let document = Bytes::from(kept.document().to_string());
        let action = match kept.version {
            None => Action::Create(document),
            Some(_) => Action::Index(document),
        };
        let outcome = self.write(&kept.id, action, kept.version, refresh).await?;
        kept.version = Some(Version { seq_no: outcome.seq_no, primary_term: outcome.primary_term });
        self.unreadable.write().remove(&kept.id);
        self.rules.write().insert(kept.id.clone(), Arc::new(kept));
        Ok(())
    }

    async fn write(
        &self,
        id: &str,
        action: Action,
        version: Option<Version>,
        refresh: RefreshPolicy,
    ) -> Result<WriteOutcome> {
        self.engine.make_own_index(INDEX, &index_body()).await?;
        let op = WriteOp {
            if_seq_no: version.map(|version| version.seq_no),
            if_primary_term: version.map(|version| version.primary_term),
            ..WriteOp::new(INDEX, Some(id.to_owned()), action)
        };
        self.session.write_one(op, refresh, TIMEOUT).await.map_err(|error| match error {
            StorageError::VersionConflict { .. } => {
                Error::Conflict(format!("AI rule [{id}] was changed meanwhile"))
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
                "model_name": {"type": "text", "fields": {"keyword": keyword}},
                "algorithm_type": keyword,
                "search": keyword,
                "label_field": {"properties": {"field": keyword}},
                "time_frame": keyword,
                "value_type": keyword,
                "automatic": {"type": "boolean"},
                "automatic_enable": {"type": "boolean"},
                "selectedroles": keyword,
                "last_execute_mili": {"type": "long"},
                "pid": {"type": "long"},
                "exit_code": {"type": "long"},
                "state": {"properties": {"owner": keyword, "revision": {"type": "long"}}},
            },
        },
    })
}
