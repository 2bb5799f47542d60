//! `terms` lookups: values that are read from another document before a search is planned.
//!
//! A parsed query names the documents; [`read`] puts their values in the place of the names. A
//! document that does not exist, or lacks the path, has no values, and the clause matches nothing.

use millrace_storage::{Engine, Principal};
use serde_json::Value;

use crate::dsl::query::{Query, TermsLookup};
use crate::error::{Error, Result};

/// Deepest place in a document that values are taken from.
const MAX_DEPTH: usize = 100;

/// Reads the values of all lookups of a query.
///
/// # Errors
/// A missing index, a corrupt segment.
pub(crate) async fn read(engine: &Engine, principal: &Principal, query: &mut Query) -> Result<()> {
    let mut lookups: Vec<(TermsLookup, Vec<Value>)> = Vec::new();
    query.walk(&mut |clause| {
        if let Query::Terms(terms) = clause
            && let Some(lookup) = &terms.lookup
            && !lookups.iter().any(|(known, _)| known == lookup)
        {
            lookups.push((lookup.clone(), Vec::new()));
        }
    });
    if lookups.is_empty() {
        return Ok(());
    }
    for (lookup, values) in &mut lookups {
        if lookup.id.is_empty() {
            return Err(Error::Validation("id is missing".to_owned()));
        }
        let routing = lookup.routing.as_deref();
        let found = engine.get(principal, &lookup.index, &lookup.id, routing, true).await?;
        if let Some(found) = found {
            let source: Value = serde_json::from_slice(&found.source)
                .map_err(|error| Error::Execution(format!("source of [{}]: {error}", lookup.id)))?;
            collect(&source, &lookup.path, MAX_DEPTH, values);
        }
    }
    query.walk_mut(&mut |clause| {
        if let Query::Terms(terms) = clause
            && let Some(lookup) = terms.lookup.take()
            && let Some((_, values)) = lookups.iter().find(|(known, _)| *known == lookup)
        {
            terms.values = values.clone();
        }
    });
    Ok(())
}

/// Returns the scalars at a dotted path of a document.
pub(crate) fn values_at(source: &Value, path: &str) -> Vec<Value> {
    let mut found = Vec::new();
    collect(source, path, MAX_DEPTH, &mut found);
    found
}

/// Collects the scalars at a dotted path; names in the document may have dots themselves.
fn collect(value: &Value, path: &str, depth: usize, found: &mut Vec<Value>) {
    if depth == 0 {
        return;
    }
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, path, depth - 1, found)),
        Value::Object(members) if !path.is_empty() => {
            for (name, member) in members {
                match path.strip_prefix(name.as_str()) {
                    Some("") => collect(member, "", depth - 1, found),
                    Some(rest) => {
                        if let Some(rest) = rest.strip_prefix('.') {
                            collect(member, rest, depth - 1, found);
                        }
                    }
                    None => {}
                }
            }
        }
        Value::Object(_) | Value::Null => {}
        scalar if path.is_empty() => found.push(scalar.clone()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_at_a_path() {
        let source = json!({"a": {"b": [1, {"c": "x"}, null], "b.c": "y"}, "a.b": 2, "d": [[3], 4]});
        let at = |path: &str| {
            let mut found = Vec::new();
            collect(&source, path, MAX_DEPTH, &mut found);
            json!(found)
        };
        assert_eq!(at("a.b"), json!([1, 2]));
        assert_eq!(at("a.b.c"), json!(["x", "y"]));
        assert_eq!(at("d"), json!([3, 4]));
        assert_eq!(at("a"), json!([]));
        assert_eq!(at("e"), json!([]));
    }
}
