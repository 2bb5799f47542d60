//! Power loss and kill at every operation of the disk while a reader of the change feed moves a named lease: after the
//! restart every frame from there on is there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millrace_catalog::access::Principal;
use millrace_catalog::frame::FrameNumber;
use millrace_engine::{Engine, FeedItem, RefreshPolicy};
use millrace_runtime::{Error, Result};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::oracle::is_outage;
use super::{Machine, RunEnd, seeds};
use crate::documents::index_op;

const LEASE: &str = "rules";

/// Progress of a reader: the least acknowledged position of its lease, and the document of each frame after that.
#[derive(Default)]
struct ReaderProgress {
    taken: bool,
    /// Position of its begin, and of its last move.
    at: FrameNumber,
    moved: FrameNumber,
    acknowledged: u32,
    seen: BTreeMap<FrameNumber, Vec<String>>,
}

/// Writes, reads and moves the lease until the disk fails.
async fn follow(
    engine: &Arc<Engine>,
    steps: u32,
    rng: &mut SmallRng,
    known: &mut ReaderProgress,
) -> Result<()> {
    let lease = engine.take_lease(LEASE, None).await?;
    (known.taken, known.at) = (true, lease.position);
    known.moved = known.moved.max(lease.position);
    let mut reader = engine.follow(Some(lease.position))?;
    for _ in 0..steps {
        match rng.random_range(0..10) {
            0..6 => {
                let source = format!(r#"{{"p":"{}"}}"#, "x".repeat(rng.random_range(0..9_000)));
                let ops = vec![index_op("a", Some(&format!("d{}", known.acknowledged)), &source)];
                let wait = Duration::from_secs(30);
                let written = engine.write(&Principal::system(), ops, RefreshPolicy::None, wait).await?;
                written.into_iter().collect::<Result<Vec<_>>>()?;
                known.acknowledged += 1;
            }
            6..8 => {
                let end = engine.follow(None)?.position();
                while reader.position() < end {
                    let FeedItem::Frame(frame) = reader.next().await? else { panic!("frames are lost") };
                    let ops = frame.parts.iter().flat_map(|part| &part.ops);
                    let ids: Vec<String> = ops.map(|op| String::from_utf8(op.id.to_vec()).unwrap()).collect();
                    let before = known.seen.insert(frame.number, ids.clone());
                    assert!(before.is_none_or(|before| before == ids), "frame {} is another", frame.number);
                }
                if rng.random_bool(0.7) {
                    engine.move_lease(LEASE, reader.position())?;
                    known.moved = reader.position();
                }
            }
            _ => {
                let Ok(index) = engine.index("a") else { continue };
                engine.flush(&[index]).await?;
            }
        }
    }
    Ok(())
}

/// Every frame from the lease on is there, as it was told before, and with it every document written since.
async fn check(engine: &Arc<Engine>, known: &ReaderProgress) {
    let Some(lease) = engine.lease(LEASE) else {
        assert!(!known.taken, "an acknowledged lease is lost");
        return;
    };
    assert!(!lease.lapsed);
    if known.taken {
        assert!((known.at..=known.moved).contains(&lease.position), "{lease:?}, moved to {}", known.moved);
    }
    let end = engine.follow(None).unwrap().position();
    let mut reader = engine.follow(Some(lease.position)).unwrap();
    let mut told: Vec<String> = known.seen.range(..lease.position).flat_map(|(_, ids)| ids.clone()).collect();
    while reader.position() < end {
        let FeedItem::Frame(frame) = reader.next().await.unwrap() else { panic!("frames are lost") };
        let ops = frame.parts.iter().flat_map(|part| &part.ops);
        let ids: Vec<String> = ops.map(|op| String::from_utf8(op.id.to_vec()).unwrap()).collect();
        if let Some(before) = known.seen.get(&frame.number) {
            assert_eq!(*before, ids, "frame {} is another than it was", frame.number);
        }
        told.extend(ids);
    }
    assert!(known.seen.keys().all(|number| *number < end), "a frame that was told is lost");
    // What was under way may be there as well.
    let expected: Vec<String> = (0..told.len()).map(|n| format!("d{n}")).collect();
    assert_eq!(told, expected);
    assert!(told.len() as u32 >= known.acknowledged, "{} of {}", told.len(), known.acknowledged);
}

async fn crash_once(seed: u64, steps: u32, after: u64) -> bool {
    let end = if seed.wrapping_add(after).is_multiple_of(3) { RunEnd::Kill } else { RunEnd::PowerLoss };
    println!("seed {seed}, {after} operations, {end:?}");
    let mut machine = Machine::new(seed ^ (after << 20));
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut known = ReaderProgress::default();
    machine.disk.crash_after(after);
    if let Ok(engine) = machine.open().await
        && let Err(error) = follow(&engine, steps, &mut rng, &mut known).await
    {
        assert!(is_outage(&error) || matches!(error, Error::Internal(_)), "{error}");
    }
    if !machine.disk.crashed() {
        return false;
    }
    machine.restart(end);
    let engine = machine.open().await.unwrap();
    check(&engine, &known).await;
    drop(engine);
    machine.restart(RunEnd::PowerLoss);
    check(&machine.open().await.unwrap(), &known).await;
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_holds_every_frame_from_where_it_is_on() {
    for seed in 1..=seeds() {
        let mut after = 0;
        while crash_once(seed, 20, after).await {
            after += 1;
        }
        assert!(after > 30, "{after} operations");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_outlives_the_files_before_it() {
    for seed in 200..200 + seeds() {
        let mut step = SmallRng::seed_from_u64(seed);
        let mut after = 60;
        while crash_once(seed, 200, after).await {
            after += step.random_range(40..160);
        }
        assert!(after > 150, "{after} operations");
    }
}
