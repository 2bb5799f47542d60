//! Index templates: legacy (`_template`), composable (`_index_template`) and their components.
//!
//! Bodies are parsed once, when a template is put, into the form that is stored and shown: settings
//! flat with the `index.` prefix, index patterns as a list, mappings without a type level.
//! [`Metadata::layers`] is what creation takes from them.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_mapping::{Mapping, pattern};
use millrace_runtime::{Error, Result};
use serde_json::{Map, Value, json};

use super::aliases::parse_alias;
use super::{
    Metadata, MetadataChange, builtin_templates, data_streams, index_settings, index_sort, mapping_body,
    names, settings,
};
use crate::access::{Action, NameClass};

/// Most components one template may be composed of.
const MAX_COMPONENTS: usize = 256;

/// Kinds of templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateKind {
    /// `_template`.
    Legacy,
    /// `_index_template`.
    Index,
    /// `_component_template`.
    Component,
}

impl TemplateKind {
    /// Returns the name under which changes carry the kind.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Index => "index",
            Self::Component => "component",
        }
    }

    /// Reads the name of a kind.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Legacy, Self::Index, Self::Component].into_iter().find(|kind| kind.name() == name)
    }
}

/// Layers of templates for a new index.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layers {
    /// Settings, flat.
    pub settings: Map<String, Value>,
    /// Mapping body.
    pub mapping: Option<Value>,
    /// Type name of the mapping.
    pub doc_type: Option<Arc<str>>,
    /// Aliases by name.
    pub aliases: BTreeMap<String, Value>,
    /// The composable template that applies, where one does.
    pub composable: Option<String>,
    /// Mappings of the legacy templates that match, highest order first: what the request lacks is
    /// filled from them.
    pub legacy_mappings: Vec<Value>,
}

fn unknown(kind: &str, key: &str) -> Error {
    Error::Parse(format!("[{kind}] unknown field [{key}]"))
}

fn integer(key: &str, value: &Value) -> Result<Option<i64>> {
    match value {
        Value::Null => Ok(None),
        Value::Number(number) if number.is_i64() => Ok(number.as_i64()),
        Value::String(text) if text.parse::<i64>().is_ok() => Ok(text.parse().ok()),
        other => Err(Error::IllegalArgument(format!("[{key}] must be an integer, but was [{other}]"))),
    }
}

fn strings(key: &str, value: &Value) -> Result<Vec<String>> {
    let wrong = || Error::IllegalArgument(format!("[{key}] must be a string or a list of strings"));
    match value {
        Value::Null => Ok(Vec::new()),
        Value::String(text) => Ok(vec![text.clone()]),
        Value::Array(items) => {
            items.iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
        }
        _ => Err(wrong()),
    }
}

fn parse_settings(value: &Value) -> Result<Map<String, Value>> {
    let flat = settings::with_index_prefix(settings::flatten(value)?);
    index_settings::check(&flat)?;
    Ok(flat.into_iter().filter(|(_, value)| !value.is_null()).collect())
}

fn parse_aliases(value: &Value) -> Result<Value> {
    let members = match value {
        Value::Null => return Ok(json!({})),
        Value::Object(members) => members,
        other => {
            return Err(Error::IllegalArgument(format!("aliases must be an object, but found [{other}]")));
        }
    };
    let mut aliases = Map::new();
    for (name, body) in members {
        // `{index}` is replaced by the name of the new index.
        names::check_alias_name(&name.replace("{index}", "index"))?;
        aliases.insert(name.clone(), parse_alias(name, body, &[])?);
    }
    Ok(Value::Object(aliases))
}

