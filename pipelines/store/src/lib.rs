//! The engine as the store of pipelines: their operations and positions, and the dead letters of what it refuses.
//!
//! [`EngineStore`] commits the events of a batch with the positions of their sources in one frame. [`dead_letters`] lists and replays
//! dead letters; `retention` bounds what they take. `millrace-pipelines` knows the trait [`Store`] alone, so that an edit of the engine leaves
//! pipelines and plugins as they are.

pub mod dead_letters;
mod heads;
mod retention;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use millrace_catalog::access::Principal;
use millrace_catalog::metadata::Metadata;
use millrace_catalog::operation::{Action, DeadLetter, SourceWrite, WriteOp};
use millrace_engine::Engine;
use millrace_ingest::output::IndexTemplate;
use millrace_ingest::{Event, dead_letter};
use millrace_pipelines::store::{Durable, OutputPipelines, Sender, Store};
use millrace_runtime::{Error, Result};

use self::retention::RetentionTask;

/// Writes into the engine's indices, dead letters included. Pipelines write with their own rights; dead letters and
/// positions are the server's.
#[derive(Debug)]
pub struct EngineStore {
    engine: Arc<Engine>,
    /// The server, to which dead letters belong.
    server: Principal,
    keeper: RetentionTask,
    pipelines: Option<Arc<dyn OutputPipelines>>,
}

impl EngineStore {
    /// Makes a store of an engine.
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine, server: Principal::system(), keeper: RetentionTask::default(), pipelines: None }
    }

    /// Has operations go through ingest pipelines before they are written.
    #[must_use]
    pub fn with_output_pipelines(self, pipelines: Arc<dyn OutputPipelines>) -> Self {
        Self { pipelines: Some(pipelines), ..self }
    }

    fn now(&self) -> DateTime<Utc> {
        DateTime::from_timestamp_millis(self.engine.clock().now_ms()).unwrap_or_default()
    }

    /// Returns a letter for which there is room. One that takes the place of another always has it.
    fn admit(&self, letter: WriteOp, from: Sender<'_>) -> Option<WriteOp> {
        let bytes = match &letter.action {
            Action::Index(source) => source.len() as u64,
            _ => 0,
        };
        if from.again {
            self.keeper.count(from.pipeline, bytes);
            return Some(letter);
        }
        self.keeper.admit(from.pipeline, bytes).then_some(letter)
    }
}

fn sender(sender: Sender<'_>) -> dead_letter::Sender<'_> {
    dead_letter::Sender { pipeline: sender.pipeline, plugin: sender.plugin }
}

#[async_trait]
impl Store for EngineStore {
    async fn open(&self) -> Result<()> {
        dead_letters::create_index(&self.engine).await?;
        self.keeper.begin(&self.engine, &self.server).await
    }

    async fn write(
        &self,
        writer: &Principal,
        write: SourceWrite,
        replace: DeadLetter,
        timeout: Duration,
        ready: BoxFuture<'_, ()>,
    ) -> Result<Durable> {
        let appended = self.engine.append_from_source(writer, write, replace, timeout, ready).await?;
        Ok(appended.durable())
    }

    async fn put_template(&self, template: &IndexTemplate) -> Result<()> {
        let IndexTemplate { kind, name, body, overwrites } = template;
        let decide = |state: &Metadata| {
            let stays = !overwrites && !state.list_templates(*kind, Some(name)).is_empty();
            if stays { Ok(Vec::new()) } else { state.put_template(*kind, name, body.clone(), false) }
        };
        self.engine.change(&self.server, decide).await
    }

    fn output_pipelines(&self) -> Option<&Arc<dyn OutputPipelines>> {
        self.pipelines.as_ref()
    }

    async fn claim(&self, pipeline: &str, source: &str, partition: &str) -> Result<(Option<Bytes>, u64)> {
        self.engine.claim_position(pipeline, source, partition).await
    }

    fn positions(&self, pipeline: &str, source: &str) -> Vec<(String, Bytes)> {
        self.engine.positions(pipeline, source)
    }

    async fn dead_letters(&self, wanted: dead_letter::DeadLetterFilter<'_>) -> Result<dead_letter::Page> {
        dead_letters::list(&self.engine, wanted).await
    }

    fn limit_dead_letters(&self, pipeline: &str, limits: dead_letter::Limits) {
        self.keeper.limit(pipeline, limits);
    }

    async fn maintain_dead_letters(&self) -> Result<()> {
        self.keeper.due().await;
        self.keeper.sweep(&self.engine, &self.server).await
    }

    async fn replay(
        &self,
        writer: &Principal,
        letter: &dead_letter::StoredDeadLetter,
    ) -> std::result::Result<(), String> {
        let replayed = dead_letters::replay(&self.engine, writer, std::slice::from_ref(letter)).await;
        let replayed = replayed.map_err(|error| error.to_string())?;
        replayed.left.into_iter().next().map_or(Ok(()), |(_, reason)| Err(reason))
    }

    fn letter(&self, event: &Event, reason: &str, from: Sender<'_>) -> Option<WriteOp> {
        self.admit(dead_letter::of_event(event, reason, sender(from), self.now()), from)
    }

    fn letter_in_place_of(&self, op: &WriteOp, error: &Error, from: Sender<'_>) -> Option<WriteOp> {
        self.admit(dead_letter::in_place_of(op, error, sender(from), self.now())?, from)
    }
}
