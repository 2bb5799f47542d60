//! Metadata: catalogs, schemas, tables, keys, types, and what the server can do.
//!
//! There is one catalog, the one that `SHOW TABLES` names, with one schema without a name; tables are the indices that the caller may
//! ask by SQL ([`tables`]). There are no keys ([`keys`]). [`sql_info`] and [`types`] tell what the server and its types can do.

mod keys;
mod sql_info;
mod tables;
mod types;

use arrow_flight::sql::Command;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use futures::{StreamExt, stream};
use tonic::Status;

pub(crate) use tables::names as table_names;

use crate::service::Call;
use crate::status;
use crate::wire::Batches;

/// Returns the schema of a listing; `None` for a command that is none.
pub(crate) fn schema(command: &Command) -> Option<SchemaRef> {
    Some(match command {
        Command::CommandGetCatalogs(_)
        | Command::CommandGetDbSchemas(_)
        | Command::CommandGetTableTypes(_) => tables::levels(command, "").ok()??.schema(),
        Command::CommandGetTables(command) => tables::schema(command),
        Command::CommandGetPrimaryKeys(_) => keys::primary(),
        Command::CommandGetExportedKeys(_)
        | Command::CommandGetImportedKeys(_)
        | Command::CommandGetCrossReference(_) => keys::foreign(),
        Command::CommandGetSqlInfo(command) => command.clone().into_builder(sql_info::data().ok()?).schema(),
        Command::CommandGetXdbcTypeInfo(command) => (*command).into_builder(types::data().ok()?).schema(),
        _ => return None,
    })
}

/// Answers a listing.
pub(crate) fn batches(call: &Call, command: Command) -> Result<(SchemaRef, Batches), Status> {
    let schema = schema(&command).ok_or_else(|| status::internal(&"a ticket is for no listing"))?;
    let batch = match command {
        Command::CommandGetTables(command) => return Ok((schema, tables::tables(call, command)?)),
        Command::CommandGetSqlInfo(command) => {
            // What is asked for and not known is left out, and nothing asked for is all.
            command.into_builder(sql_info::data()?).build().map_err(|error| status::internal(&error))?
        }
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
