//! Reads one stream: bytes in chunks, events in batches.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use millrace_listen::StreamConnection;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Sleep;

use super::delivery::send_batch;
use super::{Origin, StreamProtocol};
use crate::Event;
use crate::budget::Reservation;
use crate::codec::{Decoder, DecoderPlaceholder, Events};
use crate::input::{Context, reserve_piece, stopped};
use crate::offload::offload;

/// Bytes that are decoded at once. Each of them may become an event.
const CHUNK: usize = 16 << 10;
/// Most bytes that are read at once. A read asks for twice the bytes that the one before it gave.
const MAX_READ: usize = 8 * CHUNK;
/// Pause of a stream after which events are handed on though more would fit into the batch.
const LINGER: Duration = Duration::from_millis(5);
/// Longest time that the first event of a batch waits for more, where a sender never pauses.
const MAX_LINGER: Duration = Duration::from_millis(100);
/// Most events of the next batch for which there is room before they come.
const MAX_CAPACITY: usize = 8_192;
/// Most bytes of unfinished lines over all connections of an input; beyond it, the connection whose line grows is closed.
const MAX_UNFINISHED: u64 = 64 << 20;

/// Most bytes of the events of one chunk, a single event apart; beyond it, the connection is closed.
const MAX_DECODED: u64 = 256 << 20;

/// Bytes of unfinished lines of an input; clones share them.
#[derive(Clone, Debug, Default)]
pub(in crate::input) struct UnfinishedTotal(Arc<AtomicU64>);

/// The part of one stream, given back on drop.
#[derive(Debug)]
struct UnfinishedBytes {
    total: UnfinishedTotal,
    own: u64,
}

impl UnfinishedBytes {
    /// Sets the part of the stream; returns whether all of them stay within the bound.
    fn set(&mut self, own: u64) -> bool {
        let total = &self.total.0;
        let before = total.fetch_add(own, Ordering::Relaxed);
        total.fetch_sub(self.own, Ordering::Relaxed);
        let all = (before + own).saturating_sub(self.own);
        self.own = own;
        own == 0 || all <= MAX_UNFINISHED
    }
}

impl Drop for UnfinishedBytes {
    fn drop(&mut self) {
        self.total.0.fetch_sub(self.own, Ordering::Relaxed);
    }
}

/// Reads one stream.
pub(in crate::input) struct StreamReader {
    protocol: Arc<dyn StreamProtocol>,
    origin: Arc<Origin>,
    context: Context,
    decoder: Box<dyn Decoder>,
    events: Events,
    held: Reservation,
    unfinished: UnfinishedBytes,
    /// Most bytes of the events of one chunk.
    max_decoded: u64,
}

/// Outcome of a decoder's work.
struct DecodedChunks {
    /// Bytes that are still to be decoded.
    rest: Bytes,
    /// Bytes of unfinished lines.
    unfinished: u64,
    /// `true` if all events are there.
    has_all: bool,
}

/// Next step of a stream.
enum Step {
    Read(std::io::Result<usize>),
    Pause,
    End,
}

impl StreamReader {
    /// Makes the reader of a stream.
    pub(in crate::input) fn new(
        protocol: Arc<dyn StreamProtocol>,
        origin: Arc<Origin>,
        context: Context,
        unfinished: &UnfinishedTotal,
    ) -> Self {
        let decoder = protocol.decoder(&origin);
        let unfinished = UnfinishedBytes { total: unfinished.clone(), own: 0 };
        let mut events = Events::default();
        events.set_additions(protocol.additions(&origin));
        Self {
            protocol,
            origin,
            context,
            decoder,
            events,
            held: Reservation::default(),
            unfinished,
            max_decoded: MAX_DECODED,
        }
    }

