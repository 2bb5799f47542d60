//! `_snapshot/{repository}`: registrations.

use serde_json::{Value, json};

use super::{refuse, service};
use crate::Api;
use crate::admin::{node, options};
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
