//! Batches that are sent, out of their messages.
//!
//! What a message says of itself is not believed: numbers of rows, depths and fields have bounds, dictionaries that are kept have one in
//! bytes, compressed buffers are refused, and the rest is validated as it is read. A defect of that on hostile input is an
//! error of the request. It is done on the threads of writes.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arrow_flight::FlightData;
use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use datafusion::arrow::ipc;
use datafusion::arrow::ipc::reader::{read_dictionary, read_record_batch};
use millrace_storage::{Compute, Priority};
use tonic::Status;

use crate::status;

/// Most rows of a batch.
const MAX_ROWS: i64 = 8 << 20;
/// Most fields of a schema, those in others included.
const MAX_FIELDS: usize = 10_000;
/// How deep fields may be in others.
const MAX_DEPTH: usize = 20;
/// Bytes of all dictionaries that are kept for the batches behind them.
const MAX_DICTIONARY_BYTES: usize = 64 << 20;
/// Longest metadata of a message.
const MAX_HEADER_BYTES: usize = 4 << 20;

/// What a message was.
#[derive(Debug)]
pub(crate) enum Decoded {
    /// Nothing to look at: a dictionary, or no message at all.
    Nothing,
    /// The schema of all batches behind it.
    Schema(SchemaRef),
    Batch(RecordBatch),
}

/// Reads the messages of one stream in their order.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    schema: Option<SchemaRef>,
    dictionaries: HashMap<i64, ArrayRef>,
    /// Bytes of each dictionary as sent.
    weights: HashMap<i64, usize>,
}

impl Decoder {
    /// Reads a message on a thread of writes.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` or `RESOURCE_EXHAUSTED`.
    pub(crate) async fn decode_on(
        mut self,
        compute: &Compute,
        message: FlightData,
    ) -> Result<(Self, Decoded), Status> {
        let work = move || Ok(self.guarded(message).map(|decoded| (self, decoded)));
        compute.run(Priority::Ingest, work).await.map_err(status::of)?
    }

    /// Reads a message. What the reader of the format does not expect of one ends the request and nothing else.
    fn guarded(&mut self, message: FlightData) -> Result<Decoded, Status> {
        let decoded = std::panic::catch_unwind(AssertUnwindSafe(|| self.decode(message)));
        decoded.unwrap_or_else(|_| Err(invalid("it contradicts itself")))
    }

    fn decode(&mut self, message: FlightData) -> Result<Decoded, Status> {
        if message.data_header.is_empty() {
            return Ok(Decoded::Nothing);
        }
        if message.data_header.len() > MAX_HEADER_BYTES {
            return Err(invalid("its metadata are too long"));
        }
        let header = message.data_header.clone();
        let header = ipc::root_as_message(&header).map_err(|error| invalid(&error))?;
        let version = header.version();
        match header.header_type() {
            ipc::MessageHeader::NONE => Ok(Decoded::Nothing),
            ipc::MessageHeader::Schema => self.schema(&message),
            ipc::MessageHeader::DictionaryBatch => {
                let schema = self.schema.as_ref().ok_or_else(no_schema)?;
                let batch =
                    header.header_as_dictionary_batch().ok_or_else(|| invalid("it has no dictionary"))?;
                if let Some(data) = batch.data() {
                    check(&data)?;
                }
                let bytes = message.data_body.len();
                self.weights.insert(batch.id(), bytes);
                if self.weights.values().sum::<usize>() > MAX_DICTIONARY_BYTES {
                    return Err(Status::resource_exhausted(format!(
                        "the dictionaries of the batches take more than [{MAX_DICTIONARY_BYTES}] bytes"
                    )));
                }
                let buffer = Buffer::from(message.data_body);
                read_dictionary(&buffer, batch, schema, &mut self.dictionaries, &version)
                    .map_err(|error| invalid(&error))?;
                Ok(Decoded::Nothing)
            }
            ipc::MessageHeader::RecordBatch => {
                let schema = self.schema.as_ref().ok_or_else(no_schema)?;
                let batch = header.header_as_record_batch().ok_or_else(|| invalid("it has no batch"))?;
                check(&batch)?;
                let buffer = Buffer::from(message.data_body);
                let batch =
                    read_record_batch(&buffer, batch, Arc::clone(schema), &self.dictionaries, None, &version);
                batch.map(Decoded::Batch).map_err(|error| invalid(&error))
            }
            other => Err(invalid(&format_args!("it is a [{}]", other.variant_name().unwrap_or("unknown")))),
        }
    }

    fn schema(&mut self, message: &FlightData) -> Result<Decoded, Status> {
        let schema = Schema::try_from(message).map_err(|error| invalid(&error))?;
        let mut fields = 0;
        schema.fields().iter().try_for_each(|field| bounded(field.data_type(), 1, &mut fields))?;
        let schema = Arc::new(schema);
        match &self.schema {
            Some(before) if **before != *schema => Err(invalid("its schema is not the one before")),
            _ => {
                self.schema = Some(Arc::clone(&schema));
                Ok(Decoded::Schema(schema))
            }
        }
    }
}

/// Refuses what would be more than it says.
fn check(batch: &ipc::RecordBatch<'_>) -> Result<(), Status> {
    if batch.compression().is_some() {
        return Err(invalid("its buffers are compressed: send them as they are"));
    }
    let too_many = |rows: i64| !(0..=MAX_ROWS).contains(&rows);
    if too_many(batch.length()) {
        return Err(Status::resource_exhausted(format!(
            "a batch has [{}] rows, more than [{MAX_ROWS}]: send smaller batches",
            batch.length()
        )));
    }
    Ok(())
}

