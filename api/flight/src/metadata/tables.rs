//! Catalogs, schemas, table types, and tables.

use std::sync::Arc;

use arrow_flight::sql::metadata::GetCatalogsBuilder;
use arrow_flight::sql::{Command, CommandGetTables};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use futures::{StreamExt, stream};
use millrace_catalog::access::Action;
use millrace_catalog::metadata::IndicesOptions;
use millrace_engine::Session;
use millrace_runtime::Priority;
use tonic::{Code, Status};

use crate::call::Call;
use crate::limits::{all_of, excerpt};
use crate::wire::{Batches, computed};
use crate::{statement, status};

/// Name of the one schema.
const SCHEMA: &str = "";
/// Table type of `SHOW TABLES`.
const TABLE: &str = "BASE TABLE";
/// Tables of a batch, and columns of them beyond which there are no more in it: schemas take memory, of which there is no more than
/// that of a batch.
const AT_ONCE: usize = 16;
const COLUMNS_AT_ONCE: usize = 10_000;
/// Longest pattern, in bytes: several times that of the longest name.
const MAX_PATTERN: usize = 1 << 10;

/// Lists the names of the tables that a caller sees, in order.
pub(crate) async fn names(call: &Call, session: &Session) -> Result<Vec<Arc<str>>, Status> {
    let session = session.clone();
    let names = move || {
        let indices = session.resolve("*", &IndicesOptions::open_only()).map_err(status::from_error)?;
        let mut names: Vec<Arc<str>> = indices.iter().map(|index| index.meta().name.clone()).collect();
        names.retain(|name| !name.starts_with('.'));
        names.sort_unstable();
        Ok(names)
    };
    computed(call.compute(), Priority::Foreground, names).await
}

/// Lists the levels above tables: catalogs, schemas or types; `None` for another command.
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
pub(super) async fn tables(call: &Call, command: CommandGetTables) -> Result<Batches, Status> {
    let session = call.begin(Action::Sql)?;
    let names = names(call, &session).await?;
    let (include_schema, catalog) = (command.include_schema, call.shared.catalog().to_owned());
    let names =
        computed(call.compute(), Priority::Foreground, move || named(names, command, &catalog)).await?;
    let listing = Listing { call: call.clone(), session, names: names.into_iter(), include_schema };
    Ok(stream::try_unfold(listing, |mut listing| async move {
        Ok(listing.next().await?.map(|batch| (batch, listing)))
    })
    .boxed())
}

/// Keeps the names that a command asks for.
fn named(
    names: Vec<Arc<str>>,
    mut command: CommandGetTables,
    catalog: &str,
) -> Result<Vec<Arc<str>>, Status> {
    command.include_schema = false;
    // There is one type, which many clients know by another name. Looking for each that is asked for would take its time.
    let types = std::mem::take(&mut command.table_types);
    if !types.is_empty() && !types.iter().any(|kind| kind == "TABLE" || kind == TABLE) {
        return Ok(Vec::new());
    }
    let (nothing, mut builder) = (Schema::empty(), command.into_builder());
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

/// Refuses a pattern that no name is as long as.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub(super) fn check_pattern(pattern: Option<&str>) -> Result<(), Status> {
    match pattern {
        Some(pattern) if pattern.len() > MAX_PATTERN => Err(Status::invalid_argument(format!(
            "the pattern [{}…] is longer than [{MAX_PATTERN}] bytes",
            excerpt(pattern)
        ))),
        _ => Ok(()),
    }
}

/// Tables that are listed.
struct Listing {
    call: Call,
    session: Session,
    /// Those that are to come.
    names: std::vec::IntoIter<Arc<str>>,
    include_schema: bool,
}

impl Listing {
    /// Makes the next batch.
    async fn next(&mut self) -> Result<Option<RecordBatch>, Status> {
        if self.names.len() == 0 {
            return Ok(None);
        }
        // Whoever reads the list may take long.
        self.session = self.session.again().await.map_err(|error| status::noted(&self.session, error))?;
        let (mut tables, mut width) = (Vec::new(), 0);
        while tables.len() < AT_ONCE && width < COLUMNS_AT_ONCE {
            let Some(name) = self.names.next() else { break };
            if !self.session.access(&name).allows(Action::Sql) {
                continue;
            }
            let schema = match self.include_schema {
                false => None,
                true => match columns(&self.call, &self.session, &name).await? {
                    // It was deleted meanwhile.
                    None => continue,
                    schema => schema,
                },
            };
            let schema = schema.unwrap_or_else(|| Arc::new(Schema::empty()));
            width += schema.fields().len();
            tables.push((name, schema));
        }
        let (include_schema, catalog) = (self.include_schema, self.call.shared.catalog().to_owned());
        let batch = move || {
            let command = CommandGetTables { include_schema, ..CommandGetTables::default() };
            let mut builder = command.into_builder();
            for (name, schema) in tables {
                let appended = builder.append(&catalog, SCHEMA, name, TABLE, &schema);
                appended.map_err(|error| status::internal(&error))?;
            }
            builder.build().map_err(|error| status::internal(&error))
        };
        computed(self.call.compute(), Priority::Foreground, batch).await.map(Some)
    }
}

/// Returns the columns of a table, none of one that statements cannot be put to; `None` where it is not there any more.
async fn columns(call: &Call, session: &Session, name: &str) -> Result<Option<SchemaRef>, Status> {
    let described = statement::describe(call, session, &all_of(name)?).await;
    match described {
        Ok(described) => Ok(described.columns),
        Err(error) if matches!(error.code(), Code::NotFound | Code::FailedPrecondition) => Ok(None),
        Err(error) if error.code() == Code::InvalidArgument => Ok(Some(Arc::new(Schema::empty()))),
        Err(error) => Err(error),
    }
}
