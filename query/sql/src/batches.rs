//! Answers as batches of Arrow, handed on while a statement runs, at the pace of who reads them.
//!
//! They take the way of answers in lines: [`Runner::write`] pulls the plan, what makes [`Parts`] of its rows is here. A batch has at most
//! [`BATCH_ROWS`] rows and [`BATCH_BYTES`] bytes, but for one with a single row that is larger; small ones are put together.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, stream};
use millrace_storage::Session;
use millrace_work::Work;
use millrace_work::error::Error;

use super::error::{Result, SqlError};
use super::export::Exporter;
use super::format::{Held, Parts};
use super::parameters::Parameters;
use super::request::SqlRequest;
use super::run::{Asked, Bounds, Counted, Runner};
use super::statement::{self, Statement};
use super::threads::{Item, Items};

/// Most rows of a batch.
const BATCH_ROWS: usize = 8_192;
/// Most bytes of a batch of more than one row, about.
const BATCH_BYTES: usize = 4 << 20;

/// A batch with the memory of queries that it holds until it is taken.
#[derive(Debug)]
struct HeldBatch {
    batch: RecordBatch,
    _held: Held,
}

/// An answer under way: batches of one schema. Dropping it ends the statement; an error ends it early.
pub struct Batches {
    schema: SchemaRef,
    batches: BoxStream<'static, Result<HeldBatch>>,
}

impl Batches {
    /// Returns the schema of every batch, which is the one that was described.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn new(first: HeldBatch, rest: Option<Items<HeldBatch>>) -> Self {
        let schema = first.batch.schema();
        let first = stream::once(async { Ok(first) });
        let batches = match rest {
            None => first.boxed(),
            Some(rest) => first.chain(rest.into_stream()).boxed(),
        };
        Self { schema, batches }
    }
}

impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl Stream for Batches {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match ready!(self.batches.poll_next_unpin(context)) {
                // The last one may have nothing left for it.
                Some(Ok(held)) if held.batch.num_rows() == 0 => {}
                Some(held) => return Poll::Ready(Some(held.map(|held| held.batch))),
                None => return Poll::Ready(None),
            }
        }
    }
}

impl Runner {
    /// Answers a query with batches, which are made as they are taken. Returns once there is one, or the whole answer.
    ///
    /// # Errors
    /// Those of the statement until then. A statement that changes documents is refused: see [`Runner::update`].
    pub fn batches<'a>(
        &'a self,
        session: &'a Session,
        request: SqlRequest,
        bounds: Bounds,
    ) -> BoxFuture<'a, Result<Batches>> {
        Box::pin(async move {
            let asked = self.asked(session, request, bounds.now_ms);
            let (runner, stop) = (self.clone(), Arc::clone(asked.work.stop()));
            let mut items = self.threads.stream(&stop, bounds.timeout_ms, move |parts| async move {
                let described = runner.described(&asked, bounds).await?;
                let answer = runner.open(&asked, bounds, Counted::Answered).await?;
                let columns = Arc::clone(&answer.columns);
                let exporter = Exporter::new(&columns, described.as_deref().unwrap_or(&columns))?;
                let writer = Collected::new(exporter, &answer.work);
                runner.write(answer, writer, parts).await
            })?;
            Ok(match items.next().await? {
                Item::Given(first) => Batches::new(first, Some(items)),
                Item::Last(only) => Batches::new(only, None),
            })
        })
    }

    /// Finds the columns that a statement with parameters was described with; without any they are those that it has.
    async fn described(&self, asked: &Asked, bounds: Bounds) -> Result<Option<Vec<super::bind::OutColumn>>> {
        let SqlRequest { query, parameters, .. } = &asked.request;
        if let Statement::Delete(_) = statement::parse_with(query, parameters)? {
            return Err(SqlError::Request("the statement changes documents; run it as an update".to_owned()));
        }
        match parameters {
            Parameters::Given(values) if values.is_empty() => Ok(None),
            _ => Ok(self.outline(asked, bounds).await?.columns),
        }
    }
}

/// Makes batches of rows.
#[derive(Debug)]
struct Collected {
    exporter: Exporter,
    /// What is not taken yet.
    pieces: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
    /// Whether the next row has no room.
    full: bool,
    held: Held,
}

impl Collected {
    fn new(exporter: Exporter, work: &Work) -> Self {
        Self { exporter, pieces: Vec::new(), rows: 0, bytes: 0, full: false, held: Held::of(work) }
    }

    fn taken(&mut self) -> Result<RecordBatch> {
        let pieces = std::mem::take(&mut self.pieces);
        (self.rows, self.bytes, self.full) = (0, 0, false);
        Ok(match pieces.as_slice() {
            [] => RecordBatch::new_empty(Arc::clone(self.exporter.schema())),
            [only] => only.clone(),
            several => concat_batches(self.exporter.schema(), several).map_err(Error::from)?,
        })
    }
}

impl Parts for Collected {
    type Part = HeldBatch;

    fn is_full(&self) -> bool {
        self.full
    }

    fn write(&mut self, batch: &RecordBatch, from: usize) -> Result<usize> {
        self.held.check()?;
        let room = BATCH_BYTES.saturating_sub(self.bytes);
        let most = (batch.num_rows() - from).min(BATCH_ROWS - self.rows);
        let (mut count, mut bytes) = (most, bytes_of(batch, from, most));
        while bytes > room && count > 1 {
            count /= 2;
            bytes = bytes_of(batch, from, count);
        }
        if bytes > room && !self.pieces.is_empty() {
            self.full = true;
            return Ok(from);
        }
        if count > 0 {
            self.held.grow_to(self.bytes + bytes)?;
            self.pieces.push(self.exporter.rows(batch, from, count)?);
            self.rows += count;
            self.bytes += bytes;
        }
        self.full = self.rows >= BATCH_ROWS || self.bytes >= BATCH_BYTES || count < most;
        Ok(from + count)
    }

    fn take(&mut self) -> Result<HeldBatch> {
        let batch = self.taken()?;
        let held = self.held.again();
        Ok(HeldBatch { batch, _held: std::mem::replace(&mut self.held, held) })
    }

    fn finish(mut self) -> Result<HeldBatch> {
        Ok(HeldBatch { batch: self.taken()?, _held: self.held })
    }
}

/// Bytes that some rows take as they leave, about.
fn bytes_of(batch: &RecordBatch, from: usize, count: usize) -> usize {
    batch.columns().iter().map(|array| bytes_of_array(array, from, count)).sum()
}

fn bytes_of_array(array: &ArrayRef, from: usize, count: usize) -> usize {
    match array.data_type() {
        DataType::Utf8View => {
            let views = array.as_string_view();
            let texts = views.views().get(from..from + count).unwrap_or_default();
            // The length is in the low half of a view's first word.
            texts.iter().map(|view| (*view as u32) as usize).sum::<usize>() + 4 * count
        }
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let offset = |at: usize| list.value_offsets().get(at).map_or(0, |offset| *offset as usize);
            let (first, last) = (offset(from), offset(from + count));
            bytes_of_array(list.values(), first, last - first) + 4 * count
        }
        DataType::Boolean | DataType::Null => count.div_ceil(8),
        other => other.primitive_width().unwrap_or(size_of::<u128>()) * count,
    }
}
