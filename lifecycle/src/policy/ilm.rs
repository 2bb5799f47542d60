//! Bodies of Elasticsearch's `_ilm/policy`, read into the same policies: a phase becomes a state.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::IndexPolicy;
use super::parse::{duration, invalid, members, number};
use crate::error::Result;

/// Phases in the order in which an index goes through them.
const PHASES: [&str; 5] = ["hot", "warm", "cold", "frozen", "delete"];
/// Actions that mean nothing on one node.
const WITHOUT_MEANING: [&str; 4] = ["allocate", "migrate", "freeze", "unfollow"];
/// Parameters of `allocate` that mean nothing on one node.
const PLACEMENT: [&str; 4] = ["include", "exclude", "require", "total_shards_per_node"];
/// Name of the index that `shrink` makes.
const SHRINK_TARGET: &str = "{{ctx.index}}_shrunken";

/// Reads the body of `_ilm/policy` as a policy; lists what it leaves out, as it means nothing on one node: actions and their parameters.
///
/// # Errors
/// [`crate::Error::Invalid`] with the phase or the action.
pub fn parse_ilm(id: &str, body: &Value, now_ms: i64) -> Result<(IndexPolicy, Vec<String>)> {
    let policy = members("body", body)?.get("policy").unwrap_or(&Value::Null);
    let mut phases: Option<&Map<String, Value>> = None;
    for (key, value) in members("policy", policy)? {
        match key.as_str() {
            "phases" => phases = Some(members(key, value)?),
            "_meta" | "deprecated" => {}
            other => return invalid(format!("[lifecycle_policy] unknown field [{other}]")),
        }
    }
    let Some(phases) = phases.filter(|phases| !phases.is_empty()) else {
        return invalid("[policy] must have [phases], one at least");
    };
    if let Some(unknown) = phases.keys().find(|name| !PHASES.contains(&name.as_str())) {
        return invalid(format!("lifecycle policy does not support phase [{unknown}]"));
    }
    let has_rollover = phases.get("hot").is_some_and(|hot| hot["actions"].get("rollover").is_some());
    let mut ignored = Vec::new();
    let mut states: Vec<Value> = Vec::new();
    // The age of the next phase is a condition of the way out of this one.
    for name in PHASES {
        let Some(phase) = phases.get(name) else { continue };
        let (mut min_age, mut actions) = (Duration::ZERO, Vec::new());
        for (key, value) in members(name, phase)? {
            match key.as_str() {
                "min_age" => min_age = duration(key, value)?,
                "actions" => actions = phase_actions(name, members(key, value)?, &mut ignored)?,
                other => return invalid(format!("[phase] unknown field [{other}]")),
            }
        }
        if let Some(before) = states.last_mut() {
            let condition = if has_rollover { "min_rollover_age" } else { "min_index_age" };
            let age = format!("{}ms", min_age.as_millis());
            let waits = if min_age.is_zero() { json!({}) } else { json!({ condition: age }) };
            before["transitions"] = json!([{ "state_name": name, "conditions": waits }]);
        } else if !min_age.is_zero() {
            // The first phase waits in a state of its own.
            let age = format!("{}ms", min_age.as_millis());
            let transition = json!({ "state_name": name, "conditions": { "min_index_age": age } });
            states.push(json!({ "name": "new", "transitions": [transition] }));
        }
        states.push(json!({ "name": name, "actions": actions }));
    }
    let first = states.first().map(|state| state["name"].clone()).unwrap_or_default();
    let description = "read from the policy of _ilm of this name";
    let body = json!({ "description": description, "default_state": first, "states": states });
    Ok((IndexPolicy::parse(id, &body, now_ms)?, ignored))
}

