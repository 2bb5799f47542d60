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
    is_through: bool,
}

/// A chunk on its way from the decoder.
struct SentChunk {
    events: Vec<Event>,
    bytes: u64,
    is_last: bool,
}

impl<T: Send + 'static> ChunkedDecoding<T> {
    /// Begins to decode on another thread. `complete` gives each event what the input adds to it.
    pub(super) fn start(
        context: &Context,
        mut complete: impl FnMut(&mut Event) + Send + 'static,
        decode: impl FnOnce(&mut Events) -> T + Send + 'static,
    ) -> Self {
        let most = context.budget.piece();
        let (permits, mut permitted) = mpsc::channel::<()>(1);
        let (sender, chunks) = mpsc::channel(1);
        let work = spawn_blocking(move || {
            let each = added_bytes(&mut complete);
            let is_wanted = permitted.blocking_recv().is_some();
            let sink = ChunkSink::new(move |mut events: Vec<Event>, is_last| {
                events.iter_mut().for_each(&mut complete);
                let bytes = events.iter().map(Event::bytes).sum();
                let is_sent = sender.blocking_send(SentChunk { events, bytes, is_last }).is_ok();
                is_sent && (is_last || permitted.blocking_recv().is_some())
            });
            let mut events = Events::in_chunks(most, each, sink);
            if !is_wanted {
                events.close();
            }
            let outcome = decode(&mut events);
            events.end_chunks();
            outcome
        });
        Self { context: context.clone(), permits, chunks, work, is_through: false }
    }

    /// Waits for memory, and for the next chunk that takes it. `None` behind the last one, or when the input is to stop.
    pub(super) async fn next(&mut self) -> Option<DecodedChunk> {
        if self.is_through {
            return None;
        }
        let mut held = reserve_piece(&self.context).await?;
        // A decoder that panicked takes none; its outcome says so.
        self.permits.send(()).await.ok()?;
        let SentChunk { events, bytes, is_last } = self.chunks.recv().await?;
        self.is_through = is_last;
        held.set(bytes);
        (!events.is_empty()).then_some(DecodedChunk { events, held })
    }

    /// Waits for the end of the decoder, and returns its outcome; `None` where it was ended early. A panic of the decoder goes on here.
    pub(super) async fn finish(self) -> Option<T> {
        let Self { permits, chunks, work, is_through, .. } = self;
        drop((permits, chunks));
        let outcome = offload::outcome(work).await;
        is_through.then_some(outcome)
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
            |event| event.set_text("added", "a text that each event gets"),
            move |events| {
                let mut decoder = codec.decoder();
                decoder.decode(body.as_bytes(), events);
                decoder.finish(events);
                "through"
            },
        );
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
    async fn a_decoder_ends_with_its_input() {
        let mut pipeline = Pipeline::new(1);
        pipeline.budget = Budget::new(1 << 20);
        let context = pipeline.context();
        let decoding = ChunkedDecoding::start(
            &context,
            |_| {},
            |events| {
                let codec = codec::build(options("line", &[])).unwrap();
                while !events.is_full() {
                    codec.decoder().decode(b"a\nb\n", events);
                }
            },
        );
        let stopped = async {
            pipeline.next().await.unwrap();
            pipeline.stop.send_replace(true);
            while pipeline.next().await.is_some() {}
        };
        drop(context);
        let (outcome, ()) = tokio::join!(decoding.send(), stopped);
        assert_eq!(outcome, None);
    }
}
