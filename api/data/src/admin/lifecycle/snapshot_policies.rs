//! `_plugins/_sm/policies`: policies of snapshots.

use millrace_catalog::access::Action;
use millrace_lifecycle::SnapshotPolicy;
use millrace_runtime::Error as StoreError;
use serde_json::{Value, json};

use super::{NamePage, PAGE, condition, deleted, lifecycle, refuse, required_body};
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};
use crate::route::DataApi;

/// End of the ids of documents in answers.
const ID_SUFFIX: &str = "-sm-policy";
/// Name of the index in answers.
const INDEX: &str = ".snapshot_policies";

fn render(policy: &SnapshotPolicy) -> Value {
    let (seq_no, primary_term) = policy.document_version();
    json!({
        "_id": format!("{}{ID_SUFFIX}", policy.name),
        "_version": policy.revision,
        "_seq_no": seq_no,
        "_primary_term": primary_term,
        "sm_policy": policy.body,
    })
}

/// Refuses a caller that may not see everything: snapshots of a policy are the server's, of any index.
fn check_author(api: &Api) -> Result<(), Error> {
    let principal = api.session.principal();
    let privileges = principal.privileges();
    if privileges.is_unrestricted() || privileges.allows(Action::PutSecurity) {
        return Ok(());
    }
    let caller = principal.caller().to_string();
    Err(StoreError::Unauthorized { action: Action::PutSnapshotPolicies.name(), caller, index: None }.into())
}

/// Makes a policy.
pub(crate) async fn create(
    served: &DataApi,
    api: &Api,
    request: &mut Request,
    name: &str,
) -> Result<Response, Error> {
    check_author(api)?;
    request.finish()?;
    let body = required_body(request)?;
    let policy = lifecycle(served)?.put_snapshot_policy(name, &body, None).await.map_err(refuse)?;
    Ok(Response::json(201, render(&policy)))
}

/// Puts a policy in the place of a version.
pub(crate) async fn update(
    served: &DataApi,
    api: &Api,
    request: &mut Request,
    name: &str,
) -> Result<Response, Error> {
    check_author(api)?;
    let condition = condition(&mut request.params)?;
    request.finish()?;
    let body = required_body(request)?;
    let Some(condition) = condition else {
        return Err(Error::illegal_argument(
            "[if_seq_no] and [if_primary_term] are required to update a policy",
        ));
    };
    let policy =
        lifecycle(served)?.put_snapshot_policy(name, &body, Some(condition)).await.map_err(refuse)?;
    Ok(Response::json(200, render(&policy)))
}

/// Shows a policy.
pub(crate) fn get(served: &DataApi, request: &mut Request, name: &str) -> Result<Response, Error> {
    request.finish()?;
    let policy = lifecycle(served)?.snapshot_policy(name).map_err(refuse)?;
    Ok(Response::json(200, render(&policy)))
}

/// Lists the policies.
pub(crate) fn list(served: &DataApi, request: &mut Request) -> Result<Response, Error> {
    let page = NamePage::take(&mut request.params, PAGE)?;
    request.finish()?;
    let (chosen, total) = page.choose(lifecycle(served)?.snapshot_policies(), |policy| &policy.name);
    let shown: Vec<Value> = chosen.iter().map(|policy| render(policy)).collect();
    Ok(Response::json(200, json!({ "policies": shown, "total_policies": total })))
}

/// Deletes a policy.
pub(crate) async fn delete(served: &DataApi, request: &mut Request, name: &str) -> Result<Response, Error> {
    request.finish()?;
    let before = lifecycle(served)?.delete_snapshot_policy(name).await.map_err(refuse)?;
    let id = format!("{name}{ID_SUFFIX}");
    Ok(Response::json(200, deleted(INDEX, &id, before.revision, before.document_version())))
}

/// Explains what policies of a name or pattern did, and what comes.
pub(crate) fn explain(served: &DataApi, request: &mut Request, names: &str) -> Result<Response, Error> {
    request.finish()?;
    let lifecycle = lifecycle(served)?;
    let named = |name: &str| names.split(',').any(|wanted| millrace_mapping::pattern::matches(wanted, name));
    let policies = lifecycle.snapshot_policies();
    let shown: Vec<Value> =
        policies.iter().filter(|policy| named(&policy.name)).map(|policy| policy.explain()).collect();
    if shown.is_empty() && !millrace_mapping::pattern::is_wildcard(names) {
        lifecycle.snapshot_policy(names).map_err(refuse)?;
    }
    Ok(Response::json(200, json!({ "policies": shown })))
}

/// Starts or stops a policy.
pub(crate) async fn enable(
    served: &DataApi,
    request: &mut Request,
    name: &str,
    enabled: bool,
) -> Result<Response, Error> {
    request.finish()?;
    lifecycle(served)?.enable_snapshot_policy(name, enabled).await.map_err(refuse)?;
    Ok(Response::acknowledged())
}
