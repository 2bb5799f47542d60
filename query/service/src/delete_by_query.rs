//! `_delete_by_query`: deletes the versions that a snapshot shows, in batches.
//!
//! Each document is deleted only if it is still as the snapshot has it; one that has changed since
//! is a conflict, which ends the operation or is counted, as asked. Each batch asks anew what its sender may do: it ends with
//! 403 where that is not what it began with.
//!
//! A batch is written in slices ([`WriteSlices`]). A cancellation ends the operation between two of them: deletions that have begun are
//! counted in the answer, and no others begin.

mod request;
mod write_slices;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use millrace_catalog::access::{self, Refusals};
use millrace_dsl::params::Params;
use millrace_dsl::sort::{SortBy, SortKey};
use millrace_engine::{Action, DocResult, RefreshPolicy, Session, WriteOp, WriteOutcome};
use millrace_runtime::tasks::TaskCancelled;
use millrace_runtime::{Error as StorageError, Instant, Kind};
use millrace_search::fetch;
use millrace_search::searcher::{Search, slice_of};
use millrace_segment::{RowParts, StoredRow};
use millrace_target::access_checkpoint::AccessCheckpoint;
use millrace_target::lookup;
use millrace_target::target;
use millrace_work::bytes_of;
use millrace_work::error::{Error, Result};
use serde_json::{Map, Value, json};

use self::request::Request;
use self::write_slices::WriteSlices;
use crate::service::{Outcome, SearchService};

/// Failures listed before the operation ends.
const MAX_FAILURES: usize = 100;

/// Longest pause between two batches, in milliseconds.
const MAX_PAUSE_MS: f64 = 86_400_000.0;
/// Interval within a pause at which the operation checks whether it may go on.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Counters of the operation or of one slice.
#[derive(Clone, Debug, Default)]
struct Counters {
    total: u64,
    deleted: u64,
    conflicts: u64,
    batches: u64,
}

impl Counters {
    /// Documents that were deleted or found changed.
    fn handled(&self) -> u64 {
        self.deleted + self.conflicts
    }

    fn to_json(&self, throttled_ms: u64, per_second: f64) -> Map<String, Value> {
        let mut out = Map::new();
        out.insert("total".into(), json!(self.total));
        out.insert("deleted".into(), json!(self.deleted));
        out.insert("batches".into(), json!(self.batches));
        out.insert("version_conflicts".into(), json!(self.conflicts));
        out.insert("noops".into(), json!(0));
        out.insert("retries".into(), json!({"bulk": 0, "search": 0}));
        out.insert("throttled_millis".into(), json!(throttled_ms));
        out.insert("requests_per_second".into(), json!(per_second));
        out.insert("throttled_until_millis".into(), json!(0));
        out
    }
}

/// A `_delete_by_query` that is read, and can be run once.
#[derive(Debug)]
pub struct DeletionRequest {
    request: Request,
    /// Body that the request was read from; it is let go with what the request is charged for.
    body: Option<Value>,
}

impl DeletionRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// Parameters or a body that make no deletion.
    pub(crate) fn parse(params: Params, body: Option<Value>) -> Result<Self> {
        Ok(Self { request: Request::parse(params, body.as_ref())?, body })
    }

    /// Checks the request before its work begins behind an answer.
    ///
    /// # Errors
    /// Indices that are not there, and rights that the session does not have.
    pub(crate) fn check(&self, session: &Session, expression: &str) -> Result<()> {
        let reading = session.doing(access::Action::Search)?;
        let indices = target::resolve(&reading, expression, &self.request.scope.options)?;
        let metas: Vec<_> = indices.iter().map(|index| index.meta()).collect();
        Ok(session.check_all(metas.iter().map(|meta| &*meta.name))?)
    }
}

/// Tally of an operation.
#[derive(Debug)]
struct Tally {
    sum: Counters,
    slices: Vec<Counters>,
    failures: Vec<Value>,
    status: u16,
    /// `true` if a failure is a matter of rights.
    denied: bool,
    /// Slices whose batch is counted already; none before the first outcome of a batch.
    counted_slices: Vec<bool>,
}

impl Tally {
    fn new(slices: u64) -> Self {
        let (counted_slices, slices) =
            (vec![false; slices as usize], vec![Counters::default(); slices as usize]);
        let (sum, failures) = (Counters::default(), Vec::new());
        Self { sum, slices, failures, status: 200, denied: false, counted_slices }
    }

    /// Begins a batch: it is counted with its first outcomes.
    fn begin_batch(&mut self) {
        self.counted_slices.fill(false);
    }

