//! Commands of descriptors.

use arrow_flight::FlightDescriptor;
use arrow_flight::flight_descriptor::DescriptorType;
use arrow_flight::sql::{Any, Command};
use bytes::Bytes;
use prost::Message;
use tonic::Status;

use crate::limits::{all_of, bounded, excerpt, refuse_transaction};
use crate::metadata;
use crate::status;

/// Command of a descriptor.
#[derive(Debug)]
pub(crate) enum DescriptorCommand {
    /// The answer to a statement.
    Statement(String),
    /// That to a prepared statement, by its handle.
    Prepared(Bytes),
    /// Metadata.
    Listing(Command),
}

impl DescriptorCommand {
    /// Reads a descriptor: a command of Flight SQL, the path of one table, or the text of a statement.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for anything else; `UNIMPLEMENTED` for what is refused by name.
    pub(crate) fn read(descriptor: &FlightDescriptor) -> Result<Self, Status> {
        bounded(descriptor.cmd.len())?;
        if descriptor.r#type == DescriptorType::Path as i32 {
            let [table] = descriptor.path.as_slice() else {
                return Err(Status::invalid_argument(
                    "the path of a descriptor is one name: that of an index",
                ));
            };
            bounded(table.len())?;
            return Ok(Self::Statement(all_of(table)?));
        }
        // It would be kept, and sent back, at many times what its names took as they came.
        if !descriptor.path.is_empty() {
            return Err(Status::invalid_argument("a descriptor has a command or a path, and not both"));
        }
        match command(&descriptor.cmd)? {
            Some(Command::CommandStatementQuery(command)) => {
                refuse_transaction(command.transaction_id.as_ref())?;
                Ok(Self::Statement(command.query))
            }
            Some(Command::CommandPreparedStatementQuery(command)) => {
                Ok(Self::Prepared(command.prepared_statement_handle))
            }
            Some(Command::CommandStatementSubstraitPlan(_)) => Err(status::unsupported("plans of Substrait")),
            Some(command) if metadata::schema(&command).is_some() => Ok(Self::Listing(command)),
            Some(other) => Err(Status::invalid_argument(format!(
                "the command [{}] is none that has an answer to fetch",
                excerpt(other.type_url())
            ))),
            None => match std::str::from_utf8(&descriptor.cmd) {
                Ok(text) if !text.trim().is_empty() => Ok(Self::Statement(text.to_owned())),
                _ => Err(Status::invalid_argument(
                    "the command of a descriptor is one of Flight SQL, or the text of a statement",
                )),
            },
        }
    }
}

/// Reads a command of Flight SQL; `None` for bytes that are none.
///
/// # Errors
/// `INVALID_ARGUMENT` for one that cannot be read.
pub(crate) fn command(bytes: &Bytes) -> Result<Option<Command>, Status> {
    let any = Any::decode(bytes.clone()).ok().filter(|any| any.type_url.starts_with("type.googleapis.com/"));
    let Some(any) = any else { return Ok(None) };
    let command = Command::try_from(any)
        .map_err(|error| Status::invalid_argument(format!("the command cannot be read: {error}")))?;
    Ok(Some(command))
}

#[cfg(test)]
mod tests {
    use arrow_flight::sql::{
        CommandGetCatalogs, CommandStatementQuery, CommandStatementUpdate, ProstMessageExt,
    };

    use super::*;

    fn read(cmd: impl Into<Bytes>) -> Result<DescriptorCommand, Status> {
        DescriptorCommand::read(&FlightDescriptor::new_cmd(cmd))
    }

    #[test]
    fn commands_paths_and_texts_are_told_apart() {
        let query = |transaction_id| CommandStatementQuery { query: "SELECT 1".to_owned(), transaction_id };
        let encoded = |transaction| query(transaction).as_any().encode_to_vec();
        assert!(matches!(read(encoded(None)), Ok(DescriptorCommand::Statement(text)) if text == "SELECT 1"));
        assert!(matches!(read(encoded(Some(Bytes::new()))), Ok(DescriptorCommand::Statement(_))));
        let error = read(encoded(Some(Bytes::from_static(b"t")))).unwrap_err();
        assert_eq!(error.code(), tonic::Code::Unimplemented);
        assert!(matches!(read("SELECT 1"), Ok(DescriptorCommand::Statement(text)) if text == "SELECT 1"));
        assert!(matches!(
            read(CommandGetCatalogs {}.as_any().encode_to_vec()),
            Ok(DescriptorCommand::Listing(_))
        ));
        let update = CommandStatementUpdate { query: String::new(), transaction_id: None };
        for wrong in [update.as_any().encode_to_vec(), Vec::new(), vec![0xff, 0xfe], b"  ".to_vec()] {
            assert_eq!(read(wrong).unwrap_err().code(), tonic::Code::InvalidArgument);
        }
        let path = |path: &[&str]| {
            DescriptorCommand::read(&FlightDescriptor::new_path(
                path.iter().map(|name| (*name).to_owned()).collect(),
            ))
        };
        assert!(
            matches!(path(&["logs"]), Ok(DescriptorCommand::Statement(text)) if text == "SELECT * FROM `logs`")
        );
        for wrong in [&["a", "b"][..], &[], &["a` WHERE 1=1"], &[""]] {
            assert_eq!(path(wrong).unwrap_err().code(), tonic::Code::InvalidArgument);
        }
        let both =
            FlightDescriptor { path: vec!["logs".to_owned()], ..FlightDescriptor::new_cmd("SELECT 1") };
        assert_eq!(DescriptorCommand::read(&both).unwrap_err().code(), tonic::Code::InvalidArgument);
    }
}
