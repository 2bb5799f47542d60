//! Bodies that an input has read as a whole, decoded in chunks of events.
//!
//! A body may become many times its size: each of its bytes may be an event. So memory is reserved for a chunk before the decoder begins
//! with it. The decoder waits on its thread until the input has handed the chunk on and has memory for the next. The inputs
//! `http_poller`, `exec`, `s3` and `elasticsearch` decode this way.

use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};

use super::stream::delivery::send_list;
use super::{Context, reserve_piece};
use crate::Event;
use crate::budget::Reservation;
use crate::codec::{ChunkSink, Events};
use crate::offload;

/// Events that were decoded together, and the memory that they take.
#[derive(Debug)]
pub(super) struct DecodedChunk {
    pub(super) events: Vec<Event>,
    pub(super) held: Reservation,
}

/// A decoder at work on a body. Dropping it has the decoder end early.
pub(super) struct ChunkedDecoding<T> {
    context: Context,
    /// Tells the decoder that there is memory for another chunk.
    permits: mpsc::Sender<()>,
    chunks: mpsc::Receiver<SentChunk>,
    work: JoinHandle<T>,
    /// Memory of the first chunk.
    first: Option<Reservation>,
    source: BodySource,
    /// `true` once the last chunk has come.
    is_exhausted: bool,
}

/// Origin of a body, which says what becomes of it when the input is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodySource {
    /// It can be read again: the rest is left.
    Repeatable,
    /// It is nowhere else: all of it goes on to the end of the pipeline.
    Unrepeatable,
}

/// A chunk on its way from the decoder.
struct SentChunk {
    events: Vec<Event>,
    bytes: u64,
    is_last: bool,
}

impl<T: Send + 'static> ChunkedDecoding<T> {
    /// Waits for memory and begins to decode on another thread. `complete` gives each event what the input adds to it. `None` when the
    /// input is to stop.
    pub(super) async fn start(
        context: &Context,
        source: BodySource,
        mut complete: impl FnMut(&mut Event) + Send + 'static,
        decode: impl FnOnce(&mut Events) -> T + Send + 'static,
    ) -> Option<Self> {
        let first = Some(reserve(context, source).await?);
        let (most, most_of_one) = (context.budget.piece(), context.budget.most());
        let (permits, mut permitted) = mpsc::channel::<()>(1);
        let (sender, chunks) = mpsc::channel(1);
        let work = spawn_blocking(move || {
            let each = added_bytes(&mut complete);
            let sink = ChunkSink::new(move |mut events: Vec<Event>, is_last| {
                events.iter_mut().for_each(&mut complete);
                let bytes = events.iter().map(Event::bytes).sum();
                let is_sent = sender.blocking_send(SentChunk { events, bytes, is_last }).is_ok();
                is_sent && (is_last || permitted.blocking_recv().is_some())
            });
            let mut events = Events::in_chunks((most, most_of_one), each, sink);
            let outcome = decode(&mut events);
            events.end_chunks();
            outcome
        });
        Some(Self { context: context.clone(), permits, chunks, work, first, source, is_exhausted: false })
    }

    /// Waits for memory, and for the next chunk that takes it. `None` behind the last one, or when the input is to stop.
    pub(super) async fn next(&mut self) -> Option<DecodedChunk> {
        if self.is_exhausted {
            return None;
        }
        let mut held = match self.first.take() {
            Some(first) => first,
            None => {
                let held = reserve(&self.context, self.source).await?;
                // A decoder that panicked takes none; its outcome says so.
                self.permits.send(()).await.ok()?;
                held
            }
        };
        let SentChunk { events, bytes, is_last } = self.chunks.recv().await?;
        self.is_exhausted = is_last;
        held.set(bytes);
        (!events.is_empty()).then_some(DecodedChunk { events, held })
    }

    /// Waits for the end of the decoder, and returns its outcome; `None` where it was ended early. A panic of the decoder goes on here.
    pub(super) async fn finish(self) -> Option<T> {
        let Self { permits, chunks, work, is_exhausted, .. } = self;
        drop((permits, chunks));
        let outcome = offload::outcome(work).await;
        is_exhausted.then_some(outcome)
    }

    /// Hands all events to the pipeline; returns the decoder's outcome, or `None` where the input is to stop or the pipeline is gone.
    pub(super) async fn send(mut self) -> Option<T> {
        while let Some(DecodedChunk { events, held }) = self.next().await {
            if !send_list(events, held, &self.context).await {
                return None;
            }
        }
        self.finish().await
    }
}

/// Waits for memory. When the input is to stop, there is none for a body that can be read again.
async fn reserve(context: &Context, source: BodySource) -> Option<Reservation> {
    match reserve_piece(context).await {
        None if source == BodySource::Unrepeatable => Some(context.budget.empty()),
        held => held,
    }
}

