//! `_shrink`, `_split` and `_clone`: an index with the documents of another one.

use millrace_catalog::metadata::{ResizeIndex, ResizeKind};
use millrace_query::check_kept_filter;
use serde_json::{Value, json};

use super::options;
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

/// Resizes an index.
pub(crate) async fn resize(
    api: &Api,
    request: &mut Request,
    kind: ResizeKind,
    (source, target): (&str, &str),
) -> Result<Response, Error> {
    let copy_settings = request.params.take_bool("copy_settings")?;
    if copy_settings == Some(false) {
        return Err(Error::illegal_argument(
            "parameter [copy_settings] can not be explicitly set to [false]",
        ));
    }
    let waits = request.params.take_bool("wait_for_completion")?.unwrap_or(true);
    request.params.take_time("task_execution_timeout")?;
    options::manager(&mut request.params)?;
    options::active_shards(&mut request.params)?;
    request.finish()?;
    let body = request.json()?.unwrap_or(Value::Null);
    let resize = ResizeIndex::parse(kind, source, target, &body)?;
    let fields = api.session.access(target).written_fields();
    for alias in resize.aliases.values().filter(|alias| !alias["filter"].is_null()) {
        check_kept_filter(&alias["filter"], &fields)?;
    }
    let answer = json!({ "acknowledged": true, "shards_acknowledged": true, "index": target });
    if !waits {
        return api.detach(move |session| async move {
            session.resize(&resize).await?;
            Ok(Response::json(200, answer))
        });
    }
    api.session.resize(&resize).await?;
    let mut response = Response::json(200, answer);
    if copy_settings.is_some() {
        let text = "parameter [copy_settings] is deprecated and will be removed in 8.0.0";
        response.headers.push(("warning", format!("299 Millrace \"{text}\"")));
    }
    Ok(response)
}
