//! A [`Pipe`] is the relation that the commands so far have made, with the clauses of one SELECT that are not bound yet.
//!
//! Commands add clauses as long as one SELECT can say them, in SQL's order of evaluation. What it cannot say binds the SELECT
//! ([`Pipe::close`]), whose relation is the input of the next one. So `source | where | sort | head | fields` is one SELECT, as a
//! user of SQL writes it.

mod binding;
mod names;
mod row_order;

use millrace_sql::error::{Result, SqlError};
use millrace_sql::relational::{BoundRelation, RelationPlanner, SqlType};
use sqlparser::ast;

use super::names::NameSet;
use super::syntax;

/// Most columns of a relation.
const MAX_COLUMNS: usize = 4_096;

/// Input of the clauses that are not bound.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// Indices.
    Index(String),
    /// The relation of the SELECT before, by the name that the planner gave it.
    Relation(Box<BoundRelation>),
    /// One row without columns.
    Nothing,
}

/// A column of a pipe.
#[derive(Clone, Debug)]
pub(crate) struct PipeColumn {
    /// Name by which commands know it.
    pub(crate) name: String,
    /// Its value, over the input.
    pub(crate) expr: ast::Expr,
    /// `false` for a column that is there for orders and names below it only.
    pub(crate) visible: bool,
}

impl PipeColumn {
    pub(crate) fn new(name: impl Into<String>, expr: ast::Expr) -> Self {
        Self { name: name.into(), expr, visible: true }
    }

    /// Returns whether it is a column of the input, unchanged.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.expr, ast::Expr::Identifier(_))
    }
}

/// A key of an order.
#[derive(Clone, Debug)]
pub(crate) struct SortKey {
    /// Its value, over the input.
    pub(crate) expr: ast::Expr,
    /// `true` for ascending values.
    pub(crate) ascending: bool,
    /// `true` if nulls come first.
    pub(crate) nulls_first: bool,
}

/// The relation of the commands so far; see the module.
#[derive(Debug)]
pub(crate) struct Pipe {
    input: Input,
    conditions: Vec<ast::Expr>,
    /// Columns; `None` are all fields of the indices.
    columns: Option<Vec<PipeColumn>>,
    /// Number of columns, the last ones, that are keys of groups; `None` without groups.
    groups: Option<usize>,
    /// `true` if a column is a window function.
    windowed: bool,
    order: Vec<SortKey>,
    /// Rows that are skipped, and most that are left.
    limit: Option<(u64, Option<u64>)>,
    /// Names that qualify columns: an alias with what it stands for.
    qualifiers: Vec<String>,
    /// Name that subsearches know the rows by.
    alias: Option<String>,
    /// `true` in a subsearch of an expression, which may name columns of the rows around it.
    correlated: bool,
    /// Names that the pipeline may use.
    names: NameSet,
}

impl Pipe {
    /// Reads indices.
    pub(crate) fn from_index(expression: String, names: NameSet) -> Self {
        let mut qualifiers = vec![expression.clone()];
        qualifiers.extend(expression.split(',').map(|name| name.trim().to_owned()));
        Self { qualifiers, ..Self::new(Input::Index(expression), None, names) }
    }

    /// Takes over a relation.
    pub(crate) fn from_relation(relation: BoundRelation, names: NameSet) -> Self {
        let columns = relation.columns().iter().map(|column| {
            let name = column.label();
            PipeColumn::new(name, syntax::column(name))
        });
        let columns = columns.collect();
        Self::new(Input::Relation(Box::new(relation)), Some(columns), names)
    }

    /// Makes one row without columns.
    pub(crate) fn nothing(names: NameSet) -> Self {
        Self::new(Input::Nothing, Some(Vec::new()), names)
    }

    fn new(input: Input, columns: Option<Vec<PipeColumn>>, names: NameSet) -> Self {
        Self {
            input,
            conditions: Vec::new(),
            columns,
            groups: None,
            windowed: false,
            order: Vec::new(),
            limit: None,
            qualifiers: Vec::new(),
            alias: None,
            correlated: false,
            names,
        }
    }

