//! `top` and `rare`: the most and the least frequent combinations of values. They set the order.

use millrace_sql::error::Result;
use sqlparser::ast;

use super::pipe::{Pipe, SortKey};
use super::{Planner, paths_of, syntax};
use crate::command::RareTopCommand;

/// Column with the rank of a combination within its group.
const RANK: &str = "\u{1}rank";

/// Plans the command.
pub(super) fn plan(
    command: &RareTopCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    let (fields, by) = (paths_of(&command.fields), paths_of(&command.by));
    let is_nullable = command.usenull.unwrap_or(planner.settings.legacy_syntax);
    let names: Vec<String> = by.iter().chain(&fields).cloned().collect();
    if !is_nullable {
        for name in &names {
            pipe.filter(syntax::is_not_null(syntax::column(name)), planner.sql)?;
        }
    }
    let count = command.countfield.clone();
    let keys: Vec<(String, ast::Expr)> =
        names.iter().map(|name| (name.clone(), syntax::column(name))).collect();
    pipe.aggregate(vec![(count.clone(), syntax::count_rows())], keys, planner.sql)?;
    pipe.level(planner.sql)?;
    let partition: Vec<ast::Expr> = by.iter().map(|name| syntax::column(name)).collect();
    let mut order = vec![syntax::order_by(syntax::column(&count), command.is_rare, command.is_rare)];
    order.extend(fields.iter().map(|name| syntax::order_by(syntax::column(name), true, true)));
    let rank = syntax::over(syntax::call("row_number", Vec::new()), syntax::window(partition, order, None));
    pipe.extend_window(RANK, rank, planner.sql)?;
    let first =
        syntax::binary(syntax::column(RANK), ast::BinaryOperator::LtEq, syntax::number(command.count));
    pipe.filter(first, planner.sql)?;
    let ascending =
        |name: &String| SortKey { expr: syntax::column(name), ascending: true, nulls_first: true };
    let keys = by.iter().map(ascending).chain([ascending(&RANK.to_owned())]);
    pipe.sort(keys.collect(), planner.sql)?;
    let shown: Vec<String> = match command.showcount {
        true => names.into_iter().chain([count]).collect(),
        false => names,
    };
    pipe.keep(&shown, planner.sql)?;
    Ok(pipe)
}
