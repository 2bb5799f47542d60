//! Frames that the log does not have any more, read back from what is stored: rules were away, or slow, for longer than it
//! reaches back.
//!
//! Rules see them in the order that they had, large ones in pieces. What has no row any more cannot be seen: deletions, which are
//! no events, and documents that were deleted or replaced since. How many there are, and of which frames, stands in
//! `alert_error`. Indices that are gone are not counted. Rules change between two frames as ever, but none that catches up
//! joins the others before the end.
//!
//! What fails is tried again from the first frame that was not evaluated, however long that takes: rules go on once it is read.
//! Only an index that is damaged, so that it cannot be read by itself either, is passed over, and named.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use millrace_engine::Index;
use millrace_runtime::{Error, Kind, Priority, Result};
use tokio::time::sleep;
use uuid::Uuid;

use crate::commit::Pending;
use crate::frame_reader::FrameReader;
use crate::runner::{MaintenanceTimes, RunnerState, StateOwner, evaluate, run_maintenance, write_pending};

/// Wait before the first retry of a read; each further wait is twice as long, up to the bound.
const RETRY: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Damaged indices that are named.
const MAX_NAMED: usize = 20;

/// Evaluates what is stored of frames that the log does not have. Where rules are to end, they go on with it at the next start.
///
/// # Errors
/// That alerts cannot be written any more. What is damaged is told in `alert_error`, and passed over.
pub(crate) async fn read_back(
    shared: &RunnerState,
    owner: &mut StateOwner,
    frames: Range<u64>,
    done: &mut MaintenanceTimes,
) -> Result<()> {
    tracing::warn!(
        first = frames.start,
        behind = frames.end,
        "rules read frames back that the log does not have"
    );
    owner.core()?.reading_gap = true;
    let mut gap = GapFrames { frames, rows: 0, missing: 0, failures: 0, tries: 0, damaged: BTreeMap::new() };
    let read = gap.read(shared, owner, done).await;
    if !matches!(read, Ok(GapReadOutcome::Through)) {
        if let Some(core) = owner.state.as_mut() {
            core.reading_gap = false;
        }
        return read.map(drop);
    }
    let (frames, what) = (&gap.frames, gap.describe());
    let (core, now_ms) = (owner.core()?, shared.engine.clock().now_ms());
    core.pending.push_back(Pending::gap(frames.start, frames.end.saturating_sub(1), &what, now_ms));
    core.next = core.next.max(frames.end);
    core.reading_gap = false;
    let written = write_pending(shared, owner).await;
    shared.progressed.notify_waiters();
    written
}

/// Frames on their way.
struct GapFrames {
    frames: Range<u64>,
    /// Documents that were read.
    rows: usize,
    /// Operations that are not there any more.
    missing: u64,
    /// Number of failed reads of this gap; `tries` counts those since the last progress.
    failures: u64,
    tries: u32,
    /// Why indices are passed over, with their names.
    damaged: BTreeMap<Uuid, String>,
}

/// Result of reading a gap.
enum GapReadOutcome {
    Through,
    /// Rules are to end.
    Away,
    Failed(Error),
}

impl GapFrames {
    /// Reads to the end, however often that fails; never [`GapReadOutcome::Failed`].
    async fn read(
        &mut self,
        shared: &RunnerState,
        owner: &mut StateOwner,
        done: &mut MaintenanceTimes,
    ) -> Result<GapReadOutcome> {
        let mut stopping = shared.stopping.subscribe();
        loop {
            let error = match self.go_on(shared, owner, done).await? {
                GapReadOutcome::Failed(error) => error,
                went => return Ok(went),
            };
            self.failures += 1;
            // The frame that was read in part is read anew: who changes rules need not wait for that.
            if let Some(core) = owner.state.as_mut() {
                core.rules.forget_pieces();
            }
            shared.progressed.notify_waiters();
            if is_damage(&error) && self.finds_damage(shared, owner).await? {
                continue;
            }
            let Range { start, end } = &self.frames;
            shared.status_reporter.set_fault(Some(format!(
                "frames {start} to {} cannot be read back, so rules are not evaluated; it is tried again: {error}",
                end.saturating_sub(1)
            )));
            let pause = async {
                tokio::select! {
                    _ = stopping.changed() => {}
                    () = sleep(wait(self.tries)) => {}
                }
            };
            owner.lend_during(pause).await;
            self.tries = self.tries.saturating_add(1);
            run_maintenance(shared, owner, done).await?;
        }
    }

