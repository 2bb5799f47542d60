//! `_service/license`, and the licence as Elastic's clients and shippers ask for it at connection.

use millrace_gateway::license::{LicenseError, license_status};
use serde_json::{Map, Value, json};

use crate::API_VERSION;
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

/// Features of Elasticsearch's basic licence that clients ask for by name; what is not here is not available.
const FEATURES: [&str; 4] = ["logstash", "monitoring", "security", "sql"];
/// Nodes that a basic licence is good for, as Elasticsearch says it.
const BASIC_NODES: u32 = 1_000;

fn status(api: &Api) -> Response {
    let now_ms = api.session.clock().now_ms();
    Response::json(200, license_status(api.license.installed().as_deref(), API_VERSION, now_ms))
}

/// `GET /_service/license`
pub(crate) fn get(api: &Api, request: &mut Request) -> Result<Response, Error> {
    request.finish()?;
    Ok(status(api))
}

/// `POST /_service/license`
pub(crate) async fn install(api: &Api, request: &mut Request) -> Result<Response, Error> {
    request.finish()?;
    api.license.install(&request.body).await.map_err(refused)?;
    Ok(status(api))
}

/// `POST /_service/license/reload`
pub(crate) async fn reload(api: &Api, request: &mut Request) -> Result<Response, Error> {
    request.finish()?;
    api.license.reload().await.map_err(refused)?;
    Ok(status(api))
}

fn refused(error: LicenseError) -> Error {
    match error {
        LicenseError::File(_) => Error::concealed(503, "license_exception", &error),
        error => Error::new(400, "license_exception", error.to_string()),
    }
}

/// `GET /_license`: a basic licence without an end.
pub(crate) fn basic(api: &Api, request: &mut Request) -> Result<Response, Error> {
    for flag in ["local", "accept_enterprise"] {
        request.params.take_bool(flag)?;
    }
    request.finish()?;
    Ok(Response::json(
        200,
        json!({ "license": {
            "status": "active",
            "uid": api.identity.cluster_uuid,
            "type": "basic",
            "issue_date": "1970-01-01T00:00:00.000Z",
            "issue_date_in_millis": 0,
            "max_nodes": BASIC_NODES,
            "max_resource_units": null,
            "issued_to": api.identity.cluster,
            "issuer": "elasticsearch",
            "start_date_in_millis": -1,
        } }),
    ))
}

/// `GET /_xpack`
pub(crate) fn xpack(api: &Api, request: &mut Request) -> Result<Response, Error> {
    let categories = request.params.take("categories");
    request.params.take_bool("accept_enterprise")?;
    request.finish()?;
    let wants =
        |category: &str| categories.as_deref().is_none_or(|all| all.split(',').any(|one| one == category));
    let mut answer = Map::new();
    if wants("build") {
        let hash = concat!("millrace-", env!("CARGO_PKG_VERSION"));
        answer.insert("build".into(), json!({ "hash": hash, "date": "1970-01-01T00:00:00.000Z" }));
    }
    if wants("license") {
        let uid = &api.identity.cluster_uuid;
        answer.insert(
            "license".into(),
            json!({ "uid": uid, "type": "basic", "mode": "basic", "status": "active" }),
        );
    }
    if wants("features") {
        let known = ["graph", "ilm", "ml", "rollup", "watcher"].into_iter().chain(FEATURES);
        let features: Map<String, Value> = known
            .map(|name| {
                let is_there = FEATURES.contains(&name);
                (name.to_owned(), json!({ "available": is_there, "enabled": is_there }))
            })
            .collect();
        answer.insert("features".into(), features.into());
    }
    answer.insert("tagline".into(), "You know, for X".into());
    Ok(Response::json(200, answer.into()))
}
