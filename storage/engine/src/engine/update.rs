//! Partial updates: a document is read, merged with what the request has of it, and becomes an index operation
//! that expects the document unchanged.

use std::sync::Arc;

use bytes::Bytes;
use millrace_catalog::operation::{DocResult, Update, WriteOp, WriteOutcome};
use millrace_mapping::source::merged;
use millrace_runtime::{Error, Priority, Result};

use super::Engine;
use super::index::Index;
use super::target::{AdmittedOperation, Limits};
use super::visibility_check::VisibilityChecks;
use super::write_batch::PreparedOperation;
use crate::shard::{ConflictReason, Current, VersionCondition};

/// Bytes of a source that are merged where the request is, in no time.
const SMALL_BYTES: usize = 16 << 10;

impl Engine {
    /// Reads the document of an update and makes the index operation of it, or the no-op that it is.
    pub(super) async fn prepare_update(
        &self,
        item: usize,
        admitted: &AdmittedOperation,
        op: &WriteOp,
        update: &Update,
        looks: &VisibilityChecks,
    ) -> Result<Result<PreparedOperation, WriteOutcome>> {
        let AdmittedOperation { index, limits } = admitted;
        let id = op.id.clone().unwrap_or_default();
        let number = index.shard_for(Some(&id), op.routing.as_deref());
        let shard = Arc::clone(index.shard(number)?);
        let lookup = id.clone();
        let found =
            self.inner.env().compute.run(Priority::Foreground, move || shard.get(&lookup, true)).await?;
        let mut wanted = VersionCondition {
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
                ConflictReason::Hidden => Limits::hidden(limits.as_ref()),
                ConflictReason::Conflict(reason) => conflict(reason),
            })?;
        }
        let (source, routing) = match found {
            None => {
                let Some(upsert) = update.stored_where_missing() else {
                    return Err(missing(index, number, op, id));
                };
                wanted.create = op.if_seq_no.is_none();
                (upsert.text().clone(), op.routing.clone())
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
                check_source(index, number, op, &id)?;
                let (doc, stored) = (update.doc.clone(), found.source.clone());
                let merge = move || -> Result<Option<(Vec<u8>, bool)>> {
                    Ok(doc.map_or(Some((Vec::new(), false)), |doc| merged(&stored, doc.text())))
                };
                let (next, changed) = match found.source.len() {
                    0..=SMALL_BYTES => merge()?,
                    _ => self.inner.env().compute.run(Priority::Foreground, merge).await?,
                }
                .ok_or_else(|| not_an_object(&id))?;
                if update.detect_noop && !changed {
                    return Ok(Err(WriteOutcome {
                        index: Arc::clone(&meta.name),
                        id,
                        version: found.version,
                        seq_no: found.seq_no,
                        primary_term: found.primary_term,
                        result: DocResult::Noop,
                        shard_copies: meta.replicas + 1,
                        source: Some(found.source).filter(|_| update.returns_source),
                    }));
                }
                wanted.if_seq_no = Some(found.seq_no);
                wanted.if_primary_term = Some(found.primary_term);
                let next = if update.doc.is_some() { Bytes::from(next) } else { found.source };
                (next, op.routing.clone().or(found.routing))
            }
        };
        Ok(Ok(PreparedOperation {
            item,
            index: Arc::clone(index),
            shard: number,
            id: Some(id),
            routing,
            source: Some(source),
            wanted,
            limits: limits.clone(),
            returns_source: update.returns_source,
        }))
    }

    /// Makes the index operation of an update whose document an earlier operation of the same round leaves:
    /// as `earlier` says, `None` where it deletes it.
    ///
    /// # Errors
    /// [`Error::DocumentMissing`] for a deleted one without anything to insert, [`Error::DocumentSourceMissing`] where the
    /// index keeps no sources.
    pub(super) fn prepare_update_of(
        item: usize,
        admitted: &AdmittedOperation,
        op: &WriteOp,
        update: &Update,
        earlier: Option<&Bytes>,
    ) -> Result<PreparedOperation> {
        let AdmittedOperation { index, limits } = admitted;
        let id = op.id.clone().unwrap_or_default();
        let shard = index.shard_for(Some(&id), op.routing.as_deref());
        if earlier.is_some() {
            check_source(index, shard, op, &id)?;
        }
        let source = match (earlier, &update.doc) {
            (Some(earlier), Some(doc)) => {
                Bytes::from(merged(earlier, doc.text()).ok_or_else(|| not_an_object(&id))?.0)
            }
            (Some(earlier), None) => earlier.clone(),
            (None, _) => match update.stored_where_missing() {
                Some(upsert) => upsert.text().clone(),
                None => return Err(missing(index, shard, op, id)),
            },
        };
        let (if_seq_no, if_primary_term) = (op.if_seq_no, op.if_primary_term);
        Ok(PreparedOperation {
            item,
            index: Arc::clone(index),
            shard,
            id: Some(id),
            routing: op.routing.clone(),
            source: Some(source),
            wanted: VersionCondition {
                delete: false,
                create: false,
                version: None,
                if_seq_no,
                if_primary_term,
                seen: None,
            },
            limits: limits.clone(),
            returns_source: update.returns_source,
        })
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

/// Refuses to update a document whose index keeps no source of documents.
fn check_source(index: &Index, shard: u32, op: &WriteOp, id: &str) -> Result<()> {
    if index.mapping().source_enabled() {
        return Ok(());
    }
    let meta = index.meta();
    Err(Error::DocumentSourceMissing {
        index: meta.name.to_string(),
        index_uuid: meta.uuid_text(),
        shard,
        doc_type: op.doc_type.to_string(),
        id: id.to_owned(),
    })
}

/// Says that a stored source is not what updates merge into.
fn not_an_object(id: &str) -> Error {
    Error::mapper_parsing(format!("the source of [{id}] or what is merged into it is no JSON object"))
}
