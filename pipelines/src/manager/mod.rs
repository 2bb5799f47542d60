//! The pipelines of a server: found in a directory, started, reloaded when their files change, stopped together.
//!
//! One task owns the running pipelines ([`supervisor`]). Every few seconds it looks at the directory ([`source_files`]); where the
//! content of a pipeline's files is another, a graph is built of them. If that fails the running one stays, and status and log say why. Settings given through
//! the API are [`stored_changes`].

mod check;
mod source_files;
mod stop_order;
mod stored_changes;
mod supervisor;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::future::join_all;
use millrace_ingest::budget::Budget;
use millrace_runtime::{Compute, EventLoop, EventSender, HistogramSnapshot, Instant, Mailbox};
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, oneshot, watch};
use tokio::task::JoinHandle;
use uuid::Uuid;

pub use check::{CheckedPipeline, check_directory};
pub use millrace_ingest::dead_letter::{Cursor, DeadLetterFilter, Page, ReplayReport, StoredDeadLetter};
pub use stored_changes::Change;

use crate::language::Environment;
use crate::meter::CounterSnapshot;
use crate::rights;
use crate::runtime::{Pipeline, REDELIVERY_PATIENCE};
use crate::settings::Settings;
use crate::store::Store;
use source_files::PipelineSource;
use stored_changes::StoredChanges;
use supervisor::{MAILBOX_CAPACITY, Supervisor, SupervisorMessage};

/// Time for which trouble makes a pipeline one with a warning.
const RECENT: chrono::TimeDelta = chrono::TimeDelta::minutes(5);
/// Time that inputs and events of an old graph have to come to an end at a reload.
const RELOAD_PATIENCE: Duration = Duration::from_secs(10);

/// Dead letters that are replayed at the same time: their frames become durable together.
const REPLAYS: usize = 16;

/// Configuration of the manager: the sources of pipelines and their reloads.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of `*.conf` and `pipelines.yml`.
    pub directory: PathBuf,
    /// Time between looks at the directory; zero looks only at the start.
    pub reload_interval: Duration,
    /// File that keeps settings given through the API; `None` forgets them.
    pub settings_file: Option<PathBuf>,
    /// Directory of queues on disk; `None` has none.
    pub queues: Option<PathBuf>,
    /// Directory for files of outputs; `None` has none, and outputs that need it wait.
    pub outputs: Option<PathBuf>,
    /// Variables that definitions may refer to.
    pub environment: Environment,
    /// Bytes that events of all pipelines may take in memory.
    pub memory_bytes: u64,
}

/// State of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs.
    Active,
    /// It runs, but an input or the store failed lately, or its changed files were refused.
    ActiveWithWarning,
    /// It does not run: its files are wrong, or all its inputs have ended.
    Inactive,
    /// `pipeline.enabled` is false.
    Disabled,
}

impl State {
    /// Its name in answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "Active",
            Self::ActiveWithWarning => "Active with warning",
            Self::Inactive => "Inactive",
            Self::Disabled => "Disabled",
        }
    }
}

/// Results of reloads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reloads {
    /// Reloads that took effect.
    pub successes: u64,
    /// Files that were refused.
    pub failures: u64,
    /// Time of the last one that took effect.
    pub last_success: Option<DateTime<Utc>>,
    /// Time of the last one that was refused.
    pub last_failure: Option<DateTime<Utc>>,
    /// Why; `None` after one that took effect.
    pub last_error: Option<String>,
}

/// Figures of a plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct PluginFigures {
    /// Its id.
    pub id: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Counters of the plugin.
    pub figures: CounterSnapshot,
    /// Times spent on batches of events.
    pub batch_durations: HistogramSnapshot,
}

