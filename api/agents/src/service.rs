//! The service of agents: the registry, and the task that stores keep-alives once a second.

use std::sync::Arc;
use std::time::Duration;

use millrace_engine::Engine;
use millrace_runtime::Result;
use millrace_runtime::metrics::{MetricFamily, MetricSample, MetricSource};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::config::AgentsConfig;
use crate::registry::AgentRegistry;

/// Time between two writes.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// The agents of a server. Clones are the same; the last one ends the task, as a crash would. [`Agents::stop`] stores everything.
#[derive(Clone, Debug)]
pub struct Agents {
    pub(crate) registry: AgentRegistry,
    task: Arc<FlushTask>,
}

#[derive(Debug)]
struct FlushTask {
    stopping: watch::Sender<bool>,
    handle: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for FlushTask {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.lock().take() {
            handle.abort();
        }
    }
}

impl Agents {
    /// Reads the stored agents, and stores keep-alives from then on.
    ///
    /// # Errors
    /// The store's.
    pub async fn start(engine: &Arc<Engine>, config: AgentsConfig) -> Result<Self> {
        let registry = AgentRegistry::load(engine, config).await?;
        let (stopping, stopped) = watch::channel(false);
        let handle = tokio::spawn(flush_until_stopped(registry.clone(), stopped));
        let task = FlushTask { stopping, handle: Mutex::new(Some(handle)) };
        Ok(Self { registry, task: Arc::new(task) })
    }

    /// Stores what is not stored yet, and ends the task.
    pub async fn stop(&self) {
        self.task.stopping.send_replace(true);
        let handle = self.task.handle.lock().take();
        if let Some(handle) = handle
            && let Err(error) = handle.await
        {
            tracing::error!(%error, "storing keep-alives of agents has failed");
        }
    }
}

async fn flush_until_stopped(registry: AgentRegistry, mut stopped: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(FLUSH_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_failing = false;
    loop {
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => break,
            _ = ticks.tick() => {}
        }
        match registry.flush().await {
            Ok(_) => is_failing = false,
            // The store says why it fails once, not each second.
            Err(error) if !is_failing => {
                is_failing = true;
                tracing::warn!(%error, "keep-alives of agents cannot be stored, they wait in memory");
            }
            Err(_) => {}
        }
    }
    if let Err(error) = registry.flush_all().await {
        tracing::warn!(%error, "the last keep-alives of agents were not stored");
    }
}

impl MetricSource for Agents {
    fn families(&self) -> Vec<MetricFamily> {
        let counts = self.registry.count_by_status();
        let samples = counts
            .into_iter()
            .map(|(status, count)| MetricSample::gauge(count as f64).with_label("status", status.name()));
        vec![MetricFamily::new("millrace_agents", "Enrolled agents by status", samples.collect())]
    }
}
