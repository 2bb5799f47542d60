//! The rounds of a request with partial updates among its operations.
//!
//! Operations go into the current round one after another. An update first reads its document and becomes an index operation that
//! expects the document unchanged; one of a document that the round has touched already waits for the next round. A round also
//! ends once the documents that updates have made of their stored ones take [`ROUND_BYTES`]: they are charged to the memory of
//! unflushed documents as they are made, and given back when the memtable has them. So a small request that changes many large
//! documents is written in as many frames as it takes, within the bounds of all others.
//!
//! Frames are synced in order: a round does not wait for its own unless it ended for its bytes. An update that lost a race against
//! another writer is tried again behind its round.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use millrace_catalog::frame::FrameNumber;
use millrace_catalog::operation::{Action, Update, WriteOp};
use millrace_runtime::{Error, Priority, Result};

use super::Engine;
use super::budget::Reservation;
use super::target::{AdmittedOperation, Targets, admit, again};
use super::visibility_check::VisibilityChecks;
use super::write::{Results, WrittenShards, prepare};
use super::write_batch::PreparedOperation;

/// Bytes of merged documents that end a round; a larger document has one of its own.
const ROUND_BYTES: u64 = 8 << 20;
/// Bytes of sources that are kept for the answers of one request.
const RETURNED_BYTES: u64 = 64 << 20;

/// A request in the making; see the module.
pub(super) struct BatchedWrite<'r, 'b> {
    engine: &'r Engine,
    targets: &'r Targets,
    looks: VisibilityChecks,
    written: WrittenShards,
    results: Results,
    round: Vec<PreparedOperation>,
    /// Documents that the round touches, by index and id.
    touched: HashSet<(Arc<str>, String)>,
    /// Updates of the round that are tried again where they lose a race.
    retried: Vec<(usize, AdmittedOperation, WriteOp)>,
    /// Bytes of merged documents of the round.
    merged: u64,
    /// Bytes of sources that the answers carry.
    returned: u64,
    reserved: &'r mut Reservation<'b>,
    /// Bytes that the request itself holds.
    base: u64,
    timeout: Duration,
    /// The last frame whose sync the answer waits for.
    unsynced: Option<FrameNumber>,
    /// Why nothing more is merged.
    full: Option<Error>,
}

impl<'r, 'b> BatchedWrite<'r, 'b> {
    /// Begins a request that holds memory already, for more of which it waits as long as `timeout` says.
    pub(super) fn new(
        engine: &'r Engine,
        targets: &'r Targets,
        looks: VisibilityChecks,
        written: WrittenShards,
        (reserved, timeout): (&'r mut Reservation<'b>, Duration),
    ) -> Self {
        Self {
            engine,
            targets,
            looks,
            written,
            results: Vec::new(),
            round: Vec::new(),
            touched: HashSet::new(),
            retried: Vec::new(),
            merged: 0,
            returned: 0,
            base: reserved.bytes(),
            reserved,
            timeout,
            unsynced: None,
            full: None,
        }
    }

    /// Executes operations in order.
    pub(super) async fn write(mut self, ops: Vec<WriteOp>) -> Result<(Results, WrittenShards)> {
        self.results = ops.iter().map(|_| None).collect();
        for (item, mut op) in ops.into_iter().enumerate() {
            let admitted = match admit(self.targets, &mut op) {
                Ok(admitted) => admitted,
                Err(error) => {
                    self.results[item] = Some(Err(error));
                    continue;
                }
            };
            let key = op.id.clone().map(|id| (admitted.index.meta().name.clone(), id));
            let is_update = matches!(op.action, Action::Update(_));
            // What is tried again behind the round comes before what follows on it.
            if key.as_ref().is_some_and(|key| self.touched.contains(key))
                && (is_update || !self.retried.is_empty())
            {
                self.end_round().await?;
            }
            match &op.action {
                Action::Update(update) => {
                    let prepared =
                        self.engine.prepare_update(item, &admitted, &op, update, &self.looks).await;
                    match prepared {
                        Ok(Ok(prepared)) => match self.make_room(&prepared).await? {
                            None => {
                                self.touched.extend(key);
                                self.round.push(prepared);
                                if update.retry_on_conflict > 0 {
                                    self.retried.push((item, admitted, op));
                                }
                            }
                            Some(refused) => self.results[item] = Some(Err(refused)),
                        },
                        Ok(Err(noop)) => {
                            let source = noop.source.as_ref().map_or(0, |source| source.len() as u64);
                            self.results[item] = Some(match self.make_room_for_answer(source).await {
                                Ok(()) => Ok(noop),
                                Err(error) => Err(error),
                            });
                        }
                        Err(error) => self.results[item] = Some(Err(error)),
                    }
                }
                _ => match prepare(item, admitted, op, &self.looks) {
                    Ok(prepared) => {
                        self.touched.extend(key);
                        self.round.push(prepared);
                    }
                    Err(error) => self.results[item] = Some(Err(error)),
                },
            }
        }
        self.end_round().await?;
        self.engine.executed(self.unsynced.take()).await?;
        Ok((self.results, self.written))
    }