    /// Reads to the end of the stream, or until the input is to stop or the connection to make room. `first` are bytes that
    /// were read before.
    pub(in crate::input) async fn run<R: AsyncRead + Unpin>(
        mut self,
        stream: &mut R,
        first: BytesMut,
        connection: Option<&StreamConnection>,
    ) {
        let mut stopping = self.context.stopping.clone();
        let mut buffer = first;
        let mut wanted = CHUNK;
        let mut is_open = buffer.is_empty() || self.decode(buffer.split().freeze()).await;
        let mut deadline: Option<Pin<Box<Sleep>>> = None;
        while is_open {
            // More than a chunk is part of the memory that is reserved for its events.
            let is_reserved = self.held.bytes() >= self.context.budget.piece();
            let size = if is_reserved { wanted } else { CHUNK };
            buffer.reserve(size);
            let pause = if self.events.is_empty() {
                self.protocol.flush_after().filter(|_| self.decoder.holds())
            } else {
                Some(LINGER)
            };
            let paused = async {
                match pause {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => pending().await,
                }
            };
            if self.events.is_empty() {
                deadline = None;
            } else if deadline.is_none() {
                deadline = Some(Box::pin(tokio::time::sleep(MAX_LINGER)));
            }
            let overdue = async {
                match &mut deadline {
                    Some(deadline) => deadline.as_mut().await,
                    None => pending().await,
                }
            };
            let closing = async {
                match connection {
                    Some(connection) => connection.closing().await,
                    None => pending().await,
                }
            };
            let mut limited = (&mut *stream).take(size as u64);
            let step = tokio::select! {
                biased;
                () = stopped(&mut stopping) => Step::End,
                () = closing => Step::End,
                () = overdue => Step::Pause,
                read = limited.read_buf(&mut buffer) => Step::Read(read),
                () = paused => Step::Pause,
            };
            let _work = connection.map(StreamConnection::begin_work);
            is_open = match step {
                Step::End | Step::Read(Ok(0)) => break,
                Step::Read(Ok(read)) => {
                    wanted = (2 * read).clamp(CHUNK, MAX_READ);
                    self.decode(buffer.split().freeze()).await
                }
                Step::Read(Err(error)) => {
                    tracing::debug!(client = %self.origin.client, %error, "a stream ended");
                    break;
                }
                Step::Pause => self.pause().await,
            };
        }
        self.finish(true).await;
        self.hand_on().await;
    }

    /// Decodes bytes; returns whether the stream may go on.
    async fn decode(&mut self, mut bytes: Bytes) -> bool {
        while !bytes.is_empty() {
            match self.decode_piece(bytes).await {
                Some(rest) => bytes = rest,
                None => return false,
            }
        }
        true
    }

    /// Decodes bytes until they are a batch or take as much memory as is reserved; returns the rest, or `None` where the stream has to end.
    async fn decode_piece(&mut self, bytes: Bytes) -> Option<Bytes> {
        if self.events.is_empty() {
            // A connection that waits for memory holds none.
            self.held = Reservation::default();
            self.held = match reserve_piece(&self.context).await {
                Some(reservation) => reservation,
                // What was read goes on to the end of the pipeline.
                None => self.context.budget.empty(),
            };
        }
        let (batch, piece) = (self.context.batch_size.get(), self.context.budget.piece());
        let mut unfinished = self.unfinished.own;
        let max_decoded = self.max_decoded;
        let call = move |decoder: &mut dyn Decoder, events: &mut Events| {
            let mut rest = bytes;
            let mut has_all = true;
            while has_all && !rest.is_empty() && events.len() < batch && events.bytes() < piece {
                let chunk = rest.split_to(rest.len().min(CHUNK));
                let before = events.len();
                events.begin_piece(max_decoded);
                decoder.decode(&chunk, events);
                has_all = events.end_piece();
                let length = chunk.len() as u64;
                unfinished = match decoder.holds() {
                    false => 0,
                    // After events, only bytes of the last call are kept.
                    true if events.len() > before => length,
                    true => unfinished + length,
                };
            }
            DecodedChunks { rest, unfinished, has_all }
        };
        let DecodedChunks { rest, unfinished, has_all } = self.call_decoder(call).await;
        self.warn_unless(has_all);
        let within = self.unfinished.set(unfinished);
        if !within {
            tracing::warn!(
                client = %self.origin.client,
                bytes = unfinished,
                "a connection is closed: unfinished lines take more than [{MAX_UNFINISHED}] bytes"
            );
        }
        let is_full = self.events.len() >= batch || self.events.bytes() >= piece;
        if self.events.is_empty() {
            self.held = Reservation::default();
        }
        let goes_on = has_all && within && (!is_full || self.hand_on_full().await);
        goes_on.then_some(rest)
    }

