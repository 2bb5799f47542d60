//! Writes of a source: documents, dead letters and moves of positions, all in one frame or none of them.
//!
//! Pipelines hand over what they have read with the positions that it moves. Where the store refuses an
//! operation for good, the caller says what is to be stored in its place, and the whole is tried again; what
//! passes by itself (overload, a full disk, a block) fails the whole, and the source keeps its position.

use std::collections::HashMap;
use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, Either};
use millrace_catalog::access::{Caller, Origin, Principal};
use millrace_catalog::frame::{FrameNumber, PositionDelta};
use millrace_catalog::operation::{Action, DeadLetter, OnReject, SourceWrite, WriteOp, WriteOutcome};
use millrace_runtime::{Error, Kind, Priority, Result};
use uuid::Uuid;

use super::feed::FEED_PIPELINE;
use super::target::{RequestSummary, Targets, admit, admit_shared};
use super::visibility_check::VisibilityChecks;
use super::write::{MANY_OPS, prepare, prepare_shared};
use super::write_batch::{Outcome, ParsedBatch, Terms};
use super::{Engine, Inner};

/// Times that a write is decided anew because others changed the same documents or indices meanwhile.
const RACES: usize = 16;
/// Bytes that a move of a position needs in the log beyond its names and positions.
const MOVE_BYTES: u64 = 64;

/// A write of a source that is applied, but not durable yet.
#[must_use = "the source may be told only when it is durable"]
pub struct UnsyncedWrite {
    inner: Arc<Inner>,
    frame: Option<FrameNumber>,
    results: Vec<Result<WriteOutcome>>,
}

impl fmt::Debug for UnsyncedWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Appended").field("frame", &self.frame).finish_non_exhaustive()
    }
}

impl UnsyncedWrite {
    /// Returns the results: what follows this write in the log is durable no sooner.
    pub fn into_results(self) -> Vec<Result<WriteOutcome>> {
        self.results
    }

    /// Waits until it is durable, whatever the indices' settings say. One result an operation; where one was refused for
    /// good, its error.
    ///
    /// # Errors
    /// [`Error::Stopped`]: the log came to its end before.
    pub fn durable(self) -> BoxFuture<'static, Result<Vec<Result<WriteOutcome>>>> {
        Box::pin(async move {
            if let Some(frame) = self.frame {
                self.inner.wal()?.synced(frame).await?;
            }
            Ok(self.results)
        })
    }
}

/// Write of a source at once.
struct Load {
    /// The operations, dead letters in the place of theirs; `None` for those left out.
    ops: Vec<Option<WriteOp>>,
    /// Reasons of refused operations, by their numbers. Operations that took their place are the server's own.
    refused: HashMap<usize, Error>,
    /// Number of operations with the rights of the principal; those behind them are the server's own.
    asked: usize,
    moves: Vec<PositionDelta>,
    origin: Origin,
    /// Of the threads that parse and apply it.
    priority: Priority,
}

/// Outcome of a try.
enum AttemptOutcome {
    /// The frame, if there is anything in it, and what became of the operations.
    Done(Option<FrameNumber>, Vec<Outcome>),
    /// Refused operations: nothing was written.
    Refused(Vec<Refusal>),
}

/// Parsed operations, or what was refused before.
type ReadyOperations = std::result::Result<ParsedBatch, Vec<Refusal>>;

struct Refusal {
    item: usize,
    error: Error,
    /// `true` if somebody else's change may be the reason, so that another try may do.
    race: bool,
}

