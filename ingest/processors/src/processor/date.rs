//! `date`: reads a time from a field.

use chrono::{DateTime, Datelike, Utc};
use millrace_ingest::event::time_format::{self, iso8601};
use millrace_mapping::DateFormat;
use millrace_time::Zone;
use serde_json::Value;

use super::{Flow, Processor};
use crate::config::ProcessorConfig;
use crate::document::{FieldPath, IngestDocument, null_value};
use crate::error::{ProcessorError, Result};
use crate::java;
use crate::pipeline::{BuildContext, PipelineRun};
use crate::template::MustacheTemplate;

/// Format of the times that are written.
const OUTPUT_FORMAT: &str = "yyyy-MM-dd'T'HH:mm:ss.SSSXXX";

/// A format of times that are read.
#[derive(Debug)]
pub(super) enum TimePattern {
    Iso8601,
    Unix,
    UnixMillis,
    Tai64n,
    Format { format: DateFormat, has_year: bool },
}

impl TimePattern {
    /// Compiles a format.
    pub(super) fn parse(text: &str) -> std::result::Result<Self, String> {
        Ok(match text {
            // Pipelines of Filebeat's modules have the name that Java gives the format.
            "ISO8601" | "ISO_INSTANT" => Self::Iso8601,
            "UNIX" => Self::Unix,
            "UNIX_MS" => Self::UnixMillis,
            "TAI64N" => Self::Tai64n,
            pattern => {
                let format = DateFormat::parse(pattern)?;
                let is_pattern = !pattern.contains('_') && !pattern.starts_with("epoch");
                let mut unquoted = pattern.split('\'').step_by(2);
                let has_year = !is_pattern || unquoted.any(|part| part.contains(['y', 'Y', 'u', 'x']));
                Self::Format { format, has_year }
            }
        })
    }

    /// Reads a time; times without a zone are of `zone`, those without a year of this year.
    fn read(&self, text: &str, zone: Zone, now: DateTime<Utc>) -> Option<i64> {
        let millis = |time: DateTime<Utc>| time.timestamp_millis();
        match self {
            Self::Iso8601 => {
                let name = if zone == Zone::UTC { "UTC".to_owned() } else { zone.name() };
                iso8601(text, time_format::Zone::named(&name)?).map(millis)
            }
            Self::Unix => time_format::unix_seconds(text, i64::MAX).map(millis),
            Self::UnixMillis => time_format::unix_millis(text, true).map(millis),
            Self::Tai64n => time_format::tai64n(text).map(millis),
            // Date math is no time of a document.
            Self::Format { .. } if text.starts_with("now") || text.contains("||") => None,
            Self::Format { format, has_year: true } => {
                format.parse_millis_in(text, now.timestamp_millis(), false, zone).ok()
            }
            Self::Format { format, has_year: false } => {
                let local = format.parse_millis_in(text, now.timestamp_millis(), false, Zone::UTC).ok()?;
                let offset = i64::from(zone.offset_seconds(now.timestamp_millis())) * 1000;
                let here = DateTime::from_timestamp_millis(now.timestamp_millis() + offset)?;
                let local = DateTime::from_timestamp_millis(local)?.with_year(here.year())?;
                Some(zone.first_instant(local.timestamp_millis()))
            }
        }
    }
}

/// Compiles formats; a refusal names the option and the format.
pub(super) fn time_patterns(
    config: &ProcessorConfig,
    name: &str,
    formats: &[String],
) -> Result<Vec<TimePattern>> {
    if formats.is_empty() {
        return Err(config.refusal(name, "a time needs at least one format"));
    }
    let compile =
        |format: &String| TimePattern::parse(format).map_err(|reason| config.refusal(name, &reason));
    formats.iter().map(compile).collect()
}

/// Reads a time by the first format that fits.
pub(super) fn read_time(patterns: &[TimePattern], text: &str, zone: Zone, now: DateTime<Utc>) -> Result<i64> {
    let time = patterns.iter().find_map(|pattern| pattern.read(text, zone, now));
    time.ok_or_else(|| ProcessorError::illegal_argument(format!("unable to parse date [{text}]")))
}

/// Returns the text of a time; `None` where the field may miss and does.
pub(super) fn time_text(document: &IngestDocument, field: &FieldPath) -> Result<String> {
    match document.get(field)? {
        Value::Null => Err(null_value(field, "parse it as a date")),
        value => Ok(java::text_of(value)),
    }
}

/// Finds a time zone.
pub(super) fn find_zone(name: &str) -> Result<Zone> {
    Zone::parse(name).ok_or_else(|| ProcessorError::illegal_argument(format!("unknown time-zone ID: {name}")))
}

/// Refuses names of months and days in other languages than English.
pub(super) fn check_locale(
    config: &ProcessorConfig,
    locale: Option<&MustacheTemplate>,
    formats: &[String],
) -> Result<()> {
    let Some(locale) = locale.and_then(MustacheTemplate::constant) else { return Ok(()) };
    let language = locale.split(['-', '_']).next().unwrap_or_default();
    let is_english = language.eq_ignore_ascii_case("en") || language.eq_ignore_ascii_case("english");
    let has_names = formats.iter().any(|format| format.contains("MMM") || format.contains('E'));
    match is_english || language.is_empty() || language.eq_ignore_ascii_case("root") || !has_names {
        true => Ok(()),
        false => Err(config.refusal(
            "locale",
            &format!("names of months and days are read in English only, not in [{locale}]"),
        )),
    }
}

#[derive(Debug)]
struct Date {
    field: FieldPath,
    target: FieldPath,
    patterns: Vec<TimePattern>,
    zone: Option<MustacheTemplate>,
    output: DateFormat,
}

pub(super) fn build(config: &mut ProcessorConfig, _: &mut BuildContext) -> Result<Box<dyn Processor>> {
    let field = config.path("field")?;
    let target = config.path_or("target_field", &FieldPath::parse("@timestamp")?)?;
    let zone = config.optional_template("timezone")?;
    if let Some(name) = zone.as_ref().and_then(MustacheTemplate::constant) {
        find_zone(name).map_err(|error| config.refusal("timezone", error.reason()))?;
    }
    let formats = config.required_texts("formats")?;
    let locale = config.optional_template("locale")?;
    check_locale(config, locale.as_ref(), &formats)?;
    let patterns = time_patterns(config, "formats", &formats)?;
    let output = config.text("output_format")?;
    let output = DateFormat::parse(output.as_deref().unwrap_or(OUTPUT_FORMAT))
        .map_err(|reason| config.refusal("output_format", &format!("invalid output format: {reason}")))?;
    Ok(Box::new(Date { field, target, patterns, zone, output }))
}

impl Processor for Date {
    fn apply(&self, document: &mut IngestDocument, run: &mut PipelineRun<'_>) -> Result<Flow> {
        let text = time_text(document, &self.field)?;
        let zone = match &self.zone {
            None => Zone::UTC,
            Some(template) => find_zone(&template.render(document)?)?,
        };
        let millis = read_time(&self.patterns, &text, zone, run.now())?;
        let nanos = i128::from(millis) * 1_000_000;
        let written = self.output.format_nanos_at(nanos, zone.offset_seconds(millis), &zone.name());
        document.set(&self.target, written.into())?;
        Ok(Flow::Continue)
    }
}