    /// Handles a pause of the stream; returns whether the stream may go on.
    async fn pause(&mut self) -> bool {
        let mut has_all = true;
        if self.events.is_empty() {
            has_all = self.finish(false).await;
            self.unfinished.set(0);
        }
        has_all && self.hand_on().await
    }

    /// Calls the decoder on a thread for long work: a pattern of `multiline` may take its second.
    async fn call_decoder<T: Send + 'static>(
        &mut self,
        call: impl FnOnce(&mut dyn Decoder, &mut Events) -> T + Send + 'static,
    ) -> T {
        let (mut decoder, mut events) = (self.take_decoder(), std::mem::take(&mut self.events));
        let outcome;
        (self.decoder, self.events, outcome) = offload(move || {
            let outcome = call(&mut *decoder, &mut events);
            (decoder, events, outcome)
        })
        .await;
        outcome
    }

    /// Tells that events were dropped, unless all are there.
    fn warn_unless(&self, has_all: bool) {
        if !has_all {
            let max_decoded = self.max_decoded;
            tracing::warn!(
                client = %self.origin.client,
                "a connection is closed: the events of a line take more than [{max_decoded}] bytes and are dropped"
            );
        }
    }

    /// Has the decoder finish what it holds, at the end of the stream or at a pause; returns whether all of its events are there.
    async fn finish(&mut self, is_end: bool) -> bool {
        let max_decoded = self.max_decoded;
        let call = move |decoder: &mut dyn Decoder, events: &mut Events| {
            events.begin_piece(max_decoded);
            if is_end {
                decoder.finish(events);
            } else {
                decoder.pause(events);
            }
            events.end_piece()
        };
        let has_all = self.call_decoder(call).await;
        self.warn_unless(has_all);
        if self.held.bytes() == 0 {
            // These bytes are in memory already.
            self.held = self.context.budget.overdraw(self.events.bytes());
        }
        has_all
    }

    /// Hands on whole batches. The rest stays for the next batch, if there is memory to read more beside it.
    async fn hand_on_full(&mut self) -> bool {
        let (batch, piece) = (self.context.batch_size.get(), self.context.budget.piece());
        if !self.hand_on_batches(batch).await {
            return false;
        }
        if self.events.is_empty() {
            // Nothing waits for more, so that the memory would stay with a connection that is idle.
            self.held = Reservation::default();
            return true;
        }
        let is_full = self.events.bytes() >= piece;
        if is_full || self.held.grow(piece.saturating_sub(self.held.bytes())).is_err() {
            return self.hand_on().await;
        }
        true
    }

    async fn hand_on(&mut self) -> bool {
        let handed_on = self.hand_on_batches(1).await;
        self.held = Reservation::default();
        handed_on
    }

    /// Hands on batches of at least so many events. Each takes the memory of its events with it.
    async fn hand_on_batches(&mut self, least: usize) -> bool {
        let size = self.context.batch_size.get().max(1);
        let bytes = self.events.bytes();
        self.held.set(bytes);
        let mut events = self.events.take_list();
        let rest = events.split_off(events.len() - events.len() % size);
        let rest_bytes = bytes_of(&rest);
        let batches = into_batches(events, size);
        // Most often it is one, whose events are counted already.
        let counted = (batches.len() == 1).then(|| bytes.saturating_sub(rest_bytes));
        for batch in batches {
            let bytes = counted.unwrap_or_else(|| bytes_of(&batch));
            if !self.hand_on_batch(batch, bytes).await {
                return false;
            }
        }
        if rest.len() >= least {
            return self.hand_on_batch(rest, rest_bytes).await;
        }
        // A sender of whole batches sends another one. A rest is handed on after a pause, with its room.
        let goes_on = counted.is_some() && !rest.is_empty();
        let capacity = if goes_on { size.min(MAX_CAPACITY) } else { 0 };
        self.events.put_back(rest, rest_bytes, capacity);
        true
    }

    async fn hand_on_batch(&mut self, mut events: Vec<Event>, bytes: u64) -> bool {
        if events.len() < events.capacity() / 2 {
            events.shrink_to_fit();
        }
        let held = self.held.split(bytes);
        send_batch(events, held, &self.context).await
    }

    fn take_decoder(&mut self) -> Box<dyn Decoder> {
        std::mem::replace(&mut self.decoder, Box::new(DecoderPlaceholder))
    }
}

