//! `_mapping/field`: the mapping of single fields.

use millrace_catalog::metadata::{BlockLevel, IndicesOptions, check_block};
use millrace_mapping::pattern::matches;
use serde_json::{Map, Value, json};

use super::mappings::has_type;
use super::options;
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

/// Objects within objects that are searched for fields; the mapping itself is bounded far below.
const MAX_DEPTH: usize = 128;

pub(crate) fn get(
    api: &Api,
    request: &mut Request,
    index: &str,
    types: Option<&str>,
    fields: &str,
) -> Result<Response, Error> {
    let include_type_name = options::flag(&mut request.params, "include_type_name")?;
    let include_defaults = options::flag(&mut request.params, "include_defaults")?;
    request.params.take_bool("local")?;
    let defaults = IndicesOptions { forbid_closed: false, ..IndicesOptions::open_only() };
    let options = options::indices(&mut request.params, defaults)?;
    request.finish()?;
    if types.is_some() && !include_type_name {
        return Err(Error::illegal_argument(
            "Types cannot be specified unless include_type_name is set to true.",
        ));
    }
    let asked: Vec<&str> = fields.split(',').collect();
    let mut answer = Map::new();
    for meta in api.session.metadata().resolve(index, &options, api.session.clock().now_ms())? {
        check_block(&meta, BlockLevel::MetadataRead)?;
        let mapping = api.session.mapping_body(&*api.session.index(&meta.name)?)?;
        if let Some(types) = types
            && !(has_type(&meta, &mapping)
                && types.split(',').any(|asked| asked == "_all" || matches(asked, meta.mapping_type())))
        {
            continue;
        }
        let mut leaves = Vec::new();
        collect(&mapping, "", 0, &mut leaves);
        let mut found = Map::new();
        for (path, definition) in leaves {
            if asked.iter().any(|asked| matches(asked, &path)) {
                let leaf = path.rsplit('.').next().unwrap_or(&path).to_owned();
                let shown = if include_defaults { with_defaults(definition) } else { definition.clone() };
                found.insert(path.clone(), json!({ "full_name": path, "mapping": { leaf: shown } }));
            }
        }
        let shown = match include_type_name {
            true if !found.is_empty() => json!({ meta.mapping_type(): found }),
            _ => found.into(),
        };
        answer.insert(meta.name.to_string(), json!({ "mappings": shown }));
    }
    let status = if answer.is_empty() { 404 } else { 200 };
    Ok(Response::json(status, answer.into()))
}

/// Collects the leaves of a mapping, multi-fields included, with their full paths.
fn collect<'m>(object: &'m Value, prefix: &str, depth: usize, leaves: &mut Vec<(String, &'m Value)>) {
    if depth > MAX_DEPTH {
        return;
    }
    for member in ["properties", "fields"] {
        for (name, definition) in object[member].as_object().into_iter().flatten() {
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            if definition.get("properties").is_none()
                && definition.get("type").is_some_and(|t| t != "nested" && t != "object")
            {
                leaves.push((path.clone(), definition));
            }
            collect(definition, &path, depth + 1, leaves);
        }
    }
}

/// Adds the defaults that hold where the mapping says nothing.
fn with_defaults(definition: &Value) -> Value {
    let mut shown = definition.clone();
    let defaults: &[(&str, Value)] = match definition["type"].as_str().unwrap_or_default() {
        "text" => &[
            ("analyzer", json!("default")),
            ("boost", json!(1.0)),
            ("index", json!(true)),
            ("norms", json!(true)),
            ("store", json!(false)),
        ],
        _ => &[
            ("boost", json!(1.0)),
            ("doc_values", json!(true)),
            ("index", json!(true)),
            ("store", json!(false)),
        ],
    };
    if let Value::Object(members) = &mut shown {
        for (name, value) in defaults {
            members.entry(*name).or_insert_with(|| value.clone());
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_come_with_full_paths() {
        let mapping = json!({"properties": {
            "t": {"type": "text", "fields": {"raw": {"type": "keyword"}}},
            "obj": {"properties": {"i_t": {"type": "text"}}},
            "n": {"type": "nested", "properties": {"x": {"type": "long"}}},
            "bare": {"type": "object"}}});
        let mut leaves = Vec::new();
        collect(&mapping, "", 0, &mut leaves);
        let paths: Vec<&str> = leaves.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["t", "t.raw", "obj.i_t", "n.x"]);
    }
}
