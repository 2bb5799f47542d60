//! `date_index_name`: names the index by the time of a field.

use millrace_mapping::DateFormat;
use millrace_time::Zone;

use super::date::{TimePattern, check_locale, find_zone, read_time, time_patterns, time_text};
use super::{Flow, Processor};
use crate::config::ProcessorConfig;
use crate::document::{FieldPath, IngestDocument};
use crate::error::{ProcessorError, Result};
use crate::pipeline::{BuildContext, PipelineRun};
use crate::template::MustacheTemplate;

#[derive(Debug)]
struct DateIndexName {
    field: FieldPath,
    patterns: Vec<TimePattern>,
    zone: Zone,
    /// Zone as it is written in the name.
    zone_name: String,
    prefix: MustacheTemplate,
    rounding: MustacheTemplate,
    format: MustacheTemplate,
}

pub(super) fn build(config: &mut ProcessorConfig, _: &mut BuildContext) -> Result<Box<dyn Processor>> {
    let locale = config.optional_template("locale")?;
    let zone_name = config.text("timezone")?.unwrap_or_else(|| "UTC".to_owned());
    let zone = find_zone(&zone_name).map_err(|error| config.refusal("timezone", error.reason()))?;
    let formats = config.texts("date_formats")?;
    let formats = formats.unwrap_or_else(|| vec!["yyyy-MM-dd'T'HH:mm:ss.SSSXX".to_owned()]);
    check_locale(config, locale.as_ref(), &formats)?;
    let patterns = time_patterns(config, "date_formats", &formats)?;
    let field = config.path("field")?;
    let constant = MustacheTemplate::parse;
    let prefix = config.optional_template("index_name_prefix")?.map_or_else(|| constant(""), Ok)?;
    let rounding = config.template("date_rounding")?;
    let format = config.optional_template("index_name_format")?.map_or_else(|| constant("yyyy-MM-dd"), Ok)?;
    Ok(Box::new(DateIndexName { field, patterns, zone, zone_name, prefix, rounding, format }))
}

impl Processor for DateIndexName {
    fn apply(&self, document: &mut IngestDocument, run: &mut PipelineRun<'_>) -> Result<Flow> {
        let text = time_text(document, &self.field)?;
        let millis = read_time(&self.patterns, &text, self.zone, run.now())?;
        let prefix = self.prefix.render(document)?;
        let rounding = self.rounding.render(document)?;
        let format = self.format.render(document)?;
        let day = DateFormat::parse(&format).map_err(ProcessorError::illegal_argument)?.format_nanos_at(
            i128::from(millis) * 1_000_000,
            self.zone.offset_seconds(millis),
            &self.zone_name,
        );
        let name = format!("<{prefix}{{{day}||/{rounding}{{{format}|{}}}}}>", self.zone_name);
        document.set(&FieldPath::parse("_index")?, name.into())?;
        Ok(Flow::Continue)
    }
}
