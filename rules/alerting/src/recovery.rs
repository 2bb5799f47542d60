//! The start: state of the newest snapshot that can be read, and the feed from there.
//!
//! Up to the committed position the rules run muted: what they raise was written. Without a snapshot they begin where the first
//! of them does.

use std::sync::Arc;

use millrace_engine::{Engine, FeedReader, RULES_READER};
use millrace_notifications::Notifications;
use millrace_percolator::Matching;
use millrace_rules::engine::{Engine as Rules, Operation, Rule};
use millrace_rules::{Bounds, Timing};
use millrace_runtime::{Priority, Result};

use crate::commit::{Pending, Position};
use crate::runner::{RunnerState, StateOwner, blocking};
use crate::snapshot::LoadedSnapshot;
use crate::state::{Core, roles_of};
use crate::store::StoredRule;

/// Brings the rules back, and returns the reader of what they have not seen.
///
/// # Errors
/// The store's.
pub(crate) async fn recover(shared: &RunnerState, owner: &mut StateOwner) -> Result<FeedReader> {
    let engine = &shared.engine;
    // Rules change behind it only: the state is not lent here.
    owner.state = None;
    let position = Position::claim(engine).await?;
    let snapshots = shared.snapshots.clone();
    let found = blocking(move || snapshots.read()).await?;
    let kept = shared.store.all();
    let oldest = found.last().map(|found| found.position + 1);
    let begin = oldest.unwrap_or_else(|| first_seen(&kept));
    engine.take_lease(RULES_READER, Some(begin)).await?;
    // The end of a log that was lost is before what state has seen.
    let last = last_frame(engine)?;
    let usable: Vec<LoadedSnapshot> = found.into_iter().filter(|found| found.position <= last).collect();
    let committed = position.next().map_or(0, |next| next.saturating_sub(1));
    // Those that catch up join the others once they have; what a snapshot may have of them is not used.
    let live: Vec<Arc<StoredRule>> = kept.iter().filter(|kept| kept.backfill.is_none()).cloned().collect();
    let rules: Vec<Rule> = live.iter().map(|kept| kept.rule.clone()).collect();
    let restore = move || Ok(restored(usable, &rules, committed));
    let (mut rules, failed) = engine.compute().run(Priority::Ingest, restore).await?;
    let seen = rules.position();
    let (now_ms, mut quiets) = (engine.clock().now_ms(), Vec::new());
    for kept in &live {
        let lost = failed.iter().any(|(rule, _)| *rule == kept.rule.id);
        for quiet in &kept.quiet {
            // Those before are in the state.
            let is_new = seen.is_none_or(|seen| quiet.since > seen);
            if is_new || lost {
                rules.quiet(&kept.rule.id, quiet.clone());
            }
            if is_new {
                // It may not have come to that before the end.
                quiets.push(Pending::quiet(quiet.since, &kept.rule, quiet, now_ms));
            }
        }
    }
    let next = seen.map_or_else(|| first_seen(&kept).min(last + 1), |seen| seen + 1);
    let mut new = Core::new(rules, Matching::new(engine, &shared.accounts, Priority::Follow), position, next);
    new.notifies = shared.notifications.as_ref().map(Notifications::give_up_ms);
    shared.tell_committed(&new.position, false);
    for kept in &live {
        new.ask(&kept.rule);
    }
    new.pending.extend(quiets);
    for (place, (rule, reason)) in failed.into_iter().enumerate() {
        tracing::warn!(rule, reason, "a rule begins anew");
        let frame = next.saturating_sub(1);
        let reason = format!("its state was lost, it begins anew: {reason}");
        let problem = Operation::Problem { rule, frame, reason };
        let roles = roles_of(&new.rules, &problem);
        new.pending.push_back(Pending::from_operation(problem, frame, place, now_ms, roles));
    }
    new.touched = kept.iter().map(|kept| kept.rule.id.clone()).collect();
    shared.status_reporter.update(&mut new, None);
    owner.state = Some(new);
    engine.follow(Some(next))
}

/// The first frame that some rule sees.
fn first_seen(kept: &[Arc<StoredRule>]) -> u64 {
    kept.iter().map(|kept| kept.rule.since + 1).min().unwrap_or(1)
}

/// Returns the last frame of the log.
///
/// # Errors
/// The log is not open.
pub(crate) fn last_frame(engine: &Engine) -> Result<u64> {
    Ok(engine.next_frame()?.saturating_sub(1))
}

/// Takes the newest state that can be read, with what was lost of rules, and why.
fn restored(found: Vec<LoadedSnapshot>, rules: &[Rule], committed: u64) -> (Rules, Vec<(String, String)>) {
    let (timing, bounds) = (Timing::default(), Bounds::default());
    let mut lost = Vec::new();
    for LoadedSnapshot { position, bytes } in found {
        match Rules::restore(&bytes, rules.to_vec(), committed, timing, bounds) {
            Ok((engine, failed)) => {
                lost.extend(failed.into_iter().map(|(rule, error)| (rule, error.to_string())));
                return (engine, lost);
            }
            Err(error) => tracing::error!(position, %error, "state of rules cannot be read"),
        }
    }
    let mut engine = Rules::new(timing, bounds);
    engine.mute(committed);
    for rule in rules {
        engine.put(rule.clone());
    }
    (engine, lost)
}
