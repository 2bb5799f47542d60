//! Statements of SQL for clients that read Arrow: described without being run, answered batch by batch, and those that change
//! documents, which answer how many.
//!
//! Rows, values, settings and times are those of `_plugins/_sql`; but no row is left out where a statement has no LIMIT.

use datafusion::arrow::array::RecordBatch;
use futures::future::BoxFuture;
use millrace_engine::Session;
use millrace_runtime::Instant;
use millrace_sql::batches::Batches;
use millrace_sql::describe::StatementDescription;
use millrace_sql::error::SqlError;
use millrace_sql::parameters::Parameters;
use millrace_sql::request::SqlRequest;
use tracing::Instrument as _;

use super::SearchService;
use super::sql::note;

/// Stands before the text of a pipeline where statements are of SQL: no statement of SQL begins with this character.
pub const PIPELINE_MARK: &str = "\u{1}ppl:";

impl SearchService {
    /// Describes the columns and parameters of a statement, without running it.
    ///
    /// # Errors
    /// Those that the statement has before it runs.
    pub fn describe_statement<'a>(
        &'a self,
        session: &'a Session,
        query: &'a str,
    ) -> BoxFuture<'a, Result<StatementDescription, SqlError>> {
        Box::pin(async move {
            let request = self.statement_request(query, None)?;
            let described = self.runner()?.describe(session, request, self.all_rows()).await;
            described.inspect_err(|error| note(session, error))
        })
    }

    /// Answers a query with batches, of exactly the schema that [`SearchService::describe_statement`] tells. `parameters` is a batch of
    /// one row, a column for each `?`.
    ///
    /// # Errors
    /// Those of the statement before its first rows; the stream has later ones. A statement that changes documents is refused.
    pub fn statement_batches<'a>(
        &'a self,
        session: &'a Session,
        query: &'a str,
        parameters: Option<RecordBatch>,
    ) -> BoxFuture<'a, Result<Batches, SqlError>> {
        Box::pin(async move {
            let request = self.statement_request(query, parameters)?;
            let began = Instant::now();
            let runner = self.runner()?;
            let running = runner.batches(session, request, self.all_rows());
            let batches = running.instrument(tracing::debug_span!("statement")).await;
            self.timings.statement.record(began.elapsed());
            batches.inspect_err(|error| note(session, error))
        })
    }

    /// Runs a statement that changes documents, and returns how many it has deleted. `parameters` are those of a query.
    ///
    /// # Errors
    /// Those of the statement, behind which some documents may be deleted; a query is refused.
    pub fn update_statement<'a>(
        &'a self,
        session: &'a Session,
        query: &'a str,
        parameters: Option<RecordBatch>,
    ) -> BoxFuture<'a, Result<u64, SqlError>> {
        Box::pin(async move {
            self.enabled()?;
            let updated = self.runner()?.update(session, request(query, parameters)?, self.all_rows()).await;
            updated.inspect_err(|error| note(session, error))
        })
    }
}

impl SearchService {
    /// Makes a request of a statement of SQL, or of a pipeline behind [`PIPELINE_MARK`].
    fn statement_request(
        &self,
        query: &str,
        parameters: Option<RecordBatch>,
    ) -> Result<SqlRequest, SqlError> {
        match (query.strip_prefix(PIPELINE_MARK), parameters) {
            (Some(pipeline), None) => self.pipeline_request(pipeline),
            (Some(_), Some(_)) => Err(SqlError::Request("a pipeline has no parameters".to_owned())),
            (None, parameters) => {
                self.enabled()?;
                request(query, parameters)
            }
        }
    }
}

fn request(query: &str, parameters: Option<RecordBatch>) -> Result<SqlRequest, SqlError> {
    let parameters = match parameters {
        None => Parameters::default(),
        Some(row) => Parameters::of_batch(&row)?,
    };
    Ok(SqlRequest { query: query.to_owned(), parameters, ..SqlRequest::default() })
}
