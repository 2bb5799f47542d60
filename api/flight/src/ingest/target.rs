//! Target of rows: the index of a command, created, replaced or appended to as the command says.

use std::sync::Arc;

use arrow_flight::sql::{CommandStatementIngest, TableExistsOption, TableNotExistOption};
use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use millrace_catalog::access::Action;
use millrace_catalog::metadata::{
    CreateIndex, IndicesOptions, Metadata, MetadataChange, Uuid, check_index_name,
};
use millrace_engine::{Action as Operation, Session, WriteOp};
use millrace_mapping::Mapping;
use millrace_mapping::document::ChunkBuilder;
use millrace_runtime::{Error, Priority};
use serde_json::json;
use tonic::Status;

use super::mapping;
use crate::call::Call;
use crate::limits::refuse_transaction;
use crate::status;
use crate::wire::computed;

/// Fate of an index that exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IfExists {
    Fail,
    Append,
    Replace,
}

/// Target of rows.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) index: Arc<str>,
    existing: IfExists,
    creates: bool,
    /// Definition of the index to create; none where it exists.
    wanted: Option<NewIndex>,
}

/// An index that is created once the first rows are there.
#[derive(Debug)]
struct NewIndex {
    /// The schema of its rows.
    schema: SchemaRef,
    /// Creates it without a look at rows.
    create: CreateIndex,
}

/// The first rows of an ingestion.
#[derive(Debug)]
pub(super) struct FirstRows {
    /// The batch that they are in.
    batch: RecordBatch,
    /// Their documents, as many as are written first.
    documents: Vec<Bytes>,
}

impl FirstRows {
    /// Takes the documents of what is written first.
    pub(super) fn new(batch: RecordBatch, ops: &[WriteOp]) -> Self {
        let document = |op: &WriteOp| match &op.action {
            Operation::Index(document) => Some(document.clone()),
            _ => None,
        };
        Self { batch, documents: ops.iter().filter_map(document).collect() }
    }
}

impl Target {
    /// Reads a command.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, `NOT_FOUND` for a catalog or schema that is not there, `UNIMPLEMENTED` for what is refused by name.
    pub(super) fn read(command: &CommandStatementIngest, catalog: &str) -> Result<Self, Status> {
        refuse_transaction(command.transaction_id.as_ref())?;
        if command.temporary {
            return Err(status::unsupported("temporary tables"));
        }
        if command.catalog.as_ref().is_some_and(|named| !named.is_empty() && named != catalog) {
            return Err(Status::not_found(format!("there is no catalog but [{catalog}]")));
        }
        if command.schema.as_ref().is_some_and(|named| !named.is_empty()) {
            return Err(Status::not_found("there is no schema but the one without a name"));
        }
        if let Some(option) = command.options.keys().next() {
            let option: String = option.chars().take(100).collect();
            return Err(Status::invalid_argument(format!("there is no option [{option}] of ingestion")));
        }
        let unclear = || {
            Status::invalid_argument(
                "the command says what is to be done where the table exists, and where it does not: fail, append, \
                 replace or create",
            )
        };
        let options = command.table_definition_options.as_ref().ok_or_else(unclear)?;
        let existing = match options.if_exists() {
            TableExistsOption::Fail => IfExists::Fail,
            TableExistsOption::Append => IfExists::Append,
            TableExistsOption::Replace => IfExists::Replace,
            TableExistsOption::Unspecified => return Err(unclear()),
        };
        let creates = match options.if_not_exist() {
            TableNotExistOption::Create => true,
            TableNotExistOption::Fail => false,
            TableNotExistOption::Unspecified => return Err(unclear()),
        };
        if existing == IfExists::Fail && !creates {
            return Err(unclear());
        }
        // Nothing that stands for several, or is made of the date.
        check_index_name(&command.table).map_err(status::from_error)?;
        Ok(Self { index: command.table.as_str().into(), existing, creates, wanted: None })
    }

