//! Resizing: an index with the documents of another one, and more, fewer or as many shards.
//!
//! The target is made with the setting [`RESIZE_PENDING`] and without blocks, and gets its own settings once it has all documents. A
//! start deletes a target that was left behind by a crash.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_mapping::pattern;
use millrace_runtime::{Error, Result};
use serde_json::{Map, Value};

use super::aliases::{check_alias_consistent, parse_alias};
use super::create::{VERSION_CREATED, expand_replicas, number};
use super::data_streams::{DATA_STREAM, TIMESTAMP_FIELD};
use super::names::{check_alias_name, check_index_name};
use super::rollover::ROLLOVER_INFO;
use super::{IndexMeta, Metadata, MetadataChange, Uuid, index_settings, settings};
use crate::access::Action;

/// Setting of a target that does not have all documents yet.
pub const RESIZE_PENDING: &str = "index.resize.pending";
const SHARDS: &str = "index.number_of_shards";
const ROUTING_SHARDS: &str = "index.number_of_routing_shards";

/// Settings that a target does not take from its source.
const OWN_SETTINGS: [&str; 12] = [
    SHARDS,
    "index.uuid",
    "index.creation_date",
    "index.provided_name",
    "index.version.*",
    "index.history.uuid",
    "index.resize.*",
    DATA_STREAM,
    TIMESTAMP_FIELD,
    "index.restored.*",
    "index.restore.*",
    ROLLOVER_INFO,
];
/// Settings of a target with the name and the uuid of its source.
const SOURCE_NAME: &str = "index.resize.source.name";
const SOURCE_UUID: &str = "index.resize.source.uuid";
/// Setting of a complete target with the next sequence numbers of the shards of its source, which tell that nothing was written later.
const COPIED_SEQ_NOS: &str = "index.resize.source.seq_nos";
/// Setting of a target with the time at which the documents' first index was created, in milliseconds.
const ORIGINAL_CREATION: &str = "index.resize.source.creation_date";

/// Kinds of resizing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizeKind {
    /// Fewer shards.
    Shrink,
    /// More shards.
    Split,
    /// As many shards.
    Clone,
}

/// A request to resize an index.
#[derive(Clone, Debug, PartialEq)]
pub struct ResizeIndex {
    /// Kind.
    pub kind: ResizeKind,
    /// Name of the source.
    pub source: String,
    /// Name of the target.
    pub target: String,
    /// Settings of the target, flat with prefix; a null takes away what the source sets.
    pub settings: Map<String, Value>,
    /// Aliases of the target by name.
    pub aliases: BTreeMap<String, Value>,
}

/// A decided resizing.
#[derive(Clone, Debug)]
pub struct ResizePlan {
    /// The source.
    pub source: Arc<IndexMeta>,
    /// The target while documents are copied.
    pub pending: Arc<IndexMeta>,
    /// The target once it has all documents.
    pub complete: Arc<IndexMeta>,
}

impl ResizeIndex {
    /// Parses a body with `settings` and `aliases`; null is an empty one.
    ///
    /// # Errors
    /// `Parse` for other members, and what settings and aliases refuse.
    pub fn parse(kind: ResizeKind, source: &str, target: &str, body: &Value) -> Result<Self> {
        let (source, target) = (source.to_owned(), target.to_owned());
        let mut request = Self { kind, source, target, settings: Map::new(), aliases: BTreeMap::new() };
        for (key, value) in body.as_object().into_iter().flatten() {
            match (key.as_str(), value) {
                ("settings", _) => request.settings = settings::with_index_prefix(settings::flatten(value)?),
                ("aliases", Value::Object(aliases)) => {
                    for (alias, body) in aliases {
                        request.aliases.insert(alias.clone(), parse_alias(alias, body, &[])?);
                    }
                }
                _ => return Err(Error::Parse(format!("[resize_request] unknown field [{key}]"))),
            }
        }
        Ok(request)
    }
}

impl IndexMeta {
    /// Returns the name of the source of a resizing; `None` where the index is not its target.
    pub fn resize_source(&self) -> Option<&str> {
        self.setting(SOURCE_NAME)
    }

