//! The interface for statements of other languages that are planned as relations, as SQL's are.
//!
//! A [`RelationalStatement`] is handed to [`Runner`](super::run::Runner) within a request. Rights, memory, stops, formats and
//! explanations are those of SQL. It builds its plan by a [`RelationPlanner`]: each step is a query of SQL's syntax tree over the
//! relations before it, so that names, types, nulls and functions mean the same in both languages.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

pub use datafusion::common::NullHandling;
use datafusion::common::{Column, UnnestOptions};
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, LogicalPlanBuilder};
use millrace_matching::table::TableSnapshot;
use sqlparser::ast;

use super::bind::Binder;
pub use super::bind::OutColumn;
use super::bind::{PlannedQuery, Relation};
use super::error::{Result, SqlError};
use super::functions::lists;
use super::shared::Shared;
use super::source;
use super::statement::check_query;
pub use super::types::SqlType;

/// Beginning of the names of relations that no statement spells out: an identifier of a user holds no such character.
const RESERVED: char = '\u{1}';

/// Most levels of the expressions of all steps of a statement.
const MAX_LEVELS: usize = 2_000;

/// A statement of another language.
pub trait RelationalStatement: fmt::Debug + Send + Sync {
    /// Lists the index expressions that the statement reads.
    fn index_expressions(&self) -> Vec<String>;

    /// Returns whether the statement may name scores.
    fn names_score(&self) -> bool;

    /// Plans the statement; `rows` are answered at most.
    ///
    /// # Errors
    /// Those of the statement before it runs.
    fn plan(&self, planner: &mut RelationPlanner<'_, '_>, rows: Option<usize>) -> Result<PlannedRelation>;
}

/// The plan of a statement, ready to run.
#[derive(Debug)]
pub struct PlannedRelation(pub(super) PlannedQuery);

impl PlannedRelation {
    /// Lists the output columns.
    pub fn columns(&self) -> &[OutColumn] {
        &self.0.columns
    }

    /// Returns the output columns to rename them.
    pub fn columns_mut(&mut self) -> &mut [OutColumn] {
        &mut self.0.columns
    }
}

/// The relation of a step of a statement: a plan with named and typed columns.
#[derive(Clone, Debug)]
pub struct BoundRelation(Relation);

/// Type of a field of an index expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldSummary {
    /// Type of its values.
    pub ty: SqlType,
    /// `true` if it holds several values.
    pub list: bool,
}

/// Binds the queries that the steps of a statement are.
#[derive(Debug)]
pub struct RelationPlanner<'b, 'a> {
    binder: &'b mut Binder<'a>,
    next_relation: usize,
    /// Levels of the expressions of all steps: the optimizer puts expressions of a step into those of the next one.
    levels: usize,
}

impl<'b, 'a> RelationPlanner<'b, 'a> {
    pub(super) fn new(binder: &'b mut Binder<'a>) -> Self {
        binder.is_pipeline = true;
        Self { binder, next_relation: 0, levels: 0 }
    }

    fn snapshot(&self, expression: &str) -> Option<&Arc<TableSnapshot>> {
        let snapshots: &HashMap<_, _> = self.binder.snapshots;
        snapshots.get(expression)
    }

    /// Lists those of the top-level fields of an index expression that the statement may use.
    pub fn top_level_fields(&self, expression: &str, may_use: impl Fn(&str) -> bool) -> Vec<String> {
        let Some(snapshot) = self.snapshot(expression) else { return Vec::new() };
        source::top_level_among(snapshot, may_use)
    }

    /// Lists the paths of all fields of an index expression, without those below other fields.
    pub fn field_paths(&self, expression: &str) -> Vec<String> {
        let Some(snapshot) = self.snapshot(expression) else { return Vec::new() };
        let mut paths: Vec<String> = Vec::new();
        for index in &snapshot.indices {
            let leaves = index.mapping.fields().map(|field| field.path.as_ref());
            for path in leaves.chain(index.mapping.aliases().map(|(path, _)| path)) {
                let parent = path.rsplit_once('.').map(|(parent, _)| parent);
                if parent.is_none_or(|parent| index.mapping.field(parent).is_none()) {
                    paths.push(path.to_owned());
                }
            }
        }
        paths.sort_unstable();
        paths.dedup();
        paths
    }

    /// Finds a field of an index expression; `None` where no index has it.
    ///
    /// # Errors
    /// The indices have different types of it.
    pub fn field(&self, expression: &str, path: &str) -> Result<Option<FieldSummary>> {
        let Some(snapshot) = self.snapshot(expression) else { return Ok(None) };
        let column = source::column_of(snapshot, path)?;
        Ok(column.map(|column| FieldSummary { ty: column.ty, list: column.list }))
    }

