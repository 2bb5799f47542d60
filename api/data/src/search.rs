//! Search endpoints: the expression, the parameters and the parsed body go to the query service, which
//! knows and refuses their members itself.

use std::sync::Arc;

use millrace_query::{MAX_SEARCHES, Outcome, OutcomeBody, TextPage};
use serde_json::Value;

use crate::Api;
use crate::error::Error;
use crate::http::{Body, BodyChunks, MemoryAllowance, Request, Response, json, offload};

/// Parameters of a query string, by their names.
type RequestParams = Vec<(String, String)>;

/// Takes the parameters and reads the body.
fn params_and_body(request: &mut Request) -> Result<(RequestParams, Option<Value>), Error> {
    let params = request.params.take_all();
    Ok((params, request.json()?))
}

/// Runs `_search`.
pub(crate) async fn search(api: &Api, request: &mut Request, expression: &str) -> Result<Response, Error> {
    let (params, body) = params_and_body(request)?;
    Ok(response(api.search.search(&api.session, expression, params, body).await?))
}

/// Runs `_count`.
pub(crate) async fn count(api: &Api, request: &mut Request, expression: &str) -> Result<Response, Error> {
    let (params, body) = params_and_body(request)?;
    Ok(response(api.search.count(&api.session, expression, params, body).await?))
}

/// Runs `_field_caps`.
pub(crate) async fn field_caps(
    api: &Api,
    request: &mut Request,
    expression: &str,
) -> Result<Response, Error> {
    let (params, body) = params_and_body(request)?;
    Ok(response(api.search.field_caps(&api.session, expression, params, body).await?))
}

/// Runs `_validate/query`. A query that is not even JSON is one that is not valid.
pub(crate) async fn validate_query(
    api: &Api,
    request: &mut Request,
    expression: &str,
) -> Result<Response, Error> {
    let params = request.params.take_all();
    let body = match request.json() {
        Ok(body) => body,
        Err(error) => {
            let explain = params.iter().any(|(name, value)| name == "explain" && value != "false");
            return Ok(unreadable(&error, explain));
        }
    };
    Ok(response(api.search.validate_query(&api.session, expression, params, body).await?))
}

/// Runs `_delete_by_query`.
pub(crate) async fn delete_by_query(
    api: &Api,
    request: &mut Request,
    expression: &str,
) -> Result<Response, Error> {
    let waits = request.params.take_bool("wait_for_completion")?.unwrap_or(true);
    let (params, body) = params_and_body(request)?;
    if waits {
        return delete_matches(api, request, expression, params, body).await;
    }
    let deletion = api.search.check_delete_by_query(&api.session, expression, params, body)?;
    let (search, expression, held) = (Arc::clone(&api.search), expression.to_owned(), request.take_held());
    api.detach(|session| async move {
        let held = Box::new(held);
        Ok(response(search.run_deletion(&session, &expression, deletion, held).await?))
    })
}

/// Deletes what a query matches, with given parameters and body.
pub(crate) async fn delete_matches(
    api: &Api,
    request: &mut Request,
    expression: &str,
    params: RequestParams,
    body: Option<Value>,
) -> Result<Response, Error> {
    let held = Box::new(request.take_held());
    Ok(response(api.search.delete_by_query(&api.session, expression, params, body, held).await?))
}

/// Continues the scroll of the path, or of the parameters and the body.
pub(crate) async fn scroll(api: &Api, request: &mut Request, id: Option<&str>) -> Result<Response, Error> {
    name_scroll(request, id);
    let (params, body) = params_and_body(request)?;
    Ok(response(api.search.scroll(&api.session, "", params, body).await?))
}

/// Closes the scroll of the path, or those of the parameters and the body.
pub(crate) async fn clear_scroll(
    api: &Api,
    request: &mut Request,
    id: Option<&str>,
) -> Result<Response, Error> {
    name_scroll(request, id);
    let (params, body) = params_and_body(request)?;
    Ok(response(api.search.clear_scroll(&api.session, "", params, body).await?))
}

/// Makes the scroll that a path names a parameter.
fn name_scroll(request: &mut Request, id: Option<&str>) {
    if let Some(id) = id {
        request.params.set("scroll_id", id);
    }
}

