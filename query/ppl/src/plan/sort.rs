//! `sort`, `reverse` and `tail`: the order of rows.
//!
//! Nulls are the least values: they come first in ascending order and last in descending order.

use millrace_sql::error::Result;
use sqlparser::ast;

use super::pipe::{Pipe, SortKey};
use super::{Planner, syntax};
use crate::command::{SortCommand, SortComparison, SortTerm};

/// Column with the number of a row, which turns an order round that has no keys.
pub(super) const ROW: &str = "\u{1}row";

/// Makes the key of a term.
pub(super) fn key(term: &SortTerm) -> SortKey {
    let field = syntax::column(&term.field.path);
    let expr = match term.comparison {
        SortComparison::Auto => field,
        SortComparison::Text => syntax::cast(field, ast::DataType::String(None)),
        SortComparison::Ip => syntax::cast(
            field,
            ast::DataType::Custom(ast::ObjectName::from(vec![ast::Ident::new("IP")]), Vec::new()),
        ),
        SortComparison::Number => syntax::call("tonumber", vec![field]),
    };
    SortKey { expr, ascending: !term.is_descending, nulls_first: !term.is_descending }
}

/// Plans `sort`.
pub(super) fn plan(command: &SortCommand, mut pipe: Pipe, planner: &mut Planner<'_, '_, '_>) -> Result<Pipe> {
    pipe.sort(command.keys.iter().map(key).collect(), planner.sql)?;
    if let Some(count) = command.count.filter(|count| *count > 0) {
        pipe.cut(0, count);
    }
    Ok(pipe)
}

/// Plans `reverse`.
pub(super) fn reverse(mut pipe: Pipe, planner: &mut Planner<'_, '_, '_>) -> Result<Pipe> {
    pipe.close_limit(planner.sql)?;
    if pipe.order().is_empty() {
        number_rows(&mut pipe, ROW, planner)?;
        let key = SortKey { expr: syntax::column(ROW), ascending: false, nulls_first: false };
        pipe.sort(vec![key], planner.sql)?;
    } else {
        pipe.reverse();
    }
    Ok(pipe)
}

/// Plans `tail`.
pub(super) fn tail(count: u64, pipe: Pipe, planner: &mut Planner<'_, '_, '_>) -> Result<Pipe> {
    let mut pipe = reverse(pipe, planner)?;
    pipe.cut(0, count);
    Ok(pipe)
}

/// Adds a hidden column with the number of each row in the order of the pipe, from one.
pub(super) fn number_rows(pipe: &mut Pipe, name: &str, planner: &mut Planner<'_, '_, '_>) -> Result<()> {
    pipe.level(planner.sql)?;
    let keys = pipe.window_order(planner.sql)?;
    let number = syntax::over(syntax::call("row_number", Vec::new()), syntax::window(Vec::new(), keys, None));
    pipe.extend_window(name, number, planner.sql)?;
    pipe.hide(name);
    Ok(())
}

/// Has the rows keep the order in which they come where they have none: windows read them in another.
pub(super) fn keep_order(pipe: &mut Pipe, planner: &mut Planner<'_, '_, '_>) -> Result<()> {
    pipe.level(planner.sql)?;
    if pipe.order().is_empty() {
        number_rows(pipe, ROW, planner)?;
        pipe.level(planner.sql)?;
        let key = SortKey { expr: syntax::column(ROW), ascending: true, nulls_first: true };
        pipe.sort(vec![key], planner.sql)?;
    }
    Ok(())
}