    /// Returns the time of the request, in milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        self.binder.now_ms
    }

    /// Names a relation for one use in FROM of a later query.
    pub fn define(&mut self, relation: BoundRelation) -> String {
        let name = format!("{RESERVED}{}", self.next_relation);
        self.next_relation += 1;
        self.binder.define(name.clone(), relation.0);
        name
    }

    /// Makes a relation one that runs once, however many queries read it; see [`Self::define`].
    pub fn share(&mut self, mut relation: BoundRelation) -> BoundRelation {
        let node = Arc::new(Shared::new(relation.0.plan));
        relation.0.plan = LogicalPlan::Extension(Extension { node });
        relation
    }

    /// Makes a row of each element of a column that has arrays, of at most so many. A row without elements has a null then, or goes.
    ///
    /// # Errors
    /// The column has no arrays.
    pub fn unnest(
        &mut self,
        relation: BoundRelation,
        name: &str,
        limit: Option<usize>,
        without_elements: NullHandling,
    ) -> Result<BoundRelation> {
        let BoundRelation(Relation { plan, mut columns, order }) = relation;
        let found = columns.iter_mut().enumerate().find(|(_, column)| column.label() == name);
        let Some((at, column)) = found else { return Err(SqlError::unknown_field(name)) };
        let own = Expr::Column(Column::new_unqualified(format!("c{at}")));
        let is_scalar = !column.list && !column.ty.is_json();
        if is_scalar && without_elements == NullHandling::Drop {
            // One value is its only element.
            let plan = LogicalPlanBuilder::new(plan).filter(own.is_not_null())?.build()?;
            return Ok(BoundRelation(Relation { plan, columns, order }));
        }
        let element = match (column.ty, column.element) {
            (SqlType::Nested, _) => SqlType::Object,
            (ty, element) => element.filter(|_| !column.list).unwrap_or(ty),
        };
        let list = match (column.list, column.ty.is_json()) {
            (true, _) => match limit {
                Some(limit) => lists::head(own, limit),
                None => own,
            },
            (false, true) => lists::elements(own, limit.unwrap_or(usize::MAX), element),
            (false, false) => {
                return Err(SqlError::Semantic(format!(
                    "Cannot expand field '{name}': expected ARRAY type but found {}",
                    column.ty.general_name()
                )));
            }
        };
        if column.ty != element {
            (column.ty, column.shown) = (element, element.name());
        }
        (column.list, column.element) = (false, None);
        let outputs = (0..columns.len()).map(|place| match place == at {
            true => list.clone().alias(format!("c{place}")),
            false => Expr::Column(Column::new_unqualified(format!("c{place}"))),
        });
        let outputs: Vec<Expr> = outputs.collect();
        let plan = LogicalPlanBuilder::new(plan)
            .project(outputs)?
            .unnest_column_with_options(
                Column::new_unqualified(format!("c{at}")),
                UnnestOptions::new().with_null_handling(without_elements),
            )?
            .build()?;
        Ok(BoundRelation(Relation { plan, columns, order }))
    }

    /// Binds a query that is a step of the statement.
    ///
    /// # Errors
    /// Those of the query.
    pub fn relation(&mut self, query: &ast::Query) -> Result<BoundRelation> {
        self.check(query)?;
        let planned = self.binder.query(query, None, 1)?;
        Relation::new(planned, "a step").map(BoundRelation)
    }

    /// Refuses expressions that are too deep, alone or with those of the steps before.
    fn check(&mut self, query: &ast::Query) -> Result<()> {
        self.levels += check_query(query)?;
        match self.levels > MAX_LEVELS {
            true => Err(SqlError::TooLarge(format!(
                "the expressions of the steps of the statement have more than {MAX_LEVELS} levels"
            ))),
            false => Ok(()),
        }
    }

    /// Binds the query that is the last step of the statement; `rows` are answered where it does not say how many.
    ///
    /// # Errors
    /// Those of the query.
    pub fn answer(&mut self, query: &ast::Query, rows: Option<usize>) -> Result<PlannedRelation> {
        self.check(query)?;
        self.binder.query(query, rows, 0).map(PlannedRelation)
    }
}

impl BoundRelation {
    /// Lists the columns.
    pub fn columns(&self) -> &[OutColumn] {
        &self.0.columns
    }
}

impl OutColumn {
    /// Returns the name by which queries know the column.
    pub fn label(&self) -> &str {
        self.alias.as_deref().unwrap_or(&self.name)
    }
}
