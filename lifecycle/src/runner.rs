//! The event loop of policies: passes over managed indices, retention, and policies of snapshots.
//!
//! The loop looks once a second what is due by the engine's clock. Each of the three has an interval of its own; the settings of policies
//! of indices are about the passes alone. Work that takes long runs in tasks of its own, one at a time for
//! an index or a policy, and tells the loop when it has ended.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use millrace_catalog::metadata::Metadata;
use millrace_runtime::{EventHandler, EventLoop, EventSender, Instant, Mailbox};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::LifecycleContext;
use crate::decide::is_interval_over;
use crate::{document_retention, pass, retention, snapshot_policy};

/// Interval between two checks for due work.
const TICK: Duration = Duration::from_secs(1);
/// Messages that wait for the loop, at most; at the bound, work that has ended waits to say so.
const MAILBOX_CAPACITY: usize = 256;
/// Cluster setting with the minutes between two passes.
const JOB_INTERVAL: &str = "plugins.index_state_management.job_interval";
/// Cluster setting that stops all policies of indices.
const ENABLED: &str = "plugins.index_state_management.enabled";

/// A message to the loop.
pub(crate) enum RunnerMessage {
    /// A pass over an index has ended.
    PassEnded(String),
    /// Work of a policy of snapshots has ended.
    SnapshotsEnded(String),
    /// Retention by space has ended.
    RetentionEnded,
    /// To run everything that is due now, whatever the intervals say, and to answer at its end.
    RunNow(oneshot::Sender<()>),
}

/// The state of the loop.
struct Runner {
    context: Arc<LifecycleContext>,
    sender: EventSender<RunnerMessage>,
    passing: HashSet<String>,
    snapshotting: HashSet<String>,
    retaining: bool,
    /// Tasks, which end with the loop.
    tasks: JoinSet<()>,
    /// Time of the last round of passes, in milliseconds; `None` before the first.
    passed_ms: Option<i64>,
    /// Time of the last retention by space, in milliseconds.
    retained_ms: Option<i64>,
    /// Time of the last deletion of documents by their age.
    deleted_ms: Option<i64>,
    next_tick: Instant,
    waiting: Vec<oneshot::Sender<()>>,
}

/// Starts the loop.
pub(crate) fn spawn(context: &Arc<LifecycleContext>) -> (EventSender<RunnerMessage>, EventLoop) {
    let (sender, mailbox) = Mailbox::with_capacity(MAILBOX_CAPACITY);
    let runner = Runner {
        context: Arc::clone(context),
        sender: sender.clone(),
        passing: HashSet::new(),
        snapshotting: HashSet::new(),
        retaining: false,
        tasks: JoinSet::new(),
        passed_ms: None,
        retained_ms: None,
        deleted_ms: None,
        next_tick: Instant::now(),
        waiting: Vec::new(),
    };
    (sender, EventLoop::spawn(runner, mailbox))
}

/// Reads the interval of passes, in milliseconds; `None` where policies are stopped.
fn interval_ms(metadata: &Metadata) -> Option<i64> {
    let text = |key: &str| match metadata.cluster_setting(key) {
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
        None => String::new(),
    };
    if text(ENABLED) == "false" {
        return None;
    }
    let minutes: i64 = text(JOB_INTERVAL).parse().unwrap_or(5);
    Some(minutes.clamp(1, 1_000_000) * 60_000)
}

impl EventHandler for Runner {
    type Message = RunnerMessage;

    async fn handle(&mut self, message: RunnerMessage) {
        match message {
            RunnerMessage::PassEnded(id) => drop(self.passing.remove(&id)),
            RunnerMessage::SnapshotsEnded(id) => drop(self.snapshotting.remove(&id)),
            RunnerMessage::RetentionEnded => self.retaining = false,
            RunnerMessage::RunNow(reply) => {
                if interval_ms(&self.context.engine.metadata()).is_some() {
                    self.start_passes().await;
                }
                self.start_retention();
                self.start_snapshots();
                self.waiting.push(reply);
            }
        }
        while self.tasks.try_join_next().is_some() {}
        if self.is_idle() {
            self.waiting.drain(..).for_each(|reply| _ = reply.send(()));
        }
    }