fn bytes_of(events: &[Event]) -> u64 {
    events.iter().map(Event::bytes).sum()
}

/// Cuts a number of events that is a multiple of a size into batches.
fn into_batches(events: Vec<Event>, size: usize) -> Vec<Vec<Event>> {
    if events.len() <= size {
        return if events.is_empty() { Vec::new() } else { vec![events] };
    }
    let count = events.len() / size;
    let mut events = events.into_iter();
    (0..count).map(|_| events.by_ref().take(size).collect()).collect()
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::budget::Budget;
    use crate::codec::{self, Codec};
    use crate::event::Additions;
    use crate::input::BatchSize;
    use crate::input::testing::{Pipeline, options};

    /// Lines of JSON.
    #[derive(Debug)]
    struct JsonLines(Arc<dyn Codec>);

    impl StreamProtocol for JsonLines {
        fn decoder(&self, _origin: &Origin) -> Box<dyn Decoder> {
            self.0.decoder()
        }

        fn additions(&self, _origin: &Origin) -> Additions {
            Additions::default().member("host", "a host whose name is long")
        }
    }

    #[tokio::test]
    async fn a_line_of_too_many_events_closes_its_connection() {
        let protocol = Arc::new(JsonLines(codec::build(options("json_lines", &[])).unwrap()));
        let origin = Arc::new(Origin::new(([127, 0, 0, 1], 1).into()));
        let too_many = format!("[{}{{}}]", "{},".repeat(1_000));
        for (text, read) in [
            ("{\"n\":1}\n{\"n\":2}\n".to_owned(), 2),
            (format!("{too_many}\n"), 0),
            // The end of the stream ends the line.
            (too_many, 0),
        ] {
            let mut pipeline = Pipeline::new(4);
            let context = pipeline.context();
            let mut reader = StreamReader::new(
                Arc::clone(&protocol) as _,
                Arc::clone(&origin),
                context,
                &UnfinishedTotal::default(),
            );
            reader.max_decoded = 10_000;
            let mut stream = text.as_bytes();
            let run = reader.run(&mut stream, BytesMut::new(), None);
            let ((), ()) = tokio::join!(run, async { while pipeline.take().await.is_some() {} });
            assert_eq!(pipeline.events.len(), read);
        }
    }

    #[tokio::test]
    async fn batches_are_whole_and_the_rest_waits_for_the_next() {
        let protocol = Arc::new(JsonLines(codec::build(options("json_lines", &[])).unwrap()));
        let origin = Arc::new(Origin::new(([127, 0, 0, 1], 1).into()));
        let lines = 10_000;
        let text: String = (0..lines).map(|n| format!("{{\"n\":{n}}}\n")).collect();
        // The memory of a pipeline is enough to read on beside a rest, or it is not.
        for (budget, sizes) in
            [(Budget::default(), Some(vec![4_000, 4_000, 2_000])), (Budget::new(4 << 20), None)]
        {
            let mut pipeline = Pipeline::new(1);
            pipeline.budget = budget.clone();
            let context = Context { batch_size: BatchSize::new(4_000), ..pipeline.context() };
            let unfinished = UnfinishedTotal::default();
            let reader =
                StreamReader::new(Arc::clone(&protocol) as _, Arc::clone(&origin), context, &unfinished);
            let mut stream = text.as_bytes();
            let (mut taken, mut most) = (Vec::new(), 0);
            let take = async {
                while let Some(batch) = pipeline.next().await {
                    taken.push(batch.events.len());
                    most = most.max(budget.used());
                    let bytes: u64 = batch.events.iter().map(Event::bytes).sum();
                    assert!(batch.held.bytes() >= bytes, "a batch has the memory of its events");
                    pipeline.store(batch).unwrap();
                }
            };
            tokio::join!(reader.run(&mut stream, BytesMut::new(), None), take);
            assert!(sizes.is_none_or(|sizes| taken == sizes), "{taken:?}");
            assert_eq!(taken.iter().sum::<usize>(), lines);
            assert!(pipeline.events.iter().enumerate().all(|(n, event)| event.fields()["n"] == n));
            assert!(most <= 64 << 20, "{most}");
            assert_eq!(budget.used(), 0);
        }
    }

    #[tokio::test]
    async fn connections_that_are_idle_hold_no_memory() {
        let protocol = Arc::new(JsonLines(codec::build(options("json_lines", &[])).unwrap()));
        let origin = Arc::new(Origin::new(([127, 0, 0, 1], 1).into()));
        let budget = Budget::new(2 << 20);
        let mut pipeline = Pipeline::new(4);
        pipeline.budget = budget.clone();
        let context = Context { batch_size: BatchSize::new(1), ..pipeline.context() };
        let unfinished = UnfinishedTotal::default();
        let (mut clients, mut readers) = (Vec::new(), Vec::new());
        // More than have a piece of what the pipeline may take.
        for _ in 0..20 {
            let (client, mut server) = tokio::io::duplex(1 << 10);
            let protocol = Arc::clone(&protocol) as Arc<dyn StreamProtocol>;
            let reader = StreamReader::new(protocol, Arc::clone(&origin), context.clone(), &unfinished);
            readers.push(tokio::spawn(async move { reader.run(&mut server, BytesMut::new(), None).await }));
            clients.push(client);
        }
        let exchange = async {
            for round in 1..=2 {
                for client in &mut clients {
                    client.write_all(b"{\"n\":1}\n").await.unwrap();
                }
                while pipeline.events.len() < 20 * round {
                    pipeline.take().await.unwrap().unwrap();
                }
            }
            drop(clients);
            for reader in readers {
                reader.await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(30), exchange)
            .await
            .expect("no connection waits for another");
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn events_of_a_sender_that_never_pauses_are_handed_on() {
        let protocol = Arc::new(JsonLines(codec::build(options("json_lines", &[])).unwrap()));
        let origin = Arc::new(Origin::new(([127, 0, 0, 1], 1).into()));
        let mut pipeline = Pipeline::new(4);
        let context = Context { batch_size: BatchSize::new(4_000), ..pipeline.context() };
        let reader = StreamReader::new(protocol, origin, context, &UnfinishedTotal::default());
        let lines = 500;
        let (mut client, mut server) = tokio::io::duplex(64 << 10);
        let send = async move {
            for n in 0..lines {
                client.write_all(format!("{{\"n\":{n}}}\n").as_bytes()).await.unwrap();
                tokio::time::sleep(LINGER - Duration::from_millis(1)).await;
            }
        };
        let mut taken = Vec::new();
        let take = async {
            while let Some(batch) = pipeline.next().await {
                taken.push(batch.events.len());
                pipeline.store(batch).unwrap();
            }
        };
        tokio::join!(send, reader.run(&mut server, BytesMut::new(), None), take);
        assert_eq!(taken.iter().sum::<usize>(), lines);
        assert!(taken.iter().all(|events| *events < lines), "{taken:?}");
    }

    #[test]
    fn unfinished_lines_are_bounded_over_all_streams() {
        let total = UnfinishedTotal::default();
        let new = || UnfinishedBytes { total: total.clone(), own: 0 };
        let (mut one, mut other) = (new(), new());
        assert!(one.set(MAX_UNFINISHED - 1));
        assert!(other.set(1));
        assert!(!other.set(2));
        assert!(other.set(0));
        drop(one);
        assert!(other.set(MAX_UNFINISHED));
        drop(other);
        assert_eq!(total.0.load(Ordering::Relaxed), 0);
    }
}
