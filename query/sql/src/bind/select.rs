//! SELECT: its clauses in their logical order, and the plan of it all.
//!
//! Columns have internal names in the plan (`g0` a group, `a0` an aggregate, `c0` an output), because two
//! output columns may have one name and DataFusion refuses that; the writer of the answer gives them the names that the
//! user wrote.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use datafusion::common::Column;
use datafusion::logical_expr::utils::{find_aggregate_exprs, find_window_exprs};
use datafusion::logical_expr::{Expr, LogicalPlan, SortExpr};
use millrace_matching::table::ScanHandle;
use sqlparser::ast;

use super::from::{Count, Join, ScanPlan, conjuncts};
use super::grouping::{AddressBits, rewritten};
use super::nested::{grouped_paths, ordered_by_element, reversed_group};
use super::output::{Item, OutColumn};
use super::relation::Relation;
use super::select_builder::{Grouping, SelectBuilder};
use super::subquery::{
    Correlation, CorrelationKey, correlation_key, domain_name, domain_relation, holds_subquery,
    is_correlated, placeholder,
};
use super::{Binder, Bound, ExpressionContext, Scope, unsupported};
use crate::error::{Result, SqlError};
use crate::renderer::{self, RenderRefusal, RenderedSearch};
use crate::source::{Source, SourceKind};
use crate::types::SqlType;

/// Deepest queries in queries.
const MAX_DEPTH: usize = 16;

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
    /// `true` if rows come as they are read, not after all have been.
    pub streams: bool,
    /// The relation of its rows to those of the query around it.
    pub correlation: Correlation,
    /// The order of its rows, by output columns: no node of a plan keeps it for the query around it.
    pub order: Vec<SortExpr>,
}

impl PlannedQuery {
    /// Renders the query as a search.
    pub(crate) fn rendered(&self) -> std::result::Result<RenderedSearch, RenderRefusal> {
        renderer::render(&self.plan, &self.columns, self.uncut.then_some(self.cut))
    }
}

/// The clauses behind the body of a query: its order and cut.
#[derive(Clone, Copy)]
pub(super) struct Tail<'q> {
    order_by: Option<&'q ast::OrderBy>,
    limit: Option<&'q ast::LimitClause>,
    /// Rows that are answered where the query does not say.
    default_limit: Option<usize>,
}

impl Tail<'_> {
    /// That of a body without one.
    pub(super) const NONE: Self = Self { order_by: None, limit: None, default_limit: None };

    fn is_empty(&self) -> bool {
        self.order_by.is_none() && self.limit.is_none()
    }
}

/// A SELECT whose plan is built up to its order.
struct UnorderedSelect {
    building: SelectBuilder,
    scanned: Option<Count>,
    windowed: bool,
    distinct: bool,
    correlation: Correlation,
}

