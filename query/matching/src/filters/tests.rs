use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use millrace_dsl::query;
use millrace_storage::{
    Action, Engine, ManualClock, Principal, RefreshPolicy, SharedClock, Snapshot, WriteOp,
};
use serde_json::{Value, json};

use super::*;
use crate::lower::lower_filter;
use crate::score::fixture::{Access, Observed};
use crate::table::TableSegment;

/// A batch of documents, as an index has it in memory before it is flushed.
async fn batch(directory: &std::path::Path) -> Snapshot {
    let config =
        millrace_storage::Config { data_dir: directory.to_owned(), ..millrace_storage::Config::default() };
    let clock = Arc::new(ManualClock::new(1_700_000_000_000));
    let engine = Engine::open(config, clock as SharedClock).await.unwrap();
    let principal = Principal::system();
    let body = json!({"mappings": {"properties": {
        "message": {"type": "text"}, "level": {"type": "keyword"}, "size": {"type": "long"},
        "items": {"type": "nested", "properties": {"name": {"type": "keyword"}}}
    }}});
    let now_ms = engine.clock().now_ms();
    let create = |metadata: &millrace_storage::metadata::Metadata| {
        metadata.create_index("t", &body, now_ms, uuid::Uuid::new_v4())
    };
    engine.change(&principal, create).await.unwrap();
    let messages = ["disk full", "disk ok", "node joined", "node left the cluster", "disk failed on node"];
    let (levels, names) = (["info", "warn", "error"], ["x", "y"]);
    let document = |row: usize| {
        let (message, level) = (messages[row % messages.len()], levels[row % levels.len()]);
        json!({"message": message, "level": level, "size": row * 7 % 100, "items": [{"name": names[row % 2]}]})
    };
    let op = |row: usize| WriteOp {
        index: "t".into(),
        id: Some(row.to_string()),
        routing: None,
        action: Action::Index(Bytes::from(document(row).to_string())),
        version: None,
        if_seq_no: None,
        if_primary_term: None,
        require_alias: false,
        doc_type: "_doc".into(),
    };
    let ops = (0..300).map(op).collect();
    engine.write(&principal, ops, RefreshPolicy::Immediate, Duration::from_secs(10)).await.unwrap();
    engine.index("t").unwrap().snapshot().await.unwrap()
}

fn predicate(value: &Value) -> Predicate {
    lower_filter(&query::parse(value).unwrap())
}

#[tokio::test]
async fn filters_of_a_batch_find_what_each_finds_alone() {
    let directory = tempfile::tempdir().unwrap();
    let snapshot = batch(directory.path()).await;
    let context = IndexContext { meta: &snapshot.meta, mapping: &snapshot.mapping, now_ms: 0 };
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reads);
    let segment =
        Observed::new(Arc::clone(&snapshot.shards[0].segments[0].segment) as Arc<_>, move |access| {
            counted.fetch_add(usize::from(access == Access::Range), Ordering::Relaxed);
        });
    let segment: Arc<dyn SegmentReader> = segment;

    let (disk, error) = (json!({"match": {"message": "disk"}}), json!({"term": {"level": "error"}}));
    let small = json!({"range": {"size": {"lt": 20}}});
    let large = json!({"range": {"size": {"gte": 80}}});
    let gone = json!({"term": {"level": "gone"}});
    let filters = [
        json!({"match_all": {}}),
        json!({"match_none": {}}),
        disk.clone(),
        small.clone(),
        gone.clone(),
        json!({"bool": {"must": [disk, error], "must_not": small}}),
        json!({"bool": {"should": [disk, error, small], "minimum_should_match": 2}}),
        json!({"bool": {"should": [disk, {"bool": {"must": [small, error]}}]}}),
        json!({"bool": {"must_not": [disk]}}),
        json!({"bool": {"should": [disk], "filter": [{"ids": {"values": ["1", "5", "7"]}}]}}),
        json!({"constant_score": {"filter": small}}),
        json!({"boosting": {"positive": disk, "negative": error, "negative_boost": 0.5}}),
        json!({"dis_max": {"queries": [error, small]}}),
        json!({"function_score": {"query": error, "weight": 2}}),
        json!({"match_phrase": {"message": "disk failed"}}),
        json!({"match_phrase_prefix": {"message": "node le"}}),
        json!({"query_string": {"query": "message:(dis* AND full) OR size:[90 TO *]"}}),
        json!({"fuzzy": {"message": "disc"}}),
        json!({"wildcard": {"level": "*r*"}}),
        json!({"nested": {"path": "items", "query": {"term": {"items.name": "y"}}}}),
        json!({"bool": {"filter": [gone, large]}}),
    ];
    let mut all = Filters::default();
    filters.iter().for_each(|filter| all.add(&predicate(filter), context).unwrap());
    let work = Work::default();
    let found = all.rows(&segment, &work).unwrap();
    // Once for the small ones, and not at all for the large ones: there is nothing that they could be left of.
    let of_query_string = 1;
    assert_eq!(reads.load(Ordering::Relaxed), 1 + of_query_string);

    assert_eq!(found.len(), filters.len());
    for (filter, found) in filters.iter().zip(found) {
        let resolved = resolve(&predicate(filter), context).unwrap();
        let (reader, deleted) = (Arc::clone(&segment), Arc::default());
        let whole = TableSegment { index: 0, shard: 0, reader, deleted };
        let source = Source {
            number: 0,
            shard: 0,
            reader: Arc::clone(&segment),
            inverted: segment.inverted().unwrap(),
            functions: expanded(&resolved.expansions, &[whole], &work).unwrap(),
            work: work.part(),
        };
        let alone = prepare(&resolved.node, &source, None).unwrap();
        let alone = row_set(alone.as_ref(), source.inverted.as_ref(), segment.rows(), &work).unwrap();
        assert_eq!(found, alone, "{filter}");
        // Some of them are not taken for all.
        let ended = Work::default();
        ended.stop().time_out();
        if !alone.is_empty() {
            let all = prepare(&resolved.node, &source, None).unwrap();
            let rows = row_set(all.as_ref(), source.inverted.as_ref(), segment.rows(), &ended);
            assert!(matches!(rows, Err(Error::TimedOut)), "{filter}");
        }
    }
}

#[tokio::test]
async fn a_score_that_decides_is_no_filter() {
    let directory = tempfile::tempdir().unwrap();
    let snapshot = batch(directory.path()).await;
    let context = IndexContext { meta: &snapshot.meta, mapping: &snapshot.mapping, now_ms: 0 };
    let scored = json!({"function_score": {"query": {"match": {"message": "disk"}}, "min_score": 1}});
    let error = Filters::default().add(&predicate(&scored), context).unwrap_err();
    assert!(error.to_string().contains("is no filter"), "{error}");
}
