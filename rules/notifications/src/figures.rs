//! Figures of the outbox: rows that wait, and the durations of notifications by kind and outcome.
//!
//! The sender writes [`OutboxCounters`]; metrics read them as [`OutboxFigures`]. The number of histograms is fixed.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use millrace_runtime::{DurationHistogram, HistogramSnapshot};

use crate::sender::RowKind;

/// Outcome of an attempt to send a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptOutcome {
    Sent,
    Retried,
    GivenUp,
}

/// Counters of the outbox.
#[derive(Debug, Default)]
pub(crate) struct OutboxCounters {
    /// Rows that were due at the last count.
    pub(crate) waiting: AtomicU64,
    /// Time at which the oldest of them was due, in milliseconds since the epoch; 0 where there is none.
    pub(crate) oldest_due_ms: AtomicI64,
    /// Times from the first due time of a notification to the end of an attempt, by kind and outcome.
    durations: [[DurationHistogram; AttemptOutcome::ALL.len()]; RowKind::ALL.len()],
}

/// Figures of notifications at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutboxFigures {
    /// Notifications that are due and not sent.
    pub waiting: u64,
    /// Time for which the oldest of them has been due.
    pub overdue: Duration,
    /// Notifications that were sent since the start.
    pub sent: u64,
    /// Attempts that failed and are made again.
    pub retried: u64,
    /// Notifications that were given up.
    pub given_up: u64,
    /// Durations by kind and outcome.
    pub durations: Vec<NotificationDurations>,
}

/// Durations of the notifications of one kind that had one outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct NotificationDurations {
    /// Kind, as the outbox names it.
    pub kind: &'static str,
    /// Outcome of the attempt.
    pub outcome: &'static str,
    /// Times from the first due time to the end of the attempt.
    pub durations: HistogramSnapshot,
}

impl AttemptOutcome {
    /// All outcomes, in the order of their numbers.
    const ALL: [Self; 3] = [Self::Sent, Self::Retried, Self::GivenUp];

    /// Returns the name in metrics.
    fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Retried => "retried",
            Self::GivenUp => "given_up",
        }
    }
}

impl OutboxCounters {
    /// Adds an attempt that has ended.
    pub(crate) fn record(&self, kind: RowKind, outcome: AttemptOutcome, took: Duration) {
        self.durations[kind as usize][outcome as usize].record(took);
    }

    /// Reads the figures at a time.
    pub(crate) fn figures(&self, now_ms: i64) -> OutboxFigures {
        let (mut durations, mut counts) = (Vec::new(), [0; AttemptOutcome::ALL.len()]);
        for (kind, histograms) in RowKind::ALL.into_iter().zip(&self.durations) {
            for (outcome, histogram) in AttemptOutcome::ALL.into_iter().zip(histograms) {
                let snapshot = histogram.snapshot();
                counts[outcome as usize] += snapshot.count;
                durations.push(NotificationDurations {
                    kind: kind.name(),
                    outcome: outcome.name(),
                    durations: snapshot,
                });
            }
        }
        let [sent, retried, given_up] = counts;
        let waiting = self.waiting.load(Ordering::Relaxed);
        let overdue_ms = match (waiting, self.oldest_due_ms.load(Ordering::Relaxed)) {
            (0, _) | (_, 0) => 0,
            (_, due_ms) => now_ms.saturating_sub(due_ms),
        };
        let overdue = Duration::from_millis(u64::try_from(overdue_ms).unwrap_or(0));
        OutboxFigures { waiting, overdue, sent, retried, given_up, durations }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_in_the_histogram_of_its_kind_and_outcome() {
        let counters = OutboxCounters::default();
        counters.record(RowKind::Problem, AttemptOutcome::GivenUp, Duration::from_secs(3));
        counters.record(RowKind::Alert, AttemptOutcome::Sent, Duration::from_secs(1));
        counters.record(RowKind::Escalation, AttemptOutcome::Sent, Duration::from_secs(2));
        let figures = counters.figures(0);
        assert_eq!((figures.sent, figures.retried, figures.given_up), (2, 0, 1));
        assert_eq!(figures.durations.len(), RowKind::ALL.len() * AttemptOutcome::ALL.len());
        let filled: Vec<_> = figures
            .durations
            .iter()
            .filter(|durations| durations.durations.count > 0)
            .map(|durations| (durations.kind, durations.outcome, durations.durations.sum.as_secs()))
            .collect();
        assert_eq!(filled, [("alert", "sent", 1), ("escalation", "sent", 2), ("problem", "given_up", 3)]);
    }
}
