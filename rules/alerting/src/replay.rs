//! Rules over what is stored: tests, dry runs and runs.
//!
//! The operators and the matching are those of what arrives ([`Matching`]), over the feed read back in its order, so that the
//! same documents give the same alerts. Only rows that may match by the index are read ([`Matching::stored`]). Times are those
//! of frames: when documents were written. A rule begins as one that was enabled then, and has seen nothing before.
//!
//! What is held is bounded: windows of rows, a batch, the rule's state, and of alerts the first ones. All work is done in steps on
//! compute threads, behind that of others; who goes away leaves one step at most.

mod found;

use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use millrace_catalog::access::Principal;
use millrace_engine::Engine;
use millrace_notifications::NotificationReason;
use millrace_percolator::Matching;
use millrace_query::QueryContext;
use millrace_rules::engine::{Engine as Core, Operation, Rule};
use millrace_rules::{Bounds, Span, Time, Timing};
use millrace_runtime::tasks::{TaskCancelled, TaskDescription, TaskGuard, TaskSpec};
use millrace_runtime::{Error as StorageError, Priority};
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};

use self::found::AlertComparison;
pub use self::found::{Alert, Difference, ReplayedAlerts};
use crate::alert_chunks::{ChunkBuffer, MAX_PENDING, Matches};
use crate::changes::check_caller;
use crate::commit::Pending;
use crate::frame_reader::FrameReader;
use crate::runner::RunnerState;
use crate::{Alerting, Error, Result, commit};

/// Windows that may pass at once, and the least time.
const STRIDE_WINDOWS: i64 = 10;
const LEAST_STRIDE_MS: i64 = 60_000;
/// Alerts of which a dry run may compare the ids.
const MAX_COMPARED: usize = 200_000;
/// Bound on the problems that an answer lists.
const MAX_PROBLEMS: usize = 100;

/// Replays at a time, each of which may hold as much as a rule at work; others wait for their turn.
static TURNS: Semaphore = Semaphore::const_new(2);

/// Rule that a replay tests.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplaySubject {
    /// A rule that is stored, by its id: with its owner's rights.
    Stored(String),
    /// A rule that is not: with the asker's.
    Written(Value),
}

/// Result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Alerts that the rule raises.
    pub alerts: u64,
    /// Those that were not there before.
    pub created: u64,
    /// Problems: at most 100.
    pub problems: Vec<String>,
}

impl Alerting {
    /// Tells which alerts a rule would have raised between two times, in milliseconds; nothing is written.
    ///
    /// # Errors
    /// [`Error::NotFound`]; a definition that cannot be used; the store's.
    pub async fn test(
        &self,
        asker: &Principal,
        tested: ReplaySubject,
        times: Range<i64>,
    ) -> Result<ReplayedAlerts> {
        let rule = match tested {
            ReplaySubject::Stored(id) => {
                check_caller(asker)?;
                self.rule(asker, &id)?
            }
            ReplaySubject::Written(body) => {
                let definition = self.shared.read(asker, body).await?;
                let id = definition.id.clone().unwrap_or_else(|| "tested".to_owned());
                Rule { id, revision: 1, since: 0, owner: asker.name().to_owned(), definition }
            }
        };
        let mut found = ReplayedAlerts::default();
        let mut replay = Replay::begin(&self.shared, rule, times).await?;
        while let Some(operations) = replay.next().await? {
            found = taken(&replay.engine, operations, found, ReplayedAlerts::take).await?;
        }
        found.problems = replay.problems;
        Ok(found)
    }

    /// Tells which alerts a change of a rule would add and remove between two times, in milliseconds; nothing is written. Alerts are
    /// the same that have the same key and trigger.
    ///
    /// # Errors
    /// As [`Alerting::change`]; more alerts than can be compared.
    pub async fn dry_run(&self, asker: &Principal, body: Value, times: Range<i64>) -> Result<Difference> {
        let definition = self.shared.read(asker, body).await?;
        let old = self.shared.replaced(asker, &definition)?.map(|kept| kept.rule.clone());
        let (id, revision) = match &old {
            Some(old) => (old.id.clone(), old.revision),
            None => ("tested".to_owned(), 1),
        };
        // Under one revision: what tells alerts apart is their key and their trigger then.
        let new = Rule { id, revision, since: 0, owner: asker.name().to_owned(), definition };
        let before = match &old {
            Some(old) => self.ids(old, &times).await?,
            None => HashSet::new(),
        };
        let count = before.len();
        let AlertComparison { common, alone: adds, .. } = self.compare(new, &times, before).await?;
        let id = old.as_ref().map(|old| old.id.clone());
        let mut difference = Difference { id, adds, removes: ReplayedAlerts::default() };
        if let Some(old) = old.filter(|_| common.len() < count) {
            difference.removes = self.compare(old, &times, common).await?.alone;
        }
        Ok(difference)
    }

