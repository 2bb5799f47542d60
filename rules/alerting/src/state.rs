//! Rules in memory: the core with its state, the matcher, and the operations that are to be written. One at a time has it: the runner
//! for a batch of frames, a change of rules for as long as it takes ([`crate::state_owner`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use millrace_notifications::NotificationReason;
use millrace_percolator::{Evaluable, Matching};
use millrace_rules::engine::{Condition, Engine as Rules, Operation, Rule};
use millrace_rules::{Time, cut, for_roles};
use serde_json::{Value, json};

use crate::alert_chunks::{AlertChunk, MAX_PENDING, Matches};
use crate::commit::{Pending, Position};
use crate::store::StoredRule;

/// Rules in memory.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) rules: Rules,
    pub(crate) matching: Matching,
    /// Operations that are to be written, in the order of frames. Nothing is evaluated before it is.
    pub(crate) pending: VecDeque<Pending>,
    pub(crate) position: Position,
    /// The first frame that was not evaluated.
    pub(crate) next: u64,
    /// `true` if frames are read back that the log does not have: of the indices that the rules watched when that began, so that
    /// no rule may join them before the end.
    pub(crate) reading_gap: bool,
    /// `true` if some of a batch of frames is evaluated and some is not: the matches of the rest are known, so that no rule may
    /// change.
    pub(crate) is_amid_step: bool,
    /// `true` if a rule matched anything behind the stored position.
    pub(crate) has_matched: bool,
    /// For how long notifications are tried; `None` where none are sent.
    pub(crate) notifies: Option<i64>,
    /// Rules whose state may be another since it was asked last.
    pub(crate) touched: BTreeSet<String>,
    activity: BTreeMap<String, Activity>,
    /// Time of the last notification that a rule does not watch all that it has to watch.
    problems_told: BTreeMap<String, i64>,
}

/// A notification about any problem of a rule is sent at most this often: a pattern may name many indices.
const PROBLEMS_EVERY_MS: i64 = 3_600_000;
/// As many rules are told of in that time; of the others `_cluster/health` and `alert_error` tell.
const MAX_PROBLEMS: usize = 50;
/// Bytes of its text.
const MAX_PROBLEM: usize = 2_000;

/// Next step after the evaluation of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Other frames.
    Frames,
    /// The rest of these, once what was raised is written.
    Rest,
    /// Evaluation ended early, mostly for a change of rules: the last frames of these are to be matched again.
    Early { left: usize },
}

/// Activity of a rule since the last `alert_status`.
#[derive(Debug)]
struct Activity {
    start: Time,
    end: Time,
    hits: usize,
    matches: usize,
    seconds: f64,
}

/// The activity of a rule, at a time.
fn active<'a>(all: &'a mut BTreeMap<String, Activity>, rule: &str, time: Time) -> &'a mut Activity {
    let new = || Activity { start: time, end: time, hits: 0, matches: 0, seconds: 0.0 };
    let activity = all.entry(rule.to_owned()).or_insert_with(new);
    activity.end = time;
    activity
}

impl Core {
    pub(crate) fn new(rules: Rules, matching: Matching, position: Position, next: u64) -> Self {
        Self {
            rules,
            matching,
            pending: VecDeque::new(),
            position,
            next,
            reading_gap: false,
            is_amid_step: false,
            has_matched: false,
            notifies: None,
            touched: BTreeSet::new(),
            activity: BTreeMap::new(),
            problems_told: BTreeMap::new(),
        }
    }

    /// Evaluates frames; the raised operations are pending then. Ends early where that is so much that it is to be written, and
    /// between two frames where `ends_early` says so. Blocks: it is called on a compute thread.
    pub(crate) fn evaluate(
        &mut self,
        matches: &mut Matches,
        now_ms: i64,
        ends_early: impl Fn() -> bool,
    ) -> NextStep {
        self.is_amid_step = true;
        let mut bytes: usize = self.pending.iter().map(|pending| pending.bytes).sum();
        while bytes < MAX_PENDING {
            if let Some(left) = matches.left()
                && self.has_caught_up()
                && self.rules.is_between_frames()
                && ends_early()
            {
                self.is_amid_step = false;
                return NextStep::Early { left };
            }
            let failed = match matches.next_frame() {
                Some(next) => self.note(next, matches.seconds),
                None => Vec::new(),
            };
            let Some(AlertChunk { frame, time, before, operations, ends }) =
                matches.evaluate(&mut self.rules)
            else {
                self.tell(now_ms);
                self.is_amid_step = false;
                return NextStep::Frames;
            };
            for rule in failed {
                self.ask_no_longer_if_paused(&rule);
            }
            for (place, operation) in (before..).zip(operations) {
                bytes += self.raise(operation, frame, place, time, now_ms);
            }
            if ends {
                self.next = self.next.max(frame + 1);
                // The position of its first parts is before it.
                self.has_matched |= before > 0;
            }
        }
        NextStep::Rest
    }

