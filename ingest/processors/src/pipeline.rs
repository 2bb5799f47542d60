//! Pipelines: their definition, the order of their processors, and failures.
//!
//! An [`IngestPipeline`] is compiled of a definition. Each processor is a [`ProcessorStep`], with its condition, its handling
//! of failures and its counters. A [`PipelineSet`] holds all pipelines by id, so that one may call another. A [`PipelineRun`] is
//! the way of one document.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

use crate::config::ProcessorConfig;
use crate::counters::PipelineCounters;
use crate::document::IngestDocument;
use crate::error::{FailureOrigin, ProcessorError, Result};
use crate::processor::{self, Flow, Processor};
use crate::script::Script;
use crate::simulate::{ProcessorReport, ReportStatus};

/// Most processors of a pipeline, those of `on_failure` and `foreach` included.
pub const MAX_PROCESSORS: usize = 1_000;
/// Most patterns of `grok` and `gsub` in a pipeline. All pipelines of a node share the memory of compiled patterns.
const MAX_PATTERNS: usize = 2_000;
/// Deepest nesting of `on_failure` and `foreach`.
const MAX_NESTING: usize = 20;
/// Most pipelines that call one another for a document.
const MAX_CALLS: usize = 32;
/// Most processors within one another for a document: in `on_failure`, `foreach` and called pipelines.
const MAX_RUNNING: usize = 60;
/// Keys of `_ingest` that describe a failure.
const FAILURE_KEYS: [&str; 4] =
    ["on_failure_message", "on_failure_processor_type", "on_failure_processor_tag", "on_failure_pipeline"];

/// A compiled pipeline.
#[derive(Debug)]
pub struct IngestPipeline {
    id: Arc<str>,
    steps: Vec<ProcessorStep>,
    on_failure: Vec<ProcessorStep>,
    counters: PipelineCounters,
}

/// A processor with what surrounds it.
#[derive(Debug)]
pub(crate) struct ProcessorStep {
    pub(crate) processor_type: &'static str,
    tag: Option<String>,
    description: Option<String>,
    condition: Option<Script>,
    ignore_failure: bool,
    on_failure: Vec<ProcessorStep>,
    processor: Box<dyn Processor>,
    pub(crate) counters: PipelineCounters,
}

/// All pipelines, by id.
#[derive(Clone, Debug, Default)]
pub struct PipelineSet {
    pipelines: BTreeMap<Arc<str>, Arc<IngestPipeline>>,
}

impl PipelineSet {
    /// Returns a pipeline.
    pub fn get(&self, id: &str) -> Option<&Arc<IngestPipeline>> {
        self.pipelines.get(id)
    }

    /// Adds a pipeline, in place of one with its id.
    pub fn insert(&mut self, pipeline: Arc<IngestPipeline>) {
        self.pipelines.insert(Arc::clone(&pipeline.id), pipeline);
    }

    /// Removes a pipeline.
    pub fn remove(&mut self, id: &str) {
        self.pipelines.remove(id);
    }

    /// Lists all pipelines in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<IngestPipeline>> {
        self.pipelines.values()
    }

    /// Checks that there is no pipeline.
    pub fn is_empty(&self) -> bool {
        self.pipelines.is_empty()
    }
}

/// State of compiling a pipeline.
#[derive(Debug, Default)]
pub(crate) struct BuildContext {
    processors: usize,
    patterns: usize,
    depth: usize,
}

impl BuildContext {
    /// Compiles a list of processors. Several refusals are told together.
    pub(crate) fn steps(&mut self, list: Vec<Value>) -> Result<Vec<ProcessorStep>> {
        self.depth += 1;
        if self.depth > MAX_NESTING {
            return Err(ProcessorError::exceeded(format!(
                "processors are nested deeper than {MAX_NESTING} levels"
            )));
        }
        let (mut steps, mut refusals) = (Vec::new(), Vec::new());
        for item in list {
            let Value::Object(members) = item else {
                refusals
                    .push(ProcessorError::parse("a processor must be an object with its type as its name"));
                continue;
            };
            for (processor_type, options) in members {
                match self.step(&processor_type, options) {
                    Ok(step) => steps.push(step),
                    Err(error) => refusals.push(error),
                }
            }
        }
        self.depth -= 1;
        let mut refusals = refusals.into_iter();
        match refusals.next() {
            None => Ok(steps),
            Some(first) => Err(first.suppressing(refusals)),
        }
    }

