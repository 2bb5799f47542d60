//! A running pipeline.
//!
//! `intake` runs the inputs and puts their batches into the `queue`. The dispatcher here takes deliveries from it and
//! makes a task of each: `work` takes it through the graph on a compute thread, `commit` brings it to its end,
//! in the order that `sequence` keeps. As many deliveries are computed at the same time as there are
//! workers; a few more may wait for their sinks and the store, so that computing does not wait for a disk.
//!
//! With a queue on disk (`spool`), what has no position goes there first, and comes back from there with one.
//!
//! A reload swaps the graph: inputs that are written as before go on with their sockets and positions, the
//! others are stopped or started. What is under way goes through the graph that it was queued for, as long as that has time
//! for it (`generation`); what is left then is redelivered through the new one.

mod commit;
mod compute_future;
mod delivery;
mod flush;
mod generation;
mod intake;
mod output_pipelines;
mod queue;
mod redelivery;
mod sequence;
#[cfg(test)]
mod tests;
mod work;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fmt, io};

use chrono::{DateTime, Utc};
use futures::FutureExt;
use millrace_ingest::budget::PipelineShare;
use millrace_ingest::input::BatchSize;
use millrace_runtime::Compute;
use millrace_runtime::Instant;
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Notify, Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::Graph;
use crate::graph::decoration::InputDecoration;
use crate::graph::{InputNode, Label};
use crate::meter::{CounterSnapshot, Meter};
use crate::settings::Settings;
use crate::spool::source::Source;
use crate::spool::{QueueUsage, Spool};
use crate::store::Store;
use generation::Generations;
use intake::{Kind, RunningInput};
use queue::{Queue, QueueSender};
pub(crate) use redelivery::PATIENCE as REDELIVERY_PATIENCE;
use sequence::Sequence;

/// Deliveries that may wait for sinks and the store, beside those that are computed.
const WAITING: usize = 4;
/// Most events of a delivery whose filters add large answers of other servers: these have memory for a delivery together.
const MAX_ANSWERED_EVENTS: usize = 500;
/// Time that what is cut off has to tell its sources.
const CUT: Duration = Duration::from_secs(2);

/// Context that the parts of a running pipeline share.
pub(crate) struct RuntimeContext {
    id: Arc<str>,
    store: Arc<dyn Store>,
    compute: Compute,
    generations: Generations,
    settings: watch::Sender<Settings>,
    /// Batch sizes, the part of the settings that inputs know.
    batch_size: BatchSize,
    /// Memory that events of this pipeline may take.
    budget: PipelineShare,
    meter: Arc<Meter>,
    /// Inputs that run.
    running: watch::Sender<usize>,
    /// Set once nothing is waited for any more.
    cutting: AtomicBool,
    /// Set while the clock flushes filters.
    flushing: AtomicBool,
    /// The last trouble, and when.
    trouble: Arc<Mutex<LastFault>>,
    queue_on_disk: Option<QueueOnDisk>,
}

/// Last fault, and its time.
type LastFault = Option<(String, DateTime<Utc>)>;

/// Queue on disk of events that no source holds.
struct QueueOnDisk {
    spool: Arc<Spool>,
    /// The input that reads it.
    node: Arc<InputNode>,
    /// `true` if it takes new events, or is only to become empty.
    takes: bool,
}

impl QueueOnDisk {
    async fn open(persisted: PersistedQueueOptions, trouble: Arc<Mutex<LastFault>>) -> io::Result<Self> {
        let takes = persisted.max_bytes.is_some();
        let open = move || {
            let max_bytes = persisted.max_bytes.unwrap_or_default();
            Spool::open(persisted.directory, max_bytes, Arc::new(move |what| note(&trouble, what)))
        };
        let spool = tokio::task::spawn_blocking(open).await.map_err(io::Error::other)??;
        let node = InputNode {
            label: Label {
                id: Arc::from("queue"),
                name: Arc::from("queue"),
                shown: false,
                meter: Arc::default(),
            },
            identity: String::new(),
            source: Arc::from("queue"),
            decoration: InputDecoration::default(),
            input: Box::new(Source { spool: Arc::clone(&spool) }),
        };
        Ok(Self { spool, node: Arc::new(node), takes })
    }
}

