//! The stored pipelines.
//!
//! Definitions are documents of a system index: a change is durable before it is answered, snapshots take them with the global
//! state, and no part of the catalog knows them. All of them are in memory, compiled. They are read again when the index is
//! another one, as after a restore.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use millrace_engine::{
    DocResult, Engine, Precondition, RefreshPolicy, Session, SystemDocument, SystemDocuments,
};
use millrace_mapping::pattern;
use millrace_processors::{IngestPipeline, PipelineCounters, PipelineFigures, PipelineSet};
use millrace_query::SearchService;
use millrace_runtime::Priority;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use super::failure;
use crate::error::Error;

/// Index of the definitions.
const INDEX: &str = ".ingest-pipelines";
/// Most pipelines.
const MAX_PIPELINES: usize = 5_000;
/// Most bytes of a definition.
const MAX_DEFINITION_BYTES: usize = 1 << 20;
/// Most bytes of all definitions.
const MAX_TOTAL_BYTES: usize = 64 << 20;
/// Most bytes of an id.
const MAX_ID_BYTES: usize = 512;

/// A definition as it is stored.
#[derive(Debug)]
struct PipelineDefinition {
    definition: Map<String, Value>,
    /// User who stored it.
    by: String,
    time_ms: i64,
}

impl SystemDocument for PipelineDefinition {
    const INDEX: &'static str = INDEX;

    fn index_body() -> Value {
        json!({
            "settings": {"index.number_of_shards": 1, "index.number_of_replicas": 0, "index.hidden": true},
            "mappings": {"dynamic": "strict", "properties": {
                "definition": {"type": "object", "enabled": false},
                "by": {"type": "keyword"},
                "@timestamp": {"type": "date", "format": "epoch_millis"},
            }},
        })
    }

    fn encode(&self) -> Bytes {
        let source = json!({ "definition": self.definition, "by": self.by, "@timestamp": self.time_ms });
        Bytes::from(source.to_string())
    }

    fn decode(_: &str, source: &Bytes) -> Result<Self, String> {
        let mut source: Value = serde_json::from_slice(source).map_err(|error| error.to_string())?;
        let Value::Object(definition) = source["definition"].take() else {
            return Err("[definition] is missing".to_owned());
        };
        let by = source["by"].as_str().unwrap_or_default().to_owned();
        Ok(Self { definition, by, time_ms: source["@timestamp"].as_i64().unwrap_or(0) })
    }
}

/// A definition in memory, with the bytes of its text.
#[derive(Debug)]
struct CachedDefinition {
    members: Map<String, Value>,
    bytes: usize,
}

impl CachedDefinition {
    fn new(members: Map<String, Value>) -> Arc<Self> {
        let bytes = Value::Object(members.clone()).to_string().len();
        Arc::new(Self { members, bytes })
    }
}

/// Definitions with the compiled pipelines.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoredPipelines {
    /// The index that they were read from.
    index_uuid: Option<String>,
    definitions: BTreeMap<String, Arc<CachedDefinition>>,
    compiled: Arc<PipelineSet>,
    /// Pipelines that this version does not accept, with the reason.
    unusable: BTreeMap<String, String>,
}

impl StoredPipelines {
    /// Returns the definitions whose ids match one of some patterns; all without any.
    pub(crate) fn find(&self, ids: Option<&str>) -> Map<String, Value> {
        let matches = |id: &str| {
            ids.is_none_or(|ids| {
                ids.split(',').any(|wanted| wanted == "_all" || wanted == id || pattern::matches(wanted, id))
            })
        };
        let found = self.definitions.iter().filter(|(id, _)| matches(id));
        found.map(|(id, definition)| (id.clone(), Value::Object(definition.members.clone()))).collect()
    }

    /// Returns the compiled pipelines.
    pub(crate) fn compiled(&self) -> &Arc<PipelineSet> {
        &self.compiled
    }

    /// Returns a compiled pipeline.
    ///
    /// # Errors
    /// There is none with the id, or this version does not accept it.
    pub(crate) fn get(&self, id: &str) -> Result<&Arc<IngestPipeline>, Error> {
        self.compiled.get(id).ok_or_else(|| match self.unusable.get(id) {
            Some(reason) => {
                Error::illegal_argument(format!("pipeline with id [{id}] cannot be used: {reason}"))
            }
            None => Error::illegal_argument(format!("pipeline with id [{id}] does not exist")),
        })
    }
}

/// Ingest pipelines of a node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct IngestService(Arc<ServiceState>);

#[derive(Debug)]
struct ServiceState {
    documents: SystemDocuments<PipelineDefinition>,
    search: Arc<SearchService>,
    stored: ArcSwap<StoredPipelines>,
    /// Held by a change of definitions.
    changing: Mutex<()>,
    /// Counters of all documents that went through pipelines.
    total: PipelineCounters,
}

