//! Rows as events get them, from whichever database.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::zone::DatabaseZone;

/// Greatest length of a column's name that is kept as it is.
const MAX_NAME: usize = 1024;

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// Its columns in their order.
    pub(super) fields: Map<String, Value>,
    /// Value of the tracking column as the database writes it.
    pub(super) tracked: Option<String>,
}

/// Options of reading rows.
#[derive(Clone, Debug)]
pub(super) struct RowReadOptions {
    /// DatabaseZone of times without one.
    pub(super) zone: DatabaseZone,
    /// `true` if names become lower case.
    pub(super) lowercase: bool,
    /// Character sets of binary columns that hold text, by name.
    pub(super) charsets: HashMap<String, Charset>,
    /// Character set of all other binary columns, where they hold text.
    pub(super) charset: Option<Charset>,
}

impl RowReadOptions {
    /// The name under which a column goes on.
    pub(super) fn name(&self, column: &str) -> String {
        let name = column
            .char_indices()
            .nth(MAX_NAME)
            .map_or(column, |(end, _)| column.get(..end).unwrap_or(column));
        if self.lowercase { name.to_lowercase() } else { name.to_owned() }
    }

    /// Bytes of a column: text where the user says which, base64 otherwise.
    pub(super) fn bytes(&self, column: &str, bytes: &[u8]) -> Value {
        let named = self.charsets.get(column).or_else(|| self.charsets.get(&self.name(column)));
        match named.copied().or(self.charset) {
            Some(charset) => Value::String(charset.decode(bytes)),
            None => super::value::bytes(bytes),
        }
    }
}

/// A character set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Charset {
    Utf8,
    Latin1,
}

impl Charset {
    /// A character set by name.
    ///
    /// # Errors
    /// Which there are.
    pub(super) fn parse(name: &str) -> Result<Self, String> {
        match name.to_ascii_uppercase().as_str() {
            "UTF-8" | "UTF8" | "ASCII" | "US-ASCII" => Ok(Self::Utf8),
            "ISO-8859-1" | "ISO8859-1" | "LATIN1" | "LATIN-1" => Ok(Self::Latin1),
            _ => Err(format!("character set [{name}] is not supported: UTF-8 and ISO-8859-1 are")),
        }
    }

    fn decode(self, bytes: &[u8]) -> String {
        match self {
            Self::Utf8 => String::from_utf8_lossy(bytes).into_owned(),
            Self::Latin1 => bytes.iter().map(|byte| char::from(*byte)).collect(),
        }
    }
}