    /// Adds the failure of a deletion. The first one for want of rights sets the status, and is listed even where the list is full.
    fn add_failure(&mut self, index: &str, id: &str, error: StorageError, refusals: &Refusals) {
        refusals.note(&error);
        let conflict = matches!(error, StorageError::VersionConflict { .. });
        let is_first_denied = !self.denied && error.kind() == Kind::Unauthorized;
        self.denied |= is_first_denied;
        let error = Error::from(error);
        self.status = if self.denied { 403 } else { self.status.max(error.status()) };
        let told = failure(index, id, &error, conflict);
        if self.failures.len() < MAX_FAILURES {
            self.failures.push(told);
        } else if is_first_denied && let Some(last) = self.failures.last_mut() {
            *last = told;
        }
    }

    /// Takes what came of some deletions of a batch, with the slice, the index and the id of each; tells whether the operation ends by that.
    fn take(
        &mut self,
        outcomes: Vec<Result<WriteOutcome, StorageError>>,
        operations: impl Iterator<Item = (usize, (Arc<str>, String))>,
        proceed: bool,
        refusals: &Refusals,
    ) -> bool {
        self.sum.batches += u64::from(!self.counted_slices.contains(&true));
        let mut ends = false;
        for (outcome, (slice, (index, id))) in outcomes.into_iter().zip(operations) {
            let own = &mut self.slices[slice];
            own.total += 1;
            own.batches += u64::from(!std::mem::replace(&mut self.counted_slices[slice], true));
            match outcome {
                Ok(done) if done.result == DocResult::Deleted => {
                    own.deleted += 1;
                    self.sum.deleted += 1;
                }
                // Gone since the snapshot: somebody else's deletion came first.
                Ok(_) => {
                    own.conflicts += 1;
                    self.sum.conflicts += 1;
                    ends |= !proceed;
                }
                Err(error) => {
                    let conflict = matches!(error, StorageError::VersionConflict { .. });
                    if conflict {
                        own.conflicts += 1;
                        self.sum.conflicts += 1;
                    }
                    if conflict && proceed {
                        continue;
                    }
                    ends = true;
                    self.add_failure(&index, &id, error, refusals);
                }
            }
        }
        ends
    }
}

