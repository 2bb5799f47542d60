//! Bulk ingestion: rows become documents, in the index that the command names ([`target`]).
//!
//! Batches are read one at a time and written in parts of bounded size, whose documents are made ([`json`]) on the threads of writes. A few
//! parts are written at the same time where ids are generated; rows that name theirs are written in their order, so that the last of an
//! id stays. Each part is written with the rights that its sender has when it has come. The last one makes all of them visible to statements, and the count
//! is told when all are durable. Rows that are refused end the ingestion, and the error says how many were written.
//!
//! Bytes count against what all requests may hold from when they arrive until their part is written; those of a part before it is made.

mod json;
mod mapping;
mod target;
mod time;

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::sql::CommandStatementIngest;
use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use millrace_catalog::access::Action;
use millrace_engine::{Action as Operation, RefreshPolicy, Session, WriteOp};
use millrace_gateway::http::MemoryAllowance;
use millrace_gateway::{PipelinedWrite, WritePipelines, apply_pipelines};
use millrace_runtime::Priority;
use tokio::task::JoinHandle;
use tonic::{Code, Status};

use self::json::Rows;
use self::target::{FirstRows, Target};
use crate::call::Call;
use crate::decode::{DecodedMessage, Decoder};
use crate::messages::PutMessages;
use crate::status;
use crate::upload::UploadReservation;
use crate::wire::computed;

/// Documents and bytes of them that are written at once.
const PART_ROWS: usize = 5_000;
const PART_BYTES: usize = 4 << 20;
/// Bytes that a part holds mostly, at least as many as it has: those of its documents, and of what is told of each.
const PART_HELD: u64 = (PART_BYTES + PART_ROWS * OP_BYTES) as u64;
const OP_BYTES: usize = size_of::<WriteOp>();
/// Parts that are written at the same time, where their order does not matter.
const WRITES: usize = 4;
/// Time that a part may wait for memory of the store.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Rows between two looks for reads that wait for a core.
const SLICE: usize = 256;

/// Documents that are written together, and what they hold.
struct DocumentChunk {
    session: Session,
    ops: Vec<WriteOp>,
    /// Ingest pipelines of the indices, and what they may take for the chunk.
    pipelines: Option<Arc<dyn WritePipelines>>,
    allowance: MemoryAllowance,
    _held: UploadReservation,
}

/// A batch, and what it holds: its message, and what was copied of that.
struct Batch {
    rows: RecordBatch,
    held: Arc<(Arc<UploadReservation>, UploadReservation)>,
}

/// Numbers of written rows, and the first refusal; one for rights takes precedence.
#[derive(Debug, Default)]
struct Tally {
    written: u64,
    refused: u64,
    first: Option<Status>,
    /// The indices that documents were written to.
    touched: BTreeSet<Arc<str>>,
}

/// Answers an ingestion: how many documents were written.
///
/// # Errors
/// `INVALID_ARGUMENT` for rows that no documents can be made of, what [`Target`] refuses, and refusals of documents.
pub(crate) async fn ingest(
    call: &Call,
    command: CommandStatementIngest,
    mut sent: PutMessages,
) -> Result<u64, Status> {
    let mut target = Target::read(&command, call.shared.catalog())?;
    target.check_rights(call)?;
    let mut writes = Writes::default();
    let result = run(call, &mut target, &mut sent, &mut writes).await;
    // What has begun is counted, whatever happened behind it.
    writes.drain().await;
    let durable = writes.finish().await;
    let mut tally = writes.tally;
    [result.err(), durable.err()].into_iter().flatten().for_each(|error| tally.tell(error));
    let Tally { written, refused, first, .. } = tally;
    match first {
        None => Ok(written),
        Some(error) if written + refused == 0 => Err(error),
        Some(error) => {
            let message = format!(
                "[{written}] documents were written and [{refused}] refused; nothing behind them was taken, because of: {}",
                error.message()
            );
            Err(status::new(error.code(), &message))
        }
    }
}

