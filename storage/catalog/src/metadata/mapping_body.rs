//! Mapping bodies before they are parsed: type levels, and merging those of templates.
//!
//! `Mapping::parse` knows nothing of templates or type names; what it is handed is one body that
//! these functions made. Two ways of merging exist because OpenSearch has two: legacy templates
//! merge as plain JSON, composable ones by the meaning of fields (a later definition of a leaf
//! replaces the earlier one whole).

use std::sync::Arc;

use millrace_runtime::{Error, Result};
use serde_json::{Map, Value};

/// Objects that a dotted field name is expanded into at most; deeper names stay dotted and are left
/// to the mapping's own limit.
const MAX_EXPANDED_LEVELS: usize = 32;

/// Splits the type level off a `mappings` member. With `include_type_name` the one member is the
/// type; without, a level named `_doc` is refused as OpenSearch does. `target` names the index in
/// messages.
///
/// # Errors
/// [`Error::IllegalArgument`], or [`Error::MapperParsing`] where a level is no object.
pub fn split_type(
    target: &str,
    mappings: &Value,
    include_type_name: bool,
) -> Result<(Option<Arc<str>>, Option<Value>)> {
    let members = match mappings {
        Value::Null => return Ok((None, None)),
        Value::Object(members) => members,
        other => {
            return Err(Error::mapper_parsing(format!("mapping must be an object, but found [{other}]")));
        }
    };
    if !include_type_name {
        if members.len() == 1 && members.get("_doc").is_some_and(Value::is_object) {
            return Err(Error::IllegalArgument(
                "The mapping definition cannot be nested under a type [_doc] unless include_type_name is set to \
                 true."
                    .into(),
            ));
        }
        return Ok((None, Some(mappings.clone())));
    }
    let mut types = members.iter();
    match (types.next(), types.next()) {
        (None, _) => Ok((None, None)),
        (Some(_), Some(_)) => {
            let mut names: Vec<&str> = members.keys().map(String::as_str).collect();
            names.sort_unstable();
            Err(more_than_one_type(target, &names))
        }
        (Some((name, body)), None) => {
            check_type_name(name)?;
            match body {
                Value::Null => Ok((Some(name.as_str().into()), None)),
                Value::Object(_) => Ok((Some(name.as_str().into()), Some(body.clone()))),
                other => Err(Error::mapper_parsing(format!(
                    "mapping of type [{name}] must be an object, but found [{other}]"
                ))),
            }
        }
    }
}

/// Makes the refusal of a second type.
pub(super) fn more_than_one_type(target: &str, types: &[&str]) -> Error {
    Error::IllegalArgument(format!(
        "Rejecting mapping update to [{target}] as the final mapping would have more than 1 type: [{}]",
        types.join(", ")
    ))
}

/// Checks a type name.
pub(super) fn check_type_name(name: &str) -> Result<()> {
    let fault = if name.is_empty() {
        "mapping type name is empty".to_owned()
    } else if name.len() > 255 {
        format!("mapping type name is too long; limit is length 255 but was [{}]", name.len())
    } else if name.starts_with('_') && name != "_doc" {
        format!("mapping type name [{name}] can't start with '_' unless it is called [_doc]")
    } else if name.contains('#') {
        format!("mapping type name [{name}] should not include '#' in it")
    } else if name.contains(',') {
        format!("mapping type name [{name}] should not include ',' in it")
    } else if name.starts_with('.') {
        format!("mapping type name [{name}] must not start with a '.'")
    } else {
        return Ok(());
    };
    Err(Error::IllegalArgument(fault))
}

/// Lays one mapping body over another as composable templates do.
pub(super) fn overlay(base: Option<Value>, over: Option<&Value>) -> Option<Value> {
    let Some(over) = over else { return base };
    let mut merged = match base {
        Some(Value::Object(members)) => members,
        _ => Map::new(),
    };
    if let Value::Object(members) = over {
        overlay_object(&mut merged, expand_dots(members));
    }
    Some(Value::Object(merged))
}

