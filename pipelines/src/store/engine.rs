//! The engine as the store of pipelines.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use millrace_catalog::access::Principal;
use millrace_engine::{Action, Engine, SourceWrite, WriteOp};
use millrace_ingest::{Event, dead_letter};
use millrace_runtime::{Error, Result};

use super::{Durable, OutputPipelines, Replace, Sender, Store};

/// Writes into the engine's indices, dead letters included.
#[derive(Debug)]
struct OfEngine {
    engine: Arc<Engine>,
    /// The server, to which dead letters belong.
    server: Principal,
    keeper: dead_letter::RetentionTask,
    pipelines: Option<Arc<dyn OutputPipelines>>,
}

/// Makes a store of an engine. What pipelines write, they write with rights of their own; dead letters and positions are the
/// server's.
pub fn of_engine(engine: Arc<Engine>) -> Arc<dyn Store> {
    store(engine, None)
}

/// Makes a store of an engine as [`of_engine`] does. Operations go through ingest pipelines before they are written.
pub fn with_output_pipelines(engine: Arc<Engine>, pipelines: Arc<dyn OutputPipelines>) -> Arc<dyn Store> {
    store(engine, Some(pipelines))
}

fn store(engine: Arc<Engine>, pipelines: Option<Arc<dyn OutputPipelines>>) -> Arc<dyn Store> {
    let (server, keeper) = (Principal::system(), dead_letter::RetentionTask::default());
    Arc::new(OfEngine { engine, server, keeper, pipelines })
}

impl OfEngine {
    fn now(&self) -> DateTime<Utc> {
        DateTime::from_timestamp_millis(self.engine.clock().now_ms()).unwrap_or_default()
    }
}

impl OfEngine {
    /// A letter for which there is room. One that takes the place of another always has it.
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
impl Store for OfEngine {
    async fn open(&self) -> Result<()> {
        dead_letter::create_index(&self.engine).await?;
        self.keeper.begin(&self.engine, &self.server).await
    }

    async fn write(
        &self,
        writer: &Principal,
        write: SourceWrite,
        replace: Replace,
        timeout: Duration,
        ready: BoxFuture<'_, ()>,
    ) -> Result<Durable> {
        let appended = self.engine.append_from_source(writer, write, replace, timeout, ready).await?;
        Ok(appended.durable())
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
        dead_letter::list(&self.engine, wanted).await
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
        let replayed = dead_letter::replay(&self.engine, writer, std::slice::from_ref(letter)).await;
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
