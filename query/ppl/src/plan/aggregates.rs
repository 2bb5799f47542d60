//! Aggregates and the keys of groups, as `stats` and its like have them.

use millrace_sql::error::{Result, SqlError};
use sqlparser::ast;

use super::expressions::name_of;
use super::functions::arguments;
use super::pipe::Pipe;
use super::rename::check_name;
use super::{Planner, spans, syntax};
use crate::ast::{AggregateCall, Grouping, GroupingKey};

/// A key of a grouping.
#[derive(Debug)]
pub(super) struct GroupKey {
    /// Name of its column.
    pub(super) name: String,
    /// Its value.
    pub(super) expr: ast::Expr,
    /// The field that it is made of.
    pub(super) field: ast::Expr,
    /// `true` for buckets of time.
    pub(super) is_time_span: bool,
}

/// Returns the name of an aggregate's column.
pub(super) fn name(call: &AggregateCall) -> Result<String> {
    let name = call.alias.as_ref().map_or_else(|| call.call.text.clone(), |alias| alias.path.clone());
    check_name(&name)?;
    Ok(name)
}

/// Plans an aggregate: the name of its column, and the call of SQL.
pub(super) fn aggregate(
    call: &AggregateCall,
    pipe: &mut Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<(String, ast::Expr)> {
    let name = name(call)?;
    let expr = planner.expression(&call.call, pipe)?;
    let expr = limited_values(written(expr)?, planner.settings.values_limit);
    Ok((name, ordered(expr, pipe, planner)?))
}

/// Writes an aggregate with one that the binder knows.
pub(super) fn written(expr: ast::Expr) -> Result<ast::Expr> {
    let ast::Expr::Function(call) = &expr else {
        return Err(SqlError::Semantic(format!("[{expr}] is no aggregate")));
    };
    let name = name_of(call);
    let args = arguments(call);
    Ok(match (name.as_str(), args.as_slice()) {
        ("count", []) if is_empty(call) => syntax::count_rows(),
        ("median", [value]) => syntax::call("percentile", vec![value.clone(), syntax::number(50)]),
        ("percentile_approx", _) => syntax::call("percentile", args),
        ("distinct_count_approx" | "dc" | "distinct_count", [_]) => {
            let mut distinct = call.clone();
            distinct.name = ast::ObjectName::from(vec![ast::Ident::new("count")]);
            if let ast::FunctionArguments::List(list) = &mut distinct.args {
                list.duplicate_treatment = Some(ast::DuplicateTreatment::Distinct);
            }
            ast::Expr::Function(distinct)
        }
        _ => expr,
    })
}

/// Has an aggregate that keeps values read the rows in the order in which they come.
pub(super) fn ordered(
    expr: ast::Expr,
    pipe: &mut Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<ast::Expr> {
    let ast::Expr::Function(mut call) = expr else { return Ok(expr) };
    if !pipe.order().is_empty() && matches!(name_of(&call).as_str(), "first" | "last" | "take" | "list") {
        pipe.level(planner.sql)?;
        let order = pipe.window_order(planner.sql)?;
        if let ast::FunctionArguments::List(list) = &mut call.args {
            list.clauses.push(ast::FunctionArgumentClause::OrderBy(order));
        }
    }
    Ok(ast::Expr::Function(call))
}

/// Has `values` keep at most so many values; 0 are all.
fn limited_values(expr: ast::Expr, limit: u64) -> ast::Expr {
    match &expr {
        ast::Expr::Function(call) if limit > 0 && name_of(call) == "values" => {
            let args = arguments(call).into_iter().take(1).chain([syntax::number(limit)]);
            syntax::call("values", args.collect())
        }
        _ => expr,
    }
}

fn is_empty(call: &ast::Function) -> bool {
    match &call.args {
        ast::FunctionArguments::List(list) => list.args.is_empty(),
        _ => true,
    }
}

/// Plans the keys behind `by`. A span comes first.
pub(super) fn grouping_keys(
    by: Option<&Grouping>,
    pipe: &mut Pipe,
    planner: &mut Planner<'_, '_, '_>,
) -> Result<Vec<GroupKey>> {
    let mut keys = Vec::new();
    for key in by.iter().flat_map(|by| &by.keys) {
        match key {
            GroupingKey::Field(field) => {
                let expr = syntax::column(&field.path);
                let name = field.path.clone();
                keys.push(GroupKey { name, field: expr.clone(), expr, is_time_span: false });
            }
            GroupingKey::Span(bucket) => {
                let path = bucket.field.as_ref().map_or("@timestamp", |field| field.path.as_str());
                let (expr, is_time_span) = spans::bucket(path, &bucket.length, pipe, planner)?;
                let name = bucket.alias.as_ref().map_or(&bucket.text, |alias| &alias.path).clone();
                check_name(&name)?;
                keys.insert(0, GroupKey { name, expr, field: syntax::column(path), is_time_span });
            }
        }
    }
    Ok(keys)
}