    /// Reads from the first frame that was not evaluated.
    async fn go_on(
        &mut self,
        shared: &RunnerState,
        owner: &mut StateOwner,
        done: &mut MaintenanceTimes,
    ) -> Result<GapReadOutcome> {
        if shared.is_stopping() {
            return Ok(GapReadOutcome::Away);
        }
        let (indices, frames) = self.rest(shared, owner).await?;
        let begin = async {
            let reading = shared.engine.read_back(&indices, frames).await?;
            FrameReader::begin(reading.at(Priority::Follow), i64::MIN..i64::MAX).await
        };
        let mut reading = match owner.lend_during(begin).await {
            Ok(reading) => reading,
            Err(error) => return Ok(GapReadOutcome::Failed(error)),
        };
        loop {
            if shared.is_stopping() {
                return Ok(GapReadOutcome::Away);
            }
            match owner.lend_during(reading.next()).await {
                Ok(Some(step)) => {
                    self.rows += step.rows;
                    evaluate(shared, owner, step, done).await?;
                    if std::mem::take(&mut self.tries) > 0 {
                        shared.status_reporter.set_fault(None);
                    }
                    run_maintenance(shared, owner, done).await?;
                }
                Ok(None) => break,
                Err(error) => return Ok(GapReadOutcome::Failed(error)),
            }
        }
        self.missing += reading.missing();
        Ok(GapReadOutcome::Through)
    }

    /// Returns the input that is still to be read: the indices that rules watch, but for those that are damaged, and the frames.
    async fn rest(
        &self,
        shared: &RunnerState,
        owner: &mut StateOwner,
    ) -> Result<(Vec<Arc<Index>>, Range<u64>)> {
        owner.lend_queued().await;
        let mut core = owner.take()?;
        let find = move || {
            let watched = core.matching.watched();
            Ok((core, watched))
        };
        let (core, mut indices) = shared.engine.compute().run(Priority::Follow, find).await?;
        let next = core.next;
        owner.state = Some(core);
        indices.retain(|index| !self.damaged.contains_key(&index.meta().uuid));
        Ok((indices, self.frames.start.max(next)..self.frames.end))
    }

    /// Reads each index by itself, to find those that are damaged; returns whether there are any that were not known.
    async fn finds_damage(&mut self, shared: &RunnerState, owner: &mut StateOwner) -> Result<bool> {
        let (indices, frames) = self.rest(shared, owner).await?;
        let mut found = false;
        for index in indices {
            if shared.is_stopping() {
                break;
            }
            let alone = async {
                let reading = shared.engine.read_back(std::slice::from_ref(&index), frames.clone()).await?;
                let mut reading = reading.at(Priority::Follow);
                while !shared.is_stopping() && reading.next().await?.is_some() {}
                Ok::<(), Error>(())
            };
            if let Err(error) = owner.lend_during(alone).await
                && is_damage(&error)
            {
                let meta = index.meta();
                tracing::error!(index = &*meta.name, %error, "rules pass over an index that is damaged");
                self.damaged.insert(meta.uuid, format!("[{}]: {error}", meta.name));
                found = true;
            }
        }
        Ok(found)
    }

    /// Reports the fate of the frames.
    fn describe(&self) -> String {
        let mut what = format!("{} documents were read back from what is stored, ", self.rows);
        // What was missing before a failure is not known.
        let least = if self.failures > 0 { "at least " } else { "" };
        what += &match self.missing {
            0 if self.failures == 0 => "none is missing".to_owned(),
            missing => format!(
                "{least}{missing} operations are not there any more: deletions, and what was deleted or replaced since"
            ),
        };
        if !self.damaged.is_empty() {
            let named: Vec<&str> = self.damaged.values().take(MAX_NAMED).map(String::as_str).collect();
            let more = self.damaged.len() - named.len();
            what += &format!(
                "; {} indices are damaged and were passed over: {}",
                self.damaged.len(),
                named.join(", ")
            );
            if more > 0 {
                what += &format!(", and {more} more");
            }
        }
        what
    }
}

/// Returns whether an error is one that stays.
fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), Kind::Corrupt | Kind::Internal)
}

/// Returns the wait after so many failed reads.
fn wait(tries: u32) -> Duration {
    RETRY.saturating_mul(1 << tries.min(10)).min(RETRY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_is_tried_again_and_only_what_stays_damaged_is_passed_over() {
        assert_eq!([0, 1, 2].map(wait), [RETRY, RETRY * 2, RETRY * 4]);
        assert_eq!(wait(u32::MAX), RETRY_MAX);
        let corrupt = Error::Corrupt { file: "s".into(), offset: 0, reason: "sum".into() };
        assert!(is_damage(&corrupt));
        assert!(!is_damage(&Error::Stopped("now".to_owned())));
        assert!(!is_damage(&Error::Rejected("full".to_owned())));
    }

    #[test]
    fn what_became_of_a_gap_names_what_is_damaged() {
        let mut gap =
            GapFrames { frames: 1..9, rows: 7, missing: 0, failures: 0, tries: 0, damaged: BTreeMap::new() };
        assert_eq!(gap.describe(), "7 documents were read back from what is stored, none is missing");
        gap.failures = 1;
        gap.damaged = (0..25).map(|n| (Uuid::from_u128(n), format!("[i{n}]: damaged"))).collect();
        let told = gap.describe();
        assert!(told.contains("at least 0 operations are not there any more"), "{told}");
        assert!(told.contains("25 indices are damaged") && told.ends_with("and 5 more"), "{told}");
    }
}
