//! Pushdown of conditions, but of none below an aggregation that makes a group of no rows, nor into a relation that others read.
//!
//! DataFusion's rule pushes a condition below an aggregation if all of its columns are keys of groups. That holds of a condition without
//! columns, too. An aggregation without keys, or with an empty grouping set, makes one group even of no rows. Below it, a false condition
//! would remove the rows but not the group. DataFusion also pushes such a condition into a shared relation.

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use super::shared::Shared;

/// Pushes conditions down as [`PushDownFilter`] does, and stops above aggregations that make a group of no rows and above shared
/// relations.
#[derive(Debug, Default)]
pub(crate) struct PushDownConditions {
    inner: PushDownFilter,
}

impl OptimizerRule for PushDownConditions {
    fn name(&self) -> &str {
        "push_down_conditions"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.inner.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match &plan {
            LogicalPlan::Filter(filter) if keeps_conditions(&filter.input) => Ok(Transformed::no(plan)),
            _ => self.inner.rewrite(plan, config),
        }
    }
}

/// Returns whether a plan, perhaps below conditions, takes none: it makes a group of no rows, or others read the same rows. No key of a
/// grouping set can be named by a condition above it, since sets change keys to null.
fn keeps_conditions(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Filter(filter) => keeps_conditions(&filter.input),
        LogicalPlan::Aggregate(aggregate) => {
            let is_set = |key: &Expr| matches!(key, Expr::GroupingSet(_));
            aggregate.group_expr.is_empty() || aggregate.group_expr.iter().any(is_set)
        }
        LogicalPlan::Extension(extension) => extension.node.as_any().is::<Shared>(),
        _ => false,
    }
}
