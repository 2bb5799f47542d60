//! `_cat/aliases` and `_cat/templates`.

use millrace_catalog::metadata::{IndicesOptions, TemplateKind};
use serde_json::Value;

use super::super::options;
use super::table::{Cell, Column, Format, Table, column};
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

const ALIASES: &[Column] = &[
    column("alias", "a", "alias name"),
    column("index", "i,idx", "index alias points to"),
    column("filter", "f,fi", "filter"),
    column("routing.index", "ri,routingIndex", "index routing"),
    column("routing.search", "rs,routingSearch", "search routing"),
    column("is_write_index", "w,isWriteIndex", "write index"),
];

pub(crate) fn aliases(api: &Api, request: &mut Request, names: Option<&str>) -> Result<Response, Error> {
    let format = Format::take(&mut request.params)?;
    let defaults = IndicesOptions { expand_hidden: true, ..IndicesOptions::open_and_closed() };
    let options = options::indices(&mut request.params, defaults)?;
    options::manager(&mut request.params)?;
    request.finish()?;
    let listing = api.session.metadata().list_aliases(None, names, &options, api.session.clock().now_ms())?;
    let mut rows = Vec::new();
    for (meta, aliases) in &listing.indices {
        for (name, alias) in aliases {
            let text = |key: &str| match &alias[key] {
                Value::Null => "-".to_owned(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let filter = if alias["filter"].is_null() { "-" } else { "*" };
            rows.push((
                name.clone(),
                vec![
                    name.as_str().into(),
                    (&*meta.name).into(),
                    filter.into(),
                    text("index_routing").into(),
                    text("search_routing").into(),
                    text("is_write_index").into(),
                ],
            ));
        }
    }
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    let mut table = Table::new(ALIASES);
    for (_, row) in rows {
        table.push(row);
    }
    table.render(&format)
}

const TEMPLATES: &[Column] = &[
    column("name", "n", "template name"),
    column("index_patterns", "t", "template index patterns"),
    column("order", "o,p", "template application order/priority number"),
    column("version", "v", "version"),
    column("composed_of", "c", "component templates comprising index template"),
];

pub(crate) fn templates(api: &Api, request: &mut Request, names: Option<&str>) -> Result<Response, Error> {
    let format = Format::take(&mut request.params)?;
    options::manager(&mut request.params)?;
    request.finish()?;
    let list = |value: &Value| {
        let names: Vec<&str> = value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        format!("[{}]", names.join(", "))
    };
    let number = |value: &Value| value.as_i64().map_or(Cell::Empty, Cell::from);
    let state = api.session.metadata();
    let mut table = Table::new(TEMPLATES);
    for (name, body) in state.list_templates(TemplateKind::Legacy, names) {
        table.push(vec![
            name.into(),
            list(&body["index_patterns"]).into(),
            number(&body["order"]),
            number(&body["version"]),
        ]);
    }
    for (name, body) in state.list_templates(TemplateKind::Index, names) {
        let priority = body["priority"].as_i64().unwrap_or(0);
        table.push(vec![
            name.into(),
            list(&body["index_patterns"]).into(),
            priority.into(),
            number(&body["version"]),
            list(&body["composed_of"]).into(),
        ]);
    }
    table.render(&format)
}
