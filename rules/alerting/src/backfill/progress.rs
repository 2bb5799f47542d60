//! Work of a backfill, and its progress.

use std::ops::Range;
use std::time::Duration;

use millrace_rules::Time;
use millrace_rules::definition::{Definition, RuleType};
use millrace_rules::engine::Rule;
use uuid::Uuid;

/// Bound on the rounds of a backfill beside live rules, and the number of rounds without progress that is reported.
pub(super) const MAX_ROUNDS: usize = 20;

/// Documents of a snapshot that a restored rule has to see before those of this store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RestoredHistory {
    /// Uuid of the snapshot.
    pub(crate) snapshot: Uuid,
    /// Last frame of the snapshot's log that the rule does not see.
    pub(crate) since: u64,
    /// First frame of that log whose alerts are not all in the snapshot.
    pub(crate) next_frame: u64,
    /// Time of the snapshot, in milliseconds since the epoch.
    pub(crate) snapshot_ms: i64,
    /// Time of the first start with the rule.
    pub(crate) loaded_ms: i64,
}

/// Returns whether a rule remembers documents that came before it was saved.
pub(super) fn remembers_earlier(definition: &Definition) -> bool {
    matches!(definition.rule_type, RuleType::NewTerm { .. })
}

/// From when on a rule looks at what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BackfillRange {
    /// Frames that were written at this time, in milliseconds, and later ones are seen.
    pub(crate) seen_from: i64,
    /// Those of this time and later ones raise alerts; without it those behind the frame at which the rule was saved.
    pub(crate) raised_from: Option<i64>,
    /// Documents of a snapshot that are seen before.
    pub(crate) restored: Option<RestoredHistory>,
}

impl BackfillRange {
    /// Decides what a new rule, or a new revision of one, has to see of what is stored.
    pub(crate) fn new(definition: &Definition, from: Option<i64>, now_ms: i64) -> Option<Self> {
        let window = match &definition.rule_type {
            RuleType::NewTerm { window, .. } => Some(window.ms()),
            _ => None,
        };
        if from.is_none() && window.is_none() {
            return None;
        }
        let seen_from = from.unwrap_or(now_ms).saturating_sub(window.unwrap_or(0));
        Some(Self { seen_from, raised_from: from, restored: None })
    }

    /// Decides what a rule that was paused has to see once it is enabled: all from the first frame that it has not seen. What came
    /// in its window before that, it only remembers.
    pub(crate) fn resumed(definition: &Definition, at_ms: i64) -> Self {
        let own = Self::new(definition, Some(at_ms), at_ms).map_or(at_ms, |own| own.seen_from);
        let window = at_ms.saturating_sub(definition.timeframe().ms());
        Self { seen_from: own.min(window), raised_from: Some(at_ms), restored: None }
    }

    /// Decides what a rule has to see that a snapshot brought: the documents of the snapshot, then those of this store's log.
    pub(crate) fn restored(history: RestoredHistory) -> Self {
        Self { seen_from: history.snapshot_ms, raised_from: None, restored: Some(history) }
    }

    /// Returns the times of the frames of this store's log that it has to see.
    pub(super) fn times(&self) -> Range<i64> {
        match self.restored {
            // The clock of this store may be behind the one of the snapshot: its frames alone bound them.
            Some(_) => i64::MIN..i64::MAX,
            None => self.seen_from..i64::MAX,
        }
    }

    /// Returns whether a frame only changes what is remembered.
    pub(super) fn mutes(&self, rule: &Rule, frame: u64, time: Time) -> bool {
        match self.raised_from {
            Some(from) => time.ms() < from,
            None => frame <= rule.since,
        }
    }
}

/// Progress of a backfill.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Time of the last frame that it has seen.
    pub(crate) at_ms: Option<i64>,
    /// Documents that it was asked of.
    pub(crate) documents: u64,
    /// Why it does not go on, or has not.
    pub(crate) error: Option<String>,
    /// `true` if it waits for others to be done.
    pub(crate) waits: bool,
    /// `true` if it is paused: it does not begin anew by itself.
    pub(crate) paused: bool,
}

impl Progress {
    /// Says why it does not go on.
    pub(crate) fn said(&self) -> Option<String> {
        let waits = "waits for its turn, as other rules catch up";
        match &self.error {
            Some(error) if self.waits => Some(format!("{error}; it {waits}")),
            None if self.waits => Some(waits.to_owned()),
            error => error.clone(),
        }
    }
}

