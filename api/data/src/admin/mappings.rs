//! `_mapping`: reading and extending the mappings of indices, with and without type names.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_catalog::metadata::{
    BlockLevel, IndexMeta, IndicesOptions, MetadataChange, check_block, split_type,
};
use millrace_mapping::pattern::matches;
use serde_json::{Map, Value, json};

use super::options;
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

/// Renders the mapping of an index, under its type name where asked.
pub(super) fn render(api: &Api, meta: &IndexMeta, include_type_name: bool) -> Result<Value, Error> {
    let mapping = api.session.mapping_body(&*api.session.index(&meta.name)?)?;
    if !include_type_name || !has_type(meta, &mapping) {
        return Ok(mapping);
    }
    Ok(json!({ meta.mapping_type(): mapping }))
}

/// Returns whether the index has a mapping that a client with types would see.
pub(super) fn has_type(meta: &IndexMeta, mapping: &Value) -> bool {
    meta.doc_type.is_some() || mapping.as_object().is_some_and(|mapping| !mapping.is_empty())
}

fn asks_all(doc_type: &str) -> bool {
    matches!(doc_type, "*" | "_all")
}

pub(crate) fn get(
    api: &Api,
    request: &mut Request,
    index: &str,
    types: Option<&str>,
) -> Result<Response, Error> {
    let include_type_name = options::flag(&mut request.params, "include_type_name")?;
    let defaults = IndicesOptions { forbid_closed: false, ..IndicesOptions::open_only() };
    let options = options::indices(&mut request.params, defaults)?;
    options::manager(&mut request.params)?;
    request.finish()?;
    if types.is_some() && !include_type_name {
        return Err(Error::illegal_argument(
            "Types cannot be provided in get mapping requests, unless include_type_name is set to true.",
        ));
    }
    let asked: Vec<&str> = types.map(|types| types.split(',').collect()).unwrap_or_default();
    let mut found: BTreeSet<String> = BTreeSet::new();
    let mut answer = Map::new();
    for meta in api.session.metadata().resolve(index, &options, api.session.clock().now_ms())? {
        check_block(&meta, BlockLevel::MetadataRead)?;
        let mapping = render(api, &meta, include_type_name)?;
        if !asked.is_empty() {
            let doc_type = meta.mapping_type();
            let known = mapping.get(doc_type).is_some();
            if !known || !asked.iter().any(|asked| asks_all(asked) || matches(asked, doc_type)) {
                continue;
            }
            found.insert(doc_type.to_owned());
        }
        answer.insert(meta.name.to_string(), json!({ "mappings": mapping }));
    }
    if asked.is_empty() {
        return Ok(Response::json(200, answer.into()));
    }
    if answer.is_empty() {
        return Err(type_missing(&asked.join(",")));
    }
    let missing: BTreeSet<&str> = asked
        .iter()
        .copied()
        .filter(|asked| !asks_all(asked) && !found.iter().any(|found| matches(asked, found)))
        .collect();
    if missing.is_empty() {
        return Ok(Response::json(200, answer.into()));
    }
    let names = missing.iter().copied().collect::<Vec<_>>().join(",");
    let noun = if missing.len() == 1 { "type" } else { "types" };
    let mut body = Map::new();
    body.insert("error".into(), format!("{noun} [{names}] missing").into());
    body.insert("status".into(), 404.into());
    body.extend(answer);
    Ok(Response::json(404, body.into()))
}

/// Makes the refusal of types that no index has.
pub(super) fn type_missing(types: &str) -> Error {
    Error::new(404, "type_missing_exception", format!("type[[{types}]] missing"))
        .with("index_uuid", "_na_")
        .with("index", "_all")
}

pub(crate) fn exists(
    api: &Api,
    request: &mut Request,
    index: &str,
    types: Option<&str>,
) -> Result<Response, Error> {
    // A type is in the path or is not; this says which of the paths is meant.
    options::flag(&mut request.params, "include_type_name")?;
    let defaults = IndicesOptions { forbid_closed: false, ..IndicesOptions::open_only() };
    let options = options::indices(&mut request.params, defaults)?;
    options::manager(&mut request.params)?;
    request.finish()?;
    let metas = api.session.metadata().resolve(index, &options, api.session.clock().now_ms())?;
    let mut all = !metas.is_empty();
    for meta in metas {
        let Some(types) = types else { continue };
        let known = render(api, &meta, true)?.get(meta.mapping_type()).is_some();
        all &= known && types.split(',').any(|asked| asks_all(asked) || matches(asked, meta.mapping_type()));
    }
    Ok(Response::empty(if all { 200 } else { 404 }))
}

