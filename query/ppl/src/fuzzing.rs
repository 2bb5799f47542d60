//! Entry points of fuzzers.

use millrace_sql::fuzzing::relational;

use crate::ast::{Pipeline, PipelineSource, SourceRelation};
use crate::plan::{PipelineSettings, PipelineStatement};
use crate::{CompletionNames, completions, parse};

/// The text of a query. Spans and errors lie within the text, completions replace the word before the end.
pub fn query(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match parse(text) {
        Ok(query) => check(&query.pipeline, text),
        Err(error) => {
            assert!(text.is_char_boundary(error.offset), "{error}");
            assert!(error.line > 0 && error.column > 0 && !error.message.is_empty(), "{error}");
            let lines = text.matches('\n').count() + 1;
            assert!(error.line <= lines, "{error}");
        }
    }
    for completion in completions(text, text.len(), &CompletionNames::default()) {
        assert!(text.is_char_boundary(completion.start), "{completion:?}");
    }
}

/// The text of a query, which is planned over an index.
pub fn plan(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(statement) = PipelineStatement::parse(text.to_owned(), PipelineSettings::default()) {
        relational(&statement);
    }
}

fn check(pipeline: &Pipeline, text: &str) {
    assert!(text.get(pipeline.span.start..pipeline.span.end).is_some(), "{:?}", pipeline.span);
    for command in &pipeline.commands {
        assert!(text.get(command.span.start..command.span.end).is_some(), "{:?}", command.span);
        assert!(command.span.start < command.span.end, "{:?}", command.span);
    }
    if let PipelineSource::Search(search) = &pipeline.source
        && let SourceRelation::Subsearch { pipeline, .. } = &search.relation
    {
        check(pipeline, text);
    }
}
