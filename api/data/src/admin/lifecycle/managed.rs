//! `_plugins/_ism/add`, `remove`, `change_policy`, `retry` and `explain`: indices under policies.

use std::sync::Arc;

use millrace_catalog::metadata::{IndexMeta, IndicesOptions};
use millrace_lifecycle::ManagementReport;
use serde_json::{Map, Value, json};

use super::{NamePage, lifecycle, refuse};
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};
use crate::route::DataApi;

/// Member of an explanation with the number of all managed indices.
const TOTAL: &str = "total_managed_indices";

/// Resolves the indices of the path or of the parameter `index`, hidden ones included.
fn indices(api: &Api, request: &mut Request, index: Option<&str>) -> Result<Vec<Arc<IndexMeta>>, Error> {
    let named = request.params.take("index");
    let Some(expression) = index.map(str::to_owned).or(named) else {
        return Err(Error::illegal_argument("Missing indices"));
    };
    let options = IndicesOptions { expand_hidden: true, ..IndicesOptions::open_and_closed() };
    Ok(api.session.metadata().resolve(&expression, &options, api.session.clock().now_ms())?)
}

fn members(request: &mut Request) -> Result<Map<String, Value>, Error> {
    match request.json()? {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(members)) => Ok(members),
        Some(other) => Err(Error::illegal_argument(format!("the body must be an object, but is [{other}]"))),
    }
}

/// Takes a text of a body.
fn text(members: &mut Map<String, Value>, key: &str) -> Result<Option<String>, Error> {
    match members.shift_remove(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(Error::illegal_argument(format!("[{key}] must be a text, but is [{other}]"))),
    }
}

/// Refuses members that nobody took.
fn refuse_rest(members: &Map<String, Value>) -> Result<(), Error> {
    match members.keys().next() {
        None => Ok(()),
        Some(key) => Err(Error::illegal_argument(format!("Invalid field: [{key}]"))),
    }
}

fn required_policy(members: &mut Map<String, Value>) -> Result<String, Error> {
    let missing = || Error::illegal_argument("Missing policy_id");
    text(members, "policy_id")?.filter(|id| !id.is_empty()).ok_or_else(missing)
}

fn answer(report: &ManagementReport) -> Response {
    let failed: Vec<Value> = report
        .failures
        .iter()
        .map(|failure| {
            json!({
                "index_name": failure.index,
                "index_uuid": failure.uuid,
                "reason": failure.reason,
            })
        })
        .collect();
    let body = json!({
        "updated_indices": report.updated,
        "failures": !failed.is_empty(),
        "failed_indices": failed,
    });
    Response::json(200, body)
}

/// Puts indices under a policy.
pub(crate) async fn add(
    served: &DataApi,
    api: &Api,
    request: &mut Request,
    index: Option<&str>,
) -> Result<Response, Error> {
    let indices = indices(api, request, index)?;
    request.finish()?;
    let mut members = members(request)?;
    let policy = required_policy(&mut members)?;
    refuse_rest(&members)?;
    Ok(answer(&lifecycle(served)?.add_policy(&indices, &policy).await.map_err(refuse)?))
}

/// Takes indices from their policies.
pub(crate) async fn remove(
    served: &DataApi,
    api: &Api,
    request: &mut Request,
    index: Option<&str>,
) -> Result<Response, Error> {
    let indices = indices(api, request, index)?;
    request.finish()?;
    Ok(answer(&lifecycle(served)?.remove_policy(&indices).await))
}

/// Gives managed indices another policy.
pub(crate) async fn change_policy(
    served: &DataApi,
    api: &Api,
    request: &mut Request,
    index: Option<&str>,
) -> Result<Response, Error> {
    let indices = indices(api, request, index)?;
    request.finish()?;
    let mut members = members(request)?;
    let policy = required_policy(&mut members)?;
    let state = text(&mut members, "state")?;
    let included: Vec<String> =
        match members.shift_remove("include") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) => {
                let name = |item: &Value| item["state"].as_str().map(str::to_owned);
                items.iter().map(name).collect::<Option<_>>().ok_or_else(|| {
                    Error::illegal_argument("[include] must be a list of objects with [state]")
                })?
            }
            Some(other) => {
                return Err(Error::illegal_argument(format!("[include] must be a list, but is [{other}]")));
            }
        };
    members.shift_remove("is_safe");
    refuse_rest(&members)?;
    let changed = lifecycle(served)?.change_policy(&indices, &policy, state.as_deref(), &included).await;
    Ok(answer(&changed.map_err(refuse)?))
}

