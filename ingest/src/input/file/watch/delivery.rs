//! Batches of files on their way: handed to the pipeline with the position behind them, and what became of them.

use bytes::Bytes;

use super::super::position::{Inode, Position, partition};
use super::Watch;
use super::stored::SOURCE;
use super::tracked::OpenFile;
use crate::batch::NotStored;
use crate::budget::Reservation;
use crate::input::{additions, stopped};
use crate::{Ack, Batch, Event, Move};

/// The file of a batch, its generation then, the position behind the batch, and what became of it.
pub(super) type AcknowledgedBatch = (Inode, u64, Option<Bytes>, Result<(), NotStored>);

impl Watch {
    /// Hands a batch to the pipeline; `false` when the input is to stop.
    pub(super) async fn send(
        &mut self,
        inode: Inode,
        tracked: &mut OpenFile,
        mut events: Vec<Event>,
        position: Option<Position>,
        held: Reservation,
    ) -> bool {
        let path = tracked.path.to_string_lossy();
        let (ecs, host) = (self.settings.ecs, self.settings.host.as_str());
        let mut additions = additions()
            .at(ecs.select(&["host"], &["host", "name"]), host)
            .at(ecs.select(&["path"], &["log", "file", "path"]), &*path)
            .metadata("path", &*path)
            .metadata("host", host);
        events.iter_mut().for_each(|event| additions.add_to(event));
        let new = position.map(Position::encode);
        let moved = new.clone().filter(|_| self.settings.stored).map(|new| Move {
            source: SOURCE.to_owned(),
            partition: partition(&tracked.name, &self.context.source),
            previous: tracked.sent.clone(),
            new,
            owner_epoch: tracked.epoch,
        });
        if let Some(moved) = &moved {
            tracked.sent = Some(moved.new.clone());
        }
        let (ack, stored) = Ack::channel();
        let generation = tracked.generation;
        tracked.in_flight += 1;
        tracked.batches += usize::from(!events.is_empty());
        self.acks.push(Box::pin(async move {
            let outcome = stored.await.unwrap_or(Err(NotStored::Ended));
            (inode, generation, new, outcome)
        }));
        let batch = Batch { events, position: moved, ack, held };
        tokio::select! {
            biased;
            () = stopped(&mut self.stopping) => false,
            sent = self.context.batches.send(batch) => sent.is_ok(),
        }
    }

    /// Notes what became of a batch.
    pub(super) fn acked(&mut self, (inode, generation, position, outcome): AcknowledgedBatch) {
        let Some(tracked) = self.files.get_mut(&inode).filter(|tracked| tracked.generation == generation)
        else {
            return;
        };
        tracked.in_flight = tracked.in_flight.saturating_sub(1);
        match outcome {
            Ok(()) => {
                if let Some(position) = position.as_deref().and_then(Position::decode) {
                    // Whatever order these are looked at in: what is behind is stored later.
                    tracked.stored = tracked.stored.max(position.offset);
                }
            }
            Err(reason) => {
                tracing::debug!(path = %tracked.path.display(), %reason, "file is read again from its stored position");
                tracked.again = true;
            }
        }
    }
}
