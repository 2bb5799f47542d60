//! Reads one stream: bytes in chunks, events in batches.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use millrace_listen::StreamConnection;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::delivery::send;
use super::{Origin, StreamProtocol};
use crate::budget::Reservation;
use crate::codec::{Decoder, DecoderPlaceholder, Events};
use crate::input::{Context, reserve_piece, stopped};
use crate::offload::offload;

/// Bytes that are read at once. Each of them may become an event.
const CHUNK: usize = 16 << 10;
/// Pause of a stream after which events are handed on though more would fit into the batch.
const LINGER: Duration = Duration::from_millis(5);
/// Most bytes of unfinished lines over all connections of an input; beyond it, the connection whose line grows is closed.
const MAX_UNFINISHED: u64 = 64 << 20;

/// Most bytes of the events of one read, a single event apart; beyond it, the connection is closed.
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
    /// Most bytes of the events of one read.
    max_decoded: u64,
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
        let decoder = protocol.decoder();
        let unfinished = UnfinishedBytes { total: unfinished.clone(), own: 0 };
        Self {
            protocol,
            origin,
            context,
            decoder,
            events: Events::default(),
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
        let mut is_open = buffer.is_empty() || self.decode(&mut buffer).await;
        while is_open {
            buffer.reserve(CHUNK);
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
            let closing = async {
                match connection {
                    Some(connection) => connection.closing().await,
                    None => pending().await,
                }
            };
            let mut limited = (&mut *stream).take(CHUNK as u64);
            let step = tokio::select! {
                biased;
                () = stopped(&mut stopping) => Step::End,
                () = closing => Step::End,
                read = limited.read_buf(&mut buffer) => Step::Read(read),
                () = paused => Step::Pause,
            };
            let _work = connection.map(StreamConnection::begin_work);
            is_open = match step {
                Step::End | Step::Read(Ok(0)) => break,
                Step::Read(Ok(_)) => self.decode(&mut buffer).await,
                Step::Read(Err(error)) => {
                    tracing::debug!(client = %self.origin.client, %error, "a stream ended");
                    break;
                }
                Step::Pause => self.pause().await,
            };
        }
        self.finish().await;
        self.hand_on().await;
    }

    /// Decodes the bytes of a buffer; returns whether the stream may go on.
    async fn decode(&mut self, buffer: &mut BytesMut) -> bool {
        let bytes = buffer.split().freeze();
        if self.events.is_empty() {
            self.held = match reserve_piece(&self.context).await {
                Some(reservation) => reservation,
                // What was read goes on to the end of the pipeline.
                None => self.context.budget.empty(),
            };
        }
        let before = self.events.len();
        let length = bytes.len() as u64;
        let has_all = self.call_decoder(move |decoder, events| decoder.decode(&bytes, events)).await;
        let unfinished = match self.decoder.holds() {
            false => 0,
            // After events, only bytes of the last call are kept.
            true if self.events.len() > before => length,
            true => self.unfinished.own + length,
        };
        let within = self.unfinished.set(unfinished);
        if !within {
            tracing::warn!(
                client = %self.origin.client,
                bytes = unfinished,
                "a connection is closed: unfinished lines take more than [{MAX_UNFINISHED}] bytes"
            );
        }
        let is_full = self.events.len() >= self.context.batch_size.get()
            || self.events.bytes() >= self.context.budget.piece();
        if self.events.is_empty() {
            self.held = Reservation::default();
        }
        has_all && within && (!is_full || self.hand_on().await)
    }

    /// Handles a pause of the stream; returns whether the stream may go on.
    async fn pause(&mut self) -> bool {
        let mut has_all = true;
        if self.events.is_empty() {
            has_all = self.finish().await;
            self.unfinished.set(0);
        }
        has_all && self.hand_on().await
    }

    /// Calls the decoder on a thread for long work: a pattern of `multiline` may take its second. Returns whether all events are
    /// there; those of a call that makes too many are dropped.
    async fn call_decoder(
        &mut self,
        call: impl FnOnce(&mut dyn Decoder, &mut Events) + Send + 'static,
    ) -> bool {
        let before = self.events.len();
        let (mut decoder, mut events) = (self.take_decoder(), std::mem::take(&mut self.events));
        let (protocol, origin) = (Arc::clone(&self.protocol), Arc::clone(&self.origin));
        let max_decoded = self.max_decoded;
        let has_all;
        (self.decoder, self.events, has_all) = offload(move || {
            events.begin_piece(max_decoded);
            call(&mut *decoder, &mut events);
            let has_all = events.end_piece();
            events.iter_mut().skip(before).for_each(|event| protocol.complete(event, &origin));
            (decoder, events, has_all)
        })
        .await;
        if !has_all {
            tracing::warn!(
                client = %self.origin.client,
                "a connection is closed: the events of a line take more than [{max_decoded}] bytes and are dropped"
            );
        }
        has_all
    }

    /// Has the decoder finish what it holds; returns whether all of its events are there.
    async fn finish(&mut self) -> bool {
        let has_all = self.call_decoder(|decoder, events| decoder.finish(events)).await;
        if self.held.bytes() == 0 {
            // These bytes are in memory already.
            self.held = self.context.budget.overdraw(self.events.bytes());
        }
        has_all
    }

    async fn hand_on(&mut self) -> bool {
        let (events, held) = (std::mem::take(&mut self.events), std::mem::take(&mut self.held));
        send(events, held, &self.context).await
    }

    fn take_decoder(&mut self) -> Box<dyn Decoder> {
        std::mem::replace(&mut self.decoder, Box::new(DecoderPlaceholder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Event;
    use crate::codec::{self, Codec};
    use crate::input::testing::{Pipeline, options};

    /// Lines of JSON.
    #[derive(Debug)]
    struct JsonLines(Arc<dyn Codec>);

    impl StreamProtocol for JsonLines {
        fn decoder(&self) -> Box<dyn Decoder> {
            self.0.decoder()
        }

        fn complete(&self, _event: &mut Event, _origin: &Origin) {}
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
