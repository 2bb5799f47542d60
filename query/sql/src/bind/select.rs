//! SELECT: its clauses in their logical order, and the plan of it all.
//!
//! Columns have internal names in the plan (`g0` a group, `a0` an aggregate, `c0` an output), because two
//! output columns may have one name and DataFusion refuses that; the writer of the answer gives them the names that the
//! user wrote.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use datafusion::common::JoinType;
use datafusion::logical_expr::utils::find_aggregate_exprs;
use datafusion::logical_expr::{Expr, LogicalPlan, SortExpr};
use millrace_matching::table::ScanHandle;
use millrace_matching::table::predicate_udf::holds_predicate;
use sqlparser::ast;

use super::from::ScanPlan;
use super::grouping::AddressBits;
use super::output::{Item, OutColumn};
use super::select_builder::{Grouping, SelectBuilder};
use super::{Binder, Bound, ExpressionContext, Scope, unsupported};
use crate::error::{Result, SqlError};

/// Deepest queries in FROM.
const MAX_DERIVED: usize = 16;

/// Source of the number of matching rows.
#[derive(Debug)]
pub(crate) enum Total {
    /// There are as many as are answered.
    Answered,
    /// They are counted as they pass.
    Counted(Arc<AtomicU64>),
    /// A plan without columns counts them, where the answer was cut.
    ByPlan(Box<LogicalPlan>),
    /// The scan has counted them once there is an answer.
    ByScan(Arc<ScanHandle>),
}

/// A bound query.
#[derive(Debug)]
pub(crate) struct PlannedQuery {
    /// The plan; its columns are those of `columns`.
    pub plan: LogicalPlan,
    /// Output columns.
    pub columns: Vec<OutColumn>,
    /// Source of the number of matching rows.
    pub total: Total,
    /// Rows that are skipped, and most that are answered.
    pub cut: (usize, Option<usize>),
    /// `true` if the plan leaves the cut to its caller, which counts all rows.
    pub uncut: bool,
    /// `true` if a condition is left to the plan, which the index cannot answer.
    pub residual: bool,
    /// `true` if rows come as they are read, not after all have been.
    pub streams: bool,
}

