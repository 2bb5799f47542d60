//! Joins whose smaller side may be larger than the memory of queries.
//!
//! A hash join holds one of its sides and does not leave memory for the disk. Where the estimate of that side is over the pool the
//! join merges sorted sides instead: sorts spill.

use std::sync::Arc;

use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{HashJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

use super::node_rewriter::rewrite_joins;

/// Bytes that a value of no fixed width is taken for.
const STRING_BYTES: usize = 32;
/// Bytes that a row takes in a hash table.
const HASH_BYTES: usize = 16;

/// Merges the sorted sides of joins that no hash table of the pool holds.
#[derive(Debug)]
pub(crate) struct LargeJoins {
    limit: usize,
}

impl LargeJoins {
    /// Makes the rule for a pool of memory.
    pub(crate) fn new(pool: &dyn MemoryPool) -> Self {
        let limit = match pool.memory_limit() {
            MemoryLimit::Finite(bytes) => bytes,
            MemoryLimit::Infinite | MemoryLimit::Unknown => usize::MAX,
        };
        Self { limit }
    }

    fn merged(&self, join: &HashJoinExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let known = StatisticsContext::new().compute(join.left().as_ref(), &StatisticsArgs::new())?;
        let Some(rows) = known.num_rows.get_value() else { return Ok(None) };
        let bytes = rows.saturating_mul(HASH_BYTES + row_bytes(&join.left().schema()));
        if bytes <= self.limit || join.null_aware || join.projection.is_some() {
            return Ok(None);
        }
        let merge = SortMergeJoinExec::try_new(
            Arc::clone(join.left()),
            Arc::clone(join.right()),
            join.on().to_vec(),
            join.filter().cloned(),
            *join.join_type(),
            vec![SortOptions::default(); join.on().len()],
            join.null_equality(),
        )?;
        Ok(Some(Arc::new(merge)))
    }
}

fn row_bytes(schema: &SchemaRef) -> usize {
    let bytes = |ty: &DataType| ty.primitive_width().unwrap_or(STRING_BYTES);
    schema.fields().iter().map(|field| bytes(field.data_type())).sum()
}

impl PhysicalOptimizerRule for LargeJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        rewrite_joins(plan, |join| self.merged(join))
    }

    fn name(&self) -> &str {
        "large_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use datafusion::common::JoinType;
    use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
    use datafusion::physical_plan::{collect, displayable};
    use datafusion::prelude::{SessionConfig, SessionContext};

    use super::*;

    #[tokio::test]
    async fn what_no_hash_table_holds_is_merged() {
        let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(2));
        let side = |name: &str, numbers: std::ops::Range<i64>| {
            let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
            context.read_batch(RecordBatch::try_from_iter([(name, numbers)]).unwrap()).unwrap()
        };
        for (kind, rows) in [(JoinType::Inner, 50), (JoinType::Full, 150), (JoinType::LeftAnti, 50)] {
            let joined = side("a", 0..100).join(side("b", 50..150), kind, &["a"], &["b"], None).unwrap();
            let plan = joined.create_physical_plan().await.unwrap();
            for (limit, node) in [(1, "SortMergeJoinExec"), (1 << 20, "HashJoinExec")] {
                let plan =
                    LargeJoins { limit }.optimize(Arc::clone(&plan), &ConfigOptions::default()).unwrap();
                let plan = EnsureRequirements::new().optimize(plan, &ConfigOptions::default()).unwrap();
                let shown = displayable(plan.as_ref()).indent(false).to_string();
                assert!(shown.contains(node), "{shown}");
                let batches = collect(plan, context.task_ctx()).await.unwrap();
                assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), rows, "{kind}");
            }
        }
    }
}
