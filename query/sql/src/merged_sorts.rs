//! First rows of partitions that are merged: each partition orders them as the merge does.
//!
//! DataFusion leaves keys out of the sort of a partition that are constant there, such as a literal on a side of a union. The merge has them.
//! Sorts of the first rows tell each other which key is the last that counts, for all partitions: without a key that tells these apart, one
//! would lose rows that the others order behind its own. The rule here ([`SortAsMerged`]) gives the sorts all keys of the merge. A key that is
//! the same in all partitions stays left out.
//!
//! A sort with `LIMIT 0` becomes an empty relation ([`sort_of_no_rows`]).

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::physical_expr::{AcrossPartitions, LexOrdering, PhysicalSortExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::ExecutionPlanProperties;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;

use super::node_rewriter::{inlined, rewrite_up, with_inputs};

/// Gives the sorts below merges the keys of these.
#[derive(Debug)]
pub(crate) struct SortAsMerged;

impl PhysicalOptimizerRule for SortAsMerged {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        rewrite_up(plan, rewritten)
    }

    fn name(&self) -> &str {
        "sort_as_merged"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Rewrites a sort whose first rows are none, as `ORDER BY … LIMIT 0` of a subquery asks: the heap of first rows has room for one at least.
pub(crate) fn sort_of_no_rows(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(sort) = node.downcast_ref::<SortExec>().filter(|sort| sort.fetch() == Some(0)) else {
        return Ok(None);
    };
    let partitions = node.output_partitioning().partition_count();
    Ok(Some(Arc::new(EmptyExec::new(sort.schema()).with_partitions(partitions))))
}

/// Rewrites a merge of the first rows of partitions that are sorted by other keys.
fn rewritten(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(merge) = node.downcast_ref::<SortPreservingMergeExec>() else { return Ok(None) };
    let projection = merge.input().downcast_ref::<ProjectionExec>();
    let below = projection.map_or(merge.input(), ProjectionExec::input);
    let Some(sort) = below.downcast_ref::<SortExec>().filter(|sort| sort.fetch().is_some()) else {
        return Ok(None);
    };
    let keys = match projection {
        None => Some(merge.expr().clone()),
        Some(projection) => {
            let key = |key: &PhysicalSortExpr| {
                let expr = inlined(Arc::clone(&key.expr), projection)?;
                Ok(PhysicalSortExpr::new(expr, key.options))
            };
            LexOrdering::new(merge.expr().iter().map(key).collect::<Result<Vec<_>>>()?)
        }
    };
    let properties = sort.input().equivalence_properties();
    let differs = |key: &PhysicalSortExpr| {
        let constant = properties.is_expr_constant(&key.expr);
        constant == Some(AcrossPartitions::Heterogeneous) && !sort.expr().contains(key)
    };
    let Some(keys) = keys.filter(|keys| keys.iter().any(differs)) else { return Ok(None) };
    let mut sorted: Arc<dyn ExecutionPlan> = Arc::new(
        SortExec::new(keys, Arc::clone(sort.input()))
            .with_preserve_partitioning(sort.preserve_partitioning())
            .with_fetch(sort.fetch()),
    );
    if projection.is_some() {
        sorted = with_inputs(merge.input(), vec![sorted])?;
    }
    with_inputs(node, vec![sorted]).map(Some)
}
