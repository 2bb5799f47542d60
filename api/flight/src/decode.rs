//! Batches that are sent, out of their messages.
//!
//! Claims of a message about itself are not believed: numbers of rows, depths and fields have bounds, dictionaries that are kept have one in
//! bytes and none is added to, compressed buffers are refused, buffers are those of the body, each byte in one of them, and the rest is validated as it is
//! read. A defect of that on hostile input is an error of the request. It is done on the threads of writes.
//!
//! Reading copies what is not aligned, a body's bytes at most: these are reserved before, for a batch for as long as [`DecodedMessage`] is
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
use millrace_runtime::{Compute, Priority};
use tonic::Status;

use crate::status;
use crate::upload::{ReceivedBytes, UploadReservation};

/// Most rows of a batch.
const MAX_ROWS: i64 = 8 << 20;
/// Most fields of a schema, those in others included.
const MAX_FIELDS: usize = 10_000;
/// Bound on the nesting depth of fields.
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

/// Kind of a decoded message.
#[derive(Debug)]
pub(crate) enum DecodedMessage {
    /// Nothing to look at: a dictionary, or no message at all.
    Nothing,
    /// The schema of all batches behind it.
    Schema(SchemaRef),
    /// With what it holds beside its message.
    Batch(RecordBatch, UploadReservation),
}

/// Reads the messages of one stream in their order.
#[derive(Debug)]
pub(crate) struct Decoder {
    received: ReceivedBytes,
    schema: Option<SchemaRef>,
    dictionaries: HashMap<i64, ArrayRef>,
    /// Reservations of dictionaries.
    held: HashMap<i64, UploadReservation>,
    /// Reservation of the schema's message: the schema takes about as much.
    of_schema: Option<Arc<UploadReservation>>,
}

impl Decoder {
    /// Begins a stream, of a request whose room is shared.
    pub(crate) fn new(received: ReceivedBytes) -> Self {
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
        held: &Arc<UploadReservation>,
    ) -> Result<(Self, DecodedMessage), Status> {
        let copy = self.received.reserve(message.data_body.len() as u64).await?;
        let held = Arc::clone(held);
        let work = move || {
            let decoded = self.guarded(message, copy);
            match &decoded {
                Ok(DecodedMessage::Schema(_)) => self.of_schema = Some(held),
                _ => drop(held),
            }
            Ok(decoded.map(|decoded| (self, decoded)))
        };
        compute.run(Priority::Ingest, work).await.map_err(status::from_error)?
    }

    /// Reads a message. What the reader of the format does not expect of one ends the request and nothing else.
    fn guarded(&mut self, message: FlightData, copy: UploadReservation) -> Result<DecodedMessage, Status> {
        let decoded = std::panic::catch_unwind(AssertUnwindSafe(|| self.decode(message, copy)));
        decoded.unwrap_or_else(|_| Err(invalid("it contradicts itself")))
    }

