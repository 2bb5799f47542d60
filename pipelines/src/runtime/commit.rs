//! The end of a portion: sinks first, then one write of operations, dead letters and positions, then, when that is
//! durable, the sources are told. See `docs/internals/delivery.md`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::join_all;
use millrace_ingest::batch::NotStored;
use millrace_ingest::output::{Interrupted, Place};
use millrace_ingest::{Ack, Move};
use millrace_storage::wal::PositionDelta;
use millrace_storage::{DeadLetter as Replace, Error, Kind, WriteOp};
use tokio::sync::watch;

use super::Shared;
use super::sequence::{Stage, Turn};
use super::work::{Planned, Send, Work};
use crate::graph::walk::Rejected;
use crate::store::{Durable, Sender};

/// Time that one write may wait for room.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after the first refusal that passes by itself; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Time after which sources without a position are told that the store is overloaded: somebody may wait there.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a write was given up.
enum GaveUp {
    NotStored(NotStored),
    /// To be tried with less.
    Divide,
}

/// What was written, and when that began. Nothing of it where there was nothing to write.
struct Written(Option<(Durable, Instant)>);

/// Brings a portion to its end. `strict` lets the next one send only when this one has been sent.
pub(super) async fn run(shared: &Arc<Shared>, work: Work, turn: Turn, strict: bool) {
    // Given back at the end, whatever that is.
    let Work { batches, held: _held, mut ops, mut sends, rejected, .. } = work;
    let Turn { mut sending, mut writing, mut telling } = turn;
    sends.retain(|send| !send.events.is_empty());
    let (mut refused, mut unsent) = (Vec::new(), None);
    if sends.is_empty() {
        // Kept until the place of writing has come, so that nobody behind overtakes the sends of those before.
        unsent = Some(sending);
    } else {
        sending.come().await;
        let alone = strict.then(|| sending.place());
        match send(shared, sends, sending).await {
            Ok(found) => refused = found,
            Err(Interrupted) => return tell_all(batches, &NotStored::Ended),
        }
        drop(alone);
    }
    for Rejected { event, batch, plugin, reason } in rejected.into_iter().chain(refused) {
        shared.meter.failed(1);
        let op = shared.store.letter(&event, &reason, Sender { pipeline: &shared.id, plugin: &plugin });
        ops.extend(op.map(|op| Planned { op, batch, output: None }));
    }
    let moves: Vec<Option<Move>> = batches.iter().map(|(position, _)| position.clone()).collect();
    let stored = match write(shared, &ops, &moves, &mut writing).await {
        Ok(written) => {
            // The next one may write while this one becomes durable: it cannot become that before.
            drop((unsent, writing));
            written.stored(shared, &ops).await
        }
        // They are too much together, or one of them has another owner: the others shall not suffer for it.
        Err(GaveUp::Divide | GaveUp::NotStored(NotStored::Moved)) if batches.len() > 1 => {
            return one_by_one(shared, ops, batches, &mut writing, &mut telling).await;
        }
        Err(error) => Err(error),
    };
    telling.come().await;
    match stored {
        Ok(()) => batches.into_iter().for_each(|(_, ack)| ack.tell(Ok(()))),
        Err(GaveUp::Divide) => {
            let reason = "the batch is too large for one write; let its source make smaller ones".to_owned();
            shared.note(reason.clone());
            tell_all(batches, &NotStored::Overloaded(reason));
        }
        Err(GaveUp::NotStored(why)) => tell_all(batches, &why),
    }
}

fn tell_all(batches: Vec<(Option<Move>, Ack)>, why: &NotStored) {
    for (_, ack) in batches {
        ack.tell(Err(why.clone()));
    }
}

/// Writes each batch by itself, in order.
async fn one_by_one(
    shared: &Arc<Shared>,
    ops: Vec<Planned>,
    batches: Vec<(Option<Move>, Ack)>,
    writing: &mut Stage,
    telling: &mut Stage,
) {
    let mut of_batch: Vec<Vec<Planned>> = batches.iter().map(|_| Vec::new()).collect();
    for planned in ops {
        if let Some(ops) = of_batch.get_mut(planned.batch) {
            ops.push(planned);
        }
    }
    for ((position, ack), ops) in batches.into_iter().zip(of_batch) {
        let stored = match write(shared, &ops, &[position], writing).await {
            Ok(written) => written.stored(shared, &ops).await,
            Err(error) => Err(error),
        };
        telling.come().await;
        ack.tell(match stored {
            Ok(()) => Ok(()),
            Err(GaveUp::NotStored(why)) => Err(why),
            Err(GaveUp::Divide) => {
                Err(NotStored::Overloaded("the batch is too large for one write".to_owned()))
            }
        });
    }
}

