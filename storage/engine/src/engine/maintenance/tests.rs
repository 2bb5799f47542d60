use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_catalog::MemoryCatalog;
use millrace_catalog::access::Principal;
use millrace_catalog::metadata::IndicesOptions;
use millrace_runtime::ManualClock;
use millrace_runtime::disk::SimulatedDisk;
use parking_lot::Mutex;
use serde_json::json;

use super::super::{Action, Engine, RefreshPolicy, WriteOp, recovery};
use super::*;
use crate::Config;

const START_MS: i64 = 1_700_000_000_000;

/// An engine whose background work the test does.
struct Node {
    engine: Arc<Engine>,
    clock: Arc<ManualClock>,
    entries: Entries,
    disk: SimulatedDisk,
    _dir: tempfile::TempDir,
}

impl Node {
    async fn open() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(START_MS));
        // Files of the log of 64 KB.
        let config =
            Config { data_dir: dir.path().to_owned(), wal_max_bytes: 512 << 10, ..Config::default() };
        let disk = SimulatedDisk::new(1);
        let catalog = Arc::new(MemoryCatalog::new(disk.clone()));
        let inner = recovery::open(
            config,
            Arc::clone(&clock) as _,
            Arc::new(disk.clone()),
            Some(catalog),
            None,
            Arc::default(),
        )
        .await
        .unwrap();
        let engine = Arc::new(Engine {
            inner,
            upkeep: Mutex::default(),
            visibility: Default::default(),
            views: Default::default(),
        });
        Self { engine, clock, entries: Entries::default(), disk, _dir: dir }
    }

    async fn create(&self, index: &str) {
        let uuid = uuid::Uuid::new_v4();
        let body = json!({});
        let created = |m: &millrace_catalog::metadata::Metadata| m.create_index(index, &body, 0, uuid);
        self.engine.change(&Principal::system(), created).await.unwrap();
    }

    async fn write(&self, index: &str, id: &str, action: Action) {
        let op = WriteOp::new(index, Some(id.to_owned()), action);
        let wait = Duration::from_secs(5);
        let written = self.engine.write(&Principal::system(), vec![op], RefreshPolicy::None, wait).await;
        written.unwrap().remove(0).unwrap();
    }

    async fn index(&self, index: &str, bytes: usize) {
        let source = json!({"p": "x".repeat(bytes)}).to_string();
        self.write(index, "1", Action::Index(Bytes::from(source))).await;
    }

    /// Looks at the agenda; returns for how long nothing is to come.
    fn attend(&mut self) -> Option<i64> {
        attend(&self.engine.inner, &mut self.entries, false);
        self.entries.next_ms().map(|next| next - self.engine.inner.clock.now_ms())
    }

    fn names<'a>(items: impl Iterator<Item = &'a Item>) -> Vec<String> {
        items.map(|item| item.index.meta().name.to_string()).collect()
    }

    async fn flush(&self) {
        self.engine.flush(&self.engine.inner.all_indices()).await.unwrap();
    }

    /// Waits until the work that was started has ended.
    async fn run_all(&mut self) {
        while !self.engine.inner.busy.lock().shards.is_empty() {
            tokio::task::yield_now().await;
        }
        self.attend();
    }
}

#[tokio::test]
async fn shards_with_nothing_to_come_are_not_on_the_agenda() {
    let mut node = Node::open().await;
    for index in ["a", "b", "c"] {
        node.create(index).await;
    }
    assert_eq!((node.attend(), node.entries.len()), (None, 0));
    for (index, bytes) in [("b", 500), ("c", 5_000), ("a", 50)] {
        node.index(index, bytes).await;
    }
    // Nobody has searched them: they are only to be flushed some day.
    assert_eq!((node.attend(), node.entries.len()), (Some(600_000), 3));
    assert_eq!(Node::names(node.entries.largest().map(|(item, _)| item)), ["c", "b", "a"]);
    assert_eq!(Node::names(node.entries.oldest().map(|(item, ..)| item)), ["b", "c", "a"]);
    node.clock.advance_ms(599_999);
    assert_eq!((node.attend(), node.entries.due(node.engine.inner.clock.now_ms()).len()), (Some(1), 0));
    node.flush().await;
    assert_eq!((node.attend(), node.entries.len()), (None, 0));
    // What was deleted is remembered for a minute.
    node.write("a", "1", Action::Delete).await;
    node.flush().await;
    assert_eq!((node.attend(), node.entries.len()), (Some(60_000), 1));
    node.clock.advance_ms(60_000);
    assert_eq!(node.attend(), Some(10_000));
    while node.engine.index("a").unwrap().shards()[0].read().oldest_tombstone_ms().is_some() {
        tokio::task::yield_now().await;
    }
    node.clock.advance_ms(10_000);
    assert_eq!((node.attend(), node.entries.len()), (None, 0));
    node.index("b", 10).await;
    assert_eq!((node.attend(), node.entries.len()), (Some(600_000), 1));
    let deleted = |m: &millrace_catalog::metadata::Metadata| {
        m.delete_indices("b", &IndicesOptions::open_and_closed(), 0)
    };
    node.engine.change(&Principal::system(), deleted).await.unwrap();
    assert_eq!((node.attend(), node.entries.len()), (None, 0));
}

