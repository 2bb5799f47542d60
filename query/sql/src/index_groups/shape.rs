//! Aggregations whose states segments can compute, and their keys.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::Result as PlanResult;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};
use millrace_aggregate::{CountKey, CountedRows, ValueCounts};
use millrace_dsl::aggs::CalendarUnit;
use millrace_dsl::query::Query;
use millrace_matching::table::partitions::RowPartition;
use millrace_matching::table::predicate::Predicate;
use millrace_matching::table::scan::IndexScanExec;
use millrace_work::error::Result;

use super::groups_request::{Aggregate, GroupsRequest};
use super::spans::unit_of;
use super::states::{ColumnSummary, ColumnValueCounts, CountOf, OfColumn, whole_states};
use crate::column::{ColumnSource, SqlColumn};
use crate::table::SqlScanExec;
use crate::types::{Resolution, SqlType};

/// An aggregation of which segments can tell the states.
#[derive(Debug)]
pub(super) enum StateAggregate {
    /// Counts by what is computed of one column.
    Values(Box<OfValues>),
    /// Counts and extremes of whole columns.
    Whole(Vec<OfColumn>),
}

/// Counts by what is computed of one column.
#[derive(Debug)]
pub(super) struct OfValues {
    pub(super) column: SqlColumn,
    /// The column alone.
    pub(super) input: SchemaRef,
    by: CountKey,
    counts: ValueCounts,
    /// Group keys over it; nothing where all rows are one group.
    pub(super) groups: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) states: Vec<CountOf>,
    /// `true` if it is soon known of a segment that all rows are found.
    by_bounds: bool,
    /// Scan that finds rows without a value besides, where the condition leaves these out.
    with_nulls: Option<IndexScanExec>,
}

impl fmt::Display for StateAggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Values(of) => match of.by {
                CountKey::Value => write!(f, "values of {}", of.column.name),
                CountKey::Span(unit) => write!(f, "{} of {}", unit_name(unit), of.column.name),
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

impl StateAggregate {
    /// Recognises what is asked of a scan.
    pub(super) fn new(asked: &GroupsRequest, scan: &SqlScanExec) -> PlanResult<Option<Self>> {
        let alone = asked.groups.is_empty();
        let by_bounds = is_of_bounds(scan.finder().predicate());
        if alone
            && by_bounds
            && let Some(whole) = whole_of(&asked.aggregates, scan)?
        {
            return Ok(Some(Self::Whole(whole)));
        }
        let input = scan.schema();
        let column = scan.column(0).filter(|column| input.fields().len() == 1 && is_of_columns(column));
        let Some(column) = column.filter(|_| alone || asked.groups_by_columns()) else { return Ok(None) };
        let Some(by) = by_of(asked, column).filter(|by| by_bounds || *by != CountKey::Value) else {
            return Ok(None);
        };
        let mut states = Vec::with_capacity(asked.aggregates.len());
        for aggregate in &asked.aggregates {
            let Some(count) = count_of(aggregate, alone, column)? else { return Ok(None) };
            states.push(count);
        }
        let snapshot = &scan.finder().table().snapshot;
        let Some(counts) = ValueCounts::new(snapshot, column.path(), by) else { return Ok(None) };
        let with_nulls = scan.finder().without_presence(column.path());
        let (column, groups) = (column.clone(), asked.groups.clone());
        let of = OfValues { column, input, by, counts, groups, states, by_bounds, with_nulls };
        Ok(Some(Self::Values(Box::new(of))))
    }

    /// Has the segment of a part tell the states of its rows; `None` where the rows have to be read. Blocks; runs on a compute
    /// thread.
    pub(super) fn tell(
        &self,
        finder: &IndexScanExec,
        part: &RowPartition,
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
                let whole = of.with_nulls.as_ref().unwrap_or(finder);
                let rows = match of.by_bounds && whole.finds_all(part)? {
                    true => CountedRows::All,
                    false if of.by == CountKey::Value => return Ok(None),
                    false => CountedRows::Found(&mut found),
                };
                let mut counted = ColumnValueCounts::new(&of.column, memory);
                let each = &mut |value: millrace_aggregate::Value<'_>, rows| counted.add(value, rows);
                match of.counts.tell(finder.table(), part, rows, each)? {
                    Some(without) => {
                        let without = if of.with_nulls.is_some() { 0 } else { without };
                        counted.states(without, of, schema).map(Some)
                    }
                    None => Ok(None),
                }
            }
        }
    }
}

