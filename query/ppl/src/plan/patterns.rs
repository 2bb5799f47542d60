//! `patterns`: the constant parts of texts, beside each row or as groups. Labels keep the order, groups destroy it.

use millrace_sql::error::{Result, SqlError};
use sqlparser::ast;

use super::aggregates::grouping_keys;
use super::pipe::Pipe;
use super::{Planner, syntax};
use crate::command::{PatternMethod, PatternMode, PatternsCommand};

/// Column of patterns where the command names none.
const FIELD: &str = "patterns_field";
/// Texts of a pattern that are shown where the command does not say how many.
const SAMPLES: u64 = 10;
/// Variable parts of a text: runs of letters and digits.
const VARIABLE: &str = "[a-zA-Z0-9]+";

/// Plans the command.
pub(super) fn plan(
    command: &PatternsCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    if command.method == Some(PatternMethod::Brain) {
        return Err(SqlError::Unsupported(
            "patterns method=brain is not supported: method=simple_pattern groups by constant parts"
                .to_owned(),
        ));
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
    if is_numbered {
        let args = vec![syntax::column("sample_logs"), syntax::string(variable)];
        pipe.extend("tokens", syntax::call("pattern_tokens", args), planner.sql)?;
        shown.push("tokens".to_owned());
    }
    shown.push("sample_logs".to_owned());
    pipe.keep(&shown, planner.sql)?;
    Ok(pipe)
}
