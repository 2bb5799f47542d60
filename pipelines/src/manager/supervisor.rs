//! The task that owns the pipelines of a manager: it starts, reloads, changes and stops them, one after another.
//!
//! [`Supervisor`] looks at the directory when it is asked to, and every few seconds once it was started. What it leaves is in the
//! [`PipelineRegistry`], which readers share.

use std::sync::Arc;

use chrono::Utc;
use millrace_runtime::{EventHandler, Instant, Mailbox};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::source_files::{self, PipelineSource, build};
use super::stop_order::{is_in_cycle, stop_senders_first};
use super::{
    Change, ChangeError, ManagedPipeline, PipelineRecord, PipelineRegistry, RELOAD_PATIENCE, Reloads,
};
use crate::runtime::{PersistedQueueOptions, Pipeline, PipelineFiles, directory_name};
use crate::spool::Spool;

/// Messages that wait for the supervisor, at most; at the bound, requests for reloads and changes wait to be made.
pub(super) const MAILBOX_CAPACITY: usize = 64;

/// Message to the supervisor.
#[derive(Debug)]
pub(super) enum SupervisorMessage {
    /// Look at the directory, and every few seconds from now on.
    Start(oneshot::Sender<()>),
    /// Look at the directory.
    Reload(oneshot::Sender<()>),
    /// Change how a pipeline runs.
    Change { id: String, change: Change, reply: oneshot::Sender<Result<(), ChangeError>> },
}

/// State of the task.
pub(super) struct Supervisor {
    registry: Arc<PipelineRegistry>,
    /// Why the directory cannot be read.
    unreadable: Option<String>,
    /// Time of the next look; `None` where only messages ask for one.
    next_look: Option<Instant>,
}

impl EventHandler for Supervisor {
    type Message = SupervisorMessage;

    async fn handle(&mut self, message: SupervisorMessage) {
        // A caller that has gone away needs no reply.
        match message {
            SupervisorMessage::Start(reply) => {
                self.reload_changed().await;
                let interval = self.registry.config.reload_interval;
                self.next_look = (!interval.is_zero()).then(|| Instant::now() + interval);
                let _ = reply.send(());
            }
            SupervisorMessage::Reload(reply) => {
                self.reload_changed().await;
                let _ = reply.send(());
            }
            SupervisorMessage::Change { id, change, reply } => {
                let _ = reply.send(self.change(&id, &change));
            }
        }
    }

    async fn run_due(&mut self) -> Option<Instant> {
        if self.next_look.is_some_and(|at| Instant::now() >= at) {
            self.reload_changed().await;
            self.next_look = Some(Instant::now() + self.registry.config.reload_interval);
        }
        self.next_look
    }

    /// Does nothing: the manager stops the pipelines, and messages that wait are not answered.
    async fn drain(self, _mailbox: &mut Mailbox<SupervisorMessage>) {}
}

impl Supervisor {
    pub(super) fn new(registry: Arc<PipelineRegistry>) -> Self {
        Self { registry, unreadable: None, next_look: None }
    }

