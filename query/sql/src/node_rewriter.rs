//! Rules of the physical planner that are functions of one node, for parts that the index answers better than the nodes of a plan
//! ([`index_groups`](super::index_groups), [`late_materialization`](super::late_materialization)), and for joins.

use std::sync::Arc;

use datafusion::common::Result as PlanResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};

type Node = Arc<dyn ExecutionPlan>;

/// Puts other nodes in the place of some of a plan, from above; the new nodes are not visited.
#[derive(Debug)]
pub(crate) struct NodeRewriter {
    pub(crate) name: &'static str,
    /// Makes what stands in the place of a node; `None` where the node stays.
    pub(crate) rewritten: fn(&Node) -> PlanResult<Option<Node>>,
}

impl PhysicalOptimizerRule for NodeRewriter {
    fn optimize(&self, plan: Node, _config: &ConfigOptions) -> PlanResult<Node> {
        plan.transform_down(|node| match (self.rewritten)(&node)? {
            Some(other) => Ok(Transformed::new(other, true, TreeNodeRecursion::Jump)),
            None => Ok(Transformed::no(node)),
        })
        .data()
    }

    fn name(&self) -> &str {
        self.name
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Puts other nodes in the place of hash joins of a plan, from below; a join stays where `rewritten` makes nothing of it.
///
/// # Errors
/// Those of `rewritten`.
pub(crate) fn rewrite_joins(
    plan: Node,
    rewritten: impl Fn(&HashJoinExec) -> PlanResult<Option<Node>>,
) -> PlanResult<Node> {
    rewrite_up(plan, |node| Ok(node.downcast_ref::<HashJoinExec>().map(&rewritten).transpose()?.flatten()))
}

/// Puts other nodes in the place of some of a plan, from below; a node stays where `rewritten` makes nothing of it.
///
/// # Errors
/// Those of `rewritten`.
pub(crate) fn rewrite_up(
    plan: Node,
    rewritten: impl Fn(&Node) -> PlanResult<Option<Node>>,
) -> PlanResult<Node> {
    plan.transform_up(|node| {
        let other = rewritten(&node)?;
        Ok(other.map_or_else(|| Transformed::no(node), Transformed::yes))
    })
    .data()
}

/// Puts a node above other inputs.
///
/// # Errors
/// The node does not take them.
pub(crate) fn with_inputs(node: &Node, inputs: Vec<Node>) -> PlanResult<Node> {
    Arc::clone(node).replace_children(inputs, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
}

/// Puts what a projection computes in the place of its columns.
///
/// # Errors
/// The expression does not take them.
pub(crate) fn inlined(
    expr: Arc<dyn PhysicalExpr>,
    projection: &ProjectionExec,
) -> PlanResult<Arc<dyn PhysicalExpr>> {
    let of_column = |part: Arc<dyn PhysicalExpr>| {
        let computed = part.downcast_ref::<Column>().and_then(|column| projection.expr().get(column.index()));
        Ok(match computed {
            Some(computed) => Transformed::new(Arc::clone(&computed.expr), true, TreeNodeRecursion::Jump),
            None => Transformed::no(part),
        })
    };
    expr.transform_down(of_column).data()
}
