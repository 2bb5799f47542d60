//! Restoring an index of a snapshot: its name, aliases and settings in this store.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use millrace_mapping::pattern;
use millrace_runtime::{Error, Result};
use serde_json::{Map, Value};

use super::aliases::check_alias_consistent;
use super::create::{expand_replicas, number};
use super::data_streams::{DATA_STREAM, TIMESTAMP_FIELD};
use super::names::{check_alias_name, check_index_name};
use super::rollover::ROLLOVER_INFO;
use super::{IndexMeta, Metadata, MetadataChange, RESIZE_PENDING, Uuid, index_settings};
use crate::access::{Action, backed_stream};

/// Setting with the sequence number of each shard below which operations came from a snapshot, not from this store's log.
const RESTORED_SEQ_NOS: &str = "index.restored.seq_nos";

/// Setting with the sequence number of each shard below which operations were restored already in the store of the snapshot.
const EARLIER_SEQ_NOS: &str = "index.restored.earlier_seq_nos";

/// Setting with the uuid of the snapshot that an index was restored from.
const RESTORED_SNAPSHOT: &str = "index.restored.snapshot";

/// Setting of a restored index whose files are not all here: it is searched, and takes no writes.
pub const RESTORE_PENDING: &str = "index.restore.pending";

/// Settings that a restored index needs.
const REQUIRED: [&str; 5] = [
    "index.number_of_shards",
    "index.version.created",
    "index.uuid",
    "index.creation_date",
    "index.number_of_routing_shards",
];

/// A request to restore an index.
#[derive(Clone, Debug)]
pub struct RestoreIndex {
    /// Name that it gets.
    pub name: String,
    /// Uuid of the snapshot.
    pub snapshot: Uuid,
    /// The index as the snapshot has it.
    pub meta: IndexMeta,
    /// Sequence number of each shard that its next operation gets.
    pub next_seq_nos: Vec<u64>,
    /// `true` if the index keeps its aliases.
    pub include_aliases: bool,
    /// Settings that replace those of the snapshot, with the `index.` prefix.
    pub settings: Map<String, Value>,
    /// Patterns of settings that go back to their defaults.
    pub ignored_settings: Vec<String>,
    /// `true` if its files are copied once it is there. No index of that name is replaced then.
    pub is_pending: bool,
}

impl IndexMeta {
    /// Returns the sequence numbers of a shard whose operations are of the log of the restored snapshot. Frames of earlier operations
    /// are those of another log, and later operations are in the log of this store.
    pub fn restored_seq_nos(&self, shard: u32) -> Range<u64> {
        let read = |key: &str| {
            let seq_nos = self.settings.get(key).and_then(Value::as_array);
            seq_nos.and_then(|seq_nos| seq_nos.get(shard as usize)?.as_str()?.parse().ok()).unwrap_or(0)
        };
        read(EARLIER_SEQ_NOS)..read(RESTORED_SEQ_NOS)
    }

    /// Returns whether the index was restored from any snapshot.
    pub fn is_restored(&self) -> bool {
        self.setting(RESTORED_SNAPSHOT).is_some()
    }

    /// Returns whether the index was restored from a snapshot.
    pub fn is_restored_from(&self, snapshot: &Uuid) -> bool {
        self.setting(RESTORED_SNAPSHOT).is_some_and(|text| *text == super::uuid_text(snapshot))
    }
}

