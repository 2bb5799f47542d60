//! The plan of a SELECT above its conditions: groups, window functions, DISTINCT, the count of its rows, order, and the cut.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use datafusion::common::Column;
use datafusion::logical_expr::utils::find_window_exprs;
use datafusion::logical_expr::{Case, Expr, Extension, LogicalPlan, LogicalPlanBuilder, SortExpr};

use super::Bound;
use super::grouping::{AddressBits, aggregate, grouped_expr, rewritten};
use super::output::{Item, OutColumn};
use crate::count::RowCount;
use crate::error::{Result, SqlError};

/// A SELECT while its plan is built; items and orders are in terms of the plan.
pub(super) struct SelectBuilder {
    pub(super) plan: LogicalPlan,
    pub(super) items: Vec<Item>,
    pub(super) sorts: Vec<SortExpr>,
}

/// Group keys and aggregates of a SELECT.
pub(super) struct Grouping {
    pub(super) groups: Vec<Bound>,
    pub(super) aggregates: Vec<Expr>,
    pub(super) having: Option<Expr>,
    pub(super) bits: AddressBits,
}

/// Refers to an output column.
fn output(at: usize) -> Expr {
    Expr::Column(Column::new_unqualified(format!("c{at}")))
}

impl SelectBuilder {
    /// Adds groups, aggregates, and the condition on them.
    pub(super) fn group(self, grouping: Grouping) -> Result<Self> {
        let Self { plan, mut items, mut sorts } = self;
        let Grouping { groups, aggregates, having, bits } = grouping;
        let (mut plan, replaced) = aggregate(plan, &groups, aggregates, &bits)?;
        for item in &mut items {
            item.bound.list &= !groups.iter().any(|group| group.list && group.expr == item.bound.expr);
            item.column.list = item.bound.list;
            item.bound.expr =
                grouped_expr(&item.bound.expr, &replaced, &item.column.name, !groups.is_empty())?;
        }
        for sort in &mut sorts {
            sort.expr = grouped_expr(&sort.expr, &replaced, "ORDER BY", !groups.is_empty())?;
        }
        if let Some(having) = having {
            let mut having = grouped_expr(&having, &replaced, "HAVING", !groups.is_empty())?;
            if groups.is_empty() {
                // A condition that reads nothing would be moved below the aggregation, which makes a row of no rows.
                let made = Expr::Column(Column::new_unqualified("a0"));
                let always = made.clone().is_null().or(made.is_not_null());
                having = Expr::Case(Case::new(None, vec![(Box::new(always), Box::new(having))], None));
            }
            plan = LogicalPlanBuilder::new(plan).filter(having)?.build()?;
        }
        Ok(Self { plan, items, sorts })
    }

    /// Lists the window functions of items and orders.
    pub(super) fn windows(&self) -> Vec<Expr> {
        let items = self.items.iter().map(|item| &item.bound.expr);
        find_window_exprs(items.chain(self.sorts.iter().map(|sort| &sort.expr)))
    }

    /// Adds window functions.
    pub(super) fn window(self, windows: Vec<Expr>) -> Result<Self> {
        let Self { plan, mut items, mut sorts } = self;
        let plan = LogicalPlanBuilder::window_plan(plan, windows.clone())?;
        let replaced = windows.into_iter().map(|window| {
            let column = Expr::Column(Column::new_unqualified(window.schema_name().to_string()));
            (window, column)
        });
        let replaced: Vec<(Expr, Expr)> = replaced.collect();
        for item in &mut items {
            item.bound.expr = rewritten(&item.bound.expr, &replaced)?;
        }
        for sort in &mut sorts {
            sort.expr = rewritten(&sort.expr, &replaced)?;
        }
        Ok(Self { plan, items, sorts })
    }

    /// Lists the expressions of the output columns under their names.
    fn outputs(&self) -> Vec<Expr> {
        let items = self.items.iter().enumerate();
        items.map(|(at, item)| item.bound.expr.clone().alias(format!("c{at}"))).collect()
    }

    /// Leaves one row of those with the same output columns.
    pub(super) fn distinct(self) -> Result<Self> {
        let outputs = self.outputs();
        let Self { plan, items, mut sorts } = self;
        let plan = LogicalPlanBuilder::new(plan).project(outputs)?.build()?;
        let all: Vec<Expr> = (0..items.len()).map(output).collect();
        let plan = LogicalPlanBuilder::new(plan).aggregate(all, Vec::<Expr>::new())?.build()?;
        for sort in &mut sorts {
            let at = items.iter().position(|item| item.bound.expr == sort.expr).ok_or_else(|| {
                SqlError::Semantic("ORDER BY has to name an output column of SELECT DISTINCT".to_owned())
            })?;
            sort.expr = output(at);
        }
        Ok(Self { plan, items, sorts })
    }

    /// Has a node of the plan count its rows.
    pub(super) fn counted(self) -> (Self, Arc<AtomicU64>) {
        let counter = Arc::new(AtomicU64::new(0));
        let node = RowCount::new(self.plan, Arc::clone(&counter));
        let plan = LogicalPlan::Extension(Extension { node: Arc::new(node) });
        (Self { plan, ..self }, counter)
    }

    /// Adds order and cut, and leaves the output columns; returns the plan and what its columns are.
    pub(super) fn finish(
        self,
        sorted: bool,
        (skip, limit): (usize, Option<usize>),
        distinct: bool,
    ) -> Result<(LogicalPlan, Vec<OutColumn>)> {
        let outputs = match distinct {
            true => (0..self.items.len()).map(output).collect(),
            false => self.outputs(),
        };
        let mut builder = LogicalPlanBuilder::new(self.plan);
        if sorted {
            builder = builder.sort(self.sorts)?;
        }
        if skip > 0 || limit.is_some() {
            builder = builder.limit(skip, limit)?;
        }
        let plan = builder.project(outputs)?.build()?;
        Ok((plan, self.items.into_iter().map(|item| item.column).collect()))
    }
}