/// Parses the body of a legacy template. `order` is the request parameter of that name.
///
/// # Errors
/// `Parse`, `Validation`, `IllegalArgument`, `MapperParsing`.
pub fn parse_legacy_template(
    name: &str,
    body: &Value,
    include_type_name: bool,
    order: Option<i64>,
) -> Result<Value> {
    let mut patterns = Vec::new();
    let (mut order, mut version) = (order, None);
    let (mut flat, mut aliases) = (Map::new(), json!({}));
    let (mut doc_type, mut mapping) = (None, None);
    for (key, value) in body.as_object().into_iter().flatten() {
        match key.as_str() {
            "index_patterns" | "template" => patterns = strings(key, value)?,
            "order" => order = integer(key, value)?.or(order),
            "version" => version = integer(key, value)?,
            "settings" => flat = parse_settings(value)?,
            "mappings" => (doc_type, mapping) = mapping_body::split_type(name, value, include_type_name)?,
            "aliases" => aliases = parse_aliases(value)?,
            _ => return Err(Error::Parse(format!("unknown key [{key}] in the template "))),
        }
    }
    if patterns.is_empty() {
        return Err(Error::Validation("1: index patterns are missing;".into()));
    }
    names::check_template(name, &patterns)?;
    let mut template = Map::new();
    template.insert("order".into(), order.unwrap_or(0).into());
    if let Some(version) = version {
        template.insert("version".into(), version.into());
    }
    template.insert("index_patterns".into(), patterns.into());
    template.insert("settings".into(), flat.into());
    template.insert("mappings".into(), mapping.unwrap_or_else(|| json!({})));
    if let Some(doc_type) = doc_type {
        template.insert("doc_type".into(), doc_type.as_ref().into());
    }
    template.insert("aliases".into(), aliases);
    Ok(template.into())
}

/// Parses the `template` member of a composable template.
fn parse_inner(name: &str, value: &Value) -> Result<Value> {
    let members = match value {
        Value::Null => return Ok(json!({})),
        Value::Object(members) => members,
        other => return Err(Error::Parse(format!("[template] must be an object, but found [{other}]"))),
    };
    let mut template = Map::new();
    for (key, value) in members {
        let parsed = match key.as_str() {
            _ if value.is_null() => continue,
            "settings" => parse_settings(value)?.into(),
            "mappings" => {
                // A level named `_doc` is taken off, as OpenSearch does for these templates.
                let body = value.as_object().filter(|body| body.len() == 1).and_then(|body| body.get("_doc"));
                let (_, mapping) = mapping_body::split_type(name, body.unwrap_or(value), false)?;
                mapping.unwrap_or_else(|| json!({}))
            }
            "aliases" => parse_aliases(value)?,
            _ => return Err(unknown("template", key)),
        };
        template.insert(key.clone(), parsed);
    }
    Ok(template.into())
}

fn meta(value: &Value) -> Result<Value> {
    match value {
        Value::Object(_) => Ok(value.clone()),
        other => Err(Error::Parse(format!("[_meta] must be an object, but found [{other}]"))),
    }
}

/// Parses the body of a component template.
///
/// # Errors
/// `Parse`, `Validation`, `IllegalArgument`, `MapperParsing`.
pub fn parse_component_template(name: &str, body: &Value) -> Result<Value> {
    let mut component = Map::new();
    for (key, value) in body.as_object().into_iter().flatten() {
        let parsed = match key.as_str() {
            "template" => parse_inner(name, value)?,
            _ if value.is_null() => continue,
            "version" => integer(key, value)?.into(),
            "_meta" => meta(value)?,
            _ => return Err(unknown("component_template", key)),
        };
        component.insert(key.clone(), parsed);
    }
    if !component.contains_key("template") {
        return Err(Error::IllegalArgument("Required [template]".into()));
    }
    names::check_template(name, &[])?;
    Ok(component.into())
}

