//! Schemas and batches as they are sent.
//!
//! Types are what `millrace-query` hands on, which every client knows. A batch is cut where it is long, so that messages stay well
//! below what clients take; batches are taken from a statement one at a time, when the client has taken those before.

use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::{FlightData, IpcMessage, SchemaAsIpc};
use bytes::Bytes;
use datafusion::arrow::array::{Array as _, ArrayRef, AsArray as _, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::writer::IpcWriteOptions;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use prost::Message;
use tonic::Status;

use crate::status;

/// Longest message that is sent, in bytes: clients of Go take no more than 16 MiB.
pub(crate) const MAX_MESSAGE: usize = (16 << 20) - (64 << 10);
/// Bytes of values beyond which a batch is cut.
const BATCH_BYTES: usize = 2 << 20;

/// Batches of an answer, or of a listing.
pub(crate) type Batches = BoxStream<'static, Result<RecordBatch, Status>>;

/// Encodes a schema.
pub(crate) fn encode_schema(schema: &Schema) -> Result<Bytes, Status> {
    let options = IpcWriteOptions::default();
    let message: Result<IpcMessage, ArrowError> = SchemaAsIpc::new(schema, &options).try_into();
    message.map(|IpcMessage(bytes)| bytes).map_err(|error| status::internal(&error))
}

/// Makes the messages of batches that have a schema.
pub(crate) fn messages(
    schema: SchemaRef,
    batches: Batches,
) -> impl Stream<Item = Result<FlightData, Status>> + Send + use<> {
    let cut = batches.map_ok(|batch| stream::iter(cut(batch).into_iter().map(Ok))).try_flatten();
    FlightDataEncoderBuilder::new()
        .with_schema(schema)
        // They are cut already, by what their rows take and not by what they are cut from.
        .with_max_flight_data_size(usize::MAX)
        .build(cut.map_err(|status: Status| FlightError::Tonic(Box::new(status))))
        .map(|message| {
            let message = message.map_err(|error| match error {
                FlightError::Tonic(status) => *status,
                other => status::internal(&other),
            })?;
            let bytes = message.encoded_len();
            if bytes > MAX_MESSAGE {
                return Err(Status::resource_exhausted(format!(
                    "a row of the answer takes [{bytes}] bytes, more than [{MAX_MESSAGE}]: select less of it"
                )));
            }
            Ok(message)
        })
}

/// Cuts a batch into parts of which each is short, or one row.
fn cut(batch: RecordBatch) -> Vec<RecordBatch> {
    let mut parts = Vec::new();
    let mut rest = vec![batch];
    while let Some(batch) = rest.pop() {
        let rows = batch.num_rows();
        if rows <= 1 || bytes(&batch) <= BATCH_BYTES {
            parts.push(batch);
        } else {
            let half = rows / 2;
            rest.push(batch.slice(half, rows - half));
            rest.push(batch.slice(0, half));
        }
    }
    parts
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
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ListArray, StringArray};
    use datafusion::arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn long_batches_are_cut_by_what_their_rows_take() {
        let long = "x".repeat(BATCH_BYTES);
        let texts: Vec<&str> = (0..64).map(|row| if row == 40 { long.as_str() } else { "short" }).collect();
        let batch =
            RecordBatch::try_from_iter([("t", Arc::new(StringArray::from(texts)) as ArrayRef)]).unwrap();
        let parts = cut(batch);
        assert_eq!(parts.iter().map(RecordBatch::num_rows).sum::<usize>(), 64);
        assert!(parts.len() < 16, "{}", parts.len());
        for part in &parts {
            assert!(part.num_rows() == 1 || bytes(part) <= BATCH_BYTES);
        }
    }

    #[test]
    fn lists_are_measured_by_what_their_rows_have() {
        let lists = (0..8_000).map(|row| Some((0..64).map(move |item| Some(row * item))));
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(lists);
        let batch = RecordBatch::try_from_iter([("l", Arc::new(lists) as ArrayRef)]).unwrap();
        let parts = cut(batch);
        assert_eq!(parts.iter().map(RecordBatch::num_rows).sum::<usize>(), 8_000);
        assert!(parts.len() <= 4, "{}", parts.len());
    }
}
