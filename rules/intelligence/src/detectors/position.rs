//! Position of the detectors in the change feed, and results written with it in one frame.
//!
//! The stored position is the first frame whose results are not all written, in eight bytes, and the progress of each detector behind it
//! in JSON. A detector without progress has not joined the others yet.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_catalog::access::{Caller, Principal, Privileges};
use millrace_catalog::frame::PositionDelta;
use millrace_engine::{
    Action, DeadLetter, Engine, FEED_PIPELINE, OnReject, SourceWrite, UnsyncedWrite, WriteOp,
};
use millrace_runtime::{Kind, Priority};
use parking_lot::Mutex;

use super::results::{self, ScoredDocument};
use super::scoring::SeriesProgress;
use crate::error::{Error, Result};

/// Name of the reader of the feed, of its position, and of its lease.
pub(crate) const READER: &str = "intelligence";
/// Operations of a frame, at most.
const MAX_OPERATIONS: usize = 4_000;
/// Bytes of their documents beyond which a frame gets no more.
const MAX_BYTES: usize = 8 << 20;
/// Time that a write may wait for memory.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Results that are written together. Frames share them with the jobs that make their operations.
pub(crate) type ResultBatch = Arc<Vec<ScoredDocument>>;

/// Progress of detectors, by id.
pub(crate) type DetectorProgress = BTreeMap<String, SeriesProgress>;

/// A result that was refused for good.
#[derive(Clone, Debug)]
pub(crate) struct RefusedResult {
    pub(crate) index: String,
    pub(crate) reason: String,
}

/// Position as the store has it.
#[derive(Debug)]
pub(crate) struct FeedPosition {
    stored: Option<Bytes>,
    owner_epoch: u64,
}

/// Returns the principal of results. Alert rules see these documents as they see those of users: frames of rules are events for
/// few of them.
fn writer() -> Principal {
    Principal::new(Caller::User(READER.into()), Vec::new(), Arc::new(Privileges::unrestricted()))
}

impl FeedPosition {
    /// Takes the position over: an earlier owner can commit nothing any more.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn claim(engine: &Engine) -> Result<Self> {
        let (stored, owner_epoch) = engine.claim_position(FEED_PIPELINE, READER, "").await?;
        Ok(Self { stored, owner_epoch })
    }

    /// Returns the first frame whose results are not all written; `None` before the first commit.
    pub(crate) fn next(&self) -> Option<u64> {
        let bytes = self.stored.as_deref()?.first_chunk::<8>()?;
        Some(u64::from_le_bytes(*bytes))
    }

    /// Returns the progress of detectors.
    pub(crate) fn progress(&self) -> DetectorProgress {
        let bytes = self.stored.as_deref().and_then(|bytes| bytes.get(8..)).unwrap_or_default();
        serde_json::from_slice(bytes).unwrap_or_default()
    }

    /// Writes results, and with the last of them the position and the progress, in one frame. Returns the first result that was
    /// refused for good, if one was.
    ///
    /// # Errors
    /// The store's; the position has not moved then.
    pub(crate) async fn commit(
        &mut self,
        engine: &Engine,
        documents: &ResultBatch,
        next: u64,
        progress: &DetectorProgress,
    ) -> Result<Option<RefusedResult>> {
        let mut chunks = chunks(documents);
        let last = chunks.pop().unwrap_or_default();
        let mut refused = None;
        for chunk in chunks {
            // Durable with the last one, which follows it in the log.
            refused = refused.or(append_unsynced(engine, documents, chunk).await?);
        }
        let mut new = next.max(self.next().unwrap_or(0)).to_le_bytes().to_vec();
        new.extend(serde_json::to_vec(progress).unwrap_or_default());
        let new = Bytes::from(new);
        let delta = PositionDelta {
            pipeline: FEED_PIPELINE.to_owned(),
            source: READER.to_owned(),
            partition: String::new(),
            previous: self.stored.clone(),
            new: new.clone(),
            owner_epoch: self.owner_epoch,
        };
        refused = refused.or(write(engine, documents, last, vec![delta]).await?);
        self.stored = Some(new);
        Ok(refused)
    }
}

/// Writes results that a [`FeedPosition::commit`] follows: they are durable with it. Returns the first result that was refused for good,
/// if one was.
///
/// # Errors
/// The store's.
pub(crate) async fn append_results(
    engine: &Engine,
    documents: &ResultBatch,
) -> Result<Option<RefusedResult>> {
    let mut refused = None;
    for chunk in chunks(documents) {
        refused = refused.or(append_unsynced(engine, documents, chunk).await?);
    }
    Ok(refused)
}

