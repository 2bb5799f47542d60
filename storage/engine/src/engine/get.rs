//! Reading a document by its id.

use std::sync::Arc;

use millrace_catalog::access::Principal;
use millrace_catalog::metadata::IndicesOptions;
use millrace_runtime::{Error, Priority, Result};
use millrace_session::StoredDoc;

use super::Engine;
use super::index::Index;

impl Engine {
    /// Reads a document by id. `realtime` sees unrefreshed writes. `Ok(None)`: no such document.
    ///
    /// # Errors
    /// A missing or closed index, an alias of several indices, a corrupt segment.
    pub async fn get(
        &self,
        _principal: &Principal,
        index: &str,
        id: &str,
        routing: Option<&str>,
        realtime: bool,
    ) -> Result<Option<StoredDoc>> {
        let found = self.resolve(index, &IndicesOptions::open_only())?;
        self.get_of(&found, index, id, routing, realtime).await
    }

    /// Reads a document by id of what a name stands for, which has to be one index.
    pub(crate) async fn get_of(
        &self,
        found: &[Arc<Index>],
        index: &str,
        id: &str,
        routing: Option<&str>,
        realtime: bool,
    ) -> Result<Option<StoredDoc>> {
        let [index] = found else {
            let mut names: Vec<String> = found.iter().map(|i| i.meta().name.to_string()).collect();
            names.sort();
            return Err(Error::IllegalArgument(format!(
                "Alias [{index}] has more than one index associated with it [{}], can't execute a single index op",
                names.join(", ")
            )));
        };
        let meta = index.meta();
        if !meta.open {
            return Err(Error::IndexClosed { index: meta.name.to_string() });
        }
        millrace_catalog::metadata::check_block(&meta, millrace_catalog::metadata::BlockLevel::Read)?;
        if routing.is_none() && index.mapping().routing_required() {
            return Err(Error::RoutingMissing { index: meta.name.to_string(), id: id.to_owned() });
        }
        let shard = Arc::clone(index.shard(index.shard_for(Some(id), routing))?);
        let id = id.to_owned();
        let row =
            self.inner.env().compute.run(Priority::Foreground, move || shard.get(&id, realtime)).await?;
        Ok(row.map(|row| StoredDoc {
            index: Arc::clone(&meta.name),
            id: row.id,
            version: row.version,
            seq_no: row.seq_no,
            primary_term: row.primary_term,
            routing: row.routing,
            source: row.source,
        }))
    }
}
