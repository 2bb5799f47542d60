//! Bodies of requests within bounds of length, time and memory.
//!
//! A request with one message is to arrive as a whole within a minute. One that sends batches may take as long as it wants, but neither
//! fall silent, nor be slower than bodies of the data API may be ([`Pace`]), nor let a message that it has begun drip in. What of it has
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
use millrace_listen::{Budget, Exceeded, Pace, Reservation, Reserve, Stalled};
use parking_lot::Mutex;
use tokio::sync::futures::OwnedNotified;
use tokio::time::{Instant, Sleep};
use tonic::Status;

use crate::framing::Progress;
use crate::tickets::User;

/// Longest request with one message, in bytes: statements, commands, tickets; and longest one that needs no credentials.
const MAX_MESSAGE: u64 = 1 << 20;
const MAX_OPEN: u64 = 16 << 10;
/// Time for such a request to arrive, and longest silence within a longer one.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long room is waited for, and how long who was told of some and got none does not listen: many may wait.
const ROOM_PATIENCE: Duration = Duration::from_secs(30);
const ROOM_PAUSE: Duration = Duration::from_millis(20);
/// Parts of the room of all of which one user may hold one.
const SHARES: u64 = 2;

/// The room of all requests, as users share it.
#[derive(Debug)]
pub(crate) struct Shares {
    room: Budget,
    /// Of those who hold something, or have a request under way.
    users: Mutex<HashMap<Option<User>, Weak<Share>>>,
}

/// What one user may hold.
#[derive(Debug)]
struct Share {
    room: Budget,
    own: Budget,
}

/// Ends when something is given back.
type GivenBack = Select<Pin<Box<OwnedNotified>>, Pin<Box<OwnedNotified>>>;

impl Share {
    /// Waits until something is given back, from this call on.
    fn given_back(&self) -> GivenBack {
        select(Box::pin(self.own.given_back()), Box::pin(self.room.given_back()))
    }
}

/// Bytes that are held, of the room of all and of the user's share, given back on drop.
#[derive(Debug)]
#[must_use = "dropping it gives the bytes back"]
pub(crate) struct Held {
    all: Reservation,
    own: Reservation,
    share: Arc<Share>,
}

/// What has arrived of a request and is not worked off yet; its clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    share: Arc<Share>,
    held: Arc<Mutex<Held>>,
}

impl Shares {
    pub(crate) fn new(room: &Budget) -> Self {
        Self { room: room.clone(), users: Mutex::default() }
    }

    /// Begins a request of a user; `None` for somebody who is just logging in.
    pub(crate) fn begin(&self, user: Option<User>) -> Received {
        let mut users = self.users.lock();
        let share = users.get(&user).and_then(Weak::upgrade).unwrap_or_else(|| {
            users.retain(|_, share| share.strong_count() > 0);
            let share =
                Arc::new(Share { room: self.room.clone(), own: Budget::new(self.room.limit() / SHARES) });
            users.insert(user, Arc::downgrade(&share));
            share
        });
        let held = Arc::new(Mutex::new(Held::nothing(&share)));
        Received { share, held }
    }
}

impl Held {
    fn nothing(share: &Arc<Share>) -> Self {
        Self { all: share.room.empty(), own: share.own.empty(), share: Arc::clone(share) }
    }

