//! Aliases: what a body may say about one, the actions of `_aliases`, and who has which.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use millrace_mapping::pattern;
use millrace_runtime::{Error, Result};
use serde_json::{Map, Value};

use super::blocks::{BlockLevel, check_block};
use super::names::check_alias_name;
use super::{IndexMeta, IndicesOptions, Metadata, MetadataChange};

/// Most actions in one request.
const MAX_ACTIONS: usize = 10_000;

/// Options for the `index` of an action: names and wildcards, but no aliases.
const ACTION_OPTIONS: IndicesOptions = IndicesOptions {
    ignore_unavailable: false,
    allow_no_indices: false,
    expand_open: true,
    expand_closed: false,
    expand_hidden: false,
    forbid_closed: false,
    ignore_aliases: true,
};

/// One action of an `_aliases` request.
#[derive(Clone, Debug, PartialEq)]
pub enum AliasAction {
    /// Gives indices aliases.
    Add {
        /// Index expressions.
        indices: Vec<String>,
        /// Alias names.
        aliases: Vec<String>,
        /// Filter, routing and flags, as [`parse_alias`] makes them.
        alias: Value,
    },
    /// Takes aliases away.
    Remove {
        /// Index expressions.
        indices: Vec<String>,
        /// Alias names or wildcards.
        aliases: Vec<String>,
        /// Treatment of a missing alias: refused (true), passed over (false), or refused only where the request as a whole would
        /// do nothing.
        must_exist: Option<bool>,
    },
    /// Deletes indices, so that an alias can take their name.
    RemoveIndex {
        /// Index expressions.
        indices: Vec<String>,
    },
}

/// Parses the properties of an alias (`filter`, routing, flags) into the form that is kept and shown.
/// Members named in `apart` belong to the surrounding action and are passed over.
///
/// # Errors
/// [`Error::IllegalArgument`].
pub fn parse_alias(name: &str, body: &Value, apart: &[&str]) -> Result<Value> {
    let members = match body {
        Value::Null => return Ok(Value::Object(Map::new())),
        Value::Object(members) => members,
        other => {
            return Err(Error::IllegalArgument(format!(
                "alias [{name}] must be an object, but found [{other}]"
            )));
        }
    };
    let text = |key: &str, value: &Value| match value {
        Value::String(text) => Ok(Some(text.clone())),
        Value::Number(number) => Ok(Some(number.to_string())),
        Value::Bool(flag) => Ok(Some(flag.to_string())),
        Value::Null => Ok(None),
        _ => Err(Error::IllegalArgument(format!("[{key}] of alias [{name}] must be a string"))),
    };
    let flag = |key: &str, value: &Value| match value {
        Value::Bool(flag) => Ok(Some(*flag)),
        Value::String(text) if text == "true" || text == "false" => Ok(Some(text == "true")),
        Value::Null => Ok(None),
        other => Err(Error::IllegalArgument(format!(
            "Failed to parse value [{other}] of [{key}] of alias [{name}] as only [true] or [false] are allowed."
        ))),
    };
    let (mut filter, mut routing, mut index_routing, mut search_routing) = (None, None, None, None);
    let (mut write, mut hidden) = (None, None);
    for (key, value) in members {
        match key.as_str() {
            "filter" => match value {
                Value::Null => {}
                Value::Object(clause) if clause.is_empty() => {}
                Value::Object(_) => filter = Some(value.clone()),
                _ => {
                    return Err(Error::IllegalArgument(format!("failed to parse filter for alias [{name}]")));
                }
            },
            "routing" => routing = text(key, value)?,
            "index_routing" | "indexRouting" | "index-routing" => index_routing = text(key, value)?,
            "search_routing" | "searchRouting" | "search-routing" => search_routing = text(key, value)?,
            "is_write_index" => write = flag(key, value)?,
            "is_hidden" => hidden = flag(key, value)?,
            key if apart.contains(&key) => {}
            _ => return Err(Error::IllegalArgument(format!("unknown field [{key}] in alias [{name}]"))),
        }
    }
    let index_routing = index_routing.or_else(|| routing.clone());
    let search_routing = search_routing.or(routing);
    if let Some(routing) = &index_routing
        && routing.contains(',')
    {
        return Err(Error::IllegalArgument(format!(
            "alias [{name}] has several index routing values associated with it"
        )));
    }
    let mut alias = Map::new();
    for (key, value) in [
        ("filter", filter),
        ("index_routing", index_routing.map(Value::from)),
        ("search_routing", search_routing.map(Value::from)),
        ("is_write_index", write.map(Value::from)),
        ("is_hidden", hidden.map(Value::from)),
    ] {
        if let Some(value) = value {
            alias.insert(key.into(), value);
        }
    }
    Ok(Value::Object(alias))
}

