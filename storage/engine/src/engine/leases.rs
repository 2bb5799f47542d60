//! Leases on the log: positions from which readers of the change feed need it, so that it is not cut beyond them.
//!
//! Every reader has one while it is there. A reader that must lose nothing over a restart has a *named* lease as well: it
//! is in the catalog, and known again before anything may cut the log. Moving one costs nothing; the catalog learns of it
//! when the log is cut, before files go, so that what it has never names a frame that is gone because of that.
//!
//! Leases are bounded: one from which on the log has more than [`MAX_LEASE_LOGS`] times `storage.wal_max_bytes`, and a
//! named one that nobody has moved for [`MAX_LEASE_AGE_MS`], *lapses*: it holds nothing any more. Its reader is told of
//! the frames that are gone, and has a lease again once it goes on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::Ordering;

use millrace_catalog::frame::FrameNumber;
use millrace_catalog::{Commit, LeaseRecord};
use millrace_runtime::{Error, Result, sync};

use super::{Engine, Inner};
use crate::Config;
use crate::wal::Wal;

/// Size of the log, in multiples of its ordinary bound, beyond which leases lapse.
const MAX_LEASE_LOGS: u64 = 8;
/// Time after which a named lease lapses that nobody has moved, not even to where it was: seven days.
const MAX_LEASE_AGE_MS: i64 = 7 * 24 * 60 * 60 * 1000;
/// Time by which what the catalog says of when a lease was moved may be behind: an hour.
const MOVED_SAVED_MS: u64 = 60 * 60 * 1000;
/// Named leases of a node. Where there are as many, the one that lapsed first for its age goes when another is taken.
const MAX_NAMED: usize = 64;
/// Bytes of a name.
const MAX_NAME_BYTES: usize = 256;

/// A named lease on the log, as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// First frame that it is about.
    pub position: FrameNumber,
    /// `true` if it holds nothing any more, and frames from its position on may be gone.
    pub lapsed: bool,
}

#[derive(Debug)]
struct NamedLease {
    position: FrameNumber,
    moved_ms: i64,
    lapsed: bool,
    /// Position in the catalog, and the time of its move.
    saved: Option<(FrameNumber, i64)>,
}

impl NamedLease {
    /// Returns whether the catalog is to be told. Of one that is only moved to where it is, it is now and then: what does not
    /// grow old is not to be older after a restart.
    fn is_unsaved(&self) -> bool {
        self.is_overdue() || self.saved.is_none_or(|(position, _)| position != self.position)
    }

    /// Returns whether what the catalog has of when it was moved is too old.
    fn is_overdue(&self) -> bool {
        self.saved.is_some_and(|(_, moved_ms)| moved_ms.abs_diff(self.moved_ms) > MOVED_SAVED_MS)
    }
}

/// Positions that readers need the log from.
#[derive(Debug, Default)]
pub(super) struct Leases {
    next: u64,
    readers: HashMap<u64, FrameNumber>,
    named: BTreeMap<String, NamedLease>,
    /// Names that were given up and that the catalog still has.
    released: BTreeSet<String>,
    /// Frames below this number are gone, or about to be.
    removed_below: FrameNumber,
}

impl Leases {
    /// The leases of the catalog.
    pub(super) fn load(stored: Vec<LeaseRecord>) -> Self {
        let named = stored.into_iter().map(|LeaseRecord { name, frame, moved_ms }| {
            (name, NamedLease { position: frame, moved_ms, lapsed: false, saved: Some((frame, moved_ms)) })
        });
        Self { named: named.collect(), ..Self::default() }
    }

    /// Grants a reader a lease; it holds what is still there.
    pub(super) fn grant(&mut self, from: FrameNumber) -> u64 {
        self.next += 1;
        self.readers.insert(self.next, from.max(self.removed_below));
        self.next
    }

    /// Moves a reader's lease, also one that has lapsed: who goes on has a new one from there.
    pub(super) fn advance(&mut self, reader: u64, next: FrameNumber) {
        self.readers.insert(reader, next);
    }

    /// Ends a reader's lease.
    pub(super) fn end(&mut self, reader: u64) {
        self.readers.remove(&reader);
    }

    /// Least position of a reader that is there.
    pub(super) fn least_reader(&self) -> Option<FrameNumber> {
        self.readers.values().copied().min()
    }

    /// Number below which frames are gone, or about to be.
    pub(super) fn removed_below(&self) -> FrameNumber {
        self.removed_below
    }

