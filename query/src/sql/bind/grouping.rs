//! GROUP BY: the aggregation of a plan, and expressions over what it makes.

use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};

use super::Bound;
use crate::sql::error::{Result, SqlError};
use crate::sql::functions::values;

/// Builds the aggregation; returns what expressions over it are replaced by.
pub(super) fn aggregate(
    plan: LogicalPlan,
    groups: &[Bound],
    aggregates: Vec<Expr>,
) -> Result<(LogicalPlan, Vec<(Expr, Expr)>)> {
    let mut plan = plan;
    let mut replaced = Vec::new();
    let mut keys = Vec::with_capacity(groups.len());
    let column = |name: String| Expr::Column(Column::new_unqualified(name));
    for (at, group) in groups.iter().enumerate() {
        let key = column(format!("g{at}"));
        let expr = if group.list {
            // A group for each value.
            let name = format!("v{at}");
            let mut all: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
            all.push(group.expr.clone().alias(&name));
            plan = LogicalPlanBuilder::new(plan)
                .project(all)?
                .unnest_column(Column::new_unqualified(&name))?
                .build()?;
            replaced.push((values::least(group.expr.clone(), group.ty), key.clone()));
            replaced.push((values::greatest(group.expr.clone(), group.ty), key.clone()));
            column(name)
        } else {
            group.expr.clone()
        };
        keys.push(expr.alias(format!("g{at}")));
        replaced.push((group.expr.clone(), key));
    }
    let distinct = only_distinct(&aggregates).cloned();
    if let Some(argument) = &distinct {
        // Values are grouped first and counted then: groups are spread over all cores, sets of values are not.
        let counted = keys.iter().cloned().chain([argument.clone().alias(DISTINCT)]);
        plan = LogicalPlanBuilder::new(plan).aggregate(counted, Vec::<Expr>::new())?.build()?;
        keys = (0..keys.len()).map(|at| column(format!("g{at}"))).collect();
    }
    let mut computed = Vec::with_capacity(aggregates.len());
    for (at, expr) in aggregates.into_iter().enumerate() {
        replaced.push((expr.clone(), column(format!("a{at}"))));
        let expr = match (expr, &distinct) {
            (Expr::AggregateFunction(mut function), Some(_)) => {
                function.params.distinct = false;
                function.params.args = vec![column(DISTINCT.to_owned())];
                Expr::AggregateFunction(function)
            }
            (expr, _) => expr,
        };
        computed.push(expr.alias(format!("a{at}")));
    }
    Ok((LogicalPlanBuilder::new(plan).aggregate(keys, computed)?.build()?, replaced))
}

/// Name of the values of which distinct ones are counted.
const DISTINCT: &str = "d0";

/// Returns what the distinct values of are counted, where all aggregates do that, of the same values.
fn only_distinct(aggregates: &[Expr]) -> Option<&Expr> {
    let mut arguments = aggregates.iter().map(|expr| match expr {
        Expr::AggregateFunction(AggregateFunction { func, params }) => match params.args.as_slice() {
            [argument] if func.name() == "count" && params.distinct && params.filter.is_none() => {
                Some(argument)
            }
            _ => None,
        },
        _ => None,
    });
    let first = arguments.next()??;
    arguments.all(|other| other == Some(first)).then_some(first)
}

/// Replaces parts of an expression.
pub(super) fn rewritten(expr: &Expr, replaced: &[(Expr, Expr)]) -> Result<Expr> {
    let done = expr.clone().transform_down(|part| {
        Ok(match replaced.iter().find(|(from, _)| *from == part) {
            Some((_, to)) => Transformed::new(to.clone(), true, TreeNodeRecursion::Jump),
            None => Transformed::no(part),
        })
    })?;
    Ok(done.data)
}

/// Rewrites an expression over groups and aggregates, and refuses what is neither.
pub(super) fn grouped_expr(
    expr: &Expr,
    replaced: &[(Expr, Expr)],
    name: &str,
    grouped: bool,
) -> Result<Expr> {
    let expr = rewritten(expr, replaced)?;
    let known =
        |column: &Column| replaced.iter().any(|(_, to)| matches!(to, Expr::Column(own) if own == column));
    if expr.column_refs().iter().all(|column| known(column)) {
        return Ok(expr);
    }
    Err(SqlError::Semantic(match grouped {
        true => format!(
            "Expression [{name}] that contains non-aggregated column is not present in group by clause"
        ),
        false => format!(
            "Explicit GROUP BY clause is required because expression [{name}] contains non-aggregated column"
        ),
    }))
}