/// Writes results beside the feed, and frees them. Returns the first one that was refused for good, if one was.
///
/// # Errors
/// The store's.
pub(crate) async fn write_results(
    engine: &Engine,
    documents: Vec<ScoredDocument>,
) -> Result<Option<RefusedResult>> {
    let (documents, mut refused) = (Arc::new(documents), None);
    for chunk in chunks(&documents) {
        refused = refused.or(write(engine, &documents, chunk, Vec::new()).await?);
    }
    free(engine, documents);
    Ok(refused)
}

/// Frees results on a compute thread: they are many, and the threads of the runtime answer clients.
pub(crate) fn free(engine: &Engine, results: impl Send + 'static) {
    engine.compute().spawn(Priority::Follow, move || drop(results));
}

/// Cuts results into what a frame may have.
fn chunks(documents: &[ScoredDocument]) -> Vec<Range<usize>> {
    let (mut chunks, mut begin, mut bytes) = (Vec::new(), 0, 0_usize);
    for (at, document) in documents.iter().enumerate() {
        if at > begin && (at - begin >= MAX_OPERATIONS || bytes + document.source.len() > MAX_BYTES) {
            chunks.push(begin..at);
            (begin, bytes) = (at, 0);
        }
        bytes += document.source.len();
    }
    if begin < documents.len() {
        chunks.push(begin..documents.len());
    }
    chunks
}

async fn write(
    engine: &Engine,
    documents: &ResultBatch,
    chunk: Range<usize>,
    moves: Vec<PositionDelta>,
) -> Result<Option<RefusedResult>> {
    let (written, refused) = append(engine, documents, chunk, moves).await?;
    free(engine, written.durable().await?);
    Ok(refused)
}

/// Applies a frame of results that is durable with a later one.
async fn append_unsynced(
    engine: &Engine,
    documents: &ResultBatch,
    chunk: Range<usize>,
) -> Result<Option<RefusedResult>> {
    let (written, refused) = append(engine, documents, chunk, Vec::new()).await?;
    free(engine, written.into_results());
    Ok(refused)
}

/// Applies a frame of results, which is not durable yet.
async fn append(
    engine: &Engine,
    documents: &ResultBatch,
    chunk: Range<usize>,
    moves: Vec<PositionDelta>,
) -> Result<(UnsyncedWrite, Option<RefusedResult>)> {
    let refused: Arc<Mutex<Option<RefusedResult>>> = Arc::default();
    let of_chunk = documents.get(chunk.clone()).unwrap_or_default();
    let indices: BTreeSet<&str> = of_chunk.iter().map(|document| &*document.index).collect();
    let mut unmade = HashSet::new();
    for index in indices {
        match results::make_index(engine, index).await {
            Ok(()) => {}
            // No retry makes an index that templates, aliases or its name forbid. Other detectors go on.
            Err(Error::Storage(error)) if error.kind() == Kind::InvalidInput => {
                let reason = format!("results are lost, their index [{index}] cannot be made: {error}");
                refused.lock().get_or_insert_with(|| RefusedResult { index: index.to_owned(), reason });
                unmade.insert(index.to_owned());
            }
            Err(error) => return Err(error),
        }
    }
    let all = Arc::clone(documents);
    let make = move || {
        let of_chunk = all.get(chunk).unwrap_or_default().iter();
        let writable = of_chunk.filter(|document| !unmade.contains(&*document.index));
        let op = |document: &ScoredDocument| {
            WriteOp::new(
                Arc::clone(&document.index),
                Some(document.id.clone()),
                Action::Index(document.source.clone()),
            )
        };
        Ok(SourceWrite { ops: Vec::new(), own: writable.map(op).collect(), moves })
    };
    let write = engine.compute().run(Priority::Follow, make).await?;
    let told = Arc::clone(&refused);
    let letter: DeadLetter = Arc::new(move |op, error| {
        told.lock().get_or_insert_with(|| RefusedResult {
            index: op.index.to_string(),
            reason: format!("a result was refused by [{}]: {error}", op.index),
        });
        OnReject::Skip
    });
    let written = engine
        .append_at_priority(
            &writer(),
            write,
            letter,
            TIMEOUT,
            Box::pin(std::future::ready(())),
            Priority::Follow,
        )
        .await?;
    let refused = refused.lock().take();
    Ok((written, refused))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_a_bounded_number_of_results_and_bytes() {
        let of = |bytes: usize| ScoredDocument {
            index: "i".into(),
            id: "a".to_owned(),
            source: Bytes::from(vec![b'x'; bytes]),
        };
        let sizes = |documents: &[ScoredDocument]| {
            chunks(documents).into_iter().map(|chunk| chunk.len()).collect::<Vec<_>>()
        };
        assert_eq!(sizes(&[]), [0_usize; 0]);
        assert_eq!(sizes(&vec![of(1); MAX_OPERATIONS + 5]), [MAX_OPERATIONS, 5]);
        assert_eq!(sizes(&[of(MAX_BYTES * 2), of(1), of(1)]), [1, 2]);
    }
}
