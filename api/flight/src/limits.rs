//! Limits of requests: bounds of messages and statements, and refusals that several methods share.

use bytes::Bytes;
use tonic::Status;

use crate::{status, wire};

/// Longest statement, and longest command: a ticket has either, and has to fit in a message.
pub(crate) const MAX_STATEMENT: usize = 512 << 10;

/// Longest message that is taken, in bytes: a batch of rows.
pub(crate) const MAX_TAKEN: usize = 32 << 20;
/// Longest message that is sent.
pub(crate) const MAX_SENT: usize = wire::MAX_MESSAGE;

/// Refuses a statement that is too long.
pub(crate) fn bounded(bytes: usize) -> Result<(), Status> {
    match bytes > MAX_STATEMENT {
        true => {
            Err(Status::resource_exhausted(format!("the statement is longer than [{MAX_STATEMENT}] bytes")))
        }
        false => Ok(()),
    }
}

/// Refuses what belongs to a transaction.
pub(crate) fn refuse_transaction(transaction: Option<&Bytes>) -> Result<(), Status> {
    match transaction {
        Some(id) if !id.is_empty() => Err(status::unsupported("transactions")),
        _ => Ok(()),
    }
}

/// Returns the statement for all rows of a table.
pub(crate) fn all_of(table: &str) -> Result<String, Status> {
    if table.is_empty() || table.contains(['`', '"', '\\']) {
        return Err(Status::invalid_argument(format!("there is no index of the name [{}]", excerpt(table))));
    }
    Ok(format!("SELECT * FROM `{table}`"))
}

/// Shortens what somebody sent, for messages.
pub(crate) fn excerpt(text: &str) -> String {
    text.chars().take(100).collect()
}
