//! Values that clauses take from other documents, which are read before a search is planned.
//!
//! A parsed query names the documents ([`Query::lookups`]); [`read`] gives it their values. A document that does not
//! exist, or lacks the path, has none. No more values are kept than tell that there are more than any index allows.

use std::collections::{HashMap, HashSet};

use millrace_catalog::access::Action;
use millrace_catalog::metadata::IndexMeta;
use millrace_dsl::query::{Lookup, Query};
use millrace_engine::Session;
use millrace_runtime::Kind;
use millrace_work::compute::Compute;
use millrace_work::error::{Error, Result};
use millrace_work::{PARSED_SHARE, QueryContext, bytes_of};
use serde_json::Value;

use crate::table::TableSnapshot;
use crate::table::resolve::max_terms;

/// Deepest place in a document that values are taken from.
const MAX_DEPTH: usize = 100;
/// Most documents that one query may take values from.
const MAX_LOOKUPS: usize = 4_096;

/// Reads the values of all lookups of a query over the indices of a snapshot, for some work, which holds them.
///
/// # Errors
/// A missing index, a corrupt segment, more than queries may hold.
pub async fn read(
    session: &Session,
    snapshot: &TableSnapshot,
    query: &mut Query,
    compute: &Compute,
    work: &QueryContext,
) -> Result<()> {
    let searched: Vec<&str> = snapshot.indices.iter().map(|index| index.meta.name.as_ref()).collect();
    let mut lookups: Vec<Lookup> = Vec::new();
    let mut known: HashSet<Lookup> = HashSet::new();
    query.walk(&mut |clause| {
        if lookups.len() > MAX_LOOKUPS {
            return;
        }
        for lookup in clause.lookups(&searched) {
            if lookups.len() <= MAX_LOOKUPS && known.insert(lookup.clone()) {
                lookups.push(lookup);
            }
        }
    });
    if lookups.len() > MAX_LOOKUPS {
        return Err(Error::IllegalArgument(format!(
            "a query takes values from more than [{MAX_LOOKUPS}] documents"
        )));
    }
    drop(known);
    let mut found: HashMap<Lookup, Vec<Value>> = HashMap::with_capacity(lookups.len());
    for lookup in lookups {
        work.check()?;
        if lookup.id.is_empty() {
            return Err(Error::Validation("id is missing".to_owned()));
        }
        let routing = lookup.routing.as_deref();
        // Another index than those searched, and a document of its own: asked for as such.
        let reading = session.doing(Action::Get)?;
        let document = match reading.get(&lookup.index, &lookup.id, routing, true).await {
            Err(error) if lookup.lenient && error.kind() == Kind::NotFound => None,
            document => document?,
        };
        let Some(document) = document else {
            found.insert(lookup, Vec::new());
            continue;
        };
        let (metadata, work) = (session.metadata(), work.clone());
        let collected = move || {
            let most = most_terms(metadata.indices().map(AsRef::as_ref)).saturating_add(1);
            let values = values_of(&document.source, &lookup, most, &work)?;
            Ok((lookup, values))
        };
        let (lookup, values) = compute.run(collected).await?;
        found.insert(lookup, values);
    }
    if found.is_empty() {
        return Ok(());
    }
    // A large list may be named by many clauses, each of which gets its own.
    let searched: Vec<String> = searched.into_iter().map(str::to_owned).collect();
    let (mut owned, work) = (std::mem::replace(query, Query::match_all()), work.clone());
    let fill = move || {
        let searched: Vec<&str> = searched.iter().map(String::as_str).collect();
        let mut filled = Ok(());
        let mut values = |lookup: &Lookup| {
            if filled.is_err() {
                return Vec::new();
            }
            let Some(values) = found.get(lookup) else { return Vec::new() };
            filled = work.hold(values.iter().map(bytes_of).sum());
            if filled.is_ok() { values.clone() } else { Vec::new() }
        };
        owned.walk_mut(&mut |clause| clause.fill(&searched, &mut values));
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
fn values_of(source: &[u8], lookup: &Lookup, most: usize, work: &QueryContext) -> Result<Vec<Value>> {
    let _parsed = work.part_of(source.len().saturating_mul(1 + PARSED_SHARE))?;
    let source: Value = serde_json::from_slice(source)
        .map_err(|error| Error::Execution(format!("source of [{}]: {error}", lookup.id)))?;
    let mut values = Vec::new();
    match &lookup.path {
        None => values.push(source),
        Some(path) => {
            collect(&source, path, MAX_DEPTH, &mut |value| {
                values.push(value.clone());
                values.len() < most
            });
        }
    }
    work.hold(values.iter().map(bytes_of).sum())?;
    Ok(values)
}

/// Gives `found` the scalars that a document has at a dotted path.
pub(crate) fn each_value_at(source: &Value, path: &str, found: &mut dyn FnMut(&Value)) {
    collect(source, path, MAX_DEPTH, &mut |value| {
        found(value);
        true
    });
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
