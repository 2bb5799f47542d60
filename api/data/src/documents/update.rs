//! Partial updates.

use bytes::Bytes;
use millrace_engine::{Action, RefreshPolicy, Update, VersionType};
use millrace_mapping::source::{Member, Members, ObjectText};
use serde_json::Value;

use crate::Api;
use crate::documents::answer::{self, AcknowledgementFormat};
use crate::documents::id_problem;
use crate::documents::options::{Expectation, WriteOptions};
use crate::documents::source::SourceFilter;
use crate::documents::write::{acknowledge, dropped, operation_of, pipelined, refuse, write_one};
use crate::error::Error;
use crate::http::json::{self, push_u64, token};
use crate::http::{MemoryAllowance, Params, Request, Response, offload};
use crate::route::DataApi;

/// Members of an update body.
const MEMBERS: [&str; 9] = [
    "script",
    "scripted_upsert",
    "upsert",
    "doc",
    "doc_as_upsert",
    "detect_noop",
    "_source",
    "if_seq_no",
    "if_primary_term",
];

/// A parsed update body.
#[derive(Clone, Debug, Default)]
pub(crate) struct UpdateBody {
    pub(crate) update: Update,
    pub(crate) source: Option<SourceFilter>,
    pub(crate) if_seq_no: Option<i64>,
    pub(crate) if_primary_term: Option<i64>,
}

/// Parses an update body, as requests and `_bulk` lines carry it. What is merged stays the text that it is.
pub(crate) fn parse(text: &Bytes, allowance: &MemoryAllowance) -> Result<UpdateBody, Error> {
    json::check(text, allowance)?;
    let Some(members) = Members::parse(text) else {
        return Err(refusal(format!(
            "Expected START_OBJECT but was: {}",
            token(&json::parse(text, allowance)?)
        )));
    };
    let mut parsed = UpdateBody::default();
    parsed.update.detect_noop = true;
    for Member { name, value, .. } in members.iter() {
        let (name, is_null) = (&**name, *value == b"null");
        let read = || json::parse(value, allowance);
        let object = || -> Result<ObjectText, Error> {
            match value.first() {
                Some(b'{') => Ok(text.slice_ref(value).into()),
                _ => Err(wrong_type(name, &read()?)),
            }
        };
        if is_null && name != "doc" && name != "upsert" {
            continue;
        }
        match name {
            "doc" => parsed.update.doc = Some(object()?),
            "upsert" => parsed.update.upsert = Some(object()?),
            "doc_as_upsert" => parsed.update.doc_as_upsert = flag(name, &read()?)?,
            "detect_noop" => parsed.update.detect_noop = flag(name, &read()?)?,
            "_source" => parsed.source = Some(SourceFilter::parse(&read()?)?),
            "if_seq_no" => parsed.if_seq_no = Some(whole(name, &read()?)?),
            "if_primary_term" => parsed.if_primary_term = Some(whole(name, &read()?)?),
            "script" | "scripted_upsert" => {
                return Err(Error::illegal_argument(
                    "scripts are not supported: send the changed fields as [doc] instead of [script]",
                ));
            }
            other => {
                let near = crate::http::nearest(other, MEMBERS.into_iter());
                let hint = match near.as_slice() {
                    [] => String::new(),
                    [one] => format!(" did you mean [{one}]?"),
                    many => format!(" did you mean any of [{}]?", many.join(", ")),
                };
                return Err(refusal(format!("[UpdateRequest] unknown field [{other}]{hint}")));
            }
        }
    }
    Ok(parsed)
}