/// A pipeline as the management API shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Id.
    pub id: String,
    /// State of the pipeline.
    pub state: State,
    /// The last trouble within the last minutes.
    pub warning: Option<String>,
    /// Hash of its files.
    pub hash: String,
    /// Other at each start.
    pub ephemeral_id: Uuid,
    /// Settings of the pipeline, running or not.
    pub settings: Settings,
    /// Addresses that its inputs listen on.
    pub addresses: Vec<std::net::SocketAddr>,
    /// Results of reloads.
    pub reloads: Reloads,
    /// Figures of the whole.
    pub figures: CounterSnapshot,
    /// Events that wait for a worker.
    pub queued: usize,
    /// Bytes that wait on disk, and how many may, where there is a queue there.
    pub on_disk: Option<(u64, u64)>,
    /// Figures of inputs, filters and outputs.
    pub plugins: [Vec<PluginFigures>; 3],
}

/// Why a change was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// There is no such pipeline.
    #[error("there is no pipeline [{0}]")]
    Unknown(String),
    /// A value that cannot be.
    #[error("{0}")]
    Invalid(String),
    /// It cannot be kept.
    #[error("the settings cannot be kept: {0}")]
    NotKept(String),
}

/// All pipelines.
#[derive(Debug)]
pub struct Manager {
    registry: Arc<PipelineRegistry>,
    /// Sends to the one task that starts, reloads, changes and stops pipelines.
    supervisor: EventSender<SupervisorMessage>,
    /// That task; `None` once the pipelines were stopped.
    running: Mutex<Option<EventLoop>>,
    /// One replay of dead letters at a time: each letter is looked at once.
    replaying: AsyncMutex<()>,
    /// One listing of dead letters at a time: their memory together is bounded.
    listing: AsyncMutex<()>,
    /// Ends the task that maintains dead letters.
    stopping: watch::Sender<bool>,
    /// Task that maintains dead letters.
    letter_maintenance: Mutex<Option<JoinHandle<()>>>,
}

/// Pipelines as their supervisor leaves them, for readers.
#[derive(Debug)]
struct PipelineRegistry {
    config: Config,
    store: Arc<dyn Store>,
    compute: Compute,
    budget: Budget,
    pipelines: Mutex<BTreeMap<String, Arc<ManagedPipeline>>>,
    kept: Mutex<StoredChanges>,
}

#[derive(Debug)]
struct ManagedPipeline {
    ephemeral_id: Uuid,
    state: Mutex<PipelineRecord>,
}

/// Record of a pipeline.
#[derive(Debug)]
struct PipelineRecord {
    /// The files last looked at.
    found: PipelineSource,
    pipeline: Option<Arc<Pipeline>>,
    reloads: Reloads,
}

