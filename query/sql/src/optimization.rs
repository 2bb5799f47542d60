//! Optimization of statements.
//!
//! Most statements read rows of one scan, in an order and cut: two rules settle such a plan. All others go through every
//! rule until none of them changes the plan.

use datafusion::common::Result;
use datafusion::common::tree_node::{TransformedResult, TreeNode};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::OptimizerRule;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::push_down_limit::PushDownLimit;

use super::count::RowCount;
use super::output_columns::OutputColumns;

/// Optimizes the plan of a statement.
///
/// # Errors
/// Those of the rules.
pub(super) fn optimized(plan: &LogicalPlan, state: &SessionState) -> Result<LogicalPlan> {
    match plan {
        // It finds and reads all that it is to.
        LogicalPlan::TableScan(_) => Ok(plan.clone()),
        plan if is_of_rows(plan) => {
            let (limits, mut plan) = (PushDownLimit::new(), plan.clone());
            // A limit that a sort has taken over goes the second time.
            for _ in 0..2 {
                plan = plan.transform_down(|node| limits.rewrite(node, state)).data()?;
            }
            OptimizeProjections::new().rewrite(plan, state).data()
        }
        plan => state.optimize(plan),
    }
}

/// Returns whether a plan answers rows of one scan: their columns, in an order, cut.
fn is_of_rows(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::TableScan(_) => true,
        LogicalPlan::Projection(projection) => {
            projection.expr.iter().all(is_column) && is_of_rows(&projection.input)
        }
        LogicalPlan::Sort(sort) => {
            sort.expr.iter().all(|key| is_column(&key.expr)) && is_of_rows(&sort.input)
        }
        LogicalPlan::Limit(limit) => is_of_rows(&limit.input),
        LogicalPlan::Extension(extension) => {
            let node = extension.node.as_any();
            (node.is::<OutputColumns>() || node.is::<RowCount>())
                && extension.node.inputs().into_iter().all(is_of_rows)
        }
        _ => false,
    }
}

fn is_column(expr: &Expr) -> bool {
    match expr {
        Expr::Column(_) => true,
        Expr::Alias(alias) => is_column(&alias.expr),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::execution::session_state::SessionStateBuilder;
    use datafusion::logical_expr::logical_plan::table_scan;
    use datafusion::logical_expr::{col, lit};

    use super::*;

    #[test]
    fn plans_of_rows_are_those_that_all_passes_make() {
        let fields = ["a", "b", "c"].map(|name| Field::new(name, DataType::Int64, true));
        let scan = || table_scan(Some("t"), &Schema::new(fields.to_vec()), None).unwrap();
        let columns = || [col("t.b").alias("c0"), col("t.a").alias("c1")];
        let rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> =
            vec![Arc::new(PushDownLimit::new()), Arc::new(OptimizeProjections::new())];
        let state =
            SessionStateBuilder::new().with_analyzer_rules(Vec::new()).with_optimizer_rules(rules).build();
        for builder in [
            scan().project(columns()),
            scan().limit(2, Some(3)).and_then(|plan| plan.project(columns())),
            scan()
                .sort([col("t.c").sort(true, false)])
                .and_then(|plan| plan.limit(0, Some(3)))
                .and_then(|plan| plan.project(columns())),
            scan().limit(0, Some(0)).and_then(|plan| plan.project(columns())),
        ] {
            let plan = builder.and_then(|builder| builder.build()).unwrap();
            assert!(is_of_rows(&plan), "{plan}");
            let expected = state.optimize(&plan).unwrap();
            assert_eq!(optimized(&plan, &state).unwrap().to_string(), expected.to_string());
        }
        let filtered = scan().filter(col("t.a").gt(lit(1))).and_then(|plan| plan.build()).unwrap();
        assert!(!is_of_rows(&filtered));
    }
}