fn overlay_object(base: &mut Map<String, Value>, over: Map<String, Value>) {
    for (name, value) in over {
        match (name.as_str(), base.get_mut(&name), value) {
            ("properties", Some(Value::Object(base)), Value::Object(over)) => {
                for (field, definition) in over {
                    match (base.get_mut(&field), definition) {
                        (Some(Value::Object(before)), Value::Object(after))
                            if is_object(before) && is_object(&after) =>
                        {
                            overlay_object(before, after);
                        }
                        (_, definition) => {
                            base.insert(field, definition);
                        }
                    }
                }
            }
            ("dynamic_templates", Some(Value::Array(base)), Value::Array(over)) => {
                overlay_named(base, over);
            }
            ("_meta", Some(Value::Object(base)), Value::Object(over)) => fill_in(base, over, true),
            (_, _, value) => {
                base.insert(name, value);
            }
        }
    }
}

fn is_object(definition: &Map<String, Value>) -> bool {
    match definition.get("type") {
        None => true,
        Some(name) => name == "object" || name == "nested",
    }
}

/// Lays a list of one-member objects over another: equal names are replaced, others appended.
fn overlay_named(base: &mut Vec<Value>, over: Vec<Value>) {
    let name = |item: &Value| item.as_object().and_then(|item| item.keys().next().cloned());
    for item in over {
        let same =
            name(&item).and_then(|wanted| base.iter_mut().find(|had| name(had).as_ref() == Some(&wanted)));
        match same {
            Some(had) => *had = item,
            None => base.push(item),
        }
    }
}

/// Fills what a mapping body lacks from a legacy template's, as JSON.
pub(super) fn with_defaults(body: Option<Value>, defaults: Option<&Value>) -> Option<Value> {
    let Some(defaults) = defaults else { return body };
    let mut merged = match body {
        Some(Value::Object(members)) => expand_dots(&members),
        _ => Map::new(),
    };
    if let Value::Object(defaults) = defaults {
        fill_in(&mut merged, expand_dots(defaults), false);
    }
    Some(Value::Object(merged))
}

/// Merges objects member by member; where both have a plain value, `replace` decides.
fn fill_in(base: &mut Map<String, Value>, other: Map<String, Value>, replace: bool) {
    for (name, value) in other {
        match (base.get_mut(&name), value) {
            (Some(Value::Object(base)), Value::Object(other)) => fill_in(base, other, replace),
            (Some(Value::Array(base)), Value::Array(other)) if name == "dynamic_templates" => {
                fill_in_named(base, other, replace);
            }
            (Some(_), _) if !replace => {}
            (_, value) => {
                base.insert(name, value);
            }
        }
    }
}

/// Fills in a list of one-member objects from another: equal names are merged, others are put behind, so that the
/// nearer list is asked first.
fn fill_in_named(base: &mut Vec<Value>, other: Vec<Value>, replace: bool) {
    let name = |item: &Value| item.as_object().and_then(|item| item.keys().next().cloned());
    for item in other {
        let same =
            name(&item).and_then(|wanted| base.iter_mut().find(|had| name(had).as_ref() == Some(&wanted)));
        match (same, item) {
            (Some(Value::Object(mine)), Value::Object(item)) => fill_in(mine, item, replace),
            (Some(_), _) => {}
            (None, item) => base.push(item),
        }
    }
}