    /// Counts patterns of the pipeline, before they are compiled.
    pub(crate) fn claim_patterns(&mut self, count: usize) -> Result<()> {
        self.patterns = self.patterns.saturating_add(count);
        if self.patterns > MAX_PATTERNS {
            return Err(ProcessorError::exceeded(format!(
                "a pipeline has more than {MAX_PATTERNS} patterns"
            )));
        }
        Ok(())
    }

    /// Compiles a processor.
    pub(crate) fn step(&mut self, processor_type: &str, options: Value) -> Result<ProcessorStep> {
        self.processors += 1;
        if self.processors > MAX_PROCESSORS {
            return Err(ProcessorError::exceeded(format!(
                "a pipeline has more than {MAX_PROCESSORS} processors"
            )));
        }
        let name = processor::find_type(processor_type)?;
        let members = match options {
            Value::Object(members) => members,
            Value::String(source) if name == "script" => {
                Map::from_iter([("source".to_owned(), Value::String(source))])
            }
            _ => {
                return Err(ProcessorError::parse(format!(
                    "the options of the processor [{processor_type}] must be an object"
                ))
                .with("processor_type", name));
            }
        };
        let mut config = ProcessorConfig::new(name, members);
        let tag = config.text("tag")?;
        let description = config.text("description")?;
        let ignore_failure = config.flag("ignore_failure", false)?;
        let condition = match config.value("if") {
            None => None,
            Some(script) => {
                let condition = Script::condition(&script).map_err(|error| config.describe(error))?;
                self.claim_patterns(condition.patterns())?;
                Some(condition)
            }
        };
        let on_failure = match config.list("on_failure")? {
            None => Vec::new(),
            Some(list) if list.is_empty() => {
                return Err(config.refusal("on_failure", "processors list cannot be empty"));
            }
            Some(list) => self.steps(list)?,
        };
        let processor = processor::build(name, &mut config, self).map_err(|error| config.describe(error))?;
        config.finish()?;
        let counters = PipelineCounters::default();
        Ok(ProcessorStep {
            processor_type: name,
            tag,
            description,
            condition,
            ignore_failure,
            on_failure,
            processor,
            counters,
        })
    }
}

impl IngestPipeline {
    /// Compiles a definition.
    ///
    /// # Errors
    /// A processor or an expression that is not supported, by name; else the refusal of OpenSearch, in its words.
    pub fn parse(id: &str, definition: &Map<String, Value>) -> Result<Self> {
        let mut config = ProcessorConfig::new("", definition.clone());
        config.text("description")?;
        config.integer("version")?;
        config.object("_meta")?;
        let mut context = BuildContext::default();
        let list = config.required_value("processors")?;
        let Value::Array(list) = list else {
            let found = crate::java::type_name(&list);
            return Err(
                config.refusal("processors", &format!("property isn't a list, but of type [{found}]"))
            );
        };
        let steps = context.steps(list)?;
        let on_failure = match config.list("on_failure")? {
            None => Vec::new(),
            Some(list) if list.is_empty() => {
                return Err(ProcessorError::parse(format!(
                    "pipeline [{id}] cannot have an empty on_failure option defined"
                )));
            }
            Some(list) => context.steps(list)?,
        };
        let remaining = config.remaining();
        if !remaining.is_empty() {
            return Err(ProcessorError::parse(format!(
                "pipeline [{id}] doesn't support one or more provided configuration parameters [{}]",
                remaining.join(", ")
            )));
        }
        Ok(Self { id: id.into(), steps, on_failure, counters: PipelineCounters::default() })
    }

