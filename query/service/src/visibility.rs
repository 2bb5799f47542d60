//! Documents by id, where rules of roles hide some: searches find them, in a state of the index that has all that was
//! acknowledged.

use std::sync::{Arc, Weak};

use futures::future::BoxFuture;
use millrace_catalog::access::DocumentRules;
use millrace_dsl::query::{self, Query};
use millrace_dsl::sort::{SortBy, SortKey};
use millrace_engine::access::{DocumentLookup, Visibility};
use millrace_engine::{Engine, Index, StoredDoc};
use millrace_matching::table::TableSnapshot;
use millrace_runtime::Error as StorageError;
use millrace_scoring::collect::Address;
use millrace_search::fetch;
use millrace_search::searcher::{Search, Searcher};
use millrace_segment::{RowParts, StoredRow};
use millrace_target::target;
use millrace_work::QueryContext;
use millrace_work::error::{Error, Result};
use serde_json::json;

/// Finds documents that rules show.
#[derive(Debug)]
pub(crate) struct ByRules {
    engine: Weak<Engine>,
    searcher: Searcher,
}

impl ByRules {
    pub(crate) fn new(engine: &Arc<Engine>, searcher: &Searcher) -> Self {
        Self { engine: Arc::downgrade(engine), searcher: searcher.clone() }
    }

    async fn rows(
        &self,
        index: &Arc<Index>,
        DocumentLookup { ids, shards, sources }: DocumentLookup<'_>,
        rules: &DocumentRules,
    ) -> Result<Vec<StoredDoc>> {
        let engine =
            self.engine.upgrade().ok_or_else(|| StorageError::Stopped("the node is shut down".to_owned()))?;
        engine.refresh(std::slice::from_ref(index)).await?;
        let now_ms = engine.clock().now_ms();
        let snapshot = Arc::new(target::pin_ruled(Arc::clone(index) as _, rules, shards, now_ms).await?);
        let (work, _ends) = self.searcher.begin();
        let addresses = all(&self.searcher, &snapshot, ids, now_ms, &work).await?;
        let parts = RowParts { source: sources, versions: true };
        let rows = fetch::rows(&snapshot, &addresses, parts, &self.searcher.compute, &work).await?;
        let name = Arc::clone(&index.meta().name);
        let document = |row: StoredRow| StoredDoc {
            index: Arc::clone(&name),
            id: row.id,
            version: row.version,
            seq_no: row.seq_no,
            primary_term: row.primary_term,
            routing: row.routing,
            source: row.source,
        };
        Ok(rows.into_iter().map(document).collect())
    }
}

impl Visibility for ByRules {
    fn find<'a>(
        &'a self,
        index: &'a Arc<Index>,
        sought: DocumentLookup<'a>,
        rules: &'a DocumentRules,
    ) -> BoxFuture<'a, millrace_runtime::Result<Vec<StoredDoc>>> {
        Box::pin(async move {
            self.rows(index, sought, rules).await.map_err(|error| match error {
                Error::Storage(error) => error,
                error if error.status() == 429 => StorageError::Rejected(error.reason()),
                error => StorageError::Internal(error.reason()),
            })
        })
    }
}

/// Finds the row of a document among the visible ones, regardless of aliases.
pub(crate) async fn find(
    searcher: &Searcher,
    snapshot: &TableSnapshot,
    id: &str,
    now_ms: i64,
    work: &QueryContext,
) -> Result<Option<Address>> {
    Ok(all(searcher, snapshot, &[id], now_ms, work).await?.first().copied())
}

/// Finds the rows of documents, the newest first.
async fn all(
    searcher: &Searcher,
    snapshot: &TableSnapshot,
    ids: &[&str],
    now_ms: i64,
    work: &QueryContext,
) -> Result<Vec<Address>> {
    let mut unfiltered = snapshot.clone();
    unfiltered.indices.iter_mut().for_each(|index| index.filter = None);
    let shards: usize = unfiltered.indices.iter().map(|index| index.meta.shards as usize).sum();
    let query: Query = query::parse(&json!({"ids": {"values": ids}}))?;
    let sort = [SortKey { by: SortBy::Doc, descending: true }];
    let search = Search {
        sort: &sort,
        // Writers with routings of their own may have put an id into each shard.
        size: ids.len().saturating_mul(shards).max(1),
        ..Search::new(Arc::new(unfiltered), &query, now_ms, work)
    };
    let found = searcher.find(search).await?;
    if !found.failures.is_empty() {
        return Err(Error::SearchPhase { failures: found.failures });
    }
    Ok(found.rows.addresses)
}