    /// Returns whether the index is the target of a resizing of another one.
    pub fn is_resized_from(&self, source: &IndexMeta) -> bool {
        self.setting(SOURCE_UUID) == Some(source.uuid_text().as_str())
    }

    /// Returns the time at which the index was created, in milliseconds; for the target of a resizing that of the first source.
    pub fn original_created_ms(&self) -> i64 {
        self.integer(ORIGINAL_CREATION).unwrap_or(self.created_ms)
    }

    /// Returns the next sequence numbers that the shards of the source had when the target was complete; `None` where none are recorded.
    pub fn copied_seq_nos(&self) -> Option<Vec<u64>> {
        let recorded = self.settings.get(COPIED_SEQ_NOS)?.as_array()?;
        recorded.iter().map(|seq_no| seq_no.as_str()?.parse().ok()).collect()
    }
}

/// Returns the fewest shards of a target that keep each within so many bytes, for a source with so many shards and bytes. The number divides
/// that of the source, which it is where the bytes are too many.
pub fn fewest_shards(shards: u64, bytes: u64, max_shard_bytes: u64) -> u64 {
    let (shards, least) = (shards.max(1), bytes.div_ceil(max_shard_bytes.max(1)));
    (1..=shards).find(|count| shards.is_multiple_of(*count) && *count >= least).unwrap_or(shards)
}

fn refuse<T>(reason: String) -> Result<T> {
    Err(Error::IllegalArgument(reason))
}

impl Metadata {
    /// Plans a resizing.
    ///
    /// # Errors
    /// `IndexNotFound`, `IndexAlreadyExists`, `InvalidIndexName`; `IllegalArgument` for a source that is written to, numbers of shards
    /// that do not fit, and settings that cannot be given; the refusals of aliases.
    pub fn plan_resize(&self, request: &ResizeIndex, now_ms: i64, uuid: Uuid) -> Result<ResizePlan> {
        let ResizeIndex { source, target, .. } = request;
        let Some(source) = self.index(source).cloned() else {
            self.check_name(source)?;
            return Err(Error::IndexNotFound { index: source.clone() });
        };
        check_index_name(target)?;
        self.check_name(target)?;
        if let Some(existing) = self.indices.get(target.as_str()) {
            return Err(Error::IndexAlreadyExists { index: target.clone(), uuid: existing.uuid_text() });
        }
        if self.by_alias.contains_key(target.as_str()) || self.data_streams.contains_key(target.as_str()) {
            let reason = "already exists as alias or data stream".to_owned();
            return Err(Error::InvalidIndexName { index: target.clone(), reason });
        }
        if let Some(stream) = self.stream_written_to(&source) {
            return refuse(format!(
                "cannot resize the write index [{}] for data stream [{}]",
                source.name, stream.name
            ));
        }
        if !source.open {
            return Err(Error::IndexClosed { index: source.name.to_string() });
        }
        if !source.is_write_blocked() {
            return refuse(format!(
                "index {} must be read-only to resize index. use \"index.blocks.write=true\"",
                source.name
            ));
        }
        let settings = resized_settings(request, &source, now_ms, &uuid)?;
        let (shards, replicas) = (number(&settings, SHARDS)?, number(&settings, "index.number_of_replicas")?);
        self.check_shard_limit(target, shards)?;
        let complete = IndexMeta {
            name: target.as_str().into(),
            uuid,
            settings,
            aliases: request.aliases.clone(),
            open: true,
            created_ms: now_ms,
            shards,
            replicas,
            doc_type: source.doc_type.clone(),
        };
        self.check_resized_aliases(&complete)?;
        let mut pending = complete.clone();
        pending.settings.retain(|key, _| !key.starts_with("index.blocks."));
        pending.settings.insert(RESIZE_PENDING.into(), "true".into());
        Ok(ResizePlan { source, pending: Arc::new(pending), complete: Arc::new(complete) })
    }

