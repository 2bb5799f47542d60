use arrow_flight::SchemaAsIpc;
use arrow_flight::encode::{DictionaryHandling, FlightDataEncoderBuilder};
use datafusion::arrow::array::{Array as _, DictionaryArray, FixedSizeListArray, Int64Array, NullArray};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{Field, Int32Type};
use datafusion::arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
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
    let budget = Budget::new(1 << 30);
    let received = Shares::new(&budget).begin(None);
    let (mut decoder, mut batches) = (Decoder::new(received.clone()), Vec::new());
    for message in messages {
        let copy = received.try_reserve(message.data_body.len() as u64)?;
        if let DecodedMessage::Batch(batch, _) = decoder.guarded(message, copy)? {
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
    let lists = FixedSizeListArray::new(item, 2, Arc::new(NullArray::new(8)), Some(NullBuffer::new_null(4)));
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
fn fields_within_others_are_bare_and_may_be_null_but_for_keys_of_maps() {
    let full = |name: &str, kind| {
        Field::new(name, kind, false).with_metadata([("k".to_owned(), "v".to_owned())].into())
    };
    let bare = |name: &str, kind, nullable| Field::new(name, kind, nullable);
    let map = |key: Field, value: Field| {
        let entries = vec![key, value];
        let entries = Field::new("entries", DataType::Struct(entries.into()), false);
        DataType::Map(Arc::new(entries), false)
    };
    let item = || Arc::new(full("item", DataType::Int8));
    let plain = || Arc::new(bare("item", DataType::Int8, true));
    let words = || DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let kinds = [
        (DataType::List(item()), DataType::List(plain())),
        (DataType::FixedSizeList(item(), 2), DataType::FixedSizeList(plain(), 2)),
        (
            DataType::Struct(vec![full("a", DataType::Int8), full("b", words())].into()),
            DataType::Struct(vec![bare("a", DataType::Int8, true), bare("b", words(), true)].into()),
        ),
        (
            map(full("keys", DataType::Utf8), full("values", DataType::Int8)),
            map(bare("keys", DataType::Utf8, false), bare("values", DataType::Int8, true)),
        ),
        (
            DataType::RunEndEncoded(Arc::new(full("run_ends", DataType::Int32)), item()),
            DataType::RunEndEncoded(Arc::new(bare("run_ends", DataType::Int32, false)), plain()),
        ),
    ];
    for (sent, taken) in kinds {
        let fields = Fields::from(vec![full("f", sent)]);
        let expected = Fields::from(vec![bare("f", taken, false)]);
        assert_eq!(MetadataStripper::default().all(&fields).unwrap(), expected);
    }
    // What says where runs end is counted, too.
    let deep = (1..MAX_DEPTH).fold(DataType::Int8, |inner, _| DataType::new_list(inner, true));
    let ends = DataType::RunEndEncoded(Arc::new(full("run_ends", deep)), item());
    let error = MetadataStripper::default().all(&vec![full("f", ends)].into()).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
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
    let Ok(DecodedMessage::Schema(schema)) = decoder.guarded(of_schema(vec![field]), copy) else { panic!() };
    assert!(schema.field(0).metadata().is_empty());
    let wide = of_schema((0..1_000).map(|n| Field::new(n.to_string(), DataType::Utf8, true)).collect());
    assert!(verified(&wide.data_header).is_ok());
}

#[test]
fn dictionaries_hold_room_until_others_take_their_place_and_are_bounded() {
    let words: DictionaryArray<Int32Type> = ["a"].into_iter().collect();
    let sent = messages(Arc::new(words));
    let budget = Budget::new(1 << 30);
    let received = Shares::new(&budget).begin(None);
    let mut decoder = Decoder::new(received.clone());
    let half = MAX_DICTIONARY_BYTES as u64 / 2;
    decoder.guarded(sent[0].clone(), received.try_reserve(0).unwrap()).unwrap();
    // One that takes the place of the one before is all that is held.
    for _ in 0..3 {
        decoder.guarded(sent[1].clone(), received.try_reserve(half / 2 + 1).unwrap()).unwrap();
        assert_eq!(budget.used(), half + 2);
    }
    let error = decoder.guarded(sent[1].clone(), received.try_reserve(half + 1).unwrap());
    assert_eq!(error.unwrap_err().code(), Code::ResourceExhausted);
    drop(decoder);
    assert_eq!(budget.used(), 0);
}

#[test]
fn dictionaries_that_add_to_others_are_refused() {
    let whole: DictionaryArray<Int32Type> = ["a", "b"].into_iter().collect();
    let more: DictionaryArray<Int32Type> = ["a", "b", "c"].into_iter().collect();
    let schema = Schema::new(vec![Field::new("c", whole.data_type().clone(), true)]);
    let options = IpcWriteOptions::default().with_dictionary_handling(ipc::writer::DictionaryHandling::Delta);
    let (generator, mut context) = (IpcDataGenerator::default(), IpcWriteContext::default());
    let mut tracker = DictionaryTracker::new(false);
    let told = generator.schema_to_bytes_with_dictionary_tracker(&schema, &mut tracker, &options);
    let mut sent: Vec<FlightData> = vec![told.into()];
    for column in [whole, more] {
        let batch = RecordBatch::try_from_iter([("c", Arc::new(column) as ArrayRef)]).unwrap();
        let (dictionaries, rows) = generator.encode(&batch, &mut tracker, &options, &mut context).unwrap();
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
