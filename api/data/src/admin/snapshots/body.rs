//! Bodies of creations, clones and restores, member by member; a member that is not known is refused.

use millrace_catalog::metadata::{IndicesOptions, flatten, with_index_prefix};
use millrace_snapshot::{CreateSnapshot, RestoreSnapshot, SelectionOptions, names_accounts};
use serde_json::{Map, Value};

use crate::error::Error;

/// Reads the members of a body; null is an empty one.
fn members(body: Option<Value>) -> Result<Map<String, Value>, Error> {
    match body {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(members)) => Ok(members),
        Some(other) => {
            Err(Error::new(400, "parse_exception", format!("the body must be an object, but is [{other}]")))
        }
    }
}

/// Reads names: a comma-separated text or an array of texts.
fn names(key: &str, value: &Value) -> Result<String, Error> {
    let malformed =
        || Error::illegal_argument(format!("malformed {key} section, should be an array of strings"));
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Array(list) => {
            let list: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
            list.map(|list| list.join(",")).ok_or_else(malformed)
        }
        _ => Err(malformed()),
    }
}

fn boolean(key: &str, value: &Value) -> Result<bool, Error> {
    match value {
        Value::Bool(flag) => Ok(*flag),
        Value::String(text) if text == "true" => Ok(true),
        Value::String(text) if text == "false" => Ok(false),
        other => Err(Error::illegal_argument(format!(
            "Failed to parse value [{other}] of [{key}] as only [true] or [false] are allowed."
        ))),
    }
}

fn feature_states(value: &Value) -> Result<bool, Error> {
    names_accounts(value).map_err(Error::illegal_argument)
}

fn unknown(key: &str) -> Error {
    Error::illegal_argument(format!("Unknown parameter {key}"))
}

fn expand(words: &str, options: &mut IndicesOptions) -> Result<(), Error> {
    (options.expand_open, options.expand_closed, options.expand_hidden) = (false, false, false);
    for word in words.split(',') {
        match word {
            "open" => options.expand_open = true,
            "closed" => options.expand_closed = true,
            "hidden" => options.expand_hidden = true,
            "none" => {}
            "all" => (options.expand_open, options.expand_closed, options.expand_hidden) = (true, true, true),
            _ => return Err(Error::illegal_argument(format!("No valid expand wildcard value [{word}]"))),
        }
    }
    Ok(())
}

/// Reads the body of a creation.
pub(super) fn create(body: Option<Value>) -> Result<CreateSnapshot, Error> {
    let mut request = CreateSnapshot::default();
    for (key, value) in members(body)? {
        match key.as_str() {
            "indices" => request.indices = Some(names(&key, &value)?),
            "ignore_unavailable" => request.options.ignore_unavailable = boolean(&key, &value)?,
            "allow_no_indices" => request.options.allow_no_indices = boolean(&key, &value)?,
            "expand_wildcards" => expand(&names(&key, &value)?, &mut request.options)?,
            "include_global_state" => request.include_global_state = boolean(&key, &value)?,
            "feature_states" => request.include_accounts = feature_states(&value)?,
            "partial" => request.partial = boolean(&key, &value)?,
            "metadata" => match value {
                Value::Null => {}
                Value::Object(metadata) => request.metadata = Some(metadata),
                _ => {
                    let reason = "malformed metadata, should be an object";
                    return Err(Error::illegal_argument(reason));
                }
            },
            "settings" if value.as_object().is_some_and(Map::is_empty) => {}
            _ => return Err(unknown(&key)),
        }
    }
    Ok(request)
}

/// Reads the body of a clone: the expression of its indices, and its options.
pub(super) fn clone_indices(body: Option<Value>) -> Result<(String, SelectionOptions), Error> {
    let (mut indices, mut options) = (None, SelectionOptions::default());
    for (key, value) in members(body)? {
        match key.as_str() {
            "indices" => indices = Some(names(&key, &value)?),
            "ignore_unavailable" => options.ignore_unavailable = boolean(&key, &value)?,
            "allow_no_indices" => options.allow_no_indices = boolean(&key, &value)?,
            // A snapshot has no open or closed indices: the value is only checked.
            "expand_wildcards" => expand(&names(&key, &value)?, &mut IndicesOptions::open_and_closed())?,
            _ => return Err(unknown(&key)),
        }
    }
    let missing = || Error::validation(&["indices patterns are missing"]);
    let indices = indices.filter(|indices| !indices.is_empty()).ok_or_else(missing)?;
    Ok((indices, options))
}

