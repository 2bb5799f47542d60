//! Ingest pipelines between the outputs of a pipeline and a real store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use millrace_catalog::operation::{Action, WriteOp};
use millrace_pipeline_store::EngineStore;
use millrace_pipelines::manager::Config;
use millrace_pipelines::store::{OutputPipelines, OutputVerdict};
use millrace_pipelines::{Environment, Manager};
use serde_json::{Value, json};

use crate::{engine, filter, put, values};

/// Marks documents of `piped*` by the pipeline that they go through, and drops or refuses what they ask for.
#[derive(Debug, Default)]
struct MarkingPipelines {
    /// `true` where the documents to be refused are marked, too.
    is_mended: AtomicBool,
    /// `true` after the first call, which fails as if the pipelines could not be read.
    was_asked: AtomicBool,
}

impl MarkingPipelines {
    fn verdict(&self, mut op: WriteOp, pipeline: Option<&str>) -> OutputVerdict {
        let Action::Index(source) = &op.action else { panic!("{op:?}") };
        let mut document: Value = serde_json::from_slice(source).unwrap();
        if document["kind"] == "drop" {
            return OutputVerdict::Dropped;
        }
        if document["kind"] == "fail" && !self.is_mended.load(Ordering::Relaxed) {
            return OutputVerdict::Failed("the processor says no".to_owned());
        }
        assert_eq!(document.get("by"), None, "a document goes through its pipelines once");
        document["by"] = json!(pipeline.unwrap_or("default"));
        op.action = Action::Index(document.to_string().into());
        OutputVerdict::Write(op)
    }
}

#[async_trait]
impl OutputPipelines for MarkingPipelines {
    fn concerns(&self, index: &str) -> bool {
        index.starts_with("piped")
    }

    async fn apply(&self, requests: Vec<(WriteOp, Option<Arc<str>>)>) -> Result<Vec<OutputVerdict>, String> {
        if !self.was_asked.swap(true, Ordering::Relaxed) {
            return Err("not now".to_owned());
        }
        Ok(requests.into_iter().map(|(op, pipeline)| self.verdict(op, pipeline.as_deref())).collect())
    }
}

const PIPED: &str = r#"
input { generator { count => 1 codec => json lines => [
  '{"n":1}', '{"n":2,"kind":"drop"}', '{"n":3,"kind":"fail"}', '{"n":4}'
] } }
output {
  elasticsearch { id => piped index => 'piped' }
  if [n] == 4 { elasticsearch { index => 'named' pipeline => 'of-%{n}' } }
  if [n] == 1 { elasticsearch { index => 'plain' } }
}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_of_outputs_go_through_ingest_pipelines_once() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path()).await;
    put(dir.path(), "main.conf", PIPED);
    let config = Config {
        directory: dir.path().join("pipelines"),
        reload_interval: Duration::ZERO,
        settings_file: None,
        queues: None,
        outputs: None,
        memory_bytes: millrace_ingest::budget::DEFAULT_BYTES,
        environment: Environment::default(),
    };
    let pipelines = Arc::new(MarkingPipelines::default());
    let store = EngineStore::new(Arc::clone(&engine)).with_output_pipelines(Arc::clone(&pipelines) as _);
    let manager = Manager::new(config, Arc::new(store), engine.compute().clone());
    manager.start().await;
    while manager.dead_letters(filter(None, 10)).await.unwrap().letters.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let letters = manager.dead_letters(filter(None, 10)).await.unwrap().letters;
    let [letter] = letters.as_slice() else { panic!("{letters:?}") };
    assert_eq!((letter.plugin.as_str(), letter.reason.as_str()), ("piped", "the processor says no"));
    assert_eq!(values(&engine, "piped", "n").await, [json!(1), json!(4)]);
    assert_eq!(values(&engine, "piped", "by").await, [json!("default"), json!("default")]);
    assert_eq!(values(&engine, "named", "by").await, [json!("of-4")]);
    assert_eq!(values(&engine, "plain", "n").await, [json!(1)]);
    // A replay takes the event through the pipeline again.
    pipelines.is_mended.store(true, Ordering::Relaxed);
    let done = manager.replay(filter(None, 10), None).await.unwrap();
    assert_eq!((done.stored, done.left), (1, Vec::new()));
    assert_eq!(values(&engine, "piped", "n").await, [json!(1), json!(3), json!(4)]);
    assert_eq!(values(&engine, "named", "n").await, [json!(4)], "other outputs do not get it again");
    manager.stop(Duration::from_secs(10)).await;
    engine.shutdown().await.unwrap();
}
