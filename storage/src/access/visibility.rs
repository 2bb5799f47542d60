//! Documents by id, where rules hide some: whether a rule shows a document is a question to searches, which the store
//! cannot answer by itself.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::{Action, DocumentRules, Session, shown};
use crate::engine::missing;
use crate::metadata::{BlockLevel, IndicesOptions, check_block};
use crate::{Action as Operation, Error, Index, Priority, Result, StoredDoc, WriteOp};

/// Mappings that a session remembers its view of.
const MAX_VIEWS: usize = 64;

/// Finds documents that rules show. Searches are it; the engine is told of them once, at the start.
pub trait Visibility: std::fmt::Debug + Send + Sync {
    /// Finds a document in a state of the index that has all that was acknowledged before. `Ok(None)`: there is none, or
    /// none that one query of each list matches.
    fn find<'a>(
        &'a self,
        index: &'a Arc<Index>,
        id: &'a str,
        routing: Option<&'a str>,
        rules: &'a DocumentRules,
    ) -> BoxFuture<'a, Result<Option<StoredDoc>>>;
}

impl Session {
    /// Finds a document under the rules of an index.
    pub(super) async fn visible(
        &self,
        index: &Arc<Index>,
        id: &str,
        routing: Option<&str>,
        rules: &DocumentRules,
    ) -> Result<Option<StoredDoc>> {
        match self.engine.visibility() {
            Some(visibility) => visibility.find(index, id, routing, rules).await,
            // Never unasked.
            None => Err(Error::Internal("nobody can say which documents rules show".to_owned())),
        }
    }

    /// Makes operations change no document that rules hide from the writer; `Err` in place of one that would. What was looked
    /// at is what they expect, so that nothing comes between.
    pub(super) async fn keep_hidden(&self, ops: Vec<WriteOp>) -> Vec<Result<WriteOp>> {
        let mut kept = Vec::with_capacity(ops.len());
        for op in ops {
            kept.push(self.keep_hidden_of(op).await);
        }
        kept
    }

    async fn keep_hidden_of(&self, mut op: WriteOp) -> Result<WriteOp> {
        let Some(id) = op.id.clone() else { return Ok(op) };
        let metadata = self.metadata();
        // A missing index has nothing to hide; a name that is not allowed is refused by the write.
        let Ok(Some(meta)) = metadata.write_index(&op.index, self.clock().now_ms()) else { return Ok(op) };
        let access = self.access(&meta.name);
        if matches!(op.action, Operation::Update(_)) && !access.fields(Action::Get).is_empty() {
            return Err(Error::IllegalArgument(format!(
                "[{}] cannot be updated in part by {}, who may not see all fields of it: index the whole document",
                meta.name,
                self.principal().caller()
            )));
        }
        let rules = access.documents(Action::Get);
        if rules.is_empty() {
            return Ok(op);
        }
        let index = self.engine.index(&meta.name)?;
        let alias = meta.aliases.get(&*op.index).and_then(|alias| alias["index_routing"].as_str());
        let routing = op.routing.as_deref().or(alias);
        let refusal = |op: &WriteOp| super::refusal(self.principal(), op.needs(), &op.index);
        match self.visible(&index, &id, routing, &rules).await? {
            Some(seen) => {
                let other = op.if_seq_no.is_some_and(|expected| expected != seen.seq_no)
                    || op.if_primary_term.is_some_and(|expected| expected != seen.primary_term);
                // Its own expectation fails by itself; a version of the caller's stands beside what was seen.
                if !other && op.version.is_none() {
                    (op.if_seq_no, op.if_primary_term) = (Some(seen.seq_no), Some(seen.primary_term));
                }
                Ok(op)
            }
            None => {
                let found = [Arc::clone(&index)];
                let there = self.engine.get_of(&found, &meta.name, &id, routing, true).await?;
                if there.is_some() {
                    return Err(refusal(&op));
                }
                match op.action {
                    Operation::Index(source) => op.action = Operation::Create(source),
                    Operation::Create(_) => {}
                    Operation::Update(ref update) if update.stored_where_missing().is_some() => {
                        let upsert = update.stored_where_missing().map(serde_json::to_vec).transpose();
                        let upsert = upsert.map_err(|error| Error::Internal(error.to_string()))?;
                        op.action = Operation::Create(upsert.unwrap_or_default().into());
                    }
                    // What somebody else may store now is not to be changed.
                    Operation::Delete | Operation::Update(_) => {
                        let shard = index.shard_for(Some(&id), routing);
                        return Err(missing(&index, shard, &op, id));
                    }
                }
                Ok(op)
            }
        }
    }

    /// Whether rules may hide documents from the writer of an operation, or fields of one that it updates.
    pub(super) fn may_hide(&self, ops: &[WriteOp]) -> bool {
        if !self.principal().privileges().has_rules() {
            return false;
        }
        let metadata = self.metadata();
        let mut last: Option<(Arc<str>, bool)> = None;
        ops.iter().any(|op| {
            if let Some((name, hides)) = &last
                && Arc::ptr_eq(name, &op.index)
            {
                return *hides;
            }
            let target = metadata.write_index(&op.index, self.clock().now_ms()).ok().flatten();
            let hides = target.is_some_and(|meta| !self.access(&meta.name).sees_all(Action::Get));
            last = Some((Arc::clone(&op.index), hides));
            hides
        })
    }

    /// Returns the mapping of an index, without the fields that may not be seen.
    pub fn mapping(&self, index: &Index) -> Arc<crate::mapping::Mapping> {
        let mapping = index.mapping();
        let rules = self.access(&index.meta().name).fields(self.action());
        if rules.is_empty() {
            return mapping;
        }
        let mut views = self.views.lock();
        if let Some((_, view)) = views.iter().find(|(whole, _)| Arc::ptr_eq(whole, &mapping)) {
            return Arc::clone(view);
        }
        let view = Arc::new(mapping.seen_under(rules));
        if views.len() < MAX_VIEWS {
            views.push((mapping, Arc::clone(&view)));
        }
        view
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
