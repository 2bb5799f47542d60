//! Conditions and scripts: a subset of Painless over the fields of a document.
//!
//! A [`Script`] is compiled once and evaluated for each document. It has variables, functions, conditions, loops, exceptions,
//! arithmetic, comparisons, regular expressions, the usual methods of texts, lists, maps, streams and times, and assignments
//! below `ctx`. Lambdas are arguments of methods. Other classes and functions are refused when the script is compiled, with
//! their position. Each step of a script takes from the document's [`WorkBudget`](crate::document::WorkBudget), so that every
//! script ends. Whole numbers have 64 bits.

mod collection;
mod detach;
mod evaluate;
mod expressions;
mod lexer;
mod memory;
mod methods;
mod object;
mod operators;
mod parser;
mod pattern;
mod static_function;
mod statics;
#[cfg(test)]
mod tests;
mod texts;
mod time;
mod tree;

use serde_json::{Map, Value, json};

use crate::document::IngestDocument;
use crate::error::{ProcessorError, Result};
use evaluate::Machine;
use tree::{Function, Statement, ValueType};

/// Longest source.
const MAX_SOURCE: usize = 65_535;

/// A compiled script.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    source: String,
    statements: Vec<Statement>,
    /// Types of the variables outside of functions.
    types: Vec<ValueType>,
    functions: Vec<Function>,
    /// Regular expressions that it has compiled.
    patterns: usize,
    params: Value,
}

impl Script {
    /// Compiles a condition: a source, or an object with `source`, `lang` and `params`.
    pub(crate) fn condition(definition: &Value) -> Result<Self> {
        match definition {
            Value::String(source) => Self::compile(source, Map::new()),
            Value::Object(members) => {
                let text = |name: &str| members.get(name).and_then(Value::as_str);
                if let Some(other) = members.keys().find(|name| {
                    !matches!(name.as_str(), "source" | "inline" | "lang" | "params" | "options")
                }) {
                    return Err(ProcessorError::parse(format!("[if] does not support [{other}]")));
                }
                check_language(text("lang"))?;
                let source = text("source").or_else(|| text("inline"));
                let source = source.ok_or_else(|| ProcessorError::parse("[if] must have a [source]"))?;
                let params = members.get("params").and_then(Value::as_object).cloned();
                Self::compile(source, params.unwrap_or_default())
            }
            _ => Err(ProcessorError::parse("[if] must be a script")),
        }
    }

    /// Compiles a source.
    ///
    /// # Errors
    /// A `script_exception` with the position of what cannot be read, or is not supported.
    pub(crate) fn compile(source: &str, params: Map<String, Value>) -> Result<Self> {
        if source.len() > MAX_SOURCE {
            return Err(ProcessorError::illegal_argument(format!(
                "exceeded max allowed inline script size in bytes [{MAX_SOURCE}] with size [{}] for script",
                source.len()
            )));
        }
        let parsed = parser::parse(source).map_err(|(offset, reason)| {
            failure(source, "compile error", offset, "illegal_argument_exception", &reason)
        })?;
        Ok(Self {
            source: source.to_owned(),
            statements: parsed.statements,
            types: parsed.types,
            functions: parsed.functions,
            patterns: parsed.patterns,
            params: Value::Object(params),
        })
    }

    /// Returns the number of its compiled regular expressions.
    pub(crate) fn patterns(&self) -> usize {
        self.patterns
    }

    /// Returns the source.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// Evaluates a condition, which changes nothing.
    pub(crate) fn holds(&self, document: &mut IngestDocument) -> Result<bool> {
        let mut machine = Machine::new(self, document, true);
        let result = machine.run();
        machine.finish();
        result?.into_condition().map_err(|found| {
            let reason = format!("cannot cast def [{found}] to boolean");
            failure(&self.source, "runtime error", 0, "class_cast_exception", &reason)
        })
    }

    /// Runs a script.
    pub(crate) fn execute(&self, document: &mut IngestDocument) -> Result<()> {
        let mut machine = Machine::new(self, document, false);
        let result = machine.run();
        machine.finish();
        result.map(drop)
    }
}

/// Refuses a language other than Painless.
pub(crate) fn check_language(language: Option<&str>) -> Result<()> {
    match language {
        None | Some("painless") => Ok(()),
        Some(other) => Err(ProcessorError::illegal_argument(format!("script_lang not supported [{other}]"))),
    }
}

/// Makes a `script_exception` with a position.
fn failure(source: &str, reason: &str, offset: usize, kind: &'static str, cause: &str) -> ProcessorError {
    const SHOWN: usize = 25;
    let start = source.floor_char_boundary(offset.saturating_sub(SHOWN));
    let end = source.ceil_char_boundary((offset + SHOWN).min(source.len()));
    let shown = |text: &str, before: bool, after: bool| {
        format!("{}{text}{}", if before { "... " } else { "" }, if after { " ..." } else { "" })
    };
    let line = shown(source.get(start..end).unwrap_or_default(), start > 0, end < source.len());
    let indent = offset - start.min(offset) + if start > 0 { 4 } else { 0 };
    ProcessorError::new(400, "script_exception", reason)
        .with("script_stack", json!([line, format!("{}^---- HERE", " ".repeat(indent))]))
        .with("script", source)
        .with("lang", "painless")
        .with("position", json!({ "offset": offset, "start": start, "end": end }))
        .caused_by(kind, cause)
}