/// Parses an `_aliases` body.
///
/// # Errors
/// `Parse` for unknown members and actions, `Validation` without actions, `IllegalArgument`.
pub fn parse_alias_actions(body: &Value) -> Result<Vec<AliasAction>> {
    let mut actions = Vec::new();
    for (name, value) in body.as_object().into_iter().flatten() {
        match (name.as_str(), value) {
            ("actions", Value::Array(items)) if items.len() <= MAX_ACTIONS => {
                for item in items {
                    actions.push(parse_action(item)?);
                }
            }
            ("actions", Value::Array(items)) => {
                return Err(Error::TooLarge(format!(
                    "[{}] alias actions in one request exceed [{MAX_ACTIONS}]",
                    items.len()
                )));
            }
            ("actions", _) => return Err(Error::Parse("[aliases] actions must be an array".into())),
            _ => return Err(Error::Parse(format!("[aliases] unknown field [{name}]"))),
        }
    }
    if actions.is_empty() {
        return Err(Error::Validation("1: Must specify at least one alias action;".into()));
    }
    Ok(actions)
}

fn parse_action(item: &Value) -> Result<AliasAction> {
    let mut members = item.as_object().into_iter().flatten();
    let (Some((verb, body)), None) = (members.next(), members.next()) else {
        return Err(Error::IllegalArgument("Too many operations declared on operation entry".into()));
    };
    if !matches!(verb.as_str(), "add" | "remove" | "remove_index") {
        return Err(Error::Parse(format!("[alias_action] unknown field [{verb}]")));
    }
    let fields = body.as_object().ok_or_else(|| {
        Error::Parse(format!("[alias_action] [{verb}] must be an object, but found [{body}]"))
    })?;
    let indices = names(verb, fields, "index", "indices")?;
    let unknown = |allowed: &[&str]| match fields.keys().find(|key| !allowed.contains(&key.as_str())) {
        Some(key) => Err(Error::Parse(format!("[{verb}] unknown field [{key}]"))),
        None => Ok(()),
    };
    match verb.as_str() {
        "remove_index" => {
            unknown(&["index", "indices", "must_exist"])?;
            Ok(AliasAction::RemoveIndex { indices })
        }
        "remove" => {
            unknown(&["index", "indices", "alias", "aliases", "must_exist"])?;
            let must_exist = match fields.get("must_exist") {
                None | Some(Value::Null) => None,
                Some(Value::Bool(flag)) => Some(*flag),
                Some(Value::String(text)) if text == "true" || text == "false" => Some(text == "true"),
                Some(other) => {
                    return Err(Error::IllegalArgument(format!(
                        "[must_exist] must be a boolean, but was [{other}]"
                    )));
                }
            };
            Ok(AliasAction::Remove { indices, aliases: names(verb, fields, "alias", "aliases")?, must_exist })
        }
        _ => {
            let aliases = names(verb, fields, "alias", "aliases")?;
            const APART: [&str; 5] = ["index", "indices", "alias", "aliases", "must_exist"];
            Ok(AliasAction::Add { indices, alias: parse_alias(&aliases.join(","), body, &APART)?, aliases })
        }
    }
}

fn names(verb: &str, fields: &Map<String, Value>, one: &str, many: &str) -> Result<Vec<String>> {
    let wrong =
        |value: &Value| Error::Parse(format!("[{verb}] failed to parse field [{many}] with [{value}]"));
    let found = match (fields.get(one), fields.get(many)) {
        (Some(_), Some(_)) => {
            return Err(Error::IllegalArgument(format!("Only one of [{one}] and [{many}] is supported")));
        }
        (Some(Value::String(name)), None) => vec![name.clone()],
        (None, Some(Value::Array(items))) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned).ok_or_else(|| wrong(item)))
            .collect::<Result<Vec<_>>>()?,
        (None, Some(Value::String(name))) => vec![name.clone()],
        (Some(other), None) | (None, Some(other)) => return Err(wrong(other)),
        (None, None) => Vec::new(),
    };
    if found.is_empty() {
        return Err(Error::IllegalArgument(format!("One of [{one}] or [{many}] is required")));
    }
    if found.iter().any(|name| name.is_empty()) {
        return Err(Error::IllegalArgument(format!("[{many}] can't contain empty string")));
    }
    Ok(found)
}

