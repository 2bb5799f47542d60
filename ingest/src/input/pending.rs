//! Batches of an input on their way: handed on in order, and not yet stored.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use super::{Context, InputError, stopped};
use crate::batch::NotStored;
use crate::budget::Reservation;
use crate::{Ack, Batch, Event, Move};

/// Why a run ended early.
#[derive(Debug)]
pub(super) enum RunEnd {
    /// The input is to stop.
    Stopped,
    Failed(InputError),
}

impl RunEnd {
    pub(super) fn failed(why: impl Into<String>) -> Self {
        Self::Failed(InputError(why.into()))
    }

    fn not_stored(why: &NotStored) -> Self {
        Self::failed(why.to_string())
    }
}

/// Batches that were handed on, in their order.
#[derive(Debug, Default)]
pub(super) struct PendingBatches {
    queue: VecDeque<oneshot::Receiver<Result<(), NotStored>>>,
}

impl PendingBatches {
    /// Hands events on, with the position behind them where they move it. Waits while the pipeline is behind.
    ///
    /// # Errors
    /// The input is to stop, or the pipeline has ended.
    pub(super) async fn send(
        &mut self,
        context: &mut Context,
        events: Vec<Event>,
        position: Option<Move>,
        held: Reservation,
    ) -> Result<(), RunEnd> {
        let (ack, stored) = Ack::channel();
        tokio::select! {
            biased;
            () = stopped(&mut context.stopping) => Err(RunEnd::Stopped),
            sent = context.batches.send(Batch { events, position, ack, held }) => {
                sent.map_err(|_| RunEnd::Stopped)?;
                self.queue.push_back(stored);
                Ok(())
            }
        }
    }

    /// Checks the outcome of earlier batches.
    ///
    /// # Errors
    /// One was not stored.
    pub(super) fn check(&mut self) -> Result<(), RunEnd> {
        while let Some(first) = self.queue.front_mut() {
            match first.try_recv() {
                Err(oneshot::error::TryRecvError::Empty) => break,
                Err(oneshot::error::TryRecvError::Closed) => {
                    return Err(RunEnd::not_stored(&NotStored::Ended));
                }
                Ok(stored) => stored.map_err(|why| RunEnd::not_stored(&why))?,
            }
            self.queue.pop_front();
        }
        Ok(())
    }

    /// Waits until all batches are stored.
    ///
    /// # Errors
    /// The input is to stop, or a batch was not stored.
    pub(super) async fn drain(&mut self, context: &mut Context) -> Result<(), RunEnd> {
        while let Some(first) = self.queue.pop_front() {
            tokio::select! {
                biased;
                stored = first => {
                    stored.unwrap_or(Err(NotStored::Ended)).map_err(|why| RunEnd::not_stored(&why))?;
                }
                () = stopped(&mut context.stopping) => return Err(RunEnd::Stopped),
            }
        }
        Ok(())
    }
}
