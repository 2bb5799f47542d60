//! `streamstats`: aggregates of the rows up to this one beside the row. It keeps the order.
//!
//! A window of rows of all groups is a range of row numbers within the group. `reset_before` and `reset_after` number segments by a
//! running sum of flags; a segment is a key more.

use millrace_sql::error::{Result, SqlError};
use sqlparser::ast;

use super::aggregates::{aggregate, grouping_keys};
use super::eventstats::{check_function, windowed};
use super::expressions::name_of;
use super::pipe::Pipe;
use super::sort::{keep_order, number_rows};
use super::{Planner, syntax};
use crate::ast::Expression;
use crate::command::StreamStatsCommand;

/// Column with the number of a row.
const NUMBER: &str = "\u{1}stream";
/// Columns of flags, and of the number of segments that end at flags.
const FLAGS: [&str; 2] = ["\u{1}before", "\u{1}after"];
const SEGMENTS: [&str; 2] = ["\u{1}segment_before", "\u{1}segment_after"];

/// Plans the command.
pub(super) fn plan(
    command: &StreamStatsCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    let window = u64::try_from(command.window)
        .map_err(|_| SqlError::Semantic(format!("Window size must be >= 0, but got: {}", command.window)))?;
    pipe.level(planner.sql)?;
    let keys = grouping_keys(command.by.as_ref(), &mut pipe, planner)?;
    keep_order(&mut pipe, planner)?;
    let mut partition: Vec<ast::Expr> = keys.iter().map(|key| key.expr.clone()).collect();
    for ((condition, flag), (segment, is_after)) in [&command.reset_before, &command.reset_after]
        .into_iter()
        .zip(FLAGS)
        .zip(SEGMENTS.into_iter().zip([false, true]))
    {
        if let Some(condition) = condition {
            segments(condition, (flag, segment), is_after, &mut pipe, planner)?;
            partition.push(syntax::column(segment));
        }
    }
    let is_global = command.global && window > 0 && !partition.is_empty();
    if is_global {
        number_rows(&mut pipe, NUMBER, planner)?;
        pipe.level(planner.sql)?;
    }
    let before = (window > 0).then(|| if command.current { window - 1 } else { window });
    let until = (!command.current).then_some(1);
    let is_nullable = command.bucket_nullable.unwrap_or(planner.settings.legacy_syntax);
    let mut added: Vec<(String, ast::Expr)> = Vec::with_capacity(command.functions.len());
    for call in &command.functions {
        check_function(&call.call.expr)?;
        if let ast::Expr::Function(function) = &call.call.expr
            && matches!(name_of(function).as_str(), "earliest" | "latest")
        {
            return Err(SqlError::Unsupported(format!(
                "{} of streamstats is not supported: sort by the time, and use first or last",
                function.name
            )));
        }
        let (name, call) = aggregate(call, &mut pipe, planner)?;
        let (call, frames) = windowed(call)?;
        let (order, frame) = match is_global {
            true => {
                let number = syntax::order_by(syntax::column(NUMBER), true, true);
                let frame = syntax::rows_frame(before, until);
                (vec![number], ast::WindowFrame { units: ast::WindowFrameUnits::Range, ..frame })
            }
            false => (pipe.window_order(planner.sql)?, syntax::rows_frame(before, until)),
        };
        let mut expr = syntax::over(call, syntax::window(partition.clone(), order, frames.then_some(frame)));
        let missing = keys.iter().filter(|_| !is_nullable).map(|key| syntax::is_null(key.expr.clone()));
        if let Some(missing) = syntax::any_of(missing.collect()) {
            expr = syntax::case(vec![(missing, syntax::null())], Some(expr));
        }
        added.push((name, expr));
    }
    pipe.extend_windows(added, planner.sql)?;
    let own: Vec<String> = FLAGS.into_iter().chain(SEGMENTS).chain([NUMBER]).map(str::to_owned).collect();
    pipe.level(planner.sql)?;
    pipe.drop(&own, planner.sql)?;
    Ok(pipe)
}

/// Adds the number of the segment that a row is in.
fn segments(
    condition: &Expression,
    (flag, segment): (&str, &str),
    is_after: bool,
    pipe: &mut Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<()> {
    let condition = planner.expression(condition, pipe)?;
    let flagged = syntax::case(vec![(condition, syntax::number(1))], Some(syntax::number(0)));
    pipe.extend(flag, flagged, planner.sql)?;
    pipe.hide(flag);
    pipe.level(planner.sql)?;
    let order = pipe.window_order(planner.sql)?;
    let frame = syntax::rows_frame(None, is_after.then_some(1));
    let sum = syntax::call("sum", vec![syntax::column(flag)]);
    let sum = syntax::over(sum, syntax::window(Vec::new(), order, Some(frame)));
    let sum = syntax::call("coalesce", vec![sum, syntax::number(0)]);
    pipe.extend_window(segment, sum, planner.sql)?;
    pipe.hide(segment);
    pipe.level(planner.sql)
}
