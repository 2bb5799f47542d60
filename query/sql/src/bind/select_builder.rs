//! The plan of a SELECT above its conditions: groups, window functions, DISTINCT, the count of its rows, order, and the cut.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, ExprSchema};
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::utils::find_window_exprs;
use datafusion::logical_expr::{
    Case, Expr, ExprFunctionExt, Extension, LogicalPlan, LogicalPlanBuilder, SortExpr,
    WindowFunctionDefinition, lit,
};
use datafusion::scalar::ScalarValue;

use super::grouping::{AddressBits, aggregate, grouped_expr, rewritten};
use super::grouping_sets::GroupingSets;
use super::output::{Item, OutColumn};
use super::relation::output;
use super::subquery::{Correlation, hidden};
use super::{Binder, Bound};
use crate::count::RowCount;
use crate::error::{Result, SqlError};
use crate::output_columns::OutputColumns;

/// A SELECT while its plan is built; items and orders are in terms of the plan.
pub(super) struct SelectBuilder {
    pub(super) plan: LogicalPlan,
    pub(super) items: Vec<Item>,
    pub(super) sorts: Vec<SortExpr>,
    /// Keys that a correlated subquery is joined on.
    pub(super) keys: Vec<Expr>,
}

/// The values that aggregates have over no row, by their columns.
pub(super) type Defaults = Vec<(Expr, Expr)>;

/// Group keys and aggregates of a SELECT.
pub(super) struct Grouping {
    pub(super) groups: Vec<Bound>,
    pub(super) sets: Option<GroupingSets>,
    pub(super) aggregates: Vec<Expr>,
    pub(super) having: Option<Expr>,
    pub(super) bits: AddressBits,
    /// True for a SELECT with GROUP BY: keys of a correlated subquery are groups, too.
    pub(super) grouped: bool,
}

impl SelectBuilder {
    /// Adds groups, aggregates, and the condition on them.
    pub(super) fn group(self, grouping: Grouping, binder: &mut Binder<'_>) -> Result<(Self, Defaults)> {
        let Self { plan, mut items, mut sorts, mut keys } = self;
        let Grouping { groups, sets, aggregates, having, bits, grouped } = grouping;
        let counts: Vec<bool> = aggregates.iter().map(is_count).collect();
        let (mut plan, mut replaced) = aggregate(plan, &groups, sets.as_ref(), aggregates, &bits)?;
        let mut having = having;
        // Subqueries that are left meet groups.
        let exprs = items.iter().map(|item| &item.bound.expr).chain(sorts.iter().map(|sort| &sort.expr));
        let numbers = binder.subqueries_in(exprs.chain(&having));
        if !numbers.is_empty() {
            binder.map_subqueries(&numbers, |expr| grouped_expr(expr, &replaced, "subquery", grouped))?;
            let base = plan.clone();
            plan = binder.attach(plan, &base, &numbers, &mut replaced)?;
        }
        for item in &mut items {
            item.bound.list &= !groups.iter().any(|group| group.list && group.expr == item.bound.expr);
            item.column.list = item.bound.list;
            item.bound.expr = grouped_expr(&item.bound.expr, &replaced, &item.column.name, grouped)?;
        }
        for sort in &mut sorts {
            sort.expr = grouped_expr(&sort.expr, &replaced, "ORDER BY", grouped)?;
        }
        for key in &mut keys {
            *key = rewritten(key, &replaced)?;
        }
        if let Some(condition) = having.take() {
            let mut having = grouped_expr(&condition, &replaced, "HAVING", grouped)?;
            if groups.is_empty() {
                // A condition that reads nothing would be moved below the aggregation, which makes a row of no rows.
                let made = Expr::Column(Column::new_unqualified("a0"));
                let always = made.clone().is_null().or(made.is_not_null());
                having = Expr::Case(Case::new(None, vec![(Box::new(always), Box::new(having))], None));
            }
            plan = LogicalPlanBuilder::new(plan).filter(having)?.build()?;
        }
        let defaults = counts.into_iter().enumerate().map(|(at, counts)| {
            let column = Column::new_unqualified(format!("a{at}"));
            let value = match counts {
                true => ScalarValue::Int64(Some(0)),
                false => ScalarValue::try_from(plan.schema().field_from_column(&column)?.data_type())?,
            };
            Ok::<_, SqlError>((Expr::Column(column), Expr::Literal(value, None)))
        });
        let defaults = defaults.collect::<Result<_>>()?;
        Ok((Self { plan, items, sorts, keys }, defaults))
    }

