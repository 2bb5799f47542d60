//! Expressions of a scan's columns that the first step of an aggregation computes.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result as PlanResult;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::Volatility;
use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::PhysicalExpr;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::projection::ProjectionExec;

use crate::node_rewriter::inlined;

/// Groups and aggregates over the columns of a scan.
pub(super) struct GroupsRequest {
    /// Group keys.
    pub groups: Vec<Arc<dyn PhysicalExpr>>,
    /// Aggregates of each group.
    pub aggregates: Vec<Aggregate>,
}

/// An aggregate, and what it is given.
pub(super) struct Aggregate {
    function: Arc<AggregateFunctionExpr>,
    arguments: Vec<Arc<dyn PhysicalExpr>>,
}

impl GroupsRequest {
    /// Takes what an aggregation computes of what a projection may have made of a scan.
    pub(super) fn new(first: &AggregateExec, projection: Option<&ProjectionExec>) -> PlanResult<Self> {
        let of_scan = |exprs: Vec<Arc<dyn PhysicalExpr>>| match projection {
            None => Ok(exprs),
            Some(projection) => exprs.into_iter().map(|expr| inlined(expr, projection)).collect(),
        };
        let aggregate = |function: &Arc<AggregateFunctionExpr>| {
            let arguments = of_scan(function.expressions())?;
            Ok(Aggregate { function: Arc::clone(function), arguments })
        };
        Ok(Self {
            groups: of_scan(first.group_expr().input_exprs())?,
            aggregates: first.aggr_expr().iter().map(aggregate).collect::<PlanResult<_>>()?,
        })
    }

    /// Returns whether groups are of columns, and the same wherever these have the same values.
    pub(super) fn groups_by_columns(&self) -> bool {
        let has_column = |expr| !collect_columns(expr).is_empty();
        self.groups.iter().all(is_repeatable) && self.groups.iter().any(has_column)
    }
}

/// Returns whether an expression has the same value wherever its columns have.
pub(crate) fn is_repeatable(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let mut repeatable = true;
    let walked = expr.apply(|part| {
        let call = part.downcast_ref::<ScalarFunctionExpr>();
        repeatable &= call.is_none_or(|call| call.fun().signature().volatility != Volatility::Volatile);
        Ok(TreeNodeRecursion::Continue)
    });
    walked.is_ok() && repeatable
}

impl Aggregate {
    /// Returns the name of its function, if no order matters.
    pub(super) fn name(&self) -> Option<&str> {
        self.function.order_bys().is_empty().then(|| self.function.fun().name())
    }

    /// Returns whether equal values count once.
    pub(super) fn is_distinct(&self) -> bool {
        self.function.is_distinct()
    }

    /// Returns whether it counts rows: its argument is there in each.
    pub(super) fn counts_rows(&self) -> bool {
        let value = |expr: &Arc<dyn PhysicalExpr>| {
            expr.downcast_ref::<Literal>().is_some_and(|literal| !literal.value().is_null())
        };
        self.name() == Some("count") && !self.is_distinct() && self.arguments.iter().all(value)
    }

    /// Returns the place of the column that is its only argument.
    pub(super) fn column(&self) -> Option<usize> {
        match self.arguments.as_slice() {
            [argument] => argument.downcast_ref::<Column>().map(Column::index),
            _ => None,
        }
    }

    /// Returns the type of its state, if that is one value.
    pub(super) fn state(&self) -> PlanResult<Option<DataType>> {
        Ok(match self.function.state_fields()?.as_slice() {
            [state] => Some(state.data_type().clone()),
            _ => None,
        })
    }
}
