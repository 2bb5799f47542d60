//! `_plugins/_sql`: the statement goes to the query service, which renders answers and refusals itself.

use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};
use crate::search::response;

/// Answers a statement, or explains it.
pub(crate) async fn run(api: &Api, request: &mut Request, explain: bool) -> Result<Response, Error> {
    let params = request.params.take_all();
    let body = request.json()?;
    let (service, principal) = (&api.search, &request.principal);
    let outcome = match explain {
        false => service.sql(principal, params, body).await,
        true => service.explain_sql(principal, params, body).await,
    };
    Ok(response(outcome))
}
