//! Reads of a backfill: what is stored of the frames before one, and the documents that a snapshot brought.
//!
//! A restored rule first sees the documents of its snapshot in the order of the snapshot's log. Documents before the rule's position only
//! change its state. Later ones raise alerts. Then it sees the log of this store.

use std::sync::Arc;

use millrace_engine::{Choice, Index};
use millrace_query::QueryContext;
use millrace_rules::Time;
use millrace_runtime::{Error as StorageError, Instant};
use tokio::time::timeout_at;

use super::progress::{BackfillRange, RestoredHistory, remembers_earlier};
use super::{BackfillOutcome, BackfillingRule, MAX_HELD, MAX_HELD_PENDING, MAX_HELD_ROWS, interrupted};
use crate::error::{Error, Result};
use crate::frame_reader::FrameReader;
use crate::replay::can_begin;

/// Requested rows, and the work of choosing them.
struct SelectedRows {
    choice: Choice,
    work: QueryContext,
}

impl BackfillingRule<'_> {
    /// Sees the documents that a snapshot brought.
    pub(super) async fn see_restored(&mut self, restored: RestoredHistory) -> Result<BackfillOutcome> {
        let (shared, kept) = (self.shared, self.kept);
        let (definition, engine) = (&kept.rule.definition, &shared.engine);
        let (window, realert) = (definition.timeframe(), definition.realert.wait);
        let (indices, selected) = self.find(true).await?;
        let all_times = i64::MIN..i64::MAX;
        let unseen = (restored.next_frame..u64::MAX, all_times.clone());
        let unseen = engine.read_back_restored(&restored.snapshot, &indices, unseen, None).await?;
        let unseen = FrameReader::begin(unseen.at(self.priority), all_times).await?;
        let at_ms = unseen.first().unwrap_or(restored.snapshot_ms);
        drop(unseen);
        // What its window had then, and what silenced its keys.
        let remembered = BackfillRange::resumed(definition, at_ms).seen_from;
        let seen_from = remembered.min(at_ms.saturating_sub(window.ms().saturating_add(realert.ms())));
        let (_, rules) = self.evaluating.as_mut().ok_or_else(interrupted)?;
        if can_begin(seen_from, at_ms, window.ms()) {
            rules.begin(Time::from_ms(seen_from));
        }
        if let Some(last) = restored.next_frame.checked_sub(1) {
            rules.mute(last);
        }
        if remembers_earlier(definition) {
            rules.learn(restored.since);
        }
        let read = (0..u64::MAX, seen_from..i64::MAX);
        let reading = {
            let choice = selected.as_ref().map(|selected| &selected.choice);
            let _ends = selected.as_ref().map(|selected| selected.work.until_dropped());
            engine.read_back_restored(&restored.snapshot, &indices, read, choice).await?
        };
        let mut reading = FrameReader::begin(reading.at(self.priority), seen_from..i64::MAX).await?;
        self.is_restoring = true;
        if self.see_all(&mut reading).await? == BackfillOutcome::Away {
            return Ok(BackfillOutcome::Away);
        }
        self.is_restoring = false;
        let since = kept.rule.since;
        let (_, rules) = self.evaluating.as_mut().ok_or_else(interrupted)?;
        rules.rebase(since, Time::from_ms(restored.loaded_ms));
        self.next = since + 1;
        Ok(BackfillOutcome::On)
    }

    /// Sees what is stored of the frames before one, and writes what the rule raises.
    pub(super) async fn see(&mut self, until: u64, choose: bool) -> Result<BackfillOutcome> {
        if until <= self.next {
            return Ok(BackfillOutcome::On);
        }
        let (indices, choice) = self.find(choose).await?;
        let mut reading = self.open(until, &indices, choice).await?;
        if self.see_all(&mut reading).await? == BackfillOutcome::Away {
            return Ok(BackfillOutcome::Away);
        }
        if reading.end() < until {
            let reason = format!("frame {} is not there yet", reading.end());
            return Err(Error::Storage(StorageError::Internal(reason)));
        }
        self.next = until;
        Ok(BackfillOutcome::On)
    }

    /// Sees what is read, and writes what the rule raises.
    async fn see_all(&mut self, reading: &mut FrameReader) -> Result<BackfillOutcome> {
        while let Some(step) = reading.next().await? {
            self.evaluate(Some(step)).await?;
            if self.finish().await? == BackfillOutcome::Away {
                return Ok(BackfillOutcome::Away);
            }
        }
        Ok(BackfillOutcome::On)
    }

    /// Finds the indices to be read, and what of them.
    async fn find(&mut self, choose: bool) -> Result<(Vec<Arc<Index>>, Option<SelectedRows>)> {
        let (mut matching, rules) = self.evaluating.take().ok_or_else(interrupted)?;
        let work = QueryContext::default();
        let of_choice = work.clone();
        let find = move || {
            let found = match choose {
                true => {
                    let (indices, choice) = matching.stored(&of_choice);
                    (indices, Some(choice))
                }
                false => (matching.watched(), None),
            };
            Ok((matching, rules, found))
        };
        let (matching, rules, (indices, choice)) =
            self.shared.engine.compute().run(self.priority, find).await?;
        self.evaluating = Some((matching, rules));
        Ok((indices, choice.map(|choice| SelectedRows { choice, work })))
    }

    /// Begins to read. It may be dropped.
    async fn open(
        &self,
        until: u64,
        indices: &[Arc<Index>],
        chosen: Option<SelectedRows>,
    ) -> Result<FrameReader> {
        let engine = &self.shared.engine;
        let (frames, times) = (self.next..until, self.from.times());
        let reading = match chosen {
            Some(SelectedRows { choice, work }) => {
                // Who goes away stops the choosing of rows, too.
                let _ends = work.until_dropped();
                engine.read_back_chosen(indices, frames, times.clone(), &choice).await?
            }
            None => engine.read_back(indices, frames).await?,
        };
        Ok(FrameReader::begin(reading.at(self.priority), times).await?)
    }

    /// Sees the rest before a frame while the others are held; returns whether it came to its end.
    pub(super) async fn see_rest(&mut self, until: u64) -> Result<bool> {
        if until <= self.next {
            return Ok(true);
        }
        let deadline = Instant::now() + MAX_HELD;
        let (indices, _) = self.find(false).await?;
        let Ok(reading) = timeout_at(deadline, self.open(until, &indices, None)).await else {
            return Ok(false);
        };
        let (mut reading, mut rows) = (reading?, 0);
        loop {
            let Ok(step) = timeout_at(deadline, reading.next()).await else { return Ok(false) };
            let Some(step) = step? else { break };
            rows += step.rows;
            if rows > MAX_HELD_ROWS {
                return Ok(false);
            }
            self.evaluate(Some(step)).await?;
            let is_much = !self.left.is_empty() || self.pending.len() > MAX_HELD_PENDING;
            if self.paused.is_some() || is_much {
                return Ok(false);
            }
        }
        if reading.end() < until {
            return Ok(false);
        }
        self.next = until;
        Ok(true)
    }
}