/// Adds what is missing from an update to `problems`.
pub(crate) fn check(
    parsed: &UpdateBody,
    expectation: &Expectation,
    retries: i64,
    problems: &mut Vec<String>,
) {
    if expectation.version.is_some() || expectation.version_type.is_some_and(|t| t != VersionType::Internal) {
        problems.push(
            "internal versioning can not be used for optimistic concurrency control. Please use `if_seq_no` and \
             `if_primary_term` instead"
                .to_owned(),
        );
    }
    if parsed.update.doc.is_none() {
        let problem = if parsed.update.doc_as_upsert {
            "doc must be specified if doc_as_upsert is enabled"
        } else {
            "script or doc is missing"
        };
        problems.push(problem.to_owned());
    }
    if retries > 0 && expectation.if_seq_no.is_some() {
        problems.push("compare and write operations can not be retried".to_owned());
    }
    if expectation.if_seq_no.is_some() && (parsed.update.upsert.is_some() || parsed.update.doc_as_upsert) {
        problems.push("upsert requests don't support `if_seq_no` and `if_primary_term`".to_owned());
    }
    expectation.check_condition(problems);
}

/// Appends the `get` member that shows the source after an update.
pub(crate) fn push_get(
    out: &mut Vec<u8>,
    outcome: &millrace_engine::WriteOutcome,
    filter: Option<&SourceFilter>,
) -> Result<(), Error> {
    let (Some(filter), Some(source)) = (filter, &outcome.source) else { return Ok(()) };
    let Some(source) = filter.apply(source)? else { return Ok(()) };
    out.extend_from_slice(b",\"get\":{\"_seq_no\":");
    push_u64(out, outcome.seq_no);
    out.extend_from_slice(b",\"_primary_term\":");
    push_u64(out, outcome.primary_term);
    out.extend_from_slice(b",\"found\":true,\"_source\":");
    out.extend_from_slice(&source);
    out.push(b'}');
    Ok(())
}

/// Returns whether a filter of an update shows anything of the source.
pub(crate) fn returns_source(filter: Option<&SourceFilter>) -> bool {
    filter.is_some_and(|filter| *filter != SourceFilter::None)
}

/// Answers `_update`.
pub(crate) async fn update(
    served: &DataApi,
    api: &Api,
    request: &mut Request,
    index: &str,
    doc_type: Option<&str>,
    id: &str,
) -> Result<Response, Error> {
    let options = WriteOptions::take(&mut request.params, true, false)?;
    let mut expectation = Expectation::take(&mut request.params)?;
    let source = SourceFilter::take(&mut request.params)?;
    let retries = take_retries(&mut request.params)?;
    request.finish()?;
    if request.body.iter().all(u8::is_ascii_whitespace) {
        return Err(Error::new(400, "parse_exception", "request body is required"));
    }
    let mut parsed = offload(request.body.len(), || parse(&request.body, &request.allowance))?;
    expectation.if_seq_no = parsed.if_seq_no.or(expectation.if_seq_no);
    expectation.if_primary_term = parsed.if_primary_term.or(expectation.if_primary_term);
    let mut problems = Vec::new();
    check(&parsed, &expectation, retries, &mut problems);
    problems.extend(id_problem(id));
    refuse(&problems)?;
    parsed.update.retry_on_conflict = u32::try_from(retries).unwrap_or(0);
    let filter = parsed.source.take().or(source);
    parsed.update.returns_source = returns_source(filter.as_ref());
    let action = Action::Update(Box::new(parsed.update));
    let op = operation_of(index, doc_type, Some(id), action, &options, &expectation);
    let Some(op) = pipelined(served, api, request, op, None).await? else {
        return Ok(dropped(index, doc_type, Some(id)));
    };
    let outcome = write_one(api, op, &options).await?;
    let forced_refresh = options.refresh == RefreshPolicy::Immediate;
    let dress = AcknowledgementFormat { doc_type, forced_refresh, created: false };
    if filter.is_none() {
        return Ok(acknowledge(&outcome, dress));
    }
    let mut out = Vec::with_capacity(256);
    out.push(b'{');
    answer::push_members(&mut out, &outcome, dress);
    push_get(&mut out, &outcome, filter.as_ref())?;
    out.push(b'}');
    // What is done is not answered by a refusal, where others leave no room.
    let _ = request.answer.take(out.len());
    Ok(Response::held_json(answer::status(outcome.result), out, &request.answer))
}

