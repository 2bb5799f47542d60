//! Search endpoints: the expression, the parameters and the parsed body go to the query service, which
//! knows and refuses their members itself.

use http::Method;
use millrace_query::{MAX_SEARCHES, Outcome, OutcomeBody, TextPage};
use serde_json::Value;

use crate::Api;
use crate::error::Error;
use crate::http::{Body, BodyChunks, MemoryAllowance, Request, Response, json, offload};

/// The endpoints of the query service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Search,
    Count,
    Scroll,
    ClearScroll,
    DeleteByQuery,
    MultiSearch,
    ValidateQuery,
    FieldCaps,
    /// Opening a point in time, listing or closing all, closing some.
    OpenPointInTime,
    AllPointsInTime,
    ClosePointsInTime,
}

/// Runs an endpoint over an index expression.
pub(crate) async fn run(
    api: &Api,
    request: &mut Request,
    endpoint: Endpoint,
    expression: &str,
) -> Result<Response, Error> {
    if endpoint == Endpoint::MultiSearch {
        return multi_search(api, request, expression).await;
    }
    let params = request.params.take_all();
    // A query that is not even JSON is one that is not valid.
    let body = match request.json() {
        Err(error) if endpoint == Endpoint::ValidateQuery => {
            let explain = params.iter().any(|(name, value)| name == "explain" && value != "false");
            return Ok(unreadable(&error, explain));
        }
        body => body?,
    };
    run_with(api, request, endpoint, expression, params, body).await
}

/// Runs an endpoint over an index expression with given parameters and body.
pub(crate) async fn run_with(
    api: &Api,
    request: &mut Request,
    endpoint: Endpoint,
    expression: &str,
    params: Vec<(String, String)>,
    body: Option<Value>,
) -> Result<Response, Error> {
    let (service, session) = (&api.search, &api.session);
    let outcome = match endpoint {
        Endpoint::Search => service.search(session, expression, params, body).await,
        Endpoint::Count => service.count(session, expression, params, body).await,
        Endpoint::Scroll => service.scroll(session, expression, params, body).await,
        Endpoint::ClearScroll => service.clear_scroll(session, expression, params, body).await,
        Endpoint::DeleteByQuery => {
            let held = Box::new(request.take_held());
            service.delete_by_query(session, expression, params, body, held).await
        }
        Endpoint::MultiSearch => service.multi_search(session, expression, params, Vec::new()).await,
        Endpoint::ValidateQuery => service.validate_query(session, expression, params, body).await,
        Endpoint::FieldCaps => service.field_caps(session, expression, params, body).await,
        Endpoint::OpenPointInTime => service.open_point_in_time(session, expression, params, body).await,
        Endpoint::AllPointsInTime if request.method == Method::GET => {
            service.list_points_in_time(session, params).await
        }
        Endpoint::AllPointsInTime => service.close_points_in_time(session, true, params, body).await,
        Endpoint::ClosePointsInTime => service.close_points_in_time(session, false, params, body).await,
    }?;
    Ok(response(outcome))
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
async fn multi_search(api: &Api, request: &mut Request, expression: &str) -> Result<Response, Error> {
    let params = request.params.take_all();
    let body = &request.body;
    if body.is_empty() {
        return Err(Error::new(400, "parse_exception", "request body or source parameter is required"));
    }
    if !body.ends_with(b"\n") {
        return Err(Error::illegal_argument("The msearch request must be terminated by a newline [\n]"));
    }
    let searches = offload(body.len(), || searches(&body[..body.len() - 1], &request.room))?;
    let outcome = api.search.multi_search(&api.session, expression, params, searches).await?;
    Ok(response(outcome))
}

/// Reads headers and bodies, one a line, and no more of them than there may be.
fn searches(body: &[u8], room: &MemoryAllowance) -> Result<Vec<(Value, Value)>, Error> {
    let mut searches = Vec::new();
    let mut lines = body.split(|byte| *byte == b'\n');
    while let Some(header) = lines.next() {
        let blank = header.iter().all(u8::is_ascii_whitespace);
        let header = if blank { Value::Null } else { json::parse(header, room)? };
        // A header without a body at the end asks nothing.
        let Some(search) = lines.next() else { break };
        searches.push((header, json::parse(search, room)?));
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
