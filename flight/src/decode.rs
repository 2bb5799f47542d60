//! Batches that are sent, out of their messages.
//!
//! What a message says of itself is not believed: numbers of rows, depths and fields have bounds, dictionaries that are kept have one in
//! bytes and none is added to, compressed buffers are refused, buffers are those of the body, each byte in one of them, and the rest is validated as it is
//! read. A defect of that on hostile input is an error of the request. It is done on the threads of writes.
//!
//! Reading copies what is not aligned, a body's bytes at most: these are reserved before, for a batch for as long as [`Decoded`] is
//! there, for a dictionary until another one takes its place.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arrow_flight::FlightData;
use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, UnionFields};
use datafusion::arrow::ipc;
use datafusion::arrow::ipc::convert::fb_to_schema;
use datafusion::arrow::ipc::reader::{read_dictionary, read_record_batch};
use millrace_storage::{Compute, Priority};
use tonic::Status;

use crate::status;
use crate::upload::{Held, Received};

/// Most rows of a batch.
const MAX_ROWS: i64 = 8 << 20;
/// Most fields of a schema, those in others included.
const MAX_FIELDS: usize = 10_000;
/// How deep fields may be in others.
const MAX_DEPTH: usize = 20;
/// Bytes of all dictionaries that are kept for the batches behind them.
const MAX_DICTIONARY_BYTES: usize = 64 << 20;
/// Least that a dictionary counts for: there may be as many as fields.
const LEAST_DICTIONARY_BYTES: usize = 64 << 10;
/// Longest metadata of a message.
const MAX_HEADER_BYTES: usize = 4 << 20;
/// Tables in the metadata of a message: a few for each field.
const MAX_TABLES: usize = 12 * MAX_FIELDS;
/// Bytes that metadata may stand for beside twice their own: parts of them may be shared.
const SHARED_BYTES: usize = 64 << 10;

/// What a message was.
#[derive(Debug)]
pub(crate) enum Decoded {
    /// Nothing to look at: a dictionary, or no message at all.
    Nothing,
    /// The schema of all batches behind it.
    Schema(SchemaRef),
    /// With what it holds beside its message.
    Batch(RecordBatch, Held),
}

/// Reads the messages of one stream in their order.
#[derive(Debug)]
pub(crate) struct Decoder {
    received: Received,
    schema: Option<SchemaRef>,
    dictionaries: HashMap<i64, ArrayRef>,
    /// What each dictionary holds.
    held: HashMap<i64, Held>,
    /// What the message of the schema held: the schema is about as much.
    of_schema: Option<Arc<Held>>,
}

impl Decoder {
    /// Begins a stream, of a request whose room is shared.
    pub(crate) fn new(received: Received) -> Self {
        Self { received, schema: None, dictionaries: HashMap::new(), held: HashMap::new(), of_schema: None }
    }

    /// Reads a message on a thread of writes. `held` is what the message holds, for as long as that is read, also where nobody waits for
    /// it any more.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` or `RESOURCE_EXHAUSTED`.
    pub(crate) async fn decode_on(
        mut self,
        compute: &Compute,
        message: FlightData,
        held: &Arc<Held>,
    ) -> Result<(Self, Decoded), Status> {
        let copy = self.received.reserve(message.data_body.len() as u64).await?;
        let held = Arc::clone(held);
        let work = move || {
            let decoded = self.guarded(message, copy);
            match &decoded {
                Ok(Decoded::Schema(_)) => self.of_schema = Some(held),
                _ => drop(held),
            }
            Ok(decoded.map(|decoded| (self, decoded)))
        };
        compute.run(Priority::Ingest, work).await.map_err(status::of)?
    }

    /// Reads a message. What the reader of the format does not expect of one ends the request and nothing else.
    fn guarded(&mut self, message: FlightData, copy: Held) -> Result<Decoded, Status> {
        let decoded = std::panic::catch_unwind(AssertUnwindSafe(|| self.decode(message, copy)));
        decoded.unwrap_or_else(|_| Err(invalid("it contradicts itself")))
    }