    /// Makes room for a merged document, by ending the round where it would hold too much; says why there is none.
    async fn make_room(&mut self, prepared: &PreparedOperation) -> Result<Option<Error>> {
        let bytes = prepared.source.as_ref().map_or(0, |source| source.len() as u64);
        if self.merged > 0 && self.merged + bytes > ROUND_BYTES {
            self.end_round().await?;
            self.engine.executed(self.unsynced.take()).await?;
        }
        if let Some(full) = &self.full {
            return Ok(Some(again(full)));
        }
        if prepared.returns_source
            && let Err(error) = self.make_room_for_answer(bytes).await
        {
            return Ok(Some(error));
        }
        match self.reserved.grow(bytes, self.timeout).await {
            Ok(()) => {
                self.merged += bytes;
                Ok(None)
            }
            // Those behind it need not wait as long again.
            Err(error) => Ok(Some(again(self.full.insert(error)))),
        }
    }

    /// Makes room for a source that an answer carries.
    async fn make_room_for_answer(&mut self, bytes: u64) -> Result<()> {
        if self.returned + bytes > RETURNED_BYTES {
            return Err(Error::IllegalArgument(format!(
                "the sources that the updates of this request answer take more than [{RETURNED_BYTES}] bytes: ask for \
                 fewer of them with [_source], or send fewer updates at once"
            )));
        }
        self.reserved.grow(bytes, self.timeout).await?;
        (self.returned, self.base) = (self.returned + bytes, self.base + bytes);
        Ok(())
    }

    /// Executes the round, and tries again what lost a race in it.
    async fn end_round(&mut self) -> Result<()> {
        let round = std::mem::take(&mut self.round);
        self.touched.clear();
        self.execute(round).await?;
        self.merged = 0;
        self.reserved.shrink_to(self.base);
        for (item, admitted, op) in std::mem::take(&mut self.retried) {
            if let Action::Update(update) = &op.action {
                self.retry(item, &admitted, &op, update).await?;
            }
        }
        Ok(())
    }

    /// Executes operations as one frame and files their outcomes.
    async fn execute(&mut self, round: Vec<PreparedOperation>) -> Result<()> {
        if round.is_empty() {
            return Ok(());
        }
        let wait = self.written.note(&round)?;
        let places = self.looks.places(&round);
        let (inner, origin) = (Arc::clone(&self.engine.inner), self.written.origin);
        let job = move || inner.execute(round, origin);
        let (frame, outcomes) = self.engine.inner.env().compute.run(Priority::Ingest, job).await?;
        self.unsynced = frame.filter(|_| wait).or(self.unsynced);
        self.looks.learn(&places, &outcomes);
        for (item, outcome) in outcomes {
            self.results[item] = Some(outcome);
        }
        Ok(())
    }

    /// Tries an update again as long as it loses against other writers.
    async fn retry(
        &mut self,
        item: usize,
        admitted: &AdmittedOperation,
        op: &WriteOp,
        update: &Update,
    ) -> Result<()> {
        let index = &admitted.index;
        for _ in 0..update.retry_on_conflict {
            if !matches!(self.results[item], Some(Err(Error::VersionConflict { .. }))) {
                break;
            }
            let id = op.id.as_deref().unwrap_or_default();
            let shard = index.shard_for(Some(id), op.routing.as_deref());
            self.engine.look_again(index, shard, id, &mut self.looks).await;
            match self.engine.prepare_update(item, admitted, op, update, &self.looks).await {
                Ok(Ok(prepared)) => self.execute(vec![prepared]).await?,
                Ok(Err(noop)) => self.results[item] = Some(Ok(noop)),
                Err(error) => self.results[item] = Some(Err(error)),
            }
        }
        Ok(())
    }
}
