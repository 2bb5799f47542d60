//! Bodies of requests within bounds of length, time and memory.
//!
//! A request with one message is to arrive as a whole within a minute. One that sends batches may take as long as it wants, but neither
//! fall silent, nor be slower than bodies of the data API may be ([`TransferRate`]), nor let a message that it has begun drip in. What of it has
//! arrived counts against the bytes of all requests, and against those of its user, until whoever works on it lets go of that. Where
//! there is no room it is read on once there is, for a while.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Select, select};
use http_body::{Body, Frame, SizeHint};
use millrace_listen::{Budget, BudgetExceeded, Reservation, Reserve, StallReason, TransferRate};
use millrace_runtime::Instant;
use parking_lot::Mutex;
use tokio::sync::futures::OwnedNotified;
use tokio::time::Sleep;
use tonic::Status;

use crate::framing::Progress;
use crate::tickets::User;

/// Longest request with one message, in bytes: statements, commands, tickets; and longest one that needs no credentials.
const MAX_MESSAGE: u64 = 1 << 20;
const MAX_OPEN: u64 = 16 << 10;
/// Time for such a request to arrive, and longest silence within a longer one.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time that a request waits for memory. Every second wait is a short pause that ignores notifications: many may wait.
const ROOM_PATIENCE: Duration = Duration::from_secs(30);
const ROOM_PAUSE: Duration = Duration::from_millis(20);
/// Parts of the room of all of which one user may hold one.
const SHARES: u64 = 2;

/// The room of all requests, as users share it.
#[derive(Debug)]
pub(crate) struct Shares {
    budget: Budget,
    /// Of those who hold something, or have a request under way.
    users: Mutex<HashMap<Option<User>, Weak<UserShare>>>,
}

/// Memory that one user may hold.
#[derive(Debug)]
struct UserShare {
    budget: Budget,
    own: Budget,
}

/// Ends when something is given back.
type GivenBack = Select<Pin<Box<OwnedNotified>>, Pin<Box<OwnedNotified>>>;

impl UserShare {
    /// Waits until something is given back, from this call on.
    fn given_back(&self) -> GivenBack {
        select(Box::pin(self.own.given_back()), Box::pin(self.budget.given_back()))
    }
}

/// Bytes that are held, of the room of all and of the user's share, given back on drop.
#[derive(Debug)]
#[must_use = "dropping it gives the bytes back"]
pub(crate) struct UploadReservation {
    all: Reservation,
    own: Reservation,
    share: Arc<UserShare>,
}

/// Received bytes of a request that are not processed yet; its clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedBytes {
    share: Arc<UserShare>,
    held: Arc<Mutex<UploadReservation>>,
}

impl Shares {
    pub(crate) fn new(budget: &Budget) -> Self {
        Self { budget: budget.clone(), users: Mutex::default() }
    }

    /// Begins a request of a user; `None` for somebody who is just logging in.
    pub(crate) fn begin(&self, user: Option<User>) -> ReceivedBytes {
        let mut users = self.users.lock();
        let share = users.get(&user).and_then(Weak::upgrade).unwrap_or_else(|| {
            users.retain(|_, share| share.strong_count() > 0);
            let share = Arc::new(UserShare {
                budget: self.budget.clone(),
                own: Budget::new(self.budget.limit() / SHARES),
            });
            users.insert(user, Arc::downgrade(&share));
            share
        });
        let held = Arc::new(Mutex::new(UploadReservation::nothing(&share)));
        ReceivedBytes { share, held }
    }
}

impl UploadReservation {
    fn nothing(share: &Arc<UserShare>) -> Self {
        Self { all: share.budget.empty(), own: share.own.empty(), share: Arc::clone(share) }
    }

    fn grow(&mut self, by: u64) -> Result<(), BudgetExceeded> {
        // Giving back what was reserved in vain would wake those who wait for room, who would do the same.
        self.share.budget.check(by)?;
        self.own.grow(by)?;
        self.all.grow(by).inspect_err(|_| self.own.shrink_to(self.own.bytes() - by))
    }

