//! `_segments`: the segments of every shard, with their sizes.

use millrace_catalog::metadata::{IndexMeta, IndicesOptions};
use millrace_engine::SegmentFigures;
use serde_json::{Map, Value, json};

use super::{maintenance, node, options};
use crate::Api;
use crate::error::Error;
use crate::http::{Request, Response};

/// Version that wrote the segments.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Lists the segments of an index by shard; a closed one has none that are searched.
pub(super) fn list_by_shard(api: &Api, meta: &IndexMeta) -> Vec<Vec<SegmentFigures>> {
    match api.session.index(&meta.name) {
        Ok(index) if meta.open => index.segments(),
        _ => Vec::new(),
    }
}

/// Names a segment: its number, to the base of 36.
pub(super) fn name(segment: &SegmentFigures) -> String {
    let mut digits = Vec::new();
    let mut rest = segment.number;
    loop {
        digits.extend(char::from_digit((rest % 36) as u32, 36));
        rest /= 36;
        if rest == 0 {
            break;
        }
    }
    digits.push('_');
    digits.iter().rev().collect()
}

/// Counts the bytes of a segment, wherever it is.
pub(super) fn bytes(segment: &SegmentFigures) -> u64 {
    if segment.committed { segment.store_bytes } else { segment.memory_bytes }
}

/// `_segments`
pub(crate) fn get(api: &Api, request: &mut Request, expression: &str) -> Result<Response, Error> {
    options::flag(&mut request.params, "verbose")?;
    let options = options::indices(&mut request.params, IndicesOptions::open_only())?;
    request.finish()?;
    let metas = api.session.metadata().resolve(expression, &options, api.session.clock().now_ms())?;
    let indices: Map<String, Value> = metas
        .iter()
        .map(|meta| {
            let shards: Map<String, Value> = list_by_shard(api, meta)
                .iter()
                .enumerate()
                .map(|(number, segments)| (number.to_string(), json!([shard(api, segments)])))
                .collect();
            (meta.name.to_string(), json!({ "shards": shards }))
        })
        .collect();
    Ok(Response::json(200, json!({ "_shards": maintenance::shards_header(&metas), "indices": indices })))
}

fn shard(api: &Api, segments: &[SegmentFigures]) -> Value {
    let shown: Map<String, Value> = segments
        .iter()
        .map(|segment| {
            let sizes = json!({
                "generation": segment.number,
                "num_docs": segment.docs,
                "deleted_docs": segment.deleted,
                "size_in_bytes": bytes(segment),
                "memory_in_bytes": segment.memory_bytes,
                "committed": segment.committed,
                "search": true,
                "version": VERSION,
                "compound": false,
                "attributes": {},
            });
            (name(segment), sizes)
        })
        .collect();
    json!({
        "routing": { "state": "STARTED", "primary": true, "node": node::id(api) },
        "num_committed_segments": segments.iter().filter(|segment| segment.committed).count(),
        "num_search_segments": segments.len(),
        "segments": shown,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_named_by_number() {
        for (number, expected) in [(0, "_0"), (35, "_z"), (36, "_10"), (u64::MAX, "_3w5e11264sgsf")] {
            let segment = SegmentFigures {
                number,
                docs: 1,
                deleted: 0,
                store_bytes: 2,
                files: 2,
                memory_bytes: 3,
                committed: true,
            };
            assert_eq!((name(&segment).as_str(), bytes(&segment)), (expected, 2));
        }
    }
}
