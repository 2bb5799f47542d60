//! Power loss and kill at every operation of the disk while a source is read: its position is never apart
//! from what was read up to it, dead letters included.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_catalog::access::Principal;
use millrace_catalog::frame::PositionDelta;
use millrace_engine::{DeadLetter, Engine, OnReject, SourceWrite};
use millrace_runtime::{Error, Result};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::oracle::{is_outage, searched};
use super::{Machine, RunEnd, seeds};
use crate::documents::index_op;

/// Events of the source; every seventh cannot be stored.
fn event(n: u64, padding: usize) -> String {
    let value = if n % 7 == 3 { r#""none""#.to_owned() } else { n.to_string() };
    format!(r#"{{"event":"e{n}","n":{value},"padding":"{}"}}"#, "x".repeat(padding))
}

fn letters() -> DeadLetter {
    Arc::new(|op, error| {
        let millrace_engine::Action::Index(source) = &op.action else { return OnReject::Skip };
        let Ok(event) = serde_json::from_slice::<serde_json::Value>(source) else { return OnReject::Skip };
        let letter = serde_json::json!({"event": event["event"], "reason": error.to_string()});
        OnReject::DeadLetter(index_op("letters", None, &letter.to_string()))
    })
}

/// A reader of the source: what it knows is what the store has told it.
struct Reader {
    at: u64,
    position: Option<Bytes>,
    owner_epoch: u64,
}

impl Reader {
    async fn claim(engine: &Engine) -> Result<Self> {
        let (position, owner_epoch) = engine.claim_position("p", "source", "0").await?;
        let at = position.as_ref().map_or(0, |at| std::str::from_utf8(at).unwrap().parse().unwrap());
        Ok(Self { at, position, owner_epoch })
    }

    async fn batch(&mut self, engine: &Engine, events: u64, padding: usize) -> Result<()> {
        let next = self.at + events;
        let ops = (self.at..next).map(|n| index_op("events", None, &event(n, padding))).collect();
        let new = Bytes::from(next.to_string());
        let delta = PositionDelta {
            pipeline: "p".to_owned(),
            source: "source".to_owned(),
            partition: "0".to_owned(),
            previous: self.position.clone(),
            new: new.clone(),
            owner_epoch: self.owner_epoch,
        };
        let wait = Duration::from_secs(30);
        let write = SourceWrite { ops, moves: vec![delta], ..SourceWrite::default() };
        engine.write_from_source(&Principal::system(), write, letters(), wait).await?;
        (self.at, self.position) = (next, Some(new));
        Ok(())
    }
}

/// Reads on until the disk fails.
async fn read(
    engine: &Arc<Engine>,
    steps: u32,
    padding: usize,
    rng: &mut SmallRng,
    acknowledged: &mut u64,
) -> Result<()> {
    let mut reader = Reader::claim(engine).await?;
    assert!(reader.at >= *acknowledged, "{} was acknowledged, the position is {}", acknowledged, reader.at);
    for _ in 0..steps {
        match rng.random_range(0..10) {
            0..7 => {
                let padding = rng.random_range(0..=padding);
                reader.batch(engine, rng.random_range(1..9), padding).await?;
                *acknowledged = reader.at;
            }
            7 => reader = Reader::claim(engine).await?,
            _ => {
                let names: Vec<String> =
                    engine.metadata().indices().map(|meta| meta.name.to_string()).collect();
                let indices = names.iter().map(|name| engine.index(name)).collect::<Result<Vec<_>>>()?;
                engine.flush(&indices).await?;
            }
        }
    }
    Ok(())
}

/// Every event below the position is there once, as a document or as a dead letter, and none above it.
async fn check(engine: &Arc<Engine>, acknowledged: u64) {
    let reader = Reader::claim(engine).await.unwrap();
    assert!(reader.at >= acknowledged && reader.at <= acknowledged + 8, "{} for {acknowledged}", reader.at);
    let mut seen = BTreeSet::new();
    for index in ["events", "letters"] {
        let Ok(found) = engine.index(index) else { continue };
        engine.refresh(&[found]).await.unwrap();
        for doc in searched_sources(engine, index).await {
            let event = doc["event"].as_str().unwrap()[1..].parse::<u64>().unwrap();
            assert_eq!(index == "letters", event % 7 == 3, "event {event} is in [{index}]");
            assert!(seen.insert(event), "event {event} is there twice");
        }
    }
    assert!(seen.into_iter().eq(0..reader.at), "not the events below {}", reader.at);
}

async fn searched_sources(engine: &Engine, index: &str) -> Vec<serde_json::Value> {
    searched(engine, index).await.values().map(|doc| serde_json::from_str(&doc.source).unwrap()).collect()
}

async fn crash_once(seed: u64, steps: u32, padding: usize, after: u64) -> bool {
    let end = if seed.wrapping_add(after).is_multiple_of(3) { RunEnd::Kill } else { RunEnd::PowerLoss };
    let mut machine = Machine::new(seed ^ (after << 20));
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut acknowledged = 0;
    machine.disk.crash_after(after);
    if let Ok(engine) = machine.open().await
        && let Err(error) = read(&engine, steps, padding, &mut rng, &mut acknowledged).await
    {
        assert!(is_outage(&error) || matches!(error, Error::Internal(_)), "{error}");
    }
    if !machine.disk.crashed() {
        return false;
    }
    machine.restart(end);
    let engine = machine.open().await.unwrap();
    check(&engine, acknowledged).await;
    acknowledged = Reader::claim(&engine).await.unwrap().at;
    read(&engine, 6, padding, &mut rng, &mut acknowledged).await.unwrap();
    check(&engine, acknowledged).await;
    drop(engine);
    machine.restart(RunEnd::PowerLoss);
    check(&machine.open().await.unwrap(), acknowledged).await;
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_position_is_never_apart_from_what_was_read_up_to_it() {
    for seed in 1..=seeds() {
        let mut after = 0;
        while crash_once(seed, 16, 60, after).await {
            after += 1;
        }
        assert!(after > 30, "{after} operations");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_position_outlives_the_log_that_it_was_in() {
    for seed in 200..200 + seeds() {
        let mut step = SmallRng::seed_from_u64(seed);
        let mut after = 60;
        while crash_once(seed, 120, 6_000, after).await {
            after += step.random_range(40..160);
        }
        assert!(after > 150, "{after} operations");
    }
}
