//! Decides the next step of a managed index: pure functions of its policy, its progress, its figures and the time.

use std::time::Duration;

use crate::managed::Progress;
use crate::policy::{ActionSpec, IndexPolicy, RolloverConditions, TransitionCondition};

/// Figures of an index that conditions are about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexMeasure {
    /// Time of its creation, in milliseconds.
    pub created_ms: i64,
    /// Time from which on its age counts for transitions, in milliseconds, where a setting names it.
    pub origination_ms: Option<i64>,
    /// Time of the last rollover that it records, in milliseconds; `None` where an alias or a data stream may write to it.
    pub rollover_ms: Option<i64>,
    /// `true` if an alias or a data stream writes to it beyond doubt: then a rollover by its policy has not ended its writes.
    pub is_written: bool,
    /// Documents.
    pub docs: u64,
    /// Bytes.
    pub bytes: u64,
    /// Bytes of the largest shard.
    pub largest_shard: u64,
}

/// Next step of a managed index.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NextStep {
    /// To begin a state.
    Enter(String),
    /// To do the action of the state at the position of the progress.
    Act(ActionSpec),
    /// To wait for a condition or for the next try.
    Wait(&'static str),
    /// Nothing: the last state is done, or an action has failed.
    Rest,
}

/// Decides the next step.
pub(crate) fn next_step(
    policy: &IndexPolicy,
    progress: &Progress,
    measure: IndexMeasure,
    now_ms: i64,
) -> NextStep {
    if progress.failed {
        return NextStep::Rest;
    }
    if progress.state.is_empty() {
        return NextStep::Enter(policy.default_state.clone());
    }
    // A policy that is put in the place of another one may lack the state.
    let Some(state) = policy.state(&progress.state) else {
        return NextStep::Enter(policy.default_state.clone());
    };
    if let Some(action) = state.actions.get(progress.position) {
        return match progress.retry_ms > now_ms {
            true => NextStep::Wait("Waiting to retry the failed action"),
            false => NextStep::Act(action.spec.clone()),
        };
    }
    let holds = |condition: &Option<TransitionCondition>| {
        condition.as_ref().is_none_or(|condition| is_met(condition, progress, measure, now_ms))
    };
    match state.transitions.iter().find(|transition| holds(&transition.condition)) {
        Some(transition) => NextStep::Enter(transition.state.clone()),
        None if state.transitions.is_empty() => NextStep::Rest,
        None => NextStep::Wait("Evaluating transition conditions"),
    }
}

fn is_met(condition: &TransitionCondition, progress: &Progress, measure: IndexMeasure, now_ms: i64) -> bool {
    match condition {
        TransitionCondition::IndexAge(age) => {
            has_passed(measure.origination_ms.unwrap_or(measure.created_ms), *age, now_ms)
        }
        TransitionCondition::DocCount(docs) => measure.docs >= *docs,
        TransitionCondition::Size(bytes) => measure.bytes >= *bytes,
        TransitionCondition::RolloverAge(age) => {
            let rollover_ms = measure.rollover_ms.or(progress.rollover_ms.filter(|_| !measure.is_written));
            rollover_ms.is_some_and(|time| has_passed(measure.origination_ms.unwrap_or(time), *age, now_ms))
        }
        TransitionCondition::StateAge(age) => has_passed(progress.state_ms, *age, now_ms),
        TransitionCondition::Cron(schedule) => {
            schedule.after(progress.state_ms).is_some_and(|time| time <= now_ms)
        }
    }
}

/// Returns whether a time has passed since another one.
fn has_passed(since_ms: i64, time: Duration, now_ms: i64) -> bool {
    i128::from(now_ms) - i128::from(since_ms) >= time.as_millis() as i128
}

/// Returns whether work of an interval is due again. A clock that was put back keeps nothing waiting.
pub(crate) fn is_interval_over(last_ms: Option<i64>, interval_ms: i64, now_ms: i64) -> bool {
    last_ms.is_none_or(|last| last > now_ms || now_ms - last >= interval_ms)
}

