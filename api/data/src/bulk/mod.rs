//! `_bulk`: newline-delimited actions and documents.
//!
//! [`parse`] splits the body into items whose documents are slices of it, without copies; the handler
//! refuses the request as a whole where OpenSearch does, sets aside items that fail by themselves, hands
//! the others to the engine in order, and [`render`] writes the answer as text. [`pipelines`] changes documents before that,
//! where the request or an index names ingest pipelines.

mod action;
mod parse;
mod pipelines;
mod render;

use std::collections::HashMap;
use std::sync::Arc;

use millrace_engine::{ActionKind, RefreshPolicy, Session, WriteOp};
use millrace_runtime::Priority;

use crate::Api;
use crate::documents::options::WriteOptions;
use crate::documents::source::SourceFilter;
use crate::documents::target;
use crate::error::Error;
use crate::http::{LARGE, MemoryAllowance, Request, Response};
use crate::route::DataApi;
use parse::{Defaults, Item, Outcome};

/// Parses a body as of a request to an index and of one to none; for fuzzing.
pub(crate) fn parse_only(body: &bytes::Bytes) {
    for index in [None, Some("index")] {
        // A refusal is an answer.
        let _ = parse::parse(body, &Defaults { index, ..Defaults::default() }, &MemoryAllowance::unbounded());
    }
}

/// Answers `_bulk`.
pub(crate) async fn run(
    served: &DataApi,
    api: &Api,
    request: &mut Request,
    index: Option<&str>,
    doc_type: Option<&str>,
) -> Result<Response, Error> {
    let started_ms = api.session.clock().now_ms();
    let options = WriteOptions::take(&mut request.params, true, true)?;
    let source = SourceFilter::take(&mut request.params)?;
    request.finish()?;
    if request.body.is_empty() {
        return Err(Error::new(400, "parse_exception", "request body is required"));
    }
    let (body, index, doc_type) =
        (request.body.clone(), index.map(str::to_owned), doc_type.map(str::to_owned));
    let (refresh, timeout) = (options.refresh, options.timeout);
    let require_data_stream = options.require_data_stream;
    let (session, allowance) = (api.session.clone(), request.allowance.clone());
    let cut = move || {
        let defaults = Defaults {
            index: index.as_deref(),
            doc_type: doc_type.as_deref(),
            routing: options.routing.as_deref(),
            pipeline: options.pipeline.as_deref(),
            require_alias: options.require_alias,
            source: source.as_ref(),
        };
        let mut bulk = parse::parse(&body, &defaults, &allowance)?;
        let is_pipelined = pipelines::concern(&session, &bulk)?;
        if !is_pipelined {
            refuse_by_metadata(&session, &mut bulk, require_data_stream, &allowance)?;
        }
        Ok((bulk, is_pipelined))
    };
    let (mut bulk, is_pipelined) = computed(api, request.body.len(), cut).await?;
    let mut ingest_took_ms = None;
    if is_pipelined {
        let began_ms = api.session.clock().now_ms();
        bulk = pipelines::run(served, api, bulk, require_data_stream, &request.allowance).await?;
        let took_ms = api.session.clock().now_ms() - began_ms;
        ingest_took_ms = Some(u64::try_from(took_ms).unwrap_or(0));
    }
    // Taken before anything is written: what is done must not be answered by a refusal.
    request.answer.take(bulk.items.len().saturating_mul(render::ITEM_BYTES))?;
    let results = if bulk.ops.is_empty() {
        Vec::new()
    } else {
        let ops = std::mem::take(&mut bulk.ops);
        let expected = ops.len();
        let results = api.session.write(ops, refresh, timeout).await?;
        if results.len() != expected {
            return Err(Error::concealed(
                500,
                "illegal_state_exception",
                &format_args!("the store answered {} results for {expected} operations", results.len()),
            ));
        }
        results
            .iter()
            .filter_map(|result| result.as_ref().err())
            .for_each(|error| api.session.refusals().note(error));
        results
    };
    let took_ms = u64::try_from(api.session.clock().now_ms() - started_ms).unwrap_or(0);
    let forced_refresh = refresh == RefreshPolicy::Immediate;
    let body = request.body.clone();
    let filter = Arc::clone(&request.filter);
    let answer = move || {
        let how = render::BulkRenderOptions { took_ms, ingest_took_ms, forced_refresh, filter: &filter };
        render::render(&body, &bulk.items, results, &how)
    };
    let answer = computed(api, request.body.len(), answer).await?;
    Ok(Response::held_json(200, answer, &request.answer))
}

