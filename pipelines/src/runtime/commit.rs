//! The end of a delivery: sinks first, then one write of operations, dead letters and positions, then, when that is
//! durable, the sources are told. See `docs/internals/delivery.md`.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use millrace_catalog::frame::PositionDelta;
use millrace_catalog::operation::{DeadLetter as Replace, SourceWrite, WriteOp, WriteOutcome};
use millrace_ingest::batch::NotStored;
use millrace_ingest::output::{OrderTicket, SinkInterrupted};
use millrace_ingest::{Ack, Move};
use millrace_runtime::Instant;
use millrace_runtime::{Error, Kind};
use tokio::sync::watch;

use super::RuntimeContext;
use super::delivery::Delivery;
use super::generation::Generation;
use super::output_pipelines;
use super::sequence::{Stage, Ticket};
use super::work::{FilteredDelivery, Plan, PlannedOperation, SinkEvents};
use crate::graph::OutputNode;
use crate::graph::walk::RejectedEvent;
use crate::store::{Durable, Sender};

/// Time that one write may wait for room.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after the first refusal that passes by itself; it doubles with each further one.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(50);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Time after which sources without a position that wait are told that the store is overloaded.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// Time that a sink has to end when it is told to; then it is left alone.
const TO_END: Duration = Duration::from_secs(1);

/// Why a write was given up.
pub(super) enum GaveUp {
    NotStored(NotStored),
    /// To be tried with less.
    Divide,
    /// The graph has ended: to be tried with the one that runs.
    GraphEnded,
}

/// Result of a commit, and its begin. It is empty where there was nothing to write.
struct CommitReport {
    /// Index of the output of each operation among the outputs.
    of_outputs: Vec<Option<usize>>,
    outputs: Vec<Arc<OutputNode>>,
    durable: Option<(Durable, Instant)>,
}

/// Brings a delivery to its end. `strict` lets the next one send only when this one has been sent.
pub(super) async fn run(shared: &Arc<RuntimeContext>, work: FilteredDelivery, ticket: Ticket, strict: bool) {
    // Given back at the end, whatever that is.
    let FilteredDelivery { acks, held: _held, mut delivery } = work;
    let Ticket { sending, mut writing, mut reporting } = ticket;
    let mut sending = Some(sending);
    let is_awaited = acks.iter().any(Ack::is_awaited);
    let stored = match deliver(shared, &mut delivery, &mut sending, &mut writing, (strict, is_awaited)).await
    {
        Ok(written) => {
            // The next one may write while this one becomes durable: it cannot become that before.
            drop((sending, writing));
            written.stored(shared).await
        }
        // They are too much together, or one of them has another owner: the others shall not suffer for it.
        Err(GaveUp::Divide | GaveUp::NotStored(NotStored::Moved)) if acks.len() > 1 => {
            let batches = delivery.by_batch().into_iter().zip(acks).collect();
            return one_by_one(shared, batches, &mut writing, &mut reporting).await;
        }
        // Sources that wait send theirs again; the other batches exist here alone and are written once there is room.
        Err(GaveUp::NotStored(NotStored::Overloaded(reason))) if !acks.iter().all(Ack::is_awaited) => {
            let (awaited, others): (Vec<_>, Vec<_>) =
                delivery.by_batch().into_iter().zip(acks).partition(|(_, ack)| ack.is_awaited());
            reporting.come().await;
            for (_, ack) in awaited {
                ack.tell(Err(NotStored::Overloaded(reason.clone())));
            }
            return one_by_one(shared, others, &mut writing, &mut reporting).await;
        }
        Err(error) => Err(error),
    };
    reporting.come().await;
    let outcome = outcome(shared, stored);
    for ack in acks {
        ack.tell(outcome.clone());
    }
}

/// Brings the event of a dead letter to its end, by the graph that it went through.
///
/// # Errors
/// Why it is still, or again, a letter.
pub(super) async fn redeliver(
    shared: &Arc<RuntimeContext>,
    mut delivery: Delivery,
    ticket: Ticket,
) -> Result<(), String> {
    let Ticket { mut writing, reporting: _reporting, .. } = ticket;
    let written = attempt(shared, &mut delivery, &mut None, &mut writing, (false, true)).await;
    let stored = match written {
        Ok(written) => written.stored(shared).await,
        Err(error) => Err(error),
    };
    let rejected = delivery.rejected().next().map(|rejected| rejected.reason.clone());
    match (stored, rejected) {
        (Ok(refused), rejected) => match rejected.or(refused) {
            None => Ok(()),
            Some(reason) => Err(format!("refused again, and a new letter: {reason}")),
        },
        (Err(GaveUp::GraphEnded), _) => Err("the pipeline ended or was changed meanwhile".to_owned()),
        (Err(GaveUp::NotStored(why)), _) => Err(why.to_string()),
        (Err(GaveUp::Divide), _) => Err("it is too large for one write".to_owned()),
    }
}

