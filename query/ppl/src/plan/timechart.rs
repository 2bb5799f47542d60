//! `timechart`: aggregates over time, and by a field. It sets the order.

use millrace_sql::error::Result;
use sqlparser::ast;

use super::aggregates::aggregate;
use super::chart::{Series, limited};
use super::pipe::{Pipe, SortKey};
use super::spans::{time_bucket, whole};
use super::{Planner, syntax};
use crate::ast::SpanUnit;
use crate::command::TimechartCommand;

/// Plans the command.
pub(super) fn plan(
    command: &TimechartCommand,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    let time = command.timefield.as_ref().map_or("@timestamp", |field| field.path.as_str()).to_owned();
    let (count, unit) = match &command.span {
        Some(length) => (whole(length)?, length.unit.unwrap_or(SpanUnit::Minute)),
        None => {
            let bucket = time_bucket(syntax::column(&time), 1, SpanUnit::Minute);
            return over(command, &time, bucket, syntax::decimal(60.0), pipe, planner);
        }
    };
    let bucket = time_bucket(syntax::column(&time), count, unit);
    let seconds = seconds(&time, count, unit);
    pipe.columns(planner.sql)?;
    over(command, &time, bucket, seconds, pipe, planner)
}

/// Makes the seconds of a bucket, whose start is in a column: months differ in their days.
fn seconds(time: &str, count: u64, unit: SpanUnit) -> ast::Expr {
    let of_unit = match unit {
        SpanUnit::Microsecond => 1e-6,
        SpanUnit::Millisecond => 1e-3,
        SpanUnit::Centisecond => 1e-2,
        SpanUnit::Decisecond => 0.1,
        SpanUnit::Second => 1.0,
        SpanUnit::Minute => 60.0,
        SpanUnit::Hour => 3_600.0,
        SpanUnit::Day => 86_400.0,
        SpanUnit::Week => 604_800.0,
        SpanUnit::Month => return seconds_of_months(time, count),
        SpanUnit::Quarter => return seconds_of_months(time, count.saturating_mul(3)),
        SpanUnit::Year => return seconds_of_months(time, count.saturating_mul(12)),
    };
    syntax::decimal(of_unit * count as f64)
}

fn seconds_of_months(time: &str, months: u64) -> ast::Expr {
    let unit = |name: &str| ast::Expr::Identifier(ast::Ident::new(name));
    let start = || syntax::column(time);
    let end = syntax::call("timestampadd", vec![unit("MONTH"), syntax::number(months), start()]);
    syntax::call("timestampdiff", vec![unit("SECOND"), start(), end])
}

fn over(
    command: &TimechartCommand,
    time: &str,
    bucket: ast::Expr,
    seconds: ast::Expr,
    mut pipe: Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Pipe> {
    let mut aggregates = Vec::with_capacity(command.aggregates.len());
    let mut rates: Vec<(String, f64)> = Vec::new();
    for call in &command.aggregates {
        let (name, mut expr) = aggregate(call, &mut pipe, planner)?;
        if let ast::Expr::Function(function) = &mut expr {
            let own = super::expressions::name_of(function);
            let per = match own.as_str() {
                "per_second" => Some(1.0),
                "per_minute" => Some(60.0),
                "per_hour" => Some(3_600.0),
                "per_day" => Some(86_400.0),
                _ => None,
            };
            if let Some(per) = per {
                function.name = ast::ObjectName::from(vec![ast::Ident::new("sum")]);
                rates.push((name.clone(), per));
            }
        }
        aggregates.push((name, expr));
    }
    pipe.filter(syntax::is_not_null(syntax::column(time)), planner.sql)?;
    let mut keys = vec![(time.to_owned(), bucket)];
    if let Some(by) = &command.by {
        keys.push((by.path.clone(), syntax::column(&by.path)));
    }
    let names: Vec<String> = aggregates.iter().map(|(name, _)| name.clone()).collect();
    let calls: Vec<ast::Expr> = aggregates.iter().map(|(_, expr)| expr.clone()).collect();
    pipe.aggregate(aggregates, keys, planner.sql)?;
    for (name, per) in rates {
        let sum = syntax::binary(syntax::column(&name), ast::BinaryOperator::Multiply, syntax::decimal(per));
        let rate = syntax::binary(sum, ast::BinaryOperator::Divide, seconds.clone());
        pipe.replace(&name, rate, planner.sql)?;
    }
    let mut shown = vec![time.to_owned()];
    if let (Some(by), Some(name), Some(call)) = (&command.by, names.first(), calls.first()) {
        let series = Series { row: Some(time), column: &by.path, value: name, options: &command.series };
        pipe = limited(&series, call, pipe, planner)?;
        shown.push(by.path.clone());
    }
    let keys =
        shown.iter().map(|name| SortKey { expr: syntax::column(name), ascending: true, nulls_first: true });
    pipe.sort(keys.collect(), planner.sql)?;
    shown.extend(names);
    pipe.keep(&shown, planner.sql)?;
    Ok(pipe)
}