/// Returns the name of a pipeline's directory: ids may be more than names of files can.
pub fn directory_name(id: &str) -> String {
    id.bytes().fold(String::new(), |name, byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name + &char::from(byte).to_string(),
        byte => format!("{name}%{byte:02x}"),
    })
}

/// Files of a pipeline on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PipelineFiles {
    /// Directory for files of outputs; without one, outputs that need it wait.
    pub(crate) outputs: Option<PathBuf>,
    /// The queue, if it is on disk.
    pub(crate) queue: Option<PersistedQueueOptions>,
}

/// Location and bound of a pipeline's queue on disk, for events that no source holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PersistedQueueOptions {
    /// Directory of its own.
    pub(crate) directory: PathBuf,
    /// Bytes; `None` takes nothing new: events of an earlier run there are to be stored.
    pub(crate) max_bytes: Option<u64>,
}

impl fmt::Debug for RuntimeContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("id", &self.id).finish_non_exhaustive()
    }
}

impl RuntimeContext {
    /// Waits for nothing any more: sinks and retries give up.
    fn cut(&self) {
        self.cutting.store(true, Ordering::Release);
        self.generations.end_all();
    }

    fn is_cutting(&self) -> bool {
        self.cutting.load(Ordering::Acquire)
    }

    /// Remembers trouble for the status.
    fn note(&self, what: String) {
        note(&self.trouble, what);
    }
}

fn note(trouble: &Mutex<LastFault>, what: String) {
    *trouble.lock() = Some((what, Utc::now()));
}

/// A running pipeline.
#[derive(Debug)]
pub struct Pipeline {
    shared: Arc<RuntimeContext>,
    /// Inputs and the way to the queue; `None` when it was stopped.
    intake: AsyncMutex<Option<(Vec<RunningInput>, QueueSender)>>,
    /// Input that reads the queue on disk.
    from_disk: Mutex<Option<RunningInput>>,
    dispatcher: Mutex<Option<JoinHandle<()>>>,
    waiting: QueueSender,
}

impl Pipeline {
    /// Starts a pipeline. It must be called within a runtime.
    pub fn start(
        id: impl Into<Arc<str>>,
        graph: Graph,
        settings: Settings,
        store: Arc<dyn Store>,
        compute: Compute,
        budget: PipelineShare,
    ) -> Self {
        Self::start_with(id.into(), graph, settings, (store, compute, budget), Arc::default(), (None, None))
    }

    /// Starts a pipeline whose outputs have a directory for their files. It must be called within a runtime.
    pub fn start_with_outputs(
        id: impl Into<Arc<str>>,
        graph: Graph,
        settings: Settings,
        store: Arc<dyn Store>,
        compute: Compute,
        budget: PipelineShare,
        outputs: PathBuf,
    ) -> Self {
        let parts = (store, compute, budget);
        Self::start_with(id.into(), graph, settings, parts, Arc::default(), (None, Some(outputs)))
    }

    /// Starts a pipeline with its files on disk.
    ///
    /// # Errors
    /// The queue's directory cannot be made or read.
    pub(crate) async fn start_with_files(
        id: impl Into<Arc<str>>,
        graph: Graph,
        settings: Settings,
        store: Arc<dyn Store>,
        compute: Compute,
        budget: PipelineShare,
        PipelineFiles { outputs, queue }: PipelineFiles,
    ) -> io::Result<Self> {
        let trouble: Arc<Mutex<LastFault>> = Arc::default();
        let queue = match queue {
            Some(persisted) => Some(QueueOnDisk::open(persisted, Arc::clone(&trouble)).await?),
            None => None,
        };
        let parts = (store, compute, budget);
        Ok(Self::start_with(id.into(), graph, settings, parts, trouble, (queue, outputs)))
    }

