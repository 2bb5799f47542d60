//! `_shrink`, `_split` and `_clone`: an index with the documents of another one.

use millrace_catalog::metadata::{ResizeIndex, ResizeKind, fewest_shards, parse_bytes};
use millrace_query::check_kept_filter;
use serde_json::{Value, json};

use super::options;
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

/// Member of the body of `_shrink` that bounds the bytes of a shard.
const MAX_SHARD_SIZE: &str = "max_shard_size";
/// Setting with the number of shards.
const SHARDS: &str = "index.number_of_shards";

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
    let mut body = request.json()?.unwrap_or(Value::Null);
    let max_shard_size = body.as_object_mut().and_then(|members| members.shift_remove(MAX_SHARD_SIZE));
    let mut resize = ResizeIndex::parse(kind, source, target, &body)?;
    if let Some(size) = max_shard_size.filter(|size| !size.is_null()) {
        limit_shard_size(api, &mut resize, &size)?;
    }
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

/// Chooses the number of shards of a shrunken index by the bytes of each.
fn limit_shard_size(api: &Api, resize: &mut ResizeIndex, size: &Value) -> Result<(), Error> {
    if resize.kind != ResizeKind::Shrink {
        return Err(Error::illegal_argument(format!("[{MAX_SHARD_SIZE}] is for [_shrink] alone")));
    }
    if resize.settings.contains_key(SHARDS) {
        let reason = format!("Cannot set {MAX_SHARD_SIZE} and {SHARDS} at the same time!");
        return Err(Error::illegal_argument(reason));
    }
    let bytes = match size.as_str().map(parse_bytes) {
        Some(Ok(Some(bytes))) if bytes > 0 => bytes,
        _ => {
            let reason = format!("[{MAX_SHARD_SIZE}] must be a size above 0 such as [50gb], but is [{size}]");
            return Err(Error::illegal_argument(reason));
        }
    };
    let figures = api.session.index(&resize.source)?.figures();
    let stored = figures.shards.iter().map(|shard| shard.bytes()).sum();
    let shards = fewest_shards(figures.shards.len() as u64, stored, bytes);
    resize.settings.insert(SHARDS.to_owned(), shards.to_string().into());
    Ok(())
}
