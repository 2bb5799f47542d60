//! Bytes of events in memory, counted over all pipelines of the process.
//!
//! One [`Budget`] bounds what inputs have read, what waits in queues, and what is on its way to outputs. A pipeline has a
//! [`PipelineShare`] of it, an input reserves before it reads, and a batch carries its [`Reservation`] until its source has been
//! told what became of it.
//!
//! A share may take up to as much as it leaves free: half of the budget where nobody else has any, a third where another
//! pipeline is stuck, and so on. So a pipeline whose output is down never takes the last byte from the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millrace_listen::Reserve;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Bytes of a budget where nothing else is said.
pub const DEFAULT_BYTES: u64 = 512 << 20;
/// Most bytes that an input reserves for what it reads at once.
const MAX_PIECE: u64 = 16 << 20;
/// Pieces that a budget has room for at least, so that many stuck pipelines leave one for another.
const PIECES: u64 = 32;

/// A bound in bytes; clones are the same one.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: u64,
    used: Mutex<u64>,
    /// Told when bytes are given back.
    released: Notify,
}

/// Share of one pipeline in a budget; clones are the same one.
#[derive(Clone, Debug)]
pub struct PipelineShare(Arc<ShareState>);

#[derive(Debug)]
struct ShareState {
    budget: Budget,
    /// Changes under the budget's lock only.
    used: AtomicU64,
}

/// Why bytes cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShareExceeded {
    /// They are more than a pipeline may ever have.
    #[error("the events take more than the [{0}] bytes that a pipeline may have in memory")]
    Never(u64),
    /// They are in use by others for now.
    #[error("events in memory take up all of their [{0}] bytes")]
    ForNow(u64),
}

/// Bytes of a share, given back on drop. The default one counts nothing, whatever it is set to.
#[derive(Debug, Default)]
#[must_use = "dropping it gives the bytes back"]
pub struct Reservation {
    share: Option<PipelineShare>,
    bytes: u64,
}

/// Memory of one delivery for what filters add to its events from other servers. It counts in the share of the pipeline, but never
/// waits: what would make room may be behind the delivery. Beyond half of the budget it refuses. The default one counts nothing.
#[derive(Debug, Default)]
pub struct AnswerAllowance {
    /// Reservation, and the most bytes that it may have.
    state: Option<(Mutex<Reservation>, u64)>,
    /// `true` once the log has a refusal.
    has_warned: AtomicBool,
}

/// Part of an allowance for an answer that is read, given back on drop.
#[derive(Debug)]
#[must_use = "dropping it gives the bytes back"]
pub struct AnswerReservation<'a> {
    allowance: &'a AnswerAllowance,
    bytes: u64,
}

/// Answers take too much memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswersExceeded {
    /// One alone does.
    #[error(
        "the answer takes more than [{0}] bytes of memory: ask for less, or raise [pipelines.memory_bytes]"
    )]
    One(u64),
    /// Those to all events of a delivery do.
    #[error(
        "the answers to the events of a delivery take more than [{0}] bytes of memory: lower [pipeline.batch.size]"
    )]
    All(u64),
}

impl AnswerAllowance {
    /// Makes the allowance of a delivery.
    pub fn new(share: &PipelineShare) -> Self {
        Self { state: Some((Mutex::new(share.empty()), share.most())), has_warned: AtomicBool::new(false) }
    }

    /// Begins an answer.
    pub fn answer(&self) -> AnswerReservation<'_> {
        AnswerReservation { allowance: self, bytes: 0 }
    }

    /// Counts bytes that events have got already.
    pub fn add(&self, bytes: u64) {
        if let Some((reservation, _)) = &self.state {
            let mut reservation = reservation.lock();
            let all = reservation.bytes().saturating_add(bytes);
            reservation.set(all);
        }
    }

    /// Takes what was reserved, for as long as the events are in memory.
    pub fn take(&self) -> Reservation {
        self.state
            .as_ref()
            .map(|(reservation, _)| std::mem::take(&mut *reservation.lock()))
            .unwrap_or_default()
    }
}