    fn check_resized_aliases(&self, meta: &IndexMeta) -> Result<()> {
        if !meta.aliases.is_empty() {
            self.check_part(Action::PutAliases, &meta.name)?;
        }
        for alias in meta.aliases.keys() {
            self.check_name(alias)?;
            self.check_part(Action::PutAliases, alias)?;
            check_alias_name(alias)?;
            if **alias == *meta.name
                || self.indices.contains_key(alias.as_str())
                || self.data_streams.contains_key(alias.as_str())
            {
                return Err(Error::InvalidAliasName {
                    alias: alias.clone(),
                    reason: "an index exists with the same name as the alias".into(),
                });
            }
            let names = self.by_alias.get(alias.as_str()).map(|names| names.as_slice()).unwrap_or_default();
            let carriers = names.iter().filter_map(|name| self.indices.get(name)).map(AsRef::as_ref);
            let sees = |other: &str| *other == *meta.name || self.sees(other);
            check_alias_consistent(alias, carriers.chain([meta]), sees)?;
        }
        Ok(())
    }

    /// Decides to give a target that has all documents its own settings. `seq_nos` are the next sequence numbers of the source's shards.
    ///
    /// # Errors
    /// `IndexNotFound` where it or its source was deleted meanwhile, `IllegalArgument` where its source takes writes again.
    pub fn complete_resize(&self, plan: &ResizePlan, seq_nos: &[u64]) -> Result<Vec<MetadataChange>> {
        let name = &plan.complete.name;
        let source = self.indices.get(&plan.source.name).filter(|source| source.uuid == plan.source.uuid);
        // Documents that a user deletes are not to stay in a copy that is not there yet.
        let Some(source) = source else {
            return Err(Error::IndexNotFound { index: plan.source.name.to_string() });
        };
        if !source.is_write_blocked() {
            return refuse(format!(
                "index {} must stay read-only while its documents are copied to [{name}]; block its writes and repeat",
                plan.source.name
            ));
        }
        match self.indices.get(name) {
            Some(now) if now.uuid == plan.complete.uuid => {
                // What others changed of it meanwhile stays.
                let mut meta = IndexMeta::clone(now);
                meta.settings.shift_remove(RESIZE_PENDING);
                for (key, value) in &plan.complete.settings {
                    meta.settings.entry(key.clone()).or_insert_with(|| value.clone());
                }
                let seq_nos: Vec<Value> = seq_nos.iter().map(|seq_no| seq_no.to_string().into()).collect();
                meta.settings.insert(COPIED_SEQ_NOS.into(), seq_nos.into());
                Ok(vec![MetadataChange::replace(meta)])
            }
            _ => Err(Error::IndexNotFound { index: name.to_string() }),
        }
    }

    /// Decides to delete a target, or all that are not complete without one.
    pub fn delete_unfinished(&self, target: Option<&IndexMeta>) -> Vec<MetadataChange> {
        let is_meant = |meta: &&Arc<IndexMeta>| match target {
            Some(target) => meta.uuid == target.uuid,
            None => meta.settings.contains_key(RESIZE_PENDING),
        };
        let unfinished = self.indices.values().filter(is_meant);
        unfinished
            .map(|meta| MetadataChange::DeleteIndex { name: Arc::clone(&meta.name), uuid: meta.uuid })
            .collect()
    }
}

fn resized_settings(
    request: &ResizeIndex,
    source: &IndexMeta,
    now_ms: i64,
    uuid: &Uuid,
) -> Result<Map<String, Value>> {
    index_settings::check(&request.settings)?;
    if let Some(key) = request.settings.keys().find(|key| key.starts_with("index.sort.")) {
        return refuse(format!("can't override index sort when resizing an index: [{key}]"));
    }
    if request.kind != ResizeKind::Split && request.settings.contains_key(ROUTING_SHARDS) {
        return refuse(format!("cannot provide {ROUTING_SHARDS} on resize"));
    }
    let shards = target_shards(request, source)?;
    let is_own = |key: &str| OWN_SETTINGS.iter().any(|own| pattern::matches(own, key));
    let mut merged = source.settings.clone();
    merged.retain(|key, _| !is_own(key));
    if source.data_stream().is_some() {
        merged.shift_remove("index.hidden");
    }
    for (key, value) in &request.settings {
        if value.is_null() {
            merged.shift_remove(key);
        } else {
            merged.insert(key.clone(), value.clone());
        }
    }
    // A shrunken index goes on in the life of its source. A copy of another kind has a life of its own.
    if request.kind == ResizeKind::Shrink
        && let Some(rollovers) = source.settings.get(ROLLOVER_INFO)
    {
        merged.insert(ROLLOVER_INFO.into(), rollovers.clone());
    }
    merged.insert(SHARDS.into(), shards.to_string().into());
    // Documents are routed anew: the number matters for later splits alone.
    let divides =
        |merged: &Map<String, Value>| number(merged, ROUTING_SHARDS).is_ok_and(|all| all % shards == 0);
    if !request.settings.contains_key(ROUTING_SHARDS) && !divides(&merged) {
        merged.shift_remove(ROUTING_SHARDS);
    }
    expand_replicas(&mut merged);
    for (key, value) in [
        ("index.creation_date", now_ms.to_string()),
        ("index.provided_name", request.target.clone()),
        ("index.uuid", super::uuid_text(uuid)),
        ("index.version.created", VERSION_CREATED.to_owned()),
        (SOURCE_NAME, source.name.to_string()),
        (SOURCE_UUID, source.uuid_text()),
        (ORIGINAL_CREATION, source.original_created_ms().to_string()),
    ] {
        merged.insert(key.into(), value.into());
    }
    index_settings::check_result(&merged)?;
    Ok(merged)
}

