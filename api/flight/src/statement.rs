//! Statements, as `millrace-query` answers them.

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use futures::{StreamExt, TryStreamExt};
use millrace_engine::Session;
use millrace_query::{SearchService, SqlError, StatementDescription};
use tonic::{Code, Status};

use crate::call::Call;
use crate::handles::PreparedStatement;
use crate::status;
use crate::wire::Answer;

/// Makes the status of an error of a statement.
fn failed(error: SqlError) -> Status {
    let code = match &error {
        SqlError::Syntax(_) | SqlError::Semantic(_) | SqlError::Evaluation(_) | SqlError::Request(_) => {
            Code::InvalidArgument
        }
        SqlError::Unsupported(_) => Code::Unimplemented,
        SqlError::Disabled(_) => Code::FailedPrecondition,
        SqlError::Cursor(_) => Code::NotFound,
        SqlError::TooLarge(_) => Code::ResourceExhausted,
        SqlError::Unread(_) => Code::DeadlineExceeded,
        SqlError::Cancelled(_) => Code::Cancelled,
        SqlError::Query(_) => return of_query(error),
        SqlError::Located(_) => return of_located(error),
    };
    status::new(code, &error.to_string())
}

/// Makes the status of an error at a place of a statement.
fn of_located(error: SqlError) -> Status {
    match error {
        SqlError::Located(located) => failed(located.error),
        other => status::internal(&other),
    }
}

/// Makes the status of what a statement reads.
fn of_query(error: SqlError) -> Status {
    match error {
        SqlError::Query(millrace_query::Error::TimedOut) => {
            Status::deadline_exceeded("the statement took more than its time")
        }
        SqlError::Query(error) => status::from_error(error),
        other => status::internal(&other),
    }
}

/// Describes a statement without running it, with timestamps as the caller reads them.
pub(crate) async fn describe(
    call: &Call,
    session: &Session,
    query: &str,
) -> Result<StatementDescription, Status> {
    let search = &call.shared.listener.node.search;
    let mut described = search.describe_statement(session, query).await.map_err(failed)?;
    described.columns = described.columns.map(|columns| call.zone.apply(columns));
    described.parameters = call.zone.apply(described.parameters);
    Ok(described)
}

/// Runs a statement that answers rows: their schema, and their messages as they are taken.
pub(crate) async fn batches(
    search: &SearchService,
    session: &Session,
    query: &str,
    parameters: Option<RecordBatch>,
) -> Result<(SchemaRef, Answer), Status> {
    let batches = search.statement_batches(session, query, parameters).await.map_err(failed)?;
    let schema = SchemaRef::clone(batches.schema());
    Ok((schema, Answer::Encoded(batches.map_err(failed).boxed())))
}

/// Runs a statement that changes something. Returns how much.
pub(crate) async fn update(
    search: &SearchService,
    session: &Session,
    query: &str,
    parameters: Option<RecordBatch>,
) -> Result<u64, Status> {
    search.update_statement(session, query, parameters).await.map_err(failed)
}

/// Runs a prepared statement that changes something once for each row that is bound, or once where it has no parameters.
pub(crate) async fn update_each(
    search: &SearchService,
    session: &Session,
    prepared: &PreparedStatement,
) -> Result<u64, Status> {
    let Some(rows) = &prepared.bound else {
        return update(search, session, &prepared.query, one_row(prepared)?).await;
    };
    let mut count = 0;
    for row in 0..rows.num_rows() {
        count += update(search, session, &prepared.query, Some(rows.slice(row, 1))).await?;
    }
    Ok(count)
}

/// Returns the row that is bound to a prepared statement, which is one where it has parameters.
pub(crate) fn one_row(prepared: &PreparedStatement) -> Result<Option<RecordBatch>, Status> {
    let parameters = prepared.parameters.fields().len();
    match &prepared.bound {
        _ if parameters == 0 => Ok(None),
        Some(rows) if rows.num_rows() == 1 => Ok(Some(rows.clone())),
        Some(rows) => Err(Status::invalid_argument(format!(
            "a statement takes one row of values for its parameters, got [{}]",
            rows.num_rows()
        ))),
        None => Err(Status::invalid_argument(format!(
            "nothing is bound to the [{parameters}] parameters of the statement"
        ))),
    }
}
