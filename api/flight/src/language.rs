//! The language of the statements of a client: SQL, or PPL by the header `language`.
//!
//! Drivers send options of a connection that they do not know as headers. A ticket holds the text of its statement alone, so a pipeline
//! is marked in it ([`millrace_query::PIPELINE_MARK`]).

use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use crate::status;

/// Header by which a client chooses: `sql` or `ppl`.
pub(crate) const HEADER: &str = "language";

/// The language of statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatementLanguage {
    Sql,
    Ppl,
}

impl StatementLanguage {
    /// Reads the choice of a request.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for another value of the header.
    pub(crate) fn from_metadata(metadata: &MetadataMap) -> Result<Self, Status> {
        let Some(value) = metadata.get(HEADER) else { return Ok(Self::Sql) };
        match value.to_str().map(str::to_ascii_lowercase).as_deref() {
            Ok("sql") => Ok(Self::Sql),
            Ok("ppl") => Ok(Self::Ppl),
            other => {
                let shown: String = other.unwrap_or_default().chars().take(32).collect();
                let message = format!("the header [{HEADER}] is [sql] or [ppl], and not [{shown}]");
                Err(status::new(Code::InvalidArgument, &message))
            }
        }
    }

    /// Returns a statement with the mark of its language.
    pub(crate) fn marked(self, text: String) -> String {
        match self {
            Self::Sql => text,
            Self::Ppl => format!("{}{text}", millrace_query::PIPELINE_MARK),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_tells_the_language() {
        let read = |value: Option<&'static str>| {
            let mut metadata = MetadataMap::new();
            if let Some(value) = value {
                metadata.insert(HEADER, value.parse().unwrap());
            }
            StatementLanguage::from_metadata(&metadata)
        };
        assert_eq!(read(None).unwrap(), StatementLanguage::Sql);
        assert_eq!(read(Some("PPL")).unwrap().marked("a".to_owned()), "\u{1}ppl:a");
        assert_eq!(read(Some("esql")).unwrap_err().code(), Code::InvalidArgument);
    }
}
