//! Alerts that replays raise, as many as an answer holds, and the comparison of those of two rules.

use std::collections::{HashMap, HashSet};

use millrace_rules::engine::Operation;
use serde_json::Value;

use crate::commit;

/// Alerts that are answered, and their bytes; of the rest only how many there are.
const MAX_ALERTS: usize = 1_000;
const MAX_BYTES: usize = 8 << 20;
/// The same of what they take in memory: many small values take far more than their JSON has.
const MAX_HELD: usize = 64 << 20;

/// An alert that a rule would have raised.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// Its `_id`.
    pub id: String,
    /// The document.
    pub document: Value,
}

/// The alerts of a replay, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplayedAlerts {
    /// The first ones: at most 1,000, of 8 MiB together, and of 64 MiB in memory.
    pub alerts: Vec<Alert>,
    /// Number of further alerts beyond those.
    pub more: u64,
    /// Problems: at most 100.
    pub problems: Vec<String>,
    bytes: usize,
    held: usize,
    places: HashMap<String, usize>,
}

/// Difference that a change of a rule would make to its alerts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Difference {
    /// Id of the rule that would be replaced.
    pub id: Option<String>,
    /// Alerts that there would be in addition.
    pub adds: ReplayedAlerts,
    /// Alerts that there would not be any more.
    pub removes: ReplayedAlerts,
}

impl ReplayedAlerts {
    /// Counts all of them.
    pub fn count(&self) -> u64 {
        self.alerts.len() as u64 + self.more
    }

    /// Takes what a rule says.
    pub(super) fn take(&mut self, operation: Operation) {
        let held = operation.bytes();
        match operation {
            Operation::Alert { id, document, .. } => self.add(id, document, held),
            Operation::Revision { id, document, .. } => self.merge(&id, document),
            Operation::Recovery { id, time, .. } => self.merge(&id, commit::recovered(time)),
            Operation::Silence { .. } | Operation::Problem { .. } => {}
        }
    }

    /// Changes members of an alert, where it is one of those that are answered.
    fn merge(&mut self, id: &str, members: Value) {
        let alert = self.places.get(id).and_then(|place| self.alerts.get_mut(*place));
        if let (Some(Value::Object(document)), Value::Object(members)) =
            (alert.map(|alert| &mut alert.document), members)
        {
            document.extend(members);
        }
    }

    /// Returns their bytes, as values and twice as the JSON of an answer, about: later changes add little.
    pub fn memory(&self) -> usize {
        self.held.saturating_add(self.bytes.saturating_mul(2))
    }

    fn add(&mut self, id: String, document: Value, held: usize) {
        let is_full = self.more > 0 || self.alerts.len() == MAX_ALERTS || self.held + held > MAX_HELD;
        let bytes = if is_full { 0 } else { document.to_string().len() };
        if is_full || self.bytes + bytes > MAX_BYTES {
            self.more += 1;
            return;
        }
        self.bytes += bytes;
        self.held += held;
        self.places.insert(id.clone(), self.alerts.len());
        self.alerts.push(Alert { id, document });
    }
}

/// Alerts of a rule beside those that there are otherwise.
#[derive(Default)]
pub(super) struct AlertComparison {
    /// Ids of those.
    pub(super) others: HashSet<String>,
    /// Ids of those that both have.
    pub(super) common: HashSet<String>,
    pub(super) alone: ReplayedAlerts,
}

impl AlertComparison {
    pub(super) fn take(&mut self, operation: Operation) {
        match operation {
            Operation::Alert { id, .. } if self.others.contains(&id) => drop(self.common.insert(id)),
            other => self.alone.take(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// An alert of so many small values.
    fn alert(id: usize, values: usize) -> Operation {
        let document = json!({"match_body": {"a": vec![1; values]}});
        Operation::Alert { rule: "r".to_owned(), id: id.to_string(), document }
    }

    #[test]
    fn what_is_answered_is_bounded_by_number_by_json_and_by_memory() {
        for (values, count, answered) in [(1, 1_500, 1_000..1_001), (15_000, 100, 40..80)] {
            let mut found = ReplayedAlerts::default();
            (0..count).for_each(|id| found.take(alert(id, values)));
            assert!(answered.contains(&found.alerts.len()), "{} of {values}", found.alerts.len());
            assert_eq!(found.count(), count as u64);
        }
        let mut found = ReplayedAlerts::default();
        let document = json!({"text": "x".repeat(1 << 20)});
        for id in ["1", "2", "3", "4", "5", "6", "7", "8", "9"] {
            let (rule, id, document) = ("r".to_owned(), id.to_owned(), document.clone());
            found.take(Operation::Alert { rule, id, document });
        }
        assert_eq!((found.alerts.len(), found.more), (7, 2));
    }

    #[test]
    fn alerts_that_both_have_are_told_by_their_ids() {
        let mut compared = AlertComparison { others: ["1".to_owned()].into(), ..AlertComparison::default() };
        [1, 2].into_iter().for_each(|id| compared.take(alert(id, 1)));
        assert_eq!((compared.common.len(), &*compared.alone.alerts[0].id), (1, "2"));
    }
}