    fn decode(&mut self, message: FlightData, mut copy: UploadReservation) -> Result<DecodedMessage, Status> {
        if message.data_header.is_empty() {
            return Ok(DecodedMessage::Nothing);
        }
        if message.data_header.len() > MAX_HEADER_BYTES {
            return Err(invalid("its metadata are too long"));
        }
        let header = message.data_header.clone();
        let header = verified(&header)?;
        let version = header.version();
        match header.header_type() {
            ipc::MessageHeader::NONE => Ok(DecodedMessage::Nothing),
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
                Ok(DecodedMessage::Nothing)
            }
            ipc::MessageHeader::RecordBatch => {
                let schema = self.schema.as_ref().ok_or_else(no_schema)?;
                let batch = header.header_as_record_batch().ok_or_else(|| invalid("it has no batch"))?;
                check(&batch, message.data_body.len())?;
                let buffer = Buffer::from(message.data_body);
                let batch =
                    read_record_batch(&buffer, batch, Arc::clone(schema), &self.dictionaries, None, &version);
                batch.map(|batch| DecodedMessage::Batch(batch, copy)).map_err(|error| invalid(&error))
            }
            other => Err(invalid(&format_args!("it is a [{}]", other.variant_name().unwrap_or("unknown")))),
        }
    }

    fn schema(&mut self, schema: ipc::Schema<'_>) -> Result<DecodedMessage, Status> {
        let schema = fb_to_schema(schema);
        let schema = Arc::new(Schema::new(MetadataStripper::default().all(schema.fields())?));
        match &self.schema {
            Some(before) if **before != *schema => Err(invalid("its schema is not the one before")),
            _ => {
                self.schema = Some(Arc::clone(&schema));
                Ok(DecodedMessage::Schema(schema))
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

/// Takes metadata, which nothing asks for, from fields and those within them. Refuses what is deep or wide, and dictionaries within others.
#[derive(Debug, Default)]
struct MetadataStripper {
    /// Types so far.
    types: usize,
}

/// Path of a type within a schema.
#[derive(Clone, Copy, Debug)]
struct TypePath {
    depth: usize,
    /// `true` if it is within a dictionary, at any depth.
    in_dictionary: bool,
    /// `true` if it is that of the entries of a map.
    is_entries: bool,
}

impl TypePath {
    fn within(self) -> Self {
        Self { depth: self.depth + 1, is_entries: false, ..self }
    }
}

impl MetadataStripper {
    fn all(&mut self, fields: &Fields) -> Result<Fields, Status> {
        let place = TypePath { depth: 1, in_dictionary: false, is_entries: false };
        fields.iter().map(|field| self.field(field, place)).collect()
    }

    fn field(&mut self, field: &FieldRef, place: TypePath) -> Result<FieldRef, Status> {
        let kind = self.kind(field.data_type(), place)?;
        Ok(Arc::new(Field::clone(field).with_data_type(kind).with_metadata(HashMap::new())))
    }

    /// The same of a field within another. It may be null: to see that nothing is, a reader makes room for as many values as there are said to be.
    fn inner(&mut self, field: &FieldRef, place: TypePath) -> Result<FieldRef, Status> {
        let within = self.field(field, place.within())?;
        Ok(Arc::new(within.as_ref().clone().with_nullable(true)))
    }

    /// The one place that knows which types have others within them.
    fn kind(&mut self, kind: &DataType, place: TypePath) -> Result<DataType, Status> {
        self.types += 1;
        if place.depth > MAX_DEPTH || self.types > MAX_FIELDS {
            return Err(invalid(&format_args!(
                "its schema has more than [{MAX_FIELDS}] fields, or some that are more than [{MAX_DEPTH}] deep"
            )));
        }
        Ok(match kind {
            DataType::List(item) => DataType::List(self.inner(item, place)?),
            DataType::LargeList(item) => DataType::LargeList(self.inner(item, place)?),
            DataType::ListView(item) => DataType::ListView(self.inner(item, place)?),
            DataType::LargeListView(item) => DataType::LargeListView(self.inner(item, place)?),
            DataType::FixedSizeList(item, size) => DataType::FixedSizeList(self.inner(item, place)?, *size),
            DataType::Map(entries, sorted) => {
                DataType::Map(self.field(entries, TypePath { is_entries: true, ..place.within() })?, *sorted)
            }
            DataType::RunEndEncoded(ends, values) => {
                DataType::RunEndEncoded(self.field(ends, place.within())?, self.inner(values, place)?)
            }
            DataType::Struct(fields) => {
                let fields = fields.iter().enumerate().map(|(at, field)| match at {
                    // Keys are never null; a reader insists.
                    0 if place.is_entries => self.field(field, place.within()),
                    _ => self.inner(field, place),
                });
                DataType::Struct(fields.collect::<Result<Fields, Status>>()?)
            }
            DataType::Union(fields, mode) => {
                let fields = fields.iter().map(|(id, field)| Ok((id, self.inner(field, place)?)));
                DataType::Union(fields.collect::<Result<UnionFields, Status>>()?, *mode)
            }
            // One that was replaced would stay as long as those that were made with it.
            DataType::Dictionary(..) if place.in_dictionary => {
                return Err(invalid("its schema has a dictionary within a dictionary"));
            }
            DataType::Dictionary(keys, values) => {
                let values = self.kind(values, TypePath { in_dictionary: true, ..place.within() })?;
                DataType::Dictionary(keys.clone(), Box::new(values))
            }
            plain => plain.clone(),
        })
    }
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

fn no_schema() -> Status {
    invalid("no schema came before it")
}

fn invalid(reason: &(impl std::fmt::Display + ?Sized)) -> Status {
    status::new(tonic::Code::InvalidArgument, &format!("a message cannot be read: {reason}"))
}

#[cfg(test)]
mod tests;