/// Sends to all sinks at the same time; returns what they refuse. The place is left when all sinks have left it.
async fn send(shared: &Arc<Shared>, sends: Vec<Send>, sending: Stage) -> Result<Vec<Rejected>, Interrupted> {
    let sends: Vec<(Send, Place)> = sends.into_iter().map(|send| (send, sending.place())).collect();
    drop(sending);
    let sent = join_all(sends.into_iter().map(|(send, place)| async move {
        let began = Instant::now();
        let refused = send.sink.send(&send.events, shared.cutting.subscribe(), place).await?;
        let meter = &send.label.meter;
        meter.took(began.elapsed());
        meter.failed(refused.len());
        let out = send.events.len().saturating_sub(refused.len());
        meter.went_out(out);
        shared.meter.went_out(out);
        let rejected = refused.into_iter().filter_map(|refused| {
            let (event, _) = send.events.get(refused.event)?;
            Some(Rejected {
                event: Arc::clone(event),
                batch: send.batches.get(refused.event).copied()?,
                plugin: Arc::clone(&send.label.id),
                reason: refused.reason,
            })
        });
        Ok(rejected.collect::<Vec<_>>())
    }));
    Ok(sent.await.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

impl Written {
    /// Waits until it is durable, and counts it.
    async fn stored(self, shared: &Shared, ops: &[Planned]) -> Result<(), GaveUp> {
        let Some((durable, began)) = self.0 else { return Ok(()) };
        // Only a log that has stopped keeps it from becoming that.
        let results = durable.await.map_err(|_| GaveUp::NotStored(NotStored::Ended))?;
        count(shared, ops, &results, began.elapsed());
        Ok(())
    }
}

/// Writes operations and moves in one frame, for as long as what is in the way may pass. The place among those who
/// write has come when it is done.
async fn write(
    shared: &Arc<Shared>,
    ops: &[Planned],
    moves: &[Option<Move>],
    writing: &mut Stage,
) -> Result<Written, GaveUp> {
    let moves: Vec<PositionDelta> =
        moves.iter().flatten().map(|position| delta(&shared.id, position)).collect();
    if ops.is_empty() && moves.is_empty() {
        writing.come().await;
        return Ok(Written(None));
    }
    let replace = replacement(shared, ops);
    let began = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        let writes = ops.iter().map(|planned| planned.op.clone()).collect();
        let turn = writing.come().boxed();
        let written = shared.store.write(writes, moves.clone(), Arc::clone(&replace), WRITE_TIMEOUT, turn);
        let error = match written.await {
            Ok(durable) => return Ok(Written(Some((durable, began)))),
            Err(error) => error,
        };
        match &error {
            Error::PositionMoved { .. } => return Err(GaveUp::NotStored(NotStored::Moved)),
            Error::TooLarge(_) => return Err(GaveUp::Divide),
            Error::Stopped(_) => return Err(GaveUp::NotStored(NotStored::Ended)),
            _ => {}
        }
        shared.note(format!("the store refuses: {error}"));
        let passes = matches!(error.kind(), Kind::Overloaded | Kind::Unavailable | Kind::Forbidden);
        let waited_enough = moves.is_empty() && began.elapsed() >= PATIENCE;
        if !passes || waited_enough {
            tracing::error!(pipeline = %shared.id, %error, "events could not be stored; their source keeps them");
            return Err(GaveUp::NotStored(NotStored::Overloaded(error.to_string())));
        }
        tracing::warn!(pipeline = %shared.id, %error, pause_ms = pause.as_millis() as u64, "the store refuses for now");
        if !paused(pause, shared.cutting.subscribe()).await {
            return Err(GaveUp::NotStored(NotStored::Ended));
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Waits; whether it was not cut short.
async fn paused(pause: Duration, mut cutting: watch::Receiver<bool>) -> bool {
    tokio::select! {
        () = tokio::time::sleep(pause) => true,
        _ = cutting.wait_for(|cutting| *cutting) => false,
    }
}

fn count(
    shared: &Shared,
    ops: &[Planned],
    results: &[Result<millrace_storage::WriteOutcome, Error>],
    took: Duration,
) {
    // Operations of one output follow each other: their meter is told once.
    let of_output = |planned: &Planned| planned.output.as_ref().map(Arc::as_ptr);
    let mut results = results.iter();
    for run in ops.chunk_by(|one, next| of_output(one) == of_output(next)) {
        // What is there already needs no dead letter.
        let is_stored =
            |result: &&Result<_, Error>| matches!(result, Ok(_) | Err(Error::VersionConflict { .. }));
        let stored = results.by_ref().take(run.len()).filter(is_stored).count();
        let Some(output) = run.first().and_then(|planned| planned.output.as_ref()) else { continue };
        let refused = run.len() - stored;
        for meter in [&output.label.meter, &shared.meter] {
            meter.went_out(stored);
            meter.failed(refused);
        }
        output.label.meter.took(took);
    }
}

/// What is stored in place of operations that the store refuses for good.
fn replacement(shared: &Arc<Shared>, ops: &[Planned]) -> Replace {
    let mut ids: Vec<Arc<str>> = Vec::new();
    for output in ops.iter().filter_map(|planned| planned.output.as_ref()) {
        if !ids.contains(&output.label.id) {
            ids.push(Arc::clone(&output.label.id));
        }
    }
    let plugin: Arc<str> = ids.join(",").into();
    let shared = Arc::clone(shared);
    Arc::new(move |op: &WriteOp, error: &Error| {
        let sender = Sender { pipeline: &shared.id, plugin: &plugin };
        shared.store.letter_in_place_of(op, error, sender)
    })
}

fn delta(pipeline: &str, position: &Move) -> PositionDelta {
    PositionDelta {
        pipeline: pipeline.to_owned(),
        source: position.source.clone(),
        partition: position.partition.clone(),
        previous: position.previous.clone(),
        new: position.new.clone(),
        owner_epoch: position.owner_epoch,
    }
}
