//! `_ingest/pipeline` and `_ingest/processor/grok`.

use millrace_processors::grok_patterns;
use millrace_runtime::Priority;
use serde_json::{Value, json};

use super::failure;
use crate::Api;
use crate::admin::manager;
use crate::error::Error;
use crate::http::{Request, Response};
use crate::route::DataApi;

/// Stores a pipeline.
pub(crate) async fn put(
    served: &DataApi,
    api: &Api,
    request: &mut Request,
    id: &str,
) -> Result<Response, Error> {
    manager(&mut request.params)?;
    request.finish()?;
    let required = || Error::new(400, "parse_exception", "request body or source parameter is required");
    let Value::Object(definition) = request.json()?.ok_or_else(required)? else {
        return Err(Error::new(400, "parse_exception", "the definition of a pipeline must be an object"));
    };
    let by = api.session.principal().caller().to_string();
    served.ingest()?.put(id, definition, &by).await?;
    Ok(Response::acknowledged())
}

/// Answers the definitions of pipelines. They are copied and written on the threads of computations, as they may be long.
pub(crate) async fn get(
    served: &DataApi,
    api: &Api,
    request: &mut Request,
    ids: Option<&str>,
) -> Result<Response, Error> {
    manager(&mut request.params)?;
    request.finish()?;
    let stored = served.ingest()?.stored().await?;
    let (ids, answer) = (ids.map(str::to_owned), request.answer.clone());
    let work = move || {
        let found = stored.find(ids.as_deref());
        let status = if found.is_empty() { 404 } else { 200 };
        let text = Value::Object(found).to_string().into_bytes();
        Ok(answer.take(text.len()).map(|()| (status, text)))
    };
    let (status, text) = api.session.compute().run(Priority::Foreground, work).await??;
    Ok(Response::held_json(status, text, &request.answer))
}

/// Deletes pipelines.
pub(crate) async fn delete(served: &DataApi, request: &mut Request, ids: &str) -> Result<Response, Error> {
    manager(&mut request.params)?;
    request.finish()?;
    served.ingest()?.delete(ids).await?;
    Ok(Response::acknowledged())
}

/// Answers the patterns that grok processors know.
pub(crate) fn patterns(request: &mut Request) -> Result<Response, Error> {
    request.params.take_bool("s")?;
    request.finish()?;
    let patterns = grok_patterns().map_err(|error| failure(&error))?;
    Ok(Response::json(200, json!({ "patterns": patterns })))
}
