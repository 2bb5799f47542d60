//! `eventstats`: aggregates of a row's group beside the row. It keeps the order.

use millrace_sql::error::{Result, SqlError};
use sqlparser::ast;

use super::aggregates::{aggregate, grouping_keys};
use super::expressions::name_of;
use super::functions::arguments;
use super::pipe::Pipe;
use super::sort::keep_order;
use super::{Planner, syntax};
use crate::command::EventStatsCommand;

/// Functions of windows alone.
const RANKS: &[&str] = &["row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile"];

/// Writes a function over a window with one of SQL, and tells whether it reads the frame.
pub(super) fn windowed(call: ast::Expr) -> Result<(ast::Expr, bool)> {
    let ast::Expr::Function(function) = &call else {
        return Err(SqlError::Semantic(format!("[{call}] is no window function")));
    };
    let name = name_of(function);
    let args = arguments(function);
    if matches!(name.as_str(), "percentile" | "percentile_approx" | "median" | "take" | "list" | "values") {
        return Err(SqlError::Unsupported(format!("Unexpected window function: {}", name.to_uppercase())));
    }
    Ok(match name.as_str() {
        "first" => (syntax::call("first_value", args), true),
        "last" => (syntax::call("last_value", args), true),
        "nth" => (syntax::call("nth_value", args), true),
        own if RANKS.contains(&own) => (call, false),
        _ => (call, true),
    })
}

/// Plans the command.
pub(super) fn plan(
    command: &EventStatsCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    pipe.level(planner.sql)?;
    let keys = grouping_keys(command.by.as_ref(), &mut pipe, planner)?;
    keep_order(&mut pipe, planner)?;
    let is_nullable = command.bucket_nullable.unwrap_or(planner.settings.legacy_syntax);
    let mut added: Vec<(String, ast::Expr)> = Vec::with_capacity(command.functions.len());
    for call in &command.functions {
        let (name, call) = aggregate(call, &mut pipe, planner)?;
        let (call, frames) = windowed(call)?;
        let partition: Vec<ast::Expr> = keys.iter().map(|key| key.expr.clone()).collect();
        let order = pipe.window_order(planner.sql)?;
        let window = syntax::window(partition, order, frames.then(syntax::whole_frame));
        let mut expr = syntax::over(call, window);
        let missing = keys.iter().filter(|_| !is_nullable).map(|key| syntax::is_null(key.expr.clone()));
        if let Some(missing) = syntax::any_of(missing.collect()) {
            expr = syntax::case(vec![(missing, syntax::null())], Some(expr));
        }
        added.push((name, expr));
    }
    pipe.extend_windows(added, planner.sql)?;
    Ok(pipe)
}