    /// Least position that still holds the log; ends the leases that are too far behind or too old.
    pub(super) fn least(&mut self, wal: &Wal, config: &Config, now_ms: i64) -> Option<FrameNumber> {
        let first = wal.first_frame().max(self.removed_below);
        for (name, lease) in self.named.iter_mut().filter(|(_, lease)| !lease.lapsed) {
            // One that has lost frames before the last restart had lapsed.
            lease.lapsed = lease.position < first || now_ms.saturating_sub(lease.moved_ms) > MAX_LEASE_AGE_MS;
            if lease.lapsed {
                tracing::warn!(name, position = lease.position, "a lease on the log has lapsed");
            }
        }
        let most = config.wal_max_bytes.saturating_mul(MAX_LEASE_LOGS);
        while let Some(least) = self.positions().min()
            && wal.bytes_from(least) > most
        {
            let before = self.positions().count();
            self.readers.retain(|_, position| *position > least);
            self.named
                .values_mut()
                .filter(|lease| lease.position <= least)
                .for_each(|lease| lease.lapsed = true);
            let ended = before - self.positions().count();
            tracing::warn!(readers = ended, "change feed readers fell too far behind, their leases end");
        }
        self.positions().min()
    }

    fn positions(&self) -> impl Iterator<Item = FrameNumber> {
        let named = self.named.values().filter(|lease| !lease.lapsed).map(|lease| lease.position);
        self.readers.values().copied().chain(named)
    }

    /// Gives up the frames below `next`, which are about to be removed, unless a reader needs one of them. A
    /// lease that is granted later begins behind them.
    pub(super) fn give_up_below(
        &mut self,
        next: FrameNumber,
        wal: &Wal,
        config: &Config,
        now_ms: i64,
    ) -> bool {
        if self.least(wal, config, now_ms).is_some_and(|least| least < next) {
            return false;
        }
        self.removed_below = self.removed_below.max(next);
        true
    }

    /// Returns whether the catalog is to be told of something.
    pub(super) fn has_unsaved(&self) -> bool {
        !self.released.is_empty() || self.named.values().any(NamedLease::is_unsaved)
    }

    fn unsaved(&self) -> Commit {
        let moved = self.named.iter().filter(|(_, lease)| lease.is_unsaved());
        let leases = moved.map(|(name, lease)| LeaseRecord {
            name: name.clone(),
            frame: lease.position,
            moved_ms: lease.moved_ms,
        });
        Commit {
            leases: leases.collect(),
            released: self.released.iter().cloned().collect(),
            ..Commit::default()
        }
    }

    fn saved(&mut self, commit: &Commit) {
        for record in &commit.leases {
            if let Some(lease) = self.named.get_mut(&record.name) {
                lease.saved = Some((record.frame, record.moved_ms));
            }
        }
        self.released.retain(|name| !commit.released.contains(name));
    }

    /// Renews a lease, if there is one; `first` is the first frame of the log. The catalog is to be told.
    fn renew(&mut self, name: &str, first: FrameNumber, now_ms: i64) -> bool {
        let first = first.max(self.removed_below);
        let Some(lease) = self.named.get_mut(name) else { return false };
        lease.moved_ms = now_ms;
        lease.lapsed = lease.position < first;
        lease.saved = None;
        true
    }

    /// Finds a place for another lease; the one that has lapsed for its age first makes room if there is none.
    fn make_room(&mut self, now_ms: i64) -> Result<()> {
        if self.named.len() < MAX_NAMED {
            return Ok(());
        }
        let is_old = |lease: &NamedLease| now_ms.saturating_sub(lease.moved_ms) > MAX_LEASE_AGE_MS;
        let old = self.named.iter().filter(|(_, lease)| is_old(lease));
        let Some((oldest, _)) = old.min_by_key(|(_, lease)| lease.moved_ms) else {
            return Err(Error::Rejected(format!("there are {MAX_NAMED} leases on the log already")));
        };
        let oldest = oldest.clone();
        tracing::warn!(name = oldest, "a lease on the log that has lapsed is given up for another");
        self.named.remove(&oldest);
        self.released.insert(oldest);
        Ok(())
    }

    /// Looks at a lease; `first` is the first frame of the log.
    fn lease(&self, name: &str, first: FrameNumber) -> Option<Lease> {
        let NamedLease { position, lapsed, .. } = self.named.get(name)?;
        Some(Lease { position: *position, lapsed: *lapsed || *position < first.max(self.removed_below) })
    }
}

