//! Search endpoints: the expression, the parameters and the parsed body go to the query service, which
//! knows and refuses their members itself.

use millrace_query::OutcomeBody;
use serde_json::Value;

use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

/// The endpoints of the query service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Search,
    Count,
    Scroll,
    ClearScroll,
    DeleteByQuery,
}

/// Runs an endpoint over an index expression.
pub(crate) async fn run(
    api: &Api,
    request: &mut Request,
    endpoint: Endpoint,
    expression: &str,
) -> Result<Response, Error> {
    let body = request.json()?;
    let params = request.params.take_all();
    run_with(api, request, endpoint, expression, params, body).await
}

/// Runs an endpoint over an index expression with given parameters and body.
pub(crate) async fn run_with(
    api: &Api,
    request: &Request,
    endpoint: Endpoint,
    expression: &str,
    params: Vec<(String, String)>,
    body: Option<Value>,
) -> Result<Response, Error> {
    let (service, principal) = (&api.search, &request.principal);
    let outcome = match endpoint {
        Endpoint::Search => service.search(principal, expression, params, body).await,
        Endpoint::Count => service.count(principal, expression, params, body).await,
        Endpoint::Scroll => service.scroll(principal, expression, params, body).await,
        Endpoint::ClearScroll => service.clear_scroll(principal, expression, params, body).await,
        Endpoint::DeleteByQuery => service.delete_by_query(principal, expression, params, body).await,
    }?;
    Ok(match outcome.body {
        OutcomeBody::Json(body) => Response::json(outcome.status, body),
        OutcomeBody::Raw(body) => Response::raw_json(outcome.status, body),
    })
}