    fn grow(&mut self, by: u64) -> Result<(), Exceeded> {
        // Giving back what was reserved in vain would wake those who wait for room, who would do the same.
        self.share.room.check(by)?;
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

impl Received {
    /// Hands over what is reserved for all that has arrived so far.
    pub(crate) fn take(&self) -> Held {
        std::mem::replace(&mut *self.held.lock(), Held::nothing(&self.share))
    }

    /// Whether more than half of the room of all is in use.
    fn is_scarce(&self) -> bool {
        self.held.lock().all.is_scarce()
    }

    /// Reserves bytes for what is made of what has arrived, if they fit.
    pub(crate) fn try_reserve(&self, bytes: u64) -> Result<Held, Status> {
        let mut held = Held::nothing(&self.share);
        held.grow(bytes).map_err(|exceeded| full(&exceeded))?;
        Ok(held)
    }

    /// Reserves bytes for what is made of what has arrived, once there is room.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` where there is none for half a minute, or can be none.
    pub(crate) async fn reserve(&self, bytes: u64) -> Result<Held, Status> {
        let reserve = || {
            let mut held = Held::nothing(&self.share);
            held.grow(bytes).map(|()| held)
        };
        self.once_there_is_room(bytes, reserve).await.map_err(|exceeded| full(&exceeded))
    }

    /// Holds bytes more of what has arrived, once there is room.
    async fn grow(self, bytes: u64) -> Result<(), Exceeded> {
        self.once_there_is_room(bytes, || self.held.lock().grow(bytes)).await
    }

    /// Tries to reserve bytes whenever there may be room for them.
    async fn once_there_is_room<T>(
        &self,
        bytes: u64,
        mut reserve: impl FnMut() -> Result<T, Exceeded>,
    ) -> Result<T, Exceeded> {
        let (end, mut told) = (Instant::now() + ROOM_PATIENCE, false);
        loop {
            // Made before the look, it misses nothing.
            let given_back = self.share.given_back();
            let exceeded = match reserve() {
                Err(exceeded) if bytes <= self.share.own.limit() => exceeded,
                reserved => return reserved,
            };
            if told {
                tokio::time::sleep(ROOM_PAUSE).await;
            } else if tokio::time::timeout_at(end, given_back).await.is_err() {
                return Err(exceeded);
            }
            told = !told;
        }
    }
}

fn full(exceeded: &Exceeded) -> Status {
    Status::resource_exhausted(format!("too much is sent at once, try again: {exceeded}"))
}

/// How much a request may send.
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
    received: Received,
    bytes: u64,
    /// When to look whether it has come far enough.
    timer: Pin<Box<Sleep>>,
    pace: Pace,
    progress: Progress,
    /// A part that there is no room for yet.
    unheld: Option<Unheld>,
}

/// A part that waits for room.
struct Unheld {
    frame: Frame<Bytes>,
    room: BoxFuture<'static, Result<(), Exceeded>>,
}

impl fmt::Debug for Unheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unheld").field("frame", &self.frame).finish_non_exhaustive()
    }
}

