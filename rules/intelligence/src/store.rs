//! Rules as documents of the system index `.intelligence_rules`: the users' definition, the members that runs maintain, and in
//! `state` the server's own members.
//!
//! All of them are in memory, too ([`DocumentMirror`]). Changes are made one at a time.

use std::sync::Arc;

use bytes::Bytes;
use millrace_catalog::metadata::Metadata;
use millrace_engine::{
    DocumentMirror, DocumentVersion, Engine, MirroredDocument, RefreshPolicy, SystemDocument,
    UnreadableDocument,
};
use millrace_runtime::Error as StorageError;
use millrace_schedule::Schedule;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::definition::Definition;
use crate::detectors::{self, StoredDetector};
use crate::error::{Error, Result};

/// The index.
pub const INDEX: &str = ".intelligence_rules";
/// Rules that there may be.
const MAX_RULES: usize = 5_000;

/// Members that runs maintain: shown beside the definition, and never set by a caller that saves it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RunRecord {
    /// Time at which the samples of the last run were ready.
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
    /// Time at which the trend line reaches the threshold.
    pub(crate) threshold_time: Option<String>,
}

/// State that the server keeps of a rule beside that.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct State {
    /// User that saved it last: it runs with the rights of this user.
    pub(crate) owner: String,
    /// Digest of the saved search at that time ([`crate::source::Source::digest`]); empty in rules of a version before, until
    /// they are loaded.
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
    /// Takes back notes of a clock that was ahead: times to come count as not processed, and their actual values as unknown.
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
    /// Version of the document; `None` before it is stored.
    version: Option<DocumentVersion>,
}

impl StoredRule {
    /// Makes a rule that was not there before.
    pub(crate) fn new(id: String, definition: Definition, state: State) -> Self {
        Self { id, definition: Arc::new(definition), ran: RunRecord::default(), state, version: None }
    }

    /// Writes the document as it is shown, without `state`.
    pub(crate) fn to_json(&self) -> Value {
        let mut members = self.definition.document();
        if let Ok(Value::Object(ran)) = serde_json::to_value(&self.ran) {
            members.extend(ran);
        }
        Value::Object(members)
    }

    fn document(&self) -> Value {
        let mut document = self.to_json();
        document["state"] = serde_json::to_value(&self.state).unwrap_or_default();
        document
    }

    fn read(id: &str, document: Value) -> Result<Self, String> {
        let definition = Definition::parse(&document).map_err(|error| error.to_string())?;
        let state = serde_json::from_value(document["state"].clone()).map_err(|error| error.to_string())?;
        let ran = serde_json::from_value(document).map_err(|error| error.to_string())?;
        Ok(Self { id: id.to_owned(), definition: Arc::new(definition), ran, state, version: None })
    }
}

/// The document of a rule of either variant; `model_type` tells them apart.
#[derive(Clone, Debug)]
pub(crate) enum RuleDocument {
    Forecast(Arc<StoredRule>),
    Detector(Arc<StoredDetector>),
}

impl RuleDocument {
    /// Returns its id.
    pub(crate) fn id(&self) -> &str {
        match self {
            Self::Forecast(kept) => &kept.id,
            Self::Detector(kept) => &kept.id,
        }
    }

    /// Returns its name, which no other rule has.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Forecast(kept) => &kept.definition.name,
            Self::Detector(kept) => &kept.definition.name,
        }
    }

    /// Returns the roles that may see and run it, beside the administrators.
    pub(crate) fn roles(&self) -> &[String] {
        match self {
            Self::Forecast(kept) => &kept.definition.roles,
            Self::Detector(kept) => &kept.definition.roles,
        }
    }

    /// Returns the revision of its definition.
    pub(crate) fn revision(&self) -> u64 {
        match self {
            Self::Forecast(kept) => kept.state.revision,
            Self::Detector(kept) => kept.state.revision,
        }
    }

    /// Returns the latest time of its schedule that was seen to.
    pub(crate) fn handled_ms(&self) -> i64 {
        match self {
            Self::Forecast(kept) => kept.state.handled_ms,
            Self::Detector(kept) => kept.state.handled_ms,
        }
    }

    /// Returns its schedule.
    pub(crate) fn schedule(&self) -> &Schedule {
        match self {
            Self::Forecast(kept) => &kept.definition.schedule,
            Self::Detector(kept) => &kept.definition.schedule,
        }
    }

    /// Returns whether it runs by its schedule.
    pub(crate) fn is_scheduled(&self) -> bool {
        match self {
            Self::Forecast(kept) => kept.definition.is_scheduled(),
            Self::Detector(kept) => kept.definition.is_scheduled(),
        }
    }

    /// Returns the user that saved it last.
    pub(crate) fn owner(&self) -> &str {
        match self {
            Self::Forecast(kept) => &kept.state.owner,
            Self::Detector(kept) => &kept.state.owner,
        }
    }
}

