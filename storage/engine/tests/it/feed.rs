//! Frames of the feed, one reading for many readers, leases that outlive the process, and the feed read back from segments.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_catalog::access::{Caller, Origin, Principal, Privileges};
use millrace_catalog::frame::{AppliedFrame, FrameNumber, Op, PositionDelta};
use millrace_catalog::metadata::Uuid;
use millrace_engine::{
    Action, Config, DeadLetter, Engine, FEED_PIPELINE, FeedItem, FeedReader, Index, Lease, OnReject,
    RefreshPolicy, SourceWrite, Update, VersionType, WriteOp,
};
use millrace_runtime::{Error, ManualClock};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;

use crate::documents::{index_op, op, write};
use crate::identity::unpack;

const START_MS: i64 = 1_700_000_000_000;

/// An engine whose log has files of 64 KB, eight of them at most by itself.
async fn engine(dir: &Path, clock: &Arc<ManualClock>) -> Arc<Engine> {
    loop {
        let config = Config { data_dir: dir.to_owned(), wal_max_bytes: 512 << 10, ..Config::default() };
        match Engine::open(config, clock.clone()).await {
            // What is dropped ends a moment later.
            Err(Error::Locked(_)) => tokio::task::yield_now().await,
            opened => return opened.unwrap(),
        }
    }
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(START_MS))
}

async fn create(engine: &Engine, name: &str, mut settings: serde_json::Value) -> Arc<Index> {
    settings["refresh_interval"] = json!("-1");
    let body = json!({"settings": settings, "mappings": {"properties": {"k": {"type": "long"}}}});
    engine.change(&Principal::system(), |m| m.create_index(name, &body, 0, Uuid::new_v4())).await.unwrap();
    engine.index(name).unwrap()
}

async fn frame(reader: &mut FeedReader) -> Arc<AppliedFrame> {
    match reader.next().await.unwrap() {
        FeedItem::Frame(frame) => frame,
        FeedItem::Gap { from, to } => panic!("frames {from} to {to} are lost"),
    }
}

/// Frames with operations from the reader's position to that of now.
async fn read_to(reader: &mut FeedReader, end: FrameNumber) -> Vec<Arc<AppliedFrame>> {
    let mut frames = Vec::new();
    while reader.position() < end {
        frames.push(frame(reader).await);
    }
    frames.retain(|frame| !frame.parts.is_empty());
    frames
}

fn now(engine: &Engine) -> FrameNumber {
    engine.follow(None).unwrap().position()
}

/// An operation, and where it was: frame, time, origin, index, shard, sequence number, term.
type PlacedOperation = ((FrameNumber, i64, Origin, Uuid, u32, u64, u64), Op);

/// Operations that left a document, in the order of the feed.
fn placed(frames: &[Arc<AppliedFrame>]) -> Vec<PlacedOperation> {
    let mut placed = Vec::new();
    for frame in frames {
        for part in &frame.parts {
            for (seq_no, op) in (part.first_seq_no..).zip(&part.ops) {
                let place = (
                    frame.number,
                    frame.time_ms,
                    frame.origin,
                    part.index,
                    part.shard,
                    seq_no,
                    part.primary_term,
                );
                // Who gave an id is known in the log only.
                placed.push((place, Op { generated: false, ..op.clone() }));
            }
        }
    }
    placed
}

async fn read_back(
    engine: &Engine,
    indices: &[Arc<Index>],
    frames: std::ops::Range<FrameNumber>,
) -> (Vec<PlacedOperation>, BTreeMap<(Uuid, u32), u64>) {
    let mut reading = engine.read_back(indices, frames).await.unwrap();
    let mut found: Vec<Arc<AppliedFrame>> = Vec::new();
    while let Some(frame) = reading.next().await.unwrap() {
        assert!(found.last().is_none_or(|last| last.number <= frame.number), "frames are out of order");
        found.push(frame);
    }
    let missing = reading.missing().unwrap().iter().map(|m| ((m.index, m.shard), m.count)).collect();
    (placed(&found), missing)
}