    /// Refuses whoever may not write to the index, before more of the rows is taken.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`.
    pub(super) fn check_rights(&self, call: &Call) -> Result<(), Status> {
        let writes = call.begin(Action::Bulk)?;
        let access = writes.access(&self.index);
        let may = access.allows(Action::CreateDocument) || access.allows(Action::IndexDocument);
        if may { Ok(()) } else { Err(status::noted(&writes, writes.refusal(&self.index))) }
    }

    /// Finds out what is to be done for rows of a schema, and whether it may be.
    ///
    /// # Errors
    /// `ALREADY_EXISTS`, `NOT_FOUND`, `PERMISSION_DENIED`, and `INVALID_ARGUMENT` for what no mapping can be made of.
    pub(super) async fn check(&mut self, call: &Call, schema: &SchemaRef) -> Result<(), Status> {
        let writes = call.begin(Action::Bulk)?;
        let metadata = writes.metadata();
        let is_alias = metadata.alias_indices(&self.index).is_some_and(|indices| !indices.is_empty());
        let exists = metadata.index(&self.index).is_some() || is_alias;
        match (exists, self.existing) {
            (true, IfExists::Append) => return Ok(()),
            (true, IfExists::Replace) => drop(self.may(call, Action::DeleteIndex).await?),
            (true, IfExists::Fail) | (false, _) => {}
        }
        if !self.creates && !exists {
            return Err(status::from_error(Error::IndexNotFound { index: self.index.to_string() }));
        }
        let session = self.may(call, Action::CreateIndex).await?;
        let (index, existing, schema) = (Arc::clone(&self.index), self.existing, Arc::clone(schema));
        let wanted = move || {
            let now_ms = session.clock().now_ms();
            let create = create(&index, &schema, None, now_ms)?;
            // What refuses it does so now, when nothing is deleted yet.
            let decided = decide(&index, existing, &session.metadata(), &create, now_ms);
            decided.map_err(|error| status::noted(&session, error))?;
            Ok(NewIndex { schema, create })
        };
        self.wanted = Some(computed(call.compute(), Priority::Ingest, wanted).await?);
        Ok(())
    }

    async fn may(&self, call: &Call, action: Action) -> Result<Session, Status> {
        let session = call.begin_again(action).await?;
        let may = session.access(&self.index).allows(action);
        if may { Ok(session) } else { Err(status::noted(&session, session.refusal(&self.index))) }
    }

    /// Returns true where the index is yet to be created.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.is_some()
    }

    /// Creates or replaces the index, once. The first documents are tried on its mapping before anything is deleted.
    ///
    /// # Errors
    /// As [`Target::check`], for a document that the index would refuse, and the store's.
    pub(super) async fn prepare(&mut self, call: &Call, first: Option<FirstRows>) -> Result<(), Status> {
        let Some(NewIndex { schema, create: empty }) = self.wanted.take() else { return Ok(()) };
        // Rows may have taken long to come.
        let session = self.may(call, Action::CreateIndex).await?;
        let now_ms = session.clock().now_ms();
        let create = match first {
            None => empty,
            Some(first) => {
                let (index, existing, metadata) =
                    (Arc::clone(&self.index), self.existing, session.metadata());
                let tried = move || {
                    let create = create(&index, &schema, Some(&first.batch), now_ms)?;
                    let changes =
                        decide(&index, existing, &metadata, &create, now_ms).map_err(status::from_error)?;
                    try_documents(&changes, &first.documents).map_err(status::from_error)?;
                    Ok(create)
                };
                computed(call.compute(), Priority::Ingest, tried).await?
            }
        };
        let change = |metadata: &Metadata| decide(&self.index, self.existing, metadata, &create, now_ms);
        session.change(change).await.map_err(|error| status::noted(&session, error))
    }
}