    /// Holds as much again, and no less than that.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` where there is no room.
    pub(crate) fn double(&mut self, least: u64) -> Result<(), Status> {
        let more = self.bytes().max(least.saturating_sub(self.bytes()));
        self.grow(more).map_err(|exceeded| full(&exceeded))
    }

    /// Gives back what exceeds so many bytes.
    pub(crate) fn shrink_to(&mut self, bytes: u64) {
        self.own.shrink_to(bytes);
        self.all.shrink_to(bytes);
    }

    /// Returns how many bytes these are.
    pub(crate) fn bytes(&self) -> u64 {
        self.own.bytes()
    }
}

impl ReceivedBytes {
    /// Hands over what is reserved for all that has arrived so far.
    pub(crate) fn take(&self) -> UploadReservation {
        std::mem::replace(&mut *self.held.lock(), UploadReservation::nothing(&self.share))
    }

    /// Returns whether more than half of the room of all is in use.
    fn is_scarce(&self) -> bool {
        self.held.lock().all.is_scarce()
    }

    /// Reserves bytes for what is made of what has arrived, if they fit.
    pub(crate) fn try_reserve(&self, bytes: u64) -> Result<UploadReservation, Status> {
        let mut held = UploadReservation::nothing(&self.share);
        held.grow(bytes).map_err(|exceeded| full(&exceeded))?;
        Ok(held)
    }

    /// Reserves bytes for what is made of what has arrived, once there is room.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` where there is none for half a minute, or can be none.
    pub(crate) async fn reserve(&self, bytes: u64) -> Result<UploadReservation, Status> {
        let reserve = || {
            let mut held = UploadReservation::nothing(&self.share);
            held.grow(bytes).map(|()| held)
        };
        self.once_there_is_room(bytes, reserve).await.map_err(|exceeded| full(&exceeded))
    }

    /// Holds bytes more of what has arrived, once there is room.
    async fn grow(self, bytes: u64) -> Result<(), BudgetExceeded> {
        self.once_there_is_room(bytes, || self.held.lock().grow(bytes)).await
    }

    /// Tries to reserve bytes whenever there may be room for them.
    async fn once_there_is_room<T>(
        &self,
        bytes: u64,
        mut reserve: impl FnMut() -> Result<T, BudgetExceeded>,
    ) -> Result<T, BudgetExceeded> {
        let (end, mut was_woken) = (Instant::now() + ROOM_PATIENCE, false);
        loop {
            // Made before the look, it misses nothing.
            let given_back = self.share.given_back();
            let exceeded = match reserve() {
                Err(exceeded) if bytes <= self.share.own.limit() => exceeded,
                reserved => return reserved,
            };
            if was_woken {
                tokio::time::sleep(ROOM_PAUSE).await;
            } else if tokio::time::timeout_at(end, given_back).await.is_err() {
                return Err(exceeded);
            }
            was_woken = !was_woken;
        }
    }
}

fn full(exceeded: &BudgetExceeded) -> Status {
    Status::resource_exhausted(format!("too much is sent at once, try again: {exceeded}"))
}

/// Bound on the length of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// One message of somebody who is not known.
    Open,
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
    received: ReceivedBytes,
    bytes: u64,
    /// Timer of the next check of progress.
    timer: Pin<Box<Sleep>>,
    pace: TransferRate,
    progress: Progress,
    /// A part that there is no room for yet.
    unheld: Option<WaitingChunk>,
}

/// A part that waits for room.
struct WaitingChunk {
    frame: Frame<Bytes>,
    admission: BoxFuture<'static, Result<(), BudgetExceeded>>,
}

impl fmt::Debug for WaitingChunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unheld").field("frame", &self.frame).finish_non_exhaustive()
    }
}

impl<B> Upload<B> {
    /// Wraps a body.
    pub(crate) fn new(body: B, length: Length, received: ReceivedBytes) -> Self {
        let timer = Box::pin(tokio::time::sleep(PATIENCE));
        Self {
            body,
            length,
            received,
            bytes: 0,
            timer,
            pace: TransferRate::new(PATIENCE),
            progress: Progress::default(),
            unheld: None,
        }
    }

