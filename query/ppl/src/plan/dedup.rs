//! `dedup`: the first rows of each combination of values. It keeps the order.

use millrace_sql::error::{Result, SqlError};
use sqlparser::ast;

use super::pipe::Pipe;
use super::sort::{ROW, keep_order};
use super::{Planner, paths_of, syntax};
use crate::command::DedupCommand;

/// Column with the number of a row in its combination.
const NUMBER: &str = "\u{1}dedup";
/// Column that tells where a run of equal neighbours begins.
const CHANGE: &str = "\u{1}change";
/// Column with the number of a run.
const RUN: &str = "\u{1}run";

/// Plans the command.
pub(super) fn plan(
    command: &DedupCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    if command.count == 0 {
        return Err(SqlError::Semantic("Number of duplicate events must be greater than 0".to_owned()));
    }
    let paths = paths_of(&command.fields);
    let fields: Vec<ast::Expr> = paths.iter().map(|path| syntax::column(path)).collect();
    if !command.keepempty {
        for field in &fields {
            pipe.filter(syntax::is_not_null(field.clone()), planner.sql)?;
        }
    }
    keep_order(&mut pipe, planner)?;
    let mut partition = fields.clone();
    if command.consecutive {
        let order = pipe.window_order(planner.sql)?;
        let changes = fields.iter().map(|field| {
            let window = syntax::window(Vec::new(), order.clone(), None);
            let last = syntax::over(syntax::call("lag", vec![field.clone()]), window);
            let same = syntax::binary(field.clone(), ast::BinaryOperator::Eq, last);
            syntax::case(vec![(same, syntax::number(0))], Some(syntax::number(1)))
        });
        let change = syntax::call("greatest_value", changes.chain([syntax::number(0)]).collect());
        pipe.extend_window(CHANGE, change, planner.sql)?;
        pipe.level(planner.sql)?;
        let order = pipe.window_order(planner.sql)?;
        let window = syntax::window(Vec::new(), order, Some(syntax::rows_frame(None, None)));
        let run = syntax::over(syntax::call("sum", vec![syntax::column(CHANGE)]), window);
        pipe.extend_window(RUN, run, planner.sql)?;
        pipe.level(planner.sql)?;
        partition.push(syntax::column(RUN));
    }
    let order = pipe.window_order(planner.sql)?;
    let number = syntax::over(syntax::call("row_number", Vec::new()), syntax::window(partition, order, None));
    pipe.extend_window(NUMBER, number, planner.sql)?;
    let first =
        syntax::binary(syntax::column(NUMBER), ast::BinaryOperator::LtEq, syntax::number(command.count));
    let mut kept = vec![first];
    if command.keepempty {
        kept.extend(fields.into_iter().map(syntax::is_null));
    }
    if let Some(condition) = syntax::any_of(kept) {
        pipe.filter(condition, planner.sql)?;
    }
    let own = [NUMBER, CHANGE, RUN].map(str::to_owned);
    pipe.drop(&own, planner.sql)?;
    pipe.hide(ROW);
    Ok(pipe)
}
