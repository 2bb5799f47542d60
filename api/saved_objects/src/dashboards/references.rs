//! References of an object: its list, and those that older versions of Kibana wrote within attributes instead.

use serde_json::Value;

use crate::error::Error;
use crate::http::{MemoryAllowance, json};
use crate::object::{Draft, Kind};

/// A type and an id that an object names; there need be no such object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Target {
    pub(super) kind: String,
    pub(super) id: String,
}

/// Lists the references of an object, in their order, each once. What is not in a form that is known refers to nothing. Values
/// made of texts within attributes are charged to `room`.
///
/// # Errors
/// 413 and 429 for want of room.
pub(super) fn targets(draft: &Draft, allowance: &MemoryAllowance) -> Result<Vec<Target>, Error> {
    let mut found = Vec::new();
    let mut seen = std::collections::HashSet::new();
    let mut add = |kind: &str, id: &str| {
        let target = Target { kind: kind.to_owned(), id: id.to_owned() };
        if seen.insert(target.clone()) {
            found.push(target);
        }
    };
    for reference in &draft.references {
        add(&reference.kind, &reference.id);
    }
    // Panels with an id of their own; newer ones name a reference.
    for panel in array(parsed(draft.attributes.get("panelsJSON"), allowance)?) {
        if let (Some(kind), Some(id)) = (text(&panel, "type"), text(&panel, "id")) {
            add(kind, id);
        }
    }
    if let Some(id) = draft.attributes.get("savedSearchId").and_then(Value::as_str) {
        add(Kind::Search.name(), id);
    }
    let meta = draft.attributes.get("kibanaSavedObjectMeta");
    let source = parsed(meta.and_then(|meta| meta.get("searchSourceJSON")), allowance)?;
    if let Some(id) = text(&source, "index") {
        add(Kind::IndexPattern.name(), id);
    }
    for filter in source.get("filter").and_then(Value::as_array).into_iter().flatten() {
        if let Some(id) = filter.get("meta").and_then(|meta| text(meta, "index")) {
            add(Kind::IndexPattern.name(), id);
        }
    }
    Ok(found)
}

fn text<'v>(value: &'v Value, name: &str) -> Option<&'v str> {
    value.get(name).and_then(Value::as_str)
}

fn array(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

/// Parses JSON in a string; null where there is none.
fn parsed(value: Option<&Value>, allowance: &MemoryAllowance) -> Result<Value, Error> {
    let Some(text) = value.and_then(Value::as_str) else { return Ok(Value::Null) };
    match json::parse(text.as_bytes(), allowance) {
        Err(error) if error.status() == 400 => Ok(Value::Null),
        parsed => parsed,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::Key;

    fn references_of(members: Value) -> Vec<(String, String)> {
        let Value::Object(members) = members else { panic!("an object") };
        let allowance = MemoryAllowance::with_limit(1 << 20);
        let draft = Draft::parse(Key::parse("dashboard", "d").unwrap(), members, &allowance).unwrap();
        targets(&draft, &allowance).unwrap().into_iter().map(|target| (target.kind, target.id)).collect()
    }

    fn pair(kind: &str, id: &str) -> (String, String) {
        (kind.to_owned(), id.to_owned())
    }

    #[test]
    fn references_and_older_forms() {
        let source =
            json!({ "index": "logs", "filter": [{ "meta": { "index": "metrics" } }, { "meta": {} }, 1] });
        let panels = json!([{ "type": "visualization", "id": "v" }, { "panelRefName": "panel_1" }, 7]);
        let members = json!({
            "attributes": {
                "title": "t",
                "panelsJSON": panels.to_string(),
                "savedSearchId": "s",
                "kibanaSavedObjectMeta": { "searchSourceJSON": source.to_string() },
            },
            "references": [
                { "name": "panel_1", "type": "lens", "id": "l" },
                { "name": "panel_2", "type": "lens", "id": "l" },
            ],
        });
        let expected = [
            pair("lens", "l"),
            pair("visualization", "v"),
            pair("search", "s"),
            pair("index-pattern", "logs"),
            pair("index-pattern", "metrics"),
        ];
        assert_eq!(references_of(members), expected);
    }

    #[test]
    fn what_is_in_no_known_form_refers_to_nothing() {
        for panels in [json!("{"), json!("{}"), json!([]), json!("[".repeat(10_000)), json!(null)] {
            assert_eq!(references_of(json!({ "attributes": { "title": "t", "panelsJSON": panels } })), []);
        }
    }
}
