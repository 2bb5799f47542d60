//! Activity of a connection: its requests in flight, and the progress of their answers.
//!
//! The connection's task, its requests and the table of all connections look at one [`Activity`]. A request is
//! under way from its head until its answer's body is taken, so a client that reads slowly is not idle.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Largest part of an answer that is handed on at once, so that taking parts tells of progress.
const PART_BYTES: usize = 64 << 10;

/// State of a connection; see the module.
#[derive(Debug)]
pub(crate) struct Activity {
    /// Origin of times; that of all connections of a table.
    epoch: Instant,
    requests: AtomicUsize,
    /// End of the last request, or begin of the connection, in milliseconds.
    idle_since: AtomicU64,
    /// Bytes read from the socket, and how many when the connection became idle.
    read: AtomicU64,
    read_when_idle: AtomicU64,
    /// Bytes written to the socket.
    written: AtomicU64,
    /// Set while the socket does not take the bytes to be written.
    blocked: AtomicBool,
    http2: AtomicBool,
    answers: Mutex<Answers>,
    evicted: Notify,
}

/// Times at which the last part of each answer was taken; `None` while the answer itself is waited for.
#[derive(Debug, Default)]
struct Answers {
    next: u64,
    taken: HashMap<u64, Option<Instant>>,
}

impl Activity {
    /// Makes the state of a connection that begins now.
    pub(crate) fn new(epoch: Instant) -> Arc<Self> {
        let activity = Self {
            epoch,
            requests: AtomicUsize::new(0),
            idle_since: AtomicU64::new(0),
            read: AtomicU64::new(0),
            read_when_idle: AtomicU64::new(0),
            written: AtomicU64::new(0),
            blocked: AtomicBool::new(false),
            http2: AtomicBool::new(false),
            answers: Mutex::default(),
            evicted: Notify::new(),
        };
        activity.becomes_idle();
        Arc::new(activity)
    }

    /// Takes note that from now on a head is awaited.
    pub(crate) fn becomes_idle(&self) {
        let since = u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.idle_since.store(since, Ordering::SeqCst);
        self.read_when_idle.store(self.read.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// Returns since when no request is under way, `None` while one is.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        // In this order: who ends a request sets the time before it lets go of the count.
        let idle = self.requests.load(Ordering::SeqCst) == 0;
        idle.then(|| self.epoch + Duration::from_millis(self.idle_since.load(Ordering::SeqCst)))
    }

    /// Returns whether something came since the connection became idle.
    pub(crate) fn has_begun_a_head(&self) -> bool {
        self.read.load(Ordering::SeqCst) > self.read_when_idle.load(Ordering::SeqCst)
    }

    pub(crate) fn has_read(&self, bytes: usize) {
        self.read.fetch_add(bytes as u64, Ordering::SeqCst);
    }

    pub(crate) fn has_written(&self, bytes: usize) {
        self.written.fetch_add(bytes as u64, Ordering::SeqCst);
        self.blocked.store(false, Ordering::SeqCst);
    }

    /// Returns the bytes written so far.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::SeqCst)
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::SeqCst)
    }

    pub(crate) fn blocks(&self) {
        self.blocked.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_http2(&self) -> bool {
        self.http2.load(Ordering::SeqCst)
    }

    pub(crate) fn speaks_http2(&self) {
        self.http2.store(true, Ordering::SeqCst);
    }

    /// Returns when the answer that waits longest for its client was last taken from.
    pub(crate) fn oldest_answer(&self) -> Option<Instant> {
        self.answers.lock().taken.values().flatten().min().copied()
    }

    /// Asks the connection to make room for others.
    pub(crate) fn evict(&self) {
        self.evicted.notify_one();
    }

    /// Waits until room is to be made.
    pub(crate) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Takes note of a request.
    pub(crate) fn begin(self: &Arc<Self>) -> ActivityGuard {
        self.requests.fetch_add(1, Ordering::SeqCst);
        ActivityGuard(Arc::clone(self))
    }
}

/// A request under way, until dropped.
#[derive(Debug)]
pub(crate) struct ActivityGuard(Arc<Activity>);

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        // In this order, as `idle_since` reads it.
        self.0.becomes_idle();
        self.0.requests.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The body of an answer, in parts whose taking is noted.
#[derive(Debug)]
pub(crate) struct Answer<B> {
    body: Pin<Box<B>>,
    rest: Bytes,
    id: u64,
    request: ActivityGuard,
}

impl<B: Body<Data = Bytes>> Answer<B> {
    /// Wraps the body of the answer to a request.
    pub(crate) fn new(body: B, request: ActivityGuard) -> Self {
        let mut answers = request.0.answers.lock();
        let id = answers.next;
        answers.next += 1;
        answers.taken.insert(id, Some(Instant::now()));
        drop(answers);
        Self { body: Box::pin(body), rest: Bytes::new(), id, request }
    }

    fn note(&self, taken: Option<Instant>) {
        self.request.0.answers.lock().taken.insert(self.id, taken);
    }
}

impl<B> Drop for Answer<B> {
    fn drop(&mut self) {
        self.request.0.answers.lock().taken.remove(&self.id);
    }
}

impl<B: Body<Data = Bytes>> Body for Answer<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        if this.rest.is_empty() {
            let Poll::Ready(frame) = this.body.as_mut().poll_frame(context) else {
                this.note(None);
                return Poll::Pending;
            };
            match frame {
                Some(Ok(frame)) if frame.is_data() => this.rest = frame.into_data().unwrap_or_default(),
                other => {
                    this.note(Some(Instant::now()));
                    return Poll::Ready(other);
                }
            }
        }
        this.note(Some(Instant::now()));
        let part = this.rest.split_to(this.rest.len().min(PART_BYTES));
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(inner.lower().saturating_add(rest));
        hint
    }
}
