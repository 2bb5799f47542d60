//! Aggregates of floating point numbers over frames whose start moves.
//!
//! DataFusion subtracts the rows that leave a frame, which loses digits: `1e17` leaves an error behind that later rows keep. Here a
//! frame is a queue of two stacks. Rows enter the newer one, which is aggregated as it grows. Where the older one is empty, the rows
//! of the newer one move there, each with the state of all rows from it on. So each row is aggregated twice, and none is subtracted.

use std::mem::take;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::Result as PlanResult;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature};
use datafusion::physical_plan::PhysicalExpr;
use datafusion::scalar::ScalarValue;

/// Makes an aggregate one that loses no digits over frames whose start moves.
pub(crate) fn sliding(inner: Arc<AggregateUDF>) -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(SlidingAggregate { inner }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SlidingAggregate {
    inner: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for SlidingAggregate {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> PlanResult<DataType> {
        self.inner.return_type(arg_types)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        self.inner.accumulator(args)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        let factory = AccumulatorFactory {
            inner: Arc::clone(&self.inner),
            return_field: args.return_field,
            schema: args.schema.clone(),
            name: args.name.to_owned(),
            exprs: args.exprs.to_vec(),
            expr_fields: args.expr_fields.to_vec(),
        };
        let newer = factory.accumulator()?;
        Ok(Box::new(SlidingAccumulator { factory, newer, rows: Vec::new(), older: Vec::new() }))
    }
}

/// Makes empty accumulators.
#[derive(Debug)]
struct AccumulatorFactory {
    inner: Arc<AggregateUDF>,
    return_field: FieldRef,
    schema: Schema,
    name: String,
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    expr_fields: Vec<FieldRef>,
}

impl AccumulatorFactory {
    fn accumulator(&self) -> PlanResult<Box<dyn Accumulator>> {
        self.inner.accumulator(AccumulatorArgs {
            return_field: Arc::clone(&self.return_field),
            schema: &self.schema,
            ignore_nulls: false,
            order_bys: &[],
            is_reversed: false,
            name: &self.name,
            is_distinct: false,
            exprs: &self.exprs,
            expr_fields: &self.expr_fields,
        })
    }
}

/// The queue of the rows of a frame.
#[derive(Debug)]
struct SlidingAccumulator {
    factory: AccumulatorFactory,
    /// Aggregate of the newer rows.
    newer: Box<dyn Accumulator>,
    /// The newer rows, as they came.
    rows: Vec<Vec<ArrayRef>>,
    /// For each older row, the latest first, the state of the older rows from it on.
    older: Vec<Vec<ScalarValue>>,
}

impl SlidingAccumulator {
    /// Makes the newer rows older ones.
    fn turn(&mut self) -> PlanResult<()> {
        let mut suffix = self.factory.accumulator()?;
        for batch in take(&mut self.rows).into_iter().rev() {
            for row in (0..batch.first().map_or(0, |column| column.len())).rev() {
                let row: Vec<ArrayRef> = batch.iter().map(|column| column.slice(row, 1)).collect();
                suffix.update_batch(&row)?;
                self.older.push(suffix.state()?);
            }
        }
        self.newer = self.factory.accumulator()?;
        Ok(())
    }
}

impl Accumulator for SlidingAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.newer.update_batch(values)?;
        self.rows.push(values.to_vec());
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        for _ in 0..values.first().map_or(0, |column| column.len()) {
            if self.older.is_empty() {
                self.turn()?;
            }
            self.older.pop();
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        let Some(older) = self.older.last().cloned() else { return self.newer.evaluate() };
        let mut both = self.factory.accumulator()?;
        for state in [older, self.newer.state()?] {
            let state = state.iter().map(ScalarValue::to_array).collect::<PlanResult<Vec<_>>>()?;
            both.merge_batch(&state)?;
        }
        both.evaluate()
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        self.newer.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> PlanResult<()> {
        self.newer.merge_batch(states)
    }

    fn size(&self) -> usize {
        let state = self.older.last().map_or(0, |state| state.len() * size_of::<ScalarValue>());
        size_of::<Self>() + self.newer.size() + self.older.len() * state
    }
}
