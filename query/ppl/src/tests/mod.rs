//! Tests of the parser: trees, free text, errors, bounds, the table of the language, completions.

mod bounds;
mod commands;
mod completion;
mod errors;
mod expressions;
mod reference;
mod search;

use crate::ast::{Command, CommandKind, Pipeline, PipelineSource, SearchSource};
use crate::{ParseError, parse};

/// Parses a text that must be right.
fn pipeline(text: &str) -> Pipeline {
    parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).pipeline
}

/// Parses one command behind a source.
fn command(text: &str) -> CommandKind {
    let mut commands: Vec<Command> = pipeline(&format!("source=t | {text}")).commands;
    assert_eq!(commands.len(), 1, "{text}");
    commands.remove(0).kind
}

/// Parses a source alone.
fn source(text: &str) -> SearchSource {
    match pipeline(text).source {
        PipelineSource::Search(source) => source,
        other => panic!("{text}: {other:?}"),
    }
}

/// Parses a text that must be wrong.
fn error(text: &str) -> ParseError {
    match parse(text) {
        Ok(query) => panic!("{text}: {query:?}"),
        Err(error) => error,
    }
}