impl AnswerReservation<'_> {
    /// Reserves further bytes for the answer. The log has the first refusal of a delivery.
    ///
    /// # Errors
    /// The answers to the delivery would take too much memory.
    pub fn grow(&mut self, by: u64) -> Result<(), AnswersExceeded> {
        let Some((reservation, most)) = &self.allowance.state else { return Ok(()) };
        let mut reservation = reservation.lock();
        let all = reservation.bytes().saturating_add(by);
        if all > *most {
            let is_alone = self.bytes.saturating_add(by) > *most;
            let exceeded = if is_alone { AnswersExceeded::One(*most) } else { AnswersExceeded::All(*most) };
            if !self.allowance.has_warned.swap(true, Ordering::Relaxed) {
                tracing::warn!(reason = %exceeded, "a filter drops answers of a server, and tags their events");
            }
            return Err(exceeded);
        }
        reservation.set(all);
        self.bytes += by;
        Ok(())
    }
}

impl Drop for AnswerReservation<'_> {
    fn drop(&mut self) {
        if let Some((reservation, _)) = &self.allowance.state {
            let mut reservation = reservation.lock();
            let left = reservation.bytes().saturating_sub(self.bytes);
            reservation.set(left);
        }
    }
}

impl Budget {
    /// Makes a budget of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self(Arc::new(Inner { limit, used: Mutex::new(0), released: Notify::new() }))
    }

    /// Makes the share of another pipeline.
    pub fn share(&self) -> PipelineShare {
        PipelineShare(Arc::new(ShareState { budget: self.clone(), used: AtomicU64::new(0) }))
    }

    /// Returns the bytes in use.
    pub fn used(&self) -> u64 {
        *self.0.used.lock()
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(DEFAULT_BYTES)
    }
}

impl PipelineShare {
    /// Makes another share of the same budget, for what empties this one and so must not wait for it.
    pub fn sibling(&self) -> Self {
        self.0.budget.share()
    }

    /// Returns the bytes that a pipeline may have where no other one has any.
    pub fn most(&self) -> u64 {
        self.limit() / 2
    }

    /// Returns the bytes that an input reserves for what it reads at once.
    pub fn piece(&self) -> u64 {
        (self.limit() / PIECES).min(MAX_PIECE)
    }

    /// Returns the bytes in use.
    pub fn used(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Makes a reservation of nothing, which can grow.
    pub fn empty(&self) -> Reservation {
        Reservation { share: Some(self.clone()), bytes: 0 }
    }

    /// Makes a reservation whether there is room or not, for what is in memory already: the end of a piece that took more
    /// than was reserved for it.
    pub fn overdraw(&self, bytes: u64) -> Reservation {
        let mut reservation = self.empty();
        reservation.set(bytes);
        reservation
    }

    /// Waits for room for a piece. Who waits must hold no other reservation that only it can give back.
    ///
    /// Cancel safe: dropping the future reserves nothing.
    pub async fn wait_for_piece(&self) -> Reservation {
        let bytes = self.piece();
        loop {
            let released = self.0.budget.0.released.notified();
            tokio::pin!(released);
            // Enlisted before looking, so that no release in between is missed.
            released.as_mut().enable();
            if self.take(bytes) {
                return Reservation { share: Some(self.clone()), bytes };
            }
            released.await;
        }
    }

    fn limit(&self) -> u64 {
        self.0.budget.0.limit
    }

    /// Takes bytes if no more are in use by this share then than are free. A share that has none may take what is free.
    fn take(&self, bytes: u64) -> bool {
        let mut used = self.0.budget.0.used.lock();
        let own = self.0.used.load(Ordering::Relaxed);
        let free = self.limit().saturating_sub(*used);
        let fits =
            if own == 0 { bytes <= free } else { own.saturating_add(bytes) <= free.saturating_sub(bytes) };
        if fits {
            *used += bytes;
            self.0.used.store(own + bytes, Ordering::Relaxed);
        }
        fits
    }

    fn add(&self, bytes: u64) {
        let mut used = self.0.budget.0.used.lock();
        *used += bytes;
        self.0.used.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let mut used = self.0.budget.0.used.lock();
        *used -= bytes;
        self.0.used.fetch_sub(bytes, Ordering::Relaxed);
        drop(used);
        self.0.budget.0.released.notify_waiters();
    }
}

impl Reservation {
    /// Returns the bytes reserved.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reserves further bytes.
    ///
    /// # Errors
    /// [`ShareExceeded::Never`] where the whole would not fit if nothing else were reserved, [`ShareExceeded::ForNow`] where it
    /// may fit later. The reservation stays as it was.
    pub fn grow(&mut self, by: u64) -> Result<(), ShareExceeded> {
        if let Some(share) = &self.share {
            if self.bytes.saturating_add(by) > share.most() {
                return Err(ShareExceeded::Never(share.most()));
            }
            if !share.take(by) {
                return Err(ShareExceeded::ForNow(share.limit()));
            }
        }
        self.bytes += by;
        Ok(())
    }