/// Opens a point in time.
pub(crate) async fn open_point_in_time(
    api: &Api,
    request: &mut Request,
    expression: &str,
) -> Result<Response, Error> {
    let (params, body) = params_and_body(request)?;
    Ok(response(api.search.open_point_in_time(&api.session, expression, params, body).await?))
}

/// Lists all points in time.
pub(crate) async fn list_points_in_time(api: &Api, request: &mut Request) -> Result<Response, Error> {
    let (params, _) = params_and_body(request)?;
    Ok(response(api.search.list_points_in_time(&api.session, params).await?))
}

/// Closes all points in time, or those that the body names.
pub(crate) async fn close_points_in_time(
    api: &Api,
    request: &mut Request,
    all: bool,
) -> Result<Response, Error> {
    let (params, body) = params_and_body(request)?;
    Ok(response(api.search.close_points_in_time(&api.session, all, params, body).await?))
}

/// Runs `_explain` for a document.
pub(crate) async fn explain(
    api: &Api,
    request: &mut Request,
    index: &str,
    doc_type: Option<&str>,
    id: &str,
) -> Result<Response, Error> {
    let body = request.json()?;
    let params = request.params.take_all();
    let outcome = api.search.explain(&api.session, index, (doc_type, id), params, body).await?;
    Ok(response(outcome))
}

/// Runs `_msearch`: lines of headers and bodies in turn.
pub(crate) async fn multi_search(
    api: &Api,
    request: &mut Request,
    expression: &str,
) -> Result<Response, Error> {
    let params = request.params.take_all();
    let body = &request.body;
    if body.is_empty() {
        return Err(Error::new(400, "parse_exception", "request body or source parameter is required"));
    }
    if !body.ends_with(b"\n") {
        return Err(Error::illegal_argument("The msearch request must be terminated by a newline [\n]"));
    }
    let searches = offload(body.len(), || searches(&body[..body.len() - 1], &request.allowance))?;
    let outcome = api.search.multi_search(&api.session, expression, params, searches).await?;
    Ok(response(outcome))
}

/// Reads headers and bodies, one a line, and no more of them than there may be.
fn searches(body: &[u8], allowance: &MemoryAllowance) -> Result<Vec<(Value, Value)>, Error> {
    let mut searches = Vec::new();
    let mut lines = body.split(|byte| *byte == b'\n');
    while let Some(header) = lines.next() {
        let blank = header.iter().all(u8::is_ascii_whitespace);
        let header = if blank { Value::Null } else { json::parse(header, allowance)? };
        // A header without a body at the end asks nothing.
        let Some(search) = lines.next() else { break };
        searches.push((header, json::parse(search, allowance)?));
        // One too many is refused for it: the rest need not be read.
        if searches.len() > MAX_SEARCHES {
            break;
        }
    }
    Ok(searches)
}

/// Answers the validation of a body that cannot be read.
fn unreadable(error: &Error, explain: bool) -> Response {
    let mut body = serde_json::json!({ "valid": false });
    if explain {
        body["error"] = format!("ParsingException[Failed to parse]; nested: {}", error.reason()).into();
    }
    Response::json(200, body)
}

/// Takes over an answer of the query service.
pub(crate) fn response(outcome: Outcome) -> Response {
    match outcome.body {
        OutcomeBody::Json(body) => Response::json(outcome.status, body),
        // The service has accounted for it.
        OutcomeBody::Raw(body) => {
            Response { status: outcome.status, body: Body::HeldJson(body), headers: Vec::new() }
        }
        OutcomeBody::TextParts(parts) => Response {
            status: outcome.status,
            body: Body::Parts(BodyChunks::new(parts)),
            headers: Vec::new(),
        },
        OutcomeBody::TextPage(TextPage { text, content_type, cursor }) => Response {
            status: outcome.status,
            body: Body::Bytes { content_type, bytes: text },
            headers: cursor.map(|cursor| ("cursor", cursor)).into_iter().collect(),
        },
        OutcomeBody::Text(bytes) => Response {
            status: outcome.status,
            body: Body::Bytes { content_type: "text/plain; charset=UTF-8", bytes },
            headers: Vec::new(),
        },
    }
}