impl Binder<'_> {
    /// Binds a query; `default_limit` is how many rows it answers where it does not say.
    pub(crate) fn query(
        &mut self,
        query: &ast::Query,
        default_limit: Option<usize>,
        depth: usize,
    ) -> Result<PlannedQuery> {
        self.query_before(query, Tail { default_limit, ..Tail::NONE }, depth)
    }

    /// Binds a query that a tail follows, behind the parentheses around it.
    fn query_before(&mut self, query: &ast::Query, outer: Tail<'_>, depth: usize) -> Result<PlannedQuery> {
        if depth > MAX_DEPTH {
            return Err(SqlError::TooLarge(format!("queries are nested deeper than {MAX_DEPTH} levels")));
        }
        if query.fetch.is_some() || !query.locks.is_empty() || query.for_clause.is_some() {
            return unsupported("FETCH and FOR");
        }
        let named = self.named.len();
        if let Some(with) = &query.with {
            self.with(with, query, depth)?;
        }
        let tail = Tail {
            order_by: outer.order_by.or(query.order_by.as_ref()),
            limit: outer.limit.or(query.limit_clause.as_ref()),
            ..outer
        };
        let planned = match query.body.as_ref() {
            ast::SetExpr::Select(select) => self.select(select, tail, depth),
            ast::SetExpr::Query(inner) if tail.is_empty() || inner.limit_clause.is_none() => {
                self.query_before(inner, tail, depth)
            }
            body => {
                // The limit within parentheses is one of the statement.
                let default_limit = tail.default_limit.filter(|_| !is_limited(body));
                let relation = self.set_expr(body, depth)?;
                self.ordered(relation, Tail { default_limit, ..tail }, depth)
            }
        };
        self.named.truncate(named);
        planned
    }

    /// Binds the order and cut of a relation.
    fn ordered(&mut self, relation: Relation, tail: Tail<'_>, depth: usize) -> Result<PlannedQuery> {
        let qualifier = format!("t{}", self.next_source);
        self.next_source += 1;
        let columns = relation.columns.clone();
        let source = relation.into_source(qualifier, None)?;
        let mut scope = self.scope(vec![source]);
        let mut items = Vec::with_capacity(columns.len());
        for (source, column) in scope.sources.iter().zip([columns]) {
            let SourceKind::Derived(own) = &source.kind else { continue };
            let bound = own.columns.iter().map(|column| column.bound(&source.qualifier));
            items.extend(column.into_iter().zip(bound).map(|(column, bound)| Item { column, bound }));
        }
        let mut sorts = self.sorts(tail.order_by, &items, &mut scope)?;
        if sorts.is_empty() {
            sorts = order_of(&scope.sources);
        }
        if !scope.outer.is_empty() || sorts.iter().any(|sort| holds_subquery(&sort.expr)) {
            return unsupported("a subquery in ORDER BY of a set operation");
        }
        let (ScanPlan { plan, .. }, _) =
            self.scan(scope.sources, Vec::new(), Vec::new(), Vec::new(), None)?;
        let building = SelectBuilder { plan, items, sorts, keys: Vec::new() };
        let cut = self.cut_of(tail.limit)?;
        let unordered = UnorderedSelect {
            building,
            scanned: None,
            windowed: false,
            distinct: false,
            correlation: Correlation::default(),
        };
        Self::cut(unordered, (cut.0, cut.1.or(tail.default_limit)), depth)
    }

    /// Makes the scope of a SELECT over sources.
    pub(super) fn scope(&mut self, sources: Vec<Source>) -> Scope {
        self.next_scope += 1;
        Scope { number: self.next_scope, sources, ..Scope::default() }
    }

    /// Binds a SELECT.
    pub(super) fn select(
        &mut self,
        select: &ast::Select,
        tail: Tail<'_>,
        depth: usize,
    ) -> Result<PlannedQuery> {
        check_clauses(select)?;
        let (skip, limit) = self.cut_of(tail.limit)?;
        let limit = limit.or(tail.default_limit);
        let first_subquery = self.subqueries.len();
        let (sources, mut joins) = self.sources(&select.from, depth)?;
        let (aliases, windows) = (aliases(select), select.named_window.clone());
        let mut scope = Scope { aliases, windows, ..self.scope(sources) };
        scope.grouped_paths = grouped_paths(select, &scope);
        scope.reversed = reversed_group(select, &scope);
        let (before, correlated) = self.join_conditions(&mut joins, &mut scope)?;
        let mut conditions = self.conditions(select.selection.as_ref(), &mut scope)?;
        conditions.extend(correlated);
        let mut items = self.items(select, &mut scope)?;
        let (mut groups, mut sets) = self.groups(select, &items, &mut scope)?;
        let mut having = match &select.having {
            None => None,
            Some(having) => {
                let having = self.expr(having, &mut scope, ExpressionContext::Aliased)?;
                Some(self.truth(having)?.expr)
            }
        };
        if !find_window_exprs(groups.iter().map(|group| &group.expr).chain(&having)).is_empty() {
            let what = "a window function in GROUP BY or HAVING: ask a query in FROM that has it as a column";
            return Err(SqlError::Semantic(what.to_owned()));
        }
        let mut sorts = self.sorts(tail.order_by, &items, &mut scope)?;
        let aggregated = !groups.is_empty()
            || having.is_some()
            || !aggregates_of(&items, having.as_ref(), &sorts).is_empty();
        let grouped = !groups.is_empty();
        let distinct = is_distinct(select)?;
        if sorts.is_empty() && !aggregated && !distinct {
            sorts = order_of(&scope.sources);
        }
        if !aggregated && !distinct {
            ordered_by_element(&mut sorts, &mut scope.sources);
        }
        for source in scope.sources.iter().skip(joins.len() + 1) {
            joins.push(Join::of_elements(source, &scope.grouped_paths));
        }
        let exprs = expressions(&items, &sorts).chain(&having);
        let exprs = exprs.chain(groups.iter().map(|group| &group.expr));
        let exprs = exprs.chain(joins.iter().flat_map(|join| &join.on));
        let (mut correlation, keys, domain) =
            self.correlate(&scope, first_subquery, exprs, &mut conditions)?;
        if aggregated {
            groups.extend(keys.iter().map(|key| Bound::new(key.clone(), SqlType::Undefined)));
            sets.iter_mut().for_each(|sets| sets.extend(groups.len() - keys.len()..groups.len()));
        }
        correlation.single =
            aggregated && !grouped && having.is_none() && (skip, limit == Some(0)) == (0, false);
        let implicit = aggregated && !grouped && !correlation.is_empty();
        let mut aggregates = aggregates_of(&items, having.as_ref(), &sorts);
        let bits = AddressBits::new(&mut scope.sources, &groups, &aggregates);
        let (ScanPlan { mut plan, count, residual }, later) =
            self.scan(scope.sources, joins, before, conditions, domain)?;
        let mut replaced = Vec::new();
        if !later.is_empty() {
            plan = self.filter_by_subqueries(plan, later, &mut replaced)?;
        }
        // What is grouped and aggregated has to be there before, all else may come behind.
        let early = match aggregated {
            true => self.subqueries_in(groups.iter().map(|group| &group.expr).chain(&aggregates)),
            false => self.subqueries_in(expressions(&items, &sorts)),
        };
        let attached = !early.is_empty();
        if attached {
            let base = plan.clone();
            plan = self.attach(plan, &base, &early, &mut replaced)?;
            let early: Vec<Expr> = early.iter().map(|number| placeholder(*number)).collect();
            replaced.retain(|(known, _)| early.contains(known));
            let exprs = items.iter_mut().map(|item| &mut item.bound.expr);
            let exprs = exprs.chain(sorts.iter_mut().map(|sort| &mut sort.expr)).chain(&mut aggregates);
            for expr in exprs.chain(groups.iter_mut().map(|group| &mut group.expr)).chain(&mut having) {
                *expr = rewritten(expr, &replaced)?;
            }
        }
        let mut building = SelectBuilder { plan, items, sorts, keys };
        if aggregated {
            let grouping = Grouping { groups, sets, aggregates, having, bits, grouped };
            let defaults;
            (building, defaults) = building.group(grouping, self)?;
            if implicit && correlation.single {
                correlation.default = building.default_value(&defaults, &correlation)?;
            } else if implicit {
                return unsupported(
                    "a correlated subquery that aggregates without GROUP BY, and cuts or has HAVING,",
                );
            }
        }
        building.partition_windows()?;
        let windows = building.windows();
        let windowed = !windows.is_empty();
        if windowed {
            building = building.window(windows)?;
        }
        if distinct {
            building = building.distinct()?;
        }
        let scanned = count.filter(|_| !aggregated && !distinct && !residual && !attached);
        let unordered = UnorderedSelect { building, scanned, windowed, distinct, correlation };
        Self::cut(unordered, (skip, limit), depth)
    }

    /// Makes the keys that join a SELECT to the query around it, and removes the conditions that say only these.
    /// Returns the inner side of the keys, and the relation of the outer values that the SELECT reads elsewhere.
    fn correlate<'e>(
        &self,
        scope: &Scope,
        first_subquery: usize,
        mut exprs: impl Iterator<Item = &'e Expr>,
        conditions: &mut Vec<Bound>,
    ) -> Result<(Correlation, Vec<Expr>, Option<LogicalPlan>)> {
        let (mut correlation, mut keys) = (Correlation::default(), Vec::new());
        if scope.outer.is_empty() {
            return Ok((correlation, keys, None));
        }
        let named = domain_name(scope.number);
        let is_key = |condition: &Bound| correlation_key(&condition.expr, &named).is_some();
        let elsewhere = exprs.any(|expr| is_correlated(expr, &named))
            || self.are_correlated(first_subquery, &named)
            || conditions.iter().any(|own| is_correlated(&own.expr, &named) && !is_key(own));
        if elsewhere {
            for (outer, own) in &scope.outer {
                correlation.keys.push(CorrelationKey { outer: outer.clone(), nulls_equal: true });
                keys.push(own.expr.clone());
            }
            let domain = domain_relation(&named, &scope.outer)?;
            let outer = scope.outer.iter().map(|(outer, _)| outer.clone()).collect();
            correlation.domain = Some((named, outer));
            return Ok((correlation, keys, Some(domain)));
        }
        let outer: Vec<(Expr, Expr)> =
            scope.outer.iter().map(|(outer, own)| (own.expr.clone(), outer.clone())).collect();
        let (equal, rest): (Vec<Bound>, Vec<Bound>) =
            std::mem::take(conditions).into_iter().partition(is_key);
        *conditions = rest;
        for (own, other) in equal.iter().filter_map(|condition| correlation_key(&condition.expr, &named)) {
            correlation.keys.push(CorrelationKey { outer: rewritten(&other, &outer)?, nulls_equal: false });
            keys.push(own);
        }
        Ok((correlation, keys, None))
    }

    /// Orders and cuts a SELECT.
    fn cut(
        unordered: UnorderedSelect,
        (skip, limit): (usize, Option<usize>),
        depth: usize,
    ) -> Result<PlannedQuery> {
        let UnorderedSelect { mut building, scanned, windowed, distinct, correlation } = unordered;
        if !correlation.is_empty() {
            let (plan, columns) = building.finish_correlated((skip, limit), distinct)?;
            let (total, cut) = (Total::Answered, (0, None));
            return Ok(PlannedQuery {
                plan,
                columns,
                total,
                cut,
                uncut: false,
                streams: false,
                correlation,
                order: Vec::new(),
            });
        }
        // None of the rows have no order.
        let sorted = !building.sorts.is_empty() && limit != Some(0);
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
        let order = building.order();
        let (plan, columns) = building.finish(sorted, planned_cut, distinct, depth == 0)?;
        let cut = (skip, limit);
        Ok(PlannedQuery { plan, columns, total, cut, uncut, streams, correlation, order })
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
        scope.filters = true;
        // From the last to the first, as types of parameters are found.
        for condition in selection.map(conjuncts).unwrap_or_default().into_iter().rev() {
            let condition = self.expr(condition, scope, ExpressionContext::Row)?;
            conditions.push(self.truth(condition)?);
        }
        scope.filters = false;
        conditions.reverse();
        Ok(conditions)
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
        for (at, key) in keys.iter().enumerate() {
            // `x IS NULL, x DESC` says where the nulls of the next key are.
            let placement = at.checked_sub(1).and_then(|before| null_placement(keys.get(before)?, &key.expr));
            let placed;
            let key = match placement {
                None => key,
                Some(first) => {
                    sorts.pop();
                    placed = with_nulls(key, first);
                    &placed
                }
            };
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

/// Returns whether nulls of an expression come first, where the key before it tells that.
fn null_placement(before: &ast::OrderByExpr, expr: &ast::Expr) -> Option<bool> {
    match &before.expr {
        ast::Expr::IsNotNull(inner) if **inner == *expr => Some(true),
        ast::Expr::IsNull(inner) if **inner == *expr => Some(false),
        _ => None,
    }
}

/// Places the nulls of a key.
fn with_nulls(key: &ast::OrderByExpr, first: bool) -> ast::OrderByExpr {
    let mut key = key.clone();
    key.options.nulls_first = Some(first);
    key
}

/// Returns true for a query in parentheses that says how many rows it answers.
fn is_limited(body: &ast::SetExpr) -> bool {
    let ast::SetExpr::Query(query) = body else { return false };
    match &query.limit_clause {
        Some(ast::LimitClause::OffsetCommaLimit { .. }) => true,
        Some(ast::LimitClause::LimitOffset { limit, .. }) => limit.is_some(),
        None => false,
    }
}

/// Returns the order of the rows of the only source.
fn order_of(sources: &[Source]) -> Vec<SortExpr> {
    let [source] = sources else { return Vec::new() };
    let SourceKind::Derived(relation) = &source.kind else { return Vec::new() };
    let own = |sort: &SortExpr| {
        let Expr::Column(column) = &sort.expr else { return sort.clone() };
        let column = Expr::Column(Column::new(Some(source.qualifier.as_str()), &column.name));
        SortExpr::new(column, sort.asc, sort.nulls_first)
    };
    relation.order.iter().map(own).collect()
}

/// Lists the expressions of output columns and orders.
fn expressions<'e>(items: &'e [Item], sorts: &'e [SortExpr]) -> impl Iterator<Item = &'e Expr> {
    items.iter().map(|item| &item.bound.expr).chain(sorts.iter().map(|sort| &sort.expr))
}

/// Lists the aggregates of a SELECT, each once.
fn aggregates_of(items: &[Item], having: Option<&Expr>, sorts: &[SortExpr]) -> Vec<Expr> {
    let items = items.iter().map(|item| &item.bound.expr);
    find_aggregate_exprs(items.chain(having).chain(sorts.iter().map(|sort| &sort.expr)))
}

/// Refuses clauses of a SELECT that are not built.
fn check_clauses(select: &ast::Select) -> Result<()> {
    if select.qualify.is_some() {
        return unsupported(
            "QUALIFY (a query in FROM with the window function as a column and WHERE does the same)",
        );
    }
    if !select.lateral_views.is_empty() || select.into.is_some() {
        return unsupported("INTO and LATERAL");
    }
    Ok(())
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
pub(super) fn ordinal(expr: &ast::Expr, count: usize) -> Result<Option<usize>> {
    let ast::Expr::Value(value) = expr else { return Ok(None) };
    let ast::Value::Number(text, _) = &value.value else { return Ok(None) };
    match text.parse::<usize>() {
        Ok(number) if (1..=count).contains(&number) => Ok(Some(number - 1)),
        _ => Err(SqlError::Semantic(format!(
            "ordinal [{text}] is out of bound of the {count} columns of SELECT"
        ))),
    }
}
