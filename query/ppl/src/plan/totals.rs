//! `addtotals` and `addcoltotals`: totals of rows and of columns. They keep the order; totals of columns are the last row.

use millrace_sql::error::Result;
use millrace_sql::relational::SqlType;
use sqlparser::ast;

use super::pipe::Pipe;
use super::{Planner, paths_of, syntax, union};
use crate::ast::FieldName;
use crate::command::{AddColTotalsCommand, AddTotalsCommand};

/// Plans `addtotals`.
pub(super) fn rows(
    command: &AddTotalsCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    let numbers = numbers(&command.fields, &mut pipe, planner)?;
    if command.row && !numbers.is_empty() {
        let values = numbers
            .iter()
            .map(|name| syntax::call("coalesce", vec![syntax::column(name), syntax::number(0)]));
        let total = syntax::sum(values.collect());
        pipe.extend(&command.fieldname, total.unwrap_or_else(syntax::null), planner.sql)?;
    }
    match command.col {
        true => {
            // The total of rows has no total of its own.
            columns_of(&numbers, &command.label, command.labelfield.as_deref(), pipe, planner)
        }
        false => Ok(pipe),
    }
}

/// Plans `addcoltotals`.
pub(super) fn columns(
    command: &AddColTotalsCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    let numbers = numbers(&command.fields, &mut pipe, planner)?;
    columns_of(&numbers, &command.label, command.labelfield.as_deref(), pipe, planner)
}

/// Lists the fields that have numbers, of those that are named.
fn numbers(fields: &[FieldName], pipe: &mut Pipe, planner: &mut Planner<'_, '_, '_>) -> Result<Vec<String>> {
    let named = paths_of(fields);
    let typed = pipe.typed(planner.sql)?;
    let is_summed =
        |(name, ty): &(String, SqlType)| ty.is_number() && (named.is_empty() || named.contains(name));
    Ok(typed.into_iter().filter(is_summed).map(|(name, _)| name).collect())
}

/// Adds a row with the totals of columns.
fn columns_of(
    summed: &[String],
    label: &str,
    label_field: Option<&str>,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    let names = pipe.visible(planner.sql)?;
    if let Some(field) = label_field.filter(|field| !names.iter().any(|name| name == field)) {
        pipe.extend(field, syntax::cast(syntax::null(), ast::DataType::String(None)), planner.sql)?;
    }
    pipe.close(planner.sql)?;
    let (rows, mut totals) = pipe.shared(planner.sql)?;
    let sums = summed.iter().map(|name| (name.clone(), syntax::call("sum", vec![syntax::column(name)])));
    totals.aggregate(
        sums.chain([("\u{1}rows".to_owned(), syntax::count_rows())]).collect(),
        Vec::new(),
        planner.sql,
    )?;
    if let Some(field) = label_field.filter(|field| !summed.iter().any(|name| name == field)) {
        totals.extend(field, syntax::string(label), planner.sql)?;
    }
    totals.drop(&["\u{1}rows".to_owned()], planner.sql)?;
    union::united(vec![rows, totals], planner)
}
