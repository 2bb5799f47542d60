//! The first rows of each group: leaves rows out before a window numbers them.
//!
//! `SELECT … FROM (SELECT …, row_number() OVER (PARTITION BY g ORDER BY x DESC) AS r …) t WHERE r <= 3` sorts all rows by group and order.
//! The rule here ([`rewritten`]) puts a node below the sort that remembers the first keys of each group so far ([`GroupKeys`]). A row
//! that comes behind these has a greater number than is asked for, so it goes no further. The sort and the window do the same work over
//! the rows that are left, and the condition stays.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::compute::{SortOptions, filter_record_batch};
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Field, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    Schema, TimeUnit, TimestampMillisecondType, TimestampNanosecondType, UInt64Type,
};
use datafusion::common::Result as PlanResult;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Column, Literal};
use datafusion::physical_expr::window::{StandardWindowExpr, WindowExpr};
use datafusion::physical_expr::{PhysicalSortExpr, split_conjunction};
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec, WindowUDFExpr};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr};
use futures::StreamExt;

use super::node_rewriter::with_inputs;

/// Most rows of a group that are asked for: of more, the sort is no slower.
const MAX_ROWS: usize = 100;
/// Most bytes of the keys that a partition remembers. Beyond, it passes all rows on.
const MAX_BYTES: usize = 64 << 20;
/// Rows of a partition after which it passes all rows on, if more than half of them passed: most groups are small.
const TRIAL_ROWS: usize = 100_000;
/// Rank of values among the keys; nulls come before or behind.
const VALUES: u128 = 1 << 64;
/// Key behind all others.
const BEHIND: u128 = u128::MAX;

type Node = Arc<dyn ExecutionPlan>;

/// Rewrites a condition on the numbers of rows of groups; `None` of everything else.
pub(super) fn rewritten(node: &Node) -> PlanResult<Option<Node>> {
    let Some(filter) = node.downcast_ref::<FilterExec>() else { return Ok(None) };
    for part in split_conjunction(filter.predicate()) {
        if let Some((column, rows)) = most_of(part).filter(|(_, rows)| (1..=MAX_ROWS).contains(rows))
            && let Some(input) = numbered(filter.input(), column, rows)?
        {
            return with_inputs(node, vec![input]).map(Some);
        }
    }
    Ok(None)
}

/// Reads the greatest number that a condition lets a column have.
fn most_of(condition: &Arc<dyn PhysicalExpr>) -> Option<(usize, usize)> {
    let both = condition.downcast_ref::<BinaryExpr>()?;
    let (column, operator, literal) = match both.right().downcast_ref::<Literal>() {
        Some(literal) => (both.left(), *both.op(), literal),
        None => (both.right(), both.op().swap()?, both.left().downcast_ref::<Literal>()?),
    };
    let number = Some(literal.value()).filter(|value| value.data_type().is_integer())?;
    let number = number.cast_to(&DataType::Int64).ok()?;
    let number = usize::try_from(i64::try_from(number).ok()?).ok()?;
    let most = match operator {
        Operator::LtEq | Operator::Eq => number,
        Operator::Lt => number.checked_sub(1)?,
        _ => return None,
    };
    Some((column_of(column)?, most))
}

/// Returns the column that an expression is, but for its type.
fn column_of(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    match expr.downcast_ref::<CastExpr>() {
        Some(cast) => column_of(cast.expr()),
        None => expr.downcast_ref::<Column>().map(Column::index),
    }
}

/// Leaves rows out below the window that numbers them in a column; `None` where there is none.
fn numbered(node: &Node, column: usize, rows: usize) -> PlanResult<Option<Node>> {
    let (below, column) = if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        let output = projection.expr().get(column).and_then(|output| column_of(&output.expr));
        match output {
            Some(column) => (projection.input(), column),
            None => return Ok(None),
        }
    } else if let Some(spread) = node.downcast_ref::<RepartitionExec>() {
        (spread.input(), column)
    } else {
        let window = match (node.downcast_ref::<BoundedWindowAggExec>(), node.downcast_ref::<WindowAggExec>())
        {
            (Some(window), _) => Some((window.input(), window.window_expr())),
            (None, Some(window)) => Some((window.input(), window.window_expr())),
            (None, None) => None,
        };
        // Another function may see the rows behind.
        let Some((input, [window])) = window else { return Ok(None) };
        if column != input.schema().fields().len() {
            return Ok(None);
        }
        let Some(top) = GroupTopRows::new(window, rows, input.schema().as_ref())? else { return Ok(None) };
        return match below_sort(input, &top, false)? {
            Some(input) => with_inputs(node, vec![input]).map(Some),
            None => Ok(None),
        };
    };
    match numbered(below, column, rows)? {
        Some(input) => with_inputs(node, vec![input]).map(Some),
        None => Ok(None),
    }
}