/// Returns the outcome that sources get.
fn outcome<T>(shared: &RuntimeContext, stored: Result<T, GaveUp>) -> Result<(), NotStored> {
    stored.map(drop).map_err(|why| match why {
        GaveUp::NotStored(why) => why,
        GaveUp::Divide => {
            let reason = "the batch is too large for one write; let its source make smaller ones".to_owned();
            shared.note(reason.clone());
            NotStored::Overloaded(reason)
        }
        GaveUp::GraphEnded => NotStored::Ended,
    })
}

/// Writes each batch by itself, in order.
async fn one_by_one(
    shared: &Arc<RuntimeContext>,
    batches: Vec<(Delivery, Ack)>,
    writing: &mut Stage,
    reporting: &mut Stage,
) {
    for (mut delivery, ack) in batches {
        let flags = (false, ack.is_awaited());
        let stored = match deliver(shared, &mut delivery, &mut None, writing, flags).await {
            Ok(written) => written.stored(shared).await,
            Err(error) => Err(error),
        };
        reporting.come().await;
        ack.tell(outcome(shared, stored));
    }
}

/// Sends and writes a delivery by its graph; where that ends before it is through, by the one that runs then. The flags say that
/// sends are strictly ordered, and that a source waits for the outcome.
async fn deliver(
    shared: &Arc<RuntimeContext>,
    delivery: &mut Delivery,
    sending: &mut Option<Stage>,
    writing: &mut Stage,
    flags: (bool, bool),
) -> Result<CommitReport, GaveUp> {
    loop {
        match attempt(shared, delivery, sending, writing, flags).await {
            Err(GaveUp::GraphEnded) if !shared.is_cutting() => {}
            other => return other,
        }
        // What was sent at the same time has lost its order: from here on, all before is through first.
        writing.come().await;
        let id = Arc::clone(&shared.id);
        let planned = delivery.plan_anew(id, &shared.compute, shared.generations.current()).await;
        if let Err(error) = planned {
            tracing::error!(pipeline = %shared.id, %error, "events could not be taken to the new definition; their source sends them again");
            return Err(GaveUp::NotStored(NotStored::Ended));
        }
    }
}

/// Sends and writes a delivery as planned. The place of sending is left when all is sent, but stays where nothing is, so that
/// nobody behind overtakes the sends of those before.
async fn attempt(
    shared: &Arc<RuntimeContext>,
    delivery: &mut Delivery,
    sending: &mut Option<Stage>,
    writing: &mut Stage,
    (strict, is_awaited): (bool, bool),
) -> Result<CommitReport, GaveUp> {
    put_templates(shared, delivery, is_awaited).await?;
    if !delivery.plan.sends.is_empty() {
        let mut place = OrderTicket::new().0;
        if let Some(mut stage) = sending.take() {
            stage.come().await;
            place = stage.place();
        }
        let alone = strict.then(|| place.clone());
        send(shared, delivery, place).await.map_err(|SinkInterrupted| {
            match delivery.generation.has_ended() {
                true => GaveUp::GraphEnded,
                // It failed by itself.
                false => GaveUp::NotStored(NotStored::Ended),
            }
        })?;
        drop(alone);
    }
    output_pipelines::apply(shared, delivery, is_awaited).await?;
    let mut letters = Vec::new();
    let mut rejected = 0;
    for RejectedEvent { event, batch, plugin, reason } in delivery.rejected() {
        rejected += 1;
        let sender = Sender { pipeline: &shared.id, plugin, again: delivery.is_letter };
        let op = shared.store.letter(event, reason, sender);
        letters.extend(op.map(|op| PlannedOperation::of_server(op, *batch)));
    }
    let moves: Vec<PositionDelta> = delivery.moves().map(|position| delta(&shared.id, position)).collect();
    let ops = &mut delivery.plan.ops;
    let planned = ops.len();
    ops.append(&mut letters);
    let again = delivery.is_letter;
    let flags = (again, is_awaited);
    match write(shared, &delivery.plan, flags, moves, writing, &delivery.generation).await {
        Ok(durable) => {
            shared.meter.failed(rejected);
            let of_outputs = std::mem::take(&mut delivery.plan.ops).into_iter().map(|op| op.output).collect();
            Ok(CommitReport { of_outputs, outputs: std::mem::take(&mut delivery.plan.outputs), durable })
        }
        Err(error) => {
            // They are made again with what is tried next.
            delivery.plan.ops.truncate(planned);
            Err(error)
        }
    }
}

