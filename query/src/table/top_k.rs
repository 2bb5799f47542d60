//! The rule that lets a scan keep the best rows only.
//!
//! `SortExec` with a fetch, by score or by address, directly over a scan needs no more of each
//! partition than the fetch: the scan then keeps a bounded heap and may end early.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::sorts::sort::SortExec;

use super::scan::{IndexScanExec, TopRows};
use super::{ROW, SCORE, SEGMENT};

/// The rule.
#[derive(Debug, Default)]
pub(crate) struct TopKIntoScan;

impl PhysicalOptimizerRule for TopKIntoScan {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let Some(sort) = node.downcast_ref::<SortExec>() else { return Ok(Transformed::no(node)) };
            let (Some(limit), Some(scan)) = (sort.fetch(), sort.input().downcast_ref::<IndexScanExec>())
            else {
                return Ok(Transformed::no(node));
            };
            let Some(by_score) = order(sort.expr()) else { return Ok(Transformed::no(node)) };
            if !scan.is_keyless() {
                return Ok(Transformed::no(node));
            }
            let scan = Arc::new(scan.with_top(TopRows { limit, by_score }));
            let sort = SortExec::new(sort.expr().clone(), scan)
                .with_preserve_partitioning(sort.preserve_partitioning())
                .with_fetch(Some(limit));
            Ok(Transformed::yes(Arc::new(sort) as Arc<dyn ExecutionPlan>))
        })
        .data()
    }

    fn name(&self) -> &str {
        "top_k_into_scan"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Whether an order is by score (`true`) or by address alone (`false`).
fn order(expressions: &LexOrdering) -> Option<bool> {
    let mut keys = expressions.iter().map(|key| {
        let column = key.expr.downcast_ref::<Column>().map(Column::name);
        (column, key.options.descending)
    });
    let (by_score, first) = match keys.next()? {
        (Some(SCORE), true) => (true, keys.next()?),
        other => (false, other),
    };
    let ascending =
        first == (Some(SEGMENT), false) && keys.next()? == (Some(ROW), false) && keys.next().is_none();
    ascending.then_some(by_score)
}
