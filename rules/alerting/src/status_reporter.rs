//! Status reports of live rules: condition, progress, and obstacles.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use millrace_engine::Engine;
use millrace_rules::Time;
use millrace_rules::engine::{Condition, Status};
use millrace_runtime::{DurationHistogram, HistogramSnapshot, Instant};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::backfill::Progress;
use crate::frame_reader::Step;
use crate::state::Core;
use crate::store::StoredRule;

/// A write that takes longer is a fault.
const LONG_WRITE: Duration = Duration::from_secs(3);

/// Reports the status of rules.
#[derive(Debug, Default)]
pub(crate) struct RuleStatusReporter {
    rules: Mutex<HashMap<String, Status>>,
    problems: Mutex<BTreeMap<String, String>>,
    backfills: Mutex<BTreeMap<String, Progress>>,
    fault: Mutex<Option<String>>,
    /// That rules have more filters than are kept.
    overload: Mutex<Option<String>>,
    writing: Mutex<Option<Instant>>,
    /// The first frame that was not evaluated; 0 while nothing is.
    next: AtomicU64,
    /// Time of the last one that was; 0 before one was.
    time_ms: AtomicI64,
    /// Times from the writes of frames to their evaluation.
    evaluation_lag: DurationHistogram,
}

impl RuleStatusReporter {
    /// Takes over how rules are that may be otherwise than before.
    pub(crate) fn update(&self, core: &mut Core, time_ms: Option<i64>) {
        let touched = std::mem::take(&mut core.touched);
        if !touched.is_empty() {
            let mut rules = self.rules.lock();
            for id in touched {
                match core.rules.status(&id) {
                    Some(status) => rules.insert(id, status),
                    None => rules.remove(&id),
                };
            }
        }
        let problems = core.matching.problems();
        let mut told = self.problems.lock();
        if *told != problems {
            *told = problems;
        }
        self.next.store(core.next, Ordering::Relaxed);
        // Right behind a start it is known of the state when rules ran last: nothing is evaluated yet.
        if self.time_ms.load(Ordering::Relaxed) == 0 {
            self.time_ms.store(core.rules.now().ms().max(0), Ordering::Relaxed);
        }
        *self.overload.lock() = core.matching.overload();
        if let Some(time_ms) = time_ms {
            self.time_ms.store(time_ms, Ordering::Relaxed);
        }
    }

    /// Adds frames that are evaluated now to the lag of evaluations; `evaluated` are the first ones of the step.
    pub(crate) fn record_evaluation_lag(&self, step: &Step, evaluated: usize, now_ms: i64) {
        for (at, frame) in step.frames.iter().take(evaluated).enumerate() {
            // A frame in pieces counts once, with the last of them.
            if step.completes(at) {
                let lag_ms = u64::try_from(now_ms.saturating_sub(frame.time_ms)).unwrap_or(0);
                self.evaluation_lag.record(Duration::from_millis(lag_ms));
            }
        }
    }

    /// Returns the first frame that was not evaluated; 0 while nothing is.
    pub(crate) fn position(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Returns the times from the writes of frames to their evaluation.
    pub(crate) fn evaluation_lag(&self) -> HistogramSnapshot {
        self.evaluation_lag.snapshot()
    }

    /// Notes how far a rule is that catches up.
    pub(crate) fn catches_up(&self, rule: &str, change: impl FnOnce(&mut Progress)) {
        change(self.backfills.lock().entry(rule.to_owned()).or_default());
    }

    /// Returns whether a rule was paused while it caught up.
    pub(crate) fn is_paused(&self, rule: &str) -> bool {
        self.backfills.lock().get(rule).is_some_and(|told| told.paused)
    }

    /// Has one that was begin anew: it was changed, or enabled.
    pub(crate) fn restart(&self, rule: &str) {
        let mut told = self.backfills.lock();
        if told.get(rule).is_some_and(|told| told.paused) {
            told.remove(rule);
        }
    }

    /// Notes that a rule does not catch up any more.
    pub(crate) fn no_longer_catches_up(&self, rule: &str) {
        self.backfills.lock().remove(rule);
    }

    /// Forgets rules that do not catch up any more.
    pub(crate) fn retain_backfills(&self, rules: &[Arc<StoredRule>]) {
        self.backfills.lock().retain(|id, _| rules.iter().any(|kept| kept.rule.id == *id));
    }

    /// Notes why rules do not go on, or that they do.
    pub(crate) fn set_fault(&self, fault: Option<String>) {
        let mut told = self.fault.lock();
        if let Some(fault) = fault.as_ref().filter(|fault| told.as_ref() != Some(fault)) {
            tracing::warn!(fault, "rules do not go on");
        }
        *told = fault;
    }

    /// Notes that something is being written, or that it was.
    pub(crate) fn set_writing(&self, writing: bool) {
        *self.writing.lock() = writing.then(Instant::now);
    }

    /// Lists why rules do not go on.
    pub(crate) fn faults(&self) -> Vec<String> {
        let long = self.writing.lock().map(|since| since.elapsed()).filter(|waited| *waited > LONG_WRITE);
        let waits = || long.map(|waited| format!("alerts have not been written for {} s", waited.as_secs()));
        let overload = self.overload.lock().clone();
        self.fault.lock().clone().or_else(waits).into_iter().chain(overload).collect()
    }

    /// Tells how many rules do not watch what they are to watch: those that are paused, and those of which some index cannot be
    /// asked. Which these are, and why, is for those who see them.
    pub(crate) fn describe_unwatched(&self, is_enabled: impl Fn(&str) -> bool) -> Option<String> {
        let (paused, unwatched) = self.count_unwatched(is_enabled);
        let parts = [("paused", paused), ("not watching all of their patterns", unwatched)];
        let parts: Vec<String> = parts
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(how, count)| format!("{how}: {count}"))
            .collect();
        let why = "[error] of the rules in /api/alert/list tells why";
        (!parts.is_empty()).then(|| format!("alert rules that are {}; {why}", parts.join(", ")))
    }