impl SystemDocument for RuleDocument {
    const INDEX: &'static str = INDEX;

    fn index_body() -> Value {
        index_body()
    }

    fn encode(&self) -> Bytes {
        let document = match self {
            Self::Forecast(kept) => kept.document(),
            Self::Detector(kept) => kept.document(),
        };
        Bytes::from(document.to_string())
    }

    fn decode(id: &str, source: &Bytes) -> Result<Self, String> {
        let document: Value = serde_json::from_slice(source).map_err(|error| error.to_string())?;
        match document.get("model_type") {
            Some(_) => StoredDetector::read(id, document).map(|kept| Self::Detector(Arc::new(kept))),
            None => StoredRule::read(id, document).map(|kept| Self::Forecast(Arc::new(kept))),
        }
    }
}

impl MirroredDocument for RuleDocument {
    fn id(&self) -> &str {
        Self::id(self)
    }

    fn version(&self) -> Option<DocumentVersion> {
        match self {
            Self::Forecast(kept) => kept.version,
            Self::Detector(kept) => kept.version,
        }
    }

    fn set_version(&mut self, version: DocumentVersion) {
        match self {
            Self::Forecast(kept) => Arc::make_mut(kept).version = Some(version),
            Self::Detector(kept) => Arc::make_mut(kept).version = Some(version),
        }
    }
}

/// Keeps rules.
#[derive(Debug)]
pub(crate) struct Store {
    rules: DocumentMirror<RuleDocument>,
    /// Held by a change from its reading to its writing.
    changing: tokio::sync::Mutex<()>,
}