impl<B> Upload<B> {
    /// Wraps a body.
    pub(crate) fn new(body: B, length: Length, received: Received) -> Self {
        let timer = Box::pin(tokio::time::sleep(PATIENCE));
        Self {
            body,
            length,
            received,
            bytes: 0,
            timer,
            pace: Pace::new(PATIENCE),
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
        let room = self.received.clone().grow(bytes).boxed();
        self.hold_later(Unheld { frame, room }, context)
    }

    /// Passes a part on once there is room for it.
    fn hold_later(
        &mut self,
        mut unheld: Unheld,
        context: &mut Context<'_>,
    ) -> Poll<Result<Frame<Bytes>, Status>> {
        match unheld.room.poll_unpin(context) {
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
                Err(Stalled::Silent) => {
                    return Poll::Ready(late("the request stopped arriving: nothing came"));
                }
                Err(Stalled::Slow) => {
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
mod tests {
    use futures::{StreamExt, stream};
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    /// An empty message.
    const PREFIX: usize = 5;
    const SECOND: Duration = Duration::from_secs(1);

    type Part = Result<Frame<Bytes>, Status>;

    fn part(bytes: usize) -> Part {
        Ok(Frame::data(Bytes::from(vec![0; bytes])))
    }

    #[tokio::test(start_paused = true)]
    async fn what_arrives_is_reserved_until_it_is_taken() {
        let room = Budget::new(3_000 * SHARES);
        let received = Shares::new(&room).begin(None);
        let body = StreamBody::new(stream::iter([part(1_000), part(1_000), part(1_001), part(1)]));
        let mut upload = Upload::new(body, Length::Batches, received.clone());
        for _ in 0..2 {
            upload.frame().await.unwrap().unwrap();
        }
        assert_eq!(room.used(), 2_000);
        let held = received.take();
        let begun = Instant::now();
        let error = upload.frame().await.unwrap().unwrap_err();
        assert_eq!(error.code(), tonic::Code::ResourceExhausted);
        assert!(begun.elapsed() >= ROOM_PATIENCE);
        drop(held);
        assert_eq!(room.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn room_is_told_to_all_who_wait_for_it_at_once() {
        let room = Budget::new(1_000);
        let shares = Shares::new(&room);
        let begun = Instant::now();
        // Somebody beside them has nearly all of it: there is room of their own, and none of all.
        let others = room.reserve(900).unwrap();
        let received: Vec<_> = (0..4).map(|_| shares.begin(None)).collect();
        let waiting = futures::future::join_all(received.iter().map(|received| received.reserve(125)));
        let (reserved, ()) = tokio::join!(waiting, async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            drop(others);
        });
        let held: Vec<Held> = reserved.into_iter().collect::<Result<_, _>>().unwrap();
        assert_eq!((begun.elapsed(), room.used()), (Duration::from_millis(1), 500));
        // What can never fit is not waited for. Who is told of too little goes on waiting.
        drop(held);
        let others = room.reserve(1_000).unwrap();
        let (reserved, others) = tokio::join!(received[0].reserve(125), async {
            let mut others = others;
            for left in [950, 900, 875] {
                tokio::time::sleep(Duration::from_millis(1)).await;
                others.shrink_to(left);
            }
            others
        });
        drop((reserved.unwrap(), others));
        assert_eq!(begun.elapsed(), Duration::from_millis(2) + ROOM_PAUSE);
        let begun = Instant::now();
        assert!(received[0].reserve(501).await.is_err());
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn room_is_waited_for() {
        let room = Budget::new(1_000 * SHARES);
        let received = Shares::new(&room).begin(None);
        let body = StreamBody::new(stream::iter([part(1_000), part(1_000)]));
        let mut upload = Upload::new(body, Length::Batches, received.clone());
        upload.frame().await.unwrap().unwrap();
        let held = received.take();
        let (next, ()) = tokio::join!(upload.frame(), async {
            tokio::time::sleep(ROOM_PATIENCE / 2).await;
            drop(held);
        });
        assert_eq!(next.unwrap().unwrap().data_ref().unwrap().len(), 1_000);
    }

    #[test]
    fn one_user_leaves_room_for_others() {
        use millrace_storage::Principal;
        use millrace_storage::access::{ActionSet, Caller, Privileges};
        let user = |name: &str| {
            let nothing = Arc::new(Privileges::new(ActionSet::NONE, Vec::new()));
            Some(User::of(&Principal::new(Caller::User(name.into()), Vec::new(), nothing)))
        };
        let room = Budget::new(100 * SHARES);
        let shares = Shares::new(&room);
        let (first, second) = (shares.begin(user("ann")), shares.begin(user("ann")));
        let held = [first.try_reserve(60).unwrap(), second.try_reserve(40).unwrap()];
        assert!(first.try_reserve(1).is_err());
        drop(shares.begin(user("bob")).try_reserve(100).unwrap());
        assert_eq!(room.used(), 100);
        drop(held);
        drop((first, second));
        drop(shares.begin(user("cid")));
        assert_eq!(shares.users.lock().len(), 1);
        assert_eq!(room.used(), 0);
    }

    /// A body of so many parts, each a pause after the other.
    fn paced(parts: u32, bytes: usize, pause: Duration) -> impl Body<Data = Bytes, Error = Status> + Unpin {
        StreamBody::new(Box::pin(stream::iter(0..parts).then(move |_| async move {
            tokio::time::sleep(pause).await;
            part(bytes)
        })))
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_batches_and_slowness_one_message() {
        let room = Budget::new(u64::MAX);
        let begin = || Shares::new(&room).begin(None);
        let slow = |bytes: usize| paced(5, bytes, PATIENCE * 2 / 3);
        let enough = PREFIX * (20 << 10);
        let upload = Upload::new(slow(enough), Length::Batches, begin());
        assert_eq!(upload.collect().await.unwrap().to_bytes().len(), 5 * enough);
        for length in [Length::Message, Length::Batches] {
            // A byte now and then never makes a message.
            let upload = Upload::new(slow(1), length, begin());
            assert_eq!(upload.collect().await.unwrap_err().code(), tonic::Code::DeadlineExceeded);
        }
        let silent = StreamBody::new(Box::pin(stream::iter([part(PREFIX)]).chain(stream::pending())));
        let upload = Upload::new(silent, Length::Batches, begin());
        assert_eq!(upload.collect().await.unwrap_err().code(), tonic::Code::DeadlineExceeded);
        for (length, most) in [(Length::Message, MAX_MESSAGE), (Length::Open, MAX_OPEN)] {
            let most = usize::try_from(most).unwrap();
            let upload = |parts| Upload::new(StreamBody::new(stream::iter(parts)), length, begin());
            assert!(upload(vec![part(most)]).collect().await.is_ok());
            let error = upload(vec![part(most), part(1)]).collect().await.unwrap_err();
            assert_eq!(error.code(), tonic::Code::ResourceExhausted);
        }
        assert_eq!(room.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn streams_that_keep_their_room_for_nearly_nothing_end() {
        let room = Budget::new(100 << 20);
        let shares = Shares::new(&room);
        let sends = |messages: usize| {
            let body = paced(200, messages * PREFIX, SECOND);
            Upload::new(body, Length::Batches, shares.begin(None)).collect()
        };
        let begun = Instant::now();
        assert_eq!(sends(100).await.unwrap_err().code(), tonic::Code::DeadlineExceeded);
        assert!(begun.elapsed() < PATIENCE * 2);
        assert_eq!(sends(400).await.unwrap().to_bytes().len(), 200 * 400 * PREFIX);
        // Where others want the room, more is expected.
        let others = room.reserve(60 << 20).unwrap();
        let begun = Instant::now();
        assert_eq!(sends(400).await.unwrap_err().code(), tonic::Code::DeadlineExceeded);
        assert!(begun.elapsed() < PATIENCE / 2);
        assert_eq!(sends(20_000).await.unwrap().to_bytes().len(), 200 * 20_000 * PREFIX);
        drop(others);
        assert_eq!(room.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn time_for_which_nobody_asks_does_not_count() {
        let room = Budget::new(u64::MAX);
        let mut upload =
            Upload::new(paced(50, PREFIX, SECOND), Length::Batches, Shares::new(&room).begin(None));
        for _ in 0..50 {
            upload.frame().await.unwrap().unwrap();
            tokio::time::sleep(PATIENCE).await;
        }
        assert!(upload.frame().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_has_begun_is_not_waited_for_for_ever() {
        let room = Budget::new(u64::MAX);
        let length = 1_u32 << 20;
        let mut begins = vec![0];
        begins.extend(length.to_be_bytes());
        begins.extend([0; 1 << 10].repeat(1 << 9));
        let begins: Part = Ok(Frame::data(Bytes::from(begins)));
        let body = StreamBody::new(Box::pin(stream::iter([begins]).chain(stream::pending())));
        let upload = Upload::new(body, Length::Batches, Shares::new(&room).begin(None));
        let begun = Instant::now();
        assert_eq!(upload.collect().await.unwrap_err().code(), tonic::Code::DeadlineExceeded);
        // Half a minute, and four seconds for its length.
        assert_eq!(begun.elapsed(), SECOND * 34);
    }
}