    /// Returns the id.
    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// Returns the counters of the pipeline.
    pub fn counters(&self) -> &PipelineCounters {
        &self.counters
    }

    /// Lists the processors in order: the name for statistics, the type, and the counters.
    pub fn processor_counters(&self) -> impl Iterator<Item = (String, &'static str, &PipelineCounters)> {
        self.steps.iter().map(|step| {
            let name = match &step.tag {
                Some(tag) => format!("{}:{tag}", step.processor_type),
                None => step.processor_type.to_owned(),
            };
            (name, step.processor_type, &step.counters)
        })
    }

    fn run(&self, document: &mut IngestDocument, run: &mut PipelineRun<'_>) -> Result<Flow> {
        if run.calls.contains(&self.id) {
            return Err(ProcessorError::illegal_state(format!("Cycle detected for pipeline: {}", self.id)));
        }
        if run.calls.len() == MAX_CALLS {
            return Err(ProcessorError::illegal_state(format!(
                "more than {MAX_CALLS} pipelines call one another for one document"
            )));
        }
        run.calls.push(Arc::clone(&self.id));
        let outer = document.ingest.insert("pipeline".to_owned(), Value::from(&*self.id));
        let timer = self.counters.start();
        let mut result = run.steps(&self.steps, document);
        if let Err(error) = &result
            && !self.on_failure.is_empty()
        {
            result = run.on_failure(&self.on_failure, &error.clone(), document);
        }
        timer.finish(result.is_err());
        match outer {
            Some(outer) => drop(document.ingest.insert("pipeline".to_owned(), outer)),
            None => drop(document.ingest.shift_remove("pipeline")),
        }
        run.calls.pop();
        result
    }
}

/// The way of one document through pipelines.
#[derive(Debug)]
pub struct PipelineRun<'a> {
    pipelines: &'a PipelineSet,
    now: DateTime<Utc>,
    calls: Vec<Arc<str>>,
    /// Processors that run now, each within the one before.
    running: usize,
    reports: Option<Vec<ProcessorReport>>,
}

impl<'a> PipelineRun<'a> {
    /// Begins at an instant.
    pub fn new(pipelines: &'a PipelineSet, now: DateTime<Utc>) -> Self {
        Self { pipelines, now, calls: Vec::new(), running: 0, reports: None }
    }

    /// Reports each processor.
    #[must_use]
    pub fn with_reports(self) -> Self {
        Self { reports: Some(Vec::new()), ..self }
    }

    /// Returns the reports.
    pub fn into_reports(self) -> Vec<ProcessorReport> {
        self.reports.unwrap_or_default()
    }

    /// Runs a pipeline for a document; returns whether the document goes on.
    ///
    /// # Errors
    /// The failure of a processor that nothing handles.
    pub fn execute(&mut self, pipeline: &IngestPipeline, document: &mut IngestDocument) -> Result<bool> {
        Ok(pipeline.run(document, self)? == Flow::Continue)
    }

    pub(crate) fn now(&self) -> DateTime<Utc> {
        self.now
    }

    /// Runs another pipeline by its id; `None` where there is none.
    pub(crate) fn call(&mut self, id: &str, document: &mut IngestDocument) -> Option<Result<Flow>> {
        let pipeline = Arc::clone(self.pipelines.get(id)?);
        Some(pipeline.run(document, self))
    }

    /// Runs a processor without a report of it.
    pub(crate) fn quietly(&mut self, step: &ProcessorStep, document: &mut IngestDocument) -> Result<Flow> {
        let reports = self.reports.take();
        let result = step.run(document, self);
        self.reports = reports;
        result
    }

    fn steps(&mut self, steps: &[ProcessorStep], document: &mut IngestDocument) -> Result<Flow> {
        for step in steps {
            if step.run(document, self)? == Flow::Drop {
                return Ok(Flow::Drop);
            }
        }
        Ok(Flow::Continue)
    }