    /// Returns whether rules are where they were before the start.
    fn has_caught_up(&self) -> bool {
        self.position.next().is_none_or(|committed| committed <= self.next)
    }

    /// Returns whether rules may change: a change must not count for frames of the time before it that are only evaluated again,
    /// or in part.
    pub(crate) fn can_be_changed(&self) -> bool {
        self.has_caught_up() && !self.is_amid_step && self.rules.is_between_frames()
    }

    /// Notes what rules match of a frame that they are about to evaluate; returns those whose filters could not be asked.
    fn note(&mut self, Evaluable { frame, matched, .. }: &Evaluable, seconds: f64) -> Vec<String> {
        for of in matched {
            let hits = of.outcome.as_ref().map_or(0, Vec::len);
            let activity = active(&mut self.activity, &of.rule, frame.time);
            activity.hits += hits;
            activity.seconds = activity.seconds.max(seconds);
            self.touched.insert(of.rule.clone());
            self.has_matched = true;
        }
        matched.iter().filter(|of| of.outcome.is_err()).map(|of| of.rule.clone()).collect()
    }

    /// Has an operation of a frame written; returns the bytes that it has.
    fn raise(&mut self, operation: Operation, frame: u64, place: usize, time: Time, now_ms: i64) -> usize {
        if let Operation::Alert { rule, .. } = &operation {
            active(&mut self.activity, rule, time).matches += 1;
            // Of rules that wait for windows also where nothing of theirs has come.
            self.touched.insert(rule.clone());
        }
        let mut rows = rows_of(&self.rules, &operation, frame, now_ms, self.notifies);
        if let Operation::Problem { rule, reason, .. } = &operation
            && self
                .rules
                .status(rule)
                .is_some_and(|status| matches!(status.condition, Condition::Paused { .. }))
        {
            rows = self.problem_rows(&rule.clone(), &format!("it is paused: {reason}"), frame, now_ms);
        }
        let roles = roles_of(&self.rules, &operation);
        let pending = Pending::from_operation(operation, frame, place, now_ms, roles).with_rows(rows);
        let bytes = pending.bytes;
        self.pending.push_back(pending);
        bytes
    }

    /// Returns whether a rule may be taken over: all that was raised is written, no frame is there in part, and none is read
    /// back.
    pub(crate) fn can_be_joined(&self) -> bool {
        !self.reading_gap && !self.is_amid_step && self.pending.is_empty() && self.rules.is_between_frames()
    }

    /// Puts a rule as it is stored; one that is to catch up first is not here until it has.
    pub(crate) fn put(&mut self, kept: &StoredRule) {
        if kept.backfill.is_some() {
            self.rules.remove(&kept.rule.id);
            self.matching.remove(&kept.rule.id);
        } else {
            self.rules.put(kept.rule.clone());
            self.ask(&kept.rule);
        }
        self.touched.insert(kept.rule.id.clone());
    }

    /// Has a rule asked as it is now, unless it is paused.
    pub(crate) fn ask(&mut self, rule: &Rule) {
        self.matching.put(rule);
        self.ask_no_longer_if_paused(&rule.id);
    }

    /// Has the filter of a rule that is paused not asked any more: it would cost the others what it was paused for.
    fn ask_no_longer_if_paused(&mut self, rule: &str) {
        let condition = self.rules.status(rule).map(|status| status.condition);
        if matches!(condition, Some(Condition::Paused { .. })) {
            self.matching.remove(rule);
        }
    }