#[tokio::test]
async fn a_search_and_settings_put_shards_on_the_agenda() {
    let mut node = Node::open().await;
    node.create("a").await;
    node.engine.index("a").unwrap().snapshot().await.unwrap();
    node.index("a", 10).await;
    node.attend();
    node.run_all().await;
    let figures = |node: &Node| node.engine.index("a").unwrap().figures().shards[0].refresh_total;
    assert_eq!(figures(&node), 1);
    node.index("a", 10).await;
    node.clock.advance_ms(400);
    assert_eq!(node.attend(), Some(600));
    node.clock.advance_ms(600);
    node.attend();
    node.run_all().await;
    assert_eq!(figures(&node), 2);
    // Idle, it waits for a search, or for a setting.
    node.clock.advance_ms(30_000);
    node.index("a", 10).await;
    assert!(node.attend() > Some(500_000));
    let options = IndicesOptions::open_only();
    let body = json!({"index.refresh_interval": "40s"});
    let set = |m: &millrace_catalog::metadata::Metadata| m.update_settings("a", &options, &body, false, 0);
    node.engine.change(&Principal::system(), set).await.unwrap();
    assert_eq!(node.attend(), Some(10_000));
    node.clock.advance_ms(10_000);
    node.attend();
    node.run_all().await;
    assert_eq!(figures(&node), 3);
}

#[tokio::test]
async fn small_shards_are_flushed_together_where_room_is_needed() {
    let mut node = Node::open().await;
    let most = node.engine.inner.budget.max();
    for index in 0..2 * FLUSHED_TOGETHER {
        let name = format!("i{index}");
        node.create(&name).await;
        node.index(&name, 100).await;
    }
    node.attend();
    assert!(node.engine.inner.busy.lock().shards.is_empty());
    node.engine.inner.budget.add(most);
    node.attend();
    assert_eq!(node.engine.inner.busy.lock().shards.len(), FLUSHED_TOGETHER);
    node.engine.inner.budget.free(most);
    node.run_all().await;
    assert_eq!(node.entries.largest().count(), FLUSHED_TOGETHER);
}

#[tokio::test]
async fn as_many_shards_are_flushed_as_free_what_is_wanted() {
    let mut node = Node::open().await;
    let inner = Arc::clone(&node.engine.inner);
    let most = inner.budget.max();
    for (name, bytes) in [("a", 2_000), ("b", 30_000), ("c", 10_000), ("d", 40_000)] {
        node.create(name).await;
        node.index(name, bytes).await;
    }
    node.attend();
    let used = inner.budget.used();
    // Requests that are on their way in are nothing that a flush could free.
    let large = inner.budget.reserve(most - used, Duration::ZERO).await.unwrap();
    node.attend();
    assert!(node.engine.inner.busy.lock().shards.is_empty());
    let (waiter, wanted) = (Arc::clone(&inner), node.entries.largest().next().unwrap().1 + 1);
    let waiting = tokio::spawn(async move {
        drop(waiter.budget.reserve(wanted, Duration::from_secs(60)).await.unwrap());
    });
    while node.engine.inner.budget.excess() == 0 {
        tokio::task::yield_now().await;
    }
    node.attend();
    node.run_all().await;
    waiting.await.unwrap();
    drop(large);
    node.attend();
    assert_eq!(Node::names(node.entries.largest().map(|(item, _)| item)), ["c", "a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_beside_a_full_disk_goes_as_far_as_the_newest_stamp_and_waits_for_nobody() {
    let node = Node::open().await;
    node.create("a").await;
    let inner = Arc::clone(&node.engine.inner);
    let wal = Arc::clone(inner.wal().unwrap());
    for _ in 0..3 {
        node.index("a", 60_000).await;
        // The next one begins a file.
        node.index("a", 10_000).await;
        inner.stamp_file();
    }
    let stamped = wal.next_frame() - 1;
    wal.synced(stamped).await.unwrap();
    for _ in 0..6 {
        node.index("a", 40_000).await;
    }
    let shard = Arc::clone(&node.engine.index("a").unwrap().shards()[0]);
    inner.flush_shard(&shard).await.unwrap();
    let first = wal.first_frame();
    node.disk.set_capacity(node.disk.used_bytes());
    let cut = tokio::time::timeout(Duration::from_secs(60), inner.cut_log());
    cut.await.expect("a cut that waits for room").unwrap();
    let kept = wal.first_frame();
    assert!(first < kept && kept <= stamped, "{first} {kept} {stamped}");
    node.disk.set_capacity(1 << 40);
    wal.synced(wal.next_frame() - 1).await.unwrap();
    inner.cut_log().await.unwrap();
    assert!(wal.first_frame() > stamped);
}