/// Puts a node below the sort of a window; `None` where nothing is sorted.
fn below_sort(node: &Node, top: &GroupTopRows, is_sorted: bool) -> PlanResult<Option<Node>> {
    let sort = node.downcast_ref::<SortExec>();
    let passes = sort.is_some_and(|sort| sort.fetch().is_none())
        || node.is::<RepartitionExec>()
        || node.is::<CoalescePartitionsExec>()
        || node.is::<SortPreservingMergeExec>();
    if !passes || node.fetch().is_some() {
        let node = Arc::new(GroupTopRowsExec { input: Arc::clone(node), top: top.clone() });
        return Ok(is_sorted.then_some(node as Node));
    }
    let Some(input) = node.children().into_iter().next() else { return Ok(None) };
    match below_sort(input, top, is_sorted || sort.is_some())? {
        Some(input) => with_inputs(node, vec![input]).map(Some),
        None => Ok(None),
    }
}

/// The first rows of groups, as a window orders them.
#[derive(Clone, Debug)]
struct GroupTopRows {
    groups: Vec<Arc<dyn PhysicalExpr>>,
    order: PhysicalSortExpr,
    rows: usize,
    /// `true` if rows with the last of the first keys are among the first, too.
    with_ties: bool,
}

impl GroupTopRows {
    /// Reads what a window numbers; `None` where it does something else, or by keys that are not compared here.
    fn new(window: &Arc<dyn WindowExpr>, rows: usize, schema: &Schema) -> PlanResult<Option<Self>> {
        let standard = window.as_any().downcast_ref::<StandardWindowExpr>();
        let function = standard
            .and_then(|window| window.get_standard_func_expr().as_any().downcast_ref::<WindowUDFExpr>());
        let numbers_each = match function.map(|function| function.fun().name()) {
            Some("row_number") => true,
            Some("rank") => false,
            _ => return Ok(None),
        };
        let (groups, order) = (window.partition_by(), window.order_by());
        let Some(first) = order.first().filter(|_| !groups.is_empty()) else { return Ok(None) };
        if !is_compared(&first.expr.data_type(schema)?) {
            return Ok(None);
        }
        // A window takes both zeros apart, which are one group here.
        for group in groups {
            if group.data_type(schema)?.is_floating() {
                return Ok(None);
            }
        }
        // Later keys decide among rows with the same first one.
        let with_ties = !numbers_each || order.len() > 1;
        Ok(Some(Self { groups: groups.to_vec(), order: first.clone(), rows, with_ties }))
    }

    /// Makes the keys of a partition that begins.
    fn keys(&self, schema: &Schema, memory: MemoryReservation) -> PlanResult<GroupKeys> {
        let field = |(at, group): (usize, &Arc<dyn PhysicalExpr>)| {
            Ok(Field::new(format!("g{at}"), group.data_type(schema)?, true))
        };
        let fields = self.groups.iter().enumerate().map(field).collect::<PlanResult<Vec<_>>>()?;
        let groups = new_group_values(Arc::new(Schema::new(fields)), &GroupOrdering::None)?;
        Ok(GroupKeys { groups, numbers: Vec::new(), first: Vec::new(), rows: (0, 0), memory })
    }
}

/// The first keys of each group so far.
struct GroupKeys {
    groups: Box<dyn GroupValues>,
    /// Group of each row of a batch.
    numbers: Vec<usize>,
    /// Keys by group, ascending in each; [`BEHIND`] for those that did not come yet.
    first: Vec<u128>,
    /// Rows so far, and those that passed.
    rows: (usize, usize),
    memory: MemoryReservation,
}

