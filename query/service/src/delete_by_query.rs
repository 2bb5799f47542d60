//! `_delete_by_query`: deletes the versions that a snapshot shows, in batches.
//!
//! Each document is deleted only if it is still as the snapshot has it; one that has changed since
//! is a conflict, which ends the operation or is counted, as asked. Each batch asks anew what its sender may do: it ends with
//! 403 where that is not what it began with.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use millrace_catalog::access::{self, Refusals};
use millrace_dsl::body::SearchBody;
use millrace_dsl::json;
use millrace_dsl::params::{Params, Scope};
use millrace_dsl::query::Query;
use millrace_dsl::sort::{self, SortBy, SortKey};
use millrace_engine::{Action, DocResult, RefreshPolicy, Session, WriteOp, WriteOutcome};
use millrace_runtime::tasks::TaskCancelled;
use millrace_runtime::{Error as StorageError, Instant, Kind};
use millrace_search::fetch;
use millrace_search::searcher::{Search, slice_of};
use millrace_segment::RowParts;
use millrace_target::access_checkpoint::AccessCheckpoint;
use millrace_target::lookup;
use millrace_target::target;
use millrace_work::bytes_of;
use millrace_work::error::{Error, Result};
use serde_json::{Map, Value, json};

use crate::service::{Outcome, SearchService};

/// Documents of one batch where the request does not say.
const BATCH: usize = 1_000;
/// Most documents of one batch.
const MAX_BATCH: usize = 10_000;
/// Most slices.
const MAX_SLICES: u64 = 1_024;
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

/// A parsed request.
#[derive(Debug)]
struct Request {
    query: Query,
    sort: Vec<SortKey>,
    max_docs: Option<u64>,
    proceed: bool,
    batch: usize,
    slices: u64,
    /// Documents a second; negative is without bound.
    per_second: f64,
    refresh: bool,
    timeout: Duration,
    terminate_after: u64,
    scope: Scope,
}