    /// Evaluates a rule over documents that were written between two times, in milliseconds, and writes the alerts under the ids that
    /// they have when the rule raises them as it goes; without `from`, its `timeframe` before `to`. The rule's state stays as it is.
    ///
    /// # Errors
    /// [`Error::NotFound`]; the store's: what was written until then stays.
    pub async fn run(&self, asker: &Principal, id: &str, from: Option<i64>, to: i64) -> Result<ReplayReport> {
        self.run_and_notify(asker, id, from, to, false).await
    }

    /// Does so, and has those that were not there before sent where `notify` says so.
    ///
    /// # Errors
    /// As [`Alerting::run`].
    pub async fn run_and_notify(
        &self,
        asker: &Principal,
        id: &str,
        from: Option<i64>,
        to: i64,
        notify: bool,
    ) -> Result<ReplayReport> {
        let rule = self.rule(asker, id)?;
        let window = rule.definition.timeframe().ms();
        let before = || match rule.definition.rule_type.is_waiting() {
            false => to.saturating_sub(window),
            // The last window that is over, and as long before: windows begin at whole multiples of their length.
            true => {
                to.saturating_sub(window.saturating_mul(2)).div_euclid(window.max(1)).saturating_mul(window)
            }
        };
        let times = from.unwrap_or_else(before)..to;
        let (mut ran, mut created) = (ReplayReport::default(), HashSet::new());
        let (engine, told_of) = (&self.shared.engine, Arc::new(rule.clone()));
        let notifications = self.shared.notifications.as_ref().filter(|_| notify);
        let give_up_ms = notifications.map(|notifications| notifications.give_up_ms());
        let is_waiting = rule.definition.rule_type.is_waiting();
        let mut replay = Replay::begin(&self.shared, rule, times).await?;
        while let Some(operations) = replay.next().await? {
            let mut left = operations.into_iter();
            while !left.as_slice().is_empty() {
                replay.task.check().map_err(cancelled)?;
                let (now_ms, rule) = (engine.clock().now_ms(), Arc::clone(&told_of));
                let written = move || {
                    let some = written(&rule, &mut left, now_ms, give_up_ms);
                    Ok((some, left))
                };
                let some;
                (some, left) = engine.compute().run(Priority::Background, written).await?;
                let RuleOutput { mut alerts, changes } = some;
                ran.alerts += alerts.len() as u64;
                let new = commit::commit_beside_feed(engine, &mut alerts).await?;
                ran.created += new.len() as u64;
                // Only rules that wait for windows change what they have raised.
                if is_waiting {
                    created.extend(new);
                }
                // What is there already may know more than what was evaluated here.
                let changes = changes.into_iter().filter(|(id, _)| created.contains(id));
                commit::commit_beside_feed(engine, &mut changes.map(|(_, change)| change).collect()).await?;
                if let Some(notifications) = notifications {
                    notifications.committed(0, true);
                }
            }
        }
        ran.problems = replay.problems;
        Ok(ran)
    }

    /// Tells alerts of a rule that there are otherwise from those that there are not.
    async fn compare(
        &self,
        rule: Rule,
        times: &Range<i64>,
        others: HashSet<String>,
    ) -> Result<AlertComparison> {
        let mut compared = AlertComparison { others, ..AlertComparison::default() };
        let mut replay = Replay::begin(&self.shared, rule, times.clone()).await?;
        while let Some(operations) = replay.next().await? {
            compared = taken(&replay.engine, operations, compared, AlertComparison::take).await?;
        }
        compared.alone.problems = replay.problems;
        Ok(compared)
    }

