//! `chart`: aggregates by a row and a column key, a row for each pair. It sets the order.

use millrace_sql::error::Result;
use sqlparser::ast;

use super::aggregates::aggregate;
use super::bin::bucket;
use super::expressions::name_of;
use super::pipe::{Pipe, SortKey};
use super::{Planner, spans, syntax};
use crate::command::{BinSpan, ChartCommand, ChartSplit, SeriesLimit, SeriesOptions};

/// Values of a column key that stay, where no option says.
const DEFAULT_LIMIT: u64 = 10;
/// Column with the total of a value, and with its rank.
const TOTAL: &str = "\u{1}total";
const RANK: &str = "\u{1}rank";

/// A column key whose values are limited.
pub(super) struct Series<'s> {
    /// Column of the row key.
    pub(super) row: Option<&'s str>,
    /// Column of the column key.
    pub(super) column: &'s str,
    /// Column of the aggregate.
    pub(super) value: &'s str,
    /// Options of the command.
    pub(super) options: &'s SeriesOptions,
}

/// Plans the command.
pub(super) fn plan(
    command: &ChartCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    let (value, call) = aggregate(&command.aggregate, &mut pipe, planner)?;
    let mut keys: Vec<(String, ast::Expr)> = Vec::new();
    for split in command.row.iter().chain(&command.column) {
        let key = split_key(split, &mut pipe, planner)?;
        if command.row.as_ref().is_some_and(|row| row == split) {
            pipe.filter(syntax::is_not_null(syntax::column(&split.field.path)), planner.sql)?;
        }
        keys.push((split.field.path.clone(), key));
    }
    let mut shown: Vec<String> = keys.iter().map(|(name, _)| name.clone()).collect();
    pipe.aggregate(vec![(value.clone(), call.clone())], keys, planner.sql)?;
    if let (Some(row), Some(column)) = (&command.row, &command.column) {
        let series = Series {
            row: Some(&row.field.path),
            column: &column.field.path,
            value: &value,
            options: &command.series,
        };
        pipe = limited(&series, &call, pipe, planner)?;
    }
    let keys =
        shown.iter().map(|name| SortKey { expr: syntax::column(name), ascending: true, nulls_first: true });
    pipe.sort(keys.collect(), planner.sql)?;
    shown.push(value);
    pipe.keep(&shown, planner.sql)?;
    Ok(pipe)
}

fn split_key(split: &ChartSplit, pipe: &mut Pipe, planner: &mut Planner<'_, '_, '_>) -> Result<ast::Expr> {
    if split.bin.is_empty() {
        return Ok(syntax::column(&split.field.path));
    }
    let is_number = pipe.type_of(&split.field.path, planner.sql)?.is_number();
    match &split.bin.span {
        // Keys of numbers are the starts of their buckets.
        Some(BinSpan::Length(length)) if length.unit.is_none() && is_number => {
            spans::bucket(&split.field.path, length, pipe, planner).map(|(start, _)| start)
        }
        _ => bucket(&split.field.path, &split.bin, pipe, planner),
    }
}

/// Unites the values of a column key beyond a limit to one.
pub(super) fn limited(
    series: &Series<'_>,
    call: &ast::Expr,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    let options = series.options;
    let column = syntax::column(series.column);
    if options.usenull == Some(false) {
        pipe.filter(syntax::is_not_null(column.clone()), planner.sql)?;
    }
    let (count, ascending) = match options.limit {
        None => (DEFAULT_LIMIT, false),
        Some(SeriesLimit::Top(count)) => (count, false),
        Some(SeriesLimit::Bottom(count)) => (count, true),
    };
    let text = syntax::cast(column.clone(), ast::DataType::String(None));
    let null_name = options.nullstr.clone().unwrap_or_else(|| "NULL".to_owned());
    let is_null = (syntax::is_null(column.clone()), syntax::string(&null_name));
    if count == 0 {
        pipe.replace(series.column, syntax::case(vec![is_null], Some(text)), planner.sql)?;
        return Ok(pipe);
    }
    pipe.level(planner.sql)?;
    let total = syntax::over(
        syntax::call("sum", vec![syntax::column(series.value)]),
        syntax::window(vec![column.clone()], Vec::new(), Some(syntax::whole_frame())),
    );
    pipe.extend_window(TOTAL, total, planner.sql)?;
    pipe.level(planner.sql)?;
    let missing =
        syntax::case(vec![(syntax::is_null(column.clone()), syntax::number(1))], Some(syntax::number(0)));
    let order = vec![
        syntax::order_by(missing, true, false),
        syntax::order_by(syntax::column(TOTAL), ascending, false),
        syntax::order_by(column, true, false),
    ];
    let rank = syntax::over(syntax::call("dense_rank", Vec::new()), syntax::window(Vec::new(), order, None));
    pipe.extend_window(RANK, rank, planner.sql)?;
    pipe.level(planner.sql)?;
    let is_first = syntax::binary(syntax::column(RANK), ast::BinaryOperator::LtEq, syntax::number(count));
    if options.useother == Some(false) {
        let kept = vec![is_first.clone(), is_null.0.clone()];
        if let Some(kept) = syntax::any_of(kept) {
            pipe.filter(kept, planner.sql)?;
        }
    }
    let other = options.otherstr.clone().unwrap_or_else(|| "OTHER".to_owned());
    let label = syntax::case(vec![is_null, (is_first, text)], Some(syntax::string(&other)));
    let mut keys: Vec<(String, ast::Expr)> = Vec::new();
    keys.extend(series.row.map(|row| (row.to_owned(), syntax::column(row))));
    keys.push((series.column.to_owned(), label));
    let united = syntax::call(united(call), vec![syntax::column(series.value)]);
    pipe.aggregate(vec![(series.value.to_owned(), united)], keys, planner.sql)?;
    Ok(pipe)
}

/// Returns the aggregate that unites values of one.
fn united(call: &ast::Expr) -> &'static str {
    let ast::Expr::Function(call) = call else { return "sum" };
    match name_of(call).as_str() {
        "avg" | "median" | "percentile" | "percentile_approx" => "avg",
        "min" | "earliest" | "first" => "min",
        "max" | "latest" | "last" => "max",
        _ => "sum",
    }
}
