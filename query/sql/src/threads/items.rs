//! Items of a running statement: batches of rows, or the parts of a text.
//!
//! The statement makes an item, gives it to its [`ItemSink`], and goes on once there is room: one item waits, so that the next one
//! is made while it is sent. Who reads the [`Items`] sets the pace that way, down to the scans. While an item waits for room, others
//! have the statement's turn at work; what the statement has open, its snapshot and its memory, is let go of with [`PATIENCE`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, stream};
use millrace_catalog::access::Caller;
use millrace_runtime::Instant;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::AbortOnDrop;
use super::turns::{TurnPermit, TurnScheduler};
use crate::error::{Result, SqlError};

/// Longest time for which an item waits to be taken. A slow line is not cut off: a socket with a buffer of megabytes takes nothing
/// for minutes, and then several items. Listeners that stream answers wait as long for their readers.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// Longest time, for all items together, for which what the statement computes at once waits for room in the memory of queries. Who
/// is about as fast as the statement never needs it; for anybody else the rest waits elsewhere.
const HASTE: Duration = Duration::from_secs(5);

/// Sink of a statement's items.
pub(crate) struct ItemSink<T> {
    sender: mpsc::Sender<T>,
    turns: Arc<TurnScheduler>,
    owner: Caller,
    /// There while the statement is at work.
    turn: Option<TurnPermit>,
    /// [`PATIENCE`], but for tests.
    patience: Duration,
    /// Rest of [`HASTE`].
    haste: Duration,
}

impl<T> ItemSink<T> {
    /// Waits until the statement may be at work.
    pub(super) async fn at_work(sender: mpsc::Sender<T>, turns: Arc<TurnScheduler>, owner: Caller) -> Self {
        let turn = Some(turns.take(&owner).await);
        Self { sender, turns, owner, turn, patience: PATIENCE, haste: HASTE }
    }

    /// Waits for room no longer.
    #[cfg(test)]
    pub(crate) fn hasty(mut self) -> Self {
        self.haste = Duration::ZERO;
        self
    }

    /// Waits for room for an item, as long as it may hold up what is in memory; whether there is.
    pub(crate) async fn has_room(&mut self) -> bool {
        if self.sender.capacity() > 0 || self.sender.is_closed() {
            return true;
        }
        self.turn = None;
        let since = Instant::now();
        let room = tokio::time::timeout(self.haste, self.sender.reserve()).await.is_ok();
        self.haste = self.haste.saturating_sub(since.elapsed());
        self.turn = Some(self.turns.take(&self.owner).await);
        room
    }

    /// Gives an item: at once where there is room, and the statement keeps its turn; else once there is, and it waits for its next turn.
    ///
    /// # Errors
    /// [`SqlError::Unread`] where it was not taken in time, or nobody is there to take it.
    pub(crate) async fn give(&mut self, item: T) -> Result<()> {
        let item = match self.sender.try_send(item) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Full(item) | TrySendError::Closed(item)) => item,
        };
        self.turn = None;
        let given = tokio::time::timeout(self.patience, self.sender.send(item)).await;
        if !matches!(given, Ok(Ok(()))) {
            let reason = format!("the answer was not read for [{}] seconds", self.patience.as_secs());
            return Err(SqlError::Unread(reason));
        }
        self.turn = Some(self.turns.take(&self.owner).await);
        Ok(())
    }
}

/// An item of a statement.
#[derive(Debug)]
pub(crate) enum Item<T> {
    /// Others follow.
    Given(T),
    /// The last one.
    Last(T),
}

/// The items of a running statement, which ends with them.
pub(crate) struct Items<T> {
    given: mpsc::Receiver<T>,
    running: AbortOnDrop<T>,
}

