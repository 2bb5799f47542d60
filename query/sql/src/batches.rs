//! Answers as batches of Arrow, encoded and handed on while a statement runs, at the pace of who reads them.
//!
//! They take the way of answers in lines: [`Runner::write`] pulls the plan, what makes [`ChunkWriter`] of its rows is here. A batch has at most
//! [`BATCH_ROWS`] rows and [`BATCH_BYTES`] bytes, but for one with a single row that is larger; small ones are put together. A few become
//! [`Messages`], which are memory of queries until they are taken, and for as long as who takes them keeps their [`MemoryHold`]: handing on each batch by
//! itself would have more threads woken than rows are worth.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::reader::read_record_batch;
use datafusion::arrow::ipc::root_as_message;
use datafusion::arrow::ipc::writer::EncodedData;
use futures::channel::oneshot;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, stream};
use millrace_session::SearchSession;
use millrace_work::QueryContext;
use millrace_work::error::Error;

use super::error::{Result, SqlError};
use super::export::Exporter;
use super::format::{ChunkWriter, TextReservation};
use super::messages::{Encoder, MESSAGE_BYTES, bytes_of};
use super::parameters::Parameters;
use super::request::SqlRequest;
use super::rights::AccessWatch;
use super::run::{Bounds, RowCountMode, Runner};
use super::statement::{self, Statement};
use super::threads::Item;

/// Most rows of a batch.
const BATCH_ROWS: usize = 8_192;
/// Most bytes of a batch of more than one row, about.
const BATCH_BYTES: usize = 4 << 20;

/// A batch with the memory of queries that it holds.
#[derive(Debug)]
struct HeldBatch {
    batch: RecordBatch,
    held: TextReservation,
}

/// Some batches as they are sent, with the memory of queries that they hold.
#[derive(Default)]
pub struct Messages {
    encoded: Vec<EncodedData>,
    held: Vec<TextReservation>,
}

impl Messages {
    /// Takes them apart: the messages, and what accounts for their memory until that is dropped.
    pub fn into_parts(self) -> (Vec<EncodedData>, MemoryHold) {
        (self.encoded, MemoryHold { _held: self.held })
    }

    /// Reads them again.
    ///
    /// # Errors
    /// The schema is that of another answer.
    pub fn read(&self, schema: &SchemaRef) -> Result<Vec<RecordBatch>, ArrowError> {
        let read = |data: &EncodedData| {
            let message = root_as_message(&data.ipc_message)
                .map_err(|error| ArrowError::IpcError(error.to_string()))?;
            let header = message.header_as_record_batch();
            let header =
                header.ok_or_else(|| ArrowError::IpcError("the message is of no batch".to_owned()))?;
            let body = Buffer::from(data.arrow_data.as_slice());
            read_record_batch(&body, header, Arc::clone(schema), &HashMap::new(), None, &message.version())
        };
        self.encoded.iter().map(read).collect()
    }
}

impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Messages").field("encoded", &self.encoded.len()).finish_non_exhaustive()
    }
}

/// Memory of queries that messages are accounted for by, given back on drop.
#[derive(Debug)]
#[must_use = "dropping it gives the memory back"]
pub struct MemoryHold {
    _held: Vec<TextReservation>,
}

/// An answer under way: messages of batches of one schema. Dropping it ends the statement; an error ends it early.
pub struct Batches {
    schema: SchemaRef,
    messages: BoxStream<'static, Result<Messages>>,
}

impl Batches {
    /// Returns the schema of every batch, which is the one that was described.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }
}

impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl Stream for Batches {
    type Item = Result<Messages>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match ready!(self.messages.poll_next_unpin(context)) {
                // The last ones may have nothing left for them.
                Some(Ok(messages)) if messages.encoded.is_empty() => {}
                next => return Poll::Ready(next),
            }
        }
    }
}