async fn run(
    call: &Call,
    target: &mut Target,
    sent: &mut PutMessages,
    writes: &mut Writes,
) -> Result<(), Status> {
    let compute = call.compute();
    let (mut decoder, mut schema) = (Decoder::new(sent.received.clone()), None);
    while let Some(message) = sent.next().await? {
        let held = Arc::new(sent.received.take());
        let (back, decoded) = decoder.decode_on(compute, message, &held).await?;
        decoder = back;
        match decoded {
            DecodedMessage::Nothing => {}
            DecodedMessage::Schema(told) => {
                if schema.is_none() {
                    let checked = Arc::clone(&told);
                    computed(compute, Priority::Ingest, move || mapping::check(&checked)).await?;
                    target.check(call, &told).await?;
                }
                writes.most = if has_ids(&told) { 1 } else { WRITES };
                schema = Some(told);
            }
            DecodedMessage::Batch(batch, copy) => {
                let batch = Batch { rows: batch, held: Arc::new((held, copy)) };
                batch_of_rows(call, target, sent, writes, batch).await?;
            }
        }
        if writes.tally.first.is_some() {
            return Ok(());
        }
    }
    match schema {
        Some(_) => target.prepare(call, None).await,
        None => Err(Status::invalid_argument("there is no schema, and so nothing to be ingested")),
    }
}

fn has_ids(schema: &SchemaRef) -> bool {
    schema.field_with_name(mapping::ID).is_ok()
}

/// Writes the rows of a batch. The index is made what it is to be when the first documents are there.
async fn batch_of_rows(
    call: &Call,
    target: &mut Target,
    sent: &PutMessages,
    writes: &mut Writes,
    batch: Batch,
) -> Result<(), Status> {
    let compute = call.compute();
    let Batch { rows: batch, held: of_batch } = batch;
    let rows = batch.num_rows();
    if rows == 0 {
        return Ok(());
    }
    let mut sample = target.is_wanted().then(|| batch.clone());
    let read =
        move || Rows::new(&batch).map_err(|error| status::new(Code::InvalidArgument, &error.to_string()));
    let mut read = computed(compute, Priority::Ingest, read).await?;
    let (mut next, mut most) = (0, PART_HELD);
    while next < rows {
        // There is room for what is made before it is made: a few bytes of an encoded batch stand for any number.
        let mut held = writes.reserve(sent, most).await?;
        let (from, index, threads) = (next, Arc::clone(&target.index), compute.clone());
        // What is worked on holds what it takes, also where nobody waits for that any more.
        let of_batch = Arc::clone(&of_batch);
        let work = move || {
            let made = documents(&read, from..rows, &index, most, || threads.give_way())?;
            drop(of_batch);
            Ok((read, held, made))
        };
        let made;
        (read, held, made) = computed(compute, Priority::Ingest, work).await?;
        let ConvertedRows { ops, bytes, end } = made;
        if bytes > most {
            // One that takes more by itself is made again, once there is room for it.
            most = bytes;
            continue;
        }
        held.shrink_to(bytes);
        next = end;
        target.prepare(call, sample.take().map(|batch| FirstRows::new(batch, &ops))).await?;
        let session = call.begin_again(Action::Bulk).await?;
        let listener = &call.shared.listener;
        let (pipelines, allowance) =
            (listener.node.write_pipelines().cloned(), MemoryAllowance::new(&listener.budget));
        let part = DocumentChunk { session, ops, pipelines, allowance, _held: held };
        writes.begin(part);
        writes.settle(writes.most).await;
        if writes.tally.first.is_some() {
            return Ok(());
        }
    }
    Ok(())
}

/// Documents of some rows.
struct ConvertedRows {
    ops: Vec<WriteOp>,
    /// Bytes that they hold.
    bytes: u64,
    /// The row behind them.
    end: usize,
}

