//! Rules in memory: the core with its state, who matches, and what is to be written. One at a time has it, behind a lock that
//! the runner holds for a batch of frames and a change of rules for as long as it takes.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use millrace_rules::Time;
use millrace_rules::engine::{Engine as Rules, Operation};
use millrace_storage::wal::AppliedFrame;
use serde_json::{Value, json};

use crate::commit::{Pending, Position};
use crate::matching::{Evaluable, Known, Matching};

/// Rules in memory.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) rules: Rules,
    pub(crate) matching: Matching,
    /// What is to be written, in the order of frames. Nothing is evaluated before it is.
    pub(crate) pending: VecDeque<Pending>,
    pub(crate) position: Position,
    /// The first frame that was not evaluated.
    pub(crate) next: u64,
    /// Whether a rule matched anything behind the stored position.
    pub(crate) has_matched: bool,
    /// Rules whose state may be another since it was asked last.
    pub(crate) touched: BTreeSet<String>,
    activity: BTreeMap<String, Activity>,
}

/// What a rule did since `alert_status` was told.
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
            has_matched: false,
            touched: BTreeSet::new(),
            activity: BTreeMap::new(),
        }
    }

    /// Evaluates frames that follow one another; what rules raise is pending then. Blocks: it is called on a compute thread.
    pub(crate) fn evaluate(&mut self, frames: &[Arc<AppliedFrame>], now_ms: i64) {
        let began = Instant::now();
        let evaluable = self.matching.run(frames);
        let seconds = began.elapsed().as_secs_f64();
        for one in evaluable {
            self.evaluate_one(one, seconds, now_ms);
        }
        self.tell(now_ms);
    }

    fn evaluate_one(&mut self, Evaluable { frame, matched }: Evaluable, seconds: f64, now_ms: i64) {
        for of in &matched {
            let hits = of.outcome.as_ref().map_or(0, Vec::len);
            let activity = active(&mut self.activity, &of.rule, frame.time);
            activity.hits += hits;
            activity.seconds = activity.seconds.max(seconds);
            self.touched.insert(of.rule.clone());
            self.has_matched = true;
        }
        let operations = self.rules.frame(&frame, &mut Known(matched));
        for (place, operation) in operations.into_iter().enumerate() {
            if let Operation::Alert { rule, .. } = &operation {
                active(&mut self.activity, rule, frame.time).matches += 1;
                // Of rules that wait for windows also where nothing of theirs has come.
                self.touched.insert(rule.clone());
            }
            self.pending.push_back(Pending::of(operation, frame.number, place, now_ms));
        }
        self.next = self.next.max(frame.number + 1);
    }

    /// Has what matching found out about rules written to `alert_error`.
    pub(crate) fn tell(&mut self, now_ms: i64) {
        for (place, (rule, reason)) in self.matching.take_told().into_iter().enumerate() {
            let frame = self.next.saturating_sub(1);
            let problem = Operation::Problem { rule, frame, reason };
            // Behind what rules tell of the same frame.
            self.pending.push_back(Pending::of(problem, frame, place + 1_000_000, now_ms));
        }
    }

    /// Has `alert_status` written for the rules that did anything.
    pub(crate) fn tell_activity(&mut self, now_ms: i64) {
        let frame = self.next.saturating_sub(1);
        let names: HashMap<&String, &String> =
            self.rules.rules().map(|rule| (&rule.id, &rule.definition.name)).collect();
        for (id, activity) in std::mem::take(&mut self.activity) {
            let Some(name) = names.get(&id) else { continue };
            let document: Value = json!({
                "@timestamp": Time::from_ms(now_ms).iso(),
                "rule_id": id,
                "rule_name": name,
                "starttime": activity.start.iso(),
                "endtime": activity.end.iso(),
                "hits": activity.hits,
                "matches": activity.matches,
                "time_taken": activity.seconds,
            });
            self.pending.push_back(Pending::status(frame, &id, &document));
        }
    }

    /// Takes the state, with the last frame that it has seen; `None` while something of it is not written.
    pub(crate) fn snapshot(&self) -> Option<(u64, Vec<u8>)> {
        let position = self.rules.position().filter(|_| self.pending.is_empty())?;
        Some((position, self.rules.snapshot()))
    }
}