    fn take_note(&mut self, frame: Option<&Bytes>) -> Result<(), Status> {
        let Some(bytes) = frame else { return Ok(()) };
        self.bytes += bytes.len() as u64;
        let most = match self.length {
            Length::Open => MAX_OPEN,
            Length::Message => MAX_MESSAGE,
            Length::Batches => u64::MAX,
        };
        if self.bytes > most {
            return Err(Status::resource_exhausted(format!("the request is longer than [{most}] bytes")));
        }
        match self.length {
            Length::Batches => self.progress.advance(bytes),
            // What is made of so few bytes is bounded by them.
            Length::Open | Length::Message => Ok(()),
        }
    }

    /// Passes a part on, or keeps it until there is room for it.
    fn hold(&mut self, frame: Frame<Bytes>, context: &mut Context<'_>) -> Poll<Result<Frame<Bytes>, Status>> {
        let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
        if self.received.held.lock().grow(bytes).is_ok() {
            return Poll::Ready(Ok(frame));
        }
        let admission = self.received.clone().grow(bytes).boxed();
        self.hold_later(WaitingChunk { frame, admission }, context)
    }

    /// Passes a part on once there is room for it.
    fn hold_later(
        &mut self,
        mut unheld: WaitingChunk,
        context: &mut Context<'_>,
    ) -> Poll<Result<Frame<Bytes>, Status>> {
        match unheld.admission.poll_unpin(context) {
            Poll::Ready(Ok(())) => Poll::Ready(Ok(unheld.frame)),
            Poll::Ready(Err(exceeded)) => Poll::Ready(Err(full(&exceeded))),
            Poll::Pending => {
                self.unheld = Some(unheld);
                Poll::Pending
            }
        }
    }

    /// Takes note that a part is waited for; returns why it is no more, where that has taken too long.
    fn wait(&mut self, context: &mut Context<'_>) -> Poll<Status> {
        if self.length != Length::Batches {
            return self
                .timer
                .as_mut()
                .poll(context)
                .map(|()| late("the request has not arrived as a whole"));
        }
        loop {
            let now = Instant::now();
            let mut due = self.pace.waits(now);
            if let Some(patience) = self.progress.patience() {
                let left = patience.saturating_sub(self.pace.wait(now));
                if left.is_zero() {
                    return Poll::Ready(Status::deadline_exceeded(
                        "a message of the request arrived too slowly: send smaller batches",
                    ));
                }
                due = due.min(now + left);
            }
            if self.timer.deadline() != due {
                self.timer.as_mut().reset(due);
            }
            ready!(self.timer.as_mut().poll(context));
            match self.pace.look(Instant::now(), || self.received.is_scarce()) {
                Ok(()) => {}
                Err(StallReason::Silent) => {
                    return Poll::Ready(late("the request stopped arriving: nothing came"));
                }
                Err(StallReason::Slow) => {
                    return Poll::Ready(Status::deadline_exceeded(
                        "the request arrived too slowly: gather more rows before they are sent, and send them at once",
                    ));
                }
            }
        }
    }
}

fn late(what: &str) -> Status {
    Status::deadline_exceeded(format!("{what} in [{}] s", PATIENCE.as_secs()))
}

impl<B> Body for Upload<B>
where
    B: Body<Data = Bytes, Error = Status> + Unpin,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if let Some(unheld) = this.unheld.take() {
            return this.hold_later(unheld, context).map(Some);
        }
        match Pin::new(&mut this.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                // Time for which nobody asked for it does not count.
                let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
                this.progress.waited(this.pace.came(Instant::now(), bytes));
                if let Err(error) = this.take_note(frame.data_ref()) {
                    return Poll::Ready(Some(Err(error)));
                }
                this.hold(frame, context).map(Some)
            }
            ended @ Poll::Ready(_) => ended,
            Poll::Pending => this.wait(context).map(|status| Some(Err(status))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.unheld.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
