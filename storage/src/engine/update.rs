//! Partial updates: a document is read, merged with what the request has of it, and becomes an index operation
//! that expects the document unchanged.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::Engine;
use super::index::Index;
use super::look::Looks;
use super::round::Prepared;
use super::target::{Admitted, Limits};
use super::types::{DocResult, Update, WriteOp, WriteOutcome};
use super::write::{Results, Written};
use crate::shard::{Current, Denied, Wanted};
use crate::{Error, Priority, Result};

impl Engine {
    /// Reads the document of an update and makes the index operation of it, or the no-op that it is.
    pub(super) async fn prepare_update(
        &self,
        item: usize,
        admitted: &Admitted,
        op: &WriteOp,
        update: &Update,
        looks: &Looks,
    ) -> Result<Result<Prepared, WriteOutcome>> {
        let Admitted { index, limits } = admitted;
        let id = op.id.clone().unwrap_or_default();
        let number = index.shard_for(Some(&id), op.routing.as_deref());
        let shard = Arc::clone(index.shard(number)?);
        let lookup = id.clone();
        let found =
            self.inner.env().compute.run(Priority::Foreground, move || shard.get(&lookup, true)).await?;
        let mut wanted = Wanted {
            delete: false,
            create: false,
            version: None,
            if_seq_no: op.if_seq_no,
            if_primary_term: op.if_primary_term,
            seen: looks.of(index, number, Some(&id))?,
        };
        let meta = index.meta();
        let conflict = |reason: String| Error::VersionConflict {
            index: meta.name.to_string(),
            index_uuid: meta.uuid_text(),
            shard: number,
            id: id.clone(),
            reason,
        };
        if let (Some(seen), Some(found)) = (wanted.seen, &found) {
            let (version, seq_no, primary_term) = (found.version, found.seq_no, found.primary_term);
            let found = Current { live: true, version, seq_no, primary_term };
            seen.check(Some(found)).map_err(|denied| match denied {
                Denied::Hidden => Limits::hidden(limits.as_ref()),
                Denied::Conflict(reason) => conflict(reason),
            })?;
        }
        let (source, routing) = match found {
            None => {
                let Some(upsert) = update.stored_where_missing() else {
                    return Err(missing(index, number, op, id));
                };
                wanted.create = op.if_seq_no.is_none();
                (upsert.clone(), op.routing.clone())
            }
            Some(found) => {
                if let Some(seq_no) = op.if_seq_no
                    && (seq_no != found.seq_no || op.if_primary_term != Some(found.primary_term))
                {
                    return Err(conflict(format!(
                        "required seqNo [{seq_no}], primary term [{}]. current document has seqNo [{}] and primary term [{}]",
                        op.if_primary_term.unwrap_or(0),
                        found.seq_no,
                        found.primary_term
                    )));
                }
                let current: Value = serde_json::from_slice(&found.source).map_err(|e| {
                    Error::mapper_parsing(format!("stored source of [{id}] does not parse: {e}"))
                })?;
                let mut next = current.clone();
                if let Some(doc) = &update.doc {
                    merge_objects(&mut next, doc);
                }
                if update.detect_noop && next == current {
                    return Ok(Err(WriteOutcome {
                        index: Arc::clone(&meta.name),
                        id,
                        version: found.version,
                        seq_no: found.seq_no,
                        primary_term: found.primary_term,
                        result: DocResult::Noop,
                        shard_copies: meta.replicas + 1,
                        source: Some(found.source),
                    }));
                }
                wanted.if_seq_no = Some(found.seq_no);
                wanted.if_primary_term = Some(found.primary_term);
                (next, op.routing.clone().or(found.routing))
            }
        };
        let source =
            serde_json::to_vec(&source).map_err(|e| Error::Internal(format!("encode source: {e}")))?;
        Ok(Ok(Prepared {
            item,
            index: Arc::clone(index),
            shard: number,
            id: Some(id),
            routing,
            source: Some(Bytes::from(source)),
            wanted,
            limits: limits.clone(),
        }))
    }

