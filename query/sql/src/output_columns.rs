//! Renames the columns of a wide answer, by position.
//!
//! A projection finds each of its columns by name among those of its input, in the planner several times over: `SELECT *` of many
//! fields would take the square of their number. [`OutputColumns`] finds them once, in a table of names.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::common::{Column, DFSchema, DFSchemaRef, Result, TableReference, plan_err};
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning};
use datafusion::physical_plan::execution_plan::ReplaceChildrenOptions;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::StreamExt;

/// Fewest columns of the node: a projection of fewer is planned in microseconds.
const MIN_COLUMNS: usize = 64;

/// The node of a plan that answers columns of its input as `c0`, `c1`, …
#[derive(Clone, Debug)]
pub(crate) struct OutputColumns {
    input: LogicalPlan,
    /// Position in the input of each column.
    positions: Vec<usize>,
    schema: DFSchemaRef,
}

impl OutputColumns {
    /// Answers columns of a plan; `None` where an expression is no column of it, or there are few.
    ///
    /// # Errors
    /// The columns have no schema.
    pub(crate) fn plan_columns<'e>(
        input: &LogicalPlan,
        exprs: impl ExactSizeIterator<Item = &'e Expr>,
    ) -> Result<Option<LogicalPlan>> {
        if exprs.len() < MIN_COLUMNS {
            return Ok(None);
        }
        let Some(positions) = find_positions(input.schema(), exprs) else { return Ok(None) };
        let node = Self::with_positions(input.clone(), positions)?;
        Ok(Some(LogicalPlan::Extension(Extension { node: Arc::new(node) })))
    }

    fn with_positions(input: LogicalPlan, positions: Vec<usize>) -> Result<Self> {
        let before = input.schema();
        let mut fields: Vec<FieldRef> = Vec::with_capacity(positions.len());
        for (at, position) in positions.iter().enumerate() {
            let Some(field) = before.fields().get(*position) else {
                return plan_err!("a column that the plan does not have");
            };
            fields.push(Arc::new(field.as_ref().clone().with_name(format!("c{at}"))));
        }
        let schema = DFSchema::from_unqualified_fields(fields.into(), before.metadata().clone())?;
        Ok(Self { input, positions, schema: Arc::new(schema) })
    }

    /// Finds the node that a plan is.
    pub(crate) fn from_plan(plan: &LogicalPlan) -> Option<&Self> {
        match plan {
            LogicalPlan::Extension(extension) => extension.node.as_any().downcast_ref(),
            _ => None,
        }
    }

    /// Returns the plan below.
    pub(crate) fn input(&self) -> &LogicalPlan {
        &self.input
    }

    /// Iterates over the columns of the input, in the order of the answer.
    pub(crate) fn columns(&self) -> impl Iterator<Item = Column> + '_ {
        let before = self.input.schema();
        self.positions.iter().map(|position| Column::from(before.qualified_field(*position)))
    }

    /// Makes the physical node.
    ///
    /// # Errors
    /// The input lacks a column.
    pub(crate) fn exec(&self, input: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let fields = self.positions.iter().zip(self.schema.fields()).map(|(position, field)| {
            match input.schema().fields().get(*position) {
                Some(own) => Ok(own.as_ref().clone().with_name(field.name())),
                None => plan_err!("a column that the rows do not have"),
            }
        });
        let fields = fields.collect::<Result<Vec<_>>>()?;
        let schema = Arc::new(Schema::new_with_metadata(fields, input.schema().metadata().clone()));
        Ok(Arc::new(OutputColumnsExec::new(input, self.positions.clone().into(), schema)))
    }
}

/// Finds the positions of columns in a schema; `None` where an expression is none of them.
fn find_positions<'e>(schema: &DFSchema, exprs: impl Iterator<Item = &'e Expr>) -> Option<Vec<usize>> {
    let known = positions_by_name(schema);
    let find = |expr: &Expr| match expr {
        Expr::Column(column) => known.get(&(column.relation.as_ref(), column.name.as_str())).copied(),
        _ => None,
    };
    exprs.map(find).collect()
}

/// Lists the positions of the columns of a schema by their qualified names.
fn positions_by_name(schema: &DFSchema) -> HashMap<(Option<&TableReference>, &str), usize> {
    let columns = schema.iter().enumerate();
    columns.map(|(at, (qualifier, field))| ((qualifier, field.name().as_str()), at)).collect()
}

impl PartialEq for OutputColumns {
    fn eq(&self, other: &Self) -> bool {
        self.positions == other.positions && self.input == other.input
    }
}

impl Eq for OutputColumns {}

impl Hash for OutputColumns {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.positions.hash(state);
        self.input.hash(state);
    }
}

impl PartialOrd for OutputColumns {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match self.input.partial_cmp(&other.input) {
            Some(Ordering::Equal) => self.positions.partial_cmp(&other.positions),
            other => other,
        }
    }
}