/// Returns whether an index is to be rolled over.
pub(crate) fn is_rollover_due(conditions: &RolloverConditions, measure: IndexMeasure, now_ms: i64) -> bool {
    let RolloverConditions { min_index_age, min_doc_count, min_size, min_primary_shard_size, .. } =
        conditions;
    let results = [
        min_index_age.map(|age| has_passed(measure.created_ms, age, now_ms)),
        min_doc_count.map(|docs| measure.docs >= docs),
        min_size.map(|bytes| measure.bytes >= bytes),
        min_primary_shard_size.map(|bytes| measure.largest_shard >= bytes),
    ];
    let mut given = results.into_iter().flatten().peekable();
    given.peek().is_none() || given.any(|holds| holds)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DAY_MS: i64 = 86_400_000;

    fn policy() -> IndexPolicy {
        let body = json!({
            "default_state": "hot",
            "states": [
                {"name": "hot", "actions": [{"rollover": {"min_doc_count": 5}}, {"read_only": {}}],
                 "transitions": [
                    {"state_name": "warm", "conditions": {"min_rollover_age": "1d"}},
                    {"state_name": "gone", "conditions": {"min_index_age": "30d"}}]},
                {"name": "warm", "transitions": [{"state_name": "gone", "conditions": {"cron": {"cron": {"expression": "0 6 * * *"}}}}]},
                {"name": "gone", "actions": [{"delete": {}}]},
            ],
        });
        IndexPolicy::parse("p", &body, 0).unwrap()
    }

    fn step(progress: &Progress, now_ms: i64) -> NextStep {
        next_step(&policy(), progress, IndexMeasure::default(), now_ms)
    }

    #[test]
    fn actions_come_before_transitions() {
        let mut progress = Progress::default();
        assert_eq!(step(&progress, 5), NextStep::Enter("hot".into()));
        progress.enter("hot", 5);
        assert!(matches!(step(&progress, 5), NextStep::Act(ActionSpec::Rollover(_))));
        progress.retry_ms = 10;
        assert!(matches!(step(&progress, 9), NextStep::Wait(_)));
        progress.rollover_ms = Some(DAY_MS);
        progress.complete_action(String::new());
        assert_eq!(step(&progress, 9), NextStep::Act(ActionSpec::ReadOnly));
        progress.complete_action(String::new());
        assert!(matches!(step(&progress, 2 * DAY_MS - 1), NextStep::Wait(_)));
        assert_eq!(step(&progress, 2 * DAY_MS), NextStep::Enter("warm".into()));
        progress.rollover_ms = None;
        assert!(matches!(step(&progress, 2 * DAY_MS), NextStep::Wait(_)));
        assert_eq!(step(&progress, 30 * DAY_MS), NextStep::Enter("gone".into()));
        progress.enter("warm", DAY_MS);
        assert!(matches!(step(&progress, DAY_MS + DAY_MS / 4 - 1), NextStep::Wait(_)));
        assert_eq!(step(&progress, DAY_MS + DAY_MS / 4), NextStep::Enter("gone".into()));
        progress.failed = true;
        assert_eq!(step(&progress, 30 * DAY_MS), NextStep::Rest);
    }

    #[test]
    fn an_age_counts_from_the_rollover_or_from_the_origination() {
        let mut progress = Progress::default();
        progress.enter("hot", 0);
        progress.position = 2;
        let measure = IndexMeasure { rollover_ms: Some(DAY_MS), ..IndexMeasure::default() };
        let step = |measure: IndexMeasure, now_ms: i64| next_step(&policy(), &progress, measure, now_ms);
        assert!(matches!(step(measure, 2 * DAY_MS - 1), NextStep::Wait(_)));
        assert_eq!(step(measure, 2 * DAY_MS), NextStep::Enter("warm".into()));
        let old = IndexMeasure { origination_ms: Some(-DAY_MS), ..measure };
        assert_eq!(step(old, DAY_MS), NextStep::Enter("warm".into()));
        // Without a rollover its age counts for nothing, and that of the index does.
        let written = IndexMeasure { rollover_ms: None, ..old };
        assert!(matches!(step(written, 29 * DAY_MS - 1), NextStep::Wait(_)));
        assert_eq!(step(written, 29 * DAY_MS), NextStep::Enter("gone".into()));
        // Its policy has rolled it over, and its alias was put back.
        progress.rollover_ms = Some(0);
        let step = |measure: IndexMeasure, now_ms: i64| next_step(&policy(), &progress, measure, now_ms);
        assert_eq!(step(IndexMeasure::default(), 2 * DAY_MS), NextStep::Enter("warm".into()));
        let written = IndexMeasure { is_written: true, ..IndexMeasure::default() };
        assert!(matches!(step(written, 2 * DAY_MS), NextStep::Wait(_)));
        let conditions =
            RolloverConditions { min_index_age: Some(Duration::from_secs(86_400)), ..Default::default() };
        assert!(!is_rollover_due(&conditions, old, DAY_MS - 1), "a rollover goes by the creation");
    }

    #[test]
    fn one_condition_of_a_rollover_has_to_hold() {
        let conditions = |json: serde_json::Value| {
            let body =
                json!({"default_state": "a", "states": [{"name": "a", "actions": [{"rollover": json}]}]});
            match &IndexPolicy::parse("p", &body, 0).unwrap().states[0].actions[0].spec {
                ActionSpec::Rollover(conditions) => conditions.clone(),
                other => panic!("{other:?}"),
            }
        };
        let measure = IndexMeasure { docs: 10, bytes: 2048, largest_shard: 1024, ..IndexMeasure::default() };
        for (json, due) in [
            (json!({}), true),
            (json!({"min_doc_count": 11, "min_size": "3kb"}), false),
            (json!({"min_doc_count": 11, "min_size": "2kb"}), true),
            (json!({"min_index_age": "1d"}), true),
            (json!({"min_index_age": "2d"}), false),
            (json!({"min_primary_shard_size": "2kb"}), false),
        ] {
            assert_eq!(is_rollover_due(&conditions(json.clone()), measure, DAY_MS), due, "{json}");
        }
    }
}