/// Reads the body of a restore.
pub(super) fn restore(body: Option<Value>) -> Result<RestoreSnapshot, Error> {
    let mut request = RestoreSnapshot::default();
    let text = |key: &str, value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        _ => Err(Error::illegal_argument(format!("malformed {key}"))),
    };
    for (key, value) in members(body)? {
        match key.as_str() {
            "indices" => request.indices = Some(names(&key, &value)?),
            "ignore_unavailable" => request.options.ignore_unavailable = boolean(&key, &value)?,
            "allow_no_indices" => request.options.allow_no_indices = boolean(&key, &value)?,
            // A snapshot has no open or closed indices: the value is only checked.
            "expand_wildcards" => expand(&names(&key, &value)?, &mut IndicesOptions::open_and_closed())?,
            "partial" => request.partial = boolean(&key, &value)?,
            "include_global_state" => request.include_global_state = boolean(&key, &value)?,
            "feature_states" => request.include_accounts = feature_states(&value)?,
            "include_aliases" => request.include_aliases = boolean(&key, &value)?,
            "rename_pattern" => request.rename_pattern = Some(text(&key, &value)?),
            "rename_replacement" => request.rename_replacement = Some(text(&key, &value)?),
            "rename_alias_pattern" => request.rename_alias_pattern = Some(text(&key, &value)?),
            "rename_alias_replacement" => request.rename_alias_replacement = Some(text(&key, &value)?),
            "index_settings" if value.is_object() => {
                request.index_settings = with_index_prefix(flatten(&value)?);
            }
            "index_settings" => return Err(Error::illegal_argument("malformed index_settings section")),
            "ignore_index_settings" => {
                let names = names(&key, &value)?;
                let prefixed = names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(|name| {
                    if name.starts_with("index.") { name.to_owned() } else { format!("index.{name}") }
                });
                request.ignore_index_settings = prefixed.collect();
            }
            _ => return Err(unknown(&key)),
        }
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bodies_are_read_member_by_member() {
        let created = create(Some(json!({
            "indices": ["a", "b*"], "ignore_unavailable": true, "include_global_state": "false",
            "partial": true, "metadata": {"by": "me"}, "expand_wildcards": "open", "feature_states": ["security"],
        })));
        let created = created.unwrap();
        assert_eq!(created.indices.as_deref(), Some("a,b*"));
        assert!(created.options.ignore_unavailable && created.partial && !created.include_global_state);
        assert!(created.include_accounts);
        assert!(!created.options.expand_hidden && !created.options.expand_closed);
        assert!(create(None).unwrap().include_global_state);
        let restored = restore(Some(json!({
            "index_settings": {"number_of_replicas": 0, "index": {"refresh_interval": "5s"}},
            "ignore_index_settings": "refresh_interval, index.blocks.*",
        })));
        let restored = restored.unwrap();
        assert_eq!(restored.index_settings["index.number_of_replicas"], "0");
        assert_eq!(restored.index_settings["index.refresh_interval"], "5s");
        assert_eq!(restored.ignore_index_settings, ["index.refresh_interval", "index.blocks.*"]);
        assert!(restored.include_aliases && !restored.include_global_state && !restored.include_accounts);
        for (states, includes) in [(json!("security"), true), (json!(["none"]), false), (json!([]), false)] {
            let body = json!({ "feature_states": states });
            assert_eq!(restore(Some(body)).unwrap().include_accounts, includes, "{states}");
        }
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        for (body, needle) in [
            (json!({"indecis": "a"}), "indecis"),
            (json!({"indices": [1]}), "malformed indices"),
            (json!({"partial": "perhaps"}), "perhaps"),
            (json!({"feature_states": ["security", "kibana"]}), "unknown feature state [kibana]"),
            (json!([]), "must be an object"),
        ] {
            assert!(create(Some(body.clone())).unwrap_err().reason().contains(needle), "{body}");
            assert!(restore(Some(body.clone())).unwrap_err().reason().contains(needle), "{body}");
        }
        assert!(
            clone_indices(Some(json!({}))).unwrap_err().reason().contains("indices patterns are missing")
        );
    }
}