/// Expands dotted names under `properties` into objects.
fn expand_dots(body: &Map<String, Value>) -> Map<String, Value> {
    let mut expanded = body.clone();
    if let Some(Value::Object(properties)) = body.get("properties") {
        let mut fields = Map::new();
        for (name, definition) in properties {
            let definition = match definition {
                Value::Object(members) => Value::Object(expand_dots(members)),
                other => other.clone(),
            };
            let mut parts: Vec<&str> = name.split('.').collect();
            if parts.len() > MAX_EXPANDED_LEVELS || parts.iter().any(|part| part.is_empty()) {
                parts = vec![name];
            }
            let mut wrapped = Map::from_iter([(parts[parts.len() - 1].to_owned(), definition)]);
            for part in parts[..parts.len() - 1].iter().rev() {
                let object = Map::from_iter([("properties".to_owned(), Value::Object(wrapped))]);
                wrapped = Map::from_iter([((*part).to_owned(), Value::Object(object))]);
            }
            let mut holder =
                Map::from_iter([("properties".to_owned(), Value::Object(std::mem::take(&mut fields)))]);
            overlay_object(&mut holder, Map::from_iter([("properties".to_owned(), Value::Object(wrapped))]));
            if let Some(Value::Object(merged)) = holder.remove("properties") {
                fields = merged;
            }
        }
        expanded.insert("properties".into(), Value::Object(fields));
    }
    expanded
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn type_levels_are_split_off() {
        let typed = json!({"doc": {"properties": {}}});
        assert_eq!(
            split_type("i", &typed, true).unwrap(),
            (Some("doc".into()), Some(json!({"properties": {}})))
        );
        assert_eq!(split_type("i", &json!({}), true).unwrap(), (None, None));
        assert_eq!(
            split_type("i", &json!({"properties": {}}), false).unwrap().1,
            Some(json!({"properties": {}}))
        );
        for (body, include, expected) in [
            (
                json!({"_doc": {"properties": {}}}),
                false,
                "The mapping definition cannot be nested under a type [_doc] unless include_type_name is set to true.",
            ),
            (
                json!({"b": {}, "a": {}}),
                true,
                "Rejecting mapping update to [i] as the final mapping would have more than 1 type: [a, b]",
            ),
            (json!({"": {}}), true, "mapping type name is empty"),
            (
                json!({"_x": {}}),
                true,
                "mapping type name [_x] can't start with '_' unless it is called [_doc]",
            ),
            (json!("x"), true, "mapping must be an object, but found [\"x\"]"),
        ] {
            assert_eq!(split_type("i", &body, include).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn composable_bodies_replace_leaves_and_merge_objects() {
        let red = json!({"properties": {
            "object1.red": {"type": "keyword"},
            "object2.red": {"type": "keyword", "ignore_above": 5},
            "nested": {"type": "nested", "include_in_root": true}}});
        let blue = json!({"properties": {
            "object2.red": {"type": "text"},
            "object1.blue": {"type": "text"},
            "nested": {"type": "nested", "include_in_root": false, "include_in_parent": true}}});
        let merged = overlay(overlay(None, Some(&red)), Some(&blue)).unwrap();
        assert_eq!(
            merged,
            json!({"properties": {
                "object1": {"properties": {"red": {"type": "keyword"}, "blue": {"type": "text"}}},
                "object2": {"properties": {"red": {"type": "text"}}},
                "nested": {"type": "nested", "include_in_root": false, "include_in_parent": true}}})
        );
    }

    #[test]
    fn legacy_bodies_merge_as_json_and_the_nearer_one_wins() {
        let body = json!({
            "properties": {"a": {"type": "text"}}, "dynamic_templates": [{"n": {}}, {"x": {"new": 1}}]});
        let defaults = json!({
            "_source": {"enabled": false},
            "properties": {"a": {"type": "keyword", "store": true}, "b": {"type": "long"}},
            "dynamic_templates": [{"y": {}}, {"x": {"old": 1}}]});
        assert_eq!(
            with_defaults(Some(body), Some(&defaults)).unwrap(),
            json!({
                "_source": {"enabled": false},
                "properties": {"a": {"type": "text", "store": true}, "b": {"type": "long"}},
                "dynamic_templates": [{"n": {}}, {"x": {"new": 1, "old": 1}}, {"y": {}}]})
        );
    }
}
