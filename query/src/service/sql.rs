//! `_plugins/_sql`: statements, and what they are planned to.

use bytes::Bytes;
use millrace_storage::Principal;
use serde_json::Value;

use super::{Outcome, OutcomeBody, SearchService};
use crate::error::Error;
use crate::params::Params;
use crate::sql::error::SqlError;
use crate::sql::format::Format;
use crate::sql::request::SqlRequest;

impl SearchService {
    /// Answers a statement of SQL. Errors of statements have a form of their own, so they are answers too.
    pub async fn sql(
        &self,
        principal: &Principal,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> Outcome {
        self.run_sql(principal, params, body).await.unwrap_or_else(|error| refused(&error))
    }

    /// Explains a statement of SQL; see [`SearchService::sql`].
    pub async fn explain_sql(
        &self,
        principal: &Principal,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> Outcome {
        self.run_explain(principal, params, body).await.unwrap_or_else(|error| refused(&error))
    }

    async fn run_sql(
        &self,
        principal: &Principal,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> Result<Outcome, SqlError> {
        let format = params.iter().rev().find(|(name, _)| name == "format").map(|(_, value)| value.clone());
        let mut params = Params::new("/_plugins/_sql".to_owned(), params);
        let sanitize = params.boolean("sanitize")?.unwrap_or(true);
        params.finish()?;
        let format = Format::of(format.as_deref().unwrap_or_default(), sanitize)?;
        let request = SqlRequest::parse(body.as_ref())?;
        let runner = self.runner.as_ref().ok_or_else(|| self.unplanned())?;
        let text = runner
            .answer(&self.engine, principal, request, format, self.now_ms(), self.default_timeout())
            .await?;
        let body = match format {
            Format::Jdbc => OutcomeBody::Raw(Bytes::from(text)),
            Format::Csv { .. } | Format::Raw { .. } => OutcomeBody::Text(Bytes::from(text)),
        };
        Ok(Outcome { status: 200, body })
    }

    async fn run_explain(
        &self,
        principal: &Principal,
        params: Vec<(String, String)>,
        body: Option<Value>,
    ) -> Result<Outcome, SqlError> {
        Params::new("/_plugins/_sql/_explain".to_owned(), params).finish()?;
        let request = SqlRequest::parse(body.as_ref())?;
        let runner = self.runner.as_ref().ok_or_else(|| self.unplanned())?;
        let explained = runner.explain(&self.engine, principal, request, self.now_ms()).await?;
        Ok(Outcome::json(200, explained))
    }

    fn unplanned(&self) -> Error {
        match self.searcher() {
            Err(error) => error,
            Ok(_) => Error::Execution("statements cannot be planned".to_owned()),
        }
    }
}

fn refused(error: &SqlError) -> Outcome {
    Outcome::json(error.status(), error.to_body())
}