impl Store {
    /// Reads all rules.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn load(engine: &Arc<Engine>) -> Result<Self> {
        Ok(Self { rules: DocumentMirror::load(engine).await?, changing: tokio::sync::Mutex::default() })
    }

    /// Brings detectors that a snapshot brought to this log, whose frames have other numbers: they are asked of all that it has.
    ///
    /// # Errors
    /// The store's; the detectors before are stored then.
    pub(crate) async fn rebase_restored(&self, metadata: &Metadata) -> Result<()> {
        let Some(index) = metadata.index(INDEX).filter(|meta| meta.is_restored()) else { return Ok(()) };
        let own_seq_nos = index.restored_seq_nos(0).end;
        for kept in self.detectors() {
            let is_restored = kept.version.is_some_and(|version| version.seq_no < own_seq_nos);
            if is_restored && kept.state.since.is_some() {
                self.note_detector(&kept.id, |kept| kept.state.since = Some(0)).await?;
            }
        }
        Ok(())
    }

    /// Reads the rules again, once a restore has replaced their index. `is_running` tells the rules whose runs end later.
    ///
    /// # Errors
    /// The store's; the rules of before then stay in memory.
    pub(crate) async fn reload(&self, now_ms: i64, is_running: impl Fn(&str) -> bool) -> Result<()> {
        let _changing = self.changing.lock().await;
        let engine = self.rules.engine();
        let newer = Self::load(engine).await?;
        newer.rebase_restored(&engine.metadata()).await?;
        newer.note_interrupted(now_ms, is_running).await?;
        self.rules.replace(newer.rules);
        Ok(())
    }

    /// Notes the runs that no process will end.
    ///
    /// # Errors
    /// The store's.
    async fn note_interrupted(&self, now_ms: i64, is_running: impl Fn(&str) -> bool) -> Result<()> {
        for kept in self.all().into_iter().filter(|kept| kept.ran.pid != 0 && !is_running(&kept.id)) {
            self.note(&kept.id, |kept| crate::mark_interrupted(kept, now_ms)).await?;
        }
        for kept in self.detectors().into_iter().filter(|kept| kept.ran.pid != 0 && !is_running(&kept.id)) {
            self.note_detector(&kept.id, |kept| detectors::mark_interrupted(kept, now_ms)).await?;
        }
        Ok(())
    }

    /// Returns the rules of both variants, in the order of their ids.
    pub(crate) fn documents(&self) -> Vec<Arc<RuleDocument>> {
        self.rules.all()
    }

    /// Returns a rule of either variant.
    pub(crate) fn document(&self, id: &str) -> Option<Arc<RuleDocument>> {
        self.rules.get(id)
    }

    /// Returns all forecasts, in the order of their ids.
    pub(crate) fn all(&self) -> Vec<Arc<StoredRule>> {
        let forecast = |document: Arc<RuleDocument>| match &*document {
            RuleDocument::Forecast(kept) => Some(Arc::clone(kept)),
            RuleDocument::Detector(_) => None,
        };
        self.rules.all().into_iter().filter_map(forecast).collect()
    }

    /// Returns a forecast.
    pub(crate) fn get(&self, id: &str) -> Option<Arc<StoredRule>> {
        match &*self.rules.get(id)? {
            RuleDocument::Forecast(kept) => Some(Arc::clone(kept)),
            RuleDocument::Detector(_) => None,
        }
    }

    /// Returns all detectors, in the order of their ids.
    pub(crate) fn detectors(&self) -> Vec<Arc<StoredDetector>> {
        let detector = |document: Arc<RuleDocument>| match &*document {
            RuleDocument::Forecast(_) => None,
            RuleDocument::Detector(kept) => Some(Arc::clone(kept)),
        };
        self.rules.all().into_iter().filter_map(detector).collect()
    }

    /// Returns a detector.
    pub(crate) fn detector(&self, id: &str) -> Option<Arc<StoredDetector>> {
        match &*self.rules.get(id)? {
            RuleDocument::Forecast(_) => None,
            RuleDocument::Detector(kept) => Some(Arc::clone(kept)),
        }
    }

    /// Describes documents that are no rules, and their remedy.
    pub(crate) fn unreadable(&self) -> Vec<String> {
        let said = self.rules.unreadable().into_iter().map(|UnreadableDocument { id, reason, .. }| {
            format!("AI rule [{id}] cannot be read, save it anew with its id or delete it: {reason}")
        });
        said.collect()
    }

    /// Returns whether what has an id is no rule.
    pub(crate) fn is_unreadable(&self, id: &str) -> bool {
        self.rules.unreadable_version(id).is_some()
    }

    /// Stores a rule that is new, or in the place of what has its id and is no rule.
    ///
    /// # Errors
    /// [`Error::Conflict`] for a name that another one has, [`Error::TooMany`], the store's.
    pub(crate) async fn create(&self, mut document: RuleDocument) -> Result<()> {
        let _changing = self.changing.lock().await;
        if let Some(version) = self.rules.unreadable_version(document.id()) {
            document.set_version(version);
        }
        let there = self.rules.len();
        if there >= MAX_RULES {
            return Err(Error::TooMany(format!("there are {there} AI rules; {MAX_RULES} are allowed")));
        }
        self.check_name(&document)?;
        self.put(document, RefreshPolicy::Immediate).await
    }

    /// Changes what users wrote.
    ///
    /// # Errors
    /// [`Error::NotFound`]; as [`Store::create`].
    pub(crate) async fn update(&self, id: &str, change: impl FnOnce(&mut StoredRule)) -> Result<()> {
        let _changing = self.changing.lock().await;
        let mut kept = StoredRule::clone(&*self.get(id).ok_or_else(|| Error::NotFound(id.to_owned()))?);
        change(&mut kept);
        let document = RuleDocument::Forecast(Arc::new(kept));
        self.check_name(&document)?;
        self.put(document, RefreshPolicy::Immediate).await
    }

    /// Changes what the server knows.
    ///
    /// # Errors
    /// [`Error::NotFound`], the store's.
    pub(crate) async fn note(&self, id: &str, change: impl FnOnce(&mut StoredRule)) -> Result<()> {
        let _changing = self.changing.lock().await;
        let mut kept = StoredRule::clone(&*self.get(id).ok_or_else(|| Error::NotFound(id.to_owned()))?);
        change(&mut kept);
        self.put(RuleDocument::Forecast(Arc::new(kept)), RefreshPolicy::None).await
    }

    /// Changes what users wrote of a detector.
    ///
    /// # Errors
    /// [`Error::NotFound`]; as [`Store::create`].
    pub(crate) async fn update_detector(
        &self,
        id: &str,
        change: impl FnOnce(&mut StoredDetector),
    ) -> Result<()> {
        let _changing = self.changing.lock().await;
        let kept = self.detector(id).ok_or_else(|| Error::NotFound(id.to_owned()))?;
        let mut kept = StoredDetector::clone(&kept);
        change(&mut kept);
        let document = RuleDocument::Detector(Arc::new(kept));
        self.check_name(&document)?;
        self.put(document, RefreshPolicy::Immediate).await
    }

    /// Changes what the server knows of a detector.
    ///
    /// # Errors
    /// [`Error::NotFound`], the store's.
    pub(crate) async fn note_detector(
        &self,
        id: &str,
        change: impl FnOnce(&mut StoredDetector),
    ) -> Result<()> {
        let _changing = self.changing.lock().await;
        let kept = self.detector(id).ok_or_else(|| Error::NotFound(id.to_owned()))?;
        let mut kept = StoredDetector::clone(&kept);
        change(&mut kept);
        self.put(RuleDocument::Detector(Arc::new(kept)), RefreshPolicy::None).await
    }

    /// Deletes a rule, or what has its id and is none.
    ///
    /// # Errors
    /// [`Error::NotFound`], the store's.
    pub(crate) async fn delete(&self, id: &str) -> Result<()> {
        let _changing = self.changing.lock().await;
        let unreadable = self.rules.unreadable_version(id);
        let version = match self.document(id) {
            Some(document) => document.version(),
            None => Some(unreadable.ok_or_else(|| Error::NotFound(id.to_owned()))?),
        };
        let deleted = self.rules.delete(id, version, RefreshPolicy::Immediate).await;
        match deleted.map_err(|error| named_conflict(id, error))? {
            true => Ok(()),
            false => Err(Error::NotFound(id.to_owned())),
        }
    }

    /// Names are in the ids of predictions: no two rules have the same.
    fn check_name(&self, document: &RuleDocument) -> Result<()> {
        let name = document.name();
        let member = match document {
            RuleDocument::Forecast(_) => "model_name",
            RuleDocument::Detector(_) => "name",
        };
        match self.rules.find(|other| other.id() != document.id() && other.name() == name) {
            Some(other) => {
                Err(Error::Conflict(format!("[{member}] [{name}] is that of AI rule [{}]", other.id())))
            }
            None => Ok(()),
        }
    }

    async fn put(&self, document: RuleDocument, refresh: RefreshPolicy) -> Result<()> {
        let id = document.id().to_owned();
        self.rules.put(document, refresh).await.map(drop).map_err(|error| named_conflict(&id, error))
    }
}

/// Names the AI rule of a conflict of versions.
fn named_conflict(id: &str, error: StorageError) -> Error {
    match error {
        StorageError::VersionConflict { .. } => {
            Error::Conflict(format!("AI rule [{id}] was changed meanwhile"))
        }
        error => error.into(),
    }
}

fn index_body() -> Value {
    let keyword = json!({"type": "keyword", "ignore_above": 8191});
    json!({
        "settings": {"index.number_of_shards": 1, "index.number_of_replicas": 0, "index.hidden": true},
        "mappings": {
            "dynamic": false,
            "properties": {
                "name": {"type": "text", "fields": {"keyword": keyword}},
                "model_type": keyword,
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
