//! `_ilm/policy`: policies of Elasticsearch, which are read into policies of indices.

use millrace_mapping::pattern;
use serde_json::{Map, Value, json};

use super::{lifecycle, policy_owner, refuse, required_body};
use crate::Api;
use crate::admin::options;
use crate::error::Error;
use crate::http::{Request, Response};
use crate::route::DataApi;

/// Stores a policy. A warning names what has no effect on this server.
pub(crate) async fn put(
    served: &DataApi,
    api: &Api,
    request: &mut Request,
    id: &str,
) -> Result<Response, Error> {
    options::manager(&mut request.params)?;
    request.finish()?;
    let body = required_body(request)?;
    let owner = policy_owner(api.session.principal());
    let ignored = lifecycle(served)?.put_ilm_policy(id, &body, owner).await.map_err(refuse)?;
    let mut response = Response::acknowledged();
    if !ignored.is_empty() {
        let actions = ignored.join(", ");
        let warning = format!("299 Millrace \"[{actions}] have no effect on this server and are left out\"");
        response.headers.push(("warning", warning));
    }
    Ok(response)
}

/// Shows policies that came by this API; all of them without an expression.
pub(crate) fn get(served: &DataApi, request: &mut Request, names: Option<&str>) -> Result<Response, Error> {
    options::manager(&mut request.params)?;
    request.finish()?;
    let named = |id: &str| names.is_none_or(|names| names.split(',').any(|name| pattern::matches(name, id)));
    let mut shown = Map::new();
    for stored in lifecycle(served)?.policies() {
        if let Some(ilm) = stored.ilm.as_ref().filter(|_| named(&stored.id)) {
            let one = json!({
                "version": stored.revision,
                "modified_date": stored.policy.updated_ms(),
                "policy": ilm,
            });
            shown.insert(stored.id.clone(), one);
        }
    }
    match names {
        Some(names) if shown.is_empty() && !pattern::is_wildcard(names) => {
            Err(Error::resource_not_found(format!("Lifecycle policy not found: {names}")))
        }
        _ => Ok(Response::json(200, Value::Object(shown))),
    }
}

/// Deletes a policy.
pub(crate) async fn delete(served: &DataApi, request: &mut Request, id: &str) -> Result<Response, Error> {
    options::manager(&mut request.params)?;
    request.finish()?;
    let lifecycle = lifecycle(served)?;
    if lifecycle.policy(id).is_none_or(|stored| stored.ilm.is_none()) {
        return Err(Error::resource_not_found(format!("Lifecycle policy not found: {id}")));
    }
    lifecycle.delete_policy(id).await.map_err(refuse)?;
    Ok(Response::acknowledged())
}
