//! Index, create and delete.

use millrace_catalog::metadata::IndicesOptions;
use millrace_engine::{Action, DocResult, RefreshPolicy, WriteOp, WriteOutcome};
use millrace_runtime::Priority;
use serde_json::json;

use crate::Api;
use crate::documents::answer::{self, AcknowledgementFormat};
use crate::documents::options::{Expectation, Operation, WriteOptions};
use crate::documents::{DEFAULT_TYPE, id_problem, target};
use crate::error::Error;
use crate::http::{Request, Response, path};
use crate::ingest::{DocumentPipelines, PipelineVerdict, is_pipelined};
use crate::route::DataApi;
use crate::search;

/// Cluster setting that refuses to delete by wildcard.
const DESTRUCTIVE_REQUIRES_NAME: &str = "action.destructive_requires_name";

/// Stores a document. `create` says that the path asks for creation.
pub(crate) async fn index(
    served: &DataApi,
    api: &Api,
    request: &mut Request,
    index: &str,
    doc_type: Option<&str>,
    id: Option<&str>,
    create: bool,
) -> Result<Response, Error> {
    let options = WriteOptions::take(&mut request.params, true, true)?;
    let expectation = Expectation::take(&mut request.params)?;
    let op_type = request.params.take("op_type");
    request.finish()?;
    let create = match op_type.as_deref() {
        None => create,
        Some("create") => true,
        Some(other) if create => {
            return Err(Error::illegal_argument(format!("opType must be 'create', found: [{other}]")));
        }
        Some("index") => false,
        Some(other) => {
            return Err(Error::illegal_argument(format!(
                "opType must be 'create' or 'index', found: [{other}]"
            )));
        }
    };
    if request.body.is_empty() {
        return Err(Error::new(400, "parse_exception", "request body is required"));
    }
    let mut problems = Vec::new();
    if options.pipeline.as_deref() == Some("") {
        problems.push("pipeline cannot be an empty string".to_owned());
    }
    let operation = if create { Operation::Create } else { Operation::Index };
    expectation.check(operation, id.is_some(), &mut problems);
    problems.extend(id.and_then(id_problem));
    refuse(&problems)?;
    let body = request.body.clone();
    let action = if create { Action::Create(body) } else { Action::Index(body) };
    let op = operation_of(index, doc_type, id, action, &options, &expectation);
    let Some(op) = pipelined(served, api, request, op, options.pipeline.as_deref()).await? else {
        return Ok(dropped(index, doc_type, id));
    };
    let outcome = write_one(api, op, &options).await?;
    let dress = AcknowledgementFormat {
        doc_type,
        forced_refresh: options.refresh == RefreshPolicy::Immediate,
        created: doc_type.is_some(),
    };
    let mut response = acknowledge(&outcome, dress);
    if outcome.result == DocResult::Created {
        let mut location = String::new();
        for segment in [&*outcome.index, doc_type.unwrap_or(DEFAULT_TYPE), &*outcome.id] {
            location.push('/');
            path::encode(segment, &mut location);
        }
        response.headers.push(("location", location));
    }
    Ok(response)
}

/// Deletes a document.
pub(crate) async fn delete(
    api: &Api,
    request: &mut Request,
    index: &str,
    doc_type: Option<&str>,
    id: &str,
) -> Result<Response, Error> {
    let options = WriteOptions::take(&mut request.params, false, false)?;
    let expectation = Expectation::take(&mut request.params)?;
    request.finish()?;
    let mut problems = Vec::new();
    expectation.check(Operation::Delete, true, &mut problems);
    problems.extend(id_problem(id));
    refuse(&problems)?;
    // Only a delete with a version of its own leaves a trace in an index that is not there yet.
    if expectation.external().is_none() && !exists(api, index)? {
        return Err(Error::index_not_found(index));
    }
    let op = operation_of(index, doc_type, Some(id), Action::Delete, &options, &expectation);
    let outcome = write_one(api, op, &options).await?;
    let forced_refresh = options.refresh == RefreshPolicy::Immediate;
    Ok(acknowledge(&outcome, AcknowledgementFormat { doc_type, forced_refresh, created: false }))
}