/// Parses the body of a composable index template.
///
/// # Errors
/// `Parse`, `Validation`, `IllegalArgument`, `MapperParsing`.
pub fn parse_index_template(name: &str, body: &Value) -> Result<Value> {
    let mut template = Map::new();
    for (key, value) in body.as_object().into_iter().flatten() {
        let parsed = match key.as_str() {
            _ if value.is_null() => continue,
            "index_patterns" | "composed_of" => strings(key, value)?.into(),
            "template" => parse_inner(name, value)?,
            "priority" => match integer(key, value)? {
                Some(priority) if priority < 0 => {
                    return Err(Error::Validation("1: index template priority must be >= 0;".into()));
                }
                priority => priority.into(),
            },
            "version" => integer(key, value)?.into(),
            "_meta" => meta(value)?,
            "data_stream" => data_streams::parse_stream_template(value)?,
            _ => return Err(unknown("index_template", key)),
        };
        template.insert(key.clone(), parsed);
    }
    let patterns = template.get("index_patterns").map(patterns_of).unwrap_or_default();
    if patterns.is_empty() {
        return Err(Error::Validation("1: index patterns are missing;".into()));
    }
    names::check_template(name, &patterns)?;
    let has_aliases = template.get("template").is_some_and(|part| part.get("aliases").is_some());
    if has_aliases && template.contains_key("data_stream") {
        return Err(Error::IllegalArgument(format!(
            "template [{name}] has alias and data stream definitions"
        )));
    }
    template.entry("composed_of").or_insert_with(|| json!([]));
    Ok(template.into())
}

