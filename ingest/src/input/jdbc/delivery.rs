//! Handing batches on and waiting until they are stored.

use std::collections::VecDeque;

use bytes::Bytes;
use tokio::sync::{oneshot, watch};

use crate::batch::NotStored;
use crate::budget::Reservation;
use crate::input::{Context, InputError, room};
use crate::{Ack, Batch, Event, Move};

/// The one part that a statement has.
pub(super) const PARTITION: &str = "rows";

/// Why a run ended early.
#[derive(Debug)]
pub(super) enum Ended {
    /// The input is to stop.
    Stopped,
    /// It failed.
    Failed(InputError),
}

impl Ended {
    pub(super) fn failed(why: impl Into<String>) -> Self {
        Self::Failed(InputError(why.into()))
    }
}

/// Waits until the input is to stop.
pub(super) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // A pipeline that is gone wants no more either.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

/// Rows that become a batch.
#[derive(Debug, Default)]
pub(super) struct Rows {
    events: Vec<Event>,
    bytes: u64,
    held: Reservation,
}

impl Rows {
    /// Rows for which there is room.
    pub(super) fn within(held: Reservation) -> Self {
        Self { held, ..Self::default() }
    }

    pub(super) fn push(&mut self, event: Event) {
        self.bytes += event.bytes();
        self.events.push(event);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Whether they are a batch of so many events, or take what was reserved.
    pub(super) fn is_full(&self, size: usize) -> bool {
        self.events.len() >= size || self.bytes >= self.held.bytes()
    }
}

/// Batches of one statement on their way.
#[derive(Debug)]
pub(super) struct Delivery {
    context: Context,
    source: String,
    owner_epoch: u64,
    /// Position behind all that was handed on.
    position: Option<Bytes>,
    pending: VecDeque<oneshot::Receiver<Result<(), NotStored>>>,
}

impl Delivery {
    /// Takes the statement over. Answers its stored position too.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn claim(context: Context, source: String) -> Result<(Self, Option<Bytes>), InputError> {
        let (position, owner_epoch) = context.positions.claim(&source, PARTITION).await?;
        let delivery =
            Self { context, source, owner_epoch, position: position.clone(), pending: VecDeque::new() };
        Ok((delivery, position))
    }

    /// Greatest number of events of a batch.
    pub(super) fn batch_size(&self) -> usize {
        self.context.batch_size.get()
    }

    /// Waits for room for the rows of a batch.
    ///
    /// # Errors
    /// The input is to stop.
    pub(super) async fn room(&self) -> Result<Reservation, Ended> {
        room(&self.context).await.ok_or(Ended::Stopped)
    }

    /// Hands events on, with the position behind them where they move it. Waits while the pipeline is
    /// behind.
    ///
    /// # Errors
    /// The pipeline ends, or an earlier batch was not stored.
    pub(super) async fn send(&mut self, rows: Rows, position: Option<Bytes>) -> Result<(), Ended> {
        let Rows { events, bytes, mut held } = rows;
        held.set(bytes);
        self.check()?;
        let position = position.map(|new| Move {
            source: self.source.clone(),
            partition: PARTITION.to_owned(),
            previous: self.position.replace(new.clone()),
            new,
            owner_epoch: self.owner_epoch,
        });
        let (ack, stored) = Ack::channel();
        tokio::select! {
            biased;
            () = stopped(&mut self.context.stopping) => Err(Ended::Stopped),
            sent = self.context.batches.send(Batch { events, position, ack, held }) => {
                sent.map_err(|_| Ended::Stopped)?;
                self.pending.push_back(stored);
                Ok(())
            }
        }
    }

    /// Looks what became of earlier batches.
    fn check(&mut self) -> Result<(), Ended> {
        while let Some(first) = self.pending.front_mut() {
            match first.try_recv() {
                Err(oneshot::error::TryRecvError::Empty) => break,
                Err(oneshot::error::TryRecvError::Closed) => return Err(not_stored(NotStored::Ended)),
                Ok(stored) => stored.map_err(not_stored)?,
            }
            self.pending.pop_front();
        }
        Ok(())
    }

    /// Waits until all batches are stored.
    ///
    /// # Errors
    /// The pipeline ends, or a batch was not stored.
    pub(super) async fn settle(&mut self) -> Result<(), Ended> {
        while let Some(first) = self.pending.pop_front() {
            tokio::select! {
                biased;
                stored = first => stored.unwrap_or(Err(NotStored::Ended)).map_err(not_stored)?,
                () = stopped(&mut self.context.stopping) => return Err(Ended::Stopped),
            }
        }
        Ok(())
    }
}

fn not_stored(why: NotStored) -> Ended {
    Ended::failed(why.to_string())
}
