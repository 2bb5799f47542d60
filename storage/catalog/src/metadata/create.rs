//! Creation of an index: its request, the templates that match, the defaults, the checks.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_mapping::Mapping;
use millrace_runtime::{Error, Result};
use serde_json::{Map, Value, json};

use super::aliases::{check_alias_consistent, parse_alias};
use super::data_streams::{DATA_STREAM, TIMESTAMP_FIELD, check_timestamp_mapping, timestamp_mapping};
use super::names::{check_alias_name, check_index_name};
use super::rollover::ROLLOVER_INFO;
use super::{
    IndexMeta, Layers, Metadata, MetadataChange, Uuid, date_math, index_settings, index_sort, mapping_body,
    settings,
};
use crate::access::{Action, NameClass};

/// Value of `index.version.created`: the 7.10 line that the data API speaks.
pub const VERSION_CREATED: &str = "7100299";

/// A parsed request to create an index.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CreateIndex {
    /// Name, date math resolved.
    pub name: String,
    /// Name as given.
    pub provided_name: String,
    /// Settings, flat with prefix; a null takes away what a template sets.
    pub settings: Map<String, Value>,
    /// Mapping body without a type level.
    pub mapping: Option<Value>,
    /// Type level that was around it.
    pub doc_type: Option<Arc<str>>,
    /// Aliases by name.
    pub aliases: BTreeMap<String, Value>,
    /// Data stream that the index is to back; its template makes the index.
    pub data_stream: Option<Arc<str>>,
}

impl CreateIndex {
    /// Parses a body with `settings`, `mappings` and `aliases`; null is an empty one.
    ///
    /// # Errors
    /// `Parse` for other members, and what settings, mapping level and aliases refuse.
    pub fn parse(name: &str, body: &Value, include_type_name: bool, now_ms: i64) -> Result<Self> {
        let mut request = Self {
            name: date_math::resolve(name, now_ms)?.into_owned(),
            provided_name: name.to_owned(),
            ..Self::default()
        };
        let members = match body {
            Value::Null => return Ok(request),
            Value::Object(members) => members,
            other => {
                return Err(Error::Parse(format!("request body must be an object, but found [{other}]")));
            }
        };
        for (key, value) in members {
            match key.as_str() {
                "settings" if value.is_object() || value.is_null() => {
                    request.settings = settings::with_index_prefix(settings::flatten(value)?);
                }
                "settings" => return Err(Error::Parse("key [settings] must be an object".into())),
                "mappings" => {
                    (request.doc_type, request.mapping) =
                        mapping_body::split_type(&request.name, value, include_type_name)?;
                }
                "aliases" => match value {
                    Value::Null => {}
                    Value::Object(aliases) => {
                        for (alias, body) in aliases {
                            request.aliases.insert(alias.clone(), parse_alias(alias, body, &[])?);
                        }
                    }
                    _ => return Err(Error::Parse("key [aliases] must be an object".into())),
                },
                _ => return Err(Error::Parse(format!("unknown key [{key}] for create index"))),
            }
        }
        Ok(request)
    }
}

impl Metadata {
    /// Decides the creation of an index.
    ///
    /// # Errors
    /// See [`Metadata::create_index`].
    pub fn create(&self, request: &CreateIndex, now_ms: i64, uuid: Uuid) -> Result<Vec<MetadataChange>> {
        let (meta, mapping) = self.plan_index(request, now_ms, uuid)?;
        // Refuses a mapping or an analysis that does not work before anything is stored.
        let parsed = Mapping::parse(mapping.as_ref().unwrap_or(&json!({})), &meta.settings)?;
        index_sort::check_fields(&index_sort::parse(&meta.settings)?, &parsed)?;
        if let Some(field) = meta.setting(TIMESTAMP_FIELD) {
            check_timestamp_mapping(&parsed, field)?;
        }
        Ok(vec![MetadataChange::PutIndex { meta: Arc::new(meta), mapping }])
    }