impl Engine {
    /// Executes operations in order and moves positions, in one frame: after a crash all of it is there or
    /// nothing. Returns when it is durable, whatever the indices' settings say. One result an operation;
    /// where one was refused for good, its error, and `dead_letter` has said what is stored in its place.
    ///
    /// # Errors
    /// [`Error::IllegalArgument`] for a principal with rules for documents; [`Error::PositionMoved`] where a position is not what its move comes from; [`Error::DeadLetterRefused`]
    /// where what stands for a refused operation is refused as well, or nothing is to be written without it; what passes by itself: overload, a full
    /// disk, a block, shutdown. Then nothing was written.
    pub fn write_from_source<'a>(
        &'a self,
        principal: &'a Principal,
        write: SourceWrite,
        dead_letter: DeadLetter,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Vec<Result<WriteOutcome>>>> {
        Box::pin(async move {
            let ready = Box::pin(ready(()));
            self.append_from_source(principal, write, dead_letter, timeout, ready).await?.durable().await
        })
    }

    /// Executes operations as [`Engine::write_from_source`] does, after `ready` has ended; documents are parsed before, so
    /// that writes that follow each other are parsed at the same time. Returns when it is applied: what is written
    /// from now on comes behind it, and is durable no sooner.
    ///
    /// # Errors
    /// As [`Engine::write_from_source`].
    pub fn append_from_source<'a>(
        &'a self,
        principal: &'a Principal,
        write: SourceWrite,
        dead_letter: DeadLetter,
        timeout: Duration,
        ready: BoxFuture<'a, ()>,
    ) -> BoxFuture<'a, Result<UnsyncedWrite>> {
        self.append_at_priority(principal, write, dead_letter, timeout, ready, Priority::Ingest)
    }

    /// Executes operations as [`Engine::append_from_source`] does, on threads of a priority. What is written behind the change feed
    /// takes no thread that clients wait for.
    ///
    /// # Errors
    /// As [`Engine::write_from_source`].
    pub fn append_at_priority<'a>(
        &'a self,
        principal: &'a Principal,
        write: SourceWrite,
        dead_letter: DeadLetter,
        timeout: Duration,
        ready: BoxFuture<'a, ()>,
        priority: Priority,
    ) -> BoxFuture<'a, Result<UnsyncedWrite>> {
        Box::pin(async move {
            let inner = &self.inner;
            inner.check_accepting()?;
            refuse_reserved(principal, &write.moves)?;
            refuse_rules(principal)?;
            let origin = principal.origin();
            // Writes that clients wait for take no further turn among those of others.
            let is_large = priority != Priority::Ingest && write.ops.len() + write.own.len() > MANY_OPS;
            let survey = move || {
                let load = Load::new(write, origin, priority);
                let surveys = load.surveys();
                Ok((load, surveys))
            };
            let (mut load, (asked, own)) = match is_large {
                true => inner.env().compute.run(priority, survey).await?,
                false => survey()?,
            };
            let bytes = asked.bytes + own.bytes + load.moves.iter().map(move_bytes).sum::<u64>();
            inner.wal()?.admit(bytes)?;
            // Updates read what the writes before have left.
            let (mut parsed, mut known) = (None, None);
            if !asked.has_updates && !own.has_updates {
                let targets = self.targets_of_source(principal, asked, own).await;
                known = Some(self.metadata());
                parsed = Some(self.parse(&mut load, targets).await?);
            }
            ready.await;
            if known.is_some_and(|known| !Arc::ptr_eq(&known, &self.metadata())) {
                // An index may have been blocked or closed meanwhile, an alias may mean another one.
                parsed = None;
            }
            inner.positions.check(&load.moves)?;
            // Not before: who waits until it may write must not hold what those before need.
            let reserved = inner.budget.reserve(bytes, timeout).await?;
            let mut races = 0;
            let (frame, outcomes) = loop {
                let tried = match parsed.take() {
                    Some(parsed) => self.commit(&mut load, parsed).await?,
                    None => self.attempt(principal, &mut load, races > 0).await?,
                };
                match tried {
                    AttemptOutcome::Done(frame, outcomes) => break (frame, outcomes),
                    AttemptOutcome::Refused(refusals) if refusals.iter().all(|r| r.race) && races < RACES => {
                        races += 1
                    }
                    AttemptOutcome::Refused(refusals) => {
                        load.replace(refusals, races < RACES, &dead_letter)?
                    }
                }
            };
            drop(reserved);
            let results = match is_large {
                true => inner.env().compute.run(priority, move || Ok(load.answers(outcomes))).await?,
                false => load.answers(outcomes),
            };
            Ok(UnsyncedWrite { inner: Arc::clone(inner), frame, results })
        })
    }

    /// Tries the operations as they are now: dead letters among them have an index of their own.
    async fn attempt(&self, principal: &Principal, load: &mut Load, lost: bool) -> Result<AttemptOutcome> {
        let (asked, own) = load.surveys();
        let has_updates = asked.has_updates || own.has_updates;
        let targets = self.targets_of_source(principal, asked, own).await;
        if !has_updates {
            let parsed = self.parse(load, targets).await?;
            return self.commit(load, parsed).await;
        }
        // Updates of one document by several sources would refuse each other without end: one that lost goes alone.
        let updates = &self.inner.source_updates;
        let _turn = match lost {
            false => Either::Left(updates.read().await),
            true => Either::Right(updates.write().await),
        };
        self.try_with_updates(load, targets).await
    }

    /// Finds the indices of a load's operations, each by the rights that it is written with: who may choose a name does not
    /// have those of the server on it because a dead letter is for the same index.
    async fn targets_of_source(
        &self,
        principal: &Principal,
        asked: RequestSummary,
        own: RequestSummary,
    ) -> SourceTargets {
        let asked = self.targets(principal, asked.names).await;
        let own = match own.names.is_empty() {
            true => Targets::default(),
            false => self.targets(&Principal::system(), own.names).await,
        };
        SourceTargets { asked, own }
    }

    /// Parses operations without partial updates, on a compute thread.
    async fn parse(&self, load: &mut Load, targets: SourceTargets) -> Result<ReadyOperations> {
        let inner = Arc::clone(&self.inner);
        let own: Vec<bool> = (0..load.ops.len()).map(|item| load.is_own(item)).collect();
        let ops = std::mem::take(&mut load.ops);
        // Those who write from sources have no rules for documents.
        let looks = VisibilityChecks::default();
        let job = move || {
            let (mut round, mut refusals) = (Vec::with_capacity(ops.len()), Vec::new());
            for (item, (op, own)) in ops.iter().zip(own).enumerate() {
                let Some(op) = op else { continue };
                match admit_shared(targets.of(own), op) {
                    Ok((admitted, routing)) => {
                        round.push(prepare_shared(item, admitted, op, routing.cloned(), &looks)?);
                    }
                    Err(error) => refusals.push(Refusal { item, error, race: false }),
                }
            }
            let parsed = match refusals.is_empty() {
                true => inner.parse_round(round).map(Ok),
                false => Ok(Err(refusals)),
            };
            Ok((ops, parsed))
        };
        let (ops, parsed) = self.inner.env().compute.run(load.priority, job).await?;
        load.ops = ops;
        parsed
    }

    /// Commits what was parsed, on a compute thread.
    async fn commit(&self, load: &mut Load, parsed: ReadyOperations) -> Result<AttemptOutcome> {
        let parsed = match parsed {
            Ok(parsed) => parsed,
            Err(refusals) => return Ok(AttemptOutcome::Refused(refusals)),
        };
        let (frame, outcomes) = self
            .as_a_whole(load, move |inner, origin, terms| inner.commit_parsed(parsed, origin, terms))
            .await?;
        Ok(tried(frame, outcomes, &[]))
    }

    /// Runs what commits a load with its moves, on a compute thread.
    async fn as_a_whole<F>(&self, load: &mut Load, commit: F) -> Result<(Option<FrameNumber>, Vec<Outcome>)>
    where
        F: FnOnce(&Inner, Origin, Terms<'_>) -> Result<(Option<FrameNumber>, Vec<Outcome>)> + Send + 'static,
    {
        let inner = Arc::clone(&self.inner);
        let (moves, origin) = (std::mem::take(&mut load.moves), load.origin);
        let job = move || {
            let done = commit(&inner, origin, Terms::Whole(&moves));
            Ok((moves, done))
        };
        let (moves, done) = self.inner.env().compute.run(load.priority, job).await?;
        load.moves = moves;
        done
    }

    /// Tries operations with partial updates among them. An update of a document that the same frame has
    /// changed already goes on from there, so that one frame does for all.
    async fn try_with_updates(&self, load: &mut Load, targets: SourceTargets) -> Result<AttemptOutcome> {
        let looks = VisibilityChecks::default();
        let (mut round, mut noops, mut refusals) =
            (Vec::with_capacity(load.ops.len()), Vec::new(), Vec::new());
        // What the operations so far leave of each document, by index, shard and id.
        let mut left: HashMap<(Uuid, u32, String), Option<Bytes>> = HashMap::new();
        let mut updates = Vec::new();
        for (item, op) in load.ops.iter().enumerate() {
            let Some(mut op) = op.clone() else { continue };
            let admitted = match admit(targets.of(load.is_own(item)), &mut op) {
                Ok(admitted) => admitted,
                Err(error) => {
                    refusals.push(Refusal { item, error, race: false });
                    continue;
                }
            };
            let index = &admitted.index;
            let id = op.id.clone().unwrap_or_default();
            let key = (index.meta().uuid, index.shard_for(op.id.as_deref(), op.routing.as_deref()), id);
            let prepared = match &op.action {
                Action::Update(update) => {
                    if op.if_seq_no.is_none() {
                        updates.push(item);
                    }
                    match left.get(&key) {
                        Some(earlier) => {
                            Self::prepare_update_of(item, &admitted, &op, update, earlier.as_ref()).map(Ok)
                        }
                        None => self.prepare_update(item, &admitted, &op, update, &looks).await,
                    }
                }
                _ => prepare(item, admitted, op, &looks).map(Ok),
            };
            match prepared {
                Ok(Ok(prepared)) => {
                    if prepared.id.is_some() {
                        left.insert(key, prepared.source.clone());
                    }
                    round.push(prepared);
                }
                Ok(Err(noop)) => noops.push((item, Ok(noop))),
                Err(error) => refusals.push(Refusal { item, error, race: false }),
            }
        }
        if !refusals.is_empty() {
            return Ok(AttemptOutcome::Refused(refusals));
        }
        let (frame, mut outcomes) = self
            .as_a_whole(load, move |inner, origin, terms| inner.execute_with(round, origin, terms))
            .await?;
        outcomes.extend(noops);
        Ok(tried(frame, outcomes, &updates))
    }
}

