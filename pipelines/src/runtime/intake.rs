//! Inputs as tasks: each is run until it ends, again after a failure, and what it sends goes to the queue.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::FusedFuture;
use millrace_ingest::budget::PipelineShare;
use millrace_ingest::input::{Context, InputError, Positions};
use millrace_ingest::{Batch, Event};
use millrace_runtime::Instant;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::RuntimeContext;
use super::queue::{QueueSender, SendOutcome};
use crate::Graph;
use crate::graph::InputNode;
use crate::store::Store;

/// Batches of one input that wait before the queue.
const WAITING: usize = 16;
/// Pause after the first failure of an input; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause. An input that ran for as long before it failed starts from the first pause again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Purpose of an input's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An input of the definition.
    Written,
    /// The queue on disk: its events came in before.
    Queue,
}

/// A running input.
#[derive(Debug)]
pub(super) struct RunningInput {
    pub(super) node: Arc<InputNode>,
    stop: watch::Sender<bool>,
    source: JoinHandle<()>,
    forward: JoinHandle<()>,
}

impl RunningInput {
    /// Starts an input. `former` are the names of inputs of its kind that were stopped for it.
    pub(super) fn start(
        node: Arc<InputNode>,
        shared: Arc<RuntimeContext>,
        queue: QueueSender,
        kind: Kind,
        former: Vec<Arc<str>>,
    ) -> Self {
        let (stop, stopping) = watch::channel(false);
        let (batches, received) = mpsc::channel(WAITING);
        if kind == Kind::Written {
            shared.running.send_modify(|running| *running += 1);
        }
        let budget = match kind {
            Kind::Written => shared.budget.clone(),
            // What waits for room on the disk holds the pipeline's own.
            Kind::Queue => shared.budget.sibling(),
        };
        let source = tokio::spawn(supervise(
            Arc::clone(&node),
            Arc::clone(&shared),
            budget,
            batches,
            stopping,
            former,
        ));
        let forward = tokio::spawn(forward(Arc::clone(&node), shared, received, queue, kind));
        Self { node, stop, source, forward }
    }

    /// Tells the input to stop.
    pub(super) fn tell_to_stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until the input has stopped and all that it sent is in the queue. What is not through at the deadline is
    /// cut off: it was not acknowledged, and is read again.
    pub(super) async fn stopped(self, deadline: Instant) {
        let over = tokio::time::sleep_until(deadline).fuse();
        tokio::pin!(over);
        self.stopped_unless(&mut over).await;
    }

    /// Waits likewise, unless `give_up` has ended or ends before. Returns whether all is in the queue.
    pub(super) async fn stopped_unless(
        mut self,
        give_up: &mut (impl FusedFuture<Output = ()> + Unpin),
    ) -> bool {
        let both = async {
            let _ = (&mut self.source).await;
            let _ = (&mut self.forward).await;
        };
        let came = tokio::select! {
            biased;
            () = both => true,
            () = ended(give_up) => false,
        };
        if !came {
            tracing::warn!(input = %self.node.label.id, "the input did not stop in time and is cut off");
        }
        came
    }
}

/// Waits for a future that may have ended before.
pub(super) async fn ended(future: &mut (impl FusedFuture<Output = ()> + Unpin)) {
    if !future.is_terminated() {
        future.await;
    }
}

impl Drop for RunningInput {
    /// Nothing runs on that nobody knows.
    fn drop(&mut self) {
        self.source.abort();
        self.forward.abort();
    }
}

