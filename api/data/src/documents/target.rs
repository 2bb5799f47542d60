//! Target of a document request: a name or an alias stands for exactly one index.

use std::sync::Arc;

use millrace_catalog::metadata::IndicesOptions;
use millrace_engine::{Index, Session, WriteOp};
use millrace_mapping::Mapping;

use crate::documents::DEFAULT_TYPE;
use crate::error::Error;

/// The index that a read goes to, with the routing that it takes.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) index: Arc<Index>,
    /// Its mapping, as it may be seen.
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) name: Arc<str>,
    pub(crate) routing: Option<String>,
}

/// No wildcards, no missing and no closed indices.
const SINGLE: IndicesOptions = IndicesOptions {
    ignore_unavailable: false,
    allow_no_indices: false,
    expand_open: false,
    expand_closed: false,
    expand_hidden: false,
    forbid_closed: true,
    ignore_aliases: false,
};

impl Target {
    /// Finds the index to read one document from.
    pub(crate) fn read(
        session: &Session,
        name: &str,
        doc_type: Option<&str>,
        id: &str,
        routing: Option<String>,
    ) -> Result<Self, Error> {
        let found = session.resolve(name, &SINGLE)?;
        let index = match found.as_slice() {
            [one] => one.clone(),
            [] => return Err(Error::index_not_found(name)),
            many => {
                let mut names = many.iter().map(|index| index.meta().name.to_string()).collect::<Vec<_>>();
                names.sort();
                return Err(Error::illegal_argument(format!(
                    "alias [{name}] has more than one index associated with it [{}], can't execute a single index op",
                    names.join(", ")
                )));
            }
        };
        let meta = index.meta();
        let routing = alias_routing(name, meta.aliases.get(name), routing)?;
        if routing.is_none() && index.mapping().routing_required() {
            return Err(routing_missing(&meta.name, doc_type, id));
        }
        let mapping = session.mapping(&index);
        Ok(Self { name: meta.name.clone(), index, mapping, routing })
    }
}

/// Combines the routing of an alias with the request's own.
fn alias_routing(
    name: &str,
    alias: Option<&serde_json::Value>,
    given: Option<String>,
) -> Result<Option<String>, Error> {
    let own = alias.and_then(|alias| alias.get("index_routing")).and_then(|value| value.as_str());
    match (own, given) {
        (Some(own), Some(given)) if own != given => Err(Error::illegal_argument(format!(
            "Alias [{name}] has index routing associated with it [{own}], and was provided with routing value \
             [{given}], rejecting operation"
        ))),
        (Some(own), _) => Ok(Some(own.to_owned())),
        (None, given) => Ok(given),
    }
}

/// The refusal of a request without the routing that its index requires.
pub(crate) fn routing_missing(index: &str, doc_type: Option<&str>, id: &str) -> Error {
    let doc_type = doc_type.unwrap_or(DEFAULT_TYPE);
    Error::new(
        400,
        "routing_missing_exception",
        format!("routing is required for [{index}]/[{doc_type}]/[{id}]"),
    )
    .with("index", index)
}

/// Refuses a write without the routing that its index requires.
pub(crate) fn check_routing(session: &Session, op: &WriteOp) -> Result<(), Error> {
    if op.routing.is_some() {
        return Ok(());
    }
    let metadata = session.metadata();
    let Some(meta) = metadata.write_index(&op.index, session.clock().now_ms())? else { return Ok(()) };
    if meta.aliases.get(&*op.index).is_some_and(|alias| alias.get("index_routing").is_some()) {
        return Ok(());
    }
    match session.index(&meta.name) {
        Ok(index) if index.mapping().routing_required() => {
            Err(routing_missing(&meta.name, Some(&op.doc_type), op.id.as_deref().unwrap_or("null")))
        }
        // A missing or closed index is refused by the write itself.
        _ => Ok(()),
    }
}

/// Refuses a name that is no alias where one is required.
pub(crate) fn require_alias(session: &Session, name: &str) -> Result<(), Error> {
    let metadata = session.metadata();
    if metadata.alias_indices(name).is_some() {
        return Ok(());
    }
    Err(Error::index_not_found_because(
        name,
        format!(
            "no such index [{name}] and [require_alias] request flag is [true] and [{name}] is not an alias"
        ),
    ))
}

/// Returns whether a name is of a data stream, or becomes that of one by a write.
fn is_data_stream(session: &Session, name: &str) -> bool {
    let metadata = session.metadata();
    let is_free = || metadata.index(name).is_none() && metadata.alias_indices(name).is_none();
    metadata.data_stream(name).is_some() || (metadata.stream_template(name).is_some() && is_free())
}

/// Refuses a name that is no data stream, and does not become one by the write, where one is required.
pub(crate) fn require_data_stream(session: &Session, name: &str) -> Result<(), Error> {
    if is_data_stream(session, name) {
        return Ok(());
    }
    Err(Error::index_not_found_because(
        name,
        format!(
            "no such index [{name}] and [require_data_stream] request flag is [true] and [{name}] is not a data stream"
        ),
    ))
}

/// Refuses an operation of a bulk that stores a document in a data stream other than by `create`.
pub(crate) fn check_stream_op(session: &Session, op: &WriteOp) -> Result<(), Error> {
    match is_data_stream(session, &op.index) {
        false => Ok(()),
        true => Err(Error::illegal_argument(
            "only write ops with an op_type of create are allowed in data streams",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn aliases_route() {
        let alias = json!({ "index_routing": "a" });
        assert_eq!(alias_routing("x", Some(&alias), None).unwrap().as_deref(), Some("a"));
        assert_eq!(alias_routing("x", None, Some("b".into())).unwrap().as_deref(), Some("b"));
        assert!(alias_routing("x", Some(&alias), Some("b".into())).is_err());
    }
}
