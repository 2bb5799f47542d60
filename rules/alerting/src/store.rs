//! Rules as documents of the system index `.alertrules`: the definition as users write it, and beside it, in `state`, the
//! server's members: owner, revision, the last frame that it does not see, and silences.
//!
//! All of them are in memory, too ([`DocumentMirror`]).

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use millrace_catalog::metadata::Metadata;
use millrace_engine::{
    DocumentMirror, DocumentVersion, Engine, FEED_PIPELINE, MirroredDocument, RESTORED_PARTITION,
    RULES_READER, RefreshPolicy, RestoredPosition, SystemDocument, UnreadableDocument,
};
use millrace_rules::Time;
use millrace_rules::definition::Definition;
use millrace_rules::engine::{Rule, SilenceOrder};
use millrace_runtime::Error as StorageError;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::backfill::{BackfillRange, RestoredHistory};
use crate::commit;
use crate::error::{Error, Result};

/// Index of the rules.
pub const RULES_INDEX: &str = ".alertrules";
/// Rules that are written side by side.
const WRITTEN_AT_ONCE: usize = 64;
/// Rules that there may be.
const MAX_RULES: usize = 20_000;

/// A rule with what belongs to it.
#[derive(Clone, Debug)]
pub(crate) struct StoredRule {
    /// The rule.
    pub(crate) rule: Rule,
    /// Orders to be quiet.
    pub(crate) quiet: Vec<SilenceOrder>,
    /// Stored documents that the rule has to see before it sees new ones.
    pub(crate) backfill: Option<BackfillRange>,
    /// Version of the document; `None` before it is stored.
    pub(crate) version: Option<DocumentVersion>,
}

impl SystemDocument for StoredRule {
    const INDEX: &'static str = RULES_INDEX;

    fn index_body() -> Value {
        index_body()
    }

    fn encode(&self) -> Bytes {
        Bytes::from(document(self).to_string())
    }

    fn decode(id: &str, source: &Bytes) -> Result<Self, String> {
        read(id, source)
    }
}

impl MirroredDocument for StoredRule {
    fn id(&self) -> &str {
        &self.rule.id
    }

    fn version(&self) -> Option<DocumentVersion> {
        self.version
    }

    fn set_version(&mut self, version: DocumentVersion) {
        self.version = Some(version);
    }
}

impl StoredRule {
    /// Returns whether its document is as a restore has brought it; `own` is the first sequence number of this store.
    fn is_restored(&self, own: Option<u64>) -> bool {
        let seq_no = self.version.map(|version| version.seq_no);
        seq_no.is_some_and(|seq_no| own.is_some_and(|own| seq_no < own))
    }
}

/// Returns the first sequence number behind those of a restore; `None` where the index was not restored.
fn first_own_seq_no(metadata: &Metadata) -> Option<u64> {
    let index = metadata.index(StoredRule::INDEX).filter(|meta| meta.is_restored());
    index.map(|meta| meta.restored_seq_nos(0).end)
}

/// Keeps rules.
#[derive(Debug)]
pub(crate) struct Store {
    rules: DocumentMirror<StoredRule>,
}