pub(crate) async fn put(
    api: &Api,
    request: &mut Request,
    index: &str,
    doc_type: Option<&str>,
) -> Result<Response, Error> {
    let include_type_name = options::flag(&mut request.params, "include_type_name")?;
    let write_index_only = options::flag(&mut request.params, "write_index_only")?;
    let defaults = IndicesOptions { allow_no_indices: false, ..IndicesOptions::open_and_closed() };
    let options = options::indices(&mut request.params, defaults)?;
    options::manager(&mut request.params)?;
    request.finish()?;
    let body = request.json()?.ok_or_else(|| Error::validation(&["mapping source is missing"]))?;
    let (doc_type, body) = body_and_type(index, body, doc_type, include_type_name)?;

    let state = api.session.metadata();
    let now = api.session.clock().now_ms();
    let metas = if write_index_only {
        let meta = state.write_index(index, now)?;
        vec![meta.ok_or_else(|| Error::index_not_found(index))?]
    } else {
        state.resolve(index, &options, now)?
    };
    // Every index is checked before the first is changed.
    let mut retyped = Vec::new();
    for meta in &metas {
        state.check_block(meta, BlockLevel::MetadataWrite)?;
        let running = api.session.index(&meta.name)?;
        running.check_supported()?;
        let mapping = api.session.mapping(&running);
        mapping.merge(&body)?;
        let Some(doc_type) = &doc_type else { continue };
        let current = match &meta.doc_type {
            Some(current) => Some(&**current),
            None => has_type(meta, &mapping.to_json()).then_some("_doc"),
        };
        match current {
            Some(current) if current != &**doc_type => {
                let mut types = [current, doc_type];
                types.sort_unstable();
                return Err(Error::illegal_argument(format!(
                    "Rejecting mapping update to [{}] as the final mapping would have more than 1 type: [{}]",
                    meta.name,
                    types.join(", ")
                )));
            }
            Some(_) => {}
            None => retyped.push(meta.name.clone()),
        }
    }
    for meta in &metas {
        api.session.put_mapping(&meta.name, &body).await?;
    }
    if let Some(doc_type) = doc_type.filter(|doc_type| &**doc_type != "_doc") {
        set_type(api, &retyped, &doc_type).await?;
    }
    Ok(Response::acknowledged())
}

/// Splits the type level off a body that may have one.
fn body_and_type(
    index: &str,
    body: Value,
    doc_type: Option<&str>,
    include_type_name: bool,
) -> Result<(Option<Arc<str>>, Value), Error> {
    const UNASKED: &str = "Types cannot be provided in put mapping requests, unless the include_type_name parameter is \
                           set to true.";
    if !include_type_name {
        let nested = body.as_object().is_some_and(|body| body.len() == 1 && body.contains_key("_doc"));
        if doc_type.is_some() || nested {
            return Err(Error::illegal_argument(UNASKED));
        }
        return Ok((None, body));
    }
    let nested = match (&body, doc_type) {
        (Value::Object(members), Some(doc_type)) => members.len() == 1 && members.contains_key(doc_type),
        (Value::Object(members), None) => members.len() == 1 && members.values().all(Value::is_object),
        _ => false,
    };
    if nested {
        let (doc_type, inner) = split_type(index, &body, true)?;
        return Ok((doc_type, inner.unwrap_or_else(|| json!({}))));
    }
    match doc_type {
        Some(doc_type) => {
            let (doc_type, inner) = split_type(index, &json!({ doc_type: body }), true)?;
            Ok((doc_type, inner.unwrap_or_else(|| json!({}))))
        }
        None => Err(Error::validation(&["mapping type is missing"])),
    }
}

async fn set_type(api: &Api, indices: &[Arc<str>], doc_type: &str) -> Result<(), Error> {
    if indices.is_empty() {
        return Ok(());
    }
    api.session
        .change(|state| {
            Ok(indices
                .iter()
                .filter_map(|name| state.index(name))
                .filter(|meta| meta.doc_type.is_none())
                .map(|meta| {
                    let meta = IndexMeta { doc_type: Some(doc_type.into()), ..(**meta).clone() };
                    MetadataChange::PutIndex { meta: Arc::new(meta), mapping: None }
                })
                .collect())
        })
        .await?;
    Ok(())
}