/// Returns the bytes that are added to each event.
fn added_bytes(complete: &mut impl FnMut(&mut Event)) -> u64 {
    let mut event = Event::new(chrono::DateTime::UNIX_EPOCH);
    let before = event.bytes();
    complete(&mut event);
    event.bytes().saturating_sub(before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::codec;
    use crate::input::testing::{Pipeline, options};

    /// Decodes a body; returns the number of events of each batch, and the most memory that was in use.
    async fn decode(codec: &str, body: String, budget: &Budget) -> (Vec<usize>, u64) {
        let mut pipeline = Pipeline::new(2);
        pipeline.budget = budget.clone();
        let context = Context { batch_size: crate::input::BatchSize::new(1_000), ..pipeline.context() };
        let codec = codec::build(options(codec, &[])).unwrap();
        let decoding = ChunkedDecoding::start(
            &context,
            BodySource::Repeatable,
            |event| event.set_text("added", "a text that each event gets"),
            move |events| {
                let mut decoder = codec.decoder();
                decoder.decode(body.as_bytes(), events);
                decoder.finish(events);
                "through"
            },
        )
        .await
        .unwrap();
        let (mut batches, mut most) = (Vec::new(), 0);
        let take = async {
            while let Some(batch) = pipeline.next().await {
                most = most.max(budget.used());
                assert!(batch.events.iter().all(|event| event.fields()["added"].is_string()));
                batches.push(batch.events.len());
                pipeline.store(batch).unwrap();
            }
        };
        drop(context);
        let (outcome, ()) = tokio::join!(decoding.send(), take);
        assert_eq!(outcome, Some("through"));
        assert_eq!(budget.used(), 0);
        (batches, most)
    }

    #[tokio::test]
    async fn a_body_of_many_events_takes_no_more_memory_than_is_reserved() {
        // A chunk has 128 KiB, the channel and the chunk before it as many.
        let budget = Budget::new(4 << 20);
        for (codec, body) in [
            ("line", "\n".repeat(20_000)),
            ("json", format!("[{}{{}}]", "{},".repeat(19_999))),
            ("json_lines", format!("[{}{{}}]\n", "{},".repeat(19_999))),
        ] {
            let (batches, most) = decode(codec, body, &budget).await;
            assert_eq!(batches.iter().sum::<usize>(), 20_000, "{codec}");
            assert!(most <= 8 * (128 << 10), "{codec}: {most}");
        }
        let (batches, _) = decode("json", String::new(), &budget).await;
        assert!(batches.is_empty());
    }

    #[tokio::test]
    async fn a_body_that_is_nowhere_else_goes_on_when_its_input_is_to_stop() {
        for (source, is_whole) in [(BodySource::Repeatable, false), (BodySource::Unrepeatable, true)] {
            let mut pipeline = Pipeline::new(1);
            pipeline.budget = Budget::new(1 << 20);
            let context = pipeline.context();
            let decode = |events: &mut Events| {
                let codec = codec::build(options("line", &[])).unwrap();
                codec.decoder().decode("a\n".repeat(5_000).as_bytes(), events);
            };
            let decoding = ChunkedDecoding::start(&context, source, |_| {}, decode).await.unwrap();
            let stopped = async {
                pipeline.take().await.unwrap().unwrap();
                pipeline.stop.send_replace(true);
                while pipeline.take().await.is_some() {}
            };
            drop(context);
            let (outcome, ()) = tokio::join!(decoding.send(), stopped);
            assert_eq!((outcome.is_some(), pipeline.events.len() == 5_000), (is_whole, is_whole));
        }
    }

    #[tokio::test]
    async fn a_value_that_is_too_large_is_an_event_with_its_text() {
        let mut pipeline = Pipeline::new(8);
        pipeline.budget = Budget::new(1 << 20);
        let context = pipeline.context();
        // Its values take more than the pipeline may have. An object that ends with a repeated name is no scanned one.
        let large = format!("{{\"a\":[{}1],\"b\":1,\"b\":2}}", "1,".repeat(10_000));
        let body = format!("{{\"n\":1}} {large} {{\"n\":2}}");
        let codec = codec::build(options("json", &[])).unwrap();
        let decode = move |events: &mut Events| codec.decoder().decode(body.as_bytes(), events);
        let decoding =
            ChunkedDecoding::start(&context, BodySource::Repeatable, |_| {}, decode).await.unwrap();
        drop(context);
        let take = async { while pipeline.take().await.is_some() {} };
        let (outcome, ()) = tokio::join!(decoding.send(), take);
        assert!(outcome.is_some());
        let [first, too_large, last] = &pipeline.events[..] else { panic!("{}", pipeline.events.len()) };
        assert_eq!((&first.fields()["n"], &last.fields()["n"]), (&1.into(), &2.into()));
        assert_eq!(too_large.fields()["message"], large);
        assert_eq!(too_large.fields()["tags"], serde_json::json!(["_toomanyevents"]));
    }
}
