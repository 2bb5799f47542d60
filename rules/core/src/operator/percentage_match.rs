//! `percentage_match`: of the events of a key within a window, the share that matches a second filter is too large or too small.
//!
//! Windows follow one another, and those with events are looked at.
//!
//! State: of a key and window how many events there are, and how many match.

use serde_json::json;

use super::codec::{Reader, Writer};
use super::panes::{Grid, Pane, Track};
use super::window_operator::{Sample, Verdict, WakeSchedule, WindowJudge};
use crate::definition::Percentage;
use crate::error::Result;
use crate::mutation::{Mutation, mutated};

#[derive(Debug)]
pub(super) struct PercentageMatch(pub(super) Percentage);

/// Events, and those that match.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MatchCount {
    events: u32,
    matching: u32,
}

impl Pane for MatchCount {
    fn is_empty(&self) -> bool {
        self.events == 0
    }

    fn encode(&self, writer: &mut Writer) {
        writer.number(u64::from(self.events));
        writer.number(u64::from(self.matching));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let mut number = || Ok(u32::try_from(reader.number()?).unwrap_or(u32::MAX));
        Ok(Self { events: number()?, matching: number()? })
    }
}

impl WindowJudge for PercentageMatch {
    type Pane = MatchCount;
    type Value = bool;

    fn wakes(&self) -> WakeSchedule {
        WakeSchedule::WithEvents
    }

    fn read(&self, sample: &Sample<'_>) -> Option<bool> {
        Some(sample.second)
    }

    fn add(&self, pane: &mut MatchCount, matching: &bool) {
        pane.events = pane.events.saturating_add(1);
        pane.matching = pane.matching.saturating_add(u32::from(*matching));
    }

    fn judge(&self, track: &Track<MatchCount>, grid: &Grid, end: i64) -> Option<Verdict> {
        let (_, share) = track.panes(end.saturating_sub(grid.span), end).next()?;
        let few = u64::from(share.events) < self.0.min_denominator;
        if few && !mutated(Mutation::DenominatorForgotten) {
            return None;
        }
        let percentage = f64::from(share.matching) / f64::from(share.events) * 100.0;
        let holds =
            self.0.max.is_some_and(|max| percentage > max) || self.0.min.is_some_and(|min| percentage < min);
        let added = vec![
            ("percentage".to_owned(), json!(percentage)),
            ("denominator".to_owned(), json!(share.events)),
        ];
        Some(Verdict { holds, count: share.events as usize, added })
    }
}
