//! `_settings`: reading and updating the settings of indices.

use millrace_catalog::metadata::{
    BlockLevel, IndicesOptions, check_block, index_setting_defaults, render_settings,
};
use millrace_mapping::pattern::matches;
use serde_json::{Map, Value, json};

use super::cat::moment;
use super::options;
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

/// Renders the settings of an index; for people with moments and versions that they can read.
pub(super) fn render(settings: &Map<String, Value>, flat: bool, human: bool) -> Value {
    if !human {
        return render_settings(settings, flat);
    }
    let mut settings = settings.clone();
    let number = |key: &str| settings.get(key).and_then(Value::as_str).and_then(|text| text.parse().ok());
    let created: Option<i64> = number("index.creation_date");
    let version: Option<i64> = number("index.version.created");
    if let Some(ms) = created {
        settings.insert("index.creation_date_string".into(), moment(ms).into());
    }
    if let Some(id) = version {
        let text = format!("{}.{}.{}", id / 1_000_000, id / 10_000 % 100, id / 100 % 100);
        settings.insert("index.version.created_string".into(), text.into());
    }
    render_settings(&settings, flat)
}

pub(crate) fn get(
    api: &Api,
    request: &mut Request,
    index: &str,
    names: Option<&str>,
) -> Result<Response, Error> {
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
    let human = request.params.human;
    let mut answer = Map::new();
    for meta in api.session.metadata().resolve(index, &options, api.session.clock().now_ms())? {
        check_block(&meta, BlockLevel::MetadataRead)?;
        let settings = selected(&api.session.settings(&meta));
        let defaults = include_defaults.then(|| selected(&index_setting_defaults(&meta.settings)));
        // An index without any of the settings that were asked for is left out.
        if settings.is_empty() && defaults.as_ref().is_none_or(Map::is_empty) {
            continue;
        }
        let mut shown = json!({ "settings": render(&settings, flat, human) });
        if let Some(defaults) = defaults {
            shown["defaults"] = render_settings(&defaults, flat);
        }
        answer.insert(meta.name.to_string(), shown);
    }
    Ok(Response::json(200, answer.into()))
}

pub(crate) async fn put(api: &Api, request: &mut Request, index: &str) -> Result<Response, Error> {
    let preserve_existing = options::flag(&mut request.params, "preserve_existing")?;
    options::flag(&mut request.params, "flat_settings")?;
    let defaults = IndicesOptions { allow_no_indices: false, ..IndicesOptions::open_and_closed() };
    let options = options::indices(&mut request.params, defaults)?;
    options::manager(&mut request.params)?;
    request.finish()?;
    let body = request.json()?.unwrap_or(Value::Null);
    let now = api.session.clock().now_ms();
    api.session.change(|state| state.update_settings(index, &options, &body, preserve_existing, now)).await?;
    Ok(Response::acknowledged())
}