impl Metadata {
    /// Decides to restore an index under a new uuid. A closed index of that name is replaced.
    ///
    /// # Errors
    /// `IndexAlreadyExists` for an open index of that name, `InvalidIndexName`, `IllegalArgument` for settings that cannot
    /// change, `Validation` beyond the limit of shards, the refusals of aliases, and `Unauthorized` without a right on them.
    pub fn restore_index(&self, request: &RestoreIndex, uuid: Uuid) -> Result<Vec<MetadataChange>> {
        let name = request.name.as_str();
        check_index_name(name)?;
        self.check_name(name)?;
        let existing = self.indices.get(name);
        if let Some(existing) = existing.filter(|existing| existing.open || request.is_pending) {
            return Err(Error::IndexAlreadyExists { index: name.to_owned(), uuid: existing.uuid_text() });
        }
        if self.by_alias.contains_key(name) {
            return Err(Error::InvalidIndexName {
                index: name.to_owned(),
                reason: "already exists as alias".into(),
            });
        }
        if self.data_streams.contains_key(name) {
            return Err(Error::InvalidIndexName {
                index: name.to_owned(),
                reason: "already exists as data stream".into(),
            });
        }
        if let Some(existing) = existing
            && existing.shards != request.meta.shards
        {
            return Err(Error::IllegalArgument(format!(
                "cannot restore index [{name}] with [{}] shards from a snapshot of index [{}] with [{}] shards",
                existing.shards, request.meta.name, request.meta.shards
            )));
        }
        self.check_shard_limit(name, request.meta.shards)?;
        let settings = restored_settings(request, uuid)?;
        if let Some(stream) = settings.get(DATA_STREAM).and_then(Value::as_str)
            && (self.indices.contains_key(stream) || self.by_alias.contains_key(stream))
        {
            return Err(Error::InvalidIndexName {
                index: name.to_owned(),
                reason: format!("an index or an alias has the name of its data stream [{stream}]"),
            });
        }
        let aliases = if request.include_aliases { request.meta.aliases.clone() } else { BTreeMap::new() };
        let meta = IndexMeta {
            name: name.into(),
            uuid,
            replicas: number(&settings, "index.number_of_replicas")?,
            settings,
            aliases,
            open: true,
            created_ms: request.meta.created_ms,
            shards: request.meta.shards,
            doc_type: request.meta.doc_type.clone(),
        };
        self.check_restored_aliases(&meta)?;
        let deleted =
            existing.map(|old| MetadataChange::DeleteIndex { name: Arc::clone(&old.name), uuid: old.uuid });
        let put = MetadataChange::PutIndex { meta: Arc::new(meta), mapping: None };
        Ok(deleted.into_iter().chain([put]).collect())
    }

    /// Decides to have restored indices take writes; those that are gone are left out.
    pub fn complete_restore(&self, indices: &[Uuid]) -> Vec<MetadataChange> {
        let is_meant = |meta: &&Arc<IndexMeta>| meta.flag(RESTORE_PENDING) && indices.contains(&meta.uuid);
        let completed = self.indices.values().filter(is_meant).map(|meta| {
            let mut meta = IndexMeta::clone(meta);
            meta.settings.shift_remove(RESTORE_PENDING);
            MetadataChange::replace(meta)
        });
        completed.collect()
    }

