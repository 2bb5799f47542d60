//! The clauses of a [`Pipe`] become queries, and these relations.

use millrace_sql::error::{Result, SqlError};
use millrace_sql::relational::{BoundRelation, NullHandling, PlannedRelation, RelationPlanner};
use sqlparser::ast;

use super::super::syntax;
use super::{Input, Pipe, PipeColumn, SortKey};

impl Pipe {
    /// Binds what is not bound yet.
    pub(crate) fn close(&mut self, planner: &mut RelationPlanner<'_, '_>) -> Result<()> {
        if self.is_bound() {
            return Ok(());
        }
        self.columns(planner)?;
        self.add_order_columns(planner)?;
        let order = self.order_names();
        let visible: Vec<(String, bool)> =
            self.columns.iter().flatten().map(|column| (column.name.clone(), column.visible)).collect();
        let query = self.query(false, planner)?;
        let relation = planner.relation(&query)?;
        let columns = visible.into_iter().map(|(name, visible)| PipeColumn {
            expr: syntax::column(&name),
            name,
            visible,
        });
        self.columns = Some(columns.collect());
        self.input = Input::Relation(Box::new(relation));
        self.conditions.clear();
        (self.groups, self.windowed, self.limit) = (None, false, None);
        self.order = order;
        Ok(())
    }

    fn is_bound(&self) -> bool {
        let plain = |column: &PipeColumn| syntax::path(&column.expr).is_some_and(|path| path == column.name);
        matches!(self.input, Input::Relation(_))
            && self.conditions.is_empty()
            && (self.limit.is_none() && self.groups.is_none() && !self.windowed)
            && self.columns.iter().flatten().all(plain)
            && self.has_order_columns()
    }

    /// Returns whether each key of the order is a column.
    pub(super) fn has_order_columns(&self) -> bool {
        let columns = self.columns.as_deref().unwrap_or_default();
        self.order.iter().all(|key| key_column(columns, &key.expr).is_some())
    }

    /// Has each key of the order be a column.
    fn add_order_columns(&mut self, planner: &RelationPlanner<'_, '_>) -> Result<()> {
        let order = std::mem::take(&mut self.order);
        let columns = self.columns(planner)?;
        for (at, key) in order.iter().enumerate() {
            if key_column(columns, &key.expr).is_none() {
                let mut name = format!("\u{1}order{at}");
                while columns.iter().any(|column| column.name == name) {
                    name.push('_');
                }
                columns.push(PipeColumn { visible: false, ..PipeColumn::new(name, key.expr.clone()) });
            }
        }
        self.order = order;
        Ok(())
    }

    /// Returns the order by the names of columns.
    fn order_names(&self) -> Vec<SortKey> {
        let columns: &[PipeColumn] = self.columns.as_deref().unwrap_or_default();
        let named = self.order.iter().map_while(|key| {
            let column = columns.get(key_column(columns, &key.expr)?)?;
            Some(SortKey { expr: syntax::column(&column.name), ..key.clone() })
        });
        named.collect()
    }

    /// Makes the query of what is not bound, over the columns as they are.
    fn query(&mut self, is_last: bool, planner: &mut RelationPlanner<'_, '_>) -> Result<ast::Query> {
        let columns = self.columns.clone().unwrap_or_default();
        let from = match &self.input {
            Input::Index(expression) => Some(syntax::table(expression, self.alias.as_deref())),
            Input::Relation(relation) => {
                let name = planner.define(relation.as_ref().clone());
                Some(syntax::table(&name, self.alias.as_deref()))
            }
            Input::Nothing => None,
        };
        let items = columns.iter().map(|column| (column.name.as_str(), column.expr.clone()));
        let mut select = syntax::select(items, from);
        select.selection = syntax::all_of(std::mem::take(&mut self.conditions));
        if let Some(groups) = self.groups {
            let first = columns.len().saturating_sub(groups) + 1;
            select.group_by = syntax::group_by((first..first + groups).map(syntax::ordinal));
        }
        // An order between steps matters to what is cut, if not all is; the last step states it again.
        let is_ordered = is_last || self.limit.is_some_and(|(_, count)| count != Some(0));
        let keys = self.order.iter().filter(|_| is_ordered).map(|key| {
            let expr = match key_column(&columns, &key.expr) {
                Some(at) => syntax::ordinal(at + 1),
                None => key.expr.clone(),
            };
            syntax::order_by(expr, key.ascending, key.nulls_first)
        });
        Ok(syntax::query(select, keys.collect(), self.limit))
    }

    /// Adds a column with the matches of fields of a pattern.
    ///
    /// # Errors
    /// The rows are not the documents of an index.
    pub(crate) fn highlight(&mut self, pattern: &str, planner: &mut RelationPlanner<'_, '_>) -> Result<()> {
        if !matches!(self.input, Input::Index(_)) || self.groups.is_some() {
            return Err(SqlError::Unsupported(
                "highlight is only supported where the rows are documents of an index".to_owned(),
            ));
        }
        let matches = syntax::call("highlight", vec![syntax::string(pattern)]);
        self.columns(planner)?.push(PipeColumn::new("_highlight", matches));
        Ok(())
    }

