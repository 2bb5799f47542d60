//! AI rules: listed, saved, run, drawn.
//!
//! [`Intelligence`] knows the rules and what may be done with them; the forms of requests and answers are here.

use millrace_intelligence::{Error as Refusal, Intelligence, Record};
use serde_json::json;

use super::alerts::{body, done};
use crate::Api;
use crate::audit::DeniedRule;
use crate::error::Error;
use crate::http::listing::items;
use crate::http::{Request, Response};

/// Lists the rules that the caller may run.
pub(crate) fn list(api: &Api, request: &Request) -> Result<Response, Error> {
    request.finish()?;
    let rules = intelligence(api)?.list(api.session.principal());
    Ok(Response::raw_json(200, items(&request.room, &rules, Record::value)?))
}

/// Shows a rule.
pub(crate) fn show(api: &Api, request: &Request, id: &str) -> Result<Response, Error> {
    request.finish()?;
    Ok(Response::json(200, intelligence(api)?.show(api.session.principal(), id)?))
}

/// Saves a new rule.
pub(crate) async fn create(api: &Api, request: &Request) -> Result<Response, Error> {
    request.finish()?;
    let id = intelligence(api)?.create(api.session.principal(), body(request)?).await?;
    Ok(Response::json(200, done(&id, "the AI rule is saved")))
}

/// Puts a rule in the place of another one.
pub(crate) async fn update(api: &Api, request: &Request, id: &str) -> Result<Response, Error> {
    request.finish()?;
    intelligence(api)?.update(api.session.principal(), id, body(request)?).await?;
    Ok(Response::json(200, done(id, "the AI rule is saved")))
}

/// Deletes a rule.
pub(crate) async fn delete(api: &Api, request: &Request, id: &str) -> Result<Response, Error> {
    request.finish()?;
    intelligence(api)?.delete(api.session.principal(), id).await?;
    Ok(Response::json(200, done(id, "the AI rule is deleted; its predictions stay")))
}

/// Runs a rule, and answers when it has ended.
pub(crate) async fn run(api: &Api, request: &Request, id: &str) -> Result<Response, Error> {
    request.finish()?;
    let intelligence = intelligence(api)?;
    match intelligence.run(api.session.principal(), id).await {
        Ok(message) => Ok(Response::json(200, done(id, &message))),
        Err(error @ Refusal::NotFound(_)) => Err(error.into()),
        // It was this rule that did not run.
        Err(error) => {
            let error = failed(api, intelligence, id, error);
            let body = json!({"status": false, "id": id, "message": error.reason()});
            Ok(Response::json(error.status(), body))
        }
    }
}

/// Draws a rule, with what was predicted last.
pub(crate) async fn plot(api: &Api, request: &mut Request, id: &str) -> Result<Response, Error> {
    let value = request.params.take("value");
    request.finish()?;
    let intelligence = intelligence(api)?;
    let drawn = intelligence.plot(api.session.principal(), id, value.as_deref()).await;
    Ok(Response::svg(drawn.map_err(|error| failed(api, intelligence, id, error))?))
}

/// Takes note for the audit of a refusal of a rule that the caller has run or drawn. A caller without the right to the rule gets
/// the answer that there is no such rule. So the refusal concerns the rule's owner, or a block, which refuses everybody.
fn failed(api: &Api, intelligence: &Intelligence, id: &str, error: Refusal) -> Error {
    let refusals = api.session.refusals();
    let of_store = match &error {
        Refusal::Storage(error) => Some(error),
        Refusal::Query(error) => error.as_storage(),
        _ => None,
    };
    of_store.into_iter().for_each(|error| refusals.note(error));
    let error = Error::from(error);
    if error.status() == 403
        && !refusals.are_blocks()
        && let Some(owner) = intelligence.owner(id)
    {
        let _ = api.noted.denied.set(DeniedRule { id: id.to_owned(), owner });
    }
    error
}

/// Refuses rules of variant A.
pub(crate) fn change(request: &Request) -> Result<Response, Error> {
    request.finish()?;
    let reason = "AI rules that detect anomalies (variant A, with [model_type]) are not built yet; forecasts (variant B, with [algorithm_type]) are saved with PUT /api/ai/create and POST /api/ai/update/<id>";
    Err(Error::new(501, "not_implemented_exception", reason))
}

fn intelligence(api: &Api) -> Result<&Intelligence, Error> {
    let none = || Error::new(503, "unavailable_exception", "this server runs no AI rules");
    api.intelligence.as_ref().ok_or_else(none)
}
