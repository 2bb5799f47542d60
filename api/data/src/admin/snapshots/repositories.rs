//! `_snapshot/{repository}`: registrations.

use millrace_snapshot::VerificationReport;
use serde_json::{Value, json};

use super::{refuse, service};
use crate::Api;
use crate::admin::{node, options, tasks};
use crate::error::Error;
use crate::http::{Request, Response};
use crate::route::DataApi;

pub(crate) async fn put(
    served: &DataApi,
    request: &mut Request,
    repository: &str,
) -> Result<Response, Error> {
    let verify = request.params.take_bool("verify")?.unwrap_or(true);
    options::manager(&mut request.params)?;
    request.finish()?;
    let body = request.json()?;
    let body = body.ok_or_else(|| Error::new(400, "parse_exception", "request body is required"))?;
    service(served)?.put_repository(repository, &body, verify).await.map_err(refuse)?;
    Ok(Response::acknowledged())
}

pub(crate) fn get(served: &DataApi, request: &mut Request, names: Option<&str>) -> Result<Response, Error> {
    options::manager(&mut request.params)?;
    request.finish()?;
    let found = service(served)?.repositories(names).map_err(refuse)?;
    Ok(Response::json(200, Value::Object(found.into_iter().collect())))
}

pub(crate) async fn delete(
    served: &DataApi,
    request: &mut Request,
    repository: &str,
) -> Result<Response, Error> {
    options::manager(&mut request.params)?;
    request.finish()?;
    service(served)?.delete_repositories(repository).await.map_err(refuse)?;
    Ok(Response::acknowledged())
}

pub(crate) async fn verify(
    served: &DataApi,
    api: &Api,
    request: &mut Request,
    repository: &str,
) -> Result<Response, Error> {
    options::manager(&mut request.params)?;
    request.finish()?;
    service(served)?.verify_repository(repository).await.map_err(refuse)?;
    let name = json!({ "name": api.identity.node });
    Ok(Response::json(200, json!({ "nodes": { node::id(api): name } })))
}

/// Reads the files of snapshots and compares their sums. Without `wait_for_completion` the answer is its task.
pub(crate) async fn verify_integrity(
    served: &DataApi,
    api: &Api,
    request: &mut Request,
    repository: &str,
) -> Result<Response, Error> {
    let wait = options::flag_or(&mut request.params, "wait_for_completion", true)?;
    let snapshot = request.params.take("snapshot");
    options::manager(&mut request.params)?;
    request.finish()?;
    let begun = service(served)?.begin_verification(repository, snapshot.as_deref()).await.map_err(refuse)?;
    if wait {
        return begun.outcome().await.0.map(|report| verified(&report)).map_err(refuse);
    }
    let (task, results) = (begun.task().clone(), api.task_results.clone());
    let id = tasks::id_text(api, task.id());
    tokio::spawn(async move {
        // The task ends with the guard: at any time the task runs, or its result is there.
        let (outcome, _guard) = begun.outcome().await;
        let answer = outcome.map(|report| verified(&report)).map_err(refuse);
        results.store(&task.snapshot(), answer).await;
    });
    Ok(Response::json(200, json!({ "accepted": true, "task": id })))
}

/// Answers what a verification has found.
fn verified(report: &VerificationReport) -> Response {
    let anomalies = report.damaged.iter().map(|damaged| {
        let mut anomaly =
            json!({ "file": damaged.file, "snapshot": damaged.snapshot, "reason": damaged.reason });
        if let Some(index) = &damaged.index {
            anomaly["index"] = index.as_str().into();
        }
        anomaly
    });
    let results = json!({
        "snapshots": report.snapshots,
        "files": report.files,
        "bytes": report.bytes,
        "total_anomalies": report.total_damaged,
        "anomalies": anomalies.collect::<Vec<_>>(),
        "result": if report.total_damaged == 0 { "pass" } else { "fail" },
    });
    Response::json(200, json!({ "results": results }))
}

pub(crate) async fn clean_up(
    served: &DataApi,
    request: &mut Request,
    repository: &str,
) -> Result<Response, Error> {
    options::manager(&mut request.params)?;
    request.finish()?;
    let report = service(served)?.cleanup_repository(repository).await.map_err(refuse)?;
    let results = json!({ "deleted_bytes": report.bytes, "deleted_blobs": report.files });
    Ok(Response::json(200, json!({ "results": results })))
}