    fn start_with(
        id: Arc<str>,
        graph: Graph,
        settings: Settings,
        (store, compute, budget): (Arc<dyn Store>, Compute, PipelineShare),
        trouble: Arc<Mutex<LastFault>>,
        (queue_on_disk, outputs): (Option<QueueOnDisk>, Option<PathBuf>),
    ) -> Self {
        let graph = Arc::new(graph);
        let shared = Arc::new(RuntimeContext {
            generations: Generations::new(Arc::clone(&id), Arc::clone(&graph), outputs),
            id,
            store,
            compute,
            batch_size: BatchSize::new(delivery_size(&settings, &graph)),
            settings: watch::Sender::new(settings),
            budget,
            meter: Arc::default(),
            running: watch::Sender::new(0),
            cutting: AtomicBool::new(false),
            flushing: AtomicBool::new(false),
            trouble,
            queue_on_disk,
        });
        let (sender, queue) = queue::queue();
        let dispatcher = tokio::spawn(dispatch(Arc::clone(&shared), queue));
        let start = |node: &Arc<_>, kind| {
            RunningInput::start(Arc::clone(node), Arc::clone(&shared), sender.clone(), kind, Vec::new())
        };
        let inputs = graph.inputs.iter().map(|node| start(node, Kind::Written)).collect();
        let from_disk = shared.queue_on_disk.as_ref().map(|disk| start(&disk.node, Kind::Queue));
        flush::start(&shared, &sender);
        Self {
            intake: AsyncMutex::new(Some((inputs, sender.clone()))),
            from_disk: Mutex::new(from_disk),
            dispatcher: Mutex::new(Some(dispatcher)),
            waiting: sender,
            shared,
        }
    }

    /// Puts another graph in the place of the running one. Inputs that both have go on; others get `patience` to stop, and what
    /// is under way gets it to come to its end. The rest is redelivered through the new graph.
    pub async fn reload(&self, mut graph: Graph, patience: Duration) {
        let mut intake = self.intake.lock().await;
        let Some((inputs, sender)) = intake.as_mut() else { return };
        let mut stay = Vec::new();
        let mut go: Vec<RunningInput> = std::mem::take(inputs);
        let mut new = Vec::new();
        for node in &mut graph.inputs {
            match go.iter().position(|running| running.node.identity == node.identity) {
                Some(at) => {
                    let running = go.swap_remove(at);
                    *node = Arc::clone(&running.node);
                    stay.push(running);
                }
                None => new.push(Arc::clone(node)),
            }
        }
        go.iter().for_each(RunningInput::tell_to_stop);
        let names =
            |running: &RunningInput| (Arc::clone(&running.node.label.name), Arc::clone(&running.node.source));
        let gone: Vec<(Arc<str>, Arc<str>)> = go.iter().map(names).collect();
        let deadline = Instant::now() + patience;
        for running in go {
            running.stopped(deadline).await;
        }
        self.shared.batch_size.set(delivery_size(&self.shared.settings.borrow(), &graph));
        let former = self.shared.generations.current();
        let before = self.shared.generations.replace(Arc::new(graph));
        flush::finish(former, &self.waiting);
        flush::start(&self.shared, &self.waiting);
        let id = Arc::clone(&self.shared.id);
        tokio::spawn(async move {
            tokio::time::sleep_until(deadline).await;
            if let Some(generation) = before.upgrade() {
                tracing::warn!(pipeline = %id, "what went through the former definition did not come to its end in time; the rest goes through the new one");
                generation.end();
            }
        });
        for node in new {
            let kind = &node.label.name;
            let alike = gone.iter().filter(|(name, source)| name == kind && *source != node.source);
            let former = alike.map(|(_, source)| Arc::clone(source)).collect();
            let (shared, sender) = (Arc::clone(&self.shared), sender.clone());
            stay.push(RunningInput::start(node, shared, sender, Kind::Written, former));
        }
        *inputs = stay;
    }

