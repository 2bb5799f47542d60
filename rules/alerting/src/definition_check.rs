//! Definitions of rules as owners write them: read, and checked against the indices that their patterns name.

use std::sync::Arc;

use millrace_catalog::access::Principal;
use millrace_catalog::metadata::IndexMeta;
use millrace_engine::{Engine, Index};
use millrace_percolator::rule_indices::is_never_fed;
use millrace_percolator::watched_indices;
use millrace_query::Error as QueryError;
use millrace_query::filters::{Filter, IndexView};
use millrace_rules::definition::Definition;
use millrace_runtime::Priority;
use serde_json::Value;

use crate::error::{Error, Result};

/// Reads a rule that an owner writes, and checks it, on a compute thread: its filter is compiled for the indices of its patterns,
/// which may be many.
///
/// # Errors
/// A definition that cannot be used; as [`check`].
pub(crate) async fn read(engine: &Arc<Engine>, owner: &Principal, body: Value) -> Result<Definition> {
    let (store, owner) = (Arc::clone(engine), owner.clone());
    let read = move || {
        let definition = Definition::parse(&body)?;
        check(&store, &owner, &definition)?;
        Ok(definition)
    };
    engine.compute().run(Priority::Foreground, move || Ok(read())).await?
}

/// Tells whether there is an index that a rule of somebody watches, on a compute thread: there may be many.
///
/// # Errors
/// Names that the owner may not search.
pub(crate) async fn watches_any(
    engine: &Arc<Engine>,
    owner: &Principal,
    definition: &Definition,
) -> Result<bool> {
    let (store, owner, expression) = (Arc::clone(engine), owner.clone(), definition.index.join(","));
    let find = move || Ok(watched_indices(&store, &owner, &expression));
    Ok(!engine.compute().run(Priority::Foreground, find).await??.is_empty())
}

/// Refuses a rule that no index of its patterns could be asked, by what its owner may see of them. Patterns that name no index
/// yet are fine, as long as the search body could be asked of some.
///
/// # Errors
/// [`Error::Filter`] with the reason; names that the owner may not search.
fn check(engine: &Arc<Engine>, owner: &Principal, definition: &Definition) -> Result<()> {
    if let Some(never) = definition.index.iter().find(|part| is_never_fed(part)) {
        return Err(Error::Invalid(format!(
            "[index] [{never}] is the server's own, which rules do not watch"
        )));
    }
    let expression = definition.index.join(",");
    let mut first: Option<QueryError> = None;
    for meta in watched_indices(engine, owner, &expression)? {
        let Some(index) = supported_index(engine, &meta) else { continue };
        let access = owner.privileges().on(&meta.name);
        let view = IndexView::new(index.meta(), index.mapping(), &access)?;
        match compiled(definition, &Arc::new(view)) {
            Ok(()) => return Ok(()),
            Err(error) => {
                first.get_or_insert(error);
            }
        }
    }
    if let Some(error) = first {
        return Err(Error::Filter(error));
    }
    // Nothing is there to be asked: what any index would refuse is refused now.
    let metadata = engine.metadata();
    let Some(any) = metadata.indices().find_map(|meta| supported_index(engine, meta)) else {
        return Ok(());
    };
    match compiled(definition, &Arc::new(IndexView::whole(any.meta(), any.mapping()))) {
        // That index has other fields.
        Ok(()) | Err(QueryError::QueryShard { .. } | QueryError::Exception { .. }) => Ok(()),
        Err(error) => Err(Error::Filter(error)),
    }
}

/// Returns an index whose mapping this version accepts.
fn supported_index(engine: &Engine, meta: &IndexMeta) -> Option<Arc<Index>> {
    engine.index(&meta.name).ok().filter(|index| index.check_supported().is_ok())
}

/// Compiles the filters of a rule, to see whether they can be asked.
fn compiled(definition: &Definition, view: &Arc<IndexView>) -> Result<(), QueryError> {
    Filter::compile(&definition.body, view)?;
    if let Some(second) = definition.second() {
        Filter::compile(&second, view)?;
    }
    Ok(())
}
