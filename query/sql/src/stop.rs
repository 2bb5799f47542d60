//! Joins end when their statement does.
//!
//! Scans look at the stop of their statement by themselves, and with them ends what reads them. A join makes many rows of
//! few, or none of a great many pairs: it is given a look at the stop with each batch of rows that it makes
//! ([`StoppableExec`]) and of pairs that it tests ([`StoppableExpr`]).

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_plan::coop::make_cooperative;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder, SortMergeJoinExec,
};
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr};
use futures::StreamExt;
use millrace_work::compute::Stop;
use millrace_work::error::Error;

/// Batches of pairs after which other statements get a turn, some milliseconds of work.
const PAIRS_A_TURN: u32 = 32;

/// Makes the joins of a plan end with a stop.
pub(super) fn stoppable(plan: Arc<dyn ExecutionPlan>, stop: &Arc<Stop>) -> Result<Arc<dyn ExecutionPlan>> {
    let rewrite = |node: Arc<dyn ExecutionPlan>| {
        let join: Arc<dyn ExecutionPlan> = if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
            let filter = join.filter().map(|filter| watched(filter, stop));
            Arc::new(NestedLoopJoinExecBuilder::from(join).with_filter(filter).build()?)
        } else if let Some(join) = node.downcast_ref::<HashJoinExec>() {
            let filter = join.filter().map(|filter| watched(filter, stop));
            Arc::new(join.builder().with_filter(filter).build()?)
        } else if let Some(join) = node.downcast_ref::<SortMergeJoinExec>() {
            let filter = join.filter().as_ref().map(|filter| watched(filter, stop));
            Arc::new(SortMergeJoinExec::try_new(
                Arc::clone(join.left()),
                Arc::clone(join.right()),
                join.on().to_vec(),
                filter,
                join.join_type(),
                join.sort_options().to_vec(),
                join.null_equality(),
            )?)
        } else if node.is::<CrossJoinExec>() || node.is::<RecursiveQueryExec>() {
            node
        } else {
            return Ok(Transformed::no(node));
        };
        let node: Arc<dyn ExecutionPlan> = Arc::new(StoppableExec { input: join, stop: Arc::clone(stop) });
        Ok(Transformed::yes(node))
    };
    plan.transform_up(rewrite).data()
}

fn watched(filter: &JoinFilter, stop: &Arc<Stop>) -> JoinFilter {
    let watched = StoppableExpr {
        inner: Arc::clone(filter.expression()),
        stop: Arc::clone(stop),
        batches: Arc::default(),
    };
    JoinFilter::new(Arc::new(watched), filter.column_indices().to_vec(), Arc::clone(filter.schema()))
}

fn check(stop: &Stop) -> Result<()> {
    if stop.requested() { Err(Error::TimedOut.into()) } else { Ok(()) }
}

/// Passes the rows of its input on until its statement ends.
#[derive(Clone, Debug)]
struct StoppableExec {
    input: Arc<dyn ExecutionPlan>,
    stop: Arc<Stop>,
}

impl DisplayAs for StoppableExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoppableExec")
    }
}

impl ExecutionPlan for StoppableExec {
    fn name(&self) -> &str {
        "StoppableExec"
    }

    millrace_matching::passes_rows_on!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let stop = Arc::clone(&self.stop);
        let rows = make_cooperative(self.input.execute(partition, context)?);
        let rows = rows.map(move |batch| check(&stop).and(batch));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.input.schema(), rows)))
    }
}

/// Evaluates an expression until its statement ends.
#[derive(Clone, Debug)]
struct StoppableExpr {
    inner: Arc<dyn PhysicalExpr>,
    stop: Arc<Stop>,
    /// Batches that were evaluated.
    batches: Arc<AtomicU32>,
}

impl PartialEq for StoppableExpr {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.stop, &other.stop) && self.inner.eq(&other.inner)
    }
}

impl Eq for StoppableExpr {}

impl Hash for StoppableExpr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl fmt::Display for StoppableExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl PhysicalExpr for StoppableExpr {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.inner.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.inner.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        check(&self.stop)?;
        let count = self.batches.fetch_add(1, Ordering::Relaxed);
        if count % PAIRS_A_TURN != PAIRS_A_TURN - 1 {
            return self.inner.evaluate(batch);
        }
        // A nested loop that finds nothing stays in one poll to its end. Another thread serves what waits behind it.
        tokio::task::block_in_place(|| self.inner.evaluate(batch))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.inner]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        match children.pop() {
            Some(inner) => Ok(Arc::new(Self { inner, ..Self::clone(&self) })),
            None => Ok(self),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_sql(f)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::compute::SortOptions;
    use datafusion::arrow::datatypes::Field;
    use datafusion::common::{JoinType, NullEquality};
    use datafusion::physical_expr::expressions::{col, lit};
    use datafusion::physical_plan::empty::EmptyExec;

    use super::*;

    #[test]
    fn filters_of_merge_joins_end_with_the_stop() {
        let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true)]));
        let side = || Arc::new(EmptyExec::new(Arc::clone(&schema))) as Arc<dyn ExecutionPlan>;
        let key = col("k", &schema).unwrap();
        let filter = JoinFilter::new(lit(true), Vec::new(), Arc::new(Schema::empty()));
        let join = SortMergeJoinExec::try_new(
            side(),
            side(),
            vec![(Arc::clone(&key), key)],
            Some(filter),
            JoinType::Inner,
            vec![SortOptions::default()],
            NullEquality::NullEqualsNothing,
        );
        let stop = Arc::new(Stop::default());
        let plan = stoppable(Arc::new(join.unwrap()), &stop).unwrap();
        let join = plan.children().into_iter().next().unwrap().downcast_ref::<SortMergeJoinExec>().unwrap();
        let filter = join.filter().as_ref().unwrap().expression();
        let pairs = RecordBatch::new_empty(Arc::clone(&schema));
        assert!(filter.evaluate(&pairs).is_ok());
        stop.time_out();
        assert!(filter.evaluate(&pairs).is_err());
    }
}
