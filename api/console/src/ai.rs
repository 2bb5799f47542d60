//! AI rules: listed, saved, run, drawn.
//!
//! [`Intelligence`] knows the rules and what may be done with them; the forms of requests and answers are here.

use millrace_intelligence::{Error as Refusal, Intelligence, Record};
use serde_json::json;

use super::alerts::{body, done};
use super::error::from_intelligence;
use crate::error::Error;
use crate::http::listing::items;
use crate::http::{Request, Response};
use crate::{Api, Console, DeniedRule};

/// Lists the rules that the caller may run.
pub(crate) fn list(console: &Console, api: &Api, request: &Request) -> Result<Response, Error> {
    request.finish()?;
    let rules = console.intelligence()?.list(api.session.principal());
    Ok(Response::raw_json(200, items(&request.allowance, &rules, Record::value)?))
}

/// Shows a rule.
pub(crate) fn show(console: &Console, api: &Api, request: &Request, id: &str) -> Result<Response, Error> {
    request.finish()?;
    Ok(Response::json(
        200,
        console.intelligence()?.show(api.session.principal(), id).map_err(from_intelligence)?,
    ))
}

/// Saves a new rule.
pub(crate) async fn create(console: &Console, api: &Api, request: &Request) -> Result<Response, Error> {
    request.finish()?;
    let id = console
        .intelligence()?
        .create(api.session.principal(), body(request)?)
        .await
        .map_err(from_intelligence)?;
    Ok(Response::json(200, done(&id, "the AI rule is saved")))
}

/// Puts a rule in the place of another one.
pub(crate) async fn update(
    console: &Console,
    api: &Api,
    request: &Request,
    id: &str,
) -> Result<Response, Error> {
    request.finish()?;
    console
        .intelligence()?
        .update(api.session.principal(), id, body(request)?)
        .await
        .map_err(from_intelligence)?;
    Ok(Response::json(200, done(id, "the AI rule is saved")))
}

/// Deletes a rule.
pub(crate) async fn delete(
    console: &Console,
    api: &Api,
    request: &Request,
    id: &str,
) -> Result<Response, Error> {
    request.finish()?;
    console.intelligence()?.delete(api.session.principal(), id).await.map_err(from_intelligence)?;
    Ok(Response::json(200, done(id, "the AI rule is deleted; its predictions stay")))
}

/// Runs a rule, and answers when it has ended.
pub(crate) async fn run(
    console: &Console,
    api: &Api,
    request: &Request,
    id: &str,
) -> Result<Response, Error> {
    request.finish()?;
    let intelligence = console.intelligence()?;
    match intelligence.run(api.session.principal(), id).await {
        Ok(message) => Ok(Response::json(200, done(id, &message))),
        Err(error @ Refusal::NotFound(_)) => Err(from_intelligence(error)),
        // It was this rule that did not run.
        Err(error) => {
            let error = failed(api, intelligence, id, error);
            let body = json!({"status": false, "id": id, "message": error.reason()});
            Ok(Response::json(error.status(), body))
        }
    }
}

/// Draws a rule, with what was predicted last.
pub(crate) async fn plot(
    console: &Console,
    api: &Api,
    request: &mut Request,
    id: &str,
) -> Result<Response, Error> {
    let value = request.params.take("value");
    request.finish()?;
    let intelligence = console.intelligence()?;
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
    let error = from_intelligence(error);
    if error.status() == 403
        && !refusals.are_blocks()
        && let Some(owner) = intelligence.owner(id)
    {
        let _ = api.noted.denied.set(DeniedRule { id: id.to_owned(), owner });
    }
    error
}

/// Saves a detector: a rule with a model of what is usual.
pub(crate) async fn change(console: &Console, api: &Api, request: &Request) -> Result<Response, Error> {
    request.finish()?;
    let saved = console.intelligence()?.change(api.session.principal(), body(request)?).await;
    let (id, message) = saved.map_err(from_intelligence)?;
    Ok(Response::json(200, done(&id, &message)))
}

/// Lists the log templates of a detector of text.
pub(crate) async fn templates(
    console: &Console,
    api: &Api,
    request: &mut Request,
    id: &str,
) -> Result<Response, Error> {
    let value = request.params.take("value");
    request.finish()?;
    let intelligence = console.intelligence()?;
    let templates = intelligence.templates(api.session.principal(), id, value.as_deref()).await;
    Ok(Response::json(200, templates.map_err(|error| failed(api, intelligence, id, error))?))
}
