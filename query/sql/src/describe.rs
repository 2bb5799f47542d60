//! Describes the columns and parameters of a statement, found by binding it without running it: clients of prepared statements
//! need them.
//!
//! A statement runs with types of its own, which values of parameters may change (`SELECT ?`). Who reads batches gets the types that
//! were described, whatever the values are; see [`export`](super::export).

use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use futures::future::BoxFuture;
use millrace_session::SearchSession;
use sqlparser::ast;

use super::bind::{OutColumn, tables};
use super::delete::may_delete;
use super::error::Result;
use super::explain::explain_columns;
use super::export::{self, exported_schema};
use super::metadata;
use super::parameters::Parameters;
use super::request::SqlRequest;
use super::run::{Bounds, Runner, StatementRequest};
use super::statement::{self, Names, Statement};
use super::types::SqlType;

/// Columns and parameters of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementDescription {
    /// Columns of the answer; `None` for a statement that changes documents.
    pub columns: Option<SchemaRef>,
    /// A field for each `?`, named `$1`, `$2`, …, of the type that its place tells, else text. All may be null.
    pub parameters: SchemaRef,
}

/// A statement as it was bound without values.
pub(super) struct Outline {
    /// Columns of the answer; `None` for a statement that changes documents.
    pub(super) columns: Option<Vec<OutColumn>>,
    /// Types of parameters.
    parameters: Vec<SqlType>,
}

impl Runner {
    /// Describes a statement; values of parameters in the request do not matter.
    ///
    /// # Errors
    /// Those that the statement has before it runs.
    pub fn describe<'a>(
        &'a self,
        session: &'a dyn SearchSession,
        request: SqlRequest,
        bounds: Bounds,
    ) -> BoxFuture<'a, Result<StatementDescription>> {
        let part = move |runner: Self, asked: StatementRequest| async move {
            let Outline { columns, parameters } = runner.outline(&asked, bounds).await?;
            let parameters = parameters.into_iter().enumerate();
            let parameters: Vec<Field> = parameters
                .map(|(at, ty)| Field::new(format!("${}", at + 1), export::exported(ty), true))
                .collect();
            Ok(StatementDescription {
                columns: columns.map(|columns| exported_schema(&columns)),
                parameters: Arc::new(Schema::new(parameters)),
            })
        };
        Box::pin(self.on_threads(session, request, bounds.now_ms, bounds.timeout_ms, part))
    }

    /// Binds a statement without values.
    pub(super) async fn outline(&self, asked: &StatementRequest, bounds: Bounds) -> Result<Outline> {
        let (statement, placeholders) = match &asked.request.statement {
            Some(statement) => (Statement::Relational(Arc::clone(statement)), 0),
            None => statement::counted(&asked.request.query)?,
        };
        let (columns, mut found) = match statement {
            Statement::Query(query, names) => {
                let (columns, found) = self.bound(asked, &query, &names).await?;
                (Some(columns), found)
            }
            Statement::Delete(query) => {
                may_delete(bounds)?;
                (None, self.bound(asked, &query, &Names::default()).await?.1)
            }
            Statement::Relational(statement) => {
                let prepared = self.prepare_relational(asked, statement.as_ref(), None).await?;
                (Some(prepared.planned.columns), Vec::new())
            }
            Statement::Explain { query, names, analyze } => {
                (Some(explain_columns(analyze)), self.bound(asked, &query, &names).await?.1)
            }
            Statement::ShowTables(_) => (Some(metadata::table_columns()), Vec::new()),
            Statement::DescribeTables(..) => (Some(metadata::field_columns()), Vec::new()),
            Statement::Show(statement) => (Some(statement.columns()), Vec::new()),
        };
        found.resize(placeholders, None);
        let parameters = found.into_iter().map(|ty| ty.unwrap_or(SqlType::Keyword)).collect();
        Ok(Outline { columns, parameters })
    }

    async fn bound(
        &self,
        asked: &StatementRequest,
        query: &ast::Query,
        names: &Names,
    ) -> Result<(Vec<OutColumn>, Vec<Option<SqlType>>)> {
        let snapshots = self.snapshots(&*asked.session, tables(query)).await?;
        let mut binder = self.binder(asked, &snapshots, names, &Parameters::Unbound);
        binder.list_valued = self.list_valued(asked, &snapshots).await?;
        let planned = binder.query(query, None, 0)?;
        Ok((planned.columns, binder.inferred))
    }
}
