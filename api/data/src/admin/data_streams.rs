//! `_data_stream`: creation, listing, deletion and figures of data streams.

use std::sync::Arc;

use millrace_catalog::access::Action;
use millrace_catalog::metadata::{DataStream, Uuid};
use millrace_runtime::Priority;
use serde_json::{Value, json};

use super::health::{self, Status};
use super::{options, stats};
use crate::Api;
use crate::error::Error;
use crate::http::render::bytes_text;
use crate::http::{Request, Response};

/// `PUT /_data_stream/<name>`
pub(crate) async fn create(api: &Api, request: &mut Request, name: &str) -> Result<Response, Error> {
    options::manager(&mut request.params)?;
    request.finish()?;
    let now = api.session.clock().now_ms();
    let uuid = Uuid::new_v4();
    api.session.change(|state| state.create_data_stream(name, now, uuid)).await?;
    Ok(Response::acknowledged())
}

/// `DELETE /_data_stream/<names>`
pub(crate) async fn delete(api: &Api, request: &mut Request, names: &str) -> Result<Response, Error> {
    options::manager(&mut request.params)?;
    request.params.take("expand_wildcards");
    request.finish()?;
    api.session.change(|state| state.delete_data_streams(names)).await?;
    Ok(Response::acknowledged())
}

/// `GET /_data_stream` and `GET /_data_stream/<names>`
pub(crate) fn get(api: &Api, request: &mut Request, names: Option<&str>) -> Result<Response, Error> {
    options::manager(&mut request.params)?;
    request.params.take("expand_wildcards");
    request.finish()?;
    let shown: Vec<Value> =
        api.session.metadata().list_data_streams(names)?.iter().map(|stream| render(api, stream)).collect();
    Ok(Response::json(200, json!({ "data_streams": shown })))
}

fn render(api: &Api, stream: &DataStream) -> Value {
    let state = api.session.metadata();
    let metas: Vec<_> = stream.indices.iter().filter_map(|name| state.index(name)).collect();
    let indices: Vec<Value> = metas
        .iter()
        .map(|meta| json!({ "index_name": &*meta.name, "index_uuid": meta.uuid_text() }))
        .collect();
    let status = metas.iter().map(|meta| health::of_index(api, meta).status()).max().unwrap_or(Status::Green);
    let mut shown = json!({
        "name": &*stream.name,
        "timestamp_field": { "name": &*stream.timestamp_field },
        "indices": indices,
        "generation": stream.generation(),
        "status": status.name().to_uppercase(),
    });
    if let Some((template, _)) = state.stream_template(&stream.name) {
        shown["template"] = template.into();
    }
    shown
}

/// `GET /_data_stream/_stats` and `GET /_data_stream/<names>/_stats`
pub(crate) async fn statistics(
    api: &Api,
    request: &mut Request,
    names: Option<&str>,
) -> Result<Response, Error> {
    options::manager(&mut request.params)?;
    request.params.take("expand_wildcards");
    let forbid_closed = request.params.take_bool("forbid_closed_indices")?.unwrap_or(false);
    request.finish()?;
    let human = request.params.human;
    let state = api.session.metadata();
    let (mut shown, mut shards, mut bytes, mut backing) = (Vec::new(), 0, 0, 0);
    for stream in state.list_data_streams(names)? {
        let mut stream_bytes = 0;
        for meta in stream.indices.iter().filter_map(|name| state.index(name)) {
            if !meta.open && forbid_closed {
                return Err(millrace_runtime::Error::IndexClosed { index: meta.name.to_string() }.into());
            }
            shards += u64::from(meta.shards);
            if meta.open {
                stream_bytes += stats::sum(&stats::figures(api, meta)).store_bytes;
            }
        }
        bytes += stream_bytes;
        backing += stream.indices.len();
        let mut stats = json!({
            "data_stream": &*stream.name,
            "backing_indices": stream.indices.len(),
            "store_size_bytes": stream_bytes,
            "maximum_timestamp": latest_time(api, &stream).await?,
        });
        if human {
            stats["store_size"] = size_text(stream_bytes).into();
        }
        shown.push(stats);
    }
    let mut answer = json!({
        "_shards": { "total": shards, "successful": shards, "failed": 0 },
        "data_stream_count": shown.len(),
        "backing_indices": backing,
        "total_store_size_bytes": bytes,
        "data_streams": shown,
    });
    if human {
        answer["total_store_size"] = size_text(bytes).into();
    }
    Ok(Response::json(200, answer))
}

fn size_text(bytes: u64) -> String {
    bytes_text(i64::try_from(bytes).unwrap_or(i64::MAX))
}

/// Finds the latest time of the documents of a stream that the caller may search, in milliseconds; 0 where it has none.
async fn latest_time(api: &Api, stream: &Arc<DataStream>) -> Result<i64, Error> {
    let Ok(session) = api.session.doing(Action::Search) else { return Ok(0) };
    let body = json!({
        "size": 0,
        "track_total_hits": false,
        "aggs": { "latest": { "max": { "field": &*stream.timestamp_field } } },
    });
    let open = session.metadata();
    let open: Vec<&str> = stream
        .indices
        .iter()
        .filter(|name| session.access(name).allows(Action::Search))
        .filter(|name| open.index(name).is_some_and(|meta| meta.open))
        .map(|name| &**name)
        .collect();
    if open.is_empty() {
        return Ok(0);
    }
    let found: Value = api.search.read(&session, &open.join(","), body, Priority::Foreground).await?;
    Ok(found["aggregations"]["latest"]["value"].as_f64().map_or(0, |value| value as i64))
}
