//! One connection: frames are read, events handed on, and answered once they are stored.

use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use millrace_listen::{ByteStream, StreamConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::frames::{Frame, acknowledgement, frame_length, invalid, read_frame};
use super::window::WindowReader;
use crate::batch::NotStored;
use crate::budget::{Reservation, ShareExceeded};
use crate::codec::Events;
use crate::event::Additions;
use crate::input::Context;
use crate::offload::offload;
use crate::{Ack, Batch};

/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;
/// Bytes of a frame that are read without a reservation.
const FREE: usize = 2 * CHUNK;
/// Bytes of a reservation that a frame asks for at a time.
const STEP: u64 = 512 << 10;
/// Longest compressed frames.
const MAX_COMPRESSED: usize = 64 << 20;
/// Interval at which a sender that waits for its answer learns that its events are still on their way.
const KEEP_ALIVE: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 5_000 });
/// Bytes that the input adds to each event behind a codec.
const ADDED: u64 = 256;
/// Texts from here on are read on a thread for work.
const LARGE: usize = 4 << 10;

/// A connection.
pub(super) struct Session {
    pub(super) stream: ByteStream,
    pub(super) connection: StreamConnection,
    pub(super) context: Context,
    /// Members and metadata that events get: as they are read, or else behind the codec.
    pub(super) additions: Additions,
    /// Longest silence of a sender that waits for nothing.
    pub(super) inactivity: Option<Duration>,
    pub(super) reader: WindowReader,
    buffer: BytesMut,
    /// Bytes of the buffer beyond [`FREE`].
    held: Reservation,
}

fn exceeded(why: ShareExceeded) -> io::Error {
    io::Error::new(io::ErrorKind::OutOfMemory, why.to_string())
}

impl Session {
    /// Makes the session of a connection.
    pub(super) fn new(
        (stream, connection): (ByteStream, StreamConnection),
        context: Context,
        additions: Additions,
        reader: WindowReader,
        inactivity: Option<Duration>,
    ) -> Self {
        let (buffer, held) = (BytesMut::new(), context.budget.empty());
        Self { stream, connection, context, additions, inactivity, reader, buffer, held }
    }

    /// Reads and answers until the sender ends the connection, or it has to end.
    ///
    /// # Errors
    /// A stream of another protocol, events that are not stored, or a sender that is silent.
    pub(super) async fn run(&mut self) -> io::Result<()> {
        self.begin_events();
        loop {
            while let Some(frame) = self.next_frame()? {
                let _work = self.connection.begin_work();
                self.decode(frame).await?;
                let is_much = self.reader.events.bytes() >= self.context.budget.piece();
                if self.reader.is_complete() || is_much {
                    self.deliver().await?;
                }
            }
            let wanted = (self.buffer.len() + CHUNK) as u64;
            if wanted > FREE as u64 && wanted > self.held.bytes() {
                self.held.grow((wanted - self.held.bytes()).max(STEP)).map_err(exceeded)?;
            }
            self.buffer.reserve(CHUNK);
            let silence = async {
                match self.inactivity {
                    Some(inactivity) => tokio::time::sleep(inactivity).await,
                    None => std::future::pending().await,
                }
            };
            let read = tokio::select! {
                biased;
                () = self.connection.closing() => return Ok(()),
                read = self.stream.read_buf(&mut self.buffer) => read?,
                () = silence => return Err(io::Error::new(io::ErrorKind::TimedOut, "the sender is silent")),
            };
            if read == 0 {
                return Ok(());
            }
        }
    }

    fn begin_events(&mut self) {
        let is_plain = self.reader.is_plain();
        let each = if is_plain { 0 } else { ADDED };
        self.reader.events = Events::within(self.context.budget.empty(), each);
        if is_plain {
            self.reader.events.set_additions(std::mem::take(&mut self.additions));
        }
    }

    /// Cuts the next frame off, one of compressed frames with these.
    fn next_frame(&mut self) -> io::Result<Option<BytesMut>> {
        let Some(length) = frame_length(&self.buffer)? else { return Ok(None) };
        let mut whole = length;
        if let (Some(b'C'), Some(mut head)) = (self.buffer.get(1), self.buffer.get(..length))
            && let Some((_, Frame::Compressed(more))) = read_frame(&mut head)?
        {
            let more = more as usize;
            if more > MAX_COMPRESSED {
                let reason =
                    format!("compressed frames of [{more}] bytes exceed the bound [{MAX_COMPRESSED}]");
                return Err(invalid(reason));
            }
            whole += more;
        }
        if self.buffer.len() < whole {
            return Ok(None);
        }
        let frame = self.buffer.split_to(whole);
        if self.buffer.len() <= FREE {
            self.held.set(0);
        }
        Ok(Some(frame))
    }

    async fn decode(&mut self, mut frame: BytesMut) -> io::Result<()> {
        let is_compressed = frame.get(1) == Some(&b'C');
        if !is_compressed && frame.len() < LARGE {
            return self.reader.take(&frame);
        }
        let mut reader = self.reader.take_over();
        let (reader, outcome) = offload(move || {
            let outcome = if is_compressed {
                frame.advance(6);
                reader.take_compressed(&frame)
            } else {
                reader.take(&frame)
            };
            (reader, outcome)
        })
        .await;
        self.reader = reader;
        outcome
    }

    /// Hands the events on, waits until they are stored, and answers.
    async fn deliver(&mut self) -> io::Result<()> {
        let Some((version, sequence)) = self.reader.last.take() else { return Ok(()) };
        let mut events = std::mem::take(&mut self.reader.events);
        let is_plain = self.reader.is_plain();
        if is_plain {
            self.additions = events.take_additions();
        }
        self.begin_events();
        let (mut events, held) = events.into_parts().map_err(exceeded)?;
        if !is_plain {
            events.iter_mut().for_each(|event| self.additions.add_to(event));
        }
        if !events.is_empty() {
            self.store(Batch { events, position: None, ack: Ack::none(), held }, version).await?;
        }
        self.stream.write_all(&acknowledgement(version, sequence)).await?;
        self.stream.flush().await
    }

    async fn store(&mut self, batch: Batch, version: u8) -> io::Result<()> {
        let (ack, stored) = Ack::channel();
        let batches = self.context.batches.clone();
        let outcome = async move {
            let ended = || Err(NotStored::Ended);
            match batches.send(Batch { ack, ..batch }).await {
                Ok(()) => stored.await.unwrap_or_else(|_| ended()),
                Err(_) => ended(),
            }
        };
        tokio::pin!(outcome);
        loop {
            tokio::select! {
                biased;
                outcome = outcome.as_mut() => {
                    return outcome.map_err(|why| io::Error::other(format!("events are not stored: {why}")));
                }
                // Version 1 has no such answer.
                () = tokio::time::sleep(KEEP_ALIVE), if version == b'2' => {
                    self.stream.write_all(&acknowledgement(version, 0)).await?;
                    self.stream.flush().await?;
                }
            }
        }
    }
}