/// Makes documents of rows until they are a part: those that take no more than `most` bytes together, or one that takes more.
fn documents(
    rows: &Rows,
    left: Range<usize>,
    index: &Arc<str>,
    most: u64,
    give_way: impl Fn(),
) -> Result<ConvertedRows, Status> {
    let from = left.start;
    let (mut text, mut id_text) = (Vec::new(), Vec::new());
    let (mut ends, mut ids, mut bytes) = (Vec::new(), Vec::new(), 0);
    for row in left.take(PART_ROWS) {
        let begin = text.len();
        if begin >= PART_BYTES {
            break;
        }
        let written = rows.write(row, &mut text).and_then(|()| rows.id(row, &mut id_text));
        let id = written.map_err(|error| {
            let message = format!("row [{row}] of a batch is no document: {error}");
            status::new(Code::InvalidArgument, &message)
        })?;
        let more = (text.len() - begin + id.as_ref().map_or(0, String::len) + OP_BYTES) as u64;
        if bytes + more > most && !ids.is_empty() {
            text.truncate(begin);
            break;
        }
        bytes += more;
        ids.push(id);
        ends.push(text.len());
        if (row + 1).is_multiple_of(SLICE) {
            give_way();
        }
    }
    let end = from + ends.len();
    // What it has grown by beyond its length is not charged for.
    text.shrink_to_fit();
    let text = Bytes::from(text);
    let (mut begin, doc_type): (usize, Arc<str>) = (0, "_doc".into());
    let ops: Vec<WriteOp> = ids
        .into_iter()
        .zip(ends)
        .map(|(id, end)| {
            let document = text.slice(std::mem::replace(&mut begin, end)..end);
            WriteOp::of_type(Arc::clone(&doc_type), Arc::clone(index), id, Operation::Index(document))
        })
        .collect();
    Ok(ConvertedRows { ops, bytes, end })
}

type ChunkWriteResult = (usize, Result<Vec<Result<Arc<str>, Status>>, Status>);

/// Parts that are being written.
#[derive(Default)]
struct Writes {
    /// Session of the last write.
    session: Option<Session>,
    in_flight: VecDeque<JoinHandle<ChunkWriteResult>>,
    /// Bound on the parts that are in flight.
    most: usize,
    tally: Tally,
}

impl DocumentChunk {
    /// Takes the documents through their pipelines, and writes what these leave.
    async fn write(self) -> Result<Vec<Result<Arc<str>, Status>>, Status> {
        let Self { session, ops, pipelines, allowance, _held } = self;
        let pipelined = apply_pipelines(pipelines.as_ref(), &session, ops, &allowance).await;
        let PipelinedWrite { ops, failures } = pipelined.map_err(status::from_error)?;
        let failed = |error| status::noted(&session, error);
        let mut results: Vec<_> = failures.into_iter().map(|error| Err(status::from_error(error))).collect();
        if !ops.is_empty() {
            let written = session.write(ops, RefreshPolicy::None, TIMEOUT).await.map_err(failed)?;
            results.extend(written.into_iter().map(|done| done.map(|done| done.index).map_err(failed)));
        }
        Ok(results)
    }
}

impl Writes {
    /// Begins to write a part, which goes on whether somebody waits for it or not.
    fn begin(&mut self, part: DocumentChunk) {
        self.session = Some(part.session.clone());
        self.in_flight.push_back(tokio::spawn(async move {
            let count = part.ops.len();
            (count, part.write().await)
        }));
    }

    /// Waits until fewer than so many parts are under way.
    async fn settle(&mut self, most: usize) {
        while self.in_flight.len() >= most.max(1) {
            self.finish_one().await;
        }
    }

    async fn drain(&mut self) {
        while !self.in_flight.is_empty() {
            self.finish_one().await;
        }
    }

    /// Makes written rows durable, for any settings of its index, and visible to statements.
    async fn finish(&self) -> Result<(), Status> {
        let Some(session) = &self.session else { return Ok(()) };
        session.durable().await.map_err(status::from_error)?;
        // One that was deleted meanwhile has nothing to be seen.
        let indices: Vec<_> = self.tally.touched.iter().filter_map(|name| session.index(name).ok()).collect();
        if let Err(error) = session.refresh(&indices).await {
            // What was written is durable: an error now would have the client write it again.
            tracing::error!(%error, "what was ingested cannot be made visible yet");
        }
        Ok(())
    }

    async fn finish_one(&mut self) {
        let Some(oldest) = self.in_flight.pop_front() else { return };
        match oldest.await {
            Ok((_, Ok(results))) => results.into_iter().for_each(|result| self.tally.add(result)),
            Ok((count, Err(error))) => {
                self.tally.refused += count as u64;
                self.tally.tell(error);
            }
            Err(error) => self.tally.tell(status::internal(&error)),
        }
    }