/// An index with some of its aliases by name.
pub type IndexAliases = (Arc<IndexMeta>, Vec<(String, Value)>);

/// Indices with those of their aliases that were asked for.
#[derive(Clone, Debug, Default)]
pub struct AliasListing {
    /// The indices, each with its aliases by name.
    pub indices: Vec<IndexAliases>,
    /// Names that were asked for and are nowhere, sorted.
    pub missing: Vec<String>,
}

impl Metadata {
    /// Decides alias actions; all or none.
    ///
    /// # Errors
    /// `AliasesNotFound`, `InvalidAliasName`, `IllegalArgument`, `Blocked` and those of resolution.
    pub fn update_aliases(&self, actions: &[AliasAction], now_ms: i64) -> Result<Vec<MetadataChange>> {
        let mut removed: BTreeMap<Arc<str>, Arc<IndexMeta>> = BTreeMap::new();
        for action in actions {
            if let AliasAction::RemoveIndex { indices } = action {
                for meta in self.resolve(&indices.join(","), &ACTION_OPTIONS, now_ms)? {
                    check_block(&meta, BlockLevel::Delete)?;
                    self.check_not_written(&meta)?;
                    removed.insert(meta.name.clone(), meta);
                }
            }
        }
        let mut changed: BTreeMap<Arc<str>, IndexMeta> = BTreeMap::new();
        let mut touched: BTreeSet<&str> = BTreeSet::new();
        let mut missing: BTreeSet<&str> = BTreeSet::new();
        let mut effective = !removed.is_empty();
        for action in actions {
            let (indices, aliases) = match action {
                AliasAction::RemoveIndex { .. } => continue,
                AliasAction::Add { indices, aliases, .. } | AliasAction::Remove { indices, aliases, .. } => {
                    (indices, aliases)
                }
            };
            for meta in self.resolve(&indices.join(","), &ACTION_OPTIONS, now_ms)? {
                if removed.contains_key(&meta.name) {
                    continue;
                }
                self.check_block(&meta, BlockLevel::MetadataWrite)?;
                let target = changed.entry(meta.name.clone()).or_insert_with(|| (*meta).clone());
                match action {
                    AliasAction::Add { alias, .. } => {
                        effective = true;
                        if let Some(stream) = meta.data_stream() {
                            return Err(Error::IllegalArgument(format!(
                                "The provided expressions [{}] match a backing index belonging to data stream \
                                 [{stream}]. Data streams and their backing indices don't support aliases.",
                                indices.join(",")
                            )));
                        }
                        for name in aliases {
                            check_alias_name(name)?;
                            self.check_name(name)?;
                            if self.data_streams.contains_key(name.as_str()) {
                                return Err(Error::InvalidAliasName {
                                    alias: name.clone(),
                                    reason: "a data stream exists with the same name as the alias".into(),
                                });
                            }
                            if self.indices.contains_key(name.as_str())
                                && !removed.contains_key(name.as_str())
                            {
                                return Err(Error::InvalidAliasName {
                                    alias: name.clone(),
                                    reason: "an index exists with the same name as the alias".into(),
                                });
                            }
                            target.aliases.insert(name.clone(), alias.clone());
                            touched.insert(name);
                        }
                    }
                    AliasAction::Remove { must_exist, .. } => {
                        for name in aliases {
                            if name != "_all" && !pattern::is_wildcard(name) {
                                self.check_name(name)?;
                            }
                            let before = target.aliases.len();
                            let asked = |had: &str| name == "_all" || pattern::matches(name, had);
                            target.aliases.retain(|had, _| !asked(had) || !self.sees(had));
                            if target.aliases.len() < before {
                                effective = true;
                                missing.remove(name.as_str());
                            } else if *must_exist == Some(true) {
                                return Err(Error::AliasesNotFound { aliases: name.clone() });
                            } else if *must_exist == Some(false) {
                                effective = true;
                            } else {
                                missing.insert(name);
                            }
                        }
                    }
                    AliasAction::RemoveIndex { .. } => {}
                }
            }
        }
        if !effective {
            let aliases = missing.into_iter().collect::<Vec<_>>().join(",");
            return Err(Error::AliasesNotFound { aliases });
        }
        for alias in touched {
            let metas = self
                .indices
                .values()
                .filter(|meta| !removed.contains_key(&meta.name))
                .map(|meta| changed.get(&meta.name).unwrap_or(meta.as_ref()));
            check_alias_consistent(alias, metas, |name| self.sees(name))?;
        }
        let mut changes: Vec<MetadataChange> = removed
            .into_values()
            .map(|meta| MetadataChange::DeleteIndex { name: meta.name.clone(), uuid: meta.uuid })
            .collect();
        for (name, meta) in changed {
            if self.indices.get(&name).is_some_and(|before| before.aliases != meta.aliases) {
                changes.push(MetadataChange::replace(meta));
            }
        }
        Ok(changes)
    }