    /// Adds a name that may qualify columns, and that subsearches know the rows by.
    pub(crate) fn qualify(&mut self, name: &str) {
        self.add_qualifier(name);
        self.alias = Some(name.to_owned());
    }

    /// Adds a name that may qualify columns.
    pub(crate) fn add_qualifier(&mut self, name: &str) {
        self.qualifiers.push(name.to_owned());
    }

    /// Lists the names that may qualify columns.
    pub(crate) fn aliases(&self) -> &[String] {
        &self.qualifiers
    }

    /// Has names that are not found be those of the rows around the subsearch.
    pub(crate) fn correlate(&mut self) {
        self.correlated = true;
    }

    /// Returns the index expression that the pipe reads without any other step.
    pub(crate) fn index(&self) -> Option<&str> {
        match &self.input {
            Input::Index(expression) => Some(expression),
            _ => None,
        }
    }

    /// Returns the names that the pipeline may use.
    pub(crate) fn names(&self) -> &NameSet {
        &self.names
    }

    /// Returns the columns; those of indices are listed once they are asked for.
    pub(crate) fn columns(&mut self, planner: &RelationPlanner<'_, '_>) -> Result<&mut Vec<PipeColumn>> {
        if self.columns.is_none() {
            let columns = match &self.input {
                Input::Index(expression) => index_columns(planner, expression, &self.names)?,
                _ => Vec::new(),
            };
            self.columns = Some(columns);
        }
        Ok(self.columns.get_or_insert_default())
    }

    /// Lists the names of the visible columns.
    pub(crate) fn visible(&mut self, planner: &RelationPlanner<'_, '_>) -> Result<Vec<String>> {
        let columns = self.columns(planner)?.iter().filter(|column| column.visible);
        Ok(columns.map(|column| column.name.clone()).collect())
    }

    /// Lists the visible columns with their types. It binds what is not bound.
    pub(crate) fn typed(&mut self, planner: &mut RelationPlanner<'_, '_>) -> Result<Vec<(String, SqlType)>> {
        if let Input::Index(expression) = &self.input {
            let expression = expression.clone();
            let columns = self.columns(planner)?;
            if columns.iter().all(PipeColumn::is_plain) {
                let mut typed = Vec::with_capacity(columns.len());
                for column in columns.iter().filter(|column| column.visible) {
                    let path = syntax::path(&column.expr).unwrap_or_default();
                    let ty = planner.field(&expression, &path)?.map_or(SqlType::Undefined, |field| field.ty);
                    typed.push((column.name.clone(), ty));
                }
                return Ok(typed);
            }
        }
        self.close(planner)?;
        let Input::Relation(relation) = &self.input else { return Ok(Vec::new()) };
        let types = relation.columns();
        let visible = self.columns.iter().flatten().filter(|column| column.visible);
        let typed = visible.filter_map(|column| {
            let own = types.iter().find(|own| own.label() == column.name)?;
            Some((column.name.clone(), own.ty))
        });
        Ok(typed.collect())
    }

    /// Finds the type of a column. It binds what is not bound.
    pub(crate) fn type_of(&mut self, name: &str, planner: &mut RelationPlanner<'_, '_>) -> Result<SqlType> {
        if let (Input::Index(expression), None) = (&self.input, &self.columns)
            && let Some(field) = planner.field(expression, name)?
        {
            return Ok(field.ty);
        }
        self.close(planner)?;
        let own = match &self.input {
            Input::Relation(relation) => relation.columns().iter().find(|own| own.label() == name),
            _ => None,
        };
        Ok(own.map_or(SqlType::Undefined, |own| own.ty))
    }

    /// Leaves the rows that meet a condition.
    pub(crate) fn filter(
        &mut self,
        condition: ast::Expr,
        planner: &mut RelationPlanner<'_, '_>,
    ) -> Result<()> {
        if self.limit.is_some() || self.windowed || self.groups.is_some() {
            self.close(planner)?;
        }
        let condition = self.resolve(condition, planner)?;
        self.conditions.push(condition);
        Ok(())
    }

