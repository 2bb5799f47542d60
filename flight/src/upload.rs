//! Bodies of requests within bounds of length, time and memory.
//!
//! A request with one message is to arrive as a whole within a minute. One that sends batches may take as long as it wants, but not fall
//! silent; what of it has arrived counts against the bytes of all requests until whoever works on it lets go of that.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use millrace_listen::{Budget, Reservation, Reserve};
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};
use tonic::Status;

/// Longest request with one message, in bytes: statements, commands, tickets.
const MAX_MESSAGE: u64 = 1 << 20;
/// Time for such a request to arrive, and longest silence within a longer one.
const PATIENCE: Duration = Duration::from_secs(60);

/// What has arrived of a request and is not worked off yet; its clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    room: Budget,
    held: Arc<Mutex<Reservation>>,
}

impl Received {
    /// Begins with nothing.
    pub(crate) fn new(room: &Budget) -> Self {
        Self { room: room.clone(), held: Arc::new(Mutex::new(room.empty())) }
    }

    /// Hands over what is reserved for all that has arrived so far.
    pub(crate) fn take(&self) -> Reservation {
        std::mem::replace(&mut *self.held.lock(), self.room.empty())
    }

    /// Reserves bytes for what is made of what has arrived.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` where they do not fit beside other requests.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<Reservation, Status> {
        self.room.reserve(bytes).map_err(|exceeded| full(&exceeded))
    }

    fn grow(&self, bytes: u64) -> Result<(), Status> {
        self.held.lock().grow(bytes).map_err(|exceeded| full(&exceeded))
    }
}

fn full(exceeded: &millrace_listen::Exceeded) -> Status {
    Status::resource_exhausted(format!("too much is sent at once, try again: {exceeded}"))
}

/// How much a request may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// One message.
    Message,
    /// Any number of batches.
    Batches,
}

/// The body of a request.
#[derive(Debug)]
pub(crate) struct Upload<B> {
    body: B,
    length: Length,
    received: Received,
    bytes: u64,
    timer: Pin<Box<Sleep>>,
    /// Whether the next part is waited for already.
    waits: bool,
}

impl<B> Upload<B> {
    /// Wraps a body.
    pub(crate) fn new(body: B, length: Length, received: Received) -> Self {
        let timer = Box::pin(tokio::time::sleep(PATIENCE));
        Self { body, length, received, bytes: 0, timer, waits: false }
    }

    fn take_note(&mut self, bytes: usize) -> Result<(), Status> {
        let bytes = bytes as u64;
        self.bytes += bytes;
        if self.length == Length::Message && self.bytes > MAX_MESSAGE {
            return Err(Status::resource_exhausted(format!(
                "the request is longer than [{MAX_MESSAGE}] bytes"
            )));
        }
        self.received.grow(bytes)
    }
}

impl<B> Body for Upload<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        match Pin::new(&mut this.body).poll_frame(context) {
            Poll::Ready(frame) => {
                this.waits = false;
                Poll::Ready(frame.map(|frame| {
                    let frame = frame.map_err(|error| Status::from_error(Box::new(error)))?;
                    this.take_note(frame.data_ref().map_or(0, Bytes::len))?;
                    Ok(frame)
                }))
            }
            Poll::Pending => {
                if !this.waits && this.length == Length::Batches {
                    this.timer.as_mut().reset(Instant::now() + PATIENCE);
                }
                this.waits = true;
                match this.timer.as_mut().poll(context) {
                    Poll::Ready(()) => Poll::Ready(Some(Err(Status::deadline_exceeded(format!(
                        "the request stopped arriving: nothing came for [{}] s",
                        PATIENCE.as_secs()
                    ))))),
                    Poll::Pending => Poll::Pending,
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt, stream};
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    type Part = Result<Frame<Bytes>, std::io::Error>;

    fn part(bytes: usize) -> Part {
        Ok(Frame::data(Bytes::from(vec![0; bytes])))
    }

    #[tokio::test]
    async fn what_arrives_is_reserved_until_it_is_taken() {
        let room = Budget::new(3_000);
        let received = Received::new(&room);
        let body = StreamBody::new(stream::iter([part(1_000), part(1_000), part(1_001), part(1)]));
        let mut upload = Upload::new(body, Length::Batches, received.clone());
        for _ in 0..2 {
            upload.frame().await.unwrap().unwrap();
        }
        assert_eq!(room.used(), 2_000);
        let held = received.take();
        let error = upload.frame().await.unwrap().unwrap_err();
        assert_eq!(error.code(), tonic::Code::ResourceExhausted);
        drop(held);
        assert_eq!(room.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_batches_and_slowness_one_message() {
        let room = Budget::new(u64::MAX);
        let slow = || {
            let parts = stream::iter(0..5).then(|_| async {
                tokio::time::sleep(PATIENCE / 2).await;
                part(1)
            });
            StreamBody::new(Box::pin(parts))
        };
        let upload = Upload::new(slow(), Length::Batches, Received::new(&room));
        assert_eq!(upload.collect().await.unwrap().to_bytes().len(), 5);
        let upload = Upload::new(slow(), Length::Message, Received::new(&room));
        assert_eq!(upload.collect().await.unwrap_err().code(), tonic::Code::DeadlineExceeded);
        let silent = StreamBody::new(Box::pin(stream::iter([part(1)]).chain(stream::pending())));
        let upload = Upload::new(silent, Length::Batches, Received::new(&room));
        assert_eq!(upload.collect().await.unwrap_err().code(), tonic::Code::DeadlineExceeded);
        let long = StreamBody::new(stream::iter([part(1 << 20), part(1)]));
        let upload = Upload::new(long, Length::Message, Received::new(&room));
        assert_eq!(upload.collect().await.unwrap_err().code(), tonic::Code::ResourceExhausted);
        assert_eq!(room.used(), 0);
    }
}
