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

/// Refuses functions that keep values of all rows.
pub(super) fn check_function(call: &ast::Expr) -> Result<()> {
    let ast::Expr::Function(function) = call else { return Ok(()) };
    let name = name_of(function);
    match name.as_str() {
        "percentile" | "percentile_approx" | "median" | "take" | "list" | "values" => {
            Err(SqlError::Unsupported(format!("Unexpected window function: {}", name.to_uppercase())))
        }
        _ => Ok(()),
    }
}

/// Writes a function over a window with one of SQL, and tells whether it reads the frame.
pub(super) fn windowed(call: ast::Expr) -> Result<(ast::Expr, bool)> {
    let ast::Expr::Function(function) = &call else {
        return Err(SqlError::Semantic(format!("[{call}] is no window function")));
    };
    let name = name_of(function);
    let args = arguments(function);
    Ok(match name.as_str() {
        // The rows come in the order of their time.
        "earliest" => (syntax::call("first_value", args.into_iter().take(1).collect()), true),
        "latest" => (syntax::call("last_value", args.into_iter().take(1).collect()), true),
        "first" => (syntax::call("first_value", args), true),
        "last" => (syntax::call("last_value", args), true),
        "nth" => (syntax::call("nth_value", args), true),
        own if RANKS.contains(&own) => (call, false),
        _ => (call, true),
    })
}

/// Returns the order by time that `earliest` and `latest` read rows in; `None` for other functions.
fn time_of(call: &ast::Expr) -> Option<ast::OrderByExpr> {
    let ast::Expr::Function(function) = call else { return None };
    let name = name_of(function);
    if !matches!(name.as_str(), "earliest" | "latest") {
        return None;
    }
    let time = arguments(function).into_iter().nth(1).unwrap_or_else(|| syntax::column("@timestamp"));
    // The first row is the earliest and the last one is the latest, so rows without a time are at the other end.
    Some(syntax::order_by(time, true, name == "latest"))
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
        check_function(&call.call.expr)?;
        let (name, call) = aggregate(call, &mut pipe, planner)?;
        let partition: Vec<ast::Expr> = keys.iter().map(|key| key.expr.clone()).collect();
        let time = time_of(&call);
        let (call, frames) = windowed(call)?;
        let order = match time {
            Some(time) => vec![time],
            None => pipe.window_order(planner.sql)?,
        };
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