/// Refuses schemas that are deep or wide.
fn bounded(kind: &DataType, depth: usize, fields: &mut usize) -> Result<(), Status> {
    *fields += 1;
    if depth > MAX_DEPTH || *fields > MAX_FIELDS {
        return Err(invalid(&format_args!(
            "its schema has more than [{MAX_FIELDS}] fields, or some that are more than [{MAX_DEPTH}] deep"
        )));
    }
    let mut within = |field: &FieldRef| bounded(field.data_type(), depth + 1, fields);
    match kind {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _)
        | DataType::RunEndEncoded(_, item) => within(item),
        DataType::Struct(inner) => inner.iter().try_for_each(within),
        DataType::Union(inner, _) => inner.iter().try_for_each(|(_, field)| within(field)),
        DataType::Dictionary(_, values) => bounded(values, depth + 1, fields),
        _ => Ok(()),
    }
}

fn no_schema() -> Status {
    invalid("no schema came before it")
}

fn invalid(reason: &(impl std::fmt::Display + ?Sized)) -> Status {
    status::new(tonic::Code::InvalidArgument, &format!("a message cannot be read: {reason}"))
}

#[cfg(test)]
mod tests {
    use arrow_flight::SchemaAsIpc;
    use arrow_flight::encode::{DictionaryHandling, FlightDataEncoderBuilder};
    use datafusion::arrow::array::{DictionaryArray, Int64Array, NullArray};
    use datafusion::arrow::datatypes::{Field, Int32Type};
    use datafusion::arrow::ipc::writer::IpcWriteOptions;
    use futures::{FutureExt, TryStreamExt, stream};
    use proptest::prelude::*;
    use tonic::Code;

    use super::*;

    fn of_schema(fields: Vec<Field>) -> FlightData {
        let (schema, options) = (Schema::new(fields), IpcWriteOptions::default());
        SchemaAsIpc::new(&schema, &options).into()
    }

    /// The messages of a batch: schema, dictionaries, rows.
    fn messages(column: ArrayRef) -> Vec<FlightData> {
        let batch = RecordBatch::try_from_iter([("c", column)]).unwrap();
        let encoder = FlightDataEncoderBuilder::new().with_dictionary_handling(DictionaryHandling::Resend);
        let messages = encoder.build(stream::iter([Ok(batch)])).try_collect();
        messages.now_or_never().unwrap().unwrap()
    }

    fn decode(messages: Vec<FlightData>) -> Result<Vec<RecordBatch>, Status> {
        let (mut decoder, mut batches) = (Decoder::default(), Vec::new());
        for message in messages {
            if let Decoded::Batch(batch) = decoder.guarded(message)? {
                batches.push(batch);
            }
        }
        Ok(batches)
    }

    fn code(messages: Vec<FlightData>) -> Code {
        decode(messages).unwrap_err().code()
    }

    #[test]
    fn batches_are_read_with_their_dictionaries() {
        let words: DictionaryArray<Int32Type> = ["a", "b", "a"].into_iter().collect();
        let batches = decode(messages(Arc::new(words))).unwrap();
        assert_eq!((batches.len(), batches[0].num_rows()), (1, 3));
        assert_eq!(decode(vec![FlightData::default()]).unwrap().len(), 0);
    }

    #[test]
    fn schemas_are_no_deeper_and_no_wider_than_documents() {
        let deep = |depth| (1..depth).fold(DataType::Int8, |inner, _| DataType::new_list(inner, true));
        let of = |kind| vec![of_schema(vec![Field::new("c", kind, true)])];
        assert!(decode(of(deep(MAX_DEPTH))).is_ok());
        assert_eq!(code(of(deep(MAX_DEPTH + 1))), Code::InvalidArgument);
        let wide = |fields: usize| {
            vec![of_schema((0..fields).map(|n| Field::new(n.to_string(), DataType::Int8, true)).collect())]
        };
        assert!(decode(wide(MAX_FIELDS)).is_ok());
        assert_eq!(code(wide(MAX_FIELDS + 1)), Code::InvalidArgument);
    }

    #[test]
    fn what_comes_out_of_order_or_is_more_than_it_says_is_refused() {
        let sent = messages(Arc::new(Int64Array::from(vec![1, 2])));
        assert_eq!(code(sent[1..].to_vec()), Code::InvalidArgument, "a batch without a schema");
        let other = of_schema(vec![Field::new("d", DataType::Int64, true)]);
        assert_eq!(code(vec![sent[0].clone(), other]), Code::InvalidArgument, "another schema");
        let mut cut = sent.clone();
        cut[1].data_body = cut[1].data_body.slice(..4);
        assert_eq!(code(cut), Code::InvalidArgument, "a body that is too short");
        // Rows of nothing take no bytes.
        let rows = usize::try_from(MAX_ROWS).unwrap();
        assert_eq!(decode(messages(Arc::new(NullArray::new(rows)))).unwrap()[0].num_rows(), rows);
        assert_eq!(code(messages(Arc::new(NullArray::new(rows + 1)))), Code::ResourceExhausted);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn whatever_is_sent_is_read_or_refused(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
            which in 0usize..3,
            body in any::<bool>(),
        ) {
            let words: DictionaryArray<Int32Type> = ["a", "b", "a"].into_iter().collect();
            let mut sent = messages(Arc::new(words));
            let message = &mut sent[which];
            let part = if body { &mut message.data_body } else { &mut message.data_header };
            let mut bytes = part.to_vec();
            for (place, byte) in changes {
                if !bytes.is_empty() {
                    let place = place.index(bytes.len());
                    bytes[place] = byte;
                }
            }
            *part = bytes.into();
            // What is read of it stays within what was sent.
            if let Ok(batches) = decode(sent) {
                let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
                prop_assert!(rows <= usize::try_from(MAX_ROWS).unwrap());
            }
        }
    }
}
