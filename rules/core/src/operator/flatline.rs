//! `flatline`: fewer than `threshold` events of a key within `timeframe`.
//!
//! Windows slide by a tenth of the timeframe. Without `query_key` it is looked at from when the rule began; a key, from its first
//! event until it did not come for 30 days, or with `forget_keys` until it was told of. While it stays flat it is told of once a
//! timeframe.
//!
//! State: of a key how many events each pane has.

use super::panes::{Count, Grid, Track};
use super::window_operator::{Sample, Verdict, WakeSchedule, WindowJudge};
use crate::mutation::{Mutation, mutated};

#[derive(Debug)]
pub(super) struct Flatline {
    pub(super) threshold: u64,
    pub(super) forget_keys: bool,
}

impl Flatline {
    fn is_flat(&self, events: u64) -> bool {
        if mutated(Mutation::FlatlineReached) { events <= self.threshold } else { events < self.threshold }
    }
}

impl WindowJudge for Flatline {
    type Pane = Count;
    type Value = ();

    fn wakes(&self) -> WakeSchedule {
        WakeSchedule::Always
    }

    fn read(&self, _: &Sample<'_>) -> Option<()> {
        Some(())
    }

    fn add(&self, pane: &mut Count, (): &()) {
        pane.0 = pane.0.saturating_add(1);
    }

    fn judge(&self, track: &Track<Count>, grid: &Grid, end: i64) -> Option<Verdict> {
        let events = events(track, end.saturating_sub(grid.span), end);
        Some(Verdict { holds: self.is_flat(events), count: events as usize, added: Vec::new() })
    }

    fn next(&self, track: &Track<Count>, grid: &Grid, from: i64) -> i64 {
        let open = track.is_open();
        let mut within = events(track, from.saturating_sub(grid.span), from);
        // Behind the latest event a window becomes empty, and may be told of once those that were are over.
        let last = track.latest.max(from).saturating_add(2 * grid.per);
        for end in from..last {
            let matters = if self.is_flat(within) { track.may_fire(end, grid.per) } else { open };
            if matters {
                return end;
            }
            within += events(track, end, end + 1);
            within = within.saturating_sub(events(track, end - grid.span, end - grid.span + 1));
        }
        last
    }

    fn forgets(&self) -> bool {
        self.forget_keys
    }
}

/// Counts the events of panes.
pub(super) fn events(track: &Track<Count>, from: i64, to: i64) -> u64 {
    track.panes(from, to).map(|(_, pane)| u64::from(pane.0)).sum()
}