/// Makes the request that creates an index for rows of a schema.
fn create(
    index: &str,
    schema: &SchemaRef,
    rows: Option<&RecordBatch>,
    now_ms: i64,
) -> Result<CreateIndex, Status> {
    let body = json!({ "mappings": mapping::from_schema(schema, rows)? });
    CreateIndex::parse(index, &body, false, now_ms).map_err(status::from_error)
}

/// Reads documents by the mapping that an index is to have, templates included.
fn try_documents(changes: &[MetadataChange], documents: &[Bytes]) -> Result<(), Error> {
    for change in changes {
        let MetadataChange::PutIndex { meta, mapping: Some(mapping) } = change else { continue };
        let mut chunk = ChunkBuilder::new(Arc::new(Mapping::parse(mapping, &meta.settings)?));
        for document in documents {
            chunk.push("", document)?;
        }
    }
    Ok(())
}

/// Decides how an index becomes what it is to be: one that is there goes in the same step as the new one comes.
fn decide(
    index: &str,
    existing: IfExists,
    metadata: &Metadata,
    create: &CreateIndex,
    now_ms: i64,
) -> Result<Vec<MetadataChange>, Error> {
    let uuid = Uuid::new_v4();
    let is_alias = metadata.alias_indices(index).is_some_and(|indices| !indices.is_empty());
    let exists = metadata.index(index).is_some() || is_alias;
    match existing {
        // Somebody else was as quick.
        IfExists::Append if exists => Ok(Vec::new()),
        IfExists::Replace if exists => {
            let options = IndicesOptions { ignore_aliases: true, ..IndicesOptions::open_and_closed() };
            let mut changes = metadata.delete_indices(index, &options, now_ms)?;
            changes.extend(metadata.apply(&changes).create(create, now_ms, uuid)?);
            Ok(changes)
        }
        _ => metadata.create(create, now_ms, uuid),
    }
}

#[cfg(test)]
mod tests {
    use arrow_flight::sql::TableDefinitionOptions;
    use tonic::Code;

    use super::*;

    fn command(table: &str) -> CommandStatementIngest {
        let mut options = TableDefinitionOptions::default();
        options.set_if_exists(TableExistsOption::Append);
        options.set_if_not_exist(TableNotExistOption::Create);
        CommandStatementIngest {
            table_definition_options: Some(options),
            table: table.to_owned(),
            schema: None,
            catalog: None,
            temporary: false,
            transaction_id: None,
            options: Default::default(),
        }
    }

    #[test]
    fn what_is_not_there_or_not_clear_is_refused() {
        let refused = |change: &dyn Fn(&mut CommandStatementIngest)| {
            let mut command = command("logs");
            change(&mut command);
            Target::read(&command, "millrace").map(drop).map_err(|error| error.code())
        };
        assert_eq!(refused(&|_| ()), Ok(()));
        assert_eq!(refused(&|command| command.catalog = Some("millrace".to_owned())), Ok(()));
        assert_eq!(refused(&|command| command.catalog = Some("other".to_owned())), Err(Code::NotFound));
        assert_eq!(refused(&|command| command.schema = Some("main".to_owned())), Err(Code::NotFound));
        assert_eq!(refused(&|command| command.temporary = true), Err(Code::Unimplemented));
        assert_eq!(refused(&|command| command.transaction_id = Some("t".into())), Err(Code::Unimplemented));
        assert_eq!(refused(&|command| command.table_definition_options = None), Err(Code::InvalidArgument));
        let nothing = |command: &mut CommandStatementIngest| {
            command.table_definition_options = Some(TableDefinitionOptions::default());
        };
        assert_eq!(refused(&nothing), Err(Code::InvalidArgument));
        for table in ["*", "a,b", "", "_all", "<logs-{now/d}>", "Upper", "-a", "a*"] {
            let refused = refused(&|command| command.table = table.to_owned());
            assert_eq!(refused, Err(Code::InvalidArgument), "{table}");
        }
    }
}
