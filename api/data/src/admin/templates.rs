//! `_template`, `_index_template` and `_component_template`, and the simulation of the latter two.

use millrace_catalog::access::check_mapping;
use millrace_catalog::metadata::{
    Layers, TemplateKind, parse_component_template, parse_index_template, parse_legacy_template,
    render_settings,
};
use millrace_query::check_kept_filter;
use serde_json::{Map, Value, json};

use super::options;
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

pub(crate) async fn put(
    api: &Api,
    request: &mut Request,
    kind: TemplateKind,
    name: &str,
) -> Result<Response, Error> {
    let create = options::flag(&mut request.params, "create")?;
    request.params.take("cause");
    let legacy = kind == TemplateKind::Legacy;
    let include_type_name = legacy && options::flag(&mut request.params, "include_type_name")?;
    let order = if legacy { request.params.take_int("order")? } else { None };
    options::manager(&mut request.params)?;
    request.finish()?;
    let body =
        request.json()?.ok_or_else(|| Error::new(400, "parse_exception", "request body is required"))?;
    let body = match kind {
        TemplateKind::Legacy => parse_legacy_template(name, &body, include_type_name, order)?,
        TemplateKind::Index => parse_index_template(name, &body)?,
        TemplateKind::Component => parse_component_template(name, &body)?,
    };
    // Which indices it will be of is not known: what is hidden anywhere is not named.
    let (writer, part) = (api.session.principal(), if legacy { &body } else { &body["template"] });
    let fields = writer.privileges().field_rules();
    check_mapping(&part["mappings"], &fields, writer)?;
    for alias in part["aliases"].as_object().into_iter().flat_map(Map::values) {
        if !alias["filter"].is_null() {
            check_kept_filter(&alias["filter"], &fields)?;
        }
    }
    api.session.change(|state| state.put_template(kind, name, body, create)).await?;
    Ok(Response::acknowledged())
}

pub(crate) fn get(
    api: &Api,
    request: &mut Request,
    kind: TemplateKind,
    names: Option<&str>,
) -> Result<Response, Error> {
    let flat = options::flag(&mut request.params, "flat_settings")?;
    let legacy = kind == TemplateKind::Legacy;
    let include_type_name = legacy && options::flag(&mut request.params, "include_type_name")?;
    options::manager(&mut request.params)?;
    request.finish()?;
    let state = api.session.metadata();
    let found = state.list_templates(kind, names);
    let missing = names.is_some_and(|names| !names.contains('*')) && found.is_empty();
    if legacy {
        let shown: Map<String, Value> = found
            .into_iter()
            .map(|(name, body)| (name.to_owned(), render_legacy(body, flat, include_type_name)))
            .collect();
        return Ok(Response::json(if missing { 404 } else { 200 }, shown.into()));
    }
    let (label, list, member) = match kind {
        TemplateKind::Index => ("index", "index_templates", "index_template"),
        _ => ("component", "component_templates", "component_template"),
    };
    if missing {
        let names = names.unwrap_or_default();
        return Err(Error::new(
            404,
            "resource_not_found_exception",
            format!("{label} template matching [{names}] not found"),
        ));
    }
    let shown: Vec<Value> = found
        .into_iter()
        .map(|(name, body)| json!({ "name": name, member: render_composable(body, flat) }))
        .collect();
    Ok(Response::json(200, json!({ list: shown })))
}

fn settings_of(body: &Value, flat: bool) -> Value {
    body["settings"].as_object().map_or_else(|| json!({}), |settings| render_settings(settings, flat))
}

fn render_legacy(body: &Value, flat: bool, include_type_name: bool) -> Value {
    let mut shown = body.clone();
    shown["settings"] = settings_of(body, flat);
    if let Some(members) = shown.as_object_mut() {
        let doc_type = members.shift_remove("doc_type");
        let empty = members["mappings"].as_object().is_none_or(Map::is_empty);
        if include_type_name && (!empty || doc_type.is_some()) {
            let doc_type = doc_type.as_ref().and_then(Value::as_str).unwrap_or("_doc").to_owned();
            let mapping = members["mappings"].take();
            members.insert("mappings".into(), json!({ doc_type: mapping }));
        }
    }
    shown
}