/// Does the work of a bulk of so many bytes: where that is much, on the threads of writes, whose priority is
/// below that of reads.
async fn computed<T: Send + 'static>(
    api: &Api,
    bytes: usize,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    if bytes <= LARGE {
        return work();
    }
    api.session.compute().run(Priority::Ingest, move || Ok(work())).await?
}

/// Properties of the name that operations go to, as far as they are known.
#[derive(Clone, Copy, Default)]
struct CachedName {
    alias: Option<bool>,
    data_stream: Option<bool>,
    /// `true` if the name is of a data stream, which takes no operation `index`.
    appends_only: Option<bool>,
    routing_required: Option<bool>,
}

/// Sets aside the items that current metadata refuses: a name that must be an alias or a data stream and is none, a
/// routing value that is required and missing, an operation that a data stream does not take.
fn refuse_by_metadata(
    session: &Session,
    bulk: &mut parse::Bulk,
    require_data_stream: bool,
    allowance: &MemoryAllowance,
) -> Result<(), Error> {
    let mut known: HashMap<Arc<str>, CachedName> = HashMap::new();
    let mut last: Option<(Arc<str>, CachedName)> = None;
    let mut refused: Vec<(usize, Error)> = Vec::new();
    for (number, op) in bulk.ops.iter().enumerate() {
        let mut facts = match &last {
            Some((name, facts)) if Arc::ptr_eq(name, &op.index) => *facts,
            _ => known.get(&op.index).copied().unwrap_or_default(),
        };
        if let Err(error) = check(session, op, require_data_stream, &mut facts) {
            allowance.take(parse::REFUSAL_BYTES)?;
            if error.is_refusal() {
                session.refusals().note_of(op.needs().name(), Some(&op.index));
            }
            refused.push((number, error));
        }
        if last.as_ref().is_none_or(|(name, _)| !Arc::ptr_eq(name, &op.index)) {
            known.insert(op.index.clone(), facts);
        }
        last = Some((op.index.clone(), facts));
    }
    if refused.is_empty() {
        return Ok(());
    }
    let refused = refused.into_iter().map(|(number, error)| (number, Outcome::Refused(Box::new(error))));
    set_aside(bulk, refused.collect());
    Ok(())
}

/// Takes operations out whose fate is decided, given with their positions in order.
fn set_aside(bulk: &mut parse::Bulk, decided: Vec<(usize, Outcome)>) {
    let dropped: Vec<usize> = decided.iter().map(|(number, _)| *number).collect();
    // Operations and the items that wait for them are in the same order.
    let mut decided = decided.into_iter().peekable();
    let mut number = 0;
    for item in &mut bulk.items {
        if matches!(item.outcome, Outcome::Sent) {
            if let Some((_, outcome)) = decided.next_if(|(at, _)| *at == number) {
                item.outcome = outcome;
            }
            number += 1;
        }
    }
    let mut number = 0;
    let mut dropped = dropped.into_iter().peekable();
    bulk.ops.retain(|_| {
        let keep = dropped.next_if_eq(&number).is_none();
        number += 1;
        keep
    });
}

fn check(
    session: &Session,
    op: &WriteOp,
    require_data_stream: bool,
    name: &mut CachedName,
) -> Result<(), Error> {
    if op.require_alias && name.alias != Some(true) {
        let result = target::require_alias(session, &op.index);
        name.alias = Some(result.is_ok());
        result?;
    }
    if require_data_stream && name.data_stream != Some(true) {
        let result = target::require_data_stream(session, &op.index);
        name.data_stream = Some(result.is_ok());
        result?;
    }
    if matches!(op.action.kind(), ActionKind::Index) && name.appends_only != Some(false) {
        let result = target::check_stream_op(session, op);
        name.appends_only = Some(result.is_err());
        result?;
    }
    if op.routing.is_none() && name.routing_required != Some(false) {
        let result = target::check_routing(session, op);
        name.routing_required = Some(result.is_err());
        result?;
    }
    Ok(())
}

impl Item {
    /// Returns whether the item's acknowledgement carries `created`.
    fn answers_created(&self) -> bool {
        self.doc_type.is_some() && matches!(self.kind, ActionKind::Index | ActionKind::Create)
    }
}

#[cfg(test)]
mod tests;
