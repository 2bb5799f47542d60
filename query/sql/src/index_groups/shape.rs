//! Which aggregations segments can tell the states of, and by what.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::Result as PlanResult;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::Volatility;
use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};
use millrace_aggregate::{By, CountedRows, ValueCounts};
use millrace_dsl::aggs::CalendarUnit;
use millrace_dsl::query::Query;
use millrace_matching::table::parts::Part;
use millrace_matching::table::predicate::Predicate;
use millrace_matching::table::scan::IndexScanExec;
use millrace_work::error::Result;

use super::spans::unit_of;
use super::states::{CountOf, Counted, Whole, whole_states};
use crate::column::{ColumnSource, SqlColumn};
use crate::table::SqlScanExec;
use crate::types::{Resolution, SqlType};

/// An aggregation of which segments can tell the states.
#[derive(Debug)]
pub(super) enum Shape {
    /// Counts by what is computed of one column.
    Values(Box<OfValues>),
    /// Counts and extremes of whole columns.
    Whole(Vec<(Whole, Option<SqlColumn>)>),
}

/// Counts by what is computed of one column.
#[derive(Debug)]
pub(super) struct OfValues {
    pub(super) column: SqlColumn,
    /// The column alone.
    pub(super) input: SchemaRef,
    by: By,
    counts: ValueCounts,
    /// What is computed of it; nothing where all rows are one group.
    pub(super) groups: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) states: Vec<CountOf>,
    /// Whether it is soon known of a segment that all rows are found.
    by_ranges: bool,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Values(of) => match of.by {
                By::Value => write!(f, "values of {}", of.column.name),
                By::Span(unit) => write!(f, "{} of {}", unit_name(unit), of.column.name),
            },
            Self::Whole(_) => f.write_str("bounds"),
        }
    }
}

fn unit_name(unit: CalendarUnit) -> &'static str {
    match unit {
        CalendarUnit::Second => "seconds",
        CalendarUnit::Minute => "minutes",
        CalendarUnit::Hour => "hours",
        CalendarUnit::Day => "days",
        CalendarUnit::Week => "weeks",
        CalendarUnit::Month => "months",
        CalendarUnit::Quarter => "quarters",
        CalendarUnit::Year => "years",
    }
}

impl Shape {
    /// Recognises the first step of an aggregation over a scan.
    pub(super) fn of(first: &AggregateExec, scan: &SqlScanExec) -> PlanResult<Option<Self>> {
        let groups = first.group_expr().input_exprs();
        let by_ranges = is_of_ranges(scan.finder().predicate());
        if groups.is_empty()
            && by_ranges
            && let Some(whole) = whole_of(first.aggr_expr(), scan)?
        {
            return Ok(Some(Self::Whole(whole)));
        }
        let Some(column) = scan.column(0).filter(|column| scan.schema().fields().len() == 1 && !column.list)
        else {
            return Ok(None);
        };
        let repeated = groups.iter().all(is_repeatable) && groups.iter().any(has_column) || groups.is_empty();
        if !repeated || !is_of_columns(column) {
            return Ok(None);
        }
        let mut states = Vec::new();
        for aggregate in first.aggr_expr() {
            let Some(count) = count_of(aggregate, groups.is_empty(), column)? else { return Ok(None) };
            states.push(count);
        }
        let by = match column.ty {
            SqlType::Timestamp(Resolution::Millis) if !groups.is_empty() => {
                let units: Option<Vec<CalendarUnit>> = groups.iter().map(unit_of).collect();
                units.and_then(|units| units.into_iter().min()).map(By::Span)
            }
            SqlType::Keyword | SqlType::Text | SqlType::Ip | SqlType::Boolean => Some(By::Value),
            ty => ty.is_integer().then_some(By::Value),
        };
        let Some(by) = by.filter(|by| by_ranges || *by != By::Value) else { return Ok(None) };
        let snapshot = &scan.finder().table().snapshot;
        let Some(counts) = ValueCounts::new(snapshot, column.path(), by) else { return Ok(None) };
        let (column, input) = (column.clone(), scan.schema());
        Ok(Some(Self::Values(Box::new(OfValues { column, input, by, counts, groups, states, by_ranges }))))
    }

    /// Has the segment of a part tell the states of its rows; `None` where the rows have to be read. Blocks; runs on a compute
    /// thread.
    pub(super) fn tell(
        &self,
        finder: &IndexScanExec,
        part: &Part,
        schema: &SchemaRef,
        memory: &MemoryReservation,
    ) -> Result<Option<Vec<RecordBatch>>> {
        match self {
            Self::Whole(states) => match finder.table().snapshot.segments.get(part.segment as usize) {
                Some(segment) if finder.finds_all(part)? => whole_states(states, segment, part, schema),
                _ => Ok(None),
            },
            Self::Values(of) => {
                let mut found = || Ok(finder.rows_of(part, false)?.map(|(rows, _)| rows));
                let rows = match of.by_ranges && finder.finds_all(part)? {
                    true => CountedRows::All,
                    false if of.by == By::Value => return Ok(None),
                    false => CountedRows::Found(&mut found),
                };
                let mut counted = Counted::new(&of.column, memory);
                let each = &mut |value: millrace_aggregate::Value<'_>, rows| counted.add(value, rows);
                match of.counts.tell(finder.table(), part, rows, each)? {
                    Some(without) => counted.states(without, of, schema).map(Some),
                    None => Ok(None),
                }
            }
        }
    }
}

