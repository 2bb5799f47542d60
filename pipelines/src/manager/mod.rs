//! The pipelines of a server: found in a directory, started, reloaded when their files change, stopped together.
//!
//! Every few seconds the directory is looked at ([`source_files`]); where the content of a pipeline's files is another,
//! a graph is built of them. If that fails the running one stays, and status and log say why. Settings given through
//! the API are [`stored_changes`].

mod source_files;
mod stored_changes;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::future::join_all;
use millrace_ingest::budget::Budget;
use millrace_runtime::Compute;
use millrace_runtime::Instant;
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::task::JoinHandle;
use uuid::Uuid;

pub use millrace_ingest::dead_letter::{Cursor, DeadLetterFilter, Page, ReplayReport, StoredDeadLetter};
pub use stored_changes::Change;

use crate::language::Environment;
use crate::meter::CounterSnapshot;
use crate::rights;
use crate::runtime::{PersistedQueueOptions, Pipeline, REDELIVERY_PATIENCE};
use crate::settings::Settings;
use crate::spool::Spool;
use crate::store::Store;
use source_files::{PipelineSource, build};
use stored_changes::StoredChanges;

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
    /// Counters of the pipeline.
    pub figures: CounterSnapshot,
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
    config: Config,
    store: Arc<dyn Store>,
    compute: Compute,
    budget: Budget,
    pipelines: Mutex<BTreeMap<String, Arc<ManagedPipeline>>>,
    kept: Mutex<StoredChanges>,
    /// One look at the directory at a time, and none beside the end.
    looking: AsyncMutex<()>,
    /// One replay of dead letters at a time: each letter is looked at once.
    replaying: AsyncMutex<()>,
    /// One listing of dead letters at a time: their memory together is bounded.
    listing: AsyncMutex<()>,
    /// Why the directory cannot be read.
    unreadable: Mutex<Option<String>>,
    stopping: watch::Sender<bool>,
    watching: Mutex<Option<JoinHandle<()>>>,
    /// Task that maintains dead letters.
    keeping: Mutex<Option<JoinHandle<()>>>,
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
    pub fn new(config: Config, store: Arc<dyn Store>, compute: Compute) -> Arc<Self> {
        Arc::new(Self {
            kept: Mutex::new(StoredChanges::open(config.settings_file.clone())),
            budget: Budget::new(config.memory_bytes),
            config,
            store,
            compute,
            pipelines: Mutex::default(),
            looking: AsyncMutex::default(),
            replaying: AsyncMutex::default(),
            listing: AsyncMutex::default(),
            unreadable: Mutex::default(),
            stopping: watch::Sender::new(false),
            watching: Mutex::default(),
            keeping: Mutex::default(),
        })
    }

    /// Starts the pipelines of the directory and looks after them until [`Manager::stop`]. One that is wrong does not
    /// keep the others from starting.
    pub async fn start(self: &Arc<Self>) {
        self.reload_changed().await;
        if !self.config.reload_interval.is_zero() {
            let watching = tokio::spawn(Arc::clone(self).watch());
            *self.watching.lock() = Some(watching);
        }
        *self.keeping.lock() =
            Some(tokio::spawn(keep_letters(Arc::clone(&self.store), self.stopping.subscribe())));
    }

    /// Stops all pipelines; events that were read have `patience` to come to their end. That is also the time that a look at the
    /// directory which is under way has, before it is cut off.
    pub async fn stop(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        self.stopping.send_replace(true);
        let tasks = [self.watching.lock().take(), self.keeping.lock().take()];
        for mut task in tasks.into_iter().flatten() {
            match tokio::time::timeout_at(deadline, &mut task).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(%error, "pipelines were not looked after"),
                Err(_) => {
                    tracing::warn!("a look at the pipelines did not end in time and is cut off");
                    // What it was about to start or to stop ends with it.
                    task.abort();
                    let _ = task.await;
                }
            }
        }
        let _looking = tokio::time::timeout_at(deadline, self.looking.lock()).await;
        let left = deadline.saturating_duration_since(Instant::now());
        let all: Vec<Arc<ManagedPipeline>> =
            std::mem::take(&mut *self.pipelines.lock()).into_values().collect();
        join_all(all.into_iter().map(|managed| async move {
            let pipeline = managed.state.lock().pipeline.take();
            if let Some(pipeline) = pipeline {
                pipeline.stop(left).await;
            }
        }))
        .await;
    }

    async fn watch(self: Arc<Self>) {
        let mut stopping = self.stopping.subscribe();
        loop {
            let stops = stopping.wait_for(|stopping| *stopping);
            if tokio::time::timeout(self.config.reload_interval, stops).await.is_ok() {
                return;
            }
            self.reload_changed().await;
        }
    }

    /// Looks at the directory and does what its changes ask for.
    pub async fn reload_changed(&self) {
        let _looking = self.looking.lock().await;
        if *self.stopping.borrow() {
            return;
        }
        let directory = self.config.directory.clone();
        let found = tokio::task::spawn_blocking(move || source_files::find(&directory)).await;
        let found = match found.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(found) => {
                *self.unreadable.lock() = None;
                found
            }
            Err(problem) => {
                let mut unreadable = self.unreadable.lock();
                if unreadable.as_ref() != Some(&problem) {
                    tracing::error!(problem, "pipelines cannot be read; those that run go on");
                    *unreadable = Some(problem);
                }
                return;
            }
        };
        let gone: Vec<(String, Arc<ManagedPipeline>)> = {
            let mut pipelines = self.pipelines.lock();
            let ids: Vec<String> = pipelines.keys().filter(|id| !found.contains_key(*id)).cloned().collect();
            ids.into_iter().filter_map(|id| pipelines.remove_entry(&id)).collect()
        };
        for (id, managed) in gone {
            let pipeline = managed.state.lock().pipeline.take();
            if let Some(pipeline) = pipeline {
                tracing::info!(pipeline = %id, "the pipeline's files are gone: it stops");
                pipeline.stop(RELOAD_PATIENCE).await;
            }
        }
        for (id, found) in found {
            let managed = self.pipelines.lock().get(&id).cloned();
            match managed {
                Some(managed) if managed.state.lock().found.hash == found.hash => {}
                Some(managed) => self.renew(&managed, found).await,
                None => {
                    let known =
                        PipelineRecord { found: found.clone(), pipeline: None, reloads: Reloads::default() };
                    let managed =
                        Arc::new(ManagedPipeline { ephemeral_id: Uuid::new_v4(), state: Mutex::new(known) });
                    self.pipelines.lock().insert(id, Arc::clone(&managed));
                    self.renew(&managed, found).await;
                }
            }
        }
    }

    /// Brings a pipeline to what its files say, or leaves it as it is where they are wrong.
    async fn renew(&self, managed: &ManagedPipeline, found: PipelineSource) {
        let running = managed.state.lock().pipeline.clone();
        let id = found.id.clone();
        if !found.enabled && found.problems.is_empty() {
            if let Some(pipeline) = &running {
                pipeline.stop(RELOAD_PATIENCE).await;
            }
            let mut known = managed.state.lock();
            (known.pipeline, known.found) = (None, found);
            return;
        }
        let before = running.as_ref().map(|running| running.graph());
        let environment = self.config.environment.clone();
        let building = found.clone();
        let built =
            tokio::task::spawn_blocking(move || build(&building, environment, before.as_deref())).await;
        match built.unwrap_or_else(|error| Err(format!("the pipeline could not be built: {error}"))) {
            Err(problem) => {
                tracing::error!(pipeline = %id, problem, running = running.is_some(), "the pipeline's files are wrong");
                let mut known = managed.state.lock();
                known.found = found;
                known.reloads.failures += 1;
                known.reloads.last_failure = Some(Utc::now());
                known.reloads.last_error = Some(problem);
            }
            Ok(graph) => {
                self.store.limit_letters(&id, found.letters);
                let change = self.kept.lock().of(&id, &found.hash);
                let settings = change.apply(&found.settings);
                // A queue on disk comes and goes with the pipeline that has it.
                let max_bytes = |pipeline: &Pipeline| pipeline.on_disk().map(|fill| fill.max_bytes);
                let stays = running.as_deref().is_some_and(|running| max_bytes(running) == found.persisted);
                let again = match running.filter(|_| stays) {
                    Some(pipeline) => {
                        pipeline.set(settings);
                        pipeline.reload(graph, RELOAD_PATIENCE).await;
                        managed.state.lock().found = found;
                        true
                    }
                    None => {
                        let before = managed.state.lock().pipeline.take();
                        if let Some(before) = &before {
                            before.stop(RELOAD_PATIENCE).await;
                        }
                        if let Err(error) = self.store.open().await {
                            tracing::error!(%error, "the store is not prepared for pipelines");
                        }
                        let (store, compute) = (Arc::clone(&self.store), self.compute.clone());
                        let budget = self.budget.share();
                        let pipeline = match self.persisted(&found) {
                            None => Ok(Pipeline::start(id.as_str(), graph, settings, store, compute, budget)),
                            Some(place) => {
                                let id = id.as_str();
                                Pipeline::start_persisted(id, graph, settings, store, compute, budget, place)
                                    .await
                            }
                        };
                        let mut known = managed.state.lock();
                        known.found = found;
                        match pipeline {
                            Ok(pipeline) => known.pipeline = Some(Arc::new(pipeline)),
                            Err(error) => {
                                let problem = format!("the queue on disk cannot be opened: {error}");
                                tracing::error!(pipeline = %id, problem, "the pipeline does not run");
                                known.reloads.failures += 1;
                                known.reloads.last_failure = Some(Utc::now());
                                known.reloads.last_error = Some(problem);
                                return;
                            }
                        }
                        before.is_some() || known.reloads.failures > 0
                    }
                };
                tracing::info!(pipeline = %id, reloaded = again, "the pipeline runs");
                let mut known = managed.state.lock();
                if again {
                    known.reloads.successes += 1;
                    known.reloads.last_success = Some(Utc::now());
                }
                known.reloads.last_error = None;
            }
        }
    }

    /// Returns the options of a pipeline's queue on disk, if it has one or left events there.
    fn persisted(&self, found: &PipelineSource) -> Option<PersistedQueueOptions> {
        // Ids may be more than names of files can.
        let name: String = found.id.bytes().fold(String::new(), |name, byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name + &char::from(byte).to_string(),
            byte => format!("{name}%{byte:02x}"),
        });
        let directory = self.config.queues.as_ref()?.join(name);
        let wanted = found.persisted.is_some() || Spool::is_left(&directory);
        wanted.then_some(PersistedQueueOptions { directory, max_bytes: found.persisted })
    }

    /// Returns whether changed files are looked for, and how often.
    pub fn reload_interval(&self) -> Duration {
        self.config.reload_interval
    }

    /// All pipelines, by id.
    pub fn list(&self) -> Vec<Status> {
        let all: Vec<(String, Arc<ManagedPipeline>)> =
            self.pipelines.lock().iter().map(|(id, managed)| (id.clone(), Arc::clone(managed))).collect();
        all.into_iter().map(|(id, managed)| self.status(id, &managed)).collect()
    }

    /// One pipeline.
    pub fn get(&self, id: &str) -> Option<Status> {
        let managed = self.pipelines.lock().get(id).cloned()?;
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
            || self.kept.lock().of(&id, &known.found.hash).apply(&known.found.settings),
            |pipeline| pipeline.settings(),
        );
        let plugins = pipeline.map(|pipeline| pipeline.labels()).unwrap_or_default().map(|labels| {
            let shown = labels.into_iter().filter(|label| label.shown);
            shown
                .map(|label| PluginFigures { figures: label.meter.figures(), id: label.id, name: label.name })
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
    pub async fn letters(&self, wanted: DeadLetterFilter<'_>) -> Result<Page, millrace_runtime::Error> {
        let _listing = self.listing.lock().await;
        self.store.letters(wanted).await
    }

    /// Stores what dead letters hold, the oldest first: operations as they are; events, and with an `output` all of them, through
    /// their running pipelines, to what refused them or to the output of that id. One replay runs at a time.
    ///
    /// # Errors
    /// The store's; what a letter cannot do without stays with it ([`ReplayReport::left`]).
    pub async fn replay(
        &self,
        wanted: DeadLetterFilter<'_>,
        output: Option<&str>,
    ) -> Result<ReplayReport, millrace_runtime::Error> {
        let _replaying = self.replaying.lock().await;
        let mut replayed = ReplayReport::default();
        let mut after = wanted.after.cloned();
        let mut most = wanted.most;
        while most > 0 {
            let Page { letters, next } =
                self.store.letters(DeadLetterFilter { after: after.as_ref(), most, ..wanted }).await?;
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
        let managed = self.pipelines.lock().get(&letter.pipeline).cloned();
        let pipeline = managed.and_then(|managed| managed.state.lock().pipeline.clone());
        if letter.index.is_some() && output.is_none() {
            let absent = || rights::of_absent(&letter.pipeline);
            let writer = pipeline.map_or_else(absent, |pipeline| pipeline.writer());
            return self.store.replay(&writer, letter).await;
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
        let _looking = self.looking.lock().await;
        let managed = self.pipelines.lock().get(id).cloned();
        let managed = managed.ok_or_else(|| ChangeError::Unknown(id.to_owned()))?;
        {
            let known = managed.state.lock();
            let mut kept = self.kept.lock();
            let before = kept.of(id, &known.found.hash).apply(&known.found.settings);
            let settings = change.apply(&before);
            settings.check().map_err(ChangeError::Invalid)?;
            kept.keep(id, &known.found.hash, &change)
                .map_err(|error| ChangeError::NotKept(error.to_string()))?;
            if let Some(pipeline) = &known.pipeline {
                pipeline.set(settings);
            }
        }
        Ok(self.status(id.to_owned(), &managed))
    }
}

/// Looks after dead letters until the end.
async fn keep_letters(store: Arc<dyn Store>, mut stopping: watch::Receiver<bool>) {
    loop {
        let kept = tokio::select! {
            biased;
            // A manager that is gone wants no more either.
            _ = stopping.wait_for(|stopping| *stopping) => return,
            kept = store.keep_letters() => kept,
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