/// Refuses a principal that does not see all documents: what a source writes is not looked up for whether it does.
fn refuse_rules(principal: &Principal) -> Result<()> {
    match principal.privileges().has_document_rules() {
        true => Err(Error::IllegalArgument(format!(
            "{} cannot write from a source: its roles have rules for documents",
            principal.caller()
        ))),
        false => Ok(()),
    }
}

/// Refuses a pipeline's moves of what is the server's own.
fn refuse_reserved(principal: &Principal, moves: &[PositionDelta]) -> Result<()> {
    let reserved = moves.iter().any(|delta| delta.pipeline == FEED_PIPELINE);
    if reserved && matches!(principal.caller(), Caller::Pipeline(_)) {
        let reason =
            format!("positions of [{FEED_PIPELINE}] are the server's own, no pipeline can move them");
        return Err(Error::IllegalArgument(reason));
    }
    Ok(())
}

/// Sorts what became of a round: `updates` are the operations that may lose against other writers.
fn tried(frame: Option<FrameNumber>, outcomes: Vec<Outcome>, updates: &[usize]) -> AttemptOutcome {
    if outcomes.iter().all(|(_, outcome)| outcome.is_ok()) {
        return AttemptOutcome::Done(frame, outcomes);
    }
    let refusals = outcomes.into_iter().filter_map(|(item, outcome)| {
        let error = outcome.err()?;
        let race = match &error {
            Error::VersionConflict { .. } => updates.binary_search(&item).is_ok(),
            // It was there when the round began: deleted, and perhaps made anew.
            Error::IndexNotFound { .. } => true,
            _ => false,
        };
        Some(Refusal { item, error, race })
    });
    AttemptOutcome::Refused(refusals.collect())
}

