//! Metadata: catalogs, schemas, tables, keys, types, and what the server can do.
//!
//! There is one catalog, the one that `SHOW TABLES` names, with one schema without a name; tables are the indices that the caller may
//! ask by SQL ([`tables`]). There are no keys ([`keys`]). [`sql_info`] and [`types`] tell what the server and its types can do.

mod keys;
mod sql_info;
mod tables;
mod types;

use arrow_flight::sql::{Command, CommandGetDbSchemas};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use futures::{StreamExt, stream};
use tonic::Status;

pub(crate) use tables::names as table_names;

use crate::call::Call;
use crate::status;
use crate::wire::Batches;

/// Returns the schema of a listing; `None` for a command that is none.
pub(crate) fn schema(command: &Command) -> Option<SchemaRef> {
    Some(match command {
        Command::CommandGetCatalogs(command) => (*command).into_builder().schema(),
        Command::CommandGetDbSchemas(_) => CommandGetDbSchemas::default().into_builder().schema(),
        Command::CommandGetTableTypes(command) => (*command).into_builder().schema(),
        Command::CommandGetTables(command) => tables::schema(command),
        Command::CommandGetPrimaryKeys(_) => keys::primary(),
        Command::CommandGetExportedKeys(_)
        | Command::CommandGetImportedKeys(_)
        | Command::CommandGetCrossReference(_) => keys::foreign(),
        Command::CommandGetSqlInfo(_) => sql_info::data().ok()?.schema(),
        Command::CommandGetXdbcTypeInfo(command) => (*command).into_builder(types::data().ok()?).schema(),
        _ => return None,
    })
}

/// Refuses a listing by patterns that no name is as long as.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub(crate) fn check(command: &Command) -> Result<(), Status> {
    match command {
        Command::CommandGetDbSchemas(command) => {
            tables::check_pattern(command.db_schema_filter_pattern.as_deref())
        }
        Command::CommandGetTables(command) => {
            tables::check_pattern(command.db_schema_filter_pattern.as_deref())?;
            tables::check_pattern(command.table_name_filter_pattern.as_deref())
        }
        _ => Ok(()),
    }
}

/// Answers a listing, that was checked when its ticket was given.
///
/// # Errors
/// `INVALID_ARGUMENT` for patterns that are wrong; those of the statements that tell the columns of tables.
pub(crate) async fn batches(call: &Call, command: Command) -> Result<(SchemaRef, Batches), Status> {
    let schema = schema(&command).ok_or_else(|| status::internal(&"a ticket is for no listing"))?;
    let batch = match command {
        Command::CommandGetTables(command) => return Ok((schema, tables::tables(call, command).await?)),
        Command::CommandGetSqlInfo(command) => sql_info::asked(command)?,
        Command::CommandGetXdbcTypeInfo(command) => {
            command.into_builder(types::data()?).build().map_err(|error| status::internal(&error))?
        }
        command => match tables::levels(&command, call.shared.catalog())? {
            Some(batch) => batch,
            None => RecordBatch::new_empty(schema.clone()),
        },
    };
    Ok((schema, stream::iter([Ok(batch)]).boxed()))
}
