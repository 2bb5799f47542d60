//! Writers of answers, one a format. Each takes batches as they come.

mod csv;
mod hits;
mod jdbc;
mod raw;
mod value;

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;

use self::csv::Csv;
use self::hits::Hits;
use self::jdbc::Jdbc;
use self::raw::Raw;
use super::bind::OutColumn;
use super::error::{Result, SqlError};
use crate::error::Error;

/// Most bytes of an answer.
const MAX_BYTES: usize = 256 << 20;

/// A format of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// A schema and rows, as JSON.
    Jdbc,
    /// Comma-separated values; cells are sanitised if asked.
    Csv {
        /// Whether cells that a spreadsheet would take for formulas are made harmless.
        sanitize: bool,
    },
    /// Hits of a search.
    Hits,
    /// Values separated by `|`; cells are quoted if asked.
    Raw {
        /// Whether cells with a separator are quoted.
        sanitize: bool,
    },
}

impl Format {
    /// Finds a format by its name.
    pub(crate) fn of(name: &str, sanitize: bool) -> Result<Self> {
        match name.to_ascii_lowercase().as_str() {
            "jdbc" | "" => Ok(Self::Jdbc),
            "csv" => Ok(Self::Csv { sanitize }),
            "raw" => Ok(Self::Raw { sanitize }),
            other => Err(SqlError::Request(format!("response in {other} format is not supported."))),
        }
    }
}

/// Writes one answer.
#[derive(Debug)]
pub(crate) enum Writer {
    /// JDBC.
    Jdbc(Jdbc),
    /// CSV.
    Csv(Csv),
    /// Hits.
    Hits(Hits),
    /// Raw text.
    Raw(Raw),
}

impl Writer {
    /// Starts an answer.
    pub(crate) fn new(format: Format, columns: Arc<[OutColumn]>) -> Self {
        match format {
            Format::Jdbc => Self::Jdbc(Jdbc::new(columns)),
            Format::Csv { sanitize } => Self::Csv(Csv::new(&columns, sanitize)),
            Format::Hits => Self::Hits(Hits::new(columns)),
            Format::Raw { sanitize } => Self::Raw(Raw::new(&columns, sanitize)),
        }
    }

    /// Starts a page behind the first, which only [`Format::Jdbc`] has.
    pub(crate) fn later(columns: Arc<[OutColumn]>) -> Self {
        Self::Jdbc(Jdbc::later(columns))
    }

    /// Writes rows.
    pub(crate) fn rows(&mut self, batch: &RecordBatch) -> Result<()> {
        let bytes = match self {
            Self::Jdbc(writer) => writer.rows(batch)?,
            Self::Csv(writer) => writer.rows(batch)?,
            Self::Hits(writer) => writer.rows(batch)?,
            Self::Raw(writer) => writer.rows(batch)?,
        };
        if bytes > MAX_BYTES {
            return Err(
                Error::CircuitBreaking(format!("the answer has more than [{MAX_BYTES}] bytes")).into()
            );
        }
        Ok(())
    }

    /// Ends the answer: `total` rows matched, and `cursor` reads on.
    pub(crate) fn finish(self, total: u64, cursor: Option<&str>) -> String {
        match self {
            Self::Jdbc(writer) => writer.finish(total, cursor),
            Self::Csv(writer) => writer.finish(),
            Self::Hits(writer) => writer.finish(total),
            Self::Raw(writer) => writer.finish(),
        }
    }
}
