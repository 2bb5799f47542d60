//! Taking a statement over, handing batches on, and waiting until they are stored.
//!
//! The source of positions is what is read ([`Names::source`]), its parts are the inputs that read it, by their names in the
//! pipeline. A part of an input that the pipeline has no more (it was given an id, or another user), or of an earlier version, which
//! had one part for all inputs of a statement, is carried over: claimed, so that its owner moves it no further, and
//! stored as this input's own before anything is read.

use bytes::Bytes;

use super::tracking::ran_ms;
use crate::budget::Reservation;
use crate::input::pending::{PendingBatches, RunEnd};
use crate::input::{Context, InputError, reserve_piece, stopped};
use crate::{Ack, Batch, Event, Move};

/// The one part that a statement had in earlier versions.
const FORMER_PARTITION: &str = "rows";

/// Names under which positions of a statement are kept.
#[derive(Debug)]
pub(super) struct Names {
    /// The source.
    pub(super) source: String,
    /// The source in earlier versions.
    pub(super) former: String,
    /// `true` if positions are stored.
    pub(super) record: bool,
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

    /// Returns whether they are a batch of so many events, or take what was reserved.
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
    pending: PendingBatches,
}

impl Delivery {
    /// Takes the statement over. Answers its stored position too.
    ///
    /// # Errors
    /// The store's, or the input is to stop.
    pub(super) async fn claim(context: Context, names: Names) -> Result<(Self, Option<Bytes>), RunEnd> {
        let Names { source, former, record } = names;
        let claimed = context.positions.claim(&source, &context.source).await;
        let (position, owner_epoch) = claimed.map_err(RunEnd::Failed)?;
        let mut delivery = Self {
            context,
            source,
            owner_epoch,
            position: position.clone(),
            pending: PendingBatches::default(),
        };
        if !record {
            return Ok((delivery, position));
        }
        let listed = delivery.left_behind(&former).await.map_err(RunEnd::Failed)?;
        let Some(_) = position else {
            let inherited = delivery.inherit(listed).await?;
            return Ok((delivery, inherited));
        };
        for (source, partition) in listed {
            delivery.forget(source, partition).await?;
        }
        Ok((delivery, position))
    }

    /// Parts that no input of the pipeline has.
    async fn left_behind(&self, former: &str) -> Result<Vec<(String, String)>, InputError> {
        let Context { positions, source: own, siblings, .. } = &self.context;
        let belongs = |part: &str| part == &**own || siblings.iter().any(|sibling| part == &**sibling);
        let listed = positions.list(&self.source).await?.into_iter().map(|(part, _)| part);
        let mut left: Vec<_> = listed.filter(|part| !belongs(part)).collect();
        // Their first batches may still be under way.
        let gone = self.context.former.iter().map(|name| name.to_string());
        for name in gone.filter(|name| !belongs(name)) {
            if !left.contains(&name) {
                left.push(name);
            }
        }
        let mut left: Vec<_> = left.into_iter().map(|part| (self.source.clone(), part)).collect();
        let earlier = positions.list(former).await?.into_iter().map(|(part, _)| part);
        left.extend(earlier.filter(|part| part == FORMER_PARTITION).map(|part| (former.to_owned(), part)));
        Ok(left)
    }

    /// Goes on from the newest of other parts, which is claimed first: this input reads batches in flight of its owner again.
    async fn inherit(&mut self, parts: Vec<(String, String)>) -> Result<Option<Bytes>, RunEnd> {
        let mut newest: Option<Bytes> = None;
        for (source, partition) in &parts {
            let claimed = self.context.positions.claim(source, partition).await;
            let (position, _) = claimed.map_err(RunEnd::Failed)?;
            let Some(position) = position else { continue };
            if newest.as_ref().is_none_or(|newest| ran_ms(newest) < ran_ms(&position)) {
                newest = Some(position);
            }
        }
        let Some(inherited) = newest else { return Ok(None) };
        self.send(Rows::default(), Some(inherited.clone())).await?;
        self.drain().await?;
        if self.context.siblings.is_empty() {
            // Nobody else can be meant by it. Where there are others it stays until all have theirs: at the next start.
            for (source, partition) in parts {
                self.forget(source, partition).await?;
            }
        }
        Ok(Some(inherited))
    }

    /// Forgets a part.
    async fn forget(&mut self, source: String, partition: String) -> Result<(), RunEnd> {
        let claimed = self.context.positions.claim(&source, &partition).await;
        let (Some(previous), owner_epoch) = claimed.map_err(RunEnd::Failed)? else { return Ok(()) };
        let position =
            Some(Move { source, partition, previous: Some(previous), new: Bytes::new(), owner_epoch });
        let batch = Batch { events: Vec::new(), position, ack: Ack::none(), held: Reservation::default() };
        tokio::select! {
            biased;
            () = stopped(&mut self.context.stopping) => Err(RunEnd::Stopped),
            // What is not forgotten now is forgotten after another start.
            sent = self.context.batches.send(batch) => sent.map_err(|_| RunEnd::Stopped),
        }
    }

    /// Greatest number of events of a batch.
    pub(super) fn batch_size(&self) -> usize {
        self.context.batch_size.get()
    }

    /// Waits for room for the rows of a batch.
    ///
    /// # Errors
    /// The input is to stop.
    pub(super) async fn reserve_piece(&self) -> Result<Reservation, RunEnd> {
        reserve_piece(&self.context).await.ok_or(RunEnd::Stopped)
    }

    /// Hands events on, with the position behind them where they move it. Waits while the pipeline is
    /// behind.
    ///
    /// # Errors
    /// The pipeline ends, or an earlier batch was not stored.
    pub(super) async fn send(&mut self, rows: Rows, position: Option<Bytes>) -> Result<(), RunEnd> {
        let Rows { events, bytes, mut held } = rows;
        held.set(bytes);
        self.pending.check()?;
        let position = position.map(|new| Move {
            source: self.source.clone(),
            partition: self.context.source.to_string(),
            previous: self.position.replace(new.clone()),
            new,
            owner_epoch: self.owner_epoch,
        });
        self.pending.send(&mut self.context, events, position, held).await
    }

    /// Waits until all batches are stored.
    ///
    /// # Errors
    /// The pipeline ends, or a batch was not stored.
    pub(super) async fn drain(&mut self) -> Result<(), RunEnd> {
        self.pending.drain(&mut self.context).await
    }
}