/// Converts the actions of a phase; those that mean nothing go to `ignored`.
fn phase_actions(phase: &str, actions: &Map<String, Value>, ignored: &mut Vec<String>) -> Result<Vec<Value>> {
    /// The order in which Elasticsearch does the actions of a phase.
    const ORDER: [&str; 7] =
        ["set_priority", "rollover", "readonly", "shrink", "forcemerge", "replicas", "delete"];
    let mut converted: Vec<(usize, Value)> = Vec::new();
    let mut add = |name: &str, action: Value| {
        let position = ORDER.iter().position(|known| *known == name).unwrap_or(ORDER.len());
        converted.push((position, action));
    };
    for (name, params) in actions {
        match name.as_str() {
            "rollover" => add(name, json!({ "rollover": rollover(members(name, params)?)? })),
            // A null takes the priority away, which is its default.
            "set_priority" => {
                let priority = params["priority"].as_u64().unwrap_or(1);
                add(name, json!({ "index_priority": { "priority": priority } }));
            }
            "readonly" => add(name, json!({ "read_only": {} })),
            "forcemerge" => {
                if !params["index_codec"].is_null() {
                    ignored.push(format!("{phase}.forcemerge.index_codec"));
                }
                let segments = params["max_num_segments"].as_u64().unwrap_or(1);
                add(name, json!({ "force_merge": { "max_num_segments": segments } }));
            }
            "shrink" if matches!(phase, "hot" | "warm") => {
                add(name, json!({ "shrink": shrink(phase, members(name, params)?, ignored)? }));
            }
            "delete" => {
                for key in members(name, params)?.keys() {
                    match key.as_str() {
                        // No index of this server is searched in a snapshot.
                        "delete_searchable_snapshot" => ignored.push(format!("{phase}.delete.{key}")),
                        other => return invalid(format!("[delete] unknown field [{other}]")),
                    }
                }
                add(name, json!({ "delete": {} }));
            }
            "allocate" if !params["number_of_replicas"].is_null() => {
                for (key, value) in members(name, params)? {
                    match key.as_str() {
                        "number_of_replicas" => {
                            let replicas = number(key, value)?;
                            add("replicas", json!({ "replica_count": { "number_of_replicas": replicas } }));
                        }
                        known if PLACEMENT.contains(&known) => {
                            ignored.push(format!("{phase}.allocate.{known}"));
                        }
                        other => return invalid(format!("[allocate] unknown field [{other}]")),
                    }
                }
            }
            known if WITHOUT_MEANING.contains(&known) => ignored.push(format!("{phase}.{known}")),
            other => {
                return invalid(format!(
                    "action [{other}] of phase [{phase}] is not supported by this server"
                ));
            }
        }
    }
    converted.sort_by_key(|(position, _)| *position);
    Ok(converted.into_iter().map(|(_, action)| action).collect())
}

/// Converts the parameters of `shrink`. The target takes the place of its source, as there.
fn shrink(phase: &str, params: &Map<String, Value>, ignored: &mut Vec<String>) -> Result<Value> {
    let mut converted = json!({
        "target_index_name_template": { "source": SHRINK_TARGET },
        "switch_aliases": true,
        "replace_source": true,
    });
    for (key, value) in params {
        match key.as_str() {
            "number_of_shards" => converted["num_new_shards"] = value.clone(),
            "max_primary_shard_size" => converted["max_shard_size"] = value.clone(),
            // The target takes writes where its source did before the action.
            "allow_write_after_shrink" if value == true => {}
            "allow_write_after_shrink" => ignored.push(format!("{phase}.shrink.{key}")),
            other => return invalid(format!("[shrink] unknown field [{other}]")),
        }
    }
    Ok(converted)
}

fn rollover(params: &Map<String, Value>) -> Result<Value> {
    let mut conditions = Map::new();
    for (key, value) in params {
        let name = match key.as_str() {
            "max_age" => "min_index_age",
            "max_docs" => "min_doc_count",
            "max_size" => "min_size",
            "max_primary_shard_size" => "min_primary_shard_size",
            other => return invalid(format!("[rollover] unknown field [{other}]")),
        };
        conditions.insert(name.to_owned(), value.clone());
    }
    Ok(conditions.into())
}
