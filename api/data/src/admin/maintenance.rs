//! `_refresh`, `_flush`, `_forcemerge`, `_cache/clear`.

use std::sync::Arc;

use millrace_catalog::metadata::{BlockLevel, IndexMeta, IndicesOptions, check_block};
use millrace_engine::Index;
use serde_json::{Map, Value, json};

use super::options;
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

/// Resolves the open indices of an expression that no block keeps from maintenance.
fn targets(api: &Api, request: &mut Request, expression: &str) -> Result<Vec<Arc<IndexMeta>>, Error> {
    let options = options::indices(&mut request.params, IndicesOptions::open_only())?;
    let metas = api.session.metadata().resolve(expression, &options, api.session.clock().now_ms())?;
    metas.iter().try_for_each(|meta| check_block(meta, BlockLevel::MetadataWrite))?;
    Ok(metas)
}

fn running(api: &Api, metas: &[Arc<IndexMeta>]) -> Result<Vec<Arc<Index>>, Error> {
    metas.iter().map(|meta| api.session.index(&meta.name).map_err(Error::from)).collect()
}

/// Counts copies as OpenSearch does: all that are configured, of which the one of each shard answers.
pub(super) fn shards_header(metas: &[Arc<IndexMeta>]) -> Value {
    let total: u64 = metas.iter().map(|meta| u64::from(meta.shards) * (1 + u64::from(meta.replicas))).sum();
    let successful: u64 = metas.iter().map(|meta| u64::from(meta.shards)).sum();
    json!({ "total": total, "successful": successful, "failed": 0 })
}

fn done(metas: &[Arc<IndexMeta>]) -> Response {
    Response::json(200, json!({ "_shards": shards_header(metas) }))
}

/// `_refresh`
pub(crate) async fn refresh(api: &Api, request: &mut Request, index: &str) -> Result<Response, Error> {
    let metas = targets(api, request, index)?;
    request.finish()?;
    api.session.refresh(&running(api, &metas)?).await?;
    Ok(done(&metas))
}

/// `_flush`
pub(crate) async fn flush(api: &Api, request: &mut Request, index: &str) -> Result<Response, Error> {
    let force = options::flag(&mut request.params, "force")?;
    let wait = request.params.take_bool("wait_if_ongoing")?.unwrap_or(true);
    if force && !wait {
        return Err(Error::validation(&["wait_if_ongoing must be true for a force flush"]));
    }
    let metas = targets(api, request, index)?;
    request.finish()?;
    api.session.flush(&running(api, &metas)?).await?;
    Ok(done(&metas))
}

/// `_flush/synced`: a flush; there is no marker that a sync would have to write.
pub(crate) async fn synced_flush(api: &Api, request: &mut Request, index: &str) -> Result<Response, Error> {
    let metas = targets(api, request, index)?;
    request.finish()?;
    api.session.flush(&running(api, &metas)?).await?;
    let mut answer = Map::new();
    answer.insert("_shards".into(), shards_header(&metas));
    for meta in metas {
        answer.insert(meta.name.to_string(), shards_header(std::slice::from_ref(&meta)));
    }
    Ok(Response::json(200, answer.into()))
}

/// `_forcemerge`
pub(crate) async fn force_merge(api: &Api, request: &mut Request, index: &str) -> Result<Response, Error> {
    let segments = match request.params.take_int("max_num_segments")? {
        None | Some(-1) => None,
        Some(count) if count >= 1 => usize::try_from(count).ok(),
        Some(count) => {
            return Err(Error::illegal_argument(format!("max_num_segments [{count}] must be at least 1")));
        }
    };
    let only_expunge = options::flag(&mut request.params, "only_expunge_deletes")?;
    // Stored segments are merged, so there is a flush first, whatever this says.
    request.params.take_bool("flush")?;
    let waits = request.params.take_bool("wait_for_completion")?.unwrap_or(true);
    let metas = targets(api, request, index)?;
    request.finish()?;
    let indices = running(api, &metas)?;
    // Rows are dropped where segments are rewritten: getting rid of deletions is a merge into one.
    let segments = if only_expunge { 1 } else { segments.unwrap_or(usize::MAX) };
    if !waits {
        return api.detach(move |session| async move {
            session.force_merge(&indices, segments).await?;
            session.check_cancelled()?;
            Ok(done(&metas))
        });
    }
    api.session.force_merge(&indices, segments).await?;
    api.session.check_cancelled()?;
    Ok(done(&metas))
}

/// `_cache/clear`: no cache is kept per index, so that none holds anything when this returns.
pub(crate) fn clear_cache(api: &Api, request: &mut Request, index: &str) -> Result<Response, Error> {
    for kind in ["fielddata", "file", "query", "request"] {
        request.params.take_bool(kind)?;
    }
    request.params.take("fields");
    request.params.take("index");
    let metas = targets(api, request, index)?;
    request.finish()?;
    Ok(done(&metas))
}
