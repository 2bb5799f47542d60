//! `transpose`: rows as columns. It sets the order: that of the columns before.

use millrace_sql::error::{Result, SqlError};
use sqlparser::ast;

use super::pipe::Pipe;
use super::sort::number_rows;
use super::{Planner, syntax, union};
use crate::command::TransposeCommand;

/// Most cells of the answer, each of which is a part of the plan.
const MAX_CELLS: u64 = 10_000;

/// Plans the command.
pub(super) fn plan(
    command: &TransposeCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    let names = pipe.visible(planner.sql)?;
    if command.count == 0 || command.count.saturating_mul(names.len() as u64) > MAX_CELLS {
        return Err(SqlError::TooLarge(format!("transpose answers from one to {MAX_CELLS} cells")));
    }
    let (row, place) = (planner.fresh_name("row"), planner.fresh_name("place"));
    number_rows(&mut pipe, &row, planner)?;
    let all = pipe.names().unrestricted();
    let relation = pipe.into_whole_relation(planner.sql)?;
    let relation = planner.sql.share(relation);
    let mut selects = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let table = planner.sql.define(relation.clone());
        let cells = (1..=command.count).map(|number| {
            let is_row =
                syntax::binary(syntax::column(&row), ast::BinaryOperator::Eq, syntax::number(number));
            let text = syntax::cast(syntax::column(name), ast::DataType::String(None));
            let cell = syntax::call("max", vec![syntax::case(vec![(is_row, text)], None)]);
            (format!("row {number}"), cell)
        });
        let items: Vec<(String, ast::Expr)> = [(command.column_name.clone(), syntax::string(name))]
            .into_iter()
            .chain(cells)
            .chain([(place.clone(), syntax::number(at))])
            .collect();
        let items = items.iter().map(|(name, expr)| (name.as_str(), expr.clone()));
        let select = ast::SetExpr::Select(Box::new(syntax::select(items, Some(syntax::table(&table, None)))));
        selects.push(select);
    }
    let Some(rows) = selects.into_iter().reduce(syntax::union_all) else {
        return Err(SqlError::Semantic("there is no column to transpose".to_owned()));
    };
    union::in_order(rows, &place, all, planner)
}