    /// Makes it as large as what is in memory by now, whether there is room for that or not.
    pub fn set(&mut self, bytes: u64) {
        if let Some(share) = &self.share {
            share.add(bytes.saturating_sub(self.bytes));
            share.give_back(self.bytes.saturating_sub(bytes));
        }
        self.bytes = bytes;
    }

    /// Parts with up to `bytes` bytes, for what goes its own way.
    pub fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { share: self.share.clone(), bytes }
    }
}

impl Reserve for Reservation {
    type Refusal = ShareExceeded;

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn grow(&mut self, by: u64) -> Result<(), ShareExceeded> {
        Self::grow(self, by)
    }

    fn shrink_to(&mut self, bytes: u64) {
        self.set(self.bytes.min(bytes));
    }

    fn is_scarce(&self) -> bool {
        self.share.as_ref().is_some_and(|share| *share.0.budget.0.used.lock() > share.limit() / 2)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_share_takes_no_more_than_it_leaves() {
        let budget = Budget::new(1200);
        let shares = [budget.share(), budget.share(), budget.share()];
        let mut taken: Vec<Reservation> = shares.iter().map(PipelineShare::empty).collect();
        let mut fill = |at: usize| {
            while taken[at].grow(1).is_ok() {}
            taken[at].bytes()
        };
        assert_eq!(fill(0), 600);
        assert_eq!(fill(1), 300);
        assert_eq!(fill(2), 150);
        // What others give back may be had again.
        taken[0].set(0);
        assert_eq!(taken[2].grow(200), Ok(()));
        assert_eq!(taken[2].grow(600), Err(ShareExceeded::Never(600)));
        assert_eq!(taken[2].grow(200), Err(ShareExceeded::ForNow(1200)));
        taken.clear();
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn answers_to_a_delivery_are_bounded() {
        let budget = Budget::new(1_000);
        // Others have all of it: a delivery does not wait for them.
        let _others = budget.share().overdraw(1_000);
        let allowance = AnswerAllowance::new(&budget.share());
        let mut answer = allowance.answer();
        assert_eq!((answer.grow(400), budget.used()), (Ok(()), 1_400));
        let mut second = allowance.answer();
        assert_eq!(second.grow(200), Err(AnswersExceeded::All(500)));
        assert_eq!(second.grow(501), Err(AnswersExceeded::One(500)));
        drop(answer);
        assert_eq!(second.grow(200), Ok(()));
        drop(second);
        allowance.add(30);
        let held = allowance.take();
        assert_eq!((held.bytes(), budget.used()), (30, 1_030));
        drop((allowance, held));
        assert_eq!(budget.used(), 1_000);
    }

    #[tokio::test]
    async fn a_piece_is_waited_for() {
        let budget = Budget::new(64);
        let share = budget.share();
        let held = share.overdraw(90);
        let other = budget.share();
        let mut waits = Box::pin(other.wait_for_piece());
        assert!(waits.as_mut().now_or_never().is_none());
        drop(held);
        let mut piece = waits.await;
        assert_eq!((piece.bytes(), budget.used()), (2, 2));
        piece.set(10);
        let part = piece.split(4);
        drop(piece);
        assert_eq!((part.bytes(), other.used(), budget.used()), (4, 4, 4));
        drop(part);
        let mut full = share.empty();
        while full.grow(1).is_ok() {}
        assert!(share.wait_for_piece().now_or_never().is_none());
        assert!(share.sibling().wait_for_piece().now_or_never().is_some());
        drop(full);
        let mut nothing = Reservation::default();
        nothing.set(1000);
        assert_eq!(budget.used(), 0);
    }
}