    /// Adds a column, or replaces the one of its name.
    pub(crate) fn extend(
        &mut self,
        name: &str,
        expr: ast::Expr,
        planner: &mut RelationPlanner<'_, '_>,
    ) -> Result<()> {
        let expr = self.resolve(expr, planner)?;
        self.put(name, expr, planner)
    }

    /// Replaces the value of a column, which keeps its position.
    pub(crate) fn replace(
        &mut self,
        name: &str,
        expr: ast::Expr,
        planner: &mut RelationPlanner<'_, '_>,
    ) -> Result<()> {
        let expr = self.resolve(expr, planner)?;
        let columns = self.columns(planner)?;
        match columns.iter_mut().find(|column| column.name == name) {
            Some(column) => (column.expr, column.visible) = (expr, true),
            None => columns.push(PipeColumn::new(name, expr)),
        }
        Ok(())
    }

    /// Adds a column of a resolved expression, or replaces the one of its name.
    pub(crate) fn put(
        &mut self,
        name: &str,
        expr: ast::Expr,
        planner: &mut RelationPlanner<'_, '_>,
    ) -> Result<()> {
        self.open_object(name, planner)?;
        let columns = self.columns(planner)?;
        let below = |own: &str| own.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
        columns.retain(|column| column.name != name && (column.visible || !below(&column.name)));
        columns.push(PipeColumn::new(name, expr));
        match columns.len() > MAX_COLUMNS {
            true => Err(SqlError::TooLarge(format!("the pipeline has more than {MAX_COLUMNS} columns"))),
            false => Ok(()),
        }
    }

    /// Replaces the object of an index that a name is a member of by columns of its leaves, since one of them gets another value.
    fn open_object(&mut self, name: &str, planner: &RelationPlanner<'_, '_>) -> Result<()> {
        // An object that a command has chosen stays as it is.
        let (Input::Index(expression), None) = (&self.input, &self.columns) else { return Ok(()) };
        let expression = expression.clone();
        let columns = self.columns(planner)?;
        let is_object = |column: &PipeColumn| {
            let rest = name.strip_prefix(column.name.as_str());
            column.visible && column.is_plain() && rest.is_some_and(|rest| rest.starts_with('.'))
        };
        let Some(at) = columns.iter().position(is_object) else { return Ok(()) };
        let Some(object) = columns.get(at).and_then(|column| syntax::path(&column.expr)) else {
            return Ok(());
        };
        let below = format!("{object}.");
        let shown = columns.get(at).map(|column| column.name.clone()).unwrap_or_default();
        let leaves = planner.field_paths(&expression).into_iter();
        let leaves: Vec<PipeColumn> = leaves
            .filter_map(|path| {
                let rest = path.strip_prefix(&below)?;
                Some(PipeColumn::new(format!("{shown}.{rest}"), syntax::column(&path)))
            })
            .collect();
        let known: Vec<String> = leaves.iter().map(|leaf| leaf.name.clone()).collect();
        if !leaves.is_empty() {
            columns.remove(at);
            columns.retain(|column| column.visible || !known.contains(&column.name));
            let at = at.min(columns.len());
            columns.splice(at..at, leaves);
        }
        Ok(())
    }

    /// Adds a column of a window function over the rows so far.
    pub(crate) fn extend_window(
        &mut self,
        name: &str,
        expr: ast::Expr,
        planner: &mut RelationPlanner<'_, '_>,
    ) -> Result<()> {
        if self.limit.is_some() || self.groups.is_some() {
            self.close(planner)?;
        }
        let expr = self.resolve(expr, planner)?;
        self.put(name, expr, planner)?;
        self.windowed = true;
        Ok(())
    }

