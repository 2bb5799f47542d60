//! `_tasks`: requests are not kept as tasks, so that the list of them is empty.

use serde_json::json;

use super::options;
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

/// `GET /_tasks`
pub(crate) fn list(_api: &Api, request: &mut Request) -> Result<Response, Error> {
    for filter in ["nodes", "actions", "parent_task_id", "group_by"] {
        request.params.take(filter);
    }
    options::flag(&mut request.params, "detailed")?;
    options::flag(&mut request.params, "wait_for_completion")?;
    request.params.take_time("timeout")?;
    request.finish()?;
    Ok(Response::json(200, json!({ "nodes": {} })))
}
