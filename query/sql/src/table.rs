//! The fields of indices as a DataFusion table: the sibling of [`IndexTable`], which has a search's sort
//! keys and addresses only.
//!
//! Rows are found as every search finds them, by the scan of an [`IndexTable`] over the same snapshot; what
//! is added here is that the columns of a statement are then read for them, segment by segment: [`scan`] is the node of the
//! plan, [`read`] takes the rows of segments in steps, and [`batch`] makes the columns of a step. A scan
//! without columns is that of the [`IndexTable`] itself, so that counts come from metadata and postings.

mod batch;
mod read;
mod scan;

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result as PlanResult;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use millrace_matching::table::predicate::Predicate;
use millrace_matching::table::{IndexTable, ROW, SCORE, ScanHandle, ScanOptions, TableSnapshot};
use millrace_work::QueryContext;
use millrace_work::compute::Compute;

pub(super) use self::read::{addresses, scores_of};
pub(super) use self::scan::SqlScanExec;
use super::column::SqlColumn;

/// The fields of indices that a statement names, as a table.
#[derive(Debug)]
pub(crate) struct SqlTable {
    index: IndexTable,
    columns: Arc<Vec<SqlColumn>>,
    schema: SchemaRef,
}

impl SqlTable {
    /// Makes the table of some columns over a snapshot.
    pub(crate) fn new(
        snapshot: Arc<TableSnapshot>,
        columns: Vec<SqlColumn>,
        now_ms: i64,
        compute: Compute,
        work: QueryContext,
    ) -> Self {
        let mut fields: Vec<Field> =
            columns.iter().map(|column| Field::new(&column.name, column.arrow(), true)).collect();
        fields.push(Field::new(SCORE, DataType::Float32, true));
        fields.push(Field::new(ROW, DataType::UInt32, false));
        // A scan that does not count would stop where only counts are asked for.
        let options = ScanOptions { now_ms, track: Some(u64::MAX), work, ..ScanOptions::default() };
        let index = IndexTable::new(snapshot, Vec::new(), options, compute);
        Self { index, columns: Arc::new(columns), schema: Arc::new(Schema::new(fields)) }
    }

    /// Returns the control that stops its scans and has their failures.
    pub(crate) fn handle(&self) -> &Arc<ScanHandle> {
        self.index.handle()
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
        let finder = self.index.scan_rows(session, Some(&Vec::new()), filters)?;
        let projection = match projection {
            Some(projection) => projection.clone(),
            None => (0..self.schema.fields().len()).collect(),
        };
        if projection.is_empty() {
            return Ok(Arc::new(finder));
        }
        let scored = filters.iter().filter_map(Predicate::from_expr).any(|predicate| scores(&predicate));
        Ok(Arc::new(SqlScanExec::new(finder, self, projection, scored, limit)?))
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> PlanResult<Vec<TableProviderFilterPushDown>> {
        self.index.supports_filters_pushdown(filters)
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