    /// Makes the value that the only column of a correlated aggregation has over no row; `None` where rows tell it.
    pub(super) fn default_value(
        &self,
        defaults: &Defaults,
        correlation: &Correlation,
    ) -> Result<Option<Expr>> {
        let [item] = self.items.as_slice() else { return Ok(None) };
        let keys = self.keys.iter().zip(&correlation.keys);
        let keys = keys.map(|(own, key)| (own.clone(), key.outer.clone()));
        let replaced: Vec<(Expr, Expr)> = defaults.iter().cloned().chain(keys).collect();
        let known = |column: &&Column| {
            replaced.iter().any(|(from, _)| matches!(from, Expr::Column(own) if own == *column))
        };
        let expr = &item.bound.expr;
        match expr.column_refs().iter().all(known) {
            true => rewritten(expr, &replaced).map(Some),
            false => Ok(None),
        }
    }

    /// Has windows be ones of the rows of an outer row.
    pub(super) fn partition_windows(&mut self) -> Result<()> {
        if self.keys.is_empty() {
            return Ok(());
        }
        let keys = self.keys.clone();
        let partitioned = |expr: Expr| {
            Ok(match expr {
                Expr::WindowFunction(mut window) => {
                    window.params.partition_by.extend(keys.iter().cloned());
                    Transformed::yes(Expr::WindowFunction(window))
                }
                other => Transformed::no(other),
            })
        };
        let items = self.items.iter_mut().map(|item| &mut item.bound.expr);
        for expr in items.chain(self.sorts.iter_mut().map(|sort| &mut sort.expr)) {
            *expr = expr.clone().transform_up(partitioned).data()?;
        }
        Ok(())
    }

    /// Lists the window functions of items and orders.
    pub(super) fn windows(&self) -> Vec<Expr> {
        let items = self.items.iter().map(|item| &item.bound.expr);
        find_window_exprs(items.chain(self.sorts.iter().map(|sort| &sort.expr)))
    }

    /// Adds window functions.
    pub(super) fn window(self, windows: Vec<Expr>) -> Result<Self> {
        let Self { plan, mut items, mut sorts, keys } = self;
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
        Ok(Self { plan, items, sorts, keys })
    }

    /// Lists the expressions of the output columns under their names.
    fn outputs(&self) -> Vec<Expr> {
        outputs(&self.items, &self.keys)
    }

    /// Leaves one row of those with the same output columns.
    pub(super) fn distinct(self) -> Result<Self> {
        let outputs = self.outputs();
        let Self { plan, items, mut sorts, mut keys } = self;
        let plan = LogicalPlanBuilder::new(plan).project(outputs)?.build()?;
        for (at, key) in keys.iter_mut().enumerate() {
            *key = Expr::Column(Column::new_unqualified(hidden(at)));
        }
        let all: Vec<Expr> = (0..items.len()).map(output).chain(keys.iter().cloned()).collect();
        let plan = LogicalPlanBuilder::new(plan).aggregate(all, Vec::<Expr>::new())?.build()?;
        for sort in &mut sorts {
            let at = items.iter().position(|item| item.bound.expr == sort.expr).ok_or_else(|| {
                SqlError::Semantic("ORDER BY has to name an output column of SELECT DISTINCT".to_owned())
            })?;
            sort.expr = output(at);
        }
        Ok(Self { plan, items, sorts, keys })
    }

