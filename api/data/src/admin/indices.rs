//! Indices: create, delete, read, exists, open, close, resolve.

use millrace_catalog::access::check_mapping;
use millrace_catalog::metadata::{
    BlockLevel, CreateIndex, IndexMeta, IndicesOptions, MetadataChange, Uuid, check_block,
    index_setting_defaults, render_settings,
};
use millrace_query::check_kept_filter;
use serde_json::{Map, Value, json};

use super::{options, settings};
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

/// `PUT /<index>`
pub(crate) async fn create_index(api: &Api, request: &mut Request, index: &str) -> Result<Response, Error> {
    let include_type_name = options::flag(&mut request.params, "include_type_name")?;
    options::manager(&mut request.params)?;
    options::active_shards(&mut request.params)?;
    request.finish()?;
    let now = api.session.clock().now_ms();
    let body = request.json()?.unwrap_or(Value::Null);
    let create = CreateIndex::parse(index, &body, include_type_name, now)?;
    let fields = api.session.access(&create.name).written_fields();
    check_mapping(create.mapping.as_ref().unwrap_or(&Value::Null), &fields, api.session.principal())?;
    for alias in create.aliases.values().filter(|alias| !alias["filter"].is_null()) {
        check_kept_filter(&alias["filter"], &fields)?;
    }
    let uuid = Uuid::new_v4();
    api.session.change(|state| state.create(&create, now, uuid)).await?;
    Ok(Response::json(
        200,
        json!({ "acknowledged": true, "shards_acknowledged": true, "index": create.name }),
    ))
}

/// `DELETE /<index>`
pub(crate) async fn delete_index(api: &Api, request: &mut Request, index: &str) -> Result<Response, Error> {
    let defaults = IndicesOptions { ignore_aliases: true, ..IndicesOptions::open_and_closed() };
    let options = options::indices(&mut request.params, defaults)?;
    options::manager(&mut request.params)?;
    request.finish()?;
    let now = api.session.clock().now_ms();
    api.session.change(|state| state.delete_indices(index, &options, now)).await?;
    Ok(Response::acknowledged())
}

/// `GET /<index>`
pub(crate) fn get_index(api: &Api, request: &mut Request, index: &str) -> Result<Response, Error> {
    let include_type_name = options::flag(&mut request.params, "include_type_name")?;
    let flat = options::flag(&mut request.params, "flat_settings")?;
    let include_defaults = options::flag(&mut request.params, "include_defaults")?;
    let defaults = IndicesOptions { forbid_closed: false, ..IndicesOptions::open_only() };
    let options = options::indices(&mut request.params, defaults)?;
    options::manager(&mut request.params)?;
    request.finish()?;
    let state = api.session.metadata();
    let mut answer = Map::new();
    for meta in state.resolve(index, &options, api.session.clock().now_ms())? {
        check_block(&meta, BlockLevel::MetadataRead)?;
        let told = |alias: &Value| api.session.alias(&meta.name, alias.clone());
        let aliases: Map<String, Value> =
            meta.aliases.iter().map(|(name, alias)| (name.clone(), told(alias))).collect();
        let mut shown = json!({
            "aliases": aliases,
            "mappings": super::mappings::render(api, &meta, include_type_name)?,
            "settings": settings::render(&api.session.settings(&meta), flat, request.params.human),
        });
        if include_defaults {
            shown["defaults"] = render_settings(&index_setting_defaults(&meta.settings), flat);
        }
        answer.insert(meta.name.to_string(), shown);
    }
    Ok(Response::json(200, answer.into()))
}

/// `HEAD /<index>`
pub(crate) fn exists(api: &Api, request: &mut Request, index: &str) -> Result<Response, Error> {
    get_index(api, request, index).map(|answer| Response::empty(answer.status))
}