/// Targets of the operations of a load.
struct SourceTargets {
    asked: Targets,
    own: Targets,
}

impl SourceTargets {
    fn of(&self, own: bool) -> &Targets {
        if own { &self.own } else { &self.asked }
    }
}

impl Load {
    fn new(SourceWrite { ops, own, moves }: SourceWrite, origin: Origin, priority: Priority) -> Self {
        let asked = ops.len();
        // In the memory that they have.
        let mut ops: Vec<Option<WriteOp>> = ops.into_iter().map(Some).collect();
        ops.extend(own.into_iter().map(Some));
        Self { refused: HashMap::new(), ops, asked, moves, origin, priority }
    }

    /// Returns whether an operation is the server's own.
    fn is_own(&self, item: usize) -> bool {
        item >= self.asked || self.refused.contains_key(&item)
    }

    /// Surveys what is asked for, and what is the server's own.
    fn surveys(&self) -> (RequestSummary, RequestSummary) {
        let of = |own: bool| {
            let ops = self.ops.iter().enumerate().filter(move |(item, _)| self.is_own(*item) == own);
            RequestSummary::new(ops.filter_map(|(_, op)| op.as_ref()))
        };
        (of(false), of(true))
    }

    /// Puts dead letters in the place of what was refused for good.
    ///
    /// # Errors
    /// A refusal that passes by itself, that of a dead letter, or one that nothing is to be written without.
    fn replace(&mut self, refusals: Vec<Refusal>, again: bool, dead_letter: &DeadLetter) -> Result<()> {
        for Refusal { item, error, race } in refusals {
            if race && again {
                continue;
            }
            let Some(op) = self.ops.get_mut(item).filter(|_| is_permanent(&error)) else {
                return Err(error);
            };
            let instead = match op.take() {
                Some(op) if !self.refused.contains_key(&item) => dead_letter(&op, &error),
                _ => OnReject::Abort,
            };
            *op = match instead {
                OnReject::DeadLetter(letter) => Some(letter),
                OnReject::Skip => None,
                OnReject::Abort => return Err(Error::DeadLetterRefused(error.to_string())),
            };
            self.refused.insert(item, error);
        }
        Ok(())
    }

