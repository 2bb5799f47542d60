use datafusion::arrow::array::{ArrayRef, Int32Array, Int64Array, StringViewArray};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::MemTable;
use datafusion::execution::memory_pool::{GreedyMemoryPool, UnboundedMemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::functions_aggregate::expr_fn::{avg, count, sum};
use datafusion::logical_expr::{ColumnarValue, Expr, ExprFunctionExt, Volatility, col, create_udf, lit};
use datafusion::physical_plan::common::collect as collect_stream;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::{collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::scalar::ScalarValue;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::functions::distinct;

const ROWS: usize = 6_000;

fn context(bytes: usize) -> SessionContext {
    let pool: Arc<dyn MemoryPool> = match bytes {
        usize::MAX => Arc::new(UnboundedMemoryPool::default()),
        bytes => Arc::new(GreedyMemoryPool::new(bytes)),
    };
    let env = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc().unwrap();
    let config = SessionConfig::new()
        .with_target_partitions(2)
        .with_batch_size(512)
        .with_round_robin_repartition(false);
    SessionContext::new_with_config_rt(config, env)
}

/// Makes the batches of two inputs, with keys below `keys` and nulls among all columns but `n`.
fn inputs(keys: i64, rows: usize) -> Vec<Vec<RecordBatch>> {
    let mut random = StdRng::seed_from_u64(11);
    let mut batch = |rows: usize| {
        let some = |random: &mut StdRng| random.random_range(0..50) > 0;
        let keys: Vec<Option<i64>> =
            (0..rows).map(|_| Some(random.random_range(0..keys)).filter(|_| some(&mut random))).collect();
        let texts: Vec<Option<String>> = keys
            .iter()
            .map(|key| key.map(|key| format!("the text of the key {key}")).filter(|_| some(&mut random)))
            .collect();
        let numbers: Vec<i32> = (0..rows).map(|_| random.random_range(-9..9)).collect();
        let users: Vec<Option<i64>> =
            (0..rows).map(|_| Some(random.random_range(0..1 << 40)).filter(|_| some(&mut random))).collect();
        RecordBatch::try_from_iter_with_nullable([
            ("k", Arc::new(Int64Array::from(keys)) as ArrayRef, true),
            ("s", Arc::new(StringViewArray::from(texts)) as ArrayRef, true),
            ("n", Arc::new(Int32Array::from(numbers)) as ArrayRef, false),
            ("u", Arc::new(Int64Array::from(users)) as ArrayRef, true),
        ])
        .unwrap()
    };
    (0..2).map(|_| (0..rows.div_ceil(600)).map(|_| batch(300.min(rows))).collect()).collect()
}

/// Aggregates by keys; returns the lines of all groups, and whether the rows were partitioned.
async fn groups(
    context: &SessionContext,
    inputs: Vec<Vec<RecordBatch>>,
    keys: &[&str],
    aggregates: Vec<Expr>,
    bounds: Option<PartitionBounds>,
) -> (Vec<String>, bool) {
    let table = MemTable::try_new(inputs[0][0].schema(), inputs).unwrap();
    let keys = keys.iter().map(|key| col(*key)).collect();
    let rows = context.read_table(Arc::new(table)).unwrap().aggregate(keys, aggregates).unwrap();
    let mut plan = rows.create_physical_plan().await.unwrap();
    let mut node = None;
    if let Some(bounds) = bounds {
        plan = PartitionManyGroups { bounds }.optimize(plan, &ConfigOptions::default()).unwrap();
        plan.apply(|own| {
            node = node.take().or_else(|| own.is::<PartitionedGroupsExec>().then(|| Arc::clone(own)));
            Ok(TreeNodeRecursion::Continue)
        })
        .unwrap();
    }
    let batches = collect(plan, context.task_ctx()).await.unwrap();
    let mut lines: Vec<String> =
        pretty_format_batches(&batches).unwrap().to_string().lines().map(str::to_owned).collect();
    lines.sort_unstable();
    let node = node.as_ref().and_then(|node| node.downcast_ref::<PartitionedGroupsExec>());
    let is_partitioned =
        node.is_some_and(|node| matches!(node.read.get(), Some(Ok(ReadRows::Partitioned(_)))));
    (lines, is_partitioned)
}

fn aggregates() -> Vec<Expr> {
    vec![
        count(lit(1)).alias("c"),
        sum(col("n")).alias("s0"),
        avg(col("n")).alias("a"),
        count(col("u")).alias("d"),
    ]
}

fn distinct_users() -> Vec<Expr> {
    let users = distinct::count().call(vec![col("u")]).distinct().build().unwrap().alias("u0");
    vec![users, sum(col("n")).alias("s0")]
}

const BOUNDS: PartitionBounds = PartitionBounds { min_rows: 1, chunk_rows: 1_000, bytes: usize::MAX };

#[tokio::test]
async fn groups_are_those_of_the_planned_aggregation() {
    let all = context(usize::MAX);
    for (number, keys, most, aggregates, bytes, is_partitioned) in [
        (0, vec!["k"], i64::MAX, aggregates(), usize::MAX, true),
        (1, vec!["k", "s"], i64::MAX, aggregates(), usize::MAX, true),
        (2, vec!["k"], 500, distinct_users(), usize::MAX, true),
        // Few keys, and more bytes than may be held, as far as is known of the first rows or found out later.
        (3, vec!["k"], 500, aggregates(), usize::MAX, false),
        (4, vec!["k", "s"], i64::MAX, aggregates(), 10_000, false),
        (5, vec!["k"], i64::MAX, aggregates(), 100_000, false),
        // One key has all values.
        (6, vec!["k"], 1, distinct_users(), usize::MAX, false),
    ] {
        let rows = || inputs(most, ROWS);
        let expected = groups(&all, rows(), &keys, aggregates.clone(), None).await.0;
        let bounds = PartitionBounds { bytes, ..BOUNDS };
        let own = groups(&all, rows(), &keys, aggregates, Some(bounds)).await;
        assert_eq!(own.0.len(), expected.len(), "case {number}");
        assert!(own.0 == expected, "case {number}");
        assert_eq!(own.1, is_partitioned, "case {number}");
    }
}

#[tokio::test]
async fn nodes_may_stand_between_those_of_the_aggregation() {
    let all = context(usize::MAX);
    for (most, is_partitioned) in [(i64::MAX, true), (500, false)] {
        let rows = || inputs(most, ROWS);
        let expected = groups(&all, rows(), &["k"], aggregates(), None).await.0;
        let table = MemTable::try_new(rows()[0][0].schema(), rows()).unwrap();
        let groups =
            all.read_table(Arc::new(table)).unwrap().aggregate(vec![col("k")], aggregates()).unwrap();
        let plan = groups.create_physical_plan().await.unwrap();
        let plan = PartitionManyGroups { bounds: BOUNDS }.optimize(plan, &ConfigOptions::default()).unwrap();
        // As EXPLAIN ANALYZE measures each node.
        let measured =
            rewrite_up(plan, |node| Ok(Some(Arc::new(CooperativeExec::new(Arc::clone(node))) as Node)));
        let measured = measured.unwrap();
        let batches = collect(Arc::clone(&measured), all.task_ctx()).await.unwrap();
        let mut lines: Vec<String> =
            pretty_format_batches(&batches).unwrap().to_string().lines().map(str::to_owned).collect();
        lines.sort_unstable();
        assert!(lines == expected);
        let mut found = None;
        measured
            .apply(|node| {
                if let Some(node) = node.downcast_ref::<PartitionedGroupsExec>() {
                    found = Some(matches!(node.read.get(), Some(Ok(ReadRows::Partitioned(_)))));
                }
                Ok(TreeNodeRecursion::Continue)
            })
            .unwrap();
        assert_eq!(found, Some(is_partitioned));
    }
}

#[tokio::test]
async fn few_rows_are_aggregated_as_planned() {
    let all = context(usize::MAX);
    let rows = || inputs(i64::MAX, 300);
    let expected = groups(&all, rows(), &["k"], aggregates(), None).await.0;
    assert_eq!(groups(&all, rows(), &["k"], aggregates(), Some(BOUNDS)).await, (expected, false));
    let bounds = PartitionBounds { min_rows: 1_000_000, ..BOUNDS };
    assert!(!groups(&all, rows(), &["k"], aggregates(), Some(bounds)).await.1);
}

#[tokio::test]
async fn a_pool_that_ends_leaves_the_rows_to_the_planned_aggregation() {
    let rows = || inputs(i64::MAX, ROWS);
    let expected = groups(&context(usize::MAX), rows(), &["k"], aggregates(), None).await.0;
    // Room for some of the rows, and for groups that spill.
    let small = context(400_000);
    let own = groups(&small, rows(), &["k"], aggregates(), Some(BOUNDS)).await;
    assert!(own.0 == expected);
    assert_eq!(small.runtime_env().memory_pool.reserved(), 0);
    let large = context(4 << 20);
    let own = groups(&large, rows(), &["k"], aggregates(), Some(BOUNDS)).await;
    assert!(own.0 == expected && own.1);
    assert_eq!(large.runtime_env().memory_pool.reserved(), 0);
}

#[tokio::test]
async fn keys_that_differ_each_time_are_computed_once() {
    let context = context(usize::MAX);
    let next = std::sync::atomic::AtomicI64::new(0);
    let number = move |_: &[ColumnarValue]| {
        Ok(ColumnarValue::Scalar(ScalarValue::Int64(Some(next.fetch_add(1, Ordering::Relaxed)))))
    };
    let number =
        create_udf("number", vec![DataType::Int32], DataType::Int64, Volatility::Volatile, Arc::new(number));
    let table = MemTable::try_new(inputs(9, ROWS)[0][0].schema(), inputs(9, ROWS)).unwrap();
    let keys = vec![number.call(vec![col("n")]).alias("r")];
    let rows = context.read_table(Arc::new(table)).unwrap().aggregate(keys, aggregates()).unwrap();
    let plan = rows.create_physical_plan().await.unwrap();
    let plan = PartitionManyGroups { bounds: BOUNDS }.optimize(plan, &ConfigOptions::default()).unwrap();
    let shown = displayable(plan.as_ref()).indent(false).to_string();
    assert!(shown.contains("AggregateExec") && !shown.contains("PartitionedGroupsExec"), "{shown}");
}

#[tokio::test]
async fn an_input_of_one_row_keeps_the_others_partitioned() {
    let all = context(usize::MAX);
    let rows = || {
        let mut inputs = inputs(i64::MAX, ROWS);
        inputs[1] = vec![inputs[1][0].slice(0, 1)];
        inputs
    };
    let expected = groups(&all, rows(), &["k"], aggregates(), None).await.0;
    assert_eq!(groups(&all, rows(), &["k"], aggregates(), Some(BOUNDS)).await, (expected, true));
}

#[tokio::test]
async fn memory_of_others_counts() {
    let rows = || inputs(i64::MAX, ROWS);
    let context = context(4 << 20);
    let bounds = PartitionBounds { bytes: (5 << 19) + 50_000, ..BOUNDS };
    let free = groups(&context, rows(), &["k"], aggregates(), Some(bounds)).await;
    let other = MemoryConsumer::new("other").register(&context.runtime_env().memory_pool);
    other.try_grow(5 << 19).unwrap();
    let beside = groups(&context, rows(), &["k"], aggregates(), Some(bounds)).await;
    assert_eq!((free.1, beside.1), (true, false));
    assert!(free.0 == beside.0);
    drop(other);
    assert_eq!(context.runtime_env().memory_pool.reserved(), 0);
}

#[tokio::test]
async fn an_error_of_the_rows_is_told_to_each_output() {
    let context = context(usize::MAX);
    let table = MemTable::try_new(inputs(9, ROWS)[0][0].schema(), inputs(i64::MAX, ROWS)).unwrap();
    let calls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let fail = move |_: &[ColumnarValue]| {
        counted.fetch_add(1, Ordering::Relaxed);
        datafusion::common::exec_err!("a row that fails")
    };
    let fail =
        create_udf("fail", vec![DataType::Int64], DataType::Int64, Volatility::Immutable, Arc::new(fail));
    let rows = context.read_table(Arc::new(table)).unwrap();
    let rows = rows.select(vec![col("k"), fail.call(vec![col("u")]).alias("u")]).unwrap();
    let rows = rows.aggregate(vec![col("k")], vec![count(col("u"))]).unwrap();
    let plan = rows.create_physical_plan().await.unwrap();
    let plan = PartitionManyGroups { bounds: BOUNDS }.optimize(plan, &ConfigOptions::default()).unwrap();
    let shown = displayable(plan.as_ref()).indent(false).to_string();
    assert!(shown.contains("PartitionedGroupsExec"), "{shown}");
    let outputs = plan.output_partitioning().partition_count();
    assert_eq!(outputs, 2);
    for output in 0..outputs {
        let failed = collect_stream(plan.execute(output, context.task_ctx()).unwrap()).await;
        assert!(failed.unwrap_err().to_string().contains("a row that fails"));
    }
    // One of each input at most.
    assert!(calls.load(Ordering::Relaxed) <= 2);
}