/// Returns whether a predicate is made of nothing but ranges and presence, of which a segment's bounds and counts tell whether
/// all rows are found.
fn is_of_bounds(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::All => true,
        Predicate::Leaf(leaf) => matches!(leaf.query, Query::Range(_) | Query::Exists(_)),
        Predicate::And(parts) => parts.iter().all(is_of_bounds),
        _ => false,
    }
}

/// Returns whether rows have at most one value of a column, and every index that has it has it as a column of the same type.
fn is_of_columns(column: &SqlColumn) -> bool {
    let own = |source: &ColumnSource| match source {
        ColumnSource::Missing => true,
        ColumnSource::Column { ty, .. } => *ty == column.ty,
        _ => false,
    };
    !column.list && column.elements.is_none() && column.sources.iter().all(own)
}

/// Returns the key by which rows of a column are counted for groups.
fn by_of(asked: &GroupsRequest, column: &SqlColumn) -> Option<CountKey> {
    match column.ty {
        SqlType::Timestamp(Resolution::Millis) => {
            let units: Option<Vec<CalendarUnit>> = asked.groups.iter().map(unit_of).collect();
            units?.into_iter().min().map(CountKey::Span)
        }
        SqlType::Keyword | SqlType::Text | SqlType::Ip | SqlType::Boolean => Some(CountKey::Value),
        ty => ty.is_integer().then_some(CountKey::Value),
    }
}

/// Recognises an aggregate that counts by values of the only column; `alone` says that all rows are one group.
fn count_of(aggregate: &Aggregate, alone: bool, column: &SqlColumn) -> PlanResult<Option<CountOf>> {
    if aggregate.name() != Some("count") {
        return Ok(None);
    }
    Ok(match (aggregate.state()?, aggregate.column()) {
        (Some(DataType::List(item)), Some(_)) if aggregate.is_distinct() => {
            (alone && *item.data_type() == column.arrow()).then_some(CountOf::Distinct(item))
        }
        // What has a time has a span.
        (Some(DataType::Int64), Some(_)) if !aggregate.is_distinct() => Some(CountOf::Values),
        (Some(DataType::Int64), None) if aggregate.counts_rows() => Some(CountOf::Rows),
        _ => None,
    })
}

/// Recognises aggregates of whole columns: counts, and extremes of numbers and times.
fn whole_of(aggregates: &[Aggregate], scan: &SqlScanExec) -> PlanResult<Option<Vec<OfColumn>>> {
    let mut found = Vec::with_capacity(aggregates.len());
    for aggregate in aggregates {
        let state = aggregate.state()?;
        if aggregate.counts_rows() && state == Some(DataType::Int64) {
            found.push((ColumnSummary::Rows, None));
            continue;
        }
        let column = aggregate.column().and_then(|place| scan.column(place));
        let Some(column) = column.filter(|_| !aggregate.is_distinct()) else { return Ok(None) };
        let (whole, ty) = match aggregate.name() {
            Some("count") => (ColumnSummary::Values, DataType::Int64),
            Some("min") => (ColumnSummary::Least, column.arrow()),
            Some("max") => (ColumnSummary::Greatest, column.arrow()),
            _ => return Ok(None),
        };
        let bounded = column.ty.is_number() || matches!(column.ty, SqlType::Timestamp(_));
        if !bounded || column.list || state != Some(ty) {
            return Ok(None);
        }
        found.push((whole, Some(column.clone())));
    }
    Ok(Some(found).filter(|found| found.iter().any(|(_, column)| column.is_some())))
}
