//! Values that clauses take from other documents, which are read before a search is planned.
//!
//! A parsed query names the documents ([`Query::lookups`]); [`read`] gives it their values. A document that does not
//! exist, or lacks the path, has none. No more values are kept than tell that there are more than any index allows.

use std::collections::{HashMap, HashSet};

use millrace_catalog::access::Action;
use millrace_catalog::metadata::IndexMeta;
use millrace_dsl::query::{Lookup, Query};
use millrace_matching::table::TableSnapshot;
use millrace_matching::table::resolve::max_terms;
use millrace_runtime::Kind;
use millrace_scoring::path_values::{MAX_DEPTH, visit_values_at};
use millrace_session::SearchSession;
use millrace_work::compute::Compute;
use millrace_work::error::{Error, Result};
use millrace_work::{PARSED_SHARE, QueryContext, bytes_of};
use serde_json::Value;

/// Most documents that one query may take values from.
const MAX_LOOKUPS: usize = 4_096;

/// Reads the values of all lookups of a query over the indices of a snapshot, for some work, which holds them.
///
/// # Errors
/// A missing index, a corrupt segment, more than queries may hold.
pub async fn read(
    session: &dyn SearchSession,
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
            visit_values_at(&source, path, MAX_DEPTH, &mut |value| {
                values.push(value.clone());
                values.len() < most
            });
        }
    }
    work.hold(values.iter().map(bytes_of).sum())?;
    Ok(values)
}
