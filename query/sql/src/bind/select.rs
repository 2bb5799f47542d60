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
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, LogicalPlanBuilder, SortExpr};
use millrace_matching::table::ScanHandle;
use millrace_matching::table::carried::holds_predicate;
use sqlparser::ast;

use super::expr::boolean;
use super::from::{Scanned, table_name};
use super::grouping::{Bits, aggregate, grouped_expr, rewritten};
use super::{Binder, Bound, Literal, Place, Scope, literal, unsupported};
use crate::count::RowCount;
use crate::error::{Result, SqlError};
use crate::source::{self, SourceKind};
use crate::types::SqlType;

/// Most output columns.
const MAX_OUTPUTS: usize = 4_096;
/// Deepest queries in FROM.
const MAX_DERIVED: usize = 16;

/// An output column.
#[derive(Clone, Debug)]
pub struct OutColumn {
    /// What the user wrote.
    pub name: String,
    /// The alias that was given.
    pub alias: Option<String>,
    /// Type of its values.
    pub ty: SqlType,
    /// Whether it holds several values.
    pub list: bool,
    /// Type as the schema shows it.
    pub shown: &'static str,
}

/// Where the number of matching rows comes from.
#[derive(Debug)]
pub(crate) enum Total {
    /// There are as many as are answered.
    Answered,
    /// They are counted as they pass.
    Counted(Arc<AtomicU64>),
    /// A plan without columns counts them, where the answer was cut.
    Scan(Box<LogicalPlan>),
    /// The scan has met them all once there is an answer.
    Met(Arc<ScanHandle>),
}

/// A bound query.
#[derive(Debug)]
pub(crate) struct Planned {
    /// The plan; its columns are those of `columns`.
    pub plan: LogicalPlan,
    /// Output columns.
    pub columns: Vec<OutColumn>,
    /// Where the number of matching rows comes from.
    pub total: Total,
    /// Rows that are skipped, and most that are answered.
    pub window: (usize, Option<usize>),
    /// Whether the plan leaves the window to who runs it, who counts all rows.
    pub uncut: bool,
    /// Whether a condition is left to the plan, which the index cannot answer.
    pub residual: bool,
    /// Whether rows come as they are read, not after all have been.
    pub streams: bool,
}

struct Item {
    column: OutColumn,
    bound: Bound,
}

