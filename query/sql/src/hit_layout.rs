//! Rows as hits of a search, where no search answers them: the layout that the format `json` gives them.
//!
//! A row of one document is the hit of that document: columns of fields are its source, computed ones its `fields`, as OpenSearch's
//! first engine shows them. The statement reads what a hit has beside these, in columns behind its own. A row of several documents,
//! or of groups, has all of its columns as source; those of `*` only where they have a value, as the documents' own source has them.

use datafusion::logical_expr::{Expr, LogicalPlan};
use sqlparser::ast;

use super::ast_walk::visit_expressions;
use super::bind::names_aggregate;
use super::output_columns::OutputColumns;
use super::request::LineOptions;
use super::source::is_highlight;

/// Columns of a hit behind those of a statement: index, id, and, where no column is one of a field, the whole source.
const MEMBERS: [&str; 3] = ["_index", "_id", "_source"];

/// The layout of rows as hits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HitLayout {
    /// Name that all columns have before their own: that of the only source of a statement with subqueries.
    pub(super) qualifier: Option<String>,
    /// Columns behind those of the statement, which show the document of a row.
    pub(super) members: usize,
    /// True for columns of fields; empty for rows of no document.
    pub(super) of_fields: Vec<bool>,
    /// Numbers of columns before those of the only `*`, and behind them, where rows are of several documents.
    pub(super) around_wildcard: Option<(usize, usize)>,
}

impl HitLayout {
    /// Returns whether a column, of so many, is one of the only `*`: a row has a member for it where it has a value.
    pub(super) fn is_optional(&self, column: usize, columns: usize) -> bool {
        self.around_wildcard.is_some_and(|(before, behind)| column >= before && column + behind < columns)
    }

    /// Finds the layout of the rows of a query, which is changed to read the members of hits.
    pub(super) fn new(query: &mut ast::Query) -> Self {
        let is_plain = query.with.is_none();
        let ast::SetExpr::Select(select) = query.body.as_mut() else { return Self::default() };
        let is_join = is_plain && joins_documents(select);
        let around_wildcard = around_wildcard(&select.projection).filter(|_| is_join);
        let [ast::TableWithJoins { relation: ast::TableFactor::Table { alias, args: None, .. }, joins }] =
            select.from.as_slice()
        else {
            return Self { around_wildcard, ..Self::default() };
        };
        let has_groups = match &select.group_by {
            ast::GroupByExpr::Expressions(keys, _) => !keys.is_empty(),
            ast::GroupByExpr::All(_) => true,
        };
        let has_groups = has_groups || select.projection.iter().any(is_aggregate);
        if has_groups || select.having.is_some() || select.distinct.is_some() {
            return Self::default();
        }
        if !joins.is_empty() {
            return Self { around_wildcard, ..Self::default() };
        }
        if select.selection.as_ref().is_some_and(has_subquery) {
            let qualifier = alias.as_ref().map(|alias| alias.name.value.clone());
            return Self { qualifier, ..Self::default() };
        }
        if !is_plain {
            return Self::default();
        }
        let of_field = |item: &ast::SelectItem| {
            let expr = match item {
                ast::SelectItem::UnnamedExpr(expr) | ast::SelectItem::ExprWithAlias { expr, .. } => expr,
                _ => return true,
            };
            matches!(expr, ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_))
        };
        let members = if select.projection.iter().any(of_field) { 2 } else { 3 };
        select.projection.extend(MEMBERS.iter().take(members).map(|name| column(name)));
        Self { members, ..Self::default() }
    }

    /// Takes note of the columns of the plan; a plan of groups shows no document.
    pub(super) fn with_plan(mut self, plan: &LogicalPlan) -> Self {
        if self.members == 0 {
            return self;
        }
        if let Some(outputs) = OutputColumns::from_plan(plan) {
            self.of_fields = outputs.columns().map(|column| !is_highlight(&column.name)).collect();
            return self;
        }
        let LogicalPlan::Projection(projection) = plan else { return self };
        let is_field = |expr: &Expr| {
            let expr = match expr {
                Expr::Alias(alias) => alias.expr.as_ref(),
                other => other,
            };
            matches!(expr, Expr::Column(column) if !is_highlight(&column.name))
        };
        self.of_fields = projection.expr.iter().map(is_field).collect();
        self
    }
}

/// Adds the columns of a document's id and score to a query of documents, where they are asked for.
pub(super) fn add_line_columns(query: &mut ast::Query, options: LineOptions) {
    let names = [("_score", options.score), ("_id", options.id)];
    if let ast::SetExpr::Select(select) = query.body.as_mut()
        && matches!(&select.group_by, ast::GroupByExpr::Expressions(keys, _) if keys.is_empty())
        && select.distinct.is_none()
        && select.having.is_none()
        && matches!(select.from.as_slice(), [from] if from.joins.is_empty()
            && matches!(from.relation, ast::TableFactor::Table { .. }))
        && !select.projection.iter().any(is_aggregate)
    {
        let names = names.into_iter().filter(|(_, asked)| *asked);
        select.projection.extend(names.map(|(name, _)| column(name)));
    }
}

/// Returns whether the rows of a SELECT are those of documents that are joined.
fn joins_documents(select: &ast::Select) -> bool {
    let joined = select.from.iter().flat_map(|from| &from.joins).map(|join| &join.relation);
    let factors = || select.from.iter().map(|from| &from.relation).chain(joined.clone());
    let are_tables = factors().all(|factor| matches!(factor, ast::TableFactor::Table { args: None, .. }));
    let is_grouped = !matches!(&select.group_by, ast::GroupByExpr::Expressions(keys, _) if keys.is_empty());
    are_tables && factors().count() > 1 && !is_grouped && select.distinct.is_none()
}

/// Counts the items of SELECT before its only `*`, and those behind it; `None` where `*` is not there, or stands several times.
fn around_wildcard(items: &[ast::SelectItem]) -> Option<(usize, usize)> {
    let is_wildcard = |item: &ast::SelectItem| {
        matches!(item, ast::SelectItem::Wildcard(_) | ast::SelectItem::QualifiedWildcard(..))
    };
    let before = items.iter().position(is_wildcard)?;
    let behind = items.iter().rev().position(is_wildcard)?;
    (before + behind + 1 == items.len()).then_some((before, behind))
}

fn column(name: &str) -> ast::SelectItem {
    ast::SelectItem::UnnamedExpr(ast::Expr::Identifier(ast::Ident::new(name)))
}

/// Returns whether an item of SELECT is a call of an aggregate.
fn is_aggregate(item: &ast::SelectItem) -> bool {
    let (ast::SelectItem::UnnamedExpr(expr) | ast::SelectItem::ExprWithAlias { expr, .. }) = item else {
        return false;
    };
    let found = visit_expressions(expr, |expr| match expr {
        ast::Expr::Function(call) if call.over.is_none() && names_aggregate(&call.name.to_string()) => {
            std::ops::ControlFlow::Break(())
        }
        _ => std::ops::ControlFlow::Continue(()),
    });
    found.is_break()
}

/// Returns whether a condition holds a subquery.
fn has_subquery(condition: &ast::Expr) -> bool {
    let found = visit_expressions(condition, |expr| match expr {
        ast::Expr::InSubquery { .. } | ast::Expr::Exists { .. } | ast::Expr::Subquery(_) => {
            std::ops::ControlFlow::Break(())
        }
        _ => std::ops::ControlFlow::Continue(()),
    });
    found.is_break()
}