    async fn run_due(&mut self) -> Option<Instant> {
        if Instant::now() >= self.next_tick {
            let now_ms = self.context.engine.clock().now_ms();
            if let Some(interval) = interval_ms(&self.context.engine.metadata())
                && is_interval_over(self.passed_ms, interval, now_ms)
            {
                self.start_passes().await;
            }
            if retention::is_due(self.retained_ms, now_ms) {
                self.start_retention();
            }
            self.start_snapshots();
            self.next_tick = Instant::now() + TICK;
        }
        Some(self.next_tick)
    }

    fn is_stopping(&self) -> bool {
        self.context.engine.is_stopping()
    }

    async fn drain(mut self, mailbox: &mut Mailbox<RunnerMessage>) {
        while !self.is_idle() {
            match mailbox.receive().await {
                Some(message) => self.handle(message).await,
                None => break,
            }
        }
    }
}

impl Runner {
    fn is_idle(&self) -> bool {
        self.passing.is_empty() && self.snapshotting.is_empty() && !self.retaining
    }

    /// Starts a pass over each managed index.
    async fn start_passes(&mut self) {
        let context = Arc::clone(&self.context);
        self.passed_ms = Some(context.engine.clock().now_ms());
        pass::forget_deleted(&context).await;
        pass::attach_new(&context).await;
        for managed in context.managed.all() {
            if managed.is_at_rest() || !self.passing.insert(managed.id.clone()) {
                continue;
            }
            let (context, sender) = (Arc::clone(&context), self.sender.clone());
            self.tasks.spawn(async move {
                let id = managed.id.clone();
                let mut work = JoinSet::new();
                let run = Arc::clone(&managed);
                work.spawn(async move { pass::run(&context, &run.id).await });
                // One that panics ends like any other.
                match work.join_next().await {
                    Some(Ok(Err(error))) => {
                        tracing::warn!(index = managed.index, %error, "a pass of a policy failed; the next one goes on");
                    }
                    Some(Err(error)) => tracing::error!(index = managed.index, %error, "a pass of a policy ended"),
                    _ => {}
                }
                let _ = sender.send(RunnerMessage::PassEnded(id)).await;
            });
        }
    }

    /// Starts retention by space, and the deletion of documents by their age if it is due.
    fn start_retention(&mut self) {
        if self.retaining {
            return;
        }
        self.retaining = true;
        let (context, sender) = (Arc::clone(&self.context), self.sender.clone());
        let now_ms = context.engine.clock().now_ms();
        self.retained_ms = Some(now_ms);
        let deletes = document_retention::is_due(self.deleted_ms, now_ms);
        if deletes {
            self.deleted_ms = Some(now_ms);
        }
        self.tasks.spawn(async move {
            if let Err(error) = retention::enforce(&context).await {
                tracing::warn!(%error, "retention by space failed; the next time it tries again");
            }
            if deletes {
                document_retention::enforce(&context).await;
            }
            let _ = sender.send(RunnerMessage::RetentionEnded).await;
        });
    }

    /// Starts what policies of snapshots have due.
    fn start_snapshots(&mut self) {
        let now_ms = self.context.engine.clock().now_ms();
        for policy in self.context.snapshot_policies.all() {
            if !policy.is_due(now_ms) || !self.snapshotting.insert(policy.name.clone()) {
                continue;
            }
            let (context, sender) = (Arc::clone(&self.context), self.sender.clone());
            self.tasks.spawn(async move {
                let name = policy.name.clone();
                if let Err(error) = snapshot_policy::run(&context, &name).await {
                    tracing::warn!(policy = name, %error, "a policy of snapshots failed; it is tried again");
                }
                let _ = sender.send(RunnerMessage::SnapshotsEnded(name)).await;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_catalog::metadata::ClusterSettingsUpdate;
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_of_the_cluster_pace_the_passes() {
        let with = |settings: Value| {
            let update = ClusterSettingsUpdate::parse(&json!({ "persistent": settings })).unwrap();
            let state = Metadata::default();
            state.apply(&state.update_cluster_settings(&update).unwrap())
        };
        assert_eq!(interval_ms(&Metadata::default()), Some(300_000));
        assert_eq!(interval_ms(&with(json!({ JOB_INTERVAL: 60 }))), Some(3_600_000));
        assert_eq!(interval_ms(&with(json!({ ENABLED: false, JOB_INTERVAL: 60 }))), None);
    }
}