impl Binder<'_> {
    /// Binds a query; `default_limit` is how many rows it answers where it does not say.
    pub(crate) fn query(
        &mut self,
        query: &ast::Query,
        default_limit: Option<usize>,
        depth: usize,
    ) -> Result<PlannedQuery> {
        let select = select_of(query, depth)?;
        let (skip, limit) = self.cut_of(query.limit_clause.as_ref())?;
        let limit = limit.or(default_limit);
        let mut on = Vec::new();
        let mut scope = Scope {
            sources: self.sources(&select.from, &mut on, depth)?,
            aliases: aliases(select),
            following: false,
        };
        let conditions = self.conditions(select.selection.as_ref(), &mut scope)?;
        let joins = self.joins(on, &mut scope)?;
        let items = self.items(select, &mut scope)?;
        let groups = self.groups(select, &items, &mut scope)?;
        let having = match &select.having {
            None => None,
            Some(having) => {
                let having = self.expr(having, &mut scope, ExpressionContext::Aliased)?;
                Some(self.truth(having)?.expr)
            }
        };
        let sorts = self.sorts(query.order_by.as_ref(), &items, &mut scope)?;
        let mut exprs: Vec<&Expr> = items.iter().map(|item| &item.bound.expr).collect();
        exprs.extend(&having);
        exprs.extend(sorts.iter().map(|sort| &sort.expr));
        exprs.extend(groups.iter().map(|group| &group.expr));
        exprs.extend(joins.iter().filter_map(|(_, on)| on.as_ref()));
        if exprs.iter().any(|expr| holds_predicate(expr)) {
            return unsupported(
                "a relevance function, or LIKE on a text field without a keyword field, which the index answers over its terms, outside of WHERE",
            );
        }
        let aggregates = find_aggregate_exprs(exprs);
        let aggregated = !groups.is_empty() || !aggregates.is_empty() || having.is_some();
        let bits = AddressBits::new(&mut scope.sources, &groups, &aggregates);
        let ScanPlan { plan, count, residual } = self.scan(scope.sources, joins, conditions)?;
        let mut building = SelectBuilder { plan, items, sorts };
        if aggregated {
            building = building.group(Grouping { groups, aggregates, having, bits })?;
        }
        let windows = building.windows();
        let windowed = !windows.is_empty();
        if windowed {
            building = building.window(windows)?;
        }
        let distinct = is_distinct(select)?;
        if distinct {
            building = building.distinct()?;
        }
        // None of the rows have no order.
        let sorted = !building.sorts.is_empty() && limit != Some(0);
        let scanned = count.filter(|_| !aggregated && !distinct && !residual);
        let streams = scanned.is_some() && !sorted && !windowed;
        let total = match scanned {
            Some(count) if sorted => Total::ByScan(count.by_scan),
            Some(count) => Total::ByPlan(Box::new(count.plan)),
            None if depth > 0 => Total::Answered,
            None => {
                let (counted, counter) = building.counted();
                building = counted;
                Total::Counted(counter)
            }
        };
        // What ends early counts only what it has read.
        let uncut = !sorted && matches!(total, Total::Counted(_));
        let planned_cut = if uncut { (0, None) } else { (skip, limit) };
        let (plan, columns) = building.finish(sorted, planned_cut, distinct)?;
        Ok(PlannedQuery { plan, columns, total, cut: (skip, limit), uncut, residual, streams })
    }

    /// Binds the conditions of joins.
    fn joins(
        &mut self,
        on: Vec<(JoinType, Option<ast::Expr>)>,
        scope: &mut Scope,
    ) -> Result<Vec<(JoinType, Option<Expr>)>> {
        let mut joins = Vec::with_capacity(on.len());
        for (kind, condition) in on {
            let condition = match condition {
                None => None,
                Some(condition) => {
                    let condition = self.expr(&condition, scope, ExpressionContext::Row)?;
                    Some(self.truth(condition)?.expr)
                }
            };
            joins.push((kind, condition));
        }
        Ok(joins)
    }

    /// Binds LIMIT and OFFSET.
    fn cut_of(&mut self, clause: Option<&ast::LimitClause>) -> Result<(usize, Option<usize>)> {
        match clause {
            None => Ok((0, None)),
            Some(ast::LimitClause::OffsetCommaLimit { offset, limit }) => {
                Ok((self.whole(offset)?.unwrap_or(0), self.whole(limit)?))
            }
            Some(ast::LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
                let offset = offset.as_ref().map(|offset| self.whole(&offset.value)).transpose()?;
                let limit = limit.as_ref().map(|limit| self.whole(limit)).transpose()?;
                Ok((offset.flatten().unwrap_or(0), limit.flatten()))
            }
            Some(_) => unsupported("LIMIT BY"),
        }
    }

    /// Binds WHERE, condition by condition.
    fn conditions(&mut self, selection: Option<&ast::Expr>, scope: &mut Scope) -> Result<Vec<Bound>> {
        let mut conditions = Vec::new();
        let mut rest = selection;
        while let Some(condition) = rest {
            let (last, before) = match condition {
                ast::Expr::BinaryOp { left, op: ast::BinaryOperator::And, right } => {
                    (right.as_ref(), Some(left.as_ref()))
                }
                ast::Expr::Nested(inner) => {
                    rest = Some(inner);
                    continue;
                }
                other => (other, None),
            };
            let last = self.expr(last, scope, ExpressionContext::Row)?;
            conditions.push(self.truth(last)?);
            rest = before;
        }
        conditions.reverse();
        Ok(conditions)
    }

    /// Binds GROUP BY.
    fn groups(&mut self, select: &ast::Select, items: &[Item], scope: &mut Scope) -> Result<Vec<Bound>> {
        let exprs = match &select.group_by {
            ast::GroupByExpr::Expressions(exprs, modifiers) if modifiers.is_empty() => exprs,
            _ => return unsupported("GROUP BY with modifiers"),
        };
        let mut groups: Vec<Bound> = Vec::with_capacity(exprs.len());
        for expr in exprs {
            let bound = match ordinal(expr, items.len())? {
                Some(at) => items.get(at).map(|item| item.bound.clone()).ok_or_else(|| {
                    SqlError::Semantic(format!("Group by ordinal [{expr}] is out of bound"))
                })?,
                None => self.expr(expr, scope, ExpressionContext::Aliased)?,
            };
            self.repeat(&bound.expr, 1)?;
            if !groups.iter().any(|group| group.expr == bound.expr) {
                groups.push(bound);
            }
        }
        Ok(groups)
    }

    /// Binds ORDER BY.
    fn sorts(
        &mut self,
        order_by: Option<&ast::OrderBy>,
        items: &[Item],
        scope: &mut Scope,
    ) -> Result<Vec<SortExpr>> {
        let Some(order_by) = order_by else { return Ok(Vec::new()) };
        let ast::OrderByKind::Expressions(keys) = &order_by.kind else { return unsupported("ORDER BY ALL") };
        let mut sorts = Vec::with_capacity(keys.len());
        for key in keys {
            let sort = match ordinal(&key.expr, items.len())? {
                Some(at) => {
                    let bound = items.get(at).map(|item| item.bound.clone()).ok_or_else(|| {
                        SqlError::Semantic(format!("Sort ordinal [{}] is out of bound", key.expr))
                    })?;
                    self.repeat(&bound.expr, 1)?;
                    let ascending = key.options.asc.unwrap_or(true);
                    let nulls_first = key.options.nulls_first.unwrap_or(false);
                    SortExpr::new(bound.single().expr, ascending, nulls_first)
                }
                None => self.sort_key(key, scope)?,
            };
            sorts.push(sort);
        }
        Ok(sorts)
    }
}

