//! Writers of answers, one a format. Each takes batches as they come, and holds the memory of what it has written until that
//! is sent.

mod csv;
mod hits;
mod jdbc;
mod raw;
mod value;

use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use millrace_work::Work;
use millrace_work::error::Error;

use self::csv::Csv;
use self::hits::Hits;
use self::jdbc::Jdbc;
use self::raw::Raw;
use super::bind::OutColumn;
use super::error::{Result, SqlError};

/// Most bytes of an answer.
const MAX_BYTES: usize = 256 << 20;

/// A format of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
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
    pub fn of(name: &str, sanitize: bool) -> Result<Self> {
        match name.to_ascii_lowercase().as_str() {
            "jdbc" | "" => Ok(Self::Jdbc),
            "csv" => Ok(Self::Csv { sanitize }),
            "raw" => Ok(Self::Raw { sanitize }),
            other => Err(SqlError::Request(format!("response in {other} format is not supported."))),
        }
    }
}

/// Rows that are written between two looks at the stop and at the memory.
const ROWS_AT_A_TIME: usize = 256;

/// Writes one answer.
#[derive(Debug)]
pub struct Writer {
    form: Form,
    /// What is done for the answer; it holds what is written.
    work: Work,
    /// Bytes that are held.
    held: usize,
}

#[derive(Debug)]
enum Form {
    Jdbc(Jdbc),
    Csv(Csv),
    Hits(Hits),
    Raw(Raw),
}

impl Writer {
    /// Starts an answer, whose memory is a part of the work's.
    pub fn new(format: Format, columns: Arc<[OutColumn]>, work: &Work) -> Self {
        let form = match format {
            Format::Jdbc => Form::Jdbc(Jdbc::new(columns)),
            Format::Csv { sanitize } => Form::Csv(Csv::new(&columns, sanitize)),
            Format::Hits => Form::Hits(Hits::new(columns)),
            Format::Raw { sanitize } => Form::Raw(Raw::new(&columns, sanitize)),
        };
        Self { form, work: work.part(), held: 0 }
    }

    /// Starts a page behind the first, which only [`Format::Jdbc`] has.
    pub(crate) fn later(columns: Arc<[OutColumn]>, work: &Work) -> Self {
        Self { form: Form::Jdbc(Jdbc::later(columns)), work: work.part(), held: 0 }
    }

    /// Writes rows.
    ///
    /// # Errors
    /// [`Error::CircuitBreaking`] where queries may not hold so much; [`Error::TimedOut`].
    pub fn rows(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut from = 0;
        while from < batch.num_rows() {
            self.work.check()?;
            let rows = batch.slice(from, ROWS_AT_A_TIME.min(batch.num_rows() - from));
            from += rows.num_rows();
            let bytes = match &mut self.form {
                Form::Jdbc(writer) => writer.rows(&rows)?,
                Form::Csv(writer) => writer.rows(&rows)?,
                Form::Hits(writer) => writer.rows(&rows)?,
                Form::Raw(writer) => writer.rows(&rows)?,
            };
            self.hold(bytes)?;
            if bytes > MAX_BYTES {
                return Err(
                    Error::CircuitBreaking(format!("the answer has more than [{MAX_BYTES}] bytes")).into()
                );
            }
        }
        Ok(())
    }

    fn hold(&mut self, bytes: usize) -> Result<()> {
        self.work.hold(bytes.saturating_sub(self.held))?;
        self.held = self.held.max(bytes);
        Ok(())
    }

    /// Ends the answer: `total` rows matched, and `cursor` reads on. What it takes is held until the text is dropped.
    ///
    /// # Errors
    /// [`Error::CircuitBreaking`].
    pub fn finish(mut self, total: u64, cursor: Option<&str>) -> Result<Bytes> {
        if let Form::Hits(writer) = &self.form {
            // The text is made of another.
            let bytes = 2 * writer.bytes();
            self.hold(bytes)?;
        }
        let text = match self.form {
            Form::Jdbc(writer) => writer.finish(total, cursor),
            Form::Csv(writer) => writer.finish(),
            Form::Hits(writer) => writer.finish(total),
            Form::Raw(writer) => writer.finish(),
        };
        self.work.hold(text.len().saturating_sub(self.held))?;
        Ok(self.work.held_by(text))
    }
}