/// Durations of rests that a rule saw while the others went on.
#[derive(Debug, Default)]
pub(super) struct PauseDurations {
    shortest: Option<Duration>,
    /// Number of rests since then that were not clearly shorter.
    since: usize,
}

impl PauseDurations {
    /// Notes one; says so where they do not get shorter.
    pub(super) fn note(&mut self, took: Duration) -> Option<String> {
        if self.shortest.is_none_or(|shortest| took < shortest * 9 / 10) {
            (self.shortest, self.since) = (Some(took), 0);
            return None;
        }
        self.since += 1;
        (self.since >= MAX_ROUNDS).then(|| {
            format!(
                "does not catch up: what arrives meanwhile took {} ms, and gets no less; a simpler filter, or one of fewer \
                 indices, takes less",
                took.as_millis()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(options: serde_json::Value) -> Definition {
        let mut rule = json!({"name": "r", "index": "i"});
        rule.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        Definition::parse(&rule).unwrap()
    }

    #[test]
    fn terms_are_learned_over_their_window_and_alerts_raised_from_the_time_that_is_said() {
        let any = definition(json!({"type": "any"}));
        let terms = definition(json!({"type": "new_term", "fields": ["a"], "terms_window_size": "1h"}));
        let hour = 3_600_000;
        let of = |seen_from, raised_from| Some(BackfillRange { seen_from, raised_from, restored: None });
        assert_eq!(BackfillRange::new(&any, None, 10 * hour), None);
        assert_eq!(BackfillRange::new(&any, Some(hour), 10 * hour), of(hour, Some(hour)));
        assert_eq!(BackfillRange::new(&terms, None, 10 * hour), of(9 * hour, None));
        assert_eq!(BackfillRange::new(&terms, Some(5 * hour), 10 * hour), of(4 * hour, Some(5 * hour)));
        // A rule that was paused goes on where it ended, with what its window had then.
        let frequent = definition(json!({"type": "frequency", "num_events": 2, "timeframe": "30m"}));
        assert_eq!(BackfillRange::resumed(&frequent, 2 * hour), of(hour * 3 / 2, Some(2 * hour)).unwrap());
        assert_eq!(BackfillRange::resumed(&terms, 5 * hour), of(4 * hour, Some(5 * hour)).unwrap());
        let rule = |since| Rule {
            id: "r".to_owned(),
            revision: 1,
            since,
            owner: "ann".to_owned(),
            definition: any.clone(),
        };
        let mutes =
            |from: Option<BackfillRange>, frame, ms| from.unwrap().mutes(&rule(7), frame, Time::from_ms(ms));
        assert!(mutes(of(0, Some(5)), 9, 4) && !mutes(of(0, Some(5)), 1, 5));
        assert!(mutes(of(0, None), 7, 99) && !mutes(of(0, None), 8, 0));
    }

    #[test]
    fn a_rule_that_waits_says_so_and_why_it_did_not_go_on() {
        let said = |error: Option<&str>, waits| {
            let error = error.map(str::to_owned);
            Progress { error, waits, ..Progress::default() }.said()
        };
        assert_eq!((said(None, false), said(Some("slow"), false)), (None, Some("slow".to_owned())));
        let waits = "waits for its turn, as other rules catch up";
        assert_eq!(said(None, true).as_deref(), Some(waits));
        assert_eq!(said(Some("slow"), true), Some(format!("slow; it {waits}")));
    }

    #[test]
    fn rests_that_get_no_shorter_are_told() {
        let mut rests = PauseDurations::default();
        let ms = Duration::from_millis;
        // They may get shorter slowly.
        for took in (1..40).rev() {
            assert_eq!(rests.note(ms(took * took * 100)), None);
        }
        let told: Vec<bool> = (0..MAX_ROUNDS).map(|_| rests.note(ms(100)).is_some()).collect();
        assert!(told.iter().rev().skip(1).all(|told| !told) && told[MAX_ROUNDS - 1], "{told:?}");
        assert!(rests.note(ms(300)).unwrap().starts_with("does not catch up: "));
        assert_eq!(rests.note(ms(50)), None);
    }
}