    /// Returns the ids of the alerts of a rule.
    async fn ids(&self, rule: &Rule, times: &Range<i64>) -> Result<HashSet<String>> {
        let mut ids = HashSet::new();
        let mut replay = Replay::begin(&self.shared, rule.clone(), times.clone()).await?;
        while let Some(operations) = replay.next().await? {
            let take = |ids: &mut HashSet<String>, operation: Operation| {
                if let Operation::Alert { id, .. } = operation {
                    ids.insert(id);
                }
            };
            ids = taken(&replay.engine, operations, ids, take).await?;
            if ids.len() > MAX_COMPARED {
                let reason = format!("[dry_run] more than {MAX_COMPARED} alerts: choose a shorter time");
                return Err(Error::Invalid(reason));
            }
        }
        Ok(ids)
    }
}

/// Has what a rule says taken on a compute thread, where what nobody keeps is dropped, too: documents are many.
async fn taken<T: Send + 'static>(
    engine: &Engine,
    operations: Vec<Operation>,
    mut into: T,
    take: fn(&mut T, Operation),
) -> Result<T> {
    let job = move || {
        operations.into_iter().for_each(|operation| take(&mut into, operation));
        Ok(into)
    };
    Ok(engine.compute().run(Priority::Background, job).await?)
}

/// Output of a rule, as it is written.
struct RuleOutput {
    /// Alerts that are to be there, with what is to be sent of them.
    alerts: VecDeque<Pending>,
    /// Changes of members of alerts, by the ids of the alerts.
    changes: Vec<(String, Pending)>,
}

/// Makes of what a rule says what is written, with what is to be sent where `give_up_ms` says until when. Where alerts are as many as
/// are written at once, which a few with many channels are, the rest of it is left.
fn written(
    rule: &Rule,
    operations: &mut impl Iterator<Item = Operation>,
    now_ms: i64,
    give_up_ms: Option<i64>,
) -> RuleOutput {
    let rows = |id: &str, document: &Value| match give_up_ms {
        Some(give_up_ms) => {
            millrace_notifications::rows(rule, id, NotificationReason::Alert(document), 0, now_ms, give_up_ms)
        }
        None => Vec::new(),
    };
    let (mut alerts, mut changes, mut bytes) = (VecDeque::new(), Vec::new(), 0);
    let change = |id: String, members| (id.clone(), Pending::change(id, members, &rule.definition.roles));
    while bytes < MAX_PENDING
        && let Some(operation) = operations.next()
    {
        match operation {
            Operation::Alert { id, document, .. } => {
                let rows = rows(&id, &document);
                let alert = Pending::alert(id, &document).with_rows(rows);
                bytes += alert.bytes;
                alerts.push_back(alert);
            }
            Operation::Revision { id, document, .. } => changes.push(change(id, document)),
            Operation::Recovery { id, time, .. } => changes.push(change(id, commit::recovered(time))),
            Operation::Silence { .. } | Operation::Problem { .. } => {}
        }
    }
    RuleOutput { alerts, changes }
}

fn cancelled(cancelled: TaskCancelled) -> Error {
    Error::Conflict(cancelled.to_string())
}

/// A rule on its way over what is stored.
struct Replay {
    engine: Arc<Engine>,
    reading: FrameReader,
    /// Until when windows are closed.
    until: i64,
    /// `None` while a step is on its way.
    evaluating: Option<(Matching, Core)>,
    /// Matches of a step that are to come.
    left: Matches,
    /// Time that passes at once: windows of a long silence are closed some at a time.
    stride: Span,
    problems: Vec<String>,
    task: TaskGuard,
    _turn: SemaphorePermit<'static>,
}