fn take_retries(params: &mut Params) -> Result<i64, Error> {
    match params.take_int("retry_on_conflict")?.unwrap_or(0) {
        retries @ 0..=1_000_000 => Ok(retries),
        other => Err(Error::illegal_argument(format!(
            "[retry_on_conflict] must be between 0 and 1000000 but was [{other}]"
        ))),
    }
}

fn flag(name: &str, value: &Value) -> Result<bool, Error> {
    match value {
        Value::Bool(flag) => Ok(*flag),
        Value::String(text) if text == "true" || text == "false" => Ok(text == "true"),
        other => Err(wrong_type(name, other)),
    }
}

fn whole(name: &str, value: &Value) -> Result<i64, Error> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok()).ok_or_else(|| wrong_type(name, value))
}

fn wrong_type(name: &str, value: &Value) -> Error {
    refusal(format!("[UpdateRequest] {name} doesn't support values of type: {}", token(value)))
}

fn refusal(reason: String) -> Error {
    Error::new(400, "x_content_parse_exception", reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(body: Value) -> Result<UpdateBody, Error> {
        super::parse(&body.to_string().into(), &MemoryAllowance::with_limit(0))
    }

    #[test]
    fn numbers_stay_as_they_are_written() {
        let body = Bytes::from_static(b"{\"doc\": {\"n\":123456789012345678901234567890}}");
        let doc = super::parse(&body, &MemoryAllowance::with_limit(0)).unwrap().update.doc.unwrap();
        assert_eq!(&doc.text()[..], b"{\"n\":123456789012345678901234567890}");
        for wrong in [&b"{\"doc\":{\"n\":1,\"n\":2}}"[..], b"{\"doc\":{\"n\":01}}", b"{\"doc\":{}}x"] {
            let refused =
                super::parse(&Bytes::copy_from_slice(wrong), &MemoryAllowance::with_limit(0)).unwrap_err();
            assert_eq!(refused.error_type(), "json_parse_exception");
        }
    }

    #[test]
    fn bodies() {
        let parsed = parse(json!({ "doc": { "a": 1 }, "doc_as_upsert": true, "_source": ["a"] })).unwrap();
        assert!(parsed.update.doc_as_upsert && parsed.update.detect_noop);
        assert_eq!(parsed.update.doc, Some(json!({ "a": 1 }).into()));
        for (body, reason) in [
            (json!({ "dac": {} }), "[UpdateRequest] unknown field [dac] did you mean [doc]?"),
            (json!({ "zzzzzz": {} }), "[UpdateRequest] unknown field [zzzzzz]"),
            (json!({ "doc": "x" }), "[UpdateRequest] doc doesn't support values of type: VALUE_STRING"),
            (json!([]), "Expected START_OBJECT but was: START_ARRAY"),
        ] {
            assert_eq!(parse(body).unwrap_err().reason(), reason);
        }
        assert!(
            parse(json!({ "script": "ctx._source.a = 1" })).unwrap_err().reason().contains("not supported")
        );
    }

    #[test]
    fn rules() {
        let run = |body: Value, expectation: Expectation, retries: i64| {
            let mut problems = Vec::new();
            check(&parse(body).unwrap(), &expectation, retries, &mut problems);
            problems
        };
        let doc = || json!({ "doc": {} });
        assert!(run(doc(), Expectation::default(), 3).is_empty());
        assert_eq!(run(json!({}), Expectation::default(), 0), ["script or doc is missing"]);
        let conditional =
            Expectation { if_seq_no: Some(1), if_primary_term: Some(1), ..Expectation::default() };
        assert_eq!(run(doc(), conditional, 1), ["compare and write operations can not be retried"]);
        let versioned = Expectation { version: Some(1), ..Expectation::default() };
        assert_eq!(run(doc(), versioned, 0).len(), 1);
    }
}
