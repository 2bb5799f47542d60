//! The rule that lets a scan leave out rows that cannot be among the first.
//!
//! Above a scan, `SortExec` with a fetch needs no row that comes behind as many as it fetches: what it sorts by first tells
//! the scan which rows compete. The filter of a continued search may lie between. Where only the best row of each group
//! counts, no sort says so, and [`first_of_groups`] is told.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::logical_expr::SortExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::sorts::sort::SortExec;

use super::scan::{IndexScanExec, Leading};
use crate::table::state::{ROW, SEGMENT};

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
    let columns = sort.expr().iter().map(|key| {
        let column = key.expr.downcast_ref::<Column>().map(Column::name);
        (column, key.options.descending)
    });
    let order = leading(columns)?;
    if let Some(scan) = sort.input().downcast_ref::<IndexScanExec>() {
        return Some(Ok(Arc::new(scan.with_first(order, limit, None, false)?)));
    }
    let filter = sort.input().downcast_ref::<FilterExec>()?;
    let scan = filter.input().downcast_ref::<IndexScanExec>()?.with_first(order, limit, None, true)?;
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
    Some(Arc::clone(sort.input()).replace_children(vec![Arc::new(scan)], options))
}

/// Lets the scans of a plan leave out rows that cannot be the best under an order of the first `limit` groups, which the
/// key `group` tells.
pub fn first_of_groups(
    plan: Arc<dyn ExecutionPlan>,
    order: &[SortExpr],
    limit: usize,
    group: &str,
) -> Result<Arc<dyn ExecutionPlan>> {
    let columns = order.iter().map(|key| {
        let column = key.expr.try_as_col().map(|column| column.name.as_str());
        (column, !key.asc)
    });
    let Some(order) = leading(columns) else { return Ok(plan) };
    plan.transform_up(|node| {
        let scan = node.downcast_ref::<IndexScanExec>();
        Ok(match scan.and_then(|scan| scan.with_first(order, limit, Some(group), false)) {
            None => Transformed::no(node),
            Some(scan) => Transformed::yes(Arc::new(scan) as Arc<dyn ExecutionPlan>),
        })
    })
    .data()
}

/// Returns the first key of an order, of which the columns are given with a flag for descending ones.
fn leading<'a>(mut columns: impl Iterator<Item = (Option<&'a str>, bool)>) -> Option<Leading<'a>> {
    let (Some(column), descending) = columns.next()? else { return None };
    let mut by_address = column == SEGMENT || columns.next() == Some((Some(SEGMENT), false));
    by_address = by_address && columns.next() == Some((Some(ROW), false)) && columns.next().is_none();
    Some(Leading { column, descending, by_address })
}
