//! The change feed: order, a slow reader, and what becomes of one that is too slow.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_catalog::access::Principal;
use millrace_catalog::frame::AppliedFrame;
use millrace_engine::{Config, Engine, FeedItem, FeedReader};
use millrace_runtime::SystemClock;
use serde_json::json;

use crate::documents::{index_op, write};

/// An engine with a log of `files` files of 64 KB, and an index of four shards.
async fn engine(dir: &std::path::Path, files: u64) -> Arc<Engine> {
    let config = Config { data_dir: dir.to_owned(), wal_max_bytes: files << 16, ..Config::default() };
    let engine = Engine::open(config, Arc::new(SystemClock)).await.unwrap();
    let body = json!({"settings": {"number_of_shards": 4}});
    let uuid = millrace_catalog::metadata::Uuid::new_v4();
    engine.change(&Principal::system(), |m| m.create_index("a", &body, 0, uuid)).await.unwrap();
    engine
}

/// Writes documents `from..to` one a request, in batches of requests that run at once.
async fn fill(engine: &Arc<Engine>, from: u32, to: u32) {
    let padding = "x".repeat(2_000);
    let mut tasks = Vec::new();
    for n in from..to {
        let engine = Arc::clone(engine);
        let source = format!(r#"{{"n":{n},"p":"{padding}"}}"#);
        tasks.push(tokio::spawn(async move {
            write(&engine, vec![index_op("a", Some(&n.to_string()), &source)]).await.remove(0).unwrap();
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

/// Ids of a frame's operations, after a check of the order of each shard.
fn take(frame: &AppliedFrame, next: &mut BTreeMap<u32, u64>) -> Vec<String> {
    let mut ids = Vec::new();
    for ops in &frame.parts {
        let expected = next.entry(ops.shard).or_insert(ops.first_seq_no);
        assert_eq!(*expected, ops.first_seq_no, "shard {}", ops.shard);
        *expected += ops.ops.len() as u64;
        ids.extend(ops.ops.iter().map(|op| String::from_utf8(op.id.to_vec()).unwrap()));
    }
    ids
}

async fn read(reader: &mut FeedReader, count: usize) -> Vec<String> {
    let (mut ids, mut shards) = (Vec::new(), BTreeMap::new());
    while ids.len() < count {
        let position = reader.position();
        match reader.next().await.unwrap() {
            FeedItem::Frame(frame) => {
                assert_eq!(frame.number, position);
                ids.extend(take(&frame, &mut shards));
            }
            FeedItem::Gap { from, to } => panic!("frames {from} to {to} are lost"),
        }
    }
    ids
}

fn sorted(mut ids: Vec<String>) -> Vec<u32> {
    let mut numbers: Vec<u32> = ids.drain(..).map(|id| id.parse().unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_loses_nothing_while_the_log_is_cut_and_every_reader_sees_one_order() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path(), 4).await;
    let mut slow = engine.follow(None).unwrap();
    let mut quick = engine.follow(None).unwrap();
    let index = engine.index("a").unwrap();
    let mut seen = Vec::new();
    for round in 0..4 {
        fill(&engine, round * 100, round * 100 + 100).await;
        seen.extend(read(&mut quick, 100).await);
        engine.flush(&[Arc::clone(&index)]).await.unwrap();
    }
    let caught_up = read(&mut slow, 400).await;
    assert_eq!(caught_up, seen);
    assert_eq!(sorted(caught_up), (0..400).collect::<Vec<_>>());
    // Now nobody needs the log.
    fill(&engine, 400, 450).await;
    read(&mut quick, 50).await;
    read(&mut slow, 50).await;
    engine.flush(&[index]).await.unwrap();
    let mut from_the_start = engine.follow(Some(1)).unwrap();
    assert!(matches!(from_the_start.next().await.unwrap(), FeedItem::Gap { from: 1, .. }));
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_does_not_keep_shards_from_being_flushed_for_the_size_of_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path(), 1).await;
    let mut reader = engine.follow(None).unwrap();
    let flushed = || engine.index("a").unwrap().figures().shards.iter().any(|shard| shard.flush_total > 0);
    // The log is too large from 1 MB on: 500 documents of 2 KB. Only that is a reason to flush.
    for round in 0..40 {
        fill(&engine, round * 100, round * 100 + 100).await;
        if round > 6 && flushed() {
            break;
        }
    }
    assert!(flushed(), "a reader switched the bound off");
    reader.next().await.unwrap();
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_beyond_the_bound_is_told_of_the_gap_and_goes_on_with_a_lease() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path(), 1).await;
    let mut reader = engine.follow(None).unwrap();
    let start = reader.position();
    let index = engine.index("a").unwrap();
    // The bound is eight logs of 64 KB. A reader that is not so far behind loses nothing by one that is.
    let mut near = None;
    for round in 0..4 {
        if round == 3 {
            near = Some(engine.follow(None).unwrap());
        }
        fill(&engine, round * 100, round * 100 + 100).await;
        engine.flush(&[Arc::clone(&index)]).await.unwrap();
    }
    assert_eq!(sorted(read(&mut near.unwrap(), 100).await), (300..400).collect::<Vec<_>>());
    let FeedItem::Gap { from, to } = reader.next().await.unwrap() else { panic!("there is a gap") };
    assert!(from == start && to > from);
    // What is left of the log is read in order, and kept although it is cut meanwhile.
    fill(&engine, 400, 500).await;
    engine.flush(&[Arc::clone(&index)]).await.unwrap();
    let (mut ids, mut shards) = (Vec::new(), BTreeMap::new());
    while !(400..500u32).all(|n| ids.contains(&n.to_string())) {
        match reader.next().await.unwrap() {
            FeedItem::Frame(frame) => ids.extend(take(&frame, &mut shards)),
            FeedItem::Gap { from, to } => panic!("frames {from} to {to} are lost"),
        }
    }
    engine.shutdown().await.unwrap();
}