impl Runner {
    /// Answers a query with batches, which are made as they are taken. Returns once there is one, or the whole answer.
    ///
    /// # Errors
    /// Those of the statement until then; the stream has later ones, and 403 once the session's sender may not read on. A statement that changes
    /// documents is refused: see [`Runner::update`].
    pub fn batches<'a>(
        &'a self,
        session: &'a dyn SearchSession,
        request: SqlRequest,
        bounds: Bounds,
    ) -> BoxFuture<'a, Result<Batches>> {
        Box::pin(async move {
            let asked = self.asked(session, request, bounds.now_ms);
            let mut watch = AccessWatch::new(session, &asked.read);
            let (runner, stop) = (self.clone(), Arc::clone(asked.work.stop()));
            let owner = asked.session.principal().caller().clone();
            let (tell, told) = oneshot::channel();
            let mut items =
                self.threads.stream(&owner, &stop, bounds.timeout_ms, move |parts| async move {
                    let SqlRequest { query, parameters, .. } = &asked.request;
                    let statement = statement::parse_with(query, parameters)?;
                    if let Statement::Delete(_) = statement {
                        return Err(SqlError::Request(
                            "the statement changes documents; run it as an update".to_owned(),
                        ));
                    }
                    // Values may change the types of columns.
                    let described = match parameters {
                        Parameters::Given(values) if values.is_empty() => None,
                        _ => runner.outline(&asked, bounds).await?.columns,
                    };
                    let answer = runner.start(&asked, statement, bounds, RowCountMode::Answered).await?;
                    let columns = Arc::clone(&answer.columns);
                    let exporter = Exporter::new(&columns, described.as_deref().unwrap_or(&columns))?;
                    // Whoever reads waits for the schema.
                    let _ = tell.send(Arc::clone(exporter.schema()));
                    let writer = EncodedBatches::new(BatchCollector::new(exporter, &answer.work));
                    runner.write(answer, writer, parts).await
                })?;
            let first = watch.within(items.next()).await??;
            let schema = told.await.map_err(|_| Error::Execution("the answer has no schema".to_owned()))?;
            let (first, rest) = match first {
                Item::Given(first) => (first, Some(items)),
                Item::Last(only) => (only, None),
            };
            let first = stream::once(async { Ok(first) });
            let messages = match rest {
                None => first.boxed(),
                Some(rest) => first.chain(watch.over(rest.into_stream())).boxed(),
            };
            Ok(Batches { schema, messages })
        })
    }
}

/// Makes batches of rows.
#[derive(Debug)]
struct BatchCollector {
    exporter: Exporter,
    /// Batches that are not taken yet.
    pieces: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
    /// `true` if the next rows have no room.
    full: bool,
    held: TextReservation,
}

