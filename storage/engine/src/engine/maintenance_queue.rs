//! Queue of shards with due work, and its times: background work looks at these alone.
//!
//! Whoever may have made something due reports the shard ([`MaintenanceQueue::report`]): a write, a search that found its index
//! idle, a refresh or flush that ended, a change of settings. `upkeep.rs` looks at the shards that were reported and at those
//! whose time has come, and enters what is to come of each ([`Entries::enter`]): when to look again, and what it has
//! unflushed. A shard of which nothing is to come has no entry and costs nothing.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use millrace_catalog::frame::FrameNumber;
use parking_lot::Mutex;
use tokio::sync::Notify;
use uuid::Uuid;

use super::index::Index;
use crate::shard::Shard;

/// A shard with the index that it belongs to.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) index: Arc<Index>,
    pub(super) shard: Arc<Shard>,
}

impl Item {
    /// All shards of an index.
    pub(super) fn all_of(index: &Arc<Index>) -> impl Iterator<Item = Item> {
        index.shards().iter().map(|shard| Self { index: Arc::clone(index), shard: Arc::clone(shard) })
    }
}

/// Reports of shards; each is in it once at most.
#[derive(Debug)]
pub(super) struct MaintenanceQueue {
    reported: Mutex<Vec<Item>>,
    wake: Arc<Notify>,
}

impl MaintenanceQueue {
    /// Makes an agenda whose reports wake what waits for `wake`.
    pub(super) fn new(wake: Arc<Notify>) -> Self {
        Self { reported: Mutex::default(), wake }
    }

    /// Asks for a look at a shard, once what the look is to see is there.
    pub(super) fn report(&self, index: &Arc<Index>, shard: &Arc<Shard>) {
        if shard.report() {
            let item = Item { index: Arc::clone(index), shard: Arc::clone(shard) };
            self.reported.lock().push(item);
            self.wake.notify_one();
        }
    }

    /// Asks for a look at all shards of an index.
    pub(super) fn report_all(&self, index: &Arc<Index>) {
        index.shards().iter().for_each(|shard| self.report(index, shard));
    }

    /// Wakes the background work though no shard has changed.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Waits for a report.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Takes what was reported; what changes from here on is reported again.
    pub(super) fn take(&self) -> Vec<Item> {
        let items = std::mem::take(&mut *self.reported.lock());
        items.iter().for_each(|item| item.shard.take_report());
        items
    }
}

type Key = (Uuid, u32);

fn key(shard: &Shard) -> Key {
    (shard.index, shard.number)
}

/// Forecast of a shard's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outlook {
    /// Time of the next look without a report, in milliseconds.
    pub(super) again_ms: Option<i64>,
    /// Bytes of documents that a flush would let go.
    pub(super) bytes: u64,
    /// First frame of the log that a flush would let go.
    pub(super) first_frame: Option<FrameNumber>,
}

/// The shards of which something is to come, by when, by what they hold in memory and by what they hold of the log.
#[derive(Debug, Default)]
pub(super) struct Entries {
    entries: HashMap<Key, (Item, Outlook)>,
    by_time: BTreeSet<(i64, Key)>,
    by_bytes: BTreeSet<(u64, Key)>,
    by_frame: BTreeSet<(FrameNumber, Key)>,
}

impl Entries {
    /// Enters what is to come of a shard, in place of what was entered before.
    pub(super) fn enter(&mut self, item: Item, outlook: Outlook) {
        let key = key(&item.shard);
        if outlook == Outlook::default() {
            return self.remove(key);
        }
        match self.entries.get(&key) {
            Some((_, before)) if *before == outlook => return,
            _ => self.remove(key),
        }
        self.by_time.extend(outlook.again_ms.map(|time| (time, key)));
        if outlook.bytes > 0 {
            self.by_bytes.insert((outlook.bytes, key));
        }
        self.by_frame.extend(outlook.first_frame.map(|frame| (frame, key)));
        self.entries.insert(key, (item, outlook));
    }

    fn remove(&mut self, key: Key) {
        let Some((_, outlook)) = self.entries.remove(&key) else { return };
        if let Some(time) = outlook.again_ms {
            self.by_time.remove(&(time, key));
        }
        self.by_bytes.remove(&(outlook.bytes, key));
        if let Some(frame) = outlook.first_frame {
            self.by_frame.remove(&(frame, key));
        }
    }

    /// The shards whose time has come.
    pub(super) fn due(&self, now_ms: i64) -> Vec<Item> {
        let due = self.by_time.iter().take_while(|(time, _)| *time <= now_ms);
        due.filter_map(|(_, key)| self.item(key)).cloned().collect()
    }

    /// Returns the time of the next shard.
    pub(super) fn next_ms(&self) -> Option<i64> {
        self.by_time.first().map(|(time, _)| *time)
    }

    /// The shards with unflushed documents and their bytes, the largest first.
    pub(super) fn largest(&self) -> impl Iterator<Item = (&Item, u64)> {
        self.by_bytes.iter().rev().filter_map(|(bytes, key)| Some((self.item(key)?, *bytes)))
    }

    /// The shards that need frames of the log, the first of each, and the bytes of their documents, the oldest first.
    pub(super) fn oldest(&self) -> impl Iterator<Item = (&Item, FrameNumber, u64)> {
        self.by_frame.iter().filter_map(|(frame, key)| {
            let (item, outlook) = self.entries.get(key)?;
            Some((item, *frame, outlook.bytes))
        })
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    fn item(&self, key: &Key) -> Option<&Item> {
        self.entries.get(key).map(|(item, _)| item)
    }
}
