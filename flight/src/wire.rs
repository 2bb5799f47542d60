//! Schemas and batches as they are sent.
//!
//! Types are what `millrace-query` hands on, which every client knows; dictionaries are written out. A batch is cut where it is long, so
//! that messages stay well below what clients take. Messages are made on the threads of reads, a few megabytes a job, when those before
//! are taken: a reader that stalls has one job's messages wait, and its statement makes a batch or two more. The batch counts as memory of
//! queries until its last message is taken.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_flight::{FlightData, IpcMessage, SchemaAsIpc};
use bytes::Bytes;
use datafusion::arrow::array::{Array as _, ArrayRef, AsArray as _, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _, stream};
use millrace_query::Hold;
use millrace_storage::{Compute, Priority};
use prost::Message;
use tonic::Status;

use crate::status;
use crate::tickets::{Fingerprint, fingerprint};

/// Longest message that is sent, in bytes: clients of Go take no more than 16 MiB.
pub(crate) const MAX_MESSAGE: usize = (16 << 20) - (64 << 10);
/// Bytes of values beyond which a batch is cut, and bytes of messages at which a job has made enough.
const BATCH_BYTES: usize = 2 << 20;
/// Bytes of values, and columns, up to which it takes no longer to encode them than to hand them to another thread.
const FEW_BYTES: usize = 16 << 10;
const FEW_COLUMNS: usize = 64;

/// Rows of an answer, with the memory that they are accounted for by, if any.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) batch: RecordBatch,
    pub(crate) hold: Option<Hold>,
}

impl From<RecordBatch> for Piece {
    fn from(batch: RecordBatch) -> Self {
        Self { batch, hold: None }
    }
}

/// Batches of an answer, or of a listing.
pub(crate) type Batches = BoxStream<'static, Result<Piece, Status>>;

/// A schema as infos have it, and what tells it from others.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) bytes: Bytes,
    pub(crate) fingerprint: Fingerprint,
}

/// Encodes a schema for an info.
pub(crate) async fn told(compute: &Compute, schema: &SchemaRef) -> Result<Told, Status> {
    of_schema(compute, schema, |schema| {
        let bytes = encode_schema(schema)?;
        let fingerprint = fingerprint(&bytes);
        Ok(Told { bytes, fingerprint })
    })
    .await
}

/// Encodes a schema.
pub(crate) fn encode_schema(schema: &Schema) -> Result<Bytes, Status> {
    let options = IpcWriteOptions::default();
    let message: Result<IpcMessage, ArrowError> = SchemaAsIpc::new(schema, &options).try_into();
    message.map(|IpcMessage(bytes)| bytes).map_err(|error| status::internal(&error))
}

/// Works on a schema: on a thread of reads, where it has many columns.
async fn of_schema<T: Send + 'static>(
    compute: &Compute,
    schema: &SchemaRef,
    work: impl FnOnce(&Schema) -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    if schema.fields().len() <= FEW_COLUMNS {
        return work(schema);
    }
    let schema = Arc::clone(schema);
    computed(compute, Priority::Foreground, move || work(&schema)).await
}

/// Has something computed on the threads for that.
pub(crate) async fn computed<T: Send + 'static>(
    compute: &Compute,
    priority: Priority,
    work: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    compute.run(priority, move || Ok(work())).await.map_err(status::of)?
}

/// Makes the messages of batches that have a schema, as they are taken.
///
/// # Errors
/// Those of the batches; `RESOURCE_EXHAUSTED` for a row that is longer than a message may be. There is nothing behind one.
pub(crate) async fn messages(
    compute: &Compute,
    schema: SchemaRef,
    batches: Batches,
) -> Result<impl Stream<Item = Result<FlightData, Status>> + Send + use<>, Status> {
    let first = of_schema(compute, &schema, |schema| {
        bounded(SchemaAsIpc::new(schema, &IpcWriteOptions::default()).into(), "the schema")
    });
    let first = first.await?;
    let sending = Sending {
        compute: compute.clone(),
        batches,
        left: Left { schema, batches: Vec::new() },
        made: VecDeque::new(),
        hold: None,
        wanted: Arc::new(()),
    };
    let rest = stream::try_unfold(sending, |mut sending| async move {
        Ok(sending.next().await?.map(|message| (message, sending)))
    });
    Ok(stream::once(async { Ok(first) }).chain(rest))
}

/// An answer on its way.
struct Sending {
    compute: Compute,
    batches: Batches,
    left: Left,
    made: VecDeque<FlightData>,
    /// Memory of the batch that messages are made of.
    hold: Option<Hold>,
    /// What tells jobs that somebody waits for them.
    wanted: Arc<()>,
}

