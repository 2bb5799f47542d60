use std::time::Duration;

use bytes::Bytes;
use millrace_catalog::access::Principal;
use millrace_dsl::query;
use millrace_engine::{Action, Engine, RefreshPolicy, WriteOp};
use millrace_runtime::{ManualClock, SharedClock};
use millrace_scoring::nested::{MatchingElement, matching_elements};
use millrace_scoring::reader::SegmentReader;
use millrace_scoring::source::Source;
use serde_json::{Value, json};

use super::*;
use crate::lower;
use crate::table::resolve::{IndexContext, resolve};

/// A document with two levels of elements, and one without any.
async fn engine(directory: &std::path::Path) -> Arc<Engine> {
    let config =
        millrace_engine::Config { data_dir: directory.to_owned(), ..millrace_engine::Config::default() };
    let clock = Arc::new(ManualClock::new(1_700_000_000_000));
    let engine = Engine::open(config, clock as SharedClock).await.unwrap();
    let principal = Principal::system();
    let body = json!({"mappings": {"properties": {"items": {"type": "nested", "properties": {
        "name": {"type": "keyword"}, "qty": {"type": "integer"},
        "subs": {"type": "nested", "properties": {"v": {"type": "integer"}}}
    }}}}});
    let now_ms = engine.clock().now_ms();
    let create = |metadata: &millrace_catalog::metadata::Metadata| {
        metadata.create_index("t", &body, now_ms, uuid::Uuid::new_v4())
    };
    engine.change(&principal, create).await.unwrap();
    let documents = [
        json!({"other": 1}),
        json!({"items": [
            {"name": "x", "qty": 1, "subs": [{"v": 1}, {"v": 2}]},
            {"name": "y", "qty": 5},
            {"name": "x", "qty": 3, "subs": {"v": 2}}
        ]}),
    ];
    let op = |(id, document): (usize, Value)| {
        WriteOp::new("t", Some(id.to_string()), Action::Index(Bytes::from(document.to_string())))
    };
    let ops = documents.into_iter().enumerate().map(op).collect();
    engine.write(&principal, ops, RefreshPolicy::Immediate, Duration::from_secs(10)).await.unwrap();
    engine
}

/// The matching elements of both documents: ordinals and score.
async fn elements(engine: &Engine, clause: Value) -> Vec<Vec<(Vec<u32>, f32)>> {
    let snapshot = engine.index("t").unwrap().snapshot().await.unwrap();
    let context = IndexContext { meta: &snapshot.meta, mapping: &snapshot.mapping, now_ms: 0 };
    let resolved = resolve(&lower::lower(&query::parse(&clause).unwrap()), context).unwrap();
    let reader: Arc<dyn SegmentReader> = Arc::clone(&snapshot.shards[0].segments[0].segment) as Arc<_>;
    let inverted = reader.inverted().unwrap();
    let source = Source {
        number: 0,
        shard: 0,
        reader,
        inverted,
        functions: Arc::default(),
        ruled: None,
        work: Default::default(),
    };
    let Node::Nested(nested) = &resolved.node else { panic!("no nested clause: {:?}", resolved.node) };
    let found = matching_elements(nested, &source, &[1, 0]).unwrap();
    let shown = |element: &MatchingElement| (element.ordinals.clone(), element.score);
    found.iter().map(|elements| elements.iter().map(shown).collect()).collect()
}

#[tokio::test]
async fn matching_elements_come_by_score_with_their_places() {
    let directory = tempfile::tempdir().unwrap();
    let engine = engine(directory.path()).await;
    let by_name = json!({"constant_score": {"filter": {"term": {"items.name": "x"}}, "boost": 3}});
    let should = json!({"bool": {"should": [{"range": {"items.qty": {"gte": 2}}}, by_name]}});
    let found = elements(&engine, json!({"nested": {"path": "items", "query": should}})).await;
    assert_eq!(found, [vec![(vec![2], 4.0), (vec![0], 3.0), (vec![1], 1.0)], vec![]]);
    let inner = json!({"range": {"items.subs.v": {"gte": 2}}});
    let found = elements(&engine, json!({"nested": {"path": "items.subs", "query": inner}})).await;
    assert_eq!(found, [vec![(vec![0, 1], 1.0), (vec![2, 0], 1.0)], vec![]]);
}