impl<T> fmt::Debug for Items<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Items").finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Items<T> {
    pub(super) fn new(given: mpsc::Receiver<T>, running: AbortOnDrop<T>) -> Self {
        Self { given, running }
    }

    /// Waits for the next item. Behind the last one and behind an error there is none.
    ///
    /// # Errors
    /// As [`StatementThreads::run`](super::StatementThreads::run).
    pub(crate) async fn next(&mut self) -> Result<Item<T>> {
        match self.running.within(self.given.recv()).await? {
            Some(item) => Ok(Item::Given(item)),
            None => self.running.ended().await.map(Item::Last),
        }
    }

    /// Makes a stream of them, which ends with the last one or with an error.
    pub(crate) fn into_stream(self) -> impl Stream<Item = Result<T>> + Send {
        stream::unfold(Some(self), |items| async {
            let mut items = items?;
            Some(match items.next().await {
                Ok(Item::Given(item)) => (Ok(item), Some(items)),
                Ok(Item::Last(item)) => (Ok(item), None),
                Err(error) => (Err(error), None),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::{LEAST_AT_WORK, StatementThreads};

    #[tokio::test]
    async fn items_come_in_order_as_they_are_taken() {
        let threads = StatementThreads::start(1).unwrap();
        let statement = |mut sink: ItemSink<u32>| async move {
            for number in 0..100 {
                sink.give(number).await?;
            }
            Ok(100)
        };
        // More than may be at work; those whose items are not taken wait.
        let start = |_| threads.stream(&Caller::System, &Arc::default(), None, statement).unwrap();
        let started: Vec<_> = (0..2 * LEAST_AT_WORK).map(start).collect();
        for mut items in started {
            for number in 0..100 {
                assert!(matches!(items.next().await, Ok(Item::Given(given)) if given == number));
            }
            assert!(matches!(items.next().await, Ok(Item::Last(100))));
        }
    }

    #[tokio::test]
    async fn where_there_is_room_the_turn_is_kept() {
        let (sender, mut given) = mpsc::channel(1);
        let turns = TurnScheduler::new(1);
        let mut sink = ItemSink::at_work(sender, Arc::clone(&turns), Caller::System).await;
        // Somebody waits for the turn and would get it before the statement.
        let waiting = tokio::spawn(async move { turns.take(&Caller::System).await });
        tokio::task::yield_now().await;
        for number in 0..3 {
            assert!(sink.has_room().await);
            sink.give(number).await.unwrap();
            assert_eq!(given.try_recv(), Ok(number));
        }
        assert!(!waiting.is_finished());
        // Nobody takes the next one: others have the turn.
        sink.give(3).await.unwrap();
        sink.haste = Duration::ZERO;
        let (room, turn) = tokio::join!(sink.has_room(), async { drop(waiting.await.unwrap()) });
        assert_eq!((room, turn), (false, ()));
    }

    #[tokio::test]
    async fn what_nobody_takes_is_let_go_of() {
        let threads = StatementThreads::start(1).unwrap();
        let statement = |mut sink: ItemSink<u32>| async move {
            sink.patience = Duration::from_millis(10);
            for number in 0..100 {
                sink.give(number).await?;
            }
            Ok(100)
        };
        let mut items = threads.stream(&Caller::System, &Arc::default(), None, statement).unwrap();
        assert!(matches!(items.running.ended().await, Err(SqlError::Unread(_))));
        assert!(matches!(items.given.recv().await, Some(0)));
        assert!(items.given.recv().await.is_none());
    }

    #[tokio::test]
    async fn answers_on_their_way_are_bounded() {
        let threads = StatementThreads::start(1).unwrap();
        let start = || {
            threads.stream(&Caller::System, &Arc::default(), None, |_: ItemSink<u32>| std::future::pending())
        };
        let mut started = Vec::new();
        let refused = loop {
            match start() {
                Ok(items) => started.push(items),
                Err(error) => break error,
            }
        };
        assert_eq!(
            (refused.status(), started.len()),
            (429, LEAST_AT_WORK * crate::threads::SENDING_OF_OWNER_FOR_EACH)
        );
        drop(started);
        threads.run(&Caller::System, None, None, async { Ok(()) }).await.unwrap();
    }
}
