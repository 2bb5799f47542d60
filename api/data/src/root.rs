//! `GET /`: the server's name, and its version of the data API.

use std::sync::OnceLock;

use serde_json::json;

use crate::error::Error;
use crate::http::{Request, Response};
use crate::{API_VERSION, Identity};

/// Answers `GET /` and `HEAD /`.
pub(crate) fn info(identity: &Identity, request: &Request) -> Result<Response, Error> {
    static BUILD: OnceLock<String> = OnceLock::new();
    request.finish()?;
    let build = BUILD.get_or_init(|| format!("millrace-{}", env!("CARGO_PKG_VERSION")));
    Ok(Response::json(
        200,
        json!({
            "name": identity.node,
            "cluster_name": identity.cluster,
            "cluster_uuid": identity.cluster_uuid,
            "version": {
                "number": API_VERSION,
                "distribution": "opensearch",
                "build_flavor": "default",
                "build_type": "tar",
                "build_hash": build,
                "build_date": "unknown",
                "build_snapshot": false,
                "lucene_version": "8.7.0",
                "minimum_wire_compatibility_version": "6.8.0",
                "minimum_index_compatibility_version": "6.0.0-beta1"
            },
            "tagline": "You Know, for Search"
        }),
    ))
}