    fn decode(&mut self, message: FlightData, mut copy: Held) -> Result<Decoded, Status> {
        if message.data_header.is_empty() {
            return Ok(Decoded::Nothing);
        }
        if message.data_header.len() > MAX_HEADER_BYTES {
            return Err(invalid("its metadata are too long"));
        }
        let header = message.data_header.clone();
        let header = verified(&header)?;
        let version = header.version();
        match header.header_type() {
            ipc::MessageHeader::NONE => Ok(Decoded::Nothing),
            ipc::MessageHeader::Schema => {
                let schema = header.header_as_schema().filter(|schema| schema.fields().is_some());
                self.schema(schema.ok_or_else(|| invalid("it has no schema"))?)
            }
            ipc::MessageHeader::DictionaryBatch => {
                let schema = self.schema.as_ref().ok_or_else(no_schema)?;
                let batch =
                    header.header_as_dictionary_batch().ok_or_else(|| invalid("it has no dictionary"))?;
                let data = batch.data().ok_or_else(|| invalid("its dictionary has no values"))?;
                check(&data, message.data_body.len())?;
                let id = batch.id();
                if batch.isDelta() {
                    // A few bytes would have all that is there copied.
                    return Err(invalid("its dictionary adds to the one before: send whole dictionaries"));
                }
                // It is copied out of its message, and once more where it is not aligned.
                copy.double(LEAST_DICTIONARY_BYTES as u64)?;
                let others = self.held.iter().filter(|(other, _)| **other != id);
                let others: u64 = others.map(|(_, held)| held.bytes()).sum();
                if others + copy.bytes() > MAX_DICTIONARY_BYTES as u64 {
                    return Err(Status::resource_exhausted(format!(
                        "the dictionaries of the batches take more than [{MAX_DICTIONARY_BYTES}] bytes"
                    )));
                }
                // Of the message nothing else is kept.
                let buffer = Buffer::from(&message.data_body[..]);
                read_dictionary(&buffer, batch, schema, &mut self.dictionaries, &version)
                    .map_err(|error| invalid(&error))?;
                self.held.insert(id, copy);
                Ok(Decoded::Nothing)
            }
            ipc::MessageHeader::RecordBatch => {
                let schema = self.schema.as_ref().ok_or_else(no_schema)?;
                let batch = header.header_as_record_batch().ok_or_else(|| invalid("it has no batch"))?;
                check(&batch, message.data_body.len())?;
                let buffer = Buffer::from(message.data_body);
                let batch =
                    read_record_batch(&buffer, batch, Arc::clone(schema), &self.dictionaries, None, &version);
                batch.map(|batch| Decoded::Batch(batch, copy)).map_err(|error| invalid(&error))
            }
            other => Err(invalid(&format_args!("it is a [{}]", other.variant_name().unwrap_or("unknown")))),
        }
    }

    fn schema(&mut self, schema: ipc::Schema<'_>) -> Result<Decoded, Status> {
        let schema = fb_to_schema(schema);
        let mut fields = 0;
        schema.fields().iter().try_for_each(|field| bounded(field.data_type(), 1, &mut fields))?;
        // Nothing asks for metadata.
        let schema = Arc::new(Schema::new(bare_all(schema.fields())));
        match &self.schema {
            Some(before) if **before != *schema => Err(invalid("its schema is not the one before")),
            _ => {
                self.schema = Some(Arc::clone(&schema));
                Ok(Decoded::Schema(schema))
            }
        }
    }
}

/// Reads metadata that stand for about as much as they are.
fn verified(header: &[u8]) -> Result<ipc::Message<'_>, Status> {
    let mut options = options_of(ipc::root_as_message_with_opts);
    options.max_tables = MAX_TABLES;
    options.max_apparent_size = header.len() * 2 + SHARED_BYTES;
    ipc::root_as_message_with_opts(&options, header).map_err(|error| invalid(&error))
}

/// Makes the options that a reader of metadata takes, whose type has no name here.
fn options_of<O: Default, M, E>(_: for<'o> fn(&'o O, &'static [u8]) -> Result<M, E>) -> O {
    O::default()
}

fn bare_all(fields: &Fields) -> Fields {
    fields.iter().map(bare).collect()
}

/// Takes the metadata from a field and those within it.
fn bare(field: &FieldRef) -> FieldRef {
    Arc::new(Field::clone(field).with_data_type(bare_type(field.data_type())).with_metadata(HashMap::new()))
}

/// The same of a field within another. It may be null: to see that nothing is, a reader makes room for as many values as there are said to be.
fn within(field: &FieldRef) -> FieldRef {
    Arc::new(Field::clone(&bare(field)).with_nullable(true))
}

