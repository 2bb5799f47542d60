//! Run records: the times that a run predicts are recorded before it writes, its outcome when it has ended.

use crate::error::{Error, Result};
use crate::run::RunReport;
use crate::store::StoredRule;
use crate::time;

/// Longest text of an error on a record, in characters.
const MAX_MESSAGE: usize = 2_000;

/// Recorded outcome of a run that has ended.
#[derive(Debug)]
pub(crate) struct RunOutcome {
    pub(crate) done: RunReport,
    pub(crate) outcome: Result<()>,
    /// Seconds that it took.
    pub(crate) seconds: f64,
    /// Revision of the rule that ran, where it is known.
    pub(crate) revision: Option<u64>,
    /// The time of the schedule that it has seen to.
    pub(crate) handled_ms: Option<i64>,
}

impl RunOutcome {
    /// Notes it.
    pub(crate) fn note(&self, kept: &mut StoredRule) {
        (kept.ran.pid, kept.state.tries) = (0, 0);
        kept.ran.processing_time = Some(self.seconds);
        kept.state.handled_ms = kept.state.handled_ms.max(self.handled_ms.unwrap_or(i64::MIN));
        let is_same = Some(kept.state.revision) == self.revision;
        note(kept, &self.done, &self.outcome, is_same);
    }
}

/// Notes the times that a run predicts, before it writes the first of them: they get their `_cur` in any case.
pub(crate) fn announce(kept: &mut StoredRule, done: &RunReport) {
    let state = &mut kept.state;
    // Runs that are made up, and those over history, predict what lies before others' predictions.
    state.filled_ms = state.filled_ms.into_iter().chain(done.filled_ms).min();
    state.ends_ms = state.ends_ms.max(done.ends_ms);
}

/// Notes the outcome of a run; of one that failed, too, with its writes until then. `is_same` says whether the rule is still the
/// one that ran: what another one predicted does not belong to it.
pub(crate) fn note(kept: &mut StoredRule, done: &RunReport, outcome: &Result<()>, is_same: bool) {
    note_outcome(kept, outcome);
    if !is_same || (outcome.is_err() && done.predictions == 0) {
        return;
    }
    let (ran, state) = (&mut kept.ran, &mut kept.state);
    ran.preparation_date = done.prepared_ms.map(time::iso);
    ran.search_source.clone_from(&done.search_source);
    if done.predictions == 0 {
        return;
    }
    if done.machine_state_uid.is_some() {
        ran.machine_state_uid.clone_from(&done.machine_state_uid);
        ran.path_to_machine_state.clone_from(&done.path);
        ran.threshold_time.clone_from(&done.threshold_time);
    }
    state.walked_ms = state.walked_ms.max(done.walked_ms);
}

fn note_outcome(kept: &mut StoredRule, outcome: &Result<()>) {
    let ran = &mut kept.ran;
    let Err(error) = outcome else {
        ran.exit_code = Some(0);
        (ran.error_description, ran.error_message) = (None, None);
        return;
    };
    ran.exit_code = Some(1);
    let description = match error {
        Error::Invalid { field, .. } => field.as_str(),
        Error::Forecast(_) => "forecast",
        Error::Query(_) => "search",
        Error::Storage(_) => "store",
        _ => "run",
    };
    ran.error_description = Some(description.to_owned());
    ran.error_message = Some(error.to_string().chars().take(MAX_MESSAGE).collect());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Definition;
    use crate::definition::tests::body;
    use crate::store::State;

    fn rule(state: State) -> StoredRule {
        StoredRule::new("r".to_owned(), Definition::parse(&body()).unwrap(), state)
    }

    fn done(origin_ms: i64) -> RunReport {
        RunReport {
            predictions: 5,
            machine_state_uid: Some(format!("from {origin_ms}")),
            ends_ms: Some(origin_ms + 5),
            filled_ms: Some(origin_ms),
            walked_ms: Some(origin_ms),
            ..RunReport::default()
        }
    }

    #[test]
    fn a_run_that_is_made_up_takes_nothing_back_and_is_filled() {
        let mut kept = rule(State::default());
        let run = |kept: &mut StoredRule, done: RunReport| {
            announce(kept, &done);
            note(kept, &done, &Ok(()), true);
        };
        run(&mut kept, done(100));
        kept.state.filled_ms = Some(104);
        run(&mut kept, done(90));
        let State { filled_ms, ends_ms, walked_ms, .. } = kept.state;
        assert_eq!((filled_ms, ends_ms, walked_ms), (Some(90), Some(105), Some(100)));
    }

    #[test]
    fn what_a_failed_run_wrote_is_known_and_what_an_overtaken_one_wrote_is_not() {
        let refused = || Err(Error::Run("value [b]: no samples".to_owned()));
        let mut kept = rule(State::default());
        note(&mut kept, &done(100), &refused(), false);
        assert_eq!((kept.ran.exit_code, &kept.ran.machine_state_uid), (Some(1), &None));
        assert_eq!(kept.state, State::default());
        note(&mut kept, &done(100), &refused(), true);
        assert_eq!(kept.ran.exit_code, Some(1));
        assert_eq!(kept.ran.error_message.as_deref(), Some("value [b]: no samples"));
        assert_eq!(kept.ran.machine_state_uid.as_deref(), Some("from 100"));
        assert_eq!(kept.state.walked_ms, Some(100));
        note(&mut kept, &RunReport::default(), &refused(), true);
        assert_eq!(kept.state.walked_ms, Some(100));
    }
}
