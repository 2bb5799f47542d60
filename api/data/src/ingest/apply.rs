//! The pipelines of documents that are written.
//!
//! A document takes the pipeline of its request, else `index.default_pipeline` of its index, and then `index.final_pipeline`.
//! The first may name another index, whose final pipeline counts then. Rights are checked on the index that a document goes to
//! at last, by the write.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use millrace_catalog::metadata::resolve_date_math;
use millrace_engine::{Action, Session, VersionType, WriteOp};
use millrace_processors::{IngestDocument, PipelineCounters, PipelineRun};
use millrace_runtime::Instant;
use serde_json::{Map, Value};

use super::failure;
use super::service::StoredPipelines;
use crate::documents::id_problem;
use crate::error::Error;
use crate::http::MemoryAllowance;
use crate::http::json;

/// Time after which no further document of a request goes through pipelines.
const MAX_REQUEST_TIME: Duration = Duration::from_secs(120);
/// Word for no pipeline.
const NONE: &str = "_none";

/// Pipelines of an index.
#[derive(Clone, Debug, Default)]
struct IndexPipelines {
    default: Option<Arc<str>>,
    last: Option<Arc<str>>,
}

/// Fate of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PipelineVerdict {
    /// No pipeline concerns it.
    Untouched,
    /// It is written as pipelines have made it.
    Write,
    /// A pipeline dropped it.
    Drop,
}

/// Pipelines for the operations of one request.
pub(crate) struct DocumentPipelines<'a> {
    session: &'a Session,
    stored: &'a StoredPipelines,
    total: &'a PipelineCounters,
    now: DateTime<Utc>,
    indices: HashMap<Arc<str>, IndexPipelines>,
    /// The index asked for last: most requests name one.
    last: Option<(Arc<str>, IndexPipelines)>,
    /// Time of the documents so far, and its bound.
    spent: Duration,
    bound: Duration,
}

/// Returns whether an index has pipelines of its own. The write itself refuses a name that cannot be resolved.
pub(crate) fn names_pipelines(session: &Session, index: &str) -> bool {
    index_pipelines(session, index).is_ok_and(|of| of.default.is_some() || of.last.is_some())
}

/// Returns whether pipelines concern an operation.
pub(crate) fn is_pipelined(session: &Session, op: &WriteOp, requested: Option<&str>) -> bool {
    document_of(op).is_some()
        && (requested.is_some_and(|name| name != NONE) || names_pipelines(session, &op.index))
}

/// Reads the settings of the index that a name stands for, or of the templates that would make it.
fn index_pipelines(session: &Session, name: &str) -> Result<IndexPipelines, Error> {
    let now_ms = session.clock().now_ms();
    let metadata = session.metadata();
    let of = |text: Option<&str>| text.filter(|name| !name.is_empty() && *name != NONE).map(Arc::from);
    let (default, last) = ("index.default_pipeline", "index.final_pipeline");
    if let Some(meta) = metadata.write_index(name, now_ms)? {
        return Ok(IndexPipelines { default: of(meta.setting(default)), last: of(meta.setting(last)) });
    }
    let name = resolve_date_math(name, now_ms)?;
    let settings = metadata.layers(&name, None).settings;
    let text = |key: &str| settings.get(key).and_then(Value::as_str);
    Ok(IndexPipelines { default: of(text(default)), last: of(text(last)) })
}

/// Returns the document of an operation that pipelines change.
fn document_of(op: &WriteOp) -> Option<&Bytes> {
    match &op.action {
        Action::Index(document) | Action::Create(document) => Some(document),
        Action::Update(update) => match update.doc_as_upsert {
            true => update.doc.as_ref().map(|text| text.text()),
            false => update.upsert.as_ref().map(|text| text.text()),
        },
        Action::Delete => None,
    }
}

impl<'a> DocumentPipelines<'a> {
    /// Begins at an instant.
    pub(crate) fn new(
        session: &'a Session,
        stored: &'a StoredPipelines,
        total: &'a PipelineCounters,
    ) -> Self {
        let now = DateTime::from_timestamp_millis(session.clock().now_ms()).unwrap_or_default();
        Self {
            session,
            stored,
            total,
            now,
            indices: HashMap::new(),
            last: None,
            spent: Duration::ZERO,
            bound: MAX_REQUEST_TIME,
        }
    }

