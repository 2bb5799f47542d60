//! `mvcombine`: one row of rows that differ in a field alone. It destroys the order.

use millrace_sql::error::Result;
use sqlparser::ast;

use super::pipe::Pipe;
use super::{Planner, syntax};
use crate::command::MvCombineCommand;

/// Most values of an array.
const MAX_VALUES: u64 = 10_000;

/// Plans the command.
pub(super) fn plan(
    command: &MvCombineCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    let field = &command.field.path;
    pipe.check(field, planner.sql)?;
    let names = pipe.visible(planner.sql)?;
    let keys: Vec<(String, ast::Expr)> =
        names.iter().filter(|name| *name != field).map(|name| (name.clone(), syntax::column(name))).collect();
    let values = syntax::call("take", vec![syntax::column(field), syntax::number(MAX_VALUES)]);
    pipe.aggregate(vec![(field.clone(), values)], keys, planner.sql)?;
    pipe.keep(&names, planner.sql)?;
    Ok(pipe)
}