    /// Waits until all inputs have ended by themselves.
    pub async fn ended(&self) {
        // The sender lives as long as the pipeline.
        let _ = self.shared.running.subscribe().wait_for(|running| *running == 0).await;
    }

    /// Stops the inputs, lets what was read come to its end within `patience`, and ends. What is not through by then
    /// is told to its source as not stored. Returns whether everything came to its end.
    pub async fn stop(&self, patience: Duration) -> bool {
        self.stop_unless(tokio::time::sleep(patience)).await
    }

    /// Stops the inputs and lets what was read come to its end, however long that takes, unless `give_up` ends before. What
    /// is not through by then is told to its source as not stored. Returns whether everything came to its end.
    pub async fn stop_unless(&self, give_up: impl Future<Output = ()>) -> bool {
        let give_up = give_up.fuse();
        tokio::pin!(give_up);
        let Some((inputs, sender)) = self.intake.lock().await.take() else { return true };
        let from_disk = self.from_disk.lock().take();
        inputs.iter().chain(&from_disk).for_each(RunningInput::tell_to_stop);
        let dispatcher = self.dispatcher.lock().take();
        drop(sender);
        let mut all = true;
        for running in inputs.into_iter().chain(from_disk) {
            all &= running.stopped_unless(&mut give_up).await;
        }
        if let Some(disk) = &self.shared.queue_on_disk {
            // A disk that hangs holds up no end.
            if tokio::time::timeout(CUT, disk.spool.close()).await.is_err() {
                tracing::warn!(pipeline = %self.shared.id, "the queue on disk is still being written");
            }
        }
        flush::finish(self.shared.generations.current(), &self.waiting);
        self.waiting.close();
        let Some(mut dispatcher) = dispatcher else { return all };
        let came = tokio::select! {
            biased;
            _ = &mut dispatcher => true,
            () = intake::ended(&mut give_up) => false,
        };
        if came {
            let finished = self.shared.generations.finish_outputs();
            return tokio::select! {
                biased;
                finished = finished => all && finished,
                () = intake::ended(&mut give_up) => false,
            };
        }
        tracing::warn!(pipeline = %self.shared.id, "the pipeline did not drain in time; its sources keep what is not stored");
        self.shared.cut();
        if tokio::time::timeout(CUT, &mut dispatcher).await.is_err() {
            dispatcher.abort();
        }
        false
    }

    /// Returns its settings.
    pub fn settings(&self) -> Settings {
        self.shared.settings.borrow().clone()
    }

    /// Changes how it runs, from the next delivery on.
    pub fn set(&self, settings: Settings) {
        let generation = self.shared.generations.current();
        self.shared.batch_size.set(delivery_size(&settings, &generation.graph));
        self.shared.settings.send_replace(settings);
    }

    /// Figures of the whole.
    pub fn figures(&self) -> CounterSnapshot {
        self.shared.meter.figures()
    }

    /// Events that wait for a worker.
    pub fn queued(&self) -> usize {
        self.waiting.events()
    }

    /// Returns the usage of the queue on disk, where one takes events.
    pub(crate) fn on_disk(&self) -> Option<QueueUsage> {
        let disk = self.shared.queue_on_disk.as_ref().filter(|disk| disk.takes);
        disk.map(|disk| disk.spool.fill())
    }

    /// Inputs that have not ended.
    pub fn running_inputs(&self) -> usize {
        *self.shared.running.borrow()
    }