impl IngestService {
    /// Makes the service of an engine. Definitions are read when they are first asked for.
    pub fn new(engine: &Arc<Engine>, search: &Arc<SearchService>) -> Self {
        Self(Arc::new(ServiceState {
            documents: SystemDocuments::new(engine),
            search: Arc::clone(search),
            stored: ArcSwap::default(),
            changing: Mutex::default(),
            total: PipelineCounters::default(),
        }))
    }

    /// Makes the service of an engine and reads the definitions. What cannot be read now is read when it is asked for.
    pub async fn open(engine: &Arc<Engine>, search: &Arc<SearchService>) -> Self {
        let service = Self::new(engine, search);
        if let Err(error) = service.stored().await {
            tracing::warn!(error = error.reason(), "the ingest pipelines cannot be read yet");
        }
        service
    }

    /// Returns the store.
    pub(super) fn engine(&self) -> &Arc<Engine> {
        self.0.documents.engine()
    }

    fn index_uuid(&self) -> Option<String> {
        self.0.documents.engine().metadata().index(INDEX).map(|meta| meta.uuid_text())
    }

    /// Returns the pipelines of now.
    ///
    /// # Errors
    /// The definitions cannot be read.
    pub(crate) async fn stored(&self) -> Result<Arc<StoredPipelines>, Error> {
        let stored = self.0.stored.load_full();
        if stored.index_uuid == self.index_uuid() {
            return Ok(stored);
        }
        let _changing = self.0.changing.lock().await;
        self.reload().await
    }

    /// Finds all definitions. The log has no frames of restored ones, but a search finds them.
    async fn search_all(&self) -> Result<Vec<(String, Result<PipelineDefinition, String>)>, Error> {
        let engine = self.0.documents.engine();
        let Ok(index) = engine.index(INDEX) else { return Ok(Vec::new()) };
        let session = Session::system(engine);
        session.refresh(&[index]).await?;
        let body = json!({ "size": MAX_PIPELINES, "track_total_hits": false });
        let mut answer: Value = self.0.search.read(&session, INDEX, body, Priority::Foreground).await?;
        let Value::Array(hits) = answer["hits"]["hits"].take() else { return Ok(Vec::new()) };
        let decode = |hit: Value| {
            let id = hit["_id"].as_str().unwrap_or_default().to_owned();
            let decoded = PipelineDefinition::decode(&id, &Bytes::from(hit["_source"].to_string()));
            (id, decoded)
        };
        Ok(hits.into_iter().map(decode).collect())
    }

    /// Reads the definitions where their index is another one. The caller holds the lock of changes.
    async fn reload(&self) -> Result<Arc<StoredPipelines>, Error> {
        let index_uuid = self.index_uuid();
        let stored = self.0.stored.load_full();
        if stored.index_uuid == index_uuid {
            return Ok(stored);
        }
        let documents = self.search_all().await?;
        let compile = move || {
            let mut stored = StoredPipelines { index_uuid, ..StoredPipelines::default() };
            let mut compiled = PipelineSet::default();
            for document in documents {
                let (id, definition) = match document {
                    (id, Ok(document)) => (id, document.definition),
                    (id, Err(reason)) => {
                        stored.unusable.insert(id, reason);
                        continue;
                    }
                };
                match IngestPipeline::parse(&id, &definition) {
                    Ok(pipeline) => compiled.insert(Arc::new(pipeline)),
                    Err(error) => {
                        tracing::warn!(pipeline = id, %error, "a stored ingest pipeline cannot be used");
                        stored.unusable.insert(id.clone(), error.to_string());
                    }
                }
                stored.definitions.insert(id, CachedDefinition::new(definition));
            }
            stored.compiled = Arc::new(compiled);
            Ok(Arc::new(stored))
        };
        let stored = self.0.documents.engine().compute().run(Priority::Ingest, compile).await?;
        self.0.stored.store(Arc::clone(&stored));
        Ok(stored)
    }

