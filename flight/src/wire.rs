//! Schemas and batches as they are sent.
//!
//! Strings are `Utf8`: drivers of JDBC up to 18.3 refuse views, whose buffers would be sent whole besides. Dictionaries are sent as
//! their values, and timestamps are of UTC. A batch is cut where it is long, so that messages stay well below what clients take; batches are
//! taken from a statement one at a time, when the client has taken those before.

use std::sync::Arc;

use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::{FlightData, IpcMessage, SchemaAsIpc};
use bytes::Bytes;
use datafusion::arrow::array::{Array as _, ArrayRef, RecordBatch, RecordBatchOptions, make_array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::writer::IpcWriteOptions;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use millrace_storage::{Compute, Priority};
use prost::Message;
use tonic::Status;

use crate::status;

/// Longest message that is sent, in bytes: clients of Go take no more than 16 MiB.
pub(crate) const MAX_MESSAGE: usize = (16 << 20) - (64 << 10);
/// Bytes of values beyond which a batch is cut.
const BATCH_BYTES: usize = 2 << 20;
/// Those up to which a batch is prepared where it is.
const SMALL_BYTES: usize = 64 << 10;

/// Batches of an answer, or of a listing.
pub(crate) type Batches = BoxStream<'static, Result<RecordBatch, Status>>;

/// Returns the schema as it is sent.
pub(crate) fn schema(schema: &Schema) -> SchemaRef {
    let fields: Vec<FieldRef> = schema.fields().iter().map(sent_field).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn sent_field(field: &FieldRef) -> FieldRef {
    match sent(field.data_type()) {
        sent if sent == *field.data_type() => Arc::clone(field),
        sent => Arc::new(Field::clone(field).with_data_type(sent)),
    }
}

fn sent(kind: &DataType) -> DataType {
    match kind {
        DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        DataType::BinaryView | DataType::LargeBinary => DataType::Binary,
        DataType::Dictionary(_, values) => sent(values),
        DataType::Timestamp(unit, _) => DataType::Timestamp(*unit, Some("UTC".into())),
        DataType::List(item) => DataType::List(sent_field(item)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(sent_field).collect()),
        other => other.clone(),
    }
}

/// Encodes a schema.
pub(crate) fn encode_schema(schema: &Schema) -> Result<Bytes, Status> {
    let options = IpcWriteOptions::default();
    let message: Result<IpcMessage, ArrowError> = SchemaAsIpc::new(schema, &options).try_into();
    message.map(|IpcMessage(bytes)| bytes).map_err(|error| status::internal(&error))
}

/// Makes the messages of batches that have a schema, which is the one that is sent for theirs.
pub(crate) fn messages(
    compute: &Compute,
    schema: SchemaRef,
    batches: Batches,
) -> impl Stream<Item = Result<FlightData, Status>> + Send + use<> {
    let (compute, sent) = (compute.clone(), Arc::clone(&schema));
    let prepared = batches.and_then(move |batch| prepare(compute.clone(), batch, Arc::clone(&sent)));
    let cut = prepared.map_ok(|batches| stream::iter(batches.into_iter().map(Ok))).try_flatten();
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

/// Makes of a batch what is sent: a small one where it is, others on a compute thread.
async fn prepare(
    compute: Compute,
    batch: RecordBatch,
    schema: SchemaRef,
) -> Result<Vec<RecordBatch>, Status> {
    let small = batch.get_array_memory_size() <= SMALL_BYTES;
    let work = move || convert(&batch, &schema).and_then(cut);
    let done = match small {
        true => work(),
        false => compute.run(Priority::Foreground, move || Ok(work())).await.map_err(status::of)?,
    };
    done.map_err(|error| status::internal(&error))
}

/// Casts the columns of a batch to a schema of the same columns.
fn convert(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns: Result<Vec<ArrayRef>, ArrowError> = batch
        .columns()
        .iter()
        .zip(schema.fields())
        .map(|(column, field)| match (column.data_type(), field.data_type()) {
            (is, to) if is == to => Ok(Arc::clone(column)),
            // The values of a zone are of UTC already.
            (DataType::Timestamp(..), to @ DataType::Timestamp(..)) => {
                column.to_data().into_builder().data_type(to.clone()).build().map(make_array)
            }
            (_, to) => cast(column, to),
        })
        .collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns?, &options)
}

/// Cuts a batch into parts of which each is short, or one row.
fn cut(batch: RecordBatch) -> Result<Vec<RecordBatch>, ArrowError> {
    let mut parts = Vec::new();
    let mut rest = vec![batch];
    while let Some(batch) = rest.pop() {
        let rows = batch.num_rows();
        if rows <= 1 || bytes(&batch)? <= BATCH_BYTES {
            parts.push(batch);
        } else {
            let half = rows / 2;
            rest.push(batch.slice(half, rows - half));
            rest.push(batch.slice(0, half));
        }
    }
    Ok(parts)
}

/// Bytes of the values of a batch, which may be a part of another.
fn bytes(batch: &RecordBatch) -> Result<usize, ArrowError> {
    batch.columns().iter().map(|column| column.to_data().get_slice_memory_size()).sum()
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{
        DictionaryArray, Int32Array, StringArray, StringViewArray, TimestampMillisecondArray,
    };
    use datafusion::arrow::datatypes::{Int32Type, TimeUnit};

    use super::*;

    #[test]
    fn views_dictionaries_and_zones_are_sent_as_drivers_read_them() {
        let words: DictionaryArray<Int32Type> = ["a", "b", "a"].into_iter().collect();
        let batch = RecordBatch::try_from_iter([
            ("view", Arc::new(StringViewArray::from(vec![Some("x"), None, Some("y")])) as ArrayRef),
            ("words", Arc::new(words)),
            ("at", Arc::new(TimestampMillisecondArray::from(vec![1, 2, 3]))),
            ("n", Arc::new(Int32Array::from(vec![1, 2, 3]))),
        ])
        .unwrap();
        let sent = schema(&batch.schema());
        let kinds: Vec<DataType> = sent.fields().iter().map(|field| field.data_type().clone()).collect();
        let at = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
        assert_eq!(kinds, [DataType::Utf8, DataType::Utf8, at, DataType::Int32]);
        let converted = convert(&batch, &sent).unwrap();
        let words: &StringArray = converted.column(1).as_any().downcast_ref().unwrap();
        assert_eq!(words.iter().flatten().collect::<Vec<_>>(), ["a", "b", "a"]);
        let at: &TimestampMillisecondArray = converted.column(2).as_any().downcast_ref().unwrap();
        assert_eq!(at.values(), &[1, 2, 3]);
    }

    #[test]
    fn long_batches_are_cut_by_what_their_rows_take() {
        let long = "x".repeat(BATCH_BYTES);
        let texts: Vec<&str> = (0..64).map(|row| if row == 40 { long.as_str() } else { "short" }).collect();
        let batch =
            RecordBatch::try_from_iter([("t", Arc::new(StringArray::from(texts)) as ArrayRef)]).unwrap();
        let parts = cut(batch).unwrap();
        assert_eq!(parts.iter().map(RecordBatch::num_rows).sum::<usize>(), 64);
        assert!(parts.len() < 16, "{}", parts.len());
        for part in &parts {
            assert!(part.num_rows() == 1 || bytes(part).unwrap() <= BATCH_BYTES);
        }
    }
}