fn bare_type(kind: &DataType) -> DataType {
    match kind {
        DataType::List(item) => DataType::List(within(item)),
        DataType::LargeList(item) => DataType::LargeList(within(item)),
        DataType::ListView(item) => DataType::ListView(within(item)),
        DataType::LargeListView(item) => DataType::LargeListView(within(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(within(item), *size),
        // Keys are never null; a reader insists.
        DataType::Map(entries, sorted) => DataType::Map(bare_entries(entries), *sorted),
        DataType::RunEndEncoded(ends, values) => DataType::RunEndEncoded(bare(ends), within(values)),
        DataType::Struct(inner) => DataType::Struct(inner.iter().map(within).collect()),
        DataType::Union(inner, mode) => {
            let inner: UnionFields = inner.iter().map(|(id, field)| (id, within(field))).collect();
            DataType::Union(inner, *mode)
        }
        DataType::Dictionary(keys, values) => DataType::Dictionary(keys.clone(), Box::new(bare_type(values))),
        plain => plain.clone(),
    }
}

fn bare_entries(entries: &FieldRef) -> FieldRef {
    let DataType::Struct(inner) = entries.data_type() else { return bare(entries) };
    let inner = inner.iter().enumerate().map(|(at, field)| if at == 0 { bare(field) } else { within(field) });
    let kind = DataType::Struct(inner.collect());
    Arc::new(Field::clone(entries).with_data_type(kind).with_metadata(HashMap::new()))
}

/// Refuses what would be more than it says, or than the body is.
fn check(batch: &ipc::RecordBatch<'_>, body: usize) -> Result<(), Status> {
    let mut end = 0;
    for buffer in batch.buffers().into_iter().flatten() {
        let (from, length) = (u64::try_from(buffer.offset()), u64::try_from(buffer.length()));
        let (Ok(from), Ok(length)) = (from, length) else { return Err(invalid("a buffer is nowhere")) };
        if length == 0 {
            continue;
        }
        if from < end || from.checked_add(length).is_none_or(|end| end > body as u64) {
            return Err(invalid("its buffers are not one behind the other in its body"));
        }
        end = from + length;
    }
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
    // A value has a bit at least, but for those of no type: a few bytes would say that there are any number.
    let most = MAX_ROWS.max(8 * body as i64);
    if batch.nodes().into_iter().flatten().any(|node| !(0..=most).contains(&node.length())) {
        return Err(invalid("it says that there are more values than it has room for"));
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
    match kind {
        // One that was replaced would stay as long as those that were made with it.
        DataType::Dictionary(_, values) if has_dictionary(values) => {
            Err(invalid("its schema has a dictionary within a dictionary"))
        }
        kind => inner(kind).into_iter().try_for_each(|kind| bounded(kind, depth + 1, fields)),
    }
}

fn has_dictionary(kind: &DataType) -> bool {
    matches!(kind, DataType::Dictionary(..)) || inner(kind).into_iter().any(has_dictionary)
}

/// Lists the types that a type is made of.
fn inner(kind: &DataType) -> Vec<&DataType> {
    match kind {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _)
        | DataType::RunEndEncoded(_, item) => vec![item.data_type()],
        DataType::Struct(fields) => fields.iter().map(|field| field.data_type()).collect(),
        DataType::Union(fields, _) => fields.iter().map(|(_, field)| field.data_type()).collect(),
        DataType::Dictionary(_, values) => vec![values],
        _ => Vec::new(),
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
    use datafusion::arrow::array::{Array as _, DictionaryArray, FixedSizeListArray, Int64Array, NullArray};
    use datafusion::arrow::buffer::NullBuffer;
    use datafusion::arrow::datatypes::{Field, Int32Type};
    use datafusion::arrow::ipc::writer::{
        DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions,
    };
    use futures::{FutureExt, TryStreamExt, stream};
    use millrace_listen::Budget;
    use proptest::prelude::*;
    use tonic::Code;

    use super::*;
    use crate::upload::Shares;

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
        let room = Budget::new(1 << 30);
        let received = Shares::new(&room).begin(None);
        let (mut decoder, mut batches) = (Decoder::new(received.clone()), Vec::new());
        for message in messages {
            let copy = received.try_reserve(message.data_body.len() as u64)?;
            if let Decoded::Batch(batch, _) = decoder.guarded(message, copy)? {
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
    fn what_says_to_be_more_than_there_is_memory_is_refused() {
        // Values of no type take no bytes, however many there are said to be.
        let item = Arc::new(Field::new("item", DataType::Null, true));
        let lists =
            FixedSizeListArray::new(item, 2, Arc::new(NullArray::new(8)), Some(NullBuffer::new_null(4)));
        let mut sent = messages(Arc::new(lists));
        assert_eq!(decode(sent.clone()).unwrap()[0].num_rows(), 4);
        let header = sent[1].data_header.to_vec();
        let message = ipc::root_as_message(&header).unwrap();
        let nodes = message.header_as_record_batch().unwrap().nodes().unwrap();
        let place = std::ptr::from_ref(nodes.get(1)) as usize - header.as_ptr() as usize;
        for values in [1_i64 << 49, -1] {
            let mut changed = header.clone();
            changed[place..place + 8].copy_from_slice(&values.to_le_bytes());
            changed[place + 8..place + 16].copy_from_slice(&values.to_le_bytes());
            sent[1].data_header = changed.into();
            let error = decode(sent.clone()).unwrap_err();
            assert!(error.message().contains("more values than it has room for"), "{error}");
        }
    }

    #[test]
    fn a_dictionary_has_no_other_within_it() {
        let text = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let inner = DataType::Struct(vec![Field::new("f", text, true)].into());
        let outer = DataType::Dictionary(Box::new(DataType::Int32), Box::new(inner));
        assert_eq!(code(vec![of_schema(vec![Field::new("c", outer, true)])]), Code::InvalidArgument);
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

    #[test]
    fn buffers_that_are_in_each_other_are_refused() {
        let columns: Vec<(String, ArrayRef)> =
            (0..2).map(|n| (n.to_string(), Arc::new(Int64Array::from(vec![n; 64])) as ArrayRef)).collect();
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let encoder = FlightDataEncoderBuilder::new().build(stream::iter([Ok(batch)]));
        let mut sent: Vec<FlightData> = encoder.try_collect().now_or_never().unwrap().unwrap();
        assert!(decode(sent.clone()).is_ok());
        let header = sent[1].data_header.to_vec();
        let message = ipc::root_as_message(&header).unwrap();
        let buffers = message.header_as_record_batch().unwrap().buffers().unwrap();
        let second = buffers.iter().filter(|buffer| buffer.length() == 512).nth(1).unwrap();
        // The second column is to be the first one, too.
        let place = std::ptr::from_ref(second) as usize - header.as_ptr() as usize;
        let mut changed = header.clone();
        changed[place..place + 8].copy_from_slice(&0_i64.to_le_bytes());
        sent[1].data_header = changed.into();
        let error = decode(sent).unwrap_err();
        assert!(error.message().contains("one behind the other"), "{error}");
    }

    #[test]
    fn metadata_are_left_out_and_may_not_stand_for_much_more_than_they_are() {
        let field = Field::new("c", DataType::new_list(DataType::Int8, true), true)
            .with_metadata([("k".to_owned(), "v".to_owned())].into());
        let mut decoder = Decoder::new(Shares::new(&Budget::new(1 << 20)).begin(None));
        let copy = decoder.received.try_reserve(0).unwrap();
        let Ok(Decoded::Schema(schema)) = decoder.guarded(of_schema(vec![field]), copy) else { panic!() };
        assert!(schema.field(0).metadata().is_empty());
        let wide = of_schema((0..1_000).map(|n| Field::new(n.to_string(), DataType::Utf8, true)).collect());
        assert!(verified(&wide.data_header).is_ok());
    }

    #[test]
    fn dictionaries_hold_room_until_others_take_their_place_and_are_bounded() {
        let words: DictionaryArray<Int32Type> = ["a"].into_iter().collect();
        let sent = messages(Arc::new(words));
        let room = Budget::new(1 << 30);
        let received = Shares::new(&room).begin(None);
        let mut decoder = Decoder::new(received.clone());
        let half = MAX_DICTIONARY_BYTES as u64 / 2;
        decoder.guarded(sent[0].clone(), received.try_reserve(0).unwrap()).unwrap();
        // One that takes the place of the one before is all that is held.
        for _ in 0..3 {
            decoder.guarded(sent[1].clone(), received.try_reserve(half / 2 + 1).unwrap()).unwrap();
            assert_eq!(room.used(), half + 2);
        }
        let error = decoder.guarded(sent[1].clone(), received.try_reserve(half + 1).unwrap());
        assert_eq!(error.unwrap_err().code(), Code::ResourceExhausted);
        drop(decoder);
        assert_eq!(room.used(), 0);
    }

    #[test]
    fn dictionaries_that_add_to_others_are_refused() {
        let whole: DictionaryArray<Int32Type> = ["a", "b"].into_iter().collect();
        let more: DictionaryArray<Int32Type> = ["a", "b", "c"].into_iter().collect();
        let schema = Schema::new(vec![Field::new("c", whole.data_type().clone(), true)]);
        let options =
            IpcWriteOptions::default().with_dictionary_handling(ipc::writer::DictionaryHandling::Delta);
        let (generator, mut context) = (IpcDataGenerator::default(), IpcWriteContext::default());
        let mut tracker = DictionaryTracker::new(false);
        let told = generator.schema_to_bytes_with_dictionary_tracker(&schema, &mut tracker, &options);
        let mut sent: Vec<FlightData> = vec![told.into()];
        for column in [whole, more] {
            let batch = RecordBatch::try_from_iter([("c", Arc::new(column) as ArrayRef)]).unwrap();
            let (dictionaries, rows) =
                generator.encode(&batch, &mut tracker, &options, &mut context).unwrap();
            sent.extend(dictionaries.into_iter().chain([rows]).map(FlightData::from));
        }
        assert_eq!(sent.len(), 5);
        assert_eq!(decode(sent[..3].to_vec()).unwrap().len(), 1);
        let error = decode(sent).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.message().contains("whole dictionaries"), "{error}");
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