/// Runs a request to its end. A throttled one drops `held`, and its body, once its query is understood: from then on it has a place of
/// its own, and what it holds counts as contexts do.
pub(crate) async fn run(
    service: &SearchService,
    session: &Session,
    expression: &str,
    deletion: DeletionRequest,
    held: Box<dyn Any + Send>,
) -> Result<Outcome> {
    let DeletionRequest { mut request, body } = deletion;
    let started_ms = service.now_ms();
    if let Some(task) = session.task() {
        task.set_cancellable();
    }
    let searcher = service.searcher()?;
    let (work, _ends) = searcher.begin();
    // What is deleted has to be seen.
    let reading = session.doing(access::Action::Search)?;
    // A throttled request may take days.
    let place = match request.per_second > 0.0 {
        true => Some(service.throttled.begin(session.principal())?),
        false => None,
    };
    let asked = body.as_ref().map_or(0, bytes_of).saturating_add(request.query.bytes());
    let pinned = async {
        Ok(match place {
            Some(_) => {
                let kept = service.pin_to_keep(&reading, expression, &request.scope, asked).await?;
                (Arc::clone(&kept.snapshot), Some(kept))
            }
            None => (service.pin(&reading, expression, &request.scope).await?, None),
        })
    };
    let nothing_deleted = |request: &Request| {
        let took_ms = service.now_ms() - started_ms;
        answer(Tally::new(request.slices), request, took_ms, 0, session.check_cancelled().err())
    };
    let Some((snapshot, _kept)) = unless_cancelled(session, pinned).await? else {
        return Ok(nothing_deleted(&request));
    };
    let mut begun = AccessCheckpoint::new(session, vec![Arc::clone(&snapshot)], access::Action::Search);
    let mut check = |session: &Session| {
        session.check_all(snapshot.indices.iter().map(|index| &*index.meta.name))?;
        begun.check(session)
    };
    check(session)?;
    let compute = &searcher.compute;
    let read = lookup::read(&reading, &snapshot, &mut request.query, compute, &work);
    if unless_cancelled(session, read).await?.is_none() {
        return Ok(nothing_deleted(&request));
    }
    let _held = place.is_none().then_some((body, held));
    let by_address = [SortKey { by: SortBy::Doc, descending: false }];
    // Without a bound on documents their order makes no difference, and that of the index is free.
    let sort = match request.max_docs {
        Some(_) if !request.sort.is_empty() => request.sort.as_slice(),
        _ => by_address.as_slice(),
    };
    let (mut tally, mut write_slices) = (Tally::new(request.slices), WriteSlices::default());
    let mut throttled_ms = 0;
    let mut after = None;
    // Whether it ends because its task is cancelled.
    let ended: Result<bool> = async {
        loop {
            let left = request.max_docs.map_or(u64::MAX, |max| max.saturating_sub(tally.sum.handled()));
            let size = request.batch.min(usize::try_from(left).unwrap_or(usize::MAX));
            if size == 0 {
                return Ok(false);
            }
            if session.check_cancelled().is_err() {
                return Ok(true);
            }
            let search = Search {
                sort,
                size,
                after: after.take(),
                track: (tally.sum.batches == 0).then_some(u64::MAX),
                terminate_after: request.terminate_after,
                ..Search::new(Arc::clone(&snapshot), &request.query, started_ms, &work)
            };
            let Some(found) = unless_cancelled(session, searcher.find(search)).await? else {
                return Ok(true);
            };
            if !found.failures.is_empty() {
                return Err(Error::SearchPhase { failures: found.failures });
            }
            if let Some((total, _)) = found.total {
                tally.sum.total = total.min(request.max_docs.unwrap_or(u64::MAX));
            }
            let addresses = &found.rows.addresses;
            let Some(last) = addresses.len().checked_sub(1) else { return Ok(false) };
            // A batch is held until the next one is looked for.
            let (batch, parts) = (work.part(), RowParts { source: false, versions: true });
            let fetched = fetch::rows(&snapshot, addresses, parts, &searcher.compute, &batch);
            let Some(rows) = unless_cancelled(session, fetched).await? else { return Ok(true) };
            let deletions: Vec<Deletion> = addresses
                .iter()
                .zip(rows)
                .map(|(address, row)| {
                    let index = snapshot.segments[address.segment as usize].index;
                    Deletion::new(&snapshot.indices[index].meta.name, row, request.slices)
                })
                .collect();
            let handled_now = deletions.len();
            let again = async { Ok(session.again().await?) };
            let Some(session) = unless_cancelled(session, again).await? else { return Ok(true) };
            check(&session)?;
            let progress = Progress { tally: &mut tally, throttled_ms };
            let Some(ends) = write_batch(&session, &request, deletions, &mut write_slices, progress).await?
            else {
                return Ok(true);
            };
            let done = addresses.len() < size || tally.sum.handled() >= request.max_docs.unwrap_or(u64::MAX);
            if ends || done {
                return Ok(false);
            }
            after =
                Some(found.order.point(&found.rows.keys, last, found.rows.scores[last], addresses[last])?);
            if request.per_second > 0.0 {
                let pause_ms = (handled_now as f64 * 1_000.0 / request.per_second).min(MAX_PAUSE_MS) as u64;
                throttled_ms += pause(&session, pause_ms, &mut check).await?;
            }
        }
    }
    .await;
    // Also of what was deleted before it failed, but not behind a cancellation: that work would outlive it.
    let refreshed = if request.refresh && !matches!(ended, Ok(true)) {
        let refreshed = async {
            let expression = target::expression_or_all(expression);
            let indices = session.resolve(expression, &request.scope.options)?;
            Ok(session.refresh(&indices).await?)
        };
        unless_cancelled(session, refreshed).await
    } else {
        Ok(Some(()))
    };
    let is_cancelled = ended? || refreshed?.is_none();
    let cancelled = session.check_cancelled().err().filter(|_| is_cancelled);
    let took_ms = service.now_ms() - started_ms;
    Ok(answer(tally, &request, took_ms, throttled_ms, cancelled))
}

/// The deletion of a row that a batch has found.
struct Deletion {
    slice: usize,
    op: WriteOp,
}

impl Deletion {
    fn new(index: &Arc<str>, row: StoredRow, slices: u64) -> Self {
        let op = WriteOp {
            routing: row.routing,
            if_seq_no: Some(row.seq_no),
            if_primary_term: Some(row.primary_term),
            ..WriteOp::new(Arc::clone(index), Some(row.id), Action::Delete)
        };
        Self { slice: slice_of(op.id.as_deref().unwrap_or_default(), slices) as usize, op }
    }

    /// Names the slice, the index and the id.
    fn name(&self) -> (usize, (Arc<str>, String)) {
        (self.slice, (Arc::clone(&self.op.index), self.op.id.clone().unwrap_or_default()))
    }
}

/// Progress of an operation.
struct Progress<'a> {
    tally: &'a mut Tally,
    throttled_ms: u64,
}