impl Request {
    fn parse(mut params: Params, body: Option<&Value>) -> Result<Self> {
        let (mut query, mut max_docs, mut batch, mut sort) = (None, None, None, Vec::new());
        let mut proceed = None;
        if let Some(body) = body {
            let mut rest = body.as_object().cloned().ok_or_else(|| {
                Error::Parsing(format!("Expected [START_OBJECT] but found [{}]", json::token(body)))
            })?;
            if let Some(value) = rest.remove("max_docs") {
                max_docs = Some(json::integer(&value)?);
            }
            if let Some(value) = rest.remove("conflicts") {
                proceed = Some(conflicts(&json::text(&value).unwrap_or_default())?);
            }
            for (key, text) in [
                ("stored_fields", "stored_fields is not supported in this context"),
                ("_source", "_source is not supported in this context"),
                ("from", "from is not supported in this context"),
                ("search_after", "search_after is not supported in this context"),
            ] {
                if rest.contains_key(key) {
                    return Err(Error::Validation(text.to_owned()));
                }
            }
            let parsed = SearchBody::parse(&Value::Object(rest))?;
            if parsed.slice.is_some() {
                return Err(Error::IllegalArgument(
                    "[slice] of one part is not supported, use [slices]".to_owned(),
                ));
            }
            (query, batch, sort) = (parsed.query, parsed.size, parsed.sort);
        }
        if let Some(from_uri) = params.uri_query()? {
            query = Some(from_uri);
        }
        // The old name of `max_docs`.
        if let Some(number) = params.integer("size")? {
            max_docs = Some(number);
        }
        if let Some(number) = params.integer("max_docs")? {
            if max_docs.is_some_and(|other| other != number) {
                return Err(Error::IllegalArgument(format!(
                    "[max_docs] set to two different values [{}] and [{number}]",
                    max_docs.unwrap_or_default()
                )));
            }
            max_docs = Some(number);
        }
        let max_docs = max_docs
            .filter(|number| *number != -1)
            .map(|number| {
                u64::try_from(number).map_err(|_| {
                    Error::Validation(format!("[max_docs] parameter cannot be negative, found [{number}]"))
                })
            })
            .transpose()?;
        if let Some(size) = params.integer("scroll_size")? {
            batch = Some(millrace_dsl::body::size(size)?);
        }
        let batch = batch.unwrap_or(BATCH);
        if batch == 0 || batch > MAX_BATCH {
            return Err(Error::IllegalArgument(format!(
                "Batch size is too large, size must be less than or equal to: [{MAX_BATCH}] but was [{batch}]"
            )));
        }
        let slices = slices(params.take("slices").as_deref())?;
        if let Some(max_docs) = max_docs
            && max_docs < slices
        {
            return Err(Error::Validation(format!(
                "[max_docs] should be >= [slices], found max_docs [{max_docs}] and slices [{slices}]"
            )));
        }
        if let Some(text) = params.take("conflicts") {
            proceed = Some(conflicts(&text)?);
        }
        if let Some(text) = params.take("sort") {
            sort.extend(sort::parse_param(&text)?);
        }
        let request = Self {
            query: query.ok_or_else(|| Error::Validation("query is missing".to_owned()))?,
            sort,
            max_docs,
            proceed: proceed.unwrap_or(false),
            batch,
            slices,
            per_second: per_second(params.take("requests_per_second").as_deref())?,
            refresh: params.boolean("refresh")?.unwrap_or(false),
            timeout: Duration::from_millis(params.time("timeout")?.flatten().unwrap_or(60_000)),
            terminate_after: match params.integer("terminate_after")? {
                None => 0,
                Some(number) => millrace_dsl::body::terminate_after(number)?,
            },
            scope: params.scope()?,
        };
        params.take("wait_for_active_shards");
        params.boolean("request_cache")?;
        params.time("scroll")?;
        params.time("search_timeout")?;
        params.take("search_type");
        params.finish()?;
        Ok(request)
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

fn conflicts(text: &str) -> Result<bool> {
    match text {
        "proceed" => Ok(true),
        "abort" => Ok(false),
        other => Err(Error::IllegalArgument(format!(
            "conflicts may only be \"proceed\" or \"abort\" but was [{other}]"
        ))),
    }
}

fn slices(text: Option<&str>) -> Result<u64> {
    match text {
        None | Some("auto") => Ok(1),
        Some(text) => match text.parse::<u64>() {
            Ok(slices @ 1..=MAX_SLICES) => Ok(slices),
            Ok(slices) if slices > MAX_SLICES => Err(Error::IllegalArgument(format!(
                "The number of slices [{slices}] is too large. It must be less than [{MAX_SLICES}]."
            ))),
            _ => Err(Error::IllegalArgument(
                "[slices] must be a positive integer or the string \"auto\"".to_owned(),
            )),
        },
    }
}

fn per_second(text: Option<&str>) -> Result<f64> {
    let Some(text) = text else { return Ok(-1.0) };
    match text.parse::<f64>() {
        Ok(-1.0) => Ok(-1.0),
        Ok(rate) if rate > 0.0 => Ok(rate),
        _ => Err(Error::IllegalArgument(
            "[requests_per_second] must be a float greater than 0. Use -1 to disable throttling.".to_owned(),
        )),
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
}

impl Tally {
    fn new(slices: u64) -> Self {
        let slices = vec![Counters::default(); slices as usize];
        Self { sum: Counters::default(), slices, failures: Vec::new(), status: 200, denied: false }
    }

    /// Takes what came of a batch of deletions, with the slice, the index and the id of each; tells whether the operation ends by that.
    fn take(
        &mut self,
        outcomes: Vec<Result<WriteOutcome, StorageError>>,
        operations: impl Iterator<Item = (usize, (Arc<str>, String))>,
        proceed: bool,
        refusals: &Refusals,
    ) -> bool {
        self.sum.batches += 1;
        let mut touched = vec![false; self.slices.len()];
        let mut ends = false;
        for (outcome, (slice, (index, id))) in outcomes.into_iter().zip(operations) {
            let own = &mut self.slices[slice];
            own.total += 1;
            own.batches += u64::from(!std::mem::replace(&mut touched[slice], true));
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
                    refusals.note(&error);
                    let is_first_denied = !self.denied && error.kind() == Kind::Unauthorized;
                    self.denied |= is_first_denied;
                    let error = Error::from(error);
                    // A matter of rights comes before whatever else has failed, and is told in any case.
                    self.status = if self.denied { 403 } else { self.status.max(error.status()) };
                    ends = true;
                    let told = failure(&index, &id, &error, conflict);
                    if self.failures.len() < MAX_FAILURES {
                        self.failures.push(told);
                    } else if is_first_denied && let Some(last) = self.failures.last_mut() {
                        *last = told;
                    }
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
    let (place, kept) = match request.per_second > 0.0 {
        true => {
            let place = service.throttled.begin(session.principal())?;
            let asked = body.as_ref().map_or(0, bytes_of).saturating_add(request.query.bytes());
            (Some(place), Some(service.pin_to_keep(&reading, expression, &request.scope, asked).await?))
        }
        false => (None, None),
    };
    let snapshot = match &kept {
        Some(kept) => Arc::clone(&kept.snapshot),
        None => service.pin(&reading, expression, &request.scope).await?,
    };
    let mut begun = AccessCheckpoint::new(session, vec![Arc::clone(&snapshot)], access::Action::Search);
    let mut check = |session: &Session| {
        session.check_all(snapshot.indices.iter().map(|index| &*index.meta.name))?;
        begun.check(session)
    };
    check(session)?;
    let compute = &searcher.compute;
    lookup::read(&reading, &snapshot, &mut request.query, compute, &work).await?;
    let _held = place.is_none().then_some((body, held));
    let by_address = [SortKey { by: SortBy::Doc, descending: false }];
    // Without a bound on documents their order makes no difference, and that of the index is free.
    let sort = match request.max_docs {
        Some(_) if !request.sort.is_empty() => request.sort.as_slice(),
        _ => by_address.as_slice(),
    };
    let mut tally = Tally::new(request.slices);
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
            let mut ops = Vec::with_capacity(rows.len());
            let mut owners = Vec::with_capacity(rows.len());
            for (address, row) in addresses.iter().zip(rows) {
                let index = snapshot.segments[address.segment as usize].index;
                owners.push(slice_of(&row.id, request.slices) as usize);
                ops.push(WriteOp {
                    routing: row.routing,
                    if_seq_no: Some(row.seq_no),
                    if_primary_term: Some(row.primary_term),
                    ..WriteOp::new(
                        Arc::clone(&snapshot.indices[index].meta.name),
                        Some(row.id),
                        Action::Delete,
                    )
                });
            }
            let handled_now = ops.len();
            let named: Vec<(Arc<str>, String)> =
                ops.iter().map(|op| (Arc::clone(&op.index), op.id.clone().unwrap_or_default())).collect();
            let session = session.again().await?;
            check(&session)?;
            let outcomes = session.write(ops, RefreshPolicy::None, request.timeout).await?;
            let ends =
                tally.take(outcomes, owners.into_iter().zip(named), request.proceed, session.refusals());
            if let Some(task) = session.task() {
                task.set_progress(
                    Value::Object(tally.sum.to_json(throttled_ms, request.per_second)).to_string(),
                );
            }
            let done = addresses.len() < size || tally.sum.handled() >= request.max_docs.unwrap_or(u64::MAX);
            if ends || done {
                return Ok(false);
            }
            after =
                Some(found.order.point(&found.rows.keys, last, found.rows.scores[last], addresses[last])?);
            if request.per_second > 0.0 {
                let pause_ms = (handled_now as f64 * 1_000.0 / request.per_second).min(MAX_PAUSE_MS) as u64;
                pause(&session, Duration::from_millis(pause_ms), &mut check).await?;
                throttled_ms += pause_ms;
            }
        }
    }
    .await;
    // Also of what was deleted before it failed, but not behind a cancellation: that work would outlive it.
    let refreshed: Result<()> = if request.refresh && !matches!(ended, Ok(true)) {
        let refreshed = async {
            let expression = target::expression_or_all(expression);
            let indices = session.resolve(expression, &request.scope.options)?;
            Ok(session.refresh(&indices).await?)
        };
        refreshed.await
    } else {
        Ok(())
    };
    let is_cancelled = ended?;
    refreshed?;
    let cancelled = session.check_cancelled().err().filter(|_| is_cancelled);
    let took_ms = service.now_ms() - started_ms;
    Ok(answer(tally, &request, took_ms, throttled_ms, cancelled))
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

/// Lets time pass that a request is throttled for, for as long as its sender may do what it asks and the server goes on.
async fn pause(
    session: &Session,
    time: Duration,
    check: &mut (impl FnMut(&Session) -> Result<()> + Send),
) -> Result<()> {
    let ends = Instant::now() + time;
    while Instant::now() < ends {
        let slept = tokio::time::sleep(LOOK_EVERY.min(ends.saturating_duration_since(Instant::now())));
        if unless_cancelled(session, slept.map(Ok)).await?.is_none() {
            return Ok(());
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
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_validated() {
        let all = json!({"query": {"match_all": {}}});
        let refused = |params: &[(&str, &str)], body: &Value| {
            let params = params.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            let params = Params::new("/t/_delete_by_query".to_owned(), params);
            Request::parse(params, Some(body)).unwrap_err().to_string()
        };
        let texts = [
            refused(&[], &json!({})),
            refused(&[("max_docs", "-4")], &all),
            refused(&[("size", "-4")], &all),
            refused(&[("max_docs", "1"), ("slices", "2")], &all),
            refused(&[("slices", "junk")], &all),
            refused(&[("requests_per_second", "0")], &all),
            refused(&[("requests_per_second", "unlimited")], &all),
            refused(&[("conflicts", "ask")], &all),
            refused(&[], &json!({"stored_fields": ["_id"]})),
        ];
        insta::assert_snapshot!(texts.join("\n"), @r#"
        Validation Failed: 1: query is missing;
        Validation Failed: 1: [max_docs] parameter cannot be negative, found [-4];
        Validation Failed: 1: [max_docs] parameter cannot be negative, found [-4];
        Validation Failed: 1: [max_docs] should be >= [slices], found max_docs [1] and slices [2];
        [slices] must be a positive integer or the string "auto"
        [requests_per_second] must be a float greater than 0. Use -1 to disable throttling.
        [requests_per_second] must be a float greater than 0. Use -1 to disable throttling.
        conflicts may only be "proceed" or "abort" but was [ask]
        Validation Failed: 1: stored_fields is not supported in this context;
        "#);
    }
}