fn patterns_of(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn priority(template: &Value) -> i64 {
    template["priority"].as_i64().unwrap_or(0)
}

impl Metadata {
    /// Decides to put a template that was parsed. `create`: one of that name is refused.
    ///
    /// # Errors
    /// `IllegalArgument` where it exists, overlaps another of the same priority, or names missing
    /// components; `MapperParsing` where its mapping is not one.
    pub fn put_template(
        &self,
        kind: TemplateKind,
        name: &str,
        body: Value,
        create: bool,
    ) -> Result<Vec<MetadataChange>> {
        let part = if kind == TemplateKind::Legacy { &body } else { &body["template"] };
        for alias in part["aliases"].as_object().into_iter().flat_map(Map::keys) {
            self.check_part(Action::PutAliases, alias)?;
        }
        let changes = self.put_template_unchecked(kind, name, body, create)?;
        let next = self.apply(&changes);
        match kind {
            TemplateKind::Legacy => {
                let body = &next.legacy_templates[name];
                let none = Map::new();
                let settings = body["settings"].as_object().unwrap_or(&none);
                index_sort::parse(settings)?;
                Mapping::parse(&body["mappings"], settings)?;
            }
            TemplateKind::Index => {
                let layers = next.composed(name);
                index_sort::parse(&layers.settings)?;
                Mapping::parse(&layers.mapping.unwrap_or_else(|| json!({})), &layers.settings)?;
            }
            // A component may lean on settings of another; its use in templates is checked.
            TemplateKind::Component => {
                for (user, _) in next.index_templates.iter().filter(|(_, template)| uses(template, name)) {
                    let layers = next.composed(user);
                    Mapping::parse(&layers.mapping.unwrap_or_else(|| json!({})), &layers.settings)?;
                }
            }
        }
        Ok(changes)
    }

    /// Decides as [`Metadata::put_template`], but leaves the mapping unparsed.
    pub(super) fn put_template_unchecked(
        &self,
        kind: TemplateKind,
        name: &str,
        body: Value,
        create: bool,
    ) -> Result<Vec<MetadataChange>> {
        let (existing, label) = match kind {
            TemplateKind::Legacy => (&self.legacy_templates, "index_template"),
            TemplateKind::Index => (&self.index_templates, "index template"),
            TemplateKind::Component => (&self.component_templates, "component template"),
        };
        if create && existing.contains_key(name) {
            return Err(Error::IllegalArgument(format!("{label} [{name}] already exists")));
        }
        if kind == TemplateKind::Index {
            self.check_index_template(name, &body)?;
        }
        if existing.get(name) == Some(&body) {
            return Ok(Vec::new());
        }
        Ok(vec![MetadataChange::PutTemplate { kind: kind.name().into(), name: name.into(), body }])
    }

    fn check_index_template(&self, name: &str, body: &Value) -> Result<()> {
        let components = patterns_of(&body["composed_of"]);
        if components.len() > MAX_COMPONENTS {
            return Err(Error::IllegalArgument(format!(
                "index template [{name}] is composed of more than [{MAX_COMPONENTS}] component templates"
            )));
        }
        let missing: Vec<&str> = components
            .iter()
            .filter(|component| !self.component_templates.contains_key(component.as_str()))
            .map(String::as_str)
            .collect();
        if !missing.is_empty() {
            return Err(Error::IllegalArgument(format!(
                "index_template [{name}] invalid, cause [index template [{name}] specifies component templates [{}] \
                 that do not exist]",
                missing.join(", ")
            )));
        }
        let patterns = patterns_of(&body["index_patterns"]);
        if patterns.iter().any(|pattern| pattern == "*")
            && body["template"]["settings"].get("index.hidden").is_some()
        {
            return Err(Error::IllegalArgument(
                "global composable templates may not specify the setting index.hidden".into(),
            ));
        }
        let rivals: Vec<(&String, Vec<String>)> = self
            .index_templates
            .iter()
            .filter(|(other, template)| *other != name && priority(template) == priority(body))
            .map(|(other, template)| (other, patterns_of(&template["index_patterns"])))
            .filter(|(_, theirs)| {
                theirs.iter().any(|theirs| patterns.iter().any(|ours| pattern::overlap(ours, theirs)))
            })
            .collect();
        if rivals.is_empty() {
            return Ok(());
        }
        Err(Error::IllegalArgument(format!(
            "index template [{name}] has index patterns [{}] matching patterns from existing templates [{}] with \
             patterns ({}) that have the same priority [{}], multiple index templates may not match during index \
             creation, please use a different priority",
            patterns.join(", "),
            rivals.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(","),
            rivals
                .iter()
                .map(|(name, patterns)| format!("{name} => [{}]", patterns.join(", ")))
                .collect::<Vec<_>>()
                .join(","),
            priority(body)
        )))
    }

    /// Lists the templates of a kind that a comma-separated list of names and wildcards selects;
    /// all of them without one.
    pub fn list_templates(&self, kind: TemplateKind, names: Option<&str>) -> Vec<(&str, &Value)> {
        let templates = match kind {
            TemplateKind::Legacy => &self.legacy_templates,
            TemplateKind::Index => &self.index_templates,
            TemplateKind::Component => &self.component_templates,
        };
        templates
            .iter()
            .filter(|(name, _)| {
                names.is_none_or(|names| {
                    names.split(',').any(|asked| asked == "_all" || pattern::matches(asked, name))
                })
            })
            .map(|(name, body)| (name.as_str(), body))
            .collect()
    }

    /// Decides to delete the templates of a kind that names and wildcards select.
    ///
    /// # Errors
    /// `TemplateNotFound`, or `IllegalArgument` for a component that is in use.
    pub fn delete_templates(&self, kind: TemplateKind, names: &str) -> Result<Vec<MetadataChange>> {
        let mut changes: Vec<MetadataChange> = Vec::new();
        for asked in names.split(',') {
            let found = self.list_templates(kind, Some(asked));
            if found.is_empty() && asked != "*" {
                return Err(Error::TemplateNotFound { name: asked.to_owned() });
            }
            for (name, _) in found {
                if kind == TemplateKind::Component {
                    let users: Vec<&str> = self
                        .index_templates
                        .iter()
                        .filter(|(_, template)| uses(template, name))
                        .map(|(user, _)| user.as_str())
                        .collect();
                    if !users.is_empty() {
                        return Err(Error::IllegalArgument(format!(
                            "component templates [{name}] cannot be removed as they are still in use by index \
                             templates [{}]",
                            users.join(", ")
                        )));
                    }
                }
                let streams = match kind {
                    TemplateKind::Index => self.streams_of_template(name),
                    _ => Vec::new(),
                };
                if !streams.is_empty() {
                    return Err(Error::IllegalArgument(format!(
                        "unable to remove composable templates [{name}] as they are in use by a data streams [{}]",
                        streams.join(", ")
                    )));
                }
                let change = MetadataChange::DeleteTemplate { kind: kind.name().into(), name: name.into() };
                if !changes.contains(&change) {
                    changes.push(change);
                }
            }
        }
        Ok(changes)
    }

    /// Gathers what templates contribute to a new index of that name. `hidden` is what its request
    /// says of `index.hidden`; templates for all indices leave hidden ones alone.
    pub fn layers(&self, index: &str, hidden: Option<bool>) -> Layers {
        // What the server's own indices are is not the users' to say.
        if NameClass::new(index) != NameClass::Ordinary {
            return Layers::default();
        }
        let mut layers = match self.best_template(index, hidden) {
            Some((name, body)) => self.compose(name, body),
            None => {
                let mut legacy: Vec<&Value> =
                    self.legacy_templates.values().filter(|body| applies(body, index, hidden)).collect();
                legacy.sort_by_key(|template| template["order"].as_i64().unwrap_or(0));
                let mut layers = Layers::default();
                for template in legacy {
                    lay_settings_and_aliases(&mut layers, template);
                    if let Some(doc_type) = template["doc_type"].as_str().filter(|name| *name != "_doc") {
                        layers.doc_type = Some(doc_type.into());
                    }
                    if template["mappings"].as_object().is_some_and(|body| !body.is_empty()) {
                        layers.legacy_mappings.insert(0, template["mappings"].clone());
                    }
                }
                layers
            }
        };
        layers.aliases =
            layers.aliases.into_iter().map(|(name, alias)| (name.replace("{index}", index), alias)).collect();
        layers
    }

    /// Finds the composable template that applies to a name: a user's, else one of the server's own.
    pub(super) fn best_template(&self, name: &str, hidden: Option<bool>) -> Option<(&str, &Value)> {
        self.stored_template(name, hidden).or_else(|| builtin_templates::find(name, hidden))
    }

    /// Finds the composable template of a user that applies to a name.
    pub(super) fn stored_template(&self, name: &str, hidden: Option<bool>) -> Option<(&str, &Value)> {
        let applying = self.index_templates.iter().filter(|(_, template)| applies(template, name, hidden));
        let best = applying.max_by_key(|(_, template)| priority(template));
        best.map(|(template, body)| (template.as_str(), body))
    }

    /// Gathers what one composable template with its components contributes.
    pub fn composed(&self, template: &str) -> Layers {
        match self.index_templates.get(template) {
            Some(body) => self.compose(template, body),
            None => Layers { composable: Some(template.to_owned()), ..Layers::default() },
        }
    }

    fn compose(&self, template: &str, body: &Value) -> Layers {
        let mut layers = Layers { composable: Some(template.to_owned()), ..Layers::default() };
        let components = patterns_of(&body["composed_of"])
            .into_iter()
            .filter_map(|name| self.component_templates.get(&name));
        for part in components.chain([body]) {
            lay_settings_and_aliases(&mut layers, &part["template"]);
            layers.mapping = mapping_body::overlay(layers.mapping, part["template"].get("mappings"));
        }
        layers
    }

    /// Lists the legacy templates and the other composable ones whose patterns overlap a pattern, for
    /// simulation.
    pub fn overlapping_templates(&self, index: &str, but: Option<&str>) -> Vec<(&str, Vec<String>)> {
        let composable = self.index_templates.iter().filter(|(name, _)| Some(name.as_str()) != but);
        self.legacy_templates
            .iter()
            .chain(composable)
            .map(|(name, body)| (name.as_str(), patterns_of(&body["index_patterns"])))
            .filter(|(_, patterns)| patterns.iter().any(|glob| pattern::overlap(glob, index)))
            .collect()
    }
}

/// Returns whether a template of any kind is for indices of a name.
pub(super) fn applies(template: &Value, name: &str, hidden: Option<bool>) -> bool {
    template["index_patterns"].as_array().into_iter().flatten().filter_map(Value::as_str).any(|glob| {
        pattern::matches(glob, name) && !(hidden == Some(true) && glob.bytes().all(|byte| byte == b'*'))
    })
}

fn uses(template: &Value, component: &str) -> bool {
    template["composed_of"].as_array().into_iter().flatten().any(|name| name == component)
}

fn lay_settings_and_aliases(layers: &mut Layers, part: &Value) {
    for (key, value) in part["settings"].as_object().into_iter().flatten() {
        layers.settings.insert(key.clone(), value.clone());
    }
    for (name, alias) in part["aliases"].as_object().into_iter().flatten() {
        layers.aliases.insert(name.clone(), alias.clone());
    }
}