/// Writes a batch. Returns whether the operation ends by its outcomes; `None` where the task of the session is cancelled before all
/// of the batch is written.
async fn write_batch(
    session: &Session,
    request: &Request,
    deletions: Vec<Deletion>,
    slices: &mut WriteSlices,
    Progress { tally, throttled_ms }: Progress<'_>,
) -> Result<Option<bool>> {
    tally.begin_batch();
    let (mut deletions, mut ends) = (deletions.into_iter(), false);
    while deletions.len() > 0 {
        let slice: Vec<Deletion> = deletions.by_ref().take(slices.operations()).collect();
        let named: Vec<_> = slice.iter().map(Deletion::name).collect();
        let ops: Vec<WriteOp> = slice.into_iter().map(|deletion| deletion.op).collect();
        let (count, began) = (ops.len(), Instant::now());
        let written = session.write_unless_cancelled(ops, RefreshPolicy::None, request.timeout).await;
        let outcomes = match written {
            Err(StorageError::Cancelled) => return Ok(None),
            // What came of those before is told with the error.
            Err(error) if tally.sum.batches > 0 => {
                if let Some((_, (index, id))) = named.first() {
                    tally.add_failure(index, id, error, session.refusals());
                }
                return Ok(Some(true));
            }
            outcomes => outcomes?,
        };
        slices.took(count, began.elapsed());
        // Conflicts end the operation with their batch.
        ends |= tally.take(outcomes, named.into_iter(), request.proceed, session.refusals());
        if let Some(task) = session.task() {
            let so_far = tally.sum.to_json(throttled_ms, request.per_second);
            task.set_progress(Value::Object(so_far).to_string());
        }
    }
    Ok(Some(ends))
}

/// Makes the answer of an operation. `cancelled` tells that its task was: what it has deleted until then counts.
fn answer(
    tally: Tally,
    request: &Request,
    took_ms: i64,
    throttled_ms: u64,
    cancelled: Option<TaskCancelled>,
) -> Outcome {
    let Tally { sum, slices, failures, status, .. } = tally;
    let mut answer = Map::new();
    answer.insert("took".into(), json!(took_ms.max(0)));
    answer.insert("timed_out".into(), json!(false));
    if let Some(TaskCancelled { reason }) = cancelled {
        answer.insert("canceled".into(), json!(&*reason));
    }
    answer.extend(sum.to_json(throttled_ms, request.per_second));
    if request.slices > 1 {
        let slices: Vec<Value> = slices
            .iter()
            .enumerate()
            .map(|(id, counters)| {
                let mut slice = Map::new();
                slice.insert("slice_id".into(), json!(id));
                slice.extend(counters.to_json(0, request.per_second));
                Value::Object(slice)
            })
            .collect();
        answer.insert("slices".into(), json!(slices));
    }
    answer.insert("failures".into(), json!(failures));
    Outcome::json(status, Value::Object(answer))
}

/// Does work that changes nothing; `None` where the task of the session is cancelled before it is done.
async fn unless_cancelled<T>(session: &Session, work: impl Future<Output = Result<T>>) -> Result<Option<T>> {
    match session.task() {
        None => work.await.map(Some),
        Some(task) => task.run(work).await.map_or(Ok(None), |done| done.map(Some)),
    }
}

/// Lets milliseconds pass that a request is throttled for, for as long as its sender may do what it asks and the server goes on.
/// Returns how many have passed: fewer where the task of the session is cancelled.
async fn pause(
    session: &Session,
    pause_ms: u64,
    check: &mut (impl FnMut(&Session) -> Result<()> + Send),
) -> Result<u64> {
    let began = Instant::now();
    let ends = began + Duration::from_millis(pause_ms);
    while Instant::now() < ends {
        let slept = tokio::time::sleep(LOOK_EVERY.min(ends.saturating_duration_since(Instant::now())));
        if unless_cancelled(session, slept.map(Ok)).await?.is_none() {
            let passed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(pause_ms);
            return Ok(passed_ms.min(pause_ms));
        }
        match session.again().await {
            // There is no telling now who sends it: the next look may tell.
            Err(StorageError::Rejected(_)) => {}
            now => check(&now?)?,
        }
        if session.is_stopping() {
            return Err(StorageError::Stopped("the server is stopping".to_owned()).into());
        }
    }
    Ok(pause_ms)
}

fn failure(index: &str, id: &str, error: &Error, conflict: bool) -> Value {
    let kind = if conflict { "version_conflict_engine_exception".to_owned() } else { error.error_type() };
    json!({
        "index": index,
        "type": "_doc",
        "id": id,
        "cause": {"type": kind, "reason": error.reason(), "index": index},
        "status": error.status(),
    })
}