impl Binder<'_> {
    /// Binds a query; `default_limit` is how many rows it answers where it does not say.
    pub(crate) fn query(
        &mut self,
        query: &ast::Query,
        default_limit: Option<usize>,
        depth: usize,
    ) -> Result<Planned> {
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
        let (skip, limit) = self.window_of(query.limit_clause.as_ref())?;
        let limit = limit.or(default_limit);
        let mut on = Vec::new();
        let mut scope = Scope {
            sources: self.sources(&select.from, &mut on, depth)?,
            aliases: aliases(select),
            following: false,
        };
        let conditions = self.conditions(select.selection.as_ref(), &mut scope)?;
        let mut joins = Vec::with_capacity(on.len());
        for (kind, condition) in on {
            let condition = match condition {
                None => None,
                Some(condition) => Some(boolean(self.expr(&condition, &mut scope, Place::Row)?)?.expr),
            };
            joins.push((kind, condition));
        }
        let mut items = self.items(select, &mut scope)?;
        let groups = self.groups(select, &items, &mut scope)?;
        let having = match &select.having {
            None => None,
            Some(having) => Some(boolean(self.expr(having, &mut scope, Place::Aliased)?)?.expr),
        };
        let mut sorts = self.sorts(query.order_by.as_ref(), &items, &mut scope)?;
        let mut exprs: Vec<Expr> = items.iter().map(|item| item.bound.expr.clone()).collect();
        exprs.extend(having.clone());
        exprs.extend(sorts.iter().map(|sort| sort.expr.clone()));
        exprs.extend(groups.iter().map(|group| group.expr.clone()));
        exprs.extend(joins.iter().filter_map(|(_, on)| on.clone()));
        if exprs.iter().any(holds_predicate) {
            return unsupported(
                "a relevance function, or LIKE on a text field without a keyword field, which the index answers over its terms, outside of WHERE",
            );
        }
        let aggregates = find_aggregate_exprs(&exprs);
        let aggregated = !groups.is_empty() || !aggregates.is_empty() || having.is_some();
        let bits = Bits::of(&mut scope.sources, &groups, &aggregates);
        let Scanned { mut plan, count, residual } = self.scan(scope.sources, joins, conditions)?;
        if aggregated {
            let (grouped, replaced) = aggregate(plan, &groups, aggregates, &bits)?;
            plan = grouped;
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
                let having = grouped_expr(&having, &replaced, "HAVING", !groups.is_empty())?;
                plan = LogicalPlanBuilder::new(plan).filter(having)?.build()?;
            }
        }
        let windows: Vec<Expr> = find_window_exprs(
            items.iter().map(|item| &item.bound.expr).chain(sorts.iter().map(|sort| &sort.expr)),
        );
        if !windows.is_empty() {
            plan = LogicalPlanBuilder::window_plan(plan, windows.clone())?;
            let replaced: Vec<(Expr, Expr)> = windows
                .iter()
                .map(|window| {
                    let column = Expr::Column(Column::new_unqualified(window.schema_name().to_string()));
                    (window.clone(), column)
                })
                .collect();
            for item in &mut items {
                item.bound.expr = rewritten(&item.bound.expr, &replaced)?;
            }
            for sort in &mut sorts {
                sort.expr = rewritten(&sort.expr, &replaced)?;
            }
        }
        let distinct =
            select.distinct.as_ref().is_some_and(|distinct| !matches!(distinct, ast::Distinct::All));
        if matches!(select.distinct, Some(ast::Distinct::On(_))) {
            return unsupported("DISTINCT ON");
        }
        let outputs: Vec<Expr> = items
            .iter()
            .enumerate()
            .map(|(at, item)| item.bound.expr.clone().alias(format!("c{at}")))
            .collect();
        let output = |at: usize| Expr::Column(Column::new_unqualified(format!("c{at}")));
        if distinct {
            plan = LogicalPlanBuilder::new(plan).project(outputs.clone())?.build()?;
            let all: Vec<Expr> = (0..items.len()).map(output).collect();
            plan = LogicalPlanBuilder::new(plan).aggregate(all, Vec::<Expr>::new())?.build()?;
            for sort in &mut sorts {
                let at = items.iter().position(|item| item.bound.expr == sort.expr).ok_or_else(|| {
                    SqlError::Semantic("ORDER BY has to name an output column of SELECT DISTINCT".to_owned())
                })?;
                sort.expr = output(at);
            }
        }
        let plain = !aggregated && !distinct && !residual && count.is_some();
        let unsorted = sorts.is_empty() || limit == Some(0);
        let (plan, total) = match (plain, count) {
            (true, Some(count)) if unsorted => (plan, Total::Scan(Box::new(count.plan))),
            (true, Some(count)) => (plan, Total::Met(count.met)),
            _ if depth > 0 => (plan, Total::Answered),
            _ => {
                let counter = Arc::new(AtomicU64::new(0));
                let node = RowCount::new(plan, Arc::clone(&counter));
                let plan = LogicalPlan::Extension(Extension { node: Arc::new(node) });
                (plan, Total::Counted(counter))
            }
        };
        let streams = plain && unsorted && windows.is_empty();
        let mut builder = LogicalPlanBuilder::new(plan);
        // None of the rows have no order.
        if !unsorted {
            builder = builder.sort(sorts)?;
        }
        // What ends early counts only what it has read.
        let uncut = unsorted && matches!(total, Total::Counted(_));
        if !uncut && (skip > 0 || limit.is_some()) {
            builder = builder.limit(skip, limit)?;
        }
        builder = match distinct {
            true => builder.project((0..items.len()).map(output))?,
            false => builder.project(outputs)?,
        };
        let plan = builder.build()?;
        let columns = items.into_iter().map(|item| item.column).collect();
        Ok(Planned { plan, columns, total, window: (skip, limit), uncut, residual, streams })
    }

    /// Binds LIMIT and OFFSET.
    fn window_of(&self, clause: Option<&ast::LimitClause>) -> Result<(usize, Option<usize>)> {
        let whole = |expr: &ast::Expr| {
            let number = match expr {
                ast::Expr::Value(value) => {
                    let place = value.to_string();
                    let place = place.trim_start_matches(['?', '$']);
                    match literal::of_value(&value.value, self.parameters, place)? {
                        Literal::Int(number) => usize::try_from(number).ok(),
                        _ => None,
                    }
                }
                _ => None,
            };
            number.ok_or_else(|| SqlError::Syntax(format!("[{expr}] is no number of rows")))
        };
        match clause {
            None => Ok((0, None)),
            Some(ast::LimitClause::OffsetCommaLimit { offset, limit }) => {
                Ok((whole(offset)?, Some(whole(limit)?)))
            }
            Some(ast::LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
                let offset = offset.as_ref().map(|offset| whole(&offset.value)).transpose()?;
                Ok((offset.unwrap_or(0), limit.as_ref().map(whole).transpose()?))
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
            conditions.push(boolean(self.expr(last, scope, Place::Row)?)?);
            rest = before;
        }
        conditions.reverse();
        Ok(conditions)
    }

    /// Binds the items of SELECT.
    fn items(&mut self, select: &ast::Select, scope: &mut Scope) -> Result<Vec<Item>> {
        let mut items = Vec::new();
        let place = select.select_token.0.span.start;
        let names = self.names;
        let written = names.items(place);
        for (at, item) in select.projection.iter().enumerate() {
            let written = written.get(at).copied().unwrap_or_default();
            match item {
                ast::SelectItem::UnnamedExpr(expr) => {
                    let name = shown_name(expr, written, scope);
                    items.push(self.item(expr, name, None, scope)?);
                }
                ast::SelectItem::ExprWithAlias { expr, alias } => {
                    let name = shown_name(expr, without_alias(written, alias), scope);
                    items.push(self.item(expr, name, Some(alias.value.clone()), scope)?);
                }
                ast::SelectItem::Wildcard(_) => {
                    for source in 0..scope.sources.len() {
                        self.all_of(source, scope, &mut items)?;
                    }
                }
                ast::SelectItem::QualifiedWildcard(
                    ast::SelectItemQualifiedWildcardKind::ObjectName(name),
                    _,
                ) => {
                    let name = table_name(name);
                    let source = scope.sources.iter().position(|source| source.names.contains(&name));
                    let source = source.ok_or_else(|| SqlError::unknown_field(&format!("{name}.*")))?;
                    self.all_of(source, scope, &mut items)?;
                }
                other => return unsupported(format!("[{other}]")),
            }
            if items.len() > MAX_OUTPUTS {
                return Err(SqlError::TooLarge(format!(
                    "the statement answers more than {MAX_OUTPUTS} columns"
                )));
            }
        }
        Ok(items)
    }

    fn item(
        &mut self,
        expr: &ast::Expr,
        name: String,
        alias: Option<String>,
        scope: &mut Scope,
    ) -> Result<Item> {
        let bound = self.expr(expr, scope, Place::Output)?;
        let column = OutColumn { name, alias, ty: bound.ty, list: bound.list, shown: bound.shown_type() };
        Ok(Item { column, bound })
    }

    fn all_of(&mut self, source: usize, scope: &mut Scope, items: &mut Vec<Item>) -> Result<()> {
        let Some(of) = scope.sources.get(source) else { return Ok(()) };
        let names: Vec<String> = match &of.kind {
            SourceKind::Index(index) => index.top_level(),
            SourceKind::Derived(_, columns) => columns.iter().map(|column| column.name.clone()).collect(),
            SourceKind::Nothing => return Err(SqlError::Semantic("[*] needs a FROM".to_owned())),
        };
        let Some(sources) = scope.sources.get_mut(source..=source) else { return Ok(()) };
        for name in names {
            let Some(mut bound) = source::resolve(sources, &name)? else { continue };
            if let Some((place, _)) = &mut bound.field {
                *place = source;
            }
            let column =
                OutColumn { name, alias: None, ty: bound.ty, list: bound.list, shown: bound.shown_type() };
            items.push(Item { column, bound });
        }
        Ok(())
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
                None => self.expr(expr, scope, Place::Aliased)?,
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

/// The name of an output column: a field's own, with its source in a join, or what the user wrote.
fn shown_name(expr: &ast::Expr, written: &str, scope: &Scope) -> String {
    match expr {
        ast::Expr::Identifier(ident) => ident.value.clone(),
        ast::Expr::CompoundIdentifier(parts) => {
            let path = parts.iter().map(|part| part.value.as_str()).collect::<Vec<_>>().join(".");
            // Of several sources the name tells which.
            match scope.sources.len() {
                1 => source::unqualified(&scope.sources, &path).to_owned(),
                _ => path,
            }
        }
        _ => written.to_owned(),
    }
}

/// What the user wrote before an alias.
fn without_alias<'t>(written: &'t str, alias: &ast::Ident) -> &'t str {
    let quoted = alias.quote_style.map(|quote| format!("{quote}{}{quote}", alias.value));
    let before = quoted
        .as_deref()
        .and_then(|quoted| written.strip_suffix(quoted))
        .or_else(|| written.strip_suffix(alias.value.as_str()));
    let before = before.unwrap_or(written).trim_end();
    let word = before.len().checked_sub(3).and_then(|at| before.get(at..));
    match word {
        Some(word)
            if word.trim_start().eq_ignore_ascii_case("as") && word.starts_with(char::is_whitespace) =>
        {
            before.get(..before.len() - 3).unwrap_or(before).trim_end()
        }
        Some(word)
            if word.get(1..).is_some_and(|word| word.eq_ignore_ascii_case("as"))
                && word.starts_with([')', '`', '\'', '"']) =>
        {
            before.get(..before.len() - 2).unwrap_or(before).trim_end()
        }
        _ => before,
    }
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