/// Deletes all documents of an index: the id `*` stands for them.
pub(crate) async fn delete_all(api: &Api, request: &mut Request, index: &str) -> Result<Response, Error> {
    let setting = api.session.metadata().cluster_setting(DESTRUCTIVE_REQUIRES_NAME);
    if setting.is_some_and(|value| value == json!(true) || value == json!("true")) {
        return Err(Error::illegal_argument(
            "Wildcard expressions or all indices are not allowed (action.destructive_requires_name is true)",
        ));
    }
    let params = request.params.take_all();
    let body = Some(json!({ "query": { "match_all": {} } }));
    search::delete_matches(api, request, index, params, body).await
}

fn exists(api: &Api, index: &str) -> Result<bool, Error> {
    const NAMED: IndicesOptions =
        IndicesOptions { expand_open: false, forbid_closed: false, ..IndicesOptions::open_only() };
    let now = api.session.clock().now_ms();
    Ok(!api.session.metadata().resolve(index, &NAMED, now)?.is_empty())
}

pub(super) fn refuse(problems: &[String]) -> Result<(), Error> {
    if problems.is_empty() { Ok(()) } else { Err(Error::validation(problems)) }
}

pub(super) fn operation_of(
    index: &str,
    doc_type: Option<&str>,
    id: Option<&str>,
    action: Action,
    options: &WriteOptions,
    expectation: &Expectation,
) -> WriteOp {
    let mut op = WriteOp {
        routing: options.routing.clone(),
        version: expectation.external(),
        if_seq_no: expectation.seq_no(),
        if_primary_term: expectation.primary_term(),
        require_alias: options.require_alias,
        ..WriteOp::new(index, id.map(str::to_owned), action)
    };
    if let Some(doc_type) = doc_type {
        op.doc_type = doc_type.into();
    }
    op
}

/// Takes an operation through its ingest pipelines, on the threads of writes; `None` where one dropped it.
pub(super) async fn pipelined(
    served: &DataApi,
    api: &Api,
    request: &Request,
    mut op: WriteOp,
    requested: Option<&str>,
) -> Result<Option<WriteOp>, Error> {
    if !is_pipelined(&api.session, &op, requested) {
        return Ok(Some(op));
    }
    let service = served.ingest()?.clone();
    let stored = service.stored().await?;
    let (session, allowance) = (api.session.clone(), request.allowance.clone());
    let requested = requested.map(str::to_owned);
    let work = move || {
        let mut pipelines = DocumentPipelines::new(&session, &stored, service.total());
        let verdict = pipelines.apply(&mut op, requested.as_deref(), &allowance);
        Ok(verdict.map(|verdict| (verdict != PipelineVerdict::Drop).then_some(op)))
    };
    api.session.compute().run(Priority::Ingest, work).await?
}

/// Answers for a document that a pipeline dropped.
pub(super) fn dropped(index: &str, doc_type: Option<&str>, id: Option<&str>) -> Response {
    let mut out = b"{".to_vec();
    answer::push_dropped(&mut out, index, doc_type, id);
    out.push(b'}');
    Response::raw_json(200, out)
}

/// Hands one operation to the engine.
pub(super) async fn write_one(api: &Api, op: WriteOp, options: &WriteOptions) -> Result<WriteOutcome, Error> {
    if op.require_alias {
        target::require_alias(&api.session, &op.index)?;
    }
    if options.require_data_stream {
        target::require_data_stream(&api.session, &op.index)?;
    }
    target::check_routing(&api.session, &op)?;
    Ok(api.session.write_one(op, options.refresh, options.timeout).await?)
}

/// Answers an acknowledgement.
pub(super) fn acknowledge(outcome: &WriteOutcome, dress: AcknowledgementFormat<'_>) -> Response {
    let mut out = Vec::with_capacity(256);
    out.push(b'{');
    answer::push_members(&mut out, outcome, dress);
    out.push(b'}');
    Response::raw_json(answer::status(outcome.result), out)
}