    /// Checks the rights on the aliases that a restored index brings, and on the index to have some.
    ///
    /// # Errors
    /// `Unauthorized`.
    pub fn check_alias_rights<'a>(
        &self,
        index: &'a str,
        aliases: impl IntoIterator<Item = &'a String>,
    ) -> Result<()> {
        for alias in aliases {
            self.check_part(Action::PutAliases, index)?;
            self.check_part(Action::PutAliases, alias)?;
        }
        Ok(())
    }

    /// Decides to put the templates of a snapshot, by kind and name, in the place of those of their names.
    ///
    /// # Errors
    /// `Unauthorized` without the right on an alias that one of them brings.
    pub fn restore_templates(
        &self,
        templates: &BTreeMap<String, BTreeMap<String, Value>>,
    ) -> Result<Vec<MetadataChange>> {
        let mut changes = Vec::new();
        for (kind, named) in templates {
            for (name, body) in named {
                let aliases = if kind == "legacy" { &body["aliases"] } else { &body["template"]["aliases"] };
                for alias in aliases.as_object().into_iter().flat_map(Map::keys) {
                    self.check_part(Action::PutAliases, alias)?;
                }
                changes.push(MetadataChange::PutTemplate {
                    kind: kind.clone(),
                    name: name.clone(),
                    body: body.clone(),
                });
            }
        }
        Ok(changes)
    }

    fn check_restored_aliases(&self, meta: &IndexMeta) -> Result<()> {
        self.check_alias_rights(&meta.name, meta.aliases.keys())?;
        for alias in meta.aliases.keys() {
            check_alias_name(alias)?;
            if self.data_streams.contains_key(alias.as_str()) {
                return Err(Error::InvalidAliasName {
                    alias: alias.clone(),
                    reason: "a data stream exists with the same name as the alias".into(),
                });
            }
            if self.indices.contains_key(alias.as_str()) || **alias == *meta.name {
                return Err(Error::InvalidAliasName {
                    alias: alias.clone(),
                    reason: "an index exists with the same name as the alias".into(),
                });
            }
            let carriers =
                self.by_alias.get(alias.as_str()).map(|names| names.as_slice()).unwrap_or_default();
            let others = carriers.iter().filter(|name| **name != meta.name);
            let others = others.filter_map(|name| self.indices.get(name)).map(AsRef::as_ref);
            check_alias_consistent(alias, others.chain([meta]), |other| {
                other == &*meta.name || self.sees(other)
            })?;
        }
        Ok(())
    }
}

