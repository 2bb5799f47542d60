//! Batches of a source: events, the position that they move, and the waiting acknowledgement.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::Event;
use crate::budget::Reservation;

/// Events of one source that are stored together.
#[derive(Debug)]
pub struct Batch {
    /// The events, in the order of the source.
    pub events: Vec<Event>,
    /// Move of the source's position, committed in one frame with the events.
    pub position: Option<Move>,
    /// Acknowledgement once all events are durable.
    pub ack: Ack,
    /// Room in memory that the events take, until what became of them was told.
    pub held: Reservation,
}

/// A move of the position of a part of a source; the pipeline adds its own id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Natural identity of the source: topic and group, table and statement, file.
    pub source: String,
    /// Part of the source with a position of its own.
    pub partition: String,
    /// Position before the batch, `None` for the first.
    pub previous: Option<Bytes>,
    /// Position after the batch.
    pub new: Bytes,
    /// Epoch of the partition's owner, from [`crate::input::Positions::claim`].
    pub owner_epoch: u64,
}

/// Why a batch was not stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotStored {
    /// The pipeline ends or failed before it was: to be sent again.
    #[error("the pipeline ended before the events were stored")]
    Ended,
    /// The position is not what the batch said: another owner took the partition over, or it is
    /// stored already. To be read again from the stored position.
    #[error("the source's position was moved by another owner")]
    Moved,
    /// The store refuses for now.
    #[error("{0}")]
    Overloaded(String),
}

/// The acknowledgement that a source waits for. Dropped unused, it tells [`NotStored::Ended`].
#[derive(Debug, Default)]
pub struct Ack {
    told: Option<oneshot::Sender<Result<(), NotStored>>>,
    /// State by which the source may withdraw the batch.
    state: Option<Arc<AtomicU8>>,
}

/// Nobody has accepted the batch yet.
const OFFERED: u8 = 0;
const ACCEPTED: u8 = 1;
const WITHDRAWN: u8 = 2;

/// Lets a source withdraw a batch for as long as no queue has accepted it.
#[derive(Debug)]
pub struct Withdrawal(Arc<AtomicU8>);

impl Withdrawal {
    /// Withdraws the batch; returns whether it was, so that it is never stored.
    pub fn withdraw(&self) -> bool {
        self.0.compare_exchange(OFFERED, WITHDRAWN, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

impl Ack {
    /// An acknowledgement for which nobody waits.
    pub fn none() -> Self {
        Self::default()
    }

    /// An acknowledgement and what waits for it; a closed channel means [`NotStored::Ended`].
    pub fn channel() -> (Self, oneshot::Receiver<Result<(), NotStored>>) {
        let (sender, receiver) = oneshot::channel();
        (Self { told: Some(sender), state: None }, receiver)
    }

    /// An acknowledgement of a batch that its source may withdraw: the waiting part, and the withdrawing part.
    pub fn withdrawable() -> (Self, oneshot::Receiver<Result<(), NotStored>>, Withdrawal) {
        let (ack, receiver) = Self::channel();
        let state = Arc::new(AtomicU8::new(OFFERED));
        (Self { state: Some(Arc::clone(&state)), ..ack }, receiver, Withdrawal(state))
    }

    /// Accepts the batch: it has its place, and cannot be withdrawn any more. Returns `false` if it was withdrawn; then it must not be stored.
    pub fn accept(&self) -> bool {
        let Some(state) = &self.state else { return true };
        match state.compare_exchange(OFFERED, ACCEPTED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(state) => state == ACCEPTED,
        }
    }

    /// Returns whether a source waits for the outcome.
    pub fn is_awaited(&self) -> bool {
        self.told.is_some()
    }

    /// Returns whether the source has withdrawn the batch.
    pub fn is_withdrawn(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.load(Ordering::Acquire) == WITHDRAWN)
    }

    /// Tells the source what became of its batch.
    pub fn tell(self, outcome: Result<(), NotStored>) {
        if let Some(sender) = self.told {
            // A source that has gone away reads again from the stored position.
            let _ = sender.send(outcome);
        }
    }
}
