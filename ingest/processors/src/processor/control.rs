//! Processors that decide on the way of a document: `drop`, `fail`, `pipeline` and `script`.

use super::{Flow, Processor};
use crate::config::ProcessorConfig;
use crate::document::IngestDocument;
use crate::error::{ProcessorError, Result};
use crate::pipeline::{BuildContext, PipelineRun};
use crate::script::{Script, check_language};
use crate::template::MustacheTemplate;

#[derive(Debug)]
struct DropDocument;

pub(super) fn build_drop(_: &mut ProcessorConfig, _: &mut BuildContext) -> Result<Box<dyn Processor>> {
    Ok(Box::new(DropDocument))
}

impl Processor for DropDocument {
    fn apply(&self, _: &mut IngestDocument, _: &mut PipelineRun<'_>) -> Result<Flow> {
        Ok(Flow::Drop)
    }
}

#[derive(Debug)]
struct Fail {
    message: MustacheTemplate,
}

pub(super) fn build_fail(config: &mut ProcessorConfig, _: &mut BuildContext) -> Result<Box<dyn Processor>> {
    Ok(Box::new(Fail { message: config.template("message")? }))
}

impl Processor for Fail {
    fn apply(&self, document: &mut IngestDocument, _: &mut PipelineRun<'_>) -> Result<Flow> {
        Err(ProcessorError::new(500, "fail_processor_exception", self.message.render(document)?))
    }
}

#[derive(Debug)]
struct CallPipeline {
    name: MustacheTemplate,
    ignore_missing: bool,
}

pub(super) fn build_pipeline(
    config: &mut ProcessorConfig,
    _: &mut BuildContext,
) -> Result<Box<dyn Processor>> {
    let name = config.template("name")?;
    let ignore_missing = config.flag("ignore_missing_pipeline", false)?;
    Ok(Box::new(CallPipeline { name, ignore_missing }))
}

impl Processor for CallPipeline {
    fn apply(&self, document: &mut IngestDocument, run: &mut PipelineRun<'_>) -> Result<Flow> {
        let name = self.name.render(document)?;
        match run.call(&name, document) {
            Some(result) => result,
            None if self.ignore_missing => Ok(Flow::Continue),
            None => Err(ProcessorError::illegal_state(format!(
                "Pipeline processor configured for non-existent pipeline [{name}]"
            ))),
        }
    }
}

#[derive(Debug)]
struct RunScript(Script);

pub(super) fn build_script(
    config: &mut ProcessorConfig,
    context: &mut BuildContext,
) -> Result<Box<dyn Processor>> {
    let source = config.text("source")?;
    let inline = config.text("inline")?;
    if config.value("id").is_some() {
        return Err(config.refusal("id", "stored scripts are not supported: put the script into [source]"));
    }
    check_language(config.text("lang")?.as_deref()).map_err(|error| config.describe(error))?;
    config.object("options")?;
    let params = config.object("params")?.unwrap_or_default();
    let Some(source) = source.or(inline) else {
        let reason = "must specify either [source] for an inline script or [id] for a stored script";
        return Err(ProcessorError::illegal_argument(reason));
    };
    let script = Script::compile(&source, params)?;
    context.claim_patterns(script.patterns())?;
    Ok(Box::new(RunScript(script)))
}

impl Processor for RunScript {
    fn apply(&self, document: &mut IngestDocument, _: &mut PipelineRun<'_>) -> Result<Flow> {
        self.0.execute(document)?;
        Ok(Flow::Continue)
    }
}