fn restored_settings(request: &RestoreIndex, uuid: Uuid) -> Result<Map<String, Value>> {
    let mut settings = request.meta.settings.clone();
    // The next start deletes a target of a resizing that has this.
    settings.shift_remove(RESIZE_PENDING);
    settings.shift_remove(RESTORE_PENDING);
    for ignored in &request.ignored_settings {
        if REQUIRED.contains(&ignored.as_str()) || index_settings::is_final(ignored) {
            return Err(Error::IllegalArgument(format!("cannot remove setting [{ignored}] on restore")));
        }
        settings.retain(|key, _| {
            REQUIRED.contains(&key.as_str())
                || index_settings::is_final(key)
                || !pattern::matches(ignored, key)
        });
    }
    for key in request.settings.keys() {
        if REQUIRED.contains(&key.as_str()) || index_settings::is_final(key) {
            return Err(Error::IllegalArgument(format!("cannot modify setting [{key}] on restore")));
        }
    }
    index_settings::check(&request.settings)?;
    for (key, value) in &request.settings {
        if value.is_null() {
            settings.shift_remove(key);
        } else {
            settings.insert(key.clone(), value.clone());
        }
    }
    settings
        .entry("index.number_of_replicas")
        .or_insert_with(|| index_settings::default_of("index.number_of_replicas").unwrap_or("1").into());
    expand_replicas(&mut settings);
    settings.insert("index.uuid".into(), super::uuid_text(&uuid).into());
    // A copy under another name has no place in the life of the original.
    if request.name != *request.meta.name {
        settings.shift_remove(ROLLOVER_INFO);
    }
    if settings.contains_key(DATA_STREAM) {
        // Under a name of its own it backs no stream.
        match backed_stream(&request.name) {
            Some(stream) => _ = settings.insert(DATA_STREAM.into(), stream.into()),
            None => settings.retain(|key, _| key != DATA_STREAM && key != TIMESTAMP_FIELD),
        }
    }
    let seq_nos: Vec<Value> = request.next_seq_nos.iter().map(|seq_no| seq_no.to_string().into()).collect();
    settings.insert(RESTORED_SEQ_NOS.into(), seq_nos.into());
    // That of the snapshot, whatever settings are ignored.
    match request.meta.settings.get(RESTORED_SEQ_NOS) {
        Some(earlier) => _ = settings.insert(EARLIER_SEQ_NOS.into(), earlier.clone()),
        None => _ = settings.shift_remove(EARLIER_SEQ_NOS),
    }
    settings.insert(RESTORED_SNAPSHOT.into(), super::uuid_text(&request.snapshot).into());
    if request.is_pending {
        settings.insert(RESTORE_PENDING.into(), "true".into());
    }
    index_settings::check_result(&settings)?;
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::access::Guard;

    fn request(name: &str, state: &Metadata) -> RestoreIndex {
        RestoreIndex {
            name: name.to_owned(),
            snapshot: Uuid::from_u128(9),
            meta: IndexMeta::clone(state.index("logs").unwrap()),
            next_seq_nos: vec![7],
            include_aliases: true,
            settings: Map::new(),
            ignored_settings: Vec::new(),
            is_pending: false,
        }
    }

    fn with_logs(body: Value) -> Metadata {
        let start = Metadata::default();
        start.apply(&start.create_index("logs", &body, 5, Uuid::from_u128(1)).unwrap())
    }

    fn put(changes: &[MetadataChange]) -> &IndexMeta {
        match changes.last() {
            Some(MetadataChange::PutIndex { meta, .. }) => meta,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_restored_index_is_another_one_with_the_settings_of_the_snapshot() {
        let state = with_logs(json!({"settings": {"refresh_interval": "7s"}, "aliases": {"all": {}}}));
        let mut copy = request("copy", &state);
        copy.settings.insert("index.number_of_replicas".into(), "3".into());
        copy.ignored_settings.push("index.refresh*".into());
        let changes = state.restore_index(&copy, Uuid::from_u128(2)).unwrap();
        let meta = put(&changes);
        assert_eq!((meta.uuid, meta.replicas, meta.created_ms), (Uuid::from_u128(2), 3, 5));
        assert!(!meta.settings.contains_key("index.refresh_interval"));
        assert!(meta.aliases.contains_key("all"));
        assert_eq!(meta.settings[RESTORED_SEQ_NOS], json!(["7"]));
        assert_eq!((meta.restored_seq_nos(0), meta.restored_seq_nos(1)), (0..7, 0..0));
        assert!(meta.is_restored_from(&Uuid::from_u128(9)) && !meta.is_restored_from(&Uuid::from_u128(8)));
        // A snapshot of the copy has operations of two logs.
        let again = RestoreIndex { meta: meta.clone(), next_seq_nos: vec![12], ..copy.clone() };
        let changes = state.restore_index(&again, Uuid::from_u128(3)).unwrap();
        assert_eq!(put(&changes).restored_seq_nos(0), 7..12);
        let ignoring = RestoreIndex { ignored_settings: vec!["index.*".into()], ..again };
        let changes = state.restore_index(&ignoring, Uuid::from_u128(4)).unwrap();
        assert_eq!(put(&changes).restored_seq_nos(0), 7..12);
        copy.include_aliases = false;
        assert!(put(&state.restore_index(&copy, Uuid::from_u128(2)).unwrap()).aliases.is_empty());
    }

    #[test]
    fn aliases_need_the_right_to_give_them() {
        let state = with_logs(json!({"aliases": {"all": {}}}));
        let copy = request("copy", &state);
        let templates =
            |body: Value| BTreeMap::from([("index".to_owned(), BTreeMap::from([("t".to_owned(), body)]))]);
        let templates = templates(json!({"index_patterns": ["x"], "template": {"aliases": {"all": {}}}}));
        let create = &[Action::CreateIndex];
        let aliases = &[Action::CreateIndex, Action::PutAliases];
        for (grants, allowed) in [
            (&[("copy", &create[..]), ("all", &create[..])], false),
            (&[("copy", &aliases[..]), ("all", &create[..])], false),
            (&[("copy", &aliases[..]), ("all", &aliases[..])], true),
        ] {
            let user = crate::access::tests::restricted(grants);
            let guarded = state.guarded(Guard::new(&user, Action::RestoreSnapshot));
            let restored = guarded.restore_index(&copy, Uuid::from_u128(2));
            assert_eq!(restored.is_ok(), allowed, "{grants:?}");
            let on_alias = grants[1].1.contains(&Action::PutAliases);
            assert_eq!(guarded.restore_templates(&templates).is_ok(), on_alias, "{grants:?}");
            let without = RestoreIndex { include_aliases: false, ..copy.clone() };
            guarded.restore_index(&without, Uuid::from_u128(2)).unwrap();
        }
    }

    #[test]
    fn an_open_index_is_in_the_way_and_a_closed_one_is_replaced() {
        let state = with_logs(json!({}));
        let again = request("logs", &state);
        let refused = state.restore_index(&again, Uuid::from_u128(2));
        assert!(matches!(refused, Err(Error::IndexAlreadyExists { .. })));
        let close = state.close_indices("logs", &super::super::IndicesOptions::open_only(), 0).unwrap();
        let changes = state.apply(&close).restore_index(&again, Uuid::from_u128(2)).unwrap();
        assert!(
            matches!(&changes[0], MetadataChange::DeleteIndex { uuid, .. } if *uuid == Uuid::from_u128(1))
        );
        assert_eq!(state.apply(&changes).index("logs").unwrap().uuid, Uuid::from_u128(2));
    }

    #[test]
    fn a_backing_index_belongs_to_the_stream_of_its_name() {
        let state = with_logs(json!({}));
        let mut meta = IndexMeta::clone(state.index("logs").unwrap());
        meta.settings.insert(DATA_STREAM.into(), "web".into());
        meta.settings.insert(TIMESTAMP_FIELD.into(), "@timestamp".into());
        let restore = |state: &Metadata, name: &str| {
            let request = RestoreIndex { name: name.to_owned(), meta: meta.clone(), ..request("x", state) };
            state.restore_index(&request, Uuid::from_u128(2)).map(|changes| state.apply(&changes))
        };
        let none = Metadata::default();
        let none = none.apply(&none.create_index("logs", &json!({}), 5, Uuid::nil()).unwrap());
        let renamed = restore(&none, ".ds-copy-000003").unwrap();
        assert_eq!(renamed.data_stream("copy").unwrap().generation(), 3);
        let plain = restore(&none, "plain").unwrap();
        assert!(
            plain.index("plain").unwrap().data_stream().is_none() && plain.data_streams().next().is_none()
        );
        let refused = restore(&none, ".ds-logs-000001").unwrap_err().to_string();
        assert!(refused.contains("data stream [logs]"), "{refused}");
        let mut named = request("x", &state);
        named.meta.aliases.insert("copy".into(), json!({}));
        let refused = renamed.restore_index(&named, Uuid::from_u128(3)).unwrap_err();
        assert!(matches!(refused, Error::InvalidAliasName { .. }), "{refused}");
        named.meta.aliases.clear();
        named.meta.settings.insert(RESIZE_PENDING.into(), "true".into());
        let changes = renamed.restore_index(&named, Uuid::from_u128(3)).unwrap();
        assert!(!put(&changes).flag(RESIZE_PENDING));
    }

    #[test]
    fn settings_that_the_files_depend_on_stay() {
        let state = with_logs(json!({}));
        for (key, value) in [("index.number_of_shards", "2"), ("index.sort.field", "a"), ("index.uuid", "x")]
        {
            let mut changed = request("copy", &state);
            changed.settings.insert(key.into(), value.into());
            assert!(state.restore_index(&changed, Uuid::from_u128(2)).is_err(), "{key}");
            let mut ignored = request("copy", &state);
            ignored.ignored_settings.push(key.into());
            assert!(state.restore_index(&ignored, Uuid::from_u128(2)).is_err(), "{key}");
        }
        let mut all = request("copy", &state);
        all.ignored_settings.push("index.*".into());
        let changes = state.restore_index(&all, Uuid::from_u128(2)).unwrap();
        assert_eq!(put(&changes).settings["index.number_of_shards"], json!("1"));
    }
}
