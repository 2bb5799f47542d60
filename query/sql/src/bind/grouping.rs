//! GROUP BY: the aggregation of a plan, and expressions over what it makes.

use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};

use super::Bound;
use super::grouping_sets::{GroupingSets, grouping_args, grouping_value};
use super::subquery::is_of_subquery;
use crate::error::{Result, SqlError};
use crate::functions::{address, values};
use crate::source::{self, Source};

/// Columns of addresses that rows are told apart by, and the columns of their bits.
pub(super) struct AddressBits(Vec<(Expr, Expr)>);

impl AddressBits {
    /// Finds the columns that are grouped by, or of which distinct values are counted.
    pub(super) fn new(sources: &mut [Source], groups: &[Bound], aggregates: &[Expr]) -> Self {
        let groups = groups.iter().map(|group| &group.expr);
        let counted = aggregates.iter().filter_map(|expr| distinct(expr));
        Self(
            groups
                .chain(counted)
                .filter_map(|expr| Some((expr.clone(), source::address_bits(sources, expr)?)))
                .collect(),
        )
    }

    fn get(&self, of: &Expr) -> Option<&Expr> {
        self.0.iter().find(|(column, _)| column == of).map(|(_, bits)| bits)
    }
}

/// Builds the aggregation; returns what expressions over it are replaced by.
pub(super) fn aggregate(
    plan: LogicalPlan,
    groups: &[Bound],
    sets: Option<&GroupingSets>,
    aggregates: Vec<Expr>,
    bits: &AddressBits,
) -> Result<(LogicalPlan, Vec<(Expr, Expr)>)> {
    let mut plan = plan;
    let mut replaced = Vec::new();
    let mut keys = Vec::with_capacity(groups.len());
    let mut made: Vec<Expr> = Vec::with_capacity(groups.len() + aggregates.len());
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
            made.push(key.clone());
            column(name)
        } else {
            let bits = bits.get(&group.expr);
            made.push(match bits {
                Some(_) => address::text(key.clone()).alias(format!("g{at}")),
                None => key.clone(),
            });
            bits.unwrap_or(&group.expr).clone()
        };
        keys.push(expr.alias(format!("g{at}")));
        replaced.push((group.expr.clone(), key));
    }
    let counted = only_distinct(&aggregates).filter(|_| sets.is_none()).cloned();
    if let Some(argument) = &counted {
        // Values are grouped first and counted then: groups are spread over all cores, sets of values are not.
        let argument = bits.get(argument).unwrap_or(argument).clone();
        let counted = keys.iter().cloned().chain([argument.alias(DISTINCT)]);
        plan = LogicalPlanBuilder::new(plan).aggregate(counted, Vec::<Expr>::new())?.build()?;
        keys = (0..keys.len()).map(|at| column(format!("g{at}"))).collect();
    }
    let mut computed = Vec::with_capacity(aggregates.len());
    if keys.is_empty() && aggregates.is_empty() {
        // HAVING without either makes one group of all rows; a plan that aggregates needs something to compute.
        computed.push(count_udaf().call(vec![lit(1i64)]).alias("a0"));
    }
    let mut projected = sets.is_some() || groups.iter().any(|group| bits.get(&group.expr).is_some());
    for (at, mut expr) in aggregates.into_iter().enumerate() {
        let name = format!("a{at}");
        replaced.push((expr.clone(), column(name.clone())));
        if let Some(args) = grouping_args(&expr) {
            made.push(grouping_value(args, groups, sets)?.alias(name));
            projected = true;
            continue;
        }
        made.push(column(name.clone()));
        let told_apart = distinct(&expr).and_then(|argument| bits.get(argument)).cloned();
        if let Expr::AggregateFunction(function) = &mut expr {
            if counted.is_some() {
                function.func = count_udaf();
                function.params.distinct = false;
                function.params.args = vec![column(DISTINCT.to_owned())];
            } else if let Some(bits) = told_apart {
                function.params.args = vec![bits];
            }
        }
        computed.push(expr.alias(name));
    }
    if let Some(sets) = sets {
        keys = vec![sets.expr(&keys)];
    }
    let mut builder = LogicalPlanBuilder::new(plan).aggregate(keys, computed)?;
    if projected {
        builder = builder.project(made)?;
    }
    Ok((builder.build()?, replaced))
}

/// Name of the values of which distinct ones are counted.
const DISTINCT: &str = "d0";

/// Returns the argument whose distinct values are counted.
fn distinct(aggregate: &Expr) -> Option<&Expr> {
    let Expr::AggregateFunction(AggregateFunction { func, params }) = aggregate else { return None };
    match params.args.as_slice() {
        [argument] if func.name() == "count" && params.distinct && params.filter.is_none() => Some(argument),
        _ => None,
    }
}

/// Returns the argument whose distinct values are counted, where all aggregates do that, of the same values.
fn only_distinct(aggregates: &[Expr]) -> Option<&Expr> {
    let mut arguments = aggregates.iter().map(distinct);
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
    let known = |column: &Column| {
        is_of_subquery(column)
            || replaced.iter().any(|(_, to)| matches!(to, Expr::Column(own) if own == column))
    };
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