impl Replay {
    async fn begin(shared: &RunnerState, mut rule: Rule, times: Range<i64>) -> Result<Self> {
        let closed = |_| Error::Storage(StorageError::Internal("no replay has a turn".to_owned()));
        let turn = TURNS.acquire().await.map_err(closed)?;
        let description = TaskDescription::text(&format!("rule[{}], id[{}]", rule.definition.name, rule.id));
        let spec = TaskSpec::cancellable("cluster:console/alert/replay").with_description(description);
        let task = shared.engine.tasks().start(spec);
        rule.definition.enabled = true;
        rule.since = 0;
        let (engine, accounts) = (Arc::clone(&shared.engine), Arc::clone(&shared.accounts));
        let lived = LiveRuleKnowledge::new(shared, &rule.id).await;
        let window = rule.definition.timeframe().ms();
        let work = QueryContext::default();
        // Who goes away stops the choosing of rows, too.
        let _ends = work.until_dropped();
        let prepared = {
            let (engine, work) = (Arc::clone(&engine), work.clone());
            move || {
                let mut matching = Matching::new(&engine, &accounts, Priority::Background);
                matching.put(&rule);
                let (indices, choice) = matching.stored(&work);
                let mut core = Core::new(Timing::default(), Bounds::default());
                core.put(rule);
                Ok((matching, core, indices, choice))
            }
        };
        let begun = async {
            let prepared = engine.compute().run(Priority::Background, prepared).await?;
            let (matching, core, indices, choice) = prepared;
            let reading = engine.read_back_chosen(&indices, 0..u64::MAX, times.clone(), &choice).await?;
            let reading = FrameReader::begin(reading, times.clone()).await?;
            Ok::<_, Error>((matching, core, reading))
        };
        let (matching, mut core, reading) = task.run(begun).await.map_err(cancelled)??;
        let until = times.end.min(lived.now);
        core.set_absences(lived.absences.clone());
        core.begin(Time::from_ms(lived.beginning(&times, until, window, reading.first())));
        let evaluating = Some((matching, core));
        let stride = Span::from_ms(window.saturating_mul(STRIDE_WINDOWS).max(LEAST_STRIDE_MS));
        let (left, problems) = (Matches::default(), Vec::new());
        Ok(Self { engine, reading, until, evaluating, left, stride, problems, task, _turn: turn })
    }

    /// Has time go on towards the end; `None` where it has come there.
    async fn end(&mut self) -> Result<Option<Vec<Operation>>> {
        let (until, stride) = (Time::from_ms(self.until), self.stride);
        let is_before = move |core: &Core| core.is_amid() || core.now() < until;
        let Some((matching, mut core)) = self.evaluating.take().filter(|(_, core)| is_before(core)) else {
            return Ok(None);
        };
        let task = self.task.handle();
        let step = move || {
            let mut raised = ChunkBuffer::default();
            while is_before(&core) && !raised.is_enough() && task.check().is_ok() {
                raised.add(match core.is_amid() {
                    true => core.go_on(),
                    false => core.begin_advance(until.min(core.now().plus(stride))),
                });
            }
            Ok((matching, core, raised.operations))
        };
        let step = async { self.engine.compute().run(Priority::Background, step).await };
        let (matching, core, operations) = self.task.scope(step).await?;
        self.evaluating = Some((matching, core));
        // A cancelled step has ended early: it is not the same as others.
        self.task.check().map_err(cancelled)?;
        Ok(Some(operations))
    }

    /// Goes on by a step, and returns what the rule says there: alerts in their order. `None` at the end.
    async fn next(&mut self) -> Result<Option<Vec<Operation>>> {
        if self.engine.is_stopping() {
            return Err(StorageError::Stopped("the server is stopping".to_owned()).into());
        }
        self.task.check().map_err(cancelled)?;
        let read = match self.left.is_empty() {
            true => match self.task.run(self.reading.next()).await.map_err(cancelled)?? {
                None => return self.end().await,
                read => read,
            },
            false => None,
        };
        let ended = || Error::Storage(StorageError::Internal("the replay ended before".to_owned()));
        let (mut matching, mut core) = self.evaluating.take().ok_or_else(ended)?;
        let (mut left, stride) = (std::mem::take(&mut self.left), self.stride);
        let task = self.task.handle();
        let step = move || {
            if let Some(step) = read {
                left = Matches::new(&mut matching, &step);
            }
            let mut raised = ChunkBuffer::default();
            while !raised.is_enough() && task.check().is_ok() {
                if let Some(next) = left.next_frame() {
                    if core.is_amid() {
                        raised.add(core.go_on());
                        continue;
                    }
                    let (now, soon) = (core.now(), core.now().plus(stride));
                    if now > Time::from_ms(i64::MIN) && soon < next.frame.time {
                        raised.add(core.begin_advance(soon));
                        // In the midst of a frame time stands still.
                        if core.now() > now {
                            continue;
                        }
                    }
                }
                let Some(part) = left.evaluate(&mut core) else { break };
                raised.add(part.operations);
            }
            core.tick();
            Ok((matching, core, left, raised.operations))
        };
        let (mut matching, core, left, operations) =
            self.task.scope(async { self.engine.compute().run(Priority::Background, step).await }).await?;
        self.left = left;
        self.task.check().map_err(cancelled)?;
        let told = matching.take_told().into_iter().map(|(_, reason)| reason);
        let said = operations.iter().filter_map(|operation| match operation {
            Operation::Problem { reason, .. } => Some(reason.clone()),
            _ => None,
        });
        for problem in told.chain(said) {
            if self.problems.len() < MAX_PROBLEMS && !self.problems.contains(&problem) {
                self.problems.push(problem);
            }
        }
        self.evaluating = Some((matching, core));
        Ok(Some(operations))
    }
}

