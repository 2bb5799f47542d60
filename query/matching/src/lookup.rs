//! `terms` lookups: values that are read from another document before a search is planned.
//!
//! A parsed query names the documents; [`read`] puts their values in the place of the names. A
//! document that does not exist, or lacks the path, has no values, and the clause matches nothing. No more values
//! are kept than tell that there are more than any index allows.

use millrace_dsl::query::{Query, TermsLookup};
use millrace_storage::metadata::IndexMeta;
use millrace_storage::{Engine, Principal};
use millrace_work::compute::Compute;
use millrace_work::error::{Error, Result};
use millrace_work::{PARSED_SHARE, Work, bytes_of};
use serde_json::Value;

use crate::table::resolve::max_terms;

/// Deepest place in a document that values are taken from.
const MAX_DEPTH: usize = 100;

/// Reads the values of all lookups of a query, for some work, which holds them.
///
/// # Errors
/// A missing index, a corrupt segment, more than queries may hold.
pub async fn read(
    engine: &Engine,
    principal: &Principal,
    query: &mut Query,
    compute: &Compute,
    work: &Work,
) -> Result<()> {
    let mut lookups: Vec<TermsLookup> = Vec::new();
    query.walk(&mut |clause| {
        if let Query::Terms(terms) = clause
            && let Some(lookup) = &terms.lookup
            && !lookups.contains(lookup)
        {
            lookups.push(lookup.clone());
        }
    });
    let mut found: Vec<(TermsLookup, Vec<Value>)> = Vec::with_capacity(lookups.len());
    for lookup in lookups {
        work.check()?;
        if lookup.id.is_empty() {
            return Err(Error::Validation("id is missing".to_owned()));
        }
        let routing = lookup.routing.as_deref();
        let document = engine.get(principal, &lookup.index, &lookup.id, routing, true).await?;
        let Some(document) = document else {
            found.push((lookup, Vec::new()));
            continue;
        };
        let (metadata, work) = (engine.metadata(), work.clone());
        let collected = move || {
            let most = most_terms(metadata.indices.values().map(AsRef::as_ref)).saturating_add(1);
            let values = values_of(&document.source, &lookup, most, &work)?;
            Ok((lookup, values))
        };
        found.push(compute.run(collected).await?);
    }
    if found.is_empty() {
        return Ok(());
    }
    // A large list may be named by many clauses, each of which gets its own.
    let (mut owned, work) = (std::mem::replace(query, Query::match_all()), work.clone());
    let fill = move || {
        let mut filled = Ok(());
        owned.walk_mut(&mut |clause| {
            if let Query::Terms(terms) = clause
                && let Some(lookup) = terms.lookup.take()
                && let Some((_, values)) = found.iter().find(|(known, _)| *known == lookup)
                && filled.is_ok()
            {
                filled = work.hold(values.iter().map(bytes_of).sum());
                if filled.is_ok() {
                    terms.values.clone_from(values);
                }
            }
        });
        filled.map(|()| owned)
    };
    *query = compute.run(fill).await?;
    Ok(())
}

/// Returns the most terms that any index lets a clause have.
fn most_terms<'m>(indices: impl Iterator<Item = &'m IndexMeta>) -> usize {
    indices.map(max_terms).max().unwrap_or_default()
}

/// Returns the first values that a document has for a lookup, held by the work.
fn values_of(source: &[u8], lookup: &TermsLookup, most: usize, work: &Work) -> Result<Vec<Value>> {
    let _parsed = work.part_of(source.len().saturating_mul(1 + PARSED_SHARE))?;
    let source: Value = serde_json::from_slice(source)
        .map_err(|error| Error::Execution(format!("source of [{}]: {error}", lookup.id)))?;
    let mut values = Vec::new();
    collect(&source, &lookup.path, MAX_DEPTH, &mut |value| {
        values.push(value.clone());
        values.len() < most
    });
    work.hold(values.iter().map(bytes_of).sum())?;
    Ok(values)
}

/// Whether a document has a scalar at a dotted path.
pub(crate) fn has_value_at(source: &Value, path: &str) -> bool {
    let mut found = false;
    collect(source, path, MAX_DEPTH, &mut |_| {
        found = true;
        false
    });
    found
}

/// Gives `found` the scalars at a dotted path until it returns false; names in the document may have dots themselves. Returns
/// whether it goes on.
fn collect(value: &Value, path: &str, depth: usize, found: &mut dyn FnMut(&Value) -> bool) -> bool {
    if depth == 0 {
        return true;
    }
    match value {
        Value::Array(items) => items.iter().all(|item| collect(item, path, depth - 1, found)),
        Value::Object(members) if !path.is_empty() => {
            members.iter().all(|(name, member)| match path.strip_prefix(name.as_str()) {
                Some("") => collect(member, "", depth - 1, found),
                Some(rest) => match rest.strip_prefix('.') {
                    Some(rest) => collect(member, rest, depth - 1, found),
                    None => true,
                },
                None => true,
            })
        }
        Value::Object(_) | Value::Null => true,
        scalar if path.is_empty() => found(scalar),
        _ => true,
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
            collect(&source, path, MAX_DEPTH, &mut |value| {
                found.push(value.clone());
                found.len() < 3
            });
            json!(found)
        };
        assert_eq!(at("a.b"), json!([1, 2]));
        assert_eq!(at("a.b.c"), json!(["x", "y"]));
        assert_eq!(at("d"), json!([3, 4]));
        assert_eq!(at("a"), json!([]));
        assert_eq!(at("e"), json!([]));
        assert!(has_value_at(&source, "a.b.c") && !has_value_at(&source, "a"));
    }
}
