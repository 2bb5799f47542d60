//! Objects as Kibana 5 and 6 export them: `{"_id": …, "_type": …, "_source": {…}}`.
//!
//! Documents of a `.kibana` index have the same members, with the type and the attributes within `_source`.

use serde_json::{Map, Value};

use crate::error::{Error, invalid};
use crate::object::object;

/// Brings an object of the older form into the form of today; leaves others as they are.
///
/// # Errors
/// 400 that names the member that is wrong.
pub(super) fn convert(members: &mut Map<String, Value>) -> Result<(), Error> {
    if members.contains_key("type") || !(members.contains_key("_type") && members.contains_key("_source")) {
        return Ok(());
    }
    let mut take = |name: &str| members.shift_remove(name);
    let mut source = object("_source", take("_source").unwrap_or_default())?;
    let mut kind = text("_type", take("_type"))?;
    let mut id = text("_id", take("_id"))?;
    let (mut references, mut versions) = (take("_references"), take("_migrationVersion"));
    if matches!(kind.as_str(), "doc" | "_doc") {
        kind = text("_source.type", source.shift_remove("type"))?;
        references = source.shift_remove("references").or(references);
        versions = source.shift_remove("migrationVersion").or(versions);
        let own = source.shift_remove(&kind);
        source = object(&format!("_source.{kind}"), own.unwrap_or_default())?;
        if let Some(short) = id.strip_prefix(&kind).and_then(|rest| rest.strip_prefix(':')) {
            id = short.to_owned();
        }
    }
    members.retain(|name, _| {
        !matches!(
            name.as_str(),
            "_index" | "_meta" | "_primary_term" | "_score" | "_seq_no" | "_version" | "sort"
        )
    });
    members.insert("type".to_owned(), Value::String(kind));
    members.insert("id".to_owned(), Value::String(id));
    members.insert("attributes".to_owned(), Value::Object(source));
    if let Some(references) = references {
        members.insert("references".to_owned(), references);
    }
    if let Some(versions) = versions {
        members.insert("migrationVersion".to_owned(), versions);
    }
    Ok(())
}

fn text(name: &str, value: Option<Value>) -> Result<String, Error> {
    match value {
        Some(Value::String(text)) => Ok(text),
        _ => Err(invalid(name, "must be a string")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn converted(value: Value) -> Value {
        let mut members = object("", value).unwrap();
        match convert(&mut members) {
            Ok(()) => Value::Object(members),
            Err(error) => json!(error.reason()),
        }
    }

    #[test]
    fn older_forms_become_the_form_of_today() {
        let today = json!({"type": "search", "id": "s", "attributes": {"title": "S"}, "references": [], "migrationVersion": {"search": "6.5.0"}});
        assert_eq!(converted(today.clone()), today);
        let exported = json!({"_id": "s", "_type": "search", "_source": {"title": "S"}, "_references": [],
            "_migrationVersion": {"search": "6.5.0"}, "_meta": {"savedObjectVersion": 2}});
        assert_eq!(converted(exported), today);
        let stored = json!({"_index": ".kibana", "_id": "search:s", "_type": "doc", "_score": 1.0, "_source": {
            "type": "search", "updated_at": "2018-01-01", "search": {"title": "S"}, "references": [],
            "migrationVersion": {"search": "6.5.0"}}});
        assert_eq!(converted(stored), today);
    }

    #[test]
    fn wrong_members_are_named() {
        for (value, expected) in [
            (json!({"_id": "s", "_type": "search", "_source": 1}), "[_source] must be an object"),
            (json!({"_type": "search", "_source": {}}), "[_id] must be a string"),
            (json!({"_id": "s", "_type": 1, "_source": {}}), "[_type] must be a string"),
            (json!({"_id": "s", "_type": "doc", "_source": {}}), "[_source.type] must be a string"),
            (
                json!({"_id": "s", "_type": "doc", "_source": {"type": "search"}}),
                "[_source.search] must be an object",
            ),
        ] {
            assert_eq!(converted(value.clone()), json!(expected), "{value}");
        }
    }
}
