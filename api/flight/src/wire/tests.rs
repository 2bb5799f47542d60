use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use datafusion::arrow::array::{ArrayRef, AsArray as _, DictionaryArray, Int64Array, StringArray};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, Field, Int32Type};
use futures::TryStreamExt as _;
use millrace_query::MESSAGE_BYTES;
use tonic::Code;

use super::*;

fn one(column: impl Into<ArrayRef>) -> RecordBatch {
    RecordBatch::try_from_iter([("c", column.into())]).unwrap()
}

fn numbers(from: i64, rows: i64) -> RecordBatch {
    one(Arc::new(Int64Array::from_iter_values(from..from + rows)) as ArrayRef)
}

fn sent(batches: Vec<RecordBatch>) -> Answer {
    Answer::Batches(stream::iter(batches.into_iter().map(Ok)).boxed())
}

/// The messages of batches, and how they are read.
async fn read(schema: SchemaRef, batches: Vec<RecordBatch>) -> (Vec<FlightData>, Vec<RecordBatch>) {
    let compute = Compute::start(1).unwrap();
    let messages = messages(&compute, schema, sent(batches)).await.unwrap();
    let messages: Vec<FlightData> = messages.try_collect().await.unwrap();
    let again = stream::iter(messages.clone()).map(Ok::<_, FlightError>);
    let read = FlightRecordBatchStream::new_from_flight_data(again).try_collect().await.unwrap();
    (messages, read)
}

#[tokio::test]
async fn what_is_sent_is_what_was_given_in_its_order() {
    let rows = 1 << 20;
    let batches = vec![numbers(0, 3), numbers(3, 0), numbers(3, rows), numbers(rows + 3, 100)];
    let (messages, read) = read(batches[0].schema(), batches.clone()).await;
    assert!(messages.iter().all(|message| message.encoded_len() < 2 * MESSAGE_BYTES));
    assert_eq!(messages.len(), 1 + 1 + 4 + 1);
    let all = |batches: &[RecordBatch]| concat_batches(batches[0].schema_ref(), batches).unwrap();
    assert_eq!(all(&read), all(&batches));
}

#[tokio::test]
async fn a_schema_comes_without_rows_and_with_many_columns() {
    for columns in [1, FEW_COLUMNS + 1] {
        let fields: Vec<Field> =
            (0..columns).map(|n| Field::new(n.to_string(), DataType::Int64, true)).collect();
        let schema = Arc::new(Schema::new(fields));
        let (messages, read) =
            read(Arc::clone(&schema), vec![RecordBatch::new_empty(Arc::clone(&schema))]).await;
        assert_eq!((messages.len(), read.len()), (1, 0));
        let compute = Compute::start(1).unwrap();
        let encoded = fingerprint_schema(&compute, &schema).await.unwrap();
        assert_eq!(Schema::try_from(IpcMessage(encoded.bytes)).unwrap(), *schema);
    }
}

#[tokio::test]
async fn dictionaries_are_written_out() {
    let words: DictionaryArray<Int32Type> = ["a", "b", "a"].into_iter().collect();
    let schema = Arc::new(Schema::new(vec![Field::new("c", DataType::Utf8, true)]));
    let (_, read) = read(Arc::clone(&schema), vec![one(Arc::new(words) as ArrayRef)]).await;
    assert_eq!(read[0].schema(), schema);
    assert_eq!(read[0].column(0).as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["a", "b", "a"]);
}

#[tokio::test]
async fn a_row_that_is_longer_than_a_message_ends_the_answer() {
    let long = one(Arc::new(StringArray::from(vec!["x".repeat(MAX_MESSAGE)])) as ArrayRef);
    let compute = Compute::start(1).unwrap();
    let schema = long.schema();
    let short = one(Arc::new(StringArray::from(vec!["x"])) as ArrayRef);
    let messages = messages(&compute, schema, sent(vec![short.clone(), long, short])).await.unwrap();
    let mut messages = std::pin::pin!(messages);
    for _ in 0..2 {
        messages.next().await.unwrap().unwrap();
    }
    let error = messages.next().await.unwrap().unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted);
    assert!(messages.next().await.is_none());
}

#[tokio::test]
async fn batches_are_taken_as_their_messages_are() {
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    let batches = stream::iter((0..64).map(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        // Two messages each.
        Ok(numbers(0, 3 << 17))
    }));
    let compute = Compute::start(1).unwrap();
    let schema = numbers(0, 0).schema();
    let mut messages = Box::pin(messages(&compute, schema, Answer::Batches(batches.boxed())).await.unwrap());
    for number in 0..=64 {
        messages.next().await.unwrap().unwrap();
        let batches = taken.load(Ordering::SeqCst);
        assert!(batches <= number / 2 + 1, "{batches} batches for {number} messages");
    }
}

#[tokio::test]
async fn what_nobody_waits_for_is_let_go_of() {
    let compute = Compute::start(1).unwrap();
    let (go, waits) = std::sync::mpsc::channel::<()>();
    compute.spawn(Priority::Foreground, move || {
        let _ = waits.recv();
    });
    let batch = numbers(0, 1 << 16);
    let (schema, held) = (batch.schema(), batch.column(0).to_data().buffers()[0].clone());
    let mut messages = Box::pin(messages(&compute, schema, sent(vec![batch])).await.unwrap());
    messages.next().await.unwrap().unwrap();
    let waiting = futures::future::poll_fn(|context| {
        assert!(messages.poll_next_unpin(context).is_pending());
        std::task::Poll::Ready(())
    });
    waiting.await;
    drop(messages);
    go.send(()).unwrap();
    // The job that was queued lets go of the batch.
    compute.run(Priority::Foreground, || Ok(())).await.unwrap();
    assert_eq!(held.strong_count(), 1);
}