fn created(frames: &[Arc<AppliedFrame>]) -> Vec<(String, u64, bool)> {
    let of = |(_, op): PlacedOperation| (String::from_utf8(op.id.to_vec()).unwrap(), op.version, op.created);
    placed(frames).into_iter().map(of).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_says_whether_it_created_its_document_live_replayed_and_read_back() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let engine = self::engine(dir.path(), &clock).await;
    let index = create(&engine, "a", json!({})).await;
    let start = now(&engine);
    let mut reader = engine.follow(None).unwrap();
    let put = |id: &str| index_op("a", Some(id), r#"{"n":1}"#);
    let external = |id: &str, version, kind| WriteOp { version: Some((version, kind)), ..put(id) };
    let update = |id: &str, n: u32, upsert| {
        let doc = Some(json!({"n": n}).into());
        op(
            "a",
            Some(id),
            Action::Update(Box::new(Update { doc, doc_as_upsert: upsert, ..Update::default() })),
        )
    };
    let delete = |id: &str| op("a", Some(id), Action::Delete);
    let requests = vec![
        vec![put("x")],
        vec![put("x")],
        vec![delete("x")],
        // Its version goes on; the document is there for the first time again.
        vec![put("x")],
        vec![put("five"), put("five"), put("five"), put("five"), put("five")],
        vec![external("e", 10, VersionType::External)],
        vec![external("e", 11, VersionType::External)],
        // A document of version 1 that did not create any.
        vec![external("one", 1, VersionType::External)],
        vec![external("one", 1, VersionType::ExternalGte)],
        vec![update("u", 1, true)],
        vec![update("u", 2, true)],
        vec![put("there and gone"), delete("there and gone"), put("there and gone")],
    ];
    for request in requests {
        assert!(write(&engine, request).await.iter().all(Result::is_ok));
    }
    let expected = [
        ("x", 1, true),
        ("x", 2, false),
        ("x", 3, false),
        ("x", 4, true),
        ("five", 1, true),
        ("five", 2, false),
        ("five", 3, false),
        ("five", 4, false),
        ("five", 5, false),
        ("e", 10, true),
        ("e", 11, false),
        ("one", 1, true),
        ("one", 1, false),
        ("u", 1, true),
        ("u", 2, false),
        ("there and gone", 1, true),
        ("there and gone", 2, false),
        ("there and gone", 3, true),
    ];
    let expected: Vec<_> = expected.map(|(id, version, created)| (id.to_owned(), version, created)).into();
    let end = now(&engine);
    let live = read_to(&mut reader, end).await;
    assert_eq!(created(&live), expected);
    drop(reader);
    // Decoded, which is not what writers have handed over.
    let decoded = read_to(&mut engine.follow(Some(start)).unwrap(), end).await;
    assert_eq!(decoded, live);
    // The last operation of each document, from the memtable, from the log replayed, and from segments.
    let left = [("x", 4), ("five", 5), ("e", 11), ("one", 1), ("u", 2), ("there and gone", 3)];
    let is_left = |(place, op): &PlacedOperation| {
        let last = |other: &&PlacedOperation| other.1.id == op.id && other.0.5 > place.5;
        left.contains(&(std::str::from_utf8(&op.id).unwrap(), op.version))
            && !placed(&live).iter().any(|o| last(&o))
    };
    let rows: Vec<PlacedOperation> = placed(&live).into_iter().filter(is_left).collect();
    assert_eq!(rows.len(), left.len());
    let missing = BTreeMap::from([((index.meta().uuid, 0), 18 - 6)]);
    let same = async |engine: &Engine, what: &str| {
        let index = engine.index("a").unwrap();
        let found = read_back(engine, &[index], start..end).await;
        assert_eq!(found, (rows.clone(), missing.clone()), "{what}");
    };
    same(&engine, "the memtable").await;
    drop((engine, index));
    let engine = self::engine(dir.path(), &clock).await;
    same(&engine, "a replayed memtable").await;
    let index = engine.index("a").unwrap();
    engine.flush(&[Arc::clone(&index)]).await.unwrap();
    same(&engine, "a segment").await;
    write(&engine, vec![put("more")]).await;
    engine.flush(&[Arc::clone(&index)]).await.unwrap();
    engine.force_merge(&[index], 1).await.unwrap();
    same(&engine, "a compacted segment").await;
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_says_when_and_whose_it_is_and_time_never_goes_back() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let engine = self::engine(dir.path(), &clock).await;
    create(&engine, "a", json!({})).await;
    let mut reader = engine.follow(None).unwrap();
    let start = reader.position();
    let as_caller = |caller| Principal::new(caller, Vec::new(), Arc::new(Privileges::unrestricted()));
    let writers = [
        (as_caller(Caller::User("ann".into())), Origin::User),
        (as_caller(Caller::Pipeline("p".into())), Origin::Pipeline),
        (as_caller(Caller::User("ann".into())).restoring(), Origin::Restore),
        (as_caller(Caller::Rule("r".into())), Origin::Rule),
        (Principal::system(), Origin::System),
    ];
    for (at, (writer, _)) in writers.iter().enumerate() {
        // The clock is set back on the way.
        clock.advance_ms(if at == 2 { -60_000 } else { 1_000 });
        let ops = vec![index_op("a", None, r#"{"k":1}"#)];
        engine
            .write(writer, ops, RefreshPolicy::None, Duration::from_secs(5))
            .await
            .unwrap()
            .remove(0)
            .unwrap();
    }
    let end = now(&engine);
    let frames = read_to(&mut reader, end).await;
    let origins: Vec<Origin> = frames.iter().map(|frame| frame.origin).collect();
    assert_eq!(origins, writers.map(|(_, origin)| origin));
    let times: Vec<i64> = frames.iter().map(|frame| frame.time_ms - START_MS).collect();
    assert_eq!(times, [1_000, 2_000, 2_000, 2_000, 2_000]);
    drop((reader, engine));
    // Nor does it after a restart.
    let engine = self::engine(dir.path(), &clock).await;
    write(&engine, vec![index_op("a", None, r#"{"k":2}"#)]).await;
    let frames = read_to(&mut engine.follow(Some(start)).unwrap(), now(&engine)).await;
    assert!(frames.is_sorted_by_key(|frame| frame.time_ms));
    assert_eq!(frames.last().unwrap().time_ms, START_MS + 2_000);
    engine.shutdown().await.unwrap();
}

/// Writes, refreshes, flushes and compacts two indices at random; `ids` are those that are written more than once.
async fn churn(engine: &Arc<Engine>, rng: &mut SmallRng, steps: u32, ids: Option<u32>) {
    let mut next = 0u32;
    for _ in 0..steps {
        let indices = ["a", "b"].map(|name| engine.index(name).unwrap());
        match rng.random_range(0..20) {
            0..14 => {
                let ops = (0..rng.random_range(1..30)).map(|_| {
                    next += 1;
                    let index = ["a", "b"][rng.random_range(0..2)];
                    let source = format!(
                        r#"{{"k":{},"n":{next},"p":"{}"}}"#,
                        rng.random_range(0..9),
                        "x".repeat(rng.random_range(0..600))
                    );
                    let id = match ids {
                        Some(ids) => Some(format!("id-{}", rng.random_range(0..ids))),
                        None => rng.random_bool(0.5).then(|| format!("id-{next}")),
                    };
                    match ids.is_some() && rng.random_bool(0.1) {
                        true => op(index, id.as_deref(), Action::Delete),
                        false => WriteOp {
                            routing: rng
                                .random_bool(0.1)
                                .then(|| format!("r{}", next % 3))
                                .filter(|_| ids.is_none()),
                            ..index_op(index, id.as_deref(), &source)
                        },
                    }
                });
                let ops = ops.collect();
                assert!(write(engine, ops).await.iter().all(Result::is_ok));
            }
            14..16 => engine.refresh(&indices).await.unwrap(),
            16..19 => engine.flush(&indices).await.unwrap(),
            _ => engine.force_merge(&indices, rng.random_range(1..3)).await.unwrap(),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_only_added_reads_back_as_the_feed_told_it_wherever_the_log_is_cut() {
    for seed in 0..3 {
        let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
        let engine = self::engine(dir.path(), &clock).await;
        let sort = json!({"number_of_shards": 2, "index.sort.field": "k", "index.sort.order": "desc"});
        create(&engine, "a", json!({"number_of_shards": 3})).await;
        create(&engine, "b", if seed == 0 { json!({}) } else { sort }).await;
        let indices = ["a", "b"].map(|name| engine.index(name).unwrap());
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut reader = engine.follow(None).unwrap();
        let start = reader.position();
        let mut told = Vec::new();
        for _ in 0..6 {
            churn_on(&engine, &mut rng, &clock, 30).await;
            told.extend(placed(&read_to(&mut reader, now(&engine)).await));
            let end = reader.position();
            let (found, missing) = read_back(&engine, &indices, start..end).await;
            assert!(missing.is_empty(), "{missing:?}");
            assert_eq!(found.len(), told.len());
            assert!(found == told, "seed {seed}: not what was told");
            // Also in parts.
            let middle = rng.random_range(start..=end);
            let (mut parts, none) = read_back(&engine, &indices, start..middle).await;
            let (rest, nothing) = read_back(&engine, &indices, middle..end).await;
            assert!(none.is_empty() && nothing.is_empty(), "{none:?} {nothing:?}");
            parts.extend(rest);
            assert!(parts == told, "seed {seed}: the parts do not make the whole");
        }
        // The log has been cut on the way.
        drop(reader);
        engine.flush(&indices).await.unwrap();
        let first = engine.follow(Some(1)).unwrap().next().await.unwrap();
        assert!(matches!(first, FeedItem::Gap { from: 1, .. }), "{first:?}");
        engine.shutdown().await.unwrap();
    }
}

/// Goes on with documents that nobody has written before.
async fn churn_on(engine: &Arc<Engine>, rng: &mut SmallRng, clock: &ManualClock, steps: u32) {
    clock.advance_ms(1_000);
    for _ in 0..steps {
        let indices = ["a", "b"].map(|name| engine.index(name).unwrap());
        match rng.random_range(0..20) {
            0..14 => {
                let ops = (0..rng.random_range(1..30)).map(|_| {
                    let index = ["a", "b"][rng.random_range(0..2)];
                    let padding = "x".repeat(rng.random_range(0..600));
                    let source = format!(r#"{{"k":{},"p":"{padding}"}}"#, rng.random_range(0..9));
                    let id = rng.random_bool(0.5).then(|| format!("id-{:x}", rng.random::<u64>()));
                    let routing = rng.random_bool(0.1).then(|| format!("r{}", rng.random_range(0..3)));
                    WriteOp { routing, ..index_op(index, id.as_deref(), &source) }
                });
                let ops = ops.collect();
                assert!(write(engine, ops).await.iter().all(Result::is_ok));
            }
            14..16 => engine.refresh(&indices).await.unwrap(),
            16..19 => engine.flush(&indices).await.unwrap(),
            _ => engine.force_merge(&indices, rng.random_range(1..3)).await.unwrap(),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_deleted_or_replaced_is_counted_when_it_is_read_back() {
    for seed in 10..13 {
        let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
        let engine = self::engine(dir.path(), &clock).await;
        create(&engine, "a", json!({"number_of_shards": 2})).await;
        create(&engine, "b", json!({"index.sort.field": "k"})).await;
        let indices = ["a", "b"].map(|name| engine.index(name).unwrap());
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut reader = engine.follow(None).unwrap();
        let start = reader.position();
        churn(&engine, &mut rng, 80, Some(40)).await;
        let end = now(&engine);
        let told = placed(&read_to(&mut reader, end).await);
        // The last operation of a document, if it is none that deletes it, is all that is left.
        let last: BTreeMap<_, u64> = told.iter().map(|(p, op)| ((p.3, p.4, op.id.clone()), p.5)).collect();
        let left: Vec<PlacedOperation> = told
            .iter()
            .filter(|(p, op)| op.source.is_some() && last[&(p.3, p.4, op.id.clone())] == p.5)
            .cloned()
            .collect();
        let mut gone: BTreeMap<(Uuid, u32), u64> = BTreeMap::new();
        told.iter().for_each(|(p, _)| *gone.entry((p.3, p.4)).or_default() += 1);
        left.iter().for_each(|(p, _)| *gone.entry((p.3, p.4)).or_default() -= 1);
        let (found, missing) = read_back(&engine, &indices, start..end).await;
        assert!(found == left, "seed {seed}: not what is left");
        assert_eq!(missing, gone, "seed {seed}");
        // In parts, nothing is counted twice, so long as no compaction between them takes rows that say of which frame they were.
        let middle = rng.random_range(start..=end);
        let numbers =
            |index: &Arc<Index>| index.segments().concat().iter().map(|s| s.number).collect::<Vec<_>>();
        let (mut parts, one, rest, other) = loop {
            let stored = indices.each_ref().map(numbers);
            let (parts, one) = read_back(&engine, &indices, start..middle).await;
            let (rest, other) = read_back(&engine, &indices, middle..end).await;
            if stored == indices.each_ref().map(numbers) {
                break (parts, one, rest, other);
            }
        };
        parts.extend(rest);
        assert!(parts == left);
        let total = |m: &BTreeMap<_, u64>| m.values().sum::<u64>();
        assert_eq!(total(&one) + total(&other), total(&gone), "seed {seed}");
        engine.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_back_ends_before_what_comes_and_with_who_reads() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let engine = self::engine(dir.path(), &clock).await;
    let index = create(&engine, "a", json!({})).await;
    let start = now(&engine);
    // One frame of several pieces.
    let large: Vec<WriteOp> = (0..3_000).map(|n| index_op("a", None, &format!(r#"{{"k":{n}}}"#))).collect();
    write(&engine, large).await;
    let end = now(&engine);
    let indices = [index];
    let mut reading = engine.read_back(&indices, start..u64::MAX).await.unwrap();
    assert_eq!(reading.end(), end);
    write(&engine, vec![index_op("a", None, r#"{"k":7}"#)]).await;
    let (mut pieces, mut rows) = (0, 0);
    while let Some(frame) = reading.next().await.unwrap() {
        assert!(frame.number < end && reading.missing().is_none());
        pieces += 1;
        rows += frame.parts.iter().map(|part| part.ops.len()).sum::<usize>();
    }
    assert!(pieces > 1, "a large frame is read in one piece");
    assert_eq!((rows, reading.missing()), (3_000, Some(&[][..])));
    // A call that is dropped under way ends it, rather than lose rows.
    let mut reading = engine.read_back(&indices, start..end).await.unwrap();
    let dropped = futures::FutureExt::now_or_never(reading.next());
    if dropped.is_none() {
        assert!(matches!(reading.next().await, Err(Error::Internal(_))));
    }
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_that_keep_up_share_a_bounded_number_of_frames_and_a_slow_one_is_told_of_its_gap() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let engine = self::engine(dir.path(), &clock).await;
    let index = create(&engine, "a", json!({})).await;
    assert_eq!(engine.feed_held(), (0, 0));
    let (mut slow, mut quick) = (engine.follow(None).unwrap(), engine.follow(None).unwrap());
    let start = slow.position();
    let padding = "x".repeat(9_000);
    let mut told = Vec::new();
    for n in 0..700 {
        let source = format!(r#"{{"k":{n},"p":"{padding}"}}"#);
        write(&engine, vec![index_op("a", Some(&n.to_string()), &source)]).await;
        told.extend(placed(&read_to(&mut quick, now(&engine)).await));
        if n % 50 == 0 {
            engine.flush(&[Arc::clone(&index)]).await.unwrap();
        }
    }
    engine.flush(&[Arc::clone(&index)]).await.unwrap();
    assert_eq!(told.len(), 700);
    // An eighth of the log.
    let (frames, bytes) = engine.feed_held();
    assert!(frames > 0 && bytes <= 64 << 10, "{frames} frames, {bytes} bytes");
    // Two readers at one place get the same frames: nothing is decoded twice.
    let mut one = engine.follow(Some(quick.position() - 1)).unwrap();
    let mut other = engine.follow(Some(quick.position() - 1)).unwrap();
    assert!(Arc::ptr_eq(&frame(&mut one).await, &frame(&mut other).await));
    drop((one, other, quick));
    // The slow one fell more than eight logs of 512 KB behind: that is told, and the rest is there.
    let FeedItem::Gap { from, to } = slow.next().await.unwrap() else { panic!("there is a gap") };
    assert!(from == start && to > start);
    let (lost, missing) = read_back(&engine, &[index], from..to).await;
    let rest = placed(&read_to(&mut slow, now(&engine)).await);
    assert!([lost, rest].concat() == told && missing.is_empty());
    drop(slow);
    assert_eq!(engine.feed_held(), (0, 0), "frames are kept for nobody");
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_and_the_position_behind_what_raised_them_are_one_frame_of_a_rule() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let engine = self::engine(dir.path(), &clock).await;
    create(&engine, "a", json!({})).await;
    let mut reader = engine.follow(None).unwrap();
    write(&engine, vec![index_op("a", None, r#"{"k":1}"#)]).await;
    let event = loop {
        let frame = frame(&mut reader).await;
        if !frame.parts.is_empty() {
            break frame.number;
        }
    };
    let (previous, owner_epoch) = engine.claim_position(FEED_PIPELINE, "rules", "").await.unwrap();
    assert_eq!(previous, None);
    let position = Bytes::copy_from_slice(&(event + 1).to_le_bytes());
    let moves = || {
        vec![PositionDelta {
            pipeline: FEED_PIPELINE.to_owned(),
            source: "rules".to_owned(),
            partition: String::new(),
            previous: previous.clone(),
            new: position.clone(),
            owner_epoch,
        }]
    };
    let commit = async |caller: Caller| {
        let ops = vec![index_op("alert", Some("alert-1"), r#"{"rule":"r"}"#)];
        let principal = Principal::new(caller, Vec::new(), Arc::new(Privileges::unrestricted()));
        let write = SourceWrite { ops, moves: moves(), ..SourceWrite::default() };
        let instead: DeadLetter = Arc::new(|_, _| OnReject::Abort);
        engine.write_from_source(&principal, write, instead, Duration::from_secs(5)).await
    };
    let refused = commit(Caller::Pipeline(FEED_PIPELINE.into())).await.unwrap_err();
    assert!(matches!(refused, Error::IllegalArgument(_)), "{refused}");
    commit(Caller::Rule("r".into())).await.unwrap();
    // Another runner that has not seen this comes too late.
    assert!(matches!(commit(Caller::Rule("r".into())).await, Err(Error::PositionMoved { .. })));
    let alerts = read_to(&mut reader, now(&engine)).await;
    assert_eq!(alerts.iter().map(|frame| frame.origin).collect::<Vec<_>>(), [Origin::Rule]);
    drop((reader, engine));
    let engine = self::engine(dir.path(), &clock).await;
    assert_eq!(engine.claim_position(FEED_PIPELINE, "rules", "").await.unwrap().0, Some(position));
    let index = engine.index("alert").unwrap();
    assert_eq!(read_back(&engine, &[index], 1..u64::MAX).await.0, placed(&alerts));
    engine.shutdown().await.unwrap();
}

fn log_bytes(dir: &Path) -> u64 {
    let files = std::fs::read_dir(dir.join("wal")).unwrap();
    files.filter_map(|file| file.unwrap().metadata().ok()).map(|metadata| metadata.len()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_keeps_up_costs_the_log_nothing() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let bound = 4 << 20;
    let config = Config { data_dir: dir.path().to_owned(), wal_max_bytes: bound, ..Config::default() };
    let engine = Engine::open(config, clock.clone()).await.unwrap();
    create(&engine, "a", json!({})).await;
    let mut reader = engine.follow(None).unwrap();
    engine.take_lease("rules", Some(reader.position())).await.unwrap();
    let padding = "x".repeat(50_000);
    for round in 0..24 {
        for n in 0..20 {
            let source = format!(r#"{{"k":{n},"p":"{padding}{round}"}}"#);
            write(&engine, vec![index_op("a", None, &source)]).await;
        }
        read_to(&mut reader, now(&engine)).await;
        engine.move_lease("rules", reader.position()).unwrap();
        // Nobody but the upkeep flushes and cuts.
        let shrinks = async {
            while log_bytes(dir.path()) > bound + bound / 4 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), shrinks).await.expect("the lease holds the log");
    }
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_lease_holds_the_log_over_restarts_until_it_is_moved_or_given_up() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let engine = self::engine(dir.path(), &clock).await;
    let index = create(&engine, "a", json!({})).await;
    let held = engine.take_lease("rules", None).await.unwrap();
    assert_eq!(engine.take_lease("rules", Some(1)).await.unwrap(), held, "it is taken up where it is");
    let start = held.position;
    let mut told = Vec::new();
    let mut reader = engine.follow(Some(start)).unwrap();
    let fill = async |engine: &Arc<Engine>, told: &mut Vec<PlacedOperation>, from: u32| {
        let mut reader = engine.follow(None).unwrap();
        for n in from..from + 40 {
            let source = format!(r#"{{"k":{n},"p":"{}"}}"#, "x".repeat(4_000));
            write(engine, vec![index_op("a", Some(&n.to_string()), &source)]).await;
        }
        told.extend(placed(&read_to(&mut reader, now(engine)).await));
        engine.flush(&[engine.index("a").unwrap()]).await.unwrap();
    };
    fill(&engine, &mut told, 0).await;
    assert!(placed(&read_to(&mut reader, now(&engine)).await) == told);
    drop((reader, index));
    engine.shutdown().await.unwrap();
    drop(engine);
    for round in 1..4 {
        let engine = self::engine(dir.path(), &clock).await;
        assert_eq!(engine.lease("rules"), Some(Lease { position: start, lapsed: false }));
        fill(&engine, &mut told, round * 40).await;
        assert!(placed(&read_to(&mut engine.follow(Some(start)).unwrap(), now(&engine)).await) == told);
        // Dropped, not shut down, every other time.
        if round % 2 == 0 {
            engine.shutdown().await.unwrap();
        }
    }
    let engine = self::engine(dir.path(), &clock).await;
    let middle = told[80].0.0;
    engine.move_lease("rules", middle).unwrap();
    engine.move_lease("rules", start).unwrap();
    assert_eq!(engine.lease("rules").unwrap().position, middle, "it does not go back");
    engine.shutdown().await.unwrap();
    drop(engine);
    let engine = self::engine(dir.path(), &clock).await;
    assert_eq!(engine.lease("rules"), Some(Lease { position: middle, lapsed: false }));
    let index = engine.index("a").unwrap();
    engine.flush(&[Arc::clone(&index)]).await.unwrap();
    assert!(matches!(engine.follow(Some(start)).unwrap().next().await.unwrap(), FeedItem::Gap { .. }));
    assert!(placed(&read_to(&mut engine.follow(Some(middle)).unwrap(), now(&engine)).await) == told[80..]);
    engine.release_lease("rules").await.unwrap();
    assert_eq!(engine.lease("rules"), None);
    assert!(matches!(engine.move_lease("rules", middle), Err(Error::IllegalArgument(_))));
    write(&engine, vec![index_op("a", None, r#"{"k":7}"#)]).await;
    engine.flush(&[index]).await.unwrap();
    assert!(matches!(engine.follow(Some(middle)).unwrap().next().await.unwrap(), FeedItem::Gap { .. }));
    engine.shutdown().await.unwrap();
    drop(engine);
    assert_eq!(self::engine(dir.path(), &clock).await.lease("rules"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_lease_lapses_for_size_and_for_age_and_the_gap_is_told() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let engine = self::engine(dir.path(), &clock).await;
    let index = create(&engine, "a", json!({})).await;
    let fill = async |bytes: usize| {
        for _ in 0..bytes / 50_000 {
            let source = format!(r#"{{"k":1,"p":"{}"}}"#, "x".repeat(50_000));
            write(&engine, vec![index_op("a", None, &source)]).await;
        }
        engine.flush(&[Arc::clone(&index)]).await.unwrap();
    };
    let gap = async |from| match engine.follow(Some(from)).unwrap().next().await.unwrap() {
        FeedItem::Gap { from, to } => Some((from, to)),
        FeedItem::Frame(_) => None,
    };
    let old = engine.take_lease("size", None).await.unwrap().position;
    // Eight logs of 512 KB are 4 MB.
    fill(3 << 20).await;
    assert_eq!((engine.lease("size").unwrap().lapsed, gap(old).await), (false, None));
    fill(3 << 20).await;
    fill(1 << 20).await;
    assert!(engine.lease("size").unwrap().lapsed);
    let (_, to) = gap(old).await.expect("frames are gone");
    engine.move_lease("size", to).unwrap();
    assert_eq!(engine.lease("size"), Some(Lease { position: to, lapsed: false }));

    let day_ms = 24 * 60 * 60 * 1000;
    engine.take_lease("age", Some(to)).await.unwrap();
    for _ in 0..8 {
        clock.advance_ms(day_ms);
        // One that is moved, if only to where it is, does not grow old.
        engine.move_lease("size", to).unwrap();
    }
    fill(200 << 10).await;
    assert!(engine.lease("age").unwrap().lapsed);
    assert_eq!((engine.lease("size").unwrap().lapsed, gap(to).await), (false, None));
    clock.advance_ms(8 * day_ms);
    fill(200 << 10).await;
    assert!(engine.lease("size").unwrap().lapsed && gap(to).await.is_some());
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_directory_of_the_version_before_has_defaults_for_what_it_does_not_say() {
    let unpacked = tempfile::tempdir().unwrap();
    let dir = unpack("version-0.1-before-feed.tar.gz", unpacked.path());
    let clock = clock();
    let engine = self::engine(&dir, &clock).await;
    let index = engine.index("a").unwrap();
    let end = now(&engine);
    // Id, version, number of the document, whether it counts as created: for the version before only version 1 does.
    let read = async |engine: &Engine| {
        let index = engine.index("a").unwrap();
        let (found, _) = read_back(engine, &[index], 1..end).await;
        let mut rows: Vec<(String, u64, u64, bool)> = Vec::new();
        for (place, op) in found {
            assert_eq!((place.1, place.2), (0, Origin::Unknown));
            let source: serde_json::Value = serde_json::from_slice(&op.source.unwrap()).unwrap();
            let id = String::from_utf8(op.id.to_vec()).unwrap();
            rows.push((id, op.version, source["n"].as_u64().unwrap(), op.created));
        }
        rows.sort_unstable();
        rows
    };
    let mut expected: Vec<(String, u64, u64, bool)> =
        (4..12).map(|n| (format!("d{n}"), 1, n, true)).collect();
    expected.extend([
        ("d0".into(), 2, 100, false),
        ("d2".into(), 2, 102, false),
        ("d3".into(), 3, 103, false),
    ]);
    expected.sort_unstable();
    assert_eq!(read(&engine).await, expected);
    // The log of the version before: frames without time and origin.
    let mut reader = engine.follow(Some(1)).unwrap();
    let FeedItem::Gap { .. } = reader.next().await.unwrap() else { panic!("its first files were cut") };
    let before = read_to(&mut reader, end).await;
    assert!(before.iter().all(|frame| (frame.time_ms, frame.origin) == (0, Origin::Unknown)));
    let ids = [("d10", 1, true), ("d11", 1, true), ("d2", 2, false), ("d3", 2, false), ("d3", 3, false)];
    drop(reader);
    let mut found = created(&before);
    found.sort_unstable();
    assert_eq!(found, ids.map(|(id, version, created)| (id.to_owned(), version, created)));
    assert_eq!(engine.positions("p", "s"), [("0".to_owned(), "7".into())]);
    // What comes now says all, also where it is merged with what was there.
    write(&engine, vec![index_op("a", Some("d5"), r#"{"n":105}"#), index_op("a", Some("new"), r#"{"n":1}"#)])
        .await;
    let after = now(&engine);
    engine.flush(&[Arc::clone(&index)]).await.unwrap();
    engine.force_merge(&[Arc::clone(&index)], 1).await.unwrap();
    expected.retain(|(id, ..)| id != "d5");
    for _ in 0..2 {
        assert_eq!(read(&engine).await, expected);
    }
    let (mut new, _) = read_back(&engine, &[index], end..after).await;
    new.sort_by(|a, b| a.1.id.cmp(&b.1.id));
    let of = |(place, op): &PlacedOperation| (place.1, place.2, op.version, op.created);
    let now_ms = START_MS;
    assert_eq!(
        new.iter().map(of).collect::<Vec<_>>(),
        [(now_ms, Origin::System, 2, false), (now_ms, Origin::System, 1, true)]
    );
    engine.take_lease("rules", None).await.unwrap();
    engine.shutdown().await.unwrap();
    drop(engine);
    let engine = self::engine(&dir, &clock).await;
    assert_eq!(read(&engine).await, expected);
    assert!(engine.lease("rules").is_some());
    engine.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_may_have_the_names_of_columns_that_every_segment_has() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let engine = self::engine(dir.path(), &clock).await;
    let index = create(&engine, "a", json!({})).await;
    let start = now(&engine);
    let mut reader = engine.follow(None).unwrap();
    for round in 0..3 {
        let source =
            format!(r#"{{"_frame":"x{round}","_frame_time":"y","_frame_origin":[1,2],"_created":"z"}}"#);
        write(&engine, vec![index_op("a", None, &source)]).await.remove(0).unwrap();
        engine.flush(&[Arc::clone(&index)]).await.unwrap();
    }
    engine.force_merge(&[Arc::clone(&index)], 1).await.unwrap();
    let end = now(&engine);
    let told = placed(&read_to(&mut reader, end).await);
    assert!(read_back(&engine, &[index], start..end).await.0 == told);
    engine.shutdown().await.unwrap();
}
