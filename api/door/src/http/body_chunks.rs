//! Answers that are sent while they are made.
//!
//! Their [`BodyChunks`] are asked for as the connection takes them, so that a client that reads slowly slows down what makes them. The
//! head is gone before the end is known: an error behind it ends the body before its end, which the client sees as a transfer that broke
//! off.

use std::fmt;
use std::future::poll_fn;
use std::io::Write;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::stream::{self, BoxStream, Stream, StreamExt, TryStreamExt};
use http_body::Frame;
use http_body_util::{Either, Full, StreamBody};
use millrace_runtime::tasks::TaskGuard;
use millrace_runtime::{Compute, Priority};
use parking_lot::Mutex;

/// Compression level of answers.
pub(super) const GZIP_LEVEL: Compression = Compression::new(3);

/// An answer broke off, for a reason that the log has.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the answer breaks off")]
pub struct BrokenOff;

impl BrokenOff {
    fn new(error: impl fmt::Display) -> Self {
        tracing::warn!(%error, "an answer breaks off");
        Self
    }
}

/// The body of an answer: in one piece, or part by part.
pub type AnswerBody = Either<Full<Bytes>, StreamBody<BoxStream<'static, Result<Frame<Bytes>, BrokenOff>>>>;

/// The parts of an answer; see the module. Dropping it ends what makes them.
pub struct BodyChunks(BoxStream<'static, Result<Bytes, BrokenOff>>);

impl fmt::Debug for BodyChunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

impl BodyChunks {
    /// Takes parts over.
    pub fn new<E: fmt::Display + 'static>(
        parts: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
    ) -> Self {
        Self(parts.map_err(BrokenOff::new).boxed())
    }

    /// Has the chunks belong to a task, which ends with them. A cancellation of the task ends what makes them, whether the client
    /// takes them or not.
    pub(crate) fn in_task(self, task: TaskGuard) -> Self {
        let chunks = Arc::new(Mutex::new(Some(self.0)));
        let (watched, handle) = (Arc::clone(&chunks), task.handle());
        tokio::spawn(async move {
            tokio::select! {
                _ = handle.cancelled() => drop(watched.lock().take()),
                () = handle.ended() => {}
            }
        });
        let start = Some((chunks, task));
        let in_task = stream::try_unfold(start, |state| async move {
            let Some((chunks, task)) = state else { return Ok(None) };
            let next = poll_fn(|context| match chunks.lock().as_mut() {
                Some(chunks) => chunks.try_poll_next_unpin(context),
                // The cancellation is told in place of it.
                None => Poll::Pending,
            });
            match task.run(next).await {
                Ok(next) => Ok(next.transpose()?.map(|chunk| (chunk, Some((chunks, task))))),
                Err(cancelled) => Err(BrokenOff::new(cancelled)),
            }
        });
        Self(in_task.boxed())
    }

    /// Compresses them, on the threads of `compute`.
    pub(super) fn compressed(self, compute: Compute) -> Self {
        let start = Some((self.0, GzEncoder::new(Vec::new(), GZIP_LEVEL), compute));
        let compressed = stream::try_unfold(start, |state| async move {
            let Some((mut parts, mut encoder, compute)) = state else { return Ok(None) };
            let Some(part) = parts.try_next().await? else {
                let end = encoder.finish().map_err(BrokenOff::new)?;
                return Ok(Some((Bytes::from(end), None)));
            };
            let compress = move || {
                let done = encoder.write_all(&part).and_then(|()| encoder.flush());
                Ok(done.map(|()| (std::mem::take(encoder.get_mut()), encoder)))
            };
            let done = compute.run(Priority::Foreground, compress).await.map_err(BrokenOff::new)?;
            let (bytes, encoder) = done.map_err(BrokenOff::new)?;
            Ok(Some((Bytes::from(bytes), Some((parts, encoder, compute)))))
        });
        Self(compressed.boxed())
    }

    /// Makes the body of an answer of them.
    pub(super) fn into_body(self) -> AnswerBody {
        Either::Right(StreamBody::new(self.0.map_ok(Frame::data).boxed()))
    }
}