    /// Looks at the directory and does what its changes ask for.
    async fn reload_changed(&mut self) {
        let directory = self.registry.config.directory.clone();
        let found = tokio::task::spawn_blocking(move || source_files::find(&directory)).await;
        let found = match found.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(found) => {
                self.unreadable = None;
                found
            }
            Err(problem) => {
                if self.unreadable.as_ref() != Some(&problem) {
                    tracing::error!(problem, "pipelines cannot be read; those that run go on");
                    self.unreadable = Some(problem);
                }
                return;
            }
        };
        let gone: Vec<(String, Arc<ManagedPipeline>)> = {
            let mut pipelines = self.registry.pipelines.lock();
            let ids: Vec<String> = pipelines.keys().filter(|id| !found.contains_key(*id)).cloned().collect();
            ids.into_iter().filter_map(|id| pipelines.remove_entry(&id)).collect()
        };
        let mut running = Vec::new();
        for (id, managed) in gone {
            let pipeline = managed.state.lock().pipeline.take();
            if let Some(pipeline) = pipeline {
                tracing::info!(pipeline = %id, "the pipeline's files are gone: it stops");
                running.push(pipeline);
            }
        }
        stop_senders_first(running, Instant::now() + RELOAD_PATIENCE).await;
        for (id, found) in found {
            let managed = self.registry.pipelines.lock().get(&id).cloned();
            match managed {
                Some(managed) if managed.state.lock().found.hash == found.hash => {}
                Some(managed) => self.renew(&managed, found).await,
                None => {
                    let known =
                        PipelineRecord { found: found.clone(), pipeline: None, reloads: Reloads::default() };
                    let managed =
                        Arc::new(ManagedPipeline { ephemeral_id: Uuid::new_v4(), state: Mutex::new(known) });
                    self.registry.pipelines.lock().insert(id, Arc::clone(&managed));
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
        let environment = self.registry.config.environment.clone();
        let building = found.clone();
        let built =
            tokio::task::spawn_blocking(move || build(&building, environment, before.as_deref())).await;
        let built = built.unwrap_or_else(|error| Err(format!("the pipeline could not be built: {error}")));
        let built = built.and_then(|graph| match is_in_cycle(&graph, &self.others(&id)) {
            false => Ok(graph),
            true => Err(
                "its events would come back to it through other pipelines: outputs [pipeline] form a cycle"
                    .to_owned(),
            ),
        });
        match built {
            Err(problem) => {
                tracing::error!(pipeline = %id, problem, running = running.is_some(), "the pipeline's files are wrong");
                let mut known = managed.state.lock();
                known.found = found;
                known.reloads.failures += 1;
                known.reloads.last_failure = Some(Utc::now());
                known.reloads.last_error = Some(problem);
            }
            Ok(graph) => {
                self.registry.store.limit_dead_letters(&id, found.dead_letters);
                let change = self.registry.kept.lock().change_for(&id, &found.hash);
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
                        if let Err(error) = self.registry.store.open().await {
                            tracing::error!(%error, "the store is not prepared for pipelines");
                        }
                        let (store, compute) =
                            (Arc::clone(&self.registry.store), self.registry.compute.clone());
                        let budget = self.registry.budget.share();
                        let (id, files) = (id.as_str(), self.files(&found));
                        let pipeline =
                            Pipeline::start_with_files(id, graph, settings, store, compute, budget, files)
                                .await;
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

    /// Returns the pipelines that run, but for one.
    fn others(&self, id: &str) -> Vec<Arc<Pipeline>> {
        let pipelines = self.registry.pipelines.lock();
        let others: Vec<_> = pipelines
            .iter()
            .filter(|(other, _)| *other != id)
            .map(|(_, managed)| Arc::clone(managed))
            .collect();
        drop(pipelines);
        others.iter().filter_map(|managed| managed.state.lock().pipeline.clone()).collect()
    }

    /// Returns a pipeline's files on disk: also a queue that has events left of an earlier run.
    fn files(&self, found: &PipelineSource) -> PipelineFiles {
        let name = directory_name(&found.id);
        let config = &self.registry.config;
        let queue = config.queues.as_ref().map(|queues| queues.join(&name));
        let queue = queue.filter(|directory| found.persisted.is_some() || Spool::is_left(directory));
        PipelineFiles {
            outputs: config.outputs.as_ref().map(|outputs| outputs.join(&name)),
            queue: queue.map(|directory| PersistedQueueOptions { directory, max_bytes: found.persisted }),
        }
    }

    /// Changes how a pipeline runs, at once and until its files change.
    fn change(&self, id: &str, change: &Change) -> Result<(), ChangeError> {
        let managed = self.registry.pipelines.lock().get(id).cloned();
        let managed = managed.ok_or_else(|| ChangeError::Unknown(id.to_owned()))?;
        let known = managed.state.lock();
        let mut kept = self.registry.kept.lock();
        let before = kept.change_for(id, &known.found.hash).apply(&known.found.settings);
        let settings = change.apply(&before);
        settings.check().map_err(ChangeError::Invalid)?;
        kept.keep(id, &known.found.hash, change).map_err(|error| ChangeError::NotKept(error.to_string()))?;
        if let Some(pipeline) = &known.pipeline {
            pipeline.set(settings);
        }
        Ok(())
    }
}