/// Has failed indices try again.
pub(crate) async fn retry(
    served: &DataApi,
    api: &Api,
    request: &mut Request,
    index: Option<&str>,
) -> Result<Response, Error> {
    let indices = indices(api, request, index)?;
    request.finish()?;
    let mut members = members(request)?;
    let state = text(&mut members, "state")?;
    refuse_rest(&members)?;
    Ok(answer(&lifecycle(served)?.retry(&indices, state.as_deref()).await))
}

/// Explains where indices are in their policies.
pub(crate) async fn explain(
    served: &DataApi,
    api: &Api,
    request: &mut Request,
    index: Option<&str>,
) -> Result<Response, Error> {
    let shows_policy = request.params.take_bool("show_policy")?.unwrap_or(false);
    request.params.take_bool("validate_action")?;
    let lists_all = index.is_none() && request.params.peek("index").is_none();
    let mut indices =
        indices(api, request, Some(index.unwrap_or("*")).filter(|_| lists_all || index.is_some()))?;
    // Without a size an explanation is whole.
    let page = NamePage::take(&mut request.params, usize::MAX)?;
    request.finish()?;
    let mut members = members(request)?;
    let filter = members.shift_remove("filter").unwrap_or_default();
    refuse_rest(&members)?;
    let lifecycle = lifecycle(served)?;
    if lists_all {
        // Without a name, those that something is to happen to.
        let explained = lifecycle.explain(&indices, false).await.map_err(refuse)?;
        indices.retain(|meta| {
            let one = &explained[&*meta.name];
            !one["enabled"].is_null() || !one["retention"].is_null()
        });
    }
    let mut explained = lifecycle.explain(&indices, shows_policy).await.map_err(refuse)?;
    if let Some(wanted) = filter.as_object() {
        keep_matching(&mut explained, wanted)?;
    }
    keep_page(&mut explained, &page);
    Ok(Response::json(200, explained))
}

/// Keeps the indices of a page; `total_managed_indices` counts those of other pages, too.
fn keep_page(explained: &mut Value, page: &NamePage) {
    let Some(indices) = explained.as_object_mut() else { return };
    indices.shift_remove(TOTAL);
    let is_managed = |(name, one): &(&String, &Value)| page.matches(name) && !one["enabled"].is_null();
    let total = indices.iter().filter(is_managed).count().into();
    let all: Vec<(String, Value)> = std::mem::take(indices).into_iter().collect();
    let (chosen, _) = page.choose(all, |(name, _)| name.as_str());
    indices.extend(chosen);
    indices.insert(TOTAL.to_owned(), total);
}

/// Keeps the managed indices that a filter of an explanation asks for.
fn keep_matching(explained: &mut Value, wanted: &Map<String, Value>) -> Result<(), Error> {
    if let Some(key) =
        wanted.keys().find(|key| !matches!(key.as_str(), "policy_id" | "state" | "action_type" | "failed"))
    {
        return Err(Error::illegal_argument(format!("Invalid field: [{key}] found in filter")));
    }
    let Some(indices) = explained.as_object_mut() else { return Ok(()) };
    let matches = |one: &Value| {
        wanted.iter().all(|(key, value)| match key.as_str() {
            "policy_id" => one["policy_id"] == *value,
            "state" => one["state"]["name"] == *value,
            "action_type" => one["action"]["name"] == *value,
            _ => one["retry_info"]["failed"] == *value,
        })
    };
    indices.retain(|key, one| key == TOTAL || matches(one));
    let total = indices.len().saturating_sub(1);
    indices.insert(TOTAL.to_owned(), total.into());
    Ok(())
}