/// Whether a predicate is made of nothing but ranges, of which a segment's bounds tell whether all rows are found.
fn is_of_ranges(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::All => true,
        Predicate::Leaf(leaf) => matches!(leaf.query, Query::Range(_)),
        Predicate::And(parts) => parts.iter().all(is_of_ranges),
        _ => false,
    }
}

/// Whether an expression has the same value wherever its columns have.
fn is_repeatable(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let mut repeatable = true;
    let walked = expr.apply(|part| {
        repeatable &= part
            .downcast_ref::<ScalarFunctionExpr>()
            .is_none_or(|call| call.fun().signature().volatility != Volatility::Volatile);
        Ok(TreeNodeRecursion::Continue)
    });
    walked.is_ok() && repeatable
}

fn has_column(expr: &Arc<dyn PhysicalExpr>) -> bool {
    !collect_columns(expr).is_empty()
}

/// Whether every index that has a column has it as a column of the same type.
fn is_of_columns(column: &SqlColumn) -> bool {
    column.sources.iter().all(|source| match source {
        ColumnSource::Missing => true,
        ColumnSource::Column { ty, .. } => *ty == column.ty,
        _ => false,
    })
}

/// Whether an aggregate counts rows: its argument is there in each.
fn counts_rows(aggregate: &AggregateFunctionExpr) -> bool {
    let arguments = aggregate.expressions();
    let value = |expr: &Arc<dyn PhysicalExpr>| {
        expr.downcast_ref::<Literal>().is_some_and(|literal| !literal.value().is_null())
    };
    aggregate.fun().name() == "count" && !aggregate.is_distinct() && arguments.iter().all(value)
}

/// Returns the place of the column that is an aggregate's only argument.
fn argument(aggregate: &AggregateFunctionExpr) -> Option<usize> {
    match aggregate.expressions().as_slice() {
        [argument] => argument.downcast_ref::<Column>().map(Column::index),
        _ => None,
    }
}

/// Whether the state of an aggregate is one value of a type.
fn has_state(aggregate: &AggregateFunctionExpr, ty: &DataType) -> PlanResult<bool> {
    Ok(matches!(aggregate.state_fields()?.as_slice(), [state] if state.data_type() == ty))
}

/// Recognises an aggregate that counts by values of the only column.
fn count_of(
    aggregate: &AggregateFunctionExpr,
    alone: bool,
    column: &SqlColumn,
) -> PlanResult<Option<CountOf>> {
    if aggregate.fun().name() != "count" || !aggregate.order_bys().is_empty() {
        return Ok(None);
    }
    if aggregate.is_distinct() {
        let list = aggregate.state_fields()?;
        let [list] = list.as_slice() else { return Ok(None) };
        let DataType::List(item) = list.data_type() else { return Ok(None) };
        let own = alone && argument(aggregate).is_some() && *item.data_type() == column.arrow();
        return Ok(own.then(|| CountOf::Distinct(Arc::clone(item))));
    }
    if !has_state(aggregate, &DataType::Int64)? {
        return Ok(None);
    }
    Ok(match argument(aggregate) {
        // Times are told by their spans, which have values.
        Some(_) => Some(CountOf::Values),
        None => counts_rows(aggregate).then_some(CountOf::Rows),
    })
}

/// Recognises aggregates of whole columns: counts, and extremes of numbers and times.
fn whole_of(
    aggregates: &[Arc<AggregateFunctionExpr>],
    scan: &SqlScanExec,
) -> PlanResult<Option<Vec<(Whole, Option<SqlColumn>)>>> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    for aggregate in aggregates {
        if aggregate.is_distinct() || !aggregate.order_bys().is_empty() {
            return Ok(None);
        }
        if counts_rows(aggregate) && has_state(aggregate, &DataType::Int64)? {
            found.push((Whole::Rows, None));
            continue;
        }
        let Some(column) = argument(aggregate).and_then(|place| scan.column(place)) else { return Ok(None) };
        let (whole, state) = match aggregate.fun().name() {
            "count" => (Whole::Values, DataType::Int64),
            "min" => (Whole::Least, column.arrow()),
            "max" => (Whole::Greatest, column.arrow()),
            _ => return Ok(None),
        };
        let bounded = column.ty.is_number() || matches!(column.ty, SqlType::Timestamp(_));
        if !bounded || column.list || !has_state(aggregate, &state)? {
            return Ok(None);
        }
        seen.insert(column.name.clone());
        found.push((whole, Some(column.clone())));
    }
    Ok((!seen.is_empty()).then_some(found))
}