    /// Addresses that inputs listen on.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.graph().inputs.iter().filter_map(|node| node.input.local_address()).collect()
    }

    /// The last trouble that passed or may pass, and when it was.
    pub fn trouble(&self) -> Option<(String, DateTime<Utc>)> {
        self.shared.trouble.lock().clone()
    }

    /// The graph that runs.
    pub(crate) fn graph(&self) -> Arc<Graph> {
        Arc::clone(&self.shared.generations.current().graph)
    }

    /// Plugins of the graph, by section, in the order written.
    pub(crate) fn labels(&self) -> [Vec<Label>; 3] {
        let graph = self.graph();
        [graph.input_labels(), graph.filter_labels(), graph.output_labels()]
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        self.shared.cut();
        self.waiting.close();
    }
}

/// Returns the most events of a delivery.
fn delivery_size(settings: &Settings, graph: &Graph) -> usize {
    match graph.has_large_answers() {
        true => settings.batch_size.min(MAX_ANSWERED_EVENTS),
        false => settings.batch_size,
    }
}

/// Takes deliveries from the queue and makes tasks of them, until the queue ends.
async fn dispatch(shared: Arc<RuntimeContext>, mut queue: Queue) {
    let mut deliveries = JoinSet::new();
    let mut sequence = Sequence::default();
    let ended = Arc::new(Notify::new());
    let mut workers = shared.settings.borrow().workers;
    let mut computing = Arc::new(Semaphore::new(workers));
    loop {
        let settings = shared.settings.borrow().clone();
        if settings.workers != workers {
            workers = settings.workers;
            computing = Arc::new(Semaphore::new(workers));
        }
        // Answers of other servers may have taken more memory than the pipeline may have: what ends gives it back.
        let is_over = || shared.budget.used() > shared.budget.most();
        while deliveries.len() >= workers + WAITING || (!deliveries.is_empty() && is_over()) {
            reap(&shared, deliveries.join_next().await);
        }
        while let Some(ended) = deliveries.try_join_next() {
            reap(&shared, Some(ended));
        }
        // Never closed.
        let Ok(turn_to_compute) = Arc::clone(&computing).acquire_owned().await else { break };
        // Where nothing is under way, waiting for more would only make somebody wait.
        let patience = (!deliveries.is_empty()).then_some(settings.batch_delay);
        let Some(delivery) = queue.take(shared.batch_size.get(), patience, &ended).await else { break };
        let moves = delivery.iter().filter_map(|entry| entry.batch.position.as_ref());
        let Some(queued_for) = delivery.first().map(|entry| &entry.generation) else { continue };
        let generation = shared.generations.instead_of(queued_for);
        // Another graph's filters go on.
        let is_last = Arc::ptr_eq(&generation, queued_for) && delivery.iter().any(|entry| entry.is_last);
        if is_last {
            // Events that are still on their way belong before the last flush.
            while let Some(ended) = deliveries.join_next().await {
                reap(&shared, Some(ended));
            }
        }
        let strict = settings.keeps_order();
        let mut ticket = sequence.enter(moves, strict, &generation);
        let (shared, ended) = (Arc::clone(&shared), Arc::clone(&ended));
        deliveries.spawn(async move {
            let meter = Arc::clone(&shared.meter);
            let id = Arc::clone(&shared.id);
            let share = shared.budget.clone();
            let filtered = work::run((id, share), delivery, generation, meter, is_last);
            let work = compute_future::run(&shared.compute, filtered).await;
            drop(turn_to_compute);
            match work {
                Ok(work) => commit::run(&shared, work, ticket, strict).await,
                Err(error) => {
                    ticket.reporting.come().await;
                    // The sources were told by the drop of their acknowledgements.
                    tracing::error!(pipeline = %shared.id, %error, "a delivery of events was lost on the way; its sources send it again");
                    shared.note(error.to_string());
                }
            }
            ended.notify_one();
        });
    }
    while let Some(ended) = deliveries.join_next().await {
        reap(&shared, Some(ended));
    }
}

fn reap(shared: &RuntimeContext, ended: Option<Result<(), tokio::task::JoinError>>) {
    if let Some(Err(error)) = ended {
        tracing::error!(pipeline = %shared.id, %error, "a delivery of events failed; its sources send it again");
        shared.note(error.to_string());
    }
}
