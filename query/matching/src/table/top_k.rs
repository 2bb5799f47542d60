//! The rule that lets a scan leave out rows that cannot be among the first.
//!
//! `SortExec` with a fetch, by score or by address, directly over a scan needs no more of each
//! partition than the fetch: the scan then keeps a bounded heap and may end early. By a number, the
//! scan compares what it knows of segments and pages with the rows it has met. The filter of a
//! continued search may lie between.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::sorts::sort::SortExec;

use super::scan::IndexScanExec;
use super::{ROW, SCORE, SEGMENT};

/// The rule.
#[derive(Debug, Default)]
pub struct TopKIntoScan;

impl PhysicalOptimizerRule for TopKIntoScan {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let Some(sort) = node.downcast_ref::<SortExec>() else { return Ok(Transformed::no(node)) };
            let Some(input) = sort.fetch().and_then(|limit| narrowed(sort, limit)) else {
                return Ok(Transformed::no(node));
            };
            let sort = SortExec::new(sort.expr().clone(), input?)
                .with_preserve_partitioning(sort.preserve_partitioning())
                .with_fetch(sort.fetch());
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

/// The input of a sort, with a scan that knows how much of it is wanted.
fn narrowed(sort: &SortExec, limit: usize) -> Option<Result<Arc<dyn ExecutionPlan>>> {
    if let Some(scan) = sort.input().downcast_ref::<IndexScanExec>() {
        let scan = match order(sort.expr()) {
            Some(by_score) => scan.with_best(limit, by_score),
            None => by_key(scan, sort.expr(), limit, false),
        };
        return Some(Ok(Arc::new(scan?)));
    }
    let filter = sort.input().downcast_ref::<FilterExec>()?;
    let scan = by_key(filter.input().downcast_ref()?, sort.expr(), limit, true)?;
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
    Some(Arc::clone(sort.input()).replace_children(vec![Arc::new(scan)], options))
}

fn by_key(
    scan: &IndexScanExec,
    expressions: &LexOrdering,
    limit: usize,
    continued: bool,
) -> Option<IndexScanExec> {
    let first = expressions.first();
    let mut rest = expressions.iter().skip(1).map(|key| {
        let column = key.expr.downcast_ref::<Column>().map(Column::name);
        (column, key.options.descending)
    });
    let by_address = rest.next() == Some((Some(SEGMENT), false))
        && rest.next() == Some((Some(ROW), false))
        && rest.next().is_none();
    let column = first.expr.downcast_ref::<Column>()?;
    scan.with_first(column.name(), first.options.descending, limit, by_address, continued)
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