impl UserDefinedLogicalNodeCore for OutputColumns {
    fn name(&self) -> &str {
        "OutputColumns"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.columns().zip(self.schema.fields());
        let columns = columns.map(|(column, field)| format!("{} AS {}", column.flat_name(), field.name()));
        write!(f, "OutputColumns: {}", columns.collect::<Vec<_>>().join(", "))
    }

    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        let Some(input) = inputs.pop() else { return plan_err!("columns of no plan") };
        if Arc::ptr_eq(input.schema(), self.input.schema()) {
            return Ok(Self { input, ..self.clone() });
        }
        // The optimizer has taken columns out.
        let known = positions_by_name(input.schema());
        let before = self.input.schema();
        let find = |position: &usize| {
            let (qualifier, field) = before.qualified_field(*position);
            known
                .get(&(qualifier, field.name().as_str()))
                .copied()
                .ok_or_else(|| DataFusionError::Plan(format!("the plan lacks the column [{}]", field.name())))
        };
        let positions = self.positions.iter().map(find).collect::<Result<Vec<usize>>>()?;
        drop(known);
        Self::with_positions(input, positions)
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let read = output_columns.iter().map(|column| self.positions.get(*column).copied());
        Some(vec![read.collect::<Option<Vec<usize>>>()?])
    }
}

/// Answers columns of its input under other names.
#[derive(Clone, Debug)]
struct OutputColumnsExec {
    input: Arc<dyn ExecutionPlan>,
    positions: Arc<[usize]>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
}

impl OutputColumnsExec {
    fn new(input: Arc<dyn ExecutionPlan>, positions: Arc<[usize]>, schema: SchemaRef) -> Self {
        // Nothing above reads an order; the columns keep that of the input.
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Self { input, positions, schema, properties: Arc::new(properties) }
    }
}

impl DisplayAs for OutputColumnsExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let input = self.input.schema();
        let fields = self.positions.iter().filter_map(|position| input.fields().get(*position));
        let names: Vec<&str> = fields.map(|field| field.name().as_str()).collect();
        write!(f, "OutputColumnsExec: columns=[{}]", names.join(", "))
    }
}

impl ExecutionPlan for OutputColumnsExec {
    fn name(&self) -> &str {
        "OutputColumnsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match children.pop() {
            Some(input) => {
                Ok(Arc::new(Self::new(input, Arc::clone(&self.positions), Arc::clone(&self.schema))))
            }
            None => plan_err!("columns of no rows"),
        }
    }

    millrace_matching::opaque!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (positions, schema) = (Arc::clone(&self.positions), Arc::clone(&self.schema));
        let rows = self.input.execute(partition, context)?.map(move |batch| {
            let batch = batch?;
            let columns = positions.iter().filter_map(|position| batch.columns().get(*position));
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            let columns = columns.cloned().collect();
            Ok(RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)?)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), rows)))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::logical_expr::{LogicalPlanBuilder, logical_plan::table_scan};
    use datafusion::optimizer::optimize_projections::OptimizeProjections;
    use datafusion::optimizer::{Optimizer, OptimizerContext};

    use super::*;

    fn plan(fields: usize) -> LogicalPlan {
        let fields: Vec<Field> =
            (0..fields).map(|at| Field::new(format!("f{at}"), DataType::Int64, true)).collect();
        table_scan(Some("t"), &Schema::new(fields), None).and_then(LogicalPlanBuilder::build).unwrap()
    }

    fn columns(range: impl Iterator<Item = usize>) -> Vec<Expr> {
        range.map(|at| Expr::Column(Column::new(Some("t"), format!("f{at}")))).collect()
    }

    #[test]
    fn positions_follow_the_columns_that_the_optimizer_leaves() {
        let exprs = columns((0..MIN_COLUMNS).rev().map(|at| at * 2));
        let plan = OutputColumns::plan_columns(&plan(MIN_COLUMNS * 2), exprs.iter()).unwrap().unwrap();
        let optimizer = Optimizer::with_rules(vec![Arc::new(OptimizeProjections::new())]);
        let optimized = optimizer.optimize(plan, &OptimizerContext::new(), |_, _| {}).unwrap();
        let node = OutputColumns::from_plan(&optimized).unwrap();
        assert_eq!(node.input().schema().fields().len(), MIN_COLUMNS);
        let names: Vec<String> = node.columns().map(|column| column.name).collect();
        let expected: Vec<String> = (0..MIN_COLUMNS).rev().map(|at| format!("f{}", at * 2)).collect();
        assert_eq!(names, expected);
        assert_eq!(node.schema.fields().first().map(|field| field.name().as_str()), Some("c0"));
    }

    #[test]
    fn other_expressions_and_few_columns_are_projected() {
        let plan = plan(MIN_COLUMNS + 1);
        let few = columns(0..MIN_COLUMNS - 1);
        assert!(OutputColumns::plan_columns(&plan, few.iter()).unwrap().is_none());
        let mut computed = columns(0..MIN_COLUMNS);
        computed.push(computed[0].clone().is_null());
        assert!(OutputColumns::plan_columns(&plan, computed.iter()).unwrap().is_none());
        let unknown = columns(MIN_COLUMNS..MIN_COLUMNS * 2 + 1);
        assert!(OutputColumns::plan_columns(&plan, unknown.iter()).unwrap().is_none());
    }
}
