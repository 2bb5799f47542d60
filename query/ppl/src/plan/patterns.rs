//! `patterns`: the constant parts of texts, beside each row or as groups. Labels keep the order, groups destroy it.

use millrace_sql::error::{Result, SqlError};
use sqlparser::ast;

use super::aggregates::{GroupKey, grouping_keys};
use super::pipe::Pipe;
use super::{Planner, syntax};
use crate::command::{PatternMethod, PatternMode, PatternsCommand};

/// Column of patterns where the command names none.
const FIELD: &str = "patterns_field";
/// Texts of a pattern that are shown where the command does not say how many.
const SAMPLES: u64 = 10;
/// Lines that `brain` reads where the command does not say how many.
const BUFFERED: u64 = 100_000;
/// Words at a position that make a word variable, where the command does not say how many.
const VARIABLE_COUNT: u64 = 5;
/// Share of the greatest frequency that words of a group have, where the command does not say which.
const FREQUENCY: f64 = 0.3;
/// Column with all lines.
const LINES: &str = "\u{1}lines";
/// Variable parts of a text: runs of letters and digits.
const VARIABLE: &str = "[a-zA-Z0-9]+";

/// Plans the command.
pub(super) fn plan(
    command: &PatternsCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    if command.method == Some(PatternMethod::Brain) {
        return brain(command, pipe, planner);
    }
    let variable = match command.pattern.as_ref().map(|pattern| pattern.value.as_str()) {
        None | Some("") => VARIABLE,
        Some(pattern) => pattern,
    };
    let source = planner.expression(&command.source, &mut pipe)?;
    let name = command.new_field.as_deref().unwrap_or(FIELD);
    super::rename::check_name(name)?;
    let is_numbered = command.show_numbered_token.unwrap_or(false);
    let text = |expr: ast::Expr| vec![expr, syntax::string(variable), syntax::boolean(is_numbered)];
    let pattern = syntax::call("text_pattern", text(source.clone()));
    if command.mode != Some(PatternMode::Aggregation) {
        let mut added = vec![(name.to_owned(), pattern)];
        if is_numbered {
            let samples = syntax::call("array", vec![source]);
            added.push((
                "tokens".to_owned(),
                syntax::call("pattern_tokens", vec![samples, syntax::string(variable)]),
            ));
        }
        pipe.extend_together(added, planner.sql)?;
        return Ok(pipe);
    }
    pipe.filter(syntax::is_not_null(source.clone()), planner.sql)?;
    let keys = grouping_keys(command.by.as_ref(), &mut pipe, planner)?;
    let mut shown = grouped(command, source, (name, pattern), keys, &mut pipe, planner)?;
    if is_numbered {
        let args = vec![syntax::column("sample_logs"), syntax::string(variable)];
        pipe.extend("tokens", syntax::call("pattern_tokens", args), planner.sql)?;
        shown.push("tokens".to_owned());
    }
    shown.push("sample_logs".to_owned());
    pipe.keep(&shown, planner.sql)?;
    Ok(pipe)
}

/// Leaves a row for each pattern. Returns the columns so far.
fn grouped(
    command: &PatternsCommand,
    source: ast::Expr,
    (name, pattern): (&str, ast::Expr),
    keys: Vec<GroupKey>,
    pipe: &mut Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Vec<String>> {
    let samples = command.max_sample_count.unwrap_or(SAMPLES);
    let aggregates = vec![
        ("pattern_count".to_owned(), syntax::count_rows()),
        ("sample_logs".to_owned(), syntax::call("take", vec![source, syntax::number(samples)])),
    ];
    let mut shown: Vec<String> = keys.iter().map(|key| key.name.clone()).collect();
    let mut groups: Vec<(String, ast::Expr)> = keys.into_iter().map(|key| (key.name, key.expr)).collect();
    groups.push((name.to_owned(), pattern));
    pipe.aggregate(aggregates, groups, planner.sql)?;
    shown.extend([name.to_owned(), "pattern_count".to_owned()]);
    Ok(shown)
}

/// Plans `method=brain`: the lines of all rows are one value, and the pattern of a line is a function of both.
fn brain(command: &PatternsCommand, mut pipe: Pipe, planner: &mut Planner<'_, '_, '_>) -> Result<Pipe> {
    let frequency = command.frequency_threshold_percentage.unwrap_or(FREQUENCY);
    if !(0.0..=1.0).contains(&frequency) {
        return Err(SqlError::Semantic(format!(
            "frequency_threshold_percentage is a number from 0 to 1, but is [{frequency}]"
        )));
    }
    let source = planner.expression(&command.source, &mut pipe)?;
    let name = command.new_field.as_deref().unwrap_or(FIELD);
    super::rename::check_name(name)?;
    let is_numbered = command.show_numbered_token.unwrap_or(false);
    pipe.close(planner.sql)?;
    let (mut rows, all) = pipe.shared(planner.sql)?;
    let (all, again) = all.shared(planner.sql)?;
    let count = command.variable_count_threshold.unwrap_or(VARIABLE_COUNT);
    let call = |function: &str, line: ast::Expr, lines: ast::Query| {
        let percent = syntax::number((frequency * 100.0).round() as u64);
        let lines = ast::Expr::Subquery(Box::new(lines));
        syntax::call(function, vec![line, lines, syntax::number(count), percent])
    };
    let function = if is_numbered { "brain_numbered" } else { "brain_pattern" };
    let pattern = call(function, source.clone(), lines(command, &source, all, planner)?);
    let again = lines(command, &source, again, planner)?;
    if command.mode != Some(PatternMode::Aggregation) {
        let mut added = vec![(name.to_owned(), pattern)];
        if is_numbered {
            let sample = syntax::call("array", vec![source]);
            added.push(("tokens".to_owned(), call("brain_tokens", sample, again)));
        }
        rows.extend_together(added, planner.sql)?;
        return Ok(rows);
    }
    rows.filter(syntax::is_not_null(source.clone()), planner.sql)?;
    rows.extend(name, pattern, planner.sql)?;
    rows.close(planner.sql)?;
    let keys = grouping_keys(command.by.as_ref(), &mut rows, planner)?;
    let mut shown = grouped(command, source, (name, syntax::column(name)), keys, &mut rows, planner)?;
    if is_numbered {
        let tokens = call("brain_tokens", syntax::column("sample_logs"), again);
        rows.extend("tokens", tokens, planner.sql)?;
        shown.push("tokens".to_owned());
    }
    shown.push("sample_logs".to_owned());
    rows.keep(&shown, planner.sql)?;
    Ok(rows)
}

/// Makes the query of all lines, as one array.
fn lines(
    command: &PatternsCommand,
    source: &ast::Expr,
    mut all: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<ast::Query> {
    all.filter(syntax::is_not_null(source.clone()), planner.sql)?;
    let text = syntax::cast(source.clone(), ast::DataType::String(None));
    let most = command.buffer_limit.unwrap_or(BUFFERED).min(BUFFERED);
    let taken = syntax::call("take", vec![text, syntax::number(most)]);
    all.unorder();
    all.cut(0, most);
    all.aggregate(vec![(LINES.to_owned(), taken)], Vec::new(), planner.sql)?;
    all.into_query(planner.sql)
}
