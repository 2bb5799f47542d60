//! Columns and sources of pipelines, found in their syntax trees.

use crate::ast::{
    CommandKind, Expression, IndexSelector, Pipeline, PipelineSource, SearchSource, SourceRelation,
};
use crate::command::{ForeachTarget, GraphLookupCommand, GraphStart, JoinCriteria, UnionDataset};

/// Returns whether a name is one of a pattern, where `*` stands for any text.
pub(crate) fn is_like(pattern: &str, name: &str) -> bool {
    captures(pattern, name).is_some()
}

/// Returns the texts that each `*` of a pattern stands for in a name; `None` where it is no name of the pattern.
pub(crate) fn captures(pattern: &str, name: &str) -> Option<Vec<String>> {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let mut rest = name.strip_prefix(first)?;
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty().then(Vec::new) };
    let mut captured = Vec::with_capacity(parts.len());
    for part in middle {
        let at = rest.find(part)?;
        captured.push(rest.get(..at)?.to_owned());
        rest = rest.get(at + part.len()..)?;
    }
    captured.push(rest.strip_suffix(last)?.to_owned());
    Some(captured)
}

/// Lists the names of a pattern.
pub(crate) fn matching(names: &[String], pattern: &str) -> Vec<String> {
    names.iter().filter(|name| is_like(pattern, name)).cloned().collect()
}

/// Returns whether only columns that commands name come behind them.
pub(crate) fn is_restricted(commands: &[crate::ast::Command]) -> bool {
    use CommandKind as C;
    for command in commands {
        match &command.kind {
            C::Fields(own) if own.fields.iter().any(|field| field.is_wildcard()) => return false,
            C::Fields(own) if own.is_exclusion => {}
            C::Fields(_) | C::Stats(_) | C::RareTop(_) | C::Chart(_) | C::Timechart(_) => return true,
            C::Where(_)
            | C::Eval(_)
            | C::Head(_)
            | C::Sort(_)
            | C::Reverse
            | C::Tail(_)
            | C::Parse(_)
            | C::Rex(_)
            | C::Regex(_)
            | C::Grok(_)
            | C::Bin(_)
            | C::Dedup(_)
            | C::EventStats(_)
            | C::StreamStats(_)
            | C::FillNull(_)
            | C::Replace(_)
            | C::Trendline(_) => {}
            C::Rename(own) if !own.renamings.iter().any(|renaming| renaming.from.is_wildcard()) => {}
            _ => return false,
        }
    }
    false
}

/// Visits the lists of indices that a pipeline and its subsearches read.
pub(crate) fn visit_sources(pipeline: &Pipeline, visit: &mut dyn FnMut(&[IndexSelector])) {
    match &pipeline.source {
        PipelineSource::Search(SearchSource { relation, .. }) => visit_relation(relation, visit),
        PipelineSource::MultiSearch(own) => {
            own.pipelines.iter().for_each(|pipeline| visit_sources(pipeline, visit));
        }
        PipelineSource::Describe(own) => visit(&own.indices),
        PipelineSource::Union(own) => visit_datasets(&own.datasets, visit),
        PipelineSource::GraphLookup(own) => visit_graph(own, visit),
        _ => {}
    }
    for command in &pipeline.commands {
        visit_command(&command.kind, visit);
    }
}

fn visit_datasets(datasets: &[UnionDataset], visit: &mut dyn FnMut(&[IndexSelector])) {
    for dataset in datasets {
        match dataset {
            UnionDataset::Pipeline(pipeline) => visit_sources(pipeline, visit),
            UnionDataset::Index(index) => visit(std::slice::from_ref(index)),
        }
    }
}

fn visit_relation(relation: &SourceRelation, visit: &mut dyn FnMut(&[IndexSelector])) {
    match relation {
        SourceRelation::Indices { indices, .. } => visit(indices),
        SourceRelation::Subsearch { pipeline, .. } => visit_sources(pipeline, visit),
    }
}

fn visit_expression(expression: &Expression, visit: &mut dyn FnMut(&[IndexSelector])) {
    expression.subsearches.iter().for_each(|pipeline| visit_sources(pipeline, visit));
}

fn visit_graph(command: &GraphLookupCommand, visit: &mut dyn FnMut(&[IndexSelector])) {
    visit(&command.indices);
    if let GraphStart::Values(values) = &command.start {
        values.iter().for_each(|own| visit_expression(own, visit));
    }
    command.filter.iter().for_each(|own| visit_expression(own, visit));
}

fn visit_command(command: &CommandKind, visit: &mut dyn FnMut(&[IndexSelector])) {
    use CommandKind as C;
    match command {
        C::Where(own) => visit_expression(&own.condition, visit),
        C::Eval(own) => own.assignments.iter().for_each(|own| visit_expression(&own.value, visit)),
        C::Stats(own) => own.aggregates.iter().for_each(|own| visit_expression(&own.call, visit)),
        C::EventStats(own) => own.functions.iter().for_each(|own| visit_expression(&own.call, visit)),
        C::StreamStats(own) => {
            own.functions.iter().for_each(|own| visit_expression(&own.call, visit));
            own.reset_before.iter().chain(&own.reset_after).for_each(|own| visit_expression(own, visit));
        }
        C::Timechart(own) => own.aggregates.iter().for_each(|own| visit_expression(&own.call, visit)),
        C::Chart(own) => visit_expression(&own.aggregate.call, visit),
        C::Foreach(own) => {
            for target in &own.targets {
                if let ForeachTarget::Collection(collection) = target {
                    visit_expression(collection, visit);
                }
            }
            own.assignments.iter().for_each(|own| visit_expression(&own.value, visit));
        }
        C::FieldFormat(own) => own.formats.iter().for_each(|own| visit_expression(&own.value, visit)),
        C::Grok(own) => visit_expression(&own.source, visit),
        C::Parse(own) => visit_expression(&own.source, visit),
        C::Patterns(own) => visit_expression(&own.source, visit),
        C::Spath(own) => own.input.iter().for_each(|own| visit_expression(own, visit)),
        C::Append(own) => visit_sources(&own.pipeline, visit),
        C::AppendCol(own) => visit_sources(&own.pipeline, visit),
        C::AppendPipe(own) => visit_sources(&own.pipeline, visit),
        C::Union(own) => visit_datasets(&own.datasets, visit),
        C::Lookup(own) => visit(std::slice::from_ref(&own.index)),
        C::GraphLookup(own) => visit_graph(own, visit),
        C::Join(own) => {
            if let JoinCriteria::On(condition) = &own.criteria {
                visit_expression(condition, visit);
            }
            visit_relation(&own.right, visit);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stand_for_names() {
        assert_eq!(captures("a*b*", "axxbyy"), Some(vec!["xx".to_owned(), "yy".to_owned()]));
        assert_eq!(captures("*name", "firstname"), Some(vec!["first".to_owned()]));
        assert!(is_like("a", "a") && !is_like("a", "ab") && is_like("*", "") && !is_like("a*b", "a"));
        assert!(!is_like("ab*b", "ab"));
    }
}