impl GroupKeys {
    /// Tells which rows of a batch may be among the first of their groups; `None` where the keys would take too much memory, or
    /// leave too few rows out.
    fn admit(&mut self, batch: &RecordBatch, top: &GroupTopRows) -> PlanResult<Option<BooleanArray>> {
        let count = batch.num_rows();
        let (rows, passed) = self.rows;
        if rows >= TRIAL_ROWS && passed * 2 > rows {
            return Ok(None);
        }
        let value = |expr: &Arc<dyn PhysicalExpr>| expr.evaluate(batch)?.into_array(count);
        let groups = top.groups.iter().map(value).collect::<PlanResult<Vec<ArrayRef>>>()?;
        let Some(keys) = codes(&value(&top.order.expr)?, top.order.options) else { return Ok(None) };
        self.groups.intern(&groups, &mut self.numbers)?;
        self.first.resize(self.groups.len() * top.rows, BEHIND);
        let bytes = self.groups.size() + self.first.capacity() * size_of::<u128>();
        if bytes > MAX_BYTES || self.memory.try_resize(bytes).is_err() {
            return Ok(None);
        }
        let first = &mut self.first;
        let mut admits = |(key, group): (&u128, &usize)| {
            let Some(own) = first.get_mut(group * top.rows..(group + 1) * top.rows) else { return true };
            match own.last() {
                Some(last) if key < last => {}
                Some(last) => return top.with_ties && key == last,
                None => return true,
            }
            let place = own.partition_point(|other| other <= key);
            if let Some(behind) = own.get_mut(place..) {
                behind.rotate_right(1);
                behind.iter_mut().take(1).for_each(|slot| *slot = *key);
            }
            true
        };
        let admitted: BooleanArray = keys.iter().zip(&self.numbers).map(|pair| Some(admits(pair))).collect();
        self.rows = (self.rows.0 + count, self.rows.1 + admitted.true_count());
        Ok(Some(admitted))
    }
}

/// Returns whether values of a type are compared by [`codes`].
fn is_compared(ty: &DataType) -> bool {
    let is_time = matches!(ty, DataType::Timestamp(TimeUnit::Millisecond | TimeUnit::Nanosecond, _));
    let is_integer =
        matches!(ty, DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::UInt64);
    is_time || is_integer || matches!(ty, DataType::Float32 | DataType::Float64)
}

/// Makes numbers of values, in the order of a sort; `None` of types that are not compared.
fn codes(values: &ArrayRef, options: SortOptions) -> Option<Vec<u128>> {
    fn of<T: ArrowPrimitiveType>(
        values: &ArrayRef,
        options: SortOptions,
        code: impl Fn(T::Native) -> u64,
    ) -> Option<Vec<u128>> {
        let own = values.as_primitive_opt::<T>()?;
        let null = if options.nulls_first { 0 } else { 2 * VALUES };
        let code = |value: T::Native| {
            let code = code(value);
            VALUES + u128::from(if options.descending { !code } else { code })
        };
        Some(match own.null_count() {
            0 => own.values().iter().map(|value| code(*value)).collect(),
            _ => own.iter().map(|value| value.map_or(null, code)).collect(),
        })
    }
    /// Shifts integers to unsigned ones of the same order.
    fn signed(number: i64) -> u64 {
        number as u64 ^ (1 << 63)
    }
    /// Makes an integer of the total order of a number.
    fn real(number: f64) -> u64 {
        let bits = number.to_bits();
        if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
    }
    match values.data_type() {
        DataType::Int8 => of::<Int8Type>(values, options, |number| signed(number.into())),
        DataType::Int16 => of::<Int16Type>(values, options, |number| signed(number.into())),
        DataType::Int32 => of::<Int32Type>(values, options, |number| signed(number.into())),
        DataType::Int64 => of::<Int64Type>(values, options, signed),
        DataType::UInt64 => of::<UInt64Type>(values, options, |number| number),
        DataType::Float32 => of::<Float32Type>(values, options, |number| real(number.into())),
        DataType::Float64 => of::<Float64Type>(values, options, real),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            of::<TimestampMillisecondType>(values, options, signed)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            of::<TimestampNanosecondType>(values, options, signed)
        }
        _ => None,
    }
}

/// Passes rows on that may be among the first of their groups.
#[derive(Clone, Debug)]
struct GroupTopRowsExec {
    input: Node,
    top: GroupTopRows,
}

impl DisplayAs for GroupTopRowsExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups: Vec<String> = self.top.groups.iter().map(ToString::to_string).collect();
        let GroupTopRows { order, rows, .. } = &self.top;
        write!(f, "GroupTopRowsExec: rows={rows}, groups=[{}], order=[{order}]", groups.join(", "))
    }
}

impl ExecutionPlan for GroupTopRowsExec {
    fn name(&self) -> &str {
        "GroupTopRowsExec"
    }

