//! Between the catalog's records and what a row of a table can hold.

use millrace_runtime::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

/// Renders a number for a BIGINT column.
pub(super) fn int(name: &str, value: u64) -> Result<i64> {
    i64::try_from(value)
        .map_err(|_| Error::Internal(format!("{name} [{value}] does not fit into the catalog")))
}

/// Renders a value for a JSON column.
pub(super) fn json<T: Serialize + ?Sized>(name: &str, value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::Internal(format!("{name}: {error}")))
}

/// Reads column values of one catalog file, naming what cannot be read.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    /// The catalog, for messages.
    pub(super) file: &'a str,
    /// The table being read, for messages.
    pub(super) table: &'static str,
}

impl Reader<'_> {
    pub(super) fn corrupt(self, reason: impl std::fmt::Display) -> Error {
        Error::Corrupt {
            file: self.file.to_owned(),
            offset: 0,
            reason: format!("table {}: {reason}", self.table),
        }
    }

    pub(super) fn u64(self, value: i64) -> Result<u64> {
        u64::try_from(value).map_err(|_| self.corrupt(format!("negative number {value}")))
    }

    pub(super) fn u32(self, value: i64) -> Result<u32> {
        u32::try_from(value).map_err(|_| self.corrupt(format!("number {value} out of range")))
    }

    pub(super) fn uuid(self, text: &str) -> Result<Uuid> {
        Uuid::try_parse(text).map_err(|error| self.corrupt(format!("uuid [{text}]: {error}")))
    }

    pub(super) fn json<T: DeserializeOwned>(self, text: &str) -> Result<T> {
        serde_json::from_str(text).map_err(|error| self.corrupt(error))
    }
}
