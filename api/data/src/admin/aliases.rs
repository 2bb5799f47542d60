//! `_alias` and `_aliases`.

use millrace_catalog::metadata::{
    AliasAction, IndicesOptions, Metadata, MetadataChange, parse_alias, parse_alias_actions,
};
use millrace_query::check_kept_filter;
use serde_json::{Map, Value, json};

use super::options;
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

pub(crate) fn get(
    api: &Api,
    request: &mut Request,
    index: Option<&str>,
    names: Option<&str>,
) -> Result<Response, Error> {
    let defaults = IndicesOptions { expand_hidden: true, ..IndicesOptions::open_and_closed() };
    let options = options::indices(&mut request.params, defaults)?;
    options::manager(&mut request.params)?;
    request.finish()?;
    let listing =
        api.session.metadata().list_aliases(index, names, &options, api.session.clock().now_ms())?;
    let mut answer = Map::new();
    let mut status = 200;
    if !listing.missing.is_empty() {
        status = 404;
        let noun = if listing.missing.len() == 1 { "alias" } else { "aliases" };
        answer.insert("error".into(), format!("{noun} [{}] missing", listing.missing.join(",")).into());
        answer.insert("status".into(), 404.into());
    }
    for (meta, aliases) in listing.indices {
        let told = |(name, alias)| (name, api.session.alias(&meta.name, alias));
        let aliases: Map<String, Value> = aliases.into_iter().map(told).collect();
        answer.insert(meta.name.to_string(), json!({ "aliases": aliases }));
    }
    Ok(Response::json(status, answer.into()))
}

/// Answers whether there are aliases of these names.
pub(crate) fn exists(
    api: &Api,
    request: &mut Request,
    index: Option<&str>,
    names: Option<&str>,
) -> Result<Response, Error> {
    get(api, request, index, names).map(|answer| Response::empty(answer.status))
}

pub(crate) async fn put(
    api: &Api,
    request: &mut Request,
    index: Option<&str>,
    name: Option<&str>,
) -> Result<Response, Error> {
    options::manager(&mut request.params)?;
    request.finish()?;
    let body = request.json()?.unwrap_or_else(|| json!({}));
    let in_body = |key: &str| body[key].as_str().map(str::to_owned);
    let index = index.map(str::to_owned).or_else(|| in_body("index"));
    let name = name.map(str::to_owned).or_else(|| in_body("alias"));
    let index = index.ok_or_else(|| Error::validation(&["index is missing"]))?;
    let name = name.ok_or_else(|| Error::validation(&["name is missing"]))?;
    let alias = parse_alias(&name, &body, &["index", "alias"])?;
    change(api, &[AliasAction::Add { indices: vec![index], aliases: vec![name], alias }]).await
}

pub(crate) async fn delete(
    api: &Api,
    request: &mut Request,
    index: &str,
    names: &str,
) -> Result<Response, Error> {
    options::manager(&mut request.params)?;
    request.finish()?;
    let aliases = names.split(',').map(str::to_owned).collect();
    change(api, &[AliasAction::Remove { indices: vec![index.to_owned()], aliases, must_exist: None }]).await
}

pub(crate) async fn update(api: &Api, request: &mut Request) -> Result<Response, Error> {
    options::manager(&mut request.params)?;
    request.finish()?;
    let body =
        request.json()?.ok_or_else(|| Error::new(400, "parse_exception", "request body is required"))?;
    let actions = parse_alias_actions(&body)?;
    change(api, &actions).await
}

async fn change(api: &Api, actions: &[AliasAction]) -> Result<Response, Error> {
    let now = api.session.clock().now_ms();
    let decide = |state: &Metadata| {
        let changes = state.update_aliases(actions, now)?;
        for change in &changes {
            check_filters(api, state, change)?;
        }
        Ok(changes)
    };
    api.session.change(decide).await?;
    Ok(Response::acknowledged())
}

/// Checks that the filters which a change gives to aliases of an index ask only what their writer sees.
fn check_filters(api: &Api, state: &Metadata, change: &MetadataChange) -> millrace_runtime::Result<()> {
    let MetadataChange::PutIndex { meta, .. } = change else { return Ok(()) };
    let fields = api.session.access(&meta.name).written_fields();
    let before = state.index(&meta.name);
    for (name, alias) in &meta.aliases {
        let filter = &alias["filter"];
        let is_new =
            before.is_none_or(|before| before.aliases.get(name).is_none_or(|old| old["filter"] != *filter));
        if is_new && !filter.is_null() {
            check_kept_filter(filter, &fields)
                .map_err(|error| millrace_runtime::Error::IllegalArgument(error.reason()))?;
        }
    }
    Ok(())
}