    /// Lets the documents take any time together: nobody waits for an answer.
    pub(crate) fn without_time_bound(self) -> Self {
        Self { bound: Duration::MAX, ..self }
    }

    fn of_index(&mut self, name: &Arc<str>) -> Result<IndexPipelines, Error> {
        if let Some((last, pipelines)) = &self.last
            && Arc::ptr_eq(last, name)
        {
            return Ok(pipelines.clone());
        }
        let pipelines = match self.indices.get(name) {
            Some(pipelines) => pipelines.clone(),
            None => {
                let pipelines = index_pipelines(self.session, name)?;
                self.indices.insert(Arc::clone(name), pipelines.clone());
                pipelines
            }
        };
        self.last = Some((Arc::clone(name), pipelines.clone()));
        Ok(pipelines)
    }

    /// Takes an operation through its pipelines.
    ///
    /// # Errors
    /// The failure of a processor, or a document that has become none.
    pub(crate) fn apply(
        &mut self,
        op: &mut WriteOp,
        requested: Option<&str>,
        allowance: &MemoryAllowance,
    ) -> Result<PipelineVerdict, Error> {
        let Some(document) = document_of(op).cloned() else { return Ok(PipelineVerdict::Untouched) };
        let of_index = self.of_index(&op.index)?;
        let first = match requested {
            Some(NONE) => None,
            Some("") => return Err(Error::validation(&["pipeline cannot be an empty string"])),
            Some(name) => Some(Arc::from(name)),
            None => of_index.default,
        };
        if first.is_none() && of_index.last.is_none() {
            return Ok(PipelineVerdict::Untouched);
        }
        if self.spent > self.bound {
            return Err(too_slow());
        }
        let began = Instant::now();
        let result = self.run(op, &document, first, of_index.last, allowance);
        let elapsed = began.elapsed();
        self.spent += elapsed;
        self.total.add(elapsed, result.is_err());
        match result? {
            true => Ok(PipelineVerdict::Write),
            false => Ok(PipelineVerdict::Drop),
        }
    }

    fn run(
        &mut self,
        op: &mut WriteOp,
        document: &Bytes,
        first: Option<Arc<str>>,
        last: Option<Arc<str>>,
        allowance: &MemoryAllowance,
    ) -> Result<bool, Error> {
        // The values of a document are given back before the next one.
        let step = allowance.sibling();
        let Value::Object(mut source) = json::parse(document, &step)? else {
            return Err(Error::new(400, "mapper_parsing_exception", "a document must be an object"));
        };
        if op.id.is_none() {
            // OpenSearch puts the missing id over a field with its name. The field must not become the id.
            source.shift_remove("_id");
        }
        let timestamp = self.now.to_rfc3339_opts(SecondsFormat::Millis, true);
        let mut document = IngestDocument::new(source, metadata_of(op), timestamp);
        let before = Arc::clone(&op.index);
        if let Some(id) = &first
            && !self.execute(id, &mut document)?
        {
            return Ok(false);
        }
        let target = index_of(&document)?;
        // An update stays with its index, wherever the pipeline moves its document.
        let last = match *target == *before || matches!(op.action, Action::Update(_)) {
            true => last,
            false => self.of_index(&Arc::from(target))?.last,
        };
        if let Some(id) = &last {
            let target = target.to_owned();
            if !self.execute(id, &mut document)? {
                return Ok(false);
            }
            if index_of(&document)? != target {
                let reason = format!("final pipeline [{id}] can't change the target index");
                return Err(Error::new(500, "illegal_state_exception", reason));
            }
        }
        store(op, document, allowance)?;
        Ok(true)
    }

    fn execute(&self, id: &str, document: &mut IngestDocument) -> Result<bool, Error> {
        let pipeline = self.stored.get(id)?;
        let mut run = PipelineRun::new(self.stored.compiled(), self.now);
        run.execute(pipeline, document).map_err(|error| failure(&error))
    }
}

