//! `_settings`: reading and updating the settings of indices.

use millrace_storage::metadata::{
    BlockLevel, IndicesOptions, check_block, index_setting_defaults, matches, render_settings,
};
use serde_json::{Map, Value, json};

use super::options;
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

pub(super) async fn route(
    api: &Api,
    request: &mut Request,
    index: Option<&str>,
    rest: &[&str],
) -> Option<Result<Response, Error>> {
    let index = index.unwrap_or("_all");
    Some(match (request.method.as_str(), rest) {
        ("GET", []) => get(api, request, index, None),
        ("GET", [names]) => get(api, request, index, Some(names)),
        ("PUT", []) => put(api, request, index).await,
        _ => return None,
    })
}

fn get(api: &Api, request: &mut Request, index: &str, names: Option<&str>) -> Result<Response, Error> {
    let flat = options::flag(&mut request.params, "flat_settings")?;
    let include_defaults = options::flag(&mut request.params, "include_defaults")?;
    let options = options::indices(&mut request.params, IndicesOptions::open_and_closed())?;
    options::manager(&mut request.params)?;
    request.finish()?;
    let names: Vec<&str> =
        names.map(|names| names.split(',').filter(|name| *name != "_all").collect()).unwrap_or_default();
    let selected = |settings: &Map<String, Value>| -> Map<String, Value> {
        settings
            .iter()
            .filter(|(key, _)| names.is_empty() || names.iter().any(|name| matches(name, key)))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    };
    let mut answer = Map::new();
    for meta in api.engine.metadata().resolve(index, &options, api.engine.clock().now_ms())? {
        check_block(&meta, BlockLevel::MetadataRead)?;
        let mut shown = json!({ "settings": render_settings(&selected(&meta.settings), flat) });
        if include_defaults {
            shown["defaults"] = render_settings(&selected(&index_setting_defaults(&meta.settings)), flat);
        }
        answer.insert(meta.name.to_string(), shown);
    }
    Ok(Response::json(200, answer.into()))
}

async fn put(api: &Api, request: &mut Request, index: &str) -> Result<Response, Error> {
    let preserve_existing = options::flag(&mut request.params, "preserve_existing")?;
    options::flag(&mut request.params, "flat_settings")?;
    let defaults = IndicesOptions { allow_no_indices: false, ..IndicesOptions::open_and_closed() };
    let options = options::indices(&mut request.params, defaults)?;
    options::manager(&mut request.params)?;
    request.finish()?;
    let body = request.json()?.unwrap_or(Value::Null);
    let now = api.engine.clock().now_ms();
    api.engine
        .change(&request.principal, |state| {
            state.update_settings(index, &options, &body, preserve_existing, now)
        })
        .await?;
    Ok(Response::acknowledged())
}
