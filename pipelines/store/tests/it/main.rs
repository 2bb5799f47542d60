//! Pipelines that run against a real store: dead letters, rights, and ingest pipelines of outputs.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod letters;
mod output_pipelines;
mod rights;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millrace_engine::{Config as StorageConfig, Engine};
use millrace_pipeline_store::EngineStore;
use millrace_pipelines::Manager;
use millrace_pipelines::manager::{Config, DeadLetterFilter};
use millrace_runtime::SystemClock;
use millrace_segment::RowParts;
use serde_json::Value;

async fn engine(directory: &Path) -> Arc<Engine> {
    let config = StorageConfig { data_dir: directory.join("data"), ..StorageConfig::default() };
    Engine::open(config, Arc::new(SystemClock)).await.unwrap()
}

fn manager_of(directory: &Path, engine: &Arc<Engine>) -> Arc<Manager> {
    let config = Config {
        directory: directory.join("pipelines"),
        reload_interval: Duration::ZERO,
        settings_file: None,
        queues: None,
        outputs: None,
        memory_bytes: millrace_ingest::budget::DEFAULT_BYTES,
        environment: [("OUT".to_owned(), directory.join("out").display().to_string())].into_iter().collect(),
    };
    Manager::new(config, Arc::new(EngineStore::new(Arc::clone(engine))), engine.compute().clone())
}

fn filter(pipeline: Option<&str>, most: usize) -> DeadLetterFilter<'_> {
    DeadLetterFilter { pipeline, after: None, most }
}

/// Values of a field of the documents of an index, sorted.
async fn values(engine: &Engine, index: &str, field: &str) -> Vec<Value> {
    let Ok(index) = engine.index(index) else { return Vec::new() };
    engine.refresh(&[Arc::clone(&index)]).await.unwrap();
    let snapshot = index.snapshot().await.unwrap();
    let mut values = Vec::new();
    for view in snapshot.shards.iter().flat_map(|shard| &shard.segments) {
        let rows: Vec<u32> = (0..view.segment.rows()).filter(|row| !view.deleted.contains(*row)).collect();
        for row in view.segment.fetch(&rows, RowParts::ALL).await.unwrap() {
            let document: Value = serde_json::from_slice(&row.source).unwrap();
            values.push(document[field].clone());
        }
    }
    values.sort_by_key(Value::to_string);
    values
}

/// Writes a file into the directory of pipelines.
fn put(directory: &Path, name: &str, text: &str) {
    std::fs::create_dir_all(directory.join("pipelines")).unwrap();
    std::fs::write(directory.join("pipelines").join(name), text).unwrap();
}