fn render_composable(body: &Value, flat: bool) -> Value {
    let mut shown = body.clone();
    if body["template"].get("settings").is_some() {
        shown["template"]["settings"] = settings_of(&body["template"], flat);
    }
    shown
}

pub(crate) fn exists(
    api: &Api,
    request: &mut Request,
    kind: TemplateKind,
    names: &str,
) -> Result<Response, Error> {
    options::flag(&mut request.params, "flat_settings")?;
    options::manager(&mut request.params)?;
    request.finish()?;
    let state = api.session.metadata();
    let found = !state.list_templates(kind, Some(names)).is_empty();
    Ok(Response::empty(if found { 200 } else { 404 }))
}

pub(crate) async fn delete(
    api: &Api,
    request: &mut Request,
    kind: TemplateKind,
    names: &str,
) -> Result<Response, Error> {
    options::manager(&mut request.params)?;
    request.finish()?;
    api.session.change(|state| state.delete_templates(kind, names)).await?;
    Ok(Response::acknowledged())
}

/// A template that a simulation adds for itself; no stored one can have this name.
const SIMULATED: &str = "__simulated";

pub(crate) fn simulate_index(api: &Api, request: &mut Request, index: &str) -> Result<Response, Error> {
    options::flag(&mut request.params, "create")?;
    request.params.take("cause");
    options::manager(&mut request.params)?;
    request.finish()?;
    let mut state = (*api.session.metadata()).clone();
    if let Some(body) = request.json()? {
        let body = parse_index_template("simulated", &body)?;
        let changes = state.put_template(TemplateKind::Index, SIMULATED, body, false)?;
        state = state.apply(&changes);
    }
    let layers = state.layers(index, None);
    let Some(name) = layers.composable.clone() else { return Ok(Response::json(200, json!({}))) };
    let overlapping = state.overlapping_templates(index, Some(&name));
    Ok(Response::json(200, simulated(&layers, &overlapping)))
}

pub(crate) fn simulate(api: &Api, request: &mut Request, name: Option<&str>) -> Result<Response, Error> {
    options::flag(&mut request.params, "create")?;
    request.params.take("cause");
    options::manager(&mut request.params)?;
    request.finish()?;
    let mut state = (*api.session.metadata()).clone();
    let name = match (request.json()?, name) {
        (Some(body), name) => {
            let name = name.unwrap_or(SIMULATED);
            let body = parse_index_template("simulated", &body)?;
            let changes = state.put_template(TemplateKind::Index, name, body, false)?;
            state = state.apply(&changes);
            name
        }
        (None, Some(name)) if state.index_templates.contains_key(name) => name,
        (None, Some(name)) => {
            return Err(Error::illegal_argument(format!(
                "unable to simulate template [{name}] that does not exist"
            )));
        }
        (None, None) => return Err(Error::illegal_argument("a template or the name of one is required")),
    };
    let layers = state.composed(name);
    let patterns: Vec<String> = state.index_templates[name]["index_patterns"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let mut overlapping: Vec<(&str, Vec<String>)> = Vec::new();
    for pattern in &patterns {
        for other in state.overlapping_templates(pattern, Some(name)) {
            if !overlapping.contains(&other) {
                overlapping.push(other);
            }
        }
    }
    Ok(Response::json(200, simulated(&layers, &overlapping)))
}

fn simulated(layers: &Layers, overlapping: &[(&str, Vec<String>)]) -> Value {
    let aliases: Map<String, Value> =
        layers.aliases.iter().map(|(name, alias)| (name.clone(), alias.clone())).collect();
    let overlapping: Vec<Value> = overlapping
        .iter()
        .map(|(name, patterns)| json!({ "name": name, "index_patterns": patterns }))
        .collect();
    json!({
        "template": {
            "settings": render_settings(&layers.settings, false),
            "mappings": layers.mapping.clone().unwrap_or_else(|| json!({})),
            "aliases": aliases,
        },
        "overlapping": overlapping,
    })
}
