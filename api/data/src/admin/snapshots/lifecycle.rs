//! `_snapshot/{repository}/{snapshot}`: creation, listing, deletion, clones and restoring.

use millrace_snapshot::{SnapshotFilter, SnapshotService};
use serde_json::{Value, json};

use super::{body, refuse, service};
use crate::Api;
use crate::admin::options;
use crate::error::Error;
use crate::http::{Request, Response};
use crate::route::DataApi;

pub(crate) async fn create(
    served: &DataApi,
    api: &Api,
    request: &mut Request,
    (repository, snapshot): (&str, &str),
) -> Result<Response, Error> {
    let wait = options::flag(&mut request.params, "wait_for_completion")?;
    options::manager(&mut request.params)?;
    request.finish()?;
    let wanted = body::create(request.json()?)?;
    let (service, principal) = (service(served)?, api.session.principal());
    if !wait {
        let begun = service.begin_creation(principal, (repository, snapshot), wanted).await;
        begun.map_err(refuse)?;
        return Ok(Response::json(200, json!({ "accepted": true })));
    }
    let manifest = service.create(principal, (repository, snapshot), wanted).await.map_err(refuse)?;
    Ok(Response::json(200, json!({ "snapshot": SnapshotService::render_manifest(&manifest) })))
}

pub(crate) async fn get(
    served: &DataApi,
    request: &mut Request,
    (repository, snapshot): (&str, &str),
) -> Result<Response, Error> {
    let ignore_unavailable = options::flag(&mut request.params, "ignore_unavailable")?;
    let verbose = request.params.take_bool("verbose")?.unwrap_or(true);
    options::manager(&mut request.params)?;
    request.finish()?;
    let filter = SnapshotFilter { expression: snapshot.to_owned(), ignore_unavailable };
    let listed = service(served)?.list(repository, &filter, verbose).await.map_err(refuse)?;
    Ok(Response::json(200, json!({ "snapshots": listed })))
}

pub(crate) async fn delete(
    served: &DataApi,
    request: &mut Request,
    (repository, snapshot): (&str, &str),
) -> Result<Response, Error> {
    options::manager(&mut request.params)?;
    request.finish()?;
    service(served)?.delete(repository, snapshot).await.map_err(refuse)?;
    Ok(Response::acknowledged())
}

pub(crate) async fn clone(
    served: &DataApi,
    request: &mut Request,
    (repository, source, target): (&str, &str, &str),
) -> Result<Response, Error> {
    options::manager(&mut request.params)?;
    request.finish()?;
    let indices = body::clone_indices(request.json()?)?;
    let cloned = service(served)?.clone_snapshot(repository, source, target, &indices).await;
    cloned.map_err(refuse)?;
    Ok(Response::acknowledged())
}

pub(crate) async fn restore(
    served: &DataApi,
    api: &Api,
    request: &mut Request,
    (repository, snapshot): (&str, &str),
) -> Result<Response, Error> {
    let wait = options::flag(&mut request.params, "wait_for_completion")?;
    options::manager(&mut request.params)?;
    request.finish()?;
    let wanted = body::restore(request.json()?)?;
    let (service, principal) = (service(served)?, api.session.principal());
    if !wait {
        let begun = service.begin_restore(principal, (repository, snapshot), wanted).await;
        begun.map_err(refuse)?;
        return Ok(Response::json(200, json!({ "accepted": true })));
    }
    let report = service.restore(principal, (repository, snapshot), wanted).await.map_err(refuse)?;
    let failures: Vec<Value> = report
        .failures
        .iter()
        .map(|failure| json!({ "index": failure.index, "shard": failure.shard, "reason": failure.reason }))
        .collect();
    let mut answer = json!({
        "snapshot": snapshot,
        "indices": report.indices,
        "shards": {
            "total": report.total,
            "failed": report.total - report.successful,
            "successful": report.successful,
        },
    });
    if !failures.is_empty() {
        answer["failures"] = failures.into();
    }
    Ok(Response::json(200, json!({ "snapshot": answer })))
}