    millrace_matching::passes_rows_on!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> PlanResult<SendableRecordBatchStream> {
        let schema = self.input.schema();
        let memory = MemoryConsumer::new("GroupTopRowsExec").register(context.memory_pool());
        let mut keys = Some(self.top.keys(&schema, memory)?);
        let top = self.top.clone();
        let rows = self.input.execute(partition, context)?.map(move |batch| {
            let batch = batch?;
            let Some(own) = &mut keys else { return Ok(batch) };
            match own.admit(&batch, &top)? {
                Some(admitted) => Ok(filter_record_batch(&batch, &admitted)?),
                None => {
                    keys = None;
                    Ok(batch)
                }
            }
        });
        let rows = rows.filter(|batch| {
            let is_empty = matches!(batch, Ok(batch) if batch.num_rows() == 0);
            std::future::ready(!is_empty)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Float64Array, Int64Array, StringViewArray};
    use datafusion::execution::memory_pool::{MemoryPool, UnboundedMemoryPool};
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn codes_have_the_order_of_sorts() {
        let reals: ArrayRef = Arc::new(Float64Array::from(vec![
            Some(f64::NEG_INFINITY),
            Some(-1.5),
            Some(-0.0),
            Some(0.0),
            Some(2.0),
            Some(f64::NAN),
            None,
        ]));
        let integers: ArrayRef =
            Arc::new(Int64Array::from(vec![Some(i64::MIN), Some(-1), Some(0), Some(7), None]));
        for values in [reals, integers] {
            let ascending = codes(&values, SortOptions { descending: false, nulls_first: false }).unwrap();
            assert!(ascending.is_sorted(), "{ascending:?}");
            let mut descending = codes(&values, SortOptions { descending: true, nulls_first: true }).unwrap();
            descending.reverse();
            assert!(descending.is_sorted(), "{descending:?}");
        }
    }

    #[test]
    fn the_first_of_each_group_are_admitted() {
        let mut random = StdRng::seed_from_u64(7);
        let schema = Arc::new(Schema::new(vec![
            Field::new("g", DataType::Utf8View, true),
            Field::new("x", DataType::Int64, true),
        ]));
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        for with_ties in [false, true] {
            let options = SortOptions { descending: true, nulls_first: false };
            let order = PhysicalSortExpr::new(Arc::new(Column::new("x", 1)), options);
            let groups: Vec<Arc<dyn PhysicalExpr>> = vec![Arc::new(Column::new("g", 0))];
            let top = GroupTopRows { groups, order, rows: 3, with_ties };
            let mut keys = top.keys(&schema, MemoryConsumer::new("test").register(&pool)).unwrap();
            let (mut all, mut admitted) = (Vec::new(), Vec::new());
            for _ in 0..20 {
                let rows: Vec<(Option<u8>, Option<i64>)> = (0..50)
                    .map(|_| {
                        let group = Some(random.random_range(0..6)).filter(|group| *group > 0);
                        (group, Some(random.random_range(0..40)).filter(|x| *x > 2))
                    })
                    .collect();
                let names = rows.iter().map(|(group, _)| group.map(|group| format!("group {group} of many")));
                let names: ArrayRef = Arc::new(names.collect::<StringViewArray>());
                let numbers: ArrayRef = Arc::new(rows.iter().map(|(_, x)| *x).collect::<Int64Array>());
                let batch = RecordBatch::try_new(Arc::clone(&schema), vec![names, numbers]).unwrap();
                let own = keys.admit(&batch, &top).unwrap().unwrap();
                admitted
                    .extend(rows.iter().zip(&own).filter(|(_, own)| *own == Some(true)).map(|(row, _)| *row));
                all.extend(rows);
            }
            let first = |mut rows: Vec<(Option<u8>, Option<i64>)>| {
                // Nulls come last, as the least does.
                rows.sort_unstable_by(|one, other| one.0.cmp(&other.0).then(other.1.cmp(&one.1)));
                let groups = rows.chunk_by(|one, other| one.0 == other.0);
                let of_group = |rows: &[(Option<u8>, Option<i64>)]| {
                    let last = rows[2].1;
                    let first = rows.iter().enumerate();
                    let first = first.filter(|(at, row)| *at < 3 || with_ties && row.1 == last);
                    first.map(|(_, row)| *row).collect::<Vec<_>>()
                };
                groups.flat_map(of_group).collect::<Vec<_>>()
            };
            assert_eq!(first(admitted.clone()), first(all.clone()));
            assert!(admitted.len() < all.len() / 2, "{}", admitted.len());
        }
    }
}
