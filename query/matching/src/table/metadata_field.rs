//! Metadata fields of every index: which of them have values to sort by, to aggregate and to show.
//!
//! Sorts, aggregations, `docvalue_fields` and `collapse` ask [`MetadataField::find`]. Readers of columns read the values under
//! [`ID_COLUMN`](millrace_scoring::metadata_columns::ID_COLUMN) and
//! [`SEQ_NO_COLUMN`](millrace_scoring::metadata_columns::SEQ_NO_COLUMN), which no mapped field has.

use millrace_mapping::ColumnKind;
use millrace_work::error::{Error, Result};

use super::derived_key::DerivedKey;

/// Metadata fields without values, as OpenSearch maps them.
const WITHOUT_VALUES: &[&str] = &[
    "_data_stream_timestamp",
    "_doc_count",
    "_feature",
    "_field_names",
    "_ignored",
    "_nested_path",
    "_routing",
    "_source",
    "_version",
];

/// A metadata field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataField {
    /// `_id`: a string.
    Id,
    /// `_index`: a string that all documents of an index share.
    Index,
    /// `_seq_no`: a whole number.
    SeqNo,
}

impl MetadataField {
    /// Finds a metadata field by its name; `None` where the name is of no metadata field.
    ///
    /// # Errors
    /// A metadata field without values.
    pub fn find(name: &str) -> Result<Option<Self>> {
        Ok(Some(match name {
            "_id" => Self::Id,
            "_index" => Self::Index,
            "_seq_no" => Self::SeqNo,
            _ if WITHOUT_VALUES.contains(&name) => {
                return Err(Error::IllegalArgument(format!(
                    "Fielddata is not supported on field [{name}] of type [{name}]"
                )));
            }
            _ => return Ok(None),
        }))
    }

    /// Returns true if a name is of a metadata field, with values or without.
    pub fn is_name(name: &str) -> bool {
        !matches!(Self::find(name), Ok(None))
    }

    /// Returns how its values are held.
    pub fn column_kind(self) -> ColumnKind {
        match self {
            Self::Id | Self::Index => ColumnKind::Str,
            Self::SeqNo => ColumnKind::Int(64),
        }
    }

    /// Returns the sort key of it in an index of this name.
    pub fn sort_key(self, index: &str) -> DerivedKey {
        match self {
            Self::Id => DerivedKey::Id,
            Self::Index => DerivedKey::Name(index.to_owned()),
            Self::SeqNo => DerivedKey::SeqNo,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metadata_field_has_values_or_is_refused() {
        for name in ["_id", "_index", "_seq_no"] {
            assert!(MetadataField::find(name).unwrap().is_some(), "{name}");
        }
        for name in WITHOUT_VALUES {
            let error = MetadataField::find(name).unwrap_err().to_string();
            assert!(error.contains(&format!("Fielddata is not supported on field [{name}]")), "{error}");
            assert!(MetadataField::is_name(name));
        }
        for name in ["_doc", "_score", "_primary_term", "_type", "id", ""] {
            assert!(!MetadataField::is_name(name), "{name}");
        }
    }
}
