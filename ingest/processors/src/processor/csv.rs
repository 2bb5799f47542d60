//! `csv`: takes the values of one line apart.

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
    separator: char,
    quote: char,
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
    Ok(Box::new(Csv { field, targets, separator, quote, is_trimming, empty_value, ignore_missing }))
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
    /// Cuts a line into values. Errors name characters as OpenSearch counts them.
    fn values(&self, line: &str) -> Result<Vec<String>> {
        let mut values = Vec::new();
        let mut letters = line.chars().enumerate().peekable();
        loop {
            if self.is_trimming {
                while letters.next_if(|(_, letter)| matches!(letter, ' ' | '\t')).is_some() {}
            }
            let value = match letters.next_if(|(_, letter)| *letter == self.quote) {
                Some(_) => self.quoted(&mut letters)?,
                None => self.unquoted(&mut letters)?,
            };
            values.push(value);
            if values.len() > self.targets.len() || letters.next().is_none() {
                return Ok(values);
            }
        }
    }

    fn quoted(
        &self,
        letters: &mut std::iter::Peekable<impl Iterator<Item = (usize, char)>>,
    ) -> Result<String> {
        let mut value = String::new();
        loop {
            match letters.next() {
                None => return Err(ProcessorError::illegal_argument("Unmatched quote")),
                Some((_, letter)) if letter != self.quote => value.push(letter),
                Some(_) if letters.next_if(|(_, letter)| *letter == self.quote).is_some() => {
                    value.push(self.quote);
                }
                Some(_) => break,
            }
        }
        if self.is_trimming {
            while letters.next_if(|(_, letter)| matches!(letter, ' ' | '\t')).is_some() {}
        }
        match letters.peek() {
            Some((at, letter)) if *letter != self.separator => Err(ProcessorError::illegal_argument(
                format!("character '{letter}' after quoted field at {at}"),
            )),
            _ => Ok(value),
        }
    }

    fn unquoted(
        &self,
        letters: &mut std::iter::Peekable<impl Iterator<Item = (usize, char)>>,
    ) -> Result<String> {
        let mut value = String::new();
        while let Some((at, letter)) = letters.next_if(|(_, letter)| *letter != self.separator) {
            if letter == self.quote || matches!(letter, '\n' | '\r') {
                return Err(ProcessorError::illegal_argument(format!(
                    "Illegal character inside unquoted field at {at}"
                )));
            }
            value.push(letter);
        }
        if self.is_trimming {
            value.truncate(value.trim_end_matches([' ', '\t']).len());
        }
        Ok(value)
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
