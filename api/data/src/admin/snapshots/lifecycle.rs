//! `_snapshot/{repository}/{snapshot}`: creation, listing, deletion, clones and restoring.

use millrace_snapshot::{RestoreReport, SnapshotFilter, SnapshotService};
use serde_json::{Value, json};

use super::{body, refuse, service};
use crate::Api;
use crate::admin::{options, tasks};
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
    let (indices, options) = body::clone_indices(request.json()?)?;
    let cloned = service(served)?.clone_snapshot(repository, source, target, (&indices, options)).await;
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
    let begun = service.begin_restore(principal, (repository, snapshot), wanted).await.map_err(refuse)?;
    let snapshot = snapshot.to_owned();
    if wait {
        return begun.outcome().await.report.map(|report| restored(&snapshot, &report)).map_err(refuse);
    }
    let (task, results) = (begun.task().clone(), api.task_results.clone());
    let id = tasks::id_text(api, task.id());
    tokio::spawn(async move {
        // The task ends with it: at any time the task runs, or its result is there.
        let outcome = begun.outcome().await;
        let answer = outcome.report.map(|report| restored(&snapshot, &report)).map_err(refuse);
        results.store(&task.snapshot(), answer).await;
    });
    Ok(Response::json(200, json!({ "accepted": true, "task": id })))
}

/// Answers what a restore has brought.
fn restored(snapshot: &str, report: &RestoreReport) -> Response {
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
    Response::json(200, json!({ "snapshot": answer }))
}