/// Chooses the number of shards of the target, and checks that it fits that of the source.
fn target_shards(request: &ResizeIndex, source: &IndexMeta) -> Result<u32> {
    let given = match request.settings.get(SHARDS) {
        Some(value) if !value.is_null() => Some(number(&request.settings, SHARDS)?),
        _ => None,
    };
    let from = source.shards;
    match request.kind {
        ResizeKind::Clone => match given.unwrap_or(from) {
            shards if shards == from => Ok(shards),
            shards => refuse(format!(
                "the number of target shards ({shards}) must be the same as the number of source shards ({from})"
            )),
        },
        ResizeKind::Shrink => match given.unwrap_or(1) {
            shards if shards > from => refuse(format!(
                "the number of target shards [{shards}] must be less that the number of source shards [{from}]"
            )),
            shards if !from.is_multiple_of(shards) => {
                refuse(format!("the number of source shards [{from}] must be a multiple of [{shards}]"))
            }
            shards => Ok(shards),
        },
        ResizeKind::Split => match given {
            None => refuse("index.number_of_shards is required for split operations".to_owned()),
            Some(shards) if shards < from => refuse(format!(
                "the number of source shards [{from}] must be less that the number of target shards [{shards}]"
            )),
            Some(shards) if shards % from != 0 => {
                refuse(format!("the number of source shards [{from}] must be a factor of [{shards}]"))
            }
            Some(shards) => Ok(shards),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: i64 = 5;

    fn with_source(shards: u32, blocked: bool) -> Metadata {
        let state = Metadata::default();
        let body = json!({"settings": {
            "number_of_shards": shards, "index.blocks.write": blocked, "index.priority": 9, "number_of_routing_shards": shards * 4,
        }});
        state.apply(&state.create_index("s", &body, 1, Uuid::from_u128(1)).unwrap())
    }

    fn plan(state: &Metadata, kind: ResizeKind, body: Value) -> Result<ResizePlan> {
        state.plan_resize(&ResizeIndex::parse(kind, "s", "t", &body)?, NOW, Uuid::from_u128(2))
    }

    #[test]
    fn a_target_has_the_settings_of_its_source_and_blocks_at_its_end() {
        let state = with_source(2, true);
        let body = json!({"settings": {"index.number_of_shards": 4, "index.number_of_replicas": 0}, "aliases": {"a": {}}});
        let plan = plan(&state, ResizeKind::Split, body).unwrap();
        let put = MetadataChange::PutIndex { meta: Arc::clone(&plan.pending), mapping: None };
        let state = state.apply(&[put]);
        let pending = state.index("t").unwrap();
        assert!(!pending.flag("index.blocks.write") && pending.settings.contains_key(RESIZE_PENDING));
        let state = state.apply(&state.complete_resize(&plan, &[7, 9]).unwrap());
        let meta = state.index("t").unwrap();
        assert!(meta.flag("index.blocks.write") && !meta.settings.contains_key(RESIZE_PENDING));
        assert_eq!((meta.shards, meta.replicas, meta.setting("index.priority")), (4, 0, Some("9")));
        assert_eq!(meta.setting("index.resize.source.name"), Some("s"));
        assert_eq!((meta.copied_seq_nos(), pending.copied_seq_nos()), (Some(vec![7, 9]), None));
        assert_eq!((meta.created_ms, meta.original_created_ms()), (NOW, 1));
        assert!(meta.aliases.contains_key("a"));
        assert!(state.delete_unfinished(None).is_empty());
        assert_eq!(state.delete_unfinished(Some(meta)).len(), 1);
    }

    #[test]
    fn a_source_that_takes_writes_again_has_no_complete_target() {
        let state = with_source(2, true);
        let plan = plan(&state, ResizeKind::Shrink, Value::Null).unwrap();
        let put = MetadataChange::PutIndex { meta: Arc::clone(&plan.pending), mapping: None };
        let state = state.apply(&[put]);
        let options = super::super::IndicesOptions::open_only();
        let lifted = json!({"index.blocks.write": false});
        let written = state.apply(&state.update_settings("s", &options, &lifted, false, NOW).unwrap());
        let refused = written.complete_resize(&plan, &[0, 0]).unwrap_err().to_string();
        assert!(refused.contains("must stay read-only"), "{refused}");
        // Documents that were deleted with their index do not come back.
        let source = &plan.source;
        let gone = MetadataChange::DeleteIndex { name: Arc::clone(&source.name), uuid: source.uuid };
        let refused = state.apply(&[gone]).complete_resize(&plan, &[0, 0]).unwrap_err();
        assert!(matches!(refused, Error::IndexNotFound { index } if index == "s"));
    }

    #[test]
    fn a_shrunken_index_has_the_rollovers_of_its_source() {
        let state = Metadata::default();
        let body = json!({"aliases": {"logs": {}}});
        let state = state.apply(&state.create_index("s-1", &body, 1, Uuid::from_u128(1)).unwrap());
        let rollover = state.plan_rollover("logs", None, 3).unwrap();
        let changes = state.roll_over(&rollover, &Default::default(), 3, Uuid::from_u128(3)).unwrap();
        let state = state.apply(&changes);
        let options = super::super::IndicesOptions::open_only();
        let blocked = json!({"index.blocks.write": true});
        let state = state.apply(&state.update_settings("s-1", &options, &blocked, false, NOW).unwrap());
        for (kind, rollover_ms) in [(ResizeKind::Shrink, Some(3)), (ResizeKind::Clone, None)] {
            let request = ResizeIndex::parse(kind, "s-1", "t", &Value::Null).unwrap();
            let plan = state.plan_resize(&request, NOW, Uuid::from_u128(2)).unwrap();
            assert_eq!(plan.complete.last_rollover_ms(), rollover_ms, "{kind:?}");
            assert_eq!(plan.complete.original_created_ms(), 1);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let four = with_source(4, true);
        let shards = |count: u32| json!({"settings": {"index.number_of_shards": count}});
        for (kind, body, needle) in [
            (ResizeKind::Split, json!({}), "is required for split"),
            (ResizeKind::Split, shards(6), "must be a factor of [6]"),
            (ResizeKind::Split, shards(2), "must be less that the number of target shards [2]"),
            (ResizeKind::Shrink, shards(8), "must be less that the number of source shards [4]"),
            (ResizeKind::Shrink, shards(3), "must be a multiple of [3]"),
            (ResizeKind::Clone, shards(2), "must be the same"),
            (ResizeKind::Clone, json!({"settings": {"index.sort.field": "a"}}), "index sort"),
            (ResizeKind::Clone, json!({"mappings": {}}), "unknown field [mappings]"),
        ] {
            let reason = plan(&four, kind, body.clone()).unwrap_err().to_string();
            assert!(reason.contains(needle), "{body}: {reason}");
        }
        let open = plan(&with_source(4, false), ResizeKind::Clone, json!({})).unwrap_err().to_string();
        assert!(open.contains("must be read-only to resize index"));
        assert_eq!(plan(&four, ResizeKind::Shrink, json!({})).unwrap().complete.shards, 1);
    }
}
