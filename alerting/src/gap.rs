//! Frames that the log does not have any more, read back from what is stored: rules were away, or slow, for longer than it
//! reaches back.
//!
//! Rules see them in the order that they had, large ones in pieces. What has no row any more cannot be seen: deletions, which are
//! no events, and documents that were deleted or replaced since. How many there are, and of which frames, stands in
//! `alert_error`. Indices that are gone are not counted. Rules change between two steps as between two batches.

use std::ops::Range;

use millrace_storage::{Priority, Result};
use tokio::time::Instant;

use crate::commit::Pending;
use crate::reading::{Reading, Step};
use crate::runner::{Done, Held, Shared, commit, hold, keep, write_pending};

/// Evaluates what is stored of frames that the log does not have. Where rules are to end, they go on with it at the next start.
///
/// # Errors
/// That alerts cannot be written any more. What cannot be read is told in `alert_error`, and passed over.
pub(crate) async fn read_back(shared: &Shared, frames: Range<u64>, done: &mut Done) -> Result<()> {
    tracing::warn!(
        first = frames.start,
        behind = frames.end,
        "rules read frames back that the log does not have"
    );
    let what = match begin(shared, &frames).await {
        Ok(mut reading) => {
            let mut failed = None;
            let mut rows = 0;
            loop {
                if *shared.stopping.borrow() || shared.engine.is_stopping() {
                    return Ok(());
                }
                match reading.next().await {
                    Ok(Some(step)) => {
                        rows += step.rows;
                        evaluate(shared, step, done).await?;
                        keep(shared, done).await?;
                    }
                    Ok(None) => break,
                    Err(error) => {
                        failed = Some(error);
                        break;
                    }
                }
            }
            match (failed, reading.missing()) {
                (Some(error), _) => format!("{rows} documents were read back, then that failed: {error}"),
                (None, 0) => format!("{rows} documents were read back from what is stored, none is missing"),
                (None, missing) => format!(
                    "{rows} documents were read back from what is stored, {missing} operations are not there any more: \
                     deletions, and what was deleted or replaced since"
                ),
            }
        }
        Err(error) => format!("they cannot be read back: {error}"),
    };
    let mut held = hold(shared).await?;
    if let Some(core) = held.as_mut() {
        let now_ms = shared.engine.clock().now_ms();
        core.pending.push_back(Pending::gap(frames.start, frames.end.saturating_sub(1), &what, now_ms));
        core.next = core.next.max(frames.end);
    }
    let written = write_pending(shared, held).await;
    shared.advanced.notify_waiters();
    written
}

async fn begin(shared: &Shared, frames: &Range<u64>) -> Result<Reading> {
    let mut held: Held = hold(shared).await?;
    let find = move || Ok(held.as_mut().map(|core| core.matching.watched()).unwrap_or_default());
    let indices = shared.engine.compute().run(Priority::Follow, find).await?;
    let reading = shared.engine.read_back(&indices, frames.clone()).await?;
    Reading::begin(reading, i64::MIN..i64::MAX).await
}

async fn evaluate(shared: &Shared, step: Step, done: &mut Done) -> Result<()> {
    let mut held = hold(shared).await?;
    let (now_ms, time_ms) = (shared.engine.clock().now_ms(), step.frames.last().map(|frame| frame.time_ms));
    let sources = step.frames.iter().flat_map(|frame| &frame.parts).flat_map(|part| &part.ops);
    done.bytes += sources.map(|op| op.source.as_ref().map_or(0, |source| source.len())).sum::<usize>();
    let job = move || {
        if let Some(core) = held.as_mut() {
            core.evaluate_pieces(&step.frames, |at| step.completes(at), now_ms);
        }
        Ok(held)
    };
    let began = Instant::now();
    let mut held = shared.engine.compute().run(Priority::Follow, job).await?;
    done.worked += began.elapsed();
    if let Some(core) = held.as_mut() {
        shared.told.update(core, time_ms);
    }
    let committed = commit(shared, held, done).await;
    shared.advanced.notify_waiters();
    committed
}