    /// Has what matching found out about rules written to `alert_error`.
    pub(crate) fn tell(&mut self, now_ms: i64) {
        for (place, (rule, reason)) in self.matching.take_told().into_iter().enumerate() {
            let frame = self.next.saturating_sub(1);
            // One that is gone by now has nobody to tell it to.
            if self.rules.rule(&rule).is_none() {
                continue;
            }
            let rows = self.problem_rows(&rule, &reason, frame, now_ms);
            let problem = Operation::Problem { rule, frame, reason };
            let roles = roles_of(&self.rules, &problem);
            // Behind what rules tell of the same frame.
            let pending =
                Pending::from_operation(problem, frame, place + 1_000_000, now_ms, roles).with_rows(rows);
            self.pending.push_back(pending);
        }
    }

    /// Makes what tells by the channels of a rule that it does not watch what it is to watch.
    fn problem_rows(&mut self, id: &str, reason: &str, frame: u64, now_ms: i64) -> Vec<(String, Value)> {
        let (Some(give_up_ms), Some(rule)) = (self.notifies, self.rules.rule(id)) else { return Vec::new() };
        self.problems_told.retain(|_, told| now_ms.saturating_sub(*told) < PROBLEMS_EVERY_MS);
        let is_new = !self.problems_told.contains_key(id);
        // What there was up to the committed position was told.
        if !is_new || self.problems_told.len() >= MAX_PROBLEMS || !self.has_caught_up() {
            return Vec::new();
        }
        let name = &rule.definition.name;
        let document = json!({
            "@timestamp": Time::from_ms(now_ms).iso(),
            "alert_subject": format!("Rule does not watch all that it is to: {name}"),
            "alert_text": cut(reason, MAX_PROBLEM),
            "rule_id": id,
            "rule_name": name,
            // An incident of its own, beside those of alerts.
            "key": "(rule problem)",
        });
        let occasion = NotificationReason::Problem(&document);
        let rows = millrace_notifications::rows(
            rule,
            &format!("problem-{frame}-{id}"),
            occasion,
            frame,
            now_ms,
            give_up_ms,
        );
        self.problems_told.insert(id.to_owned(), now_ms);
        rows
    }

    /// Has `alert_status` written for the rules that did anything.
    pub(crate) fn tell_activity(&mut self, now_ms: i64) {
        let frame = self.next.saturating_sub(1);
        for (id, activity) in std::mem::take(&mut self.activity) {
            let Some(rule) = self.rules.rule(&id) else { continue };
            let document: Value = json!({
                "@timestamp": Time::from_ms(now_ms).iso(),
                "rule_id": id,
                "rule_name": rule.definition.name,
                "starttime": activity.start.iso(),
                "endtime": activity.end.iso(),
                "hits": activity.hits,
                "matches": activity.matches,
                "time_taken": activity.seconds,
            });
            let document = for_roles(document, &rule.definition.roles);
            self.pending.push_back(Pending::status(frame, &id, &document));
        }
    }

    /// Takes the state, with the last frame that it has seen; `None` while something of it is not written.
    pub(crate) fn snapshot(&self) -> Option<(u64, Vec<u8>)> {
        let position = self.rules.position().filter(|_| self.pending.is_empty() && !self.is_amid_step)?;
        Some((position, self.rules.snapshot()))
    }
}

/// Makes what an operation adds to the outbox; `notifies` is for how long notifications are tried.
pub(crate) fn rows_of(
    rules: &Rules,
    operation: &Operation,
    frame: u64,
    now_ms: i64,
    notifies: Option<i64>,
) -> Vec<(String, Value)> {
    let (rule, id, occasion) = match operation {
        Operation::Alert { rule, id, document } => (rule, id, NotificationReason::Alert(document)),
        Operation::Recovery { rule, id, key, time } => {
            (rule, id, NotificationReason::Recovery { key, time: *time })
        }
        Operation::Revision { .. } | Operation::Silence { .. } | Operation::Problem { .. } => {
            return Vec::new();
        }
    };
    let (Some(give_up_ms), Some(rule)) = (notifies, rules.rule(rule)) else { return Vec::new() };
    millrace_notifications::rows(rule, id, occasion, frame, now_ms, give_up_ms)
}

/// The roles that the rule is for of which something is said.
pub(crate) fn roles_of<'a>(rules: &'a Rules, operation: &Operation) -> &'a [String] {
    let (Operation::Alert { rule, .. }
    | Operation::Revision { rule, .. }
    | Operation::Recovery { rule, .. }
    | Operation::Silence { rule, .. }
    | Operation::Problem { rule, .. }) = operation;
    rules.rule(rule).map(|rule| rule.definition.roles.as_slice()).unwrap_or_default()
}
