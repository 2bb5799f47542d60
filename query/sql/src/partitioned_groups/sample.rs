//! Keys of the first rows, counted by their hashes.

use std::collections::HashSet;

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::common::Result as PlanResult;
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::physical_plan::aggregates::AggregateExec;

/// Least share of rows with keys of their own, in tenths: that of DataFusion, which skips its first step then.
const OWN_KEYS: usize = 8;
/// Rows that are looked at first.
const FIRST_ROWS: usize = 8_192;

/// Returns whether most rows have keys of their own, or values where distinct ones are counted.
pub(super) fn has_own_keys(aggregate: &AggregateExec, rows: &RecordBatch) -> PlanResult<bool> {
    let mut exprs = aggregate.group_expr().input_exprs();
    for function in aggregate.aggr_expr().iter().filter(|function| function.is_distinct()) {
        exprs.extend(function.expressions());
    }
    // Equal keys repeat in few rows already, most often.
    for count in [FIRST_ROWS.min(rows.num_rows()), rows.num_rows()] {
        let rows = rows.slice(0, count);
        let values = exprs.iter().map(|expr| expr.evaluate(&rows)?.into_array(count));
        let values = values.collect::<PlanResult<Vec<ArrayRef>>>()?;
        let mut hashes = vec![0; count];
        create_hashes(&values, &RandomState::with_seed(1), &mut hashes)?;
        let distinct: HashSet<u64> = hashes.into_iter().collect();
        if distinct.len() * 10 < count * OWN_KEYS {
            return Ok(false);
        }
    }
    Ok(true)
}
