//! `_plugins/_ism/policies`: policies of indices.

use millrace_lifecycle::{INDEX_POLICIES, StoredPolicy};
use serde_json::{Value, json};

use super::{NamePage, PAGE, condition, deleted, lifecycle, policy_owner, refuse, required_body};
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};
use crate::route::DataApi;

/// Stores a policy; its id may be the parameter `policyID`.
pub(crate) async fn put(
    served: &DataApi,
    api: &Api,
    request: &mut Request,
    id: Option<&str>,
) -> Result<Response, Error> {
    let named = request.params.take("policyID");
    let condition = condition(&mut request.params)?;
    request.params.take("refresh");
    request.finish()?;
    let Some(id) = id.map(str::to_owned).or(named) else {
        return Err(Error::illegal_argument("Missing policy ID"));
    };
    let body = required_body(request)?;
    let policy = body.get("policy").unwrap_or(&body);
    let owner = policy_owner(api.session.principal());
    let put = lifecycle(served)?.put_policy(&id, policy, condition, owner).await;
    let (stored, created) = put.map_err(refuse)?;
    let mut answer = header(&stored);
    answer["policy"] = json!({ "policy": stored.policy.body });
    Ok(Response::json(if created { 201 } else { 200 }, answer))
}

fn header(stored: &StoredPolicy) -> Value {
    let (seq_no, primary_term) = stored.document_version();
    json!({
        "_id": stored.id,
        "_version": stored.revision,
        "_primary_term": primary_term,
        "_seq_no": seq_no,
    })
}

/// Shows a policy.
pub(crate) fn get(served: &DataApi, request: &mut Request, id: &str) -> Result<Response, Error> {
    request.finish()?;
    let missing = || Error::new(404, "status_exception", "Policy not found");
    let stored = lifecycle(served)?.policy(id).ok_or_else(missing)?;
    let mut answer = header(&stored);
    answer["policy"] = stored.policy.body.clone();
    Ok(Response::json(200, answer))
}

/// Says whether there is a policy.
pub(crate) fn exists(served: &DataApi, request: &mut Request, id: &str) -> Result<Response, Error> {
    request.finish()?;
    Ok(Response::empty(if lifecycle(served)?.policy(id).is_some() { 200 } else { 404 }))
}

/// Lists the policies.
pub(crate) fn list(served: &DataApi, request: &mut Request) -> Result<Response, Error> {
    let page = NamePage::take(&mut request.params, PAGE)?;
    request.finish()?;
    let (chosen, total) = page.choose(lifecycle(served)?.policies(), |policy| &policy.id);
    let shown: Vec<Value> = chosen
        .iter()
        .map(|stored| {
            let mut one = header(stored);
            one["policy"] = stored.policy.body.clone();
            one
        })
        .collect();
    Ok(Response::json(200, json!({ "policies": shown, "total_policies": total })))
}

/// Deletes a policy.
pub(crate) async fn delete(served: &DataApi, request: &mut Request, id: &str) -> Result<Response, Error> {
    request.params.take("refresh");
    request.finish()?;
    let before = lifecycle(served)?.delete_policy(id).await.map_err(refuse)?;
    Ok(Response::json(200, deleted(INDEX_POLICIES, id, before.revision, before.document_version())))
}