fn index_of(document: &IngestDocument) -> Result<&str, Error> {
    let index = document.metadata("_index").and_then(Value::as_str).filter(|name| !name.is_empty());
    index.ok_or_else(|| Error::illegal_argument("a pipeline has made [_index] no name of an index"))
}

fn metadata_of(op: &WriteOp) -> Vec<(&'static str, Value)> {
    let mut metadata = vec![("_index", Value::from(&*op.index))];
    metadata.extend(op.id.as_deref().map(|id| ("_id", id.into())));
    metadata.extend(op.routing.as_deref().map(|routing| ("_routing", routing.into())));
    if let Some((version, kind)) = op.version {
        metadata.push(("_version", version.into()));
        metadata.push(("_version_type", kind.name().into()));
    }
    metadata.extend(op.if_seq_no.map(|number| ("_if_seq_no", number.into())));
    metadata.extend(op.if_primary_term.map(|number| ("_if_primary_term", number.into())));
    metadata
}

/// Makes the refusal of a request whose pipelines take too long.
pub(super) fn too_slow() -> Error {
    let reason = "the pipelines of the request take too long: send fewer documents";
    Error::new(429, "es_rejected_execution_exception", reason)
}

/// Puts a document into the operation, with its metadata. An update keeps its own index, id and routing.
fn store(op: &mut WriteOp, document: IngestDocument, allowance: &MemoryAllowance) -> Result<(), Error> {
    let (source, metadata) = document.into_parts();
    if !matches!(op.action, Action::Update(_)) {
        store_metadata(op, &metadata)?;
    }
    let bytes = write(&source);
    allowance.take(bytes.len())?;
    match &mut op.action {
        Action::Index(document) | Action::Create(document) => *document = bytes,
        Action::Update(update) => {
            let text = if update.doc_as_upsert { &mut update.doc } else { &mut update.upsert };
            *text = Some(bytes.into());
        }
        Action::Delete => {}
    }
    Ok(())
}

fn store_metadata(op: &mut WriteOp, metadata: &[(&'static str, Value)]) -> Result<(), Error> {
    let text = |name: &str| -> Result<Option<String>, Error> {
        match metadata.iter().find(|(known, _)| *known == name) {
            None | Some((_, Value::Null)) => Ok(None),
            Some((_, Value::String(text))) => Ok(Some(text.clone())),
            Some((_, value @ (Value::Number(_) | Value::Bool(_)))) => Ok(Some(value.to_string())),
            Some(_) => Err(Error::illegal_argument(format!("a pipeline has made [{name}] no text"))),
        }
    };
    let number = |name: &str| -> Result<Option<u64>, Error> {
        let wrong = |text: &str| {
            Error::illegal_argument(format!(
                "a pipeline has made [{name}] [{text}], which is no whole number"
            ))
        };
        text(name)?.map(|text| text.parse().map_err(|_| wrong(&text))).transpose()
    };
    if let Some(index) = text("_index")?
        && *index != *op.index
    {
        op.index = index.into();
    }
    op.id = text("_id")?;
    if let Some(id) = &op.id {
        if id.is_empty() {
            return Err(Error::illegal_argument("if _id is specified it must not be empty"));
        }
        if let Some(problem) = id_problem(id) {
            return Err(Error::validation(&[problem]));
        }
    }
    op.routing = text("_routing")?;
    let kind = text("_version_type")?;
    let kind = kind.map(|kind| {
        VersionType::parse(&kind)
            .ok_or_else(|| Error::illegal_argument(format!("No version type match [{kind}]")))
    });
    let kind = kind.transpose()?.filter(|kind| *kind != VersionType::Internal);
    op.version = match (number("_version")?, kind) {
        (Some(version), Some(kind)) => Some((version, kind)),
        _ => None,
    };
    op.if_seq_no = number("_if_seq_no")?;
    op.if_primary_term = number("_if_primary_term")?;
    Ok(())
}

fn write(source: &Map<String, Value>) -> Bytes {
    Bytes::from(serde_json::to_vec(source).expect("writing to memory cannot fail"))
}