    /// Stores a definition, in place of one with its id.
    ///
    /// # Errors
    /// The definition is refused, there are too many, or the write fails. Nothing has changed then.
    pub(crate) async fn put(&self, id: &str, definition: Map<String, Value>, by: &str) -> Result<(), Error> {
        if id.is_empty() || id.len() > MAX_ID_BYTES || id.chars().any(char::is_control) || id == "_none" {
            return Err(Error::illegal_argument(format!(
                "[{id}] cannot name a pipeline: an id has 1 to {MAX_ID_BYTES} bytes, no control characters, and is not [_none]"
            )));
        }
        let engine = self.0.documents.engine();
        let name = id.to_owned();
        let compile = move || {
            let bytes = Value::Object(definition.clone()).to_string().len();
            let compiled = IngestPipeline::parse(&name, &definition);
            Ok((bytes, definition, compiled))
        };
        let (bytes, definition, compiled) = engine.compute().run(Priority::Ingest, compile).await?;
        if bytes > MAX_DEFINITION_BYTES {
            return Err(Error::illegal_argument(format!(
                "pipeline [{id}] has [{bytes}] bytes; at most {MAX_DEFINITION_BYTES} are accepted"
            )));
        }
        let pipeline = Arc::new(compiled.map_err(|error| failure(&error))?);
        let _changing = self.0.changing.lock().await;
        let stored = self.reload().await?;
        if !stored.definitions.contains_key(id) && stored.definitions.len() >= MAX_PIPELINES {
            return Err(Error::illegal_argument(format!(
                "there are {MAX_PIPELINES} ingest pipelines already: delete some"
            )));
        }
        let others = stored.definitions.iter().filter(|(other, _)| other.as_str() != id);
        let total: usize = others.map(|(_, definition)| definition.bytes).sum();
        if total + bytes > MAX_TOTAL_BYTES {
            return Err(Error::illegal_argument(format!(
                "the ingest pipelines have more than {MAX_TOTAL_BYTES} bytes with [{id}]: delete some"
            )));
        }
        let time_ms = engine.clock().now_ms();
        let document = PipelineDefinition { definition, by: by.to_owned(), time_ms };
        self.0.documents.put(id, &document, Precondition::Any, RefreshPolicy::None).await?;
        let mut changed = StoredPipelines::clone(&stored);
        let mut compiled = PipelineSet::clone(&changed.compiled);
        compiled.insert(pipeline);
        changed.compiled = Arc::new(compiled);
        changed.unusable.remove(id);
        changed.definitions.insert(id.to_owned(), CachedDefinition::new(document.definition));
        // Of an index that a restore has replaced meanwhile they are read again.
        if changed.index_uuid.is_none() {
            changed.index_uuid = self.index_uuid();
        }
        self.0.stored.store(Arc::new(changed));
        Ok(())
    }

    /// Deletes the definitions whose ids match a pattern; a name without a wildcard must be there.
    ///
    /// # Errors
    /// There is none, or the write fails.
    pub(crate) async fn delete(&self, ids: &str) -> Result<(), Error> {
        let _changing = self.0.changing.lock().await;
        let stored = self.reload().await?;
        let found: Vec<String> = stored.find(Some(ids)).into_iter().map(|(id, _)| id).collect();
        if found.is_empty() {
            if ids == "*" || ids == "_all" {
                return Ok(());
            }
            return Err(Error::resource_not_found(format!("pipeline [{ids}] is missing")));
        }
        let operations = found.iter().map(|id| PipelineDefinition::delete_op(id, Precondition::Any));
        let outcomes = self.0.documents.write(operations.collect(), RefreshPolicy::None).await?;
        let mut changed = StoredPipelines::clone(&stored);
        let mut compiled = PipelineSet::clone(&changed.compiled);
        let mut failed = None;
        for (id, outcome) in found.iter().zip(outcomes) {
            match outcome {
                Ok(outcome) => {
                    debug_assert!(matches!(outcome.result, DocResult::Deleted | DocResult::NotFound));
                    compiled.remove(id);
                    changed.definitions.remove(id);
                    changed.unusable.remove(id);
                }
                Err(error) => failed = Some(error),
            }
        }
        changed.compiled = Arc::new(compiled);
        self.0.stored.store(Arc::new(changed));
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Returns the counters of all documents that went through pipelines.
    pub(crate) fn total(&self) -> &PipelineCounters {
        &self.0.total
    }

    /// Renders the figures as `_nodes/stats/ingest` shows them.
    pub(crate) fn statistics(&self) -> Value {
        let mut pipelines = Map::new();
        for pipeline in self.0.stored.load().compiled.iter() {
            let processors: Vec<Value> = pipeline
                .processor_counters()
                .map(|(name, kind, counters)| {
                    let member = json!({ "type": kind, "stats": figures(counters.figures()) });
                    Value::Object(Map::from_iter([(name, member)]))
                })
                .collect();
            let mut shown = figures(pipeline.counters().figures());
            shown["processors"] = processors.into();
            pipelines.insert(pipeline.id().to_string(), shown);
        }
        json!({ "total": figures(self.0.total.figures()), "pipelines": pipelines })
    }

    /// Counts the pipelines.
    pub(crate) fn count(&self) -> usize {
        self.0.stored.load().definitions.len()
    }

    /// Renders the pipelines as the state of the cluster shows them.
    pub(crate) fn state(&self) -> Value {
        let stored = self.0.stored.load();
        let pipelines = stored.definitions.iter();
        let pipelines = pipelines.map(|(id, config)| json!({ "id": id, "config": config.members }));
        json!({ "pipeline": pipelines.collect::<Vec<_>>() })
    }
}

fn figures(figures: PipelineFigures) -> Value {
    json!({
        "count": figures.count,
        "time_in_millis": u64::try_from(figures.time.as_millis()).unwrap_or(u64::MAX),
        "current": figures.current,
        "failed": figures.failed,
    })
}