    /// Binds the last step: the visible columns of at most `rows` rows.
    pub(crate) fn answer(
        mut self,
        rows: Option<usize>,
        planner: &mut RelationPlanner<'_, '_>,
    ) -> Result<PlannedRelation> {
        let is_index = matches!(self.input, Input::Index(_));
        let columns = self.columns(planner)?;
        if is_index && columns.is_empty() {
            // An index without fields has documents without members, which have an identity alone.
            columns.push(PipeColumn::new("_id", syntax::column("_id")));
        }
        if !columns.iter().any(|column| column.visible) {
            return Err(SqlError::Semantic("the pipeline answers no column".to_owned()));
        }
        columns.retain(|column| column.visible);
        let shadowed = {
            let columns: &[PipeColumn] = self.columns.as_deref().unwrap_or_default();
            let is_shadowed = |key: &SortKey| {
                key_column(columns, &key.expr).is_none()
                    && syntax::paths(&key.expr).iter().any(|path| columns.iter().any(|own| own.name == *path))
            };
            self.order.iter().any(is_shadowed)
        };
        let lost = self.groups.is_some()
            && self
                .order
                .iter()
                .any(|key| key_column(self.columns.as_deref().unwrap_or_default(), &key.expr).is_none());
        if shadowed || lost {
            self.close(planner)?;
            self.columns(planner)?.retain(|column| column.visible);
        }
        if let (Some((_, count)), Some(rows)) = (&mut self.limit, rows) {
            let rows = u64::try_from(rows).unwrap_or(u64::MAX);
            *count = Some(count.map_or(rows, |count| count.min(rows)));
        }
        let query = self.query(true, planner)?;
        planner.answer(&query, rows)
    }

    /// Makes the query of the visible columns, for an expression of another pipeline.
    pub(crate) fn into_query(mut self, planner: &mut RelationPlanner<'_, '_>) -> Result<ast::Query> {
        self.columns(planner)?.retain(|column| column.visible);
        if self.limit.is_none() {
            self.order.clear();
        }
        self.query(false, planner)
    }

    /// Makes a row of each element of a column that has arrays; see [`RelationPlanner::unnest`].
    pub(crate) fn unnest(
        &mut self,
        name: &str,
        limit: Option<usize>,
        without_elements: NullHandling,
        planner: &mut RelationPlanner<'_, '_>,
    ) -> Result<()> {
        if self.find(name, planner)?.is_none() {
            return Err(self.unknown(name, planner));
        }
        if !self.columns(planner)?.iter().any(|column| column.name == name) {
            let expr = self.resolve(syntax::column(name), planner)?;
            self.put(name, expr, planner)?;
        }
        let is_below = |own: &str| own.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
        self.columns(planner)?.retain(|column| !is_below(&column.name));
        self.close(planner)?;
        self.input = match std::mem::replace(&mut self.input, Input::Nothing) {
            Input::Relation(relation) => {
                Input::Relation(Box::new(planner.unnest(*relation, name, limit, without_elements)?))
            }
            other => other,
        };
        Ok(())
    }

    /// Makes two pipes of the rows so far, which run once.
    pub(crate) fn shared(mut self, planner: &mut RelationPlanner<'_, '_>) -> Result<(Self, Self)> {
        self.close(planner)?;
        if let Input::Relation(relation) = self.input {
            self.input = Input::Relation(Box::new(planner.share(*relation)));
        }
        let other = Self {
            input: self.input.clone(),
            columns: self.columns.clone(),
            order: self.order.clone(),
            qualifiers: self.qualifiers.clone(),
            ..Self::new(Input::Nothing, None, self.names.clone())
        };
        Ok((self, other))
    }

    /// Lists the names of all columns, those that are hidden, too.
    pub(crate) fn all_names(&mut self, planner: &RelationPlanner<'_, '_>) -> Result<Vec<String>> {
        Ok(self.columns(planner)?.iter().map(|column| column.name.clone()).collect())
    }

    /// Binds all columns as a relation, those that are hidden, too.
    pub(crate) fn into_whole_relation(
        mut self,
        planner: &mut RelationPlanner<'_, '_>,
    ) -> Result<BoundRelation> {
        self.close(planner)?;
        match self.input {
            Input::Relation(relation) => Ok(*relation),
            _ => Err(SqlError::Semantic("the pipeline has no rows".to_owned())),
        }
    }

    /// Binds the visible columns as a relation.
    pub(crate) fn into_relation(mut self, planner: &mut RelationPlanner<'_, '_>) -> Result<BoundRelation> {
        self.columns(planner)?.retain(|column| column.visible);
        self.close(planner)?;
        match self.input {
            Input::Relation(relation) => Ok(*relation),
            _ => Err(SqlError::Semantic("the pipeline has no rows".to_owned())),
        }
    }
}

/// Finds the column that is a key of an order.
pub(super) fn key_column(columns: &[PipeColumn], key: &ast::Expr) -> Option<usize> {
    columns.iter().position(|column| column.expr == *key)
}
