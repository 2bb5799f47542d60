//! Writers of answers. [`Writer`] makes one that is sent in one piece, [`ChunkWriter`] is what makes one that is sent part by part; each takes batches as
//! they come, and holds the memory of what it has written until that is sent.

mod aligned;
mod elasticsearch;
mod hits;
mod jdbc;
mod lines;
pub(crate) mod value;

use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use millrace_work::QueryContext;
use millrace_work::error::Error;

pub(crate) use self::aligned::AlignedLines;
use self::elasticsearch::TablePage;
pub use self::elasticsearch::{PageLayout, PageOptions};
use self::hits::Hits;
use self::jdbc::Jdbc;
pub(crate) use self::lines::Lines;
pub use self::lines::{LineEnd, LineFormat};
use super::bind::OutColumn;
use super::error::{Result, SqlError};
use super::hit_layout::HitLayout;

/// Most bytes of an answer in one piece.
const MAX_BYTES: usize = 256 << 20;

/// Refuses an answer in one piece that is too long.
///
/// # Errors
/// [`Error::CircuitBreaking`].
fn check_size(bytes: usize) -> Result<()> {
    match bytes > MAX_BYTES {
        true => Err(Error::CircuitBreaking(format!("the answer has more than [{MAX_BYTES}] bytes")).into()),
        false => Ok(()),
    }
}

/// A format of answers that users name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A schema and rows, as JSON.
    Jdbc,
    /// Lines of text.
    Lines(LineFormat),
}

impl Format {
    /// Finds a format by its name.
    pub fn new(name: &str, sanitize: bool) -> Result<Self> {
        match name.to_ascii_lowercase().as_str() {
            "jdbc" | "" => Ok(Self::Jdbc),
            "csv" => Ok(Self::Lines(LineFormat::Csv { sanitize })),
            "raw" => Ok(Self::Lines(LineFormat::Raw { sanitize })),
            other => Err(SqlError::Request(format!("response in {other} format is not supported."))),
        }
    }
}

/// A format of answers in one piece: the text behind the rows has their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageFormat {
    /// A schema and rows, as JSON.
    Jdbc,
    /// Hits of a search.
    Hits,
    /// A page as Elasticsearch's SQL lays it out.
    Table(PageOptions),
}

/// Writer of the parts of an answer, one after the other.
pub(crate) trait ChunkWriter: Send {
    /// A part.
    type Chunk: Send + 'static;

    /// Writes rows from the given one until a part is full; returns the first that it has not written.
    ///
    /// # Errors
    /// [`Error::CircuitBreaking`] where queries may not hold so much; [`Error::TimedOut`].
    fn write(&mut self, batch: &RecordBatch, from: usize) -> Result<usize>;

    /// Returns whether a part is to be taken before more is written.
    fn is_full(&self) -> bool;

    /// Takes what is written. It holds its memory until it is dropped.
    ///
    /// # Errors
    /// As [`ChunkWriter::write`].
    fn take(&mut self) -> Result<Self::Chunk>;

    /// Ends the answer and takes the rest.
    ///
    /// # Errors
    /// As [`ChunkWriter::write`].
    fn finish(self) -> Result<Self::Chunk>;
}

/// Rows that are written between two looks at the stop and at the memory.
const ROWS_AT_A_TIME: usize = 256;

/// Bytes of an answer that is laid out in the time of a switch to another thread.
const SHORT_BYTES: usize = 64 << 10;

/// The memory of a text that grows.
#[derive(Debug)]
pub(crate) struct TextReservation {
    work: QueryContext,
    bytes: usize,
}

impl TextReservation {
    /// Holds nothing yet, of a part of the work's memory.
    pub(crate) fn new(work: &QueryContext) -> Self {
        Self { work: work.part(), bytes: 0 }
    }

    /// Holds nothing yet, of another part of the same work.
    pub(crate) fn again(&self) -> Self {
        Self::new(&self.work)
    }

    /// Refuses to go on once the work should end.
    ///
    /// # Errors
    /// [`Error::TimedOut`].
    pub(crate) fn check(&self) -> Result<()> {
        Ok(self.work.check()?)
    }