    fn on_failure(
        &mut self,
        steps: &[ProcessorStep],
        error: &ProcessorError,
        document: &mut IngestDocument,
    ) -> Result<Flow> {
        let origin = error.origin().cloned().unwrap_or_default();
        let text = |text: Option<&str>| text.map_or(Value::Null, Value::from);
        let values = [
            text(Some(error.root_message())),
            text(Some(origin.processor_type)),
            text(origin.tag.as_deref()),
            text(origin.pipeline.as_deref()),
        ];
        for (key, value) in FAILURE_KEYS.into_iter().zip(values) {
            document.ingest.insert(key.to_owned(), value);
        }
        let result = self.steps(steps, document);
        for key in FAILURE_KEYS {
            document.ingest.shift_remove(key);
        }
        result
    }

    /// Returns the number of reports.
    fn reported(&self) -> usize {
        self.reports.as_ref().map_or(0, Vec::len)
    }
}

impl ProcessorStep {
    fn run(&self, document: &mut IngestDocument, run: &mut PipelineRun<'_>) -> Result<Flow> {
        if run.running == MAX_RUNNING {
            return Err(ProcessorError::exceeded(format!(
                "more than {MAX_RUNNING} processors run within one another for one document"
            )));
        }
        run.running += 1;
        let result = self.run_within(document, run);
        run.running -= 1;
        result
    }

    fn run_within(&self, document: &mut IngestDocument, run: &mut PipelineRun<'_>) -> Result<Flow> {
        document.budget.begin_processor()?;
        let reported = run.reported();
        let result = match self.applies(document) {
            Ok(false) => {
                self.report(run, reported, document, ReportStatus::Skipped)?;
                return Ok(Flow::Continue);
            }
            Ok(true) => {
                let timer = self.counters.start();
                let result = self.processor.apply(document, run);
                timer.finish(result.is_err());
                result
            }
            Err(error) => Err(error),
        };
        let error = match result {
            Ok(flow) => {
                let status = if flow == Flow::Drop { ReportStatus::Dropped } else { ReportStatus::Success };
                // What a called pipeline dropped is reported by the processor that dropped it.
                let inner = run.reported() > reported;
                let status = if inner { ReportStatus::Success } else { status };
                self.report(run, reported, document, status)?;
                return Ok(flow);
            }
            Err(error) => error.with_origin(|| FailureOrigin {
                processor_type: self.processor_type,
                tag: self.tag.clone(),
                pipeline: run.calls.last().map(|id| id.to_string()),
            }),
        };
        if self.ignore_failure {
            self.report(run, reported, document, ReportStatus::ErrorIgnored(error))?;
            return Ok(Flow::Continue);
        }
        let status = match run.reported() > reported {
            true => ReportStatus::Success,
            false => ReportStatus::Error(error.clone()),
        };
        self.report(run, reported, document, status)?;
        match self.on_failure.is_empty() {
            true => Err(error),
            false => run.on_failure(&self.on_failure, &error, document),
        }
    }

    fn applies(&self, document: &mut IngestDocument) -> Result<bool> {
        self.condition.as_ref().map_or(Ok(true), |condition| condition.holds(document))
    }

    /// Adds the report of this processor before those of the pipeline that it has called.
    fn report(
        &self,
        run: &mut PipelineRun<'_>,
        position: usize,
        document: &mut IngestDocument,
        status: ReportStatus,
    ) -> Result<()> {
        let Some(reports) = &mut run.reports else { return Ok(()) };
        let calls = self.processor_type == "pipeline";
        let shows_document =
            !calls && matches!(status, ReportStatus::Success | ReportStatus::ErrorIgnored(_));
        let rendered = shows_document.then(|| document.render());
        if let Some(rendered) = &rendered {
            document.budget.charge_value(rendered, 0)?;
        }
        let condition = self
            .condition
            .as_ref()
            .map(|condition| (condition.source().to_owned(), !matches!(status, ReportStatus::Skipped)));
        let report = ProcessorReport {
            processor_type: self.processor_type,
            tag: self.tag.clone(),
            description: self.description.clone(),
            condition,
            status,
            document: rendered,
        };
        reports.insert(position.min(reports.len()), report);
        Ok(())
    }
}
