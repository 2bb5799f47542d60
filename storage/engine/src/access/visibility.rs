//! Documents by id, where rules hide some: whether a rule shows a document is a question to searches, which the store
//! cannot answer by itself.

use std::sync::{Arc, Weak};

use futures::future::BoxFuture;
use millrace_catalog::access::DocumentRules;
use millrace_catalog::metadata::{BlockLevel, IndicesOptions, check_block};
use millrace_mapping::Mapping;
use millrace_mapping::fields::{FieldRules, shown};
use millrace_runtime::{Error, GenerationalCache, Priority, Result};
use millrace_session::SearchSession;
use parking_lot::Mutex;
use serde_json::Value;

use crate::{Index, Session, StoredDoc};

/// Fields of the mappings that are kept as they are seen, all together.
const MAX_FIELDS: usize = 500_000;

/// Mappings as they are seen under rules, those of late. Who holds one keeps it beyond.
#[derive(Debug)]
pub(crate) struct Views(Mutex<GenerationalCache<ViewKey, View>>);

/// The place of the whole mapping, and the rules.
type ViewKey = (usize, Vec<Arc<FieldRules>>);
/// The view, with what keeps the place from becoming another mapping's.
type View = (Arc<Mapping>, Weak<Mapping>);

impl Default for Views {
    fn default() -> Self {
        Self(Mutex::new(GenerationalCache::new(MAX_FIELDS)))
    }
}

impl Views {
    fn of(&self, mapping: &Arc<Mapping>, rules: Vec<Arc<FieldRules>>) -> Arc<Mapping> {
        let key = (Arc::as_ptr(mapping) as usize, rules);
        if let Some((view, _)) = self.0.lock().get(&key) {
            return view;
        }
        let view = Arc::new(mapping.seen_under(key.1.clone()));
        // A mapping of no fields takes memory, too.
        let weight = 64 + mapping.fields().count();
        self.0.lock().insert(key, (Arc::clone(&view), Arc::downgrade(mapping)), weight);
        view
    }
}

/// Documents that are looked for in an index.
#[derive(Clone, Copy, Debug)]
pub struct DocumentLookup<'a> {
    /// Their ids.
    pub ids: &'a [&'a str],
    /// The shards that may have them.
    pub shards: &'a [u32],
    /// `true` if their sources are read, too.
    pub sources: bool,
}

/// Finds documents that rules show. Searches are it; the engine is told of them once, at the start.
pub trait Visibility: std::fmt::Debug + Send + Sync {
    /// Finds documents in a state of the index that has all that was acknowledged before: those that one query of each list
    /// matches, in no order.
    fn find<'a>(
        &'a self,
        index: &'a Arc<Index>,
        sought: DocumentLookup<'a>,
        rules: &'a DocumentRules,
    ) -> BoxFuture<'a, Result<Vec<StoredDoc>>>;
}

impl Session {
    /// Finds a document under the rules of an index.
    async fn visible(
        &self,
        index: &Arc<Index>,
        id: &str,
        routing: Option<&str>,
        rules: &DocumentRules,
    ) -> Result<Option<StoredDoc>> {
        let Some(visibility) = self.engine.visibility() else {
            // Never unasked.
            return Err(Error::Internal("nobody can say which documents rules show".to_owned()));
        };
        let shards = [index.shard_for(Some(id), routing)];
        let sought = DocumentLookup { ids: &[id], shards: &shards, sources: true };
        Ok(visibility.find(index, sought, rules).await?.into_iter().next())
    }

    /// Returns the mapping of an index, without the fields that may not be seen.
    pub fn mapping(&self, index: &Index) -> Arc<Mapping> {
        SearchSession::mapping(self, index)
    }

    /// Returns the body of an index's mapping, without the fields that may not be seen. One that this version does not accept is
    /// as it is stored.
    ///
    /// # Errors
    /// [`Error::IndexUnsupported`] where fields of such a mapping may not be seen, or none can be read.
    pub fn mapping_body(&self, index: &Index) -> Result<Value> {
        SearchSession::mapping_body(self, index)
    }

    /// Returns a mapping without the fields that one of the rules does not show.
    pub fn view(&self, mapping: &Arc<Mapping>, rules: Vec<Arc<FieldRules>>) -> Arc<Mapping> {
        match rules.is_empty() {
            true => Arc::clone(mapping),
            false => self.engine.views().of(mapping, rules),
        }
    }

    /// Reads a document by id, one that rules show, with what they show of it.
    pub(super) async fn get_visible(
        &self,
        name: &str,
        id: &str,
        routing: Option<&str>,
        realtime: bool,
    ) -> Result<Option<StoredDoc>> {
        let found = self.resolve(name, &IndicesOptions::open_only())?;
        let [index] = found.as_slice() else {
            return self.engine.get_of(&found, name, id, routing, realtime).await;
        };
        let access = self.access(&index.meta().name);
        let rules = access.documents(self.action());
        let document = match rules.is_empty() {
            true => self.engine.get_of(&found, name, id, routing, realtime).await?,
            false => {
                check_block(&index.meta(), BlockLevel::Read)?;
                self.visible(index, id, routing, &rules).await?
            }
        };
        let fields = access.fields(self.action());
        let document = match document {
            Some(document) if !fields.is_empty() => document,
            other => return Ok(other),
        };
        let shown = move || {
            let source = serde_json::from_slice(&document.source).map_err(|error| {
                Error::Internal(format!("the source of [{}] is not JSON: {error}", document.id))
            })?;
            let source = shown(source, &fields).to_string().into();
            Ok(Some(StoredDoc { source, ..document }))
        };
        self.compute().run(Priority::Foreground, shown).await
    }
}