    /// Makes the index operation of an update whose document an earlier operation of the same round leaves:
    /// as `earlier` says, `None` where it deletes it.
    ///
    /// # Errors
    /// [`Error::DocumentMissing`] for a deleted one without anything to insert.
    pub(super) fn prepare_update_of(
        item: usize,
        admitted: &Admitted,
        op: &WriteOp,
        update: &Update,
        earlier: Option<&Bytes>,
    ) -> Result<Prepared> {
        let Admitted { index, limits } = admitted;
        let id = op.id.clone().unwrap_or_default();
        let shard = index.shard_for(Some(&id), op.routing.as_deref());
        let source = match earlier {
            Some(earlier) => {
                let mut source: Value = serde_json::from_slice(earlier)
                    .map_err(|e| Error::mapper_parsing(format!("source of [{id}] does not parse: {e}")))?;
                if let Some(doc) = &update.doc {
                    merge_objects(&mut source, doc);
                }
                source
            }
            None => {
                let Some(upsert) = update.stored_where_missing() else {
                    return Err(missing(index, shard, op, id));
                };
                upsert.clone()
            }
        };
        let source =
            serde_json::to_vec(&source).map_err(|e| Error::Internal(format!("encode source: {e}")))?;
        let (if_seq_no, if_primary_term) = (op.if_seq_no, op.if_primary_term);
        Ok(Prepared {
            item,
            index: Arc::clone(index),
            shard,
            id: Some(id),
            routing: op.routing.clone(),
            source: Some(Bytes::from(source)),
            wanted: Wanted {
                delete: false,
                create: false,
                version: None,
                if_seq_no,
                if_primary_term,
                seen: None,
            },
            limits: limits.clone(),
        })
    }

    /// Tries an update again that lost against a concurrent writer.
    pub(super) async fn retry_update(
        &self,
        item: usize,
        admitted: &Admitted,
        op: &WriteOp,
        update: &Update,
        (results, written, looks): (&mut Results, &mut Written, &mut Looks),
    ) -> Result<()> {
        let index = &admitted.index;
        for _ in 0..update.retry_on_conflict {
            if !matches!(results[item], Some(Err(Error::VersionConflict { .. }))) {
                break;
            }
            let id = op.id.as_deref().unwrap_or_default();
            let shard = index.shard_for(Some(id), op.routing.as_deref());
            self.look_again(index, shard, id, looks).await;
            match self.prepare_update(item, admitted, op, update, looks).await {
                Ok(Ok(prepared)) => self.round(vec![prepared], results, written, looks).await?,
                Ok(Err(noop)) => results[item] = Some(Ok(noop)),
                Err(error) => results[item] = Some(Err(error)),
            }
        }
        Ok(())
    }
}

/// Says that there is no document for an operation.
pub(super) fn missing(index: &Index, shard: u32, op: &WriteOp, id: String) -> Error {
    let meta = index.meta();
    Error::DocumentMissing {
        index: meta.name.to_string(),
        index_uuid: meta.uuid_text(),
        shard,
        doc_type: op.doc_type.to_string(),
        id,
    }
}

/// Merges `patch` into `target`: objects recursively, everything else replaced.
fn merge_objects(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                match target.get_mut(key) {
                    Some(existing) => merge_objects(existing, value),
                    None => {
                        target.insert(key.clone(), value.clone());
                    }
                }
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn updates_merge_objects_and_replace_the_rest() {
        let mut target = json!({"a": {"b": 1, "c": [1, 2]}, "d": 1});
        merge_objects(&mut target, &json!({"a": {"c": [3]}, "d": {"e": 1}, "f": null}));
        assert_eq!(target, json!({"a": {"b": 1, "c": [3]}, "d": {"e": 1}, "f": null}));
    }
}