    /// Accounts for a text of so many bytes.
    ///
    /// # Errors
    /// [`Error::CircuitBreaking`] where queries may not hold so much.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<()> {
        self.work.hold(bytes.saturating_sub(self.bytes))?;
        self.bytes = self.bytes.max(bytes);
        Ok(())
    }

    /// Makes the text hold its memory.
    fn until_dropped(self, text: String) -> Bytes {
        self.work.held_by(text)
    }
}

/// Writes one answer.
#[derive(Debug)]
pub struct Writer {
    form: AnswerFormat,
    held: TextReservation,
}

#[derive(Debug)]
enum AnswerFormat {
    Jdbc(Jdbc),
    Hits(Hits),
    Table(TablePage),
}

impl Writer {
    /// Starts an answer, whose memory is a part of the work's.
    pub(crate) fn new(format: PageFormat, columns: Arc<[OutColumn]>, work: &QueryContext) -> Self {
        let form = match format {
            PageFormat::Jdbc => AnswerFormat::Jdbc(Jdbc::new(columns)),
            PageFormat::Hits => AnswerFormat::Hits(Hits::new(columns, HitLayout::default())),
            PageFormat::Table(options) => AnswerFormat::Table(TablePage::new(columns, options, false)),
        };
        Self { form, held: TextReservation::new(work) }
    }

    /// Starts an answer of rows that are hits.
    pub(crate) fn of_hits(columns: Arc<[OutColumn]>, layout: HitLayout, work: &QueryContext) -> Self {
        let form = AnswerFormat::Hits(Hits::new(columns, layout));
        Self { form, held: TextReservation::new(work) }
    }

    /// Starts a page behind the first, which [`PageFormat::Hits`] does not have.
    pub(crate) fn later(format: PageFormat, columns: Arc<[OutColumn]>, work: &QueryContext) -> Self {
        let form = match format {
            PageFormat::Jdbc | PageFormat::Hits => AnswerFormat::Jdbc(Jdbc::later(columns)),
            PageFormat::Table(options) => AnswerFormat::Table(TablePage::new(columns, options, true)),
        };
        Self { form, held: TextReservation::new(work) }
    }

    /// Writes rows.
    ///
    /// # Errors
    /// [`Error::CircuitBreaking`] where queries may not hold so much; [`Error::TimedOut`].
    pub(crate) fn rows(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut from = 0;
        while from < batch.num_rows() {
            self.held.check()?;
            let rows = batch.slice(from, ROWS_AT_A_TIME.min(batch.num_rows() - from));
            from += rows.num_rows();
            let bytes = match &mut self.form {
                AnswerFormat::Jdbc(writer) => writer.rows(&rows)?,
                AnswerFormat::Hits(writer) => writer.rows(&rows)?,
                AnswerFormat::Table(writer) => writer.rows(&rows)?,
            };
            self.held.grow_to(bytes)?;
            check_size(bytes)?;
        }
        Ok(())
    }

    /// Returns whether the answer is so short that any thread may end it.
    pub(crate) fn is_short(&self) -> bool {
        // A table may pad each row to its widest cell.
        !matches!(self.form, AnswerFormat::Table(_)) && self.held.bytes <= SHORT_BYTES
    }

    /// Ends the answer: `total` rows matched, and `cursor` reads on. What it takes is held until the text is dropped.
    /// It lays out up to [`MAX_BYTES`], so it is for the threads of statements, or of short jobs, unless the answer is short.
    ///
    /// # Errors
    /// [`Error::CircuitBreaking`].
    pub fn finish(mut self, total: u64, cursor: Option<&str>) -> Result<Bytes> {
        let text = match self.form {
            AnswerFormat::Jdbc(writer) => writer.finish(total, cursor),
            AnswerFormat::Hits(writer) => {
                // The text is made of another.
                self.held.grow_to(2 * writer.bytes())?;
                writer.finish(total)
            }
            AnswerFormat::Table(writer) => {
                let mut reservation = self.held.again();
                let text = writer.finish(cursor, &mut reservation)?;
                // The rows that a text was made of are free by now.
                if reservation.bytes > 0 {
                    self.held = reservation;
                }
                text
            }
        };
        self.held.grow_to(text.len())?;
        Ok(self.held.until_dropped(text))
    }
}