    /// Plans an index without parsing its mapping.
    pub fn plan_index(
        &self,
        request: &CreateIndex,
        now_ms: i64,
        uuid: Uuid,
    ) -> Result<(IndexMeta, Option<Value>)> {
        let name = request.name.as_str();
        check_index_name(name)?;
        self.check_name(name)?;
        if let Some(existing) = self.indices.get(name) {
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
        // Tools that copy an index send back what its settings show; its rollovers are not the copy's.
        let mut given = request.settings.clone();
        given.shift_remove(ROLLOVER_INFO);
        index_settings::check(&given)?;
        let hidden = request.settings.get("index.hidden").map(|value| value == "true");
        let (layers, timestamp_field) = match &request.data_stream {
            Some(stream) => self.stream_layers(stream)?,
            None => match self.reserving_template(name) {
                None => (self.layers(name, hidden), None),
                Some(template) => {
                    return Err(Error::IllegalArgument(format!(
                        "cannot create index with name [{name}], because it matches with template [{template}] that \
                         creates data streams only, use create data stream api instead"
                    )));
                }
            },
        };

        let mut settings = layers.settings;
        for (key, value) in &given {
            if value.is_null() {
                settings.shift_remove(key);
            } else {
                settings.insert(key.clone(), value.clone());
            }
        }
        index_settings::check(&settings)?;
        index_sort::parse(&settings)?;
        for key in ["index.number_of_shards", "index.number_of_replicas"] {
            settings.entry(key).or_insert_with(|| index_settings::default_of(key).unwrap_or("1").into());
        }
        expand_replicas(&mut settings);
        for (key, value) in [
            ("index.creation_date", now_ms.to_string()),
            ("index.provided_name", request.provided_name.clone()),
            ("index.uuid", super::uuid_text(&uuid)),
            ("index.version.created", VERSION_CREATED.to_owned()),
        ] {
            settings.insert(key.into(), value.into());
        }
        if let (Some(stream), Some(field)) = (&request.data_stream, timestamp_field) {
            settings.insert("index.hidden".into(), "true".into());
            settings.insert(DATA_STREAM.into(), stream.as_ref().into());
            settings.insert(TIMESTAMP_FIELD.into(), field.into());
        }
        let (shards, replicas) =
            (number(&settings, "index.number_of_shards")?, number(&settings, "index.number_of_replicas")?);
        self.check_shard_limit(name, shards)?;

        let mut mapping = layers.mapping;
        if layers.composable.is_some() {
            if mapping.is_some() {
                mapping = mapping_body::overlay(mapping, request.mapping.as_ref());
            } else {
                mapping = request.mapping.clone();
            }
        } else {
            mapping = layers.legacy_mappings.iter().fold(request.mapping.clone(), |body, defaults| {
                mapping_body::with_defaults(body, Some(defaults))
            });
        }

        let mut aliases = layers.aliases;
        aliases.extend(request.aliases.iter().map(|(name, alias)| (name.clone(), alias.clone())));
        let meta = IndexMeta {
            name: name.into(),
            uuid,
            settings,
            aliases,
            open: true,
            created_ms: now_ms,
            shards,
            replicas,
            doc_type: request.doc_type.clone().or(layers.doc_type),
        };
        // What templates bring is asked of who puts these.
        if !request.aliases.is_empty() {
            self.check_part(Action::PutAliases, name)?;
        }
        for alias in request.aliases.keys() {
            self.check_name(alias)?;
            self.check_part(Action::PutAliases, alias)?;
        }
        for alias in meta.aliases.keys() {
            check_alias_name(alias)?;
            if self.data_streams.contains_key(alias.as_str()) {
                return Err(Error::InvalidAliasName {
                    alias: alias.clone(),
                    reason: "a data stream exists with the same name as the alias".into(),
                });
            }
            if alias == name || self.indices.contains_key(alias.as_str()) {
                return Err(Error::InvalidAliasName {
                    alias: alias.clone(),
                    reason: "an index exists with the same name as the alias".into(),
                });
            }
            let carriers =
                self.by_alias.get(alias.as_str()).map(|names| names.as_slice()).unwrap_or_default();
            let carriers = carriers.iter().filter_map(|name| self.indices.get(name)).map(AsRef::as_ref);
            check_alias_consistent(alias, carriers.chain([&meta]), |other| {
                other == name || self.sees(other)
            })?;
        }
        Ok((meta, mapping))
    }

    /// Gathers what the template of a data stream contributes to a backing index, with the timestamp field.
    fn stream_layers(&self, stream: &str) -> Result<(Layers, Option<String>)> {
        let Some((_, field)) = self.stream_template(stream) else {
            return Err(Error::IllegalArgument(format!(
                "no matching index template found for data stream [{stream}]"
            )));
        };
        let mut layers = self.layers(stream, None);
        // Components may bring aliases; backing indices have none.
        layers.aliases.clear();
        layers.mapping = mapping_body::overlay(Some(timestamp_mapping(field)), layers.mapping.as_ref());
        Ok((layers, Some(field.to_owned())))
    }

    /// Checks `cluster.max_shards_per_node`: one node serves all shards. Replicas count for nothing, since nothing is
    /// kept for them. The server's own indices have no limit, or whoever makes many shards could keep the audit from being written.
    pub(super) fn check_shard_limit(&self, index: &str, shards: u32) -> Result<()> {
        if NameClass::new(index) != NameClass::Ordinary {
            return Ok(());
        }
        let limit = self.cluster_setting("cluster.max_shards_per_node");
        let limit = limit.as_ref().and_then(Value::as_str).and_then(|text| text.parse().ok());
        let limit: u64 = limit.unwrap_or(u64::MAX);
        let (open, added) = (self.open_shards, u64::from(shards));
        if open + added <= limit {
            return Ok(());
        }
        Err(Error::Validation(format!(
            "1: this action would add [{added}] total shards, but this cluster currently has [{open}]/[{limit}] \
             maximum shards open;"
        )))
    }
}

/// Settles `index.auto_expand_replicas` for one node: the least number of its range.
pub(super) fn expand_replicas(settings: &mut Map<String, Value>) {
    let least = settings
        .get("index.auto_expand_replicas")
        .and_then(Value::as_str)
        .and_then(|range| range.split_once('-'))
        .map(|(least, _)| least.to_owned());
    if let Some(least) = least.filter(|least| least.parse::<u32>().is_ok()) {
        settings.insert("index.number_of_replicas".into(), least.into());
    }
}

/// Reads a count from settings that were checked.
pub(super) fn number(settings: &Map<String, Value>, key: &str) -> Result<u32> {
    settings
        .get(key)
        .and_then(Value::as_str)
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| Error::Internal(format!("setting [{key}] is not a count")))
}