impl Manager {
    /// Makes a manager that has not looked at its directory yet.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub fn new(config: Config, store: Arc<dyn Store>, compute: Compute) -> Arc<Self> {
        let registry = Arc::new(PipelineRegistry {
            kept: Mutex::new(StoredChanges::open(config.settings_file.clone())),
            budget: Budget::new(config.memory_bytes),
            config,
            store,
            compute,
            pipelines: Mutex::default(),
        });
        let (supervisor, mailbox) = Mailbox::with_capacity(MAILBOX_CAPACITY);
        let running = EventLoop::spawn(Supervisor::new(Arc::clone(&registry)), mailbox);
        Arc::new(Self {
            registry,
            supervisor,
            running: Mutex::new(Some(running)),
            replaying: AsyncMutex::default(),
            listing: AsyncMutex::default(),
            stopping: watch::Sender::new(false),
            letter_maintenance: Mutex::default(),
        })
    }

    /// Starts the pipelines of the directory and looks after them until [`Manager::stop`]. One that is wrong does not
    /// keep the others from starting.
    pub async fn start(&self) {
        let (reply, done) = oneshot::channel();
        // A supervisor that has ended starts nothing.
        let _ = self.supervisor.send(SupervisorMessage::Start(reply)).await;
        let _ = done.await;
        let letters = maintain_dead_letters(Arc::clone(&self.registry.store), self.stopping.subscribe());
        *self.letter_maintenance.lock() = Some(tokio::spawn(letters));
    }

    /// Stops all pipelines; events that were read have `patience` to come to their end. That is also the time that a look at the
    /// directory which is under way has, before it is cut off.
    pub async fn stop(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        self.stopping.send_replace(true);
        let running = self.running.lock().take();
        if let Some(running) = running {
            match running.drain_until(deadline).await {
                Ok(true) => {}
                // What it was about to start or to stop ends with it.
                Ok(false) => tracing::warn!("a look at the pipelines did not end in time and is cut off"),
                Err(error) => tracing::error!(%error, "pipelines were not looked after"),
            }
        }
        let letter_maintenance = self.letter_maintenance.lock().take();
        if let Some(mut letter_maintenance) = letter_maintenance {
            match tokio::time::timeout_at(deadline, &mut letter_maintenance).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(%error, "dead letters were not looked after"),
                Err(_) => {
                    letter_maintenance.abort();
                    let _ = letter_maintenance.await;
                }
            }
        }
        let all = std::mem::take(&mut *self.registry.pipelines.lock());
        let running = all.into_values().filter_map(|managed| managed.state.lock().pipeline.take()).collect();
        stop_order::stop_senders_first(running, deadline).await;
    }

    /// Looks at the directory and does what its changes ask for.
    pub async fn reload_changed(&self) {
        let (reply, done) = oneshot::channel();
        // A supervisor that has ended reloads nothing.
        let _ = self.supervisor.send(SupervisorMessage::Reload(reply)).await;
        let _ = done.await;
    }

    /// Returns whether changed files are looked for, and how often.
    pub fn reload_interval(&self) -> Duration {
        self.registry.config.reload_interval
    }

    /// All pipelines, by id.
    pub fn list(&self) -> Vec<Status> {
        let all: Vec<(String, Arc<ManagedPipeline>)> = self
            .registry
            .pipelines
            .lock()
            .iter()
            .map(|(id, managed)| (id.clone(), Arc::clone(managed)))
            .collect();
        all.into_iter().map(|(id, managed)| self.status(id, &managed)).collect()
    }

    /// One pipeline.
    pub fn get(&self, id: &str) -> Option<Status> {
        let managed = self.registry.pipelines.lock().get(id).cloned()?;
        Some(self.status(id.to_owned(), &managed))
    }

    fn status(&self, id: String, managed: &ManagedPipeline) -> Status {
        let known = managed.state.lock();
        let pipeline = known.pipeline.as_ref();
        let trouble = pipeline.and_then(|pipeline| pipeline.trouble());
        let trouble = trouble.filter(|(_, when)| Utc::now().signed_duration_since(when) < RECENT);
        let warning = known.reloads.last_error.clone().or(trouble.map(|(what, _)| what));
        let state = match pipeline {
            None if !known.found.enabled => State::Disabled,
            None => State::Inactive,
            Some(pipeline) if pipeline.running_inputs() == 0 => State::Inactive,
            Some(_) if warning.is_some() => State::ActiveWithWarning,
            Some(_) => State::Active,
        };
        let settings = pipeline.map_or_else(
            || self.registry.kept.lock().change_for(&id, &known.found.hash).apply(&known.found.settings),
            |pipeline| pipeline.settings(),
        );
        let plugins = pipeline.map(|pipeline| pipeline.labels()).unwrap_or_default().map(|labels| {
            let shown = labels.into_iter().filter(|label| label.shown);
            shown
                .map(|label| PluginFigures {
                    figures: label.meter.figures(),
                    batch_durations: label.meter.batch_durations(),
                    id: label.id,
                    name: label.name,
                })
                .collect()
        });
        Status {
            id,
            state,
            warning,
            hash: known.found.hash.clone(),
            ephemeral_id: managed.ephemeral_id,
            settings,
            addresses: pipeline.map(|pipeline| pipeline.addresses()).unwrap_or_default(),
            reloads: known.reloads.clone(),
            figures: pipeline.map(|pipeline| pipeline.figures()).unwrap_or_default(),
            queued: pipeline.map_or(0, |pipeline| pipeline.queued()),
            on_disk: pipeline
                .and_then(|pipeline| pipeline.on_disk())
                .map(|fill| (fill.bytes, fill.max_bytes)),
            plugins,
        }
    }

    /// Dead letters, the oldest first.
    ///
    /// # Errors
    /// The store's.
    pub async fn dead_letters(&self, filter: DeadLetterFilter<'_>) -> Result<Page, millrace_runtime::Error> {
        let _listing = self.listing.lock().await;
        self.registry.store.dead_letters(filter).await
    }

    /// Stores what dead letters hold, the oldest first: operations as they are; events, and with an `output` all of them, through
    /// their running pipelines, to what refused them or to the output of that id. One replay runs at a time.
    ///
    /// # Errors
    /// The store's; what a letter cannot do without stays with it ([`ReplayReport::left`]).
    pub async fn replay(
        &self,
        filter: DeadLetterFilter<'_>,
        output: Option<&str>,
    ) -> Result<ReplayReport, millrace_runtime::Error> {
        let _replaying = self.replaying.lock().await;
        let mut replayed = ReplayReport::default();
        let mut after = filter.after.cloned();
        let mut most = filter.most;
        while most > 0 {
            let Page { letters, next } = self
                .registry
                .store
                .dead_letters(DeadLetterFilter { after: after.as_ref(), most, ..filter })
                .await?;
            most = most.saturating_sub(letters.len());
            for letters in letters.chunks(REPLAYS) {
                let began = Instant::now();
                let outcomes: Vec<_> = letters.iter().map(|letter| self.replay_one(letter, output)).collect();
                let outcomes = join_all(outcomes).await;
                for (letter, outcome) in letters.iter().zip(outcomes) {
                    match outcome {
                        Ok(()) => replayed.stored += 1,
                        Err(reason) => replayed.left.push((letter.id.clone(), reason)),
                    }
                }
                if began.elapsed() >= REDELIVERY_PATIENCE {
                    // Those behind them are not tried.
                    replayed.next = letters.last().map(StoredDeadLetter::cursor);
                    return Ok(replayed);
                }
            }
            replayed.next = next.clone();
            match next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        Ok(replayed)
    }

    async fn replay_one(&self, letter: &StoredDeadLetter, output: Option<&str>) -> Result<(), String> {
        let managed = self.registry.pipelines.lock().get(&letter.pipeline).cloned();
        let pipeline = managed.and_then(|managed| managed.state.lock().pipeline.clone());
        if letter.index.is_some() && output.is_none() {
            let absent = || rights::of_absent(&letter.pipeline);
            let writer = pipeline.map_or_else(absent, |pipeline| pipeline.writer());
            return self.registry.store.replay(&writer, letter).await;
        }
        let Some(pipeline) = pipeline else {
            return Err(format!("the pipeline [{}] does not run", letter.pipeline));
        };
        pipeline.redeliver(letter, output).await
    }

    /// Changes how a pipeline runs, at once and until its files change.
    ///
    /// # Errors
    /// An unknown pipeline, a value out of bounds, settings that cannot be kept.
    pub async fn change(&self, id: &str, change: Change) -> Result<Status, ChangeError> {
        let unknown = || ChangeError::Unknown(id.to_owned());
        let (reply, done) = oneshot::channel();
        let message = SupervisorMessage::Change { id: id.to_owned(), change, reply };
        // A supervisor that has ended has no pipelines.
        self.supervisor.send(message).await.map_err(|_| unknown())?;
        done.await.map_err(|_| unknown())??;
        self.get(id).ok_or_else(unknown)
    }
}

/// Looks after dead letters until the end.
async fn maintain_dead_letters(store: Arc<dyn Store>, mut stopping: watch::Receiver<bool>) {
    loop {
        let kept = tokio::select! {
            biased;
            // A manager that is gone wants no more either.
            _ = stopping.wait_for(|stopping| *stopping) => return,
            kept = store.maintain_dead_letters() => kept,
        };
        if let Err(error) = kept {
            tracing::warn!(%error, "dead letters could not be looked after; it is tried again");
            tokio::select! {
                _ = stopping.wait_for(|stopping| *stopping) => return,
                () = tokio::time::sleep(RELOAD_PATIENCE) => {}
            }
        }
    }
}