/// Has the store put the templates of outputs before the first events: these may make indices, whose pipelines the templates name. All
/// outputs wait for them, also those that send elsewhere: what is sent and not stored would be sent again.
async fn put_templates(shared: &RuntimeContext, delivery: &Delivery, is_awaited: bool) -> Result<(), GaveUp> {
    let began = Instant::now();
    let mut pause = FIRST_PAUSE;
    let generation = &delivery.generation;
    while let Err(error) = generation.put_templates(&*shared.store).await {
        if let Error::Stopped(_) = &error {
            return Err(GaveUp::NotStored(NotStored::Ended));
        }
        shared.note(format!("the store refuses the template of an output: {error}"));
        if is_awaited && delivery.moves().next().is_none() && began.elapsed() >= PATIENCE {
            tracing::error!(pipeline = %shared.id, %error, "events could not be stored; sources that wait are told so");
            return Err(GaveUp::NotStored(NotStored::Overloaded(error.to_string())));
        }
        // Another definition may have another template.
        tracing::warn!(pipeline = %shared.id, %error, pause_ms = pause.as_millis() as u64, "the store refuses a template for now");
        if !paused(pause, generation.ending()).await {
            return Err(GaveUp::GraphEnded);
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    Ok(())
}

/// Sends to all sinks at the same time. The place is left when all sinks have left it.
async fn send(
    shared: &Arc<RuntimeContext>,
    delivery: &mut Delivery,
    place: OrderTicket,
) -> Result<(), SinkInterrupted> {
    if delivery.generation.has_ended() {
        return Err(SinkInterrupted);
    }
    let generation = &delivery.generation;
    let sends: Vec<(SinkEvents, OrderTicket)> =
        std::mem::take(&mut delivery.plan.sends).into_iter().map(|send| (send, place.clone())).collect();
    drop(place);
    let sent = join_all(sends.into_iter().map(|(send, place)| async move {
        let began = Instant::now();
        let sent = tokio::select! {
            biased;
            sent = send.sink.send(&send.events, generation.ending(), place) => sent,
            () = overdue(generation) => {
                tracing::warn!(output = %send.label.id, "the output does not end though it was told to, and is left alone");
                Err(SinkInterrupted)
            }
        };
        send.label.meter.took(began.elapsed());
        if let Ok(refused) = &sent {
            send.label.meter.failed(refused.len());
            let out = send.events.len().saturating_sub(refused.len());
            send.label.meter.went_out(out);
            shared.meter.went_out(out);
        }
        (send, sent)
    }));
    let mut all = Ok(());
    for (send, sent) in sent.await {
        match sent {
            Ok(refused) => delivery.took(send, refused),
            Err(SinkInterrupted) => all = Err(SinkInterrupted),
        }
    }
    all
}

/// Ends when a graph has ended and its sinks have had the time to.
async fn overdue(generation: &Generation) {
    // The sender is the generation's own.
    let _ = generation.ending().wait_for(|ended| *ended).await;
    tokio::time::sleep(TO_END).await;
}

impl CommitReport {
    /// Waits until it is durable, and counts it. Answers why an operation was refused, if one was.
    async fn stored(self, shared: &RuntimeContext) -> Result<Option<String>, GaveUp> {
        let Some((durable, began)) = self.durable else { return Ok(None) };
        // Only a log that has stopped keeps it from becoming that.
        let results = durable.await.map_err(|_| GaveUp::NotStored(NotStored::Ended))?;
        count(shared, &self.of_outputs, &self.outputs, &results, began.elapsed());
        let refused = results.iter().find_map(|result| match result {
            Ok(_) | Err(Error::VersionConflict { .. }) => None,
            Err(error) => Some(error.to_string()),
        });
        Ok(refused)
    }
}

/// Writes operations and moves in one frame, for as long as what is in the way may pass and their graph has not ended. The
/// place among those who write has come when it is done. `again` says that they are of a dead letter.
/// A write without moves is given up after [`PATIENCE`] if `is_awaited`. `None` where there is nothing to write.
async fn write(
    shared: &Arc<RuntimeContext>,
    plan: &Plan,
    (again, is_awaited): (bool, bool),
    moves: Vec<PositionDelta>,
    writing: &mut Stage,
    generation: &Generation,
) -> Result<Option<(Durable, Instant)>, GaveUp> {
    let ops = plan.ops.as_slice();
    if ops.is_empty() && moves.is_empty() {
        writing.come().await;
        return Ok(None);
    }
    let replace = replacement(shared, plan, again);
    let began = Instant::now();
    let mut pause = FIRST_PAUSE;
    // What no output asks for is the server's own, and comes last.
    let (asked, own) = ops.split_at(ops.partition_point(|planned| planned.output.is_some()));
    debug_assert!(own.iter().all(|planned| planned.output.is_none()), "what is asked for comes first");
    let cloned = |some: &[PlannedOperation]| some.iter().map(|planned| planned.op.clone()).collect();
    loop {
        let write = SourceWrite { ops: cloned(asked), own: cloned(own), moves: moves.clone() };
        let (ready, replace) = (writing.come().boxed(), Arc::clone(&replace));
        let written = shared.store.write(&generation.writer, write, replace, WRITE_TIMEOUT, ready).await;
        let error = match written {
            Ok(durable) => return Ok(Some((durable, began))),
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
        let waited_enough = is_awaited && moves.is_empty() && began.elapsed() >= PATIENCE;
        if !passes || waited_enough {
            tracing::error!(pipeline = %shared.id, %error, "events could not be stored; sources that wait are told so");
            return Err(GaveUp::NotStored(NotStored::Overloaded(error.to_string())));
        }
        tracing::warn!(pipeline = %shared.id, %error, pause_ms = pause.as_millis() as u64, "the store refuses for now");
        if !paused(pause, generation.ending()).await {
            return Err(GaveUp::GraphEnded);
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Waits; whether it was not cut short.
pub(super) async fn paused(pause: Duration, mut ending: watch::Receiver<bool>) -> bool {
    tokio::select! {
        () = tokio::time::sleep(pause) => true,
        _ = ending.wait_for(|ending| *ending) => false,
    }
}

fn count(
    shared: &RuntimeContext,
    of_outputs: &[Option<usize>],
    outputs: &[Arc<OutputNode>],
    results: &[Result<WriteOutcome, Error>],
    took: Duration,
) {
    let mut results = results.iter();
    // Operations of one output follow each other: their meter is told once.
    for run in of_outputs.chunk_by(|one, next| one == next) {
        // What is there already needs no dead letter.
        let is_stored =
            |result: &&Result<_, Error>| matches!(result, Ok(_) | Err(Error::VersionConflict { .. }));
        let stored = results.by_ref().take(run.len()).filter(is_stored).count();
        let Some(output) = run.first().copied().flatten().and_then(|at| outputs.get(at)) else { continue };
        let refused = run.len() - stored;
        for meter in [&output.label.meter, &shared.meter] {
            meter.went_out(stored);
            meter.failed(refused);
        }
        output.label.meter.took(took);
    }
}

/// Returns the substitutes of operations that the store refuses for good.
fn replacement(shared: &Arc<RuntimeContext>, plan: &Plan, again: bool) -> Replace {
    let mut ids: Vec<Arc<str>> = Vec::new();
    for (at, output) in plan.outputs.iter().enumerate() {
        let has_operations = || plan.ops.iter().any(|planned| planned.output == Some(at));
        if !ids.contains(&output.label.id) && has_operations() {
            ids.push(Arc::clone(&output.label.id));
        }
    }
    let plugin: Arc<str> = ids.join(",").into();
    let shared = Arc::clone(shared);
    Arc::new(move |op: &WriteOp, error: &Error| {
        let sender = Sender { pipeline: &shared.id, plugin: &plugin, again };
        shared.store.letter_in_place_of(op, error, sender).into()
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