/// Takes the SELECT that a query is, and refuses what else it may be or hold.
fn select_of(query: &ast::Query, depth: usize) -> Result<&ast::Select> {
    if depth > MAX_DERIVED {
        return Err(SqlError::TooLarge(format!(
            "queries in FROM are nested deeper than {MAX_DERIVED} levels"
        )));
    }
    if query.with.is_some() {
        return unsupported("WITH");
    }
    if query.fetch.is_some() || !query.locks.is_empty() || query.for_clause.is_some() {
        return unsupported("FETCH and FOR");
    }
    let select = match query.body.as_ref() {
        ast::SetExpr::Select(select) => select,
        ast::SetExpr::SetOperation { op, .. } => return unsupported(format!("{op}")),
        other => return unsupported(format!("[{other}] as a query")),
    };
    if !select.lateral_views.is_empty() || select.qualify.is_some() || select.into.is_some() {
        return unsupported("INTO, LATERAL and QUALIFY");
    }
    Ok(select)
}

/// Returns whether a SELECT is DISTINCT.
fn is_distinct(select: &ast::Select) -> Result<bool> {
    match select.distinct {
        None | Some(ast::Distinct::All) => Ok(false),
        Some(ast::Distinct::Distinct) => Ok(true),
        Some(ast::Distinct::On(_)) => unsupported("DISTINCT ON"),
    }
}

/// Lists the expressions of SELECT by alias.
fn aliases(select: &ast::Select) -> HashMap<String, ast::Expr> {
    let mut aliases = HashMap::new();
    for item in &select.projection {
        if let ast::SelectItem::ExprWithAlias { expr, alias } = item {
            aliases.entry(alias.value.clone()).or_insert_with(|| expr.clone());
        }
    }
    aliases
}

/// Reads a position among the output columns; `None` for another expression.
fn ordinal(expr: &ast::Expr, count: usize) -> Result<Option<usize>> {
    let ast::Expr::Value(value) = expr else { return Ok(None) };
    let ast::Value::Number(text, _) = &value.value else { return Ok(None) };
    match text.parse::<usize>() {
        Ok(number) if (1..=count).contains(&number) => Ok(Some(number - 1)),
        _ => Err(SqlError::Semantic(format!(
            "ordinal [{text}] is out of bound of the {count} columns of SELECT"
        ))),
    }
}
