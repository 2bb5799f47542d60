//! `trendline`: moving averages. It sets the order where it has keys, else it keeps it.

use millrace_sql::error::{Result, SqlError};
use sqlparser::ast;

use super::pipe::Pipe;
use super::sort::{keep_order, key};
use super::{Planner, syntax};
use crate::command::TrendlineCommand;

/// Most rows of a weighted average, each of which is a part of the plan.
const MAX_WEIGHTED: i64 = 100;

/// Plans the command.
pub(super) fn plan(
    command: &TrendlineCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    if let Some(term) = &command.sort {
        pipe.sort(vec![key(term)], planner.sql)?;
    }
    for average in &command.averages {
        pipe.filter(syntax::is_not_null(syntax::column(&average.field.path)), planner.sql)?;
    }
    keep_order(&mut pipe, planner)?;
    let mut added = Vec::with_capacity(command.averages.len());
    for average in &command.averages {
        let points = average.points;
        if points < 1 {
            return Err(SqlError::Semantic(format!(
                "Number of data-points [{points}] should be greater than 0."
            )));
        }
        let name = match &average.alias {
            Some(alias) => alias.path.clone(),
            None => format!("{}_trendline", average.field.path),
        };
        let field = || syntax::column(&average.field.path);
        let order = pipe.window_order(planner.sql)?;
        let before = points.unsigned_abs() - 1;
        let frame = || Some(syntax::rows_frame(Some(before), None));
        let rows = syntax::over(syntax::count_rows(), syntax::window(Vec::new(), order.clone(), frame()));
        let value = match average.is_weighted {
            false => syntax::over(
                syntax::call("avg", vec![field()]),
                syntax::window(Vec::new(), order.clone(), frame()),
            ),
            true if points > MAX_WEIGHTED => {
                return Err(SqlError::TooLarge(format!("wma takes at most {MAX_WEIGHTED} rows")));
            }
            true => {
                let weighted = (0..points).map(|weight| {
                    let args = vec![field(), syntax::number(points - 1 - weight)];
                    let own = match weight + 1 == points {
                        true => field(),
                        false => syntax::over(
                            syntax::call("lag", args),
                            syntax::window(Vec::new(), order.clone(), None),
                        ),
                    };
                    syntax::binary(own, ast::BinaryOperator::Multiply, syntax::number(weight + 1))
                });
                let sum =
                    weighted.reduce(|left, right| syntax::binary(left, ast::BinaryOperator::Plus, right));
                let total = syntax::decimal((points * (points + 1)) as f64 / 2.0);
                syntax::binary(sum.unwrap_or_else(syntax::null), ast::BinaryOperator::Divide, total)
            }
        };
        let is_full = syntax::binary(rows, ast::BinaryOperator::GtEq, syntax::number(points));
        added.push((name, syntax::case(vec![(is_full, value)], None)));
    }
    pipe.extend_windows(added, planner.sql)?;
    Ok(pipe)
}