impl Engine {
    /// Takes a named lease on the log, or takes it up again where it is: `from` is the first frame that a new one holds,
    /// that of now where there is none. One that is taken up is as if it was moved to where it is: one that has lapsed holds
    /// the log again where its frames are still there. Durable when this returns.
    ///
    /// # Errors
    /// Too many leases, too long a name, the catalog's.
    pub async fn take_lease(&self, name: &str, from: Option<FrameNumber>) -> Result<Lease> {
        let inner = &self.inner;
        inner.check_accepting()?;
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            let bytes = name.len();
            return Err(Error::IllegalArgument(format!(
                "the name of a lease has {bytes} bytes, 1 to {MAX_NAME_BYTES} are allowed"
            )));
        }
        let taken = sync::scope(async {
            let _one = inner.cutting.lock().await;
            let (wal, moved_ms) = (inner.wal()?, inner.clock.now_ms());
            let is_new = {
                let mut leases = inner.leases.lock();
                !leases.renew(name, wal.first_frame(), moved_ms)
            };
            if is_new {
                let mut leases = inner.leases.lock();
                leases.make_room(moved_ms)?;
                // Only what is durable is there after a power loss.
                let durable = wal.durable_below();
                let first = wal.first_frame().max(leases.removed_below);
                let position = from.unwrap_or(durable).clamp(first.min(durable), durable);
                // Before the catalog has it: from now on nothing is cut that it is to hold.
                leases.released.remove(name);
                let lease = NamedLease { position, moved_ms, lapsed: false, saved: None };
                leases.named.insert(name.to_owned(), lease);
            }
            if let Err(error) = inner.save_leases().await {
                if is_new {
                    inner.leases.lock().named.remove(name);
                }
                return Err(error);
            }
            let lease = inner.leases.lock().lease(name, wal.first_frame());
            lease.ok_or_else(|| Error::Internal(format!("lease [{name}] is gone")))
        });
        taken.await
    }

    /// Returns a named lease.
    pub fn lease(&self, name: &str) -> Option<Lease> {
        let first = self.inner.wal().map_or(0, |wal| wal.first_frame());
        self.inner.leases.lock().lease(name, first)
    }

    /// Moves a named lease: frames below `to` are needed no more. In memory; the catalog learns of it with time, so that
    /// after a crash it may be where it was before. It never goes back, nor beyond what is durable. One that has lapsed
    /// holds the log again. Who has nothing to move it by moves it to where it is, so that it does not grow old.
    ///
    /// # Errors
    /// [`Error::IllegalArgument`] where there is no such lease.
    pub fn move_lease(&self, name: &str, to: FrameNumber) -> Result<()> {
        let inner = &self.inner;
        let wal = inner.wal()?;
        let durable = wal.durable_below();
        {
            let mut leases = inner.leases.lock();
            let removed_below = leases.removed_below;
            let Some(lease) = leases.named.get_mut(name) else {
                return Err(Error::IllegalArgument(format!("there is no lease [{name}] on the log")));
            };
            lease.position = lease.position.max(to.min(durable));
            lease.moved_ms = inner.clock.now_ms();
            lease.lapsed = lease.position < removed_below;
        }
        // A reader that keeps up is not to cost the log more than its bound.
        if wal.bytes() > inner.config.wal_max_bytes && wal.oldest_removable(to.min(durable)).is_some() {
            inner.wants_cut.store(true, Ordering::Relaxed);
            inner.agenda.wake();
        }
        Ok(())
    }

    /// Gives a named lease up, if there is one. Durable when it returns.
    ///
    /// # Errors
    /// The catalog's; then it holds the log no more, but may do so again after a restart.
    pub async fn release_lease(&self, name: &str) -> Result<()> {
        let inner = &self.inner;
        inner.check_accepting()?;
        let released = sync::scope(async {
            let _one = inner.cutting.lock().await;
            {
                let mut leases = inner.leases.lock();
                if leases.named.remove(name).is_none() {
                    return Ok(());
                }
                leases.released.insert(name.to_owned());
            }
            inner.save_leases().await
        });
        released.await
    }
}

impl Inner {
    /// Tells the catalog of named leases that have moved.
    ///
    /// # Errors
    /// The catalog's.
    pub(super) async fn keep_leases(&self) -> Result<()> {
        sync::scope(async {
            let _one = self.cutting.lock().await;
            self.save_leases().await
        })
        .await
    }

    /// Tells the catalog of named leases where it has not heard of one that is kept for too long: one that holds the log where
    /// it is has nothing cut that would tell it. The caller holds `cutting`.
    ///
    /// # Errors
    /// The catalog's.
    pub(super) async fn save_kept_leases(&self) -> Result<()> {
        let overdue = self.leases.lock().named.values().any(NamedLease::is_overdue);
        match overdue {
            true => self.save_leases().await,
            false => Ok(()),
        }
    }

    /// Tells the catalog of named leases that have moved. The caller holds `cutting`, so that what it tells is never older
    /// than what was told.
    ///
    /// # Errors
    /// The catalog's.
    pub(super) async fn save_leases(&self) -> Result<()> {
        let commit = self.leases.lock().unsaved();
        if commit.leases.is_empty() && commit.released.is_empty() {
            return Ok(());
        }
        self.services.catalog.commit(&commit).await?;
        self.leases.lock().saved(&commit);
        Ok(())
    }
}