    /// Reserves the bytes of a part, for which parts under way may have to end.
    async fn reserve(&mut self, sent: &PutMessages, bytes: u64) -> Result<UploadReservation, Status> {
        loop {
            match sent.received.try_reserve(bytes) {
                Ok(held) => return Ok(held),
                Err(_) if !self.in_flight.is_empty() => self.finish_one().await,
                Err(_) => return sent.received.reserve(bytes).await,
            }
        }
    }
}

impl Tally {
    fn add(&mut self, result: Result<Arc<str>, Status>) {
        match result {
            Ok(index) => {
                self.written += 1;
                self.touched.insert(index);
            }
            Err(error) => {
                self.refused += 1;
                self.tell(error);
            }
        }
    }

    /// Takes note of an error; that of a right comes first: the audit tells it.
    fn tell(&mut self, error: Status) {
        let better = error.code() == Code::PermissionDenied
            && self.first.as_ref().is_some_and(|first| first.code() != Code::PermissionDenied);
        if better {
            self.first = Some(error);
        } else {
            self.first.get_or_insert(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{ArrayRef, DictionaryArray, StringArray};
    use datafusion::arrow::datatypes::Int32Type;

    use super::*;

    fn rows(columns: Vec<(&str, ArrayRef)>) -> Rows {
        Rows::new(&RecordBatch::try_from_iter(columns).unwrap()).unwrap()
    }

    fn made(rows: &Rows, left: Range<usize>, most: u64) -> ConvertedRows {
        documents(rows, left, &"t".into(), most, || ()).unwrap()
    }

    /// Few bytes that stand for many.
    fn repeated(text: &str, rows: usize) -> ArrayRef {
        let values = Arc::new(StringArray::from(vec![text]));
        Arc::new(DictionaryArray::<Int32Type>::new(vec![0; rows].into(), values))
    }

    #[test]
    fn a_part_takes_no_more_than_it_may_or_is_one_document() {
        let rows = rows(vec![("t", repeated(&"x".repeat(1 << 20), 40))]);
        let (mut next, mut parts) = (0, 0);
        while next < 40 {
            let part = made(&rows, next..40, PART_HELD);
            assert!(part.bytes <= PART_HELD && part.ops.len() == part.end - next);
            let text: usize = part
                .ops
                .iter()
                .map(|op| match &op.action {
                    Operation::Index(source) => source.len(),
                    _ => 0,
                })
                .sum();
            assert!(part.bytes >= (text + part.ops.len() * OP_BYTES) as u64);
            (next, parts) = (part.end, parts + 1);
        }
        assert_eq!((next, parts), (40, 10));
        // Where it may take less than one document, that is told.
        let one = made(&rows, 3..40, 1_000);
        assert!(one.end == 4 && one.bytes > 1 << 20);
        let again = made(&rows, 3..40, one.bytes);
        assert_eq!((again.end, again.bytes), (4, one.bytes));
    }

    #[test]
    fn ids_are_no_longer_than_the_store_takes() {
        let id = |text: String| {
            let rows = rows(vec![("_id", repeated(&text, PART_ROWS))]);
            documents(&rows, 0..PART_ROWS, &"t".into(), PART_HELD, || ())
        };
        let part = id("\u{1}".repeat(512)).unwrap();
        assert_eq!(part.ops[0].id.as_deref().map(str::len), Some(512));
        assert!(part.bytes >= (part.ops.len() * 512) as u64 && part.bytes <= PART_HELD);
        for wrong in [String::new(), "x".repeat(513), "x".repeat(1 << 20), "\u{1}".repeat(513)] {
            let error = id(wrong).map(|made| made.end).unwrap_err();
            assert!(error.code() == Code::InvalidArgument && error.message().contains("512"), "{error}");
        }
        let plain = rows(vec![("_id", Arc::new(StringArray::from(vec![Some("a"), None])) as ArrayRef)]);
        let ids: Vec<_> = made(&plain, 0..2, PART_HELD).ops.into_iter().map(|op| op.id).collect();
        assert_eq!(ids, [Some("a".to_owned()), None]);
    }
}