    /// Adds columns that do not see one another.
    pub(crate) fn extend_together(
        &mut self,
        values: Vec<(String, ast::Expr)>,
        planner: &mut RelationPlanner<'_, '_>,
    ) -> Result<()> {
        let is_computed = values.iter().any(|(_, expr)| self.is_computed(expr));
        if self.groups.is_some() || is_computed {
            self.close(planner)?;
        }
        let mut resolved = Vec::with_capacity(values.len());
        for (name, expr) in values {
            resolved.push((name, self.resolve(expr, planner)?));
        }
        for (name, expr) in resolved {
            self.put(&name, expr, planner)?;
        }
        Ok(())
    }

    /// Adds columns of window functions that do not see one another.
    pub(crate) fn extend_windows(
        &mut self,
        windows: Vec<(String, ast::Expr)>,
        planner: &mut RelationPlanner<'_, '_>,
    ) -> Result<()> {
        let mut resolved = Vec::with_capacity(windows.len());
        for (name, expr) in windows {
            resolved.push((name, self.resolve(expr, planner)?));
        }
        for (name, expr) in resolved {
            self.put(&name, expr, planner)?;
        }
        self.windowed = true;
        Ok(())
    }

    /// Leaves columns by their names, in this order.
    pub(crate) fn keep(&mut self, names: &[String], planner: &mut RelationPlanner<'_, '_>) -> Result<()> {
        if self.groups.is_some() {
            self.close(planner)?;
        }
        let mut kept: Vec<PipeColumn> = Vec::with_capacity(names.len());
        for name in names {
            if kept.iter().any(|column| column.name == *name) {
                continue;
            }
            let expr = self.find(name, planner)?.ok_or_else(|| self.unknown(name, planner))?;
            let shown = self.shown_name(name, planner)?;
            let is_taken = names.contains(&shown) || kept.iter().any(|column| column.name == shown);
            let shown = if is_taken { name.clone() } else { shown };
            kept.push(PipeColumn::new(shown, expr));
        }
        // Names below an object stay known with it.
        let below = |own: &str| {
            let is_parent =
                |name: &String| own.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('.'));
            names.iter().any(is_parent)
        };
        let hidden = self.columns.iter().flatten().filter(|column| !column.visible && below(&column.name));
        let hidden: Vec<PipeColumn> = hidden.cloned().collect();
        kept.extend(hidden);
        self.columns = Some(kept);
        Ok(())
    }

    /// Leaves all columns but those of the names.
    pub(crate) fn drop(&mut self, names: &[String], planner: &mut RelationPlanner<'_, '_>) -> Result<()> {
        if self.groups.is_some() {
            self.close(planner)?;
        }
        let gone = |own: &str| {
            names.iter().any(|name| {
                own.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            })
        };
        self.columns(planner)?.retain(|column| !gone(&column.name));
        Ok(())
    }

    /// Gives a column another name.
    pub(crate) fn rename(
        &mut self,
        from: &str,
        to: &str,
        planner: &mut RelationPlanner<'_, '_>,
    ) -> Result<()> {
        if self.groups.is_some() {
            self.close(planner)?;
        }
        self.columns(planner)?;
        let Some(expr) = self.find(from, planner)? else { return Err(self.unknown(from, planner)) };
        let columns = self.columns(planner)?;
        columns.retain(|column| column.name != to || column.name == from);
        match columns.iter_mut().find(|column| column.name == from) {
            Some(column) => (column.name, column.visible) = (to.to_owned(), true),
            None => columns.push(PipeColumn::new(to, expr)),
        }
        Ok(())
    }

    /// Orders the rows by keys over the columns.
    pub(crate) fn sort(&mut self, keys: Vec<SortKey>, planner: &mut RelationPlanner<'_, '_>) -> Result<()> {
        if self.limit.is_some() || self.windowed {
            self.close(planner)?;
        }
        let mut order = Vec::with_capacity(keys.len());
        for key in keys {
            // The value of a column that is not bound is a key without being bound.
            let is_grouped = self.groups.is_some();
            let own = syntax::path(&key.expr).and_then(|path| {
                let column = self.columns.iter().flatten().find(|column| column.name == path)?;
                (is_grouped || !column.is_plain()).then(|| column.expr.clone())
            });
            let expr = match own {
                Some(expr) => expr,
                None => self.resolve(key.expr, planner)?,
            };
            order.push(SortKey { expr, ..key });
        }
        self.order = order;
        Ok(())
    }

    /// Binds what gives names of the input another meaning, or leaves rows out behind it: a window sees the columns and rows as they are.
    pub(crate) fn level(&mut self, planner: &mut RelationPlanner<'_, '_>) -> Result<()> {
        self.columns(planner)?;
        let plain = |column: &PipeColumn| syntax::path(&column.expr).is_some_and(|path| path == column.name);
        let columns = self.columns.as_deref().unwrap_or_default();
        let is_plain = columns.iter().all(plain) && self.has_order_columns();
        if self.limit.is_some() || self.groups.is_some() || !is_plain {
            self.close(planner)?;
        }
        Ok(())
    }

    /// Binds what is cut, so that what comes behind sees the rows that are left.
    pub(crate) fn close_limit(&mut self, planner: &mut RelationPlanner<'_, '_>) -> Result<()> {
        if self.limit.is_some() { self.close(planner) } else { Ok(()) }
    }

    /// Hides a column.
    pub(crate) fn hide(&mut self, name: &str) {
        let columns = self.columns.iter_mut().flatten();
        columns.filter(|column| column.name == name).for_each(|column| column.visible = false);
    }

    /// Skips rows and leaves so many of the others.
    pub(crate) fn cut(&mut self, skip: u64, count: u64) {
        self.limit = Some(match self.limit {
            None => (skip, Some(count)),
            Some((own, left)) => {
                let left = left.map_or(count, |left| left.saturating_sub(skip).min(count));
                (own.saturating_add(skip), Some(left))
            }
        });
    }

    /// Leaves a row for each group: columns of aggregates, then the keys. Expressions are ones of the user.
    pub(crate) fn aggregate(
        &mut self,
        aggregates: Vec<(String, ast::Expr)>,
        keys: Vec<(String, ast::Expr)>,
        planner: &mut RelationPlanner<'_, '_>,
    ) -> Result<()> {
        let exprs = || aggregates.iter().chain(&keys).map(|(_, expr)| expr);
        if self.limit.is_some()
            || self.windowed
            || self.groups.is_some()
            || exprs().any(|expr| self.is_computed(expr))
        {
            self.close(planner)?;
        }
        let groups = keys.len();
        let mut columns: Vec<PipeColumn> = Vec::with_capacity(aggregates.len() + groups);
        for (name, expr) in aggregates.into_iter().chain(keys) {
            let expr = self.resolve(expr, planner)?;
            columns.push(PipeColumn::new(name, expr));
        }
        self.columns = Some(columns);
        self.order.clear();
        self.groups = Some(groups);
        self.qualifiers.clear();
        Ok(())
    }
}

/// Returns whether a name is one of metadata that each document has.
pub(crate) fn is_metadata(name: &str) -> bool {
    matches!(name, "_id" | "_index" | "_score" | "_routing" | "_seq_no" | "_primary_term")
}

/// Lists the columns of indices that a pipeline may use.
fn index_columns(
    planner: &RelationPlanner<'_, '_>,
    expression: &str,
    names: &NameSet,
) -> Result<Vec<PipeColumn>> {
    let top = planner.top_level_fields(expression, |name| names.may_use(name)).into_iter();
    let mut columns: Vec<PipeColumn> = top
        .map(|name| {
            let expr = syntax::column(&name);
            PipeColumn::new(name, expr)
        })
        .collect();
    for name in names.paths() {
        let known = columns.iter().any(|column| column.name == *name);
        if !known && (is_metadata(name) || planner.field(expression, name)?.is_some()) {
            columns
                .push(PipeColumn { visible: false, ..PipeColumn::new(name.clone(), syntax::column(name)) });
        }
    }
    match columns.len() > MAX_COLUMNS {
        true => Err(SqlError::TooLarge(format!("the pipeline has more than {MAX_COLUMNS} columns"))),
        false => Ok(columns),
    }
}