/// What is to be encoded: whole batches, or what is left of one. The next one is the last.
#[derive(Debug)]
struct Left {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl Sending {
    async fn next(&mut self) -> Result<Option<FlightData>, Status> {
        loop {
            if let Some(message) = self.made.pop_front() {
                return Ok(Some(message));
            }
            if self.left.batches.is_empty() {
                self.hold = None;
                let Some(piece) = self.batches.next().await else { return Ok(None) };
                let Piece { batch, hold } = piece?;
                self.hold = hold;
                let is_small = batch.num_columns() <= FEW_COLUMNS && bytes(&batch) <= FEW_BYTES;
                self.left.batches.push(batch);
                if is_small {
                    self.made = self.left.encode()?.into();
                    continue;
                }
            }
            self.encode().await?;
        }
    }

    /// Has messages made of what is left.
    async fn encode(&mut self) -> Result<(), Status> {
        let batches = std::mem::take(&mut self.left.batches);
        let mut left = Left { schema: Arc::clone(&self.left.schema), batches };
        // With what is to be encoded, also where nobody waits any more.
        let hold = self.hold.take();
        let wanted = Arc::downgrade(&self.wanted);
        let work = move || {
            // Nobody may be there any more when its turn comes.
            let made = if wanted.strong_count() == 0 { Vec::new() } else { left.encode()? };
            Ok((left, made, hold))
        };
        let (left, made, hold) = computed(&self.compute, Priority::Foreground, work).await?;
        (self.left, self.made, self.hold) = (left, made.into(), hold);
        Ok(())
    }
}

impl Left {
    /// Makes messages until they are enough, or nothing is left.
    fn encode(&mut self) -> Result<Vec<FlightData>, Status> {
        let (generator, options) = (IpcDataGenerator::default(), IpcWriteOptions::default());
        let (mut tracker, mut context) = (DictionaryTracker::new(true), IpcWriteContext::default());
        let (mut messages, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH_BYTES {
            let Some(part) = self.part() else { break };
            let part = written_out(part, &self.schema)?;
            let (dictionaries, message) = generator
                .encode(&part, &mut tracker, &options, &mut context)
                .map_err(|error| status::internal(&error))?;
            if !dictionaries.is_empty() {
                return Err(status::internal(&"an answer has a dictionary"));
            }
            let message = bounded(message.into(), "a row of the answer")?;
            bytes += message.data_body.len();
            messages.push(message);
        }
        Ok(messages)
    }

    /// Cuts off the next part that is short, or one row.
    fn part(&mut self) -> Option<RecordBatch> {
        while let Some(batch) = self.batches.pop() {
            let rows = batch.num_rows();
            if rows == 0 {
                continue;
            }
            if rows == 1 || bytes(&batch) <= BATCH_BYTES {
                return Some(batch);
            }
            let half = rows / 2;
            self.batches.push(batch.slice(half, rows - half));
            self.batches.push(batch.slice(0, half));
        }
        None
    }
}

/// Makes the columns of a batch those of its schema, where they are dictionaries of their values.
fn written_out(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, Status> {
    if *batch.schema_ref() == *schema {
        return Ok(batch);
    }
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| {
        match column.data_type() == field.data_type() {
            true => Ok(Arc::clone(column)),
            false => cast(column, field.data_type()),
        }
    });
    let columns = columns.collect::<Result<Vec<_>, _>>();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    columns
        .and_then(|columns| RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options))
        .map_err(|error| status::internal(&error))
}

/// Refuses a message that is longer than clients take.
fn bounded(message: FlightData, what: &str) -> Result<FlightData, Status> {
    match message.encoded_len() {
        bytes if bytes > MAX_MESSAGE => Err(Status::resource_exhausted(format!(
            "{what} takes [{bytes}] bytes, more than [{MAX_MESSAGE}]: select less of it"
        ))),
        _ => Ok(message),
    }
}

/// Bytes of the values of a batch, which may be a part of another.
fn bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| bytes_of(column, 0, column.len())).sum()
}

/// Bytes of some values of a column: of lists and texts those that their offsets tell, and not what they are a part of.
fn bytes_of(array: &ArrayRef, from: usize, count: usize) -> usize {
    let within = |offsets: &[i32]| {
        let at = |place: usize| offsets.get(place).map_or(0, |offset| *offset as usize);
        (at(from), at(from + count).saturating_sub(at(from)))
    };
    let offsets = 4 * count;
    match array.data_type() {
        DataType::Utf8 => within(array.as_string::<i32>().value_offsets()).1 + offsets,
        DataType::Binary => within(array.as_binary::<i32>().value_offsets()).1 + offsets,
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let (first, items) = within(list.value_offsets());
            bytes_of(list.values(), first, items) + offsets
        }
        DataType::Boolean | DataType::Null => count.div_ceil(8),
        other => match other.primitive_width() {
            Some(width) => width * count,
            None => array.slice(from, count).to_data().get_slice_memory_size().unwrap_or(BATCH_BYTES),
        },
    }
}

#[cfg(test)]
mod tests;