impl BatchCollector {
    fn new(exporter: Exporter, work: &QueryContext) -> Self {
        Self {
            exporter,
            pieces: Vec::new(),
            rows: 0,
            bytes: 0,
            full: false,
            held: TextReservation::new(work),
        }
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

impl BatchCollector {
    fn write(&mut self, batch: &RecordBatch, from: usize) -> Result<usize> {
        self.held.check()?;
        let most = (batch.num_rows() - from).min(BATCH_ROWS);
        let (mut count, mut bytes) = (most, bytes_of(batch, from, most));
        if !self.pieces.is_empty() && (self.rows + count > BATCH_ROWS || self.bytes + bytes > BATCH_BYTES) {
            // Filling it up would have every later batch copied.
            self.full = true;
            return Ok(from);
        }
        while bytes > BATCH_BYTES && count > 1 {
            count /= 2;
            bytes = bytes_of(batch, from, count);
        }
        self.held.grow_to(self.bytes + bytes)?;
        self.pieces.push(self.exporter.rows(batch, from, count)?);
        self.rows += count;
        self.bytes += bytes;
        self.full = self.rows >= BATCH_ROWS || self.bytes >= BATCH_BYTES || count < most;
        Ok(from + count)
    }

    fn take(&mut self) -> Result<HeldBatch> {
        let batch = self.taken()?;
        let held = self.held.again();
        Ok(HeldBatch { batch, held: std::mem::replace(&mut self.held, held) })
    }
}

/// Encodes the batches, a few for each part.
#[derive(Debug)]
struct EncodedBatches {
    collected: BatchCollector,
    encoder: Encoder,
    made: Messages,
    bytes: usize,
}

impl EncodedBatches {
    fn new(collected: BatchCollector) -> Self {
        let encoder = Encoder::new(Arc::clone(collected.exporter.schema()));
        Self { collected, encoder, made: Messages::default(), bytes: 0 }
    }

    fn encode(&mut self, HeldBatch { batch, held }: HeldBatch) -> Result<()> {
        self.encoder.put(batch);
        while !self.encoder.is_done() {
            let messages = self.encoder.encode().map_err(Error::from)?;
            self.bytes += messages.iter().map(|message| message.arrow_data.len()).sum::<usize>();
            self.made.encoded.extend(messages);
        }
        self.made.held.push(held);
        Ok(())
    }
}

impl ChunkWriter for EncodedBatches {
    type Chunk = Messages;

    fn is_full(&self) -> bool {
        self.bytes >= MESSAGE_BYTES
    }

    fn write(&mut self, batch: &RecordBatch, from: usize) -> Result<usize> {
        let next = self.collected.write(batch, from)?;
        if self.collected.full {
            let full = self.collected.take()?;
            self.encode(full)?;
        }
        Ok(next)
    }

    fn take(&mut self) -> Result<Messages> {
        let rest = self.collected.take()?;
        self.encode(rest)?;
        self.bytes = 0;
        Ok(std::mem::take(&mut self.made))
    }

    fn finish(mut self) -> Result<Messages> {
        self.take()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array, StringViewArray};
    use datafusion::arrow::datatypes::Int64Type;
    use datafusion::execution::runtime_env::RuntimeEnv;

    use super::*;
    use crate::bind::OutColumn;
    use crate::types::SqlType;

    fn out(ty: SqlType) -> OutColumn {
        OutColumn { name: "c".to_owned(), alias: None, ty, list: false, shown: ty.name(), element: None }
    }

    fn batch(from: i64, rows: usize, text: &str) -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(from..from + rows as i64));
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values(vec![text; rows]));
        RecordBatch::try_from_iter([("c0", numbers), ("c1", texts)]).unwrap()
    }

    /// Writes batches; returns what was made of them.
    fn collected(work: &QueryContext, batches: &[RecordBatch]) -> Vec<HeldBatch> {
        let columns = [out(SqlType::Long), out(SqlType::Keyword)];
        let mut writer = BatchCollector::new(Exporter::new(&columns, &columns).unwrap(), work);
        let mut made = Vec::new();
        for batch in batches {
            let mut row = 0;
            while row < batch.num_rows() {
                row = writer.write(batch, row).unwrap();
                if writer.full {
                    made.push(writer.take().unwrap());
                }
            }
        }
        made.push(writer.take().unwrap());
        made
    }

    fn numbers(made: &[HeldBatch]) -> Vec<i64> {
        let of = |held: &HeldBatch| held.batch.column(0).as_primitive::<Int64Type>().values().to_vec();
        made.iter().flat_map(of).collect()
    }

    #[test]
    fn small_batches_are_put_together() {
        let pieces: Vec<_> = (0..20).map(|at| batch(at * 1_000, 1_000, "x")).collect();
        let made = collected(&QueryContext::default(), &pieces);
        let rows: Vec<usize> = made.iter().map(|held| held.batch.num_rows()).collect();
        assert_eq!(rows, [8_000, 8_000, 4_000]);
        assert_eq!(numbers(&made), (0..20_000).collect::<Vec<_>>());
        // One as large as a batch may be goes as it is.
        assert_eq!(collected(&QueryContext::default(), &[batch(0, 8_192, "x")]).len(), 2);
    }

    #[test]
    fn wide_rows_make_batches_of_few() {
        let text = "x".repeat(300 << 10);
        let made =
            collected(&QueryContext::default(), &[batch(0, 100, &text), batch(100, 1, &text.repeat(40))]);
        assert_eq!(numbers(&made), (0..101).collect::<Vec<_>>());
        // A row that is larger comes alone, and nothing is left behind it.
        let [parts @ .., large, last] = made.as_slice() else { panic!("{}", made.len()) };
        assert_eq!((large.batch.num_rows(), last.batch.num_rows()), (1, 0));
        assert!(parts.len() > 7);
        assert!(parts.iter().all(|held| held.batch.get_array_memory_size() <= BATCH_BYTES + 4_096));
    }

    #[test]
    fn a_part_does_not_hold_the_whole() {
        let made = collected(&QueryContext::default(), &[batch(0, 1_000_000, "x")]);
        assert_eq!(made.len(), 123);
        assert!(made.iter().all(|held| held.batch.get_array_memory_size() < 300 << 10));
    }

    #[test]
    fn batches_are_memory_of_queries_until_they_are_taken() {
        let env = RuntimeEnv::default();
        let made = collected(&QueryContext::new(&env.memory_pool), &[batch(0, 8_192, &"x".repeat(100))]);
        assert!(env.memory_pool.reserved() >= 800 << 10);
        drop(made);
        assert_eq!(env.memory_pool.reserved(), 0);
    }

    #[test]
    fn messages_are_of_some_batches_in_their_order_and_hold_their_memory() {
        let env = RuntimeEnv::default();
        let columns = [out(SqlType::Long), out(SqlType::Keyword)];
        let exporter = Exporter::new(&columns, &columns).unwrap();
        let schema = Arc::clone(exporter.schema());
        let mut writer =
            EncodedBatches::new(BatchCollector::new(exporter, &QueryContext::new(&env.memory_pool)));
        let (text, mut made) = ("x".repeat(100), Vec::new());
        for at in 0..8 {
            let rows = batch(at * 8_192, 8_192, &text);
            assert_eq!(writer.write(&rows, 0).unwrap(), 8_192);
            if writer.is_full() {
                made.push(writer.take().unwrap());
            }
        }
        made.push(writer.finish().unwrap());
        assert_eq!(made.iter().map(|messages| messages.encoded.len()).collect::<Vec<_>>(), [3, 3, 2]);
        let read = made.iter().flat_map(|messages| messages.read(&schema).unwrap());
        let numbers = read.flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec());
        assert_eq!(numbers.collect::<Vec<_>>(), (0..8 * 8_192).collect::<Vec<_>>());
        let (messages, holds): (Vec<_>, Vec<_>) = made.into_iter().map(Messages::into_parts).unzip();
        drop(messages);
        assert!(env.memory_pool.reserved() >= 6 << 20, "until what accounts for them is dropped");
        drop(holds);
        assert_eq!(env.memory_pool.reserved(), 0);
    }
}
