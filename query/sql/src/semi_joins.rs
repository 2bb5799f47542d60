//! Semi-joins below joins.
//!
//! `a.x IN (SELECT …)` beside joins is a semi-join by keys of `a`. It filters `a` before the other joins, which then have fewer rows, and
//! reaches the scan.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::{Expr, Filter, Join, JoinType, LogicalPlan, Projection};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// Puts semi-joins by keys alone on the side of an inner join that has the keys.
#[derive(Debug)]
pub(crate) struct PushDownSemiJoin;

impl OptimizerRule for PushDownSemiJoin {
    fn name(&self) -> &str {
        "push_down_semi_join"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(join) = &plan else { return Ok(Transformed::no(plan)) };
        let by_keys = join.join_type == JoinType::LeftSemi && join.filter.is_none() && !join.null_aware;
        if !by_keys || join.on.is_empty() {
            return Ok(Transformed::no(plan));
        }
        let keys = join.on.iter().map(|(key, _)| key.clone()).collect();
        Ok(match push_below(join, &join.left, keys, false)? {
            Some(pushed) => Transformed::yes(pushed),
            None => Transformed::no(plan),
        })
    }
}

/// Pushes a semi-join below the inner joins of a plan whose rows have these keys; `None` where it would pass none.
fn push_below(
    join: &Join,
    plan: &Arc<LogicalPlan>,
    keys: Vec<Expr>,
    passed: bool,
) -> Result<Option<LogicalPlan>> {
    let below = match plan.as_ref() {
        LogicalPlan::Join(inner) if inner.join_type == JoinType::Inner => {
            let mut inner = inner.clone();
            let columns: HashSet<&Column> = keys.iter().flat_map(Expr::column_refs).collect();
            let side =
                [&mut inner.left, &mut inner.right].into_iter().find(|side| has_all(side.schema(), &columns));
            let Some(side) = side else { return join_here(join, plan, keys, passed) };
            match push_below(join, side, keys.clone(), true)? {
                Some(pushed) => *side = Arc::new(pushed),
                None => return Ok(None),
            }
            Some(LogicalPlan::Join(inner))
        }
        LogicalPlan::Filter(filter) => push_below(join, &filter.input, keys.clone(), passed)?
            .map(|input| Filter::try_new(filter.predicate.clone(), Arc::new(input)))
            .transpose()?
            .map(LogicalPlan::Filter),
        LogicalPlan::Projection(projection) => {
            let Some(inner) =
                keys.iter().map(|key| column_below(projection, key)).collect::<Option<Vec<_>>>()
            else {
                return join_here(join, plan, keys, passed);
            };
            push_below(join, &projection.input, inner, passed)?
                .map(|input| Projection::try_new(projection.expr.clone(), Arc::new(input)))
                .transpose()?
                .map(LogicalPlan::Projection)
        }
        _ => None,
    };
    match below {
        Some(below) => Ok(Some(below)),
        None => join_here(join, plan, keys, passed),
    }
}

/// Makes the semi-join of a plan itself, where it has passed an inner join.
fn join_here(
    join: &Join,
    plan: &Arc<LogicalPlan>,
    keys: Vec<Expr>,
    passed: bool,
) -> Result<Option<LogicalPlan>> {
    if !passed {
        return Ok(None);
    }
    let on = keys.into_iter().zip(&join.on).map(|(key, (_, other))| (key, other.clone())).collect();
    let joined = Join::try_new(
        Arc::clone(plan),
        Arc::clone(&join.right),
        on,
        None,
        join.join_type,
        join.join_constraint,
        join.null_equality,
        false,
    )?;
    Ok(Some(LogicalPlan::Join(joined)))
}

fn has_all(schema: &DFSchema, columns: &HashSet<&Column>) -> bool {
    columns.iter().all(|column| schema.has_column(column))
}

/// Returns what a key of a projection is below it, where both are columns.
fn column_below(projection: &Projection, key: &Expr) -> Option<Expr> {
    let Expr::Column(column) = key else { return None };
    let at = projection.schema.index_of_column(column).ok()?;
    let mut expr = projection.expr.get(at)?;
    while let Expr::Alias(alias) = expr {
        expr = &alias.expr;
    }
    matches!(expr, Expr::Column(_)).then(|| expr.clone())
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::common::NullEquality;
    use datafusion::logical_expr::{LogicalPlanBuilder, col, lit, table_scan};
    use datafusion::optimizer::OptimizerContext;

    use super::*;

    fn table(name: &str) -> LogicalPlanBuilder {
        let schema =
            Schema::new(vec![Field::new("k", DataType::Int64, true), Field::new("x", DataType::Int64, true)]);
        table_scan(Some(name), &schema, None).unwrap()
    }

    fn optimized(left: LogicalPlanBuilder, kind: JoinType, key: &str) -> String {
        let right = table("q").build().unwrap();
        let keys = (vec![Column::from(key)], vec![Column::from("q.k")]);
        let plan = left
            .join_detailed(right, kind, keys, None, NullEquality::NullEqualsNothing)
            .unwrap()
            .build()
            .unwrap();
        PushDownSemiJoin.rewrite(plan, &OptimizerContext::new()).unwrap().data.to_string()
    }

    fn joined() -> LogicalPlanBuilder {
        let other = table("b").build().unwrap();
        table("a").join(other, JoinType::Inner, (vec!["a.k"], vec!["b.k"]), None).unwrap()
    }

    #[test]
    fn semi_joins_go_to_the_side_with_their_keys() {
        let filtered = joined()
            .filter(col("a.x").gt(lit(1_i64)))
            .unwrap()
            .project(vec![col("a.x"), col("b.x")])
            .unwrap();
        assert_eq!(
            optimized(filtered, JoinType::LeftSemi, "b.x"),
            "Projection: a.x, b.x\n  Filter: a.x > Int64(1)\n    Inner Join: a.k = b.k\n      TableScan: a\n      LeftSemi Join: b.x = q.k\n        TableScan: b\n        TableScan: q"
        );
    }

    #[test]
    fn other_joins_stay() {
        assert!(optimized(joined(), JoinType::LeftAnti, "b.x").starts_with("LeftAnti"));
        assert!(optimized(table("a"), JoinType::LeftSemi, "a.x").starts_with("LeftSemi"));
        let computed = joined().project(vec![(col("a.x") + col("b.x")).alias("s")]).unwrap();
        assert!(optimized(computed, JoinType::LeftSemi, "s").starts_with("LeftSemi"));
    }
}