    /// One result an operation.
    fn answers(self, outcomes: Vec<Outcome>) -> Vec<Result<WriteOutcome>> {
        let mut answers: Vec<Option<Result<WriteOutcome>>> = self.ops.iter().map(|_| None).collect();
        let refused = self.refused.into_iter().map(|(item, error)| (item, Err(error)));
        for (item, outcome) in refused.chain(outcomes) {
            if let Some(answer) = answers.get_mut(item).filter(|answer| answer.is_none()) {
                *answer = Some(outcome);
            }
        }
        let lost = || Err(Error::Internal("operation was lost".to_owned()));
        answers.into_iter().map(|answer| answer.unwrap_or_else(lost)).collect()
    }
}

/// Returns whether trying again can never help.
fn is_permanent(error: &Error) -> bool {
    use Kind::{Conflict, InvalidInput, NotFound, TooLarge, Unauthorized};
    matches!(error.kind(), InvalidInput | NotFound | Conflict | TooLarge | Unauthorized)
}

fn move_bytes(delta: &PositionDelta) -> u64 {
    let names = delta.pipeline.len() + delta.source.len() + delta.partition.len();
    let positions = delta.previous.as_ref().map_or(0, Bytes::len) + delta.new.len();
    (names + positions) as u64 + MOVE_BYTES
}
