//! Schemas and batches as they are sent.
//!
//! Types are what `millrace-query` hands on, which every client knows. Statements encode their rows on their own threads, listings are
//! encoded on the threads of reads, a few megabytes a job, when the messages before are taken: a reader that stalls has a few messages wait,
//! and its statement makes as many more. Those of a statement count as memory of queries until the last is taken.

use std::sync::Arc;
use std::vec;

use arrow_flight::{FlightData, IpcMessage, SchemaAsIpc};
use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::writer::{EncodedData, IpcWriteOptions};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _, stream};
use millrace_query::{Encoder, MemoryHold};
use millrace_runtime::{Compute, Priority};
use prost::Message;
use tonic::Status;

use crate::status;
use crate::tickets::{Fingerprint, fingerprint};

/// Longest message that is sent, in bytes: clients of Go take no more than 16 MiB.
pub(crate) const MAX_MESSAGE: usize = (16 << 20) - (64 << 10);
/// Columns up to which it takes no longer to encode a schema than to hand it to another thread.
const FEW_COLUMNS: usize = 64;

/// Rows of a listing.
pub(crate) type Batches = BoxStream<'static, Result<RecordBatch, Status>>;

/// Messages that follow a schema.
pub(crate) enum Answer {
    /// Rows of a statement, which its own threads have encoded.
    Encoded(BoxStream<'static, Result<millrace_query::Messages, Status>>),
    /// Rows that are to be encoded here.
    Batches(Batches),
}

/// A schema as infos have it, and what tells it from others.
#[derive(Clone, Debug)]
pub(crate) struct EncodedSchema {
    pub(crate) bytes: Bytes,
    pub(crate) fingerprint: Fingerprint,
}

/// Encodes a schema for an info.
pub(crate) async fn fingerprint_schema(
    compute: &Compute,
    schema: &SchemaRef,
) -> Result<EncodedSchema, Status> {
    of_schema(compute, schema, |schema| {
        let bytes = encode_schema(schema)?;
        let fingerprint = fingerprint(&bytes);
        Ok(EncodedSchema { bytes, fingerprint })
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
    compute.run(priority, move || Ok(work())).await.map_err(status::from_error)?
}

/// Makes the messages of an answer that has a schema, as they are taken.
///
/// # Errors
/// Those of the answer; `RESOURCE_EXHAUSTED` for a row that is longer than a message may be. There is nothing behind one.
pub(crate) async fn messages(
    compute: &Compute,
    schema: SchemaRef,
    answer: Answer,
) -> Result<impl Stream<Item = Result<FlightData, Status>> + Send + use<>, Status> {
    let first = of_schema(compute, &schema, |schema| {
        bounded(SchemaAsIpc::new(schema, &IpcWriteOptions::default()).into(), "the schema")
    });
    let first = first.await?;
    let sending = AnswerStream {
        compute: compute.clone(),
        answer,
        encoder: Encoder::new(schema),
        made: Vec::new().into_iter(),
        hold: None,
        wanted: Arc::new(()),
    };
    let rest = stream::try_unfold(sending, |mut sending| async move {
        Ok(sending.next().await?.map(|message| (message, sending)))
    });
    Ok(stream::once(async { Ok(first) }).chain(rest))
}

/// An answer on its way.
struct AnswerStream {
    compute: Compute,
    answer: Answer,
    encoder: Encoder,
    made: vec::IntoIter<EncodedData>,
    /// Memory of what was made.
    hold: Option<MemoryHold>,
    /// Shared reference that tells jobs that a caller still waits for them.
    wanted: Arc<()>,
}

impl AnswerStream {
    async fn next(&mut self) -> Result<Option<FlightData>, Status> {
        loop {
            if let Some(message) = self.made.next() {
                return bounded(message.into(), "a row of the answer").map(Some);
            }
            self.hold = None;
            match &mut self.answer {
                Answer::Encoded(encoded) => {
                    let Some(messages) = encoded.next().await else { return Ok(None) };
                    let (made, hold) = messages?.into_parts();
                    (self.made, self.hold) = (made.into_iter(), Some(hold));
                }
                Answer::Batches(batches) => {
                    if self.encoder.is_done() {
                        let Some(batch) = batches.next().await else { return Ok(None) };
                        self.encoder.put(batch?);
                    }
                    self.encode().await?;
                }
            }
        }
    }

    /// Has messages made of what is left of a batch.
    async fn encode(&mut self) -> Result<(), Status> {
        let schema = Arc::clone(self.encoder.schema());
        let mut encoder = std::mem::replace(&mut self.encoder, Encoder::new(schema));
        let wanted = Arc::downgrade(&self.wanted);
        let work = move || {
            // Nobody may be there any more when its turn comes.
            let made = if wanted.strong_count() == 0 { Ok(Vec::new()) } else { encoder.encode() };
            Ok((encoder, made.map_err(|error| status::internal(&error))?))
        };
        let (encoder, made) = computed(&self.compute, Priority::Foreground, work).await?;
        (self.encoder, self.made) = (encoder, made.into_iter());
        Ok(())
    }
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

#[cfg(test)]
mod tests;
