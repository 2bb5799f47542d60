//! What a source hands on at once: events, the position that they move, and who waits for it.

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
    /// Who is told when all events are durable.
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
pub struct Ack(Option<oneshot::Sender<Result<(), NotStored>>>);

impl Ack {
    /// An acknowledgement for which nobody waits.
    pub fn none() -> Self {
        Self(None)
    }

    /// An acknowledgement and what waits for it; a closed channel means [`NotStored::Ended`].
    pub fn channel() -> (Self, oneshot::Receiver<Result<(), NotStored>>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Some(sender)), receiver)
    }

    /// Tells the source what became of its batch.
    pub fn tell(self, outcome: Result<(), NotStored>) {
        if let Some(sender) = self.0 {
            // A source that has gone away reads again from the stored position.
            let _ = sender.send(outcome);
        }
    }
}