async fn supervise(
    node: Arc<InputNode>,
    shared: Arc<RuntimeContext>,
    budget: PipelineShare,
    batches: mpsc::Sender<Batch>,
    mut stopping: watch::Receiver<bool>,
    former: Vec<Arc<str>>,
) {
    let positions =
        Arc::new(OfPipeline { store: Arc::clone(&shared.store), pipeline: Arc::clone(&shared.id) });
    let mut pause = FIRST_PAUSE;
    loop {
        let context = Context {
            batches: batches.clone(),
            source: Arc::clone(&node.source),
            siblings: siblings(&shared.generations.current().graph, &node),
            former: former.clone(),
            positions: Arc::clone(&positions) as Arc<dyn Positions>,
            stopping: stopping.clone(),
            batch_size: shared.batch_size.clone(),
            budget: budget.clone(),
        };
        let began = Instant::now();
        let error = match AssertUnwindSafe(node.input.run(context)).catch_unwind().await {
            Ok(Ok(())) => return,
            Ok(Err(InputError(error))) => error,
            Err(_) => "the input panicked".to_owned(),
        };
        if *stopping.borrow() {
            return;
        }
        if began.elapsed() >= LONGEST_PAUSE {
            pause = FIRST_PAUSE;
        }
        node.label.meter.failed(1);
        shared.note(format!("input [{}]: {error}", node.label.id));
        tracing::warn!(pipeline = %shared.id, input = %node.label.id, error, pause_ms = pause.as_millis() as u64, "an input failed and is run again after a pause");
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Names of the other inputs of a kind.
fn siblings(graph: &Graph, node: &InputNode) -> Vec<Arc<str>> {
    let alike = graph.inputs.iter().filter(|other| other.label.name == node.label.name);
    alike.filter(|other| other.source != node.source).map(|other| Arc::clone(&other.source)).collect()
}

async fn forward(
    node: Arc<InputNode>,
    shared: Arc<RuntimeContext>,
    mut batches: mpsc::Receiver<Batch>,
    queue: QueueSender,
    kind: Kind,
) {
    // However it ends, it is counted off.
    let _running = (kind == Kind::Written).then(|| CountedOff(Arc::clone(&shared)));
    while let Some(batch) = batches.recv().await {
        let events = batch.events.len();
        let began = Instant::now();
        let (from, batch) = match &shared.queue_on_disk {
            Some(disk) if disk.takes && batch.position.is_none() && events > 0 => {
                let Batch { events, ack, held, .. } = batch;
                let input = Arc::clone(&node);
                let decorate = move |events: &mut [Event]| input.decoration.apply(events);
                match disk.spool.append(events, ack, held, decorate).await {
                    Ok(()) => (None, None),
                    // It goes on as the queue's: it is decorated.
                    Err((events, ack, held)) => {
                        (Some(&disk.node), Some(Batch { events, position: None, ack, held }))
                    }
                }
            }
            _ => (Some(&node), Some(batch)),
        };
        if let (Some(from), Some(batch)) = (from, batch) {
            match queue.send(from, batch, || shared.generations.current()).await {
                SendOutcome::Queued => {}
                SendOutcome::Withdrawn => continue,
                SendOutcome::Closed => return,
            }
        }
        if kind == Kind::Queue {
            continue;
        }
        let waited = began.elapsed();
        for meter in [&node.label.meter, &shared.meter] {
            meter.came_in(events);
            meter.waited(waited);
        }
        node.label.meter.went_out(events);
    }
}

struct CountedOff(Arc<RuntimeContext>);

impl Drop for CountedOff {
    fn drop(&mut self) {
        self.0.running.send_modify(|running| *running = running.saturating_sub(1));
    }
}

/// Positions of the sources of one pipeline.
struct OfPipeline {
    store: Arc<dyn Store>,
    pipeline: Arc<str>,
}

#[async_trait]
impl Positions for OfPipeline {
    async fn claim(&self, source: &str, partition: &str) -> Result<(Option<Bytes>, u64), InputError> {
        let claimed = self.store.claim(&self.pipeline, source, partition).await;
        claimed.map_err(|error| InputError(format!("cannot take over [{source}/{partition}]: {error}")))
    }

    async fn list(&self, source: &str) -> Result<Vec<(String, Bytes)>, InputError> {
        Ok(self.store.positions(&self.pipeline, source))
    }
}
