//! Dynamic filter pushdown: hands the keys of a join's build side to the scans of its probe side.
//!
//! `WHERE k IN (SELECT …)`, EXISTS and inner joins of a small side with a large index read the whole column `k` of the index, unless
//! the scan knows the keys. The rule finds the scans that a key of the probe side comes from. It follows columns by their places:
//! DataFusion's own rule follows names, which joins of two indices repeat. A join that is not the scan's own lets a filter pass where a
//! row that is left out changes no other row of its output. [`DynamicFilter`](super::table) says what a scan makes of it.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{JoinType, NullEquality, Result};
use datafusion::physical_expr::expressions::{Column, DynamicFilterPhysicalExpr, lit};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::PhysicalExpr;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::union::UnionExec;

use super::node_rewriter::{rewrite_joins, with_inputs};
use super::table::{JoinKey, SqlScanExec};

/// Puts the filters of hash joins at the scans of their probe sides.
#[derive(Debug)]
pub(crate) struct PushDownDynamicFilters;

impl PhysicalOptimizerRule for PushDownDynamicFilters {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        rewrite_joins(plan, filtered)
    }

    fn name(&self) -> &str {
        "push_down_dynamic_filters"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns a join whose filter scans of its probe side look at; `None` where no scan can.
fn filtered(join: &HashJoinExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let (_, keeps_matches) = join.join_type().on_lr_is_preserved();
    // A null of the probe side decides about all rows of a null-aware join, or is a key itself: none may be left out.
    let is_open = keeps_matches
        && !join.null_aware
        && join.null_equality() == NullEquality::NullEqualsNothing
        && *join.partition_mode() == PartitionMode::CollectLeft;
    let probe_schema = join.right().schema();
    let has_bounds =
        |key: &Arc<dyn PhysicalExpr>| key.data_type(&probe_schema).is_ok_and(|ty| is_ordered(&ty));
    if !is_open || !join.on().iter().all(|(_, key)| has_bounds(key)) {
        return Ok(None);
    }
    let keys: Vec<_> = join.on().iter().map(|(_, key)| Arc::clone(key)).collect();
    let filter = Arc::new(DynamicFilterPhysicalExpr::new(keys, lit(true)));
    let mut probe = None;
    for (place, (_, key)) in join.on().iter().enumerate() {
        let Some(column) = key.downcast_ref::<Column>().map(Column::index) else { continue };
        let key = JoinKey { filter: Arc::clone(&filter), place, column };
        let side = probe.as_ref().unwrap_or_else(|| join.right());
        if let Some(side) = with_key(side, column, &key)? {
            probe = Some(side);
        }
    }
    let Some(probe) = probe else { return Ok(None) };
    let join = join.builder().with_new_children(vec![Arc::clone(join.left()), probe])?.build()?;
    Ok(Some(Arc::new(join.with_dynamic_filter_expr(filter)?)))
}

/// Returns whether a join tells the least and the greatest key of a type.
fn is_ordered(ty: &DataType) -> bool {
    ty.is_numeric() || matches!(ty, DataType::Utf8View | DataType::Boolean | DataType::Timestamp(_, None))
}

/// Returns a plan whose scans that an output column comes from look at a key; `None` where there are none.
fn with_key(
    node: &Arc<dyn ExecutionPlan>,
    column: usize,
    key: &JoinKey,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(scan) = node.downcast_ref::<SqlScanExec>() {
        let scan = scan.with_join_key(column, key.clone());
        return Ok(scan.map(|scan| Arc::new(scan) as Arc<dyn ExecutionPlan>));
    }
    let mut children: Vec<Arc<dyn ExecutionPlan>> = node.children().into_iter().cloned().collect();
    let mut is_changed = false;
    for (place, column) in origins(node, column) {
        if let Some(child) = children.get_mut(place)
            && let Some(changed) = with_key(child, column, key)?
        {
            *child = changed;
            is_changed = true;
        }
    }
    if !is_changed {
        return Ok(None);
    }
    with_inputs(node, children).map(Some)
}

/// Lists the children, and their columns, that an output column of a node comes from, where rows of these may be left out: the node
/// makes the same rows then, but for those with the values that were left out.
fn origins(node: &Arc<dyn ExecutionPlan>, column: usize) -> Vec<(usize, usize)> {
    if node.fetch().is_some() {
        return Vec::new();
    }
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        let column = match filter.projection() {
            Some(projection) => projection.get(column).copied(),
            None => Some(column),
        };
        return column.map(|column| (0, column)).into_iter().collect();
    }
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        let column = projection.expr().get(column).and_then(|output| output.expr.downcast_ref::<Column>());
        return column.map(|column| (0, column.index())).into_iter().collect();
    }
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        let groups = aggregate.group_expr();
        let key = groups.expr().get(column).filter(|_| !groups.has_grouping_set());
        let column = key.and_then(|(key, _)| key.downcast_ref::<Column>());
        return column.map(|column| (0, column.index())).into_iter().collect();
    }
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        return of_join(join, column).into_iter().collect();
    }
    if node.is::<CoalescePartitionsExec>() || node.is::<RepartitionExec>() {
        return vec![(0, column)];
    }
    if node.is::<UnionExec>() {
        return (0..node.children().len()).map(|child| (child, column)).collect();
    }
    Vec::new()
}

/// Returns the side, and its column, that an output column of a join comes from, where rows of it may be left out.
fn of_join(join: &HashJoinExec, column: usize) -> Option<(usize, usize)> {
    let column = match &join.projection {
        Some(projection) => *projection.get(column)?,
        None => column,
    };
    let left = join.left().schema().fields().len();
    let is_left = column < left;
    match join.join_type() {
        JoinType::Inner if is_left => Some((0, column)),
        JoinType::Inner => Some((1, column - left)),
        JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
            is_left.then_some((0, column))
        }
        JoinType::Right => Some((1, column.checked_sub(left)?)),
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
            (column < join.right().schema().fields().len()).then_some((1, column))
        }
        JoinType::Full => None,
    }
}
