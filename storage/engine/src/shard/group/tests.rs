use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use futures::future::join_all;
use millrace_catalog::metadata::{IndexMeta, MetadataChange};
use millrace_catalog::{AccountChange, AccountRecord, MemoryCatalog, ShardCheckpoint, State};
use millrace_runtime::disk::SimulatedDisk;
use millrace_runtime::sync;
use serde_json::Map;

use super::*;

/// A catalog that counts its transactions.
#[derive(Debug)]
struct CountingCatalog {
    memory: MemoryCatalog,
    commits: AtomicUsize,
}

#[async_trait]
impl Catalog for CountingCatalog {
    async fn load(&self) -> Result<State> {
        self.memory.load().await
    }

    async fn change(&self, changes: &[MetadataChange], mappings: &[(Uuid, Vec<u8>)]) -> Result<()> {
        self.memory.change(changes, mappings).await
    }

    async fn restore(
        &self,
        changes: &[MetadataChange],
        mappings: &[(Uuid, Vec<u8>)],
        commit: &Commit,
    ) -> Result<()> {
        self.memory.restore(changes, mappings, commit).await
    }

    async fn commit(&self, commit: &Commit) -> Result<()> {
        self.commits.fetch_add(1, Ordering::Relaxed);
        tokio::task::yield_now().await;
        self.memory.commit(commit).await
    }

    async fn put_store(&self, id: Uuid, claimed: bool, generation: u64) -> Result<()> {
        self.memory.put_store(id, claimed, generation).await
    }

    fn generation(&self) -> u64 {
        self.memory.generation()
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        self.memory.get(key).await
    }

    async fn put(&self, key: &str, value: &[u8]) -> Result<()> {
        self.memory.put(key, value).await
    }

    async fn accounts(&self) -> Result<Vec<AccountRecord>> {
        self.memory.accounts().await
    }

    async fn put_accounts(&self, changes: &[AccountChange]) -> Result<()> {
        self.memory.put_accounts(changes).await
    }

    async fn close(&self) {}
}

const INDICES: u128 = 200;

async fn catalog() -> CountingCatalog {
    let memory = MemoryCatalog::new(SimulatedDisk::new(1));
    let indices = (1..=INDICES).map(|n| {
        let meta = IndexMeta {
            name: Arc::from(format!("i{n}")),
            uuid: Uuid::from_u128(n),
            settings: Map::new(),
            aliases: Default::default(),
            open: true,
            created_ms: 0,
            shards: 2,
            replicas: 0,
            doc_type: None,
        };
        MetadataChange::PutIndex { meta: Arc::new(meta), mapping: None }
    });
    memory.change(&indices.collect::<Vec<_>>(), &[]).await.unwrap();
    CountingCatalog { memory, commits: AtomicUsize::new(0) }
}

fn commit_of(index: u128, shard: u32) -> Commit {
    let index = Uuid::from_u128(index);
    let checkpoint = ShardCheckpoint { index, shard, primary_term: 1, next_seq_no: 7, next_frame: 9 };
    Commit { checkpoints: vec![checkpoint], ..Commit::default() }
}

fn mapping() -> Arc<ArcSwap<Mapping>> {
    Arc::new(ArcSwap::from_pointee(Mapping::empty(&Map::new())))
}

#[tokio::test]
async fn commits_that_wait_are_one_transaction_and_none_fails_for_another() {
    let catalog = catalog().await;
    let commits = Commits::new();
    let mapping = mapping();
    let of = |index: u128| {
        let (commits, catalog, mapping) = (&commits, &catalog, &mapping);
        sync::scope(async move {
            commits.commit(catalog, commit_of(index, 0), Uuid::from_u128(index), mapping).await
        })
    };
    let results = join_all((1..=INDICES).map(of)).await;
    assert!(results.iter().all(Result::is_ok));
    let transactions = catalog.commits.swap(0, Ordering::Relaxed);
    assert!(transactions <= INDICES as usize / MOST + 2, "{transactions}");
    assert_eq!(catalog.load().await.unwrap().checkpoints.len(), INDICES as usize);
    assert_eq!(catalog.load().await.unwrap().mappings.len(), INDICES as usize);

    // One of them is of an index that is gone.
    let results = join_all((INDICES - 9..=INDICES + 1).map(of)).await;
    assert!(results[..10].iter().all(Result::is_ok));
    assert!(matches!(results[10], Err(Error::IndexNotFound { .. })));
}

#[tokio::test]
async fn a_commit_that_was_given_up_before_its_turn_is_not_made() {
    let catalog = catalog().await;
    let commits = Commits::new();
    let mapping = mapping();
    let of = |index: u128, shard: u32| {
        let (commits, catalog, mapping) = (&commits, &catalog, &mapping);
        Box::pin(sync::scope(async move {
            commits.commit(catalog, commit_of(index, shard), Uuid::from_u128(index), mapping).await
        }))
    };
    let mut given_up = of(1, 0);
    let first = async {
        let _one = commits.lock().await;
        assert!(futures::poll!(&mut given_up).is_pending());
    };
    sync::scope(first).await;
    drop(given_up);
    of(2, 1).await.unwrap();
    let checkpoints = catalog.load().await.unwrap().checkpoints;
    assert_eq!(checkpoints.iter().map(|c| (c.index.as_u128(), c.shard)).collect::<Vec<_>>(), [(2, 1)]);
}