/// Knowledge of live rules about the time that is evaluated again.
pub(crate) struct LiveRuleKnowledge {
    /// Times at which the server was down.
    pub(crate) absences: Vec<(Time, Time)>,
    /// Current time of the replay.
    pub(crate) now: i64,
    /// Time at which the rule began, where it is live.
    begun: Option<i64>,
}

/// Windows without events that are looked at before the first one.
const MAX_BEFORE: i64 = 10_000;

/// Returns whether a rule can begin at a time, though nothing comes until another one.
pub(crate) fn can_begin(from: i64, until: i64, window: i64) -> bool {
    until.saturating_sub(from) / window.max(1_000) <= MAX_BEFORE
}

impl LiveRuleKnowledge {
    pub(crate) async fn new(shared: &RunnerState, rule: &str) -> Self {
        let lease = shared.borrower.lease().await.ok();
        // A frame that is written now may be a little older.
        let clock = shared.engine.clock().now_ms().saturating_sub(1_000);
        let core = lease.as_ref().and_then(|lease| lease.as_ref());
        match core.map(|core| &core.rules) {
            Some(rules) => Self {
                absences: rules.absences().to_vec(),
                now: if rules.has_waiting() { rules.now().ms() } else { clock },
                begun: rules.status(rule).and_then(|status| status.begun).map(Time::ms),
            },
            None => Self { absences: Vec::new(), now: clock, begun: None },
        }
    }

    /// Returns the time at which a rule begins that is enabled at the start of some times. That is the start itself. Where the
    /// start is many windows ago, it is the first document that the rule may match, or the rule's own beginning.
    fn beginning(&self, times: &Range<i64>, until: i64, window: i64, first: Option<i64>) -> i64 {
        if can_begin(times.start, until, window) {
            return times.start;
        }
        let began = self.begun.filter(|begun| *begun >= times.start);
        first.into_iter().chain(began).min().unwrap_or(until)
    }
}

#[cfg(test)]
mod tests {
    use millrace_rules::definition::Definition;
    use millrace_rules::definition::notification::{Channel, Method};
    use serde_json::{Map, json};

    use super::*;

    #[test]
    fn alerts_with_large_rows_are_written_a_few_at_a_time() {
        let mut definition = Definition::parse(&json!({"name": "r", "index": "i", "type": "any"})).unwrap();
        definition.notification.channels = ["a", "b"]
            .map(|name| {
                let options = Map::from_iter([("text".to_owned(), name.repeat(4 << 20).into())]);
                Channel { name: name.to_owned(), method: Method::Webhook, options }
            })
            .into();
        let rule = Rule { id: "r".to_owned(), revision: 1, since: 0, owner: "ann".to_owned(), definition };
        for (give_up_ms, expected) in [(Some(1_000), &[2, 2, 1][..]), (None, &[5][..])] {
            let alert = |id: usize| Operation::Alert {
                rule: "r".to_owned(),
                id: id.to_string(),
                document: json!({}),
            };
            let mut operations = (0..5).map(alert).peekable();
            let mut sizes = Vec::new();
            while operations.peek().is_some() {
                sizes.push(written(&rule, &mut operations, 0, give_up_ms).alerts.len());
            }
            assert_eq!(sizes, expected);
        }
    }
}
