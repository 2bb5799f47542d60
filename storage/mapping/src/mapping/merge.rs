//! Merging an update into a mapping: what may change, and how the rest is refused.

use std::sync::Arc;

use millrace_runtime::{Error, Result};
use serde_json::Value;

use super::spec::{LeafSpec, ObjectSpec, RootSpec, Spec};
use super::tree::{Alias, Child, Mapping, Numbers};
use super::{FieldType, as_you_type, params};

impl Mapping {
    /// Applies a parsed body. On error the mapping is half changed: callers work on a copy.
    pub(super) fn apply(&mut self, spec: RootSpec, numbers: Option<&Numbers>) -> Result<()> {
        let root = Arc::make_mut(&mut self.root);
        if let Some(templates) = spec.templates {
            // As in OpenSearch, an update gives the whole list.
            root.templates = templates;
        }
        root.date_detection = spec.date_detection.or(root.date_detection);
        root.numeric_detection = spec.numeric_detection.or(root.numeric_detection);
        if spec.date_formats.is_some() {
            root.date_formats = spec.date_formats;
        }
        if let Some(source) = spec.source {
            let (old, new) = (root.source.get("enabled"), source.get("enabled"));
            if old != new && self.version > 0 {
                let shown = |value: Option<&Value>| value.and_then(Value::as_bool).unwrap_or(true);
                return Err(Error::IllegalArgument(format!(
                    "Mapper for [_source] conflicts with existing mapper:\n\tCannot update parameter [enabled] from [{}] to [{}]",
                    shown(old),
                    shown(new)
                )));
            }
            root.source = source;
        }
        if let Some(required) = spec.routing_required {
            if required != root.routing_required && self.version > 0 {
                return Err(Error::IllegalArgument(format!(
                    "Mapper for [_routing] conflicts with existing mapper:\n\tCannot update parameter [required] from [{}] to [{required}]",
                    root.routing_required
                )));
            }
            root.routing_required = required;
        }
        root.data_stream_timestamp = spec.data_stream_timestamp.unwrap_or(root.data_stream_timestamp);
        if spec.meta.is_some() {
            root.meta = spec.meta;
        }
        self.apply_object_options(0, &spec.object)?;
        self.apply_properties(0, spec.object.properties, numbers)
    }

    fn apply_object_options(&mut self, at: u32, spec: &ObjectSpec) -> Result<()> {
        let object = self.object(at);
        if let Some(enabled) = spec.enabled
            && enabled != object.enabled
        {
            if self.version > 0 || at != 0 {
                let name = if object.path.is_empty() { "_doc" } else { &object.path };
                return Err(Error::mapper_parsing(format!(
                    "the [enabled] parameter can't be updated for the object mapping [{name}]"
                )));
            }
            Arc::make_mut(&mut self.objects[at as usize]).enabled = enabled;
        }
        if spec.dynamic.is_some() && spec.dynamic != self.object(at).dynamic {
            Arc::make_mut(&mut self.objects[at as usize]).dynamic = spec.dynamic;
        }
        Ok(())
    }

    /// Merges an update into a child that is there.
    pub(super) fn merge_child(&mut self, child: Child, spec: Spec, numbers: Option<&Numbers>) -> Result<()> {
        match (child, spec) {
            (Child::Object(at), Spec::Object(spec)) => {
                let refuse = |reason: &str| Err(Error::IllegalArgument(reason.to_owned()));
                match (self.object(at).nested, spec.nested) {
                    (Some(_), None) => {
                        return refuse("cannot change object mapping from nested to non-nested");
                    }
                    (None, Some(_)) => {
                        return refuse("cannot change object mapping from non-nested to nested");
                    }
                    (Some(old), Some(new)) if old.include_in_parent != new.include_in_parent => {
                        return Err(Error::mapper_parsing(
                            "the [include_in_parent] parameter can't be updated on a nested object mapping",
                        ));
                    }
                    (Some(old), Some(new)) if old.include_in_root != new.include_in_root => {
                        return Err(Error::mapper_parsing(
                            "the [include_in_root] parameter can't be updated on a nested object mapping",
                        ));
                    }
                    _ => {}
                }
                self.apply_object_options(at, &spec)?;
                self.apply_properties(at, spec.properties, numbers)
            }
            (Child::Leaf(at), Spec::Leaf(spec)) => self.merge_leaf(at, &spec, numbers),
            (Child::Alias(at), Spec::Alias(target)) => {
                let alias: &mut Alias = Arc::make_mut(&mut self.aliases[at as usize]);
                alias.target = target.into();
                Ok(())
            }
            (Child::Leaf(at), Spec::Alias(_)) => {
                let field = &self.leaf(at).field;
                Err(cannot_change(&field.path, field.type_name(), "alias"))
            }
            (Child::Alias(at), _) => Err(Error::IllegalArgument(format!(
                "Cannot merge a field alias mapping [{}] with a mapping that is not for a field alias.",
                self.alias_path(at)
            ))),
            (Child::Leaf(at), Spec::Object(_)) => Err(non_object(&self.leaf(at).field.path)),
            (Child::Object(at), _) => Err(non_object(&self.object(at).path)),
        }
    }

    fn merge_leaf(&mut self, at: u32, spec: &LeafSpec, numbers: Option<&Numbers>) -> Result<()> {
        let leaf = self.leaf(at);
        let field = &leaf.field;
        if field.type_name() != spec.field_type.name() {
            return Err(cannot_change(&field.path, field.type_name(), spec.field_type.name()));
        }
        let mut conflicts = String::new();
        for param in params::of(&field.field_type) {
            let (old, new) = (param.shown(&field.params), param.shown(&spec.params));
            // Norms of a text field can be switched off, never on again.
            let allowed = match (param.name, &field.field_type) {
                ("norms", FieldType::Text | FieldType::Keyword | FieldType::SearchAsYouType(_)) => {
                    new == "false"
                }
                _ => param.updatable,
            };
            if old != new && !allowed {
                conflicts.push_str(&format!(
                    "\n\tCannot update parameter [{}] from [{old}] to [{new}]",
                    param.name
                ));
            }
        }
        if !conflicts.is_empty() {
            return Err(Error::IllegalArgument(format!(
                "Mapper for [{}] conflicts with existing mapper:{conflicts}",
                field.path
            )));
        }
        let multi: Vec<(Arc<str>, u32)> =
            leaf.multi.iter().map(|sub| (self.leaf(*sub).name.clone(), *sub)).collect();
        for (name, sub) in &spec.fields {
            match multi.iter().find(|(existing, _)| existing.as_ref() == name) {
                Some((_, existing)) => self.merge_leaf(*existing, sub, numbers)?,
                None => self.add_multi_field(at, name, sub, numbers)?,
            }
        }
        self.update_leaf(at, spec)?;
        for (name, part) in as_you_type::parts_of(&self.leaf(at).field) {
            if let Some((_, existing)) = multi.iter().find(|(existing, _)| **existing == *name) {
                self.update_leaf(*existing, &part)?;
            }
        }
        Ok(())
    }
}

fn cannot_change(path: &str, from: &str, to: &str) -> Error {
    Error::IllegalArgument(format!("mapper [{path}] cannot be changed from type [{from}] to [{to}]"))
}

fn non_object(path: &str) -> Error {
    Error::IllegalArgument(format!("can't merge a non object mapping [{path}] with an object mapping"))
}