    /// Counts the rules that are paused, and those that do not watch all of their patterns.
    pub(crate) fn count_unwatched(&self, is_enabled: impl Fn(&str) -> bool) -> (usize, usize) {
        let is_paused = |status: &Status| matches!(status.condition, Condition::Paused { .. });
        let mut paused: BTreeSet<String> = self
            .rules
            .lock()
            .iter()
            .filter(|(_, status)| is_paused(status))
            .map(|(id, _)| id.clone())
            .collect();
        paused.extend(self.backfills.lock().iter().filter(|(_, told)| told.paused).map(|(id, _)| id.clone()));
        paused.retain(|id| is_enabled(id));
        let unwatched =
            self.problems.lock().keys().filter(|id| !paused.contains(*id) && is_enabled(id)).count();
        (paused.len(), unwatched)
    }

    /// Tells for how long the oldest frame that is not evaluated has been waiting, in milliseconds. Where it is not in memory any more, rules are
    /// so far behind that the time of the frame before does.
    pub(crate) fn lag_ms(&self, engine: &Engine) -> i64 {
        let (next, time_ms) = (self.next.load(Ordering::Relaxed), self.time_ms.load(Ordering::Relaxed));
        if engine.feed_end().is_ok_and(|end| next >= end) {
            return 0;
        }
        let since = engine.feed_time_ms(next).or((time_ms != 0).then_some(time_ms));
        since.map_or(0, |since| engine.clock().now_ms().saturating_sub(since).max(0))
    }

    /// Writes the record of a rule, of a moment and the lag of then.
    pub(crate) fn record(&self, kept: &StoredRule, lag_ms: i64, now_ms: i64) -> Value {
        let rule = &kept.rule;
        let definition = &rule.definition;
        let status = self.rules.lock().get(&rule.id).cloned();
        let mut record = definition.document();
        let (next, time_ms) = (self.next.load(Ordering::Relaxed), self.time_ms.load(Ordering::Relaxed));
        let paused = match status.as_ref().map(|status| &status.condition) {
            Some(Condition::Paused { reason, time, frame }) if definition.enabled => {
                Some((reason.clone(), *time, *frame))
            }
            _ => None,
        };
        let reason = paused.as_ref().map(|(reason, ..)| format!("is paused: {reason}"));
        let error = reason.or_else(|| self.problems.lock().get(&rule.id).cloned());
        // A rule that was saved a moment ago has not run yet.
        let has_run = definition.enabled && next > rule.since + 1 && time_ms > 0;
        let progress = kept.backfill.map(|from| {
            let progress = self.backfills.lock().get(&rule.id).cloned().unwrap_or_default();
            (from, progress)
        });
        let (has_run, time_ms, lag_ms) = match &progress {
            None => (has_run, time_ms, lag_ms),
            Some((_, Progress { at_ms: Some(at_ms), .. })) => (true, *at_ms, (now_ms - at_ms).max(0)),
            Some((from, _)) => (false, 0, (now_ms - from.seen_from).max(0)),
        };
        // What has come since is not evaluated before the rule is enabled.
        let last_event = status.as_ref().and_then(|status| status.last_event);
        let paused_since = paused.as_ref().and_then(|(_, time, _)| time.or(last_event));
        let lag_ms = paused_since.map_or(lag_ms, |since| (now_ms - since.ms()).max(lag_ms));
        let is_paused = paused.is_some() || progress.as_ref().is_some_and(|(_, progress)| progress.paused);
        let error = error.or_else(|| progress.as_ref().and_then(|(_, progress)| progress.said()));
        let progress_at = progress.as_ref().and_then(|(_, progress)| progress.at_ms).map(Time::from_ms);
        let catching_up = progress.map(|(from, progress)| {
            json!({
                "seen_from": Time::from_ms(from.seen_from).iso(),
                "raised_from": from.raised_from.map(|from| Time::from_ms(from).iso()),
                "at": progress.at_ms.map(|at| Time::from_ms(at).iso()),
                "documents": progress.documents,
            })
        });
        let notices = definition
            .notices()
            .into_iter()
            .map(|notice| json!({"option": notice.option, "reason": notice.reason}));
        let added = json!({
            "id": rule.id,
            "name": definition.name,
            "index": definition.index.join(","),
            "enabled": definition.enabled,
            "revision": rule.revision,
            "state": {"owner": rule.owner},
            "last_run": has_run.then(|| Time::from_ms(time_ms).iso()),
            "last_alert": status.as_ref().and_then(|status| status.last_alert).map(Time::iso),
            "passed_over": status.as_ref().map(|status| json!({
                "outside_schedule": status.outside_schedule,
                "too_deep": status.too_deep,
                "too_late": status.too_late,
                "ahead_of_clock": status.ahead,
            })),
            "lag": lag_ms,
            "paused": is_paused.then(|| json!({
                "since": paused_since.or(progress_at).map(Time::iso),
                "frame": paused.as_ref().map(|(_, _, frame)| frame),
            })),
            "catching_up": catching_up,
            "error": error,
            "notices": notices.collect::<Vec<_>>(),
        });
        if let (Value::Object(record), Value::Object(added)) = (&mut record, added) {
            record.extend(added);
        }
        record
    }
}
