//! The mapping as `GET _mapping` shows it.

use serde_json::{Map, Value, json};

use super::tree::{Child, Leaf, Mapping};
use super::{AsYouType, FieldType};

impl Mapping {
    /// Renders the body that `GET _mapping` shows under `mappings`; where only some fields are seen, without the patterns that
    /// may name others.
    pub fn to_json(&self) -> Value {
        let mut body = Map::new();
        let root = &self.root;
        let sees_all = self.field_rules().is_empty();
        self.render_options(0, &mut body);
        if let Some(formats) = &root.date_formats {
            let formats: Vec<&str> = formats.iter().map(|format| format.as_str()).collect();
            body.insert("dynamic_date_formats".to_owned(), json!(formats));
        }
        if sees_all && !root.templates.is_empty() {
            let templates = root.templates.iter().map(|template| template.to_json()).collect();
            body.insert("dynamic_templates".to_owned(), Value::Array(templates));
        }
        if let Some(detection) = root.date_detection {
            body.insert("date_detection".to_owned(), json!(detection));
        }
        if let Some(detection) = root.numeric_detection {
            body.insert("numeric_detection".to_owned(), json!(detection));
        }
        if let Some(meta) = &root.meta {
            body.insert("_meta".to_owned(), Value::Object(meta.clone()));
        }
        if root.data_stream_timestamp {
            body.insert("_data_stream_timestamp".to_owned(), json!({ "enabled": true }));
        }
        if root.routing_required {
            body.insert("_routing".to_owned(), json!({ "required": true }));
        }
        let mut source = root.source.clone();
        source.retain(|name, _| sees_all || !matches!(name.as_str(), "includes" | "excludes"));
        if !source.is_empty() {
            body.insert("_source".to_owned(), Value::Object(source));
        }
        self.render_properties(0, &mut body);
        Value::Object(body)
    }

    fn render_options(&self, at: u32, body: &mut Map<String, Value>) {
        let object = self.object(at);
        if let Some(dynamic) = object.dynamic {
            body.insert("dynamic".to_owned(), json!(dynamic.name()));
        }
        if !object.enabled {
            body.insert("enabled".to_owned(), json!(false));
        }
    }

    fn render_properties(&self, at: u32, body: &mut Map<String, Value>) {
        let object = self.object(at);
        if object.children.is_empty() {
            return;
        }
        let mut children: Vec<_> = object.children.iter().collect();
        children.sort_unstable_by(|a, b| a.0.cmp(b.0));
        let properties = children
            .into_iter()
            .map(|(name, child)| (name.to_string(), Value::Object(self.render_child(*child))))
            .collect();
        body.insert("properties".to_owned(), Value::Object(properties));
    }

    fn render_child(&self, child: Child) -> Map<String, Value> {
        let mut body = Map::new();
        match child {
            Child::Leaf(at) => return self.render_leaf(self.leaf(at)),
            Child::Alias(at) => {
                body.insert("type".to_owned(), json!("alias"));
                body.insert("path".to_owned(), json!(*self.aliases[at as usize].target));
            }
            Child::Object(at) => {
                let object = self.object(at);
                if let Some(nested) = object.nested {
                    body.insert("type".to_owned(), json!("nested"));
                    if nested.include_in_parent {
                        body.insert("include_in_parent".to_owned(), json!(true));
                    }
                    if nested.include_in_root {
                        body.insert("include_in_root".to_owned(), json!(true));
                    }
                } else if object.children.is_empty() {
                    body.insert("type".to_owned(), json!("object"));
                }
                self.render_options(at, &mut body);
                self.render_properties(at, &mut body);
            }
        }
        body
    }

    fn render_leaf(&self, leaf: &Leaf) -> Map<String, Value> {
        let mut body = Map::new();
        body.insert("type".to_owned(), json!(leaf.field.type_name()));
        for (key, value) in &leaf.field.params {
            if key == "search_analyzer" && value.as_str() == Some(&leaf.field.analyzer) {
                continue;
            }
            body.insert(key.clone(), value.clone());
        }
        let contexts = body.get_mut("contexts").and_then(Value::as_array_mut);
        for context in contexts.into_iter().flatten().filter_map(Value::as_object_mut) {
            let shows = |path: &str| self.field_rules().iter().all(|rules| rules.shows(path));
            context.retain(|name, value| name != "path" || value.as_str().is_none_or(shows));
        }
        if leaf.field.params.contains_key("search_analyzer") && !body.contains_key("analyzer") {
            body.insert("analyzer".to_owned(), json!("default"));
        }
        match leaf.field.field_type {
            // These are shown even where they are not given.
            FieldType::SearchAsYouType(AsYouType::Whole { max }) => {
                body.insert("doc_values".to_owned(), json!(false));
                body.insert("max_shingle_size".to_owned(), json!(max));
            }
            FieldType::Completion => {
                let keys = leaf.field.completion_keys();
                body.insert("analyzer".to_owned(), json!(*leaf.field.analyzer));
                body.insert("preserve_separators".to_owned(), json!(keys.separators));
                body.insert("preserve_position_increments".to_owned(), json!(keys.increments));
                body.insert("max_input_length".to_owned(), json!(leaf.field.max_input_length()));
            }
            _ => {}
        }
        let shown = |leaf: &&Leaf| match leaf.field.field_type {
            FieldType::SearchAsYouType(kind) => kind.is_own(),
            _ => true,
        };
        let mut fields: Vec<&Leaf> = leaf.multi.iter().map(|sub| self.leaf(*sub)).filter(shown).collect();
        if !fields.is_empty() {
            fields.sort_unstable_by(|a, b| a.name.cmp(&b.name));
            let fields =
                fields.into_iter().map(|sub| (sub.name.to_string(), Value::Object(self.render_leaf(sub))));
            body.insert("fields".to_owned(), Value::Object(fields.collect()));
        }
        if !leaf.rules.copy_to.is_empty() {
            let targets: Vec<&str> = leaf.rules.copy_to.iter().map(|target| target.as_ref()).collect();
            body.insert("copy_to".to_owned(), json!(targets));
        }
        body
    }
}