    /// Lists aliases: of the indices of an expression (all without one), those that names and
    /// wildcards, with `-` exclusions, ask for.
    ///
    /// # Errors
    /// Those of resolution.
    pub fn list_aliases(
        &self,
        expression: Option<&str>,
        names: Option<&str>,
        options: &IndicesOptions,
        now_ms: i64,
    ) -> Result<AliasListing> {
        let asked: Vec<&str> =
            names.map(|names| names.split(',').filter(|name| !name.is_empty()).collect()).unwrap_or_default();
        let metas = self.resolve(expression.unwrap_or("_all"), options, now_ms)?;
        let mut seen: HashSet<&str> = HashSet::new();
        let mut listing = AliasListing::default();
        for meta in &metas {
            let shown: Vec<(&String, &Value)> =
                meta.aliases.iter().filter(|(alias, _)| asked.is_empty() || selects(&asked, alias)).collect();
            if !asked.is_empty() {
                if shown.is_empty() {
                    continue;
                }
                seen.extend(shown.iter().map(|(alias, _)| alias.as_str()));
            }
            let shown = shown.into_iter().map(|(alias, body)| (alias.clone(), body.clone())).collect();
            listing.indices.push((meta.clone(), shown));
        }
        listing.missing = missing_names(&asked, &seen);
        Ok(listing)
    }
}

/// Returns whether a list of names, wildcards and exclusions selects an alias.
fn selects(asked: &[&str], alias: &str) -> bool {
    asked.iter().fold(false, |selected, item| match item.strip_prefix('-') {
        Some(excluded) if selected => !(excluded == "_all" || pattern::matches(excluded, alias)),
        Some(_) => false,
        None => selected || *item == "_all" || pattern::matches(item, alias),
    })
}

/// Lists the names that were asked for, not excluded again, and not found. A leading `-` excludes
/// only after the first wildcard; before it, it is part of a name.
fn missing_names(asked: &[&str], seen: &HashSet<&str>) -> Vec<String> {
    let first_wildcard = asked.iter().position(|item| pattern::is_wildcard(item)).unwrap_or(asked.len());
    let mut missing = BTreeSet::new();
    for (i, item) in asked.iter().enumerate() {
        if *item == "_all" || pattern::is_wildcard(item) || (i > first_wildcard && item.starts_with('-')) {
            continue;
        }
        let excluded = asked.iter().skip((i + 1).max(first_wildcard)).any(|later| {
            later
                .strip_prefix('-')
                .is_some_and(|excluded| excluded == "_all" || pattern::matches(excluded, item))
        });
        if !excluded && !seen.contains(item) {
            missing.insert((*item).to_owned());
        }
    }
    missing.into_iter().collect()
}

/// Checks that an alias has one write index at most, and is hidden everywhere or nowhere. Refusals name indices of which
/// `sees` says so.
pub(super) fn check_alias_consistent<'a>(
    alias: &str,
    metas: impl Iterator<Item = &'a IndexMeta>,
    sees: impl Fn(&str) -> bool,
) -> Result<()> {
    let listed = |names: Vec<&'a str>| {
        let (mut seen, others): (Vec<&str>, Vec<&str>) = names.into_iter().partition(|name| sees(name));
        if !others.is_empty() {
            seen.push("others");
        }
        seen.join(",")
    };
    let (mut writers, mut hidden, mut shown) = (Vec::new(), Vec::new(), Vec::new());
    for meta in metas {
        let Some(body) = meta.aliases.get(alias) else { continue };
        if body["is_write_index"] == true {
            writers.push(&*meta.name);
        }
        if body["is_hidden"] == true { hidden.push(&*meta.name) } else { shown.push(&*meta.name) }
    }
    if writers.len() > 1 {
        return Err(Error::IllegalArgument(format!(
            "alias [{alias}] has more than one write index [{}]",
            listed(writers)
        )));
    }
    if !hidden.is_empty() && !shown.is_empty() {
        return Err(Error::IllegalArgument(format!(
            "alias [{alias}] has is_hidden set to true on indices [{}] but does not have is_hidden set to true on \
             indices [{}]; alias must have the same is_hidden setting on all indices",
            listed(hidden),
            listed(shown)
        )));
    }
    Ok(())
}