/// `POST /<index>/_open`
pub(crate) async fn open(api: &Api, request: &mut Request, index: &str) -> Result<Response, Error> {
    let defaults = IndicesOptions { expand_open: false, ..IndicesOptions::open_and_closed() };
    let options = options::indices(&mut request.params, defaults)?;
    options::manager(&mut request.params)?;
    options::active_shards(&mut request.params)?;
    request.finish()?;
    let now = api.session.clock().now_ms();
    api.session.change(|state| state.open_indices(index, &options, now)).await?;
    Ok(Response::json(200, json!({ "acknowledged": true, "shards_acknowledged": true })))
}

/// `POST /<index>/_close`
pub(crate) async fn close(api: &Api, request: &mut Request, index: &str) -> Result<Response, Error> {
    let defaults = IndicesOptions { forbid_closed: false, ..IndicesOptions::open_only() };
    let options = options::indices(&mut request.params, defaults)?;
    options::manager(&mut request.params)?;
    options::active_shards(&mut request.params)?;
    request.finish()?;
    let now = api.session.clock().now_ms();
    let mut closed = Map::new();
    api.session
        .change(|state| {
            let changes = state.close_indices(index, &options, now)?;
            for change in &changes {
                if let MetadataChange::PutIndex { meta, .. } = change {
                    closed.insert(meta.name.to_string(), json!({ "closed": true }));
                }
            }
            Ok(changes)
        })
        .await?;
    let any = !closed.is_empty();
    Ok(Response::json(200, json!({ "acknowledged": true, "shards_acknowledged": any, "indices": closed })))
}

/// `GET /_resolve/index/<expression>`
pub(crate) fn resolve(api: &Api, request: &mut Request, expression: &str) -> Result<Response, Error> {
    let options = options::indices(&mut request.params, IndicesOptions::open_only())?;
    request.finish()?;
    let options = IndicesOptions { forbid_closed: false, ..options };
    let state = api.session.metadata();
    let now = api.session.clock().now_ms();
    let by_name = IndicesOptions { ignore_aliases: true, ignore_unavailable: true, ..options.clone() };
    let indices: Vec<Value> = state
        .resolve(expression, &by_name, now)?
        .iter()
        .map(|meta| {
            let mut shown = json!({ "name": &*meta.name });
            if !meta.aliases.is_empty() {
                shown["aliases"] = meta.aliases.keys().cloned().collect();
            }
            shown["attributes"] = attributes(meta);
            if let Some(stream) = meta.data_stream() {
                shown["data_stream"] = stream.into();
            }
            shown
        })
        .collect();
    let reached = state.resolve(expression, &options, now)?;
    let aliases: Vec<Value> = state
        .alias_names()
        .filter(|alias| expression.split(',').any(|part| millrace_mapping::pattern::matches(part, alias)))
        .filter(|alias| reached.iter().any(|meta| meta.aliases.contains_key(&***alias)))
        .map(|alias| {
            let names = state.alias_indices(alias).unwrap_or_default();
            let indices: Vec<&str> = names.iter().map(|name| &**name).collect();
            json!({ "name": &**alias, "indices": indices })
        })
        .collect();
    let named = |name: &str| {
        let parts = || expression.split(',');
        parts().any(|part| part == "_all" || millrace_mapping::pattern::matches(part, name))
    };
    let data_streams: Vec<Value> = state
        .data_streams()
        .filter(|stream| named(&stream.name))
        .filter(|stream| reached.iter().any(|meta| meta.data_stream() == Some(&*stream.name)))
        .map(|stream| {
            let indices: Vec<&str> = stream.indices.iter().map(|name| &**name).collect();
            json!({
                "name": &*stream.name,
                "backing_indices": indices,
                "timestamp_field": &*stream.timestamp_field,
            })
        })
        .collect();
    Ok(Response::json(200, json!({ "indices": indices, "aliases": aliases, "data_streams": data_streams })))
}

fn attributes(meta: &IndexMeta) -> Value {
    let mut words = vec![if meta.open { "open" } else { "closed" }];
    if meta.hidden() {
        words.push("hidden");
    }
    words.sort_unstable();
    words.into()
}
