//! The fields of indices as a DataFusion table: the sibling of [`IndexTable`], which has a search's sort
//! keys and addresses only.
//!
//! Rows are found as every search finds them, by the scan of an [`IndexTable`] over the same snapshot; what
//! is added here is that the columns of a statement are then read for them, segment by segment: [`scan`] is the node of the
//! plan, [`read`] takes the rows of segments in steps, and [`batch`] makes the columns of a step. A scan
//! without columns is that of the [`IndexTable`] itself, so that counts come from metadata and postings.

mod batch;
mod dynamic_filter;
mod read;
mod scan;
mod scan_counts;

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result as PlanResult;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
pub(super) use millrace_matching::table::ROW;
use millrace_matching::table::predicate::Predicate;
use millrace_matching::table::scan::IndexScanExec;
use millrace_matching::table::{IndexTable, SCORE, ScanHandle, ScanOptions, TableSnapshot};
use millrace_work::QueryContext;
use millrace_work::compute::Compute;

pub(super) use self::dynamic_filter::{JoinKey, MAX_KEY_BYTES, MAX_KEYS};
pub(super) use self::read::{addresses, scores_of};
pub(super) use self::scan::SqlScanExec;
pub(super) use self::scan_counts::ScanCounts;
use super::column::SqlColumn;
use super::push::Clause;
use super::pushdown::superset;
use super::whole_texts::WholeTexts;

/// Most rows of a limit for which one partition reads.
const MAX_FIRST_ROWS: usize = 1_024;

/// A clause by its number, with the scan that finds its rows.
type MarkFinder = (usize, IndexScanExec);

/// Names the column that tells where a clause holds.
pub(crate) fn mark_name(at: usize) -> String {
    format!("$m{at}")
}

/// Indices, the columns that a statement reads of them, and the conditions that the index answers.
#[derive(Clone, Debug)]
pub(crate) struct ScanSource {
    /// The index expression.
    pub(crate) index: String,
    /// The indices.
    pub(crate) snapshot: Arc<TableSnapshot>,
    /// Columns of fields.
    pub(crate) columns: Arc<Vec<SqlColumn>>,
    /// Clauses that have a column of truth values.
    pub(crate) marks: Vec<Clause>,
    /// Conditions of the statement on each row.
    pub(crate) conditions: Vec<Clause>,
    /// Condition of the request on each row.
    pub(crate) filter: Option<Clause>,
    /// Texts whose keyword fields have every value.
    pub(crate) whole_texts: Arc<WholeTexts>,
}

/// The fields of indices that a statement names, as a table.
#[derive(Debug)]
pub(crate) struct SqlTable {
    source: Arc<ScanSource>,
    index: IndexTable,
    /// The same rows, of which clauses find some.
    marked: IndexTable,
    schema: SchemaRef,
}

impl SqlTable {
    /// Makes the table of the columns of a source, and of a column for each clause.
    pub(crate) fn new(source: ScanSource, now_ms: i64, compute: Compute, work: QueryContext) -> Self {
        let ScanSource { snapshot, columns, marks, .. } = &source;
        let mut fields: Vec<Field> =
            columns.iter().map(|column| Field::new(&column.name, column.arrow(), true)).collect();
        fields.push(Field::new(SCORE, DataType::Float32, true));
        fields.push(Field::new(ROW, DataType::UInt32, false));
        fields.extend((0..marks.len()).map(|at| Field::new(mark_name(at), DataType::Boolean, true)));
        // A scan that does not count would stop where only counts are asked for.
        let table = |work: QueryContext| {
            let options = ScanOptions { now_ms, track: Some(u64::MAX), work, ..ScanOptions::default() };
            IndexTable::new(Arc::clone(snapshot), Vec::new(), options, compute.clone())
        };
        let (index, marked) = (table(work.clone()), table(work));
        let schema = Arc::new(Schema::new(fields));
        Self { source: Arc::new(source), index, marked, schema }
    }

    /// Returns its source.
    pub(crate) fn source(&self) -> &Arc<ScanSource> {
        &self.source
    }

    /// Makes the clause that narrows a scan to the rows which may meet a condition.
    fn superset(&self, filter: &Expr) -> Option<Clause> {
        superset(filter, &self.source)
    }

    /// Makes predicates of the index of the conditions that it was found to support.
    fn lowered(&self, filters: &[Expr]) -> PlanResult<Vec<Expr>> {
        let lower = |filter: &Expr| match Predicate::from_expr(filter) {
            Some(_) => Ok(filter.clone()),
            None => match self.superset(filter) {
                Some(clause) => clause.expr(false).map_err(|error| DataFusionError::Plan(error.to_string())),
                None => Ok(filter.clone()),
            },
        };
        filters.iter().map(lower).collect()
    }

    /// Makes the scans that find the rows of the clauses whose columns are projected.
    fn mark_finders(&self, session: &dyn Session, projection: &[usize]) -> PlanResult<Vec<MarkFinder>> {
        let before = self.source.columns.len() + 2;
        let wanted =
            self.source.marks.iter().enumerate().filter(|(at, _)| projection.contains(&(before + at)));
        let finder = |(at, clause): (usize, &Clause)| {
            let filter = clause.expr(false).map_err(|error| DataFusionError::Plan(error.to_string()))?;
            Ok((at, self.marked.scan_rows(session, Some(&Vec::new()), &[filter])?))
        };
        wanted.map(finder).collect()
    }

    /// Returns the controls that stop its scans and have their failures.
    pub(crate) fn handles(&self) -> [&Arc<ScanHandle>; 2] {
        [self.index.handle(), self.marked.handle()]
    }
}

#[async_trait]
impl TableProvider for SqlTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let filters = self.lowered(filters)?;
        let finder = self.index.scan_rows(session, Some(&Vec::new()), &filters)?;
        let projection = match projection {
            Some(projection) => projection.clone(),
            None => (0..self.schema.fields().len()).collect(),
        };
        if projection.is_empty() {
            return Ok(Arc::new(finder));
        }
        // All rows are found, so that the first are enough: other partitions would read as many more.
        let is_short = limit.is_some_and(|rows| rows <= MAX_FIRST_ROWS);
        let finder = match is_short && finder.all_rows().is_some() {
            true => finder.of_parts(finder.partitions().concat()),
            false => finder,
        };
        let scored = filters.iter().filter_map(Predicate::from_expr).any(|predicate| scores(&predicate));
        let marks = self.mark_finders(session, &projection)?;
        Ok(Arc::new(SqlScanExec::new((finder, marks), self, projection, scored, limit)?))
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> PlanResult<Vec<TableProviderFilterPushDown>> {
        let mut supported = self.index.supports_filters_pushdown(filters)?;
        for (own, filter) in supported.iter_mut().zip(filters) {
            if *own == TableProviderFilterPushDown::Unsupported && self.superset(filter).is_some() {
                *own = TableProviderFilterPushDown::Inexact;
            }
        }
        Ok(supported)
    }
}

/// Returns whether a predicate gives scores: those of statements do where a relevance function asks for it.
fn scores(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::Leaf(leaf) => leaf.scored,
        Predicate::And(parts) | Predicate::AtLeast(_, parts) | Predicate::DisMax(_, parts) => {
            parts.iter().any(scores)
        }
        Predicate::Constant(..) | Predicate::Boosting { .. } | Predicate::FunctionScore(..) => true,
        Predicate::Nested(_, inner) => scores(inner),
        Predicate::All | Predicate::Not(_) => false,
    }
}
