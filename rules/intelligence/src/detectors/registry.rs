//! Phases of runs in flight and tallies of scoring, by detector, shared by the parts.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::definition::DetectorDefinition;
use super::scoring::ScoringTally;

/// Fields that are named in a message, at most.
const MAX_NAMED: usize = 5;

/// Phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Building,
    Scoring,
}

impl Phase {
    /// Returns the status that it stands for.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Building => "Building",
            Self::Scoring => "Scoring",
        }
    }
}

/// State of detectors that is not stored.
#[derive(Debug, Default)]
pub(crate) struct DetectorRegistry {
    /// Told when detectors have changed.
    pub(crate) changed: Notify,
    phases: Arc<Mutex<HashMap<String, Phase>>>,
    tallies: Mutex<BTreeMap<String, ScoringTally>>,
    fault: Mutex<Option<String>>,
}

/// Keeps a detector in a phase.
#[derive(Debug)]
pub(crate) struct PhaseGuard {
    phases: Arc<Mutex<HashMap<String, Phase>>>,
    id: String,
}

impl PhaseGuard {
    /// Goes on to another phase.
    pub(crate) fn set(&self, phase: Phase) {
        self.phases.lock().insert(self.id.clone(), phase);
    }
}

impl Drop for PhaseGuard {
    fn drop(&mut self) {
        self.phases.lock().remove(&self.id);
    }
}

impl DetectorRegistry {
    /// Begins a phase of a detector, which ends with the guard.
    pub(crate) fn begin(&self, id: &str, phase: Phase) -> PhaseGuard {
        let guard = PhaseGuard { phases: Arc::clone(&self.phases), id: id.to_owned() };
        guard.set(phase);
        guard
    }

    /// Returns the phase of a detector's run in flight.
    pub(crate) fn phase(&self, id: &str) -> Option<Phase> {
        self.phases.lock().get(id).copied()
    }

    /// Sets the phase of a run in flight.
    pub(crate) fn set_phase(&self, id: &str, phase: Phase) {
        if let Some(now) = self.phases.lock().get_mut(id) {
            *now = phase;
        }
    }

    /// Returns the tally of a detector's scoring.
    pub(crate) fn tally(&self, id: &str) -> ScoringTally {
        self.tallies.lock().get(id).cloned().unwrap_or_default()
    }

    /// Publishes the tally of a detector's scoring.
    pub(crate) fn publish(&self, id: &str, tally: &ScoringTally) {
        let mut tallies = self.tallies.lock();
        if tallies.get(id) != Some(tally) {
            tallies.insert(id.to_owned(), tally.clone());
        }
    }

    /// Drops the tallies of detectors that are gone.
    pub(crate) fn retain(&self, is_there: impl Fn(&str) -> bool) {
        self.tallies.lock().retain(|id, _| is_there(id));
    }

    /// Sets the reason why nothing is scored.
    pub(crate) fn set_fault(&self, fault: Option<String>) {
        let mut now = self.fault.lock();
        if let Some(fault) = fault.as_ref().filter(|fault| now.as_ref() != Some(fault)) {
            tracing::warn!(fault, "AI rules do not score");
        }
        *now = fault;
    }

    /// Returns the reason why nothing is scored.
    pub(crate) fn faults(&self) -> Option<String> {
        self.fault.lock().clone()
    }
}

impl ScoringTally {
    /// Describes the problems of scoring.
    pub(crate) fn messages(&self, definition: &DetectorDefinition) -> Vec<String> {
        let mut messages: Vec<String> = self.problem.iter().cloned().collect();
        if self.unseen > 0 {
            let values: Vec<&str> = self.unseen_values.iter().map(String::as_str).collect();
            messages.push(format!(
                "{} documents have values of [{}] without a model, such as [{}]: add them to [multiply_by_values]",
                self.unseen,
                definition.multiply_by.as_deref().unwrap_or_default(),
                values.join(", ")
            ));
        }
        for (field, count) in self.missing.iter().take(MAX_NAMED) {
            let of = if definition.model_type.has_fields() { "no number" } else { "no value" };
            messages.push(format!("{count} documents have {of} in [{field}]"));
        }
        messages
    }
}
