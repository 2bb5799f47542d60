//! `csv`: takes the values of one line apart.

use millrace_ingest::csv::{CsvDialect, MalformedRow, RowOptions};
use serde_json::Value;

use super::{Flow, Processor};
use crate::config::ProcessorConfig;
use crate::document::{FieldPath, IngestDocument};
use crate::error::{ProcessorError, Result};
use crate::pipeline::{BuildContext, PipelineRun};

#[derive(Debug)]
struct Csv {
    field: FieldPath,
    targets: Vec<FieldPath>,
    dialect: CsvDialect,
    is_trimming: bool,
    empty_value: Option<Value>,
    ignore_missing: bool,
}

pub(super) fn build(config: &mut ProcessorConfig, _: &mut BuildContext) -> Result<Box<dyn Processor>> {
    let field = config.path("field")?;
    let quote = single_letter(config, "quote", '"')?;
    let separator = single_letter(config, "separator", ',')?;
    let is_trimming = config.flag("trim", false)?;
    let empty_value = config.value("empty_value");
    let ignore_missing = config.flag("ignore_missing", false)?;
    let targets = config.required_texts("target_fields")?;
    if targets.is_empty() {
        return Err(config.refusal("target_fields", "target fields list can't be empty"));
    }
    let targets = targets.iter().map(|target| FieldPath::parse(target)).collect::<Result<_>>()?;
    let dialect = CsvDialect::new(separator, Some(quote));
    Ok(Box::new(Csv { field, targets, dialect, is_trimming, empty_value, ignore_missing }))
}

fn single_letter(config: &mut ProcessorConfig, name: &str, default: char) -> Result<char> {
    let Some(text) = config.text(name)? else { return Ok(default) };
    let mut letters = text.chars();
    match (letters.next(), letters.next()) {
        (Some(letter), None) if !matches!(letter, '\n' | '\r' | '\0') => Ok(letter),
        (Some(_), None) => Err(config.refusal(name, "separator can't be whitespace")),
        _ => Err(config.refusal(name, &format!("{name} has to be single character like \" or '"))),
    }
}

impl Csv {
    /// Cuts a line into values, one more than there are fields for at most. Errors name characters as OpenSearch counts them.
    fn values(&self, line: &str) -> Result<Vec<String>> {
        let most = self.targets.len() + 1;
        let options = RowOptions { is_trimming: self.is_trimming, ends_with_line: false, most };
        let values = self.dialect.parse_values(line, options).map_err(|fault| {
            ProcessorError::illegal_argument(match fault {
                MalformedRow::OpenQuote => "Unmatched quote".to_owned(),
                MalformedRow::TooMany => fault.to_string(),
                MalformedRow::BehindQuote(letter, at) => {
                    format!("character '{letter}' after quoted field at {at}")
                }
                MalformedRow::WithinValue(at) => format!("Illegal character inside unquoted field at {at}"),
            })
        })?;
        Ok(values.into_iter().map(|value| value.text).collect())
    }
}

impl Processor for Csv {
    fn apply(&self, document: &mut IngestDocument, _: &mut PipelineRun<'_>) -> Result<Flow> {
        let line = match document.text(&self.field, self.ignore_missing) {
            Ok(Some(line)) => line.to_owned(),
            Ok(None) => return Ok(Flow::Continue),
            Err(error) => return Err(error),
        };
        if line.is_empty() {
            return Ok(Flow::Continue);
        }
        let values = self.values(&line)?;
        for (target, value) in self.targets.iter().zip(values) {
            match (value.is_empty(), &self.empty_value) {
                (false, _) => document.set(target, value.into())?,
                (true, Some(empty)) => document.set(target, empty.clone())?,
                (true, None) => {}
            }
        }
        Ok(Flow::Continue)
    }
}
