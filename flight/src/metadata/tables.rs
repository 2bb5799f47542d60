//! Catalogs, schemas, table types, and tables.

use std::sync::Arc;

use arrow_flight::sql::metadata::GetCatalogsBuilder;
use arrow_flight::sql::{Command, CommandGetTables};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use futures::{StreamExt, stream};
use millrace_storage::Session;
use millrace_storage::access::Action;
use millrace_storage::metadata::IndicesOptions;
use tonic::{Code, Status};

use crate::service::{Call, all_of};
use crate::wire::Batches;
use crate::{statement, status};

/// Name of the one schema.
const SCHEMA: &str = "";
/// What `SHOW TABLES` calls a table.
const TABLE: &str = "BASE TABLE";
/// Tables of a batch; with their schemas these take memory, of which there is no more than that of a batch.
const AT_ONCE: usize = 16;

/// Lists the names of the tables that a caller sees, in order.
pub(crate) fn names(session: &Session) -> Result<Vec<Arc<str>>, Status> {
    let indices = session.resolve("*", &IndicesOptions::open_only()).map_err(status::of)?;
    let mut names: Vec<Arc<str>> = indices.iter().map(|index| index.meta().name.clone()).collect();
    names.retain(|name| !name.starts_with('.'));
    names.sort_unstable();
    Ok(names)
}

/// Lists what is above tables: catalogs, schemas or types; `None` for another command.
pub(super) fn levels(command: &Command, catalog: &str) -> Result<Option<RecordBatch>, Status> {
    let batch = match command {
        Command::CommandGetCatalogs(_) => {
            let mut builder = GetCatalogsBuilder::new();
            builder.append(catalog);
            builder.build()
        }
        Command::CommandGetDbSchemas(command) => {
            let mut builder = command.clone().into_builder();
            builder.append(catalog, SCHEMA);
            builder.build()
        }
        Command::CommandGetTableTypes(command) => {
            let mut builder = (*command).into_builder();
            builder.append(TABLE);
            builder.build()
        }
        _ => return Ok(None),
    };
    // A pattern may be wrong.
    batch.map(Some).map_err(|error| Status::invalid_argument(error.to_string()))
}

/// Returns the schema of a list of tables.
pub(super) fn schema(command: &CommandGetTables) -> SchemaRef {
    let include = command.include_schema;
    CommandGetTables { include_schema: include, ..CommandGetTables::default() }.into_builder().schema()
}

/// Lists tables, some at a time: the schemas of all may be many.
pub(super) fn tables(call: &Call, command: CommandGetTables) -> Result<Batches, Status> {
    let session = call.begin(Action::Sql)?;
    let names = named(&names(&session)?, &command, call.shared.catalog())?;
    let chunks: Vec<Vec<Arc<str>>> = names.chunks(AT_ONCE).map(<[_]>::to_vec).collect();
    let of_all = Arc::new((call.clone(), session, command));
    Ok(stream::iter(chunks)
        .then(move |names| {
            let of_all = Arc::clone(&of_all);
            async move {
                let (call, session, command) = &*of_all;
                chunk(call, session, command, &names).await
            }
        })
        .boxed())
}

/// Keeps the names that a command asks for.
fn named(names: &[Arc<str>], command: &CommandGetTables, catalog: &str) -> Result<Vec<Arc<str>>, Status> {
    let nothing = Schema::empty();
    let mut command = CommandGetTables { include_schema: false, ..command.clone() };
    // Many clients know that name only.
    if command.table_types.iter().any(|kind| kind == "TABLE") {
        command.table_types.push(TABLE.to_owned());
    }
    let mut builder = command.into_builder();
    for name in names {
        builder.append(catalog, SCHEMA, name, TABLE, &nothing).map_err(|error| status::internal(&error))?;
    }
    // A pattern may be wrong.
    let kept = builder.build().map_err(|error| Status::invalid_argument(error.to_string()))?;
    let column: &datafusion::arrow::array::StringArray = kept
        .column(2)
        .as_any()
        .downcast_ref()
        .ok_or_else(|| status::internal(&"names of tables are no strings"))?;
    Ok(column.iter().flatten().map(Arc::from).collect())
}

async fn chunk(
    call: &Call,
    session: &Session,
    command: &CommandGetTables,
    names: &[Arc<str>],
) -> Result<RecordBatch, Status> {
    let include_schema = command.include_schema;
    let mut builder = CommandGetTables { include_schema, ..CommandGetTables::default() }.into_builder();
    for name in names {
        let schema = match include_schema {
            false => None,
            true => match columns(call, session, name).await? {
                // It was deleted meanwhile.
                None => continue,
                schema => schema,
            },
        };
        let schema = schema.unwrap_or_else(|| Arc::new(Schema::empty()));
        let appended = builder.append(call.shared.catalog(), SCHEMA, name, TABLE, &schema);
        appended.map_err(|error| status::internal(&error))?;
    }
    builder.build().map_err(|error| status::internal(&error))
}

/// Returns the columns of a table, none of one that statements cannot be put to; `None` where it is not there any more.
async fn columns(call: &Call, session: &Session, name: &str) -> Result<Option<SchemaRef>, Status> {
    let described = statement::describe(&call.shared.beside.node.search, session, &all_of(name)?).await;
    match described {
        Ok(described) => Ok(described.columns),
        Err(error) if matches!(error.code(), Code::NotFound | Code::FailedPrecondition) => Ok(None),
        Err(error) if error.code() == Code::InvalidArgument => Ok(Some(Arc::new(Schema::empty()))),
        Err(error) => Err(error),
    }
}