impl Store {
    /// Reads all rules.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn load(engine: &Arc<Engine>) -> Result<Self> {
        Ok(Self { rules: DocumentMirror::load(engine).await? })
    }

    /// Brings rules of a restored index to this log, whose frames have other numbers than those of the snapshot's log. With a restored
    /// position they go on where they were; without one they begin behind the frame `since`. Returns the number of these rules.
    ///
    /// # Errors
    /// The store's; the rules before are stored then.
    pub(crate) async fn rebase_restored(
        &self,
        engine: &Engine,
        last_frame: u64,
        since: u64,
    ) -> Result<usize> {
        let position = restored_position(engine);
        let metadata = engine.metadata();
        let index = metadata.index(StoredRule::INDEX).filter(|meta| meta.is_restored());
        let own_seq_nos = first_own_seq_no(&metadata);
        let of_snapshot = position.as_ref().map(|(_, position)| *position);
        let of_snapshot =
            of_snapshot.filter(|it| index.is_some_and(|meta| meta.is_restored_from(&it.snapshot)));
        let is_restored = |kept: &StoredRule| kept.is_restored(own_seq_nos);
        let is_ahead = |kept: &StoredRule| {
            kept.rule.since > last_frame || kept.quiet.iter().any(|quiet| quiet.since > last_frame)
        };
        let ahead = self.rules.filter(|kept| is_restored(kept) || is_ahead(kept));
        let mut rebased = Vec::with_capacity(ahead.len());
        for kept in &ahead {
            let (mut kept, is_restored) = (StoredRule::clone(kept), is_restored(kept));
            let restored = of_snapshot.filter(|_| is_restored);
            let begin = match restored {
                Some(position) => position.last_frame.min(last_frame),
                None if is_restored => since,
                None => last_frame,
            };
            if let Some(position) = restored
                && kept.backfill.is_none()
                && kept.rule.definition.enabled
            {
                let history = RestoredHistory {
                    snapshot: position.snapshot,
                    since: kept.rule.since,
                    next_frame: position.next_frame,
                    snapshot_ms: position.snapshot_ms,
                    loaded_ms: engine.clock().now_ms(),
                };
                kept.backfill = Some(BackfillRange::restored(history));
            }
            // Frames of the snapshot's log may have smaller numbers.
            kept.rule.since = if is_restored { begin } else { kept.rule.since.min(begin) };
            for quiet in &mut kept.quiet {
                quiet.since = quiet.since.min(begin);
            }
            rebased.push(kept);
        }
        // Side by side, so that they share the syncs of the log.
        while !rebased.is_empty() {
            let some = rebased.drain(..rebased.len().min(WRITTEN_AT_ONCE));
            let writes: Vec<_> = some.map(|kept| self.rules.put(kept, RefreshPolicy::None)).collect();
            join_all(writes).await.into_iter().collect::<Result<Vec<_>, _>>()?;
        }
        if let Some((stored, _)) = position {
            commit::forget_restored_position(engine, stored).await?;
        }
        Ok(ahead.len())
    }

    /// Returns whether a restore has brought rules that are not rebased yet.
    pub(crate) fn has_restored(&self, engine: &Engine) -> bool {
        let own_seq_nos = first_own_seq_no(&engine.metadata());
        !self.rules.filter(|kept| kept.is_restored(own_seq_nos)).is_empty()
    }

    /// Takes over rules that were loaded later.
    pub(crate) fn replace(&self, newer: Self) {
        self.rules.replace(newer.rules);
    }

    /// Returns all rules, in the order of their ids.
    pub(crate) fn all(&self) -> Vec<Arc<StoredRule>> {
        self.rules.all()
    }

    /// Returns those that have to catch up, in the order of their ids.
    pub(crate) fn backfilled_rules(&self) -> Vec<Arc<StoredRule>> {
        self.rules.filter(|kept| kept.backfill.is_some() && kept.rule.definition.enabled)
    }

    /// Returns whether there is no rule.
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns a rule.
    pub(crate) fn get(&self, id: &str) -> Option<Arc<StoredRule>> {
        self.rules.get(id)
    }

    /// Finds a rule by its name.
    pub(crate) fn named(&self, name: &str) -> Option<Arc<StoredRule>> {
        self.rules.find(|kept| kept.rule.definition.name == name)
    }

    /// Describes documents that are no rules, and their remedy.
    pub(crate) fn unreadable(&self) -> Vec<String> {
        let said = self.rules.unreadable().into_iter().map(|UnreadableDocument { id, reason, .. }| {
            format!("rule [{id}] cannot be read, save it anew with its id or delete it: {reason}")
        });
        said.collect()
    }

    /// Returns which document it is that has an id and is no rule: a rule that is saved takes its place.
    pub(crate) fn version_of_unreadable(&self, id: &str) -> Option<DocumentVersion> {
        self.rules.unreadable_version(id)
    }

    /// Looks again at what is no rule: by now it may be gone, or one. Returns those that are.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn look_again(&self) -> Result<Vec<Arc<StoredRule>>> {
        Ok(self.rules.reread_unreadable().await?)
    }

    /// Deletes what is no rule; returns whether there was something with that id.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub(crate) async fn delete_unreadable(&self, id: &str) -> Result<bool> {
        let Some(version) = self.version_of_unreadable(id) else { return Ok(false) };
        let deleted = self.rules.delete(id, Some(version), RefreshPolicy::Immediate).await;
        deleted.map(|_| true).map_err(|error| named_conflict(id, error))
    }

    /// Refuses one more rule beyond the bound.
    ///
    /// # Errors
    /// [`Error::TooMany`].
    pub(crate) fn check_room(&self) -> Result<()> {
        match self.rules.len() {
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
    pub(crate) async fn put(&self, kept: StoredRule) -> Result<Arc<StoredRule>> {
        let id = kept.rule.id.clone();
        let put = self.rules.put(kept, RefreshPolicy::Immediate).await;
        put.map_err(|error| named_conflict(&id, error))
    }

    /// Deletes a rule.
    ///
    /// # Errors
    /// As [`Store::put`]; [`Error::NotFound`].
    pub(crate) async fn delete(&self, kept: &StoredRule) -> Result<()> {
        let id = &kept.rule.id;
        let deleted = self.rules.delete(id, kept.version, RefreshPolicy::Immediate).await;
        match deleted.map_err(|error| named_conflict(id, error))? {
            true => Ok(()),
            false => Err(Error::NotFound(id.clone())),
        }
    }
}

/// Names the rule of a conflict of versions.
fn named_conflict(id: &str, error: StorageError) -> Error {
    match error {
        StorageError::VersionConflict { .. } => Error::Conflict(format!("rule [{id}] was changed meanwhile")),
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
    if let Some(BackfillRange { seen_from, raised_from, restored }) = kept.backfill {
        document["state"]["catching_up"] = json!({"seen_from": seen_from, "raised_from": raised_from});
        if let Some(restored) = restored {
            document["state"]["catching_up"]["restored"] = json!({
                "snapshot": restored.snapshot.to_string(),
                "since": restored.since,
                "next_frame": restored.next_frame,
                "snapshot_ms": restored.snapshot_ms,
                "loaded_ms": restored.loaded_ms,
            });
        }
    }
    document
}

/// Reads the restored position with its stored form; `None` where no restore has brought one since the last start.
fn restored_position(engine: &Engine) -> Option<(Bytes, RestoredPosition)> {
    let positions = engine.positions(FEED_PIPELINE, RULES_READER);
    let (_, stored) = positions.into_iter().find(|(partition, _)| partition == RESTORED_PARTITION)?;
    let position = RestoredPosition::decode(&stored)?;
    Some((stored, position))
}

fn read_restored(restored: &Value) -> Result<RestoredHistory, String> {
    let missing = |name: &str| format!("[state.catching_up.restored.{name}] is missing");
    let frame = |name: &str| restored[name].as_u64().ok_or_else(|| missing(name));
    let time = |name: &str| restored[name].as_i64().ok_or_else(|| missing(name));
    let snapshot = restored["snapshot"].as_str().and_then(|text| Uuid::parse_str(text).ok());
    Ok(RestoredHistory {
        snapshot: snapshot.ok_or_else(|| missing("snapshot"))?,
        since: frame("since")?,
        next_frame: frame("next_frame")?,
        snapshot_ms: time("snapshot_ms")?,
        loaded_ms: time("loaded_ms")?,
    })
}

/// Reads one.
fn read(id: &str, source: &[u8]) -> Result<StoredRule, String> {
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
    let backfill = state.get("catching_up").map(|backfill| {
        let seen_from = backfill["seen_from"].as_i64().ok_or("[state.catching_up.seen_from] is missing")?;
        let restored = backfill.get("restored").map(read_restored).transpose()?;
        Ok::<_, String>(BackfillRange { seen_from, raised_from: backfill["raised_from"].as_i64(), restored })
    });
    Ok(StoredRule {
        backfill: backfill.transpose()?,
        quiet: quiet.collect::<Result<_, String>>()?,
        rule: Rule {
            id: id.to_owned(),
            revision: number(&state, "revision")?,
            since: number(&state, "since")?,
            owner: state["owner"].as_str().ok_or("[state.owner] is missing")?.to_owned(),
            definition,
        },
        version: None,
    })
}