    /// Returns the order by output columns, as far as these tell it.
    pub(super) fn order(&self) -> Vec<SortExpr> {
        let column = |sort: &SortExpr| {
            let at = self.items.iter().position(|item| item.bound.expr == sort.expr);
            let at = at.or_else(|| (0..self.items.len()).find(|at| output(*at) == sort.expr))?;
            Some(SortExpr::new(output(at), sort.asc, sort.nulls_first))
        };
        self.sorts.iter().map_while(column).collect()
    }

    /// Has a node of the plan count its rows.
    pub(super) fn counted(self) -> (Self, Arc<AtomicU64>) {
        let counter = Arc::new(AtomicU64::new(0));
        let node = RowCount::new(self.plan, Arc::clone(&counter));
        let plan = LogicalPlan::Extension(Extension { node: Arc::new(node) });
        (Self { plan, ..self }, counter)
    }

    /// Adds order and cut, and leaves the output columns; returns the plan and what its columns are. No condition is put above the
    /// plan where it is `outermost`.
    pub(super) fn finish(
        self,
        sorted: bool,
        (skip, limit): (usize, Option<usize>),
        distinct: bool,
        outermost: bool,
    ) -> Result<(LogicalPlan, Vec<OutColumn>)> {
        let Self { plan, items, sorts, keys } = self;
        let mut builder = LogicalPlanBuilder::new(plan);
        if sorted {
            builder = builder.sort(sorts)?;
        }
        if skip > 0 || limit.is_some() {
            builder = builder.limit(skip, limit)?;
        }
        let plan = builder.build()?;
        let wide = match outermost && !distinct && keys.is_empty() {
            true => OutputColumns::plan_columns(&plan, items.iter().map(|item| &item.bound.expr))?,
            false => None,
        };
        let plan = match wide {
            Some(plan) => plan,
            None => {
                let outputs = match distinct {
                    true => (0..items.len()).map(output).collect(),
                    false => outputs(&items, &keys),
                };
                LogicalPlanBuilder::new(plan).project(outputs)?.build()?
            }
        };
        Ok((plan, items.into_iter().map(|item| item.column).collect()))
    }

    /// Cuts the rows of each outer row, and leaves the output columns and those that the subquery is joined on.
    pub(super) fn finish_correlated(
        self,
        (skip, limit): (usize, Option<usize>),
        distinct: bool,
    ) -> Result<(LogicalPlan, Vec<OutColumn>)> {
        let outputs = match distinct {
            true => (0..self.items.len()).map(output).chain(self.keys.iter().cloned()).collect(),
            false => self.outputs(),
        };
        let mut builder = LogicalPlanBuilder::new(self.plan);
        if skip > 0 || limit.is_some() {
            let number = WindowFunctionDefinition::WindowUDF(row_number_udwf());
            let number = Expr::from(WindowFunction::new(number, Vec::new()))
                .partition_by(self.keys)
                .order_by(self.sorts)
                .build()?;
            let column = Expr::Column(Column::new_unqualified(number.schema_name().to_string()));
            let number_of = |rows: usize| lit(u64::try_from(rows).unwrap_or(u64::MAX));
            builder = builder.window(vec![number])?.filter(column.clone().gt(number_of(skip)))?;
            if let Some(limit) = limit {
                builder = builder.filter(column.lt_eq(number_of(skip.saturating_add(limit))))?;
            }
        }
        let plan = builder.project(outputs)?.build()?;
        Ok((plan, self.items.into_iter().map(|item| item.column).collect()))
    }
}

/// Lists the expressions of output columns, and of keys, under their names.
fn outputs(items: &[Item], keys: &[Expr]) -> Vec<Expr> {
    let items = items.iter().enumerate();
    let items = items.map(|(at, item)| item.bound.expr.clone().alias(format!("c{at}")));
    let keys = keys.iter().enumerate().map(|(at, key)| key.clone().alias(hidden(at)));
    items.chain(keys).collect()
}

/// Returns true for an aggregate that is 0 over no row.
fn is_count(aggregate: &Expr) -> bool {
    matches!(aggregate, Expr::AggregateFunction(function) if function.func.name() == "count")
}
