//! Ingest pipelines for the operations of a delivery: each operation goes through them once, before its frame.
//!
//! An event whose pipeline fails becomes a dead letter of its output, so that a replay takes it through the output, and the
//! pipeline, again. Operations of a graph that ended are planned, and taken through pipelines, anew.

use std::collections::HashSet;
use std::sync::Arc;

use millrace_ingest::batch::NotStored;
use millrace_runtime::Instant;

use super::RuntimeContext;
use super::commit::{FIRST_PAUSE, GaveUp, LONGEST_PAUSE, PATIENCE, paused};
use super::delivery::Delivery;
use super::work::PlannedOperation;
use crate::store::{OutputPipelines, OutputVerdict};

/// Takes the operations of a delivery through the ingest pipelines that outputs name, else through those of their indices.
/// `is_awaited` says that a source without a position waits for the outcome.
pub(super) async fn apply(
    shared: &RuntimeContext,
    delivery: &mut Delivery,
    is_awaited: bool,
) -> Result<(), GaveUp> {
    let Some(pipelines) = shared.store.output_pipelines() else { return Ok(()) };
    if delivery.plan.is_pipelined || !is_any_concerned(&**pipelines, &delivery.plan.ops) {
        return Ok(());
    }
    let has_position = delivery.moves().next().is_some();
    let (began, mut pause) = (Instant::now(), FIRST_PAUSE);
    let planned = delivery.take_unpipelined();
    let verdicts = loop {
        let requests = planned.iter().map(|planned| (planned.op.clone(), planned.pipeline.clone()));
        let reason = match pipelines.apply(requests.collect()).await {
            Ok(verdicts) => break verdicts,
            Err(reason) => reason,
        };
        shared.note(format!("ingest pipelines cannot be applied: {reason}"));
        tracing::warn!(pipeline = %shared.id, reason, "ingest pipelines cannot be applied for now");
        if is_awaited && !has_position && began.elapsed() >= PATIENCE {
            delivery.restore(planned);
            return Err(GaveUp::NotStored(NotStored::Overloaded(reason)));
        }
        if !paused(pause, delivery.generation.ending()).await {
            delivery.restore(planned);
            return Err(GaveUp::GraphEnded);
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    };
    debug_assert_eq!(verdicts.len(), planned.len(), "each operation has a verdict");
    let mut ops = Vec::with_capacity(planned.len());
    for (planned, verdict) in planned.into_iter().zip(verdicts) {
        match verdict {
            OutputVerdict::Write(op) => ops.push(PlannedOperation { op, ..planned }),
            OutputVerdict::Dropped => {}
            OutputVerdict::Failed(reason) => delivery.reject(&planned, reason),
        }
    }
    delivery.restore(ops);
    delivery.plan.is_pipelined = true;
    Ok(())
}

/// Returns whether pipelines concern an operation of some outputs. Each index is looked at once.
fn is_any_concerned(pipelines: &dyn OutputPipelines, ops: &[PlannedOperation]) -> bool {
    let (mut last, mut known): (Option<&Arc<str>>, HashSet<&str>) = (None, HashSet::new());
    ops.iter().filter(|planned| planned.output.is_some()).any(|planned| {
        let index = &planned.op.index;
        // Most operations go where the one before went.
        let is_last = last.replace(index).is_some_and(|last| Arc::ptr_eq(last, index));
        planned.pipeline.is_some() || (!is_last && known.insert(index) && pipelines.concerns(index))
    })
}
