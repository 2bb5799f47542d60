//! Statements, as `millrace-query` answers them.

use std::sync::Arc;

use datafusion::arrow::array::{Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use futures::{StreamExt, stream};
use millrace_query::SearchService;
use millrace_storage::Session;
use tonic::Status;

use crate::handles::Prepared;
use crate::wire::{self, Batches};

/// What a statement answers and takes.
pub(crate) struct Described {
    /// Columns of its answer as they are sent; none of one that changes something.
    pub(crate) columns: Option<SchemaRef>,
    /// A field a parameter.
    pub(crate) parameters: SchemaRef,
}

/// Describes a statement without running it.
pub(crate) async fn describe(
    _search: &SearchService,
    _session: &Session,
    query: &str,
) -> Result<Described, Status> {
    if query != "SELECT 1" {
        return Err(Status::unimplemented("statements"));
    }
    let columns = wire::schema(&Schema::new(vec![Field::new("1", DataType::Int64, true)]));
    Ok(Described { columns: Some(columns), parameters: Arc::new(Schema::empty()) })
}

/// Runs a statement that answers rows: their schema as it is sent, and the rows as they come.
pub(crate) async fn batches(
    search: &SearchService,
    session: &Session,
    query: &str,
    _parameters: Option<RecordBatch>,
) -> Result<(SchemaRef, Batches), Status> {
    let schema = describe(search, session, query).await?.columns.unwrap();
    let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(Int64Array::from(vec![1]))]).unwrap();
    Ok((schema, stream::iter([Ok(batch)]).boxed()))
}

/// Runs a statement that changes something. Returns how much.
pub(crate) async fn update(
    _search: &SearchService,
    _session: &Session,
    _query: &str,
    _parameters: Option<RecordBatch>,
) -> Result<u64, Status> {
    Err(Status::unimplemented("statements"))
}

/// Runs a prepared statement that changes something once for each row that is bound, or once where it has no parameters.
pub(crate) async fn update_each(
    search: &SearchService,
    session: &Session,
    prepared: &Prepared,
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
pub(crate) fn one_row(prepared: &Prepared) -> Result<Option<RecordBatch>, Status> {
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
